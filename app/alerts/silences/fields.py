"""Form fields of a silence: from a stored document to a form and back, with times in a chosen time zone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from app.alerts.silences.documents import SilenceDocument, WindowDocument
from app.base.documents.schedule_documents import duration_of
from app.base.documents.widgets import Control
from app.base.errors import InvalidInputError, Problem
from app.base.web.document_forms import FormField, document_body, document_texts, form_fields
from app.base.web.forms import Form
from app.catalog.domain.schedules import parse_schedule

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
    times = {name: _local(body[name]) for name in ("starts", "ends")}
    return replace(form, texts={**form.texts, **times, "when": WINDOW if window else ONCE})


def document(form: Form, slug: str, now: datetime) -> dict[str, Any]:
    """Document of a form, not yet validated. Raises InvalidInputError for invalid or past times."""
    values = {"slug": slug, **document_body(_PLAIN, form)}
    if form.get("when") == WINDOW:
        return values | {"window": _window(form)}
    starts, ends = _times(form, now)
    return values | {"starts": _written(starts) if starts is not None else None, "ends": _written(ends)}


def field_of(path: str) -> str:
    """Field of the form for a path in the document."""
    return path.removeprefix(_WINDOW)


def matchers_text(body: Mapping[str, Any]) -> str:
    """Matchers of a silence in words: `checks a, b; rule c`."""
    if body["all"]:
        return "every alert"
    names = ("checks", "suites", "retrievers", "rules", "severities")
    parts = [f"{name[:-1] if len(body[name]) == 1 else name} {', '.join(body[name])}" for name in names if body[name]]
    return "; ".join(one.replace("severitie ", "severity ") for one in parts)


def _window(form: Form) -> dict[str, Any]:
    fields = {name: FIELDS[name] for name in WindowDocument.model_fields}
    missing = [
        Problem(path=name, message="is required")
        for name, one in fields.items()
        if one.is_required and not form.stripped(name)
    ]
    if missing:
        raise InvalidInputError(missing)
    return document_body(fields, form)


def _times(form: Form, now: datetime) -> tuple[datetime | None, datetime]:
    zone = _zone(form.stripped("timezone") or "UTC")
    starts = _moment(form, "starts", zone)
    ends = _moment(form, "ends", zone)
    if ends is None:
        length = form.stripped("for")
        if length not in LENGTHS:
            raise InvalidInputError([Problem(path="ends", message="needs a length or an end")])
        ends = (starts or now) + duration_of(length)
    if ends <= now:
        raise InvalidInputError([Problem(path="ends", message="is over already")])
    return starts, ends


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(parse_schedule(cron="* * * * *", timezone=name).timezone)
    except ValueError as error:
        raise InvalidInputError([Problem(path="timezone", message=str(error))]) from None


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


def _written(moment: datetime) -> str:
    # Whole seconds, as the page shows them.
    return (moment + timedelta(microseconds=999_999)).replace(microsecond=0).isoformat()


def _local(moment: str | None) -> str:
    return datetime.fromisoformat(moment).astimezone(UTC).strftime(_LOCAL) if moment else ""
