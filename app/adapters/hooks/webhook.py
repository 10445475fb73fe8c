"""Webhooks by the Standard Webhooks specification: one signed POST, and what its answer means for trying again."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from app.adapters.transport import send_one
from app.adapters.wire import Failure, Request, Response, header_line
from app.domain.addresses import AddressPolicy
from app.domain.model import Hook, Message, Receipt

READ_BYTES = 4_096
"""How much of an answer is read. None of it is kept: what counts is the status."""
LONGEST_WAIT_SECONDS = 24 * 3600.0


class HookError(StrEnum):
    """Why a delivery failed; a closed list, used as a metrics label."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    BLOCKED = "blocked"
    REDIRECT = "redirect"
    GONE = "gone"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    SECRET = "secret"  # noqa: S105 - the name of a failure


def send_webhook(
    hook: Hook, message: Message, now: datetime, *, policy: AddressPolicy, user_agent: str = "coalmine", proxy: str = ""
) -> Receipt:
    """Attempt once; see `Send`. A hook without a secret is sent its message unsigned.

    Blocked is not permanent: it is this installation's own setting, and mending that should still deliver the news.
    """
    try:
        headers = _headers(hook, message, now, user_agent)
    except _SecretError:
        detail = "the secret is not base64, with or without whsec_ before it; nothing was sent"
        return Receipt(ok=False, error=HookError.SECRET, detail=detail)
    response = send_one(
        Request(
            url=hook.url,
            headers=headers,
            body=message.body,
            timeout_seconds=hook.timeout_seconds,
            max_body_bytes=READ_BYTES,
            wants_headers=True,
        ),
        policy=policy,
        proxy=proxy,
    )
    return receipt_of(response, now)


def receipt_of(response: Response, now: datetime) -> Receipt:
    """Judge an answer. A status decides whatever became of the body behind it: the receiver has spoken."""
    status, seconds = response.status, response.latency_seconds
    if status is None or status < _FINAL:
        error = HookError.UNREACHABLE if response.failure is None else _ERRORS[response.failure]
        return Receipt(ok=False, error=error, detail=response.detail, latency_seconds=seconds)
    if status < _REDIRECT:
        return Receipt(ok=True, http_status=status, latency_seconds=seconds)
    error, detail = _verdict(status)
    permanent = status < _SERVER and status not in _PATIENT
    return Receipt(
        ok=False,
        http_status=status,
        error=error,
        detail=detail,
        permanent=permanent,
        gone=status == _GONE,
        retry_after_seconds=None if permanent else retry_after(response.headers.get("retry-after"), now),
        latency_seconds=seconds,
    )


def retry_after(value: str | None, now: datetime) -> float | None:
    """Read a Retry-After header, seconds or an HTTP date (RFC 9110, 10.2.3); None if absent or senseless.

    Never negative, never beyond a day.
    """
    if not value:
        return None
    try:
        seconds = float(value) if value.isascii() and value.isdigit() else _seconds_until(value, now)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), LONGEST_WAIT_SECONDS) if math.isfinite(seconds) else LONGEST_WAIT_SECONDS


def _headers(hook: Hook, message: Message, now: datetime, user_agent: str) -> tuple[bytes, ...]:
    moment = now.astimezone(UTC)  # the package takes the clock's face for UTC, whatever its zone
    headers = {
        "content-type": "application/json",
        "user-agent": user_agent,
        "webhook-id": message.id,
        "webhook-timestamp": str(math.floor(moment.timestamp())),
    }
    if hook.secret is not None:
        headers["webhook-signature"] = _signature(hook.secret, message, moment)
    return (*(header_line(name, value) for name, value in headers.items()), b"expect:")


class _SecretError(Exception):
    """The secret cannot sign."""


def _signature(secret: str, message: Message, moment: datetime) -> str:
    try:
        signer = Webhook(secret)
    except (ValueError, RuntimeError, EmptyWebhookSecretError) as error:
        raise _SecretError from error
    return str(signer.sign(msg_id=message.id, timestamp=moment, data=message.body.decode()))


def _verdict(status: int) -> tuple[HookError, str]:
    if status < _CLIENT:
        return HookError.REDIRECT, f"answered {status}; redirects are not followed"
    if status == _GONE:
        return HookError.GONE, "answered 410: the receiver no longer exists"
    return (HookError.HTTP_4XX if status < _SERVER else HookError.HTTP_5XX), f"answered {status}"


def _seconds_until(value: str, now: datetime) -> float:
    moment = parsedate_to_datetime(value)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()


_FINAL, _REDIRECT, _CLIENT, _GONE, _SERVER = 200, 300, 400, 410, 500
_PATIENT = (408, 425, 429)
_ERRORS = {
    Failure.TIMEOUT: HookError.TIMEOUT,
    Failure.UNREACHABLE: HookError.UNREACHABLE,
    Failure.BLOCKED: HookError.BLOCKED,
    Failure.OVERSIZE: HookError.UNREACHABLE,
    Failure.GARBLED: HookError.UNREACHABLE,
}
