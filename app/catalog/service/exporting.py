"""Reads stored definitions back as documents, for export and editing."""

from collections.abc import Iterator
from typing import Any, Final

from app.base.db.engine import Connection, Store
from app.base.documents.fields import Document
from app.base.errors import InvalidInputError, NotFoundError, Problem
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    JudgeDocument,
    RetrieverDocument,
    SilenceDocument,
    SuiteDocument,
)
from app.catalog.documents.secret_fields import with_placeholders
from app.catalog.store import definitions, suites

_PAGE: Final = 1_000
"""Canaries read at once."""


def write_all(store: Store, *, for_readers: bool = False) -> str:
    """Return all definitions as a canary file, see `write_canary_file`; canaries are read while they are written."""
    with store.read() as connection:
        rows = {row.slug: row for row in definitions.list_definitions(connection, "suite")}
        documents = Documents(
            suites=tuple(SuiteDocument(slug=slug) for slug in rows),
            retrievers=_documents(connection, "retriever", RetrieverDocument),
            hooks=_documents(connection, "hook", HookDocument),
            checks=_documents(connection, "check", CheckDocument),
            silences=_documents(connection, "silence", SilenceDocument),
            judges=_documents(connection, "judge", JudgeDocument),
        )
        return write_canary_file(
            documents, for_readers=for_readers, canaries_of=lambda slug: _canaries(connection, rows[slug])
        )


def load_suite_document(store: Store, slug: str | None) -> SuiteDocument:
    """Return a suite with its canaries; None = the only one there is.

    Raises NotFoundError, and InvalidInputError where there are several and `slug` is None.
    """
    with store.read() as connection:
        rows = definitions.list_definitions(connection, "suite")
        rows_of_slug = [row for row in rows if slug in {None, row.slug}]
        if not rows_of_slug:
            raise NotFoundError(f"there is no suite '{slug}'" if slug else "there is no suite")
        if len(rows_of_slug) > 1:
            names = ", ".join(row.slug for row in rows_of_slug)
            raise InvalidInputError([Problem(path="suite", message=f"say which suite; there are: {names}")])
        return _suite(connection, rows_of_slug[0])


def _suite(connection: Connection, row: definitions.Definition) -> SuiteDocument:
    return SuiteDocument(slug=row.slug, canaries=tuple(_canaries(connection, row)))


def _canaries(connection: Connection, suite: definitions.Definition) -> Iterator[CanaryDocument]:
    after = ""
    while rows := suites.list_canaries(connection, suite.id, after=after, limit=_PAGE):
        yield from [CanaryDocument.model_validate(one.body) for one in rows]
        after = rows[-1].key


def _documents(connection: Connection, kind: str, model: type[Document]) -> tuple[Any, ...]:
    return tuple(
        model.model_validate(with_placeholders(row.body, secrets_set=row.secrets is not None))
        for row in definitions.list_definitions(connection, kind)
    )
