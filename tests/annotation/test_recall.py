"""Pooled recall of a task: by hand, only over what is decided, and shown wherever recall is, never in its place."""

import json
import re
from collections.abc import Iterator, Sequence

import pytest
from typer.testing import CliRunner

from app.annotation.domain.recall import GradedTask, PooledRecall
from app.annotation.service import annotations, results, tasks
from app.annotation.service.results import load_suite_recalls
from app.annotation.store import recall_rows
from app.annotation.store import task_rows as rows
from app.base.db.engine import Store, to_us
from app.base.jobs.local import at_hand
from app.base.jobs.values import JobKind
from app.base.values import replace
from app.catalog import store as catalog
from app.catalog.domain import labelled
from app.catalog.service import judges
from app.catalog.store import API
from app.cli import app
from app.definitions.service import applying
from app.reports.rendering.report_measures import pooled_recall_lines
from tests.support.annotation_tasks import QUERIES, RETRIEVERS, Desk
from tests.support.api_service import CHECK, Api, api
from tests.support.html_pages import Page
from tests.support.present import present
from tests.support.world import canary as described_canary
from tests.support.world import documents
from tests.support.world import page as described_page


def pooled(store: Store, **changes: object) -> Desk:
    desk = Desk.of(store)
    desk.put(**changes)
    desk.make_pool()
    return desk


def compute(desk: Desk) -> None:
    with desk.store.read() as connection:
        task = present(rows.find_task(connection, "truth"))
    results.compute_recall(desk.store, task.id, now=desk.world.clock())


def test_the_estimate_scales_what_the_samples_hold(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    desk.grade_all("Ann")  # texts 0 to 4 are relevant
    expected = 0.0
    with sqlite_store.read() as connection:
        canaries = rows.list_task_canaries(connection, present(rows.find_task(connection, "truth")).id)
    for canary in canaries:
        mine = [item for item in desk.items() if item.canary_id == canary.canary_id]
        for stratum, size in enumerate(present(canary.sizes)):
            drawn = [int(item.text.split()[1]) < 5 for item in mine if item.stratum == stratum]
            expected += size * sum(drawn) / len(drawn)
    found = results.load_recall(sqlite_store, "truth")
    assert (found["queries"], found["undecided"]) == (4, 0)
    by_place = {(one["retriever"], one["k"]): one for one in found["estimates"]}
    assert set(by_place) == {(slug, k) for slug in ("bm25", "dense") for k in (1, 3)}
    bm25, dense = by_place["bm25", 3], by_place["dense", 3]
    assert bm25["relevant"] == pytest.approx(expected, abs=1e-6)
    assert (bm25["found"], dense["found"]) == (12, 8)  # 0, 1, 2; and 3, 2, 5 of which 5 is not relevant
    assert bm25["value"] == pytest.approx(12 / expected, abs=1e-6)
    assert present(bm25["low"]) < present(bm25["value"]) < present(bm25["high"])
    assert bm25["frame"] == "of the relevant texts among the top 30 of bm25, dense"


def test_only_queries_whose_chunks_are_all_graded_count(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    assert results.load_recall(sqlite_store, "truth")["queries"] == 0
    for _ in range(9):
        desk.say("Ann", present(desk.next("Ann")["item"])["id"], 1)
    found = results.load_recall(sqlite_store, "truth")
    assert (found["queries"], found["undecided"]) == (1, 3)
    last = max(desk.items(), key=lambda item: item.id)
    for item in desk.items():
        if item.canary_id == last.canary_id:
            desk.say("Bob", item.token, None if item.token == last.token else 0)
    assert results.load_recall(sqlite_store, "truth")["queries"] >= 1


def test_disputed_chunks_count_by_what_each_person_said(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store, overlap=1.0)
    desk.grade_all("Ann")
    desk.grade_all("Bob")
    wrong = [one for one in desk.items() if int(one.text.split()[1]) >= 5][::2]
    assert {one.canary_id for one in wrong} == {one.canary_id for one in desk.items()}, "one of each query, or more"
    for one in wrong:
        desk.say("Bob", one.token, 1)
    found = results.load_recall(sqlite_store, "truth")
    assert (found["queries"], found["undecided"]) == (4, 0)
    for estimate in found["estimates"]:
        assert estimate["queries"] == 4
        assert estimate["uncorrected"] is None, "with every grade taken as right nothing is known of any query"
        told = re.search(r"about \d[\d.]* % \(([\d.]+) % to ([\d.]+) %\) of what is irrelevant", estimate["assumes"])
        assert told is not None
        share = 100 * len(wrong) / sum(2 * (int(item.text.split()[1]) >= 5) for item in desk.items())
        assert float(told[1]) <= share <= float(told[2])


def test_a_dispute_does_not_make_the_other_grades_look_right(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store, overlap=1.0)
    desk.grade_all("Ann")
    desk.grade_all("Bob")
    (agreed,) = {one["assumes"] for one in results.load_recall(sqlite_store, "truth")["estimates"]}
    assert "of which none was seen among 36 chunks" in agreed
    item = desk.items()[0]
    desk.say("Bob", item.token, int(int(item.text.split()[1]) >= 5))
    (assumes,) = {one["assumes"] for one in results.load_recall(sqlite_store, "truth")["estimates"]}
    assert "of which 36 chunks with several grades tell: about " in assumes


def test_a_sample_that_was_skipped_leaves_recall_unknown(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    found = desk.next("Ann")
    strata = {item.token: item.stratum for item in desk.items()}
    while (item := found["item"]) is not None:
        found = desk.say("Ann", item["id"], None if strata[item["id"]] == 2 else 1)
    estimates = results.load_recall(sqlite_store, "truth")["estimates"]
    assert {one["value"] for one in estimates} == {None}
    assert {one["low"] for one in estimates} == {None}
    assert {one["assumes"] for one in estimates} == {""}, "nothing is claimed of the grades of what is unknown"


def test_chunks_that_were_skipped_are_told_beside_the_estimate(service: Api, sqlite_store: Store) -> None:
    whole = service.get("/v1/tasks/truth/recall")
    assert whole["skipped"] == 0
    assert "whose chunks are all graded." in Page(service.client.get("/tasks/truth").text).text
    some = service.items("truth")[0].token
    service.put(f"/v1/tasks/truth/items/{some}/annotation", {"skip": True, "annotator": "Ann"})
    told = f"graded or skipped: 1 of {whole['chunks']} chunks was skipped, and what it would add is not known."
    assert told in Page(service.client.get("/tasks/truth").text).text
    desk = pooled(sqlite_store, strata=[])
    first, second = sorted(desk.items(), key=lambda item: item.id)[:2]
    desk.say("Ann", first.token, None)
    desk.grade_all("Ann")
    found = results.load_recall(sqlite_store, "truth")
    chunks = len(desk.items())
    assert (found["queries"], found["chunks"], found["skipped"]) == (4, chunks, 1)
    told = f"; 1 of {chunks} chunks was skipped: what it would add is not known"
    assert all(one["assumes"].endswith(told) for one in found["estimates"])
    desk.say("Ann", second.token, None)
    estimates = results.load_recall(sqlite_store, "truth")["estimates"]
    assert f"2 of {chunks} chunks were skipped: what they would add is not known" in estimates[0]["assumes"]
    desk.say("Bob", first.token, 1)
    desk.say("Bob", second.token, 1)
    found = results.load_recall(sqlite_store, "truth")
    assert found["skipped"] == 0
    assert "skipped" not in found["estimates"][0]["assumes"]


def test_an_annotation_has_it_computed_once_a_while(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    desk.grade_all("Ann")
    with sqlite_store.read() as connection:
        waiting = at_hand(connection, [JobKind.RECALL], to_us(desk.world.clock.advance(60)))
    assert len(waiting) == 1


@pytest.mark.both
def test_the_newest_task_speaks_for_a_suite_until_it_is_archived(store: Store) -> None:
    desk = pooled(store)
    desk.grade_all("Ann")
    compute(desk)
    compute(desk)
    shown = load_suite_recalls(store, "suite")
    assert [(one["retriever"], one["k"]) for one in shown] == [("bm25", 3), ("bm25", 1), ("dense", 3), ("dense", 1)]
    assert {one["task"] for one in shown} == {"truth"}
    assert load_suite_recalls(store, "other") == []
    tasks.archive_task(store, "truth", now=desk.world.clock())
    assert load_suite_recalls(store, "suite") == []


@pytest.mark.both
def test_a_newer_task_that_is_self_judged_does_not_hide_one_that_is_not(store: Store) -> None:
    desk = pooled(store)
    desk.grade_all("Ann")
    compute(desk)
    desk.put(slug="alone", retrievers=["bm25"])
    with store.read() as connection:
        both, alone = (present(rows.find_task(connection, slug)).id for slug in ("truth", "alone"))
        estimates = [one for one in recall_rows.list_recalls(connection, suite="suite") if one.retriever == "bm25"]
    with store.write() as connection:
        recall_rows.replace_recalls(
            connection, alone, [replace(one, value=1.0) for one in estimates], to_us(desk.world.clock())
        )
    assert {(one["task"], one["self_judged"]) for one in load_suite_recalls(store, "suite")} == {("truth", False)}
    with store.write() as connection:
        recall_rows.replace_recalls(connection, both, [], to_us(desk.world.clock()))
    shown = load_suite_recalls(store, "suite")
    assert [(one["task"], one["k"], one["self_judged"]) for one in shown] == [("alone", 3, True), ("alone", 1, True)]


@pytest.mark.both
def test_an_estimate_is_marked_once_its_retriever_was_edited_and_no_more_once_that_is_undone(store: Store) -> None:
    desk = pooled(store)
    desk.grade_all("Ann")
    compute(desk)

    def marked() -> dict[str, bool]:
        with store.read() as connection:
            return {
                slug: one["edited_since"]
                for slug in ("bm25", "dense")
                for one in judges.pooled_notes(connection, "suite", slug)
            }

    def apply(**changes: object) -> None:
        described = described_page([described_canary(key) for key in QUERIES], retriever="bm25", hooks=[])
        described["retrievers"] = [{**RETRIEVERS[0], **changes}, RETRIEVERS[1]]
        now = desk.world.clock.advance(1)
        applying.apply(store, desk.world.vault, documents(described), managed_by=API, now=now)

    def beside(version: int) -> tuple[bool, bool]:
        with store.read() as connection:
            [note, *_] = judges.pooled_notes(connection, "suite", "bm25", version_id=version)
            return note["edited_since"], note.get("asked_otherwise", False)

    def version() -> int:
        with store.read() as connection:
            return present(catalog.find_definition(connection, "retriever", "bm25")).version_id

    assert marked() == {"bm25": False, "dense": False}
    first = version()
    apply(url="http://elsewhere.test/")
    later = version()
    assert (beside(first), beside(later)) == ((False, False), (True, False)), "the run of then asked what was pooled"
    assert marked() == {"bm25": True, "dense": False}
    estimates = results.load_recall(store, "truth")["estimates"]
    assert {one["retriever"]: one["edited_since"] for one in estimates} == marked()
    shown = present(results.load_figures(store, "truth", may_write=True).recall)["estimates"]
    assert {one["retriever"]: one["edited_since"] for one in shown} == marked()
    edited, same = pooled_recall_lines(load_suite_recalls(store, "suite"))
    assert "(before the retriever was edited)" in edited
    assert "edited" not in same
    apply()
    assert marked() == {"bm25": False, "dense": False}
    assert (beside(first), beside(later)) == ((False, False), (False, True))
    shown = present(results.load_figures(store, "truth", may_write=True).recall)["estimates"]
    assert {one["edited_since"] for one in shown} == {False}, "what is kept of the task follows its retrievers"


@pytest.mark.both
@pytest.mark.parametrize("of", ["one endpoint", "one that finds nothing", "another endpoint"])
def test_pooled_recall_is_self_judged_where_one_endpoint_alone_brought_something_up(store: Store, of: str) -> None:
    desk = Desk.of(store)
    if of == "one endpoint":
        described = described_page([described_canary(key) for key in QUERIES], retriever="bm25", hooks=[])
        described["retrievers"] = [RETRIEVERS[0], {**RETRIEVERS[0], "slug": "dense", "concurrency": 1}]
        now = desk.world.clock.advance(1)
        applying.apply(store, desk.world.vault, documents(described), managed_by=API, now=now)
    if of == "one that finds nothing":
        desk.shelves.empty.add("dense")
    desk.make_pool()
    desk.grade_all("Ann")
    compute(desk)
    own = {"bm25": of != "another endpoint", "dense": of == "one endpoint"}
    estimates = results.load_recall(store, "truth")["estimates"]
    assert {one["retriever"]: one["self_judged"] for one in estimates} == own
    alone = {"one endpoint": "bm25 and dense", "one that finds nothing": "bm25"}.get(of)
    frame = "of the relevant texts among the top 30 of bm25, dense"
    assert {one["frame"] for one in estimates} == {f"{frame}, the first hits of {alone} alone" if alone else frame}
    with store.read() as connection:
        assert judges.pooled_notes(connection, "suite", "bm25")[0]["self_judged"] is own["bm25"]
        assert judges.is_self_judged(connection, {"task:truth": 1.0}, "bm25") is own["bm25"]


@pytest.mark.parametrize(("canaries", "few"), [(8, False), (9, True)])
def test_an_estimate_over_few_queries_of_a_suite_says_over_how_many(
    sqlite_store: Store,
    canaries: int,
    few: bool,  # noqa: FBT001 - a case of the table
) -> None:
    desk = pooled(sqlite_store)
    desk.grade_all("Ann")
    compute(desk)
    keys = [*QUERIES, *(f"more-{place}" for place in range(canaries - len(QUERIES)))]
    described = described_page([described_canary(key) for key in keys], retriever="bm25", hooks=[])
    described["retrievers"] = RETRIEVERS
    now = desk.world.clock.advance(1)
    applying.apply(sqlite_store, desk.world.vault, documents(described), managed_by=API, now=now)
    with sqlite_store.read() as connection:
        note, *_ = judges.pooled_notes(connection, "suite", "bm25")
    assert (note["queries"], note["few_queries"]) == (4, few)
    assert (" over 4 queries" in labelled(f"R@{note['k']}", self_judged=False, pooled=[note])) is few


@pytest.mark.both
@pytest.mark.parametrize(("changed", "asked", "few"), [(2, 2, False), (3, 1, True), (4, 0, True)])
def test_queries_that_no_canary_asks_any_more_do_not_count(
    store: Store,
    changed: int,
    asked: int,
    few: bool,  # noqa: FBT001 - a case of the table
) -> None:
    desk = pooled(store)
    desk.grade_all("Ann")
    compute(desk)
    others = [described_canary(key, query=f"another {key}") for key in QUERIES[:changed]]
    kept = [described_canary(key) for key in QUERIES[changed:]]
    described = described_page([*others, *kept], retriever="bm25", hooks=[])
    described["retrievers"] = RETRIEVERS
    now = desk.world.clock.advance(1)
    applying.apply(store, desk.world.vault, documents(described), managed_by=API, now=now)
    with store.read() as connection:
        note, *_ = judges.pooled_notes(connection, "suite", "bm25")
    assert (note["queries"], note["asked_queries"], note["few_queries"]) == (4, asked, few)


def test_a_line_says_what_it_is_a_share_of(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store)
    desk.grade_all("Ann")
    compute(desk)
    lines = pooled_recall_lines(load_suite_recalls(sqlite_store, "suite"))
    assert len(lines) == 2
    assert lines[0].startswith("pooled recall@3 of bm25 0.")
    frame = "of the relevant texts among the top 30 of bm25, dense, by 4 queries of task truth"
    assert lines[0].endswith(f"{frame}; every grade is taken as right: no chunk was graded by two people")


def test_grades_of_several_people_correct_the_estimate_which_keeps_what_it_was(sqlite_store: Store) -> None:
    desk = pooled(sqlite_store, overlap=1.0)
    desk.grade_all("Ann")
    plain = results.load_recall(sqlite_store, "truth")["estimates"]
    assert [(one["uncorrected"], one["assumes"][:30]) for one in plain] == [
        (None, "every grade is taken as right:")
    ] * 4
    desk.grade_all("Bob")
    for before, one in zip(plain, results.load_recall(sqlite_store, "truth")["estimates"], strict=True):
        assert one["uncorrected"] == before["value"]
        assert one["value"] == pytest.approx(before["value"], abs=0.1), "both said the same of all"
        assert re.fullmatch(
            r"corrected for wrong grades, of which none was seen among 36 chunks with several grades: all agree on "
            r"relevance; up to about \d+ % of what is irrelevant "
            r"and \d+ % of what is relevant may still be graded wrongly",
            one["assumes"],
        )
    again = results.load_recall(sqlite_store, "truth")["estimates"]
    assert again == results.load_recall(sqlite_store, "truth")["estimates"]
    item = desk.items()[0]
    desk.say("Bob", item.token, 2 - int(int(item.text.split()[1]) < 5) * 2)
    annotations.adjudicate(sqlite_store, "truth", item.token, grade=0, by="Eve", now=desk.world.clock.advance(1))
    (assumes,) = {one["assumes"] for one in results.load_recall(sqlite_store, "truth")["estimates"]}
    share = r"\d[\d.]* % \(\d[\d.]* % to \d[\d.]* %\)"
    assert re.fullmatch(
        rf"corrected for wrong grades, of which 36 chunks with several grades tell: about {share} of what is "
        rf"irrelevant and {share} of what is relevant is graded wrongly",
        assumes,
    )


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service whose one task is graded."""
    with api(tmp_path_factory.mktemp("recall")) as opened:
        opened.docs()
        opened.run()
        opened.annotated_task()
        yield opened


def test_it_stands_on_pages_in_reports_and_in_metrics(service: Api) -> None:
    estimate = service.get("/v1/tasks/truth/recall")["estimates"]
    assert [one["k"] for one in estimate] == [1, 3, 5, 10]
    assert estimate[-1]["value"] == 1
    assert {one["self_judged"] for one in estimate} == {True}, "its strata go deeper, but into the same ranking"
    for path in ("/suites/docs?show=composition", "/tasks/truth"):
        page = service.client.get(path).text
        assert "Pooled recall" in page
        assert re.findall(r'<td data-label="k" class="number">(\d+)', page) == ["1", "3", "5", "10"], path
        assert page.count('<span class="quiet self-judged">self-judged</span>') == 4, path
        assert "what this does not rank was never judged and its recall is too high" in page
    report = service.get("/v1/runs/1/report")
    assert [one["k"] for one in report["pooled_recall"]] == [10, 5, 3, 1]
    markdown = service.client.get("/v1/runs/1/report", params={"format": "markdown"}).text
    assert "pooled recall@10 of search 1.00 (1.00 to 1.00) (self-judged) of the relevant texts" in markdown
    assert {one["self_judged"] for one in report["pooled_recall"]} == {True}
    assert "ooled recall@10" in service.client.get("/v1/runs/1/report", params={"format": "html"}).text
    service.refresh()
    exposed = service.client.get("/metrics").text
    assert 'coalmine_pooled_recall_ratio{bound="estimate",k="10",retriever="search",suite="docs"} 1.0' in exposed
    assert 'coalmine_pooled_recall_corrected{retriever="search",suite="docs"} 0.0' in exposed
    assert 'coalmine_pooled_recall_self_judged{retriever="search",suite="docs"} 1.0' in exposed
    assert 'coalmine_pooled_recall_edited{retriever="search",suite="docs"} 0.0' in exposed
    for path in ("/v1/checks/docs", "/v1/retrievers/search"):
        assert service.client.delete(path).status_code == 204
    service.refresh()
    assert 'retriever="search"' not in service.client.get("/metrics").text


def test_random_texts_whose_grades_the_correction_doubts_are_warned_of_too(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They make its interval wide, though they carry little of its median."""
    lines = "\n".join(f'{{"_id": "d{number}", "text": "Text {number} of no use"}}' for number in range(50))
    assert service.client.post("/v1/corpora/handbook", json={"files": {"corpus.jsonl": lines}}).is_success
    task = {"suite": "docs", "retrievers": ["search"], "overlap": 0, "corpus": "handbook", "strata": [{"rest": 2}]}
    service.put("/v1/tasks/wide", task)
    assert service.client.post("/v1/tasks/wide/pool").status_code == 202
    service.make_pool("wide")
    found = service.get("/v1/tasks/wide/next", annotator="Ann")
    while found["item"] is not None:
        path = f"/v1/tasks/wide/items/{found['item']['id']}/annotation"
        found = service.put(path, {"grade": 1, "annotator": "Ann"})
    with service.service.store.read() as connection:
        ranked = [
            one for one in rows.list_items(connection, present(rows.find_task(connection, "wide")).id) if one.ranks
        ]
    service.put(f"/v1/tasks/wide/items/{ranked[0].token}/annotation", {"grade": 1, "annotator": "Bob"})
    recalls = GradedTask.recalls

    def doubting(task: GradedTask, bands: Sequence[Sequence[int]], depths: int) -> list[PooledRecall]:
        return [replace(one, rest_share=0.09) for one in recalls(task, bands, depths)]

    monkeypatch.setattr(GradedTask, "recalls", doubting)
    told = service.get("/v1/tasks/wide/recall")
    assert {one["rest_share"] for one in told["estimates"]} == {0.09}
    assert told["to_grade_again"] == 6


def test_random_texts_that_carry_much_are_warned_of_and_graded_again_by_everybody(service: Api) -> None:
    lines = "\n".join(f'{{"_id": "d{number}", "text": "Text {number} of no use"}}' for number in range(50))
    assert service.client.post("/v1/corpora/handbook", json={"files": {"corpus.jsonl": lines}}).is_success
    task = {"suite": "docs", "retrievers": ["search"], "overlap": 0, "corpus": "handbook", "strata": [{"rest": 2}]}
    service.put("/v1/tasks/wide", task)
    assert service.client.post("/v1/tasks/wide/pool").status_code == 202
    service.make_pool("wide")

    def grade_everything(annotator: str, grade: int) -> int:
        number, found = 0, service.get("/v1/tasks/wide/next", annotator=annotator)
        while found["item"] is not None:
            path = f"/v1/tasks/wide/items/{found['item']['id']}/annotation"
            found, number = service.put(path, {"grade": grade, "annotator": annotator}), number + 1
        return number

    grade_everything("Ann", 1)
    found = service.get("/v1/tasks/wide/recall")
    assert found["estimates"][-1]["rest_share"] > 0.9
    assert found["to_grade_again"] == 6, "two of each canary"
    warning = "carry more than a third of this estimate, or would if every grade were right."
    warning += " One person alone called 6 texts of them relevant"
    assert warning in Page(service.client.get("/tasks/wide").text).text
    assert service.client.post("/tasks/wide/regrade", follow_redirects=False).status_code == 303
    assert service.client.post("/v1/tasks/wide/regrade").json() == {"items": 0}, "they are to be graded again already"
    assert service.get("/v1/tasks/wide/recall")["to_grade_again"] == 0
    assert grade_everything("Bob", 0) == 6, "what one person called relevant, and nothing else"
    disputed = service.get("/v1/tasks/wide/disagreements")["items"]
    assert len(disputed) == 6
    for one in disputed:
        assert service.client.put(f"/v1/tasks/wide/items/{one['id']}/adjudication", json={"grade": 0}).is_success
    corrected = service.get("/v1/tasks/wide/recall")["estimates"][-1]
    assert corrected["value"] > 2 * found["estimates"][-1]["value"]
    assert service.client.post("/v1/tasks/truth/regrade").json() == {"items": 0}, "it has no random texts"


def test_chunks_that_are_graded_again_for_what_one_person_said_are_in_no_agreement(service: Api) -> None:
    """Each of them is a known disagreement: with them people seem to agree less than on chunks drawn at random."""
    lines = "\n".join(f'{{"_id": "d{number}", "text": "Text {number} of no use"}}' for number in range(50))
    assert service.client.post("/v1/corpora/handbook", json={"files": {"corpus.jsonl": lines}}).is_success
    task = {"suite": "docs", "retrievers": ["search"], "overlap": 0.5, "corpus": "handbook", "strata": [{"rest": 20}]}
    service.put("/v1/tasks/wide", task)
    assert service.client.post("/v1/tasks/wide/pool").status_code == 202
    service.make_pool("wide")

    def grade_everything(annotator: str, *, even: int) -> int:
        number, found = 0, service.get("/v1/tasks/wide/next", annotator=annotator)
        while (item := found["item"]) is not None:
            is_odd = re.match(r"Text \d*[13579] ", item["text"]) is not None
            body = {"grade": 0 if is_odd else even, "annotator": annotator}
            found, number = service.put(f"/v1/tasks/wide/items/{item['id']}/annotation", body), number + 1
        return number

    grade_everything("Ann", even=1)
    shared = grade_everything("Bob", even=1)
    before = service.get("/v1/tasks/wide/agreement")
    (pair,) = before["pairs"]
    assert (before["items"], before["graded_again"], pair["kappa"]["value"]) == (shared, 0, 1.0)
    assert (
        f"Over {shared} chunks with two grades or more; behind a value"
        in Page(service.client.get("/tasks/wide").text).text
    )
    assert service.client.post("/v1/tasks/wide/regrade").json()["items"] > 5
    assert service.get("/v1/tasks/wide/agreement") == before, "nobody has graded them again yet"
    again = grade_everything("Bob", even=0)
    assert service.get("/v1/tasks/wide/agreement") == {**before, "graded_again": again}
    left_out = f"Over {shared} chunks with two grades or more, without the {again} that were graded again; behind"
    assert left_out in Page(service.client.get("/tasks/wide").text).text
    assert len(service.get("/v1/tasks/wide/disagreements")["items"]) == again, "they wait for a decision as others do"
    doubt = service.client.post("/v1/tasks/wide/adopt?dry_run=true").json()["doubt"]
    assert doubt is None or (doubt["kappa"], "kappa" in doubt["sentence"]) == (1.0, False)


def test_corrected_pooled_recall_stands_without_a_condition_anywhere(service: Api) -> None:
    found = service.get("/v1/tasks/truth/next", annotator="Bob")
    while found["item"] is not None:
        path = f"/v1/tasks/truth/items/{found['item']['id']}/annotation"
        found = service.put(path, {"grade": 1, "annotator": "Bob", "seconds": 3})
    service.recall("truth")
    service.put("/v1/checks/docs", {**CHECK, "hooks": ["ops"], "use": "completeness"})
    run = service.run()
    assert all(one["assumes"].startswith("corrected for wrong grades") for one in run["pooled_recall"])
    service.refresh()
    assert (
        'coalmine_pooled_recall_corrected{retriever="search",suite="docs"} 1.0' in service.client.get("/metrics").text
    )
    report = f"/v1/runs/{run['id']}/report?format="
    for path in ("/checks/docs", "/badge/docs.svg?measure=R@3", f"{report}markdown", f"{report}html"):
        shown = service.client.get(path).text
        assert "pooled" in shown, path
        assert "every grade is" not in shown, path


def test_random_texts_of_a_corpus_take_the_label_from_the_recall_of_one_retriever(service: Api) -> None:
    lines = "\n".join(f'{{"_id": "d{number}", "text": "Text {number} of no use"}}' for number in range(20))
    assert service.client.post("/v1/corpora/handbook", json={"files": {"corpus.jsonl": lines}}).is_success
    task = {"suite": "docs", "retrievers": ["search"], "overlap": 0, "corpus": "handbook", "strata": [{"rest": 2}]}
    service.put("/v1/tasks/wide", task)
    assert service.client.post("/v1/tasks/wide/pool").status_code == 202
    service.make_pool("wide")
    service.grade_all("wide")
    assert {one["self_judged"] for one in service.get("/v1/tasks/wide/recall")["estimates"]} == {False}
    run = service.run()
    assert {(one["task"], one["self_judged"]) for one in run["pooled_recall"]} == {("wide", False)}
    for page in ("/suites/docs?show=composition", "/tasks/wide"):
        assert "self-judged" not in service.client.get(page).text.casefold()
    report = service.client.get(f"/v1/runs/{run['id']}/report", params={"format": "markdown"}).text
    assert "of all relevant texts of the corpus handbook" in report
    assert "self-judged" not in report
    service.refresh()
    exposed = service.client.get("/metrics").text
    assert 'coalmine_pooled_recall_self_judged{retriever="search",suite="docs"} 0.0' in exposed
    assert 'coalmine_recall_self_judged{check="docs",retriever="search",suite="docs"} 0.0' in exposed
    assert service.client.post("/v1/tasks/wide/adopt").is_success
    assert service.run()["self_judged"] is True, "R@k counts what was drawn as it is, without its weight"


def test_it_stands_beside_recall_wherever_a_task_estimates_it(service: Api) -> None:
    estimate = service.get("/v1/tasks/truth/recall")["estimates"]
    at_1, at_3 = (next(one for one in estimate if one["k"] == k) for k in (1, 3))
    interval = f"{at_3['value']:.3f} ({at_3['low']:.3f} to {at_3['high']:.3f}"
    text = f"pooled {interval}, if every grade is right), self-judged"
    assumes = "every grade is taken as right: no chunk was graded by two people"
    service.put("/v1/checks/docs", {**CHECK, "hooks": ["ops"], "use": "completeness"})
    run = service.run()
    assert [one["k"] for one in run["pooled_recall"]] == [10, 5, 3, 1]
    assert {one["assumes"] for one in run["pooled_recall"]} == {assumes}
    (at_k,) = service.get("/v1/checks/docs/series", measure="R@3")["pooled_recall"]
    assert (at_k["k"], at_k["value"], at_k["task"], at_k["assumes"]) == (3, at_3["value"], "truth", assumes)
    assert service.get("/v1/checks/docs/series", measure="NDCG@3")["pooled_recall"] == []
    page = Page(service.client.get("/checks/docs").text).text
    assert text in page
    assert f"pooled recall (if every grade is right) {at_1['value']:.3f}" in page, "of the table of measures"
    assert text in service.client.get("/badge/docs.svg?measure=R@3").text
    report = service.client.get(f"/v1/runs/{run['id']}/report?format=markdown").text
    assert text in report
    assert "| pooled recall (if every grade is right) | " in report
    html = Page(service.client.get(f"/v1/runs/{run['id']}/report?format=html").text).text
    assert text in html
    assert f"pooled recall (if every grade is right) {at_1['value']:.3f}" in html
    for noted in (report, html):
        assert f"of task truth; {assumes}" in noted
    (at_10, *_) = service.get(f"/v1/runs/{run['id']}/report?format=json")["pooled_recall"]
    assert (at_10["k"], at_10["assumes"]) == (10, assumes)
    compared = service.get("/v1/compare", a="check:docs", b=f"run:{run['id']}")
    (line, *_) = [line for line in compared["differences"] if line.startswith("pooled recall@")]
    assert line == f"pooled recall@3 of search is {interval}), self-judged, by task truth; {assumes}"
    frame = "a share of the relevant texts of the task when it was pooled, not of the questions of a run"
    assert f"pooled recall is {frame}" in compared["differences"]
    assert f"pooled recall is {frame}".casefold() in html.casefold()
    arguments = ["compare", "check:docs", f"run:{run['id']}", "--data-dir", str(service.service.settings.data_dir)]
    assert line[1:] in CliRunner().invoke(app, [*arguments, "--format", "markdown"]).stdout
    (checked,) = [one for one in service.get("/v1/checks/docs/quality")["sections"] if one["name"] == "recall"]
    assert f"pooled recall@3 {interval}, if every grade is right), self-judged, by task truth" in checked["reason"]
    assert f"by task truth ({frame})" in checked["reason"]
    rule = {"kind": "threshold", "measure": "R@3", "critical": {"below": 0.99}, "open": {"bad": 1, "of": 1}}
    service.put("/v1/checks/docs", {**CHECK, "hooks": ["ops"], "rules": [rule]})
    service.retriever.found = {"How long is data kept?": ["c9"]}
    run = service.run()
    label = f"self-judged; {text}" if run["self_judged"] else text
    bad = f"R@3 ({label}) {run['measures']['R@3']:.3f} is below 0.99 (critical)"
    assert bad in run["reasons"]
    assert bad in Page(service.client.get("/checks/docs").text).text, "its semicolon ends no clause"
    assert bad in service.get("/v1/alerts")["items"][0]["reason"]
    assert f"Pooled recall is {frame}." in Page(service.client.get("/alerts/1").text).text
    service.deliver()
    notice = json.loads(service.mailbox.messages[-1][1].body)["data"]
    assert [one["k"] for one in notice["pooled_recall"]] == [3]
    assert f"R@3 (self-judged; {text})" in notice["summary"] or f"R@3 ({text})" in notice["summary"]
