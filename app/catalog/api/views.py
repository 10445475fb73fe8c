"""Schemas of definitions in responses: the users' documents with added fields, and null for secrets.

In the code they are plain JSON, as stored; their schemas are derived from the documents.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import TypeAdapter, WithJsonSchema

from app.alerts.domain.views import SilenceState
from app.base.api.schema_names import COMPONENTS, renamed, settings_name
from app.base.documents.auth_documents import AUTH_KINDS, AUTH_SECRETS
from app.base.documents.fields import Document
from app.catalog.documents.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    JudgeDocument,
    RetrieverDocument,
    SilenceDocument,
)
from app.catalog.domain.views import (
    CanaryFields,
    CheckFields,
    DefinitionFields,
    HookFields,
    JudgeFields,
    RetrieverFields,
)
from app.hooks.documents import HOOK_SECRETS

_SHOWN: Final = "x-shown"

DefinitionJson: TypeAlias = dict[str, Any]
"""A definition as its document describes it, with the fields that responses add."""
RetrieverView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "RetrieverView"})]
CheckView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "CheckView"})]
HookView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "HookView"})]
JudgeView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "JudgeView"})]
SilenceView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "SilenceView"})]
CanaryView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "CanaryView"})]


class _SilenceFields(DefinitionFields, SilenceState):
    """Fields that responses add to a silence."""


class _View(NamedTuple):
    document: type[Document]
    added: Any
    whole: bool
    """Whether responses have every field of the document; a hook has those of its kind."""


_VIEWS: Final[Mapping[str, _View]] = {
    "RetrieverView": _View(RetrieverDocument, RetrieverFields, whole=True),
    "CheckView": _View(CheckDocument, CheckFields, whole=True),
    "HookView": _View(HookDocument, HookFields, whole=False),
    "JudgeView": _View(JudgeDocument, JudgeFields, whole=True),
    "SilenceView": _View(SilenceDocument, _SilenceFields, whole=True),
    "CanaryView": _View(CanaryDocument, CanaryFields, whole=True),
}
_SECRETS: Final[Mapping[str, AbstractSet[str]]] = {
    "HookDocument": frozenset(HOOK_SECRETS.values()),
    "TlsDocument": frozenset({"key"}),
    **{kind.__name__: frozenset(AUTH_SECRETS) for kind in AUTH_KINDS.values()},
}
"""The fields of each document that responses show as null where set, and may leave out where not."""
_HEADERS: Final = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
"""Values of headers are secrets, except those of a preset."""

_REQUEST_KEYWORDS: Final = frozenset({"additionalProperties", "allOf"})
"""Keywords of documents that apply to requests only."""
_BOUND_KEYWORDS: Final = frozenset(
    {
        *("default", "format", "pattern", "minLength", "maxLength", "propertyNames", "minProperties", "maxProperties"),
        *("minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
)
"""Keywords of fields that apply to requests only."""


def response_schemas() -> dict[str, Any]:
    """Return the schemas of definitions in responses by name; those of their parts end in Settings."""
    schemas: dict[str, Any] = {}
    for name, shown in _VIEWS.items():
        whole = shown.document.model_json_schema(ref_template=COMPONENTS + "{model}", mode="serialization")
        added = TypeAdapter(shown.added).json_schema(ref_template=COMPONENTS + "{model}", mode="serialization")
        parts = whole.pop("$defs", {})
        names = {part: settings_name(part) for part in parts}
        schemas |= added.pop("$defs", {})
        schemas |= {
            names[part]: renamed(_response_schema(part, schema, whole=True), names) for part, schema in parts.items()
        }
        whole = renamed(_response_schema(shown.document.__name__, whole, whole=shown.whole), names)
        properties = {**whole["properties"], **added["properties"]}
        schemas[name] = {**whole, "properties": properties, "required": [*whole["required"], *added["required"]]}
    return schemas


def with_references(description: Any) -> Any:
    """Return a description with references in place of the marked definitions."""
    if isinstance(description, list):
        return [with_references(part) for part in description]
    if not isinstance(description, dict):
        return description
    if _SHOWN in description:
        return {"$ref": COMPONENTS + description[_SHOWN]}
    return {name: with_references(part) for name, part in description.items()}


def _response_schema(document: str, schema: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Return the response schema of a document: every field is present, and secrets are null."""
    if "properties" not in schema:
        return dict(schema)
    secrets = _SECRETS.get(document, frozenset())
    properties = {name: _field(part, secret=name in secrets, name=name) for name, part in schema["properties"].items()}
    required = [name for name in (properties if whole else schema["required"]) if name not in secrets]
    kept = {keyword: part for keyword, part in schema.items() if keyword not in _REQUEST_KEYWORDS}
    return {**kept, "properties": properties, "required": required}


def _field(schema: Mapping[str, Any], *, secret: bool, name: str) -> dict[str, Any]:
    if name == "headers":
        return dict(_HEADERS)
    shown: dict[str, Any] = _without_bounds(schema)
    if not secret or {"type": "null"} in schema.get("anyOf", ()):
        return shown
    return {"anyOf": [shown, {"type": "null"}]}


def _without_bounds(schema: Any) -> Any:
    """Return the type of a field without the bounds for requests."""
    if isinstance(schema, list):
        return [_without_bounds(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {keyword: _without_bounds(part) for keyword, part in schema.items() if keyword not in _BOUND_KEYWORDS}
