"""Documents of what a retriever's store tells of its index: facts, and how an exact search is asked for.

Presets bring both; what a document says takes the place of theirs. The whole document is in `retrievers`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from app.base.documents.fields import (
    Document,
    FreeJson,
    Place,
    Text,
    Whole,
    field_error,
    field_errors,
    one_line,
)
from app.base.documents.http_fields import origin_of
from app.retrievers.documents.requests import (
    QUERY_NAMES,
    VECTOR,
    Path,
    UrlTemplate,
    check_url_template,
    fill_sql_names,
    parameters_in,
    placeholders_in,
    sql_problems,
    template_problems,
)
from app.retrievers.domain.retrievers import HISTORY, Dialect, ExactSearch, FactRequest
from app.retrievers.presets import Preset

EXACT_RECALL: Final = "exact_recall"
"""The name of the fact that is measured by exact searches, which no other may have."""
SETTINGS: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(
        ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_seqscan", "enable_sort"),
        re.compile("on|off"),
    ),
    **dict.fromkeys(
        (
            "hnsw.ef_search",
            "hnsw.max_scan_tuples",
            "ivfflat.probes",
            "ivfflat.max_probes",
            "max_parallel_workers_per_gather",
        ),
        re.compile("[0-9]{1,9}"),
    ),
    **dict.fromkeys(("hnsw.iterative_scan", "ivfflat.iterative_scan"), re.compile("off|relaxed_order|strict_order")),
}
"""What an exact search may set in the transaction of its statement, and the values of each."""
VALUE_OF_ROWS: Final = "[0].* | [0]"
"""The one value of the rows of a statement."""

_PATH = re.compile(r"/(?!/)[^\n]*")
_NAME = r"^[a-z][a-z0-9_-]{0,39}$"
FactName = Annotated[str, StringConstraints(pattern=_NAME)]


def _check_url(url: str) -> str:
    if _PATH.fullmatch(url):
        check_url_template(f"http://host{url}")
        return url
    return check_url_template(url)


FactUrl = Annotated[UrlTemplate, AfterValidator(_check_url)]


def _upper_case(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class FactDocument(Document):
    """A request whose answer holds a number that says something of the index, asked once a run.

    `url` may be a path at the retriever's host, where its headers and authentication are sent; `path` is the JMESPath
    of the number. Of a database it is `sql`, one SELECT of one value.
    """

    url: Annotated[FactUrl | None, Field(title="URL", description="At the host of the retriever, or a path there.")] = (
        None
    )
    path: Annotated[Path | None, Field(title="Number", description="Where it stands in the response.")] = None
    method: Annotated[
        Literal["GET", "POST"] | None,
        BeforeValidator(_upper_case),
        Field(title="Method", description="Default: GET, and POST with a body."),
    ] = None
    body: FreeJson = Field(default=None, alias="json", title="Body as JSON")
    sql: Annotated[
        Annotated[Text, StringConstraints(max_length=20_000)] | None,
        Field(title="SQL", description="One SELECT of one value."),
    ] = None

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if (self.url is None) == (self.sql is None):
            raise field_error("must have either 'url', with 'path', or 'sql'")
        wrong: list[tuple[Place, str]] = []
        if self.sql is not None:
            others = {"path": self.path, "method": self.method, "json": self.body}
            foreign = [name for name, value in others.items() if value is not None]
            wrong = [((name,), "belongs to a request with a url") for name in foreign]
        elif self.path is None:
            wrong.append((("path",), "is missing; say where the number stands in the response"))
        if self.method == "GET" and self.body is not None:
            wrong.append((("json",), "cannot be sent with GET"))
        if wrong:
            raise field_errors(wrong)
        return self

    def problems(self, url: str, dialect: Dialect, names: Mapping[str, str], lookup: str | None) -> Iterator[Any]:
        """Yield (place, sentence) for what does not fit a retriever; `names` are its options."""
        if (dialect is Dialect.SQL) != (self.sql is not None):
            yield ("sql",) if self.sql else ("url",), _OF_DATABASES if self.sql else _NOT_OF_DATABASES
            return
        if self.sql is not None:
            yield from _statement_problems(self.sql, names)
            return
        known = (*names, *([lookup] if lookup else []))
        yield from template_problems(self.url, known, place=("url",))
        yield from template_problems(self.body, known, place=("json",))
        if is_elsewhere(self.url, url):
            # It is asked with the secrets of the retriever, which go nowhere else.
            yield ("url",), _ELSEWHERE

    @property
    def names(self) -> set[str]:
        """The variables it uses."""
        return placeholders_in([self.url, self.body, self.sql]) | parameters_in(self.sql or "")

    def to_domain(self, name: str, url: str, options: Mapping[str, str]) -> FactRequest:
        """Return the value the domain works with; `url` is that of the retriever."""
        if self.sql is not None:
            return FactRequest(name=name, path=VALUE_OF_ROWS, sql=fill_sql_names(self.sql, options))
        method = self.method or ("GET" if self.body is None else "POST")
        path, address = self.path or "@", self.url or ""
        return FactRequest(name=name, path=path, url=absolute(address, url), method=method, json=self.body)


_OF_DATABASES = "belongs to presets that speak SQL"
_NOT_OF_DATABASES = "belongs to presets that speak HTTP; of a database say sql: one SELECT of one value"
_ELSEWHERE = "must be at the host of the retriever's url, or a path that begins with /"


def _statement_problems(sql: str, options: Mapping[str, str]) -> Iterator[tuple[Place, str]]:
    asked = sorted(parameters_in(sql) - set(options))
    for name in asked:
        yield ("sql",), f"has the parameter ':{one_line(name)}', and no question is asked; there are only options"
    if not asked:
        yield from ((("sql",), message) for message in sql_problems(sql, options))


def is_elsewhere(url: str | None, of: str) -> bool:
    """Whether an address, or a path, is at another host than that of a retriever."""
    return url is not None and not _PATH.fullmatch(url) and origin_of(url) != origin_of(of)


def absolute(url: str, of: str) -> str:
    """Return an address as a whole; a path is at the host of the retriever."""
    return f"{origin_of(of)}{url}" if _PATH.fullmatch(url) else url


def _facts(value: Any) -> Any:
    return {} if value is False else value


def _name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise field_error("must be a name of at most 40 lower-case letters, digits, _ and -")
    if name == EXACT_RECALL:
        raise field_error("is the name of what exact searches measure; take another")
    return name


def _may_be(schema: dict[str, Any], other: dict[str, Any]) -> None:
    schema["anyOf"] = [*schema["anyOf"], other]


Facts = Annotated[
    Annotated[dict[Annotated[str, AfterValidator(_name)], FactDocument], Field(max_length=10)] | None,
    BeforeValidator(_facts),
    Field(json_schema_extra=lambda schema: _may_be(schema, {"const": False})),
]
"""Facts by name; None = those of the preset, {} or false = none."""


def _setting(value: Any) -> Any:
    """Read what YAML makes of `off`, `on` and numbers."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if isinstance(value, int) else value


class ExactDocument(Document):
    """What is different in a request that searches the whole index: what is not said is as in `request`.

    Without any of it, it is what the preset knows. `settings` are set for the transaction of a statement.
    """

    canaries: Annotated[Whole, Field(ge=1, le=100, title="Canaries", description="How many a run compares.")] = 20
    url: Annotated[FactUrl | None, Field(title="URL")] = None
    body: FreeJson = Field(default=None, alias="json", title="Body as JSON")
    sql: Annotated[Annotated[Text, StringConstraints(max_length=20_000)] | None, Field(title="SQL")] = None
    settings: Annotated[
        dict[str, Annotated[str, BeforeValidator(_setting)]],
        Field(max_length=20, title="Settings", description="Such as enable_indexscan: off; of a database alone."),
    ] = Field(default={})

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        wrong = [
            (("settings", name), _setting_problem(name, value))
            for name, value in self.settings.items()
            if name not in SETTINGS or not SETTINGS[name].fullmatch(value)
        ]
        if wrong:
            raise field_errors(wrong)
        return self

    @property
    def is_own(self) -> bool:
        """Whether it says itself what is different."""
        return any((self.url, self.body is not None, self.sql, self.settings))

    def problems(
        self, url: str, dialect: Dialect, known: Collection[str], options: Mapping[str, str]
    ) -> Iterator[tuple[Place, str]]:
        """Yield what does not fit a retriever; `known` are the names that its templates may hold."""
        is_sql = dialect is Dialect.SQL
        foreign = {"url": self.url, "json": self.body} if is_sql else {"sql": self.sql, "settings": self.settings}
        for name, value in foreign.items():
            if value not in (None, {}):
                yield (name,), _NOT_OF_DATABASES.partition(";")[0] if is_sql else _OF_DATABASES
        if self.sql is not None and is_sql:
            yield from ((("sql",), message) for message in sql_problems(self.sql, options))
            if QUERY_NAMES.isdisjoint(parameters_in(self.sql)):
                yield ("sql",), "never uses :query or :vector, so every canary would ask the same"
        if self.body is not None and QUERY_NAMES.isdisjoint(placeholders_in([self.body, self.url])):
            yield ("json",), "never uses {{ query }} or {{ vector }}, so every canary would ask the same"
        yield from template_problems(self.url, known, place=("url",))
        yield from template_problems(self.body, (*known, VECTOR, HISTORY), place=("json",), in_names=options)
        if not is_sql and is_elsewhere(self.url, url):
            yield ("url",), _ELSEWHERE

    @property
    def names(self) -> set[str]:
        """The variables it uses."""
        return placeholders_in([self.url, self.body, self.sql]) | parameters_in(self.sql or "")

    def to_domain(self, url: str, options: Mapping[str, str]) -> ExactSearch:
        """Return the value the domain works with; `url` is that of the retriever."""
        return ExactSearch(
            canaries=self.canaries,
            url=None if self.url is None else absolute(self.url, url),
            json=self.body,
            sql=None if self.sql is None else fill_sql_names(self.sql, options),
            settings=dict(self.settings),
        )


def _setting_problem(name: str, value: str) -> str:
    if name not in SETTINGS:
        return f"cannot be set; there are: {', '.join(SETTINGS)}"
    return f"cannot be '{one_line(value)}'"


def read_exact(value: Any) -> Any:
    """Read `exact: true` as all of what the preset knows, and `false` as none."""
    if isinstance(value, bool):
        return {} if value else None
    return value


Exact = Annotated[
    ExactDocument | None,
    BeforeValidator(read_exact),
    Field(json_schema_extra=lambda schema: _may_be(schema, {"type": "boolean"})),
]
"""An exact search; true = all of what the preset knows, null or false = none."""


def preset_facts(preset: Preset, *, url: str, names: Collection[str], options: Mapping[str, str]) -> list[FactRequest]:
    """Return the facts that a preset brings, as far as the names that they use are known."""
    documents = {name: FactDocument.model_validate(fact) for name, fact in preset.facts.items()}
    known = {name: one for name, one in documents.items() if one.names <= set(names)}
    return [one.to_domain(name, url, options) for name, one in known.items()]


def preset_exact(preset: Preset, body: Any, canaries: int) -> ExactSearch | None:
    """Return the exact search that a preset knows, of a request with this body; None = it knows none of it.

    A body of one's own may have filters, which a body of the preset would lack: only what can be added to any is.
    """
    known = preset.exact
    if "settings" in known:
        return ExactSearch(canaries=canaries, settings=known["settings"])
    if "added" in known and isinstance(body, dict):
        return ExactSearch(canaries=canaries, json=_merged(body, known["added"]))
    if "json" in known and body == preset.request.get("json"):
        return ExactSearch(canaries=canaries, json=known["json"])
    return None


def _merged(body: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(body)
    for name, value in added.items():
        own = body.get(name)
        merged[name] = _merged(own, value) if isinstance(own, dict) and isinstance(value, dict) else value
    return merged
