"""Pages of annotation: the tasks with the form of a new one, a task with its results, and grading item by item."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.annotation.documents import TaskDocument
from app.annotation.domain.pools import LABELS, PREFERENCES, grade_limit
from app.annotation.service import annotations, results, tasks
from app.annotation.views import AdoptionView, NextItem, TaskState, TaskView
from app.base.api.requests import StoreDep, expensive, needs, page_router, sub_path, takes_form, wake
from app.base.db.engine import Store
from app.base.db.keys import Identity, Scope
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.values import replace
from app.base.web.forms import (
    Form,
    FormInput,
    default_text,
    follow_form,
    has_scope,
    parse_form,
    parse_list,
    parse_number,
    place_problems,
)
from app.base.web.pages import render
from app.catalog.service import references

router = page_router()

_MOST_TASKS = 500
_SHOWN_DISAGREEMENTS = 25
_NEW = Form(
    texts={
        **{name: default_text(TaskDocument, name) for name in ("pool", "scale", "overlap", "checks")},
        "strata": ", ".join(f"{one.to}: {one.sample}" for one in TaskDocument.model_fields["strata"].default),
        "rest": "10",
    }
)
"""What the form of a new one begins with."""


@router.get("/tasks")
def show_tasks(request: Request, store: StoreDep) -> HTMLResponse:
    """Show the annotation tasks, and the form of a new one."""
    return _tasks(request, store, _NEW)


@router.post("/tasks")
@takes_form(fields=40)
def make_task(request: Request, store: StoreDep, form: FormInput) -> Response:
    """Create a task and ask for its pool."""
    return follow_form(lambda: open_task(request, store, _document(form)), partial(_tasks, request, store, form))


@router.get("/tasks/{slug}")
def show_task(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show a task: its pool, budget, agreement, disagreements and what adopting would change."""
    return _task(request, store, slug)


@router.post("/tasks/{slug}/pool")
def pool_task(request: Request, store: StoreDep, slug: str) -> Response:
    """Ask for the pool, again where canaries failed."""
    tasks.request_pool(store, slug, now=datetime.now(UTC))
    wake(request)
    return RedirectResponse(f"/tasks/{quote(slug)}", status_code=303)


@router.post("/tasks/{slug}/adjudicate")
@takes_form(fields=2)
def adjudicate(request: Request, store: StoreDep, slug: str, form: FormInput) -> Response:
    """Decide the grade of a disputed item."""
    grade = form.get("grade")
    if grade not in map(str, range(len(GRADES))):
        raise InvalidInputError([Problem(path="grade", message="is a grade of the scale")])
    by, now = request.state.identity.name, datetime.now(UTC)
    annotations.adjudicate(store, slug, form.get("item"), grade=int(grade), by=by, now=now)
    return RedirectResponse(f"/tasks/{quote(slug)}#disagreements", status_code=303)


@router.post("/tasks/{slug}/adopt")
@expensive
def adopt_task(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Adopt what is agreed on, and show what changed with the patches of files."""
    return _task(request, store, slug, adopted=results.adopt(store, slug, now=datetime.now(UTC)))


@router.post("/tasks/{slug}/archive")
def archive_task(store: StoreDep, slug: str) -> Response:
    """Archive a task."""
    tasks.archive_task(store, slug, now=datetime.now(UTC))
    return RedirectResponse("/tasks", status_code=303)


@router.get("/tasks/{slug}/annotations.csv")
@expensive
def export_annotations(store: StoreDep, slug: str) -> Response:
    """Download the annotations as CSV."""
    name = {"content-disposition": f'attachment; filename="{slug}.csv"'}
    text = annotations.export_annotations(store, slug)
    return Response(text, media_type="text/csv; charset=utf-8", headers=name)


def open_task(request: Request, store: Store, described: Mapping[str, Any]) -> str:
    """Create the task that a form describes and have its pool made; the address of its page."""
    document, now = parse_form(TaskDocument, described), datetime.now(UTC)
    tasks.put_task(store, document, by=request.state.identity.name, now=now, only_new=True)
    tasks.request_pool(store, document.slug, now=now)
    wake(request)
    return f"/tasks/{quote(document.slug)}"


def _document(form: Form) -> dict[str, Any]:
    """Document of the form of a new task."""
    strata: list[dict[str, Any]] = []
    for one in parse_list(form.get("strata")):
        depth, _, sample = one.partition(":")
        strata.append({"to": parse_number(depth), "sample": parse_number(sample)})
    corpus = form.stripped("corpus")
    if corpus:
        strata.append({"rest": parse_number(form.get("rest"))})
    return {
        "slug": form.stripped("slug"),
        "suite": form.stripped("suite"),
        "retrievers": list(form.all("retrievers")),
        "pool": parse_number(form.get("pool")),
        "strata": strata,
        "corpus": corpus or None,
        "scale": form.stripped("scale"),
        "overlap": parse_number(form.get("overlap")),
        "checks": parse_number(form.get("checks") or "0"),
    }


def _tasks(
    request: Request, store: Store, form: Form, *, problems: Sequence[Problem] = (), status: int = 200
) -> HTMLResponse:
    placed = [replace(one, path=one.path or "slug") for one in problems]
    wrong, others = place_problems(placed, {*_NEW.texts, "slug", "suite", "retrievers", "corpus"})
    return render(
        request,
        "annotation/tasks.html",
        status=status,
        tasks=tasks.list_tasks(store, limit=_MOST_TASKS),
        graded=tasks.count_graded(store),
        typed=form,
        wrong=wrong,
        problems=others,
        suites=[(row.slug, row.slug) for row in references.load_definitions(store, "suite")],
        retrievers=[row.slug for row in references.load_definitions(store, "retriever")],
        corpora=[(one["name"], one["name"]) for one in tasks.list_corpora(store)],
    )


def _task(request: Request, store: Store, slug: str, *, adopted: AdoptionView | None = None) -> HTMLResponse:
    task = tasks.load_task(store, slug)
    figures = results.load_figures(store, slug, may_write=has_scope(request, Scope.WRITE))
    return render(
        request,
        "annotation/task.html",
        task=task,
        grades=grade_names(task),
        budget=figures.budget,
        agreement=figures.agreement,
        recall=figures.recall,
        disagreements=figures.disagreements[:_SHOWN_DISAGREEMENTS],
        disputed=sum(one["adjudicated"] is None for one in figures.disagreements),
        adopted=adopted,
        plan=figures.plan,
    )


@router.post("/tasks/{slug}/regrade")
def have_graded_again(store: StoreDep, slug: str) -> Response:
    """Have everybody grade the texts that no retriever ranked and one person alone called relevant."""
    results.have_graded_again(store, slug)
    return RedirectResponse(f"/tasks/{quote(slug)}#recall", status_code=303)


GRADES = ("Not relevant", "Relevant", "Highly relevant", "Perfect")
GUIDELINE: Final = (
    "it does not help with the question, though its topic may be near",
    "it holds a part of the answer, or leads to it",
    "it answers the question, wholly or nearly",
    "it answers the question wholly, and is about nothing else",
)
"""What each grade stands for, as people who grade are told."""
"""Names of the grades."""
_COOKIE = "coalmine_annotator"
_LONGEST_NAME = 64
_LONGEST_SECONDS = 86_400
_YEAR_SECONDS = 31_536_000


@router.get("/annotate")
@needs(Scope.ANNOTATE)
def show_tasks_to_annotate(request: Request, store: StoreDep) -> HTMLResponse:
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
        found = annotations.next_item(store, slug, annotator=annotator, now=datetime.now(UTC))
        if item:
            again = annotations.load_item(store, slug, item, annotator=annotator)
            found = {**found, "item": again, "following": None}
    return render(
        request,
        "annotation/annotate.html",
        slug=slug,
        of_answers=task["answers"] is not None,
        of_pairs=task["pairs"] is not None,
        guideline=GUIDELINE,
        grades=grade_names(task),
        annotator=annotator,
        has_keys=request.state.identity.key_prefix is not None,
        found=found,
        state=task["state"],
        shown=round(time.time(), 1),
    )


@router.post("/tasks/{slug}/annotate")
@needs(Scope.ANNOTATE)
@takes_form(fields=4)
def annotate(request: Request, store: StoreDep, slug: str, form: FormInput) -> Response:
    """Store a grade, a skip or who annotates, or take the last annotation back."""
    page = f"/tasks/{quote(slug)}/annotate"
    name = form.stripped("annotator")
    if name:
        if len(name) > _LONGEST_NAME:
            raise InvalidInputError([Problem(path="annotator", message=f"has at most {_LONGEST_NAME} characters")])
        named = RedirectResponse(page, status_code=303)
        within = f"{sub_path(request.scope)}/tasks"
        named.set_cookie(_COOKIE, quote(name), max_age=_YEAR_SECONDS, path=within, httponly=True, samesite="strict")
        return named
    annotator = annotations.annotator_of(request.state.identity, _annotator(request))
    answer, now = form.get("answer"), datetime.now(UTC)
    if answer == "undo":
        try:
            back = annotations.undo(store, slug, annotator=annotator, now=now)
        except ConflictError:  # there is nothing to take back
            return RedirectResponse(page, status_code=303)
        token = back["item"]["id"] if back["item"] is not None else ""
        return RedirectResponse(f"{page}?item={quote(token)}", status_code=303)
    if answer != "skip" and answer not in map(str, range(len(GRADES))):
        raise InvalidInputError([Problem(path="answer", message="is a grade or 'skip'")])
    annotations.annotate(
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


def _annotator(request: Request) -> str | None:
    """Return the name of the key, or the one that was typed where there are no keys."""
    identity: Identity = request.state.identity
    if identity.key_prefix is not None:
        return identity.name
    return unquote(request.cookies.get(_COOKIE, ""))[:_LONGEST_NAME].strip() or None


def _seconds(shown: str) -> float | None:
    """Return the seconds since the page was made; None where that is not known."""
    try:
        seconds = time.time() - float(shown)
    except ValueError:
        return None
    return round(seconds, 1) if 0 <= seconds <= _LONGEST_SECONDS else None
