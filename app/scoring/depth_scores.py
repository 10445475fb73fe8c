"""Scores of stored matches cut at a depth, as comparisons of unequally deep runs need them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.scoring.matching import Match, Prepared
from app.scoring.measure_arrays import Batch, Floats, compute
from app.scoring.measures import Measure, measures_for


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
