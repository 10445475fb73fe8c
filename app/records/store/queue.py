"""The queue of runs: from a request, with the job that carries it out, to the moment that a worker begins it.

The database arbitrates: partial unique indexes allow one queued and one running run per check, and every
change of status names the status it expects. The loser of a race moves on quietly.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import NOW, Moment, insert_new, insert_one, savepoint, sql_literal
from app.base.jobs.jobs import at_hand, defer
from app.base.jobs.values import AT_ONCE as AT_ONCE  # noqa: PLC0414 - before it a run does not begin: due by every clock
from app.base.jobs.values import JobKind, NewJob
from app.catalog.domain.schedules import CLOCK_SKEW
from app.catalog.store.definitions import lock_definition
from app.catalog.tables import definitions
from app.records.run_tables import idempotency_keys, runs
from app.records.store.shards import drop_shards
from app.scoring.run_inputs import RunVersions

CLOCK_TOLERANCE: Final = CLOCK_SKEW // timedelta(microseconds=1)
"""Microseconds. No run is put off for so long: what is further ahead, a wrong clock has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that is being carried out."""

    id: int
    check_id: int
    check: str
    trigger: str
    resumed: bool
    """Whether it had been begun before."""
    started_at: int
    created_at: int
    index_version: str | None = None
    """The caller's."""
    versions: RunVersions | None = None
    """What was frozen when it first started; None = it starts now."""


def enqueue_scheduled(
    connection: Connection, check_id: int, *, scheduled_for: int, not_before: int, now: int
) -> int | None:
    """Insert the run of a scheduled instant; None where another replica did, or one waits already.

    An instant that was run before its time, by a clock that was ahead, gets its run all the same, a microsecond later.
    """
    lock_definition(connection, check_id)
    for instant in range(scheduled_for, scheduled_for + 1000):
        inserted = insert_one(
            connection,
            runs,
            check_id=check_id,
            scheduled_for=instant,
            not_before=not_before,
            trigger="schedule",
            status="queued",
            created_at=now,
        )
        if inserted is not None:
            defer_run(connection, inserted, not_before)
        if inserted is not None or not _ran_ahead(connection, check_id, instant):
            return inserted
    return None


def _ran_ahead(connection: Connection, check_id: int, instant: int) -> bool:
    """Whether the run of an instant is from a clock that was ahead: a later run of its check has an earlier instant."""
    later = runs.alias()
    returned = sa.exists().where(
        later.c.check_id == check_id, later.c.id > runs.c.id, later.c.scheduled_for < runs.c.scheduled_for
    )
    statement = sa.select(runs.c.id).where(runs.c.check_id == check_id, runs.c.scheduled_for == instant, returned)
    return connection.execute(statement).one_or_none() is not None


def enqueue_asked(
    connection: Connection, check_id: int, *, trigger: str, index_version: str | None, now: int, anew: bool = False
) -> int:
    """Queue a run now, or join the one that waits (it has sent no request yet). Never joins a running one.

    `anew`: what waits counts as requested now, whatever it was queued for.
    """
    lock_definition(connection, check_id)
    inserted = None
    for microsecond in range(now, now + 1000):  # two requests in one microsecond still get two instants
        inserted = insert_one(
            connection,
            runs,
            check_id=check_id,
            scheduled_for=microsecond,
            not_before=AT_ONCE,
            trigger=trigger,
            status="queued",
            index_version=index_version,
            created_at=now,
        )
        if inserted is not None:
            defer_run(connection, inserted)
            return inserted
        waiting = connection.execute(
            sa.update(runs)
            .where(runs.c.check_id == check_id, runs.c.status == "queued")
            .values(
                # A request outranks the clock, and that the index was updated outranks all; else the first one stays.
                trigger=trigger if anew or trigger == "update" else _unscheduled(trigger),
                created_at=now if anew else runs.c.created_at,
                not_before=AT_ONCE,
                index_version=sa.func.coalesce(index_version, runs.c.index_version),
            )
            .returning(runs.c.id)
        ).scalar_one_or_none()
        if waiting is not None:
            defer_run(connection, int(waiting))
            return int(waiting)
    raise AssertionError("no free instant in a millisecond")


def defer_run(connection: Connection, run_id: int, not_before: int = AT_ONCE) -> None:
    """Have a run begun."""
    defer(connection, [NewJob(JobKind.RUN, run_id, run_at=not_before)])


def defer_following(connection: Connection, check_id: int) -> None:
    """Have the run begun that waits for another one of its check to end."""
    for row in connection.execute(_FOLLOWING, {"check": check_id}):
        defer_run(connection, row.id, row.not_before)


_FOLLOWING = sa.select(runs.c.id, runs.c.not_before).where(
    runs.c.check_id == sa.bindparam("check"), runs.c.status == sql_literal("queued")
)


def defer_forgotten(connection: Connection, run_ids: Collection[int]) -> None:
    """Have runs begun or carried on for which there is no job, see `forgotten_runs`."""
    defer(connection, [NewJob(JobKind.RUN, run_id) for run_id in sorted(run_ids)])


def forgotten_runs(connection: Connection, now: int) -> set[int]:
    """Give the runs that somebody should carry out now and that no job is about.

    They are of a release without jobs, or of a clock that was ahead; or the one behind which they waited ended when
    they had just been queued.
    """
    active = (*_startable(NOW), runs.c.status == sql_literal("running"))
    wanted = sa.union_all(*(sa.select(runs.c.id).where(one) for one in active))
    found = set(connection.execute(wanted, {"now": now}).scalars())
    return found - at_hand(connection, (JobKind.RUN, JobKind.SHARD), now) if found else found


def _unscheduled(trigger: str) -> sa.Case[str]:
    """Return the trigger of a queued run, of one queued by the clock this one."""
    return sa.case((runs.c.trigger == sql_literal("schedule"), trigger), else_=runs.c.trigger)


def remembered_request(connection: Connection, check_id: int, key: str) -> sa.Row[Any] | None:
    """Find what an Idempotency-Key led to: `request_hash` and `run_id`. Others with a key wait until we are done."""
    lock_definition(connection, check_id)
    table = idempotency_keys
    return connection.execute(sa.select(table).where(table.c.check_id == check_id, table.c.key == key)).one_or_none()


def remember_request(
    connection: Connection, check_id: int, key: str, *, request_hash: str, run_id: int, now: int
) -> None:
    """Bind an Idempotency-Key to the run it led to."""
    columns = ("check_id", "key", "request_hash", "run_id", "created_at")
    insert_new(connection, idempotency_keys, columns, [(check_id, key, request_hash, run_id, now)])


def startable(now: Moment) -> sa.ColumnElement[bool]:
    """Whether a run is due and waits for nothing but a worker; one behind another run of its check waits for that."""
    return sa.or_(*_startable(now))


def _startable(now: Moment) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """Give `startable` as two conditions, each a range of one index: due, or written by a clock that was ahead."""
    other = runs.alias()
    busy = sa.exists().where(other.c.check_id == runs.c.check_id, other.c.status == sql_literal("running"))
    waits = sa.and_(runs.c.status == sql_literal("queued"), ~busy)
    past, ahead = due(now)
    return sa.and_(waits, past), sa.and_(waits, ahead)


def due(now: Moment) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """Two conditions, of which a run that may begin by its time meets one: come, or written by a clock ahead."""
    return runs.c.not_before <= now, runs.c.not_before > now + CLOCK_TOLERANCE


def waits_for_worker(connection: Connection, check_id: int, now: int) -> bool:
    """Whether a run of the check is due that no worker has begun."""
    return connection.execute(_WAITS, {"check": check_id, "now": now}).scalar_one()


_WAITS = sa.select(sa.exists().where(runs.c.check_id == sa.bindparam("check"), startable(NOW)))


def waiting_checks(connection: Connection, now: int) -> set[int]:
    """Give the checks of which a run is due that no worker has begun."""
    return set(connection.execute(_WAITING, {"now": now}).scalars())


_WAITING = sa.union(*(sa.select(runs.c.check_id).where(one) for one in _startable(NOW)))


def begin_run(connection: Connection, run_id: int, *, owner: str, now: int) -> ClaimedRun | None:
    """Begin a run or carry it on as `owner`; None where it has ended, or another run of its check is under way."""
    before = find_active(connection, run_id)
    if before is None:
        return None
    try:
        with savepoint(connection):
            connection.execute(_BEGIN, {"run": run_id, "owner": owner, "now": now})
    except sa.exc.IntegrityError:  # uq_runs_running: whoever ends the other one has this one begun
        return None
    return replace(before, started_at=before.started_at or now)


def find_active(connection: Connection, run_id: int) -> ClaimedRun | None:
    """Find a run that has not ended, and hold it; None = it has ended, or is gone."""
    row = connection.execute(_ACTIVE, {"run": run_id}).one_or_none()
    if row is None:
        return None
    versions = (row.suite_version_id, row.check_version_id, row.retriever_version_id)
    return ClaimedRun(
        id=run_id,
        check_id=row.check_id,
        check=row.slug,
        trigger=row.trigger,
        resumed=row.started_at is not None,
        started_at=row.started_at or 0,
        created_at=row.created_at,
        index_version=row.index_version,
        versions=None if None in versions else RunVersions(*versions),
    )


_ACTIVE = (
    sa.select(runs, definitions.c.slug)
    .join(definitions, definitions.c.id == runs.c.check_id)
    .where(runs.c.id == sa.bindparam("run"), runs.c.status.in_([sql_literal("queued"), sql_literal("running")]))
    .with_for_update(of=runs)
)
_BEGIN = (
    sa.update(runs)
    .where(runs.c.id == sa.bindparam("run"))
    .values(status="running", claimed_by=sa.bindparam("owner"), started_at=sa.func.coalesce(runs.c.started_at, NOW))
)


def restart_run(connection: Connection, run_id: int, *, owner: str) -> None:
    """Let a run begin anew with whoever carries it on: what it was answered is forgotten, and when it began."""
    if not holds(connection, run_id, owner):
        return
    drop_shards(connection, run_id)
    connection.execute(sa.update(runs).where(runs.c.id == run_id).values(started_at=None))


def holds(connection: Connection, run_id: int, owner: str) -> bool:
    """Whether nobody else has taken a run over, and it has not ended; locks its row until the transaction is over."""
    return connection.execute(_HELD, {"run": run_id, "owner": owner}).one_or_none() is not None


_HELD = (
    sa.select(runs.c.id)
    .where(runs.c.id == sa.bindparam("run"), runs.c.status == "running", runs.c.claimed_by == sa.bindparam("owner"))
    .with_for_update()
)


def freeze(connection: Connection, run_id: int, versions: RunVersions, *, config_hash: str) -> bool:
    """Write down what a run works with when it starts; False where the run is gone."""
    frozen = {"run": run_id, **versions._asdict(), "config": config_hash}
    return connection.execute(_FREEZE, frozen).rowcount == 1


_FREEZE = (
    sa.update(runs)
    .where(runs.c.id == sa.bindparam("run"))
    .values(
        suite_version_id=sa.bindparam("suite"),
        check_version_id=sa.bindparam("check"),
        retriever_version_id=sa.bindparam("retriever"),
        config_hash=sa.bindparam("config"),
    )
)


def newest_instant(connection: Connection, check_id: int, *, before: int) -> int | None:
    """Find the newest instant for which a check has a run: of the run that was queued last.

    Where that is later than `before`, a clock that was ahead has written it, and the newest that is not counts.
    """
    of_check = sa.select(runs.c.scheduled_for).where(runs.c.check_id == check_id).limit(1)
    newest: int | None = connection.execute(of_check.order_by(runs.c.id.desc())).scalar_one_or_none()
    if newest is None or newest <= before:
        return newest
    credible = of_check.where(runs.c.scheduled_for <= before).order_by(runs.c.scheduled_for.desc())
    instant: int | None = connection.execute(credible).scalar_one_or_none()
    return instant
