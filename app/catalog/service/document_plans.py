"""Plans for the suites of a set of documents, made before the transaction that applies them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.base.db.engine import Connection
from app.base.db.row_tables import StagedRows
from app.catalog.documents.canary_files import Documents
from app.catalog.domain.suite_floors import SuiteFloors
from app.catalog.service.changes import Change
from app.catalog.service.references import FILE
from app.catalog.service.suite_plans import (
    SuiteContent,
    SuitePlan,
    floors_in_force,
    plan_archive,
    plan_suite,
    suite_content,
)
from app.catalog.store import definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlans:
    """Planned changes of suites, and the stored suites they depend on; by slug."""

    saved: Mapping[str, SuitePlan]
    """Suites of the documents."""
    archived: Mapping[str, Sequence[Change]]
    """File-managed suites that no file defines any more, with the changes of archiving them."""
    floors: Mapping[str, SuiteFloors]
    """Floors of the saved suites, and of other suites that checks of the documents use."""
    revisions: Mapping[str, int]
    """Revisions of all suites that this depends on; 0 = there is none."""

    @property
    def tables(self) -> list[StagedRows]:
        """The staged rows of all suites."""
        return [table for plan in self.saved.values() for table in plan.staged.tables]


def suite_contents(documents: Documents, managed_by: str) -> list[SuiteContent]:
    """Return the suites of documents ready to be stored."""
    return [
        suite_content(
            suite.slug,
            suite.canaries or (),
            managed_by=managed_by,
            sources={
                one.key: place
                for one in suite.canaries or ()
                if (place := source_of(documents, managed_by, "canary", suite.slug, one.key)) is not None
            },
            number=number,
        )
        for number, suite in enumerate(documents.suites)
    ]


def plan_suites(
    connection: Connection, documents: Documents, contents: Sequence[SuiteContent], *, managed_by: str, refuse: bool
) -> SuitePlans:
    """Return the plans of all suites. Raises FileManagedError as `plan_suite` does."""
    plans = {one.slug: plan_suite(connection, one, repeats=True, refuse=refuse) for one in contents}
    absent = {
        suite.slug: suite
        for suite in definitions.list_definitions(connection, "suite")
        if managed_by == FILE and suite.managed_by == FILE and suite.slug not in plans
    }
    used = {check.suite for check in documents.checks} - plans.keys()
    others = {slug: definitions.find_definition(connection, "suite", slug) for slug in used | absent.keys()}
    return SuitePlans(
        saved=plans,
        archived={slug: plan_archive(connection, suite) for slug, suite in absent.items()},
        floors={
            **{slug: plan.floors for slug, plan in plans.items()},
            **{slug: floors_in_force(connection, slug) for slug in used - absent.keys()},
        },
        revisions={
            **{slug: plan.revision for slug, plan in plans.items()},
            **{slug: suite.revision if suite is not None else 0 for slug, suite in others.items()},
        },
    )


def source_of(documents: Documents, managed_by: str, *identity: str) -> str | None:
    """Return where a file defines an object, as file:line; None where no file owns it."""
    place = documents.sources.get(identity)
    return f"{place.file}:{place.line}" if place is not None and managed_by == FILE else None
