"""The pages of a check: verdict with reasons, measures over time and causes; of its runs; and of one of its canaries.

A canary can be tried out and diagnosed there, and the check told what is normal. A diagnosis sends its progress as
events.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.abc import ObjectSendStream
from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.sse import format_sse_event
from markupsafe import Markup
from starlette.types import Receive, Scope, Send

from app.alerts.documents import protection_text, renewal_text, rule_in_words
from app.alerts.domain.advice import CAUSE_ADVICE
from app.alerts.domain.incidents import STUCK, recovery_text
from app.alerts.domain.state import OPEN
from app.alerts.domain.views import AlertState
from app.alerts.service import explanations, transitions
from app.alerts.service.explanations import CheckAlerting
from app.answers.domain.generated import missing_share, rated_texts, silent_questions
from app.answers.service import answering
from app.base.api.bodies import BaselineRequest, NotNormalRequest
from app.base.api.requests import PROBE_LIMITER, StoreDep, VaultDep, expensive, page_router, takes_form
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import CoalmineError, ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.values import (
    JUDGED,
    OWN_MEASURES,
    Category,
    Cause,
    Outcome,
    Reason,
    ReportProgress,
    Rule,
    RuleKind,
    Value,
    Verdict,
)
from app.base.web.forms import Version, parse_choice, parse_number, read_form, read_revision
from app.base.web.pages import render
from app.catalog.documents.warnings import blind_to_recall_reason
from app.catalog.domain import Use, judgment_lines
from app.catalog.service import suites
from app.comparison.service import compared_runs
from app.definitions.service import definitions
from app.detection.domain.views import BaselineView
from app.detection.service import baselines
from app.diagnosis import rendering as diagnosis_sentences
from app.diagnosis.api import DIAGNOSES, run_diagnosis
from app.diagnosis.domain.cases import is_overcome
from app.diagnosis.service import diagnoses, reanchoring
from app.diagnosis.views import DiagnosisView, ReanchorState
from app.index_facts import service as index_facts
from app.records.service import run_views
from app.records.service.run_views import find_candidates
from app.records.views import RunView
from app.reports.pages.overviews import banners_of, draw, make_badge
from app.reports.rendering.pictures import layout_of
from app.reports.rendering.report_measures import cutoff_table, recall_gap_lines, whole_table
from app.reports.service import canary_views, charts, check_details, public_links
from app.reports.service.canary_views import CanaryDetail, ComparedHit, draw_ranks, layout_band
from app.reports.service.check_details import DegradedResult
from app.runs.service.execution import CanaryTrial, try_canary
from app.scoring.measures import RECALL_BY

router = page_router()

RANGES = (("1h", "1 h", 3_600), ("24h", "24 h", 86_400), ("7d", "7 d", 604_800), ("30d", "30 d", 2_592_000))


@router.get("/checks/{slug}")
def show_check(
    request: Request,
    store: StoreDep,
    slug: str,
    version: Version = "",
    saved: Annotated[str, Query(max_length=3)] = "",
) -> HTMLResponse:
    """Show a check: verdict with reasons, measures over time, degraded canaries by cause."""
    now = datetime.now(UTC)
    detail = check_details.load_check(store, slug, now, version=version or None)
    run, k = detail.run, detail.k
    rules = detail.definition.rules_in_force
    baseline = baselines.show(store, slug)
    confirmed = answering.confirmed_by_people(store, run["id"]) if run else frozenset()
    warm_up = baseline.warm_up if run is not None and detail.line.enabled and not detail.line.archived else None
    why = None if detail.line.archived else explanations.explain_rules(store, slug, now=now)
    answers = answering.summary_of_run(store, run["id"]) if run else None
    corrected = {} if answers is None else answers.get("corrected", {})
    return render(
        request,
        "reports/check.html",
        detail=detail,
        line=detail.line,
        chosen=version,
        saved=bool(saved),
        run=run,
        k=k,
        baseline=baseline,
        protection=_renewal(rules, baseline, run)
        if warm_up is None
        else protection_text(
            rules,
            identical_runs=warm_up.identical_runs_needed - warm_up.identical_runs,
            runs=warm_up.runs_needed - warm_up.runs,
            frozen=baseline.waits is not None,
            expects=run is None or run["canaries"]["undefined"] != run["canaries"]["measured"],
            silent=JUDGED if "problem" in (answers or {}) else silent_questions(answers),
            missing=missing_share(answers),
            unmeasured=detail.line.unmeasured,
        ),
        suggested=None if detail.line.archived else explanations.suggest(store, slug),
        proposed=bool(reanchoring.list_all(store, slug, state=ReanchorState.PROPOSED, limit=1)),
        why=why,
        recovery=_recovery_text(why, detail.line.answers_text) if why is not None and detail.line.recovery else "",
        words={rule.key: rule_in_words(rule) for rule in rules},
        fleet=detail.fleet,
        fallen=_by_cause(detail.degraded),
        recall_gap=[] if run is None else recall_gap_lines(run["measures"]),
        judgments=[] if run is None else _judgment_lines(run),
        guide=None if detail.definition.use is Use.GENERAL else detail.definition.guide,
        blind=None if detail.line.archived else blind_to_recall_reason(detail.definition),
        thin=None if detail.line.archived else suites.load_reach(store, detail.line.suite)["coverage_note"],
        public=public_links.find(store, slug),
        badge=Markup(draw(make_badge(store, detail.line), inside=True)),  # noqa: S704 - drawn by a template, which escapes
        ranges=RANGES,
        calendar=None if run is None else charts.calendar(store, slug, now=now),
        heat_map_height=_heat_map_height(run),
        measures=_measures(run),
        kept=charts.stored_measures(store, slug),
        cutoffs=cutoff_table(run, self_judged=run["self_judged"]) if run else None,
        wholes=whole_table(run, confirmed=confirmed, corrected=corrected, rated=rated_texts(answers)) if run else None,
        confirmed=confirmed,
        answers=answers,
        category_measures=_category_measures(run, k),
        base=request.app.state.links.public_url.rstrip("/"),
        banners=banners_of(request, overdue=detail.line.overdue),
        index_facts=index_facts.load_run_facts(store, run["id"])["items"] if run else [],
    )


def _judgment_lines(run: RunView) -> list[str]:
    """Return the sentences on whose judgments the recall of a run is by."""
    return judgment_lines(
        run["retriever"],
        self_judged=run["self_judged"],
        others=run["judged_by"],
        judged_before_edit=run["judged_before_edit"],
    )


def _is_self_judged(store: Store, slug: str) -> bool | None:
    """Whether recall of a check is self-judged by its newest run; None = there is none."""
    with suppress(NotFoundError):
        return run_views.health(store, slug)["self_judged"]
    return None


def _heat_map_height(run: RunView | None) -> int:
    """Return how high the heat map of the newest runs is, so that nothing moves when it comes."""
    groups = [part["canaries"] or 0 for part in run["categories"].values()] if run else []
    return layout_of(groups, columns=1, width=1000)["height"]


class CauseGroup(Value):
    """Degraded canaries with one cause."""

    cause: str
    """Empty = not diagnosed yet."""
    advice: str
    reason: str
    """The reason, if all have the same; else empty."""
    members: Sequence[DegradedResult]


def _renewal(rules: Sequence[Rule], baseline: BaselineView, run: RunView | None) -> str | None:
    """Say what protects canaries that the baseline does not know."""
    if run is None or baseline.detector is None or baseline.detector.evidence is None:
        return None  # the newest run was compared with none
    canaries = run["canaries"]
    watched = (canaries["measured"] or 0) - (canaries["undefined"] or 0)
    return renewal_text(rules, unknown=baseline.detector.unknown, watched=watched)


def _recovery_text(why: CheckAlerting, bad_answers: str) -> str:
    """Sentence on the open alerts of a check whose newest run is healthy; "" where none is left."""
    still_open = [
        (AlertState(rule["state"]), rule["good_runs_to_close"])
        for rule in why["rules"]
        if rule["state"] in OPEN and rule["kind"] != RuleKind.PLANT
    ]
    unmeasured = dict.fromkeys(key for rule in why["rules"] if rule["state"] in OPEN for key in rule["unmeasured"])
    stuck = sum((rule["to_close"] or "").startswith(STUCK) for rule in why["rules"])
    return recovery_text(still_open, list(unmeasured), bad_answers, stuck=stuck) if still_open else ""


def _by_cause(degraded: Sequence[DegradedResult]) -> list[CauseGroup]:
    """Return canaries grouped by cause, in their order; those not diagnosed are last."""
    found: dict[str, list[DegradedResult]] = {}
    for result in degraded:
        found.setdefault(str(result["diagnosis"].cause) if result["diagnosis"] else "", []).append(result)
    groups = []
    for cause, members in sorted(found.items(), key=lambda one: not one[0]):
        reasons = {result["diagnosis"].reason for result in members if result["diagnosis"]}
        shared = reasons.pop() if len(reasons) == 1 and len(members) > 1 else ""
        advice = CAUSE_ADVICE[Cause(cause)] if cause else ""
        groups.append(CauseGroup(cause=cause, advice=advice, reason=shared, members=members))
    return groups


def _measures(run: RunView | None) -> list[str]:
    """Return the measures of charts: those of the newest run, recall by id only where it is defined."""
    kept = run["measures"] if run else {}
    shown = [name for name, value in kept.items() if value is not None or name.partition("@")[0] not in RECALL_BY]
    return [*OWN_MEASURES, *(name for name in shown if name not in OWN_MEASURES)]


def _category_measures(run: RunView | None, k: int) -> list[str]:
    """Return the columns of the table of categories: recall, NDCG and MRR where the run has them."""
    kept = [part["measures"] for part in run["categories"].values()] if run else []
    return [name for name in (f"R@{k}", f"NDCG@{k}", "MRR") if any(name in measures for measures in kept)]


_RESULTS = 25


@router.get("/runs/compare")
def compare(
    before: Annotated[str, Query(max_length=20)], now: Annotated[str, Query(max_length=20)]
) -> RedirectResponse:
    """Redirect to the comparison of two runs."""
    return _compared(before, now)


@router.get("/runs/{run_id}")
def show_run(  # noqa: PLR0913 - whatever results are filtered by
    *,
    request: Request,
    store: StoreDep,
    run_id: str,
    verdict: str = "",
    category: str = "",
    tag: Annotated[str, Query(max_length=64)] = "",
    reason: str = "",
    outcome: str = "",
    after: Annotated[int, Query(ge=-1)] = -1,
    version: Version = "",
) -> HTMLResponse:
    """Show a run and its results with their evidence, as recorded or of a re-scoring."""
    run = run_views.run(store, run_id, version=version or None)
    found, following = run_views.results(
        store,
        run_id,
        verdict=parse_choice(Verdict, verdict, "verdict"),
        category=parse_choice(Category, category, "category"),
        tag=tag or None,
        reason=parse_choice(Reason, reason, "reason"),
        outcome=parse_choice(Outcome, outcome, "outcome"),
        after=after,
        limit=_RESULTS,
        version=version or None,
        worst_first=True,
    )
    wanted = {"verdict": verdict, "category": category, "tag": tag, "reason": reason, "outcome": outcome}
    return render(
        request,
        "reports/run.html",
        run=run,
        results=found,
        judged_by_relevance=check_details.keys_judged_by_relevance(
            store, run_id, [result["key"] for result in found], version=version or None
        ),
        recall_gap=recall_gap_lines(run["measures"]),
        judgments=_judgment_lines(run),
        k=check_details.k_of_run(store, run_id),
        answers=answering.summary_of_run(store, run_id),
        answers_text=check_details.answers_of_run(store, run_id),
        unwatched=check_details.unwatched_of_run(store, run_id),
        incident=check_details.incident_of_run(store, run_id),
        index_facts=index_facts.load_run_facts(store, run_id)["items"],
        confirmed=answering.confirmed_by_people(store, run_id),
        versions=check_details.list_versions(store, run_id),
        counterparts=find_candidates(store, run_id) if run["finished_at"] else None,
        chosen=version,
        following=following,
        after=after,
        filters=_filters(run, wanted),
        wanted={name: value for name, value in wanted.items() if value},
    )


@router.get("/runs/{before}/diff/{now}")
def show_diff(
    before: str,
    now: str,
    show: str = "",
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    version: Version = "",
) -> RedirectResponse:
    """Redirect to the comparison of two runs, which had a page of its own here."""
    return _compared(before, now, show=show, after=after, measures_version=version)


def _compared(before: str, now: str, **more: str | int) -> RedirectResponse:
    chosen = {"a": compared_runs.run_reference(before), "b": compared_runs.run_reference(now)}
    kept = {name: value for name, value in more.items() if value}
    return RedirectResponse(f"/compare?{urlencode({**chosen, **kept})}", status_code=303)


class ResultFilter(Value):
    """A filter of results."""

    name: str
    choices: Sequence[str]
    chosen: str


def _filters(run: RunView, wanted: dict[str, str]) -> list[ResultFilter]:
    choices: Mapping[str, Sequence[str]] = {
        "verdict": list(Verdict),
        "category": list(run["categories"]) or list(Category),
        "tag": list(run["tags"]),
        "reason": list(Reason),
        "outcome": list(run["probes"]) or list(Outcome),
    }
    return [
        ResultFilter(
            name=name,
            choices=[*listed, *([wanted[name]] if wanted[name] and wanted[name] not in listed else [])],
            chosen=wanted[name],
        )
        for name, listed in choices.items()
        if listed or wanted[name]
    ]


_CHOICE_FIELDS = 3


@router.get("/checks/{slug}/canaries/{key}")
def show_canary(request: Request, store: StoreDep, slug: str, key: str) -> HTMLResponse:
    """Show a canary: expected chunks, rankings, diagnosis and states."""
    return _canary(request, store, slug, key)


@router.post("/checks/{slug}/canaries/{key}/try")
@expensive
async def try_now(request: Request, store: StoreDep, vault: VaultDep, slug: str, key: str) -> HTMLResponse:
    """Send a test request, and show how a run would judge the answer; nothing is stored."""
    ask = partial(
        try_canary,
        request.app.state.probe,
        store,
        vault,
        slug,
        key,
        run_id=f"try-{uuid4().hex}",
        clock=lambda: datetime.now(UTC),
    )
    try:
        show = partial(_canary, trial=await anyio.to_thread.run_sync(ask, limiter=PROBE_LIMITER))
    except (ConflictError, InvalidInputError) as error:
        show = partial(_canary, refused=str(error), status=409 if isinstance(error, ConflictError) else 422)
    return await anyio.to_thread.run_sync(show, request, store, slug, key)


@router.post("/checks/{slug}/canaries/{key}/diagnosis")
@expensive
async def ask_why(request: Request, store: StoreDep, slug: str, key: str) -> Response:
    """Diagnose a canary now; a script that accepts event streams gets its progress."""
    if MEDIA_TYPE in request.headers.get("accept", ""):
        return ProgressEvents(lambda progress: run_diagnosis(request, slug, key, progress=progress), DIAGNOSES)
    try:
        await anyio.to_thread.run_sync(run_diagnosis(request, slug, key), limiter=DIAGNOSES)
    except ConflictError as error:
        refused = partial(_canary, request, store, slug, key, refused=str(error), status=409)
        return await anyio.to_thread.run_sync(refused)
    return RedirectResponse(f"/checks/{quote(slug)}/canaries/{quote(key)}#diagnosis", status_code=303)


@router.post("/checks/{slug}/baseline")
@takes_form(fields=_CHOICE_FIELDS)
async def choose_baseline(request: Request, store: StoreDep, slug: str) -> Response:
    """Accept the present state as the baseline, or unpin a baseline."""
    typed = await read_form(request)
    note, answer = typed.get("note"), typed.get("answer")
    by, now = request.state.identity.name, datetime.now(UTC)
    if answer == "accept":
        accepted = parse_document(BaselineRequest, {"accept": True, "note": note or None})
        choose = partial(transitions.accept_baseline, store, slug, by=by, note=accepted.note, now=now)
    elif answer == "follow":
        choose = partial(baselines.follow, store, slug, by=by, now=now)
    else:
        raise InvalidInputError([Problem(path="answer", message="is 'accept' or 'follow'")])
    await anyio.to_thread.run_sync(choose)
    return RedirectResponse(f"/checks/{quote(slug)}#detector", status_code=303)


@router.post("/checks/{slug}/habits")
@takes_form(fields=_CHOICE_FIELDS)
async def call_not_normal(request: Request, store: StoreDep, slug: str) -> Response:
    """Call a habit not normal: from the next run on its episodes are alarms again."""
    typed = await read_form(request)
    note = parse_document(NotNormalRequest, {"note": typed.get("note") or None}).note
    by, now = request.state.identity.name, datetime.now(UTC)
    refuse = partial(baselines.refuse, store, slug, typed.get("habit") or "", by=by, note=note, now=now)
    await anyio.to_thread.run_sync(refuse)
    return RedirectResponse(f"/checks/{quote(slug)}#detector", status_code=303)


@router.post("/checks/{slug}/suggested-rules")
@takes_form(fields=_CHOICE_FIELDS)
async def adopt_rule(request: Request, store: StoreDep, vault: VaultDep, slug: str) -> Response:
    """Add a suggested bound to the rules of a check."""
    typed = await read_form(request)
    rule = {
        "kind": "threshold",
        "measure": typed.get("measure"),
        "critical": {"below": parse_number(typed.get("below"))},
    }
    adopt = partial(definitions.adopt, store, vault, slug, rule, revision=read_revision(typed))
    await anyio.to_thread.run_sync(partial(adopt, now=datetime.now(UTC)))
    return RedirectResponse(f"/checks/{quote(slug)}#definition", status_code=303)


def _canary(
    request: Request,
    store: Store,
    slug: str,
    key: str,
    *,
    trial: CanaryTrial | None = None,
    refused: str = "",
    status: int = 200,
) -> HTMLResponse:
    now = datetime.now(UTC)
    detail = canary_views.load_canary(store, slug, key)
    diagnosis = _last_diagnosis(store, slug, key)
    return render(
        request,
        "reports/canary.html",
        status=status,
        slug=slug,
        key=key,
        detail=detail,
        definition=detail.definition,
        band=layout_band(detail.history, detail.gaps, now),
        ranks=draw_ranks(detail, now),
        diagnosis=diagnosis,
        stands=diagnosis is not None and _is_current(diagnosis, detail),
        probed=diagnosis_sentences.probed(diagnosis.evidence) if diagnosis else [],
        findings=list(diagnosis_sentences.findings(diagnosis.evidence)) if diagnosis else [],
        wrong_field_advice=CAUSE_ADVICE[Cause.WRONG_FIELD],
        advice=CAUSE_ADVICE[diagnosis.cause] if diagnosis else "",
        evidence=json.dumps(diagnosis.evidence, indent=2, ensure_ascii=False) if diagnosis else "",
        trial=trial,
        self_judged=None if trial is None else _is_self_judged(store, slug),
        trial_hits=None if trial is None else _compare_hits(trial, detail),
        refused=refused,
    )


def _is_current(diagnosis: DiagnosisView, detail: CanaryDetail) -> bool:
    """Whether a diagnosis still applies: since its run the canary has neither been healthy, failed nor found better."""
    asked_about = int(diagnosis.run_id)
    if detail.failure is not None:
        return asked_about >= int(detail.failure.first_run)
    if detail.now is None or not detail.now.reasons:
        return False
    places = [one.now for one in detail.expected if one.now is not None and one.judgment["grade"] >= 1]
    ranks = [place.rank for place in places if place.rank is not None and place.rank <= detail.k]
    if is_overcome(diagnosis.rank_now, min(ranks, default=None)):
        return False
    well = detail.well
    return well is None or well.last_run is None or asked_about > int(well.last_run)


def _compare_hits(trial: CanaryTrial, detail: CanaryDetail) -> list[ComparedHit]:
    """Return the hits of a trial compared with those of the latest run."""
    others = None if detail.now is None else [hit["id"] for hit in detail.now.hits]
    result = trial.result
    return canary_views.compare_hits(result["ranking"], others, newest=True, forbidden=result["forbidden_ranks"])


def _last_diagnosis(store: Store, slug: str, key: str) -> DiagnosisView | None:
    try:
        return diagnoses.show(store, slug, key)
    except NotFoundError:
        return None


MEDIA_TYPE = "text/event-stream"


class ProgressEvents(Response):
    """Runs work in a thread and sends its progress; a disconnected browser does not stop the work.

    Events: `progress` {done, of}, then `ended`, or `refused` {detail} for an error. They are sent in this response
    because a second request could reach another replica.
    """

    media_type = MEDIA_TYPE

    def __init__(self, work: Callable[[ReportProgress], Callable[[], object]], limiter: CapacityLimiter) -> None:
        super().__init__()
        del self.headers["content-length"]  # not known
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"  # or nginx buffers the events until the end
        self._work = work
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Answer with the events as they come."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        events, received = anyio.create_memory_object_stream[bytes](math.inf)
        async with anyio.create_task_group() as group, received:
            group.start_soon(self._run, events)
            async for event in received:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _run(self, events: ObjectSendStream[bytes]) -> None:
        def report(done: int, of: int) -> None:
            anyio.from_thread.run(events.send, _event("progress", done=done, of=of))

        async with events:
            try:
                await anyio.to_thread.run_sync(self._work(report), limiter=self._limiter)
            except CoalmineError as error:
                await events.send(_event("refused", detail=str(error)))
            else:
                await events.send(_event("ended"))


def _event(name: str, **data: Any) -> bytes:
    return format_sse_event(event=name, data_str=json.dumps(data))
