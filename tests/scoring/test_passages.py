"""Passages: how alike an expected text and a hit must be, held to a plain dynamic programme."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.base.values import Level
from app.scoring.passages import alignments, match_level, prepare_passage
from app.scoring.words import normalise

PERIOD = "Backups of all customer data are kept for thirty days in two regions"
WORDS = [f"{first}{second}{third}" for first in "bdfgklmnprst" for second in "aeiou" for third in "lnrst"]


def recognised(expected: str, returned: str) -> Level | None:
    """Say by which level a returned text agrees with an expected one."""
    passage = prepare_passage(expected)
    return match_level(passage, normalise(returned)) if passage else None


def fewest_edits(pattern: str, text: str) -> int:
    """Count the edits between a pattern and the part of a text that is likest: the textbook's table, row by row."""
    row = [0] * (len(text) + 1)
    for place, sign in enumerate(pattern, start=1):
        above, row = row, [place]
        for column, other in enumerate(text, start=1):
            row.append(min(above[column] + 1, row[-1] + 1, above[column - 1] + (sign != other)))
    return min(row)


def story(seed: int, words: int) -> list[str]:
    """Make up a text in which no three words repeat by design."""
    chance = random.Random(seed)  # noqa: S311 - test data
    return chance.choices(WORDS, k=words)


@pytest.mark.parametrize(
    ("returned", "level"),
    [
        (PERIOD, Level.TEXT),
        (f"By contract: {PERIOD}.", Level.PASSAGE),
        ("Backups of a11 customer data are kept for thirty bays in two regions.", Level.PASSAGE),
        ("Backups of all customer dta are kept for thirty days in two re-gions.", Level.PASSAGE),
        ("kups of all customer data are kept for thirty days in two regions. More", Level.PASSAGE),
        ("Backups of no customer data are kept for seventy days in four regions.", None),
        ("Backups of all customer data", None),
        ("", None),
    ],
)
def test_a_passage_of_a_sentence_may_be_garbled_a_little_or_cut_at_its_end(returned: str, level: Level | None) -> None:
    assert recognised(PERIOD, returned) is level


@pytest.mark.parametrize(("length", "edits"), [(20, 1), (21, 2), (40, 2), (41, 3), (100, 5), (300, 15)])
def test_one_edit_is_allowed_for_each_twenty_characters_begun(length: int, edits: int) -> None:
    passage = " ".join(story(1, 100))[:length].strip().ljust(length, "x")
    step = length // (edits + 1)
    for wrong, held in ((edits, True), (edits + 1, False)):
        garbled = list(passage)
        for number in range(wrong):
            garbled[number * step + step // 2] = "z"
        body = f"before {''.join(garbled)} after"
        assert fewest_edits(passage, body) == wrong
        assert (recognised(passage, body) is not None) is held


def test_below_twenty_characters_nothing_may_be_garbled() -> None:
    assert recognised("kept for 30 days", "it is kept for 30 days") is Level.PASSAGE
    assert recognised("kept for 30 days", "it is kept for 90 days") is None


@st.composite
def near_copies(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a passage and a text holding a copy of it with about as many edits as are allowed, anywhere."""
    signs = draw(st.sampled_from(["ab", "abcdefgh", "ab \u00e9"]))
    passage = normalise(draw(st.text(signs, min_size=20, max_size=130)))
    assume(len(passage) >= 20)
    copy = list(passage)
    allowed = -(-len(passage) // 20)
    for _ in range(draw(st.integers(0, allowed + 2))):
        place = draw(st.integers(0, len(copy) - 1))
        copy[place] = draw(st.sampled_from(["", copy[place] + "b", "c", copy[place] * 2]))
    before, after = draw(st.text(signs, max_size=30)), draw(st.text(signs, max_size=30))
    cut = draw(st.integers(0, 3))
    return passage, normalise(before + "".join(copy)[cut:] + after)


@given(near_copies(), st.integers(0, 8))
def test_what_is_near_letter_by_letter_agrees_with_the_plain_table(case: tuple[str, str], allowed: int) -> None:
    expected, body = case
    fewest = fewest_edits(expected, body)
    found = list(alignments(expected, body, allowed))
    assert min((len(one.edits) for one in found), default=None) == (fewest if fewest <= allowed else None)
    assert all(len(one.edits) <= allowed for one in found)
    for one in found:
        copy = list(expected)
        for edit in reversed(one.edits):
            copy[edit.place : edit.place + len(edit.was)] = edit.now
            assert body[edit.at : edit.at + len(edit.now)] == edit.now
        assert "".join(copy) == body[one.start : one.end]


@given(near_copies())
def test_nothing_is_recognised_letter_by_letter_beyond_the_edits_allowed(case: tuple[str, str]) -> None:
    expected, body = case
    passage = prepare_passage(expected)
    assert passage is not None
    if match_level(passage, body) is not None:
        assert fewest_edits(expected, body) <= -(-len(expected) // 20)


RATE = "A double room costs {} EUR per night, breakfast included, from May until September"


@pytest.mark.parametrize("garbled", ["", "breakfazt"])
@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("150", "175"),
        ("150", "151"),
        ("150", "15"),
        ("150", "50"),
        ("150", "1500"),
        ("150", "1150"),
        ("150", "1 50 0"),
        ("1.50", "150"),
        ("1.5", "15"),
        ("15", "1.5"),
        ("1,500", "1,600"),
        ("-5", "5"),
        ("5", "-5"),
        ("5%", "5"),
        ("5", "5%"),
        ("5-10", "510"),
        ("510", "5-10"),
        ("1-500", "1-600"),
        ("v2", "v3"),
        ("b12", "b1"),
        ("1990", "199"),
        ("2019", "2020"),
    ],
)
def test_a_passage_with_another_number_is_another_version(was: str, now: str, garbled: str) -> None:
    returned = RATE.format(now).replace("breakfast", garbled or "breakfast")
    assert recognised(RATE.format(was), f"Rates. {returned}. Ask us.") is None
    same = RATE.format(was).replace("breakfast", garbled or "breakfast")
    assert recognised(RATE.format(was), f"Rates. {same}. Ask us.") is Level.PASSAGE


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("150", "l50"),
        ("150", "15O"),
        ("l5O", "150"),
        ("1500", "1 500"),
        ("12 500", "12500"),
        ("2012", "012"),
        ("2011", "201"),
        ("4950", "450o"),
        ("31, 2012", "31,2012"),
        ("5 %", "5%"),
        ("\u22125", "-5"),
        ("\uff11\uff15\uff10", "150"),
    ],
)
def test_a_number_that_scanning_garbled_is_still_the_same(was: str, now: str) -> None:
    assert recognised(RATE.format(was), f"Rates. {RATE.format(now)}. Ask us.") is Level.PASSAGE


def test_a_short_passage_with_another_number_is_another_version() -> None:
    assert recognised("up to 150 EUR per night", "It is up to 175 EUR per night.") is None
    assert recognised("up to 150 EUR per night", "It is up to 150 EVR per night.") is Level.PASSAGE


@pytest.mark.parametrize(
    ("expected", "returned"),
    [
        ("The sauna is available on weekends only", "The sauna is unavailable on weekends only"),
        ("The sauna is unavailable on weekends only", "The sauna is available on weekends only"),
        ("available on weekends and on holidays", "The sauna is unavailable on weekends and on holidays"),
        ("refundable until two days before arrival", "It is non-refundable until two days before arrival"),
        (
            "Guests may cancel the booking until noon of the day before they arrive, free of charge",
            "Guests may not cancel the booking until noon of the day before they arrive, free of charge",
        ),
        (
            "Refunds are granted for thirty days after the purchase, without further questions",
            "Refunds are granted for ninety days after the purchase, without further questions",
        ),
    ],
)
def test_a_passage_turned_into_its_opposite_or_with_another_word_is_another_version(
    expected: str, returned: str
) -> None:
    assert recognised(expected, f"Rules: {returned}. Ask us.") is None


@pytest.mark.parametrize(
    ("expected", "returned"),
    [
        ("The notice period is now 14", "The notice period is now 140 days"),
        ("14 days is the notice period", "114 days is the notice period"),
        ("The fee has been raised to 5", "The fee has been raised to 5% of it"),
        ("The fee has been raised to 1", "The fee has been raised to 1.5 EUR"),
        ("5 degrees are the lowest here", "-5 degrees are the lowest here"),
    ],
)
@pytest.mark.parametrize("verbatim", [False, True])
def test_a_passage_never_begins_or_ends_inside_a_number(expected: str, returned: str, *, verbatim: bool) -> None:
    passage = prepare_passage(expected, verbatim=verbatim)
    assert passage is not None
    assert match_level(passage, normalise(returned)) is None
    assert match_level(passage, normalise(f"Note: {expected}. So it is.")) is Level.PASSAGE


def test_a_verbatim_passage_of_any_length_stands_as_whole_words() -> None:
    for expected in (
        "the tenant may cancel",
        "the tenant may cancel it at the end of every month " * 8 + "or on a day",
    ):
        passage = prepare_passage(expected, verbatim=True)
        assert passage is not None
        assert match_level(passage, normalise(f"Then {expected}led")) is None
        assert match_level(passage, normalise(f"Bre{expected}, then")) is None
        assert match_level(passage, normalise(f"Bre{expected}, and {expected}, then")) is Level.PASSAGE


def test_a_text_full_of_pieces_of_the_passage_is_compared_in_whole() -> None:
    expected = "ash " * 9 + "elm birch"
    body = normalise("ash " * 2_000)
    assert fewest_edits(normalise(expected), body) > 3
    assert recognised(expected, body) is None
    assert recognised(expected, f"{body} elm bxrch") is Level.PASSAGE


def test_a_text_that_imitates_pieces_without_end_is_given_up_on() -> None:
    expected = "ash " * 9 + "elm birch"
    assert recognised(expected, "ash " * 50_000 + "elm bxrch") is None
    assert recognised(expected, "ash " * 50_000 + "elm birch") is Level.PASSAGE, "containment is sought everywhere"


def joined(words: Sequence[str]) -> str:
    return " ".join(words)


@pytest.mark.parametrize(
    ("start", "end", "held"),
    [(0, 150, True), (40, 190, True), (-40, 110, True), (-75, 75, False), (75, 225, False), (20, 75, True)],
)
def test_a_long_passage_is_recognised_by_a_chunk_cut_elsewhere_that_shares_most_of_it(
    start: int, end: int, *, held: bool
) -> None:
    text = story(2, 400)
    expected = text[100:250]
    assert (recognised(joined(expected), joined(text[100 + start : 100 + end])) is not None) is held


def test_a_long_passage_survives_a_wrong_character_in_every_tenth_word() -> None:
    expected = story(3, 100)
    garbled = [f"{word}q" if place % 10 == 0 else word for place, word in enumerate(expected)]
    assert recognised(joined(expected), joined(garbled)) is Level.PASSAGE


def test_a_scrap_of_a_long_passage_does_not_stand_for_it() -> None:
    expected = story(4, 150)
    assert recognised(joined(expected), joined(expected[:40])) is None
    assert recognised(joined(expected), joined(expected[:3])) is None
    assert recognised(joined(expected), joined(expected[:60])) is Level.PASSAGE


def test_a_text_that_says_little_over_and_over_is_not_most_of_a_long_passage() -> None:
    expected = "see the annex and " * 6 + joined(story(5, 90))
    assert recognised(expected, "see the annex and " * 30) is None


def test_long_passages_are_compared_where_words_are_not_parted_by_spaces() -> None:
    chance = random.Random(6)  # noqa: S311 - test data
    text = "".join(chance.choices([chr(code) for code in range(0x4E00, 0x4F00)], k=900))
    assert recognised(text[:400], text[80:600]) is Level.PASSAGE
    assert recognised(text[:400], text[300:700]) is None


def test_a_long_passage_of_hardly_any_words_must_be_contained() -> None:
    key = "a1" * 200
    assert recognised(key, f"the key is {key} indeed") is Level.PASSAGE
    assert recognised(key, f"{key[:-1]}2") is None


@given(st.text(), st.text())
def test_any_two_texts_are_compared_and_a_text_is_always_in_itself(expected: str, returned: str) -> None:
    passage = prepare_passage(expected)
    if passage is None:
        assert not any(sign.isalnum() for sign in normalise(expected))
    else:
        assert match_level(passage, passage.text) is Level.TEXT
        assert recognised(expected, returned) in {Level.TEXT, Level.PASSAGE, None}


def test_compatibility_forms_fold_to_one_text() -> None:
    assert normalise("\ufb01le \u21165 \uff21\uff22\uff23 Straße") == normalise("file No5 abc STRASSE")


def test_a_hyphenated_word_equals_the_same_word_broken_at_its_hyphen() -> None:
    assert normalise("a well-known long-\nterm plan") == normalise("a well-\r\nknown long-term plan")


def test_a_dash_between_words_parts_them() -> None:
    assert normalise("days - not months") == normalise("days \u2014 not months") == "days not months"


def test_signs_that_carry_meaning_stay() -> None:
    assert normalise("C++ costs $5") != normalise("C costs 5")


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("5%", "5%"),
        ("5 %", "5%"),
        ("%x", "x"),
        ("(-5 \u00b0C)", "-5 \u00b0c"),
        ("\u22125 or \u20135", "-5 or -5"),
        ("- 5 --5 a-5", "5 5 a5"),
        ("5-10%", "5 10%"),
        ("2024-01-15", "2024 01 15"),
        ("1.5, 1,500. Then", "1.5 1,500 then"),
        ("covid-19", "covid19"),
    ],
)
def test_signs_of_numbers_stay_where_they_belong_to_one(text: str, normalised: str) -> None:
    assert normalise(text) == normalised


@given(st.text(st.characters(codec="ascii")))
def test_case_and_spacing_never_matter(text: str) -> None:
    assert normalise(text) == normalise(text.upper()) == normalise(f"  {text.replace(' ', '  ')}\n")


@given(st.text() | st.text("12 .,-%a(\n\u2212\u200b"))
def test_a_normalised_text_stays_as_it_is(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
