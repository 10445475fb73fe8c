"""Lists the parts of a suite that another tool's format cannot hold."""

from collections import Counter
from collections.abc import Collection, Iterable

from app.catalog.documents.documents import CanaryDocument, SuiteDocument


def is_left_out(canary: CanaryDocument, fields: Collection[str]) -> bool:
    """Whether an import leaves the canary out: no chunk is judged and nothing else of it is kept by these fields."""
    blank = CanaryDocument(key="x", query="x")
    kept = {*fields, "expected_chunks"} - {"key", "query"}
    return all(getattr(canary, name) == getattr(blank, name) for name in kept)


def graded_names(canary: CanaryDocument, notes: list[str]) -> dict[str, int]:
    """Return the grades of a canary's chunks by id or document; what has neither is noted."""
    grades: dict[str, int] = {}
    for chunk in canary.expected_chunks:
        name = chunk.id or chunk.document
        if name is None:
            notes.append("judgments by text alone")
        elif grades.setdefault(name, chunk.grade) != chunk.grade:
            notes.append("a second grade for the same id")
    return grades


def losses(
    suite: SuiteDocument,
    *,
    fields: Collection[str],
    extra: Iterable[str] = (),
    texts: bool = True,
    one_identity: bool = False,
    grades: bool = True,
) -> tuple[str, ...]:
    """Return a note for each kind of loss, with the number of canaries affected.

    `fields`: fields of a canary that the format holds besides key and expected chunks; `texts`, `grades`: it holds
    those of chunks; `one_identity`: a chunk is an id or a document, not both; `extra`: losses found by the writer.
    """
    lost: Counter[str] = Counter(extra)
    blank = CanaryDocument(key="x", query="x")
    for canary in suite.canaries or ():
        if is_left_out(canary, fields):
            lost["canaries without judgments"] += 1
        for name in type(canary).model_fields:
            is_kept = name in fields or name in {"key", "query", "expected_chunks"}
            if not is_kept and getattr(canary, name) != getattr(blank, name):
                lost[name] += 1
        chunks = canary.expected_chunks
        if not texts and any(chunk.text is not None and (chunk.id or chunk.document) for chunk in chunks):
            lost["texts of judgments"] += 1
        if one_identity and any(chunk.id is not None and chunk.document is not None for chunk in chunks):
            lost["documents of judgments that have an id"] += 1
        if one_identity and any(chunk.id is None and chunk.document is not None for chunk in chunks):
            lost["documents as such (they come back as ids of chunks, unless read with --as-documents)"] += 1
        if any(chunk.source is not None for chunk in chunks):
            lost["sources of judgments"] += 1
        if not grades and any(chunk.grade != 1 for chunk in chunks):
            lost["grades"] += 1
    return tuple(f"the format cannot hold {name} (lost {count:,}x)" for name, count in lost.items())
