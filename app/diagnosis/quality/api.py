"""The quality report of a check over REST."""

from datetime import UTC, datetime
from typing import Annotated, Literal

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from app.base.api.bodies import answers
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.requests import expensive
from app.base.db.engine import Store
from app.diagnosis.domain.views import QualityReport
from app.diagnosis.quality import service as quality_report
from app.diagnosis.quality.documents import quality_markdown

router = APIRouter(prefix="/v1", tags=["history"], dependencies=[Depends(refuse_unknown_parameters)])

# Outside of the routes' threads, one at a time: reports must not block other pages.
REPORTS = CapacityLimiter(1)


@router.get("/checks/{slug}/quality", responses=answers(200, types=("text/markdown",)), response_model=QualityReport)
@expensive
async def get_quality(
    store: StoreDep, slug: str, form: Annotated[Literal["json", "markdown"], Query(alias="format")] = "json"
) -> Response:
    """Evaluate the checklist of retrieval quality by the last answer of each canary.

    Sections: suite, chunk quality, embedding quality, recall, precision, vocabulary, chunk boundaries, slow drift; each
    with a verdict (`good`, `look_at_this`, `unknown`) and why, numbers, the worst examples and advice. Of large suites
    a sample is evaluated, as where texts are very long; `notes` say so. Reports are made one at a time.
    """
    return await anyio.to_thread.run_sync(_written, store, slug, form, limiter=REPORTS)


def _written(store: Store, slug: str, form: str) -> Response:
    report = quality_report.report(store, slug, now=datetime.now(UTC))
    if form == "markdown":
        return PlainTextResponse(quality_markdown(report), media_type="text/markdown; charset=utf-8")
    return JSONResponse(report)
