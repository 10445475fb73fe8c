"""What to do next about an alert, by its rule, what changed and the causes of that.

The words for what happened are in `summaries`.
"""

from collections.abc import Mapping
from typing import Final

from app.alerts.domain.summaries import (
    MOST_NAMED,
    AlertFacts,
    ChangedCanaries,
    commonest_changes,
    commonest_first,
    is_about_answers,
)
from app.alerts.domain.views import AnswerChange, TransitionType
from app.base.values import Cause, Reason, RuleKind

CAUSE_ADVICE: Final[Mapping[Cause, str]] = {
    Cause.RETRIEVER_ERROR: "Repair the retriever first: it fails on retry, so no other cause can be diagnosed.",
    Cause.WRONG_FIELD: "Correct the suite: import it again with that column read as the other field (expected chunk id "
    "or expected document), or edit the canaries.",
    Cause.TRUNCATED: "Look for a lower limit, a stricter score threshold or a filter that cuts its answers short.",
    Cause.TEXTS_CHANGED: "Look at the text field of the index and of the API: the chunks are there, and what the "
    "canaries expect is not in their texts any more. Repair the ingestion or the field that is returned.",
    Cause.SCORE_DRIFT: "Find out whether the embedding model or the scoring was changed. If on purpose, accept the "
    "present as normal; canaries that score too low then need a lower minimum relevance (min_relevance_score).",
    Cause.RECHUNKED: "Review the proposals on the page of renamed chunks; accept those with the same text.",
    Cause.MISSING: "Find out whether the documents of the lost chunks were deleted, are filtered away or were left out "
    "when the index was copied or built. Bring them back, or archive the canaries if that was on purpose.",
    Cause.VOCABULARY_MISMATCH: "Improve retrieval for such queries, or correct what the canaries expect.",
    Cause.DUPLICATES: "Remove the copies from the index, and find out which ingestion job brought them.",
    Cause.UNSTABLE: "Look at the search parameters of the vector index (ef, nprobe) and at replicas that differ.",
    Cause.LEFT_OUT: "Nothing came in above. Look for a filter and at the search parameters of the vector index (ef, "
    "nprobe); if the index lost the chunk, re-index its document.",
    Cause.LOW_RELEVANCE: "If good answers scored higher before, find out what changed. If they did not, the scores are "
    "on no such scale: set “Scores are” of the retriever to “not on a scale” (in files scorer: {kind: judged}), or "
    "lower the minimum relevance (min_relevance_score) of the canaries.",
    Cause.OUTRANKED: "Compare the rankings: what came in above may answer as well, and then the canary may expect it.",
}
"""Next step by cause."""
EMBEDDER_ADVICE: Final = (
    "Restore the embedding model that the index was built with, or re-index everything with the new one."
)
_STATED_ADVICE: Final = {
    RuleKind.NO_DATA: (
        "See whether a run is under way, slower than its schedule, and if a worker runs: its log shows why."
    ),
    RuleKind.EMBEDDING: EMBEDDER_ADVICE,
    RuleKind.LEAK: "Bring back the filter or permission that kept these out, then find out who else got them.",
    RuleKind.PLANT: "Look at the pipeline that fills the index: is its queue stopped, behind, or losing removals?",
    RuleKind.INDEX: "Find out what was deleted, or not indexed again. Where exact search finds more, raise ef_search, "
    "nprobe or num_candidates, or rebuild the index. If it is meant, accept the present as normal.",
}
EDITED_ADVICE: Final = (
    "The index may be as it was: the check was changed. Set it back, or accept the present as normal if it is meant."
)
"""Where the check counts fewer first hits, or asks another retriever."""
REDEFINED_BRIEF: Final = "edited in the suite"
REDEFINED_ADVICE: Final = (
    "It is unknown whether anything is lost: what these canaries ask or expect is new. Correct them, or accept the "
    "present as normal if it is meant."
)
"""Where no canary is worse that asks and expects what it did before."""
_REJUDGED_ADVICE: Final = (
    "Nothing may be lost: canaries ask or expect something else than before. Correct them, or set the bound anew, or "
    "accept the present as normal."
)
"""Where a number fell with that, and no canary is degraded."""
_SCALE: Final = "“Scores are” in the form of the retriever"
_SCORED_LOW: Final = (
    "Find out which model or scoring was changed, and bring the former one back. If on purpose, say what scores are "
    f"now ({_SCALE}, scorer in its file), or lower the minimum relevance of canaries: "
    "accepting the present as normal changes neither."
)
"""Where the right chunks come with scores below the canaries' own minimum, which no baseline moves."""
_UNKNOWN_CAUSE: Final = "Compare the run with the last healthy one, and diagnose the canaries that changed."


def leads_to_retriever(advice: str, kind: str) -> bool:
    """Whether what advice on an alert of this kind says is done at the retriever, so that a link leads there."""
    return bool(advice) and (kind == RuleKind.PROBE_ERRORS or _SCALE in advice)


def alert_advice(facts: AlertFacts) -> str:
    """Return what to do next, in one or two sentences; empty for a resolved alert."""
    if facts.change is TransitionType.RESOLVED:
        return ""
    match facts.kind:
        case RuleKind.PROBE_ERRORS:
            unknown = "Correct what the reason names, and run the check again."
            return unknown if facts.failure is None else facts.failure.advice(facts.retriever)
        case RuleKind.LATENCY | RuleKind.SLOWER:
            return f"Check the load of {facts.retriever or 'the retriever'}: CPU, cold caches, a larger index."
        case RuleKind.NO_DATA | RuleKind.EMBEDDING | RuleKind.LEAK | RuleKind.PLANT | RuleKind.INDEX:
            return _STATED_ADVICE[facts.kind]
        case _:
            return _answers(facts) if is_about_answers(facts) else _canaries(facts.changed)


_ANSWER_ADVICE: Final[Mapping[AnswerChange, str]] = {
    AnswerChange.RETRIEVAL: "Look at retrieval: it got worse for the same queries.",
    AnswerChange.CHUNKS: "Look at the context: the generator gets other chunks than before, though the expected ones "
    "are still found.",
    AnswerChange.ANSWER: "Look at the generator (model, prompt, settings): its answers changed, and the chunks it gets "
    "did not.",
    AnswerChange.JUDGE: "Look at the judge (model, wording): it rates otherwise than before. Let people label answers "
    "anew.",
}
"""Next step by what changed with answers."""
_READ_ANSWERS: Final = "Read the worst answers of the run beside their chunks: generator, prompt, context or judge?"
_SEE_JUDGE: Final = (
    "See why answers were not judged, at the judge and the generator: nothing is known of these until then."
)
_SET_BACK: Final = "Set it back, or run the check both ways, before you look for a fault."
_NOT_BY_JUDGE: Final = "The judge does not change texts, and these changed too."
_UNCONFIRMED: Final = "No labels of people confirm the judge: its page says what to do before you rely on it."


def _answers(facts: AlertFacts) -> str:
    """Return what to do about the two commonest changes of the answers that got worse."""
    if facts.value is None:
        return _SEE_JUDGE
    edited = None if facts.answers is None else facts.answers.get("edited")
    changes = [] if facts.answers is None else [change for change, _ in commonest_changes(facts.answers)[:MOST_NAMED]]
    parts = [_ANSWER_ADVICE[change] for change in changes] or [_READ_ANSWERS]
    if edited and facts.answers is not None:
        first = f"See first what was changed: {edited}. {_SET_BACK}"
        changes = [one for one in changes if one is not AnswerChange.JUDGE and "edited_judge_alone" in facts.answers]
        parts = [first, *([_NOT_BY_JUDGE] if changes else []), *(_ANSWER_ADVICE[change] for change in changes)]
    retrieval = [_canaries(facts.changed)] if AnswerChange.RETRIEVAL in changes else []
    return " ".join([*parts, *retrieval, *([_UNCONFIRMED] if facts.uncalibrated else [])])


def _canaries(changed: ChangedCanaries | None) -> str:
    """Return what to do about the two commonest causes of the changed canaries."""
    if changed is not None and changed.cause and not changed.count:
        return changed.shared_advice
    if changed is None or not changed.count:
        return _REJUDGED_ADVICE if changed is not None and changed.are_many_rejudged else _UNKNOWN_CAUSE
    if changed.reasons and not changed.edited and all(list(one) == [Reason.LOW_RELEVANCE] for one in changed.reasons):
        return _SCORED_LOW
    if changed.shared_advice:
        return changed.shared_advice
    causes = [cause for cause, _ in commonest_first(changed.causes)[:MOST_NAMED]]
    return " ".join(CAUSE_ADVICE[cause] for cause in causes) or _UNKNOWN_CAUSE
