"""What a check's canaries did in past runs, read from their states: one look for many runs and canaries.

States say how long something held, so that canaries that never change cost one row each, however many runs it were.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.domain.measures import MEASURES_VERSION
from app.store.catalog import members_of
from app.store.tables import layouts, run_probes, runs, scores, states, vectors

_BLOCK = 400

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Whose past is wanted, and what of it: places count along the canaries."""

    canary_ids: Sequence[int]
    version_ids: Sequence[int]
    """The versions in force: what another version did is no past of this one."""
    k: int
    """What was judged by another k is another past, as are measures of other definitions."""
    names: Sequence[str]
    """The measures wanted, by the names layouts have for them."""


@dataclass(frozen=True, kw_only=True)
class Past:
    """What canaries did in R runs, as S spans in which the same held.

    `places` (S,) says whose span it is, `starts` and `stops` (S,) which runs it covers, counted along `run_ids`, the
    last not included; `values` (S, M) has the measures wanted and `top_scores` (S,) the relevance, NaN = undefined.
    """

    run_ids: NDArray[np.int64]
    canaries: int
    places: NDArray[np.intp]
    starts: NDArray[np.intp]
    stops: NDArray[np.intp]
    values: Floats
    top_scores: Floats
    failed: NDArray[np.bool_]
    """(R, N): the probe of this canary in this run was no measurement."""

    def matrix(self, column: int) -> Floats:
        """Give one measure of every canary in every run, (R, N); NaN = not measured, or not of this version."""
        return self._spread(self.values[:, column])

    def _spread(self, values: Floats) -> Floats:
        count = len(self.run_ids)
        flat = np.full(self.canaries * count, np.nan)
        lengths = self.stops - self.starts
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        flat[np.repeat(self.places * count + self.starts, lengths) + within] = np.repeat(values, lengths)
        spread: Floats = np.ascontiguousarray(flat.reshape(self.canaries, count).T)
        spread[self.failed] = np.nan
        return spread

    @cached_property
    def _weights(self) -> Floats:
        """How many runs of each span measured."""
        before = np.vstack([np.zeros((1, self.canaries), dtype=np.int64), np.cumsum(self.failed, axis=0)])
        lost = before[self.stops, self.places] - before[self.starts, self.places]
        weights: Floats = (self.stops - self.starts - lost).astype(np.float64)
        return weights

    def means(self) -> Floats:
        """Average each measure of each canary over the runs that have it: (N, M), NaN = none has."""
        found = np.full((self.canaries, self.values.shape[1]), np.nan)
        for column in range(self.values.shape[1]):
            found[:, column] = self.mean_of(self.values[:, column])[0]
        return found

    def mean_of(self, values: Floats) -> tuple[Floats, Floats]:
        """Average a column over spans for each canary, with its standard deviation: (N,) both, NaN = no run has it."""
        known = ~np.isnan(values)
        places, weights, held = self.places[known], self._weights[known], values[known]
        counts = np.bincount(places, weights=weights, minlength=self.canaries)
        sums = np.bincount(places, weights=weights * held, minlength=self.canaries)
        there = counts > 0
        means = np.divide(sums, counts, out=np.full(self.canaries, np.nan), where=there)
        squares = np.bincount(places, weights=weights * (held - means[places]) ** 2, minlength=self.canaries)
        spread = np.sqrt(np.divide(squares, counts, out=np.full(self.canaries, np.nan), where=there))
        return means, spread


def read_past(connection: Connection, check_id: int, run_ids: Sequence[int], asked: Asked) -> Past:
    """Read what canaries did in these runs of a check, which are in order."""
    wanted = np.asarray(run_ids, dtype=np.int64)
    place_of = {canary_id: place for place, canary_id in enumerate(asked.canary_ids)}
    rows = _spans(connection, check_id, wanted, asked, place_of) if len(wanted) else []
    columns = np.array([row[:5] for row in rows], dtype=np.int64).reshape(-1, 5)
    places, first, last, layout, vector = columns.T
    values = _values(connection, layout, vector, asked)
    return Past(
        run_ids=wanted,
        canaries=len(asked.canary_ids),
        places=places.astype(np.intp),
        starts=np.searchsorted(wanted, first, side="left"),
        stops=np.searchsorted(wanted, last, side="right"),
        values=values,
        top_scores=np.array([np.nan if row[5] is None else row[5] for row in rows], dtype=np.float64),
        failed=_failed(connection, wanted, place_of),
    )


_FOR_EVER = 2**62


def _spans(
    connection: Connection, check_id: int, wanted: NDArray[np.int64], asked: Asked, place_of: dict[int, int]
) -> list[tuple[int, int, int, int, int, float | None]]:
    """Read the states that overlap: (place, first run, last run, layout, vector, top score)."""
    kept = _layouts_kept(connection, asked.k)
    versions = dict(zip(asked.canary_ids, asked.version_ids, strict=True))
    earliest, newest = int(wanted[0]), int(wanted[-1])
    scored = sa.and_(
        scores.c.ranking_id == states.c.ranking_id,
        scores.c.canary_version_id == states.c.canary_version_id,
        scores.c.layout_id == states.c.layout_id,
    )
    found = []
    # Two looks, each along an index, where one look for either would read every state there ever was.
    for holding in (states.c.last_run.is_(None), states.c.last_run >= earliest):
        statement = (
            sa.select(
                states.c.canary_id,
                states.c.canary_version_id,
                states.c.first_run,
                states.c.last_run,
                states.c.layout_id,
                scores.c.vector_id,
                states.c.top_score,
            )
            .join(scores, scored)
            .where(states.c.check_id == check_id, states.c.first_run <= newest, holding)
        )
        for canary_id, version_id, first, last, layout, vector, top in connection.execute(statement):
            if versions.get(canary_id) == version_id and layout in kept:
                found.append((place_of[canary_id], first, _FOR_EVER if last is None else last, layout, vector, top))
    return found


def _layouts_kept(connection: Connection, k: int) -> set[int]:
    """Find the layouts of what was judged with this k and the definitions of today."""
    same = layouts.c.measures_version == MEASURES_VERSION
    rows = connection.execute(sa.select(layouts.c.id, layouts.c.yardstick).where(same))
    return {layout for layout, yardstick in rows if yardstick.startswith(f"k={k} ")}


def _values(connection: Connection, layout: NDArray[np.int64], vector: NDArray[np.int64], asked: Asked) -> Floats:
    """Read the measures wanted of each span; NaN = its layout lacks it."""
    values = np.full((len(vector), len(asked.names)), np.nan)
    for layout_id in np.unique(layout).tolist():
        names = connection.execute(sa.select(layouts.c.names).where(layouts.c.id == layout_id)).scalar_one()
        held = {name: column for column, name in enumerate(json.loads(names))}
        columns = [(to, held[name]) for to, name in enumerate(asked.names) if name in held]
        mine = np.flatnonzero(layout == layout_id)
        distinct, inverse = np.unique(vector[mine], return_inverse=True)
        bodies = _vectors(connection, distinct.tolist())
        whole = np.frombuffer(b"".join(bodies)).reshape(len(distinct), -1)
        for to, column in columns:
            values[mine, to] = whole[inverse, column]
    return values


def _vectors(connection: Connection, ids: Sequence[int]) -> list[bytes]:
    found: dict[int, bytes] = {}
    for start in range(0, len(ids), _BLOCK):
        block = vectors.c.id.in_(list(ids[start : start + _BLOCK]))
        found.update(connection.execute(sa.select(vectors.c.id, vectors.c.body).where(block)).all())
    return [found[one] for one in ids]


def _failed(connection: Connection, wanted: NDArray[np.int64], place_of: dict[int, int]) -> NDArray[np.bool_]:
    """Say which probes were no measurement; of most runs there is none."""
    failed = np.zeros((len(wanted), len(place_of)), dtype=np.bool_)
    suites: dict[int, list[int | None]] = {}
    for start in range(0, len(wanted), _BLOCK):
        block = wanted[start : start + _BLOCK].tolist()
        statement = (
            sa.select(run_probes.c.run_id, run_probes.c.failures, runs.c.suite_version_id)
            .join(runs, runs.c.id == run_probes.c.run_id)
            .where(run_probes.c.run_id.in_(block), run_probes.c.failures.is_not(None))
        )
        for run_id, failures, suite in connection.execute(statement).all():
            if suite not in suites:
                suites[suite] = [place_of.get(canary_id) for canary_id, _ in members_of(connection, suite)]
            positions = msgspec.msgpack.decode(failures, type=dict[int, msgspec.Raw])
            places = [place for at in positions if (place := suites[suite][at]) is not None]
            failed[np.searchsorted(wanted, run_id), places] = True
    return failed
