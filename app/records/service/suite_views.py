"""Suites as pages show them: their canaries, a page of those that match, each with its newest state in every check.

Nothing here writes. What a suite can notice is said in `app/scoring/suites.py`, how it is saved in `catalog.service`.
"""

from collections import Counter
from collections.abc import Callable, Collection
from itertools import groupby

from app.base.db.engine import Connection, Store
from app.base.values import Canary, Value, Verdict, field, replace
from app.catalog import store as catalog
from app.catalog.service.versions import load_suite, load_suite_in_force
from app.catalog.store import CanaryRow, Definition, require
from app.records.store import run_rows, state_rows
from app.scoring.evaluation import RELEVANCE, unpack_reasons
from app.scoring.run_inputs import SuiteMember, SuiteSnapshot
from app.scoring.suites import detection_limits


class SuiteLine(Value):
    """A suite in the list of suites."""

    definition: Definition
    canaries: int
    limits: tuple[str, ...]
    """What it cannot detect, in sentences; empty where it is not thin."""
    loss: str
    """What a loss does to its canaries, a sentence without its full stop; empty where not even that of all does."""
    checks: tuple[str, ...]


class CanaryState(Value):
    """State of a canary in a check at its newest ended run."""

    check: str
    verdict: str
    """healthy, degraded or unknown; the latter if its probe failed or its present query was not sent yet."""
    reasons: tuple[str, ...] = ()
    query_changed: bool = False
    """Whether its query changed after that run."""
    expectations_changed: bool = False
    """Whether its judgments changed after that run; the verdict is by the former ones."""


class CanaryLine(Value):
    """A canary in the table of its suite."""

    row: CanaryRow
    states: tuple[CanaryState, ...]
    """In every check on the suite, the worst first."""

    @property
    def by_verdict(self) -> list[tuple[str, list[CanaryState]]]:
        """Its states by verdict, the worst first."""
        return [(verdict, list(states)) for verdict, states in groupby(self.states, key=lambda one: one.verdict)]


class SuiteView(Value):
    """A suite with a page of canaries that match a filter."""

    definition: Definition
    limits: tuple[str, ...]
    """What it cannot detect, in sentences; empty where it is not thin."""
    loss: str
    """What a loss does to its canaries, a sentence without its full stop; empty where not even that of all does."""
    checks: tuple[str, ...]
    is_scheduled: bool
    """Whether any of the checks is enabled."""
    canaries: tuple[CanaryLine, ...]
    matching: int
    """Number of matching canaries on all pages."""
    total: int
    page: int
    pages: int
    """Number of pages of matching canaries, at least one."""
    tags: tuple[str, ...]
    categories: tuple[str, ...]

    @property
    def first(self) -> int:
        """The place of the first canary of the page among all that match, from 1."""
        return (self.page - 1) * PAGE + 1


class CanaryFilter(Value):
    """Filter of canaries; empty = any."""

    text: str = ""
    """Part of the key or the query."""
    category: str = ""
    tag: str = ""
    state: str = ""
    """Its verdict in any check on the suite."""
    page: int = 1

    def matches(self, canary: Canary) -> bool:
        """Whether a canary matches, its state aside."""
        text = self.text.casefold()
        return (
            (not text or text in canary.key.casefold() or text in canary.query.casefold())
            and self.category in {"", canary.category}
            and (not self.tag or self.tag in canary.labels)
        )


def list_suites(store: Store) -> list[SuiteLine]:
    """Return every suite in one line."""
    with store.read() as connection:
        checks = catalog.list_definitions(connection, "check")
        suites_found = []
        for suite in catalog.list_definitions(connection, "suite"):
            snapshot = load_suite_in_force(connection, suite)
            power = snapshot.power
            suites_found.append(
                SuiteLine(
                    definition=suite,
                    canaries=len(snapshot.members),
                    limits=detection_limits(power),
                    loss=power.sentence,
                    checks=tuple(check.slug for check in checks if check.body["suite"] == suite.slug),
                )
            )
    return suites_found


def checks_on(store: Store, suite: str) -> tuple[str, ...]:
    """Return the names of the checks on a suite, in their order."""
    with store.read() as connection:
        checks = catalog.list_definitions(connection, "check")
    return tuple(check.slug for check in checks if check.body["suite"] == suite)


def load_suite_view(store: Store, slug: str, canary_filter: CanaryFilter) -> SuiteView:
    """Return a suite with a page of the matching canaries, those failing in most checks first. Raises NotFoundError."""
    with store.read() as connection:
        suite = require(catalog.find_definition(connection, "suite", slug), f"suite '{slug}'")
        snapshot = load_suite_in_force(connection, suite)
        checks = [check for check in catalog.list_definitions(connection, "check") if check.body["suite"] == slug]
        standings = [_read_standing(connection, check, snapshot) for check in checks]
        degraded, unknown = Counter[int](), Counter[int]()
        for one in standings:
            degraded.update(one.degraded)
            unknown.update(one.unknown)
        matching = [
            member
            for member in snapshot.members
            if canary_filter.matches(member.canary)
            and _is_in_state(degraded[member.canary_id], unknown[member.canary_id], len(checks), canary_filter.state)
        ]
        matching.sort(key=lambda one: (-degraded[one.canary_id], -unknown[one.canary_id]))
        pages = max(1, -(-len(matching) // PAGE))
        page = min(max(1, canary_filter.page), pages)
        shown = matching[(page - 1) * PAGE : page * PAGE]
        rows = catalog.list_canaries(connection, suite.id, keys=[member.key for member in shown])
    by_key = {row.key: row for row in rows}
    return SuiteView(
        definition=suite,
        limits=detection_limits(snapshot.power),
        loss=snapshot.power.sentence,
        checks=tuple(check.slug for check in checks),
        is_scheduled=any(check.body["enabled"] for check in checks),
        canaries=tuple(
            CanaryLine(
                row=by_key[member.key],
                states=tuple(
                    sorted((one.state(member) for one in standings), key=lambda one: _WORST_FIRST.index(one.verdict))
                ),
            )
            for member in shown
            if member.key in by_key
        ),
        matching=len(matching),
        total=len(snapshot.members),
        page=page,
        pages=pages,
        tags=tuple(sorted({tag for canary in snapshot.canaries for tag in canary.labels})),
        categories=tuple(sorted({str(canary.category) for canary in snapshot.canaries})),
    )


PAGE = 50
"""Number of canaries on a page."""
_WORST_FIRST = (Verdict.DEGRADED, Verdict.UNKNOWN, Verdict.HEALTHY)


def _is_in_state(degraded: int, unknown: int, checks: int, state: str) -> bool:
    """Whether a canary that is degraded and unknown in so many of the checks has this verdict in any; "" = any."""
    numbers = {"degraded": degraded, "unknown": unknown, "healthy": checks - degraded - unknown}
    return not state or numbers.get(state, 0) > 0


class _Standing(Value):
    """How the canaries of a suite are in a check at its newest ended run."""

    state: Callable[[SuiteMember], CanaryState]
    degraded: Collection[int] = field(default_factory=frozenset)
    unknown: Collection[int] = field(default_factory=frozenset)


def _read_standing(connection: Connection, check: Definition, now: SuiteSnapshot) -> _Standing:
    """Return how the canaries of a suite are in a check; where the suite is that of the run, without a look at each."""
    run = run_rows.newest_ended(connection, check.id)
    unknown = CanaryState(check=check.slug, verdict=str(Verdict.UNKNOWN))
    if run is None or run.suite_version_id is None or not run.aggregates:  # no request was sent
        return _Standing(state=lambda _: unknown, unknown=frozenset(now.canary_ids))
    reasons_by_canary = state_rows.all_reasons_at(connection, check.id, run.id)
    _, failures = run_rows.probes_of(connection, run.id)
    unscored = set(run_rows.unscored_at(connection, run.id))
    recorded = load_suite(connection, run.suite_version_id)

    def state(member: SuiteMember) -> CanaryState:
        place = recorded.positions.get(member.canary_id)
        if place is None or member.canary_id not in reasons_by_canary:
            return unknown
        then = recorded.members[place]
        if then.canary.asked != member.canary.asked:
            return replace(unknown, query_changed=True)
        if place in failures:
            return unknown
        bits = reasons_by_canary[member.canary_id]
        reasons = tuple(str(reason) for reason in unpack_reasons(bits & ~RELEVANCE if place in unscored else bits))
        return CanaryState(
            check=check.slug,
            verdict=str(Verdict.DEGRADED if reasons else Verdict.HEALTHY),
            reasons=reasons,
            expectations_changed=then.version_id != member.version_id and not then.canary.is_judged_as(member.canary),
        )

    if recorded.version_id == now.version_id:
        bad = {canary_id for canary_id, bits in reasons_by_canary.items() if bits}
        failed = {recorded.canary_ids[place] for place in failures}
        absent = set(recorded.positions).difference(reasons_by_canary)
        excused = {recorded.canary_ids[place] for place in unscored}
        pardoned = {one for one in bad & excused if not reasons_by_canary[one] & ~RELEVANCE}
        return _Standing(state=state, degraded=bad - failed - pardoned, unknown=failed | absent)
    verdicts = [(member.canary_id, state(member).verdict) for member in now.members]
    return _Standing(
        state=state,
        degraded={one for one, verdict in verdicts if verdict == Verdict.DEGRADED},
        unknown={one for one, verdict in verdicts if verdict == Verdict.UNKNOWN},
    )
