"""Reports of judges: how far people confirm each measure, what the judge did today, and who uses it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from app.answers.domain.judge_report import CalibrationView, JudgeDayView, JudgeReport, MeasureTrust
from app.answers.domain.prompts import Question
from app.answers.domain.trust_sentences import next_step, trust_sentences
from app.answers.store import calibrations, ratings
from app.answers.store.calibrations import CalibrationRow
from app.base.db.engine import Connection, Store
from app.catalog.service.references import checks_in_force, require
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.records.documents import rounded, time_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load_report(store: Store, slug: str, *, now: datetime) -> JudgeReport:
    """Return how far the numbers of a judge can be trusted. Raises NotFoundError."""
    with store.read() as connection:
        judge = require(definitions.find_definition(connection, "judge", slug), f"judge '{slug}'")
        return _report(connection, judge, now)


def list_reports(store: Store, *, now: datetime) -> list[JudgeReport]:
    """Return the reports of all judges in force, by name."""
    with store.read() as connection:
        judges = definitions.list_definitions(connection, "judge")
        return [_report(connection, judge, now) for judge in judges]


def suites_of(store: Store, checks: Sequence[str]) -> list[str]:
    """Return the suites of these checks, by name."""
    with store.read() as connection:
        return sorted({check.suite for check in checks_in_force(connection) if check.slug in checks})


def _report(connection: Connection, judge: Definition, now: datetime) -> JudgeReport:
    counting = calibrations.calibrations_in_force(connection, judge)
    measures = [_trust(question, counting.get(question)) for question in judge.body["questions"]]
    return {
        "judge": judge.slug,
        "model": judge.body["model"],
        "calibrated": all(one["calibrated"] for one in measures),
        "measures": measures,
        "today": _today(connection, judge, now),
        "checks": [check.slug for check in checks_in_force(connection) if check.judge == judge.slug],
    }


def _trust(measure: str, row: CalibrationRow | None) -> MeasureTrust:
    body = None if row is None else row.body
    return {
        "measure": str(Question(measure)),
        "calibrated": row is not None and row.calibrated,
        "sentences": trust_sentences(body),
        "next": next_step(body),
        "calibration": None if row is None else _view(row),
    }


def _view(row: CalibrationRow) -> CalibrationView:
    return {
        **row.body,
        "measure": row.measure,
        "task": row.task,
        "suite": row.suite,
        "drawn_at": time_text(row.drawn_at),
        "updated_at": time_text(row.at),
    }


def _today(connection: Connection, judge: Definition, now: datetime) -> JudgeDayView:
    day = ratings.read_day(connection, judge.id, (now - _EPOCH).days)
    return {
        "calls": day.calls,
        "cached": day.cached,
        "tokens": day.tokens,
        "cost": rounded(day.cost),
        "budget": judge.body["budget_per_day"],
        "outcomes": dict(sorted(day.outcomes.items())),
    }
