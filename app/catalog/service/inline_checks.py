"""Saves a check with its suite, retriever and hooks defined inline, in one transaction."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from app.base.db.engine import Store
from app.base.documents.fields import Document
from app.catalog.documents.inline_checks import read_inline_check
from app.catalog.service import applying, canary_keys, definitions
from app.catalog.service.references import API
from app.catalog.service.vault import Vault
from app.catalog.store.definitions import Definition


def put(
    store: Store, vault: Vault, body: Mapping[str, Any], *, now: datetime, force: bool = False
) -> tuple[Definition, bool]:
    """Create or change a check and its inline parts, all or nothing; return it and whether it is new.

    The canaries of the suite replace its API-managed ones. A null secret keeps the stored one, see `complete`.

    Raises InvalidInputError with paths in the whole document (`retriever.response.id`), FileManagedError where a file
    owns a part that differs, ConflictError where a part whose secrets it keeps was changed meanwhile and,
    unless `force`, where an inline hook leaves incidents open at its present receiver.
    """
    revisions: dict[tuple[str, str], int] = {}

    def read(kind: str, model: type[Document], part: Mapping[str, Any]) -> Document:
        document, revision = definitions.complete(store, vault, kind, model, part)
        if revision is not None:
            revisions[kind, str(part["slug"])] = revision
        return document

    documents = read_inline_check(body, read, partial(canary_keys.assign_suite_keys, store))
    # The revisions prevent an outdated secret from being restored, or sent to a changed address.
    changes = applying.apply(store, vault, documents, managed_by=API, now=now, revisions=revisions, force=force)
    slug = documents.checks[0].slug
    created = any(change.kind == "check" and change.action == "create" for change in changes)
    return definitions.find(store, "check", slug), created
