"""Plants carried on: queued when they are due, sent once, asked for, and removed until the source has them no more.

A plant is a row before anything is sent, and every step is stored by the one worker that made it. Whoever comes back
after a kill reads how far it was: a document whose sending was interrupted is removed, as every other one.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from app.base.db.engine import Connection, Store, blocks, from_us, to_us
from app.base.db.keys import Vault
from app.base.documents.http_fields import origin_of
from app.base.errors import ConflictError, InvalidInputError, StoreUnavailableError
from app.base.schedules import EPOCH, Schedule, credible_until, last_due, next_due, parse_schedule
from app.base.values import Outcome, Value, replace
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service.references import NO_COMMANDS
from app.catalog.service.versions import answers_changed, load_retriever
from app.catalog.store import Definition, require
from app.plants import domain
from app.plants import store as rows
from app.plants.domain import Action, Plant, Written, next_action
from app.plants.service import judging
from app.plants.service.requests import Sender, plant_body
from app.plants.store import PlantedCheck, PlantRow
from app.retrievers.domain.retrievers import (
    Probe,
    Retriever,
)

logger = logging.getLogger("coalmine.worker")

_PAUSE: Final = timedelta(seconds=1)
WITHDRAWN: Final = "the plant was switched off"


class _Next(Value):
    """When a version of a check plants its next document."""

    version_id: int
    at: datetime
    waits: bool = False
    """Whether another document of it may be in the source."""


class DuePlants:
    """Queues the plants that are due. One thread at a time."""

    def __init__(self, store: Store) -> None:
        """Begin with no schedule read."""
        self._store = store
        self._schedules: dict[int, Schedule | None] = {}
        """By version of a check; None = it has no plant, is disabled, or cannot be read."""
        self._next: dict[int, _Next] = {}
        """By check."""

    @property
    def next_at(self) -> datetime | None:
        """When a check plants next, as far as no other of its documents is waited for; None = none does."""
        return min((known.at for known in self._next.values() if not known.waits), default=None)

    def queue_due(self, now: datetime, *, anew: bool = False) -> int:
        """Queue a plant of every check that is due; returns how many this process queued.

        After a pause that is one a check, whatever was missed. None is queued while another of the check may be in the
        source. `anew`: what was remembered of the next instants is of a clock that has been set since.
        """
        if anew:
            self._next.clear()
        with self._store.read() as connection:
            checks = rows.list_checks(connection)
            self._learn(connection, [check.version_id for check in checks])
            wanted = [check for check in checks if self._schedules[check.version_id] and self._may_be_due(check, now)]
            due = [(check, at) for check in wanted if (at := self._find_due(connection, check, now)) is not None]
        self._schedules = {check.version_id: self._schedules[check.version_id] for check in checks}
        self._next = {check.id: self._next[check.id] for check in checks if check.id in self._next}
        return sum(self._queue(check, at, now) for check, at in due)

    def _may_be_due(self, check: PlantedCheck, now: datetime) -> bool:
        known = self._next.get(check.id)
        return known is None or known.version_id != check.version_id or known.at <= now

    def _find_due(self, connection: Connection, check: PlantedCheck, now: datetime) -> datetime | None:
        """Return the newest instant of a check that is due and has no plant; and remember the one after now."""
        schedule = self._schedules[check.version_id]
        assert schedule is not None  # noqa: S101 - those without are left out
        if rows.open_plant(connection, check.id) is not None:
            self._next[check.id] = _Next(version_id=check.version_id, at=now + _PAUSE, waits=True)
            return None
        self._next[check.id] = _Next(version_id=check.version_id, at=next_due(schedule, now))
        return due_instant(connection, check, schedule, now)

    def _queue(self, check: PlantedCheck, at: datetime, now: datetime) -> bool:
        try:
            return plant_now(self._store, check.id, at=at, now=now) is not None
        except (ConflictError, InvalidInputError) as error:
            logger.warning("plant_not_queued", extra={"check": check.slug, "detail": str(error)})
        except StoreUnavailableError:
            raise
        except Exception:
            logger.exception("bug", extra={"check": check.slug})  # of this check: the others go on
        return False

    def _learn(self, connection: Connection, version_ids: Sequence[int]) -> None:
        """Read the schedules of versions that are not known yet."""
        unknown = sorted(set(version_ids) - self._schedules.keys())
        for block in blocks(unknown):
            bodies = catalog.version_bodies(connection, block)
            self._schedules |= {version_id: plant_schedule(body) for version_id, body in bodies.items()}


def due_instant(
    connection: Connection, check: PlantedCheck | Definition, schedule: Schedule, now: datetime
) -> datetime | None:
    """Return the newest instant of a check that is due and has no plant; None = there is none."""
    until = to_us(credible_until(schedule, now))  # a later one was written by a clock that was ahead
    newest = rows.newest_instant(connection, check.id, before=until)
    changed_at = min(from_us(check.updated_at), now)
    return last_due(schedule, now, max(changed_at, EPOCH if newest is None else from_us(newest)))


def plant_schedule(body: Mapping[str, Any]) -> Schedule | None:
    """Return when a stored check plants documents; None = never."""
    plant = body.get("plant")
    if not plant or not body.get("enabled", True):
        return None
    if plant.get("every") is not None:
        return parse_schedule(every=plant["every"])
    return parse_schedule(cron=plant["cron"], timezone=plant["timezone"])


def plant_now(store: Store, check_id: int, *, at: datetime, now: datetime) -> int | None:
    """Store a plant of a check and have it carried on; None where one may be in the source, or this instant has one.

    Raises ConflictError where a retriever that it needs is not there, InvalidInputError where it cannot be one's.
    """
    key = str(uuid4())
    with store.write() as connection:
        catalog.lock_definition(connection, check_id)  # so that of two replicas one plants
        check = catalog.definition_by_id(connection, check_id)
        if plant_schedule(check.body) is None or check.archived_at is not None:
            return None
        if rows.open_plant(connection, check_id) is not None:
            return None
        body = plan_body(connection, check.read(CheckDocument), key)
        return rows.queue_plant(connection, check_id, scheduled_for=to_us(at), key=key, body=body, now=to_us(now))


def plant_of(store: Store, slug: str, *, now: datetime) -> int:
    """Plant a document of a check at once and return its id.

    Raises NotFoundError, and ConflictError where the check plants nothing or another may be in the source.
    """
    with store.read() as connection:
        check = require(catalog.find_definition(connection, "check", slug), f"check '{slug}'")
        waiting = rows.open_plant(connection, check.id)
    if plant_schedule(check.body) is None:
        raise ConflictError(f"check '{slug}' plants no documents: it has no plant, or is disabled")
    plant_id = None if waiting is not None else plant_now(store, check.id, at=now, now=now)
    if plant_id is None:
        raise ConflictError("another planted document of this check may be in the source; wait until it is gone")
    return plant_id


def plan_body(connection: Connection, check: CheckDocument, key: str) -> dict[str, Any]:
    """Return what is stored of a plant: all that is needed to ask for it and to remove it, but for secrets.

    Raises ConflictError where a retriever that it needs is not there.
    """
    document = check.plant
    assert document is not None  # noqa: S101 - callers ask for those that have one
    if document.commands:  # refused when it is defined; a row of whatever origin runs none either
        raise ConflictError(f"the plant of check '{check.slug}' {NO_COMMANDS}")
    asked = _require_retriever(connection, check.retriever)
    writer = _require_retriever(connection, document.credentials or check.retriever)
    body = plant_body(check, key, str(writer.body["url"]))
    return body | {
        "asked": {"id": asked.id, "version": asked.version_id},
        "writer": {"id": writer.id, "version": writer.version_id, **body["writer"]},
    }


def _require_retriever(connection: Connection, slug: str) -> Definition:
    found = catalog.find_definition(connection, "retriever", slug)
    if found is None or found.archived_at is not None:
        raise ConflictError(f"there is no retriever '{slug}'")
    return found


def carry_on(
    store: Store,
    vault: Vault,
    probe: Probe,
    plant_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> datetime | None:
    """Do the steps of a plant that are due; returns when the next one is, None = it is done with."""
    while True:
        with store.read() as connection:
            row = rows.find_plant(connection, plant_id)
            if row is None or row.plant.ended_at is not None:
                return None
            check = catalog.definition_by_id(connection, row.check_id)
        now = clock()
        row = replace(row, plant=_wanted(row.plant, check, to_us(now)))
        if row.plant.ended_at is None and row.plant.next_at > to_us(now):
            return from_us(row.plant.next_at)
        if stopping():
            return now + _PAUSE
        if not _Stepping(store, vault, probe, clock, stopping).step(row):
            return now + _PAUSE  # another worker is at it


def _wanted(plant: Plant, check: Definition, at: int) -> Plant:
    """Return a plant as it is, or withdrawn where its check is archived, disabled or plants nothing any more."""
    is_wanted = check.archived_at is None and plant_schedule(check.body) is not None
    return plant if is_wanted else domain.withdrawn(plant, WITHDRAWN, at)


class _Stepping(Value, kw_only=False):
    """What a step of a plant works with."""

    store: Store
    vault: Vault
    probe: Probe
    clock: Callable[[], datetime]
    stopping: Callable[[], bool]

    def step(self, row: PlantRow) -> bool:
        """Do the next step of a plant and store it; False where another worker did."""
        plant = row.plant
        match next_action(plant):
            case Action.SEND:
                return self._send(row)
            case Action.ASK:
                asked = self._now()
                seen, failure = self._ask(row)
                if seen is None and self.stopping():
                    return False
                return self._save(row, domain.after_question(plant, seen, self._now(), failure, asked_at=asked))
            case Action.REMOVE:
                sent = self._now()
                removal = self._write(row, "remove")
                failure = None if removal.found_nothing else removal.failure
                return self._save(row, domain.after_removing(plant, failure, sent, self._now()))
            case None:  # withdrawn before it was sent
                return self._save(row, plant)

    def _send(self, row: PlantRow) -> bool:
        """Put the document into the source, once: that it is being sent is stored before."""
        sending = domain.before_sending(row.plant, self._now())
        if not self._save(row, sending):
            return False
        row = replace(row, step=row.step + 1, plant=sending)
        put = self._write(row, "put")
        after = domain.after_sending(sending, put.failure, self._now(), may_be_there=put.may_be_there)
        return self._save(row, after)

    def _save(self, row: PlantRow, after: Plant) -> bool:
        with self.store.write() as connection:
            saved = rows.save_step(connection, row, after)
            if saved:
                judging.judge(connection, row.plant, replace(row, plant=after), now=self.clock())
        if saved and after.state is not row.plant.state:
            about = {"plant": row.id, "state": after.state, "detail": after.removal_failure or after.failure}
            logger.info("plant_stepped", extra=about)
        return saved

    def _now(self) -> int:
        return to_us(self.clock())

    def _ask(self, row: PlantRow) -> tuple[bool | None, str | None]:
        """Return whether an answer has the document; None with a reason where there is no answer."""
        try:
            retriever = self._asked_retriever(row.body["asked"])
        except ConflictError as error:
            return None, str(error)
        return self._sender(row).ask(retriever)

    def _write(self, row: PlantRow, name: str) -> Written:
        """Send a request to the source."""
        try:
            retriever = self._writing_retriever(row.body["writer"])
        except ConflictError as error:
            return Written(failure=str(error), outcome=Outcome.BLOCKED)
        return self._sender(row).write(retriever, name)

    def _sender(self, row: PlantRow) -> Sender:
        run_id = f"plant-{row.id}"
        return Sender(probe=self.probe, key=row.key, body=row.body, run_id=run_id, stopping=self.stopping)

    def _asked_retriever(self, at: Mapping[str, int]) -> Retriever:
        """Return the retriever to ask: as it is now where it still answers alike, else as it was when planted."""
        with self.store.read() as connection:
            now = catalog.definition_by_id(connection, at["id"])
            changed = answers_changed(catalog.version_body(connection, at["version"]).body, now.body)
            return load_retriever(connection, at["version"] if changed else now.version_id, self.vault)

    def _writing_retriever(self, at: Mapping[str, int]) -> Retriever:
        """Return the retriever whose credentials are used: as it is now where it is at the same host."""
        with self.store.read() as connection:
            now = catalog.definition_by_id(connection, at["id"])
            then = catalog.version_body(connection, at["version"]).body
            moved = origin_of(str(then["url"])) != origin_of(str(now.body["url"]))
            return load_retriever(connection, at["version"] if moved else now.version_id, self.vault)
