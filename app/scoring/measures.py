"""IR measures by name, as papers write them, computed over arrays of many rankings at once.

`rankings` supplies the matches, docs/measures.md has the formulas.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from app.base.values import MAX_GRADE, Value, replace
from app.scoring.rankings import Match, Prepared

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Counts = NDArray[np.int64]


def compute(batch: "Batch", measures: Sequence["Measure"], fetch_k: int) -> Floats:
    """Return the scores of Q rankings by M measures: (Q, M), in [0, 1].

    NaN = undefined: the whole row where nothing is expected, each column cut above `fetch_k`, the number of requested
    hits, and `RECALL_BY` where no judgment has both an id and a text. An empty ranking scores 0 everywhere else. Works
    in blocks, so memory beyond the result does not grow with Q.
    """
    scores = np.full((len(batch.n_relevant), len(measures)), np.nan)
    undefined_names = () if len(batch.twofold) else RECALL_BY
    defined = [
        (column, m)
        for column, m in enumerate(measures)
        if m.name not in undefined_names and (m.k is None or m.k <= fetch_k)
    ]
    cutoffs = sorted({measure.k for _, measure in defined if measure.k is not None})
    for start in range(0, len(scores), _BLOCK):
        rows = slice(start, start + _BLOCK)
        block = _Block(batch, rows, cutoffs)
        tables: dict[str, Floats] = {}
        for column, measure in defined:
            if measure.k is None:
                scores[rows, column] = _WHOLE[measure.name](block)
            else:
                if measure.name not in tables:
                    tables[measure.name] = _CUT[measure.name](block)
                scores[rows, column] = tables[measure.name][:, cutoffs.index(measure.k)]
    scores[batch.n_relevant == 0] = np.nan
    return scores


class Batch(Value):
    """The matches of Q rankings as arrays: (Q, K) over positions, zero beyond a ranking's end. See `Match`."""

    gains: Bytes
    """(Q, K) best grade among the judgments first found here, 0-3."""
    relevant: Bytes
    """(Q, K) 1 where any judgment of grade 1 or better is satisfied."""
    found: Bytes | Counts
    """(Q, K) number of judgments of grade 1 or better first found here."""
    judged: Bytes
    """(Q, K) 1 where any judgment is satisfied."""
    returned: Counts
    """(Q,) hits in the answer."""
    distinct: Counts
    """(Q,) hits in the ranking, after duplicates were dropped."""
    ideal: Bytes
    """(Q, J) grades of at least 1 of each canary's judgments, best first, then zeros."""
    n_relevant: Counts
    """(Q,) number of judgments of grade 1 or better; 0 = the canary's measures are undefined."""
    twofold: Counts
    """(T,) the row of each judgment of grade 1 or better that carries both an id and a text, ascending."""
    ranks_by_id: Counts
    """(T,) the rank of the hit with its id, 0 = not in the ranking."""
    ranks_by_any: Counts
    """(T,) the best rank by any level, 0 = not in the ranking."""

    @classmethod
    def of(cls, matches: Sequence[Match], prepared: Sequence[Prepared], returned: Sequence[int]) -> "Batch":
        """Return the arrays of matches; `prepared` and `returned` (hits before duplicates were dropped) are parallel.

        Raises ValueError if the three differ in length. Callers leave out canaries whose measures are undefined for
        other reasons than their judgments, such as negative ones.
        """
        if not len(matches) == len(prepared) == len(returned):
            raise ValueError("matches, prepared and returned must be parallel")
        grades, distinct = _stack([match.grade for match in matches])
        levels, _ = _stack([match.level for match in matches])
        found = _stack_counts([match.found for match in matches])
        ideal, n_relevant = _stack([one.ideal for one in prepared])
        twofold = [
            (row, match.first_by_id[index] or 0, match.first[index] or 0)
            for row, (match, one) in enumerate(zip(matches, prepared, strict=True))
            if one.twofold
            for index in one.twofold
        ]
        rows, by_id, by_any = np.array(twofold, dtype=np.int64).reshape(-1, 3).T
        return cls(
            gains=grades * (found > 0),
            relevant=(grades > 0).view(np.uint8),
            found=found,
            judged=(levels > 0).view(np.uint8),
            returned=np.array(returned, dtype=np.int64),
            distinct=distinct,
            ideal=ideal,
            n_relevant=n_relevant,
            twofold=rows,
            ranks_by_id=by_id,
            ranks_by_any=by_any,
        )


class _Block:
    """Some rows of a batch, with cached values that several measures share: (B, C) over cut-offs."""

    def __init__(self, batch: Batch, rows: slice, cutoffs: Sequence[int]) -> None:
        self.gains, self.relevant, self.found = batch.gains[rows], batch.relevant[rows], batch.found[rows]
        self.judged, self.ideal = batch.judged[rows], batch.ideal[rows]
        self.returned, self.distinct = batch.returned[rows], batch.distinct[rows]
        self.expected = np.maximum(batch.n_relevant[rows], 1)
        block_rows = slice(*np.searchsorted(batch.twofold, [rows.start, rows.stop]))
        self.twofold = batch.twofold[block_rows] - rows.start
        self.by_id, self.by_any = batch.ranks_by_id[block_rows], batch.ranks_by_any[block_rows]
        self.cutoffs = np.array(cutoffs, dtype=np.int64)
        self.deepest = max(cutoffs, default=0)

    def top(self, values: Floats | Bytes | Counts, *, discounted: bool = False) -> Floats:
        """Sum each row over its first k positions, for each k; weighted by 1 / log2(rank + 1) if discounted."""
        values = values[:, : self.deepest]
        ranks = _ranks(values)
        weights = (ranks[:, None] <= self.cutoffs).astype(np.float64)
        if discounted:
            weights /= np.log2(ranks + 1)[:, None]
        return np.asarray(values, dtype=np.float64) @ weights

    @cached_property
    def relevant_at(self) -> Floats:
        """Relevant hits in the top k."""
        return self.top(self.relevant)

    @cached_property
    def first(self) -> Counts:
        """(B,) rank of the first relevant hit, 0 = none."""
        best = self.relevant.argmax(axis=1)  # 0 also where there is none
        ranks: Counts = (best + 1) * self.relevant[np.arange(len(best)), best]
        return ranks


def _hit(block: _Block) -> Floats:
    return (block.relevant_at > 0).astype(np.float64)


def _precision(block: _Block) -> Floats:
    return block.relevant_at / block.cutoffs


def _recall(block: _Block) -> Floats:
    return block.top(block.found) / block.expected[:, None]


def _f1(block: _Block) -> Floats:
    precision, recall = _precision(block), _recall(block)
    return _ratio(2 * precision * recall, precision + recall)


def _reciprocal_rank(block: _Block) -> Floats:
    return _ratio(np.ones(len(block.first)), block.first)


def _reciprocal_rank_cut(block: _Block) -> Floats:
    return np.where(block.first[:, None] <= block.cutoffs, _reciprocal_rank(block)[:, None], 0.0)


def _average_precision(block: _Block) -> Floats:
    """Return the mean precision at the first matches of the judgments, several at one hit counted each."""
    precision = np.cumsum(block.relevant, axis=1, dtype=np.float64) / _ranks(block.relevant)
    return _ratio((block.found * precision).sum(axis=1), block.expected)


def _ndcg(block: _Block) -> Floats:
    """Järvelin and Kekäläinen (TOIS 2002) as in trec_eval's ndcg_cut: linear gain, discount log2(rank + 1)."""
    return _ratio(block.top(block.gains, discounted=True), block.top(block.ideal, discounted=True))


def _ndcg_exp(block: _Block) -> Floats:
    """Burges et al. (ICML 2005): the same with gain 2^grade - 1."""
    return _ratio(
        block.top(_EXPONENTIAL[block.gains], discounted=True), block.top(_EXPONENTIAL[block.ideal], discounted=True)
    )


def _expected_reciprocal_rank(block: _Block) -> Floats:
    """Chapelle et al. (CIKM 2009): the user stops at each hit with probability (2^grade - 1) / 2^max_grade."""
    stop = (_EXPONENTIAL / 2**MAX_GRADE)[block.gains[:, : block.deepest]]
    arrive = np.cumprod(1 - stop, axis=1)
    stop[:, 1:] *= arrive[:, :-1]
    return block.top(stop / _ranks(stop))


def _judged(block: _Block) -> Floats:
    """As in ir_measures, the divisor is the number of hits in the top k, so that a short answer is not unjudged."""
    return _ratio(block.top(block.judged), np.minimum(block.cutoffs, block.distinct[:, None]))


def _recall_by_id(block: _Block) -> Floats:
    return _share_found(block, block.by_id)


def _recall_by_passage(block: _Block) -> Floats:
    return _share_found(block, block.by_any)


def _share_found(block: _Block, ranks: Counts) -> Floats:
    """Return the share of the judgments with both an id and a text that are found in the top k."""
    shares = np.zeros((len(block.expected), len(block.cutoffs)))
    np.add.at(shares, block.twofold, (ranks[:, None] > 0) & (ranks[:, None] <= block.cutoffs))
    whole = np.bincount(block.twofold, minlength=len(shares))[:, None]
    undefined: Floats = np.full(shares.shape, np.nan)
    return np.divide(shares, whole, out=undefined, where=whole > 0)


def _duplicate_ratio(block: _Block) -> Floats:
    return _ratio(block.returned - block.distinct, block.returned)


def _ratio(part: Floats | Counts, whole: Floats | Counts) -> Floats:
    """Return the quotient; 0 where the divisor is 0."""
    return np.divide(part, whole, out=np.zeros(part.shape), where=whole != 0)


def _ranks(rows: Floats | Bytes | Counts) -> Counts:
    """Return the rank of each position, from 1."""
    return np.arange(1, rows.shape[1] + 1)


def _stack(rows: Sequence[bytes]) -> tuple[Bytes, Counts]:
    """Return byte strings as a zero-padded array at least one wide, and their lengths."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    flat = np.frombuffer(b"".join(rows), dtype=np.uint8)
    width = max(1, int(lengths.max(initial=0)))
    if len(flat) == width * len(rows):
        return flat.reshape(len(rows), width), lengths
    stacked = np.zeros((len(rows), width), dtype=np.uint8)
    stacked[np.arange(width) < lengths[:, None]] = flat
    return stacked, lengths


def _stack_counts(rows: Sequence[bytes | tuple[int, ...]]) -> Bytes | Counts:
    """Return counts as such an array, wider than a byte where one of them is."""
    narrow = [row for row in rows if isinstance(row, bytes)]
    if len(narrow) == len(rows):
        return _stack(narrow)[0]
    stacked = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for row, counts in zip(stacked, rows, strict=True):
        row[: len(counts)] = list(counts)
    return stacked


_BLOCK = 4096
_EXPONENTIAL = np.array([2.0**grade - 1 for grade in range(MAX_GRADE + 1)])

_CUT: Mapping[str, Callable[[_Block], Floats]] = {
    "Hit": _hit,
    "P": _precision,
    "R": _recall,
    "F1": _f1,
    "RR": _reciprocal_rank_cut,
    "NDCG": _ndcg,
    "NDCG_exp": _ndcg_exp,
    "ERR": _expected_reciprocal_rank,
    "Judged": _judged,
    "R_id": _recall_by_id,
    "R_passage": _recall_by_passage,
}
"""Measures of the top k."""
_WHOLE: Mapping[str, Callable[[_Block], Floats]] = {
    "RR": _reciprocal_rank,
    "AP": _average_precision,
    "duplicate_ratio": _duplicate_ratio,
}
"""Measures of the whole ranking."""
MEASURES_VERSION = "2"
"""2: numbers must agree where a passage is recognised by its letters, and signs that belong to numbers count."""
CUTOFFS = (1, 3, 5, 10, 20)
RECALL_BY: Mapping[str, str] = MappingProxyType({"R_id": "id", "R_passage": "passage"})
"""The two recalls whose difference shows chunks re-indexed under other ids, with the level each counts."""


class Measure(Value, kw_only=False):
    """A measure as papers write it: `Measure("NDCG", 10)` is `NDCG@10`. Raises ValueError for an unknown one."""

    name: str
    k: int | None = None
    """The cut-off, None = the whole ranking."""

    def __post_init__(self) -> None:
        if self.name not in _CUT and self.name not in _WHOLE:
            raise ValueError(f"unknown measure {self.name!r}; there are {', '.join(_SHAPES)}")
        if self.k is None and self.name not in _WHOLE:
            raise ValueError(f"{self.name} needs a cut-off, for example {self.name}@10")
        if self.k is not None and self.name not in _CUT:
            raise ValueError(f"{self.name} takes no cut-off")
        if self.k is not None and self.k < 1:
            raise ValueError(f"a cut-off is at least 1, not {self.k}")

    def __str__(self) -> str:
        return self.name if self.k is None else f"{self.name}@{self.k}"


def measures_for(cutoffs: Iterable[int]) -> tuple[Measure, ...]:
    """Return all measures of a canary: each measure of the top k at each cut-off, then those of the whole ranking."""
    cut = [Measure(name, k) for k in sorted(set(cutoffs)) for name in _CUT]
    return (*cut, *(Measure(name) for name in _WHOLE))


def mean_name(measure: Measure) -> str:
    """Return the name of the mean over canaries: MRR for RR, MAP for AP, otherwise the name of the measure itself."""
    return str(measure) if measure.name not in _MEANS else str(measure).replace(measure.name, _MEANS[measure.name])


def parse_measure(text: str) -> Measure:
    """Return a measure from our spelling, that of ir_measures (`nDCG@10`, `Success@5`) or of trec_eval (`ndcg_cut_10`).

    Names of means (`MRR`, `MAP`) and those of ranx are accepted too; case does not matter. Raises ValueError with
    suggestions.
    """
    parts = _SPELLED.fullmatch(text.strip().casefold())
    spelled, k = (parts["name"], parts["k"]) if parts else ("", None)
    if spelled in _SPELLINGS:
        return Measure(_SPELLINGS[spelled], int(k) if k else None)
    near = dict.fromkeys(_SPELLINGS[one] for one in difflib.get_close_matches(spelled, _SPELLINGS, n=3))
    guesses = [f"{name}@{k or 10}" if name in _CUT and (k or name not in _WHOLE) else name for name in near]
    hint = f"did you mean {' or '.join(guesses)}?" if guesses else f"there are {', '.join(_SHAPES)}"
    raise ValueError(f"unknown measure {text!r}; {hint}")


_SHAPES = (*(f"{name}@k" for name in _CUT), *_WHOLE)
_MEANS = {"RR": "MRR", "AP": "MAP"}

_SPELLED = re.compile(r"(?P<name>.+?)(?:[@_.](?P<k>[0-9]+))?")
_SPELLINGS: Mapping[str, str] = {
    **{name.casefold(): name for name in (*_CUT, *_WHOLE)},
    **{mean.casefold(): name for name, mean in _MEANS.items()},
    "success": "Hit",
    "hit_rate": "Hit",
    "precision": "P",
    "recall": "R",
    "recip_rank": "RR",
    "ndcg_cut": "NDCG",
    "ndcg(dcg='exp-log2')": "NDCG_exp",
    "ndcg_burges": "NDCG_exp",
}


def scores_at_depth(
    matches: Sequence[Match], prepared: Sequence[Prepared], *, cutoffs: Sequence[int], depth: int
) -> Mapping[str, Floats]:
    """Return a column of scores for each measure by its name, as if only `depth` hits had been asked for.

    Beside the measures of the top k at these cut-offs there are `RR@depth` and `AP@depth`. Cut-offs beyond the depth
    are left out. `matches` and `prepared` are parallel. Raises ValueError if they are not.
    """
    batch = cut_batch(Batch.of(matches, prepared, [len(match) for match in matches]), depth)
    wanted = measures_for(k for k in {*cutoffs, depth} if k <= depth)
    named = {str(measure): measure for measure in wanted if measure.k is not None}
    named |= {f"{name}@{depth}": Measure(name) for name in ("RR", "AP")}
    return dict(zip(named, compute(batch, tuple(named.values()), depth).T, strict=True))


def cut_batch(batch: Batch, depth: int) -> Batch:
    """Return the matches of only the first `depth` positions; ranks beyond it count as not found."""
    columns = slice(0, depth)
    return replace(
        batch,
        gains=batch.gains[:, columns],
        relevant=batch.relevant[:, columns],
        found=batch.found[:, columns],
        judged=batch.judged[:, columns],
        returned=batch.returned.clip(max=depth),
        distinct=batch.distinct.clip(max=depth),
        ranks_by_id=batch.ranks_by_id * (batch.ranks_by_id <= depth),
        ranks_by_any=batch.ranks_by_any * (batch.ranks_by_any <= depth),
    )
