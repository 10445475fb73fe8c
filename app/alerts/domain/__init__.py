"""Values of alerts: the evidence of rules and of changes, as it is stored, as it is on the wire, and in words.

The words of causes and of lost chunks are here too. How a rule judges a run is in `rules`, when its alert opens and
resolves and which notifications follow in `state`, and their words in `summaries`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NotRequired

from typing_extensions import TypedDict

from app.base.texts import counted, short_name
from app.base.values import Cause, Judgment, Percentile, Reason, Severity
from app.retrievers.domain.probes import FailureView


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


class EvaluatedRun(EvaluatedValues):
    """A run as evaluated by a rule."""

    run_id: str


class RuleEvidence(EvidenceFields, total=False):
    """Evidence of a rule; the fields present depend on its kind and on the change."""

    first_bad_run: str | None
    window: list[EvaluatedRun]


class RunCauseView(TypedDict):
    """The one cause that explains a whole run; shares and recalls are in [0, 1]."""

    kind: Literal[
        "rechunked",
        "reindexed",
        "renamed_documents",
        "embedder_changed",
        "texts_changed",
        "scores_changed",
        "empty_answers",
        "limited",
        "score_threshold",
        "missing",
        "replicas_differ",
        "search_misses",
        "near_copies",
        "new_chunks",
        "other_vectors",
        "ranking_changed",
    ]
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
    shape: str | None
    """What the changed answers have in common, of causes told by that."""
    evidence: str | None
    """What is seen of it, in numbers."""
    against: str | None
    """What it does not explain."""
    beside: str | None
    """A second cause, of other answers."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCanaries:
    """The canaries that are degraded now and were not before the first bad run of an alert."""

    count: int
    of: int
    """Canaries that were measured."""
    failing_before: int = 0
    """Canaries that are degraded now and were before as well."""
    reasons: Sequence[Sequence[Reason]] = ()
    """Why each of the changed is degraded."""
    name: str = ""
    """The key of the only one, or the group that most of them have in common."""
    causes: Mapping[Cause, int] = field(default_factory=dict)
    """Of the diagnosed ones."""
    shared_cause: str = ""
    """The one cause that explains the whole run, where there is one: a noun phrase."""
    shared_advice: str = ""
    """What to do about that."""
    compared: bool = True
    """Whether there is a run before the first bad one; else all degraded canaries count as changed."""
    recovered_on_retry: int = 0
    """Canaries that changed but were healthy on every retry; not part of the count."""

    @property
    def cause(self) -> str:
        """Why they changed, in one phrase; empty where unknown, or none did."""
        return (self.shared_cause or causes_text(self.causes, self.count)) if self.count else ""


def commonest_first(causes: Mapping[Cause, int]) -> list[tuple[Cause, int]]:
    """Causes with their counts, the commonest first."""
    order = list(Cause)
    return sorted(causes.items(), key=lambda one: (-one[1], order.index(one[0])))


def causes_text(causes: Mapping[Cause, int], count: int) -> str:
    """Causes of `count` canaries: `5 missing from the index, 2 outranked`; empty where none is known.

    A cause that all of them share has no number; two are named at most.
    """
    ordered = commonest_first(causes)
    if len(ordered) == 1 and ordered[0][1] >= count:
        return CAUSE_WORDS[ordered[0][0]].shared
    parts = [f"{number:,} {CAUSE_WORDS[cause].counted}" for cause, number in ordered[:MOST_NAMED]]
    return ", ".join([*parts, *rest_text(ordered, count)]) if parts else ""


MOST_NAMED: Final = 2
"""Causes in a headline."""


def rest_text(ordered: Sequence[tuple[Cause, int]], count: int) -> list[str]:
    """Say in a headline how many of `count` canaries have other causes than it names, or none that is known."""
    others, left = sum(number for _, number in ordered[MOST_NAMED:]), count - sum(number for _, number in ordered)
    texts = [f"{others:,} of other causes"] if others else []
    return [*texts, f"{counted(left, 'other')} not explained yet"] if left > 0 else texts


def changed_text(changed: ChangedCanaries) -> str:
    """How many changed and how: `7 of 113 canaries lost their expected chunk`."""
    named = f" ({short_name(changed.name)})" if changed.name and changed.count == 1 else ""
    inside = f" (mostly in {short_name(changed.name)})" if changed.name and changed.count > 1 else ""
    return f"{changed.count:,} of {counted(changed.of, 'canary')}{named}{inside} {predicate_text(changed)}"


def predicate_text(changed: ChangedCanaries) -> str:
    """Return the gravest reason that all changed canaries share, as a verb phrase; else that they degraded."""
    common = set(Reason).intersection(*map(set, changed.reasons)) if changed.reasons else set()
    word = next((reason for reason in _PREDICATES if reason in common), None)
    one, many, newly_one, newly_many = _PREDICATES[word] if word is not None else _DEGRADED
    if word in {None, Reason.REGRESSED} and (split := _lost_and_lower(changed)):
        return split
    if changed.compared:
        return newly_one if changed.count == 1 else newly_many
    return one if changed.count == 1 else many


def _lost_and_lower(changed: ChangedCanaries) -> str:
    """How many lost their chunk and how many rank it lower; empty where some do neither, or all the same."""
    lost = sum(Reason.MISSING in reasons for reasons in changed.reasons)
    lower = sum(Reason.MISSING not in reasons and Reason.REGRESSED in reasons for reasons in changed.reasons)
    if not lost or not lower or lost + lower < len(changed.reasons):
        return ""
    if len(changed.reasons) < changed.count:  # only the worst of them are known
        return "lost their expected chunk or rank one lower"
    return f"lost their expected chunk ({lost:,}) or rank one lower ({lower:,})"


def cause_suffix(changed: ChangedCanaries) -> str:
    """Why they changed as the end of a sentence, where known: `: chunks missing from the index`."""
    return f": {changed.cause}" if changed.cause else ""


_DEGRADED = ("is degraded", "are degraded", "degraded", "degraded")
_PREDICATES: Final[Mapping[Reason, tuple[str, str, str, str]]] = {
    Reason.FORBIDDEN: (
        "returns a forbidden chunk",
        "return a forbidden chunk",
        "began to return a forbidden chunk",
        "began to return a forbidden chunk",
    ),
    Reason.ANSWERED: (
        "is answered though no good answer exists",
        "are answered though no good answer exists",
        "began to be answered though no good answer exists",
        "began to be answered though no good answer exists",
    ),
    Reason.MISSING: (
        "does not find its expected chunk",
        "do not find their expected chunk",
        "lost its expected chunk",
        "lost their expected chunk",
    ),
    Reason.LOW_RELEVANCE: (
        "scores below its minimum relevance",
        "score below their minimum relevance",
        "fell below its minimum relevance",
        "fell below their minimum relevance",
    ),
    Reason.BELOW_FLOOR: (
        "is below its floor",
        "are below their floor",
        "fell below its floor",
        "fell below their floor",
    ),
    Reason.STALE: (
        "returns outdated chunks",
        "return outdated chunks",
        "began to return outdated chunks",
        "began to return outdated chunks",
    ),
    Reason.SLOW: (
        "is answered too slowly",
        "are answered too slowly",
        "began to be answered too slowly",
        "began to be answered too slowly",
    ),
    Reason.REGRESSED: (
        "ranks an expected chunk lower",
        "rank an expected chunk lower",
        "ranks an expected chunk lower",
        "rank an expected chunk lower",
    ),
}
"""What canaries degraded by a reason do, the gravest first: (one, many, one newly, many newly)."""


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


@dataclass(frozen=True, slots=True)
class CauseWords:
    """The words for a cause."""

    counted: str
    """After a count of canaries: `5 missing from the index`."""
    shared: str
    """Where all of them share it: `chunks missing from the index`."""
    brief: str = ""
    """After a count in a headline, where that is shorter: `5 missing`."""

    @property
    def headline(self) -> str:
        """After a count in a headline."""
        return self.brief or self.counted


CAUSE_WORDS: Final[Mapping[Cause, CauseWords]] = {
    Cause.RETRIEVER_ERROR: CauseWords("not answered when repeated", "probes fail when repeated", "not answered"),
    Cause.WRONG_FIELD: CauseWords(
        "expecting ids as documents or the reverse", "the suite expects ids as documents, or documents as ids"
    ),
    Cause.TRUNCATED: CauseWords("cut off", "fewer results than asked for, or none"),
    Cause.TEXTS_CHANGED: CauseWords("without their texts", "texts of the same chunks changed"),
    Cause.SCORE_DRIFT: CauseWords("with other scores", "the same chunks have other scores"),
    Cause.RECHUNKED: CauseWords("re-cut under other ids", "chunks re-cut under other ids"),
    Cause.MISSING: CauseWords("missing from the index", "chunks missing from the index", "missing"),
    Cause.VOCABULARY_MISMATCH: CauseWords("never found", "never found by these queries"),
    Cause.DUPLICATES: CauseWords("crowded out by near copies", "crowded out by near copies"),
    Cause.UNSTABLE: CauseWords("unstable", "found again when repeated"),
    Cause.LOW_RELEVANCE: CauseWords("found but scored too low", "found but scored too low"),
    Cause.OUTRANKED: CauseWords("outranked", "outranked by other chunks"),
}
