"""The fields of a canary's form: those of its document, and its chunks as numbered rows."""

from collections.abc import Iterable, Mapping
from typing import Final

from app.base.web.document_forms import FormField, field_labels, form_fields, read_rows, rows_texts
from app.base.web.forms import Form
from app.catalog.documents.canary_documents import CanaryDocument, ChunkDocument

FIELDS: Final[Mapping[str, FormField]] = form_fields(CanaryDocument)
LABELS: Final[Mapping[str, str]] = {**field_labels(FIELDS), "retriever": "Find them with a retriever"}
"""Labels of the fields."""
CHUNKS: Final = ("expected_chunks", "forbidden_chunks")
"""Fields of rows."""
_IDENTITY: Final = tuple(ChunkDocument.model_fields)


def renumber_rows(typed: Form) -> Form:
    """Return the form without empty rows, the others numbered consecutively."""
    texts = {
        name: text
        for name, text in typed.texts.items()
        if not name.startswith(tuple(f"{prefix}[" for prefix in CHUNKS))
    }
    for prefix in CHUNKS:
        texts |= rows_texts(FIELDS[prefix], read_rows(FIELDS[prefix], typed))
    return Form(texts=texts, lists=typed.lists)


def add_chunks(typed: Form, chunks: Iterable[Mapping[str, object]]) -> Form:
    """Return the form with additional expected chunks, except those it has already."""
    rows = read_rows(FIELDS["expected_chunks"], typed)
    existing = {tuple(row.get(name) for name in _IDENTITY) for row in rows}
    ids = {row["id"] for row in rows if row.get("id")}
    added = [
        {name: str(value) for name, value in chunk.items()}
        for chunk in chunks
        if tuple(chunk.get(name) for name in _IDENTITY) not in existing and chunk.get("id") not in ids
    ]
    return Form(texts={**typed.texts, **rows_texts(FIELDS["expected_chunks"], [*rows, *added])}, lists=typed.lists)
