"""Documents of a retriever's request, lookup and response mapping, their templates, and what a preset fills in.

The whole document, and the checks between its parts, are in `retrievers`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from math import prod
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

from app.base.addresses import HEADER_NAME
from app.base.documents.fields import (
    Control,
    Document,
    Flag,
    FreeJson,
    Place,
    Text,
    Whole,
    Widget,
    check_url,
    did_you_mean,
    field_error,
    field_errors,
    one_line,
    texts_in,
)
from app.base.documents.http_fields import Headers, apply_style, has_header, nothing_required, origin_of
from app.base.values import Turn
from app.retrievers.domain.retrievers import (
    PLACEHOLDER,
    Dialect,
    Lookup,
    ProbeQuery,
    ResponseMapping,
    ScorerKind,
)
from app.retrievers.presets import Preset

COMMON_NAMES = ("query", "k")
VECTOR = "vector"
RESERVED = (*COMMON_NAMES, VECTOR)
QUERY_NAMES = frozenset({"query", VECTOR})
"""Placeholders that differ from canary to canary: without one of these all requests would be the same."""

_SQL_PARTS = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|::|(?<![\w\]:]):(?P<name>[A-Za-z_]\w*)""", re.DOTALL
)
"""Texts, quoted names, comments and casts, in which a colon begins no parameter; and parameters."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SQL_NAME = re.compile(rf"{_IDENTIFIER.pattern}(\.{_IDENTIFIER.pattern}){{0,2}}")
_HOST = re.compile(r"[^/?#]*//[^/?#]*")
_IN_NAMES = "those of options alone may stand there"


def placeholders_in(value: Any) -> set[str]:
    """Return the placeholders of a JSON value, those in names of its fields included."""
    texts = (text for _, text in chain(texts_in(value), _keys_in(value, ())))
    return {name for text in texts for name in PLACEHOLDER.findall(text)}


def parameters_in(sql: str) -> set[str]:
    """Return the parameters of an SQL statement."""
    return {match["name"] for match in _SQL_PARTS.finditer(sql) if match["name"] is not None}


def template_problems(
    value: Any, known: Collection[str], *, place: Place = (), in_names: Collection[str] = ()
) -> Iterator[tuple[Place, str]]:
    """Yield (place, sentence) for unknown placeholders in a JSON value; field names take `in_names` alone."""
    for inner, key in _keys_in(value, place):
        if any(name not in in_names for name in PLACEHOLDER.findall(key)) or "{{" in PLACEHOLDER.sub("", key):
            yield inner, f"has a placeholder in its name; {_IN_NAMES if in_names else 'they may stand in values only'}"
    for inner, text in texts_in(value, place):
        unknown = next((name for name in PLACEHOLDER.findall(text) if name not in known), None)
        if unknown is not None:
            yield inner, _unknown(f"placeholder '{{{{ {one_line(unknown)} }}}}'", unknown, known)
        elif "{{" in PLACEHOLDER.sub("", text):
            yield inner, "has a '{{' that begins no placeholder; write {{ query }} or {{ k }}"


def sql_problems(sql: str, options: Mapping[str, str], more: Collection[str] = ()) -> Iterator[str]:
    """Yield a sentence for each problem of an SQL template: its parameters, of which there may be `more`, and names."""
    known = dict.fromkeys((*RESERVED, *more, *options))
    for name in sorted(parameters_in(sql) - set(known)):
        yield _unknown(f"parameter ':{one_line(name)}'", name, known)
    for _, message in template_problems(sql, options):
        yield message if options else f"{message}; write :query and :k for what is asked"
    for name in sorted(placeholders_in(sql) & set(options)):
        if not _SQL_NAME.fullmatch(options[name]):
            yield f"takes the option '{name}' as the name of a table or column, which it is not"


def fill_sql_names(sql: str, options: Mapping[str, str]) -> str:
    """Return the statement with its names of tables and columns, which `sql_problems` has checked."""
    return PLACEHOLDER.sub(lambda match: options[match[1]], sql)


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    options = f"; known are: {', '.join(known)}" if known else ""
    return f"unknown {what}{did_you_mean(name, known) or options}"


def _keys_in(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*place, key), str(key)
            yield from _keys_in(item, (*place, key))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _keys_in(item, (*place, position))


def name_problem(name: str) -> str | None:
    """Return why a name cannot be a variable of the templates; None = it can."""
    if not _IDENTIFIER.fullmatch(name):
        return "must be a name of letters, digits and _, to be written as {{ name }}"
    if name in RESERVED:
        return f"cannot be called '{name}': that is what is asked"
    return None


def check_url_template(text: str, **limits: Any) -> str:
    """Check an address with placeholders behind its host; see `check_url`."""
    head = _HOST.match(text)
    if head is not None and "{{" in head[0]:
        raise field_error("must not hold a placeholder in the host: where a request goes is never part of the question")
    bare = PLACEHOLDER.sub("x", text)
    if "{{" in bare:
        raise field_error("has a '{{' that begins no placeholder; write {{ query }} or {{ k }}")
    if VECTOR in placeholders_in(text):
        raise field_error("must not hold {{ vector }}: a vector is too long for an address")
    check_url(bare, **limits)
    return text


UrlTemplate = Annotated[str, StringConstraints(max_length=2048)]


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
    headers: Annotated[Headers, Widget(kinds=(Dialect.HTTP, Dialect.MCP), lines=2, mono=True)] = Field(
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


MAX_GROWTH = 100
"""How many times larger than an answer a value made of it may be; beyond, an answer of some MB fills the memory."""
MAX_LEVELS = 50
"""How deep an expression may be nested: parsing and evaluating it recurse, wherever on the stack they begin."""
TOO_DEEP = f"is nested more than {MAX_LEVELS} levels deep"


def find_problem(text: str, node: Mapping[str, Any]) -> str | None:
    """Return why an expression, as text and parsed, may not be used; None = it may."""
    if text.count("(") > MAX_LEVELS or _is_deep(node):  # parentheses leave no node behind
        return TOO_DEEP
    if _growth(node) > MAX_GROWTH:
        return f"could make an answer more than {MAX_GROWTH} times larger than it is"
    return None


def _is_deep(root: Mapping[str, Any]) -> bool:
    """Whether it has too many levels, without recursion; every step of a chain such as `a.b.c` is one."""
    left: list[tuple[Any, int]] = [(root, 1)]
    literals: list[tuple[Any, int]] = []
    while left:
        node, level = left.pop()
        if level > MAX_LEVELS:
            return True
        if isinstance(node, dict):  # and no bound of a slice
            chained = node["type"] in _CHAINS
            left += [(child, level + 1 + chained * step) for step, child in enumerate(node["children"])]
            literals.append((node.get("value"), level))
    while literals:
        value, level = literals.pop()
        if level > MAX_LEVELS:
            return True
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        literals += [(one, level + 1) for one in inner]
    return False


def _growth(node: Mapping[str, Any]) -> float:
    """Bound of how many times larger than its input a value can get; infinite where nothing bounds it."""
    kind: str = node["type"]
    children: list[Any] = node.get("children", [])
    if kind == "literal":
        return _leaves(node["value"])
    if kind == "slice" or not children:
        return 1.0
    grown = [_growth(child) for child in children]
    if kind == "function_expression":
        applied: float = prod(one for one, child in zip(grown, children, strict=True) if child["type"] == "expref")
        multiplied = sum(one for one, child in zip(grown, children, strict=True) if child["type"] != "expref")
        return applied * max(multiplied, 1.0) * _FUNCTIONS.get(node["value"], 1.0) * _separator_growth(node)
    combine = _COMBINED.get(kind)
    return combine(grown) if combine else prod(grown)


def _separator_growth(node: Mapping[str, Any]) -> float:
    """Growth by `join`: a separator taken from the response could be as long as the response."""
    if node["value"] != "join":
        return 1.0
    separator = node["children"][0]
    literal = separator["type"] == "literal" and isinstance(separator["value"], str)
    return max(len(separator["value"]) / 2, 1.0) if literal else float("inf")


def _leaves(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if inner is None else max(1, sum(map(_leaves, inner)))


_CHAINS = ("subexpression", "index_expression")
_COMBINED: Mapping[str, Callable[[list[float]], float]] = {
    "comparator": max,
    "or_expression": max,
    "and_expression": max,
    "not_expression": max,
    "multi_select_list": sum,
    "multi_select_dict": sum,
    "filter_projection": lambda grown: grown[0] * max(grown[1:]),
}
_FUNCTIONS = {"to_string": 2.0}  # escapes what it quotes, and what was escaped before once more


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
        Field(title="List of hits", description="Such as results; empty where each field is a list of its own."),
        _PATH,
    ] = None
    id: Annotated[Path | None, Field(title="Id", description="Tells one chunk from another."), _PATH] = None
    score: Annotated[Path | None, Field(title="Score", description="The retriever's own score of a hit."), _PATH] = None
    text: Annotated[
        Path | None, Field(title="Text", description="The passage, such as text; @ where a hit is only a text."), _PATH
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


def _name(name: str) -> str:
    problem = name_problem(name)
    if problem is not None:
        raise field_error(problem)
    return name


class LookupDocument(Document):
    """A value fetched once per run, known to the templates by `name`; `url` may be a path at the retriever's host."""

    model_config = ConfigDict(json_schema_extra=nothing_required)

    name: Annotated[str, AfterValidator(_name)]
    url: Annotated[UrlTemplate, AfterValidator(check_url_template)]
    path: Path

    def to_domain(self) -> Lookup:
        """Return the value the domain works with."""
        return Lookup(name=self.name, url=self.url, path=self.path)


_HOST_ALONE = re.compile(r"(https?://[^/?#]+)/?(\?[^#]*)?")


def apply_preset(document: Mapping[str, Any], preset: Preset) -> dict[str, Any]:
    """Return the document with the preset's parts that the user left out.

    The user's values replace the preset's, key by key; null takes a key out. The query (`json`, `query`, `sql`) is
    replaced whole.
    """
    merged = dict(document)
    if preset.dialect is not Dialect.SQL:
        merged["url"] = _with_path(document.get("url"), preset.path)
    merged["request"] = _request(document.get("request", {}), preset.request)
    merged["response"] = _response(document, preset)
    _set(merged, "scorer", _scorer(document, preset.scorer))
    _set(merged, "lookup", _lookup(document, preset.lookup, merged.get("url")))
    if "auth" in document:
        merged["auth"] = apply_style(document["auth"], preset.auth)
    _set(merged, "options", _options(merged, preset))
    return {name: value for name, value in merged.items() if value is not None or name in document}


def _set(merged: dict[str, Any], name: str, value: Any) -> None:
    if value or name in merged:
        merged[name] = value


def _with_path(url: Any, path: str) -> Any:
    match = _HOST_ALONE.fullmatch(url) if isinstance(url, str) and path else None
    return f"{match[1]}{path}{match[2] or ''}" if match else url


def _request(own: Any, preset: Mapping[str, Any]) -> Any:
    if not isinstance(own, Mapping):
        return own
    fields = {"query" if name == "params" else name for name in own}
    base = {name: value for name, value in preset.items() if name not in fields}
    if any(
        _holds_query(name, own.get(name)) for name in _QUERY_PARTS
    ):  # a question is put once: the user's way, else the preset's
        base = {name: value for name, value in base.items() if not _holds_query(name, value)}
    if str(own.get("method", "")).upper() == "GET":
        base.pop("json", None)
    merged = {**base, **own}
    if isinstance(own.get("headers", {}), Mapping):
        headers = dict(own.get("headers", {}))
        added = {name: value for name, value in preset.get("headers", {}).items() if not has_header(headers, name)}
        if added or headers:
            merged["headers"] = {**added, **headers}
    return merged


_QUERY_PARTS = ("json", "query", "params", "sql")


def _holds_query(name: str, value: Any) -> bool:
    used = parameters_in(value) if name == "sql" and isinstance(value, str) else placeholders_in(value)
    return name in _QUERY_PARTS and not QUERY_NAMES.isdisjoint(used)


def _response(document: Mapping[str, Any], preset: Preset) -> Any:
    if "response" not in document:
        return dict(preset.response)
    own = document["response"]
    return {**preset.response, **own} if isinstance(own, Mapping) and not preset.response_as_one else own


def _scorer(document: Mapping[str, Any], preset: Mapping[str, Any]) -> Any:
    own, response = document.get("scorer", {}), document.get("response")
    if not isinstance(own, Mapping):
        return own
    is_external = own.get("kind") in (ScorerKind.EMBEDDING, ScorerKind.RERANK)  # it may be anything, a list too
    is_unscored = isinstance(response, Mapping) and "score" in response and response["score"] is None
    base = {} if is_external or is_unscored else dict(preset)
    if "scale" in own:
        base.pop("anchor", None)
    return {**base, **own}


def _lookup(document: Mapping[str, Any], preset: Mapping[str, Any] | None, url: Any) -> Any:
    own = document.get("lookup", preset)
    if not isinstance(own, Mapping):
        return own
    merged = {**(preset or {}), **own}
    path = merged.get("url")
    if isinstance(path, str) and path.startswith("/") and not path.startswith("//") and isinstance(url, str):
        merged["url"] = _origin(url) + path
    return merged


def _origin(url: str) -> str:
    try:
        return origin_of(url)
    except ValueError:  # the document says what is wrong with it
        return ""


def _options(merged: Mapping[str, Any], preset: Preset) -> Any:
    """Fill in options, missing ones as null; an option that no template uses needs no value."""
    own = merged.get("options", {})
    if not isinstance(own, Mapping):
        return own
    used = placeholders_in([merged.get("url"), merged.get("lookup"), merged.get("request")])
    filled = {one.name: one.default for one in preset.options if not one.required or one.name in used}
    return filled | dict(own)


class TurnDocument(Document):
    """What somebody said before a query."""

    role: Annotated[Text, StringConstraints(max_length=40)]
    """Such as `user` or `assistant`: whatever the retriever knows."""
    content: Annotated[Text, StringConstraints(max_length=8_000)]


def turns_of(documents: Iterable[TurnDocument]) -> tuple[Turn, ...]:
    """Return a conversation as the domain has it."""
    return tuple(Turn(role=one.role, content=one.content) for one in documents)


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
    vars: Annotated[dict[str, Annotated[Text, StringConstraints(max_length=500)]], Field(max_length=20)] = Field(
        default={}
    )
    """Values of the retriever's options for this query, as a canary sets them."""
    history: Annotated[tuple[TurnDocument, ...], Field(max_length=50)] = ()
    """The conversation before it, as a canary has it."""

    @property
    def question(self) -> ProbeQuery:
        """What is asked."""
        return ProbeQuery(query=self.query, vars=self.vars, history=turns_of(self.history))
