"""Tables of history (rankings with scores, states, runs, rollups), of the queue of runs, and of re-scorings."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from app.base.db.rows import Id, id_column, metadata, partial_index

# What the numbers in a vector are, and by which yardstick (k, scorer) they were judged; stored once each.
layouts = Table(
    "layouts",
    metadata,
    id_column(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("measures_version", Text, nullable=False),
    Column("names", Text, nullable=False),
    Column("yardstick", Text, nullable=False),
)

chunks = Table(
    "chunks",
    metadata,
    id_column(),
    Column("hash", LargeBinary, nullable=False, unique=True),  # of chunk, document and text
    Column("chunk", Text, nullable=False),  # the retriever's id
    Column("document", Text),
    Column("text", Text),
)

rankings = Table(
    "rankings",
    metadata,
    id_column(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
    Column("content_hash", LargeBinary),  # of all but the scores; NULL in rows that earlier releases wrote
)

vectors = Table(
    "vectors",
    metadata,
    id_column(),
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
    Column("vector_id", Id, ForeignKey("vectors.id"), nullable=False, index=True),
    sqlite_with_rowid=False,
)

# Run-length: a row is written when something changed, and holds until `last_run` closes it.
states = Table(
    "states",
    metadata,
    id_column(),
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
    partial_index("uq_states_open", "check_id", "canary_id", unique=True, where="last_run is null"),
)

# What differs in every run, by position in the suite version: latency and how the probe ended.
run_probes = Table(
    "run_probes",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("latencies", LargeBinary, nullable=False),  # float16 seconds; empty where there are paces
    Column("failures", LargeBinary),  # msgpack {position: [outcome, http_status, detail, step]}; NULL = all ok
    Column("unscored", LargeBinary),  # one bit a position: relevance was to be measured and was not; NULL = none
    Column("paces", LargeBinary),  # latencies within 1 %, see encodings; NULL = latencies has them
)

# What a person wrote of a run, the newest text alone.
run_notes = Table(
    "run_notes",
    metadata,
    # Deleted with its run also by a release that does not know of it yet.
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
    Column("written_by", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)

# The newest ended run of each check in full, so that health and /metrics never look further.
latest = Table(
    "latest",
    metadata,
    Column("check_id", Id, ForeignKey("definitions.id"), primary_key=True, autoincrement=False),
    Column("run_id", Id, ForeignKey("runs.id"), nullable=False, index=True),
    Column("body", Text, nullable=False),
)

rollups = Table(
    "rollups",
    metadata,
    Column("check_id", Id, ForeignKey("definitions.id"), primary_key=True, autoincrement=False),
    Column("seconds", Integer, primary_key=True, autoincrement=False),  # 3600 or 86400; below zero, the body is packed
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    Column("layout_id", Id, ForeignKey("layouts.id"), primary_key=True, autoincrement=False),
    Column("runs", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),  # float64 (4, n): sum, count, min, max; see encodings
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
    Column("figures", LargeBinary),  # see encodings; NULL = nothing measured, or in aggregates, of a release before
    UniqueConstraint("check_id", "scheduled_for"),  # N replicas tick, one inserts
    Index("ix_runs_check_id", "check_id", "id"),  # newest runs of a check
    Index("ix_runs_check_finished", "check_id", "finished_at"),  # newest ended run, series
    # Newest run that has a verdict, of a check that may have been unknown for long.
    partial_index("ix_runs_known", "check_id", "id", where="verdict in ('healthy', 'degraded')"),
    # When a check last completed, however long it has failed since: asked of each at every tick.
    partial_index("ix_runs_completed", "check_id", "finished_at", where="status in ('finished', 'partial')"),
    # One follow-up waits for a check, whoever asked; one runs. These indexes are the locks.
    partial_index("uq_runs_queued", "check_id", unique=True, where="status = 'queued'"),
    partial_index("uq_runs_running", "check_id", unique=True, where="status = 'running'"),
    # What is due, and the next that will be, among all that wait for their spread.
    partial_index("ix_runs_queued", "not_before", where="status = 'queued'"),
    # What a worker looks for every second.
    partial_index("ix_runs_active", "status", where="status in ('queued', 'running')"),
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


rescorings = Table(
    "rescorings",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("suite_version_id", Id, ForeignKey("suite_versions.id"), nullable=False),  # whose judgments are applied
    Column("measures_version", Text, nullable=False),  # the definitions; `.r` and the id make it the version shown
    Column("since", BigInteger),  # runs that ended from then on; NULL = all there are
    Column("created_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),  # NULL = there is something left to do
    Column("note", Text),
    Column("summary", Text),  # JSON: the runs before and after, when it finished
    # the claim
    Column("claimed_by", Text),
    Column("lease_until", BigInteger),  # without a claim: not before then
    Column("attempts", Integer, nullable=False, server_default=text("0")),  # in a row that did not get on
    Column("failure", Text),  # why it was given up, when `finished_at` says
    UniqueConstraint("check_id", "suite_version_id", "measures_version"),  # asking again goes on with the same
)

rescored_runs = Table(
    "rescored_runs",
    metadata,
    Column("rescoring_id", Id, ForeignKey("rescorings.id"), primary_key=True, autoincrement=False),
    # Deleted with its run also by a release that does not know of it yet.
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, index=True),
    Column("verdict", Text, nullable=False),
    Column("reasons", Text, nullable=False),  # JSON list of sentences
    Column("total", Integer, nullable=False),
    Column("measured", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("undefined", Integer, nullable=False),
    Column("degraded", Integer, nullable=False),
    Column("degraded_positions", LargeBinary),  # uint32 places in the run's suite version; NULL = none
    Column("degraded_reasons", LargeBinary),  # uint16 bits for each of them
    Column("aggregates", LargeBinary, nullable=False),  # float64, named by the layout; NaN = nothing measured
    Column("layout_id", Id, ForeignKey("layouts.id"), nullable=False),
    Column("scores_layout_id", Id, ForeignKey("layouts.id"), nullable=False),  # that of the results, in `scores`
)

# As `rollups`, of the runs of a re-scoring.
rescored_rollups = Table(
    "rescored_rollups",
    metadata,
    Column("rescoring_id", Id, ForeignKey("rescorings.id"), primary_key=True, autoincrement=False),
    Column("seconds", Integer, primary_key=True, autoincrement=False),
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    Column("layout_id", Id, ForeignKey("layouts.id"), primary_key=True, autoincrement=False),
    Column("runs", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
