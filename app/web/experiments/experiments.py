"""Pages of live traffic: experiments and promotions in one list, and each alone."""

from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.api.csrf import takes_form
from app.api.deps import StoreDep
from app.domain.errors import InvalidInputError, Problem
from app.domain.experiments.promotion import GateName
from app.formats.experiments.promotion_documents import WaiverRequest
from app.formats.validation_messages import parse_document
from app.services.experiments import promotions, results
from app.web.experiments.interval_chart import HEIGHT, WIDTH, draw_intervals
from app.web.forms import read_form
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_MOST = 500


@router.get("/experiments")
def show_experiments(request: Request, store: StoreDep) -> HTMLResponse:
    """Show the promotions and the experiments."""
    now = datetime.now(UTC)
    return render(
        request,
        "experiments/experiments.html",
        promotions=promotions.list_promotions(store, limit=_MOST, now=now),
        experiments=results.list_experiments(store, limit=_MOST, now=now),
    )


@router.get("/experiments/{slug}")
def show_experiment(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show an experiment: its decision, arms, and the interval over time."""
    found = results.load_experiment(store, slug, now=datetime.now(UTC))
    chart = draw_intervals(found["looks"], delta=found["delta"], decided_at=found["decided_at"])
    return render(request, "experiments/experiment.html", experiment=found, chart=chart, size=(WIDTH, HEIGHT))


@router.get("/promotions/{slug}")
def show_promotion(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show where a candidate stands: its gates with their reasons, and forms to waive them."""
    found = promotions.load_promotion(store, slug, now=datetime.now(UTC))
    return render(request, "experiments/promotion.html", promotion=found)


@router.post("/promotions/{slug}/waive")
@takes_form(fields=2)
async def waive_gate(request: Request, store: StoreDep, slug: str) -> Response:
    """Waive a gate, or withdraw its waiver where no reason is given."""
    form = await read_form(request)
    if form.get("gate") not in set(GateName):
        raise InvalidInputError([Problem(path="gate", message="is a gate of the promotion")])
    gate = GateName(form.get("gate"))
    reason = form.stripped("reason")
    if reason:
        wish = parse_document(WaiverRequest, {"reason": reason})
        by, now = request.state.identity.name, datetime.now(UTC)
        act = partial(promotions.waive_gate, store, slug, gate, reason=wish.reason, by=by, now=now)
    else:
        act = partial(promotions.withdraw_waiver, store, slug, gate)
    await anyio.to_thread.run_sync(act)
    return RedirectResponse(f"/promotions/{quote(slug)}", status_code=303)
