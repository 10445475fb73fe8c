"""Guard rails of exposure: what must not get worse while users are served better, and whether it is known to hold.

Nothing holds by runs, or users, of something else than what the checks ask by now.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.experiments.domain.margins import GateResult, decide_judged, lacks, within_margin
from app.experiments.domain.promotion_evidence import GuardEvidence, JudgedQuestion, Margin


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFinding:
    """A guard rail of the exposure gate, and whether it holds."""

    name: str
    allowed_loss: float
    result: GateResult
    reason: str


def decide_guard(one: GuardEvidence) -> GuardFinding:
    """Return whether a guard rail holds: by nothing that is of another configuration, though a loss stays a loss."""
    if isinstance(one.found, str):
        result, reason = GateResult.INCONCLUSIVE, f"nothing is known of {one.name}: {one.found}"
    elif isinstance(one.found, Margin):
        result, reason = within_margin({one.name: one.found}, one.allowed_loss)
    else:
        result, reason = decide_judged([one.found], one.allowed_loss)
        if result is GateResult.INCONCLUSIVE and all(map(lacks, one.found.values())):
            known = any(isinstance(said, JudgedQuestion) and said.answers for said in one.found.values())
            reason = f"{'not enough' if known else 'nothing'} is known of {one.name}: {reason}"
        result, reason = believe_runs(*read_behind(result, reason, one.behind), one.outdated)
    if one.ended and result is GateResult.INCONCLUSIVE:
        reason = f"{reason}, and no more units come"
    if one.harm_before and result is GateResult.INCONCLUSIVE:
        reason = f"{reason}; {one.harm_before}"
    if one.asked_otherwise and result is GateResult.PASS:
        result = GateResult.INCONCLUSIVE
    reason = "; ".join([*one.asked_otherwise, reason, *one.notes])
    return GuardFinding(name=one.name, allowed_loss=one.allowed_loss, result=result, reason=reason)


def believe_runs(result: GateResult, reason: str, outdated: Sequence[str]) -> tuple[GateResult, str]:
    """Let nothing pass by runs that are not of what the checks ask by now; what failed stays until they run again."""
    if not outdated:
        return result, reason
    again = f"{'; '.join(outdated)}: run {'it' if len(outdated) == 1 else 'both'} again"
    return (GateResult.INCONCLUSIVE if result is GateResult.PASS else result), f"{again}; {reason}"


def read_behind(result: GateResult, reason: str, behind: Sequence[str]) -> tuple[GateResult, str]:
    """Let nothing pass while newer runs are not read; what failed stays until they are."""
    if not behind:
        return result, reason
    return GateResult.INCONCLUSIVE if result is GateResult.PASS else result, "; ".join([*behind, reason])
