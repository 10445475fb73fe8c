"""Dead letters of a hook, put back into the outbox together once its receiver is well again."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from app.domain.errors import ConflictError, NotFoundError
from app.domain.model import DeliveryState
from app.services.delivery import deliveries
from app.store.catalog import definitions
from app.store.delivery import outbox
from app.store.delivery.outbox import DeliveryRow
from app.store.engine import Connection, Store, to_us

_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of the dead deliveries of a hook."""

    replayed: int
    overtaken: int
    """Left as they are: the hook has taken, or is about to get, something later about the same incident, which may be
    its end: of one that ended before the hook was told of it, there is nothing to tell any more."""


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
            if outbox.overtaken(connection, delivery) or not deliveries.replayable(connection, delivery):
                overtaken += 1
            elif outbox.replay_delivery(connection, delivery.id, to_us(now)):
                replayed += 1
        return Replayed(replayed=replayed, overtaken=overtaken)


def _dead(connection: Connection, hook_id: int) -> Iterator[DeliveryRow]:
    before: int | None = None
    while True:
        rows = outbox.list_deliveries(connection, hook_id=hook_id, state=DeliveryState.DEAD, before=before, limit=_PAGE)
        yield from (row for row in rows if row.alert_id is not None)
        if len(rows) < _PAGE:
            return
        before = rows[-1].id
