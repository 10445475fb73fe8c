"""Installs the status pages on the app: routers, static files, headers, problem pages."""

from fastapi import FastAPI

from app.web import signing_in
from app.web.alerts import alerts, silences
from app.web.annotation import annotate, traffic
from app.web.annotation import tasks as annotation_tasks
from app.web.catalog import canary_editor, check_editor, importing, suites
from app.web.comparison import comparisons
from app.web.compression import CompressedFiles
from app.web.delivery import deliveries, hooks
from app.web.diagnosis import quality, reanchors
from app.web.experiments import experiments, shadows
from app.web.generation import answers, judges
from app.web.headers import SecurityHeaders
from app.web.history import badges, canaries, checks, overviews, runs
from app.web.probing import mapping, retrievers, trials
from app.web.problem_pages import install_problem_pages
from app.web.rendering import STATIC
from app.web.runs import rescorings, run_now

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
