"""Tables of definitions, canaries and suites with all their versions."""

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, Table, Text, UniqueConstraint

from app.base.db.rows import Id, id_column, metadata

definitions = Table(
    "definitions",
    metadata,
    id_column(),
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
    id_column(),
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
    id_column(),
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
    id_column(),
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
    id_column(),
    Column("suite_id", Id, ForeignKey("definitions.id"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("hash", Text, nullable=False),
    Column("members", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("suite_id", "revision"),
)

# A check that whoever has its link may look at, see `reports.service.public_links`.
public_links = Table(
    "public_links",
    metadata,
    Column("check_id", Id, ForeignKey("definitions.id"), primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, nullable=False, unique=True),  # of its token
    Column("created_by", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
