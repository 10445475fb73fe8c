"""Reports overload: due runs that wait for a worker are an issue of Coalmine, not `no_data` alerts of their checks."""

from typing import Final

from app.domain.counts import counted
from app.services.history.metrics_snapshot import State
from app.services.self_monitor import Issue, SelfMonitor

OVERLOAD_SECONDS: Final = 60.0
"""Waiting time from which a due run counts as overload."""


def report_overload(monitor: SelfMonitor, state: State | None) -> None:
    """Report or end the issue by the newest state; None = the store cannot be read, and nothing changes."""
    if state is None:
        return
    oldest = state.runs_waiting_oldest_seconds
    if oldest <= OVERLOAD_SECONDS:
        monitor.clear(Issue.OVERLOAD)
        return
    waiting = f"{counted(state.runs_waiting, 'run')} {'is' if state.runs_waiting == 1 else 'are'} due and not started"
    detail = f"{waiting}, the oldest for {oldest:,.0f} s: there are more runs than the workers can do"
    monitor.report(Issue.OVERLOAD, detail)
