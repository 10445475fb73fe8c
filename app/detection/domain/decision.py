"""Decision after one run: whether an alarm opens, which canaries are culprits, whether it closes; and its sentences.

Sentences name no keys of canaries. The drift of scores, which raises no alarm, stands at the end.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.base.texts import counted, percent_text, plural
from app.base.values import Severity, Value, replace
from app.detection.domain import (
    NO_HITS,
    SIGNALS,
    UNMEASURED,
    Baseline,
    Change,
    Culprit,
    HabitReading,
    Members,
    Observation,
    Reading,
    Settings,
    Signal,
    State,
)
from app.detection.domain import evidence as run_evidence
from app.detection.domain.evidence import (
    CANARY_BETS,
    FLEET_SHIFTS,
    GROUP_SHIFTS,
    LOST,
    WORSE,
    RunEvidence,
    age,
    at_rest,
    nothing_recent,
    standing_out,
    strongest_signal,
    weigh,
)
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS, usual, usual_count
from app.detection.domain.views import DriftKind, StoredDrift


class Why(Enum):
    """Reason of a decision."""

    QUIET = auto()
    EVIDENCE = auto()
    STRIKES = auto()
    TAIL = auto()
    STANDS = auto()
    NEWCOMERS = auto()
    RECOVERING = auto()
    CLOSED = auto()


RESTLESS: Final = 3
"""Canaries named by this many closed alarms with a young baseline that each came back, with the answers of before, are
restless: unknown until a baseline has `FULL_RUNS`, since `IDENTICAL_RUNS` may come from one replica among several. An
alarm that named more than half of them is a fault that somebody repaired, and makes nobody restless; nor is anybody in
a run in which more than half fail, or whose answer is empty, as for habits. After this many alarms, strikes count where
they exceed any streak that ended by itself; they also watch the restless, calm or not, so that a fault that stays is
never silent."""

_MOST: Final = 0.5
_SIGNAL_OF: Final = {LOST: Signal.LOST, WORSE: Signal.WORSE}


def begin(members: Members) -> State:
    """Return the state of a detector before its first run."""
    count, groups = len(members.keys), len(members.groups)
    none = np.zeros(count, np.int32)
    return State(
        keys=members.keys,
        groups=tuple(members.groups),
        observed=0,
        canaries=at_rest(len(CANARY_BETS), count),
        grouped=at_rest(len(GROUP_SHIFTS), groups),
        fleet=at_rest(len(FLEET_SHIFTS), 1),
        last=np.full((len(SIGNALS), count), UNMEASURED, np.int8),
        passes=none,
        misses=none,
        streak=none,
        lately=np.full(count, np.nan, np.float32),
        failing=0,
        newly=0,
        counts=np.empty(0, np.int32),
        newly_failed=0,
        identical=0,
        eligible=0,
        fresh=0,
        open=False,
        since=0,
        culprits=np.zeros(count, np.int8),
        struck=np.zeros(count, np.bool_),
        closings=0,
        named=np.zeros(count, np.int8),
        longest=0,
        severity=None,
        good=0,
        evidence=0.0,
        recent=nothing_recent(len(SIGNALS), count),
    )


def step(
    state: State, baseline: Baseline | None, members: Members, observation: Observation, settings: Settings
) -> tuple[State, Reading]:
    """Process one measured run.

    `baseline`: None = warm-up. An alarm opens by the accounts, or by the rules of the warm-up for unknown canaries.
    While it is open the accounts only name culprits; it closes on `settings.close` good runs in a row, which resets all
    accounts. Raises ValueError where state, baseline, members and observation have different numbers of canaries, or an
    alarm is open and the baseline has no `failures`.
    """
    _expect_fitting(state, baseline, members, observation)
    baseline = _without_restless(state, baseline, observation)
    evidence = weigh(state, baseline, members, observation)
    decided = _while_open(evidence, baseline, settings) if state.open else _while_closed(evidence, baseline, settings)
    return decided.state, _reading(evidence, decided, baseline, members, settings)


class _Decided(Value):
    state: State
    why: Why
    change: Change | None = None
    since: int = 0
    severity: Severity | None = None
    """Both as in Reading: also set when an alarm closes."""


def _while_closed(evidence: RunEvidence, baseline: Baseline | None, settings: Settings) -> _Decided:
    """Whether an alarm opens, by the accounts, by three strikes or by the Poisson tail."""
    state = evidence.state
    strikes = run_evidence.STRIKES if state.closings < RESTLESS else max(run_evidence.STRIKES, state.longest + 1)
    struck = (evidence.strikers | (_is_restless(state) & (evidence.now[0] == 1))) & (state.streak == strikes)
    if evidence.evidence is not None and evidence.evidence >= 1 / settings.alpha:
        since, why = age(state), Why.EVIDENCE
    elif struck.any():
        since, why = strikes, Why.STRIKES
    elif baseline is None and run_evidence.surprising(int(evidence.newly.sum()), state.newly_failed, len(state.counts)):
        since, why, struck = 1, Why.TAIL, evidence.newly
    else:
        return _Decided(state=state, why=Why.QUIET)
    since = min(since, state.observed)
    opened = _accused(replace(state, open=True, since=since, good=0, identical=0), evidence, struck)
    severity = _severity(opened, evidence, baseline)
    opened = replace(
        opened,
        severity=severity,
        counts=opened.counts[: max(len(opened.counts) - since + 1, 0)],
        eligible=max(opened.eligible - since + 1, 0),
        fresh=max(opened.fresh - since + 1, 0),
    )
    return _Decided(state=opened, why=why, change=Change.OPENED, since=since, severity=severity)


def _while_open(evidence: RunEvidence, baseline: Baseline | None, settings: Settings) -> _Decided:
    """Culprits of an open alarm, and whether it closes."""
    state = _accused(evidence.state, evidence, evidence.strikers)
    good = state.good + 1 if _is_good(state, baseline) else 0
    if good >= settings.close:
        closed = replace(_closed(state, young=baseline is None or baseline.runs < FULL_RUNS), good=good)
        return _Decided(state=closed, why=Why.CLOSED, change=Change.CLOSED, since=state.since, severity=state.severity)
    more = bool(_names(state, evidence).any()) and _severity(state, evidence, baseline) is Severity.CRITICAL
    risen = state.severity is Severity.WARNING and more
    severity = Severity.CRITICAL if risen else state.severity
    return _Decided(
        state=replace(state, good=good, identical=0, severity=severity),
        why=Why.RECOVERING if good else Why.NEWCOMERS if _fails_by_newcomers(state, baseline) else Why.STANDS,
        change=Change.ESCALATED if risen else None,
        since=state.since,
        severity=severity,
    )


def _accused(state: State, evidence: RunEvidence, struck: NDArray[np.bool_]) -> State:
    names = np.where(struck, LOST, evidence.names)
    return replace(state, culprits=np.maximum(state.culprits, names).astype(np.int8), struck=state.struck | struck)


def _severity(state: State, evidence: RunEvidence, baseline: Baseline | None) -> Severity:
    """Severity of a run: critical where canaries are `lost`, a warning where they are only `worse`.

    Where no canary is named, the largest account decides.
    """
    named = _names(state, evidence)
    if baseline is None or (named == LOST).any() or (evidence.now[0] == 1).sum() > baseline.usual[0]:
        return Severity.CRITICAL
    if not named.any() and strongest_signal(state) is Signal.LOST:
        return Severity.CRITICAL
    return Severity.WARNING


def _names(state: State, evidence: RunEvidence) -> NDArray[np.int8]:
    """Canaries that this run names, as State.culprits: outstanding accounts, and strikers that still fail.

    Over many runs chance names some once, so earlier names are not kept.
    """
    return np.where(state.struck & (state.last[0] == 1), LOST, evidence.names).astype(np.int8)


def _is_good(state: State, baseline: Baseline | None) -> bool:
    """Whether a run is like those of the baseline.

    The numbers of lost and of worse are both within the baseline's 99 % quantiles, that of lost also with unknown
    canaries that passed once or are culprits. Among the culprits that used to pass, failures are within the quantile of
    the group, and fewer than half of it; an empty group is good. A failed probe counts as the measurement before it: no
    measurement is no recovery.
    """
    failing = state.last == 1
    if baseline is None:
        most = usual_count(state.counts)
        return state.failing <= most and not _most_fail(failing[0][state.struck])
    failures, known = baseline.failures, baseline.known
    if failures is None:
        raise ValueError("While an alarm is open the baseline is needed with its failures.")
    if ((failing & known).sum(axis=1) > baseline.usual).any():
        return False
    watched = failing[0] & (known | (state.passes > 0) | (state.culprits > 0))
    if watched.sum() > max(baseline.usual[0], baseline.usual_lost):
        return False
    named = np.flatnonzero((state.culprits > 0) & known)
    signals = np.where(state.culprits[named] == LOST, 0, 1)
    history = failures[signals, :, named]  # (culprit, runs)
    passing = history.mean(axis=1) < _MOST if len(named) else np.zeros(0, np.bool_)
    group = failing[signals, named][passing]
    if group.sum() > usual(history[passing].T):
        return False
    return not _most_fail(np.concatenate([group, failing[0][state.struck & ~known]]))


def _fails_by_newcomers(state: State, baseline: Baseline | None) -> bool:
    """Whether nothing is unusual but canaries that came during the alarm, or became others, and never passed since."""
    if baseline is None:
        return False
    failing = state.last == 1
    old = baseline.known | (state.passes > 0)
    usual_failures = ((failing & old).sum(axis=1) <= baseline.usual).all()
    return bool(usual_failures and not (failing & old & (state.culprits > 0)).any())


def _most_fail(group: NDArray[np.bool_]) -> bool:
    return len(group) > 0 and 2 * int(group.sum()) >= len(group)


def _without_restless(state: State, baseline: Baseline | None, observation: Observation) -> Baseline | None:
    """Return the baseline with restless canaries as unknown, see `RESTLESS`."""
    restless, failing = _is_restless(state), observation.lost == 1
    if baseline is None or not restless.any() or failing.mean() > _MOST:
        return baseline
    doubtful = np.flatnonzero(restless & failing)
    empty = [answer == NO_HITS for answer in observation.fingerprints(doubtful.tolist())]
    restless[doubtful[empty]] = False
    return replace(baseline, known=baseline.known & ~restless)


def _is_restless(state: State) -> NDArray[np.bool_]:
    return np.asarray(state.named >= RESTLESS)


def _closed(state: State, *, young: bool) -> State:
    """State without an alarm, with reset accounts; `young`: whether the baseline had few runs."""
    count = len(state.keys)
    named = (state.culprits > 0) & young
    if named.mean() > _MOST:
        named = np.zeros(count, np.bool_)
    return replace(
        state,
        canaries=at_rest(len(CANARY_BETS), count),
        grouped=at_rest(len(GROUP_SHIFTS), len(state.groups)),
        fleet=at_rest(len(FLEET_SHIFTS), 1),
        open=False,
        since=0,
        culprits=np.zeros(count, np.int8),
        struck=np.zeros(count, np.bool_),
        closings=state.closings + young,
        named=np.minimum(state.named + named.astype(np.int8), RESTLESS).astype(np.int8),
        severity=None,
        identical=0,
        recent=nothing_recent(len(SIGNALS), count),
    )


def _reading(
    evidence: RunEvidence, decided: _Decided, baseline: Baseline | None, members: Members, settings: Settings
) -> Reading:
    state = decided.state
    lost, worse = (int(count) for count in (evidence.now == 1).sum(axis=1))
    culprits = _culprits(state, evidence, baseline) if state.open else ()
    groups = standing_out(evidence.state, baseline, members) if state.open and baseline is not None else ()
    unknown = len(state.keys) if baseline is None else int((~baseline.known).sum())
    usual_counts = None if baseline is None else baseline.usual
    reading = Reading(
        evidence=evidence.evidence,
        scopes=evidence.scopes,
        open=state.open,
        change=decided.change,
        severity=decided.severity,
        since=decided.since,
        culprits=culprits,
        groups=groups,
        lost=lost,
        worse=worse,
        worse_alone=int(((evidence.now[1] == 1) & (evidence.now[0] != 1)).sum()),
        measured=int((evidence.now[0] != UNMEASURED).sum()),
        usual=usual_counts,
        good=state.good,
        warming=warming_note(state.identical, state.eligible + 1) if baseline is None else None,
        unknown=unknown,
        reason="",
    )
    fails = (evidence.now == 1).any(axis=0)
    most = [name for name in groups if fails.any() and 2 * fails[members.groups[name]].sum() >= fails.sum()]
    reason = reason_of(reading, decided.why, watched=len(state.keys), settings=settings, most=most)
    return replace(reading, reason=reason)


def _culprits(state: State, evidence: RunEvidence, baseline: Baseline | None) -> tuple[Culprit, ...]:
    """Culprits, the strongest evidence first."""
    names = _names(state, evidence)
    named = np.flatnonzero(names)
    ordered = named[np.argsort(-evidence.strength[named], kind="stable")]
    signals = [_SIGNAL_OF[name] for name in names[ordered].tolist()]
    strengths: list[float | None] = evidence.strength[ordered].tolist()
    if baseline is None or not baseline.known.all():
        known = np.zeros(len(ordered), np.bool_) if baseline is None else baseline.known[ordered]
        strengths = [each if sure else None for each, sure in zip(strengths, known.tolist(), strict=True)]
    fails = (evidence.now[:, ordered] == 1).any(axis=0)
    return tuple(map(Culprit, ordered.tolist(), signals, strengths, fails.tolist()))


def _expect_fitting(state: State, baseline: Baseline | None, members: Members, observation: Observation) -> None:
    """Raise ValueError where the numbers of canaries or groups differ; `observe` ensures that they are the same."""
    count = len(members.keys)
    sizes = {len(state.keys), *observation.lost.shape, *observation.ndcg.shape}
    if baseline is not None:
        sizes.add(len(baseline.keys))
    if sizes != {count} or len(state.groups) != len(members.groups):
        raise ValueError("State, baseline, members and observation are not about the same canaries.")


_NEWCOMERS: Final = "no canary of before the alarm is worse; those that were changed or added since never passed"
_MOST_GROUPS = 3
_DOCUMENT = "document:"
"""Groups by expected document are not named: another document may be gone."""


def reason_of(reading: Reading, why: Why, *, watched: int, settings: Settings, most: Sequence[str] = ()) -> str:
    """Sentence of a reading; `most`: the groups that hold half of what fails, or more."""
    failing = _failing(reading, watched)
    good = counted(reading.good, "good run")
    since = f"for {counted(reading.since, 'run')}" if reading.since > 1 else "since this run"
    inside = _most(most)
    sentences: dict[Why, Callable[[], str]] = {
        Why.QUIET: lambda: _evidence(reading, settings),
        Why.EVIDENCE: lambda: f"{_evidence(reading, settings)}, {since}{inside}",
        Why.STRIKES: lambda: _struck(reading),
        Why.TAIL: lambda: _newly(reading),
        Why.STANDS: lambda: f"worse than before the alarm, {since}{inside}",
        Why.NEWCOMERS: lambda: _NEWCOMERS,
        Why.RECOVERING: lambda: f"{good} in a row, {settings.close} close the alarm",
        Why.CLOSED: lambda: f"{good} in a row end the alarm, open for {counted(reading.since, 'run')}",
    }
    return f"{failing}; {sentences[why]()}{_unwatched(reading, watched)}."


def _unwatched(reading: Reading, watched: int) -> str:
    """Say how many canaries a baseline does not know, restless ones among them; empty while there is none."""
    if reading.warming is not None or not reading.unknown:
        return ""
    of = f"{reading.unknown:,} of {counted(watched, 'canary')}"
    are = "is" if reading.unknown == 1 else "are"
    return f"; {of} {are} unknown to the baseline (new, changed, restless or measured seldom) and watched less closely"


def habit_reason(reading: Reading, *, watched: int) -> str:
    """Sentence of a reading whose run is an episode of a habit."""
    habit = reading.habit
    if habit is None:
        raise ValueError("There is no habit to speak of.")
    good = f"; {counted(reading.good, 'good run')} in a row" if reading.good else ""
    lasts = f"for {counted(habit.runs, 'run')} now, {habit.bound:,} at most"
    return f"{_failing(reading, watched)}; {habit_sentence(habit)}, {lasts}{good}."


def habit_sentence(habit: HabitReading) -> str:
    """Clause on a habit."""
    count = len(habit.keys)
    these = "this canary switches" if count == 1 else f"these {count:,} canaries switch"
    return f"a habit: {these} between {_word(habit.answers)} answers, seen {habit.times:,} times"


def warming_summary(identical: int, eligible: int) -> str:
    """Progress of the first baseline, by the nearer one of its two conditions.

    `identical`: the newest runs in a row with the same results, `eligible`: runs that may be learned from.
    """
    if FULL_RUNS - eligible < IDENTICAL_RUNS - identical:
        return f"no baseline yet: {min(eligible, FULL_RUNS)} of {FULL_RUNS} runs"
    return f"no baseline yet: {min(identical, IDENTICAL_RUNS)} of {IDENTICAL_RUNS} identical runs"


def warming_note(identical: int, eligible: int) -> str:
    """Return the missing runs, and the rules until then; the counters are those of `warming_summary`."""
    return (
        f"no baseline yet: {min(identical, IDENTICAL_RUNS)} of {IDENTICAL_RUNS} identical runs, "
        f"or {min(eligible, FULL_RUNS)} of {FULL_RUNS} runs of any kind; until then only large losses are noticed, and "
        f"stable canaries that fail {run_evidence.STRIKES} runs in a row"
    )


def _word(number: int) -> str:
    return {2: "two", 3: "three", 4: "four", 5: "five"}.get(number, str(number))


def _failing(reading: Reading, watched: int) -> str:
    # Not "lost": most alerts say so of those alone that found their document before.
    one = reading.measured == 1
    questions = plural(reading.measured, "question" if reading.measured == watched else "measured question")
    if reading.lost:
        verb = "does not find its" if one else "do not find their"
        failing = f"{reading.lost} of {reading.measured:,} {questions} {verb} document"
    else:
        all_of = f"the {questions} finds its" if one else f"all {reading.measured:,} {questions} find their"
        failing = f"{all_of} document"
    if reading.usual is None:
        return failing
    # No canary is counted twice here, so the bound of all that are worse is left out: it includes those lost.
    usual = "" if not reading.lost else f" (usually {f'at most {reading.usual[0]}' if reading.usual[0] else '0'})"
    more = " more" if reading.lost else ""
    worse = f", {reading.worse_alone:,}{more} {'is' if reading.worse_alone == 1 else 'are'} worse than usual"
    return f"{failing}{usual}{worse if reading.worse_alone else ''}"


def _struck(reading: Reading) -> str:
    struck = sum(one.evidence is None for one in reading.culprits)
    verbs = "was stable and now fails" if struck == 1 else "were stable and now fail"
    return f"{counted(struck, 'canary')} {verbs} {reading.since} runs in a row"


def _newly(reading: Reading) -> str:
    verb = "newly fails" if len(reading.culprits) == 1 else "newly fail"
    newly = f"{counted(len(reading.culprits), 'canary')} {verb}"
    return f"{newly}, which by chance has a probability below {run_evidence.TAIL:g}"


def _evidence(reading: Reading, settings: Settings) -> str:
    if reading.evidence is None:
        return "warming up"
    line = 1 / settings.alpha
    if reading.evidence >= line:  # the number beyond it may be astronomical
        return "more than chance explains"
    return f"evidence {reading.evidence:,.3g}, an alarm is raised at {line:,.0f}"


def _most(names: Sequence[str]) -> str:
    groups = [name for name in names if not name.startswith(_DOCUMENT)]
    return f"; most in {', '.join(groups[:_MOST_GROUPS])}" if groups else ""


DRIFT_Z: Final = 3.0
SAME_OVERLAP: Final = 0.95
OVERLAP_DEPTH: Final = 5
SD_FLOOR: Final = 0.005
"""Of the mean: a deterministic retriever has no deviation, and the last digits of scores are noise."""
FEWEST: Final = 3
"""The median of fewer canaries would be that of a single one."""
_LARGEST_Z = 1_000.0


def score_drift(
    top_before_mean: ArrayLike, top_before_sd: ArrayLike, top_now: ArrayLike, overlap: ArrayLike | float
) -> StoredDrift:
    """Compare the scores of first hits with their baseline: parallel arrays, one place per canary, NaN = no score.

    `overlap` is the share of the top 5 in common with the baseline's ranking, by canary or of all together. Scores
    drifted where the median over canaries of |now - mean| / max(sd, 0.5 % of |mean|) is 3 or more; rankings count as
    unchanged at a mean overlap of 0.95 and more. Where fewer than three canaries have scores it is unknown.

    Measured: the median is 0 to 0.1 where nothing moved, 0.2 after rounding to eight bits, 4 and more after scores
    were rescaled by 2 % on a deterministic retriever, and 13 and more after another query encoder.
    """
    mean, sd, now = (
        np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in (top_before_mean, top_before_sd, top_now)
    )
    known = np.isfinite(mean) & np.isfinite(sd) & np.isfinite(now)
    count = int(known.sum())
    if count < FEWEST:
        note = f"scores are known before and now of {count} of {len(now)} canaries, which is too few to compare"
        return {"kind": DriftKind.UNKNOWN, "reason": note, "median_z": None, "overlap": None, "canaries": count}
    share = np.broadcast_to(np.asarray(overlap, dtype=np.float64), now.shape)[known]
    share = share[np.isfinite(share)]
    agreed = float(share.mean()) if len(share) else None
    z = float(np.median(_distances(mean[known], sd[known], now[known])))
    kind, reason = _kind_and_reason(z, agreed)
    common = None if agreed is None else round(agreed, 4)
    return {"kind": kind, "reason": reason, "median_z": round(z, 2), "overlap": common, "canaries": count}


def top_overlap(before: Sequence[object], now: Sequence[object], depth: int = OVERLAP_DEPTH) -> float:
    """Share of the longer of two tops that is in both, in [0, 1]; 1 for two empty ones."""
    one, other = set(before[:depth]), set(now[:depth])
    longer = max(len(one), len(other))
    return len(one & other) / longer if longer else 1.0


def _distances(mean: NDArray[np.float64], sd: NDArray[np.float64], now: NDArray[np.float64]) -> NDArray[np.float64]:
    away = np.abs(now - mean)
    scale = np.maximum(sd, SD_FLOOR * np.abs(mean))
    # Without deviation at a mean of 0, any move has the largest distance.
    z = np.divide(away, scale, out=np.where(away > 0, _LARGEST_Z, 0.0), where=scale > 0)
    return np.minimum(z, _LARGEST_Z)


def _kind_and_reason(z: float, overlap: float | None) -> tuple[DriftKind, str]:
    if z < DRIFT_Z:
        return DriftKind.NONE, f"scores are where they were: the median canary is {z:.1f} standard deviations away"
    moved = f"the median canary's top score is {z:.1f} standard deviations from its baseline"
    if overlap is None:
        return DriftKind.SCORES, f"scores moved, rankings are unknown: {moved}"
    sentence = (
        f"{moved}, and {percent_text(overlap)} of the top {OVERLAP_DEPTH} are those of the baseline, in any order"
    )
    if overlap >= SAME_OVERLAP:
        return DriftKind.SCORES, f"scores moved, what is found did not: {sentence}"
    return DriftKind.RANKINGS, f"scores moved, and what is found too: {sentence}"
