"""The API's description made whole: the documents bodies hold, how errors look, and how to prove who one is."""

from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from app.api.catalog.definitions import DOCUMENTS
from app.api.catalog.views import shown_schemas, with_references
from app.api.deps import EXEMPT, SESSION_COOKIE

_COMPONENTS = "#/components/schemas/"
_PROBLEM: dict[str, Any] = {
    "title": "Problem",
    "description": "What went wrong (RFC 9457), with every error found in what was sent.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "examples": ["/problems/not-found"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["message"],
                "properties": {
                    "path": {"type": "string"},
                    "message": {"type": "string"},
                    "file": {"type": "string"},
                    "line": {"type": "integer"},
                },
            },
        },
    },
}
_SECURITY_SCHEMES = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key: `coalmine keys create`."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": SESSION_COOKIE,
        "description": "A signed-in browser; writes also need the page's token in `x-csrf-token`.",
    },
}
_REPLACED = ("HTTPValidationError", "ValidationError")  # FastAPI's own error shape, which never leaves this service


def install_openapi(app: FastAPI) -> None:
    """Make `app.openapi()` give the whole description, OpenAPI 3.1; made once, at the first call."""
    describe = app.openapi
    made: list[dict[str, Any]] = []

    def openapi() -> dict[str, Any]:
        if not made:
            made.append(_completed(deepcopy(describe())))  # two first calls at once make the same, each its own
        return made[0]

    app.__dict__["openapi"] = openapi  # FastAPI's documented way, which mypy takes for a mistake


def _completed(description: dict[str, Any]) -> dict[str, Any]:
    components = description.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    documents = models_json_schema([(model, "validation") for model in DOCUMENTS], ref_template=_COMPONENTS + "{model}")
    for name, schema in documents[1]["$defs"].items():
        schemas.setdefault(name, schema)
    for name in _REPLACED:
        schemas.pop(name, None)
    schemas["Problem"] = _PROBLEM
    for name, schema in shown_schemas().items():
        schemas.setdefault(name, schema)
    components["schemas"] = dict(sorted(with_references(schemas).items()))
    description["paths"] = with_references(description["paths"])
    components["securitySchemes"] = _SECURITY_SCHEMES
    description["security"] = [{name: []} for name in _SECURITY_SCHEMES]
    for path, methods in description["paths"].items():
        for operation in methods.values():
            if path.startswith(EXEMPT):
                operation["security"] = []
            _tell_problems(operation["responses"])
    return description


def _tell_problems(responses: dict[str, Any]) -> None:
    responses.pop("422", None)
    responses["default"] = {
        "description": "What went wrong",
        "content": {"application/problem+json": {"schema": {"$ref": f"{_COMPONENTS}Problem"}}},
    }
