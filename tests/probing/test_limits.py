"""A retriever's limits hold over all that asks it at once, and who waits for a turn gets one in turn."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, closing
from itertools import chain, pairwise
from typing import Any

import pytest

from app.adapters.limits import Limits, Share
from app.adapters.probing.async_lanes import query_in_lanes
from app.adapters.probing.probe import RetrieverProbe
from app.domain.addresses import retriever_policy
from app.domain.model import Answer, Outcome
from app.domain.probing.retrievers import (
    Dialect,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scorer,
    ScorerKind,
)
from tests.support import event_loops
from tests.support.http_servers import HANG, Peer, Reply, Seen, peer, reply
from tests.support.living import until
from tests.support.world import race

HITS = b'{"hits": [{"id": "a"}]}'


class Busy:
    """A retriever that notes when it was asked, and how many requests were under way at once."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0
        self.starts: list[tuple[float, str]] = []

    def __call__(self, seen: Seen) -> Reply:
        """Answer after a while."""
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.starts.append((time.monotonic(), dict(seen.headers).get("user-agent", "")))
        time.sleep(self._seconds)  # what a retriever takes, not a wait for anything
        with self._lock:
            self._now -= 1
        return reply(HITS)


def _retriever(server: Peer, **changes: Any) -> Retriever:
    described: dict[str, Any] = {
        "slug": "docs",
        "url": f"{server.url}/",
        "json": {"query": "{{ query }}"},
        "response": ResponseMapping(hits="hits", id="id"),
        "scorer": Scorer(kind=ScorerKind.JUDGED),
    }
    return Retriever(**(described | changes))


def _ask(probe: RetrieverProbe, retriever: Retriever, count: int, run_id: str = "1") -> list[Answer]:
    asks = [ProbeQuery(position=position, query=f"{run_id}-{position}") for position in range(count)]
    batches: Iterator[Any] = probe(ProbeContext(retriever=retriever, k=5, run_id=run_id), asks)
    return [answer for batch in batches for _, answer in batch]


def _probe() -> RetrieverProbe:
    return RetrieverProbe(retriever_policy(), "coalmine/1.0")


# --- over HTTP -----------------------------------------------------------------------------------------------


def test_four_runs_of_one_retriever_keep_its_limits_together() -> None:
    busy = Busy(0.12)
    with peer(busy) as server:
        probe, retriever = _probe(), _retriever(server, concurrency=2, requests_per_second=10.0)
        answers = race(4, lambda number: _ask(probe, retriever, 8, str(number)))
    assert [answer.outcome for answer in chain.from_iterable(answers)] == [Outcome.OK] * 32
    assert busy.most <= 2
    starts = sorted(at for at, _ in busy.starts)
    within = [sum(start <= at < start + 1.0 for at in starts) for start in starts]
    assert max(within) <= 12  # ten a second, and what a busy machine shifts by a moment


def test_a_small_run_is_not_starved_by_a_large_one() -> None:
    busy = Busy(0.01)
    with peer(busy) as server:
        probe, retriever = _probe(), _retriever(server, concurrency=1)
        large = threading.Thread(target=_ask, args=(probe, retriever, 300, "large"))
        large.start()
        until(lambda: len(busy.starts) > 5)
        before = len(busy.starts)
        assert len(_ask(probe, retriever, 5, "small")) == 5
        assert len(busy.starts) - before < 30
        large.join(30)
    assert busy.most == 1


def test_other_retrievers_are_asked_meanwhile() -> None:
    with peer(HANG) as hung, peer(reply(HITS)) as sound:
        probe = _probe()
        waiting = _retriever(hung, slug="hung", concurrency=1, timeout_seconds=60.0)
        with closing(
            probe(ProbeContext(retriever=waiting, k=5, run_id="1"), [ProbeQuery(position=0, query="x")])
        ) as batches:  # type: ignore[type-var] # a generator
            assert list(next(batches)) == []
            assert len(_ask(probe, _retriever(sound, slug="sound", concurrency=1), 3)) == 3


def test_closing_a_run_in_the_middle_gives_its_turns_back() -> None:
    with peer(lambda seen: HANG if b"hang" in seen.body else reply(HITS)) as server:
        probe, retriever = _probe(), _retriever(server, concurrency=2, timeout_seconds=60.0)
        asks = [ProbeQuery(position=position, query="hang") for position in range(6)]
        with closing(probe(ProbeContext(retriever=retriever, k=5, run_id="1"), asks)) as batches:  # type: ignore[type-var] # a generator
            assert list(next(batches)) == []
            assert len(server.seen) == 2
        assert len(_ask(probe, retriever, 4)) == 4


def test_edited_limits_hold_from_the_next_run_on() -> None:
    busy = Busy(0.05)
    with peer(busy) as server:
        probe = _probe()
        _ask(probe, _retriever(server, concurrency=2), 6)
        assert busy.most == 2
        _ask(probe, _retriever(server, concurrency=4), 12)
        assert busy.most == 4


# --- as values -----------------------------------------------------------------------------------------------


class Time:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Read it."""
        return self.now


def _share(limits: Limits, *, concurrency: int = 8, rate: float | None = None) -> tuple[Share, list[int]]:
    woken: list[int] = []
    share = limits.share("docs", concurrency=concurrency, requests_per_second=rate, wake=lambda: woken.append(1))
    return share, woken


def test_the_strictest_of_the_limits_in_use_holds() -> None:
    limits = Limits(Time())
    old, _ = _share(limits, concurrency=4)
    new, woken = _share(limits, concurrency=1)
    assert new.begin() == 0.0
    assert old.begin() > 0.0
    new.close()
    assert old.begin() == 0.0
    assert old.begin() == 0.0
    assert woken == []


def test_whoever_waited_longest_is_woken_and_begins_next() -> None:
    limits = Limits(Time())
    (first, _), (second, woken_second), (third, woken_third) = (_share(limits, concurrency=1) for _ in range(3))
    assert first.begin() == 0.0
    assert second.begin() > 0.0
    assert third.begin() > 0.0
    first.end()
    assert (woken_second, woken_third) == ([1], [])
    assert first.begin() > 0.0  # it is not its turn
    assert second.begin() == 0.0
    second.withdraw()
    second.end()
    assert third.begin() == 0.0


def test_a_turn_given_up_or_withdrawn_is_the_next_ones() -> None:
    limits = Limits(Time())
    (first, _), (second, _), (third, woken) = (_share(limits, concurrency=1) for _ in range(3))
    assert first.begin() == 0.0
    assert second.begin() > 0.0
    assert third.begin() > 0.0
    second.close()
    first.close()
    assert woken
    assert third.begin() == 0.0


def test_a_request_that_was_not_sent_takes_no_time_of_the_pace() -> None:
    clock = Time()
    share, _ = _share(Limits(clock), rate=10.0)
    assert share.begin() == 0.0
    share.undo()
    assert share.begin() == 0.0
    assert share.begin() == pytest.approx(0.1)


def test_the_pace_goes_on_where_the_last_run_left_it() -> None:
    clock = Time()
    limits = Limits(clock)
    for _ in range(2):
        share, _woken = _share(limits, rate=0.5)
        while wait := share.begin():
            clock.now += wait
        share.close()
    assert clock.now == pytest.approx(2.0)


# --- in lanes ------------------------------------------------------------------------------------------------


def _lanes(limits: Limits, retriever: Retriever, ask_one: Callable[[ProbeQuery], Any], count: int) -> int:
    answered: list[int] = []

    @asynccontextmanager
    async def lane() -> Any:
        yield ask_one

    asks = [ProbeQuery(position=position, query="x") for position in range(count)]
    event_loops.run(query_in_lanes(retriever, asks, lane, lambda position, _: answered.append(position), limits))
    return len(answered)


def test_lanes_of_several_runs_keep_the_limits_together() -> None:
    limits, lock = Limits(), threading.Lock()
    now, most, starts = [0], [0], list[float]()
    described = Retriever(
        slug="docs",
        url="http://unused/",
        dialect=Dialect.SQL,
        response=ResponseMapping(hits="@"),
        scorer=Scorer(kind=ScorerKind.JUDGED),
        concurrency=2,
        requests_per_second=40.0,
    )

    async def ask_one(_ask: ProbeQuery) -> Answer:
        with lock:
            starts.append(time.monotonic())
            now[0] += 1
            most[0] = max(most[0], now[0])
        await asyncio.sleep(0.03)
        with lock:
            now[0] -= 1
        return Answer(outcome=Outcome.OK, latency_seconds=0.0)

    assert race(4, lambda _: _lanes(limits, described, ask_one, 8)) == [8] * 4
    assert most[0] <= 2
    assert max(starts) - min(starts) >= 31 / 40 - 0.05
    assert sum(later - earlier < 0.4 / 40 for earlier, later in pairwise(sorted(starts))) <= 3
