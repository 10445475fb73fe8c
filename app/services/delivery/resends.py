"""Resends of delivered notifications to receivers that expire alerts, with the same bytes under the same key."""

from collections.abc import Callable
from datetime import datetime, timedelta

from app.domain.delivery.attempts import REFRESH_EVERY
from app.domain.delivery.hooks import Message, Receipt, Send
from app.services.alerts.alert_links import Links
from app.services.catalog.vault import Vault
from app.services.delivery.deliveries import (
    PreparedDelivery,
    SentDelivery,
    attempt_row,
    deliver_next,
    hook_value,
    resend_at,
    send_prepared,
)
from app.store.catalog import definitions
from app.store.delivery import outbox, resend
from app.store.delivery.outbox import DeliveryRow
from app.store.engine import Store, to_us


def attempt_next(
    store: Store,
    vault: Vault,
    send: Send,
    *,
    owner: str,
    links: Links,
    clock: Callable[[], datetime],
    lease: timedelta,
) -> SentDelivery | None:
    """Attempt what is due, new deliveries before resends; None when there is nothing."""
    sent = deliver_next(store, vault, send, owner=owner, links=links, clock=clock, lease=lease)
    return sent or resend_next(store, vault, send, owner=owner, clock=clock, lease=lease)


def resend_next(
    store: Store, vault: Vault, send: Send, *, owner: str, clock: Callable[[], datetime], lease: timedelta
) -> SentDelivery | None:
    """Send the delivered notification whose resend is due longest; None when none is due.

    A failure is recorded as an attempt, and tried again a minute later.
    """
    while True:
        now = clock()
        with store.read() as connection:
            if not resend.has_claimable_resend(connection, to_us(now)):
                return None
        with store.write() as connection:
            claimed = resend.claim_resend(connection, owner=owner, now=to_us(now), lease_until=to_us(now + lease))
        if claimed is None:
            return None
        delivery = claimed

        def prepare(delivery: DeliveryRow = delivery, now: datetime = now) -> PreparedDelivery | None:
            return _prepare(store, vault, delivery, owner=owner, now=now, lease=lease)

        attempt = send_prepared(send, delivery, prepare, now)
        if attempt is not None:  # else it is not needed any more, or another worker has it: the next one
            return _finish(store, delivery, attempt[0], owner=owner, now=clock())


def _prepare(
    store: Store, vault: Vault, delivery: DeliveryRow, *, owner: str, now: datetime, lease: timedelta
) -> PreparedDelivery | None:
    with store.write() as connection:
        definition = definitions.definition_by_id(connection, delivery.hook_id)
        if delivery.body is None or resend_at(connection, delivery, definition, now) is None:
            resend.finish_resend(connection, delivery.id, owner=owner, refresh_at=None)
            return None
        hook = hook_value(vault, definition)
        until = to_us(now + lease + timedelta(seconds=hook.timeout_seconds))
        if not resend.extend_resend(connection, delivery.id, owner=owner, lease_until=until):
            return None
    return PreparedDelivery(
        hook=hook, hook_version=definition.version_id, message=Message(id=delivery.message_id, body=delivery.body)
    )


def _finish(store: Store, delivery: DeliveryRow, receipt: Receipt, *, owner: str, now: datetime) -> SentDelivery | None:
    with store.write() as connection:
        definitions.lock_definition(connection, delivery.hook_id)
        definition = definitions.definition_by_id(connection, delivery.hook_id)
        following = resend_at(connection, delivery, definition, now + REFRESH_EVERY)
        if not receipt.ok:
            outbox.record_attempt(connection, delivery.id, attempt_row(receipt, now))
        resend.finish_resend(connection, delivery.id, owner=owner, refresh_at=following)
    reason = "Sent again." if receipt.ok else f"Sending it again failed: {receipt.detail or receipt.error}."
    error = None if receipt.ok else receipt.error
    return SentDelivery(
        id=delivery.id, hook=delivery.hook, state=delivery.state, error=error, reason=reason, is_resend=True
    )
