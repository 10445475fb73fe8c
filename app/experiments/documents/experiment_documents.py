"""Documents of experiments, and what clients send about their units."""

import math
from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from app.alerts.silences.documents import Moment
from app.base.documents.fields import (
    Document,
    Number,
    Place,
    Slug,
    Text,
    Whole,
    field_errors,
    parse_seconds,
    seconds_within,
)
from app.experiments.domain.assignment import Arm
from app.experiments.domain.decision import ExperimentPlan

MOST_ITEMS: Final = 10_000
"""Exposures or outcomes of one request."""
MOST_UNITS: Final = 100_000_000
DAY: Final = 86_400.0
_LEAST_SHARE: Final = 0.001
_LONGEST_WINDOW: Final = 90 * DAY

UnitId = Annotated[Text, StringConstraints(max_length=200)]
OutcomeWindow = Annotated[
    float,
    BeforeValidator(parse_seconds),
    Field(allow_inf_nan=False),
    seconds_within(1, _LONGEST_WINDOW),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 1, "maximum": _LONGEST_WINDOW},
                {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"},
            ],
            "description": "Seconds, or a duration such as 24h.",
        },
        mode="validation",
    ),
]


class ArmDocument(Document):
    """One of the two arms: its name, and the share of the units that it gets."""

    name: Annotated[Text, StringConstraints(max_length=64)]
    share: Annotated[Number, Field(ge=_LEAST_SHARE, le=1 - _LEAST_SHARE)]


class ExperimentDocument(Document):
    """An experiment: two arms, what is current first, and by which outcome they are compared.

    The outcome of a unit is final once `window` has passed since its exposure; none by then is a 0. Differences below
    `delta` matter to nobody. Whatever changes begins a new epoch, which is tested alone.
    """

    slug: Slug
    arms: Annotated[tuple[ArmDocument, ...], Field(min_length=2, max_length=2)]
    outcome: Literal["binary"] = "binary"
    delta: Annotated[Number, Field(gt=0, lt=1)] = 0.02
    window: OutcomeWindow = DAY
    max_units: Annotated[Whole, Field(ge=100, le=MOST_UNITS)] = 20_000

    @model_validator(mode="after")
    def _dealt_whole(self) -> Self:
        problems: list[tuple[Place, str]] = []
        if not math.isclose(sum(arm.share for arm in self.arms), 1, abs_tol=1e-9):
            problems.append((("arms",), "the shares must add up to 1"))
        if len({arm.name for arm in self.arms}) < len(self.arms):
            problems.append((("arms",), "both arms have the same name"))
        if problems:
            raise field_errors(problems)
        return self

    @property
    def domain_arms(self) -> tuple[Arm, Arm]:
        """The arms, in their order."""
        first, second = (Arm(name=arm.name, share=arm.share) for arm in self.arms)
        return first, second

    @property
    def plan(self) -> ExperimentPlan:
        """What an epoch is decided by."""
        first, second = self.domain_arms
        return ExperimentPlan(
            names=(first.name, second.name), share=first.share, delta=self.delta, max_units=self.max_units
        )


class Exposure(Document):
    """A unit that was exposed to an arm; without `arm` to the one that the published function gives it."""

    unit: UnitId
    arm: str | None = None
    at: Moment | None = None
    """Without it, when it arrives."""

    @property
    def time(self) -> datetime | None:
        """When it was."""
        return _time(self.at)


class UnitOutcome(Document):
    """The outcome of a unit; `event_id` names the event that it came by, so that one sent again changes nothing."""

    event_id: UnitId
    unit: UnitId
    value: Annotated[Whole, Field(ge=0, le=1)]
    at: Moment | None = None
    """Without it, when it arrives."""

    @property
    def time(self) -> datetime | None:
        """When it was."""
        return _time(self.at)


class ExposureBatch(Document):
    """The exposures of one request."""

    exposures: Annotated[tuple[Exposure, ...], Field(max_length=MOST_ITEMS)]


class OutcomeBatch(Document):
    """The outcomes of one request."""

    outcomes: Annotated[tuple[UnitOutcome, ...], Field(max_length=MOST_ITEMS)]


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
