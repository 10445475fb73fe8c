"""Suggests mappings for an undescribed response: which of its lists holds the hits, and which field is which.

Pure: a response in, mappings with their reasons out, best first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.base.values import DEFAULT_MIN_RELEVANCE
from app.retrievers.domain.field_guesses import (
    MAX_PATH_LENGTH,
    guess_fields,
    is_prose,
    normalize_name,
    read_text,
    score_order,
)
from app.retrievers.domain.hit_candidates import NEVER_HITS, SELDOM_HITS, Candidate, find_candidates
from app.retrievers.domain.relevance import scale_relevance
from app.retrievers.domain.retrievers import ResponseMapping, Scale

MAX_SUGGESTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A mapping that reads hits from the response, with a reason for each field and for `hits`.

    `scale` is the likely scale of the scores; None = none is likely, or a good hit would not be relevant enough on it
    (`usable_scale`).
    """

    mapping: ResponseMapping
    reasons: Mapping[str, str]
    hits: int
    weight: float
    scale: Scale | None = None


def suggest_mappings(answer: Any, *, query: str = "") -> list[Suggestion]:
    """Return mappings for a parsed JSON response, best first; none where nothing looks like hits.

    Texts that share words with `query` are likelier hits, and fields that repeat it are none. The effort is bounded.
    """
    suggestions = [
        one for candidate in find_candidates(answer) if (one := _suggest_mapping(candidate, query)) is not None
    ]
    suggestions.sort(key=lambda suggestion: -suggestion.weight)
    top_weight = suggestions[0].weight if suggestions else 0.0
    distinct = {suggestion.mapping: suggestion for suggestion in reversed(suggestions)}
    ordered = sorted(distinct.values(), key=lambda suggestion: -suggestion.weight)
    return [suggestion for suggestion in ordered if suggestion.weight >= top_weight * _LEAST_SHARE][:MAX_SUGGESTIONS]


def _suggest_mapping(candidate: Candidate, query: str) -> Suggestion | None:
    guesses = guess_fields(candidate.fields, query)
    text, id_guess, score = guesses.get("text"), guesses.get("id"), guesses.get("score")
    if score is not None and candidate.hits is None and score.path.startswith("to_number("):
        del guesses["score"]  # it takes one text, not a column of them
        score = None
    if candidate.hits is not None and len(candidate.hits) > MAX_PATH_LENGTH:
        return None
    if id_guess is None and (text is None or not all(map(_is_text, text.values))):
        return None
    identifying = {guess.path for guess in (text, id_guess) if guess is not None}
    if candidate.own is not None and (not candidate.own & identifying or len(guesses) == 1):
        return None
    has_prose = text is not None and any(isinstance(value, str) and is_prose(value) for value in text.values)
    if score is None and not has_prose and any(field.role == "id" for field in candidate.fields):
        return None  # things of all kinds have names
    names = [normalize_name(part) for part in candidate.parts if isinstance(part, str)]
    if NEVER_HITS.intersection(names):
        return None
    weight = sum(_WORTH[role] * max(guess.weight, 0.0) for role, guess in guesses.items())
    weight += (
        0.5 * bool(names and names[-1] in _CONTAINERS) + min(candidate.count, 10) / 20 - 0.05 * len(candidate.parts)
    )
    if SELDOM_HITS.intersection(names):
        weight *= 0.5
    return Suggestion(
        mapping=ResponseMapping(hits=candidate.hits, **{role: guess.path for role, guess in guesses.items()}),
        reasons={"hits": candidate.reason, **{role: guess.reason for role, guess in guesses.items()}},
        hits=candidate.count,
        weight=weight,
        scale=None if score is None else usable_scale(score.path, score.values),
    )


def suggest_signs(answer: Any) -> dict[str, str]:
    """Return paths of `error` and `partial` for the usual fields that a response has, whatever their values are."""
    if not isinstance(answer, Mapping):
        return {}
    has = {
        "error": [
            *(name for name in ("error", "errors") if name in answer),
            *(name for name in ("success", "ok") if isinstance(answer.get(name), bool)),
            *(["code"] if isinstance(answer.get("code"), int) and {"data", "message", "msg"} & answer.keys() else []),
            *(
                ["status"]
                if "status" in answer and "result" in answer and not isinstance(answer["status"], int)
                else []
            ),
        ],
        "partial": [path for path in _PARTIAL_SIGNS if _has_path(answer, path.split("."))],
    }
    return {field: " || ".join(paths) for field, paths in has.items() if paths}


def _has_path(value: Any, steps: Sequence[str]) -> bool:
    for step in steps:
        if not isinstance(value, Mapping) or step not in value:
            return False
        value = value[step]
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or bool(read_text(value))


def usable_scale(path: str, scores: Sequence[float]) -> Scale | None:
    """Return the likely scale, unless good hits on it would hardly reach what most canaries require."""
    scale = likely_scale(path, scores)
    return scale if scale is not None and scale_relevance(scale, scores[0]) >= DEFAULT_MIN_RELEVANCE + _SPREAD else None


def likely_scale(path: str, scores: Sequence[float]) -> Scale | None:
    """Return the scale that scores in their order look like; None where there are none or they are unbounded."""
    if not scores:
        return None
    least, most, order = min(scores), max(scores), score_order(scores)
    distant = "distance" in path.lower() or "dist" in normalize_name(path.rsplit(".", 1)[-1]).split("_")
    if least >= 0 and (order == "rising" or (distant and order != "falling")):
        return Scale.DISTANCE
    if least >= 0 and most <= 1:
        return Scale.COSINE if distant else Scale.SIMILARITY
    return Scale.COSINE if least >= -1 and most <= 1 else None


_PARTIAL_SIGNS = (
    *("timed_out", "_shards", "_clusters", "root.coverage.degraded", "root.errors", "search_cutoff", "partial"),
    "partial_results",
)
_LEAST_SHARE = 0.4
_SPREAD = 0.15  # in relevance: one answer was seen, and good answers to other questions score lower
_WORTH = {"text": 3.0, "id": 2.0, "score": 2.0, "document": 0.5, "updated": 0.2}
_CONTAINERS = frozenset(
    {"result", "hit", "match", "document", "doc", "chunk", "passage", "item", "point", "node", "context", "source"}
    | {"retrieval_result", "data", "value", "output", "record", "neighbor", "response", "search_result", "children"}
)
