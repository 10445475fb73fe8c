"""Rows of calibrations: how far the labels of a task confirm a judge, and which of them count now."""

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.tables import tasks
from app.answers.domain.judge_report import CalibrationBody
from app.answers.domain.prompts import VERSIONS, Question
from app.answers.tables import answer_draws, calibrations
from app.base.db.engine import upsert
from app.catalog.store.definitions import Definition, definition_by_id, find_definition, list_definitions
from app.catalog.tables import definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRow:
    """What the labels of a task say of a judge."""

    task: str
    suite: str
    measure: str
    model: str
    wording: str
    labels: int
    calibrated: bool
    body: CalibrationBody
    drawn_at: int
    at: int


def save_calibration(
    connection: Connection,
    task_id: int,
    *,
    judge_id: int,
    measure: str,
    model: str,
    wording: str,
    body: CalibrationBody,
    at: int,
) -> None:
    """Store what the labels of a task say in the place of what was computed before."""
    upsert(
        connection,
        calibrations,
        ["task_id"],
        task_id=task_id,
        judge_id=judge_id,
        measure=measure,
        model=model,
        wording=wording,
        labels=body["labels"],
        calibrated=int(body["calibrated"]),
        body=json.dumps(body),
        at=at,
    )


def calibrations_in_force(connection: Connection, judge: Definition) -> dict[str, CalibrationRow]:
    """Return by measure what counts of a judge: labels of its present model and wording.

    Of several tasks it is the one with the most labels, of those with as many the newest; archived ones do not count.
    """
    statement = (
        sa.select(
            calibrations,
            tasks.c.slug.label("task"),
            definitions.c.slug.label("suite"),
            answer_draws.c.at.label("drawn_at"),
        )
        .join(tasks, tasks.c.id == calibrations.c.task_id)
        .join(definitions, definitions.c.id == tasks.c.suite_id)
        .join(answer_draws, answer_draws.c.task_id == calibrations.c.task_id)
        .where(calibrations.c.judge_id == judge.id, tasks.c.archived_at.is_(None))
        .order_by(calibrations.c.labels.desc(), calibrations.c.task_id.desc())
    )
    found: dict[str, CalibrationRow] = {}
    for row in connection.execute(statement):
        if (row.model, row.wording) == (judge.body["model"], VERSIONS[Question(row.measure)]):
            found.setdefault(row.measure, _calibration(row))
    return found


def confirmed_measures(connection: Connection, judge: str | None) -> frozenset[str]:
    """Return the measures of a judge that people confirmed; none without one."""
    row = None if judge is None else find_definition(connection, "judge", judge)
    if row is None:
        return frozenset()
    counting = calibrations_in_force(connection, row)
    return frozenset(measure for measure, one in counting.items() if one.calibrated)


def calibrated_judges(connection: Connection) -> dict[tuple[str, str], bool]:
    """Return for each judge in force and each measure it is asked for whether people confirmed it."""
    found: dict[tuple[str, str], bool] = {}
    for judge in list_definitions(connection, "judge"):
        counting = calibrations_in_force(connection, judge)
        for measure in judge.body["questions"]:
            found[judge.slug, measure] = measure in counting and counting[measure].calibrated
    return found


def confirmed_for_check(connection: Connection, check_id: int) -> frozenset[str]:
    """Return the measures that people confirmed of the judge of a check."""
    return confirmed_measures(connection, definition_by_id(connection, check_id).body.get("judge"))


def _calibration(row: Any) -> CalibrationRow:
    return CalibrationRow(
        task=row.task,
        suite=row.suite,
        measure=row.measure,
        model=row.model,
        wording=row.wording,
        labels=row.labels,
        calibrated=bool(row.calibrated),
        body=json.loads(row.body),
        drawn_at=row.drawn_at,
        at=row.at,
    )
