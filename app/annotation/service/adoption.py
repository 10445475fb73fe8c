"""Adoption: the consensus of a task becomes judgments of its canaries.

Canaries of the API are changed; those of files get a patch to commit, as re-anchored judgments do.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.annotation.documents.adopted_judgments import AdoptedJudgments, GradedItem, adopt_judgments
from app.annotation.domain.views import AdoptedCanary, AdoptionView, LeftOutCanary
from app.annotation.service.results import TaskGrades, read_grades
from app.annotation.service.tasks import find_task, items_by_chunk
from app.annotation.store import tasks as rows
from app.annotation.store.tasks import ItemRow, TaskCanary
from app.base.counts import counted
from app.base.db.engine import Store
from app.base.documents.validation_messages import parse_document
from app.base.errors import ConflictError
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.domain.judgment_sources import task_source
from app.catalog.service import suite_definitions
from app.catalog.service.references import checks_in_force, is_file_managed
from app.catalog.store import suites
from app.catalog.store.suites import CanaryRow
from app.diagnosis.service.reanchor_patches import FileCanary, patch_files

_SHOWN_TEXT: Final = 200
"""Characters that are shown of a text that names no judgment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Adopted:
    """A canary with its new judgments."""

    row: CanaryRow
    document: CanaryDocument
    judgments: AdoptedJudgments
    view: AdoptedCanary


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
        now_there = {row.id: row for row in suites.list_canaries(connection, task.suite_id, ids=ids)}
        checks = [check.slug for check in checks_in_force(connection) if check.suite == task.suite]
    items: dict[int | None, list[ItemRow]] = {}
    for item in found.items:
        items.setdefault(item.canary_id, []).append(item)
    adopted: list[_Adopted] = []
    left_out: list[LeftOutCanary] = []
    for canary in canaries:
        one = _adopt_one(
            task_source(slug), canary, now_there.get(canary.canary_id), items.get(canary.canary_id, []), found
        )
        if isinstance(one, str):
            left_out.append({"canary": canary.key, "reason": one})
        else:
            adopted.append(one)
    here = [one for one in adopted if not is_file_managed(one.row)]
    in_files = [one for one in adopted if is_file_managed(one.row)]
    if here and not dry_run:
        documents = [parse_document(CanaryDocument, _file_canary(one).body) for one in here]
        suite_definitions.put_canaries(store, task.suite, documents, now=now)
    return {
        "adopted": [one.view for one in here],
        "to_commit": [one.view for one in in_files],
        "patches": patch_files(task.suite, [_file_canary(one) for one in in_files if patches]),
        "left_out": left_out,
        "checks": checks,
    }


def _adopt_one(
    source: str, canary: TaskCanary, row: CanaryRow | None, items: list[ItemRow], found: TaskGrades
) -> _Adopted | str:
    """Return a canary with its new judgments, or why it gets none."""
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
    view: AdoptedCanary = {
        "canary": row.key,
        "grades": dict(sorted(Counter(one.grade for one in graded).items())),
        "added": len(judgments.added),
        "changed": len(judgments.replaced),
        "undecided": undecided,
        "unnamed": [
            {"ids": list(ids_of[one.key]), "text": one.text[:_SHOWN_TEXT], "grade": one.grade}
            for one in judgments.unnamed
        ],
    }
    return _Adopted(row=row, document=document, judgments=judgments, view=view)


def _file_canary(one: _Adopted) -> FileCanary:
    return FileCanary(
        canary=one.row, document=one.document, replacements=one.judgments.replaced, added=one.judgments.added
    )
