"""The bundled corpus, the shipped canaries over it, and how other corpora are read."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.demo.corpus import CorpusError, cut, near_copy, read_corpus, stem, terms
from tests.support.demo_suite import canaries, document, satisfies

CORPUS = read_corpus()
CATEGORIES = {"simple_factual", "complex_factual", "procedural", "entity_centric", "comparative", "negative"}


def test_bundled_corpus_is_a_documentation_of_many_pages_and_topics() -> None:
    assert 80 <= len(CORPUS) <= 120
    assert len({chunk.id for chunk in CORPUS}) == len(CORPUS)
    topics = Counter(chunk.topic for chunk in CORPUS)
    assert 12 <= len(topics) <= 15
    assert all(6 <= passages <= 9 for passages in topics.values())
    assert {"retention_policy_doc", "oauth2_config_doc"} <= {chunk.id for chunk in CORPUS}


def test_every_bundled_passage_is_whole() -> None:
    for chunk in CORPUS:
        assert chunk.title, chunk.id
        assert chunk.document.count("/") == 1, chunk.id
        assert 55 <= len(chunk.text.split()) <= 150, chunk.id
        assert chunk.text.endswith("."), chunk.id
    assert len({chunk.text for chunk in CORPUS}) == len(CORPUS)


def test_canaries_cover_all_categories_and_every_topic_three_times() -> None:
    shipped = canaries()
    assert 60 <= len(shipped) <= 100
    assert len({canary.key for canary in shipped}) == len({canary.query for canary in shipped}) == len(shipped)
    categories = Counter(canary.category for canary in shipped)
    assert set(categories) == CATEGORIES
    assert 8 <= categories["negative"] <= 12
    asked = Counter(
        topic
        for canary in shipped
        for topic in {chunk.topic for chunk in CORPUS for judgment in canary.expected if satisfies(chunk, judgment)}
    )
    assert set(asked) == {chunk.topic for chunk in CORPUS}
    assert min(asked.values()) >= 3


def test_every_judgment_of_the_canaries_exists_in_the_corpus() -> None:
    for canary in canaries():
        assert bool(canary.expected) is not canary.negative, canary.key
        for judgment in canary.expected + canary.forbidden:
            assert any(satisfies(chunk, judgment) for chunk in CORPUS), (canary.key, judgment)
            assert 0 <= judgment.get("grade", 1) <= 3


def test_the_two_canaries_of_the_original_description_are_there() -> None:
    by_query = {canary.query: canary for canary in canaries()}
    retention = by_query["What is DataForge's data retention policy?"]
    assert (retention.expected, retention.least) == (({"id": "retention_policy_doc"},), 0.85)
    oauth2 = by_query["How do I configure OAuth2 authentication?"]
    best = max(oauth2.expected, key=lambda judgment: judgment["grade"])
    assert (best["id"], oauth2.least) == ("oauth2_config_doc", 0.80)


def test_the_canary_file_defines_retriever_check_and_hook_that_belong_together() -> None:
    shipped = document()
    (check,) = shipped["checks"]
    assert check["suite"] == shipped["suite"] == "dataforge"
    assert check["retriever"] == shipped["retrievers"][0]["slug"] == "docs-search"
    assert check["hooks"] == [shipped["hooks"][0]["slug"]] == ["ops"]
    assert shipped["retrievers"][0]["url"] == "http://127.0.0.1:8001/search"


def test_several_files_plain_or_compressed_make_one_corpus(tmp_path: Path) -> None:
    plain = tmp_path / "a.jsonl"
    plain.write_text('{"id": "a", "text": "One.", "document": "p", "title": "T", "topic": "x"}\n\n', encoding="utf-8")
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress('{"doc_id": "b", "text": "Zwölf."}\n'.encode()))
    first, second = read_corpus([plain, packed])
    assert (first.id, first.document, first.title, first.topic) == ("a", "p", "T", "x")
    assert (second.id, second.document, second.title, second.text) == ("b", "b", "", "Zwölf.")


def test_passages_without_text_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "hollow.jsonl"
    path.write_text('{"id": "a", "text": ""}\n{"id": "b", "text": "B."}\n', encoding="utf-8")
    assert [chunk.id for chunk in read_corpus([path])] == ["b"]


def test_texts_are_cut_into_numbered_chunks_of_their_document(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps({"doc_id": "d", "text": "One two three. Four five. Six."}), encoding="utf-8")
    chunks = read_corpus([path], chunk_characters=16)
    assert [(chunk.id, chunk.document, chunk.text) for chunk in chunks] == [
        ("d#0", "d", "One two three."),
        ("d#1", "d", "Four five. Six."),
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "no passages"),
        (b'{"id": "a", "text": "x"}\n{oops', ":2: not JSON"),
        (b'{"id": "a", "text": " "}', "no passages"),
        (b"[1]", ":1: expected an object"),
        (b'{"text": "x"}', ":1: needs an id"),
        (b'{"id": "a"}', ":1: needs a text"),
        (b'{"id": 7, "text": "x"}', ":1: 'id' must be a string"),
        (b'{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}', ":2: the id 'a' has come before"),
        (b'{"id": "a", "text": "\xff"}', ":1: not JSON in UTF-8"),
    ],
)
def test_bad_corpus_is_refused_with_its_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=complaint):
        read_corpus([path])


def test_unreadable_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read"):
        read_corpus([tmp_path / "absent.jsonl"])
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(b"not gzip")
    with pytest.raises(CorpusError, match="cannot be read"):
        read_corpus([broken])
    with pytest.raises(CorpusError, match="at least 1"):
        read_corpus(chunk_characters=0)


@given(st.text(alphabet="ab .;\n", max_size=200), st.integers(min_value=1, max_value=40))
def test_cutting_loses_no_word_and_keeps_the_limit(text: str, characters: int) -> None:
    pieces = cut(text, characters)
    assert " ".join(pieces).split() == text.split()
    assert all(len(piece) <= characters or len(piece.split()) == 1 for piece in pieces)


@pytest.mark.parametrize(
    "family",
    [
        ("configure", "configures", "configured", "configuring", "configuration"),
        ("authenticate", "authenticated", "authentication"),
        ("schedule", "schedules", "scheduled", "scheduling"),
        ("policy", "policies"),
        ("ship", "shipped", "shipping"),
        ("rotate", "rotated", "rotation"),
        ("month", "monthly"),
    ],
)
def test_forms_of_a_word_share_a_stem(family: tuple[str, ...]) -> None:
    assert len({stem(word) for word in family}) == 1


def test_unrelated_words_keep_apart() -> None:
    words = ["status", "state", "custom", "customer", "string", "need", "data", "oauth2", "access", "process"]
    assert len({stem(word) for word in words}) == len(words)


def test_terms_leave_out_how_a_question_is_asked() -> None:
    assert terms("How do I use the DataForge's \uff2fAuth2, please?") == ["dataforg", "oauth2"]


def test_near_copies_differ_in_text_and_agree_in_terms() -> None:
    text = CORPUS[0].text
    copies = {near_copy(text, variant) for variant in range(1, 6)}
    assert len(copies | {text}) == 6
    assert all(terms(copy) == terms(text) for copy in copies)
