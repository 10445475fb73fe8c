"""Tables of traffic: what users ask, kept for weeks, and the reach of a suite over it."""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, LargeBinary, Table, Text, UniqueConstraint

from app.base.db.rows import Id, id_column, metadata

traffic_queries = Table(
    "traffic_queries",
    metadata,
    id_column(),
    Column("suite_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("retriever", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),  # of the query: it may be longer than an index takes
    Column("query", Text, nullable=False),  # normalised
    Column("count", BigInteger, nullable=False),
    Column("first_seen", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
    Column("received_at", BigInteger, nullable=False, index=True),  # from then on it is kept
    # the first hit, where the query was in the sample that was asked last
    Column("asked_at", BigInteger),
    Column("chunk", Text),  # NULL = no hit
    Column("document", Text),
    Column("relevance", Float(53)),
    Column("failure", Text),  # why there is no answer
    UniqueConstraint("suite_id", "retriever", "digest"),
    Index("ix_traffic_queries_count", "suite_id", "retriever", "count"),
    sqlite_autoincrement=True,  # samples hold ids: that of a deleted query must not become another's
)

# The sample that stands for the traffic of a suite with a retriever; a new one takes the place of the one before.
reaches = Table(
    "reaches",
    metadata,
    id_column(),
    Column("suite_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("retriever", Text, nullable=False),
    Column("body", Text, nullable=False),  # JSON: ids and counts of the sample, traffic it stands for, grouping
    Column("requested_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    UniqueConstraint("suite_id", "retriever"),
)

# Parts of logs that arrived, so that one sent again with the same key is not counted twice; kept for a day.
traffic_parts = Table(
    "traffic_parts",
    metadata,
    id_column(),
    Column("suite_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("retriever", Text, nullable=False),
    Column("key", Text, nullable=False),  # keyed hash of the Idempotency-Key
    Column("content_hash", Text),  # keyed too, of queries and counts; NULL = a query of the suite was deleted since
    Column("answer", Text, nullable=False),  # JSON of the first answer: numbers and notes, no query
    Column("received_at", BigInteger, nullable=False, index=True),
    UniqueConstraint("suite_id", "retriever", "key"),
)
