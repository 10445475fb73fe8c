"""Runs read back, with how their probes ended and what rankings scored.

Nothing here scans raw history: runs carry their aggregates, states say how long they held. Numbers over time are
read by series; writing is recording's.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.base.db.engine import blocks, sql_literal
from app.base.db.packed import stored_summary, unpack_latencies, unpack_vector, unpacked_positions
from app.base.values import Ranking
from app.catalog.tables import definitions, suite_versions
from app.detection.store.known_runs import is_known
from app.records.domain.run_views import RunDetails
from app.records.rescoring_tables import rescored_runs
from app.records.run_tables import runs
from app.records.store.ranking_rows import load_rankings
from app.records.store.shards import Failure
from app.records.tables import latest, layouts, run_probes, scores, vectors
from app.retrievers.domain.views import ProbeSummary, StoredFinding
from app.retrievers.tables import embedder_findings, run_embedders
from app.scoring.run_inputs import RunVersions

ENDED = ("finished", "partial", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
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


def latest_body(connection: Connection, check_id: int) -> tuple[int, RunDetails] | None:
    """Read the newest ended run of a check in full: its id and body."""
    row = connection.execute(sa.select(latest).where(latest.c.check_id == check_id)).one_or_none()
    return (row.run_id, _latest(row.body)) if row else None


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
    failures = msgspec.msgpack.decode(row.failures, type=dict[int, Failure]) if row.failures else {}
    return unpack_latencies(row.latencies, row.paces), failures


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


def read_rankings(connection: Connection, ranking_ids: Sequence[int]) -> dict[int, Ranking]:
    """Read rankings by id."""
    return load_rankings(connection, ranking_ids)


def scores_of(
    connection: Connection, pairs: Iterable[tuple[int, int]], layout: int
) -> dict[tuple[int, int], tuple[bytes, bytes]]:
    """Read what rankings scored: `matched` and vector by (ranking id, canary version id), those that are there."""
    ordered = sorted(set(pairs))
    scored: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    for block in blocks(ordered, 200):  # bound twice, and the databases try every combination
        statement = (
            sa.select(scores.c.ranking_id, scores.c.canary_version_id, scores.c.matched, vectors.c.body)
            .join(vectors, vectors.c.id == scores.c.vector_id)
            .where(
                scores.c.ranking_id.in_([ranking for ranking, _ in block]),
                scores.c.canary_version_id.in_([version for _, version in block]),
                scores.c.layout_id == layout,
            )
        )
        for ranking, version, matched, vector in connection.execute(statement):
            scored[ranking, version] = matched, vector
    return scored


def layout_names(connection: Connection, layout: int) -> list[str]:
    """Read the names of the numbers in vectors of a layout."""
    return list(json.loads(connection.execute(sa.select(layouts.c.names).where(layouts.c.id == layout)).scalar_one()))


def run_times(connection: Connection, run_ids: Sequence[int]) -> dict[int, int]:
    """Give when runs ended (or, while they go on, were created)."""
    at = sa.func.coalesce(runs.c.finished_at, runs.c.created_at)
    times: dict[int, int] = {}
    for block in blocks(run_ids):
        times.update(connection.execute(sa.select(runs.c.id, at).where(runs.c.id.in_(block))).all())
    return times


def _run(row: Any) -> RunRow:
    values = {name: getattr(row, name) for name in RunRow.__dataclass_fields__ if name not in _PACKED}
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
