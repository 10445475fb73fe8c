"""Schedules and durations as users write them: `{every: 5m}`, or `{cron: "*/5 * * * *", timezone: Europe/Berlin}`."""

from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from app.base.documents.fields import (
    Document,
    Slug,
    Widget,
    check_seconds,
    each_once,
    field_error,
    format_duration,
    from_variable,
    parse_seconds,
    seconds_within,
)
from app.base.schedules import Schedule, parse_schedule


def duration_text(least: float, most: float) -> BeforeValidator:
    """Read a duration in whole seconds between these bounds; it is kept as the shortest text."""

    def read(value: Any) -> str:
        value = from_variable(value)
        seconds = _schedule(every=str(value) if isinstance(value, str) else value).every_seconds or 0
        check_seconds(value, seconds, least=least, most=most, units=("s", "m", "h", "d"))
        return format_duration(seconds)

    return BeforeValidator(read)


def duration_of(text: str) -> timedelta:
    """Return what a text `duration_text` let through means."""
    return timedelta(seconds=parse_schedule(every=text).every_seconds or 0)


def _cron(text: str) -> str:
    return str(_schedule(cron=text).cron)


def _zone(name: str) -> str:
    return _schedule(cron="* * * * *", timezone=name).timezone


def _schedule(**parts: Any) -> Schedule:
    try:
        return parse_schedule(**parts)
    except ValueError as error:
        raise field_error(str(error)) from None


DURATION_SCHEMA = WithJsonSchema({"type": "string", "pattern": "^([0-9]+[dhms])+$"})
_DAY = 86_400
Interval = Annotated[str, duration_text(10, 31 * _DAY), DURATION_SCHEMA]
RemindAfter = Annotated[str, duration_text(300, 31 * _DAY), DURATION_SCHEMA]
WindowLength = Annotated[str, duration_text(60, 31 * _DAY), DURATION_SCHEMA]
Cron = Annotated[str, StringConstraints(max_length=256), AfterValidator(_cron)]
Zone = Annotated[str, StringConstraints(max_length=64), AfterValidator(_zone)]

_DURATION = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}
MaxAge = Annotated[
    float,
    BeforeValidator(parse_seconds),
    Strict(),
    Field(allow_inf_nan=False),
    AfterValidator(lambda seconds: round(seconds, 3)),
    seconds_within(1, 316_224_000),
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 1, "maximum": 316_224_000}, _DURATION],
            "description": "How old the newest of the top k hits may be: seconds, or a duration such as 2d.",
        },
        mode="validation",
    ),
]
MaxLatency = Annotated[
    float,
    BeforeValidator(parse_seconds),
    Strict(),
    Field(allow_inf_nan=False),
    AfterValidator(lambda seconds: round(seconds, 3)),
    seconds_within(0.001, 300),
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 0.001, "maximum": 300}, _DURATION],
            "description": "How long an answer may take: seconds, or a duration such as 800ms.",
        },
        mode="validation",
    ),
]


class ScheduleDocument(Document):
    """When a check runs: `{every: 5m}`, or `{cron: "*/5 * * * *", timezone: Europe/Berlin}`."""

    every: Annotated[
        Interval | None, Field(title="Interval", description="Such as 5m, 1h or 1d."), Widget(length=20)
    ] = None
    cron: Annotated[
        Cron | None,
        Field(title="Cron expression", description="Such as */5 8-18 * * mon-fri."),
        Widget(mono=True),
    ] = None
    timezone: Annotated[
        Zone | None,
        Field(
            title="Time zone",
            description="Time zone of the cron expression, such as Europe/Berlin; default UTC.",
            validate_default=True,
        ),
        Widget(placeholder="UTC"),
    ] = None

    @field_validator("timezone")
    @classmethod
    def _of_a_cron(cls, timezone: str | None, info: ValidationInfo) -> str | None:
        if timezone is not None and info.data.get("every") is not None:
            raise field_error("belongs to 'cron'; an interval has no time zone")
        return "UTC" if timezone is None and info.data.get("cron") is not None else timezone

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.every is None) == (self.cron is None):
            raise field_error("must have either 'every' or 'cron'")
        return self

    def to_domain(self) -> Schedule:
        """Return the value the domain works with."""
        return parse_schedule(every=self.every, cron=self.cron, timezone=self.timezone)


class ReportScheduleDocument(Document):
    """When a report of the newest run is sent, and to which hooks."""

    cron: Annotated[
        Cron, Field(title="Report times", description="Cron expression, such as 0 8 * * mon."), Widget(mono=True)
    ]
    timezone: Annotated[
        Zone,
        Field(title="Report zone", description="Its time zone, such as Europe/Berlin; default UTC."),
        Widget(placeholder="UTC"),
    ] = "UTC"
    hooks: Annotated[
        tuple[Slug, ...],
        Field(
            title="Report recipients",
            description="Names of hooks: email gets the report as HTML, a webhook as Markdown.",
            min_length=1,
            max_length=20,
        ),
        each_once("the hook '{}' is listed twice"),
        Widget(placeholder="team-mail, ops", length=1500),
    ]

    def to_domain(self) -> Schedule:
        """Return the value the domain works with."""
        return parse_schedule(cron=self.cron, timezone=self.timezone)
