"""The overview: every check at a glance, those that need a look first."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.api.deps import StoreDep
from app.services import overview
from app.web.banners import banners_of
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@router.get("/")
def show_overview(request: Request, store: StoreDep) -> HTMLResponse:
    """Show every check at a glance, those that need a look first."""
    checks = overview.all_checks(store, datetime.now(UTC))
    return render(request, "overview.html", checks=checks, banners=banners_of(request, checks))
