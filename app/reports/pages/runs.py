"""The pages of a run: results with evidence, and the comparison with another run. They only read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.answers.service import answer_views
from app.base.api.deps import StoreDep
from app.base.values import Category, Outcome, Reason, Verdict
from app.base.web.parameters import Version, parse_choice, refuse_other
from app.base.web.rendering import render
from app.catalog.domain.judgment_sources import self_judged_lines
from app.comparison.documents.comparison_sentences import BEFORE_AND_NOW, claim_text
from app.comparison.domain.run_diff import Change
from app.comparison.domain.views import RunOutline
from app.comparison.service import comparisons, run_comparison
from app.records.domain.run_views import RunView
from app.records.service import result_views, run_views
from app.records.service.comparison_candidates import ComparisonCandidates, find_candidates
from app.reports.documents.report_measures import recall_gap_lines
from app.reports.service import check_details

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

SHOWN: dict[str, tuple[str, tuple[Change, ...]]] = {
    "": ("all", ()),
    "worse": ("got worse", (Change.DEGRADED, Change.WORSE)),
    "better": ("got better", (Change.HEALED, Change.BETTER)),
    "changed": ("changed", tuple(change for change in Change if change is not Change.SAME)),
}
"""Filters of a comparison: parameter -> (label, changes)."""
_RESULTS = 25
_PAIRS = 50


@router.get("/runs/compare")
def compare(
    before: Annotated[str, Query(max_length=20)], now: Annotated[str, Query(max_length=20)]
) -> RedirectResponse:
    """Redirect to the comparison of two runs."""
    return RedirectResponse(f"/runs/{quote(before, safe='')}/diff/{quote(now, safe='')}", status_code=303)


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
    found, following = result_views.results(
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
        "records/run.html",
        run=run,
        results=found,
        judged_by_relevance=check_details.keys_judged_by_relevance(
            store, run_id, [result["key"] for result in found], version=version or None
        ),
        recall_gap=recall_gap_lines(run["measures"]),
        self_judged=self_judged_lines(run["retriever"], self_judged=run["self_judged"]),
        k=check_details.k_of_run(store, run_id),
        answers=answer_views.summary_of_run(store, run_id),
        confirmed=answer_views.confirmed_of_check(store, run["check"]),
        versions=check_details.list_versions(store, run_id),
        counterparts=find_candidates(store, run_id) if run["finished_at"] else None,
        chosen=version,
        following=following,
        after=after,
        filters=_filters(run, wanted),
        wanted={name: value for name, value in wanted.items() if value},
    )


@router.get("/runs/{before}/diff/{now}", response_model=None)
def show_diff(
    *,
    request: Request,
    store: StoreDep,
    before: str,
    now: str,
    show: str = "",
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    version: Version = "",
) -> Response:
    """Show the differences between two runs of a check; of two checks they are compared as A and B."""
    refuse_other(show, SHOWN, "show")
    if not comparisons.are_of_one_check(store, before, now):
        chosen = {"a": comparisons.run_reference(before), "b": comparisons.run_reference(now)}
        return RedirectResponse(f"/compare?{urlencode(chosen)}", status_code=303)
    found, following = run_comparison.diff(
        store, before, now, changes=SHOWN[show][1], after=after, limit=_PAIRS, version=version or None
    )
    others = find_candidates(store, now)
    return render(
        request,
        "records/diff.html",
        diff=found,
        old=found["before"],
        new=found["now"],
        claim=partial(claim_text, names=BEFORE_AND_NOW),
        counts={word: sum(found["changes"][change] for change in SHOWN[word][1] or Change) for word in SHOWN},
        shown=SHOWN,
        show=show,
        after=after,
        following=following,
        page_size=_PAIRS,
        chosen=version,
        counterparts=others,
        candidates=_candidates(others, found["before"], found["now"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFilter:
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


def _candidates(others: ComparisonCandidates, before: RunOutline, now: RunOutline) -> Sequence[object]:
    """Return the runs to choose from: the newest of the check, and the two compared ones."""
    recent = [
        {
            "id": run.id,
            "check": run.check,
            "verdict": run.verdict,
            "finished_at": run.finished_at,
            "index_version": run.index_version,
        }
        for run in others.recent
    ]
    known = {run["id"] for run in recent}
    return [*recent, *(run for run in (now, before) if run["id"] not in known)]
