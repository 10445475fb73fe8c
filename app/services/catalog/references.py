"""Who owns what is defined, and what a check needs of it: what may be changed, and what must stay for whom.

A check refers to a suite, a retriever and hooks; the floors of its canaries refer to the measures its runs compute.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress

from app.domain.catalog.suite_floors import SuiteFloors
from app.domain.errors import ConflictError, FileManagedError, InvalidInputError, NotFoundError, Problem
from app.domain.runs.suite_snapshot import UnusableSuiteError
from app.formats.catalog.documents import CheckDocument
from app.formats.fields import Document
from app.services.catalog.suite_snapshots import SuiteOvertakenError, load_suite_in_force
from app.store.catalog import definitions
from app.store.catalog.definitions import Definition
from app.store.catalog.suites import CanaryHead
from app.store.engine import Connection

FILE, API = "file", "api"


def require_references(connection: Connection, check: CheckDocument, revision: int | None) -> None:
    """Refuse a check that lacks something; what it refers to is in force until the transaction ends.

    Its suite is in memory at this revision, see `load_suite_of`: SuiteOvertakenError where it is of another by now.
    Raises InvalidInputError with every problem.
    """
    present = {
        kind: definitions.hold_definitions(connection, kind, slugs) for kind, slugs in references_of(check).items()
    }
    problems = missing(check, present)
    if not problems:
        suite = require(definitions.find_definition(connection, "suite", check.suite), f"suite '{check.suite}'")
        if suite.revision != revision:
            raise SuiteOvertakenError
        floors = load_suite_in_force(connection, suite).floors
        problems = [Problem(path="suite", message=message) for _, message in check.uncomputed_floors(floors)]
        problems += [Problem(path="rules", message=message) for message in check.unknown_canaries(floors.keys)]
    if problems:
        raise InvalidInputError(problems)


def load_suite_of(connection: Connection, document: Document) -> int | None:
    """Have the suite of a check at hand before the transaction that requires what the check refers to.

    Returns its revision; None where there is none, or the document is no check.
    """
    if not isinstance(document, CheckDocument):
        return None
    suite = definitions.find_definition(connection, "suite", document.suite)
    if suite is None:
        return None
    with suppress(UnusableSuiteError):
        assert load_suite_in_force(connection, suite).floors is not None  # noqa: S101 - read for its effect
    return suite.revision


def require_floors(connection: Connection, suite: str, given: SuiteFloors) -> None:
    """Refuse floors on measures that a check of the suite does not compute. Raises InvalidInputError.

    On PostgreSQL the caller has changed the suite's row, so that nobody puts another check on it meanwhile.
    """
    if not given.measures:
        return
    problems = [
        Problem(path="floors", message=message)
        for check in checks_in_force(connection)
        if check.suite == suite
        for _, message in check.uncomputed_floors(given)
    ]
    if problems:
        raise InvalidInputError(problems)


def refuse_used(connection: Connection, kind: str, slug: str) -> None:
    """Raise ConflictError where a check in force refers to a definition.

    On PostgreSQL the caller has changed the definition's row, so that a check that is put meanwhile waits and sees it.
    """
    users = [check.slug for check in checks_in_force(connection) if slug in references_of(check).get(kind, ())]
    if users:
        raise ConflictError(f"{kind} '{slug}' is used by check {', '.join(users)}; change or delete that first")


def refuse_named(connection: Connection, suite: str, gone: Collection[str]) -> None:
    """Raise ConflictError where a rule of a check in force is about a canary that is gone from its suite."""
    for check in checks_in_force(connection):
        for rule in check.rules if check.suite == suite else ():
            if rule.canary in gone:
                raise ConflictError(
                    f"canary '{suite}/{rule.canary}' is named by rule '{rule.key}' of check '{check.slug}'; "
                    "change that first"
                )


def checks_in_force(connection: Connection) -> list[CheckDocument]:
    """Read every check in force."""
    return [CheckDocument.model_validate(row.body) for row in definitions.list_definitions(connection, "check")]


def references_of(check: CheckDocument) -> dict[str, tuple[str, ...]]:
    """List the slugs a check refers to, by kind."""
    return {"suite": (check.suite,), "retriever": (check.retriever,), "hook": check.hooks}


def missing(check: CheckDocument, present: Mapping[str, Collection[str]]) -> list[Problem]:
    """List the references of a check that are not among the slugs present, by kind."""
    return [
        Problem(path="hooks" if kind == "hook" else kind, message=f"there is no {kind} '{slug}'")
        for kind, slugs in references_of(check).items()
        for slug in slugs
        if slug not in present[kind]
    ]


def require(definition: Definition | None, name: str) -> Definition:
    """Give a definition in force. Raises NotFoundError for any other."""
    if definition is None or definition.archived_at is not None:
        raise NotFoundError(f"there is no {name}")
    return definition


def owned_by_file(thing: Definition | CanaryHead | None) -> bool:
    """Whether it is in force and a file owns it."""
    return thing is not None and thing.managed_by == FILE and thing.archived_at is None


def refuse_file_managed(definition: Definition | None) -> None:
    """Raise FileManagedError where a file owns a definition that is in force."""
    if definition is not None and definition.managed_by == FILE and definition.archived_at is None:
        raise FileManagedError(
            f"{definition.kind} '{definition.slug}' is managed by {definition.source}; change it there and apply"
        )


def refuse_file_managed_canary(canary: CanaryHead, suite: str) -> None:
    """Raise FileManagedError where a file owns a canary that is in force."""
    if canary.managed_by == FILE and canary.archived_at is None:
        raise FileManagedError(
            f"canary '{suite}/{canary.key}' is managed by {canary.source}; change it there and apply"
        )
