"""Advice for an alert: one short line per cause, the same on pages and in every kind of hook."""

import re
from collections.abc import Mapping
from typing import Final

from app.alerts.domain.alert_state import TransitionType
from app.alerts.domain.canary_changes import ChangedCanaries
from app.alerts.domain.summary import AlertFacts
from app.base.values import Cause, Outcome, RuleKind
from app.retrievers.domain.probe_failures import FailureSummary

CAUSE_ADVICE: Final[Mapping[Cause, str]] = {
    Cause.RETRIEVER_ERROR: "Repair the retriever first: it fails on retry, so no other cause can be diagnosed.",
    Cause.WRONG_FIELD: "Correct the suite: import it again with that column read as the other field (expected chunk id "
    "or expected document), or edit the canaries.",
    Cause.TRUNCATED: "Look for a lower limit, a stricter score threshold or a filter that cuts its answers short.",
    Cause.TEXTS_CHANGED: "Look at the text field of the index and of the API: the chunks are there, and what the "
    "canaries expect is not in their texts any more. Repair the ingestion or the field that is returned.",
    Cause.SCORE_DRIFT: "Find out whether the embedding model or the scoring was changed; if on purpose, accept the "
    "present as normal.",
    Cause.RECHUNKED: "Review the proposals on the page of renamed chunks; accept those with the same text.",
    Cause.MISSING: "Re-index the documents of the lost chunks; if they were deleted on purpose, retire the canaries.",
    Cause.VOCABULARY_MISMATCH: "Improve retrieval for such queries, or correct what the canaries expect.",
    Cause.DUPLICATES: "Remove the copies from the index, and find out which ingestion job brought them.",
    Cause.UNSTABLE: "Look at the search parameters of the vector index (ef, nprobe) and at replicas that differ.",
    Cause.LOW_RELEVANCE: "If good answers scored higher before, find out what changed. If they did not, the scores are "
    "on no such scale: set “Scores are” of the retriever to “not on a scale” (in files scorer: {kind: judged}), or "
    "lower min_relevance_score of the canaries.",
    Cause.OUTRANKED: "Compare the rankings: what came in above may answer as well, and then the canary may expect it.",
}
"""Next step by cause."""
EMBEDDER_ADVICE: Final = (
    "Restore the embedding model that the index was built with, or re-index everything with the new one."
)
_UNKNOWN_CAUSE: Final = "Compare the run with the last healthy one, and diagnose the canaries that changed."
_OUTCOMES: Final[Mapping[Outcome, str]] = {
    Outcome.UNREACHABLE: "Check that {who} is running and can be reached from Coalmine.",
    Outcome.TIMEOUT: "Check that {who} is running, and how busy it is.",
    Outcome.REFUSED: "Send a test request to see what {who} rejects.",
    Outcome.MALFORMED: "Send a test request and compare the answer of {who} with the response mapping.",
    Outcome.BLOCKED: "Correct the URL of {who}, or allow its address in COALMINE_RETRIEVER_ALLOW.",
    Outcome.PARTIAL: "Look at the message of {who}: a part of it failed or was too slow (shards, time limits, load).",
    Outcome.OVERSIZE: "Ask {who} for fewer or shorter chunks.",
}
_STATUSES: Final[Mapping[int, str]] = {
    401: "Check the credentials for {who}.",
    403: "Check the credentials for {who}, and what they may read.",
    404: "Check the URL of {who}, and that its collection exists.",
    429: "Lower the concurrency or the rate of the retriever: {who} limits requests.",
}
_DATABASE: Final[Mapping[str, str]] = {
    "28": "Check the credentials for {who}.",
    "42501": "Check the grants of the database user of {who}: it may not read what the statement names.",
    "3D000": "Check the URL of {who}, and that its database exists.",
    "3F": "Check that the schema in the statement exists, at {who}.",
    "42": "Check the tables, columns and functions that the statement names, at {who}.",
    "53300": "Lower the concurrency of the retriever, or allow more connections: {who} has none left.",
    "53": "Check memory and disk of {who}.",
    "57P": "Check that {who} is running; it is starting, stopping or was shut down.",
}
_SQLSTATE: Final = re.compile(r"the database answered ([0-9A-Z]{5})\b")
_REDIRECT: Final = (
    "Set the URL of {who} to the address that it redirects to; if that is a sign-in, check the credentials."
)
_FIRST_CLIENT_ERROR: Final = 400
_SERVER_ERROR: Final = "Check the log of {who}."
_FIRST_SERVER_ERROR: Final = 500
_MOST_CAUSES: Final = 2


def alert_advice(facts: AlertFacts) -> str:
    """Return what to do next, in one or two sentences; empty for a resolved alert."""
    if facts.change is TransitionType.RESOLVED:
        return ""
    match facts.kind:
        case RuleKind.PROBE_ERRORS:
            return _outage(facts.failure, facts.retriever)
        case RuleKind.NO_DATA:
            return "Check that a worker is running; its log shows why no run completes."
        case RuleKind.LATENCY | RuleKind.SLOWER:
            return f"Check the load of {facts.retriever or 'the retriever'}: CPU, cold caches, a larger index."
        case RuleKind.EMBEDDING:
            return EMBEDDER_ADVICE
        case _:
            return _canaries(facts.changed)


def _outage(failure: FailureSummary | None, retriever: str) -> str:
    if failure is None:
        return "Correct what the reason names, and run the check again."
    text = _OUTCOMES.get(failure.outcome, _SERVER_ERROR)
    state = _SQLSTATE.search(failure.error)
    if state is not None:
        text = next((advice for start, advice in _DATABASE.items() if state[1].startswith(start)), text)
    elif "TLS" in failure.error:
        text = "Check the TLS settings and the certificate of {who}."
    if failure.outcome is Outcome.REFUSED and failure.http_status is not None:
        other = _REDIRECT if failure.http_status < _FIRST_CLIENT_ERROR else text
        other = _SERVER_ERROR if failure.http_status >= _FIRST_SERVER_ERROR else other
        text = _STATUSES.get(failure.http_status, other)
    return text.format(who=failure.who(retriever))


def _canaries(changed: ChangedCanaries | None) -> str:
    """Return what to do about the two commonest causes of the changed canaries."""
    if changed is None or not changed.count:
        return _UNKNOWN_CAUSE
    if changed.shared_advice:
        return changed.shared_advice
    causes = [cause for cause, _ in changed.ordered_causes[:_MOST_CAUSES]]
    return " ".join(CAUSE_ADVICE[cause] for cause in causes) or _UNKNOWN_CAUSE
