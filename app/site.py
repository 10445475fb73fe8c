"""Installs the status pages on the app: routers, static files, headers, problem pages."""

from fastapi import FastAPI

from app.alerts.pages import alerts
from app.alerts.silences import pages as silences
from app.annotation.pages import annotate
from app.annotation.pages import tasks as annotation_tasks
from app.answers.pages import answers, judges
from app.base.web import signing_in
from app.base.web.compression import CompressedFiles
from app.base.web.headers import SecurityHeaders
from app.base.web.problem_pages import install_problem_pages
from app.base.web.rendering import STATIC
from app.catalog.pages import canary_editor, check_editor, importing, suites
from app.comparison.pages import comparisons
from app.diagnosis import pages as reanchors
from app.diagnosis.quality import pages as quality
from app.experiments.pages import experiments, shadows
from app.hooks.pages import deliveries, hooks
from app.reports.pages import badges, canaries, checks, overviews, runs
from app.retrievers.pages import mapping, retrievers, trials
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
        runs,
        run_now,
        comparisons,
        alerts,
        hooks,
        deliveries,
        silences,
        mapping,
        retrievers,
        trials,
        suites,
        canary_editor,
        importing,
        annotation_tasks,
        traffic,
        annotate,
        answers,
        judges,
        experiments,
        shadows,
        signing_in,
    )
)
"""Routers of the pages, in matching order."""


def install_pages(app: FastAPI) -> None:
    """Install static files, headers and problem pages on an app that has the problem handlers."""
    app.mount("/static", CompressedFiles(directory=STATIC), name="static")
    app.add_middleware(SecurityHeaders)
    install_problem_pages(app)
