"""Probes a retriever over HTTP: who we are to it, what must be looked up first, then every canary's question.

What is sent is compiled in compiling, what comes back read in answering; how bytes travel is left to the transport.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from http import HTTPStatus

from app.adapters.limits import Limits
from app.adapters.probing.credentials import CredentialError, Keyring
from app.adapters.probing.endpoints import response_problem
from app.adapters.probing.redaction import Redaction, secret_headers
from app.adapters.probing.request_templates import Plan, build_requests, compile_retriever, lookup_request
from app.adapters.probing.responses import CACHE_BYTES, CachingReader, failed_answer, read_answer, shown_exchange
from app.adapters.probing.retriever_limits import peer_of
from app.adapters.transport import exchange
from app.adapters.wire import NO_AUTH, Request, RequestAuth, Response
from app.domain.addresses import AddressPolicy
from app.domain.model import EMPTY, Answer, Outcome, Step
from app.domain.probing.probe_failures import url_address
from app.domain.probing.retrievers import OAuth2, ProbeContext, ProbeQuery, Retriever, missing_resource

Vectors = Mapping[str, Sequence[float]]
"""By query."""
Answers = list[tuple[int, Answer]]


class HttpProbe:
    """Asks everything that speaks HTTP and JSON.

    `user_agent` names the program; the run id is added, so that a retriever's log can say who asked and why. `limits`
    are those of all retrievers of the process.
    """

    def __init__(
        self,
        policy: AddressPolicy,
        keyring: Keyring,
        user_agent: str,
        *,
        proxy: str = "",
        limits: Limits | None = None,
    ) -> None:
        self._policy = policy
        self._keyring = keyring
        self._user_agent = user_agent
        self._proxy = proxy
        self._limits = limits or Limits()
        self._compiled: dict[tuple[str, int], tuple[Retriever, Plan]] = {}
        """By slug and k."""
        self._remembered: dict[str, CachingReader] = {}
        self._lock = threading.Lock()

    def __call__(self, asking: ProbeContext, asks: Sequence[ProbeQuery], vectors: Vectors = EMPTY) -> Iterator[Answers]:
        """Ask everything; see `Probe`. `vectors` are those of the queries, where the retriever takes them.

        Raises InvalidInputError at once if the retriever cannot be asked at all.
        """
        return self._answers(self._compile(asking.retriever, asking.k), asking, asks, vectors)

    def _compile(self, retriever: Retriever, k: int) -> Plan:
        """Compile a retriever once for as long as it is the same object, as that of a version is."""
        kept = self._compiled.get((retriever.slug, k))
        if kept is None or kept[0] is not retriever:
            kept = self._compiled[retriever.slug, k] = retriever, compile_retriever(retriever, k)
        return kept[1]

    def _answers(
        self, plan: Plan, asking: ProbeContext, asks: Sequence[ProbeQuery], vectors: Vectors
    ) -> Iterator[Answers]:
        retriever = asking.retriever
        try:
            standing = _Standing(self._keyring, asking)
            plan = self._looked_up(plan, asking, standing.identity)
        except (CredentialError, _LookupError) as error:
            step = Step.AUTHENTICATION if isinstance(error, CredentialError) else Step.LOOKUP
            failure = failed_answer(error.outcome, error.detail, error.http_status, step=step)
            yield [(ask.position, failure) for ask in asks]
            return
        reader = CachingReader(plan.reader, self._remembered.get(retriever.slug))
        requests = build_requests(plan, asking, asks, self._user_agent, vectors)
        shown = {request.tag: request for request in requests} if asking.shows else {}
        exchanged = exchange(
            iter(shown.values()) if shown else standing.signed(requests),
            policy=self._policy,
            concurrency=retriever.concurrency,
            requests_per_second=retriever.requests_per_second,
            proxy=self._proxy,
            identity=standing.of_all,
            peer=peer_of(asking, self._limits),
        )
        with closing(exchanged) as batches:
            for received in batches:
                batch = [(position, standing.redaction.response(response)) for position, response in received]
                standing.see([response for _, response in batch])
                yield [
                    (position, _shown(read_answer(response, reader), shown.get(position), response, standing.identity))
                    for position, response in batch
                ]
        self._remember(retriever.slug, reader)

    def _looked_up(self, plan: Plan, asking: ProbeContext, identity: RequestAuth) -> Plan:
        """Fetch what the templates need to know once per run. Raises _LookupError."""
        lookup = asking.retriever.lookup
        if plan.lookup is None or lookup is None:
            return plan
        request = lookup_request(plan.lookup, plan, asking, self._user_agent)
        response = self._exchanged(asking, request, identity)
        problem = response_problem(response)
        if problem is not None:
            outcome, detail = problem
            missing = missing_resource(lookup.url, asking.retriever.options)
            if response.status == HTTPStatus.NOT_FOUND and missing is not None:
                what, named = missing
                address = url_address(lookup.url, asking.retriever.options)
                message = f"{address} has no {what} '{named}' (HTTP 404). Check the {what} name"
                raise _LookupError(outcome, message, response.status)
            raise _LookupError(outcome, f"the lookup of {lookup.name}: {detail}", response.status)
        value = plan.lookup.value_in(response.body)
        if value is None:
            detail = f"the lookup of {lookup.name}: there is no {lookup.path} in the answer"
            raise _LookupError(Outcome.MALFORMED, detail, response.status)
        return plan.bound({lookup.name: value})

    def _exchanged(self, asking: ProbeContext, request: Request, identity: RequestAuth) -> Response:
        """Send one request within the limits of the retriever."""
        retriever = asking.retriever
        exchanged = exchange(
            (request,),
            policy=self._policy,
            concurrency=retriever.concurrency,
            requests_per_second=retriever.requests_per_second,
            proxy=self._proxy,
            identity=identity,
            peer=peer_of(asking, self._limits),
        )
        with closing(exchanged) as batches:
            return next(batch[0][1] for batch in batches if batch)

    def _remember(self, slug: str, reader: CachingReader) -> None:
        reader.forget()
        with self._lock:
            self._remembered.pop(slug, None)
            self._remembered[slug] = reader
            while sum(one.bytes for one in self._remembered.values()) > CACHE_BYTES:
                self._remembered.pop(next(iter(self._remembered)))  # the longest unused


class _Standing:
    """Who we are to a retriever during a run. An OAuth2 token may run out in the middle: then it is renewed.

    Raises CredentialError where there is no standing to begin with.
    """

    def __init__(self, keyring: Keyring, asking: ProbeContext) -> None:
        self._keyring = keyring
        self._asking = asking
        self._renews = isinstance(asking.retriever.auth, OAuth2) and not asking.shows
        self._refused = False
        self._take(self._identify())

    @property
    def of_all(self) -> RequestAuth:
        """What of the identity is the same for all requests of the run."""
        return replace(self.identity, headers=()) if self._renews else self.identity

    def signed(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Give each request, as it is drawn, the newest token."""
        if not self._renews:
            return requests
        return (replace(request, headers=(*request.headers, *self.identity.headers)) for request in requests)

    def see(self, responses: Sequence[Response]) -> None:
        """Learn from answers that a token is refused, and renew what is about to run out."""
        if not self._refused and any(response.status == HTTPStatus.UNAUTHORIZED for response in responses):
            self._refused = True  # once a run: a token refused when fresh is not the token's fault
            self._keyring.forget(self._asking.retriever.auth)
        if self._renews and responses:
            with suppress(CredentialError):  # the one we have may still do
                self._take(self._identify())

    def _take(self, identity: RequestAuth) -> None:
        self.identity = identity
        self.redaction = Redaction.of(identity, thorough=self._asking.shows)

    def _identify(self) -> RequestAuth:
        retriever = self._asking.retriever
        headers = retriever.headers if self._asking.shows else secret_headers(retriever.headers)
        if retriever.auth is None and retriever.tls is None and not headers:
            return NO_AUTH
        return self._keyring.identity(retriever.auth, retriever.tls, headers)


def _shown(answer: Answer, request: Request | None, response: Response, identity: RequestAuth) -> Answer:
    return answer if request is None else replace(answer, exchange=shown_exchange(request, response, identity))


class _LookupError(Exception):
    """What has to be looked up before anything can be asked is not to be had."""

    def __init__(self, outcome: Outcome, detail: str, http_status: int | None) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.http_status = http_status
