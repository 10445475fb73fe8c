"""What a measure of a check is held against in charts: what is usual by its baseline, and the bounds of its rules."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from app.alerts.documents.rule_documents import rules_in_force
from app.base.db.engine import Connection
from app.base.values import Bound, Rule, RuleKind, Severity
from app.catalog.documents.documents import CheckDocument
from app.detection.domain.views import BoundLine, NormalRange
from app.detection.store import detectors
from app.records import documents as shapes
from app.records.store import series

QUANTILES: Final = (0.01, 0.99)
"""Of the runs a baseline was learned from: what lies between them is called usual."""
_MOST_RUNS: Final = 1_000
_ENOUGH: Final = 0.5
"""Of these runs, the share that must still be there: what the others had is not known."""


def usual(connection: Connection, source: series.Source, name: str) -> NormalRange | None:
    """Say between which values a measure lay in 98 % of the runs the baseline in force was learned from.

    None where nothing has been learned yet, and where too few of these runs are still kept.
    """
    detector = detectors.find_detector(connection, source.check_id)
    baseline_id = None if detector is None else detector.baseline_id
    baseline = None if baseline_id is None else detectors.find_baseline(connection, baseline_id)
    if baseline is None:
        return None
    values = series.values_learned(
        connection, source, name, since=baseline.first_run, until=baseline.last_run, limit=_MOST_RUNS
    )
    if not values or len(values) < _ENOUGH * baseline.runs:
        return None
    low, high = np.quantile(values, QUANTILES).tolist()
    return NormalRange(
        low=shapes.rounded(low),
        mean=shapes.rounded(float(np.mean(values))),
        high=shapes.rounded(high),
        runs=len(values),
        first_run=str(baseline.first_run),
        last_run=str(baseline.last_run),
    )


def lines(
    check: Mapping[str, Any], measure: str, category: str | None, normal_range: NormalRange | None
) -> list[BoundLine]:
    """List the bounds of the rules in force on a measure; that of a drop lies below the mean of the normal range."""
    bound_lines: list[BoundLine] = []
    for rule in rules_in_force(CheckDocument.model_validate(check).rules):
        if rule.measure != measure or rule.category != category:
            continue
        for severity, bound in ((Severity.WARNING, rule.warning), (Severity.CRITICAL, rule.critical)):
            line = None if bound is None else _line(rule, severity, bound, normal_range)
            if line is not None:
                bound_lines.append(line)
    return bound_lines


def _line(rule: Rule, severity: Severity, bound: Bound, normal_range: NormalRange | None) -> BoundLine | None:
    if rule.kind is RuleKind.THRESHOLD and bound.below is not None:
        return {"rule": rule.key, "severity": severity, "bad": "below", "value": bound.below}
    if rule.kind is RuleKind.THRESHOLD and bound.above is not None:
        return {"rule": rule.key, "severity": severity, "bad": "above", "value": bound.above}
    if rule.kind is RuleKind.DROP and bound.by is not None and normal_range is not None:
        value = shapes.rounded(normal_range.mean - bound.by)
        return {"rule": rule.key, "severity": severity, "bad": "below", "value": value, "by": bound.by}
    return None
