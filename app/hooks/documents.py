"""Hook documents as users write them: destination, credentials and options of each hook kind."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from functools import cache
from ipaddress import IPv6Address
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from app.base.documents.fields import (
    Control,
    Document,
    Name,
    Place,
    Seconds,
    Slug,
    Whole,
    Widget,
    check_kind,
    check_url,
    field_error,
    field_errors,
    widgets_of,
)
from app.base.documents.http_fields import PemCertificate
from app.hooks.domain import Hook, HookKind, Mail, MailTls

HOOK_KINDS: Final = tuple(map(str, HookKind))
OWN_URLS: Final[Mapping[str, str]] = MappingProxyType(
    {HookKind.PAGERDUTY: "https://events.pagerduty.com/v2/enqueue", HookKind.SLACK_APP: "https://slack.com/api"}
)
"""Addresses of services for hooks without one."""

_MEANINGS: Final = {
    HookKind.WEBHOOK: "a signed POST of JSON to any address",
    HookKind.SLACK: "a message in a channel, by its incoming webhook",
    HookKind.SLACK_APP: "a message in a channel, with the heat map, by the bot token of an app",
    HookKind.PAGERDUTY: "an incident that pages people",
    HookKind.ALERTMANAGER: "an alert among those of Prometheus, grouped and routed there",
    HookKind.EMAIL: "a mail through your own server",
    HookKind.APPRISE: "any of the services Apprise knows",
}
_TLS_NAMES: Final = {MailTls.STARTTLS: "STARTTLS", MailTls.IMPLICIT: "implicit TLS", MailTls.NONE: "none"}
_THROUGH_PROXY: Final = (
    HookKind.WEBHOOK,
    HookKind.SLACK,
    HookKind.SLACK_APP,
    HookKind.PAGERDUTY,
    HookKind.ALERTMANAGER,
)
"""Kinds that may have a proxy of their own; mail is no HTTP, and Apprise connects by itself."""
_NO_PROXY: Final = "none"
_COMMON: Final = ("slug", "kind", "timeout")
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    HookKind.WEBHOOK: ("url",),
    HookKind.SLACK: ("url",),
    HookKind.SLACK_APP: ("token", "channel"),
    HookKind.PAGERDUTY: ("routing_key",),
    HookKind.ALERTMANAGER: ("url",),
    HookKind.EMAIL: ("host", "from", "to"),
    HookKind.APPRISE: ("url",),
}
_PORTS = {MailTls.STARTTLS: 587, MailTls.IMPLICIT: 465, MailTls.NONE: 25}
_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_OWN_LABELS = ("alertname", "service", "check", "rule", "scope", "dedupe_key")


def _hook_kind(value: Any) -> Any:
    check_kind("hook kind", value, HOOK_KINDS)
    return value


def _secret(secret: str) -> str:
    """Check the form of a Standard Webhooks secret, https://www.standardwebhooks.com: `whsec_` + base64 of 24-64 bytes.

    Never quotes the value.
    """
    if not secret.startswith("whsec_"):
        raise field_error("must begin with whsec_")
    try:
        length = len(base64.b64decode(secret.removeprefix("whsec_"), validate=True))
    except (binascii.Error, ValueError):
        raise field_error("must be whsec_ followed by base64") from None
    if not 24 <= length <= 64:  # noqa: PLR2004 - the limits of the specification, as in the message
        raise field_error(f"must be whsec_ followed by the base64 of 24 to 64 bytes, not {length}")
    return secret


def _routing_key(key: str) -> str:
    """Check the form of an integration key of PagerDuty's Events API v2. Never quotes the value."""
    if not re.fullmatch(r"[0-9A-Za-z]{32}", key):
        raise field_error("must be the integration key of PagerDuty's Events API v2: 32 letters and digits")
    return key


def _token(token: str) -> str:
    """Check the form of a bot token of Slack. Never quotes the value."""
    if not re.fullmatch(r"xoxb-[!-~]{1,507}", token):
        raise field_error("must be the bot token of a Slack app, which begins with xoxb-")
    return token


def _channel(channel: str) -> str:
    if not re.fullmatch(r"[CDG][0-9A-Z]{2,40}", channel):
        raise field_error("must be the id of a channel such as C0123456789, which stands at the end of its details")
    return channel


def _password(password: str) -> str:
    """Check a password without ever quoting it; what else there is in one, mail servers read differently."""
    if not re.fullmatch(r"[ -~]{1,1024}", password):
        raise field_error("must be at most 1024 characters of printable ASCII")
    return password


def _host(host: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", host) and not _is_ipv6(host):
        raise field_error("must be the name or the address of a mail server; its port goes under port")
    return host


def _is_ipv6(host: str) -> bool:
    try:
        return IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _proxy(proxy: str) -> str:
    """Check the address of a proxy. Never quotes the value."""
    if proxy == _NO_PROXY:
        return proxy
    if "@" in proxy:
        raise field_error("must be without user and password, which would be shown; COALMINE_PROXY may have them")
    if not re.fullmatch(r"https?://[A-Za-z0-9._\[\]:-]+/?", proxy):
        raise field_error("must be 'none' or an address such as http://proxy.example.org:3128")
    return check_url(proxy).rstrip("/")


def _address(address: str) -> str:
    """Check an addr-spec (RFC 5321, 4.1.2) in its plain form; whatever could end a header or a command is refused."""
    # "=?" begins an encoded word (RFC 2047), in which anything may stand.
    if not _ADDRESS.fullmatch(address) or "=?" in address:
        raise field_error("must be one plain address such as ops@example.org, without a name")
    return address


def _labels(labels: dict[str, str]) -> dict[str, str]:
    wrong: list[tuple[Place, str]] = []
    for name in labels:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}", name):
            wrong.append(((name,), "must be a label name: letters, digits and _, not beginning with a digit"))
        elif name in _OWN_LABELS:
            wrong.append(((name,), "is set by Coalmine"))
        elif name == "severity":
            reason = "it would make a second alert of an escalation; the severity is an annotation"
            wrong.append(((name,), f"must not be a label: {reason}"))
    if wrong:
        raise field_errors(wrong)
    return labels


MailAddress = Annotated[str, AfterValidator(_address)]


def _refuse_other_kinds(schema: dict[str, Any]) -> None:
    """Exclude in the JSON Schema the fields that a kind does not have."""
    properties = schema["properties"]
    schema["allOf"] = [
        {
            "if": {"properties": {"kind": {"const": str(kind)}}, "required": ["kind"]},
            "then": {"properties": {name: False for name in properties if name not in _names(kind)}},
        }
        for kind in HookKind
    ]


@cache
def _names(kind: str) -> tuple[str, ...]:
    return tuple(widgets_of(HookDocument, kind))


_TIMEOUT: Final = Widget(placeholder="15s")


class HookDocument(Document):
    """A destination of notifications. Its fields depend on the kind."""

    model_config = ConfigDict(json_schema_extra=_refuse_other_kinds)

    slug: Annotated[
        Slug,
        Field(title="Name", description="Lower-case letters, digits and hyphens; checks refer to it, and it is final."),
        Widget(placeholder="ops", length=64),
    ]
    kind: Annotated[
        str,
        BeforeValidator(_hook_kind),
        WithJsonSchema({"type": "string", "enum": list(HOOK_KINDS)}),
        Field(title="Kind"),
        Widget(choices=_MEANINGS),
    ]
    to: Annotated[
        tuple[MailAddress, ...],
        Field(title="To", description="One address per line.", max_length=50),
        Widget(kinds=(HookKind.EMAIL,), control=Control.AREA, lines=3, mono=True, placeholder="ops@example.org"),
    ] = ()
    sender: Annotated[
        MailAddress | None, Field(title="From"), Widget(kinds=(HookKind.EMAIL,), placeholder="coalmine@example.org")
    ] = Field(default=None, alias="from")
    host: Annotated[
        Annotated[str, AfterValidator(_host)] | None,
        Field(title="Mail server"),
        Widget(kinds=(HookKind.EMAIL,), placeholder="smtp.example.org"),
    ] = None
    port: Annotated[
        Annotated[Whole, Field(ge=1, le=65535)] | None,
        Field(title="Port", description="Empty is 587, 465 or 25, depending on the encryption."),
        Widget(kinds=(HookKind.EMAIL,)),
    ] = None
    tls: Annotated[
        Literal["starttls", "implicit", "none"],
        Field(title="Encryption"),
        Widget(kinds=(HookKind.EMAIL,), choices=_TLS_NAMES),
    ] = "starttls"
    routing_key: Annotated[
        Annotated[str, AfterValidator(_routing_key)] | None,
        Field(title="Integration key", description="Key of the Events API v2: 32 letters and digits.", repr=False),
        Widget(kinds=(HookKind.PAGERDUTY,), secret=True),
    ] = None
    token: Annotated[
        Annotated[str, AfterValidator(_token)] | None,
        Field(
            title="Bot token",
            description="Of a Slack app with the scopes chat:write and, for the heat map, files:write.",
            repr=False,
        ),
        Widget(kinds=(HookKind.SLACK_APP,), secret=True),
    ] = None
    channel: Annotated[
        Annotated[str, AfterValidator(_channel)] | None,
        Field(title="Channel", description="Its id, at the end of its details in Slack; the app has to be a member."),
        Widget(kinds=(HookKind.SLACK_APP,), placeholder="C0123456789"),
    ] = None
    url: Annotated[
        Annotated[str, StringConstraints(max_length=2048)] | None,
        Field(title="Address", description="Address of the receiver; of slack and apprise a secret.", repr=False),
        Widget(
            kinds=(HookKind.WEBHOOK,),
            hint="Receives one POST of JSON per notification.",
            placeholder="https://example.org/hook",
        ),
        Widget(
            kinds=(HookKind.SLACK,),
            title="Incoming webhook URL",
            hint="Stored as a secret, as it allows writing to the channel.",
            secret=True,
        ),
        Widget(
            kinds=(HookKind.SLACK_APP,),
            title="Address of Slack's API",
            hint="Empty is https://slack.com/api.",
        ),
        Widget(
            kinds=(HookKind.PAGERDUTY,),
            hint="Empty is PagerDuty's own in the USA; in the EU it is https://events.eu.pagerduty.com/v2/enqueue.",
        ),
        Widget(
            kinds=(HookKind.ALERTMANAGER,),
            hint="Base address of Alertmanager, without the path of its API.",
            placeholder="http://alertmanager:9093",
        ),
        Widget(
            kinds=(HookKind.APPRISE,),
            title="Apprise URL",
            hint="Such as ntfy://topic; stored as a secret, as it often holds a token (needs the extra apprise).",
            secret=True,
        ),
    ] = None
    secret: Annotated[
        Annotated[str, AfterValidator(_secret)] | None,
        Field(
            title="Signing secret",
            description="Signs each message (Standard Webhooks): whsec_ and base64 of 24 to 64 bytes; without one, "
            "messages are not signed.",
            repr=False,
        ),
        Widget(kinds=(HookKind.WEBHOOK,), secret=True),
    ] = None
    username: Annotated[
        Name | None,
        Field(title="Username", description="Only where the server requires authentication."),
        Widget(kinds=(HookKind.ALERTMANAGER, HookKind.EMAIL)),
    ] = None
    password: Annotated[
        Annotated[str, AfterValidator(_password)] | None,
        Field(title="Password", repr=False),
        Widget(kinds=(HookKind.ALERTMANAGER, HookKind.EMAIL), secret=True),
    ] = None
    labels: Annotated[
        dict[str, Name],
        AfterValidator(_labels),
        Field(title="Labels", description="Added to every alert, for example for routing."),
        Widget(
            kinds=(HookKind.ALERTMANAGER,),
            hint="One name=value per line, added to every alert, for example for routing.",
            control=Control.AREA,
            lines=3,
            mono=True,
            separator="=",
            placeholder="team=search",
        ),
    ] = Field(default_factory=dict, max_length=20)
    authority: Annotated[
        PemCertificate | None,
        Field(
            title="Certificate authority",
            description="Certificate, as PEM, to trust in place of the system's authorities.",
        ),
        Widget(
            kinds=(*_THROUGH_PROXY, HookKind.EMAIL),
            control=Control.AREA,
            lines=3,
            mono=True,
            length=100_000,
            placeholder="-----BEGIN CERTIFICATE-----",
        ),
    ] = None
    proxy: Annotated[
        Annotated[str, AfterValidator(_proxy), StringConstraints(max_length=512)] | None,
        Field(
            title="Proxy",
            description="Such as http://proxy.example.org:3128, or none; empty is COALMINE_PROXY, if that is set.",
        ),
        Widget(kinds=_THROUGH_PROXY, placeholder="http://proxy.example.org:3128"),
    ] = None
    timeout: Annotated[
        Seconds, Field(title="Timeout", description="Longest wait for the receiver, such as 15s."), _TIMEOUT
    ] = 15.0

    def data(self) -> dict[str, Any]:
        """Return the document as JSON values under its wire names: the fields of its kind, defaults written out."""
        return {name: value for name, value in super().data().items() if name in _names(self.kind)}

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        wrong = list(self._problems())
        if wrong:
            raise field_errors(wrong)
        return self

    def _problems(self) -> Iterator[tuple[Place, str]]:
        kind = self.kind
        for field_name in sorted(self.model_fields_set):
            name = "from" if field_name == "sender" else field_name
            if name not in _names(kind):
                others = [one for one in _names(kind) if one not in _COMMON]
                yield (name,), f"is not a field of a hook of kind '{kind}'; it has: {', '.join(others)}"
        for name in _REQUIRED[kind]:
            if not getattr(self, "sender" if name == "from" else name):
                yield (name,), f"the key '{name}' is missing"
        if self.url is not None and "url" in _names(kind):
            yield from _url_problems(kind, self.url)
        if (self.username is None) != (self.password is None):
            yield ("username" if self.username is None else "password",), "username and password belong together"
        elif self.username is not None and (":" in self.username or not self.username.isascii()):
            yield ("username",), "must be of ASCII characters, without a ':'"
        if kind == HookKind.EMAIL and MailTls(self.tls) is MailTls.NONE and self.username is not None:
            yield ("tls",), "must not be 'none' where there is a password: it would travel in the clear"

    def to_domain(self) -> Hook:
        """Return the value the domain works with."""
        mail, tls = None, MailTls(self.tls)
        if self.host is not None and self.sender is not None:
            port = self.port or _PORTS[tls]
            mail = Mail(host=self.host, port=port, tls=tls, sender=self.sender, recipients=self.to)
        return Hook(
            slug=self.slug,
            kind=self.kind,
            url=self.url or OWN_URLS.get(self.kind, ""),
            secret=self.secret or self.routing_key or self.password or self.token,
            channel=self.channel or "",
            username=self.username,
            labels=self.labels,
            authority=self.authority,
            proxy="" if self.proxy == _NO_PROXY else self.proxy,
            mail=mail,
            timeout_seconds=self.timeout,
        )


HOOK_SECRETS: Final[Mapping[str, str]] = MappingProxyType(
    {kind: name for kind in HookKind for name, widget in widgets_of(HookDocument, kind).items() if widget.secret}
)
"""The one field of each kind whose value is a secret. Whoever has the URL of Slack or Apprise may speak there."""
HOOK_TEXTS: Final = (*dict.fromkeys(HOOK_SECRETS.values()), "authority")
"""The keys of a hook that may be read from a file, as `<key>_file`."""
OPTIONAL_SECRETS: Final = frozenset(kind for kind, name in HOOK_SECRETS.items() if name not in _REQUIRED[kind])
"""Kinds whose secret is optional."""
_RECEIVERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        HookKind.PAGERDUTY: "PagerDuty",
        HookKind.SLACK: "Slack",
        HookKind.SLACK_APP: "Slack",
        HookKind.APPRISE: "the service of its Apprise URL",
    }
)


def receivers(hook: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """Return who hears of incidents by the whole JSON of a hook: identity of each receiver, and its name for people.

    None of Alertmanager, which lets go of an alert that is not sent to it again. The identity may hold a secret.
    """
    kind = hook["kind"]
    if kind == HookKind.ALERTMANAGER:
        return {}
    if kind == HookKind.EMAIL:
        return {(kind, address): str(address) for address in hook["to"]}
    url = hook["url"] or OWN_URLS.get(kind, "")
    place = urlsplit(url).hostname or "its address"
    own = hook.get("routing_key") or hook.get("channel") or ""
    return {(kind, url, own): _RECEIVERS.get(kind, f"the receiver at {place}")}


def _url_problems(kind: str, url: str) -> Iterator[tuple[Place, str]]:
    """Check an address without ever quoting it."""
    try:
        if kind == HookKind.APPRISE:
            if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*://[!-~]+", url):
                yield ("url",), "must be one URL of Apprise, for example ntfy://topic; write other characters as %XX"
        else:
            check_url(url)
            if kind == HookKind.ALERTMANAGER and ("?" in url or url.rstrip("/").endswith("/api/v2/alerts")):
                yield ("url",), "must be where Alertmanager is, for example http://alertmanager:9093, without its API"
    except ValueError as error:
        yield ("url",), str(error)
