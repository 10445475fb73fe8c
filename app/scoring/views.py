"""Views of re-scorings."""

from typing import Literal

from typing_extensions import TypedDict

from app.base.values import TimeText


class RescoringProgress(TypedDict):
    """Progress of a re-scoring."""

    runs_done: int
    runs_total: int


class RescoringSide(TypedDict):
    """Totals over the runs of a re-scoring, before or after."""

    runs: int
    coverage: float | None
    health_score: float | None
    degraded: int
    verdicts: dict[str, int]


class RescoringTotals(TypedDict):
    """The runs of a re-scoring as they were, and as they are by it."""

    before: RescoringSide
    after: RescoringSide


class RescoringView(TypedDict):
    """Re-scoring of recorded runs of a check with present judgments; `before` and `after` are set once it finished."""

    id: str
    check: str
    measures_version: str
    suite_hash: str
    since: TimeText | None
    status: Literal["queued", "running", "finished", "failed"]
    created_at: TimeText
    finished_at: TimeText | None
    progress: RescoringProgress
    note: str | None
    failure: str | None
    before: RescoringSide | None
    after: RescoringSide | None
