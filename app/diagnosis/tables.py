"""Tables of causes of runs, of diagnoses, and of judgments proposed in place of renamed ones."""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, LargeBinary, Table, Text

from app.base.db.rows import Id, id_column, metadata, partial_index

run_causes = Table(
    "run_causes",
    metadata,
    # Deleted with its run also by a release that does not know of it yet.
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),  # JSON: the one cause that explains the whole run
)

diagnoses = Table(
    "diagnoses",
    metadata,
    id_column(),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("canary_id", Id, ForeignKey("canaries.id"), nullable=False),
    Column("canary_version_id", Id, ForeignKey("canary_versions.id"), nullable=False),
    Column("run_id", Id, nullable=False, index=True),  # the run whose result was asked about
    Column("ranking_id", Id),  # that result, which may be gone by now; NULL = its probe had failed
    Column("at", BigInteger, nullable=False),
    Column("requested_by", Text),  # NULL = nobody: the canary newly degraded
    Column("cause", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", Text, nullable=False),  # JSON: what the extra probes brought
    Index("ix_diagnoses_canary", "check_id", "canary_id", "id"),
)

reanchors = Table(
    "reanchors",
    metadata,
    id_column(),
    Column("diagnosis_id", Id, ForeignKey("diagnoses.id"), nullable=False, index=True),
    Column("check_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("canary_id", Id, ForeignKey("canaries.id"), nullable=False),
    Column("canary_version_id", Id, ForeignKey("canary_versions.id"), nullable=False),
    Column("hash", LargeBinary, nullable=False),  # of the judgment to be replaced
    Column("judgment", Text, nullable=False),  # JSON, as it stands in the canary
    Column("proposal", Text, nullable=False),  # JSON, what should stand there: one judgment, or its parts
    Column("similarity", Float(53), nullable=False),
    Column("state", Text, nullable=False),  # proposed, accepted, rejected, outdated
    Column("created_at", BigInteger, nullable=False),
    Column("decided_at", BigInteger),
    Column("decided_by", Text),
    Column("texts", Text),  # JSON, what the old chunk said and the new ones say, cut; NULL = from before they were kept
    Index("ix_reanchors_check", "check_id", "state", "id"),
    # One proposal a judgment waits for an answer, however often and by whomever it is diagnosed.
    partial_index("uq_reanchors_proposed", "canary_id", "hash", unique=True, where="state = 'proposed'"),
)
