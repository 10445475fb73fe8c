"""Telling people: claim a delivery, have it written, send it, and write down what came of it.

Three transactions around one network call, so that no transaction waits for a receiver, and a crash anywhere
leads to another attempt with the same bytes and the same idempotency key.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import SystemRandom

from app.domain.delivery.attempts import OUT_OF_REACH, REFRESH_EVERY, after_attempt, is_forgotten
from app.domain.delivery.hooks import Hook, Message, Receipt, Send
from app.domain.errors import ConfigurationError, ConflictError, NotFoundError, StoreUnavailableError
from app.domain.model import DeliveryState
from app.formats.catalog.documents import HookDocument
from app.formats.catalog.secret_fields import join_secrets
from app.formats.delivery.notices import body_of, is_written_for
from app.services.alerts.alert_links import Links
from app.services.alerts.incident_adoption import adopt_announced
from app.services.catalog.vault import Vault
from app.services.delivery.notice_bodies import notice
from app.store.alerts import alerts, incidents
from app.store.catalog import definitions
from app.store.catalog.definitions import Definition
from app.store.delivery import backlog, outbox, resend
from app.store.delivery.outbox import AttemptRow, DeliveryRow
from app.store.engine import Connection, Store, from_us, to_us

logger = logging.getLogger("coalmine.deliveries")

_ARCHIVED = "The hook was archived."
_RANDOM = SystemRandom()  # jitter, without a say in anybody's seeded sequence
TEST = "hook.test"
RESOLVED = "alert.resolved"
UNPREPARED = "configuration"
BUG = "bug"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentDelivery:
    """What a worker hears of an attempt. `error` is a closed word, None where the receiver took it."""

    id: int
    hook: str
    state: str
    error: str | None
    reason: str
    again: bool = False
    """What was delivered before was told once more."""


def deliver_next(
    store: Store,
    vault: Vault,
    send: Send,
    *,
    owner: str,
    links: Links,
    clock: Callable[[], datetime],
    lease: timedelta,
) -> SentDelivery | None:
    """Attempt the oldest delivery that is due; None when there is none, or somebody else has taken it over.

    Where there is none, nothing is written.
    """
    now = clock()
    with store.read() as connection:
        if not outbox.has_claimable_delivery(connection, to_us(now)):
            return None
    with store.write() as connection:
        claimed = outbox.claim_delivery(connection, owner=owner, now=to_us(now), lease_until=to_us(now + lease))
    if claimed is None:
        return None
    if claimed.incident_id is None and claimed.alert_id is not None:
        claimed = _adopted(store, claimed, claimed.alert_id)
    hook_version: int | None = None
    try:
        ready = _prepare(store, vault, claimed, owner=owner, links=links, now=now, lease=lease)
        if ready is None:
            return None
        hook_version = ready.hook_version
        receipt = send(ready.hook, ready.message, now)
    except StoreUnavailableError:
        raise
    except ConfigurationError as error:  # of this hook alone; the others' news must not wait for its repair
        receipt = Receipt(ok=False, error=UNPREPARED, detail=str(error))
    except Exception:  # a failed attempt like others, or the delivery would be the oldest that is due for ever
        logger.exception("bug", extra={"delivery": claimed.id, "hook": claimed.hook})
        receipt = Receipt(ok=False, error=BUG, detail="an error in Coalmine; the log has the details")
    return _settle(store, claimed, receipt, hook_version, owner=owner, now=clock())


def _adopted(store: Store, claimed: DeliveryRow, alert_id: int) -> DeliveryRow:
    """Give a delivery that an older release wrote the incident of its alert."""
    with store.write() as connection:
        alert = alerts.find_alert(connection, alert_id)
        assert alert is not None  # noqa: S101 - the delivery's foreign key
        definitions.lock_definition(connection, alert.check_id)
        number = adopt_announced(connection, alert.check_id, [alert_id]).get(alert_id, claimed.incident_id)
        return replace(claimed, incident_id=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A delivery about to be sent, and the version of the hook it is sent to."""

    hook: Hook
    hook_version: int
    message: Message


def _prepare(
    store: Store, vault: Vault, claimed: DeliveryRow, *, owner: str, links: Links, now: datetime, lease: timedelta
) -> _Ready | None:
    """Read where it goes, and render what it says unless an earlier attempt has; None where the claim was lost."""
    with store.read() as connection:  # what it says may take long to put together, and nobody is to wait for that
        definition = definitions.definition_by_id(connection, claimed.hook_id)
        hook = _reachable(vault, claimed, definition)
        body = _body(connection, claimed, hook, links, now)
    with store.write() as connection:
        edited = definitions.definition_by_id(connection, claimed.hook_id)
        if edited != definition:  # meanwhile, which is rare enough to put it together here
            hook = _reachable(vault, claimed, edited)
            body = _body(connection, claimed, hook, links, now)
        # The lease outlives the slowest receiver, so that nobody else attempts the same meanwhile.
        until = to_us(now + lease + timedelta(seconds=hook.timeout_seconds))
        if not outbox.prepare_delivery(connection, claimed.id, owner=owner, body=body, lease_until=until):
            return None
    return _Ready(hook=hook, hook_version=edited.version_id, message=Message(id=claimed.message_id, body=body))


def _body(connection: Connection, claimed: DeliveryRow, hook: Hook, links: Links, now: datetime) -> bytes:
    """Return what a delivery says: as an earlier attempt froze it, unless the hook is of another kind by now."""
    if claimed.body is not None and is_written_for(hook, claimed.body):
        return claimed.body
    return body_of(hook, notice(connection, claimed, hook.slug, links, now), claimed.message_id)


def _reachable(vault: Vault, claimed: DeliveryRow, definition: Definition) -> Hook:
    """Return the hook a delivery goes to. Raises ConfigurationError where nothing is sent to it any more."""
    if (why := _unreachable(definition)) is not None and not is_final_resolve(claimed, definition):
        raise ConfigurationError(why)
    return _hook(vault, definition)


def _settle(
    store: Store, claimed: DeliveryRow, receipt: Receipt, hook_version: int | None, *, owner: str, now: datetime
) -> SentDelivery:
    """Write down what came of an attempt at this version of the hook."""
    first_at = from_us(claimed.first_attempt_at or to_us(now))
    with store.write() as connection:
        definitions.lock_definition(connection, claimed.hook_id)  # archiving leaves what is in flight to us
        hook = definitions.definition_by_id(connection, claimed.hook_id)
        judged = receipt
        if hook.version_id != hook_version:  # what the old address declined, the new one may take
            judged = replace(receipt, gone=False, permanent=False)
        step = after_attempt(judged, claimed.attempts, first_at, now, _RANDOM.random())
        why = _unreachable(hook)
        if why is not None and step.state is DeliveryState.PENDING:
            step = replace(step, state=DeliveryState.DEAD, next_attempt_at=None, reason=why)
        outbox.record_attempt(connection, claimed.id, _attempt(receipt, now))
        settled = outbox.settle_delivery(
            connection,
            claimed.id,
            owner=owner,
            state=step.state,
            next_attempt_at=to_us(step.next_attempt_at or now),
            reason=step.reason,
        )
        if settled and step.state is DeliveryState.DELIVERED:
            forgotten = _forgotten_at(connection, claimed, hook, now + REFRESH_EVERY)
            resend.begin_refreshing(connection, claimed, forgotten)
            # The receiver is back: each message it takes lets one more be tried at once, and one it does not ends that.
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
    """Attempt what is due, news before what is only told once more; None when there is nothing."""
    sent = deliver_next(store, vault, send, owner=owner, links=links, clock=clock, lease=lease)
    return sent or refresh_next(store, vault, send, owner=owner, clock=clock, lease=lease)


def refresh_next(
    store: Store, vault: Vault, send: Send, *, owner: str, clock: Callable[[], datetime], lease: timedelta
) -> SentDelivery | None:
    """Tell a forgetful receiver once more what it took before; None when none is due.

    The same bytes under the same key. A failure is written down as an attempt, and the next minute tries again.
    """
    while True:
        now = clock()
        with store.read() as connection:
            if not resend.has_claimable_refresh(connection, to_us(now)):
                return None
        with store.write() as connection:
            told = resend.claim_refresh(connection, owner=owner, now=to_us(now), lease_until=to_us(now + lease))
        if told is None:
            return None
        try:
            ready = _prepare_again(store, vault, told, owner=owner, now=now, lease=lease)
            if ready is None:  # not needed any more, or somebody else's: the next one
                continue
            receipt = send(ready.hook, ready.message, now)
        except StoreUnavailableError:
            raise
        except ConfigurationError as error:
            receipt = Receipt(ok=False, error=UNPREPARED, detail=str(error))
        except Exception:  # as of a delivery
            logger.exception("bug", extra={"delivery": told.id, "hook": told.hook})
            receipt = Receipt(ok=False, error=BUG, detail="an error in Coalmine; the log has the details")
        return _settle_again(store, told, receipt, owner=owner, now=clock())


def _prepare_again(
    store: Store, vault: Vault, told: DeliveryRow, *, owner: str, now: datetime, lease: timedelta
) -> _Ready | None:
    with store.write() as connection:
        definition = definitions.definition_by_id(connection, told.hook_id)
        if told.body is None or _forgotten_at(connection, told, definition, now) is None:
            resend.settle_refresh(connection, told.id, owner=owner, refresh_at=None)
            return None
        hook = _hook(vault, definition)
        until = to_us(now + lease + timedelta(seconds=hook.timeout_seconds))
        if not resend.extend_refresh(connection, told.id, owner=owner, lease_until=until):
            return None
    return _Ready(hook=hook, hook_version=definition.version_id, message=Message(id=told.message_id, body=told.body))


def _settle_again(
    store: Store, told: DeliveryRow, receipt: Receipt, *, owner: str, now: datetime
) -> SentDelivery | None:
    with store.write() as connection:
        definitions.lock_definition(connection, told.hook_id)
        definition = definitions.definition_by_id(connection, told.hook_id)
        following = _forgotten_at(connection, told, definition, now + REFRESH_EVERY)
        if not receipt.ok:
            outbox.record_attempt(connection, told.id, _attempt(receipt, now))
        resend.settle_refresh(connection, told.id, owner=owner, refresh_at=following)
    reason = "Told once more." if receipt.ok else f"Telling it once more failed: {receipt.detail or receipt.error}."
    error = None if receipt.ok else receipt.error
    return SentDelivery(id=told.id, hook=told.hook, state=told.state, error=error, reason=reason, again=True)


def _forgotten_at(connection: Connection, told: DeliveryRow, hook: Definition, at: datetime) -> int | None:
    """Give the moment, if by then a receiver will have forgotten what it was told unless it is told again."""
    incident = incidents.find_incident(connection, told.incident_id) if told.incident_id is not None else None
    if incident is None or _unreachable(hook) is not None:
        return None
    first = resend.delivered_at(connection, told.id)
    forgotten = is_forgotten(
        hook.body["kind"],
        resolves=told.type == RESOLVED,
        delivered_at=from_us(first) if first is not None else at,
        is_open=incident.resolved_at is None,
        now=at,
    )
    return to_us(at) if forgotten else None


def _attempt(receipt: Receipt, now: datetime) -> AttemptRow:
    return AttemptRow(
        at=to_us(now),
        http_status=receipt.http_status,
        error=receipt.error,
        detail=receipt.detail,
        latency_seconds=receipt.latency_seconds,
    )


def send_test(store: Store, slug: str, *, now: datetime) -> int:
    """Put a test message for a hook into the outbox: it takes the path every alert takes. Gives its id."""
    with store.write() as connection:
        hook = definitions.find_definition(connection, "hook", slug)
        if hook is None or hook.archived_at is not None:
            raise NotFoundError(f"there is no hook '{slug}'")
        if hook.disabled_reason is not None:
            raise ConflictError(f"hook '{slug}' is disabled: {hook.disabled_reason} Save it again to enable it")
        return outbox.enqueue_test(connection, hook.id, TEST, to_us(now))


def replay(store: Store, delivery_id: int, *, now: datetime) -> None:
    """Put a dead delivery back into the outbox.

    With what tells of an incident that has resolved since goes the news of its end. Raises NotFoundError; and
    ConflictError where it is not dead, its hook is archived or disabled, or would hear of it after something later
    about the same incident, or never of its end.
    """
    with store.write() as connection:
        delivery = outbox.find_delivery(connection, delivery_id)
        if delivery is None:
            raise NotFoundError(f"there is no delivery '{delivery_id}'")
        definitions.lock_definition(connection, delivery.hook_id)
        if (why := _unreachable(definitions.definition_by_id(connection, delivery.hook_id))) is not None:
            raise ConflictError(f"hook '{delivery.hook}' gets nothing any more: {why}")
        if delivery.state != DeliveryState.DEAD:
            raise ConflictError("only a dead delivery can be replayed")
        if outbox.overtaken(connection, delivery):
            raise ConflictError("a later delivery about this incident has reached the hook or is on its way")
        again = replayable(connection, delivery)
        if not again:
            raise ConflictError(
                "the incident has resolved since, and the hook was never told of it: there is nothing to end"
            )
        for number in again:
            outbox.replay_delivery(connection, number, to_us(now))


def replayable(connection: Connection, delivery: DeliveryRow) -> Sequence[int]:
    """List what is to be replayed with a dead delivery that nothing overtook, itself first.

    What tells of an incident that is over goes together with its end, or it would stay open at the receiver for ever;
    nothing where there is no such end.
    """
    incident = incidents.find_incident(connection, delivery.incident_id) if delivery.incident_id is not None else None
    if incident is None or incident.resolved_at is None or delivery.type == RESOLVED:
        return (delivery.id,)
    end = outbox.end_of(connection, delivery)
    return () if end is None else (delivery.id, end.id)


def _hook(vault: Vault, definition: Definition) -> Hook:
    whole = join_secrets(definition.body, vault.decrypt(definition.secrets))
    return HookDocument.model_validate(whole).to_domain()


def _unreachable(hook: Definition) -> str | None:
    """Say why nothing is sent to a hook any more; None = it is in force."""
    return _ARCHIVED if hook.archived_at is not None else hook.disabled_reason


def is_final_resolve(delivery: DeliveryRow, hook: Definition) -> bool:
    """Whether it tells of an incident that ended in the change that archived the hook: that it gets, tried once."""
    return hook.archived_at is not None and delivery.created_at >= hook.archived_at
