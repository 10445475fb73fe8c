"""Writes a report that is due and puts it into the outbox, one delivery for each hook.

Rendering reads a run with all its results and may take a second, so it is done before the transaction that writes. What
was rendered is stored: hooks get the same report however late each is reached.
"""

from contextlib import suppress
from datetime import datetime
from typing import Final

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, NotFoundError
from app.catalog.domain.judgment_sources import labelled
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.hooks.domain.notices import ReportContent
from app.hooks.store import outbox
from app.hooks.store.outbox import NewDelivery
from app.records.domain.run_views import FullReport
from app.records.store import results
from app.reports.documents import reports
from app.reports.documents.report_changes import change_lines
from app.reports.documents.report_pages import report_html
from app.reports.service import run_reports
from app.reports.store import report_rows
from app.reports.store.report_rows import ReportRow

READY: Final = "report.ready"
_LATEST: Final = 100
"""Number of the newest runs of a check among which one that was carried out is looked for."""
_DISABLED: Final = "The hook is disabled."


def write_report(store: Store, report_id: int, *, now: datetime) -> bool:
    """Write a report that is due, of the newest ended run, and queue its deliveries; whether there is one to send.

    Of several processes that are at it, one stores its report and queues deliveries.
    """
    with store.read() as connection:
        row = report_rows.find_report(connection, report_id)
        if row is None or row.state != "due":
            return False
        check = definitions.definition_by_id(connection, row.check_id)
        run_id = _newest_run(connection, row.check_id)
        before = report_rows.previous_run(connection, row)
    why = _unsent_reason(check, run_id)
    if why is not None or run_id is None:
        with store.write() as connection:
            report_rows.skip_report(connection, report_id, why or "")
        return False
    content = _content(_load(store, run_id, before), has_news=before != run_id)
    with store.write() as connection:
        if not report_rows.finish_report(connection, report_id, run_id=run_id, content=content):
            return False
        outbox.enqueue_deliveries(connection, _deliveries(connection, row, check, to_us(now)))
    return True


def _newest_run(connection: Connection, check_id: int) -> int | None:
    ended = results.ended_runs(connection, check_id, limit=_LATEST)
    return next((run.id for run in reversed(ended) if run.aggregates), None)


def _unsent_reason(check: Definition, run_id: int | None) -> str | None:
    """Return why there is no report to be sent; None = there is one."""
    if check.archived_at is not None:
        return "The check was archived."
    if not check.body.get("report"):
        return "The check has no scheduled report any more."
    return "No run has ended yet." if run_id is None else None


def _load(store: Store, run_id: int, before: int | None) -> FullReport:
    """Return the report of a run, with the change since the run of the last report unless that has been deleted."""
    if before is not None and before != run_id:
        with suppress(NotFoundError, ConflictError):
            return run_reports.load_report(store, str(run_id), since=str(before))
    return run_reports.load_report(store, str(run_id))


def _content(report: FullReport, *, has_news: bool) -> ReportContent:
    """Return what a report says, of which the bodies for each kind of hook are made."""
    run, guide = report["run"], report["guide"]
    lines = [*reports.lead_lines(report), reports.counts_line(run), *change_lines(report)]
    if not has_news:
        lines.insert(0, "no run has ended since the last report")
    measure = None if guide is None else guide["measure"]
    since = report["since"]
    return {
        "summary": _summary(report),
        "lines": lines,
        "markdown": reports.report_markdown(report),
        "html": report_html(report),
        "check": run["check"],
        "suite": run["suite"],
        "retriever": run["retriever"],
        "run_id": run["id"],
        "since_run_id": None if since is None else since["before"]["id"],
        "verdict": run["verdict"],
        "health_score": run["health_score"],
        "coverage": run["coverage"],
        "measure": measure,
        "value": None if measure is None else run["measures"].get(measure),
        "self_judged": bool(run["self_judged"]),
        "degraded_total": run["canaries"]["degraded"],
    }


def _summary(report: FullReport) -> str:
    """Return the title: `handbook: report, healthy, R@5 0.957`."""
    run, guide = report["run"], report["guide"]
    value = None if guide is None else run["measures"].get(guide["measure"])
    number = ""
    if guide is not None and value is not None:
        number = f", {labelled(guide['measure'], self_judged=run['self_judged'])} {value:.3f}"
    return f"{run['check']}: report, {run['verdict'] or run['status']}{number}"


def _deliveries(connection: Connection, report: ReportRow, check: Definition, now: int) -> list[NewDelivery]:
    """Return a delivery for each hook of a report that is in force."""
    hooks = (definitions.find_definition(connection, "hook", slug) for slug in check.body["report"]["hooks"])
    return [
        NewDelivery(
            hook_id=hook.id,
            alert_id=None,
            transition_id=None,
            incident_id=None,
            report_id=report.id,
            message_id=f"msg_report_{report.id}_{hook.id}",
            type=READY,
            state="pending" if hook.disabled_reason is None else "dead",
            created_at=now,
            next_attempt_at=now,
            reason=None if hook.disabled_reason is None else _DISABLED,
        )
        for hook in hooks
        if hook is not None and hook.archived_at is None
    ]
