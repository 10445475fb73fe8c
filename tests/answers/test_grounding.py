"""Lexical grounding: sentences worded like a chunk."""

import pytest

from app.answers.domain.generated import ground_answer, split_sentences

TOKENS = "An access token lasts 24 hours. A refresh token lasts 30 days and may be revoked at any time."
LIMITS = "Each key may send 100 requests per minute; beyond that the API answers 429."


def test_copied_sentences_are_grounded_in_the_chunks_they_come_from() -> None:
    found = ground_answer("An access token lasts 24 hours. The weather is fine and warm today.", [LIMITS, TOKENS])
    assert found.grounded_share == 0.5
    assert found.used_share == 0.5


def test_case_punctuation_and_formatting_do_not_matter() -> None:
    found = ground_answer("**an ACCESS token, lasts “24” hours!**", [TOKENS])
    assert found.grounded_share == 1


@pytest.mark.parametrize(("kept", "grounded"), [(8, True), (7, False)])
def test_six_of_ten_3_grams_are_enough_and_five_are_not(kept: int, *, grounded: bool) -> None:
    chunk = "one two three four five six seven eight nine ten eleven twelve"
    words = [*chunk.split()[:kept], *(f"other{number}" for number in range(12 - kept))]
    assert (ground_answer(" ".join(words), [chunk]).grounded_share == 1) is grounded


def test_a_sentence_put_together_from_two_chunks_is_not_grounded() -> None:
    answer = "An access token lasts 24 hours and each key may send 100 requests per minute"
    assert ground_answer(answer, [TOKENS, LIMITS]).grounded_share == 0


def test_copies_of_a_chunk_are_all_used() -> None:
    found = ground_answer("An access token lasts 24 hours.", [TOKENS, TOKENS, LIMITS])
    assert found.used_share == pytest.approx(2 / 3)


def test_sentences_below_three_words_are_not_counted() -> None:
    found = ground_answer("Yes, certainly. An access token lasts 24 hours.", [TOKENS])
    assert found.grounded_share == 1


@pytest.mark.parametrize("answer", ["", "Yes.", "24 hours", "... !"])
def test_an_answer_without_a_counted_sentence_has_no_share(answer: str) -> None:
    found = ground_answer(answer, [TOKENS])
    assert found.grounded_share is None
    assert found.used_share is None


def test_without_chunks_nothing_is_grounded_and_no_share_of_chunks_exists() -> None:
    found = ground_answer("An access token lasts 24 hours.", [])
    assert found.grounded_share == 0
    assert found.used_share is None


def test_scripts_without_spaces_are_compared_by_characters() -> None:
    chunk = "访问令牌的有效期为二十四小时。刷新令牌的有效期为三十天。"
    found = ground_answer("访问令牌的有效期为二十四小时。今天天气很好我们去公园。是。", [chunk])
    assert found.grounded_share == 0.5


def test_sentences_end_at_signs_and_lines() -> None:
    text = (
        "It costs 3.50 a month (tax included.) Is that all? \n- first item\n- second item\n\nこれは文です。次の文です。"
    )
    assert [part.strip("- ") for part in split_sentences(text)] == [
        "It costs 3.50 a month (tax included.",
        "Is that all?",
        "first item",
        "second item",
        "これは文です。",
        "次の文です。",
    ]
