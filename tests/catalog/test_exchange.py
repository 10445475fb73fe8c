"""Suites from and to other tools' files: what a format holds comes back, what it cannot is said, broken lines too."""

import csv
import io
import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.errors import InvalidInputError
from app.base.texts import Source
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.exchange import FORMATS
from app.catalog.exchange.csv import parse_columns
from app.catalog.exchange.datasets import read_run, write_run
from app.catalog.exchange.suite_builder import ImportedSuite, SuiteBuilder

ALL = sorted(FORMATS)


def source(name: str, text: str) -> Source:
    return Source(name=name, lines=lambda: StringIO(text))


def read(form: str, files: Mapping[str, str], **options: Any) -> ImportedSuite:
    builder = SuiteBuilder(**options)
    FORMATS[form].read([source(name, text) for name, text in files.items()], builder)
    return builder.build("suite")


def refused(form: str, files: Mapping[str, str]) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read(form, files)
    return [str(problem) for problem in caught.value.problems]


def canaries(imported: ImportedSuite) -> dict[str, CanaryDocument]:
    return {canary.key: canary for canary in imported.suite.canaries or ()}


def judged(canary: CanaryDocument) -> dict[str | None, int]:
    return {chunk.id: chunk.grade for chunk in canary.expected_chunks}


# --- round trips ---------------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12)
SENTENCES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
PLAIN_IDS = st.from_regex(r"[A-Za-z0-9_./#-]{1,20}", fullmatch=True)
KEYS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,20}", fullmatch=True)
JUDGMENTS = st.dictionaries(PLAIN_IDS, st.integers(0, 3), min_size=1, max_size=5)


@st.composite
def plain_suites(draw: st.DrawFn) -> SuiteDocument:
    """Suites of what every format holds: keys, queries, ids with grades."""
    queries = draw(st.dictionaries(KEYS, st.tuples(SENTENCES, JUDGMENTS), min_size=1, max_size=4))
    texts = {query for query, _ in queries.values()}
    if len(texts) < len(queries):  # Quepid and RRE tell queries apart by their text
        queries = dict([next(iter(queries.items()))])
    return SuiteDocument.model_validate(
        {
            "slug": "suite",
            "canaries": [
                {"key": key, "query": query, "expected_chunks": [{"id": i, "grade": g} for i, g in chunks.items()]}
                for key, (query, chunks) in queries.items()
            ],
        }
    )


@given(suite=plain_suites())
def test_queries_and_graded_ids_come_back_from_every_format_that_has_grades(suite: SuiteDocument) -> None:
    for form in sorted({*ALL} - {"jsonl", "llamaindex"}):
        written = FORMATS[form].write(suite)
        back = read(form, written.files).suite
        if form not in {"quepid", "opensearch"}:
            assert (written.notes, back) == ((), suite), form
            continue
        assert any("keys" in note for note in written.notes), form
        assert {one.query: judged(one) for one in back.canaries or ()} == {
            one.query: judged(one) for one in suite.canaries or ()
        }, form


RICH: dict[str, Any] = {
    "slug": "suite",
    "canaries": [
        {
            "key": "a",
            "query": "What, if\nanything, is “due”?",
            "expected_chunks": [
                {"id": "c1", "document": "d1", "text": "due; in 30 days", "grade": 3},
                {"text": "alone"},
            ],
            "forbidden_chunks": ["old", {"document": "withdrawn"}],
            "min_relevance_score": 0.8,
            "floors": {"R@5": 0.5, "NDCG@10": 0.25},
            "category": "procedural",
            "tags": ["billing", "eu"],
        },
        {"key": "b", "query": "nothing known", "category": "negative", "max_relevance_score": 0.3},
    ],
}


ABOVE = "a grade above 3 became 3; say what grades mean with grades, such as 0-4 or 4=3"
FORMULAS = ["=1+1", "+49 30 1234", "-x", "@SUM(A1)", "'=quoted", "''-twice", "'plain", '=HYPERLINK("http://x")']


def odd(text: str) -> dict[str, Any]:
    canary = {"query": text, "expected_chunks": [{"id": "a", "text": text}, {"document": "d"}], "tags": ["x;y", "[z]"]}
    return {"slug": "suite", "canaries": [{"key": "a", **canary}]}


def test_csv_loses_nothing_at_all() -> None:
    for whole in [RICH, odd("a\rb"), odd("a\r\nb"), odd('a"b,c'), odd("a\u2028b\x85c"), *map(odd, FORMULAS)]:
        suite = SuiteDocument.model_validate(whole)
        written = FORMATS["csv"].write(suite)
        assert not written.notes, whole
        assert read("csv", written.files).suite == suite, whole


@pytest.mark.parametrize("form", ["csv", "quepid"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_a_csv_begins_as_a_formula_and_it_reads_back_as_it_was(form: str, formula: str) -> None:
    canary = {"key": "a", "query": formula, "expected_chunks": [formula.strip(), "c2"]}
    suite = SuiteDocument.model_validate({"slug": "suite", "canaries": [canary]})
    files = FORMATS[form].write(suite).files
    (text,) = files.values()
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert [cell for cell in cells if cell[:1] in {"=", "+", "-", "@", "\t", "\r", "\n"}] == []
    assert any(formula.strip() in cell for cell in cells)
    (back,) = canaries(read(form, files)).values()
    assert back.query == formula
    assert [chunk.id for chunk in back.expected_chunks] == [formula.strip(), "c2"]


def test_beir_keeps_what_is_not_a_judgment_in_its_metadata() -> None:
    suite = SuiteDocument.model_validate(RICH)
    written = FORMATS["beir"].write(suite)
    back = canaries(read("beir", written.files))
    for canary in suite.canaries or ():
        bare = {"expected_chunks": ()}
        assert back[canary.key].model_copy(update=bare) == canary.model_copy(update=bare)
    assert [(chunk.id, chunk.text, chunk.grade) for chunk in back["a"].expected_chunks] == [
        ("c1", "due; in 30 days", 3)
    ]


def test_what_a_format_cannot_hold_is_said() -> None:
    for form in [form for form in ALL if form != "csv"]:
        notes = " ".join(FORMATS[form].write(SuiteDocument.model_validate(RICH)).notes)
        if form != "beir":
            assert "forbidden_chunks" in notes, form
            assert "min_relevance_score" in notes, form
        if form != "jsonl":
            assert "judgments by text alone" in notes, form


# --- what other tools write ----------------------------------------------------------------------------------

TOPICS = """<top>
<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations.
</top>
<top>
<num> Number: 302
<title> Poliomyelitis and Post-Polio </title>
</top>
"""


def test_trec_topics_may_be_sgml_whose_elements_are_not_closed() -> None:
    imported = read("trec", {"topics.301": TOPICS, "qrels": "301 0 FBIS3-1 1\n302 0 FR94-2 2\n301 0 FT-3 0\n"})
    found = canaries(imported)
    assert found["301"].query == "International Organized Crime"
    assert found["302"].query == "Poliomyelitis and Post-Polio"
    assert judged(found["301"]) == {"FBIS3-1": 1, "FT-3": 0}


def test_trec_topics_may_be_xml() -> None:
    topics = (
        '<topics>\n<topic number="1">\n<query>covid origin</query>\n<question>what?</question>\n</topic>\n</topics>\n'
    )
    assert canaries(read("trec", {"t.xml": topics, "q": "1 0 d 1\n"}))["1"].query == "covid origin"


@pytest.mark.parametrize(
    "line", ["<topic" * 20_000 + "\n", "<top><num>" + " " * 100_000 + "\n", "<title>" + " " * 100_000]
)
def test_a_hostile_topic_is_refused_and_costs_no_more_than_its_length(line: str) -> None:
    assert refused("trec", {"topics": f"<top>\n{line}\n</top>\n"})


def test_grades_outside_the_scale_are_brought_into_it_and_noted() -> None:
    imported = read("trec", {"t": "1\tx\n", "q": "1 0 a -2\n1 0 b 4\n1 0 c 5\n"})
    assert judged(canaries(imported)["1"]) == {"a": 0, "b": 3, "c": 3}
    assert imported.notes == ("a negative grade became 0 (at q:1)", f"{ABOVE} (2x, first at q:2)")


def test_queries_without_judgments_and_judgments_without_queries_are_left_out_and_noted() -> None:
    imported = read("trec", {"t": "1\tx\n2\ty\n", "q": "1 0 a 1\n9 0 b 1\n"})
    assert set(canaries(imported)) == {"1"}
    assert set(imported.notes) == {
        "a query without judgments was left out (at t:2)",
        "a query with judgments but without a text was left out (at q:2)",
    }


def test_beir_gives_judged_ids_the_texts_of_its_corpus() -> None:
    corpus = [{"_id": "d1", "title": "T", "text": "body"}, {"_id": "d2", "title": "", "text": "other"}]
    files = {
        "corpus.jsonl": "".join(json.dumps(one) + "\n" for one in corpus),
        "queries.jsonl": json.dumps({"_id": "q1", "text": "why", "metadata": {}}) + "\n",
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    }
    chunk = canaries(read("beir", files))["q1"].expected_chunks[0]
    assert (chunk.id, chunk.text) == ("d1", "T\nbody")


def test_quepid_books_average_their_judges_and_say_so() -> None:
    imported = read("quepid", {"book.csv": "query,docid,Ann,Bob\nshoes,d1,3,2\nshoes,d2,1,1\nhats,d3,,\n"})
    found = {canary.query: judged(canary) for canary in imported.suite.canaries or ()}
    assert found == {"shoes": {"d1": 3, "d2": 1}}
    assert any("judges disagreed" in note for note in imported.notes)
    assert any("nobody rated" in note for note in imported.notes) or any(
        "without judgments" in n for n in imported.notes
    )


def test_quepid_cases_and_books_are_read_as_json_and_the_detailed_case_as_csv() -> None:
    case = {"case_name": "c", "queries": [{"query_text": "shoes", "ratings": [{"doc_id": "d1", "rating": 2.0}]}]}
    pairs = [{"query_text": "shoes", "doc_id": "d1", "judgements": [{"rating": 2.0}, {"rating": None}]}]
    detail = "Team Name,Case Name,Case ID,Query Text,Doc ID,Doc Position,Title,Rating\nT,C,1,shoes,d1,1,Shoe,2\n"
    for files in (
        {"case.json": json.dumps(case)},
        {"book.json": json.dumps({"query_doc_pairs": pairs})},
        {"detail.csv": detail},
    ):
        found = {canary.query: judged(canary) for canary in read("quepid", files).suite.canaries or ()}
        assert found == {"shoes": {"d1": 2}}


def test_rre_groups_share_their_judgments_and_topics_become_tags() -> None:
    group = {
        "name": "Brand search",
        "queries": [{"placeholders": {"$query": "fender"}}, {"placeholders": {"$query": "Fender bass"}}],
        "relevant_documents": {"1": {"gain": 3}, "2": {"gain": 1}},
    }
    whole = {"index": "i", "topics": [{"description": "Basses", "query_groups": [group]}]}
    found = {canary.query: canary for canary in read("rre", {"r.json": json.dumps(whole)}).suite.canaries or ()}
    assert set(found) == {"fender", "Fender bass"}
    assert all(judged(one) == {"1": 3, "2": 1} and one.tags == ("Basses",) for one in found.values())


@pytest.mark.parametrize(
    "sample",
    [
        {"user_input": "why?", "reference_contexts": ["because"], "reference": "answer", "retrieved_contexts": ["no"]},
        {"inputs": {"question": "why?"}, "outputs": {"reference_contexts": [{"page_content": "because"}]}},
    ],
)
def test_samples_of_ragas_and_langsmith_expect_their_reference_contexts(sample: dict[str, Any]) -> None:
    canary = next(iter(canaries(read("jsonl", {"s.jsonl": json.dumps(sample)})).values()))
    assert (canary.query, [chunk.text for chunk in canary.expected_chunks]) == ("why?", ["because"])


@pytest.mark.parametrize("form", ["trec", "beir", "quepid", "rre", "jsonl"])
def test_judgments_by_document_are_said_to_come_back_as_ids(form: str) -> None:
    canary = {"key": "a", "query": "why", "expected_chunks": [{"document": "d"}]}
    suite = SuiteDocument.model_validate({"slug": "suite", "canaries": [canary]})
    written = FORMATS[form].write(suite)
    assert any("--as-documents" in note for note in written.notes)
    back = next(iter(read(form, written.files, as_document=True).suite.canaries or ()))
    assert [(chunk.id, chunk.document) for chunk in back.expected_chunks] == [(None, "d")]


def test_a_column_of_any_name_is_read_as_what_it_is_said_to_be() -> None:
    files = {"s.csv": "Question;Article No;document;note\nx;a;D;old\n"}
    columns = parse_columns(["article no=id", "Document=ignore", "note=tags"], "csv")
    builder = SuiteBuilder(columns=columns)
    FORMATS["csv"].read([source(name, text) for name, text in files.items()], builder)
    canary = next(iter(builder.build("suite").suite.canaries or ()))
    assert [(chunk.id, chunk.document) for chunk in canary.expected_chunks] == [("a", None)]
    assert canary.tags == ("old",)


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        (
            "query,article,passag\nx,a,b\n",
            [],
            "did you mean 'passage'? There are: query (or question); id (or chunk_id)",
        ),
        (
            "query,article\nx,a\n",
            [],
            "Say which one it is with column article=id, or leave it out with column article=",
        ),
        ("query,article\nx,a\n", ["artikel=id"], "the header has no column 'artikel'; did you mean 'article'?"),
        ("query,article,id\nx,a,b\n", ["article=id"], "several columns are 'id'"),
        ("query,article\nx,a\n", ["article=idd"], "'idd' is no column; did you mean 'id'?"),
        ("query,article\nx,a\n", ["article"], "is not NAME=COLUMN"),
    ],
)
def test_what_a_column_is_can_be_said_wrongly(text: str, columns: list[str], said: str) -> None:
    with pytest.raises(InvalidInputError) as error:  # noqa: PT012 - either step may refuse
        builder = SuiteBuilder(columns=parse_columns(columns, "csv"))
        FORMATS["csv"].read([source("s.csv", text)], builder)
        builder.build("suite")
    assert any(said in problem.message for problem in error.value.problems)


def test_columns_are_for_tables_of_canaries_alone() -> None:
    with pytest.raises(InvalidInputError, match="is for the format csv, not for trec"):
        parse_columns(["article=id"], "trec")


# --- broken lines --------------------------------------------------------------------------------------------


def test_a_broken_line_is_named_and_nothing_is_imported() -> None:
    for form, files, wanted in [
        (
            "trec",
            {"t": "1\tx\n", "q": "1 0 a 1\n1 0 b\n1 0 c many\n"},
            ["q:2:", "q:3: the grade 'many' is not a number"],
        ),
        ("trec", {"run": "1 Q0 d 1 0.5 me\n"}, ["run: is a run"]),
        ("trec", {"t": "1\tx\n", "q": "1 0 a 1\n1 0 a 2\n"}, ["q:2: 'a' of query '1' is judged twice and differently"]),
        ("beir", {"queries.jsonl": '{"_id": "1", "text": "x"}\nnope\n[]\n'}, ["queries.jsonl:2:", "queries.jsonl:3:"]),
        ("csv", {"s.csv": "query,id,colour\nx,a,red\n"}, ["s.csv:1: unknown column 'colour'"]),
        ("csv", {"s.csv": "id,grade\na,1\n"}, ["s.csv:1: the header has no column 'query'"]),
        ("csv", {"s.csv": "query,id\nx,a\n,b\n"}, ["s.csv:3: has no query"]),
        ("csv", {"s.csv": 'query,id\nx,"a\n'}, ["s.csv:2: is not CSV"]),
        ("csv", {"s.csv": "query,id,floors\nx,a,[1]\n"}, ["s.csv:2: floors"]),
        ("quepid", {"b.csv": "query,docid,rating\nx,a,good\n"}, ["b.csv:2: the rating 'good' is not a number"]),
        (
            "quepid",
            {"b.csv": "query,docid,rating\nx,a,nan\nx,b,1e999\n"},
            ["b.csv:2: the rating", "b.csv:3: the rating"],
        ),
        ("quepid", {"b.json": "{"}, ["b.json:1: is not JSON"]),
        ("rre", {"r.json": '{"index": "i"}'}, ["r.json:1: holds no 'topics'"]),
        ("jsonl", {"s.jsonl": '{"answer": "x"}\n'}, ["s.jsonl:1: has no question"]),
        ("jsonl", {"s.jsonl": ""}, ["the files hold no query with judgments"]),
    ]:
        told = refused(form, files)
        assert len(told) == len(wanted), form
        for line, beginning in zip(told, wanted, strict=True):
            assert line.startswith(beginning), form


@given(text=st.text(max_size=200) | st.sampled_from(['{"queries": [1]}', '{"queries": [{"ratings": 1}]}', "a\tb\tc\n"]))
def test_whatever_a_file_holds_it_is_read_or_refused(text: str) -> None:
    for form in ALL:
        builder = SuiteBuilder()
        try:
            FORMATS[form].read([source("file", text)], builder)
            builder.build("suite")
        except InvalidInputError as error:
            assert error.problems, form  # noqa: PT017 - either way is right


# --- runs ----------------------------------------------------------------------------------------------------


def test_a_run_is_ordered_by_score_as_trec_eval_does() -> None:
    text = "1 Q0 a 1 0.5 me\n1 Q0 b 2 0.9 me\n1 Q0 c 3 0.5 me\n2 Q0 z 1 7 me\n"
    assert read_run(source("run", text)) == {"1": [("b", 0.9), ("c", 0.5), ("a", 0.5)], "2": [("z", 7.0)]}


@given(st.dictionaries(KEYS, st.lists(PLAIN_IDS, min_size=1, max_size=6, unique=True), min_size=1, max_size=4))
def test_a_run_that_was_written_reads_back_in_its_order(rankings: dict[str, list[str]]) -> None:
    text = "".join(write_run(rankings, "my run"))
    back = {topic: [name for name, _ in ranking] for topic, ranking in read_run(source("run", text)).items()}
    assert back == rankings


@pytest.mark.parametrize(
    ("form", "files"),
    [
        ("csv", {"s.csv": "query,id,category,tags\nDue when?,a,billing,eu\nHow to pay?,b,procedural,\n"}),
        (
            "jsonl",
            {
                "s.jsonl": json.dumps({"question": "Due when?", "reference_context_ids": ["a"], "category": "billing"})
                + "\n"
                + json.dumps({"question": "How to pay?", "reference_context_ids": ["b"], "category": "procedural"})
            },
        ),
    ],
)
def test_a_category_that_is_none_of_ours_becomes_a_tag_and_ours_stay(form: str, files: dict[str, str]) -> None:
    imported = read(form, files)
    due, pay = imported.suite.canaries or ()
    assert "billing" in due.tags
    assert ("eu" in due.tags) is (form == "csv")
    assert (due.category, pay.category, pay.tags) == ("simple_factual", "procedural", ())
    assert any("a category of the files became a tag" in note for note in imported.notes)


def test_a_misspelled_category_is_refused_and_not_made_a_tag() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'procedural'"):
        read("csv", {"s.csv": "query,id,category\nHow to pay?,b,procedurel\n"})


def test_a_query_without_a_key_gets_the_key_it_would_get_over_rest_and_named_keys_stay() -> None:
    text = "query,id\nWhat year?,a\nRetention,b\n"
    assert list(canaries(read("csv", {"file.csv": text}))) == ["what-year", "retention"]
    named = "key,query,id\nwhat-year,Which year?,a\nMB-1,What?,b\n"
    assert list(canaries(read("csv", {"file.csv": named}))) == ["what-year", "MB-1"]
