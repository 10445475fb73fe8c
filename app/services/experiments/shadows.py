"""Shadows: pairs of rankings summed up by the hour. Neither queries nor rankings are kept."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.domain.errors import NotFoundError
from app.domain.experiments.shadow import compare_pair
from app.domain.experiments.views import ReceivedPairs, ShadowDetail, ShadowFigures, ShadowView
from app.formats.experiments.shadow_documents import ShadowPair
from app.formats.history import shapes
from app.store.engine import Store, to_us
from app.store.experiments import shadows as rows
from app.store.experiments.shadows import ShadowRow, ShadowSums

MOST_HOURS: Final = 720
_HOUR: Final = 3_600_000_000


def receive_pairs(store: Store, slug: str, pairs: Sequence[ShadowPair], *, now: datetime) -> ReceivedPairs:
    """Add pairs to the hour of now; the first one of a slug begins the shadow."""
    if pairs:
        at = to_us(now)
        with store.write() as connection:
            rows.add_sums(connection, slug, at - at % _HOUR, _sum_up(pairs))
    return {"received": len(pairs)}


def list_shadows(store: Store, *, after: str = "", limit: int) -> list[ShadowView]:
    """List shadows by slug, those behind `after`."""
    with store.read() as connection:
        return [_view(row) for row in rows.list_shadows(connection, after=after, limit=limit)]


def load_shadow(store: Store, slug: str) -> ShadowDetail:
    """Return a shadow over time. Raises NotFoundError."""
    with store.read() as connection:
        found = rows.list_shadows(connection, slug=slug)
        hours = rows.newest_hours(connection, slug, MOST_HOURS)
    if not found:
        raise NotFoundError(f"there is no shadow '{slug}'")
    return {
        **_view(found[0]),
        "hours": [{**_figures(row.sums), "at": shapes.time_text(row.first)} for row in hours],
    }


def delete_shadow(store: Store, slug: str) -> None:
    """Delete a shadow. Raises NotFoundError."""
    with store.write() as connection:
        if not rows.delete_shadow(connection, slug):
            raise NotFoundError(f"there is no shadow '{slug}'")


def _sum_up(pairs: Sequence[ShadowPair]) -> ShadowSums:
    answered = [(pair, pair.b) for pair in pairs if pair.b is not None]
    overlaps = [compare_pair(pair.a, b) for pair, b in answered]
    times = [
        (pair.a_seconds, pair.b_seconds)
        for pair, _ in answered
        if pair.a_seconds is not None and pair.b_seconds is not None
    ]
    return ShadowSums(
        pairs=len(pairs),
        failed=len(pairs) - len(answered),
        rbo=sum(one.rbo for one in overlaps),
        jaccard=sum(one.jaccard for one in overlaps),
        a_empty=sum(not pair.a for pair, _ in answered),
        b_empty=sum(not b for _, b in answered),
        timed=len(times),
        a_seconds=sum(a for a, _ in times),
        b_seconds=sum(b for _, b in times),
    )


def _view(row: ShadowRow) -> ShadowView:
    return {
        **_figures(row.sums),
        "slug": row.slug,
        "first_at": shapes.time_text(row.first),
        "last_at": shapes.time_text(row.last),
    }


def _figures(sums: ShadowSums) -> ShadowFigures:
    answered = sums.pairs - sums.failed
    return {
        "pairs": sums.pairs,
        "failed": sums.failed,
        "rbo": _mean(sums.rbo, answered),
        "jaccard": _mean(sums.jaccard, answered),
        "a_empty": sums.a_empty,
        "b_empty": sums.b_empty,
        "a_seconds": _mean(sums.a_seconds, sums.timed),
        "b_seconds": _mean(sums.b_seconds, sums.timed),
    }


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
