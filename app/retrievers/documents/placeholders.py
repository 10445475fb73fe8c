"""Placeholders of documents: `{{ query }}` in texts, `:query` in SQL; which exist, and what is wrong with them."""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Annotated, Any

from pydantic import StringConstraints

from app.base.documents.fields import Place, check_url, did_you_mean, field_error, one_line, texts_in
from app.retrievers.domain.retrievers import PLACEHOLDER

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


def sql_problems(sql: str, options: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each problem of an SQL template: its parameters, and its names."""
    for name in sorted(parameters_in(sql) - set(RESERVED)):
        yield _unknown(f"parameter ':{one_line(name)}'", name, RESERVED)
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
