"""The aggregates of a run: counts, means, and the same by category and tag."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.base.values import EmbedderChange, empty_mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Aggregates of some of a run's canaries: those of one category or one tag."""

    canaries: int
    measured: int
    health_score: float | None
    coverage: float | None
    measures: Mapping[str, float | None] = field(default_factory=empty_mapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregates:
    """Numbers of a whole run. None = nothing was measured, never zero."""

    total: int
    measured: int
    failed: int
    undefined: int
    """Measured canaries with nothing expected: outside every mean."""
    degraded: int
    expecting: int = 0
    """Canaries that expect something, measured or not."""
    health_score: float | None
    coverage: float | None
    measures: Mapping[str, float | None] = field(default_factory=empty_mapping)
    """Means over the measured canaries that expect something, by measure name (`MRR` and `MAP` for RR and AP)."""
    categories: Mapping[str, Slice] = field(default_factory=empty_mapping)
    tags: Mapping[str, Slice] = field(default_factory=empty_mapping)
    probes: Mapping[str, int] = field(default_factory=empty_mapping)
    """How many probes ended with each outcome."""
    embedder: EmbedderChange | None = None
    """Finding of the embedding canaries; None = there is no embedder or, with a reason, it did not answer."""
    embedder_reason: str | None = None
    """A sentence without its full stop."""
    unknown_reason: str | None = None
    """Why the verdict is unknown, once that is decided; a sentence without its full stop."""
