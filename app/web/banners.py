"""Banners over pages: what is wrong with Coalmine itself, as far as this process can tell."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request

from app.services.overview import CheckLine

_OUTBOX_STUCK_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """Something wrong with Coalmine itself: what it means and what to do."""

    severity: str
    text: str


def banners_of(request: Request, checks: Sequence[CheckLine]) -> list[Banner]:
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
