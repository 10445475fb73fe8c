"""The status pages put on the app: routes, static files, headers, and a readable page for every problem."""

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from app.web import (
    alerts,
    badges,
    canaries,
    canary_editor,
    check_editor,
    checks,
    deliveries,
    hooks,
    importing,
    mapping,
    overviews,
    quality,
    reanchors,
    rescorings,
    retrievers,
    running,
    runs,
    signing_in,
    silences,
    suites,
    trying,
)
from app.web.headers import SecurityHeaders
from app.web.problem_pages import install_problem_pages
from app.web.rendering import STATIC


def install_pages(app: FastAPI) -> None:
    """Put the pages on an app whose problems are already installed."""
    app.state.failed_sign_ins = signing_in.Attempts()
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
        running,
        alerts,
        hooks,
        deliveries,
        silences,
        mapping,
        retrievers,
        trying,
        suites,
        canary_editor,
        importing,
        signing_in,
    ):
        app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(SecurityHeaders)
    install_problem_pages(app)
