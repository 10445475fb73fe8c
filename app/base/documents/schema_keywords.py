"""Standard keywords of JSON Schema for constraints that pydantic writes by its own names.

Where a validator of ours stands between a type and its bounds, pydantic writes `ge` and `maxLength` of an object into
the schema, which nobody else reads.
"""

from collections.abc import Mapping
from typing import Any, Final

_BOUNDS: Final[Mapping[str, str]] = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
}
_OF_OBJECTS: Final[Mapping[str, str]] = {"maxLength": "maxProperties", "minLength": "minProperties"}
_VALUES: Final = frozenset({"default", "enum", "const", "examples"})
"""Keywords whose values are no schemas."""
_BY_NAME: Final = frozenset({"properties", "$defs"})
"""Keywords whose values are schemas by name."""


def standard_keywords(schema: Any) -> Any:
    """Return the schema with every constraint under the keyword of JSON Schema."""
    if isinstance(schema, list):
        return [standard_keywords(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    known = {**_BOUNDS, **_OF_OBJECTS} if schema.get("type") == "object" else _BOUNDS
    return {known.get(keyword, keyword): _standard(keyword, value) for keyword, value in schema.items()}


def _standard(keyword: str, value: Any) -> Any:
    if keyword in _VALUES:
        return value
    if keyword in _BY_NAME and isinstance(value, dict):
        return {name: standard_keywords(part) for name, part in value.items()}
    return standard_keywords(value)
