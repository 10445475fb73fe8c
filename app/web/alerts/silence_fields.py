"""A silence as a form has it, and back: what it is about, and when, in a time zone of the writer's choice."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from app.domain.catalog.schedules import parse_schedule
from app.domain.errors import InvalidInputError, Problem
from app.formats.schedule_documents import duration_of
from app.web.forms import Typed, lines

MOST_FIELDS: Final = 700
LISTS: Final = ("checks", "suites", "retrievers", "severities")
"""What is ticked."""
SHOWN: Final = frozenset(
    {"slug", "reason", *LISTS, "rules", "all", "when", "starts", "for", "ends", "timezone", "cron", "duration"}
)
"""The fields there are."""
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
"""For how long a silence may be on at a click."""
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
"""Suggested; every zone of the tz database can be written."""
_LOCAL: Final = "%Y-%m-%dT%H:%M"


def typed(body: Mapping[str, Any]) -> Typed:
    """Give a stored silence as a form would hold it, its times in UTC."""
    window = body["window"] or {}
    texts = {
        "slug": body["slug"],
        "reason": body["reason"] or "",
        "rules": "\n".join(body["rules"]),
        "all": "on" if body["all"] else "",
        "when": WINDOW if window else ONCE,
        "starts": _local(body["starts"]),
        "ends": _local(body["ends"]),
        "timezone": window.get("timezone", "UTC"),
        "cron": window.get("cron", ""),
        "duration": window.get("duration", ""),
    }
    return Typed(texts=texts, many={name: tuple(body[name]) for name in LISTS})


def document(form: Typed, slug: str, now: datetime) -> dict[str, Any]:
    """Give what a form says, ready to be read as a document.

    Raises InvalidInputError for times that are none, or of which nothing is left.
    """
    found: dict[str, Any] = {"slug": slug, "reason": form.stripped("reason") or None, "all": bool(form.get("all"))}
    found |= {name: list(form.all(name)) for name in LISTS}
    found["rules"] = lines(form.get("rules"))
    if form.get("when") == WINDOW:
        return found | {"window": _window(form)}
    starts, ends = _times(form, now)
    return found | {"starts": _written(starts) if starts is not None else None, "ends": _written(ends)}


def field_of(path: str) -> str:
    """Give the field of the form that a path in the document is about."""
    return path.removeprefix("window.") if path.startswith("window.") else path


def about(body: Mapping[str, Any]) -> str:
    """Say in words which alerts a silence keeps back."""
    if body["all"]:
        return "every alert"
    names = (*LISTS[:3], "rules", "severities")
    told = [f"{name[:-1] if len(body[name]) == 1 else name} {', '.join(body[name])}" for name in names if body[name]]
    return "; ".join(one.replace("severitie ", "severity ") for one in told)


def _window(form: Typed) -> dict[str, Any]:
    texts = {name: form.stripped(name) for name in ("cron", "timezone", "duration")}
    missing = [Problem(path=name, message="say it") for name in ("cron", "duration") if not texts[name]]
    if missing:
        raise InvalidInputError(missing)
    return {name: text for name, text in texts.items() if text}


def _times(form: Typed, now: datetime) -> tuple[datetime | None, datetime]:
    zone = _zone(form.stripped("timezone") or "UTC")
    starts = _moment(form, "starts", zone)
    ends = _moment(form, "ends", zone)
    if ends is None:
        length = form.stripped("for")
        if length not in LENGTHS:
            raise InvalidInputError([Problem(path="ends", message="say for how long, or until when")])
        ends = (starts or now) + duration_of(length)
    if ends <= now:
        raise InvalidInputError([Problem(path="ends", message="is over already")])
    return starts, ends


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(parse_schedule(cron="* * * * *", timezone=name).timezone)
    except ValueError as error:
        raise InvalidInputError([Problem(path="timezone", message=str(error))]) from None


def _moment(form: Typed, name: str, zone: ZoneInfo) -> datetime | None:
    text = form.stripped(name)
    if not text:
        return None
    try:
        local = datetime.strptime(text[:16], _LOCAL).replace(tzinfo=zone)
        moment = local.astimezone(UTC)
    except (ValueError, OverflowError):
        message = "is no time; write it as 2026-01-31T22:00"
        raise InvalidInputError([Problem(path=name, message=message)]) from None
    if moment.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        message = f"is skipped by the clocks of {zone.key}; choose another"
        raise InvalidInputError([Problem(path=name, message=message)])
    return moment


def _written(moment: datetime) -> str:
    # Whole seconds, so that what the page shows is what is stored.
    return (moment + timedelta(microseconds=999_999)).replace(microsecond=0).isoformat()


def _local(moment: str | None) -> str:
    return datetime.fromisoformat(moment).astimezone(UTC).strftime(_LOCAL) if moment else ""
