"""Views of alerts, silences and the evaluation of rules, as JSON on the wire."""

from typing import Literal

from typing_extensions import TypedDict

from app.alerts.domain.evidence import EvaluatedValues, EvidenceFields
from app.alerts.domain.state import AlertState, TransitionType
from app.base.values import RuleKind, Severity, TimeText, Verdict


class EvaluatedRun(EvaluatedValues):
    """A run as evaluated by a rule."""

    run_id: str


class RuleEvidence(EvidenceFields, total=False):
    """Evidence of a rule; the fields present depend on its kind and on the change."""

    first_bad_run: str | None
    window: list[EvaluatedRun]


class RunCauseView(TypedDict):
    """The one cause that explains a whole run; shares and recalls are in [0, 1]."""

    kind: Literal["rechunked", "reindexed", "renamed_documents", "embedder_changed", "scores_changed"]
    since_run: int
    before_run: int
    canaries: int
    affected: int
    recall_by_id_before: float | None
    recall_by_id_now: float | None
    recall_by_passage_before: float | None
    recall_by_passage_now: float | None
    unseen_ids: float | None
    split: int
    score_change: float | None
    detail: str | None
    quiet_runs: int
    phrase: str
    reason: str


class TransitionView(TypedDict):
    """A change of an alert."""

    at: TimeText
    type: TransitionType
    severity: Severity
    reason: str
    run_id: str | None
    suppressed: str | None
    """Why it was not sent."""
    silence: str | None
    evidence: RuleEvidence
    """The evaluated numbers; each kind of rule has evidence of its own."""


class AlertFields(TypedDict):
    """An alert without its transitions."""

    id: str
    check: str
    rule: str
    kind: RuleKind
    scope: str
    severity: Severity
    state: AlertState
    opened_at: TimeText | None
    resolved_at: TimeText | None
    acknowledged_at: TimeText | None
    acknowledged_by: str | None
    reason: str
    evidence: RuleEvidence
    since_run: str | None
    incident_id: str | None
    dedupe_key: str


class AlertView(AlertFields):
    """An alert with its transitions, the oldest first."""

    transitions: list[TransitionView]


class FleetGroup(TypedDict):
    """The group that most of the changed canaries belong to."""

    kind: str
    name: str


class FleetView(TypedDict):
    """How many canaries degraded together, and what may have caused it."""

    shape: str
    headline: str
    sentence: str
    group: FleetGroup | None
    fallen: int
    of: int
    expected_by_chance: float | None
    """How many of the group would have degraded if they had nothing in common."""
    causes: dict[str, int]
    """Number of canaries by cause."""
    cause: RunCauseView | None
    """The one cause that explains the whole run, where there is one."""


class SinceView(TypedDict):
    """The first bad run, and the change of the index version it may have come with."""

    run_id: str
    index_version: str | None
    index_version_before: str | None
    runs_after: int | None
    """How many runs after that change."""
    text: str


class ExplainedTransition(TransitionView):
    """A change of an alert with what its changed canaries have in common."""

    fleet: FleetView | None


class SilencedAlert(TypedDict):
    """An open alert that a silence matches."""

    id: str
    check: str
    rule: str
    severity: Severity
    state: AlertState


class SilenceState(TypedDict):
    """State of a silence."""

    active: bool
    until: TimeText | None
    next_change: TimeText | None
    holds_back: list[SilencedAlert]
    """The open alerts it silences now."""


class SilenceOutlook(TypedDict):
    """A silence that matches a rule, now or later."""

    slug: str
    active: bool
    until: TimeText | None
    next_change: TimeText | None


class RuleExplanation(TypedDict):
    """Why a rule alerts or not."""

    rule: str
    kind: RuleKind
    scope: str
    state: AlertState | Literal["unknown"]
    """`unknown`: no run was evaluated yet."""
    severity: Severity | None
    alert_id: str | None
    incident_id: str | None
    opened_at: TimeText | None
    acknowledged_at: TimeText | None
    acknowledged_by: str | None
    reason: str
    """That of the alert; without one, that of the same runs now."""
    evidence: RuleEvidence
    to_open: str | None
    to_close: str | None
    bad_runs_to_open: int | None
    good_runs_to_close: int | None
    unmeasured: list[str]
    """Canaries, degraded when the alert opened, that the newest run did not measure: it does not resolve before."""
    deadline: TimeText | None
    held_back: str | None
    """Why notifications are suppressed."""
    held_back_reason: str | None
    silences: list[SilenceOutlook]
    next_reminder_at: TimeText | None


class HookState(TypedDict):
    """A hook of a check, and why it is disabled."""

    slug: str
    disabled_reason: str | None


class CheckAlerting(TypedDict):
    """Why the rules of a check alert or not."""

    check: str
    enabled: bool
    newest_run: str | None
    verdict: Verdict | None
    rules: list[RuleExplanation]
    disabled_rules: list[str]
    hooks: list[HookState]
    remind: str | None
