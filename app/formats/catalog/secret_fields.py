"""Keeps the secrets of documents apart from what may be shown and stored in the clear, and names what a document says.

Secret are, as its kind has it, the secret, URL, routing key or password of a hook and, of a retriever and each endpoint
beside it, the values of headers, what `auth` proves itself with, and the private key of `tls`. Encrypting them is the
store's work.
"""

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from app.domain.delivery.hooks import HookKind
from app.formats.auth_documents import AUTH_SECRETS, TLS_TEXTS
from app.formats.catalog.canary_documents import CanaryDocument
from app.formats.delivery.hook_documents import HOOK_SECRETS, PAGERDUTY_URL
from app.formats.fields import Document, Place
from app.formats.http_fields import origin_of
from app.formats.probing.presets import PRESETS
from app.formats.probing.retriever_documents import RetrieverDocument

ENDPOINTS = ("", "embedding", "scorer")
"""The parts of a retriever that are spoken to with secrets; "" is the retriever itself."""

_PLACEHOLDERS = {
    "secret": "whsec_" + 32 * "A",
    "url": "https://hidden.invalid/",
    "routing_key": 32 * "0",
    "tls.key": "-----BEGIN PRIVATE KEY-----\nhidden\n-----END PRIVATE KEY-----\n",
}
"""What has the form of a secret, where it must have one, and is none."""


def split_secrets(document: Document) -> tuple[dict[str, Any], dict[str, str]]:
    """Return (public JSON with null for every secret, secrets by name).

    A name is the dotted path of the secret: `secret`, `request.headers.NAME`, `embedding.auth.token`. An optional
    secret of a retriever that is not set leaves no key behind, so null always says that there is one. Headers that
    hold no more than the preset says are no secrets. `join_secrets` is the way back.
    """
    public = document.data()
    secrets: dict[str, str] = {}
    for mapping, key, name in list(_secrets_in(public)):
        if mapping[key] is not None:
            secrets[name] = mapping[key]
            mapping[key] = None
        elif isinstance(document, RetrieverDocument):
            del mapping[key]
    return public, secrets


def secret_names(public: Mapping[str, Any]) -> list[str]:
    """Name the secrets that a JSON, which need not be valid, has null for; see `join_secrets`.

    In what is stored or shown these are the secrets there are, but for a hook, whose secret may not be set.
    """
    return [name for mapping, key, name in _secrets_in(public) if mapping[key] is None]


def short_name(secret: str) -> str:
    """Give a name for people to a secret: a header's value is called by the header."""
    return re.sub(r"^(request\.)?(embedding\.|scorer\.)?headers\.", r"\2", secret)


def with_placeholders(public: Mapping[str, Any], *, secrets_set: bool) -> dict[str, Any]:
    """Return a stored JSON as a valid document, a placeholder standing for every secret; `secrets_set`: it has any."""
    return join_secrets(public, {name: _placeholder(name) for name in secret_names(public) if secrets_set})


def join_secrets(public: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON with its nulls filled from `secrets`: null means "as it was", an absent key means "none".

    So it reads back what was stored, and lets an API client send what it was shown. `secrets_set` is dropped. The
    input need not be valid yet, and is not changed.
    """
    whole = copy.deepcopy({key: value for key, value in public.items() if key != "secrets_set"})
    for mapping, key, name in list(_secrets_in(whole)):
        if mapping[key] is None and name in secrets:
            mapping[key] = secrets[name]
    return whole


def replaced_secrets(whole: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON of a document with every secret that is set replaced by the text of its name."""
    shown = copy.deepcopy(dict(whole))
    for mapping, key, name in list(_secrets_in(shown)):
        if mapping[key] is not None:
            mapping[key] = texts[name]
    return shown


def public_json(public: Mapping[str, Any], *, secrets_set: bool) -> dict[str, Any]:
    """Return what the API shows: the public JSON and, where a document can have secrets, the names of those set."""
    if _hook_secret(public) is None and "request" not in public:
        return dict(public)
    return {**public, "secrets_set": sorted(secret_names(public)) if secrets_set else []}


def masked_address(url: str) -> str:
    """Give an address without what is or may be a secret: whoever is named in it, its path and what it asks for."""
    parts = urlsplit(url)
    path = "/…" if parts.path.strip("/") else parts.path
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}{'?…' if parts.query else ''}"


def hook_for_readers(public: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a hook as those see it who may not define hooks.

    Many receivers of webhooks know their callers by a path nobody can guess: to them the whole address is a password.
    """
    if public.get("kind") != HookKind.WEBHOOK or not isinstance(public.get("url"), str):
        return dict(public)
    return {**public, "url": masked_address(public["url"])}


def destinations(public: Mapping[str, Any], secret: str) -> frozenset[str]:
    """Say whom a secret of a retriever's or a hook's JSON, which must be valid, is shown to: scheme, host and port.

    A client secret goes to where tokens are made, and what is made of it to the endpoint. A signing secret is shown to
    nobody, and a URL that is a secret says itself where it goes.
    """
    if "kind" in public:
        return _destinations_of_hook(public, secret)
    name = secret.partition(".")[0]
    endpoint = public[name] if name in ENDPOINTS else public
    urls = [endpoint["url"]]
    if _of_an_endpoint(secret, "auth.client_secret"):
        urls.append(endpoint["auth"]["token_url"])
    return frozenset(map(origin_of, urls))


def _destinations_of_hook(hook: Mapping[str, Any], secret: str) -> frozenset[str]:
    if secret in ("secret", "url"):
        return frozenset()
    if "host" in hook:
        return frozenset({f"{hook['tls']}://{hook['host']}:{hook['port']}".lower()})
    return frozenset({origin_of(hook["url"] or PAGERDUTY_URL)})


def key_places(retriever: Any) -> Iterator[tuple[dict[Any, Any], Place, tuple[str, ...]]]:
    """Yield the raw `auth` and `tls` mappings of a retriever, their places, and the keys a `*_file` may stand for.

    None of it need be valid.
    """
    for endpoint, place in _endpoints(retriever):
        for part, keys in (("auth", AUTH_SECRETS), ("tls", TLS_TEXTS)):
            if isinstance(endpoint.get(part), dict):
                yield endpoint[part], (*place, part), keys


def header_places(retriever: Any) -> Iterator[tuple[dict[Any, Any], Place]]:
    """Yield the raw mappings of a retriever that may have `headers`, with their places. None of it need be valid."""
    for endpoint, place in _endpoints(retriever):
        holder = endpoint if place else endpoint.get("request")
        if isinstance(holder, dict):
            yield holder, place or ("request",)


def _endpoints(retriever: Any) -> Iterator[tuple[dict[Any, Any], Place]]:
    for name in ENDPOINTS:
        endpoint = retriever.get(name) if name and isinstance(retriever, dict) else retriever
        if isinstance(endpoint, dict):
            yield endpoint, (name,) if name else ()


def _secrets_in(whole: Any) -> Iterator[tuple[dict[Any, Any], str, str]]:
    """Yield (mapping, key, name) of every secret a JSON says something of, be it null."""
    if not isinstance(whole, dict):
        return
    of_hook = _hook_secret(whole)
    if of_hook is not None and of_hook in whole:
        yield whole, of_hook, of_hook
    for holder, place in header_places(whole):
        headers = holder.get("headers")
        if not isinstance(headers, dict):
            continue
        for header in headers:
            if place != ("request",) or not _by_preset(whole, header, headers[header]):
                yield headers, header, ".".join(map(str, (*place, "headers", header)))
    for mapping, place, keys in key_places(whole):
        for key in keys:
            if key in mapping and (key == "key" or place[-1] == "auth"):
                yield mapping, key, ".".join(map(str, (*place, key)))


def _hook_secret(whole: Mapping[str, Any]) -> str | None:
    """Name the secret of a hook's JSON, which need not be valid; None where it is that of something else."""
    return HOOK_SECRETS.get(str(whole.get("kind")), "secret" if "secret" in whole else None)


def _by_preset(retriever: Mapping[str, Any], header: Any, value: Any) -> bool:
    preset = PRESETS.get(str(retriever.get("preset")))
    return preset is not None and value is not None and preset.request.get("headers", {}).get(header) == value


def _placeholder(name: str) -> str:
    return _PLACEHOLDERS.get("tls.key" if _of_an_endpoint(name, "tls.key") else name, "hidden")


def _of_an_endpoint(name: str, path: str) -> bool:
    return name in {f"{endpoint}.{path}".lstrip(".") for endpoint in ENDPOINTS}


def config_hash(check: str, retriever: str) -> str:
    """Name what a run was configured with, by the content hashes of its check and its retriever: 64 hex digits."""
    return hashlib.sha256((check + retriever).encode()).hexdigest()


def _as_far_as(outline: Any, whole: Any) -> Any:
    """Return of a JSON value what its outline has too."""
    if isinstance(outline, dict) and isinstance(whole, dict):
        return {key: _as_far_as(inner, whole[key]) for key, inner in outline.items() if key in whole}
    if isinstance(outline, list) and isinstance(whole, list) and len(outline) == len(whole):
        return [_as_far_as(inner, one) for inner, one in zip(outline, whole, strict=True)]
    return whole


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def content_hash(document: Document) -> str:
    """Return the SHA-256 (64 hex digits) of what a document means: defaults, order of keys and of sets do not count.

    Of secrets only the names enter, so that a hash that is shown gives nobody a value to try guesses against. Whether
    a value changed is told by comparing the secrets themselves.
    """
    # Without defaults: a field that a later release adds must not make everything look changed.
    public = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    secrets: dict[str, str] = {}
    if not isinstance(document, CanaryDocument):  # of which there are thousands, and which have no secrets
        whole, secrets = split_secrets(document)
        public = _as_far_as(public, whole)
    for name in ("tags", "hooks"):
        if isinstance(public.get(name), list):
            public[name] = sorted(public[name])
    meaning = _canonical([type(document).__name__, public, sorted(secrets)])
    return hashlib.sha256(meaning.encode()).hexdigest()
