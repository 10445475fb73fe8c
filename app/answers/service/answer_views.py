"""Views of the generated answers of a run. Nothing here writes."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.answers.domain.prompts import Question
from app.answers.domain.views import AnswerView, FeedbackView, RunAnswers, RunAnswersPage
from app.answers.service.judges import contexts_of
from app.answers.store import answers as rows
from app.answers.store import feedback
from app.answers.store.answers import AnswerRow
from app.answers.store.calibrations import confirmed_for_check, confirmed_measures
from app.base.db.engine import Store
from app.base.values import Canary
from app.catalog.service.lookup import find_check, find_run
from app.catalog.service.run_inputs import load_inputs
from app.records.store import results

_QUESTIONS: Final = tuple(str(question) for question in Question)


def answers_of_run(store: Store, run_id: str, *, after: int = 0, limit: int = 50) -> RunAnswersPage:
    """Return the answers of a run, the worst by its judge first. Raises NotFoundError for a run that is not there."""
    with store.read() as connection:
        run = find_run(connection, run_id)
        known = rows.read_run_answers(connection, [run.id])
        summary = known.get(run.id)
        if summary is None or run.versions is None:
            waits = run.id in known
            return {
                "status": "pending" if waits else "off",
                "confirmed": [],
                "summary": None,
                "items": [],
                "next": None,
            }
        held = rows.answers_at(connection, run.check_id, run.id)
        inputs = load_inputs(connection, run.versions)
        confirmed = sorted(confirmed_measures(connection, summary["judge"]))
        canaries = dict(zip(inputs.canary_ids, inputs.canaries, strict=True))
        found = [(canaries[canary_id], row) for canary_id, row in held.items() if canary_id in canaries]
        found.sort(key=lambda one: (_worst(one[1]), one[0].key))
        shown = found[after : after + limit]
        versions = {(row.canary_id, row.text) for _, row in shown if row.text is not None}
        said = feedback.count_feedback(connection, run.check_id, versions)
        rankings = results.read_rankings(connection, sorted({row.ranking_id for _, row in shown}))
    following = str(after + limit) if len(found) > after + limit else None
    return {
        "status": "rated",
        "confirmed": confirmed,
        "summary": summary,
        "items": [
            _view(
                canary,
                row,
                contexts_of(rankings[row.ranking_id], inputs.yardstick.k),
                None if row.text is None else said.get((row.canary_id, row.text)),
            )
            for canary, row in shown
        ],
        "next": following,
    }


def summary_of_run(store: Store, run_id: str) -> RunAnswers | None:
    """Return what the answers of a run came to; None = it watches none, or they are not judged yet."""
    with store.read() as connection:
        run = find_run(connection, run_id)
        return rows.read_run_answers(connection, [run.id]).get(run.id)


def confirmed_of_check(store: Store, slug: str) -> frozenset[str]:
    """Return the measures that people confirmed of the judge of a check. Raises NotFoundError."""
    with store.read() as connection:
        return confirmed_for_check(connection, find_check(connection, slug).id)


def _view(
    canary: Canary, row: AnswerRow, contexts: Sequence[str], said: Mapping[tuple[str, bool], int] | None
) -> AnswerView:
    return {
        **row.body,
        "key": canary.key,
        "query": canary.query,
        "answer": row.text,
        "expected_answer": canary.expected_answer,
        "since_run": str(row.first_run),
        "feedback": None if said is None else _view_feedback(said),
        "contexts": list(contexts),
    }


def _view_feedback(said: Mapping[tuple[str, bool], int]) -> FeedbackView:
    return {
        "thumbs_up": said.get(("thumbs", True), 0),
        "thumbs_down": said.get(("thumbs", False), 0),
        "task_done": said.get(("task_done", True), 0),
        "task_not_done": said.get(("task_done", False), 0),
    }


def _worst(row: AnswerRow) -> float:
    """Return the lowest that a judge said of an answer; one without any rating comes after those with one."""
    ratings = row.body["ratings"]
    values = [ratings[name]["value"] for name in _QUESTIONS if name in ratings]
    return min((value for value in values if value is not None), default=2.0)
