"""Keeps the secrets of documents apart from what may be shown and stored in the clear, and names what a document says.

Secret are the values of a retriever's request headers and the secret of a hook. Encrypting them is the store's work.
"""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from app.formats.fields import Document
from app.formats.retriever_documents import RetrieverDocument

_HEADERS = "request.headers."
_PLACEHOLDER = "whsec_" + 32 * "A"
"""Has the form of a hook's secret, and is none."""


def split_secrets(document: Document) -> tuple[dict[str, Any], dict[str, str]]:
    """Return (public JSON with null for every secret, secrets by name).

    A name is `secret` or `request.headers.NAME`. `join_secrets` is the way back.
    """
    public = document.data()
    secrets: dict[str, str] = {}
    if public.get("secret") is not None:
        secrets["secret"] = public["secret"]
        public["secret"] = None
    if isinstance(document, RetrieverDocument):
        headers = public["request"]["headers"]
        secrets |= {_HEADERS + name: value for name, value in headers.items()}
        public["request"]["headers"] = dict.fromkeys(headers)
    return public, secrets


def secret_names(public: Mapping[str, Any]) -> list[str]:
    """Name the secrets a public JSON has a place for, whether or not they are set."""
    names = ["secret"] if "secret" in public else []
    return names + [_HEADERS + name for name in public.get("request", {}).get("headers", {})]


def header_secret(header: str) -> str:
    """Name the secret that is the value of a header."""
    return _HEADERS + header


def short_name(secret: str) -> str:
    """Give the bare name of a secret: of a header's value, the header."""
    return secret.removeprefix(_HEADERS)


def with_placeholders(public: Mapping[str, Any], *, secrets_set: bool) -> dict[str, Any]:
    """Return a stored JSON as a valid document, a placeholder standing for every secret; `secrets_set`: it has any."""
    names = secret_names(public) if secrets_set else []
    return join_secrets(public, {name: _PLACEHOLDER if name == "secret" else "hidden" for name in names})


def leaves_secrets_open(public: Any) -> bool:
    """Whether a JSON, which need not be valid yet, leaves some secret "as it was"; see `join_secrets`."""
    if not isinstance(public, Mapping):
        return False
    request = public.get("request")
    headers = request.get("headers") if isinstance(request, Mapping) else None
    values = [public.get("secret", "")] + (list(headers.values()) if isinstance(headers, Mapping) else [])
    return None in values


def join_secrets(public: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON with its nulls filled from `secrets`: null means "as it was", an absent key means "none".

    So it reads back what was stored, and lets an API client send what it was shown. `secrets_set` is dropped. The
    input need not be valid yet, and is not changed.
    """
    whole = copy.deepcopy({key: value for key, value in public.items() if key != "secrets_set"})
    if "secret" in whole and whole["secret"] is None:
        whole["secret"] = secrets.get("secret")
    request = whole.get("request")
    headers = request.get("headers") if isinstance(request, dict) else None
    if isinstance(headers, dict):
        for name, value in headers.items():
            if value is None and _HEADERS + name in secrets:
                headers[name] = secrets[_HEADERS + name]
    return whole


def public_json(public: Mapping[str, Any], *, secrets_set: bool) -> dict[str, Any]:
    """Return what the API shows: the public JSON and, where a document can have secrets, the names of those set."""
    if "secret" not in public and "request" not in public:
        return dict(public)
    return {**public, "secrets_set": sorted(secret_names(public)) if secrets_set else []}


def config_hash(check: str, retriever: str) -> str:
    """Name what a run was configured with, by the content hashes of its check and its retriever: 64 hex digits."""
    return hashlib.sha256((check + retriever).encode()).hexdigest()


def content_hash(document: Document) -> str:
    """Return the SHA-256 (64 hex digits) of what a document means: defaults, order of keys and of sets do not count.

    Of secrets only the names enter, so that a hash that is shown gives nobody a value to try guesses against. Whether
    a value changed is told by comparing the secrets themselves.
    """
    public, secrets = split_secrets(document)
    for name in ("tags", "hooks"):
        if isinstance(public.get(name), list):
            public[name] = sorted(public[name])
    meaning = json.dumps([type(document).__name__, public, sorted(secrets)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(meaning.encode()).hexdigest()
