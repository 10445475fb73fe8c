"""What a check's canaries did in past runs, read from their states: one look for many runs and canaries.

States say how long something held, so that canaries that never change cost one row each, however many runs it were.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.base.db.engine import blocks
from app.catalog.store.suites import members_of
from app.records.run_tables import runs
from app.records.tables import layouts, run_probes, scores, states, vectors
from app.scoring.measures import MEASURES_VERSION, Measure
from app.scoring.tally import MISSING

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
                suites[suite] = [place_of.get(version_id) for _, version_id in members_of(connection, suite)]
            positions = msgspec.msgpack.decode(failures, type=dict[int, msgspec.Raw])
            places = [place for at in positions if (place := suites[suite][at]) is not None]
            failed[np.searchsorted(wanted, run_id), places] = True
    return failed
