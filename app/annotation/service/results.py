"""What the annotations of a task amount to: consensus, agreement, budget, disagreements, adjudication."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from typing_extensions import TypedDict

from app.annotation.domain.agreement import Coefficient, PairAgreement, measure_agreement
from app.annotation.domain.consensus import (
    Consensus,
    ConsensusState,
    are_sides_disputed,
    is_disputed,
    reach_consensus,
    reach_preference,
)
from app.annotation.domain.queue import PACE_OF, pace
from app.annotation.domain.views import (
    AgreementView,
    AnnotatorView,
    BudgetView,
    CoefficientView,
    DisagreementView,
    JudgeAgreementView,
)
from app.annotation.service.annotating import require_grade, require_item
from app.annotation.service.tasks import find_task
from app.annotation.store import annotations, pair_items
from app.annotation.store import tasks as rows
from app.annotation.store.annotations import AnnotationRow
from app.annotation.store.pair_items import PairItem
from app.annotation.store.recalls import defer_results
from app.annotation.store.tasks import ItemRow, TaskCanary, TaskRow
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError
from app.records.documents import number


class _About(TypedDict):
    canary: str | None
    query: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGrades:
    """Items of a task with the annotations of people, and the decisions on them."""

    task: TaskRow
    items: Sequence[ItemRow]
    annotations: Sequence[AnnotationRow]
    """Of people, skips included; what judges say is no grade."""
    grades: Mapping[int, Mapping[str, int]]
    """Grades by annotator of each item."""
    said: Counter[int]
    """Number of people who annotated each item, skips included."""
    adjudicated: Mapping[int, int]
    judged: Sequence[AnnotationRow] = ()
    """What judges said, which decides nothing."""

    @property
    def annotators(self) -> list[str]:
        """People who annotated, by name."""
        return sorted({row.annotator for row in self.annotations})

    def consensus(self, item_id: int) -> Consensus:
        """Consensus on an item."""
        given = [*self.grades.get(item_id, {}).values()]
        reach = reach_preference if self.task.of_pairs else reach_consensus
        return reach(given, adjudicated=self.adjudicated.get(item_id))


def read_grades(connection: Connection, task: TaskRow) -> TaskGrades:
    """Read all that people said of the items of a task."""
    everybody = annotations.list_annotations(connection, task.id)
    said = [row for row in everybody if not row.by_judge]
    grades: dict[int, dict[str, int]] = defaultdict(dict)
    for row in said:
        if row.grade is not None:
            grades[row.item_id][row.annotator] = row.grade
    return TaskGrades(
        task=task,
        items=rows.list_items(connection, task.id),
        annotations=said,
        grades=grades,
        said=Counter(row.item_id for row in said),
        adjudicated=annotations.list_adjudications(connection, task.id),
        judged=[row for row in everybody if row.by_judge],
    )


def load_agreement(store: Store, slug: str) -> AgreementView:
    """Return the agreement of the annotators of a task. Raises NotFoundError."""
    with store.read() as connection:
        found = read_grades(connection, find_task(connection, slug))
    names = found.annotators
    table = np.full((len(found.grades), len(names)), np.nan)
    for row, grades in enumerate(found.grades.values()):
        for name, grade in grades.items():
            table[row, names.index(name)] = grade
    agreement = measure_agreement(names, table)
    return {
        "items": agreement.items,
        "annotators": list(agreement.annotators),
        "raw": coefficient_view(agreement.raw),
        "alpha": {str(level): coefficient_view(one) for level, one in agreement.alpha.items()},
        "judges": _judges(found),
        "pairs": [
            {
                "a": pair.a,
                "b": pair.b,
                "items": pair.items,
                "raw": coefficient_view(pair.raw),
                "kappa": coefficient_view(pair.kappa),
                "weighted_kappa": coefficient_view(pair.weighted_kappa),
            }
            for pair in agreement.pairs
        ],
    }


def _judges(found: TaskGrades) -> list[JudgeAgreementView]:
    """Return how far each judge agrees with what people agreed on; one that shares no item with them is left out."""
    views: list[JudgeAgreementView] = []
    for judge in sorted({row.annotator for row in found.judged}):
        mine = {row.item_id: row.grade for row in found.judged if row.annotator == judge and row.grade is not None}
        both = [
            (grade, agreed) for item_id, grade in mine.items() if (agreed := found.consensus(item_id).grade) is not None
        ]
        pairs = measure_agreement([judge, "people"], both).pairs if both else ()
        views += [_judge(judge, pair) for pair in pairs]
    return views


def _judge(judge: str, pair: PairAgreement) -> JudgeAgreementView:
    return {
        "judge": judge,
        "items": pair.items,
        "raw": coefficient_view(pair.raw),
        "kappa": coefficient_view(pair.kappa),
        "weighted_kappa": coefficient_view(pair.weighted_kappa),
    }


def load_budget(store: Store, slug: str) -> BudgetView:
    """Return what is done of a task and what is left, at the median pace of everybody. Raises NotFoundError."""
    with store.read() as connection:
        found = read_grades(connection, find_task(connection, slug))
    states = Counter(found.consensus(item.id).state for item in found.items)
    people = max(1, len(found.annotators))
    left = sum(_missing(item, found, people) for item in found.items)
    each = pace([row.seconds for row in found.annotations if row.seconds is not None][-PACE_OF:])
    return {
        "items": len(found.items),
        "states": {state: states[state] for state in ConsensusState},
        "annotations_left": left,
        "pace_seconds": number(each),
        "hours_left": number(_hours(left, each)),
        "annotators": [_annotator(name, found.annotations) for name in found.annotators],
    }


def _hours(left: int, each: float | None) -> float | None:
    """Return the hours that so many annotations take; nothing left takes none, whether or not a pace is known."""
    if not left:
        return 0.0
    return None if each is None else each * left / 3600


def list_disagreements(store: Store, slug: str, *, may_write: bool = True) -> list[DisagreementView]:
    """Return the items on which grades are disputed, the decided ones last. Raises NotFoundError.

    Queries of users, which pairs have, and their answers are for those who `may_write`; to others they are empty.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        found = read_grades(connection, task)
        canaries = {one.canary_id: one for one in rows.list_task_canaries(connection, task.id)}
        pairs = pair_items.read_pair_items(connection, task.id) if may_write else {}
    differ = are_sides_disputed if task.of_pairs else is_disputed
    disputed = [item for item in found.items if differ([*found.grades.get(item.id, {}).values()])]
    disputed.sort(key=lambda item: (item.id in found.adjudicated, item.canary_id or 0, item.token))
    return [
        {
            "id": item.token,
            **_about(item, canaries, pairs),
            "document": item.document,
            "grades": dict(sorted(found.grades[item.id].items())),
            "adjudicated": found.adjudicated.get(item.id),
        }
        for item in disputed
    ]


def _about(item: ItemRow, canaries: Mapping[int, TaskCanary], pairs: Mapping[int, PairItem]) -> _About:
    """Return what an item is about: its canary, query and text, of a pair both sides."""
    if item.canary_id is not None:
        canary = canaries[item.canary_id]
        return {"canary": canary.key, "query": str(canary.body["query"]), "text": item.text}
    pair = pairs.get(item.id)
    if pair is None:
        return {"canary": None, "query": "", "text": ""}
    sides = [
        f"{name}\n{chr(10).join(texts) or 'No hits'}" for name, texts in (("Left:", pair.left), ("Right:", pair.right))
    ]
    return {"canary": None, "query": pair.query, "text": "\n\n".join(sides)}


def adjudicate(store: Store, slug: str, token: str, *, grade: int, by: str, now: datetime) -> None:
    """Decide the grade of an item, whatever its annotators say; an earlier decision stays as history.

    Raises NotFoundError, InvalidInputError for a grade beyond the scale, ConflictError where nobody has annotated it.
    """
    with store.write() as connection:
        task = find_task(connection, slug)
        item = require_item(connection, task, token)
        require_grade(task, grade)
        if not annotations.is_annotated(connection, item.id):
            raise ConflictError(f"nobody has annotated item '{token[:40]}' yet; annotate it first")
        annotations.save_adjudication(connection, task_id=task.id, item_id=item.id, grade=grade, by=by, at=to_us(now))
        defer_results(connection, task, to_us(now))


def _missing(item: ItemRow, found: TaskGrades, people: int) -> int:
    """Count the grades an item still needs; a person who skipped it owes none."""
    graded = len(found.grades.get(item.id, {}))
    if not item.overlap:
        return 0 if graded or item.id in found.adjudicated else 1
    return max(0, people - found.said[item.id])


def _annotator(name: str, said: Sequence[AnnotationRow]) -> AnnotatorView:
    mine = [row for row in said if row.annotator == name]
    return {
        "annotator": name,
        "graded": sum(row.grade is not None for row in mine),
        "skipped": sum(row.grade is None for row in mine),
        "pace_seconds": number(pace([row.seconds for row in mine if row.seconds is not None][-PACE_OF:])),
    }


def coefficient_view(one: Coefficient) -> CoefficientView:
    """Return a coefficient as JSON on the wire."""
    return {"value": number(one.value), "low": number(one.low), "high": number(one.high)}
