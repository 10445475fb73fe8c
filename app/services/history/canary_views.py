"""A canary of a check as people look at it: what it expects, where that stands now and where it stood when last well.

Nothing here writes or asks; trying a canary is canary_trials', why it degraded is diagnosis'.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.domain.errors import NotFoundError
from app.domain.model import Canary, Outcome, Ranking, Verdict
from app.domain.probing.retrievers import Scorer
from app.domain.runs.evaluation import forbidden_ranks
from app.domain.runs.matching import LEVELS, Match, match, prepare
from app.domain.runs.rankings import rbo
from app.domain.runs.tally import unpack_reasons
from app.formats.catalog.documents import CanaryDocument
from app.formats.history import shapes
from app.services import score_details
from app.services.alerts.changed_list import last_healthy_state
from app.services.catalog.run_inputs import load_yardstick
from app.services.history import charts
from app.services.lookup import find_check
from app.store.catalog import definitions, suites
from app.store.catalog.definitions import Definition
from app.store.catalog.suites import CanaryRow
from app.store.engine import Connection, Store
from app.store.history.probe_outcomes import ProbedRun, newest_probes
from app.store.runs import results
from app.store.runs.queue import Failure
from app.store.runs.results import StateRow

STATES = 50
_RUNS = 60
"""How far back failed probes are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a canary was answered for some time, its hits held against those of another answer."""

    verdict: str
    reasons: Sequence[str]
    first_run: str
    last_run: str | None
    """None = it still holds."""
    since: str | None
    until: str | None
    top_score: float | None
    hits: Sequence[Mapping[str, Any]]
    """As `shapes.ranking_shape` has them, with `other` (the rank in the other answer, None = not there), `move` (up,
    down, same, new or gone, as seen from this answer) and `forbidden`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRuns:
    """Runs in a row that could not measure a canary."""

    first_run: str
    since: str
    until: str | None
    """When a run measured it again; None = none has."""
    runs: int
    outcome: str
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryDetail:
    """A canary of a check with its evidence."""

    definition: Mapping[str, Any]
    suite: str
    managed_by: str
    source: str | None
    archived: bool
    """The check is, or the canary: nobody asks any more."""
    k: int
    verdict: str | None
    """By the newest ended run of the check; None = no run has asked it yet."""
    failure: FailedRuns | None
    """Why the newest run did not measure it."""
    history: Sequence[Mapping[str, Any]]
    """Its newest states, newest first, as `charts.canary_history` has them."""
    gaps: Sequence[FailedRuns]
    """When the newest runs could not measure it, oldest first."""
    now: Answer | None
    """The newest answer there was; None = it was never measured, or asks something else by now."""
    well: Answer | None
    """The newest other answer with which it was healthy; None = there was none to the same query."""
    expected: Sequence[Mapping[str, Any]]
    """What it expects: the `judgment` with `now` and `well`, each None where there is no such answer, else
    `{rank, level, id, text}`, all None where that answer lacks it."""
    judged_anew: bool
    """What it is judged by was changed since it was asked: shown is how the answers stand by those of today."""
    asks_otherwise: bool
    """Its query was changed since it was asked."""
    rbo: float | None
    """How alike the two answers are."""


def one_canary(store: Store, slug: str, key: str) -> CanaryDetail:
    """Read a canary of a check, archived ones included. Raises NotFoundError where either is not there."""
    states = charts.canary_history(store, slug, key, limit=STATES).items
    with store.read() as connection:
        check = find_check(connection, slug)
        row = _canary(connection, check, key)
        canary = _canary_of(row.body)
        probed = newest_probes(connection, check.id, limit=_RUNS)
        places = _places(connection, probed, key)
        past = results.timeline(connection, check.id, row.id, limit=STATES)
        bodies = suites.bodies_of(connection, [state.canary_version_id for state in past])
        same = [state for state in past if bodies[state.canary_version_id]["query"] == canary.query]
        now = same[0] if same and same[0] is past[0] else None
        well = last_healthy_state(connection, now, [state for state in same if state is not now])
        held = {name: state for name, state in (("now", now), ("well", well)) if state is not None}
        newest = probed[-1].id if probed else 0
        if now is not None and places.get(newest) in results.unscored_at(connection, newest):
            held["now"] = score_details.without_relevance(now)
        rankings = results.read_rankings(connection, [state.ranking_id for state in held.values()])
        seen = {
            name: _Seen(
                state=state,
                ranking=rankings[state.ranking_id],
                scorer=_scorer(connection, state.last_run or newest),
                times=results.run_times(connection, [state.first_run, state.last_run or newest]),
            )
            for name, state in held.items()
        }
    gaps = _gaps(probed, places)
    failure = gaps[-1] if gaps and gaps[-1].until is None else None
    both = seen.get("now"), seen.get("well")
    return CanaryDetail(
        definition=row.body,
        suite=str(check.body["suite"]),
        managed_by=row.managed_by,
        source=row.source,
        archived=check.archived_at is not None or row.archived_at is not None,
        k=int(check.body["k"]),
        verdict=_verdict(failure, both[0]),
        failure=failure,
        history=states,
        gaps=gaps,
        now=_answer(canary, both[0], both[1], newest=True),
        well=_answer(canary, both[1], both[0], newest=False),
        expected=_expected(canary, *both),
        judged_anew=now is not None and not canary.is_judged_as(_canary_of(bodies[now.canary_version_id])),
        asks_otherwise=bool(past) and now is None,
        rbo=None if both[0] is None or both[1] is None else rbo(both[1].ranking.ids, both[0].ranking.ids),
    )


def _canary_of(body: Mapping[str, Any]) -> Canary:
    return CanaryDocument.model_validate(body).to_domain()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A state with what it stands for."""

    state: StateRow
    ranking: Ranking
    scorer: Scorer | None
    """None = its runs are forgotten."""
    times: Mapping[int, int]


def held_against(
    hits: Sequence[Mapping[str, Any]], others: Sequence[str] | None, *, newest: bool, forbidden: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Say of each hit where it stands among the ids of another answer, and how it moved; None = there is no other.

    Moves are told as time goes: in the older answer a hit that the newer one lacks is gone, in the newer one it is new.
    """
    places = {chunk: rank for rank, chunk in enumerate(others or (), 1)}
    return [
        {
            **hit,
            "other": places.get(hit["id"]),
            "move": None if others is None else _move(hit["rank"], places.get(hit["id"]), newest=newest),
            "forbidden": hit["rank"] in forbidden,
        }
        for hit in hits
    ]


def _move(rank: int, other: int | None, *, newest: bool) -> str:
    if other is None:
        return "new" if newest else "gone"
    before, now = (other, rank) if newest else (rank, other)
    return "same" if before == now else "up" if now < before else "down"


def _canary(connection: Connection, check: Definition, key: str) -> CanaryRow:
    suite = definitions.find_definition(connection, "suite", check.body["suite"])
    rows = suites.list_canaries(connection, suite.id, archived=True, keys=[key]) if suite is not None else []
    found = next(iter(rows), None)
    if found is None:
        raise NotFoundError(f"check '{check.slug}' has no canary '{key}'")
    return found


def _places(connection: Connection, probed: Sequence[ProbedRun], key: str) -> dict[int, int]:
    """Give the position of a canary in each of these runs that asked it, by run id."""
    versions = {run.suite_version_id for run in probed if run.suite_version_id is not None}
    found = suites.places_of(connection, versions, [key])
    return {
        run.id: found[run.suite_version_id][key][0]
        for run in probed
        if run.suite_version_id is not None and key in found[run.suite_version_id]
    }


def _gaps(probed: Sequence[ProbedRun], places: Mapping[int, int]) -> list[FailedRuns]:
    """Join runs in a row that could not measure a canary; those that did not ask it say nothing."""
    gaps: list[FailedRuns] = []
    for run in probed:
        if run.failures is not None and run.id not in places:
            continue
        failure = _NOTHING_ASKED if run.failures is None else run.failures.get(places[run.id])
        at = shapes.time_text(run.finished_at)
        assert at is not None  # noqa: S101 - it ended
        if failure is None:
            if gaps and gaps[-1].until is None:
                gaps[-1] = replace(gaps[-1], until=at)
        elif gaps and gaps[-1].until is None:
            last = gaps[-1]
            gaps[-1] = replace(last, runs=last.runs + 1, outcome=failure.outcome, detail=failure.detail)
        else:
            first = FailedRuns(
                first_run=str(run.id), since=at, until=None, runs=1, outcome=failure.outcome, detail=failure.detail
            )
            gaps.append(first)
    return gaps


_NOTHING_ASKED = Failure(outcome=str(Outcome.SKIPPED), detail="the run could not be carried out")


def _scorer(connection: Connection, run_id: int) -> Scorer | None:
    run = results.find_run(connection, run_id)
    if run is None or run.check_version_id is None or run.retriever_version_id is None:
        return None
    return load_yardstick(connection, run.check_version_id, run.retriever_version_id).scorer


def _verdict(failure: FailedRuns | None, now: _Seen | None) -> str | None:
    if failure is not None:
        return str(Verdict.UNKNOWN)
    if now is None:
        return None
    return str(Verdict.DEGRADED if now.state.reasons else Verdict.HEALTHY)


def _answer(canary: Canary, mine: _Seen | None, other: _Seen | None, *, newest: bool) -> Answer | None:
    if mine is None:
        return None
    state, ranking = mine.state, mine.ranking
    found = match(prepare(canary.judgments), ranking)
    hits = shapes.ranking_shape(ranking, found, canary.judgments, mine.scorer)
    forbidden = forbidden_ranks(canary, ranking) if canary.forbidden or canary.expect_empty else []
    return Answer(
        verdict=str(Verdict.DEGRADED if state.reasons else Verdict.HEALTHY),
        reasons=[str(reason) for reason in unpack_reasons(state.reasons)],
        first_run=str(state.first_run),
        last_run=None if state.last_run is None else str(state.last_run),
        since=shapes.time_text(mine.times.get(state.first_run)),
        until=None if state.last_run is None else shapes.time_text(mine.times.get(state.last_run)),
        top_score=shapes.number(state.top_score),
        hits=held_against(hits, None if other is None else other.ranking.ids, newest=newest, forbidden=forbidden),
    )


def _expected(canary: Canary, now: _Seen | None, well: _Seen | None) -> list[dict[str, Any]]:
    prepared = prepare(canary.judgments)
    sides = {
        name: (side.ranking, match(prepared, side.ranking))
        for name, side in (("now", now), ("well", well))
        if side is not None
    }
    return [
        {
            "judgment": shapes.judgment_shape(judgment),
            **{name: _place(*sides[name], index) if name in sides else None for name in ("now", "well")},
        }
        for index, judgment in enumerate(canary.judgments)
    ]


def _place(ranking: Ranking, found: Match, index: int) -> dict[str, Any]:
    """Say where a judgment is met in an answer, and by what; all None where it is not."""
    rank = found.first[index]
    if rank is None:
        return {"rank": None, "level": None, "id": None, "text": None}
    return {
        "rank": rank,
        "level": str(LEVELS[found.first_level[index] - 1]),
        "id": ranking.ids[rank - 1],
        "text": ranking.texts[rank - 1],
    }
