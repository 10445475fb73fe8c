"""States, rankings and runs read back, with how probes ended, what rankings scored, and the past of baselines.

Nothing here scans raw history: runs carry their aggregates, states say how long they held. Numbers over time are read
by `series`; `run_endings` writes what is read here.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.base.db.engine import blocks, sql_literal
from app.base.values import ProbeSummary
from app.catalog.store import frozen_version
from app.catalog.tables import definitions, suite_versions
from app.records.domain import RunDetails
from app.records.store.encodings import stored_summary, unpack_latencies, unpack_vector, unpacked_positions
from app.records.store.open_runs import Failure
from app.records.tables import (
    latest,
    layouts,
    rescored_runs,
    run_probes,
    runs,
    scores,
    states,
    vectors,
)
from app.retrievers.domain.probes import StoredFinding
from app.retrievers.store import embedder_findings, run_embedders
from app.scoring.evaluation import MISSING
from app.scoring.measures import MEASURES_VERSION, Measure
from app.scoring.run_outcomes import RunVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """What held for a canary from `first_run` until `last_run` (None: it still does)."""

    id: int
    canary_id: int
    canary_version_id: int
    ranking_id: int
    layout_id: int
    reasons: int
    top_score: float | None
    first_run: int
    last_run: int | None
    matched: bytes
    vector: bytes


_STATE = (
    sa.select(states, scores.c.matched, vectors.c.body.label("vector"))
    .join(
        scores,
        sa.and_(
            scores.c.ranking_id == states.c.ranking_id,
            scores.c.canary_version_id == states.c.canary_version_id,
            scores.c.layout_id == states.c.layout_id,
        ),
    )
    .join(vectors, vectors.c.id == scores.c.vector_id)
)


def states_at(
    connection: Connection, check_id: int, run_id: int, *, only_degraded: bool = False
) -> dict[int, StateRow]:
    """Read what held for each canary of a check at a run, by canary id."""
    statement = _STATE.where(states.c.reasons != 0) if only_degraded else _STATE
    return {row.canary_id: _state(row) for row in held_at(connection, statement, check_id, run_id)}


def held_at(connection: Connection, statement: sa.Select[Any], check_id: Any, run_id: int) -> Iterator[sa.Row[Any]]:
    """Yield what `statement` selects of the states of a check that held at a run."""
    # Two statements, each along an index, where one for either would read every state there ever was.
    for holding in (states.c.last_run.is_(None), states.c.last_run >= run_id):
        mine = (states.c.check_id == check_id, states.c.first_run <= run_id, holding)
        yield from connection.execute(statement.where(*mine))


def states_of(connection: Connection, check_id: int, run_id: int, canary_ids: Sequence[int]) -> dict[int, StateRow]:
    """Read the same of a few of its canaries."""
    statement = _STATE.where(
        states.c.check_id == check_id,
        states.c.canary_id.in_(canary_ids),
        states.c.first_run <= run_id,
        sa.or_(states.c.last_run.is_(None), states.c.last_run >= run_id),
    )
    return {row.canary_id: _state(row) for row in connection.execute(statement)} if canary_ids else {}


def all_reasons_at(
    connection: Connection, check_id: int, run_id: int, *, only_degraded: bool = False
) -> dict[int, int]:
    """Read why canaries of a check were degraded at a run, as bits by canary id; 0 = it was healthy."""
    statement = sa.select(states.c.canary_id, states.c.reasons)
    if only_degraded:
        statement = statement.where(states.c.reasons != 0)
    return dict(map(tuple, held_at(connection, statement, check_id, run_id)))


def rankings_at(
    connection: Connection, check_id: int, run_id: int, canary_ids: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Read what canaries of a check had at a run: (ranking id, canary version id) by canary id."""
    held: dict[int, tuple[int, int]] = {}
    for block in blocks(canary_ids):
        statement = sa.select(states.c.canary_id, states.c.ranking_id, states.c.canary_version_id).where(
            states.c.check_id == check_id,
            states.c.canary_id.in_(block),
            states.c.first_run <= run_id,
            sa.or_(states.c.last_run.is_(None), states.c.last_run >= run_id),
        )
        held.update((canary, (ranking, version)) for canary, ranking, version in connection.execute(statement))
    return held


def timeline(connection: Connection, check_id: int, canary_id: int, *, limit: int = 200) -> list[StateRow]:
    """Read the newest states a canary went through, newest first."""
    statement = _STATE.where(states.c.check_id == check_id, states.c.canary_id == canary_id)
    rows = connection.execute(statement.order_by(states.c.first_run.desc()).limit(limit))
    return [_state(row) for row in rows]


def _state(row: Any) -> StateRow:
    return StateRow(**{name: getattr(row, name) for name in StateRow.__dataclass_fields__})


def is_known(table: sa.FromClause = runs) -> sa.ColumnElement[bool]:
    """Whether the verdict of a run is not unknown; in the order of the index, which else would not be used."""
    return table.c.verdict.in_([sql_literal("healthy"), sql_literal("degraded")])


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


_FOR_EVER = 2**62


Floats = NDArray[np.float64]


Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanQuery:
    """Whose past is wanted, and what of it."""

    version_ids: Sequence[int]
    """The canaries, by the versions in force: what another version did is no past of this one."""
    k: int
    """What was judged by another k, or with measures of other definitions, is another past."""
    names: Sequence[str]
    """The measures wanted, by the names layouts have for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpans:
    """What N canaries did in R runs, as S spans in which the same held.

    `places` (S,) says whose span it is, `starts` and `stops` (S,) which runs it covers, counted along the runs, the
    last one not included; `values` (S, M) has the measures wanted, NaN = undefined.
    """

    places: NDArray[np.intp]
    starts: NDArray[np.intp]
    stops: NDArray[np.intp]
    values: Floats
    failed: NDArray[np.bool_]
    """(R, N): the probe of this canary in this run was no measurement."""

    def matrix(self, column: int) -> Floats:
        """Return one measure of every canary in every run, (R, N); NaN = not measured, or not of this version."""
        count, canaries = self.failed.shape
        flat = np.full(canaries * count, np.nan)
        lengths = self.stops - self.starts
        ends = np.cumsum(lengths)
        within = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
        flat[np.repeat(self.places * count + self.starts, lengths) + within] = np.repeat(
            self.values[:, column], lengths
        )
        spread: Floats = np.ascontiguousarray(flat.reshape(canaries, count).T)
        spread[self.failed] = np.nan
        return spread

    def sums(self) -> tuple[Floats, Floats]:
        """Sum each measure of each canary over the runs that have it, and count these: (N, M) both."""
        canaries = self.failed.shape[1]
        before = np.vstack([np.zeros((1, canaries), dtype=np.int64), np.cumsum(self.failed, axis=0)])
        lost = before[self.stops, self.places] - before[self.starts, self.places]
        weights = (self.stops - self.starts - lost).astype(np.float64)
        sums, counts = (np.zeros((canaries, self.values.shape[1])) for _ in range(2))
        for column, values in enumerate(self.values.T):
            measured = ~np.isnan(values)
            places, weight = self.places[measured], weights[measured]
            counts[:, column] = np.bincount(places, weights=weight, minlength=canaries)
            sums[:, column] = np.bincount(places, weights=weight * values[measured], minlength=canaries)
        return sums, counts


def read_state_spans(connection: Connection, check_id: int, run_ids: Sequence[int], asked: SpanQuery) -> StateSpans:
    """Read what canaries did in these runs of a check, which are in order."""
    ids = np.asarray(run_ids, dtype=np.int64)
    place_of = {version_id: place for place, version_id in enumerate(asked.version_ids)}
    rows = list(_spans(connection, check_id, ids, asked.k, place_of)) if len(ids) else []
    places, first, last, layout, vector, reasons = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    values = _values(connection, layout, vector, asked)
    for column in (place for place, name in enumerate(asked.names) if name == str(Measure("Hit", asked.k))):
        values[(reasons & MISSING != 0) & (values[:, column] > 0), column] = 0  # its expected text is gone
    return StateSpans(
        places=places.astype(np.intp),
        starts=np.searchsorted(ids, first, side="left"),
        stops=np.searchsorted(ids, last, side="right"),
        values=values,
        failed=_failed(connection, ids, place_of),
    )


def _spans(
    connection: Connection, check_id: int, wanted: Whole, k: int, place_of: dict[int, int]
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Return the states that overlap: (place, first run, last run, layout, vector, reasons)."""
    layouts = _layouts_kept(connection, k)
    scored = sa.and_(
        scores.c.ranking_id == states.c.ranking_id,
        scores.c.canary_version_id == states.c.canary_version_id,
        scores.c.layout_id == states.c.layout_id,
    )
    columns = (states.c.canary_version_id, states.c.first_run, states.c.last_run, states.c.layout_id)
    # Two looks, each along an index, where one look for either would read every state there ever was.
    for holding in (states.c.last_run.is_(None), states.c.last_run >= int(wanted[0])):
        statement = (
            sa.select(*columns, scores.c.vector_id, states.c.reasons)
            .join(scores, scored)
            .where(states.c.check_id == check_id, states.c.first_run <= int(wanted[-1]), holding)
        )
        for version_id, first, last, layout, vector, reasons in connection.execute(statement):
            if version_id in place_of and layout in layouts:
                yield place_of[version_id], first, _FOR_EVER if last is None else last, layout, vector, reasons


def _layouts_kept(connection: Connection, k: int) -> set[int]:
    """Return the layouts of vectors judged with this k and the current definitions."""
    same = layouts.c.measures_version == MEASURES_VERSION
    rows = connection.execute(sa.select(layouts.c.id, layouts.c.yardstick).where(same))
    return {layout for layout, yardstick in rows if yardstick.startswith(f"k={k} ")}


def _values(connection: Connection, layout: Whole, vector: Whole, asked: SpanQuery) -> Floats:
    """Return the given measures of each span; NaN = its layout lacks the measure."""
    values = np.full((len(vector), len(asked.names)), np.nan)
    for layout_id in np.unique(layout).tolist():
        names = connection.execute(sa.select(layouts.c.names).where(layouts.c.id == layout_id)).scalar_one()
        held = {name: column for column, name in enumerate(json.loads(names))}
        mine = np.flatnonzero(layout == layout_id)
        distinct, inverse = np.unique(vector[mine], return_inverse=True)
        whole = np.frombuffer(b"".join(_vectors(connection, distinct.tolist()))).reshape(len(distinct), -1)
        for to, name in enumerate(asked.names):
            if name in held:
                values[mine, to] = whole[inverse, held[name]]
    return values


def _vectors(connection: Connection, ids: Sequence[int]) -> list[bytes]:
    found: dict[int, bytes] = {}
    for block in blocks(ids):
        held = sa.select(vectors.c.id, vectors.c.body).where(vectors.c.id.in_(block))
        found.update(connection.execute(held).all())
    return [found[one] for one in ids]


def _failed(connection: Connection, wanted: Whole, place_of: dict[int, int]) -> NDArray[np.bool_]:
    """Return the probes without a measurement; most runs have none."""
    failed = np.zeros((len(wanted), len(place_of)), dtype=np.bool_)
    suites: dict[int, list[int | None]] = {}
    for block in blocks(wanted.tolist()):
        statement = (
            sa.select(run_probes.c.run_id, run_probes.c.failures, runs.c.suite_version_id)
            .join(runs, runs.c.id == run_probes.c.run_id)
            .where(run_probes.c.run_id.in_(block), run_probes.c.failures.is_not(None))
        )
        for run_id, failures, suite in connection.execute(statement).all():
            if suite not in suites:
                suites[suite] = [
                    place_of.get(version_id) for _, version_id in frozen_version(connection, suite).members
                ]
            positions = msgspec.msgpack.decode(failures, type=dict[int, msgspec.Raw])
            places = [place for at in positions if (place := suites[suite][at]) is not None]
            failed[np.searchsorted(wanted, run_id), places] = True
    return failed
