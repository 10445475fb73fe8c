"""Starts a run from a check's page, for browsers without scripts."""

from datetime import UTC, datetime
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse

from app.base.api.deps import StoreDep
from app.base.values import Trigger
from app.definitions.api import wake
from app.runs.service import due_checks

router = APIRouter(include_in_schema=False)


@router.post("/checks/{slug}/runs")
def run_now(request: Request, store: StoreDep, slug: str) -> RedirectResponse:
    """Queue a run, or use the queued one, and redirect to its page."""
    run_id, _ = due_checks.run_now(
        store, slug, trigger=Trigger.PAGE, index_version=None, idempotency_key=None, now=datetime.now(UTC)
    )
    wake(request)
    return RedirectResponse(f"/runs/{quote(str(run_id))}", status_code=303)
