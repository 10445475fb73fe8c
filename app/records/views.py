"""What is shown of runs and results, and how it is made of what is stored; why results degraded, in sentences.

Reports of the gate and re-scorings are here too; reports of stored runs are in `reports.views`. Absent measurements are
None, never 0. What is stored of a run is made in `domain`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NotRequired

from typing_extensions import TypedDict

from app.base.texts import age_text, ratio_text
from app.base.values import (
    OWN_MEASURES,
    Answer,
    Canary,
    Category,
    Judgment,
    LatencyView,
    Level,
    Outcome,
    Ranking,
    Reason,
    RunStatus,
    Step,
    TimeText,
    Trigger,
    Verdict,
)
from app.base.views import numbers, rounded_or_none, time_text, view_of
from app.catalog.domain import PooledNote, labelled
from app.comparison.views import ComparisonDecision, Sides
from app.records.domain import RescoringSide, RunDetails, SliceView
from app.retrievers.domain.probes import StoredFinding, UnmeasuredView
from app.retrievers.domain.retrievers import Scorer, is_external, score_relevance
from app.scoring.evaluation import WRONG_FIELDS, compare_names, forbidden_ranks, newest_age
from app.scoring.rankings import Match, Prepared, missing_judgments


class RunCounts(TypedDict):
    """Canaries of a run by fate; null before it ended."""

    total: int | None
    measured: int | None
    failed: int | None
    undefined: int | None
    degraded: int | None


class RunNote(TypedDict):
    """What a person wrote of a run."""

    text: str
    by: str
    at: TimeText


class RunDocument(TypedDict):
    """One pass over a suite."""

    id: str
    check: str
    suite: str
    retriever: str
    trigger: Trigger
    index_version: str | None
    status: RunStatus
    scheduled_for: TimeText | None
    started_at: TimeText | None
    finished_at: TimeText | None
    verdict: Verdict | None
    reasons: list[str]
    """Reasons of the verdict, in sentences."""
    health_score: float | None
    coverage: float | None
    degraded_share: float | None
    degraded_queries: list[str]
    canaries: RunCounts
    measures: dict[str, float | None]
    categories: dict[str, SliceView]
    tags: dict[str, SliceView]
    suite_hash: str | None
    config_hash: str | None
    measures_version: str | None
    probes: dict[str, int]
    """Number of probes by outcome."""
    probes_by_step: dict[str, dict[str, int]]
    """The same by step, for probes that failed before the retriever."""
    unmeasured: list[UnmeasuredView] | None
    """Canaries without a measurement by what failed, the commonest first; null where runs are listed."""
    latency_seconds: LatencyView
    embedder: StoredFinding | None
    self_judged: bool | None
    """Whether more than a fifth of what is expected was brought up by this retriever itself, so that R@k is too high by
    whatever it misses; null where runs are listed."""
    judged_before_edit: bool | None
    """Whether this retriever was edited after it had brought that up, so that R@k may be too high or too low by now;
    null where runs are listed."""
    judged_by: list[str] | None
    """Other retrievers, each of which alone brought up more than a fifth of what is expected: what only this one finds
    may never have been judged; null where runs are listed."""
    pooled_recall: list[PooledNote]
    """Pooled recall of its retriever over its suite, by k: it stands beside R@k; empty where no task estimates it."""
    note: RunNote | None


class RunProgress(TypedDict):
    """Recorded probes of a run in progress."""

    done: int | None
    total: int | None


class RunView(RunDocument):
    """A run of a check; `progress` is null once it ended."""

    progress: RunProgress | None


class JudgmentView(TypedDict):
    """An expected chunk, without the fields it does not set."""

    id: NotRequired[str]
    document: NotRequired[str]
    text: NotRequired[str]
    grade: int


class HitView(TypedDict):
    """A hit with the judgment it matches."""

    rank: int
    id: str
    document: str | None
    text: str | None
    score: float | None
    updated: TimeText | None
    relevance: float | None
    judgment: JudgmentView | None
    level: Level | None
    grade: int | None


class ResultView(TypedDict):
    """One canary's part of a run: with its evidence if its probe measured, else with the failure."""

    key: str
    query: str
    category: Category
    tags: list[str]
    outcome: Outcome
    step: Step
    http_status: int | None
    detail: str | None
    latency_seconds: float | None
    verdict: Verdict
    reasons: list[Reason]
    top_score: float | None
    any_match: bool | None
    measures: dict[str, float | None]
    ranking: list[HitView]
    missing: list[JudgmentView]
    k: int
    min_relevance_score: float | None
    max_relevance_score: float | None
    floors: dict[str, float]
    expect_empty: bool
    forbidden_chunks: int
    max_age_seconds: float | None
    max_latency_seconds: float | None
    age_seconds: float | None
    forbidden_ranks: list[int]
    since_run: str | None
    """The run since which this state holds."""
    rbo: float | None
    """Rank-biased overlap of its ranking with the baseline's."""


class RunResults(TypedDict):
    """A run of a check with its worst canaries and all results."""

    run: RunView
    worst: list[ResultView]
    results: list[ResultView]


class ComparedRun(TypedDict):
    """The run of the report that was saved before."""

    id: str | None
    check: str | None
    finished_at: TimeText | None
    index_version: str | None
    verdict: Verdict | None


class RecoveredCanary(TypedDict):
    """A canary that is healthy and was degraded before."""

    key: str
    query: str


class DegradedCanary(RecoveredCanary):
    """A canary that is degraded and was not before; `why` has a sentence for each reason."""

    reasons: list[Reason]
    why: list[str]


class ReportComparison(TypedDict):
    """A report compared with one that was saved before."""

    baseline: ComparedRun
    differences: list[str]
    """Why the two are not strictly comparable, in sentences."""
    decision: ComparisonDecision | None
    """What is decided between the two; null where they cannot be compared."""
    measures: dict[str, Sides]
    newly_degraded: list[DegradedCanary]
    recovered: list[RecoveredCanary]


class ReportDocument(TypedDict):
    """A run with its worst canaries and, on request, all results."""

    run: RunDocument
    worst: list[ResultView]
    unjudged_answers: NotRequired[str | None]
    """Which rules watch answers that nobody judged, a clause. Of the gate, which asks no judge."""
    results: NotRequired[list[ResultView]]
    comparison: NotRequired[ReportComparison]
    """Comparison with a saved report, where the gate has one."""
    fetch_k: NotRequired[int]
    """Number of hits that were asked for. Of the gate."""
    expectations: NotRequired[dict[str, str]]
    """Digest of what each canary asks and expects, by key; "" where nothing is expected. Of the gate."""
    vars: NotRequired[dict[str, dict[str, str]]]
    """As whom each canary asked, by key: values of options of the retriever, where it or its check states any. Of the
    gate."""


_STARTERS: Mapping[str, str] = {
    Trigger.SCHEDULE: "the schedule",
    Trigger.API: "the API",
    Trigger.UPDATE: "an index update",
    Trigger.CLI: "the command line",
    Trigger.PAGE: "a button on a page",
}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WORST: Final = 10
"""Number of worst canaries in a report."""


def starter(trigger: str) -> str:
    """Return what started a run, for a sentence with "started by"."""
    return _STARTERS.get(trigger, trigger)


def run_shape(
    *sources: Any,
    id: str,  # noqa: A002 - the name on the wire
    check: str,
    suite: str,
    retriever: str,
    means: Mapping[str, float | None],
    body: RunDetails,
    embedder: StoredFinding | None = None,
    **given: Any,
) -> RunDocument:
    """Return the view of a run; a field that is not given is of the first source that has it, as in `view_of`.

    `means`: numbers by name, those of categories are ignored. `body` is the JSON stored beside the row, `embedder` the
    finding on one; `self_judged`, `judged_before_edit`, `judged_by` and `pooled_recall`: see `catalog.domain`.
    """
    means = {name: value for name, value in means.items() if "/" not in name}
    given = {
        "self_judged": None,
        "judged_before_edit": None,
        "judged_by": None,
        "pooled_recall": [],
        "note": None,
        **given,
    }
    return view_of(
        RunDocument,
        *sources,
        id=id,
        check=check,
        suite=suite,
        retriever=retriever,
        health_score=rounded_or_none(means.get("health_score")),
        coverage=rounded_or_none(means.get("coverage")),
        degraded_share=rounded_or_none(means.get("degraded_share")),
        degraded_queries=[canary["query"] for canary in body.get("degraded", ())],
        canaries=view_of(RunCounts, *sources),
        measures=numbers({name: value for name, value in means.items() if name not in OWN_MEASURES}),
        categories=_slices(body.get("categories", {})),
        tags=_slices(body.get("tags", {})),
        probes=body.get("probes", {}),
        probes_by_step=body.get("probes_by_step", {}),
        unmeasured=body.get("unmeasured"),
        latency_seconds=body.get("latency_seconds") or {"p50": None, "p95": None, "max": None},
        embedder=finding_shape(embedder),
        **given,
    )


def _slices(parts: Mapping[str, SliceView]) -> dict[str, SliceView]:
    return {name: view_of(SliceView, part, rounding=True) for name, part in parts.items()}


def finding_shape(stored: StoredFinding | None) -> StoredFinding | None:
    """Return the view of a run's finding on the embedder; None where there is none."""
    return None if stored is None else view_of(StoredFinding, stored)


def result_shape(  # noqa: PLR0913 - everything known of one canary in one run
    canary: Canary,
    probe: Answer,
    *,
    ranking: Ranking | None = None,
    prepared: Prepared | None = None,
    match: Match | None = None,
    measures: Mapping[str, float | None] | None = None,
    top_score: float | None = None,
    reasons: Sequence[Reason] = (),
    scorer: Scorer | None = None,
    k: int,
    asked_at: datetime | None = None,
    since_run: str | None = None,
    rbo: float | None = None,
) -> ResultView:
    """Return the view of one canary's part of a run: with evidence where its probe measured, else with the failure.

    `probe` is how it ended; `ranking` has the hits. The age of its hits is counted up to `asked_at`, the start of the
    run; `rbo` is the overlap of its ranking with the baseline's.
    """
    measured = probe.outcome is Outcome.OK and ranking is not None and match is not None and prepared is not None
    shape: ResultView = {
        "key": canary.key,
        "query": canary.query,
        "category": canary.category,
        "tags": list(canary.tags),
        "outcome": probe.outcome,
        "step": probe.step,
        "http_status": probe.http_status,
        "detail": probe.detail,
        "latency_seconds": rounded_or_none(probe.latency_seconds),
        "verdict": _verdict(measured=measured, reasons=reasons),
        "reasons": list(reasons) if measured else [],
        "top_score": rounded_or_none(top_score) if measured else None,
        "any_match": None,
        "measures": numbers(measures or {}),
        "ranking": [],
        "missing": [],
        "k": k,
        "min_relevance_score": canary.min_relevance_score,
        "max_relevance_score": canary.max_relevance_score,
        "floors": dict(canary.floors),
        "expect_empty": canary.expect_empty,
        "forbidden_chunks": len(canary.forbidden),
        "max_age_seconds": canary.max_age_seconds,
        "max_latency_seconds": canary.max_latency_seconds,
        "age_seconds": None,
        "forbidden_ranks": [],
        "since_run": since_run,
        "rbo": rounded_or_none(rbo),
    }
    if ranking is not None and match is not None and prepared is not None and measured:
        first = match.first_relevant
        shape["any_match"] = first is not None and first <= k
        shape["ranking"] = ranking_shape(ranking, match, canary.judgments, scorer)
        shape["missing"] = [judgment_shape(judgment) for judgment in missing_judgments(prepared, match, k)]
        shape["age_seconds"] = rounded_or_none(newest_age(ranking, k, asked_at)) if asked_at is not None else None
        if Reason.FORBIDDEN in reasons:
            shape["forbidden_ranks"] = forbidden_ranks(canary, ranking)
    return shape


def ranking_shape(
    ranking: Ranking, match: Match, judgments: Sequence[Judgment], scorer: Scorer | None
) -> list[HitView]:
    """Return the views of the hits of a ranking, with the judgment each matches."""
    levels = match.levels
    return [
        {
            "rank": position + 1,
            "id": ranking.ids[position],
            "document": ranking.documents[position],
            "text": ranking.texts[position],
            "score": ranking.scores[position],
            "updated": _moment_text(ranking.updated[position]) if ranking.updated is not None else None,
            "relevance": rounded_or_none(_relevance(scorer, ranking, position)) if scorer else None,
            "judgment": judgment_shape(judgments[match.judgment[position]]) if match.judgment[position] >= 0 else None,
            "level": levels[position],
            "grade": match.grade[position] if levels[position] else None,
        }
        for position in range(len(ranking))
    ]


def _relevance(scorer: Scorer, ranking: Ranking, position: int) -> float | None:
    if is_external(scorer):
        return ranking.relevance if position == 0 else None
    return score_relevance(scorer, ranking.scores[position])


def _moment_text(seconds: float | None) -> str | None:
    """Return a retriever's seconds since 1970 as RFC 3339; None for values beyond the calendar."""
    try:
        return None if seconds is None else time_text(_EPOCH + timedelta(seconds=seconds))
    except (OverflowError, ValueError):
        return None


def judgment_shape(judgment: Judgment) -> JudgmentView:
    """Return the view of a judgment, without the fields it does not set."""
    shape: JudgmentView = {"grade": judgment.grade}
    if judgment.text is not None:
        shape = {"text": judgment.text, **shape}
    if judgment.document is not None:
        shape = {"document": judgment.document, **shape}
    return shape if judgment.id is None else {"id": judgment.id, **shape}


def worst_first(results: Sequence[ResultView]) -> list[ResultView]:
    """Return the results that are not healthy: failed probes, then canaries by reasons and lowest relevance."""
    bad = [result for result in results if result["verdict"] != Verdict.HEALTHY]
    return sorted(
        bad,
        key=lambda result: (
            result["verdict"] != Verdict.UNKNOWN,
            -len(result["reasons"]),
            1.0 if result["top_score"] is None else result["top_score"],
            result["key"],
        ),
    )


def _verdict(*, measured: bool, reasons: Sequence[Reason]) -> Verdict:
    if not measured:
        return Verdict.UNKNOWN
    return Verdict.DEGRADED if reasons else Verdict.HEALTHY


def why_degraded(result: Mapping[str, Any], *, self_judged: bool | None = False) -> list[str]:
    """Return a sentence for each reason of a degraded result; `self_judged`: whether recall of its run is."""
    known = {**result, "self_judged": self_judged}
    return [_SENTENCES[Reason(reason)](known) for reason in result["reasons"]]


def first_expected(result: Mapping[str, Any]) -> int | None:
    """Return the rank of a result's first expected chunk; None = it is not in the ranking."""
    return next((hit["rank"] for hit in result["ranking"] if hit["grade"] is not None and hit["grade"] >= 1), None)


def not_returned(result: Mapping[str, Any]) -> Sequence[Any]:
    """Return the expected chunks that were not returned at all, so without those below the top k."""
    returned = [hit["judgment"] for hit in result["ranking"]]
    return [judgment for judgment in result["missing"] if judgment not in returned]


def wrong_field(result: Mapping[str, Any]) -> str | None:
    """Say that what is expected is named by the wrong field, without a full stop; None where no hit shows it."""
    expected = [(one.get("id"), one.get("document")) for one in result["missing"]]
    hits = result["ranking"]
    return WRONG_FIELDS.get(compare_names(expected, [hit["id"] for hit in hits], [hit["document"] for hit in hits]))


def _low_relevance(result: Mapping[str, Any]) -> str:
    least = result["min_relevance_score"]
    return f"relevance {_score(result['top_score'], least)} is below its minimum {least:g}"


def _missing(result: Mapping[str, Any]) -> str:
    rank = first_expected(result)
    if rank is not None and rank <= result["k"]:
        return f"the expected chunk is at rank {rank}, and the expected text is not in it any more"
    said = f"no expected chunk in the top {result['k']}"
    if rank:
        return f"{said}, the first is at rank {rank}"
    wrong = wrong_field(result)
    return said if wrong is None else f"{wrong[0].lower()}{wrong[1:]}, so there is {said}"


def _below_floor(result: Mapping[str, Any]) -> str:
    missed = [
        f"{labelled(name, self_judged=result['self_judged'])} {_score(value, floor)} is below its floor {floor:g}"
        for name, floor in result["floors"].items()
        if (value := result["measures"].get(name)) is not None and value < floor
    ]
    return ", ".join(missed) or "a measure is below its floor"


def _forbidden(result: Mapping[str, Any]) -> str:
    if result.get("expect_empty"):
        count = len(result["ranking"])
        return f"returned {count} {'hit' if count == 1 else 'hits'} where nothing may be returned"
    *others, last = [str(rank) for rank in result.get("forbidden_ranks") or [""]]
    ranks = f"{', '.join(others)} and {last}" if others else last
    return "a chunk that must not be returned was returned" + (f" at rank {ranks}" if ranks else "")


def _answered(result: Mapping[str, Any]) -> str:
    most = result["max_relevance_score"]
    score = _score(result["top_score"], most)
    return f"answered with relevance {score} though no good answer exists (at most {most:g})"


def _stale(result: Mapping[str, Any]) -> str:
    if result["age_seconds"] is None:
        return f"returned nothing, where something no older than {age_text(result['max_age_seconds'])} was expected"
    age, most = _distinct_ages(result["age_seconds"], result["max_age_seconds"])
    return f"the newest of its top {result['k']} hits is {age} old, more than {most}"


def _slow(result: Mapping[str, Any]) -> str:
    took, most = _distinct_ages(result["latency_seconds"], result["max_latency_seconds"])
    return f"answered in {took}, more than {most}"


def _distinct_ages(value: float, most: float) -> tuple[str, str]:
    """Return a duration and the limit it exceeds, with enough digits to differ."""
    return age_text(value, most), age_text(most, value)


_SENTENCES: Mapping[Reason, Callable[[Mapping[str, Any]], str]] = {
    Reason.LOW_RELEVANCE: _low_relevance,
    Reason.MISSING: _missing,
    Reason.BELOW_FLOOR: _below_floor,
    Reason.FORBIDDEN: _forbidden,
    Reason.ANSWERED: _answered,
    Reason.REGRESSED: lambda _: "worse than in its baseline",
    Reason.STALE: _stale,
    Reason.SLOW: _slow,
}


def _score(value: float | None, bound: float) -> str:
    """Format a score with as many digits as it takes to differ from its bound."""
    return "undefined" if value is None else ratio_text(value, bound)


class RescoringProgress(TypedDict):
    """Progress of a re-scoring."""

    runs_done: int
    runs_total: int


class RescoringView(TypedDict):
    """Re-scoring of recorded runs of a check with present judgments; `before` and `after` are set once it finished."""

    id: str
    check: str
    measures_version: str
    suite_hash: str
    since: TimeText | None
    status: Literal["queued", "running", "finished", "failed"]
    created_at: TimeText
    finished_at: TimeText | None
    progress: RescoringProgress
    note: str | None
    failure: str | None
    before: RescoringSide | None
    after: RescoringSide | None
