"""Wire-only shapes: what requests carry besides the documents, and the page object of lists."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar

from fastapi import Query
from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from app.formats.fields import Document, Flag, Number, Text, Whole, field_error

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
    """A request to judge past runs anew, by the judgments in force now."""

    since: Annotated[datetime, BeforeValidator(_moment)] | None = None
    """Runs that ended from then on; all there are when it is not said."""
    wait_seconds: Annotated[Number, Field(ge=0, le=300)] = 0


class SuiteFiles(Document):
    """Files of another tool: their texts by name."""

    files: Annotated[dict[Annotated[str, StringConstraints(max_length=256)], str], Field(min_length=1, max_length=50)]
    as_documents: Flag = False
    """What they call a document is one here too, not a chunk."""
    notes: tuple[str, ...] = ()
    """What the export said that wrote them; nothing is done with it, so that its answer can be sent as it is."""


class TryRequest(Document):
    """A query to put to a retriever once, and what is to be different about it this time."""

    query: Annotated[Text, StringConstraints(max_length=10_000)]
    k: Annotated[Whole, Field(ge=1, le=1_000)] = 10
    retriever: dict[str, Any] = Field(default={})
    """Parts that take the place of the stored ones; of `request`, key by key. Null keeps a stored secret."""
    answer: Annotated[str, StringConstraints(max_length=5_000_000)] | None = None
    """The body of an answer to read; then nobody is asked."""
    suggest: Flag = False
    """Suggest mappings though hits were found."""


Proposals = (
    Literal["all"] | Annotated[tuple[Annotated[str, StringConstraints(max_length=18)], ...], Field(max_length=1_000)]
)


class ReanchorRequest(Document):
    """What is said to judgments proposed in the place of others: their ids, or all that wait for an answer."""

    accept: Proposals = ()
    reject: Proposals = ()


class AcknowledgeRequest(Document):
    """What somebody says who has seen an alert."""

    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None


class BaselineRequest(Document):
    """What a check is to be compared with: one of its runs, or what it is like now."""

    run: Annotated[Text, StringConstraints(max_length=40)] | None = None
    """Compare with this run, and with what was learned of the runs up to it."""
    accept: Flag = False
    """Call the present the new normal."""
    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.run is None) != self.accept:
            raise field_error("must have either 'run' or 'accept: true'")
        return self


ViewT = TypeVar("ViewT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[ViewT]):
    """A page of a list: `next` goes into `after` of the next request; null at the end."""

    items: list[ViewT]
    next: str | None
