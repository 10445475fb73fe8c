"""Comparison of any two runs or checks, as A and B. It only reads."""

import re
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from app.base.db.engine import Connection, Store
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.values import ROUNDING
from app.catalog.domain.judgment_sources import self_judged_lines
from app.catalog.service.lookup import find_check, find_run
from app.comparison.documents.comparison_sentences import A_AND_B
from app.comparison.domain.outcomes import Side
from app.comparison.domain.views import ComparedCanary, ComparedRunOutline, ComparisonPage, ComparisonView
from app.comparison.service.compared_runs import ComparedRun, Comparison, Floats, compare_runs, read_run
from app.comparison.service.decision_views import decision_shape
from app.comparison.service.run_differences import differences
from app.records.documents import number
from app.records.store import results
from app.scoring.matching import Match

_REFERENCE: Final = re.compile(r"(?P<kind>run|check):(?P<name>.+)")
_LATEST: Final = 100
"""Number of the newest runs of a check among which one that was carried out is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedThings:
    """Two runs or checks compared: the view, the place of the next page, and the score of every pair for a chart."""

    view: ComparisonView
    following: int | None
    comparison: Comparison


def compare_references(
    store: Store, a: str, b: str, *, winner: Side | None = None, after: int = 0, limit: int = 50
) -> ComparedThings:
    """Compare two things, each `run:ID` or `check:SLUG`, which stands for its newest ended run.

    Canaries come by what B loses, the most first; only those that score higher in `winner` if one is named, the largest
    difference first. Raises
    InvalidInputError for another reference, NotFoundError for what is not there, ConflictError for a run that has not
    ended or was never carried out, and for a check without one that has.
    """
    with store.read() as connection:
        first, second = (read_run(connection, _run_id(connection, text, name)) for name, text in (("a", a), ("b", b)))
        comparison = compare_runs(connection, first, second)
    gains = _differences(comparison)
    ordered = np.argsort(-gains if winner is Side.B else gains, kind="stable")
    order = [int(row) for row in ordered if winner is None or _winner(gains[row]) is winner]
    view: ComparisonView = {
        **decision_shape(comparison.outcome, comparison.pairing, comparison.depth, A_AND_B),
        "a": _outline(comparison.a, a),
        "b": _outline(comparison.b, b),
        "differences": [
            *(one.sentence for one in differences(comparison.a, comparison.b)),
            *_self_judged(comparison.a, comparison.b),
        ],
        "ordered_by": comparison.ordering,
        "wins": {
            "a": int(np.count_nonzero(gains < -ROUNDING)),
            "b": int(np.count_nonzero(gains > ROUNDING)),
            "ties": int(np.count_nonzero(np.abs(gains) <= ROUNDING)),
        },
        "items": [_canary(comparison, row, float(gains[row])) for row in order[after : after + limit]],
    }
    following = after + limit if len(order) > after + limit else None
    return ComparedThings(view=view, following=following, comparison=comparison)


def resolve(store: Store, reference: str, path: str) -> str:
    """Return the id of the run that a reference names, which may not be there; raises as `compare_references` does.

    `path` is the name of the parameter that has the reference.
    """
    with store.read() as connection:
        return _run_id(connection, reference, path)


def run_reference(run_id: int | str) -> str:
    """Return the reference of a run."""
    return f"run:{run_id}"


def are_of_one_check(store: Store, one: str, other: str) -> bool:
    """Whether two runs are of one check. Raises NotFoundError for a run that is not there."""
    with store.read() as connection:
        return find_run(connection, one).check_id == find_run(connection, other).check_id


def compare_page(
    store: Store, a: str, b: str, *, winner: Side | None = None, after: int = 0, limit: int = 50
) -> ComparisonPage:
    """Compare two things likewise, as a page of the API; raises as `compare_references` does."""
    found = compare_references(store, a, b, winner=winner, after=after, limit=limit)
    return {**found.view, "next": None if found.following is None else str(found.following)}


def _run_id(connection: Connection, text: str, name: str) -> str:
    """Return the id of the run that a reference names."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise InvalidInputError([Problem(path=name, message="must be run:ID or check:SLUG, such as check:docs")])
    if match["kind"] == "run":
        return match["name"]
    check = find_check(connection, match["name"])
    ended = results.ended_runs(connection, check.id, limit=_LATEST)
    newest = next((row for row in reversed(ended) if row.aggregates), None)
    if newest is None:
        raise ConflictError(
            f"check '{check.slug}' has no run with results among its newest; there is nothing to compare"
        )
    return str(newest.id)


def _differences(comparison: Comparison) -> Floats:
    """Return what each pair gains in B by the measure canaries are ordered by."""
    a, b = (side[comparison.ordering] for side in comparison.scores)
    return b - a


def _winner(difference: float) -> Side | None:
    if abs(difference) <= ROUNDING:
        return None
    return Side.B if difference > 0 else Side.A


def _self_judged(*runs: ComparedRun) -> list[str]:
    """Return what to know of the recall of each retriever whose own first hits are all that was judged."""
    lines = (self_judged_lines(run.retriever, self_judged=run.outline["self_judged"]) for run in runs)
    return list(dict.fromkeys(chain.from_iterable(lines)))


def _outline(run: ComparedRun, reference: str) -> ComparedRunOutline:
    yardstick = run.inputs.yardstick
    return {**run.outline, "reference": reference, "k": yardstick.k, "fetch_k": yardstick.fetch_k}


def _canary(comparison: Comparison, row: int, difference: float) -> ComparedCanary:
    place_a, place_b = comparison.pairing.places[row]
    canary = comparison.b.canaries[place_b]
    a, b = (float(side[comparison.ordering][row]) for side in comparison.scores)
    return {
        "key": canary.key,
        "query": canary.query,
        "category": canary.category,
        "tags": list(canary.tags),
        "winner": _winner(difference),
        "a": number(a),
        "b": number(b),
        "difference": number(difference),
        "rank_a": _rank(comparison.a, place_a),
        "rank_b": _rank(comparison.b, place_b),
    }


def _rank(run: ComparedRun, place: int) -> int | None:
    """Return the rank of the first expected chunk; None = not found."""
    state = run.states[place]
    return None if state is None else Match.from_bytes(state.matched).first_relevant
