"""Secrets of documents: apart from their public parts, joined again, and never sent to another address than stored for.

`split_secrets` and `join_secrets` are the inverse of each other; `parse_with_stored` refuses a document that would send
a stored secret to another address (`destinations`). What is shown is masked (`public_json`, `masked_address`,
`hook_for_readers`), and no secret enters the hash of a document by its value (`content_hash`).

The secrets, which the store encrypts, are: of a hook, depending on its kind, the secret, URL, routing key, token or
password; of a judge, a retriever and each of its endpoints, the values of headers, the credentials of `auth` and the
private key of `tls`.
"""

import copy
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from app.answers.documents import JudgeDocument
from app.base.documents.fields import AnyDocument, Document, Place, hash_content, parse_document
from app.base.documents.http_fields import AUTH_SECRETS, TLS_TEXTS, is_by_identity, origin_of
from app.base.errors import InvalidInputError, Problem
from app.hooks.documents import HOOK_SECRETS, OWN_URLS, HookDocument
from app.hooks.domain import HookKind
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.presets import PRESETS

ENDPOINTS = ("", "embedding", "scorer", "answer")
"""The endpoints of a retriever that may have secrets; "" is the retriever itself."""

WITH_SECRETS: Final = (RetrieverDocument, HookDocument, JudgeDocument)
"""The kinds of definitions that may have secrets."""
_PLACEHOLDERS = {
    "secret": "whsec_" + 32 * "A",
    "url": "https://hidden.invalid/",
    "routing_key": 32 * "0",
    "token": "xoxb-hidden",
    "tls.key": "-----BEGIN PRIVATE KEY-----\nhidden\n-----END PRIVATE KEY-----\n",
}
"""Valid placeholders for secrets with a required form."""


def split_secrets(document: Document) -> tuple[dict[str, Any], dict[str, str]]:
    """Return (public JSON with null for every secret, secrets by name).

    A name is the dotted path of the secret: `secret`, `request.headers.NAME`, `embedding.auth.token`. An unset optional
    secret of a retriever or judge has no key, so null always stands for a secret. Header values of the preset are no
    secrets. `join_secrets` is the inverse.
    """
    public = document.data()
    secrets: dict[str, str] = {}
    for mapping, key, name in list(_secrets_in(public)):
        if mapping[key] is not None:
            secrets[name] = mapping[key]
            mapping[key] = None
        elif isinstance(document, RetrieverDocument | JudgeDocument):
            del mapping[key]
    return public, secrets


def secret_names(public: Mapping[str, Any]) -> list[str]:
    """Return the names of the secrets that are null in a JSON, which need not be valid; see `join_secrets`.

    In stored or shown JSON these are the secrets that are set, except for a hook, whose secret may not be set.
    """
    return [name for mapping, key, name in _secrets_in(public) if mapping[key] is None]


def short_name(secret: str) -> str:
    """Return the display name of a secret: for a header's value, the header's name."""
    return re.sub(r"^(request\.)?(embedding\.|scorer\.|answer\.)?headers\.", r"\2", secret)


def with_placeholders(public: Mapping[str, Any], *, secrets_set: bool) -> dict[str, Any]:
    """Return a stored JSON as a valid document with placeholders for its secrets; `secrets_set`: it has any."""
    options = public.get("options") or {}
    any_option = " ".join(["hidden", *(f"{{{{ {name} }}}}" for name in options)])  # what is hidden may use them
    texts = {name: any_option if ".headers." in name else _placeholder(name) for name in secret_names(public)}
    return join_secrets(public, texts if secrets_set else {})


def join_secrets(public: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON with its nulls filled from `secrets`: null means "unchanged", an absent key means "none".

    So it reads back what was stored, and an API client can send what it received. `secrets_set` is dropped. The input
    need not be valid yet, and is not changed.
    """
    whole = copy.deepcopy({key: value for key, value in public.items() if key != "secrets_set"})
    for mapping, key, name in list(_secrets_in(whole)):
        if mapping[key] is None and name in secrets:
            mapping[key] = secrets[name]
    return whole


def parse_with_stored(
    model: type[AnyDocument], body: Mapping[str, Any], *, before: Mapping[str, Any], secrets: Mapping[str, str]
) -> AnyDocument:
    """Return the document of a body whose nulls are filled from the stored `secrets` of the public JSON `before`.

    Raises InvalidInputError for an invalid document, and where a stored secret would be sent to another address than it
    was stored for: whoever may change an address could read it on a server of their own.
    """
    document = parse_document(model, join_secrets(body, secrets))
    kept = [name for name in secret_names(body) if name in secrets]
    after = document.data() if kept else {}
    message = "a stored value is not sent to another address than the one it was stored for; enter the value again"
    moved = [name for name in kept if destinations(after, name) != destinations(before, name)]
    if moved:
        raise InvalidInputError([Problem(path=name, message=message) for name in moved])
    return document


def replaced_secrets(whole: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON of a document with every secret that is set replaced by the text under its name."""
    replaced = copy.deepcopy(dict(whole))
    for mapping, key, name in list(_secrets_in(replaced)):
        if mapping[key] is not None:
            mapping[key] = texts[name]
    return replaced


def public_json(public: Mapping[str, Any], *, secrets_set: bool) -> dict[str, Any]:
    """Return the JSON of responses: the public part and, where a document can have secrets, the names of those set."""
    if _hook_secret(public) is None and "auth" not in public:
        return dict(public)
    return {**public, "secrets_set": sorted(secret_names(public)) if secrets_set else []}


def masked_address(url: str) -> str:
    """Return an address without user name, password, path and query, which may be secret."""
    parts = urlsplit(url)
    path = "/…" if parts.path.strip("/") else parts.path
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}{'?…' if parts.query else ''}"


def hook_for_readers(public: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a hook for users who may not define hooks.

    Many webhook receivers authenticate by an unguessable path: then the whole address is a password.
    """
    if public.get("kind") != HookKind.WEBHOOK or not isinstance(public.get("url"), str):
        return dict(public)
    return {**public, "url": masked_address(public["url"])}


def destinations(public: Mapping[str, Any], secret: str) -> frozenset[str]:
    """Return where a secret of the valid JSON of a retriever, a judge or a hook is sent to: scheme, host and port.

    A client secret is sent to the token endpoint, and the token to the retriever's; the key within `auth` is for the
    token endpoint alone. A signing secret is sent nowhere, and a secret URL is its own destination.
    """
    if "kind" in public:
        return _destinations_of_hook(public, secret)
    name = secret.partition(".")[0]
    endpoint = public[name] if name in ENDPOINTS else public
    urls, auth = [endpoint["url"]], endpoint.get("auth") or {}
    identity, path = _apart(secret)
    if identity is not None:
        auth = endpoint["auth"]["of"][identity]
    if _is_endpoint_path(path, "auth.client_secret"):
        urls.append(auth["token_url"])
    elif _is_endpoint_path(path, "auth.tls.key"):
        urls = [auth["token_url"]]
    return frozenset(map(origin_of, urls))


def _destinations_of_hook(hook: Mapping[str, Any], secret: str) -> frozenset[str]:
    if secret in ("secret", "url"):
        return frozenset()
    if "host" in hook:
        return frozenset({f"{hook['tls']}://{hook['host']}:{hook['port']}".lower()})
    return frozenset({origin_of(hook["url"] or OWN_URLS[hook["kind"]])})


def key_places(retriever: Any) -> Iterator[tuple[dict[Any, Any], Place, tuple[str, ...]]]:
    """Yield (mapping, place, keys with a `*_file` twin) of a retriever's raw `auth` and `tls`, which may be invalid.

    The `tls` of a token endpoint stands within `auth`, and so do the credentials of each identity.
    """
    for endpoint, place in _endpoints(retriever):
        tls = endpoint.get("tls")
        for auth, inner in _auths(endpoint.get("auth"), (*place, "auth")):
            yield auth, inner, AUTH_SECRETS
            if isinstance(auth.get("tls"), dict):
                yield auth["tls"], (*inner, "tls"), TLS_TEXTS
        if isinstance(tls, dict):
            yield tls, (*place, "tls"), TLS_TEXTS


def _auths(auth: Any, place: Place) -> Iterator[tuple[dict[Any, Any], Place]]:
    """Yield the mappings with credentials of a raw `auth`, with their places: itself, or that of each identity."""
    if not isinstance(auth, dict):
        return
    of = auth.get("of")
    if not is_by_identity(auth) or not isinstance(of, dict):
        yield auth, place
        return
    for value, one in of.items():
        if isinstance(one, dict):
            yield one, (*place, "of", value)


def header_places(retriever: Any) -> Iterator[tuple[dict[Any, Any], Place]]:
    """Yield the raw mappings of a retriever that may have `headers`, with their places; they may be invalid."""
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
    """Yield (mapping, key, name) of every secret in a JSON, also null ones."""
    if not isinstance(whole, dict):
        return
    hook_secret = _hook_secret(whole)
    if hook_secret is not None and hook_secret in whole:
        yield whole, hook_secret, hook_secret
    for holder, place in header_places(whole):
        headers = holder.get("headers")
        if not isinstance(headers, dict):
            continue
        for header in headers:
            if place != ("request",) or not _is_preset_header(whole, header, headers[header]):
                yield headers, header, ".".join(map(str, (*place, "headers", header)))
    for mapping, place, keys in key_places(whole):
        for key in keys:
            if key in mapping and (key == "key" or keys is AUTH_SECRETS):
                yield mapping, key, ".".join(map(str, (*place, key)))


def _hook_secret(whole: Mapping[str, Any]) -> str | None:
    """Return the name of the secret of a hook's JSON, which may be invalid; None for other kinds."""
    return HOOK_SECRETS.get(str(whole.get("kind")), "secret" if "secret" in whole else None)


def _is_preset_header(retriever: Mapping[str, Any], header: Any, value: Any) -> bool:
    preset = PRESETS.get(str(retriever.get("preset")))
    return preset is not None and value is not None and preset.request.get("headers", {}).get(header) == value


def _placeholder(name: str) -> str:
    path = _apart(name)[1]
    is_tls_key = _is_endpoint_path(path, "tls.key") or _is_endpoint_path(path, "auth.tls.key")
    return _PLACEHOLDERS.get("tls.key" if is_tls_key else path, "hidden")


def _apart(name: str) -> tuple[str | None, str]:
    """Return the identity whose secret has this name, None for that of none, and the name without it.

    `auth.of.anna@acme.test.token` is `auth.token` of `anna@acme.test`. No identity ends in `.tls`, so that the names
    of two secrets differ.
    """
    match = _OF_IDENTITY.fullmatch(name)
    return (None, name) if match is None else (match[1], f"auth.{match[2]}")


_OF_IDENTITY = re.compile(r"auth\.of\.(.+?)\.(tls\.key|[a-z_]+)", re.DOTALL)


def _is_endpoint_path(name: str, path: str) -> bool:
    return name in {f"{endpoint}.{path}".lstrip(".") for endpoint in ENDPOINTS}


def _restrict_to(outline: Any, whole: Any) -> Any:
    """Return the part of a JSON value that its outline also has."""
    if isinstance(outline, dict) and isinstance(whole, dict):
        return {key: _restrict_to(inner, whole[key]) for key, inner in outline.items() if key in whole}
    if isinstance(outline, list) and isinstance(whole, list) and len(outline) == len(whole):
        return [_restrict_to(inner, one) for inner, one in zip(outline, whole, strict=True)]
    return whole


def content_hash(document: Document) -> str:
    """Return the hash of a document, see `Document.content_hash`.

    Secrets enter by name only, so that the public hash cannot confirm a guessed value; changes of values are detected
    by comparing the secrets themselves.
    """
    if not isinstance(document, WITH_SECRETS):
        return document.content_hash()
    return hash_apart(document, *split_secrets(document))


def hash_apart(document: Document, public: Mapping[str, Any], secrets: Collection[str]) -> str:
    """Return the same of a document whose secrets `split_secrets` took apart; `secrets`: their names."""
    lean = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return hash_content(document, _restrict_to(lean, public), secrets)
