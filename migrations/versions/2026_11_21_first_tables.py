"""Create the first tables."""

import sqlalchemy as sa
from alembic import op

revision = "2026_11_21_first_tables"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("prefix", name=op.f("uq_api_keys_prefix")),
    )
    op.create_table(
        "chunks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("chunk", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chunks")),
        sa.UniqueConstraint("hash", name=op.f("uq_chunks_hash")),
    )
    op.create_table(
        "definitions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("managed_by", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_definitions")),
        sa.UniqueConstraint("kind", "slug", name=op.f("uq_definitions_kind_slug")),
    )
    op.create_table(
        "layouts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("measures_version", sa.Text(), nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.Column("yardstick", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_layouts")),
        sa.UniqueConstraint("hash", name=op.f("uq_layouts_hash")),
    )
    op.create_table(
        "rankings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rankings")),
        sa.UniqueConstraint("hash", name=op.f("uq_rankings_hash")),
    )
    op.create_table(
        "vectors",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vectors")),
        sa.UniqueConstraint("hash", name=op.f("uq_vectors_hash")),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("rule_key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("first_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=True),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_at", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_by", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_alerts_check_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )
    with op.batch_alter_table("alerts", schema=None) as batch_op:
        batch_op.create_index("ix_alerts_created", ["created_at"], unique=False)
        batch_op.create_index(
            "uq_alerts_open",
            ["check_id", "rule_key", "scope"],
            unique=True,
            sqlite_where=sa.text("state != 'resolved'"),
            postgresql_where=sa.text("state != 'resolved'"),
        )

    op.create_table(
        "canaries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("suite_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("managed_by", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["suite_id"], ["definitions.id"], name=op.f("fk_canaries_suite_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_canaries")),
        sa.UniqueConstraint("suite_id", "key", name=op.f("uq_canaries_suite_id_key")),
    )
    op.create_table(
        "definition_versions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("definition_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("secrets", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["definition_id"], ["definitions.id"], name=op.f("fk_definition_versions_definition_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_definition_versions")),
        sa.UniqueConstraint("definition_id", "hash", name=op.f("uq_definition_versions_definition_id_hash")),
    )
    op.create_table(
        "rollups",
        sa.Column(
            "check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("seconds", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "layout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_rollups_check_id")),
        sa.ForeignKeyConstraint(["layout_id"], ["layouts.id"], name=op.f("fk_rollups_layout_id")),
        sa.PrimaryKeyConstraint("check_id", "seconds", "bucket", "layout_id", name=op.f("pk_rollups")),
    )
    op.create_table(
        "suite_versions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("suite_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("members", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["suite_id"], ["definitions.id"], name=op.f("fk_suite_versions_suite_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_suite_versions")),
        sa.UniqueConstraint("suite_id", "revision", name=op.f("uq_suite_versions_suite_id_revision")),
    )
    op.create_table(
        "canary_versions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("canary_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["canary_id"], ["canaries.id"], name=op.f("fk_canary_versions_canary_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_canary_versions")),
        sa.UniqueConstraint("canary_id", "hash", name=op.f("uq_canary_versions_canary_id_hash")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("scheduled_for", sa.BigInteger(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("index_version", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("suite_version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("check_version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("retriever_version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("config_hash", sa.Text(), nullable=True),
        sa.Column("layout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("reasons", sa.Text(), nullable=True),
        sa.Column("total", sa.Integer(), nullable=True),
        sa.Column("measured", sa.Integer(), nullable=True),
        sa.Column("failed", sa.Integer(), nullable=True),
        sa.Column("undefined", sa.Integer(), nullable=True),
        sa.Column("degraded", sa.Integer(), nullable=True),
        sa.Column("degraded_positions", sa.LargeBinary(), nullable=True),
        sa.Column("aggregates", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_runs_check_id")),
        sa.ForeignKeyConstraint(
            ["check_version_id"], ["definition_versions.id"], name=op.f("fk_runs_check_version_id")
        ),
        sa.ForeignKeyConstraint(["layout_id"], ["layouts.id"], name=op.f("fk_runs_layout_id")),
        sa.ForeignKeyConstraint(
            ["retriever_version_id"], ["definition_versions.id"], name=op.f("fk_runs_retriever_version_id")
        ),
        sa.ForeignKeyConstraint(["suite_version_id"], ["suite_versions.id"], name=op.f("fk_runs_suite_version_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("check_id", "scheduled_for", name=op.f("uq_runs_check_id_scheduled_for")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(
            "ix_runs_active",
            ["status"],
            unique=False,
            sqlite_where=sa.text("status in ('queued', 'running')"),
            postgresql_where=sa.text("status in ('queued', 'running')"),
        )
        batch_op.create_index("ix_runs_check_finished", ["check_id", "finished_at"], unique=False)
        batch_op.create_index("ix_runs_check_id", ["check_id", "id"], unique=False)
        batch_op.create_index(
            "uq_runs_queued",
            ["check_id"],
            unique=True,
            sqlite_where=sa.text("status = 'queued'"),
            postgresql_where=sa.text("status = 'queued'"),
        )
        batch_op.create_index(
            "uq_runs_running",
            ["check_id"],
            unique=True,
            sqlite_where=sa.text("status = 'running'"),
            postgresql_where=sa.text("status = 'running'"),
        )

    op.create_table(
        "transitions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("alert_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("suppressed", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["alert_id"], ["alerts.id"], name=op.f("fk_transitions_alert_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transitions")),
    )
    with op.batch_alter_table("transitions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_transitions_alert_id"), ["alert_id"], unique=False)

    op.create_table(
        "deliveries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("hook_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("alert_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("transition_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("first_attempt_at", sa.BigInteger(), nullable=True),
        sa.Column("next_attempt_at", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["alert_id"], ["alerts.id"], name=op.f("fk_deliveries_alert_id")),
        sa.ForeignKeyConstraint(["hook_id"], ["definitions.id"], name=op.f("fk_deliveries_hook_id")),
        sa.ForeignKeyConstraint(["transition_id"], ["transitions.id"], name=op.f("fk_deliveries_transition_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("message_id", name=op.f("uq_deliveries_message_id")),
        sa.UniqueConstraint("transition_id", "hook_id", name=op.f("uq_deliveries_transition_id_hook_id")),
    )
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.create_index("ix_deliveries_alert", ["alert_id"], unique=False)
        batch_op.create_index(
            "ix_deliveries_pending",
            ["next_attempt_at"],
            unique=False,
            sqlite_where=sa.text("state = 'pending'"),
            postgresql_where=sa.text("state = 'pending'"),
        )

    op.create_table(
        "idempotency_keys",
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_idempotency_keys_check_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_idempotency_keys_run_id")),
        sa.PrimaryKeyConstraint("check_id", "key", name=op.f("pk_idempotency_keys")),
    )
    with op.batch_alter_table("idempotency_keys", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_idempotency_keys_run_id"), ["run_id"], unique=False)

    op.create_table(
        "latest",
        sa.Column(
            "check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_latest_check_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_latest_run_id")),
        sa.PrimaryKeyConstraint("check_id", name=op.f("pk_latest")),
    )
    op.create_table(
        "marks",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("index_version", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_marks_check_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_marks_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_marks")),
    )
    with op.batch_alter_table("marks", schema=None) as batch_op:
        batch_op.create_index("ix_marks_check_at", ["check_id", "at"], unique=False)

    op.create_table(
        "run_probes",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("latencies", sa.LargeBinary(), nullable=False),
        sa.Column("failures", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_probes_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_probes")),
    )
    op.create_table(
        "scores",
        sa.Column(
            "ranking_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column(
            "canary_version_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column(
            "layout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("matched", sa.LargeBinary(), nullable=False),
        sa.Column("vector_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(
            ["canary_version_id"], ["canary_versions.id"], name=op.f("fk_scores_canary_version_id")
        ),
        sa.ForeignKeyConstraint(["layout_id"], ["layouts.id"], name=op.f("fk_scores_layout_id")),
        sa.ForeignKeyConstraint(["ranking_id"], ["rankings.id"], name=op.f("fk_scores_ranking_id")),
        sa.ForeignKeyConstraint(["vector_id"], ["vectors.id"], name=op.f("fk_scores_vector_id")),
        sa.PrimaryKeyConstraint("ranking_id", "canary_version_id", "layout_id", name=op.f("pk_scores")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "shards",
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_shards_run_id")),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_shards")),
    )
    op.create_table(
        "states",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("check_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("canary_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("canary_version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ranking_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("layout_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("reasons", sa.SmallInteger(), nullable=False),
        sa.Column("top_score", sa.Float(precision=53), nullable=True),
        sa.Column("first_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("last_run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.ForeignKeyConstraint(["canary_id"], ["canaries.id"], name=op.f("fk_states_canary_id")),
        sa.ForeignKeyConstraint(
            ["canary_version_id"], ["canary_versions.id"], name=op.f("fk_states_canary_version_id")
        ),
        sa.ForeignKeyConstraint(["check_id"], ["definitions.id"], name=op.f("fk_states_check_id")),
        sa.ForeignKeyConstraint(["layout_id"], ["layouts.id"], name=op.f("fk_states_layout_id")),
        sa.ForeignKeyConstraint(["ranking_id"], ["rankings.id"], name=op.f("fk_states_ranking_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_states")),
    )
    with op.batch_alter_table("states", schema=None) as batch_op:
        batch_op.create_index("ix_states_ended", ["check_id", "last_run"], unique=False)
        batch_op.create_index("ix_states_ranking", ["ranking_id"], unique=False)
        batch_op.create_index("ix_states_timeline", ["check_id", "canary_id", "first_run"], unique=False)
        batch_op.create_index(
            "uq_states_open",
            ["check_id", "canary_id"],
            unique=True,
            sqlite_where=sa.text("last_run is null"),
            postgresql_where=sa.text("last_run is null"),
        )

    op.create_table(
        "attempts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("delivery_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("latency_seconds", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["delivery_id"], ["deliveries.id"], name=op.f("fk_attempts_delivery_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_attempts_delivery_id"), ["delivery_id"], unique=False)
