"""What is sent about traffic: what to ask for, how documents are grouped, what to forget."""

from typing import Annotated

from pydantic import Field, StringConstraints

from app.base.documents.fields import Document, Slug, Text, Whole


class Grouping(Document):
    """Groups documents by the beginning of their names: the first `parts` of what `separator` divides."""

    separator: Annotated[str, StringConstraints(min_length=1, max_length=8)]
    parts: Annotated[Whole, Field(ge=1, le=20)]

    def group(self, document: str) -> str:
        """Return the group of a document."""
        return self.separator.join(document.split(self.separator)[: self.parts])


class ReachRequest(Document):
    """A request to ask a sample of the traffic; `group` where documents are as fine as chunks."""

    retriever: Slug
    group: Grouping | None = None


class SuggestionsRequest(Document):
    """Suggestions that are taken up: queries that become canaries, and the name of the task over them."""

    retriever: Slug
    task: Slug
    queries: Annotated[tuple[Annotated[Text, StringConstraints(max_length=500)], ...], Field(max_length=500)]


class ForgetRequest(Document):
    """What to forget of the traffic of a suite: one query, what came of one retriever, or all."""

    retriever: Slug | None = None
    query: Annotated[str, StringConstraints(min_length=1, max_length=10_000)] | None = None
