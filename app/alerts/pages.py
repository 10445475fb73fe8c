"""Pages of alerts: the list with its filters, and one alert with its runs, timeline, notifications and next steps.

The curve of latencies stands at the end; the words of alerts, rules and deliveries are in `wording`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.alerts.domain.state import OPEN
from app.alerts.service import alert_lists, explanations, notifications
from app.alerts.service.alert_lists import AlertDetail
from app.alerts.service.explanations import LatencyCurve, RunLatency
from app.alerts.store import AlertFilter
from app.alerts.wording import ALERT_STATES, DELIVERY_STATES, RULE_KINDS
from app.answers.service import answering
from app.base.api.bodies import AcknowledgeRequest
from app.base.api.requests import StoreDep, takes_form, wake
from app.base.db.engine import Store, to_us
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError
from app.base.texts import LATENCY_NAMES, seconds_text
from app.base.values import RuleKind, Severity
from app.base.views import id_number
from app.base.web.forms import choice_problem, problems_by_field, read_form
from app.base.web.rendering import render
from app.catalog.service import references

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

STATES = ("open", "firing", "recovering", "pending", "resolved")
"""States the list can be filtered by; an open alert fires or recovers."""
WITHIN = {
    "": ("any time", None),
    "1h": ("the last hour", timedelta(hours=1)),
    "24h": ("the last day", timedelta(days=1)),
    "7d": ("the last week", timedelta(days=7)),
    "30d": ("the last month", timedelta(days=30)),
}
_ALERTS = 20
_SILENCE_SLUG = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertListQuery:
    """Filters of the list from the query string; an empty text is no filter."""

    state: str = ""
    severity: str = ""
    kind: str = ""
    check: Annotated[str, Query(max_length=64)] = ""
    within: str = ""
    unacknowledged: str = ""
    incident_id: Annotated[str, Query(max_length=20, pattern="^[0-9]*$")] = ""

    def __post_init__(self) -> None:
        choices = {"state": STATES, "severity": tuple(Severity), "kind": tuple(RuleKind), "within": tuple(WITHIN)}
        chosen = [(name, allowed, getattr(self, name)) for name, allowed in choices.items()]
        wrong = [choice_problem(allowed, name) for name, allowed, value in chosen if value and value not in allowed]
        if wrong:
            raise InvalidInputError(wrong)

    def href(self, **changed: Any) -> str:
        """Query string of the same list with something changed."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__} | changed
        return urlencode({name: value for name, value in values.items() if value})

    @property
    def any(self) -> bool:
        """Whether a filter is set."""
        return bool(self.href())


@router.get("/alerts")
def show_alerts(
    request: Request,
    store: StoreDep,
    query: Annotated[AlertListQuery, Depends()],
    after: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> HTMLResponse:
    """Show alerts, newest first, with summaries and delivery counts."""
    counts = alert_lists.count_unresolved(store, check=query.check or None)
    lines = alert_lists.lines(store, _alert_filter(query), check=query.check or None, before=after, limit=_ALERTS + 1)
    return render(
        request,
        "alerts/alerts.html",
        groups=alert_lists.by_incident(store, lines[:_ALERTS]),
        following=lines[_ALERTS - 1].alert["id"] if len(lines) > _ALERTS else None,
        query=query,
        counts={**counts, "open": sum(counts.get(state, 0) for state in OPEN)},
        states=STATES,
        severities=list(Severity),
        kinds=RULE_KINDS,
        within=WITHIN,
        checks=[check.slug for check in references.load_definitions(store, "check")],
        meanings=ALERT_STATES,
        first=after is None,
    )


@router.get("/alerts/{alert_id}")
def show_alert(request: Request, store: StoreDep, alert_id: str) -> HTMLResponse:
    """Show an alert with its runs, timeline, notifications and next steps."""
    return alert_page(request, store, alert_id)


@router.post("/alerts/{alert_id}/acknowledge")
@takes_form(fields=4)
async def acknowledge(request: Request, store: StoreDep, alert_id: str) -> Response:
    """Acknowledge an alert, with a note."""
    note = (await read_form(request)).get("note")
    return await anyio.to_thread.run_sync(partial(_acknowledged, request, store, alert_id, note))


def _acknowledged(request: Request, store: Store, alert_id: str, note: str) -> Response:
    number = id_number(alert_id, "alert")
    again = partial(alert_page, request, store, alert_id, note=note)
    try:
        body = parse_document(AcknowledgeRequest, {"note": note.strip() or None})
        notifications.acknowledge(store, number, by=request.state.identity.name, note=body.note, now=datetime.now(UTC))
    except InvalidInputError as error:
        return again(problems=problems_by_field(error.problems), status=422)
    except ConflictError as error:
        return again(refused=str(error), status=409)
    wake(request)
    return RedirectResponse(f"/alerts/{number}", status_code=303)


def alert_page(
    request: Request,
    store: Store,
    alert_id: str,
    *,
    refused: str = "",
    note: str = "",
    problems: Mapping[str, list[str]] | None = None,
    status: int = 200,
) -> HTMLResponse:
    """Answer with the page of an alert; `refused`: why what was asked for on it was not done."""
    details = explanations.details(
        store, id_number(alert_id, "alert"), links=request.app.state.links, now=datetime.now(UTC)
    )
    return render(
        request,
        "alerts/alert.html",
        status=status,
        details=details,
        latency=None if details["latency"] is None else draw_latency(details["latency"]),
        latency_size=(WIDTH, HEIGHT),
        alert=details["alert"],
        confirmed=answering.confirmed_of_check(store, details["alert"]["check"]),
        is_open=details["alert"]["state"] in OPEN,
        left_open=_left_open(details),
        silence=_silence_form(details["alert"]),
        meanings=ALERT_STATES,
        delivery_meanings=DELIVERY_STATES,
        refused=refused,
        note=note,
        problems=problems or {},
    )


def _left_open(details: Mapping[str, Any]) -> int:
    """Count the canaries that degraded now without a cause, those included that the page does not list."""
    listed = sum(one.get("cause") is None for one in details["degraded"]["canaries"])
    fleet = details["fleet"]
    told = 0 if fleet is None else fleet["fallen"] - sum(fleet["causes"].values())
    return max(listed, told) if details["degraded"]["now"] else 0


def _silence_form(alert: AlertDetail) -> str:
    """Address of the form of a silence for exactly this alert's rule."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in alert["rule"].lower())
    slug = f"{alert['check']}-{plain}"[:_SILENCE_SLUG]
    return "/new-silence?" + urlencode({"slug": slug, "checks": alert["check"], "rules": alert["rule"], "for": "4h"})


def _alert_filter(query: AlertListQuery) -> AlertFilter:
    span = WITHIN[query.within][1]
    states = tuple(OPEN) if query.state == "open" else (query.state,) if query.state else ()
    return AlertFilter(
        states=states,
        severity=query.severity or None,
        kind=query.kind or None,
        unacknowledged=bool(query.unacknowledged),
        incident_id=id_number(query.incident_id, "incident") if query.incident_id else None,
        since=to_us(datetime.now(UTC) - span) if span is not None else None,
    )


WIDTH: Final = 640
HEIGHT: Final = 220
_MARGIN: Final = 1.1
"""How much higher the field is than what it has to show."""
_FEWEST: Final = 2
"""Measured runs that make a curve."""
_DOT: Final = 0.1
"""Width of a run between two that were not measured."""


def draw_latency(curve: LatencyCurve) -> dict[str, Any] | None:
    """Draw the runs of a curve in the units of the field, with a label for those who do not see it.

    `lines` are the points of the parts of the curve: it is broken where a run was not measured or runs are left out.
    `began` is where the first bad run is. None where fewer than two runs were measured.
    """
    measured = [one.seconds for one in curve.runs if one.seconds is not None]
    moments = [datetime.fromisoformat(one.at).timestamp() for one in curve.runs]
    if len(measured) < _FEWEST or moments[-1] <= moments[0]:
        return None
    known = [(str(severity), seconds) for severity, seconds in curve.bounds]
    known += [("baseline", curve.baseline)] if curve.baseline is not None else []
    reach = _MARGIN * max(*measured, *(seconds for _, seconds in known)) or 1.0
    places = [round(WIDTH * (moment - moments[0]) / (moments[-1] - moments[0]), 1) for moment in moments]

    def upwards(seconds: float) -> float:
        return round(HEIGHT * (1 - seconds / reach), 1)

    points = [
        None if one.seconds is None else (place, upwards(one.seconds))
        for place, one in zip(places, curve.runs, strict=True)
    ]
    began = [place for place, one in zip(places, curve.runs, strict=True) if one.run_id == curve.first_run]
    name = LATENCY_NAMES[curve.percentile]
    told = ", ".join(f"{word} {seconds_text(seconds)}" for word, seconds in known)
    label = (
        f"{name.capitalize()} of {len(measured)} runs: {seconds_text(min(measured))} to {seconds_text(max(measured))}, "
        f"in the last one {seconds_text(measured[-1])}{f'; {told}' if told else ''}"
    )
    return {
        "lines": _parts(points, curve.runs),
        "levels": [{"name": word, "seconds": seconds, "height": upwards(seconds)} for word, seconds in known],
        "began": began[0] if began else None,
        "top": seconds_text(reach),
        "first": curve.runs[0].at,
        "last": curve.runs[-1].at,
        "label": label,
    }


def _parts(points: Sequence[tuple[float, float] | None], runs: Sequence[RunLatency]) -> list[str]:
    parts: list[list[tuple[float, float]]] = [[]]
    for point, run in zip(points, runs, strict=True):
        if point is None or run.after_others:
            parts.append([])
        if point is not None:
            parts[-1].append(point)
    # One point is no line: it is drawn as a short one.
    dots = [part if len(part) > 1 else [*part, (part[0][0] + _DOT, part[0][1])] for part in parts if part]
    return [" ".join(f"{x:g},{y:g}" for x, y in part) for part in dots]
