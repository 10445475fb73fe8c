"""The pages on which somebody decides: why a canary degraded, what took a chunk's place, that an alert was seen."""

import json
from collections.abc import Mapping
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
from app.formats import shapes
from app.formats.complaints import parse_document
from app.services import acknowledging, alert_reading, baselines, charts, definitions, diagnosis, reanchoring, why
from app.services.reanchoring import State
from app.store.engine import Store
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_PROPOSALS = 200
_STATES = 50
_CHOICE_FIELDS = 3
_LONGEST_ID = 18
"""Digits: what fits 64 bits."""


@router.get("/alerts/{alert_id}")
def show_alert(request: Request, store: StoreDep, alert_id: str) -> HTMLResponse:
    """Show an alert: what was seen, what changed, who was told, and what is next."""
    return _alert(request, store, alert_id)


@router.post("/alerts/{alert_id}/acknowledge")
def acknowledge(request: Request, store: StoreDep, alert_id: str) -> Response:
    """Note that somebody has seen it."""
    number = shapes.id_number(alert_id, "alert")
    try:
        acknowledging.acknowledge(store, number, by=request.state.identity.name, note=None, now=_now())
    except ConflictError as error:
        return _alert(request, store, alert_id, refused=str(error), status=409)
    return RedirectResponse(f"/alerts/{number}", status_code=303)


@router.post("/checks/{slug}/baseline")
async def choose_baseline(request: Request, store: StoreDep, slug: str) -> Response:
    """Call the present the new normal, or let a pinned baseline move along again."""
    async with request.form(max_files=0, max_fields=_CHOICE_FIELDS) as form:
        note, answer = form.get("note"), form.get("answer")
    who: dict[str, Any] = {"by": request.state.identity.name, "now": _now()}
    if answer == "accept":
        who["note"] = parse_document(BaselineRequest, {"accept": True, "note": note or None}).note
    elif answer != "follow":
        raise InvalidInputError([Problem(path="answer", message="is 'accept' or 'follow'")])
    choose = baselines.accept if answer == "accept" else baselines.follow
    await anyio.to_thread.run_sync(partial(choose, store, slug, **who))
    return RedirectResponse(f"/checks/{quote(slug)}#detector", status_code=303)


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


@router.get("/checks/{slug}/reanchors")
def show_reanchors(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show what is proposed in the place of judgments whose chunks were renamed."""
    return _reanchors(request, store, slug)


@router.post("/checks/{slug}/reanchors")
async def decide_reanchors(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Accept or reject what is ticked, all of it or nothing."""
    async with request.form(max_files=0, max_fields=_PROPOSALS + 1) as form:
        ids = [value for value in form.getlist("proposal") if isinstance(value, str)]
        answer = form.get("answer")
    if answer not in {"accept", "reject"}:
        raise InvalidInputError([Problem(path="answer", message="is 'accept' or 'reject'")])
    return await anyio.to_thread.run_sync(_decided, request, store, slug, ids, str(answer))


def _decided(request: Request, store: Store, slug: str, ids: list[str], answer: str) -> HTMLResponse:
    if not ids:
        return _reanchors(request, store, slug, problems=(Problem(message="tick at least one proposal"),))
    try:
        wanted: dict[str, Any] = {answer: [_proposal(one) for one in ids]}
        decided = reanchoring.decide(store, slug, **wanted, by=request.state.identity.name, now=_now())
    except InvalidInputError as error:
        return _reanchors(request, store, slug, problems=error.problems, status=422)
    return _reanchors(request, store, slug, decided=decided)


def _proposal(text: str) -> int:
    if not (len(text) <= _LONGEST_ID and text.isascii() and text.isdecimal()):
        raise InvalidInputError([Problem(path="proposal", message=f"there is no proposal '{text[:40]}'")])
    return int(text)


def _alert(request: Request, store: Store, alert_id: str, *, refused: str = "", status: int = 200) -> HTMLResponse:
    alert = alert_reading.alert(store, shapes.id_number(alert_id, "alert"))
    rules = []
    if alert["state"] != "resolved":
        rules = why.explain(store, alert["check"], now=_now())["rules"]
    rule = next((one for one in rules if one["alert_id"] == alert["id"]), None)
    return render(request, "alert.html", status=status, alert=alert, rule=rule, refused=refused)


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


def _reanchors(
    request: Request,
    store: Store,
    slug: str,
    *,
    decided: Mapping[str, Any] | None = None,
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> HTMLResponse:
    found = reanchoring.list_all(store, slug, state=State.PROPOSED, limit=_PROPOSALS + 1)
    return render(
        request,
        "reanchors.html",
        status=status,
        slug=slug,
        proposals=found[:_PROPOSALS],
        more=len(found) > _PROPOSALS,
        decided=decided,
        problems=problems,
    )


def _now() -> datetime:
    return datetime.now(UTC)
