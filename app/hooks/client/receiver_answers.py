"""Responses of receivers as receipts: delivered, or why not and whether it may have been taken.

The status decides. Within a 2xx the body decides too where the receiver is a known service: see `stated_error`.
"""

import json
import re
from datetime import datetime
from enum import StrEnum

from app.base.net.transfer import Failure, Response, retry_after_seconds
from app.hooks.domain import Receipt
from app.retrievers.client.credentials import clean_message, message_of_body, quoted

READ_BYTES = 4_096
"""Bytes of a response that are read."""
DAY_SECONDS = 24 * 3600.0


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


def stated_error(response: Response) -> str | None:
    """Return what the body of a 2xx says is wrong; None where it says nothing of the kind.

    JSON whose `ok` or `success` is false, whose `status` is that of a failure, or which has an error and none of these;
    and an HTML page, which is that of a sign-in or a proxy: none of the known services answers one.
    """
    text = response.body.decode("utf-8", errors="replace").strip()
    if _PAGE.match(text):
        return f"a web page came back, such as one to sign in{quoted(message_of_body(response.body))}"
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    flags = [answer[name] for name in ("ok", "success") if isinstance(answer.get(name), bool)]
    status = answer.get("status", answer.get("result"))
    if False in flags or (isinstance(status, str) and _FAILURE.search(status)):
        return message_of_body(response.body) or "it says so without a reason"
    if not flags and status is None and (answer.get("error") or answer.get("errors")):
        return message_of_body(response.body) or "it says so without a reason"
    return None


def refusal_of_chat(response: Response) -> str | None:
    """Return how a chat service refuses a webhook's message, whose form it does not know, within a 2xx; else None.

    A webhook's receiver may answer 2xx with any body, so only what no other says counts: the sentence of Microsoft
    Teams, the `errcode` of DingTalk and WeCom, and the `code` of Feishu, above 1,000 and beside `msg`.
    """
    if response.body.startswith(_REFUSAL_OF_TEAMS):
        return message_of_body(response.body)
    try:
        answer = json.loads(response.body) if response.body[:1] == b"{" else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    number, code, message = answer.get("errcode"), answer.get("code"), answer.get("msg", answer.get("errmsg"))
    if isinstance(number, int) and number:
        return f"errcode {number}{quoted(clean_message(str(message)) if message else None)}"
    is_code = isinstance(code, int) and code >= _LEAST_CODE and isinstance(answer.get("msg"), str)
    is_success = str(message).lower() in {"ok", "success"}
    return f"code {code}{quoted(clean_message(str(message)))}" if is_code and not is_success else None


def receipt_of(response: Response, now: datetime) -> Receipt:
    """Receipt of a response. The status decides, even where reading the body failed."""
    status, seconds = response.status, response.latency_seconds
    if status is None or status < _FINAL:
        error = HookError.UNREACHABLE if response.failure is None else _ERRORS[response.failure]
        unsent = error is HookError.BLOCKED or (response.detail or "").startswith(_UNSENT)
        return Receipt(ok=False, error=error, detail=response.detail, untaken=unsent, latency_seconds=seconds)
    if status < _REDIRECT:
        return Receipt(ok=True, http_status=status, latency_seconds=seconds)
    error, detail = _verdict(status)
    return Receipt(
        ok=False,
        http_status=status,
        error=error,
        detail=detail,
        untaken=status < _SERVER and status != _LATE,  # a proxy's 5xx may hide that the receiver took it
        gone=status == _GONE,
        retry_after_seconds=retry_after(response.headers.get("retry-after"), now),
        latency_seconds=seconds,
    )


def retry_after(value: str | None, now: datetime) -> float | None:
    """Read a Retry-After header, seconds or an HTTP date (RFC 9110, 10.2.3); None if absent or senseless.

    Never negative, never beyond a day.
    """
    seconds = retry_after_seconds(value, now)
    return None if seconds is None else min(seconds, DAY_SECONDS)


def _verdict(status: int) -> tuple[HookError, str]:
    if status < _CLIENT:
        return HookError.REDIRECT, f"answered {status}; redirects are not followed"
    if status == _GONE:
        return HookError.GONE, "answered 410: the receiver no longer exists"
    return (HookError.HTTP_4XX if status < _SERVER else HookError.HTTP_5XX), f"answered {status}"


_PAGE = re.compile(r"<(!doctype\s+html|html)\b", re.IGNORECASE)
_FAILURE = re.compile(r"error|fail|invalid|reject|refus|denied|forbidden|unauthori", re.IGNORECASE)
_FINAL, _REDIRECT, _CLIENT, _GONE, _SERVER = 200, 300, 400, 410, 500
_LATE = 408
_LEAST_CODE = 1_000  # of Feishu's errors; smaller ones are statuses of HTTP
_REFUSAL_OF_TEAMS = b"Webhook message delivery failed"
_UNSENT = ("connection failed", "the host name", "the proxy", "no connection", "TLS:", "the TLS handshake")
"""How the details of failures begin before which nothing was sent."""
_ERRORS = {
    Failure.TIMEOUT: HookError.TIMEOUT,
    Failure.UNREACHABLE: HookError.UNREACHABLE,
    Failure.BLOCKED: HookError.BLOCKED,
    Failure.OVERSIZE: HookError.UNREACHABLE,
    Failure.MALFORMED: HookError.UNREACHABLE,
}
