"""Guide to measures: which measure comes first for what a check's retriever is used for, and why.

Names are those of means, as on the wire; `docs/measures.md` has the reasons at length.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from typing_extensions import TypedDict

_DEEP: Final = 10
"""Depth at which NDCG is usually read."""
_TOP_HEAVY: Final = frozenset({"Hit@1", "P@1", "NDCG@1"})
_MRR: Final = "MRR"


class Use(StrEnum):
    """What the chunks that a retriever returns are used for."""

    GENERAL = "general"
    COMPLETENESS = "completeness"
    PRECISION = "precision"
    SINGLE_ANSWER = "single_answer"
    GRADED = "graded"


USE_REASONS: Final[Mapping[Use, str]] = MappingProxyType(
    {
        Use.GENERAL: "it counts how much was found and how early",
        Use.COMPLETENESS: "missing information is costly",
        Use.PRECISION: "the context window is small",
        Use.SINGLE_ANSWER: "one answer is enough",
        Use.GRADED: "relevance is graded and order matters",
    }
)
"""Why the measure of each use comes first."""


class MeasureGuideView(TypedDict):
    """The measure that comes first for a check's use, and the recall that stands beside it."""

    use: Use
    measure: str
    """Comes first in reports and suggested rules."""
    recall: str
    """Stands beside it; the same where recall itself comes first."""
    sentence: str
    """Both and the reason, without a full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureGuide:
    """What to read first of a check's runs."""

    use: Use
    measure: str
    recall: str

    @property
    def measures(self) -> tuple[str, ...]:
        """Both measures, each once."""
        return tuple(dict.fromkeys((self.measure, self.recall)))

    @property
    def reason(self) -> str:
        """Why the measure comes first."""
        return USE_REASONS[self.use]

    @property
    def sentence(self) -> str:
        """What comes first and why, without a full stop."""
        beside = "" if self.recall == self.measure else f", {self.recall} beside it"
        return f"{self.measure} comes first{beside}: {self.reason}"

    def body(self) -> MeasureGuideView:
        """Return the view of it."""
        return {"use": self.use, "measure": self.measure, "recall": self.recall, "sentence": self.sentence}


def measure_guide(use: Use, *, k: int, fetch_k: int, cutoffs: Collection[int]) -> MeasureGuide:
    """Return the guide of a check that cuts its measures at k and `cutoffs`."""
    is_deep = fetch_k >= _DEEP and _DEEP in {*cutoffs, k}
    first = {
        Use.GENERAL: f"NDCG@{_DEEP if is_deep else k}",
        Use.COMPLETENESS: f"R@{k}",
        Use.PRECISION: f"P@{k}",
        Use.SINGLE_ANSWER: _MRR,
        Use.GRADED: f"NDCG@{k}",
    }
    return MeasureGuide(use=use, measure=first[use], recall=f"R@{k}")


def is_top_heavy(measure: str, k: int) -> bool:
    """Whether the first good hit decides a measure, so that it can rise while recall falls.

    `measure` is the name of a mean, or `coverage`, which is `Hit@k`.
    """
    name = f"Hit@{k}" if measure == "coverage" else measure
    return name in _TOP_HEAVY or name.partition("@")[0] == _MRR
