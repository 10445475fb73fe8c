"""Hooks that are one POST to a known service: Slack, PagerDuty and Alertmanager."""

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from app.base.addresses import AddressPolicy
from app.base.net.wire import Response, header_line
from app.hooks.client.receiver_answers import post, stated_error
from app.hooks.domain.hooks import Hook, Message, Receipt
from app.retrievers.client.server_messages import clean_message

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
