"""Shadows: defined, read over time, deleted with all that is kept of them."""

from datetime import datetime
from typing import Final

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.catalog.store import definitions
from app.experiments.documents.shadow_documents import ShadowDocument
from app.experiments.domain.views import DifferentPair, ShadowDetail, ShadowFigures, ShadowView
from app.experiments.service.side_by_side import load_comparisons
from app.experiments.store import shadow_pairs, shadow_parts, shadow_questions
from app.experiments.store import shadows as rows
from app.experiments.store.shadows import DefinedShadow, ShadowRow, ShadowSums
from app.records import documents as shapes

MOST_HOURS: Final = 720


def put_shadow(store: Store, document: ShadowDocument, *, by: str, now: datetime, only_new: bool = False) -> bool:
    """Define a shadow or change its share, `k` and how many pairs it keeps; whether it is new.

    Pairs that clients sent under its name before count on. Raises InvalidInputError for a candidate that does not
    exist, and ConflictError for another one than before, whose figures would be mixed with these; with `only_new`
    wherever it is defined.
    """
    with store.write() as connection:
        if document.candidate is not None:
            retriever = definitions.find_definition(connection, "retriever", document.candidate)
            if retriever is None or retriever.archived_at is not None:
                reason = f"there is no retriever '{document.candidate}'"
                raise InvalidInputError([Problem(path="candidate", message=reason)])
        body = document.data()
        if rows.insert_shadow(connection, document.slug, body, at=to_us(now), by=by) is not None:
            return True
        if only_new:
            raise ConflictError(f"there is a shadow '{document.slug}' already")
        shadow = rows.find_shadow(connection, document.slug, lock=True)
        assert shadow is not None  # noqa: S101 - it has the slug
        if document_of(shadow).candidate != document.candidate:
            raise ConflictError(
                f"the candidate of shadow '{document.slug}' cannot be changed: its figures are of it; create "
                "another shadow, or delete this one first"
            )
        rows.change_shadow(connection, shadow.id, body)
        shadow_pairs.keep_pairs(connection, shadow.id, (), most=document.keep, at=to_us(now))
        return False


def list_shadows(store: Store, *, after: str = "", limit: int) -> list[ShadowView]:
    """List shadows by slug, those behind `after`."""
    with store.read() as connection:
        slugs = rows.list_slugs(connection, after=after, limit=limit)
        sums = rows.sum_hours(connection, slugs)
        return [_view(slug, sums.get(slug), rows.find_shadow(connection, slug)) for slug in slugs]


def load_shadow(store: Store, slug: str) -> ShadowDetail:
    """Return a shadow over time. Raises NotFoundError."""
    with store.read() as connection:
        shadow = rows.find_shadow(connection, slug)
        sums = rows.sum_hours(connection, [slug]).get(slug)
        if shadow is None and sums is None:
            raise NotFoundError(f"there is no shadow '{slug}'")
        hours = rows.newest_hours(connection, slug, MOST_HOURS)
        return {
            **_view(slug, sums, shadow),
            "waiting": 0 if shadow is None else shadow_questions.count_questions(connection, shadow.id),
            "kept": 0 if shadow is None else shadow_pairs.count_pairs(connection, shadow.id),
            "comparisons": [] if shadow is None else load_comparisons(connection, shadow),
            "hours": [{**_figures(row.sums), "at": shapes.time_text(row.first)} for row in hours],
        }


def list_pairs(store: Store, slug: str, *, limit: int) -> list[DifferentPair]:
    """Return the most different pairs that are kept of a shadow, without the answers. Raises NotFoundError."""
    with store.read() as connection:
        pairs = shadow_pairs.list_pairs(connection, require_shadow(connection, slug).id, limit)
    return [{"query": one.query, "rbo": shapes.rounded(one.rbo)} for one in pairs]


def delete_shadow(store: Store, slug: str) -> None:
    """Delete a shadow with its figures, and what is kept of queries; tasks stay. Raises NotFoundError."""
    with store.write() as connection:
        shadow = rows.find_shadow(connection, slug, lock=True)
        if shadow is not None:
            shadow_questions.forget_questions(connection, shadow.id)
            shadow_pairs.forget_pairs(connection, shadow.id)
        shadow_parts.forget_parts(connection, slug)
        if not rows.delete_shadow(connection, slug):
            raise NotFoundError(f"there is no shadow '{slug}'")


def document_of(shadow: DefinedShadow) -> ShadowDocument:
    """Return the document of a shadow."""
    return ShadowDocument.model_validate(shadow.body)


def require_shadow(connection: Connection, slug: str) -> DefinedShadow:
    """Return a shadow that somebody defined. Raises NotFoundError."""
    shadow = rows.find_shadow(connection, slug)
    if shadow is None:
        raise NotFoundError(f"there is no shadow '{slug}'")
    return shadow


def _view(slug: str, row: ShadowRow | None, shadow: DefinedShadow | None) -> ShadowView:
    document = None if shadow is None else document_of(shadow)
    return {
        "slug": slug,
        "candidate": None if document is None else document.candidate,
        "share": None if document is None else document.share,
        "k": None if document is None else document.k,
        "keep": None if document is None else document.keep,
        **_figures(ShadowSums() if row is None else row.sums),
        "first_at": None if row is None else shapes.time_text(row.first),
        "last_at": None if row is None else shapes.time_text(row.last),
    }


def _figures(sums: ShadowSums) -> ShadowFigures:
    answered = sums.pairs - sums.failed
    return {
        "pairs": sums.pairs,
        "failed": sums.failed,
        "dropped": sums.dropped,
        "rbo": shapes.number(_mean(sums.rbo, answered)),
        "jaccard": shapes.number(_mean(sums.jaccard, answered)),
        "a_empty": sums.a_empty,
        "b_empty": sums.b_empty,
        "a_seconds": shapes.number(_mean(sums.a_seconds, sums.timed)),
        "b_seconds": shapes.number(_mean(sums.b_seconds, sums.timed)),
    }


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
