"""Kinds of causes of whole runs: the words of each, what to do about it, the cause of single canaries it explains.

Here are the words without figures. Those of answers that became shorter are made of figures, by `run_changes`, which
finds what whole answers show; `run_causes` finds the others and adds the figures of each.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from app.alerts.domain.summaries import CAUSE_ADVICE, CAUSE_WORDS, EMBEDDER_ADVICE
from app.base.values import Cause


class RunCauseKind(StrEnum):
    """Kind of change of a whole run."""

    RECHUNKED = "rechunked"
    """The same texts, cut differently, under other ids."""
    REINDEXED = "reindexed"
    """The same chunks, under other ids."""
    RENAMED_DOCUMENTS = "renamed_documents"
    """The same chunks, of documents by other names."""
    EMBEDDER_CHANGED = "embedder_changed"
    """The embedder returns other vectors for the reference texts."""
    TEXTS_CHANGED = "texts_changed"
    """The same chunks, under the same ids, have other texts: cut, emptied, rewritten."""
    SCORES_CHANGED = "scores_changed"
    """The same chunks have other scores: the encoder or the scoring changed."""
    EMPTY_ANSWERS = "empty_answers"
    """Answers that had hits have none."""
    LIMITED = "limited"
    """No answer has more than a few hits, those that were the first."""
    SCORE_THRESHOLD = "score_threshold"
    """Hits below a score are not returned any more."""
    MISSING = "missing"
    """Chunks are in no answer any more, and the others closed up."""
    REPLICAS_DIFFER = "replicas_differ"
    """Some answers are as they were, the others come from another index."""
    SEARCH_MISSES = "search_misses"
    """Chunks are missed here and there, in no pattern: an approximate search."""
    NEAR_COPIES = "near_copies"
    """Near copies of what was found rank above it."""
    NEW_CHUNKS = "new_chunks"
    """Other new chunks do."""
    OTHER_VECTORS = "other_vectors"
    """Hardly an answer has a hit in common with before."""
    RANKING_CHANGED = "ranking_changed"
    """The same chunks in another order, everywhere."""


PHRASES: Final[Mapping[RunCauseKind, str]] = {
    RunCauseKind.RECHUNKED: CAUSE_WORDS[Cause.RECHUNKED].shared,
    RunCauseKind.REINDEXED: "chunks re-indexed under other ids",
    RunCauseKind.RENAMED_DOCUMENTS: "documents renamed",
    RunCauseKind.EMBEDDER_CHANGED: "embedder changed",
    RunCauseKind.TEXTS_CHANGED: CAUSE_WORDS[Cause.TEXTS_CHANGED].shared,
    RunCauseKind.SCORES_CHANGED: "scores of the same chunks changed",
    RunCauseKind.MISSING: CAUSE_WORDS[Cause.MISSING].shared,
    RunCauseKind.REPLICAS_DIFFER: "answers come from two states of the index in turn: replicas differ",
    RunCauseKind.SEARCH_MISSES: "the vector search misses chunks here and there",
    RunCauseKind.NEAR_COPIES: CAUSE_WORDS[Cause.DUPLICATES].shared,
    RunCauseKind.NEW_CHUNKS: "outranked by new chunks",
    RunCauseKind.OTHER_VECTORS: (
        "hardly a hit in common with before: another embedding model for the queries or for the index"
    ),
    RunCauseKind.RANKING_CHANGED: "another encoder or another scoring",
}
"""The name of each, without figures; answers that became shorter have none."""
SAME_IDS: Final = "chunks re-cut under their old ids"
"""Instead, where chunks were re-cut and most ids are those of before."""
OTHER_ANALYZER: Final = "another analyzer or another scoring"
"""Instead, where the ranking changed and scores are sums of word weights, which have no vectors."""
CAUSES: Final[Mapping[RunCauseKind, Cause]] = {
    RunCauseKind.RECHUNKED: Cause.RECHUNKED,
    RunCauseKind.REINDEXED: Cause.RECHUNKED,
    RunCauseKind.RENAMED_DOCUMENTS: Cause.RECHUNKED,
    RunCauseKind.TEXTS_CHANGED: Cause.TEXTS_CHANGED,
    RunCauseKind.SCORES_CHANGED: Cause.SCORE_DRIFT,
    RunCauseKind.EMPTY_ANSWERS: Cause.TRUNCATED,
    RunCauseKind.LIMITED: Cause.TRUNCATED,
    RunCauseKind.SCORE_THRESHOLD: Cause.TRUNCATED,
    RunCauseKind.MISSING: Cause.MISSING,
    RunCauseKind.REPLICAS_DIFFER: Cause.UNSTABLE,
    RunCauseKind.SEARCH_MISSES: Cause.UNSTABLE,
    RunCauseKind.NEAR_COPIES: Cause.DUPLICATES,
    RunCauseKind.NEW_CHUNKS: Cause.OUTRANKED,
    RunCauseKind.OTHER_VECTORS: Cause.SCORE_DRIFT,
    RunCauseKind.RANKING_CHANGED: Cause.SCORE_DRIFT,
}
"""The cause of the single canaries that each explains; without one they keep their own."""


def advice_on(kind: RunCauseKind) -> str:
    """Return what to do about a cause; without words of its own, the advice on the canaries that it explains."""
    cause = CAUSES.get(kind)
    return _ADVICE.get(kind) or (EMBEDDER_ADVICE if cause is None else CAUSE_ADVICE[cause])


_ADVICE: Final[Mapping[RunCauseKind, str]] = {
    RunCauseKind.EMPTY_ANSWERS: "Check that the index or collection has its documents, and that its name, alias, "
    "tenant and filters are right; where only some answers are empty, look for time limits and failing shards.",
    RunCauseKind.LIMITED: "Look for a lower limit (k, size, limit) in the retriever or in what calls it.",
    RunCauseKind.SCORE_THRESHOLD: "Look for a new or higher score threshold in the retriever or in what calls it.",
    RunCauseKind.MISSING: "Find out whether these documents were deleted, are filtered away or were left out when the "
    "index was copied or built. Bring them back, or retire the canaries if that was on purpose.",
    RunCauseKind.REPLICAS_DIFFER: "Compare the replicas or versions behind the address, their numbers of documents and "
    "their models, and take the one that differs out of service.",
    RunCauseKind.SEARCH_MISSES: "Raise the search effort of the vector index (ef_search, nprobe, num_candidates), or "
    "rebuild the index.",
    RunCauseKind.NEW_CHUNKS: "Look at what was added: it may answer as well, and then the canary may expect it; if "
    "not, take it out.",
    RunCauseKind.OTHER_VECTORS: "Make queries and index use the same embedding model: bring the former one back, or "
    "embed the whole index with the new one.",
    RunCauseKind.RANKING_CHANGED: "Find out which model, analyzer or scoring was changed. Compare the runs for what "
    "got better and worse, and accept the present as normal if it is meant.",
}
