"""The status pages: overview, check, run, alerts. They only read; what they start goes through the API."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.api.deps import StoreDep
from app.domain.errors import InvalidInputError, Problem
from app.domain.measures import RECALL_BY
from app.domain.model import Category, Verdict
from app.formats import reports
from app.services import alert_reading, baselines, overview, reading, reanchoring
from app.services.overview import CheckLine
from app.services.reanchoring import State
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

RANGES = (
    ("1h", "1 h", 3_600),
    ("24h", "24 h", 86_400),
    ("7d", "7 d", 604_800),
    ("30d", "30 d", 2_592_000),
)
ALERT_STATES = ("firing", "recovering", "pending", "resolved")
_OWN_MEASURES = ("health_score", "coverage", "degraded_share")
_RESULTS = 25
_ALERTS = 20
_OUTBOX_STUCK_SECONDS = 600

Version = Annotated[str, Query(alias="measures_version", max_length=40)]
ChoiceT = TypeVar("ChoiceT", Verdict, Category)


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """Something wrong with Coalmine itself: what it means and what to do."""

    severity: str
    text: str


@router.get("/")
def show_overview(request: Request, store: StoreDep) -> HTMLResponse:
    """Show every check at a glance, those that need a look first."""
    checks = overview.all_checks(store, datetime.now(UTC))
    return render(request, "overview.html", checks=checks, banners=_banners(request, checks))


@router.get("/checks/{slug}")
def show_check(request: Request, store: StoreDep, slug: str, version: Version = "") -> HTMLResponse:
    """Show a check: its verdict with reasons, its measures over time, what is degraded and why."""
    detail = overview.one_check(store, slug, datetime.now(UTC), version=version or None)
    run, k = detail.run, detail.asked.k if detail.asked else detail.definition["k"]
    return render(
        request,
        "check.html",
        detail=detail,
        line=detail.line,
        chosen=version,
        run=run,
        k=k,
        baseline=baselines.show(store, slug),
        proposed=bool(reanchoring.list_all(store, slug, state=State.PROPOSED, limit=1)),
        unresolved=[alert_reading.alert(store, int(alert["id"])) for alert in detail.unresolved],
        ranges=RANGES,
        measures=_measures(run),
        cutoffs=reports.cutoff_table(run) if run else None,
        wholes=reports.whole_table(run) if run else None,
        category_measures=_category_measures(run, k),
        banners=_banners(request, [detail.line]),
    )


@router.get("/runs/{run_id}")
def show_run(
    request: Request,
    store: StoreDep,
    run_id: str,
    verdict: str = "",
    category: str = "",
    after: Annotated[int, Query(ge=-1)] = -1,
    version: Version = "",
) -> HTMLResponse:
    """Show a run and its results with their evidence, as judged on the day or by a re-scoring."""
    run = reading.run(store, run_id, version=version or None)
    found, following = reading.results(
        store,
        run_id,
        verdict=_chosen(Verdict, verdict, "verdict"),
        category=_chosen(Category, category, "category"),
        after=after,
        limit=_RESULTS,
        version=version or None,
    )
    return render(
        request,
        "run.html",
        run=run,
        results=found,
        asked=overview.asked_of(store, run_id, version=version or None),
        versions=overview.versions_of(store, run_id),
        chosen=version,
        following=following,
        after=after,
        verdict=verdict,
        verdicts=list(Verdict),
        category=category,
        categories=list(run["categories"]) or list(Category),
    )


@router.get("/alerts")
def show_alerts(
    request: Request,
    store: StoreDep,
    state: str = "",
    check: Annotated[str, Query(max_length=64)] = "",
    after: Annotated[int | None, Query(ge=1)] = None,
) -> HTMLResponse:
    """Show alerts, newest first: what was seen, what changed, who was told."""
    if state and state not in ALERT_STATES:
        raise InvalidInputError([Problem(path="state", message=f"is one of {', '.join(ALERT_STATES)}")])
    listed = alert_reading.list_alerts(store, check=check or None, state=state or None, before=after, limit=_ALERTS + 1)
    return render(
        request,
        "alerts.html",
        alerts=[alert_reading.alert(store, int(alert["id"])) for alert in listed[:_ALERTS]],
        following=listed[_ALERTS - 1]["id"] if len(listed) > _ALERTS else None,
        state=state,
        states=ALERT_STATES,
        check=check,
    )


def _banners(request: Request, checks: list[CheckLine]) -> list[Banner]:
    """Say what is wrong with Coalmine itself, as far as this process can tell."""
    state = request.app.state
    banners = []
    overdue = any(line.overdue for line in checks)
    if state.worker is not None and not state.worker.alive:
        text = "The worker is not running, so no check runs in this process. Its log says why; restart the service."
        banners.append(Banner(severity="critical", text=text))
    elif state.worker is None and overdue:
        text = "Checks are overdue and this process has no worker: is a coalmine work process running?"
        banners.append(Banner(severity="critical", text=text))
    if state.worker is not None and state.worker.alive and state.exposition.snapshot.state is None:
        text = "The database could not be read a moment ago: figures may be old and runs may be missing."
        banners.append(Banner(severity="warning", text=text))
    if state.exposition.registry.get_sample_value("coalmine_config_last_reload_successful") == 0:
        text = "The canary files could not be applied when they were last read; what was in force before still is."
        banners.append(Banner(severity="warning", text=text + " The command coalmine validate names the lines."))
    snapshot = state.exposition.snapshot.state
    if snapshot is not None and (snapshot.outbox_oldest_seconds or 0.0) > _OUTBOX_STUCK_SECONDS:
        text = f"{snapshot.outbox_pending} notifications wait to be delivered, the oldest for more than ten minutes."
        banners.append(Banner(severity="warning", text=text + " The alerts say what their receivers answered."))
    return banners


def _measures(run: Mapping[str, Any] | None) -> list[str]:
    """List what a chart can show: what the newest run kept, recall by id only where it has some."""
    kept = run["measures"] if run else {}
    shown = [name for name, value in kept.items() if value is not None or name.partition("@")[0] not in RECALL_BY]
    return [*_OWN_MEASURES, *(name for name in shown if name not in _OWN_MEASURES)]


def _category_measures(run: Mapping[str, Any] | None, k: int) -> list[str]:
    """Choose the columns of the table of categories: recall, NDCG and MRR where the run has them."""
    kept = [part["measures"] for part in run["categories"].values()] if run else []
    return [name for name in (f"R@{k}", f"NDCG@{k}", "MRR") if any(name in measures for measures in kept)]


def _chosen(kind: type[ChoiceT], text: str, path: str) -> ChoiceT | None:
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise InvalidInputError([Problem(path=path, message=f"is one of {', '.join(kind)}")]) from None
