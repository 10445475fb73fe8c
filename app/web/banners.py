"""Banners over pages: what is wrong with Coalmine itself, as far as this process can tell, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request

from app.domain.counts import counted
from app.services.self_monitor import Issue

_OUTBOX_STUCK_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """Something wrong with Coalmine itself: what it means and what to do."""

    severity: str
    text: str
    link: str = ""
    """The page to go on with, and `label` what to call it; empty = there is none."""
    label: str = ""


def banners_of(request: Request, *, overdue: bool, dead: Mapping[str, int] | None = None) -> list[Banner]:
    """Say what is wrong; `overdue`: a check is, `dead`: deliveries given up lately, by hook."""
    found = [_worker(request, overdue=overdue), _store(request), _canary_files(request), _outbox(request)]
    found += _issues(request)
    found += [_dead(hook, count) for hook, count in sorted((dead or {}).items())]
    return sorted((banner for banner in found if banner is not None), key=lambda one: one.severity != "critical")


def _worker(request: Request, *, overdue: bool) -> Banner | None:
    worker = request.app.state.worker
    if worker is not None and not worker.alive:
        text = "The worker is not running, so no check runs in this process. Its log says why; restart the service."
        return Banner(severity="critical", text=text)
    if worker is None and overdue:
        text = "Checks are overdue and this process has no worker: is a coalmine work process running? "
        text += "Start one, and look at the log of those there are."
        return Banner(severity="critical", text=text)
    return None


def _store(request: Request) -> Banner | None:
    state = request.app.state
    if state.worker is None or not state.worker.alive or state.exposition.snapshot.state is not None:
        return None
    text = "The database could not be read a moment ago: figures may be old and runs may be missing. "
    text += "The log says why; is its disk full, or its server gone?"
    return Banner(severity="warning", text=text, link="/readyz", label="See whether it is ready")


def _issues(request: Request) -> list[Banner]:
    """Say what this process found wrong with itself."""
    issues = request.app.state.exposition.process.monitor.issues
    return [
        Banner(severity="critical" if issue in _GRAVE else "warning", text=f"{_TITLES[issue]}: {detail}.")
        for issue, detail in issues.items()
    ]


_GRAVE = {Issue.STORE_WRITE, Issue.RESOURCES, Issue.OVERLOAD}
_TITLES = {
    Issue.CLOCK: "Clock",
    Issue.HEARTBEAT: "Worker",
    Issue.OVERLOAD: "Overload",
    Issue.RESOURCES: "Resources",
    Issue.STORE_WRITE: "Database takes no writes",
}


def _canary_files(request: Request) -> Banner | None:
    if request.app.state.exposition.process.is_config_applied:
        return None
    text = "The canary files could not be applied when they were last read; what was in force before still is. "
    text += "The command coalmine validate names the lines; then send the service a hangup signal."
    return Banner(severity="warning", text=text, link="/suites", label="See what is in force")


def _outbox(request: Request) -> Banner | None:
    snapshot = request.app.state.exposition.snapshot.state
    if snapshot is None or (snapshot.outbox_oldest_seconds or 0.0) <= _OUTBOX_STUCK_SECONDS:
        return None
    text = f"{snapshot.outbox_pending} notifications wait to be delivered, the oldest for more than ten minutes."
    text += " Their attempts say what the receivers answered."
    return Banner(severity="warning", text=text, link="/deliveries?state=pending", label="See what waits")


def _dead(hook: str, count: int) -> Banner:
    text = f"{counted(count, 'notification')} to hook {hook} {'was' if count == 1 else 'were'} given up in the last "
    text += "three days: nobody heard of it that way. Mend the receiver, then send what is dead again."
    link = f"/deliveries?hook={hook}&state=dead"
    return Banner(severity="critical", text=text, link=link, label="See what died")
