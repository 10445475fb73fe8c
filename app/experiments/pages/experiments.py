"""Pages of live traffic: the list of all kinds with forms of new ones, an experiment, and a promotion."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.base.api.csrf import takes_form
from app.base.api.deps import StoreDep
from app.base.db.engine import Store
from app.base.documents.validation_messages import parse_document
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.web.forms import Form, parse_number, problems_by_field, read_form
from app.base.web.rendering import render
from app.experiments.documents.experiment_documents import ExperimentDocument
from app.experiments.documents.interleaving_documents import InterleavingDocument
from app.experiments.documents.promotion_documents import PromotionDocument, WaiverRequest
from app.experiments.documents.shadow_documents import ShadowDocument
from app.experiments.domain.promotion import GateName
from app.experiments.pages.interval_chart import HEIGHT, WIDTH, draw_intervals
from app.experiments.pages.shadows import choices, shadow_document
from app.experiments.service import experiments, interleavings, promotions, results, shadows

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_MOST = 500
_NEW = Form(
    texts={
        "experiment.arms[1].share": "0.05",
        "experiment.delta": "0.02",
        "experiment.window": "24h",
        "experiment.max_units": "20000",
        "interleaving.max_units": "20000",
        "shadow.share": "0.05",
        "shadow.k": "10",
        "shadow.keep": "50",
    }
)
"""What the forms of new ones begin with; names are kind and path of a field."""


@router.get("/experiments")
def show_experiments(request: Request, store: StoreDep) -> HTMLResponse:
    """Show promotions, experiments, shadows and interleavings, with the forms of new ones."""
    return _experiments(request, store)


@router.post("/experiments")
@takes_form(fields=12)
async def create(request: Request, store: StoreDep) -> Response:
    """Create a promotion, an experiment, a shadow or an interleaving."""
    form = await read_form(request)
    return await anyio.to_thread.run_sync(partial(_created, request, store, form))


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


def _created(request: Request, store: Store, form: Form) -> Response:
    kind = form.get("kind")
    if kind not in _CREATE:
        raise InvalidInputError([Problem(path="kind", message=f"is one of {', '.join(_CREATE)}")])
    fields = Form(texts={name.removeprefix(f"{kind}."): text for name, text in form.texts.items()})
    try:
        return RedirectResponse(_CREATE[kind](store, fields, request.state.identity.name), status_code=303)
    except InvalidInputError as error:
        problems = [replace(one, path=f"{kind}.{one.path}") for one in error.problems]
        return _experiments(request, store, form, problems=problems, status=422)
    except ConflictError as error:
        problem = Problem(path=f"{kind}.slug", message=str(error))
        return _experiments(request, store, form, problems=(problem,), status=409)


def _create_promotion(store: Store, form: Form, by: str) -> str:
    names = {name: form.stripped(name) for name in ("slug", "current", "candidate")}
    document = parse_document(PromotionDocument, {**names, "experiment": form.stripped("experiment") or None})
    promotions.put_promotion(store, document, by=by, now=datetime.now(UTC), only_new=True)
    return f"/promotions/{quote(document.slug)}"


def _create_experiment(store: Store, form: Form, by: str) -> str:
    share = parse_number(form.get("arms[1].share"))
    shares = (round(1 - share, 9) if isinstance(share, int | float) else share, share)
    arms = [{"name": form.stripped(f"arms[{place}].name"), "share": one} for place, one in enumerate(shares)]
    numbers = {name: parse_number(form.get(name)) for name in ("delta", "max_units")}
    described = {"slug": form.stripped("slug"), "arms": arms, "window": form.stripped("window"), **numbers}
    document = parse_document(ExperimentDocument, described)
    experiments.put_experiment(store, document, by=by, now=datetime.now(UTC), only_new=True)
    return f"/experiments/{quote(document.slug)}"


def _create_shadow(store: Store, form: Form, by: str) -> str:
    document = parse_document(ShadowDocument, shadow_document(form.stripped("slug"), form))
    shadows.put_shadow(store, document, by=by, now=datetime.now(UTC), only_new=True)
    return f"/shadows/{quote(document.slug)}"


def _create_interleaving(store: Store, form: Form, by: str) -> str:
    names = {name: form.stripped(name) for name in ("slug", "a", "b")}
    document = parse_document(InterleavingDocument, {**names, "max_units": parse_number(form.get("max_units"))})
    interleavings.put_interleaving(store, document, by=by, now=datetime.now(UTC), only_new=True)
    return "/experiments#interleavings"


_CREATE: Mapping[str, Callable[[Store, Form, str], str]] = {
    "promotion": _create_promotion,
    "experiment": _create_experiment,
    "shadow": _create_shadow,
    "interleaving": _create_interleaving,
}


def _experiments(
    request: Request, store: Store, form: Form = _NEW, *, problems: Sequence[Problem] = (), status: int = 200
) -> HTMLResponse:
    now = datetime.now(UTC)
    found = results.list_experiments(store, limit=_MOST, now=now)
    return render(
        request,
        "experiments/experiments.html",
        status=status,
        promotions=promotions.list_promotions(store, limit=_MOST, now=now),
        experiments=found,
        shadows=shadows.list_shadows(store, limit=_MOST),
        interleavings=interleavings.list_interleavings(store, limit=_MOST),
        kind=form.get("kind"),
        typed=form if form is _NEW else Form(texts={**_NEW.texts, **form.texts}),
        wrong=problems_by_field(problems),
        problems=problems,
        checks=choices(store, "check"),
        retrievers=choices(store, "retriever"),
        named=[(one["slug"], one["slug"]) for one in found],
    )
