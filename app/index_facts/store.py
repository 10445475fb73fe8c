"""Rows of facts of indexes: saved as their run ends, read for runs with what was known before them."""

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new, row_value
from app.catalog.tables import definitions
from app.index_facts.domain import PAST, Fact, KnownFact, PastValue
from app.index_facts.tables import index_facts

_COLUMNS = ("run_id", "check_id", "name", "value", "reason", "low", "high", "canaries", "source", "sentence")
_MOST_FACTS = 11
"""Of a run: ten that are asked for, and recall against exact search."""


def save_facts(connection: Connection, check_id: int, run_id: int, facts: Sequence[Fact]) -> None:
    """Save the facts of a run, inside the transaction that ends it."""
    values = attrgetter(*_COLUMNS[2:])
    insert_new(connection, index_facts, _COLUMNS, [(run_id, check_id, *values(one)) for one in facts])


def facts_of(connection: Connection, run_ids: Collection[int]) -> dict[int, list[Fact]]:
    """Return the facts of runs, by run id; a run without any is left out."""
    statement = sa.select(index_facts).where(index_facts.c.run_id.in_(run_ids)).order_by(index_facts.c.name)
    found: dict[int, list[Fact]] = {}
    for row in connection.execute(statement) if run_ids else ():
        found.setdefault(row.run_id, []).append(row_value(Fact, row))
    return found


def sentences_of(connection: Connection, run_ids: Collection[int]) -> dict[int, str]:
    """Return what is wrong with the index in runs, by run id, as clauses; runs without such are left out."""
    if not run_ids:
        return {}
    wrong = sa.and_(index_facts.c.run_id.in_(run_ids), index_facts.c.sentence.is_not(None))
    columns = index_facts.c.run_id, index_facts.c.sentence
    found: dict[int, list[str]] = {}
    for row in connection.execute(sa.select(*columns).where(wrong).order_by(index_facts.c.name.desc())):
        found.setdefault(row.run_id, []).append(row.sentence)
    return {run_id: "; ".join(clauses) for run_id, clauses in found.items()}


def past_values(connection: Connection, check_id: int, *, before: int, after: int = 0) -> dict[str, list[PastValue]]:
    """Return the newest known values of a check by fact, oldest first, of runs before one and after another."""
    mine = sa.and_(index_facts.c.check_id == check_id, index_facts.c.run_id < before, index_facts.c.run_id > after)
    columns = [index_facts.c[name] for name in ("run_id", "name", "value", "high", "source")]
    statement = sa.select(*columns).where(mine, index_facts.c.value.is_not(None))
    newest = statement.order_by(index_facts.c.run_id.desc()).limit(PAST * _MOST_FACTS)
    found: dict[str, list[PastValue]] = {}
    for row in reversed(connection.execute(newest).all()):
        found.setdefault(row.name, []).append(row_value(PastValue, row))
    return {name: values[-PAST:] for name, values in found.items()}


def known_facts(
    connection: Connection, check_id: int, run_ids: Sequence[int], *, after: int = 0
) -> dict[int, list[KnownFact]]:
    """Return the facts of runs with what was known before each, by run id; `after`: what is older is not comparable."""
    facts = facts_of(connection, run_ids)
    if not facts:
        return {}
    past = past_values(connection, check_id, before=max(facts), after=after)
    return {run_id: with_past(found, past, run_id) for run_id, found in facts.items()}


def with_past(facts: Sequence[Fact], past: Mapping[str, Sequence[PastValue]], run_id: int) -> list[KnownFact]:
    """Return the facts of a run with the values of the runs before it that are comparable."""
    return [
        KnownFact(
            fact=one,
            past=[was for was in past.get(one.name, ()) if was.run_id < run_id and was.source == one.source],
        )
        for one in facts
    ]


def runs_with_facts(connection: Connection, check_id: int, *, before: int | None, limit: int) -> list[int]:
    """List the runs of a check that read facts, newest first, those with an id below `before`."""
    mine = index_facts.c.check_id == check_id
    if before is not None:
        mine = sa.and_(mine, index_facts.c.run_id < before)
    statement = sa.select(index_facts.c.run_id).where(mine).distinct().order_by(index_facts.c.run_id.desc())
    return list(connection.execute(statement.limit(limit)).scalars())


def newest_of_checks(connection: Connection) -> dict[int, list[Fact]]:
    """Return the facts of the newest run that read any, of every check in force, by its id."""
    newest = (
        sa.select(sa.func.max(index_facts.c.run_id))
        .where(index_facts.c.check_id == definitions.c.id)
        .correlate(definitions)
        .scalar_subquery()
    )
    in_force = sa.and_(definitions.c.kind == "check", definitions.c.archived_at.is_(None))
    checks = sa.select(definitions.c.id, newest.label("newest")).where(in_force).subquery()
    known = connection.execute(sa.select(checks).where(checks.c.newest.is_not(None)))
    runs = {row.newest: row.id for row in known}
    found = facts_of(connection, list(runs))
    return {runs[run_id]: facts for run_id, facts in found.items()}
