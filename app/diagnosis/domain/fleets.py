"""What the canaries that degraded in a run have in common, and the headline that says so.

Headlines are made of counts, causes and the names that people gave to canaries, categories, tags and documents; they
hold no retrieved text. The one cause of a whole run is in `run_causes`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from app.alerts.domain.summaries import CAUSE_WORDS, MOST_NAMED, commonest_first, rest_text
from app.base.texts import counted, listed, plural, short_name
from app.base.values import Cause, Value
from app.diagnosis.domain.run_causes import RunCause
from app.diagnosis.domain.run_groups import tail
from app.scoring.run_inputs import Group, GroupKind


class Shape(StrEnum):
    """Kind of event, by how many canaries newly degraded."""

    ALL = "all"
    """Half of all or more: the index or the encoder."""
    FEW = "few"
    """Some: relevance changed for them."""
    ONE = "one"
    """A single one."""
    NONE = "none"


class FleetMember(Value):
    """A measured canary of the check."""

    key: str
    groups: tuple[Group, ...] = ()
    fallen: bool = False
    """Whether it newly degraded."""
    chronic: bool = False
    """Whether it is degraded and was before: it cannot newly degrade."""
    persistent: bool | None = None
    """Whether a fallen one was still degraded on retry; None = not retried. False counts as not fallen."""
    chance: float | None = None
    """Chance that a canary that passed fails in the next run, by the baseline; None = not learned yet."""
    cause: Cause | None = None
    """Of a fallen one; None = not diagnosed."""
    rank_now: int | None = None


class Fleet(Value):
    """Summary of the newly degraded canaries of a run."""

    shape: Shape
    headline: str
    """Such as `3 of 40 in billing: 2 missing, 1 outranked to rank 14; expected 0.1 by chance`."""
    sentence: str
    """Kind of event in words, without its full stop."""
    group: Group | None
    """The group that the fallen have in common, where chance hardly explains it."""
    fallen: int
    """Of that group or, without one, of all."""
    of: int
    """Number of canaries of that group, or of all."""
    expected: float | None
    """How many of them would have fallen by chance, at most; None = not learned for all of them."""
    recovered_on_retry: int
    """How many degraded in the run but were healthy on every retry."""
    causes: Mapping[Cause, int]


def fleet(
    members: Iterable[FleetMember],
    *,
    cause: RunCause | None = None,
    is_first: bool = False,
    is_redefined: bool = False,
    edit: str = "",
    index: str = "",
) -> Fleet:
    """Summarize the fallen among these canaries; `cause`: the one that explains the whole run, where there is one.

    `index`: what is wrong with the index, beside a cause that does not say so.
    `is_first`: no run before measured anything, and `is_redefined`: none expected this of most of them, so that they
    cannot have fallen, however many are degraded. `edit`: what was changed of the check,
    which explains it.

    All: half of the measured canaries or more, and at least three. One: a single canary. A group is named where it
    holds two of three fallen canaries or more, at least two, and a random draw would do so in less than 1 of 20 cases
    (hypergeometric tail); of several the least likely one, then the smallest. Canaries that were healthy on every retry
    did not fall; the headline counts them separately.
    """
    everyone = list(members)
    if is_first:
        return _unmeasured_before(everyone, "in the first run", f"No run before measured anything, {_UNKNOWN}")
    if edit:
        sentence = f"{edit[0].upper()}{edit[1:]}: what was measured before is something else"
        return _unmeasured_before(everyone, "since the check was changed", sentence, edit)
    if is_redefined:
        sentence = f"No run before expected this of them, {_UNKNOWN}"
        return _unmeasured_before(everyone, "since they were changed", sentence)
    fallen = [member for member in everyone if member.fallen and member.persistent is not False]
    retried = [member.persistent for member in everyone if member.fallen and member.persistent is not None]
    recovered_on_retry = retried.count(False)
    recovered_text = f"; {recovered_on_retry:,} of {len(retried):,} healthy on retry"
    shape = _shape(len(fallen), len(everyone))
    group = _common(everyone, fallen) if shape is Shape.FEW else None
    inside = [member for member in everyone if group is None or group in member.groups]
    down = [member for member in fallen if group is None or group in member.groups]
    headline = _headline(group, down, inside, fallen, everyone, cause)
    expected = _expected(inside)
    why = cause.reason if cause is not None else _sentence(shape, group, down, fallen, inside, len(everyone))
    informs = fallen and expected is not None and expected < len(down)
    chance = f"; expected {_number(expected)} by chance" if informs and expected is not None else ""
    return Fleet(
        shape=shape,
        headline=f"{headline}{chance}{recovered_text if recovered_on_retry else ''}",
        sentence=f"{why}; {index}" if index and fallen else why,
        group=group,
        fallen=len(down),
        of=len(inside),
        expected=expected,
        recovered_on_retry=recovered_on_retry,
        causes=dict(Counter(member.cause for member in fallen if member.cause is not None)),
    )


_UNKNOWN = "so it is unknown whether they ever found what they expect"


def _unmeasured_before(everyone: Sequence[FleetMember], when: str, sentence: str, why: str = "") -> Fleet:
    """Summarize canaries of which none can be said to have fallen; `why` they are degraded, else by their causes."""
    degraded = [member for member in everyone if member.fallen]
    headline = f"{len(degraded):,} of {counted(len(everyone), 'canary')} degraded {when}"
    return Fleet(
        shape=Shape.NONE,
        headline=f"{headline}: {why or _causes(degraded)}" if degraded else headline,
        sentence=sentence,
        group=None,
        fallen=0,
        of=len(everyone),
        expected=None,
        recovered_on_retry=0,
        causes={},
    )


def _shape(fallen: int, total: int) -> Shape:
    if not fallen:
        return Shape.NONE
    if fallen >= _FEWEST_OF_ALL and fallen * 2 >= total:
        return Shape.ALL
    return Shape.ONE if fallen == 1 else Shape.FEW


def _common(everyone: Sequence[FleetMember], fallen: Sequence[FleetMember]) -> Group | None:
    """Group of the fallen that is least likely by chance; None = no group is unlikely."""
    down = Counter(group for member in fallen for group in frozenset(member.groups))
    sizes = Counter(group for member in everyone for group in frozenset(member.groups))
    likely = {
        group: tail(count, len(fallen), sizes[group], len(everyone))
        for group, count in down.items()
        if count >= _FEWEST_OF_A_GROUP and count * 3 >= len(fallen) * 2
    }
    groups = [group for group, chance in likely.items() if chance < _UNLIKELY]
    kinds = list(GroupKind)
    order = {group: (likely[group], sizes[group], kinds.index(group.kind), group.name) for group in groups}
    return min(groups, key=order.__getitem__, default=None)


def _headline(
    group: Group | None,
    down: Sequence[FleetMember],
    inside: Sequence[FleetMember],
    fallen: Sequence[FleetMember],
    everyone: Sequence[FleetMember],
    cause: RunCause | None,
) -> str:
    if not fallen:
        why = "" if cause is None else f": {cause.phrase}"
        return f"None of {counted(len(everyone), 'canary')} newly degraded{why}"
    place = f" in {short_name(group.name, _LONGEST)}" if group is not None else ""
    where = f"{len(down):,} of {len(inside):,}{place}"
    if len(fallen) > len(down):
        where += f", {len(fallen):,} of {len(everyone):,} in all"
    if len(fallen) == 1:
        where += f" ({short_name(fallen[0].key, _LONGEST)})"
    return f"{where}: {_causes(fallen) if cause is None else cause.phrase}"


def _causes(fallen: Sequence[FleetMember]) -> str:
    """Causes, the commonest first, two at most: `2 missing, 1 outranked to rank 14, 4 others not explained yet`."""
    ordered = commonest_first(Counter(member.cause for member in fallen if member.cause is not None))
    parts = [f"{count:,} {CAUSE_WORDS[cause].headline}{_ranks(cause, fallen)}" for cause, count in ordered[:MOST_NAMED]]
    return ", ".join([*parts, *rest_text(ordered, len(fallen))]) if parts else "not explained yet"


def _ranks(cause: Cause, fallen: Sequence[FleetMember]) -> str:
    """Ranks of the outranked, as far as they are known."""
    if cause is not Cause.OUTRANKED:
        return ""
    ranks = sorted({member.rank_now for member in fallen if member.cause is cause and member.rank_now is not None})
    if not ranks:
        return ""
    if len(ranks) <= _FEW_RANKS:
        return f" to {plural(len(ranks), 'rank')} {listed([str(rank) for rank in ranks])}"
    return f" to ranks {ranks[0]} to {ranks[-1]}"


def _sentence(
    shape: Shape,
    group: Group | None,
    down: Sequence[FleetMember],
    fallen: Sequence[FleetMember],
    inside: Sequence[FleetMember],
    total: int,
) -> str:
    main_cause = Counter(member.cause for member in fallen if member.cause is not None).most_common(1)
    if shape is Shape.NONE:
        return "No canary newly degraded"
    if main_cause and main_cause[0][0] is Cause.RETRIEVER_ERROR and main_cause[0][1] * 2 > len(fallen):
        text = "The retriever fails, so the state of the index is unknown"
    elif shape is Shape.ALL:
        text = "Half of the questions or more are hit together: look at the index or the encoder"
    elif shape is Shape.ONE:
        text = "A single canary degraded"
    elif group is not None and len(down) * 2 >= len(inside):
        text = f"A part of the index is hit: half of {short_name(group.name, _LONGEST)} or more"
    elif len(fallen) > max(_FEW, total * _FEW_SHARE):
        text = "A part of the questions is hit: look at what they have in common"
    else:
        text = "Few canaries newly degraded"
    expected = _expected(inside)
    if expected is None:
        return text
    if expected >= len(down):
        return f"No more than chance explains, {_number(expected)}"
    return f"{text}; by chance it would be {_number(expected)}"


def _expected(inside: Sequence[FleetMember]) -> float | None:
    chances = [member.chance for member in inside if not member.chronic]
    probabilities = [chance for chance in chances if chance is not None]
    return round(sum(probabilities), 3) if probabilities and len(probabilities) == len(chances) else None


def _number(expected: float) -> str:
    """Return an expectation as text; its rates are rounded up, see `detection.domain.evidence`."""
    return "fewer than 0.1" if expected < _SHOWN else f"at most {expected:.1f}"


_FEW = 3
_FEW_SHARE = 0.1
"""So many canaries, or of larger suites this share, are called a few."""
_FEWEST_OF_ALL = 3
_FEWEST_OF_A_GROUP = 2
_UNLIKELY = 0.05
_FEW_RANKS = 3
_LONGEST = 64
_SHOWN = 0.1
