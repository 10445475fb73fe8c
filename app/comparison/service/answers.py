"""What judges said of the answers of two runs, side by side; the gate, which has no database, compares none."""

from collections.abc import Collection

from app.answers.domain.generated import RunAnswers, corrected_rate
from app.answers.store import confirmed_measures, read_run_answers
from app.base.db.engine import Connection
from app.base.statistics import interval_of_difference
from app.base.values import JUDGED
from app.comparison.views import ComparedAnswers, JudgedSide


def compare_answers(connection: Connection, a: int, b: int) -> tuple[list[ComparedAnswers], list[str]]:
    """Return the measures of judges in two runs, and what to know of them: numbers of two judges differ by these."""
    found = read_run_answers(connection, [a, b])
    first, second = found.get(a), found.get(b)
    if first is None or second is None:
        return [], []
    confirmed = (confirmed_measures(connection, first["judge"]), confirmed_measures(connection, second["judge"]))
    compared = [
        _compared_answers(name, first, second, confirmed)
        for name in JUDGED
        if name in first["ratings"] and name in second["ratings"]
    ]
    if not compared or first["judge"] == second["judge"]:
        return compared, []
    note = (
        f"judge '{first['judge']}' rated the answers of one run and '{second['judge']}' those of the other: their own "
        "numbers cannot be compared; let one judge rate both, or people label answers of both checks"
    )
    return compared, [note]


def _judged_side(measure: str, found: RunAnswers, confirmed: Collection[str]) -> JudgedSide:
    rate = found.get("corrected", {}).get(measure)
    return {
        "judge": found["measures"].get(measure),
        "judge_rate": rate and rate["judge_rate"],
        "confirmed": measure in confirmed,
        "corrected": rate and rate["value"],
        "low": rate and rate["low"],
        "high": rate and rate["high"],
        "labels": 0 if rate is None else rate["labels"],
    }


def _compared_answers(
    measure: str, first: RunAnswers, second: RunAnswers, confirmed: tuple[Collection[str], Collection[str]]
) -> ComparedAnswers:
    a, b = _judged_side(measure, first, confirmed[0]), _judged_side(measure, second, confirmed[1])
    rates = (corrected_rate(first, measure), corrected_rate(second, measure))
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    if rates[0] is not None and rates[1] is not None:
        difference, low, high = interval_of_difference(rates[0], rates[1])
    elif a["judge"] is not None and b["judge"] is not None and first["judge"] == second["judge"]:
        difference = b["judge"] - a["judge"]
    return {"measure": measure, "a": a, "b": b, "difference": difference, "low": low, "high": high}
