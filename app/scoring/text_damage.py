"""Decides whether edits between an expected text and a hit are damage (OCR, extraction) or make it another text.

Both are normalised. Another number or a "not" makes another version; scattered wrong letters are damage.
"""

import re
from collections.abc import Sequence
from itertools import groupby

from app.scoring.alignment import Alignment, Edit

NUMBER_SIGNS = ".,-%\u2030"
"""In a normalised text these characters always belong to a number."""
FIRST_UNSPACED = "\u0e00"
"""First character of the scripts without spaces between words: Thai, Chinese and others."""


def is_damage(pattern: str, body: str, alignment: Alignment) -> bool:
    """Whether a part of the body is the pattern with damage.

    It is another text where a number differs (see `_changes_number`), a negating prefix was added or removed, or three
    edits lie within six characters, which indicates another word; the end of a chunk may cut off as much as the edits
    allow. The part neither begins nor ends inside a number.
    """
    if not (may_begin(body, alignment.start) and may_end(body, alignment.end)):
        return False
    if any(_changes_number(pattern, body, edit) for edit in alignment.edits) or _negates(
        pattern, body, alignment.edits
    ):
        return False
    inner = [edit for edit in alignment.edits if not _is_cut_off(body, alignment, edit)]
    return not any(
        third.place - first.place < _WINDOW and third.at - first.at < _WINDOW
        for first, third in zip(inner, inner[2:], strict=False)
    )


def may_begin(body: str, at: int) -> bool:
    """Whether a passage may begin here: inside a word, as fixed-size chunks do, but not in a number or after "un"."""
    return not splits_number(body, at) and (not splits_word(body, at) or _word_around(body, at)[0] not in _NEGATING)


def may_end(body: str, at: int) -> bool:
    """Whether a passage may end here: also inside a word, but not inside a number."""
    return not splits_number(body, at)


def splits_word(body: str, at: int) -> bool:
    """Whether a cut falls inside a word or number; scripts without spaces have none."""
    if not 0 < at < len(body):
        return False
    return all(sign.isalnum() and sign < FIRST_UNSPACED for sign in body[at - 1 : at + 1]) or splits_number(body, at)


def splits_number(body: str, at: int) -> bool:
    """Whether a cut separates a digit from another, or from a sign of its number."""
    around = body[at - 1 : at + 1] if 0 < at < len(body) else ""
    return any(map(str.isdecimal, around)) and all(map(_is_numeric, around))


def _changes_number(pattern: str, body: str, edit: Edit) -> bool:
    """Whether an edit makes another number: a digit or sign of one was added, removed or replaced.

    A letter in place of a digit, or the other way round, is a scanner's error and makes none.
    """
    was, now = edit.was, edit.now
    if {was, now} == {" ", ""}:
        return _joins_numbers(pattern, edit.place) if was else _joins_numbers(body, edit.at)
    if now and _is_numeric(now):
        return _makes_number(pattern, body, edit)
    if was and _is_numeric(was) and not now.isalpha():
        return not _is_garbled("".join(_word_around(pattern, edit.place)), "".join(_word_around(body, edit.at)))
    return False


def _makes_number(pattern: str, body: str, edit: Edit) -> bool:
    """Whether an added digit or sign makes another number, and is not just among letters or in place of one."""
    was, now = edit.was, edit.now
    if was == " " and not now.isdecimal():
        return False  # "31, 2012" became "31,2012"
    if was and _is_numeric(was):
        return True
    after = edit.place + len(was)
    beside = body[max(0, edit.at - 1) : edit.at] + body[edit.at + 1 : edit.at + 2]
    beside += pattern[max(0, edit.place - 1) : edit.place] + pattern[after : after + 1]
    if any(map(_is_numeric, beside)):
        return not was or was not in _LOOKS_LIKE.get(now, "")
    return not was and not any(map(str.isalpha, beside))


def _joins_numbers(text: str, at: int) -> bool:
    """Whether the loss of this space joins two numbers, other than the digit groups of one."""
    before, after = _word_around(text, at)[0], _word_around(text, at + 1)[1]
    return before[-1:].isdecimal() and after[:1].isdecimal() and not (_GROUP.match(after) and len(before) <= _DIGITS)


def _is_garbled(was: str, now: str) -> bool:
    """Whether a number that lost digits is recognisably damaged or has the same value, and is not another number."""
    left = iter(was)
    if any(map(str.isalpha, was)) or not all(sign in left for sign in now if _is_numeric(sign)):
        return False
    if sum(map(str.isalpha, now)) == 1 or not any(map(str.isdecimal, now)):
        return True
    if now.startswith("0") and not was.startswith("0"):
        return True
    return was == f"{now}.0" or (_YEAR.fullmatch(was) is not None and len(now) == len(was) - 1)


def _negates(pattern: str, body: str, edits: Sequence[Edit]) -> bool:
    """Whether a negating prefix was added or removed: consecutive letters at the beginning of a word."""
    came = [(edit.at - number, edit.now, body, edit.at) for number, edit in enumerate(edits) if not edit.was]
    went = [(edit.place - number, edit.was, pattern, edit.place) for number, edit in enumerate(edits) if not edit.now]
    for _, group in groupby([*came, *went], key=lambda one: (one[0], id(one[2]))):
        run = list(group)
        text, start = run[0][2:]
        if "".join(sign for _, sign, _, _ in run) in _NEGATING and not splits_word(text, start):
            return True
    return False


def _is_cut_off(body: str, alignment: Alignment, edit: Edit) -> bool:
    """Whether a lost character is beyond an end of the body, allowing for some that agree by chance."""
    if edit.now:
        return False
    begins, ends = alignment.start == 0, alignment.end == len(body)
    return (begins and edit.at - alignment.start <= _BY_CHANCE) or (ends and alignment.end - edit.at <= _BY_CHANCE)


def _word_around(text: str, at: int) -> tuple[str, str]:
    """Return the parts of a word or number before and after a place, each of at most 40 characters."""
    start = end = at
    while start > max(0, at - _LONG) and _is_of_word(text[start - 1]):
        start -= 1
    while end < min(len(text), at + _LONG) and _is_of_word(text[end]):
        end += 1
    return text[start:at], text[at:end]


def _is_of_word(sign: str) -> bool:
    return sign.isalnum() or sign in NUMBER_SIGNS


def _is_numeric(sign: str) -> bool:
    return sign.isdecimal() or sign in NUMBER_SIGNS


_LONG = 40
_DIGITS = 3
_GROUP = re.compile(r"\d{3}(?!\d)")
_WINDOW = 6
_BY_CHANCE = 2
_NEGATING = frozenset({"un", "in", "im", "il", "ir", "dis", "non", "mis"})
_LOOKS_LIKE = {"0": "oqd", "1": "lit", "2": "z", "5": "s", "6": "bg", "8": "b", "9": "gq"}
_YEAR = re.compile(r"(?:19|20)\d[1-9]")
"""A year that lost its last digit is damaged, except that 1990 may be the number 199."""
