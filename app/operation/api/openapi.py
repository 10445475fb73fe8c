"""Completes the OpenAPI description: schemas of documents, problems, and authentication."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from app.base.api.bodies import with_example
from app.base.api.deps import EXEMPT, SESSION_COOKIE
from app.base.api.problems import PROBLEM_TYPE, ProblemView
from app.base.api.schemas import COMPONENTS, plain_names, plain_parameter, renamed, titled
from app.definitions.api import response_schemas, with_references
from app.reports.api import DOCUMENTS

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


def _complete(description: dict[str, Any]) -> dict[str, Any]:
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
            if path.startswith(EXEMPT):
                operation["security"] = []
            if "parameters" in operation:
                operation["parameters"] = [plain_parameter(one) for one in operation["parameters"]]
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]
                operation["requestBody"]["content"] = {kind: with_example(part) for kind, part in content.items()}
            _add_problems(path, method, operation)
    return description


def _problem(meaning: str) -> dict[str, Any]:
    return {"description": meaning, "content": {PROBLEM_TYPE: {"schema": {"$ref": f"{COMPONENTS}Problem"}}}}


def _add_problems(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add every problem status of an operation; routes declare only their specific ones."""
    responses = operation["responses"]
    own = {int(status) for status in responses if int(status) >= HTTPStatus.BAD_REQUEST}
    for status in sorted({*own, *_statuses(path, method, operation)}):
        responses[str(status)] = {"$ref": _RESPONSES + _PROBLEMS[status][0]}


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
