"""Tables of detection: baselines and people's choices, one detector a check, refused habits, evidence for each run."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)

from app.base.db.rows import Id, id_column, metadata

# What a check's canaries did while all was well, learned of its runs `first_run` to `last_run`.
baselines = Table(
    "baselines",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False, index=True),
    Column("first_run", Id, nullable=False),
    Column("last_run", Id, nullable=False),
    Column("runs", Integer, nullable=False),  # of those between, the ones it was learned of
    Column("deterministic", Boolean, nullable=False),
    Column("learned_at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),  # rates and floors, by canary
    Column("failures", LargeBinary, nullable=False),  # who failed in which run; looked at while an alarm stands
    Column("means", LargeBinary, nullable=False),  # mean measures by canary, for rules that compare with them
    Column("median_latency", Float(53)),  # seconds, 99 % quantile of the medians of its runs; NULL = not known
)

# Whom somebody chose to compare a check with; the newest row is in force, the others are the record.
baseline_choices = Table(
    "baseline_choices",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False, index=True),
    Column("action", Text, nullable=False),  # accepted, pinned, moving
    Column("run_id", Id),  # the run pinned, or the first one of the new normal
    Column("after_run", Id, nullable=False),  # the newest run that had ended by then: what it says holds after that
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("note", Text),
    Column("means", LargeBinary),  # what the canaries of the run pinned had, which outlives the run; while in force
)

detectors = Table(
    "detectors",
    metadata,
    Column("check_id", Id, ForeignKey("definitions.id"), primary_key=True, autoincrement=False),
    Column("run_id", Id, nullable=False),  # the last run it evaluated
    Column("baseline_id", Id, ForeignKey("baselines.id")),  # NULL = it is warming up
    Column("body", LargeBinary, nullable=False),  # accounts, counts and last states, by canary
)

# Habits that somebody called not normal; the detector's own row has the habits.
habit_refusals = Table(
    "habit_refusals",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("habit", Text, nullable=False),  # its identity, which its first episode gave it
    Column("after_run", Id, nullable=False),  # the newest run that had ended by then: it holds after that
    Column("at", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("note", Text),
    UniqueConstraint("check_id", "habit"),
)

detections = Table(
    "detections",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("baseline_id", Id),  # that it was compared with; NULL = it was warming up
    Column("evidence", Float(53)),  # the average account; NULL = this run was no evidence
    Column("lost", Integer, nullable=False),
    Column("worse", Integer, nullable=False),
    Column("open", Boolean, nullable=False),  # an alarm stands after this run
    Column("since_run", Id),  # while it stands, or is a habit: the first run that is part of it
    Column("learns", Boolean, nullable=False),  # whether baselines may be learned of this run
    Column("body", Text),  # JSON: what else there is to say of it; NULL = nothing
    Column("words", LargeBinary),  # more of that, see records.store.encodings; NULL = body has it
    Index("ix_detections_check", "check_id", "run_id"),
)
