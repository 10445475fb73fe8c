"""Pages of hooks: the list, one hook with its deliveries and a test, and the form; and the list of all deliveries."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.alerts.service import shown_alerts
from app.base.addresses import hook_remedy
from app.base.api.requests import StoreDep, VaultDep, needs, page_router, takes_form, wake
from app.base.db.engine import Store
from app.base.db.keys import Scope, Vault
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem, UnendedIncidentsError
from app.base.values import DeliveryState
from app.base.views import id_number
from app.base.web.forms import (
    Form,
    FormField,
    FormInput,
    document_body,
    document_texts,
    form_fields,
    is_partial,
    parse_form,
    parse_list,
    place_problems,
    read_revision,
    refuse_other,
    safe_path,
    with_hidden,
    with_revision,
)
from app.base.web.pages import render, spoken
from app.catalog.documents.secrets import secret_names
from app.catalog.service import references
from app.catalog.store import FILE, Definition
from app.definitions.api import only_reads
from app.definitions.pages.suites import file_page, list_setup_steps
from app.definitions.service import definitions
from app.hooks.documents import HOOK_KINDS, OPTIONAL_SECRETS, HookDocument
from app.hooks.domain import CANCELLED, DELIVERY_STATES, ERROR_WORDS, AttemptView, DeliveryView, HookReplay
from app.hooks.service import deliveries, hooks

MOST_FIELDS: Final = 20
ADDRESSES: Final = frozenset({"url", "host"})
"""Fields with the address a hook connects to."""
FORGET: Final = "forget"
"""Checkbox that deletes the stored secret, which otherwise stays where nothing is typed."""
KINDS: Final[Mapping[str, str]] = form_fields(HookDocument)["kind"].choices
"""Description of each kind of hook."""


@cache
def fields(kind: str) -> Mapping[str, FormField]:
    """Fields of a kind of hook."""
    return form_fields(HookDocument, kind=kind)


def typed(body: Mapping[str, Any]) -> Form:
    """Form of a stored hook."""
    return document_texts(fields(body["kind"]), body)


def document(
    form: Form, kind: str, slug: str, stored: Mapping[str, Any] | None, unread: list[Problem]
) -> dict[str, Any]:
    """Document of a form, not yet validated; null for a secret that stays as stored."""
    body = document_body(fields(kind), form, keeps_secrets=_keeps(form, kind, stored), unread=unread)
    return {**body, "slug": slug, "kind": kind}


def _keeps(form: Form, kind: str, stored: Mapping[str, Any] | None) -> bool:
    """Whether an empty secret stays as stored; a password is deleted with its user."""
    if stored is None or stored["kind"] != kind or form.get(FORGET):
        return False
    return "username" not in stored or bool(stored["username"] and form.stripped("username"))


router = page_router()

MOST_CHECKS: Final = 2_000
"""Checks that the page of a hook lists to be ticked."""
_RECENT = 10
_FORCE = "force"
"""Button of the form that saves though incidents stay open at the present receiver."""
_SOON = timedelta(seconds=30)
_EVERY, _EVERY_WHILE_WAITING = 1, 15  # seconds


@router.get("/hooks")
def show_hooks(request: Request, store: StoreDep) -> HTMLResponse:
    """Show every hook: destination, checks that use it, and delivery counts."""
    return render(
        request,
        "hooks/hooks.html",
        hooks=hooks.list_hooks(store, datetime.now(UTC), for_readers=only_reads(request)),
        kinds=KINDS,
    )


@router.get("/hooks/{slug}")
def show_hook(
    request: Request,
    store: StoreDep,
    slug: str,
    test: Annotated[str, Query(max_length=18)] = "",
    saved: Annotated[str, Query(max_length=3)] = "",
    changed: Annotated[int | None, Query(ge=0, le=2**31)] = None,
) -> HTMLResponse:
    """Show a hook with its newest deliveries and the result of a test that was just sent.

    After a save the next steps are shown, and the name in its address is resolved, to warn of one that is not allowed.
    """
    return _hook(request, store, slug, test=test, saved=bool(saved), changed=changed)


@router.post("/hooks/{slug}/test")
@needs(Scope.ADMIN)
def test_hook(request: Request, store: StoreDep, slug: str) -> Response:
    """Send a test message, like every alert."""
    try:
        delivery_id = deliveries.send_test(store, slug, now=datetime.now(UTC))
    except ConflictError as error:
        return _hook(request, store, slug, refused=str(error), status=409)
    wake(request)
    return RedirectResponse(f"/hooks/{quote(slug)}?test={delivery_id}#test", status_code=303)


@router.post("/hooks/{slug}/replay")
def replay_hook(request: Request, store: StoreDep, slug: str) -> Response:
    """Replay all dead deliveries of a hook, except those overtaken by a later notification."""
    try:
        done = hooks.replay_all(store, slug, now=datetime.now(UTC))
    except ConflictError as error:
        return _hook(request, store, slug, refused=str(error), status=409)
    wake(request)
    return _hook(request, store, slug, replayed=done)


@router.post("/hooks/{slug}/checks")
@takes_form(fields=MOST_CHECKS + 2)
def choose_checks(request: Request, store: StoreDep, vault: VaultDep, slug: str, form: FormInput) -> Response:
    """Let the ticked checks send their alerts to a hook, and those whose tick was taken away no longer.

    What was ticked when the page was opened is in the form: what others changed meanwhile stays.
    """
    shown = [one for one in _listed_checks(store) if one.managed_by != FILE]
    before, ticked = set(parse_list(form.get("before"))), set(form.all("checks"))
    added = {one.slug for one in shown} if form.get("do") == "all" else ticked - before
    try:
        changed = definitions.choose_checks(
            store, vault, slug, added=added, removed=before - ticked - added, now=datetime.now(UTC)
        )
    except InvalidInputError as error:
        return _hook(request, store, slug, refused="; ".join(map(str, error.problems)), status=422)
    except ConflictError as error:
        return _hook(request, store, slug, refused=str(error), status=409)
    wake(request)
    return RedirectResponse(f"/hooks/{quote(slug)}?changed={changed}#checks", status_code=303)


def _listed_checks(store: Store) -> list[Definition]:
    return list(references.load_definitions(store, "check")[:MOST_CHECKS])


@router.get("/new-hook")
def show_new(request: Request, kind: str = "") -> HTMLResponse:
    """Show the form of a new hook, after a choice of its kind."""
    if kind:
        refuse_other(kind, HOOK_KINDS, "kind")
    return _form(request, Form(texts={"kind": kind}), kind=kind)


@router.post("/new-hook/address")
@takes_form(fields=MOST_FIELDS)
@needs(Scope.ADMIN)
def judge_address(request: Request, form: FormInput) -> HTMLResponse:
    """Warn of a typed address that is not allowed; nothing is resolved or stored."""
    return render(request, "hooks/_reach.html", warnings=_warnings(request, form, form.stripped("kind")))


@router.post("/new-hook")
@takes_form(fields=MOST_FIELDS)
@needs(Scope.ADMIN)
def make_hook(request: Request, store: StoreDep, vault: VaultDep, form: FormInput) -> Response:
    """Create a hook; problems are shown beside the fields."""
    kind, slug = form.stripped("kind"), form.stripped("slug")
    try:
        refuse_other(kind, HOOK_KINDS, "kind")
        _save(store, vault, form, kind, slug, None, only_new=True)
    except InvalidInputError as error:
        return _form(request, form, kind=kind if kind in HOOK_KINDS else "", problems=error.problems, status=422)
    except ConflictError as error:
        taken = (Problem(path="slug", message=str(error)),)
        return _form(request, form, kind=kind, problems=taken, status=409)
    return _saved(request, slug)


@router.get("/hooks/{slug}/edit")
def show_edit(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show the form of a stored hook, without its secret."""
    found = references.load_definition(store, hooks.KIND, slug)
    stored = hooks.hook_for_caller(found, for_readers=only_reads(request))
    form = with_revision(typed(stored.body), stored.revision)
    return _form(request, form, kind=stored.body["kind"], stored=stored)


@router.post("/hooks/{slug}/edit")
@takes_form(fields=MOST_FIELDS)
@needs(Scope.ADMIN)
def change_hook(request: Request, store: StoreDep, vault: VaultDep, slug: str, form: FormInput) -> Response:
    """Change a hook; an empty secret keeps the stored one."""
    stored = references.load_definition(store, hooks.KIND, slug)
    again = partial(_form, request, form, kind=stored.body["kind"], stored=stored)
    try:
        revision, force = read_revision(form), bool(form.get(_FORCE))
        _save(store, vault, form, stored.body["kind"], slug, stored.body, revision=revision, force=force)
    except InvalidInputError as error:
        return again(problems=error.problems, status=422)
    except UnendedIncidentsError as error:
        return again(unended=error.finding, status=409)
    except ConflictError as error:
        return again(problems=(Problem(message=str(error)),), status=409)
    wake(request)
    return _saved(request, slug)


@router.post("/hooks/{slug}/archive")
@needs(Scope.ADMIN)
def archive_hook(
    request: Request, store: StoreDep, vault: VaultDep, slug: str, *, force: Annotated[bool, Query()] = False
) -> Response:
    """Archive a hook that no check uses; asks first while incidents are open at its receiver."""
    try:
        definitions.archive_hook(store, vault, slug, now=datetime.now(UTC), force=force)
    except UnendedIncidentsError as error:
        return _hook(request, store, slug, unended=error.finding, status=409)
    except ConflictError as error:
        return _hook(request, store, slug, refused=str(error), status=409)
    return RedirectResponse("/hooks", status_code=303)


def _save(
    store: Store, vault: Vault, form: Form, kind: str, slug: str, stored: Mapping[str, Any] | None, **how: Any
) -> None:
    """Save a hook. Raises InvalidInputError with everything that is wrong."""
    unread: list[Problem] = []
    body = document(form, kind, slug, stored, unread)
    if unread:
        parse_form(HookDocument, body, unread)
    try:
        definitions.save(store, vault, HookDocument, body, now=datetime.now(UTC), **how)
    except InvalidInputError as error:
        raise InvalidInputError(with_hidden(HookDocument, body, error.problems)) from None


def _saved(request: Request, slug: str) -> Response:
    address = f"/hooks/{quote(slug)}?saved=yes"
    if is_partial(request):
        return Response(headers={"hx-redirect": address})
    return RedirectResponse(address, status_code=303)


def _hook(  # noqa: PLR0913 - a parameter for each thing that may have happened
    request: Request,
    store: Store,
    slug: str,
    *,
    test: str = "",
    refused: str = "",
    replayed: HookReplay | None = None,
    saved: bool = False,
    changed: int | None = None,
    unended: str = "",
    status: int = 200,
) -> HTMLResponse:
    state = request.app.state
    line = hooks.find_hook(store, slug, datetime.now(UTC), for_readers=only_reads(request))
    recent = shown_alerts.list_deliveries(store, hook=slug, state=None, before=None, limit=_RECENT)
    tested = _test(store, slug, test) if test else None
    checks = _listed_checks(store)
    return render(
        request,
        "hooks/hook.html",
        status=status,
        line=line,
        hook=line.definition,
        fields=[one for one in _own_fields(line.definition.body["kind"]) if not one.widget.secret],
        secrets=secret_names(line.definition.body) if line.definition.secrets is not None else [],
        meaning=KINDS[line.definition.body["kind"]],
        recent=recent,
        test=tested,
        refresh_seconds=_refresh_seconds([*recent, *([tested] if tested else [])], datetime.now(UTC)),
        meanings=DELIVERY_STATES,
        refused=refused,
        unended=unended,
        warnings=hooks.hook_warnings(state.hook_policy, line.definition.body, state.look_up if saved else None),
        replayed=replayed,
        saved=saved,
        checks=checks,
        most_checks=MOST_CHECKS,
        changed=changed,
        setup=list_setup_steps(store) if saved and not checks else (),
    )


def _refresh_seconds(shown: Sequence[DeliveryView], now: datetime) -> int | None:
    """Seconds until the shown deliveries may change; None = they will not."""
    pending = [one for one in shown if one["state"] == DeliveryState.PENDING]
    due = [datetime.fromisoformat(one["next_attempt_at"] or "") for one in pending if one["waits_for"] is None]
    if due and min(due) - now < _SOON:
        return _EVERY
    return _EVERY_WHILE_WAITING if pending else None


def _test(store: Store, slug: str, test: str) -> DeliveryView:
    """Find a test message of this hook. Raises NotFoundError for any other delivery."""
    view = shown_alerts.delivery(store, id_number(test, "delivery"))
    if view["hook"] != slug or view["type"] != hooks.TEST:
        raise NotFoundError(f"hook '{slug}' has no test message '{test}'")
    return view


def _form(
    request: Request,
    form: Form,
    *,
    kind: str,
    stored: Any = None,
    problems: tuple[Problem, ...] = (),
    unended: str = "",
    status: int = 200,
) -> HTMLResponse:
    if stored is not None and stored.managed_by == FILE:
        crumbs = {"Hooks": "/hooks", stored.slug: f"/hooks/{quote(stored.slug)}"}
        yaml = definitions.write_one(stored, for_readers=only_reads(request))
        refused = "; ".join(one.message for one in problems)
        return file_page(request, stored, yaml, name=stored.slug, crumbs=crumbs, refused=refused, status=status)
    shown = fields(kind).keys()
    wrong, others = place_problems(problems, shown)
    return render(
        request,
        "hooks/hook_form.html",
        status=200 if is_partial(request) else status,
        kinds=KINDS,
        kind=kind,
        name=fields(kind)["slug"],
        fields=_own_fields(kind),
        addresses=ADDRESSES,
        optional=kind in OPTIONAL_SECRETS,
        has_secret=stored is not None and stored.secrets is not None,
        stored=stored,
        typed=form,
        wrong=wrong,
        problems=others,
        any_problem=bool(problems),
        unended=unended,
        warnings=_warnings(request, form, kind),
    )


def _own_fields(kind: str) -> list[FormField]:
    """Fields of a kind, without name and kind."""
    return [one for path, one in fields(kind).items() if path not in ("slug", "kind")]


def _warnings(request: Request, form: Form, kind: str) -> list[str]:
    """Why a hook could not reach the typed address, unless it is a name; see `hook_warnings`."""
    hook = {"kind": kind, "url": form.stripped("url"), "host": form.stripped("host")}
    return hooks.hook_warnings(request.app.state.hook_policy, hook)


_DELIVERIES = 25


@router.get("/deliveries")
def show_deliveries(
    request: Request,
    store: StoreDep,
    state: str = "",
    hook: Annotated[str, Query(max_length=64)] = "",
    alert: Annotated[str, Query(max_length=18)] = "",
    after: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> HTMLResponse:
    """Show deliveries, newest first."""
    refuse_other(state, ("", *DeliveryState), "state")
    return _deliveries(request, store, state=state, hook=hook, alert=alert, after=after)


@router.post("/deliveries/{delivery_id}/replay")
@takes_form(fields=4)
def replay_delivery(request: Request, store: StoreDep, delivery_id: str, form: FormInput) -> Response:
    """Put a dead delivery back into the outbox, and redirect to the page of the request."""
    back = safe_path(form.get("next"))
    number = id_number(delivery_id, "delivery")
    try:
        hooks.replay(store, number, now=datetime.now(UTC))
    except ConflictError as error:
        view = shown_alerts.delivery(store, number)
        alert = view["alert_id"] or ""
        return _deliveries(request, store, hook=view["hook"], alert=alert, refused=str(error), status=409)
    wake(request)
    return RedirectResponse(f"{back if back != '/' else '/deliveries'}#delivery-{number}", status_code=303)


def _deliveries(
    request: Request,
    store: Store,
    *,
    state: str = "",
    hook: str = "",
    alert: str = "",
    after: int | None = None,
    refused: str = "",
    status: int = 200,
) -> HTMLResponse:
    views = shown_alerts.list_deliveries(
        store,
        hook=hook or None,
        state=state or None,
        alert_id=id_number(alert, "alert") if alert else None,
        before=after,
        limit=_DELIVERIES + 1,
    )
    filters = {name: value for name, value in {"hook": hook, "alert": alert}.items() if value}
    return render(
        request,
        "hooks/deliveries.html",
        status=status,
        deliveries=views[:_DELIVERIES],
        following=views[_DELIVERIES - 1]["id"] if len(views) > _DELIVERIES else None,
        state=state,
        hook=hook,
        alert=alert,
        filters=urlencode(filters),
        here="/deliveries?" + urlencode({**filters, **({"state": state} if state else {})}),
        states=list(DeliveryState),
        hooks=[one.slug for one in references.load_definitions(store, hooks.KIND)],
        meanings=DELIVERY_STATES,
        first=after is None,
        refused=refused,
    )


_OTHER_DELIVERIES: Final = {"hook.test": "test message", "report.ready": "report"}


def delivery_word(delivery: str) -> str:
    """Word for the type of a delivery: `alert.opened` as opened, `hook.test` as test message."""
    return _OTHER_DELIVERIES.get(delivery) or spoken(delivery.removeprefix("alert."))


def failure(attempt: AttemptView) -> str:
    """Why an attempt failed; empty for one that did not."""
    error, detail = attempt["error"], attempt["detail"]
    if error is None:
        return detail or ""
    if error == "blocked" and detail:  # the detail is a whole sentence
        return detail
    word = ERROR_WORDS.get(error, spoken(error))
    return f"{word}: {detail}" if detail else word


def remedy(attempt: AttemptView) -> str:
    """How to allow the address of a blocked attempt, where a setting does; empty for any other attempt."""
    detail = attempt["detail"] or ""
    if attempt["error"] != "blocked" or "COALMINE_HOOK_ALLOW" in detail:  # in the detail of newer attempts
        return ""
    return hook_remedy(detail)


def undelivered(delivery: DeliveryView) -> str:
    """Why a delivery is not sent any more; empty where it was or will be. Releases before stored another for some."""
    if delivery["state"] == DeliveryState.CANCELLED:
        return CANCELLED
    return (delivery["reason"] or "") if delivery["state"] == DeliveryState.DEAD else ""


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "delivery_word": delivery_word,
    "failure": failure,
    "remedy": remedy,
    "undelivered": undelivered,
}
"""For templates."""
