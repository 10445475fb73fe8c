"""Decision after one run: whether an alarm opens, which canaries are culprits, and whether it closes."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.values import Severity
from app.detection.domain import evidence as warm_up
from app.detection.domain.accounts import CANARY_BETS, FLEET_SHIFTS, GROUP_SHIFTS, at_rest, nothing_recent
from app.detection.domain.evidence import LOST, WORSE, RunEvidence, age, standing_out, strongest_signal, weigh
from app.detection.domain.learning import FULL_RUNS, usual, usual_count
from app.detection.domain.sentences import Why, reason_of, warming_note
from app.detection.domain.values import (
    SIGNALS,
    UNMEASURED,
    Baseline,
    Change,
    Culprit,
    Members,
    Observation,
    Reading,
    Settings,
    Signal,
    State,
)

RESTLESS: Final = 3
"""Canaries named by this many closed alarms with a young baseline are restless: unknown until a baseline has 300 runs,
since 20 identical runs may come from one replica among several. After this many alarms, strikes count where they exceed
any streak that ended by itself."""

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
    baseline = _without_restless(state, baseline)
    evidence = weigh(state, baseline, members, observation)
    decided = _while_open(evidence, baseline, settings) if state.open else _while_closed(evidence, baseline, settings)
    return decided.state, _reading(evidence, decided, baseline, members, settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    state: State
    why: Why
    change: Change | None = None
    since: int = 0
    severity: Severity | None = None
    """Both as in Reading: also set when an alarm closes."""


def _while_closed(evidence: RunEvidence, baseline: Baseline | None, settings: Settings) -> _Decided:
    """Whether an alarm opens, by the accounts, by three strikes or by the Poisson tail."""
    state = evidence.state
    strikes = warm_up.STRIKES if state.closings < RESTLESS else max(warm_up.STRIKES, state.longest + 1)
    struck = evidence.strikers & (state.streak == strikes)
    if evidence.evidence is not None and evidence.evidence >= 1 / settings.alpha:
        since, why = age(state), Why.EVIDENCE
    elif struck.any():
        since, why = strikes, Why.STRIKES
    elif baseline is None and warm_up.surprising(int(evidence.newly.sum()), state.newly_failed, len(state.counts)):
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
        why=Why.RECOVERING if good else Why.STANDS,
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


def _most_fail(group: NDArray[np.bool_]) -> bool:
    return len(group) > 0 and 2 * int(group.sum()) >= len(group)


def _without_restless(state: State, baseline: Baseline | None) -> Baseline | None:
    """Return the baseline with restless canaries as unknown, see `RESTLESS`."""
    restless = state.named >= RESTLESS
    if baseline is None or not restless.any():
        return baseline
    return replace(baseline, known=baseline.known & ~restless)


def _closed(state: State, *, young: bool) -> State:
    """State without an alarm, with reset accounts; `young`: whether the baseline had few runs."""
    count = len(state.keys)
    named = (state.culprits > 0) & young
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
        usual=usual_counts,
        good=state.good,
        warming=warming_note(state.identical, state.eligible + 1) if baseline is None else None,
        unknown=unknown,
        reason="",
    )
    return replace(reading, reason=reason_of(reading, decided.why, watched=len(state.keys), settings=settings))


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
