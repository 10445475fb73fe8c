"""Documents of the request and the response mapping of a retriever."""

from typing import Annotated, Any, Literal, Self

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from app.base.documents.fields import Document, FreeJson, Text, field_error, field_errors, one_line
from app.base.documents.http_fields import Headers
from app.base.documents.widgets import Control, Widget
from app.base.http_headers import HEADER_NAME
from app.retrievers.documents.placeholders import UrlTemplate, check_url_template, name_problem
from app.retrievers.domain.expressions import TOO_DEEP, find_problem
from app.retrievers.domain.retrievers import Dialect, Lookup, ResponseMapping


def _upper_case(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class RequestDocument(Document):
    """What is sent. Values of `json` and `query` may hold `{{ query }}`, `{{ k }}` and names of one's own.

    `json` is the body or, for MCP, the arguments of `tool`. `sql` is one SELECT with `:query`, `:vector` and `:k`.
    A key in `query` or `json` would be shown: secrets belong in `auth` or `headers`.
    """

    method: Annotated[
        Literal["GET", "POST"],
        BeforeValidator(_upper_case),
        Field(title="Method"),
        Widget(kinds=(Dialect.HTTP,), choices={"POST": "POST", "GET": "GET"}),
    ] = "POST"
    headers: Annotated[
        Headers,
        Widget(kinds=(Dialect.HTTP, Dialect.MCP), lines=2, mono=True),
    ] = Field(
        default={},
        repr=False,
        title="Headers",
        description="Name: value, one per line; values are secret and never shown again, and stored ones that are left"
        " empty stay.",
    )
    body: Annotated[
        FreeJson,
        Widget(kinds=(Dialect.HTTP,), control=Control.JSON, lines=5),
        Widget(kinds=(Dialect.MCP,), control=Control.JSON, lines=5, title="Arguments as JSON"),
    ] = Field(default=None, alias="json", title="Body as JSON")
    query: Annotated[
        dict[str, FreeJson], Field(max_length=50), Widget(kinds=(Dialect.HTTP,), control=Control.JSON, lines=3)
    ] = Field(
        default={},
        validation_alias=AliasChoices("query", "params"),
        title="Query parameters as JSON",
        description='For example {"q": "{{ query }}"}.',
    )
    sql: Annotated[
        Annotated[Text, StringConstraints(max_length=20_000)] | None,
        Field(title="SQL", description="One SELECT with :query, :vector and :k."),
        Widget(kinds=(Dialect.SQL,), control=Control.AREA, lines=5, mono=True),
    ] = None
    tool: Annotated[
        Annotated[Text, StringConstraints(max_length=256)] | None,
        Field(title="Tool", description="The name of the tool to call."),
        Widget(kinds=(Dialect.MCP,), placeholder="search"),
    ] = None

    @field_validator("query")
    @classmethod
    def _check_query(cls, query: dict[str, Any]) -> dict[str, Any]:
        problems = [
            ((name,), "must be a text, a number or a list of them") for name in query if not _is_flat(query[name])
        ]
        if problems:
            raise field_errors(problems)
        return query

    @model_validator(mode="after")
    def _check_body(self) -> Self:
        if self.method == "GET" and self.body is not None:
            raise field_errors([(("json",), "cannot be sent with GET; use query, or method: POST")])
        return self


def _is_flat(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, str | int | float) for item in items)


def _path(text: str) -> str:
    try:
        problem = find_problem(text, jmespath.compile(text).parsed)
    except JMESPathError:
        raise field_error(f"'{one_line(text)}' is not a JMESPath expression, see https://jmespath.org") from None
    except RecursionError:
        problem = TOO_DEEP
    if problem is not None:
        raise field_error(f"'{one_line(text)}' {problem}")
    return text


def _body_path(text: str) -> str:
    if text.startswith("header:"):
        raise field_error("must be a path in the body; only index_version can come from a header")
    return _path(text)


def _version_path(text: str) -> str:
    if not text.startswith("header:"):
        return _path(text)
    if not HEADER_NAME.fullmatch(text.removeprefix("header:")):
        raise field_error("must name a header, for example header:x-index-version")
    return text


Path = Annotated[Text, StringConstraints(max_length=1024), AfterValidator(_body_path)]
_PATH = Widget(mono=True, length=1024)


class ResponseDocument(Document):
    """Where hits and their fields stand in an answer, as JMESPath; field paths start at the hit.

    Without `hits` the answer is column-shaped: field paths start at the whole answer, and each gives a list.
    """

    hits: Annotated[
        Path | None,
        Field(title="List of hits", description="Empty where the fields are lists side by side."),
        _PATH,
    ] = None
    id: Annotated[Path | None, Field(title="Id", description="Tells one chunk from another."), _PATH] = None
    score: Annotated[Path | None, Field(title="Score", description="The retriever's own score of a hit."), _PATH] = None
    text: Annotated[
        Path | None, Field(title="Text", description="The passage; @ where hits are texts themselves."), _PATH
    ] = None
    document: Annotated[Path | None, Field(title="Document", description="The page or file of the chunk."), _PATH] = (
        None
    )
    updated: Annotated[Path | None, Field(title="Last changed", description="For canaries with a max_age."), _PATH] = (
        None
    )
    index_version: Annotated[
        Annotated[Text, StringConstraints(max_length=1024), AfterValidator(_version_path)] | None,
        Field(title="Index version", description="Of the whole response; or header:x-index-version."),
        _PATH,
    ] = None
    answer: Annotated[
        Path | None,
        Field(title="Answer", description="Of the whole response: the text that was generated from the hits."),
        _PATH,
    ] = None
    error: Annotated[
        Path | None,
        Field(title="Error", description="Of the whole response: an error in it. Empty: error, errors, success."),
        _PATH,
    ] = None
    partial: Annotated[
        Path | None,
        Field(
            title="Partial",
            description="Of the whole response: it is not whole. Empty: the fields of Elasticsearch and Vespa.",
        ),
        _PATH,
    ] = None
    unwrap: Annotated[
        Path | None,
        Field(title="JSON in a text", description="Of a text that holds the answer as JSON; other paths start in it."),
        _PATH,
    ] = None
    absent: Annotated[
        Literal["empty", "malformed"] | None,
        Field(title="Absent list", description="empty: a response without the list of hits means nothing found."),
        Widget(
            kinds=(Dialect.HTTP, Dialect.MCP),
            choices={"": "malformed response", "empty": "nothing found"},
            hint="what a response without the list of hits means",
        ),
    ] = None

    @model_validator(mode="after")
    def _check_identity(self) -> Self:
        if self.id is None and self.text is None:
            raise field_error("must map id or text, or hits cannot be told apart")
        return self

    def to_domain(self) -> ResponseMapping:
        """Return the value the domain works with."""
        return ResponseMapping(**self.model_dump())


def _nothing_required(schema: dict[str, Any]) -> None:
    """Say that anything may be left out: a preset may give it."""
    schema.pop("required", None)


def _name(name: str) -> str:
    problem = name_problem(name)
    if problem is not None:
        raise field_error(problem)
    return name


class LookupDocument(Document):
    """A value fetched once per run, known to the templates by `name`; `url` may be a path at the retriever's host."""

    model_config = ConfigDict(json_schema_extra=_nothing_required)

    name: Annotated[str, AfterValidator(_name)]
    url: Annotated[UrlTemplate, AfterValidator(check_url_template)]
    path: Path

    def to_domain(self) -> Lookup:
        """Return the value the domain works with."""
        return Lookup(name=self.name, url=self.url, path=self.path)
