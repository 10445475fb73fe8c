"""Which differences between an expected text and a hit are damage done on the way, and which make it another text.

Both are normalised. Damage garbles; what reads as well as before, with another number or a "not", is another version.
"""

import re
from collections.abc import Sequence
from itertools import groupby

from app.domain.runs.alignment import Alignment, Edit

NUMBER_SIGNS = ".,-%\u2030"
"""What a normalised text keeps of these belongs to a number."""
FIRST_UNSPACED = "\u0e00"
"""From Thai on there are scripts, Chinese among them, that do not put spaces between words."""


def is_damage(pattern: str, body: str, found: Alignment) -> bool:
    """Decide whether a part of the body is the pattern, damaged.

    It is another text where a number differs (see `_changes_number`), a negating prefix came or went, or three edits
    lie within six characters, as another word has and scattered errors have not; but what a chunk's end cut off may
    be as long as the edits allow. And it neither begins nor ends inside a number.
    """
    if not (may_begin(body, found.start) and may_end(body, found.end)):
        return False
    if any(_changes_number(pattern, body, edit) for edit in found.edits) or _negates(pattern, body, found.edits):
        return False
    inner = [edit for edit in found.edits if not _is_cut_off(body, found, edit)]
    return not any(
        third.place - first.place < _WINDOW and third.at - first.at < _WINDOW
        for first, third in zip(inner, inner[2:], strict=False)
    )


def may_begin(body: str, at: int) -> bool:
    """Say whether a passage may begin here: in a word, as chunks cut by size do, but not in a number or behind "un"."""
    return not splits_number(body, at) and (not splits_word(body, at) or _word_around(body, at)[0] not in _NEGATING)


def may_end(body: str, at: int) -> bool:
    """Say whether a passage may end here: also inside a word, but not inside a number."""
    return not splits_number(body, at)


def splits_word(body: str, at: int) -> bool:
    """Say whether a cut falls inside a word or number; scripts without spaces have none."""
    if not 0 < at < len(body):
        return False
    return all(sign.isalnum() and sign < FIRST_UNSPACED for sign in body[at - 1 : at + 1]) or splits_number(body, at)


def splits_number(body: str, at: int) -> bool:
    """Say whether a cut parts a digit from another, or from a sign of its number."""
    around = body[at - 1 : at + 1] if 0 < at < len(body) else ""
    return any(map(str.isdecimal, around)) and all(map(_is_numeric, around))


def _changes_number(pattern: str, body: str, edit: Edit) -> bool:
    """Say whether an edit leaves another number: a digit or sign of one came, went or became another.

    Not so where a letter took a digit's place or the other way round, as scanners have it.
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
    """Say whether a digit or sign that came makes another number, and does not just stand among or for letters."""
    was, now = edit.was, edit.now
    if was == " " and not now.isdecimal():
        return False  # "31, 2012" was set as "31,2012"
    if was and _is_numeric(was):
        return True
    after = edit.place + len(was)
    beside = body[max(0, edit.at - 1) : edit.at] + body[edit.at + 1 : edit.at + 2]
    beside += pattern[max(0, edit.place - 1) : edit.place] + pattern[after : after + 1]
    if any(map(_is_numeric, beside)):
        return not was or was not in _LOOKS_LIKE.get(now, "")
    return not was and not any(map(str.isalpha, beside))


def _joins_numbers(text: str, at: int) -> bool:
    """Say whether a number would be made of two by losing this space, other than one set in groups of three digits."""
    before, after = _word_around(text, at)[0], _word_around(text, at + 1)[1]
    return before[-1:].isdecimal() and after[:1].isdecimal() and not (_GROUP.match(after) and len(before) <= _DIGITS)


def _is_garbled(was: str, now: str) -> bool:
    """Say whether a number that lost digits is seen to be damaged, or worth the same, and not another number."""
    left = iter(was)
    if any(map(str.isalpha, was)) or not all(sign in left for sign in now if _is_numeric(sign)):
        return False
    if sum(map(str.isalpha, now)) == 1 or not any(map(str.isdecimal, now)):
        return True
    if now.startswith("0") and not was.startswith("0"):
        return True
    return was == f"{now}.0" or (_YEAR.fullmatch(was) is not None and len(now) == len(was) - 1)


def _negates(pattern: str, body: str, edits: Sequence[Edit]) -> bool:
    """Say whether a prefix that turns a word into its opposite came or went: letters in a row, where a word begins."""
    came = [(edit.at - number, edit.now, body, edit.at) for number, edit in enumerate(edits) if not edit.was]
    went = [(edit.place - number, edit.was, pattern, edit.place) for number, edit in enumerate(edits) if not edit.now]
    for _, group in groupby([*came, *went], key=lambda one: (one[0], id(one[2]))):
        run = list(group)
        text, start = run[0][2:]
        if "".join(sign for _, sign, _, _ in run) in _NEGATING and not splits_word(text, start):
            return True
    return False


def _is_cut_off(body: str, found: Alignment, edit: Edit) -> bool:
    """Say whether a lost character is beyond an end of the body, give or take some that agree by chance."""
    if edit.now:
        return False
    begins, ends = found.start == 0, found.end == len(body)
    return (begins and edit.at - found.start <= _BY_CHANCE) or (ends and found.end - edit.at <= _BY_CHANCE)


def _word_around(text: str, at: int) -> tuple[str, str]:
    """Give the parts of a word or number before and after a place, cut off where they are longer than words are."""
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
"""A year of three digits is none, but 1990 may become 199."""
