"""Reports issues of the newest state: due runs that wait for a worker, and hooks that take no notification.

They are issues of Coalmine, not alerts of its checks.
"""

from typing import Final

from app.base.counts import counted
from app.operation.service.self_monitor import Issue, SelfMonitor
from app.reports.service.metrics_snapshot import State

OVERLOAD_SECONDS: Final = 60.0
"""Waiting time from which a due run counts as overload."""
_NAMED: Final = 5
"""Hooks named at most."""


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


def report_deliveries(monitor: SelfMonitor, state: State | None) -> None:
    """Report or end the issue of hooks that refuse by the newest state; None = nothing changes."""
    if state is None:
        return
    refusing = [hook for hook in state.hooks if hook.retrying]
    if not refusing:
        monitor.clear(Issue.DELIVERIES)
        return
    names = ", ".join(hook.slug for hook in refusing[:_NAMED])
    others = len(refusing) - _NAMED
    more = f" and {counted(others, 'other')}" if others > 0 else ""
    waiting = sum(hook.retrying for hook in refusing)
    are = "was" if waiting == 1 else "were"
    detail = f"{counted(waiting, 'notification')} {are} tried three times or more and not taken, by "
    monitor.report(Issue.DELIVERIES, f"{detail}{'hook' if len(refusing) == 1 else 'hooks'} {names}{more}")
