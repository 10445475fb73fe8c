"""A re-scoring that cannot be carried out: it is tried a few times, given up with its reason, and retried by people."""

from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store, from_us
from app.base.jobs.values import Job, JobKind
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.records.tables import rescorings, run_probes
from app.reports import metrics
from app.runs.service import rescoring
from app.runs.service.rescoring import MOST_ATTEMPTS
from tests.support.fakes import FakeSend
from tests.support.pages_service import Site
from tests.support.world import CHECK, LINKS, World, canary, page


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give a world of one run whose latencies nobody can read."""
    world = World(store=sqlite_store)
    world.apply(page([canary("ant")]))
    world.run()
    _write_latencies(world, b"odd")
    return world


def test_a_rescoring_that_raises_is_tried_ever_later_and_then_has_failed(world: World) -> None:
    number, worker = _ask(world), _worker(world)
    pauses = []
    for _ in range(MOST_ATTEMPTS - 1):
        assert _carry_on(world, worker, number)
        assert rescoring.show(world.store, number)["status"] == "queued"
        pauses.append(_put_off_until(world) - world.clock.now)
        assert not _carry_on(world, worker, number), "not before the pause is over"
        world.clock.now += pauses[-1] + timedelta(seconds=1)
    assert pauses == [timedelta(minutes=1) * 2**attempt for attempt in range(MOST_ATTEMPTS - 1)]
    assert _carry_on(world, worker, number)
    found = rescoring.show(world.store, number)
    assert (found["status"], found["progress"]) == ("failed", {"runs_done": 0, "runs_total": 1})
    assert found["failure"] == "an error of Coalmine's own in 5 attempts (ValueError, see the log)"
    world.clock.now += timedelta(days=30)
    assert not _carry_on(world, worker, number)


def test_a_failed_rescoring_says_why_on_its_page_and_is_retried_there(world: World) -> None:
    number, worker = _ask(world), _worker(world)
    site = Site(world=world)
    path = f"/rescorings/{number}"
    assert site.client().post(f"{path}/retry").status_code == 409
    _fail(world, worker, number)
    shown = site.page(path)
    assert "An error of Coalmine's own in 5 attempts (ValueError, see the log). 0 of 1 run judged" in shown.text
    assert [one.text for one in shown.all("span", class_="badge")] == ["failed"]
    _write_latencies(world, b"\0\0")
    assert site.page(f"/checks/{CHECK}").one("a", href=path).text == "failed"
    answer = site.client().post(shown.one("form", action=f"{path}/retry").get("action"))
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert _carry_on(world, worker, number)
    found = rescoring.show(world.store, number)
    assert (found["status"], found["failure"]) == ("finished", None)
    assert site.client().post(f"{path}/retry").status_code == 409
    assert site.client().post("/rescorings/99/retry").status_code == 404


def test_asking_for_a_failed_rescoring_again_lets_it_go_on_at_once(world: World) -> None:
    number, worker = _ask(world), _worker(world)
    _fail(world, worker, number)
    _write_latencies(world, b"\0\0")
    assert _ask(world) == number
    assert _carry_on(world, worker, number)
    assert rescoring.show(world.store, number)["status"] == "finished"


def test_a_rescoring_that_takes_its_workers_with_it_is_given_up_as_well(world: World) -> None:
    number = _ask(world)
    for _ in range(MOST_ATTEMPTS):
        assert rescoring.claim(world.store, owner="gone", now=world.clock()) == number
        world.clock.now += rescoring.LEASE + timedelta(seconds=1)
    assert rescoring.claim(world.store, owner="gone", now=world.clock()) is None
    found = rescoring.show(world.store, number)
    assert (found["status"], found["failure"]) == ("failed", "its worker ended in the middle of 5 attempts")


def test_a_worker_that_stops_has_not_failed(world: World) -> None:
    number = _ask(world)
    for _ in range(2 * MOST_ATTEMPTS):
        assert rescoring.claim(world.store, owner="stopping", now=world.clock()) == number
        rescoring.release(world.store, owner="stopping")
    assert rescoring.show(world.store, number)["status"] == "queued"


def test_a_worker_goes_on_with_what_one_before_it_left_but_leaves_a_command_to_itself(world: World) -> None:
    number, worker = _ask(world), _worker(world)
    _write_latencies(world, b"\0\0")
    assert rescoring.claim(world.store, owner=f"{rescoring.COMMAND}1:ab", now=world.clock()) == number
    assert not _carry_on(world, worker, number)
    world.clock.now += rescoring.LEASE + timedelta(seconds=1)
    assert rescoring.claim(world.store, owner="killed", now=world.clock()) == number
    assert _carry_on(world, worker, number)
    assert rescoring.show(world.store, number)["status"] == "finished"


def _ask(world: World) -> int:
    return rescoring.ask(world.store, CHECK, since=None, now=world.clock.advance(1))


def _carry_on(world: World, worker: Worker, number: int) -> bool:
    """Do the job of a re-scoring; whether there was something to do."""
    before = _attempts(world)
    worker._tasks.doers[JobKind.RESCORING](Job(id=1, kind=JobKind.RESCORING, key=number, part=0, attempt=before[0]))
    return _attempts(world) != before


def _attempts(world: World) -> tuple[int, int | None]:
    with world.store.read() as connection:
        row = connection.execute(sa.select(rescorings.c.attempts, rescorings.c.finished_at)).one()
    return row.attempts, row.finished_at


def _fail(world: World, worker: Worker, number: int) -> None:
    for _ in range(MOST_ATTEMPTS):
        assert _carry_on(world, worker, number)
        world.clock.now += timedelta(hours=1)


def _put_off_until(world: World) -> datetime:
    with world.store.read() as connection:
        return from_us(connection.execute(sa.select(rescorings.c.lease_until)).scalar_one())


def _write_latencies(world: World, latencies: bytes) -> None:
    with world.store.write() as connection:
        connection.execute(sa.update(run_probes).values(latencies=latencies, paces=None))


def _worker(world: World) -> Worker:
    engine = Engine(
        store=world.store,
        vault=world.vault,
        probe=world.probe,
        send=FakeSend(),
        links=LINKS,
        owner="worker",
        clock=world.clock,
    )
    exposition = metrics.Exposition.create()
    return Worker(engine, exposition.process, exposition.snapshot)
