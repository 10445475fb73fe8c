"""How definitions are described in answers: the documents of users, with what answers add, and secrets as null.

They stay plain JSON in the code, for they are what somebody stored; their schema is made of the documents themselves.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import TypeAdapter, WithJsonSchema

from app.api.schema_names import COMPONENTS, renamed, settings_name
from app.domain.alerts.views import SilenceState
from app.domain.catalog.views import CanaryFields, CheckFields, DefinitionFields, HookFields, RetrieverFields
from app.formats.auth_documents import AUTH_KINDS, AUTH_SECRETS
from app.formats.catalog.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    RetrieverDocument,
    SilenceDocument,
)
from app.formats.delivery.hook_documents import HOOK_SECRETS
from app.formats.fields import Document

_SHOWN: Final = "x-shown"

RetrieverView: TypeAlias = Annotated[dict[str, Any], WithJsonSchema({_SHOWN: "RetrieverView"})]
CheckView: TypeAlias = Annotated[dict[str, Any], WithJsonSchema({_SHOWN: "CheckView"})]
HookView: TypeAlias = Annotated[dict[str, Any], WithJsonSchema({_SHOWN: "HookView"})]
SilenceView: TypeAlias = Annotated[dict[str, Any], WithJsonSchema({_SHOWN: "SilenceView"})]
CanaryView: TypeAlias = Annotated[dict[str, Any], WithJsonSchema({_SHOWN: "CanaryView"})]


class _SilenceFields(DefinitionFields, SilenceState):
    """What answers add to a silence."""


class _Shown(NamedTuple):
    document: type[Document]
    added: Any
    whole: bool
    """Answers have every field of the document; a hook has those of its kind."""


_SHOWN_AS: Final[Mapping[str, _Shown]] = {
    "RetrieverView": _Shown(RetrieverDocument, RetrieverFields, whole=True),
    "CheckView": _Shown(CheckDocument, CheckFields, whole=True),
    "HookView": _Shown(HookDocument, HookFields, whole=False),
    "SilenceView": _Shown(SilenceDocument, _SilenceFields, whole=True),
    "CanaryView": _Shown(CanaryDocument, CanaryFields, whole=True),
}
_SECRETS: Final[Mapping[str, AbstractSet[str]]] = {
    "HookDocument": frozenset(HOOK_SECRETS.values()),
    "TlsDocument": frozenset({"key"}),
    **{kind.__name__: frozenset(AUTH_SECRETS) for kind in AUTH_KINDS.values()},
}
"""The fields of each document that answers show as null where they are set; those not set they may leave out."""
_HEADERS: Final = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
"""Values of headers are secrets, but for those that a preset says."""

_OF_REQUESTS: Final = frozenset({"additionalProperties", "allOf"})
"""Keywords of documents that are about requests alone: no other fields, and which kind does without what."""
_BOUNDS: Final = frozenset(
    {
        *("default", "format", "pattern", "minLength", "maxLength", "propertyNames", "minProperties", "maxProperties"),
        *("minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
)
"""Keywords of fields that are about requests alone; bounds of a rule depend on its kind besides."""


def shown_schemas() -> dict[str, Any]:
    """Make the schemas of definitions as answers show them, by name; those of their parts end in Settings."""
    schemas: dict[str, Any] = {}
    for name, shown in _SHOWN_AS.items():
        whole = shown.document.model_json_schema(ref_template=COMPONENTS + "{model}", mode="serialization")
        added = TypeAdapter(shown.added).json_schema(ref_template=COMPONENTS + "{model}", mode="serialization")
        parts = whole.pop("$defs", {})
        names = {part: settings_name(part) for part in parts}
        schemas |= added.pop("$defs", {})
        schemas |= {names[part]: renamed(_as_shown(part, schema, whole=True), names) for part, schema in parts.items()}
        whole = renamed(_as_shown(shown.document.__name__, whole, whole=shown.whole), names)
        properties = {**whole["properties"], **added["properties"]}
        schemas[name] = {**whole, "properties": properties, "required": [*whole["required"], *added["required"]]}
    return schemas


def with_references(description: Any) -> Any:
    """Put references in the place of definitions that a description shows."""
    if isinstance(description, list):
        return [with_references(part) for part in description]
    if not isinstance(description, dict):
        return description
    if _SHOWN in description:
        return {"$ref": COMPONENTS + description[_SHOWN]}
    return {name: with_references(part) for name, part in description.items()}


def _as_shown(document: str, schema: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Make the schema of a document that of what answers show of it: every field is there, and no secret is said."""
    if "properties" not in schema:
        return dict(schema)
    secrets = _SECRETS.get(document, frozenset())
    properties = {name: _field(part, secret=name in secrets, name=name) for name, part in schema["properties"].items()}
    required = [name for name in (properties if whole else schema["required"]) if name not in secrets]
    kept = {keyword: part for keyword, part in schema.items() if keyword not in _OF_REQUESTS}
    return {**kept, "properties": properties, "required": required}


def _field(schema: Mapping[str, Any], *, secret: bool, name: str) -> dict[str, Any]:
    if name == "headers":
        return dict(_HEADERS)
    shown: dict[str, Any] = _unbounded(schema)
    if not secret or {"type": "null"} in schema.get("anyOf", ()):
        return shown
    return {"anyOf": [shown, {"type": "null"}]}


def _unbounded(schema: Any) -> Any:
    """Leave the type of a field, without what requests have to keep to."""
    if isinstance(schema, list):
        return [_unbounded(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {keyword: _unbounded(part) for keyword, part in schema.items() if keyword not in _BOUNDS}
