"""Shadows: defined, read over time, deleted with all that is kept of them; and how their candidate is asked.

Pairs of answers come from clients, or the candidate is asked a share of the queries. The most different pairs become
the items of a task.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, cast

from app.annotation.domain.pools import PoolItem
from app.annotation.service.annotations import read_grades
from app.annotation.service.tasks import new_item
from app.annotation.store import task_rows
from app.annotation.store.task_rows import NewItem, PairItem, TaskRow
from app.base.db.engine import Connection, Store, answer_before, from_us, to_us
from app.base.db.keys import Vault
from app.base.documents.fields import MOST_PROBLEMS
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem, require_found
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.statistics import hash_share
from app.base.texts import counted
from app.base.values import Answer, Outcome, Value, replace
from app.base.views import rounded, time_text, view_of
from app.catalog import store as catalog
from app.experiments import store as rows
from app.experiments.documents import ShadowDocument, ShadowPair, domain_hits
from app.experiments.domain.experiments import (
    ComparedPair,
    Hits,
    ShadowHit,
    compare_pair,
    count_preferences,
    cut_to,
    is_asked,
    shown_texts,
)
from app.experiments.store import DefinedShadow, NewPair, NewQuestion, PairRow, Question, ShadowRow, ShadowSums
from app.experiments.tables import shadow_parts
from app.experiments.views import ComparisonView, DifferentPair, ReceivedPairs, ShadowDetail, ShadowFigures, ShadowView
from app.retrievers.domain.probes import CircuitBreaker, ask_in_turn
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind
from app.retrievers.service.trials import stored_retriever
from app.traffic.service.intake import name_part

MOST_HOURS: Final = 720


def put_shadow(store: Store, document: ShadowDocument, *, by: str, now: datetime, only_new: bool = False) -> bool:
    """Define a shadow or change its share, `k` and how many pairs it keeps; whether it is new.

    Pairs that clients sent under its name before count on. Raises InvalidInputError for a candidate that does not
    exist, and ConflictError for another one than before, whose figures would be mixed with these; with `only_new`
    wherever it is defined.
    """
    with store.write() as connection:
        if document.candidate is not None:
            retriever = catalog.find_definition(connection, "retriever", document.candidate)
            if retriever is None or retriever.archived_at is not None:
                reason = f"there is no retriever '{document.candidate}'"
                raise InvalidInputError([Problem(path="candidate", message=reason)])
        body = document.data()
        if rows.insert_shadow(connection, document.slug, body, at=to_us(now), by=by) is not None:
            return True
        if only_new:
            raise ConflictError(f"there is a shadow '{document.slug}' already")
        shadow = rows.find_shadow(connection, document.slug, lock=True)
        assert shadow is not None  # noqa: S101 - it has the slug
        if shadow.document.candidate != document.candidate:
            raise ConflictError(
                f"the candidate of shadow '{document.slug}' cannot be changed: its figures are of it; create "
                "another shadow, or delete this one first"
            )
        rows.change_shadow(connection, shadow.id, body)
        rows.keep_pairs(connection, shadow.id, (), most=document.keep, at=to_us(now))
        return False


def list_shadows(store: Store, *, after: str = "", limit: int) -> list[ShadowView]:
    """List shadows by slug, those behind `after`."""
    with store.read() as connection:
        slugs = rows.list_slugs(connection, after=after, limit=limit)
        sums = rows.sum_hours(connection, slugs)
        return [_view(slug, sums.get(slug), rows.find_shadow(connection, slug)) for slug in slugs]


def load_shadow(store: Store, slug: str) -> ShadowDetail:
    """Return a shadow over time. Raises NotFoundError."""
    with store.read() as connection:
        shadow = rows.find_shadow(connection, slug)
        sums = rows.sum_hours(connection, [slug]).get(slug)
        if shadow is None and sums is None:
            raise NotFoundError(f"there is no shadow '{slug}'")
        hours = rows.newest_hours(connection, slug, MOST_HOURS)
        return {
            **_view(slug, sums, shadow),
            "waiting": 0 if shadow is None else rows.count_questions(connection, shadow.id),
            "kept": 0 if shadow is None else rows.count_pairs(connection, shadow.id),
            "comparisons": [] if shadow is None else load_comparisons(connection, shadow),
            "hours": [{**_figures(row.sums), "at": time_text(row.first)} for row in hours],
        }


def list_pairs(store: Store, slug: str, *, limit: int) -> list[DifferentPair]:
    """Return the most different pairs that are kept of a shadow, without the answers. Raises NotFoundError."""
    with store.read() as connection:
        shadow = require_found(rows.find_shadow(connection, slug), f"shadow '{slug}'")
        pairs = rows.list_pairs(connection, shadow.id, limit)
    return [{"query": one.query, "rbo": rounded(one.rbo)} for one in pairs]


def delete_shadow(store: Store, slug: str) -> None:
    """Delete a shadow with its figures, and what is kept of queries; tasks stay. Raises NotFoundError."""
    with store.write() as connection:
        shadow = rows.find_shadow(connection, slug, lock=True)
        if shadow is not None:
            rows.forget_questions(connection, shadow.id)
            rows.forget_pairs(connection, shadow.id)
        rows.forget_parts(connection, slug)
        if not rows.delete_shadow(connection, slug):
            raise NotFoundError(f"there is no shadow '{slug}'")


def _view(slug: str, row: ShadowRow | None, shadow: DefinedShadow | None) -> ShadowView:
    return view_of(
        ShadowView,
        dict.fromkeys(ShadowDocument.model_fields) if shadow is None else shadow.document,
        _figures(ShadowSums() if row is None else row.sums),
        slug=slug,
        first_at=None if row is None else time_text(row.first),
        last_at=None if row is None else time_text(row.last),
    )


def _figures(sums: ShadowSums) -> ShadowFigures:
    counts = dict.fromkeys(("rbo", "jaccard"), sums.pairs - sums.failed)
    counts |= dict.fromkeys(("a_seconds", "b_seconds"), sums.timed)
    means = {name: getattr(sums, name) / count if count else None for name, count in counts.items()}
    return view_of(ShadowFigures, means, sums, rounding=True)


_HOUR = 3_600_000_000


class AnsweredPair(Value):
    """What users got for a query and what the candidate gave; `b` None = it failed."""

    query: str
    a: Hits
    b: Hits | None
    a_seconds: float | None
    b_seconds: float | None


def _count(
    connection: Connection, slug: str, shadow: DefinedShadow | None, pairs: Sequence[AnsweredPair], at: int
) -> None:
    """Add pairs to the sums of the hour of `at`, and keep the most different ones with texts on both sides."""
    if not pairs:
        return
    answered = [
        (pair, pair.b, compare_pair([hit.id for hit in pair.a], [hit.id for hit in pair.b]))
        for pair in pairs
        if pair.b is not None
    ]
    times = [
        (pair.a_seconds, pair.b_seconds)
        for pair, _, _ in answered
        if pair.a_seconds is not None and pair.b_seconds is not None
    ]
    sums = ShadowSums(
        pairs=len(pairs),
        failed=len(pairs) - len(answered),
        rbo=sum(one.rbo for _, _, one in answered),
        jaccard=sum(one.jaccard for _, _, one in answered),
        a_empty=sum(not pair.a for pair, _, _ in answered),
        b_empty=sum(not b for _, b, _ in answered),
        timed=len(times),
        a_seconds=sum(a for a, _ in times),
        b_seconds=sum(b for _, b in times),
    )
    rows.add_sums(connection, slug, at - at % _HOUR, sums)
    different = []
    for pair, b, one in answered:
        texts = shown_texts(pair.a), shown_texts(b)
        if one.rbo < 1 and texts[0] and texts[1] and texts[0] != texts[1]:
            different.append(NewPair(query=pair.query, a=texts[0], b=texts[1], rbo=one.rbo))
    if different and shadow is not None and shadow.document.keep:
        rows.keep_pairs(connection, shadow.id, different, most=shadow.document.keep, at=at)


BLOCK: Final = 20
"""Queries asked and counted at a time."""
BLOCKS: Final = 25
"""Blocks of one shadow before others have their turn."""
PAUSE: Final = timedelta(minutes=1)
"""How long a candidate that does not answer is left alone, unless it asks for longer."""
LONGEST_PAUSE: Final = timedelta(hours=1)
_TURN: Final = timedelta(seconds=1)
"""Not at once: of the jobs that are due the oldest is taken."""


def ask_candidate(
    store: Store,
    vault: Vault,
    probe: Probe,
    shadow_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> datetime | None:
    """Ask the candidate of a shadow what waits; when to go on, None = nothing is left.

    What it fails to answer is counted as failed. Once its circuit breaker opens, it is left alone for a while, however
    much is sent meanwhile, and what was not asked waits. After some blocks other shadows have their turn.
    """
    breaker: CircuitBreaker | None = None
    for _ in range(BLOCKS):
        with store.read() as connection:
            shadow = rows.read_shadow(connection, shadow_id)
            waiting = [] if shadow is None else rows.next_questions(connection, shadow_id, BLOCK)
        if shadow is None or not waiting:
            return None
        if shadow.ask_after is not None and shadow.ask_after > to_us(clock()):
            return from_us(shadow.ask_after)
        document = shadow.document
        try:
            retriever = stored_retriever(store, vault, document.candidate or "", {}).to_domain()
            breaker = breaker or CircuitBreaker(limit=retriever.breaker)
            answers, breaker = _ask(probe, retriever, document.k, waiting, breaker, stopping)
        except (NotFoundError, InvalidInputError):
            return (
                clock() + PAUSE
            )  # it is archived, or cannot be asked as it is defined now; what waits is dropped in a day
        pairs = {one.id: _pair(one, answers[one.id]) for one in waiting if one.id in answers}
        at = to_us(clock())
        with store.write() as connection:
            # First, as intake and deletion do: whoever holds it waits for no row of this.
            if rows.read_shadow(connection, shadow_id, lock=True) is None:
                return None
            taken = rows.take_questions(connection, sorted(pairs))
            counted = [pair for number, pair in pairs.items() if number in taken]
            _count(connection, shadow.slug, shadow, counted, at)
            if breaker.is_open:
                wish = timedelta(seconds=breaker.retry_after_seconds or 0)
                rows.leave_alone(connection, shadow_id, to_us(clock() + min(max(PAUSE, wish), LONGEST_PAUSE)))
        if stopping():
            return clock()
    return clock() + _TURN


def _ask(
    probe: Probe,
    retriever: Retriever,
    k: int,
    waiting: Sequence[Question],
    breaker: CircuitBreaker,
    stopping: Callable[[], bool],
) -> tuple[dict[int, Answer], CircuitBreaker]:
    """Return the answers to some queries, by their ids; those that were not asked have none."""
    # Ranks alone are compared: nobody else is asked to score.
    plain = replace(retriever, scorer=Scorer(kind=ScorerKind.JUDGED))
    context = ProbeContext(retriever=plain, k=k, run_id="shadow")
    queries = [ProbeQuery(position=place, query=one.query) for place, one in enumerate(waiting)]
    answers, breaker = ask_in_turn(probe, context, queries, breaker, stopping=stopping)
    return {waiting[place].id: one for place, one in answers.items() if one.outcome is not Outcome.SKIPPED}, breaker


def _pair(question: Question, answer: Answer) -> AnsweredPair:
    ranking = answer.ranking
    hits: Hits | None = None
    if answer.outcome is Outcome.OK and ranking is not None:
        found = [ShadowHit(id=one, text=text) for one, text in zip(ranking.ids, ranking.texts, strict=True)]
        hits = cut_to(found, question.hits)
    return AnsweredPair(
        query=question.query, a=question.hits, b=hits, a_seconds=question.seconds, b_seconds=answer.latency_seconds
    )


MOST_WAITING: Final = 10_000
"""Queries that wait for the candidate of a shadow."""


def receive_pairs(
    store: Store, vault: Vault, slug: str, pairs: Sequence[ShadowPair], *, now: datetime, key: str | None = None
) -> ReceivedPairs:
    """Add pairs to the hour of now, and have the candidate asked a share of the queries that lack its answer.

    All or none. The first pairs of a slug begin a shadow. What comes with the `key` of what arrived within a day is not
    added again: the answer is that of the first time, with a note. Raises InvalidInputError where answers of the
    candidate are missing and nobody said whom to ask, and ConflictError where the key came with other pairs.
    """
    answered = [_answered(pair) for pair in pairs if not pair.waits]
    at = to_us(now)
    with store.write() as connection:
        shadow = rows.find_shadow(connection, slug, lock=True)  # held: what waits is counted, and grows
        chosen = _choose(shadow, slug, pairs)
        waiting = rows.count_questions(connection, shadow.id) if shadow is not None and chosen else MOST_WAITING
        room = max(0, MOST_WAITING - waiting)
        left_out = len(chosen[room:])
        full = f"{counted(left_out, 'query')} left out: {MOST_WAITING:,} wait for the candidate already"
        answer: ReceivedPairs = {
            "received": len(pairs),
            "compared": len(answered),
            "to_ask": len(chosen[:room]),
            "notes": [full] if left_out else [],
        }
        if key is not None:
            part = name_part(vault, key, json.dumps([pair.data() for pair in pairs]))
            before = answer_before(connection, shadow_parts, {"slug": slug}, part, answer, at=at)
            if before is not None:
                return cast("ReceivedPairs", before)
        _count(connection, slug, shadow, answered, at)
        if shadow is not None:
            rows.add_questions(connection, shadow.id, chosen[:room], at)
            if chosen[:room]:
                defer(connection, [NewJob(JobKind.SHADOW, shadow.id)])
    return answer


def _choose(shadow: DefinedShadow | None, slug: str, pairs: Sequence[ShadowPair]) -> list[NewQuestion]:
    """Return the queries that the candidate is asked. Raises InvalidInputError where nobody said whom to ask."""
    waiting = [(place, pair) for place, pair in enumerate(pairs) if pair.waits]
    if not waiting:
        return []
    document = None if shadow is None else shadow.document
    if document is None or document.candidate is None:
        reason = (
            "must have the hits of the candidate (b) or `b_failed: true`; for Coalmine to ask the candidate, name it: "
            f"PUT /v1/shadows/{slug} with `candidate`"
        )
        raise InvalidInputError(
            [Problem(path=f"pairs[{place}]", message=reason) for place, _ in waiting[:MOST_PROBLEMS]]
        )
    return [
        NewQuestion(query=pair.query, hits=domain_hits(pair.a), seconds=pair.a_seconds)
        for _, pair in waiting
        if is_asked(slug, pair.query, share=document.share)
    ]


def _answered(pair: ShadowPair) -> AnsweredPair:
    return AnsweredPair(
        query=pair.query,
        a=domain_hits(pair.a),
        b=None if pair.b is None else domain_hits(pair.b),
        a_seconds=pair.a_seconds,
        b_seconds=pair.b_seconds,
    )


_HALF: Final = 0.5


def draw_pairs(store: Store, task_id: int, *, now: datetime) -> None:
    """Make the most different pairs of a shadow the items of a task, once; without pairs it can be asked for again.

    Which side is the candidate's is decided by a hash, and stands neither on the page nor in a token.
    """
    with store.write() as connection:
        task = task_rows.read_task(connection, task_id, lock=True)  # archiving waits, and forgets what is drawn
        if task is None or task.archived_at is not None:
            return
        wanted = task.document.pairs
        if wanted is None:
            return
        shadow = rows.find_shadow(connection, wanted.shadow)
        if shadow is not None and not task_rows.count_pool(connection, task_id).items:
            found = rows.list_pairs(connection, shadow.id, wanted.count)
            made = [_item(task, pair) for pair in found]
            pairs = {item.token: pair for item, pair in made}
            task_rows.save_pair_items(connection, task_id, pairs, [item for item, _ in made])
        task_rows.finish_pool(connection, task_id, to_us(now))


def load_comparisons(connection: Connection, shadow: DefinedShadow) -> list[ComparisonView]:
    """Return the tasks of a shadow with what people preferred, the newest first; not those of one that it replaced."""
    found = []
    for task in sorted(task_rows.list_tasks(connection), key=lambda task: -task.id):
        wanted = task.document.pairs
        if wanted is None or wanted.shadow != shadow.slug or task.created_at < shadow.created_at:
            continue
        grades = read_grades(connection, task)
        pairs = task_rows.read_pair_items(connection, task.id)
        counts = count_preferences(
            ComparedPair(grade=grades.consensus(item_id).grade, candidate_right=pair.candidate_right)
            for item_id, pair in pairs.items()
        )
        found.append(view_of(ComparisonView, counts, rounding=True, task=task.slug, state=task.state, pairs=len(pairs)))
    return found


def _item(task: TaskRow, pair: PairRow) -> tuple[NewItem, PairItem]:
    shown = PoolItem(key=str(pair.id), text="", chunks=(("", f"pair-{pair.id}"),))
    item = new_item(task, shown, canary_id=None, name=f"pair:{pair.id}")
    right = hash_share(f"side:{task.document.seed}:{task.id}:pair:{pair.id}") < _HALF
    left, other = (pair.a, pair.b) if right else (pair.b, pair.a)
    return item, PairItem(query=pair.query, left=left, right=other, candidate_right=right)
