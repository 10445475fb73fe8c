"""Progress by server-sent events over real HTTP: of runs, of re-scorings and of all that happens."""

import json
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGTERM
from typing import Any

import httpx2
import pytest
from anyio.to_thread import current_default_thread_limiter
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.values import Outcome
from app.runs.service import change_feed, rescoring
from app.runs.service.change_feed import NEWS, ChangeSnapshot, Kind, Streams, Topic, events
from app.runs.store import FollowedRun, OpenAlert
from tests.support.browser import served
from tests.support.fakes import failed
from tests.support.living import until
from tests.support.pages_service import Site, site
from tests.support.processes import free_ports, started
from tests.support.world import CHECK, COVERAGE, World, canary, page, statements

pytestmark = pytest.mark.databases

Told = tuple[str, dict[str, Any]]
CANARIES = [canary(f"c{number:03}") for number in range(250)]
PATIENCE = 60.0
QUICK = [{**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}]


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give a service with a small check."""
    found = site(sqlite_store)
    found.world.apply(page(CANARIES[:2], rules=QUICK))
    return found


@pytest.fixture
def long(pages: Site) -> Site:
    """Give one whose check has 250 canaries, which are three shards."""
    pages.world.apply(page(CANARIES, rules=QUICK))
    return pages


@contextmanager
def _served(pages: Site, *, most: int = 100) -> Iterator[str]:
    """Serve with a look at the store fifty times a second."""
    app = pages.app()
    app.state.streams = Streams(pages.world.store, most=most, poll_seconds=0.02)
    with served(app) as url:
        yield url


@contextmanager
def _following(address: str, **headers: str) -> Iterator[Iterator[Told]]:
    """Follow a stream that is expected to begin."""
    with httpx2.stream("GET", address, timeout=PATIENCE, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = answer.iter_lines()
        assert next(lines) == ": listening"
        with closing(_events(lines)) as told:
            yield told


def _get(address: str) -> httpx2.Response:
    return httpx2.get(address, timeout=PATIENCE)


def _events(lines: Iterator[str]) -> Generator[Told]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def _stop_after(world: World, asked: int) -> Any:
    """Say that the process is stopping once so many canaries were asked."""
    return lambda: len(world.probe.asked) >= asked


# --- a run ---------------------------------------------------------------------------------------------------


def test_a_run_is_followed_from_the_queue_to_its_verdict(long: Site) -> None:
    world = long.world
    world.probe.answers["c249"] = failed(Outcome.TIMEOUT)
    run = world.wish()
    with _served(long) as url, _following(f"{url}/v1/runs/{run}/events") as told:
        assert next(told) == ("progress", {"done": 0, "total": None, "failed": 0, "status": "queued"})
        claimed = world.claim()
        assert claimed is not None
        assert world.execute(claimed, stopping=_stop_after(world, 50)) is None
        # The last shard holds fifty canaries and was asked first.
        half_way = ("progress", {"done": 50, "total": 250, "failed": 1, "status": "running"})
        assert half_way in iter(lambda: next(told), ("ended", {}))
        again = world.claim("another")
        assert again is not None
        assert world.execute(again, "another") is not None
        *_, last = told
    ended = {"run": str(run), "check": CHECK, "status": "finished", "verdict": "healthy", "total": 250, "failed": 1}
    assert last == ("ended", ended)


def test_who_comes_late_or_again_is_told_how_things_stand(long: Site) -> None:
    world = long.world
    run = world.wish()
    claimed = world.claim()
    assert claimed is not None
    assert world.execute(claimed, stopping=_stop_after(world, 150)) is None
    with _served(long) as url:
        for _ in range(2):
            with _following(f"{url}/v1/runs/{run}/events", **{"last-event-id": "7"}) as told:
                assert next(told) == ("progress", {"done": 150, "total": 250, "failed": 0, "status": "running"})
        again = world.claim("another")
        assert again is not None
        assert world.execute(again, "another") is not None
        with _following(f"{url}/v1/runs/{run}/events") as told:
            assert [name for name, _ in told] == ["ended"]


def test_what_is_not_there_is_a_problem_and_no_stream(pages: Site) -> None:
    with _served(pages) as url:
        for path in ("/v1/runs/7/events", "/v1/runs/x/events", "/v1/rescorings/7/events"):
            answer = _get(url + path)
            assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
        assert _get(f"{url}/v1/events?second=1").json()["errors"] == [
            {"path": "second", "message": "unknown parameter; did you mean 'seconds'?"}
        ]
        assert _get(f"{url}/v1/events?seconds=601").status_code == 422


# --- all that happens ----------------------------------------------------------------------------------------


def test_news_say_which_run_ended_and_which_alert_changed_and_no_more(pages: Site) -> None:
    world = pages.world
    with _served(pages) as url, _following(f"{url}/v1/events") as told:
        first = world.run()
        assert next(told) == ("run_ended", {"check": CHECK, "run": str(first.id)})
        world.probe.all_miss()
        second = world.run()
        assert next(told) == ("run_ended", {"check": CHECK, "run": str(second.id)})
        (alert,) = world.alerts()
        changed = ("alert_changed", {"check": CHECK, "alert": alert["id"]})
        assert next(told) == changed
        world.probe.all_answer()
        world.run()
        assert [next(told)[0], next(told)] == ["run_ended", changed]


def test_a_stream_outlives_a_database_that_is_gone_for_a_while(pages: Site) -> None:
    world = pages.world
    seen: list[str] = []

    def fail(statement: str) -> None:
        seen.append(statement)
        raise sqlite3.OperationalError("gone")

    with _served(pages) as url, _following(f"{url}/v1/events") as told:
        with statements(world.store, fail):
            until(lambda: len(seen) > 2)
            answer = _get(f"{url}/v1/events")
            assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable")
        run = world.run()
        assert next(told) == ("run_ended", {"check": CHECK, "run": str(run.id)})


def test_only_changes_between_two_looks_are_told() -> None:
    firing = OpenAlert(id=4, check="a", state="firing", severity="warning", acknowledged_at=None)
    seen = OpenAlert(id=4, check="a", state="firing", severity="warning", acknowledged_at=9)
    before = ChangeSnapshot(newest={"a": 1, "b": 2}, alerts={4: firing})
    assert events(NEWS, None, before) == []
    assert events(NEWS, before, before) == []
    now = ChangeSnapshot(newest={"a": 1, "b": 5, "c": 6}, alerts={4: seen})
    assert [(event.name, event.data) for event in events(NEWS, before, now)] == [
        ("run_ended", {"check": "b", "run": "5"}),
        ("run_ended", {"check": "c", "run": "6"}),
        ("alert_changed", {"check": "a", "alert": "4"}),
    ]
    resolved = ChangeSnapshot(newest=now.newest, alerts={})
    assert [event.data for event in events(NEWS, now, resolved)] == [{"check": "a", "alert": "4"}]


def test_a_run_that_retention_took_away_has_ended_without_a_verdict() -> None:
    run = FollowedRun(id=3, check="a", status="running", verdict=None, asked=10, failed=None)
    topic = Topic(Kind.RUN, 3)
    (event,) = events(topic, ChangeSnapshot(runs={3: run}), ChangeSnapshot())
    assert (event.name, event.data, event.last) == ("ended", {"run": "3", "status": None, "verdict": None}, True)


# --- a re-scoring --------------------------------------------------------------------------------------------


def test_a_rescoring_is_followed_to_its_measures_version(pages: Site) -> None:
    world = pages.world
    world.run()
    world.run()
    asked = rescoring.ask(world.store, CHECK, since=None, now=world.clock())
    with _served(pages) as url, _following(f"{url}/v1/rescorings/{asked}/events") as told:
        assert next(told) == ("progress", {"done": 0, "total": 2, "status": "queued"})
        assert rescoring.claim(world.store, owner="me", now=world.clock(), only=asked) == asked
        assert rescoring.carry_on(world.store, asked, owner="me", clock=world.clock)
        *_, last = told
    name, data = last
    assert name == "ended"
    assert data == {
        "rescoring": str(asked),
        "check": CHECK,
        "status": "finished",
        "measures_version": rescoring.show(world.store, asked)["measures_version"],
    }


# --- how many, how long, for whom ----------------------------------------------------------------------------


def test_streams_tell_while_every_thread_of_the_routes_is_busy(pages: Site) -> None:
    app = pages.app()
    app.state.streams = Streams(pages.world.store, poll_seconds=0.02)

    async def occupy(_request: Request) -> PlainTextResponse:
        limiter = current_default_thread_limiter()
        for number in range(int(limiter.total_tokens)):
            await limiter.acquire_on_behalf_of(number)
        return PlainTextResponse(str(limiter.available_tokens))

    app.add_route("/occupy", occupy)
    with served(app) as url:
        assert _get(f"{url}/occupy").text == "0"
        with _following(f"{url}/v1/events") as told:
            run = pages.world.run()
            assert next(told) == ("run_ended", {"check": CHECK, "run": str(run.id)})
        with _following(f"{url}/v1/runs/{run.id}/events") as told:
            assert [name for name, _ in told] == ["ended"]


def test_there_are_only_so_many_streams_and_room_again_when_one_has_gone(pages: Site) -> None:
    with _served(pages, most=2) as url, _following(f"{url}/v1/events"):
        with _following(f"{url}/v1/events"):
            refused = _get(f"{url}/v1/events")
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "5"
            assert refused.json() == {
                "type": "/problems/busy",
                "title": "Too many at once",
                "status": 503,
                "detail": "this process has 2 open event streams, which is its limit",
            }
        until(lambda: _get(f"{url}/v1/events?seconds=0.01").status_code == 200)


def test_a_key_holds_only_so_many_streams_and_leaves_the_others_room(pages: Site) -> None:
    store = pages.world.store
    run = pages.world.run()
    greedy, modest = (
        {"authorization": f"Bearer {keys.create_key(store, name=name, scope=Scope.READ, now=datetime.now(UTC))}"}
        for name in ("greedy", "modest")
    )
    app = pages.app()
    app.state.streams = Streams(store, most_of_a_key=2)
    with served(app) as url, _following(f"{url}/v1/events", **greedy), _following(f"{url}/v1/events", **greedy):
        for path in ("/v1/events", f"/v1/runs/{run.id}/events"):
            refused = httpx2.get(url + path, timeout=PATIENCE, headers=greedy)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            told = "this key has 2 open event streams, which is the limit of this process"
            assert refused.json()["detail"] == told
        with _following(f"{url}/v1/runs/{run.id}/events", **modest) as told_others:
            assert [name for name, _ in told_others] == ["ended"]


def test_a_stream_ends_when_it_was_to_end(pages: Site) -> None:
    with _served(pages) as url, _following(f"{url}/v1/events?seconds=0.05") as told:
        assert list(told) == []


def test_a_stream_needs_a_key_as_everything_does(pages: Site) -> None:
    store = pages.world.store
    run = pages.world.run()
    key = keys.create_key(store, name="reader", scope=Scope.READ, now=datetime.now(UTC))
    with _served(pages) as url:
        for path in ("/v1/events", f"/v1/runs/{run.id}/events"):
            assert _get(url + path).status_code == 401
            with _following(f"{url}{path}?seconds=0.05", authorization=f"Bearer {key}") as told:
                list(told)


def test_a_service_that_stops_ends_its_streams_whole(tmp_path: Path) -> None:
    port = free_ports()
    with started(tmp_path, "serve", "--port", port, "--data-dir", tmp_path / "data") as process:
        process.wait_for("is serving")
        with _following(f"http://127.0.0.1:{port}/v1/events") as told:
            process.popen.send_signal(SIGTERM)
            # One that is cut off is no whole answer, which the client would say.
            assert list(told) == []
        assert process.end() == 0
    assert "Cancel" not in process.said


def test_a_look_sees_the_same_in_either_database(store: Store) -> None:
    world = World(store=store)
    world.apply(page(CANARIES[:130], rules=QUICK))
    world.probe.all_miss()
    first = world.run()
    world.probe.all_answer()
    world.probe.answers["c129"] = failed(Outcome.TIMEOUT)
    run, asked = world.wish(), len(world.probe.asked)
    claimed = world.claim()
    assert claimed is not None
    assert world.execute(claimed, stopping=_stop_after(world, asked + 50)) is None
    seen = change_feed.poll_changes(store, {NEWS, Topic(Kind.RUN, run)})
    assert seen.newest == {CHECK: first.id}
    assert [alert.state for alert in (seen.alerts or {}).values()] == ["firing"]
    assert seen.runs[run].asked == 130
    assert seen.shards == {run: {1: 1}}
    assert change_feed.poll_changes(store, {Topic(Kind.RUN, run)}, seen).shards == seen.shards


def test_a_look_finds_nothing_where_nothing_is_asked(pages: Site) -> None:
    assert change_feed.poll_changes(pages.world.store, set()) == ChangeSnapshot()
