"""What people agreed on becomes judgments of canaries, or a patch of the files they are in; and files in and out."""

import csv
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.annotation.domain.pools import PoolItem, text_key
from app.annotation.domain.recall import WrongShare
from app.annotation.service import annotations, results, tasks
from app.annotation.service.annotations import GradedItem, adopt_judgments
from app.annotation.store import task_rows as rows
from app.annotation.store.task_rows import ItemRow
from app.base.db.engine import Store
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.base.texts import Source
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.service import references, suites
from app.catalog.store import FILE
from tests.support.annotation_tasks import QUERIES, Desk
from tests.support.pages_service import Site
from tests.support.present import present
from tests.support.world import canary


def graded(store: Store, **changes: Any) -> Desk:
    """Give a task that two annotators have worked through, and agree on."""
    desk = Desk.of(store, **changes)
    desk.make_pool()
    for name in ("Ann", "Bob"):
        desk.grade_all(name)
    return desk


def adopt(desk: Desk, **more: Any) -> Any:
    return annotations.adopt(desk.store, "truth", now=desk.world.clock.advance(1), **more)


def expected(store: Store, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = references.load_canary(store, "suite", key).body["expected_chunks"]
    return found


def item(text: str, grade: int, *ids: str) -> GradedItem:
    return PoolItem(key=text_key(text, chunk=""), text=text, chunks=[("search", one) for one in ids]), grade


def source(name: str, text: str) -> Source:
    return Source(name=name, lines=lambda: io.StringIO(text))


# --- judgments -----------------------------------------------------------------------------------------------


def test_grades_change_judgments_by_id_or_text_and_add_new_ones() -> None:
    chunks = ["a", {"text": "Paid in  TEN days."}, {"document": "d.md"}, {"id": "x", "grade": 2}]
    canary = CanaryDocument.model_validate({"key": "q", "query": "q", "expected_chunks": chunks})
    found = adopt_judgments(
        canary, [item("A", 2, "a"), item("paid in ten days", 0, "p"), item("N", 1, "n", "n2")], source="task:truth"
    )
    assert [one.grade for one in found.changed.values()] == [2, 0]
    assert [(one.id, one.text, one.grade) for one in found.added] == [("n", "N", 1)]


def test_a_known_irrelevant_chunk_is_named_by_its_id_alone() -> None:
    canary = CanaryDocument.model_validate({"key": "q", "query": "q"})
    found = adopt_judgments(canary, [item("Nothing of it", 0, "z"), item("Without id", 0)], source="task:truth")
    assert [(one.id, one.text, one.grade) for one in found.added] == [("z", None, 0), (None, "Without id", 0)]


def test_grades_that_stand_already_change_nothing() -> None:
    canary = CanaryDocument.model_validate({"key": "q", "query": "q", "expected_chunks": ["a"]})
    assert adopt_judgments(canary, [item("A", 1, "a")], source="task:truth").is_empty


def test_what_was_ticked_in_one_answer_and_stands_is_now_of_the_task() -> None:
    chunks = [{"id": "a", "source": "retriever:search"}, {"id": "b", "source": "task:truth"}, {"id": "c"}]
    canary = CanaryDocument.model_validate({"key": "q", "query": "q", "expected_chunks": chunks})
    found = adopt_judgments(canary, [item(name, 1, name.lower()) for name in "ABC"], source="task:truth")
    assert [(one.id, one.source) for one in found.changed.values()] == [("a", "task:truth")]
    assert found.kept == 1
    assert adopt_judgments(canary, [item("A", 2, "a")], source="task:truth").kept == 0, "which has another grade"


def test_a_forbidden_chunk_is_not_expected_as_well() -> None:
    forbidden = [{"id": "a", "text": "A"}]
    canary = CanaryDocument.model_validate({"key": "q", "query": "q", "forbidden_chunks": forbidden})
    assert adopt_judgments(canary, [item("A", 1, "a")], source="task:truth").is_empty


def test_an_item_without_an_id_of_its_own_is_named_by_its_text_alone() -> None:
    canary = CanaryDocument.model_validate({"key": "q", "query": "q", "expected_chunks": [{"id": "1", "text": "A"}]})
    items = [item("A", 2), item("B", 0), item("--", 1)]
    found = adopt_judgments(canary, items, source="task:truth")
    assert [(one.id, one.text, one.grade) for one in found.changed.values()] == [("1", "A", 2)]
    assert [(one.id, one.text, one.grade) for one in found.added] == [(None, "B", 0)]


def test_an_id_does_not_join_a_judgment_and_an_item_of_another_text() -> None:
    chunks = [{"id": "1", "text": "Paid in ten days", "grade": 2}, {"id": "2", "text": "30 days", "grade": 2}]
    canary = CanaryDocument.model_validate({"key": "q", "query": "q", "expected_chunks": chunks})
    found = adopt_judgments(
        canary, [item("Something else", 0, "1"), item("Kept for 30 days.", 1, "2")], source="task:truth"
    )
    assert [(one.id, one.text, one.grade) for one in found.changed.values()] == [("2", "30 days", 1)]
    assert [(one.id, one.text, one.grade) for one in found.added] == [(None, "Something else", 0)]


def test_a_judgment_of_one_item_by_text_and_of_another_by_id_is_of_the_text() -> None:
    canary = CanaryDocument.model_validate({"key": "q", "query": "q", "expected_chunks": [{"id": "b", "text": "A"}]})
    found = adopt_judgments(canary, [item("A", 1, "a"), item("A and more", 0, "b")], source="task:truth")
    assert not found.changed
    assert [(one.id, one.text, one.grade) for one in found.added] == [(None, "A and more", 0)]


def test_a_forbidden_text_of_a_shared_id_is_not_expected_as_well() -> None:
    forbidden = [{"id": "1", "text": "A"}]
    canary = CanaryDocument.model_validate({"key": "q", "query": "q", "forbidden_chunks": forbidden})
    assert adopt_judgments(canary, [item("A", 1)], source="task:truth").is_empty


# --- adopting ------------------------------------------------------------------------------------------------


def test_canaries_of_the_api_get_the_consensus_once_and_a_dry_run_only_tells(store: Store) -> None:
    desk = graded(store)
    before = expected(store, "refunds")
    told = adopt(desk, dry_run=True)
    assert len(told["adopted"]) == 4
    shown = told["changes"].splitlines()
    assert [line for line in shown if line.startswith("+++")] == [
        "+++ b/refunds", "+++ b/invoices", "+++ b/exports", "+++ b/quotas",
    ]  # fmt: skip
    assert sum(line.startswith("+") and "Text 2 about" in line for line in shown) == 4
    assert not any("Text 2 about" in line for line in shown if line.startswith("-"))
    assert expected(store, "refunds") == before
    done = adopt(desk)
    assert [one["canary"] for one in done["adopted"]] == ["refunds", "invoices", "exports", "quotas"]
    assert (done["to_commit"], done["patches"], done["left_out"]) == ([], [], [])
    for one in done["adopted"]:
        assert sum(one["grades"].values()) == 9 == one["added"]
        assert (one["changed"], one["undecided"]) == (0, 0)
    found = {chunk["id"]: chunk for chunk in expected(store, "refunds")}
    assert found["doc-refunds"]["grade"] == 1, "what was not in the pool stays"
    assert found["bm25-refunds-2"] == {
        "id": "bm25-refunds-2",
        "document": None,
        "text": "Text 2 about refunds.",
        "grade": 1,
        "source": "task:truth",
    }
    assert {chunk["grade"] for name, chunk in found.items() if name.endswith("-5")} == {0}
    again = adopt(desk)
    assert again["adopted"] == []
    assert {one["reason"] for one in again["left_out"]} == {"its judgments are the same already"}


def test_ids_that_retrievers_share_name_no_judgment(sqlite_store: Store) -> None:
    """Number 1 is "Text 0" of one retriever, relevant, and "Text 3" of the other."""
    desk = graded(sqlite_store, counted=True, overlap=1.0)
    adopt(desk)
    judgments = [one for one in expected(sqlite_store, "refunds") if one["id"] != "doc-refunds"]
    assert {one["id"] for one in judgments} == {None}, "the other text of an id may be ranked and not drawn"
    by_text = {one["text"]: (one["id"], one["grade"]) for one in judgments if one["text"] is not None}
    assert by_text["Text 0 about refunds."] == (None, 1)
    assert by_text["Text 5 about refunds."] == (None, 0)
    assert len(judgments) == 9
    again = adopt(desk, dry_run=True)
    assert again["adopted"] == []
    assert {one["reason"] for one in again["left_out"]} == {"its judgments are the same already"}


def test_chunks_that_nothing_names_are_listed(sqlite_store: Store) -> None:
    """Texts of numbers 0 and 1 are longer than a judgment may hold, and their ids stand for other texts too."""
    desk = Desk.of(sqlite_store, queries=("refunds",), counted=True)
    desk.shelves.odd_texts = {number: f"Text {number} {'long ' * 5_000}" for number in (0, 1)}
    desk.make_pool()
    desk.grade_all("Ann")
    (done,) = adopt(desk)["adopted"]
    assert sorted(one["ids"] for one in done["unnamed"]) == [["1"], ["2"]]
    assert {len(one["text"]) for one in done["unnamed"]} == {200}
    assert adopt(desk)["left_out"] == [{"canary": "refunds", "reason": "neither an id nor a text names 2 chunks"}]


def test_an_id_of_what_was_ranked_and_not_drawn_names_no_line(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store, queries=("refunds",), counted=True, strata=[{"to": 30, "sample": 1}])
    desk.make_pool()
    drawn = Counter(chunk for one in desk.items() for chunk in {chunk for _, chunk in one.chunks})
    alone = next(chunk for chunk, times in drawn.items() if times == 1)
    table = f"canary,chunk_id,annotator,grade\nrefunds,{alone},Ann,1\n"
    with pytest.raises(InvalidInputError, match="names several chunks"):
        annotations.import_annotations(sqlite_store, "truth", [source("a.csv", table)], now=desk.world.clock.advance(1))


def test_an_item_that_waits_for_a_grade_counts_among_those_of_its_id(sqlite_store: Store) -> None:
    """Number 1 is "Text 3" too, which nobody graded."""
    desk = Desk.of(sqlite_store, queries=("refunds",), counted=True)
    desk.make_pool()
    tokens = {one.text: one.token for one in desk.items()}
    desk.say("Ann", tokens["Text 0 about refunds."], 1)
    adopt(desk)
    names = [(one["id"], one["text"]) for one in expected(sqlite_store, "refunds")]
    assert names == [("doc-refunds", None), (None, "Text 0 about refunds.")]


def test_disputed_and_open_items_wait_and_an_adjudication_decides(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store, overlap=1.0)
    desk.make_pool()
    desk.grade_all("Ann")
    token = present(desk.next("Bob")["item"])["id"]
    mine = {one.token: one for one in desk.items()}[token]
    relevant = int(mine.text.split()[1]) < 5
    desk.say("Bob", token, int(not relevant))
    done = {one["canary"]: one for one in adopt(desk, dry_run=True)["adopted"]}
    key = mine.text.split()[-1].rstrip(".")
    assert done[key]["undecided"] == 1
    assert done[key]["added"] == 8
    annotations.adjudicate(sqlite_store, "truth", token, grade=2, by="Cyd", now=desk.world.clock())
    adopt(desk)
    assert {chunk["text"]: chunk["grade"] for chunk in expected(sqlite_store, key)}[mine.text] == 2


def test_what_was_changed_since_is_left_out(sqlite_store: Store) -> None:
    desk = graded(sqlite_store)
    now = desk.world.clock()
    suites.archive_canary(sqlite_store, "suite", "refunds", now=now)
    for key, more in (("invoices", {"query": "another"}), ("exports", {"category": "negative"})):
        document = CanaryDocument.model_validate({"key": key, "query": key, **more})
        suites.put_canaries(sqlite_store, "suite", [document], now=now)
    done = adopt(desk)
    assert [one["canary"] for one in done["adopted"]] == ["quotas"]
    assert {one["canary"]: one["reason"] for one in done["left_out"]} == {
        "refunds": "it is archived",
        "invoices": "its query was changed since the pool was made",
        "exports": "it expects that nothing is found",
    }


def test_nothing_is_adopted_of_what_nobody_graded(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    desk.make_pool()
    assert {one["reason"] for one in adopt(desk)["left_out"]} == {"nothing is agreed on yet"}


CANARY_FILE = """\
suite: suite  # ours
canaries:
  - key: refunds
    query: refunds
    expected_chunks: [doc-refunds]
  - key: invoices
    query: invoices
    expected_chunks:
      - doc-invoices
"""


def test_canaries_of_a_file_get_a_patch_that_can_be_committed(sqlite_store: Store, tmp_path: Path) -> None:
    file = tmp_path / "canaries.yaml"
    file.write_text(CANARY_FILE, "utf-8")
    desk = graded(sqlite_store, owner=FILE, file=str(file), queries=("refunds", "invoices"))
    done = adopt(desk)
    assert [one["canary"] for one in done["to_commit"]] == ["refunds", "invoices"]
    assert done["adopted"] == []
    (patch,) = done["patches"]
    assert patch["canaries"] == ["refunds", "invoices"]
    assert "    expected_chunks: [doc-refunds]" in present(patch["diff"])
    added = [line for line in present(patch["diff"]).splitlines() if line.startswith("+") and "Text 2 about" in line]
    assert len(added) == 2
    documents = yaml.safe_load(patch["yaml"])
    assert [one["key"] for one in documents["canaries"]] == ["refunds", "invoices"]
    assert len(documents["canaries"][0]["expected_chunks"]) == 10
    assert len(expected(sqlite_store, "refunds")) == 1, "nothing changes before it is committed"


def test_without_the_file_at_hand_its_canaries_are_given_whole(sqlite_store: Store) -> None:
    done = adopt(graded(sqlite_store, owner=FILE))
    (patch,) = done["patches"]
    assert patch["diff"] is None
    assert len(yaml.safe_load(patch["yaml"])["canaries"]) == 4


# --- CSV -----------------------------------------------------------------------------------------------------


def test_annotations_go_out_and_come_in_as_csv(store: Store) -> None:
    desk = graded(store, overlap=1.0)
    text = annotations.export_annotations(store, "truth")
    lines = list(csv.DictReader(io.StringIO(text)))
    asked = ["query", "vars", "history"]
    assert list(lines[0]) == ["canary", "chunk_id", "document", "text", "annotator", "grade", *asked]
    assert len(lines) == 2 * 36
    before = results.load_agreement(store, "truth")
    flipped = text.replace("Ann,1", "Ann,skip").replace(",Bob,", ",Cyd,")
    stored = annotations.import_annotations(store, "truth", [source("a.csv", flipped)], now=desk.world.clock())
    assert stored == 2 * 36
    after = results.load_agreement(store, "truth")
    assert after["annotators"] == ["Ann", "Bob", "Cyd"]
    assert before["items"] == after["items"] == 36
    assert annotations.export_annotations(store, "truth").count("Ann,skip") == text.count("Ann,1") > 0


def test_a_line_can_name_its_chunk_by_text_alone(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    desk.make_pool()
    text = "canary,text,annotator,grade\nrefunds,TEXT 2 about refunds,Ann,2\n"
    assert annotations.import_annotations(sqlite_store, "truth", [source("a.csv", text)], now=desk.world.clock()) == 1
    assert results.load_budget(sqlite_store, "truth")["annotators"][0]["graded"] == 1


def test_grades_come_back_to_their_texts_where_retrievers_share_ids(sqlite_store: Store) -> None:
    desk = graded(sqlite_store, counted=True, overlap=1.0)
    text = annotations.export_annotations(sqlite_store, "truth").replace(",Ann,", ",Cyd,")
    lines = [one for one in csv.DictReader(io.StringIO(text)) if one["annotator"] == "Cyd"]
    firsts = [one.text for one in desk.items() if "1" in {chunk for _, chunk in one.chunks}]
    assert {"Text 0 about refunds.", "Text 3 about refunds."} <= set(firsts)
    assert len(lines) == 36
    annotations.import_annotations(sqlite_store, "truth", [source("a.csv", text)], now=desk.world.clock())
    again = annotations.export_annotations(sqlite_store, "truth")
    stored = [one for one in csv.DictReader(io.StringIO(again)) if one["annotator"] == "Cyd"]
    assert stored == lines


def test_a_text_is_found_as_export_writes_it(sqlite_store: Store) -> None:
    """A formula is quoted, and a text of nothing but punctuation is told from others by its id."""
    desk = Desk.of(sqlite_store, queries=("refunds",), counted=True)
    desk.shelves.odd_texts = {0: "=2+3", 1: "--", 2: "'@x"}
    desk.make_pool()
    tokens = {one.text: one.token for one in desk.items()}
    for grade, odd in enumerate(("=2+3", "--", "'@x")):
        desk.say("Ann", tokens[odd], grade)
    text = annotations.export_annotations(sqlite_store, "truth")
    assert ",'=2+3," in text
    moved = text.replace(",Ann,", ",Cyd,")
    annotations.import_annotations(sqlite_store, "truth", [source("a.csv", moved)], now=desk.world.clock())
    again = list(csv.DictReader(io.StringIO(annotations.export_annotations(sqlite_store, "truth"))))
    grades = {one["text"]: one["grade"] for one in again if one["annotator"] == "Cyd"}
    assert grades == {"'=2+3": "0", "'--": "1", "''@x": "2"}


def test_an_id_of_several_chunks_does_not_name_one(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store, counted=True)
    desk.make_pool()
    text = "canary,chunk_id,text,annotator,grade\nrefunds,1,Text 3 about refunds,Ann,2\nrefunds,1,,Ann,2\n"
    with pytest.raises(
        InvalidInputError, match="chunk id '1' names several chunks of canary 'refunds'; give"
    ) as raised:
        annotations.import_annotations(sqlite_store, "truth", [source("a.csv", text)], now=desk.world.clock())
    assert [(one.file, one.line) for one in raised.value.problems] == [("a.csv", 3)]
    assert results.load_budget(sqlite_store, "truth")["annotators"] == []


def test_a_text_that_is_not_in_the_task_is_refused_whatever_its_id(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    desk.make_pool()
    text = "canary,chunk_id,text,annotator,grade\nrefunds,bm25-refunds-0,Another text,Ann,2\n"
    with pytest.raises(InvalidInputError, match="canary 'refunds' has no chunk of this text"):
        annotations.import_annotations(sqlite_store, "truth", [source("a.csv", text)], now=desk.world.clock())


def test_wrong_lines_are_told_all_at_once_and_nothing_is_stored(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    desk.make_pool()
    good = "refunds,bm25-refunds-2,Ann,1\n"
    for wrong, message in (
        ("nobody,c,Ann,1\n", "no canary 'nobody'"),
        ("refunds,strange,Ann,1\n", "no such chunk"),
        ("refunds,bm25-refunds-0,Ann,7\n", "grades are 0 to 2, or skip"),
        (f"refunds,bm25-refunds-0,{'A' * 65},1\n", "more than 64 characters"),
        ("refunds,,Ann,1\n", "neither a chunk_id nor a text"),
    ):
        text = f"canary,chunk_id,annotator,grade\n{good}{wrong}"
        with pytest.raises(InvalidInputError, match=message) as raised:
            annotations.import_annotations(sqlite_store, "truth", [source("a.csv", text)], now=desk.world.clock())
        assert (raised.value.problems[0].file, raised.value.problems[0].line) == ("a.csv", 3)
    assert results.load_budget(sqlite_store, "truth")["annotators"] == []


def test_no_cell_is_a_formula(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    desk.make_pool()
    desk.say("=cmd()", present(desk.next("=cmd()")["item"])["id"], 1)
    text = annotations.export_annotations(sqlite_store, "truth")
    assert ",'=cmd()," in text
    assert annotations.import_annotations(sqlite_store, "truth", [source("a.csv", text)], now=desk.world.clock()) == 1
    assert results.load_agreement(sqlite_store, "truth")["annotators"] == ["=cmd()"]


# --- corpora -------------------------------------------------------------------------------------------------


def corpus(desk: Desk, numbers: range, name: str = "all") -> Any:
    lines = [json.dumps({"_id": f"n{one}", "title": "T", "text": f"Text {one} about refunds."}) for one in numbers]
    return tasks.add_texts(desk.store, name, [source("corpus.jsonl", "\n".join(lines))], now=desk.world.clock())


@pytest.mark.both
def test_a_corpus_comes_in_parts_and_the_same_text_is_one(store: Store) -> None:
    desk = Desk.of(store)
    assert corpus(desk, range(50))["texts"] == 50
    assert corpus(desk, range(40, 60))["texts"] == 60
    assert [one["name"] for one in tasks.list_corpora(store)] == ["all"]
    tasks.delete_corpus(store, "all")
    assert tasks.list_corpora(store) == []
    with pytest.raises(NotFoundError, match="no corpus 'all'"):
        tasks.delete_corpus(store, "all")


@pytest.mark.both
def test_random_negatives_are_what_no_retriever_returned(store: Store) -> None:
    desk = Desk.of(store, queries=("refunds",))
    corpus(desk, range(100))
    desk.put(strata=[{"to": 10, "sample": 2}, {"rest": 8}], corpus="all")
    desk.make_pool()
    rest = [one for one in desk.items() if one.stratum == 2]
    assert len(rest) == 8
    assert all(one.ranks == {} and int(one.text.split()[1]) >= 12 for one in rest)
    assert {retriever for one in rest for retriever, _ in one.chunks} == {""}


def test_lines_without_an_id_are_told(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store)
    with pytest.raises(InvalidInputError, match="has no _id"):
        tasks.add_texts(sqlite_store, "all", [source("c.jsonl", '{"text": "x"}\n[]')], now=desk.world.clock())


# --- judges ----------------------------------------------------------------------------------------------------


def test_a_judge_is_shown_with_its_agreement_and_decides_nothing(sqlite_store: Store) -> None:
    desk = graded(sqlite_store, overlap=1.0)
    before = {one["canary"]: one["grades"] for one in adopt(desk, dry_run=True)["adopted"]}
    exported = annotations.export_annotations(sqlite_store, "truth")
    lines = list(csv.DictReader(io.StringIO(exported)))
    machine = [{**line, "annotator": "model-x", "grade": "2"} for line in lines if line["annotator"] == "Ann"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, lines[0].keys())
    writer.writeheader()
    writer.writerows(machine)

    def judged(name: str, *, by_judge: bool) -> int:
        table = source("judge.csv", text.getvalue().replace("model-x", name))
        now = desk.world.clock.advance(1)
        return annotations.import_annotations(sqlite_store, "truth", [table], now=now, by_judge=by_judge)

    assert judged("model-x", by_judge=True) == len(machine)
    assert {one["canary"]: one["grades"] for one in adopt(desk, dry_run=True)["adopted"]} == before
    agreement = results.load_agreement(sqlite_store, "truth")
    assert agreement["annotators"] == ["Ann", "Bob"]
    (judge,) = agreement["judges"]
    assert (judge["judge"], judge["items"], judge["raw"]["value"]) == ("model-x", len(machine), 0.0)
    assert annotations.export_annotations(sqlite_store, "truth") == exported, "people's alone"
    assert "model-x" in annotations.export_annotations(sqlite_store, "truth", by_judge=True)
    assert results.load_budget(sqlite_store, "truth")["annotations_left"] == 0
    with pytest.raises(ConflictError, match="'Ann' has annotated as a person; a judge needs another name"):
        judged("Ann", by_judge=True)
    with pytest.raises(ConflictError, match="'model-x' has annotated as a judge"):
        judged("model-x", by_judge=False)
    shown = "Machines, against what people agreed on{}. What they say"
    assert shown.format("") in Site(world=desk.world).page("/tasks/truth").text
    for item in desk.items()[:2]:
        desk.say("Bob", item.token, 0 if _is_expected(desk, item) else 1)
    (judge,) = results.load_agreement(sqlite_store, "truth")["judges"]
    assert judge["items"] == len(machine) - 2
    without = shown.format(", so without 2 disputed chunks")
    assert without in Site(world=desk.world).page("/tasks/truth").text, "which are more difficult ones"


def test_grades_of_which_many_are_estimated_to_be_wrong_are_warned_of(sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store, overlap=0.5)
    desk.make_pool()
    desk.grade_all("Ann", flip=4)
    desk.grade_all("Bob", flip=3)
    plan = present(results.load_figures(sqlite_store, "truth", may_write=True).plan)
    doubt = present(plan["doubt"])
    expected = [item for item in desk.items() if _is_expected(desk, item)]
    truly = sum(int(item.text.split()[1]) >= 5 for item in expected) / len(expected)
    low, high = present(doubt["low"]), present(doubt["high"])
    assert low <= truly <= high
    assert present(doubt["wrong"]) > 0.1
    assert (doubt["graded"], 0 < doubt["graded_once"] < doubt["graded"]) == (len(desk.items()), True)
    sentence = doubt["sentence"]
    assert re.match(r"about \d+ % \(\d[\d.]* % to \d+ %\) of the chunks graded relevant are not, as far as", sentence)
    assert re.search(
        rf"Ann and Bob agree on relevance with a kappa of {doubt['kappa']:.3f} \(\S+ to \S+\), and below 0.667",
        sentence,
    )
    assert f"{doubt['graded_once']} of {doubt['graded']} graded chunks have one grade alone. R@k by such" in sentence
    page = Site(world=desk.world).page("/tasks/truth").text
    assert "of the chunks graded relevant are not" in page
    done = results.adopt(sqlite_store, "truth", now=desk.world.clock.advance(1))
    assert done["doubt"] == doubt


def test_the_pair_that_agrees_least_is_told_with_the_number_of_pairs(sqlite_store: Store) -> None:
    """Of many pairs one is low by chance."""
    desk = Desk.of(sqlite_store, overlap=1.0)
    desk.make_pool()
    for name, flip in (("Ann", 0), ("Bob", 0), ("Cleo", 3)):
        desk.grade_all(name, flip=flip)
    doubt = present(results.adopt(sqlite_store, "truth", now=desk.world.clock.advance(1), dry_run=True)["doubt"])
    told = (
        rf"of 3 pairs Ann and Cleo agree least on relevance, with a kappa of {doubt['kappa']:.3f} \(\S+ to \S+\), and"
    )
    assert re.search(told, doubt["sentence"])


@pytest.mark.parametrize(
    ("others", "advice"),
    [
        ([], "Let somebody else grade a part again, or have a task with overlap graded, before you adopt"),
        (["Bob"], "Agree on what is relevant, and have a task with more overlap graded before you adopt"),
    ],
)
def test_what_to_do_about_doubtful_grades_is_what_there_is_to_do(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, others: list[str], advice: str
) -> None:
    monkeypatch.setattr(results, "_wrong_expected", lambda *_: WrongShare(value=0.2, low=0.1, high=0.3))
    canaries = [canary(query, expected_chunks=[{"text": f"The handbook tells of {query}."}]) for query in QUERIES]
    desk = Desk.of(sqlite_store, canaries=canaries, overlap=0, checks=2)
    desk.make_pool()
    for place, item in enumerate(desk.items()):
        desk.say([*others, "Ann"][place % (1 + len(others))], item.token, 1)
    doubt = present(results.adopt(sqlite_store, "truth", now=desk.world.clock.advance(1), dry_run=True)["doubt"])
    assert "no planted one was graded" not in doubt["sentence"]
    assert doubt["sentence"].endswith(f"R@k by such judgments says little. {advice}")


def _is_expected(desk: Desk, item: ItemRow) -> bool:
    with desk.store.read() as connection:
        found = annotations.read_grades(connection, present(rows.find_task(connection, "truth")))
    return (found.consensus(item.id).grade or 0) >= 1


def test_grades_that_people_agree_on_are_not_warned_of(sqlite_store: Store) -> None:
    desk = graded(sqlite_store)
    assert results.adopt(sqlite_store, "truth", now=desk.world.clock.advance(1), dry_run=True)["doubt"] is None


@pytest.mark.parametrize("checked", ["", "planted", "second", "decision"])
def test_grades_that_nothing_checks_are_warned_of(sqlite_store: Store, checked: str) -> None:
    canaries = [canary(query, expected_chunks=[{"text": f"The handbook tells of {query}."}]) for query in QUERIES]
    desk = Desk.of(sqlite_store, canaries=canaries, overlap=0, checks=2 if checked == "planted" else 0)
    desk.make_pool()
    items = desk.items()
    for item in items:
        desk.say("Ann", item.token, int(item.known_grade != 0 and item.text < "Text 5"))
    if checked == "second":
        desk.say("Bob", items[0].token, int(items[0].text < "Text 5"))
    if checked == "decision":
        annotations.adjudicate(sqlite_store, "truth", items[0].token, grade=1, by="Cleo", now=desk.world.clock())
    doubt = results.adopt(sqlite_store, "truth", now=desk.world.clock.advance(1), dry_run=True)["doubt"]
    if checked:
        assert doubt is None
        return
    assert doubt == {
        "wrong": None,
        "low": None,
        "high": None,
        "kappa": None,
        "graded_once": len(items),
        "graded": len(items),
        "sentence": (
            "every grade is taken as right: no chunk was graded by two people, and no planted one was graded, so that "
            "nothing tells how often Ann errs. Let somebody else grade a part again, or have a task with overlap or "
            "planted chunks graded, before you trust R@k by such judgments"
        ),
    }
    page = Site(world=desk.world).page("/tasks/truth").text
    assert "Every grade is taken as right: no chunk was graded by two people, and no planted one was graded" in page
