"""The checklist of retrieval quality but for texts: power of the suite, recall, precision, embeddings, slow drift.

Each point is one function that returns a `QualitySection`. These are rules of thumb, not measurements of harm; a point
that is not measured is unknown, never good. The points about texts are in `quality_texts`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.texts import counted, percent_text
from app.base.values import EMPTY, Canary, EmbedderChange, Judgment, Outcome, Ranking, Value
from app.catalog.domain import POOLED_FRAME, SELF_JUDGED, PooledNote, judgment_lines, pooled_at, pooled_text
from app.diagnosis.views import Mark, QualityExample, QualityHistogram, QualitySection
from app.retrievers.domain.probes import StoredFinding
from app.retrievers.domain.retrievers import Scorer, ScorerKind, score_relevance
from app.scoring.rankings import Match
from app.scoring.suites import FEWEST_PER_TOPIC, TARGET_FRACTION, SuitePower, canaries_for

EXAMPLES: Final = 5
"""Examples per fault."""
_EXPECTED = 20
SHOWN: Final = 160
"""Characters of a text that an example shows."""


class DistinctChunk(Value):
    """A distinct retrieved chunk."""

    id: str
    document: str | None
    text: str | None
    """None = answers are mapped without texts."""


class Answered(Value):
    """A canary with its last answer."""

    canary: Canary
    ranking: Ranking
    match: Match

    @property
    def expected(self) -> list[tuple[int, Judgment]]:
        """Judgments of grade 1 or better with their places; of very many the first 20."""
        relevant = ((place, one) for place, one in enumerate(self.canary.judgments) if one.grade >= 1)
        return list(islice(relevant, _EXPECTED))


def point(
    name: str,
    mark: Mark,
    reason: str,
    *,
    numbers: Mapping[str, float | int | None],
    groups: Mapping[str, Mapping[str, float | int | None]] = EMPTY,
    examples: Iterable[QualityExample] = (),
    advice: str | None = None,
    histogram: QualityHistogram | None = None,
) -> QualitySection:
    """Return a point of the checklist: its mark with the reason, a sentence without its full stop and retrieved text.

    `groups`: the numbers by category, where there are any; `examples`: the worst ones; `advice`: what to do, where
    there is anything.
    """
    return {
        "name": name,
        "verdict": mark,
        "reason": reason,
        "numbers": {**numbers},
        "groups": {group: {**part} for group, part in groups.items()},
        "examples": [*examples],
        "advice": advice,
        "histogram": histogram,
    }


def example(
    told: str, *, canary: str | None = None, chunk: str | None = None, text: str | None = None
) -> QualityExample:
    """Return an example; canary, chunk and the beginning of its text are untrusted, and `told` never quotes them."""
    return {"canary": canary, "chunk": chunk, "told": told, "text": text}


def unknown(name: str, reason: str, **numbers: float | None) -> QualitySection:
    """Return a point that is not measured, with the reason."""
    return point(name, Mark.UNKNOWN, reason, numbers=numbers)


def share(part: int, whole: int) -> float | None:
    """Share in [0, 1]; None where the whole is 0."""
    return part / whole if whole else None


def chunks_of(answered: Sequence[Answered]) -> list[DistinctChunk]:
    """List the distinct retrieved chunks, in order of first retrieval."""
    chunks: dict[tuple[str, str | None, str | None], DistinctChunk] = {}
    for one in answered:
        ranking = one.ranking
        for chunk in zip(ranking.ids, ranking.documents, ranking.texts, strict=True):
            if chunk not in chunks:
                chunks[chunk] = DistinctChunk(id=chunk[0], document=chunk[1], text=chunk[2])
    return list(chunks.values())


def spread_over(count: int, most: int) -> list[int]:
    """At most `most` places evenly spaced over `count`, always the same ones."""
    if count <= most:
        return list(range(count))
    return [place * count // most for place in range(most)]


SUITE: Final = "suite"


def suite_power(power: SuitePower) -> QualitySection:
    """Section on the smallest loss that hits a canary; good at 5 % of an index, and three canaries per topic."""
    fraction, thin = power.smallest_fraction, power.thin_topics
    numbers = {
        "expecting_canaries": power.canaries,
        "smallest_fraction": fraction,
        "failing_fraction": power.failing_fraction,
        "topics": len(power.topics),
        "thin_topics": len(thin),
    }
    if fraction is None:
        why = f"{power.different} canaries expect something of their own; fewer than {FEWEST_PER_TOPIC} see no damage"
        return unknown(SUITE, why, **numbers)
    good = fraction <= TARGET_FRACTION and not thin
    note = power.sentence
    if power.topics:
        note += f"; {len(thin)} of {len(power.topics)} topics have fewer than {FEWEST_PER_TOPIC} canaries"
    advice = (
        f"Add canaries: {canaries_for(TARGET_FRACTION)} see damage to {TARGET_FRACTION:.0%}, 3 are few for a topic."
    )
    return point(
        SUITE,
        Mark.GOOD if good else Mark.REVIEW,
        note,
        numbers=numbers,
        groups={f"{topic.kind} {topic.name}": {"canaries": topic.canaries} for topic in thin[:20]},
        advice=None if good else advice,
    )


RECALL: Final = "recall"
LEAST_FOUND: Final = 0.9
"""Of the canaries that expect something, the share that should find it in the top k."""
_DEPTHS = (1, 3, 5, 10)
_MISSING = "See whether the missing chunks are in the index at all, and whether their words are those of the queries."
_OTHERS = "Have a pool of several retrievers judged, so that what this one misses counts."
_DEEP = "Ask for more hits and rerank them: what is expected is found, but below the top k."


def recall(
    answered: Sequence[Answered],
    *,
    k: int,
    fetch_k: int,
    self_judged: bool = False,
    judged_before_edit: bool = False,
    judged_by: Sequence[str] = (),
    pooled: Sequence[PooledNote] = (),
) -> QualitySection:
    """Count at which depth the first expected chunk of each canary is found, by category too.

    Good where nine in ten canaries find it in the top k. Depths beyond `fetch_k` are not asked for, so unknown; what
    is not found up to there may still be in the index. `self_judged`: this retriever itself brought up much of what is
    expected, so that it finds it, and that it does is no sign of quality: unknown in the place of good.
    `judged_before_edit`: it was edited since. `judged_by`: others of which it is so. `pooled` recall at k stands
    beside it.
    """
    expecting = [one for one in answered if one.canary.expects]
    if not expecting:
        return unknown(RECALL, "no canary that expects something has been answered", canaries=0)
    depths = sorted({depth for depth in (*_DEPTHS, k, fetch_k) if depth <= fetch_k})
    numbers = _numbers(expecting, depths)
    categories: dict[str, list[Answered]] = {}
    for one in expecting:
        categories.setdefault(str(one.canary.category), []).append(one)
    lost = [one for one in expecting if one.match.first_relevant is None]
    deep = [one for one in expecting if (one.match.first_relevant or 0) > k]
    found = len(expecting) - len(lost) - len(deep)
    coverage = found / len(expecting)
    sentences = [f"{found:,} of {counted(len(expecting), 'question')} find their document in the top {k}"]
    if deep:
        sentences.append(f"{len(deep):,} below it")
    if lost:
        sentences.append(f"{len(lost):,} not in the top {fetch_k}")
    if self_judged:
        itself, missed = "itself", "what it misses was not judged"
        if judged_before_edit:
            itself, missed = "as it was before it was edited", "what it finds by now may not have been judged"
        sentences.append(f"{SELF_JUDGED}: this retriever {itself} brought up much of what is expected, and {missed}")
    sentences += judgment_lines("this retriever", self_judged=False, others=judged_by)
    name = f"pooled recall@{k}"
    sentences += [
        f"{name} {pooled_text(one)}, by task {one['task']} ({POOLED_FRAME})" for one in pooled_at(name, pooled)
    ]
    good = coverage >= LEAST_FOUND
    advice = _OTHERS if good else _MISSING if len(lost) >= len(deep) else _DEEP
    return point(
        RECALL,
        Mark.REVIEW if not good else Mark.UNKNOWN if self_judged else Mark.GOOD,
        ", ".join(sentences),
        numbers=numbers,
        groups={name: _numbers(part, depths) for name, part in sorted(categories.items()) if len(categories) > 1},
        examples=[
            *[example(f"not in the top {fetch_k}", canary=one.canary.key) for one in lost[:EXAMPLES]],
            *[
                example(f"first found at rank {one.match.first_relevant}", canary=one.canary.key)
                for one in sorted(deep, key=lambda one: -(one.match.first_relevant or 0))[:EXAMPLES]
            ],
        ],
        advice=None if good and not self_judged else advice,
    )


def _numbers(expecting: Sequence[Answered], depths: Sequence[int]) -> dict[str, float | int | None]:
    ranks = [one.match.first_relevant for one in expecting]
    shares = {f"found@{depth}": sum(rank is not None and rank <= depth for rank in ranks) for depth in depths}
    return {
        "canaries": len(expecting),
        **{name: count / len(expecting) for name, count in shares.items()},
        "not_found": ranks.count(None) / len(expecting),
    }


PRECISION: Final = "precision"
LEAST_SEPARATION: Final = 0.8
"""The probability that a relevant hit scores above an irrelevant one; one half is chance."""
FEWEST: Final = 5
"""Of each kind of hits; fewer have no distribution."""
_BINS: Final = 20
_DIGITS: Final = 6
"""Of its edges."""
_QUANTILES = {"p10": 0.1, "median": 0.5, "p90": 0.9}

Floats = NDArray[np.float64]


def precision(answered: Sequence[Answered], scorer: Scorer) -> QualitySection:
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
    above: list[tuple[float, QualityExample]] = []
    for one in answered:
        if not one.canary.expects:
            continue
        scores = [
            score if score is None or scorer.kind is not ScorerKind.SCORE else score_relevance(scorer, score)
            for score in one.ranking.scores
        ]
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
            above.append((best - max(mine), example(note, canary=one.canary.key, chunk=one.ranking.ids[place])))
    counts = {"relevant_hits": len(relevant), "other_hits": len(others)}
    if not relevant and not others:
        return unknown(PRECISION, "hits come without scores", **counts)
    if min(len(relevant), len(others)) < FEWEST:
        kind = "relevant" if len(relevant) < FEWEST else "other"
        return unknown(PRECISION, f"there are fewer than {FEWEST} {kind} hits with a score to compare", **counts)
    good, bad = np.array(relevant), np.array(others)
    auc = separation(good, bad)
    overlap = float((bad >= np.quantile(good, 0.1)).mean())
    separated = auc >= LEAST_SEPARATION
    note = f"a relevant hit scores above another one in {percent_text(auc)} of cases"
    return point(
        PRECISION,
        Mark.GOOD if separated else Mark.REVIEW,
        f"{note}, and {percent_text(overlap)} of the others score as relevant ones do",
        numbers={
            **counts,
            "separation": auc,
            "separation_within_canaries": float(np.mean(within)) if within else None,
            "overlap": overlap,
            **{f"relevant_{name}": float(np.quantile(good, at)) for name, at in _QUANTILES.items()},
            **{f"other_{name}": float(np.quantile(bad, at)) for name, at in _QUANTILES.items()},
        },
        examples=[one for _, one in sorted(above, key=lambda pair: -pair[0])[:EXAMPLES]],
        advice=None if separated else _advice(auc),
        histogram=_histogram(good, bad),
    )


def separation(relevant: Floats, others: Floats) -> float:
    """Compute the probability that one of `relevant` exceeds one of `others`, ties counting half; neither is empty."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, relevant, side="left")
    upto = np.searchsorted(ordered, relevant, side="right")
    return float((below + upto).sum() / (2 * len(relevant) * len(others)))


def _histogram(relevant: Floats, others: Floats) -> QualityHistogram:
    """Count both kinds in bins of equal width, from the lowest score there is to the highest."""
    scores = np.concatenate([relevant, others])
    edges = np.histogram_bin_edges(scores, bins=_BINS)
    counts = {"relevant": np.histogram(relevant, edges)[0], "other": np.histogram(others, edges)[0]}
    return {
        "edges": [round(edge, _DIGITS) for edge in edges.tolist()],
        "counts": {kind: values.tolist() for kind, values in counts.items()},
    }


def _advice(auc: float) -> str:
    if auc < 0.5:  # noqa: PLR2004 - chance
        return "See whether scores are distances, of which lower ones are better, and declare their scale."
    return "Set no threshold on these scores; a reranker, or judgments of the unjudged hits, may separate them."


EMBEDDING: Final = "embedding_quality"
NARROW: Final = 0.1
"""Least difference between mean similar and mean dissimilar pairs that suffices for ranking."""
_SAME_MODEL = {EmbedderChange.SAME, EmbedderChange.DRIFTED}


def embedding_quality(finding: StoredFinding | None) -> QualitySection:
    """Section on the embedder's finding of the newest run: `outcome, kind, reason, pairs`.

    Good where the model is the one it was, and every similar pair is closer than every dissimilar one, by more than a
    cosine of 0.1 on average. None = no embedder was asked.
    """
    if finding is None:
        return unknown(EMBEDDING, "the newest run asked no embedder: where the retriever has one, it is not known here")
    if finding["outcome"] != Outcome.OK or not finding["pairs"]:
        return unknown(EMBEDDING, "the embedder did not answer in the newest run")
    similar = sorted((pair["cosine"], pair["key"]) for pair in finding["pairs"] if pair["similar"])
    dissimilar = sorted((pair["cosine"], pair["key"]) for pair in finding["pairs"] if not pair["similar"])
    if not similar or not dissimilar:
        return unknown(EMBEDDING, "the embedder's canaries are not both similar and dissimilar pairs")
    gap = _mean(similar) - _mean(dissimilar)
    confused = [one for one in dissimilar[::-1] if one[0] >= similar[0][0]]
    numbers: dict[str, float | int | None] = {
        "similar_pairs": len(similar),
        "dissimilar_pairs": len(dissimilar),
        "similar_mean_cosine": _mean(similar),
        "similar_lowest_cosine": similar[0][0],
        "dissimilar_mean_cosine": _mean(dissimilar),
        "dissimilar_highest_cosine": dissimilar[-1][0],
        "separation": gap,
    }
    examples = [
        example(f"a dissimilar pair with cosine {cosine:.2f}, the least similar has {similar[0][0]:.2f}", canary=key)
        for cosine, key in confused
    ]
    reason, advice = _judged(finding["kind"], gap, confused=len(confused))
    mark = Mark.GOOD if advice is None else Mark.REVIEW
    return point(EMBEDDING, mark, reason, numbers=numbers, examples=examples, advice=advice)


def _judged(kind: EmbedderChange | None, gap: float, *, confused: int) -> tuple[str, str | None]:
    if kind not in _SAME_MODEL:
        note = f"the embedder is not the one it was ({kind})"
        return note, "Embed queries and documents with one model: bring the old one back, or embed the documents again."
    if confused:
        note = "a dissimilar pair is closer than a similar one"
        return note, "Try an embedder that knows your language and domain, or the prefixes that this one expects."
    if gap <= NARROW:
        note = f"similar pairs are closer than dissimilar ones by a cosine of only {gap:.2f}"
        return note, "Check pooling, prefixes and normalisation: nearly equal vectors leave little to rank by."
    return f"similar pairs are closer than dissimilar ones by a cosine of {gap:.2f}", None


def _mean(pairs: list[tuple[float, str]]) -> float:
    return sum(cosine for cosine, _ in pairs) / len(pairs)


SLOW_DRIFT: Final = "slow_drift"
DAYS: Final = 30
FEWEST_DAYS: Final = 5
DECLINE: Final = 0.02
"""Least significant decline over the evaluated days, by the slope, that is reported."""
_NINETY_PERCENT = 1.645
_AGO = (7, 30)
_NEAR = 1.5
"""Days: largest distance of a value from its nominal day."""


class Trend(Value):
    """The slope of daily means, with its 90 % interval."""

    slope: float
    """By day."""
    low: float
    high: float


def slow_drift(series: Mapping[str, Sequence[tuple[float, float]]], *, changed: str | None = None) -> QualitySection:
    """Section on daily means of measures by name, as (day, mean) in order of days; the last day is now.

    Reported is a measure whose slope amounts to a decline of 0.02 and more over the days there are and is below
    zero within 90 %. Fewer than five days of a measure are no trend. `changed`: a clause on what makes the days
    incomparable: then a decline may be none of the retriever's.
    """
    numbers: dict[str, float | int | None] = {}
    declines: list[str] = []
    changes: list[str] = []
    for name, points in series.items():
        days, means = (
            (np.array(column, dtype=np.float64) for column in zip(*points, strict=True)) if points else (_NONE, _NONE)
        )
        numbers |= _trend_numbers(name, days, means)
        if len(days) < FEWEST_DAYS:
            continue
        slope = theil_sen(days, means)
        span = float(days[-1] - days[0])
        numbers |= {
            f"{name} slope per day": slope.slope,
            f"{name} slope low": slope.low,
            f"{name} slope high": slope.high,
        }
        changes.append(f"{name} moved by {slope.slope * span:+.3f} in {span:.0f} days")
        if slope.slope * span <= -DECLINE and slope.high < 0:
            declines.append(name)
    if not changes:
        return unknown(SLOW_DRIFT, f"there are fewer than {FEWEST_DAYS} days to see a trend in", **numbers)
    suffix = f"; but {changed}" if changed else ""
    return point(
        SLOW_DRIFT,
        Mark.REVIEW if declines else Mark.GOOD,
        f"{', '.join(changes)}, by the slope of daily means{suffix}",
        numbers=numbers,
        advice=f"Compare with a pinned baseline: a moving one learns a decline of {' and '.join(declines)} as normal."
        if declines
        else None,
    )


def theil_sen(days: Floats, means: Floats) -> Trend:
    """Fit the median of all pairwise slopes (Theil 1950, Sen 1968), with Sen's interval of 90 % about it.

    `days` are distinct and at least two. One wild day in four moves it little.
    """
    one, other = np.triu_indices(len(days), 1)
    slopes = np.sort((means[other] - means[one]) / (days[other] - days[one]))
    n, pairs = len(days), len(slopes)
    reach = _NINETY_PERCENT * float(np.sqrt(n * (n - 1) * (2 * n + 5) / 18))
    low = max(0, int(np.floor((pairs - reach) / 2)) - 1)
    high = min(pairs - 1, int(np.ceil((pairs + reach) / 2)))
    return Trend(slope=float(np.median(slopes)), low=float(slopes[low]), high=float(slopes[high]))


def _trend_numbers(name: str, days: Floats, means: Floats) -> dict[str, float | int | None]:
    numbers: dict[str, float | int | None] = {
        f"{name} days": len(days),
        f"{name} now": float(means[-1]) if len(days) else None,
    }
    for ago in _AGO:
        value = None
        if len(days):
            near = int(np.abs(days - (days[-1] - ago)).argmin())
            value = float(means[near]) if abs(days[near] - (days[-1] - ago)) <= _NEAR else None
        numbers[f"{name} {ago} days ago"] = value
    return numbers


_NONE: Final = np.zeros(0)
