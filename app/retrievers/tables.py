"""Tables of embedders: reference vectors, and the findings of runs."""

from sqlalchemy import BigInteger, Column, ForeignKey, LargeBinary, Table, Text, UniqueConstraint

from app.base.db.rows import Id, id_column, metadata

# An embedder as a retriever is configured with it (hash: URL, model, dimensions, texts), and how it once answered.
embedders = Table(
    "embedders",
    metadata,
    id_column(),
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
    id_column(),
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
