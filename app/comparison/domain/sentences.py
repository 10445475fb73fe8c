"""Sentences about a comparison: its headline, what recall may have lost, who is not compared, and each claim."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.base.statistics import CONFIDENCE
from app.base.texts import counted, listed, percent_text, ratio_text
from app.base.values import Value
from app.catalog.domain import labelled
from app.comparison.domain.estimates import FEWEST_PAIRS, Estimate
from app.comparison.domain.outcomes import (
    Claim,
    ComparisonOutcome,
    ComparisonVerdict,
    Decision,
    Exclusion,
    JudgmentsCaution,
    RecallCaution,
    Side,
    ViolationKind,
    Violations,
)

_NAMED: Final = 5
"""Number of canaries that a sentence names."""


class SideNames(Value):
    """What the two sides are called in a sentence."""

    better: str
    worse: str
    between: str
    trade: str
    within: Mapping[Side, str]
    """As an adverb: in A, before."""
    gain: Mapping[Side, str]
    """The side that gains, as the subject of a sentence."""
    title: Mapping[Side, str]
    """The head of a column."""
    won: Mapping[Side, str]
    """What is said of what is higher on a side."""


A_AND_B: Final = SideNames(
    better="B scores better than A",
    worse="B scores worse than A",
    between="between A and B",
    trade="a trade from A to B",
    within={Side.A: "in A", Side.B: "in B"},
    gain={Side.A: "A", Side.B: "B"},
    title={Side.A: "A", Side.B: "B"},
    won={Side.A: "A is better", Side.B: "B is better"},
)
BEFORE_AND_NOW: Final = SideNames(
    better="better than before",
    worse="worse than before",
    between="between before and now",
    trade="a trade",
    within={Side.A: "before", Side.B: "now"},
    gain={Side.A: "the run before", Side.B: "the run now"},
    title={Side.A: "Before", Side.B: "Now"},
    won={Side.A: "fell", Side.B: "rose"},
)


def headline(outcome: ComparisonOutcome, names: SideNames, missing: Mapping[Side, int] | None = None) -> str:
    """Return the sentence at the top of a comparison: its verdict, and the differences it rests on.

    `missing`: by side, how many canaries it did not answer, where those that are compared do not stand for them.
    """
    without = [
        f"{count:,} of {counted(outcome.pairs + count, 'canary')} {'was' if count == 1 else 'were'} not measured"
        f" {names.within[side]}"
        for side, count in (missing or {}).items()
    ]
    return "; ".join([_HEADLINES[outcome.verdict](outcome, names), *without])


def caution_sentence(caution: RecallCaution, names: SideNames) -> str:
    """Return the sentence on what recall may have lost beside a gain."""
    gainer = names.gain[caution.winner]
    gain = f"{gainer} gains in {caution.measure}, which the first good hit decides; its {caution.recall}"
    if caution.claimed is not None:
        return f"{gain} is lower by {_size(caution.claimed)}, at worst by {_size(caution.loss)}"
    return f"{gain} may be lower by up to {_size(caution.loss)}"


def judgments_sentence(caution: JudgmentsCaution, names: SideNames) -> str:
    """Return the sentence on a retriever that alone brought up much of what is expected, for both sides."""
    side = caution.favours
    if caution.edited is not None:
        is_now = f"much of what is expected was brought up by {caution.retriever} as it was before it was edited"
        sentence = (
            f"{is_now}, so whether that favours {names.gain[Side.A]} or {names.gain[Side.B]} by now is not known: what "
            "either finds may never have been judged"
        )
        return f"{sentence}; no difference is claimed" if caution.not_claimed else sentence
    if side is None:
        return (
            f"much of what is expected was brought up by {caution.retriever} alone, which is neither side: what it does"
            " not find may never have been judged, so every measure favours the side that is more like it"
        )
    other = names.gain[Side.A if side is Side.B else Side.B]
    why = f"what only {other} finds may never have been judged"
    if caution.pooled:
        graded = f"much of what is expected was judged among hits of {names.gain[side]} and not among those of {other}"
        sentence = f"{graded}: {why}, so every measure favours {names.gain[side]}"
    else:
        brought = f"much of what is expected was brought up by {caution.retriever} itself"
        sentence = f"{brought}, which favours {names.gain[side]} in every measure and is against {other}: {why}"
    if not caution.not_claimed:
        return sentence
    are = "is" if len(caution.not_claimed) == 1 else "are"
    return f"{sentence}; {listed(caution.not_claimed)} {are} higher {names.within[side]}, which is not claimed"


def violations_sentence(one: Violations, names: SideNames) -> str:
    """Return the sentence on canaries that got what they rule out in B and not in A."""
    number = len(one.only_b)
    now, then = names.gain[Side.B], names.gain[Side.A]
    does = f"returns {RULED_OUT[one.kind]} for {counted(number, 'canary')} for which {then} does not"
    return f"{now} {does}: {_some(one.only_b)}"


def unrated_sentence(measures: Sequence[str], side: Side, unrated: int, answers: int, names: SideNames) -> str:
    """Return the sentence on answers of a side without a rating, more than the others could stand for."""
    of = f"{unrated:,} of {counted(answers, 'answer')} {names.within[side]}"
    asked = listed([one.replace("_", " ") for one in measures])
    lacking = f"{of} {'has' if unrated == 1 else 'have'} no rating"
    return f"{lacking}: the difference in {asked} stands for the rated ones alone, so none is claimed"


def stale_labels_sentence(measures: Sequence[str], sides: Sequence[Side], labelled: str, names: SideNames) -> str:
    """Return the sentence on corrected rates whose labels are not of what is compared; `labelled` says of what."""
    of = f"{listed([one.replace('_', ' ') for one in measures])} {' and '.join(names.within[side] for side in sides)}"
    verb = "is" if len(measures) == 1 else "are"
    return f"{of} {verb} {labelled}, so what labels say of the difference may be wrong: label these answers anew"


RULED_OUT: Final[Mapping[ViolationKind, str]] = {
    ViolationKind.FORBIDDEN: "forbidden chunks",
    ViolationKind.ANSWERED: "an answer that should not be there",
}


def violations_text(one: Violations, names: SideNames) -> str:
    """Return how many canaries got what they rule out: `forbidden chunks for 60 of 60 canaries in B, for 0 in A`."""
    of = f"{one.b:,} of {counted(one.canaries, 'canary')} {names.within[Side.B]}"
    return f"{RULED_OUT[one.kind]} for {of}, for {one.a:,} {names.within[Side.A]}"


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:_NAMED]) + (", ..." if len(keys) > _NAMED else "")


def exclusion_sentence(reason: Exclusion, keys: Sequence[str], names: SideNames) -> str:
    """Return the sentence on canaries that are not compared."""
    one, several, rest = _EXCLUSIONS[reason]
    return f"{counted(len(keys), 'canary')} {one if len(keys) == 1 else several} {rest(names)}: {_some(keys)}"


def claim_text(claim: Claim | None, winner: Side | None, *, names: SideNames) -> str:
    """Return what a table says of one measure; None = it is not primary."""
    if claim == Claim.CLAIMED and winner is not None:  # equal, not the same: it may come from JSON
        return names.won[winner]
    return "exploratory" if claim is None else _CLAIMS[claim]


def change(estimate: Estimate, *, interval: bool = True, self_judged: bool = False) -> str:
    """Return a difference, with its interval: `R@5 down 0.041 (95 % between -0.070 and -0.012)`.

    `self_judged`: whether recall has that label.
    """
    difference = estimate.difference or 0.0
    way = "up" if difference > 0 else "down"
    name = labelled(estimate.measure, self_judged=self_judged)
    return f"{name} {way} {_size(difference)}{_interval(estimate) if interval else ''}"


def _better_or_worse(outcome: ComparisonOutcome, names: SideNames) -> str:
    which = names.better if outcome.verdict is ComparisonVerdict.BETTER else names.worse
    ruled_out = [violations_text(one, names) for one in outcome.violations if one.winner is not None]
    measures = f"{_claims(outcome, outcome.claimed)}, over {counted(outcome.pairs, 'canary')}"
    sentence = f"{which}: {'; '.join([*([measures] if outcome.claimed else []), *ruled_out])}"
    others = len(outcome.decisions) - len(outcome.claimed)
    if not others:
        return sentence
    named = "primary measure" if others == 1 else f"{others} primary measures"
    return f"{sentence}; nothing is claimed of the other {named}"


def _trade(outcome: ComparisonOutcome, names: SideNames) -> str:
    up, down = (_won(outcome, side, names) for side in (Side.B, Side.A))
    return f"{names.trade}: {up}, paid for by {down}, over {counted(outcome.pairs, 'canary')}"


def _won(outcome: ComparisonOutcome, side: Side, names: SideNames) -> str:
    """Return what is claimed for a side: measures first."""
    claimed = [one for one in outcome.claimed if one.winner is side]
    ruled_out = [violations_text(one, names) for one in outcome.violations if one.winner is side]
    return " and ".join([*([_claims(outcome, claimed)] if claimed else []), *ruled_out])


def _no_difference(outcome: ComparisonOutcome, names: SideNames) -> str:
    estimates = [one.estimate for one in outcome.decisions if one.claim is not Claim.TOO_FEW]
    if outcome.pairs < FEWEST_PAIRS:
        ruled_out = "; ".join(violations_text(one, names) for one in outcome.violations)
        return f"no difference shown {names.between}: {ruled_out}"
    start = f"no difference shown {names.between} over {counted(outcome.pairs, 'canary')}"
    if all(one.low is None and not one.difference for one in estimates):
        return f"{start}: every canary scores the same in all primary measures"
    own = [one for one in outcome.decisions if one.claim is Claim.SELF_JUDGED]
    if own:
        retrievers = listed([one.retriever for one in outcome.judgments if one.not_claimed])
        may = f"which may come of the judgments that {retrievers} brought up"
        return f"{start}: {_claims(outcome, own)}, {may}, so it is not claimed"
    shaky = [one.estimate for one in outcome.decisions if one.claim is Claim.NOT_AFTER_CORRECTION]
    if shaky:
        stands = "has an interval" if len(shaky) == 1 else "have intervals"
        measures = listed([labelled(one.measure, self_judged=outcome.self_judged) for one in shaky])
        correction = f"not claimed after correction for {counted(outcome.tests, 'test')}"
        return f"{start}: {measures} {stands} without zero, {correction}"
    largest = max(estimates, key=lambda one: abs(one.difference or 0.0))
    if not largest.difference:
        return f"{start}: canaries differ, but no mean does"
    return f"{start}: the largest is {change(largest, self_judged=outcome.self_judged)}"


def _too_few(outcome: ComparisonOutcome, names: SideNames) -> str:
    if not outcome.pairs:
        return f"nothing to compare {names.between}: no canary that expects the same was measured in both"
    return f"too few canaries to tell: {outcome.pairs} can be compared, and it takes {FEWEST_PAIRS}"


_HEADLINES: Final[Mapping[ComparisonVerdict, Callable[[ComparisonOutcome, SideNames], str]]] = {
    ComparisonVerdict.BETTER: _better_or_worse,
    ComparisonVerdict.WORSE: _better_or_worse,
    ComparisonVerdict.TRADE: _trade,
    ComparisonVerdict.NO_DIFFERENCE_SHOWN: _no_difference,
    ComparisonVerdict.TOO_FEW: _too_few,
}


def _claims(outcome: ComparisonOutcome, decisions: Sequence[Decision]) -> str:
    """Return the claimed differences; one interval is enough for a sentence, the table has them all."""
    own = outcome.self_judged
    return listed([change(one.estimate, interval=not place, self_judged=own) for place, one in enumerate(decisions)])


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "" if estimate.p is None else " on every canary"
    # With enough digits for their side of zero to be seen.
    ends = [f"{'+' if end > 0 else '-'}{_size(end)}" if end else "0.000" for end in (estimate.low, estimate.high)]
    return f" ({percent_text(CONFIDENCE)} between {' and '.join(ends)})"


def _size(difference: float) -> str:
    """Return the size of a difference, with enough digits not to read as nothing."""
    return ratio_text(abs(difference), 0.0)


_CLAIMS: Final[Mapping[Claim, str]] = {
    Claim.CLAIMED: "claimed",
    Claim.NOT_AFTER_CORRECTION: "not claimed after correction",
    Claim.SELF_JUDGED: "not claimed: self-judged",
    Claim.NOT_SHOWN: "no difference shown",
    Claim.TOO_FEW: "too few to tell",
}

_EXCLUSIONS: Final[Mapping[Exclusion, tuple[str, str, Callable[[SideNames], str]]]] = {
    Exclusion.ONLY_IN_A: ("is", "are", lambda names: f"only {names.within[Side.A]}"),
    Exclusion.ONLY_IN_B: ("is", "are", lambda names: f"only {names.within[Side.B]}"),
    Exclusion.OTHER_QUERY: ("asks", "ask", lambda _: "something else in each"),
    Exclusion.OTHER_JUDGMENTS: ("expects", "expect", lambda _: "something else in each"),
    Exclusion.NOTHING_EXPECTED: ("expects", "expect", lambda _: "no chunk"),
    Exclusion.NOT_MEASURED_IN_A: ("was", "were", lambda names: f"not measured {names.within[Side.A]}"),
    Exclusion.NOT_MEASURED_IN_B: ("was", "were", lambda names: f"not measured {names.within[Side.B]}"),
    Exclusion.NOT_MEASURED: ("was", "were", lambda _: "measured in neither"),
}
"""Verbs of one canary and of several, and what they are said with."""
