"""Rows of answers drawn for people to label, with what the judge said of them and of those that were not drawn."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.tables import tasks
from app.answers.domain.views import RatingBody
from app.answers.tables import answer_draws, answer_texts, answers, drawn_verdicts
from app.base.db.engine import blocks, insert_new
from app.catalog.tables import canaries
from app.records.run_tables import runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedRow:
    """An answer with a defined rating of a judge to one question; `at` = when it was given first."""

    id: int
    canary_id: int
    at: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRow:
    """An answer with all that an item needs."""

    id: int
    check_id: int
    canary_id: int
    canary_version_id: int
    ranking_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRow:
    """A draw: by whom the answers were rated and how, and the verdicts on those that were not drawn."""

    task_id: int
    judge_id: int
    question: str
    model: str
    wording: str
    rest: Sequence[float]
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnVerdict:
    """Verdict on a drawn answer, and on it once padded; `padded` None = undefined, or it was not asked."""

    item_id: int
    value: float
    padded: float | None
    padded_outcome: str | None


def rated_answers(
    connection: Connection, judge_id: int, suite_id: int, *, question: str, model: str, wording: str
) -> list[RatedRow]:
    """Read the answers to canaries of a suite of which a judge, with this model and wording, said something."""
    statement = (
        sa.select(answers.c.id, answers.c.canary_id, answers.c.body, runs.c.finished_at, runs.c.created_at)
        .join(runs, runs.c.id == answers.c.first_run)
        .join(canaries, canaries.c.id == answers.c.canary_id)
        .where(answers.c.judge_id == judge_id, answers.c.text_id.is_not(None), canaries.c.suite_id == suite_id)
        .order_by(answers.c.id)
    )
    found = []
    for row in connection.execute(statement):
        rating: RatingBody | None = json.loads(row.body)["ratings"].get(question)
        if rating is None or rating["value"] is None:
            continue
        if (rating.get("model"), rating.get("wording")) == (model, wording):
            at = row.finished_at or row.created_at
            found.append(RatedRow(id=row.id, canary_id=row.canary_id, at=at, value=rating["value"]))
    return found


def read_drawn(connection: Connection, ids: Sequence[int]) -> dict[int, DrawnRow]:
    """Read answers by id."""
    found: dict[int, DrawnRow] = {}
    for block in blocks(ids):
        statement = (
            sa.select(answers, answer_texts.c.text)
            .join(answer_texts, answer_texts.c.id == answers.c.text_id)
            .where(answers.c.id.in_(block))
        )
        for row in connection.execute(statement):
            values = {name: getattr(row, name) for name in DrawnRow.__dataclass_fields__}
            found[row.id] = DrawnRow(**values)
    return found


def save_draw(connection: Connection, draw: DrawRow, verdicts: Mapping[int, float]) -> None:
    """Store a draw, with the verdicts on the drawn answers by item."""
    columns = ("task_id", "judge_id", "question", "model", "wording", "rest", "at")
    rest = json.dumps(list(draw.rest))
    row = (draw.task_id, draw.judge_id, draw.question, draw.model, draw.wording, rest, draw.at)
    insert_new(connection, answer_draws, columns, [row])
    rows = [(item_id, draw.task_id, value) for item_id, value in verdicts.items()]
    insert_new(connection, drawn_verdicts, ("item_id", "task_id", "value"), rows)


def find_draw(connection: Connection, task_id: int) -> DrawRow | None:
    """Return the draw of a task; None = nothing is drawn yet."""
    row = connection.execute(sa.select(answer_draws).where(answer_draws.c.task_id == task_id)).one_or_none()
    return None if row is None else _draw(row)


def draws_of_judge(connection: Connection, judge_id: int) -> list[DrawRow]:
    """Return the draws of a judge whose tasks are not archived, the newest first."""
    statement = (
        sa.select(answer_draws)
        .join(tasks, tasks.c.id == answer_draws.c.task_id)
        .where(answer_draws.c.judge_id == judge_id, tasks.c.archived_at.is_(None))
        .order_by(answer_draws.c.task_id.desc())
    )
    return [_draw(row) for row in connection.execute(statement)]


def list_verdicts(connection: Connection, task_id: int) -> list[DrawnVerdict]:
    """Return the verdicts on the drawn answers of a task, by item."""
    statement = sa.select(drawn_verdicts).where(drawn_verdicts.c.task_id == task_id).order_by(drawn_verdicts.c.item_id)
    return [
        DrawnVerdict(item_id=row.item_id, value=row.value, padded=row.padded, padded_outcome=row.padded_outcome)
        for row in connection.execute(statement)
    ]


def save_padded(connection: Connection, said: Mapping[int, tuple[str, float | None]]) -> None:
    """Store outcome and verdict on padded answers, by item."""
    for item_id, (outcome, value) in sorted(said.items()):
        mine = drawn_verdicts.c.item_id == item_id
        connection.execute(sa.update(drawn_verdicts).where(mine).values(padded=value, padded_outcome=outcome))


def _draw(row: Any) -> DrawRow:
    return DrawRow(
        task_id=row.task_id,
        judge_id=row.judge_id,
        question=row.question,
        model=row.model,
        wording=row.wording,
        rest=json.loads(row.rest),
        at=row.at,
    )
