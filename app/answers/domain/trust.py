"""How far a judge can be trusted: rates estimated with the labels of people, agreement with them, and calibration.

A judge looks at every answer and errs; people look at some and define what is right. Their labels correct the judge's
rate; where it agrees with them well, its verdicts narrow the interval that the labels alone would give. Below: what
is stored of a calibration, bias towards long answers, and the draw of answers to label. How often people themselves err
is in `labellers`, what a report says of all this in `sentences`.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from app.annotation.domain.agreement import Coefficient, kappa_interval
from app.annotation.views import CoefficientView
from app.answers.domain.generated import split_sentences
from app.answers.domain.labellers import LabellersView, agree_no_better
from app.base.statistics import CONFIDENCE, Proportion, clopper_pearson, exact_limits, hash_share, student_quantile
from app.base.texts import counted
from app.base.values import Value

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


class RateEstimate(Value):
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
    """Share of all answers that the judge says yes of, a share of it when it is 1; None without any."""
    weight: float = 0.0


class JudgeAgreement(Value):
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
    or 0, or shares in [0, 1]. Labelled answers are a random draw from all; answers without a verdict
    are in neither. Raises ValueError for verdicts outside [0, 1] and unless labels and verdicts are as many.
    """
    people, verdicts, others = _arrays(labels, judged, unlabelled)
    judge_rate = rate_of_yes(np.concatenate([verdicts, others]))
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


class LabelledAnswers(Value):
    """Answers of one check: the labels of those drawn, the verdicts on them in the same order, those on the others."""

    labels: Sequence[bool]
    judged: Sequence[float]
    unlabelled: Sequence[float]

    @property
    def size(self) -> int:
        """All of its answers, labelled or not."""
        return len(self.judged) + len(self.unlabelled)


def estimate_together(checks: Sequence[LabelledAnswers]) -> RateEstimate:
    """Rate over the answers of several checks, of each of which equally many are drawn whatever it has.

    Each check counts by its answers, one without a label not at all. Where labels alone are taken, the exact limits are
    those of the effective number of labels, 1 / sum(share^2 / labels). Raises ValueError as `estimate_rate` does.
    """
    found = [one for one in checks if one.labels]
    if len(found) <= 1:
        one = found[0] if found else LabelledAnswers(labels=[], judged=[], unlabelled=_all_verdicts(checks))
        return estimate_rate(one.labels, one.judged, one.unlabelled)
    arrays = [_arrays(one.labels, one.judged, one.unlabelled) for one in found]
    shares = [one.size / sum(each.size for each in found) for one in found]
    everything, labels = np.array(_all_verdicts(found)), np.concatenate([people for people, _, _ in arrays])
    others = sum(len(one.unlabelled) for one in found)
    missing = _missing(labels, others)
    if missing is None and any(min(len(people), len(rest)) < FEWEST_EACH for people, _, rest in arrays):
        missing = f"people alone: a check has fewer than {FEWEST_EACH} labels, or as few answers without one"
    if missing is None:
        parts = [prediction_powered(*one) for one in arrays]
        value = sum(share * mean for share, (mean, _, _) in zip(shares, parts, strict=True))
        error = math.sqrt(sum((share * error) ** 2 for share, (_, error, _) in zip(shares, parts, strict=True)))
        side = error * student_quantile((1 + CONFIDENCE) / 2, len(labels) - len(found))
        low, high, weight = value - side, value + side, max(weight for _, _, weight in parts)
    else:
        value = sum(share * float(people.mean()) for share, (people, _, _) in zip(shares, arrays, strict=True))
        effective = 1 / sum(share**2 / len(one.labels) for share, one in zip(shares, found, strict=True))
        low, high = exact_limits(value * effective, effective)
        weight = 0.0
    return RateEstimate(
        value=_cut(value),
        low=_cut(low),
        high=_cut(high),
        basis=Basis.PEOPLE_AND_JUDGE if missing is None else Basis.PEOPLE,
        reason=missing or f"{len(labels)} labels of {len(found)} checks correct the judge's verdicts on {others} more",
        labels=len(labels),
        unlabelled=others,
        judge_rate=rate_of_yes(everything),
        weight=weight,
    )


FEWEST_EACH: Final = 20
"""Labels of a check, and answers of it without one, from which on both enter an estimate over several checks."""


def _all_verdicts(checks: Sequence[LabelledAnswers]) -> list[float]:
    return [value for one in checks for value in (*one.judged, *one.unlabelled)]


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


def measure_judge(
    labels: Sequence[bool], judged: Sequence[float], *, labellers: LabellersView | None = None
) -> JudgeAgreement:
    """Agreement of a judge with people, and whether that makes it calibrated; the same for the same labels and seed.

    `labellers`: how far people agree with each other. Raises ValueError as `estimate_rate` does.
    """
    people, verdicts, _ = _arrays(labels, judged, ())
    yes, says = people > 0, verdicts >= _FULL
    kappa = kappa_interval(yes, says)
    rarer = int(min(yes.sum(), (~yes).sum()))
    calibrated, reason = decide_calibration(kappa, len(people), rarer=rarer, labellers=labellers)
    return JudgeAgreement(
        labels=len(people),
        kappa=kappa,
        sensitivity=clopper_pearson(int((yes & says).sum()), int(yes.sum())),
        specificity=clopper_pearson(int((~yes & ~says).sum()), int((~yes).sum())),
        calibrated=calibrated,
        reason=reason,
    )


def decide_calibration(
    kappa: Coefficient, labels: int, *, rarer: int | None = None, labellers: LabellersView | None = None
) -> tuple[bool, str]:
    """Whether a judge is calibrated, and why: the lower bound of kappa has to be known and at least `LEAST_KAPPA`.

    `rarer`: labels of the rarer kind; None = enough. `labellers`: how far people agree with each other; where no
    better, the judge is not blamed.
    """
    if not labels:
        return False, "no answer is labelled yet"
    if kappa.value is None:
        return False, f"people and judge say the same of all {labels} answers, so agreement beyond chance is undefined"
    if kappa.low is None:
        return False, f"{labels} labels are too few, or too alike, for an interval of kappa"
    low = math.floor(kappa.low * 100) / 100  # .399 is no .40
    measured = f"kappa {kappa.value:.2f} over {labels} labels, lower bound {low:.2f}"
    if kappa.low >= LEAST_KAPPA:
        return True, f"{measured}; {LEAST_KAPPA} is needed"
    advice = "more labels may show more" if may_agree(kappa.value, kappa.high, labels, rarer) else TOO_LITTLE
    if agree_no_better(labellers, kappa.value):
        advice = "people agree with each other no better"
    return False, f"{measured}, below {LEAST_KAPPA}: {advice}"


def may_agree(kappa: float | None, high: float | None, labels: int, rarer: int | None = None) -> bool:
    """Whether more labels may show that people and judge agree enough; else they agree too little.

    They may while kappa reaches `LEAST_KAPPA`, or the upper end of its interval does with less than `ADVISED` labels or
    few of the rarer kind: of 11 bad answers kappa is hardly known.
    """
    if kappa is None or high is None:
        return True
    is_hardly_known = labels < ADVISED or (rarer is not None and rarer < FEWEST_OF_A_KIND)
    return kappa >= LEAST_KAPPA or (high >= LEAST_KAPPA and is_hardly_known)


TOO_LITTLE: Final = "people and judge agree too little"
ADVISED: Final = 200
"""Labels that show a good judge as calibrated in .95 of draws: `benchmarks.judge`."""


def decide_correction(found: JudgeAgreement, rarer: int) -> tuple[bool, str]:
    """Whether the labels of one check correct what the judge says of its runs, and why; `rarer`: labels of that kind.

    Its errors have to be known on both sides: on what people accept, and on what they refuse. How good it is does not
    matter, since a bad one widens the interval; to correct only where labels speak well of it would choose the labels
    that err to its favour, and intervals would cover in .87 of such cases.
    """
    if lacking := lacking_labels(found.labels, rarer):
        return False, lacking
    if found.kappa.low is None or found.kappa.low <= 0:
        return False, f"over {counted(found.labels, 'label')} the judge is not shown to be better than chance"
    return True, f"{counted(found.labels, 'label')} show how often the judge errs"


def lacking_labels(labels: int, yes: int) -> str:
    """Say what labels lack to be used, `yes` of them yes (or as many no): `60 labels of at least 100`; empty: nothing.

    From then on those of the judge as it is now come before any that were given before it was edited.
    """
    if labels < FEWEST_LABELS:
        return f"{counted(labels, 'label')} of at least {FEWEST_LABELS}"
    rarer = min(yes, labels - yes)
    few = f"{counted(rarer, 'label')} of the rarer kind, of at least {FEWEST_ERRORS_KNOWN_BY}"
    return few if rarer < FEWEST_ERRORS_KNOWN_BY else ""


FEWEST_ERRORS_KNOWN_BY: Final = 5
"""Labels yes and labels no of a check from which on its runs are corrected: `benchmarks.judge --checks`."""
CORRECTING_LABELS: Final = (
    f"{FEWEST_LABELS} labels, at least {FEWEST_ERRORS_KNOWN_BY} of them yes and {FEWEST_ERRORS_KNOWN_BY} no, that show "
    "the judge to be better than chance"
)
"""What it takes to correct the runs of a check, as `decide_correction` decides it."""


class CorrectedRate(Value):
    """Share of the answers of one run that people would say yes of, with its 95 % interval."""

    value: float
    low: float
    high: float


def correct_rate(accepted: int, count: int, sensitivity: Proportion, specificity: Proportion) -> CorrectedRate:
    """Correct the rate of a run by the errors of the judge: it says yes to `accepted` of `count` answers.

    rate = (accepted / count + specificity - 1) / (sensitivity + specificity - 1): Rogan and Gladen, "Estimating
    prevalence from the results of a screening test" (American Journal of Epidemiology 1978); interval: Lang and
    Reiczigel, "Confidence limits for prevalence of disease adjusted for estimated sensitivity and specificity"
    (Preventive Veterinary Medicine 2014). Unlike prediction-powered inference it does not lean on the rate that the
    labels had, so a run in which more answers are wrong is not drawn back to the past; it takes for granted that the
    judge errs as often as it did on them. All are cut to [0, 1]. Raises ValueError without an answer, without both
    kinds of labels, and for a judge that is no better than chance.
    """
    if not 0 <= accepted <= count or not count:
        raise ValueError(f"{accepted} of {count} answers cannot be corrected")
    if not sensitivity.count or not specificity.count:
        raise ValueError("labels of both kinds are needed")
    chance = 1 - specificity.successes / specificity.count
    plain = sensitivity.successes / sensitivity.count - chance
    se, sp = ((one.successes + 1) / (one.count + 2) for one in (sensitivity, specificity))
    better = se + sp - 1
    if min(plain, better) <= 0:
        raise ValueError("a judge that is no better than chance corrects nothing")
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    says = (accepted + z * z / 2) / (count + z * z)
    rate = (says + sp - 1) / better
    errors = (
        rate * se * (1 - se) / (sensitivity.count + 2),
        (1 - rate) * sp * (1 - sp) / (specificity.count + 2),
    )
    middle = rate + 2 * z * z * (errors[0] - errors[1])
    spread = says * (1 - says) / (count + z * z) + rate * errors[0] + (1 - rate) * errors[1]
    side = z * math.sqrt(spread) / better
    value = _cut((accepted / count - chance) / plain)
    return CorrectedRate(value=value, low=min(_cut(middle - side), value), high=max(_cut(middle + side), value))


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


def is_yes(verdict: float) -> bool:
    """Whether a verdict counts as yes: a share does when it is 1."""
    return verdict >= _FULL


def rate_of_yes(verdicts: Sequence[float] | Floats) -> float | None:
    """Share of verdicts that are yes, as people's rate counts them: their mean would be another number."""
    return float((np.asarray(verdicts) >= _FULL).mean()) if len(verdicts) else None


def _cut(value: float) -> float:
    return min(max(value, 0.0), 1.0)


class RateView(TypedDict):
    """Share of answers that people would say yes of, with its 95 % interval; `value` is null without labels."""

    value: float | None
    low: float
    high: float
    basis: str
    """`people_and_judge`, or `people`: labels alone."""
    reason: str
    """Why this basis."""
    judge_rate: float | None
    """Share of the answers that the judge itself says yes of, a share of it when it is 1."""


class ProportionView(TypedDict):
    """Share of cases with its exact 95 % interval; `value` is null without a case."""

    successes: int
    count: int
    value: float | None
    low: float
    high: float


class LengthBiasView(TypedDict):
    """Difference in YES between answers that are padded with true sentences and the same ones plain."""

    pairs: int
    padded_only: int
    """YES only when padded."""
    plain_only: int
    difference: float | None
    low: float | None
    high: float | None
    shown: bool
    """Whether 0 is outside the interval: length alone changes verdicts."""
    outcomes: dict[str, int]
    """Questions about padded answers by outcome."""


class CheckRateView(TypedDict):
    """What people would say of the answers of one check, by the labels of those drawn of it."""

    check: str
    labels: int
    yes: int
    unlabelled: int
    """Rated answers of it beside them."""
    rate: RateView
    sensitivity: ProportionView
    specificity: ProportionView
    corrects: bool
    """Whether its runs are corrected by these labels."""
    reason: str
    """Why they are or not."""


class CalibrationBody(TypedDict):
    """What the labels of a task say of a judge."""

    labels: int
    """Answers that people decided; disputed, skipped and open ones are left out."""
    disputed: int
    """Answers on which people disagree, until somebody decides."""
    yes: int
    unlabelled: int
    """Rated answers beside them that enter the estimate."""
    rate: RateView
    kappa: CoefficientView
    sensitivity: ProportionView
    """Of the answers that people say yes of, those that the judge says yes of."""
    specificity: ProportionView
    """Of the answers that people say no of, those that the judge says no of."""
    calibrated: bool
    reason: str
    """Why it is calibrated or not."""
    length_bias: LengthBiasView | None
    """Null where padding may change the right answer: for relevance."""
    labellers: LabellersView | None
    """Null where a release before it counted the labels."""
    checks: list[CheckRateView]
    """By name; empty of answers that a release before rates of checks drew."""


TIMES_AS_LONG: Final = 3
"""A padded answer has at least this many times the characters of the plain one, as far as its contexts last."""


class LengthBias(Value):
    """Difference of P(YES) of padded and plain answers, with its 95 % interval; None without pairs.

    `padded_only` pairs are a YES only when padded, `plain_only` pairs only when plain.
    """

    pairs: int
    padded_only: int
    plain_only: int
    difference: float | None
    low: float | None
    high: float | None

    @property
    def shown(self) -> bool:
        """Whether 0 is outside the interval: length alone changes verdicts."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def measure_length_bias(plain: Sequence[bool], padded: Sequence[bool]) -> LengthBias:
    """Length bias from verdicts on the same answers, once plain and once padded, in the same order.

    The interval is that of Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data" (Journal of Educational and Behavioral Statistics 2012): one pair is added to each
    of the two discordant kinds, which keeps its width when no pair or every pair is discordant. Fagerland, Lydersen and
    Laake (Statistics in Medicine 2014) recommend it for small samples. Raises ValueError unless both are as many.
    """
    pairs = list(zip(plain, padded, strict=True))
    if not pairs:
        return LengthBias(pairs=0, padded_only=0, plain_only=0, difference=None, low=None, high=None)
    count, gained = len(pairs), sum(long and not short for short, long in pairs)
    lost = sum(short and not long for short, long in pairs)
    up, down = (gained + 1) / (count + 2), (lost + 1) / (count + 2)
    error = math.sqrt((up + down - (up - down) ** 2) / (count + 2))
    side = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error
    return LengthBias(
        pairs=count,
        padded_only=gained,
        plain_only=lost,
        difference=(gained - lost) / count,
        low=max(up - down - side, -1.0),
        high=min(up - down + side, 1.0),
    )


def pad_answer(answer: str, contexts: Sequence[str]) -> str | None:
    """Pad an answer with sentences of its contexts, which are true by them and add nothing that matters.

    Sentences that the answer has are left out, the others follow in order until it is three times as long. None where
    no sentence is left. Whether the answer is faithful does not change: what is added is in the contexts.
    """
    own = set(split_sentences(answer))
    spare = [sentence for text in contexts for sentence in split_sentences(text) if sentence not in own]
    padded = plain = answer.strip()
    for sentence in dict.fromkeys(spare):
        if len(padded) >= TIMES_AS_LONG * len(plain):
            break
        # What ends without a stop would else be read as one claim with what follows.
        is_ended = len(split_sentences(f"{padded} {sentence}")) > len(split_sentences(padded))
        padded = f"{padded}{' ' if is_ended else chr(10)}{sentence}"
    return padded if spare else None


class JudgedAnswer(Value):
    """An answer with a verdict of the judge; `at` is when it was given, in microseconds UTC."""

    id: str
    canary: str
    at: int
    check: str = ""
    """Whose run it is of; one of several."""


def pool_answers(answers: Iterable[JudgedAnswer], *, window: int, seed: int) -> list[JudgedAnswer]:
    """Answers that estimates are made of: one of each check, canary and window, chosen by hash, in random order.

    `window` is in microseconds; windows are counted from 1970, so that they do not move with the answers. The choice
    depends on identities and seed alone: not on verdicts, and not on the order of the answers. Raises ValueError for a
    window below 1.
    """
    if window < 1:
        raise ValueError(f"a window has at least 1 microsecond, not {window}")
    chosen: dict[tuple[str, str, int], tuple[float, str, JudgedAnswer]] = {}
    for answer in answers:
        place = (answer.check, answer.canary, answer.at // window)
        ranked = (hash_share(f"answer:{seed}:{answer.id}"), answer.id, answer)
        if place not in chosen or ranked[:2] < chosen[place][:2]:
            chosen[place] = ranked
    # Ordered by a hash of their own: by that of the chosen answer, canaries with many answers would come first.
    order = sorted(chosen, key=lambda place: (hash_share(f"pool:{seed}:{place[2]}:{place[1]}{place[0]}"), place))
    return [chosen[place][2] for place in order]


def draw_answers(
    answers: Iterable[JudgedAnswer], count: int, *, window: int, seed: int
) -> tuple[list[JudgedAnswer], list[JudgedAnswer]]:
    """Draw the answers to label: `count` of the pool, or all of it, and the rest of the pool, both in random order.

    Equally many are drawn of each check, as far as it has them, so that a small one has enough labels. A larger count
    draws the same ones and more. Raises ValueError for a count below 0.
    """
    if count < 0:
        raise ValueError(f"{count} answers cannot be drawn")
    turns: list[tuple[int, JudgedAnswer]] = []
    taken: Counter[str] = Counter()
    for answer in pool_answers(answers, window=window, seed=seed):
        turns.append((taken[answer.check], answer))
        taken[answer.check] += 1
    pool = [answer for _, answer in sorted(turns, key=lambda one: one[0])]  # stable: random within a turn
    return pool[:count], pool[count:]
