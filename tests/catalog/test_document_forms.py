"""Forms of documents: labels and hints as the JSON Schema has them, and bodies that come back as they were stored."""

from typing import Any

import pytest

from app.alerts.silences import pages as silence_fields
from app.alerts.silences.documents import SilenceDocument
from app.base.documents.fields import Document
from app.base.web.forms import document_body, document_texts, form_fields
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.canary_export import canary_file_schema
from app.catalog.documents.check_documents import CheckDocument
from app.hooks.documents import HOOK_SECRETS, HookDocument
from app.hooks.domain import HookKind

FORMS: list[tuple[type[Document], str]] = [
    (SilenceDocument, ""),
    (CanaryDocument, ""),
    (CheckDocument, ""),
    *((HookDocument, kind) for kind in HookKind),
]
"""Documents that have a form, with their kinds."""
SILENCE = {
    "slug": "nights",
    "reason": "index rebuild",
    "checks": ["watch", "other"],
    "rules": ["threshold-coverage", "latency-p95"],
    "severities": ["warning"],
    "window": {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "duration": "4h"},
}
MAIL = {
    "slug": "ops",
    "kind": "email",
    "host": "smtp.example.org",
    "port": 2525,
    "tls": "implicit",
    "from": "coalmine@example.org",
    "to": ["ops@example.org", "night@example.org"],
    "timeout": 12.5,
}
CANARY = {
    "key": "logs",
    "query": "How long are logs kept?",
    "expected_chunks": [{"id": "c1", "grade": 3}, {"document": "rules.pdf", "text": "30 days"}],
    "forbidden_chunks": [{"id": "c9"}],
    "min_relevance_score": 0.25,
    "floors": {"NDCG@10": 0.8, "MRR": 0.5},
    "max_age": 172800,
    "max_latency": 0.8,
    "category": "procedural",
    "tags": ["billing", "headline"],
}
CHECK = {
    "slug": "watch",
    "suite": "suite",
    "retriever": "search",
    "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Berlin"},
    "k": 3,
    "use": "completeness",
    "report": {"cron": "0 8 * * mon", "timezone": "Europe/Berlin", "hooks": ["ops"]},
    "fetch_k": 20,
    "cutoffs": [1, 3],
    "hooks": ["ops", "night"],
    "remind": None,
    "enabled": False,
}


def test_a_form_has_the_labels_and_hints_of_the_schema() -> None:
    for model, kind in FORMS:
        definitions = canary_file_schema()["$defs"]
        for path, one in form_fields(model, kind=kind).items():
            assert 1 <= len(one.label.split()) <= 6, path
            described = _described(definitions, model.__name__, path)
            if not one.widget.title:
                assert described["title"] == one.label, path
            if one.hint and not one.widget.hint:
                assert described["description"] == one.hint, path


@pytest.mark.parametrize(
    ("model", "stored"),
    [
        (SilenceDocument, SILENCE),
        (HookDocument, MAIL),
        (CanaryDocument, CANARY),
        (CheckDocument, CHECK),
        (CheckDocument, {**CHECK, "report": None}),
    ],
)
def test_a_stored_document_comes_back_from_its_form(model: type[Document], stored: dict[str, Any]) -> None:
    document = model.model_validate(stored)
    fields = form_fields(model, kind=str(stored.get("kind", "")))
    assert model.model_validate(document_body(fields, document_texts(fields, document.data()))) == document


def test_every_field_of_the_form_of_a_silence_stands_at_the_document() -> None:
    assert {"when", "for"} == silence_fields.SHOWN - silence_fields.FIELDS.keys()
    assert silence_fields.FIELDS["reason"].length == 1000, "the bound is that of the type"


@pytest.mark.parametrize("kind", HookKind)
def test_a_form_of_a_hook_has_the_fields_of_its_kind_and_one_secret_that_is_never_filled_in(kind: str) -> None:
    fields = form_fields(HookDocument, kind=kind)
    refused = {rule["if"]["properties"]["kind"]["const"]: rule["then"]["properties"] for rule in _kinds_of_hooks()}
    assert not fields.keys() & refused[kind].keys()
    assert [path for path, one in fields.items() if one.control == "password"] == [HOOK_SECRETS[kind]]
    assert document_texts(fields, {HOOK_SECRETS[kind]: "value"}).texts[HOOK_SECRETS[kind]] == ""


def _kinds_of_hooks() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = HookDocument.model_json_schema()["allOf"]
    return rules


def _described(definitions: dict[str, Any], name: str, path: str) -> dict[str, Any]:
    """Find what the schema says of the field at a path."""
    first, _, rest = path.partition(".")
    found: dict[str, Any] = definitions[name]["properties"][first]
    if not rest:
        return definitions[found["$ref"].rpartition("/")[2]] | found if "$ref" in found else found
    (reference,) = [one["$ref"] for one in found.get("anyOf", [found]) if "$ref" in one]
    return _described(definitions, reference.rpartition("/")[2], rest)
