"""Routes of the service itself: liveness, readiness, metrics, and the API's description."""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from http import HTTPStatus
from typing import Any, Final

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from app.base.api.bodies import (
    COMPONENTS,
    DOCUMENTS,
    PROBLEM_TYPE,
    ProblemView,
    as_problem,
    plain_names,
    plain_parameter,
    problem,
    renamed,
    text_answers,
    titled,
    with_example,
)
from app.base.api.requests import EXEMPT, SESSION_COOKIE, may_read, plain_router
from app.base.errors import StoreUnavailableError
from app.base.web.pages import render
from app.definitions.api import response_schemas, with_references
from app.operation.service.self_monitor import Issue, find_read_error
from app.reports import metrics

router = plain_router(tags=["service"])
probes = plain_router(tags=["service"])
"""What a worker alone answers too."""

_EXPOSITIONS = ("text/plain", "application/openmetrics-text")
# A thread of its own: readiness must answer while all route threads are busy.
_CHECKS = CapacityLimiter(1)


@probes.get("/livez", response_class=PlainTextResponse)
async def livez() -> str:
    """Return that the process answers."""
    return "ok\n"


@probes.get("/readyz", response_class=PlainTextResponse)
async def readyz(request: Request) -> Response:
    """Return whether requests can be served: the store can be read and written, and the worker, if any, is running.

    Other issues of this process follow "ok", a line each. Their details, which may contain paths and addresses, are
    shown to keys that may read; others see the name of an issue.
    """
    worker = request.app.state.worker
    issues = request.app.state.exposition.process.monitor.issues
    if worker is not None and not worker.alive:
        return problem("not-ready", "Not ready", 503, "the worker is not running")
    try:
        unusable = await anyio.to_thread.run_sync(find_read_error, request.app.state.access.store, limiter=_CHECKS)
    except StoreUnavailableError as error:
        return as_problem(
            error if await may_read(request) else StoreUnavailableError("the database cannot be used now")
        )
    if unusable is not None:
        return problem("not-ready", "Not ready", 503, unusable)
    failure = request.app.state.access.store.write_failure or issues.get(Issue.STORE_WRITE)
    shown = bool(failure is not None or issues) and await may_read(request)
    if failure is not None:
        detail = f"{failure} (it can be read, but takes no writes)" if shown else str(Issue.STORE_WRITE)
        return problem("not-ready", "Not ready", 503, detail)
    lines = ["ok", *(f"{issue}: {detail}" if shown else str(issue) for issue, detail in issues.items())]
    return PlainTextResponse("\n".join(lines) + "\n")


@probes.get("/metrics", response_class=Response, responses=text_answers(200, types=_EXPOSITIONS))
async def scrape(request: Request) -> Response:
    """Return the metrics without reading the store; OpenMetrics, with run ids as exemplars, if accepted."""
    exposition: metrics.Exposition = request.app.state.exposition
    body, content_type = exposition.render(request.headers.get("accept", ""))
    return Response(body, media_type=content_type)


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> JSONResponse:
    """Return the API's description."""
    return JSONResponse(request.app.openapi())


@router.get("/docs", include_in_schema=False, response_class=HTMLResponse)
def docs(request: Request) -> HTMLResponse:
    """Show the API's description, without requests to the internet."""
    return render(request, "operation/docs.html")


_RESPONSES: Final = "#/components/responses/"
_SECURITY_SCHEMES: Final = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key: `coalmine keys create`."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": SESSION_COOKIE,
        "description": "A signed-in browser; writes also need the page's token in `x-csrf-token`.",
    },
}
_PROBLEMS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("BadAddress", "The address holds control characters."),
    401: ("Unauthorized", "A key is needed, or the one sent is unknown or revoked."),
    403: ("Forbidden", "The key lacks the scope."),
    404: ("NotFound", "The object does not exist."),
    409: ("Conflict", "The object's present state does not allow this, or a canary file manages it."),
    413: ("TooLarge", "The request is too large."),
    415: ("UnsupportedContent", "The body is not sent as JSON."),
    422: ("InvalidInput", "The request is invalid; `errors` has each problem with its place."),
    429: ("TooManyRequests", "The key has too much under way, or too many unknown keys came; see `Retry-After`."),
    500: ("Broken", "An internal error."),
    503: ("Unavailable", "The database is unavailable, or a concurrency limit is reached; try again later."),
}
"""(name, meaning) of problem responses by status."""
_PROTOBUF: Final = "application/x-protobuf"
_UNREADABLE: Final = "The body cannot be read, or the address holds control characters."
_PARAMETERS: Final[Mapping[str, str]] = {
    "after": "Where the page begins: `next` of the page before.",
    "limit": "Most items of a page.",
    "suite": "Name of the suite.",
    "run_id": "Id of the run.",
    "key": "Key of the canary within its suite.",
    "format": "Format of the files or of the answer.",
    "from": "Beginning of the period, RFC 3339.",
    "to": "End of the period, RFC 3339; without it now.",
    "state": "Only those in this state.",
    "idempotency-key": "A name of your own for this request: for a day the same one counts once.",
    "item": "Token of the item, as `next` gives it.",
    "corpus": "Name of the collection of texts.",
    "dry_run": "Only tell what would change.",
    "category": "Only canaries of this category.",
    "tag": "Only canaries with this tag.",
    "points": "Most points over the period.",
    "columns": "Most columns; runs beside each other share one.",
    "alert_id": "Id of the alert.",
    "incident_id": "Id of the incident.",
    "delivery_id": "Id of the delivery.",
    "rescoring_id": "Id of the re-scoring.",
    "gate": "Gate of the promotion: offline, judge or exposure.",
    "as_documents": "The ids in the files are of documents, not of chunks.",
    "split": "Of BEIR files with several qrels: `qrels/SPLIT.tsv` is read.",
    "grades": "A map of the files' grades such as `1=0,4=3`, or their scale such as `0-4`.",
    "column": "Meaning of a CSV column as `NAME=COLUMN`; may be repeated.",
    "measure": "Name of a measure, such as `coverage` or `R@5`.",
    "check": "Only those of this check.",
    "hook": "Only those for this hook.",
    "verdict": "Only canaries that are `healthy` or `degraded`.",
    "reason": "Only canaries degraded for this reason.",
    "outcome": "Only canaries whose probe ended so.",
    "before": "Id of the earlier run.",
    "now": "Id of the later run.",
    "change": "Only canaries that changed so.",
    "habit": "Id of the habit.",
    "decided": "Also the disputed items that somebody has decided.",
}
"""What a parameter is, by its name; those that say it themselves keep their words."""
_NAMED: Final = {"tasks": "annotation task"}
_REPLACED = ("HTTPValidationError", "ValidationError")  # FastAPI's own error shape, which never leaves this service


def install_openapi(app: FastAPI) -> None:
    """Make `app.openapi()` return the complete description, OpenAPI 3.1, computed at the first call."""
    describe = app.openapi
    cached: list[dict[str, Any]] = []

    def openapi() -> dict[str, Any]:
        if not cached:
            cached.append(_complete(deepcopy(describe())))  # two first calls at once make the same, each its own
        return cached[0]

    app.__dict__["openapi"] = openapi  # FastAPI's documented way, which mypy takes for a mistake


def _summary(description: str) -> str:
    """Return what an operation does in a line of a list: the first clause of its description."""
    return re.split(r"[.;:](?:\s|$)", " ".join(description.split()), maxsplit=1)[0]


_ABOUT: Final = """Everything that pages and commands do can be done here.
Send a key as `Authorization: Bearer KEY` (`coalmine keys create`, or the page *Keys*). What you try on this page is
signed by the browser's session.

    URL=http://127.0.0.1:8000 CHECK=docs  # the address of this page, and one of your checks
    curl -H "Authorization: Bearer $KEY" $URL/v1/checks
    curl -H "Authorization: Bearer $KEY" -H "content-type: application/json" \\
      -d '{"wait_seconds": 60}' $URL/v1/checks/$CHECK/runs

Lists come in pages: `next` of a page goes into `after` of the next request. Errors are problems by RFC 9457, whose
`errors` have each field and reason. Times are RFC 3339, in UTC."""


def _complete(description: dict[str, Any]) -> dict[str, Any]:
    description["info"]["description"] = _ABOUT
    components = description.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    documents = models_json_schema([(model, "validation") for model in DOCUMENTS], ref_template=COMPONENTS + "{model}")
    problem = TypeAdapter(ProblemView).json_schema(ref_template=COMPONENTS + "{model}", mode="serialization")
    for name, schema in {
        **documents[1]["$defs"],
        **response_schemas(),
        **problem.pop("$defs"),
        "ProblemView": problem,
    }.items():
        schemas.setdefault(name, schema)
    for name in _REPLACED:
        schemas.pop(name, None)
    schemas = with_references(schemas)
    names = plain_names(schemas)
    published = {names[name]: titled(names[name], renamed(schema, names)) for name, schema in schemas.items()}
    components["schemas"] = dict(sorted(published.items()))
    components["responses"] = {name: _problem(meaning) for name, meaning in _PROBLEMS.values()}
    components["securitySchemes"] = _SECURITY_SCHEMES
    description["paths"] = renamed(with_references(description["paths"]), names)
    description["security"] = [{name: []} for name in _SECURITY_SCHEMES]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            operation["summary"] = _summary(operation["description"])
            if path.startswith(EXEMPT):
                operation["security"] = []
            if "parameters" in operation:
                operation["parameters"] = [_described(plain_parameter(one), path) for one in operation["parameters"]]
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]
                operation["requestBody"]["content"] = {kind: with_example(part) for kind, part in content.items()}
            _add_problems(path, method, operation)
    return description


def _described(parameter: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a parameter with its description; `slug` is the name of what its path lists."""
    kind = path.removeprefix("/v1/").partition("/")[0]
    of_path = f"Name of the {_NAMED.get(kind, kind.removesuffix('s'))}." if parameter["name"] == "slug" else ""
    meaning = of_path or _PARAMETERS.get(parameter["name"], "")
    described = "description" in parameter or "description" in parameter["schema"]
    return {**parameter, "description": meaning} if meaning and not described else dict(parameter)


def _problem(meaning: str) -> dict[str, Any]:
    return {"description": meaning, "content": {PROBLEM_TYPE: {"schema": {"$ref": f"{COMPONENTS}Problem"}}}}


def _add_problems(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add every problem status of an operation; routes declare only their specific ones."""
    responses = operation["responses"]
    own = {int(status) for status in responses if int(status) >= HTTPStatus.BAD_REQUEST}
    for status in sorted({*own, *_statuses(path, method, operation)}):
        responses[str(status)] = {"$ref": _RESPONSES + _PROBLEMS[status][0]}
    binary = operation.get("requestBody", {}).get("content", {}).get(_PROTOBUF)
    if binary is not None:  # who sends protobuf is refused in it
        status_of_rpc = {"schema": binary["schema"]}
        for status in responses.keys() - {"200"}:
            meaning = _UNREADABLE if status == "400" else _PROBLEMS[int(status)][1]
            described = _problem(meaning)
            described["content"][_PROTOBUF] = status_of_rpc
            responses[status] = described


def _statuses(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[int]:
    yield from (400, 500)
    if path == "/livez":
        return
    yield 503
    if path.startswith(EXEMPT):
        return
    yield from (401, 403, 429)
    if path.startswith("/v1/"):
        yield from (404, 422)
    if method != "get":
        yield 409
    if "requestBody" in operation:
        yield from (413, 415)
