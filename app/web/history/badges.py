"""Badges: the newest verdict of a check, or one of its measures, as a small picture for READMEs and wikis.

Authorised like every other route, so a browser shows them to who is signed in, and a program sends a key.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from app.api.deps import StoreDep
from app.domain.errors import InvalidInputError, Problem
from app.formats.fields import one_line
from app.services.history import check_details, run_views
from app.services.history.check_details import CheckLine
from app.store.engine import Store
from app.web.rendering import fill
from app.web.wording import score, spoken

router = APIRouter(include_in_schema=False)

LONGEST_LABEL: Final = 64

Label = Annotated[str | None, Query(max_length=LONGEST_LABEL)]
MeasureName = Annotated[str | None, Query(max_length=64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """What a badge says: a label, a value and the kind of news it is, which is its colour."""

    label: str
    value: str
    kind: str


@router.get("/badge/{check}.svg")
def show_badge(
    request: Request, store: StoreDep, check: str, label: Label = None, measure: MeasureName = None
) -> Response:
    """Draw the newest verdict of a check, with a `measure` its value; a check that is overdue is never said healthy."""
    line = check_details.one_line(store, check, datetime.now(UTC))
    drawn = draw(badge_of(store, line, label=label, measure=measure)).encode()
    # Kept by nobody without asking: a badge is looked at in order to know how things are now.
    headers = {"etag": f'"{sha256(drawn).hexdigest()[:32]}"', "cache-control": "private, no-cache"}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(drawn, media_type="image/svg+xml; charset=utf-8", headers=headers)


def badge_of(store: Store, line: CheckLine, *, label: str | None = None, measure: str | None = None) -> Badge:
    """Say what the badge of a check says. Raises InvalidInputError for what the newest run did not measure."""
    value, kind = _state(line)
    if measure is not None and line.newest is not None:
        number = _number(store, line.slug, measure)
        if kind in {"healthy", "degraded"}:
            value = score(number)
    named = f"{line.slug} {spoken(measure)}" if measure is not None else line.slug
    return Badge(label=_plain(named if label is None else label), value=_plain(value), kind=kind)


def draw(badge: Badge, *, inside: bool = False) -> str:
    """Draw a badge as SVG, in which whatever it says is text; `inside` a page, which has a title of its own."""
    return fill("history/badge.svg", badge=badge, left=_width(badge.label), right=_width(badge.value), inside=inside)


def _state(line: CheckLine) -> tuple[str, str]:
    """Give the words for how a check is and their kind; what is not known to be so now is not said to be."""
    if line.archived:
        return "archived", "none"
    if not line.enabled:
        return "disabled", "none"
    if line.newest is None:
        return "no runs", "none"
    if line.overdue:
        return "overdue", "overdue"
    verdict = line.newest.verdict or line.newest.status
    return verdict, verdict


def _number(store: Store, slug: str, measure: str) -> float | None:
    run = run_views.health(store, slug)
    known = {
        "health_score": run["health_score"],
        "coverage": run["coverage"],
        "degraded_share": run["degraded_share"],
        **run["measures"],
    }
    if measure not in known and run["measures"]:
        message = f"'{one_line(measure)}' is not kept for this check; there are: {', '.join(known)}"
        raise InvalidInputError([Problem(path="measure", message=message)])
    found: float | None = known.get(measure)
    return found


def _plain(text: str) -> str:
    """Leave out what no XML may hold, such as control characters."""
    return "".join(character if character.isprintable() else " " for character in text).strip() or " "


def _width(text: str) -> int:
    """Estimate how wide a text is drawn, in pixels; the drawing stretches it to exactly that."""
    return round(sum(_WIDE if character in "mwMW@%" or ord(character) > _LATIN else _USUAL for character in text)) + 20


_USUAL, _WIDE = 6.6, 10.0
_LATIN = 0x24F
