"""Tables of what is tried on users: experiments with epochs and units, promotions, shadows, interleavings."""

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

experiments = Table(
    "experiments",
    metadata,
    id_column(),
    Column("slug", Text, nullable=False),
    Column("salt", LargeBinary, nullable=False),  # keys the hashes of its units; random, deleted with them
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("archived_at", BigInteger),
    # The name of an archived experiment is free again.
    partial_index("uq_experiments_slug", "slug", unique=True, where="archived_at is null"),
)

# An epoch is tested alone, by the document it began with; the one with the highest number is current.
experiment_epochs = Table(
    "experiment_epochs",
    metadata,
    id_column(),
    Column("experiment_id", Id, ForeignKey("experiments.id"), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("began_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, index=True),  # when a later one began or the experiment was archived
    Column("dealt", BigInteger),  # units that came without an arm
    Column("late_first", BigInteger),  # successes after the window, of the first arm
    Column("late_second", BigInteger),  # of the second
    UniqueConstraint("experiment_id", "epoch"),
)

experiment_units = Table(
    "experiment_units",
    metadata,
    Column("epoch_id", Id, ForeignKey("experiment_epochs.id"), primary_key=True, autoincrement=False),
    Column("unit", BigInteger, primary_key=True, autoincrement=False),  # 64 bits of a keyed hash, never the id
    Column("arm", SmallInteger, nullable=False),  # 0 or 1
    Column("exposed_at", BigInteger, nullable=False),
    Column("event", BigInteger),  # 64 bits of the hash of the event that brought the value
    Column("value", SmallInteger),  # 0 or 1; NULL = no outcome came
    sqlite_with_rowid=False,
)

# Running totals by the time of exposure, so that no reader counts units.
experiment_counts = Table(
    "experiment_counts",
    metadata,
    Column("epoch_id", Id, ForeignKey("experiment_epochs.id"), primary_key=True, autoincrement=False),
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),  # its begin
    Column("arm", SmallInteger, primary_key=True, autoincrement=False),
    Column("units", BigInteger, nullable=False),
    Column("successes", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# A candidate on its way to all users: what its gates read.
promotions = Table(
    "promotions",
    metadata,
    id_column(),
    Column("slug", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),  # JSON of the document
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
)

promotion_waivers = Table(
    "promotion_waivers",
    metadata,
    Column("promotion_id", Id, ForeignKey("promotions.id"), primary_key=True, autoincrement=False),
    Column("gate", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("waived_by", Text, nullable=False),
    Column("waived_at", BigInteger, nullable=False),
    Column("finding", Text),  # what the gate said when it was waived; an older release kept nothing of it
    Column("found", Text),  # the same in words
    Column("losses", Text),  # {name: [low, high]} of what it had shown to be lost
)

# Sums over the pairs of a shadow by the hour they came in; neither queries nor rankings are kept.
shadow_hours = Table(
    "shadow_hours",
    metadata,
    Column("slug", Text, primary_key=True),
    Column("hour", BigInteger, primary_key=True, autoincrement=False, index=True),  # its begin
    Column("pairs", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("rbo", Float(53), nullable=False),
    Column("jaccard", Float(53), nullable=False),
    Column("a_empty", BigInteger, nullable=False),
    Column("b_empty", BigInteger, nullable=False),
    Column("timed", BigInteger, nullable=False),  # pairs with both latencies
    Column("a_seconds", Float(53), nullable=False),
    Column("b_seconds", Float(53), nullable=False),
    Column("dropped", BigInteger, nullable=False, server_default=text("0")),  # were to be asked, and were not in time
)

# A shadow that somebody defined: its candidate, the share that is asked, how many different pairs are kept.
shadows = Table(
    "shadows",
    metadata,
    id_column(),
    Column("slug", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),  # JSON of the document
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("ask_after", BigInteger),  # a candidate that does not answer is left alone until then
)

# Queries of users that the candidate is still to be asked; deleted with the answer.
shadow_questions = Table(
    "shadow_questions",
    metadata,
    id_column(),
    Column("shadow_id", Id, ForeignKey("shadows.id"), nullable=False),
    Column("query", Text, nullable=False),
    Column("hits", Text, nullable=False),  # JSON: what users got, list of [id, text]
    Column("seconds", Float(53)),  # latency of that; NULL = not sent
    Column("received_at", BigInteger, nullable=False, index=True),
    Index("ix_shadow_questions_shadow", "shadow_id", "id"),
)

# The most different pairs of a shadow, one of each query, for people to compare.
shadow_pairs = Table(
    "shadow_pairs",
    metadata,
    id_column(),
    Column("shadow_id", Id, ForeignKey("shadows.id"), nullable=False),
    Column("digest", Text, nullable=False),  # of the query
    Column("query", Text, nullable=False),
    Column("a", Text, nullable=False),  # JSON list: the texts of the first hits that users got
    Column("b", Text, nullable=False),  # those of the candidate
    Column("rbo", Float(53), nullable=False),
    Column("at", BigInteger, nullable=False, index=True),
    UniqueConstraint("shadow_id", "digest"),
)

# Requests with pairs that arrived: for a day the same request is not counted twice.
shadow_parts = Table(
    "shadow_parts",
    metadata,
    id_column(),
    Column("slug", Text, nullable=False),  # of the shadow, which nobody need have defined
    Column("key", Text, nullable=False),  # keyed hash of the Idempotency-Key
    Column("content_hash", Text),
    Column("answer", Text, nullable=False),
    Column("received_at", BigInteger, nullable=False, index=True),
    UniqueConstraint("slug", "key"),
)

# Two rankings merged for each unit, and how many units prefer which by their clicks, in the current epoch.
interleavings = Table(
    "interleavings",
    metadata,
    id_column(),
    Column("slug", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),  # JSON of the document
    Column("salt", LargeBinary, nullable=False),  # keys the hashes of its units
    Column("epoch", Integer, nullable=False),
    Column("began_at", BigInteger, nullable=False),  # of the epoch
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("a", BigInteger, nullable=False),  # units that prefer it
    Column("b", BigInteger, nullable=False),
    Column("ties", BigInteger, nullable=False),
    Column("decided_at", BigInteger),  # the first look at which it ended; NULL = it has not
    Column("decided_a", BigInteger),
    Column("decided_b", BigInteger),
)

interleaving_clicks = Table(
    "interleaving_clicks",
    metadata,
    Column("interleaving_id", Id, ForeignKey("interleavings.id"), primary_key=True, autoincrement=False),
    Column("unit", BigInteger, primary_key=True, autoincrement=False),  # 64 bits of a keyed hash, as of the event
    Column("event", BigInteger, primary_key=True, autoincrement=False),
    Column("credit", SmallInteger, nullable=False),  # -1 for A, 1 for B
)
