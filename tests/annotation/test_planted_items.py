"""Planted items: known grades among a task's items that nobody can tell, and what is known of annotators by them."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from app.annotation.documents import TaskDocument
from app.annotation.domain.pools import PLANTED, KnownCanary, PoolItem, draw_planted
from app.annotation.domain.recall import GradedTask, Said, SaidOfPlanted
from app.annotation.service import annotations, results, tasks
from app.annotation.store import task_rows as rows
from app.annotation.store.task_rows import ItemRow
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.base.values import replace
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument
from tests.annotation.test_wrong_grades import World, covers
from tests.support.annotation_tasks import QUERIES, Desk
from tests.support.api_service import Api, api
from tests.support.html_pages import Page
from tests.support.present import present
from tests.support.world import canary

ANSWERS = {query: f"The handbook tells of {query} on page {page}." for page, query in enumerate(QUERIES)}
"""What each canary expects, and no retriever returns."""


def planted_desk(store: Store, *, checks: int = 6, **changes: Any) -> Desk:
    canaries = [canary(query, expected_chunks=[{"text": text, "grade": 2}]) for query, text in ANSWERS.items()]
    desk = Desk.of(store, canaries=canaries, checks=checks, **changes)
    desk.make_pool()
    return desk


def planted_items(desk: Desk) -> list[ItemRow]:
    return [item for item in desk.items() if item.known_grade is not None]


def grade(desk: Desk, annotator: str, *, wrong: Sequence[str] = ()) -> list[str]:
    """Grade all that is left: items of the pool as their numbers are, planted ones rightly but for these."""
    known = {item.token: item.known_grade for item in planted_items(desk)}
    order, found = [], desk.next(annotator)
    while (item := found["item"]) is not None:
        token = item["id"]
        order.append(token)
        relevant = bool(known[token]) if token in known else int(item["text"].split()[1]) < 5
        found = desk.say(annotator, token, int(relevant != (token in wrong)))
    return order


# --- which texts are planted -----------------------------------------------------------------------------------


@pytest.mark.both
def test_half_of_them_their_canary_expects_and_the_others_another_one(store: Store) -> None:
    desk = planted_desk(store)
    items = planted_items(desk)
    with store.read() as connection:
        keys = {row.id: row.key for row in catalog.list_canaries(connection, desk_suite(desk))}
    good = [(keys[present(item.canary_id)], item.text, item.known_grade) for item in items if item.known_grade]
    assert len(good) == 3
    assert all(ANSWERS[key] == text and known == 2 for key, text, known in good)
    others = [(keys[present(item.canary_id)], item.text) for item in items if not item.known_grade]
    assert len(others) == 3
    assert all(text in ANSWERS.values() and text != ANSWERS[key] for key, text in others)
    assert {item.stratum for item in items} == {PLANTED}
    task = tasks.load_task(store, "truth")
    assert (task["checks"], task["planted"], task["planted_fewer"]) == (6, 6, None)
    assert task["items"] == len(desk.items())


def test_a_pool_that_is_asked_for_again_plants_nothing_more(sqlite_store: Store) -> None:
    desk = planted_desk(sqlite_store)
    before = desk.items()
    desk.make_pool()
    assert desk.items() == before


def test_where_too_few_are_known_it_says_how_many_and_why(sqlite_store: Store) -> None:
    desk = planted_desk(sqlite_store, checks=40)
    task = tasks.load_task(sqlite_store, "truth")
    assert task["planted"] == len(planted_items(desk)) == 4 + 12
    assert task["planted_fewer"] == (
        "only 4 of 20 relevant texts are known that are not graded anyway, and only 12 of 20 irrelevant texts are known"
    )


def test_a_text_of_the_pool_is_found_by_its_id_and_planted_elsewhere_alone(sqlite_store: Store) -> None:
    canaries = [canary(query, expected_chunks=[f"bm25-{query}-0"]) for query in QUERIES]
    desk = Desk.of(sqlite_store, canaries=canaries, checks=4)
    desk.make_pool()
    items = planted_items(desk)
    assert [item.known_grade for item in items] == [0, 0]
    for item in items:
        assert re.fullmatch(r"Text 0 about \w+\.", item.text)
        assert item.key not in {one.key for one in desk.items() if one.canary_id == item.canary_id and one != item}
    fewer = tasks.load_task(sqlite_store, "truth")["planted_fewer"]
    assert fewer == "only 0 of 2 relevant texts are known that are not graded anyway"


def test_a_relevant_one_rests_on_more_than_one_grade_of_the_task_that_found_it(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store, overlap=0.5)
    desk.make_pool()
    for annotator in ("Ann", "Bob"):
        grade(desk, annotator)
    annotations.adopt(sqlite_store, "truth", now=desk.world.clock())
    relevant = {item.text: item.overlap for item in desk.items() if int(item.text.split()[1]) < 5}
    assert set(relevant.values()) == {True, False}, "some were graded by both, and others by one"
    desk.put(slug="again", retrievers=["dense"], pool=1, strata=[], checks=24)
    tasks.request_pool(sqlite_store, "again", now=desk.world.clock())
    with sqlite_store.read() as connection:
        again = present(rows.find_task(connection, "again"))
    tasks.make_pool(sqlite_store, desk.world.vault, desk.shelves, again.id, clock=desk.world.clock)
    with sqlite_store.read() as connection:
        items = rows.list_items(connection, again.id)
    shown = {item.text for item in items if item.known_grade is None}
    planted = {item.text for item in items if item.known_grade}
    assert planted == {text for text, by_both in relevant.items() if by_both} - shown
    once = sum(not by_both for text, by_both in relevant.items() if text not in shown)
    assert f" ({once} more rest on one grade, or on the hits of a retriever)" in present(
        tasks.load_task(sqlite_store, "again")["planted_fewer"]
    )


@pytest.mark.parametrize(
    ("doubtful", "reason"),
    [
        ((), ""),
        (
            ("fees",),
            "only 1 of 2 relevant texts are known that are not graded anyway (1 more rests on one grade, or on",
        ),
    ],
)
def test_what_rests_on_one_grade_is_not_planted_as_relevant(doubtful: Sequence[str], reason: str) -> None:
    own = replace(known(1, "exports", "fees"), doubtful=doubtful)
    planting = draw_planted([own, known(2)], 4, np.random.default_rng(1))
    assert {item.text for _, item in planting.items if item.known_grade} == {"exports", "fees"} - set(doubtful)
    assert planting.reason.startswith(reason)


def known(number: int, *texts: str, documents: Sequence[str] = (), shown: Sequence[str] = ()) -> KnownCanary:
    return KnownCanary(id=number, expected={text: (text, 1) for text in texts}, documents=documents, shown=shown)


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(known(1, "fees are due"), id="it expects a part of it"),
        pytest.param(known(1, "all fees are due monthly in advance"), id="it expects what holds it"),
        pytest.param(known(1, "other", documents=["terms.md"]), id="of a document that it expects"),
        pytest.param(known(1, "other", shown=["fees are due monthly"]), id="it is graded anyway"),
    ],
)
def test_what_may_be_relevant_is_not_planted_as_irrelevant(own: KnownCanary) -> None:
    other = known(2, "fees are due monthly", documents=["terms.md"])
    planting = draw_planted([own, other], 2, np.random.default_rng(1))
    assert [canary_id for canary_id, item in planting.items if item.known_grade == 0] in ([], [2])


def test_a_foreign_text_is_planted_as_irrelevant() -> None:
    planting = draw_planted([known(1, "exports"), known(2, "fees")], 4, np.random.default_rng(1))
    found: list[tuple[int, PoolItem]] = sorted(planting.items, key=lambda one: (one[0], one[1].text))
    assert [(number, item.text, item.known_grade) for number, item in found] == [
        (1, "exports", 1),
        (1, "fees", 0),
        (2, "exports", 0),
        (2, "fees", 1),
    ]
    assert planting.reason == ""


@pytest.mark.parametrize("checks", [-1, 201, "many"])
def test_their_number_has_bounds(checks: Any) -> None:
    with pytest.raises(InvalidInputError, match="checks"):
        parse_document(TaskDocument, {"slug": "a", "suite": "b", "retrievers": ["c"], "checks": checks})


def test_answers_and_pairs_have_none() -> None:
    given = {"slug": "a", "suite": "b", "pairs": {"shadow": "c"}, "checks": 5}
    with pytest.raises(InvalidInputError, match="checks"):
        parse_document(TaskDocument, given)


# --- nobody can tell them --------------------------------------------------------------------------------------


def test_they_come_among_the_others_and_look_like_them(sqlite_store: Store) -> None:
    desk = planted_desk(sqlite_store)
    tokens = {item.token for item in planted_items(desk)}
    order = grade(desk, "Ann")
    places = [place for place, token in enumerate(order) if token in tokens]
    assert len(places) == 6
    assert min(places) < len(order) // 2 < max(places), "neither all first nor all last"
    for token in (*order, *annotations_left(desk)):
        item = annotations.load_item(sqlite_store, "truth", token, annotator="Ann")
        assert item.keys() == {"id", "query", "vars", "history", "text", "grade", "answer", "pair"}
        assert (item["answer"], item["pair"]) == (None, None)
        assert item["query"] in QUERIES
    assert {len(token) for token in order} == {20}


def annotations_left(desk: Desk) -> list[str]:
    """List the tokens that Bob could still grade."""
    found = desk.next("Bob")
    return [one["id"] for one in (found["item"], found["following"]) if one is not None]


def test_nothing_is_shown_before_they_are_planted(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "BLOCK", 1)
    asked: list[bool] = []

    def stop() -> bool:
        asked.append(True)
        return len(asked) > 4

    canaries = [canary(query, expected_chunks=[{"text": text}]) for query, text in ANSWERS.items()]
    desk = Desk.of(sqlite_store, canaries=canaries, checks=6)
    assert not desk.make_pool(stopping=stop)
    assert desk.items(), "of the first canaries"
    assert desk.next("Ann")["item"] is None
    assert desk.work()
    assert desk.next("Ann")["item"] is not None


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service with a task of the suite `docs` that has planted items."""
    with api(tmp_path_factory.mktemp("planted")) as opened:
        opened.docs()
        for one in opened.get("/v1/suites/docs/canaries")["items"]:
            expected = [*one["expected_chunks"], {"text": f"What people are told of {one['key']}."}]
            opened.put(f"/v1/suites/docs/canaries/{one['key']}", {"query": one["query"], "expected_chunks": expected})
        opened.put("/v1/tasks/truth", {"suite": "docs", "retrievers": ["search"], "overlap": 0, "checks": 4})
        assert opened.client.post("/v1/tasks/truth/pool").status_code == 202
        opened.make_pool("truth")
        yield opened


def grade_everything(service: Api, annotator: str) -> tuple[set[frozenset[str]], str]:
    """Grade everything as relevant; the fields that items had, and all that the API and the page said."""
    fields, heard = set(), []
    found = service.get("/v1/tasks/truth/next", annotator=annotator)
    while (item := found["item"]) is not None:
        fields.add(frozenset(item))
        heard.append(json.dumps([found, service.get(f"/v1/tasks/truth/items/{item['id']}", annotator=annotator)]))
        service.client.cookies.set("coalmine_annotator", annotator)
        page = service.client.get("/tasks/truth/annotate", params={"item": item["id"]}).text
        heard.append(page[page.index("<main") :])
        path = f"/v1/tasks/truth/items/{item['id']}/annotation"
        found = service.put(path, {"grade": 1, "annotator": annotator, "seconds": 3})
    return fields, "".join(heard)


def test_no_field_of_the_api_and_no_page_for_annotators_tells_them(service: Api) -> None:
    assert service.get("/v1/tasks/truth")["planted"] == 4
    fields, heard = grade_everything(service, "Ann")
    assert "What people are told of" in heard, "some are among them"
    assert fields == {frozenset({"id", "query", "vars", "history", "text", "grade", "answer", "pair"})}
    for word in ("planted", "known", "checks", "stratum"):
        assert word not in heard.lower()


def test_a_sentence_tells_how_many_were_graded_and_how_many_wrongly(service: Api) -> None:
    grade_everything(service, "Ann")
    budget = service.get("/v1/tasks/truth/budget")
    assert budget["planted"] == {"items": 4, "graded": 4, "grades": 4, "wrong": 2}
    assert [(one["planted_graded"], one["planted_wrong"]) for one in budget["annotators"]] == [(4, 2)]
    page = Page(service.client.get("/tasks/truth").text).text
    wrong = "2 of 4 grades are wrong by what the canaries expect: Ann 2 of 4."
    assert f"4 of 4 planted chunks with a known grade are graded; {wrong}" in page
    (estimate, *_) = service.get("/v1/tasks/truth/recall")["estimates"]
    assert estimate["assumes"].startswith("corrected for wrong grades, of which 4 planted chunks tell: about ")
    assert estimate["uncorrected"] is not None


def test_a_page_makes_a_task_with_them_and_says_why_they_are_fewer(service: Api) -> None:
    fields = {"slug": "more", "suite": "docs", "retrievers": "search", "pool": "3", "strata": "10: 2", "scale": "0-2"}
    assert 'name="checks" value="0"' in service.client.get("/tasks").text
    made = service.client.post("/tasks", data={**fields, "overlap": "0.5", "checks": "60"}, follow_redirects=True)
    assert made.url.path == "/tasks/more", Page(made.text).text
    service.make_pool("more")
    task = service.get("/v1/tasks/more")
    assert 0 < task["planted"] < task["checks"] == 60
    page = Page(service.client.get("/tasks/more").text).text
    assert f"{task['planted']} of 60 chunks with a known grade were planted: {task['planted_fewer']}." in page


# --- what they count for ---------------------------------------------------------------------------------------


def desk_suite(desk: Desk) -> int:
    with desk.store.read() as connection:
        return present(catalog.find_definition(connection, "suite", "suite")).id


def test_they_are_never_adopted(sqlite_store: Store) -> None:
    desk = planted_desk(sqlite_store)
    grade(desk, "Ann", wrong=[item.token for item in planted_items(desk)])
    annotations.adopt(sqlite_store, "truth", now=desk.world.clock())
    with sqlite_store.read() as connection:
        canaries = catalog.list_canaries(connection, desk_suite(desk))
    for row in canaries:
        found = {one.text: one.grade for one in CanaryDocument.model_validate(row.body).expected_chunks}
        assert len(found) > 1, "what the pool holds was adopted"
        assert found[ANSWERS[row.key]] == 2, "nobody judged what the canary expects"
        assert not (ANSWERS.keys() - {row.key}) & {key for key, text in ANSWERS.items() if text in found}


def test_they_are_in_no_export_no_agreement_and_no_disagreement(sqlite_store: Store) -> None:
    desk = planted_desk(sqlite_store, overlap=1.0)
    grade(desk, "Ann")
    grade(desk, "Bob", wrong=[item.token for item in planted_items(desk)])
    assert "The handbook tells" not in annotations.export_annotations(sqlite_store, "truth")
    agreement = results.load_agreement(sqlite_store, "truth")
    assert (agreement["items"], agreement["raw"]["value"]) == (len(desk.items()) - 6, 1)
    assert annotations.list_disagreements(sqlite_store, "truth") == []
    budget = results.load_budget(sqlite_store, "truth")
    assert budget["items"] == sum(budget["states"].values()) == len(desk.items()) - 6
    assert [(one["planted_graded"], one["planted_wrong"]) for one in budget["annotators"]] == [(6, 0), (6, 6)]
    assert budget["planted"] == {"items": 6, "graded": 6, "grades": 12, "wrong": 6}


def test_they_are_no_texts_of_the_estimate_but_correct_it(sqlite_store: Store) -> None:
    desk = planted_desk(sqlite_store, overlap=0)
    for item in desk.items():
        if item.known_grade is None:
            desk.say("Ann", item.token, int(int(item.text.split()[1]) < 5))
    before = results.load_recall(sqlite_store, "truth")
    assert before["undecided"] == 0, "planted ones are waited for by nobody"
    assert {one["assumes"] for one in before["estimates"]} == {
        "every grade is taken as right: no chunk was graded by two people"
    }
    grade(desk, "Ann")
    after = results.load_recall(sqlite_store, "truth")
    for one, other in zip(before["estimates"], after["estimates"], strict=True):
        assert other["uncorrected"] == one["value"], "they add nothing to what is counted"
        assert "of which none was seen among 6 planted chunks; up to about " in other["assumes"]


@pytest.mark.parametrize("wrong", [0.03, 0.1])
def test_planted_items_alone_correct_for_wrong_grades(wrong: float) -> None:
    """Each item has one grade, so nothing but these tells how often people err."""
    for seed in range(2):
        world, random = World.of(wrong, overlap=0, seed=seed), np.random.default_rng(seed)
        assert not covers(world.plain(), world.truth)
        yes = random.random(20) < np.where(np.arange(20) < 10, 1 - wrong, wrong)
        said: list[Said] = [(1, int(one)) for one in yes]
        planted = SaidOfPlanted(relevant=tuple(said[:10]), irrelevant=tuple(said[10:]))
        corrected = world.recall(GradedTask(world.said, has_rest=True, seed=1, planted=planted))
        assert covers(corrected, world.truth)
        assert present(corrected.value) > present(world.plain().value)


def planted_ones(wrong: int, *, irrelevant: int = 0) -> SaidOfPlanted:
    """Ten of either kind, of which so many are graded wrongly."""
    return SaidOfPlanted(
        relevant=((1, 0),) * wrong + ((1, 1),) * (10 - wrong),
        irrelevant=((1, 1),) * irrelevant + ((1, 0),) * (10 - irrelevant),
    )


@pytest.mark.parametrize(("wrong", "by_chance"), [(0.01, 0), (0.1, 2)])
def test_planted_items_that_several_grades_contradict_are_seen_and_those_that_err_as_others_are_not(
    wrong: float, by_chance: int
) -> None:
    task = GradedTask(World.of(wrong, overlap=0.3, seed=1).said, has_rest=True, seed=1)
    assert not task.is_contradicted_by(SaidOfPlanted())
    assert not task.is_contradicted_by(planted_ones(by_chance, irrelevant=by_chance))
    assert task.is_contradicted_by(planted_ones(6))
    assert task.is_contradicted_by(planted_ones(0, irrelevant=6))


def test_planted_items_that_err_as_others_are_seldom_taken_for_wrong() -> None:
    contradicted = 0
    for seed in range(5):
        random = np.random.default_rng(100 + seed)
        task = GradedTask(World.of(0.05, overlap=0.2, seed=seed).said, has_rest=True, seed=1)
        drawn = random.binomial(10, 0.05, size=(20, 2)).tolist()
        contradicted += sum(task.is_contradicted_by(planted_ones(wrong, irrelevant=other)) for wrong, other in drawn)
    assert contradicted <= 8, "of 100, where .05 are promised"


@pytest.mark.parametrize("with_wrong", [False, True])
def test_planted_chunks_that_several_grades_contradict_correct_nothing_and_it_says_why(
    sqlite_store: Store, *, with_wrong: bool
) -> None:
    queries = [f"{query}-{number}" for query in QUERIES for number in range(10)]
    canaries = [canary(query, expected_chunks=[{"text": f"The handbook tells of {query}."}]) for query in queries]
    desk = Desk.of(sqlite_store, canaries=canaries, checks=20, overlap=1.0)
    desk.make_pool()
    wrong = [item.token for item in planted_items(desk) if item.known_grade] if with_wrong else []
    grade(desk, "Ann", wrong=wrong)
    grade(desk, "Bob", wrong=wrong)
    estimate = results.load_recall(sqlite_store, "truth")["estimates"][0]
    assert f"among {len(desk.items()) - 20} chunks with several grades" in estimate["assumes"]
    says = (
        "; 20 planted chunks correct nothing: 10 are graded wrongly, more than that allows, so that what the canaries "
        "expect of them may be wrong"
    )
    assert estimate["assumes"].endswith(says) is with_wrong, estimate["assumes"]
    assert (" and 20 planted chunks" in estimate["assumes"]) is not with_wrong
    limits = [float(one) for one in re.findall(r"([\d.]+) % of what", estimate["assumes"])]
    assert len(limits) == 2
    assert max(limits) < 10, "what chunks with several grades tell stays"


def test_the_more_planted_items_are_graded_wrongly_the_more_is_corrected() -> None:
    world = World.of(0.1, overlap=0, seed=4)

    def with_wrong(count: int) -> GradedTask:
        irrelevant: tuple[Said, ...] = ((1, 1),) * count + ((1, 0),) * (100 - count)
        planted = SaidOfPlanted(relevant=((1, 1),) * 100, irrelevant=irrelevant)
        return GradedTask(world.said, has_rest=True, seed=1, planted=planted)

    careful, careless = with_wrong(0), with_wrong(10)
    assert careful.wrong_shares()[0].value < careless.wrong_shares()[0].value
    assert careless.wrong_shares()[0].value == pytest.approx(0.1, abs=0.03)
    assert present(world.recall(careful).high) < world.truth < present(world.recall(careless).high)
