"""Form fields of a hook kind: from a stored document to a form and back. Secrets are never filled in."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from app.base.web.document_forms import FormField, document_body, document_texts, form_fields
from app.base.web.forms import Form
from app.hooks.documents import HookDocument

MOST_FIELDS: Final = 20
ADDRESSES: Final = frozenset({"url", "host"})
"""Fields with the address a hook connects to."""
FORGET: Final = "forget"
"""Checkbox that deletes the stored secret, which otherwise stays where nothing is typed."""
KINDS: Final[Mapping[str, str]] = form_fields(HookDocument)["kind"].choices
"""Description of each kind of hook."""


@cache
def fields(kind: str) -> Mapping[str, FormField]:
    """Fields of a kind of hook."""
    return form_fields(HookDocument, kind=kind)


def typed(body: Mapping[str, Any]) -> Form:
    """Form of a stored hook."""
    return document_texts(fields(body["kind"]), body)


def document(form: Form, kind: str, slug: str, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Document of a form, not yet validated; null for a secret that stays as stored.

    Raises InvalidInputError for values that are no JSON.
    """
    return {**document_body(fields(kind), form, keeps_secrets=_keeps(form, kind, stored)), "slug": slug, "kind": kind}


def _keeps(form: Form, kind: str, stored: Mapping[str, Any] | None) -> bool:
    """Whether an empty secret stays as stored; a password is deleted with its user."""
    if stored is None or stored["kind"] != kind or form.get(FORGET):
        return False
    return "username" not in stored or bool(stored["username"] and form.stripped("username"))
