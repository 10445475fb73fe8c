"""Exports of Langfuse, Phoenix and LangSmith as traffic. The files are as those tools write them, see `exports/`.

Phoenix 20.26 wrote its own from spans of openinference-instrumentation, and langsmith 0.15 its runs; those of Langfuse
have the fields and the quoting of the export of its tables, and of that to blob storage.
"""

import io
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.base.errors import InvalidInputError
from app.base.texts import Source
from app.traffic.documents.exports import query_of
from app.traffic.documents.queries import ReadTraffic, read_traffic
from app.traffic.service import intake
from tests.support.api_service import Api, api
from tests.support.processes import ROOT

NOW = datetime(2026, 11, 30, 23, tzinfo=UTC)
EXPORTS = ROOT / "tests/traffic/exports"
KEY, LIMIT, INVOICES = "how do i rotate an api key?", "what is the rate limit?", "who may see invoices?"
MEDIA = {".csv": "text/csv", ".json": "application/x-ndjson", ".jsonl": "application/x-ndjson"}
HELD = {
    "langfuse.json": ({KEY, LIMIT}, 2),
    "langfuse.csv": ({KEY, LIMIT}, 2),
    "langfuse_blob.jsonl": ({KEY, LIMIT}, 1),
    "langfuse_traces.json": ({KEY, LIMIT}, 0),
    "phoenix.csv": ({KEY, LIMIT, INVOICES}, 2),
    "phoenix.jsonl": ({KEY, LIMIT, INVOICES}, 2),
    "phoenix.json": ({KEY, LIMIT, INVOICES}, 2),
    "langsmith.jsonl": ({KEY}, 1),
}
"""Of each file the queries, and how many spans are none of retrieval."""


def read(text: str, name: str = "export.jsonl") -> ReadTraffic:
    return read_traffic([Source(name=name, lines=lambda: io.StringIO(text))], now=NOW)


def asked(text: str) -> dict[str, int]:
    return {one.query: one.count for one in read(text).queries}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with a suite and a retriever."""
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


def test_each_file_is_tried() -> None:
    assert {one.name for one in EXPORTS.iterdir()} == set(HELD)


@pytest.mark.parametrize("name", HELD)
def test_the_queries_of_retrievals_are_taken_with_their_times_and_nothing_else(name: str) -> None:
    found = read((EXPORTS / name).read_text("utf-8"), name)
    queries, other = HELD[name]
    assert {one.query for one in found.queries} == queries
    assert (found.other, found.unclear, found.empty) == (other, 0, 0)
    assert all(one.count == 1 and one.first == one.last < NOW for one in found.queries)
    assert {one.first.day for one in found.queries} <= {20, 21, 30}


@pytest.mark.parametrize("name", HELD)
def test_the_service_takes_them_as_they_are_and_says_what_it_left_out(service: Api, name: str) -> None:
    file = EXPORTS / name
    headers = {"content-type": MEDIA[file.suffix]}
    answer = service.client.post(
        "/v1/suites/docs/traffic", params={"retriever": "search"}, content=file.read_bytes(), headers=headers
    )
    assert answer.status_code == 200, answer.text
    queries, other = HELD[name]
    notes = [f"{other} other span{'s' * (other > 1)} left out"] if other else []
    assert answer.json() == {"queries": len(queries), "new": len(queries), "notes": notes}


def span(kind: str, text: Any, *, parent: str | None = None, **more: Any) -> str:
    record = {"run_type": kind, "parent_run_id": parent, "inputs": text, "start_time": "2026-11-20T10:00:00", **more}
    return json.dumps(record) + "\n"


def test_without_retrievals_the_inputs_of_roots_are_the_queries() -> None:
    text = span("chain", {"question": "Fees?"}) + span("llm", {"prompt": "Say: fees"}, parent="1")
    assert asked(text) == {"fees?": 1}
    assert read(text).other == 1
    assert asked(text + span("retriever", {"query": "monthly fees"}, parent="1")) == {"monthly fees": 1}


def test_runs_and_observations_within_records_count_once() -> None:
    inner = json.loads(span("retriever", {"query": "Fees"}, parent="1"))
    nested = span("chain", {"question": "What of the fees?"}, child_runs=[inner, inner])
    assert asked(nested) == {"fees": 2}
    trace = {
        "id": "t1", "timestamp": "2026-11-20T10:00:00Z", "sessionId": None, "input": "What of the fees?",
        "observations": [{"traceId": "t1", "type": "SPAN", "parentObservationId": None, "input": "What of the fees?"}],
    }  # fmt: skip
    assert asked(json.dumps(trace)) == {"what of the fees?": 1}, "not once more by the span it begins with"
    assert asked(json.dumps({"data": [trace, trace], "meta": {"page": 1}}, indent=2)) == {"what of the fees?": 2}


def test_a_query_counts_once_in_a_trace_also_where_a_retriever_hands_on_to_another() -> None:
    bundle = {"query_bundle": {"query_str": "Fees?", "image_path": None, "embedding": None}}
    spans = [("t1", "Fees?", None), ("t1", bundle, "1"), ("t2", "Fees?", None), (None, "Fees?", None)]
    text = "".join(span("retriever", query, parent=parent, trace_id=trace) for trace, query, parent in spans)
    assert asked(text) == {"fees?": 3}


def test_where_no_retrieval_names_its_query_those_that_traces_begin_with_count() -> None:
    text = span("retriever", {"query_embedding": [0.5]}, parent="1") + span("chain", {"question": "Fees?"})
    assert asked(text) == {"fees?": 1}
    assert asked(text + span("retriever", {"query": "monthly fees"}, parent="1")) == {"monthly fees": 1}


@pytest.mark.parametrize(
    ("given", "query"),
    [
        ("How do I pay?", "How do I pay?"),
        ('"How do I pay?"', "How do I pay?"),
        ("[urgent] how do I pay?", "[urgent] how do I pay?"),
        ('{"query": "Fees", "top_k": 5}', "Fees"),
        ({"input": {"question": "Fees", "user": "ann"}}, "Fees"),
        ({"args": ["Fees"], "kwargs": {}}, "Fees"),
        ({"args": [], "kwargs": {"q": "Fees"}}, "Fees"),
        ({"topic": "Fees"}, "Fees"),
        ({"user": "ann", "tenant": "acme"}, ""),
        ([{"role": "user", "content": "Hi"}, {"role": "user", "content": "Fees"}], "Fees"),
        ([{"role": "user", "content": "Fees"}, {"role": "tool", "content": "monthly"}], "Fees"),
        ([{"role": "system", "content": "Be brief."}], ""),
        ({"messages": [[{"type": "human", "content": [{"type": "text", "text": "Fees"}]}]]}, "Fees"),
        ({"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "Fees"}}, "Fees"),
        ({"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": {"content": "Hello"}}, ""),
        ({"query": None}, ""),
        (None, ""),
        (7, ""),
        ("[" * 60 + "]" * 60, "[" * 60 + "]" * 60),
    ],
)  # fmt: skip
def test_the_query_within_an_input_is_found(given: Any, query: str) -> None:
    assert query_of(given) == query


def test_inputs_without_a_query_are_counted_and_told() -> None:
    found = read(span("retriever", {"filter": 3}) + span("retriever", {"query": "x" * 501}))
    assert (found.queries, found.unclear, found.too_long) == ((), 1, 1)
    assert intake.left_out_notes(found) == [
        "1 query longer than 500 characters left out",
        "1 span whose input names no query left out",
    ]


def test_a_list_is_read_whatever_its_lines() -> None:
    runs = [json.loads(span("retriever", {"query": f'Fees "{place}" [in] {{'})) for place in range(3)]
    for text in (json.dumps(runs), json.dumps(runs, indent=2), json.dumps(runs).replace("}, {", "},\n\n{")):
        assert asked(text) == {f'fees "{place}" [in] {{': 1 for place in range(3)}
    assert asked('[{"query": "Fees"}, {"query": "fees"}]') == {"fees": 2}, "also of plain queries"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[{"query": "a"},\n{"query": "b"', 2, "the file ends within a list or an object"),
        ('[\n{"query": "a"},\n7]', 3, "must be a JSON object"),
        ('[\n{"query": "a"} x\n]', 2, "must be a JSON object"),
        ('[{"query": "a"}]]', 1, "must be a JSON object"),
        ('[\n{"query": nothing}\n]', 2, "is not JSON"),
        ('[\n{"query": ' + "[" * 60 + "]" * 60 + "}\n]", 2, "is not JSON: "),
        ('[\n{"query": "a\n"}]', 2, "is not JSON"),
    ],
)
def test_a_list_that_is_none_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        read(text)
    (problem,) = raised.value.problems
    assert problem.line == line
    assert message in problem.message


@pytest.mark.parametrize("text", ['[{"query": "' + '\\"' * 400_000, '[{"a": "b' + '"' * 400_001, "[" + "{" * 400_000])
def test_what_never_ends_is_refused_in_a_moment(text: str) -> None:
    begun = time.monotonic()
    with pytest.raises(InvalidInputError):
        read(text)
    assert time.monotonic() - begun < 5


def test_a_document_in_a_cell_may_be_long() -> None:
    table = f'"traceId","type","input","output"\n"t1","RETRIEVER","Fees","{"x" * 900_000}"\n'
    assert [one.query for one in read(table, "export.csv").queries] == ["fees"]
