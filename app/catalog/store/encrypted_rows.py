"""Encrypted rows of all versions, read and replaced as a whole when keys are rotated.

Making and opening it is the vault's work; each version in force is read and written through `catalog`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.catalog.tables import definition_versions, definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """The encrypted secrets of one version of a definition."""

    version_id: int
    kind: str
    slug: str
    in_force: bool
    token: bytes


def list_encrypted(connection: Connection) -> list[Sealed]:
    """Return the secrets of every version of every definition, also archived ones, locked against other writers."""
    statement = (
        sa.select(
            definition_versions.c.id,
            definition_versions.c.secrets,
            definitions.c.kind,
            definitions.c.slug,
            sa.and_(definitions.c.version_id == definition_versions.c.id, definitions.c.archived_at.is_(None)).label(
                "in_force"
            ),
        )
        .join(definitions, definitions.c.id == definition_versions.c.definition_id)
        .where(definition_versions.c.secrets.is_not(None))
        .order_by(definition_versions.c.id)
        .with_for_update(of=definition_versions)  # a secret renewed in between must not be overwritten by its old self
    )
    return [
        Sealed(version_id=row.id, kind=row.kind, slug=row.slug, in_force=bool(row.in_force), token=bytes(row.secrets))
        for row in connection.execute(statement)
    ]


def replace_encrypted(connection: Connection, tokens: Sequence[tuple[int, bytes]]) -> None:
    """Replace the encrypted secrets of versions: (version id, token) each."""
    if tokens:
        connection.execute(
            sa.update(definition_versions)
            .where(definition_versions.c.id == sa.bindparam("version"))
            .values(secrets=sa.bindparam("token")),
            [{"version": version, "token": token} for version, token in tokens],
        )
