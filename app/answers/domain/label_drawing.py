"""Drawing of the answers that people label: at random, and one per canary and window.

The answers of one canary an hour apart are mostly the same answer; taken as independent they would make intervals too
narrow. The same rule makes the pool that the labels speak for: labelled and unlabelled answers are parts of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from app.annotation.domain.consensus import hash_share


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """An answer with a verdict of the judge; `at` is when it was given, in microseconds UTC."""

    id: str
    canary: str
    at: int


def pool_answers(answers: Iterable[JudgedAnswer], *, window: int, seed: int) -> list[JudgedAnswer]:
    """Answers that estimates are made of: one of each canary and window, chosen by hash, in random order.

    `window` is in microseconds; windows are counted from 1970, so that they do not move with the answers. The choice
    depends on identities and seed alone: not on verdicts, and not on the order of the answers. Raises ValueError for a
    window below 1.
    """
    if window < 1:
        raise ValueError(f"a window has at least 1 microsecond, not {window}")
    chosen: dict[tuple[str, int], tuple[float, str, JudgedAnswer]] = {}
    for answer in answers:
        place = (answer.canary, answer.at // window)
        ranked = (hash_share(f"answer:{seed}:{answer.id}"), answer.id, answer)
        if place not in chosen or ranked[:2] < chosen[place][:2]:
            chosen[place] = ranked
    # Ordered by a hash of their own: by that of the chosen answer, canaries with many answers would come first.
    order = sorted(chosen, key=lambda place: (hash_share(f"pool:{seed}:{place[1]}:{place[0]}"), place))
    return [chosen[place][2] for place in order]


def draw_answers(
    answers: Iterable[JudgedAnswer], count: int, *, window: int, seed: int
) -> tuple[list[JudgedAnswer], list[JudgedAnswer]]:
    """Draw the answers to label: `count` of the pool, or all of it, and the rest of the pool, both in random order.

    A larger count draws the same ones and more. Raises ValueError for a count below 0.
    """
    if count < 0:
        raise ValueError(f"{count} answers cannot be drawn")
    pool = pool_answers(answers, window=window, seed=seed)
    return pool[:count], pool[count:]
