"""A `Probe` that sends nothing: its answers are the rankings of a TREC run, by the keys of the canaries."""

from collections.abc import Iterator, Mapping, Sequence

from app.base.values import Answer, Outcome, Ranking
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from app.scoring.rankings import decimals_of, round_ranking


class RankingsProbe:
    """Answers with (name, score) lists by key. A key without a list found nothing: that is a measurement."""

    def __init__(self, rankings: Mapping[str, Sequence[tuple[str, float]]]) -> None:
        self._rankings = rankings

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[list[tuple[int, Answer]]]:
        """Yield every answer at once; see `Probe`. A document of the run is chunk id and document here."""
        decimals = decimals_of(context.retriever.score_precision)
        yield [(item.position, _answer(self._rankings.get(item.key, ())[: context.k], decimals)) for item in queries]


def _answer(hits: Sequence[tuple[str, float]], decimals: int) -> Answer:
    names = tuple([name for name, _ in hits])
    ranking = Ranking(
        ids=names,
        documents=names,
        texts=(None,) * len(names),
        scores=tuple([score for _, score in hits]),
        returned=len(names),
    )
    return Answer(outcome=Outcome.OK, latency_seconds=0.0, ranking=round_ranking(ranking, decimals))
