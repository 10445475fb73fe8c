"""Rows of promotions, and of who waived which gate."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_one, upsert
from app.experiments.tables import promotion_waivers, promotions


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRow:
    """A promotion."""

    id: int
    slug: str
    body: Mapping[str, Any]
    created_at: int
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverRow:
    """A waived gate."""

    gate: str
    reason: str
    waived_by: str
    waived_at: int


def insert_promotion(connection: Connection, *, slug: str, body: Mapping[str, Any], at: int, by: str) -> bool:
    """Insert a promotion; False where one has the slug."""
    return (
        insert_one(connection, promotions, slug=slug, body=json.dumps(body), created_at=at, created_by=by) is not None
    )


def change_promotion(connection: Connection, promotion_id: int, body: Mapping[str, Any]) -> None:
    """Replace the document of a promotion, and forget its waivers: they were of another candidate."""
    connection.execute(sa.update(promotions).where(promotions.c.id == promotion_id).values(body=json.dumps(body)))
    _forget_waivers(connection, promotion_id)


def find_promotion(connection: Connection, slug: str) -> PromotionRow | None:
    """Return the promotion of this slug."""
    row = connection.execute(sa.select(promotions).where(promotions.c.slug == slug)).one_or_none()
    return None if row is None else _promotion(row)


def list_promotions(connection: Connection, *, after: str = "", limit: int) -> list[PromotionRow]:
    """List promotions by slug, those behind `after`."""
    statement = sa.select(promotions).where(promotions.c.slug > after).order_by(promotions.c.slug).limit(limit)
    return [_promotion(row) for row in connection.execute(statement)]


def delete_promotion(connection: Connection, promotion_id: int) -> None:
    """Delete a promotion with its waivers."""
    _forget_waivers(connection, promotion_id)
    connection.execute(sa.delete(promotions).where(promotions.c.id == promotion_id))


def save_waiver(connection: Connection, promotion_id: int, gate: str, *, reason: str, by: str, at: int) -> None:
    """Store that a gate is waived; an earlier waiver of it is replaced."""
    keys = ["promotion_id", "gate"]
    values = {"promotion_id": promotion_id, "gate": gate, "reason": reason, "waived_by": by, "waived_at": at}
    upsert(connection, promotion_waivers, keys, **values)


def delete_waiver(connection: Connection, promotion_id: int, gate: str) -> bool:
    """Delete the waiver of a gate; False where there was none."""
    mine = sa.and_(promotion_waivers.c.promotion_id == promotion_id, promotion_waivers.c.gate == gate)
    return connection.execute(sa.delete(promotion_waivers).where(mine)).rowcount == 1


def list_waivers(connection: Connection, promotion_id: int) -> list[WaiverRow]:
    """List the waivers of a promotion."""
    statement = sa.select(promotion_waivers).where(promotion_waivers.c.promotion_id == promotion_id)
    return [
        WaiverRow(gate=row.gate, reason=row.reason, waived_by=row.waived_by, waived_at=row.waived_at)
        for row in connection.execute(statement)
    ]


def _forget_waivers(connection: Connection, promotion_id: int) -> None:
    connection.execute(sa.delete(promotion_waivers).where(promotion_waivers.c.promotion_id == promotion_id))


def _promotion(row: Any) -> PromotionRow:
    return PromotionRow(
        id=row.id, slug=row.slug, body=json.loads(row.body), created_at=row.created_at, created_by=row.created_by
    )
