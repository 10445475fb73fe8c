"""Let people annotate what retrievers return: tasks, items, annotations, adjudications, corpora."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_23_annotation"
down_revision = "2026_11_23_jobs"
branch_labels = None
depends_on = None


def _id(name: str, *, nullable: bool = False, autoincrement: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, nullable=nullable, autoincrement=autoincrement)


def _foreign_key(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{target}.id"], name=op.f(f"fk_{table}_{column}"))


def upgrade() -> None:
    """Create the tables; a release that does not know them is not hindered."""
    in_force = sa.text("withdrawn_at is null")
    op.create_table(
        "tasks",
        _id("id", autoincrement=True),
        sa.Column("slug", sa.Text(), nullable=False),
        _id("suite_id"),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("pool_requested_at", sa.BigInteger()),
        sa.Column("pooled_at", sa.BigInteger()),
        sa.Column("archived_at", sa.BigInteger()),
        _foreign_key("tasks", "suite_id", "definitions"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
    )
    live = sa.text("archived_at is null")
    op.create_index("uq_tasks_slug", "tasks", ["slug"], unique=True, sqlite_where=live, postgresql_where=live)
    op.create_table(
        "task_canaries",
        _id("task_id"),
        _id("canary_id"),
        _id("canary_version_id"),
        sa.Column("sizes", sa.Text()),
        sa.Column("failure", sa.Text()),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        _foreign_key("task_canaries", "task_id", "tasks"),
        _foreign_key("task_canaries", "canary_id", "canaries"),
        _foreign_key("task_canaries", "canary_version_id", "canary_versions"),
        sa.PrimaryKeyConstraint("task_id", "canary_id", name=op.f("pk_task_canaries")),
    )
    op.create_table(
        "task_items",
        _id("id", autoincrement=True),
        _id("task_id"),
        _id("canary_id"),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("document", sa.Text()),
        sa.Column("stratum", sa.Integer(), nullable=False),
        sa.Column("ranks", sa.Text(), nullable=False),
        sa.Column("chunks", sa.Text(), nullable=False),
        sa.Column("overlap", sa.Integer(), nullable=False),
        _foreign_key("task_items", "task_id", "tasks"),
        _foreign_key("task_items", "canary_id", "canaries"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task_items")),
        sa.UniqueConstraint("task_id", "token", name=op.f("uq_task_items_task_id_token")),
    )
    op.create_index("ix_task_items_canary", "task_items", ["task_id", "canary_id"])
    op.create_table(
        "annotations",
        _id("id", autoincrement=True),
        _id("task_id"),
        _id("item_id"),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("by_judge", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("grade", sa.Integer()),
        sa.Column("seconds", sa.Float(53)),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn_at", sa.BigInteger()),
        _foreign_key("annotations", "task_id", "tasks"),
        _foreign_key("annotations", "item_id", "task_items"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_annotations")),
    )
    op.create_index("ix_annotations_annotator", "annotations", ["task_id", "annotator", "id"])
    op.create_index(
        "uq_annotations_in_force",
        "annotations",
        ["item_id", "annotator"],
        unique=True,
        sqlite_where=in_force,
        postgresql_where=in_force,
    )
    op.create_table(
        "adjudications",
        _id("id", autoincrement=True),
        _id("task_id"),
        _id("item_id"),
        sa.Column("grade", sa.Integer(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn_at", sa.BigInteger()),
        _foreign_key("adjudications", "task_id", "tasks"),
        _foreign_key("adjudications", "item_id", "task_items"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_adjudications")),
    )
    op.create_index(op.f("ix_adjudications_task_id"), "adjudications", ["task_id"])
    op.create_index(
        "uq_adjudications_in_force",
        "adjudications",
        ["item_id"],
        unique=True,
        sqlite_where=in_force,
        postgresql_where=in_force,
    )
    op.create_table(
        "corpora",
        _id("id", autoincrement=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_corpora")),
        sa.UniqueConstraint("name", name=op.f("uq_corpora_name")),
    )
    op.create_table(
        "corpus_texts",
        _id("id", autoincrement=True),
        _id("corpus_id"),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("chunk", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        _foreign_key("corpus_texts", "corpus_id", "corpora"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_corpus_texts")),
        sa.UniqueConstraint("corpus_id", "key", name=op.f("uq_corpus_texts_corpus_id_key")),
    )
