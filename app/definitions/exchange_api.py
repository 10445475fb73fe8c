"""REST routes of import and export: canary files, and suites in other tools' formats."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from typing import Annotated, Literal

import msgspec
from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import StringConstraints

from app.base.api.bodies import Content, SuiteFiles, YamlResponse, json_body, reference, text_answers
from app.base.api.requests import StoreDep, VaultDep, api_router, expensive, needs, wake
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.documents.fields import one_line, parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.texts import Source
from app.catalog.documents.canary_files import CanaryFile, Documents, join_pages, read_canary_files
from app.catalog.documents.warnings import find_warnings
from app.catalog.exchange import FORMATS, archived_note
from app.catalog.exchange.csv import parse_columns
from app.catalog.exchange.suite_builder import Limits, SuiteBuilder, parse_grades
from app.catalog.service import references
from app.catalog.service import suites as suite_plans
from app.catalog.store import API
from app.catalog.views import ExportedFiles, ImportOutcome
from app.definitions.api import only_reads
from app.definitions.service import applying, definitions
from app.hooks.service.hooks import notes_on_hooks

router = api_router("catalog")

Form = Literal["coalmine", "trec", "beir", "csv", "quepid", "rre", "jsonl", "elasticsearch", "opensearch", "llamaindex"]
Named = Annotated[str | None, Query(max_length=64)]
_FILE = reference(CanaryFile)
_IMPORT_BODY = json_body({"anyOf": [_FILE, {"type": "array", "items": _FILE}, reference(SuiteFiles)]})


@router.post("/import", openapi_extra=_IMPORT_BODY, response_model=ImportOutcome)
@needs(Scope.ADMIN)
@expensive
def import_documents(  # noqa: PLR0913 - a parameter for each
    store: StoreDep,
    vault: VaultDep,
    request: Request,
    body: Content,
    *,
    form: Annotated[Form, Query(alias="format")] = "coalmine",
    suite: Named = None,
    as_documents: bool = False,
    split: Annotated[str | None, Query(max_length=64)] = None,
    grades: Annotated[str | None, Query(max_length=1000)] = None,
    column: Annotated[list[Annotated[str, StringConstraints(max_length=1000)]] | None, Query(max_length=50)] = None,
    dry_run: bool = False,
) -> Response:
    """Apply documents as API-managed objects, in one transaction; `dry_run` only returns the changes.

    Without a format the body is a canary file as JSON, a list of them, or `{"files": {name: text}}` with YAML, without
    variables. With a format it is `{"files": {name: text}}`, the files of another tool, imported as the suite `suite`.
    `as_documents`: their ids are documents, not chunks. `split`: of BEIR files with several qrels, `qrels/SPLIT.tsv` is
    read. `grades`: a map of their grades such as `1=0,4=3`, or their scale such as `0-4`; else grades above 3 become 3.
    `column`: the meaning of a CSV column as `NAME=COLUMN`, repeatable: `column=article=id&column=note=ignore`.
    `notes` list losses, thin suites and unreachable hooks, `warnings` definitions without effect. A response of the
    export can be sent as it is.
    """
    notes: Sequence[str] = ()
    if form == "coalmine" and isinstance(body, dict) and "files" in body:
        documents = from_canary_files(store, parse_document(SuiteFiles, body).files)
    elif form == "coalmine":
        documents = join_pages(
            [parse_document(CanaryFile, one) for one in (body if isinstance(body, list) else [body])]
        )
    else:
        suite_files = parse_document(SuiteFiles, body)
        documents, notes = from_files(
            form, suite, suite_files, as_documents=as_documents, split=split, grades=grades, columns=column or ()
        )
    if dry_run:
        changes = applying.diff(store, vault, documents, managed_by=API, now=datetime.now(UTC))
    else:
        changes = applying.apply(store, vault, documents, managed_by=API, now=datetime.now(UTC))
        wake(request)
    notes = [*notes, *suite_plans.notes_on_plan(store, documents, managed_by=API), *_notes_on_hooks(request, documents)]
    archived = sum(one.action == "archive" and one.kind == "canary" for one in changes)
    if archived and form != "coalmine":
        notes.append(archived_note(archived))
    warnings = [
        {name: value for name in ("file", "line", "path", "message") if (value := getattr(one, name)) is not None}
        for one in find_warnings(documents)
    ]
    outcome = {"applied": not dry_run, "changes": changes, "notes": notes, "warnings": warnings}
    # Not validated: that takes seconds for a hundred thousand changes.
    return Response(msgspec.json.encode(outcome), media_type="application/json")


def _notes_on_hooks(request: Request, documents: Documents) -> list[str]:
    state = request.app.state
    found = notes_on_hooks(state.hook_policy, [hook.data() for hook in documents.hooks], state.look_up)
    return [f"hook {slug}: {note}" for slug, note in found]


@router.get("/export", response_model=ExportedFiles, responses=text_answers(200, types=(YamlResponse.media_type,)))
@expensive
def export_documents(
    store: StoreDep, request: Request, *, form: Annotated[Form, Query(alias="format")] = "coalmine", suite: Named = None
) -> Response:
    """Export all definitions as a canary file; secrets become `${VARIABLES}`.

    For keys without scope admin, webhook addresses with a path are secrets too.

    With a format, one suite as another tool's files: `{"files": {name: text}, "notes": [losses]}`.
    """
    if form == "coalmine":
        return YamlResponse(definitions.write_all(store, for_readers=only_reads(request)))
    written = FORMATS[form].write(definitions.load_suite_document(store, suite))
    return JSONResponse({"files": dict(written.files), "notes": list(written.notes)})


def from_files(
    form: str,
    suite: str | None,
    suite_files: SuiteFiles,
    *,
    as_documents: bool = False,
    split: str | None = None,
    grades: str | None = None,
    columns: Sequence[str] = (),
) -> tuple[Documents, tuple[str, ...]]:
    """Return the suite of another tool's files, and notes on losses. Raises InvalidInputError.

    `columns`: the meaning of CSV columns, as `NAME=COLUMN`.
    """
    if suite is None:
        raise InvalidInputError([Problem(path="suite", message="the name of the suite is missing: ?suite=NAME")])
    builder = SuiteBuilder(
        as_document=as_documents or suite_files.as_documents,
        limits=Limits(),
        grades=parse_grades(grades),
        columns=parse_columns(columns, form),
    )
    # Lines end at line feeds only, as in a file: texts may contain other separators.
    sources = [
        Source(name=name, lines=partial(StringIO, text))
        for name, text in _select_split(suite_files.files, split).items()
    ]
    FORMATS[form].read(sources, builder)
    imported = builder.build(suite)
    return Documents(suites=(imported.suite,)), imported.notes


def _select_split(files: Mapping[str, str], split: str | None) -> Mapping[str, str]:
    """Return the files without the qrels of other splits; None keeps all.

    Raises InvalidInputError where there are only qrels of other splits.
    """
    qrels = [name for name in files if name.rpartition("/")[0].rpartition("/")[2] == "qrels"]
    documents = [name for name in qrels if name.rpartition("/")[2] in {f"{split}.tsv", f"{split}.jsonl"}]
    if split is None or documents == qrels:
        return files
    if not documents:
        there = ", ".join(one_line(name) for name in qrels)
        raise InvalidInputError([Problem(path="split", message=f"there is no qrels/{split}.tsv; there are: {there}")])
    return {name: text for name, text in files.items() if name not in qrels or name in documents}


def from_canary_files(store: Store, files: Mapping[str, str]) -> Documents:
    """Return the documents of canary files from the network. Raises InvalidInputError with files and lines."""
    kinds = ("suite", "retriever", "hook", "judge")
    existing = {kind: [one.slug for one in references.load_definitions(store, kind)] for kind in kinds}
    return read_canary_files(list(files.items()), {}, None, existing=existing)
