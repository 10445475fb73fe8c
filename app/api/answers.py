"""The answers of routes in the API's description, where FastAPI cannot read them off a function."""

from typing import Any

from fastapi.responses import PlainTextResponse

Answers = dict[int | str, dict[str, Any]]

_MEANINGS = {200: "Successful Response", 201: "Created", 202: "Accepted"}


class YamlResponse(PlainTextResponse):
    """A text that is YAML."""

    media_type = "application/yaml"


def answers_with(model: Any, *statuses: int) -> Answers:
    """Describe answers of these statuses as JSON of this type."""
    return {status: {"description": _MEANINGS[status], "model": model} for status in statuses}


def refusals(*statuses: int) -> Answers:
    """Describe problems of a route that others of its kind do not answer with; see `openapi`."""
    return {status: {"description": ""} for status in statuses}


def answers(*statuses: int, types: tuple[str, ...]) -> Answers:
    """Describe answers of these statuses as texts of these media types."""
    content = {kind: {"schema": {"type": "string"}} for kind in types}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}
