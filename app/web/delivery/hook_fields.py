"""A hook as a form has it, and back: the fields of its kind. Secrets are never filled in."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from app.formats.delivery.hook_documents import HookDocument
from app.web.document_forms import FormField, document_body, document_texts, form_fields
from app.web.forms import Form

MOST_FIELDS: Final = 20
ADDRESSES: Final = frozenset({"url", "host"})
"""Fields that say where a hook connects to."""
FORGET: Final = "forget"
"""Ticked, the stored secret is forgotten; it is else kept where nothing is typed."""
KINDS: Final[Mapping[str, str]] = form_fields(HookDocument)["kind"].choices
"""What each kind of hook does."""


@cache
def fields(kind: str) -> Mapping[str, FormField]:
    """Fields of a kind of hook."""
    return form_fields(HookDocument, kind=kind)


def typed(body: Mapping[str, Any]) -> Form:
    """Give a stored hook as a form would hold it."""
    return document_texts(fields(body["kind"]), body)


def document(form: Form, kind: str, slug: str, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give what a form says, ready to be read as a document; null for a secret that is to stay as it is stored.

    Raises InvalidInputError for what cannot be written down at all.
    """
    return {**document_body(fields(kind), form, keeps_secrets=_keeps(form, kind, stored)), "slug": slug, "kind": kind}


def _keeps(form: Form, kind: str, stored: Mapping[str, Any] | None) -> bool:
    """Whether a secret nobody typed is the stored one; a password is none without its user."""
    if stored is None or stored["kind"] != kind or form.get(FORGET):
        return False
    return "username" not in stored or bool(stored["username"] and form.stripped("username"))
