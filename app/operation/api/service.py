"""Routes of the service itself: liveness, readiness, metrics, and the API's description."""

from html import escape

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from app.base.api.bodies import answers
from app.base.api.deps import csrf_token, may_read
from app.base.api.problems import as_problem, problem
from app.base.api.requests import sub_path
from app.base.errors import StoreUnavailableError
from app.operation.service.self_monitor import Issue, find_read_error
from app.reports import metrics

router = APIRouter(tags=["service"])
probes = APIRouter(tags=["service"])
"""What a worker alone answers too."""

_EXPOSITIONS = ("text/plain", "application/openmetrics-text")
# A thread of its own: readiness must answer while all route threads are busy.
_CHECKS = CapacityLimiter(1)


@probes.get("/livez", response_class=PlainTextResponse)
async def livez() -> str:
    """Return that the process answers."""
    return "ok\n"


@probes.get("/readyz", response_class=PlainTextResponse)
async def readyz(request: Request) -> Response:
    """Return whether requests can be served: the store can be read and written, and the worker, if any, is running.

    Other issues of this process follow "ok", a line each. Their details, which may contain paths and addresses, are
    shown to keys that may read; others see the name of an issue.
    """
    worker = request.app.state.worker
    issues = request.app.state.exposition.process.monitor.issues
    if worker is not None and not worker.alive:
        return problem("not-ready", "Not ready", 503, "the worker is not running")
    try:
        unusable = await anyio.to_thread.run_sync(find_read_error, request.app.state.access.store, limiter=_CHECKS)
    except StoreUnavailableError as error:
        return as_problem(
            error if await may_read(request) else StoreUnavailableError("the database cannot be used now")
        )
    if unusable is not None:
        return problem("not-ready", "Not ready", 503, unusable)
    failure = request.app.state.access.store.write_failure or issues.get(Issue.STORE_WRITE)
    shown = bool(failure is not None or issues) and await may_read(request)
    if failure is not None:
        detail = f"{failure} (it can be read, but takes no writes)" if shown else str(Issue.STORE_WRITE)
        return problem("not-ready", "Not ready", 503, detail)
    lines = ["ok", *(f"{issue}: {detail}" if shown else str(issue) for issue, detail in issues.items())]
    return PlainTextResponse("\n".join(lines) + "\n")


@probes.get("/metrics", response_class=Response, responses=answers(200, types=_EXPOSITIONS))
async def scrape(request: Request) -> Response:
    """Return the metrics without reading the store; OpenMetrics, with run ids as exemplars, if accepted."""
    exposition: metrics.Exposition = request.app.state.exposition
    body, content_type = exposition.render(request.headers.get("accept", ""))
    return Response(body, media_type=content_type)


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> JSONResponse:
    """Return the API's description."""
    return JSONResponse(request.app.openapi())


@router.get("/docs", include_in_schema=False, response_class=HTMLResponse)
def docs(request: Request) -> HTMLResponse:
    """Show the API's description, without requests to the internet."""
    return HTMLResponse(_DOCS.format(csrf=escape(csrf_token(request)), path=sub_path(request.scope)))


_DOCS = """<!doctype html>
<html lang="en" data-path="{path}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Coalmine API</title><link rel="icon" href="{path}/static/canary.svg" type="image/svg+xml">
<link rel="stylesheet" href="{path}/static/vendor/swagger-ui/swagger-ui.css">
<link rel="stylesheet" href="{path}/static/docs.css"></head>
<body data-csrf="{csrf}"><div id="swagger-ui"></div>
<script src="{path}/static/vendor/swagger-ui/swagger-ui-bundle.js"></script>
<script src="{path}/static/docs.js"></script></body></html>
"""
