"""Says why a canary is degraded in sentences, each with the numbers it rests on: pages and reports share them.

They read the plain `result` of `shapes`, whose texts may be hostile; nothing of those texts is quoted here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.model import Reason


def why_degraded(result: Mapping[str, Any]) -> list[str]:
    """Say why a result is degraded, a sentence per reason."""
    return [_sentence(Reason(reason), result) for reason in result["reasons"]]


def first_expected(result: Mapping[str, Any]) -> int | None:
    """Give the rank at which a result's first expected chunk stands."""
    return next((hit["rank"] for hit in result["ranking"] if hit["grade"] is not None and hit["grade"] >= 1), None)


def not_returned(result: Mapping[str, Any]) -> Sequence[Any]:
    """List what was expected and not returned at all; what merely stands below the top k is not among it."""
    returned = [hit["judgment"] for hit in result["ranking"]]
    return [judgment for judgment in result["missing"] if judgment not in returned]


def _sentence(reason: Reason, result: Mapping[str, Any]) -> str:
    top = _score(result["top_score"])
    match reason:
        case Reason.LOW_RELEVANCE:
            return f"top score {top} is below its minimum {result['min_relevance_score']:g}"
        case Reason.MISSING:
            rank = first_expected(result)
            return f"no expected chunk in the top {result['k']}" + (f", the first is at rank {rank}" if rank else "")
        case Reason.BELOW_FLOOR:
            return _floors(result["measures"], result["floors"])
        case Reason.ANSWERED:
            most = f"{result['max_relevance_score']:g}"
            return f"answered with top score {top} though no good answer exists (at most {most})"
        case _:
            return _PLAIN[reason]


def _floors(measures: Mapping[str, float | None], floors: Mapping[str, float]) -> str:
    missed = [
        f"{name} {_score(value)} is below its floor {floor:g}"
        for name, floor in floors.items()
        if (value := measures.get(name)) is not None and value < floor
    ]
    return ", ".join(missed) or "a measure is below its floor"


_PLAIN = {
    Reason.FORBIDDEN: "a chunk that must not be returned was returned",
    Reason.REGRESSED: "worse than in its baseline",
    Reason.STALE: "the newest of its hits is older than its maximum age",
    Reason.SLOW: "answered later than its maximum latency",
}


def _score(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
