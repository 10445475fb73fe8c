"""Texts of canary files as values: YAML with the line of everything in it and its `${VARIABLES}`.

A value is never quoted where a secret could stand. Below: the files that commands read, packed or not.
"""

import codecs
import gzip
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from app.base.documents.fields import Place, VariableText, one_line, parse_scalar
from app.base.errors import InvalidInputError, Problem
from app.base.texts import UTF_16_MARKS, Source, not_utf_8
from app.base.values import Value, field, replace

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_DEPTH = 50
MAX_EXPANDED = 100_000
"""How many nodes all aliases of a file may stand for: generous to anchors, deadly to "billion laughs"."""

_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_VARIABLE = re.compile(r"\$\$|\$\{([^{}]*)(\}?)")
_VARIABLE_BODY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class Located(Value):
    """One YAML document as plain values, the line of each, and where a value could not be made."""

    data: Any
    lines: dict[Place, int]
    """Of each place: the line of its key or, in a list, where the item begins."""
    broken: set[Place] = field(default_factory=set)
    unset: list[tuple[Place, Problem]] = field(default_factory=list)
    """Of `broken`: where a variable without a value stands, and what is said of it."""

    def line_of(self, place: Place) -> int:
        """Return the line of the place or, where the file has nothing there, of the nearest thing around it."""
        while place not in self.lines and place:
            place = place[:-1]
        return self.lines.get(place, 1)

    def touches_broken(self, place: Place) -> bool:
        """Whether what is wrong at a place may only follow from a problem already told.

        Also of a part that the file does not have: a preset made it of what stands beside it.
        """
        written = place[:-1]
        while written and written not in self.lines:
            written = written[:-1]
        around = place if written == place[:-1] else written
        return any(broken[: len(around)] == around[: len(broken)] for broken in self.broken)


@dataclass(slots=True)
class NodeBudget:
    """How many values texts of strangers may still hold, over all of them: a node takes a hundred times its bytes."""

    left: int = 300_000


def read_yaml(
    file: str, text: str | bytes, environment: Mapping[str, str], budget: NodeBudget | None = None
) -> tuple[list[Located], list[Problem]]:
    """Return the documents of a YAML stream and everything wrong with it as YAML. A budget of None is without limit.

    A `${NAME}` in a value becomes the variable's text, `${NAME:-default}` the default where it is unset or empty, and
    `$$` a dollar sign; any other dollar stands for itself. It happens after parsing, so a value cannot add YAML. The
    result is text (`VariableText`, which number and boolean fields read as such), quoted or not.
    """
    try:
        text = (text.decode() if isinstance(text, bytes) else text).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        return [], [Problem(message="is not UTF-8", file=file, line=line)]
    unreadable = _UNREADABLE.search(text)
    if unreadable:
        line = text[: unreadable.start()].count("\n") + 1
        message = f"holds the character U+{ord(unreadable[0]):04X}, which YAML does not allow"
        return [], [Problem(message=message, file=file, line=line)]
    reader = _Reader(file, environment, budget)
    try:
        documents = list(reader.documents(yaml.parse(text, Loader=LOADER)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = ", ".join(part for part in (error.context, error.problem) if part)
        last = max(1, len(text.splitlines()))  # libyaml puts the end of the file on a line of its own
        reader.complain(min(mark.line + 1, last) if mark else last, f"is not YAML: {told}")
        documents = []
    except _HopelessError as error:
        reader.complain(error.line, str(error))
        documents = []
    return documents, list(reader.problems)


class _HopelessError(Exception):
    """The rest of the file is not worth reading."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


class _Scalar(Value, kw_only=False):
    """A text, and whether it stands without quotes."""

    line: int
    text: str
    plain: bool


class _List(Value, kw_only=False):
    """A list; the line is that of its first item."""

    line: int
    items: "list[_Node]"


class _Mapping(Value, kw_only=False):
    """A mapping; the line is that of its first key."""

    line: int
    pairs: "list[tuple[_Node, _Node]]"


_Node = _Scalar | _List | _Mapping


class _Reader:
    """Turns the events of one file into nodes, and nodes into located values."""

    def __init__(self, file: str, environment: Mapping[str, str], budget: NodeBudget | None) -> None:
        self.file = file
        self.environment = environment
        self.budget = budget
        self.problems: dict[Problem, None] = {}  # each once, though an alias comes by the same line again
        self.expanded = 0
        self.anchors: dict[str, _Node] = {}
        self.aliased: set[int] = set()

    def documents(self, events: Iterator[Any]) -> Iterator[Located]:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.anchors = {}
                root = self._node(next(events), events, 0)
                located = Located(data=None, lines={(): root.line})
                data = self._value(root, (), located, expanding=False)
                yield replace(located, data=data)

    def complain(self, line: int, message: str) -> Problem:
        problem = Problem(message=message, file=self.file, line=line)
        self.problems[problem] = None
        return problem

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> _Node:
        """Build the node an event begins. An anchor is known once its node is whole, so there are no cycles."""
        line = event.start_mark.line + 1
        self._admit(line, depth)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise _HopelessError(line, f"unknown alias '*{one_line(str(event.anchor))}'")
            self.aliased.add(id(self.anchors[event.anchor]))
            return self.anchors[event.anchor]
        if event.tag is not None:
            self.complain(line, f"tags such as {one_line(event.tag)} are not understood")
        node: _Node
        if isinstance(event, yaml.ScalarEvent):
            node = _Scalar(line, str(event.value), not event.style)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = _List(line, [])
            while not isinstance(inner := next(events), yaml.SequenceEndEvent):
                node.items.append(self._node(inner, events, depth + 1))
        else:
            node = _Mapping(line, [])
            while not isinstance(inner := next(events), yaml.MappingEndEvent):
                key = self._node(inner, events, depth + 1)
                node.pairs.append((key, self._node(next(events), events, depth + 1)))
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _admit(self, line: int, depth: int) -> None:
        """Refuse one node too many, or too deep."""
        if depth > MAX_DEPTH:
            raise _HopelessError(line, f"is nested more than {MAX_DEPTH} levels deep")
        if self.budget is not None:
            self.budget.left -= 1
            if self.budget.left < 0:
                raise _HopelessError(line, f"the files hold more than {NodeBudget().left:,} values; send them in parts")

    def _value(self, node: _Node, place: Place, located: Located, *, expanding: bool) -> Any:
        """Return the plain value of a node and note the lines of everything in it."""
        expanding = expanding or id(node) in self.aliased
        if expanding:
            self._spend(node)
        if isinstance(node, _Scalar):
            return self._scalar(node, place, located)
        lined: list[tuple[str | int, int, _Node]]
        if isinstance(node, _List):
            lined = [(position, item.line, item) for position, item in enumerate(node.items)]
        else:
            lined = list(self._pairs(node, place))
        values: dict[str | int, Any] = {}
        for part, line, item in lined:
            inner = (*place, part)
            located.lines[inner] = line
            values[part] = self._value(item, inner, located, expanding=expanding)
        return list(values.values()) if isinstance(node, _List) else values

    def _pairs(self, node: _Mapping, place: Place) -> Iterator[tuple[str, int, _Node]]:
        """Yield (key, its line, value) of a mapping, keys of merged mappings (`<<: *base`) last, each key once."""
        first: dict[str, int] = {}
        merged: list[_Node] = []
        for key, value in node.pairs:
            if not isinstance(key, _Scalar):
                self.complain(key.line, "a key must be text")
            elif key.text == "<<" and key.plain:
                merged += value.items if isinstance(value, _List) else [value]
            elif key.text in first:
                named = "this key" if _may_hold_secrets(place) else f"the key '{one_line(key.text)}'"
                self.complain(key.line, f"{named} is given twice, first on line {first[key.text]}")
            else:
                first[key.text] = key.line
                yield key.text, key.line, value
        for base in merged:
            self._spend(base)
            if not isinstance(base, _Mapping):
                self.complain(base.line, "only mappings can be merged with <<")
                continue
            for name, line, value in self._pairs(base, place):
                if name not in first:
                    first[name] = line
                    yield name, line, value

    def _spend(self, node: _Node) -> None:
        self.expanded += 1
        if self.expanded > MAX_EXPANDED:
            raise _HopelessError(node.line, f"aliases stand for more than {MAX_EXPANDED:,} values")

    def _scalar(self, node: _Scalar, place: Place, located: Located) -> Any:
        if "$" not in node.text:
            return parse_scalar(node.text) if node.plain else node.text
        line = located.line_of(place)

        def fill(found: re.Match[str]) -> str:
            if found[0] == "$$":
                return "$"
            body = _VARIABLE_BODY.fullmatch(found[1]) if found[2] else None
            if body is None:
                shown = "this" if _may_hold_secrets(place) else f"'{one_line(found[0])}'"
                located.broken.add(place)
                self.complain(line, f"{shown} is not a variable; {_HOW_TO}")
                return ""
            name, default = body[1], body[2]
            value = self.environment.get(name)
            if default is not None:
                return value or default
            if value is None:
                problem = self.complain(line, f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
                located.broken.add(place)
                located.unset.append((place, problem))
            return value or ""

        return VariableText(_VARIABLE.sub(fill, node.text))


def _may_hold_secrets(place: Place) -> bool:
    """Whether what stands here may be a secret, or one that was written where a key belongs: it is not quoted."""
    return not _SECRETIVE.isdisjoint(place)


_SECRETIVE = frozenset({"auth", "tls", "headers", "headers_file", "secret", "secret_file"})
_HOW_TO = "write ${NAME} or ${NAME:-default}, or $$ for a dollar sign"


def escape_dollars(text: str) -> str:
    """Write a text so that `read_yaml` reads it back: a dollar that would begin something is doubled."""
    return re.sub(r"\$(?=[${])", "$$", text)


_PACKED = ".gz"
_READ_AT_ONCE = 65_536
_BLOCK = 1_000  # lines between two moves of a progress bar


def file_source(path: Path, advance: Callable[[int], None] = lambda _: None) -> Source:
    """Return a file as a source, packed or not; `advance` is called with the number of bytes read."""

    def lines() -> Iterator[str]:
        with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) if path.suffix == _PACKED else raw as unpacked:
            before = 0
            if unpacked.peek(2)[:2] in UTF_16_MARKS:  # Excel's "Unicode text"
                yield from _utf_16_lines(unpacked, path)
                return
            for number, line in enumerate(unpacked):
                try:
                    yield line.decode("utf-8-sig" if number == 0 else "utf-8")
                except UnicodeDecodeError as error:
                    message = not_utf_8(str(path))
                    raise InvalidInputError([Problem(file=str(path), line=number + 1, message=message)]) from error
                if number % _BLOCK == 0:
                    advance(raw.tell() - before)
                    before = raw.tell()
            advance(raw.tell() - before)

    return Source(name=str(path), lines=lines)


def _utf_16_lines(raw: io.BufferedReader | gzip.GzipFile, path: Path) -> Iterator[str]:
    decoder, rest = codecs.getincrementaldecoder("utf-16")(), ""
    try:
        while block := raw.read(_READ_AT_ONCE):
            *lines, rest = (rest + decoder.decode(block)).split("\n")
            yield from [f"{line}\n" for line in lines]
        rest += decoder.decode(b"", final=True)
        yield from [rest] if rest else []
    except UnicodeDecodeError as error:
        raise InvalidInputError([Problem(file=str(path), message="begins as UTF-16 text and is none")]) from error
