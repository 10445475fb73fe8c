"""The JSON Schema of canary files, for editors and external validation; Coalmine's reader does not use it.

`python -m app.catalog.documents.schema` writes it to `app/catalog/`; a test holds the file against the documents.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.base.documents.auth_documents import AUTH_KINDS, AUTH_SECRETS, TLS_TEXTS
from app.catalog.documents.canary_files import CanaryFile
from app.hooks.documents import HOOK_TEXTS

SCHEMA_FILE = Path(__file__).parents[1] / "canary-file.schema.json"

_FILE_KEYS: Mapping[str, tuple[str, ...]] = {
    "HookDocument": HOOK_TEXTS,
    "TlsDocument": TLS_TEXTS,
    **{kind.__name__: AUTH_SECRETS for kind in AUTH_KINDS.values()},
}
"""The keys of each document that have a `*_file` twin."""

_VARIABLE = {"$ref": "#/$defs/Variable"}
_VARIABLE_DEFINITION = {
    "type": "string",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}",
    "description": "A text with ${NAME} or ${NAME:-default}, filled from the environment.",
}


def canary_file_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) of one YAML document of a canary file.

    It is less strict than the reader: it does not compare two keys, such as the order of two bounds.
    """
    schema = CanaryFile.model_json_schema(by_alias=True, mode="validation")
    definitions = schema["$defs"]
    for name, definition in definitions.items():
        _add_file_twins(definition.get("properties", {}), _FILE_KEYS.get(name, ()))
    expected = definitions["CanaryDocument"]["properties"]["expected_chunks"]
    definitions["CanaryDocument"]["properties"]["expected_top_chunks"] = {**expected, "title": "Expected Top Chunks"}
    request = definitions["RequestDocument"]["properties"]
    request["params"] = {**request["query"], "title": "Params"}
    for listed in ("canaries", "retrievers", "checks", "hooks", "silences", "judges"):
        schema["properties"][listed] = {"anyOf": [schema["properties"][listed], {"type": "null"}]}
    tolerant: dict[str, Any] = _with_variables(schema)
    tolerant["$defs"]["Variable"] = _VARIABLE_DEFINITION
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Coalmine canary file"}
    return {**head, **{key: value for key, value in tolerant.items() if key != "title"}}


def _add_file_twins(properties: dict[str, Any], keys: tuple[str, ...]) -> None:
    """Add a `*_file` twin for each of these keys, and for headers."""
    for key in keys:
        if key in properties:
            description = f"A file that holds the {key}, instead of {key}."
            properties[f"{key}_file"] = {"type": "string", "description": description}
    if "headers" in properties:
        properties["headers_file"] = {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "By header name: a file that holds the value, instead of an entry in headers.",
        }


def _with_variables(schema: Any) -> Any:
    """Return the schema in which every scalar with a restricted form may also be a text with a variable."""
    if isinstance(schema, list):
        return [_with_variables(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {
        key: value if key in {"default", "enum", "const"} else _with_variables(value) for key, value in schema.items()
    }
    scalar = schema.get("type") in {"integer", "number", "boolean"} or "enum" in schema or "pattern" in schema
    if not scalar or isinstance(schema.get("type"), dict):
        return inner
    about = {key: inner.pop(key) for key in ("title", "description") if key in inner}
    return {**about, "anyOf": [inner, _VARIABLE]}


def schema_text() -> str:
    """Return the schema as the file holds it."""
    return json.dumps(canary_file_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
