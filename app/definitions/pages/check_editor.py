"""The page of a check's form: suite, retriever, schedule, alert rules, notifications, reports; and all reports."""

import calendar
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from difflib import ndiff
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from app.alerts.documents import RuleDocument, read_rules, rules_yaml
from app.alerts.domain.rules import ALWAYS, is_silent_about_quality
from app.base.api.requests import StoreDep, VaultDep, page_router, wake
from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import Scope, Vault
from app.base.documents.fields import LONGEST_SLUG
from app.base.errors import ConflictError, ForbiddenError, InvalidInputError, Problem
from app.base.schedules import cron_preview
from app.base.values import RuleKind, Trigger, replace
from app.base.web.forms import (
    Form,
    FormField,
    FormInput,
    document_body,
    document_texts,
    field_labels,
    form_fields,
    label_problems,
    parse_form,
    parse_number,
    problems_by_field,
    read_revision,
    refuse_other,
    with_revision,
)
from app.base.web.pages import capitalize_first, render
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.documents.warnings import blind_to_recall_reason
from app.catalog.service import references
from app.catalog.store import FILE, Definition, refuse_file_managed
from app.definitions.pages.suites import file_page
from app.definitions.service import definitions
from app.hooks.domain import TAKES_NO_REPORT
from app.plants.documents import plant_yaml, read_plant
from app.records.service import suite_views
from app.runs.service import due_checks

router = page_router()

Word = Annotated[str, Query(max_length=64)]


@router.get("/new-check")
def show_new(request: Request, store: StoreDep, suite: Word = "", retriever: Word = "") -> HTMLResponse:
    """Show the form of a new check with its defaults."""
    hooks = tuple(one.slug for one in references.load_definitions(store, "hook"))
    texts = {**DEFAULTS, "suite": suite, "retriever": retriever}
    typed = Form(texts=texts, lists={"hooks": hooks if len(hooks) == 1 else ()})
    return _page(request, store, None, typed)


@router.post("/new-check")
def create_check(request: Request, store: StoreDep, vault: VaultDep, typed: FormInput) -> Response:
    """Save a new check and, if ticked, run it at once."""
    return _handle(request, store, vault, None, typed)


@router.get("/checks/{slug}/edit")
def show_edit(request: Request, store: StoreDep, slug: str, report: Word = "") -> HTMLResponse:
    """Show the form of a check; of one that a file owns its YAML too, and no form to those who may only read.

    `report`: with a weekly one, where there is none yet.
    """
    definition = references.load_definition(store, "check", slug)
    may_write = request.state.identity.scope.includes(Scope.WRITE)
    if definition.managed_by == FILE and not may_write:
        crumbs = {"Checks": "/", slug: f"/checks/{quote(slug)}"}
        return file_page(request, definition, definitions.write_one(definition), name=slug, crumbs=crumbs)
    typed = _form_of(definition)
    if report and definition.body["report"] is None:
        kinds = {one.slug: one.body["kind"] for one in references.load_definitions(store, "hook")}
        fit = tuple(one for one in definition.body["hooks"] if kinds.get(one) not in TAKES_NO_REPORT)
        texts, lists = {**typed.texts, "report.day": _WEEKLY}, {**typed.lists, "report.hooks": fit}
        typed = replace(typed, texts=texts, lists=lists)
    yaml = _unchanged(definition) if definition.managed_by == FILE else ""
    with suppress(InvalidInputError):  # such as a report to nobody
        yaml = yaml and _written_for_file(_document(definition, typed))
    return _page(request, store, definition, typed, yaml=yaml)


@router.get("/reports")
def show_reports(request: Request, store: StoreDep) -> HTMLResponse:
    """Show which checks send a report, when and to whom; those that send none come last."""
    checks = references.load_definitions(store, "check")
    hooks = [one.slug for one in references.load_definitions(store, "hook") if one.body["kind"] not in TAKES_NO_REPORT]
    ordered = sorted(checks, key=lambda one: one.body["report"] is None)
    return render(request, "definitions/reports.html", checks=ordered, hooks=hooks)


@router.get("/cron-words", response_class=PlainTextResponse)
def show_cron_words(
    cron: Annotated[str, Query(max_length=256)] = "", timezone: Annotated[str, Query(max_length=64)] = ""
) -> str:
    """Say what a typed cron means, with its next dates, or what is wrong with it."""
    try:
        return capitalize_first(cron_preview(cron, timezone, datetime.now(UTC)) if cron.strip() else "")
    except ValueError as error:
        return str(error)


@router.post("/checks/{slug}/edit")
def change_check(request: Request, store: StoreDep, vault: VaultDep, slug: str, typed: FormInput) -> Response:
    """Save a changed check, or write it as YAML."""
    return _handle(request, store, vault, slug, typed)


@router.post("/checks/{slug}/archive")
def archive_check(request: Request, store: StoreDep, slug: str) -> Response:
    """Archive a check: no more runs, open alerts resolve, history stays."""
    definition = references.load_definition(store, "check", slug)
    try:
        definitions.archive(store, "check", slug, now=datetime.now(UTC))
    except ConflictError as error:
        problems = (Problem(message=str(error)),)
        return _page(
            request, store, definition, _form_of(definition), problems=problems, refused="Not archived:", status=409
        )
    wake(request)
    return RedirectResponse("/", status_code=303)


def _handle(request: Request, store: Store, vault: Vault, slug: str | None, typed: Form) -> Response:
    definition = references.load_definition(store, "check", slug) if slug is not None else None
    try:
        document = _document(definition, typed)
        if typed.get("do") == "yaml":
            return _page(request, store, definition, typed, yaml=_written_for_file(document))
        if definitions.plants_elsewhere(document, None if definition is None else definition.body):
            keys.require(request.state.identity, Scope.ADMIN)
        put = partial(definitions.put, store, vault, document, now=datetime.now(UTC))
        if definition is None:
            put(only_new=True)
        else:
            refuse_file_managed(definition, f"check '{definition.slug}'")
            put(revision=read_revision(typed))  # the one the form was opened with
    except InvalidInputError as error:
        return _page(request, store, definition, typed, problems=error.problems, status=422)
    except ConflictError as error:
        problems = (Problem(path="slug" if definition is None else None, message=str(error)),)
        return _page(request, store, definition, typed, problems=problems, status=409)
    except ForbiddenError as error:
        problems = (Problem(path="plant", message=str(error)),)
        return _page(request, store, definition, typed, problems=problems, status=403)
    if typed.get("now") and document.enabled:
        now = datetime.now(UTC)
        due_checks.run_now(
            store, document.slug, trigger=Trigger.PAGE, now=now, index_version=None, idempotency_key=None
        )
    wake(request)
    return RedirectResponse(f"/checks/{quote(document.slug)}?saved=yes", status_code=303)


def _document(definition: Definition | None, typed: Form) -> CheckDocument:
    unread: list[Problem] = []
    body = body_of(typed, definition.body if definition is not None else None, unread)
    unread += [
        Problem(path=kind, message="choose one, or create one first")
        for kind in ("suite", "retriever")
        if not body[kind]
    ]
    if not typed.stripped("slug") and unread:
        body["slug"] = "x"  # made of what is not chosen yet
    return parse_form(CheckDocument, body, unread)


def _form_of(definition: Definition) -> Form:
    return with_revision(form_of(definition.body), definition.revision)


def _written_for_file(document: CheckDocument) -> str:
    return write_canary_file(Documents(checks=(document,)))


def _unchanged(definition: Definition) -> str:
    """Return a check as YAML with its rules in the order in which the form writes them."""
    with suppress(InvalidInputError):
        return _written_for_file(_document(definition, _form_of(definition)))
    return definitions.write_one(definition)


def _marked(yaml: str, before: str) -> list[tuple[str, bool]]:
    """Return the lines of YAML, and of each whether it is not in the one `before`."""
    lines = [one for one in ndiff(before.splitlines(), yaml.splitlines()) if one[:2] in {"  ", "+ "}]
    return [(one[2:], one[0] == "+") for one in lines]


def _page(
    request: Request,
    store: Store,
    definition: Definition | None,
    typed: Form,
    *,
    problems: tuple[Problem, ...] = (),
    refused: str = "",
    yaml: str = "",
    status: int = 200,
) -> HTMLResponse:
    suites = suite_views.list_suites(store)
    hooks = [(one.slug, str(one.body["kind"])) for one in references.load_definitions(store, "hook")]
    placed = place_problems(typed, definition.body if definition is not None else None, problems)
    return render(
        request,
        "definitions/check_form.html",
        status=status,
        definition=definition,
        of_file=definition is not None and definition.managed_by == FILE,
        typed=typed,
        problems=label_problems(placed, LABELS),
        refused=refused or ("YAML not written:" if typed.get("do") == "yaml" else "Not saved:"),
        wrong=problems_by_field(placed, {*typed.texts, *FIELDS, "schedule", "rules", "plant", *RULES}),
        fields=FIELDS,
        suites=[one.definition.slug for one in suites],
        thin={one.definition.slug: one.limits[0] for one in suites if one.limits},
        retrievers=[one.slug for one in references.load_definitions(store, "retriever")],
        hooks=hooks,
        report_hooks=[one for one in hooks if one[1] not in TAKES_NO_REPORT or one[0] in typed.all("report.hooks")],
        report_days={NEVER: "no report", **REPORT_DAYS, BY_CRON: _BY_CRON_WORDS},
        hours=HOURS,
        yaml=_marked(yaml, _unchanged(definition) if yaml and definition is not None else yaml),
        warning=_warning(definition, typed),
    )


def _warning(definition: Definition | None, typed: Form) -> str | None:
    """Return what is missed by the rules as they are typed, where they are valid."""
    try:
        return blind_to_recall_reason(_document(definition, typed))
    except InvalidInputError:
        return None


COVERAGE, LATENCY, DETECTOR = "coverage", "latency", "regression"
FIELDS: Final[Mapping[str, FormField]] = form_fields(CheckDocument)
_OF_RULES: Final[Mapping[str, str]] = {
    "schedule": "every",
    "schedule.every": "5m",
    "rule.coverage.warning": "0.95",
    "rule.coverage.critical": "0.9",
    "rule.coverage.bad": "2",
    "rule.coverage.of": "3",
    "rule.coverage.close": "2",
    "rule.regression": "yes",
    "rule.latency.warning": "1",
    "rule.latency.critical": "",
    "report.hour": "8",
    "now": "yes",
}
NEVER, BY_CRON = "never", "cron"
_BY_CRON_WORDS: Final = "by cron expression"
REPORT_DAYS: Final[Mapping[str, str]] = {
    "* * *": "every day",
    "* * mon-fri": "Monday to Friday",
    **{f"* * {name[:3].lower()}": f"every {name}" for name in calendar.day_name},
    "1 * *": "on the first of the month",
}
"""Days of a report to choose from: what stands in a cron behind the hour, in words."""
_WEEKLY: Final = "* * mon"
HOURS: Final[Mapping[str, str]] = {str(hour): f"{hour:02}:00" for hour in range(24)}
DEFAULTS: Final[Mapping[str, str]] = {
    **document_texts(
        FIELDS, {name: CheckDocument.model_fields[name].default for name in ("k", "use", "remind", "enabled")}
    ).texts,
    **_OF_RULES,
}
"""Values of a new check's form: two bad runs of three open an alert, as a single bad run may be chance."""
LABELS: Final[Mapping[str, str]] = {
    **field_labels(FIELDS),
    "schedule": str(CheckDocument.model_fields["schedule"].title),
    "rule.regression": "Regression detector",
    "rule.coverage": "Coverage threshold",
    "rule.coverage.warning": "Coverage threshold, Warning below",
    "rule.coverage.critical": "Coverage threshold, Critical below",
    "rule.coverage.open": "Coverage threshold, Bad runs",
    "rule.coverage.close": "Coverage threshold, Good runs to close",
    "rule.latency": "Latency threshold",
    "rule.latency.warning": "Latency threshold, Warning above",
    "rule.latency.critical": "Latency threshold, Critical above",
    "rule.latency.open": "Latency threshold, Bad runs",
    "rule.latency.close": "Latency threshold, Good runs to close",
    "rules": "Rules as YAML",
    "plant": "Planted document as YAML",
    "report.day": "Report",
    "report.hour": "Hour of the report",
}
"""Labels of the fields."""
_SHOWN: Final = frozenset({"schedule", "rules", "report", "plant", *FIELDS})
_PLAIN = {
    COVERAGE: {"kind", "measure", "warning", "critical", "open", "close"},
    LATENCY: {"kind", "percentile", "warning", "critical", "open", "close"},
    DETECTOR: {"kind"},
}
_KEYS = {COVERAGE: "threshold-coverage", LATENCY: "latency-p95", DETECTOR: "regression"}
_RULE = re.compile(r"^rules\[([0-9]{1,9})\](.*?)(\.below|\.above)?$")
_NOT_ABOUT_QUALITY = {*ALWAYS, RuleKind.GUARD, RuleKind.PLANT}
_NO_DETECTOR = {"kind": RuleKind.REGRESSION, "enabled": False}
RULES: Final = frozenset(f"rule.{name}" for name in _KEYS)
"""Groups of fields that hold a rule each."""
_SIDE = {COVERAGE: "below", LATENCY: "above"}


def form_of(body: Mapping[str, Any]) -> Form:
    """Return the form of a check's body."""
    fetch_k = None if body["fetch_k"] == max(body["k"], 10) else body["fetch_k"]
    typed = document_texts(FIELDS, {**body, "fetch_k": fetch_k})
    texts = {
        **{name: text for name, text in _OF_RULES.items() if name.count(".") > 1},
        **typed.texts,
        "schedule": "every" if body["schedule"].get("cron") is None else "cron",
        **_report_texts(typed.get("report.cron")),
    }
    others = []
    rules = [RuleDocument.model_validate(one) for one in body["rules"]]
    if is_silent_about_quality(rule.kind for rule in rules):
        texts[f"rule.{DETECTOR}"] = "yes"
    # An unticked detector is stored as a disabled rule where no other rule is about quality.
    alone = is_silent_about_quality(rule.kind for rule in rules if rule.kind is not RuleKind.REGRESSION)
    for rule in rules:
        name = _field_group(rule)
        if name is not None:
            texts[f"rule.{name}"] = "yes"
            texts |= _bounds(name, rule)
        elif rule.model_dump(exclude_defaults=True, exclude={"key"}) != _NO_DETECTOR or not alone:
            others.append(rule)
    return replace(typed, texts={**texts, "rules": rules_yaml(others), "plant": plant_yaml(body.get("plant"))})


def body_of(typed: Form, stored: Mapping[str, Any] | None, unread: list[Problem] | None = None) -> dict[str, Any]:
    """Return the body of a check from its form.

    Raises InvalidInputError for invalid YAML of rules, unless its problems are to be added to `unread`.
    """
    unshown = {name: value for name, value in (stored or {}).items() if name not in _SHOWN}
    body = {**unshown, **document_body({path: one for path, one in FIELDS.items() if "." not in path}, typed)}
    try:
        others = read_rules(typed.get("rules"))
    except InvalidInputError as error:
        if unread is None:
            raise
        unread += error.problems
        others = []
    plant = (stored or {}).get("plant")
    try:
        plant = read_plant(typed.get("plant")) if "plant" in typed.texts else plant
    except InvalidInputError as error:
        if unread is None:
            raise
        unread += error.problems
    if "hooks" in body:
        body["hooks"] = _as_before(body["hooks"], (stored or {}).get("hooks", ()))
    default_slug = f"{body['suite']}-{body['retriever']}"[:LONGEST_SLUG].strip("-")
    return {
        **body,
        "slug": str(stored["slug"]) if stored else body["slug"] or default_slug,
        "schedule": _schedule(typed),
        "report": _report(typed, (stored or {}).get("report")),
        "rules": _rules(typed, others, stored),
        "plant": plant,
    }


def _as_before(chosen: Iterable[str], before: Sequence[str]) -> list[str]:
    """Return what was chosen in the order that it had; what is new follows."""
    return sorted(chosen, key=lambda one: before.index(one) if one in before else len(before))


def place_problems(typed: Form, stored: Mapping[str, Any] | None, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with those of rules moved to the form's fields: a rule's own, or the YAML.

    `rules[0]` is, for example, the one on coverage, and `rules[2]` the first of the YAML.
    """
    try:
        others = read_rules(typed.get("rules"))
    except InvalidInputError:  # problems of the YAML itself are about no rule
        others = []
    chosen = _chosen(typed, others, stored)
    return [
        problem
        if problem.path is None
        else replace(problem, path=_RULE.sub(lambda rule: _place(rule, chosen), problem.path))
        for problem in problems
    ]


def _place(rule: re.Match[str], chosen: Sequence[str]) -> str:
    place, inside, side = int(rule[1]), rule[2], rule[3] or ""
    if place < len(chosen):
        return f"rule.{chosen[place]}{inside}"
    return f"rules[{place - len(chosen)}]{inside}{side}"


def _schedule(typed: Form) -> dict[str, Any]:
    if typed.get("schedule") == "cron":
        zone = typed.stripped("schedule.timezone")
        return {"cron": typed.stripped("schedule.cron"), **({"timezone": zone} if zone else {})}
    return {"every": typed.stripped("schedule.every")}


def _report_texts(cron: str) -> dict[str, str]:
    """Return the fields of a report's times: day and hour, where a cron is of these, else the cron."""
    minute, hour, *days = cron.split() or [""] * 2
    day = " ".join(days)
    if minute == "0" and hour in HOURS and day in REPORT_DAYS:
        return {"report.day": day, "report.hour": hour, "report.cron": ""}
    return {"report.day": BY_CRON if cron else NEVER, "report.hour": DEFAULTS["report.hour"]}


def _report(typed: Form, stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the schedule of reports; None where there are none.

    A cron that was typed counts though no report was chosen before; beside a day it is refused. Raises
    InvalidInputError.
    """
    day, hour, cron = (typed.stripped(f"report.{name}") for name in ("day", "hour", "cron"))
    refuse_other(day, ("", NEVER, BY_CRON, *REPORT_DAYS), "report.day")
    is_typed = bool(cron) and (stored is None or cron != stored["cron"])
    if day in REPORT_DAYS:
        refuse_other(hour, HOURS, "report.hour")
        if is_typed:
            raise InvalidInputError([Problem(path="report.cron", message=f"is for reports {_BY_CRON_WORDS}: empty it")])
        cron = f"0 {hour} {day}"
    elif not cron or (day == NEVER and not is_typed):
        if day == BY_CRON:
            raise InvalidInputError([Problem(path="report.cron", message="is required")])
        return None
    zone = typed.stripped("report.timezone")
    return {"cron": cron, **({"timezone": zone} if zone else {}), "hooks": list(typed.all("report.hooks"))}


def _chosen(typed: Form, others: Sequence[Any], stored: Mapping[str, Any] | None) -> list[str]:
    """Names of the ticked fields that write a rule, in the order of these rules.

    The detector is the default where nothing else is watched: its tick writes none unless it was written out before.
    """
    chosen = [name for name in (COVERAGE, LATENCY, DETECTOR) if typed.get(f"rule.{name}")]
    is_written_out = stored is not None and any(rule["kind"] == RuleKind.REGRESSION for rule in stored.get("rules", ()))
    is_default = chosen == [DETECTOR] and _are_silent_about_quality(others) and not is_written_out
    return [] if is_default else chosen


def _rules(typed: Form, others: Sequence[Any], stored: Mapping[str, Any] | None) -> list[Any]:
    """Rules of a check: those of the fields, then `others`.

    Without a rule on what is found a check has the detector by default, so an empty tick has to be written down.
    """
    written: Mapping[str, dict[str, Any]] = {
        COVERAGE: {"kind": str(RuleKind.THRESHOLD), "measure": COVERAGE, **_written(typed, COVERAGE)},
        LATENCY: {"kind": str(RuleKind.LATENCY), **_written(typed, LATENCY)},
        DETECTOR: {"kind": str(RuleKind.REGRESSION)},
    }
    chosen = _chosen(typed, others, stored)
    if not chosen and not typed.get(f"rule.{DETECTOR}") and _are_silent_about_quality(others):
        return [*others, {"kind": str(RuleKind.REGRESSION), "enabled": False}]
    return [*(written[name] for name in chosen), *others]


def _are_silent_about_quality(rules: Sequence[Any]) -> bool:
    """Whether rules, which need not be valid, leave quality to the default rule."""
    return all(isinstance(one, Mapping) and one.get("kind") in _NOT_ABOUT_QUALITY for one in rules)


def _written(typed: Form, name: str) -> dict[str, Any]:
    at = f"rule.{name}"
    rule: dict[str, Any] = {
        bound: {_SIDE[name]: parse_number(typed.get(f"{at}.{bound}"))}
        for bound in ("warning", "critical")
        if typed.stripped(f"{at}.{bound}")
    }
    opens = {part: parse_number(typed.get(f"{at}.{part}")) for part in ("bad", "of") if typed.stripped(f"{at}.{part}")}
    close = {"close": parse_number(typed.get(f"{at}.close"))} if typed.stripped(f"{at}.close") else {}
    return {**rule, **({"open": opens} if opens else {}), **close}


def _field_group(rule: RuleDocument) -> str | None:
    """Return the group of fields that represents a rule completely; None where there is none."""
    name = next((name for name, key in _KEYS.items() if rule.key == key), None)
    fields_set = rule.model_dump(exclude_defaults=True).keys() - {"key"}
    if name is None or not fields_set <= _PLAIN[name] or not rule.enabled:
        return None
    above = any(bound is not None and bound.below is None for bound in (rule.warning, rule.critical))
    return None if name == COVERAGE and above else name


def _bounds(name: str, rule: RuleDocument) -> dict[str, str]:
    if name == DETECTOR:
        return {}
    bounds = {"warning": rule.warning, "critical": rule.critical}
    values = {bound: "" if one is None else getattr(one, _SIDE[name]) for bound, one in bounds.items()}
    texts = {f"rule.{name}.{bound}": value if value == "" else f"{value:g}" for bound, value in values.items()}
    counts: Sequence[tuple[str, int]] = (("bad", rule.open.bad), ("of", rule.open.of), ("close", rule.close))
    return {**texts, **{f"rule.{name}.{part}": str(count) for part, count in counts}}
