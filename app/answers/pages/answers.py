"""The page of the generated answers of a run: answer, chunks, and what the judge said of it."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.answers.service import answer_views
from app.base.api.deps import StoreDep
from app.base.web.rendering import render
from app.records.service import run_views

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_SHOWN = 25


@router.get("/runs/{run_id}/answers")
def show_answers(
    request: Request, store: StoreDep, run_id: str, after: Annotated[int, Query(ge=0, le=1_000_000)] = 0
) -> HTMLResponse:
    """Show the answers of a run, the worst by its judge first."""
    page = answer_views.answers_of_run(store, run_id, after=after, limit=_SHOWN)
    return render(
        request,
        "answers/answers.html",
        run=run_views.run(store, run_id),
        page=page,
        confirmed=page["confirmed"],
        after=after,
    )
