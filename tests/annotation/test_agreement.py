"""Agreement: published tables, other libraries, and intervals that hold what they promise."""

import math
import warnings

import krippendorff
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from app.annotation.domain import agreement
from app.annotation.domain.agreement import FEWEST_ITEMS, Level, alpha_interval, kappa_interval, measure_agreement

Floats = NDArray[np.float64]
NONE = math.nan


def random_grades(seed: int, items: int, annotators: int, *, missing: float = 0.3, same: float = 0.6) -> Floats:
    """Return grades 0 to 3 of annotators who often see the same, some missing."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, 4, size=(items, 1))
    own = random.integers(0, 4, size=(items, annotators))
    grades = np.where(random.random((items, annotators)) < same, truth, own).astype(np.float64)
    grades[random.random((items, annotators)) < missing] = NONE
    return grades


def alpha_of(grades: ArrayLike, level: Level) -> float | None:
    """Return alpha alone, without resamples for its interval."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "DRAWS", 1)
        return alpha_interval(grades, level).value


def kappa_of(a: ArrayLike, b: ArrayLike, *, quadratic: bool = False) -> float | None:
    """Return kappa alone, likewise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "DRAWS", 1)
        return kappa_interval(a, b, quadratic=quadratic).value


def nltk_kappa(a: Floats, b: Floats, *, quadratic: bool = False) -> float:
    """Return Cohen's kappa as nltk has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nltk.metrics.agreement import AnnotationTask  # noqa: PLC0415 - brings SciPy along: a second of every worker

    rows = [(name, item, int(grade)) for name, column in (("a", a), ("b", b)) for item, grade in enumerate(column)]
    if not quadratic:
        return float(AnnotationTask(data=rows).kappa_pairwise("a", "b"))
    task = AnnotationTask(data=rows, distance=lambda one, other: (one - other) ** 2)
    return float(task.weighted_kappa_pairwise("a", "b"))


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("seed", range(10))
def test_alpha_agrees_with_the_library_krippendorff(level: Level, seed: int) -> None:
    grades = random_grades(seed, items=40, annotators=2 + seed % 4)
    theirs = krippendorff.alpha(reliability_data=grades.T, level_of_measurement=level.value)
    assert alpha_of(grades, level) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_kappas_agree_with_nltk(seed: int) -> None:
    a, b = random_grades(seed, items=60, annotators=2, missing=0).T
    assert kappa_of(a, b) == pytest.approx(nltk_kappa(a, b), abs=1e-12)
    assert kappa_of(a, b, quadratic=True) == pytest.approx(nltk_kappa(a, b, quadratic=True), abs=1e-12)


def test_items_that_one_of_two_skipped_do_not_enter_their_kappa() -> None:
    a, b = random_grades(3, items=60, annotators=2).T
    both = ~(np.isnan(a) | np.isnan(b))
    assert 0 < both.sum() < 60
    assert kappa_of(a, b) == kappa_of(a[both], b[both])


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize(
    "grades",
    [
        pytest.param(np.empty((0, 2)), id="no item"),
        pytest.param([[1.0, NONE], [NONE, 2.0]], id="no item with two grades"),
        pytest.param([[1.0, 1.0], [1.0, 1.0]], id="no variation"),
    ],
)
def test_alpha_without_variation_or_pairs_is_undefined(grades: list[list[float]], level: Level) -> None:
    assert alpha_of(grades, level) is None


@pytest.mark.parametrize("quadratic", [False, True])
def test_kappa_without_variation_or_pairs_is_undefined(*, quadratic: bool) -> None:
    assert kappa_of([], [], quadratic=quadratic) is None
    assert kappa_of([NONE, 1], [1, NONE], quadratic=quadratic) is None
    assert kappa_of([2, 2, 2], [2, 2, 2], quadratic=quadratic) is None


def test_report_holds_every_pair_that_shares_an_item() -> None:
    grades = np.full((30, 3), NONE)
    grades[:20, 0] = grades[:20, 1] = np.arange(20) % 3
    grades[20:, 2] = 1
    found = measure_agreement(["Ann", "Bob", "Cyd"], grades)
    assert found.items == 20
    assert [(pair.a, pair.b, pair.items) for pair in found.pairs] == [("Ann", "Bob", 20)]
    assert found.raw.value == 1
    assert found.alpha[Level.ORDINAL].value == 1
    assert found.pairs[0].kappa.value == found.pairs[0].weighted_kappa.value == 1


def test_raw_agreement_counts_equal_pairs() -> None:
    found = measure_agreement(["Ann", "Bob", "Cyd"], [[1.0, 1.0, 2.0], [0.0, 0.0, NONE], [NONE, 3.0, 2.0]])
    assert found.raw.value == pytest.approx((1 + 1 + 0) / (3 + 1 + 1))


def test_kappa_of_a_report_is_of_relevance_and_the_weighted_one_of_grades() -> None:
    a, b = random_grades(4, items=60, annotators=2, missing=0).T
    pair = measure_agreement(["Ann", "Bob"], np.column_stack([a, b])).pairs[0]
    assert pair.kappa.value == pytest.approx(nltk_kappa(np.minimum(a, 1), np.minimum(b, 1)))
    assert pair.weighted_kappa.value == pytest.approx(nltk_kappa(a, b, quadratic=True))


def test_few_items_have_no_interval() -> None:
    grades = random_grades(5, items=FEWEST_ITEMS - 1, annotators=2, missing=0)
    found = alpha_interval(grades, Level.ORDINAL)
    assert found.value is not None
    assert (found.low, found.high) == (None, None)


def test_items_that_hardly_vary_have_no_interval() -> None:
    grades = np.zeros((40, 2))
    grades[0] = 1, 1
    found = alpha_interval(grades, Level.NOMINAL)
    assert found.value == 1
    assert (found.low, found.high) == (None, None)  # a third of the resamples miss the only item that varies


def test_intervals_do_not_depend_on_the_order_of_the_items() -> None:
    grades = random_grades(7, items=60, annotators=3)
    backwards = grades[::-1]
    assert measure_agreement(["a", "b", "c"], grades) == measure_agreement(["a", "b", "c"], backwards)


def test_intervals_cover_the_alpha_of_the_whole_collection() -> None:
    everything = random_grades(7, items=20_000, annotators=3)
    truth = alpha_of(everything, Level.ORDINAL)
    assert truth is not None
    random, covered = np.random.default_rng(0), 0
    for seed in range(200):
        found = alpha_interval(everything[random.integers(0, 20_000, 100)], Level.ORDINAL, seed=seed)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert covered >= 183  # 95 % of 200 less two standard errors


@pytest.mark.parametrize("grades", [[1.0, 2.0], [[[1.0]]]])
def test_grades_are_a_table(grades: list[float]) -> None:
    with pytest.raises(ValueError, match="table of items by annotators"):
        alpha_interval(grades, Level.NOMINAL)


def test_columns_must_fit() -> None:
    with pytest.raises(ValueError, match="two columns of one length"):
        kappa_interval([1, 2], [1])
    with pytest.raises(ValueError, match="3 annotators need as many columns"):
        measure_agreement("abc", [[1, 2]])
