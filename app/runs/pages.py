"""Pages that start runs, a run of a check at once or re-scorings of past runs with their result; notes on runs.

The page of a run that was carried out is `show_run` of `reports.pages.checks`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import anyio.to_thread
from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.base.api.bodies import RunNoteRequest
from app.base.api.requests import StoreDep, page_router, takes_form, wake
from app.base.documents.fields import parse_document
from app.base.values import Trigger
from app.base.views import id_number
from app.base.web.forms import read_form, refuse_other
from app.base.web.pages import render
from app.records.service import run_views
from app.runs.service import due_checks, rescoring

router = page_router()

_FURTHEST: Mapping[str, timedelta | None] = {
    "": None,
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
"""How far back to re-score; None = all runs."""


@router.post("/checks/{slug}/rescorings")
@takes_form(fields=2)
async def ask(request: Request, store: StoreDep, slug: str) -> Response:
    """Start a re-scoring, or continue the same one with the runs since; redirect to its page."""
    since = (await read_form(request)).get("since")
    refuse_other(since, _FURTHEST, "since")
    now, back = datetime.now(UTC), _FURTHEST[since]

    def start() -> int:
        return rescoring.ask(store, slug, since=None if back is None else now - back, now=now)

    rescoring_id = await anyio.to_thread.run_sync(start)
    wake(request)
    return RedirectResponse(f"/rescorings/{quote(str(rescoring_id))}", status_code=303)


@router.post("/rescorings/{rescoring_id}/retry")
def retry(request: Request, store: StoreDep, rescoring_id: str) -> RedirectResponse:
    """Retry a failed re-scoring, and redirect to its page."""
    number = id_number(rescoring_id, "re-scoring")
    rescoring.retry(store, number)
    wake(request)
    return RedirectResponse(f"/rescorings/{number}", status_code=303)


@router.get("/rescorings/{rescoring_id}")
def show_rescoring(request: Request, store: StoreDep, rescoring_id: str) -> HTMLResponse:
    """Show a re-scoring: its progress and, once it has finished, its result."""
    view = rescoring.show(store, id_number(rescoring_id, "re-scoring"))
    return render(request, "runs/rescoring.html", view=view)


@router.post("/runs/{run_id}/note")
@takes_form(fields=3)
async def note(request: Request, store: StoreDep, run_id: str) -> RedirectResponse:
    """Write the note of a run, or delete it where the text is empty; redirect to the run."""
    text = (await read_form(request)).stripped("text")

    def write() -> None:
        if not text:
            run_views.delete_note(store, run_id)
            return
        body = parse_document(RunNoteRequest, {"text": text})
        run_views.write_note(store, run_id, body.text, by=request.state.identity.name, now=datetime.now(UTC))

    await anyio.to_thread.run_sync(write)
    return RedirectResponse(f"/runs/{quote(run_id, safe='')}#note", status_code=303)


@router.post("/checks/{slug}/runs")
def run_now(request: Request, store: StoreDep, slug: str) -> RedirectResponse:
    """Queue a run, or use the queued one, and redirect to its page."""
    run_id, _ = due_checks.run_now(
        store, slug, trigger=Trigger.PAGE, index_version=None, idempotency_key=None, now=store.now()
    )
    wake(request)
    return RedirectResponse(f"/runs/{quote(str(run_id))}", status_code=303)
