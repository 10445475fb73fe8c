"""A retriever as a form has it, and back: every field named by its path in the document. Secrets are never filled in.

What a form has no field for stays as it is stored; what is wrong with a value is for the document to say. The wizard's
fields are its own and not made by `app.web.document_forms`: a preset and an answer decide which there are.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from app.domain.errors import InvalidInputError, Problem
from app.domain.probing.answer_outline import MAPPED_FIELDS
from app.domain.probing.retrievers import Dialect, Scale, ScorerKind
from app.formats.probing.expansion import apply_preset
from app.formats.probing.presets import PRESETS
from app.web.forms import Form, parse_number, parse_pairs
from app.web.parameters import refuse_other

KEEP, NO_CHOICE = "keep", ""
"""Choices of a scorer: as it is stored, and whatever follows from the rest."""
NO_AUTH: Final = "none"
AUTH_FIELDS: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "bearer": (("token", "Token", True),),
    "api_key": (
        ("key", "Key", True),
        ("header", "Header", False),
        ("query", "Query parameter", False),
        ("prefix", "Prefix", False),
    ),
    "basic": (("user", "User", False), ("password", "Password", True)),
    "oauth2": (
        ("token_url", "Token URL", False),
        ("client_id", "Client id", False),
        ("client_secret", "Client secret", True),
        ("scope", "Scope", False),
        ("audience", "Audience", False),
    ),
    "sigv4": (
        ("region", "Region", False),
        ("service", "Service", False),
        ("access_key", "Access key", False),
        ("secret_key", "Secret key", True),
        ("session_token", "Session token", True),
    ),
}
"""By kind of authentication: name, label, and whether it is a secret."""
AUTH_WORDS = {
    "bearer": "a bearer token",
    "api_key": "an API key",
    "basic": "a user and a password",
    "oauth2": "an OAuth2 client",
    "sigv4": "AWS Signature Version 4",
}
LABELS: Mapping[str, str] = {
    "slug": "Name",
    "url": "URL",
    "embedding": "Embeddings",
    "embedding.url": "Embeddings URL",
    "embedding.model": "Model",
    "embedding.auth.token": "Token",
    "auth": "Authentication",
    "request": "Request",
    "request.method": "Method",
    "request.json": "Body as JSON",
    "request.sql": "SQL",
    "request.tool": "Tool",
    "request.query": "Query parameters as JSON",
    "request.headers": "Headers",
    "options": "Variables",
    "timeout": "Timeout in seconds",
    "concurrency": "Concurrency",
    "requests_per_second": "Requests per second",
    "scorer": "Scores are",
    "scorer.anchor": "Score that is half relevant",
} | {f"auth.{kind}.{name}": label for kind, fields in AUTH_FIELDS.items() for name, label, _ in fields}
"""What people see the fields called that make a retriever, but for those of its mapping."""
_NUMBERS = ("timeout", "concurrency", "requests_per_second")


def preset_body(preset: str) -> dict[str, Any]:
    """Give the body of a retriever that was only just begun: what its preset says. Raises InvalidInputError."""
    refuse_other(preset, PRESETS, "preset")
    known = PRESETS[preset]
    body = apply_preset({"preset": preset}, known)
    if known.response_as_one:
        body["response"] = {}
    if known.needs_auth or known.dialect is Dialect.SQL:
        body["auth"] = dict(known.auth)
    return {"slug": "", "url": "", **body}


def form_texts(body: Mapping[str, Any]) -> dict[str, str]:
    """Fill the fields of a form from a retriever's public body."""
    request, auth, embedding = body.get("request") or {}, body.get("auth") or {}, body.get("embedding") or {}
    preset = body.get("preset") or "generic"
    texts = {
        "slug": body.get("slug") or "",
        "preset": preset,
        "url": body.get("url") or "",
        "request.method": request.get("method") or "POST",
        "request.json": _json_text(request.get("json")),
        "request.query": _json_text(request.get("query") or None),
        "request.sql": request.get("sql") or "",
        "request.tool": request.get("tool") or "",
        "request.headers": "\n".join(
            f"{name}: {value or ''}" for name, value in (request.get("headers") or {}).items()
        ),
        "auth.kind": auth.get("kind") or NO_AUTH,
        "embedding.url": embedding.get("url") or "",
        "embedding.model": embedding.get("model") or "",
        "scorer": scorer_choice(body),
        "scorer.anchor": _plain((body.get("scorer") or {}).get("anchor")),
    }
    for kind, fields in AUTH_FIELDS.items():
        said = next((one for one in (auth, PRESETS[preset].auth) if one.get("kind") == kind), {})
        for name, _, secret in fields:
            texts[f"auth.{kind}.{name}"] = "" if secret else str(said.get(name) or "")
    texts |= {f"options.{one.name}": one.default or "" for one in PRESETS[preset].options}
    texts |= {f"options.{name}": value or "" for name, value in (body.get("options") or {}).items()}
    texts |= {f"response.{name}": (body.get("response") or {}).get(name) or "" for name in MAPPED_FIELDS}
    texts |= {name: _plain(body.get(name)) for name in _NUMBERS}
    return texts


def document_body(typed: Form, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Make the body of a retriever of what was typed; a secret left empty is null where one is stored.

    Raises InvalidInputError for what cannot even be read: JSON that is none, headers without a colon.
    """
    preset = str(stored["preset"]) if stored else typed.get("preset", "generic")
    body: dict[str, Any] = dict(stored or {})
    slug = str(stored["slug"]) if stored else typed.stripped("slug")
    body |= {"slug": slug, "preset": preset, "url": typed.stripped("url")}
    body["options"] = _options(typed, stored)
    body["request"] = _request(typed, preset, (stored or {}).get("request") or {})
    body["response"] = response_body(typed) if _has_mapping(typed) else _response_of_preset(preset)
    auth = _auth(typed, (stored or {}).get("auth") or {})
    if auth is not None or (stored or {}).get("auth"):
        body["auth"] = auth
    embedding = _embedding(typed, (stored or {}).get("embedding"))
    if embedding is not None:
        body["embedding"] = embedding
    scorer = scorer_body(typed, stored)
    if scorer is not None:
        body["scorer"] = scorer
    for name in _NUMBERS:
        if typed.stripped(name) and typed.stripped(name) != _plain((stored or {}).get(name)):
            body[name] = parse_number(typed.get(name))
    return body


def without_secrets(typed: Form) -> Form:
    """Give the form as it may be sent back: of headers only the names, and the values the preset says.

    Fields of secrets are never filled in. A line that is no header may be anything, so nothing of it is left.
    """
    preset = PRESETS.get(typed.get("preset"))
    known = preset.request.get("headers", {}) if preset is not None else {}
    told = []
    for line in typed.get("request.headers").splitlines():
        name, colon, value = (part.strip() for part in line.partition(":"))
        if colon and name:
            told.append(f"{name}: {value if known.get(name) == value else ''}".rstrip())
    return replace(typed, texts={**typed.texts, "request.headers": "\n".join(told)})


def response_body(typed: Form) -> dict[str, str | None]:
    """Give the mapping as a document's `response`; null takes out what a preset would fill in again."""
    return {name: typed.stripped(f"response.{name}") or None for name in MAPPED_FIELDS}


def _has_mapping(typed: Form) -> bool:
    return any(f"response.{name}" in typed.texts for name in MAPPED_FIELDS)


def _response_of_preset(preset: str) -> dict[str, Any]:
    """Give the mapping of a form that has no fields for it: what the preset says, where that is a vendor's shape."""
    known = PRESETS.get(preset)
    return {} if known is None or known.response_as_one else dict(known.response)


def scorer_choice(body: Mapping[str, Any]) -> str:
    """Give the choice of the form that stands for a scorer."""
    scorer = body.get("scorer") or {}
    kind = scorer.get("kind")
    if kind == ScorerKind.JUDGED:
        return str(ScorerKind.JUDGED)
    if kind in {None, ScorerKind.SCORE}:
        return str(scorer.get("scale") or NO_CHOICE)
    return str(kind) if kind == ScorerKind.EMBEDDING and scorer.get("url") is None else KEEP


def scorer_body(typed: Form, stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Give the chosen scorer as a document's; None = whatever follows from the rest."""
    choice, anchor = typed.stripped("scorer"), typed.stripped("scorer.anchor")
    if stored is not None:
        kept = dict(stored.get("scorer") or {})
        same_anchor = choice != Scale.UNBOUNDED or anchor == _plain(kept.get("anchor"))
        if choice in {KEEP, NO_CHOICE} or (choice == scorer_choice(stored) and same_anchor):
            return kept
    if choice in {NO_CHOICE, KEEP}:
        return None
    if choice in {ScorerKind.JUDGED, ScorerKind.EMBEDDING}:
        return {"kind": choice}
    scorer: dict[str, Any] = {"kind": str(ScorerKind.SCORE), "scale": choice}
    return {**scorer, "anchor": parse_number(anchor)} if choice == Scale.UNBOUNDED and anchor else scorer


def _options(typed: Form, stored: Mapping[str, Any] | None) -> dict[str, str]:
    given = {
        name.removeprefix("options."): value.strip()
        for name, value in typed.texts.items()
        if name.startswith("options.") and value.strip()
    }
    if not any(name.startswith("options.") for name in typed.texts) and stored:
        given = dict(stored.get("options") or {})
    return given | parse_pairs("options", typed.get("options"))


def _request(typed: Form, preset: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    dialect = PRESETS[preset].dialect if preset in PRESETS else Dialect.HTTP
    request: dict[str, Any] = dict(stored)
    if dialect is Dialect.SQL:
        return {**request, "sql": typed.stripped("request.sql") or None}
    problems: list[Problem] = []
    body = _json("request.json", typed.get("request.json"), problems)
    query = _json("request.query", typed.get("request.query"), problems)
    if problems:
        raise InvalidInputError(problems)
    headers = parse_pairs("request.headers", typed.get("request.headers"))
    known = stored.get("headers") or {}
    unsaid = [name for name, value in headers.items() if not value and name not in known]
    if unsaid:
        told = f"say the value of {', '.join(unsaid)}: it is not kept on this page"
        raise InvalidInputError([Problem(path="request.headers", message=told)])
    request["headers"] = {name: value or None for name, value in headers.items()}
    if dialect is Dialect.MCP:
        return {**request, "json": body, "tool": typed.stripped("request.tool") or None}
    method = typed.get("request.method", "POST")
    return {**request, "method": method, "json": None if method == "GET" else body, "query": query or {}}


def _auth(typed: Form, stored: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = typed.get("auth.kind", NO_AUTH)
    if kind == NO_AUTH:
        return None
    auth: dict[str, Any] = dict(stored) if stored.get("kind") == kind else {"kind": kind}
    for name, _, secret in AUTH_FIELDS.get(kind, ()):
        value = typed.get(f"auth.{kind}.{name}")
        if value.strip():
            auth[name] = value if name == "prefix" else value.strip()
        elif not secret:
            auth.pop(name, None)
    return auth


def _embedding(typed: Form, stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    url, model, token = (typed.stripped(f"embedding.{name}") for name in ("url", "model", "token"))
    if not (url or model or token):
        return None if stored is None else dict(stored)
    embedding: dict[str, Any] = {**(stored or {}), "url": url, "model": model}
    return {**embedding, "auth": {"kind": "bearer", "token": token}} if token else embedding


def _json(path: str, text: str, problems: list[Problem]) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        told = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError):
        told = "is not JSON that can be sent"
    problems.append(Problem(path=path, message=told))
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _json_text(value: Any) -> str:
    return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)


def _plain(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
