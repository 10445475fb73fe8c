"""Requests of a retriever, compiled once per run and rendered per canary; sends nothing."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from jmespath.exceptions import JMESPathError

from app.base.errors import InvalidInputError, Problem
from app.base.http_headers import OWN_HEADERS
from app.base.net.wire import Request, header_line
from app.retrievers.client.hit_columns import parse_json
from app.retrievers.client.jmespath_paths import MalformedError, Path
from app.retrievers.client.response_mapping import Reader
from app.retrievers.client.templates import Template, Value, json_template, url_template
from app.retrievers.domain.retrievers import Lookup, ProbeContext, ProbeQuery, Retriever, ScorerKind
from app.scoring.rankings import decimals_of

T = TypeVar("T")

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledLookup:
    """URL of a value that is fetched once per run, and its path in the response."""

    url: Template
    path: Path

    def value_in(self, body: bytes) -> str | None:
        """Value in a response; None where there is none to use."""
        try:
            value: Any = self.path.search(parse_json(body)[0])
        except (MalformedError, JMESPathError, ValueError, TypeError, RecursionError):
            return None
        return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Compiled configuration of a retriever."""

    url: Template
    body: Template | None
    headers: tuple[bytes, ...]
    header_names: frozenset[str]
    """Those the configuration sets itself, in lower case: nothing of ours replaces them."""
    lookup: CompiledLookup | None
    reader: Reader

    def bound(self, values: Mapping[str, str]) -> "Plan":
        """Plan with values that became known for the whole run."""
        body = None if self.body is None else self.body.bind(**values)
        return replace(self, url=self.url.bind(**values), body=body)


@dataclass(frozen=True, slots=True)
class ProblemCollector:
    """Compiles parts of a configuration and collects their errors, so that all are reported at once."""

    problems: list[Problem] = field(default_factory=list)

    def __call__(self, path: str, compiled: Callable[[], T]) -> T | None:
        """Compile a part; None where that raises ValueError, which becomes the problem of `path`."""
        try:
            return compiled()
        except ValueError as error:
            self.problems.append(Problem(path=path, message=str(error)))
            return None


def compile_retriever(retriever: Retriever, k: int) -> Plan:
    """Return what is the same for all probes of a run; raises InvalidInputError with everything wrong."""
    attempt = ProblemCollector()
    problems = attempt.problems
    if retriever.method not in METHODS:
        problems.append(Problem(path="method", message=f"must be one of {', '.join(METHODS)}"))
    placeholders = placeholder_names(retriever)
    url = attempt("url", partial(url_template, retriever.url, retriever.query_parameters, placeholders))
    body = None
    if retriever.json is not None:
        body = attempt("json", partial(json_template, retriever.json, placeholders, tuple(retriever.options)))
    names = frozenset(name.lower() for name in retriever.headers)
    problems += [
        Problem(path=f"headers.{name}", message="is set by the transport") for name in sorted(names & OWN_HEADERS)
    ]
    defaults = {name: value for name, value in _DEFAULT_HEADERS.items() if name not in names}
    lines = [
        attempt(f"headers.{name}", partial(header_line, name, value))
        for name, value in (*defaults.items(), *retriever.headers.items())
    ]
    lookup = None
    if retriever.lookup is not None:
        lookup = attempt("lookup", partial(_lookup, retriever.lookup, retriever.options))
    reader = attempt("response", partial(compile_reader, retriever, k))
    if url is None or reader is None or problems:
        raise InvalidInputError(problems)
    return Plan(
        url=url.bind(k=k, **retriever.options),
        body=None if body is None else body.bind(k=k, **retriever.options),
        headers=(*(line for line in lines if line is not None), b"expect:"),
        header_names=names,
        lookup=lookup,
        reader=reader,
    )


def placeholder_names(retriever: Retriever) -> tuple[str, ...]:
    """Names that the templates of a retriever may hold."""
    looked_up = () if retriever.lookup is None else (retriever.lookup.name,)
    embedded = () if retriever.embedder is None else ("vector",)
    return ("query", "k", *retriever.options, *looked_up, *embedded)


def needs_vector(retriever: Retriever) -> bool:
    """Whether its templates hold the vector of the query; an embedder may also serve the scorer alone."""
    templates = json.dumps([retriever.url, dict(retriever.query_parameters), retriever.json])
    return retriever.embedder is not None and bool(
        _VECTOR.search(templates) or (retriever.sql is not None and _SQL_VECTOR.search(retriever.sql))
    )


def compile_reader(retriever: Retriever, k: int) -> Reader:
    """Return the reader of its responses; raises ValueError naming the field that is wrong."""
    of_the_reranker = retriever.scorer.kind is ScorerKind.RERANK
    return Reader(
        retriever.response,
        k,
        scale=None if of_the_reranker else retriever.scorer.scale,
        decimals=decimals_of(retriever.score_precision),
    )


def build_requests(
    plan: Plan,
    context: ProbeContext,
    queries: Sequence[ProbeQuery],
    user_agent: str,
    vectors: Mapping[str, Sequence[float]],
) -> Iterator[Request]:
    """Yield one request per query, as they are drawn."""
    retriever = context.retriever
    headers = request_headers(plan, context, user_agent)
    url = None if plan.url.names else plan.url.render().decode()
    nothing = b"" if retriever.method in {"POST", "PUT", "PATCH"} else None
    values: dict[str, Value] = {}
    for item in queries:
        values["query"] = item.query
        if vectors:
            values["vector"] = vectors[item.query]
        yield Request(
            tag=item.position,
            url=plan.url.render(**values).decode() if url is None else url,
            method=retriever.method,
            headers=headers
            if context.trace is None
            else request_headers(plan, context, user_agent, context.trace.begin(item)),
            body=nothing if plan.body is None else plan.body.render(**values),
            timeout_seconds=retriever.timeout_seconds,
            max_body_bytes=retriever.max_body_bytes,
            retries=retriever.retries,
            wants_headers=plan.reader.wants_headers or context.shows,
        )


def lookup_request(lookup: CompiledLookup, plan: Plan, context: ProbeContext, user_agent: str) -> Request:
    """Return the request of the lookup."""
    retriever = context.retriever
    return Request(
        url=lookup.url.render().decode(),
        method="GET",
        headers=request_headers(plan, context, user_agent),
        timeout_seconds=retriever.timeout_seconds,
        max_body_bytes=retriever.max_body_bytes,
        retries=retriever.retries,
    )


def request_headers(plan: Plan, context: ProbeContext, user_agent: str, parent: str | None = None) -> tuple[bytes, ...]:
    """Return the header lines of a request: program, run, and trace of the run or of the probe `parent`."""
    headers = plan.headers
    if "user-agent" not in plan.header_names:
        headers = (*headers, header_line("user-agent", f"{user_agent} (+run {context.run_id})"))
    if "traceparent" not in plan.header_names:
        run = traceparent(context.run_id) if context.trace is None else context.trace.traceparent
        headers = (*headers, f"traceparent: {parent or run}".encode())
    return headers


def traceparent(run_id: str) -> str:
    """W3C Trace Context of a run: the trace and the span its probes descend from; ids are never zero."""
    run = blake2b(run_id.encode(), digest_size=24).hexdigest()
    return f"00-{run[:32]}-{run[32:]}-01"


def _lookup(lookup: Lookup, options: Mapping[str, str]) -> CompiledLookup:
    url = url_template(lookup.url, {}, tuple(options))
    return CompiledLookup(url=url.bind(**options), path=Path.of("lookup", lookup.path))


_VECTOR = re.compile(r"\{\{\s*vector\s*\}\}")
_SQL_VECTOR = re.compile(r"(?<!:):vector\b")  # `::vector` is a cast
_DEFAULT_HEADERS = {"accept": "application/json", "content-type": "application/json"}
