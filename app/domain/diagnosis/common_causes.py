"""What degraded canaries have in common, and the headline that says so: all fell together, a few, or one.

Headlines are plain text made of counts, causes and the names that people gave to canaries, categories, tags and
documents; nothing that was retrieved is in them. Why a single canary fell is causes'.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, lgamma

from app.domain.alerts.cause_words import CAUSE_WORDS
from app.domain.catalog.canary_groups import Group, GroupKind
from app.domain.counts import counted, plural
from app.domain.diagnosis.run_causes import RunCause
from app.domain.model import Cause
from app.domain.number_text import short_name


class Shape(StrEnum):
    """What kind of event it looks like, by who fell."""

    ALL = "all"
    """Half of all or more fell together: the index or the encoder."""
    FEW = "few"
    """Some fell: relevance changed for them."""
    ONE = "one"
    """A single one fell: a ticket."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A canary of the check that was measured."""

    key: str
    groups: tuple[Group, ...] = ()
    fallen: bool = False
    """Whether it newly degraded."""
    chronic: bool = False
    """Whether it is degraded and was so before: it could not fall, by chance or otherwise."""
    persistent: bool | None = None
    """Whether asking a fallen one again still showed it; None = it was not asked about. False counts as not fallen."""
    chance: float | None = None
    """How likely one that passed was to fail in the next run while all was well; None = that is not learned yet."""
    cause: Cause | None = None
    """Of a fallen one; None = it was not asked about."""
    rank_now: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a run's newly degraded canaries amount to."""

    shape: Shape
    headline: str
    """Such as `3 of 40 in billing: 2 missing, 1 outranked to rank 14; expected 0.1 by chance`."""
    sentence: str
    """What kind of event that is, without its full stop."""
    group: Group | None
    """The group that the fallen have in common, where there is one that chance would hardly pick."""
    fallen: int
    """Of that group or, without one, of all."""
    of: int
    """How many canaries that group, or the whole, has."""
    expected: float | None
    """How many of them that were well before would have fallen by chance, at most; None = of one that is not known."""
    restless: int
    """How many degraded in the run but were well whenever they were asked again."""
    causes: Mapping[Cause, int]


def fleet(members: Iterable[Member], *, cause: RunCause | None = None, first: bool = False) -> Fleet:
    """Say what the fallen among these canaries have in common; `cause` explains the whole run, where one does.

    `first`: no run before measured anything, so that nothing can have fallen, however many are degraded.

    All: half of the measured canaries or more, and at least three. One: a single canary. A group is named where it
    holds two of three fallen canaries or more, at least two, and a random draw would do so in less than 1 of 20 cases
    (hypergeometric tail); of several the least likely one, then the smallest. Who was well whenever it was asked again
    did not fall: it is restless, which the headline counts apart.
    """
    everyone = list(members)
    if first:
        return _unmeasured_before(everyone)
    fallen = [member for member in everyone if member.fallen and member.persistent is not False]
    again = [member.persistent for member in everyone if member.fallen and member.persistent is not None]
    restless = again.count(False)
    calmed = f"; {restless:,} of {len(again):,} asked again {'was' if restless == 1 else 'were'} well: restless"
    shape = _shape(len(fallen), len(everyone))
    group = _common(everyone, fallen) if shape is Shape.FEW else None
    inside = [member for member in everyone if group is None or group in member.groups]
    down = [member for member in fallen if group is None or group in member.groups]
    headline = _headline(group, down, inside, fallen, everyone, cause)
    expected = _expected(inside)
    informs = fallen and expected is not None and expected < len(down)
    chance = f"; expected {_number(expected)} by chance" if informs and expected is not None else ""
    return Fleet(
        shape=shape,
        headline=f"{headline}{chance}{calmed if restless else ''}",
        sentence=cause.reason if cause is not None else _sentence(shape, group, down, fallen, inside, len(everyone)),
        group=group,
        fallen=len(down),
        of=len(inside),
        expected=expected,
        restless=restless,
        causes=dict(Counter(member.cause for member in fallen if member.cause is not None)),
    )


def _unmeasured_before(everyone: Sequence[Member]) -> Fleet:
    degraded = [member for member in everyone if member.fallen]
    headline = f"{len(degraded):,} of {counted(len(everyone), 'canary')} degraded in the first run"
    return Fleet(
        shape=Shape.NONE,
        headline=f"{headline}: {_causes(degraded)}" if degraded else headline,
        sentence="No run before measured anything, so nobody can tell whether they ever found what they expect",
        group=None,
        fallen=0,
        of=len(everyone),
        expected=None,
        restless=0,
        causes={},
    )


def _shape(fallen: int, total: int) -> Shape:
    if not fallen:
        return Shape.NONE
    if fallen >= _FEWEST_OF_ALL and fallen * 2 >= total:
        return Shape.ALL
    return Shape.ONE if fallen == 1 else Shape.FEW


def _common(everyone: Sequence[Member], fallen: Sequence[Member]) -> Group | None:
    """Find the group the fallen have in common that chance would least likely have picked."""
    down = Counter(group for member in fallen for group in frozenset(member.groups))
    sizes = Counter(group for member in everyone for group in frozenset(member.groups))
    likely = {
        group: _tail(count, len(fallen), sizes[group], len(everyone))
        for group, count in down.items()
        if count >= _FEWEST_OF_A_GROUP and count * 3 >= len(fallen) * 2
    }
    groups = [group for group, chance in likely.items() if chance < _UNLIKELY]
    kinds = list(GroupKind)
    order = {group: (likely[group], sizes[group], kinds.index(group.kind), group.name) for group in groups}
    return min(groups, key=order.__getitem__, default=None)


def _tail(found: int, drawn: int, marked: int, total: int) -> float:
    """Give P(X >= found) of the marked among `drawn` of `total` without putting back (hypergeometric)."""
    most = min(drawn, marked)
    least = max(found, drawn - (total - marked))
    whole = _log_ways(total, drawn)
    ways = (_log_ways(marked, x) + _log_ways(total - marked, drawn - x) for x in range(least, most + 1))
    return sum(exp(one - whole) for one in ways)


def _log_ways(total: int, drawn: int) -> float:
    return lgamma(total + 1) - lgamma(drawn + 1) - lgamma(total - drawn + 1)


def _headline(
    group: Group | None,
    down: Sequence[Member],
    inside: Sequence[Member],
    fallen: Sequence[Member],
    everyone: Sequence[Member],
    cause: RunCause | None,
) -> str:
    if not fallen:
        return f"None of {counted(len(everyone), 'canary')} newly degraded"
    place = f" in {short_name(group.name, _LONGEST)}" if group is not None else ""
    where = f"{len(down):,} of {len(inside):,}{place}"
    if len(fallen) > len(down):
        where += f", {len(fallen):,} of {len(everyone):,} in all"
    if len(fallen) == 1:
        where += f" ({short_name(fallen[0].key, _LONGEST)})"
    return f"{where}: {_causes(fallen) if cause is None else cause.phrase}"


def _causes(fallen: Sequence[Member]) -> str:
    """List causes, the commonest first: `2 missing, 1 outranked to rank 14, 4 not asked about`."""
    counts = Counter(member.cause for member in fallen)
    unasked = counts.pop(None, 0)
    order = list(Cause)
    counted_causes = sorted(
        ((cause, count) for cause, count in counts.items() if cause is not None),
        key=lambda one: (-one[1], order.index(one[0])),
    )
    parts = [f"{count:,} {CAUSE_WORDS[cause].headline}{_ranks(cause, fallen)}" for cause, count in counted_causes]
    if unasked:
        parts.append(f"{unasked:,} not asked about" if parts else "not asked about yet")
    return ", ".join(parts)


def _ranks(cause: Cause, fallen: Sequence[Member]) -> str:
    """Say where the outranked stand now, as far as they were seen."""
    if cause is not Cause.OUTRANKED:
        return ""
    ranks = sorted({member.rank_now for member in fallen if member.cause is cause and member.rank_now is not None})
    if not ranks:
        return ""
    if len(ranks) <= _FEW_RANKS:
        return f" to {plural(len(ranks), 'rank')} {_listed([str(rank) for rank in ranks])}"
    return f" to ranks {ranks[0]} to {ranks[-1]}"


def _sentence(
    shape: Shape,
    group: Group | None,
    down: Sequence[Member],
    fallen: Sequence[Member],
    inside: Sequence[Member],
    total: int,
) -> str:
    main_cause = Counter(member.cause for member in fallen if member.cause is not None).most_common(1)
    if shape is Shape.NONE:
        return "No canary newly degraded"
    if main_cause and main_cause[0][0] is Cause.RETRIEVER_ERROR and main_cause[0][1] * 2 > len(fallen):
        text = "The retriever fails, which says nothing of the index yet"
    elif shape is Shape.ALL:
        text = "They fell together, which points at the index or the encoder rather than at single passages"
    elif shape is Shape.ONE:
        text = "A single canary fell, which is a ticket rather than an event"
    elif group is not None and len(down) * 2 >= len(inside):
        text = f"Half of {short_name(group.name, _LONGEST)} or more fell, which points at a part of the index"
    elif len(fallen) > max(_FEW, total * _FEW_SHARE):
        text = f"{len(fallen):,} of {total:,} fell, which points at a part of the index or a topic, not at all of it"
    else:
        text = "A few fell, which points at what is retrieved for them rather than at the whole index"
    expected = _expected(inside)
    if expected is None:
        return text
    if expected >= len(down):
        return f"Not more fell than chance may explain, which is {_number(expected)}"
    return f"{text}; {_number(expected)} would have by chance"


def _expected(inside: Sequence[Member]) -> float | None:
    chances = [member.chance for member in inside if not member.chronic]
    probabilities = [chance for chance in chances if chance is not None]
    return round(sum(probabilities), 3) if probabilities and len(probabilities) == len(chances) else None


def _number(expected: float) -> str:
    """Write an expectation; the rates it is made of are rounded up, see learning."""
    return "fewer than 0.1" if expected < _SHOWN else f"at most {expected:.1f}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


_FEW = 3
_FEW_SHARE = 0.1
"""So many canaries, or of larger suites this share, are called a few."""
_FEWEST_OF_ALL = 3
_FEWEST_OF_A_GROUP = 2
_UNLIKELY = 0.05
_FEW_RANKS = 3
_LONGEST = 64
_SHOWN = 0.1
