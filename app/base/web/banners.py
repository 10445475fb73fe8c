"""Banners on pages: issues of Coalmine itself that this process knows of, with the remedy."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request

from app.base.counts import counted
from app.operation.service.self_monitor import Issue

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
            link=_LINKS.get(issue, ("", ""))[0],
            label=_LINKS.get(issue, ("", ""))[1],
        )
        for issue, detail in issues.items()
    ]


_LINKS = {Issue.DELIVERIES: ("/deliveries?state=pending", "Show pending deliveries")}
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
