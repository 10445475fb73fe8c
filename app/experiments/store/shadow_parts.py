"""Rows of requests with pairs that arrived: for a day the same request is not counted twice."""

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db import received_parts
from app.base.db.received_parts import ReceivedPart
from app.experiments.tables import shadow_parts


def remember_part(connection: Connection, slug: str, key: str, part: ReceivedPart, *, at: int) -> bool:
    """Store that a request arrived; False where it had arrived before."""
    return received_parts.remember_part(connection, shadow_parts, {"slug": slug}, key, part, at=at)


def find_part(connection: Connection, slug: str, key: str) -> ReceivedPart | None:
    """Return the request that arrived with a key."""
    return received_parts.find_part(connection, shadow_parts, {"slug": slug}, key)


def forget_parts(connection: Connection, slug: str) -> None:
    """Delete the requests of a shadow: what was deleted may be sent again."""
    connection.execute(sa.delete(shadow_parts).where(shadow_parts.c.slug == slug))
