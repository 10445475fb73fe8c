"""Checks with their suite, retriever and hooks written out in them, put in force in one transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.formats.fields import Document
from app.formats.inline_checks import read_inline_check
from app.services import applying, definitions
from app.services.references import API
from app.services.vault import Vault
from app.store.catalog import Definition
from app.store.engine import Store


def put(store: Store, vault: Vault, body: Mapping[str, Any], *, now: datetime) -> tuple[Definition, bool]:
    """Create or change a check and what is written out in it, all or nothing; gives it and whether it is new.

    The canaries of the suite replace its API-managed ones. A secret of null keeps the stored one, as `complete` does.

    Raises InvalidInputError with paths in the whole document (`retriever.response.id`), FileManagedError where a file
    owns a part that differs.
    """

    def read(kind: str, model: type[Document], part: Mapping[str, Any]) -> Document:
        return definitions.complete(store, vault, kind, model, part)[0]

    wanted = read_inline_check(body, read)
    changes = applying.apply(store, vault, wanted, managed_by=API, now=now)
    slug = wanted.checks[0].slug
    created = any(change.kind == "check" and change.action == "create" for change in changes)
    return definitions.find(store, "check", slug), created
