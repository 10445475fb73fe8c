"""Badges: the newest verdict of a check, or one of its measures, as SVG for READMEs and wikis.

They need authentication like every other route: a session, or a key.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from app.alerts.domain.state import AlertState
from app.base.api.deps import StoreDep
from app.base.db.engine import Store
from app.base.documents.fields import one_line
from app.base.errors import InvalidInputError, Problem
from app.base.web.rendering import fill
from app.base.web.wording import score, spoken
from app.catalog.domain import recall_label
from app.records.service import runs
from app.reports.service import check_details
from app.reports.service.check_details import CheckLine

router = APIRouter(include_in_schema=False)

LONGEST_LABEL: Final = 64

Label = Annotated[str | None, Query(max_length=LONGEST_LABEL)]
MeasureName = Annotated[str | None, Query(max_length=64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """A badge: a label, a value, and a kind that sets its colour."""

    label: str
    value: str
    kind: str


@router.get("/badge/{check}.svg")
def show_badge(
    request: Request, store: StoreDep, check: str, label: Label = None, measure: MeasureName = None
) -> Response:
    """Return the newest verdict of a check, or the value of a `measure`, as SVG.

    A check that is overdue, or has alerts that are still open, is not healthy.
    """
    line = check_details.load_line(store, check, datetime.now(UTC))
    svg = draw(make_badge(store, line, label=label, measure=measure)).encode()
    # Caches must revalidate: a badge shows the present state.
    headers = {"etag": f'W/"{sha256(svg).hexdigest()[:32]}"', "cache-control": "private, no-cache"}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(svg, media_type="image/svg+xml; charset=utf-8", headers=headers)


def make_badge(store: Store, line: CheckLine, *, label: str | None = None, measure: str | None = None) -> Badge:
    """Return the badge of a check. Raises InvalidInputError for a measure that the newest run does not have."""
    value, kind = _state(line)
    if measure is not None and line.newest is not None:
        number, self_judged = _number(store, line.slug, measure)
        if kind in {"healthy", "degraded", "recovering"}:
            value = " ".join(filter(None, (score(number), recall_label(measure, self_judged=self_judged))))
    named = f"{line.slug} {spoken(measure)}" if measure is not None else line.slug
    return Badge(label=_plain(named if label is None else label), value=_plain(value), kind=kind)


def draw(badge: Badge, *, inside: bool = False) -> str:
    """Return a badge as SVG; `inside` a page it has no title of its own."""
    return fill("reports/badge.svg", badge=badge, left=_width(badge.label), right=_width(badge.value), inside=inside)


def _state(line: CheckLine) -> tuple[str, str]:
    """Return the text and kind of a check's state; an overdue check has no verdict."""
    if line.archived:
        return "archived", "none"
    if not line.enabled:
        return "disabled", "none"
    if line.newest is None:
        return "no runs", "none"
    if line.overdue:
        return "overdue", "overdue"
    if line.recovery:
        return "recovering" if line.recovery == AlertState.RECOVERING else "alert open", "recovering"
    verdict = line.newest.verdict or line.newest.status
    return verdict, verdict


def _number(store: Store, slug: str, measure: str) -> tuple[float | None, bool | None]:
    """Return a measure of the newest run, and whether its recall is self-judged."""
    run = runs.health(store, slug)
    values = {
        "health_score": run["health_score"],
        "coverage": run["coverage"],
        "degraded_share": run["degraded_share"],
        **run["measures"],
    }
    if measure not in values and run["measures"]:
        message = f"'{one_line(measure)}' is not kept for this check; there are: {', '.join(values)}"
        raise InvalidInputError([Problem(path="measure", message=message)])
    found: float | None = values.get(measure)
    return found, run["self_judged"]


def _plain(text: str) -> str:
    """Return a text without characters that XML does not allow."""
    return "".join(character if character.isprintable() else " " for character in text).strip() or " "


def _width(text: str) -> int:
    """Return an estimate of a text's width in pixels; the SVG stretches it to exactly that."""
    return round(sum(_WIDE if character in "mwMW@%" or ord(character) > _LATIN else _NARROW for character in text)) + 20


_NARROW, _WIDE = 6.6, 10.0
_LATIN = 0x24F
