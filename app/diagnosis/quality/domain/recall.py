"""Recall: whether what is expected is found at all, and how deep."""

from collections.abc import Sequence
from typing import Final

from app.base.texts import counted, percent_text
from app.catalog.domain.judgments import SELF_JUDGED
from app.diagnosis.quality.domain.evidence import EXAMPLES, Answered, Example, Mark, Section, unknown

NAME: Final = "recall"
LEAST_FOUND: Final = 0.9
"""Of the canaries that expect something, the share that should find it in the top k."""
_DEPTHS = (1, 3, 5, 10)
_MISSING = "See whether the missing chunks are in the index at all, and whether their words are those of the queries."
_DEEP = "Ask for more hits and rerank them: what is expected is found, but below the top k."


def recall(answered: Sequence[Answered], *, k: int, fetch_k: int, self_judged: bool = False) -> Section:
    """Count at which depth the first expected chunk of each canary is found, by category too.

    Good where nine in ten canaries find it in the top k. Depths beyond `fetch_k` are not asked for, so unknown; what
    is not found up to there may still be in the index. `self_judged`: expected is only what this retriever returned
    first, so that it finds it.
    """
    expecting = [one for one in answered if one.canary.expects]
    if not expecting:
        return unknown(NAME, "no canary that expects something has been answered", canaries=0)
    depths = sorted({depth for depth in (*_DEPTHS, k, fetch_k) if depth <= fetch_k})
    numbers = _numbers(expecting, depths)
    categories: dict[str, list[Answered]] = {}
    for one in expecting:
        categories.setdefault(str(one.canary.category), []).append(one)
    lost = [one for one in expecting if one.match.first_relevant is None]
    deep = [one for one in expecting if (one.match.first_relevant or 0) > k]
    coverage = 1 - (len(lost) + len(deep)) / len(expecting)
    sentences = [
        f"{percent_text(coverage)} of {counted(len(expecting), 'canary')} find what they expect in the top {k}"
    ]
    if deep:
        sentences.append(f"{percent_text(len(deep) / len(expecting))} below it")
    if lost:
        sentences.append(f"{percent_text(len(lost) / len(expecting))} not in the top {fetch_k}")
    if self_judged:
        sentences.append(f"{SELF_JUDGED}: expected is only what this retriever returned among its first hits")
    good = coverage >= LEAST_FOUND
    advice = _MISSING if len(lost) >= len(deep) else _DEEP
    return Section(
        name=NAME,
        mark=Mark.GOOD if good else Mark.REVIEW,
        reason=", ".join(sentences),
        numbers=numbers,
        groups={name: _numbers(part, depths) for name, part in sorted(categories.items()) if len(categories) > 1},
        examples=[
            *[Example(note=f"not in the top {fetch_k}", canary=one.canary.key) for one in lost[:EXAMPLES]],
            *[
                Example(note=f"first found at rank {one.match.first_relevant}", canary=one.canary.key)
                for one in sorted(deep, key=lambda one: -(one.match.first_relevant or 0))[:EXAMPLES]
            ],
        ],
        advice=None if good else advice,
    )


def _numbers(expecting: Sequence[Answered], depths: Sequence[int]) -> dict[str, float | int | None]:
    ranks = [one.match.first_relevant for one in expecting]
    shares = {f"found@{depth}": sum(rank is not None and rank <= depth for rank in ranks) for depth in depths}
    return {
        "canaries": len(expecting),
        **{name: count / len(expecting) for name, count in shares.items()},
        "not_found": ranks.count(None) / len(expecting),
    }
