"""Rules on what a judge says: whether people confirmed it, by which alone such a rule may be critical."""

from collections.abc import Sequence
from dataclasses import replace

from app.alerts.domain.answer_rules import JUDGED
from app.answers.store.calibrations import confirmed_measures
from app.base.db.engine import Connection
from app.base.values import Rule
from app.catalog.documents.documents import CheckDocument


def with_confirmed(connection: Connection, check: CheckDocument, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules of a check, those on a measure marked that people confirmed of its judge."""
    if not any(rule.measure in JUDGED for rule in rules):
        return tuple(rules)
    confirmed = confirmed_measures(connection, check.judge)
    return tuple(replace(rule, confirmed=rule.measure in confirmed) for rule in rules)
