"""What clients send of a shadow: pairs of rankings of one query."""

from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from app.formats.fields import Document, Flag, Number, Text, field_error

MOST_PAIRS: Final = 1_000
_MOST_HITS: Final = 200

Hits = Annotated[tuple[Annotated[Text, StringConstraints(max_length=1_024)], ...], Field(max_length=_MOST_HITS)]
_Latency = Annotated[Number, Field(ge=0, le=3_600)]


class ShadowPair(Document):
    """The ids that users got for a query, and those of the candidate, best first; `b_failed` where it did not answer.

    The query is for your own logs: it is not kept.
    """

    query: Annotated[Text, StringConstraints(max_length=10_000)]
    a: Hits
    b: Hits | None = None
    b_failed: Flag = False
    a_seconds: _Latency | None = None
    b_seconds: _Latency | None = None

    @model_validator(mode="after")
    def _answered_or_failed(self) -> Self:
        if (self.b is None) != self.b_failed:
            raise field_error("must have either the hits of the candidate (b) or `b_failed: true`")
        if len(set(self.a)) < len(self.a) or len(set(self.b or ())) < len(self.b or ()):
            raise field_error("names a chunk twice in one ranking")
        return self


class ShadowBatch(Document):
    """The pairs of one request."""

    pairs: Annotated[tuple[ShadowPair, ...], Field(max_length=MOST_PAIRS)]
