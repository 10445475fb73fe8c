"""A retriever that asks to be left alone is left alone, and whoever waits can still go away."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from app.base.addresses import retriever_policy
from app.base.net.transfer import Request, Response
from app.base.net.transport import PAUSE_SECONDS, exchange, send_one
from tests.support.http_servers import Reply, Seen, peer, reply

ANYWHERE = retriever_policy()


def busy(value: str, status: int = 429) -> Reply:
    """Refuse, and say when to come back."""
    return reply(b"busy", status, {"retry-after": value})


def ask(answer: Reply) -> Response:
    """Ask one question."""
    with peer(answer) as server:
        return send_one(Request(url=server.url, body=b"", retries=3), policy=ANYWHERE)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("value", "seconds"), [("7", 7.0), ("3600", 3600.0), ("0", 0.0), ("soon", None), ("", None)])
def test_seconds_are_read(status: int, value: str, seconds: float | None) -> None:
    response = ask(busy(value, status))
    assert (response.status, response.retry_after_seconds, response.body) == (status, seconds, b"busy")


def test_http_date_is_read() -> None:
    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    seconds = ask(busy(in_an_hour)).retry_after_seconds
    assert seconds is not None
    assert 3500 < seconds <= 3600


def test_date_counts_from_the_clock_of_the_server() -> None:
    headers = {"retry-after": "Sun, 06 Nov 1994 08:50:07 GMT", "date": "Sun, 06 Nov 1994 08:49:37 GMT"}
    assert ask(reply(b"busy", 429, headers)).retry_after_seconds == 30


def test_date_that_has_passed_asks_for_nothing() -> None:
    assert ask(busy("Sun, 06 Nov 1994 08:49:37 GMT")).retry_after_seconds == 0


@pytest.mark.parametrize("status", [200, 302, 404, 500])
def test_other_answers_do_not_ask_for_patience(status: int) -> None:
    assert ask(busy("7", status)).retry_after_seconds is None


def test_nothing_is_started_before_the_peer_wants_it_and_the_bad_answer_is_not_asked_again() -> None:
    at: list[float] = []

    def answer(seen: Seen) -> Reply:
        at.append(time.monotonic())
        return busy("1") if seen.body == b"0" else reply(seen.body)

    with peer(answer) as server:
        requests = [Request(tag=n, url=server.url, body=str(n).encode(), retries=3) for n in range(3)]
        batches = list(exchange(requests, policy=ANYWHERE, concurrency=1))
        assert [seen.body for seen in server.seen] == [b"0", b"1", b"2"]
    assert at[1] - at[0] >= 1
    assert [] in batches  # the consumer heard from us meanwhile
    assert [(tag, response.status) for batch in batches for tag, response in batch] == [(0, 429), (1, 200), (2, 200)]


def test_transport_failure_waits_with_the_rest() -> None:
    at: list[float] = []
    refused = threading.Event()

    def answer(seen: Seen) -> Reply:
        at.append(time.monotonic())
        if seen.body == b"0":
            refused.set()
            return busy("1", 503)
        refused.wait(10)
        return Reply(close=True) if len(at) <= 2 else reply()

    with peer(answer) as server:
        requests = [Request(tag=n, url=server.url, body=str(n).encode(), retries=1) for n in range(2)]
        found = dict(one for batch in exchange(requests, policy=ANYWHERE, concurrency=2) for one in batch)
    assert {tag: response.status for tag, response in found.items()} == {0: 503, 1: 200}
    assert at[2] - at[0] >= 1


def test_what_is_under_way_goes_on_and_the_last_answer_ends_it_without_a_wait() -> None:
    refused = threading.Event()

    def answer(seen: Seen) -> Reply:
        if seen.body == b"0":
            refused.set()
            return busy("3600")
        refused.wait(10)
        return reply(seen.body)

    with peer(answer) as server:
        requests = [Request(tag=n, url=server.url, body=str(n).encode()) for n in range(4)]
        found = dict(one for batch in exchange(requests, policy=ANYWHERE, concurrency=4) for one in batch)
    assert {tag: response.status for tag, response in found.items()} == {0: 429, 1: 200, 2: 200, 3: 200}
    assert found[0].retry_after_seconds == 3600  # what was said, though nobody waits longer than the cap
    assert PAUSE_SECONDS < 3600


def test_waiting_can_be_ended_and_draws_no_more_than_one_request_ahead() -> None:
    drawn: list[int] = []

    def requests(url: str) -> Iterator[Request]:
        for n in range(1000):
            drawn.append(n)
            yield Request(tag=n, url=url, body=b"")

    with peer(busy("3600")) as server:
        with closing(exchange(requests(server.url), policy=ANYWHERE, concurrency=1)) as batches:
            assert [response.status for _, response in next(batches)] == [429]
            assert [next(batches) for _ in range(2)] == [[], []]
        assert "transport" not in {thread.name for thread in threading.enumerate()}
        assert len(server.seen) == 1
    assert drawn == [0, 1]
