"""Pooled recall where annotators err: a few wrong grades among random texts, corrected by items that two graded."""

from dataclasses import dataclass

import numpy as np
import pytest

from app.annotation.domain.recall import (
    GradedTask,
    PooledRecall,
    QueryGrades,
    Said,
    SaidOfPlanted,
    SaidOfQuery,
    SampledStratum,
    estimate_recall,
)
from tests.support.present import present

QUERIES, POOL, REST, SAMPLE = 80, 12, 400, 10


@dataclass(frozen=True, kw_only=True)
class World:
    """A task of which all is known: of each query what is said, what was found, and how all grades count as right."""

    said: list[SaidOfQuery]
    found: list[list[bool]]
    grades: list[QueryGrades]
    truth: float

    @classmethod
    def of(cls, wrong: float, *, overlap: float, seed: int) -> "World":
        """Have a share of the grades wrong, and a share of the items graded by two."""
        random = np.random.default_rng(seed)

        def say(relevant: bool) -> Said:  # noqa: FBT001 - the one thing that is known of an item
            people = 2 if random.random() < overlap else 1
            yes = int((random.random(people) < (1 - wrong if relevant else wrong)).sum())
            if yes in {0, people}:
                return people, yes
            return people + 1, yes + int(random.random() < (1 - wrong if relevant else wrong))

        said, flags, grades, hits, relevant = [], [], [], 0, 0
        for _ in range(QUERIES):
            pool, found = random.random(POOL) < 0.4, random.random(POOL) < 0.6
            rest = random.random(REST) < 0.004
            hits, relevant = hits + int((pool & found).sum()), relevant + int(pool.sum() + rest.sum())
            of_pool, of_rest = [say(one) for one in pool], [say(one) for one in rest[:SAMPLE]]
            said.append(SaidOfQuery(pool=tuple(of_pool), strata=((REST, tuple(of_rest)),)))
            flags.append(found.tolist())
            yes = [2 * one > people for people, one in of_pool]
            sample = SampledStratum(size=REST, graded=SAMPLE, relevant=sum(2 * one > people for people, one in of_rest))
            in_both = sum(one and here for one, here in zip(yes, found, strict=True))
            grades.append(QueryGrades(pool_relevant=sum(yes), found=in_both, strata=(sample,)))
        return cls(said=said, found=flags, grades=grades, truth=hits / relevant)

    def plain(self) -> PooledRecall:
        """Take every grade as right."""
        return estimate_recall(self.grades, has_rest=True)

    def corrected(self) -> PooledRecall:
        """Correct for wrong grades."""
        return self.recall(GradedTask(self.said, has_rest=True, seed=1))

    def recall(self, task: GradedTask) -> PooledRecall:
        """Return what the task says of the retriever, at one depth."""
        return task.recalls([[int(not one) for one in flags] for flags in self.found], 1)[0]


def covers(found: PooledRecall, truth: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low <= truth <= found.high


@pytest.mark.parametrize("wrong", [0.03, 0.1])
def test_a_few_wrong_grades_of_random_texts_ruin_recall_and_the_correction_covers_it(wrong: float) -> None:
    worlds = [World.of(wrong, overlap=0.3, seed=seed) for seed in range(2)]
    plain, corrected = [one.plain() for one in worlds], [one.corrected() for one in worlds]
    assert not any(covers(one, world.truth) for one, world in zip(plain, worlds, strict=True))
    assert all(covers(one, world.truth) for one, world in zip(corrected, worlds, strict=True))
    for before, after, world in zip(plain, corrected, worlds, strict=True):
        assert before.value is not None
        assert after.value is not None
        assert abs(after.value - world.truth) < abs(before.value - world.truth) / 2
        assert (before.rest_share or 0) > 1 / 3, "which is warned of"


def test_people_who_never_err_change_little() -> None:
    world = World.of(0.0, overlap=0.3, seed=1)
    plain, corrected = world.plain(), world.corrected()
    assert covers(corrected, world.truth)
    assert corrected.value == pytest.approx(plain.value, abs=0.05)


def test_the_shares_of_wrong_grades_are_learned() -> None:
    task = GradedTask(World.of(0.1, overlap=0.5, seed=2).said, has_rest=True, seed=1)
    irrelevant, relevant = task.wrong_shares()
    assert irrelevant.value == pytest.approx(0.1, abs=0.04)
    assert relevant.value == pytest.approx(0.1, abs=0.05)
    for share in (irrelevant, relevant):
        assert share.low < 0.1 < share.high
    assert task.wrong_is_seen


def test_where_all_agree_the_limit_of_wrong_grades_holds_and_falls_with_what_was_graded_twice() -> None:
    """People err in one of a hundred, and where nobody saw it the limit still has that."""
    limits: dict[float, float] = {}
    for overlap in (0.02, 0.05, 0.1):
        worlds = [World.of(0.01, overlap=overlap, seed=seed) for seed in range(15)]
        tasks = [GradedTask(one.said, has_rest=True, seed=1) for one in worlds]
        agreeing = [one.wrong_shares() for one in tasks if not one.wrong_is_seen]
        assert all(share.high > 0.01 for shares in agreeing for share in shares)
        careful = GradedTask(World.of(0, overlap=overlap, seed=1).said, has_rest=True, seed=1)
        assert not careful.wrong_is_seen
        limits[overlap] = careful.wrong_shares()[0].high
    assert limits[0.02] > limits[0.05] > limits[0.1] > 3 / (2 * 2 * 0.1 * QUERIES * (POOL + SAMPLE)), "rule of three"


@pytest.mark.parametrize(
    ("planted", "seen"),
    [
        (SaidOfPlanted(relevant=((1, 1),), irrelevant=((2, 0),)), False),
        (SaidOfPlanted(relevant=((1, 0),)), True),
        (SaidOfPlanted(irrelevant=((1, 1),)), True),
    ],
)
def test_a_wrong_grade_is_seen_where_people_differ_or_err_on_a_planted_chunk(
    planted: SaidOfPlanted, *, seen: bool
) -> None:
    agreeing = [SaidOfQuery(pool=((1, 1), (2, 2), (2, 0)), strata=((9, ((1, 0), (3, 0))),))] * 5
    assert GradedTask(agreeing, has_rest=True, seed=1, planted=planted).wrong_is_seen is seen
    differing = [*agreeing, SaidOfQuery(pool=((1, 1),), strata=((9, ((3, 1),)),))]
    assert GradedTask(differing, has_rest=True, seed=1, planted=planted).wrong_is_seen


def test_the_same_grades_give_the_same_whatever_was_asked_before() -> None:
    world = World.of(0.05, overlap=0.3, seed=3)
    task = GradedTask(world.said, has_rest=True, seed=1)
    first = world.recall(task)
    task.recalls([[int(one) for one in flags] for flags in world.found], 1)
    assert world.recall(task) == first == world.corrected()


@pytest.mark.parametrize("wrong", [0.0, 0.03])
def test_what_is_relevant_is_the_same_at_each_depth_and_no_deeper_one_finds_less(wrong: float) -> None:
    """The third depth brings nothing, so nothing but chance in the draws would tell it from the second."""
    for seed in range(3):
        world, random = World.of(wrong, overlap=0.3, seed=seed), np.random.default_rng(seed)
        bands = [[int(random.integers(0, 2)) if here else 3 for here in flags] for flags in world.found]
        found = GradedTask(world.said, has_rest=True, seed=1).recalls(bands, 3)
        assert len({one.relevant for one in found}) == len({one.rest_share for one in found}) == 1
        assert covers(found[-1], world.truth)
        for name in ("found", "value", "low", "high"):
            by_depth = [present(getattr(one, name)) for one in found]
            assert by_depth[0] < by_depth[1] == by_depth[2]
