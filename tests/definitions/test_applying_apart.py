"""Suites are planned before the transaction that writes them, and anew where another change came first."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import sqlalchemy as sa

from app.base.api.bodies import SuiteFiles
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.service import references, suites
from app.catalog.service.suites import ATTEMPTS
from app.catalog.store import API
from app.definitions.exchange_api import from_files
from app.definitions.service import applying, definitions
from app.hooks.documents import HookDocument
from tests.support.fakes import START
from tests.support.world import HOOK, RETRIEVER, World, canary, documents, race

pytestmark = pytest.mark.databases


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
        rows = references.load_canaries(store, slug)
        assert [row.key for row in rows] == keys[1:]
        assert {row.body["category"] for row in rows} == {"procedural"}
    assert counts[:2] == counts[2:]


def test_several_suites_are_made_and_changed_in_one_transaction(store: Store) -> None:
    vault = World(store=store).vault
    for category in ("procedural", "comparative"):
        suites = [{**_suite(["ant", slug], category=category), "suite": slug} for slug in ("s" * 64, "two", "three")]
        applying.apply(store, vault, documents(*suites), managed_by=API, now=START)
        for slug in ("s" * 64, "two", "three"):
            found = {row.key: row.body["category"] for row in references.load_canaries(store, slug)}
            assert found == dict.fromkeys(["ant", slug], category)


def test_a_suite_is_hashed_once_for_each_revision_and_never_while_it_is_written(store: Store) -> None:
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT canaries.suite_id"):
            statements.append(statement)

    sa.event.listen(store.engine, "before_cursor_execute", note)
    for query in ("ant", "bee"):
        wanted = parse_document(SuiteDocument, {"slug": "suite", "canaries": [canary("ant", query=query)]})
        with written(store) as writing:
            saved, _ = suites.put_suite(store, wanted, now=START)
        assert not set(writing) & set(statements)
        assert len(statements) == 1
        assert [one.hash for one in suites.list_suites(store)] == [saved.hash]
        assert len(statements) == 1
        statements.clear()
    assert len({one.hash for one in suites.list_suites(store)}) == 1


def test_a_secret_that_is_replaced_while_a_check_keeps_it_stays_replaced(store: Store) -> None:
    world = World(store=store)
    world.apply(_suite(["ant"]))
    before, after = ({**HOOK, "slug": "pager", "secret": f"whsec_{letter * 32}"} for letter in "AB")
    definitions.put(store, world.vault, parse_document(HookDocument, before), now=START)
    replacing = parse_document(HookDocument, after)

    def replace(other: Store) -> None:
        definitions.put(other, world.vault, replacing, now=START)

    check = {"slug": "watch", "suite": "suite", "retriever": RETRIEVER, "schedule": {"every": "5m"}}
    with pytest.raises(ConflictError, match="hook 'pager' was changed"), overtaken(store, replace):
        applying.put_inline_check(
            store, world.vault, {**check, "hooks": [{**HOOK, "slug": "pager", "secret": None}]}, now=START
        )
    assert definitions.stored_secrets(store, world.vault, "hook", "pager") == {"secret": after["secret"]}


@contextmanager
def overtaken(store: Store, *acts: Callable[[Store], object]) -> Iterator[None]:
    """Let each act, as if of another process, come between a plan and the transaction that writes it."""
    other, left = _other_process(store), list(acts)

    def overtake(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("coalmine_writes") and left:
            left.pop(0)(other)

    sa.event.listen(store.engine, "begin", overtake, insert=True)
    try:
        yield
    finally:
        sa.event.remove(store.engine, "begin", overtake)
        other.close()
    assert not left


def _put(*keys: str, **more: Any) -> Callable[[Store], object]:
    """Give what puts these canaries into the suite, beside those it has."""
    given = [parse_document(CanaryDocument, canary(key, **more)) for key in keys]
    return lambda store: suites.put_canaries(store, "suite", given, now=START, with_suite=True)


def _replace(*keys: str) -> Callable[[Store], object]:
    """Give what makes these the canaries of the suite."""
    wanted = parse_document(SuiteDocument, {"slug": "suite", "canaries": [canary(key) for key in keys]})
    return lambda store: suites.put_suite(store, wanted, now=START)


def _keys(store: Store) -> list[str]:
    return sorted(row.key for row in references.load_canaries(store, "suite"))


@pytest.mark.parametrize("there", [True, False], ids=["of a suite", "of a new suite"])
def test_a_suite_that_is_put_replaces_what_came_in_between(store: Store, *, there: bool) -> None:
    if there:
        _put("ant")(store)
    with overtaken(store, _put("bee", "cat", category="procedural")):
        _replace("cat", "dog")(store)
    assert _keys(store) == ["cat", "dog"]
    assert references.load_canary(store, "suite", "cat").body["category"] == "simple_factual"


@pytest.mark.parametrize("there", [True, False], ids=["of a suite", "of a new suite"])
def test_canaries_that_are_put_stay_beside_what_came_in_between(store: Store, *, there: bool) -> None:
    if there:
        _put("ant")(store)
    with overtaken(store, _put("bee"), _put("cat", category="procedural")):
        _put("cat", "dog")(store)
    assert _keys(store) == [*(["ant"] if there else []), "bee", "cat", "dog"]
    assert references.load_canary(store, "suite", "cat").body["category"] == "simple_factual"


def test_each_row_is_validated_hashed_and_encoded_once_even_where_a_suite_is_planned_anew(store: Store) -> None:
    rows, calls = 30, Counter[str]()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        calls[frame.f_code.co_name] += event == "call"

    files = SuiteFiles(files={"a.csv": "\n".join(["key,query,id", *(f"q{row},{row}?,{row}" for row in range(rows))])})
    with overtaken(store, _put("bee")):
        sys.setprofile(count)
        try:
            wanted, _ = from_files("csv", "suite", files)
            applying.apply(store, World(store=store).vault, wanted, managed_by=API, now=START)
        finally:
            sys.setprofile(None)
    assert len(_keys(store)) == rows
    assert calls["plan_suite"] == 2 + 1  # the one that came in between
    once = ("_expect_nothing_of_empty", "content_hash", "json_text")
    assert {name: calls[name] for name in once} == {
        "_expect_nothing_of_empty": rows,
        **dict.fromkeys(once[1:], rows + 1),
    }


def test_imports_at_once_both_end_and_one_of_them_is_in_force(store: Store) -> None:
    def put(number: int) -> None:
        keys = [f"{number}-{at}" for at in range(40)]
        applying.apply(store, World(store=store).vault, documents(_suite(keys)), managed_by=API, now=START)

    race(2, put)
    assert {key.partition("-")[0] for key in _keys(store)} in ({"0"}, {"1"})
    assert len(_keys(store)) == 40


def test_whoever_is_overtaken_again_and_again_gets_an_error_and_changes_nothing(store: Store) -> None:
    _put("ant")(store)
    others = [_put(f"bee-{number}") for number in range(ATTEMPTS)]
    with pytest.raises(ConflictError, match="repeatedly; try again"), overtaken(store, *others):
        _replace("cat")(store)
    assert _keys(store) == ["ant", *(f"bee-{number}" for number in range(ATTEMPTS))]


@pytest.mark.parametrize("there", [True, False], ids=["of a suite", "of a new suite"])
def test_a_change_that_comes_in_between_is_planned_for(store: Store, *, there: bool) -> None:
    world = World(store=store)
    if there:
        applying.apply(store, world.vault, documents(_suite(["ant"])), managed_by=API, now=START)
    with overtaken(store, _put("bee")):
        changes = applying.apply(store, world.vault, documents(_suite(["cat"])), managed_by=API, now=START)
    assert ("archive", "suite/bee") in [(change.action, change.name) for change in changes]
    assert [row.key for row in references.load_canaries(store, "suite")] == ["cat"]
