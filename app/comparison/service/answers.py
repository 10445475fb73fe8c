"""What judges said of the answers of two runs, side by side; the gate, which has no database, compares none."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.answers.domain.generated import UNJUDGED_SHARE, Rater, RunAnswers, corrected_rate, count_failed
from app.answers.domain.judges import JudgeOutcome
from app.answers.store import confirmed_of_runs, rater_of_run, read_run_answers
from app.base.db.engine import Connection
from app.base.statistics import interval_of_difference
from app.base.values import JUDGED
from app.comparison.domain.outcomes import Side
from app.comparison.domain.sentences import SideNames, unrated_sentence
from app.comparison.service.decisions import caution_of_answers
from app.comparison.views import ComparedAnswers, ComparisonCaution, JudgedSide


def compare_answers(connection: Connection, a: int, b: int) -> tuple[list[ComparedAnswers], list[str]]:
    """Return the measures of judges in two runs, and what to know of them: numbers of two judges differ by these.

    So do those of one judge with two models, or two wordings of its questions. Where the rated answers of a side do not
    stand for the others, a difference has no interval; `answer_cautions` says so.
    """
    found = read_run_answers(connection, [a, b])
    first, second = found.get(a), found.get(b)
    if first is None or second is None:
        return [], []
    confirmed = confirmed_of_runs(connection, [a, b])
    raters = (rater_of_run(connection, a), rater_of_run(connection, b))
    sides = [
        _Side(found=one, confirmed=confirmed[run_id], rater=rater)
        for run_id, one, rater in zip((a, b), (first, second), raters, strict=True)
    ]
    asked = [name for name in JUDGED if name in first["ratings"] and name in second["ratings"]]
    compared = [_compared_answers(name, *sides) for name in asked]
    notes = [note for name in asked if (note := _unlike_raters(name, *sides)) is not None]
    notes += [
        f"the answers of run {run_id} were not judged ({one['problem']}), so answers are not compared"
        for run_id, one in ((a, first), (b, second))
        if "problem" in one
    ]
    return compared, list(dict.fromkeys(notes))


def answer_cautions(compared: Sequence[ComparedAnswers], names: SideNames) -> list[ComparisonCaution]:
    """Return a caution for each side, and the questions alike, of whose answers more than a tenth have no rating."""
    measures: dict[tuple[Side, int, int], list[str]] = {}
    for one in compared:
        for side, judged in ((Side.A, one["a"]), (Side.B, one["b"])):
            if _lacks_ratings(judged):
                known = measures.setdefault((side, judged["unrated"], judged["answers"] + judged["unrated"]), [])
                known.append(one["measure"])
    return [caution_of_answers(unrated_sentence(asked, *which, names)) for which, asked in measures.items()]


def _lacks_ratings(side: JudgedSide) -> bool:
    return side["unrated"] > UNJUDGED_SHARE * (side["answers"] + side["unrated"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The answers of one run, and who rated them."""

    found: RunAnswers
    confirmed: Collection[str]
    rater: Rater | None
    """None = unknown, of an earlier release."""


def _unlike_raters(measure: str, a: _Side, b: _Side) -> str | None:
    """Say why what the judges of two runs say of a measure cannot be compared; None = it can."""
    first, second = a.found["judge"], b.found["judge"]
    otherwise = "or people label answers of both checks"
    if first != second:
        return (
            f"judge '{first}' rated the answers of one run and '{second}' those of the other: their own numbers "
            f"cannot be compared; let one judge rate both, {otherwise}"
        )
    if a.rater is None or b.rater is None:
        return None
    models = (a.rater["model"], b.rater["model"])
    if models[0] != models[1]:
        return (
            f"judge '{first}' rated the answers of one run with model '{models[0]}' and those of the other with "
            f"'{models[1]}': its own numbers cannot be compared; let one model rate both, {otherwise}"
        )
    if a.rater["wordings"].get(measure) != b.rater["wordings"].get(measure):
        return (
            f"judge '{first}' was asked about {measure} in other words in each run: its own numbers cannot be "
            f"compared; run both again, {otherwise}"
        )
    return None


def _judged_side(measure: str, side: _Side) -> JudgedSide:
    found, rate = side.found, side.found.get("corrected", {}).get(measure)
    failed, _ = count_failed(found["ratings"][measure])
    return {
        "model": None if side.rater is None else side.rater["model"],
        "judge": found["measures"].get(measure),
        "judge_rate": rate and rate["judge_rate"],
        "confirmed": measure in side.confirmed,
        "corrected": rate and rate["value"],
        "low": rate and rate["low"],
        "high": rate and rate["high"],
        "labels": 0 if rate is None else rate["labels"],
        "answers": found["ratings"][measure].get(JudgeOutcome.OK, 0),
        "unrated": failed + found["sampled"] - found["answered"],
    }


def _compared_answers(measure: str, first: _Side, second: _Side) -> ComparedAnswers:
    a, b = _judged_side(measure, first), _judged_side(measure, second)
    rates = (corrected_rate(first.found, measure), corrected_rate(second.found, measure))
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    if rates[0] is not None and rates[1] is not None:
        difference, low, high = interval_of_difference(rates[0], rates[1])
        if _lacks_ratings(a) or _lacks_ratings(b):
            low = high = None
    elif a["judge"] is not None and b["judge"] is not None and _unlike_raters(measure, first, second) is None:
        difference = b["judge"] - a["judge"]
    return {"measure": measure, "a": a, "b": b, "difference": difference, "low": low, "high": high}
