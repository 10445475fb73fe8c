"""Judgments from elsewhere: what an import makes is what the file says, or the file is refused with advice."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.errors import InvalidInputError
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.exchange import FORMATS
from app.catalog.exchange.csv import list_of, parse_columns
from app.catalog.exchange.datasets import read_run
from app.catalog.exchange.suite_builder import ImportedSuite, Limits, SuiteBuilder, parse_grades
from tests.catalog.test_exchange import PLAIN_IDS, SENTENCES, read, refused, source

FOREIGN = Path(__file__).parent / "foreign"


def foreign(name: str) -> dict[str, str]:
    return {name: (FOREIGN / name).read_text(encoding="utf-8")}


def found(imported: ImportedSuite) -> dict[str, dict[str | None, int]]:
    """Return grades by query and by id, else text."""
    return {
        canary.query: {chunk.id or chunk.text: chunk.grade for chunk in canary.expected_chunks}
        for canary in imported.suite.canaries or ()
    }


def noted(imported: ImportedSuite, words: str) -> bool:
    return any(words in note for note in imported.notes)


# --- Quepid ---------------------------------------------------------------------------------------------------


def test_an_empty_rating_of_quepid_is_unrated_whatever_numbers_stand_beside_it() -> None:
    imported = read("quepid", foreign("quepid-detailed.csv"))
    assert found(imported) == {"space opera": {"11": 3}}
    assert noted(imported, "a document that nobody rated was left out (2x")
    assert not noted(imported, "judges disagreed")


@pytest.mark.parametrize(
    "text",
    [
        "Snapshot Name,Snapshot Time,Case ID,Query Text,Doc ID,Doc Position\nbase,2024,7,opera,11,1\n",
        "Team Name,Case Name,Case ID,Query Text,Score,Date Last Scored,Count,Notes\nO,F,7,opera,0.5,2024-02-03,120,2\n",
    ],
)
def test_an_export_of_quepid_without_ratings_makes_no_judgments(text: str) -> None:
    assert refused("quepid", {"case.csv": text})[-1].startswith("the files hold no query with judgments")


def test_null_of_quepid_is_unrated() -> None:
    imported = read("quepid", {"q.csv": "query,docid,rating\nopera,11,null\nopera,12,2\n"})
    assert found(imported) == {"opera": {"12": 2}}


def test_several_people_who_rated_a_document_of_a_case_are_averaged() -> None:
    imported = read("quepid", foreign("quepid-case.json"))
    assert found(imported) == {"space opera": {"11": 2}}
    assert noted(imported, "judges disagreed")


# --- JSON of questions and contexts ---------------------------------------------------------------------------


def only(imported: ImportedSuite) -> CanaryDocument:
    (canary,) = imported.suite.canaries or ()
    return canary


def test_parallel_texts_and_ids_are_one_judgment_each_and_the_reference_is_the_expected_answer() -> None:
    sample = {"user_input": "How long?", "reference_contexts": ["Two weeks."], "reference_context_ids": ["t1"]}
    canary = only(read("jsonl", {"s.jsonl": json.dumps(sample | {"reference": "14 days"})}))
    assert [(chunk.id, chunk.text) for chunk in canary.expected_chunks] == [("t1", "Two weeks.")]
    assert canary.expected_answer == "14 days"


def test_texts_and_ids_of_unequal_number_are_refused() -> None:
    sample = {"user_input": "How long?", "reference_contexts": ["a", "b"], "reference_context_ids": ["t1"]}
    (problem,) = refused("jsonl", {"s.jsonl": json.dumps(sample)})
    assert problem.startswith("s.jsonl:1: has 2 texts and 1 ids of what is expected")


def test_a_list_in_a_text_is_known() -> None:
    for cell, items in [
        ("['a', 'b']", ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ("['a' 'b']", ["a", "b"]),
        ("""['it is', "isn't"]""", ["it is", "isn't"]),
        (r"['line\nbreak', 'it\'s']", ["line\nbreak", "it's"]),
        ("[1] a reference", None),
        ("[see below]", None),
        ("[]", None),
        ("a, b", None),
    ]:
        assert list_of(cell) == items, cell


def test_a_list_as_text_is_several_contexts() -> None:
    texts = "['The trial lasts fourteen days.', 'No card is needed.']"
    sample = {"user_input": "How long?", "reference_contexts": texts}
    expected = {"How long?": {"The trial lasts fourteen days.": 1, "No card is needed.": 1}}
    assert found(read("jsonl", {"s.jsonl": json.dumps(sample)})) == expected
    columns = parse_columns(["user_input=query", "reference_contexts=text"], "csv")
    table = f'user_input,reference_contexts\nHow long?,"{texts}"\n'
    assert found(read("csv", {"s.csv": table}, columns=columns)) == expected


def test_goldens_of_deepeval_are_an_array_whose_context_is_expected() -> None:
    imported = read("jsonl", foreign("deepeval-goldens.json"))
    assert found(imported) == {
        "How long is the trial?": {"The free trial lasts fourteen days.": 1},
        "Who pays?": {"Customers pay monthly.": 1, "By card.": 1},
    }
    assert [canary.expected_answer for canary in imported.suite.canaries or ()] == ["Fourteen days.", "The customer."]


def test_an_item_of_an_array_is_refused_with_its_line() -> None:
    assert refused("jsonl", {"a.json": '[\n {"input": "x", "context": ["y"]},\n\n {"input": ""}, 7]'}) == [
        "a.json:4: has no question; looked for user_input, question, query, input",
        "a.json:4: must be a JSON object",
    ]


def test_items_of_langfuse_are_read_with_their_answer_and_ids() -> None:
    canary = only(read("jsonl", foreign("langfuse-items.jsonl")))
    assert (canary.key, canary.query, canary.expected_answer) == ("i1", "How long is the trial?", "Fourteen days.")
    assert [chunk.id for chunk in canary.expected_chunks] == ["trial#1"]


# --- tables ---------------------------------------------------------------------------------------------------


def test_a_cell_that_is_a_list_of_ids_is_several_judgments_and_one_with_commas_is_noted() -> None:
    text = 'query,chunk_id\nHow?,"[""a#1"", ""a#2""]"\nWhen?,"[\'a#3\', \'a#4\']"\nWho?,"doc1, doc2"\n'
    imported = read("csv", {"s.csv": text})
    assert found(imported) == {"How?": {"a#1": 1, "a#2": 1}, "When?": {"a#3": 1, "a#4": 1}, "Who?": {"doc1, doc2": 1}}
    assert noted(imported, "a list in a cell of id was read as several judgments (2x, first at s.csv:2)")
    assert noted(imported, 'an id with a comma or semicolon was taken for one; several are written as ["a", "b"]')


@pytest.mark.parametrize("form", ["csv", "quepid"])
def test_an_id_that_a_spreadsheet_shortened_is_refused(form: str) -> None:
    (problem,) = refused(form, {"s.csv": "query,doc_id,rating\nWho pays?,1.23457E+15,1\n"})
    assert problem.startswith("s.csv:2: the ")
    assert "is a number that a spreadsheet shortened" in problem
    assert "format the column as text" in problem


def test_an_id_that_ends_in_0_as_numbers_of_spreadsheets_do_is_noted() -> None:
    imported = read("csv", {"s.csv": "query,id\nWho?,7.0\n"})
    assert found(imported) == {"Who?": {"7.0": 1}}
    assert noted(imported, "an id ends in .0, as spreadsheets write whole numbers")


def test_the_advice_on_a_shortened_id_works() -> None:
    assert found(read("csv", {"s.csv": 'query,id\nWho?,"[""1.5E+10""]"\n'})) == {"Who?": {"1.5E+10": 1}}


def test_a_similarity_in_the_column_score_is_questioned_and_the_advice_works() -> None:
    files = {"s.csv": "question,doc_id,score\nWho pays?,d1,0.83\nWho pays?,d2,0.41\n"}
    problems = refused("csv", files)
    assert problems[0].startswith("s.csv:2: '0.83' in column 'score' looks like a similarity, not a grade")
    left_out = read("csv", files, columns=parse_columns(["score=ignore"], "csv"))
    assert found(left_out) == {"Who pays?": {"d1": 1, "d2": 1}}
    scaled = read("csv", files, columns=parse_columns(["score=grade"], "csv"), grades=parse_grades("0-1"))
    assert found(scaled) == {"Who pays?": {"d1": 2, "d2": 1}}
    assert found(read("csv", {"s.csv": "question,doc_id,score\nWho?,d1,2.0\n"})) == {"Who?": {"d1": 2}}


@pytest.mark.parametrize(
    "text",
    [
        '\ufeffquery;chunk_id;grade\nWho pays?;d1;2\n;;\n"How\nlong?";d2;1\n;;\n;;\n',
        "query;chunk_id;grade;;\nWho pays?;d1;2;;\nHow\tlong?;d2;1;;\n".replace("\t", " "),
        "sep=;\nquery;chunk_id;grade\nWho pays?;d1;2\nHow long?;d2;1\n",
        ";;\n\nquery;chunk_id;grade\nWho pays?;d1;2\nHow long?;d2;1\n",
        '\ufeff"sep=\t"\nquery\tchunk_id\tgrade\nWho pays?\td1\t2\nHow long?\td2\t1\n',
    ],
)
def test_blank_rows_and_columns_and_the_separator_line_of_spreadsheets_are_skipped(text: str) -> None:
    grades = {" ".join(query.split()): chunks for query, chunks in found(read("csv", {"s.csv": text})).items()}
    assert grades == {"Who pays?": {"d1": 2}, "How long?": {"d2": 1}}


def test_a_value_below_no_name_is_refused_and_lines_are_counted_from_the_top_of_the_file() -> None:
    assert refused("csv", {"s.csv": "sep=,\nquery,id,\nWho?,d1,x\n"}) == [
        "s.csv:3: has a value in column 3, which the header does not name"
    ]
    assert refused("csv", {"s.csv": "\nquery,id,colour\n"})[0].startswith("s.csv:2: unknown column 'colour'")


def test_a_decimal_comma_is_named() -> None:
    (problem,) = refused("csv", {"s.csv": "query;id;grade\nWho?;d;1,5\n"})
    assert problem == "s.csv:2: the grade '1,5' is not a number; write a point for the comma"


# --- TREC and BEIR --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number", "query"),
    [
        ("trec-touche.xml", "1", 'AT&T "merger" <2020 café'),
        ("trec-clinical.xml", "1", "Patient is a 45-year-old man with a cough."),
        ("trec-clef.txt", "C141", "Letter bomb"),
    ],
)
def test_topics_of_trec_and_clef_are_read_as_they_are_meant(name: str, number: str, query: str) -> None:
    canary = only(read("trec", {**foreign(name), "q": f"{number} 0 d1 1\n"}))
    assert (canary.key, canary.query) == (number, query)


def test_topics_may_stand_in_one_line() -> None:
    topics = '<topics><topic number="1"><query>one</query></topic><topic number="2"><query>two</query></topic></topics>'
    assert found(read("trec", {"t.xml": topics, "q": "1 0 a 1\n2 0 b 1\n"})) == {"one": {"a": 1}, "two": {"b": 1}}


def test_sgml_keeps_a_bare_ampersand_and_cdata_is_text() -> None:
    topics = "<top>\n<num> 1\n<title> AT&T and R&D\n</top>\n<top>\n<num> 2\n<title><![CDATA[a < b &amp; c]]>\n</top>\n"
    assert set(found(read("trec", {"t": topics, "q": "1 0 a 1\n2 0 b 1\n"}))) == {"AT&T and R&D", "a < b &amp; c"}


def test_what_a_topic_lacks_is_named() -> None:
    topics = "<top>\n<title>x</title>\n</top>\n<top>\n<num>7</num>\n<desc>y</desc>\n</top>\n"
    assert refused("trec", {"t": topics}) == [
        "t:1: a topic without a number: it has no <num>, no <number>, and no attribute number or id",
        "t:4: topic '7' has no <title> and no <query>, or an empty one",
    ]


@pytest.mark.parametrize(
    ("qrels", "grades"),
    [
        ("301 0 d1 1.0\n301 0 d2 2\n", {"d1": 1, "d2": 2}),
        ("301 0 d1 +1\n", {"d1": 1}),
        ("# made by hand\n301 0 d1 1\n#\n", {"d1": 1}),
        ("301\t0\tWiki Page A\t1\n301\t0\td2\t2\n", {"Wiki Page A": 1, "d2": 2}),
    ],
)
def test_qrels_are_known_by_any_number_for_a_grade(qrels: str, grades: dict[str, int]) -> None:
    assert found(read("trec", {"t": "301\tone\n", "q": qrels})) == {"one": grades}


QUERIES = '{"_id": "q1", "text": "who pays"}\n{"_id": "q2", "text": "how long"}\n'
CORPUS = '{"_id": "d1", "title": "", "text": "customers pay"}\n{"_id": "d2", "title": "T", "text": "two weeks"}\n'


@pytest.mark.parametrize(
    "files",
    [
        {"qrels/test.tsv": "query_id\tcorpus_id\trelevance\nq1\td1\t1\nq2\td2\t2\n", "corpus.jsonl": CORPUS},
        {"qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\n", "collection.jsonl": CORPUS},
        {"qrels/test.tsv": "q1\td1\t1\nq2\td2\t2\n", "texts.jsonl": CORPUS},
        {
            "qrels/test.jsonl": '{"query-id": "q1", "corpus-id": "d1", "score": 1.0}\n'
            '{"query-id": "q2", "corpus-id": "d2", "score": 2.0}\n',
            "corpus.jsonl": CORPUS,
        },
    ],
)
def test_beir_is_read_by_any_of_its_names(files: Mapping[str, str]) -> None:
    imported = read("beir", {"queries.jsonl": QUERIES, **files})
    assert found(imported) == {"who pays": {"d1": 1}, "how long": {"d2": 2}}
    texts = [chunk.text for canary in imported.suite.canaries or () for chunk in canary.expected_chunks]
    assert texts == ["customers pay", "T\ntwo weeks"]
    assert imported.notes == ()


# --- other formats --------------------------------------------------------------------------------------------


def test_a_ranking_evaluation_of_elasticsearch_is_read() -> None:
    imported = read("elasticsearch", foreign("elasticsearch-rank-eval.json"))
    assert found(imported) == {"red shoes": {"p1": 2, "p2": 0}, "blue hats": {"p3": 1}}
    assert [canary.key for canary in imported.suite.canaries or ()] == ["red", "blue"]


@pytest.mark.parametrize(
    ("request_body", "said"),
    [
        ({"query": {"match_all": {}}}, "request 'r' has no query text"),
        (
            {"query": {"bool": {"must": [{"match": {"a": "x"}}, {"match": {"b": "y"}}]}}},
            "request 'r' has 2 query texts",
        ),
    ],
)
def test_a_request_without_one_query_text_is_refused(request_body: dict[str, Any], said: str) -> None:
    whole = {"requests": [{"id": "r", "request": request_body, "ratings": [{"_id": "a", "rating": 1}]}]}
    (problem,) = refused("elasticsearch", {"r.json": json.dumps(whole)})
    assert said in problem


def test_judgments_of_opensearch_are_read_and_shares_are_scaled_aloud() -> None:
    imported = read("opensearch", foreign("opensearch-judgments.json"))
    assert found(imported) == {"red shoes": {"p1": 3, "p2": 0}}
    assert noted(imported, "ratings of 0 to 1 were scaled to grades of 0 to 3")


def test_a_data_set_of_llamaindex_is_read_with_its_texts() -> None:
    imported = read("llamaindex", foreign("llamaindex-dataset.json"))
    assert found(imported) == {"who pays": {"n1": 1}, "how long": {"n2": 1}}
    texts = [chunk.text for canary in imported.suite.canaries or () for chunk in canary.expected_chunks]
    assert texts == ["Customers pay monthly.", "Fourteen days."]


@pytest.mark.parametrize(
    ("relevant", "said"),
    [
        ([{"document_id": "p1", "gain": 3}], "group 'red': relevant_documents is no object"),
        ({"p1": 3}, "group 'red': relevant_documents has neither a gain nor documents for 'p1'"),
    ],
)
def test_judgments_of_rre_in_another_form_are_refused_and_not_dropped(relevant: Any, said: str) -> None:
    group = {"name": "red", "queries": [{"placeholders": {"$query": "red"}}], "relevant_documents": relevant}
    (problem,) = refused("rre", {"r.json": json.dumps({"query_groups": [group]})})
    assert said in problem


def test_the_only_placeholder_of_a_query_of_rre_is_the_query() -> None:
    group = {"queries": [{"placeholders": {"$keyword": "red"}}], "relevant_documents": {"p1": {"gain": "2.0"}}}
    assert found(read("rre", {"r.json": json.dumps({"query_groups": [group]})})) == {"red": {"p1": 2}}


# --- runs -----------------------------------------------------------------------------------------------------


def test_a_mistake_in_a_run_names_the_field() -> None:
    for line, said in [
        ("1 Q0 a 1 nan t", "the score 'nan' (field 5) is not a finite number"),
        ("1 Q0 a 1 -inf t", "the score '-inf' (field 5) is not a finite number"),
        ("1 Q0 a 1 1_0 t", "the score '1_0' (field 5) is not a finite number"),
        ("1 Q0 a 1 1,5 t", "the score '1,5' (field 5) is not a finite number; write a point for the comma"),
        ("1\ta\t1", "has 3 fields, as runs of MS MARCO (topic, document, rank), which hold no scores"),
        ("1 Q0 a 1 3", "has 5 fields; a line of a run has six: topic, Q0, document, rank, score, name. The name of"),
        ("1 Q0 doc a 1 3 t", "has 7 fields; a line of a run has six"),
    ]:
        with pytest.raises(InvalidInputError) as error:
            read_run(source("run", f"9 Q0 d 1 1 t\n{line}\n"))
        (problem,) = error.value.problems
        assert problem.line == 2, line
        assert problem.message.startswith(said), line


def test_scores_of_a_run_tie_as_32_bit_floats_as_in_trec_eval() -> None:
    text = "1 Q0 a 1 0.92000000001 t\n1 Q0 z 2 0.92 t\n2 Q0 b 1 16777217 t\n2 Q0 z 2 16777216 t\n3 Q0 c 1 1e39 t\n"
    order = {topic: [name for name, _ in ranking] for topic, ranking in read_run(source("run", text)).items()}
    assert order == {"1": ["z", "a"], "2": ["z", "b"], "3": ["c"]}


# --- limits ---------------------------------------------------------------------------------------------------


def test_a_file_of_too_many_queries_is_refused_without_advice_that_would_lose_the_first_part() -> None:
    with pytest.raises(InvalidInputError, match="import the rest as another suite: an import replaces all canaries"):
        read("trec", {"t": "1\tx\n2\ty\n"}, limits=Limits(canaries=1))


# --- ours -----------------------------------------------------------------------------------------------------

ODD = st.sampled_from(
    ['["a"]', "['a', 'b']", "1.5E+10", "12.0", "a, b", "a;b", "=x", "[1]", "null", "a\nb", "&amp;", "#1"]
)
IDS = PLAIN_IDS | ODD
CHUNKS = st.fixed_dictionaries(
    {"grade": st.integers(0, 3)}, optional={"id": IDS, "document": IDS, "text": SENTENCES | ODD}
).filter(lambda chunk: len(chunk) > 1)


@st.composite
def suites(draw: st.DrawFn) -> SuiteDocument:
    """Suites of anything that a canary may hold."""
    canaries = []
    keys = draw(st.lists(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,9}", fullmatch=True), min_size=1, max_size=3))
    for key in dict.fromkeys(keys):
        chunks = draw(
            st.lists(CHUNKS, max_size=3, unique_by=lambda one: tuple(map(one.get, ("id", "document", "text"))))
        )
        own = draw(
            st.fixed_dictionaries(
                {"query": SENTENCES | ODD},
                optional={
                    "tags": st.lists(st.sampled_from(["eu", "x;y", "[z]"]), max_size=2, unique=True),
                    "expected_answer": SENTENCES | ODD,
                    "min_relevance_score": st.sampled_from([0.25, 0.8]),
                    "floors": st.just({"R@5": 0.5}),
                },
            )
        )
        canaries.append({"key": key, **own, "expected_chunks": chunks})
    return SuiteDocument.model_validate({"slug": "suite", "canaries": canaries})


@settings(max_examples=25)
@given(suite=suites())
def test_an_export_comes_back_as_it_was_or_says_what_it_could_not_carry(suite: SuiteDocument) -> None:
    for form, of_form in FORMATS.items():
        written = of_form.write(suite)
        try:
            back = read(form, written.files).suite
        except InvalidInputError as error:
            assert written.notes, form
            assert error.problems, form  # noqa: PT017 - either way is right
            continue
        if not written.notes:
            wanted = [one.model_dump() for one in suite.canaries or ()]
            assert [one.model_dump() for one in back.canaries or ()] == wanted, form


@settings(max_examples=50)
@given(cells=st.lists(ODD | SENTENCES, min_size=1, max_size=4))
def test_a_list_of_texts_as_python_or_json_write_it_reads_back(cells: Sequence[str]) -> None:
    assert list_of(repr(list(cells))) == list(cells)
    assert list_of(json.dumps(cells)) == list(cells)


def test_a_cell_of_ours_that_looks_like_a_list_is_written_as_one() -> None:
    canary = {"key": "a", "query": "q", "expected_chunks": [{"id": "['x', 'y']"}]}
    (text,) = FORMATS["csv"].write(SuiteDocument.model_validate({"slug": "s", "canaries": [canary]})).files.values()
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert json.loads(row["id"]) == ["['x', 'y']"]


def test_a_builder_without_a_map_of_grades_says_so() -> None:
    assert not SuiteBuilder().maps_grades
    assert SuiteBuilder(grades=parse_grades("0-4")).maps_grades
