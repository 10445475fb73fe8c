"""Answers held against the API's description: each has the schema of its route, and nothing the schema does not name.

A client of `watched` is checked with every answer it gets, so that each test of the API is one of its description too.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
from fastapi import FastAPI
from jsonschema_rs import Draft202012Validator, Registry

from tests.support.asgi_client import TestClient

JSON = "application/json"
_NAME = "urn:description"


def closed(schema: Any) -> Any:
    """Give the schema that refuses what it does not name: objects with properties take no others."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {name: closed(part) for name, part in schema.items()}
    if isinstance(whole.get("properties"), dict) and whole.get("type") == "object":
        whole.setdefault("additionalProperties", False)
    return whole


def _of_the_description(schema: Any) -> Any:
    """Give the schema of a route with references that lead into the description from anywhere."""
    if isinstance(schema, list):
        return [_of_the_description(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: f"{_NAME}{part}" if name == "$ref" and isinstance(part, str) else _of_the_description(part)
        for name, part in schema.items()
    }


class Description:
    """The description of an app, by which answers are judged."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._components = Registry([(_NAME, {"components": closed(document["components"])})])
        # Templates with fewer parameters first: `/runs/{id}` does not swallow a fixed name.
        ordered = sorted(document["paths"], key=lambda path: path.count("{"))
        self._paths = [(re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)), path) for path in ordered]
        self._validators: dict[tuple[str, str, str], Draft202012Validator | None] = {}

    def template(self, path: str) -> str | None:
        """Find the path of the description that an address is one of; None for pages and files."""
        return next((template for pattern, template in self._paths if pattern.fullmatch(path)), None)

    def schemas(self) -> dict[tuple[str, str, str], Mapping[str, Any]]:
        """Give the schemas of JSON answers of success, by method, path and status."""
        return {
            (method.upper(), path, status): answer["content"][JSON].get("schema", {})
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            for status, answer in operation["responses"].items()
            if status.startswith("2") and JSON in answer.get("content", {})
        }

    def problems(self, method: str, path: str, status: int, body: Any) -> list[str]:
        """List what of an answer is not as described, each with its place."""
        template = self.template(path)
        if template is None:
            return []
        name = (method, template, str(status))
        if name not in self._validators:
            self._validators[name] = self._validator(self.schemas().get(name))
        validator = self._validators[name]
        if validator is None:
            return [f"{method} {template}: status {status} has no description"]
        return [
            f"{method} {template} {status} at {_place(error.instance_path)}: {error.message[:300]}"
            for error in validator.iter_errors(body)
        ]

    def _validator(self, schema: Mapping[str, Any] | None) -> Draft202012Validator | None:
        if schema is None:
            return None
        return Draft202012Validator(_of_the_description(closed(schema)), registry=self._components)


def _place(path: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{part!r}]" for part in path)


_MADE: list[Description] = []


def description(app: FastAPI) -> Description:
    """Give the description of an app; all apps of a process have the same routes."""
    if not _MADE:
        _MADE.append(Description(app.openapi()))
    return _MADE[0]


def watched(client: TestClient) -> TestClient:
    """Give the client back, which from now on fails with an answer that is not as described."""

    def judge(answer: httpx2.Response) -> None:
        kind = answer.headers.get("content-type", "").partition(";")[0]
        of_api = answer.url.path.startswith("/v1/") and kind == JSON
        if not (answer.is_success and of_api and answer.read()):  # HEAD and 204 have no body
            return
        found = description(client.app).problems(  # type: ignore[arg-type] # it is a FastAPI
            answer.request.method, answer.url.path, answer.status_code, answer.json()
        )
        assert not found, "\n".join(found[:10])

    client.event_hooks["response"].append(judge)
    return client
