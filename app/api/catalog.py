"""What should be: suites, canaries, retrievers, checks and hooks. PUT upserts by slug, DELETE archives."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from app.api.answers import PUT
from app.api.bodies import Content
from app.api.deps import StoreDep, VaultDep, known_parameters, needs
from app.api.schemas import (
    AcknowledgeRequest,
    BaselineRequest,
    ReanchorRequest,
    RescoringRequest,
    RunRequest,
    TryRequest,
    page,
)
from app.domain.errors import InvalidInputError, Problem
from app.formats import shapes
from app.formats.canary_files import CanaryFile
from app.formats.complaints import parse_document
from app.formats.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    RetrieverDocument,
    SilenceDocument,
    SuiteDocument,
)
from app.formats.fields import Document
from app.formats.secret_fields import public_json
from app.services import definitions, hook_reading, thinness
from app.services.keys import Identity, Scope
from app.store.catalog import Definition
from app.store.suites import CanaryRow

router = APIRouter(prefix="/v1", tags=["catalog"], dependencies=[Depends(known_parameters)])

Limit = Annotated[int, Query(ge=1, le=500)]
After = Annotated[str, Query(max_length=200)]
DOCUMENTS: tuple[type[Document], ...] = (
    SuiteDocument,
    CanaryDocument,
    RetrieverDocument,
    CheckDocument,
    HookDocument,
    SilenceDocument,
    CanaryFile,
    RunRequest,
    RescoringRequest,
    TryRequest,
    ReanchorRequest,
    AcknowledgeRequest,
    BaselineRequest,
)

_READ_ONLY = frozenset(
    {
        "managed_by",
        "source",
        "hash",
        "disabled_reason",
        "created_at",
        "updated_at",
        "secrets_set",
        "canary_count",
        "coverage_note",
        "reach",
    }
)


def describes(model: type[Document], *, required: bool = True) -> dict[str, Any]:
    """Say in the API's description what a body holds; it is parsed here, so that errors speak as for files."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


# --- suites and their canaries -------------------------------------------------------------------------------


@router.get("/suites")
def list_suites(store: StoreDep, after: After = "", limit: Limit = 50) -> dict[str, Any]:
    """List the suites in force."""
    return _listed(definitions.list_all(store, "suite", after=after, limit=limit + 1), limit)


@router.get("/suites/{suite}")
def get_suite(store: StoreDep, suite: str) -> dict[str, Any]:
    """Show a suite, how many canaries it has and what damage they can see."""
    return {**definition_shape(definitions.find(store, "suite", suite)), **thinness.of_suite(store, suite)}


@router.put("/suites/{suite}", responses=PUT, openapi_extra=describes(SuiteDocument))
def put_suite(store: StoreDep, response: Response, suite: str, body: Content) -> dict[str, Any]:
    """Create or change a suite. `canaries`, where given, replace the API-managed ones; missing ones are archived."""
    document = parse_document(SuiteDocument, named(body, "slug", suite))
    saved, created = definitions.put_suite(store, document, now=_now())
    response.status_code = 201 if created else 200
    return {**definition_shape(saved), **thinness.of_suite(store, suite)}


@router.delete("/suites/{suite}", status_code=204)
def delete_suite(store: StoreDep, suite: str) -> None:
    """Archive a suite; its history stays."""
    definitions.archive(store, "suite", suite, now=_now())


@router.get("/suites/{suite}/canaries")
def list_canaries(store: StoreDep, suite: str, after: After = "", limit: Limit = 100) -> dict[str, Any]:
    """List the canaries of a suite in their order."""
    found = definitions.list_canaries(store, suite, after=after, limit=limit + 1)
    return page([_canary(row) for row in found[:limit]], found[limit - 1].key if len(found) > limit else None)


@router.post("/suites/{suite}/canaries", openapi_extra=describes(CanaryDocument))
def post_canaries(store: StoreDep, suite: str, body: Content) -> dict[str, Any]:
    """Create or change one canary, or a list of them, all or none."""
    given = [_without_read_only(one) for one in (body if isinstance(body, list) else [body])]
    parsed = parse_document(SuiteDocument, {"slug": suite, "canaries": given}).canaries or ()
    return {"changed": definitions.put_canaries(store, suite, parsed, now=_now()), "given": len(parsed)}


@router.get("/suites/{suite}/canaries/{key}")
def get_canary(store: StoreDep, suite: str, key: str) -> dict[str, Any]:
    """Show a canary."""
    return _canary(definitions.find_canary(store, suite, key))


@router.put("/suites/{suite}/canaries/{key}", responses=PUT, openapi_extra=describes(CanaryDocument))
def put_canary(store: StoreDep, response: Response, suite: str, key: str, body: Content) -> dict[str, Any]:
    """Create or change a canary."""
    document = parse_document(CanaryDocument, named(body, "key", key))
    before = {canary.key for canary in definitions.list_canaries(store, suite)}
    definitions.put_canaries(store, suite, [document], now=_now())
    response.status_code = 200 if key in before else 201
    return _canary(definitions.find_canary(store, suite, key))


@router.delete("/suites/{suite}/canaries/{key}", status_code=204)
def delete_canary(store: StoreDep, suite: str, key: str) -> None:
    """Archive a canary; its history stays."""
    definitions.archive_canary(store, suite, key, now=_now())


# --- retrievers ----------------------------------------------------------------------------------------------


@router.get("/retrievers")
def list_retrievers(store: StoreDep, after: After = "", limit: Limit = 50) -> dict[str, Any]:
    """List the retrievers in force; header values are never shown."""
    return _listed(definitions.list_all(store, "retriever", after=after, limit=limit + 1), limit)


@router.get("/retrievers/{slug}")
def get_retriever(store: StoreDep, slug: str) -> dict[str, Any]:
    """Show a retriever; header values are never shown."""
    return definition_shape(definitions.find(store, "retriever", slug))


@router.put("/retrievers/{slug}", responses=PUT, openapi_extra=describes(RetrieverDocument))
@needs(Scope.ADMIN)
def put_retriever(store: StoreDep, vault: VaultDep, response: Response, slug: str, body: Content) -> dict[str, Any]:
    """Create or change a retriever. A header value of null keeps the one that is stored."""
    return _put(store, vault, "retriever", RetrieverDocument, slug, body, response)


@router.delete("/retrievers/{slug}", status_code=204)
@needs(Scope.ADMIN)
def delete_retriever(store: StoreDep, slug: str) -> None:
    """Archive a retriever; its history stays."""
    definitions.archive(store, "retriever", slug, now=_now())


# --- checks --------------------------------------------------------------------------------------------------


@router.get("/checks")
def list_checks(store: StoreDep, after: After = "", limit: Limit = 50) -> dict[str, Any]:
    """List the checks in force."""
    return _listed(definitions.list_all(store, "check", after=after, limit=limit + 1), limit)


@router.get("/checks/{slug}")
def get_check(store: StoreDep, slug: str) -> dict[str, Any]:
    """Show a check."""
    return definition_shape(definitions.find(store, "check", slug))


@router.put("/checks/{slug}", responses=PUT, openapi_extra=describes(CheckDocument))
def put_check(
    store: StoreDep, vault: VaultDep, request: Request, response: Response, slug: str, body: Content
) -> dict[str, Any]:
    """Create or change a check."""
    shape = _put(store, vault, "check", CheckDocument, slug, body, response)
    wake(request)
    return shape


@router.delete("/checks/{slug}", status_code=204)
def delete_check(store: StoreDep, request: Request, slug: str) -> None:
    """Archive a check: no more runs, open alerts resolve, history stays."""
    definitions.archive(store, "check", slug, now=_now())
    wake(request)


# --- hooks ---------------------------------------------------------------------------------------------------


@router.get("/hooks")
def list_hooks(store: StoreDep, request: Request, after: After = "", limit: Limit = 50) -> dict[str, Any]:
    """List the hooks in force; secrets are never shown, and paths of webhooks' addresses to scope admin alone."""
    found = definitions.list_all(store, "hook", after=after, limit=limit + 1)
    return _listed([hook_reading.as_seen(hook, for_readers=only_reads(request)) for hook in found], limit)


@router.get("/hooks/{slug}")
def get_hook(store: StoreDep, request: Request, slug: str) -> dict[str, Any]:
    """Show a hook; its secret is never shown, and the path of a webhook's address to scope admin alone."""
    found = definitions.find(store, "hook", slug)
    return definition_shape(hook_reading.as_seen(found, for_readers=only_reads(request)))


@router.put("/hooks/{slug}", responses=PUT, openapi_extra=describes(HookDocument))
@needs(Scope.ADMIN)
def put_hook(store: StoreDep, vault: VaultDep, response: Response, slug: str, body: Content) -> dict[str, Any]:
    """Create or change a hook. A secret of null keeps the one that is stored."""
    return _put(store, vault, "hook", HookDocument, slug, body, response)


@router.delete("/hooks/{slug}", status_code=204)
@needs(Scope.ADMIN)
def delete_hook(store: StoreDep, slug: str) -> None:
    """Archive a hook that no check uses."""
    definitions.archive(store, "hook", slug, now=_now())


def only_reads(request: Request) -> bool:
    """Whether whoever asks may not define hooks, and is therefore not told the whole addresses of webhooks."""
    identity: Identity = request.state.identity
    return not identity.scope.includes(Scope.ADMIN)


def wake(request: Request) -> None:
    """Tell the embedded worker, where there is one, that there may be work."""
    if request.app.state.worker is not None:
        request.app.state.worker.wake()


def _put(
    store: StoreDep,
    vault: VaultDep,
    kind: str,
    model: type[Document],
    slug: str,
    body: Any,
    response: Response,
) -> dict[str, Any]:
    given = named(body, "slug", slug)
    saved, created = definitions.save(store, vault, kind, model, given, now=_now())
    response.status_code = 201 if created else 200
    return definition_shape(saved)


def named(body: Any, field: str, name: str) -> dict[str, Any]:
    """Put the name of the path into the body, which may leave it out but not contradict it.

    What answers add to a document is dropped, so that what was shown can be sent back.
    """
    if not isinstance(body, dict):
        raise InvalidInputError([Problem(path="body", message="must be a JSON object")])
    if body.get(field, name) != name:
        raise InvalidInputError([Problem(path=field, message=f"is not the '{name}' of the address")])
    return {**_without_read_only(body), field: name}


def _without_read_only(body: Any) -> Any:
    return {key: body[key] for key in body if key not in _READ_ONLY} if isinstance(body, dict) else body


def _listed(found: list[Definition], limit: int) -> dict[str, Any]:
    return page([definition_shape(row) for row in found[:limit]], found[limit - 1].slug if len(found) > limit else None)


def definition_shape(row: Definition) -> dict[str, Any]:
    """Shape a definition as everybody sees it, secrets left out."""
    return {
        **public_json(row.body, secrets_set=row.secrets is not None),
        **_ownership(row),
        "hash": row.hash,
        "disabled_reason": row.disabled_reason,
        "created_at": shapes.time_text(row.created_at),
        "updated_at": shapes.time_text(row.updated_at),
    }


def _canary(row: CanaryRow) -> dict[str, Any]:
    return {**row.body, **_ownership(row), "hash": row.hash}


def _ownership(row: Definition | CanaryRow) -> Mapping[str, Any]:
    return {"managed_by": row.managed_by, "source": row.source}


def _now() -> datetime:
    return datetime.now(UTC)
