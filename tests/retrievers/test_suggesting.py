"""Suggestions for unknown answers: those of the vendors' references, those of the field, and hostile ones."""

import json
from typing import Any

import jmespath
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.base.values import Outcome
from app.retrievers.client.compiled_retriever import Reader, Reading
from app.retrievers.client.probe import read_pasted
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.field_guesses import normalize_name
from app.retrievers.domain.mapping_suggestions import MAX_SUGGESTIONS, Suggestion, suggest_mappings
from app.retrievers.domain.retrievers import ResponseMapping, Scale
from app.retrievers.service.trials import suggestion_views, try_answer
from tests.retrievers.test_preset_shapes import SHAPES
from tests.support.preset_shapes import QUERY

PROSE = (
    "Logs are kept for thirty days in the hot tier and for a year in the archive.",
    "An audit trail of every change is written to the ledger and never deleted again.",
    "Restoring an archived table takes up to four hours, depending on how large it is.",
)


def read(suggestion: Suggestion, answer: Any) -> Reading:
    """Read an answer by a suggested mapping."""
    return Reader(suggestion.mapping, 1_000).read(json.dumps(answer).encode(), {})


def best(answer: Any, *, query: str = "") -> Suggestion:
    """Give the first suggestion, which must read as many hits as it says."""
    suggestion = suggest_mappings(answer, query=query)[0]
    assert read(suggestion, answer).ranking.returned == suggestion.hits > 0
    return suggestion


def rows(*names: str, **values: Any) -> list[dict[str, Any]]:
    """Make three hits: a text, and other fields by name."""
    return [{names[0]: text, **{name: column[at] for name, column in values.items()}} for at, text in enumerate(PROSE)]


@pytest.mark.parametrize("name", ["uid", "_id", "doc_id", "chunk_id", "key", "article_id"])
def test_names_different_in_each_hit_are_suggested_as_its_id(name: str) -> None:
    answer = {"found": rows("body", **{name: ["descale", "wifi-pair", "refund"], "src": ["help/a.md"] * 3})}
    assert best(answer, query=QUERY).mapping.id == name


def test_the_answer_of_a_vendor_is_read_as_its_preset_reads_it() -> None:
    for name, shape in SHAPES.items():
        ranking = read(best(shape.answer, query=QUERY), shape.answer).ranking
        for hit, found in zip(shape.hits, ranking.ids, strict=True):
            assert hit.id in {None, found}, name
        assert ranking.texts == tuple(hit.text for hit in shape.hits), name
        assert ranking.scores == tuple(hit.score for hit in shape.hits), name
        assert ranking.documents == tuple(hit.document for hit in shape.hits), name


@pytest.mark.parametrize(
    "extra", [[], [{"lang": "de", "body": "Noch ein Absatz, der von etwas ganz anderem handelt."}]]
)
def test_a_text_in_a_list_of_objects_within_each_hit_is_found(extra: list[dict[str, str]]) -> None:
    found = [
        {
            "ref": {"uid": f"hb-{at}", "file": f"handbook/{at}.md"},
            "weight": {"raw": 0.4 - at / 10},
            "content": {"parts": [{"lang": "en", "body": text}, *extra]},
        }
        for at, text in enumerate(PROSE)
    ]
    answer = {"status": "fine", "payload": {"answer": {"found": found}}}
    expected = {"hits": "payload.answer.found", "id": "ref.uid", "score": "weight.raw", "document": "ref.file"}
    assert best(answer).mapping == ResponseMapping(**expected, text="content.parts[0].body")


def test_of_a_list_within_each_hit_only_the_text_is_taken_and_only_where_the_hit_has_none_itself() -> None:
    aside = [[{"url": f"https://a.example/{at}", "text": f"{text} And more of it."}] for at, text in enumerate(PROSE)]
    suggestion = best(rows("passage", id=["a", "b", "c"], mentions=aside))
    assert suggestion.mapping == ResponseMapping(hits="@", id="id", text="passage")


def test_nothing_is_suggested_where_a_vendor_found_nothing() -> None:
    for name, shape in SHAPES.items():
        assert suggest_mappings(shape.nothing, query=QUERY) == [], name


def test_a_refusal_is_not_taken_for_hits() -> None:
    for name, shape in SHAPES.items():
        if shape.refusal is not None:
            assert suggest_mappings(shape.refusal.body, query=QUERY) == [], name


def test_answers_of_the_field_are_understood() -> None:
    for answer, mapping in [
        (
            {"took": 3, "documents": rows("pageContent", chunkId=["c1", "c2", "c3"], similarity=[0.9, 0.8, 0.7])},
            ResponseMapping(hits="documents", id="chunkId", score="similarity", text="pageContent"),
        ),
        (
            [{"doc": {"body": text}, "rank": at, "_id": 10 + at} for at, text in enumerate(PROSE)],
            ResponseMapping(hits="@", id="_id", text="doc.body"),
        ),
        (
            {"response": {"docs": rows("content_txt", id=["a", "b", "c"], score=[3.5, 2.5, 0.5], url=list("xyz"))}},
            ResponseMapping(hits="response.docs", id="id", score="score", text="content_txt", document="url"),
        ),
        (
            {"results": [{"hits": rows("text", id=["a", "b", "c"])}]},
            ResponseMapping(hits="results[0].hits", id="id", text="text"),
        ),
        (
            {"groups": [{"hits": rows("text", id=["a", "b", "c"])}, {"hits": rows("text", id=["d", "e", "f"])}]},
            ResponseMapping(hits="groups[].hits[]", id="id", text="text"),
        ),
        (
            {
                "nodes": [
                    {"node": {"id_": f"n{at}", "text": text}, "score": 0.5 - at / 8} for at, text in enumerate(PROSE)
                ]
            },
            ResponseMapping(hits="nodes", id="node.id_", score="score", text="node.text"),
        ),
        (
            {"ids": ["a", "b", "c"], "texts": list(PROSE), "scores": [0.9, 0.8, 0.7], "took": 5},
            ResponseMapping(hits=None, id="ids", score="scores", text="texts"),
        ),
        (
            {"data": {"passages": list(PROSE), "files": ["a.md", "b.md", None]}},
            ResponseMapping(hits=None, text="data.passages", document="data.files"),
        ),
        ({"context": list(PROSE)}, ResponseMapping(hits="context", text="@")),
        (list(PROSE), ResponseMapping(hits="@", text="@")),
        ({"retrieved": {"context": " ".join(PROSE)}}, ResponseMapping(hits=None, text="retrieved.context")),
        (" ".join(PROSE), ResponseMapping(hits=None, text="@")),
        (
            {"content": [{"type": "text", "text": text} for text in PROSE], "isError": False},
            ResponseMapping(hits="content", text="text"),
        ),
        (
            {"odd key": rows("chunk text", **{"doc-id": ["a", "b", "c"], "a.b": [0.9, 0.8, 0.7]})},
            ResponseMapping(hits='"odd key"', id='"doc-id"', score='"a.b"', text='"chunk text"'),
        ),
        (
            {"results": rows("text", highlights=[["a"], ["b"], ["c"]], url=[["x.md"], ["y.md"], ["z.md"]])},
            ResponseMapping(hits="results", text="text", document="url[0]"),
        ),
        (
            {"items": rows("notes", ref=["k-1", "k-2", "k-3"], closeness=[0.91, 0.52, 0.13])},
            ResponseMapping(hits="items", id="ref", score="closeness", text="notes"),
        ),
    ]:
        assert best(answer).mapping == mapping, answer


def test_hits_paired_with_their_scores_are_understood() -> None:
    """So are LangChain's `similarity_search_with_score` and its like, whichever comes first."""
    pairs = [[{"page_content": text, "metadata": {"id": f"c{at}"}}, 0.5] for at, text in enumerate(PROSE)]
    mapping = ResponseMapping(hits="@", id="[0].metadata.id", score="[1]", text="[0].page_content")
    assert best(pairs).mapping == mapping
    assert best(pairs).reasons["score"] == "the number beside each hit, a number"
    turned = {"results": [[score, hit] for hit, score in pairs]}
    mapping = ResponseMapping(hits="results", id="[1].metadata.id", score="[0]", text="[1].page_content")
    assert best(turned).mapping == mapping
    assert best([[text, 0.5] for text in PROSE]).mapping == ResponseMapping(hits="@", score="[1]", text="[0]")


@pytest.mark.parametrize("answer", [[[0.5, 0.25]] * 3, [[{}, 0.5], [{}, 0.25, 1]], [[{}, True]], [["a", "b"]], [[]]])
def test_what_is_no_pair_of_a_hit_and_its_score_is_not_taken_for_one(answer: Any) -> None:
    assert suggest_mappings(answer) == []


@pytest.mark.parametrize("count", [1, 3])
def test_hits_under_their_ids_are_read_as_columns_of_all_of_them(count: int) -> None:
    hits = {
        f"hr/leave.md#{at}": {"text": text, "score": 0.9 - at / 4, "meta": {"file": f"{at}.md"}, "tags": ["x"]}
        for at, text in enumerate(PROSE[:count])
    }
    (suggestion,) = suggest_mappings({"docs": hits, "took": 3})
    assert suggestion.mapping == ResponseMapping(
        hits=None, id="keys(docs)", score="docs.*.score", text="docs.*.text", document="docs.*.meta.file"
    )
    ranking = read(suggestion, {"docs": hits}).ranking
    assert ranking.ids == tuple(hits)
    assert (ranking.texts, ranking.documents) == (PROSE[:count], tuple(f"{at}.md" for at in range(count)))
    assert best(hits).mapping.id == "keys(@)"


def test_objects_that_are_not_alike_are_no_hits() -> None:
    models = {"m-1": {"url": "http://a/", "title": "a"}, "m-2": {"url": "http://b/", "title": "b"}}
    assert suggest_mappings({"models": models}) == []
    answer = {"query": {"text": "logs"}, "best": {"hits": rows("text", id=["a", "b", "c"])}}
    assert best(answer).mapping == ResponseMapping(hits="best.hits", id="id", text="text")
    named = {"dense": {"hits": rows("text", id=["a", "b", "c"])}, "sparse": {"hits": rows("text", id=["d", "e", "f"])}}
    assert {one.mapping.hits for one in suggest_mappings(named)} == {"dense.hits", "sparse.hits"}


@pytest.mark.parametrize("ranks", [[0, 1, 2], [1, 2, 3], ["0", "1", "2"]])
def test_an_id_that_only_counts_the_hits_gives_way_to_another(ranks: list[Any]) -> None:
    entities = [
        {"pk": rank, "entity": {"ref": f"r-{rank}", "text": text}} for rank, text in zip(ranks, PROSE, strict=True)
    ]
    assert best({"hits": entities}).mapping.id == "entity.ref"
    assert best({"hits": rows("text", pk=[7, 8, 9])}).reasons["id"] == "named pk, different in each of 3 hits"
    suspect = best({"hits": rows("text", pk=ranks)})
    assert suspect.mapping.id == "pk"
    assert suspect.reasons["id"].endswith("but only as the hits are counted: it may be the rank")


def test_scores_written_as_text_are_no_column_that_could_be_read() -> None:
    answer = {"ids": ["a", "b", "c"], "texts": list(PROSE), "scores": ["0.9", "0.8", "0.7"]}
    assert best(answer).mapping == ResponseMapping(hits=None, id="ids", text="texts")
    assert (
        best({"hits": rows("text", id=["a", "b", "c"], score=["0.9", "0.8", "0.7"])}).mapping.score
        == "to_number(score)"
    )


def test_times_are_found_where_they_can_be_read() -> None:
    stamps = ["2026-01-31T12:00:00Z", "2025-12-01", None]
    answer = {"results": rows("text", id=["a", "b", "c"], last_modified=stamps, timestamp=[12.5, 80.0, 190.25])}
    suggestion = best(answer)
    assert suggestion.mapping.updated == "last_modified"
    assert suggest_mappings({"results": rows("text", timestamp=[12.5, 80.0, 190.25])})[0].mapping.updated is None


def test_the_scale_of_scores_is_told_by_their_order() -> None:
    for name, scores, scale in [
        ("score", [0.9, 0.5, 0.1], Scale.SIMILARITY),
        ("score", [0.9, 0.5, -0.1], Scale.COSINE),
        ("score", [12.5, 3.5, 0.1], None),
        ("score", [0.1, 0.5, 0.9], Scale.DISTANCE),
        ("distance", [0.1, 0.5, 1.9], Scale.DISTANCE),
        ("distance", [0.9, 0.5, 0.1], Scale.COSINE),
        ("distance", [0.9, 0.5, -0.1], Scale.COSINE),
        ("distance", [1.3, 1.5, 1.9], None),  # a relevance of 0.43, by which every canary would be degraded
        ("score", [0.4, 0.3, 0.1], None),
        ("distance", [-0.9, -0.5, 0.1], None),
        ("distance", [0.5, 0.5, 0.5], Scale.DISTANCE),
    ]:
        assert best({"results": rows("text", **{name: scores})}).scale is scale, name


def test_a_field_that_only_repeats_the_query_is_none() -> None:
    answer = {"results": rows("chunk", text=["How long are logs kept in the archive, and where?"] * 3)}
    assert best(answer, query=answer["results"][0]["text"]).mapping.text == "chunk"


def test_texts_that_speak_of_the_query_come_first() -> None:
    other = ["The weather in the mountains is pleasant at this time of the year."] * 3
    answer = {"a": [{"text": text} for text in other], "b": [{"text": text} for text in PROSE]}
    assert best(answer, query="How long are logs kept in the archive tier?").mapping.hits == "b"


def test_an_id_that_several_hits_share_is_not_taken() -> None:
    answer = {"results": rows("text", file_id=["f1", "f1", "f2"], tenant_id=["t", "t", "t"])}
    assert best(answer).mapping == ResponseMapping(hits="results", text="text", document="file_id")


def test_a_field_missing_in_one_hit_is_no_id_and_no_score() -> None:
    answer = {"results": rows("text", id=["a", None, "c"], score=[0.9, None, 0.1])}
    assert best(answer).mapping == ResponseMapping(hits="results", text="text")


def test_a_text_within_hits_is_no_suggestion_of_its_own() -> None:
    assert len(suggest_mappings({"results": [{"id": "a", "text": PROSE[0]}]})) == 1


def test_every_field_comes_with_its_reason() -> None:
    suggestion = best({"results": rows("text", id=["a", "b", "c"], score=[0.9, 0.5, 0.1], source=["x", "y", "z"])})
    assert suggestion.reasons == {
        "hits": "a list of 3 objects",
        "text": "named text, long natural text, 79 characters on average",
        "id": "named id, different in each of 3 hits",
        "score": "named score, a number, falling from 0.9 to 0.1",
        "document": "named source, short",
    }


def test_nothing_is_made_up() -> None:
    cases: list[Any] = [
        None,
        True,
        5,
        "",
        "short",
        [],
        {},
        [[]],
        {"results": []},
        {"count": 0},
        {"error": {"message": " ".join(PROSE)}},
        {"results": [{"score": 0.5}, {"score": 0.4}]},
        {"embedding": [0.1, 0.2, 0.3]},
        {"ids": [[]], "documents": None},
    ]
    for answer in cases:
        assert suggest_mappings(answer) == [], answer


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("@search.rerankerScore", "search_reranker_score"),
        ("IDs", "id"),
        ("_id", "id"),
        ("entries", "entry"),
        ("__", ""),
    ],
)
def test_names_are_compared_in_one_spelling(name: str, plain: str) -> None:
    assert normalize_name(name) == plain


KEYS = st.sampled_from(
    [
        "id",
        "ids",
        "score",
        "distances",
        "text",
        "documents",
        "metadata",
        "source",
        "results",
        "data",
        "",
        'a"b',
        "ü",
        "\ud800",
    ]
)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None), max_size=5)
    | st.sampled_from([*PROSE, "a", "b", "https://example.org/a", "2026-01-31", 10**400, "x" * 3_000, "0.5"])
)
ANYTHING = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.lists(st.fixed_dictionaries({"id": VALUES, "text": VALUES}, optional={"score": VALUES, "meta": inner}))
        | st.fixed_dictionaries({"ids": st.lists(VALUES, max_size=3), "documents": st.lists(VALUES, max_size=3)})
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@example(answer={"id": ["\x00"]}, query="")
@example(answer=[{"id": "\ud800", "text": PROSE[0]}], query="")
@example(answer={"id": None, "\ud800": [{"id": 0, "text": None}]}, query="")  # half a character as a field's name
@example(
    answer={key: {"ids": [], "texts": texts} for key, texts in (("x", []), ("y", [0]), ("z", [PROSE[0]]))}, query=""
)
@example(
    answer=[{"id": 1, "text": None, "meta": ["a"]}, {"id": 0, "text": None, "meta": [{"id": None, "text": None}]}],
    query="",
)
@example(  # a text in one hit, and something else of that name in another
    answer=[{"id": 1, "meta": {"text": PROSE[0]}}, {"id": 2, "meta": {"text": []}}, {"id": 3, "meta": {"text": {}}}],
    query="",
)
@given(answer=ANYTHING, query=st.sampled_from(["", "logs", PROSE[0]]))
def test_every_suggestion_reads_hits_whatever_the_answer(answer: Any, query: str) -> None:
    found = suggest_mappings(answer, query=query)
    assert len(found) <= MAX_SUGGESTIONS
    for suggestion in found:
        ranking = read(suggestion, answer).ranking
        assert ranking.returned == suggestion.hits > 0
        assert set(suggestion.reasons) == {"hits"} | {
            name for name in ("id", "score", "text", "document", "updated") if getattr(suggestion.mapping, name)
        }


def test_a_deep_or_wide_answer_is_no_burden() -> None:
    deep: Any = [{"text": PROSE[0]}]
    for _ in range(200):
        deep = {"a": [deep]}
    assert suggest_mappings(deep) == []
    wide = {f"k{at}": {"a": [{f"f{at}": at for at in range(100)}] * 3} for at in range(100)}
    assert suggest_mappings(wide) == []
    assert best([{"text": PROSE[0], "id": at} for at in range(5_000)][:200]).hits == 200


ASKED = "How long are logs kept?"
FOUND = [{"key": f"doc-{name}", "closeness": 0.9, "body": f"{PROSE[0]} Part {name}."} for name in "abc"]
ANSWERS: dict[str, Any] = {"plain": {"found": FOUND}, **{name: shape.answer for name, shape in SHAPES.items()}}


def described(**more: Any) -> RetrieverDocument:
    """Give a retriever of the generic preset, whose own mapping names `index` as the index version."""
    return RetrieverDocument.model_validate({"slug": "docs", "url": "http://search.test/", **more})


def test_a_suggestion_names_only_paths_that_are_in_the_answer() -> None:
    for name, answer in ANSWERS.items():
        for one in suggestion_views(described(), answer, ASKED):
            paths = {field: path for field, path in one["response"].items() if path is not None}
            hits = paths.pop("hits", None)
            version = paths.pop("index_version", None)
            signs = [path for field in ("error", "partial") for path in paths.pop(field, "").split(" || ") if path]
            assert all(path.split(".")[0] in answer for path in signs), signs
            within = [answer] if hits is None else jmespath.search(hits, answer)
            assert version is None or jmespath.search(version, answer) is not None, name
            for path in paths.values():
                assert any(jmespath.search(path, hit) not in (None, []) for hit in within), path
            missing = {name: f"no {name} was recognised; write its path" for name in {"id", "text"} - paths.keys()}
            assert one["reasons"].keys() <= {"hits", *paths, *missing}, name
            assert missing.items() <= one["reasons"].items(), name


def test_the_index_version_of_the_preset_is_suggested_only_where_the_answer_has_it() -> None:
    (bare, *_) = suggestion_views(described(), {"found": FOUND}, ASKED)
    assert "index_version" not in bare["response"]
    assert "index" not in bare["yaml"]
    (with_it, *_) = suggestion_views(described(), {"found": FOUND, "index": "v7"}, ASKED)
    assert with_it["response"]["index_version"] == "index"
    own = described(response={"id": "id", "index_version": "header:x-index"})
    assert suggestion_views(own, {"found": FOUND}, ASKED)[0]["response"]["index_version"] == "header:x-index"


def test_the_first_suggestion_reads_the_answer_without_a_remark() -> None:
    (first, *_) = suggestion_views(described(), {"found": FOUND}, ASKED)
    read = described(response=first["response"], scorer=first["scorer"] or {})
    trial = try_answer(read_pasted, read, json.dumps({"found": FOUND}), ASKED, k=5)
    assert (trial["outcome"], len(trial["hits"]), trial["remarks"]) == (Outcome.OK, 3, [])
