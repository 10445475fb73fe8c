"""The vector of aggregates stored with a run: names, order and values."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.rules import ANSWERED_RATIO, DEGRADED_SHARE, measure_value
from app.base.aggregates import Aggregates
from app.base.values import Category
from app.scoring.evaluation import Panel, Yardstick
from app.scoring.measures import mean_name

_OWN: Final = ("health_score", "coverage", DEGRADED_SHARE)


def vector_names(yardstick: Yardstick, panel: Panel) -> tuple[str, ...]:
    """Return the names of a run's stored numbers: all means, and for each category what charts and rules use.

    A category's number is named `category/measure`.
    """
    names = [*_OWN, *(mean_name(measure) for measure in yardstick.measures)]
    names += [f"{category}/{name}" for category in panel.categories for name in ("health_score", "coverage")]
    if Category.NEGATIVE in panel.categories:
        names.append(f"{Category.NEGATIVE}/{ANSWERED_RATIO}")
    for rule in yardstick.rules:
        name = f"{rule.category}/{rule.measure}"
        if rule.category is not None and rule.category in panel.categories and name not in names:
            names.append(name)
    return tuple(names)


def aggregate_vector(names: Sequence[str], aggregates: Aggregates) -> NDArray[np.float64]:
    """Return the aggregates of these names in their order; NaN = not measured."""
    values = [_value(aggregates, name) for name in names]
    return np.array([np.nan if value is None else value for value in values])


def _value(aggregates: Aggregates, name: str) -> float | None:
    category, _, measure = name.rpartition("/")
    return measure_value(aggregates, measure, category or None)
