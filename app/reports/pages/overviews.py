"""The overview page, checks sorted by severity, with filters in the address; banners; badges of checks for READMEs.

A banner is an issue of Coalmine itself. Badges need authentication like every other route: a session, or a key.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, Response

from app.alerts.domain.views import AlertState
from app.answers.domain.generated import rated_texts
from app.answers.service.answering import confirmed_by_people, summary_of_run
from app.base.api.requests import StoreDep, page_router, route_path
from app.base.db.engine import Store
from app.base.documents.fields import one_line
from app.base.errors import InvalidInputError, Problem
from app.base.texts import MEAN_SHARE, corrected_text, counted, unjudged_words
from app.base.values import CORRECTED, FAITHFUL, Value, Verdict, judged_name, replace
from app.base.web.forms import refuse_other
from app.base.web.pages import fill, render, score, spoken
from app.catalog.domain import recall_label
from app.definitions.pages.suites import list_setup_steps
from app.operation.service.self_monitor import Issue
from app.records.service import run_views
from app.records.views import RunView
from app.reports.service import check_details, overview
from app.reports.service.check_details import CheckLine
from app.reports.service.overview import GROUPS, SORTS, VERDICTS, CheckFilter

router = page_router()

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


async def _ordered(
    check_filter: Annotated[CheckFilter, Depends(_filter)], sort: Word = "", group: Word = ""
) -> CheckFilter:
    refuse_other(sort, ("", *SORTS), "sort")
    refuse_other(group, ("", *GROUPS), "group")
    return replace(check_filter, sort=sort, group=group)


@router.get("/")
def show_overview(
    request: Request,
    store: StoreDep,
    check_filter: Annotated[CheckFilter, Depends(_ordered)],
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
    wall: Word = "",
) -> HTMLResponse:
    """Show the checks that match a filter; `wall`: as tiles that are read from afar, and nothing else."""
    listing = overview.list_checks(store, check_filter, datetime.now(UTC), page=page)
    return render(
        request,
        "reports/overview.html",
        listing=listing,
        setup=() if listing.total else list_setup_steps(store),
        check_filter=check_filter,
        words=VERDICTS,
        banners=banners_of(request, overdue=listing.overdue > 0, dead=listing.dead),
        filtered=replace(check_filter, sort="", group="") != CheckFilter(),
        groups=GROUPS,
        wall=bool(wall),
        here=_address(check_filter, listing.page, wall=bool(wall)),
        other=_address(check_filter, listing.page, wall=not wall),
        before=_address(check_filter, listing.page - 1) if listing.page > 1 else "",
        following=_address(check_filter, listing.page + 1) if listing.page < listing.pages else "",
        sorted_by={name: _address(replace(check_filter, sort=name), 1) for name in ("", *SORTS)},
    )


def _address(check_filter: CheckFilter, page: int, *, wall: bool = False) -> str:
    """Return the address of a page of filtered checks, without empty parameters."""
    values = {
        "q": check_filter.text,
        "suite": check_filter.suite,
        "retriever": check_filter.retriever,
        "category": check_filter.category,
        "tag": check_filter.tag,
        "verdict": check_filter.verdict,
        "failing": "1" if check_filter.failing else "",
        "sort": check_filter.sort,
        "group": check_filter.group,
        "page": page if page > 1 else "",
        "wall": "1" if wall else "",
    }
    query = urlencode({name: value for name, value in values.items() if value})
    return f"/?{query}" if query else "/"


_OUTBOX_STUCK_SECONDS = 600


class Banner(Value):
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


def open_incidents(request: Request) -> int:
    """Return how many incidents are open, by the newest snapshot; 0 while there is none."""
    state = request.app.state.exposition.snapshot.state
    return 0 if state is None else state.open_incidents


def nearest(request: Request) -> tuple[str, str] | None:
    """Return the name and the address of what may be meant by the address of nothing; None = nothing is near."""
    return overview.nearest_place(request.app.state.access.store, route_path(request.scope))


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
    if Issue.DELIVERIES in request.app.state.exposition.process.monitor.issues:
        return None  # told as an issue, with the hooks
    waiting = f"{counted(snapshot.outbox_pending, 'notification')} wait{'s' if snapshot.outbox_pending == 1 else ''}"
    text = f"{waiting} to be delivered, the oldest for more than ten minutes."
    text += f" {'Its' if snapshot.outbox_pending == 1 else 'Their'} attempts show the receiver's response."
    return Banner(severity="warning", text=text, link="/deliveries?state=pending", label="Show pending deliveries")


def _dead(hook: str, count: int) -> Banner:
    text = f"{counted(count, 'notification')} to hook {hook} could not be delivered in the last three days. "
    text += "Repair the receiver, then replay them."
    link = f"/deliveries?hook={hook}&state=dead"
    return Banner(severity="critical", text=text, link=link, label="Show dead letters")


LONGEST_LABEL: Final = 64

Label = Annotated[str | None, Query(max_length=LONGEST_LABEL)]
MeasureName = Annotated[str | None, Query(max_length=64)]


class Badge(Value):
    """A badge: a label, a value, and a kind that sets its colour."""

    label: str
    value: str
    kind: str


@router.get("/badge/{check}.svg")
def show_badge(
    request: Request, store: StoreDep, check: str, label: Label = None, measure: MeasureName = None
) -> Response:
    """Return the newest verdict of a check, or the value of a `measure`, as SVG.

    A check that is overdue, or has alerts that are still open, is not healthy.
    """
    line = check_details.load_line(store, check, datetime.now(UTC))
    svg = draw(make_badge(store, line, label=label, measure=measure)).encode()
    # Caches must revalidate: a badge shows the present state.
    headers = {"etag": f'W/"{sha256(svg).hexdigest()[:32]}"', "cache-control": "private, no-cache"}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(svg, media_type="image/svg+xml; charset=utf-8", headers=headers)


def make_badge(store: Store, line: CheckLine, *, label: str | None = None, measure: str | None = None) -> Badge:
    """Return the badge of a check. Raises InvalidInputError for a measure that the newest run does not have."""
    value, kind = _state(line)
    if measure is not None and line.newest is not None:
        number, run = _number(store, line.slug, measure)
        if kind in {"healthy", "degraded", "recovering"}:
            shown = _judged_text(store, measure, number, run) or score(number)
            value = " ".join(filter(None, (shown, _label(measure, run))))
    is_judged = judged_name(measure) is not None
    confirmed = confirmed_by_people(store, line.newest.id) if is_judged and line.newest is not None else ()
    named = f"{line.slug} {spoken(measure, confirmed)}" if measure is not None else line.slug
    return Badge(label=_plain(named if label is None else label), value=_plain(value), kind=kind)


def draw(badge: Badge, *, inside: bool = False) -> str:
    """Return a badge as SVG; `inside` a page it has no title of its own."""
    return fill("reports/badge.svg", badge=badge, left=_width(badge.label), right=_width(badge.value), inside=inside)


def _state(line: CheckLine) -> tuple[str, str]:
    """Return the text and kind of a check's state; an overdue check has no verdict."""
    if line.archived or not line.enabled:
        return "archived" if line.archived else "disabled", "none"
    if line.newest is None:
        return "no runs", "none"
    if line.overdue:
        return "overdue", "overdue"
    verdict = line.newest.verdict or line.newest.status
    return _state_of_healthy(line) if verdict == Verdict.HEALTHY else (verdict, verdict)


def _state_of_healthy(line: CheckLine) -> tuple[str, str]:
    """Return the same of a check whose newest run is healthy: what a run does not tell may be wrong."""
    if line.bad_answers or line.unjudged:
        return "answers bad" if line.bad_answers else f"answers {unjudged_words(line.unjudged)}", "recovering"
    if line.planted is not None:
        return "alert open", "degraded"
    if line.recovery:
        return "recovering" if line.recovery == AlertState.RECOVERING else "alert open", "recovering"
    if line.unwatched:
        return "nothing measured", "recovering"
    return str(Verdict.HEALTHY), "healthy"


def _label(measure: str, run: RunView) -> str:
    return recall_label(measure, self_judged=run["self_judged"], pooled=run["pooled_recall"])


def _judged_text(store: Store, measure: str, number: float | None, run: RunView) -> str:
    """Return a corrected rate with its interval and the judge's own rate, or what a mean of shares beside it is.

    Where the judge did not rate all answers it says how many. Empty for other measures, and where there is nothing to
    say.
    """
    said = judged_name(measure)
    if said is None or number is None:
        return ""
    answers = summary_of_run(store, run["id"])
    rate = None if answers is None else answers.get("corrected", {}).get(said)
    if rate is not None and measure in CORRECTED:
        return corrected_text(rate["value"], rate)
    share = MEAN_SHARE if rate is not None and measure != FAITHFUL else ""
    beside = "; ".join(filter(None, (share, rated_texts(answers).get(said, ""))))
    return beside and f"{score(number)} ({beside})"


def _number(store: Store, slug: str, measure: str) -> tuple[float | None, RunView]:
    """Return a measure of the newest run, and the run."""
    run = run_views.health(store, slug)
    values = {
        "health_score": run["health_score"],
        "coverage": run["coverage"],
        "degraded_share": run["degraded_share"],
        **run["measures"],
    }
    if measure not in values and run["measures"]:
        message = f"'{one_line(measure)}' is not kept for this check; there are: {', '.join(values)}"
        raise InvalidInputError([Problem(path="measure", message=message)])
    found: float | None = values.get(measure)
    return found, run


def _plain(text: str) -> str:
    """Return a text without characters that XML does not allow."""
    return "".join(character if character.isprintable() else " " for character in text).strip() or " "


def _width(text: str) -> int:
    """Return an estimate of a text's width in pixels; the SVG stretches it to exactly that."""
    return round(sum(_WIDE if character in "mwMW@%" or ord(character) > _LATIN else _NARROW for character in text)) + 20


_NARROW, _WIDE = 6.6, 10.0
_LATIN = 0x24F
