"""The table of plants: written before a document is sent, with what is needed to remove it again."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from app.base.db.rows import Id, id_column, metadata, partial_index

plants = Table(
    "plants",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("scheduled_for", BigInteger, nullable=False),
    Column("key", Text, nullable=False),  # its id in the source
    Column("body", Text, nullable=False),  # JSON: requests, text, query, bounds, retrievers by version; no secrets
    Column("state", Text, nullable=False),
    Column("step", Integer, nullable=False),  # counts changes, so that of two workers one makes each
    Column("next_at", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("sent_at", BigInteger),
    Column("put_at", BigInteger),
    Column("missed_at", BigInteger),
    Column("found_at", BigInteger),
    Column("finding", Text),
    Column("failure", Text),
    Column("removals_failed", Integer, nullable=False),
    Column("removal_failure", Text),
    Column("removed_at", BigInteger),
    Column("absent_at", BigInteger),
    Column("absent", Integer, nullable=False),
    Column("gone_at", BigInteger),
    Column("watches", Integer, nullable=False),
    Column("late_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("found_asked_at", BigInteger),
    Column("taken_at", BigInteger),
    Column("seen_at", BigInteger),
    Column("absent_asked_at", BigInteger),
    UniqueConstraint("check_id", "scheduled_for"),
    Index("ix_plants_check", "check_id", "id"),
    partial_index("ix_plants_next", "next_at", where="ended_at is null"),
    Index("ix_plants_ended", "ended_at"),
)
