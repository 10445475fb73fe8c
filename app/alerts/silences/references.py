"""References of silences: checks, suites, retrievers and keys of rules, and which of them do not exist."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from app.alerts.documents.rule_documents import rules_in_force
from app.alerts.silences.documents import SilenceDocument
from app.base.documents.fields import did_you_mean
from app.base.errors import Problem
from app.catalog.documents.documents import CheckDocument

RULE = "rule"
"""Pseudo-kind for the keys of rules."""


def rule_keys(check: CheckDocument) -> set[str]:
    """Return the keys of a check's rules, including default and disabled ones."""
    return {*(str(rule.key) for rule in check.rules), *(rule.key for rule in rules_in_force(check.rules))}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownReference:
    """A name in a silence that does not exist."""

    kind: str
    slug: str
    problem: Problem
    """The same in words, with the field and the nearest existing name."""


def unknown_references(document: SilenceDocument, present: Callable[[str], Collection[str]]) -> list[UnknownReference]:
    """Return the names in a silence that are not among the slugs (or keys of rules) that exist of their kind."""
    slugs = {"check": document.checks, "suite": document.suites, "retriever": document.retrievers}
    slugs[RULE] = document.rules
    unknown = []
    for kind, names in slugs.items():
        defined = present(kind) if names else ()
        for place, name in enumerate(names):
            if name not in defined:
                message = f"there is no {kind} '{name}'{did_you_mean(name, sorted(defined))}"
                unknown.append(
                    UnknownReference(kind=kind, slug=name, problem=Problem(path=f"{kind}s[{place}]", message=message))
                )
    return unknown
