"""Merges the document of a user with its preset. Merging again changes nothing, so stored documents read back the same.

Works on raw mappings, before anything in them is known to be valid: values of a wrong type are left to the documents.
Its arguments are not changed.
"""

import re
from collections.abc import Mapping
from typing import Any

from app.base.documents.auth_documents import apply_style
from app.base.documents.http_fields import has_header, origin_of
from app.retrievers.documents.placeholders import QUERY_NAMES, parameters_in, placeholders_in
from app.retrievers.domain.retrievers import Dialect, ScorerKind
from app.retrievers.presets import Preset

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
