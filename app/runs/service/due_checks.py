"""Runs queued by the clock or at once; checks that completed nothing for too long; and forgotten work, deferred again.

What is due is found along an index, at the cost of what it finds. A check's schedule is read once per version. Several
replicas may look at once: the database lets one of them queue the run of an instant.
"""

import json
import logging
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Final, Protocol

from app.alerts.domain.between_runs import Overdue, no_data_due, no_data_expected
from app.alerts.service import transitions
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.errors import ConflictError, NotFoundError
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.schedules import CLOCK_SKEW, EPOCH, Schedule, credible_until, last_due, next_due, spread
from app.base.values import Trigger, Value
from app.catalog import store as catalog
from app.catalog.service.references import last_completed, schedule_of
from app.hooks import store as outbox
from app.plants import store as plants
from app.records.store import open_runs, rescorings
from app.runs import store as runs_store
from app.runs.store import BLOCK, CheckRow, DueCheck, NewRun

logger = logging.getLogger("coalmine.worker")


class _Expected(Value, kw_only=False):
    """By when a run of a check has to complete, and of what that was computed."""

    of: tuple[int, int, int | None]
    deadline: datetime


class _Read(Protocol):
    def __call__(self, connection: Connection, /, *, hold: bool) -> Sequence[DueCheck]: ...


class DueChecks:
    """Queues the runs that are due, and says which checks may be overdue. One thread at a time."""

    def __init__(self, store: Store) -> None:
        """Begin with no schedule read."""
        self._store = store
        self._schedules: dict[int, Schedule | None] = {}
        """By version of a check; None = it is disabled, or cannot be read."""
        self._expected: dict[int, _Expected] = {}
        """By check."""

    def queue_due(self, now: datetime) -> list[datetime]:
        """Queue the run of the newest instant of every check that is due; gives those instants.

        After a pause that is one run a check, whatever was missed. Where nothing is due, nothing is written.
        """
        queued: list[datetime] = []
        while True:
            found = self._queue(partial(runs_store.due_checks, now=to_us(now)), now)
            queued += found
            if len(found) < BLOCK:
                return queued

    def queue_checks(self, check_ids: Collection[int], now: datetime) -> list[datetime]:
        """Queue the runs of these checks as far as they are due, and note when each is due next."""
        queued: list[datetime] = []
        ids = sorted(check_ids)
        for start in range(0, len(ids), BLOCK):
            block = ids[start : start + BLOCK]
            queued += self._queue(partial(runs_store.find_checks, check_ids=block), now)
        return queued

    def next_due(self, now: datetime) -> datetime | None:
        """Return when a check is due next; None = none is."""
        with self._store.read() as connection:
            instant = runs_store.next_instant(connection, to_us(now))
        return from_us(instant) if instant is not None else None

    def follow(self, now: datetime, *, anew: bool = False) -> tuple[list[datetime], list[int]]:
        """Follow the catalog: queue runs of checks that are new or changed, or with `anew` of all.

        Gives the instants for which runs were queued, and the checks that have completed nothing for too long as far
        as these rows say.
        """
        with self._store.read() as connection:
            rows = runs_store.list_checks(connection)
            archived = runs_store.archived_checks(connection)
        if archived:
            with self._store.write() as connection:
                runs_store.forget_checks(connection, archived)
        self._learn(row.version_id for row in rows)
        wanted = [row.id for row in rows if anew or row.scheduled_version_id != row.version_id]
        queued = self.queue_checks(wanted, now)
        self._schedules = {row.version_id: self._schedules[row.version_id] for row in rows}
        self._expected = {
            row.id: self._expect(row, schedule) for row in rows if (schedule := self._schedules[row.version_id])
        }
        return queued, [row.id for row in rows if row.id in self._expected and self._may_be_overdue(row, now)]

    def _queue(self, read: "_Read", now: datetime) -> list[datetime]:
        with self._store.read() as connection:
            rows = read(connection, hold=False)
        if not rows:
            return []
        self._learn(row.version_id for row in rows)
        with self._store.write() as connection:
            held = [row for row in read(connection, hold=True) if row.version_id in self._schedules]
            return self._write(connection, held, now)

    def _write(self, connection: Connection, rows: Sequence[DueCheck], now: datetime) -> list[datetime]:
        """Queue what is due of checks that are held, and note when each is due next."""
        next_at: dict[int, datetime | None] = {}
        wanted: list[NewRun] = []
        for row in rows:
            try:
                due, next_at[row.id] = self._find_due(connection, row, now)
            except Exception:
                logger.exception("bug", extra={"check": row.slug})  # of this check: the others go on
                continue
            wanted += [due] if due is not None else []
        taken = runs_store.taken_instants(connection, wanted) if wanted else set()
        runs_store.queue_runs(connection, [run for run in wanted if run.check_id not in taken], now=to_us(now))
        queued = [run for run in wanted if run.check_id not in taken or _queue_again(connection, run, now)]
        runs_store.save_next_runs(
            connection, [(row.id, row.version_id, _us(next_at[row.id])) for row in rows if row.id in next_at]
        )
        return [from_us(run.scheduled_for) for run in queued]

    def _find_due(self, connection: Connection, row: DueCheck, now: datetime) -> tuple[NewRun | None, datetime | None]:
        """Return the run of a check that is due, and when to look at it next; None = none, never."""
        schedule = self._schedules[row.version_id]
        if schedule is None:
            return None, None
        newest = _newest(connection, row, schedule, now) or EPOCH
        due = last_due(schedule, now, newest)
        if due is None:
            return None, next_due(schedule, max(now, newest))
        if row.is_queued:  # the instant stays due until what waits has begun
            return None, due
        begins = due if row.newest_instant is None else due + spread(row.slug, schedule)
        return NewRun(row.id, to_us(due), to_us(begins)), next_due(schedule, now)

    def _learn(self, version_ids: Iterable[int]) -> None:
        """Read the schedules of versions that are not known yet."""
        unknown = sorted(set(version_ids) - self._schedules.keys())
        for start in range(0, len(unknown), BLOCK):
            with self._store.read() as connection:
                for version_id, body in catalog.version_bodies(connection, unknown[start : start + BLOCK]).items():
                    try:
                        self._schedules[version_id] = schedule_of(body) if body["enabled"] else None
                    except Exception:
                        logger.exception("bug", extra={"version": version_id})  # of this check: the others go on
                        self._schedules[version_id] = None

    def _expect(self, row: CheckRow, schedule: Schedule) -> _Expected:
        of = row.version_id, row.updated_at, row.completed_at
        known = self._expected.get(row.id)
        if known is not None and known.of == of:
            return known
        completed = from_us(row.completed_at) if row.completed_at is not None else None
        return _Expected(of, no_data_expected(schedule, completed, from_us(row.updated_at)).deadline)

    def _may_be_overdue(self, row: CheckRow, now: datetime) -> bool:
        ahead = row.completed_at is not None and from_us(row.completed_at) > now + CLOCK_SKEW  # by a wrong clock
        return ahead or self._expected[row.id].deadline <= now


def _us(moment: datetime | None) -> int | None:
    return to_us(moment) if moment is not None else None


def _newest(connection: Connection, row: DueCheck, schedule: Schedule, now: datetime) -> datetime | None:
    """Return the newest instant that has a run, as far as a right clock can have written it."""
    until = credible_until(schedule, now)
    if row.newest_instant is None or from_us(row.newest_instant) <= until:
        return from_us(row.newest_instant) if row.newest_instant is not None else None
    newest = open_runs.newest_instant(connection, row.id, before=to_us(until))
    return from_us(newest) if newest is not None else None


def _queue_again(connection: Connection, run: NewRun, now: datetime) -> bool:
    """Queue the run of an instant that has one already, which may be of a clock that was ahead."""
    queued = open_runs.enqueue_scheduled(
        connection, run.check_id, scheduled_for=run.scheduled_for, not_before=run.not_before, now=to_us(now)
    )
    return queued is not None


CATCH_UP: Final = timedelta(minutes=2)
"""How long after its start a worker opens no `no_data` alert."""


def run_now(
    store: Store, slug: str, *, trigger: Trigger, index_version: str | None, idempotency_key: str | None, now: datetime
) -> tuple[int, bool]:
    """Queue a run at once, or join the one that waits: never the active one, it may have seen the old index.

    A disabled check is run too, for people may try it before they enable it; nothing of it is alerted.
    Returns the run's id and whether the request is new; a repeated Idempotency-Key gives the run of the first time.
    Raises NotFoundError, and ConflictError where the key came with another request before.
    """
    request = sha256(json.dumps([slug, trigger, index_version]).encode()).hexdigest()
    with store.write() as connection:
        check = catalog.find_definition(connection, "check", slug)
        if check is None or check.archived_at is not None:
            raise NotFoundError(f"there is no check '{slug}'")
        if idempotency_key is not None:
            known = open_runs.remembered_request(connection, check.id, idempotency_key)
            if known is not None and known.request_hash != request:
                raise ConflictError("this Idempotency-Key was used with another request")
            if known is not None:
                return int(known.run_id), False
        anew = not check.body["enabled"]  # what was queued before it was disabled would not be carried out
        run_id = open_runs.enqueue_asked(
            connection, check.id, trigger=trigger, index_version=index_version, now=to_us(now), anew=anew
        )
        if idempotency_key is not None:
            open_runs.remember_request(
                connection, check.id, idempotency_key, request_hash=request, run_id=run_id, now=to_us(now)
            )
        return run_id, True


def watch_for_no_data(store: Store, check_id: int, *, started_at: datetime, now: datetime) -> bool:
    """Open the `no_data` alert of a check that has completed nothing for too long; True where it was opened.

    Decided from rows; a worker that started after `now - CATCH_UP`, or whose clock was set since, skips the check. So
    does one that has not begun a run of the check that is due: that is Coalmine's own backlog, and told as such.
    """
    if now - started_at < CATCH_UP:
        return False
    with store.read() as connection:
        check = catalog.definition_by_id(connection, check_id)
        if find_overdue(connection, check, now) is None or not transitions.may_open_no_data(connection, check):
            return False
        if open_runs.waits_for_worker(connection, check_id, to_us(now)):
            return False
    with store.write() as connection:
        catalog.lock_definition(connection, check_id)  # a run may be completing; and see it all anew
        overdue = find_overdue(connection, catalog.definition_by_id(connection, check_id), now)
        return overdue is not None and transitions.open_no_data(connection, check_id, overdue, now=now)


def without_backlog(store: Store, check_ids: Collection[int], now: datetime) -> list[int]:
    """Leave out the checks with a run that is due and that no worker has begun, see `watch_for_no_data`.

    One query for all: where Coalmine is behind, most checks are overdue, and asking for each makes it later still.
    """
    if not check_ids:
        return []
    with store.read() as connection:
        waiting = open_runs.waiting_checks(connection, to_us(now))
    return [check_id for check_id in check_ids if check_id not in waiting]


def find_overdue(connection: Connection, check: catalog.Definition, now: datetime) -> Overdue | None:
    """Say since when a check has completed nothing, where that is too long."""
    schedule = schedule_of(check.body)
    return no_data_due(schedule, last_completed(connection, check, now), now, from_us(check.updated_at))


RETENTION_SECONDS: Final = 600


def recall_work(store: Store, *, now: datetime) -> bool:
    """Defer what was forgotten; whether there was something. Where there was not, nothing is written."""
    moment = to_us(now)
    with store.read() as connection:
        run_ids = open_runs.forgotten_runs(connection, moment)
        hook_ids = outbox.forgotten_hooks(connection, moment)
        rescoring_ids = rescorings.forgotten(connection, moment)
        plant_ids = plants.forgotten(connection, moment)
    if not (run_ids or hook_ids or rescoring_ids or plant_ids):
        return False
    with store.write() as connection:
        open_runs.defer_forgotten(connection, run_ids)
        for hook_id in sorted(hook_ids):
            outbox.defer_delivery(connection, hook_id)
        for rescoring_id in sorted(rescoring_ids):
            rescorings.defer_rescoring(connection, rescoring_id)
        plants.defer_forgotten(connection, plant_ids)
    return True


def defer_retention(store: Store, now: datetime) -> None:
    """Have expired rows deleted from now on, every ten minutes."""
    with store.write() as connection:
        defer(connection, [NewJob(JobKind.RETENTION, 0, run_at=to_us(now) + RETENTION_SECONDS * 1_000_000)])
