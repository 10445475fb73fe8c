"""A `Probe` that asks nobody: its answers are rankings made earlier, of a TREC run, by the keys of the canaries."""

from collections.abc import Iterator, Mapping, Sequence

from app.domain.model import Answer, Outcome, Ranking
from app.domain.probing.retrievers import ProbeContext, ProbeQuery
from app.domain.runs.rankings import decimals_of, round_ranking


class RankingsProbe:
    """Answers with (name, score) lists by key. Where the run is silent nothing was found: that is a measurement."""

    def __init__(self, rankings: Mapping[str, Sequence[tuple[str, float]]]) -> None:
        self._rankings = rankings

    def __call__(self, asking: ProbeContext, asks: Sequence[ProbeQuery]) -> Iterator[list[tuple[int, Answer]]]:
        """Give every answer at once; see `Probe`. What the run calls a document stands as chunk id and as document."""
        decimals = decimals_of(asking.retriever.score_precision)
        yield [(ask.position, _answer(self._rankings.get(ask.key, ())[: asking.k], decimals)) for ask in asks]


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
