"""Validates silences against the checks, suites, retrievers and rules that an application of documents leaves."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from app.alerts.silences.domain import is_over
from app.alerts.silences.references import RULE, rule_keys, unknown_references
from app.base.errors import Problem
from app.catalog.documents.documents import CheckDocument, SilenceDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """A check with the keys of its rules, parsed once."""

    check: CheckDocument
    keys: Collection[str]

    def is_matched_by(self, silence: SilenceDocument) -> bool:
        """Whether a silence is about this check, whatever rules it names."""
        check = self.check
        pairs = ((silence.checks, check.slug), (silence.suites, check.suite), (silence.retrievers, check.retriever))
        return all(not names or name in names for names, name in pairs)


def rules_of(checks: Iterable[CheckDocument]) -> list[CheckRules]:
    """Return the rules of checks."""
    return [CheckRules(check=check, keys=rule_keys(check)) for check in checks]


def silence_problems(
    silences: Sequence[SilenceDocument],
    *,
    slugs_of: Callable[[str], Collection[str]],
    before: Collection[CheckRules],
    after: Collection[CheckRules],
    archived: Mapping[str, Collection[str]],
    changed: Collection[tuple[str, str]],
    now: datetime,
) -> Iterator[tuple[SilenceDocument, Problem]]:
    """Yield the names in silences that do not exist afterwards: such a silence would suppress nothing.

    `slugs_of` returns the slugs of a kind afterwards; `before` and `after` are the rules of all checks, where a silence
    names any; `archived` are the slugs archived by this application, `changed` the (kind, slug) it saves. An unchanged
    silence is only checked against what this application removes: what the API archived earlier must not stop a start.
    A silence that is over is not checked.
    """

    @cache
    def names(kind: str) -> Collection[str]:
        return _keys(after) if kind == RULE else slugs_of(kind)

    removed = {**archived, RULE: _keys(before)}
    for silence in silences:
        if is_over(silence.to_domain(), now):
            continue
        unknown = unknown_references(silence, names)
        for reference in unknown:
            if reference.slug in removed.get(reference.kind, ()):
                message = f"{reference.kind} '{reference.slug}' is removed; remove it from this silence too"
                yield silence, replace(reference.problem, message=message)
            elif ("silence", silence.slug) in changed:
                yield silence, reference.problem
        lost = _keys(before, silence) - _keys(after, silence) if silence.rules and not unknown else ()
        for place, rule in enumerate(silence.rules):
            if rule in lost:  # checks outside this silence still have a rule of that key
                message = f"rule '{rule}' is removed from the checks of this silence; remove it here too"
                yield silence, Problem(path=f"rules[{place}]", message=message)


def _keys(rules: Iterable[CheckRules], silence: SilenceDocument | None = None) -> set[str]:
    """Return the keys of the rules of all checks, or of those that a silence is about."""
    return {key for one in rules if silence is None or one.is_matched_by(silence) for key in one.keys}
