"""Running a check now from its page: the way without scripts, which leads to the run."""

from datetime import UTC, datetime
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse

from app.api.catalog.definitions import wake
from app.api.deps import StoreDep
from app.domain.model import Trigger
from app.services.runs import scheduling

router = APIRouter(include_in_schema=False)


@router.post("/checks/{slug}/runs")
def run_now(request: Request, store: StoreDep, slug: str) -> RedirectResponse:
    """Queue a run, or join the one that waits, and lead to its page."""
    run_id, _ = scheduling.run_now(
        store, slug, trigger=Trigger.PAGE, index_version=None, idempotency_key=None, now=datetime.now(UTC)
    )
    wake(request)
    return RedirectResponse(f"/runs/{quote(str(run_id))}", status_code=303)
