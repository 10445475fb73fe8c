"""Annotation tasks: defined, pooled and archived; corpora that they draw from; annotations item by item or as files.

Annotators see items without rank, score, retriever or stratum: who knows where a chunk came from grades it by that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Final

from app.annotation import store as rows
from app.annotation.documents import (
    SKIPPED,
    AnnotationLine,
    TaskDocument,
    read_annotations,
    read_corpus,
    write_annotations,
)
from app.annotation.domain import (
    LABEL_QUESTIONS,
    PACE_OF,
    CanaryPool,
    Corpus,
    PoolItem,
    canary_random,
    draw_items,
    is_overlap,
    merge_rankings,
    next_of,
    pace,
    text_key,
)
from app.annotation.store import (
    CorpusText,
    ItemRow,
    NewItem,
    PoolCounts,
    TaskCanary,
    TaskRow,
    defer_results,
)
from app.annotation.views import (
    AnswerContext,
    CorpusView,
    ItemView,
    NextItem,
    PairContext,
    ProgressView,
    TaskDetail,
    TaskView,
)
from app.base.db.engine import Connection, Store, to_us
from app.base.db.keys import Identity, Vault
from app.base.documents.fields import MOST_PROBLEMS, one_line
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem, require_found
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.texts import Source
from app.base.values import Answer, Outcome, Ranking
from app.base.views import view_of
from app.catalog import store as catalog
from app.experiments import store as shadow_rows
from app.retrievers.domain.probes import CircuitBreaker, ask_in_turn, outcome_text
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind
from app.retrievers.service.trials import stored_retriever


def put_task(
    store: Store, document: TaskDocument, *, by: str, now: datetime, only_new: bool = False
) -> tuple[TaskDetail, bool]:
    """Create a task, or change one whose pool nobody has asked for; and whether it is new.

    Raises InvalidInputError where it names what does not exist, and ConflictError once the pool is asked for; with
    `only_new` wherever there is one.
    """
    with store.write() as connection:
        suite_id = _require_references(connection, document)
        body = document.data()
        if document.pairs is None:
            del body["pairs"]  # an older release reads this too, and knows no pairs
        created = rows.insert_task(connection, slug=document.slug, suite_id=suite_id, body=body, at=to_us(now), by=by)
        if only_new and not created:
            raise ConflictError(f"there is a task '{document.slug}' already")
        task = find_task(connection, document.slug)
        same = created or task.document == document
        if not same and not rows.change_task(connection, task.id, suite_id=suite_id, body=body):
            raise ConflictError(
                f"the pool of task '{document.slug}' was asked for, so it cannot be changed; create another task"
            )
        return _detail(connection, find_task(connection, document.slug)), created


def load_task(store: Store, slug: str) -> TaskDetail:
    """Return a task. Raises NotFoundError."""
    with store.read() as connection:
        return _detail(connection, find_task(connection, slug))


def list_tasks(store: Store, *, after: str = "", limit: int) -> list[TaskView]:
    """List tasks by slug, those behind `after`."""
    with store.read() as connection:
        return [
            view_task(task, rows.count_pool(connection, task.id))
            for task in rows.list_tasks(connection, after=after, limit=limit)
        ]


def archive_task(store: Store, slug: str, *, now: datetime) -> None:
    """Archive a task; what annotators said stays, queries of users in its pairs do not. Raises NotFoundError."""
    with store.write() as connection:
        task = find_task(connection, slug)
        rows.archive_task(connection, task.id, to_us(now))
        if task.of_pairs:
            rows.forget_texts(connection, task.id)


def find_task(connection: Connection, slug: str) -> TaskRow:
    """Return a task in force. Raises NotFoundError, also for an archived one."""
    return require_found(rows.find_task(connection, slug), f"task '{slug}'")


def items_by_chunk(items: Iterable[ItemRow]) -> dict[tuple[int | None, str], list[ItemRow]]:
    """Return items by canary and chunk id; several where retrievers use one id for different texts."""
    found: dict[tuple[int | None, str], list[ItemRow]] = {}
    for item in items:
        for chunk in {chunk for _, chunk in item.chunks}:
            found.setdefault((item.canary_id, chunk), []).append(item)
    return found


def view_task(task: TaskRow, counts: PoolCounts) -> TaskView:
    """Return a task as JSON on the wire."""
    return view_of(TaskView, task, counts, task.document)


def _detail(connection: Connection, task: TaskRow) -> TaskDetail:
    canaries = rows.list_task_canaries(connection, task.id)
    return {
        **view_task(task, rows.count_pool(connection, task.id)),
        "failures": [
            {"canary": one.key, "reason": one.failure}
            for one in canaries
            if one.sizes is None and one.failure is not None
        ],
    }


def _require_references(connection: Connection, document: TaskDocument) -> int:
    """Return the id of the suite. Raises InvalidInputError for every name of a task that does not exist."""
    problems = []
    suite = catalog.find_definition(connection, "suite", document.suite)
    if suite is None or suite.archived_at is not None:
        problems.append(Problem(path="suite", message=f"there is no suite '{document.suite}'"))
    for place, slug in enumerate(document.retrievers):
        retriever = catalog.find_definition(connection, "retriever", slug)
        if retriever is None or retriever.archived_at is not None:
            problems.append(Problem(path=f"retrievers[{place}]", message=f"there is no retriever '{slug}'"))
    judge = None if document.answers is None else document.answers.judge
    row = None if judge is None else catalog.find_definition(connection, "judge", judge)
    if judge is not None and (row is None or row.archived_at is not None):
        problems.append(Problem(path="answers.judge", message=f"there is no judge '{judge}'"))
    pairs = document.pairs
    if pairs is not None and shadow_rows.find_shadow(connection, pairs.shadow) is None:
        reason = f"there is no shadow '{pairs.shadow}' that keeps pairs; define it by PUT /v1/shadows/{pairs.shadow}"
        problems.append(Problem(path="pairs.shadow", message=reason))
    if document.corpus is not None and rows.find_corpus(connection, document.corpus) is None:
        problems.append(Problem(path="corpus", message=f"there is no corpus '{document.corpus}'"))
    if problems or suite is None:
        raise InvalidInputError(problems)
    return suite.id


BLOCK: Final = 20
"""Canaries asked and written at a time."""
MOST_ATTEMPTS: Final = 3
"""How often a canary is tried before somebody has to ask for the pool again."""


def request_pool(store: Store, slug: str, *, now: datetime) -> None:
    """Freeze the canaries of a task and have its pool made; asked again, those that failed are tried once more.

    Answers and pairs are drawn. Raises NotFoundError, and ConflictError where the suite has no canaries.
    """
    with store.write() as connection:
        task = find_task(connection, slug)
        answers = task.document.answers
        if answers is not None or task.of_pairs:
            rows.request_draw(connection, task.id, to_us(now))
            # A judge has one job at a time, by which its budget is counted.
            lock = None if answers is None else f"judge:{answers.judge}"
            defer(connection, [NewJob(JobKind.DRAWING, task.id, lock=lock)])
        elif not rows.freeze_canaries(connection, task, to_us(now), keys=task.document.keys):
            raise ConflictError(f"suite '{task.suite}' has no canaries")
        elif task.pooled_at is None:
            rows.forgive_failures(connection, task.id)
            defer(connection, [NewJob(JobKind.POOL, task.id)])


def make_pool(
    store: Store,
    vault: Vault,
    probe: Probe,
    task_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Ask the retrievers of a task for all canaries that have no pool; False where it was let go of, stopping.

    A canary that a retriever does not answer is tried `MOST_ATTEMPTS` times. The retrievers' own limits hold.
    """
    with store.read() as connection:
        task = rows.read_task(connection, task_id)
        if task is None or task.archived_at is not None:
            return True
        document = task.document
        corpus = None if document.corpus is None else rows.find_corpus(connection, document.corpus)
        texts = [] if corpus is None else rows.corpus_keys(connection, corpus.id)
    try:
        retrievers = [stored_retriever(store, vault, one, {}).to_domain() for one in document.retrievers]
    except (NotFoundError, InvalidInputError) as error:
        _fail(store, task_id, str(error))
        return True
    frame = _Frame(
        task=task,
        # Ranks alone are needed: no embedder or reranker scores the hits.
        retrievers=tuple(replace(one, scorer=Scorer(kind=ScorerKind.JUDGED)) for one in retrievers),
        corpus=Corpus.of(key for key, _, _ in texts),
        text_ids=[row_id for _, _, row_id in texts],
        keys_by_chunk={chunk: key for key, chunk, _ in texts},
    )
    while not stopping():
        with store.read() as connection:
            canaries = rows.pending_canaries(connection, task_id, attempts=MOST_ATTEMPTS, limit=BLOCK)
        if not canaries:
            with store.write() as connection:
                rows.finish_pool(connection, task_id, to_us(clock()))
            return True
        try:
            _pool_block(store, probe, frame, canaries, stopping)
        except InvalidInputError as error:  # a retriever that cannot be asked as it is defined
            _fail(store, task_id, str(error))
            return True
    return False


def _fail(store: Store, task_id: int, reason: str) -> None:
    """Store why no canary without a pool gets one, until somebody asks for it again."""
    with store.write() as connection:
        for canary in rows.pending_canaries(connection, task_id, attempts=MOST_ATTEMPTS, limit=None):
            rows.note_failure(connection, task_id, canary.canary_id, reason, attempts=MOST_ATTEMPTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What the pools of all canaries of a task have in common."""

    task: TaskRow
    retrievers: tuple[Retriever, ...]
    corpus: Corpus
    text_ids: Sequence[int]
    """Row ids of the texts of the corpus, by their places."""
    keys_by_chunk: Mapping[str, str]
    """Identities of the texts of the corpus by their ids there."""


def _pool_block(
    store: Store, probe: Probe, frame: _Frame, canaries: Sequence[TaskCanary], stopping: Callable[[], bool]
) -> None:
    """Ask for some canaries and write what is to be graded; nothing is written where stopping cut the asking short."""
    answers = [_ask(probe, retriever, frame, canaries, stopping) for retriever in frame.retrievers]
    if stopping():
        return
    pools: dict[int, CanaryPool] = {}
    failures: dict[int, str] = {}
    for place, canary in enumerate(canaries):
        rankings: dict[str, Ranking] = {}
        for retriever, column in zip(frame.retrievers, answers, strict=True):
            answer = column[place]
            failure = _failure(answer)
            if failure is not None:
                failures[canary.canary_id] = f"{retriever.slug}: {failure}"
            elif answer is not None and answer.ranking is not None:
                rankings[retriever.slug] = answer.ranking
        if canary.canary_id not in failures:
            pools[canary.canary_id] = _draw(store, frame, canary, rankings)
    with store.write() as connection:
        for canary_id, pool in pools.items():
            rows.save_pool(
                connection,
                frame.task.id,
                canary_id,
                sizes=pool.sizes,
                items=[
                    new_item(frame.task, item, canary_id=canary_id, name=f"{canary_id}:{item.key}")
                    for item in pool.items
                ],
                shared_ids=pool.shared_ids,
            )
        for canary_id, failure in failures.items():
            rows.note_failure(connection, frame.task.id, canary_id, failure)


def _ask(
    probe: Probe, retriever: Retriever, frame: _Frame, canaries: Sequence[TaskCanary], stopping: Callable[[], bool]
) -> list[Answer | None]:
    """Return the answers of a retriever in the order of the canaries; None = it was not asked."""
    context = ProbeContext(retriever=retriever, k=frame.task.document.plan.depth, run_id=f"task-{frame.task.slug}")
    queries = [
        ProbeQuery(position=place, query=str(canary.body["query"]), key=canary.key)
        for place, canary in enumerate(canaries)
    ]
    breaker = CircuitBreaker(limit=retriever.breaker)
    answers, _ = ask_in_turn(probe, context, queries, breaker, stopping=stopping)
    return [answers.get(place) for place in range(len(canaries))]


def _failure(answer: Answer | None) -> str | None:
    """Return why an answer cannot be pooled; None = it can."""
    if answer is None:
        return "not asked, because queries before it failed"
    if answer.outcome is not Outcome.OK or answer.ranking is None:
        return answer.detail or outcome_text(answer.outcome, answer.http_status)
    if answer.ranking and not any(answer.ranking.texts):
        return "its hits have no text that people could read: map `text` in its response"
    return None


def _draw(store: Store, frame: _Frame, canary: TaskCanary, rankings: dict[str, Ranking]) -> CanaryPool:
    """Draw what is graded of a canary, with random negatives where the task has a corpus."""
    plan, random = frame.task.document.plan, canary_random(frame.task.document.seed, canary.key)
    ranked = merge_rankings(rankings, plan.bounds)
    pool = draw_items(ranked, plan, random)
    if not plan.rest:
        return pool
    known = {item.key for item in ranked}
    # A retriever may return a text of the corpus with its title, or cut: the same id is the same text.
    known |= {frame.keys_by_chunk[one] for item in ranked for _, one in item.chunks if one in frame.keys_by_chunk}
    places, size = frame.corpus.draw(plan.rest, known=known, random=random)
    with store.read() as connection:
        texts = rows.read_texts(connection, [frame.text_ids[place] for place in places])
    drawn = [
        PoolItem(key=one.key, text=one.text, stratum=len(pool.sizes), chunks=(("", one.chunk),))
        for one in texts.values()
    ]
    return replace(pool, items=(*pool.items, *drawn), sizes=(*pool.sizes, size))


def new_item(task: TaskRow, item: PoolItem, *, canary_id: int | None, name: str) -> NewItem:
    """Return an item of a task, by what names it there; its token tells annotators nothing of where it came from."""
    identity, document = f"{task.id}:{name}", task.document
    return NewItem(
        canary_id=canary_id,
        token=sha256(f"{document.seed}:{identity}".encode()).hexdigest()[:20],
        overlap=is_overlap(identity, share=document.overlap, seed=document.seed),
        **{one.name: getattr(item, one.name) for one in fields(PoolItem)},
    )


_TEXTS: Final = 2_000
"""Texts that are written, or deleted, in one transaction."""


def add_texts(
    store: Store,
    name: str,
    sources: Sequence[Source],
    *,
    now: datetime,
    added: Callable[[int], None] = lambda _: None,
) -> CorpusView:
    """Add texts to a corpus, which is created where there is none; a text that it has is passed over.

    All lines are read before the first is stored: a wrong one takes none. In several transactions, with a block of
    texts in memory at a time: sent again after an error, nothing is there twice. Raises InvalidInputError.
    """
    for _ in read_corpus(sources):
        pass
    with store.write() as connection:
        corpus_id = rows.open_corpus(connection, name, to_us(now))
    texts = read_corpus(sources)
    while block := [
        CorpusText(key=text_key(text, chunk=chunk), chunk=chunk, text=text) for chunk, text in islice(texts, _TEXTS)
    ]:
        with store.write() as connection:
            rows.add_texts(connection, corpus_id, block)
        added(len(block))
    return load_corpus(store, name)


def load_corpus(store: Store, name: str) -> CorpusView:
    """Return a corpus. Raises NotFoundError."""
    with store.read() as connection:
        return view_of(CorpusView, require_found(rows.find_corpus(connection, name), f"corpus '{name}'"))


def list_corpora(store: Store) -> list[CorpusView]:
    """List the corpora by name."""
    with store.read() as connection:
        return [view_of(CorpusView, row) for row in rows.list_corpora(connection)]


def delete_corpus(store: Store, name: str) -> None:
    """Delete a corpus; items that tasks drew from it keep their texts. Raises NotFoundError."""
    with store.read() as connection:
        found = require_found(rows.find_corpus(connection, name), f"corpus '{name}'")
    while True:
        with store.write() as connection:
            if rows.drop_texts(connection, found.id, _TEXTS) < _TEXTS:
                rows.drop_corpus(connection, found.id)
                return


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


def next_item(store: Store, slug: str, *, annotator: str) -> NextItem:
    """Return the next item for an annotator and the one after it, and how far the task is. Raises NotFoundError."""
    with store.read() as connection:
        return _next(connection, find_task(connection, slug), annotator)


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
    return next_item(store, slug, annotator=annotator)


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
    with store.read() as connection:
        found = _next(connection, task, annotator)
        [item] = rows.list_items(connection, task.id, ids=[item_id])
        return {**found, "item": _view(connection, task, item), "following": None}


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


def _next(connection: Connection, task: TaskRow, annotator: str) -> NextItem:
    chosen: list[ItemView] = []
    seed = task.document.seed
    last = rows.last_canary(connection, task.id, annotator)
    left = {} if last is None else rows.open_items(connection, task.id, annotator, canary_id=last)
    canaries: set[int | None] | None = None
    while len(chosen) < 2:  # noqa: PLR2004 - the next and the one to prefetch
        if not left:
            if canaries is None:
                canaries = set(rows.open_canaries(connection, task.id, annotator))
                canaries -= set() if last is None else {last}
            if not canaries:
                break
            canary_id = next_of(canaries, seed=seed, annotator=annotator)
            canaries.discard(canary_id)
            left = rows.open_items(connection, task.id, annotator, canary_id=canary_id)
            continue
        token = next_of(left, seed=seed, annotator=annotator)
        assert token is not None  # noqa: S101 - there is one left
        [item] = rows.list_items(connection, task.id, ids=[left.pop(token)])
        chosen.append(_view(connection, task, item))
    found = rows.annotator_progress(connection, task.id, annotator, newest=PACE_OF)
    each = pace(found.seconds)
    seconds = None if each is None else round(each * found.left, 1)
    return {
        "item": chosen[0] if chosen else None,
        "following": chosen[1] if len(chosen) > 1 else None,
        "progress": view_of(ProgressView, found, annotator=annotator, seconds_left=seconds),
    }


def _view(connection: Connection, task: TaskRow, item: ItemRow, grade: int | None = None) -> ItemView:
    if item.canary_id is None:
        pair = rows.read_pair_items(connection, item.task_id, item_id=item.id)[item.id]
        sides: PairContext = {"left": list(pair.left), "right": list(pair.right)}
        return {"id": item.token, "query": pair.query, "text": "", "grade": grade, "answer": None, "pair": sides}
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
    return {
        "id": item.token,
        "query": str(canary.body["query"]) if beside is None else beside.query,
        "text": item.text,
        "grade": grade,
        "answer": context,
        "pair": None,
    }


def export_annotations(store: Store, slug: str, *, by_judge: bool = False) -> str:
    """Return the annotations of people in force as CSV, or those of judges, ordered by canary. Raises NotFoundError."""
    with store.read() as connection:
        task = find_task(connection, slug)
        keys = {one.canary_id: one.key for one in rows.list_task_canaries(connection, task.id)}
        items = {item.id: item for item in rows.list_items(connection, task.id)}
        said = [row for row in rows.list_annotations(connection, task.id) if row.by_judge is by_judge]
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
        said = rows.list_annotations(connection, task.id)
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
