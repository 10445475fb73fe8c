"""Tables of runs, and of the answers of those that are not finalised."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, Table, Text, UniqueConstraint, text

from app.base.db.tables import Id, id_column, metadata

runs = Table(
    "runs",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("scheduled_for", BigInteger, nullable=False),
    Column("not_before", BigInteger, nullable=False),  # scheduled_for plus the check's spread; 0 = at once
    Column("trigger", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("index_version", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    # frozen when it starts
    Column("suite_version_id", Id, ForeignKey("suite_versions.id")),
    Column("check_version_id", Id, ForeignKey("definition_versions.id")),
    Column("retriever_version_id", Id, ForeignKey("definition_versions.id")),
    Column("config_hash", Text),
    Column("layout_id", Id, ForeignKey("layouts.id")),
    # the claim
    Column("claimed_by", Text),
    Column("lease_until", BigInteger),  # of releases before there were jobs
    # what it amounted to
    Column("verdict", Text),
    Column("reasons", Text),  # JSON list of sentences
    Column("total", Integer),
    Column("measured", Integer),
    Column("failed", Integer),
    Column("undefined", Integer),
    Column("degraded", Integer),
    Column("degraded_positions", LargeBinary),  # uint32 places in the suite version; NULL = none
    Column("aggregates", LargeBinary),  # float64, named by the layout; NaN = nothing measured; NULL = see figures
    Column("probes", Text),  # JSON, see probe_summary; NULL = in figures, not executable, or of a release before
    Column("figures", LargeBinary),  # see packed; NULL = nothing measured, or in aggregates, of a release before
    UniqueConstraint("check_id", "scheduled_for"),  # N replicas tick, one inserts
    Index("ix_runs_check_id", "check_id", "id"),  # newest runs of a check
    Index("ix_runs_check_finished", "check_id", "finished_at"),  # newest ended run, series
    # Newest run that has a verdict, of a check that may have been unknown for long.
    Index(
        "ix_runs_known",
        "check_id",
        "id",
        sqlite_where=text("verdict in ('healthy', 'degraded')"),
        postgresql_where=text("verdict in ('healthy', 'degraded')"),
    ),
    # When a check last completed, however long it has failed since: asked of each at every tick.
    Index(
        "ix_runs_completed",
        "check_id",
        "finished_at",
        sqlite_where=text("status in ('finished', 'partial')"),
        postgresql_where=text("status in ('finished', 'partial')"),
    ),
    # One follow-up waits for a check, whoever asked; one runs. These indexes are the locks.
    Index(
        "uq_runs_queued",
        "check_id",
        unique=True,
        sqlite_where=text("status = 'queued'"),
        postgresql_where=text("status = 'queued'"),
    ),
    Index(
        "uq_runs_running",
        "check_id",
        unique=True,
        sqlite_where=text("status = 'running'"),
        postgresql_where=text("status = 'running'"),
    ),
    # What is due, and the next that will be, among all that wait for their spread.
    Index(
        "ix_runs_queued",
        "not_before",
        sqlite_where=text("status = 'queued'"),
        postgresql_where=text("status = 'queued'"),
    ),
    # What a worker looks for every second.
    Index(
        "ix_runs_active",
        "status",
        sqlite_where=text("status in ('queued', 'running')"),
        postgresql_where=text("status in ('queued', 'running')"),
    ),
)

# When each check is due next, so that finding what is due looks at nothing else; computed anew where it is missing.
next_runs = Table(
    "next_runs",
    metadata,
    Column("check_id", Id, ForeignKey("definitions.id"), primary_key=True, autoincrement=False),
    Column("version_id", Id, nullable=False),  # of the check, whose schedule it follows
    Column("next_run_at", BigInteger),  # NULL = it is disabled
    Index("ix_next_runs_at", "next_run_at"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("check_id", Id, ForeignKey("definitions.id"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", Text, nullable=False),
    Column("run_id", Id, ForeignKey("runs.id"), nullable=False, index=True),
    Column("created_at", BigInteger, nullable=False),
)

# Answers of a run not yet finalised; the primary key makes a repeated shard a no-op.
shards = Table(
    "shards",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
    Column("staged_at", BigInteger),  # NULL: by a release before
)

# Of retrievers whose limits hold over several processes: the requests that are reserved so far.
rates = Table(
    "rates",
    metadata,
    Column("name", Text, primary_key=True),
    Column("next_at", BigInteger, nullable=False),  # when the first request may be sent that is not reserved
)
