"""Lays what a user wrote over a preset. Doing it again changes nothing, so what is stored reads back the same.

Works on raw mappings, before anything in them is known to be valid: whatever has the wrong type is left as it is, for
the documents to complain about. Nothing given is changed.
"""

import re
from collections.abc import Mapping
from typing import Any

from app.domain.probing.retrievers import Dialect, ScorerKind
from app.formats.auth_documents import apply_style
from app.formats.http_fields import has_header, origin_of
from app.formats.probing.placeholders import QUERY_NAMES, parameters_in, placeholders_in
from app.formats.probing.presets import Preset

_HOST_ALONE = re.compile(r"(https?://[^/?#]+)/?(\?[^#]*)?")


def apply_preset(written: Mapping[str, Any], preset: Preset) -> dict[str, Any]:
    """Return the document with everything the preset has to say and the user did not.

    What a user says replaces the preset's word, key by key; null takes a key out. How the question is put (`json`,
    `query`, `sql`) is replaced whole.
    """
    whole = dict(written)
    if preset.dialect is not Dialect.SQL:
        whole["url"] = _with_path(written.get("url"), preset.path)
    whole["request"] = _request(written.get("request", {}), preset.request)
    whole["response"] = _response(written, preset)
    _set(whole, "scorer", _scorer(written, preset.scorer))
    _set(whole, "lookup", _lookup(written, preset.lookup, whole.get("url")))
    if "auth" in written:
        whole["auth"] = apply_style(written["auth"], preset.auth)
    _set(whole, "options", _options(whole, preset))
    return {name: value for name, value in whole.items() if value is not None or name in written}


def _set(whole: dict[str, Any], name: str, value: Any) -> None:
    if value or name in whole:
        whole[name] = value


def _with_path(url: Any, path: str) -> Any:
    alone = _HOST_ALONE.fullmatch(url) if isinstance(url, str) and path else None
    return f"{alone[1]}{path}{alone[2] or ''}" if alone else url


def _request(mine: Any, preset: Mapping[str, Any]) -> Any:
    if not isinstance(mine, Mapping):
        return mine
    fields = {"query" if name == "params" else name for name in mine}
    base = {name: value for name, value in preset.items() if name not in fields}
    if any(_asks(name, mine.get(name)) for name in _POSED):  # a question is put once: the user's way, else the preset's
        base = {name: value for name, value in base.items() if not _asks(name, value)}
    if str(mine.get("method", "")).upper() == "GET":
        base.pop("json", None)
    whole = {**base, **mine}
    if isinstance(mine.get("headers", {}), Mapping):
        headers = dict(mine.get("headers", {}))
        added = {name: value for name, value in preset.get("headers", {}).items() if not has_header(headers, name)}
        if added or headers:
            whole["headers"] = {**added, **headers}
    return whole


_POSED = ("json", "query", "params", "sql")


def _asks(name: str, value: Any) -> bool:
    used = parameters_in(value) if name == "sql" and isinstance(value, str) else placeholders_in(value)
    return name in _POSED and not QUERY_NAMES.isdisjoint(used)


def _response(written: Mapping[str, Any], preset: Preset) -> Any:
    if "response" not in written:
        return dict(preset.response)
    mine = written["response"]
    return {**preset.response, **mine} if isinstance(mine, Mapping) and not preset.response_as_one else mine


def _scorer(written: Mapping[str, Any], preset: Mapping[str, Any]) -> Any:
    mine, response = written.get("scorer", {}), written.get("response")
    if not isinstance(mine, Mapping):
        return mine
    outside = mine.get("kind") in (ScorerKind.EMBEDDING, ScorerKind.RERANK)  # it may be anything, a list too
    unscored = isinstance(response, Mapping) and "score" in response and response["score"] is None
    base = {} if outside or unscored else dict(preset)
    if "scale" in mine:
        base.pop("anchor", None)
    return {**base, **mine}


def _lookup(written: Mapping[str, Any], preset: Mapping[str, Any] | None, url: Any) -> Any:
    mine = written.get("lookup", preset)
    if not isinstance(mine, Mapping):
        return mine
    whole = {**(preset or {}), **mine}
    path = whole.get("url")
    if isinstance(path, str) and path.startswith("/") and not path.startswith("//") and isinstance(url, str):
        whole["url"] = _origin(url) + path
    return whole


def _origin(url: str) -> str:
    try:
        return origin_of(url)
    except ValueError:  # the document says what is wrong with it
        return ""


def _options(whole: Mapping[str, Any], preset: Preset) -> Any:
    """Fill in options, those missing as null; what no template uses any more needs no value."""
    mine = whole.get("options", {})
    if not isinstance(mine, Mapping):
        return mine
    used = placeholders_in([whole.get("url"), whole.get("lookup"), whole.get("request")])
    filled = {one.name: one.default for one in preset.options if not one.required or one.name in used}
    return filled | dict(mine)
