"""Delivery of notifications: take the next of a hook, render and send it, and record the result.

Three transactions around one network call, so that no transaction waits for a receiver, and a crash anywhere
leads to another attempt with the same bytes and the same idempotency key.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from random import SystemRandom

from app.alerts.service.alert_links import Links
from app.alerts.service.incident_adoption import adopt_announced
from app.alerts.store import alerts, incidents
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.errors import ConfigurationError, ConflictError, NotFoundError, StoreUnavailableError
from app.base.values import DeliveryState
from app.catalog.documents.documents import HookDocument
from app.catalog.documents.secret_fields import join_secrets
from app.catalog.service.vault import Vault
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.hooks.domain.attempts import OUT_OF_REACH, REFRESH_EVERY, after_attempt, needs_resend
from app.hooks.domain.hooks import Hook, Message, Receipt, Send
from app.hooks.notices import body_of, is_written_for
from app.hooks.service.notice_bodies import notice
from app.hooks.store import backlog, claims, outbox, resend
from app.hooks.store.outbox import AttemptRow, DeliveryRow

logger = logging.getLogger("coalmine.deliveries")

_ARCHIVED = "The hook was archived."
_RANDOM = SystemRandom()  # jitter, apart from any seeded sequence
TEST_MESSAGE = outbox.TEST
RESOLVED = "alert.resolved"
UNPREPARED = "configuration"
BUG = "bug"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentDelivery:
    """Result of an attempt for the worker. `error` is a closed word, None where the receiver accepted it."""

    id: int
    hook: str
    state: str
    error: str | None
    reason: str
    is_resend: bool = False
    """Whether it had been delivered before, see `resends`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDelivery:
    """A delivery about to be sent, and the version of the hook it is sent to."""

    hook: Hook
    hook_version: int
    message: Message


def deliver_next(
    store: Store,
    vault: Vault,
    send: Send,
    hook_id: int,
    *,
    owner: str,
    links: Links,
    clock: Callable[[], datetime],
) -> SentDelivery | None:
    """Attempt the oldest delivery to a hook that is due; None when there is none, or somebody else is at it.

    `owner` names this attempt, and no other one at any hook.
    """
    now = clock()
    with store.write() as connection:
        begun = claims.begin_attempt(connection, hook_id, owner=owner, now=to_us(now))
    if begun is None:
        return None
    if begun.incident_id is None and begun.alert_id is not None:
        begun = _adopt(store, begun, begun.alert_id)
    delivery = begun
    attempt = send_prepared(
        send, delivery, lambda: _prepare(store, vault, delivery, owner=owner, links=links, now=now), now
    )
    if attempt is None:
        return None
    receipt, hook_version = attempt
    return _finish(store, delivery, receipt, hook_version, owner=owner, now=clock())


def send_prepared(
    send: Send, delivery: DeliveryRow, prepare: Callable[[], PreparedDelivery | None], now: datetime
) -> tuple[Receipt, int | None] | None:
    """Prepare and send a delivery; returns the receipt and the hook's version, None where it has no message.

    Any error but that of the store is a failed attempt: else the delivery would stay the oldest that is due.
    """
    hook_version: int | None = None
    try:
        prepared = prepare()
        if prepared is None:
            return None
        hook_version = prepared.hook_version
        return send(prepared.hook, prepared.message, now), hook_version
    except StoreUnavailableError:
        raise
    except ConfigurationError as error:  # of this hook alone
        return Receipt(ok=False, error=UNPREPARED, detail=str(error), untaken=True), hook_version
    except Exception:
        logger.exception("bug", extra={"delivery": delivery.id, "hook": delivery.hook})
        return Receipt(ok=False, error=BUG, detail="an error in Coalmine; the log has the details"), hook_version


def _adopt(store: Store, claimed: DeliveryRow, alert_id: int) -> DeliveryRow:
    """Add a delivery of an older release to the incident of its alert."""
    with store.write() as connection:
        alert = alerts.find_alert(connection, alert_id)
        assert alert is not None  # noqa: S101 - the delivery's foreign key
        definitions.lock_definition(connection, alert.check_id)
        number = adopt_announced(connection, alert.check_id, [alert_id]).get(alert_id, claimed.incident_id)
        return replace(claimed, incident_id=number)


def _prepare(
    store: Store, vault: Vault, claimed: DeliveryRow, *, owner: str, links: Links, now: datetime
) -> PreparedDelivery | None:
    """Read the hook, and render the body unless an earlier attempt has; None where somebody else is at it."""
    with store.read() as connection:  # rendering may take long, so outside the write transaction
        definition = definitions.definition_by_id(connection, claimed.hook_id)
        hook = _reachable(vault, claimed, definition)
        body = _body(connection, claimed, hook, links, now)
    with store.write() as connection:
        edited = definitions.definition_by_id(connection, claimed.hook_id)
        if edited != definition:  # rare: changed meanwhile
            hook = _reachable(vault, claimed, edited)
            body = _body(connection, claimed, hook, links, now)
        if not claims.prepare_delivery(connection, claimed.id, owner=owner, body=body):
            return None
    return PreparedDelivery(
        hook=hook,
        hook_version=edited.version_id,
        message=Message(id=claimed.message_id, body=body, taken_by=frozenset(_recipients(claimed))),
    )


def _body(connection: Connection, claimed: DeliveryRow, hook: Hook, links: Links, now: datetime) -> bytes:
    """Return the body of a delivery, as frozen by an earlier attempt unless the hook changed its kind."""
    if claimed.body is not None and is_written_for(hook, claimed.body):
        return claimed.body
    return body_of(hook, notice(connection, claimed, hook.slug, links, now), claimed.message_id)


def _reachable(vault: Vault, claimed: DeliveryRow, definition: Definition) -> Hook:
    """Return the hook of a delivery. Raises ConfigurationError where it is archived or disabled."""
    if (why := unreachable_reason(definition)) is not None and not is_final_resolve(claimed, definition):
        raise ConfigurationError(why)
    return hook_value(vault, definition)


def _finish(
    store: Store, claimed: DeliveryRow, receipt: Receipt, hook_version: int | None, *, owner: str, now: datetime
) -> SentDelivery:
    """Record an attempt at this version of the hook, and schedule the next."""
    first_at = from_us(claimed.first_attempt_at or to_us(now))
    with store.write() as connection:
        definitions.lock_definition(
            connection, claimed.hook_id
        )  # archiving leaves deliveries in flight to their worker
        hook = definitions.definition_by_id(connection, claimed.hook_id)
        judged = receipt
        if hook.version_id != hook_version:  # the edited hook may accept it
            judged = replace(receipt, gone=False)
        step = after_attempt(judged, claimed.attempts, first_at, now, _RANDOM.random())
        why = unreachable_reason(hook)
        if why is not None and step.state is DeliveryState.PENDING:
            step = replace(step, state=DeliveryState.DEAD, next_attempt_at=None, reason=why)
        taken_by = [*_recipients(claimed), *receipt.taken_by]
        if taken_by and step.state is DeliveryState.DELIVERED:
            step = replace(step, reason=f"Delivered to {', '.join(taken_by)}.")
        outbox.record_attempt(connection, claimed.id, attempt_row(receipt, now))
        is_ours = claims.finish_attempt(
            connection,
            claimed.id,
            owner=owner,
            state=step.state,
            next_attempt_at=to_us(step.next_attempt_at or now),
            reason=step.reason,
            untaken=receipt.untaken,
            taken_by=json.dumps(taken_by) if taken_by else None,
        )
        if is_ours and step.state is DeliveryState.DELIVERED:
            resend.schedule_resends(connection, claimed, resend_at(connection, claimed, hook, now + REFRESH_EVERY))
            # The receiver is back: each delivered message brings one more retry forward.
            backlog.bring_forward(connection, claimed.hook_id, now=to_us(now), errors=OUT_OF_REACH)
        if step.disable_hook:
            definitions.disable_definition(connection, claimed.hook_id, step.reason, to_us(now))
            outbox.abandon_deliveries(connection, claimed.hook_id, step.reason)
    return SentDelivery(
        id=claimed.id,
        hook=claimed.hook,
        state=step.state,
        error=None if receipt.ok else receipt.error,
        reason=step.reason,
    )


def _recipients(delivery: DeliveryRow) -> list[str]:
    """Return the recipients of a mail who took it."""
    return list(json.loads(delivery.taken_by)) if delivery.taken_by else []


def resend_at(connection: Connection, delivery: DeliveryRow, hook: Definition, at: datetime) -> int | None:
    """Return the moment `at`, if the receiver needs a resend then; None = it does not."""
    incident = incidents.find_incident(connection, delivery.incident_id) if delivery.incident_id is not None else None
    if incident is None or unreachable_reason(hook) is not None:
        return None
    first = resend.delivered_at(connection, delivery.id)
    is_needed = needs_resend(
        hook.body["kind"],
        resolves=delivery.type == RESOLVED,
        delivered_at=from_us(first) if first is not None else at,
        is_open=incident.resolved_at is None,
        now=at,
    )
    return to_us(at) if is_needed else None


def attempt_row(receipt: Receipt, now: datetime) -> AttemptRow:
    """Values of a finished attempt."""
    return AttemptRow(
        at=to_us(now),
        http_status=receipt.http_status,
        error=receipt.error,
        detail=receipt.detail,
        latency_seconds=receipt.latency_seconds,
    )


def send_test(store: Store, slug: str, *, now: datetime) -> int:
    """Put a test message for a hook into the outbox, sent like every alert; returns its id."""
    with store.write() as connection:
        hook = definitions.find_definition(connection, "hook", slug)
        if hook is None or hook.archived_at is not None:
            raise NotFoundError(f"there is no hook '{slug}'")
        if hook.disabled_reason is not None:
            raise ConflictError(f"hook '{slug}' is disabled: {hook.disabled_reason} Save it again to enable it")
        return outbox.enqueue_test(connection, hook.id, TEST_MESSAGE, to_us(now))


def hook_value(vault: Vault, definition: Definition) -> Hook:
    """Value of a stored hook, with its secrets."""
    whole = join_secrets(definition.body, vault.decrypt(definition.secrets))
    return HookDocument.model_validate(whole).to_domain()


def unreachable_reason(hook: Definition) -> str | None:
    """Why a hook is not sent to; None = it is in force."""
    return _ARCHIVED if hook.archived_at is not None else hook.disabled_reason


def is_final_resolve(delivery: DeliveryRow, hook: Definition) -> bool:
    """Whether it was written by the change that archived the hook: such a resolve is still attempted once."""
    return hook.archived_at is not None and delivery.created_at >= hook.archived_at
