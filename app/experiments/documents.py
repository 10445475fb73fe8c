"""Documents of experiments, shadows, interleavings and promotions, and what clients send to each of them."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, field_validator, model_validator

from app.alerts.silences.documents import Moment
from app.base.documents.fields import (
    Document,
    Duration,
    Flag,
    ForeignText,
    Number,
    Place,
    Share,
    Slug,
    Text,
    Whole,
    field_error,
    field_errors,
)
from app.comparison.domain.outcomes import Side
from app.experiments.domain.experiments import ExperimentPlan, ShadowHit

MOST_ITEMS: Final = 10_000
"""Exposures or outcomes of one request."""
MOST_UNITS: Final = 100_000_000
DAY: Final = 86_400.0
_LEAST_SHARE: Final = 0.001
_LONGEST_WINDOW: Final = 90 * DAY

UnitId = Annotated[Text, StringConstraints(max_length=200)]
OutcomeWindow = Annotated[float, Duration(1, _LONGEST_WINDOW, "Seconds, or a duration such as 24h.")]


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
    def window_us(self) -> int:
        """The window in microseconds."""
        return round(self.window * 1_000_000)

    @property
    def plan(self) -> ExperimentPlan:
        """What an epoch is decided by."""
        first, second = self.arms
        return ExperimentPlan(
            names=(first.name, second.name), share=first.share, delta=self.delta, max_units=self.max_units
        )


class Exposure(Document):
    """A unit that was exposed to an arm; without `arm` to the one that the published function gives it."""

    unit: UnitId
    arm: str | None = None
    at: Moment | None = None
    """Without it, when it arrives."""


class UnitOutcome(Document):
    """The outcome of a unit; `event_id` names the event that it came by, so that one sent again changes nothing."""

    event_id: UnitId
    unit: UnitId
    value: Annotated[Whole, Field(ge=0, le=1)]
    at: Moment | None = None
    """Without it, when it arrives."""


class ExposureBatch(Document):
    """The exposures of one request."""

    exposures: Annotated[tuple[Exposure, ...], Field(max_length=MOST_ITEMS)]


class OutcomeBatch(Document):
    """The outcomes of one request."""

    outcomes: Annotated[tuple[UnitOutcome, ...], Field(max_length=MOST_ITEMS)]


MOST_PAIRS: Final = 1_000
MOST_KEPT: Final = 200
_MOST_HITS: Final = 200
_LONGEST_TEXT: Final = 20_000


class ShadowDocument(Document):
    """A shadow: the retriever that may follow, and the share of what users ask that it is asked too.

    `k` hits are asked for. Of the most different pairs `keep` are kept with their queries, for people to compare.
    Without a `candidate` pairs have to bring its answers along.
    """

    slug: Slug
    candidate: Slug | None = None
    share: Share = 0.05
    k: Annotated[Whole, Field(ge=1, le=100)] = 10
    keep: Annotated[Whole, Field(ge=0, le=MOST_KEPT)] = 50


class HitDocument(Document):
    """A hit: the id of its chunk, and its text for people who compare answers."""

    id: Annotated[Text, StringConstraints(max_length=1_024)]
    text: Annotated[ForeignText, StringConstraints(max_length=_LONGEST_TEXT)] | None = None


def _hit(given: Any) -> Any:
    """Let an id alone be a hit."""
    return given if isinstance(given, Mapping | HitDocument) else {"id": given}


_ID_SCHEMA: Final = {"type": "string", "maxLength": 1_024}
_Hit = Annotated[
    HitDocument,
    BeforeValidator(_hit),
    WithJsonSchema(
        {
            "anyOf": [
                _ID_SCHEMA,
                {
                    "type": "object",
                    "required": ["id"],
                    "properties": {"id": _ID_SCHEMA, "text": {"type": ["string", "null"], "maxLength": _LONGEST_TEXT}},
                    "additionalProperties": False,
                },
            ]
        },
        mode="validation",
    ),
]
Hits = Annotated[tuple[_Hit, ...], Field(max_length=_MOST_HITS)]
_Latency = Annotated[Number, Field(ge=0, le=3_600)]


class ShadowPair(Document):
    """What users got for a query, and what the candidate gave, best first; `b_failed` where it did not answer.

    Hits are ids, or `{id, text}`. Without `b` and `b_failed` the candidate of the shadow is asked.
    """

    query: Annotated[Text, StringConstraints(max_length=10_000)]
    a: Hits
    b: Hits | None = None
    b_failed: Flag = False
    a_seconds: _Latency | None = None
    b_seconds: _Latency | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.b is not None and self.b_failed:
            raise field_error("must have either the hits of the candidate (b) or `b_failed: true`")
        _expect_distinct(a=[one.id for one in self.a], b=[one.id for one in self.b or ()])
        return self

    @property
    def waits(self) -> bool:
        """Whether the candidate has yet to be asked."""
        return self.b is None and not self.b_failed


def _expect_distinct(**rankings: Sequence[str]) -> None:
    """Refuse rankings that name a chunk twice."""
    problems: list[tuple[Place, str]] = [
        ((side,), "names a chunk twice") for side, ids in rankings.items() if len(set(ids)) < len(ids)
    ]
    if problems:
        raise field_errors(problems)


class ShadowBatch(Document):
    """The pairs of one request."""

    pairs: Annotated[tuple[ShadowPair, ...], Field(max_length=MOST_PAIRS)]


def domain_hits(hits: tuple[HitDocument, ...]) -> tuple[ShadowHit, ...]:
    """Return hits as values."""
    return tuple(ShadowHit(id=one.id, text=one.text) for one in hits)


_Name = Annotated[Text, StringConstraints(max_length=64)]
_Ranking = Annotated[
    tuple[Annotated[Text, StringConstraints(max_length=1_024)], ...],
    Field(min_length=1, max_length=_MOST_HITS, json_schema_extra={"uniqueItems": True}),
]


class InterleavingDocument(Document):
    """Two rankings that are merged for each unit: A is what is current. Whatever changes begins a new epoch."""

    slug: Slug
    a: _Name
    b: _Name
    max_units: Annotated[Whole, Field(ge=100, le=MOST_UNITS)] = 20_000

    @model_validator(mode="after")
    def _of_two(self) -> Self:
        if self.a == self.b:
            raise field_error("both rankings have the same name")
        return self


class ListsRequest(Document):
    """Two rankings of ids, best first, to be merged for a unit."""

    unit: UnitId
    a: _Ranking
    b: _Ranking

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _expect_distinct(a=self.a, b=self.b)
        return self


class Click(Document):
    """A click of a unit on a chunk of its merged list; `team` as the list has it, and without one it says nothing."""

    event_id: UnitId
    unit: UnitId
    team: Side | None = None


class ClickBatch(Document):
    """The clicks of one request."""

    clicks: Annotated[tuple[Click, ...], Field(max_length=MOST_ITEMS)]


_MOST_GUARDS: Final = 10
FEWEST_LETTERS: Final = 20
"""Of the reason of a waiver: one word tells nobody later why users were not asked."""
_FEWEST_DISTINCT: Final = 6


class GuardDocument(Document):
    """What must not get worse while users are served better: a measure of the judge, or the outcome of an experiment.

    A loss of `allowed_loss` or more, or one that is not ruled out, keeps exposure from passing.
    """

    measure: Literal["faithfulness", "answer_relevance"] | None = None
    experiment: Slug | None = None
    allowed_loss: Annotated[Number, Field(gt=0, lt=1)] = 0.02

    @model_validator(mode="after")
    def _of_one(self) -> Self:
        if (self.measure is None) is (self.experiment is None):
            raise field_error("must name either a `measure` or an `experiment`")
        return self


class PromotionDocument(Document):
    """A candidate on its way to all users: the checks of it and of what is current, and the experiment with users.

    The first arm of an experiment is what is current, the second one the candidate. While a critical alert of either
    check is open the promotion is stopped, unless `stop_on_critical` is false.
    """

    slug: Slug
    current: Slug
    candidate: Slug
    experiment: Slug | None = None
    guards: Annotated[tuple[GuardDocument, ...], Field(max_length=_MOST_GUARDS)] = ()
    stop_on_critical: Flag = True

    @property
    def reads(self) -> frozenset[str]:
        """The experiments that its gates read."""
        return frozenset(one for one in (self.experiment, *(guard.experiment for guard in self.guards)) if one)


class WaiverRequest(Document):
    """Why to go on without a gate, in a sentence."""

    reason: Annotated[Text, StringConstraints(min_length=FEWEST_LETTERS, max_length=500)]

    @field_validator("reason")
    @classmethod
    def _sentence(cls, reason: str) -> str:
        if len(set(reason.casefold())) < _FEWEST_DISTINCT:
            raise field_error("must say in a sentence why")
        return reason
