"""Names of the IR measures: spelling, parsing and versions. `measure_arrays` computes them.

Whoever changes a definition changes `MEASURES_VERSION`: stored scores refer to it.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

MEASURES_VERSION = "2"
"""2: numbers must agree where a passage is recognised by its letters, and signs that belong to numbers count."""
CUTOFFS = (1, 3, 5, 10, 20)
RECALL_BY: Mapping[str, str] = MappingProxyType({"R_id": "id", "R_passage": "passage"})
"""The two recalls whose difference shows chunks re-indexed under other ids, with the level each counts."""
_CUT = ("Hit", "P", "R", "F1", "RR", "NDCG", "NDCG_exp", "ERR", "Judged", "R_id", "R_passage")
"""Measures of the top k."""
_WHOLE = ("RR", "AP", "duplicate_ratio")
"""Measures of the whole ranking."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure as papers write it: `Measure("NDCG", 10)` is `NDCG@10`. Raises ValueError for an unknown one."""

    name: str
    k: int | None = None
    """The cut-off, None = the whole ranking."""

    def __post_init__(self) -> None:
        if self.name not in _CUT and self.name not in _WHOLE:
            raise ValueError(f"unknown measure {self.name!r}; there are {', '.join(_SHAPES)}")
        if self.k is None and self.name not in _WHOLE:
            raise ValueError(f"{self.name} needs a cut-off, for example {self.name}@10")
        if self.k is not None and self.name not in _CUT:
            raise ValueError(f"{self.name} takes no cut-off")
        if self.k is not None and self.k < 1:
            raise ValueError(f"a cut-off is at least 1, not {self.k}")

    def __str__(self) -> str:
        return self.name if self.k is None else f"{self.name}@{self.k}"


def measures_for(cutoffs: Iterable[int]) -> tuple[Measure, ...]:
    """Return all measures of a canary: each measure of the top k at each cut-off, then those of the whole ranking."""
    cut = [Measure(name, k) for k in sorted(set(cutoffs)) for name in _CUT]
    return (*cut, *(Measure(name) for name in _WHOLE))


def mean_name(measure: Measure) -> str:
    """Return the name of the mean over canaries: MRR for RR, MAP for AP, otherwise the name of the measure itself."""
    return str(measure) if measure.name not in _MEANS else str(measure).replace(measure.name, _MEANS[measure.name])


def parse_measure(text: str) -> Measure:
    """Return a measure from our spelling, that of ir_measures (`nDCG@10`, `Success@5`) or of trec_eval (`ndcg_cut_10`).

    Names of means (`MRR`, `MAP`) and those of ranx are accepted too; case does not matter. Raises ValueError with
    suggestions.
    """
    parts = _SPELLED.fullmatch(text.strip().casefold())
    spelled, k = (parts["name"], parts["k"]) if parts else ("", None)
    if spelled in _SPELLINGS:
        return Measure(_SPELLINGS[spelled], int(k) if k else None)
    near = dict.fromkeys(_SPELLINGS[one] for one in difflib.get_close_matches(spelled, _SPELLINGS, n=3))
    guesses = [f"{name}@{k or 10}" if name in _CUT and (k or name not in _WHOLE) else name for name in near]
    hint = f"did you mean {' or '.join(guesses)}?" if guesses else f"there are {', '.join(_SHAPES)}"
    raise ValueError(f"unknown measure {text!r}; {hint}")


_SHAPES = (*(f"{name}@k" for name in _CUT), *_WHOLE)
_MEANS = {"RR": "MRR", "AP": "MAP"}

_SPELLED = re.compile(r"(?P<name>.+?)(?:[@_.](?P<k>[0-9]+))?")
_SPELLINGS: Mapping[str, str] = {
    **{name.casefold(): name for name in (*_CUT, *_WHOLE)},
    **{mean.casefold(): name for name, mean in _MEANS.items()},
    "success": "Hit",
    "hit_rate": "Hit",
    "precision": "P",
    "recall": "R",
    "recip_rank": "RR",
    "ndcg_cut": "NDCG",
    "ndcg(dcg='exp-log2')": "NDCG_exp",
    "ndcg_burges": "NDCG_exp",
}
