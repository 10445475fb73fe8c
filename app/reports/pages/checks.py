"""The page of a check: verdict with reasons, measures over time, degraded canaries by cause. It only reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from app.alerts.documents.rule_documents import rules_in_force
from app.alerts.documents.rule_sentences import protection_text, rule_in_words
from app.alerts.domain.advice import CAUSE_ADVICE
from app.alerts.domain.alert_state import OPEN, AlertState
from app.alerts.domain.outlook import recovery_text
from app.alerts.domain.views import CheckAlerting
from app.alerts.service import rule_explanations, suggested_rules
from app.answers.service import answer_views
from app.base.api.deps import StoreDep
from app.base.values import Cause
from app.base.web.banners import banners_of
from app.base.web.parameters import Version
from app.base.web.rendering import render
from app.catalog.documents.documents import CheckDocument
from app.catalog.documents.warnings import blind_to_recall_reason
from app.catalog.domain.judgment_sources import self_judged_lines
from app.catalog.domain.measure_guide import Use
from app.catalog.service import suite_power
from app.detection.service import baselines
from app.diagnosis.domain.views import ReanchorState
from app.diagnosis.service import reanchoring
from app.records.domain.run_views import RunView
from app.records.service import charts
from app.reports.documents.report_measures import cutoff_table, recall_gap_lines, whole_table
from app.reports.pages.badges import draw, make_badge
from app.reports.service import check_details
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
    confirmed = answer_views.confirmed_of_check(store, slug)
    warm_up = baseline.warm_up if run is not None and detail.line.enabled and not detail.line.archived else None
    why = None if detail.line.archived else rule_explanations.explain(store, slug, now=now)
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
        suggested=None if detail.line.archived else suggested_rules.suggest(store, slug),
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
        thin=None if detail.line.archived else suite_power.load_reach(store, detail.line.suite)["coverage_note"],
        badge=Markup(draw(make_badge(store, detail.line), inside=True)),  # noqa: S704 - drawn by a template, which escapes
        ranges=RANGES,
        measures=_measures(run),
        kept=charts.stored_measures(store, slug),
        cutoffs=cutoff_table(run, self_judged=run["self_judged"]) if run else None,
        wholes=whole_table(run, confirmed=confirmed) if run else None,
        confirmed=confirmed,
        answers=answer_views.summary_of_run(store, run["id"]) if run else None,
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
