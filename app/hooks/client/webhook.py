"""Webhooks by the Standard Webhooks specification: one signed POST."""

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from app.base.addresses import AddressPolicy, LookUp, Proxy, hook_remedy
from app.base.net.transfer import Request, Response, blocked_text, header_line, parse_host
from app.base.net.transport import send_one
from app.hooks.client.apprise import send_apprise
from app.hooks.client.mail import send_mail
from app.hooks.client.name_lookup import addresses_of
from app.hooks.client.receiver_answers import HookError, post, refusal_of_chat, stated_error
from app.hooks.domain import Hook, HookKind, Message, Receipt
from app.retrievers.client.messages import clean_message


def send_webhook(
    hook: Hook, message: Message, now: datetime, *, policy: AddressPolicy, user_agent: str = "coalmine"
) -> Receipt:
    """Attempt once; see `Send`. A hook without a secret is sent its message unsigned.

    Blocked is retried too: it is this installation's own setting, and mending that should still deliver the news.
    """
    try:
        headers = _headers(hook, message, now)
    except _SecretError:
        detail = "the secret is not base64, with or without whsec_ before it; nothing was sent"
        return Receipt(ok=False, error=HookError.SECRET, detail=detail, untaken=True)
    return post(
        hook.url,
        message.body,
        now,
        headers=headers,
        timeout_seconds=hook.timeout_seconds,
        policy=policy,
        user_agent=user_agent,
        authority=hook.authority,
        refusal=refusal_of_chat,
        secrets=tuple(filter(None, (hook.secret, hook.url))),
    )


def _headers(hook: Hook, message: Message, now: datetime) -> tuple[bytes, ...]:
    moment = now.astimezone(UTC)  # the package takes the clock's face for UTC, whatever its zone
    headers = {"webhook-id": message.id, "webhook-timestamp": str(math.floor(moment.timestamp()))}
    if hook.secret is not None:
        headers["webhook-signature"] = _signature(hook.secret, message, moment)
    return tuple(header_line(name, value) for name, value in headers.items())


class _SecretError(Exception):
    """The secret cannot sign."""


def _signature(secret: str, message: Message, moment: datetime) -> str:
    try:
        signer = Webhook(secret)
    except (ValueError, RuntimeError, EmptyWebhookSecretError) as error:
        raise _SecretError from error
    return str(signer.sign(msg_id=message.id, timestamp=moment, data=message.body.decode()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
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
        user_agent = self.user_agent
        match HookKind(hook.kind):
            case HookKind.WEBHOOK:
                return send_webhook(hook, message, now, policy=policy, user_agent=user_agent)
            case HookKind.SLACK:
                return send_slack(hook, message, now, policy=policy, user_agent=user_agent)
            case HookKind.PAGERDUTY:
                return send_pagerduty(hook, message, now, policy=policy, user_agent=user_agent)
            case HookKind.ALERTMANAGER:
                return send_alertmanager(hook, message, now, policy=policy, user_agent=user_agent)
            case HookKind.EMAIL:
                return send_mail(hook, message, now, policy=policy)
            case HookKind.APPRISE:
                return send_apprise(hook, message, now, policy=policy)


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


ALERTS_PATH = "/api/v2/alerts"
_SLACK_HOSTS: Final = ("slack.com", "slack-gov.com")
_REFUSAL_OF_TEAMS: Final = "webhook message delivery failed"
_ERROR_OF_SLACK: Final = re.compile(
    r"invalid_\w+|no_(service|service_id|team|text|active_hooks)|\w+_not_found|channel_is_\w+|action_prohibited|"
    r"posting_to_\w+_denied|too_many_\w+|team_disabled|rate_limited|rollup_error|missing_\w+|msg_\w+|fatal_error"
)
"""Documented at https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks and of `chat.postMessage`."""


def send_slack(hook: Hook, message: Message, now: datetime, *, policy: AddressPolicy, user_agent: str) -> Receipt:
    """Attempt once; see `Send`. Slack answers 410 for an archived channel, and errors within a 200 too."""
    return post(
        hook.url,
        message.body,
        now,
        timeout_seconds=hook.timeout_seconds,
        policy=policy,
        user_agent=user_agent,
        authority=hook.authority,
        refusal=refusal_of(hook.url),
        secrets=_secrets(hook),
    )


def send_pagerduty(hook: Hook, message: Message, now: datetime, *, policy: AddressPolicy, user_agent: str) -> Receipt:
    """Attempt once; see `Send`. The routing key joins the event here, so that no row of the outbox ever holds it."""
    event: Mapping[str, object] = {"routing_key": hook.secret, **json.loads(message.body)}
    return post(
        hook.url,
        json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode(),
        now,
        timeout_seconds=hook.timeout_seconds,
        policy=policy,
        user_agent=user_agent,
        authority=hook.authority,
        refusal=stated_error,
        secrets=_secrets(hook),
    )


def send_alertmanager(
    hook: Hook, message: Message, now: datetime, *, policy: AddressPolicy, user_agent: str
) -> Receipt:
    """Attempt once; see `Send`. `url` is where Alertmanager is; a proxy before it may ask for user and password."""
    headers: tuple[bytes, ...] = ()
    if hook.username is not None and hook.secret is not None:
        proof = base64.b64encode(f"{hook.username}:{hook.secret}".encode()).decode()
        headers = (header_line("authorization", f"Basic {proof}"),)
    return post(
        hook.url.rstrip("/") + ALERTS_PATH,
        message.body,
        now,
        headers=headers,
        timeout_seconds=hook.timeout_seconds,
        policy=policy,
        user_agent=user_agent,
        authority=hook.authority,
        refusal=stated_error,
        secrets=_secrets(hook),
    )


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


def _secrets(hook: Hook) -> tuple[str, ...]:
    """Return what must not be shown of a hook: its secret, and of its address the path."""
    parts = urlsplit(hook.url).path.split("/")
    return tuple(filter(None, (hook.secret, hook.url, *(part for part in parts if len(part) > len("services")))))


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
