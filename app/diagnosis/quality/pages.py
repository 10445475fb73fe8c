"""Quality page of a check: the checklist with its charts. The report is made on demand, one at a time."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.base.api.deps import StoreDep
from app.base.api.request_limits import expensive
from app.base.db.engine import Store
from app.base.errors import NotFoundError
from app.base.web.rendering import render
from app.diagnosis.quality import charts
from app.diagnosis.quality import service as quality_report
from app.diagnosis.quality.api import REPORTS
from app.diagnosis.quality.reports import TITLES, VERDICTS
from app.diagnosis.quality.sentences import ABOUT, TO_KNOW, number_name
from app.reports.service import check_details

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
        scores=charts.histogram(sections["precision"]) if found else None,
        depths=charts.depths(sections["recall"]) if found else None,
        size=(charts.WIDTH, charts.HEIGHT),
    )
