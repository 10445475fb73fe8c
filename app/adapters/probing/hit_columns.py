"""Columns of the mapped fields of all hits of a response, read in one of two ways that agree.

Plain paths are read by typed structs generated for the mapping. Whatever these cannot read is read again generically
(JSON, then JMESPath), which decides and words the error; so only odd responses pay for it, and those that come as
columns already, which cost an evaluation per column.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
from jmespath.exceptions import JMESPathError

from app.adapters.probing.jmespath_paths import MalformedError, Path, Paths
from app.domain.json_size import excess_of_answer


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
    if struct is None or paths.hits.steps is None or None in fields:
        return None
    hits_of: Callable[[Any], Any] | None = None
    version_of: Callable[[Any], Any] | None = None
    answer_of: Callable[[Any], Any] | None = None
    kind: Any = list[struct]  # type: ignore[valid-type] # made here, for this mapping
    if paths.hits.steps:
        hits_field = top.add(paths.hits, kind, required=True)
        version_field = top.add(paths.version, Any, required=False)
        answer_field = top.add(paths.answer, Any, required=False)
        kind = top.build()
        if kind is None or not hits_field or version_field is None or answer_field is None:
            return None
        hits_of = attrgetter(hits_field)
        version_of = attrgetter(version_field) if version_field else None
        answer_of = attrgetter(answer_field) if answer_field else None
    elif paths.version is not None or paths.answer is not None:
        return None
    decode = msgspec.json.Decoder(kind).decode
    get_id, get_score, get_text, get_document, get_updated = (attrgetter(field) if field else None for field in fields)

    def read(body: bytes) -> Columns | None:
        try:
            answer = decode(body)
            hits = answer if hits_of is None else hits_of(answer)
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


def _read_columns(paths: Paths, max_hits: int, answer: Any) -> tuple[Read, int]:
    """Read hits that lie across lists side by side, which must be equally long."""
    mapped = {path.text: path for path in (paths.id, paths.score, paths.text, paths.document, paths.updated) if path}
    needed = [path.text for path in (paths.id or paths.text, paths.score) if path]
    columns: dict[str, list[Any] | None] = {}
    lengths: dict[str, int] = {}
    for name, path in mapped.items():
        try:
            column = path.column(answer, max_hits)
        except _EVALUATION_ERRORS:
            raise MalformedError(f"{name}: {_NOT_APPLICABLE}") from None
        except MalformedError as error:
            raise MalformedError(f"{name}: {error}, though {paths.field(path)} is mapped to it") from None
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
    text = body.decode("utf-8-sig", errors="replace").strip()
    try:
        return json.loads(text, parse_int=_parse_int), True
    except (ValueError, RecursionError):
        pass
    if not text:
        raise MalformedError("the answer is empty")
    raise MalformedError("the answer is HTML or XML, not JSON" if text.startswith("<") else "the answer is not JSON")


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
