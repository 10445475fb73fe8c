"""The page of annotators: one chunk, answer or pair under its query, by keyboard or thumb, and without JavaScript.

Neither the page nor an address tells rank, score, retriever or stratum of a chunk.
"""

import time
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote, unquote

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.annotation.api.annotating import annotator_of
from app.annotation.domain.answer_questions import LABELS, PREFERENCES
from app.annotation.domain.queue import grade_limit
from app.annotation.domain.views import NextItem, TaskState, TaskView
from app.annotation.service import annotating, tasks
from app.base.api.csrf import takes_form
from app.base.api.deps import StoreDep, needs
from app.base.api.keys import Identity, Scope
from app.base.api.sub_path import sub_path
from app.base.db.engine import Store
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.web.forms import Form, read_form
from app.base.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

GRADES = ("Not relevant", "Relevant", "Highly relevant", "Perfect")
"""Names of the grades."""
_COOKIE = "coalmine_annotator"
_MOST_TASKS = 500
_LONGEST_NAME = 64
_LONGEST_SECONDS = 86_400
_YEAR_SECONDS = 31_536_000


@router.get("/annotate")
@needs(Scope.ANNOTATE)
def show_tasks(request: Request, store: StoreDep) -> HTMLResponse:
    """Show the tasks that can be annotated."""
    found = [task for task in tasks.list_tasks(store, limit=_MOST_TASKS) if task["state"] is not TaskState.CREATED]
    return render(request, "annotation/annotate_tasks.html", tasks=[task["slug"] for task in found])


@router.get("/tasks/{slug}/annotate")
@needs(Scope.ANNOTATE)
def show_next(request: Request, store: StoreDep, slug: str, item: str = "") -> HTMLResponse:
    """Show the next item of the annotator, or the one it came back to."""
    task = tasks.load_task(store, slug)
    annotator = _annotator(request)
    found: NextItem | None = None
    if annotator is not None:
        found = annotating.next_item(store, slug, annotator=annotator)
        if item:
            again = annotating.load_item(store, slug, item, annotator=annotator)
            found = {**found, "item": again, "following": None}
    return render(
        request,
        "annotation/annotate.html",
        slug=slug,
        of_answers=task["answers"] is not None,
        of_pairs=task["pairs"] is not None,
        grades=grade_names(task),
        annotator=annotator,
        has_keys=_identity(request).key_prefix is not None,
        found=found,
        state=task["state"],
        shown=round(time.time(), 1),
    )


@router.post("/tasks/{slug}/annotate")
@needs(Scope.ANNOTATE)
@takes_form(fields=4)
async def annotate(request: Request, store: StoreDep, slug: str) -> Response:
    """Store a grade, a skip or who annotates, or take the last annotation back."""
    form = await read_form(request)
    return await anyio.to_thread.run_sync(partial(_annotated, request, store, slug, form))


def _annotated(request: Request, store: Store, slug: str, form: Form) -> Response:
    page = f"/tasks/{quote(slug)}/annotate"
    name = form.stripped("annotator")
    if name:
        if len(name) > _LONGEST_NAME:
            raise InvalidInputError([Problem(path="annotator", message=f"has at most {_LONGEST_NAME} characters")])
        named = RedirectResponse(page, status_code=303)
        within = f"{sub_path(request.scope)}/tasks"
        named.set_cookie(_COOKIE, quote(name), max_age=_YEAR_SECONDS, path=within, httponly=True, samesite="strict")
        return named
    annotator = annotator_of(_identity(request), _given(request))
    answer, now = form.get("answer"), datetime.now(UTC)
    if answer == "undo":
        try:
            back = annotating.undo(store, slug, annotator=annotator, now=now)
        except ConflictError:  # there is nothing to take back
            return RedirectResponse(page, status_code=303)
        token = back["item"]["id"] if back["item"] is not None else ""
        return RedirectResponse(f"{page}?item={quote(token)}", status_code=303)
    if answer != "skip" and answer not in map(str, range(len(GRADES))):
        raise InvalidInputError([Problem(path="answer", message="is a grade or 'skip'")])
    annotating.annotate(
        store,
        slug,
        form.get("item"),
        annotator=annotator,
        grade=None if answer == "skip" else int(answer),
        seconds=_seconds(form.get("shown")),
        now=now,
    )
    return RedirectResponse(page, status_code=303)


def grade_names(task: TaskView) -> tuple[str, ...]:
    """Return the names of the grades of a task, from 0 on."""
    if task["pairs"] is not None:
        return PREFERENCES
    return LABELS if task["answers"] is not None else GRADES[: grade_limit(task["scale"]) + 1]


def _identity(request: Request) -> Identity:
    identity: Identity = request.state.identity
    return identity


def _given(request: Request) -> str | None:
    """Return the name typed where there are no keys; with a key its own name counts."""
    if _identity(request).key_prefix is not None:
        return None
    return unquote(request.cookies.get(_COOKIE, ""))[:_LONGEST_NAME].strip() or None


def _annotator(request: Request) -> str | None:
    identity = _identity(request)
    return identity.name if identity.key_prefix is not None else _given(request)


def _seconds(shown: str) -> float | None:
    """Return the seconds since the page was made; None where that is not known."""
    try:
        seconds = time.time() - float(shown)
    except ValueError:
        return None
    return round(seconds, 1) if 0 <= seconds <= _LONGEST_SECONDS else None
