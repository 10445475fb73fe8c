"""Suites as pages show them: their canaries, a page of those that match, each with its newest state in every check.

Nothing here writes. What a suite can notice is said in `app/scoring/suites.py`, how it is saved in `catalog.service`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from app.base.db.engine import Connection, Store
from app.base.values import Canary, Verdict
from app.catalog import store as catalog
from app.catalog.service import suites as suite_plans
from app.catalog.service.versions import load_suite, load_suite_in_force
from app.catalog.store import CanaryRow, Definition, require
from app.catalog.views import ReachView
from app.records.store import run_rows, state_rows
from app.scoring.evaluation import RELEVANCE, unpack_reasons
from app.scoring.run_inputs import SuiteMember
from app.scoring.suites import coverage_note


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteLine:
    """A suite in the list of suites."""

    definition: Definition
    canaries: int
    note: str | None
    """Note where the suite is thin."""
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryState:
    """State of a canary in a check at its newest ended run."""

    check: str
    verdict: str
    """healthy, degraded or unknown; the latter if its probe failed or its present query was not sent yet."""
    reasons: tuple[str, ...] = ()
    query_changed: bool = False
    """Whether its query changed after that run."""
    expectations_changed: bool = False
    """Whether its judgments changed after that run; the verdict is by the former ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryLine:
    """A canary in the table of its suite."""

    row: CanaryRow
    states: tuple[CanaryState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteView:
    """A suite with a page of canaries that match a filter."""

    definition: Definition
    note: str | None
    reach: ReachView
    checks: tuple[str, ...]
    is_scheduled: bool
    """Whether any of the checks is enabled."""
    canaries: tuple[CanaryLine, ...]
    matching: int
    """Number of matching canaries on all pages."""
    total: int
    following: str | None
    """The key to continue after."""
    tags: tuple[str, ...]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryFilter:
    """Filter of canaries; empty = any."""

    text: str = ""
    """Part of the key or the query."""
    category: str = ""
    tag: str = ""
    state: str = ""
    """Its verdict in any check on the suite."""
    after: str = ""

    def matches(self, canary: Canary) -> bool:
        """Whether a canary matches, its state aside."""
        text = self.text.casefold()
        return (
            (not text or text in canary.key.casefold() or text in canary.query.casefold())
            and self.category in {"", canary.category}
            and (not self.tag or self.tag in canary.tags)
        )


def list_suites(store: Store) -> list[SuiteLine]:
    """Return every suite in one line."""
    with store.read() as connection:
        checks = catalog.list_definitions(connection, "check")
        suites_found = []
        for suite in catalog.list_definitions(connection, "suite"):
            snapshot = load_suite_in_force(connection, suite)
            note = coverage_note(suite.slug, snapshot.power)
            names = tuple(check.slug for check in checks if check.body["suite"] == suite.slug)
            suites_found.append(SuiteLine(definition=suite, canaries=len(snapshot.members), note=note, checks=names))
    return suites_found


def load_suite_view(store: Store, slug: str, canary_filter: CanaryFilter) -> SuiteView:
    """Return a suite with at most 100 of the matching canaries. Raises NotFoundError."""
    with store.read() as connection:
        suite = require(catalog.find_definition(connection, "suite", slug), f"suite '{slug}'")
        snapshot = load_suite_in_force(connection, suite)
        checks = [check for check in catalog.list_definitions(connection, "check") if check.body["suite"] == slug]
        state_readers = [_state_reader(connection, check) for check in checks]
        matching = [member for member in snapshot.members if canary_filter.matches(member.canary)]
        if canary_filter.state:
            matching = [
                one for one in matching if any(state(one).verdict == canary_filter.state for state in state_readers)
            ]
        keys = [member.key for member in matching]
        start = keys.index(canary_filter.after) + 1 if canary_filter.after in keys else 0
        shown = matching[start : start + PAGE]
        rows = catalog.list_canaries(connection, suite.id, keys=[member.key for member in shown])
    members = {member.key: member for member in shown}
    lines = [CanaryLine(row=row, states=tuple(state(members[row.key]) for state in state_readers)) for row in rows]
    shape = suite_plans.reach_view(slug, snapshot.power)
    return SuiteView(
        definition=suite,
        note=shape["coverage_note"],
        reach=shape["reach"],
        checks=tuple(check.slug for check in checks),
        is_scheduled=any(check.body["enabled"] for check in checks),
        canaries=tuple(lines),
        matching=len(matching),
        total=len(snapshot.members),
        following=shown[-1].key if len(matching) > start + PAGE else None,
        tags=tuple(sorted({tag for canary in snapshot.canaries for tag in canary.tags})),
        categories=tuple(sorted({str(canary.category) for canary in snapshot.canaries})),
    )


PAGE = 100
"""Number of canaries on a page."""


def _state_reader(connection: Connection, check: Definition) -> Callable[[SuiteMember], CanaryState]:
    """Return a function from a canary to its state at the newest ended run of a check."""
    run = run_rows.newest_ended(connection, check.id)
    unknown = CanaryState(check=check.slug, verdict=str(Verdict.UNKNOWN))
    if run is None or run.suite_version_id is None or not run.aggregates:  # no request was sent
        return lambda _: unknown
    reasons_by_canary = state_rows.all_reasons_at(connection, check.id, run.id)
    _, failures = run_rows.probes_of(connection, run.id)
    unscored = set(run_rows.unscored_at(connection, run.id))
    recorded = load_suite(connection, run.suite_version_id)

    def state(now: SuiteMember) -> CanaryState:
        place = recorded.positions.get(now.canary_id)
        if place is None or now.canary_id not in reasons_by_canary:
            return unknown
        then = recorded.members[place]
        if then.canary.query != now.canary.query:
            return replace(unknown, query_changed=True)
        if place in failures:
            return unknown
        bits = reasons_by_canary[now.canary_id] & ~RELEVANCE if place in unscored else reasons_by_canary[now.canary_id]
        reasons = tuple(str(reason) for reason in unpack_reasons(bits))
        return CanaryState(
            check=check.slug,
            verdict=str(Verdict.DEGRADED if reasons else Verdict.HEALTHY),
            reasons=reasons,
            expectations_changed=then.version_id != now.version_id and not then.canary.is_judged_as(now.canary),
        )

    return state
