"""Suites as people look at them: their canaries, what each expects, and how each stands in every check on the suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.domain.judging import unpack_reasons
from app.domain.model import Verdict
from app.formats.documents import CanaryDocument
from app.services import thinness
from app.services.references import require
from app.services.scoring import without_relevance
from app.store import catalog, history, suites
from app.store.catalog import Definition
from app.store.engine import Connection, Store
from app.store.history import StateRow
from app.store.suites import CanaryRow

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

    def takes(self, line: CanaryLine) -> bool:
        """Whether a canary is asked for."""
        body, text = line.row.body, self.text.casefold()
        return (
            (not text or text in line.row.key.casefold() or text in str(body["query"]).casefold())
            and self.category in {"", body["category"]}
            and (not self.tag or self.tag in body["tags"])
            and (not self.state or any(state.verdict == self.state for state in line.states))
        )


def all_suites(store: Store) -> list[SuiteLine]:
    """Read every suite in force."""
    with store.read() as connection:
        checks = _checks(connection)
        found = []
        for suite in catalog.list_definitions(connection, "suite"):
            rows = suites.list_canaries(connection, suite.id)
            shape = thinness.shape_rows(suite.slug, rows)
            names = tuple(check.slug for check in checks if check.body["suite"] == suite.slug)
            found.append(SuiteLine(definition=suite, canaries=len(rows), note=shape["coverage_note"], checks=names))
    return found


def one_suite(store: Store, slug: str, wanted: Filter) -> SuiteView:
    """Read a suite with at most 100 of the canaries asked for. Raises NotFoundError."""
    with store.read() as connection:
        suite = require(catalog.find_definition(connection, "suite", slug), f"suite '{slug}'")
        rows = suites.list_canaries(connection, suite.id)
        checks = [check for check in _checks(connection) if check.body["suite"] == slug]
        states = [_states(connection, check, rows) for check in checks]
    lines = [CanaryLine(row=row, states=tuple(held[place] for held in states)) for place, row in enumerate(rows)]
    matching = [line for line in lines if wanted.takes(line)]
    keys = [line.row.key for line in matching]
    start = keys.index(wanted.after) + 1 if wanted.after in keys else 0
    shown = matching[start : start + PAGE]
    shape = thinness.shape_rows(slug, rows)
    return SuiteView(
        definition=suite,
        note=shape["coverage_note"],
        reach=shape["reach"],
        checks=tuple(check.slug for check in checks),
        is_scheduled=any(check.body["enabled"] for check in checks),
        canaries=tuple(shown),
        matching=len(matching),
        total=len(rows),
        following=shown[-1].row.key if len(matching) > start + PAGE else None,
        tags=tuple(sorted({tag for row in rows for tag in row.body["tags"]})),
        categories=tuple(sorted({str(row.body["category"]) for row in rows})),
    )


def _checks(connection: Connection) -> list[Definition]:
    return catalog.list_definitions(connection, "check")


def _states(connection: Connection, check: Definition, rows: Sequence[CanaryRow]) -> list[State]:
    """Say how canaries stand at the newest ended run of a check, in their order."""
    ended = history.ended_runs(connection, check.id, limit=1)
    unknown = [State(check=check.slug, verdict=str(Verdict.UNKNOWN)) for _ in rows]
    if not ended or ended[-1].suite_version_id is None or not ended[-1].aggregates:  # it asked nobody
        return unknown
    run = ended[-1]
    held = history.states_at(connection, check.id, run.id)
    _, failures = history.probes_of(connection, run.id)
    unscored = set(history.unscored_at(connection, run.id))
    members = suites.suite_version(connection, int(run.suite_version_id or 0))[1]
    asked = {member.canary_id: (place, member) for place, member in enumerate(members)}
    found = []
    for row, nothing in zip(rows, unknown, strict=True):
        place, member = asked.get(row.id, (-1, None))
        state = held.get(row.id)
        if member is None or state is None:
            found.append(nothing)
        elif member.body["query"] != row.body["query"]:
            found.append(replace(nothing, asks_otherwise=True))
        elif place in failures:
            found.append(nothing)
        else:
            known = without_relevance(state) if place in unscored else state
            anew = member.version_id != row.version_id and not _judged_alike(member.body, row.body)
            found.append(_state(check.slug, known, judged_anew=anew))
    return found


def _state(check: str, held: StateRow, *, judged_anew: bool) -> State:
    verdict = Verdict.DEGRADED if held.reasons else Verdict.HEALTHY
    reasons = tuple(str(reason) for reason in unpack_reasons(held.reasons))
    return State(check=check, verdict=str(verdict), reasons=reasons, judged_anew=judged_anew)


def _judged_alike(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return (
        CanaryDocument.model_validate(before).to_domain().is_judged_as(CanaryDocument.model_validate(now).to_domain())
    )
