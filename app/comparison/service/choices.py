"""Checks and runs to choose from for a comparison."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from app.base.db.engine import Connection, Store, from_us
from app.catalog.store import definitions
from app.comparison.service.comparisons import run_reference
from app.records.store import results
from app.records.store.results import RunRow

_RUNS: Final = 25
"""Number of the newest runs of each chosen check."""
_RUNS_OF_ALL: Final = 5
_CHECKS_WITH_RUNS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A check or a run to compare, by its reference."""

    reference: str
    check: str
    run: str
    """Of a check, its newest ended run."""
    verdict: str | None
    ended: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What may be compared: checks with an ended run, and the newest runs of the chosen checks, or of all."""

    checks: Sequence[Choice]
    runs: Sequence[Choice]


def list_choices(store: Store, chosen: Collection[str]) -> Choices:
    """Return what may be compared, always with the runs that are `chosen` by reference, if they are there."""
    with store.read() as connection:
        active = {check.id for check in definitions.list_definitions(connection, "check")}
        newest = [row for row in results.newest_ended_of_all(connection) if row.check_id in active and row.aggregates]
        newest.sort(key=lambda row: row.check)
        named = _chosen_runs(connection, chosen)
        wanted = {f"check:{row.check}": row.check_id for row in newest}
        of_checks = {wanted[one] for one in chosen if one in wanted} | {row.check_id for row in named}
        each = _RUNS if of_checks else _RUNS_OF_ALL
        among = sorted(of_checks) or [row.check_id for row in newest[:_CHECKS_WITH_RUNS]]
        rows = {row.id: row for check in among for row in results.ended_runs(connection, check, limit=each)}
    rows |= {row.id: row for row in named}
    return Choices(
        checks=[_choice(row, f"check:{row.check}") for row in newest],
        runs=[_choice(row, run_reference(row.id)) for row in sorted(rows.values(), key=_order) if row.aggregates],
    )


def _chosen_runs(connection: Connection, chosen: Collection[str]) -> list[RunRow]:
    """Return the runs among references; others, and what cannot be an id, are left out."""
    numbers = [one.removeprefix("run:") for one in chosen if one.startswith("run:")]
    found = results.find_runs(connection, [int(one) for one in numbers if one.isdecimal() and len(one) <= _DIGITS])
    return list(found.values())


def _choice(row: RunRow, reference: str) -> Choice:
    return Choice(
        reference=reference,
        check=row.check,
        run=str(row.id),
        verdict=row.verdict,
        ended=f"{from_us(row.finished_at or row.created_at):%Y-%m-%d %H:%M} UTC",
    )


def _order(row: RunRow) -> tuple[str, int]:
    """Order of runs: by check, the newest first."""
    return row.check, -row.id


_DIGITS: Final = 18
"""Of an id, which fits 64 bits."""
