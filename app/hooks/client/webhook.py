"""Webhooks by the Standard Webhooks specification: one signed POST."""

import math
from datetime import UTC, datetime

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from app.base.addresses import AddressPolicy
from app.base.net.wire import header_line
from app.hooks.client.receiver_answers import HookError, post, refusal_of_chat
from app.hooks.domain.hooks import Hook, Message, Receipt


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
