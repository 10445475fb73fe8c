"""Descriptions of responses for OpenAPI, where FastAPI cannot derive them from the route."""

from typing import Any

from fastapi.responses import PlainTextResponse

Answers = dict[int | str, dict[str, Any]]

_MEANINGS = {200: "Successful Response", 201: "Created", 202: "Accepted"}


class YamlResponse(PlainTextResponse):
    """A text that is YAML."""

    media_type = "application/yaml"


def answers_with(model: Any, *statuses: int) -> Answers:
    """Return the description of JSON responses of this type with these statuses."""
    return {status: {"description": _MEANINGS[status], "model": model} for status in statuses}


def refusals(*statuses: int) -> Answers:
    """Return the description of problems specific to a route; see `openapi`."""
    return {status: {"description": ""} for status in statuses}


def answers(*statuses: int, types: tuple[str, ...]) -> Answers:
    """Return the description of text responses of these media types with these statuses."""
    content = {kind: {"schema": {"type": "string"}} for kind in types}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}
