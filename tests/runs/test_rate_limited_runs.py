"""Runs against a retriever that refuses requests: whole and healthy, slowed, and an outage where it goes on."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.base.values import Answer, RunStatus, Slowing, Verdict, replace
from app.catalog.documents import check_documents
from app.cli import app
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.records.service import run_views
from app.records.views import RunView
from app.reports import metrics
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import Probe, ProbeQuery
from app.runs.service import rescoring
from app.runs.service.execution import share_limits
from tests.conftest import Databases
from tests.support.fakes import answered, hits
from tests.support.http_servers import Peer, Reply, Seen, peer, reply
from tests.support.living import until
from tests.support.rate_limited import Limited
from tests.support.world import COVERAGE, LINKS, RETRIEVER, World, canary, page

OTHERS = ("watch-2", "watch-3")


def _pages(server: Peer, count: int, **retriever: Any) -> dict[str, Any]:
    whole = page([canary(f"q{number}", expected_chunks=["a"]) for number in range(count)], rules=[COVERAGE], hooks=[])
    asked = {
        **RETRIEVER,
        "url": f"{server.url}/",
        "response": {"hits": "hits", "id": "id"},
        "scorer": {"kind": "judged"},
        **retriever,
    }
    return {**whole, "retrievers": [asked]}


def _probe() -> RetrieverProbe:
    return RetrieverProbe(retriever_policy(), "coalmine/1.0")


@contextmanager
def _working(world: World, probe: Probe, owner: str, **more: Any) -> Iterator[Worker]:
    """Run a worker with a probe, on the store of a world."""
    engine = Engine(
        store=world.store, vault=world.vault, probe=probe, send=world.send, links=LINKS, owner=owner, **more
    )
    worker = Worker(engine, metrics.ProcessMetrics(CollectorRegistry()), metrics.Snapshot())
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def _slowed(reasons: list[str]) -> list[str]:
    return [one for one in reasons if one.startswith("slowed to ") and " by 429" in one]


# --- measured all the same -----------------------------------------------------------------------------------


@pytest.mark.databases
@pytest.mark.parametrize(
    ("per_second", "count"),
    [(5.0, 20), pytest.param(1.0, 12, marks=pytest.mark.systems(seconds=30))],
    ids=["5 a second", "60 a minute"],
)
def test_a_run_takes_its_time_and_measures_everything(store: Store, per_second: float, count: int) -> None:
    limited = Limited(per_second=per_second, burst=5)
    with peer(limited) as server:
        world = World(store=store)
        world.probe = _probe()  # type: ignore[assignment] # the real one
        world.apply(_pages(server, count))
        run = world.run()
    assert (run.status, run.verdict, run.probes) == (RunStatus.FINISHED, Verdict.HEALTHY, {"ok": count})
    assert limited.refused > 0
    (reason,) = world.shown(run)["reasons"]
    assert _slowed([reason]) == [reason]
    assert reason.endswith("refused and sent again")


def test_three_checks_of_one_retriever_at_once_are_measured(sqlite_store: Store) -> None:
    limited = Limited(per_second=30, burst=5)
    with peer(limited) as server:
        world = World(store=sqlite_store)
        world.clock.now = datetime.now(UTC)
        whole = _pages(server, 12)
        checks = [{**whole["checks"][0], "slug": slug, "schedule": {"every": "31d"}} for slug in ("watch", *OTHERS)]
        world.apply({**whole, "checks": checks})
        with _working(world, share_limits(sqlite_store, _probe()), "only"):
            _wait_for_runs(world, "watch", *OTHERS)
    for slug in ("watch", *OTHERS):
        (run,) = _ended(world, slug)
        assert (run["verdict"], run["canaries"]["measured"]) == ("healthy", 12)
    assert any(_slowed(run["reasons"]) for slug in ("watch", *OTHERS) for run in _ended(world, slug))


@pytest.mark.systems
@pytest.mark.databases
def test_two_replicas_share_a_run_of_a_retriever_that_refuses(
    databases: Databases, stores: Callable[..., Store]
) -> None:
    url = databases.postgresql()
    worlds = [World(store=stores(url)) for _ in range(2)]
    first, limited = worlds[0], Limited(per_second=60, burst=10)
    first.clock.now = datetime.now(UTC)
    with peer(limited) as server:
        whole = _pages(server, 130)
        first.apply({**whole, "checks": [{**whole["checks"][0], "schedule": {"every": "31d"}}]})
        probes = [share_limits(world.store, _probe()) for world in worlds]
        few = {"run_threads": 1}
        with _working(first, probes[0], "one", **few), _working(worlds[1], probes[1], "two", **few):
            _wait_for_runs(first, "watch")
    (run,) = _ended(first, "watch")
    assert (run["verdict"], run["canaries"]["measured"]) == ("healthy", 130)
    assert limited.refused > 0
    assert _slowed(run["reasons"])


def _wait_for_runs(world: World, *slugs: str) -> None:
    for slug in slugs:
        until(lambda slug=slug: _ended(world, slug), seconds=60)


def _ended(world: World, slug: str) -> list[RunView]:
    runs = run_views.list_runs(world.store, slug, before=None, limit=50)
    return [run for run in runs if run["finished_at"] is not None]


# --- an outage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"retry-after": "86400"}, "the run was ended early: the retriever asked to be left alone for 86,400 s"),
        ({}, "the run was ended early: the retriever refused every request for "),
    ],
    ids=["until tomorrow", "without a word"],
)
def test_a_retriever_that_refuses_for_longer_than_the_deadline_is_an_outage(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, headers: Mapping[str, str], reason: str
) -> None:
    monkeypatch.setattr(check_documents, "run_patience", lambda _: 2.5)
    with peer(reply(b'{"error": "quota used up"}', 429, headers)) as server:
        world = World(store=sqlite_store)
        world.probe = _probe()  # type: ignore[assignment] # the real one
        world.apply(_pages(server, 20, concurrency=4))
        run = world.run()
        assert len(server.seen) < 12
    shown = world.shown(run)
    assert (run.status, run.verdict) == (RunStatus.PARTIAL, Verdict.UNKNOWN)
    assert shown["reasons"][0].startswith(reason)
    assert any("answers HTTP 429" in one and "\u201cquota used up\u201d" in one for one in shown["reasons"])


def test_a_run_that_is_refused_once_goes_on_and_its_breaker_counts_nothing(sqlite_store: Store) -> None:
    refusals = iter(range(12))

    def answer(_: Seen) -> Reply:
        if next(refusals, None) is not None:
            return reply(b"", 429, {"retry-after": "1"})
        return reply(b'{"hits": [{"id": "a"}]}')

    with peer(answer) as server:
        world = World(store=sqlite_store)
        world.probe = _probe()  # type: ignore[assignment] # the real one
        world.apply(_pages(server, 12, breaker=2))
        run = world.run()
    assert (run.verdict, run.probes) == (Verdict.HEALTHY, {"ok": 12})
    (reason,) = world.shown(run)["reasons"]  # with a rate where some were accepted before the last was refused
    assert re.fullmatch(r"slowed(?: to [\d.]+/s)? by 429: 12 requests were refused and sent again", reason)


def test_a_run_that_waits_is_let_go_of_when_the_process_stops(sqlite_store: Store) -> None:
    with peer(reply(b"", 429, {"retry-after": "30"})) as server:
        world = World(store=sqlite_store)
        world.probe = _probe()  # type: ignore[assignment] # the real one
        world.apply(_pages(server, 5))
        world.wish()
        claimed = world.claim()
        assert claimed is not None
        assert world.execute(claimed, stopping=lambda: bool(server.seen)) is None


# --- what is kept --------------------------------------------------------------------------------------------


@pytest.mark.databases
def test_a_rescoring_keeps_the_sentence(store: Store) -> None:
    def slowed(item: ProbeQuery) -> Answer:
        return replace(answered(hits(f"doc-{item.query}")), slowing=Slowing(rate=4.0, status=429, refusals=1))

    world = World(store=store)
    world.probe.otherwise = slowed
    world.apply(page([canary("one"), canary("two")], rules=[COVERAGE], hooks=[]))
    run = world.run()
    sentence = "slowed to 4/s by 429: 2 requests were refused and sent again"
    assert sentence in world.shown(run)["reasons"]
    world.apply(page([canary("one", expected_chunks=["doc-new"]), canary("two")], rules=[COVERAGE], hooks=[]))
    asked = rescoring.ask(world.store, "watch", since=None, now=world.clock.advance(1))
    rescoring.claim(world.store, owner="worker", now=world.clock(), only=asked)
    assert rescoring.carry_on(world.store, asked, owner="worker", clock=world.clock)
    version = rescoring.show(world.store, asked)["measures_version"]
    anew = run_views.run(world.store, str(run.id), version=version)
    assert anew["coverage"] == 0.5
    assert sentence in anew["reasons"]


# --- the gate ------------------------------------------------------------------------------------------------


def test_the_gate_measures_everything_and_says_what_slowed_it(tmp_path: Path) -> None:
    limited = Limited(per_second=10, burst=5)
    lines = ["suite: small", "canaries:"]
    lines += [f"  - {{key: q{number}, query: q{number}, expected_chunks: [a]}}" for number in range(20)]
    with peer(limited) as server:
        lines += ["retrievers:", f"  - {{slug: there, url: '{server.url}/', response: {{hits: hits, id: id}}}}"]
        file = tmp_path / "canaries.yaml"
        file.write_text("\n".join(lines))
        report = tmp_path / "report.json"
        result = CliRunner().invoke(app, ["check", str(file), "--save", str(report)])
    assert result.exit_code == 0, result.output
    assert limited.refused > 0
    run = json.loads(report.read_text())["run"]
    assert run["canaries"]["measured"] == 20
    assert _slowed(run["reasons"])
    assert "slowed to " in result.output
