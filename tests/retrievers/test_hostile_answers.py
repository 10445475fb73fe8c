"""Answers made to be a burden: what suggesting from them takes is bounded, counted in calls and in memory."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from app.base.documents.fields import parse_document
from app.base.texts import parse_cut
from app.retrievers.client.probe import read_pasted
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.field_guesses import Field, guess_fields
from app.retrievers.domain.mapping_suggestions import suggest_mappings
from app.retrievers.domain.retrievers import KEPT_CHARACTERS
from app.retrievers.service import trials
from tests.support.present import present

LENGTH = 60_000
PROSE = "Logs are kept for thirty days in the hot tier and for a year in the archive."
SPARSE = [{f"a{at}": 1} for at in range(200)]


def calls_of(work: Callable[[], Any]) -> int:
    """Count the calls that a piece of work makes, of our own functions and of those in C."""
    calls = 0

    def note(_frame: Any, event: str, _of: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def filled(part: Callable[[int], Any]) -> dict[str, Any]:
    """Make an object with as many of these parts as an answer of the length has room for."""
    room = LENGTH // (len(json.dumps(part(1_000), separators=(",", ":"))) + 8)
    return {f"k{at}": part(at) for at in range(room)}


def below(inner: Any, *, key: str, levels: int) -> Any:
    """Put a value that far down."""
    for _ in range(levels):
        inner = {key: inner}
    return inner


HOSTILE: dict[str, Callable[[], Any]] = {
    "lists of objects without a common field": lambda: filled(lambda _: SPARSE),
    "such lists, no two of a length": lambda: filled(lambda at: SPARSE[: 1 + at % 200]),
    "groups without a group": lambda: filled(lambda _: [dict.fromkeys(map(str, range(200)))] + [{}] * 199),
    "fields far down": lambda: filled(
        lambda _: [below(dict.fromkeys(map(str, range(180)), 1), key="k_" * 70, levels=6)]
    ),
    "texts below a long name": lambda: below([{"text": PROSE}] * 2_000, key="k_" * 20_000, levels=2),
    "columns": lambda: filled(lambda _: [1] * 200),
    "lists in lists in lists": lambda: filled(lambda _: [[[[[["a"] * 20] * 2] * 2]]]),
    "objects in objects": lambda: filled(lambda _: {f"d{at}": {"e": [{"a": 1}]} for at in range(20)}),
    "fields": lambda: filled(lambda at: at),
    "a long text": lambda: [{"text": "a " * (LENGTH // 2)}],
    "content blocks": lambda: filled(lambda _: {"text": [{"text": "a"}] * 200}),
}


@pytest.mark.parametrize("answer", [pytest.param(make, id=name) for name, make in HOSTILE.items()])
def test_the_effort_of_suggesting_is_bounded(answer: Callable[[], Any]) -> None:
    hostile = answer()
    assert calls_of(lambda: suggest_mappings(hostile, query=PROSE)) < 30 * LENGTH


def test_a_name_of_very_many_words_is_judged_by_its_end() -> None:
    name = "x_" * 3_000 + "text"
    tracemalloc.start()
    try:
        guessed = guess_fields([Field(path=f"a.{name}", parts=("a", name), values=[PROSE])], "")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert guessed == {}  # nor is so long a path one that a document takes
    assert peak < 200 * len(name)


def test_a_name_that_ends_in_words_we_know_is_still_known() -> None:
    fields = [Field(path=name, parts=(name,), values=list("abc")) for name in ("x_" * 90 + "document_url", "y")]
    assert guess_fields(fields, "")["document"].path == fields[0].path


@pytest.mark.parametrize(
    "answer",
    [
        [{"text_" * 50: PROSE}],
        {"results_" * 30: [{"text": PROSE}]},
        {"text_" * 50: [PROSE, PROSE], "ids": ["a", "b"]},
        {"a": [{"text_" * 50: [{"text": PROSE}]}, {}]},
    ],
)
def test_what_has_no_name_of_reasonable_length_is_left_out(answer: Any) -> None:
    assert "text_text" not in str(suggest_mappings(answer))
    assert "results_results" not in str(suggest_mappings(answer))


def test_only_paths_that_a_document_takes_are_suggested() -> None:
    long = "n" * 190
    assert suggest_mappings(below([{"text": PROSE}], key=long, levels=6)) == []
    assert suggest_mappings([below({"text": PROSE}, key=long, levels=6)]) == []
    assert suggest_mappings(below({"texts": [PROSE] * 2, "ids": ["a", "b"]}, key=long, levels=6)) == []
    (found,) = suggest_mappings(below([{"text": PROSE, "\x7fsource": "a.md"}], key=long, levels=5))
    assert found.mapping.document == '"\\u007fsource"'
    parse_document(RetrieverDocument, {**retriever(), "response": {"hits": found.mapping.hits, "text": "text"}})


def test_two_fields_make_one_path_only_where_it_is_not_too_long() -> None:
    names = ["a" * 600 + ".source", "b" * 600 + ".url"]
    columns = (["x.md", None], [None, "https://example.org/y"])
    fields = [
        Field(path=name, parts=tuple(name.split(".")), values=values)
        for name, values in zip(names, columns, strict=True)
    ]
    assert guess_fields(fields, "")["document"].path == names[0]


# --- JSON that was cut off -----------------------------------------------------------------------------------


def test_cut_json_is_parsed_with_no_work_for_each_comma() -> None:
    commas = 20_000
    assert calls_of(lambda: parse_cut("[" * 150 + "1," * commas)) < commas


def test_cut_json_counts_as_cut_off_where_it_is_too_deep() -> None:
    assert parse_cut("[" * 200 + "1,") is not None
    assert parse_cut("[" * 201 + "1,") is None
    assert parse_cut('{"a": [{"b": 1}, ' + "[" * 1_000 + "1,") == {"a": [{"b": 1}]}


def retriever() -> dict[str, Any]:
    """Describe a retriever whose mapping fits none of these answers."""
    return {"slug": "search", "url": "http://127.0.0.1:1", "response": {"hits": "no", "id": "id"}}


def test_of_a_pasted_answer_no_more_is_suggested_from_than_of_one_that_came() -> None:
    document = parse_document(RetrieverDocument, retriever())
    filler = "1," * (KEPT_CHARACTERS // 2)
    body = f'{{"filler": [{filler}1], "data": [{{"id": "a", "text": "{PROSE}"}}, {{"id": "b", "text": "{PROSE}"}}]}}'
    assert suggest_mappings(json.loads(body)) != []
    trial = trials.try_answer(read_pasted, document, body, "logs", k=5)
    assert (trial["suggestions"], present(trial["response"])["bytes"]) == ([], len(body))
