"""The page of a suite's traffic: reach with the groups covered and not, suggestions that open a task, deletion."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from app.base.api.requests import StoreDep, takes_form, wake
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.web.forms import Form, FormInput, follow_form, parse_number
from app.base.web.pages import render
from app.traffic import service as traffic
from app.traffic.documents import ForgetRequest, ReachRequest, SuggestionsRequest

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_SUGGESTIONS = 50


@router.get("/suites/{suite}/traffic")
def show_traffic(request: Request, store: StoreDep, suite: str) -> HTMLResponse:
    """Show the traffic of a suite by retriever; its queries only to those who may write."""
    return _page(request, store, suite)


@router.post("/suites/{suite}/reach")
@takes_form(fields=3)
def measure_reach(request: Request, store: StoreDep, suite: str, form: FormInput) -> Response:
    """Ask a sample of the traffic."""
    parts = form.stripped("parts")
    group = {"separator": form.stripped("separator"), "parts": parse_number(parts)} if parts else None

    def measure() -> str:
        wish = parse_document(ReachRequest, {"retriever": form.get("retriever"), "group": group})
        traffic.request_reach(store, suite, wish.retriever, grouping=wish.group, now=datetime.now(UTC))
        wake(request)
        return f"/suites/{quote(suite)}/traffic"

    return follow_form(measure, partial(_page, request, store, suite))


@router.post("/suites/{suite}/suggestions")
@takes_form(fields=_SUGGESTIONS + 2)
def take_up_suggestions(request: Request, store: StoreDep, suite: str, form: FormInput) -> Response:
    """Make canaries of the chosen suggestions, and a task of them."""
    fields = {"retriever": form.get("retriever"), "task": form.stripped("task"), "queries": list(form.all("queries"))}

    def open_task() -> str:
        wish, by, now = parse_document(SuggestionsRequest, fields), request.state.identity.name, datetime.now(UTC)
        traffic.open_task(store, suite, wish.retriever, task=wish.task, queries=wish.queries, by=by, now=now)
        wake(request)
        return f"/tasks/{quote(wish.task)}"

    return follow_form(open_task, partial(_page, request, store, suite, form=form))


@router.post("/suites/{suite}/traffic/delete")
@takes_form(fields=2)
def delete_traffic(request: Request, store: StoreDep, suite: str, form: FormInput) -> Response:
    """Delete one query, or the traffic of a retriever."""
    try:
        wish = parse_document(ForgetRequest, {name: form.get(name) or None for name in ("retriever", "query")})
    except InvalidInputError as error:
        return _page(request, store, suite, problems=error.problems, status=422)
    if wish.retriever is None and wish.query is None:
        return _page(request, store, suite, problems=(Problem(path="query", message="is missing"),), status=422)
    count = traffic.forget_traffic(store, suite, retriever=wish.retriever, query=wish.query)
    return _page(request, store, suite, deleted=count)


def _page(
    request: Request,
    store: Store,
    suite: str,
    *,
    form: Form | None = None,
    problems: Sequence[Problem] = (),
    deleted: int | None = None,
    status: int = 200,
) -> HTMLResponse:
    may_write = request.state.identity.scope.includes(Scope.WRITE)
    return render(
        request,
        "traffic/traffic.html",
        status=status,
        slug=suite,
        traffic=traffic.load_reaches(store, suite, suggestions=_SUGGESTIONS if may_write else 0),
        typed=form or Form(),
        problems=problems,
        deleted=deleted,
    )
