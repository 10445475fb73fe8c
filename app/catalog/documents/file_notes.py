"""Notes on valid canary files: suites that are thin, and silences that name unknown objects."""

from collections.abc import Collection
from datetime import datetime

from app.alerts.silences.domain import is_over
from app.alerts.silences.references import RULE, rule_keys, unknown_references
from app.catalog.documents.canary_files import Documents
from app.catalog.domain.suite_power import coverage_note, reach


def suite_notes(documents: Documents) -> list[str]:
    """Return a line, without its full stop, for each thin suite."""
    notes = [
        coverage_note(suite.slug, reach([canary.to_domain() for canary in suite.canaries or ()]))
        for suite in documents.suites
    ]
    return [note for note in notes if note is not None]


def silence_notes(documents: Documents, now: datetime) -> list[str]:
    """Return a line for each name in a silence that these documents do not define."""
    defined: dict[str, Collection[str]] = {
        "check": {check.slug for check in documents.checks},
        "suite": {suite.slug for suite in documents.suites},
        "retriever": {retriever.slug for retriever in documents.retrievers},
        RULE: {key for check in documents.checks for key in rule_keys(check)},
    }
    return [
        f"silence '{silence.slug}': {reference.problem.path}: {reference.problem.message} in these files, so it is "
        f"refused unless the service has one"
        for silence in documents.silences
        if not is_over(silence.to_domain(), now)
        for reference in unknown_references(silence, defined.__getitem__)
    ]
