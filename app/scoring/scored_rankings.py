"""The rankings a run judged, with what each scored, packed: a very large run has as many of them as canaries."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from app.scoring.evaluation import Result
from app.scoring.matching import Match
from app.scoring.tally import Tally, unpack_reasons


class ScoredRankings(Mapping[int, Result]):
    """Results by position of the panel: matches in their stored form, numbers and reasons as the tally has them."""

    def __init__(self, tally: Tally) -> None:
        """Hold nothing yet."""
        self._tally = tally
        self._matches: dict[int, bytes] = {}

    def add(self, results: Mapping[int, Result]) -> None:
        """Add results that were just judged, also to the tally."""
        self._tally.add(results)
        self._matches.update((position, result.match.to_bytes()) for position, result in results.items())

    def match_bytes(self, position: int) -> bytes:
        """Return the match of a ranking in its stored form."""
        return self._matches[position]

    def vector(self, position: int) -> NDArray[np.float64]:
        """Return the measures of a ranking in the yardstick's order; NaN = undefined."""
        return self._tally.vector(position)

    def top_score(self, position: int) -> float | None:
        """Return the relevance of the first hit."""
        return self._tally.top_score(position)

    def __getitem__(self, position: int) -> Result:
        """Return the result of a ranking; its reasons include those of the timing."""
        return Result(
            match=Match.from_bytes(self._matches[position]),
            vector=self.vector(position),
            top_score=self.top_score(position),
            reasons=unpack_reasons(int(self._tally.reasons[position])),
        )

    def __iter__(self) -> Iterator[int]:
        """Iterate over the positions."""
        return iter(self._matches)

    def __len__(self) -> int:
        """Count the rankings."""
        return len(self._matches)
