"""Renders reports as one HTML file to print or archive: without scripts, its style allowed by hash.

The numbers are those of `reports`. Queries, ids and retrieved texts may be hostile: all values are escaped.
"""

from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.base.documents import texts
from app.records import documents as shapes
from app.reports.documents import report_measures, reports

_HERE: Final = Path(__file__).parents[1] / "templates"


def report_html(*reports_given: Mapping[str, Any]) -> str:
    """Return reports as one HTML page, a section each: verdict, reasons, failures, counts, tables.

    Unlike the other formats it has the measures of each category at every cut-off.
    """
    template = _environment().get_template("report_page.html")
    sections = [_section(report) for report in reports_given]
    return template.render(policy=page_policy(), style=_style(), reports=sections).lstrip()


def page_policy() -> str:
    """Return the content security policy of the page, which allows only its own style."""
    digest = b64encode(sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _section(report: Mapping[str, Any]) -> dict[str, object]:
    run = report["run"]
    comparison = report.get("comparison")
    return {
        "run": run,
        "starter": shapes.starter(run["trigger"]),
        "headline": reports.headline(run),
        "started_at": _when(run.get("started_at")),
        "finished_at": _when(run.get("finished_at")),
        "reasons": [texts.plain(str(reason)) for reason in run.get("reasons") or ()],
        "notes": [texts.plain(line) for line in (*reports.failure_lines(report), *reports.note_lines(report))],
        "counts": reports.counts_line(run),
        "tables": reports.report_tables(report),
        "guide": report.get("guide"),
        "lead": report_measures.lead_numbers(report),
        "categories": report_measures.category_cutoff_tables(report),
        "compared": [
            *reports.change_lines(report),
            *([] if comparison is None else reports.comparison_lines(comparison)),
        ],
        "moved": [
            *reports.change_tables(report),
            *([] if comparison is None else reports.comparison_tables(comparison)),
        ],
    }


def _when(moment: str | None) -> str | None:
    """Return a time of the API in readable form, to the second."""
    return None if moment is None else f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@lru_cache
def _style() -> str:
    return (_HERE / "report_page.css").read_text(encoding="utf-8")


@lru_cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
