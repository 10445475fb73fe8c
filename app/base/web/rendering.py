"""Renders templates. Values are escaped; scripts get their data from the API."""

import re
from collections.abc import Callable, Mapping
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
            **{name: value(request) for name, value in _VALUES.items()},
            **values,
        )
    )
    return HTMLResponse(text, status_code=status)


_FILTERS: dict[str, Callable[..., Any]] = {}
_GLOBALS: dict[str, object] = {}
_VALUES: dict[str, Callable[[Request], object]] = {}


def add_words(
    filters: Mapping[str, Callable[..., Any]],
    constants: Mapping[str, object],
    values: Mapping[str, Callable[[Request], object]],
) -> None:
    """Add what the templates of subjects use: filters, constants, and values of every page, made of its request.

    Called before the first page is rendered.
    """
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
        counted=counted,
        shown_json=shown_json,
        **_FILTERS,
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
