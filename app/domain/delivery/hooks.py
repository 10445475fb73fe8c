"""Where news goes, as values; and `Send`, the seam through which it does.

Who is notified of what is decided in incidents, what follows from an attempt in delivering.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from app.domain.model import EMPTY


def _empty() -> Mapping[str, str]:
    return EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One news item for one hook, rendered and frozen: exactly these bytes are sent on every attempt."""

    id: str
    """Constant over retries: the receiver's idempotency key."""
    body: bytes


class HookKind(StrEnum):
    """How a hook is spoken to."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    ALERTMANAGER = "alertmanager"
    EMAIL = "email"
    APPRISE = "apprise"


class MailTls(StrEnum):
    """How a connection to a mail server is encrypted; `starttls` never goes on without."""

    STARTTLS = "starttls"
    IMPLICIT = "implicit"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """The way of news by email: to which server, and from whom to whom."""

    host: str
    port: int
    tls: MailTls
    sender: str
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Where news goes."""

    slug: str
    kind: str
    """A `HookKind`."""
    url: str = field(default="", repr=False)
    """Of some kinds a secret. Empty for email."""
    secret: str | None = field(default=None, repr=False)
    """What it is proven with: a signing secret, a routing key or a password, as the kind wants it."""
    username: str | None = None
    labels: Mapping[str, str] = field(default_factory=_empty)
    """Constant labels beside those of the alert, where the kind has labels."""
    mail: Mail | None = None
    """Set exactly for email."""
    timeout_seconds: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a receiver made of one attempt. `error` is a closed word for metrics, `detail` a sentence for people."""

    ok: bool
    http_status: int | None = None
    error: str | None = None
    detail: str | None = None
    permanent: bool = False
    """Trying again cannot help."""
    gone: bool = False
    """The receiver said it no longer exists (410): the hook is disabled."""
    retry_after_seconds: float | None = None
    latency_seconds: float = 0.0


class Send(Protocol):
    """Delivers a message to a hook; the second seam where tests put a fake."""

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:
        """Attempt once. Failures of the receiver are receipts, never exceptions."""
        ...
