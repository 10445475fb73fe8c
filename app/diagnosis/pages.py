"""Pages of why a canary degraded, of proposals to re-anchor judgments, and of retrieval quality."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final

import anyio.to_thread
from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.alerts.pages import alert_page
from app.alerts.service import shown_alerts
from app.base.api.requests import StoreDep, expensive, page_router, takes_form
from app.base.db.engine import Store
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.views import id_number
from app.base.web.forms import Form, read_form, safe_path
from app.base.web.pages import render
from app.diagnosis.api import DIAGNOSES, REPORTS
from app.diagnosis.rendering import ABOUT, TITLES, TO_KNOW, VERDICTS, number_name
from app.diagnosis.service import quality as quality_report
from app.diagnosis.service import reanchoring
from app.diagnosis.service.diagnoses import OnDemand
from app.diagnosis.views import QualitySection, ReanchorDecision, ReanchorState, ReanchorView
from app.records.service.plans import Planner
from app.reports.service import check_details
from app.scoring.words import split_by_overlap

router = page_router()

_PROPOSALS = 200
_DECIDED = 20


@router.post("/alerts/{alert_id}/diagnosis")
@expensive
@takes_form(fields=2)
async def ask_open(request: Request, store: StoreDep, alert_id: str) -> Response:
    """Diagnose the canaries of an alert's check that nothing explains yet, ten at most."""
    form = await read_form(request)
    return await anyio.to_thread.run_sync(_asked_open, request, store, alert_id, form, limiter=DIAGNOSES)


def _asked_open(request: Request, store: Store, alert_id: str, form: Form) -> Response:
    number, state = id_number(alert_id, "alert"), request.app.state
    check = shown_alerts.alert(store, number)["check"]
    on_demand: OnDemand = state.diagnoses
    planner = Planner(state.access.store, state.access.vault)
    by = request.state.identity.name
    try:
        on_demand.ask_open(planner, state.probe, check, by=by, clock=lambda: datetime.now(UTC))
    except ConflictError as error:
        return alert_page(request, store, alert_id, refused=str(error), status=409)
    back = safe_path(form.get("next") or f"/alerts/{number}")
    return RedirectResponse(f"{back}#degraded", status_code=303)


@router.get("/checks/{slug}/reanchors")
def show_reanchors(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show the proposals for judgments whose chunks were renamed."""
    return _reanchors(request, store, slug)


@router.post("/checks/{slug}/reanchors")
@takes_form(fields=_PROPOSALS + 1)
async def decide_reanchors(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Accept or reject the ticked proposals, all or none."""
    typed = await read_form(request)
    ids, answer = typed.all("proposal"), typed.get("answer")
    if answer not in {"accept", "reject"}:
        raise InvalidInputError([Problem(path="answer", message="is 'accept' or 'reject'")])
    return await anyio.to_thread.run_sync(_decided, request, store, slug, ids, answer)


def _decided(request: Request, store: Store, slug: str, ids: Sequence[str], answer: str) -> HTMLResponse:
    if not ids:
        return _reanchors(request, store, slug, problems=(Problem(message="tick at least one proposal"),))
    try:
        numbers = reanchoring.proposal_ids("proposal", ids)
        decided = reanchoring.decide(
            store,
            slug,
            accept=numbers if answer == "accept" else (),
            reject=numbers if answer == "reject" else (),
            by=request.state.identity.name,
            now=datetime.now(UTC),
        )
    except InvalidInputError as error:
        return _reanchors(request, store, slug, problems=error.problems, status=422)
    return _reanchors(request, store, slug, decided=decided)


def _reanchors(
    request: Request,
    store: Store,
    slug: str,
    *,
    decided: ReanchorDecision | None = None,
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> HTMLResponse:
    found = reanchoring.list_all(store, slug, state=ReanchorState.PROPOSED, limit=_PROPOSALS + 1)
    past = [
        one
        for state in (ReanchorState.ACCEPTED, ReanchorState.REJECTED, ReanchorState.OUTDATED)
        for one in reanchoring.list_all(store, slug, state=state, limit=_DECIDED)
    ]
    return render(
        request,
        "diagnosis/reanchors.html",
        status=status,
        slug=slug,
        proposals=[{**one, "sides": _sides(one)} for one in found[:_PROPOSALS]],
        past=sorted(past, key=lambda one: one["decided_at"] or one["created_at"], reverse=True)[:_DECIDED],
        more=len(found) > _PROPOSALS,
        decided=decided,
        problems=problems,
    )


def _sides(proposal: ReanchorView) -> dict[str, Any] | None:
    """Old and new texts as parts, each with whether the other side has it; None where they were not stored."""
    old, new = proposal["old_text"], proposal["new_texts"]
    if old is None or new is None:
        return None
    return {"old": split_by_overlap(old, "\n".join(new)), "new": [split_by_overlap(text, old) for text in new]}


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
        scores=histogram(sections["precision"]) if found else None,
        depths=depths(sections["recall"]) if found else None,
        size=(WIDTH, HEIGHT),
    )


WIDTH: Final = 600
HEIGHT: Final = 130


_TICKS = 4


def histogram(section: QualitySection) -> dict[str, Any] | None:
    """Histogram of the scores of relevant hits and of all others, as shares of each kind; None where there are none.

    Bars are in the units of the drawing; `label` says the same in words, for screen readers.
    """
    found = section.get("histogram")
    if found is None:
        return None
    edges, kinds = found["edges"], list(found["counts"])
    step = WIDTH / (len(edges) - 1)
    shares = {kind: [count / (sum(counts) or 1) for count in counts] for kind, counts in found["counts"].items()}
    most = max(max(values) for values in shares.values()) or 1.0
    bars = [
        {
            "kind": kind,
            "x": round(place * step + which * step * 0.42 + step * 0.08, 2),
            "y": round(HEIGHT * (1 - share / most), 2),
            "width": round(step * 0.42, 2),
            "height": round(HEIGHT * share / most, 2),
        }
        for which, kind in enumerate(kinds)
        for place, share in enumerate(shares[kind])
        if share
    ]
    numbers = section["numbers"]
    label = (
        f"Scores from {edges[0]:.3g} to {edges[-1]:.3g}: relevant hits have a median of "
        f"{numbers['relevant_median']:.3g}, all others of {numbers['other_median']:.3g}"
    )
    least, widest = float(edges[0] or 0.0), float(edges[-1] or 0.0)
    ticks = [least + (widest - least) * part / _TICKS for part in range(_TICKS + 1)]
    return {"bars": bars, "ticks": ticks, "most": most, "label": label}


def depths(section: QualitySection) -> dict[str, Any] | None:
    """Shares of canaries that found what they expect, by depth; None where nothing was expected.

    A row for all and for each category: its name, the number of canaries, and the shares.
    """
    names = [name for name in section["numbers"] if name.startswith("found@")]
    if not names:
        return None
    rows = [("all canaries", section["numbers"])]
    rows += [(name, numbers) for name, numbers in section["groups"].items()] if len(section["groups"]) > 1 else []
    return {
        "depths": [name.partition("@")[2] for name in names],
        "rows": [
            (name, int(numbers["canaries"] or 0), [numbers[depth] or 0.0 for depth in names]) for name, numbers in rows
        ],
    }
