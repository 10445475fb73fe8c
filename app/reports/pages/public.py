"""Public pages and badges of checks: made on the page of the check, served without a key to whoever has one.

What is served is drawn anew every few seconds at most, by two threads of its own, whoever asks how often.
"""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.base.api.requests import Attempts, StoreDep, needs, plain_router
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.values import Value
from app.base.web.pages import render
from app.reports.pages.overviews import Badge, draw, make_badge
from app.reports.service import public_links

router = plain_router(include_in_schema=False)

_FRESH_SECONDS: Final = 15.0
_MOST_KEPT: Final = 512
_HEADERS: Final = {
    "cache-control": "public, max-age=30",
    "x-robots-tag": "noindex, nofollow, noarchive",
    "referrer-policy": "no-referrer",
}


class _Drawn(Value):
    """The page and the badge of a check, as they were at a time."""

    at: float
    page: bytes
    badge: bytes


@dataclass(slots=True, kw_only=True)
class PublicPages:
    """What a process has drawn of late, and its brake on links that are none."""

    drawn: dict[str, _Drawn] = field(default_factory=dict)
    """By check."""
    threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    misses: Attempts = field(default_factory=lambda: Attempts(most=60, per_second=2))

    def draw(self, request: Request, store: Store, token: str) -> _Drawn | None:
        """Return what a link shows; None for one that is not valid, which is looked up each time."""
        slug = public_links.check_of(store, token)
        if slug is None:
            return None
        known, now = self.drawn.get(slug), time.monotonic()
        if known is not None and now - known.at < _FRESH_SECONDS:
            return known
        found = public_links.load(store, slug, datetime.now(UTC))
        badge = make_badge(store, found.line)
        page = render(request, "reports/public.html", check=found, badge=badge, most=public_links.SHOWN_RUNS)
        if len(self.drawn) >= _MOST_KEPT:
            self.drawn.clear()
        self.drawn[slug] = _Drawn(at=now, page=bytes(page.body), badge=draw(badge).encode())
        return self.drawn[slug]


@router.get("/public/{token}.svg")
async def show_public_badge(request: Request, store: StoreDep, token: str) -> Response:
    """Return the badge of the check that a public link is of."""
    return await _answer(request, store, token, badge=True)


@router.get("/public/{token}")
async def show_public_check(request: Request, store: StoreDep, token: str) -> Response:
    """Show the state and the last runs of the check that a public link is of."""
    return await _answer(request, store, token, badge=False)


async def _answer(request: Request, store: Store, token: str, *, badge: bool) -> Response:
    pages: PublicPages = request.app.state.public_pages
    kind = "image/svg+xml; charset=utf-8" if badge else "text/html; charset=utf-8"
    found = await anyio.to_thread.run_sync(pages.draw, request, store, token, limiter=pages.threads)
    if found is None:
        pages.misses.count_failure()  # after the look-up: a valid link is never limited
        headers = {**_HEADERS, "cache-control": "no-store"}
        if badge:
            svg = draw(Badge(label="link", value="not valid", kind="none"))
            return Response(svg, status_code=404, media_type=kind, headers=headers)
        page = render(request, "reports/public.html", status=404, check=None, badge=None, most=0)
        page.headers.update(headers)
        return page
    body = found.badge if badge else found.page
    headers = {**_HEADERS, "etag": f'W/"{sha256(body).hexdigest()[:32]}"'}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=kind, headers=headers)


@router.post("/checks/{slug}/public-link")
@needs(Scope.ADMIN)
def make_public_link(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Make a public link of a check and show it, this once; one that there was is valid no longer."""
    token = public_links.make(store, slug, by=request.state.identity.name, now=datetime.now(UTC))
    link = public_links.address(request.app.state.links.public_url, token)
    return render(request, "reports/public_link.html", slug=slug, link=link)


@router.post("/checks/{slug}/public-link/revoke")
@needs(Scope.ADMIN)
def revoke_public_link(request: Request, store: StoreDep, slug: str) -> Response:
    """Revoke the public link of a check at once."""
    public_links.revoke(store, slug, by=request.state.identity.name)
    return RedirectResponse(f"/checks/{quote(slug)}#definition", status_code=303)
