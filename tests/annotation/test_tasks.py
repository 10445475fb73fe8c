"""Tasks: created, pooled from several retrievers, annotated, agreed on and adjudicated; nothing said is ever lost."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from app.annotation import tables
from app.annotation.domain.agreement import ConsensusState
from app.annotation.domain.pools import HELD_SECONDS
from app.annotation.service import annotations, results, tasks
from app.annotation.views import TaskState
from app.base.db.engine import Store
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.base.jobs.local import at_hand
from app.base.jobs.values import JobKind
from app.base.values import Outcome
from app.definitions.service import definitions
from tests.support.annotation_tasks import QUERIES, Desk
from tests.support.present import present

# --- the task and its pool -----------------------------------------------------------------------------------


def test_a_task_is_pooled_and_its_items_are_frozen(store: Store) -> None:
    desk = Desk.of(store)
    assert tasks.load_task(store, "truth")["state"] is TaskState.CREATED
    assert desk.make_pool()
    task = tasks.load_task(store, "truth")
    assert (task["state"], task["canaries"], task["pooled"], task["failed"]) == (TaskState.POOLED, 4, 4, 0)
    items = desk.items()
    assert task["items"] == len(items) == 4 * (5 + 2 + 2)
    pool = [item for item in items if item.stratum == 0 and item.document == "refunds.md"]
    assert {item.text for item in pool} == {f"Text {number} about refunds." for number in (0, 1, 2, 3, 5)}


def test_equal_texts_of_two_retrievers_are_one_item_with_both_ranks(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    desk.make_pool()
    (item,) = [one for one in desk.items() if one.text == "Text 2 about refunds."]
    assert item.ranks == {"bm25": 3, "dense": 2}
    assert item.chunks == [("bm25", "bm25-refunds-2"), ("dense", "dense-refunds-2")]


def test_a_job_is_deferred_with_the_request(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    tasks.request_pool(sqlite_store, "truth", now=desk.world.clock())
    with sqlite_store.read() as connection:
        assert len(at_hand(connection, [JobKind.POOL], 0)) == 1


def test_retrievers_are_asked_once_per_canary_to_the_depth_of_the_plan(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    desk.make_pool()
    assert sorted(desk.shelves.asked) == sorted((slug, query, 30) for slug in ("bm25", "dense") for query in QUERIES)
    desk.make_pool()
    assert len(desk.shelves.asked) == 2 * len(QUERIES)


def test_a_pool_goes_on_where_it_was_interrupted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "BLOCK", 1)
    desk = Desk.of(store)
    stops = iter([False] * 5)  # within the second canary
    assert not desk.make_pool(stopping=lambda: next(stops, True))
    begun = tasks.load_task(store, "truth")
    assert (begun["state"], begun["pooled"]) == (TaskState.POOLING, 1)
    frozen = {item.token: item for item in desk.items()}
    assert desk.work()
    items = {item.token: item for item in desk.items()}
    assert frozen.items() <= items.items()
    assert tasks.load_task(store, "truth")["state"] is TaskState.POOLED


def test_an_interrupted_pool_draws_the_same_items_as_one_in_one_go(sqlite_store: Store, store: Store) -> None:
    whole, again = Desk.of(sqlite_store), Desk.of(store)
    whole.make_pool()
    again.make_pool(stopping=lambda: True)
    again.work()
    assert [(item.text, item.stratum) for item in whole.items()] == [(one.text, one.stratum) for one in again.items()]


@pytest.mark.both
def test_a_canary_that_a_retriever_does_not_answer_is_told_and_tried_again(store: Store) -> None:
    desk = Desk.of(store)
    desk.shelves.failing["dense/exports"] = Outcome.TIMEOUT
    assert desk.make_pool()
    task = tasks.load_task(store, "truth")
    assert (task["state"], task["pooled"], task["failed"]) == (TaskState.POOLING, 3, 1)
    assert task["failures"] == [{"canary": "exports", "reason": "dense: is ill"}]
    assert desk.shelves.asked.count(("dense", "exports", 30)) == tasks.MOST_ATTEMPTS
    assert desk.next("Ann")["item"] is not None, "the others can be graded"
    desk.shelves.failing.clear()
    assert desk.make_pool()
    assert tasks.load_task(store, "truth")["failures"] == []
    assert tasks.load_task(store, "truth")["state"] is TaskState.POOLED


def test_hits_without_texts_cannot_be_graded(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    desk.shelves.texts = False
    desk.make_pool()
    reasons = {one["reason"] for one in tasks.load_task(sqlite_store, "truth")["failures"]}
    assert reasons == {"dense: its hits have no text that people could read: map `text` in its response"}


def test_a_retriever_that_is_gone_is_told(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    definitions.archive(sqlite_store, "retriever", "dense", now=desk.world.clock())
    assert desk.make_pool()
    assert {one["reason"] for one in tasks.load_task(sqlite_store, "truth")["failures"]} == {
        "there is no retriever 'dense'"
    }


def test_a_task_can_be_changed_until_its_pool_is_asked_for(store: Store) -> None:
    desk = Desk.of(store)
    assert desk.put(pool=5)["pool"] == 5
    desk.make_pool()
    assert desk.put(pool=5)["pool"] == 5, "the same again changes nothing"
    with pytest.raises(ConflictError, match="cannot be changed"):
        desk.put(pool=6)


def test_a_task_names_what_exists(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    strata = [{"to": 10, "sample": 1}, {"rest": 5}]
    with pytest.raises(InvalidInputError) as raised:
        desk.put(slug="other", suite="none", retrievers=["bm25", "gone"], corpus="missing", strata=strata)
    assert [one.path for one in raised.value.problems] == ["suite", "retrievers[1]", "corpus"]


def test_tasks_without_sense_are_refused(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"strata": [{"to": 3, "sample": 1}]}, "must be above 3"),
        ({"strata": [{"rest": 3}]}, "needed for random negatives"),
        ({"strata": [{"rest": 3}, {"to": 9, "sample": 1}], "corpus": "all"}, "the rest comes last"),
        ({"strata": [{"to": 9}]}, "must be {to, sample} or {rest}"),
        ({"strata": [{"to": 9, "sample": 1, "rest": 2}]}, "not both"),
        ({"retrievers": ["bm25", "bm25"]}, "twice"),
        ({"scale": "0-5"}, "0-2"),
        (
            {"answers": {"judge": "one", "question": "faithful"}, "pairs": {"shadow": "new"}},
            "of `answers` or of `pairs`",
        ),
    ]
    for changes, message in cases:
        with pytest.raises(InvalidInputError, match=message):
            desk.put(**changes)


def test_an_archived_task_is_no_more(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    tasks.archive_task(sqlite_store, "truth", now=desk.world.clock())
    assert tasks.list_tasks(sqlite_store, limit=10) == []
    with pytest.raises(NotFoundError, match="no task 'truth'"):
        desk.next("Ann")
    assert desk.put(pool=4)["pool"] == 4, "its name is free again"
    with pytest.raises(NotFoundError, match="no task 'nothing'"):
        tasks.load_task(sqlite_store, "nothing")


# --- annotating ----------------------------------------------------------------------------------------------


def pooled(store: Store, **changes: Any) -> Desk:
    desk = Desk.of(store, **changes)
    desk.make_pool()
    return desk


def test_one_query_after_the_other_each_item_once_in_an_order_of_ones_own(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store, overlap=1.0)
    orders = {name: desk.work_through(name) for name in ("Ann", "Bob")}
    assert sorted(orders["Ann"]) == sorted(orders["Bob"]) == sorted(item.token for item in desk.items())
    assert orders["Ann"] != orders["Bob"]
    canaries = {item.token: item.canary_id for item in desk.items()}
    visited = [canaries[token] for token in orders["Ann"]]
    assert len(set(visited)) == 1 + sum(a != b for a, b in pairwise(visited))


def test_the_following_item_is_the_next_one(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    found = desk.next("Ann")
    while found["following"] is not None:
        following = found["following"]["id"]
        found = desk.say("Ann", present(found["item"])["id"], 1)
        assert present(found["item"])["id"] == following
    assert present(found["item"])
    assert desk.say("Ann", present(found["item"])["id"], 0)["item"] is None


def test_what_one_has_graded_is_left_for_others_only_in_the_overlap(store: Store) -> None:
    desk = pooled(store)
    overlap = {item.token for item in desk.items() if item.overlap}
    assert 0 < len(overlap) < len(desk.items())
    assert len(desk.work_through("Ann")) == len(desk.items())
    assert set(desk.work_through("Bob")) == overlap


def test_what_one_skipped_is_left_for_others(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store, overlap=0.0)
    item = present(desk.next("Ann")["item"])["id"]
    found = desk.say("Ann", item, None)
    assert (found["progress"]["graded"], found["progress"]["skipped"]) == (0, 1)
    desk.grade_all("Ann")
    assert desk.work_through("Bob") == [item]


@pytest.mark.both
def test_an_annotation_can_be_changed_and_its_history_stays(store: Store) -> None:
    desk = pooled(store)
    item = present(desk.next("Ann")["item"])["id"]
    desk.say("Ann", item, 1)
    desk.say("Ann", item, 2)
    assert annotations.load_item(store, "truth", item, annotator="Ann")["grade"] == 2
    assert annotations.load_item(store, "truth", item, annotator="Bob")["grade"] is None
    with store.read() as connection:
        rows = connection.execute(tables.annotations.select().order_by(tables.annotations.c.id)).all()
    assert [(row.grade, row.withdrawn_at is None) for row in rows] == [(1, False), (2, True)]


def test_undo_brings_back_ones_last_item_and_nobody_elses(store: Store) -> None:
    desk = pooled(store)
    mine = [present(desk.next("Ann")["item"])["id"]]
    mine.append(present(desk.say("Ann", mine[0], 1)["item"])["id"])
    desk.say("Ann", mine[1], 0)
    desk.say("Bob", present(desk.next("Bob")["item"])["id"], 1)
    for expected in reversed(mine):
        found = annotations.undo(store, "truth", annotator="Ann", now=desk.world.clock.advance(1))
        assert present(found["item"])["id"] == expected
    with pytest.raises(ConflictError, match="no annotation"):
        annotations.undo(store, "truth", annotator="Ann", now=desk.world.clock())
    assert results.load_budget(store, "truth")["states"][ConsensusState.GRADED_ONCE] == 1


# --- several people at once ----------------------------------------------------------------------------------


@pytest.mark.both
@pytest.mark.parametrize("people", [("Ann", "Bob"), ("Ann", "Bob", "Cid", "Dot")])
@pytest.mark.parametrize("overlap", [0.0, 0.3])
def test_people_who_annotate_in_turns_grade_nothing_twice_beyond_the_overlap(
    store: Store, people: Sequence[str], overlap: float
) -> None:
    desk = pooled(store, overlap=overlap)
    hands = {name: desk.next(name) for name in people}
    grades = Counter[str]()
    while any(one["item"] for one in hands.values()):
        for name, found in hands.items():
            if found["item"] is not None:
                grades[found["item"]["id"]] += 1
                hands[name] = desk.say(name, found["item"]["id"], 1)
    for_all = {item.token for item in desk.items() if item.overlap}
    assert bool(for_all) is bool(overlap)
    assert grades == {item.token: len(people) if item.token in for_all else 1 for item in desk.items()}


@pytest.mark.databases
def test_people_who_annotate_at_the_same_time_grade_nothing_twice(store: Store) -> None:
    desk = pooled(store, overlap=0.0)
    now = desk.world.clock()

    def work_through(name: str) -> list[str]:
        order: list[str] = []
        found = desk.next(name)
        while (item := found["item"]) is not None:
            order.append(item["id"])
            found = annotations.annotate(store, "truth", item["id"], annotator=name, grade=1, now=now)
        return order

    with ThreadPoolExecutor(6) as pool:
        orders = list(pool.map(work_through, [f"Person {number}" for number in range(6)]))
    graded = [token for order in orders for token in order]
    assert sorted(graded) == sorted(item.token for item in desk.items())
    assert sum(map(bool, orders)) > 1


def test_what_one_has_in_hand_goes_to_others_ten_minutes_later(store: Store) -> None:
    desk = pooled(store, overlap=0.0)
    mine = desk.next("Ann")
    hand = {present(mine["item"])["id"], present(mine["following"])["id"]}
    desk.world.clock.advance(30)
    assert len(desk.work_through("Bob")) == len(desk.items()) - 2
    told = desk.next("Bob")
    assert told["item"] is None
    assert (told["progress"]["left"], told["progress"]["with_others"]) == (2, 2)
    desk.world.clock.advance(HELD_SECONDS)
    assert desk.next("Bob")["progress"]["with_others"] == 0
    assert desk.next("Ann")["item"] is None, "they are in Bob's hand now"
    assert set(desk.work_through("Bob")) == hand


def test_asking_again_brings_the_same_items_and_holds_them_longer(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store, overlap=0.0)
    before = desk.next("Ann")
    for _ in range(3):
        desk.world.clock.advance(HELD_SECONDS - 1)
        again = desk.next("Ann")
        assert (again["item"], again["following"]) == (before["item"], before["following"])
        bob = desk.next("Bob")
        assert present(before["item"])["id"] not in {present(bob["item"])["id"], present(bob["following"])["id"]}


def test_what_one_skips_is_in_nobodys_hand(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store, overlap=0.0, queries=["refunds"])
    skipped = present(desk.next("Ann")["item"])["id"]
    desk.say("Ann", skipped, None)
    assert desk.next("Bob")["progress"]["with_others"] == 2
    assert skipped in desk.work_through("Bob")


def test_the_following_item_stays_whatever_others_skip_meanwhile(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store, overlap=0.0, queries=["refunds"])
    hands = {name: desk.next(name) for name in ("Ann", "Bob")}
    for _ in range(3):
        following = present(hands["Ann"]["following"])["id"]
        hands["Bob"] = desk.say("Bob", present(hands["Bob"]["item"])["id"], None)
        hands["Ann"] = desk.say("Ann", present(hands["Ann"]["item"])["id"], 1)
        assert present(hands["Ann"]["item"])["id"] == following


def test_what_one_takes_back_is_in_ones_hand(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store, overlap=0.0)
    item = present(desk.next("Ann")["item"])["id"]
    desk.say("Ann", item, 1)
    back = annotations.undo(sqlite_store, "truth", annotator="Ann", now=desk.world.clock.advance(1))
    assert present(back["item"])["id"] == present(desk.next("Ann")["item"])["id"] == item
    assert item not in desk.work_through("Bob")


def test_an_archived_task_is_in_nobodys_hand(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    desk.next("Ann")
    tasks.archive_task(sqlite_store, "truth", now=desk.world.clock())
    with sqlite_store.read() as connection:
        assert connection.execute(tables.held_items.select()).all() == []


def test_progress_tells_the_time_left_at_ones_median_pace(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    found = desk.next("Ann")
    assert found["progress"]["seconds_left"] is None
    for seconds in (2.0, 6.0, 5_000.0):
        found = desk.say("Ann", present(found["item"])["id"], 1, seconds)
    assert found["progress"]["left"] == len(desk.items()) - 3
    assert found["progress"]["seconds_left"] == 6 * (len(desk.items()) - 3)


# --- what it amounts to --------------------------------------------------------------------------------------


@pytest.mark.both
def test_two_annotators_agree_and_what_they_do_not_is_adjudicated(store: Store) -> None:
    desk = pooled(store, overlap=1.0)
    desk.grade_all("Ann")
    desk.grade_all("Bob", flip=8)
    agreement = results.load_agreement(store, "truth")
    assert (agreement["items"], agreement["annotators"]) == (36, ["Ann", "Bob"])
    assert agreement["raw"]["value"] == pytest.approx(32 / 36, abs=1e-6)
    assert present(agreement["alpha"]["nominal"]["low"]) < present(agreement["alpha"]["nominal"]["value"]) < 1
    disputed = annotations.list_disagreements(store, "truth")
    assert len(disputed) == 4
    assert {tuple(one["grades"]) for one in disputed} == {("Ann", "Bob")}
    assert results.load_budget(store, "truth")["states"][ConsensusState.DISPUTED] == 4
    first = disputed[0]["id"]
    annotations.adjudicate(store, "truth", first, grade=2, by="Cyd", now=desk.world.clock())
    annotations.adjudicate(store, "truth", first, grade=1, by="Cyd", now=desk.world.clock())
    again = annotations.list_disagreements(store, "truth")
    assert (again[-1]["id"], again[-1]["adjudicated"]) == (first, 1)
    states = results.load_budget(store, "truth")["states"]
    assert (states[ConsensusState.DISPUTED], states[ConsensusState.ADJUDICATED]) == (3, 1)


def test_an_item_without_annotation_cannot_be_adjudicated(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    with pytest.raises(ConflictError, match="nobody has annotated"):
        annotations.adjudicate(sqlite_store, "truth", desk.items()[0].token, grade=1, by="Cyd", now=desk.world.clock())


def test_the_budget_counts_what_is_left_for_everybody(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    overlap = sum(item.overlap for item in desk.items())
    assert results.load_budget(sqlite_store, "truth")["annotations_left"] == 36
    desk.grade_all("Ann")
    budget = results.load_budget(sqlite_store, "truth")
    assert (budget["annotations_left"], budget["hours_left"]) == (0, 0)
    desk.say("Bob", present(desk.next("Bob")["item"])["id"], 1)
    budget = results.load_budget(sqlite_store, "truth")
    assert budget["annotations_left"] == overlap - 1
    assert budget["hours_left"] == pytest.approx(4 * (overlap - 1) / 3600, abs=1e-6)
    assert [one["annotator"] for one in budget["annotators"]] == ["Ann", "Bob"]


def test_without_annotations_nothing_is_agreed_on(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    agreement = results.load_agreement(sqlite_store, "truth")
    assert (agreement["items"], agreement["annotators"], agreement["pairs"]) == (0, [], [])
    assert agreement["alpha"]["ordinal"] == {"value": None, "low": None, "high": None}
    assert annotations.list_disagreements(sqlite_store, "truth") == []
    assert desk.items()


def test_nothing_left_takes_no_time_whatever_the_pace(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store, queries=("refunds",), overlap=0.0)
    desk.make_pool()
    assert results.load_budget(desk.store, "truth")["hours_left"] is None
    while (item := desk.next("Ann")["item"]) is not None:
        desk.say("Ann", item["id"], 1, seconds=None)
    budget = results.load_budget(desk.store, "truth")
    assert (budget["annotations_left"], budget["pace_seconds"], budget["hours_left"]) == (0, None, 0)
