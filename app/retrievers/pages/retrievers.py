"""Pages of retrievers: the list with their last probe outcomes, one retriever, and archiving it."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.base.api.deps import StoreDep, needs
from app.base.api.keys import Scope
from app.base.db.engine import Store
from app.base.errors import ConflictError
from app.base.web.rendering import render
from app.catalog.api.definitions import wake
from app.catalog.documents.secret_fields import secret_names, short_name
from app.catalog.pages.setup_steps import list_setup_steps
from app.catalog.service import definitions
from app.retrievers.pages.wizard_state import SCALES
from app.retrievers.presets import PRESETS
from app.retrievers.service import retriever_views

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@router.get("/retrievers")
def show_retrievers(request: Request, store: StoreDep) -> HTMLResponse:
    """Show every retriever with its checks and their last probe outcomes."""
    retrievers = definitions.list_all(store, "retriever")
    return render(
        request, "retrievers/retrievers.html", retrievers=retrievers, checks=retriever_views.checks_by_retriever(store)
    )


@router.get("/retrievers/{slug}")
def show_retriever(request: Request, store: StoreDep, slug: str, saved: str = "") -> HTMLResponse:
    """Show a retriever as it is stored: endpoint, limits, request and response mapping, and the checks that use it."""
    return _page(request, store, slug, saved=bool(saved))


@router.post("/retrievers/{slug}/archive")
@needs(Scope.ADMIN)
def archive_retriever(request: Request, store: StoreDep, slug: str) -> Response:
    """Archive a retriever; its history stays."""
    try:
        definitions.archive(store, "retriever", slug, now=datetime.now(UTC))
    except ConflictError as error:
        return _page(request, store, slug, problem=str(error), status=409)
    wake(request)
    return RedirectResponse("/retrievers", status_code=303)


def _page(
    request: Request, store: Store, slug: str, *, saved: bool = False, problem: str = "", status: int = 200
) -> HTMLResponse:
    definition = definitions.find(store, "retriever", slug)
    body = definition.body
    asked_by = retriever_views.checks_by_retriever(store).get(slug, [])
    secrets = [short_name(name) for name in secret_names(body)] if definition.secrets else []
    return render(
        request,
        "retrievers/retriever.html",
        status=status,
        slug=slug,
        definition=definition,
        body=body,
        preset=PRESETS[str(body["preset"])],
        secrets=secrets,
        request_json=_json_text(body["request"].get("json")),
        query_json=_json_text(body["request"].get("query")),
        relevance=_relevance_source(body),
        checks=asked_by,
        saved=saved,
        setup=list_setup_steps(store, retriever=slug) if saved and not asked_by else (),
        problem=problem,
    )


def _json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) if value else ""


def _relevance_source(body: Mapping[str, Any]) -> str:
    scorer = body["scorer"]
    if scorer["kind"] == "score":
        return f"from its scores: {SCALES[scorer['scale']]}"
    return {
        "judged": "from judgments: its scores are on no scale",
        "embedding": "from embeddings of the query and the first hit",
        "rerank": "from a reranker that reads the query and the first hit",
    }[str(scorer["kind"])]
