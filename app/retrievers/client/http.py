"""Probes a retriever over HTTP: credentials, the lookup, then one request per canary; or plays rankings given to it.

A body equal to that of the run before is read once. Requests are made in `requests`, hits read in `columns`. Below: how
MCP servers and PostgreSQL are queried, whose libraries have an event loop of their own: in lanes of a thread, in
batches.
"""

import asyncio
import contextlib
import math
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from app.base.addresses import OAuth2
from app.base.errors import LocalResourceError
from app.base.net.limits import Limits
from app.base.net.transfer import LOCAL_ERRORS, NO_AUTH, NoAnswerError, Request, RequestAuth, Response
from app.base.net.transport import exchange
from app.base.values import EMPTY, Answer, Exchange, Outcome, Ranking, Step
from app.retrievers.client.columns import MalformedError
from app.retrievers.client.credentials import (
    MASK,
    CredentialError,
    EndpointClient,
    Keyring,
    Redaction,
    masked,
    peer_of,
    response_problem,
    secret_headers,
    with_utf8_body,
    without_secrets,
)
from app.retrievers.client.requests import Plan, Reader, Reading, build_requests, compile_retriever, lookup_request
from app.retrievers.domain.probes import url_address
from app.retrievers.domain.retrievers import KEPT_CHARACTERS, ProbeContext, ProbeQuery, Retriever, missing_resource
from app.scoring.rankings import decimals_of, round_ranking

CACHE_BYTES = 48_000_000
"""How large the bodies are, together, whose readings are remembered from one run to the next, of all retrievers."""

_OK = Outcome.OK  # a member of an enumeration is slow to look up


def read_answer(response: Response, reader: "Reader | CachingReader", secrets: Sequence[str] = ()) -> Answer:
    """Return the answer of a response: first its failure, then its status, then its shape.

    What is quoted of the server is without `secrets`.
    """
    status, seconds = response.status, response.latency_seconds
    problem = response_problem(response)
    if problem is not None:
        answer = failed_answer(problem[0], without_secrets(problem[1], secrets), status, seconds)
        answer = answer if response.cache_sign is None else replace(answer, cache_sign=response.cache_sign)
        return with_refusal(
            replace(answer, slowing=response.slowing),
            refused_seconds=response.refused_seconds,
            retry_after_seconds=response.retry_after_seconds,
        )
    try:
        reading = reader.read(response.body, response.headers)
    except MalformedError as error:
        return failed_answer(error.outcome, without_secrets(str(error), secrets), status, seconds)
    return Answer(
        outcome=_OK,
        latency_seconds=seconds,
        ranking=reading.ranking,
        http_status=status,
        index_version=reading.index_version,
        generated=reading.answer,
        cache_sign=response.cache_sign,
        slowing=response.slowing,
    )


def with_refusal(answer: Answer, *, refused_seconds: float | None, retry_after_seconds: float | None) -> Answer:
    """Return an answer with why its retriever refuses for longer than the run waits; `refused_seconds` None = no."""
    if refused_seconds is None:
        return answer
    if (retry_after_seconds or 0.0) > refused_seconds:
        return replace(answer, retry_after_seconds=retry_after_seconds)
    return replace(answer, refused_seconds=refused_seconds)


def failed_answer(
    outcome: Outcome,
    detail: str,
    http_status: int | None,
    latency_seconds: float = 0.0,
    *,
    step: Step = Step.RETRIEVER,
) -> Answer:
    """Return the answer of a probe without a measurement."""
    return Answer(outcome=outcome, latency_seconds=latency_seconds, http_status=http_status, detail=detail, step=step)


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


class CachingReader:
    """A reader that keeps the readings of the run before: an equal body reads equal, so it is read once.

    Bodies are told apart by their length and Python's hash of 64 bits, which has a secret key of each process: among
    ten thousand, one in 10 ** 15 bodies is taken for another.
    """

    def __init__(self, reader: Reader, before: "CachingReader | None") -> None:
        self.reader = reader
        self.now: dict[tuple[int, int], Reading] = {}
        self._before = before.now if before is not None and before.reader.same_as(reader) else {}
        self.bytes = 0

    def forget(self) -> None:
        """Drop the readings of the run before."""
        self._before = {}

    def read(self, body: bytes, headers: Mapping[str, str]) -> Reading:
        """Read one response; see `Reader.read`."""
        if self.reader.wants_headers:
            return self.reader.read(body, headers)
        key = hash(body), len(body)
        reading = self._before.get(key) or self.reader.read(body, headers)
        if self.bytes + len(body) <= CACHE_BYTES // 2 and key not in self.now:
            self.bytes += len(body)
            self.now[key] = reading
        return reading


Vectors = Mapping[str, Sequence[float]]
Answers = list[tuple[int, Answer]]


class HttpProbe:
    """Probes everything that speaks HTTP and JSON.

    It asks as `asker` does, whose user agent names the program; the run id is added, so that a retriever's log can say
    who asked and why.
    """

    def __init__(self, asker: EndpointClient) -> None:
        self._asker = asker
        self._compiled: dict[tuple[str, int], tuple[Retriever, Plan]] = {}
        self._readers: dict[str, CachingReader] = {}
        self._lock = threading.Lock()

    def __call__(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors = EMPTY
    ) -> Iterator[Answers]:
        """Send every query; see `Probe`. Raises InvalidInputError at once for an unusable retriever."""
        return self._answers(self._compile(context.retriever, context.k), context, queries, vectors)

    def _compile(self, retriever: Retriever, k: int) -> Plan:
        """Compile a retriever once for as long as it is the same object, as that of a version is."""
        kept = self._compiled.get((retriever.slug, k))
        if kept is None or kept[0] is not retriever:
            kept = self._compiled[retriever.slug, k] = retriever, compile_retriever(retriever, k)
        return kept[1]

    def _answers(
        self, plan: Plan, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors
    ) -> Iterator[Answers]:
        retriever = context.retriever
        try:
            credentials = _RunCredentials(self._asker.keyring, context)
            plan = self._with_lookup(plan, context, credentials)
        except NoAnswerError as error:
            step = Step.AUTHENTICATION if isinstance(error, CredentialError) else Step.LOOKUP
            failure = failed_answer(error.outcome, error.detail, error.http_status, step=step)
            yield [(item.position, failure) for item in queries]
            return
        reader = CachingReader(plan.reader, self._readers.get(retriever.slug))
        requests = build_requests(plan, context, queries, self._asker.user_agent, vectors)
        outdated: set[int] = set()  # positions that were refused with a token which was replaced since
        with closing(self._exchanged(context, requests, reader, credentials, outdated)) as answers:
            yield from answers
        if outdated:
            again = [item for item in queries if item.position in outdated]
            requests = build_requests(plan, context, again, self._asker.user_agent, vectors)
            with closing(self._exchanged(context, requests, reader, credentials)) as answers:
                yield from answers
        self._keep_reader(retriever.slug, reader)

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

    def _with_lookup(self, plan: Plan, context: ProbeContext, credentials: "_RunCredentials") -> Plan:
        lookup = context.retriever.lookup
        if plan.lookup is None or lookup is None:
            return plan
        request = lookup_request(plan.lookup, plan, context, self._asker.user_agent)
        response = with_utf8_body(self._send(context, request, credentials.request_auth))
        if response.status == HTTPStatus.UNAUTHORIZED and credentials.renew():
            response = with_utf8_body(self._send(context, request, credentials.request_auth))
        request_auth = credentials.request_auth
        problem = response_problem(response)
        if problem is not None:
            outcome, detail = problem[0], without_secrets(problem[1], request_auth.secrets)
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

    def _send(self, context: ProbeContext, request: Request, request_auth: RequestAuth) -> Response:
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
            return next(batch[0][1] for batch in batches if batch)

    def _keep_reader(self, slug: str, reader: CachingReader) -> None:
        reader.forget()
        with self._lock:
            self._readers.pop(slug, None)
            self._readers[slug] = reader
            while sum(one.bytes for one in self._readers.values()) > CACHE_BYTES:
                self._readers.pop(next(iter(self._readers)))  # the longest unused


class _RunCredentials:
    """Credentials of a run; an OAuth2 token that runs out is renewed, one that is refused is replaced once.

    Raises CredentialError without one.
    """

    def __init__(self, keyring: Keyring, context: ProbeContext) -> None:
        self._keyring = keyring
        self._asking = context
        self.is_renewable = isinstance(context.retriever.auth, OAuth2)
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
        self._keyring.forget(self._asking.retriever.auth)
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
        headers = retriever.headers if self._asking.shows else secret_headers(retriever.headers)
        if retriever.auth is None and retriever.tls is None and not headers:
            return NO_AUTH
        return self._keyring.request_auth(retriever.auth, retriever.tls, headers)


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


POLL_SECONDS = 0.2
JOIN_SECONDS = 2.0
"""How long closing waits for the loop; what still hangs then, hangs in a name resolution."""
RETRY_SECONDS = 0.2
BATCH = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RefusedAnswer:
    """Answer of a retriever that may accept the same query later."""

    answer: Answer
    retry_after_seconds: float | None


Batch = list[tuple[int, Answer]]
Deliver = Callable[[int, Answer], None]
QueryOnce = Callable[[ProbeQuery], Awaitable[Answer | RefusedAnswer]]
Lane = Callable[[], AbstractAsyncContextManager[QueryOnce]]


def run_in_background(work: Callable[[Deliver], Awaitable[None]], name: str) -> Generator[Batch, None, None]:
    """Run `work` to its end and yield what it delivers; an empty batch where nothing came for a while.

    Closing the iterator cancels the work. What the work raises is raised here.
    """
    answers: queue.SimpleQueue[tuple[int, Answer] | BaseException | None] = queue.SimpleQueue()
    try:
        loop = asyncio.new_event_loop()
    except OSError as error:
        if error.errno not in LOCAL_ERRORS:
            raise
        raise LocalResourceError(f"nothing could be asked from here: {error.strerror}") from error
    task = loop.create_task(_run_work(work, answers))
    thread = threading.Thread(target=_run_loop, args=(loop, task, answers), name=name, daemon=True)
    thread.start()
    try:
        while (batch := _next_batch(answers)) is not None:
            yield batch
    finally:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the work had come to its end
            loop.call_soon_threadsafe(task.cancel)
        thread.join(JOIN_SECONDS)


async def query_in_lanes(
    context: ProbeContext, queries: Sequence[ProbeQuery], lane: Lane, deliver: Deliver, limits: Limits | None = None
) -> None:
    """Send every query, as many at once as the retriever takes; `limits` None = nobody else queries it."""
    retriever = context.retriever
    waiting = iter(queries)
    turns = _Turns(context, limits)

    async def run_lane() -> None:
        async with lane() as query_once:
            for item in waiting:
                deliver(item.position, await _query_with_retries(query_once, item, retriever.retries, turns))

    try:
        with contextlib.closing(turns):
            async with asyncio.TaskGroup() as group:
                for _ in range(min(context.concurrency, len(queries))):
                    group.create_task(run_lane())
    except BaseExceptionGroup as group:
        if (local := group.subgroup(LocalResourceError)) is not None:
            raise LocalResourceError(str(local.exceptions[0])) from group
        raise


async def open_in_turn(context: ProbeContext, limits: Limits, open_session: Callable[[], Awaitable[T]]) -> T:
    """Open a session in a turn of a retriever outside of lanes, and again where the retriever refuses it.

    Raises NoAnswerError.
    """
    with contextlib.closing(_Turns(context, limits)) as turns:
        while True:
            async with turns.turn() as begun_at:
                try:
                    return await open_session()
                except NoAnswerError as error:
                    status, retry_after = error.http_status or 0, error.retry_after_seconds
                    if (
                        not error.is_refused
                        or turns.share.refuse(begun_at, status=status, retry_after=retry_after).is_final
                    ):
                        raise


class _Turns:
    """Share of these lanes in the limits of a retriever."""

    def __init__(self, context: ProbeContext, limits: Limits | None) -> None:
        loop, retriever = asyncio.get_running_loop(), context.retriever
        self._changed = asyncio.Event()
        self._queue = asyncio.Lock()
        self.share = peer_of(context, limits or Limits(loop.time)).share(
            concurrency=context.concurrency,
            requests_per_second=retriever.requests_per_second,
            wake=partial(loop.call_soon_threadsafe, self._changed.set),
        )

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """Wait for a turn to send one request, and hold it; gives when it began, by the clock of the limits."""
        async with self._queue:  # one lane waits for all of them
            self._changed.clear()
            while wait := self.share.begin():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if wait == math.inf else wait):
                        await self._changed.wait()
                self._changed.clear()
            begun_at = self.share.begun_at
        try:
            yield begun_at
        finally:
            self.share.end()

    def close(self) -> None:
        """Close the share."""
        self.share.close()


async def _query_with_retries(query_once: QueryOnce, item: ProbeQuery, retries: int, turns: _Turns) -> Answer:
    """Query, and again after transport failures: the last attempt counts; a bad answer is never retried.

    One that the retriever refused for now is sent again for as long as the run is patient.
    """
    share, refusals, slowing = turns.share, 0, None
    while True:
        async with turns.turn() as begun_at:
            answer = await query_once(item)
        if isinstance(answer, RefusedAnswer):
            status, retry_after = answer.answer.http_status or 0, answer.retry_after_seconds
            refusal = share.refuse(begun_at, status=status, retry_after=retry_after)
            slowing = share.slow_down(slowing, refusals=refusals)
            if refusal.is_final:
                final = replace(answer.answer, slowing=slowing)
                seconds = refusal.refused_seconds if share.patience > 0 else None
                return with_refusal(final, refused_seconds=seconds, retry_after_seconds=retry_after)
            refusals += 1
            continue
        if answer.outcome not in _RETRIED:
            share.accept(begun_at)
        elif retries > 0:
            retries -= 1
            await asyncio.sleep(RETRY_SECONDS)
            continue
        slowing = share.slow_down(slowing, refusals=refusals)
        return answer if slowing is None else replace(answer, slowing=slowing)


async def _run_work(
    work: Callable[[Deliver], Awaitable[None]], answers: "queue.SimpleQueue[tuple[int, Answer] | BaseException | None]"
) -> None:
    await work(lambda position, answer: answers.put((position, answer)))


def _run_loop(
    loop: asyncio.AbstractEventLoop,
    task: "asyncio.Task[None]",
    answers: "queue.SimpleQueue[tuple[int, Answer] | BaseException | None]",
) -> None:
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        pass
    except BaseException as error:  # noqa: BLE001 - a bug: it surfaces in the consumer
        answers.put(error)
    finally:
        answers.put(None)
        try:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


def _next_batch(answers: "queue.SimpleQueue[tuple[int, Answer] | BaseException | None]") -> Batch | None:
    """Return the next batch, an empty one where none came for a while; None = that was all."""
    batch: Batch = []
    while len(batch) < BATCH:
        try:
            item = answers.get(timeout=0 if batch else POLL_SECONDS)
        except queue.Empty:
            break
        if isinstance(item, BaseException):
            raise item
        if item is None:
            if not batch:
                return None
            answers.put(None)  # read again after this batch
            break
        batch.append(item)
    return batch


_RETRIED = (Outcome.TIMEOUT, Outcome.UNREACHABLE)
