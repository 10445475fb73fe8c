"""Pages of live traffic: the list of all kinds with forms of new ones, an experiment, a promotion, and a shadow.

Two charts are computed here, to be drawn by the templates: the intervals of an experiment look by look
(`draw_intervals`), and the overlap of a shadow by hour (`draw_overlap`).
"""

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.annotation.pages import open_task
from app.base.api.requests import StoreDep, page_router, takes_form
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.texts import bound_text, change_text, percent_text, span_text
from app.base.values import Value, replace
from app.base.web.forms import (
    Form,
    FormInput,
    default_text,
    follow_form,
    has_scope,
    parse_form,
    parse_number,
    place_problems,
    problems_by_field,
)
from app.base.web.pages import render
from app.catalog.service import references
from app.experiments.documents import (
    FEWEST_LETTERS,
    ExperimentDocument,
    GuardDocument,
    InterleavingDocument,
    PromotionDocument,
    ShadowDocument,
    WaiverRequest,
)
from app.experiments.domain.experiments import USUAL_POWER, USUAL_RATE, ExperimentState, units_needed
from app.experiments.domain.promotions import GateName
from app.experiments.service import experiments, promotions, shadows
from app.experiments.views import ExperimentDetail, ExperimentLook, ShadowDetail, ShadowHour

router = page_router()

_MOST = 500
_SHARE, _DELTA = 0.1, 0.05
_UNITS: Final = math.ceil(units_needed(_DELTA, rate=USUAL_RATE, share=_SHARE) / 1_000) * 1_000
"""Of a new experiment's form: so many units show such a difference. Those of its document, 0.02 and 20,000, do not."""
_NEW = Form(
    texts={
        "experiment.arms[1].share": f"{_SHARE:g}",
        "experiment.delta": f"{_DELTA:g}",
        "experiment.window": f"{ExperimentDocument.model_fields['window'].default / 3600:g}h",
        "experiment.max_units": str(_UNITS),
        "promotion.other_loss": default_text(GuardDocument, "allowed_loss"),
        "interleaving.max_units": default_text(InterleavingDocument, "max_units"),
        **{f"shadow.{name}": default_text(ShadowDocument, name) for name in ("share", "k", "keep")},
    }
)
"""What the forms of new ones begin with; names are kind and path of a field. No document has a share of an arm."""
_KINDS: Final[Mapping[str, tuple[type[Any], Callable[..., object], str]]] = {
    "promotion": (PromotionDocument, promotions.put_promotion, "/promotions/{}"),
    "experiment": (ExperimentDocument, experiments.put_experiment, "/experiments/{}"),
    "shadow": (ShadowDocument, shadows.put_shadow, "/shadows/{}"),
    "interleaving": (InterleavingDocument, experiments.put_interleaving, "/interleavings/{}"),
}
"""Of each kind its document, what creates it, and the address that follows."""


@router.get("/experiments")
def show_experiments(request: Request, store: StoreDep, new: Annotated[str, Query(max_length=16)] = "") -> HTMLResponse:
    """Show promotions, experiments, shadows and interleavings, with the forms of new ones; that of kind `new` open."""
    return _experiments(request, store, Form(texts={"kind": new}))


@router.post("/experiments")
@takes_form(fields=12)
def create(request: Request, store: StoreDep, form: FormInput) -> Response:
    """Create a promotion, an experiment, a shadow or an interleaving."""
    kind = form.get("kind")
    if kind not in _KINDS:
        raise InvalidInputError([Problem(path="kind", message=f"is one of {', '.join(_KINDS)}")])
    described, put, page = _KINDS[kind]
    fields = Form(texts={name.removeprefix(f"{kind}."): text for name, text in form.texts.items()})

    def make() -> str:
        document = parse_form(described, _described(kind, fields))
        put(store, document, by=request.state.identity.name, now=datetime.now(UTC), only_new=True)
        return page.format(quote(document.slug))

    def show(*, problems: Sequence[Problem], status: int) -> Response:
        inside = {(one.path or "").partition("[")[0] for one in problems if "[" in (one.path or "")}
        # A list of invalid entries is said to have none.
        placed = [replace(one, path=f"{kind}.{one.path or 'slug'}") for one in problems if one.path not in inside]
        return _experiments(request, store, form, problems=placed, status=status)

    return follow_form(make, show)


@router.get("/experiments/{slug}")
def show_experiment(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show an experiment: its decision, arms, and the interval over time."""
    found = experiments.load_experiment(store, slug, now=datetime.now(UTC))
    is_withheld = found["state"] == ExperimentState.MISMATCH
    looks = [] if is_withheld else found["looks"]
    chart = draw_intervals(looks, delta=found["delta"], decided_at=found["decided_at"])
    return render(
        request,
        "experiments/experiment.html",
        experiment=found,
        window=span_text(found["window"]),
        calls=_calls(request, f"experiments/{slug}", _sent(found)),
        chart=chart,
        size=(WIDTH, HEIGHT),
    )


@router.post("/experiments/{slug}/stop")
def stop_experiment(store: StoreDep, slug: str) -> Response:
    """Stop an experiment; what was counted stays."""
    experiments.stop_experiment(store, slug, now=datetime.now(UTC))
    return RedirectResponse(f"/experiments/{quote(slug)}", status_code=303)


@router.post("/experiments/{slug}/restart")
def restart_experiment(request: Request, store: StoreDep, slug: str) -> Response:
    """Begin a new epoch of a stopped experiment, as it was."""
    experiments.restart_experiment(store, slug, by=request.state.identity.name, now=datetime.now(UTC))
    return RedirectResponse(f"/experiments/{quote(slug)}", status_code=303)


@router.post("/experiments/{slug}/archive")
def archive_experiment(store: StoreDep, slug: str) -> Response:
    """Archive an experiment and delete its units."""
    experiments.archive_experiment(store, slug, now=datetime.now(UTC))
    return RedirectResponse("/experiments", status_code=303)


@router.post("/promotions/{slug}/delete")
def delete_promotion(request: Request, store: StoreDep, slug: str) -> Response:
    """Delete a promotion with its waivers."""
    promotions.delete_promotion(store, slug, may_waive_harm=has_scope(request, Scope.ADMIN), now=datetime.now(UTC))
    return RedirectResponse("/experiments", status_code=303)


@router.get("/interleavings/{slug}")
def show_interleaving(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show an interleaving: what units prefer, the decision, and the calls that send to it."""
    found = experiments.load_interleaving(store, slug)
    a, b, unit = ["chunk-1", "chunk-2"], ["chunk-2", "chunk-3"], "user-1"
    sent = [
        (
            "Merge both rankings for a user; or do it yourself, see docs/assignment.md",
            "lists",
            {"unit": unit, "a": a, "b": b},
        ),
        (
            "When a hit is clicked, with its team as the merged list has it",
            "clicks",
            [{"event_id": "click-17", "unit": unit, "team": "a"}],
        ),
    ]
    calls = _calls(request, f"interleavings/{slug}", sent)
    return render(request, "experiments/interleaving.html", one=found, calls=calls)


@router.post("/interleavings/{slug}/delete")
def delete_interleaving(store: StoreDep, slug: str) -> Response:
    """Delete an interleaving and its clicks."""
    experiments.delete_interleaving(store, slug)
    return RedirectResponse("/experiments#interleavings", status_code=303)


@router.get("/promotions/{slug}")
def show_promotion(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show where a candidate stands: its gates with their reasons, and forms to waive them."""
    found = promotions.load_promotion(store, slug, now=datetime.now(UTC))
    return render(
        request,
        "experiments/promotion.html",
        promotion=found,
        may_waive_harm=has_scope(request, Scope.ADMIN),
        fewest=FEWEST_LETTERS,
        experiments=[one["slug"] for one in experiments.list_experiments(store, limit=_MOST, now=datetime.now(UTC))],
    )


@router.post("/promotions/{slug}/experiment")
@takes_form(fields=1)
def set_experiment(request: Request, store: StoreDep, slug: str, form: FormInput) -> Response:
    """Let another experiment decide the gate of exposure; that forgets the waivers."""
    found = promotions.load_promotion(store, slug, now=datetime.now(UTC))
    body = {name: found[name] for name in ("slug", "current", "candidate", "guards", "stop_on_critical")}
    document = parse_document(PromotionDocument, {**body, "experiment": form.stripped("experiment") or None})
    caller = request.state.identity
    harm = caller.scope.includes(Scope.ADMIN)
    promotions.put_promotion(store, document, by=caller.name, now=datetime.now(UTC), may_waive_harm=harm)
    return RedirectResponse(f"/promotions/{quote(slug)}", status_code=303)


@router.post("/promotions/{slug}/waive")
@takes_form(fields=2)
def waive_gate(request: Request, store: StoreDep, slug: str, form: FormInput) -> Response:
    """Waive a gate, or withdraw its waiver where no reason is given."""
    if form.get("gate") not in set(GateName):
        raise InvalidInputError([Problem(path="gate", message="is a gate of the promotion")])
    gate = GateName(form.get("gate"))
    reason = form.stripped("reason")
    if reason:
        wish = parse_document(WaiverRequest, {"reason": reason})
        by, harm, now = request.state.identity.name, has_scope(request, Scope.ADMIN), datetime.now(UTC)
        promotions.waive_gate(store, slug, gate, reason=wish.reason, by=by, may_waive_harm=harm, now=now)
    else:
        promotions.withdraw_waiver(store, slug, gate)
    return RedirectResponse(f"/promotions/{quote(slug)}", status_code=303)


class Calls(Value):
    """Calls that send what users do, to be copied: as commands, and as Python."""

    curl: str
    python: str


def _sent(found: ExperimentDetail) -> list[tuple[str, str, object]]:
    """Return what is sent of an experiment: when, below which address, and an example of it with its own names."""
    arm = found["arms"][1]["name"]
    within = span_text(found["window"])
    return [
        ("When a user is served, with the arm that your flags chose", "exposures", [{"unit": "user-1", "arm": arm}]),
        (
            f"Within {within}, when you know whether it went well (1) or not (0); none is a 0",
            "outcomes",
            [{"event_id": "thumb-17", "unit": "user-1", "value": 1}],
        ),
    ]


def _calls(request: Request, path: str, sent: Sequence[tuple[str, str, object]]) -> Calls:
    """Return the calls that send this below a path of the API."""
    service = f"{request.app.state.links.public_url.rstrip('/')}/v1/{path}"
    # Names are anyone's text: quoted so that neither a shell nor Python takes them for more.
    texts = [(when, below, json.dumps(example).replace("'", "\\u0027")) for when, below, example in sent]
    curl = [
        f"# {when}.\ncurl -sS --fail-with-body {shlex.quote(f'{service}/{below}')} \\\n"
        f"""  -H "Authorization: Bearer $COALMINE_API_KEY" -H 'content-type: application/json' \\\n  -d '{text}'"""
        for when, below, text in texts
    ]
    python = [f'# {when}.\npost("{below}", {text})' for when, below, text in texts]
    begin = _PYTHON.replace("SERVICE", json.dumps(service))
    return Calls(curl="\n".join(curl), python="\n".join([begin, *python]))


_PYTHON: Final = """\
import json
import os
from urllib.request import Request, urlopen

service = SERVICE
headers = {"authorization": f"Bearer {os.environ['COALMINE_API_KEY']}", "content-type": "application/json"}


def post(path, body):
    with urlopen(Request(f"{service}/{path}", json.dumps(body).encode(), headers), timeout=10) as answer:
        return json.load(answer)

"""
"""Begin of the calls in Python, with its standard library alone."""


def _described(kind: str, form: Form) -> dict[str, Any]:
    """Return the document that the form of a new one describes."""
    own = {"promotion": ("current", "candidate"), "experiment": ("window",), "interleaving": ("a", "b")}
    names = {name: form.stripped(name) for name in ("slug", *own.get(kind, ()))}
    if kind == "promotion":
        return {**names, "experiment": form.stripped("experiment") or None, "guards": _guards(form)}
    if kind == "shadow":
        return shadow_document(names["slug"], form)
    most = {"max_units": parse_number(form.get("max_units"))}
    if kind == "interleaving":
        return {**names, **most}
    share = parse_number(form.get("arms[1].share"))
    shares = (round(1 - share, 9) if isinstance(share, int | float) else share, share)
    arms = [{"name": form.stripped(f"arms[{place}].name"), "share": one} for place, one in enumerate(shares)]
    return {**names, **most, "arms": arms, "delta": parse_number(form.get("delta"))}


_DIFFERENCES: Final = (0.1, 0.05, 0.02)
_QUESTIONS: Final = (
    (
        "How different are the answers, before any user sees them?",
        "shadow",
        "a candidate is asked what users ask; nobody sees its answers, people may compare them.",
    ),
    (
        "Do users get better answers?",
        "experiment",
        "an A/B test: some users get the candidate, and one outcome is counted. It takes thousands of users.",
    ),
    (
        "There are few users: which ranking do they click?",
        "interleaving",
        "both rankings are merged into one list, and clicks tell. It compares rankings alone, not answers.",
    ),
    (
        "May it go to everybody?",
        "promotion",
        "reads the others: a candidate passes offline, judge and users, or you waive a gate with a reason.",
    ),
)
"""What people ask, the kind that answers it, and what that does."""
_POWER: Final = {
    "begun": f"{_UNITS:,} show a difference of {_DELTA:g} at a share of {percent_text(_SHARE)}",
    "probability": USUAL_POWER,
    "rate": USUAL_RATE,
    "differences": [bound_text(one) for one in _DIFFERENCES],
    "shares": [
        (percent_text(share), [units_needed(one, rate=USUAL_RATE, share=share) for one in _DIFFERENCES])
        for share in (0.5, 0.2, 0.1, 0.05, 0.01)
    ],
}
"""Units that an experiment needs, by the share of its candidate."""


def _guards(form: Form) -> list[dict[str, Any]]:
    """Return the guard rails that the form of a new promotion describes: it has a field for one of each kind."""
    lost, other = form.stripped("faithfulness"), form.stripped("other")
    judged = [{"measure": "faithfulness", "allowed_loss": parse_number(lost)}] if lost else []
    return judged + ([{"experiment": other, "allowed_loss": parse_number(form.get("other_loss"))}] if other else [])


def _experiments(
    request: Request, store: Store, form: Form, *, problems: Sequence[Problem] = (), status: int = 200
) -> HTMLResponse:
    now = datetime.now(UTC)
    found = experiments.list_experiments(store, limit=_MOST, now=now)
    wrong, others = place_problems(problems, {*_NEW.texts, *form.texts})
    return render(
        request,
        "experiments/experiments.html",
        status=status,
        promotions=promotions.list_promotions(store, limit=_MOST, now=now),
        experiments=found,
        shadows=shadows.list_shadows(store, limit=_MOST),
        interleavings=experiments.list_interleavings(store, limit=_MOST),
        kind=form.get("kind"),
        kinds=_QUESTIONS,
        typed=Form(texts={**_NEW.texts, **form.texts}),
        wrong=wrong,
        problems=others,
        checks=choices(store, "check"),
        retrievers=choices(store, "retriever"),
        named=[(one["slug"], one["slug"]) for one in found],
        power=_POWER,
    )


_SHOWN_PAIRS = 10
_NEW_TASK = {"count": "50", "overlap": "0.2"}


@router.get("/shadows/{slug}")
def show_shadow(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show a shadow: its overlap over time, failures and latencies, and what people prefer."""
    return _shadow(request, store, slug)


@router.post("/shadows/{slug}")
@takes_form(fields=4)
def change_shadow(request: Request, store: StoreDep, slug: str, form: FormInput) -> Response:
    """Define a shadow, or change the share that is asked and the pairs that are kept."""

    def define() -> str:
        document = parse_form(ShadowDocument, shadow_document(slug, form))
        shadows.put_shadow(store, document, by=request.state.identity.name, now=datetime.now(UTC))
        return f"/shadows/{quote(slug)}"

    return follow_form(define, partial(_shadow, request, store, slug, form))


@router.post("/shadows/{slug}/tasks")
@takes_form(fields=4)
def draw_pairs(request: Request, store: StoreDep, slug: str, form: FormInput) -> Response:
    """Create a task of the most different pairs, and have them drawn."""
    described = {
        "slug": form.stripped("task"),
        "suite": form.stripped("suite"),
        "pairs": {"shadow": slug, "count": parse_number(form.get("count"))},
        "overlap": parse_number(form.get("overlap")),
    }
    return follow_form(lambda: open_task(request, store, described), partial(_shadow, request, store, slug, form))


@router.post("/shadows/{slug}/delete")
def delete_shadow(store: StoreDep, slug: str) -> Response:
    """Delete a shadow and what is kept of queries."""
    shadows.delete_shadow(store, slug)
    return RedirectResponse("/experiments", status_code=303)


def choices(store: Store, kind: str) -> list[tuple[str, str]]:
    """Return the definitions of a kind, to be chosen from by name."""
    return [(row.slug, row.slug) for row in references.load_definitions(store, kind)]


def shadow_document(slug: str, form: Form) -> dict[str, Any]:
    """Return the document that the form of a shadow describes."""
    numbers = {name: parse_number(form.get(name)) for name in ("share", "k", "keep")}
    return {"slug": slug, "candidate": form.stripped("candidate") or None, **numbers}


def _shadow(
    request: Request,
    store: Store,
    slug: str,
    form: Form | None = None,
    *,
    problems: Sequence[Problem] = (),
    status: int = 200,
) -> HTMLResponse:
    shadow = shadows.load_shadow(store, slug)
    may_write = has_scope(request, Scope.WRITE)  # queries of users are personal data
    stored = {
        name: "" if (value := shadow.get(name)) is None else str(value) for name in ("candidate", "share", "k", "keep")
    }
    return render(
        request,
        "experiments/shadow.html",
        status=status,
        shadow=shadow,
        pairs=shadows.list_pairs(store, slug, limit=_SHOWN_PAIRS) if shadow["kept"] and may_write else (),
        chart=draw_overlap(shadow["hours"]),
        size=(WIDTH, HEIGHT),
        typed=Form(texts={**_NEW_TASK, "task": f"{slug}-pairs"[:64], **stored, **({} if form is None else form.texts)}),
        problems=problems,
        wrong=problems_by_field(problems),
        suites=choices(store, "suite"),
        retrievers=choices(store, "retriever"),
        calls=_calls(request, f"shadows/{slug}", [_pairs(shadow)]),
    )


def _pairs(shadow: ShadowDetail) -> tuple[str, str, object]:
    """Return what is sent of a shadow, as `_sent` does."""
    pair: dict[str, object] = {"query": "How do I pay?", "a": ["chunk-1", "chunk-2"], "a_seconds": 0.12}
    if shadow["candidate"]:
        return "When users were answered: what they got, best first", "pairs", [pair]
    return "When users were answered: what they got, and what the candidate gives", "pairs", [pair | {"b": ["chunk-2"]}]


WIDTH: Final = 640
HEIGHT: Final = 220
_MARGIN: Final = 1.15
"""How much higher the field is than what it has to show."""
_WIDEST: Final = 3.0
"""The first intervals may be wider than the last one by so much; what is beyond is cut off."""
_FEWEST: Final = 2
"""Looks, or hours, that make a line."""


class IntervalChart(Value):
    """The drawing in its own units, with the same in words for those who do not see it."""

    band: str
    """Points of the polygon between the ends of the intervals."""
    middle: str
    """Points of the line of the difference."""
    zero: float
    delta: tuple[float, float]
    """Heights of delta above and below zero."""
    decided: float | None
    """Where the experiment ended; None = it runs."""
    top: str
    """The difference at the top and, below zero, at the bottom."""
    bottom: str
    first: str
    """Times of the first and the last look."""
    last: str
    units: tuple[int, int]
    """Final outcomes at both."""
    label: str


def draw_intervals(looks: Sequence[ExperimentLook], *, delta: float, decided_at: str | None) -> IntervalChart | None:
    """Draw the looks that have an interval; None where there are fewer than two."""
    drawn = [one for one in looks if one["difference"] is not None]
    known = [(one["at"], found) for one in drawn if (found := one["difference"]) is not None]
    if len(known) < _FEWEST:
        return None
    moments = [datetime.fromisoformat(at).timestamp() for at, _ in known]
    intervals = [found for _, found in known]
    # All of the last interval, and of earlier ones what is not far off.
    last = max(abs(intervals[-1].low), abs(intervals[-1].high), delta)
    furthest = max(max(abs(one.low), abs(one.high)) for one in intervals)
    reach = max(min(furthest, _WIDEST * last), last) * _MARGIN
    begin, end = moments[0], moments[-1]

    def across(moment: float) -> float:
        return round(WIDTH * min(max((moment - begin) / (end - begin), 0.0), 1.0), 1)

    def upwards(value: float) -> float:
        return round(HEIGHT / 2 * (1 - min(max(value / reach, -1.0), 1.0)), 1)

    places = [across(moment) for moment in moments]
    upper = [f"{x},{upwards(one.high)}" for x, one in zip(places, intervals, strict=True)]
    lower = [f"{x},{upwards(one.low)}" for x, one in zip(places, intervals, strict=True)]
    newest = intervals[-1]
    return IntervalChart(
        band=" ".join([*upper, *reversed(lower)]),
        middle=" ".join(f"{x},{upwards(one.value)}" for x, one in zip(places, intervals, strict=True)),
        zero=upwards(0.0),
        delta=(upwards(delta), upwards(-delta)),
        decided=None if decided_at is None else across(datetime.fromisoformat(decided_at).timestamp()),
        top=change_text(reach),
        bottom=change_text(-reach),
        first=known[0][0],
        last=known[-1][0],
        units=(drawn[0]["units"], drawn[-1]["units"]),
        label=(
            f"Difference over {len(known)} looks; at the last one {change_text(newest.value)}, 95 % interval "
            f"{change_text(newest.low)} to {change_text(newest.high)}"
        ),
    )


class OverlapChart(Value):
    """The drawing in its own units, with the same in words for those who do not see it."""

    line: str
    """Points of the line."""
    first: str
    """Times of the first and the last hour."""
    last: str
    label: str


def draw_overlap(hours: Sequence[ShadowHour]) -> OverlapChart | None:
    """Draw the hours in which the candidate answered; None where there are fewer than two."""
    known = [(one["at"], overlap) for one in hours if (overlap := one["rbo"]) is not None]
    if len(known) < _FEWEST:
        return None
    moments = [datetime.fromisoformat(at).timestamp() for at, _ in known]
    begin, span = moments[0], moments[-1] - moments[0]
    points = [
        f"{WIDTH * (moment - begin) / span:.1f},{HEIGHT * (1 - overlap):.1f}"
        for moment, (_, overlap) in zip(moments, known, strict=True)
    ]
    overlaps = [overlap for _, overlap in known]
    label = (
        f"Rank-biased overlap over {len(known)} hours: {min(overlaps):.3f} to {max(overlaps):.3f}, "
        f"in the last one {overlaps[-1]:.3f}"
    )
    return OverlapChart(line=" ".join(points), first=known[0][0], last=known[-1][0], label=label)
