"""Precision: whether scores separate relevant hits from others."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.texts import percent_text
from app.diagnosis.quality.domain.evidence import EXAMPLES, Answered, Example, Histogram, Mark, Section, unknown
from app.retrievers.domain.retrievers import Scorer, ScorerKind, score_relevance

NAME: Final = "precision"
LEAST_SEPARATION: Final = 0.8
"""The probability that a relevant hit scores above an irrelevant one; one half is chance."""
FEWEST: Final = 5
"""Of each kind of hits; fewer have no distribution."""
_BINS: Final = 20
_QUANTILES = {"p10": 0.1, "median": 0.5, "p90": 0.9}

Floats = NDArray[np.float64]


def precision(answered: Sequence[Answered], scorer: Scorer) -> Section:
    """Section on the scores of relevant hits and of all others, of the canaries that expect something.

    Scores are mapped to relevance where the retriever's scale is declared, else taken as they are, higher being
    better. Others are those judged irrelevant and unjudged ones, some of which may be relevant. Separation is the area
    under the ROC curve (Mann and Whitney 1947: the probability that a relevant hit scores above another,
    ties counting half), over all hits together, as a threshold on scores needs it, and within canaries, as ranking
    does; overlap is the share of others that score no lower than the lowest tenth of the relevant ones.
    """
    relevant: list[float] = []
    others: list[float] = []
    within: list[float] = []
    above: list[tuple[float, Example]] = []
    for one in answered:
        if not one.canary.expects:
            continue
        scores = [_scaled(scorer, score) for score in one.ranking.scores]
        hits = one.match.relevant
        mine = [score for score, hit in zip(scores, hits, strict=True) if hit and score is not None]
        rest = [
            (score, place)
            for place, (score, hit) in enumerate(zip(scores, hits, strict=True))
            if not hit and score is not None
        ]
        relevant += mine
        others += [score for score, _ in rest]
        if not mine or not rest:
            continue
        within.append(separation(np.array(mine), np.array([score for score, _ in rest])))
        best, place = max(rest, key=lambda hit: (hit[0], -hit[1]))
        if best > max(mine):
            note = f"an irrelevant or unjudged hit scores {best:.3g}, the best relevant one {max(mine):.3g}"
            above.append((best - max(mine), Example(note=note, canary=one.canary.key, chunk=one.ranking.ids[place])))
    counts = {"relevant_hits": len(relevant), "other_hits": len(others)}
    if not relevant and not others:
        return unknown(NAME, "hits come without scores", **counts)
    if min(len(relevant), len(others)) < FEWEST:
        kind = "relevant" if len(relevant) < FEWEST else "other"
        return unknown(NAME, f"there are fewer than {FEWEST} {kind} hits with a score to compare", **counts)
    good, bad = np.array(relevant), np.array(others)
    auc = separation(good, bad)
    overlap = float((bad >= np.quantile(good, 0.1)).mean())
    separated = auc >= LEAST_SEPARATION
    note = f"a relevant hit scores above another one in {percent_text(auc)} of cases"
    return Section(
        name=NAME,
        mark=Mark.GOOD if separated else Mark.REVIEW,
        reason=f"{note}, and {percent_text(overlap)} of the others score as relevant ones do",
        numbers={
            **counts,
            "separation": auc,
            "separation_within_canaries": float(np.mean(within)) if within else None,
            "overlap": overlap,
            **{f"relevant_{name}": float(np.quantile(good, at)) for name, at in _QUANTILES.items()},
            **{f"other_{name}": float(np.quantile(bad, at)) for name, at in _QUANTILES.items()},
        },
        examples=[example for _, example in sorted(above, key=lambda one: -one[0])[:EXAMPLES]],
        advice=None if separated else _advice(auc),
        histogram=_histogram(good, bad),
    )


def separation(relevant: Floats, others: Floats) -> float:
    """Compute the probability that one of `relevant` exceeds one of `others`, ties counting half; neither is empty."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, relevant, side="left")
    upto = np.searchsorted(ordered, relevant, side="right")
    return float((below + upto).sum() / (2 * len(relevant) * len(others)))


def _histogram(relevant: Floats, others: Floats) -> Histogram:
    """Count both kinds in bins of equal width, from the lowest score there is to the highest."""
    scores = np.concatenate([relevant, others])
    edges = np.histogram_bin_edges(scores, bins=_BINS)
    counts = {"relevant": np.histogram(relevant, edges)[0], "other": np.histogram(others, edges)[0]}
    return Histogram(
        edges=tuple(edges.tolist()), counts={kind: tuple(values.tolist()) for kind, values in counts.items()}
    )


def _scaled(scorer: Scorer, score: float | None) -> float | None:
    if score is None or scorer.kind is not ScorerKind.SCORE:
        return score
    return score_relevance(scorer, score)


def _advice(auc: float) -> str:
    if auc < 0.5:  # noqa: PLR2004 - chance
        return "See whether scores are distances, of which lower ones are better, and declare their scale."
    return "Set no threshold on these scores; a reranker, or judgments of the unjudged hits, may separate them."
