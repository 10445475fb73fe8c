"""The gates of a promotion, decided with reasons: what each found, who went on without it, and what they say together.

Offline measures and judges stand for users; only exposure asks them, so the last gate overrules the first. What a gate
found stays, whoever waives it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from app.alerts.domain.rules import FAILED_SHARE
from app.base.texts import bound_text, counted, listed, percent_text
from app.base.values import TimeText, Value, replace
from app.comparison.domain.outcomes import ComparisonVerdict, Side, ViolationKind
from app.comparison.domain.sentences import A_AND_B, judgments_sentence, violations_sentence, violations_text
from app.experiments.domain.margins import (
    GateResult,
    GuardFinding,
    Losses,
    believe_runs,
    decide_guard,
    decide_judged,
    intervals_text,
    lost_measures,
    lost_of,
    read_behind,
    within_margin,
)
from app.experiments.domain.promotion_evidence import (
    CategoryLosses,
    ExposureEvidence,
    GuardEvidence,
    JudgeEvidence,
    Margin,
    OfflineEvidence,
)

FEWEST_CANARIES: Final = 500
OFFLINE_MARGIN: Final = 0.02
"""A loss of MRR or NDCG@10 below it is accepted on the way to exposure."""
JUDGE_MARGIN: Final = 0.05


class GateName(StrEnum):
    """The gates, in their order."""

    OFFLINE = "offline"
    JUDGE = "judge"
    EXPOSURE = "exposure"


class PromotionState(StrEnum):
    """What the gates say together."""

    PROMOTE = "promote"
    STOPPED = "stopped"
    OPEN = "open"
    """Some gate is inconclusive yet."""
    NEEDS_DECISION = "needs_decision"
    """Users are served better and something else is worse: a person decides, by a waiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A person's decision to go on without a gate, with what the gate had found by then."""

    by: str
    reason: str
    at: TimeText
    finding: GateResult
    """What the gate said when it was waived."""
    found: str
    """The same in words; empty where an older release kept nothing of it."""
    losses: Losses | None = None
    """The losses that it had shown; None where an older release kept none."""


class NextStep(StrEnum):
    """What to do about a gate that has not passed."""

    CHANGE_CANDIDATE = "change_candidate"
    """It is worse: change it, and measure it again."""
    MEASURE_MORE = "measure_more"
    """Run both checks again, or add canaries."""
    MEND_ANSWERS = "mend_answers"
    """See why canaries were not answered, and run the checks again: no more canaries are needed."""
    GRADE_TASK = "grade_task"
    """Let people grade a task over the retrievers of both checks, and adopt it."""
    ASK_JUDGE = "ask_judge"
    """See to it that one judge rates the answers of both checks, and is asked for all that counts."""
    LABEL_ANSWERS = "label_answers"
    """More answers have to be judged, or labelled by people."""
    RUN_AGAIN = "run_again"
    """Run the checks again that the finding names: what they ask has changed since."""
    AWAIT_USERS = "await_users"
    """Let the experiment run."""
    AWAIT_OUTCOMES = "await_outcomes"
    """No more units come, and those that came may decide it: wait until they are final."""
    AWAIT_GUARDS = "await_guards"
    """Users are served better; a guard rail is not known yet."""
    MEND_SHARES = "mend_shares"
    """Find out why the arms get other shares than they should, and begin a new epoch."""
    BEGIN_AGAIN = "begin_again"
    """More units change nothing: keep what is current, or begin a new epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate of a promotion."""

    gate: GateName
    result: GateResult
    """`waived` only where the waiver covers what was found; a gate that passes needs none."""
    reason: str
    """What it found, in a sentence, whatever is waived."""
    evidence: GateResult
    """What it found; never `waived`."""
    waiver: Waiver | None
    guards: tuple[GuardFinding, ...] = ()
    """Of exposure: what else must not get worse."""
    losses: Losses = field(default_factory=dict)
    """The losses that it shows."""
    next: NextStep | None = None
    """What to do about it; None where it passes or is waived."""


class PromotionDecision(Value):
    """The gates in their order, and what they say together."""

    gates: tuple[Gate, ...]
    state: PromotionState
    reason: str
    by_waiver: bool = False
    """Whether it says `promote`, and would not without the waivers."""
    harm_before: bool = False
    """Whether it had been shown that users are served worse: by an earlier epoch that this one does not undo, or by
    another experiment, whatever this one says."""


def decide_promotion(
    offline: OfflineEvidence | str,
    judge: JudgeEvidence | str,
    exposure: ExposureEvidence | str,
    waivers: Mapping[GateName, Waiver],
    *,
    guards: Sequence[GuardEvidence] = (),
    stopping: Sequence[str] = (),
    unwatched: Sequence[str] = (),
    edits: Sequence[str] = (),
) -> PromotionDecision:
    """Decide the gates and the promotion; a text in the place of evidence says why there is none.

    `guards` are what must not get worse for exposure to pass. `stopping` names the open critical alerts, in words, that
    stop the promotion whatever the gates say. `unwatched` says of checks why no alert of theirs would, and `edits` what
    they asked when exposure was waived, where that is something else than by now.
    """
    rails = tuple(decide_guard(one) for one in guards)
    found = (
        (GateName.OFFLINE, _decide_offline(offline), (), _offline_losses(offline)),
        (GateName.JUDGE, _decide_judge(judge), (), _judged_losses(judge)),
        (GateName.EXPOSURE, _decide_exposure(exposure, rails), rails, _exposure_losses(exposure, guards)),
    )
    users = exposure if isinstance(exposure, ExposureEvidence) else None
    stale = [said for one in guards for said in one.asked_otherwise]
    changed = [*([] if users is None else users.asked_otherwise), *stale]
    voids = {GateName.EXPOSURE: _say_void(waivers.get(GateName.EXPOSURE), changed, edits)}
    gates = tuple(
        Gate(
            gate=name,
            result=GateResult.WAIVED
            if not voids.get(name) and _is_waived(evidence, waivers.get(name), losses)
            else evidence,
            reason=reason,
            evidence=evidence,
            waiver=waivers.get(name),
            guards=of_gate,
            losses=losses,
        )
        for name, (evidence, reason), of_gate, losses in found
    )
    steps = _next_steps(offline, judge, users, gates, changed)
    gates = tuple(replace(gate, next=step) for gate, step in zip(gates, steps, strict=True))
    unknown = any(one.ended and rail.result is GateResult.INCONCLUSIVE for one, rail in zip(guards, rails, strict=True))
    never = {
        GateName.OFFLINE: _never_offline(offline),
        GateName.JUDGE: _never_judged(judge),
        GateName.EXPOSURE: _never_exposed(users, changed, unknown=unknown),
    }
    final = {name: why for name, why in never.items() if why}
    state, reason = _together(gates, users, stopping, final, voids)
    bare = tuple(replace(gate, result=gate.evidence, waiver=None) for gate in gates)
    if unwatched:
        why = f"{listed(unwatched)}, so that no alert would tell of a fault"
        if state is PromotionState.PROMOTE:
            state, reason = PromotionState.STOPPED, f"stopped while {why}; else {reason}"
        else:
            reason = f"{reason}; besides, {why}"
    by_waiver = state is PromotionState.PROMOTE and _together(bare, users, stopping, final, {})[0] is not state
    harmed = users is not None and (bool(users.elsewhere) or (bool(users.harm_before) and not users.is_better))
    harmed |= any(
        one.harm_before and rail.result is not GateResult.PASS for one, rail in zip(guards, rails, strict=True)
    )
    return PromotionDecision(gates=gates, state=state, reason=reason, by_waiver=by_waiver, harm_before=harmed)


def _next_steps(
    offline: OfflineEvidence | str,
    judge: JudgeEvidence | str,
    users: ExposureEvidence | None,
    gates: tuple[Gate, ...],
    changed: Sequence[str],
) -> Iterator[NextStep | None]:
    """Yield what to do about each gate; `changed` says what users of exposure or its rails were not asked about."""
    is_asked = isinstance(judge, JudgeEvidence) and not judge.is_blind
    undecided = {
        GateName.OFFLINE: NextStep.RUN_AGAIN
        if isinstance(offline, OfflineEvidence) and offline.outdated
        else NextStep.GRADE_TASK
        if _never_offline(offline)
        else NextStep.MEND_ANSWERS
        if isinstance(offline, OfflineEvidence) and (offline.lacks_answers or _would_suffice(offline))
        else NextStep.MEASURE_MORE,
        GateName.JUDGE: NextStep.RUN_AGAIN
        if isinstance(judge, JudgeEvidence) and judge.outdated
        else NextStep.MEASURE_MORE
        if isinstance(judge, str) or judge.lacks_ratings
        else NextStep.LABEL_ANSWERS
        if is_asked
        else NextStep.ASK_JUDGE,
        GateName.EXPOSURE: _next_of_users(users, changed),
    }
    for gate in gates:
        steps = {GateResult.FAIL: NextStep.CHANGE_CANDIDATE, GateResult.INCONCLUSIVE: undecided[gate.gate]}
        yield steps.get(gate.result)


def _next_of_users(users: ExposureEvidence | None, changed: Sequence[str]) -> NextStep:
    if users is not None and users.mismatch:
        return NextStep.MEND_SHARES
    if users is not None and users.is_better:
        return NextStep.BEGIN_AGAIN if changed else NextStep.AWAIT_GUARDS
    if users is not None and (users.ended or users.asked_otherwise):
        return NextStep.BEGIN_AGAIN
    return NextStep.AWAIT_OUTCOMES if users is not None and users.stopped else NextStep.AWAIT_USERS


def _is_waived(evidence: GateResult, waiver: Waiver | None, losses: Losses) -> bool:
    """Whether a waiver covers what a gate finds.

    Who waived what nobody knew yet has not waived a loss shown later, also of an earlier epoch, nor one of something
    else, nor a larger one: an interval that lies below that of then.
    """
    if waiver is None or evidence is GateResult.PASS:
        return False
    if evidence is GateResult.FAIL and waiver.finding is not GateResult.FAIL:
        return False
    then = waiver.losses
    return then is None or all(name in then and high >= then[name][0] for name, (_, high) in losses.items())


def _say_void(waiver: Waiver | None, changed: Sequence[str], edits: Sequence[str]) -> str:
    """Say why a waiver of exposure covers nothing any more, since it was given before a check was changed; else empty.

    Either users were asked about something else, which is told as `changed` and was not known when it was given; or who
    waived was, by `edits`, also where a new epoch asks users about what it is by now.
    """
    if waiver is None:
        return ""
    if waiver.found and any(one not in waiver.found for one in changed):
        return "it was given before a check was changed"
    return f"it was given before a check was changed ({listed(edits)})" if edits else ""


def _offline_losses(found: OfflineEvidence | str) -> Losses:
    if isinstance(found, str):
        return {}
    paid = found.paid if found.is_trade else {}
    traded = {name: (one.low, one.high) for name, one in paid.items() if one.low is not None and one.high is not None}
    in_categories = {
        f"{one.category}: {name}": interval
        for one in found.categories
        for name, interval in lost_measures(one.paid, OFFLINE_MARGIN).items()
    }
    return {**traded, **lost_measures(found.compared, OFFLINE_MARGIN), **in_categories, **_ruled_out(found)}


def _ruled_out(found: OfflineEvidence) -> Losses:
    """Return how many canaries more get what they rule out, less than zero, and the first of them one by one.

    So that who waives some of them has waived no others.
    """
    more = {str(one.kind): float(one.a - one.b) for one in found.broken}
    named = {f"{one.kind}: {key}": -1.0 for one in found.broken for key in one.only_b[:_MOST_NAMED]}
    return {name: (number, number) for name, number in (more | named).items()}


_MOST_NAMED: Final = 20


def _judged_losses(found: JudgeEvidence | str) -> Losses:
    return {} if isinstance(found, str) else lost_of(list(found.measures.values()), JUDGE_MARGIN)


def _exposure_losses(found: ExposureEvidence | str, guards: Sequence[GuardEvidence]) -> Losses:
    losses: dict[str, tuple[float, float]] = {}
    if isinstance(found, ExposureEvidence):
        own = (found.harm, None if found.is_better else found.before)
        shown = [one for one in (*own, *(one.difference for one in found.elsewhere)) if one is not None]
        if worst := min(shown, key=lambda one: one.high, default=None):
            losses["users"] = (worst.low, worst.high)
    for one in guards:
        if isinstance(one.found, Margin):
            losses |= lost_measures({one.name: one.found}, one.allowed_loss)
        elif not isinstance(one.found, str):
            of_rail = lost_of([one.found], one.allowed_loss)
            losses |= {f"{one.name}: {name}": interval for name, interval in of_rail.items()}
        if one.before is not None and one.name not in losses and decide_guard(one).result is not GateResult.PASS:
            losses[one.name] = (one.before.low, one.before.high)
    return losses


def _together(
    gates: tuple[Gate, ...],
    users: ExposureEvidence | None,
    stopping: Sequence[str],
    never: Mapping[GateName, str],
    voids: Mapping[GateName, str],
) -> tuple[PromotionState, str]:
    """Return the state and why: users overrule offline, a person the rest by a waiver, and no finding is left out.

    `never` says of gates how it comes that more of the same evidence decides nothing, `voids` why waivers cover nothing
    any more.
    """
    state, reason, told = _conclude(gates, users, stopping, never)
    others = [
        _found_beside(gate, never) for gate in gates if gate.gate not in told and gate.evidence is not GateResult.PASS
    ]
    uncovered = [
        f"the waiver of {gate.gate} by {gate.waiver.by} does not cover that: "
        f"{voids.get(gate.gate) or 'it was given before that was found'}"
        for gate in gates
        if gate.waiver is not None and gate.result in {GateResult.FAIL, GateResult.INCONCLUSIVE}
    ]
    follows = []
    ended = GateName.EXPOSURE in never and users is not None and not users.mismatch
    if ended and state is PromotionState.OPEN and gates[-1].result is GateResult.INCONCLUSIVE:
        waive = _waivers_that_suffice(gates, never)
        follows = [f"more units change nothing for exposure: keep what is current, begin a new epoch, or {waive}"]
    return state, "; ".join([reason, *others, *uncovered, *follows])


def _is_over(users: ExposureEvidence | None) -> bool:
    """Whether exposure has ended without showing who is served better."""
    return users is not None and users.ended and not (users.is_better or users.is_worse)


def _never_offline(found: OfflineEvidence | str) -> str:
    """Say that whose judgments they are never lets the candidate pass; empty where it may."""
    if isinstance(found, str) or found.canaries < FEWEST_CANARIES:
        return ""
    own = any(one.favours is Side.B or one.edited for one in found.judgments)
    result, _, doubtful = _read_offline(found)
    doubted = doubtful and result is not GateResult.INCONCLUSIVE
    return "cannot pass with these judgments" if own or doubted else ""


def _never_judged(found: JudgeEvidence | str) -> str:
    """Say that a judge is not asked for all that the gate is about; empty where it is."""
    blind = isinstance(found, JudgeEvidence) and found.is_blind
    return "cannot pass as answers are judged now" if blind else ""


def _never_exposed(users: ExposureEvidence | None, changed: Sequence[str], *, unknown: bool) -> str:
    """Say how exposure ended where it did not decide; empty while more may come.

    `changed` says what users, also of guard rails, were not asked about, `unknown` that a rail has ended undecided.
    """
    if users is None:
        return ""
    if users.mismatch:
        return "decided nothing, as the shares mismatch"
    if not _is_over(users):
        cannot = "cannot pass, as a check was changed" if changed else "cannot pass any more" if unknown else ""
        return cannot if users.is_better else ""
    if users.is_contradicted:
        return "is contradicted by later looks"
    if users.within is None:
        return "ended without a decision"
    return f"ended: no difference larger than {bound_text(users.within)}"


def _conclude(
    gates: tuple[Gate, ...],
    users: ExposureEvidence | None,
    stopping: Sequence[str],
    never: Mapping[GateName, str],
) -> tuple[PromotionState, str, set[GateName]]:
    """Return the state, why, and the gates whose finding is told by that."""
    offline, judge, exposure = gates
    is_better = users is not None and users.is_better
    alerts = f"{' and '.join(stopping)}: what was measured meanwhile may be caused by that fault" if stopping else ""
    if exposure.result is GateResult.FAIL and not is_better:
        passed = [str(gate.gate) for gate in (offline, judge) if gate.result is GateResult.PASS]
        before = f", though {' and '.join(passed)} passed" if passed else ""
        last = "; what users do overrules the rest" if users is not None and users.is_worse else ""
        also = f"; and {alerts}" if alerts else ""
        return PromotionState.STOPPED, f"stopped by exposure{before}: {exposure.reason}{last}{also}", {exposure.gate}
    if alerts:
        return PromotionState.STOPPED, f"stopped while {alerts}", set()
    failed = [gate for gate in gates if gate.result is GateResult.FAIL and (gate is not offline or _leaks(gate))]
    if is_better and failed:
        against = exposure.reason
        told = {gate.gate for gate in failed}
        if exposure.result is not GateResult.FAIL:
            better = _BETTER
            if exposure.result is not GateResult.WAIVED:
                told.add(exposure.gate)
                reason = exposure.reason
                better = reason if reason.startswith(_BETTER) else f"{_BETTER} ({reason})"
            say = {GateName.JUDGE: "the judge failed", GateName.OFFLINE: "offline failed"}
            against = f"{better}, but {'; '.join(f'{say[gate.gate]}: {gate.reason}' for gate in failed)}"
        who = "an admin" if exposure in failed else "a person"
        decides = f"{against}; {who} decides: keep what is current, or {_waivers_that_suffice(gates, never)}"
        return PromotionState.NEEDS_DECISION, decides, told
    if exposure.result is GateResult.PASS:
        better = f"it may go to all users: they are served better, {exposure.reason}"
        return PromotionState.PROMOTE, better, {exposure.gate}
    return _conclude_without_users(gates, users, never)


_BETTER: Final = "users are served better"


def _leaks(offline: Gate) -> bool:
    """Whether the candidate returns more of what canaries rule out, of which what users do says nothing."""
    return offline.result is GateResult.FAIL and not {str(one) for one in ViolationKind}.isdisjoint(offline.losses)


def _waivers_that_suffice(gates: tuple[Gate, ...], never: Mapping[GateName, str]) -> str:
    """Say which waivers lead to `promote`: where exposure does not pass, every other gate has to pass or be waived."""
    is_decided = gates[-1].result is GateResult.PASS  # and then nothing hinders that is not shown to be worse
    asked = gates if not is_decided or _leaks(gates[0]) else gates[1:]
    unknown = [gate.gate for gate in asked if gate.result is GateResult.INCONCLUSIVE and not is_decided]
    also = [str(name) for name in unknown if name not in never]
    waive = [
        str(gate.gate)
        for gate in asked
        if gate.result is GateResult.FAIL or (gate.gate in unknown and str(gate.gate) not in also)
    ]
    only = f"waive {listed(waive)}"
    if not also:
        return only
    return f"{only}, and also {listed(also)} unless {'they pass' if len(also) > 1 else 'it passes'} first"


def _conclude_without_users(
    gates: tuple[Gate, ...], users: ExposureEvidence | None, never: Mapping[GateName, str]
) -> tuple[PromotionState, str, set[GateName]]:
    """Return the same where exposure does not decide, or is waived."""
    exposure = gates[-1]
    stopped = next((gate for gate in gates if gate.result is GateResult.FAIL), None)
    if stopped is not None:
        return PromotionState.STOPPED, f"stopped by {stopped.gate}: {stopped.reason}", {stopped.gate}
    waiting = next((gate for gate in gates if gate.result is GateResult.INCONCLUSIVE), None)
    if waiting is not None:
        waits = waiting.gate is GateName.EXPOSURE and users is not None and users.is_better
        found = never.get(waiting.gate, "waits for its guard rails" if waits else "has decided nothing yet")
        return PromotionState.OPEN, f"{waiting.gate} {found}: {waiting.reason}", {waiting.gate}
    decided = _how_waived(exposure, users)
    return PromotionState.PROMOTE, f"it may go to all users: a person decided so, {decided}", set()


def _how_waived(exposure: Gate, users: ExposureEvidence | None) -> str:
    """Say what was known of users when nothing but waivers is in the way."""
    decided, broken = "before users showed a difference", any(one.result is GateResult.FAIL for one in exposure.guards)
    if users is None:
        decided = "without asking users"
    elif users.elsewhere or (users.harm_before and not users.is_better):
        decided = "although it had been shown that users are served worse"
    elif users.mismatch:
        decided = "although what users showed cannot be believed"
    elif users.is_contradicted and not users.is_worse:
        decided = "although later looks contradict what exposure decided"
    elif _is_over(users):
        decided = _how_over(exposure.waiver, users) + (", although a guard rail is broken" if broken else "")
    elif users.is_better and users.asked_otherwise:
        decided = "although users were asked about something else than what the checks ask by now"
    elif users.is_better:
        decided = f"with users who are served better, although a guard rail is {'broken' if broken else 'not known'}"
    elif exposure.evidence is GateResult.FAIL:
        decided = "against what exposure showed"
    return decided


def _how_over(waiver: Waiver | None, users: ExposureEvidence) -> str:
    """Say how exposure had ended without showing who is served better, where the waiver was given after that."""
    if _is_older(waiver, users):
        return "before users showed a difference"
    if users.within is None:
        return "although exposure ended without a decision"
    return f"where users showed no difference larger than {bound_text(users.within)}"


def _is_older(waiver: Waiver | None, users: ExposureEvidence) -> bool:
    """Whether a waiver was given before exposure had ended."""
    if waiver is None or users.ended_since is None:
        return False
    return datetime.fromisoformat(waiver.at).timestamp() * 1e6 < users.ended_since


def _found_beside(gate: Gate, never: Mapping[GateName, str]) -> str:
    """Tell what a gate found that does not make the conclusion, and who waived it and why."""
    found = never.get(gate.gate, "decided nothing") if gate.gate is GateName.EXPOSURE else "decided nothing"
    if gate.evidence is GateResult.FAIL:
        found = "failed"
    if gate.waiver is None or gate.result is not GateResult.WAIVED:
        return f"{gate.gate} {found}: {gate.reason}"
    rails = [
        one.reason for one in gate.guards if one.result is GateResult.INCONCLUSIVE and one.reason not in gate.reason
    ]
    return (
        f"{gate.gate} {found} ({'; '.join([gate.reason, *rails])}), waived by {gate.waiver.by}: “{gate.waiver.reason}”"
    )


def _decide_offline(found: OfflineEvidence | str) -> tuple[GateResult, str]:
    """Decide by measures; a candidate that returns more of what canaries rule out fails, however many there are."""
    if isinstance(found, str):
        return GateResult.INCONCLUSIVE, found
    result, reason = _decide_measured(found)
    reason = "; ".join([reason, *_other_leaks(found)])
    if not found.broken:
        return result, reason
    ruled_out = [violations_text(one, _CURRENT_AND_CANDIDATE) for one in found.broken]
    return GateResult.FAIL, "; ".join([*ruled_out, reason])


def _other_leaks(found: OfflineEvidence) -> list[str]:
    """Say for which canaries the candidate alone returns what they rule out, whoever does so for more."""
    alone = [one for one in found.violations if one.only_b]
    return [violations_sentence(one, _CURRENT_AND_CANDIDATE) for one in alone]


def _decide_measured(found: OfflineEvidence) -> tuple[GateResult, str]:
    left_out = "".join(f"; {one}" for one in _say_unanswered(found))
    if found.canaries < FEWEST_CANARIES:
        both = f"{counted(found.canaries, 'canary')} that both newest runs measured, of at least {FEWEST_CANARIES}"
        what = "add canaries to the suite" if found.canaries else "see why these runs measured none"
        if _would_suffice(found):
            were = (
                f"{counted(found.not_measured, 'canary')} {'was' if found.not_measured == 1 else 'were'} not measured"
            )
            what = (
                f"see why {were}, and run again: with {'it' if found.not_measured == 1 else 'these'} there are enough"
            )
        if found.without_judgments and not found.canaries:
            what = f"{counted(found.without_judgments, 'canary')} expect nothing, so say what each is to find"
        if found.unlike and (not found.canaries or found.canaries + found.unlike >= FEWEST_CANARIES):
            what = f"{counted(found.unlike, 'canary')} differ between these runs, so run both checks again"
        return GateResult.INCONCLUSIVE, f"{both}: {what}{left_out}"
    result, reason = _believe_judgments(found)
    if found.shared:
        reason += f"; the checks ask {found.shared}: nothing else is compared"
    left = found.canaries - found.archived
    if left < FEWEST_CANARIES:
        were = "was" if found.archived == 1 else "were"
        left_out += f"; {counted(found.archived, 'canary')} of these {were} archived, and {left:,} are left"
    if result is GateResult.PASS and (found.lacks_answers or left < FEWEST_CANARIES):
        result = GateResult.INCONCLUSIVE
    return believe_runs(result, "; ".join([f"{reason}{left_out}", *found.edits]), found.outdated)


def _would_suffice(found: OfflineEvidence) -> bool:
    """Whether there are enough canaries in the suite, of which too many were not measured."""
    return found.canaries < FEWEST_CANARIES <= found.canaries + found.not_measured


def _say_unanswered(found: OfflineEvidence) -> Iterator[str]:
    """Yield how many canaries each side did not answer, which are in no number."""
    if found.unanswered:
        of_all = counted(found.canaries + found.unanswered, "canary")
        again = "" if _would_suffice(found) else ": see why, and run it again"
        much = f", more than {percent_text(FAILED_SHARE)}{again}" if found.lacks_answers else ""
        yield f"{found.unanswered:,} of {of_all} have no answer of the candidate, and are not compared{much}"
    if found.unanswered_now:
        have = "has" if found.unanswered_now == 1 else "have"
        yield f"{counted(found.unanswered_now, 'canary')} {have} no answer of what is current, also not compared"


def _believe_judgments(found: OfflineEvidence) -> tuple[GateResult, str]:
    """Return what the numbers say, as far as it does not come of whose judgments they rest on."""
    result, reason, doubtful = _read_offline(found)
    if not found.judgments:
        return result, reason
    notes = "; ".join(judgments_sentence(one, _CURRENT_AND_CANDIDATE) for one in found.judgments)
    if doubtful and result is not GateResult.INCONCLUSIVE:
        return GateResult.INCONCLUSIVE, f"{reason}, but that may come of the judgments: {notes}; {_JUDGE_BOTH}"
    return result, f"{reason}; {notes}{f'; {_JUDGE_BOTH}' if doubtful else ''}"


def _read_offline(found: OfflineEvidence) -> tuple[GateResult, str, bool]:
    """Return what the numbers say by themselves, and whether that may come of whose judgments they rest on."""
    result, reason = within_margin(found.compared, OFFLINE_MARGIN, f"over {counted(found.canaries, 'canary')}")
    own = {one.favours: one.not_claimed for one in found.judgments}
    may_be_traded = found.verdict is ComparisonVerdict.BETTER and own.get(Side.A)
    if found.is_trade:
        result, reason = GateResult.FAIL, _say_trade(found)
    result, reason = _with_categories(result, reason, found.categories)
    if any(one.edited for one in found.judgments):  # which way they err is not known
        return result, reason, True
    doubtful = Side.A in own if result is GateResult.FAIL else Side.B in own or bool(may_be_traded)
    return result, reason, doubtful


def _with_categories(result: GateResult, reason: str, losses: Sequence[CategoryLosses]) -> tuple[GateResult, str]:
    """Let nothing pass where a category loses more than is accepted, or may: that the whole gains does not undo it."""
    told, found = [], [result]
    for one in losses:
        where = f"in category {one.category} ({counted(one.canaries, 'canary')})"
        of_category, says = within_margin(one.paid, OFFLINE_MARGIN, where)
        if of_category is not GateResult.PASS:
            found.append(of_category)
            told.append(says)
    worst = next(one for one in (GateResult.FAIL, GateResult.INCONCLUSIVE, GateResult.PASS) if one in found)
    return worst, "; ".join([*told, reason])


def _say_trade(found: OfflineEvidence) -> str:
    """Say which measures are gained and which ones are paid with, and how much of each."""
    trade = f"one measure is gained and another one paid with (trade) over {counted(found.canaries, 'canary')}"
    if not (found.gained and found.paid):
        return trade
    others = {name: one for name, one in found.measures.items() if name not in {*found.gained, *found.paid}}
    beside = f"; beside that {intervals_text(others)}" if others else ""
    return f"{trade}: {intervals_text(found.gained)}, paid for by {intervals_text(found.paid)}{beside}"


_JUDGE_BOTH: Final = "to judge both alike, let people grade a task over the retrievers of both checks, and adopt it"


_CURRENT_AND_CANDIDATE: Final = replace(
    A_AND_B,
    within={Side.A: "in the current check", Side.B: "in the candidate"},
    gain={Side.A: "the current check", Side.B: "the candidate"},
)


def _decide_judge(found: JudgeEvidence | str) -> tuple[GateResult, str]:
    if isinstance(found, str):
        return GateResult.INCONCLUSIVE, found
    result, reason = decide_judged(list(found.measures.values()), JUDGE_MARGIN)
    return believe_runs(*read_behind(result, reason, found.behind), found.outdated)


def _decide_exposure(found: ExposureEvidence | str, guards: Sequence[GuardFinding]) -> tuple[GateResult, str]:
    """Pass where users are served better and every guard rail holds; fail where they are not, or one is broken.

    It fails too where users of another experiment are served worse: which of both is true is not known.
    """
    if isinstance(found, str):
        return GateResult.INCONCLUSIVE, found
    result, reason = _decide_users(found, guards)
    return result, "; ".join([reason, *found.cautions])


def _decide_users(found: ExposureEvidence, guards: Sequence[GuardFinding]) -> tuple[GateResult, str]:
    if found.is_worse:
        return GateResult.FAIL, "; ".join([*found.asked_otherwise, found.reason])
    broken = [guard.reason for guard in guards if guard.result is GateResult.FAIL]
    elsewhere = [one.told for one in found.elsewhere]
    if broken or elsewhere:
        than = _BETTER if found.is_better else "no difference is shown"
        but = "; ".join([*broken, *elsewhere, *_harm_before(found), *_asked_otherwise(found, broken)])
        return GateResult.FAIL, f"{than} ({found.reason}), but {but}"
    if not found.is_better:
        told = found.mismatch or found.within is not None
        power = [] if told else [found.power]
        parts = [*found.asked_otherwise, found.reason, *power, found.harm_before]
        return GateResult.INCONCLUSIVE, "; ".join(part for part in parts if part)
    return _decide_better(found, guards)


def _decide_better(found: ExposureEvidence, guards: Sequence[GuardFinding]) -> tuple[GateResult, str]:
    """Pass where no guard rail is unknown, and users saw the candidate as it is by now."""
    unknown = [guard.reason for guard in guards if guard.result is GateResult.INCONCLUSIVE]
    if unknown:
        but = "; ".join([*unknown, *_harm_before(found), *_asked_otherwise(found, unknown)])
        return GateResult.INCONCLUSIVE, f"{_BETTER} ({found.reason}), but {but}"
    passed = "; ".join([found.reason, *(guard.reason for guard in guards), *_harm_before(found)])
    if found.asked_otherwise:
        return GateResult.INCONCLUSIVE, "; ".join([*found.asked_otherwise, passed])
    return GateResult.PASS, passed


def _asked_otherwise(found: ExposureEvidence, rails: Sequence[str]) -> list[str]:
    """Say what users were not asked about, where a guard rail of the same users does not say it."""
    return [one for one in found.asked_otherwise if not any(one in said for said in rails)]


def _harm_before(found: ExposureEvidence) -> list[str]:
    """Say that users had been served worse before."""
    return [f"though {found.harm_before}"] if found.harm_before else []
