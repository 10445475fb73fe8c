"""Probes a retriever over HTTP: renders each canary's request, sends them gently, and turns responses into answers.

How bytes travel is left to the transport, what an answer means to the mapping.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from typing import TypeVar

from app.adapters.retrievers.mapping import Reader, Reading, compile_mapping
from app.adapters.retrievers.paths import MalformedError
from app.adapters.retrievers.template import Template, json_template, url_template
from app.adapters.transport import exchange
from app.adapters.wire import Failure, Request, Response, header_line
from app.domain.addresses import AddressPolicy
from app.domain.errors import InvalidInputError, Problem
from app.domain.model import Answer, Outcome
from app.domain.rankings import decimals_of
from app.domain.retrievers import Ask, Asking, Retriever

T = TypeVar("T")

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PLACEHOLDERS = ("query", "k")
REMEMBERED_BYTES = 32_000_000
"""How many bytes of answers are remembered from one run to the next, of all retrievers together."""


class HttpProbe:
    """The `Probe` for everything that speaks HTTP and JSON.

    `user_agent` names the program; the run id is added, so that a retriever's log can say who asked and why.
    """

    def __init__(self, policy: AddressPolicy, user_agent: str, *, proxy: str = "") -> None:
        self._policy = policy
        self._user_agent = user_agent
        self._proxy = proxy
        self._remembered: dict[str, RememberingReader] = {}
        self._lock = threading.Lock()

    def __call__(self, asking: Asking, asks: Sequence[Ask]) -> Iterator[list[tuple[int, Answer]]]:
        """Ask everything; see `Probe`. Raises InvalidInputError at once if the retriever cannot be asked at all."""
        plan = compile_retriever(asking.retriever, asking.k)
        requests = _requests(plan, asking, asks, f"{self._user_agent} (+run {asking.run_id})")
        return self._answers(plan, asking, requests)

    def _answers(self, plan: "Plan", asking: Asking, requests: Iterator[Request]) -> Iterator[list[tuple[int, Answer]]]:
        retriever = asking.retriever
        reader = RememberingReader(plan.reader, self._remembered.get(retriever.slug))
        exchanged = exchange(
            requests,
            policy=self._policy,
            concurrency=retriever.concurrency,
            requests_per_second=retriever.requests_per_second,
            proxy=self._proxy,
        )
        with closing(exchanged) as batches:
            for batch in batches:
                yield [(position, answer_of(response, reader)) for position, response in batch]
        self._remember(retriever.slug, reader)

    def _remember(self, slug: str, reader: "RememberingReader") -> None:
        reader.forget()
        with self._lock:
            self._remembered.pop(slug, None)
            self._remembered[slug] = reader
            while sum(one.bytes for one in self._remembered.values()) > REMEMBERED_BYTES:
                self._remembered.pop(next(iter(self._remembered)))  # the longest unused


class RememberingReader:
    """A reader that knows the answers of the run before: an equal body reads equal, so it need not be read again."""

    def __init__(self, reader: Reader, before: "RememberingReader | None") -> None:
        self.reader = reader
        self.now: dict[bytes, Reading] = {}
        self._before = before.now if before is not None and before.reader.same_as(reader) else {}
        self.bytes = 0

    def forget(self) -> None:
        """Let go of the run before."""
        self._before = {}

    def read(self, body: bytes, headers: Mapping[str, str]) -> Reading:
        """Read one answer; see `Reader.read`."""
        if self.reader.wants_headers:
            return self.reader.read(body, headers)
        reading = self._before.get(body) or self.reader.read(body, headers)
        if self.bytes + len(body) <= REMEMBERED_BYTES // 2 and body not in self.now:
            self.bytes += len(body)
            self.now[body] = reading
        return reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A retriever's configuration, compiled."""

    url: Template
    body: Template | None
    headers: tuple[bytes, ...]
    header_names: frozenset[str]
    """Those the configuration sets itself, in lower case: nothing of ours replaces them."""
    reader: Reader


def compile_retriever(retriever: Retriever, k: int) -> Plan:
    """Compile what is the same for all probes of a run; raises InvalidInputError with everything that is wrong."""
    problems: list[Problem] = []

    def attempt(path: str, compiled: Callable[[], T]) -> T | None:
        try:
            return compiled()
        except ValueError as error:
            problems.append(Problem(path=path, message=str(error)))
            return None

    if retriever.method not in METHODS:
        problems.append(Problem(path="method", message=f"must be one of {', '.join(METHODS)}"))
    url = attempt("url", partial(url_template, retriever.url, retriever.query_parameters, PLACEHOLDERS))
    body = None
    if retriever.json is not None:
        body = attempt("json", partial(json_template, retriever.json, PLACEHOLDERS))
    names = frozenset(name.lower() for name in retriever.headers)
    problems += [Problem(path=f"headers.{name}", message="is set by the transport") for name in sorted(names & _OURS)]
    defaults = {name: value for name, value in _DEFAULT_HEADERS.items() if name not in names}
    lines = [
        attempt(f"headers.{name}", partial(header_line, name, value))
        for name, value in (*defaults.items(), *retriever.headers.items())
    ]
    mapping = partial(
        compile_mapping,
        retriever.response,
        k,
        scale=retriever.scorer.scale,
        decimals=decimals_of(retriever.score_precision),
    )
    reader = attempt("response", mapping)
    if url is None or reader is None or problems:
        raise InvalidInputError(problems)
    return Plan(
        url=url.bind(k=k),
        body=None if body is None else body.bind(k=k),
        headers=(*(line for line in lines if line is not None), b"expect:"),
        header_names=names,
        reader=reader,
    )


def answer_of(response: Response, reader: Reader | RememberingReader) -> Answer:
    """Turn a response into an answer: first whether there is one, then its status, then its shape."""
    status, seconds = response.status, response.latency_seconds
    if status is not None and not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Answer(outcome=Outcome.REFUSED, latency_seconds=seconds, http_status=status, detail=_refusal(status))
    if response.failure is not None:
        outcome = _OUTCOMES[response.failure]
        return Answer(outcome=outcome, latency_seconds=seconds, http_status=status, detail=response.detail)
    try:
        reading = reader.read(response.body, response.headers)
    except MalformedError as error:
        return Answer(outcome=Outcome.MALFORMED, latency_seconds=seconds, http_status=status, detail=str(error))
    return Answer(
        outcome=Outcome.OK,
        latency_seconds=seconds,
        ranking=reading.ranking,
        http_status=status,
        index_version=reading.index_version,
    )


def _requests(plan: Plan, asking: Asking, asks: Sequence[Ask], user_agent: str) -> Iterator[Request]:
    retriever = asking.retriever
    headers = plan.headers
    if "user-agent" not in plan.header_names:
        headers = (*headers, header_line("user-agent", user_agent))
    if "traceparent" not in plan.header_names:
        # W3C Trace Context: the run is both the trace and the span all its probes descend from; ids are never zero.
        run = blake2b(asking.run_id.encode(), digest_size=24).hexdigest()
        headers = (*headers, f"traceparent: 00-{run[:32]}-{run[32:]}-01".encode())
    url = None if plan.url.names else plan.url.render().decode()
    nothing = b"" if retriever.method in {"POST", "PUT", "PATCH"} else None
    for ask in asks:
        yield Request(
            tag=ask.position,
            url=plan.url.render(query=ask.query).decode() if url is None else url,
            method=retriever.method,
            headers=headers,
            body=nothing if plan.body is None else plan.body.render(query=ask.query),
            timeout_seconds=retriever.timeout_seconds,
            max_body_bytes=retriever.max_body_bytes,
            retries=retriever.retries,
            wants_headers=plan.reader.wants_headers,
        )


def _refusal(status: int) -> str:
    try:
        named = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        named = str(status)
    followed = "; redirects are not followed" if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST else ""
    return f"answered {named}{followed}"


_DEFAULT_HEADERS = {"accept": "application/json", "content-type": "application/json"}
_OURS = frozenset({"content-length", "transfer-encoding", "expect", "connection"})
_OUTCOMES = {
    Failure.TIMEOUT: Outcome.TIMEOUT,
    Failure.UNREACHABLE: Outcome.UNREACHABLE,
    Failure.BLOCKED: Outcome.BLOCKED,
    Failure.OVERSIZE: Outcome.OVERSIZE,
    Failure.GARBLED: Outcome.MALFORMED,
}
