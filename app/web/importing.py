"""Importing a suite from files: what would change is shown first, and then put in force as the API would."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import UploadFile

from app.api.catalog import wake
from app.api.deps import StoreDep, VaultDep, needs
from app.api.exchange import from_canary_files, from_files
from app.api.schemas import SuiteFiles
from app.domain.errors import ConflictError, InvalidInputError, Problem
from app.formats.canary_files import Documents
from app.formats.complaints import parse_document
from app.services import applying, thinness
from app.services.keys import Scope
from app.services.references import API
from app.services.vault import Vault
from app.store.engine import Store
from app.web.forms import LONGEST_PART, Typed, beside, named
from app.web.parameters import refuse_other
from app.web.rendering import render
from app.web.suites import FORMS

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_MOST_FILES, _MOST_FIELDS = 50, 120
_SHOWN_CHANGES = 200
_PASTED = {
    "csv": "pasted.csv",
    "quepid": "pasted.csv",
    "jsonl": "pasted.jsonl",
    "beir": "queries.jsonl",
    "trec": "topics.tsv",
    "rre": "ratings.json",
}
_LABELS = {"files": "Files", "format": "What they are", "suite": "Name of the suite", "pasted": "Or their text"}
Word = Annotated[str, Query(max_length=64)]


@router.get("/import")
def show_import(request: Request, suite: Word = "") -> HTMLResponse:
    """Show the form."""
    return _page(request, Typed(texts={"suite": suite, "format": "csv"}), {})


@router.post("/import")
@needs(Scope.ADMIN)
async def import_files(request: Request, store: StoreDep, vault: VaultDep) -> Response:
    """Say what files would change or, once that was seen, put them in force."""
    async with request.form(max_files=_MOST_FILES, max_fields=_MOST_FIELDS, max_part_size=LONGEST_PART) as form:
        texts = {name: value for name, value in form.multi_items() if isinstance(value, str)}
        uploads = [one for one in form.getlist("files") if isinstance(one, UploadFile) and one.filename]
        read = [(str(one.filename), await one.read()) for one in uploads]
    typed = Typed(texts=texts)
    return await anyio.to_thread.run_sync(partial(_imported, request, store, vault, typed, read))


def _imported(request: Request, store: Store, vault: Vault, typed: Typed, uploads: list[tuple[str, bytes]]) -> Response:
    files: dict[str, str] = {}
    try:
        files = _files(typed, uploads)
        wanted, notes = _wanted(store, _planned(typed), files)
        if typed.get("do") == "apply":
            applying.apply(store, vault, wanted, managed_by=API, now=datetime.now(UTC))
            wake(request)
            return RedirectResponse(_where(wanted), status_code=303)
        changes = applying.diff(store, vault, wanted, managed_by=API, now=datetime.now(UTC))
    except InvalidInputError as error:
        return _page(request, typed, files, problems=error.problems, status=422)
    except ConflictError as error:
        return _page(request, typed, files, problems=(Problem(message=str(error)),), status=409)
    thin = thinness.notes_on_plan(store, wanted, managed_by=API)
    plan = {"changes": changes[:_SHOWN_CHANGES], "total": len(changes), "notes": [*notes, *thin]}
    return _page(request, typed, files, plan=plan)


def _planned(typed: Typed) -> Typed:
    """Give the form as it was when the plan was shown: nothing else is put in force, whatever was typed since."""
    if typed.get("do") != "apply":
        return typed
    said = {name: typed.get(f"planned.{name}") for name in ("format", "suite", "as_documents")}
    return Typed(texts={**typed.texts, **said}, many=typed.many)


def _files(typed: Typed, uploads: list[tuple[str, bytes]]) -> dict[str, str]:
    """Gather the texts by name: uploaded, pasted, or carried along from the plan. Raises InvalidInputError."""
    carried = {
        typed.get(f"file[{place}].name"): typed.get(f"file[{place}].text")
        for place in range(_MOST_FILES)
        if typed.get(f"file[{place}].name")
    }
    if typed.get("do") == "apply":
        if not carried:
            raise InvalidInputError([Problem(path="files", message="look first at what would change")])
        return carried
    found: dict[str, str] = {}
    for name, content in uploads:
        if len(content) > LONGEST_PART:
            raise InvalidInputError([Problem(path="files", message=f"'{name[:60]}' has more than 5 MB; use the API")])
        try:
            found[name.rpartition("/")[2][:256]] = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InvalidInputError([Problem(path="files", message=f"'{name[:60]}' is not UTF-8 text")]) from None
    if typed.stripped("pasted"):
        found[_PASTED.get(typed.get("format"), "pasted.yaml")] = typed.get("pasted")
    if not found:
        raise InvalidInputError([Problem(path="files", message="choose a file, or paste its text")])
    return found


def _wanted(store: Store, typed: Typed, files: Mapping[str, str]) -> tuple[Documents, tuple[str, ...]]:
    form = typed.get("format")
    refuse_other(form, FORMS, "format")
    if form == "coalmine":
        return from_canary_files(store, files), ()
    body: dict[str, Any] = {"files": dict(files), "as_documents": bool(typed.get("as_documents"))}
    return from_files(form, typed.stripped("suite") or None, parse_document(SuiteFiles, body))


def _where(wanted: Documents) -> str:
    if len(wanted.suites) == 1:
        return f"/suites/{quote(wanted.suites[0].slug)}?saved=imported"
    return "/suites"


def _page(
    request: Request,
    typed: Typed,
    files: Mapping[str, str],
    *,
    plan: Mapping[str, Any] | None = None,
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> HTMLResponse:
    wrong = beside(problems)
    return render(
        request,
        "import.html",
        status=status,
        typed=typed,
        files=files if plan else {},
        plan=plan,
        problems=named(problems, _LABELS),
        wrong=wrong,
        forms_known=FORMS,
    )
