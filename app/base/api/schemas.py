"""Bodies of requests other than documents, and the page object of lists."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from io import StringIO
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar

from fastapi import Query
from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from app.base.documents.fields import Document, Flag, Number, Text, Whole, field_error
from app.catalog.exchange import Source

LARGEST_ID: Final = 2**63 - 1
Before = Annotated[int | None, Query(alias="after", ge=1, le=LARGEST_ID, description="the `next` of the page before")]
Version = Annotated[
    str | None, Query(alias="measures_version", max_length=40, description="that of a re-scoring, such as 2.r7")
]


class RunRequest(Document):
    """A request to run a check now."""

    trigger: Literal["api", "update", "cli", "page"] = "api"
    index_version: Annotated[Text, StringConstraints(max_length=200)] | None = None
    wait_seconds: Annotated[Number, Field(ge=0, le=300)] = 0


def _moment(value: object) -> object:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise field_error("must be a time with a time zone, such as 2026-01-31T12:00:00Z")
    return moment


class RescoringRequest(Document):
    """A request to re-score recorded runs with the present judgments."""

    since: Annotated[datetime, BeforeValidator(_moment)] | None = None
    """Only runs that ended from then on; default all."""
    wait_seconds: Annotated[Number, Field(ge=0, le=300)] = 0


class SuiteFiles(Document):
    """Files of another tool: their texts by name."""

    files: Annotated[dict[Annotated[str, StringConstraints(max_length=256)], str], Field(min_length=1, max_length=50)]
    as_documents: Flag = False
    """Their ids are documents, not chunks."""
    notes: tuple[str, ...] = ()
    """Notes of the export, ignored, so that its response can be sent as it is."""


class TextFiles(Document):
    """Texts of files by name."""

    files: Annotated[dict[Annotated[str, StringConstraints(max_length=256)], str], Field(min_length=1, max_length=50)]

    @property
    def sources(self) -> list[Source]:
        """The files, to be read line by line."""
        return [Source(name=name, lines=partial(StringIO, text)) for name, text in self.files.items()]


class TryRequest(Document):
    """A test request to a retriever, with changes to its stored definition."""

    query: Annotated[Text, StringConstraints(max_length=10_000)]
    k: Annotated[Whole, Field(ge=1, le=1_000)] = 10
    retriever: dict[str, Any] = Field(default={})
    """Parts that replace the stored ones; of `request`, key by key. Null keeps a stored secret."""
    answer: Annotated[str, StringConstraints(max_length=5_000_000)] | None = None
    """A response body to parse instead of sending the request."""
    suggest: Flag = False
    """Suggest mappings even if hits were found."""


Proposals = (
    Literal["all"] | Annotated[tuple[Annotated[str, StringConstraints(max_length=18)], ...], Field(max_length=1_000)]
)


class ReanchorRequest(Document):
    """Decisions on proposed judgments: their ids, or `all` open ones."""

    accept: Proposals = ()
    reject: Proposals = ()


class AcknowledgeRequest(Document):
    """An acknowledgement of an alert."""

    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None


class BaselineRequest(Document):
    """A new baseline of a check: one of its runs, or its present state."""

    run: Annotated[Text, StringConstraints(max_length=40)] | None = None
    """Compare with this run, and with the baseline learned from the runs up to it."""
    accept: Flag = False
    """Accept the present state as the baseline."""
    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.run is None) != self.accept:
            raise field_error("must have either 'run' or 'accept: true'")
        return self


class NotNormalRequest(Document):
    """A habit that is not normal."""

    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None


ViewT = TypeVar("ViewT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[ViewT]):
    """A page of a list: `next` goes into `after` of the next request; null at the end."""

    items: list[ViewT]
    next: str | None
