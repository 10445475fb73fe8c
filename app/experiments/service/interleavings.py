"""Interleavings: defined, lists merged, clicks taken in with running totals, read with their decision.

A unit counts for the ranking that got more of its clicks so far. Lists are made by the published function and kept
nowhere; of units and clicks only 64 bits of keyed hashes are.
"""

import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, NotFoundError
from app.comparison.domain.outcomes import Side
from app.experiments.documents.interleaving_documents import Click, InterleavingDocument, ListsRequest
from app.experiments.domain.interleaving import PreferenceDecision, Preferences, decide_preference, interleave
from app.experiments.domain.views import InterleavingView, MergedList, ReceivedClicks
from app.experiments.service.intake import unit_hasher
from app.experiments.store import interleavings as rows
from app.experiments.store.interleavings import ClickRow, InterleavingRow
from app.records import documents as shapes

_SALT_BYTES: Final = 16
_CREDIT: Final = {Side.A: -1, Side.B: 1}


def put_interleaving(
    store: Store, document: InterleavingDocument, *, by: str, now: datetime, only_new: bool = False
) -> bool:
    """Create an interleaving, or begin an epoch with what has changed; whether it is new.

    The same document again changes nothing. With `only_new` raises ConflictError wherever there is one.
    """
    with store.write() as connection:
        body, at = document.data(), to_us(now)
        salt = secrets.token_bytes(_SALT_BYTES)
        if rows.insert_interleaving(connection, document.slug, body, salt=salt, at=at, by=by):
            return True
        if only_new:
            raise ConflictError(f"there is an interleaving '{document.slug}' already")
        row = _find(connection, document.slug, lock=True)
        if row.body != body:
            rows.begin_epoch(connection, row, body, at)
        return False


def merge_lists(store: Store, slug: str, wish: ListsRequest) -> MergedList:
    """Merge two rankings for a unit; nothing is stored. Raises NotFoundError."""
    with store.read() as connection:
        row = _find(connection, slug)
    merged = interleave(slug, row.epoch, wish.unit, wish.a, wish.b)
    return {"epoch": row.epoch, "hits": [{"id": hit.id, "team": hit.team} for hit in merged]}


def receive_clicks(store: Store, slug: str, clicks: Sequence[Click], *, now: datetime) -> ReceivedClicks:
    """Count clicks, each `event_id` of a unit once. The first look at which it ends decides. Raises NotFoundError."""
    with store.write() as connection:
        row = _find(connection, slug, lock=True)
        digest = unit_hasher(row.salt)
        came = [ClickRow(digest(one.unit), digest(one.event_id), _CREDIT[one.team]) for one in clicks]
        units = {one.unit for one in came}
        before = rows.read_credits(connection, row.id, units)
        rows.insert_clicks(connection, row.id, came)
        after = rows.read_credits(connection, row.id, units)
        found, ties = _recount(row, before, after)
        rows.save_counts(connection, row.id, found, ties)
        if row.decided_at is None and _decide(row, found, ties).ended:
            rows.save_decision(connection, row.id, found, to_us(now))
    return {"received": len(clicks), "units": len(units)}


def list_interleavings(store: Store, *, after: str = "", limit: int) -> list[InterleavingView]:
    """List interleavings by slug, those behind `after`."""
    with store.read() as connection:
        return [_view(row) for row in rows.list_interleavings(connection, after=after, limit=limit)]


def load_interleaving(store: Store, slug: str) -> InterleavingView:
    """Return an interleaving with its decision. Raises NotFoundError."""
    with store.read() as connection:
        return _view(_find(connection, slug))


def delete_interleaving(store: Store, slug: str) -> None:
    """Delete an interleaving and its clicks. Raises NotFoundError."""
    with store.write() as connection:
        row = _find(connection, slug, lock=True)
        rows.delete_clicks(connection, row.id)
        rows.delete_interleaving(connection, row.id)


def _recount(row: InterleavingRow, before: dict[int, int], after: dict[int, int]) -> tuple[Preferences, int]:
    """Return the totals with the units moved that changed their preference."""
    moved: Counter[int] = Counter()
    for unit, credit in after.items():
        moved[_sign(credit)] += 1
        if unit in before:
            moved[_sign(before[unit])] -= 1
    found = Preferences(a=row.preferences.a + moved[-1], b=row.preferences.b + moved[1])
    return found, row.ties + moved[0]


def _sign(credit: int) -> int:
    return (credit > 0) - (credit < 0)


def _find(connection: Connection, slug: str, *, lock: bool = False) -> InterleavingRow:
    row = rows.find_interleaving(connection, slug, lock=lock)
    if row is None:
        raise NotFoundError(f"there is no interleaving '{slug}'")
    return row


def _document(row: InterleavingRow) -> InterleavingDocument:
    return InterleavingDocument.model_validate(row.body)


def _decide(row: InterleavingRow, found: Preferences, ties: int) -> PreferenceDecision:
    document = _document(row)
    units = found.a + found.b + ties
    return decide_preference(found, (document.a, document.b), units=units, max_units=document.max_units)


def _view(row: InterleavingRow) -> InterleavingView:
    document = _document(row)
    decision = _decide(row, row.decided or row.preferences, row.ties)
    estimate = decision.estimate
    return {
        "slug": row.slug,
        "a": document.a,
        "b": document.b,
        "max_units": document.max_units,
        "epoch": row.epoch,
        "began_at": shapes.time_text(row.began_at),
        "created_at": shapes.time_text(row.created_at),
        "created_by": row.created_by,
        "prefer_a": row.preferences.a,
        "prefer_b": row.preferences.b,
        "ties": row.ties,
        "state": decision.state,
        "reason": decision.reason,
        "winner": decision.winner,
        "decided_at": shapes.time_text(row.decided_at),
        "difference": None
        if estimate is None
        else {"value": estimate.value, "low": estimate.low, "high": estimate.high},
    }
