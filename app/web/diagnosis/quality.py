"""Quality page of a check: the checklist with its charts. The report is made on demand, one at a time."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.api.deps import StoreDep
from app.api.diagnosis.quality import REPORTS
from app.api.request_limits import expensive
from app.domain.errors import NotFoundError
from app.formats.diagnosis.quality_reports import TITLES, VERDICTS
from app.formats.diagnosis.quality_sentences import ABOUT, TO_KNOW, number_name
from app.services.diagnosis import quality_report
from app.services.history import check_details
from app.store.engine import Store
from app.web.diagnosis import quality_charts
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@router.get("/checks/{slug}/quality")
@expensive
async def show_quality(
    request: Request, store: StoreDep, slug: str, report: Annotated[bool | None, Query()] = None
) -> HTMLResponse:
    """Show the page at once, which then loads the report; without scripts by a link."""
    page = partial(_page, request, store, slug, made=bool(report))
    # Whoever may read must not keep others from their pages: reports wait for each other, and only for each other.
    return await anyio.to_thread.run_sync(page, limiter=REPORTS if report else None)


def _page(request: Request, store: Store, slug: str, *, made: bool) -> HTMLResponse:
    now = datetime.now(UTC)
    line = check_details.load_line(store, slug, now)
    found, nothing = None, line.newest is None
    if made:
        try:
            found = quality_report.report(store, slug, now=now)
        except NotFoundError:
            nothing = True
    sections = {section["name"]: section for section in found["sections"]} if found else {}
    return render(
        request,
        "diagnosis/quality.html",
        line=line,
        report=found,
        nothing=nothing,
        titles=TITLES,
        verdicts=VERDICTS,
        about=ABOUT,
        to_know=TO_KNOW,
        number_name=number_name,
        scores=quality_charts.histogram(sections["precision"]) if found else None,
        depths=quality_charts.depths(sections["recall"]) if found else None,
        size=(quality_charts.WIDTH, quality_charts.HEIGHT),
    )
