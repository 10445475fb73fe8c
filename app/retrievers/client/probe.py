"""The real `Probe`: one client per dialect, with the embedder before it and the scorer behind it."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import Protocol, TypeVar

from app.base.addresses import AddressPolicy, OAuth2
from app.base.errors import InvalidInputError, Problem
from app.base.net.limits import Limits
from app.base.net.transfer import Response
from app.base.values import EMPTY, Answer, Outcome, Step
from app.retrievers.client.credentials import EndpointClient, Keyring
from app.retrievers.client.embeddings import Embeddings, RelevanceScorer, ScorerBreaker
from app.retrievers.client.http import Answers, HttpProbe, Vectors, read_answer
from app.retrievers.client.mcp_probe import McpProbe
from app.retrievers.client.requests import compile_reader, needs_vector
from app.retrievers.domain.probes import url_address
from app.retrievers.domain.retrievers import Dialect, Embedder, ProbeContext, ProbeQuery, Retriever, ScorerKind
from app.scoring.rankings import decimals_of, round_ranking

EMBEDDING_BATCH = 256


ResultT = TypeVar("ResultT")


class DialectProbe(Protocol):
    """Probes retrievers of one dialect; `vectors` are those of the queries, where a retriever takes them."""

    def __call__(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors = EMPTY
    ) -> Iterator[Answers]:
        """Send every query; see `Probe`."""
        ...


class _LazySqlProbe:
    """Probes PostgreSQL; psycopg, 9 MB, is loaded with the first retriever that is one."""

    def __init__(self, policy: AddressPolicy, limits: Limits) -> None:
        self._policy = policy
        self._limits = limits

    def __call__(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors = EMPTY
    ) -> Iterator[Answers]:
        """Send every query; see `Probe`."""
        return self._probe(context, queries, vectors)

    @cached_property
    def _probe(self) -> DialectProbe:
        from app.retrievers.client.sql import SqlProbe  # noqa: PLC0415 - as the class says

        return SqlProbe(self._policy, limits=self._limits)


class RetrieverProbe:
    """Probes any retriever. `user_agent` names the program to all of them.

    The limits of a retriever hold over everything that queries it by this probe, those of embedders and rerankers
    too; a process has one.
    """

    def __init__(self, policy: AddressPolicy, user_agent: str) -> None:
        keyring = Keyring(policy, user_agent)
        limits = Limits()
        self.services = EndpointClient(policy=policy, keyring=keyring, user_agent=user_agent, limits=limits)
        """Asks other services beside retrievers, with the same limits and credentials."""
        self.embed = Embeddings(policy, keyring, user_agent, limits=limits)
        self._relevance = RelevanceScorer(policy, keyring, self.embed, user_agent, limits=limits)
        self._dialects: dict[Dialect, DialectProbe] = {
            Dialect.HTTP: HttpProbe(policy, keyring, user_agent, limits=limits),
            Dialect.SQL: _LazySqlProbe(policy, limits),
            Dialect.MCP: McpProbe(policy, keyring, user_agent, limits=limits),
        }

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Answers]:
        """Send every query; see `Probe`. Raises InvalidInputError at once for an unusable retriever."""
        retriever = context.retriever
        probe_dialect = self._dialects[retriever.dialect]
        if retriever.embedder is None or not needs_vector(retriever):
            answers = probe_dialect(context, queries)
        else:
            probe_dialect(context, ())  # raises at once where the retriever cannot be asked; asks nobody
            answers = self._embed_and_query(probe_dialect, context, queries, retriever.embedder)
        addressed = _with_addresses(retriever, answers)
        return self._with_scores(context, queries, addressed) if retriever.scorer.kind in _EXTERNAL else addressed

    def _embed_and_query(
        self, probe_dialect: DialectProbe, context: ProbeContext, queries: Sequence[ProbeQuery], embedder: Embedder
    ) -> Iterator[Answers]:
        """Embed, then query; a failed embedding is the outcome of its query."""
        vectors: dict[str, Sequence[float]] = {}
        for start in range(0, len(queries), EMBEDDING_BATCH):
            chunk = queries[start : start + EMBEDDING_BATCH]
            embedded = yield from _wait_with_pauses(
                self.embed.interruptibly(embedder, [item.query for item in chunk], patience=context.patience)
            )
            vectors |= {query: vector.tolist() for query, vector in embedded.vectors.items()}
            failure = Answer(
                outcome=embedded.outcome,
                latency_seconds=embedded.latency_seconds,
                http_status=embedded.http_status,
                detail=f"the embedder: {embedded.detail}",
                step=Step.EMBEDDER,
            )
            yield [(item.position, failure) for item in chunk if item.query not in vectors]
        answers = probe_dialect(context, [item for item in queries if item.query in vectors], vectors)
        with closing(answers) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            yield from batches

    def _with_scores(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], answers: Iterator[Answers]
    ) -> Iterator[Answers]:
        """Have the first hits scored by the external scorer, until its breaker opens."""
        retriever = context.retriever
        decimals = decimals_of(retriever.score_precision)
        texts_by_position = {item.position: item.query for item in queries}
        breaker = ScorerBreaker()
        with closing(answers) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            for batch in batches:
                texts = {
                    position: answer.ranking.texts[0]
                    for position, answer in batch
                    if answer.outcome is Outcome.OK and answer.ranking
                }
                with_text = [(position, text) for position, text in texts.items() if text is not None]
                pairs = [(texts_by_position[position], text) for position, text in with_text]
                scoring = self._relevance.of_first_hits(
                    retriever.scorer, retriever.embedder, pairs, breaker, patience=context.patience
                )
                scores, reason = yield from _wait_with_pauses(scoring)
                relevance = dict(zip([position for position, _ in with_text], scores, strict=True))
                yield [
                    (position, _with_relevance(answer, relevance.get(position), reason, decimals))
                    if position in texts
                    else (position, answer)
                    for position, answer in batch
                ]


def _with_addresses(retriever: Retriever, answers: Iterator[Answers]) -> Iterator[Answers]:
    """Add host and port of what failed to every answer that is no measurement."""
    urls = {
        Step.RETRIEVER: retriever.url,
        Step.EMBEDDER: "" if retriever.embedder is None else retriever.embedder.endpoint.url,
        Step.LOOKUP: "" if retriever.lookup is None else retriever.lookup.url,
        Step.AUTHENTICATION: retriever.auth.token_url if isinstance(retriever.auth, OAuth2) else "",
    }
    addresses = {step: url_address(url, retriever.options) for step, url in urls.items()}
    with closing(answers) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        for batch in batches:
            yield [
                (position, answer if answer.outcome is Outcome.OK else replace(answer, address=addresses[answer.step]))
                for position, answer in batch
            ]


def _wait_with_pauses(waiting: Generator[None, None, ResultT]) -> Generator[Answers, None, ResultT]:
    """Wait for vectors or scores; yields no answers now and then, which lets the caller stop."""
    with closing(waiting):
        while True:
            try:
                next(waiting)
            except StopIteration as stop:
                found: ResultT = stop.value
                return found
            yield []


def _with_relevance(answer: Answer, relevance: float | None, reason: str | None, decimals: int) -> Answer:
    if answer.ranking is None:
        return answer
    if relevance is None:
        return replace(answer, unscored=reason or "the first hit came without a text")
    return replace(
        answer, ranking=round_ranking(replace(answer.ranking, relevance=relevance, fingerprint=None), decimals)
    )


_EXTERNAL = {ScorerKind.EMBEDDING, ScorerKind.RERANK}


def read_pasted(retriever: Retriever, k: int, body: bytes) -> Answer:
    """Read a response body by the retriever's mapping; raises InvalidInputError for a mapping that is none."""
    try:
        reader = compile_reader(retriever, k)
    except ValueError as error:
        raise InvalidInputError([Problem(path="response", message=str(error))]) from None
    return read_answer(Response(status=200, body=body), reader)
