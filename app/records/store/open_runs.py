"""Runs that have not ended: queued with their job, begun and held by a worker, and the answers they have staged.

The database arbitrates: partial unique indexes allow one queued and one running run per check, and every change of
status names the status it expects. The loser of a race moves on quietly.
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import NOW, Moment, insert_new, insert_one, row_value, savepoint, sql_literal
from app.base.jobs import at_hand, defer
from app.base.jobs.values import AT_ONCE as AT_ONCE  # noqa: PLC0414 - before it a run does not begin: due by every clock
from app.base.jobs.values import JobKind, NewJob
from app.base.schedules import CLOCK_SKEW
from app.base.values import Slowing, Value, replace
from app.catalog.store import lock_definition
from app.catalog.tables import definitions, suite_versions
from app.records.tables import idempotency_keys, runs, shards
from app.scoring.run_inputs import RunVersions

CLOCK_TOLERANCE: Final = CLOCK_SKEW // timedelta(microseconds=1)
"""Microseconds. No run is put off for so long: what is further ahead, a wrong clock has written."""


class ClaimedRun(Value):
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
                trigger=trigger
                if anew or trigger == "update"
                else sa.case((runs.c.trigger == sql_literal("schedule"), trigger), else_=runs.c.trigger),
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


def waiting_runs(connection: Connection, now: int) -> tuple[int, int | None]:
    """Return the number of due runs that could start, and since when the oldest is due.

    A run whose check is at another one waits for that, not for a worker: it does not count. Nor does the time before a
    run was queued: its scheduled instant may be older than the check.
    """
    ahead = runs.c.not_before > now  # queued by a clock that was ahead
    since = sa.case((sa.or_(ahead, runs.c.not_before < runs.c.created_at), runs.c.created_at), else_=runs.c.not_before)
    statement = sa.select(sa.func.count(), sa.func.min(since)).where(startable(now))
    waiting, oldest = connection.execute(statement).one()
    return waiting, oldest


def under_way(connection: Connection, now: int) -> dict[int, str]:
    """Return the checks with an active run, by check id: `running`, else `queued`.

    A run by schedule is queued before its spread start; until then it is only the next run.
    """
    active = runs.c.status.in_([sql_literal("queued"), sql_literal("running")])  # the order of ix_runs_active
    begun = sa.or_(runs.c.status == sql_literal("running"), *due(now))
    statement = sa.select(runs.c.check_id, runs.c.status).where(active, begun)
    found: dict[int, str] = {}
    for check_id, status in connection.execute(statement):
        found[check_id] = min(status, found.get(check_id, status), key=("running", "queued").index)
    return found


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
    return row_value(
        ClaimedRun,
        row,
        check=row.slug,
        resumed=row.started_at is not None,
        started_at=row.started_at or 0,
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


_MEMBER_BYTES = 16  # a canary id and a version id, see versions.freeze_suite


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """How a probe ended that did not measure; rows of three columns are from before there was a second step."""

    outcome: str
    http_status: int | None = None
    detail: str | None = None
    step: str = "retriever"
    """Who failed."""
    address: str | None = None
    """Host and port of whoever failed; None in rows from before it was kept."""


class ShardBody(msgspec.Struct, array_like=True, frozen=True):
    """The answers of one shard, as columns over its positions; what is missing at the end is as it is by default."""

    first: int
    latencies: bytes
    rankings: list[int | None]
    failures: dict[int, Failure]
    index_version: str | None = None
    unscored: int = 0
    """Answers whose relevance the scorer could not measure."""
    unscored_detail: str | None = None
    """Why, of one of them."""
    arrived: int = 0
    """How many answers the run had when the shard was staged; the newest shard has the most."""
    row: dict[str, int] = msgspec.field(default_factory=dict)
    """The probes that had failed in a row by then, counted by the way they failed."""
    ended_early: str | None = None
    """Why no more requests were to be sent from here on."""
    scored: int = 0
    """Answers whose relevance a scorer outside the retriever measured."""
    unscored_at: list[int] = msgspec.field(default_factory=list)
    """The positions of those it could not measure."""
    present: list[str] = msgspec.field(default_factory=list)
    """What the hits had of the fields they may lack, see `presence`."""
    generated: dict[int, str] = msgspec.field(default_factory=dict)
    """Answers that came with the hits, by position."""
    cached: int = 0
    """Answers of a cache before the retriever."""
    cache_sign: str | None = None
    """The header line that says so, of one of them."""
    slowing: Slowing | None = None
    """By how much the retriever slowed these requests."""


def commit_shards(connection: Connection, run_id: int, bodies: Mapping[int, ShardBody], *, now: int) -> None:
    """Stage the answers of shards, by number; a second commit of the same shard changes nothing."""
    rows = [(run_id, number, msgspec.msgpack.encode(body), now) for number, body in bodies.items()]
    insert_new(connection, shards, ("run_id", "number", "body", "staged_at"), rows)


def staged_numbers(connection: Connection, run_id: int) -> set[int]:
    """Give the numbers of the shards a run has staged so far."""
    return set(connection.execute(sa.select(shards.c.number).where(shards.c.run_id == run_id)).scalars())


def newest_shard(connection: Connection, run_id: int) -> tuple[int, ShardBody] | None:
    """Read the shard of a run that was staged last, with its moment; None = none is."""
    newest = sa.select(shards).where(shards.c.run_id == run_id).order_by(sa.desc(shards.c.staged_at)).limit(1)
    row = connection.execute(newest).one_or_none()
    return None if row is None else (row.staged_at or 0, msgspec.msgpack.decode(row.body, type=ShardBody))


def staged_shards(connection: Connection, run_id: int) -> dict[int, ShardBody]:
    """Read the shards a run has staged so far, by number."""
    rows = connection.execute(sa.select(shards.c.number, shards.c.body).where(shards.c.run_id == run_id))
    return {row.number: msgspec.msgpack.decode(row.body, type=ShardBody) for row in rows}


def has_shards(connection: Connection, run_id: int) -> bool:
    """Whether a run has staged any answers; reads none, for they may be what cannot be read."""
    return connection.execute(sa.select(sa.exists().where(shards.c.run_id == run_id))).scalar_one()


def progress(connection: Connection, run_id: int) -> tuple[int | None, list[int]]:
    """Say how many canaries a run asks (None before it started) and which shards it has staged so far."""
    size = sa.func.length(suite_versions.c.members)
    frozen = sa.select(size).join(runs, runs.c.suite_version_id == suite_versions.c.id).where(runs.c.id == run_id)
    staged = sa.select(shards.c.number).where(shards.c.run_id == run_id)
    size_bytes = connection.execute(frozen).scalar_one_or_none()
    total = None if size_bytes is None else size_bytes // _MEMBER_BYTES
    return total, list(connection.execute(staged).scalars())


def drop_shards(connection: Connection, run_id: int) -> None:
    """Forget the staged answers of a finalised run."""
    connection.execute(_DROP_SHARDS, {"run": run_id})


_DROP_SHARDS = sa.delete(shards).where(shards.c.run_id == sa.bindparam("run"))
