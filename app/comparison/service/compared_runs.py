"""Runs with their results, read to be compared; and the comparison that pages, API, CLI and diffs share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.db.engine import Connection
from app.base.errors import ConflictError
from app.base.values import Canary, Verdict
from app.catalog.domain.judgments import Use
from app.catalog.service.references import find_run
from app.catalog.service.snapshots import is_self_judged
from app.catalog.store import definitions
from app.comparison.domain.outcomes import (
    COVERAGE,
    ComparisonOutcome,
    Depth,
    Members,
    Pairing,
    common_depth,
    compare,
    pair_canaries,
    primary_measures,
)
from app.comparison.domain.views import RunOutline
from app.records.documents import view_of
from app.records.service import score_details
from app.records.store import results
from app.records.store.queue import Failure
from app.records.store.results import RunRow, StateRow
from app.scoring.matching import Match, match
from app.scoring.measures import Measure, mean_name, parse_measure, scores_at_depth
from app.scoring.runs import RunInputs

Floats = NDArray[np.float64]

HEALTH_SCORE: Final = "health_score"
_WHOLE: Final = {"MRR": "RR", "MAP": "AP", "duplicate_ratio": "duplicate_ratio"}
"""Measures of whole rankings, by the names of their means: they depend on how many hits were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run with its results. Positions count along the canaries of its suite version."""

    row: RunRow
    inputs: RunInputs
    states: Sequence[StateRow | None]
    """None = not measured."""
    failures: Mapping[int, Failure]
    outline: RunOutline
    retriever: str
    retriever_version: int | None
    use: Use
    """Of its check at that time."""

    @property
    def canaries(self) -> Sequence[Canary]:
        """The canaries by position."""
        return self.inputs.canaries

    @property
    def base_version(self) -> str | None:
        """The version of the measures by which its rankings were matched: 2 where that of a re-scoring is 2.r7."""
        version = self.row.measures_version
        return None if version is None else version.partition(".r")[0]

    @property
    def members(self) -> Members:
        """The canaries, and whether the run measured them."""
        return Members(canaries=self.canaries, measured=[state is not None for state in self.states])


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs compared: pairs, depth, what is decided, and the scores it is decided by."""

    a: ComparedRun
    b: ComparedRun
    pairing: Pairing
    depth: Depth
    outcome: ComparisonOutcome
    scores: tuple[Mapping[str, Floats], Mapping[str, Floats]]
    """Columns of both by the names of means, a row for each pair; NaN = undefined."""

    @property
    def ordering(self) -> str:
        """The measure that canaries are ordered by: the first primary one."""
        return primary_measures(self.depth, self.a.use)[0]


def read_run(connection: Connection, run_id: str, version: str | None = None) -> ComparedRun:
    """Read a run with its results, by another measures version where one is named.

    Raises NotFoundError for a run that is not there, ConflictError for one that has not ended or was never carried out,
    InvalidInputError for a version that is not there.
    """
    row = find_run(connection, run_id)
    if row.status not in results.ENDED:
        raise ConflictError(f"run '{row.id}' has not ended yet")
    if not row.aggregates:
        raise ConflictError(f"run '{row.id}' was never carried out; there is nothing to compare")
    row, anew = score_details.load_version(connection, row, version)
    inputs = score_details.inputs_of_run(connection, row, anew)
    by_canary = score_details.states_of(connection, row, inputs, anew)
    _, failures = results.probes_of(connection, row.id)
    assert row.check_version_id is not None  # noqa: S101 - it has inputs
    check = definitions.version_body(connection, row.check_version_id).body
    return ComparedRun(
        row=row,
        inputs=inputs,
        states=[
            None if place in failures else by_canary.get(member.canary_id)
            for place, member in enumerate(inputs.suite.members)
        ],
        failures=failures,
        outline=view_of(
            RunOutline,
            check,
            row,
            id=str(row.id),
            verdict=None if row.verdict is None else Verdict(row.verdict),
            suite_hash=inputs.suite.hash,
            self_judged=is_self_judged(
                connection, inputs.suite.judgment_sources, check["retriever"], depth=inputs.yardstick.fetch_k
            ),
        ),
        retriever=check["retriever"],
        retriever_version=row.retriever_version_id,
        use=Use(check.get("use", Use.GENERAL)),
    )


def compare_runs(connection: Connection, a: ComparedRun, b: ComparedRun) -> Comparison:
    """Compare two runs over the canaries that both measured and that expect the same, to the depth both have."""
    old, new = a.inputs.yardstick, b.inputs.yardstick
    depth = common_depth(k=(old.k, new.k), fetch_k=(old.fetch_k, new.fetch_k))
    pairing = pair_canaries(a.members, b.members)
    reading = _Reading(
        depth=depth,
        cutoffs=frozenset({one.k for one in (*old.measures, *new.measures) if one.k} | {depth.k, depth.ndcg}),
        anew=a.base_version != b.base_version,
        with_relevance=old.scorer == new.scorer,
    )
    first, second = (
        _columns(connection, one, [pair[side] for pair in pairing.places], reading) for side, one in enumerate((a, b))
    )
    categories: dict[str, list[int]] = {}
    for row, (_, place) in enumerate(pairing.places):
        categories.setdefault(b.canaries[place].category, []).append(row)
    outcome = compare(
        first,
        second,
        primaries=primary_measures(depth, a.use),
        categories={name: np.array(rows, dtype=np.intp) for name, rows in sorted(categories.items())},
    )
    return Comparison(a=a, b=b, pairing=pairing, depth=depth, outcome=outcome, scores=(first, second))


def stored_columns(connection: Connection, states: Sequence[StateRow | None]) -> dict[str, Floats]:
    """Return the columns of stored vectors by the names of canaries' measures; those of an older layout may lack some.

    NaN = undefined or not measured.
    """
    columns: dict[str, Floats] = {}
    places: dict[int, list[int]] = {}
    for place, state in enumerate(states):
        if state is not None:
            places.setdefault(state.layout_id, []).append(place)
    for layout, positions in sorted(places.items()):
        names = results.layout_names(connection, layout)
        packed = b"".join(state.vector for place in positions if (state := states[place]) is not None)
        table = np.frombuffer(packed).reshape(len(positions), len(names))
        for name, values in zip(names, table.T, strict=True):
            columns.setdefault(name, np.full(len(states), np.nan))[positions] = values
    return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How the scores of both runs are read."""

    depth: Depth
    cutoffs: frozenset[int]
    anew: bool
    """Whether rankings are matched again, since the two were matched by different versions of the measures."""
    with_relevance: bool


def _columns(connection: Connection, run: ComparedRun, places: Sequence[int], reading: _Reading) -> dict[str, Floats]:
    """Return the scores of these canaries of a run, by the names of means."""
    depth = reading.depth
    states = [state for place in places if (state := run.states[place]) is not None]
    prepared = [run.inputs.panel.prepared(place) for place in places]
    if reading.anew:
        rankings = results.load_rankings(connection, sorted({state.ranking_id for state in states}))
        matches = [match(one, rankings[state.ranking_id]) for one, state in zip(prepared, states, strict=True)]
    else:
        matches = [Match.from_bytes(state.matched) for state in states]
    cut = scores_at_depth(matches, prepared, cutoffs=sorted(reading.cutoffs), depth=depth.m)
    columns = {_mean_of(name): column for name, column in cut.items()}
    columns[COVERAGE] = cut[str(Measure("Hit", depth.k))]
    if depth.equal and not reading.anew:
        stored = stored_columns(connection, states)
        columns |= {mean: stored[name] for mean, name in _WHOLE.items() if name in stored}
        del columns[f"MAP@{depth.m}"]
    if reading.with_relevance:
        columns[HEALTH_SCORE] = np.array([np.nan if one.top_score is None else one.top_score for one in states])
    return columns


def _mean_of(name: str) -> str:
    """Return the name of the mean of a measure of a cut ranking."""
    return f"M{name}" if name.startswith("AP@") else mean_name(parse_measure(name))
