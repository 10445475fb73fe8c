"""Values of a diagnosis: the case, the questions about it, and its result with the judgments to re-anchor.

What to ask and what the answers hold is in `evidence`, the causes in `chunk_causes` and `run_causes`, the checklist of
quality in `quality` and `quality_texts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.base.values import EMPTY, Canary, Cause, Judgment, Ranking
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
