"""Response mappings: what is read, what is refused, and that the two ways of reading agree."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.values import Ranking
from app.retrievers.client.answer_fields import Paths, compile_typed_reader
from app.retrievers.client.compiled_retriever import ID_LENGTH, TEXT_LENGTH, Reader, Reading
from app.retrievers.client.responses import MalformedError
from app.retrievers.domain.retrievers import SCALE_RANGES, ResponseMapping, Scale

FULL = ResponseMapping(
    hits="results", id="id", score="score", text="text", document="metadata.source", index_version="index"
)
ABSENT = "; if that means nothing found, set response.absent to empty"
BARE = ResponseMapping(hits="@", id="id", score="score", text="text")


def read(
    document: Any,
    mapping: ResponseMapping = FULL,
    *,
    max_hits: int = 10,
    scale: Scale | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reading:
    """Read a document given as a value, or as bytes."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Reader(mapping, max_hits, scale=scale).read(body, headers or {})


def hit(**fields: Any) -> dict[str, Any]:
    """Make a good hit, but for what is said."""
    return {"id": "a", "score": 0.5, "text": "t", "metadata": {"source": "doc"}, "extra": [1, {"x": None}]} | fields


def complaint(document: Any, mapping: ResponseMapping = FULL, **options: Any) -> str:
    """Read something malformed and return the sentence."""
    with pytest.raises(MalformedError) as caught:
        read(document, mapping, **options)
    return str(caught.value)


def test_everything_mapped_is_read_in_the_order_of_the_answer() -> None:
    reading = read({"index": "v7", "results": [hit(id="b", score=0.1), hit(id="a", score=0.9, text="u")]})
    assert reading.index_version == "v7"
    assert reading.ranking == Ranking(
        ids=("b", "a"), documents=("doc", "doc"), texts=("t", "u"), scores=(0.1, 0.9), returned=2
    )


def test_a_list_alone_is_read_too() -> None:
    for hits in ("@", ""):
        mapping = ResponseMapping(hits=hits, id="id", score="score", text="text")
        assert read([hit()], mapping).ranking.ids == ("a",)


def test_empty_answer_is_an_empty_ranking() -> None:
    assert read({"results": []}).ranking == Ranking(ids=(), documents=(), texts=(), scores=(), returned=0)


def test_unmapped_fields_are_none() -> None:
    ranking = read([hit()], ResponseMapping(hits="@", id="id")).ranking
    assert (ranking.scores, ranking.texts, ranking.documents) == ((None,), (None,), (None,))


def test_whole_numbers_are_ids_and_documents() -> None:
    ranking = read({"results": [hit(id=7, metadata={"source": -12}), hit(id=2**70)]}).ranking
    assert ranking.ids == ("7", "1180591620717411303424")
    assert ranking.documents == ("-12", "doc")


@pytest.mark.parametrize("metadata", [{}, {"source": None}, None, "text", [], 5])
def test_missing_text_and_document_are_none(metadata: Any) -> None:
    ranking = read({"results": [hit(text=None, metadata=metadata), {"id": "b", "score": 1}]}).ranking
    assert (ranking.texts, ranking.documents) == ((None, None), (None, None))


def test_hits_beyond_the_asked_are_ignored_before_duplicates_are_dropped() -> None:
    hits = [hit(id="a", score=0.9), hit(id="b"), hit(id="a", score=0.1, text="second"), hit(id="c"), {"broken": True}]
    ranking = read({"results": hits}, max_hits=3).ranking
    assert (ranking.ids, ranking.scores, ranking.texts) == (("a", "b"), (0.9, 0.5), ("t", "t"))
    assert ranking.documents == ("doc", "doc")
    assert ranking.returned == 3
    assert ranking.duplicate_ratio == 1 / 3


def test_hits_without_ids_are_named_by_their_text() -> None:
    mapping = ResponseMapping(hits="@", text="text")
    first, second = read([hit(text="one"), hit(text="two"), hit(text="one")], mapping).ranking.ids
    assert first != second
    assert first.startswith("text:")
    assert len(first) == len("text:") + 16
    assert read([hit(text="one")], mapping).ranking.ids == (first,)
    assert complaint([hit(), hit(text=None)], mapping) == "[1].text: missing, and there is no id"


def test_text_only_answers_are_read() -> None:
    ranking = read({"chunks": ["one", "two"]}, ResponseMapping(hits="chunks", text="@")).ranking
    assert ranking.texts == ("one", "two")
    assert complaint({"chunks": ["one", 2]}, ResponseMapping(hits="chunks", text="@")) == "chunks[1]: not a string"


@pytest.mark.parametrize(("context", "texts"), [("all of it", ("all of it",)), ("", ())])
@pytest.mark.parametrize(
    "mapping", [ResponseMapping(hits="context", text="@"), ResponseMapping(hits=None, text="context")]
)
def test_a_lone_text_is_one_hit_and_an_empty_one_is_none(
    mapping: ResponseMapping, context: str, texts: tuple[str, ...]
) -> None:
    assert read({"context": context}, mapping).ranking.texts == texts
    assert read({"context": None}, mapping).ranking.ids == ()
    field = "hits" if mapping.hits else "text"
    assert complaint({}, mapping) == f"context: missing, though response.{field} is mapped to it{ABSENT}"


def test_content_blocks_are_texts() -> None:
    """As language models and tools write them; what is not text in them is left out."""
    blocks = [{"type": "text", "text": "one"}, {"type": "image", "data": "..."}, {"type": "text", "text": "two"}]
    assert read({"data": [{"content": blocks}]}, ResponseMapping(hits="data", text="content")).ranking.texts == (
        "one\ntwo",
    )
    for mapping in (ResponseMapping(hits="content", text="@"), ResponseMapping(hits=None, text="content")):
        assert read({"content": [blocks[0], blocks[2]]}, mapping).ranking.texts == ("one", "two")
        assert "missing, and there is no id" in complaint({"content": [blocks[1]]}, mapping)


def test_expressions_beyond_plain_paths_are_read() -> None:
    mapping = ResponseMapping(
        hits="hits.hits[?_score > `0.2`]",
        id="_id",
        score="_score",
        text="join(' ', _source.lines)",
        document='"doc-id"',
    )
    body = {
        "hits": {
            "hits": [{"_id": 1, "_score": n / 10, "_source": {"lines": ["a", "b"]}, "doc-id": "d"} for n in (1, 3)]
        }
    }
    ranking = read(body, mapping).ranking
    assert (ranking.ids, ranking.scores, ranking.texts, ranking.documents) == (("1",), (0.3,), ("a b",), ("d",))


def test_malformed_answer_is_explained_by_its_path() -> None:
    for document, sentence in [
        (b"", "the answer is empty"),
        (b" \n", "the answer is empty"),
        (b"<!doctype html><p>Bad Gateway", "the answer is HTML or XML, not JSON"),
        (b"oops", "the answer is not JSON: \u201coops\u201d"),
        (b'{"results": [', "the answer is not JSON"),
        (b"\xff\xfe\x00", "the answer is not UTF-8"),
        (b"[" * 100_000, "the answer is nested more than 1,000 levels deep"),
        ({}, f"results: missing, though response.hits is mapped to it{ABSENT}"),
        ([], f"results: missing, though response.hits is mapped to it{ABSENT}"),
        ("text", f"results: missing, though response.hits is mapped to it{ABSENT}"),
        ({"results": {"a": 1}}, "results: not a list, though response.hits is mapped to it"),
        ({"results": [hit(), {}]}, "results[1].id: missing"),
        ({"results": ["a"]}, "results[0].id: missing"),
        ({"results": [None]}, "results[0].id: missing"),
        ({"results": [hit(id=None)]}, "results[0].id: missing"),
        ({"results": [hit(id="")]}, "results[0].id: empty"),
        ({"results": [hit(id=1.5)]}, "results[0].id: neither a string nor a whole number"),
        ({"results": [hit(id=1.0)]}, "results[0].id: neither a string nor a whole number"),
        ({"results": [hit(id=True)]}, "results[0].id: neither a string nor a whole number"),
        ({"results": [hit(id=["a"])]}, "results[0].id: neither a string nor a whole number"),
        ({"results": [hit(id="x" * (ID_LENGTH + 1))]}, "results[0].id: longer than 2,048 characters, hardly an id"),
        ({"results": [hit(), hit(), hit(), {"id": "d"}]}, "results[3].score: missing"),
        ({"results": [hit(score=None)]}, "results[0].score: missing"),
        ({"results": [hit(score="0.5")]}, "results[0].score: not a number"),
        ({"results": [hit(score=True)]}, "results[0].score: not a number"),
        ({"results": [hit(score=[0.5])]}, "results[0].score: not a number"),
        (b'{"results": [{"id": "a", "score": NaN}]}', "results[0].score: not a finite number"),
        (b'{"results": [{"id": "a", "score": -Infinity}]}', "results[0].score: not a finite number"),
        (b'{"results": [{"id": "a", "score": 1e999}]}', "results[0].score: not a finite number"),
        (b'{"results": [{"id": "a", "score": 1%s}]}' % (b"0" * 400), "results[0].score: not a finite number"),
        (b'{"results": [{"id": "a", "score": 1%s}]}' % (b"0" * 5000), "results[0].score: not a finite number"),
        ({"results": [hit(text=["t"])]}, "results[0].text: not a string"),
        (
            {"results": [hit(metadata={"source": {}})]},
            "results[0].metadata.source: neither a string nor a whole number",
        ),
        (
            {"results": [hit(metadata={"source": "x" * 3000})]},
            "results[0].metadata.source: longer than 2,048 characters, hardly an id",
        ),
    ]:
        assert complaint(document) == sentence, document


def test_list_alone_is_explained_too() -> None:
    assert complaint({"results": []}, BARE) == "the answer: not a list, though response.hits is mapped to it"
    assert complaint([hit(), {}], BARE) == "[1].id: missing"


def test_expression_that_does_not_fit_is_malformed() -> None:
    mapping = ResponseMapping(hits="@", id="id", score="to_number(score)", text="join('', text)")
    assert complaint([hit(text=5)], mapping) == "[0].join('', text): the expression does not fit the answer"
    mapping = ResponseMapping(hits="sort_by(@, &score)", id="id")
    assert complaint([hit(), hit(score="x")], mapping) == "hits: the expression does not fit the answer"


@pytest.mark.parametrize(
    ("scale", "good", "bad"),
    [
        (Scale.SIMILARITY, [0, 1, 1.0 + 9e-7, -9e-7], [1.01, -0.01, 1.0 + 2e-6]),
        (Scale.COSINE, [-1, 1, -1.0 - 9e-7], [1.01, -1.01]),
        (Scale.DISTANCE, [0, 1e300, -9e-7], [-0.01]),
        (Scale.LOGIT, [-1e300, 1e300], []),
        (Scale.UNBOUNDED, [0, 1e300], [-0.01]),
    ],
)
def test_score_outside_its_scale_is_malformed(scale: Scale, good: list[float], bad: list[float]) -> None:
    for score in good:
        assert read([hit(score=score)], BARE, scale=scale).ranking.scores == (score,)
    for score in bad:
        sentence = complaint([hit(score=good[0]), hit(score=score)], BARE, scale=scale)
        assert sentence == f"[1].score: outside the declared scale, {scale}, which is {SCALE_RANGES[scale]}"


def test_what_databases_refuse_is_replaced() -> None:
    assert complaint({"results": [hit(), hit(id="a\0")]}) == "results[1].id: holds a character that cannot be stored"
    body = rb'{"results": [{"id": "a", "score": 1, "text": "x\u0000\ud800y", "metadata": {"source": "\udfff"}}]}'
    ranking = read(body).ranking
    assert (ranking.ids, ranking.texts, ranking.documents) == (("a",), ("x\ufffd\ufffdy",), ("\ufffd",))


def test_a_byte_order_mark_does_not_cost_the_measurement_and_broken_utf_8_is_malformed() -> None:
    body = '\ufeff{"results": [{"id": "a", "score": 1, "text": "café"}]}'
    assert read(body.encode()).ranking.texts == ("café",)
    assert complaint(body.encode().replace(b"\xc3\xa9", b"\xe9")) == "the answer is not UTF-8"


def test_long_text_is_cut_but_named_in_full() -> None:
    mapping = ResponseMapping(hits="@", text="text")
    ranking = read([hit(text="x" * TEXT_LENGTH + "1"), hit(text="x" * TEXT_LENGTH + "2")], mapping).ranking
    assert ranking.texts == ("x" * TEXT_LENGTH,) * 2
    assert len(set(ranking.ids)) == 2


def test_index_version_is_a_string_or_number_else_nothing() -> None:
    for value, version in [
        ("v1", "v1"),
        (20240101, "20240101"),
        (1.5, "1.5"),
        (None, None),
        ("", None),
        (True, None),
        ({"v": 1}, None),
        ("a\0", "a\ufffd"),
    ]:
        assert read({"index": value, "results": []}).index_version == version, value


def test_index_version_may_stand_in_a_header() -> None:
    mapping = ResponseMapping(hits="@", id="id", index_version="header:X-Index-Version")
    assert Reader(mapping, 10).wants_headers
    assert not Reader(BARE, 10).wants_headers
    assert read([], mapping, headers={"x-index-version": "v9"}).index_version == "v9"
    assert read([], mapping).index_version is None


def test_index_version_beside_a_list_alone_is_nothing() -> None:
    assert read([hit()], ResponseMapping(hits="@", id="id", index_version="index")).index_version is None


@pytest.mark.parametrize(
    ("mapping", "sentence"),
    [
        (ResponseMapping(hits="a[", id="id"), "hits: not a JMESPath expression"),
        (ResponseMapping(hits="a", id=""), "id: not a JMESPath expression"),
        (ResponseMapping(hits="a", id="id", score="a b"), "score: not a JMESPath expression"),
        (ResponseMapping(hits="a", id="id", index_version="header: "), "index_version: "),
        (ResponseMapping(hits="a", score="score"), "id: either id or text must be mapped"),
    ],
)
def test_bad_mapping_is_refused_naming_the_field(mapping: ResponseMapping, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^" + sentence.replace("[", r"\[")):
        Reader(mapping, 10)


@pytest.mark.parametrize(
    "mapping",
    [
        FULL,
        BARE,
        ResponseMapping(hits="a.b.c", id="meta.id", score="meta.score", text='"page content"', document="meta.id"),
        ResponseMapping(hits="data", text="text"),
        ResponseMapping(hits="data", id="class", document="url", index_version="data2.version"),
        ResponseMapping(hits="data", id="id", updated="meta.at"),
    ],
)
def test_plain_mappings_take_the_fast_way(mapping: ResponseMapping) -> None:
    assert compile_typed_reader(Paths.of(mapping), 10) is not None


MAPPINGS = [
    FULL,
    BARE,
    ResponseMapping(hits="results", id="id", document="id", text="text"),
    ResponseMapping(hits="results", text="text", score="score"),
    ResponseMapping(hits="results", id="metadata.source", document="metadata.source", text="metadata.text"),
    ResponseMapping(hits="@", text="text", document="id"),
    ResponseMapping(hits="metadata.results", id="id", index_version="metadata.index"),
    ResponseMapping(hits="results", id="id", updated="score"),
    ResponseMapping(hits="results", id="id", updated="metadata.text", score="score"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5)
    | st.sampled_from(["", "a", "b", 0, 1, 0.5, -0.0, 1e308, 10**400, 2**64, "\0", "\ud800", "x" * (ID_LENGTH + 1)])
)
KEYS = st.sampled_from(["id", "score", "text", "metadata", "source", "other", "results", "index"])
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
GOOD = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["a", "b", "c", 1, "ü"]),
        "score": st.floats(0, 1) | st.integers(0, 1),
        "text": st.text(max_size=5) | st.just("\0"),
        "metadata": st.fixed_dictionaries(
            {"source": st.sampled_from(["d", 3])}, optional={"text": st.none() | st.text(max_size=5)}
        ),
    },
    optional={"other": ANYTHING},
)
BAD = st.builds(lambda good, bad: good | bad, GOOD, st.dictionaries(KEYS, ANYTHING, max_size=2)) | ANYTHING
DAMAGE = st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"]", b"\\u0000", b"\\ud800", b"1e999", b",", b"NaN"])


@st.composite
def bodies(draw: st.DrawFn, mapping: ResponseMapping) -> bytes:
    """Answers for a mapping as bytes: good ones, odd ones, JSON as Python writes it, damaged JSON."""
    kind = draw(st.sampled_from(["good", "odd", "damaged", "anything"]))
    answer: Any = draw(ANYTHING if kind == "anything" else st.lists(BAD | GOOD if kind == "odd" else GOOD, max_size=5))
    if kind != "anything" and mapping.hits not in {None, "@"}:
        for step in reversed(str(mapping.hits).split(".")):
            answer = {"index": draw(SCALARS), "other": draw(ANYTHING), step: answer}
    body = json.dumps(answer, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    if kind == "damaged":
        at, gone = draw(st.integers(0, len(body))), draw(st.integers(0, 3))
        body = body[:at] + draw(DAMAGE) + body[at + gone :]
    return body


def outcome(reader: Reader, body: bytes) -> Reading | str:
    """Read, with a complaint as a value."""
    try:
        return reader.read(body, {})
    except MalformedError as error:
        return str(error)


@settings(max_examples=200)
@given(data=st.data(), mapping=st.sampled_from(MAPPINGS), scale=st.sampled_from([None, Scale.SIMILARITY]))
def test_both_ways_of_reading_agree_and_never_raise(
    data: st.DataObject, mapping: ResponseMapping, scale: Scale | None
) -> None:
    """Whatever the bytes, the fast way says what the generic way says, and what is read can be stored."""
    body = data.draw(bodies(mapping))
    fast, slow = (Reader(mapping, 3, scale=scale) for _ in range(2))
    slow._read_typed = None
    found = outcome(fast, body)
    assert found == outcome(slow, body)
    if isinstance(found, Reading):
        ranking = found.ranking
        columns = (ranking.ids, ranking.documents, ranking.texts, ranking.scores)
        assert {len(column) for column in columns} == {len(set(ranking.ids))}
        assert len(ranking) <= ranking.returned <= 3
        for text in (*ranking.ids, *ranking.documents, *ranking.texts, found.index_version):
            assert text is None or "\0" not in text.encode().decode()


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_field_names_with_quotes_and_the_like_can_be_mapped(name: str) -> None:
    mapping = ResponseMapping(hits=json.dumps(name), id=json.dumps(name))
    body = json.dumps({name: [{name: "x"}]}).encode()
    assert Reader(mapping, 5).read(body, {}).ranking.ids == ("x",)
