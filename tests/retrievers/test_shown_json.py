"""Bodies laid out for people: vectors are shortened, all else stays as it was sent."""

import json

import pytest

from app.base.texts import shown_json

NUMBERS = [0.123456, -0.031, *[0.5] * 382]


def test_a_vector_is_shown_by_its_first_numbers_and_its_length() -> None:
    shown = shown_json(json.dumps({"query": NUMBERS, "limit": 5}))
    assert shown == '{\n  "query": [0.123, -0.031, ... 384 numbers],\n  "limit": 5\n}'
    assert shown_json(json.dumps({"many": [NUMBERS, NUMBERS]})).count("384 numbers") == 2


def test_short_lists_and_texts_that_look_like_vectors_stay_as_they_are() -> None:
    body = {"distances": [0.1, 0.2, 0.3], "text": f'"{NUMBERS}', "ids": ["a"] * 40}
    assert json.loads(shown_json(json.dumps(body))) == body


@pytest.mark.parametrize("end", ["", ",", " ", "0.", "-", "1e"])
def test_a_vector_that_was_cut_off_has_more_numbers_than_are_counted(end: str) -> None:
    shown = shown_json(f'{{"query": {json.dumps(NUMBERS)[:-1]}, {end}')
    assert shown.startswith('{"query": [0.123, -0.031, ... more than 38')
    assert len(shown) < 70


@pytest.mark.parametrize("text", ["", "no JSON", "[", '{"a": "', "[1, 2,", "[1" * 20, "[" * 100_000])
def test_whatever_else_comes_is_shown_as_it_came(text: str) -> None:
    assert shown_json(text) == text
