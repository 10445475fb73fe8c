"""Let incidents of two classes be open under one key: a rule of before there were incidents may be called `latency`."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_incident_classes"
down_revision = "2026_11_22_retention_indexes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Build the index anew, with the class in it.

    The release before writes one open incident per class under it as well: the key of an incident that it opens names
    its class, and it leaves out, without naming an index, what is there already.
    """
    op.drop_index("uq_incidents_open", table_name="incidents")
    op.create_index(
        "uq_incidents_open",
        "incidents",
        ["check_id", "incident_class", "dedupe_key"],
        unique=True,
        sqlite_where=sa.text("resolved_at is null"),
        postgresql_where=sa.text("resolved_at is null"),
    )
