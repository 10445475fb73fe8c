"""What changes a suite plans and parses before its write transaction, whose work does not grow by the canaries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from app.alerts.service import transitions
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service import references, suites
from app.catalog.store import API, FILE
from app.definitions.service import applying, definitions
from app.detection.service import baselines
from app.diagnosis import store as diagnoses
from app.diagnosis.service import reanchoring
from app.runs.service import rescoring
from tests.conftest import Databases
from tests.support.counted_reads import counted_world
from tests.support.fakes import START
from tests.support.world import CHECK, World, canary, documents, page

SMALL, LARGE = 10, 300
PROPOSALS = 5
SLACK = 150
"""Calls more or less that a transaction may make, for caches that are filled or emptied: fewer than the canaries."""


def keys(size: int) -> list[str]:
    """List the keys of a suite."""
    return [f"c{number:04}" for number in range(size)]


def suite_of(size: int, **more: Any) -> list[dict[str, Any]]:
    """Describe so many canaries; with floors, so that these are read too."""
    return [canary(key, floors={"RR": 0.1}, **more) for key in keys(size)]


def check_on(suite: str, slug: str = CHECK) -> CheckDocument:
    """Describe a check that a rule about a canary of the suite makes read its keys."""
    rules = [{"kind": "canary", "canary": "c0001"}]
    return parse_document(CheckDocument, {**page(suite=suite)["checks"][0], "slug": slug, "rules": rules})


def parsed(canaries: list[dict[str, Any]], slug: str = "suite") -> SuiteDocument:
    """Read a suite as REST does."""
    return parse_document(SuiteDocument, {"slug": slug, "canaries": canaries})


# --- what is there before ------------------------------------------------------------------------------------


def nothing(_world: World, _size: int) -> None:
    """Begin with an empty database."""


def suite_of_the_api(world: World, size: int) -> None:
    """Begin with a suite that nobody checks."""
    suites.put_suite(world.store, parsed(suite_of(size)), now=START)


def checked_suite(world: World, size: int, owner: str = API) -> None:
    """Begin with a suite that is checked."""
    applying.apply(world.store, world.vault, documents(page(suite_of(size))), managed_by=owner, now=START)


def suite_of_files(world: World, size: int) -> None:
    """Begin with a suite of files that is checked."""
    checked_suite(world, size, FILE)


def suite_with_runs(world: World, size: int) -> None:
    """Begin with a suite that was asked twice, and edited since."""
    checked_suite(world, size)
    world.run()
    world.run()
    suites.archive_canary(world.store, "suite", keys(size)[-1], now=START)


def suite_with_proposals(world: World, size: int) -> None:
    """Begin with judgments of some canaries that are proposed anew."""
    suite_with_runs(world, size)
    check = references.load_definition(world.store, "check", CHECK)
    for key in keys(size)[:PROPOSALS]:
        found = references.load_canary(world.store, "suite", key)
        with world.store.write() as connection:
            values: dict[str, Any] = {"check_id": check.id, "canary_id": found.id}
            values["canary_version_id"] = found.version_id
            diagnosis = diagnoses.save_diagnosis(
                connection, **values, run_id=2, ranking_id=1, cause="rechunked", reason="", at=1, evidence={}
            )
            diagnoses.propose(
                connection,
                **values,
                diagnosis_id=diagnosis,
                hash=key.encode(),
                judgment=found.body["expected_chunks"][0],
                proposals=[{"id": f"{key}@2", "document": None, "text": None, "grade": 1}],
                similarity=1.0,
                created_at=1,
            )


# --- what is done --------------------------------------------------------------------------------------------


def put_suite(world: World, size: int) -> None:
    """Put all of a suite but its last canary, each another than it was."""
    changed = parsed(suite_of(size, category="procedural")[:-1])
    suites.put_suite(world.store, changed, now=START)


def put_canaries(world: World, size: int) -> None:
    """Put every canary, each another than it was."""
    given = [parse_document(CanaryDocument, one) for one in suite_of(size, category="procedural")]
    assert suites.put_canaries(world.store, "suite", given, now=START).saved == size


def put_canary(world: World, _size: int) -> None:
    """Change a canary."""
    over = references.load_canary(world.store, "suite", "c0003").version_id
    suites.put_canary(world.store, "suite", parse_document(CanaryDocument, canary("c0003")), now=START, over=over)


def import_suite(world: World, size: int) -> None:
    """Import all of a suite but its last canary, each another than it was."""
    wanted = documents({"suite": "suite", "canaries": suite_of(size, category="procedural")[:-1]})
    assert len(applying.apply(world.store, world.vault, wanted, managed_by=API, now=START)) >= size


def apply_files_without(world: World, size: int) -> None:
    """Apply files in which the suite is no more."""
    wanted = documents(page([canary("c0001")], suite="another"))
    assert len(applying.apply(world.store, world.vault, wanted, managed_by=FILE, now=START)) > size


def apply_check(world: World, _size: int) -> None:
    """Apply a check on a suite that is not among what is applied."""
    wanted = Documents(checks=(check_on("suite", "second"),))
    assert applying.apply(world.store, world.vault, wanted, managed_by=API, now=START)


def put_check(world: World, _size: int) -> None:
    """Put a check on the suite."""
    definitions.put(world.store, world.vault, check_on("suite", "second"), now=START)


def archive_suite(world: World, _size: int) -> None:
    """Archive the suite."""
    definitions.archive(world.store, "suite", "suite", now=START)


def archive_canary(world: World, _size: int) -> None:
    """Archive a canary."""
    suites.archive_canary(world.store, "suite", "c0003", now=START)


def accept_proposals(world: World, _size: int) -> None:
    """Accept what is proposed."""
    decided = reanchoring.decide(world.store, CHECK, accept=None, by="Ada", now=START)
    assert len(decided["accepted"]) == PROPOSALS


def ask_for_rescoring(world: World, _size: int) -> None:
    """Have the runs judged by the suite as it is now."""
    rescoring.ask(world.store, CHECK, since=None, now=START)


def pin_baseline(world: World, _size: int) -> None:
    """Compare with the first run from now on."""
    baselines.pin(world.store, CHECK, "1", by="Ada", note=None, now=START)


def accept_baseline(world: World, _size: int) -> None:
    """Call the present normal."""
    transitions.accept_baseline(world.store, CHECK, by="Ada", note=None, now=START)


Step = Callable[[World, int], None]
ACTS: dict[str, tuple[Step, Step]] = {
    "a suite is made": (nothing, lambda world, size: put_suite(world, size + 1)),
    "a suite is put": (suite_of_the_api, put_suite),
    "canaries are put": (suite_of_the_api, put_canaries),
    "a canary is put": (checked_suite, put_canary),
    "a suite is imported": (checked_suite, import_suite),
    "a suite is in no file any more": (suite_of_files, apply_files_without),
    "a check is applied": (checked_suite, apply_check),
    "a check is put": (checked_suite, put_check),
    "a suite is archived": (suite_of_the_api, archive_suite),
    "a canary is archived": (checked_suite, archive_canary),
    "proposals are accepted": (suite_with_proposals, accept_proposals),
    "a re-scoring is asked for": (suite_with_runs, ask_for_rescoring),
    "a baseline is pinned": (suite_with_runs, pin_baseline),
    "a baseline is accepted": (suite_with_runs, accept_baseline),
}


@dataclass(frozen=True)
class Work:
    """What was done within write transactions."""

    canaries_parsed: int
    statements: int
    rows: int


def work(databases: Databases, name: str, size: int) -> tuple[Work, int]:
    """Count the work of an act, and its calls, in a process that has read nothing before."""
    url = databases.sqlite()
    before, act = ACTS[name]
    with counted_world(url) as (prepared, _):
        before(prepared, size)
        clock = prepared.clock
    with counted_world(url, calls=True) as (world, reads):
        world.clock = clock
        with world.store.write() as connection:  # what a process does first is not counted
            connection.exec_driver_sql("SELECT 1")
        reads.statements_in_write, reads.calls_in_write = 0, 0
        act(world, size)
        done = Work(
            canaries_parsed=reads.parsed_in_write, statements=reads.statements_in_write, rows=reads.rows_in_write
        )
        return done, reads.calls_in_write


@pytest.mark.parametrize("name", ACTS)
def test_a_write_transaction_does_as_much_for_a_large_suite_and_parses_no_canary(
    name: str, databases: Databases
) -> None:
    (small, few_calls), (large, many_calls) = (work(databases, name, size) for size in (SMALL, LARGE))
    assert small.canaries_parsed == 0
    assert large == small
    assert many_calls < few_calls + SLACK


@pytest.mark.databases
@pytest.mark.parametrize("query", ["a\x00b?", "a\ud800b?"], ids=["a null", "half a pair"])
def test_a_query_that_no_database_takes_has_a_key_made_and_is_refused_later(query: str, store: Store) -> None:
    suites.put_suite(store, parsed(suite_of(2)), now=START)
    assert [one["key"] for one in suites.assign_suite_keys(store, "suite", [{"query": query}])] == ["a-b"]
