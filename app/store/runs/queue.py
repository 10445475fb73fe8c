"""The queue of runs: from a request to the claim of a worker and its lease.

The database arbitrates: partial unique indexes allow one queued and one running run per check, and every
change of status names the status it expects. The loser of a race moves on quietly.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.domain.catalog.schedules import CLOCK_SKEW
from app.domain.runs.run_inputs import RunVersions
from app.store.catalog.definitions import lock_definition
from app.store.engine import NOW, Moment, insert_new, insert_one, savepoint, sql_literal
from app.store.runs.shards import drop_shards
from app.store.tables import definitions, idempotency_keys, runs

CLOCK_TOLERANCE: Final = CLOCK_SKEW // timedelta(microseconds=1)
"""Microseconds. No run is put off and no lease lasts for so long: what is further ahead, a wrong clock has written."""


AT_ONCE: Final = 0
"""Before this moment a run does not begin: due by every clock, also where the clock of the requester is ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run this worker holds under a lease."""

    id: int
    check_id: int
    check: str
    trigger: str
    resumed: bool
    """Whether another worker had started it."""
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
            return int(waiting)
    raise AssertionError("no free instant in a millisecond")


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
    statement = sa.select(sa.exists().where(runs.c.check_id == check_id, startable(now)))
    return connection.execute(statement).scalar_one()


def claimable_runs(connection: Connection, now: int, *, reclaim: bool = True) -> Sequence[sa.Row[Any]]:
    """Read a few runs: those due for longest and, with `reclaim`, those whose workers have gone silent."""
    return connection.execute(_claimable_runs(reclaim=reclaim), {"now": now}).all()


def claim_run(
    connection: Connection, claimable: Iterable[sa.Row[Any]], *, owner: str, now: int, lease_until: int
) -> ClaimedRun | None:
    """Take the first of these runs that is still as it was read; None where others have taken them all."""
    for run in claimable:
        values = {"run": run.id, "was": run.status, "lapsed": run.lease_until}
        try:
            with savepoint(connection):
                row = connection.execute(
                    _CLAIM, {**values, "now": now, "owner": owner, "until": lease_until}
                ).one_or_none()
        except sa.exc.IntegrityError:  # uq_runs_running: a sibling of this check started in between
            continue
        if row is not None:
            versions = (row.suite_version_id, row.check_version_id, row.retriever_version_id)
            return ClaimedRun(
                id=run.id,
                check_id=row.check_id,
                check=run.check_slug,
                trigger=row.trigger,
                resumed=run.started_at is not None,
                started_at=row.started_at,
                created_at=row.created_at,
                index_version=row.index_version,
                versions=None if None in versions else RunVersions(*versions),
            )
    return None


_CLAIM = (
    sa.update(runs)
    .where(
        runs.c.id == sa.bindparam("run"),
        runs.c.status == sa.bindparam("was"),
        runs.c.lease_until.is_not_distinct_from(sa.bindparam("lapsed", type_=sa.BigInteger)),
    )
    .values(
        status="running",
        claimed_by=sa.bindparam("owner"),
        lease_until=sa.bindparam("until"),
        started_at=sa.func.coalesce(runs.c.started_at, NOW),
    )
    .returning(
        runs.c.check_id,
        runs.c.trigger,
        runs.c.started_at,
        runs.c.created_at,
        runs.c.index_version,
        runs.c.suite_version_id,
        runs.c.check_version_id,
        runs.c.retriever_version_id,
    )
)


def has_claimable_run(connection: Connection, now: int, *, reclaim: bool = True) -> bool:
    """Whether `claim_run` has something to take; reads alone."""
    return bool(connection.execute(_any_claimable(reclaim=reclaim), {"now": now}).scalar_one())


def next_start(connection: Connection, now: int) -> int | None:
    """Return when the next queued run may begin that may not yet; None = there is none."""
    instant: int | None = connection.execute(_NEXT_START, {"now": now}).scalar_one()
    return instant


_NEXT_START = sa.select(sa.func.min(runs.c.not_before)).where(
    runs.c.status == sql_literal("queued"), runs.c.not_before > NOW
)


@cache
def _any_claimable(*, reclaim: bool) -> sa.Select[tuple[bool]]:
    # Sent every second: putting the statement together takes longer than running it.
    return sa.select(sa.or_(*(sa.exists().where(one) for one in _claimable(reclaim=reclaim))))


_COULD_BEGIN = sa.case((runs.c.not_before > runs.c.created_at, runs.c.not_before), else_=runs.c.created_at)
"""Since when a run could begin: runs of one instant are spread, and of those that wait none overtakes another."""


@cache
def _claimable_runs(*, reclaim: bool) -> sa.Select[Any]:
    ids = sa.union_all(*(sa.select(runs.c.id).where(one) for one in _claimable(reclaim=reclaim)))
    return (
        sa.select(
            runs.c.id, runs.c.status, runs.c.lease_until, runs.c.started_at, definitions.c.slug.label("check_slug")
        )
        .join(definitions, definitions.c.id == runs.c.check_id)
        .where(runs.c.id.in_(ids))
        .order_by(_COULD_BEGIN, runs.c.id)
        .limit(5)
    )


def _claimable(*, reclaim: bool) -> tuple[sa.ColumnElement[bool], ...]:
    return (*_startable(NOW), _abandoned(NOW)) if reclaim else _startable(NOW)


def _abandoned(now: Moment) -> sa.ColumnElement[bool]:
    lapsed = sa.or_(runs.c.lease_until < now, runs.c.lease_until > now + CLOCK_TOLERANCE)
    return sa.and_(runs.c.status == sql_literal("running"), lapsed)


def renew_lease(connection: Connection, run_id: int, *, owner: str, lease_until: int) -> None:
    """Say that this worker is at work on a run."""
    held = sa.and_(runs.c.id == run_id, runs.c.claimed_by == owner, runs.c.status == "running")
    connection.execute(sa.update(runs).where(held).values(lease_until=lease_until))


def release_runs(connection: Connection, *, owner: str) -> None:
    """Let go of this worker's runs, so that the next one continues them at once."""
    connection.execute(
        sa.update(runs).where(runs.c.claimed_by == owner, runs.c.status == "running").values(lease_until=0)
    )


def restart_run(connection: Connection, run_id: int, *, owner: str) -> None:
    """Let a run begin anew with whoever claims it next: what it was answered is forgotten, and when it began."""
    if not holds(connection, run_id, owner):
        return
    drop_shards(connection, run_id)
    connection.execute(sa.update(runs).where(runs.c.id == run_id).values(lease_until=0, started_at=None))


def holds(connection: Connection, run_id: int, owner: str) -> bool:
    """Whether this worker still holds the run; locks its row for the rest of the transaction."""
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
