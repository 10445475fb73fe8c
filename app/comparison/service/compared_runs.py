"""Runs that are compared: read with their results, and what differs between two of them besides their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.base.db.engine import Connection
from app.base.errors import ConflictError
from app.base.values import Canary, Verdict
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.domain import Use
from app.catalog.service.references import find_run
from app.catalog.service.suites import is_self_judged, pooled_notes
from app.comparison.domain.outcomes import Members
from app.comparison.views import RunOutline
from app.records.service import past_runs
from app.records.store import run_rows
from app.records.store.open_runs import Failure
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import StateRow
from app.scoring.run_inputs import RunInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run with its results. Positions count along the canaries of its suite version."""

    row: RunRow
    inputs: RunInputs
    states: Sequence[StateRow | None]
    """None = not measured."""
    failures: Mapping[int, Failure]
    outline: RunOutline
    retriever: str
    retriever_version: int | None
    use: Use
    """Of its check at that time."""

    @property
    def canaries(self) -> Sequence[Canary]:
        """The canaries by position."""
        return self.inputs.canaries

    @property
    def base_version(self) -> str | None:
        """The version of the measures by which its rankings were matched: 2 where that of a re-scoring is 2.r7."""
        version = self.row.measures_version
        return None if version is None else version.partition(".r")[0]

    @property
    def members(self) -> Members:
        """The canaries, and whether the run measured them."""
        return Members(canaries=self.canaries, measured=[state is not None for state in self.states])


def read_run(
    connection: Connection, run_id: str, version: str | None = None, *, with_states: bool = True
) -> ComparedRun:
    """Read a run with its results, by another measures version where one is named.

    Raises NotFoundError for a run that is not there, ConflictError for one that has not ended or was never carried out,
    InvalidInputError for a version that is not there.
    """
    row = find_run(connection, run_id)
    if row.status not in run_rows.ENDED:
        raise ConflictError(f"run '{row.id}' has not ended yet")
    if not row.aggregates:
        raise ConflictError(f"run '{row.id}' was never carried out; there is nothing to compare")
    row, anew = past_runs.load_version(connection, row, version)
    inputs = past_runs.inputs_of_run(connection, row, anew)
    by_canary = past_runs.states_of(connection, row, inputs, anew) if with_states else {}
    _, failures = run_rows.probes_of(connection, row.id)
    assert row.check_version_id is not None  # noqa: S101 - it has inputs
    check = catalog.version_body(connection, row.check_version_id).body
    return ComparedRun(
        row=row,
        inputs=inputs,
        states=[
            None if place in failures else by_canary.get(member.canary_id)
            for place, member in enumerate(inputs.suite.members)
        ],
        failures=failures,
        outline=view_of(
            RunOutline,
            check,
            row,
            id=str(row.id),
            verdict=None if row.verdict is None else Verdict(row.verdict),
            suite_hash=inputs.suite.hash,
            self_judged=is_self_judged(connection, inputs.suite.judgment_shares, check["retriever"]),
            pooled_recall=pooled_notes(connection, check["suite"], check["retriever"]),
        ),
        retriever=check["retriever"],
        retriever_version=row.retriever_version_id,
        use=Use(check.get("use", Use.GENERAL)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """A sentence without its full stop, and whether it prevents a strict comparison of the runs' own numbers."""

    sentence: str
    strict: bool


def differences(a: ComparedRun, b: ComparedRun) -> list[RunDifference]:
    """Return what differs between two runs besides their answers; each sentence names the first run first."""
    old, new = a.inputs.yardstick, b.inputs.yardstick
    found = [
        (a.row.id == b.row.id, False, "both are one and the same run"),
        (
            a.outline["suite_hash"] != b.outline["suite_hash"],
            True,
            "the suites differ: only canaries with the same key, query and judgments are compared",
        ),
        (
            a.row.measures_version != b.row.measures_version,
            True,
            f"the numbers are of measures versions {a.row.measures_version} and {b.row.measures_version}",
        ),
        (
            old.k != new.k,
            True,
            f"k is {old.k} and {new.k}, which coverage and who is degraded depend on: compared at {min(old.k, new.k)}",
        ),
        (
            old.fetch_k != new.fetch_k,
            False,
            f"fetch_k differs, {old.fetch_k} and {new.fetch_k}: compared by {min(old.fetch_k, new.fetch_k)} hits",
        ),
        (
            old.scorer != new.scorer,
            True,
            "relevance is measured in different ways, which first-hit relevance depends on",
        ),
        (a.row.check_id != b.row.check_id, False, f"the runs are of different checks, {a.row.check} and {b.row.check}"),
        (a.retriever != b.retriever, False, f"different retrievers were asked, {a.retriever} and {b.retriever}"),
        (
            a.retriever == b.retriever and a.retriever_version != b.retriever_version,
            False,
            f"retriever {b.retriever} was configured differently",
        ),
        (
            a.row.index_version != b.row.index_version,
            False,
            f"the index versions are {a.row.index_version or 'unknown'} and {b.row.index_version or 'unknown'}",
        ),
    ]
    return [RunDifference(sentence=sentence, strict=strict) for differs, strict, sentence in found if differs]
