"""Reads the JSON of an answer into one list for each mapped field of the hits, in one of two ways that agree.

Plain paths are read by typed structs generated for the mapping. Whatever these cannot read is read again generically
(JSON, then JMESPath), which decides and words the error; so only odd responses pay for it, and those that come as
lists already, which cost an evaluation per list. What the lists amount to, a ranking, is left to the caller.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError
from jmespath.visitor import TreeInterpreter

from app.base.texts import excess_of_answer
from app.base.values import Value
from app.retrievers.client.responses import (
    MalformedError,
    PartialAnswerError,
    check_signs,
    is_sign,
    message_beside,
    message_of_body,
    quoted,
)
from app.retrievers.documents.requests import TOO_DEEP, find_problem
from app.retrievers.domain.retrievers import ResponseMapping


class Path(Value):
    """One expression of the mapping. `steps` are the field names where it is a plain path ("@" has none).

    `column` reads a list off an answer and gives at most so many of its items and how many there are: None where there
    is none. A projection such as `metadatas[0][*].source` is evaluated item by item, so that an item without the field
    keeps its place as None, where JMESPath would drop it.
    """

    text: str
    search: Callable[[Any], Any]
    steps: tuple[str, ...] | None
    column: Callable[[Any, int], "tuple[list[Any], int] | None"]

    @classmethod
    def of(cls, field: str, expression: str) -> "Path":
        """Compile an expression; raises ValueError beginning with the field's name."""
        try:
            compiled = jmespath.compile(expression)
        except JMESPathError as error:
            raise ValueError(f"{field}: not a JMESPath expression: {str(error).splitlines()[0]}") from None
        except RecursionError:
            raise ValueError(f"{field}: {TOO_DEEP}") from None
        node: Any = compiled.parsed
        problem = find_problem(expression, node)
        if problem is not None:
            raise ValueError(f"{field}: {problem}")
        steps = _steps(node)
        search = compiled.search if steps is None else partial(follow_steps, steps)
        return cls._of_node(expression, node, search)

    @classmethod
    def signs(cls, field: str, expression: str) -> tuple["Path", ...]:
        """Compile the alternatives of `a || b`, each to be evaluated by itself; raises ValueError as `of` does."""
        whole = cls.of(field, expression)
        nodes = _alternatives(jmespath.compile(expression).parsed)
        if len(nodes) == 1:
            return (whole,)
        paths = []
        for node in nodes:
            steps = _steps(node)
            search = partial(TreeInterpreter().visit, node) if steps is None else partial(follow_steps, steps)
            paths.append(cls._of_node(expression if steps is None else ".".join(steps), node, search))
        return tuple(paths)

    @classmethod
    def _of_node(cls, expression: str, node: Any, search: Callable[[Any], Any]) -> "Path":
        steps = _steps(node)
        extended = _extend_projection(node)
        column = (
            partial(_read_projection, extended) if extended["type"] in _PROJECTIONS else partial(_read_list, search)
        )
        return cls(text=expression, search=search, steps=steps, column=column)


class Paths(Value):
    """The compiled expressions of one mapping; `version_header` is a lower-case header name.

    Without `hits` the answer is column-shaped: the fields are read as columns of the whole body.
    """

    hits: Path | None
    id: Path | None
    score: Path | None
    text: Path | None
    document: Path | None
    updated: Path | None
    version: Path | None
    version_header: str | None
    answer: Path | None = None
    error: tuple[Path, ...] = ()
    partial: tuple[Path, ...] = ()
    unwrap: Path | None = None
    absent_is_empty: bool = False

    @classmethod
    def of(cls, mapping: ResponseMapping) -> "Paths":
        """Compile a mapping; raises ValueError beginning with the name of the wrong field."""
        if mapping.id is None and mapping.text is None:
            raise ValueError("id: either id or text must be mapped, else hits cannot be told apart")
        header = None
        version = mapping.index_version
        if version is not None and version.startswith(_HEADER):
            header, version = version.removeprefix(_HEADER).strip().lower(), None
            if not header:
                raise ValueError("index_version: header: is followed by the name of a header")
        fields = {name: getattr(mapping, name) for name in ("id", "score", "text", "document", "updated")}
        paths = {field: None if path is None else Path.of(field, path) for field, path in fields.items()}
        return cls(
            hits=None if mapping.hits is None else Path.of("hits", mapping.hits.strip() or "@"),
            version=None if version is None else Path.of("index_version", version),
            version_header=header,
            error=Path.signs("error", mapping.error or USUAL_ERRORS),
            partial=Path.signs("partial", mapping.partial or USUAL_PARTIAL),
            unwrap=None if mapping.unwrap is None else Path.of("unwrap", mapping.unwrap),
            absent_is_empty=mapping.absent == "empty",
            answer=None if mapping.answer is None else Path.of("answer", mapping.answer),
            **paths,
        )

    def field(self, path: Path) -> str:
        """Field of the mapping a path belongs to: `response.id`."""
        names = ("id", "score", "text", "document", "updated")
        return next(f"response.{name}" for name in names if getattr(self, name) is path)

    def place(self, index: int, path: Path | None) -> str:
        """Place of a field of a hit, as people would write it: `results[3].score`, or of columns `ids[0][3]`."""
        if self.hits is None:
            text = "" if path is None or path.steps == () else path.text
            return text.replace("[*]", f"[{index}]") if text.count("[*]") == 1 else f"{text}[{index}]"
        hits = "" if self.hits.steps == () else self.hits.text
        field = "" if path is None or path.steps == () else f".{path.text}"
        return f"{hits}[{index}]{field}"


def is_null(path: Path, value: Any) -> bool:
    """Whether the place of a path is in a value and holds null, rather than that it is not there."""
    node = jmespath.compile(path.text).parsed
    while node["type"] in _CHAINED:
        *before, node = node["children"]
        value = TreeInterpreter().visit(before[0], value)
    return node["type"] == "field" and isinstance(value, dict) and node["value"] in value


def _alternatives(node: Any) -> list[Any]:
    if node["type"] != "or_expression":
        return [node]
    return [one for child in node["children"] for one in _alternatives(child)]


def _steps(node: Mapping[str, Any]) -> tuple[str, ...] | None:
    if node["type"] == "current":
        return ()
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] == "subexpression":
        inner = [_steps(child) for child in node["children"]]
        return None if None in inner else tuple(step for steps in inner for step in steps or ())
    return None


def follow_steps(steps: tuple[str, ...], value: Any) -> Any:
    """Follow field names as JMESPath does: what is not an object has no fields."""
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _read_list(search: Callable[[Any], Any], answer: Any, most: int) -> tuple[list[Any], int] | None:
    """Read a column that is a list; a lone text, such as a whole context, is a list of one."""
    values = search(answer)
    if isinstance(values, str):
        values = [values] if values else []
    if values is None:
        return None
    if not isinstance(values, list):
        raise MalformedError("not a list")
    return values[:most], len(values)


def _extend_projection(node: Any) -> Any:
    """Let `docs.*.meta.source` go on to its end, as JMESPath says; the parser lets it end after `meta`."""
    if node["type"] != "subexpression" or node["children"][0]["type"] != "value_projection":
        return node
    projection, *rest = node["children"]
    source, item = projection["children"]
    return {**projection, "children": [source, {"type": "subexpression", "children": [item, *rest]}]}


def _read_projection(node: Any, answer: Any, most: int) -> tuple[list[Any], int] | None:
    """Read a column that is a projection, item by item."""
    interpreter = TreeInterpreter()
    source, item, *condition = node["children"]
    if condition:
        source = {**node, "children": [source, _ITSELF, *condition]}
    items = interpreter.visit(source, answer)
    if node["type"] == "value_projection" and isinstance(items, dict):
        items = list(items.values())  # in the order in which keys() gives their names; null keeps its place
    return ([interpreter.visit(item, one) for one in items[:most]], len(items)) if isinstance(items, list) else None


_HEADER = "header:"
_CHAINED = ("subexpression", "index_expression", "pipe")
USUAL_ERRORS = "error || errors || success"
USUAL_PARTIAL = "timed_out || _shards || _clusters || root.coverage.degraded || root.errors"
"""Signs that are looked for where a mapping names none."""
_ITSELF: Any = {"type": "identity", "children": []}
_PROJECTIONS = ("projection", "filter_projection", "value_projection")


@dataclass(slots=True, kw_only=True)
class Columns:
    """The mapped fields of the hits, side by side, checked for type alone. An unmapped field is None."""

    count: int
    ids: Sequence[str | int] | None
    scores: Sequence[float] | None
    texts: Sequence[str | None] | None
    documents: Sequence[str | int | None] | None
    updated: Sequence[str | float | None] | None
    version: Any = None
    answer: Any = None
    dirty: bool = True
    """Whether strings may hold what UTF-8 or a database refuses."""


def compile_typed_reader(paths: Paths, max_hits: int) -> Callable[[bytes], Columns | None] | None:
    """Return the fast reader of a mapping of plain paths, which returns None for what it cannot read."""
    if paths.hits is None:
        return None
    columns = [
        (paths.id, _ID, True),
        (paths.score, _SCORE, True),
        (paths.text, _TEXT, False),
        (paths.document, _DOCUMENT, False),
        (paths.updated, _UPDATED, False),
    ]
    hit, top = _StructTree(), _StructTree()
    fields = [hit.add(path, kind, required=required) for path, kind, required in columns]
    struct = hit.build()
    is_bare = not paths.hits.steps and (paths.version is not None or paths.answer is not None)
    if struct is None or paths.hits.steps is None or None in fields or is_bare:
        return None
    hits_of: Callable[[Any], Any] | None = None
    version_of: Callable[[Any], Any] | None = None
    answer_of: Callable[[Any], Any] | None = None
    read_signs: list[tuple[Path, Callable[[Any], Any]]] = []
    kind: Any = list[struct]  # type: ignore[valid-type] # made here, for this mapping
    if paths.hits.steps:
        hits_field = top.add(paths.hits, kind, required=True)
        version_field = top.add(paths.version, Any, required=False)
        answer_field = top.add(paths.answer, Any, required=False)
        sign_fields = {path: top.add(path, Any, required=False) for path in (*paths.error, *paths.partial)}
        kind = top.build()
        optional = (version_field, answer_field, *sign_fields.values())
        if kind is None or not hits_field or None in optional:
            return None
        read_signs = [(path, attrgetter(field or "")) for path, field in sign_fields.items()]
        hits_of = attrgetter(hits_field)
        version_of = attrgetter(version_field) if version_field else None
        answer_of = attrgetter(answer_field) if answer_field else None
    decode = msgspec.json.Decoder(kind).decode
    get_id, get_score, get_text, get_document, get_updated = (attrgetter(field) if field else None for field in fields)

    def read(body: bytes) -> Columns | None:
        try:
            if not body.isascii():
                body.decode()  # the decoder skips what is not mapped without a look
            answer = decode(body)
            hits = answer if hits_of is None else hits_of(answer)
            if any(is_sign(path, value_of(answer)) for path, value_of in read_signs):
                return None
            if len(hits) > max_hits:
                hits = hits[:max_hits]
            return Columns(
                count=len(hits),
                ids=None if get_id is None else list(map(get_id, hits)),
                scores=None if get_score is None else list(map(get_score, hits)),
                texts=None if get_text is None else list(map(get_text, hits)),
                documents=None if get_document is None else list(map(get_document, hits)),
                updated=None if get_updated is None else list(map(get_updated, hits)),
                version=None if version_of is None else version_of(answer),
                answer=None if answer_of is None else answer_of(answer),
                dirty=b"\\u0000" in body,  # of the two evils msgspec lets only NUL through
            )
        except (msgspec.MsgspecError, UnicodeDecodeError, AttributeError, RecursionError):
            return None

    return read


class _StructTree:
    """A tree of field names that becomes nested structs."""

    def __init__(self) -> None:
        self._fields: dict[str, _StructTree | tuple[Any, bool]] = {}
        self._possible = True

    def add(self, path: Path | None, kind: Any, *, required: bool) -> str | None:
        """Add a path and return the attribute path to its value; "" if there is no path, None if it does not fit."""
        if path is None:
            return ""
        if not path.steps or any(_UNSUPPORTED_NAME.search(step) for step in path.steps):
            return None
        shape, attributes = self, []
        for step in path.steps[:-1]:
            inner = shape._fields.setdefault(step, _StructTree())
            if not isinstance(inner, _StructTree):
                return None
            attributes.append(_attribute(step))
            shape = inner
        last = path.steps[-1]
        present = shape._fields.setdefault(last, (kind, required))
        if present != (kind, required) and not (kind is _DOCUMENT and present == (_ID, True)):
            return None
        return ".".join([*attributes, _attribute(last)])

    def build(self) -> Any:
        """Return the struct type; None without fields."""
        if not self._fields:
            return None
        columns: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for name, field in self._fields.items():
            attribute = _attribute(name)
            if isinstance(field, _StructTree):
                inner = field.build()
                columns.append(
                    (attribute, inner) if field.required else (attribute, inner, msgspec.field(default_factory=inner))
                )
            else:
                kind, required = field
                columns.append((attribute, kind) if required else (attribute, kind, None))
        rename = {_attribute(name): name for name in self._fields}
        return msgspec.defstruct("Answer", columns, rename=rename, kw_only=True, gc=False)

    @property
    def required(self) -> bool:
        """Whether a response must have any of these fields."""
        return any(field.required if isinstance(field, _StructTree) else field[1] for field in self._fields.values())


def _attribute(name: str) -> str:
    return f"f{name.encode().hex()}"  # any field name, as an identifier


def read_generically(paths: Paths, max_hits: int, body: bytes) -> Columns:
    """Return the columns of any response; raises MalformedError."""
    answer, dirty = parse_json(body)
    if isinstance(answer, dict):
        check_signs(
            answer,
            errors=((path, _evaluate(path, answer, "error")) for path in paths.error),
            partial=((path, _evaluate(path, answer, "partial")) for path in paths.partial),
        )
    if paths.hits is None:
        read, count = _read_columns(paths, max_hits, answer)
    else:
        read, count = _read_rows(paths, paths.hits, max_hits, answer)

    def column(path: Path | None, take: Callable[[Any], Any]) -> list[Any] | None:
        values = None if path is None else read(path)
        if path is None or values is None:
            return None
        for index, value in enumerate(values):
            try:
                values[index] = take(value)
            except _WrongTypeError as error:
                raise MalformedError(f"{paths.place(index, path)}: {error}") from None
        return values

    return Columns(
        count=count,
        ids=column(paths.id, _take_id),
        scores=column(paths.score, _take_score),
        texts=column(paths.text, _take_text),
        documents=column(paths.document, _take_document),
        updated=column(paths.updated, _take_updated),
        version=None if paths.version is None else _evaluate(paths.version, answer, "index_version"),
        answer=None if paths.answer is None else _evaluate(paths.answer, answer, "answer"),
        dirty=dirty,
    )


Read = Callable[[Path], list[Any] | None]
"""Gives the values of a path, one per hit; None where the answer does not have the column at all."""


def _read_rows(paths: Paths, hits_path: Path, max_hits: int, answer: Any) -> tuple[Read, int]:
    """Read hits that are items of a list, or a lone text where hits are texts."""
    hits = _evaluate(hits_path, answer, "hits")
    if hits is None and hits_path.steps != ():
        hits = _absent_hits(paths, hits_path, "response.hits", answer)
    if isinstance(hits, str) and paths.text is not None and paths.text.steps == ():
        hits = [hits] if hits else []
    if not isinstance(hits, list):
        name = "the answer" if hits_path.steps == () else hits_path.text
        what = "missing" if hits is None else "not a list"
        raise MalformedError(f"{name}: {what}, though response.hits is mapped to it")
    hits = hits[:max_hits]

    def read(path: Path) -> list[Any]:
        values = []
        for index, hit in enumerate(hits):
            try:
                values.append(path.search(hit))
            except _EVALUATION_ERRORS:
                raise MalformedError(f"{paths.place(index, path)}: {_NOT_APPLICABLE}") from None
        return values

    return read, len(hits)


def check_written(paths: Paths, body: bytes) -> None:
    """Raise PartialAnswerError where what answers a write says that it failed; what is no JSON says nothing."""
    try:
        answer, _ = parse_json(body)
    except MalformedError:
        return
    if isinstance(answer, dict):
        check_signs(answer, errors=((path, _evaluate(path, answer, "error")) for path in paths.error), partial=())


def unwrap_json(path: Path, body: bytes) -> bytes:
    """Return the JSON that a text in an answer holds; raises MalformedError."""
    answer, _ = parse_json(body)
    value = _evaluate(path, answer, "unwrap")
    if not isinstance(value, str):
        what = "missing" if value is None else "not a text"
        message = message_beside(answer) if isinstance(answer, dict) else None
        raise MalformedError(f"{path.text}: {what}, though response.unwrap is mapped to it{quoted(message)}")
    return value.encode(errors="replace")


def _absent_hits(paths: Paths, path: Path, field: str, answer: Any) -> list[Any]:
    """Return no hits where null, or a list that may be absent, says that nothing was found; raises otherwise."""
    if is_null(path, answer):
        return []
    body = answer if isinstance(answer, dict) else {}
    code = body.get("code", 0)
    message = message_beside(body)
    if code not in (0, 200, "0", "200", None) and message is not None:
        raise PartialAnswerError(f"answered with an error{quoted(message)}")
    if paths.absent_is_empty and isinstance(follow_steps((path.steps or ())[:-1], answer), dict):
        return []
    text = f"{path.text}: missing, though {field} is mapped to it"
    if message is not None:
        raise MalformedError(f"{text}; the answer says{quoted(message)}")
    raise MalformedError(f"{text}; if that means nothing found, set response.absent to empty")


def _read_columns(paths: Paths, max_hits: int, answer: Any) -> tuple[Read, int]:
    """Read hits that lie across lists side by side, which must be equally long."""
    mapped = {path.text: path for path in (paths.id, paths.score, paths.text, paths.document, paths.updated) if path}
    identity = paths.id or paths.text
    needed = [path.text for path in (identity, paths.score) if path]
    columns: dict[str, list[Any] | None] = {}
    lengths: dict[str, int] = {}
    for name, path in mapped.items():
        try:
            column = path.column(answer, max_hits)
        except _EVALUATION_ERRORS:
            raise MalformedError(f"{name}: {_NOT_APPLICABLE}") from None
        except MalformedError as error:
            raise MalformedError(f"{name}: {error}, though {paths.field(path)} is mapped to it") from None
        if column is None and path is identity:
            _absent_hits(paths, path, paths.field(path), answer)
            return lambda _: [], 0
        if column is None and name in needed:
            raise MalformedError(f"{name}: missing, though {paths.field(path)} is mapped to it")
        columns[name] = None if column is None else column[0]
        if column is not None:
            lengths[name] = column[1]
    if len(set(lengths.values())) > 1:
        lengths_text = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise MalformedError(f"the columns are not equally long: {lengths_text}")

    def read(path: Path) -> list[Any] | None:
        column = columns[path.text]
        return None if column is None else list(column)

    return read, min(next(iter(lengths.values())), max_hits)


def parse_json(body: bytes) -> tuple[Any, bool]:
    """Parse JSON, also malformed; returns it and whether its strings may be unstorable. Raises MalformedError."""
    excess = excess_of_answer(body)  # before parsing: objects take up to forty times their bytes
    if excess is not None:
        raise MalformedError(excess)
    try:
        return _decode(body), b"\\u0000" in body
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = body.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise MalformedError("the answer is not UTF-8") from None
    try:
        return json.loads(text, parse_int=_parse_int), True
    except (ValueError, RecursionError):
        pass
    if not text:
        raise MalformedError("the answer is empty")
    if _EVENT_STREAM.match(text):
        raise MalformedError("the answer is an event stream (SSE), not one JSON document; ask for it without streaming")
    first, _, rest = text.partition("\n")
    if rest and _is_json(first) and _is_json(rest.partition("\n")[0]):
        raise MalformedError("the answer is NDJSON, a JSON document on each line, not one JSON document")
    what = "HTML or XML, not JSON" if text.startswith("<") else "not JSON"
    raise MalformedError(f"the answer is {what}{quoted(message_of_body(body))}")


def _is_json(line: str) -> bool:
    try:
        return isinstance(_decode(line.encode()), dict | list)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) < _LONG_INTEGER else math.inf


def _evaluate(path: Path, value: Any, place: str) -> Any:
    try:
        return path.search(value)
    except _EVALUATION_ERRORS:
        raise MalformedError(f"{place}: {_NOT_APPLICABLE}") from None


class _WrongTypeError(Exception):
    """A value has another type than its field; says which."""


def _take_id(value: Any) -> str | int:
    if value is None:
        raise _WrongTypeError("missing")
    if isinstance(value, str) or type(value) is int:
        return value
    raise _WrongTypeError("neither a string nor a whole number")


def _take_document(value: Any) -> str | int | None:
    return None if value is None else _take_id(value)


def _take_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    blocks = value if isinstance(value, list) else [value]
    if not blocks or not all(isinstance(block, dict) and ("text" in block or "type" in block) for block in blocks):
        raise _WrongTypeError("not a string")
    texts = [block.get("text") for block in blocks]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def _take_score(value: Any) -> float:
    if value is None:
        raise _WrongTypeError("missing")
    if type(value) is not float and type(value) is not int:
        raise _WrongTypeError("not a number")
    score = _number(value)
    if not math.isfinite(score):
        raise _WrongTypeError("not a finite number")
    return score


def _take_updated(value: Any) -> str | float | None:
    if value is None or isinstance(value, str):
        return value
    if type(value) is not float and type(value) is not int:
        raise _WrongTypeError("neither a time as text nor a number of seconds")
    return _number(value)


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


_UNSUPPORTED_NAME = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')
"""What msgspec does not take in the name of a field."""
_EVENT_STREAM = re.compile(r"(?:data|event|id|retry|):")
_LONG_INTEGER = 4_300  # digits; Python refuses to convert more
_EVALUATION_ERRORS = (
    JMESPathError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
)
_NOT_APPLICABLE = "the expression does not fit the answer"
_ID: Any = str | int
_SCORE: Any = float
_TEXT: Any = str | None
_DOCUMENT: Any = str | int | None
_UPDATED: Any = str | float | None
_decode = msgspec.json.Decoder().decode
