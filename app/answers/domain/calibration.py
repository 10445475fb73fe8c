"""Calibration of a judge by people: a rate estimated from both, and how far the judge agrees with people.

A judge looks at every answer and errs; people look at some and define what is right. Their labels correct the judge's
rate, and where it agrees with them well it narrows the interval that they alone would give.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.annotation.domain.agreement import Coefficient, kappa_interval
from app.answers.domain.quantiles import CONFIDENCE, Proportion, clopper_pearson, student_quantile

Floats = NDArray[np.float64]

FEWEST_LABELS: Final = 100
FEWEST_OF_A_KIND: Final = 20
"""Labels yes and labels no that a combined estimate needs: at a true rate of .99 its interval covers in .6 only."""
LEAST_KAPPA: Final = 0.4
"""A judge is calibrated if the lower bound of kappa is at least this: fair to moderate (Landis and Koch 1977)."""
_FULL: Final = 1 - 1e-9


class Basis(StrEnum):
    """Whose verdicts an estimate rests on."""

    PEOPLE_AND_JUDGE = "people_and_judge"
    PEOPLE = "people"
    """Labels alone, with exact limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateEstimate:
    """Share of answers that people would say yes of, with its 95 % interval.

    `value` is None without labels. `weight` is lambda: how much of the judge's verdicts entered, in [0, 1].
    """

    value: float | None
    low: float
    high: float
    basis: Basis
    reason: str
    """Why this basis, in words."""
    labels: int
    unlabelled: int
    judge_rate: float | None
    """Mean of the judge's verdicts on all answers, uncorrected; None without any."""
    weight: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAgreement:
    """Agreement of a judge with people over the labelled answers; a share of the judge counts as yes when it is 1."""

    labels: int
    kappa: Coefficient
    """Cohen's, of yes against no."""
    sensitivity: Proportion
    """Of the answers that people say yes of, those that the judge says yes of."""
    specificity: Proportion
    """Of the answers that people say no of, those that the judge says no of."""
    calibrated: bool
    reason: str
    """Why it is calibrated or not, in words."""


def estimate_rate(labels: Sequence[bool], judged: Sequence[float], unlabelled: Sequence[float]) -> RateEstimate:
    """Rate of answers that people would say yes of, from the labels of some and the judge's verdicts on all.

    `judged` are the verdicts on the labelled answers, in the order of the labels, `unlabelled` those on the others: 1
    or 0, or shares in [0, 1]. Labelled answers are a random draw from all (`label_drawing`); answers without a verdict
    are in neither. Raises ValueError for verdicts outside [0, 1] and unless labels and verdicts are as many.
    """
    people, verdicts, others = _arrays(labels, judged, unlabelled)
    everything = np.concatenate([verdicts, others])
    judge_rate = float(everything.mean()) if everything.size else None
    missing = _missing(people, len(others))
    if missing is not None:
        alone = clopper_pearson(int(people.sum()), len(people))
        return RateEstimate(
            value=alone.value,
            low=alone.low,
            high=alone.high,
            basis=Basis.PEOPLE,
            reason=missing,
            labels=len(people),
            unlabelled=len(others),
            judge_rate=judge_rate,
        )
    value, error, weight = prediction_powered(people, verdicts, others)
    side = error * student_quantile((1 + CONFIDENCE) / 2, len(people) - 1)
    return RateEstimate(
        value=_cut(value),
        low=_cut(value - side),
        high=_cut(value + side),
        basis=Basis.PEOPLE_AND_JUDGE,
        reason=f"{len(people)} labels correct the judge's verdicts on {len(others)} more answers",
        labels=len(people),
        unlabelled=len(others),
        judge_rate=judge_rate,
        weight=weight,
    )


def prediction_powered(people: Floats, judged: Floats, unlabelled: Floats) -> tuple[float, float, float]:
    """Estimate a mean by prediction-powered inference: the mean, its standard error, and lambda, neither cut.

    With Y the labels, f the verdicts, n labelled and N unlabelled answers: lambda = cov(Y, f) / ((1 + n/N) var f),
    clipped to [0, 1], 0 where var f is 0; mean = lambda mean(f unlabelled) + mean(Y - lambda f);
    error^2 = lambda^2 var(f unlabelled) / N + var(Y - lambda f) / n. Angelopoulos, Bates, Fannjiang, Jordan, Zrnic,
    "Prediction-powered inference" (Science 2023); Angelopoulos, Duchi, Zrnic, "PPI++" (2023), section 6. As in their
    code var f is taken over all answers, labelled or not. Needs two answers of each.
    """
    n, more = len(people), len(unlabelled)
    spread = float(np.var(np.concatenate([judged, unlabelled]), ddof=1))
    together = float(np.cov(people, judged)[0, 1])
    weight = min(max(together / ((1 + n / more) * spread), 0.0), 1.0) if spread > 0 else 0.0
    rest = people - weight * judged
    mean = weight * float(unlabelled.mean()) + float(rest.mean())
    error = math.sqrt(weight**2 * float(unlabelled.var(ddof=1)) / more + float(rest.var(ddof=1)) / n)
    return mean, error, weight


def measure_judge(labels: Sequence[bool], judged: Sequence[float], *, seed: int = 0) -> JudgeAgreement:
    """Agreement of a judge with people, and whether that makes it calibrated; the same for the same labels and seed.

    Raises ValueError as `estimate_rate` does.
    """
    people, verdicts, _ = _arrays(labels, judged, ())
    yes, says = people > 0, verdicts >= _FULL
    kappa = kappa_interval(yes, says, seed=seed)
    calibrated, reason = decide_calibration(kappa, len(people))
    return JudgeAgreement(
        labels=len(people),
        kappa=kappa,
        sensitivity=clopper_pearson(int((yes & says).sum()), int(yes.sum())),
        specificity=clopper_pearson(int((~yes & ~says).sum()), int((~yes).sum())),
        calibrated=calibrated,
        reason=reason,
    )


def decide_calibration(kappa: Coefficient, labels: int) -> tuple[bool, str]:
    """Whether a judge is calibrated, and why: the lower bound of kappa has to be known and at least `LEAST_KAPPA`."""
    if not labels:
        return False, "no answer is labelled yet"
    if kappa.value is None:
        return False, f"people and judge say the same of all {labels} answers, so agreement beyond chance is undefined"
    if kappa.low is None:
        return False, f"{labels} labels are too few, or too alike, for an interval of kappa"
    measured = f"kappa {kappa.value:.2f} over {labels} labels, lower bound {kappa.low:.2f}"
    if kappa.low >= LEAST_KAPPA:
        return True, f"{measured}; {LEAST_KAPPA} is needed"
    advice = "more labels may show more" if kappa.value >= LEAST_KAPPA else "people and judge agree too little"
    return False, f"{measured}, below {LEAST_KAPPA}: {advice}"


def _arrays(
    labels: Sequence[bool], judged: Sequence[float], unlabelled: Sequence[float]
) -> tuple[Floats, Floats, Floats]:
    people = np.asarray(labels, dtype=np.float64)
    verdicts, others = np.asarray(judged, dtype=np.float64), np.asarray(unlabelled, dtype=np.float64)
    if len(people) != len(verdicts):
        raise ValueError(f"{len(people)} labels need as many verdicts, not {len(verdicts)}")
    if not all(bool(((each >= 0) & (each <= 1)).all()) for each in (verdicts, others)):
        raise ValueError("verdicts are numbers from 0 to 1")
    return people, verdicts, others


def _missing(people: Floats, unlabelled: int) -> str | None:
    """Return what a combined estimate lacks, in words; None = nothing."""
    count, rarer = len(people), int(min(people.sum(), len(people) - people.sum()))
    if count < FEWEST_LABELS:
        return f"people alone: {count} labels, and the judge is taken in from {FEWEST_LABELS} on"
    if rarer < FEWEST_OF_A_KIND:
        kind = "yes" if people.mean() < 0.5 else "no"  # noqa: PLR2004 - the rarer kind
        return f"people alone: {rarer} labels are {kind}, and the judge is taken in from {FEWEST_OF_A_KIND} on"
    if unlabelled < 2:  # noqa: PLR2004 - a variance needs two
        return "people alone: every answer is labelled"
    return None


def _cut(value: float) -> float:
    return min(max(value, 0.0), 1.0)
