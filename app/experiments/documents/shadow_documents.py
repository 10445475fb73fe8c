"""Documents of shadows, and what clients send of them: pairs of rankings of one query."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from app.base.documents.fields import (
    Document,
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
from app.experiments.domain.shadow import ShadowHit

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
        problems: list[tuple[Place, str]] = [
            ((side,), "names a chunk twice")
            for side, hits in (("a", self.a), ("b", self.b or ()))
            if len({one.id for one in hits}) < len(hits)
        ]
        if problems:
            raise field_errors(problems)
        return self

    @property
    def waits(self) -> bool:
        """Whether the candidate has yet to be asked."""
        return self.b is None and not self.b_failed


class ShadowBatch(Document):
    """The pairs of one request."""

    pairs: Annotated[tuple[ShadowPair, ...], Field(max_length=MOST_PAIRS)]


def domain_hits(hits: tuple[HitDocument, ...]) -> tuple[ShadowHit, ...]:
    """Return hits as values."""
    return tuple(ShadowHit(id=one.id, text=one.text) for one in hits)
