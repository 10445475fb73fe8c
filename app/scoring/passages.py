"""Whether a chunk holds an expected passage: aligned, a quote within it, or damaged; how much may differ.

Another number or a "not" makes another version; scattered wrong letters are damage (OCR, extraction).
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby, islice, pairwise

from app.base.values import Level, Value
from app.scoring.words import FIRST_UNSPACED, NUMBER_SIGNS, normalise, shingles_of


def alignments(pattern: str, text: str, edits: int, start: int = 0, end: int | None = None) -> Iterator["Alignment"]:
    """Yield the parts of `text[start:end]` within `edits` edits of the pattern: inserted, lost or wrong characters.

    Of the possible ends, only those no worse than both neighbours are yielded, in order, each with one shortest edit
    path. The distances come from the dynamic programme of Sellers (J. Algorithms 1980), a column at a time in two
    integers that hold where it steps up and down: Myers, JACM 1999, as Hyyrö (2003) writes it. `pattern` is not empty.
    """
    masks: dict[str, int] = {}
    for place, sign in enumerate(pattern):
        masks[sign] = masks.get(sign, 0) | 1 << place
    last, full = 1 << len(pattern) - 1, (1 << len(pattern)) - 1
    up, down, distance, before = full, 0, len(pattern), len(pattern)
    ups, downs, pending = [up], [down], False
    part = text[start:end]
    for count, sign in enumerate(part):
        equal = masks.get(sign, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right, left = down | ~(diagonal | up), up & diagonal
        before = distance
        if right & last:
            distance += 1
        elif left & last:
            distance -= 1
        if pending and distance >= before:
            yield _trace_back(pattern, part, count, start, ups, downs)
        pending = distance <= edits and distance <= before
        right, left = right << 1, left << 1
        up, down = (left | ~(diagonal | right)) & full, right & diagonal & full
        ups.append(up)
        downs.append(down)
    if pending:
        yield _trace_back(pattern, part, len(part), start, ups, downs)


class Edit(Value, kw_only=False):
    """One character inserted (`was` is empty), lost (`now` is empty) or wrong, with its place in both texts."""

    was: str
    now: str
    place: int
    """Where it is or would be in the pattern."""
    at: int
    """Where it is or would be in the text."""


class Alignment(Value, kw_only=False):
    """A part of a text, and the edits that turn the pattern into it, in order."""

    start: int
    end: int
    edits: Sequence[Edit]


def _trace_back(
    pattern: str, part: str, count: int, offset: int, ups: Sequence[int], downs: Sequence[int]
) -> Alignment:
    """Return the alignment that ends after the first `count` characters of the part, read back from the table."""
    place, at, edits = len(pattern), count, list[Edit]()
    while place:
        bit = 1 << place - 1
        if ups[at] & bit:
            place -= 1
            edits.append(Edit(pattern[place], "", place, offset + at))
            continue
        at -= 1
        if downs[at] & bit:
            edits.append(Edit("", part[at], place, offset + at))
            continue
        place -= 1
        if pattern[place] != part[at]:
            edits.append(Edit(pattern[place], part[at], place, offset + at))
    return Alignment(offset + at, offset + count, edits[::-1])


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
_WHOLE_WORDS_BELOW = 20
_COMPARED_BY_LETTERS = 300
"""Longest passage in characters that is compared letter by letter; longer ones are compared by their words."""
_LETTERS_PER_EDIT = 20
_SHARED = 0.6
"""The share of the shorter text's word 3-grams that must occur in both."""
_FEWEST_SHINGLES = 12
_SMALLEST_PART = 3
"""A hit with less than a third of a passage's 3-grams is not compared: a heading would match its whole chunk."""


def match_level(passage: "Passage", body: str) -> Level | None:
    """Return the level at which a normalised text contains an expected passage; None = it does not contain it.

    `text`: both are equal. `passage`, by the length of the passage:
    - below 20 characters, or `verbatim`: contained as whole words ("30 days" is not in "130 days");
    - up to 300: contained, also cut inside a word, as fixed-size chunks are; or with at most one edit per 20
      characters or part thereof, if the edits are damage and change no number, see `is_damage`;
    - longer: contained, or 60 % of the shorter text's word 3-grams are in both and the hit has at least a third as
      many of them as the passage; numbers do not matter then.
    """
    if passage.text == body:
        return Level.TEXT
    matches = _contains(passage, body) or _contains_damaged(passage, body) or _shares_shingles(passage, body)
    return Level.PASSAGE if matches else None


def prepare_passage(text: str, *, verbatim: bool = False) -> "Passage | None":
    """Return an expected text arranged for `match_level`; None = it has no letter, digit or symbol to compare.

    A `verbatim` one has to be contained unchanged.
    """
    text = normalise(text)
    if not text:
        return None
    if len(text) < _WHOLE_WORDS_BELOW or verbatim:
        return Passage(text=text, whole_words=True)
    if len(text) > _COMPARED_BY_LETTERS:
        return Passage(text=text, shingles=array("q", shingles_of(text)))
    count = -(-len(text) // _LETTERS_PER_EDIT) + 1
    cuts = [len(text) * number // count for number in range(count + 1)]
    return Passage(text=text, pieces=tuple([text[start:end] for start, end in pairwise(cuts)]))


class Passage(Value):
    """An expected text arranged for `match_level`. Made by `prepare_passage`."""

    text: str
    """Normalised."""
    whole_words: bool = False
    """Whether it must be contained unchanged, from word boundary to word boundary."""
    pieces: tuple[str, ...] = ()
    """A text of up to 300 characters in one piece more than the allowed edits, so that one stays whole; else ()."""
    shingles: Sequence[int] = ()
    """The hashes of a longer text's word 3-grams, each once; valid in this process only."""


def _contains(passage: Passage, body: str) -> bool:
    begins, ends = (_is_word_boundary, _is_word_boundary) if passage.whole_words else (may_begin, may_end)
    start = body.find(passage.text)
    while start >= 0:
        if begins(body, start) and ends(body, start + len(passage.text)):
            return True
        start = body.find(passage.text, start + 1)
    return False


def _is_word_boundary(body: str, at: int) -> bool:
    return not splits_word(body, at)


def _contains_damaged(passage: Passage, body: str) -> bool:
    """Whether some part of the body is the passage with few edits that are damage.

    With e edits allowed and the passage cut into e + 1 pieces, one piece must occur unchanged (the pigeonhole
    principle; Wu and Manber, CACM 1992). So only the surroundings of such pieces are compared, and most texts have
    none. Beyond 20,000 characters around pieces only the first of them are compared, so that no text delays a run.
    """
    edits = len(passage.pieces) - 1
    if edits < 1 or len(body) < len(passage.text) - edits:
        return False
    places = list(islice(_places(passage, body), _MOST_PLACES))
    if len(places) == _MOST_PLACES:
        places = [(0, len(body))]
    budget = _MOST_COMPARED
    for start, end in _merged(places):
        if budget <= 0:
            break
        matches = alignments(passage.text, body, edits, start, min(end, start + budget))
        if any(is_damage(passage.text, body, one) for one in islice(matches, _MOST_ALIGNED)):
            return True
        budget -= end - start
    return False


def _places(passage: Passage, body: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the parts of the body where the passage may be, around each piece of it."""
    offset, edits = 0, len(passage.pieces) - 1
    for piece in passage.pieces:
        place = body.find(piece)
        while place >= 0:
            start = place - offset - edits
            yield max(0, start), start + len(passage.text) + 2 * edits
            place = body.find(piece, place + 1)
        offset += len(piece)


def _merged(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the places in order, overlapping ones joined."""
    reach: tuple[int, int] | None = None
    for start, end in sorted(places):
        if reach is None or start > reach[1]:
            if reach:
                yield reach
            reach = start, end
        else:
            reach = reach[0], max(reach[1], end)
    if reach:
        yield reach


def _shares_shingles(passage: Passage, body: str) -> bool:
    """Whether two texts share most of the shorter one's word 3-grams (Broder 1997: shingles, containment)."""
    if not passage.shingles:
        return False
    others = shingles_of(body)
    shorter = min(len(passage.shingles), len(others))
    if shorter < max(_FEWEST_SHINGLES, len(passage.shingles) / _SMALLEST_PART):
        return False
    return len(others.intersection(passage.shingles)) >= _SHARED * shorter


_MOST_PLACES = 1_000
_MOST_COMPARED = 20_000
_MOST_ALIGNED = 100
