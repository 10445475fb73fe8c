"""Rows of re-scorings: what runs amount to by one, and below, from `Rescoring` on, the queue of those requested.

A worker claims one by a lease, renews it, and gives it back, puts it off, fails or finishes it; `runs_left` are the
runs that it has still to judge.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.base.db.engine import NOW, Moment, blocks, hold_content, insert_new, insert_one, row_value
from app.base.jobs import at_hand, defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import ProbeSummary, Value
from app.catalog.tables import definitions, suite_versions
from app.records.domain import RescoringSide, RescoringTotals
from app.records.store.encodings import number_at, stored_summary, unpack_latencies, unpacked_positions, vector_columns
from app.records.store.open_runs import Failure
from app.records.store.ranking_rows import layout_names
from app.records.store.series import fold
from app.records.store.state_rows import held_at
from app.records.tables import rankings, rescored_rollups, rescored_runs, rescorings, run_probes, runs, states
from app.retrievers.domain.probes import StoredFinding
from app.retrievers.store import embedder_findings, run_embedders
from app.scoring.run_inputs import RunVersions


class BegunState(Value):
    """From which run on a canary had a ranking."""

    id: int
    canary_id: int
    canary_version_id: int
    ranking_id: int
    first_run: int


class RescoredRun(Value):
    """What a run amounts to by a re-scoring."""

    run_id: int
    verdict: str
    reasons: Sequence[str]
    total: int
    measured: int
    failed: int
    undefined: int
    degraded: int
    degraded_positions: bytes | None
    degraded_reasons: bytes | None
    aggregates: bytes
    layout_id: int
    scores_layout_id: int


def states_in_force(connection: Connection, check_id: int, run_id: int) -> list[BegunState]:
    """Read what held at a run, one state for each canary that had one."""
    return [BegunState(**row._mapping) for row in held_at(connection, _BEGUN, check_id, run_id)]  # noqa: SLF001 - public despite its name


def states_begun(connection: Connection, check_id: int, *, after: int, limit: int) -> list[BegunState]:
    """Read the states of a check in the order they were written, which is that of its runs; ids above `after`."""
    # `+ 0` keeps both databases from fetching all states of the check to sort them, page after page.
    mine = states.c.check_id + 0 == check_id
    statement = _BEGUN.where(mine, states.c.id > after).order_by(states.c.id).limit(limit)
    return [BegunState(**row._mapping) for row in connection.execute(statement)]  # noqa: SLF001 - as above


def hold(connection: Connection, rescoring_id: int, run_ids: Sequence[int]) -> set[int]:
    """Give those of these runs that are still there and not re-scored, and keep them so until the transaction ends.

    Rankings are kept from being pruned as well.
    """
    hold_content(connection)
    connection.execute(sa.select(rescorings.c.id).where(rescorings.c.id == rescoring_id).with_for_update())
    left: set[int] = set()
    for block in blocks(run_ids):
        there = sa.select(runs.c.id).where(runs.c.id.in_(block)).with_for_update(read=True, key_share=True)
        done = sa.select(rescored_runs.c.run_id).where(
            rescored_runs.c.rescoring_id == rescoring_id, rescored_runs.c.run_id.in_(block)
        )
        left |= set(connection.execute(there).scalars()) - set(connection.execute(done).scalars())
    return left


def rankings_there(connection: Connection, ranking_ids: Iterable[int]) -> set[int]:
    """Give those of these rankings that have not been pruned."""
    ids: set[int] = set()
    for block in blocks(sorted(set(ranking_ids))):
        ids.update(connection.execute(sa.select(rankings.c.id).where(rankings.c.id.in_(block))).scalars())
    return ids


def save(connection: Connection, rescoring_id: int, rows: Sequence[tuple[RescoredRun, int]]) -> None:
    """Write what runs amount to, each with the time it ended; to be called with runs that are held."""
    names = tuple(RescoredRun.__struct_fields__)
    values = [
        (rescoring_id, *[json.dumps(run.reasons) if name == "reasons" else getattr(run, name) for name in names])
        for run, _ in rows
    ]
    insert_new(connection, rescored_runs, ("rescoring_id", *names), values)
    vectors: dict[int, list[tuple[int, NDArray[np.float64]]]] = {}
    for run, ended_at in rows:
        vectors.setdefault(run.layout_id, []).append((ended_at, np.frombuffer(run.aggregates)))
    for layout, members in vectors.items():
        fold(connection, rescored_rollups, {"rescoring_id": rescoring_id, "layout_id": layout}, members)


def find_runs(connection: Connection, rescoring_id: int, run_ids: Sequence[int]) -> dict[int, RescoredRun]:
    """Find what runs amount to by a re-scoring, by their ids; those that are in it."""
    runs_by_id: dict[int, RescoredRun] = {}
    for block in blocks(run_ids):
        place = sa.and_(rescored_runs.c.rescoring_id == rescoring_id, rescored_runs.c.run_id.in_(block))
        for row in connection.execute(sa.select(rescored_runs).where(place)):
            runs_by_id[row.run_id] = row_value(RescoredRun, row, reasons=json.loads(row.reasons))
    return runs_by_id


def rescorings_of(connection: Connection, run_id: int) -> set[int]:
    """Give the re-scorings a run is in."""
    mine = sa.select(rescored_runs.c.rescoring_id).where(rescored_runs.c.run_id == run_id)
    return set(connection.execute(mine).scalars())


def newest_run(connection: Connection, rescoring_id: int) -> int | None:
    """Find the newest run of a re-scoring."""
    newest = sa.select(sa.func.max(rescored_runs.c.run_id)).where(rescored_runs.c.rescoring_id == rescoring_id)
    run_id: int | None = connection.execute(newest).scalar_one()
    return run_id


def suite_versions_of(connection: Connection, rescoring_id: int) -> list[int]:
    """List the suite versions of the runs of a re-scoring."""
    mine = sa.and_(rescored_runs.c.run_id == runs.c.id, rescored_runs.c.rescoring_id == rescoring_id)
    return list(connection.execute(sa.select(runs.c.suite_version_id).join(rescored_runs, mine).distinct()).scalars())


def summary(connection: Connection, rescoring_id: int) -> RescoringTotals:
    """Sum up the runs of a re-scoring as they were and as they are by it."""
    return {"before": _side(connection, rescoring_id, runs), "after": _side(connection, rescoring_id, rescored_runs)}


def _side(connection: Connection, rescoring_id: int, table: sa.Table) -> RescoringSide:
    mine = sa.and_(rescored_runs.c.run_id == runs.c.id, rescored_runs.c.rescoring_id == rescoring_id)

    def select(*columns: sa.ColumnElement[Any]) -> Any:
        return sa.select(*columns).select_from(runs).join(rescored_runs, mine)

    verdicts = connection.execute(select(table.c.verdict, sa.func.count()).group_by(table.c.verdict)).all()
    degraded = connection.execute(select(sa.func.coalesce(sa.func.sum(table.c.degraded), 0))).scalar_one()
    layouts = connection.execute(select(table.c.layout_id).distinct()).scalars().all()

    def mean(name: str) -> float | None:
        values: list[float] = []
        for layout in layouts:
            names = layout_names(connection, layout)
            if name in names:
                place = names.index(name)
                stored = connection.execute(select(*vector_columns(table)).where(table.c.layout_id == layout))
                values += [number for one in stored if (number := number_at(place, *one)) is not None]
        return float(np.mean(values)) if values else None

    return {
        "runs": sum(count for _, count in verdicts),
        "coverage": mean("coverage"),
        "health_score": mean("health_score"),
        "degraded": int(degraded),
        "verdicts": {str(verdict): count for verdict, count in verdicts},
    }


_BEGUN = sa.select(*[states.c[name] for name in BegunState.__struct_fields__])


class Rescoring(Value):
    """A re-scoring of a check's runs by the judgments of one suite version."""

    id: int
    check_id: int
    check: str
    suite_version_id: int
    suite_hash: str
    measures_version: str
    """The definitions of the measures; see `name`."""
    since: int | None
    created_at: int
    finished_at: int | None
    note: str | None
    summary: RescoringTotals | None
    claimed_by: str | None
    attempts: int
    """How often in a row it was begun and did not get on, the present attempt included."""
    failure: str | None
    """Why it was given up; None = it was not."""

    @property
    def name(self) -> str:
        """The version that names its numbers."""
        return f"{self.measures_version}.r{self.id}"


class PendingRun(Value):
    """A run to be judged anew: what it worked with, and what does not depend on judgments."""

    id: int
    versions: RunVersions
    started_at: int
    finished_at: int
    status: str
    verdict: str
    reasons: Sequence[str]
    embedder: StoredFinding | None
    latencies: bytes
    paces: bytes | None
    probes: ProbeSummary | None
    """What its probes come to; None = a release before did not store it."""
    failures: bytes | None
    unscored: bytes | None

    @property
    def failed(self) -> dict[int, Failure]:
        """How the probes ended that did not measure, by position."""
        return msgspec.msgpack.decode(self.failures, type=dict[int, Failure]) if self.failures else {}

    @property
    def latency_seconds(self) -> NDArray[np.float16]:
        """How long the probes took, by position."""
        return unpack_latencies(self.latencies, self.paces)

    @property
    def unscored_at(self) -> list[int]:
        """The positions at which relevance could not be measured."""
        return unpacked_positions(self.unscored)


def ask(
    connection: Connection, *, check_id: int, suite_version_id: int, measures_version: str, since: int | None, now: int
) -> int:
    """Give the re-scoring of a check by a suite version, new or begun before; there is work left if runs are."""
    whose = {"check_id": check_id, "suite_version_id": suite_version_id, "measures_version": measures_version}
    made = insert_one(connection, rescorings, **whose, since=since, created_at=now)
    if made is not None:
        defer_rescoring(connection, made)
        return made
    place = sa.and_(*[rescorings.c[name] == value for name, value in whose.items()])
    row = connection.execute(sa.select(rescorings.c.id, rescorings.c.since).where(place).with_for_update()).one()
    mine = rescorings.c.id == row.id
    if row.since is not None and (since is None or since < row.since):
        connection.execute(sa.update(rescorings).where(mine).values(since=since))
    rescoring = find(connection, row.id)
    if rescoring is not None and (
        rescoring.failure or (rescoring.finished_at is not None and _left(connection, rescoring))
    ):
        restart(connection, row.id)
    return int(row.id)


def restart(connection: Connection, rescoring_id: int) -> None:
    """Let a re-scoring at which nobody is go on at once, as if no attempt had failed."""
    free = sa.and_(rescorings.c.id == rescoring_id, rescorings.c.claimed_by.is_(None))
    values = {"finished_at": None, "failure": None, "attempts": 0, "lease_until": None}
    connection.execute(sa.update(rescorings).where(free).values(**values))
    defer_rescoring(connection, rescoring_id)


def defer_rescoring(connection: Connection, rescoring_id: int) -> None:
    """Have a re-scoring carried on."""
    defer(connection, [NewJob(JobKind.RESCORING, rescoring_id)])


def forgotten(connection: Connection, now: int) -> set[int]:
    """Give the re-scorings at which nobody is although there is work left, and about which no job is."""
    found = set(connection.execute(sa.select(rescorings.c.id).where(_free(now))).scalars())
    return found - at_hand(connection, (JobKind.RESCORING,), now) if found else found


def find(connection: Connection, rescoring_id: int) -> Rescoring | None:
    """Find a re-scoring by its id."""
    row = connection.execute(_RESCORING.where(rescorings.c.id == rescoring_id)).one_or_none()
    return _rescoring(row) if row else None


def list_all(
    connection: Connection, check_id: int, *, before: int | None = None, limit: int | None = None
) -> list[Rescoring]:
    """List the re-scorings of a check, newest first, those with an id below `before`."""
    statement = _RESCORING.where(rescorings.c.check_id == check_id).order_by(rescorings.c.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(rescorings.c.id < before)
    return [_rescoring(row) for row in connection.execute(statement)]


def under_way(connection: Connection, rescoring_ids: Collection[int]) -> set[int]:
    """Give those of these re-scorings that have runs left to judge."""
    ids: set[int] = set()
    for block in blocks(sorted(rescoring_ids)):
        left = sa.select(rescorings.c.id).where(rescorings.c.id.in_(block), rescorings.c.finished_at.is_(None))
        ids.update(connection.execute(left).scalars())
    return ids


def progress(connection: Connection, rescoring: Rescoring) -> tuple[int, int]:
    """Say how many runs are re-scored, and of how many."""
    mine = sa.select(sa.func.count()).select_from(rescored_runs).where(rescored_runs.c.rescoring_id == rescoring.id)
    done = int(connection.execute(mine).scalar_one())
    if rescoring.finished_at is not None and rescoring.failure is None:
        return done, done
    matching = sa.select(sa.func.count()).select_from(runs).where(_wanted(rescoring))
    return done, max(done, int(connection.execute(matching).scalar_one()))


def waiting(connection: Connection, *, now: int, only: int | None = None) -> int | None:
    """Find a re-scoring with work left at which nobody is; or `only` this one."""
    statement = _waiting() if only is None else _waiting().where(rescorings.c.id == only)
    return connection.execute(statement, {"now": now}).scalar_one_or_none()


@cache
def _waiting() -> sa.Select[Any]:
    return sa.select(rescorings.c.id).where(_free(NOW)).order_by(rescorings.c.id).limit(1)


def claim(
    connection: Connection, rescoring_id: int, *, owner: str, now: int, lease_until: int, but: str | None = None
) -> bool:
    """Take a re-scoring at which nobody is; False where it is finished, or somebody was faster.

    With `but`, also from whoever has it, unless his name begins so.
    """
    free = sa.and_(rescorings.c.id == rescoring_id, _free(now))
    if but is not None:
        left = sa.and_(rescorings.c.claimed_by.is_not(None), ~rescorings.c.claimed_by.startswith(but, autoescape=True))
        unfinished = sa.and_(rescorings.c.id == rescoring_id, rescorings.c.finished_at.is_(None))
        free = sa.and_(unfinished, sa.or_(_free(now), left))
    values = {"claimed_by": owner, "lease_until": lease_until, "attempts": rescorings.c.attempts + 1}
    return connection.execute(sa.update(rescorings).where(free).values(**values)).rowcount == 1


def renew(connection: Connection, rescoring_id: int, *, owner: str, lease_until: int) -> bool:
    """Say that this one is still at it and gets on; False where another has taken over."""
    held = sa.and_(rescorings.c.id == rescoring_id, rescorings.c.claimed_by == owner)
    values = {"lease_until": lease_until, "attempts": 0}
    return connection.execute(sa.update(rescorings).where(held).values(**values)).rowcount == 1


def release(connection: Connection, owner: str) -> None:
    """Let go of what this one is at, so that it goes on elsewhere or later."""
    held = sa.and_(rescorings.c.claimed_by == owner, rescorings.c.finished_at.is_(None))
    attempts = sa.case((rescorings.c.attempts > 0, rescorings.c.attempts - 1), else_=0)  # this one has not failed
    connection.execute(sa.update(rescorings).where(held).values(claimed_by=None, lease_until=None, attempts=attempts))


def put_off(connection: Connection, rescoring_id: int, *, owner: str, until: int) -> None:
    """Let go of a re-scoring that nobody is to take before `until`."""
    held = sa.and_(rescorings.c.id == rescoring_id, rescorings.c.claimed_by == owner)
    connection.execute(sa.update(rescorings).where(held).values(claimed_by=None, lease_until=until))


def fail(connection: Connection, rescoring_id: int, *, owner: str, failure: str, now: int) -> None:
    """Give a re-scoring up; what it has re-scored stays."""
    held = sa.and_(rescorings.c.id == rescoring_id, rescorings.c.claimed_by == owner)
    values = {"finished_at": now, "failure": failure, "claimed_by": None, "lease_until": None}
    connection.execute(sa.update(rescorings).where(held).values(**values))


def finish(
    connection: Connection, rescoring: Rescoring, totals: RescoringTotals, *, note: str | None, now: int
) -> bool:
    """Say that no run is left; False where more have been requested meanwhile."""
    row = connection.execute(
        sa.select(rescorings.c.since).where(rescorings.c.id == rescoring.id).with_for_update()
    ).one()
    if row.since != rescoring.since:
        return False
    values = {"finished_at": now, "note": note, "claimed_by": None, "lease_until": None, "attempts": 0}
    values["summary"] = json.dumps(totals)
    connection.execute(sa.update(rescorings).where(rescorings.c.id == rescoring.id).values(**values))
    return True


def runs_left(connection: Connection, rescoring: Rescoring, *, after: int, limit: int) -> list[PendingRun]:
    """Read runs that are not re-scored yet, in the order they ran, those with an id above `after`."""
    statement = (
        sa.select(
            runs,
            embedder_findings.c.body.label("embedder"),
            run_probes.c.latencies,
            run_probes.c.paces,
            run_probes.c.failures,
            run_probes.c.unscored,
        )
        .outerjoin(run_probes, run_probes.c.run_id == runs.c.id)
        .outerjoin(run_embedders, run_embedders.c.run_id == runs.c.id)
        .outerjoin(embedder_findings, embedder_findings.c.id == run_embedders.c.finding_id)
        .where(_wanted(rescoring), _not_yet(rescoring.id), runs.c.id > after)
        .order_by(runs.c.id)
        .limit(limit)
    )
    return [
        row_value(
            PendingRun,
            row,
            versions=RunVersions(row.suite_version_id, row.check_version_id, row.retriever_version_id),
            reasons=json.loads(row.reasons) if row.reasons else (),
            embedder=json.loads(row.embedder) if row.embedder else None,
            latencies=row.latencies or b"",
            probes=stored_summary(row.probes, row.figures, row.measured),
        )
        for row in connection.execute(statement)
    ]


_RESCORING = (
    sa.select(rescorings, definitions.c.slug.label("check"), suite_versions.c.hash.label("suite_hash"))
    .join(definitions, definitions.c.id == rescorings.c.check_id)
    .join(suite_versions, suite_versions.c.id == rescorings.c.suite_version_id)
)


def _rescoring(row: Any) -> Rescoring:
    return row_value(Rescoring, row, summary=json.loads(row.summary) if row.summary else None)


def _free(now: Moment) -> sa.ColumnElement[bool]:
    lapsed = sa.or_(rescorings.c.lease_until.is_(None), rescorings.c.lease_until < now)
    return sa.and_(rescorings.c.finished_at.is_(None), lapsed)


def _wanted(rescoring: Rescoring) -> sa.ColumnElement[bool]:
    """Say which runs a re-scoring is of: those that ended, measured or not, since then."""
    ended = sa.and_(
        runs.c.check_id == rescoring.check_id,
        runs.c.status.in_(("finished", "partial")),
        sa.or_(runs.c.aggregates.is_not(None), runs.c.figures.is_not(None)),
    )
    return ended if rescoring.since is None else sa.and_(ended, runs.c.finished_at >= rescoring.since)


def _not_yet(rescoring_id: int) -> sa.ColumnElement[bool]:
    done = sa.exists().where(rescored_runs.c.rescoring_id == rescoring_id, rescored_runs.c.run_id == runs.c.id)
    return ~done


def _left(connection: Connection, rescoring: Rescoring) -> bool:
    statement = sa.select(runs.c.id).where(_wanted(rescoring), _not_yet(rescoring.id)).limit(1)
    return connection.execute(statement).first() is not None
