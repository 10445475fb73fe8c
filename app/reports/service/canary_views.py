"""The page view of a canary in a check: expected chunks, latest and last healthy answer, states, failed runs.

Below it the layout of its history as a band. Nothing here writes or sends requests.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from app.base.db.engine import Connection, Store, row_value
from app.base.errors import NotFoundError
from app.base.texts import outcome_word
from app.base.values import Canary, Level, Outcome, Ranking, Value, Verdict, replace
from app.base.views import rounded_or_none, time_text
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.service.references import find_check
from app.catalog.service.versions import load_yardstick
from app.catalog.store import CanaryRow, Definition
from app.records.service import past_runs
from app.records.store import ranking_rows, run_rows, state_rows
from app.records.store.open_runs import Failure
from app.records.store.run_rows import ProbedRun, newest_probes
from app.records.store.state_rows import StateRow, degraded_since
from app.records.views import HitView, JudgmentView, judgment_shape, ranking_shape
from app.reports.service import charts
from app.reports.views import CanaryState
from app.retrievers.domain.retrievers import Scorer, measures_relevance
from app.scoring.evaluation import WRONG_FIELDS, forbidden_ranks, is_relevance_judged, named_by, unpack_reasons
from app.scoring.rankings import LEVELS, Match, match, prepare, rbo

STATES = 50
_RUNS = 60
"""Number of runs that are searched for failed probes."""


class ComparedHit(HitView):
    """A hit compared with those of another answer."""

    other: int | None
    """Its rank in the other answer; None = it is not in it."""
    move: Literal["up", "down", "same", "new", "gone"] | None
    """In the direction of time; None = there is no other answer."""
    forbidden: bool


class ChunkPlace(Value):
    """Where an answer satisfies a judgment, and by which level; all None where it does not."""

    rank: int | None = None
    level: Level | None = None
    id: str | None = None
    text: str | None = None


class ExpectedChunk(Value):
    """A judgment with its place in the latest and the last healthy answer; None where there is no such answer."""

    judgment: JudgmentView
    now: ChunkPlace | None
    well: ChunkPlace | None


class CanaryAnswer(Value):
    """The answer of one state of a canary, with its hits compared with those of another answer."""

    verdict: str
    reasons: Sequence[str]
    first_run: str
    last_run: str | None
    """None = the state holds until now."""
    since: str | None
    until: str | None
    top_score: float | None
    hits: Sequence[ComparedHit]


class FailedRuns(Value):
    """Consecutive runs that could not measure a canary."""

    first_run: str
    since: str
    until: str | None
    """When a run measured it again; None = not yet."""
    runs: int
    outcome: str
    detail: str | None


class CanaryDetail(Value):
    """A canary of a check with its evidence."""

    definition: Mapping[str, Any]
    suite: str
    managed_by: str
    source: str | None
    archived: bool
    """Whether the check or the canary is archived."""
    k: int
    verdict: str | None
    """Verdict of the newest ended run; None = no run has measured it yet."""
    failure: FailedRuns | None
    """Failure of the newest run."""
    history: Sequence[CanaryState]
    """Its states, newest first."""
    ranks: Mapping[str, int | None]
    """Rank of the first expected chunk in the answers to its present query, by first run; None = not found."""
    gaps: Sequence[FailedRuns]
    """Failures of the newest runs, oldest first."""
    now: CanaryAnswer | None
    """The latest answer to its present query; None = there is none."""
    well: CanaryAnswer | None
    """The latest other healthy answer to its present query; None = there is none."""
    expected: Sequence[ExpectedChunk]
    wrong_field: str | None
    """Sentence that its judgments name the wrong field, by the latest answer; None = that answer does not show it."""
    expectations_changed: bool
    """Whether its judgments changed after the newest run; the places shown are by the present ones."""
    query_changed: bool
    """Whether its query changed after the newest run."""
    degraded_since: tuple[str, str | None] | None
    """The first run of the degraded period that `now` is in, with its time; None = it is healthy."""
    rbo: float | None
    """Rank-biased overlap of the two answers."""
    relevance_judged: bool
    """Whether the relevance of the first hit can degrade it, by the present retriever."""


def load_canary(store: Store, slug: str, key: str) -> CanaryDetail:
    """Return a canary of a check, also an archived one. Raises NotFoundError."""
    states = charts.canary_history(store, slug, key, limit=STATES).items
    with store.read() as connection:
        check = find_check(connection, slug)
        row = _canary(connection, check, key)
        canary = _canary_of(row.body)
        probed = newest_probes(connection, check.id, limit=_RUNS)
        places = _places(connection, probed, key)
        timeline = state_rows.timeline(connection, check.id, row.id, limit=STATES)
        bodies = catalog.bodies_of(connection, [state.canary_version_id for state in timeline])
        same = [state for state in timeline if _canary_of(bodies[state.canary_version_id]).asked == canary.asked]
        now = same[0] if same and same[0] is timeline[0] else None
        well = past_runs.last_healthy_state(connection, now, [state for state in same if state is not now])
        states_by_side = {name: state for name, state in (("now", now), ("well", well)) if state is not None}
        newest = probed[-1].id if probed else 0
        if now is not None and places.get(newest) in run_rows.unscored_at(connection, newest):
            states_by_side["now"] = past_runs.without_relevance(now)
        shown = [*timeline, *states_by_side.values()]
        rankings = ranking_rows.load_rankings(connection, [state.ranking_id for state in shown])
        evidence = {
            name: _StateEvidence(
                state=state,
                ranking=rankings[state.ranking_id],
                scorer=_scorer(connection, state.last_run or newest),
                times=run_rows.run_times(connection, [state.first_run, state.last_run or newest]),
            )
            for name, state in states_by_side.items()
        }
        since = _degraded_since(connection, now)
        scorer = _present_scorer(connection, check)
    gaps = _gaps(probed, places)
    failure = gaps[-1] if gaps and gaps[-1].until is None else None
    both = evidence.get("now"), evidence.get("well")
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
        ranks={str(state.first_run): _best_rank(canary, rankings[state.ranking_id]) for state in same},
        gaps=gaps,
        now=_answer(canary, both[0], both[1], newest=True),
        well=_answer(canary, both[1], both[0], newest=False),
        expected=_expected(canary, *both),
        wrong_field=None if both[0] is None else WRONG_FIELDS.get(named_by(canary, both[0].ranking)),
        expectations_changed=now is not None and not canary.is_judged_as(_canary_of(bodies[now.canary_version_id])),
        query_changed=bool(timeline) and now is None,
        degraded_since=since,
        rbo=None if both[0] is None or both[1] is None else rbo(both[1].ranking.ids, both[0].ranking.ids),
        relevance_judged=is_relevance_judged(canary, scorer_measures_relevance=measures_relevance(scorer)),
    )


def _best_rank(canary: Canary, ranking: Ranking) -> int | None:
    found = match(prepare(canary.judgments), ranking)
    ranks = [rank for one, rank in zip(canary.judgments, found.first, strict=True) if one.grade and rank is not None]
    return min(ranks, default=None)


def _degraded_since(connection: Connection, now: StateRow | None) -> tuple[str, str | None] | None:
    if now is None or not now.reasons:
        return None
    canaries = {now.first_run: [now.canary_id]}
    first_run = degraded_since(connection, canaries)[now.first_run].get(now.canary_id, now.first_run)
    return str(first_run), time_text(run_rows.run_times(connection, [first_run]).get(first_run))


def _canary_of(body: Mapping[str, Any]) -> Canary:
    return CanaryDocument.model_validate(body).to_domain()


class _StateEvidence(Value):
    """A state with its ranking, scorer and run times."""

    state: StateRow
    ranking: Ranking
    scorer: Scorer | None
    """None = its runs were deleted by retention."""
    times: Mapping[int, int]


def compare_hits(
    hits: Sequence[HitView], others: Sequence[str] | None, *, newest: bool, forbidden: Sequence[int] = ()
) -> list[ComparedHit]:
    """Return the hits with their rank among the ids of another answer, and their move; None = there is no other.

    A hit only in the older answer is gone, one only in the newer is new.
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


def _move(rank: int, other: int | None, *, newest: bool) -> Literal["up", "down", "same", "new", "gone"]:
    if other is None:
        return "new" if newest else "gone"
    before, now = (other, rank) if newest else (rank, other)
    return "same" if before == now else "up" if now < before else "down"


def _canary(connection: Connection, check: Definition, key: str) -> CanaryRow:
    suite = catalog.find_definition(connection, "suite", check.body["suite"])
    rows = catalog.list_canaries(connection, suite.id, archived=True, keys=[key]) if suite is not None else []
    found = next(iter(rows), None)
    if found is None:
        raise NotFoundError(f"check '{check.slug}' has no canary '{key}'")
    return found


def _places(connection: Connection, probed: Sequence[ProbedRun], key: str) -> dict[int, int]:
    """Return the position of a canary in each run whose suite has it, by run id."""
    versions = {run.suite_version_id for run in probed if run.suite_version_id is not None}
    found = catalog.places_of(connection, versions, [key])
    return {
        run.id: found[run.suite_version_id][key][0]
        for run in probed
        if run.suite_version_id is not None and key in found[run.suite_version_id]
    }


def _gaps(probed: Sequence[ProbedRun], places: Mapping[int, int]) -> list[FailedRuns]:
    """Return consecutive failed runs of a canary as one each; runs whose suite lacks it are skipped."""
    gaps: list[FailedRuns] = []
    for run in probed:
        if run.failures is not None and run.id not in places:
            continue
        failure = _RUN_FAILED if run.failures is None else run.failures.get(places[run.id])
        at = time_text(run.finished_at)
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


_RUN_FAILED = Failure(outcome=str(Outcome.SKIPPED), detail="the run could not be carried out")


def _present_scorer(connection: Connection, check: Definition) -> Scorer:
    retriever = catalog.find_definition(connection, "retriever", check.body["retriever"])
    assert retriever is not None  # noqa: S101 - a check is only stored with its retriever, which stays as archived
    return load_yardstick(connection, check.version_id, retriever.version_id).scorer


def _scorer(connection: Connection, run_id: int) -> Scorer | None:
    run = run_rows.find_run(connection, run_id)
    if run is None or run.check_version_id is None or run.retriever_version_id is None:
        return None
    return load_yardstick(connection, run.check_version_id, run.retriever_version_id).scorer


def _verdict(failure: FailedRuns | None, now: _StateEvidence | None) -> str | None:
    if failure is not None:
        return str(Verdict.UNKNOWN)
    if now is None:
        return None
    return str(Verdict.DEGRADED if now.state.reasons else Verdict.HEALTHY)


def _answer(
    canary: Canary, mine: _StateEvidence | None, other: _StateEvidence | None, *, newest: bool
) -> CanaryAnswer | None:
    if mine is None:
        return None
    state, ranking = mine.state, mine.ranking
    found = match(prepare(canary.judgments), ranking)
    hits = ranking_shape(ranking, found, canary.judgments, mine.scorer)
    forbidden = forbidden_ranks(canary, ranking) if canary.forbidden or canary.expect_empty else []
    return CanaryAnswer(
        verdict=str(Verdict.DEGRADED if state.reasons else Verdict.HEALTHY),
        reasons=[str(reason) for reason in unpack_reasons(state.reasons)],
        first_run=str(state.first_run),
        last_run=None if state.last_run is None else str(state.last_run),
        since=time_text(mine.times.get(state.first_run)),
        until=None if state.last_run is None else time_text(mine.times.get(state.last_run)),
        top_score=rounded_or_none(state.top_score),
        hits=compare_hits(hits, None if other is None else other.ranking.ids, newest=newest, forbidden=forbidden),
    )


def _expected(canary: Canary, now: _StateEvidence | None, well: _StateEvidence | None) -> list[ExpectedChunk]:
    prepared = prepare(canary.judgments)
    sides = [None if side is None else (side.ranking, match(prepared, side.ranking)) for side in (now, well)]
    places = [
        [None if side is None else _place(*side, index) for side in sides] for index in range(len(canary.judgments))
    ]
    return [
        ExpectedChunk(judgment=judgment_shape(judgment), now=in_latest, well=in_healthy)
        for judgment, (in_latest, in_healthy) in zip(canary.judgments, places, strict=True)
    ]


def _place(ranking: Ranking, found: Match, index: int) -> ChunkPlace:
    rank = found.first[index]
    if rank is None:
        return ChunkPlace()
    level = LEVELS[found.first_level[index] - 1]
    return ChunkPlace(rank=rank, level=level, id=ranking.ids[rank - 1], text=ranking.texts[rank - 1])


_LEAST = 1.2
_FOR_ALL = 50.0
"""Percent of the width: the minimum of a segment, and the most that all minimums may take."""
_WIDE = 11.0
"""Percent from which a segment has room for its label."""


class Period(Value):
    """A period in which the state of a canary did not change."""

    verdict: str
    reasons: Sequence[str]
    start: datetime
    end: datetime
    run: str
    """The run it began with."""


class BandSegment(Period):
    """A period as a segment of the band of a canary's states."""

    open: bool
    """Whether it lasts until now."""
    x: str
    width: str
    """Percent, as SVG takes it."""
    middle: str
    wide: bool


def layout_band(states: Sequence[CanaryState], gaps: Sequence[FailedRuns], now: datetime) -> list[BandSegment]:
    """Return the segments, oldest first, of states (newest first) and of the failed runs between them.

    Longer segments are wider, though not in proportion, so that the shortest can be pressed. States whose runs were
    deleted by retention are left out.
    """
    periods = _cut(_spans(states, now), _unknown(gaps, now))
    if not periods:
        return []
    whole = sum((period.end - period.start).total_seconds() for period in periods) or 1.0
    least = min(_LEAST, _FOR_ALL / len(periods))
    rest = 100.0 - least * len(periods)
    stretches, x = list[BandSegment](), 0.0
    for period in periods:
        width = least + rest * (period.end - period.start).total_seconds() / whole
        stretches.append(
            row_value(
                BandSegment,
                period,
                open=period.end == now,
                x=f"{x:.2f}%",
                width=f"{max(width - _SEAM, 0.1):.2f}%",
                middle=f"{x + width / 2:.2f}%",
                wide=width >= _WIDE,
            )
        )
        x += width
    return stretches


_ROW = 18
"""Height of a rank, in pixels."""
_MOST_RANKS = 20


class RankStep(Period):
    """A period with the rank of the first expected chunk, as it is drawn; widths are to scale."""

    rank: int | None
    """None = not found, or not measured."""
    x: str
    width: str
    """Percent, as SVG takes it."""
    y: float | None
    """Middle, in pixels; None = not measured."""


class RankChart(Value):
    """The ranks of the first expected chunk over time; one is better and drawn higher."""

    steps: Sequence[RankStep]
    rises: Sequence[tuple[str, float, float]]
    """Where a step follows another: place, and the heights of both."""
    axis: Sequence[tuple[float, str]]
    """Heights of what is written beside it."""
    cut: float
    """Height of the line below the first k."""
    height: int


def draw_ranks(detail: CanaryDetail, now: datetime) -> RankChart | None:
    """Draw the ranks of the first expected chunk; None where nothing is expected, or nothing was measured."""
    periods = _cut(_spans(detail.history, now), _unknown(detail.gaps, now))
    if not detail.ranks or not periods or not any(one.judgment["grade"] for one in detail.expected):
        return None
    deepest = min(max(detail.k, *(rank or 0 for rank in detail.ranks.values())), _MOST_RANKS)
    begin = periods[0].start
    whole = (now - begin).total_seconds() or 1.0
    steps, rises = list[RankStep](), list[tuple[str, float, float]]()
    for period in periods:
        rank, y = None, None
        if period.verdict != Verdict.UNKNOWN and period.run in detail.ranks:
            rank = detail.ranks[period.run]
            y = _ROW * ((min(rank, deepest + 1) if rank else deepest + 1) - 0.5)
        x = 100 * (period.start - begin).total_seconds() / whole
        width = 100 * (period.end - period.start).total_seconds() / whole
        before = steps[-1].y if steps else None
        if y is not None and before is not None and before != y:
            rises.append((f"{x:.2f}%", min(before, y), max(before, y)))
        step = row_value(RankStep, period, rank=rank, x=f"{x:.2f}%", width=f"{max(width, _SEAM):.2f}%", y=y)
        steps.append(step)
    ranks = sorted({1, detail.k, deepest})
    return RankChart(
        steps=steps,
        rises=rises,
        axis=[*((_ROW * (rank - 0.5), str(rank)) for rank in ranks), (_ROW * (deepest + 0.5), "not found")],
        cut=float(_ROW * detail.k),
        height=_ROW * (deepest + 1),
    )


_SEAM = 0.15
"""Percent left free between two segments."""


def _spans(states: Sequence[CanaryState], now: datetime) -> list[Period]:
    """Return the periods of states, each until the next begins."""
    periods: list[Period] = []
    end = now
    for state in states:
        if state["from"] is None:
            break
        start = min(datetime.fromisoformat(state["from"]), end)
        verdict, reasons, run = state["verdict"], state["reasons"], state["first_run"]
        periods.append(Period(verdict=verdict, reasons=reasons, start=start, end=end, run=run))
        end = start
    return periods[::-1]


def _unknown(gaps: Sequence[FailedRuns], now: datetime) -> list[Period]:
    return [
        Period(
            verdict=str(Verdict.UNKNOWN),
            reasons=[outcome_word(gap.outcome)],
            start=datetime.fromisoformat(gap.since),
            end=now if gap.until is None else datetime.fromisoformat(gap.until),
            run=gap.first_run,
        )
        for gap in gaps
    ]


def _cut(periods: Sequence[Period], gaps: Sequence[Period]) -> list[Period]:
    """Return the periods with gaps cut out, and the gaps in their places."""
    periods_left = list(periods)
    for gap in gaps:
        periods_left = [
            part
            for period in periods_left
            for part in (
                _between(period, period.start, min(period.end, gap.start)),
                _between(period, max(period.start, gap.end), period.end),
            )
            if part is not None
        ]
    return sorted([*periods_left, *gaps], key=lambda period: period.start)


def _between(period: Period, start: datetime, end: datetime) -> Period | None:
    """Return the part of a period between two times; None where there is none."""
    return replace(period, start=start, end=end) if start < end else None
