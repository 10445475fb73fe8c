"""Bounds and margins of rules as users write them: shares, drops, or seconds of a latency."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from app.base.documents.fields import Document, Number, check_seconds, field_error, parse_seconds
from app.base.documents.schedule_documents import MaxLatency
from app.base.values import Bound, RuleKind

_DURATION = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}
_SECONDS = WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 300}, _DURATION]}, mode="validation")


class BoundDocument(Document):
    """Where a value is bad: strictly below, or strictly above, a share of 0 to 1.

    Of a drop: at least `by` so much below the baseline. Of a latency: `above` so many seconds, or `800ms`.
    """

    SIDES: ClassVar[tuple[str, ...]] = ("below", "above")
    EXPECTED: ClassVar[str] = "must have either 'below' or 'above'"

    below: Annotated[Number, Field(gt=0, le=1)] | None = None
    above: Annotated[Annotated[Number, Field(ge=0, lt=1)] | None, _SECONDS] = None
    by: Annotated[Number, Field(gt=0, le=1)] | None = None

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        sides = [side for side in _SIDES if getattr(self, side) is not None]
        if len(sides) != 1 or sides[0] not in self.SIDES:
            raise field_error(self.EXPECTED)
        return self

    def to_domain(self) -> Bound:
        """Return the value the domain works with."""
        return Bound(below=self.below, above=self.above, by=self.by)

    def milder_than(self, other: "BoundDocument") -> bool:
        """Whether a value can be bad by the other bound and not by this one; both are on one side."""
        if self.below is not None and other.below is not None:
            return self.below > other.below
        if self.by is not None and other.by is not None:
            return self.by < other.by
        return self.above is not None and other.above is not None and self.above < other.above


class DropBound(BoundDocument):
    """How far below its baseline a value is bad."""

    SIDES: ClassVar[tuple[str, ...]] = ("by",)
    EXPECTED: ClassVar[str] = "must say by how much, for example {by: 0.05}"


class LatencyBound(BoundDocument):
    """Above how many seconds a latency is bad."""

    SIDES: ClassVar[tuple[str, ...]] = ("above",)
    EXPECTED: ClassVar[str] = "must say above how many seconds, for example {above: 800ms}"

    above: MaxLatency | None = None


Rise = Annotated[
    MaxLatency,
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 0.001, "maximum": 300}, _DURATION],
            "description": "How far above the baseline a latency must be: seconds, or a duration such as 200ms.",
        },
        mode="validation",
    ),
]
"""As long as a latency may be, and said of something else."""

_SIDES = ("below", "above", "by")
_BOUNDS: dict[RuleKind, type[BoundDocument]] = {RuleKind.DROP: DropBound, RuleKind.LATENCY: LatencyBound}


def _bound_of_kind(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    kind = info.data.get("kind", RuleKind.THRESHOLD)
    bound = _BOUNDS.get(kind, BoundDocument)
    if isinstance(value, Mapping) and any(value.get(side) is not None and side not in bound.SIDES for side in _SIDES):
        raise field_error(bound.EXPECTED)  # whatever else is wrong with a side it has not
    return handler(value) if bound is BoundDocument else bound.model_validate(value)


def _margin_of_kind(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Read the margin of a latency as seconds; every other is a share."""
    if info.data.get("kind") not in {RuleKind.LATENCY, RuleKind.SLOWER}:
        return handler(value)
    seconds = parse_seconds(value)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return handler(value)
    check_seconds(value, seconds, least=0, most=300)
    return float(seconds)


BoundOfKind = Annotated[BoundDocument, WrapValidator(_bound_of_kind)]
MarginOfKind = Annotated[Annotated[Number, Field(ge=0, lt=1)], WrapValidator(_margin_of_kind), _SECONDS]
