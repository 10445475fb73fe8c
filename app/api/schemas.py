"""Wire-only shapes: what requests carry besides the documents, and the page object of lists."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from app.formats.fields import Document, Flag, Number, Text


class RunRequest(Document):
    """A request to run a check now."""

    trigger: Literal["api", "update", "cli"] = "api"
    index_version: Annotated[Text, StringConstraints(max_length=200)] | None = None
    wait_seconds: Annotated[Number, Field(ge=0, le=300)] = 0


class SuiteFiles(Document):
    """Files of another tool: their texts by name."""

    files: Annotated[dict[Annotated[str, StringConstraints(max_length=256)], str], Field(min_length=1, max_length=50)]
    as_documents: Flag = False
    """What they call a document is one here too, not a chunk."""


def page(items: list[Any], following: str | None) -> dict[str, Any]:
    """Shape a page of a list: `next` goes into `after` of the next request; null at the end."""
    return {"items": items, "next": following}
