"""Runs read back: one, those of a check, the newest of every check; how their probes ended, what they amount to.

A run carries its aggregates, so nothing here scans what canaries did: that is in `state_rows`, and numbers over time in
`series`. Until a run ends it is in `open_runs`; `run_endings` writes what is read here.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.base.db.engine import blocks, from_us, row_value, sql_literal, upsert
from app.base.values import ProbeSummary, Value, Verdict
from app.catalog.tables import definitions, suite_versions
from app.records.domain import RunDetails
from app.records.store.encodings import number_at, stored_summary, unpack_latencies, unpack_vector, unpacked_positions
from app.records.store.open_runs import Failure
from app.records.store.ranking_rows import layout_names
from app.records.tables import latest, layouts, rescored_runs, run_notes, run_probes, runs
from app.retrievers.domain.probes import StoredFinding
from app.retrievers.store import embedder_findings, run_embedders
from app.scoring.run_inputs import RunVersions


def is_known(table: sa.FromClause = runs) -> sa.ColumnElement[bool]:
    """Whether the verdict of a run is not unknown; in the order of the index, which else would not be used."""
    return table.c.verdict.in_([sql_literal("healthy"), sql_literal("degraded")])


ENDED = ("finished", "partial", "failed")


class RunRow(Value):
    """A run, whatever has become of it so far."""

    id: int
    check_id: int
    check: str
    scheduled_for: int
    trigger: str
    status: str
    index_version: str | None
    created_at: int
    started_at: int | None
    finished_at: int | None
    suite_version_id: int | None
    check_version_id: int | None
    retriever_version_id: int | None
    suite_hash: str | None
    config_hash: str | None
    layout_id: int | None
    measures_version: str | None
    verdict: str | None
    reasons: list[str]
    total: int | None
    measured: int | None
    failed: int | None
    undefined: int | None
    degraded: int | None
    degraded_positions: bytes | None
    aggregates: Mapping[str, float | None]
    """By name of the layout; None = nothing was measured."""
    embedder: StoredFinding | None
    """Finding about the retriever's embedder; None = it has none."""
    probes: ProbeSummary | None = None
    """How its probes ended and how long they took, as runs show it; None = see `probes_of`."""

    @property
    def versions(self) -> RunVersions | None:
        """The versions of its definitions; None = it has not started."""
        if self.suite_version_id is None or self.check_version_id is None or self.retriever_version_id is None:
            return None
        return RunVersions(
            suite=self.suite_version_id, check=self.check_version_id, retriever=self.retriever_version_id
        )

    @property
    def degraded_places(self) -> list[int]:
        """The places in the suite version of what it calls degraded, all of it measured."""
        places: list[int] = np.frombuffer(self.degraded_positions or b"", dtype="<u4").tolist()
        return places


_RUN = (
    sa.select(
        runs,
        definitions.c.slug.label("check"),
        suite_versions.c.hash.label("suite_hash"),
        layouts.c.measures_version,
        layouts.c.names,
        embedder_findings.c.body.label("embedder"),
    )
    .join(definitions, definitions.c.id == runs.c.check_id)
    .outerjoin(suite_versions, suite_versions.c.id == runs.c.suite_version_id)
    .outerjoin(layouts, layouts.c.id == runs.c.layout_id)
    .outerjoin(run_embedders, run_embedders.c.run_id == runs.c.id)
    .outerjoin(embedder_findings, embedder_findings.c.id == run_embedders.c.finding_id)
)


_RUN_BY_ID = _RUN.where(runs.c.id == sa.bindparam("run"))


def find_run(connection: Connection, run_id: int) -> RunRow | None:
    """Find a run by its id."""
    row = connection.execute(_RUN_BY_ID, {"run": run_id}).one_or_none()
    return _run(row) if row else None


def suites_of(connection: Connection, run_ids: Collection[int]) -> dict[int, int]:
    """Return the ids of the suites of runs, by run id; those that have not started are left out."""
    statement = sa.select(runs.c.id, suite_versions.c.suite_id).join(
        suite_versions, suite_versions.c.id == runs.c.suite_version_id
    )
    rows = connection.execute(statement.where(runs.c.id.in_(list(run_ids))))
    return {row.id: row.suite_id for row in rows}


def find_runs(connection: Connection, run_ids: Iterable[int]) -> dict[int, RunRow]:
    """Find a few hundred runs at most by their ids; those that are not there are left out."""
    rows = connection.execute(_RUN.where(runs.c.id.in_(sorted(set(run_ids)))))
    return {row.id: _run(row) for row in rows}


class NoteRow(Value):
    """What a person wrote of a run."""

    text: str
    by: str
    at: int


def notes_of(connection: Connection, run_ids: Collection[int]) -> dict[int, NoteRow]:
    """Return the notes of a few hundred runs at most, by run id; those without one are left out."""
    rows = connection.execute(_NOTES, {"runs": list(run_ids)})
    return {row.run_id: NoteRow(text=row.text, by=row.written_by, at=row.at) for row in rows}


_NOTES = sa.select(run_notes).where(run_notes.c.run_id.in_(sa.bindparam("runs", expanding=True)))


def save_note(connection: Connection, run_id: int, note: NoteRow) -> None:
    """Write the note of a run in place of the one it has."""
    upsert(connection, run_notes, ("run_id",), run_id=run_id, text=note.text, written_by=note.by, at=note.at)


def delete_note(connection: Connection, run_id: int) -> None:
    """Delete the note of a run, if it has one."""
    connection.execute(sa.delete(run_notes).where(run_notes.c.run_id == run_id))


def list_runs(
    connection: Connection,
    check_id: int,
    *,
    before: int | None = None,
    limit: int = 50,
    rescoring_id: int | None = None,
) -> list[RunRow]:
    """List the runs of a check, or those of them a re-scoring has, newest first; those with an id below `before`."""
    statement = _RUN.where(runs.c.check_id == check_id).order_by(runs.c.id.desc()).limit(limit)
    if rescoring_id is not None:
        mine = sa.and_(rescored_runs.c.run_id == runs.c.id, rescored_runs.c.rescoring_id == rescoring_id)
        statement = statement.join(rescored_runs, mine)
    if before is not None:
        statement = statement.where(runs.c.id < before)
    return [_run(row) for row in connection.execute(statement)]


def ended_runs(connection: Connection, check_id: int, *, before: int | None = None, limit: int) -> list[RunRow]:
    """Read the newest ended runs of a check, oldest first: the window of its rules."""
    statement = _ENDED if before is None else _ENDED.where(runs.c.id < before)
    rows = connection.execute(statement, {"check": check_id, "count": limit}).all()
    return [_run(row) for row in reversed(rows)]


_ENDED = (
    _RUN.where(runs.c.check_id == sa.bindparam("check"), runs.c.status.in_(ENDED))
    .order_by(runs.c.id.desc())  # the order they ran in, whatever the clocks of replicas say
    .limit(sa.bindparam("count", type_=sa.Integer))
)


def newest_ended(connection: Connection, check_id: int) -> RunRow | None:
    """Read the newest ended run of a check; None before the first."""
    mine = _RUN.join(latest, latest.c.run_id == runs.c.id).where(latest.c.check_id == check_id)
    row = connection.execute(mine).one_or_none()
    return _run(row) if row else None


def newest_healthy(connection: Connection, check_id: int) -> RunRow | None:
    """Read the newest healthy run of a check; None = there is none."""
    mine = _RUN.where(runs.c.check_id == check_id, runs.c.verdict == Verdict.HEALTHY)
    row = connection.execute(mine.order_by(runs.c.id.desc()).limit(1)).one_or_none()
    return _run(row) if row else None


def newest_ended_of_all(connection: Connection) -> list[RunRow]:
    """Read the newest ended run of every check that has one."""
    return [_run(row) for row in connection.execute(_RUN.join(latest, latest.c.run_id == runs.c.id))]


def last_completed(connection: Connection, check_id: int, *, before: int) -> int | None:
    """Return when a run of the check last completed, whatever its verdict.

    Runs that ended later than `before` are left out: a clock that was ahead wrote them.
    """
    newest: int | None = connection.execute(_LAST_COMPLETED, {"check": check_id, "before": before}).scalar_one()
    return newest


_LAST_COMPLETED = sa.select(sa.func.max(runs.c.finished_at)).where(
    runs.c.check_id == sa.bindparam("check"),
    runs.c.status.in_([sql_literal("finished"), sql_literal("partial")]),  # the order of ix_runs_completed
    runs.c.finished_at <= sa.bindparam("before"),
)


def newest_known_id(connection: Connection, check_id: int, *, before: int | None = None) -> int | None:
    """Give the newest run of a check whose verdict is not unknown, or the newest of those with a smaller id."""
    statement = _NEWEST_KNOWN if before is None else _NEWEST_KNOWN.where(runs.c.id < before)
    return connection.execute(statement, {"check": check_id}).scalar_one_or_none()


_NEWEST_KNOWN = sa.select(sa.func.max(runs.c.id)).where(runs.c.check_id == sa.bindparam("check"), is_known())


def newest_known(connection: Connection, check_id: int) -> RunRow | None:
    """Find the newest run of a check whose verdict is not unknown."""
    statement = _RUN.where(runs.c.check_id == check_id, is_known()).order_by(runs.c.id.desc()).limit(1)
    row = connection.execute(statement).one_or_none()
    return _run(row) if row else None


def latest_bodies(connection: Connection, check_ids: Sequence[int] | None = None) -> dict[int, tuple[int, RunDetails]]:
    """Read the newest ended run of every check, or of a few hundred at most, in full: check id to (run id, body)."""
    statement = sa.select(latest)
    if check_ids is not None:
        statement = statement.where(latest.c.check_id.in_(list(check_ids)))
    return {row.check_id: (row.run_id, _latest(row.body)) for row in connection.execute(statement)}


_latest = msgspec.json.Decoder().decode
"""It names every degraded canary: with json this took a third of the time of a check's health."""


def probes_of(connection: Connection, run_id: int) -> tuple[NDArray[np.float16], dict[int, Failure]]:
    """Read how the probes of a run ended: latencies in seconds and failures, by position."""
    row = connection.execute(sa.select(run_probes).where(run_probes.c.run_id == run_id)).one_or_none()
    return (np.zeros(0, dtype=np.float16), {}) if row is None else _probes(row)


def probes_of_runs(
    connection: Connection, run_ids: Sequence[int]
) -> dict[int, tuple[NDArray[np.float16], dict[int, Failure]]]:
    """Read the same of a few runs, by run id; those without probes are left out."""
    rows = connection.execute(sa.select(run_probes).where(run_probes.c.run_id.in_(run_ids))) if run_ids else ()
    return {row.run_id: _probes(row) for row in rows}


def _probes(row: Any) -> tuple[NDArray[np.float16], dict[int, Failure]]:
    return unpack_latencies(row.latencies, row.paces), _failures(row.failures)


def unmeasured_at(connection: Connection, run_ids: Sequence[int]) -> dict[int, tuple[Collection[int], Collection[int]]]:
    """Read by run id at which positions probes failed and relevance was not measured; no more of probes is read."""
    columns = (run_probes.c.run_id, run_probes.c.failures, run_probes.c.unscored)
    places: dict[int, tuple[Collection[int], Collection[int]]] = {}
    for block in blocks(run_ids):
        for run_id, failures, unscored in connection.execute(sa.select(*columns).where(run_probes.c.run_id.in_(block))):
            failed = msgspec.msgpack.decode(failures, type=dict[int, msgspec.Raw]) if failures else {}
            places[run_id] = failed.keys(), frozenset(unpacked_positions(unscored))
    return places


def unscored_at(connection: Connection, run_id: int) -> list[int]:
    """List the positions at which a run could not measure relevance: there the states have that of an earlier run."""
    statement = sa.select(run_probes.c.unscored).where(run_probes.c.run_id == run_id)
    return unpacked_positions(connection.execute(statement).scalar_one_or_none())


def run_times(connection: Connection, run_ids: Sequence[int]) -> dict[int, int]:
    """Give when runs ended (or, while they go on, were created)."""
    at = sa.func.coalesce(runs.c.finished_at, runs.c.created_at)
    times: dict[int, int] = {}
    for block in blocks(run_ids):
        times.update(connection.execute(sa.select(runs.c.id, at).where(runs.c.id.in_(block))).all())
    return times


def _run(row: Any) -> RunRow:
    values = {name: getattr(row, name) for name in RunRow.__struct_fields__ if name not in _PACKED}
    vector = unpack_vector(row.aggregates, row.figures)
    return RunRow(
        reasons=json.loads(row.reasons) if row.reasons else [],
        aggregates=named_aggregates(_names(row.names), vector) if vector else {},
        embedder=json.loads(row.embedder) if row.embedder else None,
        probes=stored_summary(row.probes, row.figures, row.measured),
        **values,
    )


@lru_cache(maxsize=256)
def _names(text: str) -> tuple[str, ...]:
    """Names of a layout, which many runs share."""
    return tuple(json.loads(text))


_PACKED = {"reasons", "aggregates", "embedder", "probes"}


def named_aggregates(names: Sequence[str], vector: bytes) -> dict[str, float | None]:
    """Give the numbers of a run's vector their names; None = nothing was measured."""
    return {
        name: None if number != number else number  # noqa: PLR0124 - NaN: nothing measured
        for name, number in zip(names, np.frombuffer(vector).tolist(), strict=True)
    }


class PreviousRun(NamedTuple):
    """The newest run with a known verdict before another one."""

    id: int
    suite_version_id: int | None
    check_version_id: int | None
    retriever_version_id: int | None


def previous_known_runs(connection: Connection, run_ids: Collection[int]) -> dict[int, PreviousRun]:
    """Return the newest run with a known verdict before each run, by run id; the first of a check has none."""
    earlier = runs.alias("earlier")
    mine = sa.and_(earlier.c.check_id == runs.c.check_id, is_known(earlier), earlier.c.id < runs.c.id)
    newest = sa.select(sa.func.max(earlier.c.id)).where(mine).correlate(runs).scalar_subquery()
    before = runs.alias("before")
    columns = [before.c.id.label("before"), *(before.c[name] for name in PreviousRun._fields[1:])]
    statement = sa.select(runs.c.id, *columns)
    statement = statement.select_from(runs.join(before, before.c.id == newest)).where(runs.c.id.in_(sorted(run_ids)))
    return {number: PreviousRun(*before) for number, *before in connection.execute(statement)}


class Part(msgspec.Struct, frozen=True):
    """Scores of the canaries of one category or tag in a run; None = nothing was measured."""

    canaries: int
    measured: int
    coverage: float | None = None


class Slices(msgspec.Struct, frozen=True):
    """The parts of a run's body that summaries use."""

    categories: dict[str, Part] = {}
    tags: dict[str, Part] = {}


class Newest(Value):
    """The newest ended run of a check with its parts."""

    run: RunRow
    slices: Slices


def newest_runs(connection: Connection) -> dict[int, Newest]:
    """Return the newest ended run of every check that has one, by check id."""
    bodies = {row.check_id: row for row in connection.execute(sa.select(latest))}
    rows = newest_ended_of_all(connection)
    return {
        run.check_id: Newest(run=run, slices=msgspec.json.decode(bodies[run.check_id].body, type=Slices))
        for run in rows
        if run.check_id in bodies
    }


class RecentRun(Value):
    """An ended run of a check's recent ones."""

    id: int
    verdict: str
    """The status where there is no verdict: the run could not start."""
    coverage: float | None
    """None = not measured."""
    finished_at: datetime | None = None


def recent_runs(connection: Connection, check_ids: Sequence[int], *, limit: int) -> dict[int, list[RecentRun]]:
    """Return the newest `limit` ended runs of these checks with their coverage, oldest first, by check id."""
    found: dict[int, list[RecentRun]] = {check_id: [] for check_id in check_ids}
    places: dict[int | None, int | None] = {None: None}  # a run that could not start has no layout
    for block in blocks(check_ids, _TOGETHER):
        for row in connection.execute(_newest_of(len(block), limit), {f"c{n}": one for n, one in enumerate(block)}):
            if row.layout_id not in places:
                names = layout_names(connection, row.layout_id)
                places[row.layout_id] = names.index("coverage") if "coverage" in names else None
            coverage = number_at(places[row.layout_id], row.aggregates, row.figures)
            verdict = row.verdict or row.status
            at = None if row.finished_at is None else from_us(row.finished_at)
            ended = RecentRun(id=row.id, verdict=verdict, coverage=coverage, finished_at=at)
            found[row.check_id].append(ended)
    return {check_id: newest[::-1] for check_id, newest in found.items()}


_TOGETHER = 50
"""Most selects in one statement; SQLite allows 500."""


@lru_cache(maxsize=2 * _TOGETHER)
def _newest_of(count: int, limit: int) -> sa.CompoundSelect[Any]:
    # One round trip, each part along ix_runs_check_id; kept, for making it takes longer than running it.
    parts = []
    for number in range(count):
        mine = sa.and_(runs.c.check_id == sa.bindparam(f"c{number}"), runs.c.status.in_(ENDED))
        names = ("check_id", "id", "verdict", "status", "finished_at", "layout_id", "aggregates", "figures")
        newest = sa.select(*[runs.c[name] for name in names]).where(mine).order_by(runs.c.id.desc()).limit(limit)
        parts.append(sa.select(newest.subquery()))
    return sa.union_all(*parts)


class ProbedRun(Value):
    """An ended run with its failed probes."""

    id: int
    finished_at: int
    suite_version_id: int | None
    failures: Mapping[int, Failure] | None
    """By position; None = it ended without sending probes."""


def newest_probes(connection: Connection, check_id: int, *, limit: int) -> list[ProbedRun]:
    """Return the newest ended runs of a check with their failed probes, oldest first."""
    statement = (
        sa.select(runs.c.id, runs.c.finished_at, runs.c.suite_version_id, run_probes.c.run_id, run_probes.c.failures)
        .outerjoin(run_probes, run_probes.c.run_id == runs.c.id)
        .where(runs.c.check_id == check_id, runs.c.status.in_(ENDED))
        .order_by(runs.c.id.desc())
        .limit(limit)
    )
    return [
        row_value(ProbedRun, row, failures=None if row.run_id is None else _failures(row.failures))
        for row in reversed(connection.execute(statement).all())
    ]


class Unmeasured(Value):
    """Missing measurements of a run, by position of the canary."""

    failures: Mapping[int, Failure]
    unscored: frozenset[int]
    """Positions without a measured relevance; their states have that of an earlier run."""


def unmeasured(connection: Connection, run_ids: Collection[int]) -> dict[int, Unmeasured]:
    """Return the missing measurements of a few hundred runs at most."""
    statement = sa.select(run_probes.c.run_id, run_probes.c.failures, run_probes.c.unscored)
    rows = {row.run_id: row for row in connection.execute(statement.where(run_probes.c.run_id.in_(sorted(run_ids))))}
    nothing = Unmeasured(failures={}, unscored=frozenset())
    found = {
        run_id: Unmeasured(failures=_failures(row.failures), unscored=frozenset(unpacked_positions(row.unscored)))
        for run_id, row in rows.items()
    }
    return {run_id: found.get(run_id, nothing) for run_id in run_ids}


def _failures(packed: bytes | None) -> dict[int, Failure]:
    return msgspec.msgpack.decode(packed, type=dict[int, Failure]) if packed else {}
