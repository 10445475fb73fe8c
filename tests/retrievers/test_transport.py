"""The transport's promises, held against real sockets."""

import gzip
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.base.addresses import AddressPolicy, retriever_policy
from app.base.net.transfer import Failure, Request, Response, header_line
from app.base.net.transport import BACKLOG_BYTES, exchange, send_one
from tests.support.certificates import Authority, serving
from tests.support.http_servers import HANG, SILENCE, Reply, Seen, peer, reply

ANYWHERE = retriever_policy()


def ask(url: str, *, policy: AddressPolicy = ANYWHERE, timeout_seconds: float = 10.0, retries: int = 0) -> Response:
    """Send one small POST."""
    request = Request(url=url, body=b"{}", timeout_seconds=timeout_seconds, retries=retries, max_body_bytes=1_000_000)
    return send_one(request, policy=policy)


def gather(requests: list[Request], *, concurrency: int) -> dict[int, Response]:
    """Exchange everything; each tag must come once."""
    found: dict[int, Response] = {}
    for batch in exchange(iter(requests), policy=ANYWHERE, concurrency=concurrency):
        for tag, response in batch:
            assert tag not in found
            found[tag] = response
    return found


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


def test_answer_with_a_header_beyond_all_measure_is_garbled() -> None:
    with peer(Reply(raw=b"HTTP/1.1 200 OK\r\nx: %s\r\n\r\n" % (b"y" * 150_000), close=True)) as server:
        response = ask(server.url)
    assert response.failure is Failure.MALFORMED


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
