"""Renders templates. Values are escaped; scripts get their data from the API."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from app import __version__
from app.base.api.deps import csrf_token
from app.base.api.keys import Identity, Scope
from app.base.api.requests import below, route_path, sub_path
from app.base.documents.texts import shown_json
from app.base.texts import counted
from app.base.web import wording
from app.catalog.domain.judgments import recall_label
from app.operation.service.self_monitor import Issue
from app.records import documents as shapes
from app.reports.documents.report_measures import ERR_SCALE
from app.runs import documents as explanations

_HERE = Path(__file__).parent
_APP = _HERE.parents[1]
STATIC = _HERE / "static"
_LINKS = re.compile(
    r"""(?<=\s)(href|src|action|formaction|hx-(?:get|post|put|patch|delete)|data-follows)="""
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
            issues=grave_issues(request),
            **values,
        )
    )
    return HTMLResponse(text, status_code=status)


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
    environment.globals["err_scale"] = ERR_SCALE
    environment.filters["below"] = lambda address: Markup(below(path, address))  # noqa: S704 - escaped already
    environment.filters.update(
        score=wording.score,
        evidence=wording.evidence,
        seconds=wording.seconds,
        spoken=_spoken,
        capitalize_first=wording.capitalize_first,
        joined=wording.joined,
        plainly=wording.plainly,
        brief=wording.brief,
        utc=wording.utc,
        timed=wording.timed,
        iso=wording.iso,
        spark=wording.spark_points,
        why=explanations.why_degraded,
        rank=explanations.first_expected,
        absent=explanations.not_returned,
        bound=wording.bound,
        starter=shapes.starter,
        counted=counted,
        recall_label=lambda measure, own: recall_label(measure, self_judged=own),
        shown_json=shown_json,
        **wording.FILTERS,
    )
    return environment


@pass_context
def _spoken(context: Context, word: str) -> str:
    """Return one of our names as words; a page says by `confirmed` which measures of its judge people confirmed."""
    return wording.spoken(word, context.get("confirmed", ()))


@lru_cache
def _static_url(name: str) -> str:
    """Return the address of a static file with its version, so that browsers cache it until it changes."""
    return f"/static/{name}?v={sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


_OUTBOX_STUCK_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """An issue of Coalmine itself: its meaning and the remedy."""

    severity: str
    text: str
    link: str = ""
    """The page for the next step, with the text `label`; empty = none."""
    label: str = ""


def banners_of(request: Request, *, overdue: bool, dead: Mapping[str, int] | None = None) -> list[Banner]:
    """Return the banners, critical first; `overdue`: a check is, `dead`: recent dead letters by hook."""
    found = [_worker(request, overdue=overdue), _store(request), _canary_files(request), _outbox(request)]
    found += _issues(request)
    found += [_dead(hook, count) for hook, count in sorted((dead or {}).items())]
    return sorted((banner for banner in found if banner is not None), key=lambda one: one.severity != "critical")


def grave_issues(request: Request) -> list[Banner]:
    """Return the banners of every page: critical issues of this process."""
    return [banner for banner in _issues(request) if banner.severity == "critical"]


def _worker(request: Request, *, overdue: bool) -> Banner | None:
    worker = request.app.state.worker
    if worker is not None and not worker.alive:
        text = "The worker is not running, so no check runs in this process. See its log, and restart the service."
        return Banner(severity="critical", text=text)
    if worker is None and overdue:
        text = "Checks are overdue and this process has no worker: is a coalmine work process running? "
        text += "Start one, and see the log of the running ones."
        return Banner(severity="critical", text=text)
    return None


def _store(request: Request) -> Banner | None:
    state = request.app.state
    if state.worker is None or not state.worker.alive or state.exposition.snapshot.state is not None:
        return None
    text = "The database could not be read a moment ago: figures may be old and runs may be missing. "
    text += "See the log: its disk may be full, or its server down."
    return Banner(severity="warning", text=text, link="/readyz", label="Show readiness")


def _issues(request: Request) -> list[Banner]:
    """Return the banners of the self monitor's issues."""
    issues = request.app.state.exposition.process.monitor.issues
    return [
        Banner(
            severity="critical" if issue in _GRAVE else "warning",
            text=f"{_TITLES[issue]}: {detail}.",
            link=_BANNER_LINKS.get(issue, ("", ""))[0],
            label=_BANNER_LINKS.get(issue, ("", ""))[1],
        )
        for issue, detail in issues.items()
    ]


_BANNER_LINKS = {Issue.DELIVERIES: ("/deliveries?state=pending", "Show pending deliveries")}
_GRAVE = {Issue.DELIVERIES, Issue.STORE_READ, Issue.STORE_WRITE, Issue.RESOURCES, Issue.OVERLOAD}
_TITLES = {
    Issue.CLOCK: "Clock",
    Issue.DELIVERIES: "Notifications",
    Issue.HEARTBEAT: "Worker",
    Issue.OVERLOAD: "Overload",
    Issue.RESOURCES: "Resources",
    Issue.STORE_READ: "Database cannot be used",
    Issue.STORE_WRITE: "Database takes no writes",
}


def _canary_files(request: Request) -> Banner | None:
    if request.app.state.exposition.process.is_config_applied:
        return None
    text = "The canary files could not be applied when they were last read; the previous definitions still apply. "
    text += "Run coalmine validate for the lines with errors; then send the service a hangup signal."
    return Banner(severity="warning", text=text, link="/suites", label="Show suites")


def _outbox(request: Request) -> Banner | None:
    snapshot = request.app.state.exposition.snapshot.state
    if snapshot is None or (snapshot.outbox_oldest_seconds or 0.0) <= _OUTBOX_STUCK_SECONDS:
        return None
    waiting = f"{counted(snapshot.outbox_pending, 'notification')} wait{'s' if snapshot.outbox_pending == 1 else ''}"
    text = f"{waiting} to be delivered, the oldest for more than ten minutes."
    text += " Their attempts show the receivers' responses."
    return Banner(severity="warning", text=text, link="/deliveries?state=pending", label="Show pending deliveries")


def _dead(hook: str, count: int) -> Banner:
    text = f"{counted(count, 'notification')} to hook {hook} could not be delivered in the last three days. "
    text += "Repair the receiver, then replay them."
    link = f"/deliveries?hook={hook}&state=dead"
    return Banner(severity="critical", text=text, link=link, label="Show dead letters")
