"""The page of a run: its results with their evidence. It only reads."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.api.deps import StoreDep
from app.domain.model import Category, Verdict
from app.services import overview, reading
from app.web.parameters import Version, chosen
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_RESULTS = 25


@router.get("/runs/{run_id}")
def show_run(
    request: Request,
    store: StoreDep,
    run_id: str,
    verdict: str = "",
    category: str = "",
    after: Annotated[int, Query(ge=-1)] = -1,
    version: Version = "",
) -> HTMLResponse:
    """Show a run and its results with their evidence, as judged on the day or by a re-scoring."""
    run = reading.run(store, run_id, version=version or None)
    found, following = reading.results(
        store,
        run_id,
        verdict=chosen(Verdict, verdict, "verdict"),
        category=chosen(Category, category, "category"),
        after=after,
        limit=_RESULTS,
        version=version or None,
    )
    return render(
        request,
        "run.html",
        run=run,
        results=found,
        asked=overview.asked_of(store, run_id, version=version or None),
        versions=overview.versions_of(store, run_id),
        chosen=version,
        following=following,
        after=after,
        verdict=verdict,
        verdicts=list(Verdict),
        category=category,
        categories=list(run["categories"]) or list(Category),
    )
