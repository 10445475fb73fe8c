"""Recall beyond the pool, estimated from the grades of a sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.annotation.domain.agreement import DRAWS
from app.base.statistics import CONFIDENCE
from app.base.texts import listed
from app.base.values import Value

Floats = NDArray[np.float64]
Sides = NDArray[np.bool_]


class SampledStratum(Value):
    """A stratum of one query: its size, how many of its items were graded (not skipped), how many are relevant."""

    size: int
    graded: int
    relevant: int

    def __post_init__(self) -> None:
        """Raise ValueError unless relevant <= graded <= size."""
        if not 0 <= self.relevant <= self.graded <= self.size:
            raise ValueError(f"{self.relevant} relevant of {self.graded} graded of {self.size} cannot be")


class QueryGrades(Value):
    """Grades of one query: relevant items of the pool, those of them found in the first k, and the strata below."""

    pool_relevant: int
    found: int
    strata: tuple[SampledStratum, ...] = ()


class PooledRecall(Value):
    """Pooled recall over `queries`, with its 95 % interval.

    `relevant` is the estimated number of relevant items; `value` and the interval are None where it is unknown (a
    stratum of a query has no grade) or 0.
    """

    queries: int
    found: int
    relevant: float | None
    value: float | None
    low: float | None = None
    high: float | None = None
    rest_share: float | None = None
    """Share of `relevant` that texts which no retriever ranked stand for; None = unknown."""


def estimate_recall(queries: Sequence[QueryGrades], *, has_rest: bool = False, seed: int = 0) -> PooledRecall:
    """Estimate recall of a retriever whose hits were pooled, from the grades of its queries, each taken as right.

    With `has_rest` the last stratum is of texts that no retriever ranked.

    Each of `DRAWS` draws resamples the queries and draws the share of relevant items of each stratum given all its
    grades; see `_Samples.draw_shares`. A stratum of a query that was graded whole is not drawn. The same for the same
    grades and seed. Raises ValueError where queries differ in the number of their strata.
    """
    found = sum(query.found for query in queries)
    unknown = any(one.size and not one.graded for query in queries for one in query.strata)
    if not queries or unknown:
        return PooledRecall(queries=len(queries), found=found, relevant=None, value=None)
    samples = _Samples.read(queries)
    relevant = float(samples.counted.sum() + (samples.sizes @ samples.shares if samples.sizes.size else 0.0))
    if not relevant:
        return PooledRecall(queries=len(queries), found=found, relevant=0.0, value=None)
    low, high = samples.interval(np.random.default_rng(seed))
    rest = [query.strata[-1] for query in queries] if has_rest else []
    return PooledRecall(
        queries=len(queries),
        found=found,
        relevant=relevant,
        value=found / relevant,
        low=low,
        high=high,
        rest_share=sum(one.size * one.relevant / one.graded for one in rest if one.graded) / relevant,
    )


class RecallEstimate(PooledRecall):
    """That of a retriever at a depth, and what it is a share of."""

    retriever: str
    k: int
    frame: str
    uncorrected: float | None = None
    """With every grade taken as right; None = as `value`."""
    assumes: str = ""
    """What it takes for granted of the grades, or how it corrects them, in words."""


class _Samples(Value):
    """What draws need: of each query found and counted items and sizes by stratum; of each stratum share and grades."""

    found: Floats
    counted: Floats
    """Relevant items that are known: of the pool and of strata graded whole."""
    sizes_by_query: Floats
    """0 where a stratum was graded whole."""
    sizes: Floats
    shares: Floats
    """Of each stratum the share that is relevant, weighted by sizes."""
    grades: Floats
    """Of each stratum the number of grades it is worth, after Kish: equal weights give their number."""

    @classmethod
    def read(cls, queries: Sequence[QueryGrades]) -> _Samples:
        strata = len(queries[0].strata)
        if any(len(query.strata) != strata for query in queries):
            raise ValueError("queries must have the same strata")
        columns = np.array(
            [[(one.size, one.graded, one.relevant) for one in query.strata] for query in queries], dtype=np.float64
        ).reshape(len(queries), strata, 3)
        sizes, graded, relevant = columns[:, :, 0], columns[:, :, 1], columns[:, :, 2]
        whole = graded == sizes
        counted = np.array([query.pool_relevant for query in queries]) + (relevant * whole).sum(axis=1)
        sizes = np.where(whole, 0.0, sizes)
        safe = np.maximum(graded, 1)
        totals = sizes.sum(axis=0)
        spread = (sizes**2 / safe).sum(axis=0)
        return cls(
            found=np.array([query.found for query in queries], dtype=np.float64),
            counted=counted,
            sizes_by_query=sizes,
            sizes=totals,
            shares=(sizes * relevant / safe).sum(axis=0) / np.maximum(totals, 1),
            grades=np.divide(totals**2, spread, out=np.zeros(strata), where=spread > 0),
        )

    def interval(self, random: np.random.Generator) -> tuple[float, float]:
        """Percentiles of found / relevant over the draws; a draw in which nothing is relevant tells nothing."""
        queries = len(self.found)
        counts = random.multinomial(queries, np.full(queries, 1 / queries), size=DRAWS).astype(np.float64)
        relevant = counts @ self.counted + ((counts @ self.sizes_by_query) * self.draw_shares(random)).sum(axis=1)
        found = counts @ self.found
        drawn = found[relevant > 0] / relevant[relevant > 0]
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(drawn, [tail, 1 - tail]).tolist()
        return low, high

    def draw_shares(self, random: np.random.Generator) -> Floats:
        """Draw the relevant share of each stratum."""
        hits = np.broadcast_to(self.shares * self.grades, (DRAWS, len(self.shares)))
        return draw_share(random, hits, self.grades)


def draw_share(random: np.random.Generator, hits: Floats, count: Floats | float, *, low: Sides | None = None) -> Floats:
    """Draw a share given so many hits of `count`, for each of `hits`: of the two beta distributions of exact limits.

    Beta(r, n - r + 1) and Beta(r + 1, n - r) give the lower and the upper limit of Clopper and Pearson; each draw takes
    one of them at random (Stevens, "Fiducial limits of the parameter of a discontinuous distribution", Biometrika
    1950), or the lower one where `low` says so. So finding none relevant still leaves room, and finding the only one of
    a large rest still covers. Jeffreys' Beta(r + 1/2, n - r + 1/2) does not there: .92 in place of .98 on chunkeval.
    """
    misses, tiny = np.maximum(count - hits, 0), 1e-9
    lower = np.where(hits > 0, random.beta(np.maximum(hits, tiny), misses + 1), 0)
    upper = np.where(misses > 0, random.beta(hits + 1, np.maximum(misses, tiny)), 1)
    either = random.random(hits.shape) < 0.5 if low is None else low  # noqa: PLR2004 - both as often
    drawn: Floats = np.where(either, lower, upper)
    return drawn


def is_pooled_recall_self_judged(retrievers: Collection[str], *, has_rest: bool) -> bool:
    """Whether pooled recall is self-judged: one retriever alone brought something up, and nothing came from a corpus.

    Those that ask the same are one.

    However deep its strata go, what this retriever does not rank was never judged. Random texts of a corpus are judged
    whoever finds them, and each stands for its share of the corpus.
    """
    return len(retrievers) == 1 and not has_rest


def recall_frame(
    retrievers: Sequence[str], depth: int, corpus: str | None, brought_up: Mapping[str, str] | None = None
) -> str:
    """Return in words what the estimate is a share of; `corpus`: the one that random texts were drawn from.

    `brought_up`: those that brought something up, with what each asked; None = all, each something else.
    """
    if corpus is not None:
        return f"of all relevant texts of the corpus {corpus}"
    found = {one: one for one in retrievers} if brought_up is None else brought_up
    own = ""
    if is_pooled_recall_self_judged(set(found.values()), has_rest=False):
        whose = "its own first hits" if len(retrievers) == 1 else f"the first hits of {listed(list(found))}"
        own = f", {whose} alone"
    return f"of the relevant texts among the top {depth} of {', '.join(retrievers)}{own}"


Said = tuple[int, int]
"""How many people said something of an item, and how many of them that it is relevant."""


class SaidOfQuery(Value):
    """What people said of the items of one query: of the pool, and of the sample of each stratum, with its size."""

    pool: tuple[Said, ...]
    strata: tuple[tuple[int, tuple[Said, ...]], ...] = ()


class SaidOfPlanted(Value):
    """What people said of planted items: of texts that are known to be relevant, and of others."""

    relevant: tuple[Said, ...] = ()
    irrelevant: tuple[Said, ...] = ()

    def __len__(self) -> int:
        """Return the number of those that somebody graded."""
        return len(self.relevant) + len(self.irrelevant)

    @property
    def wrong(self) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Whether most grades of each are wrong: of the relevant ones, and of the others."""
        return (
            tuple(2 * yes < people for people, yes in self.relevant),
            tuple(2 * yes > people for people, yes in self.irrelevant),
        )


class WrongShare(Value):
    """Share of wrong grades of a kind of items: the median of what is likely, with its 95 % interval."""

    value: float
    low: float
    high: float


CHAINS: Final = 500
"""Draws of what annotators may have got wrong."""
_MOVES: Final = 8
"""Rounds that the chains walk after each step to the whole weight of what was said."""
_ROUNDS: Final = 100
"""Rounds that they walk at the end."""
_LOW: Final = np.arange(CHAINS)[:, None] % 2 == 0
"""Chains that take the lower exact limit of a count, in one column."""
_RANKED, _REST, _RELEVANT = range(3)
"""Kinds of items with errors of their own: irrelevant ones that a retriever ranked, other irrelevant ones, relevant."""
_KINDS: Final = 3
_OBVIOUS: Final = (0.5, 24.5)
"""Beta prior of the share of wrong grades of an obvious item: .02, worth 25 grades."""
_DIFFICULT: Final = (4.0, 6.0)
"""The same of a difficult item, on which people nearly guess: .4, worth ten grades."""
_DIFFICULT_SHARE: Final = (1.0, 6.0)
"""The same of the share of items that are difficult."""
_ERRORS: Final = np.array([_OBVIOUS, _DIFFICULT, _DIFFICULT_SHARE] * _KINDS)
"""The three of each kind, in the order of the unknowns of a chain."""
_TINY: Final = 1e-12
_FURTHEST: Final = 20.0
"""Log-odds of what is as good as never, or always."""


class _Words(Value):
    """Each different thing that was said of any item of a task: right and wrong grades of it, by kind of item."""

    said: tuple[Said, ...]
    right: Floats
    wrong: Floats

    @classmethod
    def of(cls, cells: Iterable[Sequence[Sequence[Said]]]) -> _Words:
        said = sorted({one for cell in cells for query in cell for one in query})
        people, relevant = np.array(said, dtype=np.float64).reshape(-1, 2).T
        right = np.stack([people - relevant, people - relevant, relevant])
        return cls(said=tuple(said), right=right, wrong=people - right)

    def count(self, cell: Sequence[Sequence[Said]]) -> Floats:
        """Return how often each was said in each query."""
        counts = np.array([[query.count(one) for one in self.said] for query in cell], dtype=np.float64)
        return counts.reshape(len(cell), len(self.said))

    def begin(self, random: np.random.Generator, counts: Floats) -> Floats:
        """Return log-odds of prevalences to begin with by chain and cell: of half of what was said, and further out."""
        share = self.right[_RELEVANT] / (self.right[_RELEVANT] + self.wrong[_RELEVANT])
        said = (counts @ share) / np.maximum(counts.sum(axis=1), 1) / 2
        begin: Floats = _log_odds(np.clip(said, 0.001, 0.9)) + random.normal(0, 1, size=(CHAINS, len(counts)))
        return begin

    def likelihood(self, errors: Floats) -> Floats:
        """Return by chain the probability of each, were an item of a kind: `errors` as in `_ERRORS`."""
        by_kind = errors.reshape(len(errors), _KINDS, 3)
        rates, share = by_kind[:, :, :2, None], by_kind[:, :, 2, None]
        both = np.exp(np.log(rates) * self.wrong[:, None] + np.log1p(-rates) * self.right[:, None])
        return np.maximum((1 - share) * both[:, :, 0] + share * both[:, :, 1], 1e-300)


class GradedTask:
    """What the grades of a task say of its items, where annotators may err.

    A latent class model: an item is relevant or not, and obvious or difficult, and given that its grades are
    independent of each other (Dawid and Skene, "Maximum likelihood estimation of observer error-rates", Applied
    Statistics 1979). Planted items, which are known to be relevant or not, tell how often people err; items of several
    grades, with the decisions on disputes among them, tell it; prevalences that differ by stratum tell it too (Hui and
    Walter, "Estimating the error rates of diagnostic tests", Biometrics 1980). `CHAINS` chains each end in one draw;
    see `_walk`. The same for the same grades and seed.

    Where some grades are wrong, none of a rest may be relevant, or hundreds: a flat prior of the prevalence would call
    none next to impossible. So, as in `draw_share`, half of the chains have priors under which counts end in the lower
    exact limit, and half those of the upper one.
    """

    def __init__(
        self,
        queries: Sequence[SaidOfQuery],
        *,
        has_rest: bool,
        seed: int,
        planted: SaidOfPlanted | None = None,
    ) -> None:
        """Learn from the grades; with `has_rest` the last stratum is of texts that no retriever ranked.

        Planted items that are not relevant are graded as the rest is or, where there is none, as what is ranked.
        """
        planted = planted or SaidOfPlanted()
        self._queries, self._planted, self._seed = queries, planted, seed
        random = np.random.default_rng(seed)
        strata, places = len(queries[0].strata), len(_ERRORS)
        said = [[query.pool for query in queries]]
        said += [[query.strata[place][1] for query in queries] for place in range(strata)]
        self._words = words = _Words.of([*said, [planted.relevant, planted.irrelevant]])
        by_query = [words.count(cell) for cell in said]
        counts = np.stack([cell.sum(axis=0) for cell in by_query])
        kinds = [_RANKED] * (strata + 1)
        if has_rest and strata:
            kinds[-1] = _REST
        known = words.count([planted.relevant, planted.irrelevant])
        known_kinds = [_RELEVANT, kinds[-1]]
        priors = np.concatenate([np.broadcast_to(_ERRORS, (CHAINS, *_ERRORS.shape)), _limits(len(kinds))], axis=1)

        def fit(odds: Floats, _: slice) -> Floats:
            shares = _shares(odds)
            likelihood = words.likelihood(shares[:, :places])
            found = _fit(likelihood, kinds, counts, shares[:, places:])
            found += (np.log(likelihood[:, known_kinds]) * known).sum(axis=(1, 2))
            return found

        shares = _shares(_cool(fit, priors, random))
        self._likelihood = words.likelihood(shares[:, :places])
        self._known_kinds, self._errors = known_kinds, _rates(shares)
        self._rates = _wrong_shares(shares, kinds, counts)
        self._weights = random.multinomial(len(queries), np.full(len(queries), 1 / len(queries)), size=CHAINS).astype(
            np.float64
        )
        self._relevant = relevant = _draw_relevant(random, self._likelihood, kinds, counts, shares[:, places:])
        beyond = [
            self._beyond(random, place - 1, by_query[place], relevant[:, place]) for place in range(1, strata + 1)
        ]
        self._below = np.sum(beyond, axis=0) if beyond else np.zeros(CHAINS)
        self._rest = beyond[-1] if has_rest and beyond else np.zeros(CHAINS)

    def recalls(self, bands: Sequence[Sequence[int]], depths: int) -> list[PooledRecall]:
        """Estimate the recall of a retriever at so many depths, the least first.

        `bands`: of the items of the pool of each query the number of the least depth that has it; `depths` = none has.
        What is relevant is drawn once for all of them, band by band, so that it is the same at each depth, and no
        deeper one finds less.
        """
        random = np.random.default_rng([self._seed, 1])  # the same whatever was asked before
        by_query = [
            self._words.count(
                [
                    [one for one, mine in zip(query.pool, places, strict=True) if mine == band]
                    for query, places in zip(self._queries, bands, strict=True)
                ]
            )
            for band in range(depths + 1)
        ]
        counts, kinds = np.stack([cell.sum(axis=0) for cell in by_query]), [_RANKED] * (depths + 1)
        likelihood, priors = self._likelihood, _limits(len(kinds), flat=depths)

        def fit(odds: Floats, chains: slice) -> Floats:
            return _fit(likelihood[chains], kinds, counts, _shares(odds))

        # The errors are known: only the prevalences have to be forgotten.
        shares = _shares(_walk(fit, priors, self._words.begin(random, counts), _ROUNDS, random))
        relevant = _draw_relevant(random, likelihood, kinds, counts, shares)
        found = np.cumsum(
            [((self._weights @ cell) * relevant[:, place]).sum(axis=1) for place, cell in enumerate(by_query)], axis=0
        )
        total = found[-1] + self._below
        return [self._recall(hits, total) for hits in found[:-1]]

    def _recall(self, hits: Floats, total: Floats) -> PooledRecall:
        """Return recall by the draws of what is found and of all that is relevant."""
        ratios = hits[total > 0] / total[total > 0]
        typical = float(np.median(total))
        if not len(ratios) or not typical:
            return PooledRecall(queries=len(self._queries), found=0, relevant=0.0, value=None)
        tail = (1 - CONFIDENCE) / 2
        least, value, most = np.quantile(ratios, [tail, 0.5, 1 - tail]).tolist()
        return PooledRecall(
            queries=len(self._queries),
            found=round(float(np.median(hits))),
            relevant=typical,
            value=value,
            low=least,
            high=most,
            rest_share=float(np.median(self._rest / np.maximum(total, _TINY))),
        )

    def wrong_shares(self) -> tuple[WrongShare, WrongShare]:
        """Shares of grades that call relevant what is not, and irrelevant what is, as far as they are known."""
        tail = (1 - CONFIDENCE) / 2
        low, median, high = np.quantile(self._rates, [tail, 0.5, 1 - tail], axis=0).tolist()
        irrelevant, relevant = (
            WrongShare(value=value, low=least, high=most) for least, value, most in zip(low, median, high, strict=True)
        )
        return irrelevant, relevant

    def wrong_among(self, said: Sequence[Sequence[Said]]) -> WrongShare | None:
        """Share of some items that are not relevant: those of the pool, and of each stratum, of which this was said.

        None where there are none.
        """
        counts = np.stack([self._words.count([cell])[0] for cell in said])
        if not counts.sum():
            return None
        drawn = 1 - (self._relevant * counts).sum(axis=(1, 2)) / counts.sum()
        tail = (1 - CONFIDENCE) / 2
        low, median, high = np.quantile(drawn, [tail, 0.5, 1 - tail]).tolist()
        return WrongShare(value=median, low=low, high=high)

    def is_contradicted_by(self, planted: SaidOfPlanted) -> bool:
        """Whether planted items, which it has not learnt from, are graded wrongly more often than it allows for.

        Then what they are known for may be wrong.
        """
        chances = [
            _at_least(sum(wrong), len(wrong), self._errors[:, kind])
            for kind, wrong in zip(self._known_kinds, planted.wrong, strict=True)
        ]
        return min(chances) < (1 - CONFIDENCE) / 2

    @property
    def learnt_from(self) -> SaidOfPlanted:
        """Planted items by which it corrects."""
        return self._planted

    @property
    def wrong_is_seen(self) -> bool:
        """Whether any grade is known to be wrong: several of a chunk differ, or one of a planted chunk is wrong.

        Where none is, the shares of wrong grades are those that were taken for likely beforehand, less what so much
        agreement rules out.
        """
        items = [
            one for query in self._queries for cell in (query.pool, *(of for _, of in query.strata)) for one in cell
        ]
        planted = [*((people, people - yes) for people, yes in self._planted.relevant), *self._planted.irrelevant]
        return any(0 < yes < people for people, yes in items) or any(wrong for _, wrong in planted)

    def _beyond(self, random: np.random.Generator, place: int, by_query: Floats, relevant: Floats) -> Floats:
        """Draw the number of relevant items of a stratum, over the queries that each draw takes."""
        sizes = np.array([query.strata[place][0] for query in self._queries], dtype=np.float64)
        graded = by_query.sum(axis=1)
        whole = graded == sizes
        counted: Floats = ((self._weights @ (by_query * whole[:, None])) * relevant).sum(axis=1)
        sizes = np.where(whole, 0.0, sizes)
        if not sizes.sum():
            return counted
        each = sizes / np.maximum(graded, 1)
        worth = sizes.sum() ** 2 / (sizes * each).sum()
        drawn = draw_share(random, (relevant @ (each @ by_query)) / sizes.sum() * worth, worth, low=_LOW[:, 0])
        sampled: Floats = counted + (self._weights @ sizes) * drawn
        return sampled


def _fit(likelihood: Floats, kinds: Sequence[int], counts: Floats, prevalences: Floats) -> Floats:
    """Return by chain the log-likelihood of what was said in each cell, whichever of its items are relevant."""
    share = prevalences[:, :, None]
    mixed = share * likelihood[:, None, _RELEVANT] + (1 - share) * likelihood[:, kinds]
    fit: Floats = (np.log(mixed) * counts).sum(axis=(1, 2))
    return fit


def _draw_relevant(
    random: np.random.Generator, likelihood: Floats, kinds: Sequence[int], counts: Floats, prevalences: Floats
) -> Floats:
    """Draw which share of each thing said in each cell was said of a relevant item."""
    share = prevalences[:, :, None]
    yes, no = share * likelihood[:, None, _RELEVANT], (1 - share) * likelihood[:, kinds]
    of_all = np.broadcast_to(counts.astype(np.int64), yes.shape)
    relevant: Floats = random.binomial(of_all, yes / (yes + no)) / np.maximum(of_all, 1)
    return relevant


def _wrong_shares(shares: Floats, kinds: Sequence[int], counts: Floats) -> Floats:
    """Return by chain the share of wrong grades of irrelevant items, by how many a cell has, and of relevant ones."""
    rates = _rates(shares)
    irrelevant = (1 - shares[:, len(_ERRORS) :]) * counts.sum(axis=1)
    mean = (rates[:, kinds] * irrelevant).sum(axis=1) / np.maximum(irrelevant.sum(axis=1), _TINY)
    return np.stack([mean, rates[:, _RELEVANT]], axis=1)


def _rates(shares: Floats) -> Floats:
    """Return by chain and kind of items the share of wrong grades."""
    obvious, difficult, hard = (shares[:, place : len(_ERRORS) : 3] for place in range(3))
    rates: Floats = (1 - hard) * obvious + hard * difficult
    return rates


def _at_least(wrong: int, count: int, rates: Floats) -> float:
    """Return the probability of so many wrong ones of these, or more, over the draws of their rate."""
    terms = [math.comb(count, number) * rates**number * (1 - rates) ** (count - number) for number in range(wrong)]
    return 1.0 - float(np.sum(terms, axis=0).mean()) if terms else 1.0


Fit = Callable[[Floats, slice], Floats]
"""Gives the log-likelihood of these unknowns, log-odds with one row a chain, for some of the chains."""


def _cool(fit: Fit, priors: Floats, random: np.random.Generator) -> Floats:
    """Draw the unknowns of each chain given its priors and what was said, whose weight grows from none to all.

    The weight grows by as much as leaves half of the chains, which are then drawn by it among those of the same priors,
    and walk on (Del Moral, Doucet, Jasra, "Sequential Monte Carlo samplers", Journal of the Royal Statistical Society B
    2006). So no chain stays where it began, far from all that is likely.
    """
    errors = random.beta(_ERRORS[:, 0], _ERRORS[:, 1], size=(CHAINS, len(_ERRORS)))
    drawn = random.random((CHAINS, priors.shape[1] - len(_ERRORS)))
    is_low = priors[:, len(_ERRORS) :, 0] == 0
    begin = np.concatenate([_log_odds(errors), np.where(is_low, -_FURTHEST * drawn, _log_odds(drawn))], axis=1)
    state, weight = np.clip(begin, -_FURTHEST, _FURTHEST), 0.0
    while weight < 1:
        fits = fit(state, slice(None))
        step = _longest_step(fits, 1 - weight)
        weight = min(weight + step, 1.0)
        for side in (0, 1):
            shares = np.exp(step * (fits[side::2] - fits[side::2].max()))
            places = (np.arange(len(shares)) + random.random()) / len(shares)
            chosen = np.searchsorted(np.cumsum(shares) / shares.sum(), places)
            state[side::2] = state[side::2][np.minimum(chosen, len(shares) - 1)]
        state = _walk(fit, priors, state, _MOVES, random, weight=weight)
    return _walk(fit, priors, state, _ROUNDS, random)


def _longest_step(fits: Floats, most: float) -> float:
    """Return by how much the weight of these fits may grow so that half of the chains of either side are left, or more.

    What is left is counted after Kish.
    """

    def left(step: float) -> float:
        shares = [np.exp(step * (side - side.max())) for side in (fits[0::2], fits[1::2])]
        return min(float(one.sum() ** 2 / (one**2).sum() / len(one)) for one in shares)

    low, high = 0.0, most
    if left(high) >= 1 / 2:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) >= 1 / 2 else (low, middle)
    return high


def _walk(
    fit: Fit, priors: Floats, state: Floats, rounds: int, random: np.random.Generator, *, weight: float = 1.0
) -> Floats:
    """Let chains walk so many rounds by the density of their unknowns, in which what was said has this weight.

    Each half of the chains steps by differences of two of the other half, in some of the unknowns at a time (ter Braak,
    "A Markov chain Monte Carlo version of the genetic algorithm differential evolution", Statistics and Computing 2006;
    Vrugt et al., "Accelerating Markov chain Monte Carlo simulation", 2009). So steps are as long as what is not known,
    and unknowns that can stand for each other move together.
    """
    state, half, size = state.copy(), len(state) // 2, state.shape[1]
    halves = slice(0, half), slice(half, len(state))

    def density(odds: Floats, chains: slice) -> Floats:
        return weight * fit(odds, chains) + _log_prior(odds, priors[chains])

    now = [density(state[mine], mine) for mine in halves]
    for number in range(rounds):
        for place, mine in enumerate(halves):
            others = state[halves[1 - place]]
            one, other = random.integers(len(others), size=(2, len(now[place])))
            moved = random.random((len(one), size)) < random.choice([0.25, 0.5, 1.0], size=(len(one), 1))
            moved[np.arange(len(one)), random.integers(size, size=len(one))] = True
            # A whole difference leads from one mode to another.
            length = 2.38 / np.sqrt(2 * moved.sum(axis=1, keepdims=True)) if number % 5 else 1.0
            step = length * (others[one] - others[other]) + random.normal(0, 1e-3, size=moved.shape)
            there = state[mine] + step * moved
            then = density(there, mine)
            goes = np.log(random.random(len(one))) < then - now[place]
            state[mine] = np.where(goes[:, None], there, state[mine])
            now[place] = np.where(goes, then, now[place])
    return state


def _limits(cells: int, *, flat: int = 1) -> Floats:
    """Return by chain and cell the beta prior of a prevalence: a flat one of a pool, or of what was found of it.

    These are the first ones. Of the others that under which a count ends in the lower, or in the upper, exact limit.
    """
    limits = np.ones((CHAINS, cells, 2))
    limits[_LOW[:, 0], flat:, 0] = 0
    return limits


def _log_prior(odds: Floats, priors: Floats) -> Floats:
    """Return by chain the log density of log-odds whose shares have these beta priors; none lies too far out."""
    shares = _shares(odds)
    found = (priors[:, :, 0] * np.log(shares) + priors[:, :, 1] * np.log1p(-shares)).sum(axis=1)
    return np.where((np.abs(odds) > _FURTHEST).any(axis=1), -np.inf, found)


def _log_odds(shares: Floats) -> Floats:
    odds: Floats = np.log(shares) - np.log1p(-shares)
    return odds


def _shares(odds: Floats) -> Floats:
    shares: Floats = 1 / (1 + np.exp(-np.clip(odds, -_FURTHEST, _FURTHEST)))
    return shares
