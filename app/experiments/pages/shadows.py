"""The page of a shadow: how far a candidate's answers differ, and what people prefer; with the forms that change it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.annotation.documents.task_documents import TaskDocument
from app.annotation.service import pooling, tasks
from app.base.api.csrf import takes_form
from app.base.api.deps import StoreDep
from app.base.api.keys import Scope
from app.base.db.engine import Store
from app.base.documents.validation_messages import parse_document
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.web.forms import Form, has_scope, parse_number, problems_by_field, read_form
from app.base.web.rendering import render
from app.catalog.api.definitions import wake
from app.catalog.service import definitions
from app.experiments.documents.shadow_documents import ShadowDocument
from app.experiments.pages.interval_chart import HEIGHT, WIDTH
from app.experiments.pages.overlap_chart import draw_overlap
from app.experiments.service import shadows

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_SHOWN_PAIRS = 10
_NEW_TASK = {"count": "50", "overlap": "0.2"}


@router.get("/shadows/{slug}")
def show_shadow(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show a shadow: its overlap over time, failures and latencies, and what people prefer."""
    return _shadow(request, store, slug)


@router.post("/shadows/{slug}")
@takes_form(fields=4)
async def change_shadow(request: Request, store: StoreDep, slug: str) -> Response:
    """Define a shadow, or change the share that is asked and the pairs that are kept."""
    form = await read_form(request)
    return await anyio.to_thread.run_sync(partial(_submitted, request, store, slug, form, _define))


@router.post("/shadows/{slug}/tasks")
@takes_form(fields=4)
async def draw_pairs(request: Request, store: StoreDep, slug: str) -> Response:
    """Create a task of the most different pairs, and have them drawn."""
    form = await read_form(request)
    return await anyio.to_thread.run_sync(partial(_submitted, request, store, slug, form, _draw))


@router.post("/shadows/{slug}/delete")
def delete_shadow(store: StoreDep, slug: str) -> Response:
    """Delete a shadow and what is kept of queries."""
    shadows.delete_shadow(store, slug)
    return RedirectResponse("/experiments", status_code=303)


def choices(store: Store, kind: str) -> list[tuple[str, str]]:
    """Return the definitions of a kind, to be chosen from by name."""
    return [(row.slug, row.slug) for row in definitions.list_all(store, kind)]


def shadow_document(slug: str, form: Form) -> dict[str, Any]:
    """Return the document that the form of a shadow describes."""
    numbers = {name: parse_number(form.get(name)) for name in ("share", "k", "keep")}
    return {"slug": slug, "candidate": form.stripped("candidate") or None, **numbers}


def _define(request: Request, store: Store, slug: str, form: Form) -> str:
    document = parse_document(ShadowDocument, shadow_document(slug, form))
    shadows.put_shadow(store, document, by=request.state.identity.name, now=datetime.now(UTC))
    return f"/shadows/{quote(slug)}"


def _draw(request: Request, store: Store, slug: str, form: Form) -> str:
    now = datetime.now(UTC)
    described = {
        "slug": form.stripped("task"),
        "suite": form.stripped("suite"),
        "pairs": {"shadow": slug, "count": parse_number(form.get("count"))},
        "overlap": parse_number(form.get("overlap")),
    }
    document = parse_document(TaskDocument, described)
    tasks.put_task(store, document, by=request.state.identity.name, now=now, only_new=True)
    pooling.request_pool(store, document.slug, now=now)
    wake(request)
    return f"/tasks/{quote(document.slug)}"


def _submitted(
    request: Request, store: Store, slug: str, form: Form, act: Callable[[Request, Store, str, Form], str]
) -> Response:
    """Do what a form says and lead on, or show the page again with what is wrong."""
    try:
        return RedirectResponse(act(request, store, slug, form), status_code=303)
    except InvalidInputError as error:
        return _shadow(request, store, slug, form, problems=error.problems, status=422)
    except ConflictError as error:
        return _shadow(request, store, slug, form, problems=(Problem(message=str(error)),), status=409)


def _shadow(
    request: Request,
    store: Store,
    slug: str,
    form: Form | None = None,
    *,
    problems: Sequence[Problem] = (),
    status: int = 200,
) -> HTMLResponse:
    shadow = shadows.load_shadow(store, slug)
    may_write = has_scope(request, Scope.WRITE)  # queries of users are personal data
    stored = {
        name: "" if (value := shadow.get(name)) is None else str(value) for name in ("candidate", "share", "k", "keep")
    }
    return render(
        request,
        "experiments/shadow.html",
        status=status,
        shadow=shadow,
        pairs=shadows.list_pairs(store, slug, limit=_SHOWN_PAIRS) if shadow["kept"] and may_write else (),
        chart=draw_overlap(shadow["hours"]),
        size=(WIDTH, HEIGHT),
        typed=Form(texts={**_NEW_TASK, "task": f"{slug}-pairs"[:64], **stored, **({} if form is None else form.texts)}),
        problems=problems,
        wrong=problems_by_field(problems),
        suites=choices(store, "suite"),
        retrievers=choices(store, "retriever"),
    )
