"""Answers that people label: drawn at random from those a judge has rated, and the judge asked about padded copies.

The draw is frozen in one transaction with its items; what the judge said of the answers stays apart from what
annotators see. Padded copies are asked about afterwards, within the judge's budget.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Final

from app.annotation.documents.task_documents import DrawnAnswersDocument, TaskDocument
from app.annotation.domain.consensus import is_overlap
from app.annotation.domain.pooling import text_key
from app.annotation.service.tasks import document_of
from app.annotation.store import answer_items
from app.annotation.store import tasks as rows
from app.annotation.store.answer_items import AnswerItem, DrawnAnswer
from app.annotation.store.recalls import defer_results
from app.annotation.store.tasks import NewItem, TaskRow
from app.answers.domain.judges import AskJudge, Judge, JudgeOutcome
from app.answers.domain.label_drawing import JudgedAnswer, draw_answers
from app.answers.domain.length_bias import pad_answer
from app.answers.domain.prompts import VERSIONS, AnswerToJudge, Question
from app.answers.service.judges import contexts_of, load_judge
from app.answers.service.judging import ask_questions
from app.answers.store import draws
from app.answers.store.draws import DrawnRow, DrawRow
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConfigurationError, ConflictError, InvalidInputError
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.documents import CheckDocument
from app.catalog.service.vault import Vault
from app.catalog.store import definitions, suites
from app.records.store import results

CONTROLS: Final = 100
"""Drawn answers, at most, that the judge is asked about once more, padded."""
PADDED_QUESTIONS: Final = frozenset({Question.FAITHFUL, Question.FAITHFULNESS, Question.CORRECTNESS})
"""Whose answer true sentences of the chunks do not change; they may change how relevant an answer is."""
_HOUR: Final = 3_600_000_000


def draw_labels(
    store: Store,
    vault: Vault,
    ask: AskJudge,
    task_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Draw the answers of a task and ask about padded copies; False where it was let go of, stopping.

    A task whose answers are drawn keeps them; padded copies without a verdict are asked about again.
    """
    with store.read() as connection:
        task = rows.read_task(connection, task_id)
        if task is None or task.archived_at is not None:
            return True
        document = document_of(task)
        if document.answers is None:
            return True
        try:
            judge_id, judge = load_judge(connection, vault, document.answers.judge)
        except (ConfigurationError, ConflictError, InvalidInputError):
            return True  # a judge that cannot be used has rated nothing
        if judge is None or judge_id is None:
            return True
        is_drawn = draws.find_draw(connection, task_id) is not None
        drawn = None if is_drawn else _draw(connection, task, document, document.answers, judge, judge_id)
    if drawn is not None:
        with store.write() as connection:
            if drawn.answers:
                ids = answer_items.save_answers(connection, task_id, drawn.answers)
                verdicts = {ids[token]: value for token, value in drawn.verdicts.items()}
                draws.save_draw(connection, replace(drawn.draw, at=to_us(clock())), verdicts)
            rows.finish_pool(connection, task_id, to_us(clock()))
    _ask_padded(store, ask, replace(judge, questions=(document.answers.question,)), judge_id, task_id, clock, stopping)
    with store.write() as connection:
        defer_results(connection, task, to_us(clock()))
    return not stopping()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """What was drawn, as rows: the verdicts are by token of the item."""

    draw: DrawRow
    answers: list[DrawnAnswer]
    verdicts: Mapping[str, float]


def _draw(
    connection: Connection,
    task: TaskRow,
    document: TaskDocument,
    wanted: DrawnAnswersDocument,
    judge: Judge,
    judge_id: int,
) -> _Drawn:
    """Draw answers from all that the judge has rated as it is now."""
    question = str(wanted.question)
    wording = VERSIONS[wanted.question]
    rated = {
        str(one.id): one
        for one in draws.rated_answers(
            connection, judge_id, task.suite_id, question=question, model=judge.model, wording=wording
        )
    }
    chosen, rest = draw_answers(
        [JudgedAnswer(id=name, canary=str(one.canary_id), at=one.at) for name, one in rated.items()],
        wanted.count,
        window=wanted.window_hours * _HOUR,
        seed=document.seed,
    )
    found = draws.read_drawn(connection, [int(one.id) for one in chosen])
    made = _Maker.of(connection, task, document, list(found.values()))
    answers = [made.answer(found[int(one.id)]) for one in chosen]
    return _Drawn(
        draw=DrawRow(
            task_id=task.id,
            judge_id=judge_id,
            question=question,
            model=judge.model,
            wording=wording,
            rest=[rated[one.id].value for one in rest],
            at=0,
        ),
        answers=answers,
        verdicts={one.item.token: rated[each.id].value for one, each in zip(answers, chosen, strict=True)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """Makes items of answers: canaries as they were asked, and the chunks of their rankings down to k."""

    task: TaskRow
    document: TaskDocument
    canaries: Mapping[int, CanaryDocument]
    contexts: Mapping[tuple[int, int], tuple[str, ...]]
    """By ranking and check."""

    @classmethod
    def of(cls, connection: Connection, task: TaskRow, document: TaskDocument, found: list[DrawnRow]) -> "_Maker":
        """Read what these answers need."""
        versions = suites.canary_versions_of(connection, sorted({one.canary_version_id for one in found}))
        depths = {
            check_id: CheckDocument.model_validate(definitions.definition_by_id(connection, check_id).body).k
            for check_id in {one.check_id for one in found}
        }
        rankings = results.read_rankings(connection, sorted({one.ranking_id for one in found}))
        return cls(
            task=task,
            document=document,
            canaries={one.version_id: CanaryDocument.model_validate(one.body) for one in versions},
            contexts={
                (one.ranking_id, one.check_id): contexts_of(rankings[one.ranking_id], depths[one.check_id])
                for one in found
            },
        )

    def answer(self, row: DrawnRow) -> DrawnAnswer:
        """Return an answer as an item; neither its token nor anything beside it tells what the judge said."""
        canary = self.canaries[row.canary_version_id]
        identity = f"{self.task.id}:answer:{row.id}"
        item = NewItem(
            canary_id=row.canary_id,
            token=sha256(f"{self.document.seed}:{identity}".encode()).hexdigest()[:20],
            key=text_key(row.text, chunk=""),
            text=row.text,
            document=None,
            stratum=0,
            ranks={},
            chunks=(("", f"answer-{row.id}"),),
            overlap=is_overlap(identity, share=self.document.overlap, seed=self.document.seed),
        )
        beside = AnswerItem(
            query=canary.query,
            expected=canary.expected_answer,
            contexts=self.contexts[row.ranking_id, row.check_id],
        )
        return DrawnAnswer(item=item, canary_version_id=row.canary_version_id, beside=beside)


def _ask_padded(
    store: Store,
    ask: AskJudge,
    judge: Judge,
    judge_id: int,
    task_id: int,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool],
) -> None:
    """Ask the judge about padded copies of the first drawn answers that have no verdict on one yet."""
    [question] = judge.questions
    if question not in PADDED_QUESTIONS:
        return
    with store.read() as connection:
        draw = draws.find_draw(connection, task_id)
        if draw is None or (draw.model, draw.wording) != (judge.model, VERSIONS[question]):
            return  # the plain verdicts are of another model or wording
        controls = [one for one in draws.list_verdicts(connection, task_id)[:CONTROLS] if one.padded is None]
        texts = {one.id: one.text for one in rows.list_items(connection, task_id)}
        beside = answer_items.read_answer_items(connection, task_id)
    padded = {
        one.item_id: AnswerToJudge(
            query=beside[one.item_id].query,
            contexts=tuple(beside[one.item_id].contexts),
            answer=answer,
            expected=beside[one.item_id].expected,
        )
        for one in controls
        if (answer := pad_answer(texts[one.item_id], beside[one.item_id].contexts)) is not None
    }
    said = ask_questions(store, ask, judge, judge_id, padded, clock=clock, stopping=stopping)
    outcomes = {item_id: ratings[question] for item_id, ratings in said.items() if question in ratings}
    with store.write() as connection:
        draws.save_padded(
            connection,
            {
                item_id: (str(rating.outcome), rating.value if rating.outcome is JudgeOutcome.OK else None)
                for item_id, rating in outcomes.items()
            },
        )
