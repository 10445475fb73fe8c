"""Values of a diagnosis: the case, the questions about it, its result with the judgments to re-anchor, words of causes.

What to ask and what the answers hold is in `evidence`, the causes in `canary_causes` and `run_causes`, the checklist of
quality in `quality` and `quality_texts`. Each kind of cause of whole runs has its words without figures below, what to
do about it, and the cause of single canaries it explains. Words on answers that became shorter are made of figures, by
`answer_causes`, which finds what whole answers show; `run_causes` finds the others.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from app.alerts.domain.advice import CAUSE_ADVICE, EMBEDDER_ADVICE
from app.alerts.domain.summaries import CAUSE_WORDS
from app.base.values import EMPTY, Canary, Cause, Judgment, Ranking, RunCauseKind, Value, field
from app.diagnosis.views import DiagnosisEvidence
from app.retrievers.domain.retrievers import Scale


class Kind(StrEnum):
    """Purpose of a question."""

    REPEAT = "repeat"
    """The canary's own query again, with the check's depth: is the fault persistent?"""
    DEEP = "deep"
    """The canary's own query, far deeper: how far did the expected chunk fall?"""
    KNOWN_ITEM = "known_item"
    """An expected passage (or one half of it) as the query: is it in the index, and under which id?"""
    CONTROL = "control"
    """The text of a hit of the run as the query: does the index find a chunk by its own text?"""


class Question(Value):
    """One extra probe."""

    kind: Kind
    query: str
    k: int
    """Number of hits to ask for."""
    judgment: int | None = None
    """Of a known item: the place of its judgment in the canary."""


class Case(Value):
    """A canary to be diagnosed, with its rankings now and when last healthy."""

    canary: Canary
    k: int
    """The check's."""
    fetch_k: int
    """Number of hits its runs ask for."""
    now: Ranking | None
    """The ranking of the run to be explained; None = its probe failed."""
    healthy: Ranking | None = None
    """The ranking when the canary was last healthy or, if it lost its chunk, last found it, with the same retriever;
    None = there is none."""
    ever_passed: bool
    """Whether an expected chunk was ever in the top k, in the stored history, of the same retriever."""
    found_by: str | None = None
    """Another retriever, which the check asked before, and in whose top k one was; None where this one had it too."""
    scale: Scale | None = None
    """The declared scale of the retriever's scores; None = it declares none."""
    anchor: float | None = None
    """Of the scale, where it is unbounded."""
    too_low: float | None = None
    """The relevance in [0, 1] of the run's first hit, where the canary is degraded by it; None = it is not."""
    texts: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Texts by chunk id of chunks retrieved earlier, also of those not in `healthy`."""
    renamed: bool = False
    """Whether chunks of the whole index were re-cut or renamed since `healthy`, see run_causes."""
    others: tuple[Ranking, ...] = ()
    """Answers of the run to other canaries: a chunk that one of them has is in the index."""


class FoundChunk(Value):
    """A chunk that holds an expected passage, or a part of it, under another name."""

    id: str
    document: str | None
    text: str
    similarity: float
    """The share of the passage's word 3-grams it holds, in [0, 1]."""


class Reanchor(Value):
    """A judgment whose chunk was renamed, and the judgments proposed in its place."""

    index: int
    """Its place in the canary's judgments."""
    judgment: Judgment
    passage: str
    """Its own text, or that of its chunk when last retrieved."""
    proposals: tuple[Judgment, ...]
    """One, or two where the passage was cut in two; of the same grade."""
    chunks: tuple[FoundChunk, ...]
    """The chunk behind each proposal. Its text was retrieved: not to be trusted."""
    similarity: float
    """The share of the passage's word 3-grams that they hold together, in [0, 1]."""

    @property
    def changes(self) -> bool:
        """Whether the proposals differ from the judgment; one by text alone stays the same."""
        return self.proposals != (self.judgment,)


class Diagnosis(Value):
    """Cause of a degraded canary, with its evidence."""

    cause: Cause
    reason: str
    """A sentence for people without its full stop. It quotes no retrieved text, id or document."""
    evidence: DiagnosisEvidence
    """It has retrieved ids, not texts."""
    persistent: bool | None
    """Whether a repeat still has the fault; False = every repeat was healthy, None = none was answered."""
    rank_before: int | None = None
    """Best rank of the expected chunks when the canary was last healthy."""
    rank_now: int | None = None
    """Best rank of the expected chunks now, in the deepest answer that has one."""
    reanchors: tuple[Reanchor, ...] = ()


def is_overcome(rank_then: int | None, rank_now: int | None) -> bool:
    """Whether an expected chunk ranks higher by now than when it was diagnosed; None = it is not within k.

    Then the diagnosis tells of the past: whatever degrades the canary by now is something else.
    """
    return rank_now is not None and (rank_then is None or rank_now < rank_then)


FEWEST: Final = 3
"""Canaries, answers or chunks that must share a cause of a whole run; what fewer have in common may be chance."""
MAJORITY: Final = 0.5
"""Share of them from which on it is said of all."""
_BRIEF: Final = 36
"""Letters."""
PHRASES: Final[Mapping[RunCauseKind, str]] = {
    RunCauseKind.RECHUNKED: CAUSE_WORDS[Cause.RECHUNKED].shared,
    RunCauseKind.REINDEXED: "chunks re-indexed under other ids",
    RunCauseKind.RENAMED_DOCUMENTS: "documents renamed",
    RunCauseKind.EMBEDDER_CHANGED: "embedder changed",
    RunCauseKind.TEXTS_CHANGED: CAUSE_WORDS[Cause.TEXTS_CHANGED].shared,
    RunCauseKind.SCORES_CHANGED: "scores of the same chunks changed",
    RunCauseKind.MISSING: CAUSE_WORDS[Cause.MISSING].shared,
    RunCauseKind.REPLICAS_DIFFER: "answers come from two states of the index in turn: replicas differ",
    RunCauseKind.SEARCH_MISSES: "hits are gone from within answers here and there",
    RunCauseKind.LEFT_OUT: "first hits are gone from their answers",
    RunCauseKind.NEAR_COPIES: CAUSE_WORDS[Cause.DUPLICATES].shared,
    RunCauseKind.NEW_CHUNKS: "outranked by new chunks",
    RunCauseKind.OTHER_VECTORS: (
        "hardly a hit in common with before: another embedding model for the queries or for the index"
    ),
    RunCauseKind.RANKING_CHANGED: "another encoder or another scoring",
}
"""The name of each, without figures; answers that became shorter have none."""
BRIEFS: Final[Mapping[RunCauseKind, str]] = {
    **{kind: phrase for kind, phrase in PHRASES.items() if len(phrase) <= _BRIEF},
    RunCauseKind.REPLICAS_DIFFER: "replicas differ",
    RunCauseKind.SEARCH_MISSES: "hits gone here and there",
    RunCauseKind.OTHER_VECTORS: "hardly a hit as before",
    RunCauseKind.SCORES_CHANGED: "scores changed",
    RunCauseKind.RECHUNKED: "chunks re-cut",
}
"""The same in few words, where there are any, for titles."""
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
    RunCauseKind.LEFT_OUT: Cause.LEFT_OUT,
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
    RunCauseKind.REPLICAS_DIFFER: "Compare the replicas or versions behind the address, their numbers of documents and "
    "their models, and take the one that differs out of service.",
    RunCauseKind.SEARCH_MISSES: "Diagnose the canaries to see which it is: passed over (raise ef_search, nprobe or "
    "num_candidates, or rebuild the index), filtered, or fallen below the last hit (compare the rankings).",
    RunCauseKind.NEW_CHUNKS: "Look at what was added: it may answer as well, and then the canary may expect it; if "
    "not, take it out.",
    RunCauseKind.OTHER_VECTORS: "Make queries and index use the same embedding model: bring the former one back, or "
    "embed the whole index with the new one.",
    RunCauseKind.RANKING_CHANGED: "Find out which model, analyzer or scoring was changed. Compare the runs for what "
    "got better and worse, and accept the present as normal if it is meant.",
}
