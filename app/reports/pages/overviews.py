"""The overview page: checks sorted by severity; filters are in the address."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from app.base.api.deps import StoreDep
from app.base.texts import counted
from app.base.web.forms import refuse_other
from app.base.web.rendering import render
from app.definitions.pages.suites import list_setup_steps
from app.operation.service.self_monitor import Issue
from app.reports.service import overview
from app.reports.service.overview import VERDICTS, CheckFilter

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

Word = Annotated[str, Query(max_length=200)]


async def _filter(
    q: Word = "",
    suite: Word = "",
    retriever: Word = "",
    category: Word = "",
    tag: Word = "",
    verdict: Word = "",
    failing: Word = "",
) -> CheckFilter:
    refuse_other(verdict, ("", *VERDICTS), "verdict")
    return CheckFilter(
        text=q, suite=suite, retriever=retriever, category=category, tag=tag, verdict=verdict, failing=bool(failing)
    )


@router.get("/")
def show_overview(
    request: Request,
    store: StoreDep,
    check_filter: Annotated[CheckFilter, Depends(_filter)],
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    """Show the checks that match a filter."""
    listing = overview.list_checks(store, check_filter, datetime.now(UTC), page=page)
    return render(
        request,
        "reports/overview.html",
        listing=listing,
        setup=() if listing.total else list_setup_steps(store),
        check_filter=check_filter,
        words=VERDICTS,
        banners=banners_of(request, overdue=listing.overdue > 0, dead=listing.dead),
        here=_address(check_filter, listing.page),
        before=_address(check_filter, listing.page - 1) if listing.page > 1 else "",
        following=_address(check_filter, listing.page + 1) if listing.page < listing.pages else "",
    )


def _address(check_filter: CheckFilter, page: int) -> str:
    """Return the address of a page of filtered checks, without empty parameters."""
    values = {
        "q": check_filter.text,
        "suite": check_filter.suite,
        "retriever": check_filter.retriever,
        "category": check_filter.category,
        "tag": check_filter.tag,
        "verdict": check_filter.verdict,
        "failing": "1" if check_filter.failing else "",
        "page": page if page > 1 else "",
    }
    query = urlencode({name: value for name, value in values.items() if value})
    return f"/?{query}" if query else "/"


_OUTBOX_STUCK_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """An issue of Coalmine itself: its meaning and the remedy."""

    severity: str
    text: str
    link: str = ""
    """The page for the next step, with the text `label`; empty = none."""
    label: str = ""


def banners_of(request: Request, *, overdue: bool, dead: Mapping[str, int] | None = None) -> list[Banner]:
    """Return the banners, critical first; `overdue`: a check is, `dead`: recent dead letters by hook."""
    found = [_worker(request, overdue=overdue), _store(request), _canary_files(request), _outbox(request)]
    found += _issues(request)
    found += [_dead(hook, count) for hook, count in sorted((dead or {}).items())]
    return sorted((banner for banner in found if banner is not None), key=lambda one: one.severity != "critical")


def grave_issues(request: Request) -> list[Banner]:
    """Return the banners of every page: critical issues of this process."""
    return [banner for banner in _issues(request) if banner.severity == "critical"]


def _worker(request: Request, *, overdue: bool) -> Banner | None:
    worker = request.app.state.worker
    if worker is not None and not worker.alive:
        text = "The worker is not running, so no check runs in this process. See its log, and restart the service."
        return Banner(severity="critical", text=text)
    if worker is None and overdue:
        text = "Checks are overdue and this process has no worker: is a coalmine work process running? "
        text += "Start one, and see the log of the running ones."
        return Banner(severity="critical", text=text)
    return None


def _store(request: Request) -> Banner | None:
    state = request.app.state
    if state.worker is None or not state.worker.alive or state.exposition.snapshot.state is not None:
        return None
    text = "The database could not be read a moment ago: figures may be old and runs may be missing. "
    text += "See the log: its disk may be full, or its server down."
    return Banner(severity="warning", text=text, link="/readyz", label="Show readiness")


def _issues(request: Request) -> list[Banner]:
    """Return the banners of the self monitor's issues."""
    issues = request.app.state.exposition.process.monitor.issues
    return [
        Banner(
            severity="critical" if issue in _GRAVE else "warning",
            text=f"{_TITLES[issue]}: {detail}.",
            link=_BANNER_LINKS.get(issue, ("", ""))[0],
            label=_BANNER_LINKS.get(issue, ("", ""))[1],
        )
        for issue, detail in issues.items()
    ]


_BANNER_LINKS = {Issue.DELIVERIES: ("/deliveries?state=pending", "Show pending deliveries")}


_GRAVE = {Issue.DELIVERIES, Issue.STORE_READ, Issue.STORE_WRITE, Issue.RESOURCES, Issue.OVERLOAD}


_TITLES = {
    Issue.CLOCK: "Clock",
    Issue.DELIVERIES: "Notifications",
    Issue.HEARTBEAT: "Worker",
    Issue.OVERLOAD: "Overload",
    Issue.RESOURCES: "Resources",
    Issue.STORE_READ: "Database cannot be used",
    Issue.STORE_WRITE: "Database takes no writes",
}


def _canary_files(request: Request) -> Banner | None:
    if request.app.state.exposition.process.is_config_applied:
        return None
    text = "The canary files could not be applied when they were last read; the previous definitions still apply. "
    text += "Run coalmine validate for the lines with errors; then send the service a hangup signal."
    return Banner(severity="warning", text=text, link="/suites", label="Show suites")


def _outbox(request: Request) -> Banner | None:
    snapshot = request.app.state.exposition.snapshot.state
    if snapshot is None or (snapshot.outbox_oldest_seconds or 0.0) <= _OUTBOX_STUCK_SECONDS:
        return None
    waiting = f"{counted(snapshot.outbox_pending, 'notification')} wait{'s' if snapshot.outbox_pending == 1 else ''}"
    text = f"{waiting} to be delivered, the oldest for more than ten minutes."
    text += " Their attempts show the receivers' responses."
    return Banner(severity="warning", text=text, link="/deliveries?state=pending", label="Show pending deliveries")


def _dead(hook: str, count: int) -> Banner:
    text = f"{counted(count, 'notification')} to hook {hook} could not be delivered in the last three days. "
    text += "Repair the receiver, then replay them."
    link = f"/deliveries?hook={hook}&state=dead"
    return Banner(severity="critical", text=text, link=link, label="Show dead letters")
