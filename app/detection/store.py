"""Rows of detectors: baselines, one detector a check, one detection a run, what people chose, and refused habits.

Below: rankings and first scores of past runs, for drift. What canaries did in past runs, from which baselines are
learned, is read by `records.store.state_rows`.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from app.alerts.tables import alerts
from app.base.db.engine import blocks, insert_new, row_value, sql_literal, upsert
from app.base.values import Value
from app.detection.domain.views import StoredReading
from app.detection.tables import baseline_choices, baselines, detections, detectors, habit_refusals
from app.records.store.encodings import pack_words, unpack_words
from app.records.store.ranking_rows import RankingBody, load_bodies
from app.records.store.run_rows import is_known
from app.records.tables import chunks, layouts, marks, runs, states
from app.scoring.measures import MEASURES_VERSION
from app.scoring.run_inputs import RunVersions


class BaselineRow(Value):
    """What was learned of a check's runs `first_run` to `last_run`, of `runs` of them; the numbers are read apart."""

    id: int
    check_id: int
    first_run: int
    last_run: int
    runs: int
    deterministic: bool
    learned_at: int


class ChoiceRow(Value):
    """What somebody chose to compare a check with; it holds for the runs after `after_run`."""

    id: int
    check_id: int
    action: str
    run_id: int | None
    after_run: int
    at: int
    by: str
    note: str | None


class DetectorRow(Value):
    """The detector of a check after the run `run_id`."""

    check_id: int
    run_id: int
    baseline_id: int | None
    body: bytes
    baseline_latency: float | None
    """That of the baseline, as a `DetectionRow` has it."""


class DetectionRow(Value):
    """What the detector made of one run."""

    run_id: int
    check_id: int
    baseline_id: int | None
    evidence: float | None
    lost: int
    worse: int
    open: bool
    since_run: int | None
    learns: bool
    body: StoredReading
    """Empty where there is nothing else to say."""
    baseline_latency: float | None = None
    """99 % quantile of the median latencies of the baseline's runs, in seconds; None = not known. Stored with that."""


def find_detector(connection: Connection, check_id: int) -> DetectorRow | None:
    """Read the detector of a check; None = it has taken in no run yet."""
    row = connection.execute(_DETECTOR, {"check": check_id}).one_or_none()
    return row_value(DetectorRow, row) if row else None


_BASELINE_LATENCY = baselines.c.median_latency.label("baseline_latency")
_DETECTOR = (
    sa.select(detectors, _BASELINE_LATENCY)
    .outerjoin(baselines, baselines.c.id == detectors.c.baseline_id)
    .where(detectors.c.check_id == sa.bindparam("check"))
)


def is_at(connection: Connection, check_id: int, detector: DetectorRow | None, choice: ChoiceRow | None) -> bool:
    """Whether a check's detector, and what it is compared with, still are as they were read."""
    run_id, baseline_id, choice_id = connection.execute(_AT, {"check": check_id}).one()
    there = (None, None) if detector is None else (detector.run_id, detector.baseline_id)
    return (run_id, baseline_id) == there and choice_id == (None if choice is None else choice.id)


_OF_CHECK = sa.select(detectors.c.run_id, detectors.c.baseline_id).where(detectors.c.check_id == sa.bindparam("check"))
_AT = sa.select(
    _OF_CHECK.with_only_columns(detectors.c.run_id).scalar_subquery(),
    _OF_CHECK.with_only_columns(detectors.c.baseline_id).scalar_subquery(),
    sa.select(sa.func.max(baseline_choices.c.id))
    .where(baseline_choices.c.check_id == sa.bindparam("check"))
    .scalar_subquery(),
)


def save_detector(connection: Connection, check_id: int, *, run_id: int, baseline_id: int | None, body: bytes) -> None:
    """Keep the detector of a check as it is after a run."""
    upsert(connection, detectors, ["check_id"], check_id=check_id, run_id=run_id, baseline_id=baseline_id, body=body)


def forget_detector(connection: Connection, check_id: int) -> None:
    """Let the detector of a check begin anew with the next run."""
    connection.execute(sa.delete(detectors).where(detectors.c.check_id == check_id))


def find_baseline(connection: Connection, baseline_id: int) -> BaselineRow | None:
    """Read of what a baseline was learned."""
    columns = [baselines.c[name] for name in BaselineRow.__struct_fields__]
    row = connection.execute(sa.select(*columns).where(baselines.c.id == baseline_id)).one_or_none()
    return row_value(BaselineRow, row) if row else None


def bodies_of_baselines(connection: Connection, baseline_ids: Collection[int]) -> dict[int, bytes]:
    """Read what was learned by these few baselines, by id; those that are forgotten are left out."""
    mine = baselines.c.id.in_(sorted(baseline_ids))
    return dict(connection.execute(sa.select(baselines.c.id, baselines.c.body).where(mine)).all())


def body_of_baseline(connection: Connection, baseline_id: int, *, failures: bool) -> tuple[bytes, bytes | None]:
    """Read what was learned by a baseline known to exist, and with `failures` who failed when."""
    columns = (baselines.c.body, baselines.c.failures) if failures else (baselines.c.body, sa.null())
    body, failed = connection.execute(sa.select(*columns).where(baselines.c.id == baseline_id)).one()
    return body, failed


def means_of(connection: Connection, baseline_id: int) -> bytes:
    """Read the mean measures of a baseline known to exist, packed."""
    statement = sa.select(baselines.c.means).where(baselines.c.id == baseline_id)
    return bytes(connection.execute(statement).scalar_one())


def save_baseline(connection: Connection, **values: Any) -> int:
    """Keep what was learned; gives its id."""
    result = connection.execute(sa.insert(baselines).values(**values).returning(baselines.c.id))
    return int(result.scalar_one())


def newest_choice(connection: Connection, check_id: int) -> ChoiceRow | None:
    """Read the choice in force; None = nobody chose, which is a moving window."""
    row = connection.execute(_NEWEST_CHOICE, {"check": check_id}).one_or_none()
    return row_value(ChoiceRow, row) if row else None


def list_choices(connection: Connection, check_id: int) -> list[ChoiceRow]:
    """Read what people chose, newest first."""
    return [row_value(ChoiceRow, row) for row in connection.execute(_CHOICES, {"check": check_id})]


_CHOICES = (
    sa.select(*(baseline_choices.c[name] for name in ChoiceRow.__struct_fields__))
    .where(baseline_choices.c.check_id == sa.bindparam("check"))
    .order_by(baseline_choices.c.id.desc())
)
_NEWEST_CHOICE = _CHOICES.limit(1)


def means_of_choice(connection: Connection, choice_id: int) -> bytes:
    """Read what the canaries of a pinned run had, packed; empty for a choice that is not in force, or pins none."""
    statement = sa.select(baseline_choices.c.means).where(baseline_choices.c.id == choice_id)
    return bytes(connection.execute(statement).scalar_one() or b"")


def append_choice(connection: Connection, *, check_id: int, means: bytes | None, **values: Any) -> int:
    """Write down what somebody chose, `means` being those of a pinned run; gives its id.

    Of choices that are not in force any more only the record is kept.
    """
    mine = sa.and_(baseline_choices.c.check_id == check_id, baseline_choices.c.means.is_not(None))
    connection.execute(sa.update(baseline_choices).where(mine).values(means=None))
    statement = sa.insert(baseline_choices).values(check_id=check_id, means=means, **values)
    return int(connection.execute(statement.returning(baseline_choices.c.id)).scalar_one())


def save_detection(connection: Connection, row: DetectionRow) -> None:
    """Write what the detector made of a run."""
    values = {name: getattr(row, name) for name in _OWN_FIELDS}
    values |= _stored(row.body)
    insert_new(connection, detections, tuple(values), [tuple(values.values())])


_OWN_FIELDS = [name for name in DetectionRow.__struct_fields__ if name not in {"body", "baseline_latency"}]


def withhold_detection(connection: Connection, run_id: int, *, body: StoredReading) -> None:
    """Keep baselines from being learned of a run after all, once its alerts are known."""
    mine = sa.update(detections).where(detections.c.run_id == run_id)
    connection.execute(mine.values(learns=False, **_stored(body)))


def nth_newest_run(connection: Connection, check_id: int, number: int) -> int | None:
    """Run that a detector took in `number` runs ago, the newest being 1; the oldest where they are fewer."""
    mine = sa.select(detections.c.run_id).where(detections.c.check_id == check_id)
    nth = mine.order_by(detections.c.run_id.desc()).offset(number - 1).limit(1)
    run_id: int | None = connection.execute(nth).scalar_one_or_none()
    if run_id is None:
        run_id = connection.execute(mine.order_by(detections.c.run_id).limit(1)).scalar_one_or_none()
    return run_id


def marks_since(connection: Connection, check_id: int, run_id: int) -> list[tuple[int, str]]:
    """List with which runs index versions came from `run_id` on, oldest first, after the one that was there by then."""
    mine = sa.select(marks.c.run_id, marks.c.index_version).where(marks.c.check_id == check_id)
    before = mine.where(marks.c.run_id < run_id).order_by(marks.c.run_id.desc()).limit(1)
    since = mine.where(marks.c.run_id >= run_id).order_by(marks.c.run_id)
    return [(row.run_id, row.index_version) for part in (before, since) for row in connection.execute(part)]


def unlearn(connection: Connection, check_id: int, since_run: int) -> None:
    """Keep baselines from being learned of the runs from `since_run` on."""
    mine = sa.and_(detections.c.check_id == check_id, detections.c.run_id >= since_run, detections.c.learns)
    connection.execute(sa.update(detections).where(mine).values(learns=False))


def detections_of(connection: Connection, run_ids: Sequence[int]) -> dict[int, DetectionRow]:
    """Read what the detector made of these runs, by run id; runs it never saw are left out."""
    by_run: dict[int, DetectionRow] = {}
    for block in blocks(run_ids):
        rows = connection.execute(_DETECTIONS, {"runs": block})
        by_run.update((row.run_id, _detection(row)) for row in rows)
    return by_run


_ALL_DETECTIONS = sa.select(detections, _BASELINE_LATENCY).outerjoin(
    baselines, baselines.c.id == detections.c.baseline_id
)
_DETECTIONS = _ALL_DETECTIONS.where(detections.c.run_id.in_(sa.bindparam("runs", expanding=True)))


def all_detections(connection: Connection, check_id: int) -> list[DetectionRow]:
    """Read what the detector made of all runs of a check that are still there, oldest first."""
    statement = _ALL_DETECTIONS.where(detections.c.check_id == check_id).order_by(detections.c.run_id)
    return [_detection(row) for row in connection.execute(statement)]


class Frozen(Value):
    """An ended run whose verdict is known, and the definitions it worked with."""

    run_id: int
    versions: RunVersions


def frozen_runs(connection: Connection, check_id: int, *, since: int) -> list[Frozen]:
    """List the runs of a check from `since` on that measured enough, by the definitions of measures of today."""
    statement = (
        sa.select(runs.c.id, runs.c.suite_version_id, runs.c.check_version_id, runs.c.retriever_version_id)
        .join(layouts, layouts.c.id == runs.c.layout_id)
        .where(
            runs.c.check_id == check_id, runs.c.id >= since, is_known(), layouts.c.measures_version == MEASURES_VERSION
        )
    )
    rows = connection.execute(statement.order_by(runs.c.id))
    return [Frozen(run_id=row[0], versions=RunVersions(*row[1:])) for row in rows]


def culprits_of(connection: Connection, run_id: int) -> list[str]:
    """Give the keys of the canaries an open alarm names on a run, as many as are kept."""
    alarm = sa.and_(detections.c.run_id == run_id, detections.c.open)
    body = connection.execute(sa.select(detections.c.body).where(alarm)).scalar_one_or_none()
    named = json.loads(body).get("culprits", {}).get("named", ()) if body else ()
    return [one["key"] for one in named]


def newest_detections(connection: Connection, check_ids: Sequence[int] | None = None) -> dict[int, DetectionRow]:
    """Read what detectors made of the last run each took in, of all checks or a few hundred at most, by check id."""
    statement = _ALL_DETECTIONS.join(detectors, detectors.c.run_id == detections.c.run_id)
    if check_ids is not None:
        statement = statement.where(detectors.c.check_id.in_(list(check_ids)))
    return {row.check_id: _detection(row) for row in connection.execute(statement)}


def learnable(
    connection: Connection, check_id: int, *, since: int = 0, until: int | None = None, limit: int | None = None
) -> list[int]:
    """List the newest runs from `since` to `until` that baselines may be learned of, oldest first."""
    mine = sa.and_(detections.c.check_id == check_id, detections.c.learns, detections.c.run_id >= since)
    statement = sa.select(detections.c.run_id).where(mine)
    if until is not None:
        statement = statement.where(detections.c.run_id <= until)
    rows = connection.execute(statement.order_by(detections.c.run_id.desc()).limit(limit)).scalars().all()
    return list(reversed(rows))


class AlertedRule(Value):
    """A rule with an alert of a check that is about the results of its runs."""

    key: str
    kind: str
    pending: bool
    """Its bad runs are not enough yet to open it; of rules of the kind `slower` alone."""


def alerted_rules(connection: Connection, check_id: int) -> list[AlertedRule]:
    """List the rules of a check with a standing alert about the results of its runs, or that may open one next."""
    rows = connection.execute(_ALERTED_RULES, {"check": check_id})
    return [AlertedRule(key=row.rule_key, kind=row.kind, pending=row.state == "pending") for row in rows]


_ALERTED_RULES = sa.select(alerts.c.rule_key, alerts.c.kind, alerts.c.state).where(
    alerts.c.check_id == sa.bindparam("check"),
    alerts.c.state != sql_literal("resolved"),  # uq_alerts_open
    sa.or_(
        alerts.c.state == sql_literal("firing"),  # no list to expand
        alerts.c.state == sql_literal("recovering"),
        sa.and_(alerts.c.state == sql_literal("pending"), alerts.c.kind == sql_literal("slower")),
    ),
    alerts.c.kind != "no_data",
    alerts.c.kind != "plant",
    alerts.c.kind != "index",
)


def _detection(row: Any) -> DetectionRow:
    decisive = json.loads(row.body) if row.body else {}
    return row_value(DetectionRow, row, body={**unpack_words(row.words), **decisive})


def _stored(body: StoredReading) -> dict[str, Any]:
    words, decisive = pack_words(body)
    return {"body": json.dumps(decisive) if decisive else None, "words": words}


class RefusalRow(Value):
    """A habit that was called not normal; it holds for the runs after `after_run`."""

    habit: str
    after_run: int
    at: int
    by: str
    note: str | None


_COLUMNS = tuple(RefusalRow.__struct_fields__)


def list_refusals(connection: Connection, check_id: int) -> list[RefusalRow]:
    """Read the refused habits of a check, oldest first."""
    mine = sa.select(*(habit_refusals.c[name] for name in _COLUMNS)).where(habit_refusals.c.check_id == check_id)
    rows = connection.execute(mine.order_by(habit_refusals.c.id))
    return [row_value(RefusalRow, row) for row in rows]


def refuse(connection: Connection, check_id: int, row: RefusalRow) -> None:
    """Write down that a habit is not normal; no change where it was refused before."""
    values = (check_id, row.habit, row.after_run, row.at, row.by, row.note)
    insert_new(connection, habit_refusals, ("check_id", *_COLUMNS), [values])


class Span(NamedTuple):
    """A ranking of a canary from one run to another; `last_run` None = still current."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    first_run: int
    last_run: int | None


class Head(Value):
    """First score and chunks of a ranking."""

    score: float | None
    """The retriever's own, of the first hit; None = there is none."""
    ids: tuple[str, ...]
    """Of the first chunks, as the retriever names them."""


def spans(
    connection: Connection, check_id: int, canary_ids: Sequence[int], first_run: int, last_run: int
) -> list[Span]:
    """Read the rankings of these canaries of a check at any run from `first_run` to `last_run`, oldest first."""
    reaches = sa.or_(states.c.last_run.is_(None), states.c.last_run >= first_run)
    columns = [states.c[name] for name in Span._fields]
    result: list[Span] = []
    for block in blocks(canary_ids):
        mine = sa.and_(states.c.check_id == check_id, states.c.canary_id.in_(block))
        statement = sa.select(*columns).where(mine, states.c.first_run <= last_run, reaches)
        rows = connection.execute(statement.order_by(states.c.canary_id, states.c.first_run))
        result += map(Span._make, rows)
    return result


def measured_runs(connection: Connection, check_id: int, first_run: int, last_run: int, *, limit: int) -> list[int]:
    """List the newest runs of a check between two, ends included, that measured anything; oldest first."""
    statement = sa.select(runs.c.id).where(
        runs.c.check_id == check_id, runs.c.id.between(first_run, last_run), runs.c.measured > 0
    )
    return list(connection.execute(statement.order_by(runs.c.id.desc()).limit(limit)).scalars())[::-1]


def first_suite(connection: Connection, check_id: int, since: int) -> int | None:
    """Suite version of the first run of a check that ended after a time; None = there is none."""
    statement = sa.select(runs.c.suite_version_id).where(
        runs.c.check_id == check_id, runs.c.finished_at >= since, runs.c.suite_version_id.is_not(None)
    )
    return connection.execute(statement.order_by(runs.c.finished_at).limit(1)).scalar_one_or_none()


def heads(connection: Connection, ranking_ids: Sequence[int], depth: int) -> dict[int, Head]:
    """Read the first score and `depth` chunk ids of rankings, by ranking id."""
    bodies = load_bodies(connection, ranking_ids)
    names: dict[int, str] = {}
    for block in blocks(sorted({chunk for body in bodies.values() for chunk in body.chunks[:depth]})):
        names.update(connection.execute(sa.select(chunks.c.id, chunks.c.chunk).where(chunks.c.id.in_(block))).all())
    return {
        ranking_id: Head(score=_first_score(body), ids=tuple([names[chunk] for chunk in body.chunks[:depth]]))
        for ranking_id, body in bodies.items()
    }


def _first_score(body: RankingBody) -> float | None:
    score = body.scores[0] if body.scores else None
    return score / 10**body.decimals if isinstance(score, int) else score


class EvidenceRow(Value):
    """What the detector of a check made of one run, without its words."""

    at: int
    run_id: int
    evidence: float | None
    lost: int
    worse: int
    open: bool


def evidence_rows(connection: Connection, check_id: int, start: int, end: int, *, limit: int) -> list[EvidenceRow]:
    """Read what the detector made of the newest runs that ended in a period, at most `limit`, oldest first."""
    ended = sa.and_(runs.c.check_id == check_id, runs.c.finished_at.between(start, end))
    columns = [detections.c[name] for name in ("run_id", "evidence", "lost", "worse", "open")]
    statement = (
        sa.select(runs.c.finished_at.label("at"), *columns)
        .select_from(runs)
        .join(detections, detections.c.run_id == runs.c.id)
        .where(ended)
    )
    rows = connection.execute(statement.order_by(runs.c.finished_at.desc()).limit(limit)).all()
    return [row_value(EvidenceRow, row) for row in reversed(rows)]
