"""References to runs, `run:ID`, `check:SLUG` and `retriever:SLUG`, and the runs that they stand for."""

import re
from typing import Final

from app.base.db.engine import Connection, Store
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.views import id_or_none
from app.catalog import store as catalog
from app.catalog.service.references import find_check
from app.records.store import run_rows

_REFERENCE: Final = re.compile(r"(?P<kind>run|check|retriever):(?P<name>.+)")
_LATEST: Final = 100
"""Number of the newest runs of a check among which one that was carried out is looked for."""


def resolve(store: Store, reference: str, path: str) -> str:
    """Return the id of the run that a reference names, which may not be there; raises as `compare_references` does.

    `path` is the name of the parameter that has the reference.
    """
    with store.read() as connection:
        return max(_options(connection, reference, path), key=lambda one: id_or_none(one) or 0)


def resolve_pair(store: Store, a: str, b: str) -> tuple[str, str]:
    """Return the ids of the runs that two references to be compared name; raises as `compare_references` does."""
    with store.read() as connection:
        return find_run_ids(connection, a, b)


def run_reference(run_id: int | str) -> str:
    """Return the reference of a run."""
    return f"run:{run_id}"


def find_run_ids(connection: Connection, a: str, b: str) -> tuple[str, str]:
    """Return the ids of two runs; of a retriever that several checks ask, of one over the suite of the other side."""
    first, second = (_options(connection, text, name) for name, text in (("a", a), ("b", b)))
    if len(first) == len(second) == 1:
        return first[0], second[0]
    ids = {one: number for one in (*first, *second) if (number := id_or_none(one)) is not None}
    suites = run_rows.suites_of(connection, ids.values())
    pairs = [
        (one, other)
        for one in first
        for other in second
        if one in ids and other in ids and suites.get(ids[one]) == suites.get(ids[other])
    ]
    if not pairs:
        raise ConflictError(f"no two checks over one suite were run for {a} and {b}; there is nothing to compare")
    return max(pairs, key=lambda pair: sorted(ids[one] for one in pair))


def _options(connection: Connection, text: str, name: str) -> list[str]:
    """Return the ids of the runs that a reference may stand for: one, or of a retriever one for each check."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        message = "must be run:ID, check:SLUG or retriever:SLUG, such as check:docs"
        raise InvalidInputError([Problem(path=name, message=message)])
    if match["kind"] == "run":
        return [match["name"]]
    if match["kind"] == "retriever":
        checks = catalog.list_definitions(connection, "check")
        asking = [check for check in checks if check.body["retriever"] == match["name"]]
        if not asking and catalog.find_definition(connection, "retriever", match["name"]) is None:
            raise NotFoundError(f"there is no retriever '{match['name']}'")
        whose = f"no check of retriever '{match['name']}'"
    else:
        asking = [find_check(connection, match["name"])]
        whose = f"check '{asking[0].slug}'"
    asked = match["name"] if match["kind"] == "retriever" else None
    found = [run for check in asking if (run := _newest_executed(connection, check.id, asked)) is not None]
    if not found:
        none = "no run with results" if match["kind"] == "check" else "a run with results"
        raise ConflictError(f"{whose} has {none} among its newest; there is nothing to compare")
    return found


def _newest_executed(connection: Connection, check_id: int, retriever: str | None = None) -> str | None:
    """Return the newest run of a check with results, in which this retriever was asked if one is named."""
    ended = [run for run in run_rows.ended_runs(connection, check_id, limit=_LATEST) if run.aggregates]
    if retriever is not None:
        versions = {run.check_version_id for run in ended if run.check_version_id is not None}
        bodies = catalog.version_bodies(connection, sorted(versions))
        ended = [run for run in ended if bodies.get(run.check_version_id or 0, {}).get("retriever") == retriever]
    return str(ended[-1].id) if ended else None
