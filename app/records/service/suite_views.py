"""The page views of suites: their canaries, and the state of each in every check on the suite."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from app.base.db.engine import Connection, Store
from app.base.values import Canary, Verdict
from app.catalog.domain.suite_power import coverage_note
from app.catalog.domain.suite_snapshot import Member
from app.catalog.domain.views import ReachView
from app.catalog.service import suite_power
from app.catalog.service.references import require
from app.catalog.service.suite_snapshots import load_suite, load_suite_in_force
from app.catalog.store import definitions, suites
from app.catalog.store.definitions import Definition
from app.catalog.store.suites import CanaryRow
from app.records.store import canary_states, results
from app.scoring.tally import RELEVANCE, unpack_reasons

PAGE = 100
"""Number of canaries on a page."""


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
        checks = _checks(connection)
        suites_found = []
        for suite in definitions.list_definitions(connection, "suite"):
            snapshot = load_suite_in_force(connection, suite)
            note = coverage_note(suite.slug, snapshot.reach)
            names = tuple(check.slug for check in checks if check.body["suite"] == suite.slug)
            suites_found.append(SuiteLine(definition=suite, canaries=len(snapshot.members), note=note, checks=names))
    return suites_found


def load_suite_view(store: Store, slug: str, canary_filter: CanaryFilter) -> SuiteView:
    """Return a suite with at most 100 of the matching canaries. Raises NotFoundError."""
    with store.read() as connection:
        suite = require(definitions.find_definition(connection, "suite", slug), f"suite '{slug}'")
        snapshot = load_suite_in_force(connection, suite)
        checks = [check for check in _checks(connection) if check.body["suite"] == slug]
        state_readers = [_state_reader(connection, check) for check in checks]
        matching = [member for member in snapshot.members if canary_filter.matches(member.canary)]
        if canary_filter.state:
            matching = [
                one for one in matching if any(state(one).verdict == canary_filter.state for state in state_readers)
            ]
        keys = [member.key for member in matching]
        start = keys.index(canary_filter.after) + 1 if canary_filter.after in keys else 0
        shown = matching[start : start + PAGE]
        rows = suites.list_canaries(connection, suite.id, keys=[member.key for member in shown])
    members = {member.key: member for member in shown}
    lines = [CanaryLine(row=row, states=tuple(state(members[row.key]) for state in state_readers)) for row in rows]
    shape = suite_power.reach_view(slug, snapshot.reach)
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


def _checks(connection: Connection) -> list[Definition]:
    return definitions.list_definitions(connection, "check")


def _state_reader(connection: Connection, check: Definition) -> Callable[[Member], CanaryState]:
    """Return a function from a canary to its state at the newest ended run of a check."""
    run = results.newest_ended(connection, check.id)
    unknown = CanaryState(check=check.slug, verdict=str(Verdict.UNKNOWN))
    if run is None or run.suite_version_id is None or not run.aggregates:  # no request was sent
        return lambda _: unknown
    reasons_by_canary = canary_states.all_reasons_at(connection, check.id, run.id)
    _, failures = results.probes_of(connection, run.id)
    unscored = set(results.unscored_at(connection, run.id))
    recorded = load_suite(connection, run.suite_version_id)

    def state(now: Member) -> CanaryState:
        place = recorded.positions.get(now.canary_id)
        if place is None or now.canary_id not in reasons_by_canary:
            return unknown
        then = recorded.members[place]
        if then.canary.query != now.canary.query:
            return replace(unknown, query_changed=True)
        if place in failures:
            return unknown
        bits = reasons_by_canary[now.canary_id] & ~RELEVANCE if place in unscored else reasons_by_canary[now.canary_id]
        anew = then.version_id != now.version_id and not then.canary.is_judged_as(now.canary)
        return _state(check.slug, bits, expectations_changed=anew)

    return state


def _state(check: str, bits: int, *, expectations_changed: bool) -> CanaryState:
    reasons = tuple(str(reason) for reason in unpack_reasons(bits))
    verdict = Verdict.DEGRADED if reasons else Verdict.HEALTHY
    return CanaryState(check=check, verdict=str(verdict), reasons=reasons, expectations_changed=expectations_changed)
