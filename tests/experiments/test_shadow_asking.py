"""The candidate of a shadow: asked once what users asked, failures counted, the most different pairs kept."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.base.db.engine import Store, to_us
from app.base.jobs import at_hand
from app.base.jobs.values import JobKind
from app.base.values import Answer, Outcome, replace
from app.catalog.store import API
from app.definitions.service import applying
from app.experiments import store as rows
from app.experiments.documents import HitDocument, ShadowDocument, ShadowPair
from app.experiments.service import shadows
from app.operation.service import retention
from app.retrievers.domain.retrievers import ProbeQuery
from tests.support.fakes import Crash, answered, failed, hits
from tests.support.present import present
from tests.support.world import World, canary, documents, page

NOW = datetime(2026, 11, 26, 12, 30, tzinfo=UTC)


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give what `made` makes on SQLite, for what does not depend on the database."""
    return made(sqlite_store)


@pytest.fixture
def any_world(store: Store) -> World:
    """Give the same on each database."""
    return made(store)


def made(store: Store) -> World:
    """Make a retriever, and a shadow whose candidate it is and that asks it everything."""
    world = World(store=store)
    world.clock.now = NOW
    described = page([canary("fees")], hooks=[])
    described["hooks"] = []
    applying.apply(store, world.vault, documents(described), managed_by=API, now=world.clock.advance(1))
    define(world)
    return world


def found(*ids: str) -> Answer:
    """Make an answer whose hits have texts."""
    return answered(hits(*ids, texts={one: f"text of {one}" for one in ids}))


def define(world: World, **more: Any) -> None:
    document = ShadowDocument(slug="hybrid", candidate="search", **{"share": 1.0, **more})
    shadows.put_shadow(world.store, document, by="Ada", now=world.clock())


def send(world: World, *queries: str, a: str = "doc", texts: bool = True, **more: Any) -> Any:
    hit = HitDocument(id=a, text=f"text of {a}" if texts else None)
    pairs = [ShadowPair(query=one, a=(hit,), a_seconds=0.1) for one in queries]
    return shadows.receive_pairs(world.store, world.vault, "hybrid", pairs, now=world.clock(), **more)


def ask(world: World, **more: Any) -> datetime | None:
    with world.store.read() as connection:
        shadow = present(rows.find_shadow(connection, "hybrid"))
    return shadows.ask_candidate(world.store, world.vault, world.probe, shadow.id, clock=world.clock, **more)


def waiting(world: World) -> int:
    return shadows.load_shadow(world.store, "hybrid")["waiting"]


def test_what_lacks_an_answer_is_asked_counted_and_forgotten(any_world: World) -> None:
    any_world.probe.answers["fees"] = answered(hits("doc"))
    assert send(any_world, "fees", "refunds") == {"received": 2, "compared": 0, "to_ask": 2, "notes": []}
    assert waiting(any_world) == 2
    assert ask(any_world) is None
    found = shadows.load_shadow(any_world.store, "hybrid")
    assert (found["pairs"], found["failed"], found["waiting"]) == (2, 0, 0)
    assert found["jaccard"] == pytest.approx(0.5), (
        "the candidate answers fees as users got it, and refunds with another"
    )
    assert found["a_seconds"] == pytest.approx(0.1)
    assert found["b_seconds"] == pytest.approx(0.5)
    assert [one.k for one in any_world.probe.askings] == [10]
    assert ask(any_world) is None
    assert len(any_world.probe.asked) == 2, "each is asked once"


def test_intake_defers_the_job_with_its_rows(world: World) -> None:
    send(world, "fees")
    with world.store.read() as connection:
        shadow = present(rows.find_shadow(connection, "hybrid"))
        assert at_hand(connection, [JobKind.SHADOW], to_us(world.clock())) == {shadow.id}


def test_only_the_share_is_asked(world: World) -> None:
    define(world, share=0.0)
    assert send(world, "fees", "refunds")["to_ask"] == 0
    define(world, share=0.5)
    received = send(world, *(f"query {number}" for number in range(200)))
    assert 70 <= received["to_ask"] <= 130
    assert (received["received"], waiting(world)) == (200, received["to_ask"])


def test_the_ranking_is_cut_to_the_length_of_what_users_got(world: World) -> None:
    world.probe.answers["fees"] = answered(hits("doc", *(f"more-{number}" for number in range(9))))
    send(world, "fees")
    ask(world)
    found = shadows.load_shadow(world.store, "hybrid")
    assert (found["jaccard"], found["rbo"]) == (1, 1)


def test_failures_are_counted_and_a_dead_candidate_is_left_alone(world: World) -> None:
    world.probe.all_fail(Outcome.TIMEOUT)
    world.probe.batch = 1
    send(world, *(f"query {number}" for number in range(40)))
    assert ask(world) == world.clock() + shadows.PAUSE
    found = shadows.load_shadow(world.store, "hybrid")
    assert found["failed"] == found["pairs"] == len(world.probe.asked)
    assert 0 < found["pairs"] < 40
    assert found["waiting"] == 40 - found["pairs"], "what was not asked waits"
    asked = len(world.probe.asked)
    send(world, "one more")
    assert ask(world) == world.clock() + shadows.PAUSE, "however much is sent meanwhile"
    assert len(world.probe.asked) == asked
    world.probe.all_answer()
    world.clock.advance(61)
    assert ask(world) is None
    found = shadows.load_shadow(world.store, "hybrid")
    assert (found["pairs"], found["waiting"]) == (41, 0)


def test_a_candidate_that_asks_to_be_left_alone_is(world: World) -> None:
    later = replace(failed(Outcome.REFUSED, http_status=429), retry_after_seconds=600.0)
    world.probe.otherwise = lambda _: later
    send(world, *(f"query {number}" for number in range(40)))
    assert ask(world) == world.clock() + timedelta(seconds=600)


def test_after_some_blocks_other_shadows_have_their_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadows, "BLOCKS", 2)
    send(world, *(f"query {number}" for number in range(50)))
    again = present(ask(world))
    assert again > world.clock()
    assert waiting(world) == 50 - 2 * shadows.BLOCK
    assert ask(world) is None
    assert waiting(world) == 0


def test_what_waits_for_a_day_is_dropped_and_said(any_world: World) -> None:
    send(any_world, "fees", "refunds")
    retention.prune(any_world.store, NOW + timedelta(hours=23), days=90)
    assert waiting(any_world) == 2
    retention.prune(any_world.store, NOW + timedelta(hours=25), days=90)
    found = shadows.load_shadow(any_world.store, "hybrid")
    assert (found["waiting"], found["dropped"], found["pairs"]) == (0, 2, 0)


@pytest.mark.both
def test_every_query_counts_once_over_a_crash(any_world: World) -> None:
    send(any_world, *(f"query {number}" for number in range(60)))

    def die(_: int) -> None:
        if len(any_world.probe.askings) == 3:
            raise Crash

    any_world.probe.before_batch = die
    with pytest.raises(Crash):
        ask(any_world)
    assert waiting(any_world) == 20
    any_world.probe.before_batch = lambda _: None
    assert ask(any_world) is None
    assert shadows.load_shadow(any_world.store, "hybrid")["pairs"] == 60


def test_two_who_ask_the_same_count_it_once(any_world: World) -> None:
    send(any_world, "fees")

    def meanwhile(_: ProbeQuery) -> Any:
        any_world.probe.otherwise = lambda _: answered(hits("doc"))
        assert ask(any_world) is None
        return answered(hits("doc"))

    any_world.probe.otherwise = meanwhile
    assert ask(any_world) is None
    assert (len(any_world.probe.asked), shadows.load_shadow(any_world.store, "hybrid")["pairs"]) == (2, 1)


@pytest.mark.both
def test_the_most_different_pairs_are_kept_with_texts_alone(any_world: World) -> None:
    define(any_world, keep=2)
    any_world.probe.answers |= {
        "same": found("doc"),
        "near": found("other", "doc"),
        "far": found("other"),
        "empty": found(),
        "broken": failed(Outcome.MALFORMED),
    }
    send(any_world, "same", "near", "far", "broken")
    send(any_world, "without texts", texts=False)
    ask(any_world)
    assert kept(any_world) == ["near", "far"], "cut to one hit both differ wholly"
    send(any_world, "empty", "far")
    ask(any_world)
    assert kept(any_world) == ["near", "far"], "as different, and there before"
    define(any_world, keep=1)
    assert kept(any_world) == ["near"]
    define(any_world, keep=0)
    assert kept(any_world) == []


@pytest.mark.both
def test_kept_pairs_hold_queries_for_30_days(any_world: World) -> None:
    any_world.probe.answers["far"] = found("other")
    send(any_world, "far")
    ask(any_world)
    retention.prune(any_world.store, NOW + timedelta(days=29), days=90)
    assert kept(any_world) == ["far"]
    retention.prune(any_world.store, NOW + timedelta(days=31), days=90)
    assert kept(any_world) == []


@pytest.mark.both
def test_deleting_a_shadow_deletes_what_waits_and_what_is_kept(any_world: World) -> None:
    send(any_world, "far", key="part-1")
    ask(any_world)
    send(any_world, "fees")
    shadows.delete_shadow(any_world.store, "hybrid")
    with any_world.store.read() as connection:
        for table in ("shadows", "shadow_hours", "shadow_questions", "shadow_pairs", "shadow_parts"):
            assert connection.exec_driver_sql(f"select count(*) from {table}").scalar_one() == 0  # noqa: S608 - ours


def test_no_more_wait_than_there_is_room_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadows, "MOST_WAITING", 3)
    assert send(world, "a", "b")["to_ask"] == 2
    received = send(world, "c", "d", "e")
    assert (received["to_ask"], received["notes"]) == (1, ["2 queries left out: 3 wait for the candidate already"])
    assert waiting(world) == 3


def test_a_candidate_that_is_archived_is_not_asked(world: World) -> None:
    send(world, "fees")
    with world.store.write() as connection:
        connection.exec_driver_sql("update definitions set archived_at = 1 where slug = 'search'")
    assert ask(world) == world.clock() + shadows.PAUSE
    assert waiting(world) == 1


def test_stopping_lets_go_and_loses_nothing(world: World) -> None:
    send(world, *(f"query {number}" for number in range(30)))
    answers: Iterator[bool] = iter([False, True, True, True])
    assert ask(world, stopping=lambda: next(answers)) == world.clock()
    assert ask(world) is None
    assert shadows.load_shadow(world.store, "hybrid")["pairs"] == 30


def kept(world: World) -> list[str]:
    found = shadows.list_pairs(world.store, "hybrid", limit=9)
    assert shadows.load_shadow(world.store, "hybrid")["kept"] == len(found)
    return [one["query"] for one in found]
