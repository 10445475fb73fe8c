"""Silences: which alerts are not delivered, and when; once, or with a cron as a recurring maintenance window.

They suppress delivery, never evaluation. The document that users write is the value that decides: it knows which alerts
it matches and when it is on.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

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
    did_you_mean,
    duration_of,
    field_error,
    field_errors,
    repeated_positions,
)
from app.base.errors import Problem
from app.base.schedules import EPOCH, Schedule, last_due, next_due, parse_schedule
from app.base.values import FIRST_YEAR, LAST_YEAR, Severity

_STORED: Final = object()
"""Validation context for stored documents, which were accepted before."""
RULE: Final = "rule"
"""Pseudo-kind for the keys of rules."""
LONGEST_CHAIN: Final = 400
"""Windows that run into each other are one; after so many it is taken to have no end."""


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise field_error("must be a time with a time zone, such as 2026-01-31T22:00:00Z")
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise field_error(f"must be between {FIRST_YEAR} and {LAST_YEAR}")
    return moment.astimezone(UTC)


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    PlainSerializer(lambda moment: moment.isoformat().replace("+00:00", "Z"), return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

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
        if info.context is not _STORED:
            begun = next_due(self.schedule, EPOCH)
            for _ in range(LONGEST_CHAIN):
                following = next_due(self.schedule, begun)
                if following > begun + self.length:
                    return self
                begun = following
            raise field_error(f"never ends: the cron comes again before {self.duration} are over")
        return self

    @cached_property
    def schedule(self) -> Schedule:
        """The instants at which it begins."""
        return parse_schedule(cron=self.cron, timezone=self.timezone)

    @cached_property
    def length(self) -> timedelta:
        """How long it lasts each time."""
        return duration_of(self.duration)

    def active_until(self, now: datetime) -> datetime | None:
        """End of the windows that are on now, each begun before the one before was over; None = none is."""
        begun = last_due(self.schedule, now, now - self.length)
        if begun is None:
            return None
        end = begun + self.length
        for _ in range(LONGEST_CHAIN):
            following = next_due(self.schedule, begun)
            if following > end:
                return end
            begun, end = following, following + self.length
        return end


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
        if self.starts and self.ends and self.ends <= self.starts:
            wrong.append((("ends",), "must be after 'starts'"))
        if wrong:
            raise field_errors(wrong)
        return self

    def unknown_references(self, present: Callable[[str], Collection[str]]) -> Iterator[tuple[str, str, Problem]]:
        """Yield (kind, name, problem) of names that are not among the slugs (or keys of rules) there are of a kind."""
        slugs = {"check": self.checks, "suite": self.suites, "retriever": self.retrievers, RULE: self.rules}
        for kind, names in slugs.items():
            defined = present(kind) if names else ()
            for place, name in enumerate(names):
                if name not in defined:
                    message = f"there is no {kind} '{name}'{did_you_mean(name, sorted(defined))}"
                    yield kind, name, Problem(path=f"{kind}s[{place}]", message=message)

    def is_about(self, check: str, suite: str, retriever: str) -> bool:
        """Whether it is about a check, whatever rules and severities it names."""
        pairs = ((self.checks, check), (self.suites, suite), (self.retrievers, retriever))
        return all(not names or name in names for names, name in pairs)

    def matches(self, rule: str, severity: Severity) -> bool:
        """Whether it is about an alert of a check it `is_about`, whenever it is on."""
        return (not self.rules or rule in self.rules) and (not self.severities or severity in self.severities)

    def active_until(self, now: datetime) -> datetime | None:
        """When it ends, if it is on now: from its start up to, but not at, its end; None = it is not on."""
        if self.window is not None:
            return self.window.active_until(now)
        started = self.starts is None or self.starts <= now
        return self.ends if started and self.ends is not None and now < self.ends else None

    def is_over(self, now: datetime) -> bool:
        """Whether it will never be on again."""
        return self.ends is not None and self.ends <= now

    def next_change(self, now: datetime) -> datetime | None:
        """When it will next go on or off; None = never again."""
        if (until := self.active_until(now)) is not None:
            return until
        if self.window is not None:
            return next_due(self.window.schedule, now)
        return self.starts if self.starts is not None and now < self.starts else None
