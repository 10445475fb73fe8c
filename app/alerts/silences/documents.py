"""Silence documents as users write them: which alerts, and when; once or as a recurring maintenance window."""

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

from app.alerts.silences.domain import Silence, Window, ever_ends
from app.base.documents.fields import (
    Control,
    Cron,
    Document,
    Flag,
    Place,
    RuleKey,
    Slug,
    Text,
    Widget,
    WindowLength,
    Zone,
    duration_of,
    field_error,
    field_errors,
    repeated_positions,
)
from app.base.schedules import EPOCH, parse_schedule
from app.base.values import FIRST_YEAR, LAST_YEAR, Severity

_STORED: Final = object()
"""Validation context for stored documents, which were accepted before."""


def _moment(value: Any) -> str:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise field_error("must be a time with a time zone, such as 2026-01-31T22:00:00Z")
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise field_error(f"must be between {FIRST_YEAR} and {LAST_YEAR}")
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


Moment = Annotated[str, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})]

_TICKS: Final = Widget(control=Control.CHECKBOXES)


class WindowDocument(Document):
    """A recurring time span: it begins with every instant of a cron and lasts for `duration`."""

    cron: Annotated[
        Cron,
        Field(
            title="Cron expression",
            description="Minute, hour, day, month, weekday: 0 2 * * 6 is Saturdays at 02:00, 30 1 * * * every night at "
            "01:30.",
        ),
        Widget(placeholder="0 2 * * 6", mono=True),
    ]
    timezone: Annotated[
        Zone,
        Field(
            title="Time zone", description="Time zone of the times, such as Europe/Berlin; a window follows its DST."
        ),
        Widget(),
    ] = "UTC"
    duration: Annotated[
        WindowLength,
        Field(title="Duration", description="How long each window lasts, such as 90m or 4h; at most 31 days."),
        Widget(placeholder="4h", length=16),
    ]

    @model_validator(mode="after")
    def _is_over_now_and_then(self, info: ValidationInfo) -> Self:
        # Computed from a fixed moment, so that the result never changes; expensive, so not for stored ones.
        if info.context is not _STORED and not ever_ends(self.to_domain(), EPOCH):
            raise field_error(f"never ends: the cron comes again before {self.duration} are over")
        return self

    def to_domain(self) -> Window:
        """Return the value the domain works with."""
        schedule = parse_schedule(cron=self.cron, timezone=self.timezone)
        return Window(schedule=schedule, duration=duration_of(self.duration))


class SilenceDocument(Document):
    """Which alerts are not delivered, and when. Every list that is not empty has to name the alert."""

    slug: Annotated[
        Slug,
        Field(title="Name", description="Lower-case letters, digits and hyphens."),
        Widget(placeholder="index-rebuild", length=64),
    ]
    reason: Annotated[
        Annotated[Text, StringConstraints(max_length=1000)] | None,
        Field(title="Reason", description="Who does what, and until when."),
        Widget(),
    ] = None
    checks: Annotated[tuple[Slug, ...], Field(title="Checks", max_length=100), _TICKS] = ()
    suites: Annotated[tuple[Slug, ...], Field(title="Suites", max_length=100), _TICKS] = ()
    retrievers: Annotated[tuple[Slug, ...], Field(title="Retrievers", max_length=100), _TICKS] = ()
    rules: Annotated[
        tuple[RuleKey, ...],
        Field(
            title="Rules",
            description="Keys of rules, such as threshold-coverage, one per line; empty is every rule.",
            max_length=100,
        ),
        Widget(control=Control.AREA, lines=2, mono=True),
    ] = ()
    severities: Annotated[tuple[Severity, ...], Field(title="Severities", max_length=2), _TICKS] = ()
    all: Annotated[Flag, Field(title="All alerts", description="Every alert, instead of the lists."), Widget()] = False
    starts: Annotated[
        Moment | None,
        Field(title="Start", description="Empty is the time of saving."),
        Widget(control=Control.DATETIME, length=19),
    ] = None
    ends: Annotated[Moment | None, Field(title="End"), Widget(control=Control.DATETIME, length=19)] = None
    window: Annotated[
        WindowDocument | None, Field(title="Window", description="A recurring time, instead of a start and an end.")
    ] = None

    @classmethod
    def stored(cls, body: Mapping[str, Any]) -> Self:
        """Read a stored document; whether its window ever ends is not checked again."""
        return cls.model_validate(body, context=_STORED)

    @field_validator("checks", "suites", "retrievers", "rules", "severities")
    @classmethod
    def _once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        again = [((place,), f"'{names[place]}' is listed twice") for place in repeated_positions(names)]
        if again:
            raise field_errors(again)
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
        starts, ends = (one and datetime.fromisoformat(one) for one in (self.starts, self.ends))
        if starts and ends and ends <= starts:
            wrong.append((("ends",), "must be after 'starts'"))
        if wrong:
            raise field_errors(wrong)
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
            starts=datetime.fromisoformat(self.starts) if self.starts is not None else None,
            ends=datetime.fromisoformat(self.ends) if self.ends is not None else None,
            window=self.window.to_domain() if self.window is not None else None,
        )
