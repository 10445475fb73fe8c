"""The schema. Times are integer UTC microseconds; JSON that nobody filters by is TEXT, vectors are bytes.

Three groups, as everywhere: catalog (what should be), queue (what is due), history (what happened).
`migrations/` builds exactly this; a test holds the two together.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite fills only a column of type INTEGER from its row id.
Id = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[int]:
    return Column("id", Id, primary_key=True, autoincrement=True)


# --- catalog: what should be ---------------------------------------------------------------------------------

definitions = Table(
    "definitions",
    metadata,
    _id(),
    Column("kind", Text, nullable=False),  # suite, retriever, check, hook, silence
    Column("slug", Text, nullable=False),
    Column("managed_by", Text, nullable=False),  # file or api
    Column("source", Text),  # file:line, where a file owns it
    Column("version_id", Id),  # the version in force
    Column("revision", Integer, nullable=False),  # counts changes; for a suite also those of its canaries
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("archived_at", BigInteger),
    Column("disabled_at", BigInteger),  # a hook whose receiver said it is gone
    Column("disabled_reason", Text),
    UniqueConstraint("kind", "slug"),
)

definition_versions = Table(
    "definition_versions",
    metadata,
    _id(),
    Column("definition_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("hash", Text, nullable=False),
    Column("body", Text, nullable=False),  # JSON without secrets
    Column("secrets", LargeBinary),  # encrypted JSON of what the body leaves out
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("definition_id", "hash"),
)

canaries = Table(
    "canaries",
    metadata,
    _id(),
    Column("suite_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("managed_by", Text, nullable=False),
    Column("source", Text),
    Column("version_id", Id),
    Column("archived_at", BigInteger),
    UniqueConstraint("suite_id", "key"),
)

canary_versions = Table(
    "canary_versions",
    metadata,
    _id(),
    Column("canary_id", Id, ForeignKey("canaries.id"), nullable=False),
    Column("hash", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("canary_id", "hash"),
)

# The canary list of a suite, frozen when a run first needs it: (canary id, canary version id) in order.
suite_versions = Table(
    "suite_versions",
    metadata,
    _id(),
    Column("suite_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("hash", Text, nullable=False),
    Column("members", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("suite_id", "revision"),
)

api_keys = Table(
    "api_keys",
    metadata,
    _id(),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False, unique=True),  # shown in lists, finds the row
    Column("hash", LargeBinary, nullable=False),
    Column("scope", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("last_used_at", BigInteger),
    Column("revoked_at", BigInteger),  # rows stay: "was a key ever created" decides whether we are open
)

# --- queue: what is due --------------------------------------------------------------------------------------

runs = Table(
    "runs",
    metadata,
    _id(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("scheduled_for", BigInteger, nullable=False),
    Column("not_before", BigInteger, nullable=False),  # scheduled_for plus the check's spread
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
    Column("lease_until", BigInteger),
    # what it amounted to
    Column("verdict", Text),
    Column("reasons", Text),  # JSON list of sentences
    Column("total", Integer),
    Column("measured", Integer),
    Column("failed", Integer),
    Column("undefined", Integer),
    Column("degraded", Integer),
    Column("degraded_positions", LargeBinary),  # uint32 places in the suite version; NULL = none
    Column("aggregates", LargeBinary),  # float64, named by the layout; NaN = nothing measured
    UniqueConstraint("check_id", "scheduled_for"),  # N replicas tick, one inserts
    Index("ix_runs_check_id", "check_id", "id"),  # newest runs of a check
    Index("ix_runs_check_finished", "check_id", "finished_at"),  # newest ended run, series
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
    # What a worker looks for every second.
    Index(
        "ix_runs_active",
        "status",
        sqlite_where=text("status in ('queued', 'running')"),
        postgresql_where=text("status in ('queued', 'running')"),
    ),
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
)

# --- history: what happened ----------------------------------------------------------------------------------

# What the numbers in a vector are, and by which yardstick (k, scorer) they were judged; stored once each.
layouts = Table(
    "layouts",
    metadata,
    _id(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("measures_version", Text, nullable=False),
    Column("names", Text, nullable=False),
    Column("yardstick", Text, nullable=False),
)

chunks = Table(
    "chunks",
    metadata,
    _id(),
    Column("hash", LargeBinary, nullable=False, unique=True),  # of chunk, document and text
    Column("chunk", Text, nullable=False),  # the retriever's id
    Column("document", Text),
    Column("text", Text),
)

rankings = Table(
    "rankings",
    metadata,
    _id(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
)

vectors = Table(
    "vectors",
    metadata,
    _id(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
)

scores = Table(
    "scores",
    metadata,
    Column("ranking_id", Id, ForeignKey("rankings.id"), primary_key=True, autoincrement=False),
    Column("canary_version_id", Id, ForeignKey("canary_versions.id"), primary_key=True, autoincrement=False),
    Column("layout_id", Id, ForeignKey("layouts.id"), primary_key=True, autoincrement=False),
    Column("matched", LargeBinary, nullable=False),
    Column("vector_id", Id, ForeignKey("vectors.id"), nullable=False),
    sqlite_with_rowid=False,
)

# Run-length: a row is written when something changed, and holds until `last_run` closes it.
states = Table(
    "states",
    metadata,
    _id(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("canary_id", Id, ForeignKey("canaries.id"), nullable=False),
    Column("canary_version_id", Id, ForeignKey("canary_versions.id"), nullable=False),
    Column("ranking_id", Id, ForeignKey("rankings.id"), nullable=False),
    Column("layout_id", Id, ForeignKey("layouts.id"), nullable=False),
    Column("reasons", SmallInteger, nullable=False),  # bits, in the order of the enum Reason; 0 = healthy
    Column("top_score", Float(53)),
    Column("first_run", Id, nullable=False),
    Column("last_run", Id),
    # The timeline of a canary; and what a canary was at a given run.
    Index("ix_states_timeline", "check_id", "canary_id", "first_run"),
    # Whether a ranking is still referred to: the pruner asks, and so does the foreign key when it deletes.
    Index("ix_states_ranking", "ranking_id"),
    # What held at a given run; what ended before it.
    Index("ix_states_ended", "check_id", "last_run"),
    # What holds now; unique, so two finalisations can never both open one.
    Index(
        "uq_states_open",
        "check_id",
        "canary_id",
        unique=True,
        sqlite_where=text("last_run is null"),
        postgresql_where=text("last_run is null"),
    ),
)

# What differs in every run, by position in the suite version: latency (float16 seconds) and how the probe ended.
run_probes = Table(
    "run_probes",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("latencies", LargeBinary, nullable=False),
    Column("failures", LargeBinary),  # msgpack {position: [outcome, http_status, detail, step]}; NULL = all ok
)

# The newest ended run of each check in full, so that health and /metrics never look further.
latest = Table(
    "latest",
    metadata,
    Column("check_id", Id, ForeignKey("definitions.id"), primary_key=True, autoincrement=False),
    Column("run_id", Id, ForeignKey("runs.id"), nullable=False),
    Column("body", Text, nullable=False),
)

rollups = Table(
    "rollups",
    metadata,
    Column("check_id", Id, ForeignKey("definitions.id"), primary_key=True, autoincrement=False),
    Column("seconds", Integer, primary_key=True, autoincrement=False),  # 3600 or 86400
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    Column("layout_id", Id, ForeignKey("layouts.id"), primary_key=True, autoincrement=False),
    Column("runs", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),  # float64 (4, n): sum, count, min, max
)

marks = Table(
    "marks",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("index_version", Text, nullable=False),
    Index("ix_marks_check_at", "check_id", "at"),
)

alerts = Table(
    "alerts",
    metadata,
    _id(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("rule_key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", Text, nullable=False),  # JSON: the window as last seen, so "why (not)" has an answer
    Column("dedupe_key", Text, nullable=False),
    Column("first_run", Id),  # since when
    Column("created_at", BigInteger, nullable=False),
    Column("opened_at", BigInteger),
    Column("resolved_at", BigInteger),
    Column("acknowledged_at", BigInteger),
    Column("acknowledged_by", Text),
    # One open alert per rule and scope, whatever races.
    Index(
        "uq_alerts_open",
        "check_id",
        "rule_key",
        "scope",
        unique=True,
        sqlite_where=text("state != 'resolved'"),
        postgresql_where=text("state != 'resolved'"),
    ),
    Index("ix_alerts_created", "created_at"),
)

transitions = Table(
    "transitions",
    metadata,
    _id(),
    Column("alert_id", Id, ForeignKey("alerts.id"), nullable=False, index=True),
    Column("at", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("run_id", Id),
    Column("evidence", Text, nullable=False),
    Column("suppressed", Text),  # why it was not sent, where it was not
)

deliveries = Table(
    "deliveries",
    metadata,
    _id(),
    Column("hook_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("alert_id", Id, ForeignKey("alerts.id")),  # NULL: a test send
    Column("transition_id", Id, ForeignKey("transitions.id")),
    Column("message_id", Text, nullable=False, unique=True),  # the receiver's idempotency key
    Column("type", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("body", LargeBinary),  # frozen at the first attempt
    Column("created_at", BigInteger, nullable=False),
    Column("first_attempt_at", BigInteger),
    Column("next_attempt_at", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("reason", Text),  # why it ended as it did
    Column("claimed_by", Text),
    Column("lease_until", BigInteger),
    UniqueConstraint("transition_id", "hook_id"),
    # The outbox: what is left to send, oldest first.
    Index(
        "ix_deliveries_pending",
        "next_attempt_at",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    Index("ix_deliveries_alert", "alert_id"),
)

attempts = Table(
    "attempts",
    metadata,
    _id(),
    Column("delivery_id", Id, ForeignKey("deliveries.id"), nullable=False, index=True),
    Column("at", BigInteger, nullable=False),
    Column("http_status", Integer),
    Column("error", Text),
    Column("detail", Text),
    Column("latency_seconds", Float(53), nullable=False),
)

# An embedder as a retriever is configured with it (hash: URL, model, dimensions, texts), and how it once answered.
embedders = Table(
    "embedders",
    metadata,
    _id(),
    Column("retriever_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("model", Text, nullable=False),
    Column("reference", LargeBinary),  # msgpack [texts, float32 vectors]; NULL = to be learned at the next run
    Column("learned_at", BigInteger),
    Column("learned_run", Id),
    Column("finding_id", Id, ForeignKey("embedder_findings.id")),  # the last one
    Column("seen_run", Id),
    Column("since_run", Id),  # since when outcome and kind of the finding have been the same
    UniqueConstraint("retriever_id", "hash"),
)

embedder_findings = Table(
    "embedder_findings",
    metadata,
    _id(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("body", Text, nullable=False),  # JSON: outcome, kind, reason, dimensions and cosines
)

run_embedders = Table(
    "run_embedders",
    metadata,
    # Deleted with its run also by a release that does not know of it yet.
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("finding_id", Id, ForeignKey("embedder_findings.id"), nullable=False, index=True),
)
