"""Rules on what a judge says: whether people confirmed it, by which alone such a rule may be critical."""

from collections.abc import Sequence
from dataclasses import replace

from app.domain.alerts.answer_rules import JUDGED
from app.domain.model import Rule
from app.formats.catalog.documents import CheckDocument
from app.store.engine import Connection
from app.store.generation.calibrations import confirmed_measures


def with_confirmed(connection: Connection, check: CheckDocument, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules of a check, those on a measure marked that people confirmed of its judge."""
    if not any(rule.measure in JUDGED for rule in rules):
        return tuple(rules)
    confirmed = confirmed_measures(connection, check.judge)
    return tuple(replace(rule, confirmed=rule.measure in confirmed) for rule in rules)
