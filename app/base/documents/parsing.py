"""Documents from texts: YAML with its lines and `${VARIABLES}`, and sentences for people of pydantic's errors.

Values are never quoted where a secret could stand. At the end the files that texts come from: canary files, and those
of secrets.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from app.base.documents.fields import (
    DID_YOU_MEAN,
    MOST_PROBLEMS,
    PATTERN_TEXTS,
    Document,
    Place,
    VariableText,
    did_you_mean,
    one_line,
    parse_scalar,
    suggest_name,
)
from app.base.documents.http_fields import AUTH_SECRETS, NAMES, TLS_TEXTS
from app.base.errors import InvalidInputError, Problem

FILE_TWINS = {f"{key}_file": key for key in ("secret", "routing_key", "headers", *AUTH_SECRETS, *TLS_TEXTS)}
"""Keys of canary files that name a file holding the value of the key on the right."""

AnyDocument = TypeVar("AnyDocument", bound=Document)


def parse_document(model: type[AnyDocument], data: Any) -> AnyDocument:
    """Return the document `data` describes, or raise InvalidInputError with every problem and its path."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidInputError(problems_of(model, error.errors(include_url=False))) from None


def problems_of(model: type[BaseModel], errors: Iterable[ErrorDetails]) -> list[Problem]:
    """Return one problem per pydantic error of `model`, each with its path (`rules[0].critical`); at most 100.

    Of one mapping, unknown keys like a known one come first and missing keys last: they are often the same mistake.
    """
    first = list(islice(errors, MOST_PROBLEMS + 1))
    mappings = {place: at for at, place in reversed(list(enumerate(error["loc"][:-1] for error in first)))}
    ranked = [
        (
            mappings[error["loc"][:-1]],
            (error["type"] == "missing") - (error["type"] == "extra_forbidden" and DID_YOU_MEAN in message),
            Problem(message=message, path=path_of(place_of(error)) or None),
        )
        for error in first[:MOST_PROBLEMS]
        for message in (message_of(model, error),)
    ]
    problems = [problem for *_, problem in sorted(ranked, key=lambda one: one[:2])]
    return (
        problems
        if len(first) <= MOST_PROBLEMS
        else [*problems, Problem(message="and more of the kind; mend these first")]
    )


def place_of(error: ErrorDetails) -> Place:
    """Return the place of a pydantic error, without an unknown key beside secrets, which may be one."""
    place = error["loc"]
    return place[:-1] if error["type"] == "extra_forbidden" and _may_be_secret(place) else place


def path_of(place: Place) -> str:
    """Text of a place: `canaries[2].expected_chunks[0].grade`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def message_of(model: type[BaseModel], error: ErrorDetails) -> str:
    """Message of an error, without the path."""
    kind, limits, given = error["type"], error.get("ctx", {}), error["input"]
    if kind == "extra_forbidden":
        place = error["loc"]
        message = _unknown_key(
            str(place[-1]), _fields_at_place(model, place[:-1]), quotes_key=not _may_be_secret(place)
        )
    elif kind == "missing":
        message = f"the key '{error['loc'][-1]}' is missing"
    elif kind in _EXPECTED_TYPES:
        fraction = kind == "int_type" and isinstance(given, float)
        kind_given = "a fraction" if fraction else _type_name(given)
        message = f"must be {_EXPECTED_TYPES[kind]}, not {kind_given}{_type_hint(kind, given)}"
    elif kind in {"enum", "literal_error"}:
        message = _choice_message(str(limits["expected"]), given)
    elif kind == "string_pattern_mismatch":
        value_text = f"'{_printable(given)}'" if given else "empty"
        near = suggest_name(limits["pattern"], given)
        message = f"must be {PATTERN_TEXTS.get(limits['pattern'], 'of the right form')}, not {value_text}"
        message += f"; try '{near}'" if near else ""
    elif kind == "too_long" and isinstance(given, str):
        message = _LIMITS["string_too_long"].format_map(limits)
    else:
        message = _LIMITS[kind].format_map(limits) if kind in _LIMITS else error["msg"]
        if kind == "less_than_equal" and limits["le"] == 1 and _LEAST_PERCENT <= given <= _PERCENT:
            message += _write_instead(given / _PERCENT, f"{given:g}%")
    return message


def _may_be_secret(place: Place) -> bool:
    """Whether the unknown key at the end of a place could be a secret put where its key belongs."""
    key = str(place[-1])
    return place[-2:-1] in {("auth",), ("tls",)} and key not in NAMES and key not in FILE_TWINS


def _unknown_key(key: str, fields: list[list[str]], *, quotes_key: bool) -> str:
    """Message for an unknown key, with the nearest known one, or else all of them."""
    if key in FILE_TWINS:
        return f"'{key}' names a file of this server; only canary files may use it"
    for names in fields:
        if key in names[1:]:
            return f"'{key}' is another name of '{names[0]}'; write one of the two"
    if [key] in fields:
        return f"'{key}' belongs to another kind"
    names_there = [names[0] for names in fields]
    near = did_you_mean(key, names_there) or (f"; known are: {', '.join(names_there)}" if names_there else "")
    return (
        f"unknown key '{_printable(key)}'{near}"
        if quotes_key
        else f"unknown key, not quoted as it may be a secret{near}"
    )


_PERCENT, _LEAST_PERCENT = 100, 5
_NUMBER_TEXT = re.compile(r"([0-9]{1,9})(?:[.,]([0-9]{1,9}))? ?%|([0-9]{1,9}),([0-9]{1,9})")
"""Numbers as people write them, though not as documents have them: `90%`, `0,9`."""
_EXPECTED_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_LIMITS = {
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "string_too_long": "must be at most {max_length} characters long",
    "string_too_short": "must be at least {min_length} characters long",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
}


def _type_name(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    for types, name in ((int | float, "a number"), (str, "text"), (list | tuple, "a list"), (Mapping, "a mapping")):
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


def _type_hint(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if kind == "bool_type" and isinstance(value, str) and value.lower() in {"yes", "no", "on", "off", "y", "n"}:
        return f" ('{value}')"
    spelled = _NUMBER_TEXT.fullmatch(value.strip()) if kind == "float_type" and isinstance(value, str) else None
    if spelled:
        number = float(f"{spelled[1] or spelled[3]}.{spelled[2] or spelled[4] or 0}")
        return _write_instead(number / _PERCENT if spelled[1] else number, spelled[0])
    return ""


def _write_instead(number: float, spelled: str) -> str:
    return f"; write {number:.6g} for {spelled}"


def _choice_message(expected: str, value: Any) -> str:
    options = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    near = did_you_mean(value, options) if isinstance(value, str) else ""
    found = f"'{_printable(value)}'" if isinstance(value, str) else _type_name(value)
    return f"must be one of {', '.join(options)}, not {found}{near}"


def _printable(value: Any) -> str:
    return "".join(character if character.isprintable() else "�" for character in one_line(str(value)))


def _fields_at_place(model: type[BaseModel], place: Place) -> list[list[str]]:
    """Return the names of each field of the documents that may stand at `place`, the preferred one first."""
    models = [model]
    for part in place:
        if isinstance(part, str):
            fields = (field for model in models for names, field in _named_fields(model) if part in names)
            models = [inner for field in fields for inner in _nested_models(field.annotation)]
    every = [names for model in models for names, _ in _named_fields(model)]
    return [names for position, names in enumerate(every) if names not in every[:position]]


def _named_fields(model: type[BaseModel]) -> list[tuple[list[str], FieldInfo]]:
    return [
        ([str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [field.alias or name], field)
        for name, field in model.model_fields.items()
        for alias in (field.validation_alias,)
    ]


def _nested_models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _nested_models(inner)]


LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_DEPTH = 50
MAX_EXPANDED = 100_000
"""How many nodes all aliases of a file may stand for: generous to anchors, deadly to "billion laughs"."""

_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_VARIABLE = re.compile(r"\$\$|\$\{([^{}]*)(\}?)")
_VARIABLE_BODY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
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


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A text, and whether it stands without quotes."""

    line: int
    text: str
    plain: bool


@dataclass(frozen=True, slots=True)
class _List:
    """A list; the line is that of its first item."""

    line: int
    items: "list[_Node]"


@dataclass(frozen=True, slots=True)
class _Mapping:
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


def canary_paths(path: Path) -> list[Path]:
    """Canary files of a path, by name: the file itself, or every `*.yaml` and `*.yml` of a folder (maybe none).

    Raises InvalidInputError for a folder that may not be read, which must not pass for an empty one.
    """
    try:
        if not path.is_dir():
            return [path]
        return sorted(file for file in path.iterdir() if file.name.endswith((".yaml", ".yml")))
    except OSError as error:
        raise _unreadable(path, error) from error


def canary_texts(path: Path) -> list[tuple[str, bytes]]:
    """Names and texts of the canary files of a path, as `canary_paths` lists them.

    Raises InvalidInputError where there is none.
    """
    files = canary_paths(path)
    if not files:
        raise InvalidInputError([Problem(file=str(path), message="holds no canary file (*.yaml)")])
    try:
        return [(str(file), file.read_bytes()) for file in files]
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InvalidInputError:
    file = path if error.filename is None else error.filename
    return InvalidInputError([Problem(file=str(file), message=f"cannot be read: {error.strerror}")])


def read_secret(path: str) -> str:
    """Read a file that holds a secret, relative to the working directory; an OSError names its whole path."""
    return Path(path).absolute().read_text(encoding="utf-8")
