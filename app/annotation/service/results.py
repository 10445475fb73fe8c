"""Results of a task: agreement, budget, disagreements and decisions on them, pooled recall, and adopted judgments."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

import numpy as np

from app.annotation import store as rows
from app.annotation.domain import (
    PACE_OF,
    Consensus,
    ConsensusState,
    QueryGrades,
    SampledStratum,
    are_sides_disputed,
    estimate_recall,
    is_disputed,
    measure_agreement,
    pace,
    reach_consensus,
    reach_preference,
    recall_frame,
    text_key,
)
from app.annotation.service.tasks import find_task, items_by_chunk, require_grade, require_item
from app.annotation.store import AnnotationRow, ItemRow, PairItem, RecallEstimate, TaskCanary, TaskRow, defer_results
from app.annotation.views import (
    AdoptedCanary,
    AdoptionView,
    AgreementView,
    AnnotatorView,
    BudgetView,
    DisagreementView,
    JudgeAgreementView,
    LeftOutCanary,
    RecallView,
)
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError
from app.base.texts import counted
from app.base.views import rounded_or_none, view_of
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, ChunkDocument, ChunkIdentity, JudgmentDocument
from app.catalog.domain import task_source
from app.catalog.service import edits
from app.catalog.service.references import checks_in_force
from app.catalog.store import CanaryRow
from app.diagnosis.documents import judgment_name
from app.diagnosis.service.reanchoring import FileCanary, patch_files
from app.records.domain import PooledRecallView
from app.scoring.passages import match_level, normalise, prepare_passage


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
    everybody = rows.list_annotations(connection, task.id)
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
        adjudicated=rows.list_adjudications(connection, task.id),
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
    return view_of(AgreementView, agreement, rounding=True, judges=_judges(found))


def _judges(found: TaskGrades) -> list[JudgeAgreementView]:
    """Return how far each judge agrees with what people agreed on; one that shares no item with them is left out."""
    views: list[JudgeAgreementView] = []
    for judge in sorted({row.annotator for row in found.judged}):
        mine = {row.item_id: row.grade for row in found.judged if row.annotator == judge and row.grade is not None}
        both = [
            (grade, agreed) for item_id, grade in mine.items() if (agreed := found.consensus(item_id).grade) is not None
        ]
        pairs = measure_agreement([judge, "people"], both).pairs if both else ()
        views += [view_of(JudgeAgreementView, pair, rounding=True, judge=judge) for pair in pairs]
    return views


def load_budget(store: Store, slug: str) -> BudgetView:
    """Return what is done of a task and what is left, at the median pace of everybody. Raises NotFoundError."""
    with store.read() as connection:
        found = read_grades(connection, find_task(connection, slug))
    states = Counter(found.consensus(item.id).state for item in found.items)
    people = max(1, len(found.annotators))
    left = 0
    for item in found.items:  # a person who skipped an item owes no grade of it
        if item.overlap:
            left += max(0, people - found.said[item.id])
        elif not found.grades.get(item.id) and item.id not in found.adjudicated:
            left += 1
    annotators: list[AnnotatorView] = []
    for name in found.annotators:
        mine = [row for row in found.annotations if row.annotator == name]
        timed = [row.seconds for row in mine if row.seconds is not None]
        graded = sum(row.grade is not None for row in mine)
        annotators.append(
            {
                "annotator": name,
                "graded": graded,
                "skipped": len(mine) - graded,
                "pace_seconds": rounded_or_none(pace(timed[-PACE_OF:])),
            }
        )
    each = pace([row.seconds for row in found.annotations if row.seconds is not None][-PACE_OF:])
    return {
        "items": len(found.items),
        "states": {state: states[state] for state in ConsensusState},
        "annotations_left": left,
        "pace_seconds": rounded_or_none(each),
        # Nothing left takes no time, whether or not a pace is known.
        "hours_left": 0.0 if not left else None if each is None else rounded_or_none(each * left / 3600),
        "annotators": annotators,
    }


def list_disagreements(store: Store, slug: str, *, may_write: bool = True) -> list[DisagreementView]:
    """Return the items on which grades are disputed, the decided ones last. Raises NotFoundError.

    Queries of users, which pairs have, and their answers are for those who `may_write`; to others they are empty.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        found = read_grades(connection, task)
        canaries = {one.canary_id: one for one in rows.list_task_canaries(connection, task.id)}
        pairs = rows.read_pair_items(connection, task.id) if may_write else {}
    differ = are_sides_disputed if task.of_pairs else is_disputed
    disputed = [item for item in found.items if differ([*found.grades.get(item.id, {}).values()])]
    disputed.sort(key=lambda item: (item.id in found.adjudicated, item.canary_id or 0, item.token))
    return [_disagreement(item, found, canaries, pairs) for item in disputed]


def _disagreement(
    item: ItemRow, found: TaskGrades, canaries: Mapping[int, TaskCanary], pairs: Mapping[int, PairItem]
) -> DisagreementView:
    """Return a disputed item with its canary, query and text, of a pair both sides, and everybody's grade."""
    canary = None if item.canary_id is None else canaries[item.canary_id]
    query, text, pair = "" if canary is None else str(canary.body["query"]), item.text, pairs.get(item.id)
    if canary is None and pair is not None:
        sides = (("Left:", pair.left), ("Right:", pair.right))
        query, text = pair.query, "\n\n".join(f"{name}\n{chr(10).join(texts) or 'No hits'}" for name, texts in sides)
    return {
        "id": item.token,
        "canary": None if canary is None else canary.key,
        "query": query,
        "text": text,
        "document": item.document,
        "grades": dict(sorted(found.grades[item.id].items())),
        "adjudicated": found.adjudicated.get(item.id),
    }


def adjudicate(store: Store, slug: str, token: str, *, grade: int, by: str, now: datetime) -> None:
    """Decide the grade of an item, whatever its annotators say; an earlier decision stays as history.

    Raises NotFoundError, InvalidInputError for a grade beyond the scale, ConflictError where nobody has annotated it.
    """
    with store.write() as connection:
        task = find_task(connection, slug)
        item = require_item(connection, task, token)
        require_grade(task, grade)
        if not rows.is_annotated(connection, item.id):
            raise ConflictError(f"nobody has annotated item '{token[:40]}' yet; annotate it first")
        rows.save_adjudication(connection, task_id=task.id, item_id=item.id, grade=grade, by=by, at=to_us(now))
        defer_results(connection, task, to_us(now))


DEPTHS: Final = (1, 3, 5, 10, 20)
"""Depths at which it is computed, as far as the pool goes; the pool's own is added."""


def load_recall(store: Store, slug: str) -> RecallView:
    """Return the pooled recall of the retrievers of a task as its annotations are now.

    Raises NotFoundError, and ConflictError for a task of answers.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        if task.of_answers or task.of_pairs:
            raise ConflictError(f"task '{slug}' is not of chunks, so it has no recall")
        found = read_grades(connection, task)
        canaries = rows.list_task_canaries(connection, task.id)
    decided = _decided_queries(found, canaries)
    return {
        "queries": len(decided),
        "undecided": sum(_expects(one) for one in canaries) - len(decided),
        "estimates": [view_of(PooledRecallView, one, rounding=True, task=slug) for one in _estimate(found, decided)],
    }


def compute_recall(store: Store, task_id: int, *, now: datetime) -> None:
    """Compute the pooled recall of a task anew and store it; nothing happens where the task is gone."""
    with store.read() as connection:
        task = rows.read_task(connection, task_id)
        if task is None or task.archived_at is not None:
            return
        found = read_grades(connection, task)
        canaries = rows.list_task_canaries(connection, task.id)
    estimates = _estimate(found, _decided_queries(found, canaries))
    with store.write() as connection:
        rows.replace_recalls(connection, task_id, estimates, to_us(now))


def _expects(canary: TaskCanary) -> bool:
    """Whether a canary is pooled and expects that something is found."""
    document = CanaryDocument.model_validate(canary.body)
    return canary.sizes is not None and not document.to_domain().negative and not document.expect_empty


def _decided_queries(found: TaskGrades, canaries: list[TaskCanary]) -> list[tuple[TaskCanary, list[ItemRow]]]:
    """Return the canaries whose items all have a grade or were skipped, with their items.

    Annotators take queries in random order, so those that are done are a random sample of all.
    """
    items: dict[int | None, list[ItemRow]] = defaultdict(list)
    open_: set[int | None] = set()
    for item in found.items:
        items[item.canary_id].append(item)
        skipped = found.said[item.id] and not found.grades.get(item.id)
        if found.consensus(item.id).grade is None and not skipped:
            open_.add(item.canary_id)
    return [(one, items[one.canary_id]) for one in canaries if one.canary_id not in open_ and _expects(one)]


def _estimate(found: TaskGrades, decided: list[tuple[TaskCanary, list[ItemRow]]]) -> list[RecallEstimate]:
    document, plan = found.task.document, found.task.document.plan
    corpus = document.corpus if plan.rest else None
    frame = recall_frame(document.retrievers, plan.depth, corpus, sampled=bool(plan.strata))
    depths = sorted({*(k for k in DEPTHS if k < plan.pool), plan.pool})
    estimates = []
    for retriever in document.retrievers:
        for k in depths:
            grades = [_query_grades(canary, items, found, retriever, k) for canary, items in decided]
            one = estimate_recall(grades, seed=document.seed)
            estimates.append(RecallEstimate(retriever=retriever, k=k, frame=frame, **asdict(one)))
    return estimates


def _query_grades(canary: TaskCanary, items: list[ItemRow], found: TaskGrades, retriever: str, k: int) -> QueryGrades:
    sizes = canary.sizes or ()
    grades = {item.id: found.consensus(item.id).grade for item in items}
    relevant = {item_id for item_id, grade in grades.items() if grade is not None and grade >= 1}
    pool = [item for item in items if item.stratum == 0 and item.id in relevant]
    strata = []
    for place, size in enumerate(sizes[1:], 1):
        mine = [item for item in items if item.stratum == place and grades[item.id] is not None]
        hits = sum(item.id in relevant for item in mine)
        strata.append(SampledStratum(size=size, graded=len(mine), relevant=hits))
    return QueryGrades(
        pool_relevant=len(pool),
        found=sum(item.ranks.get(retriever, k + 1) <= k for item in pool),
        strata=tuple(strata),
    )


_LONGEST_TEXT: Final = 20_000
"""Most characters of a text that names a judgment."""
_SHOWN_TEXT: Final = 200
"""Characters that are shown of a text that names no judgment."""


def adopt(store: Store, slug: str, *, now: datetime, dry_run: bool = False, patches: bool = True) -> AdoptionView:
    """Make the consensus of a task the judgments of its canaries; `dry_run` only says what would change.

    `patches` of files can be left out, which is quicker.

    Disputed and open items are left out. A canary that was changed to another query since, or has gone, is left out,
    and a negative one, which expects nothing. Raises NotFoundError, and ConflictError where a canary is changed
    meanwhile, and for a task of answers.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        if task.of_pairs:
            raise ConflictError(f"task '{slug}' is of pairs, which say which answer is better and judge no chunk")
        if task.of_answers:
            raise ConflictError(f"the labels of task '{slug}' are of answers, and judgments are of chunks")
        found = read_grades(connection, task)
        canaries = rows.list_task_canaries(connection, task.id)
        ids = [one.canary_id for one in canaries]
        now_there = {row.id: row for row in catalog.list_canaries(connection, task.suite_id, ids=ids)}
        checks = [check.slug for check in checks_in_force(connection) if check.suite == task.suite]
    items: dict[int | None, list[ItemRow]] = {}
    for item in found.items:
        items.setdefault(item.canary_id, []).append(item)
    adopted: list[AdoptedCanary] = []
    to_commit: list[AdoptedCanary] = []
    left_out: list[LeftOutCanary] = []
    documents: list[CanaryDocument] = []
    in_files: list[FileCanary] = []
    for canary in canaries:
        row = now_there.get(canary.canary_id)
        one = _adopt_one(task_source(slug), canary, row, items.get(canary.canary_id, []), found)
        if row is None or isinstance(one, str):
            left_out.append({"canary": canary.key, "reason": str(one)})
            continue
        judgments, view = one
        if not row.is_file_managed:
            adopted.append(view)
            if not dry_run:
                documents.append(judgments.canary.with_judgments(judgments.changed, judgments.added))
        else:
            to_commit.append(view)
            if patches:
                in_files.append(judgments.in_file(row))
    if documents:
        edits.put_canaries(store, task.suite, documents, now=now)
    return {
        "adopted": adopted,
        "to_commit": to_commit,
        "patches": patch_files(task.suite, in_files),
        "left_out": left_out,
        "checks": checks,
    }


def _adopt_one(
    source: str, canary: TaskCanary, row: CanaryRow | None, items: list[ItemRow], found: TaskGrades
) -> "tuple[AdoptedJudgments, AdoptedCanary] | str":
    """Return the judgments that a canary gets, with their view, or why it gets none."""
    if row is None:
        return "it is archived"
    if row.body["query"] != canary.body["query"]:
        return "its query was changed since the pool was made"
    document = CanaryDocument.model_validate(row.body)
    if document.to_domain().negative or document.expect_empty:
        return "it expects that nothing is found"
    named = items_by_chunk(items)
    graded: list[GradedItem] = []
    ids_of: dict[str, tuple[str, ...]] = {}
    undecided = 0
    for item in items:
        agreed = found.consensus(item.id)
        if agreed.grade is None:
            undecided += 1
            continue
        chunks = dict.fromkeys(chunk for _, chunk in item.chunks)
        ids = tuple(
            chunk for chunk in chunks if len(named[item.canary_id, chunk]) == 1 and chunk not in canary.shared_ids
        )
        ids_of[item.key] = tuple(chunks)
        graded.append(GradedItem(key=item.key, ids=ids, text=item.text, grade=agreed.grade))
    if not graded:
        return "nothing is agreed on yet"
    judgments = adopt_judgments(document, graded, source=source)
    if judgments.is_empty:
        unnamed = f"neither an id nor a text names {counted(len(judgments.unnamed), 'chunk')}"
        return unnamed if judgments.unnamed else "its judgments are the same already"
    return judgments, {
        "canary": row.key,
        "grades": dict(sorted(Counter(one.grade for one in graded).items())),
        "added": len(judgments.added),
        "changed": len(judgments.changed),
        "undecided": undecided,
        "unnamed": [
            {"ids": list(ids_of[one.key]), "text": one.text[:_SHOWN_TEXT], "grade": one.grade}
            for one in judgments.unnamed
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedItem:
    """A text with its grade: its identity, the ids of its chunks that name no other text, and itself."""

    key: str
    ids: tuple[str, ...]
    text: str
    grade: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedJudgments:
    """What adopting changes in the judgments of a canary."""

    canary: CanaryDocument
    """As it is now."""
    changed: Mapping[ChunkIdentity, JudgmentDocument]
    """Judgments with another grade or source, by what they are matched by."""
    added: tuple[JudgmentDocument, ...]
    unnamed: tuple[GradedItem, ...] = ()
    """Items that get no judgment: no id is theirs alone, and their text is empty or too long to name them."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.changed and not self.added

    def in_file(self, row: CanaryRow) -> FileCanary:
        """Return the same for the patch of the file that the canary is in."""
        old = [chunk for chunk in self.canary.expected_chunks if chunk.identity in self.changed]
        replacements = {judgment_name(chunk): (self.changed[chunk.identity],) for chunk in old}
        return FileCanary(canary=row, document=self.canary, replacements=replacements, added=self.added)


def adopt_judgments(canary: CanaryDocument, items: Sequence[GradedItem], *, source: str) -> AdoptedJudgments:
    """Return what the grades of these items change in a canary; what they change or add comes from this source.

    So does a judgment with the same grade from another source: what was ticked in one answer is now judged in a pool.
    One that has no source keeps to have none, as somebody knew the document.
    A judgment is of the item of its normalised text, else of the one that has its chunk id and contains its text; one
    by document alone stays as it is. A new one names id and text, so that it is found again under another id; a known
    irrelevant one its id alone. One without an id, or whose id a judgment of another text has, is named by its text.
    """
    by_key = {item.key: item for item in items}
    by_id = {chunk: item for item in items for chunk in item.ids}
    changed: dict[ChunkIdentity, JudgmentDocument] = {}
    known: set[str] = set()
    others_ids: set[str] = set()
    for chunk in (*canary.expected_chunks, *canary.forbidden_chunks):
        item = _find_item(chunk, by_key, by_id)
        if item is not None:
            known.add(item.key)
            if isinstance(chunk, JudgmentDocument) and (
                chunk.grade != item.grade or chunk.source not in {None, source}
            ):
                changed[chunk.identity] = chunk.model_copy(update={"grade": item.grade, "source": source})
        if chunk.id is not None and (item is None or chunk.id not in item.ids):
            others_ids.add(chunk.id)
    new = [(item, _new_judgment(item, others_ids, source)) for item in items if item.key not in known]
    return AdoptedJudgments(
        canary=canary,
        changed=changed,
        added=tuple(one for _, one in new if one is not None),
        unnamed=tuple(item for item, one in new if one is None),
    )


def _find_item(
    chunk: ChunkDocument, by_key: Mapping[str, GradedItem], by_id: Mapping[str, GradedItem]
) -> GradedItem | None:
    """Return the item that a chunk of a canary is, by its text or an id that names no other; None = none of them."""
    passage = None if chunk.text is None else prepare_passage(chunk.text)
    if chunk.text is not None and passage is not None:
        item = by_key.get(text_key(chunk.text, chunk=""))
        if item is not None:
            return item
    item = None if chunk.id is None else by_id.get(chunk.id)
    body = "" if item is None else normalise(item.text)
    if passage is not None and body and match_level(passage, body) is None:
        return None  # the same id of another text
    return item


def _new_judgment(item: GradedItem, others_ids: Collection[str], source: str) -> JudgmentDocument | None:
    """Return the judgment of an item that has none; None = neither an id nor a text can name it."""
    name = next((chunk for chunk in item.ids if chunk not in others_ids), None)
    usable = bool(normalise(item.text)) and len(item.text) <= _LONGEST_TEXT
    text = item.text if usable and (item.grade or name is None) else None
    if name is None and text is None:
        return None
    return JudgmentDocument(id=name, text=text, grade=item.grade, source=source)
