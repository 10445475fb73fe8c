"""Comparison of any two runs: differences of canaries and measures, with their significance. It only reads."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.domain.comparison.run_diff import Change, Moved, Pair, Side, moved, pair_up
from app.domain.comparison.views import (
    CanaryDifference,
    CategoryDifference,
    MeasureDifference,
    PairedSides,
    RunDiff,
    RunOutline,
    SideResult,
    Sides,
)
from app.domain.errors import ConflictError
from app.domain.model import Canary, Outcome, Ranking, Verdict
from app.domain.runs.matching import Match
from app.domain.runs.measures import Measure, mean_name, parse_measure
from app.domain.runs.rankings import rbo
from app.domain.runs.run_inputs import RunInputs
from app.domain.runs.tally import unpack_reasons
from app.formats.history import shapes
from app.formats.history.shapes import number
from app.services import score_details
from app.services.aggregates import stored_aggregates
from app.services.lookup import find_run
from app.store.catalog import definitions
from app.store.engine import Connection, Store
from app.store.runs import results
from app.store.runs.canary_states import StateRow
from app.store.runs.results import RunRow
from app.store.runs.shards import Failure

_RUN_ONLY = {"health_score", "coverage"}
_ENDED = ("finished", "partial", "failed")


def diff(
    store: Store,
    before_id: str,
    now_id: str,
    *,
    changes: Collection[Change] = (),
    after: int = 0,
    limit: int = 50,
    version: str | None = None,
) -> tuple[RunDiff, int | None]:
    """Compare two runs, usually the older one first; returns the diff and the place of the next page, if any.

    Canaries come the worst first, only those with one of these `changes` where any is named. `version`: both by another
    measures version. Raises NotFoundError for a run that is not there, ConflictError for one that has not ended or was
    never carried out, InvalidInputError for a version that is not there.
    """
    with store.read() as connection:
        before, now = (_read(connection, run_id, version) for run_id in (before_id, now_id))
        measure = _ordering(before, now)
        pairs = pair_up(before.side, now.side, measure)
        matching = [pair for pair in pairs if not changes or pair.change in changes]
        shown = matching[after : after + limit]
        items = _items(connection, before, now, shown)
    differences = _differences(before, now)
    shape: RunDiff = {
        "before": before.outline,
        "now": now.outline,
        "comparable": not any(strict for strict, _ in differences),
        "differences": [sentence for _, sentence in differences],
        "changes": _counts(pairs),
        "measures": _measures(before, now, moved(before.side, now.side, pairs)),
        "categories": _categories(before.row, now.row),
        "ordered_by": measure,
        "items": items,
    }
    return shape, after + limit if len(matching) > after + limit else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A run with its results."""

    row: RunRow
    inputs: RunInputs
    states: Sequence[StateRow | None]
    """By position; None = not measured."""
    failures: Mapping[int, Failure]
    side: Side
    outline: RunOutline
    retriever: str
    retriever_version: int | None


def _read(connection: Connection, run_id: str, version: str | None) -> _Read:
    row = find_run(connection, run_id)
    if row.status not in _ENDED:
        raise ConflictError(f"run '{row.id}' has not ended yet")
    if not row.aggregates:
        raise ConflictError(f"run '{row.id}' was never carried out; there is nothing to compare")
    row, anew = score_details.load_version(connection, row, version)
    inputs = score_details.inputs_of_run(connection, row, anew)
    by_canary = score_details.states_of(connection, row, inputs, anew)
    _, failures = results.probes_of(connection, row.id)
    states = [
        None if place in failures else by_canary.get(member.canary_id)
        for place, member in enumerate(inputs.suite.members)
    ]
    assert row.check_version_id is not None  # noqa: S101 - it has inputs
    check = definitions.version_body(connection, row.check_version_id).body
    return _Read(
        row=row,
        inputs=inputs,
        states=states,
        failures=failures,
        side=_side(connection, inputs, states),
        outline={
            "id": str(row.id),
            "check": row.check,
            "suite": check["suite"],
            "retriever": check["retriever"],
            "finished_at": shapes.time_text(row.finished_at),
            "index_version": row.index_version,
            "verdict": None if row.verdict is None else Verdict(row.verdict),
            "suite_hash": inputs.suite.hash,
            "config_hash": row.config_hash,
            "measures_version": row.measures_version,
        },
        retriever=check["retriever"],
        retriever_version=row.retriever_version_id,
    )


def _side(connection: Connection, inputs: RunInputs, states: Sequence[StateRow | None]) -> Side:
    columns = _columns(connection, states)
    expects = np.array([canary.expects for canary in inputs.canaries], dtype=np.bool_)
    tops = [np.nan if state is None or state.top_score is None else state.top_score for state in states]
    own = {"health_score": np.where(expects, np.array(tops, dtype=np.float64), np.nan)}
    hits = columns.get(str(Measure("Hit", inputs.yardstick.k)))
    if hits is not None:
        own["coverage"] = hits
    return Side(
        keys=[canary.key for canary in inputs.canaries],
        queries=[canary.query for canary in inputs.canaries],
        verdicts=[_verdict(state) for state in states],
        rankings=[None if state is None else state.ranking_id for state in states],
        columns={**own, **{mean_name(parse_measure(name)): column for name, column in columns.items()}},
    )


def _columns(connection: Connection, states: Sequence[StateRow | None]) -> dict[str, NDArray[np.float64]]:
    """Return stored vectors by measure; those of an older layout may lack some."""
    columns: dict[str, NDArray[np.float64]] = {}
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


def _verdict(state: StateRow | None) -> Verdict:
    if state is None:
        return Verdict.UNKNOWN
    return Verdict.DEGRADED if state.reasons else Verdict.HEALTHY


def _ordering(before: _Read, now: _Read) -> str:
    """Choose the measure that canaries are ordered by: NDCG@10 where both have it, else that at k, else coverage."""
    names = ("NDCG@10", f"NDCG@{now.inputs.yardstick.k}")
    both = before.side.columns.keys() & now.side.columns.keys()
    return next((name for name in names if name in both), "coverage")


def _differences(before: _Read, now: _Read) -> list[tuple[bool, str]]:
    """Differences of configuration and suite in sentences, and whether each prevents a strict comparison."""
    old, new = before.inputs.yardstick, now.inputs.yardstick
    differences: list[tuple[bool, bool, str]] = [
        (
            before.outline["suite_hash"] != now.outline["suite_hash"],
            True,
            "the suites differ: only canaries with the same key and query are compared, whatever they expect",
        ),
        (
            before.row.measures_version != now.row.measures_version,
            True,
            f"the numbers are of measures versions {before.row.measures_version} and {now.row.measures_version}",
        ),
        (old.k != new.k, True, f"k is {old.k} and {new.k}, which coverage and who is degraded depend on"),
        (old.fetch_k != new.fetch_k, False, f"fetch_k is {old.fetch_k} and {new.fetch_k}"),
        (old.scorer != new.scorer, True, "relevance is measured in different ways, which the health score depends on"),
        (
            before.row.check_id != now.row.check_id,
            False,
            f"the runs are of different checks, {before.row.check} and {now.row.check}",
        ),
        (
            before.retriever != now.retriever,
            False,
            f"different retrievers were asked, {before.retriever} and {now.retriever}",
        ),
        (
            before.retriever == now.retriever and before.retriever_version != now.retriever_version,
            False,
            f"retriever {now.retriever} was configured differently",
        ),
        (
            before.row.index_version != now.row.index_version,
            False,
            f"the index versions are {before.row.index_version or 'unknown'} and {now.row.index_version or 'unknown'}",
        ),
    ]
    return [(strict, sentence) for differs, strict, sentence in differences if differs]


def _counts(pairs: Sequence[Pair]) -> dict[Change, int]:
    counted = Counter(pair.change for pair in pairs)
    return {change: counted[change] for change in Change}


def _measures(before: _Read, now: _Read, found: Mapping[str, Moved]) -> dict[str, MeasureDifference]:
    """Differences of measures: of the runs, and over the pairs of canaries with significance."""
    names = dict.fromkeys([*now.row.aggregates, *before.row.aggregates])
    return {
        name: {
            **_sides(before.row.aggregates.get(name), now.row.aggregates.get(name)),
            "paired": _paired(found[name]) if name in found else None,
        }
        for name in names
        if "/" not in name
    }


def _paired(one: Moved) -> PairedSides:
    interval = one.interval
    return {
        "canaries": one.pairs,
        **_sides(one.before, one.now),
        "low": None if interval is None else number(interval.low),
        "high": None if interval is None else number(interval.high),
        "confidence": None if interval is None else interval.confidence,
        "p": number(one.p),
    }


def _categories(before: RunRow, now: RunRow) -> dict[str, CategoryDifference]:
    old, new = stored_aggregates(before).categories, stored_aggregates(now).categories
    return {
        name: {
            "health_score": _sides(*(part[name].health_score if name in part else None for part in (old, new))),
            "coverage": _sides(*(part[name].coverage if name in part else None for part in (old, new))),
        }
        for name in dict.fromkeys([*new, *old])
    }


def _sides(before: float | None, now: float | None) -> Sides:
    difference = None if before is None or now is None else now - before
    return {"before": number(before), "now": number(now), "difference": number(difference)}


def _items(connection: Connection, before: _Read, now: _Read, pairs: Sequence[Pair]) -> list[CanaryDifference]:
    """Canaries of one page with their ranks and the overlap of their rankings."""
    chosen = [(_state(before, pair.before), _state(now, pair.now)) for pair in pairs]
    differing = [
        state.ranking_id
        for old, new in chosen
        if old is not None and new is not None and old.ranking_id != new.ranking_id
        for state in (old, new)
    ]
    rankings = results.read_rankings(connection, sorted(set(differing)))
    return [
        {
            "key": pair.key,
            "query": canary.query,
            "category": canary.category,
            "tags": list(canary.tags),
            "change": pair.change,
            "difference": number(pair.difference),
            "rbo": number(_alike(rankings, old, new)),
            "before": _result(before, pair.before, old),
            "now": _result(now, pair.now, new),
        }
        for pair, (old, new) in zip(pairs, chosen, strict=True)
        for canary in (_canary(before, now, pair),)
    ]


def _state(read: _Read, place: int | None) -> StateRow | None:
    return None if place is None else read.states[place]


def _canary(before: _Read, now: _Read, pair: Pair) -> Canary:
    read, place = (now, pair.now) if pair.now is not None else (before, pair.before)
    assert place is not None  # noqa: S101 - a pair is of one run at least
    return read.inputs.canaries[place]


def _alike(rankings: Mapping[int, Ranking], old: StateRow | None, new: StateRow | None) -> float | None:
    """Overlap of two rankings; None where either was not measured."""
    if old is None or new is None:
        return None
    if old.ranking_id == new.ranking_id:
        return 1.0
    return rbo(rankings[old.ranking_id].ids, rankings[new.ranking_id].ids)


def _result(read: _Read, place: int | None, state: StateRow | None) -> SideResult | None:
    """Return a canary in one run; None where the run did not have it."""
    if place is None:
        return None
    failure = read.failures.get(place)
    fallback = Outcome.SKIPPED if state is None else Outcome.OK
    return {
        "verdict": _verdict(state),
        "outcome": fallback if failure is None else Outcome(failure.outcome),
        "reasons": [] if state is None else list(unpack_reasons(state.reasons)),
        "rank": None if state is None else Match.from_bytes(state.matched).first_relevant,
        "top_score": None if state is None else number(state.top_score),
        "measures": {
            name: number(float(column[place])) for name, column in read.side.columns.items() if name not in _RUN_ONLY
        },
    }
