"""A retriever's limits hold over all that asks it at once, and who waits for a turn gets one in turn."""

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from typing import Any

import pytest

from app.base.addresses import Endpoint, retriever_policy
from app.base.limits import Limits, Peer, Share
from app.base.values import Answer, Outcome, replace
from app.retrievers.client.background_loop import query_in_sessions
from app.retrievers.client.endpoint_client import CONCURRENCY
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import (
    Dialect,
    Embedder,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scorer,
    ScorerKind,
)
from tests.support import event_loops
from tests.support.embedders import embeddings_reply, vector
from tests.support.http_servers import HANG, Reply, Seen, peer, reply
from tests.support.http_servers import Peer as Server
from tests.support.living import until
from tests.support.mcp_peers import Tool
from tests.support.probed import answers_of, retriever_at
from tests.support.world import race

HITS = b'{"hits": [{"id": "a"}]}'


class Busy:
    """A server that notes when it was asked, and how many requests were under way at once."""

    def __init__(self, seconds: float = 0.0, answer: Callable[[Seen], Reply] | None = None) -> None:
        self._seconds = seconds
        self._answer = answer or (lambda _: reply(HITS))
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
        return self._answer(seen)


def _retriever(server: Server, **changes: Any) -> Retriever:
    return retriever_at(f"{server.url}/", **({"response": ResponseMapping(hits="hits", id="id")} | changes))


def _ask(
    probe: RetrieverProbe, retriever: Retriever, count: int, run_id: str = "1", defined_at: datetime | None = None
) -> list[Answer]:
    queries = (f"{run_id}-{position}" for position in range(count))
    return answers_of(retriever, *queries, probe=probe, run_id=run_id, defined_at=defined_at)


def _probe() -> RetrieverProbe:
    return RetrieverProbe(retriever_policy(), "coalmine/1.0")


# --- over HTTP -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("concurrency", "rate", "count"), [(2, 10, 8), pytest.param(1, 5, 8, marks=pytest.mark.systems)]
)
def test_four_runs_of_one_retriever_keep_its_limits_together(concurrency: int, rate: int, count: int) -> None:
    busy = Busy(0.12)
    with peer(busy) as server:
        probe = _probe()
        retriever = _retriever(server, concurrency=concurrency, requests_per_second=float(rate))
        answers = race(4, lambda number: _ask(probe, retriever, count, str(number)))
    assert [answer.outcome for answer in chain.from_iterable(answers)] == [Outcome.OK] * (4 * count)
    assert busy.most <= concurrency
    starts = sorted(at for at, _ in busy.starts)
    assert starts[-1] - starts[0] >= (len(starts) - 1) / rate - 0.25  # how late the first may have come
    within = [sum(start <= at < start + 1.0 for at in starts) for start in starts]
    assert (
        max(within) <= 1.25 * rate + 2
    )  # what a busy machine shifts by a moment; each run for itself makes it four times


def test_waiting_for_a_turn_is_no_latency_and_no_timeout() -> None:
    lock = threading.Lock()

    def one_by_one(_seen: Seen) -> Reply:
        with lock:
            time.sleep(0.3)  # what it takes: whoever was sent it while another is under way waits there
        return reply(HITS)

    with peer(one_by_one) as server:
        probe, retriever = _probe(), _retriever(server, concurrency=1, timeout_seconds=1.0, retries=0)
        answers = race(4, lambda number: _ask(probe, retriever, 2, str(number)))
    assert [answer.outcome for answer in chain.from_iterable(answers)] == [Outcome.OK] * 8
    assert max(answer.latency_seconds for answer in chain.from_iterable(answers)) < 1.0


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


@pytest.mark.parametrize("slug", ["sound", "docs"], ids=["another", "of the same name, only tried"])
def test_other_retrievers_are_asked_meanwhile(slug: str) -> None:
    with peer(HANG) as hung, peer(reply(HITS)) as sound:
        probe = _probe()
        waiting = _retriever(hung, concurrency=1, timeout_seconds=60.0, retries=0)
        with closing(
            probe(ProbeContext(retriever=waiting, k=5, run_id="1"), [ProbeQuery(position=0, query="x")])
        ) as batches:  # type: ignore[type-var] # a generator
            assert list(next(batches)) == []
            assert len(_ask(probe, _retriever(sound, slug=slug, concurrency=1), 3)) == 3
            assert list(next(batches)) == []  # it waits still


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


# --- beside a retriever --------------------------------------------------------------------------------------


def test_an_embedder_of_two_retrievers_has_limits_of_its_own() -> None:
    def embedded(seen: Seen) -> Reply:
        return embeddings_reply([vector(text) for text in json.loads(seen.body)["input"]])

    model = Busy(0.05, embedded)
    with peer(reply(HITS)) as one, peer(reply(HITS)) as other, peer(model) as server:
        embedder = Embedder(endpoint=Endpoint(url=f"{server.url}/v1/embeddings"), model="m", batch=1)
        probe, by_vector = _probe(), {"json": {"vector": "{{ vector }}"}, "embedder": embedder}
        both = [_retriever(one, slug="one", **by_vector), _retriever(other, slug="other", **by_vector)]
        answers = race(2, lambda number: _ask(probe, both[number], 12, str(number)))
    assert [answer.outcome for answer in chain.from_iterable(answers)] == [Outcome.OK] * 24
    assert len(model.starts) == 24
    assert 2 <= model.most <= CONCURRENCY


@pytest.mark.parametrize("scores", [False, True], ids=["queries", "first hits"])
def test_a_run_that_waits_for_its_embedder_can_be_stopped_and_gives_its_turns_back(*, scores: bool) -> None:
    def embedded(seen: Seen) -> Reply:
        return (
            HANG if b"hang" in seen.body else embeddings_reply([vector(one) for one in json.loads(seen.body)["input"]])
        )

    def found(seen: Seen) -> Reply:
        return reply(b'{"hits": [{"id": "a", "text": "hang"}]}' if scores and b"hang" in seen.body else HITS)

    with peer(found) as own, peer(embedded) as server:
        endpoint = Endpoint(url=f"{server.url}/v1/embeddings", timeout_seconds=60.0)
        embedder = Embedder(endpoint=endpoint, model="m", batch=1)
        probe, described = _probe(), _retriever(own, response=ResponseMapping(hits="hits", id="id", text="text"))
        by_vector = replace(described, json={"vector": "{{ vector }}"}, embedder=embedder)
        scored = replace(described, scorer=Scorer(kind=ScorerKind.EMBEDDING, embedder=embedder))
        asks = [ProbeQuery(position=position, query=f"hang {position}") for position in range(8)]
        asked = probe(ProbeContext(retriever=scored if scores else by_vector, k=5, run_id="1"), asks)
        with closing(asked) as batches:  # type: ignore[type-var] # a generator
            while len(server.seen) < (1 if scores else CONCURRENCY):
                assert list(next(batches)) == []
            assert list(next(batches)) == []
        assert [answer.outcome for answer in _ask(probe, by_vector, 6)] == [Outcome.OK] * 6


def test_a_reranker_of_two_retrievers_has_limits_of_its_own() -> None:
    judge = Busy(0.05, lambda _: reply(b'{"results": [{"index": 0, "relevance_score": 0.5}]}'))
    with (
        peer(lambda seen: reply(b'{"hits": [{"id": "a", "text": %s}]}' % seen.body[9:-1])) as own,
        peer(judge) as server,
    ):
        scorer = Scorer(kind=ScorerKind.RERANK, reranker=Endpoint(url=f"{server.url}/rerank"), model="judge")
        mapping = ResponseMapping(hits="hits", id="id", text="text")
        probe = _probe()
        both = [_retriever(own, slug=slug, scorer=scorer, response=mapping) for slug in ("one", "other")]
        answers = race(2, lambda number: _ask(probe, both[number], 12, str(number)))
    assert [answer.unscored for answer in chain.from_iterable(answers)] == [None] * 24
    assert len(judge.starts) == 24
    assert 2 <= judge.most <= CONCURRENCY


def test_sessions_are_opened_within_the_limits() -> None:
    tool = Tool()
    busy = Busy(0.03, tool)
    with peer(
        lambda seen: busy(seen) if b'"id"' in seen.body else tool(seen)
    ) as server:  # notifications are no requests
        probe = _probe()
        described = _retriever(server, dialect=Dialect.MCP, tool="search", concurrency=1)
        described = replace(described, response=ResponseMapping(hits="result", id="id"))
        answers = race(4, lambda number: _ask(probe, described, 2, str(number)))
    assert [answer.outcome for answer in chain.from_iterable(answers)] == [Outcome.OK] * 8
    assert len(busy.starts) == 4 * (2 + 2)
    assert busy.most == 1


# --- as values -----------------------------------------------------------------------------------------------


class Time:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Read it."""
        return self.now


def _share(
    limits: Limits, *, concurrency: int = 8, rate: float | None = None, defined_at: datetime | None = None
) -> tuple[Share, list[int]]:
    woken: list[int] = []
    peer_of_all = Peer(limits=limits, name="docs", defined_at=defined_at)
    share = peer_of_all.share(concurrency=concurrency, requests_per_second=rate, wake=lambda: woken.append(1))
    return share, woken


OLD = datetime(2026, 1, 1, tzinfo=UTC)
NEW = OLD + timedelta(hours=1)


def test_limits_that_were_edited_hold_for_whatever_is_asked_from_then_on() -> None:
    clock = Time()
    limits = Limits(clock)
    large, woken = _share(limits, concurrency=1, rate=0.1, defined_at=OLD)
    assert large.begin() == 0.0
    assert large.begin() == math.inf
    small, _ = _share(limits, concurrency=2, rate=10.0, defined_at=NEW)
    assert woken == [1]
    clock.now = 0.1
    assert large.begin() == 0.0  # looser ones
    tight, _ = _share(limits, concurrency=1, rate=1.0, defined_at=NEW + timedelta(hours=1))
    large.end()
    clock.now = 5.0
    assert small.begin() == math.inf  # stricter ones
    large.end()
    assert small.begin() == 0.0
    small.end()
    assert tight.begin() == pytest.approx(1.0)


@pytest.mark.parametrize("defined_at", [OLD, None], ids=["of a run before", "tried"])
def test_older_limits_and_those_that_are_only_tried_leave_the_newest_in_force(defined_at: datetime | None) -> None:
    clock = Time()
    limits = Limits(clock)
    share, _ = _share(limits, concurrency=2, rate=1.0, defined_at=NEW)
    other, _ = _share(limits, concurrency=8, rate=0.001, defined_at=defined_at)
    assert other.begin() == 0.0
    assert share.begin() == pytest.approx(1.0)
    for one in (share, other):
        one.close()
    clock.now = 2_000.0
    late, _ = _share(limits, concurrency=8, rate=None, defined_at=defined_at)  # though nobody asked meanwhile
    assert late.begin() == 0.0
    assert late.begin() == pytest.approx(1.0)


def test_limits_that_are_only_tried_slow_nobody_down_afterwards() -> None:
    limits = Limits(Time())
    tried, _ = _share(limits, rate=0.001)
    assert tried.begin() == 0.0
    share, woken = _share(limits, rate=10.0)
    assert share.begin() == pytest.approx(1_000.0)
    tried.close()
    assert woken == [1]
    assert share.begin() == pytest.approx(0.1)


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


def test_time_lost_to_a_slow_answer_is_not_made_up_for_in_a_burst() -> None:
    clock = Time()
    share, _ = _share(Limits(clock), rate=10.0)
    for clock.now in (0.0, 5.0, 5.1):
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


# --- in sessions ---------------------------------------------------------------------------------------------


def _sessions(limits: Limits, retriever: Retriever, ask_one: Callable[[ProbeQuery], Any], count: int) -> int:
    answered: list[int] = []

    @asynccontextmanager
    async def session() -> Any:
        yield ask_one

    asks = [ProbeQuery(position=position, query="x") for position in range(count)]
    asking = ProbeContext(retriever=retriever, k=5, run_id="1")
    event_loops.run(query_in_sessions(asking, asks, session, lambda position, _: answered.append(position), limits))
    return len(answered)


def test_sessions_of_several_runs_keep_the_limits_together() -> None:
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

    assert race(4, lambda _: _sessions(limits, described, ask_one, 8)) == [8] * 4
    assert most[0] <= 2
    assert max(starts) - min(starts) >= 31 / 40 - 0.05
    assert sum(later - earlier < 0.4 / 40 for earlier, later in pairwise(sorted(starts))) <= 3


def test_a_rate_in_common_with_others_is_reserved_a_few_requests_at_a_time() -> None:
    clock = [100.0]
    reserved: list[tuple[int, float]] = []

    def reserve(count: int, interval: float) -> float:
        reserved.append((count, interval))
        return 0.0 if len(reserved) == 1 else 0.5  # others were first

    limits = Limits(lambda: clock[0])
    peer_ = Peer(limits=limits, name="search, lane 1", defined_at=datetime.now(UTC), reserve=reserve)
    share = peer_.share(concurrency=3, requests_per_second=100, wake=lambda: None)
    waits = []
    for _ in range(4):
        while (wait := share.begin()) > 0:
            waits.append(round(wait, 3))
            clock[0] += wait
        share.end()
    assert waits == [0.01, 0.01, 0.5]
    assert reserved == [(3, 0.01), (3, 0.01)]
    wide = Peer(limits=limits, name="search, lane 2", defined_at=datetime.now(UTC), reserve=reserve)
    assert wide.share(concurrency=50, requests_per_second=100, wake=lambda: None).begin() == 0.5
    assert reserved[-1] == (10, 0.01)
