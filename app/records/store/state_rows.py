"""States of canaries read back: what held at a run, what holds now, since when, and the past that baselines learn of.

A state is a row from the run it began with to the last run in which it held, so nothing here scans history run by run.
`run_endings` writes states; the rankings and scores they name are in `ranking_rows`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.base.db.engine import blocks, cached_of_run, hold_content, row_value
from app.base.db.rows import numbers
from app.base.values import Value, field
from app.catalog.store import frozen_version
from app.catalog.tables import canaries
from app.records.store.ranking_rows import layout_names
from app.records.store.run_rows import RunRow, probes_of, unscored_at
from app.records.tables import layouts, rankings, run_probes, runs, scores, states, vectors
from app.scoring.evaluation import MISSING
from app.scoring.measures import MEASURES_VERSION, Measure

_PAIRS = 10_000
_WIDE = 400
_READ_AT_ONCE = 500
"""States: fewer calls than one by one, and few are in memory twice."""
_FOR_EVER = 2**62


Floats = NDArray[np.float64]


Whole = NDArray[np.int64]


class StateRow(Value):
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


_SCORES = sa.and_(
    scores.c.ranking_id == states.c.ranking_id,
    scores.c.canary_version_id == states.c.canary_version_id,
    scores.c.layout_id == states.c.layout_id,
)
"""What the ranking of a state scored."""
_STATE = (
    sa.select(states, scores.c.matched, vectors.c.body.label("vector"))
    .join(scores, _SCORES)
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
    statement = _STATE.where(_held_for(canary_ids, check_id, run_id))
    return {row.canary_id: _state(row) for row in connection.execute(statement)} if canary_ids else {}


def all_reasons_at(
    connection: Connection, check_id: int, run_id: int, *, only_degraded: bool = False
) -> dict[int, int]:
    """Read why canaries of a check were degraded at an ended run, as bits by canary id; 0 = it was healthy."""
    statement = sa.select(states.c.canary_id, states.c.reasons)
    if only_degraded:
        return dict(map(tuple, held_at(connection, statement.where(states.c.reasons != 0), check_id, run_id)))

    def read() -> tuple[dict[int, int], int]:
        found = dict(map(tuple, held_at(connection, statement, check_id, run_id)))
        return found, _REASON_BYTES * len(found)

    return cached_of_run(connection, ("reasons", check_id, run_id), read)


_REASON_BYTES = 64


def versions_at(connection: Connection, check_id: int, run_id: int) -> dict[int, int]:
    """Read which version of each measured canary a run of a check judged, by canary id."""
    statement = sa.select(states.c.canary_id, states.c.canary_version_id)
    return dict(map(tuple, held_at(connection, statement, check_id, run_id)))


def rankings_at(
    connection: Connection, check_id: int, run_id: int, canary_ids: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Read what canaries of a check had at a run: (ranking id, canary version id) by canary id."""
    held: dict[int, tuple[int, int]] = {}
    for block in blocks(canary_ids):
        columns = (states.c.canary_id, states.c.ranking_id, states.c.canary_version_id)
        statement = sa.select(*columns).where(_held_for(block, check_id, run_id))
        held.update((canary, (ranking, version)) for canary, ranking, version in connection.execute(statement))
    return held


def vectors_at(
    connection: Connection, check_id: int, run_id: int, canary_ids: Sequence[int]
) -> dict[int, tuple[int, int, bytes]]:
    """Read what canaries of a check scored at a run: (canary version id, layout id, measures) by canary id."""
    held: dict[int, tuple[int, int, bytes]] = {}
    columns = (states.c.canary_id, states.c.canary_version_id, states.c.layout_id, vectors.c.body)
    statement = sa.select(*columns).join(scores, _SCORES).join(vectors, vectors.c.id == scores.c.vector_id)
    for block in blocks(canary_ids):
        rows = connection.execute(statement.where(_held_for(block, check_id, run_id)))
        held.update((canary, (version, layout, body)) for canary, version, layout, body in rows)
    return held


def _held_for(canary_ids: Sequence[int], check_id: int, run_id: int) -> sa.ColumnElement[bool]:
    """Whether a state of these few canaries of a check held at a run."""
    whose = sa.and_(states.c.check_id == check_id, states.c.canary_id.in_(canary_ids))
    return sa.and_(
        whose, states.c.first_run <= run_id, sa.or_(states.c.last_run.is_(None), states.c.last_run >= run_id)
    )


def timeline(connection: Connection, check_id: int, canary_id: int, *, limit: int = 200) -> list[StateRow]:
    """Read the newest states a canary went through, newest first."""
    statement = _STATE.where(states.c.check_id == check_id, states.c.canary_id == canary_id)
    rows = connection.execute(statement.order_by(states.c.first_run.desc()).limit(limit))
    return [_state(row) for row in rows]


def _state(row: Any) -> StateRow:
    return row_value(StateRow, row)


class OpenState(msgspec.Struct, frozen=True, gc=False):
    """What holds now for a canary of a check; a struct, because a run makes one for each canary."""

    id: int
    canary_version_id: int
    ranking_id: int
    ranking_hash: bytes
    content_hash: bytes | None
    first_run: int
    layout_id: int
    reasons: int
    top_score: float | None
    vector: bytes


def open_states(connection: Connection, check_id: int) -> dict[int, OpenState]:
    """Read what holds now, by canary id."""
    parts = connection.execute(_OPEN_STATES, {"check": check_id}).partitions(_READ_AT_ONCE)
    distinct: dict[bytes, bytes] = {}  # most canaries score as others do, and a vector is half of what is read
    held_by_canary: dict[int, OpenState] = {}
    for canary_id, *held in chain.from_iterable(parts):
        held[-1] = distinct.setdefault(held[-1], held[-1])
        held_by_canary[canary_id] = OpenState(*held)
    return held_by_canary


_OPEN_STATES = (
    sa.select(
        states.c.canary_id,
        states.c.id,
        states.c.canary_version_id,
        states.c.ranking_id,
        rankings.c.hash,
        rankings.c.content_hash,
        states.c.first_run,
        states.c.layout_id,
        states.c.reasons,
        states.c.top_score,
        vectors.c.body,
    )
    .join(rankings, rankings.c.id == states.c.ranking_id)
    .join(scores, _SCORES)
    .join(vectors, vectors.c.id == scores.c.vector_id)
    .where(states.c.check_id == sa.bindparam("check"), states.c.last_run.is_(None))
)


def rankings_lately(connection: Connection, check_id: int, canary_ids: Sequence[int]) -> dict[int, list[int]]:
    """Read the rankings that canaries had before the one they have, the newest two, by canary id; they are held."""
    hold_content(connection)  # the states that keep them may be just old enough for retention
    found: dict[int, list[int]] = {}
    for block in blocks(canary_ids):
        for canary_id, *ranking_ids in connection.execute(_LATELY, {"check": check_id, "canaries": block}):
            found[canary_id] = [one for one in ranking_ids if one is not None]
    return found


_MINE = sa.select(states.c.ranking_id).where(
    states.c.check_id == sa.bindparam("check"), states.c.canary_id == canaries.c.id
)


_LATELY = sa.select(
    canaries.c.id,
    *(_MINE.order_by(states.c.first_run.desc()).limit(1).offset(back).scalar_subquery() for back in (1, 2)),
).where(canaries.c.id.in_(sa.bindparam("canaries", expanding=True)))
"""Along ix_states_timeline, however many states a canary has had."""


def whole_rankings(connection: Connection, check_id: int, canary_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Read the newest ranking and version of canaries in a state that is not `missing`, by canary id."""
    found: dict[int, tuple[int, int]] = {}
    mine = sa.and_(states.c.check_id == check_id, states.c.canary_id == canaries.c.id)
    whole = sa.and_(mine, states.c.reasons.bitwise_and(MISSING) == 0)
    newest = sa.select(states.c.id).where(whole).order_by(states.c.first_run.desc()).limit(1)
    columns = (states.c.canary_id, states.c.ranking_id, states.c.canary_version_id)
    for block in blocks(canary_ids):
        newest_ids = sa.select(newest.correlate(canaries).scalar_subquery()).where(canaries.c.id.in_(block))
        for canary_id, ranking_id, version_id in connection.execute(
            sa.select(*columns).where(states.c.id.in_(newest_ids))
        ):
            found[canary_id] = ranking_id, version_id
    return found


class DegradedRow(NamedTuple):
    """A canary that was degraded at a run."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    reasons: int
    top_score: float | None


def reasons_at(connection: Connection, canaries_by_run: Mapping[int, Collection[int]]) -> dict[int, dict[int, int]]:
    """Return the reasons of canaries, given by run id, at that run: bits by run id and canary id.

    0 = healthy; those without a state at the run are left out.
    """
    begun = [*_newest(connection, canaries_by_run, _last_begun)]
    held: dict[int, tuple[int | None, int]] = {}
    for ids in blocks(sorted({state_id for *_, state_id in begun})):
        statement = sa.select(states.c.id, states.c.last_run, states.c.reasons).where(states.c.id.in_(ids))
        held.update((state_id, (last_run, bits)) for state_id, last_run, bits in connection.execute(statement))
    by_run: dict[int, dict[int, int]] = {run_id: {} for run_id in canaries_by_run}
    for run_id, canary_id, state_id in begun:
        last_run, bits = held[state_id]
        if last_run is None or last_run >= run_id:
            by_run[run_id][canary_id] = bits
    return by_run


def degraded_at(
    connection: Connection, canaries_by_run: Mapping[int, Collection[int]]
) -> dict[int, dict[int, DegradedRow]]:
    """Return the degraded ones of these canaries, given by run id, at that run; by run id and canary id.

    A run that was never carried out has none. For more than 400 canaries of a run all its degraded states are read by
    two index scans instead.
    """
    wide = {run_id for run_id, canaries in canaries_by_run.items() if len(canaries) > _WIDE}
    narrow = {run_id: canaries for run_id, canaries in canaries_by_run.items() if run_id not in wide}
    by_run = _degraded_step_by_step(connection, narrow) if narrow else {}
    by_run |= {run_id: _degraded_at_once(connection, run_id, canaries_by_run[run_id]) for run_id in wide}
    return {run_id: by_run[run_id] for run_id in canaries_by_run}


def _degraded_at_once(connection: Connection, run_id: int, canaries: Collection[int]) -> dict[int, DegradedRow]:
    check_id = sa.select(runs.c.check_id).where(runs.c.id == run_id, runs.c.suite_version_id.is_not(None))
    columns = [states.c[name] for name in DegradedRow._fields]
    canary_ids = frozenset(canaries)
    rows = held_at(connection, sa.select(*columns).where(states.c.reasons != 0), check_id.scalar_subquery(), run_id)
    return {row[0]: DegradedRow._make(row) for row in rows if row[0] in canary_ids}


def _degraded_step_by_step(
    connection: Connection, canaries_by_run: Mapping[int, Collection[int]]
) -> dict[int, dict[int, DegradedRow]]:
    begun = [*_newest(connection, canaries_by_run, _last_begun, runs.c.suite_version_id.is_not(None))]
    columns = [states.c[name] for name in DegradedRow._fields]
    degraded: dict[int, tuple[int | None, DegradedRow]] = {}
    for ids in blocks(sorted({state_id for *_, state_id in begun})):
        statement = sa.select(states.c.id, states.c.last_run, *columns)
        for state_id, last_run, *values in connection.execute(
            statement.where(states.c.id.in_(ids), states.c.reasons != 0)
        ):
            degraded[state_id] = last_run, DegradedRow._make(values)
    by_run: dict[int, dict[int, DegradedRow]] = {run_id: {} for run_id in canaries_by_run}
    for run_id, canary_id, state_id in begun:
        last_run, fell = degraded.get(state_id, (0, None))
        if fell is not None and (last_run is None or last_run >= run_id):
            by_run[run_id][canary_id] = fell
    return by_run


def healthy_until(connection: Connection, fallen: Mapping[int, Collection[int]]) -> dict[int, dict[int, int]]:
    """Return the last healthy run of these canaries, degraded at each run, before it; by run id and canary id.

    Those that never were are left out. They are degraded at that run, so the states they were healthy in have ended.
    """
    by_run: dict[int, dict[int, int]] = {run_id: {} for run_id in fallen}
    for run_id, canary_id, last_run in _newest(connection, fallen, _last_healthy):
        by_run[run_id][canary_id] = last_run
    return by_run


def versions_found_well(connection: Connection, degraded: Mapping[int, Collection[int]]) -> dict[int, dict[int, int]]:
    """Return the version in which these canaries, degraded at each run, were last healthy; by run id and canary id."""
    by_run: dict[int, dict[int, int]] = {run_id: {} for run_id in degraded}
    for run_id, canary_id, version_id in _newest(connection, degraded, _last_healthy_version):
        by_run[run_id][canary_id] = version_id
    return by_run


def degraded_since(connection: Connection, degraded: Mapping[int, Collection[int]]) -> dict[int, dict[int, int]]:
    """Return the first run of the degraded period of these canaries, by run id and canary id.

    A change of the answer or of the reasons does not end the period, a healthy state does.
    """
    by_run: dict[int, dict[int, int]] = {run_id: {} for run_id in degraded}
    for run_id, canary_id, first_run in _newest(connection, degraded, _first_degraded):
        by_run[run_id][canary_id] = first_run
    return by_run


def _last_begun(each: sa.Subquery) -> sa.Select[Any]:
    mine = sa.and_(states.c.check_id == each.c.check_id, states.c.canary_id == each.c.canary_id)
    return sa.select(states.c.id).where(mine, states.c.first_run <= each.c.run_id).order_by(states.c.first_run.desc())


def _last_healthy(each: sa.Subquery) -> sa.Select[Any]:
    mine = sa.and_(states.c.check_id == each.c.check_id, states.c.canary_id == each.c.canary_id)
    ended = sa.and_(states.c.first_run <= each.c.run_id, states.c.reasons == 0, states.c.last_run.is_not(None))
    # States of a canary follow each other: the last to begin is the last to end.
    return sa.select(states.c.last_run).where(mine, ended).order_by(states.c.first_run.desc())


def _last_healthy_version(each: sa.Subquery) -> sa.Select[Any]:
    mine = sa.and_(states.c.check_id == each.c.check_id, states.c.canary_id == each.c.canary_id)
    healthy = sa.and_(states.c.first_run <= each.c.run_id, states.c.reasons == 0)
    return sa.select(states.c.canary_version_id).where(mine, healthy).order_by(states.c.first_run.desc())


def _first_degraded(each: sa.Subquery) -> sa.Select[Any]:
    earlier = states.alias("earlier")
    healthy = sa.and_(
        earlier.c.check_id == each.c.check_id,
        earlier.c.canary_id == each.c.canary_id,
        earlier.c.first_run <= each.c.run_id,
        earlier.c.reasons == 0,
    )
    last_healthy = sa.select(sa.func.max(earlier.c.first_run)).where(healthy).correlate(each).scalar_subquery()
    mine = sa.and_(states.c.check_id == each.c.check_id, states.c.canary_id == each.c.canary_id)
    period = sa.and_(states.c.first_run <= each.c.run_id, states.c.first_run > sa.func.coalesce(last_healthy, 0))
    return sa.select(states.c.first_run).where(mine, period).order_by(states.c.first_run)


def _newest(
    connection: Connection,
    canaries_by_run: Mapping[int, Collection[int]],
    step: Callable[[sa.Subquery], sa.Select[Any]],
    *conditions: sa.ColumnElement[bool],
) -> Iterator[tuple[int, int, int]]:
    """Yield (run id, canary id, result of the step) for the runs that exist."""
    there = sa.select(runs.c.id, runs.c.check_id).where(runs.c.id.in_(sorted(canaries_by_run)), *conditions)
    pairs = [
        (run.id, run.check_id, canary_id) for run in connection.execute(there) for canary_id in canaries_by_run[run.id]
    ]
    for block in blocks(pairs, _PAIRS):
        each = numbers(connection, "each", ("run_id", "check_id", "canary_id"), block)
        newest = step(each).limit(1).scalar_subquery()
        for run_id, canary_id, value in connection.execute(sa.select(each.c.run_id, each.c.canary_id, newest)):
            if value is not None:
                yield run_id, canary_id, value


class SpanQuery(Value):
    """Whose past is wanted, and what of it."""

    version_ids: Sequence[int]
    """The canaries, by the versions in force: what another version did is no past of this one."""
    k: int
    """What was judged by another k, or with measures of other definitions, is another past."""
    names: Sequence[str]
    """The measures wanted, by the names layouts have for them."""
    former: Mapping[int, int] = field(default_factory=dict)
    """Earlier versions that asked and expected the same, each with the version in force: their past is its past."""


class StateSpans(Value):
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
    place_of |= {old: place_of[new] for old, new in asked.former.items() if new in place_of}
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
        failed=_failed(connection, ids, place_of, len(asked.version_ids)),
    )


def _spans(
    connection: Connection, check_id: int, wanted: Whole, k: int, place_of: dict[int, int]
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Return the states that overlap: (place, first run, last run, layout, vector, reasons).

    Of vectors judged with this k and the current definitions.
    """
    same = layouts.c.measures_version == MEASURES_VERSION
    each = connection.execute(sa.select(layouts.c.id, layouts.c.yardstick).where(same))
    kept = {layout for layout, yardstick in each if yardstick.startswith(f"k={k} ")}
    columns = (states.c.canary_version_id, states.c.first_run, states.c.last_run, states.c.layout_id)
    # Two looks, each along an index, where one look for either would read every state there ever was.
    for holding in (states.c.last_run.is_(None), states.c.last_run >= int(wanted[0])):
        statement = (
            sa.select(*columns, scores.c.vector_id, states.c.reasons)
            .join(scores, _SCORES)
            .where(states.c.check_id == check_id, states.c.first_run <= int(wanted[-1]), holding)
        )
        for version_id, first, last, layout, vector, reasons in connection.execute(statement):
            if version_id in place_of and layout in kept:
                yield place_of[version_id], first, _FOR_EVER if last is None else last, layout, vector, reasons


def _values(connection: Connection, layout: Whole, vector: Whole, asked: SpanQuery) -> Floats:
    """Return the given measures of each span; NaN = its layout lacks the measure."""
    values = np.full((len(vector), len(asked.names)), np.nan)
    for layout_id in np.unique(layout).tolist():
        held = {name: column for column, name in enumerate(layout_names(connection, layout_id))}
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


def _failed(connection: Connection, wanted: Whole, place_of: Mapping[int, int], canaries: int) -> NDArray[np.bool_]:
    """Return the probes without a measurement, (run, canary); most runs have none."""
    failed = np.zeros((len(wanted), canaries), dtype=np.bool_)
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


def top_scores(connection: Connection, run: RunRow, most: int) -> tuple[dict[str, float | None], int]:
    """Return the relevance of the first `most` canaries of a run's suite by key, and the number of the others.

    Whoever could not be asked is not in it; None = it found nothing, or relevance could not be measured.
    """
    if most == 0 or run.suite_version_id is None or not run.aggregates:
        return {}, 0
    members = [canary for canary, _ in frozen_version(connection, run.suite_version_id).members]
    capped, failed = members[:most], probes_of(connection, run.id)[1]
    found: dict[int, tuple[str, float | None]] = {}
    for block in blocks(capped):
        statement = (
            sa.select(states.c.canary_id, canaries.c.key, states.c.top_score)
            .join(canaries, canaries.c.id == states.c.canary_id)
            .where(_held_for(block, run.check_id, run.id))
        )
        found.update((canary, (key, score)) for canary, key, score in connection.execute(statement))
    unscored = set(unscored_at(connection, run.id))
    relevances = {
        key: None if position in unscored else score
        for position, canary in enumerate(capped)
        if canary in found and position not in failed
        for key, score in [found[canary]]
    }
    return relevances, len(members) - len(capped)
