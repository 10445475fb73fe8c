"""Rows of generated answers: those of a run on their way, and what holds for each canary from run to run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.answers.domain.views import AnswerBody, RunAnswers
from app.answers.tables import answer_texts, answers, run_answers, staged_answers
from app.base.db.engine import blocks, hold_content, ids_of, insert_new, upsert
from app.records.run_tables import runs


class StagedAnswer(msgspec.Struct, array_like=True, frozen=True):
    """An answer before it is judged, or why there is none."""

    text: str | None
    outcome: str
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """What held for a canary from `first_run` until `last_run` (None: it still does)."""

    id: int
    canary_id: int
    canary_version_id: int
    ranking_id: int
    text: str | None
    judge_id: int | None
    body: AnswerBody
    first_run: int
    last_run: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAnswer:
    """What holds for a canary from a run on."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    text: str | None
    judge_id: int | None
    body: AnswerBody

    def is_same(self, row: AnswerRow) -> bool:
        """Whether this is what held before."""
        now = (self.canary_version_id, self.ranking_id, self.text, self.judge_id, self.body)
        return now == (row.canary_version_id, row.ranking_id, row.text, row.judge_id, row.body)


def expect_answers(connection: Connection, run_id: int) -> None:
    """Note that the answers of a run are to be judged."""
    insert_new(connection, run_answers, ("run_id",), [(run_id,)])


def stage_answers(connection: Connection, run_id: int, staged: Mapping[int, StagedAnswer]) -> None:
    """Keep some answers of a run, by position of the canary, until they are judged."""
    if staged:
        body = msgspec.msgpack.encode(dict(staged))
        upsert(connection, staged_answers, ["run_id", "part"], run_id=run_id, part=min(staged), body=body)


def read_staged(connection: Connection, run_id: int) -> dict[int, StagedAnswer] | None:
    """Return the answers of a run that wait to be judged; None = they were judged, or are not known of."""
    waits = sa.select(run_answers.c.run_id).where(run_answers.c.run_id == run_id, run_answers.c.finished_at.is_(None))
    if connection.execute(waits).one_or_none() is None:
        return None
    parts = connection.execute(sa.select(staged_answers.c.body).where(staged_answers.c.run_id == run_id)).scalars()
    return {
        position: answer
        for body in parts
        for position, answer in msgspec.msgpack.decode(body, type=dict[int, StagedAnswer]).items()
    }


def is_overtaken(connection: Connection, check_id: int, run_id: int) -> bool:
    """Whether answers of a later run of the check were judged before those of this one."""
    later = sa.and_(runs.c.check_id == check_id, runs.c.id > run_id, run_answers.c.finished_at.is_not(None))
    found = sa.select(runs.c.id).join(run_answers, run_answers.c.run_id == runs.c.id).where(later).limit(1)
    return connection.execute(found).first() is not None


def finish_answers(connection: Connection, run_id: int, body: RunAnswers, *, at: int) -> bool:
    """Write what the answers of a run come to; False where that is done already."""
    open_row = sa.and_(run_answers.c.run_id == run_id, run_answers.c.finished_at.is_(None))
    connection.execute(sa.delete(staged_answers).where(staged_answers.c.run_id == run_id))
    values = {"body": json.dumps(body), "finished_at": at}
    return connection.execute(sa.update(run_answers).where(open_row).values(**values)).rowcount == 1


def read_run_answers(connection: Connection, run_ids: Sequence[int]) -> dict[int, RunAnswers | None]:
    """Return what the answers of runs came to, by run; None = they are not judged yet."""
    found: dict[int, RunAnswers | None] = {}
    for block in blocks(run_ids):
        rows = connection.execute(
            sa.select(run_answers.c.run_id, run_answers.c.body).where(run_answers.c.run_id.in_(block))
        )
        found.update((row.run_id, None if row.body is None else json.loads(row.body)) for row in rows)
    return found


def answers_at(connection: Connection, check_id: int, run_id: int) -> dict[int, AnswerRow]:
    """Read what held for each canary of a check at a run, by canary id."""
    held: dict[int, AnswerRow] = {}
    for holding in (answers.c.last_run.is_(None), answers.c.last_run >= run_id):
        rows = connection.execute(_ANSWER.where(answers.c.check_id == check_id, answers.c.first_run <= run_id, holding))
        held.update((row.canary_id, _answer(row)) for row in rows)
    return held


def answers_of(connection: Connection, check_id: int, canary_id: int, *, limit: int = 50) -> list[AnswerRow]:
    """Read what held for a canary, the newest first."""
    here = _ANSWER.where(answers.c.check_id == check_id, answers.c.canary_id == canary_id)
    return [_answer(row) for row in connection.execute(here.order_by(answers.c.id.desc()).limit(limit))]


def old_answers(connection: Connection, limit: int) -> list[int]:
    """Find what was answered to canaries before the oldest run their check still has."""
    oldest = sa.select(sa.func.min(runs.c.id)).where(runs.c.check_id == answers.c.check_id).scalar_subquery()
    return list(connection.execute(sa.select(answers.c.id).where(answers.c.last_run < oldest).limit(limit)).scalars())


def drop_answers(connection: Connection, old: Sequence[int]) -> int:
    """Delete what was answered to canaries."""
    return connection.execute(sa.delete(answers).where(answers.c.id.in_(old))).rowcount


def change_answers(
    connection: Connection, check_id: int, run_id: int, *, closed: Sequence[int], opened: Sequence[NewAnswer]
) -> None:
    """Close what no longer holds with the run before this one, and open what begins with it."""
    if closed:
        before = sa.select(sa.func.max(runs.c.id)).where(runs.c.check_id == check_id, runs.c.id < run_id)
        last_run = connection.execute(before).scalar_one() or run_id - 1
        for block in blocks(closed):
            held = sa.and_(answers.c.id.in_(block), answers.c.last_run.is_(None))
            connection.execute(sa.update(answers).where(held).values(last_run=last_run))
    hold_content(connection)  # a text that is found here must not be deleted as unused meanwhile
    texts = {text: digest(text) for text in dict.fromkeys(one.text for one in opened) if text is not None}
    insert_new(connection, answer_texts, ("hash", "text"), [(digest, text) for text, digest in texts.items()])
    ids = ids_of(connection, answer_texts, list(texts.values()))
    columns = ("check_id", "canary_id", "canary_version_id", "ranking_id", "text_id", "judge_id", "body", "first_run")
    insert_new(
        connection,
        answers,
        columns,
        [
            (
                check_id,
                one.canary_id,
                one.canary_version_id,
                one.ranking_id,
                None if one.text is None else ids[texts[one.text]],
                one.judge_id,
                json.dumps(one.body),
                run_id,
            )
            for one in opened
        ],
    )


_ANSWER: Final = sa.select(answers, answer_texts.c.text).outerjoin(answer_texts, answer_texts.c.id == answers.c.text_id)


def _answer(row: Any) -> AnswerRow:
    return AnswerRow(
        id=row.id,
        canary_id=row.canary_id,
        canary_version_id=row.canary_version_id,
        ranking_id=row.ranking_id,
        text=row.text,
        judge_id=row.judge_id,
        body=json.loads(row.body),
        first_run=row.first_run,
        last_run=row.last_run,
    )


def digest(text: str) -> bytes:
    """Return the hash by which a text is kept once."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
