"""Documents of interleavings, and what clients send of them: two rankings to be merged, and clicks."""

from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from app.base.documents.fields import Document, Place, Slug, Text, Whole, field_error, field_errors
from app.comparison.domain.outcomes import Side
from app.experiments.documents.experiment_documents import MOST_ITEMS, MOST_UNITS, UnitId

_MOST_HITS: Final = 200
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
        problems: list[tuple[Place, str]] = [
            ((side,), "names a chunk twice")
            for side, ranking in (("a", self.a), ("b", self.b))
            if len(set(ranking)) < len(ranking)
        ]
        if problems:
            raise field_errors(problems)
        return self


class Click(Document):
    """A click of a unit on a chunk of its merged list; `team` as the list has it. One without a team says nothing."""

    event_id: UnitId
    unit: UnitId
    team: Side


class ClickBatch(Document):
    """The clicks of one request."""

    clicks: Annotated[tuple[Click, ...], Field(max_length=MOST_ITEMS)]
