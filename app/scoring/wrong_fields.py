"""Expected chunks named by the wrong field: ids that are documents of hits, or documents that are ids of hits.

It explains why a suite from files of another tool finds nothing at all. What a run found is matching's to say.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from app.base.values import Canary, Ranking


class NamedBy(StrEnum):
    """How the chunks that a canary expects are named, held against the hits of an answer."""

    RIGHT_FIELD = "right_field"
    """As far as the answer shows."""
    ID_FOR_DOCUMENT = "id_for_document"
    """By ids that no hit has, and that are documents of hits."""
    DOCUMENT_FOR_ID = "document_for_id"
    """By documents that no hit has, and that are ids of hits."""


def named_by(canary: Canary, ranking: Ranking) -> NamedBy | None:
    """Return how a canary names what it expects, by an answer; None = it expects neither ids nor documents."""
    expected = ((judgment.id, judgment.document) for judgment in canary.judgments if judgment.grade >= 1)
    return compare_names(expected, ranking.ids, ranking.documents)


def compare_names(
    expected: Iterable[tuple[str | None, str | None]], hit_ids: Collection[str], hit_documents: Collection[str | None]
) -> NamedBy | None:
    """Return how expected chunks, each (id, document), are named; None = by neither."""
    chunks = list(expected)
    ids = {chunk for chunk, _ in chunks if chunk is not None}
    documents = {document for chunk, document in chunks if chunk is None and document is not None}
    if ids and not ids.isdisjoint(hit_documents) and ids.isdisjoint(hit_ids):
        return NamedBy.ID_FOR_DOCUMENT
    if documents and not documents.isdisjoint(hit_ids) and documents.isdisjoint(hit_documents):
        return NamedBy.DOCUMENT_FOR_ID
    return NamedBy.RIGHT_FIELD if ids or documents else None


def wrong_fields_remark(coverage: float | None, canaries: Iterable[NamedBy | None]) -> str | None:
    """Say that expected chunks are named by the wrong field, where no canary finds any and a tenth show it.

    `canaries`: `named_by` of each that expects something.
    """
    if coverage is None or coverage > 0:
        return None
    counts = Counter(one for one in canaries if one is not None)
    total = counts.total()
    found = max((NamedBy.ID_FOR_DOCUMENT, NamedBy.DOCUMENT_FOR_ID), key=lambda one: counts[one])
    if not counts[found] or counts[found] < _SHARE * total:
        return None
    of_canaries = f"for {counts[found]} of {total} canaries"
    if found is NamedBy.ID_FOR_DOCUMENT:
        return (
            f"the expected ids are documents of the hits {of_canaries}, not ids of hits: import with --as-documents, "
            "or expect documents"
        )
    return (
        f"the expected documents are ids of the hits {of_canaries}, not documents of hits: import that column as id, "
        "or expect ids"
    )


WRONG_FIELDS: Final[Mapping[NamedBy | None, str]] = MappingProxyType(
    {
        NamedBy.ID_FOR_DOCUMENT: "What the canary expects as a chunk id is no id of a hit but the document of one",
        NamedBy.DOCUMENT_FOR_ID: "What the canary expects as a document is no document of a hit but the id of one",
    }
)
"""Of a single canary, a sentence without its full stop."""
_SHARE: Final = 0.1
"""Of the canaries that expect ids or documents; where retrieval works at all, some are among the hits."""
