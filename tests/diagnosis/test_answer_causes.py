"""Each cause that is told by the shape of changed answers, beside the one that looks most like it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from app.base.db.engine import Store
from app.base.values import Ranking, RunCauseKind, replace
from app.detection.store import detections_of
from app.diagnosis.domain.answer_causes import AnswerCause, Answers, find_answer_causes
from app.diagnosis.store import causes_of
from app.runs.service.finalising import EndedRun
from tests.support.fakes import answered
from tests.support.world import World, canary, page

CANARIES, CHUNKS, DEPTH = 60, 160, 10
SEEDS = range(4)


@dataclass
class Index:
    """An index of made-up chunks; `scores` are of each canary for each chunk."""

    scores: Any
    ids: list[str]
    texts: list[str]

    @classmethod
    def of(cls, seed: int) -> "Index":
        """Make one: eight documents of two products, scores from 0 to 1."""
        rng = np.random.default_rng(seed)
        ids = [f"product-{'ab'[number % 2]}/doc-{number % 8}#{number}" for number in range(CHUNKS)]
        texts = [" ".join(f"w{number}x{place}" for place in range(20)) for number in range(CHUNKS)]
        return cls(scores=rng.random((CANARIES, CHUNKS)), ids=ids, texts=texts)

    def without(self, gone: Callable[[int], bool]) -> "Index":
        """Delete chunks, by their numbers."""
        left = [number for number in range(len(self.ids)) if not gone(number)]
        return Index(self.scores[:, left], [self.ids[one] for one in left], [self.texts[one] for one in left])

    def moved(self, by: float, seed: int) -> "Index":
        """Move all scores at random, as statistics that are learned anew do."""
        noise = np.random.default_rng(seed).normal(0, by, self.scores.shape)
        return replace(self, scores=self.scores + noise)

    def with_new(self, texts: Sequence[str], scores: Any) -> "Index":
        """Add chunks under new ids."""
        ids = [f"import-{number}" for number in range(len(texts))]
        return Index(np.hstack([self.scores, scores]), [*self.ids, *ids], [*self.texts, *texts])

    def answers(self, depth: int = DEPTH) -> list[Ranking]:
        """Answer all canaries."""
        return [self._ranking(row, depth) for row in self.scores]

    def _ranking(self, row: Any, depth: int) -> Ranking:
        best = np.argsort(-row, kind="stable")[:depth].tolist()
        return Ranking(
            ids=tuple(self.ids[one] for one in best),
            documents=tuple(self.ids[one].partition("#")[0] for one in best),
            texts=tuple(self.texts[one] for one in best),
            scores=tuple(float(row[one]) for one in best),
            returned=len(best),
        )


def cut(ranking: Ranking, hits: Sequence[int]) -> Ranking:
    """Keep some hits of an answer."""
    columns: dict[str, Any] = {
        name: tuple(getattr(ranking, name)[one] for one in hits) for name in ("ids", "documents", "texts", "scores")
    }
    return replace(ranking, **columns, returned=len(hits))


def joined(one: Ranking, other: Ranking) -> Ranking:
    """Put the hits of one answer before those of another."""
    columns: dict[str, Any] = {
        name: getattr(one, name) + getattr(other, name) for name in ("ids", "documents", "texts", "scores")
    }
    return replace(one, **columns, returned=one.returned + other.returned)


def told(
    before: Sequence[Ranking], now: Sequence[Ranking], earlier: Sequence[Ranking | None] | None = None
) -> list[AnswerCause]:
    return find_answer_causes(Answers(before=before, now=now, earlier=earlier or [None] * len(now)))


def kinds(before: Sequence[Ranking], now: Sequence[Ranking]) -> list[RunCauseKind]:
    return [one.kind for one in told(before, now)]


def mixed(seed: int, some: Sequence[Ranking], others: Sequence[Ranking], share: float = 0.5) -> list[Ranking]:
    """Answer each canary from one of two states by chance."""
    draws = np.random.default_rng(seed).random(len(some)) < share
    return [a if drawn else b for a, b, drawn in zip(some, others, draws.tolist(), strict=True)]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_as_before_has_no_cause(seed: int) -> None:
    answers = Index.of(seed).answers()
    assert kinds(answers, answers) == []
    assert kinds(answers, [*answers[:58], *reversed(answers[58:])]) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_all_and_some_empty_answers(seed: int) -> None:
    answers = Index.of(seed).answers()
    none = [cut(one, []) for one in answers]
    (whole,) = told(answers, none)
    assert (whole.kind, whole.phrase) == (RunCauseKind.EMPTY_ANSWERS, "every answer is empty")
    (part,) = told(answers, [*none[:12], *answers[12:]])
    assert (part.kind, part.phrase) == (RunCauseKind.EMPTY_ANSWERS, "12 of 60 answers are empty")
    assert "of the others 48 are as before" in part.evidence


@pytest.mark.parametrize("seed", SEEDS)
def test_a_limit_and_a_threshold_are_told_apart(seed: int) -> None:
    index = Index.of(seed)
    answers = index.answers()
    (limited,) = told(answers, index.answers(3))
    assert (limited.kind, limited.phrase) == (RunCauseKind.LIMITED, "at most 3 hits returned")
    least = float(np.median([one.scores[0] for one in answers]))
    above = [cut(one, [place for place, score in enumerate(one.scores) if (score or 0) >= least]) for one in answers]
    (threshold,) = told(answers, above)
    assert threshold.kind is RunCauseKind.SCORE_THRESHOLD
    assert threshold.phrase.startswith("hits below a score of 0.9")
    far, far_above = (
        [replace(one, scores=tuple(1 - (score or 0) for score in one.scores)) for one in some]
        for some in (answers, above)
    )
    (distance,) = told(far, far_above)
    assert distance.phrase.startswith("hits beyond a distance of 0.0")


def unscored(answers: Sequence[Ranking]) -> list[Ranking]:
    return [replace(one, scores=(None,) * len(one.ids)) for one in answers]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_threshold_is_told_without_scores_by_answers_of_different_lengths(seed: int) -> None:
    answers = Index.of(seed).answers()
    least = float(np.median([one.scores[0] for one in answers]))
    above = [cut(one, [place for place, score in enumerate(one.scores) if (score or 0) >= least]) for one in answers]
    (threshold,) = told(unscored(answers), unscored(above))
    assert threshold.kind is RunCauseKind.SCORE_THRESHOLD
    assert "and 30 are empty" in threshold.evidence
    (part,) = told(unscored(answers), unscored([cut(one, []) for one in answers[:12]] + answers[12:]))
    assert part.kind is RunCauseKind.EMPTY_ANSWERS


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("moved", [0.0, 0.01])
def test_missing_chunks_whether_or_not_scores_moved_with_them(seed: int, moved: float) -> None:
    index = Index.of(seed)
    (found,) = told(index.answers(), index.without(lambda number: number % 10 == 0).moved(moved, seed).answers())
    assert found.kind is RunCauseKind.MISSING
    assert ("moved, as it does" in found.evidence) is bool(moved)


@pytest.mark.parametrize(
    ("seed", "gone"), [(3, {3, 8, 20}), (17, {3, 8, 20}), (10, {7, 50, 60, 61}), (18, {7, 50, 60, 61})]
)
def test_all_missing_chunks_are_counted_where_few_answers_had_some_of_them(seed: int, gone: set[int]) -> None:
    """Of a chunk that one answer had at a low rank the fit alone is not sure."""
    index = Index.of(seed)
    before = index.answers(5)
    held = {index.ids[number] for number in gone} & {one for answer in before for one in answer.ids}
    had = sum(not held.isdisjoint(answer.ids) for answer in before)
    (found,) = told(before, index.without(gone.__contains__).answers(5))
    assert found.evidence.startswith(f"{len(held)} chunks that {had} answers had are in no answer any more, about ")
    assert (int(found.affected.sum()), found.against) == (had, "")


def test_a_count_of_missing_chunks_is_a_bound_where_statistics_were_learned_anew() -> None:
    index = Index.of(1)
    (found,) = told(index.answers(), index.without({3, 8, 20}.__contains__).moved(0.01, 1).answers())
    assert found.evidence.startswith("at least 2 chunks that 7 answers had are in no answer any more, about 2 % of all")


def test_a_single_missing_chunk_is_told_in_the_singular_and_a_share_below_one_percent_without_about() -> None:
    def hits(*ids: str) -> Ranking:
        return Ranking(ids=ids, documents=ids, texts=ids, scores=(0.9,) * len(ids), returned=len(ids))

    before = [hits(*(f"of-{place}-{rank}" for rank in range(5))) for place in range(CANARIES)]
    shared = hits("handbook")
    with_it = [joined(shared, one) if place < 12 else one for place, one in enumerate(before)]
    (found,) = told(with_it, before)
    assert found.evidence.startswith("1 chunk that 12 answers had is in no answer any more, under 1 % of all; ")
    assert found.against == ""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("scaled", "kind"), [(0.97, RunCauseKind.MISSING), (0.92, RunCauseKind.RANKING_CHANGED)])
def test_chunks_are_not_told_as_missing_where_scores_moved_further_than_contents_move_them(
    seed: int, scaled: float, kind: RunCauseKind
) -> None:
    """Another stemmer over a small collection looks like lost chunks but for the scores, which moved by 7 %."""
    index = Index.of(seed)
    now = index.without(lambda number: number % 20 == 0).moved(0.02, seed + 9)
    assert kinds(index.answers(), replace(now, scores=now.scores * scaled).answers()) == [kind]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_missing_chunks_have_in_common_is_named(seed: int) -> None:
    index = Index.of(seed)
    (found,) = told(index.answers(), index.without(lambda number: number % 2 == 1).answers())
    assert found.phrase == "chunks missing from the index, all in documents of product-b"


@pytest.mark.parametrize("seed", SEEDS)
def test_another_model_is_told_from_missing_chunks_and_from_other_vectors(seed: int) -> None:
    index = Index.of(seed)
    assert kinds(index.answers(), index.moved(0.2, seed).answers()) == [RunCauseKind.RANKING_CHANGED]
    assert kinds(index.answers(), Index.of(seed + 100).answers()) == [RunCauseKind.OTHER_VECTORS]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("moved", [0.0, 0.005])
def test_lost_and_new_chunks_are_told_from_each_other_and_from_another_model_without_scores(
    seed: int, moved: float
) -> None:
    """What a deletion takes nothing brings, what is new takes nothing away; another model does both alike."""
    index = Index.of(seed)
    scores = np.random.default_rng(seed).random((CANARIES, 32))
    new = [f"another {one} text of its own {one}" for one in range(32)]
    before = unscored(index.answers())
    lost = index.without(lambda number: number % 8 == 0).moved(moved, seed).answers()
    came = index.with_new(new, scores).moved(moved, seed).answers()
    assert kinds(before, unscored(lost)) == [RunCauseKind.MISSING]
    assert kinds(before, unscored(came)) == [RunCauseKind.NEW_CHUNKS]
    assert kinds(before, unscored(index.moved(0.05, seed).answers())) == [RunCauseKind.RANKING_CHANGED]


@pytest.mark.parametrize("seed", SEEDS)
def test_another_model_that_half_of_the_answers_came_from_is_told_at_once(seed: int) -> None:
    index = Index.of(seed)
    halves = mixed(seed, index.answers(), index.moved(0.1, seed).answers())
    (found,) = told(unscored(index.answers()), unscored(halves))
    assert found.kind is RunCauseKind.REPLICAS_DIFFER
    assert "by chance it would be" in found.evidence
    slightly = index.moved(0.0005, seed).answers()
    assert RunCauseKind.REPLICAS_DIFFER not in kinds(index.answers(), slightly)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_that_lacks_chunks_is_told_from_an_index_that_does(seed: int) -> None:
    index = Index.of(seed)
    stale = index.without(lambda number: number % 4 == 0).answers()
    assert kinds(index.answers(), mixed(seed, index.answers(), stale)) == [RunCauseKind.REPLICAS_DIFFER]
    other = mixed(seed, index.answers(), Index.of(seed + 100).answers())
    assert kinds(index.answers(), other) == [RunCauseKind.REPLICAS_DIFFER]


def test_a_replica_that_lacks_chunks_is_told_by_few_canaries_too() -> None:
    told_as = Counter[tuple[RunCauseKind, ...]]()
    for seed in range(100):
        index = Index.of(seed % 4)
        stale = index.without(lambda number: number % 3 == 0).answers()
        some = mixed(seed, index.answers(), stale)[:30]
        told_as[tuple(kinds(index.answers()[:30], some))] += 1
    assert told_as[RunCauseKind.REPLICAS_DIFFER,] >= 80
    assert told_as[RunCauseKind.MISSING,] == 0  # what other answers still have


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_that_alternate_are_told_in_the_second_run(seed: int) -> None:
    index = Index.of(seed)
    other = index.moved(0.2, seed).answers()
    earlier = mixed(seed, index.answers(), other)
    (found,) = told(index.answers(), mixed(seed + 1, index.answers(), other), earlier)
    assert found.kind is RunCauseKind.REPLICAS_DIFFER
    assert "that had changed in the run before are as they were" in found.evidence
    (stands,) = told(index.answers(), other, other)
    assert stands.kind is RunCauseKind.RANKING_CHANGED


@pytest.mark.parametrize("seed", SEEDS)
def test_an_approximate_search_misses_here_and_there_what_others_find(seed: int) -> None:
    index, chance = Index.of(seed), np.random.default_rng(seed)
    deep = index.answers(20)
    now = [cut(one, np.flatnonzero(chance.random(20) > 0.15)[:DEPTH].tolist()) for one in deep]
    assert kinds(index.answers(), now) == [RunCauseKind.SEARCH_MISSES]


@pytest.mark.parametrize("seed", SEEDS)
def test_misses_are_told_though_few_chunks_stand_in_two_answers(seed: int) -> None:
    chance = np.random.default_rng(seed)
    chunks = [f"doc-{number}#0" for number in range(4_000)]
    index = Index(chance.random((CANARIES, len(chunks))), chunks, chunks)
    now = [cut(one, np.flatnonzero(chance.random(20) > 0.15)[:DEPTH].tolist()) for one in index.answers(20)]
    assert kinds(index.answers(), now) == [RunCauseKind.SEARCH_MISSES]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.15, 0.6])
def test_first_hits_that_are_left_out_are_no_approximate_search(seed: int, share: float) -> None:
    index, chance = Index.of(seed), np.random.default_rng(seed)
    now = [cut(one, list(range(chance.random() < share, DEPTH + 1))[:DEPTH]) for one in index.answers(DEPTH + 1)]
    (found,) = told(index.answers(), now)
    assert (found.kind, found.phrase) == (RunCauseKind.LEFT_OUT, "first hits are gone from their answers")
    assert "all of them first hits" in found.evidence
    assert "middle" not in found.evidence


@pytest.mark.parametrize("seed", SEEDS)
def test_near_copies_are_told_from_other_new_chunks(seed: int) -> None:
    index = Index.of(seed)
    sources = np.random.default_rng(seed).permutation(CHUNKS)[:30].tolist()
    above = index.scores[:, sources] + 0.001
    copies = [" ".join(index.texts[one].split()[:-2]) for one in sources]
    assert kinds(index.answers(), index.with_new(copies, above).answers()) == [RunCauseKind.NEAR_COPIES]
    others = [f"another {one} text of its own {one}" for one in sources]
    assert kinds(index.answers(), index.with_new(others, above).answers()) == [RunCauseKind.NEW_CHUNKS]


def test_fewer_than_three_changed_answers_have_no_common_cause() -> None:
    index = Index.of(1)
    before = index.answers()
    now = [*index.without(lambda number: number % 2 == 1).answers()[:2], *before[2:]]
    assert told(before, now) == []


@pytest.mark.parametrize("sizes", list(pairwise([0, 1, 2, 5])))
def test_answers_of_any_size_are_compared(sizes: tuple[int, int]) -> None:
    index = Index.of(2)
    told(index.answers(sizes[0]), index.answers(sizes[1]))
    told(index.answers(sizes[1]), index.answers(sizes[0]))
    assert told([], []) == []


def test_the_cause_is_told_by_the_run_that_opens_the_alarm_though_nothing_changed_in_it(sqlite_store: Store) -> None:
    """A small loss takes the detector two runs, of which the second brings the answers of the first."""
    index = Index.of(1)
    whole, before = index.answers(), [one.ids[0] for one in index.answers()]
    world = World(store=sqlite_store)
    world.apply(page([canary(f"q{place}", expected_chunks=[first]) for place, first in enumerate(before)], rules=[]))

    def run(answers: Sequence[Ranking]) -> EndedRun:
        world.probe.answers = {f"q{place}": answered(one) for place, one in enumerate(answers)}
        return world.run()

    for _ in range(21):
        run(whole)
    others = [chunk for chunk in index.ids if chunk not in before][:5]
    gone = {before[0], before[1], *others}
    lacking = index.without(lambda number: index.ids[number] in gone).answers()
    ended = [run(lacking) for _ in range(3)]
    with sqlite_store.read() as connection:
        found = detections_of(connection, [one.id for one in ended])
        causes = causes_of(connection, [one.id for one in ended])
    opened = next(run_id for run_id, one in sorted(found.items()) if one.open)
    assert opened > ended[0].id
    assert causes[opened].kind is RunCauseKind.MISSING
