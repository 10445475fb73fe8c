"""Rankings and judgments at random, for tests that hold the fast matching and measures to the plain ones."""

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from app.base.values import Judgment, Ranking

WORDS = ("ash", "birch", "cedar", "elm")
Topic = tuple[list[Judgment], Ranking]
"""A canary's judgments and one answer to it."""
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


def ranking_of(ids: Sequence[str], returned: int | None = None) -> Ranking:
    """Make a ranking of bare ids, best first."""
    nothing = (None,) * len(ids)
    return Ranking(
        ids=tuple(ids),
        documents=nothing,
        texts=nothing,
        scores=nothing,
        returned=len(ids) if returned is None else returned,
    )


@st.composite
def judgment_lists(draw: st.DrawFn) -> list[Judgment]:
    """Draw judgments of all grades by id, document, text or several; some twice, so that one hit meets several."""
    identity = st.one_of(
        st.tuples(st.sampled_from("abcdefghijkl"), st.none(), st.none()),
        st.tuples(
            st.none() | st.sampled_from("abcdefghijkl"), st.none() | st.sampled_from(["X", "Y"]), st.none() | TEXTS
        ).filter(any),
    )
    return [
        Judgment(id=chunk, document=document, text=text, grade=draw(st.integers(0, 3)))
        for chunk, document, text in draw(st.lists(identity, max_size=6))
    ]


@st.composite
def rankings(draw: st.DrawFn) -> Ranking:
    """Draw rankings of 0 to 12 distinct hits with or without documents and texts, some with dropped duplicates."""
    ids = draw(st.lists(st.sampled_from("abcdefghijkl"), unique=True, max_size=12))
    size = len(ids)
    duplicates = draw(st.integers(0, 3)) if ids else 0
    return Ranking(
        ids=tuple(ids),
        documents=tuple(draw(st.lists(st.sampled_from(["X", "Y", "Z", None]), min_size=size, max_size=size))),
        texts=tuple(draw(st.lists(st.none() | TEXTS, min_size=size, max_size=size))),
        scores=(None,) * size,
        returned=size + duplicates,
    )


def graded_topics(seed: int, count: int, depth: int = 10) -> list[Topic]:
    """Make canaries judged by id alone, at least one relevant, rankings from empty to `depth` hits."""
    chance = random.Random(seed)  # noqa: S311 - test data
    topics = []
    for _ in range(count):
        pool = [f"d{number}" for number in range(3 * depth)]
        judged = chance.sample(pool, chance.randint(1, depth + 5))
        judgments = [Judgment(id=one, grade=chance.randint(0, 3)) for one in judged[1:]]
        judgments.append(Judgment(id=judged[0], grade=chance.randint(1, 3)))
        topics.append((judgments, ranking_of(chance.sample(pool, chance.choice([0, 1, depth // 2, depth, depth])))))
    return topics
