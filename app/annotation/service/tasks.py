"""Annotation tasks: defined, pooled and archived; and corpora that they draw from."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Final

from app.annotation.documents import TaskDocument, read_corpus
from app.annotation.domain.agreement import is_overlap
from app.annotation.domain.pools import (
    CanaryPool,
    Corpus,
    KnownCanary,
    PoolItem,
    canary_random,
    draw_items,
    draw_planted,
    merge_rankings,
    text_key,
)
from app.annotation.store import task_rows as rows
from app.annotation.store.task_rows import CorpusText, ItemRow, NewItem, PoolCounts, TaskCanary, TaskRow
from app.annotation.views import CorpusView, TaskDetail, TaskView
from app.base.db.engine import Connection, Store, to_us
from app.base.db.keys import Vault
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem, require_found
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.texts import Source
from app.base.values import (
    EMPTY,
    Answer,
    Outcome,
    Ranking,
    Turn,
    Value,
    replace,
)
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument
from app.experiments import store as shadow_rows
from app.retrievers.domain.probes import CircuitBreaker, ask_in_turn, outcome_text
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind
from app.retrievers.service.trials import stored_retriever
from app.scoring.words import normalise


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
            del body["pairs"]  # an older release reads this too, and knows neither pairs nor checks
        if not document.checks:
            del body["checks"]
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


def count_graded(store: Store) -> dict[str, int]:
    """Count the items that people have graded, by task."""
    with store.read() as connection:
        graded = rows.graded_items(connection)
        return {task.slug: graded.get(task.id, 0) for task in rows.list_tasks(connection)}


def task_of(store: Store, annotator: str, *, now: datetime) -> str | None:
    """Return the task that an annotator graded in, the newest of several; else the only one; None = there is none."""
    with store.read() as connection:
        begun = [task for task in rows.list_tasks(connection) if task.pool_requested_at is not None]
        done = {
            task: rows.annotator_progress(connection, task.id, annotator, newest=0, now=to_us(now)) for task in begun
        }
    graded = [task for task, progress in done.items() if progress.graded or progress.skipped]
    known = graded or (begun if len(begun) == 1 else [])
    return max(known, key=lambda task: task.created_at).slug if known else None


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


def view_task(task: TaskRow, counts: PoolCounts) -> TaskView:
    """Return a task as JSON on the wire."""
    return view_of(TaskView, task, counts, task.document)


def _detail(connection: Connection, task: TaskRow) -> TaskDetail:
    return {
        **view_task(task, rows.count_pool(connection, task.id)),
        "failures": [
            {"canary": one.key, "reason": one.failure or ""}
            for one in rows.list_task_canaries(connection, task.id, failed=True)
        ],
        "planted_fewer": task.planting or None,
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
        places_by_chunk={chunk: row_id for _, chunk, row_id in texts},
    )
    while not stopping():
        with store.read() as connection:
            canaries = rows.pending_canaries(connection, task_id, attempts=MOST_ATTEMPTS, limit=BLOCK)
        if not canaries:
            _plant(store, frame)
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


class _Frame(Value):
    """What the pools of all canaries of a task have in common."""

    task: TaskRow
    retrievers: tuple[Retriever, ...]
    corpus: Corpus
    text_ids: Sequence[int]
    """Row ids of the texts of the corpus, by their places."""
    keys_by_chunk: Mapping[str, str]
    """Identities of the texts of the corpus by their ids there."""
    places_by_chunk: Mapping[str, int]
    """Row ids of the texts of the corpus by their ids there."""


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
        ProbeQuery(
            position=place,
            query=str(one.body["query"]),
            key=one.key,
            vars=one.body.get("vars") or EMPTY,
            history=tuple(Turn(**turn) for turn in one.body.get("history") or ()),
        )
        for place, one in enumerate(canaries)
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


def _plant(store: Store, frame: _Frame) -> None:
    """Mix texts with a known grade into the items of all canaries that have a pool, once; see `draw_planted`."""
    task = frame.task
    if not task.document.checks:
        return
    with store.read() as connection:
        canaries = [one for one in rows.list_task_canaries(connection, task.id) if one.sizes is not None]
        items = rows.list_items(connection, task.id)
    documents = {one.canary_id: CanaryDocument.model_validate(one.body) for one in canaries}
    judgments = {
        canary_id: [one for one in document.expected_chunks if one.grade]
        for canary_id, document in documents.items()
        if not document.to_domain().negative and not document.expect_empty
    }
    confirmed = _confirmed(store, {one.source for of in judgments.values() for one in of if one.source is not None})
    texts = _known_texts(store, frame, items, {one.id for of in judgments.values() for one in of if one.id is not None})
    known = []
    for canary_id, of_canary in judgments.items():
        expected = {}
        firm = set()
        for one in of_canary:
            text = one.text or texts.get(one.id or "", "")
            if normalise(text):
                key = text_key(text, chunk="")
                expected[key] = (text, one.grade)
                if one.source is None or (one.source, canary_id, key) in confirmed:
                    firm.add(key)
        known.append(
            KnownCanary(
                id=canary_id,
                expected=expected,
                documents={name for one in of_canary for name in (one.id, one.document) if name is not None},
                shown={item.key for item in items if item.canary_id == canary_id},
                doubtful=expected.keys() - firm,
            )
        )
    planting = draw_planted(known, task.document.checks, canary_random(task.document.seed, "planted"))
    with store.write() as connection:
        rows.plant(
            connection,
            task.id,
            [
                new_item(task, item, canary_id=canary_id, name=f"{canary_id}:planted:{item.key}")
                for canary_id, item in planting.items
            ],
            reason=planting.reason,
        )


def _confirmed(store: Store, sources: Collection[str]) -> set[tuple[str, int, str]]:
    """Return (source, canary id, key) of the texts that two people or more graded in these tasks, all as relevant."""
    found = set()
    with store.read() as connection:
        for source in sources:
            kind, _, slug = source.partition(":")
            task = rows.find_task(connection, slug) if kind == "task" else None
            if task is None:
                continue
            grades: dict[int, list[int]] = {}
            for said in rows.list_annotations(connection, task.id):
                if said.grade is not None and not said.by_judge:
                    grades.setdefault(said.item_id, []).append(said.grade)
            agreed = {item for item, of_item in grades.items() if len(of_item) > 1 and all(of_item)}
            found |= {
                (source, item.canary_id, item.key)
                for item in rows.list_items(connection, task.id)
                if item.id in agreed and item.canary_id is not None and item.known_grade is None
            }
    return found


def _known_texts(store: Store, frame: _Frame, items: Sequence[ItemRow], ids: set[str]) -> dict[str, str]:
    """Return the texts of these chunk ids, as retrievers return them or the corpus has them; none of several texts."""
    found: dict[str, set[str]] = {}
    for item in items:
        for chunk in ids.intersection(item.chunk_ids):
            found.setdefault(chunk, set()).add(item.text)
    places = {chunk: place for chunk, place in frame.places_by_chunk.items() if chunk in ids and chunk not in found}
    with store.read() as connection:
        for one in rows.read_texts(connection, list(places.values())).values():
            found[one.chunk] = {one.text}
    return {chunk: next(iter(texts)) for chunk, texts in found.items() if len(texts) == 1}


def new_item(task: TaskRow, item: PoolItem, *, canary_id: int | None, name: str) -> NewItem:
    """Return an item of a task, by what names it there; its token tells annotators nothing of where it came from."""
    identity, document = f"{task.id}:{name}", task.document
    return NewItem(
        canary_id=canary_id,
        token=sha256(f"{document.seed}:{identity}".encode()).hexdigest()[:20],
        overlap=is_overlap(identity, share=document.overlap, seed=document.seed),
        **{name: getattr(item, name) for name in PoolItem.__struct_fields__},
    )


_TEXTS: Final = 2_000
"""Texts that are written, or deleted, in one transaction."""


def add_texts(
    store: Store, name: str, sources: Sequence[Source], *, now: datetime, added: Callable[[int], None] = lambda _: None
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
            if rows.drop_corpus(connection, found.id, texts=_TEXTS):
                return
