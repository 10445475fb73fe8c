"""The overview: every check at a glance, those that need a look first; filters are in the address."""

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from app.api.deps import StoreDep
from app.services.history import overview
from app.services.history.overview import VERDICTS, Wish
from app.web.banners import banners_of
from app.web.parameters import refuse_other
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

Word = Annotated[str, Query(max_length=200)]


async def _wish(
    q: Word = "",
    suite: Word = "",
    retriever: Word = "",
    category: Word = "",
    tag: Word = "",
    verdict: Word = "",
    failing: Word = "",
) -> Wish:
    refuse_other(verdict, ("", *VERDICTS), "verdict")
    return Wish(
        text=q, suite=suite, retriever=retriever, category=category, tag=tag, verdict=verdict, failing=bool(failing)
    )


@router.get("/")
def show_overview(
    request: Request,
    store: StoreDep,
    wish: Annotated[Wish, Depends(_wish)],
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    """Show every check at a glance, or those somebody looks for."""
    found = overview.look(store, wish, datetime.now(UTC), page=page)
    return render(
        request,
        "history/overview.html",
        found=found,
        wish=wish,
        words=VERDICTS,
        banners=banners_of(request, overdue=found.overdue > 0, dead=found.dead),
        here=_address(wish, found.page),
        before=_address(wish, found.page - 1) if found.page > 1 else "",
        following=_address(wish, found.page + 1) if found.page < found.pages else "",
    )


def _address(wish: Wish, page: int) -> str:
    """Give the address of a page of what is wished for, as short as it can be."""
    asked = {
        "q": wish.text,
        "suite": wish.suite,
        "retriever": wish.retriever,
        "category": wish.category,
        "tag": wish.tag,
        "verdict": wish.verdict,
        "failing": "1" if wish.failing else "",
        "page": page if page > 1 else "",
    }
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"/?{query}" if query else "/"
