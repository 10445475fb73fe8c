"""Views of diagnoses, of judgments to re-anchor, and of the quality of retrieval, as JSON on the wire and in rows."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from typing_extensions import TypedDict

from app.base.values import Cause, TimeText

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
    deeper: dict[str, int]
    """Ranks of the expected chunks that the run did not retrieve and a deeper answer has, by their names."""
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
