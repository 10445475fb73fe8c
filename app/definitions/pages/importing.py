"""The page of imports: shows the planned changes of files first, then applies them as the API does."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from typing import Annotated
from urllib.parse import quote

import anyio.to_thread
from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import UploadFile

from app.base.api.bodies import SuiteFiles
from app.base.api.requests import (
    LARGE_FORM,
    LONGEST_FIELD,
    StoreDep,
    VaultDep,
    expensive,
    needs,
    page_router,
    read_form_data,
    takes_form,
    wake,
)
from app.base.db.engine import Store
from app.base.db.keys import Scope, Vault
from app.base.documents.fields import one_line, parse_document
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.texts import Source, decode_text, not_utf_8
from app.base.values import Value
from app.base.web.forms import Form, form_texts, label_problems, problems_by_field, refuse_other
from app.base.web.pages import render
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.warnings import find_warnings, text_of
from app.catalog.exchange.csv import COLUMN_LABELS, COLUMNS, IGNORED, column_of, header_of, list_columns, plain_name
from app.catalog.service import suites
from app.catalog.service.suites import Change
from app.catalog.store import API
from app.definitions.exchange_api import from_canary_files, from_files
from app.definitions.pages.suites import FORMS
from app.definitions.service import applying

router = page_router()

_MOST_FILES, _MOST_COLUMNS = 50, 50
_MOST_FIELDS = 220 + 2 * _MOST_COLUMNS
_COLUMN_FIELDS = tuple(f"column[{place}]" for place in range(_MOST_COLUMNS))
"""Each says `NAME=COLUMN` of a column of a CSV."""
_SHOWN_CHANGES = 200
_PASTED = {
    "csv": "pasted.csv",
    "quepid": "pasted.csv",
    "jsonl": "pasted.jsonl",
    "beir": "queries.jsonl",
    "trec": "topics.tsv",
    "rre": "ratings.json",
    "elasticsearch": "rank-eval.json",
    "opensearch": "judgments.json",
    "llamaindex": "dataset.json",
}
_LABELS = {"files": "Files", "format": "Format", "suite": "Suite name", "pasted": "Pasted text", "column": "Columns"}
_CARRIED_BYTES = 5_000_000
"""Most bytes of uploaded files that a refused form carries; a plan carries all."""


class ImportFile(Value):
    """A file that the form carries from one step to the next."""

    name: str
    text: str
    pasted: bool = False
    """Whether it is the pasted text, which the form shows anyway."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.text.encode(errors="surrogatepass"))


class Column(Value):
    """A column in the header of the files, and what it was said to be."""

    name: str
    column: str
    """Empty while nobody said what an unknown one is."""


Word = Annotated[str, Query(max_length=64)]


@router.get("/import")
def show_import(request: Request, suite: Word = "") -> HTMLResponse:
    """Show the form."""
    return _page(request, Form(texts={"suite": suite, "format": "csv"}), ())


@router.post("/import")
@takes_form(fields=_MOST_FIELDS, files=_MOST_FILES, most_bytes=LARGE_FORM)
@needs(Scope.ADMIN)
@expensive
async def import_files(request: Request, store: StoreDep, vault: VaultDep) -> Response:
    """Show the planned changes of files, or apply a shown plan."""
    form = await read_form_data(request)
    uploads = [one for one in form.getlist("files") if isinstance(one, UploadFile) and one.filename]
    read = [(str(one.filename), await one.read()) for one in uploads]
    await form.close()
    return await anyio.to_thread.run_sync(partial(_handle_import, request, store, vault, form_texts(form), read))


def _handle_import(
    request: Request, store: Store, vault: Vault, typed: Form, uploads: list[tuple[str, bytes]]
) -> Response:
    staged, problems = _read_files(typed, uploads)
    files = {one.name: one.text for one in staged}
    if problems:
        return _page(request, typed, staged, problems=tuple(problems), status=422)
    try:
        documents, notes = _read_documents(store, _planned_form(typed), files)
        if typed.get("do") == "apply":
            applying.apply(store, vault, documents, managed_by=API, now=datetime.now(UTC))
            wake(request)
            return RedirectResponse(_result_path(documents), status_code=303)
        changes = applying.diff(store, vault, documents, managed_by=API, now=datetime.now(UTC))
    except InvalidInputError as error:
        return _page(request, typed, staged, problems=error.problems, status=422)
    except ConflictError as error:
        return _page(request, typed, staged, problems=(Problem(message=str(error)),), status=409)
    warnings = [text_of(warning) for warning in find_warnings(documents)]
    thin = suites.notes_on_plan(store, documents, managed_by=API)
    plan = ImportPlan(
        changes=changes[:_SHOWN_CHANGES],
        total=len(changes),
        notes=[*warnings, *notes, *thin],
        canaries={f"{suite.slug}/{one.key}": one for suite in documents.suites for one in suite.canaries or ()},
    )
    return _page(request, typed, staged, plan=plan)


class ImportPlan(Value):
    """What an import would change."""

    changes: Sequence[Change]
    """The first of them."""
    total: int
    notes: Sequence[str]
    canaries: Mapping[str, CanaryDocument]
    """By `suite/key`, the name in changes."""


def _planned_form(typed: Form) -> Form:
    """Return the form with the values of the shown plan: later changes of the form are not applied."""
    if typed.get("do") != "apply":
        return typed
    names = ("format", "suite", "as_documents", "grades", *_COLUMN_FIELDS)
    planned = {name: typed.get(f"planned.{name}") for name in names}
    return Form(texts={**typed.texts, **planned}, lists=typed.lists)


def _read_files(typed: Form, uploads: list[tuple[str, bytes]]) -> tuple[list[ImportFile], list[Problem]]:
    """Return the files of a form and their problems: uploaded ones, else carried ones, and the pasted text.

    A plan is applied with the files it was shown for, which are the carried ones.
    """
    carried = _carried_files(typed)
    if typed.get("do") == "apply":
        return carried, [] if carried else [Problem(path="files", message="show the changes first")]
    files: dict[str, ImportFile] = {}
    problems: list[Problem] = []
    for name, content in uploads:
        if len(content) > LONGEST_FIELD:
            problems.append(Problem(path="files", message=f"'{name[:60]}' has more than 5 MB; use the API"))
            continue
        short = name.rpartition("/")[2][:256]
        try:
            files[short] = ImportFile(name=short, text=decode_text(content))
        except UnicodeDecodeError:
            problems.append(Problem(path="files", message=f"'{name[:60]}' {not_utf_8(short)}"))
    if not uploads and not typed.get("drop"):
        files = {one.name: one for one in carried if not one.pasted}
    if typed.stripped("pasted"):
        pasted_name = _PASTED.get(typed.get("format"), "pasted.yaml")
        files[pasted_name] = ImportFile(name=pasted_name, text=typed.get("pasted"), pasted=True)
    if not files and not problems:
        problems.append(Problem(path="files", message="choose a file, or paste its text"))
    return list(files.values()), problems


def _carried_files(typed: Form) -> list[ImportFile]:
    """Return the files that the form carries, since a browser cannot restore chosen files.

    Browsers send line breaks of texts as CRLF.
    """
    names = [(place, typed.get(f"file[{place}].name")) for place in range(_MOST_FILES)]
    return [
        ImportFile(
            name=name,
            text=typed.get(f"file[{place}].text").replace("\r\n", "\n"),
            pasted=typed.get(f"file[{place}].pasted") == "yes",
        )
        for place, name in names
        if name
    ]


def _read_documents(store: Store, typed: Form, files: Mapping[str, str]) -> tuple[Documents, tuple[str, ...]]:
    form = typed.get("format")
    refuse_other(form, FORMS, "format")
    if form == "coalmine":
        return from_canary_files(store, files), ()
    as_documents = bool(typed.get("as_documents"))
    suite_files = parse_document(SuiteFiles, {"files": dict(files), "as_documents": as_documents})
    assigned = _columns(typed, files) if form == "csv" else ()
    unknown = [one.name for one in assigned if not one.column]
    if unknown:
        names = ", ".join(f"`{one_line(name)}`" for name in unknown)
        message = f"What {'are' if len(unknown) > 1 else 'is'} {names}? Choose below."
        raise InvalidInputError([Problem(message=message)])
    grades, columns = typed.stripped("grades") or None, [f"{one.name}={one.column}" for one in assigned]
    return from_files(form, typed.stripped("suite") or None, suite_files, grades=grades, columns=columns)


def _columns(typed: Form, files: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the columns of the files as they were chosen in the form or are known by their names.

    A file with more columns than the form can ask about is left to be refused with its line.
    """
    headers = (header_of(Source(name=name, lines=partial(StringIO, text))) for name, text in files.items())
    names = {plain_name(name): name for header in headers for name in header if name}
    if len(names) > _MOST_COLUMNS:
        return ()
    pairs = (pair.rpartition("=") for pair in map(typed.get, _COLUMN_FIELDS))
    chosen = {plain_name(name): column for name, _, column in pairs if column in {*COLUMNS, IGNORED}}
    return tuple(
        Column(name=name, column=chosen.get(plain) or (column if (column := column_of(name, {})) in COLUMNS else ""))
        for plain, name in names.items()
    )


def _result_path(documents: Documents) -> str:
    if len(documents.suites) == 1:
        return f"/suites/{quote(documents.suites[0].slug)}?saved=imported"
    return "/suites"


def _files_to_carry(staged: Sequence[ImportFile], *, planned: bool) -> list[ImportFile]:
    """Return the files to put into the form: all of a plan; of a refused form the uploaded ones, while they fit."""
    if planned:
        return list(staged)
    carried: list[ImportFile] = []
    left = _CARRIED_BYTES
    for one in (one for one in staged if not one.pasted):
        left -= one.size
        if left >= 0:
            carried.append(one)
    return carried


def _page(
    request: Request,
    typed: Form,
    staged: Sequence[ImportFile],
    *,
    plan: ImportPlan | None = None,
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> HTMLResponse:
    wrong = problems_by_field(problems)
    files = {one.name: one.text for one in staged}
    return render(
        request,
        "definitions/import.html",
        status=status,
        typed=typed,
        staged=_files_to_carry(staged, planned=plan is not None),
        plan=plan,
        problems=label_problems(problems, _LABELS),
        wrong=wrong,
        forms_known=FORMS,
        columns=_columns(typed, files) if typed.get("format") == "csv" else (),
        column_labels=COLUMN_LABELS,
        known_columns=list_columns(),
    )
