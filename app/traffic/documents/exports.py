"""Records of the exports of tracing tools, read as calls: what was asked, when, and whether it asked a retriever.

- Langfuse: observations and traces, of its API, the export of its tables, or that to blob storage; names of fields in
  either form (https://langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields).
- Phoenix: spans, of its API or a data frame of its client (https://arize.com/docs/phoenix).
- LangSmith: runs as its SDK writes them (https://docs.langchain.com/langsmith).

Of an input only the query is read. Documents, answers, users and scores are passed over.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from app.base.texts import Source, parse_json_text
from app.base.values import Value
from app.catalog.exchange.suite_builder import SuiteBuilder

_LONGEST_RECORD: Final = 10_000_000
"""Most characters of an object that goes over several lines."""
_NO_OBJECT: Final = "must be a JSON object"
_DEEPEST_INPUT: Final = 10
_MOST_CHARACTERS: Final = 100_000
"""Of an input that is parsed; no query is as long."""
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?$)|[\[\]{}]', re.DOTALL)
"""Strings, which hide brackets, to their end or that of the line; and brackets. Linear, since no string is retried."""
_BETWEEN: Final = " \t\r\n,\ufeff"
_WRAPPERS: Final = ("data", "runs", "spans", "observations", "traces")
"""Lists of records in the answers of their APIs."""
_QUERY_NAMES: Final = (
    "query", "question", "search_query", "user_query", "query_str", "query_text", "query_bundle", "user_input", "input",
    "text", "q", "message", "prompt", "messages", "inputs", "kwargs", "args", "content", "value",
)  # fmt: skip
"""Fields of an input that hold the query or what holds it, the surest first."""
_ASKERS: Final = frozenset({"user", "human", "humanmessage"})


class Origin(IntEnum):
    """Where the text of a call stands: the first of these that an upload has is what users asked."""

    RETRIEVAL = 0
    """In a span that is a retrieval: exactly what the retriever was asked."""
    TRACE = 1
    """In the input of a whole trace."""
    ROOT = 2
    """In the input of the span that a trace begins with."""
    OTHER = 3


class TracedCall(Value):
    """A call that a tool recorded. `text` is empty where its input names no query; `at` as it is written.

    `trace` is empty where it is not known. A retriever that hands on to another one is two spans of a trace.
    """

    origin: Origin
    text: str
    at: Any
    trace: str = ""


def calls_of(record: Mapping[str, Any]) -> Iterator[TracedCall] | None:
    """Return the calls of a record and of those within it; None for a record of no tool that is known here."""
    listed = next((name for name in _WRAPPERS if _is_records(record.get(name))), None)
    own = _call(record)
    if own is None and listed is None:
        return None
    return _calls(record)


def is_export(names: Sequence[str]) -> bool:
    """Whether the header of a table is that of an export."""
    return _call(dict.fromkeys(names, "")) is not None


def records_of(source: Source, builder: SuiteBuilder) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, object) of JSON that is no JSON lines: a list, or an object over several lines."""
    for number, text in _objects(source, builder):
        try:
            record = parse_json_text(text)
        except ValueError as error:
            why = "" if isinstance(error, json.JSONDecodeError) else f": {error}"
            builder.add_problem(source.name, number, f"is not JSON{why}")
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            builder.add_problem(source.name, number, "must be a JSON object")


def query_of(value: Any) -> str:
    """Return the query within the input of a call: itself, a named field of it, or the last message of a user.

    It is empty where nothing of the input is a query for sure.
    """
    return _query(value, 0)


def _calls(record: Mapping[str, Any]) -> Iterator[TracedCall]:
    pending: list[tuple[Mapping[str, Any], bool]] = [(record, False)]
    while pending:
        one, is_within = pending.pop()
        call = _call(one)
        if call is not None:
            is_again = is_within and call.origin is not Origin.RETRIEVAL
            yield TracedCall(origin=Origin.OTHER, text="", at=None) if is_again else call
        for name in (*_WRAPPERS, "child_runs"):
            if _is_records(one.get(name)):
                pending += [(inner, call is not None) for inner in one[name] if isinstance(inner, dict)]


def _is_records(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


def _call(record: Mapping[str, Any]) -> TracedCall | None:
    names = {name.replace("_", "").lower(): name for name in record}

    def field(name: str) -> Any:
        return record.get(names.get(name, ""))

    if "runtype" in names:
        is_retrieval = str(field("runtype")).lower() == "retriever"
        return _made(is_retrieval, field("parentrunid"), field("inputs"), field("starttime"), field("traceid"))
    if isinstance(record.get("attributes"), dict) or any(name.startswith("attributes.") for name in names):
        kind = _attribute(record, "openinference.span.kind") or field("spankind")
        is_retrieval = str(kind).upper() == "RETRIEVER"
        context = record.get("context")
        trace = context.get("trace_id") if isinstance(context, dict) else field("context.traceid")
        return _made(is_retrieval, field("parentid"), _attribute(record, "input.value"), field("starttime"), trace)
    if "traceid" in names and "type" in names:
        is_retrieval = str(_unquoted(field("type"))).upper() == "RETRIEVER"
        parent, trace = field("parentobservationid"), field("traceid")
        return _made(is_retrieval, parent, field("input"), field("starttime"), trace)
    if {"input", "timestamp"} <= names.keys() and names.keys() & {"sessionid", "bookmarked", "htmlpath"}:
        return TracedCall(origin=Origin.TRACE, text=query_of(field("input")), at=_unquoted(field("timestamp")))
    return None


def _made(is_retrieval: bool, parent: Any, value: Any, at: Any, trace: Any) -> TracedCall:  # noqa: FBT001 - of five facts
    is_root = parent is None or _unquoted(parent) == ""
    origin = Origin.RETRIEVAL if is_retrieval else Origin.ROOT if is_root else Origin.OTHER
    text = "" if origin is Origin.OTHER else query_of(value)
    return TracedCall(origin=origin, text=text, at=_unquoted(at), trace=str(_unquoted(trace) or ""))


def _unquoted(value: Any) -> Any:
    """Return a cell without the quotes of JSON, in which Langfuse writes texts."""
    if isinstance(value, str) and value[:1] == '"' == value[-1:] and len(value) > 1:
        return value[1:-1]
    return value


def _attribute(record: Mapping[str, Any], name: str) -> Any:
    """Return an attribute of a span, however its name is written: whole, in columns, or as objects in objects."""
    column = f"attributes.{name}"
    value: Any = record.get(column)
    if value is not None:
        return value
    value = record.get("attributes")
    if isinstance(value, dict) and name in value:
        return value[name]
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _query(value: Any, depth: int) -> str:
    if depth > _DEEPEST_INPUT:
        return ""
    if isinstance(value, str):
        return _text_query(value, depth)
    if isinstance(value, list):
        return _list_query(value, depth)
    return _object_query(value, depth) if isinstance(value, dict) else ""


def _text_query(text: str, depth: int) -> str:
    plain = text.strip()
    if plain[:1] not in {"{", "[", '"'} or len(plain) > _MOST_CHARACTERS:
        return plain
    try:
        value = parse_json_text(plain)
    except ValueError:
        return plain  # [urgent] how do I pay?
    return value.strip() if isinstance(value, str) else _query(value, depth + 1)


def _list_query(values: list[Any], depth: int) -> str:
    """Return the last message of a user; else the first part that holds a query."""
    asked = [one for one in values if isinstance(one, dict) and _role(one) in _ASKERS]
    if asked:
        return _query(_content(asked[-1]), depth + 1)
    if any(isinstance(one, dict) and _role(one) for one in values):
        return ""  # messages, none of them of a user
    found = (_query(one, depth + 1) for one in values)
    return next((one for one in found if one), "")


def _object_query(value: dict[Any, Any], depth: int) -> str:
    role = _role(value)
    if role:
        return _query(_content(value), depth + 1) if role in _ASKERS else ""
    for name in _QUERY_NAMES:
        found = _query(value.get(name), depth + 1)
        if found:
            return found
    texts = [one for one in value.values() if isinstance(one, str)]
    return texts[0].strip() if len(value) == len(texts) == 1 else ""


def _role(value: Mapping[Any, Any]) -> str:
    """Return who says a message, in small letters; empty for what is none."""
    if value.get("type") == "constructor" and isinstance(value.get("id"), list):  # as LangChain stores messages
        return str(value["id"][-1]).lower() if value["id"] else ""
    role = value.get("role") or (value.get("type") if "content" in value else None)
    return role.lower() if isinstance(role, str) else ""


def _content(value: Mapping[Any, Any]) -> Any:
    kwargs = value.get("kwargs")
    inner = value.get("content", kwargs.get("content") if isinstance(kwargs, dict) else None)
    if isinstance(inner, list):  # parts of a message, of which pictures have no text
        return " ".join(str(one["text"]) for one in inner if isinstance(one, dict) and isinstance(one.get("text"), str))
    return inner


def _objects(source: Source, builder: SuiteBuilder) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) of the objects of a list, or of those that follow each other, whatever their lines."""
    scan = _Scan()
    for number, line in enumerate(source.lines(), start=1):
        yield from scan.read(number, line)
        if scan.problem is not None:
            builder.add_problem(source.name, *scan.problem)
            return
    if scan.depth:
        builder.add_problem(source.name, scan.begun, "is not JSON: the file ends within a list or an object")


@dataclass(slots=True)
class _Scan:
    """Finds where objects begin and end by their brackets, and builds nothing of them."""

    outer: int | None = None
    """The depth that objects stand at: 1 within a list; None before the first bracket."""
    depth: int = 0
    begun: int = 1
    parts: list[str] = field(default_factory=list)
    size: int = 0
    problem: tuple[int, str] | None = None

    def read(self, number: int, line: str) -> Iterator[tuple[int, str]]:
        """Yield the objects that end in a line, until there is a problem."""
        start = self._enter(line)
        for token in _TOKENS.finditer(line, start):
            bracket = token[0]
            if bracket[0] == '"':
                continue
            if self.depth > (self.outer or 0):
                self.depth += 1 if bracket in "[{" else -1
                if self.depth == self.outer:
                    yield self.begun, "".join([*self.parts, line[start : token.end()]])
                    start, self.parts = token.end(), []
            elif line[start : token.start()].strip(_BETWEEN) or not self._passes(bracket):
                self.problem = (number, _NO_OBJECT)
                return
            elif bracket in "[{":
                start, self.begun, self.size = token.start(), number, 0
            else:
                start = token.end()
        self._keep(number, line[start:])

    def _enter(self, line: str) -> int:
        """Return where a line is read from: behind the bracket of a list."""
        plain = line.lstrip(_BETWEEN)
        if self.outer is not None or not plain:
            return 0
        self.outer = self.depth = 1 if plain.startswith("[") else 0
        return len(line) - len(plain) + self.outer

    def _passes(self, bracket: str) -> bool:
        """Whether a bracket between objects may stand there: it begins one, or ends the list."""
        if bracket in "[{":
            self.depth += 1
            return True
        is_end = bracket == "]" and self.outer == 1
        self.outer = self.depth = 0
        return is_end

    def _keep(self, number: int, rest: str) -> None:
        """Keep the end of a line, which is of an object that goes on, or nothing."""
        if self.depth > (self.outer or 0):
            self.parts.append(rest)
            self.size += len(rest)
            if self.size > _LONGEST_RECORD:
                self.problem = (self.begun, f"is an object of more than {_LONGEST_RECORD:,} characters")
        elif rest.strip(_BETWEEN):
            self.problem = (number, _NO_OBJECT)
