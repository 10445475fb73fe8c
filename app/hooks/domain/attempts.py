"""Attempts: the next state of a delivery after an attempt, retries and backoff, and resends."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.base.values import DeliveryState
from app.hooks.domain.hooks import HookKind, Receipt

FIRST_RETRY_SECONDS: Final = 5.0
LONGEST_WAIT_SECONDS: Final = 60.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """State of a delivery after an attempt."""

    state: DeliveryState
    next_attempt_at: datetime | None
    """Set exactly while pending."""
    disable_hook: bool
    reason: str
    """A sentence for people."""


def after_attempt(receipt: Receipt, attempts: int, first_at: datetime, now: datetime, jitter: float) -> NextStep:
    """Compute the next state of a delivery from an attempt that just ended.

    `attempts` counts all attempts so far, this one included; `first_at` is when the first was made; `jitter` is drawn
    from [0, 1). Every failure is retried until 24 h have passed, whatever the receiver answered: one that is being
    deployed answers 404, one behind a sign-in redirects. 410 ends it and disables the hook.
    """
    if receipt.ok:
        return _final_step(DeliveryState.DELIVERED, "Delivered.")
    what = _failure_text(receipt)
    if receipt.gone:
        return _final_step(DeliveryState.DEAD, f"{what}: the receiver is gone, so the hook was disabled.", disable=True)
    if now - first_at >= GIVE_UP_AFTER:
        return _final_step(DeliveryState.DEAD, f"{what}: gave up after 24 hours and {attempts} attempts.")
    wait = backoff(attempts, receipt.retry_after_seconds, jitter)
    return NextStep(
        state=DeliveryState.PENDING,
        next_attempt_at=now + timedelta(seconds=wait),
        disable_hook=False,
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
    wait: float = min(LONGEST_WAIT_SECONDS, FIRST_RETRY_SECONDS * 2**doublings) * (1.0 - JITTER_SHARE * jitter)
    return wait if retry_after is None else max(wait, min(retry_after, LONGEST_RETRY_AFTER_SECONDS))


def _final_step(state: DeliveryState, reason: str, *, disable: bool = False) -> NextStep:
    return NextStep(state=state, next_attempt_at=None, disable_hook=disable, reason=reason)


def _failure_text(receipt: Receipt) -> str:
    if receipt.detail:
        return receipt.detail.rstrip(".")
    if receipt.http_status is not None:
        return f"The receiver answered {receipt.http_status}"
    return f"The attempt failed ({receipt.error})" if receipt.error else "The attempt failed"
