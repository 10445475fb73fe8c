"""Installs the status pages on the app: routers, static files, headers, problem pages."""

from fastapi import FastAPI

from app.alerts import pages as alerts
from app.alerts.silences import pages as silences
from app.annotation import pages as annotation
from app.answers import pages as answers
from app.base.web import signing_in
from app.base.web.rendering import STATIC
from app.base.web.responses import CompressedFiles, SecurityHeaders, install_problem_pages
from app.catalog.pages import canary_editor, check_editor, importing, suites
from app.comparison import pages as comparisons
from app.diagnosis import pages as reanchors
from app.diagnosis.quality import pages as quality
from app.experiments import pages as experiments
from app.hooks import pages as hooks
from app.reports.pages import badges, canaries, checks, overviews
from app.retrievers.pages import retrievers, wizard
from app.runs.pages import rescorings, run_now
from app.traffic import pages as traffic

PAGES = tuple(
    pages.router
    for pages in (
        overviews,
        check_editor,
        checks,
        quality,
        badges,
        canaries,
        reanchors,
        rescorings,
        run_now,
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


def install_pages(app: FastAPI) -> None:
    """Install static files, headers and problem pages on an app that has the problem handlers."""
    app.mount("/static", CompressedFiles(directory=STATIC), name="static")
    app.add_middleware(SecurityHeaders)
    install_problem_pages(app)
