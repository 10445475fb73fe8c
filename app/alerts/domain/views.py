"""Alerts as they are stored and on the wire: states, changes, and the evidence of rules and of changes.

How a rule judges a run is in `rules`, when its alert opens and resolves and which notifications follow in `state`, and
the words of all this in `summaries`. The chunks that canaries lost, named for people, stand at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal, NotRequired

from typing_extensions import TypedDict

from app.base.texts import counted, short_name
from app.base.values import (
    Cause,
    CorrectedRateView,
    Judgment,
    ListedWords,
    Percentile,
    Reason,
    RuleKind,
    RunCauseKind,
    Severity,
    TimeText,
    Value,
)
from app.catalog.domain import PooledNote
from app.retrievers.domain.probes import FailureView


class AlertState(StrEnum):
    """State of an alert. `ok` and `pending` are not alerts yet: nothing was opened."""

    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    RESOLVED = "resolved"


class TransitionType(StrEnum):
    """What can happen to an alert; each is an appended row."""

    OPENED = "opened"
    ESCALATED = "escalated"
    UPDATED = "updated"
    """The detector names further canaries."""
    ACKNOWLEDGED = "acknowledged"
    REMINDED = "reminded"
    RESOLVED = "resolved"


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


class ForbiddenHit(TypedDict):
    """A chunk that a canary got and forbids."""

    id: str
    document: str | None
    rank: int


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


class LeakView(TypedDict, total=False):
    """Who got which chunks that a canary forbids; absent where it got none."""

    asked_as: dict[str, str]
    """The variables it was asked with: who saw it."""
    forbidden: list[ForbiddenHit]
    """The first of what it got and forbids."""


class ChangedCanary(Degradation, LeakView):
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


class AnswerChange(StrEnum):
    """What changed with a generated answer that got worse, the first that applies."""

    RETRIEVAL = "retrieval"
    """Its canary degraded too."""
    CHUNKS = "chunks"
    """It is made from other chunks."""
    ANSWER = "answer"
    """It has another text, though its chunks are the same."""
    JUDGE = "judge"
    """Its text stayed, and another judge rates it, or the same one rates it otherwise over the same chunks."""


class WorseAnswer(TypedDict):
    """A generated answer that got worse since before an alert began."""

    key: str
    query: str
    value_before: float
    value: float
    """Of what the rule watches: 1 is yes, 0 no, else a share."""
    change: AnswerChange


class WorseAnswers(TypedDict):
    """The generated answers that got worse since before an alert began."""

    worse: int
    of: int
    """Answers that have a value in both runs."""
    came: NotRequired[int]
    """Answers of the run that have a value; absent from what earlier releases stored."""
    changes: dict[AnswerChange, int]
    """The worse ones by what changed with them; none that is 0."""
    edited: NotRequired[str]
    """What was changed of the check between the compared runs: whom it asks, or the retriever or judge that it asks;
    absent where nothing was."""
    edited_judge_alone: NotRequired[bool]
    """Whether that is the judge alone, which changes no text; absent where not."""
    listed: list[WorseAnswer]
    """The first ten of them, those that lost most first."""


class EvidenceFields(ListedCanaries, total=False):
    """Evidence of a rule without its runs; the fields present depend on its kind and on the change."""

    measure: str | None
    self_judged: bool
    """Whether that is recall of which the retriever itself brought up much of what is expected; absent where not."""
    pooled_recall: list[PooledNote]
    """Pooled recall at the k of the measure; absent where no task estimates it."""
    uncalibrated: bool
    """Whether a judge says the newest value, corrected or not, whom people have not confirmed; absent where not."""
    answers: WorseAnswers
    """Of a rule about generated answers, in place of canaries."""
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
    interrupted: bool
    """Whether runs between the first bad one and a later bad one were good, or not judged; absent = none was."""
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
    corrected: CorrectedRateView | None
    """The value, where that is a rate by people's labels."""
    beside: NotRequired[CorrectedRateView]
    """What people would say, where the value is a judge's own mean of shares and enough of them labelled answers."""
    rated: NotRequired[str]
    """Of how many answers the value is, where no rate by people's labels says so and a judge did not rate all."""
    severity: Severity | None
    good: bool
    """Whether it counts towards resolving."""
    unjudged: NotRequired[str]
    """Why a run that is not bad is not good: which answers were not judged; absent where that is not the reason."""
    uncalibrated: NotRequired[bool]
    """Whether a judge says the value whom people had not confirmed as it rated this run; absent where not."""


class StoredEvaluation(EvaluatedValues):
    """A run as evaluated by a rule, in stored evidence; that of earlier releases has no `baseline` or `corrected`."""

    run_id: int


class StoredEvidence(EvidenceFields, total=False):
    """Evidence of a rule as it is stored."""

    first_bad_run: int | None
    window: list[StoredEvaluation]


class EvaluatedRun(EvaluatedValues):
    """A run as evaluated by a rule."""

    run_id: str


class RuleEvidence(EvidenceFields, total=False):
    """Evidence of a rule; the fields present depend on its kind and on the change."""

    first_bad_run: str | None
    window: list[EvaluatedRun]


class RunCauseView(TypedDict):
    """The one cause that explains a whole run; shares and recalls are in [0, 1]."""

    kind: Annotated[str, ListedWords(RunCauseKind)]
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
    losing: NotRequired[int]
    """Compared canaries that find less now than in `before_run`; absent in causes of older releases."""
    quiet_runs: int
    shape: str | None
    """What the changed answers have in common, of causes told by that."""
    evidence: str | None
    """What is seen of it, in numbers."""
    against: str | None
    """What it does not explain."""
    beside: str | None
    """A second cause, of other answers."""
    index: NotRequired[str | None]
    """What the facts of the index say of it; absent in causes of older releases."""
    phrase: str
    reason: str


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


class ExplainedTransition(TransitionView):
    """A change of an alert with what its changed canaries have in common."""

    fleet: FleetView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalRange:
    """Between which values a measure lay in 98 % of the runs the baseline in force was learned from."""

    low: float
    mean: float
    high: float
    runs: int
    first_run: str
    last_run: str


class BoundLine(TypedDict):
    """A bound of a rule, as charts draw it."""

    rule: str
    severity: Severity
    bad: Literal["below", "above"]
    value: float
    by: NotRequired[float]
    """Of a drop: how far below the mean of what is usual."""


class SuggestedBound(TypedDict):
    """Where a suggested rule alerts."""

    below: float


class SuggestedRuleBody(TypedDict):
    """A suggested rule, as documents write it."""

    kind: Literal[RuleKind.THRESHOLD]
    measure: str
    critical: SuggestedBound


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedRule:
    """A bound that no run of the baseline was below, with the rule for it."""

    measure: str
    below: float
    usual_low: float
    runs: int
    rule: SuggestedRuleBody
    yaml: str
    watched_by: str | None
    """The rule that bounds the measure already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedRules:
    """Rules suggested for a check from its baseline; empty, with a note, until there is one."""

    check: str
    note: str | None
    revision: int
    managed_by: str
    guide: str | None
    """Which measure comes first for the check's use, and why; None where it has none."""
    rules: list[SuggestedRule]


MOST_NAMES: Final = 3
"""So many chunks are named of a canary."""
_MOST_CANARIES: Final = 3
_LONGEST: Final = 200


def lost_chunks(
    judgments: Sequence[Judgment],
    now: Sequence[int | None],
    before: Sequence[int | None] | None,
    *,
    missing: bool,
    documents: Sequence[str | None] = (),
) -> Degradation:
    """Return the expected chunks that a canary lost, as part of evidence: `lost`, the first of them, and `lost_total`.

    `lost_documents` has the documents, or titles, of those in `lost`, where any is known; `documents` are those of the
    ranking of `before`.

    `now` and `before` are ranks per judgment, `before` from when the canary was healthy; None = unknown. `missing`: no
    expected chunk is in the top k, so it lost what it found before or, where that is unknown, all it expects.
    """
    expected = [place for place, one in enumerate(judgments) if one.grade >= 1]
    had = [place for place in expected if before is not None and before[place] is not None]
    lost = (had or expected) if missing else [place for place in had if now[place] is None]
    ranks = before or ()
    names: dict[str, str | None] = {}
    for place in lost:
        rank = ranks[place] if judgments[place].id and place < len(ranks) else None
        document = documents[rank - 1] if rank is not None and rank <= len(documents) else None
        names.setdefault(chunk_name(judgments[place]), document)
    titles = [_title(name, document) for name, document in list(names.items())[:MOST_NAMES]]
    found: Degradation = {"lost": list(names)[:MOST_NAMES], "lost_total": len(names)}
    if any(titles):
        found["lost_documents"] = titles
    return found


def found_deeper(canary: ChangedCanary, found: Mapping[str, int]) -> ChangedCanary:
    """Return a canary that lost no chunk that a deeper question found, by name: such a one ranks lower instead."""
    lost = canary.get("lost", [])
    titles = canary.get("lost_documents") or [None] * len(lost)
    kept = [place for place, name in enumerate(lost) if name not in found]
    lower: list[LowerChunk] = [
        {**one, "rank_now": one["rank_now"] or found.get(one["id"] or one["document"] or "")} for one in canary["lower"]
    ]
    return {
        **canary,
        "lower": lower,
        "lost": [lost[place] for place in kept],
        "lost_documents": [titles[place] for place in kept],
        "lost_total": canary.get("lost_total", 0) - (len(lost) - len(kept)),
    }


def _title(name: str, document: str | None) -> str | None:
    """Document of a chunk, where it says more than the name of the chunk."""
    return None if document is None or document in name or name in document else short_name(document)


def chunk_name(judgment: Judgment) -> str:
    """Name of an expected chunk: its id, else its document, else the beginning of its text."""
    name = judgment.id or judgment.document
    return short_name(name, _LONGEST) if name else f"\u201c{short_name(judgment.text or '')}\u201d"


def lost_text(canary: Degradation) -> str:
    """Chunks that one canary lost: `retention_doc, sla_doc and 2 more`; empty where none is known."""
    return _with_more(_titled_names(canary), canary.get("lost_total") or 0)


def all_lost_text(canaries: Sequence[Degradation], changed: int | None) -> str:
    """Chunks that the listed canaries of an alert lost, the first by name; `changed` = how many changed in all."""
    losers = [one for one in canaries if one.get("lost") and one.get("persistent") is not False]
    names = list(dict.fromkeys(name for one in losers[:_MOST_CANARIES] for name in _titled_names(one)))
    listed = {name for one in losers for name in one["lost"]}
    total = len(listed) + sum(one["lost_total"] - len(one["lost"]) for one in losers)
    text = _with_more(names, total)
    beyond = changed is not None and changed > len(canaries)
    return f"{text} (of the {len(canaries)} worst of {changed:,} canaries)" if text and beyond else text


def _titled_names(canary: Degradation) -> list[str]:
    """Names of the chunks a canary lost, each with its document in brackets: `bill-004 (Add a tax number)`."""
    names = canary.get("lost") or []
    titles = canary.get("lost_documents") or [None] * len(names)
    return [name if title is None else f"{name} ({title})" for name, title in zip(names, titles, strict=True)]


def _with_more(names: Sequence[str], total: int) -> str:
    more = total - len(names)
    return ", ".join(names) + (f" and {more:,} more" if names and more > 0 else "")


class EditsSince(Value):
    """What people edited between the last notification of an alert and its end, which may be why it ended."""

    taken_out: int = 0
    """Canaries that got worse and are not in the suite any more, or expect nothing."""
    rejudged: int = 0
    """Canaries that got worse and ask or expect something else now."""
    rejudged_in_all: int = 0
    """Canaries of the whole suite that do so, where they are enough to move a number of all; 0 = fewer."""
    suite: int = 0
    """Canaries of that suite."""
    asked: str = ""
    """In words, that the check asks another retriever, or that the one it asks was edited."""


def edited_canaries_text(edits: EditsSince | None) -> str:
    """Say how many of the canaries that got worse were edited, so that they say nothing of a recovery."""
    edits = edits or EditsSince()
    be, expect = ("was", "expects") if edits.taken_out == 1 else ("were", "expect")
    gone = f"; {edits.taken_out:,} that got worse {be} taken out of the suite, or {expect} nothing any more"
    asks = "asks or expects" if edits.rejudged == 1 else "ask or expect"
    other = f"; {edits.rejudged:,} that got worse {asks} something else now" if edits.rejudged else ""
    if edits.rejudged_in_all > edits.rejudged:
        of = f"{edits.rejudged_in_all:,} of {counted(edits.suite, 'canary')}"
        other = f"; {of} ask or expect something else now, which may be the whole recovery"
    return f"{gone if edits.taken_out else ''}{other}"


def may_move_all(rejudged: int, of: int) -> bool:
    """Whether so many canaries that ask or expect something else may move a number of the whole suite."""
    return bool(rejudged) and rejudged >= _MANY_REJUDGED * of


_MANY_REJUDGED: Final = 0.1
