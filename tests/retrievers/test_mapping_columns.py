"""Answers that come as columns side by side, and the times of hits, whatever shape they come in."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from app.base.values import Ranking
from app.retrievers.client.compiled_retriever import Reader, Reading
from app.retrievers.client.responses import MalformedError
from app.retrievers.domain.retrievers import ResponseMapping

CHROMA = ResponseMapping(
    hits=None, id="ids[0]", score="distances[0]", text="documents[0]", document="metadatas[0][*].source.file"
)
DATED = ResponseMapping(hits="results", id="id", updated="meta.at")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()


def read(document: Any, mapping: ResponseMapping = CHROMA, *, max_hits: int = 10) -> Reading:
    """Read a document given as a value."""
    return Reader(mapping, max_hits).read(json.dumps(document).encode(), {})


def complaint(document: Any, mapping: ResponseMapping = CHROMA) -> str:
    """Read something malformed and return the sentence."""
    with pytest.raises(MalformedError) as caught:
        read(document, mapping)
    return str(caught.value)


ABSENT = "; if that means nothing found, set response.absent to empty"


def answer(**columns: Any) -> dict[str, Any]:
    """Make a good answer of two hits, but for what is said."""
    return {
        "ids": [["a", "b"]],
        "distances": [[0.1, 0.2]],
        "documents": [["one", None]],
        "metadatas": [[None, {"source": {"file": "b.md"}}]],
    } | columns


def updated(value: Any, mapping: ResponseMapping = DATED) -> float | None:
    """Read the time of a hit."""
    ranking = read({"results": [{"id": "a", "meta": {"at": value}}]}, mapping).ranking
    assert ranking.updated is not None
    return ranking.updated[0]


def test_columns_are_read_side_by_side_and_nulls_keep_their_place() -> None:
    assert read(answer()).ranking == Ranking(
        ids=("a", "b"), scores=(0.1, 0.2), texts=("one", None), documents=(None, "b.md"), returned=2
    )


def test_objects_under_their_ids_are_read_in_the_order_of_their_keys_and_nulls_keep_their_place() -> None:
    mapping = ResponseMapping(hits=None, id="keys(docs)", text="docs.*.text", document="docs.*.meta.source.file")
    docs = {"b": {"text": "one"}, "c": None, "a": {"meta": {"source": {"file": "a.md"}}}, "d": {"text": None}}
    ranking = read({"docs": docs}, mapping).ranking
    assert (ranking.ids, ranking.texts) == (("b", "c", "a", "d"), ("one", None, None, None))
    assert ranking.documents == (None, None, "a.md", None)
    assert read({"docs": {}}, mapping).ranking.ids == ()
    assert complaint({"docs": []}, mapping) == "keys(docs): the expression does not fit the answer"


def test_columns_without_hits_are_an_empty_ranking() -> None:
    empty: dict[str, Any] = {"ids": [[]], "distances": [[]], "documents": [[]], "metadatas": [[]]}
    assert read(empty).ranking == Ranking(ids=(), scores=(), texts=(), documents=(), returned=0)


def test_columns_are_cut_and_lose_their_duplicates_together() -> None:
    mapping = ResponseMapping(hits=None, id="ids", score="scores", document="meta[*].doc", updated="meta[*].at")
    meta = [{"doc": "x", "at": 1}, {"doc": "y"}, {"doc": "z", "at": 3}, {"doc": "w", "at": 4}]
    body = {"ids": ["a", "a", "b", "c"], "scores": [4, 3, 2, 1], "meta": meta}
    ranking = read(body, mapping, max_hits=3).ranking
    assert (ranking.ids, ranking.scores, ranking.documents) == (("a", "b"), (4, 2), ("x", "z"))
    assert (ranking.updated, ranking.returned) == ((1.0, 3.0), 3)


def test_columns_the_answer_does_not_include_are_null() -> None:
    ranking = read(answer(documents=None, metadatas=None)).ranking
    assert (ranking.texts, ranking.documents) == ((None, None), (None, None))


def test_malformed_columns_are_explained() -> None:
    for document, sentence in [
        (answer(ids=None), f"ids[0]: missing, though response.id is mapped to it{ABSENT}"),
        (answer(distances=None), "distances[0]: missing, though response.score is mapped to it"),
        ({}, f"ids[0]: missing, though response.id is mapped to it{ABSENT}"),
        ([], f"ids[0]: missing, though response.id is mapped to it{ABSENT}"),
        (answer(ids={}), f"ids[0]: missing, though response.id is mapped to it{ABSENT}"),
        (answer(ids=[5]), "ids[0]: not a list, though response.id is mapped to it"),
        (answer(ids=[["a", None]]), "ids[0][1]: missing"),
        (answer(ids=[["a", ""]]), "ids[0][1]: empty"),
        (answer(distances=[["0.1", 0.2]]), "distances[0][0]: not a number"),
        (answer(documents=[["one", 2]]), "documents[0][1]: not a string"),
        (
            answer(metadatas=[[None, {"source": {"file": 0.5}}]]),
            "metadatas[0][1].source.file: neither a string nor a whole number",
        ),
        (
            answer(ids=[["a"]]),
            (
                "the columns are not equally long: ids[0] has 1, distances[0] has 2, documents[0] has 2, "
                "metadatas[0][*].source.file has 2"
            ),
        ),
        (
            answer(metadatas=[[]], documents=None),
            "the columns are not equally long: ids[0] has 2, distances[0] has 2, metadatas[0][*].source.file has 0",
        ),
    ]:
        assert complaint(document) == sentence, document


def test_columns_of_text_alone_need_the_text() -> None:
    mapping = ResponseMapping(hits=None, text="texts", document="sources")
    assert read({"texts": ["one", "two"], "sources": ["x", None]}, mapping).ranking.documents == ("x", None)
    assert complaint({"sources": ["x"]}, mapping) == f"texts: missing, though response.text is mapped to it{ABSENT}"
    assert complaint({"texts": ["one", None], "sources": None}, mapping) == "texts[1]: missing, and there is no id"


def test_every_kind_of_projection_keeps_its_nulls() -> None:
    body = {"all": [{"id": 1, "on": True}, {"id": 2, "on": False, "d": "x"}, {"id": 3, "on": True, "d": "y"}]}
    for path, documents in (
        ("all[*].d", (None, "x", "y")),
        ("all[].d", (None, "x", "y")),
        ("all[:2].d", (None, "x")),
        ("all[?on].d", (None, "y")),
    ):
        mapping = ResponseMapping(hits=None, id=path.replace(".d", ".id"), document=path)
        assert read(body, mapping).ranking.documents == documents, path
    by_name = {"all": {"p": {"id": 1}, "q": {"id": 2, "d": "x"}}}
    assert read(by_name, ResponseMapping(hits=None, id="all.*.id", document="all.*.d")).ranking.documents == (None, "x")


def test_index_version_stands_beside_columns() -> None:
    mapping = ResponseMapping(hits=None, id="ids", index_version="meta.index")
    assert read({"ids": ["a"], "meta": {"index": 7}}, mapping).index_version == "7"


@pytest.mark.parametrize(
    "mapping", [DATED, ResponseMapping(hits="results", id="id", updated="not_null(meta.at, to_array(`[]`)[0])")]
)
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-01-31", NOON - 12 * 3600),
        ("20260131", NOON - 12 * 3600),
        ("2026-01-31T12:00:00", NOON),
        ("2026-01-31 12:00", NOON),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31t12:00:00z", NOON),
        ("2026-01-31T13:30:00+01:30", NOON),
        (" 2026-01-31T12:00:00.250Z ", NOON + 0.25),
        (NOON, NOON),
        (int(NOON), NOON),
        (NOON * 1000 + 250, NOON + 0.25),
        (str(int(NOON)), NOON),
        (str(int(NOON) * 1000), NOON),
        (0, 0.0),
        (-86400, -86400.0),
        ("6000-01-01", 127174492800.0),
        (None, None),
    ],
)
def test_times_are_iso_8601_or_unix_time(mapping: ResponseMapping, value: Any, seconds: float | None) -> None:
    assert updated(value, mapping) == seconds


def test_a_time_that_cannot_be_read_is_malformed() -> None:
    for value in [
        "",
        "yesterday",
        "31.01.2026",
        "2026-13-01",
        "0001-01-01T00:00+14:00",
        "9" * 70,
        "123",
        1e16,
        10**400,
        "é",
    ]:
        sentence = complaint({"results": [{"id": "b"}, {"id": "a", "meta": {"at": value}}]}, DATED)
        assert sentence == "results[1].meta.at: not a time: ISO 8601 or seconds since 1970", value


@pytest.mark.parametrize("value", [True, [], {}])
def test_a_time_of_another_type_is_malformed(value: Any) -> None:
    sentence = complaint({"results": [{"id": "a", "meta": {"at": value}}]}, DATED)
    assert sentence == "results[0].meta.at: neither a time as text nor a number of seconds"


def test_times_are_there_exactly_when_they_are_mapped() -> None:
    body = {"results": [{"id": "a"}, {"id": "b"}]}
    assert read(body, DATED).ranking.updated == (None, None)
    assert read({"results": []}, DATED).ranking.updated == ()
    assert read(body, ResponseMapping(hits="results", id="id")).ranking.updated is None
    columns = ResponseMapping(hits=None, id="results[*].id", updated="times")
    assert read(body, columns).ranking.updated == (None, None)


@pytest.mark.parametrize(
    "expression",
    [
        "to_string([" * 8 + "@" + "])" * 8,
        " | ".join(["[@, @]"] * 8),
        "join(a, b)",
        f"join('{'x' * 300}', b)",
        "[]" + ".[`[1, 2, 3, 4]`][]" * 4,
        "map(&[@, @, @, @, @, @, @, @, @, @, @], [a, a, a, a, a, a, a, a, a, a])",
    ],
)
def test_an_expression_that_could_fill_the_memory_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"^text: could make an answer more than 100 times larger than it is"):
        Reader(ResponseMapping(hits="@", text=expression), 10)
