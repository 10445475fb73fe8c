"""Annotations: given item by item or as files, read together as grades, decided, and adopted as judgments of canaries.

Annotators see items without rank, score, retriever or stratum: who knows where a chunk came from grades it by that.
Figures on the grades of a task are in `results`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from app.annotation.documents import SKIPPED, AnnotationLine, read_annotations, write_annotations
from app.annotation.domain.agreement import (
    Consensus,
    are_sides_disputed,
    is_disputed,
    reach_consensus,
    reach_preference,
)
from app.annotation.domain.pools import HELD_SECONDS, LABEL_QUESTIONS, PACE_OF, PoolItem, next_of, pace, text_key
from app.annotation.service.tasks import find_task
from app.annotation.store import task_rows as rows
from app.annotation.store.task_rows import (
    AnnotationRow,
    AnswerItem,
    ItemRow,
    PairItem,
    TaskCanary,
    TaskRow,
    asked_of,
    defer_results,
)
from app.annotation.views import (
    AdoptedCanary,
    AdoptionView,
    AnswerContext,
    AskedView,
    DisagreementView,
    ItemView,
    LeftOutCanary,
    NextItem,
    PairContext,
    ProgressView,
)
from app.base.db.engine import Connection, Store, to_us
from app.base.db.keys import Identity
from app.base.documents.fields import MOST_PROBLEMS, one_line
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.texts import Source, counted
from app.base.values import Value
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, ChunkDocument, ChunkIdentity, JudgmentDocument
from app.catalog.domain import task_source
from app.catalog.service import suites
from app.catalog.service.references import checks_in_force
from app.catalog.store import CanaryRow
from app.diagnosis.rendering import judgment_name
from app.diagnosis.service.reanchoring import FileCanary, patch_files, yaml_changes
from app.scoring.passages import match_level, prepare_passage
from app.scoring.words import normalise


def annotate(
    store: Store,
    slug: str,
    token: str,
    *,
    annotator: str,
    grade: int | None,
    seconds: float | None = None,
    now: datetime,
) -> NextItem:
    """Store what an annotator says of an item, None = it skips it, and return the next one.

    What it said before stays as history. Raises NotFoundError, and InvalidInputError for a grade beyond the scale.
    """
    with store.write() as connection:
        task = find_task(connection, slug)
        item = require_item(connection, task, token)
        require_grade(task, grade)
        rows.save_annotation(
            connection,
            task_id=task.id,
            item_id=item.id,
            annotator=annotator,
            grade=grade,
            seconds=seconds,
            at=to_us(now),
        )
        defer_results(connection, task, to_us(now))
    return next_item(store, slug, annotator=annotator, now=now)


def next_item(store: Store, slug: str, *, annotator: str, now: datetime) -> NextItem:
    """Hand an annotator its next item and the one after it, with how far the task is. Raises NotFoundError.

    Nobody else is handed them for `HELD_SECONDS`, unless they are for everybody.
    """
    with store.write() as connection:
        return _hand_out(connection, find_task(connection, slug), annotator, to_us(now))


def annotator_of(identity: Identity, given: str | None) -> str:
    """Return the name an annotator goes by: that of its key, or the given one where there are no keys.

    Raises InvalidInputError where there is none, or another than the key's.
    """
    if identity.key_prefix is None:
        if given is None or not given.strip():
            raise InvalidInputError([Problem(path="annotator", message="say who annotates: there are no keys here")])
        return given.strip()
    if given not in {None, identity.name}:
        raise InvalidInputError([Problem(path="annotator", message=f"is the name of the key, '{identity.name}'")])
    return identity.name


def undo(store: Store, slug: str, *, annotator: str, now: datetime) -> NextItem:
    """Withdraw the last annotation of an annotator and return its item to be graded again.

    Raises ConflictError where there is none.
    """
    with store.write() as connection:
        task = find_task(connection, slug)
        item_id = rows.withdraw_last(connection, task_id=task.id, annotator=annotator, at=to_us(now))
        defer_results(connection, task, to_us(now))
        if item_id is None:
            raise ConflictError(f"{annotator} has no annotation in task '{slug}' that could be taken back")
    with store.write() as connection:
        found = _hand_out(connection, task, annotator, to_us(now), again=item_id)
        return {**found, "following": None}


def load_item(store: Store, slug: str, token: str, *, annotator: str) -> ItemView:
    """Return an item as an annotator sees it, with what it said of it. Raises NotFoundError."""
    with store.read() as connection:
        task = find_task(connection, slug)
        item = require_item(connection, task, token)
        return _view(connection, task, item, rows.find_grade(connection, item.id, annotator))


def require_item(connection: Connection, task: TaskRow, token: str) -> ItemRow:
    """Return an item of a task. Raises NotFoundError."""
    item = rows.find_item(connection, task.id, token)
    if item is None:
        raise NotFoundError(f"task '{task.slug}' has no item '{token[:40]}'")
    return item


def require_grade(task: TaskRow, grade: int | None) -> None:
    """Raise InvalidInputError for a grade beyond the scale of a task."""
    highest = task.document.highest_grade
    if grade is not None and grade > highest:
        raise InvalidInputError([Problem(path="grade", message=f"must be at most {highest}, the scale of the task")])


def _hand_out(connection: Connection, task: TaskRow, annotator: str, now: int, *, again: int | None = None) -> NextItem:
    """Hand out what an annotator has in hand, one item that it takes back before that, and what is missing of two."""
    if task.document.checks and task.planting is None:  # what comes later would be known for planted
        return {"item": None, "following": None, "progress": _progress(connection, task, annotator, now)}
    held = rows.held_by(connection, task.id, annotator, now=now)
    ids = [*([] if again is None else [again]), *(one for one in held if one != again)][:_IN_HAND]
    known = {item.id: item for item in rows.list_items(connection, task.id, ids=ids)} if ids else {}
    chosen = [known[one] for one in ids]
    chosen += _choose(connection, task, annotator, now, chosen)
    until = now + round(HELD_SECONDS * 1_000_000)
    rows.hold_items(connection, task.id, annotator, [item.id for item in chosen], until=until)
    views = [_view(connection, task, item) for item in chosen]
    return {
        "item": views[0] if views else None,
        "following": views[1] if len(views) > 1 else None,
        "progress": _progress(connection, task, annotator, now),
    }


_IN_HAND: Final = 2
"""The item to grade and the one to prefetch."""


def _choose(
    connection: Connection, task: TaskRow, annotator: str, now: int, chosen: Sequence[ItemRow]
) -> list[ItemRow]:
    """Return what an annotator is handed beside what was chosen: items of the canary it is at, then of the next one."""
    seed, ids = task.document.seed, [item.id for item in chosen]
    at = chosen[-1].canary_id if chosen else rows.last_canary(connection, task.id, annotator)

    def of_canary(canary_id: int | None) -> dict[str, int]:
        found = rows.open_items(connection, task.id, annotator, canary_id, now)
        return {token: item_id for token, item_id in found.items() if item_id not in ids}

    left = {} if at is None else of_canary(at)
    canaries: set[int | None] | None = None
    while len(ids) < _IN_HAND:
        if left:
            token = next_of(left, seed=seed, annotator=annotator)
            assert token is not None  # noqa: S101 - there is one left
            ids.append(left.pop(token))
            continue
        if canaries is None:
            canaries = set(rows.open_canaries(connection, task.id, annotator, now=now))
            canaries -= set() if at is None else {at}
        if not canaries:
            break
        canary_id = next_of(canaries, seed=seed, annotator=annotator)
        canaries.discard(canary_id)
        left = of_canary(canary_id)
    new = ids[len(chosen) :]
    found = {item.id: item for item in rows.list_items(connection, task.id, ids=new)} if new else {}
    return [found[one] for one in new]


def _progress(connection: Connection, task: TaskRow, annotator: str, now: int) -> ProgressView:
    found = rows.annotator_progress(connection, task.id, annotator, newest=PACE_OF, now=now)
    each = pace(found.seconds)
    seconds = None if each is None else round(each * found.left, 1)
    return view_of(ProgressView, found, annotator=annotator, seconds_left=seconds)


def _view(connection: Connection, task: TaskRow, item: ItemRow, grade: int | None = None) -> ItemView:
    if item.canary_id is None:
        pair = rows.read_pair_items(connection, item.task_id, item_id=item.id)[item.id]
        sides: PairContext = {"left": list(pair.left), "right": list(pair.right)}
        return {
            "id": item.token,
            "query": pair.query,
            "vars": {},
            "history": [],
            "text": "",
            "grade": grade,
            "answer": None,
            "pair": sides,
        }
    canary = rows.find_task_canary(connection, item.task_id, item.canary_id)
    assert canary is not None  # noqa: S101 - an item is of a canary of its task
    beside = rows.read_answer_items(connection, item.task_id, item_id=item.id).get(item.id)
    context: AnswerContext | None = None
    if beside is not None and task.document.answers is not None:
        question = LABEL_QUESTIONS[task.document.answers.question]
        context = {
            "question": question.text,
            "expected_answer": beside.expected if question.expected else None,
            "contexts": list(beside.contexts) if question.contexts else [],
        }
    query, asked = _query_of(canary, beside)
    return {
        "id": item.token,
        "query": query,
        **asked,
        "text": item.text,
        "grade": grade,
        "answer": context,
        "pair": None,
    }


def _query_of(canary: TaskCanary, beside: AnswerItem | None) -> tuple[str, AskedView]:
    """Return what an item was retrieved or answered for: of an answer, the query as it was then."""
    if beside is None:
        return str(canary.body["query"]), asked_of(canary.body)
    return beside.query, asked_of(canary.body) if beside.asked is None else beside.asked


def export_annotations(store: Store, slug: str, *, by_judge: bool = False) -> str:
    """Return the annotations of people in force as CSV, or those of judges, ordered by canary; of planted items none.

    Raises NotFoundError.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        canaries = {one.canary_id: one for one in rows.list_task_canaries(connection, task.id)}
        items = {item.id: item for item in rows.list_items(connection, task.id) if item.known_grade is None}
        beside = rows.read_answer_items(connection, task.id)
        said = [
            row
            for row in rows.list_annotations(connection, task.id)
            if row.by_judge is by_judge and row.item_id in items
        ]
    said.sort(key=lambda row: (items[row.item_id].canary_id or 0, items[row.item_id].token, row.annotator))
    return write_annotations(
        AnnotationLine(
            canary="" if item.canary_id is None else canaries[item.canary_id].key,
            chunk_id=next(iter(item.chunk_ids), ""),
            document=item.document or "",
            text=item.text,
            annotator=row.annotator,
            grade=row.grade,
            query=query,
            vars=", ".join(f"{name}: {value}" for name, value in asked["vars"].items()),
            history="\n".join(f"{turn['role']}: {turn['content']}" for turn in asked["history"]),
        )
        for row in said
        for item in (items[row.item_id],)
        for query, asked in (
            ("", asked_of({}))  # a pair, whose query is one of users
            if item.canary_id is None
            else _query_of(canaries[item.canary_id], beside.get(item.id)),
        )
    )


def import_annotations(
    store: Store, slug: str, sources: Sequence[Source], *, now: datetime, by_judge: bool = False
) -> int:
    """Store annotations made elsewhere, all or none, in the place of what the same annotators said; how many.

    `by_judge`: machines made them; they decide nothing. Raises InvalidInputError with every line whose canary or chunk
    is not in the task, and NotFoundError; ConflictError where a judge has the name of a person or the other way round,
    and for judges of a task of answers, whose ratings are there.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        listed = rows.list_task_canaries(connection, task.id)
        items = [item for item in rows.list_items(connection, task.id) if item.known_grade is None]
        said = rows.list_annotations(connection, task.id)
    if task.of_pairs:
        raise ConflictError(f"task '{slug}' is of pairs, which are compared on its page: they have no chunks to name")
    if by_judge and task.of_answers:
        raise ConflictError(f"task '{slug}' is of answers that a judge rated; what it said is known")
    by_text = {(item.canary_id, item.key): item for item in items}
    by_chunk = _by_chunk(items)
    canaries = {one.key: one for one in listed}
    chosen: list[tuple[ItemRow, AnnotationLine]] = []
    problems: list[Problem] = []
    first: dict[tuple[int, str], AnnotationLine] = {}
    for line in read_annotations(sources, highest=task.document.highest_grade):
        found = _find(line, canaries, by_text, by_chunk)
        before = line if isinstance(found, str) else first.setdefault((found.id, line.annotator), line)
        if isinstance(found, str):
            problems.append(Problem(message=found, file=line.place[0], line=line.place[1]))
        elif before.grade != line.grade:
            grades = f"{_grade_text(before)} in line {before.place[1]}, now {_grade_text(line)}"
            message = f"'{one_line(line.annotator)}' graded this chunk already: {grades}; leave one of them"
            problems.append(Problem(message=message, file=line.place[0], line=line.place[1]))
        else:
            chosen.append((found, line))
    if problems:
        raise InvalidInputError(problems[:MOST_PROBLEMS])
    others = {row.annotator for row in said if row.by_judge is not by_judge}
    mixed = sorted(others & {line.annotator for _, line in chosen})
    if mixed:
        kind, other = ("judge", "person") if by_judge else ("person", "judge")
        raise ConflictError(f"'{one_line(mixed[0])}' has annotated as a {other}; a {kind} needs another name")
    with store.write() as connection:
        for item, line in chosen:
            rows.save_annotation(
                connection,
                task_id=task.id,
                item_id=item.id,
                annotator=line.annotator,
                grade=line.grade,
                seconds=None,
                at=to_us(now),
                by_judge=by_judge,
            )
        defer_results(connection, task, to_us(now))
    return len(chosen)


def _by_chunk(items: Sequence[ItemRow]) -> dict[tuple[int | None, str], list[ItemRow]]:
    """Return items by canary and chunk id; several where retrievers use one id for different texts."""
    found: dict[tuple[int | None, str], list[ItemRow]] = defaultdict(list)
    for item in items:
        for chunk in item.chunk_ids:
            found[item.canary_id, chunk].append(item)
    return found


def _grade_text(line: AnnotationLine) -> str:
    return SKIPPED if line.grade is None else str(line.grade)


def _find(
    line: AnnotationLine,
    canaries: Mapping[str, TaskCanary],
    by_text: Mapping[tuple[int | None, str], ItemRow],
    by_chunk: Mapping[tuple[int | None, str], Sequence[ItemRow]],
) -> ItemRow | str:
    """Return the item that a line is about, by its text where it has one, else by its id; or why there is none."""
    canary = line.canary[:60]
    about = canaries.get(line.canary)
    if about is None:
        return f"the task has no canary '{canary}'"
    if line.text:
        found = by_text.get((about.canary_id, text_key(line.text, chunk=line.chunk_id)))
        return found or f"canary '{canary}' has no chunk of this text in the task"
    named = by_chunk.get((about.canary_id, line.chunk_id), ())
    if len(named) > 1 or line.chunk_id in about.shared_ids:  # chunks of several retrievers
        return f"chunk id '{one_line(line.chunk_id)}' names several chunks of canary '{canary}'; give the text"
    return named[0] if named else f"canary '{canary}' has no such chunk in the task"


class TaskGrades(Value):
    """Items of a task with the annotations of people, and the decisions on them."""

    task: TaskRow
    items: Sequence[ItemRow]
    """Without the planted ones."""
    annotations: Sequence[AnnotationRow]
    """Of people, skips included; what judges say is no grade."""
    graded: Mapping[int, Sequence[AnnotationRow]]
    """Those with a grade, by item."""
    said: Counter[int]
    """Number of people who annotated each item, skips included."""
    adjudicated: Mapping[int, int]
    judged: Sequence[AnnotationRow] = ()
    """What judges said, which decides nothing."""
    planted: Sequence[ItemRow] = ()
    """Items whose grade is known: never adopted, in no agreement and no estimate; they tell how often people err."""

    @property
    def annotators(self) -> list[str]:
        """People who annotated, by name."""
        return sorted({row.annotator for row in self.annotations})

    def grades_of(self, item_id: int) -> list[int]:
        """Grades of an item, one of each annotator who has not skipped it."""
        return [row.grade for row in self.graded.get(item_id, ()) if row.grade is not None]

    def consensus(self, item_id: int) -> Consensus:
        """Consensus on an item."""
        reach = reach_preference if self.task.of_pairs else reach_consensus
        return reach(self.grades_of(item_id), adjudicated=self.adjudicated.get(item_id))


def read_grades(connection: Connection, task: TaskRow) -> TaskGrades:
    """Read all that people said of the items of a task."""
    everybody = rows.list_annotations(connection, task.id)
    said = [row for row in everybody if not row.by_judge]
    graded: dict[int, list[AnnotationRow]] = defaultdict(list)
    for row in said:
        if row.grade is not None:
            graded[row.item_id].append(row)
    items = rows.list_items(connection, task.id)
    return TaskGrades(
        task=task,
        items=[item for item in items if item.known_grade is None],
        planted=[item for item in items if item.known_grade is not None],
        annotations=said,
        graded=graded,
        said=Counter(row.item_id for row in said),
        adjudicated=rows.list_adjudications(connection, task.id),
        judged=[row for row in everybody if row.by_judge],
    )


def list_disagreements(store: Store, slug: str, *, may_write: bool = True) -> list[DisagreementView]:
    """Return the items on which grades are disputed, the decided ones last. Raises NotFoundError.

    Queries of users, which pairs have, and their answers are for those who `may_write`; to others they are empty.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        canaries = rows.list_task_canaries(connection, task.id)
        return find_disagreements(connection, read_grades(connection, task), canaries, may_write=may_write)


def find_disagreements(
    connection: Connection, found: TaskGrades, of_task: Sequence[TaskCanary], *, may_write: bool
) -> list[DisagreementView]:
    """Return the same, given the grades and the canaries of a task."""
    canaries = {one.canary_id: one for one in of_task}
    pairs = rows.read_pair_items(connection, found.task.id) if may_write else {}
    differ = are_sides_disputed if found.task.of_pairs else is_disputed
    disputed = [item for item in found.items if differ(found.grades_of(item.id))]
    disputed.sort(key=lambda item: (item.id in found.adjudicated, item.canary_id or 0, item.token))
    beside = rows.read_answer_items(connection, found.task.id) if found.task.of_answers and disputed else {}
    return [_disagreement(item, found, canaries, pairs, beside.get(item.id)) for item in disputed]


def _disagreement(
    item: ItemRow,
    found: TaskGrades,
    canaries: Mapping[int, TaskCanary],
    pairs: Mapping[int, PairItem],
    beside: AnswerItem | None,
) -> DisagreementView:
    """Return a disputed item with its canary, query and text, of a pair both sides, and everybody's grade."""
    canary = None if item.canary_id is None else canaries[item.canary_id]
    query, asked = ("", asked_of({})) if canary is None else _query_of(canary, beside)
    text, pair = item.text, pairs.get(item.id)
    if canary is None and pair is not None:
        sides = (("Left:", pair.left), ("Right:", pair.right))
        query, text = pair.query, "\n\n".join(f"{name}\n{chr(10).join(texts) or 'No hits'}" for name, texts in sides)
    return {
        "id": item.token,
        "canary": None if canary is None else canary.key,
        "query": query,
        **asked,
        "text": text,
        "document": item.document,
        "grades": {
            row.annotator: row.grade
            for row in sorted(found.graded[item.id], key=lambda one: one.annotator)
            if row.grade is not None
        },
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


_LONGEST_TEXT: Final = 20_000
"""Most characters of a text that names a judgment."""
_SHOWN_TEXT: Final = 200
"""Characters that are shown of a text that names no judgment."""


def adopt(store: Store, slug: str, *, now: datetime, dry_run: bool = False) -> AdoptionView:
    """Make the consensus of a task the judgments of its canaries; `dry_run` only says what would change.

    What is doubtful of its grades is left to `results`. Disputed and open items are left out. A canary that was changed
    to another query since, or has gone, is left out, and a negative one, which expects nothing. Raises NotFoundError,
    and ConflictError where a canary is changed meanwhile, and for a task of answers.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        if task.of_pairs:
            raise ConflictError(f"task '{slug}' is of pairs, which say which answer is better and judge no chunk")
        if task.of_answers:
            raise ConflictError(f"the labels of task '{slug}' are of answers, and judgments are of chunks")
        canaries = rows.list_task_canaries(connection, task.id)
        plan = plan_adoption(connection, read_grades(connection, task), canaries)
    documents = [
        one.canary.with_judgments(one.changed, one.added) for one, row in plan.changes if not row.is_file_managed
    ]
    if documents and not dry_run:
        suites.put_canaries(store, task.suite, documents, now=now)
    changed = [one.in_file(row) for one, row in plan.changes]
    in_files = [one for one in changed if one.canary.is_file_managed]
    return {**plan.view, "patches": patch_files(task.suite, in_files), "changes": yaml_changes(task.suite, changed)}


class AdoptionPlan(Value):
    """What adopting changes."""

    view: AdoptionView
    """Without patches of files."""
    changes: "Sequence[tuple[AdoptedJudgments, CanaryRow]]"


def plan_adoption(connection: Connection, found: TaskGrades, canaries: Sequence[TaskCanary]) -> AdoptionPlan:
    """Return what adopting a task of chunks would change, given its grades and its canaries."""
    task = found.task
    ids = [one.canary_id for one in canaries]
    now_there = {row.id: row for row in catalog.list_canaries(connection, task.suite_id, ids=ids)}
    items: dict[int | None, list[ItemRow]] = {}
    for item in found.items:
        items.setdefault(item.canary_id, []).append(item)
    adopted: list[AdoptedCanary] = []
    to_commit: list[AdoptedCanary] = []
    left_out: list[LeftOutCanary] = []
    changes: list[tuple[AdoptedJudgments, CanaryRow]] = []
    for canary in canaries:
        row = now_there.get(canary.canary_id)
        one = _adopt_one(task_source(task.slug), canary, row, items.get(canary.canary_id, []), found)
        if row is None or isinstance(one, str):
            left_out.append({"canary": canary.key, "reason": str(one)})
            continue
        judgments, shown = one
        (to_commit if row.is_file_managed else adopted).append(shown)
        changes.append((judgments, row))
    view: AdoptionView = {
        "adopted": adopted,
        "to_commit": to_commit,
        "patches": [],
        "changes": "",
        "left_out": left_out,
        "doubt": None,
        "checks": [check.slug for check in checks_in_force(connection) if check.suite == task.suite],
    }
    return AdoptionPlan(view=view, changes=changes)


def _adopt_one(
    source: str, canary: TaskCanary, row: CanaryRow | None, items: list[ItemRow], found: TaskGrades
) -> "tuple[AdoptedJudgments, AdoptedCanary] | str":
    """Return the judgments that a canary gets, with their view, or why it gets none."""
    if row is None:
        return "it is archived"
    if any((row.body.get(name) or {}) != (canary.body.get(name) or {}) for name in ("query", "vars", "history")):
        return "its query was changed since the pool was made"
    document = CanaryDocument.model_validate(row.body)
    if document.to_domain().negative or document.expect_empty:
        return "it expects that nothing is found"
    agreed = [(item, found.consensus(item.id).grade) for item in items]
    graded = [(item, grade) for item, grade in agreed if grade is not None]
    if not graded:
        return "nothing is agreed on yet"
    named = Counter(chunk for item in items for chunk in item.chunk_ids)
    shared_ids = canary.shared_ids | {chunk for chunk, count in named.items() if count > 1}
    judgments = adopt_judgments(document, graded, shared_ids=shared_ids, source=source)
    if judgments.is_empty:
        unnamed = f"neither an id nor a text names {counted(len(judgments.unnamed), 'chunk')}"
        return unnamed if judgments.unnamed else "its judgments are the same already"
    return judgments, {
        "canary": row.key,
        "grades": dict(sorted(Counter(grade for _, grade in graded).items())),
        "added": len(judgments.added),
        "changed": len(judgments.changed),
        "kept": judgments.kept,
        "undecided": len(items) - len(graded),
        "unnamed": [
            {"ids": list(item.chunk_ids), "text": item.text[:_SHOWN_TEXT], "grade": grade}
            for item, grade in judgments.unnamed
        ],
    }


GradedItem = tuple[PoolItem, int]
"""An item with the grade that people agree on."""


class AdoptedJudgments(Value):
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

    @property
    def kept(self) -> int:
        """Number of the changed judgments that keep their grade."""
        grades = {one.identity: one.grade for one in self.canary.expected_chunks}
        return sum(grades.get(identity) == one.grade for identity, one in self.changed.items())

    def in_file(self, row: CanaryRow) -> FileCanary:
        """Return the same for the patch of the file that the canary is in."""
        old = [chunk for chunk in self.canary.expected_chunks if chunk.identity in self.changed]
        replacements = {judgment_name(chunk): (self.changed[chunk.identity],) for chunk in old}
        return FileCanary(canary=row, document=self.canary, replacements=replacements, added=self.added)


def adopt_judgments(
    canary: CanaryDocument, graded: Sequence[GradedItem], *, shared_ids: Collection[str] = (), source: str
) -> AdoptedJudgments:
    """Return what the grades of these items change in a canary; what they change or add comes from this source.

    So does a judgment with the same grade from another source: what was ticked in one answer is now judged in a pool.
    One that has no source keeps to have none, as somebody knew the document.
    A judgment is of the item of its normalised text, else of the one that has its chunk id and contains its text; one
    by document alone stays as it is. A new one names id and text, so that it is found again under another id; a known
    irrelevant one its id alone. One without an id of its own, as `shared_ids` are of several texts, or whose id a
    judgment of another text has, is named by its text.
    """
    by_key = {one[0].key: one for one in graded}
    by_id = {chunk: one for one in graded for chunk in one[0].chunk_ids if chunk not in shared_ids}
    changed: dict[ChunkIdentity, JudgmentDocument] = {}
    known: set[str] = set()
    others_ids = set(shared_ids)
    for chunk in (*canary.expected_chunks, *canary.forbidden_chunks):
        found = _find_item(chunk, by_key, by_id)
        if found is not None:
            item, grade = found
            known.add(item.key)
            if isinstance(chunk, JudgmentDocument) and (chunk.grade != grade or chunk.source not in {None, source}):
                # Known as irrelevant it had its id alone; what is expected is found again under another id by its text.
                names_text = grade and not chunk.grade and chunk.text is None and _is_usable(item.text)
                text = item.text if names_text else chunk.text
                changed[chunk.identity] = chunk.model_copy(update={"grade": grade, "source": source, "text": text})
        if chunk.id is not None and (found is None or chunk.id not in found[0].chunk_ids):
            others_ids.add(chunk.id)
    new = [(one, _new_judgment(*one, others_ids, source)) for one in graded if one[0].key not in known]
    return AdoptedJudgments(
        canary=canary,
        changed=changed,
        added=tuple(judgment for _, judgment in new if judgment is not None),
        unnamed=tuple(one for one, judgment in new if judgment is None),
    )


def _find_item(
    chunk: ChunkDocument, by_key: Mapping[str, GradedItem], by_id: Mapping[str, GradedItem]
) -> GradedItem | None:
    """Return the item that a chunk of a canary is, by its text or an id that names no other; None = none of them."""
    passage = None if chunk.text is None else prepare_passage(chunk.text)
    if chunk.text is not None and passage is not None:
        found = by_key.get(text_key(chunk.text, chunk=""))
        if found is not None:
            return found
    found = None if chunk.id is None else by_id.get(chunk.id)
    body = "" if found is None else normalise(found[0].text)
    if passage is not None and body and match_level(passage, body) is None:
        return None  # the same id of another text
    return found


def _is_usable(text: str) -> bool:
    """Whether a text can name a judgment."""
    return bool(normalise(text)) and len(text) <= _LONGEST_TEXT


def _new_judgment(item: PoolItem, grade: int, others_ids: Collection[str], source: str) -> JudgmentDocument | None:
    """Return the judgment of an item that has none; None = neither an id nor a text can name it."""
    name = next((chunk for chunk in item.chunk_ids if chunk not in others_ids), None)
    text = item.text if _is_usable(item.text) and (grade or name is None) else None
    if name is None and text is None:
        return None
    return JudgmentDocument(id=name, text=text, grade=grade, source=source)
