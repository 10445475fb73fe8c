"""Page of renamed chunks: proposals of judgments, to be accepted or rejected."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.base.api.deps import StoreDep
from app.base.api.requests import takes_form
from app.base.db.engine import Store
from app.base.errors import InvalidInputError, Problem
from app.base.web.forms import read_form
from app.base.web.rendering import render
from app.diagnosis.domain.chunks import split_by_overlap
from app.diagnosis.domain.views import ReanchorDecision, ReanchorState, ReanchorView
from app.diagnosis.service import reanchoring

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_PROPOSALS = 200
_DECIDED = 20
_LONGEST_ID = 18
"""Digits of a 64-bit number."""


@router.get("/checks/{slug}/reanchors")
def show_reanchors(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show the proposals for judgments whose chunks were renamed."""
    return _reanchors(request, store, slug)


@router.post("/checks/{slug}/reanchors")
@takes_form(fields=_PROPOSALS + 1)
async def decide_reanchors(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Accept or reject the ticked proposals, all or none."""
    typed = await read_form(request)
    ids, answer = typed.all("proposal"), typed.get("answer")
    if answer not in {"accept", "reject"}:
        raise InvalidInputError([Problem(path="answer", message="is 'accept' or 'reject'")])
    return await anyio.to_thread.run_sync(_decided, request, store, slug, ids, answer)


def _decided(request: Request, store: Store, slug: str, ids: Sequence[str], answer: str) -> HTMLResponse:
    if not ids:
        return _reanchors(request, store, slug, problems=(Problem(message="tick at least one proposal"),))
    try:
        numbers = [_proposal(one) for one in ids]
        decided = reanchoring.decide(
            store,
            slug,
            accept=numbers if answer == "accept" else (),
            reject=numbers if answer == "reject" else (),
            by=request.state.identity.name,
            now=datetime.now(UTC),
        )
    except InvalidInputError as error:
        return _reanchors(request, store, slug, problems=error.problems, status=422)
    return _reanchors(request, store, slug, decided=decided)


def _proposal(text: str) -> int:
    if not (len(text) <= _LONGEST_ID and text.isascii() and text.isdecimal()):
        raise InvalidInputError([Problem(path="proposal", message=f"there is no proposal '{text[:40]}'")])
    return int(text)


def _reanchors(
    request: Request,
    store: Store,
    slug: str,
    *,
    decided: ReanchorDecision | None = None,
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> HTMLResponse:
    found = reanchoring.list_all(store, slug, state=ReanchorState.PROPOSED, limit=_PROPOSALS + 1)
    past = [
        one
        for state in (ReanchorState.ACCEPTED, ReanchorState.REJECTED, ReanchorState.OUTDATED)
        for one in reanchoring.list_all(store, slug, state=state, limit=_DECIDED)
    ]
    return render(
        request,
        "diagnosis/reanchors.html",
        status=status,
        slug=slug,
        proposals=[{**one, "sides": _sides(one)} for one in found[:_PROPOSALS]],
        past=sorted(past, key=lambda one: one["decided_at"] or one["created_at"], reverse=True)[:_DECIDED],
        more=len(found) > _PROPOSALS,
        decided=decided,
        problems=problems,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTexts:
    """Texts as parts, each with whether the other side has it."""

    old: Sequence[tuple[str, bool]]
    new: Sequence[Sequence[tuple[str, bool]]]


def _sides(proposal: ReanchorView) -> SplitTexts | None:
    """Split the old and the new texts into common parts and others; None where they were not stored."""
    old, new = proposal["old_text"], proposal["new_texts"]
    if old is None or new is None:
        return None
    return SplitTexts(old=split_by_overlap(old, "\n".join(new)), new=[split_by_overlap(text, old) for text in new])
