"""A hook as a form has it, and back: the fields of its kind, named as in the document. Secrets are never filled in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.domain.delivery.hooks import HookKind, MailTls
from app.domain.errors import InvalidInputError, Problem
from app.formats.delivery.hook_documents import HOOK_SECRETS
from app.web.forms import Typed, lines, number

MOST_FIELDS: Final = 20
ADDRESSES: Final = frozenset({"url", "host"})
"""Fields that say where a hook connects to."""
FORGET: Final = "forget"
"""Ticked, the stored secret is forgotten; it is else kept where nothing is typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of the form."""

    name: str
    label: str
    hint: str = ""
    type: str = "text"
    """Of the input; `area` = several lines, `choice` = one of `choices`, `password` = never filled in."""
    placeholder: str = ""
    choices: Sequence[tuple[str, str]] = ()
    """Values with what people read."""


def _url(hint: str, placeholder: str, label: str = "Address") -> Field:
    return Field(name="url", label=label, hint=hint, type="url", placeholder=placeholder)


_TIMEOUT = Field(
    name="timeout", label="Timeout", hint="How long to wait for the receiver, such as 15s.", placeholder="15s"
)
_TLS = (
    (MailTls.STARTTLS, "STARTTLS"),
    (MailTls.IMPLICIT, "from the first byte (implicit TLS)"),
    (MailTls.NONE, "none"),
)
FIELDS: Final[Mapping[str, tuple[Field, ...]]] = {
    HookKind.WEBHOOK: (
        _url("Gets one POST of JSON for each piece of news.", "https://example.org/hook"),
        Field(
            name="secret",
            label="Signing secret",
            hint="Signs each message (Standard Webhooks): whsec_ and base64 of 24 to 64 bytes. Without one, messages "
            "are not signed.",
            type="password",
        ),
        _TIMEOUT,
    ),
    HookKind.SLACK: (
        Field(
            name="url",
            label="Address of the incoming webhook",
            hint="Whoever has it may write to the channel, so it is kept as a secret.",
            type="password",
        ),
        _TIMEOUT,
    ),
    HookKind.PAGERDUTY: (
        Field(
            name="routing_key",
            label="Integration key",
            hint="Of the Events API v2: 32 letters and digits.",
            type="password",
        ),
        _url("Empty is PagerDuty's own, in the USA; in the EU it is https://events.eu.pagerduty.com/v2/enqueue.", ""),
        _TIMEOUT,
    ),
    HookKind.ALERTMANAGER: (
        _url("Where Alertmanager is, without its API.", "http://alertmanager:9093"),
        Field(name="username", label="User name", hint="Only where it asks for one."),
        Field(name="password", label="Password", type="password"),
        Field(
            name="labels",
            label="Labels",
            hint="One name=value a line, added to every alert, for example for routing.",
            type="area",
            placeholder="team=search",
        ),
        _TIMEOUT,
    ),
    HookKind.EMAIL: (
        Field(name="to", label="To", hint="One address a line.", type="area", placeholder="ops@example.org"),
        Field(name="from", label="From", placeholder="coalmine@example.org"),
        Field(name="host", label="Mail server", placeholder="smtp.example.org"),
        Field(name="port", label="Port", hint="Empty is 587, 465 or 25, as encryption says."),
        Field(name="tls", label="Encryption", type="choice", choices=_TLS),
        Field(name="username", label="User name", hint="Only where the server asks for one."),
        Field(name="password", label="Password", type="password"),
        _TIMEOUT,
    ),
    HookKind.APPRISE: (
        Field(
            name="url",
            label="URL of Apprise",
            hint="Such as ntfy://topic; it often holds a token, so it is kept as a secret. Needs the extra apprise.",
            type="password",
        ),
        _TIMEOUT,
    ),
}
"""The fields of each kind of hook, besides its name."""
KINDS: Final[Mapping[str, str]] = {
    HookKind.WEBHOOK: "a signed POST of JSON to any address",
    HookKind.SLACK: "a message in a channel",
    HookKind.PAGERDUTY: "an incident that somebody is called for",
    HookKind.ALERTMANAGER: "an alert among those of Prometheus, grouped and routed there",
    HookKind.EMAIL: "a mail through your own server",
    HookKind.APPRISE: "any of the services Apprise knows",
}
"""What each kind of hook does."""
OPTIONAL_SECRETS: Final = frozenset({HookKind.WEBHOOK, HookKind.ALERTMANAGER, HookKind.EMAIL})
"""Kinds that do without a secret."""


def typed(body: Mapping[str, Any]) -> Typed:
    """Give a stored hook as a form would hold it."""
    texts = {"slug": str(body["slug"]), "kind": str(body["kind"])}
    for one in FIELDS[body["kind"]]:
        texts[one.name] = "" if one.type == "password" else _text(body.get(one.name))
    return Typed(texts=texts)


def document(form: Typed, kind: str, slug: str, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give what a form says, ready to be read as a document; null for a secret that is to stay as it is stored.

    Raises InvalidInputError for what cannot be written down at all.
    """
    found: dict[str, Any] = {"slug": slug, "kind": kind}
    for one in FIELDS[kind]:
        text = form.stripped(one.name)
        if one.name == "labels":
            found[one.name] = _labels(form.get(one.name))
        elif one.name == "to":
            found[one.name] = lines(form.get(one.name))
        elif text:
            found[one.name] = number(text) if one.name in ("port", "timeout") else text
        elif one.name == HOOK_SECRETS[kind] and _keeps(form, kind, stored):
            found[one.name] = None
    return found


def _keeps(form: Typed, kind: str, stored: Mapping[str, Any] | None) -> bool:
    """Whether a secret nobody typed is the stored one; a password is none without its user."""
    if stored is None or stored["kind"] != kind or form.get(FORGET):
        return False
    return "username" not in stored or bool(stored["username"] and form.stripped("username"))


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or name.strip() in found:
            why = "is there twice" if equals else "is not of the form name=value"
            raise InvalidInputError([Problem(path="labels", message=f"line {place} {why}")])
        found[name.strip()] = value.strip()
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return "\n".join(f"{name}={one}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
