"""Remarks on canary files that are valid: what their suites cannot show, and what their silences name in vain."""

from collections.abc import Collection
from datetime import datetime

from app.domain.alerts.silences import is_over
from app.domain.catalog.suite_power import coverage_note, reach
from app.formats.catalog.canary_files import Documents
from app.formats.catalog.silence_references import RULE, rule_keys, unknown_references


def suite_notes(wanted: Documents) -> list[str]:
    """Say of each suite of documents, in a line without its full stop, what it is too thin to see."""
    notes = [
        coverage_note(suite.slug, reach([document.to_domain() for document in suite.canaries or ()]))
        for suite in wanted.suites
    ]
    return [note for note in notes if note is not None]


def silence_notes(wanted: Documents, now: datetime) -> list[str]:
    """Say, a line each, what silences name and these documents do not define; unless the API has it, it is refused."""
    there: dict[str, Collection[str]] = {
        "check": {check.slug for check in wanted.checks},
        "suite": {suite.slug for suite in wanted.suites},
        "retriever": {retriever.slug for retriever in wanted.retrievers},
        RULE: {key for check in wanted.checks for key in rule_keys(check)},
    }
    return [
        f"silence '{silence.slug}': {stranger.problem.path}: {stranger.problem.message} in these files, so it is "
        f"refused unless the service has one"
        for silence in wanted.silences
        if not is_over(silence.to_domain(), now)
        for stranger in unknown_references(silence, there.__getitem__)
    ]
