"""Installs the status pages on the app: routers, static files, headers, problem pages."""

from fastapi import FastAPI

from app.alerts import pages as alerts
from app.alerts.pages import FILTERS, bound
from app.alerts.silences import pages as silences
from app.annotation import pages as annotation
from app.answers import pages as answers
from app.base.web import rendering, signing_in
from app.base.web.rendering import STATIC
from app.base.web.responses import CompressedFiles, SecurityHeaders, install_problem_pages
from app.catalog.domain import recall_label
from app.comparison import pages as comparisons
from app.definitions.pages import canary_editor, check_editor, importing, suites
from app.diagnosis import pages as diagnosis
from app.experiments import pages as experiments
from app.hooks import pages as hooks
from app.records.documents import first_expected, not_returned, starter, why_degraded
from app.reports.documents.report_measures import ERR_SCALE
from app.reports.pages import checks, overviews
from app.reports.pages.overviews import grave_issues
from app.retrievers.pages import retrievers, wizard
from app.runs import pages as runs
from app.traffic import pages as traffic

PAGES = tuple(
    pages.router
    for pages in (
        overviews,
        check_editor,
        checks,
        diagnosis,
        runs,
        comparisons,
        alerts,
        hooks,
        silences,
        wizard,
        retrievers,
        suites,
        canary_editor,
        importing,
        annotation,
        traffic,
        answers,
        experiments,
        signing_in,
    )
)
"""Routers of the pages, in matching order."""


rendering.add_words(
    filters={
        **FILTERS,
        "bound": bound,
        "why": why_degraded,
        "rank": first_expected,
        "absent": not_returned,
        "starter": starter,
        "recall_label": lambda measure, own: recall_label(measure, self_judged=own),
    },
    constants={"err_scale": ERR_SCALE},
    values={"issues": grave_issues},
)


def install_pages(app: FastAPI) -> None:
    """Install static files, headers and problem pages on an app that has the problem handlers."""
    app.mount("/static", CompressedFiles(directory=STATIC), name="static")
    app.add_middleware(SecurityHeaders)
    install_problem_pages(app)
