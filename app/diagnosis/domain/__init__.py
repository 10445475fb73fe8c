"""Values of a diagnosis, and views of diagnoses, of judgments to re-anchor, and of the quality of retrieval.

What to ask and what the answers hold is in `chunks`, the causes in `chunk_causes` and `run_causes`, the checklist of
quality in `quality` and `quality_texts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from typing_extensions import TypedDict

from app.base.values import EMPTY, Canary, Cause, Judgment, Ranking, TimeText
from app.retrievers.domain.retrievers import Scale

Numbers: TypeAlias = dict[str, int | float | None]


class RanksFound(TypedDict, total=False):
    """The rank of the best expected chunk in each answer; None where it is not in it."""

    before: int | None
    run: int | None
    repeats: list[int | None]
    deep: int | None
    known_items: list[int | None]
    control: int | None


class HitsReturned(TypedDict, total=False):
    """Number of hits of each answer; None where there is no such answer."""

    before: int | None
    run: int | None
    repeats: list[int]
    deep: int | None


class TextMatch(TypedDict):
    """A chunk that holds the text of an expected one, by the place of its judgment in the canary."""

    judgment: int
    id: str | None
    document: str | None
    similarity: float


class DiagnosisEvidence(TypedDict, total=False):
    """Evidence of the cause; besides what every diagnosis has, each cause has evidence of its own."""

    asked: dict[str, int]
    """How many questions were asked, by kind."""
    failed: list[str]
    ranks: RanksFound
    returned: HitsReturned
    score_change: float | None
    scores_compared: int
    gone: list[int]
    """The places of the judgments whose chunks are gone."""
    matches: list[TextMatch]
    relevance: float | None
    least_relevance: float
    shared_words: float | None
    near_copies: list[tuple[str, str, float]]
    """Pairs of hits that are near copies, with how alike they are."""
    well_on_repeats: int
    score_before: float
    score_at_k: float


class StoredDiagnosis(DiagnosisEvidence, total=False):
    """The evidence as it is stored, beside what a view shows on its own."""

    persistent: bool | None
    rank_before: int | None
    rank_now: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisView:
    """The last diagnosis of a canary of a check."""

    id: str
    check: str
    key: str
    run_id: str
    at: TimeText
    requested_by: str | None
    """None where it was made after a run."""
    cause: Cause
    reason: str
    persistent: bool | None
    """Whether a retry still had the fault; None = none was answered."""
    rank_before: int | None
    rank_now: int | None
    evidence: DiagnosisEvidence
    reanchors: list[str]
    """Open proposals, by id."""


class ReanchorState(StrEnum):
    """State of a proposal."""

    PROPOSED = "proposed"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    OUTDATED = "outdated"


class StoredJudgment(TypedDict):
    """A judgment as canary files write it."""

    id: str | None
    document: str | None
    text: str | None
    grade: int


class RetrievedTexts(TypedDict):
    """Retrieved texts of the chunk that is gone, and of the one for each proposal."""

    old: str
    new: list[str]


class ReanchorOutcome(TypedDict):
    """A proposal and its state."""

    id: str
    key: str
    state: ReanchorState


class ReanchorView(ReanchorOutcome):
    """Judgments proposed in the place of one whose chunk was renamed."""

    query: str | None
    managed_by: str | None
    source: str | None
    judgment: StoredJudgment
    proposals: list[StoredJudgment]
    old_text: str | None
    new_texts: list[str] | None
    similarity: float | None
    created_at: TimeText
    decided_at: TimeText | None
    decided_by: str | None


class FilePatch(TypedDict):
    """A patch of one canary file to commit: a diff, or its canaries as YAML where the file is not readable."""

    file: str | None
    canaries: list[str]
    diff: str | None
    yaml: str


class ReanchorDecision(TypedDict):
    """Result of a decision about proposals."""

    accepted: list[ReanchorOutcome]
    rejected: list[ReanchorOutcome]
    outdated: list[ReanchorOutcome]
    to_commit: list[ReanchorOutcome]
    unchanged: list[ReanchorOutcome]
    patches: list[FilePatch]


class Mark(StrEnum):
    """Verdict of a section."""

    GOOD = "good"
    REVIEW = "look_at_this"
    UNKNOWN = "unknown"


class QualityExample(TypedDict):
    """An example of a section."""

    canary: str | None
    chunk: str | None
    told: str
    text: str | None


class QualityHistogram(TypedDict):
    """Counts of each kind between two edges, the last edge included."""

    edges: list[float | None]
    counts: dict[str, list[int]]


class QualitySection(TypedDict):
    """One point of the checklist."""

    name: str
    verdict: Mark
    reason: str
    numbers: Numbers
    groups: dict[str, Numbers]
    examples: list[QualityExample]
    advice: str | None
    histogram: QualityHistogram | None


class ChunkCounts(TypedDict):
    """Number of evaluated chunks of a report."""

    looked_at: int


class CanaryCounts(ChunkCounts):
    """Number of canaries of a report."""

    total: int
    measured: int


class QualityReport(TypedDict):
    """The checklist of retrieval quality for a check."""

    check: str
    run: str
    at: TimeText | None
    k: int
    fetch_k: int
    canaries: CanaryCounts
    chunks: ChunkCounts
    notes: list[str]
    sections: list[QualitySection]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One extra probe."""

    kind: Kind
    query: str
    k: int
    """Number of hits to ask for."""
    judgment: int | None = None
    """Of a known item: the place of its judgment in the canary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
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
    """Whether an expected chunk was ever in the top k, in the stored history."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundChunk:
    """A chunk that holds an expected passage, or a part of it, under another name."""

    id: str
    document: str | None
    text: str
    similarity: float
    """The share of the passage's word 3-grams it holds, in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reanchor:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
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
