"""Explains in sentences with numbers why a canary is degraded, for pages and reports.

The input is the plain `result` of `records.documents`; its texts, which may be hostile, are not quoted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.base.texts import age_text, ratio_text
from app.base.values import Reason
from app.scoring.evaluation import WRONG_FIELDS, compare_names


def why_degraded(result: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each reason of a degraded result."""
    return [_SENTENCES[Reason(reason)](result) for reason in result["reasons"]]


def first_expected(result: Mapping[str, Any]) -> int | None:
    """Return the rank of a result's first expected chunk; None = it is not in the ranking."""
    return next((hit["rank"] for hit in result["ranking"] if hit["grade"] is not None and hit["grade"] >= 1), None)


def not_returned(result: Mapping[str, Any]) -> Sequence[Any]:
    """Return the expected chunks that were not returned at all, so without those below the top k."""
    returned = [hit["judgment"] for hit in result["ranking"]]
    return [judgment for judgment in result["missing"] if judgment not in returned]


def wrong_field(result: Mapping[str, Any]) -> str | None:
    """Say that what is expected is named by the wrong field, without a full stop; None where no hit shows it."""
    expected = [(one.get("id"), one.get("document")) for one in result["missing"]]
    hits = result["ranking"]
    return WRONG_FIELDS.get(compare_names(expected, [hit["id"] for hit in hits], [hit["document"] for hit in hits]))


def _low_relevance(result: Mapping[str, Any]) -> str:
    least = result["min_relevance_score"]
    return f"relevance {_score(result['top_score'], least)} is below its minimum {least:g}"


def _missing(result: Mapping[str, Any]) -> str:
    rank = first_expected(result)
    if rank is not None and rank <= result["k"]:
        return f"the expected chunk is at rank {rank}, and the expected text is not in it any more"
    said = f"no expected chunk in the top {result['k']}"
    if rank:
        return f"{said}, the first is at rank {rank}"
    wrong = wrong_field(result)
    return said if wrong is None else f"{wrong[0].lower()}{wrong[1:]}, so there is {said}"


def _below_floor(result: Mapping[str, Any]) -> str:
    missed = [
        f"{name} {_score(value, floor)} is below its floor {floor:g}"
        for name, floor in result["floors"].items()
        if (value := result["measures"].get(name)) is not None and value < floor
    ]
    return ", ".join(missed) or "a measure is below its floor"


def _forbidden(result: Mapping[str, Any]) -> str:
    if result.get("expect_empty"):
        count = len(result["ranking"])
        return f"returned {count} {'hit' if count == 1 else 'hits'} where nothing may be returned"
    *others, last = [str(rank) for rank in result.get("forbidden_ranks") or [""]]
    ranks = f"{', '.join(others)} and {last}" if others else last
    return "a chunk that must not be returned was returned" + (f" at rank {ranks}" if ranks else "")


def _answered(result: Mapping[str, Any]) -> str:
    most = result["max_relevance_score"]
    score = _score(result["top_score"], most)
    return f"answered with relevance {score} though no good answer exists (at most {most:g})"


def _stale(result: Mapping[str, Any]) -> str:
    if result["age_seconds"] is None:
        return f"returned nothing, where something no older than {age_text(result['max_age_seconds'])} was expected"
    age, most = _distinct_ages(result["age_seconds"], result["max_age_seconds"])
    return f"the newest of its top {result['k']} hits is {age} old, more than {most}"


def _slow(result: Mapping[str, Any]) -> str:
    took, most = _distinct_ages(result["latency_seconds"], result["max_latency_seconds"])
    return f"answered in {took}, more than {most}"


def _distinct_ages(value: float, most: float) -> tuple[str, str]:
    """Return a duration and the limit it exceeds, with enough digits to differ."""
    return age_text(value, most), age_text(most, value)


_SENTENCES: Mapping[Reason, Callable[[Mapping[str, Any]], str]] = {
    Reason.LOW_RELEVANCE: _low_relevance,
    Reason.MISSING: _missing,
    Reason.BELOW_FLOOR: _below_floor,
    Reason.FORBIDDEN: _forbidden,
    Reason.ANSWERED: _answered,
    Reason.REGRESSED: lambda _: "worse than in its baseline",
    Reason.STALE: _stale,
    Reason.SLOW: _slow,
}


def _score(value: float | None, bound: float) -> str:
    """Format a score with as many digits as it takes to differ from its bound."""
    return "undefined" if value is None else ratio_text(value, bound)
