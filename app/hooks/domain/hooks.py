"""Hooks, messages and receipts as values, and `Send`, the function that delivers a message.

Who is notified is decided in `alerts.notification_plan`; the result of an attempt is evaluated in `attempts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from app.base.values import EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One notification for one hook, rendered and frozen: exactly these bytes are sent on every attempt."""

    id: str
    """Constant over retries: the receiver's idempotency key."""
    body: bytes
    taken_by: frozenset[str] = frozenset()
    """Recipients of a mail who took it in an earlier attempt; they do not get it again."""


class HookKind(StrEnum):
    """Kind of a hook: its protocol and body."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    ALERTMANAGER = "alertmanager"
    EMAIL = "email"
    APPRISE = "apprise"


TAKES_NO_REPORT: Final = frozenset({HookKind.PAGERDUTY, HookKind.ALERTMANAGER})
"""Kinds of hooks that take alerts alone: a report is nothing to be acknowledged or resolved."""


class MailTls(StrEnum):
    """How a connection to a mail server is encrypted; `starttls` never goes on without."""

    STARTTLS = "starttls"
    IMPLICIT = "implicit"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """Mail server, sender and recipients of an email hook."""

    host: str
    port: int
    tls: MailTls
    sender: str
    recipients: tuple[str, ...]


def mail_port_hint(port: int | None, tls: str) -> str | None:
    """Return what to set where an encryption is not the usual one of a port (RFC 8314, section 3.3); None = it is."""
    if port == IMPLICIT_TLS_PORT and tls == MailTls.STARTTLS:
        return f"port {port} usually takes TLS from the first byte: set tls: implicit, or port 587 for STARTTLS"
    if port in STARTTLS_PORTS and tls == MailTls.IMPLICIT:
        return f"port {port} usually begins without TLS: set tls: starttls, or port 465 for implicit TLS"
    return None


IMPLICIT_TLS_PORT: Final = 465
STARTTLS_PORTS: Final = (25, 587)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A destination of notifications."""

    slug: str
    kind: str
    """A `HookKind`."""
    url: str = field(default="", repr=False)
    """For some kinds a secret. Empty for email."""
    secret: str | None = field(default=None, repr=False)
    """A signing secret, a routing key or a password, depending on the kind."""
    username: str | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Constant labels beside those of the alert, where the kind has labels."""
    mail: Mail | None = None
    """Set exactly for email."""
    authority: str | None = None
    """Certificate, as PEM, of the authority to trust in place of the system's."""
    proxy: str | None = None
    """Its own proxy, "" for none; None = that of the installation, if any."""
    timeout_seconds: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Result of one attempt. `error` is a closed word for metrics, `detail` a sentence for people."""

    ok: bool
    http_status: int | None = None
    error: str | None = None
    detail: str | None = None
    untaken: bool = False
    """It was certainly not taken: nothing was sent, or the receiver refused it."""
    taken_by: tuple[str, ...] = ()
    """Recipients of a mail who took it in this attempt."""
    gone: bool = False
    """The receiver no longer exists (410): the hook is disabled."""
    retry_after_seconds: float | None = None
    latency_seconds: float = 0.0


class Send(Protocol):
    """Delivers a message to a hook; replaced by a fake in tests."""

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:
        """Attempt once. Failures of the receiver are receipts, never exceptions."""
        ...
