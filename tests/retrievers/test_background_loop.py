"""Asking in sessions: as many at once as the retriever takes, no faster than it wants, in a loop of made-up time."""

import asyncio
import selectors
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.base.values import Answer, Outcome
from app.retrievers.client.background_loop import QueryOnce, query_in_sessions
from app.retrievers.domain.retrievers import (
    Dialect,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scorer,
    ScorerKind,
)
from tests.support import event_loops


class Leaping(selectors.DefaultSelector):
    """A selector that leaps over the time in which nothing would happen."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for nothing; what the loop would have waited has passed."""
        self.now += timeout or 0.0
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """A loop that goes by the time of its selector."""

    def __init__(self) -> None:
        self._leaping = Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        """Count the seconds since the loop began."""
        return self._leaping.now


def asked(count: int, seconds: list[float], **changes: Any) -> tuple[list[float], int]:
    """Ask a retriever that takes so many seconds for each answer; give when it was asked, and how many at once."""
    described = Retriever(
        slug="docs",
        url="http://unused/",
        dialect=Dialect.SQL,
        response=ResponseMapping(hits="@"),
        scorer=Scorer(kind=ScorerKind.JUDGED),
        **changes,
    )
    starts: list[float] = []
    busy: list[int] = [0, 0]
    handed: list[int] = []

    @asynccontextmanager
    async def session() -> AsyncIterator[QueryOnce]:
        async def ask_one(ask: ProbeQuery) -> Answer:
            starts.append(asyncio.get_running_loop().time())
            busy[0] += 1
            busy[1] = max(busy)
            await asyncio.sleep(seconds[ask.position % len(seconds)])
            busy[0] -= 1
            return Answer(outcome=Outcome.OK, latency_seconds=0.0)

        yield ask_one

    asks = [ProbeQuery(position=position, query="why?") for position in range(count)]
    asking = ProbeContext(retriever=described, k=5, run_id="1")
    event_loops.run(query_in_sessions(asking, asks, session, lambda position, _: handed.append(position)), Loop)
    assert sorted(handed) == list(range(count))
    return starts, busy[1]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_more_requests_a_second_than_the_retriever_wants(concurrency: int) -> None:
    starts, _ = asked(20, [0.05], concurrency=concurrency, requests_per_second=10.0)
    assert starts == pytest.approx([0.1 * number for number in range(20)])


def test_time_lost_to_a_slow_answer_is_not_made_up_for_in_a_burst() -> None:
    starts, _ = asked(12, [0.0, 0.0, 5.0] + [0.0] * 9, concurrency=1, requests_per_second=10.0)
    assert starts[:4] == pytest.approx([0.0, 0.1, 0.2, 5.2])
    assert starts[3:] == pytest.approx([5.2 + 0.1 * number for number in range(9)])


def test_without_a_rate_sessions_ask_as_soon_as_they_are_free() -> None:
    starts, most = asked(8, [0.5], concurrency=4)
    assert starts == pytest.approx([0.0] * 4 + [0.5] * 4)
    assert most == 4


def test_no_more_at_once_than_the_retriever_takes_whatever_the_rate() -> None:
    starts, most = asked(9, [1.0], concurrency=3, requests_per_second=1_000.0)
    assert most == 3
    assert starts[-1] > 2.0
