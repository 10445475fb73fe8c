"""Silences as users write them: what is not told, and when; once, or again and again as a maintenance window."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Self

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from app.domain.alerts.silences import Silence, Window, ever_ends
from app.domain.catalog.schedules import EPOCH, parse_schedule
from app.domain.model import Severity
from app.formats.fields import Document, Flag, Place, RuleKey, Slug, Text, complaint, complaints, repeated
from app.formats.schedule_documents import Cron, WindowLength, Zone, duration_of

_STORED: Final = object()
"""The context in which what was accepted once is read again."""
_FIRST_YEAR, _LAST_YEAR = 1971, 9998


def _moment(value: Any) -> str:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise complaint("must be a time with a time zone, such as 2026-01-31T22:00:00Z")
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise complaint(f"must be between {_FIRST_YEAR} and {_LAST_YEAR}")
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


Moment = Annotated[str, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})]


class WindowDocument(Document):
    """A time that comes back: it begins with every instant of a cron and lasts for a while."""

    cron: Cron
    timezone: Zone = "UTC"
    duration: WindowLength

    @model_validator(mode="after")
    def _is_over_now_and_then(self, info: ValidationInfo) -> Self:
        # Looked at from a fixed moment, so that what is accepted today is accepted tomorrow; and expensive.
        if info.context is not _STORED and not ever_ends(self.to_domain(), EPOCH):
            raise complaint(f"never ends: the cron comes again before {self.duration} are over")
        return self

    def to_domain(self) -> Window:
        """Return the value the domain works with."""
        schedule = parse_schedule(cron=self.cron, timezone=self.timezone)
        return Window(schedule=schedule, duration=duration_of(self.duration))


class SilenceDocument(Document):
    """What is not told, and when. Every list that is not empty has to name the alert."""

    slug: Slug
    reason: Annotated[Text, StringConstraints(max_length=1000)] | None = None
    checks: Annotated[tuple[Slug, ...], Field(max_length=100)] = ()
    suites: Annotated[tuple[Slug, ...], Field(max_length=100)] = ()
    retrievers: Annotated[tuple[Slug, ...], Field(max_length=100)] = ()
    rules: Annotated[tuple[RuleKey, ...], Field(max_length=100)] = ()
    severities: Annotated[tuple[Severity, ...], Field(max_length=2)] = ()
    all: Flag = False
    """Said instead of a list where every alert is meant."""
    starts: Moment | None = None
    """Not said, it is on from the moment it is saved."""
    ends: Moment | None = None
    window: WindowDocument | None = None
    """Instead of `starts` and `ends`."""

    @classmethod
    def stored(cls, body: Mapping[str, Any]) -> Self:
        """Read what was accepted once; whether its window ever ends is not asked again."""
        return cls.model_validate(body, context=_STORED)

    @field_validator("checks", "suites", "retrievers", "rules", "severities")
    @classmethod
    def _once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        again = [((place,), f"'{names[place]}' is listed twice") for place in repeated(names)]
        if again:
            raise complaints(again)
        return names

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        wrong: list[tuple[Place, str]] = []
        named = any((self.checks, self.suites, self.retrievers, self.rules, self.severities))
        if not named and not self.all:
            why = "must say what it is about: checks, suites, retrievers, rules or severities; or 'all: true'"
            wrong.append(((), why))
        if named and self.all:
            wrong.append((("all",), "contradicts the lists; leave out one or the other"))
        if self.window is None and self.ends is None:
            wrong.append(((), "must end: give 'ends', or a 'window' that comes back"))
        if self.window is not None and (self.starts or self.ends):
            wrong.append((("window",), "comes back by itself; leave out 'starts' and 'ends'"))
        if self.starts is not None and self.ends is not None and _read(self.ends) <= _read(self.starts):
            wrong.append((("ends",), "must be after 'starts'"))
        if wrong:
            raise complaints(wrong)
        return self

    def to_domain(self) -> Silence:
        """Return the value the domain works with."""
        return Silence(
            slug=self.slug,
            checks=self.checks,
            suites=self.suites,
            retrievers=self.retrievers,
            rules=self.rules,
            severities=self.severities,
            starts=_read(self.starts) if self.starts is not None else None,
            ends=_read(self.ends) if self.ends is not None else None,
            window=self.window.to_domain() if self.window is not None else None,
        )


def _read(moment: str) -> datetime:
    return datetime.fromisoformat(moment)
