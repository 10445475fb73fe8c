"""Pages of alerts: the list with its filters, and one alert with its runs, timeline, notifications and next steps.

The curve of latencies and the words of alerts and rules, which other pages use too, stand at the end.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.alerts.domain.advice import leads_to_retriever
from app.alerts.domain.conditions import SlowerLimits
from app.alerts.domain.rules import (
    FAILED_SHARE,
    REPEATED,
)
from app.alerts.domain.state import OPEN, Retirement
from app.alerts.domain.summaries import CAUSE_WORDS, answer_change_text
from app.alerts.domain.views import BoundSides, ChangedCanary, RuleEvidence, TransitionView, lost_text
from app.alerts.service import explanations, notifications, shown_alerts
from app.alerts.service.explanations import LatencyCurve, RunLatency
from app.alerts.service.shown_alerts import AlertDetail, AlertLine
from app.alerts.store import AlertFilter, IncidentRow
from app.base.api.bodies import AcknowledgeRequest
from app.base.api.requests import StoreDep, page_router, takes_form, wake
from app.base.db.engine import Store, from_us, to_us
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError
from app.base.texts import LATENCY_NAMES, beside_text, counted, outcome_word, rate_text, seconds_text
from app.base.values import (
    JUDGED,
    Cause,
    Reason,
    RuleKind,
    Severity,
    Value,
)
from app.base.views import id_number
from app.base.web.forms import Form, choice_problem, problems_by_field, read_form, safe_path
from app.base.web.pages import ABSENT, capitalize_first, evidence, render, score, seconds, spoken
from app.catalog.service import references
from app.hooks.domain import DELIVERY_STATES
from app.index_facts.domain import number_text

router = page_router()

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


class AlertListQuery(Value):
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
        values = {name: getattr(self, name) for name in self.__struct_fields__} | changed
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
    counts = shown_alerts.count_unresolved(store, check=query.check or None)
    lines = shown_alerts.lines(store, _alert_filter(query), check=query.check or None, before=after, limit=_ALERTS + 1)
    groups = shown_alerts.by_incident(store, lines[:_ALERTS])
    return render(
        request,
        "alerts/alerts.html",
        groups=groups,
        timeline=draw_timeline(groups, datetime.now(UTC)),
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


class IncidentBar(Value):
    """An incident on the timeline; place and length in percent of its width."""

    id: int
    severity: str
    title: str
    begin: float
    length: float


class Timeline(Value):
    """The incidents of a list by check, from the first beginning until now."""

    begins: datetime
    ends: datetime
    checks: Mapping[str, Sequence[IncidentBar]]


_LEAST_BAR: Final = 0.6


def draw_timeline(groups: Sequence[tuple[IncidentRow | None, Sequence[AlertLine]]], now: datetime) -> Timeline | None:
    """Lay out the incidents of a list over time, the check with the newest one first; None = fewer than two."""
    found = [(incident, lines) for incident, lines in groups if incident is not None]
    if len(found) < 2:  # noqa: PLR2004 - one alone is told by its card
        return None
    first, last = min(incident.opened_at for incident, _ in found), to_us(now)
    whole = max(1, last - first)
    checks: dict[str, list[IncidentBar]] = {}
    for incident, lines in found:
        line = lines[0]
        begin = min(100 * (incident.opened_at - first) / whole, 100 - _LEAST_BAR)
        lasted = (incident.resolved_at or last) - incident.opened_at
        bar = IncidentBar(
            id=incident.id,
            severity=gravest(incident.severity, lines),
            title=line.title,
            begin=round(begin, 2),
            length=round(min(100 - begin, max(_LEAST_BAR, 100 * lasted / whole)), 2),
        )
        checks.setdefault(line.alert["check"], []).append(bar)
    return Timeline(begins=from_us(first), ends=now, checks=checks)


@router.get("/alerts/{alert_id}")
def show_alert(request: Request, store: StoreDep, alert_id: str) -> HTMLResponse:
    """Show an alert with its runs, timeline, notifications and next steps."""
    return alert_page(request, store, alert_id)


@router.get("/incidents/{incident_id}")
def show_incident(request: Request, store: StoreDep, incident_id: str) -> HTMLResponse:
    """Show an incident: what broke, since when, which questions, what was done, and what to do."""
    found = explanations.incident_details(
        store, id_number(incident_id, "incident"), links=request.app.state.links, now=datetime.now(UTC)
    )
    incident, rules = found["incident"], [one.alert["rule"] for one in found["members"]]
    return render(
        request,
        "alerts/incident.html",
        **found,
        **_words(found["details"]),
        rules=rules,
        silence_slug=_slug_of("incident", incident["id"], incident["check"]),
    )


@router.post("/alerts/{alert_id}/acknowledge")
@takes_form(fields=4)
async def acknowledge(request: Request, store: StoreDep, alert_id: str) -> Response:
    """Acknowledge an alert and its incident, with a note."""
    return await anyio.to_thread.run_sync(partial(_acknowledged, request, store, alert_id, await read_form(request)))


def _acknowledged(request: Request, store: Store, alert_id: str, form: Form) -> Response:
    note = form.get("note")
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
    return RedirectResponse(safe_path(form.get("next") or f"/alerts/{number}"), status_code=303)


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
        **_words(details),
        refused=refused,
        note=note,
        problems=problems or {},
    )


def _words(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the pages of an alert and of an incident show alike."""
    alert, latency = details["alert"], details["latency"]
    return {
        "alert": alert,
        "latency": None if latency is None else draw_latency(latency),
        "latency_size": (WIDTH, HEIGHT),
        "confirmed": _confirmed(alert["evidence"]),
        "is_open": alert["state"] in OPEN,
        "left_open": _left_open(details),
        "silence": _silence_form(alert),
        "meanings": ALERT_STATES,
        "delivery_meanings": DELIVERY_STATES,
    }


def _confirmed(rule: RuleEvidence) -> Collection[str]:
    """Measures of judges that a page of an alert does not mark: that of its rule if people confirmed who said it."""
    return () if rule.get("uncalibrated") else JUDGED


def _left_open(details: Mapping[str, Any]) -> int:
    """Count the canaries that degraded now without a cause, those included that the page does not list."""
    listed = sum(one.get("cause") is None and not is_leak(one) for one in details["degraded"]["canaries"])
    fleet = details["fleet"]
    told = 0 if fleet is None else fleet["fallen"] - sum(fleet["causes"].values())
    return max(listed, told) if details["degraded"]["now"] else 0


def _silence_form(alert: AlertDetail) -> str:
    """Address of the form of a silence for exactly this alert's rule."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in alert["rule"].lower())
    slug = _slug_of(alert["check"], plain)
    return "/new-silence?" + urlencode({"slug": slug, "checks": alert["check"], "rules": alert["rule"], "for": "4h"})


def _slug_of(*parts: str) -> str:
    return "-".join(parts)[:_SILENCE_SLUG]


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


def bound(sides: BoundSides | None) -> str:
    """Format the bound of a rule: below 0.9."""
    found = sides or BoundSides()
    return " or ".join(f"{side} {found[side]:g}" for side in ("below", "above", "by") if side in found) or ABSENT


ALERT_STATES: Final[Mapping[str, str]] = {
    "pending": "some runs are bad, not enough to open it",
    "firing": "open: enough runs are bad",
    "recovering": "open, and the newest runs are good",
    "resolved": "over",
}

RULE_KINDS: Final[Mapping[str, str]] = {
    "threshold": "a measure crossed a bound",
    "drop": "a measure fell below its baseline",
    "regression": "the detector found a regression",
    "canary": "one canary is degraded",
    "latency": "answers take too long",
    "probe_errors": "probes fail",
    "no_data": "no run completes",
    "embedding": "the embedder answers as another one",
    "guard": "coverage collapsed before there was a baseline",
    "slower": "answers take much longer than in the baseline",
    "plant": "planted documents are not found, or not gone",
    "index": "the index holds less, or finds less, than usual",
}

_SUPPRESSED: Final = {
    "silenced": "Not sent: suppressed by a silence. What still fires at its end is notified then.",
    "incident_open": "Part of an incident that was already reported.",
    "recent_update": "Not sent yet: the incident was updated within the hour; the next message carries it.",
    "critical_firing": "Not sent: a critical alert of this check was open, and one fault makes one page.",
}

_HAPPENED: Final = {
    "opened": "Opened",
    "escalated": "Got worse",
    "updated": "Further canaries named",
    "acknowledged": "Acknowledged",
    "reminded": "Reminded",
    "resolved": "Resolved",
}

_TIMES: Final = {"latency": seconds, "slower": seconds, "regression": evidence, "index": number_text}

_LIMITS: Final[Mapping[str, str]] = {
    "plant": "No run is judged by it: planted documents are.",
    "canary": "A run is bad when this canary is degraded in it.",
    "index": (
        "A run is bad when the index holds so much less than usual, or returns so much less of what exact search "
        "finds, or is outside its bounds."
    ),
    "embedding": "A run is bad when the reference texts get other vectors than before.",
    "guard": (
        "A run is bad when its coverage is 0 or below half (critical), or below 80 % (warning), of the first run's "
        "or the accepted one's."
    ),
    "leak": (
        "A run is bad when a canary got a chunk that it forbids, and good when none did and every canary that forbids "
        "chunks was measured."
    ),
}
"""When a run is bad by a rule without bounds of its own."""

_RETIRED: Final = tuple(f"{word}: " for word in Retirement)


def transition_word(transition: str) -> str:
    """Word for a transition in a timeline."""
    return _HAPPENED.get(transition, spoken(transition))


def suppressed(transition: TransitionView) -> str:
    """Why a transition was not sent, or was sent late; empty for any other."""
    if transition["suppressed"] is not None:
        return _SUPPRESSED.get(transition["suppressed"], f"Not sent: {spoken(transition['suppressed'])}.")
    return "Suppressed by a silence; sent at its end." if transition["silence"] else ""


def alert_reason(reason: str) -> str:
    """Reason of an alert as a sentence, without the `Retirement` word it may begin with."""
    word = next((word for word in _RETIRED if reason.startswith(word)), "")
    return capitalize_first(reason.removeprefix(word))


def gravest(told: str, lines: Sequence[AlertLine]) -> str:
    """Return how grave an incident is: as was told of it, or as an alert of it is by now, which a silence may hide."""
    now = {line.alert["severity"] for line in lines if line.alert["state"] in OPEN}
    return Severity.CRITICAL if Severity.CRITICAL in now else told


def observed_part(reason: str) -> str:
    """First part of the reason of an alert: the observation, without its effect on the alert."""
    observed, _, _ = alert_reason(reason).rpartition("; ")
    return observed or alert_reason(reason).rstrip(".")


def by_cause(
    canaries: Sequence[ChangedCanary], causes: Mapping[str, int] | None = None, changed: int = 0
) -> list[dict[str, Any]]:
    """Group canaries by their cause, in the order of first appearance; `detail` is the reason, where all share it.

    `canaries` are the listed ones of those that `changed`; `causes`: how many of all these have each cause, as far as
    that is known. A title counts all, and says how many of them are listed.
    """
    groups: dict[Cause | None, list[ChangedCanary]] = {}
    leaked = [canary for canary in canaries if is_leak(canary)]
    for canary in canaries:
        if not is_leak(canary):
            groups.setdefault(canary.get("cause"), []).append(canary)
    known = causes or {}
    totals: dict[Cause | None, int] = {cause: known.get(cause, 0) for cause in Cause}
    totals[None] = changed - sum(known.values()) if known else 0
    is_cut = changed > len(canaries)

    def title(cause: Cause | None, listed: int) -> str:
        words = CAUSE_WORDS[Cause(cause)].counted if cause else "not diagnosed"
        if is_cut and totals[cause] > listed:
            return f"{totals[cause]:,} {words}, {listed} of them listed"
        return f"{listed} listed: {words}" if is_cut and not known else f"{listed} {words}"

    told = [{"title": f"{len(leaked):,} got a forbidden chunk", "detail": None, "canaries": leaked}] if leaked else []
    return told + [
        {
            "title": title(cause, len(group)),
            "detail": group[0].get("cause_reason") if len({one.get("cause_reason") for one in group}) == 1 else None,
            "canaries": group,
        }
        for cause, group in groups.items()
    ]


def is_leak(canary: ChangedCanary) -> bool:
    """Whether a canary is degraded by nothing but a chunk that it forbids, which no diagnosis has to explain."""
    return list(canary.get("reasons") or ()) == [Reason.FORBIDDEN]


def value(number: float | None, kind: str) -> str:
    """Value of a rule in its unit: a share, seconds, or the evidence of the detector."""
    if number is None:
        return ABSENT
    written = _TIMES.get(kind)
    return written(number) if written is not None else score(number)


def limits(rule: RuleEvidence, kind: str, confirmed: Collection[str] = ()) -> str:
    """When a run is bad by a rule, in a sentence; `rule` is the evidence of an alert, `confirmed` as for `spoken`."""
    if kind in _LIMITS:
        return _LIMITS[kind]
    if kind == "probe_errors":
        share = rule.get("failed_share")
        share = FAILED_SHARE if share is None else share
        return (
            f"A run is bad when it is unknown (critical). It is bad (warning) when more than {100 * share:g} % of its "
            f"probes failed, or the same canary {REPEATED} times in a row."
        )
    if kind == "slower":
        over = SlowerLimits.of(rule.get("factor"), rule.get("rise")).words("the baseline (99 % quantile of its runs)")
        margin = f" Good again {seconds(rule['margin'])} below that." if rule.get("margin") else ""
        return f"A run is bad when its median latency is above {over}.{margin}"
    name, category = rule.get("measure") or "value", rule.get("category")
    about = f"{spoken(name, confirmed)} of {spoken(category)}" if category else spoken(name, confirmed)
    bounds = {"warning": rule.get("warning"), "critical": rule.get("critical")}
    sides = [f"{word} {_side(side, kind)}" for word, side in bounds.items() if side]
    margin = f", good again beyond a margin of {value(rule['margin'], kind)}" if rule.get("margin") else ""
    labels = f" {_BY_LABELS}" if any(one["corrected"] for one in rule.get("window", ())) else ""
    hint = f" {_AT_MOST_A_WARNING}" if rule.get("uncalibrated") else ""
    return f"{capitalize_first(about)}: {', '.join(sides) or 'no bound'}{margin}.{labels}{hint}"


_BY_LABELS: Final = (
    "The rate is corrected by people's labels. A run is bad where the whole interval, or the judge's own rate too, is "
    "beyond the bound."
)


_AT_MOST_A_WARNING: Final = "A warning at most, also beyond a critical bound, until people's labels confirm the judge."


def _side(side: BoundSides, kind: str) -> str:
    if kind == "latency":
        return f"above {seconds(side['above'])}"
    return f"a drop of {side['by']:g} or more" if "by" in side else bound(side)


def pace(rule: RuleEvidence) -> str:
    """How many runs open and close an alert of a rule."""
    bad, of, close = rule["open"]["bad"], rule["open"]["of"], rule["close"]
    opens = "at once" if of == 1 else f"on {bad} bad of {counted(of, 'run')}"
    return f"It opens {opens} and closes after {counted(close, 'good run')}{' in a row' if close > 1 else ''}."


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "transition_word": transition_word,
    "suppressed": suppressed,
    "alert_reason": alert_reason,
    "gravest": gravest,
    "leads_to_retriever": leads_to_retriever,
    "observed_part": observed_part,
    "rule_value": value,
    "limits": limits,
    "pace": pace,
    "by_cause": by_cause,
    "outcome_word": outcome_word,
    "lost": lost_text,
    "answer_change": answer_change_text,
    "beside_corrected": beside_text,
    "beside_own": rate_text,
}
"""For templates."""
