"""REST routes of suites and canaries. PUT and POST upsert, DELETE archives."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Depends, Response

from app.base.api.answers import answers_with
from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.schemas import Page
from app.base.documents.validation_messages import parse_document
from app.catalog.api.definitions import (
    After,
    Limit,
    body_schema,
    definition_fields,
    ownership,
    reference,
    with_name,
    without_read_only,
)
from app.catalog.api.views import CanaryView, DefinitionJson
from app.catalog.documents.documents import CanaryDocument, SuiteDocument
from app.catalog.documents.warnings import no_expectation_reason
from app.catalog.domain.views import CompositionView, SavedCanaries, SuiteDetail, SuiteView
from app.catalog.service import canary_keys, composition, definitions, suite_definitions, suite_power
from app.catalog.store.definitions import Definition
from app.catalog.store.suites import CanaryRow

router = APIRouter(prefix="/v1", tags=["catalog"], dependencies=[Depends(refuse_unknown_parameters)])

_CANARIES_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [
                        reference("CanaryDocument"),
                        {"type": "array", "items": reference("CanaryDocument")},
                    ]
                }
            }
        },
    }
}


@router.get("/suites")
def list_suites(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[SuiteView]:
    """List the suites."""
    rows = suite_definitions.list_suites(store, after=after, limit=limit + 1)
    items = [_suite(row) for row in rows[:limit]]
    return Page(items=items, next=rows[limit - 1].slug if len(rows) > limit else None)


@router.get("/suites/{suite}")
def get_suite(store: StoreDep, suite: str) -> SuiteDetail:
    """Show a suite with its number of canaries and the damage they can detect."""
    return {**_suite(suite_definitions.find_suite(store, suite)), **suite_power.load_reach(store, suite)}


@router.get("/suites/{suite}/composition")
def get_composition(store: StoreDep, suite: str) -> CompositionView:
    """Count the canaries of a suite by category and segment against targets, with notes where they are unusual."""
    return composition.load_composition(store, suite)


@router.put(
    "/suites/{suite}",
    responses=answers_with(SuiteDetail, 201),
    openapi_extra=body_schema(SuiteDocument),
)
def put_suite(store: StoreDep, response: Response, suite: str, body: Content) -> SuiteDetail:
    """Create or change a suite. `canaries`, if present, replace the API-managed ones; absent ones are archived."""
    given = with_name(body, "slug", suite)
    if isinstance(given.get("canaries"), list):
        given["canaries"] = canary_keys.assign_suite_keys(store, suite, given["canaries"])
    document = parse_document(SuiteDocument, given)
    saved, created = suite_definitions.put_suite(store, document, now=datetime.now(UTC))
    response.status_code = 201 if created else 200
    return {**_suite(saved), **suite_power.load_reach(store, suite)}


@router.delete("/suites/{suite}", status_code=204)
def delete_suite(store: StoreDep, suite: str) -> None:
    """Archive a suite; its history stays."""
    definitions.archive(store, "suite", suite, now=datetime.now(UTC))


@router.get("/suites/{suite}/canaries")
def list_canaries(store: StoreDep, suite: str, after: After = "", limit: Limit = 100) -> Page[CanaryView]:
    """List the canaries of a suite in their order."""
    rows = suite_definitions.list_canaries(store, suite, after=after, limit=limit + 1)
    items = [_canary(row) for row in rows[:limit]]
    return Page(items=items, next=rows[limit - 1].key if len(rows) > limit else None)


@router.post(
    "/suites/{suite}/canaries", responses=answers_with(CanaryView | SavedCanaries, 201), openapi_extra=_CANARIES_BODY
)
def post_canaries(store: StoreDep, response: Response, suite: str, body: Content) -> CanaryView | SavedCanaries:
    """Create or change one canary, or a list of them, all or none; a missing suite is created.

    A canary without a key gets one derived from its query, so that the same query is the same canary. 201 if any is
    new. A single canary is returned as stored; both forms return the numbers of sent and changed canaries, a list also
    their keys.
    """
    bodies = [without_read_only(one) for one in (body if isinstance(body, list) else [body])]
    given = canary_keys.assign_suite_keys(store, suite, bodies)
    parsed = parse_document(SuiteDocument, {"slug": suite, "canaries": given}).canaries or ()
    saved = suite_definitions.put_canaries(store, suite, parsed, now=datetime.now(UTC), with_suite=True)
    response.status_code = 201 if saved.created else 200
    counts = {"given": len(parsed), "changed": saved.changed}
    if isinstance(body, list):
        return {**counts, "keys": [canary.key for canary in parsed]}
    return {**_canary(suite_definitions.find_canary(store, suite, parsed[0].key)), **counts}


@router.get("/suites/{suite}/canaries/{key}")
def get_canary(store: StoreDep, suite: str, key: str) -> CanaryView:
    """Show a canary."""
    return _canary(suite_definitions.find_canary(store, suite, key))


@router.put(
    "/suites/{suite}/canaries/{key}", responses=answers_with(CanaryView, 201), openapi_extra=body_schema(CanaryDocument)
)
def put_canary(store: StoreDep, response: Response, suite: str, key: str, body: Content) -> CanaryView:
    """Create or change a canary."""
    document = parse_document(CanaryDocument, with_name(body, "key", key))
    saved = suite_definitions.put_canaries(store, suite, [document], now=datetime.now(UTC))
    response.status_code = 201 if saved.created else 200
    return _canary(suite_definitions.find_canary(store, suite, key))


@router.delete("/suites/{suite}/canaries/{key}", status_code=204)
def delete_canary(store: StoreDep, suite: str, key: str) -> None:
    """Archive a canary; its history stays."""
    suite_definitions.archive_canary(store, suite, key, now=datetime.now(UTC))


def _suite(row: Definition) -> SuiteView:
    return {"slug": row.slug, **definition_fields(row)}


def _canary(row: CanaryRow) -> DefinitionJson:
    warning = no_expectation_reason(CanaryDocument.model_validate(row.body))
    return {**row.body, **ownership(row), "warnings": [] if warning is None else [warning]}
