"""What known texts say of an embedder: whether it is the one it was, and by name what happened to it."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.values import EmbedderChange, replace
from app.retrievers.domain.retrievers import (
    DEFAULT_CANARIES,
    EmbedderFinding,
    EmbeddingCanary,
    ReferenceVectors,
    ResponseMapping,
    Retriever,
    Scorer,
    ScorerKind,
    Vector,
    compare_embedder,
    cosine,
    distinct_texts,
    embedding_canaries,
    watched_embedder,
)
from tests.support.embedders import constant, embedder_at, vector

TEXTS = distinct_texts(DEFAULT_CANARIES)
WHERE = "embed.example"


def answers(model: str = "one", dimensions: int = 256) -> dict[str, Vector]:
    """Embed the known texts."""
    return {text: np.array(vector(text, model=model, dimensions=dimensions), dtype=np.float32) for text in TEXTS}


REFERENCE = ReferenceVectors(pairs=DEFAULT_CANARIES, vectors=answers())


def judged(now: Mapping[str, Vector], reference: ReferenceVectors = REFERENCE) -> EmbedderFinding:
    """Compare with the reference."""
    return compare_embedder(reference, now, where=WHERE)


def spoiled(spoil: object) -> dict[str, Vector]:
    """Embed the known texts and spoil the vectors."""
    assert callable(spoil)
    spoilt = spoil([vector.tolist() for vector in answers().values()])
    return {text: np.array(one, dtype=np.float32) for text, one in zip(TEXTS, spoilt, strict=True)}


def test_the_default_pairs_are_told_apart_by_shared_words_alone() -> None:
    similar = [pair.cosine for pair in judged(answers()).pairs if pair.similar]
    dissimilar = [pair.cosine for pair in judged(answers()).pairs if not pair.similar]
    assert len(similar) == len(dissimilar) == 3
    assert min(similar) > max(dissimilar)


@given(st.floats(1e-30, 1e30))
def test_the_length_of_vectors_says_nothing(factor: float) -> None:
    stretched = {text: one * np.float32(factor) for text, one in answers().items()}
    assert judged(stretched).kind is EmbedderChange.SAME


def test_half_precision_is_the_same_model() -> None:
    assert judged({text: one.astype(np.float16).astype(np.float32) for text, one in answers().items()}).kind is (
        EmbedderChange.SAME
    )


def test_another_model_of_other_dimensions_is_swapped_and_not_truncated() -> None:
    for dimensions in (64, 1_024):
        found = judged(answers("two", dimensions))
        assert found.kind is EmbedderChange.SWAPPED
        assert f"another model ({dimensions} dimensions instead of 256, cosine of known texts" in found.reason


def test_one_text_of_another_model_is_enough() -> None:
    text = TEXTS[3]
    assert judged(answers() | {text: answers("two")[text]}).kind is EmbedderChange.SWAPPED


@pytest.mark.parametrize("theirs", [2, 5, len(TEXTS) - 2])
def test_two_models_that_answer_in_turn_are_named_and_not_taken_for_one_that_tells_nothing_apart(theirs: int) -> None:
    others = answers("two")
    found = judged(answers() | {text: others[text] for text in TEXTS[::-1][:theirs]})
    assert found.kind is EmbedderChange.SWAPPED
    known = f"{len(TEXTS) - theirs} of {len(TEXTS)} known texts as before, {theirs} with cosine "
    assert f"the embedder at embed.example answers with vectors of two models: {known}" in found.reason


@pytest.mark.parametrize("dimensions", [255, 128, 8])
def test_a_truncated_model_is_named(dimensions: int) -> None:
    found = judged(answers(dimensions=dimensions))
    assert (found.kind, found.dimensions) == (EmbedderChange.TRUNCATED, dimensions)
    told = f"answers with truncated vectors: {dimensions} dimensions, the first ones of the 256 there were"
    assert found.reason == f"the embedder at embed.example {told}"


def test_longer_vectors_that_begin_alike_are_not_those_of_before() -> None:
    found = judged(answers(dimensions=512))
    assert found.kind is EmbedderChange.SWAPPED
    assert "512 dimensions, of which only the first 256 are those there were" in found.reason


@given(st.integers(0, 2**32))
def test_an_embedder_that_answers_noise_is_never_taken_for_the_one_it_was(seed: int) -> None:
    noise = np.random.default_rng(seed)
    found = judged({text: noise.standard_normal(256).astype(np.float32) for text in TEXTS})
    assert found.kind in {EmbedderChange.COLLAPSED, EmbedderChange.SWAPPED}


def test_pairs_that_never_were_told_apart_cannot_collapse() -> None:
    """A model for another language, say: it is held to how it answered, not to what it should have."""
    flat = ReferenceVectors(pairs=DEFAULT_CANARIES, vectors=spoiled(constant))
    assert judged(spoiled(constant), flat).kind is EmbedderChange.SAME
    assert judged(answers("two"), flat).kind is EmbedderChange.SWAPPED


def test_similar_pairs_alone_are_enough_to_notice_a_swap() -> None:
    pairs = tuple(pair for pair in DEFAULT_CANARIES if pair.similar)
    found = judged(answers("two"), replace(REFERENCE, pairs=pairs))
    assert (found.kind, len(found.pairs)) == (EmbedderChange.SWAPPED, 3)


def test_an_embedder_is_watched_by_its_own_pairs_or_by_general_ones() -> None:
    own = (EmbeddingCanary(key="own", texts=("a", "b"), similar=True),)
    assert embedding_canaries(embedder_at("http://e/")) == DEFAULT_CANARIES
    assert embedding_canaries(embedder_at("http://e/", canaries=own)) == own


def test_the_embedder_of_the_queries_is_watched_before_that_of_the_scorer() -> None:
    queries, scores = embedder_at("http://queries/"), embedder_at("http://scores/")
    scorer = Scorer(kind=ScorerKind.EMBEDDING, embedder=scores)
    plain = Retriever(slug="r", url="http://r/", response=ResponseMapping(hits="hits"), scorer=scorer)
    assert watched_embedder(plain) == scores
    assert watched_embedder(replace(plain, embedder=queries)) == queries
    assert watched_embedder(replace(plain, scorer=Scorer(kind=ScorerKind.JUDGED))) is None


def test_each_text_is_asked_once() -> None:
    assert len(TEXTS) == len(set(TEXTS)) < 2 * len(DEFAULT_CANARIES)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=8))
def test_a_cosine_never_leaves_its_interval(numbers: list[float]) -> None:
    one = np.array(numbers, dtype=np.float32)
    assert -1.0 <= cosine(one, one[::-1].copy()) <= 1.0
    assert cosine(one, one) == pytest.approx(1.0 if one.any() else 0.0)
