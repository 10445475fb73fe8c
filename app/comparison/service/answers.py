"""What judges said of the answers of two runs, side by side; the gate, which has no database, compares none.

Which answers are of a run alone, `answers_of`, is decided here for its page and its alerts too. Both sides are compared
over the canaries whose answers a judge rated in both runs, as measures of retrieval are: who leaves hard questions
unanswered would else be compared by easier ones.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from app.answers.domain.generated import AnswerCounts, Rater, RunAnswers, corrected_rate, count_answers, is_sampled
from app.answers.domain.judges import Question, RatingBody
from app.answers.domain.trust import correct_rate, rate_of_yes
from app.answers.store.answer_rows import (
    AnswerRow,
    answers_at,
    confirmed_of_runs,
    labels_of_checks,
    list_calibrations,
    rater_of_run,
    read_run_answers,
)
from app.base.db.engine import Connection, cached_of_run
from app.base.statistics import clopper_pearson, interval_of_difference
from app.base.texts import stale_labels
from app.base.values import JUDGED, Canary, CorrectedRate, Value
from app.catalog import store as catalog
from app.catalog.service.references import find_run
from app.catalog.service.versions import load_check, load_inputs, load_suite
from app.comparison.domain.estimates import Floats
from app.comparison.domain.outcomes import CautionKind, Side
from app.comparison.domain.sentences import SideNames, stale_labels_sentence, unrated_sentence
from app.comparison.service.decisions import plain_caution
from app.comparison.views import ComparedAnswers, ComparisonCaution, JudgedSide
from app.records.store import run_rows
from app.records.store.open_runs import Failure
from app.records.store.run_rows import RunRow


def compare_answers(connection: Connection, a: int, b: int) -> tuple[list[ComparedAnswers], list[str]]:
    """Return the measures of judges in two runs, and what to know of them: numbers of two judges differ by these.

    So do those of one judge with two models, or two wordings of its questions. Where the rated answers of a side do not
    stand for the others, a difference has no interval; `answer_cautions` says so.
    """
    sides = [one for run_id in (a, b) if (one := read_answers(connection, run_id)) is not None]
    if len(sides) < 2:  # noqa: PLR2004 - one of each run
        return [], []
    first, second = sides
    asked = [name for name in JUDGED if all(name in one.found["ratings"] for one in sides)]
    compared = [_compared_answers(connection, name, first, second) for name in asked]
    notes = [note for name in asked if (note := _unlike_raters(name, first, second)) is not None]
    notes += [
        f"the answers of run {one.run.id} were not judged ({one.found['problem']}), so answers are not compared"
        for one in sides
        if "problem" in one.found
    ]
    return compared, list(dict.fromkeys(notes))


def answer_cautions(compared: Sequence[ComparedAnswers], names: SideNames) -> list[ComparisonCaution]:
    """Return a caution for each side, and the questions alike, of whose answers more than a tenth have no rating.

    And one for the labels of something else that correct both sides.
    """
    measures: dict[tuple[Side, int, int], list[str]] = {}
    for one in compared:
        for side, judged in ((Side.A, one["a"]), (Side.B, one["b"])):
            if AnswerCounts(asked=judged["asked"], silent=judged["unrated"]).lacks_ratings:
                measures.setdefault((side, judged["unrated"], judged["asked"]), []).append(one["measure"])
    unrated = [
        plain_caution(CautionKind.ANSWERS, unrated_sentence(asked, *which, names)) for which, asked in measures.items()
    ]
    return [*unrated, *_label_cautions(compared, names)]


def _label_cautions(compared: Sequence[ComparedAnswers], names: SideNames) -> Iterator[ComparisonCaution]:
    """Yield a caution for what labels are of that correct a difference, and are not of what is compared."""
    measures: dict[tuple[str, tuple[Side, ...]], list[str]] = {}
    for one in compared:
        if one["a"]["corrected"] is None or one["b"]["corrected"] is None:
            continue
        said = {Side.A: one["a"]["labelled"], Side.B: one["b"]["labelled"]}
        for labelled in dict.fromkeys(filter(None, said.values())):
            sides = tuple(side for side, words in said.items() if words == labelled)
            measures.setdefault((labelled, sides), []).append(one["measure"])
    for (labelled, sides), asked in measures.items():
        yield plain_caution(CautionKind.LABELS, stale_labels_sentence(asked, sides, labelled, names))


class AnswersOfRun(Value):
    """The answers of one run, canary by canary, and who rated them."""

    run: RunRow
    found: RunAnswers
    confirmed: Collection[str]
    rater: Rater | None
    """None = unknown, of an earlier release."""
    watched: Mapping[str, Canary]
    """Canaries whose answers are watched, by key, whether or not one came."""
    ratings: Mapping[str, Mapping[str, RatingBody]]
    """Of the answers that came in this run, by key. What an earlier run was answered is no answer of this one."""


def read_answers(connection: Connection, run_id: int | str) -> AnswersOfRun | None:
    """Read the answers of a run; None where it watches none, or they are not judged yet. Raises NotFoundError."""
    run = find_run(connection, str(run_id))
    found = read_run_answers(connection, [run.id]).get(run.id)
    if found is None or run.versions is None:
        return None
    inputs = load_inputs(connection, run.versions)
    check, _ = load_check(connection, run.versions.check)

    def read() -> tuple[Mapping[str, Mapping[str, RatingBody]], int]:
        keys = {one: canary.key for one, canary in zip(inputs.canary_ids, inputs.canaries, strict=True)}
        ratings = {keys[one]: row.body["ratings"] for one, row in answers_of(connection, run).items()}
        return ratings, _RATINGS_BYTES * len(ratings)

    return AnswersOfRun(
        run=run,
        found=found,
        confirmed=confirmed_of_runs(connection, [run.id])[run.id],
        rater=rater_of_run(connection, run.id),
        watched={one.key: one for one in inputs.canaries if is_sampled(one.key, check.sample)},
        ratings=cached_of_run(connection, ("ratings", run.id), read),
    )


_RATINGS_BYTES: Final = 600


def watched_canaries(connection: Connection, run: RunRow) -> dict[int, Failure | None]:
    """Return by position the canaries whose answers a run watches, each with how its probe failed, or None.

    Where a probe fails no answer comes, whoever gives it: the retriever, or an endpoint that is asked with its hits.
    Raises UnusableSuiteError.
    """
    if run.versions is None:
        return {}
    check, _ = load_check(connection, run.versions.check)
    _, failures = run_rows.probes_of(connection, run.id)
    canaries = load_suite(connection, run.versions.suite).canaries
    return {place: failures.get(place) for place, one in enumerate(canaries) if is_sampled(one.key, check.sample)}


def answers_of(
    connection: Connection, run: RunRow, *, canary_ids: Collection[int] | None = None
) -> dict[int, AnswerRow]:
    """Return the answers of a run alone, or of a few of its canaries, by canary id; of one that was not judged none.

    What was answered to a canary in an earlier run holds until it is answered anew: it is no answer of a run in which
    the canary is not watched, or in which its probe failed. Raises UnusableSuiteError.
    """
    found = read_run_answers(connection, [run.id]).get(run.id)
    if found is None or run.versions is None or "problem" in found:
        return {}
    members = load_suite(connection, run.versions.suite).members
    own = {members[at].canary_id for at, failure in watched_canaries(connection, run).items() if failure is None}
    held = answers_at(connection, run.check_id, run.id, canary_ids=canary_ids)
    return {one: row for one, row in held.items() if one in own}


class RatedSide(Value):
    """What a judge says to a question about the answers of one run, of the canaries that are rated in both."""

    scores: Floats
    counts: AnswerCounts
    """Of the canaries that both runs watch, and that ask the same."""
    corrected: CorrectedRate | None
    """What people would say of them, where labels of the check correct its run."""
    labels: int
    labelled: str
    """Of what else the labels are than of the judge and these answers, in words; empty where they are of these."""
    models: frozenset[str]
    """Of the judge as it rated them; earlier releases kept none."""


def pair_answers(
    connection: Connection, question: str, a: AnswersOfRun, b: AnswersOfRun
) -> tuple[RatedSide, RatedSide]:
    """Return what judges say to a question in two runs, over the canaries of which both have a number."""
    alike = [key for key, canary in a.watched.items() if key in b.watched and _asks_the_same(canary, b.watched[key])]
    if question == Question.CORRECTNESS:
        alike = [key for key in alike if a.watched[key].expected_answer is not None]
    said = [{key: rating for key in alike if (rating := one.ratings.get(key, {}).get(question))} for one in (a, b)]
    keys = [key for key in alike if all(key in of and of[key]["value"] is not None for of in said)]
    first, second = (
        _rated_side(connection, question, one, of, keys, count_answers(alike, one.ratings, question))
        for one, of in zip((a, b), said, strict=True)
    )
    return first, second


def _asks_the_same(one: Canary, other: Canary) -> bool:
    return (one.query, one.expected_answer) == (other.query, other.expected_answer)


def _rated_side(
    connection: Connection,
    question: str,
    one: AnswersOfRun,
    said: Mapping[str, RatingBody],
    keys: Sequence[str],
    counts: AnswerCounts,
) -> RatedSide:
    scores = np.array([said[key]["value"] for key in keys], dtype=np.float64)
    rate = one.found.get("corrected", {}).get(question)
    corrected: CorrectedRate | None = None
    if rate is not None and len(keys):
        whole = len(keys) == rate["answers"]
        corrected = (
            corrected_rate(one.found, question) if whole else _correct(connection, question, rate["task"], one, scores)
        )
    return RatedSide(
        scores=scores,
        counts=counts,
        corrected=corrected,
        labels=0 if rate is None or corrected is None else rate["labels"],
        labelled="" if rate is None or corrected is None else " and ".join(stale_labels(rate)),
        models=frozenset(model for key in keys if (model := said[key].get("model")) is not None),
    )


def _correct(
    connection: Connection, question: str, task: str, one: AnswersOfRun, scores: Floats
) -> CorrectedRate | None:
    """Correct the rate of some answers of a run by the labels of its check; None where these do not count any more.

    By those of the task that corrected the run, which are of the judge as it was: later ones may be of another.
    """
    judge = catalog.find_definition(connection, "judge", one.found["judge"] or "")
    if judge is None or one.rater is None:
        return None
    known = list_calibrations(connection, judge, one.rater)
    labels = labels_of_checks([found for found in known if found.task == task] or known)
    _, rate = labels.get((question, one.run.check), ("", None))
    if rate is None or not rate["corrects"]:
        return None
    sides = (clopper_pearson(of["successes"], of["count"]) for of in (rate["sensitivity"], rate["specificity"]))
    found = correct_rate(int((scores >= 1).sum()), len(scores), *sides)
    return found.value, found.low, found.high


def _compared_answers(
    connection: Connection, measure: str, first: AnswersOfRun, second: AnswersOfRun
) -> ComparedAnswers:
    rated = pair_answers(connection, measure, first, second)
    a, b = (_judged_side(measure, one, of) for one, of in zip((first, second), rated, strict=True))
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    if rated[0].corrected is not None and rated[1].corrected is not None:
        difference, low, high = interval_of_difference(rated[0].corrected, rated[1].corrected)
        if any(one.counts.lacks_ratings for one in rated):
            low = high = None
    elif a["judge"] is not None and b["judge"] is not None and _unlike_raters(measure, first, second) is None:
        difference = b["judge"] - a["judge"]
    return {"measure": measure, "a": a, "b": b, "difference": difference, "low": low, "high": high}


def _judged_side(measure: str, run: AnswersOfRun, rated: RatedSide) -> JudgedSide:
    value, low, high = rated.corrected or (None, None, None)
    return {
        "model": None if run.rater is None else run.rater["model"],
        "judge": float(rated.scores.mean()) if len(rated.scores) else None,
        "judge_rate": None if value is None else rate_of_yes(rated.scores),
        "confirmed": measure in run.confirmed,
        "corrected": value,
        "low": low,
        "high": high,
        "labels": rated.labels,
        "labelled": rated.labelled or None,
        "answers": len(rated.scores),
        "asked": rated.counts.asked,
        "unrated": rated.counts.without_rating,
    }


def _unlike_raters(measure: str, a: AnswersOfRun, b: AnswersOfRun) -> str | None:
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
    endpoints = {rater["endpoint"] for rater in (a.rater, b.rater) if "endpoint" in rater}
    if len(endpoints) > 1:
        return (
            f"judge '{first}' was another endpoint, or asked as another account, when it rated the answers of one run "
            f"than of the other: its own numbers cannot be compared; let one endpoint rate both, {otherwise}"
        )
    if a.rater["wordings"].get(measure) != b.rater["wordings"].get(measure):
        return (
            f"judge '{first}' was asked about {measure} in other words in each run: its own numbers cannot be "
            f"compared; run both again, {otherwise}"
        )
    return None
