"""What is shown of re-scorings."""

from typing import Literal

from typing_extensions import TypedDict

from app.domain.views import TimeText


class RescoringProgress(TypedDict):
    """How far a re-scoring is."""

    runs_done: int
    runs_total: int


class RescoringSide(TypedDict):
    """What the runs of a re-scoring come to, before or after."""

    runs: int
    coverage: float | None
    health_score: float | None
    degraded: int
    verdicts: dict[str, int]


class RescoringView(TypedDict):
    """Past runs of a check judged by other judgments; `before` and `after` sum them up once that has finished."""

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
