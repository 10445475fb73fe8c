"""Pages: templates rendered, with words for numbers, times and names, and what surrounds them over HTTP.

What was not measured is a dash. Values are escaped; scripts get their data from the API. Scripts and styles are files
of ours, never of another host; below are their compression, security headers, and the pages of problems.
"""

import json
import re
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from app import __version__
from app.base.api.requests import below, csrf_token, identify_visitor, route_path, sub_path
from app.base.db.keys import Identity, Scope
from app.base.errors import CoalmineError, ForbiddenError, NotFoundError, UnauthorizedError
from app.base.schedules import cron_preview
from app.base.texts import clauses, counted, first_clause, found_text, measure_words, shown_json, unjudged_words
from app.base.values import Category, marked_name

_HERE = Path(__file__).parent
_APP = _HERE.parents[1]
STATIC = _HERE / "static"
_LINKS = re.compile(
    r"""(?<=\s)(href|src|srcset|action|formaction|hx-(?:get|post|put|patch|delete)|data-follows)="""
    r'''"((?:\{\{.*?\}\}|\{%.*?%\}|[^"{]|\{(?![{%]))*)"''',
    re.DOTALL,
)
"""Attributes of templates that hold an address, and what stands in them."""


def render(request: Request, template: str, /, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page for the caller of a request."""
    identity: Identity | None = getattr(request.state, "identity", None)
    path = sub_path(request.scope)
    text = (
        _environment(path)
        .get_template(template)
        .render(
            path=route_path(request.scope),
            sub_path=path,
            identity=identity,
            signed_in=identity is not None and identity.key_prefix is not None,
            may_read=identity is not None and identity.scope.includes(Scope.READ),
            annotates=identity is not None and not identity.scope.includes(Scope.READ),
            may_write=identity is not None and identity.scope.includes(Scope.WRITE),
            may_admin=identity is not None and identity.scope.includes(Scope.ADMIN),
            csrf=csrf_token(request) if identity is not None else "",
            version=__version__,
            now=datetime.now(UTC),
            **{name: value(request) for name, value in _VALUES.items()},
            **values,
        )
    )
    return HTMLResponse(text, status_code=status)


_FILTERS: dict[str, Callable[..., Any]] = {}
_GLOBALS: dict[str, object] = {}
_VALUES: dict[str, Callable[[Request], object]] = {}
_NEAREST: list[Callable[[Request], tuple[str, str] | None]] = []


def add_words(
    filters: Mapping[str, Callable[..., Any]],
    constants: Mapping[str, object],
    values: Mapping[str, Callable[[Request], object]],
    nearest: Callable[[Request], tuple[str, str] | None],
) -> None:
    """Add what the templates of subjects use: filters, constants, and values of every page, made of its request.

    `nearest` gives the name and the address of what may be meant by the address of nothing. Called before the first
    page is rendered.
    """
    _NEAREST[:] = [nearest]
    _FILTERS.update(filters)
    _GLOBALS.update(constants)
    _VALUES.update(values)


def fill(template: str, /, **values: Any) -> str:
    """Return a filled template that does not depend on the caller."""
    return _environment().get_template(template).render(**values)


class _Loader(FileSystemLoader):
    """Templates whose links, written from the root of the service, lead below its path."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """Read a template, and let a filter complete each of its links."""
        source, file, is_current = super().get_source(environment, template)
        return _LINKS.sub(r'\1="{% filter below %}\2{% endfilter %}"', source), file, is_current


@lru_cache
def _environment(path: str = "") -> Environment:
    """Return the templates of a service below a path of its host; "" = at its root."""
    loader = _Loader if path else FileSystemLoader
    of_subjects = {folder.parent.name: loader(folder) for folder in _APP.glob("*/templates")}
    environment = Environment(
        loader=ChoiceLoader([loader(_HERE / "templates"), PrefixLoader(of_subjects)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals["static"] = _static_url
    environment.globals.update(_GLOBALS)
    environment.filters["below"] = lambda address: Markup(below(path, address))  # noqa: S704 - escaped already
    environment.filters.update(
        score=score,
        evidence=evidence,
        seconds=seconds,
        spoken=_spoken,
        capitalize_first=capitalize_first,
        joined=joined,
        plainly=plainly,
        brief=first_clause,
        sentences=sentences,
        proposed_name=proposed_name,
        utc=utc,
        timed=timed,
        iso=iso,
        spark=spark_points,
        counted=counted,
        found=found_text,
        unjudged=unjudged_words,
        shown_json=shown_json,
        scheduled=scheduled,
        **_FILTERS,
    )
    return environment


@pass_context
def _spoken(context: Context, word: str) -> str:
    """Return one of our names as words; a page says by `confirmed` which measures of its judge people confirmed."""
    return spoken(word, context.get("confirmed", ()))


@lru_cache
def _static_url(name: str) -> str:
    """Return the address of a static file with its version, so that browsers cache it until it changes."""
    return f"/static/{name}?v={sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


ABSENT = "\N{EN DASH}"
SPARK_WIDTH, SPARK_HEIGHT = 120, 28
_MILLISECONDS_BELOW = 1.0
_NAMES = ("health_score", "degraded_share", "answered_ratio", "duplicate_ratio", "top_score", *Category)
_OURS = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b")
_GROUPED = re.compile(r"\b(category|tag|document):(?=\S)")
_UTC_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d)?) UTC")
_CODE = re.compile(r"`([^`]+)`")
_IN_CODE = Markup("<code>{}</code>")
_PROPOSED = re.compile(r"; try '([A-Za-z0-9@._:-]+)'$")
_WHOLE_FROM, _POWERS_FROM = 100.0, 1e6


def scheduled(cron: str, timezone: str = "UTC") -> str:
    """Return a cron in words with its next dates; "" where there is none or it is not valid."""
    try:
        return cron_preview(cron, timezone, datetime.now(UTC)) if cron.strip() else ""
    except ValueError:
        return ""


def score(value: float | None) -> str:
    """Format a share or a score with three digits: 0.974."""
    return ABSENT if value is None else f"{value:.3f}"


def evidence(value: float | None) -> str:
    """Format the evidence of a detector, which grows without bound: 0.34, 1,250, 3.2e+14."""
    if value is None:
        return ABSENT
    return f"{value:.2f}" if value < _WHOLE_FROM else f"{value:,.0f}" if value < _POWERS_FROM else f"{value:.1e}"


def seconds(value: float | None) -> str:
    """Format a duration: 12 ms, 1.50 s."""
    if value is None:
        return ABSENT
    return f"{value * 1000:.0f} ms" if value < _MILLISECONDS_BELOW else f"{value:.2f} s"


def spoken(word: str, confirmed: Collection[str] = ()) -> str:
    """Return one of our names as words: `simple_factual` as simple factual.

    What a judge says is marked as uncalibrated, unless it is among the measures that people `confirmed` of it.
    """
    return measure_words(marked_name(word, confirmed))


def plainly(sentence: str) -> str:
    """Return one of our sentences with names of measures, categories and groups as words: health_score, tag:legal.

    Names given by users stay unchanged.
    """
    return _OURS.sub(lambda found: spoken(found[0]), _GROUPED.sub(r"\1 ", sentence))


def joined(sentences: Iterable[str]) -> str:
    """Return sentences without full stops joined by semicolons, each once; after a question mark by a space."""
    text = ""
    for sentence in dict.fromkeys(one.removesuffix(".") for one in sentences):
        text += f" {capitalize_first(sentence)}" if text.endswith("?") else f"; {sentence}" if text else sentence
    return text


def proposed_name(messages: Iterable[str]) -> str:
    """Return the name that one of the messages proposes in place of what was typed; "" where none does."""
    return next((found[1] for one in messages if (found := _PROPOSED.search(one))), "")


def capitalize_first(text: str) -> str:
    """Return a text with its first letter in upper case, unless it begins with the name of a field."""
    return text if "_" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def sentences(text: str) -> Markup:
    """Return clauses that semicolons join as sentences, the last one without a full stop; `names` as code."""
    *pieces, last = _CODE.split(". ".join(map(capitalize_first, clauses(text))))
    written = [escape(piece) if place % 2 == 0 else _IN_CODE.format(piece) for place, piece in enumerate(pieces)]
    return Markup("").join([*written, escape(last)])


def utc(moment: datetime | str | None) -> str:
    """Format a time for a page without scripts: 2026-01-31 12:00:05 UTC."""
    parsed = _moment(moment)
    return ABSENT if parsed is None else f"{parsed:%Y-%m-%d %H:%M:%S} UTC"


def iso(moment: datetime | str | None) -> str:
    """Format a time as RFC 3339."""
    parsed = _moment(moment)
    return "" if parsed is None else parsed.isoformat().replace("+00:00", "Z")


def timed(text: str) -> Markup:
    """Return a text in which each time in UTC with its date is an element that scripts show in the viewer's zone."""
    pieces: list[Markup] = []
    end = 0
    for found in _UTC_TIME.finditer(text):
        style = "minute" if found[2].count(":") == 1 else "clock"
        element = Markup('<time datetime="{}T{}Z" data-when="{}">{}</time>').format(*found.groups(), style, found[0])
        pieces += [escape(text[end : found.start()]), element]
        end = found.end()
    return Markup("").join([*pieces, escape(text[end:])])


def spark_points(values: Sequence[float | None]) -> list[str]:
    """Return the points of SVG polylines for values of 0 to 1, one per period without a gap.

    The scale runs from 0.5, or the lowest value below it, to 1.
    """
    present = [value for value in values if value is not None]
    least = min([0.5, *present])
    step = (SPARK_WIDTH - 4) / max(len(values) - 1, 1)
    lines: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            lines.append([])
            continue
        height = (SPARK_HEIGHT - 6) * (1 - (value - least) / ((1 - least) or 1))
        lines[-1].append(f"{2 + place * step:.1f},{3 + height:.1f}")
    # A single point is drawn as a short stroke, a polyline of one point not at all.
    return [" ".join(line if len(line) > 1 else [*line, *line]) for line in lines if line]


def _moment(moment: datetime | str | None) -> datetime | None:
    if moment is None:
        return None
    return (datetime.fromisoformat(moment) if isinstance(moment, str) else moment).astimezone(UTC)


def install_pages(app: FastAPI) -> None:
    """Install static files, headers and problem pages on an app that has the problem handlers."""
    app.mount("/static", CompressedFiles(directory=STATIC), name="static")
    app.add_middleware(SecurityHeaders)
    install_problem_pages(app)


_POLICY = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"


# Swagger UI writes style attributes and draws its icons from data: URLs.
_DOCS_POLICY = f"{_POLICY}; style-src 'self' 'unsafe-inline'; img-src 'self' data:"


class SecurityHeaders:
    """ASGI middleware that sets headers where a route has not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass the request on and complete the headers of its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                _complete(MutableHeaders(scope=message), scope, ok=message["status"] < 400)  # noqa: PLR2004 - errors
            await send(message)

        await self._app(scope, receive, completed)


def _complete(headers: MutableHeaders, scope: AsgiScope, *, ok: bool) -> None:
    path = route_path(scope)
    headers.setdefault("content-security-policy", _DOCS_POLICY if path == "/docs" else _POLICY)
    headers.setdefault("x-content-type-options", "nosniff")
    headers.setdefault("referrer-policy", "same-origin")
    headers.setdefault("x-frame-options", "DENY")
    headers.setdefault("cache-control", _caching(path, scope["query_string"], ok=ok))


def _caching(path: str, query: bytes, *, ok: bool) -> str:
    """Return the cache-control header: only static files with a version in their address are cached."""
    if not path.startswith("/static/") or not ok:
        return "no-store"
    return "public, max-age=31536000, immutable" if query.startswith(b"v=") else "no-cache"


_LEAST_BYTES = 1_000
"""Less than that is one packet anyway."""
_LEVEL = 4
"""A page of 270 kB in 2 ms; 9 takes twice as long for 5 % less."""
_OWN_SITE = {None, "same-origin", "none"}
"""What `Sec-Fetch-Site` is where no page of another origin asks; programs send none."""
_GZIP = 16 + zlib.MAX_WBITS
_MOST_FILES = 100


class Compression:
    """ASGI middleware that compresses responses for who accepts it and is of no other site."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(app, minimum_size=_LEAST_BYTES, compresslevel=_LEVEL)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass the request on to where its response is compressed, or is not."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            plain = _refuses_gzip(headers) or headers.get("sec-fetch-site") not in _OWN_SITE
        else:
            plain = True
        await (self._app if plain else self._compressed)(scope, receive, send)


class CompressedFiles(StaticFiles):
    """Static files, each compressed once."""

    async def get_response(self, path: str, scope: AsgiScope) -> Response:
        """Return a file, or that it has not changed; its tag is weak, as it is one for both forms of the file."""
        response = await super().get_response(path, scope)
        response.headers["etag"] = f"W/{response.headers['etag']}"
        response.headers["vary"] = "Accept-Encoding"
        request = Headers(scope=scope)
        takes_gzip = "gzip" in request.get("accept-encoding", "") and not _refuses_gzip(request)
        if not isinstance(response, FileResponse) or not takes_gzip or "range" in request:
            return response
        body = await anyio.to_thread.run_sync(_compressed, str(response.path), response.headers["etag"])
        headers = {**response.headers, "content-encoding": "gzip", "content-length": str(len(body))}
        return Response(body, headers=headers)


def _refuses_gzip(headers: Headers) -> bool:
    return re.search(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)", headers.get("accept-encoding", "")) is not None


@lru_cache(maxsize=_MOST_FILES)
def _compressed(file: str, _etag: str) -> bytes:
    """Return a file, of which the tag tells another one, as gzip."""
    compressor = zlib.compressobj(wbits=_GZIP)
    return compressor.compress(Path(file).read_bytes()) + compressor.flush()


_PROGRAMS = ("/v1", "/metrics", "/livez", "/readyz", "/openapi.json", "/static/")


Handler = Callable[[Request, Any], Awaitable[Response]]


def install_problem_pages(app: FastAPI) -> None:
    """Wrap every exception handler so that browsers get a page with the same status."""
    for kind in (CoalmineError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _page_handler(app.exception_handlers[kind]))


def _page_handler(handler: Any) -> Handler:
    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, UnauthorizedError) and _is_navigation(request):
            return RedirectResponse(_sign_in(request), status_code=303)
        problem: Response = await handler(request, error)
        if not _is_navigation(request):
            return problem
        if problem.status_code == HTTPStatus.METHOD_NOT_ALLOWED and request.method == "GET":
            return RedirectResponse(_parent_page(request), status_code=303)
        problem_view = json.loads(bytes(problem.body))
        if isinstance(error, HTTPException | ForbiddenError):  # no route matched, or it refused: nobody is identified
            with suppress(CoalmineError):
                await identify_visitor(request)
        if isinstance(error, HTTPException) and problem.status_code == HTTPStatus.NOT_FOUND:
            problem_view["detail"] = "No page has this address. It may be cut off or mistyped."
        near = await anyio.to_thread.run_sync(_NEAREST[0], request) if isinstance(error, NotFoundError) else None
        page = render(request, "problem.html", status=problem.status_code, problem=problem_view, near=near)
        page.headers.update({name: value for name, value in problem.headers.items() if not name.startswith("content-")})
        return page

    return handle


def _parent_page(request: Request) -> str:
    """Return the page that an action belongs to: an address such as `/archive` has no page of its own."""
    path = route_path(request.scope)
    while path.strip("/"):
        path = path.rpartition("/")[0]
        scope = {**request.scope, "path": f"{sub_path(request.scope)}{path}"}
        if path and any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            return quote(path)
    return "/"


def _is_navigation(request: Request) -> bool:
    return not route_path(request.scope).startswith(_PROGRAMS) and "text/html" in request.headers.get("accept", "")


def _sign_in(request: Request) -> str:
    path = route_path(request.scope)
    if request.method != "GET" or path == "/":
        return "/login"
    target = quote(path) + (f"?{request.url.query}" if request.url.query else "")
    return f"/login?next={quote(target, safe='')}"
