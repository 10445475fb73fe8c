"""Keep what a shadow asks its candidate, its most different pairs, and items that are such pairs."""

import sqlite3
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_side_by_side"
down_revision = "2026_11_26_shared_ids"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered, and writes no item without a canary."""
    op.create_table(
        "shadows",
        sa.Column("id", _id(), autoincrement=True, nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("ask_after", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shadows")),
        sa.UniqueConstraint("slug", name=op.f("uq_shadows_slug")),
    )
    op.create_table(
        "shadow_questions",
        sa.Column("id", _id(), autoincrement=True, nullable=False),
        sa.Column("shadow_id", _id(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("hits", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Float(53), nullable=True),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["shadow_id"], ["shadows.id"], name=op.f("fk_shadow_questions_shadow_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shadow_questions")),
    )
    op.create_index("ix_shadow_questions_shadow", "shadow_questions", ["shadow_id", "id"])
    op.create_index(op.f("ix_shadow_questions_received_at"), "shadow_questions", ["received_at"])
    op.create_table(
        "shadow_pairs",
        sa.Column("id", _id(), autoincrement=True, nullable=False),
        sa.Column("shadow_id", _id(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("a", sa.Text(), nullable=False),
        sa.Column("b", sa.Text(), nullable=False),
        sa.Column("rbo", sa.Float(53), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["shadow_id"], ["shadows.id"], name=op.f("fk_shadow_pairs_shadow_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shadow_pairs")),
        sa.UniqueConstraint("shadow_id", "digest", name=op.f("uq_shadow_pairs_shadow_id_digest")),
    )
    op.create_index(op.f("ix_shadow_pairs_at"), "shadow_pairs", ["at"])
    op.create_table(
        "shadow_parts",
        sa.Column("id", _id(), autoincrement=True, nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shadow_parts")),
        sa.UniqueConstraint("slug", "key", name=op.f("uq_shadow_parts_slug_key")),
    )
    op.create_index(op.f("ix_shadow_parts_received_at"), "shadow_parts", ["received_at"])
    op.create_table(
        "pair_items",
        sa.Column("item_id", _id(), autoincrement=False, nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("left_texts", sa.Text(), nullable=False),
        sa.Column("right_texts", sa.Text(), nullable=False),
        sa.Column("candidate_right", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["task_items.id"], name=op.f("fk_pair_items_item_id")),
        sa.PrimaryKeyConstraint("item_id", name=op.f("pk_pair_items")),
    )
    op.add_column("shadow_hours", sa.Column("dropped", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    _let_items_be_without_canary()


def _id() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _let_items_be_without_canary() -> None:
    """Drop a NOT NULL: on SQLite within its schema, since other tables refer to this one, so it cannot be copied.

    See "Making Other Kinds Of Table Schema Changes", https://www.sqlite.org/lang_altertable.html.
    """
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        op.alter_column("task_items", "canary_id", existing_type=sa.BigInteger(), nullable=True)
        return
    mine = "type = 'table' AND name = 'task_items'"
    [before] = connection.exec_driver_sql(f"SELECT sql FROM sqlite_schema WHERE {mine}").scalars()  # noqa: S608 - no input
    after = before.replace("canary_id INTEGER NOT NULL", "canary_id INTEGER", 1)
    if after == before:
        raise RuntimeError(f"task_items is not as this release made it: {before}")
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    driver: Any = connection.connection.driver_connection
    if hasattr(driver, "setconfig"):  # from Python 3.12 on; some builds of SQLite refuse this unless they are told
        driver.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, False)  # type: ignore[attr-defined,unused-ignore] # of 3.12
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    try:
        connection.exec_driver_sql(f"UPDATE sqlite_schema SET sql = ? WHERE {mine}", (after,))  # noqa: S608 - no input
        connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    finally:
        connection.exec_driver_sql("PRAGMA writable_schema = OFF")
