"""Suites as people look at them: their canaries, what each expects, and how each stands in every check on the suite."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.domain.catalog.suite_power import coverage_note
from app.domain.model import Canary, Verdict
from app.domain.runs.suite_snapshot import Member
from app.domain.runs.tally import RELEVANCE, unpack_reasons
from app.services.catalog import suite_power
from app.services.catalog.references import require
from app.services.catalog.suite_snapshots import load_suite, load_suite_in_force
from app.store.catalog import definitions, suites
from app.store.catalog.definitions import Definition
from app.store.catalog.suites import CanaryRow
from app.store.engine import Connection, Store
from app.store.runs import results

PAGE = 100
"""Canaries shown at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteLine:
    """A suite in the list of all."""

    definition: Definition
    canaries: int
    note: str | None
    """What it is too thin to see."""
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How a canary stands in a check at its newest ended run."""

    check: str
    verdict: str
    """healthy, degraded or unknown; the latter where its probe failed or its query of today was not asked yet."""
    reasons: tuple[str, ...] = ()
    asks_otherwise: bool = False
    """Its query was changed since it was asked."""
    judged_anew: bool = False
    """What it expects was changed since: the verdict is by what it expected then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryLine:
    """A canary in the table of its suite."""

    row: CanaryRow
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteView:
    """A suite with the canaries that were asked for."""

    definition: Definition
    note: str | None
    reach: Mapping[str, Any]
    checks: tuple[str, ...]
    is_scheduled: bool
    """Whether any of them runs by itself."""
    canaries: tuple[CanaryLine, ...]
    matching: int
    """How many there are of those asked for, shown or not."""
    total: int
    following: str | None
    """The key to go on after."""
    tags: tuple[str, ...]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which canaries are asked for; empty means any."""

    text: str = ""
    """Part of the key or the query."""
    category: str = ""
    tag: str = ""
    state: str = ""
    """A verdict some check on the suite has of it."""
    after: str = ""

    def takes(self, canary: Canary) -> bool:
        """Whether a canary is asked for, however it stands."""
        text = self.text.casefold()
        return (
            (not text or text in canary.key.casefold() or text in canary.query.casefold())
            and self.category in {"", canary.category}
            and (not self.tag or self.tag in canary.tags)
        )


def all_suites(store: Store) -> list[SuiteLine]:
    """Read every suite in force."""
    with store.read() as connection:
        checks = _checks(connection)
        found = []
        for suite in definitions.list_definitions(connection, "suite"):
            snapshot = load_suite_in_force(connection, suite)
            note = coverage_note(suite.slug, snapshot.reach)
            names = tuple(check.slug for check in checks if check.body["suite"] == suite.slug)
            found.append(SuiteLine(definition=suite, canaries=len(snapshot.members), note=note, checks=names))
    return found


def one_suite(store: Store, slug: str, wanted: Filter) -> SuiteView:
    """Read a suite with at most 100 of the canaries asked for. Raises NotFoundError."""
    with store.read() as connection:
        suite = require(definitions.find_definition(connection, "suite", slug), f"suite '{slug}'")
        snapshot = load_suite_in_force(connection, suite)
        checks = [check for check in _checks(connection) if check.body["suite"] == slug]
        stands = [_standing(connection, check) for check in checks]
        matching = [member for member in snapshot.members if wanted.takes(member.canary)]
        if wanted.state:
            matching = [one for one in matching if any(state(one).verdict == wanted.state for state in stands)]
        keys = [member.key for member in matching]
        start = keys.index(wanted.after) + 1 if wanted.after in keys else 0
        shown = matching[start : start + PAGE]
        rows = suites.list_canaries(connection, suite.id, keys=[member.key for member in shown])
    members = {member.key: member for member in shown}
    lines = [CanaryLine(row=row, states=tuple(state(members[row.key]) for state in stands)) for row in rows]
    shape = suite_power.shape(slug, snapshot.reach)
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


def _standing(connection: Connection, check: Definition) -> Callable[[Member], State]:
    """Return what says how a canary stands at the newest ended run of a check."""
    run = results.newest_ended(connection, check.id)
    unknown = State(check=check.slug, verdict=str(Verdict.UNKNOWN))
    if run is None or run.suite_version_id is None or not run.aggregates:  # it asked nobody
        return lambda _: unknown
    held = results.all_reasons_at(connection, check.id, run.id)
    _, failures = results.probes_of(connection, run.id)
    unscored = set(results.unscored_at(connection, run.id))
    asked = load_suite(connection, run.suite_version_id)

    def state(now: Member) -> State:
        place = asked.positions.get(now.canary_id)
        if place is None or now.canary_id not in held:
            return unknown
        then = asked.members[place]
        if then.canary.query != now.canary.query:
            return replace(unknown, asks_otherwise=True)
        if place in failures:
            return unknown
        bits = held[now.canary_id] & ~RELEVANCE if place in unscored else held[now.canary_id]
        anew = then.version_id != now.version_id and not then.canary.is_judged_as(now.canary)
        return _state(check.slug, bits, judged_anew=anew)

    return state


def _state(check: str, bits: int, *, judged_anew: bool) -> State:
    reasons = tuple(str(reason) for reason in unpack_reasons(bits))
    verdict = Verdict.DEGRADED if reasons else Verdict.HEALTHY
    return State(check=check, verdict=str(verdict), reasons=reasons, judged_anew=judged_anew)
