"""Untrusted texts, made harmless to show: lines, tables, JSON without its vectors, Markdown.

Below: JSON read within limits, files decoded, canary files found, and files of secrets.
"""

import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from app.base.documents.fields import MOST_PROBLEMS, Document
from app.base.errors import InvalidInputError, Problem
from app.base.texts import REQUEST_LIMITS, JsonLimits, excess_of

UNDEFINED = "\N{EN DASH}"


def table_markdown(table: "Table") -> str:
    """Return a table as a section of Markdown, without a line break at its end."""
    note = ["", f"{prose(table.note[:1].upper() + table.note[1:])}."] if table.note else []
    return "\n".join([f"## {table.title}", "", *_table_lines(table), *note])


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Texts to draw as a table. Free of control characters, but otherwise as hostile as their source."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    quoted: frozenset[int] = frozenset()
    """Columns that hold texts of others, to be shown literally; the rest are numbers and words of ours."""
    note: str = ""
    """Sentence of ours that explains the numbers, without a full stop."""


def number(value: float | None) -> str:
    """Write a number with three decimals, and None as undefined."""
    return UNDEFINED if value is None else f"{value:.3f}"


def plain(text: str) -> str:
    """Return the text on one line without control, formatting (such as right-to-left marks) or unpaired characters."""
    spaced = "".join(" " if character.isspace() else character for character in text)
    printable = "".join(character for character in spaced if unicodedata.category(character) not in _UNSHOWN)
    return " ".join(printable.split())


def shorten(text: str, limit: int) -> str:
    """Return `plain` text of at most `limit` characters."""
    line = plain(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


_UNSHOWN = {"Cc", "Cf", "Cs"}


def _table_lines(table: Table) -> list[str]:
    lines = [
        [prose(column) for column in table.columns],
        ["---"] * len(table.columns),
        *(
            [code(cell) if position in table.quoted else prose(cell) for position, cell in enumerate(row)]
            for row in table.rows
        ),
    ]
    return [f"| {' | '.join(line)} |" for line in lines]


def prose(text: str) -> str:
    """Escape everything Markdown could read as markup, except within words.

    Round brackets and exclamation marks are markup only beside square brackets, which are escaped; `R@5` mentions
    nobody.
    """
    return re.sub(r"([\\`*{}\[\]#+|<>~&]|(?<!\w)_|_(?!\w)|@(?!\d)|(?<!\w)@)", r"\\\1", plain(text))


def code(text: str) -> str:
    """Show a text literally, in a code span: no markup, mention or link is made of it. Pipes are escaped for tables."""
    line = plain(text)
    if line in {"", UNDEFINED}:
        return UNDEFINED
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    padding = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{padding}{line}{padding}{fence}".replace("|", "\\|")


_NUMBER = r"-?\d++(?:\.\d++)?+(?:[eE][+-]?\d++)?+"
_TOKENS = re.compile(
    rf'"(?:[^"\\]++|\\.)*+"?|\[\s*+(?P<numbers>{_NUMBER}(?:\s*+,\s*+{_NUMBER})*+)\s*+(?P<end>\]|[,\s.eE+\-\d]*+\Z)',
    re.DOTALL,
)
"""Texts, which are left alone, and lists of numbers. Possessive throughout: whoever answers chooses the text."""
_LONGEST_LIST = 16
"""Longer lists of numbers are vectors."""


def shown_json(body: str) -> str:
    """Lay out a body for people: whole JSON with line breaks, its vectors as `[0.12, -0.03, ... 384 numbers]`.

    A vector that was cut off at the end has `more than` so many.
    """
    try:
        text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = body
    return _TOKENS.sub(_shortened, text)


def _shortened(found: re.Match[str]) -> str:
    numbers = found["numbers"]
    count = 0 if numbers is None else numbers.count(",") + 1
    if count <= _LONGEST_LIST:
        return found[0]
    first, second, _ = numbers.split(",", 2)
    text = f"{'' if found['end'] == ']' else 'more than '}{count:,} numbers"
    return f"[{float(first):.3g}, {float(second):.3g}, ... {text}]"


_CLOSING = {"{": "}", "[": "]"}
_LEVELS = 200

_Open: TypeAlias = "tuple[str, _Open] | None"
"""What closes what is open, from the inside out: linked, so that a place is remembered without copying the stack."""


def parse_cut(text: str) -> Any:  # noqa: C901 - a scanner, one branch for each kind of character
    """Parse the beginning of a JSON document up to the last whole object of a list; None where nothing came whole.

    Where there is no such object, up to the last whole value: objects then lack their last keys. What is nested more
    than 200 levels deep counts as cut off there.
    """
    open_: _Open = None
    levels = 0
    whole: tuple[int, _Open] | None = None
    open_list: tuple[int, _Open] | None = None
    quoted = escaped = False
    for place, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "{[":
            if levels == _LEVELS:
                break  # what came whole before is still of use
            open_, levels = (_CLOSING[character], open_), levels + 1
        elif character in "}]" and open_:
            open_, levels = open_[1], levels - 1
            whole = (place + 1, open_)
            if character == "}" and open_ and open_[0] == "]":
                open_list = whole
        elif character == "," and open_:
            whole = (place, open_)
    if whole is None:
        return None
    end, left = open_list or whole
    closing = ""
    while left:
        closing, left = closing + left[0], left[1]
    try:
        return json.loads(text[:end] + closing)
    except (ValueError, RecursionError):
        return None


def parse_json_text(
    text: str, limits: JsonLimits | None = REQUEST_LIMITS, *, parse_constant: Callable[[str], Any] | None = None
) -> Any:
    """Return the JSON of a text. Raises ValueError where it is none, or holds more than the limits permit."""
    excess = None if limits is None else excess_of(text.encode(errors="replace"), limits)
    if excess is not None:
        raise ValueError(excess)
    try:
        return json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError("is nested too deep") from None


_BLOCK = 500


def in_blocks(model: type[Document]) -> BeforeValidator:
    """Give the validator of a list of documents, to stand before the list's own.

    Its items come out validated. Of a list with many problems only those of the first blocks are told.
    """

    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) <= _BLOCK:
            return value
        valid: list[Document] = []
        wrong: list[InitErrorDetails] = []
        for start in range(0, len(value), _BLOCK):
            try:
                valid += _adapter(model).validate_python(list(value[start : start + _BLOCK]))
            except ValidationError as error:
                wrong += [_moved(one, start) for one in error.errors(include_url=False)]
            if len(wrong) > MOST_PROBLEMS:
                break
        if wrong:
            raise ValidationError.from_exception_data("list", wrong)
        return valid

    return BeforeValidator(check)


@cache
def _adapter(model: type[Document]) -> TypeAdapter[Any]:
    return TypeAdapter(list[model])  # type: ignore[valid-type] # a variable, which mypy takes for no type


def _moved(error: ErrorDetails, start: int) -> InitErrorDetails:
    """Say an error of a block with its place in the whole list."""
    position, *within = error["loc"]
    kind: Any = error["type"]
    context = error.get("ctx", {})
    if kind == "invalid":  # ours: see fields.field_error
        kind = PydanticCustomError("invalid", "{message}", {"message": error["msg"]})
    return InitErrorDetails(type=kind, loc=(start + int(position), *within), input=error["input"], ctx=context)


UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
"""The first two bytes of UTF-16 text."""


def not_utf_8(name: str) -> str:
    """Say that a file is not UTF-8 text, and the command that converts one of Windows."""
    command = f"iconv -f WINDOWS-1252 -t UTF-8 {shlex.quote(name)} > utf-8.txt"
    return f"is not UTF-8 text; in Excel save it as CSV UTF-8, or convert it: {command}"


def decode_text(raw: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with its mark. Raises UnicodeDecodeError."""
    return raw.decode("utf-16" if raw[:2] in UTF_16_MARKS else "utf-8-sig")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A named text that can be read line by line, repeatedly."""

    name: str
    lines: Callable[[], Iterable[str]]
