"""Issues of this process itself, never alerts of a check: for readiness, metrics, pages, log. And what it prunes."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import Any, Final

import numpy as np

from app.answers import store as rows
from app.answers.tables import feedback
from app.base.db import engine
from app.base.db.engine import Connection, Store, blocks, to_us
from app.base.db.files import find_schema_error
from app.base.errors import StoreUnavailableError
from app.base.texts import counted
from app.diagnosis import store as diagnoses
from app.experiments import store as experiments
from app.experiments import store as shadows
from app.experiments.tables import shadow_pairs, shadow_parts
from app.hooks.tables import incidents
from app.records.store import pruning
from app.records.tables import states
from app.reports.service.metrics_snapshot import State
from app.retrievers import store as rates
from app.traffic.tables import traffic_parts, traffic_queries

logger = logging.getLogger("coalmine.self")

KEPT_SECONDS: Final = 120.0
"""How long an issue lasts after its last report."""


class Issue(StrEnum):
    """Kind of an issue; also the label of its metric."""

    CLOCK = "clock"
    """The wall clock was set; instants that it wrote before may be wrong."""
    DELIVERIES = "deliveries"
    """A hook does not take what it is sent: three attempts failed, or more."""
    HEARTBEAT = "heartbeat"
    """The database got no sign of life: other replicas may take over what this process is at."""
    OVERLOAD = "overload"
    """Runs are due that no worker has begun."""
    RESOURCES = "resources"
    """This process or machine is out of file descriptors or memory."""
    STORE_READ = "store_read"
    """The database answers, but its tables are damaged, missing or of an older release."""
    STORE_WRITE = "store_write"
    """The database can be read but not written."""


class SelfMonitor:
    """The issues of this process, each with a sentence. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without an issue; `clock` counts seconds and cannot be set."""
        self._clock = clock
        self._lock = Lock()
        self._issues: dict[Issue, tuple[str, float]] = {}
        """Sentence and expiry by issue."""

    def report(self, issue: Issue, detail: str, *, seconds: float = KEPT_SECONDS) -> None:
        """Set an issue for `seconds`; logged when it is new."""
        with self._lock:
            now = self._clock()
            before = self._issues.get(issue)
            self._issues[issue] = detail, now + seconds
        if before is None or before[1] <= now:
            logger.error("self_issue", extra={"issue": str(issue), "detail": detail})

    def clear(self, issue: Issue) -> None:
        """End an issue; logged if it was set."""
        with self._lock:
            before = self._issues.pop(issue, None)
        if before is not None:
            logger.info("self_issue_over", extra={"issue": str(issue)})

    @property
    def issues(self) -> Mapping[Issue, str]:
        """The present issues, each with its sentence."""
        with self._lock:
            now = self._clock()
            return {issue: detail for issue, (detail, until) in self._issues.items() if until > now}

    def has(self, issue: Issue) -> bool:
        """Whether an issue is set."""
        return issue in self.issues


_DAMAGED = "a part of the database is damaged: restore a backup or repair it, then restart"


def report_store(monitor: SelfMonitor, store: Store) -> None:
    """Report or end the issues; after a failed write, try one first."""
    if store.write_failure is not None:
        with suppress(StoreUnavailableError):  # then `write_failure` stays
            store.try_write()
    failure = store.write_failure
    if failure is None:
        monitor.clear(Issue.STORE_WRITE)
    else:
        monitor.report(Issue.STORE_WRITE, failure)
    try:
        reason = find_read_error(store)
    except StoreUnavailableError:  # it does not even answer: the snapshot of the metrics ends, which says so
        return
    if reason is None:
        monitor.clear(Issue.STORE_READ)
    else:
        monitor.report(Issue.STORE_READ, reason)


def find_read_error(store: Store) -> str | None:
    """Why the database cannot be used although it answers; None = it can. Raises StoreUnavailableError.

    The sentence names no host, path or user: anybody may read it.
    """
    try:
        reason = find_schema_error(store)
    except StoreUnavailableError:
        if store.damage is None:
            raise
        return _DAMAGED
    return reason or (_DAMAGED if store.damage is not None else None)


_ISSUE_SECONDS = 3600.0
_LONGEST_READING_SECONDS = 1.0
"""Nobody knows when within it the clock was read: after a database that stood still times would be as far off."""


class WorkerClock:
    """The time by the database, with a report to the monitor when a clock was set."""

    def __init__(
        self, read: Callable[[], datetime], monitor: SelfMonitor, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with the clock of this machine, which `read` reads, never set; `monotonic` counts seconds."""
        self._read = read
        self._monitor = monitor
        self._monotonic = monotonic
        self._steps = ClockSteps()
        self._database_steps = ClockSteps()
        self._database: tuple[datetime, float] | None = None
        """The last reading of the database's clock, and when that was by the monotonic clock."""
        self._steady_since = monotonic()
        self.times_set = 0
        """How often the clock was set."""

    def __call__(self) -> datetime:
        """Time by the database's clock, in UTC."""
        own = self._read()
        self._note(self._steps.observe(own, self._monotonic()), own, "system clock")
        if self._database is None:
            return own
        at, monotonic = self._database
        return at + timedelta(seconds=self._monotonic() - monotonic)

    def follow(self, store: Store) -> None:
        """Read the clock of the database, where it has one; the last reading stands where that takes long.

        Raises StoreUnavailableError: it stands then too.
        """
        before = self._monotonic()
        now = store.read_clock()
        after = self._monotonic()
        takes_long = after - before > _LONGEST_READING_SECONDS and self._database is not None
        if now is not None and not takes_long:
            self._note(self._database_steps.observe(now, after), now, "database's clock")
            self._database = now, (before + after) / 2

    def _note(self, step: timedelta | None, now: datetime, clock: str) -> None:
        """Report that a clock was set, where it was."""
        if step is None:
            return
        self.times_set += 1
        self._steady_since = self._monotonic()
        way = "back" if step < timedelta() else "forward"
        seconds = f"{abs(step.total_seconds()):,.0f} s"
        detail = f"the {clock} was set {way} by {seconds}, to {now:%Y-%m-%d %H:%M:%S} UTC"
        self._monitor.report(
            Issue.CLOCK, f"{detail}; instants recorded in the future are ignored", seconds=_ISSUE_SECONDS
        )

    @property
    def steady_for(self) -> timedelta:
        """How long the worker has run since its clock was set last, or since its start."""
        return timedelta(seconds=self._monotonic() - self._steady_since)


OVERLOAD_SECONDS: Final = 60.0
"""Waiting time from which a due run counts as overload."""
_NAMED: Final = 5
"""Hooks named at most."""


def report_overload(monitor: SelfMonitor, state: State | None) -> None:
    """Report or end the issue by the newest state; None = the store cannot be read, and nothing changes."""
    if state is None:
        return
    oldest = state.runs_waiting_oldest_seconds
    if oldest <= OVERLOAD_SECONDS:
        monitor.clear(Issue.OVERLOAD)
        return
    waiting = f"{counted(state.runs_waiting, 'run')} {'is' if state.runs_waiting == 1 else 'are'} due and not started"
    detail = f"{waiting}, the oldest for {oldest:,.0f} s: there are more runs than the workers can do"
    monitor.report(Issue.OVERLOAD, detail)


def report_deliveries(monitor: SelfMonitor, state: State | None) -> None:
    """Report or end the issue of hooks that refuse by the newest state; None = nothing changes."""
    if state is None:
        return
    refusing = [hook for hook in state.hooks if hook.retrying]
    if not refusing:
        monitor.clear(Issue.DELIVERIES)
        return
    names = ", ".join(hook.slug for hook in refusing[:_NAMED])
    others = len(refusing) - _NAMED
    more = f" and {counted(others, 'other')}" if others > 0 else ""
    waiting = sum(hook.retrying for hook in refusing)
    are = "was" if waiting == 1 else "were"
    detail = f"{counted(waiting, 'notification')} {are} tried three times or more and not taken, by "
    monitor.report(Issue.DELIVERIES, f"{detail}{'hook' if len(refusing) == 1 else 'hooks'} {names}{more}")


BATCH: Final = 50
"""Rows that a writing transaction deletes, with their dependents."""
_FOUND_BATCHES: Final = 40
"""Batches that one reading transaction finds."""
ALERT_DAYS: Final = 366
TRAFFIC_DAYS: Final = 30
"""Days that queries of users are kept, however long runs are."""
TRAFFIC_BATCH: Final = 400
PARTS_KEPT: Final = timedelta(days=1)
"""How long a part of a log that is sent again is known."""
QUESTIONS_KEPT: Final = timedelta(days=1)
"""How long a query waits for the candidate of a shadow to be asked."""
SLICE: Final = 50_000
"""Rankings examined in one round, and in one reading transaction."""
CONTENT_PAGE: Final = 2_000
"""Rankings whose texts are read at a time; with those of a slice a pass would hold 30 MB."""
ROUND: Final = timedelta(minutes=10)
UNITS_KEPT: Final = timedelta(days=90)
"""How long units of an epoch that ended are kept: an outcome may come as late as the longest window."""
RATES_KEPT: Final = timedelta(days=1)

Find = Callable[[Connection, int], Sequence[Any]]
Drop = Callable[[Connection, Sequence[Any]], int]


def prune(store: Store, now: datetime, *, days: int, batch: int = BATCH, slice_size: int = SLICE) -> int:
    """Delete runs, states and reports older than `days`, alerts, diagnoses and hourly figures of a year, and orphans.

    Returns the number of deleted rows. Rankings without a state are searched in
    slices, one a round; texts without a ranking, which takes a pass over all rankings, whenever the slices start over.
    """
    deleted = sum(_drain(store, find, drop, batch) for find, drop in _expired_rows(now, days))
    traffic_horizon = to_us(now - timedelta(days=TRAFFIC_DAYS))
    deleted += _drain(store, *_rows_before(traffic_queries.c.received_at, traffic_horizon), TRAFFIC_BATCH)
    deleted += _drain(store, *_rows_before(shadow_pairs.c.at, traffic_horizon), batch)
    units_horizon = to_us(now - UNITS_KEPT)
    deleted += _drain(
        store, partial(experiments.old_units, horizon=units_horizon), experiments.drop_units, TRAFFIC_BATCH
    )
    place, slices = _slice(store, now, slice_size)
    with store.read() as connection:
        unused = pruning.unused_rankings(connection, place * slice_size, (place + 1) * slice_size)
    deleted += _drop(store, unused, pruning.drop_rankings, batch)
    deleted += sum(_drop_orphans(store, orphans, batch) for orphans in _ORPHANS)
    if deleted if slices == 1 else place == 0:
        deleted += _prune_content(store, batch)
    return deleted


_ORPHANS = (pruning.FINDINGS, pruning.BASELINES, pruning.ANSWER_TEXTS)


def _expired_rows(now: datetime, days: int) -> Sequence[tuple[Find, Drop]]:
    """Return the (find, delete) functions of rows that expire by age."""
    horizon = to_us(now - timedelta(days=days))
    alerts = to_us(now - timedelta(days=max(days, ALERT_DAYS)))
    return (
        (partial(pruning.old_runs, horizon=horizon), pruning.drop_runs),
        (pruning.old_states, partial(engine.drop_rows, table=states)),
        (rows.old_answers, rows.drop_answers),
        (partial(rows.old_ratings, horizon=horizon), rows.drop_ratings),
        _rows_before(feedback.c.received_at, horizon),
        (partial(engine.old_rows, column=incidents.c.resolved_at, horizon=alerts), pruning.drop_incidents),
        (partial(pruning.old_alerts, horizon=alerts), pruning.drop_alerts),
        (partial(pruning.old_reports, horizon=horizon), pruning.drop_reports),
        (partial(shadows.old_hours, horizon=alerts), shadows.drop_hours),
        (partial(pruning.old_tests, horizon=alerts), pruning.drop_tests),
        (partial(diagnoses.old_diagnoses, horizon=alerts), diagnoses.drop_diagnoses),
        *[_rows_before(table.c.received_at, to_us(now - PARTS_KEPT)) for table in (traffic_parts, shadow_parts)],
        (
            partial(shadows.old_questions, horizon=to_us(now - QUESTIONS_KEPT)),
            partial(shadows.drop_questions, hour=to_us(now.replace(minute=0, second=0, microsecond=0))),
        ),
        (partial(rates.old_rates, horizon=to_us(now - RATES_KEPT)), rates.drop_rates),
        *[
            (partial(pruning.old_hours, table=table, horizon=alerts), partial(pruning.drop_hours, table=table))
            for table in pruning.HOURLY
        ],
    )


def _rows_before(column: Any, horizon: int) -> tuple[Find, Drop]:
    """Return the functions for rows whose time, this column, lies before the horizon."""
    return partial(engine.old_rows, column=column, horizon=horizon), partial(engine.drop_rows, table=column.table)


def _drain(store: Store, find: Find, drop: Drop, batch: int) -> int:
    """Delete batches until none is found."""
    deleted, limit = 0, _FOUND_BATCHES * batch
    while True:
        with store.read() as connection:
            old = find(connection, limit)
        deleted += _drop(store, old, drop, batch)
        if len(old) < limit:
            return deleted


def _drop(store: Store, found: Sequence[Any], drop: Drop, batch: int) -> int:
    deleted = 0
    for block in blocks(found, batch):
        with store.write() as connection:
            deleted += drop(connection, block)
    return deleted


def _drop_orphans(store: Store, orphans: pruning.Orphans, batch: int) -> int:
    with store.read() as connection:
        unused = orphans.find(connection)
    return _drop(store, unused, orphans.drop, batch)


def _slice(store: Store, now: datetime, size: int) -> tuple[int, int]:
    """Return the slice of rankings for this round, and the number of slices."""
    with store.read() as connection:
        slices = max(1, -(-pruning.highest_ranking(connection) // size))
    return int(now.timestamp() // ROUND.total_seconds()) % slices, slices


def _prune_content(store: Store, batch: int) -> int:
    """Delete unused texts and vectors: searched by reading, then deleted in batches that check only newer rankings."""
    with store.write() as connection:
        since = pruning.newest_ranking(connection)
    with store.read() as connection:
        ids = pruning.all_chunks(connection)
    is_used = np.zeros(len(ids), np.bool_)
    after: int | None = 0
    while after is not None:
        with store.read() as connection:
            used, after = pruning.chunks_of_rankings(connection, after, CONTENT_PAGE)
        is_used[_places(ids, used)] = True
    unused: list[int] = ids[~is_used].tolist()
    deleted = _drop(store, unused, partial(pruning.drop_chunks, since=since), batch)
    return deleted + _drop_orphans(store, pruning.VECTORS, batch)


def _places(ids: pruning.Ids, wanted: Collection[int]) -> pruning.Ids:
    """Return the places of wanted ids in ascending ones; those that are not among them are left out."""
    sought = np.fromiter(wanted, np.int64, len(wanted))
    places = np.searchsorted(ids, sought)
    is_within = places < len(ids)
    places, sought = places[is_within], sought[is_within]
    found: pruning.Ids = places[ids[places] == sought]
    return found


LEAST_STEP: Final = timedelta(seconds=10)
"""Smaller differences come from NTP slewing, or from a busy machine between two readings."""


@dataclass(slots=True)
class ClockSteps:
    """Compares readings of the wall clock with a monotonic clock; several threads may call it."""

    _offset: timedelta | None = None
    """The wall clock's lead over the monotonic clock at the last reading, as time since an arbitrary origin."""
    _origin: datetime | None = None
    _lock: Lock = field(default_factory=Lock)

    def observe(self, wall: datetime, monotonic: float) -> timedelta | None:
        """Return by how much the wall clock was set since the last reading, negative = back; None = it was not.

        `monotonic` is in seconds and must be read after `wall`. A machine that slept counts as set forward.
        """
        with self._lock:
            if self._origin is None or self._offset is None:
                self._origin, self._offset = wall, timedelta(seconds=-monotonic)
                return None
            offset = wall - self._origin - timedelta(seconds=monotonic)
            step = offset - self._offset
            if abs(step) < LEAST_STEP:
                return None  # small drifts add up until they are reported as one step
            self._offset = offset
            return step
