"""Evidence of rules and of changes of alerts, as it is stored and, but for ids and times, on the wire."""

from typing import NotRequired

from typing_extensions import TypedDict

from app.base.values import Cause, Percentile, Reason, Severity
from app.retrievers.domain.views import FailureView


class BoundSides(TypedDict, total=False):
    """Where a value is bad, by the side that the bound of a rule has."""

    below: float
    above: float
    by: float


class RunsToOpen(TypedDict):
    """An alert opens on so many bad runs of the last few."""

    bad: int
    of: int


class LowerChunk(TypedDict):
    """An expected chunk that ranks lower than it did; `rank_now` is None where it is not retrieved any more."""

    id: str | None
    document: str | None
    rank_before: int
    rank_now: int | None


class Degradation(TypedDict, total=False):
    """The expected chunks that a degraded canary lost, and its cause; absent in evidence of older releases."""

    lost: list[str]
    """The first of the chunks, by name."""
    lost_documents: list[str | None]
    """The document, or title, of each of these in the last healthy ranking; absent where none is known."""
    lost_total: int
    cause: Cause | None
    """None = not diagnosed."""
    cause_reason: str | None
    persistent: bool | None


class ChangedCanary(Degradation):
    """A canary that degraded since an alert began; the cause is that of its diagnosis, where there is one."""

    key: str
    query: str
    reasons: list[Reason]
    rank_before: int | None
    rank_now: int | None
    lower: NotRequired[list[LowerChunk]]


class ListedCanaries(TypedDict, total=False):
    """The worst of the canaries that changed."""

    canaries: list[ChangedCanary]
    changed: int
    """How many canaries changed, those that are not listed included."""
    failing_before: int


class EvidenceFields(ListedCanaries, total=False):
    """Evidence of a rule without its runs; the fields present depend on its kind and on the change."""

    measure: str | None
    self_judged: bool
    """Whether that is recall, and only the retriever's own first hits were judged; absent where not."""
    category: str | None
    warning: BoundSides | None
    critical: BoundSides | None
    failed_share: float | None
    factor: float
    """Times the baseline that a latency must exceed."""
    rise: float
    """Seconds above the baseline that it must exceed too."""
    margin: float
    open: RunsToOpen
    close: int
    percentile: Percentile
    bad: int
    critical_runs: int
    of: int
    good_in_a_row: int
    failure: FailureView
    """Why most probes of the newest run failed."""
    culprits: list[str]
    """The canaries that the detector names."""
    retriever: str
    """Which retriever is slow or fails."""
    usual: float | None
    """How long answers took before the first bad run, in seconds."""
    since: str
    """When a run last completed, where none has since."""
    deadline: str
    ever: bool
    cause: str
    """Why there is no such rule any more."""
    by: str
    """Who acknowledged the alert."""
    note: str | None


class EvaluatedValues(TypedDict):
    """What a rule made of a run."""

    at: str
    value: float | None
    threshold: float | None
    baseline: float | None
    severity: Severity | None
    good: bool
    """Whether it counts towards resolving."""


class StoredEvaluation(EvaluatedValues):
    """A run as evaluated by a rule, in stored evidence; that of the first releases has no `baseline`."""

    run_id: int


class StoredEvidence(EvidenceFields, total=False):
    """Evidence of a rule as it is stored."""

    first_bad_run: int | None
    window: list[StoredEvaluation]
