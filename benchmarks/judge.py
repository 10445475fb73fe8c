"""How far numbers of a judge can be trusted: simulated judges with stated errors, held against the known truth.

    python -m benchmarks.judge [REPETITIONS]
    python -m benchmarks.judge --checks [REPETITIONS]
    python -m benchmarks.judge --people [REPETITIONS]

No model runs here, so nothing is claimed of any real judge: a simulated one says YES to what is right in `sensitivity`
of the cases and NO to what is wrong in `specificity`, independently. REPETITIONS (default 2,000) samples are drawn for
each row, with fixed seeds. It fails unless intervals cover, an unfit judge stays uncalibrated and love of length shows.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from app.answers.domain.labellers import SaidOfAnswer, measure_labellers
from app.answers.domain.trust import (
    Basis,
    LabelledAnswers,
    correct_rate,
    decide_correction,
    estimate_rate,
    estimate_together,
    measure_judge,
    measure_length_bias,
    prediction_powered,
)
from app.base.statistics import clopper_pearson, student_quantile

Floats = NDArray[np.float64]

UNLABELLED = 2_000
LEAST_COVERAGE = 0.93
MOST_FALSE = 0.05
LEAST_SHOWN = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A simulated judge; `length_love` is the share of its NOs that padding turns into a YES."""

    sensitivity: float
    specificity: float
    length_love: float = 0.0

    def judge(self, truth: NDArray[np.bool_], random: np.random.Generator) -> NDArray[np.bool_]:
        """Return a verdict on each answer."""
        chance = random.random(truth.shape)
        verdicts: NDArray[np.bool_] = np.where(truth, chance < self.sensitivity, chance >= self.specificity)
        return verdicts

    def kappa(self, rate: float) -> float:
        """Return the kappa of this judge with the truth where a share `rate` of the answers is right."""
        agreed = rate * self.sensitivity + (1 - rate) * self.specificity
        says_yes = rate * self.sensitivity + (1 - rate) * (1 - self.specificity)
        chance = rate * says_yes + (1 - rate) * (1 - says_yes)
        return (agreed - chance) / (1 - chance)


GOOD, MIDDLING, POOR = (
    Judge(sensitivity=0.95, specificity=0.9),
    Judge(sensitivity=0.9, specificity=0.8),
    Judge(sensitivity=0.7, specificity=0.6),
)
UNFIT = ((0.5, Judge(sensitivity=0.7, specificity=0.7)), (0.8, Judge(sensitivity=0.8, specificity=0.66)))
"""Rates and judges whose kappa is about .4 there: calling them calibrated is the error at the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """What intervals did over the repetitions of one design; widths are means."""

    formula_covers: float
    """The combined interval, whatever the labels are."""
    formula_width: float
    """Relative to the interval of Student's t from the same labels alone."""
    covers: float
    """The interval that Coalmine gives: combined where labels allow, people alone otherwise."""
    width: float
    """Relative to the exact interval from the same labels alone."""
    people_alone: float
    """Share of the repetitions in which the labels did not allow the combined one."""


def main(repetitions: int = 2_000) -> None:
    """Print the tables, then hold them against what the documentation promises."""
    failures = [*_print_intervals(repetitions), *_print_calibrated(repetitions), *_print_length_love(repetitions)]
    assert not failures, failures


def main_checks(repetitions: int = 500) -> None:
    """Print the table of checks, then hold it against what the documentation promises."""
    print("| sensitivity, specificity | labels | what | true rate | raw, mean | covers | width | decided |")
    print("|---|---|---|---|---|---|---|---|")
    failures = []
    for judge in (GOOD, MIDDLING, Judge(sensitivity=0.8, specificity=0.75), POOR):
        for labels in (200, 400):
            for what, one in measure_checks(judge, labels=labels, repetitions=repetitions).items():
                errors = f"{judge.sensitivity}, {judge.specificity}"
                numbers = f"{one.raw:.3f} | {one.covers:.3f} | {one.width:.2f} | {one.decided:.2f}"
                row = f"| {errors} | {labels} | {what} | {one.truth:.3f} | {numbers} |"
                print(row, flush=True)
                failures += [row] if one.covers < LEAST_COVERAGE else []
    assert not failures, failures


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Two people who label answers, both of them a share `twice`, each with a share of wrong labels of its own.

    Of `hard` answers they get `wrong_of_hard` wrong, and the judge `judge_wrong_of_hard`: their errors come together.
    """

    wrong: tuple[float, float] = (0.06, 0.09)
    labels: int = 220
    twice: float = 0.2
    rate: float = 0.77
    hard: float = 0.0
    wrong_of_hard: float = 0.3
    judge_wrong_of_hard: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleCover:
    """What is told of a judge where people err, as means over the repetitions in which that is told."""

    truth: float
    """Share of the bad answers that the judge accepts."""
    by_labels: float
    """The same by the labels, were they all right."""
    plain_covers: float
    """How often the exact interval of that holds the truth."""
    value: float
    covers: float
    width: float
    told: float
    """Share of the repetitions in which enough answers have two labels."""


def people_designs() -> Iterator[tuple[Judge, People]]:
    """Yield judges with people who err seldom, often, and at the same answers as the judge."""
    fair = Judge(sensitivity=0.92, specificity=0.85)
    yield fair, People(wrong=(0.0, 0.0))
    yield fair, People(wrong=(0.02, 0.03))
    yield fair, People()
    yield fair, People(wrong=(0.15, 0.2))
    yield fair, People(labels=170, twice=0.12, rate=0.7, wrong=(0.08, 0.11))
    yield GOOD, People(labels=400, twice=0.5, rate=0.9, wrong=(0.03, 0.05))
    yield POOR, People(rate=0.6)
    yield Judge(sensitivity=0.92, specificity=0.6), People(wrong=(0.0, 0.0))
    yield Judge(sensitivity=0.92, specificity=0.6), People(twice=0.1)
    yield Judge(sensitivity=0.92, specificity=0.92), People(wrong=(0.02, 0.02), hard=0.15)
    yield fair, People(wrong=(0.02, 0.02), hard=0.15, judge_wrong_of_hard=0.15)


def main_people(repetitions: int = 500) -> None:
    """Print the table of people who err, then hold it against what the documentation promises."""
    print(
        "| sensitivity, specificity | labels | twice | people err | pass | by labels | covers | told | covers | width |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    failures = []
    for judge, people in people_designs():
        one = measure_people(judge, people, repetitions=repetitions)
        err = f"{people.wrong[0]}, {people.wrong[1]}"
        if people.hard:
            err += f"; {people.wrong_of_hard} of {people.hard}, the judge {people.judge_wrong_of_hard}"
        start = (
            f"| {judge.sensitivity}, {judge.specificity} | {people.labels} | {people.twice} | {err} | {one.truth:.3f}"
        )
        plain = f"{one.by_labels:.3f} | {one.plain_covers:.3f}"
        row = f"{start} | {plain} | {one.value:.3f} | {one.covers:.3f} | {one.width:.2f} |"
        print(row, flush=True)
        failures += [row] if one.covers < (LEAST_TOGETHER if people.hard else LEAST_COVERAGE) else []
    assert not failures, failures


LEAST_TOGETHER = 0.88
"""The least coverage where some answers are hard, which the estimate does not know."""


def measure_people(judge: Judge, people: People, *, repetitions: int) -> PeopleCover:
    """Let people err and count how often the interval holds the true share of bad answers that the judge accepts."""
    random = np.random.default_rng([20, people.labels, round(1_000 * sum(people.wrong)), round(1_000 * people.hard)])
    errors = np.array([1 - judge.specificity, people.judge_wrong_of_hard])
    truth = float(errors @ [1 - people.hard, people.hard])
    rows = []
    for repetition in range(repetitions):
        good, hard = random.random(people.labels) < people.rate, random.random(people.labels) < people.hard
        easy = judge.judge(good, random)
        verdicts = np.where(hard, good ^ (random.random(people.labels) < people.judge_wrong_of_hard), easy)
        rates = np.where(hard[:, None], people.wrong_of_hard, np.array(people.wrong))
        said = good[:, None] ^ (random.random(rates.shape) < rates)
        both, first = random.random(people.labels) < people.twice, random.random(people.labels) < 0.5
        answers = [
            SaidOfAnswer(judge=bool(verdict), people=pair.tolist() if two else [bool(pair[int(one)])])
            for verdict, pair, two, one in zip(verdicts, said, both, first, strict=True)
        ]
        found = measure_labellers(answers, seed=repetition).passing
        refused = [one.judge for one in answers if not any(one.people)]
        plain = clopper_pearson(sum(refused), len(refused))
        if found.value is not None and found.low is not None and found.high is not None:
            held = (plain.low <= truth <= plain.high, found.low <= truth <= found.high)
            rows.append((plain.value or 0.0, held[0], found.value, held[1], found.high - found.low))
    by_labels, plain_covers, value, covers, width = np.array(rows, dtype=np.float64).mean(axis=0).tolist()
    return PeopleCover(
        truth=truth,
        by_labels=by_labels,
        plain_covers=plain_covers,
        value=value,
        covers=covers,
        width=width,
        told=len(rows) / repetitions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCover:
    """How intervals of a rate held the truth; means over the repetitions in which there was one."""

    truth: float
    raw: float
    """The judge's own rate."""
    covers: float
    width: float
    decided: float
    """Share of the repetitions in which there is an interval: labels of the check correct its runs."""


RATES = (0.769, 0.6)
POOLS = (2_000, 500)
FALL = 0.2


def measure_checks(judge: Judge, *, labels: int, repetitions: int) -> dict[str, CheckCover]:
    """Draw labels of two checks, half of them of each, and count how often the intervals hold the true rates."""
    random = np.random.default_rng([19, labels, round(judge.sensitivity * 1_000), round(judge.specificity * 1_000)])
    rows: dict[str, list[tuple[float, float, float]]] = {}
    truths: dict[str, float] = {}
    each = labels // len(RATES)
    for _ in range(repetitions):
        checks = []
        for number, (rate, pool) in enumerate(zip(RATES, POOLS, strict=True), start=1):
            truth = random.random(pool) < rate
            verdicts = judge.judge(truth, random)
            people, said = truth[:each], verdicts[:each]
            one = LabelledAnswers(
                labels=people.tolist(),
                judged=said.astype(float).tolist(),
                unlabelled=verdicts[each:].astype(float).tolist(),
            )
            checks.append(one)
            found = estimate_rate(one.labels, one.judged, one.unlabelled)
            _note(rows, truths, f"check {number}", rate, (float(verdicts.mean()), found.low, found.high))
            counts = [int(part.sum()) for part in (people & said, people & ~said, ~people & said, ~people & ~said)]
            if not _corrects(*counts):
                continue
            for answers in (50, 500):
                for fall in (0.0, FALL):
                    ran = judge.judge(random.random(answers) < rate - fall, random)
                    run = correct_rate(
                        int(ran.sum()),
                        answers,
                        clopper_pearson(counts[0], counts[0] + counts[1]),
                        clopper_pearson(counts[3], counts[2] + counts[3]),
                    )
                    what = f"run of {answers} answers of check {number}{', fallen' if fall else ''}"
                    _note(rows, truths, what, rate - fall, (float(ran.mean()), run.low, run.high))
        together = estimate_together(checks)
        rate = float(np.average(RATES, weights=POOLS))
        _note(rows, truths, "both together", rate, (together.judge_rate or 0.0, together.low, together.high))
    return {
        what: CheckCover(
            truth=truths[what],
            raw=float(np.mean([raw for raw, *_ in found])),
            covers=float(np.mean([held for _, held, *_ in found])),
            width=float(np.mean([width for _, _, width in found])),
            decided=len(found) / repetitions,
        )
        for what, found in sorted(rows.items())
    }


def _note(
    rows: dict[str, list[tuple[float, float, float]]],
    truths: dict[str, float],
    what: str,
    truth: float,
    found: tuple[float, float, float],
) -> None:
    raw, low, high = found
    truths[what] = truth
    rows.setdefault(what, []).append((raw, float(low <= truth <= high), high - low))


@lru_cache(maxsize=100_000)
def _corrects(both: int, missed: int, wrong: int, neither: int) -> bool:
    people, verdicts = _labelled(both, missed, wrong, neither)
    return decide_correction(measure_judge(people, verdicts), min(both + missed, wrong + neither))[0]


def _print_intervals(repetitions: int) -> Iterator[str]:
    print("| sensitivity, specificity | labels | true rate | formula: covers | width | rule: covers | width | alone |")
    print("|---|---|---|---|---|---|---|---|")
    for judge, labels, rate in designs():
        found = measure_intervals(judge, labels=labels, rate=rate, repetitions=repetitions)
        numbers = f"{found.formula_covers:.3f} | {found.formula_width:.2f} | {found.covers:.3f} | {found.width:.2f}"
        row = f"| {judge.sensitivity}, {judge.specificity} | {labels} | {rate} | {numbers} | {found.people_alone:.2f} |"
        print(row, flush=True)
        if found.covers < LEAST_COVERAGE:
            yield f"covers too rarely: {row}"
        if found.formula_width > 1.0 or found.width > 1.0:
            yield f"wider than people alone: {row}"


def _print_calibrated(repetitions: int) -> Iterator[str]:
    print("\n| true rate | sensitivity, specificity | kappa | labels | called calibrated |\n|---|---|---|---|---|")
    for rate, judge in (*UNFIT, (0.8, MIDDLING), (0.8, GOOD)):
        for labels in (30, 100, 200):
            share = share_calibrated(judge, labels=labels, rate=rate, repetitions=repetitions)
            errors = f"{judge.sensitivity}, {judge.specificity} | {judge.kappa(rate):.2f}"
            row = f"| {rate} | {errors} | {labels} | {share:.3f} |"
            print(row, flush=True)
            if (rate, judge) in UNFIT and share > MOST_FALSE:
                yield f"called calibrated too often: {row}"


def _print_length_love(repetitions: int) -> Iterator[str]:
    print("\n| padding turns of the NOs into YES | pairs | reported | covers |\n|---|---|---|---|")
    for love in (0.0, 0.1, 0.3, 0.5):
        for pairs in (20, 50, 100):
            judge = Judge(sensitivity=0.9, specificity=0.8, length_love=love)
            shown, covers = measure_length_love(judge, pairs=pairs, repetitions=repetitions)
            row = f"| {love} | {pairs} | {shown:.3f} | {covers:.3f} |"
            print(row, flush=True)
            if covers < LEAST_COVERAGE or (not love and shown > MOST_FALSE):
                yield f"reported wrongly: {row}"
    if shown < LEAST_SHOWN:
        yield f"reported too rarely: {row}"


def designs() -> Iterator[tuple[Judge, int, float]]:
    """Yield judges, numbers of labels and true rates of the first table; the last rows are why there is a rule."""
    for judge in (GOOD, MIDDLING, POOR):
        for labels in (100, 200):
            for rate in (0.7, 0.8, 0.9):
                yield judge, labels, rate
    for rate in (0.95, 0.99):
        yield GOOD, 100, rate


def measure_intervals(judge: Judge, *, labels: int, rate: float, repetitions: int) -> Intervals:
    """Draw labelled and unlabelled answers and count how often intervals hold the true rate."""
    random = np.random.default_rng([16, labels, round(rate * 1_000), round(judge.sensitivity * 1_000)])
    side = student_quantile(0.975, labels - 1)
    rows = []
    for _ in range(repetitions):
        truth = random.random(labels + UNLABELLED) < rate
        verdicts = judge.judge(truth, random).astype(np.float64)
        people, judged, others = truth[:labels].astype(np.float64), verdicts[:labels], verdicts[labels:]
        mean, error, _weight = prediction_powered(people, judged, others)
        found = estimate_rate(people.tolist(), judged.tolist(), others.tolist())
        exact = clopper_pearson(int(people.sum()), labels)
        rows.append(
            (
                max(mean - side * error, 0) <= rate <= min(mean + side * error, 1),
                2 * side * error,
                2 * side * float(people.std(ddof=1)) / labels**0.5,
                found.low <= rate <= found.high,
                found.high - found.low,
                exact.high - exact.low,
                found.basis is Basis.PEOPLE,
            )
        )
    means = np.array(rows, dtype=np.float64).mean(axis=0).tolist()
    return Intervals(
        formula_covers=means[0],
        formula_width=means[1] / means[2],
        covers=means[3],
        width=means[4] / means[5],
        people_alone=means[6],
    )


def share_calibrated(judge: Judge, *, labels: int, rate: float, repetitions: int) -> float:
    """Return the share of repetitions in which a judge is called calibrated."""
    random = np.random.default_rng([17, labels, round(rate * 1_000), round(judge.sensitivity * 1_000)])
    found = 0
    for _ in range(repetitions):
        truth = random.random(labels) < rate
        verdicts = judge.judge(truth, random)
        found += _is_calibrated(
            int((truth & verdicts).sum()),
            int((truth & ~verdicts).sum()),
            int((~truth & verdicts).sum()),
            int((~truth & ~verdicts).sum()),
        )
    return found / repetitions


@lru_cache(maxsize=100_000)  # the order of answers means nothing, so samples of equal counts are one
def _is_calibrated(both: int, missed: int, wrong: int, neither: int) -> bool:
    return measure_judge(*_labelled(both, missed, wrong, neither)).calibrated


def _labelled(both: int, missed: int, wrong: int, neither: int) -> tuple[list[bool], list[float]]:
    people = [True] * (both + missed) + [False] * (wrong + neither)
    return people, [1.0] * both + [0.0] * missed + [1.0] * wrong + [0.0] * neither


def measure_length_love(judge: Judge, *, pairs: int, repetitions: int) -> tuple[float, float]:
    """Return how often love of length is reported and how often the interval holds the true difference.

    Half of the control answers are right. The judge decides anew on the padded answer: its errors are independent.
    """
    random = np.random.default_rng([18, pairs, round(judge.length_love * 1_000)])
    says_no = 0.5 * (1 - judge.sensitivity) + 0.5 * judge.specificity
    difference = judge.length_love * says_no
    shown = covers = 0
    for _ in range(repetitions):
        truth = random.random(pairs) < 0.5
        plain, again = judge.judge(truth, random), judge.judge(truth, random)
        padded = again | (random.random(pairs) < judge.length_love)
        found = measure_length_bias(plain.tolist(), padded.tolist())
        shown += found.shown
        covers += found.low is not None and found.high is not None and found.low <= difference <= found.high
    return shown / repetitions, covers / repetitions


if __name__ == "__main__":
    if sys.argv[1:2] == ["--checks"]:
        main_checks(*map(int, sys.argv[2:3]))
    elif sys.argv[1:2] == ["--people"]:
        main_people(*map(int, sys.argv[2:3]))
    else:
        main(*map(int, sys.argv[1:2]))
