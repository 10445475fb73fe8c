"""Take in what units of experiments were exposed to and how it ended, with running totals."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_26_experiments"
down_revision = "2026_11_26_calibrations"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "experiments",
        sa.Column("id", identity, nullable=False, autoincrement=True),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("archived_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
    )
    op.create_index(
        "uq_experiments_slug",
        "experiments",
        ["slug"],
        unique=True,
        sqlite_where=sa.text("archived_at is null"),
        postgresql_where=sa.text("archived_at is null"),
    )
    op.create_table(
        "experiment_epochs",
        sa.Column("id", identity, nullable=False, autoincrement=True),
        sa.Column("experiment_id", identity, nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_experiment_epochs_experiment_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment_epochs")),
        sa.UniqueConstraint("experiment_id", "epoch", name=op.f("uq_experiment_epochs_experiment_id_epoch")),
    )
    op.create_index(op.f("ix_experiment_epochs_ended_at"), "experiment_epochs", ["ended_at"])
    op.create_table(
        "experiment_units",
        sa.Column("epoch_id", identity, nullable=False),
        sa.Column("unit", sa.BigInteger(), nullable=False),
        sa.Column("arm", sa.SmallInteger(), nullable=False),
        sa.Column("exposed_at", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.BigInteger()),
        sa.Column("value", sa.SmallInteger()),
        sa.ForeignKeyConstraint(["epoch_id"], ["experiment_epochs.id"], name=op.f("fk_experiment_units_epoch_id")),
        sa.PrimaryKeyConstraint("epoch_id", "unit", name=op.f("pk_experiment_units")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "experiment_counts",
        sa.Column("epoch_id", identity, nullable=False),
        sa.Column("bucket", sa.BigInteger(), nullable=False),
        sa.Column("arm", sa.SmallInteger(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("successes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["epoch_id"], ["experiment_epochs.id"], name=op.f("fk_experiment_counts_epoch_id")),
        sa.PrimaryKeyConstraint("epoch_id", "bucket", "arm", name=op.f("pk_experiment_counts")),
        sqlite_with_rowid=False,
    )
