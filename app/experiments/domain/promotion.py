"""Promotion of a candidate: three gates from offline measures to users, decided with reasons.

Offline measures and judges stand for users; only exposure asks them. The last gate therefore overrules the first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.annotation.domain.agreement import hash_share
from app.base.texts import bound_text, change_text, counted
from app.base.values import TimeText
from app.comparison.domain.outcomes import ComparisonVerdict
from app.experiments.domain.experiments import RateDifference
from app.scoring.rankings import rbo

FEWEST_CANARIES: Final = 500
FEWEST_ANSWERS: Final = 100
OFFLINE_MARGIN: Final = 0.02
"""A loss of MRR or NDCG@10 below it is accepted on the way to exposure."""
JUDGE_MARGIN: Final = 0.05


class GateName(StrEnum):
    """The gates, in their order."""

    OFFLINE = "offline"
    JUDGE = "judge"
    EXPOSURE = "exposure"


class GateResult(StrEnum):
    """What a gate says of the candidate."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    WAIVED = "waived"


class PromotionState(StrEnum):
    """What the gates say together."""

    PROMOTE = "promote"
    STOPPED = "stopped"
    OPEN = "open"
    """Some gate is inconclusive yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The interval of a difference, candidate less current; None where there are too few pairs for one."""

    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineEvidence:
    """A comparison of the candidate with what is current, over canaries."""

    canaries: int
    verdict: ComparisonVerdict
    measures: Mapping[str, Margin]
    """MRR and NDCG@10, by their names there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeEvidence:
    """Differences of judged answers; they count only from a judge that people have confirmed."""

    answers: int
    calibrated: bool
    measures: Mapping[str, Margin]
    """Faithfulness and answer relevance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposureEvidence:
    """An experiment with users."""

    difference: RateDifference | None
    """Candidate less current; None = too few outcomes for an interval."""
    mismatch: bool
    """Whether the arms get other shares of units than they should."""
    reason: str
    """The experiment's own."""
    power: str
    """What it can show, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A person's decision to go on without a gate."""

    by: str
    reason: str
    at: TimeText


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate of a promotion."""

    gate: GateName
    result: GateResult
    reason: str
    evidence: GateResult
    """What it would be without the waiver."""
    waiver: Waiver | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionDecision:
    """The gates in their order, and what they say together."""

    gates: tuple[Gate, ...]
    state: PromotionState
    reason: str


def decide_promotion(
    offline: OfflineEvidence | str,
    judge: JudgeEvidence | str,
    exposure: ExposureEvidence | str,
    waivers: Mapping[GateName, Waiver],
) -> PromotionDecision:
    """Decide the gates and the promotion; a text in the place of evidence says why there is none."""
    found = (
        (GateName.OFFLINE, offline if isinstance(offline, str) else _decide_offline(offline)),
        (GateName.JUDGE, judge if isinstance(judge, str) else _decide_judge(judge)),
        (GateName.EXPOSURE, exposure if isinstance(exposure, str) else _decide_exposure(exposure)),
    )
    gates = tuple(
        _gate(name, *((GateResult.INCONCLUSIVE, says) if isinstance(says, str) else says), waivers.get(name))
        for name, says in found
    )
    state, reason = _together(gates)
    return PromotionDecision(gates=gates, state=state, reason=reason)


def _gate(name: GateName, evidence: GateResult, reason: str, waiver: Waiver | None) -> Gate:
    if waiver is None:
        return Gate(gate=name, result=evidence, reason=reason, evidence=evidence, waiver=None)
    waived = f"waived by {waiver.by}: {waiver.reason} (without that {evidence}: {reason})"
    return Gate(gate=name, result=GateResult.WAIVED, reason=waived, evidence=evidence, waiver=waiver)


def _together(gates: tuple[Gate, ...]) -> tuple[PromotionState, str]:
    *earlier, last = gates
    failed = [gate.gate for gate in earlier if gate.result is GateResult.FAIL]
    passed = [gate.gate for gate in earlier if gate.result is GateResult.PASS]
    if last.result is GateResult.FAIL:
        before = f", though {' and '.join(passed)} passed" if passed else ""
        return PromotionState.STOPPED, f"stopped by exposure{before}: {last.reason}; what users do overrules the rest"
    if last.result is GateResult.PASS:
        before = f", though {' and '.join(failed)} failed" if failed else ""
        return PromotionState.PROMOTE, f"users are served better{before}: {last.reason}"
    stopping = next((gate for gate in gates if gate.result is GateResult.FAIL), None)
    if stopping is not None:
        return PromotionState.STOPPED, f"stopped by {stopping.gate}: {stopping.reason}"
    waiting = next((gate for gate in gates if gate.result is GateResult.INCONCLUSIVE), None)
    if waiting is not None:
        return PromotionState.OPEN, f"{waiting.gate} is inconclusive: {waiting.reason}"
    return PromotionState.PROMOTE, "exposure is waived, and no other gate stands in the way; users were not asked"


def _decide_offline(found: OfflineEvidence) -> tuple[GateResult, str]:
    if found.canaries < FEWEST_CANARIES:
        return GateResult.INCONCLUSIVE, f"{counted(found.canaries, 'canary')} of at least {FEWEST_CANARIES}"
    if found.verdict is ComparisonVerdict.TRADE:
        return GateResult.FAIL, "one measure is gained and another one paid with (trade)"
    return _within_margin(found.measures, OFFLINE_MARGIN, f"over {counted(found.canaries, 'canary')}")


def _decide_judge(found: JudgeEvidence) -> tuple[GateResult, str]:
    if found.answers < FEWEST_ANSWERS:
        return GateResult.INCONCLUSIVE, f"{counted(found.answers, 'judged answer')} of at least {FEWEST_ANSWERS}"
    if not found.calibrated:
        return GateResult.INCONCLUSIVE, "the judge is uncalibrated: people have not confirmed what it says"
    return _within_margin(found.measures, JUDGE_MARGIN, f"over {counted(found.answers, 'judged answer')}")


def _decide_exposure(found: ExposureEvidence) -> tuple[GateResult, str]:
    if found.mismatch:
        return GateResult.INCONCLUSIVE, found.reason
    if found.difference is not None and found.difference.low > 0:
        return GateResult.PASS, found.reason
    if found.difference is not None and found.difference.high < 0:
        return GateResult.FAIL, found.reason
    return GateResult.INCONCLUSIVE, f"{found.reason}; {found.power}"


def _within_margin(measures: Mapping[str, Margin], margin: float, over: str) -> tuple[GateResult, str]:
    """Pass where every difference is above -margin for sure, fail where one is below it for sure."""
    texts = "; ".join(f"{name} {_margin_text(one)}" for name, one in measures.items())
    if any(one.high is not None and one.high <= -margin for one in measures.values()):
        return GateResult.FAIL, f"a loss of more than {bound_text(margin)} is shown {over}: {texts}"
    if measures and all(one.low is not None and one.low > -margin for one in measures.values()):
        return GateResult.PASS, f"no loss of more than {bound_text(margin)} {over}: {texts}"
    return GateResult.INCONCLUSIVE, f"a loss of more than {bound_text(margin)} is not ruled out {over}: {texts}"


def _margin_text(one: Margin) -> str:
    if one.low is None or one.high is None:
        return "without an interval"
    return f"{change_text(one.low)} to {change_text(one.high)}"


DEPTH: Final = 10
"""Hits that Jaccard's index is of."""
SHOWN: Final = 5
"""Hits of each side that people compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowHit:
    """A hit of a pair: its id and, where it is known, its text."""

    id: str
    text: str | None = None


Hits = Sequence[ShadowHit]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOverlap:
    """How alike two rankings of one query are: 1 = the same."""

    rbo: float
    """Rank-biased overlap with p = .9."""
    jaccard: float
    """Share of the chunks among the first ten of either that both have."""


def compare_pair(a: Sequence[str], b: Sequence[str]) -> PairOverlap:
    """Compare two rankings of distinct ids; two empty ones are the same."""
    first, second = set(a[:DEPTH]), set(b[:DEPTH])
    union = first | second
    return PairOverlap(rbo=rbo(a, b), jaccard=len(first & second) / len(union) if union else 1.0)


def is_asked(slug: str, query: str, *, share: float) -> bool:
    """Whether the candidate of a shadow is asked a query: decided by its hash, so a query is always asked or never."""
    return hash_share(f"shadow:{slug}:{query}") < share


def cut_to(b: Hits, a: Hits) -> Hits:
    """Cut the candidate's ranking to the length of what users got, so that depth alone makes no difference."""
    return b[: len(a)] if a else b


def shown_texts(hits: Hits) -> tuple[str, ...] | None:
    """Return the texts that people see of a ranking; None where one is not known."""
    texts = [one.text for one in hits[:SHOWN]]
    known = tuple(text for text in texts if text)
    return known if len(known) == len(texts) else None
