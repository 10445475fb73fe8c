"""Names of schemas in the API's description, for readers of generated code: `Run`, `RunPage`, `RuleSettings`.

A view is named without its ending, a page by its items, and a part of a document in responses `...Settings`.
"""

from collections.abc import Mapping
from typing import Any, Final

COMPONENTS: Final = "#/components/schemas/"
_VALUES: Final = frozenset({"default", "enum", "const", "examples", "required"})
_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs"})


def settings_name(model: str) -> str:
    """Name a document, or a part of one, as answers show it; an enumeration keeps its name."""
    return f"{model.removesuffix('Document')}Settings" if model.endswith("Document") else model


def plain_names(schemas: Mapping[str, Any]) -> dict[str, str]:
    """Return the name that each schema is published by. Raises ValueError where two would have the same."""
    names = {name: _plain_name(name, schema) for name, schema in schemas.items()}
    taken: dict[str, str] = {}
    for name, plain in names.items():
        if taken.setdefault(plain, name) != name:
            raise ValueError(f"'{name}' and '{taken[plain]}' are both published as '{plain}'")
    return names


def _plain_name(name: str, schema: Any) -> str:
    """Pages of different things are all called Page by pydantic, with the type they list in brackets."""
    properties = schema.get("properties", {})
    if properties.keys() == {"items", "next"} and "$ref" in properties["items"].get("items", {}):
        listed = properties["items"]["items"]["$ref"].removeprefix(COMPONENTS)
        return f"{listed.removesuffix('View')}Page"
    return name.removesuffix("View")


def renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """Return a schema, or a larger part of the description, whose references go by these names."""
    if isinstance(schema, list):
        return [renamed(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {keyword: renamed(part, names) for keyword, part in schema.items()}
    if isinstance(reference := whole.get("$ref"), str) and reference.startswith(COMPONENTS):
        name = reference.removeprefix(COMPONENTS)
        whole["$ref"] = COMPONENTS + names.get(name, name)
    return whole


def titled(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its name as the only title: generators name types by titles, and those of fields repeat.

    A title of a field that says more than its name becomes its description, where it has none. The long form of
    what also has a short one is named after it, or generators would number it.
    """
    whole = {**_untitled(schema, None), "title": name}
    if "anyOf" in whole:
        whole["anyOf"] = [{**one, "title": f"{name}Fields"} if "properties" in one else one for one in whole["anyOf"]]
    return whole


def plain_parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a parameter, which is left out and never null, without a title and without null."""
    schema = {keyword: part for keyword, part in parameter["schema"].items() if keyword != "title"}
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        schema = {**{keyword: part for keyword, part in schema.items() if keyword != "anyOf"}, **kinds[0]}
    return {**parameter, "schema": schema}


def _untitled(schema: Any, field: str | None) -> Any:
    if isinstance(schema, list):
        return [_untitled(part, None) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    whole = {keyword: _without_titles(keyword, part) for keyword, part in schema.items() if keyword != "title"}
    title = schema.get("title")
    if field is not None and title and title.lower() != field.replace("_", " ").lower() and "description" not in whole:
        whole["description"] = title
    return whole


def _without_titles(keyword: str, value: Any) -> Any:
    if keyword in _VALUES:
        return value
    if keyword in _BY_NAME and isinstance(value, Mapping):
        return {name: _untitled(part, name) for name, part in value.items()}
    return _untitled(value, None)
