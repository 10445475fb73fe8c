"""The real `Probe`: one client per dialect, with the embedder before it and the scorer behind it; and that of HTTP.

Over HTTP: credentials, the lookup, then one request per canary; a body equal to that of the run before is read once.
Requests are made and answers read in `compiled_retriever`. Below: a probe that plays rankings given to it.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property
from http import HTTPStatus
from typing import TypeVar

from app.base.addresses import AddressPolicy, IdentityAuth, OAuth2
from app.base.errors import InvalidInputError, Problem
from app.base.limits import Limits
from app.base.net.transfer import NO_AUTH, NoAnswerError, Request, RequestAuth, Response
from app.base.net.transport import exchange
from app.base.values import EMPTY, Answer, Exchange, Outcome, Ranking, Step, replace
from app.retrievers.client.compiled_retriever import (
    CACHE_BYTES,
    CachingReader,
    Plan,
    build_requests,
    compile_reader,
    compile_retriever,
    lookup_request,
    needs_vector,
    read_answer,
    varied_options,
)
from app.retrievers.client.credentials import MASK, CredentialError, Keyring, Redaction, masked, secret_headers
from app.retrievers.client.embeddings import Embeddings
from app.retrievers.client.endpoint_client import EndpointClient
from app.retrievers.client.identities import Answers, DialectProbe, IdentityProbe, Vectors
from app.retrievers.client.relevance import RelevanceScorer, ScorerBreaker
from app.retrievers.client.responses import failed_answer, response_problem, with_utf8_body
from app.retrievers.domain.probes import peer_of, url_address
from app.retrievers.domain.retrievers import (
    KEPT_CHARACTERS,
    Dialect,
    Embedder,
    ProbeContext,
    ProbeQuery,
    Retriever,
    ScorerKind,
    missing_resource,
)
from app.scoring.rankings import decimals_of, round_ranking

EMBEDDING_BATCH = 256


ResultT = TypeVar("ResultT")


class _LazyProbe:
    """Probes retrievers of a dialect that few have; its module is loaded with the first of them (psycopg is 9 MB)."""

    def __init__(self, make: Callable[[], DialectProbe]) -> None:
        self._make = make

    def __call__(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors = EMPTY
    ) -> Iterator[Answers]:
        """Send every query; see `Probe`."""
        return self._probe(context, queries, vectors)

    @cached_property
    def _probe(self) -> DialectProbe:
        made: DialectProbe = self._make()
        return made


def _sql_probe(policy: AddressPolicy, limits: Limits) -> DialectProbe:
    from app.retrievers.client.sql import SqlProbe  # noqa: PLC0415 - see _LazyProbe

    return SqlProbe(policy, limits=limits)


def _mcp_probe(services: EndpointClient) -> DialectProbe:
    from app.retrievers.client.mcp_probe import McpProbe  # noqa: PLC0415 - see _LazyProbe

    return McpProbe(services)


class RetrieverProbe:
    """Probes any retriever. `user_agent` names the program to all of them.

    The limits of a retriever hold over everything that queries it by this probe, those of embedders and rerankers
    too; a process has one.
    """

    def __init__(self, policy: AddressPolicy, user_agent: str) -> None:
        self.services = EndpointClient(policy=policy, keyring=Keyring(policy, user_agent), user_agent=user_agent)
        """Asks other services beside retrievers, with the same limits and credentials."""
        self.embed = Embeddings(self.services)
        self._relevance = RelevanceScorer(self.services, self.embed)
        dialects: dict[Dialect, DialectProbe] = {
            Dialect.HTTP: HttpProbe(self.services),
            Dialect.SQL: _LazyProbe(lambda: _sql_probe(policy, self.services.limits)),
            Dialect.MCP: _LazyProbe(lambda: _mcp_probe(self.services)),
        }
        self._dialects = {dialect: IdentityProbe(probe, _with_addresses) for dialect, probe in dialects.items()}

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
    """Add host and port of what failed to every answer that is no measurement and has none."""
    auth = None if isinstance(retriever.auth, IdentityAuth) else retriever.auth
    urls = {
        Step.RETRIEVER: retriever.url,
        Step.EMBEDDER: "" if retriever.embedder is None else retriever.embedder.endpoint.url,
        Step.LOOKUP: "" if retriever.lookup is None else retriever.lookup.url,
        Step.AUTHENTICATION: auth.token_url if isinstance(auth, OAuth2) else "",
    }
    addresses = {step: url_address(url, retriever.options) for step, url in urls.items()}
    with closing(answers) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        for batch in batches:
            yield [
                (
                    position,
                    answer
                    if answer.outcome is Outcome.OK or answer.address is not None
                    else replace(answer, address=addresses[answer.step]),
                )
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


class HttpProbe:
    """Probes everything that speaks HTTP and JSON.

    It asks as `asker` does, whose user agent names the program; the run id is added, so that a retriever's log can say
    who asked and why.
    """

    def __init__(self, asker: EndpointClient) -> None:
        self._asker = asker
        self._compiled: dict[tuple[_Name, int, frozenset[str]], tuple[Retriever, Plan]] = {}
        self._readers: dict[_Name, CachingReader] = {}
        self._lock = threading.Lock()

    def __call__(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors = EMPTY
    ) -> Iterator[Answers]:
        """Send every query; see `Probe`. Raises InvalidInputError at once for an unusable retriever."""
        plan = self._compile(context.retriever, context.k, varied_options(context.retriever, queries))
        return self._answers(plan, context, queries, vectors)

    def _compile(self, retriever: Retriever, k: int, varied: frozenset[str]) -> Plan:
        """Compile a retriever once for as long as it is the same object, as that of a version is."""
        if not retriever.is_usual:  # must not push out what the next run asks with
            return compile_retriever(retriever, k, varied)
        name = _name_of(retriever)
        kept = self._compiled.get((name, k, varied))
        if kept is None or kept[0] is not retriever:
            compiled = compile_retriever(retriever, k, varied)
            kept = self._compiled[name, k, varied] = retriever, compiled
        return kept[1]

    def _answers(
        self, plan: Plan, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors
    ) -> Iterator[Answers]:
        retriever = context.retriever
        try:
            credentials = _RunCredentials(self._asker.keyring, context)
            plan = yield from self._with_lookup(plan, context, credentials)
        except NoAnswerError as error:
            step = Step.AUTHENTICATION if isinstance(error, CredentialError) else Step.LOOKUP
            failure = failed_answer(error.outcome, error.detail, error.http_status, step=step)
            yield [(item.position, failure) for item in queries]
            return
        reader = CachingReader(plan.reader, self._readers.get(_name_of(retriever)))
        requests = build_requests(plan, context, queries, self._asker.user_agent, vectors)
        outdated: set[int] = set()  # positions that were refused with a token which was replaced since
        with closing(self._exchanged(context, requests, reader, credentials, outdated)) as answers:
            yield from answers
        if outdated:
            again = [item for item in queries if item.position in outdated]
            requests = build_requests(plan, context, again, self._asker.user_agent, vectors)
            with closing(self._exchanged(context, requests, reader, credentials)) as answers:
                yield from answers
        if len(queries) > 1 and retriever.is_usual:  # nothing else, as a plant, must push out what a run has read
            self._keep_reader(_name_of(retriever), reader)

    def _exchanged(
        self,
        context: ProbeContext,
        requests: Iterator[Request],
        reader: CachingReader,
        credentials: "_RunCredentials",
        outdated: set[int] | None = None,
    ) -> Generator[Answers, None, None]:
        """Send requests and yield their answers, without those that another token may mend: these go to `outdated`."""
        shown_requests = {request.tag: request for request in requests} if context.shows else {}
        exchanged = exchange(
            iter(shown_requests.values()) if shown_requests else requests,
            policy=self._asker.policy,
            concurrency=context.concurrency,
            requests_per_second=context.retriever.requests_per_second,
            auth=credentials.shared_auth,
            peer=peer_of(context, self._asker.limits),
            sign=credentials.sign if credentials.is_renewable else None,
        )
        with closing(exchanged) as batches:
            for received in batches:
                batch = [
                    (position, credentials.redaction.response(with_utf8_body(response)))
                    for position, response in received
                ]
                refused = credentials.observe(batch)
                if outdated is not None:
                    outdated |= refused
                    batch = [(position, response) for position, response in batch if position not in refused]
                yield [
                    (
                        position,
                        _with_exchange(
                            read_answer(response, reader, credentials.request_auth.secrets),
                            shown_requests.get(position),
                            response,
                            credentials.request_auth,
                        ),
                    )
                    for position, response in batch
                ]

    def _with_lookup(
        self, plan: Plan, context: ProbeContext, credentials: "_RunCredentials"
    ) -> Generator[Answers, None, Plan]:
        """Return the plan with what is looked up once; yields no answers now and then, as it waits."""
        lookup = context.retriever.lookup
        if plan.lookup is None or lookup is None:
            return plan
        request = lookup_request(plan.lookup, plan, context, self._asker.user_agent)
        response = with_utf8_body((yield from self._send(context, request, credentials.request_auth)))
        if response.status == HTTPStatus.UNAUTHORIZED and credentials.renew():
            response = with_utf8_body((yield from self._send(context, request, credentials.request_auth)))
        request_auth = credentials.request_auth
        problem = response_problem(response)
        if problem is not None:
            outcome, detail = problem[0], masked(problem[1], request_auth.secrets)
            missing = missing_resource(lookup.url, context.retriever.options)
            if response.status == HTTPStatus.NOT_FOUND and missing is not None:
                what, name = missing
                address = url_address(lookup.url, context.retriever.options)
                message = f"{address} has no {what} '{name}' (HTTP 404). Check the {what} name"
                raise _LookupError(outcome, message, response.status)
            raise _LookupError(outcome, f"the lookup of {lookup.name}: {detail}", response.status)
        value = plan.lookup.value_in(response.body)
        if value is None:
            detail = f"the lookup of {lookup.name}: there is no {lookup.path} in the answer"
            raise _LookupError(Outcome.MALFORMED, detail, response.status)
        return plan.bound({lookup.name: value})

    def _send(
        self, context: ProbeContext, request: Request, request_auth: RequestAuth
    ) -> Generator[Answers, None, Response]:
        retriever = context.retriever
        exchanged = exchange(
            (request,),
            policy=self._asker.policy,
            concurrency=context.concurrency,
            requests_per_second=retriever.requests_per_second,
            auth=request_auth,
            peer=peer_of(context, self._asker.limits),
        )
        with closing(exchanged) as batches:
            for batch in batches:
                if batch:
                    return batch[0][1]
                yield []
        raise AssertionError("an exchange ends with the answer to each of its requests")

    def _keep_reader(self, name: "_Name", reader: CachingReader) -> None:
        reader.forget()
        with self._lock:
            self._readers.pop(name, None)
            self._readers[name] = reader
            while sum(one.bytes for one in self._readers.values()) > CACHE_BYTES:
                self._readers.pop(next(iter(self._readers)))  # the longest unused


_Name = tuple[str, str | None]
"""A retriever, and as whom it is asked, where each identity has its own credentials."""


def _name_of(retriever: Retriever) -> _Name:
    return retriever.slug, retriever.asked_as


def shown_exchange(request: Request, response: Response, auth: RequestAuth) -> Exchange:
    """Return request and response for people: bodies capped, every secret masked."""
    secrets = auth.secrets
    # What is a secret as a whole is masked as a whole: in a text it could not be told from a word when it is short.
    lines = [(*_split_line(line), False) for line in request.headers] + [
        (*_split_line(line), True) for line in auth.headers
    ]
    body = response.body[: 4 * KEPT_CHARACTERS].decode("utf-8", errors="replace")
    request_body = request.body.decode("utf-8", errors="replace") if request.body else None
    return Exchange(
        method=request.method,
        url=masked(request.url, secrets) + _masked_query(request.url, auth.query),
        request_headers={
            name: MASK if secret or value in secrets else masked(value, secrets)
            for name, value, secret in lines
            if value
        },
        request_body=None if request_body is None else masked(request_body, secrets)[:KEPT_CHARACTERS],
        http_status=response.status,
        response_headers={
            name: MASK if name == "set-cookie" else masked(value, secrets) for name, value in response.headers.items()
        },
        response_body=masked(body, secrets)[:KEPT_CHARACTERS] if response.status is not None else None,
        response_bytes=len(response.body),
    )


def _split_line(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("latin-1").partition(":")
    return name, value.strip()


def _masked_query(url: str, query: Mapping[str, str]) -> str:
    added = "&".join(f"{name}={MASK}" for name in query)
    return f"{'&' if '?' in url else '?'}{added}" if added else ""


class _RunCredentials:
    """Credentials of a run; an OAuth2 token that runs out is renewed, one that is refused is replaced once.

    Raises CredentialError without one.
    """

    def __init__(self, keyring: Keyring, context: ProbeContext) -> None:
        self._keyring = keyring
        self._asking = context
        self.is_renewable = isinstance(context.retriever.lone_auth, OAuth2)
        self._was_refused = False
        self._signed: dict[int, tuple[bytes, ...]] = {}
        self.request_auth = NO_AUTH
        self._set_auth(self._request_auth())

    @property
    def shared_auth(self) -> RequestAuth:
        """The part that is the same for all requests of the run."""
        return replace(self.request_auth, headers=()) if self.is_renewable else self.request_auth

    def sign(self, request: Request) -> Request:
        """Return a request with the newest token."""
        headers = self._signed[request.tag] = self.request_auth.headers
        return replace(request, headers=(*request.headers, *headers))

    def observe(self, batch: Sequence[tuple[int, Response]]) -> set[int]:
        """Replace a refused token, and renew what is about to run out; also while nothing comes.

        Requests that the retriever refuses for now are sent again later. Returns the positions that were refused with
        a token that was replaced since, as one that its server forgot.
        """
        refused = {position for position, response in batch if response.status == HTTPStatus.UNAUTHORIZED}
        if refused:
            self.renew()
        if not self.is_renewable:
            return set()
        with suppress(CredentialError):  # the one we have may still do
            self._set_auth(self._request_auth())
        newest = self.request_auth.headers
        return {position for position, _ in batch if self._signed.pop(position, newest) != newest} & refused

    def renew(self) -> bool:
        """Replace the token, once a run, as one refused when fresh is not the token's fault; returns whether it was."""
        if self._was_refused or not self.is_renewable:
            return False
        self._was_refused = True
        before = self.request_auth.headers
        self._keyring.forget(self._asking.retriever.lone_auth)
        with suppress(CredentialError):
            self._set_auth(self._request_auth())
        return self.request_auth.headers != before

    def _set_auth(self, request_auth: RequestAuth) -> None:
        secrets = dict.fromkeys(
            (*request_auth.secrets, *self.request_auth.secrets)
        )  # answers to an older token come yet
        self.request_auth = request_auth = replace(request_auth, secrets=tuple(secrets))
        self.redaction = Redaction.of(request_auth, thorough=self._asking.shows)

    def _request_auth(self) -> RequestAuth:
        retriever = self._asking.retriever
        headers = {**(retriever.headers if self._asking.shows else EMPTY), **secret_headers(retriever.headers)}
        if retriever.lone_auth is None and retriever.tls is None and not headers:
            return NO_AUTH
        return self._keyring.request_auth(retriever.lone_auth, retriever.tls, headers)


def _with_exchange(answer: Answer, request: Request | None, response: Response, request_auth: RequestAuth) -> Answer:
    return answer if request is None else replace(answer, exchange=shown_exchange(request, response, request_auth))


class _LookupError(NoAnswerError):
    """The value that is looked up once per run is not available."""


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
