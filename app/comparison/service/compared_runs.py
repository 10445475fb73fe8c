"""Runs that are compared: how they are named, read with their results, what differs besides, what canaries rule out."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from app.base.db.engine import Connection, Store
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.values import Canary, Reason, Value, Verdict
from app.base.views import id_or_none, view_of
from app.catalog import store as catalog
from app.catalog.domain import Use
from app.catalog.service.judges import find_judges, pooled_notes
from app.catalog.service.references import find_check, find_run
from app.comparison.domain.outcomes import Depth, Members, ViolationKind, Violations, count_violations, expects_the_same
from app.comparison.views import RunOutline
from app.records.service import past_runs
from app.records.store import ranking_rows, run_rows
from app.records.store.open_runs import Failure
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import StateRow
from app.retrievers.domain.retrievers import measures_relevance
from app.scoring.evaluation import forbidden_ranks, is_relevance_judged, pack_reasons
from app.scoring.run_inputs import RunInputs

_REFERENCE: Final = re.compile(r"(?P<kind>run|check|retriever):(?P<name>.+)")
_LATEST: Final = 100
"""Number of the newest runs of a check among which one that was carried out is looked for."""


def resolve(store: Store, reference: str, path: str) -> str:
    """Return the id of the run that a reference names, which may not be there; raises as `compare_references` does.

    `path` is the name of the parameter that has the reference.
    """
    with store.read() as connection:
        return max(_options(connection, reference, path), key=lambda one: id_or_none(one) or 0)


def resolve_pair(store: Store, a: str, b: str) -> tuple[str, str]:
    """Return the ids of the runs that two references to be compared name; raises as `compare_references` does."""
    with store.read() as connection:
        return find_run_ids(connection, a, b)


def run_reference(run_id: int | str) -> str:
    """Return the reference of a run."""
    return f"run:{run_id}"


def find_run_ids(connection: Connection, a: str, b: str) -> tuple[str, str]:
    """Return the ids of two runs; of a retriever that several checks ask, of one over the suite of the other side."""
    first, second = (_options(connection, text, name) for name, text in (("a", a), ("b", b)))
    if len(first) == len(second) == 1:
        return first[0], second[0]
    ids = {one: number for one in (*first, *second) if (number := id_or_none(one)) is not None}
    suites = run_rows.suites_of(connection, ids.values())
    pairs = [
        (one, other)
        for one in first
        for other in second
        if one in ids and other in ids and suites.get(ids[one]) == suites.get(ids[other])
    ]
    if not pairs:
        raise ConflictError(f"no two checks over one suite were run for {a} and {b}; there is nothing to compare")
    return max(pairs, key=lambda pair: sorted(ids[one] for one in pair))


def _options(connection: Connection, text: str, name: str) -> list[str]:
    """Return the ids of the runs that a reference may stand for: one, or of a retriever one for each check."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        message = "must be run:ID, check:SLUG or retriever:SLUG, such as check:docs"
        raise InvalidInputError([Problem(path=name, message=message)])
    if match["kind"] == "run":
        return [match["name"]]
    if match["kind"] == "retriever":
        checks = catalog.list_definitions(connection, "check")
        asking = [check for check in checks if check.body["retriever"] == match["name"]]
        if not asking and catalog.find_definition(connection, "retriever", match["name"]) is None:
            raise NotFoundError(f"there is no retriever '{match['name']}'")
        whose = f"no check of retriever '{match['name']}'"
    else:
        asking = [find_check(connection, match["name"])]
        whose = f"check '{asking[0].slug}'"
    asked = match["name"] if match["kind"] == "retriever" else None
    found = [run for check in asking if (run := _newest_executed(connection, check.id, asked)) is not None]
    if not found:
        none = "no run with results" if match["kind"] == "check" else "a run with results"
        raise ConflictError(f"{whose} has {none} among its newest; there is nothing to compare")
    return found


def _newest_executed(connection: Connection, check_id: int, retriever: str | None = None) -> str | None:
    """Return the newest run of a check with results, in which this retriever was asked if one is named."""
    ended = [run for run in run_rows.ended_runs(connection, check_id, limit=_LATEST) if run.aggregates]
    if retriever is not None:
        versions = {run.check_version_id for run in ended if run.check_version_id is not None}
        bodies = catalog.version_bodies(connection, sorted(versions))
        ended = [run for run in ended if bodies.get(run.check_version_id or 0, {}).get("retriever") == retriever]
    return str(ended[-1].id) if ended else None


class ComparedRun(Value):
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
    asked = {check["retriever"]: row.retriever_version_id}
    judges = find_judges(connection, inputs.suite.judgment_shares, asked, suite=check["suite"])
    own = [one for one in judges if one.retriever == check["retriever"]]
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
            self_judged=bool(own),
            judged_before_edit=any(one.edited_since for one in own),
            pooled_recall=pooled_notes(
                connection, check["suite"], check["retriever"], version_id=row.retriever_version_id
            ),
        ),
        retriever=check["retriever"],
        retriever_version=row.retriever_version_id,
        use=Use(check.get("use", Use.GENERAL)),
    )


class RunDifference(Value):
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


_FORBIDDEN = pack_reasons([Reason.FORBIDDEN])
_ANSWERED = pack_reasons([Reason.ANSWERED])


def violations_of(connection: Connection, a: ComparedRun, b: ComparedRun, depth: Depth) -> list[Violations]:
    """Count the canaries that both runs measured, and that ask and rule out the same in both.

    Forbidden chunks count to the depth of both; answers only where both runs measure relevance in the same way.
    """
    places = {canary.key: place for place, canary in enumerate(b.canaries)}
    pairs = [
        (place, other)
        for place, canary in enumerate(a.canaries)
        if (other := places.get(canary.key)) is not None
        and canary.asked == b.canaries[other].asked
        and a.states[place] is not None
        and b.states[other] is not None
    ]
    forbidding = [pair for pair in pairs if _forbids_the_same(a, b, pair)]
    relevance = a.inputs.yardstick.scorer == b.inputs.yardstick.scorer
    refusing = [pair for pair in pairs if relevance and _refuses_the_same(a, b, pair)]
    leaks = [_leaking(connection, run, depth) for run in (a, b)]
    confident = [{place for place, one in enumerate(run.states) if one and one.reasons & _ANSWERED} for run in (a, b)]
    found = (
        count_violations(
            kind,
            [a.canaries[place].key for place, _ in some],
            [place in got[0] for place, _ in some],
            [place in got[1] for _, place in some],
        )
        for kind, some, got in (
            (ViolationKind.FORBIDDEN, forbidding, leaks),
            (ViolationKind.ANSWERED, refusing, confident),
        )
    )
    return [one for one in found if one is not None]


def _forbids_the_same(a: ComparedRun, b: ComparedRun, pair: tuple[int, int]) -> bool:
    one, two = a.canaries[pair[0]], b.canaries[pair[1]]
    if one.expect_empty != two.expect_empty or not (one.forbidden or one.expect_empty):
        return False
    return Counter(one.forbidden) == Counter(two.forbidden)


def _refuses_the_same(a: ComparedRun, b: ComparedRun, pair: tuple[int, int]) -> bool:
    one, two = a.canaries[pair[0]], b.canaries[pair[1]]
    scorer = a.inputs.yardstick.scorer
    if not is_relevance_judged(one, scorer_measures_relevance=measures_relevance(scorer)) or not one.negative:
        return False
    alike = expects_the_same(one, two) and one.max_relevance_score == two.max_relevance_score
    return alike and not two.expect_empty


def _leaking(connection: Connection, run: ComparedRun, depth: Depth) -> set[int]:
    """Return the places of the canaries that got a forbidden hit to a depth."""
    flagged = {place: one for place, one in enumerate(run.states) if one is not None and one.reasons & _FORBIDDEN}
    if run.inputs.yardstick.fetch_k <= depth.m or not flagged:
        return set(flagged)
    rankings = ranking_rows.load_rankings(connection, sorted({one.ranking_id for one in flagged.values()}))
    return {
        place
        for place, one in flagged.items()
        if min(forbidden_ranks(run.canaries[place], rankings[one.ranking_id]), default=depth.m) <= depth.m
    }
