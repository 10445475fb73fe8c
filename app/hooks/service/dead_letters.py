"""Dead deliveries put back into the outbox: one of them, or all of a hook once its receiver works again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.alerts.store import incidents
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, NotFoundError
from app.base.values import DeliveryState
from app.catalog.store import definitions
from app.hooks.service.deliveries import RESOLVED, unreachable_reason
from app.hooks.store import outbox, replays
from app.hooks.store.outbox import DeliveryRow

_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Counts of a replay of a hook."""

    replayed: int
    overtaken: int
    """Left dead: a later delivery of the incident overtook them, or it was resolved before the hook was notified."""


def replay_all(store: Store, slug: str, *, now: datetime) -> Replayed:
    """Put every dead delivery of a hook that is about an incident back into the outbox, oldest first.

    Raises NotFoundError, and ConflictError for a hook that is disabled.
    """
    with store.write() as connection:
        hook = definitions.find_definition(connection, "hook", slug)
        if hook is None or hook.archived_at is not None:
            raise NotFoundError(f"there is no hook '{slug}'")
        definitions.lock_definition(connection, hook.id)
        hook = definitions.definition_by_id(connection, hook.id)
        if hook.disabled_reason is not None:
            raise ConflictError(f"hook '{slug}' is disabled: {hook.disabled_reason} Save it again to enable it")
        replayed = overtaken = 0
        for delivery in sorted(_dead(connection, hook.id), key=lambda row: row.id):
            if replays.is_overtaken(connection, delivery) or not with_resolve(connection, delivery):
                overtaken += 1
            elif replays.replay_delivery(connection, delivery.id, to_us(now)):
                replayed += 1
        return Replayed(replayed=replayed, overtaken=overtaken)


def replay(store: Store, delivery_id: int, *, now: datetime) -> None:
    """Put a dead delivery back into the outbox; a trigger of a resolved incident goes with its resolve.

    Raises NotFoundError; and ConflictError where it is not dead, its hook is archived or disabled, a later delivery
    overtook it, or its incident has no resolve for the hook.
    """
    with store.write() as connection:
        delivery = outbox.find_delivery(connection, delivery_id)
        if delivery is None:
            raise NotFoundError(f"there is no delivery '{delivery_id}'")
        definitions.lock_definition(connection, delivery.hook_id)
        if (why := unreachable_reason(definitions.definition_by_id(connection, delivery.hook_id))) is not None:
            raise ConflictError(f"hook '{delivery.hook}' gets nothing any more: {why}")
        if delivery.state != DeliveryState.DEAD:
            raise ConflictError("only a dead delivery can be replayed")
        if replays.is_overtaken(connection, delivery):
            raise ConflictError("a later delivery about this incident has reached the hook or is on its way")
        ids = with_resolve(connection, delivery)
        if not ids:
            raise ConflictError(
                "the incident has resolved since, and the hook was never notified of it: there is nothing to resolve"
            )
        for number in ids:
            replays.replay_delivery(connection, number, to_us(now))


def with_resolve(connection: Connection, delivery: DeliveryRow) -> Sequence[int]:
    """Ids to replay with a dead delivery that nothing overtook, itself first.

    A trigger of a resolved incident needs its resolve, or it would stay open at the receiver for ever; empty where
    there is none.
    """
    incident = incidents.find_incident(connection, delivery.incident_id) if delivery.incident_id is not None else None
    if incident is None or incident.resolved_at is None or delivery.type == RESOLVED:
        return (delivery.id,)
    end = replays.resolve_of(connection, delivery)
    return () if end is None else (delivery.id, end.id)


def _dead(connection: Connection, hook_id: int) -> Iterator[DeliveryRow]:
    before: int | None = None
    while True:
        rows = outbox.list_deliveries(connection, hook_id=hook_id, state=DeliveryState.DEAD, before=before, limit=_PAGE)
        yield from (row for row in rows if row.alert_id is not None)
        if len(rows) < _PAGE:
            return
        before = rows[-1].id
