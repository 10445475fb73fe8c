"""Which runs have a verdict that says something: the condition of the index `ix_runs_known`."""

import sqlalchemy as sa

from app.base.db.engine import sql_literal
from app.records.run_tables import runs


def is_known(table: sa.FromClause = runs) -> sa.ColumnElement[bool]:
    """Whether the verdict of a run is not unknown; in the order of the index, which else would not be used."""
    return table.c.verdict.in_([sql_literal("healthy"), sql_literal("degraded")])
