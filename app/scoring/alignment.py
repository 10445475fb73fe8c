"""Approximate string search: the parts of a text within few edits of a pattern, with those edits.

`text_damage` decides which edits are harmless; `passages` calls both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Edit:
    """One character inserted (`was` is empty), lost (`now` is empty) or wrong, with its place in both texts."""

    was: str
    now: str
    place: int
    """Where it is or would be in the pattern."""
    at: int
    """Where it is or would be in the text."""


@dataclass(frozen=True, slots=True)
class Alignment:
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
