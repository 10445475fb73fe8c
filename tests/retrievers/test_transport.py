"""The transport's promises, held against real sockets."""

import gzip
import json
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from app.base.addresses import AddressPolicy, Proxy, hook_policy, parse_allow, retriever_policy
from app.base.net.transfer import Failure, Request, Response, header_line
from app.base.net.transport import BACKLOG_BYTES, exchange, send_one
from tests.support.certificates import Authority, serving
from tests.support.http_servers import HANG, SILENCE, Reply, Seen, closed_port, peer, reply

ANYWHERE = retriever_policy()
PUBLIC = hook_policy()


def ask(url: str, *, policy: AddressPolicy = ANYWHERE, timeout_seconds: float = 10.0, retries: int = 0) -> Response:
    """Send one small POST."""
    request = Request(url=url, body=b"{}", timeout_seconds=timeout_seconds, retries=retries, max_body_bytes=1_000_000)
    return send_one(request, policy=policy)


def gather(
    requests: list[Request], *, concurrency: int = 8, requests_per_second: float | None = None
) -> dict[int, Response]:
    """Exchange everything; each tag must come once."""
    found: dict[int, Response] = {}
    batches = exchange(
        iter(requests), policy=ANYWHERE, concurrency=concurrency, requests_per_second=requests_per_second
    )
    for batch in batches:
        for tag, response in batch:
            assert tag not in found
            found[tag] = response
    return found


def test_answer_comes_with_status_body_and_latency() -> None:
    with peer(reply(b"hello", 201)) as server:
        response = ask(server.url)
    assert (response.status, response.body, response.failure) == (201, b"hello", None)
    assert response.latency_seconds > 0
    assert response.headers == {}


def test_headers_come_in_lower_case_when_wanted_and_are_those_of_the_final_answer() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nX-Early: 1\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nX-One: a\r\nx-one: b\r\nContent-Length: 0\r\n\r\n"
    with peer(Reply(raw=early + final)) as server:
        response = send_one(Request(url=server.url, wants_headers=True), policy=ANYWHERE)
    assert response.headers == {"x-one": "a, b", "content-length": "0"}


def test_request_arrives_as_given() -> None:
    with peer(reply()) as server:
        for method, body in (("GET", None), ("POST", b"\x00\xff"), ("PUT", b"x"), ("DELETE", None), ("GET", b"{}")):
            headers = (header_line("X-Thing", "grüß"), header_line("X-Empty", ""))
            send_one(
                Request(url=f"{server.url}/a/../b?c=%20", method=method, body=body, headers=headers), policy=ANYWHERE
            )
            seen = server.seen[-1]
            assert (seen.method, seen.target, seen.body) == (method, "/a/../b?c=%20", body or b"")
            assert seen.headers["x-thing"] == "grüß"
            assert seen.headers["x-empty"] == ""


def test_one_handle_may_change_method_and_body_from_request_to_request() -> None:
    kinds = [("POST", b"one"), ("GET", None), ("PUT", b"two"), ("DELETE", None), ("POST", b""), ("GET", b"three")]
    with peer(lambda seen: reply(f"{seen.method} {seen.body.decode()}".encode())) as server:
        requests = [Request(tag=n, url=server.url, method=m, body=b) for n, (m, b) in enumerate(kinds)]
        found = gather(requests, concurrency=1)
    assert [found[n].body for n in range(len(kinds))] == [
        f"{method} {(body or b'').decode()}".encode() for method, body in kinds
    ]


def test_silent_peer_times_out() -> None:
    with peer(HANG) as server:
        response = ask(server.url, timeout_seconds=0.1)
    assert (response.failure, response.detail) == (Failure.TIMEOUT, "no complete answer within 0.1 s")
    assert response.latency_seconds >= 0.1


def test_peer_that_stops_in_the_middle_times_out() -> None:
    with peer(Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal", hang=True)) as server:
        response = ask(server.url, timeout_seconds=0.1)
    assert response.failure is Failure.TIMEOUT


def test_closed_port_is_unreachable_and_says_why() -> None:
    with closed_port() as port:
        response = ask(f"http://127.0.0.1:{port}")
    assert (response.failure, response.detail) == (Failure.UNREACHABLE, "connection failed: Connection refused")


def test_unknown_name_is_unreachable() -> None:
    response = ask("http://nobody.invalid/")
    assert (response.failure, response.detail) == (Failure.UNREACHABLE, "the host name does not resolve")


@pytest.mark.parametrize(
    "url", ["http://", "http://[::1", "http://a b/", "http://127.0.0.1:99999/", "http://a\0b/", "http://a/\ud800"]
)
def test_malformed_url_is_unreachable_not_an_exception(url: str) -> None:
    assert ask(url).failure is Failure.UNREACHABLE


def test_tls_to_a_plain_port_is_unreachable() -> None:
    with peer(SILENCE) as server:
        response = ask(server.url.replace("http:", "https:"), timeout_seconds=5)
    assert response.failure is Failure.UNREACHABLE


def test_certificate_nobody_vouches_for_is_refused_with_the_reason(tmp_path: Path) -> None:
    with peer(reply(), tls=serving(tmp_path, Authority().issue("localhost"))) as server:
        response = ask(f"https://localhost:{server.port}/")
        assert server.seen == []
    assert response.failure is Failure.UNREACHABLE
    assert str(response.detail).startswith("TLS: ")
    assert "unable to get local issuer certificate" in str(response.detail)


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (SILENCE, "the connection was closed without an answer"),
        (
            Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal", close=True),
            "the connection was closed in the middle of the answer",
        ),
        (
            Reply(raw=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhal", close=True),
            "the connection was closed in the middle of the answer",
        ),
    ],
)
def test_broken_connection_is_unreachable(answer: Reply, detail: str) -> None:
    with peer(answer) as server:
        response = ask(server.url)
    assert (response.failure, response.detail) == (Failure.UNREACHABLE, detail)
    assert response.body == b""


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nx: %s\r\n\r\n" % (b"y" * 150_000),
    ],
)
def test_answer_that_is_not_proper_http_is_garbled(raw: bytes) -> None:
    with peer(Reply(raw=raw, close=True)) as server:
        response = ask(server.url)
    assert response.failure is Failure.MALFORMED


@pytest.mark.parametrize("announced", [True, False])
def test_large_body_is_cut_off(announced: bool) -> None:  # noqa: FBT001 - pytest passes parameters by name
    head = b"content-length: 10000000" if announced else b"connection: close"
    with peer(Reply(raw=b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % head + bytes(10_000_000), close=True)) as server:
        response = ask(server.url)
    assert (response.failure, response.status) == (Failure.OVERSIZE, 200)
    assert response.detail == "the answer is larger than 1,000,000 bytes"
    assert response.body == b""


def test_body_of_exactly_the_cap_passes() -> None:
    with peer(reply(bytes(1_000_000))) as server:
        assert ask(server.url).failure is None


def test_compression_bomb_is_oversize_by_what_it_unpacks_to() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < 1_000_000
    with peer(reply(bomb, headers={"content-encoding": "gzip"})) as server:
        assert ask(server.url).failure is Failure.OVERSIZE


@pytest.mark.parametrize(
    ("name", "packed"), [("gzip", gzip.compress(b"hello", mtime=0)), ("deflate", zlib.compress(b"hello"))]
)
def test_compressed_answer_is_unpacked(name: str, packed: bytes) -> None:
    with peer(reply(packed, headers={"content-encoding": name})) as server:
        assert ask(server.url).body == b"hello"


def test_redirect_is_not_followed() -> None:
    with peer(reply()) as target, peer(reply(status=302, headers={"location": target.url})) as server:
        response = ask(server.url)
        assert (response.status, response.failure) == (302, None)
        assert target.seen == []


def test_loopback_is_blocked_in_every_spelling() -> None:
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "0",
    ]:
        with peer(reply()) as server:
            response = ask(f"http://{host}:{server.port}/", policy=PUBLIC)
            assert response.failure is Failure.BLOCKED, host
            assert response.detail is not None, host
            assert response.detail.startswith("not allowed to connect: "), host
            assert server.connections == 0, host


def test_allow_list_opens_what_it_names() -> None:
    with peer(reply()) as server:
        by_network = hook_policy(parse_allow("127.0.0.0/8"))
        by_name = hook_policy(parse_allow("localhost"))
        assert ask(server.url, policy=by_network).status == 200
        assert ask(f"http://localhost:{server.port}", policy=by_name).status == 200
        assert ask(server.url, policy=by_name).failure is Failure.BLOCKED


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://127.0.0.1:1/", "ftp://127.0.0.1/", "127.0.0.1", ""])
def test_only_http_is_spoken(url: str) -> None:
    response = ask(url)
    assert (response.failure, response.body) == (Failure.BLOCKED, b"")


def test_environment_proxy_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as port, peer(reply()) as server:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        assert ask(server.url).status == 200


def test_configured_proxy_is_used_and_literal_addresses_are_judged_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with peer(reply(b"by proxy")) as server:
        through = replace(PUBLIC, proxy=Proxy(url=server.url))
        public = Request(url="http://retriever.invalid/x", body=b"{}")
        assert send_one(public, policy=through).body == b"by proxy"
        assert server.seen[0].target == "http://retriever.invalid/x"
        inside = Request(url="http://10.0.0.1/x", body=b"{}")
        assert send_one(inside, policy=through).failure is Failure.BLOCKED
        assert len(server.seen) == 1


def test_transport_failure_is_retried_and_the_last_attempt_decides() -> None:
    answers = iter([SILENCE, reply(b"better")])
    with peer(lambda _: next(answers)) as server:
        response = ask(server.url, retries=1)
    assert response.body == b"better"


def test_retries_end() -> None:
    with peer(SILENCE) as server:
        response = ask(server.url, retries=2)
        assert response.failure is Failure.UNREACHABLE
        assert len(server.seen) == 3


@pytest.mark.parametrize(
    "answer",
    [
        reply(status=500),
        reply(status=429),
        Reply(raw=b"HTTP/1.1 503 No\r\ncontent-length: 9\r\n\r\n", close=True),
        reply(bytes(2_000_000)),
        Reply(raw=b"SSH-2.0\r\n", close=True),
    ],
)
def test_bad_answer_is_never_retried(answer: Reply) -> None:
    with peer(answer) as server:
        ask(server.url, retries=3)
        assert len(server.seen) == 1


def test_every_request_is_answered_once_over_few_connections() -> None:
    with peer(lambda seen: reply(seen.body)) as server:
        requests = [Request(tag=n, url=server.url, body=str(n).encode()) for n in range(300)]
        found = gather(requests, concurrency=8)
        assert {tag: response.body for tag, response in found.items()} == {n: str(n).encode() for n in range(300)}
        assert server.connections <= 8


def test_one_bad_peer_does_not_harm_the_others() -> None:
    def answer(seen: Seen) -> Reply:
        kind = int(seen.body) % 4
        # Kind 1 announces less than it sends: what is left over must not become the next answer.
        lying = Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n")
        return (reply(seen.body), lying, SILENCE, HANG)[kind]

    with peer(answer) as server:
        requests = [Request(tag=n, url=server.url, body=str(n).encode(), timeout_seconds=0.3) for n in range(40)]
        found = gather(requests, concurrency=10)
    expected = (None, None, Failure.UNREACHABLE, Failure.TIMEOUT)
    assert {tag: response.failure for tag, response in found.items()} == {n: expected[n % 4] for n in range(40)}
    assert [found[n].body for n in range(0, 40, 4)] == [str(n).encode() for n in range(0, 40, 4)]
    assert {found[n].body for n in range(1, 40, 4)} == {b"ok"}


def test_concurrency_is_reached_and_not_exceeded() -> None:
    barrier = threading.Barrier(4)
    lock = threading.Lock()
    busy: list[int] = [0, 0]

    def answer(_: Seen) -> Reply:
        with lock:
            busy[0] += 1
            busy[1] = max(busy)
        barrier.wait(20)
        with lock:
            busy[0] -= 1
        return reply()

    with peer(answer) as server:
        found = gather([Request(tag=n, url=server.url, body=b"") for n in range(12)], concurrency=4)
    assert {response.status for response in found.values()} == {200}
    assert busy[1] == 4


def test_pace_is_kept_without_bursts() -> None:
    drawn: list[float] = []

    def requests(url: str) -> Iterator[Request]:
        for n in range(8):
            drawn.append(time.monotonic())
            yield Request(tag=n, url=url, body=b"")

    with peer(reply()) as server:
        paced = exchange(requests(server.url), policy=ANYWHERE, concurrency=8, requests_per_second=50)
        assert sum(map(len, paced)) == 8
    gaps = [later - earlier for earlier, later in pairwise(drawn)]
    assert min(gaps) >= 0.5 / 50
    assert drawn[-1] - drawn[0] >= (7 - 0.5) / 50


def test_closing_cancels_what_is_under_way_and_ends_the_thread() -> None:
    with peer(lambda seen: reply() if seen.body == b"0" else HANG) as server:
        requests = (Request(tag=n, url=server.url, body=str(n).encode(), timeout_seconds=60) for n in range(1000))
        with closing(exchange(requests, policy=ANYWHERE, concurrency=4)) as batches:
            assert [tag for tag, _ in next(batches)] == [0]
        assert "transport" not in {thread.name for thread in threading.enumerate()}
        assert len(server.seen) <= 5


def test_slow_consumer_holds_back_new_requests_and_misses_nothing() -> None:
    megabyte = bytes(1_000_000)
    many = 60
    reached = threading.Semaphore(0)

    def answer(_: Seen) -> Reply:
        reached.release()
        return reply(megabyte)

    with peer(answer) as server:
        requests = [Request(tag=n, url=server.url, body=b"") for n in range(many)]
        with closing(exchange(requests, policy=ANYWHERE, concurrency=2)) as batches:
            taken = len(next(batches))
            for _ in range(BACKLOG_BYTES // len(megabyte)):
                assert reached.acquire(timeout=20)
            assert len(server.seen) <= BACKLOG_BYTES // len(megabyte) + taken + 3
            assert taken + sum(map(len, batches)) == many


def test_error_in_the_source_of_requests_reaches_the_consumer() -> None:
    def broken(url: str) -> Iterator[Request]:
        yield Request(tag=1, url=url, body=b"")
        raise LookupError("no more")

    with peer(reply()) as server, pytest.raises(LookupError, match="no more"):
        list(exchange(broken(server.url), policy=ANYWHERE, concurrency=1))


def test_nothing_to_ask_ends_at_once() -> None:
    assert list(exchange([], policy=ANYWHERE, concurrency=4)) == []


def test_header_cannot_smuggle_lines_and_its_value_stays_secret() -> None:
    for name, value in [
        ("x", "a\r\nevil: 1"),
        ("x", "a\nb"),
        ("x", "a\0"),
        ("x\r\ny", "a"),
        ("", "a"),
        ("x y", "a"),
        ("x:", "a"),
        ("é", "a"),
        ("x" * 129, "a"),
        ("x", "\x7f"),
        ("x", "€"),
        ("x", "\ud800"),
    ]:
        with pytest.raises(ValueError, match="header") as caught:
            header_line(name, f"hunter2{value}")
        assert "hunter2" not in str(caught.value), name


def test_failure_says_nothing_of_user_info_or_query() -> None:
    with closed_port() as port:
        response = ask(f"http://user:hunter2@127.0.0.1:{port}/?key=hunter2")
    assert response.failure is Failure.UNREACHABLE
    assert "hunter2" not in json.dumps([response.detail])
