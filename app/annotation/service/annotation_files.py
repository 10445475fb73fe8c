"""Annotations out of a task and into it, as CSV."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from app.annotation.documents.annotation_csv import SKIPPED, AnnotationLine, read_annotations, write_annotations
from app.annotation.domain.pooling import text_key
from app.annotation.service.tasks import document_of, find_task, items_by_chunk
from app.annotation.store import annotations
from app.annotation.store import tasks as rows
from app.annotation.store.recalls import defer_results
from app.annotation.store.tasks import ItemRow, TaskCanary
from app.base.db.engine import Store, to_us
from app.base.documents.fields import MOST_PROBLEMS, one_line
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.catalog.exchange import Source


def export_annotations(store: Store, slug: str, *, by_judge: bool = False) -> str:
    """Return the annotations of people in force as CSV, or those of judges, ordered by canary. Raises NotFoundError."""
    with store.read() as connection:
        task = find_task(connection, slug)
        keys = {one.canary_id: one.key for one in rows.list_task_canaries(connection, task.id)}
        items = {item.id: item for item in rows.list_items(connection, task.id)}
        said = [row for row in annotations.list_annotations(connection, task.id) if row.by_judge is by_judge]
    said.sort(key=lambda row: (items[row.item_id].canary_id or 0, items[row.item_id].token, row.annotator))
    return write_annotations(
        AnnotationLine(
            canary="" if item.canary_id is None else keys[item.canary_id],
            chunk_id=next((chunk for _, chunk in item.chunks), ""),
            document=item.document or "",
            text=item.text,
            annotator=row.annotator,
            grade=row.grade,
        )
        for row in said
        for item in (items[row.item_id],)
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
        items = rows.list_items(connection, task.id)
        said = annotations.list_annotations(connection, task.id)
    if task.of_pairs:
        raise ConflictError(f"task '{slug}' is of pairs, which are compared on its page: they have no chunks to name")
    if by_judge and task.of_answers:
        raise ConflictError(f"task '{slug}' is of answers that a judge rated; what it said is known")
    by_text = {(item.canary_id, item.key): item for item in items}
    by_chunk = items_by_chunk(items)
    canaries = {one.key: one for one in listed}
    chosen: list[tuple[ItemRow, AnnotationLine]] = []
    problems: list[Problem] = []
    first: dict[tuple[int, str], AnnotationLine] = {}
    for line in read_annotations(sources, highest=document_of(task).highest_grade):
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
            annotations.save_annotation(
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
