"""What a hook gets next: a new notification, or one again for receivers that expire alerts, with the same bytes."""

from collections.abc import Callable
from datetime import datetime

from app.alerts.service.alert_links import Links
from app.base.db.engine import Store, from_us, to_us
from app.catalog.service.vault import Vault
from app.catalog.store import definitions
from app.hooks.domain.attempts import REFRESH_EVERY
from app.hooks.domain.hooks import Message, Receipt, Send
from app.hooks.service.deliveries import (
    PreparedDelivery,
    SentDelivery,
    attempt_row,
    deliver_next,
    hook_value,
    resend_at,
    send_prepared,
)
from app.hooks.store import claims, outbox, resend
from app.hooks.store.outbox import DeliveryRow


def attempt_next(
    store: Store,
    vault: Vault,
    send: Send,
    hook_id: int,
    *,
    owner: str,
    links: Links,
    clock: Callable[[], datetime],
) -> SentDelivery | None:
    """Attempt what is due to a hook, new deliveries before resends; None when there is nothing."""
    sent = deliver_next(store, vault, send, hook_id, owner=owner, links=links, clock=clock)
    return sent or resend_next(store, vault, send, hook_id, owner=owner, clock=clock)


def next_attempt(store: Store, hook_id: int, now: datetime) -> datetime | None:
    """Say when something is to be sent to a hook next; None = nothing is to be."""
    with store.read() as connection:
        at = claims.next_attempt(connection, hook_id, now=to_us(now))
    return None if at is None else from_us(at)


def resend_next(
    store: Store, vault: Vault, send: Send, hook_id: int, *, owner: str, clock: Callable[[], datetime]
) -> SentDelivery | None:
    """Send the delivered notification of a hook whose resend is due longest; None when none is due.

    A failure is recorded as an attempt, and tried again a minute later.
    """
    while True:
        now = clock()
        with store.write() as connection:
            begun = resend.begin_resend(connection, hook_id, owner=owner, now=to_us(now))
        if begun is None:
            return None
        delivery = begun

        def prepare(delivery: DeliveryRow = delivery, now: datetime = now) -> PreparedDelivery | None:
            return _prepare(store, vault, delivery, owner=owner, now=now)

        attempt = send_prepared(send, delivery, prepare, now)
        if attempt is not None:  # else it is not needed any more, or somebody else has it: the next one
            return _finish(store, delivery, attempt[0], owner=owner, now=clock())


def _prepare(
    store: Store, vault: Vault, delivery: DeliveryRow, *, owner: str, now: datetime
) -> PreparedDelivery | None:
    with store.write() as connection:
        definition = definitions.definition_by_id(connection, delivery.hook_id)
        if delivery.body is None or resend_at(connection, delivery, definition, now) is None:
            resend.finish_resend(connection, delivery.id, owner=owner, refresh_at=None)
            return None
        if not resend.is_resending(connection, delivery.id, owner=owner):
            return None
        hook = hook_value(vault, definition)
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
