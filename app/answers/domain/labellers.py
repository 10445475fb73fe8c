"""How often people err who label answers, told by answers that two of them labelled, and what that means for a judge.

A label that is wrong counts as an error of the judge that is right. Where two people label the same answers, how often
they differ tells how often a label is wrong, and so how much of what the judge seems to get wrong is theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from app.annotation.domain.agreement import Coefficient, kappa_interval
from app.annotation.views import CoefficientView
from app.base.statistics import CONFIDENCE
from app.base.values import Value

Floats = NDArray[np.float64]

FEWEST_TWICE: Final = 10
"""Answers that two people labelled from which on these tell how often people err."""


class SaidOfAnswer(Value):
    """What was said of an answer: by the judge, by people in the order of their names, and by who decided a dispute."""

    judge: bool
    people: Sequence[bool]
    decision: bool | None = None


class Labellers(Value):
    """How far people who label agree with each other, and what is left of the errors of the judge."""

    twice: int
    """Answers that two people or more labelled."""
    differ: int
    """Those of them that got both labels."""
    kappa: Coefficient
    """Cohen's, of the first two labels of each."""
    wrong: Coefficient
    """Share of wrong labels; None below `FEWEST_TWICE`."""
    passing: Coefficient
    """Of the bad answers those that the judge says yes of, with wrong labels allowed for; None likewise."""


class LabellersView(TypedDict):
    """How far people who label agree with each other, and what is left of the errors of the judge."""

    twice: int
    """Answers that two people or more labelled."""
    differ: int
    """Those of them that got both labels."""
    kappa: CoefficientView
    """Agreement of two people beyond chance."""
    wrong: CoefficientView
    """Share of wrong labels; null where fewer than ten answers have two."""
    passing: CoefficientView
    """Of the bad answers those that the judge says yes of, with wrong labels allowed for; null likewise."""


def measure_labellers(said: Sequence[SaidOfAnswer], *, seed: int = 0) -> Labellers:
    """Return how often people err by answers that several labelled, and what that leaves of the judge's errors.

    The same for the same labels and seed.
    """
    several = [one for one in said if len(one.people) > 1]
    pairs = np.array([one.people[:2] for one in several], dtype=np.float64).reshape(-1, 2)
    unknown = Coefficient(value=None)
    wrong, passing = (unknown, unknown) if len(several) < FEWEST_TWICE else _draw_errors(said, seed)
    return Labellers(
        twice=len(several),
        differ=sum(len(set(one.people)) > 1 for one in several),
        kappa=kappa_interval(*pairs.T, seed=seed),
        wrong=wrong,
        passing=passing,
    )


_CHAINS: Final = 100
_ROUNDS: Final = 200
"""Of which the first half is forgotten."""
_SELDOM: Final = (0.5, 4.5)
"""Beta prior of the share of wrong labels of good and of bad answers: .1, worth five labels."""
_ANY: Final = (1.0, 1.0)
"""The same of the share of good answers, and of those that the judge is right about."""


def _draw_errors(said: Sequence[SaidOfAnswer], seed: int) -> tuple[Coefficient, Coefficient]:
    """Draw from the posterior what share of labels is wrong, and what share of the bad answers the judge accepts.

    A latent class model of three raters, two people and the judge: an answer is good or bad, and given that what is
    said of it is independent (Dawid and Skene, "Maximum likelihood estimation of observer error-rates", Applied
    Statistics 1979); who decides a dispute is one person more. Gibbs sampling: Joseph, Gyorkos and Coupal, "Bayesian
    estimation of disease prevalence and the parameters of diagnostic tests in the absence of a gold standard"
    (American Journal of Epidemiology 1995). `benchmarks.judge --people` holds the intervals against the truth.
    """
    cells = Counter(_count(one) for one in said if one.people)
    counts = np.array(list(cells.values()))
    yes, no, judge = np.array(list(cells), dtype=np.float64).T
    random = np.random.default_rng(seed)
    rate, accepts, refuses = (random.beta(*prior, _CHAINS) for prior in ((2.0, 2.0), (8.0, 2.0), (8.0, 2.0)))
    missed, let_pass = (random.beta(*_SELDOM, _CHAINS) for _ in range(2))
    wrong, passing = [], []
    for turn in range(_ROUNDS):
        good = _log(rate) + _log(1 - missed) * yes + _log(missed) * no
        good += _log(accepts) * judge + _log(1 - accepts) * (1 - judge)
        bad = _log(1 - rate) + _log(let_pass) * yes + _log(1 - let_pass) * no
        bad += _log(1 - refuses) * judge + _log(refuses) * (1 - judge)
        of_good = random.binomial(counts, 1 / (1 + np.exp(np.clip(bad - good, -50, 50)))).astype(np.float64)
        of_bad = counts - of_good
        rate = _beta(random, _ANY, of_good.sum(axis=1), of_bad.sum(axis=1))
        accepts = _beta(random, _ANY, of_good @ judge, of_good @ (1 - judge))
        refuses = _beta(random, _ANY, of_bad @ (1 - judge), of_bad @ judge)
        missed = _beta(random, _SELDOM, of_good @ no, of_good @ yes)
        let_pass = _beta(random, _SELDOM, of_bad @ yes, of_bad @ no)
        if turn >= _ROUNDS // 2:
            wrong.append(rate * missed + (1 - rate) * let_pass)
            passing.append(1 - refuses)
    return _spread(wrong), _spread(passing)


def _count(said: SaidOfAnswer) -> tuple[int, int, bool]:
    """Return how many said yes of an answer and how many no, and what the judge said."""
    labels = [*said.people, *([] if said.decision is None else [said.decision])]
    return sum(labels), len(labels) - sum(labels), said.judge


def _log(shares: Floats) -> Floats:
    """Return logarithms in one column, of 0 that of next to nothing."""
    found: Floats = np.log(np.maximum(shares, 1e-12))[:, None]
    return found


def _beta(random: np.random.Generator, prior: tuple[float, float], successes: Floats, failures: Floats) -> Floats:
    drawn: Floats = random.beta(prior[0] + successes, prior[1] + failures)
    return drawn


def _spread(draws: Sequence[Floats]) -> Coefficient:
    tail = (1 - CONFIDENCE) / 2
    low, value, high = np.quantile(np.concatenate(draws), [tail, 0.5, 1 - tail]).tolist()
    return Coefficient(value=value, low=low, high=high)


def agree_no_better(labellers: LabellersView | None, kappa: float | None) -> bool:
    """Whether people agree with each other no better than they do with a judge, whose kappa with them is given.

    Then nobody can tell which of them errs. Not so where all who labelled an answer said the same of it.
    """
    if labellers is None or labellers["twice"] < FEWEST_TWICE or not labellers["differ"]:
        return False
    own = labellers["kappa"]["value"]
    return own is not None and kappa is not None and own <= kappa
