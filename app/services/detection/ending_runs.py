"""A run that is about to end, as the detector of its check sees it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.runs.evaluation import Tally
from app.domain.runs.run_inputs import RunInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingRun:
    """A run that is about to end. Positions count along its canaries."""

    id: int
    check_id: int
    inputs: RunInputs
    tally: Tally
    """The scores of its canaries."""
    ranking_ids: Sequence[int | None]
    """The stored rankings by position; None = not measured."""
    index_version: str | None
