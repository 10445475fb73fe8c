"""Rows of diagnoses, of judgments proposed in the place of those whose chunks were renamed, and of causes of runs.

`service.diagnoses` asks, concludes and proposes; people accept proposals through `service.reanchoring`.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import Connection

from app.alerts.tables import transitions
from app.base.db.engine import blocks, insert_new, insert_one, row_value, sql_literal
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Value
from app.catalog.tables import canaries, definition_versions
from app.diagnosis.domain.run_causes import RunCause, read_run_cause
from app.diagnosis.tables import diagnoses, reanchors, run_causes
from app.diagnosis.views import RetrievedTexts, StoredDiagnosis, StoredJudgment
from app.hooks.tables import deliveries
from app.records.tables import marks, runs, states

_FEW = 400
"""Canaries whose diagnoses are looked up one by one."""


class DiagnosisRow(Value):
    """One diagnosis of a canary."""

    id: int
    check_id: int
    canary_id: int
    canary_version_id: int
    run_id: int
    ranking_id: int | None
    at: int
    requested_by: str | None
    cause: str
    reason: str
    evidence: StoredDiagnosis


class ReanchorRow(Value):
    """A proposal of judgments in the place of another."""

    id: int
    diagnosis_id: int
    check_id: int
    canary_id: int
    canary_version_id: int
    key: str
    hash: bytes
    judgment: StoredJudgment
    proposals: Sequence[StoredJudgment]
    """One judgment, or two where its passage was cut in two."""
    similarity: float
    state: str
    created_at: int
    decided_at: int | None
    decided_by: str | None
    texts: RetrievedTexts | None
    """None in rows of older releases."""


def save_diagnosis(connection: Connection, **values: Any) -> int:
    """Insert a diagnosis; returns its id."""
    values["evidence"] = json.dumps(values["evidence"])
    return int(connection.execute(sa.insert(diagnoses).values(**values).returning(diagnoses.c.id)).scalar_one())


def last_diagnosis(connection: Connection, check_id: int, canary_id: int) -> DiagnosisRow | None:
    """Read the newest diagnosis of a canary."""
    return newest_diagnoses(connection, check_id, [canary_id]).get(canary_id)


def newest_diagnoses(connection: Connection, check_id: int, canary_ids: Collection[int]) -> dict[int, DiagnosisRow]:
    """Read the newest diagnosis of each of these canaries, by canary id."""
    found: dict[int, DiagnosisRow] = {}
    for block in blocks(sorted(set(canary_ids))):
        mine = sa.and_(diagnoses.c.check_id == check_id, diagnoses.c.canary_id.in_(block))
        newest = sa.select(sa.func.max(diagnoses.c.id)).where(mine).group_by(diagnoses.c.canary_id)
        for row in connection.execute(sa.select(diagnoses).where(diagnoses.c.id.in_(newest))):
            found[row.canary_id] = read_diagnosis(row)
    return found


def ended_before(connection: Connection, check_id: int, run_id: int) -> dict[int, int]:
    """Read the reasons, as bits, of the states that ended where a run changed them, by canary id."""
    mine = sa.and_(states.c.check_id == check_id, states.c.last_run < run_id)
    newest = sa.select(sa.func.max(states.c.last_run)).where(mine).scalar_subquery()
    statement = sa.select(states.c.canary_id, states.c.reasons).where(
        states.c.check_id == check_id, states.c.last_run == newest
    )
    return dict(connection.execute(statement).all())


def retrievers_of_runs(connection: Connection, run_ids: Collection[int]) -> dict[int, int]:
    """Return retriever of each of these runs, by run id: the definition, of any version."""
    found: dict[int, int] = {}
    for block in blocks(sorted(set(run_ids))):
        statement = (
            sa.select(runs.c.id, definition_versions.c.definition_id)
            .join(definition_versions, definition_versions.c.id == runs.c.retriever_version_id)
            .where(runs.c.id.in_(block))
        )
        found.update(connection.execute(statement).all())
    return found


class MarkRow(Value):
    """The last change of the index version up to a run."""

    run_id: int
    """The run that came with it."""
    index_version: str
    index_version_before: str | None
    """None = it was the first version."""
    runs_after: int
    """Number of runs that ended after that run, up to the given one."""


def marks_before(connection: Connection, run_ids: Collection[int]) -> dict[int, MarkRow]:
    """Read the last change of the index version up to each of these runs, by run id; those without one are left out."""
    between = runs.alias("between")
    mine = sa.and_(marks.c.check_id == runs.c.check_id, marks.c.run_id <= runs.c.id)
    newest = marks.c.run_id.desc()
    # Within the count below it would else be of the newest mark of any check: SQLAlchemy correlates one level up alone.
    changed = sa.select(marks.c.run_id).where(mine).order_by(newest).limit(1).correlate(runs).scalar_subquery()
    version = sa.select(marks.c.index_version).where(mine).order_by(newest)
    behind = sa.and_(between.c.check_id == runs.c.check_id, between.c.id > changed, between.c.id <= runs.c.id)
    ended = between.c.status.in_(("finished", "partial"))
    statement = sa.select(
        runs.c.id,
        changed.label("run_id"),
        version.limit(1).scalar_subquery().label("index_version"),
        version.limit(1).offset(1).scalar_subquery().label("index_version_before"),
        sa.select(sa.func.count()).select_from(between).where(behind, ended).scalar_subquery().label("runs_after"),
    ).where(runs.c.id.in_(sorted(set(run_ids))))
    return {row.id: row_value(MarkRow, row) for row in connection.execute(statement) if row.run_id is not None}


_REANCHOR = sa.select(reanchors, canaries.c.key).join(canaries, canaries.c.id == reanchors.c.canary_id)


def propose(connection: Connection, **values: Any) -> int | None:
    """Insert a proposal; None where there is an open one for the same judgment."""
    values["judgment"] = json.dumps(values["judgment"])
    values["proposal"] = json.dumps(values.pop("proposals"))
    values["texts"] = json.dumps(values["texts"]) if values.get("texts") is not None else None
    return insert_one(connection, reanchors, state="proposed", **values)


def find_reanchors(connection: Connection, check_id: int, ids: Collection[int]) -> list[ReanchorRow]:
    """Read these proposals of a check, oldest first."""
    found: list[ReanchorRow] = []
    for block in blocks(sorted(set(ids))):
        statement = _REANCHOR.where(reanchors.c.check_id == check_id, reanchors.c.id.in_(block))
        found += map(_reanchor, connection.execute(statement.order_by(reanchors.c.id)))
    return found


def list_reanchors(
    connection: Connection, check_id: int, *, state: str | None, before: int | None = None, limit: int
) -> list[ReanchorRow]:
    """List the proposals of a check, newest first, those with an id below `before`."""
    statement = _REANCHOR.where(reanchors.c.check_id == check_id).order_by(reanchors.c.id.desc()).limit(limit)
    if state is not None:
        statement = statement.where(reanchors.c.state == state)
    if before is not None:
        statement = statement.where(reanchors.c.id < before)
    return [_reanchor(row) for row in connection.execute(statement)]


def proposals_of(connection: Connection, canary_ids: Collection[int], states_: Sequence[str]) -> list[ReanchorRow]:
    """Read the proposals of these canaries that are in one of these states, of whichever check, oldest first."""
    found: list[ReanchorRow] = []
    for block in blocks(sorted(set(canary_ids))):
        mine = reanchors.c.canary_id.in_(block)
        statement = _REANCHOR.where(mine, reanchors.c.state.in_(list(states_))).order_by(reanchors.c.id)
        found += map(_reanchor, connection.execute(statement))
    return found


def decide_reanchors(connection: Connection, ids: Collection[int], *, state: str, at: int, by: str | None) -> int:
    """Set the state of those of these proposals that are open; returns how many."""
    waiting = sa.and_(reanchors.c.id.in_(sorted(set(ids))), reanchors.c.state == sql_literal("proposed"))
    values = {"state": state, "decided_at": at, "decided_by": by}
    return connection.execute(sa.update(reanchors).where(waiting).values(**values)).rowcount


def old_diagnoses(connection: Connection, limit: int, *, horizon: int) -> list[int]:
    """Find diagnoses older than `horizon`, except those with open proposals."""
    waiting = sa.exists().where(
        reanchors.c.diagnosis_id == diagnoses.c.id, reanchors.c.state == sql_literal("proposed")
    )
    statement = sa.select(diagnoses.c.id).where(diagnoses.c.at < horizon, ~waiting).limit(limit)
    return list(connection.execute(statement).scalars())


def drop_diagnoses(connection: Connection, old: Sequence[int]) -> int:
    """Delete diagnoses with their proposals."""
    connection.execute(sa.delete(reanchors).where(reanchors.c.diagnosis_id.in_(old)))
    return connection.execute(sa.delete(diagnoses).where(diagnoses.c.id.in_(old))).rowcount


def release_deliveries(connection: Connection, run_id: int, now: int) -> int:
    """Make the pending deliveries of a run due that were never attempted; returns how many."""
    of_run = sa.select(transitions.c.id).where(transitions.c.run_id == run_id)
    waiting = sa.and_(
        deliveries.c.transition_id.in_(of_run),
        deliveries.c.state == sql_literal("pending"),
        deliveries.c.attempts == 0,
        deliveries.c.next_attempt_at > now,
    )
    release = sa.update(deliveries).where(waiting).values(next_attempt_at=now).returning(deliveries.c.hook_id)
    hook_ids = connection.execute(release).scalars().all()
    defer(connection, [NewJob(JobKind.DELIVERY, hook_id) for hook_id in sorted(set(hook_ids))])
    return len(hook_ids)


def opened_at_run(connection: Connection, run_id: int) -> bool:
    """Whether a run opened or escalated an alert."""
    mine = sa.and_(transitions.c.run_id == run_id, transitions.c.type.in_(("opened", "escalated")))
    return connection.execute(sa.select(transitions.c.id).where(mine).limit(1)).scalar_one_or_none() is not None


def listed_at_run(connection: Connection, run_id: int) -> list[str]:
    """Read the keys of the canaries that the transitions of a run list, in that order."""
    mine = sa.and_(transitions.c.run_id == run_id, transitions.c.type.in_(("opened", "escalated", "updated")))
    bodies = connection.execute(sa.select(transitions.c.evidence).where(mine).order_by(transitions.c.id)).scalars()
    return list(dict.fromkeys(one["key"] for body in bodies for one in json.loads(body).get("canaries", ())))


def newest_run(connection: Connection, check_id: int) -> int | None:
    """Newest run of a check with results."""
    ended = sa.and_(runs.c.check_id == check_id, runs.c.status.in_(("finished", "partial")))
    return connection.execute(sa.select(sa.func.max(runs.c.id)).where(ended)).scalar_one_or_none()


def read_diagnosis(row: Any) -> DiagnosisRow:
    """Read a row of the table."""
    return row_value(DiagnosisRow, row, evidence=json.loads(row.evidence))


def _reanchor(row: Any) -> ReanchorRow:
    texts = None if row.texts is None else json.loads(row.texts)
    judgment, proposals = json.loads(row.judgment), json.loads(row.proposal)
    return row_value(ReanchorRow, row, judgment=judgment, proposals=proposals, texts=texts)


def save_run_cause(connection: Connection, run_id: int, body: Mapping[str, Any]) -> None:
    """Store the cause of a run that is being ended."""
    insert_new(connection, run_causes, ("run_id", "body"), [(run_id, json.dumps(body))])


def run_causes_of(connection: Connection, run_ids: Iterable[int]) -> dict[int, Mapping[str, Any]]:
    """Read the causes of a few hundred runs at most, by run id; runs without one are left out."""
    rows = connection.execute(_RUN_CAUSES, {"runs": sorted(set(run_ids))})
    return {row.run_id: json.loads(row.body) for row in rows}


_RUN_CAUSES = sa.select(run_causes).where(run_causes.c.run_id.in_(sa.bindparam("runs", expanding=True)))


def causes_of(connection: Connection, run_ids: Iterable[int]) -> dict[int, RunCause]:
    """Read the causes of runs that explain something now; those that do no harm any more are left out."""
    causes = {run_id: read_run_cause(body) for run_id, body in run_causes_of(connection, run_ids).items()}
    return {run_id: cause for run_id, cause in causes.items() if cause.is_reportable(run_id)}


class Answered(Protocol):
    """A canary at a run, with what it answered."""

    @property
    def ranking_id(self) -> int | None: ...  # noqa: D102 - said above


def diagnoses_at(
    connection: Connection, fallen: Mapping[int, Mapping[int, Answered]]
) -> dict[int, dict[int, DiagnosisRow]]:
    """Return the newest diagnosis of these canaries up to each run, by run id and canary id.

    A later one counts too where it is of the answer that the canary had at the run.
    """
    by_run: dict[int, dict[int, DiagnosisRow]] = {run_id: {} for run_id in fallen}
    canary_ids = sorted({canary_id for canaries in fallen.values() for canary_id in canaries})
    up_to = sa.case((diagnoses.c.run_id <= runs.c.id, diagnoses.c.id))
    # Few canaries are ever diagnosed: of many that are asked about, all that the checks have are read.
    for block in blocks(canary_ids) if len(canary_ids) <= _FEW else (None,):
        newest = (
            sa.select(
                runs.c.id.label("at_run"), sa.func.max(diagnoses.c.id).label("id"), sa.func.max(up_to).label("up_to")
            )
            .select_from(runs)
            .join(diagnoses, diagnoses.c.check_id == runs.c.check_id)
            .where(runs.c.id.in_(sorted(fallen)), sa.true() if block is None else diagnoses.c.canary_id.in_(block))
            .group_by(runs.c.id, diagnoses.c.canary_id)
            .subquery()
        )
        either = sa.or_(diagnoses.c.id == newest.c.id, diagnoses.c.id == newest.c.up_to)
        statement = sa.select(newest.c.at_run, diagnoses).join(newest, either).order_by(diagnoses.c.id)
        for row in connection.execute(statement):
            mine = fallen[row.at_run].get(row.canary_id)
            is_later = row.run_id > row.at_run
            if mine is not None and (not is_later or row.ranking_id == mine.ranking_id):
                by_run[row.at_run][row.canary_id] = read_diagnosis(row)
    return by_run


def newest_diagnosis(connection: Connection) -> int:
    """Return the id of the newest diagnosis of all checks; 0 = there is none."""
    return connection.execute(sa.select(sa.func.max(diagnoses.c.id))).scalar_one() or 0
