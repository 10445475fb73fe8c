"""The document of a plant, a part of a check: how a document is put into the source, found there, and removed."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AliasChoices, BeforeValidator, Field, StringConstraints, field_validator, model_validator

from app.base.documents.fields import (
    DURATION_SCHEMA,
    Document,
    FreeJson,
    Place,
    ScheduleDocument,
    Slug,
    Text,
    duration_of,
    duration_text,
    field_error,
    field_errors,
)
from app.base.documents.parsing import escape_dollars, read_yaml
from app.base.errors import InvalidInputError, Problem
from app.plants.domain import ID, MARKER, TEXT, PlantTerms
from app.retrievers.documents.requests import (
    VECTOR,
    UrlTemplate,
    check_url_template,
    parameters_in,
    placeholders_in,
    template_problems,
)

OWN_NAMES = (ID, MARKER, TEXT)
"""Variables of requests besides `vector`, which is that of the text, and the options of the retriever."""
_NAMES_THE_DOCUMENT = frozenset({ID, MARKER})
_HOLDS_THE_TEXT = frozenset({MARKER, TEXT, VECTOR})
_PATH = re.compile(r"/(?!/)[^\n]*")

Bound = Annotated[str, duration_text(1, 7 * 86_400), DURATION_SCHEMA]
Poll = Annotated[str, duration_text(1, 3_600), DURATION_SCHEMA]


_LONGEST_TEXT = 10_000
_MOST_ARGUMENTS = 100


def _upper_case(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _check_url(url: str) -> str:
    if _PATH.fullmatch(url):
        check_url_template(f"http://host{url}")
        return url
    return check_url_template(url)


class PlantRequestDocument(Document):
    """A request to the source: over HTTP, one statement of SQL, or a program that `coalmine plant` runs.

    `url` may be a path at the host of the retriever. It has no headers of its own: those of the retriever and its
    authentication are sent, and only to its own host.
    """

    url: Annotated[
        UrlTemplate | None,
        Field(title="URL", description="Of the ingest endpoint; or a path at the host of the retriever."),
    ] = None
    method: Annotated[
        Literal["POST", "PUT", "PATCH", "DELETE"] | None,
        BeforeValidator(_upper_case),
        Field(title="Method", description="Default: POST, and DELETE for a removal without a body."),
    ] = None
    query: Annotated[dict[str, FreeJson], Field(max_length=50)] = Field(
        default={}, validation_alias=AliasChoices("query", "params"), title="Query parameters as JSON"
    )
    body: FreeJson = Field(default=None, alias="json", title="Body as JSON")
    sql: Annotated[
        Annotated[Text, StringConstraints(max_length=20_000)] | None,
        Field(title="SQL", description="One statement with :id, :marker and :text."),
    ] = None
    command: Annotated[
        tuple[Annotated[Text, StringConstraints(max_length=_LONGEST_TEXT)], ...] | None,
        Field(
            title="Command",
            description="A program and its arguments, run by `coalmine plant` alone; the text is its standard input.",
            min_length=1,
            max_length=_MOST_ARGUMENTS,
        ),
    ] = None
    timeout: Annotated[
        Annotated[str, duration_text(1, 3_600), DURATION_SCHEMA] | None,
        Field(title="Timeout", description="Of a command, such as 30s; default: 1m."),
    ] = None

    @field_validator("url")
    @classmethod
    def _check_address(cls, url: str | None) -> str | None:
        return None if url is None else _check_url(url)

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if command is not None and "{{" in command[0]:
            raise field_errors([((0,), "is the program, which no variable may name")])
        return command

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        ways = [name for name in ("url", "sql", "command") if getattr(self, name) is not None]
        if len(ways) != 1:
            raise field_error("must have one of 'url', 'sql' and 'command'")
        of_url = {"method": self.method, "query": self.query or None, "json": self.body}
        foreign = {name: ("url", value) for name, value in of_url.items()} | {"timeout": ("command", self.timeout)}
        wrong: list[tuple[Place, str]] = [
            ((name,), f"belongs to a request with a {way}")
            for name, (way, value) in foreign.items()
            if value is not None and ways != [way]
        ]
        if wrong:
            raise field_errors(wrong)
        return self

    @property
    def timeout_seconds(self) -> float:
        """How long its command may take."""
        return duration_of(self.timeout or "1m").total_seconds()

    @property
    def names(self) -> frozenset[str]:
        """The variables it uses; a command gets the text, whatever its arguments are."""
        parts = [self.url, self.query, self.body, list(self.command or ())]
        written = {TEXT} if self.command is not None else set()
        return frozenset(placeholders_in(parts) | parameters_in(self.sql or "") | written)

    def problems(
        self, known: Collection[str], place: str, *, of_commands: Collection[str]
    ) -> Iterator[tuple[Place, str]]:
        """Yield (place, sentence) for variables that are not known; a command has those of `of_commands`."""
        parts = {"url": self.url, "query": self.query, "json": self.body}
        yield from template_problems(list(self.command or ()), of_commands, place=(place, "command"))
        for name, part in parts.items():
            yield from template_problems(part, known, place=(place, name))
        for name in sorted(parameters_in(self.sql or "") - set(known)):
            yield (place, "sql"), f"unknown parameter ':{name}'; known are: {', '.join(known)}"


def plant_yaml(body: Mapping[str, Any] | None) -> str:
    """Return a stored plant as YAML without its defaults; empty for none."""
    if body is None:
        return ""
    document = PlantDocument.model_validate(body)
    lean = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return str(yaml.safe_dump(_escaped(lean), sort_keys=False, allow_unicode=True, width=110))


def read_plant(text: str) -> Any:
    """Read a plant, not yet validated; None for an empty text. Raises InvalidInputError with the line."""
    located, errors = read_yaml("plant", text, {})
    if errors:
        raise InvalidInputError([Problem(path="plant", message=f"line {one.line}: {one.message}") for one in errors])
    data = [document.data for document in located if document.data is not None]
    if len(data) > 1:
        raise InvalidInputError([Problem(path="plant", message="must be one mapping: every, put, remove")])
    return data[0] if data else None


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape_dollars(value)
    if isinstance(value, dict):
        return {name: _escaped(inner) for name, inner in value.items()}
    return [_escaped(one) for one in value] if isinstance(value, list) else value


DEFAULT_QUERY = "Coalmine test document {{ marker }}"
"""The first words of the text: an embedder that knows no such word as the marker brings them close all the same."""
DEFAULT_TEXT = f"{DEFAULT_QUERY}. It measures how soon new documents are found. It is removed within minutes."


class PlantDocument(ScheduleDocument):
    """A document that is planted on a schedule: put into the source, asked for until it is found, and removed.

    `{{ id }}`, `{{ marker }}` and `{{ text }}` are its variables, with the options of the retriever; `{{ vector }}` is
    the vector of the text.
    """

    text: Annotated[
        Annotated[Text, StringConstraints(max_length=_LONGEST_TEXT)],
        Field(title="Text", description="Of the document; holds {{ marker }}, a word that nothing else has."),
    ] = DEFAULT_TEXT
    query: Annotated[
        Annotated[Text, StringConstraints(max_length=_LONGEST_TEXT)],
        Field(title="Query", description="The question that must find the document."),
    ] = DEFAULT_QUERY
    put: Annotated[PlantRequestDocument, Field(title="Put", description="Puts the document into the source.")]
    remove: Annotated[PlantRequestDocument, Field(title="Remove", description="Removes the document.")]
    credentials: Annotated[
        Slug | None,
        Field(
            title="Credentials",
            description="Retriever whose host, authentication and headers put and remove use; default: the check's.",
        ),
    ] = None
    found_within: Annotated[
        Bound, Field(title="Found within", description="Such as 5m; later is an alert, and the document is removed.")
    ] = "5m"
    gone_within: Annotated[Bound, Field(title="Gone within", description="Such as 5m, after the removal.")] = "5m"
    poll: Annotated[Poll, Field(title="Ask every", description="Such as 5s, while the document is awaited.")] = "5s"

    @field_validator("text", "query")
    @classmethod
    def _check_template(cls, text: str) -> str:
        problems = [message for _, message in template_problems(text, (ID, MARKER))]
        if problems:
            raise field_error(problems[0])
        if "marker" not in placeholders_in(text):
            raise field_error("must hold {{ marker }}, by which the document is found")
        return text

    @model_validator(mode="after")
    def _check_requests(self) -> Self:
        wrong: list[tuple[Place, str]] = []
        if not self.put.names & _HOLDS_THE_TEXT:
            wrong.append((("put",), "must hold {{ text }}, or nothing could find the document"))
        if not self.put.names & _NAMES_THE_DOCUMENT:
            wrong.append((("put",), "must hold {{ id }} or {{ marker }}, or it could not be removed again"))
        if not self.remove.names & _NAMES_THE_DOCUMENT:
            wrong.append((("remove",), "must hold {{ id }} or {{ marker }}, or it would remove other documents"))
        for name in ("found_within", "gone_within"):
            if duration_of(self.poll) > duration_of(getattr(self, name)):
                wrong.append((("poll",), f"must not be longer than {name}"))
                break
        if wrong:
            raise field_errors(wrong)
        return self

    def unknown_names(self, options: Mapping[str, Any], lookup: str | None, *, embeds: bool) -> Iterator[Any]:
        """Yield (place, sentence) for variables that a retriever with these options does not give."""
        of_commands = [*OWN_NAMES, *options]
        known = [*of_commands, *([lookup] if lookup else []), *([VECTOR] if embeds else [])]
        yield from self.put.problems(known, "put", of_commands=of_commands)
        yield from self.remove.problems(known, "remove", of_commands=of_commands)

    @property
    def commands(self) -> list[Place]:
        """Where it says that a program is run, which the service never does."""
        requests = {"put": self.put, "remove": self.remove}
        return [(name, "command") for name, request in requests.items() if request.command is not None]

    @property
    def terms(self) -> PlantTerms:
        """Its bounds, in seconds."""
        return PlantTerms(
            found_within=duration_of(self.found_within).total_seconds(),
            gone_within=duration_of(self.gone_within).total_seconds(),
            poll=duration_of(self.poll).total_seconds(),
        )
