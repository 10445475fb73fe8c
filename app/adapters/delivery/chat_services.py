"""Hooks that are one POST to a known service: Slack, PagerDuty and Alertmanager."""

import base64
import json
from collections.abc import Mapping
from datetime import datetime

from app.adapters.delivery.receiver_answers import post
from app.adapters.wire import header_line
from app.domain.addresses import AddressPolicy
from app.domain.delivery.hooks import Hook, Message, Receipt

ALERTS_PATH = "/api/v2/alerts"


def send_slack(hook: Hook, message: Message, now: datetime, *, policy: AddressPolicy, user_agent: str) -> Receipt:
    """Attempt once; see `Send`. The status decides: Slack answers 410 for an archived channel."""
    return post(
        hook.url,
        message.body,
        now,
        timeout_seconds=hook.timeout_seconds,
        policy=policy,
        user_agent=user_agent,
        authority=hook.authority,
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
    )
