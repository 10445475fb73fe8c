"""Bodies of requests other than documents, pages of lists, and the names and titles of published schemas.

The documents are described in `documents` of their subjects; the whole description is put together in `operation`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from io import StringIO
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar

from fastapi import Query
from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from app.base.documents.fields import Document, Flag, Number, Text, Whole, field_error
from app.base.texts import Source

LARGEST_ID: Final = 2**63 - 1
Limit = Annotated[int, Query(ge=1, le=500)]
"""How many items a page has at most."""
After = Annotated[str, Query(max_length=200)]
"""The `next` of the page before, where it is a name; `Before` where it is an id and newer ones come first."""
Before = Annotated[int | None, Query(alias="after", ge=1, le=LARGEST_ID, description="the `next` of the page before")]
Slug = Annotated[str | None, Query(pattern="^[a-z0-9-]{1,64}$")]
Version = Annotated[
    str | None, Query(alias="measures_version", max_length=40, description="that of a re-scoring, such as 2.r7")
]


class RunRequest(Document):
    """A request to run a check now."""

    trigger: Literal["api", "update", "cli", "page"] = "api"
    index_version: Annotated[Text, StringConstraints(max_length=200)] | None = None
    wait_seconds: Annotated[Number, Field(ge=0, le=300)] = 0


def _moment(value: object) -> object:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise field_error("must be a time with a time zone, such as 2026-01-31T12:00:00Z")
    return moment


class RescoringRequest(Document):
    """A request to re-score recorded runs with the present judgments."""

    since: Annotated[datetime, BeforeValidator(_moment)] | None = None
    """Only runs that ended from then on; default all."""
    wait_seconds: Annotated[Number, Field(ge=0, le=300)] = 0


class SuiteFiles(Document):
    """Files of another tool: their texts by name."""

    files: Annotated[dict[Annotated[str, StringConstraints(max_length=256)], str], Field(min_length=1, max_length=50)]
    as_documents: Flag = False
    """Their ids are documents, not chunks."""
    notes: tuple[str, ...] = ()
    """Notes of the export, ignored, so that its response can be sent as it is."""


class TextFiles(Document):
    """Texts of files by name."""

    files: Annotated[dict[Annotated[str, StringConstraints(max_length=256)], str], Field(min_length=1, max_length=50)]

    @property
    def sources(self) -> list[Source]:
        """The files, to be read line by line."""
        return [Source(name=name, lines=partial(StringIO, text)) for name, text in self.files.items()]


class TryRequest(Document):
    """A test request to a retriever, with changes to its stored definition."""

    query: Annotated[Text, StringConstraints(max_length=10_000)]
    k: Annotated[Whole, Field(ge=1, le=1_000)] = 10
    retriever: dict[str, Any] = Field(default={})
    """Parts that replace the stored ones; of `request`, key by key. Null keeps a stored secret."""
    answer: Annotated[str, StringConstraints(max_length=5_000_000)] | None = None
    """A response body to parse instead of sending the request."""
    suggest: Flag = False
    """Suggest mappings even if hits were found."""


Proposals = (
    Literal["all"] | Annotated[tuple[Annotated[str, StringConstraints(max_length=18)], ...], Field(max_length=1_000)]
)


class ReanchorRequest(Document):
    """Decisions on proposed judgments: their ids, or `all` open ones."""

    accept: Proposals = ()
    reject: Proposals = ()


class AcknowledgeRequest(Document):
    """An acknowledgement of an alert."""

    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None


class BaselineRequest(Document):
    """A new baseline of a check: one of its runs, or its present state."""

    run: Annotated[Text, StringConstraints(max_length=40)] | None = None
    """Compare with this run, and with the baseline learned from the runs up to it."""
    accept: Flag = False
    """Accept the present state as the baseline."""
    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.run is None) != self.accept:
            raise field_error("must have either 'run' or 'accept: true'")
        return self


class NotNormalRequest(Document):
    """A habit that is not normal."""

    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None


ViewT = TypeVar("ViewT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[ViewT]):
    """A page of a list: `next` goes into `after` of the next request; null at the end."""

    items: list[ViewT]
    next: str | None


COMPONENTS: Final = "#/components/schemas/"
DOCUMENTS: Final[dict[type[Document], None]] = {}
"""Documents that routes refer to, in the order of the routes: the description defines them."""
_VALUES: Final = frozenset({"default", "enum", "const", "examples", "required"})
_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs"})


def reference(model: type[Document]) -> dict[str, str]:
    """Return a reference to a document in the API's description, which defines it then."""
    DOCUMENTS[model] = None
    return {"$ref": COMPONENTS + model.__name__}


def json_body(schema: Mapping[str, Any], *, required: bool = True) -> dict[str, Any]:
    """Return the description of a body; it is parsed by the route, so that errors are the same as for files."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def body_schema(model: type[Document], *, required: bool = True) -> dict[str, Any]:
    """Return the description of a body that is such a document."""
    return json_body(reference(model), required=required)


def list_schema(item: type[Document], *, most: int) -> dict[str, Any]:
    """Return the description of a body that is a list of documents."""
    return json_body({"type": "array", "items": reference(item), "maxItems": most})


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
