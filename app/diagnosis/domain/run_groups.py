"""What the changed chunks, or canaries, of a run have in common and the others do not, for its cause to name.

`name_chunks` looks for documents, then for dates: of names, of the last change, in texts. `common_group` looks for a
tag or a category of canaries. Each says nothing where chance may explain it, or where the others are alike.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from math import exp, lgamma
from typing import Final

from app.base.texts import short_name
from app.base.values import DEFAULT_CATEGORY, Canary, Ranking, Value
from app.diagnosis.domain.cases import FEWEST, MAJORITY
from app.scoring.run_inputs import Group, GroupKind

_MOST: Final = 0.9
_TWICE: Final = 2
_MOST_GROUPS: Final = 3
_UNLIKELY: Final = 0.01
_IN_COMMON: Final = 0.8
"""Share of the changed canaries that must be in a group."""


class RankedChunk(Value, kw_only=False):
    """A chunk, by an answer that has it."""

    answer: Ranking
    rank: int
    """From 0."""

    @property
    def id(self) -> str:
        """Its id."""
        return self.answer.ids[self.rank]

    @property
    def name(self) -> str:
        """Of its document or, where that is unknown, its id."""
        return self.answer.documents[self.rank] or self.id

    @property
    def changed_at(self) -> float | None:
        """When it was last changed."""
        return self.answer.updated[self.rank] if self.answer.updated is not None else None

    @property
    def text(self) -> str | None:
        """Its text."""
        return self.answer.texts[self.rank]


def name_chunks(changed: Sequence[RankedChunk], others: Sequence[RankedChunk], *, each: float = 1.0) -> str:
    """Say what changed chunks have in common: `all in documents of product-b`, `mostly dated 2026-09 or later`.

    Each of the others stands for so many of them. Empty where there is nothing that the others do not have, too.
    """
    return _of_documents(changed, others, each) or _of_dates(changed, others, each)


def _of_documents(changed: Sequence[RankedChunk], others: Sequence[RankedChunk], each: float) -> str:
    stems = Counter(_stem(one.name) for one in changed)
    largest = stems.most_common(_MOST_GROUPS)
    if sum(number for _, number in largest) < _MOST * len(changed):
        return ""
    rest = Counter(_stem(one.name) for one in others)
    groups = [name for name, number in largest if number >= max(FEWEST, rest[name] * each)]
    inside, inside_others = (sum(some[name] for name in groups) for some in (stems, rest))
    if inside < _MOST * len(changed) or _TWICE * inside_others * len(changed) > inside * len(others):
        return ""
    named = " and ".join(map(short_name, groups))
    return f"{'all' if len(stems) == len(groups) else 'mostly'} in documents of {named}"


def _stem(name: str) -> str:
    """Return the first part of a document's name: what stands before the first slash, else before a number."""
    head, slash, _ = name.partition("/")
    return head if slash else name.rstrip("0123456789").rstrip("-_#. :") or name


# --- dates ---------------------------------------------------------------------------------------------------


def _of_dates(changed: Sequence[RankedChunk], others: Sequence[RankedChunk], each: float) -> str:
    for read, word in _DATES:
        mine = _all_read(read, changed, _MOST)
        theirs = _all_read(read, others, MAJORITY) if mine else []
        if theirs and (period := _period(sorted(mine), theirs, each)):
            share, when = period
            return f"{share} {word} {when}"
    return ""


def _all_read(read: Callable[[RankedChunk], str | None], chunks: Sequence[RankedChunk], least: float) -> list[str]:
    """Return the dates of chunks; none as soon as too few have one."""
    found, without = list[str](), 0
    for chunk in chunks:
        one = read(chunk)
        if one is not None:
            found.append(one)
        else:
            without += 1
            if without > (1 - least) * len(chunks):
                return []
    return found if len(found) >= FEWEST else []


def _period(mine: Sequence[str], theirs: Sequence[str], each: float) -> tuple[str, str] | None:
    """Return the widest period that hardly a date of theirs is in, but all of mine or most; they are sorted."""
    for share, aside in (("all", 0), ("mostly", int((1 - _MOST) * len(mine)))):
        first, last = mine[aside], mine[-1 - aside]
        for width in _YEAR_MONTH_DAY:
            since, until = first[:width], last[:width]
            shortened = [one[:width] for one in theirs]
            for number, is_one, when in (
                (sum(one >= since for one in shortened), True, f"{since} or later"),
                (sum(one <= until for one in shortened), True, f"{until} or earlier"),
                (shortened.count(since), since == until, since),
            ):
                inside = len(mine) - aside
                chance = tail(inside, len(mine), inside + number, len(mine) + len(theirs))
                if is_one and number * each <= (1 - _MOST) * inside and chance < _UNLIKELY:
                    return share, when
    return None


def _named_date(name: str) -> str | None:
    return next(_dates(_NAMED_DATE, name), None)


def _day_changed(chunk: RankedChunk) -> str | None:
    return None if chunk.changed_at is None else datetime.fromtimestamp(chunk.changed_at, UTC).date().isoformat()


def _dates(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Yield dates as `2026-09` or `2026-09-14`."""
    return ("-".join(filter(None, found.groups())) for found in pattern.finditer(text))


_YEAR: Final = r"(?<!\d)((?:19|20)\d\d)"
_MONTH: Final = "(0[1-9]|1[0-2])"
_DAY_OF_MONTH: Final = r"(0[1-9]|[12]\d|3[01])"
_NAMED_DATE: Final = re.compile(rf"{_YEAR}(?:[-/_.]{_MONTH}(?:[-/_.]{_DAY_OF_MONTH})?|{_MONTH}{_DAY_OF_MONTH})(?!\d)")
_WRITTEN_DATE: Final = re.compile(rf"{_YEAR}-{_MONTH}(?:-{_DAY_OF_MONTH})?(?!\d)")
_YEAR_MONTH_DAY: Final = (4, 7, 10)
_DATES: Final[Sequence[tuple[Callable[[RankedChunk], str | None], str]]] = (
    (lambda chunk: _named_date(chunk.name), "dated"),
    (lambda chunk: _named_date(chunk.id), "dated"),
    (_day_changed, "last changed"),
    (lambda chunk: max(_dates(_WRITTEN_DATE, chunk.text or ""), default=None), "with dates of"),  # the newest
)


# --- canaries ------------------------------------------------------------------------------------------------


class CommonGroup(Value):
    """A tag or category that most changed canaries have, and twice as rarely the others."""

    group: Group
    changed: int
    """Number of the changed canaries that have it."""
    of_changed: int
    others: int
    """Number of the others that have it."""
    of_others: int

    def __str__(self) -> str:
        """Say it for a headline: `all of tag billing`."""
        share = "all" if self.changed == self.of_changed else "mostly"
        return f"{share} of {self.group.kind} {short_name(self.group.name)}"

    @property
    def figures(self) -> str:
        """Say it as a clause, in numbers."""
        named = f"the {self.group.kind} {short_name(self.group.name)}"
        affected = f"{self.changed:,} of the {self.of_changed:,} canaries affected have {named}"
        return f"{affected}, and {self.others:,} of the {self.of_others:,} others"


def common_group(canaries: Sequence[Canary], is_changed: Sequence[bool]) -> CommonGroup | None:
    """Return the group of the changed canaries that is least likely by chance; None where they have none."""
    changed, others = Counter[tuple[GroupKind, str]](), Counter[tuple[GroupKind, str]]()
    for canary, mine in zip(canaries, is_changed, strict=True):
        counts = changed if mine else others
        counts.update((GroupKind.TAG, tag) for tag in set(canary.labels))
        if canary.category is not DEFAULT_CATEGORY:
            counts[GroupKind.CATEGORY, canary.category] += 1
    drawn, total = sum(is_changed), len(canaries)
    likely = {
        group: tail(number, drawn, number + others[group], total)
        for group, number in changed.items()
        if number >= max(FEWEST, _IN_COMMON * drawn)
        and _TWICE * others[group] * drawn <= number * (total - drawn)
        and drawn < total
    }
    if not likely or min(likely.values()) * len(changed) >= _UNLIKELY:
        return None
    kind, name = best = min(likely, key=lambda one: (likely[one], one))
    return CommonGroup(
        group=Group(kind=kind, name=str(name)),
        changed=changed[best],
        of_changed=drawn,
        others=others[best],
        of_others=total - drawn,
    )


def tail(found: int, drawn: int, marked: int, total: int) -> float:
    """P(X >= found) of the marked among `drawn` of `total` without replacement (hypergeometric)."""
    most = min(drawn, marked)
    least = max(found, drawn - (total - marked))
    whole = _log_ways(total, drawn)
    ways = (_log_ways(marked, x) + _log_ways(total - marked, drawn - x) for x in range(least, most + 1))
    return sum(exp(one - whole) for one in ways)


def _log_ways(total: int, drawn: int) -> float:
    return lgamma(total + 1) - lgamma(drawn + 1) - lgamma(total - drawn + 1)
