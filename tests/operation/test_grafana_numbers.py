"""What the boards make of states that take hours to come about, worked out by Prometheus over series of our own.

Series are samples a minute apart of two replicas that say the same, as in test_prometheus_rules.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.operation.test_prometheus_rules import OF_CHECK, of_check, run_promtool
from tests.support.grafana_boards import Query, boards, filled, queries

pytestmark = pytest.mark.systems

BOARDS = boards()
CHOSEN = {"job": "coalmine", "suite": ".+", "retriever": ".+", "check": "docs", "__interval": "1m", "__range": "1h"}
Series = list[dict[str, str]]
Numbers = Mapping[str, Sequence[float]]
"""By name, what each series of it is; none where there is nothing."""
HOURLY = of_check("coalmine_check_interval_seconds", "3600x400")
"""A check that runs each hour."""


def _ran(verdict: str) -> Series:
    """Say that the only run of the check ended in minute 0, and how."""
    verdicts = [
        one
        for name in ("healthy", "degraded", "unknown")
        for one in of_check("coalmine_verdict", f"{int(name == verdict)}x400", verdict=name)
    ]
    return [*verdicts, *of_check("coalmine_last_run_timestamp_seconds", "0x400")]


def _query(board: str, title: str, ref: str) -> Query:
    (found,) = [one for one in queries(BOARDS[board]) if (one.title, one.ref) == (title, ref) and one.instant]
    return found


def _shows(folder: Path, given: Series, wanted: Mapping[str, Numbers]) -> None:
    """Hold numbers of the boards, by minute and name, against series."""
    asked = [
        {
            "expr": filled(_NUMBERS[name].expr, CHOSEN),
            "eval_time": minute,
            "exp_samples": [{"labels": _labels(name), "value": value} for value in values],
        }
        for minute, numbers in wanted.items()
        for name, values in numbers.items()
    ]
    tests: list[dict[str, Any]] = [{"interval": "1m", "input_series": given, "promql_expr_test": asked}]
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump({"tests": tests}), encoding="utf-8")
    run_promtool("test", "rules", file)


def _labels(name: str) -> str:
    labels = ", ".join(f'{label}="{value}"' for label, value in OF_CHECK.items() if label != "job")
    return f"{{{labels}}}" if name in _OF_CHECKS else "{}"


_NUMBERS = {
    **{name: _query("coalmine-overview", name, "A") for name in ("Healthy", "Degraded", "Unknown", "Overdue")},
    "verdict in the table": _query("coalmine-overview", "Checks", "A"),
    "overdue in the table": _query("coalmine-overview", "Checks", "H"),
    "verdict of the check": _query("coalmine-check", "Verdict", "A"),
}
_OF_CHECKS = {"verdict in the table", "overdue in the table", "verdict of the check"}
NOTHING: Numbers = {"Healthy": [0], "Degraded": [0], "Unknown": [0], "Overdue": [0]}
HEALTHY, DEGRADED, UNKNOWN, OVERDUE = 1, 2, 3, 4


def _verdict(code: int, *, overdue: int) -> Numbers:
    return {
        "verdict in the table": [code],
        "verdict of the check": [code],
        "overdue in the table": [overdue],
        "Overdue": [overdue],
    }


def test_a_check_that_was_healthy_long_ago_is_overdue_and_no_longer_healthy(tmp_path: Path) -> None:
    wanted: dict[str, Numbers] = {
        "119m": {**NOTHING, **_verdict(HEALTHY, overdue=0), "Healthy": [1]},
        "121m": {**NOTHING, **_verdict(OVERDUE, overdue=1)},
    }
    _shows(tmp_path, [*HOURLY, *_ran("healthy")], wanted)


def test_bad_news_stays_though_it_is_old(tmp_path: Path) -> None:
    degraded: Numbers = {**NOTHING, **_verdict(DEGRADED, overdue=1), "Degraded": [1]}
    _shows(tmp_path, [*HOURLY, *_ran("degraded")], {"121m": degraded})
    unknown: Numbers = {**NOTHING, **_verdict(UNKNOWN, overdue=1), "Unknown": [1]}
    _shows(tmp_path, [*HOURLY, *_ran("unknown")], {"121m": unknown})


def test_a_check_that_never_ran_is_unknown_and_in_time_overdue(tmp_path: Path) -> None:
    unknown: Numbers = {**NOTHING, "Unknown": [1], "verdict in the table": [], "verdict of the check": []}
    wanted: dict[str, Numbers] = {
        "14m": {**unknown, "overdue in the table": []},
        "16m": {**unknown, "overdue in the table": [1], "Overdue": [1]},
    }
    _shows(tmp_path, HOURLY, wanted)


def test_a_check_that_was_deleted_is_not_overdue(tmp_path: Path) -> None:
    given = of_check("coalmine_check_interval_seconds", "3600x20 stale")
    given += of_check("coalmine_last_run_timestamp_seconds", "0x20 stale")
    _shows(tmp_path, given, {"22m": {"overdue in the table": [], "Overdue": [], "Healthy": []}})


def test_without_a_state_nothing_is_counted_not_even_as_none(tmp_path: Path) -> None:
    _shows(tmp_path, [], {"1m": {name: [] for name in _NUMBERS}})
