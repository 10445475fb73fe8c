"""Where judgments come from, and when that makes recall *self-judged*.

Judged on a retriever's own first hits alone, its recall is near 1 whatever it misses: what it never returned was never
judged. On cranfield the first 10 hits of BM25 as the only judgments make its R@10 1.000, where it is .414
(`benchmarks.pooling`).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from app.base.values import Canary

JUDGMENT_SOURCE: Final = r"^(task|retriever):[a-z0-9-]{1,64}$"
"""Form of a source: the annotation task that graded a chunk, or the retriever among whose hits it was ticked."""
SELF_JUDGED: Final = "self-judged"
"""Label beside R@k."""
_MOST_SOURCES: Final = 50
_RECALL: Final = frozenset({"R", "R_id", "R_passage"})


def task_source(slug: str) -> str:
    """Return the source of judgments adopted from a task."""
    return f"task:{slug}"


def retriever_source(slug: str) -> str:
    """Return the source of judgments ticked among the first hits of a retriever."""
    return f"retriever:{slug}"


def collect_sources(canaries: Iterable[Canary]) -> list[str] | None:
    """Return the sources of all judgments of the canaries that expect something, sorted.

    None where any has no source, where there is no such canary, and for more than 50 sources.
    """
    found: set[str] = set()
    for canary in canaries:
        if not canary.expects:
            continue
        for judgment in canary.judgments:
            if judgment.source is None:
                return None
            found.add(judgment.source)
        if len(found) > _MOST_SOURCES:
            return None
    return sorted(found) or None


def are_self_judged(sources: Sequence[str] | None, own: Collection[str]) -> bool:
    """Whether all sources are among a retriever's `own`: its first hits, and tasks that pooled nothing else."""
    return bool(sources) and all(one in own for one in sources or ())


def is_own_pool(task: Any, retriever: str, *, depth: int) -> bool:
    """Whether a task, as JSON, pooled only hits that this retriever is asked for: no other, none beyond `depth`.

    One that graded deeper hits has judged some of what recall down to `depth` can miss.
    """
    alone = list(task.get("retrievers") or ()) == [retriever] and not task.get("strata")
    return alone and int(task["pool"]) <= depth


def recall_label(measure: str, *, self_judged: bool | None) -> str:
    """Return the label beside a measure, `self-judged` beside recall where it is; "" = none."""
    return SELF_JUDGED if self_judged and measure.partition("@")[0] in _RECALL else ""


def labelled(measure: str, *, self_judged: bool | None) -> str:
    """Return a measure with its label, `R@5 (self-judged)`."""
    label = recall_label(measure, self_judged=self_judged)
    return f"{measure} ({label})" if label else measure


def self_judged_lines(retriever: str, *, self_judged: bool | None) -> list[str]:
    """Return the sentence that says what the label means; none where recall is not self-judged."""
    line = (
        f"R@k is {SELF_JUDGED}: all judgments are of the first hits of {retriever} itself, so that recall is near 1 "
        "whatever it misses; have a pool of several retrievers judged, or a sample of deeper ranks"
    )
    return [line] if self_judged else []
