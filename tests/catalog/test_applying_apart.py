"""Suites are planned before the transaction that writes them, and anew where another change came first."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from app.domain.errors import ConflictError
from app.formats.catalog.documents import CanaryDocument, HookDocument, SuiteDocument
from app.formats.validation_messages import parse_document
from app.services.catalog import applying, definitions, inline_checks
from app.services.catalog.references import API
from app.store.engine import Store
from tests.support.fakes import START
from tests.support.world import HOOK, RETRIEVER, World, canary, documents


def _other_process(store: Store) -> Store:
    """Open the database as another process does: within one, SQLite's writers take turns."""
    return Store(store.engine.url.render_as_string(hide_password=False))


def _suite(keys: list[str], **more: Any) -> dict[str, Any]:
    return {"suite": "suite", "canaries": [canary(key, **more) for key in keys]}


@contextmanager
def written(store: Store) -> Iterator[list[str]]:
    """Yield the statements of writing transactions as they come."""
    statements: list[str] = []

    def note(connection: sa.Connection, _cursor: object, statement: str, *_: object) -> None:
        if connection.get_execution_options().get("coalmine_writes"):
            statements.append(statement)

    sa.event.listen(store.engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(store.engine, "before_cursor_execute", note)


def test_a_suite_is_written_in_as_many_statements_whatever_its_size_and_not_read_meanwhile(store: Store) -> None:
    counts = []
    for slug, size in (("few", 3), ("many", 600)):
        keys = [f"q{number}" for number in range(size)]
        first = documents({**_suite(keys), "suite": slug})
        second = documents({**_suite(keys[1:], category="procedural"), "suite": slug})
        vault = World(store=store).vault
        for wanted in (first, second):
            with written(store) as statements:
                applying.apply(store, vault, wanted, managed_by=API, now=START)
            counts.append(len(statements))
            assert not [one for one in statements if one.lstrip().startswith("SELECT") and "canary_versions" in one]
        rows = definitions.list_canaries(store, slug)
        assert [row.key for row in rows] == keys[1:]
        assert {row.body["category"] for row in rows} == {"procedural"}
    assert counts[:2] == counts[2:]


def test_a_suite_is_hashed_once_for_each_revision_and_never_while_it_is_written(store: Store) -> None:
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT canaries.suite_id"):
            statements.append(statement)

    sa.event.listen(store.engine, "before_cursor_execute", note)
    for query in ("ant", "bee"):
        wanted = parse_document(SuiteDocument, {"slug": "suite", "canaries": [canary("ant", query=query)]})
        with written(store) as writing:
            saved, _ = definitions.put_suite(store, wanted, now=START)
        assert not set(writing) & set(statements)
        assert len(statements) == 1
        assert [one.hash for one in definitions.list_suites(store)] == [saved.hash]
        assert len(statements) == 1
        statements.clear()
    assert len({one.hash for one in definitions.list_suites(store)}) == 1


def test_a_secret_that_is_replaced_while_a_check_keeps_it_stays_replaced(store: Store) -> None:
    world = World(store=store)
    world.apply(_suite(["ant"]))
    before, after = ({**HOOK, "slug": "pager", "secret": f"whsec_{letter * 32}"} for letter in "AB")
    definitions.put(store, world.vault, "hook", parse_document(HookDocument, before), now=START)
    replacing = [parse_document(HookDocument, after)]
    other = _other_process(store)

    def replace(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("coalmine_writes") and replacing:
            definitions.put(other, world.vault, "hook", replacing.pop(), now=START)

    check = {"slug": "watch", "suite": "suite", "retriever": RETRIEVER, "schedule": {"every": "5m"}}
    sa.event.listen(store.engine, "begin", replace, insert=True)
    with pytest.raises(ConflictError, match="hook 'pager' was changed"):
        inline_checks.put(
            store, world.vault, {**check, "hooks": [{**HOOK, "slug": "pager", "secret": None}]}, now=START
        )
    other.close()
    assert definitions.stored_secrets(store, world.vault, "hook", "pager") == {"secret": after["secret"]}


@pytest.mark.parametrize("there", [True, False], ids=["of a suite", "of a new suite"])
def test_a_change_that_comes_in_between_is_planned_for(store: Store, *, there: bool) -> None:
    world = World(store=store)
    if there:
        applying.apply(store, world.vault, documents(_suite(["ant"])), managed_by=API, now=START)
    overtaking = [parse_document(CanaryDocument, canary("bee"))]
    other = _other_process(store)

    def overtake(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("coalmine_writes") and overtaking:
            given = [overtaking.pop()]
            definitions.put_canaries(other, "suite", given, now=START, with_suite=True)

    sa.event.listen(store.engine, "begin", overtake, insert=True)
    try:
        changes = applying.apply(store, world.vault, documents(_suite(["cat"])), managed_by=API, now=START)
    finally:
        sa.event.remove(store.engine, "begin", overtake)
        other.close()
    assert ("archive", "suite/bee") in [(change.action, change.name) for change in changes]
    assert [row.key for row in definitions.list_canaries(store, "suite")] == ["cat"]
