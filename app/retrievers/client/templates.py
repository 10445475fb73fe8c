"""Templates of JSON bodies and URLs with `{{ query }}`, `{{ k }}` and others, compiled once and rendered per canary.

A value is always encoded for its place, so no query breaks out of it. What names mean is left to callers.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

Value = str | int | float | Sequence[float] | Sequence[str]
Encode = Callable[[Value], bytes]
Part = bytes | tuple[str, Encode]


class Template:
    """Fixed pieces and placeholders between them; made by `json_template` and `url_template`."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Iterable[Part]) -> None:
        merged: list[Part] = []
        for part in parts:
            last = merged[-1] if merged else None
            if isinstance(part, bytes) and isinstance(last, bytes):
                merged[-1] = last + part
            else:
                merged.append(part)
        self._parts = tuple(merged)

    @property
    def names(self) -> frozenset[str]:
        """The names still to be filled."""
        return frozenset(part[0] for part in self._parts if not isinstance(part, bytes))

    def bind(self, /, **values: Value) -> "Template":
        """Template with some names filled: what does not change within a run costs nothing per canary."""
        return Template(
            part if isinstance(part, bytes) or part[0] not in values else part[1](values[part[0]])
            for part in self._parts
        )

    def render(self, /, **values: Value) -> bytes:
        """Bytes with every remaining name filled."""
        return b"".join([part if isinstance(part, bytes) else part[1](values[part[0]]) for part in self._parts])


def json_template(document: Any, names: Sequence[str], field_names: Sequence[str] = ()) -> Template:
    """Compile a JSON document. A string that is only a placeholder becomes the value with its type: 10, not "10".

    Names of fields may hold the placeholders of `field_names` alone, as text. Raises ValueError for a placeholder that
    is not closed or not among `names`, saying which are.
    """
    return Template(_json_parts(document, names, field_names))


def url_template(url: str, parameters: Mapping[str, Any], names: Sequence[str]) -> Template:
    """Compile a URL and the query parameters to append to it; a list repeats its parameter, None leaves it out.

    Placeholders may stand behind the host only: where a request goes is never a matter of the query.
    Raises ValueError for an unknown or unclosed placeholder, one out of place, or what is not an http(s) URL.
    """
    try:
        split = urlsplit(url)
        host, _ = split.hostname, split.port
    except ValueError as error:
        raise ValueError(f"the URL is malformed: {error}") from None
    if split.scheme not in {"http", "https"} or not host:
        raise ValueError("the URL must begin with http:// or https:// and a host")
    if "{{" in split.netloc:
        raise ValueError("placeholders may not stand in the host of a URL")
    parts: list[Part] = [f"{split.scheme}://{split.netloc}".encode()]
    parts += _text_parts(split.path or "/", names, _path_segment, _keep_escapes)
    query: list[list[Part]] = [_text_parts(split.query, names, _percent, _keep_escapes)] if split.query else []
    for name, value in parameters.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None:
                text = item if isinstance(item, str) else msgspec.json.encode(item).decode()
                query.append([f"{quote(name, safe='')}=".encode(), *_text_parts(text, names, _percent, _percent)])
    for number, piece in enumerate(query):
        parts += [b"&" if number else b"?", *piece]
    return Template(parts)


def _json_parts(node: Any, names: Sequence[str], field_names: Sequence[str]) -> list[Part]:
    parts: list[Part]
    if isinstance(node, str):
        alone = _PLACEHOLDER.fullmatch(node.strip())
        if alone:
            return [(_check_name(alone[1], names), _json)]
        return [b'"', *_text_parts(node, names, _json_text, _json_text), b'"']
    if isinstance(node, Mapping):
        parts = [b"{"]
        for number, (key, value) in enumerate(node.items()):
            if any(name not in field_names for name in _PLACEHOLDER.findall(str(key))):
                raise ValueError("names of fields may hold placeholders of options alone")
            name_parts = _text_parts(str(key), field_names, _json_text, _json_text)
            parts += [b',"' if number else b'"', *name_parts, b'":', *_json_parts(value, names, field_names)]
        return [*parts, b"}"]
    if isinstance(node, list | tuple):
        parts = [b"["]
        for number, value in enumerate(node):
            parts += [b"," if number else b"", *_json_parts(value, names, field_names)]
        return [*parts, b"]"]
    try:
        return [msgspec.json.encode(node)]
    except TypeError:
        raise ValueError(f"a {type(node).__name__} has no place in a JSON document") from None


def _text_parts(text: str, names: Sequence[str], value: Encode, fixed: Encode) -> list[Part]:
    """Split a text at its placeholders; `value` encodes what is filled in, `fixed` the text around."""
    parts: list[Part] = []
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        parts += [fixed(text[end : match.start()]), (_check_name(match[1], names), value)]
        end = match.end()
    if "{{" in text[end:]:
        raise ValueError("a placeholder is opened by {{ and not closed by }}")
    return [*parts, fixed(text[end:])]


def _check_name(name: str, names: Sequence[str]) -> str:
    if name not in names:
        known = ", ".join(f"{{{{ {known} }}}}" for known in names)
        raise ValueError(f"{{{{ {name} }}}} is not a known placeholder; there are {known}")
    return name


def _json(value: Value) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # a lone surrogate: legal in JSON as an escape
        return json.dumps(value).encode()


def _json_text(value: Value) -> bytes:
    return _json(str(value))[1:-1]


def _percent(value: Value) -> bytes:
    return quote(str(value), safe="", errors="replace").encode()


def _path_segment(value: Value) -> bytes:
    return _percent(value).replace(b".", b"%2E")  # ".." must not walk up


def _keep_escapes(value: Value) -> bytes:
    return quote(str(value), safe="%/?:@!$&'()*+,;=-._~[]", errors="replace").encode()


_PLACEHOLDER = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_encode = msgspec.json.Encoder().encode
