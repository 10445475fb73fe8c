"""The page of a check: verdict with reasons, measures over time, degraded canaries by cause. It only reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup

from app.alerts.documents import protection_text, rule_in_words, rules_in_force
from app.alerts.domain.state import OPEN, AlertState, recovery_text
from app.alerts.domain.telling import CAUSE_ADVICE
from app.alerts.service import explanations
from app.alerts.service.explanations import CheckAlerting
from app.answers.service import answering
from app.base.api.deps import StoreDep
from app.base.values import Category, Cause, Outcome, Reason, Verdict
from app.base.web.forms import Version, parse_choice, refuse_other
from app.base.web.rendering import render
from app.catalog.documents.documents import CheckDocument
from app.catalog.documents.warnings import blind_to_recall_reason
from app.catalog.domain import Use, self_judged_lines
from app.catalog.service import suites
from app.comparison.documents import BEFORE_AND_NOW, claim_text
from app.comparison.domain import Change
from app.comparison.service import comparisons
from app.comparison.views import RunOutline
from app.detection.service import baselines
from app.diagnosis.domain.views import ReanchorState
from app.diagnosis.service import reanchoring
from app.records.domain import RunView
from app.records.service import results, runs
from app.records.service.results import ComparisonCandidates, find_candidates
from app.reports.documents.report_measures import cutoff_table, recall_gap_lines, whole_table
from app.reports.pages.badges import draw, make_badge
from app.reports.pages.overviews import banners_of
from app.reports.service import charts, check_details
from app.reports.service.check_details import DegradedResult
from app.scoring.measures import RECALL_BY

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

RANGES = (
    ("1h", "1 h", 3_600),
    ("24h", "24 h", 86_400),
    ("7d", "7 d", 604_800),
    ("30d", "30 d", 2_592_000),
)
_OWN_MEASURES = ("health_score", "coverage", "degraded_share")


@router.get("/checks/{slug}")
def show_check(request: Request, store: StoreDep, slug: str, version: Version = "") -> HTMLResponse:
    """Show a check: verdict with reasons, measures over time, degraded canaries by cause."""
    now = datetime.now(UTC)
    detail = check_details.load_check(store, slug, now, version=version or None)
    run, k = detail.run, detail.k
    document = CheckDocument.model_validate(detail.definition)
    rules = rules_in_force(document.rules)
    baseline = baselines.show(store, slug)
    confirmed = answering.confirmed_of_check(store, slug)
    warm_up = baseline.warm_up if run is not None and detail.line.enabled and not detail.line.archived else None
    why = None if detail.line.archived else explanations.explain_rules(store, slug, now=now)
    return render(
        request,
        "reports/check.html",
        detail=detail,
        line=detail.line,
        chosen=version,
        run=run,
        k=k,
        baseline=baseline,
        protection=None if warm_up is None else protection_text(rules, warm_up, waits=baseline.waits),
        suggested=None if detail.line.archived else explanations.suggest(store, slug),
        proposed=bool(reanchoring.list_all(store, slug, state=ReanchorState.PROPOSED, limit=1)),
        why=why,
        recovery=_recovery_text(why) if why is not None and detail.line.recovery else "",
        words={rule.key: rule_in_words(rule) for rule in rules},
        fleet=detail.fleet,
        fallen=_by_cause(detail.degraded),
        recall_gap=[] if run is None else recall_gap_lines(run["measures"]),
        self_judged=[] if run is None else self_judged_lines(run["retriever"], self_judged=run["self_judged"]),
        guide=None if document.use is Use.GENERAL else document.guide,
        blind=None if detail.line.archived else blind_to_recall_reason(document),
        thin=None if detail.line.archived else suites.load_reach(store, detail.line.suite)["coverage_note"],
        badge=Markup(draw(make_badge(store, detail.line), inside=True)),  # noqa: S704 - drawn by a template, which escapes
        ranges=RANGES,
        measures=_measures(run),
        kept=charts.stored_measures(store, slug),
        cutoffs=cutoff_table(run, self_judged=run["self_judged"]) if run else None,
        wholes=whole_table(run, confirmed=confirmed) if run else None,
        confirmed=confirmed,
        answers=answering.summary_of_run(store, run["id"]) if run else None,
        category_measures=_category_measures(run, k),
        base=request.app.state.links.public_url.rstrip("/"),
        banners=banners_of(request, overdue=detail.line.overdue),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseGroup:
    """Degraded canaries with one cause."""

    cause: str
    """Empty = not diagnosed yet."""
    advice: str
    reason: str
    """The reason, if all have the same; else empty."""
    members: Sequence[DegradedResult]


def _recovery_text(why: CheckAlerting) -> str:
    """Sentence on the open alerts of a check whose newest run is healthy; "" where none is left."""
    still_open = [
        (AlertState(rule["state"]), rule["good_runs_to_close"]) for rule in why["rules"] if rule["state"] in OPEN
    ]
    unmeasured = dict.fromkeys(key for rule in why["rules"] if rule["state"] in OPEN for key in rule["unmeasured"])
    return recovery_text(still_open, list(unmeasured)) if still_open else ""


def _by_cause(degraded: Sequence[DegradedResult]) -> list[CauseGroup]:
    """Return canaries grouped by cause, in their order; those not diagnosed are last."""
    found: dict[str, list[DegradedResult]] = {}
    for result in degraded:
        found.setdefault(str(result["diagnosis"].cause) if result["diagnosis"] else "", []).append(result)
    groups = []
    for cause, members in sorted(found.items(), key=lambda one: not one[0]):
        reasons = {result["diagnosis"].reason for result in members if result["diagnosis"]}
        shared = reasons.pop() if len(reasons) == 1 and len(members) > 1 else ""
        advice = CAUSE_ADVICE[Cause(cause)] if cause else ""
        groups.append(CauseGroup(cause=cause, advice=advice, reason=shared, members=members))
    return groups


def _measures(run: RunView | None) -> list[str]:
    """Return the measures of charts: those of the newest run, recall by id only where it is defined."""
    kept = run["measures"] if run else {}
    shown = [name for name, value in kept.items() if value is not None or name.partition("@")[0] not in RECALL_BY]
    return [*_OWN_MEASURES, *(name for name in shown if name not in _OWN_MEASURES)]


def _category_measures(run: RunView | None, k: int) -> list[str]:
    """Return the columns of the table of categories: recall, NDCG and MRR where the run has them."""
    kept = [part["measures"] for part in run["categories"].values()] if run else []
    return [name for name in (f"R@{k}", f"NDCG@{k}", "MRR") if any(name in measures for measures in kept)]


SHOWN: dict[str, tuple[str, tuple[Change, ...]]] = {
    "": ("all", ()),
    "worse": ("got worse", (Change.DEGRADED, Change.WORSE)),
    "better": ("got better", (Change.HEALED, Change.BETTER)),
    "changed": ("changed", tuple(change for change in Change if change is not Change.SAME)),
}
"""Filters of a comparison: parameter -> (label, changes)."""
_RESULTS = 25
_PAIRS = 50


@router.get("/runs/compare")
def compare(
    before: Annotated[str, Query(max_length=20)], now: Annotated[str, Query(max_length=20)]
) -> RedirectResponse:
    """Redirect to the comparison of two runs."""
    return RedirectResponse(f"/runs/{quote(before, safe='')}/diff/{quote(now, safe='')}", status_code=303)


@router.get("/runs/{run_id}")
def show_run(  # noqa: PLR0913 - whatever results are filtered by
    *,
    request: Request,
    store: StoreDep,
    run_id: str,
    verdict: str = "",
    category: str = "",
    tag: Annotated[str, Query(max_length=64)] = "",
    reason: str = "",
    outcome: str = "",
    after: Annotated[int, Query(ge=-1)] = -1,
    version: Version = "",
) -> HTMLResponse:
    """Show a run and its results with their evidence, as recorded or of a re-scoring."""
    run = runs.run(store, run_id, version=version or None)
    found, following = results.results(
        store,
        run_id,
        verdict=parse_choice(Verdict, verdict, "verdict"),
        category=parse_choice(Category, category, "category"),
        tag=tag or None,
        reason=parse_choice(Reason, reason, "reason"),
        outcome=parse_choice(Outcome, outcome, "outcome"),
        after=after,
        limit=_RESULTS,
        version=version or None,
        worst_first=True,
    )
    wanted = {"verdict": verdict, "category": category, "tag": tag, "reason": reason, "outcome": outcome}
    return render(
        request,
        "records/run.html",
        run=run,
        results=found,
        judged_by_relevance=check_details.keys_judged_by_relevance(
            store, run_id, [result["key"] for result in found], version=version or None
        ),
        recall_gap=recall_gap_lines(run["measures"]),
        self_judged=self_judged_lines(run["retriever"], self_judged=run["self_judged"]),
        k=check_details.k_of_run(store, run_id),
        answers=answering.summary_of_run(store, run_id),
        confirmed=answering.confirmed_of_check(store, run["check"]),
        versions=check_details.list_versions(store, run_id),
        counterparts=find_candidates(store, run_id) if run["finished_at"] else None,
        chosen=version,
        following=following,
        after=after,
        filters=_filters(run, wanted),
        wanted={name: value for name, value in wanted.items() if value},
    )


@router.get("/runs/{before}/diff/{now}", response_model=None)
def show_diff(
    *,
    request: Request,
    store: StoreDep,
    before: str,
    now: str,
    show: str = "",
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    version: Version = "",
) -> Response:
    """Show the differences between two runs of a check; of two checks they are compared as A and B."""
    refuse_other(show, SHOWN, "show")
    if not comparisons.are_of_one_check(store, before, now):
        chosen = {"a": comparisons.run_reference(before), "b": comparisons.run_reference(now)}
        return RedirectResponse(f"/compare?{urlencode(chosen)}", status_code=303)
    found, following = comparisons.diff(
        store, before, now, changes=SHOWN[show][1], after=after, limit=_PAIRS, version=version or None
    )
    others = find_candidates(store, now)
    return render(
        request,
        "records/diff.html",
        diff=found,
        old=found["before"],
        new=found["now"],
        claim=partial(claim_text, names=BEFORE_AND_NOW),
        counts={word: sum(found["changes"][change] for change in SHOWN[word][1] or Change) for word in SHOWN},
        shown=SHOWN,
        show=show,
        after=after,
        following=following,
        page_size=_PAIRS,
        chosen=version,
        counterparts=others,
        candidates=_candidates(others, found["before"], found["now"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFilter:
    """A filter of results."""

    name: str
    choices: Sequence[str]
    chosen: str


def _filters(run: RunView, wanted: dict[str, str]) -> list[ResultFilter]:
    choices: Mapping[str, Sequence[str]] = {
        "verdict": list(Verdict),
        "category": list(run["categories"]) or list(Category),
        "tag": list(run["tags"]),
        "reason": list(Reason),
        "outcome": list(run["probes"]) or list(Outcome),
    }
    return [
        ResultFilter(
            name=name,
            choices=[*listed, *([wanted[name]] if wanted[name] and wanted[name] not in listed else [])],
            chosen=wanted[name],
        )
        for name, listed in choices.items()
        if listed or wanted[name]
    ]


def _candidates(others: ComparisonCandidates, before: RunOutline, now: RunOutline) -> Sequence[object]:
    """Return the runs to choose from: the newest of the check, and the two compared ones."""
    known = {run["id"] for run in others.recent}
    return [*others.recent, *(run for run in (now, before) if run["id"] not in known)]
