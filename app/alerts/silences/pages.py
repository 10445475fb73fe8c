"""Pages of silences: the list by state, one silence with its affected checks, and the form with a preview."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.alerts.silences import service as silencing
from app.alerts.silences.documents import SilenceDocument, WindowDocument
from app.alerts.silences.service import Preview, SilenceState
from app.base.api.requests import StoreDep, VaultDep, page_router, takes_form, wake
from app.base.db.engine import Store
from app.base.db.keys import Vault
from app.base.documents.fields import Control, duration_of
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.schedules import load_zone
from app.base.values import Severity, replace
from app.base.web.forms import (
    Form,
    FormField,
    FormInput,
    document_body,
    document_texts,
    form_fields,
    parse_form,
    place_problems,
    read_fields,
    read_revision,
    with_revision,
)
from app.base.web.pages import render
from app.catalog.service import references
from app.catalog.store import FILE, Definition
from app.definitions.pages.suites import file_page
from app.definitions.service import definitions

MOST_FIELDS: Final = 700
_WINDOW: Final = "window."
FIELDS: Final[Mapping[str, FormField]] = {
    path.removeprefix(_WINDOW): replace(one, name=path.removeprefix(_WINDOW))
    for path, one in form_fields(SilenceDocument).items()
}
"""Fields of the document by name; those of its window are on the same level and share the time zone."""
_PLAIN: Final = {name: one for name, one in FIELDS.items() if name in ("reason", "all", "rules")} | {
    name: one for name, one in FIELDS.items() if one.control is Control.CHECKBOXES
}
"""Fields that are read as they are; times are read in the time zone of the form."""
SHOWN: Final = frozenset({*FIELDS, "when", "for"})
"""Names of all fields of the form."""
ONCE, WINDOW = "once", "window"
LENGTHS: Final[Mapping[str, str]] = {
    "30m": "30 minutes",
    "1h": "1 hour",
    "2h": "2 hours",
    "4h": "4 hours",
    "8h": "8 hours",
    "1d": "1 day",
    "3d": "3 days",
    "7d": "1 week",
}
"""Lengths to choose from."""
ZONES: Final = (
    "UTC",
    "Europe/London",
    "Europe/Berlin",
    "America/New_York",
    "America/Chicago",
    "America/Los_Angeles",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Asia/Singapore",
    "Asia/Tokyo",
    "Australia/Sydney",
)
"""Suggested time zones; every zone of the tz database is accepted."""
_LOCAL: Final = "%Y-%m-%dT%H:%M"


def typed(body: Mapping[str, Any]) -> Form:
    """Form of a stored silence, its times in UTC."""
    window = body["window"] or {}
    form = document_texts(FIELDS, {"timezone": "UTC", **body, **window})
    times = {
        name: datetime.fromisoformat(body[name]).astimezone(UTC).strftime(_LOCAL) if body[name] else ""
        for name in ("starts", "ends")
    }
    return replace(form, texts={**form.texts, **times, "when": WINDOW if window else ONCE})


def silence_document(form: Form, slug: str, now: datetime) -> SilenceDocument:
    """Document of a form. Raises InvalidInputError for everything that is wrong, past times among it."""
    values = {"slug": slug, **document_body(_PLAIN, form)}
    problems: list[Problem] = []
    if not any(values.get(name) for name in ("all", "checks", "suites", "retrievers", "rules", "severities")):
        problems.append(Problem(path="all", message="tick what it is about above, or this"))
        values["all"] = True  # stands in for it
    if form.get("when") == WINDOW:
        fields = {name: FIELDS[name] for name in WindowDocument.model_fields}
        problems += [
            Problem(path=f"{_WINDOW}{name}", message="is required")
            for name, one in fields.items()
            if one.is_required and not form.stripped(name)
        ]
        values |= {"window": document_body(fields, form)}
    else:
        starts, ends = _times(form, now, problems)
        values |= {"starts": starts and _whole_seconds(starts), "ends": _whole_seconds(ends)}
    return parse_form(SilenceDocument, values, problems)


def matchers_text(body: Mapping[str, Any]) -> str:
    """Matchers of a silence in words: `checks a, b; rule c`."""
    if body["all"]:
        return "every alert"
    names = ("checks", "suites", "retrievers", "rules", "severities")
    parts = [f"{name[:-1] if len(body[name]) == 1 else name} {', '.join(body[name])}" for name in names if body[name]]
    return "; ".join(one.replace("severitie ", "severity ") for one in parts)


def _times(form: Form, now: datetime, problems: list[Problem]) -> tuple[datetime | None, datetime]:
    """Beginning and end; where they are invalid, a valid time stands in for them and `problems` is added to."""
    zone, later = ZoneInfo("UTC"), now + timedelta(days=1)
    try:
        zone = load_zone(form.stripped("timezone") or "UTC")
    except ValueError as error:
        problems.append(Problem(path="timezone", message=str(error)))
    moments: dict[str, datetime | None] = {}
    for name in ("starts", "ends"):
        try:
            moments[name] = _moment(form, name, zone)
        except InvalidInputError as error:
            problems += error.problems
            moments[name] = later if name == "ends" else None
    starts, ends = moments["starts"], moments["ends"]
    if ends is None:
        length = form.stripped("for")
        if length not in LENGTHS:
            problems.append(Problem(path="ends", message="needs a length or an end"))
            return None, later
        ends = (starts or now) + duration_of(length)
    if ends <= now:
        problems.append(Problem(path="ends", message="is over already"))
        return None, later
    return starts, ends


def _moment(form: Form, name: str, zone: ZoneInfo) -> datetime | None:
    text = form.stripped(name)
    if not text:
        return None
    try:
        local = datetime.strptime(text[:16], _LOCAL).replace(tzinfo=zone)
        moment = local.astimezone(UTC)
    except (ValueError, OverflowError):
        message = "is not a time; write it as 2026-01-31T22:00"
        raise InvalidInputError([Problem(path=name, message=message)]) from None
    if moment.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        message = f"is skipped by the clocks of {zone.key}; choose another"
        raise InvalidInputError([Problem(path=name, message=message)])
    return moment


def _whole_seconds(moment: datetime) -> datetime:
    # Rounded up, as the page shows no fractions.
    return (moment + timedelta(microseconds=999_999)).replace(microsecond=0)


router = page_router()

GROUPS = {"on": "On now", "upcoming": "Upcoming", "recurring": "Recurring windows", "over": "Over"}
"""Titles of the states of silences, in the order shown."""
_FRESH = {"when": ONCE, "for": "2h", "timezone": "UTC", "duration": "2h"}


@router.get("/silences")
def show_silences(request: Request, store: StoreDep) -> HTMLResponse:
    """Show every silence: those that are on first."""
    rows = references.load_definitions(store, silencing.KIND)
    states = silencing.states(store, rows, datetime.now(UTC))
    lines = [_line(row, states[row.id]) for row in rows]
    grouped = {title: [line for line in lines if line["group"] == group] for group, title in GROUPS.items()}
    return render(request, "alerts/silences.html", groups={title: rows for title, rows in grouped.items() if rows})


@router.get("/silences/{slug}")
def show_silence(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show a silence: its state, affected checks and schedule."""
    row, now = references.load_definition(store, silencing.KIND, slug), datetime.now(UTC)
    line = _line(row, silencing.states(store, [row], now)[row.id])
    preview = silencing.preview(store, row.read(SilenceDocument), now)
    return render(request, "alerts/silence.html", line=line, preview=preview)


@router.get("/new-silence")
def show_new(request: Request, store: StoreDep) -> HTMLResponse:
    """Show the form of a new silence, filled from the query string, with a preview."""
    return _form_with_preview(request, store, _form_from_query(request), stored=None)


@router.post("/new-silence")
@takes_form(fields=MOST_FIELDS)
def make_silence(request: Request, store: StoreDep, vault: VaultDep, form: FormInput) -> Response:
    """Create a silence; problems are shown beside the fields."""
    return _saved(request, store, vault, form, stored=None)


@router.get("/silences/{slug}/edit")
def show_edit(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show the form of a stored silence, with the query string's values where given, and a preview."""
    stored = references.load_definition(store, silencing.KIND, slug)
    form = _form_from_query(request) if request.query_params else typed(stored.body)
    if not {"preview", "revision"} & form.texts.keys():  # else the open form keeps the revision it began with
        form = with_revision(form, stored.revision)
    return _form_with_preview(request, store, form, stored=stored)


@router.post("/silences/{slug}/edit")
@takes_form(fields=MOST_FIELDS)
def change_silence(request: Request, store: StoreDep, vault: VaultDep, slug: str, form: FormInput) -> Response:
    """Change a silence."""
    return _saved(request, store, vault, form, stored=references.load_definition(store, silencing.KIND, slug))


@router.post("/silences/{slug}/end")
def end_silence(request: Request, store: StoreDep, slug: str) -> Response:
    """End a silence: alerts that still fire are notified within seconds."""
    definitions.archive(store, silencing.KIND, slug, now=datetime.now(UTC))
    wake(request)
    return RedirectResponse("/silences", status_code=303)


def _saved(request: Request, store: Store, vault: Vault, form: Form, *, stored: Definition | None) -> Response:
    slug = stored.slug if stored is not None else form.stripped("slug")
    again = partial(_form, request, store, form, stored=stored)
    try:
        revision = read_revision(form) if stored is not None else None
        document = silence_document(form, slug, datetime.now(UTC))
        silencing.refuse_unknown_references(store, document)
        definitions.put(store, vault, document, now=datetime.now(UTC), revision=revision, only_new=stored is None)
    except InvalidInputError as error:
        return again(problems=error.problems, status=422)
    except ConflictError as error:
        path = "slug" if stored is None else None
        return again(problems=(Problem(path=path, message=str(error)),), status=409)
    wake(request)
    return RedirectResponse(f"/silences/{quote(slug)}", status_code=303)


def _form_from_query(request: Request) -> Form:
    """Form from the query string."""
    query = read_fields(request.query_params.multi_items())
    fresh = {} if "preview" in query.texts or "when" in query.texts else _FRESH
    return Form(texts={**fresh, **query.texts}, lists=query.lists)


def _form_with_preview(request: Request, store: Store, form: Form, *, stored: Definition | None) -> HTMLResponse:
    """Show the form with a preview; problems are shown only where a preview was requested."""
    slug = stored.slug if stored is not None else form.stripped("slug") or "new"
    try:
        document = silence_document(form, slug, datetime.now(UTC))
    except InvalidInputError as error:
        return _form(request, store, form, stored=stored, problems=error.problems if form.get("preview") else ())
    return _form(request, store, form, stored=stored, preview=silencing.preview(store, document, datetime.now(UTC)))


def _form(
    request: Request,
    store: Store,
    form: Form,
    *,
    stored: Definition | None,
    problems: tuple[Problem, ...] = (),
    preview: Preview | None = None,
    status: int = 200,
) -> HTMLResponse:
    if stored is not None and stored.managed_by == FILE:
        crumbs = {"Silences": "/silences", stored.slug: f"/silences/{quote(stored.slug)}"}
        refused = "; ".join(one.message for one in problems)
        yaml = definitions.write_one(stored)
        return file_page(request, stored, yaml, name=stored.slug, crumbs=crumbs, refused=refused, status=status)
    renamed = [Problem(path=(one.path or "").removeprefix(_WINDOW), message=one.message) for one in problems]
    wrong, others = place_problems(renamed, SHOWN)
    return render(
        request,
        "alerts/silence_form.html",
        status=status,
        stored=stored,
        typed=form,
        wrong=wrong,
        problems=others,
        saving=status != 200,  # noqa: PLR2004 - a preview is no failure
        preview=preview,
        offered=_offered(store, form),
        fields=FIELDS,
        lengths=LENGTHS,
        zones=ZONES,
    )


def _offered(store: Store, form: Form) -> dict[str, list[str]]:
    """Options to tick: definitions in force, and those ticked already."""
    kinds = {"checks": "check", "suites": "suite", "retrievers": "retriever"}
    options = {name: [row.slug for row in references.load_definitions(store, kind)] for name, kind in kinds.items()}
    options["severities"] = list(Severity)
    return {name: [*names, *(one for one in form.all(name) if one not in names)] for name, names in options.items()}


def _line(row: Definition, state: SilenceState) -> dict[str, Any]:
    if state["active"]:
        group = "on"
    elif row.body["window"] is not None:
        group = "recurring"
    else:
        group = "upcoming" if state["next_change"] is not None else "over"
    return {"definition": row, "state": state, "group": group, "matchers_text": matchers_text(row.body)}
