"""The page of a canary: what it should find, the states it went through, and why it is as it is."""

import json
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.api.deps import StoreDep
from app.api.diagnosis import DIAGNOSES, asking
from app.api.schemas import BaselineRequest
from app.domain.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.formats.complaints import parse_document
from app.services import baselines, charts, definitions, diagnosis
from app.store.engine import Store
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_STATES = 50
_CHOICE_FIELDS = 3


@router.get("/checks/{slug}/canaries/{key}")
def show_canary(request: Request, store: StoreDep, slug: str, key: str) -> HTMLResponse:
    """Show a canary: what it should find, the states it went through, and why it is as it is."""
    return _canary(request, store, slug, key)


@router.post("/checks/{slug}/canaries/{key}/diagnosis")
async def ask_why(request: Request, store: StoreDep, slug: str, key: str) -> Response:
    """Ask the retriever now why a canary is as it is."""
    try:
        await anyio.to_thread.run_sync(asking(request, slug, key), limiter=DIAGNOSES)
    except ConflictError as error:
        refused = partial(_canary, request, store, slug, key, refused=str(error), status=409)
        return await anyio.to_thread.run_sync(refused)
    return RedirectResponse(f"/checks/{quote(slug)}/canaries/{quote(key)}", status_code=303)


@router.post("/checks/{slug}/baseline")
async def choose_baseline(request: Request, store: StoreDep, slug: str) -> Response:
    """Call the present the new normal, or let a pinned baseline move along again."""
    async with request.form(max_files=0, max_fields=_CHOICE_FIELDS) as form:
        note, answer = form.get("note"), form.get("answer")
    who: dict[str, Any] = {"by": request.state.identity.name, "now": datetime.now(UTC)}
    if answer == "accept":
        who["note"] = parse_document(BaselineRequest, {"accept": True, "note": note or None}).note
    elif answer != "follow":
        raise InvalidInputError([Problem(path="answer", message="is 'accept' or 'follow'")])
    choose = baselines.accept if answer == "accept" else baselines.follow
    await anyio.to_thread.run_sync(partial(choose, store, slug, **who))
    return RedirectResponse(f"/checks/{quote(slug)}#detector", status_code=303)


def _canary(
    request: Request, store: Store, slug: str, key: str, *, refused: str = "", status: int = 200
) -> HTMLResponse:
    check = definitions.find(store, "check", slug)
    canary = definitions.find_canary(store, check.body["suite"], key)
    found = _last_diagnosis(store, slug, key)
    return render(
        request,
        "canary.html",
        status=status,
        slug=slug,
        key=key,
        definition={**canary.body, "managed_by": canary.managed_by, "source": canary.source},
        history=charts.canary_history(store, slug, key, limit=_STATES),
        diagnosis=found,
        evidence=json.dumps(found["evidence"], indent=2, ensure_ascii=False) if found else "",
        refused=refused,
    )


def _last_diagnosis(store: Store, slug: str, key: str) -> dict[str, Any] | None:
    try:
        return diagnosis.show(store, slug, key)
    except NotFoundError:
        return None
