"""What silences name: checks, suites, retrievers and keys of rules, and which of them nobody has."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from app.domain.errors import Problem
from app.formats.alerts.rule_documents import rules_in_force
from app.formats.alerts.silence_documents import SilenceDocument
from app.formats.catalog.documents import CheckDocument
from app.formats.fields import did_you_mean

RULE = "rule"
"""What a silence names by its key; not a kind of definition."""


def rule_keys(check: CheckDocument) -> set[str]:
    """Give the keys of a check's rules, those it has without asking and those that are switched off among them."""
    return {*(str(rule.key) for rule in check.rules), *(rule.key for rule in rules_in_force(check.rules))}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownReference:
    """What a silence names and nobody has."""

    kind: str
    slug: str
    problem: Problem
    """The same in words, with the field and the nearest name there is."""


def unknown_references(document: SilenceDocument, present: Callable[[str], Collection[str]]) -> list[UnknownReference]:
    """List what a silence names that is not among the slugs, or keys of rules, present of its kind."""
    slugs = {"check": document.checks, "suite": document.suites, "retriever": document.retrievers}
    slugs[RULE] = document.rules
    unknown = []
    for kind, names in slugs.items():
        there = present(kind) if names else ()
        for place, name in enumerate(names):
            if name not in there:
                message = f"there is no {kind} '{name}'{did_you_mean(name, sorted(there))}"
                unknown.append(
                    UnknownReference(kind=kind, slug=name, problem=Problem(path=f"{kind}s[{place}]", message=message))
                )
    return unknown
