"""Hooks over the network: the hooks that are one POST of JSON, `Sender` for every kind, and the outward ping.

Webhooks are signed by the Standard Webhooks specification. The status of a response decides whether it was delivered;
within a 2xx the body decides too where the receiver is a known service: see `stated_error`.
"""

import base64
import json
import math
import re
import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import Final
from urllib.parse import urlencode, urlsplit

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from app.base.addresses import AddressPolicy, LookUp, Proxy, Tls, hook_remedy
from app.base.net.transfer import (
    Failure,
    Request,
    RequestAuth,
    Response,
    blocked_text,
    header_line,
    parse_host,
    retry_after_seconds,
)
from app.base.net.transport import send_one
from app.base.values import Value, replace
from app.hooks.client.apprise import send_apprise
from app.hooks.client.mail import send_mail
from app.hooks.domain import Hook, HookError, HookKind, Message, Receipt
from app.retrievers.client.credentials import masked
from app.retrievers.client.responses import clean_message, message_of_body, quoted

READ_BYTES = 4_096
"""Bytes of a response that are read."""
DAY_SECONDS = 24 * 3600.0


def send_webhook(
    hook: Hook, message: Message, now: datetime, *, policy: AddressPolicy, user_agent: str = "coalmine"
) -> Receipt:
    """Attempt once with a hook of a kind that is one POST of JSON; see `Send`.

    A webhook without a secret is sent its message unsigned. The routing key joins an event of PagerDuty here, so that
    no row of the outbox ever holds it. A proxy before Alertmanager may ask for user and password. Blocked is retried
    too: it is this installation's own setting, and mending that should still deliver the news.
    """
    url, body = hook.url, message.body
    refusal: Callable[[Response], str | None] = stated_error
    headers = {"content-type": "application/json", "user-agent": user_agent}
    match HookKind(hook.kind):
        case HookKind.WEBHOOK:
            try:
                headers |= _signed(hook, message, now)
            except (ValueError, RuntimeError, EmptyWebhookSecretError):
                detail = "the secret is not base64, with or without whsec_ before it; nothing was sent"
                return Receipt(ok=False, error=HookError.SECRET, detail=detail, untaken=True)
            refusal = refusal_of_chat
        case HookKind.SLACK:  # which answers 410 for an archived channel, and errors within a 200 too
            refusal = refusal_of(url)
        case HookKind.PAGERDUTY:
            event = {"routing_key": hook.secret, **json.loads(body)}
            body = json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode()
        case HookKind.ALERTMANAGER:
            url = url.rstrip("/") + "/api/v2/alerts"
            if hook.username is not None and hook.secret is not None:
                proof = base64.b64encode(f"{hook.username}:{hook.secret}".encode()).decode()
                headers["authorization"] = f"Basic {proof}"
    request = Request(
        url=url,
        headers=(*(header_line(name, value) for name, value in headers.items()), b"expect:"),
        body=body,
        timeout_seconds=hook.timeout_seconds,
        max_body_bytes=READ_BYTES,
        wants_headers=True,
    )
    auth = RequestAuth(tls=None if hook.authority is None else Tls(authority=hook.authority))
    response = send_one(request, policy=policy, auth=auth)
    receipt = receipt_of(response, now)
    reason = refusal(response) if receipt.ok and response.failure is None else None
    if reason is None:
        return receipt
    detail = f"answered {response.status}, but did not take it: {masked(reason, _secrets(hook))}"
    return replace(receipt, ok=False, error=HookError.REFUSED, detail=detail, untaken=True)


def send_slack_app(
    hook: Hook, message: Message, now: datetime, *, policy: AddressPolicy, user_agent: str = "coalmine"
) -> Receipt:
    """Attempt once by the bot token of a Slack app; see `Send`. The picture follows in the thread of the message.

    A message counts as delivered once Slack took it, whatever becomes of its picture: the receipt says why it is not
    there. The token joins the requests to the API here, and goes nowhere else.
    """
    body = json.loads(message.body)
    until = time.monotonic() + hook.timeout_seconds

    def post(url: str, content: bytes, kind: str, *, proof: bool = True) -> Response:
        headers = {"content-type": kind, "user-agent": user_agent}
        if proof:
            headers["authorization"] = f"Bearer {hook.secret}"
        request = Request(
            url=url,
            headers=(*(header_line(name, value) for name, value in headers.items()), b"expect:"),
            body=content,
            timeout_seconds=max(until - time.monotonic(), _LEAST_SECONDS),
            max_body_bytes=_API_BYTES,
            wants_headers=True,
        )
        auth = RequestAuth(tls=None if hook.authority is None else Tls(authority=hook.authority))
        return send_one(request, policy=policy, auth=auth)

    def call(method: str, fields: Mapping[str, object]) -> Response:
        content = json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()
        return post(f"{hook.url.rstrip('/')}/{method}", content, "application/json; charset=utf-8")

    response = call("chat.postMessage", {"channel": hook.channel, **body["message"]})
    receipt = receipt_of(response, now)
    if not receipt.ok:
        return receipt
    answer, reason = _answer_of_slack(response)
    if reason is not None:
        detail = f"answered {response.status}, but did not take it: {masked(reason, _secrets(hook))}"
        return replace(receipt, ok=False, error=HookError.REFUSED, detail=detail, untaken=True)
    if body["picture"] is None:
        return receipt
    why = _share_picture(hook, base64.b64decode(body["picture"]), str(answer.get("ts", "")), call, post)
    return replace(receipt, detail=None if why is None else f"without its picture: {masked(why, _secrets(hook))}")


def _share_picture(
    hook: Hook, picture: bytes, thread: str, call: Callable[..., Response], post: Callable[..., Response]
) -> str | None:
    """Upload a picture into the thread of a message: https://docs.slack.dev/messaging/working-with-files.

    Returns why it is not there. It is sent to hosts of the API alone, whatever address that names.
    """
    form = urlencode({"filename": "heatmap.png", "length": len(picture)}).encode()
    place, reason = _answer_of_slack(
        post(f"{hook.url.rstrip('/')}/files.getUploadURLExternal", form, "application/x-www-form-urlencoded")
    )
    if reason is not None:
        return reason
    url, own = str(place.get("upload_url", "")), parse_host(hook.url)
    host = parse_host(url)
    if not host or not f".{host}".endswith(f".{own}") or urlsplit(url).scheme != urlsplit(hook.url).scheme:
        return "Slack names another host to upload to"
    uploaded = post(url, picture, "application/octet-stream", proof=False)
    if uploaded.failure is not None or uploaded.status != HTTPStatus.OK:
        return uploaded.detail or f"the upload answered {uploaded.status}"
    files = [{"id": place.get("file_id"), "title": _PICTURE_TITLE}]
    fields = {"files": files, "channel_id": hook.channel, "thread_ts": thread}
    return _answer_of_slack(call("files.completeUploadExternal", fields))[1]


def _answer_of_slack(response: Response) -> tuple[Mapping[str, object], str | None]:
    """Return what a method of Slack's API answered, and why it was not done: every answer says `ok` or an `error`."""
    try:
        answer = json.loads(response.body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return {}, response.detail or f"the answer with status {response.status} is not one of Slack's API"
    if answer.get("ok") is True:
        return answer, None
    return answer, clean_message(str(answer.get("error") or "")) or "it says so without a reason"


_LEAST_SECONDS = 1.0
"""What a request for the picture has at least, when the message took all of the time."""
_API_BYTES = 200_000
"""Slack repeats a message in its answer."""
_PICTURE_TITLE = "Every canary, a row, in the newest runs, a column"


def _signed(hook: Hook, message: Message, now: datetime) -> dict[str, str]:
    """Headers of Standard Webhooks. Raises what the package does for a secret that cannot sign."""
    moment = now.astimezone(UTC)  # the package takes the clock's face for UTC, whatever its zone
    headers = {"webhook-id": message.id, "webhook-timestamp": str(math.floor(moment.timestamp()))}
    if hook.secret is not None:
        signer = Webhook(hook.secret)
        headers["webhook-signature"] = str(signer.sign(msg_id=message.id, timestamp=moment, data=message.body.decode()))
    return headers


def _secrets(hook: Hook) -> tuple[str, ...]:
    """Return what must not be shown of a hook: its secret, its address and, but of a webhook, the path of that."""
    parts = urlsplit(hook.url).path.split("/") if hook.kind != HookKind.WEBHOOK else ()
    return tuple(filter(None, (hook.secret, hook.url, *(part for part in parts if len(part) > len("services")))))


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
        untaken=status < _SERVER_ERROR and status != _LATE,  # a proxy's 5xx may hide that the receiver took it
        gone=status == _GONE,
        retry_after_seconds=retry_after(response.headers.get("retry-after"), now),
        latency_seconds=seconds,
    )


def _verdict(status: int) -> tuple[HookError, str]:
    if status < _CLIENT:
        return HookError.REDIRECT, f"answered {status}; redirects are not followed"
    if status == _GONE:
        return HookError.GONE, "answered 410: the receiver no longer exists"
    return (HookError.HTTP_4XX if status < _SERVER_ERROR else HookError.HTTP_5XX), f"answered {status}"


def retry_after(value: str | None, now: datetime) -> float | None:
    """Read a Retry-After header, seconds or an HTTP date (RFC 9110, 10.2.3); None if absent or senseless.

    Never negative, never beyond a day.
    """
    seconds = retry_after_seconds(value, now)
    return None if seconds is None else min(seconds, DAY_SECONDS)


_FINAL, _REDIRECT, _CLIENT, _GONE, _SERVER_ERROR = 200, 300, 400, 410, 500
_LATE = 408
_UNSENT = ("connection failed", "the host name", "the proxy", "no connection", "TLS:", "the TLS handshake")
"""How the details of failures begin before which nothing was sent."""

_ERRORS = {
    Failure.TIMEOUT: HookError.TIMEOUT,
    Failure.UNREACHABLE: HookError.UNREACHABLE,
    Failure.BLOCKED: HookError.BLOCKED,
    Failure.OVERSIZE: HookError.UNREACHABLE,
    Failure.MALFORMED: HookError.UNREACHABLE,
}


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
    if response.body.startswith(_TEAMS_REFUSAL):
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


_PAGE = re.compile(r"<(!doctype\s+html|html)\b", re.IGNORECASE)
_FAILURE = re.compile(r"error|fail|invalid|reject|refus|denied|forbidden|unauthori", re.IGNORECASE)
_LEAST_CODE = 1_000  # of Feishu's errors; smaller ones are statuses of HTTP
_TEAMS_REFUSAL = b"Webhook message delivery failed"


def refusal_of(url: str) -> Callable[[Response], str | None]:
    """Return what says how a 2xx of a hook of kind slack refuses a message; other services take messages of Slack too.

    Slack says `ok` to what it takes. Others answer in many ways, so only errors count.
    """
    host = (urlsplit(url).hostname or "").lower()
    return _refusal_of_slack if any(f".{host}".endswith(f".{own}") for own in _SLACK_HOSTS) else _refusal_of_others


def _refusal_of_slack(response: Response) -> str | None:
    """Return why Slack did not take a message: its webhooks answer `ok`, those of its workflows `{"ok": true}`."""
    text = response.body.decode("utf-8", errors="replace").strip()
    if text.lower() == "ok" or text.startswith("{"):
        return stated_error(response)
    return stated_error(response) or f"it said {_quoted(text)}"


def _refusal_of_others(response: Response) -> str | None:
    """Return why a service that takes messages of Slack did not: they answer in many ways, so only errors count."""
    text = response.body.decode("utf-8", errors="replace").strip()
    if _ERROR_OF_SLACK.fullmatch(text) or text.lower().startswith(_REFUSAL_OF_TEAMS):
        return f"it said {_quoted(text)}"
    return stated_error(response)


def _quoted(text: str) -> str:
    shown = clean_message(text)
    return "nothing" if shown is None else f"\u201c{shown}\u201d"


_SLACK_HOSTS: Final = ("slack.com", "slack-gov.com")
_REFUSAL_OF_TEAMS: Final = "webhook message delivery failed"

_ERROR_OF_SLACK: Final = re.compile(
    r"invalid_\w+|no_(service|service_id|team|text|active_hooks)|\w+_not_found|channel_is_\w+|action_prohibited|"
    r"posting_to_\w+_denied|too_many_\w+|team_disabled|rate_limited|rollup_error|missing_\w+|msg_\w+|fatal_error"
)
"""Documented at https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks and of `chat.postMessage`."""

SECONDS: Final = 1.0
"""Longest wait for all names of a document together."""
_MOST = 16
_free = BoundedSemaphore(_MOST)  # a resolver that hangs may hold a thread for half a minute
_Result = tuple[str, tuple[str, ...]]


def addresses_of(hosts: Collection[str], *, seconds: float = SECONDS) -> Mapping[str, tuple[str, ...]]:
    """Return the addresses of host names; a name that is not known, or not within these seconds, has none."""
    results: SimpleQueue[_Result] = SimpleQueue()
    until, started = time.monotonic() + seconds, 0
    for host in dict.fromkeys(hosts):
        if not _free.acquire(blocking=False):
            break
        Thread(target=_resolve, args=(host, results), name="name-lookup", daemon=True).start()
        started += 1
    answers: dict[str, tuple[str, ...]] = {}
    while len(answers) < started:
        try:
            host, addresses = results.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            break
        answers[host] = addresses
    return answers


def _resolve(host: str, results: SimpleQueue[_Result]) -> None:
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # not known, or no name at all
        addresses = []
    finally:
        _free.release()
    results.put((host, tuple(dict.fromkeys(str(address[0]) for *_, address in addresses))))


class Sender(Value):
    """Sends over the network, within an address policy."""

    policy: AddressPolicy
    user_agent: str = "coalmine"
    look_up: LookUp = addresses_of
    """Resolves the hosts of hooks that are reached through a proxy."""

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:
        """Attempt once; see `Send`. The error of a blocked address names the setting that allows it."""
        policy = _with_own_proxy(self.policy, hook)
        refusal = _refusal_behind_proxy(policy, hook, self.look_up)
        receipt = (
            self._send(hook, message, now, policy)
            if refusal is None
            else Receipt(ok=False, error=HookError.BLOCKED, detail=blocked_text(refusal), untaken=True)
        )
        remedy = hook_remedy(receipt.detail or "") if receipt.error == HookError.BLOCKED else ""
        return replace(receipt, detail=f"{receipt.detail}. {remedy}") if remedy else receipt

    def _send(self, hook: Hook, message: Message, now: datetime, policy: AddressPolicy) -> Receipt:
        match hook.kind:
            case HookKind.EMAIL:
                return send_mail(hook, message, now, policy=policy)
            case HookKind.APPRISE:
                return send_apprise(hook, message, now, policy=policy)
            case HookKind.SLACK_APP:
                return send_slack_app(hook, message, now, policy=policy, user_agent=self.user_agent)
            case _:
                return send_webhook(hook, message, now, policy=policy, user_agent=self.user_agent)


def _with_own_proxy(policy: AddressPolicy, hook: Hook) -> AddressPolicy:
    """Return the policy with the proxy of a hook, which it has to permit: who defines hooks chose it."""
    if hook.proxy is None:
        return policy
    return replace(policy, proxy=Proxy(url=hook.proxy, judged=True) if hook.proxy else None)


def _refusal_behind_proxy(policy: AddressPolicy, hook: Hook, look_up: LookUp) -> str | None:
    """Return why a host that a proxy would look up is refused by what it resolves to here; None = it is not.

    The proxy connects in our place, from within the network that hooks may not reach: so a name that is known here has
    to lead to permitted addresses alone. One that is known to the proxy alone is the proxy's to judge.
    """
    host = parse_host(hook.url)
    if hook.kind in _WITHOUT_PROXY or not host or policy.proxy_of(host) is None:
        return None
    reasons = (policy.check(address, host) for address in look_up((host,)).get(host, ()))
    return next((reason for reason in reasons if reason is not None), None)


_WITHOUT_PROXY = frozenset({HookKind.EMAIL, HookKind.APPRISE})
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinger:
    """Pings an address, which is a secret: anybody who has it could ping instead."""

    url: str = field(repr=False)
    policy: AddressPolicy
    user_agent: str

    def __call__(self) -> str | None:
        """Ping once: None = it was taken, else a sentence why not, without the address."""
        request = Request(
            url=self.url,
            method="GET",
            headers=(header_line("user-agent", self.user_agent),),
            timeout_seconds=_TIMEOUT_SECONDS,
            max_body_bytes=1_000_000,
        )
        response = send_one(request, policy=self.policy)
        if response.failure is not None:
            return response.detail or str(response.failure)
        if response.status is None or response.status >= HTTPStatus.MULTIPLE_CHOICES:
            return f"the receiver answered HTTP {response.status}"
        return None
