"""Differences held against the loss that is accepted: of measures over canaries, and of answers that a judge rated.

What an interval shows to be lost, what it rules out, and the words for both. At the end guard rails of exposure: what
must not get worse while users are served better. None holds by runs, or users, of something else than what the checks
ask by now.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.answers.domain.generated import UNJUDGED_SHARE
from app.base.texts import bound_text, change_text, counted, listed, percent_text
from app.base.values import replace
from app.experiments.domain.promotion_evidence import GuardEvidence, Judged, JudgedQuestion, Margin

FEWEST_ANSWERS: Final = 100


class GateResult(StrEnum):
    """What a gate says of the candidate."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    WAIVED = "waived"


Losses = Mapping[str, tuple[float, float]]
"""Intervals of what is shown to be lost, candidate less current, by name."""


def decide_judged(asked: Sequence[Judged], margin: float) -> tuple[GateResult, str]:
    """Fail where any question shows a loss, pass where none of those that decide leaves one open.

    Of the questions that ask for the same, the first one decides of which enough is known; where there is none, nothing
    passes. What does not count is told beside the reason for that.
    """
    found: dict[str, JudgedQuestion] = {}
    lacking: dict[str, list[str]] = {}
    aside: dict[str, Margin] = {}
    told: dict[str, JudgedQuestion] = {}
    unrated: dict[str, None] = {}
    undecided = False
    for judged in asked:
        said = {name: one for name, one in judged.items() if isinstance(one, JudgedQuestion)}
        counting = {name: one for name, one in said.items() if not lacks(one)}
        decides = next(iter(counting), None)
        undecided |= decides is None or said[decides].lacks_ratings or bool(said[decides].labelled)
        unrated |= dict.fromkeys(sentence for name, one in said.items() for sentence in _say_unrated(name, one))
        lost = {name for name, one in said.items() if _shows_loss(one, margin)}
        found |= {name: one for name, one in said.items() if name == decides or name in lost}
        told |= {name: one for name, one in said.items() if one.answers and (name in found or decides is None)}
        for name, one in judged.items():
            if name == decides:
                break
            lacking.setdefault(lacks(one), []).extend([] if isinstance(one, str) else [name])
            if isinstance(one, JudgedQuestion) and one.answers and name not in lost:
                aside[_name_of(name, one)] = one.margin
    sentences = [f"{why} ({listed(names)})" if names else why for why, names in lacking.items()]
    sentences += unrated
    sentences += _say_labelled(told)
    if aside:
        sentences.append(f"known, though it decides nothing: {intervals_text(aside)}")
    if not found:
        return GateResult.INCONCLUSIVE, "; ".join(sentences)
    numbers = {one.answers for one in found.values()}
    over = f"over {'at least ' if len(numbers) > 1 else ''}{counted(min(numbers), 'judged answer')}"
    margins = {_name_of(name, one): _counted(one) for name, one in found.items()}
    result, reason = within_margin(margins, margin, over)
    if result is GateResult.PASS and undecided:
        result = GateResult.INCONCLUSIVE
    return result, "; ".join([reason, *sentences])


def _say_unrated(name: str, one: JudgedQuestion) -> Iterator[str]:
    """Yield how many answers of each side are not compared: those that did not come, and those of a question."""
    for side, of_whom in ((one.current, "the current check"), (one.candidate, "the candidate")):
        much = f", more than {percent_text(UNJUDGED_SHARE)}: see why, and run it again" if side.lacks_ratings else ""
        if side.missing:
            came = f"{side.missing:,} of {counted(side.asked, 'answer')} of {of_whom} did not come"
            yield f"{came}, and {'is' if side.missing == 1 else 'are'} not compared{'' if side.silent else much}"
        if side.silent:
            of = f"{side.silent:,} of {counted(side.asked, 'answer')} of {of_whom}"
            yield f"the judge did not rate {of} ({name}){much}"


def _say_labelled(found: Mapping[str, JudgedQuestion]) -> Iterator[str]:
    """Yield of what the labels are that correct some questions, where they are not of what is compared."""
    questions: dict[str, list[str]] = {}
    for name, one in found.items():
        for labelled in one.labelled:
            questions.setdefault(labelled, []).append(name)
    for labelled, names in questions.items():
        verb = "is" if len(names) == 1 else "are"
        yield f"{listed(names)} {verb} {labelled}, which rules out no loss: label these answers anew"


def lacks(one: JudgedQuestion | str) -> str:
    """Say why what a judge says to a question does not count; empty where it does."""
    if isinstance(one, str):
        return one
    if one.answers < FEWEST_ANSWERS:
        return f"{counted(one.answers, 'judged answer')} of at least {FEWEST_ANSWERS}"
    unconfirmed = (
        "the judge is uncalibrated: too few labels of people confirm what it says, and its page says what to do"
    )
    return "" if one.calibrated else unconfirmed


def _shows_loss(one: JudgedQuestion, margin: float) -> bool:
    """Whether a loss is shown that counts: by a judge that people confirmed, or by their labels whatever it is."""
    counts = one.answers >= FEWEST_ANSWERS and (one.calibrated or one.corrected)
    return counts and _is_lost(_counted(one), margin)


def _counted(one: JudgedQuestion) -> Margin:
    """Return what counts of a difference: a judge that people have not confirmed shows nothing by itself."""
    return one.margin if one.calibrated else replace(one.margin, uncorrected=None)


def _name_of(name: str, one: JudgedQuestion) -> str:
    return name if one.calibrated else f"{name} (uncalibrated)"


def lost_of(asked: Sequence[Judged], margin: float) -> Losses:
    """Return the intervals of what judged answers show to be lost."""
    questions = {name: one for judged in asked for name, one in judged.items() if isinstance(one, JudgedQuestion)}
    return lost_measures({name: _counted(one) for name, one in questions.items() if _shows_loss(one, margin)}, margin)


def lost_measures(measures: Mapping[str, Margin], margin: float) -> Losses:
    """Return the intervals of what is shown to be lost: of the judge's own where labels are too few to undo it."""
    lost: dict[str, tuple[float, float]] = {}
    for name, one in measures.items():
        shown = one.uncorrected if one.uncorrected is not None and _is_lost(one.uncorrected, margin) else one
        if _is_lost(shown, margin) and shown.low is not None and shown.high is not None:
            lost[name] = (shown.low, shown.high)
    return lost


def within_margin(measures: Mapping[str, Margin], margin: float, over: str = "") -> tuple[GateResult, str]:
    """Pass where every difference is above -margin for sure, fail where one is below it for sure."""
    over = f" {over}" if over else ""
    kept = {name: one for name, one in measures.items() if one.low is not None and one.low > -margin}
    lost = {name: one for name, one in measures.items() if name not in kept and _is_lost(one, margin)}
    unknown = {name: one for name, one in measures.items() if name not in lost and name not in kept}
    parts = [
        f"{words} {intervals_text(some)}"
        for some, words in (
            (
                {name: _say_whose(one, margin) for name, one in lost.items()},
                f"a loss of more than {bound_text(margin)} is shown{over}:",
            ),
            (unknown, f"a loss of more than {bound_text(margin)} is not ruled out{over}:"),
            (kept, f"no loss of more than {bound_text(margin)}{over}:"),
        )
        if some
    ]
    result = GateResult.FAIL if lost else GateResult.INCONCLUSIVE if unknown or not kept else GateResult.PASS
    return result, "; ".join(parts) or f"nothing was measured{over}"


def _say_whose(one: Margin, margin: float) -> Margin:
    """Return what is lost; where the judge alone shows that, with the sentence that says so."""
    if one.uncorrected is None or (one.high is not None and one.high <= -margin):
        return one
    return replace(one, basis=f"{one.basis}, which shows it, and labels do not rule it out")


def _is_lost(one: Margin, margin: float) -> bool:
    """Whether a loss is shown: labels undo what the judge shows itself only where they rule such a loss out."""
    if one.low is not None and one.low > -margin:
        return False
    if one.uncorrected is not None and _is_lost(one.uncorrected, margin):
        return True
    return one.high is not None and one.high <= -margin


def intervals_text(measures: Mapping[str, Margin]) -> str:
    """Return the intervals of measures with what each rests on, said once."""
    parts = []
    told = {""}
    for name, one in measures.items():
        if one.low is None or one.high is None:
            parts.append(f"{name} without an interval")
            continue
        basis = one.basis if one.lacks in told else f"{one.basis}: {one.lacks}"
        told.add(one.lacks)
        parts.append(f"{name} {change_text(one.low)} to {change_text(one.high)}{f' ({basis})' if basis else ''}")
    return ", ".join(parts)


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
