"""The table of facts of indexes: one row for each run and fact, its value or why it is unknown."""

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, Table, Text

from app.base.db.rows import Id, metadata

index_facts = Table(
    "index_facts",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("value", Float(53)),
    Column("reason", Text),
    Column("low", Float(53)),
    Column("high", Float(53)),
    Column("canaries", Integer),
    Column("source", Text, nullable=False),  # a digest: values of another one are not comparable
    Column("sentence", Text),  # what is wrong with it
    Index("ix_index_facts_check", "check_id", "run_id"),
)
