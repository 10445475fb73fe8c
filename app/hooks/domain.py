"""Hooks, messages, receipts and notices as values, `Send`, which delivers a message, and what follows an attempt.

Who is notified is decided in `alerts.domain.state`. Views of deliveries, and the words of failures, stand at the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Final, NotRequired, Protocol, Required

from typing_extensions import TypedDict

from app.alerts.domain.views import ChangedCanary, FleetView, SinceView, WorseAnswers
from app.base.values import EMPTY, Confidential, CorrectedRateView, DeliveryState, TimeText, Value, field
from app.catalog.domain import PooledNote


class Message(Value):
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
    SLACK_APP = "slack-app"
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


class Mail(Value):
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


class Hook(Confidential):
    """A destination of notifications."""

    hidden: ClassVar = ("url", "secret")

    slug: str
    kind: str
    """A `HookKind`."""
    url: str = ""
    """For some kinds a secret. Empty for email."""
    secret: str | None = None
    """A signing secret, a routing key, a password or a token, depending on the kind."""
    channel: str = ""
    """Id of the channel a Slack app writes to."""
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


class Receipt(Value):
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


class NoticeLinks(TypedDict):
    """Addresses of pages; None = not configured, or there is none."""

    incident: str | None
    alert: str | None
    check: str | None
    run: str | None
    dashboard: str | None
    runbook: str | None
    report: NotRequired[str]
    """Of a scheduled report alone."""
    plants: NotRequired[str]
    """Of an alert about planted documents alone."""


class NoticePlant(TypedDict):
    """The planted document with which something is wrong."""

    id: str
    document_id: str
    """Its id in the source."""
    marker: str
    """The word in its text that nothing else has."""


class NoticeAlert(TypedDict):
    """One alert that is or was part of an incident, in its current state."""

    alert_id: str
    rule: str
    kind: str
    scope: str
    severity: str
    state: str
    reason: str


NoticeClass = TypedDict("NoticeClass", {"class": str}, total=False)


class NoticeData(NoticeClass, total=False):
    """An incident, a report or a test; `rule`, measure, value and canaries are of the alert of the transition.

    A scheduled report is stored like this, without the links, as rendered when it was due.
    """

    summary: Required[str]
    title: str
    """The same in few words, for subjects and headers; none of a report or a test."""
    links: NoticeLinks
    incident_id: str
    alerts: list[NoticeAlert]
    alert_id: str
    dedupe_key: str
    severity: str
    advice: str | None
    lost: str | None
    reason: str
    check: str
    suite: str
    retriever: str
    rule: str
    kind: str
    scope: str
    opened_at: TimeText
    resolved_at: TimeText | None
    run_id: str | None
    health_score: float | None
    coverage: float | None
    found: str | None
    """Coverage as a count of questions that find their document: `65 of 87`."""
    measure: str | None
    value: float | None
    corrected: CorrectedRateView | None
    """The value, where that is a rate by people's labels: with its interval, and the judge's own rate."""
    beside: CorrectedRateView | None
    """What people would say, where the value is a judge's own mean of shares and enough of them labelled answers."""
    uncalibrated: bool
    """Whether a judge says the value, corrected or not, whom people have not confirmed."""
    self_judged: bool
    """Whether the measure is recall of which the retriever itself brought up more than a fifth of what is expected."""
    pooled_recall: list[PooledNote]
    """Pooled recall at the k of the measure, or of a report at every k; empty where no task estimates it."""
    threshold: float | None
    baseline: float | None
    degraded_queries: list[str]
    degraded: list[ChangedCanary]
    degraded_total: int | None
    changed_total: int | None
    failing_before: int | None
    recovered_on_retry: int | None
    """Of the changed: those that were healthy on every retry, which the summary leaves out."""
    causes: str | None
    answers: WorseAnswers | None
    """Of a rule about generated answers: those that got worse, in place of canaries."""
    fleet: FleetView | None
    since: SinceView | None
    plant: NoticePlant
    """Of an alert about planted documents alone, while something is wrong with one."""
    verdict: str | None
    """This and what follows are of a scheduled report alone."""
    since_run_id: str | None
    """The run of the report before, of which it says what changed."""
    lines: list[str]
    """What comes first, in sentences without full stops."""
    markdown: str
    html: str


class Notice(TypedDict):
    """The notice of a delivery."""

    type: str
    version: int
    timestamp: TimeText
    data: NoticeData


FIRST_RETRY_SECONDS: Final = 5.0
LONGEST_BACKOFF_SECONDS: Final = 60.0
"""A receiver that is back gets its messages within about a minute, however long it was gone."""
LONGEST_RETRY_AFTER_SECONDS: Final = 300.0
JITTER_SHARE: Final = 0.25
GIVE_UP_AFTER: Final = timedelta(hours=24)
REFRESH_EVERY: Final = timedelta(minutes=1)
REFRESH_AFTER_RESOLVE: Final = timedelta(minutes=5)
EXPIRING: Final = frozenset({HookKind.ALERTMANAGER})
"""Receivers that expire an alert unless it is sent again and again."""
OUT_OF_REACH: Final = frozenset({"unreachable", "timeout", "tls", "blocked"})
"""Errors without a response, whose cause is over once another message is delivered."""
ACKNOWLEDGING: Final = frozenset({HookKind.PAGERDUTY})
"""Receivers that page people themselves, and stop on an acknowledgement."""


class NextStep(Value):
    """State of a delivery after an attempt."""

    state: DeliveryState
    next_attempt_at: datetime | None = None
    """Set exactly while pending."""
    disable_hook: bool = False
    reason: str
    """A sentence for people."""


def after_attempt(receipt: Receipt, attempts: int, first_at: datetime, now: datetime, jitter: float) -> NextStep:
    """Compute the next state of a delivery from an attempt that just ended.

    `attempts` counts all attempts so far, this one included; `first_at` is when the first was made; `jitter` is drawn
    from [0, 1). Every failure is retried until 24 h have passed, whatever the receiver answered: one that is being
    deployed answers 404, one behind a sign-in redirects. 410 ends it and disables the hook.
    """
    if receipt.ok:
        return NextStep(state=DeliveryState.DELIVERED, reason="Delivered.")
    what = _failure_text(receipt)
    if receipt.gone:
        reason = f"{what}: the receiver is gone, so the hook was disabled."
        return NextStep(state=DeliveryState.DEAD, reason=reason, disable_hook=True)
    if now - first_at >= GIVE_UP_AFTER:
        return NextStep(state=DeliveryState.DEAD, reason=f"{what}: gave up after 24 hours and {attempts} attempts.")
    wait = backoff(attempts, receipt.retry_after_seconds, jitter)
    return NextStep(
        state=DeliveryState.PENDING,
        next_attempt_at=now + timedelta(seconds=wait),
        reason=f"{what}: attempt {attempts + 1} follows in {wait:.0f} s.",
    )


def needs_resend(hook_kind: str, *, resolves: bool, delivered_at: datetime, is_open: bool, now: datetime) -> bool:
    """Whether a delivered notification is sent again, or else the receiver would expire its alert.

    It is sent every minute while the incident is open, and its resolve for five minutes more, as Prometheus does, since
    an accepted request does not prove that the alert was processed. Once the incident is resolved its trigger is not
    sent again: it would reopen the alert there.
    """
    if hook_kind not in EXPIRING:
        return False
    return now <= delivered_at + REFRESH_AFTER_RESOLVE if resolves else is_open


def backoff(attempts: int, retry_after: float | None, jitter: float) -> float:
    """Return the seconds to wait after the given number of failed attempts, at most a minute.

    About 5 s after the first, doubling, shortened by up to a quarter by `jitter` in [0, 1) so that deliveries which
    failed together do not return together. Never sooner than the receiver asked for (Retry-After, up to five minutes).
    """
    doublings = min(max(attempts, 1) - 1, 32)  # far beyond the cap, and still a float
    wait: float = min(LONGEST_BACKOFF_SECONDS, FIRST_RETRY_SECONDS * 2**doublings) * (1.0 - JITTER_SHARE * jitter)
    return wait if retry_after is None else max(wait, min(retry_after, LONGEST_RETRY_AFTER_SECONDS))


def _failure_text(receipt: Receipt) -> str:
    if receipt.detail:
        return receipt.detail.rstrip(".")
    if receipt.http_status is not None:
        return f"The receiver answered {receipt.http_status}"
    return f"The attempt failed ({receipt.error})" if receipt.error else "The attempt failed"


class AttemptView(TypedDict):
    """An attempt to deliver."""

    at: TimeText
    http_status: int | None
    error: str | None
    detail: str | None
    latency_seconds: float | None


class DeliveryView(TypedDict):
    """One message to one hook, with its attempts."""

    id: str
    hook: str
    alert_id: str | None
    incident_id: str | None
    type: str
    state: DeliveryState
    reason: str | None
    created_at: TimeText
    next_attempt_at: TimeText | None
    waits_for: str | None
    """The delivery that has to be made first."""
    attempts: list[AttemptView]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookReplay:
    """Counts of a replay of a hook's dead deliveries."""

    hook: str
    replayed: int
    overtaken: int
    """Left dead: overtaken by a later notification."""


class HookError(StrEnum):
    """Why a delivery failed; a closed list, used as a metrics label."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    BLOCKED = "blocked"
    REDIRECT = "redirect"
    GONE = "gone"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    SMTP_4XX = "smtp_4xx"
    SMTP_5XX = "smtp_5xx"
    TLS = "tls"
    REFUSED = "refused"
    SECRET = "secret"  # noqa: S105 - the name of a failure
    CONFIGURATION = "configuration"


ERROR_WORDS: Final[Mapping[str, str]] = {
    HookError.TIMEOUT: "no answer in time",
    HookError.UNREACHABLE: "could not be reached",
    HookError.BLOCKED: "not allowed to connect there",
    HookError.REDIRECT: "answered with a redirect",
    HookError.GONE: "the receiver is gone",
    HookError.HTTP_4XX: "declined it",
    HookError.HTTP_5XX: "failed over it",
    HookError.SMTP_4XX: "cannot take it now",
    HookError.SMTP_5XX: "declined it",
    HookError.TLS: "no safe connection",
    HookError.REFUSED: "refused it",
    HookError.SECRET: "the stored secret cannot sign",
    HookError.CONFIGURATION: "could not be prepared",
    "bug": "an error in Coalmine",
}
"""What people read of each; a `bug` is none of the receiver's."""
CANCELLED: Final = "It will not be sent: its incident was resolved before it was tried."
"""Why a delivery is cancelled: there is no other cause."""
DELIVERY_STATES: Final[Mapping[str, str]] = {
    DeliveryState.PENDING: "waits to be sent, or to be tried again",
    DeliveryState.DELIVERED: "the receiver took it",
    DeliveryState.DEAD: "given up; it can be replayed",
    DeliveryState.CANCELLED: "cancelled before it was sent: no longer needed",
}
