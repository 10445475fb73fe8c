"""Small retrievers of tests, asked through the probe of the service."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.base.addresses import retriever_policy
from app.base.values import EMPTY, Answer, replace
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import (
    Probe,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scorer,
    ScorerKind,
)


def retriever_at(url: str, **changes: Any) -> Retriever:
    """Describe a retriever that answers with `results`, each with an `id`; what fails is not asked again."""
    plain = Retriever(
        slug="docs",
        url=url,
        json={"query": "{{ query }}"},
        response=ResponseMapping(hits="results", id="id"),
        scorer=Scorer(kind=ScorerKind.JUDGED),
        retries=0,
    )
    return replace(plain, **changes)


def answers_of(
    retriever: Retriever,
    *queries: str,
    probe: Probe | None = None,
    variables: Sequence[Mapping[str, str]] = (),
    **context: Any,
) -> list[Answer]:
    """Send these queries in one run, each with its variables; gives the answer to each, which must come once."""
    values = [*variables, *([EMPTY] * (len(queries) - len(variables)))]
    asks = [
        ProbeQuery(position=position, query=query, vars=own)
        for position, (query, own) in enumerate(zip(queries, values, strict=True))
    ]
    asking = ProbeContext(**{"retriever": retriever, "k": 5, "run_id": "run-7", **context})
    batches = (probe or RetrieverProbe(retriever_policy(), "coalmine/1.0"))(asking, asks)
    pairs = sorted((pair for batch in batches for pair in batch), key=lambda pair: pair[0])
    assert [position for position, _ in pairs] == list(range(len(asks)))
    return [answer for _, answer in pairs]
