"""Side-by-side tasks: blind, sides by chance, a preference that nobody contradicts, counted with its interval."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.annotation.documents import TaskDocument
from app.annotation.domain.agreement import ALIKE, LEFT, RIGHT, ConsensusState, reach_preference
from app.annotation.service import annotations, results, tasks
from app.annotation.store import task_rows as rows
from app.annotation.store.task_rows import PairItem
from app.annotation.views import NextItem
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.catalog.store import API
from app.definitions.service import applying
from app.experiments.documents import HitDocument, ShadowDocument, ShadowPair
from app.experiments.domain.experiments import ComparedPair, count_preferences
from app.experiments.service import shadows
from tests.support.present import present
from tests.support.world import World, canary, documents, page

NOW = datetime(2026, 11, 26, 12, 30, tzinfo=UTC)
QUERIES = [f"query {number}" for number in range(40)]


# --- what grades come to -------------------------------------------------------------------------------------


def test_a_side_is_preferred_where_nobody_prefers_the_other() -> None:
    def of(*grades: int, **more: int) -> Any:
        found = reach_preference(grades, **more)
        return found.state, found.grade

    assert of() == (ConsensusState.OPEN, None)
    assert of(LEFT) == (ConsensusState.GRADED_ONCE, LEFT)
    assert of(LEFT, ALIKE) == of(LEFT, LEFT) == (ConsensusState.AGREED, LEFT)
    assert of(ALIKE, RIGHT) == of(RIGHT, ALIKE, ALIKE) == (ConsensusState.AGREED, RIGHT), "as on the left"
    assert of(ALIKE, ALIKE) == (ConsensusState.AGREED, ALIKE)
    assert of(LEFT, RIGHT) == of(LEFT, ALIKE, RIGHT) == (ConsensusState.DISPUTED, None)
    assert of(LEFT, RIGHT, adjudicated=ALIKE) == (ConsensusState.ADJUDICATED, ALIKE)


def test_preferences_are_counted_by_whose_side_it_is() -> None:
    grades = [(LEFT, False), (RIGHT, True), (RIGHT, True), (LEFT, True), (ALIKE, True), (None, False)]
    found = count_preferences(ComparedPair(grade=grade, candidate_right=right) for grade, right in grades)
    assert (found.candidate, found.current, found.alike, found.undecided) == (3, 1, 1, 1)
    assert (found.share.value, found.share.count) == (0.75, 4)
    assert found.share.low == pytest.approx(0.194, abs=1e-3)
    assert found.share.high == pytest.approx(0.994, abs=1e-3)
    nothing = count_preferences([]).share
    assert (nothing.value, nothing.low, nothing.high) == (None, 0, 1)


# --- a task --------------------------------------------------------------------------------------------------


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give what `made` makes on SQLite, for what does not depend on the database."""
    return made(sqlite_store)


@pytest.fixture
def any_world(store: Store) -> World:
    """Give the same on each database."""
    return made(store)


def made(store: Store) -> World:
    """Make a shadow that keeps forty different pairs."""
    world = World(store=store)
    world.clock.now = NOW
    described = page([canary("fees")], hooks=[])
    described["hooks"] = []
    applying.apply(store, world.vault, documents(described), managed_by=API, now=world.clock.advance(1))
    shadows.put_shadow(store, ShadowDocument(slug="hybrid"), by="Ada", now=world.clock())
    a, b = HitDocument(id="a", text="what users got"), HitDocument(id="b", text="what the candidate gave")
    pairs = [ShadowPair(query=one, a=(a,), b=(b,)) for one in QUERIES]
    shadows.receive_pairs(store, world.vault, "hybrid", pairs, now=world.clock())
    return world


def compared(world: World, **more: Any) -> None:
    given = {"slug": "sides", "suite": "suite", "pairs": {"shadow": "hybrid"}, "overlap": 0, **more}
    tasks.put_task(world.store, parse_document(TaskDocument, given), by="Ada", now=world.clock())
    tasks.request_pool(world.store, "sides", now=world.clock())
    draw(world)


def draw(world: World) -> None:
    with world.store.read() as connection:
        task = tasks.find_task(connection, "sides")
    shadows.draw_pairs(world.store, task.id, now=world.clock())


def next_of(world: World, annotator: str = "Ann") -> NextItem:
    return annotations.next_item(world.store, "sides", annotator=annotator, now=world.clock())


def sides(world: World) -> dict[str, PairItem]:
    with world.store.read() as connection:
        task = tasks.find_task(connection, "sides")
        return {one.query: one for one in rows.read_pair_items(connection, task.id).values()}


def say(world: World, item: str, grade: int, annotator: str = "Ann") -> NextItem:
    return annotations.annotate(
        world.store, "sides", item, annotator=annotator, grade=grade, seconds=4.0, now=world.clock.advance(1)
    )


@pytest.mark.both
def test_the_most_different_pairs_become_blind_items(any_world: World) -> None:
    compared(any_world, pairs={"shadow": "hybrid", "count": 12})
    task = tasks.load_task(any_world.store, "sides")
    assert (task["state"], task["items"], task["pairs"]) == ("pooled", 12, {"shadow": "hybrid", "count": 12})
    draw(any_world)
    assert tasks.load_task(any_world.store, "sides")["items"] == 12, "drawn once"
    found = present(next_of(any_world)["item"])
    pair = present(found["pair"])
    assert sorted(pair["left"] + pair["right"]) == ["what the candidate gave", "what users got"]
    assert (found["text"], found["answer"], found["query"] in QUERIES) == ("", None, True)
    assert found.keys() == {"id", "query", "history", "vars", "text", "grade", "answer", "pair"}
    assert pair.keys() == {"left", "right"}, "which is the candidate's is not told"


def test_the_candidate_stands_on_either_side(world: World) -> None:
    compared(world)
    found = [one.candidate_right for one in sides(world).values()]
    assert 10 <= sum(found) <= 30
    for one in sides(world).values():
        assert (one.right if one.candidate_right else one.left) == ["what the candidate gave"]


def test_every_pair_is_shown_once_and_what_people_prefer_is_counted(any_world: World) -> None:
    compared(any_world)
    known, seen = sides(any_world), []
    item = next_of(any_world)["item"]
    while item is not None:
        seen.append(item["query"])
        candidate, current = (RIGHT, LEFT) if known[item["query"]].candidate_right else (LEFT, RIGHT)
        place = QUERIES.index(item["query"])
        grade = ALIKE if place < 10 else candidate if place < 34 else current
        item = say(any_world, item["id"], grade)["item"]
    assert sorted(seen) == sorted(QUERIES)
    assert seen != sorted(seen), "in an order of their own"
    (found,) = shadows.load_shadow(any_world.store, "hybrid")["comparisons"]
    assert (found["task"], found["pairs"], found["undecided"]) == ("sides", 40, 0)
    assert (found["candidate"], found["current"], found["alike"]) == (24, 6, 10)
    assert (found["share"]["value"], found["share"]["low"] > 0.5) == (0.8, True)


@pytest.mark.both
def test_undo_gives_the_pair_back(any_world: World) -> None:
    compared(any_world)
    first = present(next_of(any_world)["item"])
    say(any_world, first["id"], LEFT)
    back = annotations.undo(any_world.store, "sides", annotator="Ann", now=any_world.clock.advance(1))
    assert present(back["item"])["id"] == first["id"]


def test_sides_that_people_disagree_on_are_disputed_and_decided(world: World) -> None:
    compared(world, overlap=1)
    item = present(next_of(world)["item"])
    say(world, item["id"], LEFT)
    say(world, item["id"], ALIKE, annotator="Bob")
    assert annotations.list_disagreements(world.store, "sides") == [], "no difference contradicts nobody"
    say(world, item["id"], RIGHT, annotator="Cy")
    (found,) = annotations.list_disagreements(world.store, "sides")
    assert (found["canary"], found["query"]) == (None, item["query"])
    assert found["text"].startswith("Left:\nwhat ")
    assert "\n\nRight:\nwhat " in found["text"]
    annotations.adjudicate(world.store, "sides", item["id"], grade=RIGHT, by="Dee", now=world.clock.advance(1))
    (counted,) = shadows.load_shadow(world.store, "hybrid")["comparisons"]
    assert counted["candidate"] + counted["current"] == 1


def test_pairs_have_no_judgments_to_adopt_no_recall_and_no_import(world: World) -> None:
    compared(world)
    say(world, present(next_of(world)["item"])["id"], LEFT)
    with pytest.raises(ConflictError, match="judge no chunk"):
        annotations.adopt(world.store, "sides", now=world.clock())
    with pytest.raises(ConflictError, match="not of chunks"):
        results.load_recall(world.store, "sides")
    with pytest.raises(ConflictError, match="compared on its page"):
        annotations.import_annotations(world.store, "sides", [], now=world.clock())
    exported = annotations.export_annotations(world.store, "sides").splitlines()
    assert (len(exported), exported[1].startswith(",pair-"), ",Ann,0," in exported[1]) == (2, True, True)


@pytest.mark.both
def test_an_archived_task_forgets_what_users_asked(any_world: World) -> None:
    compared(any_world)
    with any_world.store.read() as connection:
        task = tasks.find_task(connection, "sides")
    tasks.archive_task(any_world.store, "sides", now=any_world.clock())
    with any_world.store.read() as connection:
        kept = rows.read_pair_items(connection, task.id).values()
    assert {(one.query, tuple(one.left), tuple(one.right)) for one in kept} == {("", (), ())}
    assert shadows.load_shadow(any_world.store, "hybrid")["comparisons"] == []


def test_a_shadow_without_pairs_can_be_drawn_later(world: World) -> None:
    shadows.put_shadow(world.store, ShadowDocument(slug="hybrid", keep=0), by="Ada", now=world.clock())
    compared(world)
    assert tasks.load_task(world.store, "sides")["items"] == 0
    shadows.put_shadow(world.store, ShadowDocument(slug="hybrid"), by="Ada", now=world.clock())
    pair = ShadowPair(query="new", a=(HitDocument(id="a", text="A"),), b=(HitDocument(id="b", text="B"),))
    shadows.receive_pairs(world.store, world.vault, "hybrid", [pair], now=world.clock())
    tasks.request_pool(world.store, "sides", now=world.clock())
    draw(world)
    assert {one.query: sorted([*one.left, *one.right]) for one in sides(world).values()} == {"new": ["A", "B"]}


@pytest.mark.both
def test_a_pair_with_a_side_of_no_hits_is_not_drawn(any_world: World) -> None:
    """Nobody could compare it blindly; it is counted as empty."""
    a, b = (HitDocument(id="a", text="A"),), (HitDocument(id="b", text="B"),)
    sent = [ShadowPair(query="none now", a=(), b=b), ShadowPair(query="none then", a=a, b=())]
    shadows.receive_pairs(any_world.store, any_world.vault, "hybrid", sent, now=any_world.clock())
    found = shadows.load_shadow(any_world.store, "hybrid")
    assert (found["a_empty"], found["b_empty"], found["kept"]) == (1, 1, 40)
    with any_world.store.write() as connection:  # as an earlier release kept them
        connection.exec_driver_sql(f"update shadow_pairs set b = '[]' where query = '{QUERIES[0]}'")  # noqa: S608 - ours
    assert shadows.load_shadow(any_world.store, "hybrid")["kept"] == 39
    compared(any_world)
    drawn = sides(any_world)
    assert len(drawn) == 39
    assert all(one.left and one.right for one in drawn.values())


def test_a_shadow_that_replaces_another_says_nothing_of_the_pairs_of_that(world: World) -> None:
    compared(world)
    say(world, present(next_of(world)["item"])["id"], LEFT)
    assert len(shadows.load_shadow(world.store, "hybrid")["comparisons"]) == 1
    shadows.delete_shadow(world.store, "hybrid")
    later = world.clock.advance(1)
    shadows.put_shadow(world.store, ShadowDocument(slug="hybrid", candidate="search"), by="Ada", now=later)
    assert shadows.load_shadow(world.store, "hybrid")["comparisons"] == []


def test_tasks_of_chunks_are_stored_as_an_older_release_reads_them(world: World) -> None:
    given = {"slug": "chunks", "suite": "suite", "retrievers": ["search"]}
    document = parse_document(TaskDocument, given)
    tasks.put_task(world.store, document, by="Ada", now=world.clock())
    with world.store.read() as connection:
        [stored] = rows.documents_of(connection, ["chunks"])["chunks"]
        assert "pairs" not in stored
    tasks.request_pool(world.store, "chunks", now=world.clock())
    assert tasks.put_task(world.store, document, by="Ada", now=world.clock())[1] is False, "the same changes nothing"


def test_a_task_stays_when_its_shadow_is_deleted(world: World) -> None:
    compared(world)
    shadows.delete_shadow(world.store, "hybrid")
    assert next_of(world)["item"] is not None
    with pytest.raises(NotFoundError):
        shadows.load_shadow(world.store, "hybrid")


def test_a_task_of_pairs_says_what_is_wrong(world: World) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"pairs": {"shadow": "nobody"}}, "pairs.shadow", "there is no shadow 'nobody'"),
        ({"retrievers": ["search"]}, "retrievers", "this task is of `pairs`"),
        ({"scale": "0-3"}, "scale", "must be 0-2 for pairs"),
        ({"keys": ["fees"]}, "keys", "pairs are of what users asked"),
        ({"pairs": {"shadow": "hybrid", "count": 0}}, "pairs.count", "at least 1"),
    ]
    for more, path, message in cases:
        with pytest.raises(InvalidInputError) as raised:
            compared(world, **more)
        (problem,) = raised.value.problems
        assert problem.path == path
        assert message in problem.message
