"""Tables of history: rankings with their scores, states, rollups."""

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
    text,
)

from app.base.db.tables import Id, id_column, metadata

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
    Index(
        "uq_states_open",
        "check_id",
        "canary_id",
        unique=True,
        sqlite_where=text("last_run is null"),
        postgresql_where=text("last_run is null"),
    ),
)

# What differs in every run, by position in the suite version: latency and how the probe ended.
run_probes = Table(
    "run_probes",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("latencies", LargeBinary, nullable=False),  # float16 seconds; empty where there are paces
    Column("failures", LargeBinary),  # msgpack {position: [outcome, http_status, detail, step]}; NULL = all ok
    Column("unscored", LargeBinary),  # one bit a position: relevance was to be measured and was not; NULL = none
    Column("paces", LargeBinary),  # latencies within 1 %, see packed; NULL = latencies has them
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
    Column("body", LargeBinary, nullable=False),  # float64 (4, n): sum, count, min, max; see packed
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
