"""What a diagnosis is made of, as values: the case, the questions put to the retriever, the cause with its evidence.

Which questions are put is asking's, what the answers mean is causes', what a whole run's causes mean is fleet's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.domain.model import EMPTY, Canary, Cause, Judgment, Ranking
from app.domain.probing.retrievers import Scale


def _empty() -> Mapping[str, Any]:
    return EMPTY


class Kind(StrEnum):
    """What a question is for."""

    REPEAT = "repeat"
    """The canary's own query once more, as deep as its check asks: does it stay like this?"""
    DEEP = "deep"
    """The canary's own query, far deeper: how far did the expected chunk fall?"""
    KNOWN_ITEM = "known_item"
    """An expected passage (or one half of it) as the query: is it in the index at all, and under which id?"""
    CONTROL = "control"
    """The text of a hit of the run as the query: does the index bring by its own text what it surely has?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One extra probe."""

    kind: Kind
    query: str
    k: int
    """How many hits to ask for."""
    judgment: int | None = None
    """Of a known item: the place in the canary's judgments of the one whose passage is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A canary to be diagnosed, and what is remembered of it."""

    canary: Canary
    k: int
    """The check's."""
    fetch_k: int
    """How many hits its runs ask for."""
    now: Ranking | None
    """What the run retrieved that is asked about; None = its probe failed."""
    healthy: Ranking | None = None
    """What was retrieved when the canary was last healthy or, of one that lost its chunk, last found it, under the same
    retriever; None = there is no such."""
    ever_passed: bool
    """Whether an expected chunk was ever in the top k, as far back as history goes."""
    scale: Scale | None = None
    """The declared scale of the retriever's scores; None = it declares none."""
    anchor: float | None = None
    """Of the scale, where it is unbounded."""
    too_low: float | None = None
    """The relevance in [0, 1] of the run's first hit, where the canary is degraded by it; None = it is not."""
    texts: Mapping[str, str] = field(default_factory=_empty)
    """Texts by chunk id, where a chunk was retrieved at some time; `healthy` need not hold them all."""
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
    """A judgment whose chunk was renamed, and what should stand in its place once a person agrees."""

    index: int
    """Its place in the canary's judgments."""
    judgment: Judgment
    passage: str
    """What it stands for: its own text, or that of its chunk when it was last seen."""
    proposals: tuple[Judgment, ...]
    """One, or two where the passage was cut in two; of the same grade."""
    found: tuple[FoundChunk, ...]
    """The chunk behind each proposal. Its text was retrieved: not to be trusted."""
    similarity: float
    """The share of the passage's word 3-grams that they hold together, in [0, 1]."""

    @property
    def changes(self) -> bool:
        """Whether the judgment would be another; a text by itself names no chunk that could have moved."""
        return self.proposals != (self.judgment,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a canary degraded."""

    cause: Cause
    reason: str
    """A sentence for people without its full stop. It quotes no retrieved text, id or document."""
    evidence: Mapping[str, Any]
    """What speaks for it, ready for JSON; see causes. It names retrieved ids, not texts."""
    persistent: bool | None
    """Whether asking again still showed it; False = all was well on every repeat, None = nothing could be asked."""
    rank_before: int | None = None
    """Of the best placed expected chunk when the canary was last healthy."""
    rank_now: int | None = None
    """Of the best placed expected chunk today, in the deepest answer that has it."""
    reanchors: tuple[Reanchor, ...] = ()
