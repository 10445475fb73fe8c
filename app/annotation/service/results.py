"""Figures on the grades of a task: agreement of its annotators, budget, and pooled recall."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

import numpy as np

from app.annotation.domain.agreement import ConsensusState, measure_agreement
from app.annotation.domain.pools import PACE_OF, pace
from app.annotation.domain.recall import (
    GradedTask,
    QueryGrades,
    RecallEstimate,
    Said,
    SaidOfPlanted,
    SaidOfQuery,
    SampledStratum,
    WrongShare,
    estimate_recall,
    is_pooled_recall_self_judged,
    recall_frame,
)
from app.annotation.service import annotations
from app.annotation.service.annotations import TaskGrades, find_disagreements, plan_adoption, read_grades
from app.annotation.service.tasks import find_task
from app.annotation.store import recall_rows
from app.annotation.store import task_rows as rows
from app.annotation.store.judgment_rows import who_brought_up
from app.annotation.store.task_rows import AnnotationRow, ItemRow, TaskCanary, TaskRow
from app.annotation.views import (
    AdoptionDoubt,
    AdoptionView,
    AgreementView,
    AnnotatorView,
    BudgetView,
    DisagreementView,
    JudgeAgreementView,
    PairAgreementView,
    PooledRecallView,
    RecallView,
)
from app.base.db.engine import Connection, Store, cached_of_run, to_us
from app.base.errors import ConflictError
from app.base.texts import counted, percent_text
from app.base.values import Value, asdict
from app.base.views import rounded_or_none, view_of
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.domain import TAKEN_AS_RIGHT
from app.catalog.service.references import checks_in_force
from app.catalog.store import definition_by_id, made_since


class TaskFigures(Value):
    """All that the grades of a task come to."""

    agreement: AgreementView
    budget: BudgetView
    disagreements: Sequence[DisagreementView]
    recall: RecallView | None
    """None for a task of answers or pairs, and so is `plan`."""
    plan: AdoptionView | None
    """What adopting would change, without patches."""
    estimates: Sequence[RecallEstimate] = ()


def load_figures(store: Store, slug: str, *, may_write: bool) -> TaskFigures:
    """Return what the grades of a task come to, computed once as long as these and the suite stay as they are.

    `may_write`: with queries and texts of users, which pairs have. Raises NotFoundError.
    """
    with store.read() as connection:
        task = find_task(connection, slug)
        return _figures(connection, task, may_write=may_write or not task.of_pairs)


def _figures(connection: Connection, task: TaskRow, *, may_write: bool) -> TaskFigures:
    of_chunks = not task.of_answers and not task.of_pairs
    suite = definition_by_id(connection, task.suite_id)
    checks = tuple(check.slug for check in checks_in_force(connection) if check.suite == task.suite)
    edited = tuple(sorted(_edited_since(connection, task)))
    brought_up = _who_brought_up(connection, task)

    def make() -> tuple[TaskFigures, int]:
        found, canaries = read_grades(connection, task), rows.list_task_canaries(connection, task.id)
        recall, estimates = _recall(found, canaries, edited, brought_up) if of_chunks else (None, [])
        agreement = _agreement(found)
        plan = plan_adoption(connection, found, canaries).view if of_chunks else None
        figures = TaskFigures(
            agreement=agreement,
            budget=_budget(found),
            disagreements=find_disagreements(connection, found, canaries, may_write=may_write),
            recall=recall,
            estimates=estimates,
            plan=None if plan is None else {**plan, "doubt": _doubt(found, canaries, agreement)},
        )
        return figures, _FIGURES_BYTES * (1 + len(canaries))

    said = rows.version_of_grades(connection, task.id)
    return cached_of_run(
        connection, ("task figures", said, suite.revision, checks, edited, *brought_up.items(), may_write), make
    )


_FIGURES_BYTES: Final = 600


def adopt(store: Store, slug: str, *, now: datetime, dry_run: bool = False) -> AdoptionView:
    """Adopt a task as `annotations.adopt` does, with what was doubtful of its grades. Raises what that does."""
    plan = load_figures(store, slug, may_write=True).plan
    doubt = None if plan is None else plan["doubt"]
    return {**annotations.adopt(store, slug, now=now, dry_run=dry_run), "doubt": doubt}


MOST_WRONG: Final = 0.1
"""Share of what would be expected that may be wrong without a warning."""
LEAST_KAPPA: Final = 0.667
"""Agreement below this says nothing (Krippendorff, "Content analysis", 2004)."""
_FEWEST_SHARED: Final = 10


def _doubt(found: TaskGrades, canaries: list[TaskCanary], agreement: AgreementView) -> AdoptionDoubt | None:
    """Return why what would be adopted is doubtful, by how many of its chunks are wrong and how far people agree.

    Also where nothing tells either: what no second grade and no planted chunk checks is no better for that.
    """
    pairs = [one for one in agreement["pairs"] if one["items"] >= _FEWEST_SHARED]
    known = [(kappa, one) for one in pairs if (kappa := one["kappa"]["value"]) is not None]
    least = min(known, key=lambda one: one[0], default=None)
    wrong = _wrong_expected(found, canaries)
    graded = [len(found.grades_of(item.id)) for item in found.items if found.grades_of(item.id)]
    once = sum(grades == 1 for grades in graded)
    is_checked = once < len(graded) or bool(found.adjudicated or _said_of_planted(found))
    reasons = [_unchecked(found)] if graded and not is_checked else []
    if wrong is not None and wrong.value > MOST_WRONG:
        reasons.append(f"about {_wrong_text(wrong)} of the chunks graded relevant are not, as far as the grades tell")
    if least is not None and least[0] < LEAST_KAPPA:
        reasons.append(
            f"{_least_text(least[1], kappa=least[0], pairs=len(known))}, and below {LEAST_KAPPA} that says nothing"
        )
    if not reasons:
        return None
    if once and is_checked:
        reasons.append(f"{once:,} of {counted(len(graded), 'graded chunk')} have one grade alone")
    return {
        "wrong": None if wrong is None else rounded_or_none(wrong.value),
        "low": None if wrong is None else rounded_or_none(wrong.low),
        "high": None if wrong is None else rounded_or_none(wrong.high),
        "kappa": None if least is None else rounded_or_none(least[0]),
        "graded_once": once,
        "graded": len(graded),
        "sentence": f"{'; '.join(reasons)}. {_before_adopting(found) if is_checked else _CHECK_FIRST}",
    }


def _least_text(pair: PairAgreementView, *, kappa: float, pairs: int) -> str:
    """Say how far two people agree, and of how many pairs they agree least: among many one is low by chance."""
    low, high = pair["kappa"]["low"], pair["kappa"]["high"]
    interval = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    names = f"{pair['a']} and {pair['b']} agree"
    who = f"of {pairs} pairs {names} least on relevance," if pairs > 1 else f"{names} on relevance"
    return f"{who} with a kappa of {kappa:.3f}{interval}"


def _unchecked(found: TaskGrades) -> str:
    """Say that nothing checks the grades."""
    names = {row.annotator for of_item in found.graded.values() for row in of_item}
    who = f"{next(iter(names))} errs" if len(names) == 1 else "these annotators err"
    return (
        f"{TAKEN_AS_RIGHT}: no chunk was graded by two people, and no planted one was graded, so that nothing tells "
        f"how often {who}"
    )


_CHECK_FIRST: Final = (
    "Let somebody else grade a part again, or have a task with overlap or planted chunks graded, before you trust R@k "
    "by such judgments"
)


def _before_adopting(found: TaskGrades) -> str:
    """Say what to do about doubtful grades: only what there is to do."""
    says_little, before = "R@k by such judgments says little", "before you adopt"
    if len({row.annotator for of_item in found.graded.values() for row in of_item}) <= 1:
        return f"{says_little}. Let somebody else grade a part again, or have a task with overlap graded, {before}"
    agree, overlap = "agree on what is relevant", "have a task with more overlap graded"
    if any(found.consensus(item.id).state is ConsensusState.DISPUTED for item in found.items):
        return f"{says_little}. Decide on the disagreements, {agree}, and {overlap} {before}"
    return f"{says_little}. {agree.capitalize()}, and {overlap} {before}"


def _wrong_expected(found: TaskGrades, canaries: list[TaskCanary]) -> WrongShare | None:
    """Estimate which share of the chunks that are relevant by agreement is not; None where nothing tells."""
    graded, planted = _graded_queries(found, canaries), _said_of_planted(found)
    said = tuple(_said_of(canary, items, found) for canary, items in graded)
    is_sampled = not any(size and not sample for query in said for size, sample in query.strata)
    if not said or not is_sampled or not (planted or _are_checked(said)):
        return None
    model = _graded_task(said, planted, has_rest=bool(found.task.document.plan.rest), seed=found.task.document.seed)
    cells: list[list[Said]] = [[] for _ in range(len(said[0].strata) + 1)]
    for item in (one for _, items in graded for one in items):
        if (found.consensus(item.id).grade or 0) >= 1 and (words := _said(item, found)) is not None:
            cells[item.stratum].append(words)
    return model.wrong_among(cells)


def load_agreement(store: Store, slug: str) -> AgreementView:
    """Return the agreement of the annotators of a task. Raises NotFoundError."""
    with store.read() as connection:
        return _agreement(read_grades(connection, find_task(connection, slug)))


def _agreement(found: TaskGrades) -> AgreementView:
    names = found.annotators
    # What was chosen for what one person said of it tells of that person's errors, not of how far people agree.
    again = sum(len(found.graded.get(item.id, ())) > 1 for item in found.items if item.graded_again)
    graded = [found.graded[item.id] for item in found.items if item.id in found.graded and not item.graded_again]
    table = np.full((len(graded), len(names)), np.nan)
    for row, of_item in enumerate(graded):
        for one in of_item:
            table[row, names.index(one.annotator)] = one.grade
    agreement = measure_agreement(names, table)
    return view_of(AgreementView, agreement, rounding=True, graded_again=again, judges=_judges(found))


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
        return _budget(read_grades(connection, find_task(connection, slug)))


def _budget(found: TaskGrades) -> BudgetView:
    states = Counter(found.consensus(item.id).state for item in found.items)
    people = max(1, len(found.annotators))
    left = 0
    for item in (*found.items, *found.planted):  # a person who skipped an item owes no grade of it
        if item.overlap:
            left += max(0, people - found.said[item.id])
        elif not found.graded.get(item.id) and item.id not in found.adjudicated:
            left += 1
    checks = _checks(found)
    annotators: list[AnnotatorView] = []
    for name in found.annotators:
        mine = [row for row in found.annotations if row.annotator == name]
        timed = [row.seconds for row in mine if row.seconds is not None]
        graded = sum(row.grade is not None for row in mine)
        checked = [is_wrong for row, is_wrong in checks if row.annotator == name]
        annotators.append(
            {
                "annotator": name,
                "graded": graded,
                "skipped": len(mine) - graded,
                "pace_seconds": rounded_or_none(pace(timed[-PACE_OF:])),
                "planted_graded": len(checked),
                "planted_wrong": sum(checked),
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
        "planted": {
            "items": len(found.planted),
            "graded": len({row.item_id for row, _ in checks}),
            "grades": len(checks),
            "wrong": sum(is_wrong for _, is_wrong in checks),
        },
    }


def _checks(found: TaskGrades) -> list[tuple[AnnotationRow, bool]]:
    """Return the grades of planted items, each with whether it is on the wrong side of relevant."""
    return [
        (row, bool(row.grade) is not bool(item.known_grade))
        for item in found.planted
        for row in found.graded.get(item.id, ())
    ]


DEPTHS: Final = (1, 3, 5, 10, 20)
"""Depths at which it is computed, as far as the pool goes; the pool's own is added."""


def load_recall(store: Store, slug: str) -> RecallView:
    """Return the pooled recall of the retrievers of a task as its annotations are now.

    Raises NotFoundError, and ConflictError for a task of answers.
    """
    with store.read() as connection:
        task = _find_task_of_chunks(connection, slug)
        canaries = rows.list_task_canaries(connection, task.id)
        edited, brought_up = _edited_since(connection, task), _who_brought_up(connection, task)
        return _recall(read_grades(connection, task), canaries, edited, brought_up)[0]


def _edited_since(connection: Connection, task: TaskRow) -> set[str]:
    """Return the retrievers of a task that were edited after it asked them."""
    at = task.pool_requested_at
    return set() if at is None else made_since(connection, "retriever", task.document.retrievers, at)


def _who_brought_up(connection: Connection, task: TaskRow) -> dict[str, str]:
    """Return the retrievers of a task that brought a chunk up, with what each asked then."""
    retrievers = task.document.retrievers
    return who_brought_up(connection, task.id, retrievers, task.pool_requested_at, task.pooled_at)


def _recall(
    found: TaskGrades, canaries: list[TaskCanary], edited: Collection[str], brought_up: Mapping[str, str]
) -> tuple[RecallView, list[RecallEstimate]]:
    """Return the pooled recall of a task of chunks, and the estimates that it is made of."""
    task, graded = found.task, _graded_queries(found, canaries)
    estimates, of_rest = _estimate(found, graded, brought_up)
    own = is_pooled_recall_self_judged(set(brought_up.values()), has_rest=bool(task.document.plan.rest))
    view: RecallView = {
        "queries": len(graded),
        "undecided": sum(_expects(one) for one in canaries) - len(graded),
        "chunks": sum(len(items) for _, items in graded),
        "skipped": _count_skipped(graded, found),
        "estimates": [
            view_of(
                PooledRecallView,
                one,
                rounding=True,
                task=task.slug,
                self_judged=own and one.retriever in brought_up,
                edited_since=one.retriever in edited,
            )
            for one in estimates
        ],
        "to_grade_again": len(_heavy_items(found)) if of_rest > MOST_OF_REST else 0,
    }
    return view, estimates


MOST_OF_REST: Final = 1 / 3
"""Share of an estimate that texts which no retriever ranked may carry without a warning."""


def have_graded_again(store: Store, slug: str) -> int:
    """Have everybody grade the texts that no retriever ranked and one person alone called relevant; how many.

    Which items get a second grade depends on the first one: the correction for wrong grades allows for it, and
    agreement leaves them out. Raises NotFoundError, and ConflictError for a task of answers or pairs.
    """
    with store.write() as connection:
        task = _find_task_of_chunks(connection, slug)
        items = _heavy_items(read_grades(connection, task))
        rows.have_graded_again(connection, [item.id for item in items])
    return len(items)


def _find_task_of_chunks(connection: Connection, slug: str) -> TaskRow:
    task = find_task(connection, slug)
    if task.of_answers or task.of_pairs:
        raise ConflictError(f"task '{slug}' is not of chunks, so it has no recall")
    return task


def _heavy_items(found: TaskGrades) -> list[ItemRow]:
    """Return the items that no retriever ranked, called relevant by the only person who graded them."""
    rest = _rest_stratum(found)
    return [
        item
        for item in found.items
        if item.stratum == rest
        and not item.overlap
        and len(grades := found.grades_of(item.id)) == 1
        and grades[0]
        and item.id not in found.adjudicated
    ]


def _rest_stratum(found: TaskGrades) -> int | None:
    """Return the number of the stratum of texts that no retriever ranked; None = there is none."""
    plan = found.task.document.plan
    return len(plan.strata) + 1 if plan.rest else None


def compute_recall(store: Store, task_id: int, *, now: datetime) -> None:
    """Compute the pooled recall of a task anew and store it; nothing happens where the task is gone."""
    with store.read() as connection:
        task = rows.read_task(connection, task_id)
        if task is None or task.archived_at is not None:
            return
        estimates = _figures(connection, task, may_write=True).estimates  # which its page shows next
    with store.write() as connection:
        recall_rows.replace_recalls(connection, task_id, estimates, to_us(now))


def _expects(canary: TaskCanary) -> bool:
    """Whether a canary is pooled and expects that something is found."""
    document = CanaryDocument.model_validate(canary.body)
    return canary.sizes is not None and not document.to_domain().negative and not document.expect_empty


_GradedQuery = tuple[TaskCanary, list[ItemRow]]
"""A canary with its items."""


def _graded_queries(found: TaskGrades, canaries: list[TaskCanary]) -> list[_GradedQuery]:
    """Return the canaries whose items were all graded or skipped, with their items.

    Annotators take queries in random order, so those that are done are a random sample of all. Without the queries of
    which an item is disputed they were none: grades would seem right more often than they are.
    """
    items: dict[int | None, list[ItemRow]] = defaultdict(list)
    for item in found.items:
        items[item.canary_id].append(item)
    open_ = {item.canary_id for item in found.items if not found.said[item.id] and item.id not in found.adjudicated}
    return [(one, items[one.canary_id]) for one in canaries if one.canary_id not in open_ and _expects(one)]


def _count_skipped(graded: list[_GradedQuery], found: TaskGrades) -> int:
    """Count the chunks of these queries that have no grade, as all who saw them skipped them."""
    return sum(_said(item, found) is None for _, items in graded for item in items)


def _is_decided(query: _GradedQuery, found: TaskGrades) -> bool:
    """Whether none of the items of a query is disputed."""
    return all(found.consensus(item.id).state is not ConsensusState.DISPUTED for item in query[1])


def _estimate(
    found: TaskGrades, graded: list[_GradedQuery], brought_up: Mapping[str, str]
) -> tuple[list[RecallEstimate], float]:
    """Estimate recall by what was said of these queries; where annotators disagree, by what each of them said.

    With every grade taken as right it is by the queries of which nothing is disputed, where these are half or more.
    Beside the estimates stands the largest share of one that texts which no retriever ranked carry, corrected or with
    every grade taken as right: where the correction doubts the grades of a few, they make its interval wide.
    """
    document, plan = found.task.document, found.task.document.plan
    corpus = document.corpus if plan.rest else None
    frame = recall_frame(document.retrievers, plan.depth, corpus, brought_up)
    depths = sorted({*(k for k in DEPTHS if k < plan.pool), plan.pool})
    said = tuple(_said_of(canary, items, found) for canary, items in graded)
    decided = [one for one in graded if _is_decided(one, found)]
    is_sampled = not any(size and not sample for query in said for size, sample in query.strata)
    planted = _said_of_planted(found)
    skipped = _count_skipped(graded, found)
    gaps = _skipped_text(skipped, sum(len(items) for _, items in graded))
    has_rest, model = bool(plan.rest), None
    estimates: list[RecallEstimate] = []
    of_rest = 0.0
    for retriever in document.retrievers:
        by_depth = [
            estimate_recall(
                [_query_grades(canary, items, found, retriever, k) for canary, items in decided],
                has_rest=has_rest,
                seed=document.seed,
            )
            for k in depths
        ]
        told = by_depth
        is_known = by_depth[0].value is not None or len(decided) < len(graded)
        if is_known and is_sampled and (planted or _are_checked(said)):
            model = model or _graded_task(said, planted, has_rest=has_rest, seed=document.seed)
            told = model.recalls([_bands(items, found, retriever, depths) for _, items in graded], len(depths))
        of_rest = max(of_rest, *(one.rest_share or 0.0 for one in (*by_depth, *told)))
        estimates += [
            RecallEstimate(
                retriever=retriever,
                k=k,
                frame=frame,
                uncorrected=None if model is None or 2 * len(decided) < len(graded) else plain.value,
                assumes="" if one.value is None else f"{_assumption(said, planted, model)}{gaps}",
                **asdict(one),
            )
            for k, plain, one in zip(depths, by_depth, told, strict=True)
        ]
    return estimates, of_rest


def _skipped_text(skipped: int, chunks: int) -> str:
    was, they = ("was", "it") if skipped == 1 else ("were", "they")
    return (
        f"; {skipped:,} of {counted(chunks, 'chunk')} {was} skipped: what {they} would add is not known"
        if skipped
        else ""
    )


@lru_cache(maxsize=8)
def _graded_task(said: tuple[SaidOfQuery, ...], planted: SaidOfPlanted, *, has_rest: bool, seed: int) -> GradedTask:
    """Return what some grades say, computed once as long as they stay.

    Planted chunks are known by what canaries expect. Where they are graded wrongly more often than chunks of several
    grades allow, these may be wrong, and only the others count.
    """
    if planted and _are_checked(said):
        alone = GradedTask(said, has_rest=has_rest, seed=seed)
        if alone.is_contradicted_by(planted):
            return alone
    return GradedTask(said, planted=planted, has_rest=has_rest, seed=seed)


def _said_of_planted(found: TaskGrades) -> SaidOfPlanted:
    said: dict[bool, list[Said]] = defaultdict(list)
    for item in found.planted:
        if grades := found.grades_of(item.id):
            said[bool(item.known_grade)].append((len(grades), sum(grade >= 1 for grade in grades)))
    return SaidOfPlanted(relevant=tuple(said[True]), irrelevant=tuple(said[False]))


def _are_checked(said: Sequence[SaidOfQuery]) -> bool:
    """Whether anything tells how often annotators err: items of several grades."""
    return any(people > 1 for query in said for people, _ in _all_said(query))


def _all_said(query: SaidOfQuery) -> list[Said]:
    return [*query.pool, *(one for _, sample in query.strata for one in sample)]


def _assumption(said: Sequence[SaidOfQuery], planted: SaidOfPlanted, model: GradedTask | None) -> str:
    if model is None:
        return f"{TAKEN_AS_RIGHT}: no chunk was graded by two people"
    several = sum(people > 1 for query in said for people, _ in _all_said(query))
    irrelevant, relevant = model.wrong_shares()
    sources = [f"{counted(several, 'chunk')} with several grades"] if several else []
    but = ""
    if planted and not model.learnt_from:
        wrong = sum(sum(of_kind) for of_kind in planted.wrong)
        but = (
            f"; {counted(len(planted), 'planted chunk')} correct nothing: {wrong:,} are graded wrongly, more than that "
            "allows, so that what the canaries expect of them may be wrong"
        )
    elif planted:
        sources.append(counted(len(planted), "planted chunk"))
    named = " and ".join(sources)
    if not model.wrong_is_seen:
        agreed = ": all agree on relevance" if but or not planted else ""
        return (
            f"corrected for wrong grades, of which none was seen among {named}{agreed}; up to about "
            f"{_fine_percent(irrelevant.high)} of what is irrelevant and {_fine_percent(relevant.high)} of what "
            f"is relevant may still be graded wrongly{but}"
        )
    return (
        f"corrected for wrong grades, of which {named} tell: about {_wrong_text(irrelevant)} of what is irrelevant "
        f"and {_wrong_text(relevant)} of what is relevant is graded wrongly{but}"
    )


def _wrong_text(share: WrongShare) -> str:
    """Return a share of wrong grades with its interval, `3 % (0.8 % to 7 %)`."""
    return f"{_fine_percent(share.value)} ({_fine_percent(share.low)} to {_fine_percent(share.high)})"


def _fine_percent(share: float) -> str:
    """Return a share in percent, one below 1 % with one digit: "up to under 1 %" would be no sentence."""
    return percent_text(share) if share >= _WHOLE_PERCENT else f"{100 * share:.1g} %"


_WHOLE_PERCENT: Final = 0.01


def _said_of(canary: TaskCanary, items: list[ItemRow], found: TaskGrades) -> SaidOfQuery:
    said: dict[int, list[Said]] = defaultdict(list)
    for item in items:
        if (one := _said(item, found)) is not None:
            said[item.stratum].append(one)
    sizes = canary.sizes or ()
    return SaidOfQuery(
        pool=tuple(said[0]), strata=tuple((size, tuple(said[place])) for place, size in enumerate(sizes[1:], 1))
    )


def _said(item: ItemRow, found: TaskGrades) -> Said | None:
    """Return what people said of an item, a decision included; None = nobody graded it."""
    grades = found.grades_of(item.id)
    decision = found.adjudicated.get(item.id)
    grades += [] if decision is None else [decision]
    return (len(grades), sum(grade >= 1 for grade in grades)) if grades else None


def _bands(items: list[ItemRow], found: TaskGrades, retriever: str, depths: Sequence[int]) -> list[int]:
    """Return of the graded items of the pool, in their order, at which of the depths a retriever has found them."""
    return [
        bisect_left(depths, item.ranks.get(retriever, depths[-1] + 1))
        for item in items
        if item.stratum == 0 and _said(item, found) is not None
    ]


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
        pool_relevant=len(pool), found=sum(item.ranks.get(retriever, k + 1) <= k for item in pool), strata=tuple(strata)
    )


def load_suite_recalls(store: Store, suite: str) -> list[PooledRecallView]:
    """Return the pooled recall of the retrievers of a suite, the deepest k first."""
    with store.read() as connection:
        return [
            view_of(PooledRecallView, row, rounding=True) for row in recall_rows.list_recalls(connection, suite=suite)
        ]


def load_recalls(connection: Connection, suite: str, retriever: str) -> list[PooledRecallView]:
    """Return the pooled recall of a retriever over a suite, the deepest k first."""
    rows = recall_rows.list_recalls(connection, suite=suite, retriever=retriever)
    return [view_of(PooledRecallView, row, rounding=True) for row in rows]
