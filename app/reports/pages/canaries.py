"""The page of a canary: expected chunks, rankings, diagnosis, states, and accepting a baseline."""

import json
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote
from uuid import uuid4

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.alerts.domain.telling import CAUSE_ADVICE
from app.alerts.service import transitions
from app.base.api.deps import StoreDep, VaultDep
from app.base.api.requests import PROBE_LIMITER, expensive, takes_form
from app.base.api.schemas import BaselineRequest, NotNormalRequest
from app.base.db.engine import Store
from app.base.documents.validation_messages import parse_document
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.values import Cause
from app.base.web.forms import parse_number, read_form, read_revision
from app.base.web.rendering import render
from app.base.web.responses import MEDIA_TYPE, ProgressEvents
from app.definitions.service import definitions
from app.detection.service import baselines
from app.diagnosis import documents as diagnosis_sentences
from app.diagnosis.api import DIAGNOSES, run_diagnosis
from app.diagnosis.domain.chunk_causes import is_overcome
from app.diagnosis.domain.views import DiagnosisView
from app.diagnosis.service import diagnoses
from app.records.pages import layout_band
from app.reports.service import canary_views
from app.reports.service.canary_views import CanaryDetail, ComparedHit
from app.runs.service import gate
from app.runs.service.gate import CanaryTrial

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_CHOICE_FIELDS = 3


@router.get("/checks/{slug}/canaries/{key}")
def show_canary(request: Request, store: StoreDep, slug: str, key: str) -> HTMLResponse:
    """Show a canary: expected chunks, rankings, diagnosis and states."""
    return _canary(request, store, slug, key)


@router.post("/checks/{slug}/canaries/{key}/try")
@expensive
async def try_now(request: Request, store: StoreDep, vault: VaultDep, slug: str, key: str) -> HTMLResponse:
    """Send a test request, and show how a run would judge the answer; nothing is stored."""
    ask = partial(
        gate.try_canary,
        request.app.state.probe,
        store,
        vault,
        slug,
        key,
        run_id=f"try-{uuid4().hex}",
        clock=lambda: datetime.now(UTC),
    )
    try:
        show = partial(_canary, trial=await anyio.to_thread.run_sync(ask, limiter=PROBE_LIMITER))
    except (ConflictError, InvalidInputError) as error:
        show = partial(_canary, refused=str(error), status=409 if isinstance(error, ConflictError) else 422)
    return await anyio.to_thread.run_sync(show, request, store, slug, key)


@router.post("/checks/{slug}/canaries/{key}/diagnosis")
@expensive
async def ask_why(request: Request, store: StoreDep, slug: str, key: str) -> Response:
    """Diagnose a canary now; a script that accepts event streams gets its progress."""
    if MEDIA_TYPE in request.headers.get("accept", ""):
        return ProgressEvents(lambda progress: run_diagnosis(request, slug, key, progress=progress), DIAGNOSES)
    try:
        await anyio.to_thread.run_sync(run_diagnosis(request, slug, key), limiter=DIAGNOSES)
    except ConflictError as error:
        refused = partial(_canary, request, store, slug, key, refused=str(error), status=409)
        return await anyio.to_thread.run_sync(refused)
    return RedirectResponse(f"/checks/{quote(slug)}/canaries/{quote(key)}#diagnosis", status_code=303)


@router.post("/checks/{slug}/baseline")
@takes_form(fields=_CHOICE_FIELDS)
async def choose_baseline(request: Request, store: StoreDep, slug: str) -> Response:
    """Accept the present state as the baseline, or unpin a baseline."""
    typed = await read_form(request)
    note, answer = typed.get("note"), typed.get("answer")
    by, now = request.state.identity.name, datetime.now(UTC)
    if answer == "accept":
        accepted = parse_document(BaselineRequest, {"accept": True, "note": note or None})
        choose = partial(transitions.accept_baseline, store, slug, by=by, note=accepted.note, now=now)
    elif answer == "follow":
        choose = partial(baselines.follow, store, slug, by=by, now=now)
    else:
        raise InvalidInputError([Problem(path="answer", message="is 'accept' or 'follow'")])
    await anyio.to_thread.run_sync(choose)
    return RedirectResponse(f"/checks/{quote(slug)}#detector", status_code=303)


@router.post("/checks/{slug}/habits")
@takes_form(fields=_CHOICE_FIELDS)
async def call_not_normal(request: Request, store: StoreDep, slug: str) -> Response:
    """Call a habit not normal: from the next run on its episodes are alarms again."""
    typed = await read_form(request)
    note = parse_document(NotNormalRequest, {"note": typed.get("note") or None}).note
    by, now = request.state.identity.name, datetime.now(UTC)
    refuse = partial(baselines.refuse, store, slug, typed.get("habit") or "", by=by, note=note, now=now)
    await anyio.to_thread.run_sync(refuse)
    return RedirectResponse(f"/checks/{quote(slug)}#detector", status_code=303)


@router.post("/checks/{slug}/suggested-rules")
@takes_form(fields=_CHOICE_FIELDS)
async def adopt_rule(request: Request, store: StoreDep, vault: VaultDep, slug: str) -> Response:
    """Add a suggested bound to the rules of a check."""
    typed = await read_form(request)
    rule = {
        "kind": "threshold",
        "measure": typed.get("measure"),
        "critical": {"below": parse_number(typed.get("below"))},
    }
    adopt = partial(definitions.adopt, store, vault, slug, rule, revision=read_revision(typed))
    await anyio.to_thread.run_sync(partial(adopt, now=datetime.now(UTC)))
    return RedirectResponse(f"/checks/{quote(slug)}#definition", status_code=303)


def _canary(
    request: Request,
    store: Store,
    slug: str,
    key: str,
    *,
    trial: CanaryTrial | None = None,
    refused: str = "",
    status: int = 200,
) -> HTMLResponse:
    now = datetime.now(UTC)
    detail = canary_views.load_canary(store, slug, key)
    diagnosis = _last_diagnosis(store, slug, key)
    return render(
        request,
        "records/canary.html",
        status=status,
        slug=slug,
        key=key,
        detail=detail,
        definition=detail.definition,
        band=layout_band(detail.history, detail.gaps, now),
        diagnosis=diagnosis,
        stands=diagnosis is not None and _is_current(diagnosis, detail),
        probed=diagnosis_sentences.probed(diagnosis.evidence) if diagnosis else [],
        findings=list(diagnosis_sentences.findings(diagnosis.evidence)) if diagnosis else [],
        wrong_field_advice=CAUSE_ADVICE[Cause.WRONG_FIELD],
        advice=CAUSE_ADVICE[diagnosis.cause] if diagnosis else "",
        evidence=json.dumps(diagnosis.evidence, indent=2, ensure_ascii=False) if diagnosis else "",
        trial=trial,
        trial_hits=None if trial is None else _compare_hits(trial, detail),
        refused=refused,
    )


def _is_current(diagnosis: DiagnosisView, detail: CanaryDetail) -> bool:
    """Whether a diagnosis still applies: since its run the canary has neither been healthy, failed nor found better."""
    asked_about = int(diagnosis.run_id)
    if detail.failure is not None:
        return asked_about >= int(detail.failure.first_run)
    if detail.now is None or not detail.now.reasons:
        return False
    places = [one.now for one in detail.expected if one.now is not None and one.judgment["grade"] >= 1]
    ranks = [place.rank for place in places if place.rank is not None and place.rank <= detail.k]
    if is_overcome(diagnosis.rank_now, min(ranks, default=None)):
        return False
    well = detail.well
    return well is None or well.last_run is None or asked_about > int(well.last_run)


def _compare_hits(trial: CanaryTrial, detail: CanaryDetail) -> list[ComparedHit]:
    """Return the hits of a trial compared with those of the latest run."""
    others = None if detail.now is None else [hit["id"] for hit in detail.now.hits]
    result = trial.result
    return canary_views.compare_hits(result["ranking"], others, newest=True, forbidden=result["forbidden_ranks"])


def _last_diagnosis(store: Store, slug: str, key: str) -> DiagnosisView | None:
    try:
        return diagnoses.show(store, slug, key)
    except NotFoundError:
        return None
