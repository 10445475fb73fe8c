"""The overview page: checks sorted by severity; filters are in the address."""

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from app.base.api.deps import StoreDep
from app.base.web.forms import refuse_other
from app.base.web.rendering import banners_of, render
from app.catalog.pages.suites import list_setup_steps
from app.reports.service import overview
from app.reports.service.overview import VERDICTS, CheckFilter

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

Word = Annotated[str, Query(max_length=200)]


async def _filter(
    q: Word = "",
    suite: Word = "",
    retriever: Word = "",
    category: Word = "",
    tag: Word = "",
    verdict: Word = "",
    failing: Word = "",
) -> CheckFilter:
    refuse_other(verdict, ("", *VERDICTS), "verdict")
    return CheckFilter(
        text=q, suite=suite, retriever=retriever, category=category, tag=tag, verdict=verdict, failing=bool(failing)
    )


@router.get("/")
def show_overview(
    request: Request,
    store: StoreDep,
    check_filter: Annotated[CheckFilter, Depends(_filter)],
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    """Show the checks that match a filter."""
    listing = overview.list_checks(store, check_filter, datetime.now(UTC), page=page)
    return render(
        request,
        "reports/overview.html",
        listing=listing,
        setup=() if listing.total else list_setup_steps(store),
        check_filter=check_filter,
        words=VERDICTS,
        banners=banners_of(request, overdue=listing.overdue > 0, dead=listing.dead),
        here=_address(check_filter, listing.page),
        before=_address(check_filter, listing.page - 1) if listing.page > 1 else "",
        following=_address(check_filter, listing.page + 1) if listing.page < listing.pages else "",
    )


def _address(check_filter: CheckFilter, page: int) -> str:
    """Return the address of a page of filtered checks, without empty parameters."""
    values = {
        "q": check_filter.text,
        "suite": check_filter.suite,
        "retriever": check_filter.retriever,
        "category": check_filter.category,
        "tag": check_filter.tag,
        "verdict": check_filter.verdict,
        "failing": "1" if check_filter.failing else "",
        "page": page if page > 1 else "",
    }
    query = urlencode({name: value for name, value in values.items() if value})
    return f"/?{query}" if query else "/"
