"""How definitions are described in answers: the documents of users, with what answers add, and secrets as null.

They stay plain JSON in the code, for they are what somebody stored; their schema is made of the documents themselves.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import TypeAdapter, WithJsonSchema

from app.domain.alerts.views import SilenceState
from app.domain.catalog.views import CanaryFields, CheckFields, DefinitionFields, HookFields, RetrieverFields
from app.formats.auth_documents import AUTH_SECRETS
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
_COMPONENTS: Final = "#/components/schemas/"

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
_SECRETS: Final = frozenset({*AUTH_SECRETS, *HOOK_SECRETS.values()})


def shown_schemas() -> dict[str, Any]:
    """Make the schemas of definitions as answers show them, by name; parts of them have names that begin with Shown."""
    schemas: dict[str, Any] = {}
    for name, shown in _SHOWN_AS.items():
        template = f"{_COMPONENTS}Shown{{model}}"
        whole = shown.document.model_json_schema(ref_template=template)
        added = TypeAdapter(shown.added).json_schema(ref_template=_COMPONENTS + "{model}", mode="serialization")
        schemas |= added.pop("$defs", {})
        schemas |= {f"Shown{part}": _as_shown(schema) for part, schema in whole.pop("$defs", {}).items()}
        whole = _as_shown(whole)
        required = [*(whole["properties"] if shown.whole else whole["required"]), *added["required"]]
        properties = {**whole["properties"], **added["properties"]}
        schemas[name] = {**whole, "title": name, "properties": properties, "required": required}
    return schemas


def with_references(description: Any) -> Any:
    """Put references in the place of definitions that a description shows."""
    if isinstance(description, list):
        return [with_references(part) for part in description]
    if not isinstance(description, dict):
        return description
    if _SHOWN in description:
        return {"$ref": _COMPONENTS + description[_SHOWN]}
    return {name: with_references(part) for name, part in description.items()}


def _as_shown(schema: Any) -> Any:
    """Let null be in a schema where answers have it: for what is left out, and for secrets that are set."""
    if isinstance(schema, list):
        return [_as_shown(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {name: _as_shown(part) for name, part in schema.items()}
    properties = whole.get("properties")
    if isinstance(properties, dict) and "type" in whole:
        whole["properties"] = {name: _nullable(name, one) for name, one in properties.items()}
        whole["required"] = [name for name in whole.get("required", ()) if name not in _SECRETS]
    return whole


def _nullable(name: str, schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    if name == "headers":
        return {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
    is_null = name in _SECRETS or ("default" in schema and schema["default"] is None)
    return {"anyOf": [schema, {"type": "null"}]} if is_null else schema
