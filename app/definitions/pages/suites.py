"""The pages of suites: the list, one suite with its canaries and their state in every check, and its file.

Beside them the steps of setting up a check, which the pages of an empty service show.
"""

import io
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.annotation.service.results import load_suite_recalls
from app.base.api.requests import StoreDep, expensive, page_router, wake
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, Problem
from app.base.values import Category, Value, Verdict, replace
from app.base.web.forms import Form, FormInput, follow_form, problems_by_field, refuse_other
from app.base.web.pages import render
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.exchange import FORMATS
from app.catalog.service import references, suites
from app.catalog.store import FILE, Owned
from app.definitions.service import definitions
from app.records.service import suite_views
from app.records.service.suite_views import CanaryFilter
from app.scoring.suites import size_advice
from app.traffic.domain import ReachState
from app.traffic.service import reach

router = page_router()

FORMS: Mapping[str, str] = {
    "coalmine": "canary file (YAML)",
    "csv": "CSV",
    "jsonl": "Ragas, LangSmith, Langfuse, DeepEval (JSON)",
    "trec": "TREC topics and qrels",
    "beir": "BEIR",
    "quepid": "Quepid",
    "rre": "Rated Ranking Evaluator",
    "elasticsearch": "Elasticsearch rank_eval",
    "opensearch": "OpenSearch judgments",
    "llamaindex": "LlamaIndex",
}
"""Names of the import and export formats."""
TABS: Mapping[str, str] = {"": "Canaries", "traffic": "Traffic", "composition": "Composition", "export": "Export"}
"""Names of the parts of a suite's page, one at a time, by what asks for them."""
_FIRST_CANARIES = 20
"""Shown of a suite that a file owns."""
Word = Annotated[str, Query(max_length=200)]


@router.get("/suites")
def show_suites(request: Request, store: StoreDep) -> HTMLResponse:
    """Show every suite, with a note where it is thin."""
    return _list(request, store, Form())


@router.post("/suites")
def create_suite(request: Request, store: StoreDep, typed: FormInput) -> Response:
    """Create a suite without canaries; they are added on its page."""
    slug = typed.stripped("slug")

    def create() -> str:
        document = parse_document(SuiteDocument, {"slug": slug})
        suites.put_suite(store, document, now=datetime.now(UTC), only_new=True)
        return f"/suites/{quote(slug)}"

    def show(*, problems: tuple[Problem, ...], status: int) -> Response:
        return _list(
            request,
            store,
            typed,
            problems=tuple(replace(one, path=one.path or "slug") for one in problems),
            status=status,
        )

    return follow_form(create, show)


@router.get("/suites/{suite}")
def show_suite(
    request: Request,
    store: StoreDep,
    suite: str,
    canary_filter: Annotated[CanaryFilter, Depends()],
    show: Word = "",
    saved: Word = "",
) -> HTMLResponse:
    """Show one part of a suite; its canaries, those that match a filter, where none is chosen."""
    return _suite(request, store, suite, canary_filter, show=show if show in TABS else "", saved=saved)


@router.post("/suites/{suite}/archive")
def archive_suite(request: Request, store: StoreDep, suite: str) -> Response:
    """Archive a suite; its history stays."""
    try:
        definitions.archive(store, "suite", suite, now=datetime.now(UTC))
    except ConflictError as error:
        return _suite(request, store, suite, CanaryFilter(), show="export", refused=str(error), status=409)
    wake(request)
    return RedirectResponse("/suites", status_code=303)


@router.get("/suites/{suite}/export")
@expensive
def export_suite(
    store: StoreDep, suite: str, form: Annotated[str, Query(alias="format", max_length=20)] = "coalmine"
) -> Response:
    """Return a suite as a file: a canary file, or another tool's; several files as a ZIP."""
    document = definitions.load_suite_document(store, suite)
    if form == "coalmine":
        return _file(f"{suite}.yaml", "application/yaml", write_canary_file(Documents(suites=(document,))).encode())
    refuse_other(form, FORMS, "format")
    files = FORMATS[form].write(document).files
    if len(files) == 1:
        ((name, text),) = files.items()
        return _file(f"{suite}-{name}", "text/plain; charset=utf-8", text.encode())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return _file(f"{suite}-{form}.zip", "application/zip", packed.getvalue())


@router.get("/suites/{suite}/edit")
def show_edit(request: Request, store: StoreDep, suite: str) -> Response:
    """Show where the file of a suite is, and its beginning; a suite that the API manages is edited on its page."""
    owned = references.load_definition(store, "suite", suite)
    if owned.managed_by != FILE:
        return RedirectResponse(f"/suites/{quote(suite)}", status_code=303)
    begin = definitions.load_suite_document(store, suite, most=_FIRST_CANARIES)
    here = f"/suites/{quote(suite)}"
    return file_page(
        request,
        owned,
        write_canary_file(Documents(suites=(begin,))),
        name=suite,
        crumbs={"Suites": "/suites", suite: here},
        note=f"at most {_FIRST_CANARIES} canaries are shown",
        draft=(f"{here}/export", "Download as a canary file"),
    )


def file_page(
    request: Request,
    owned: Owned,
    yaml: str,
    *,
    name: str,
    crumbs: Mapping[str, str],
    refused: str = "",
    status: int = 200,
    **more: object,
) -> HTMLResponse:
    """Return the page where others have their form, for what a file owns: its YAML and where it is edited.

    `crumbs` are addresses by label, and `refused` says why a form that was sent all the same was not saved. More can
    be a `note` on the YAML, the address and label of a tool that writes YAML (`draft`), and the addresses of what
    checks measured of it (`histories`).
    """
    shown = {"note": "", "draft": None, "histories": {}, **more}
    return render(
        request,
        "definitions/of_file.html",
        status=status,
        owned=owned,
        yaml=yaml,
        name=name,
        crumbs=crumbs,
        refused=refused,
        **shown,
    )


def _file(name: str, kind: str, content: bytes) -> Response:
    safe = "".join(one if one.isalnum() or one in "-_." else "-" for one in name if one.isascii())
    return Response(content, media_type=kind, headers={"content-disposition": f'attachment; filename="{safe}"'})


def _list(
    request: Request, store: Store, typed: Form, *, problems: tuple[Problem, ...] = (), status: int = 200
) -> HTMLResponse:
    return render(
        request,
        "definitions/suites.html",
        size_advice=size_advice(),
        status=status,
        suites=suite_views.list_suites(store),
        typed=typed,
        wrong=problems_by_field(problems),
    )


def _suite(
    request: Request,
    store: Store,
    slug: str,
    canary_filter: CanaryFilter,
    *,
    show: str = "",
    saved: str = "",
    refused: str = "",
    status: int = 200,
) -> HTMLResponse:
    view = suite_views.load_suite_view(store, slug, canary_filter)
    traffic = reach.load_reaches(store, slug) if show == "traffic" else ()
    filters: dict[str, str] = {name: getattr(canary_filter, name) for name in ("text", "category", "tag", "state")}
    return render(
        request,
        "definitions/suite.html",
        size_advice=size_advice(),
        status=status,
        slug=slug,
        view=view,
        canary_filter=canary_filter,
        filters={name: value for name, value in filters.items() if value},
        verdicts=list(Verdict),
        every_category=list(Category),
        forms=FORMS,
        saved=saved,
        setup=list_setup_steps(store, suite=slug) if saved and not view.checks else (),
        refused=refused,
        show=show,
        tabs=TABS,
        pooled_recall=load_suite_recalls(store, slug) if show == "composition" else (),
        traffic=traffic,
        composition=suites.load_composition(store, slug) if show == "composition" else None,
        asking=any(one.reach is not None and one.reach["state"] is ReachState.ASKING for one in traffic),
    )


class SetupStep(Value):
    """What is made in a step, and where."""

    name: str
    text: str
    """What it is for, as a sentence without full stop."""
    link: str
    button: tuple[str, str]
    """What a button that begins it says, and where that leads."""
    done: bool = False


def list_setup_steps(store: Store, *, suite: str = "", retriever: str = "") -> tuple[SetupStep, ...]:
    """List the steps in their order, those done marked; the check, which is of `suite` and `retriever`, never is.

    The hook comes before the check, which is saved with its hooks.
    """
    chosen = {name: slug for name, slug in (("suite", suite), ("retriever", retriever)) if slug}
    new_check = "/new-check" + (f"?{urlencode(chosen)}" if chosen else "")
    return (
        SetupStep(
            name="A retriever",
            text="the search API that is watched",
            link="/new-retriever",
            button=("Connect a retriever", "/new-retriever"),
            done=bool(references.load_definitions(store, "retriever")),
        ),
        SetupStep(
            name="A suite of canaries",
            text=f"queries with known expected chunks, typed or imported. {size_advice()}",
            link="/suites",
            button=("Import queries and judgments", "/import"),
            done=any(one.canaries for one in suite_views.list_suites(store)),
        ),
        SetupStep(
            name="A hook",
            text="who is notified of an alert: webhook, Slack, PagerDuty, email. The form of a check lists the hooks",
            link="/new-hook",
            button=("New hook", "/new-hook"),
            done=bool(references.load_definitions(store, "hook")),
        ),
        SetupStep(
            name="A check",
            text="sends the queries to the retriever on a schedule and opens an alert when the answers get worse",
            link=new_check,
            button=("New check", new_check),
        ),
    )
