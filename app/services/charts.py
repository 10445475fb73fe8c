"""What charts show: a measure of a check over time, and the states a canary went through. Nothing here writes."""

from collections.abc import Sequence
from typing import Any

from app.domain.errors import InvalidInputError, NotFoundError, Problem
from app.domain.judging import unpack_reasons
from app.domain.measures import mean_name, parse_measure
from app.domain.model import Verdict
from app.formats import shapes
from app.formats.fields import shortened
from app.services.reading import find_check, named_numbers
from app.services.scoring import find_rescoring
from app.store import catalog, history
from app.store import series as stored
from app.store.engine import Store

MAX_POINTS = 2_000
_HOUR, _DAY = 3_600, 86_400


def series(
    store: Store,
    slug: str,
    *,
    measure: str,
    category: str | None,
    start: int,
    end: int,
    points: int,
    version: str | None = None,
) -> dict[str, Any]:
    """Read a measure of a check over time, in at most `points` points: single runs, hours or days, as fits.

    With a measures `version` it is that of the runs re-scored as it.
    """
    measure = _known_name(measure)
    name = f"{category}/{measure}" if category else measure
    with store.read() as connection:
        check = find_check(connection, slug)
        rescoring = find_rescoring(connection, check.id, version)
        source = stored.Source(check_id=check.id, rescoring_id=None if rescoring is None else rescoring.id)
        hours = (end - start) / (_HOUR * 1_000_000)
        most = MAX_POINTS if hours < points else points  # where hours are too coarse, single runs are joined
        few = stored.count_runs(connection, source, start, end, at_most=most) <= most
        if few and stored.runs_reach_back(connection, source, start):
            found = stored.series_of_runs(connection, source, name, start, end)
        else:
            found = stored.series_of_rollups(
                connection, source, name, start, end, seconds=_HOUR if hours <= MAX_POINTS else _DAY
            )
        marks = stored.list_marks(connection, check.id, start, end)
    if not found:
        _expect_kept(store, check.id, name, category)
    merged = _thinned(found, points)
    return {
        "check": slug,
        "measure": measure,
        "category": category,
        "measures_version": None if rescoring is None else rescoring.name,
        "points": [
            {
                "at": shapes.time_text(point.at),
                "mean": shapes.number(point.mean),
                "min": shapes.number(point.min),
                "max": shapes.number(point.max),
                "runs": point.runs,
            }
            for point in merged
        ],
        "marks": [{"at": shapes.time_text(at), "index_version": version} for at, version in marks],
    }


def _known_name(measure: str) -> str:
    """Give the name a measure's mean is kept under, whatever alias was written."""
    if "/" in measure:  # how a category's numbers are named inside
        raise InvalidInputError(
            [Problem(path="measure", message="must be a measure alone; a category goes into 'category'")]
        )
    try:
        return mean_name(parse_measure(measure))
    except ValueError:
        return measure


def canary_history(store: Store, slug: str, key: str, *, limit: int = 200) -> dict[str, Any]:
    """Read the states a canary of a check went through, newest first."""
    with store.read() as connection:
        check = find_check(connection, slug)
        suite = catalog.find_definition(connection, "suite", check.body["suite"])
        canary_id = catalog.find_canary_id(connection, suite.id, key) if suite else None
        if canary_id is None:
            raise NotFoundError(f"check '{slug}' has no canary '{key}'")
        states = history.timeline(connection, check.id, canary_id, limit=limit)
        ends = [state.last_run for state in states if state.last_run is not None]
        times = history.run_times(connection, [*(state.first_run for state in states), *ends])
        rankings = history.read_rankings(connection, [state.ranking_id for state in states])
        names = {layout: history.layout_names(connection, layout) for layout in {s.layout_id for s in states}}
    return {
        "check": slug,
        "key": key,
        "items": [
            {
                "verdict": str(Verdict.DEGRADED if state.reasons else Verdict.HEALTHY),
                "reasons": [str(reason) for reason in unpack_reasons(state.reasons)],
                "first_run": str(state.first_run),
                "from": shapes.time_text(times.get(state.first_run)),
                "last_run": str(state.last_run) if state.last_run is not None else None,
                "until": shapes.time_text(times.get(state.last_run)) if state.last_run is not None else None,
                "top_score": shapes.number(state.top_score),
                "measures": shapes.numbers(named_numbers(names[state.layout_id], state.vector)),
                "ranking": list(rankings[state.ranking_id].ids),
            }
            for state in states
        ],
    }


def _expect_kept(store: Store, check_id: int, name: str, category: str | None) -> None:
    """Refuse what the newest run, if it measured anything, has no number for; all it has are named."""
    with store.read() as connection:
        newest = history.latest_body(connection, check_id)
        row = history.find_run(connection, newest[0]) if newest else None
    if row is None or not row.aggregates or name in row.aggregates:
        return
    prefix = f"{category}/" if category else ""
    kept = [
        one.removeprefix(prefix) for one in row.aggregates if one.startswith(prefix) and ("/" in one) == bool(prefix)
    ]
    told = f"there are: {', '.join(kept)}" if kept else f"its suite has no canary of the category {category}"
    message = f"'{shortened(name.removeprefix(prefix))}' is not kept for this check; {told}"
    raise InvalidInputError([Problem(path="measure", message=message)])


def _thinned(found: Sequence[stored.Point], points: int) -> list[stored.Point]:
    """Join neighbours until no more than `points` are left."""
    if len(found) <= points:
        return list(found)
    size = -(-len(found) // points)
    joined = []
    for start in range(0, len(found), size):
        block = found[start : start + size]
        count = sum(point.runs for point in block)
        joined.append(
            stored.Point(
                at=block[0].at,
                mean=sum(point.mean * point.runs for point in block) / count,
                min=min(point.min for point in block),
                max=max(point.max for point in block),
                runs=count,
            )
        )
    return joined
