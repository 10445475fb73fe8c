"""Plants carried on against a source: found, gone, late, refused, interrupted, and none is ever left behind."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from app import USER_AGENT
from app.base.addresses import AddressPolicy, parse_allow
from app.base.db.engine import Store, to_us
from app.base.errors import ConflictError, InvalidInputError
from app.base.views import time_text
from app.catalog import store as catalog
from app.plants import domain
from app.plants import store as rows
from app.plants.domain import WATCHES, Finding, PlantProblem, PlantState, PlantsView, PlantView
from app.plants.service import planting, shown
from app.plants.service.planting import DuePlants
from app.plants.store import PlantRow
from app.retrievers.client.probe import RetrieverProbe
from tests.support.planted import PLANT, Source, retriever_of, source
from tests.support.present import present
from tests.support.world import CHECK, World, canary, page

pytestmark = pytest.mark.databases

LOOPBACK = AddressPolicy(name="retriever", allow=parse_allow("127.0.0.0/8"))


class KilledError(BaseException):
    """The process ends here."""


@dataclass(kw_only=True)
class Planted:
    """A world whose check plants documents in a source that is served."""

    world: World
    source: Source
    probe: RetrieverProbe = field(default_factory=lambda: RetrieverProbe(LOOPBACK, USER_AGENT))

    def due(self) -> int:
        """Queue what is due, in a process that remembers nothing."""
        return DuePlants(self.world.store).queue_due(self.world.clock())

    def step(self) -> bool:
        """Carry on the newest plant as far as it goes now; whether there is more to do later."""
        return self.carry_on(self.row().id)

    def carry_on(self, plant_id: int) -> bool:
        """Carry on a plant as far as it goes now; whether there is more to do later."""
        world = self.world
        return planting.carry_on(world.store, world.vault, self.probe, plant_id, clock=world.clock) is not None

    def walk(self, seconds: float, every: float = 5.0) -> None:
        """Carry on for a while."""
        end = self.world.clock.now + timedelta(seconds=seconds)
        while self.step() and self.world.clock.now < end:
            self.world.clock.advance(every)

    def row(self) -> PlantRow:
        """Return the newest plant."""
        with self.world.store.read() as connection:
            check = catalog.find_definition(connection, "check", CHECK)
            return rows.list_plants(connection, present(check).id, limit=1)[0]

    def shown(self) -> PlantsView:
        """Return what is shown of the check's plants."""
        return shown.load_plants(self.world.store, CHECK, now=self.world.clock())

    def newest(self) -> PlantView:
        """Return what is shown of the newest plant."""
        return self.shown()["items"][0]


def described(retriever: dict[str, Any], **plant: Any) -> dict[str, Any]:
    return page([canary("one")], plant={**PLANT, **plant}, rules=[], hooks=[]) | {"retrievers": [retriever]}


@pytest.fixture
def planted(store: Store) -> Iterator[Planted]:
    with source() as (held, served):
        world = World(store=store)
        world.apply(described(retriever_of(served)))
        world.clock.advance(600)
        yield Planted(world=world, source=held)


def test_a_document_is_found_removed_and_gone(planted: Planted) -> None:
    assert planted.due() == 1
    assert planted.due() == 0
    planted.walk(60)
    one = planted.newest()
    assert (one["state"], one["finding"], one["problem"]) == (PlantState.ENDED, Finding.FOUND, None)
    assert (one["found_seconds"], one["gone_seconds"], one["is_sure"]) == (0, 0, True)
    assert planted.source.indexed == {}
    assert planted.source.puts == [one["document_id"]]


def test_time_until_found_is_measured_to_a_poll(planted: Planted) -> None:
    planted.source.stopped = True
    planted.due()
    planted.walk(20)
    planted.source.stopped = False
    planted.source.work()
    planted.walk(60)
    assert planted.newest()["found_seconds"] == pytest.approx(25, abs=5.1)


def test_a_time_that_nobody_measured_is_no_time(planted: Planted) -> None:
    for _ in range(10):
        planted.world.clock.advance(600)
        planted.due()
        planted.walk(30)
    planted.source.stopped = True
    planted.world.clock.advance(600)
    planted.due()
    planted.step()
    planted.source.stopped = False
    planted.source.work()  # here it would have been found
    planted.world.clock.advance(18)  # until Coalmine is back
    planted.walk(60)
    one = planted.newest()
    assert (one["finding"], one["problem"]) == (Finding.FOUND, None), "it was in time, and need not have been slow"
    assert (one["found_seconds"], one["is_sure"]) == (18, False)
    with planted.world.store.read() as connection:
        (numbers,) = shown.load_numbers(connection).values()
    assert numbers.found_seconds is None
    planted.world.clock.advance(600)
    planted.due()
    planted.walk(30)
    assert present(planted.shown()["usual"])["plants"] == 10, "it is not among them"


def test_a_slow_answer_leaves_a_time_sure(planted: Planted) -> None:
    answer = planted.probe

    def slow(context: Any, queries: Any) -> Any:
        if not context.retriever.writes:
            planted.world.clock.advance(12)
        return answer(context, queries)

    planted.probe = slow  # type: ignore[assignment] # asks as the real one does
    planted.source.stopped = True
    planted.due()
    planted.step()
    planted.source.stopped = False
    planted.source.work()
    planted.world.clock.advance(5)
    planted.walk(60)
    one = planted.newest()
    assert (one["found_seconds"], one["is_sure"], one["gone_seconds"]) == (29, True, 12)


def test_nobody_asking_is_no_document_that_stays(planted: Planted) -> None:
    planted.due()
    planted.source.refusing = {"DELETE"}
    planted.step()  # found, and its removal refused once
    planted.source.refusing, planted.source.stopped = set(), True
    planted.world.clock.advance(5)
    planted.step()
    planted.source.stopped = False
    planted.source.work()
    planted.world.clock.advance(600)  # Coalmine is not running
    planted.walk(30)
    one = planted.newest()
    assert (one["state"], one["problem"], one["gone_seconds"]) == (PlantState.ENDED, None, None)


def test_it_is_asked_for_at_its_bound_and_what_is_said_stands_still(planted: Planted) -> None:
    planted.source.refusing = {"DELETE"}
    planted.due()
    planted.step()
    planted.source.refusing, planted.source.stopped = set(), True
    planted.world.clock.advance(5)
    planted.walk(57, every=1)
    assert planted.newest()["problem"] is None
    planted.walk(3, every=1)
    sentence = "A planted document was still found 1 min after its removal"
    assert planted.newest()["sentence"] == f"{sentence}: removed documents stay in the index"
    planted.world.clock.advance(4)
    assert planted.newest()["sentence"] == f"{sentence}: removed documents stay in the index"
    planted.source.stopped = False
    planted.source.work()
    planted.walk(60)
    assert planted.newest()["sentence"] == f"{sentence}, and is gone now: removals reach the index late"


def test_stopped_queue_is_not_found_and_what_comes_later_is_removed(planted: Planted) -> None:
    planted.source.stopped = True
    planted.due()
    planted.walk(70)
    one = planted.newest()
    assert (one["finding"], one["problem"]) == (Finding.NOT_FOUND, PlantProblem.NOT_FOUND)
    assert one["sentence"] == ("A planted document was not found after 1 min: new documents do not reach the index")
    planted.walk(30)
    assert planted.row().plant.state is PlantState.WATCHED
    (_, text), *_ = planted.source.queued
    planted.source.queued = planted.source.queued[:1]  # the removal is lost
    planted.source.stopped = False
    planted.source.work()
    assert list(planted.source.indexed.values()) == [text]
    planted.walk(WATCHES[0] + 60)
    assert planted.source.indexed == {}
    planted.walk(sum(WATCHES), every=600)
    assert planted.row().plant.state is PlantState.ENDED
    assert planted.row().plant.late_at is not None


def test_a_retriever_that_fails_is_not_measured_and_never_gone(planted: Planted) -> None:
    planted.source.refusing = {"search"}
    planted.due()
    planted.walk(70)
    one = planted.newest()
    assert (one["finding"], one["problem"]) == (Finding.UNMEASURED, None)
    assert "the retriever did not answer" in (one["failure"] or "")
    planted.walk(600)
    assert planted.row().plant.state is PlantState.LEAVING
    planted.source.refusing = set()
    planted.walk(600)
    assert planted.row().plant.gone_at is not None


def test_a_removal_that_fails_is_tried_again_until_it_works_and_said(planted: Planted) -> None:
    planted.source.refusing = {"DELETE"}
    planted.due()
    planted.walk(120)
    one = planted.newest()
    assert one["problem"] is PlantProblem.LEFT_BEHIND
    assert one["sentence"] is not None
    assert one["sentence"].startswith("A planted document is left behind: its removal failed")
    assert len(planted.source.indexed) == 1
    assert planted.shown()["next_at"] is None
    planted.world.clock.advance(3600)
    assert planted.due() == 0  # nothing is planted beside it
    planted.source.refusing = set()
    planted.walk(3600, every=60)
    assert planted.source.indexed == {}
    assert planted.newest()["problem"] is None
    assert planted.due() == 1


def test_a_document_that_does_not_go_is_said_and_removed_again(planted: Planted) -> None:
    planted.source.refusing = {"DELETE"}
    planted.due()
    planted.step()
    planted.source.refusing, planted.source.stopped = set(), True
    planted.world.clock.advance(5)
    planted.walk(120)
    one = planted.newest()
    assert one["problem"] is PlantProblem.NOT_GONE
    assert one["sentence"] is not None
    assert one["sentence"].startswith("A planted document was still found 110 s after its removal")
    planted.source.stopped = False
    planted.source.work()
    planted.walk(300)
    late = planted.newest()
    assert (late["state"], late["problem"]) == (PlantState.ENDED, PlantProblem.NOT_GONE)
    assert late["gone_seconds"] == pytest.approx(125, abs=15)


def test_a_put_that_is_refused_is_not_measured_and_removed_all_the_same(planted: Planted) -> None:
    planted.source.refusing = {"POST"}
    planted.due()
    planted.walk(60)
    one = planted.newest()
    assert one["finding"] is Finding.UNMEASURED
    assert one["failure"] is not None
    assert one["failure"].startswith("it could not be put: ")
    assert planted.row().plant.removed_at is not None


@pytest.mark.parametrize("change", ["archive", "disable", "unplant"])
def test_what_is_switched_off_is_removed(planted: Planted, change: str) -> None:
    planted.source.stopped = True
    planted.due()
    planted.walk(10)
    planted.source.stopped = False
    planted.source.work()
    assert len(planted.source.indexed) == 1
    with planted.world.store.read() as connection:
        body = dict(present(catalog.find_definition(connection, "check", CHECK)).body)
        retriever = dict(present(catalog.find_definition(connection, "retriever", "search")).body)
    whole = page([canary("one")], rules=[], hooks=[]) | {
        "retrievers": [{**retriever, "auth": {"kind": "bearer", "token": "source-key"}}]
    }
    if change == "archive":
        planted.world.apply({**whole, "checks": []})
    else:
        changed = {**body, "enabled": change != "disable", "plant": body["plant"] if change == "disable" else None}
        planted.world.apply({**whole, "checks": [changed]})
    planted.world.clock.advance(5)
    planted.walk(120)
    assert planted.source.indexed == {}
    assert planted.row().plant.failure == planting.WITHDRAWN
    planted.world.clock.advance(3600)
    assert planted.due() == 0


@pytest.mark.parametrize("seam", ["before the put", "after the put", "before the removal", "after the removal"])
def test_nothing_is_left_behind_wherever_the_process_ends(planted: Planted, seam: str) -> None:
    when, _, what = seam.partition(" the ")
    probe = planted.probe

    def dying(context: Any, queries: Any) -> Any:
        retriever = context.retriever
        is_it = retriever.writes and (retriever.method == "DELETE") == (what == "removal")
        if is_it and when == "before":
            raise KilledError
        answers = list(probe(context, queries))
        if is_it:
            raise KilledError
        return iter(answers)

    class Dying:
        def __call__(self, context: Any, queries: Any) -> Any:
            def batches() -> Iterator[Any]:
                yield from dying(context, queries)

            return batches()

    planted.due()
    planted.probe = Dying()  # type: ignore[assignment] # asks as the real one does
    with pytest.raises(KilledError):
        planted.step()
    planted.probe = probe
    with planted.world.store.read() as connection:
        assert rows.forgotten(connection, to_us(planted.world.clock())) <= {planted.row().id}
    planted.walk(120)
    assert planted.source.indexed == {}
    assert planted.row().plant.gone_at is not None
    if what == "put":
        assert planted.newest()["finding"] is Finding.UNMEASURED
        assert len(planted.source.puts) == (when == "after")  # it is never sent twice


def test_a_new_schedule_is_noticed_at_the_next_look(planted: Planted) -> None:
    due = DuePlants(planted.world.store)
    assert due.queue_due(planted.world.clock()) == 1
    planted.walk(30)
    with planted.world.store.read() as connection:
        body = dict(present(catalog.find_definition(connection, "retriever", "search")).body)
    body["auth"] = {"kind": "bearer", "token": "source-key"}
    planted.world.apply(described(body, every="30s"))
    for _ in range(6):  # within half a minute
        planted.world.clock.advance(5)
        if due.queue_due(planted.world.clock()):
            break
    else:
        pytest.fail("its first instant was passed over")
    following = present(due.next_at)
    assert planted.world.clock() < following <= planted.world.clock() + timedelta(seconds=30)
    due.queue_due(following)
    assert due.next_at is None, "its document may be in the source"


def test_the_next_is_the_one_that_is_due_until_it_is_planted(planted: Planted) -> None:
    planted.due()
    planted.walk(30)
    planted.world.clock.advance(600)
    slot = planted.world.clock() - timedelta(seconds=planted.world.clock().timestamp() % 600)
    assert planted.shown()["next_at"] == time_text(slot)
    assert planted.due() == 1
    shown = planted.shown()
    assert (shown["next_at"], shown["waits_for"]) == (time_text(slot + timedelta(seconds=600)), None)
    planted.source.stopped = True
    planted.source.refusing = {"search"}
    planted.walk(660)
    shown = planted.shown()
    assert shown["next_at"] == time_text(slot + timedelta(seconds=600))
    assert (
        shown["waits_for"] == f"plant {planted.row().id} may be in the source, and the next is planted once it is gone"
    )


def test_of_two_workers_one_sends(planted: Planted) -> None:
    planted.due()
    row = planted.row()
    after = domain.before_sending(row.plant, row.plant.next_at)
    with planted.world.store.write() as connection:
        assert rows.save_step(connection, row, after)
    with planted.world.store.write() as connection:
        assert not rows.save_step(connection, row, after)


def test_a_check_without_a_plant_plants_nothing_on_demand(planted: Planted) -> None:
    planting.plant_of(planted.world.store, CHECK, now=planted.world.clock())
    with pytest.raises(ConflictError, match="may be in the source"):
        planting.plant_of(planted.world.store, CHECK, now=planted.world.clock())


def test_credentials_go_to_no_other_host(planted: Planted) -> None:
    with source() as (other, elsewhere):
        url = f"{elsewhere.url}/documents"
        with planted.world.store.read() as connection:
            retriever = dict(present(catalog.find_definition(connection, "retriever", "search")).body)
        retriever["auth"] = {"kind": "bearer", "token": "source-key"}
        put = {"url": url, "json": {"id": "{{ id }}", "text": "{{ text }}"}}
        planted.world.apply(described(retriever, put=put))
        planted.world.clock.advance(600)
        planted.due()
        planted.walk(30)
        assert "401" in (planted.newest()["failure"] or "")
        assert all("authorization" not in seen.headers for seen in elsewhere.seen)
        assert other.puts == []


def test_a_variable_that_no_retriever_gives_is_refused_when_it_is_saved(planted: Planted) -> None:
    with planted.world.store.read() as connection:
        retriever = dict(present(catalog.find_definition(connection, "retriever", "search")).body)
    retriever["auth"] = {"kind": "bearer", "token": "source-key"}
    remove = {"url": "/{{ customer }}/{{ id }}"}
    with pytest.raises(InvalidInputError) as error:
        planted.world.apply(described(retriever, remove=remove))
    assert [(one.path, one.message) for one in error.value.problems] == [
        ("plant.remove.url", "unknown placeholder '{{ customer }}'; known are: id, marker, text")
    ]
    with pytest.raises(InvalidInputError, match="there is no retriever 'writer'"):
        planted.world.apply(described(retriever, credentials="writer"))
