"""Tables of re-scorings: recorded runs judged by corrected judgments."""

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, Table, Text, UniqueConstraint, text

from app.base.db.tables import Id, id_column, metadata

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
    Column(
        "run_id",
        Id,
        ForeignKey("runs.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        index=True,
    ),
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
