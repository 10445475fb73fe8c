"""The words of an alert: its summary in one sentence, and the name of what a rule watches.

Below: how many canaries changed and how, and the words of causes. What to do next is in `advice`; titles of incidents,
and what will open or close an alert next, in `incidents`; the chunks that canaries lost in `views`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from app.alerts.domain.conditions import SlowerLimits
from app.alerts.domain.rules import watches_answers
from app.alerts.domain.views import (
    AnswerChange,
    EditsSince,
    SinceView,
    TransitionType,
    WorseAnswers,
    edited_canaries_text,
    may_move_all,
)
from app.base.texts import (
    LATENCY_NAMES,
    MEASURE_LABELS,
    bound_text,
    corrected_label,
    corrected_text,
    counted,
    duration_text,
    first_clause,
    judge_mark,
    judged_text,
    ratio_text,
    seconds_text,
    short_name,
)
from app.base.values import (
    Cause,
    CorrectedRateView,
    Percentile,
    Reason,
    RuleKind,
    Severity,
    Value,
    field,
    judged_name,
)
from app.catalog.domain import PooledNote, labelled
from app.retrievers.domain.probes import FailureSummary
from app.retrievers.domain.retrievers import EMBEDDER_AT


class ChangedCanaries(Value):
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
    shared_brief: str = ""
    """The same in few words."""
    shared_advice: str = ""
    """What to do about that."""
    losing: int = 0
    """Canaries that find fewer of their expected chunks since that cause came; 0 = none, or unknown."""
    losing_of: int = 0
    """Of how many: those that were compared."""
    compared: bool = True
    """Whether there is a run before the first bad one, in which most of them asked and expected the same.

    Else none of them can be said to have lost anything; without such a run all degraded canaries count as changed.
    """
    edited: bool = False
    """Whether the check, or what these canaries ask or expect, was changed: `shared_cause` says how."""
    since_run: int | None = None
    """The run with which the shared cause came, which may have joined an older alarm; None = unknown."""
    since_first: bool = True
    """Whether half of them or more were degraded in the first bad run already."""
    rejudged: int = 0
    """Canaries of the whole suite that ask or expect something else than before the first bad run."""
    suite: int = 0
    """Canaries of the whole suite, also those that expect nothing by now; 0 = as many as were measured."""
    beside: str = ""
    """What was changed of the check since, which may explain some of it; not told of as the cause."""
    recovered_on_retry: int = 0
    """Canaries that changed but were healthy on every retry; not part of the count."""
    redefined: int = 0
    """Canaries that asked or expected something else before, and are degraded; not part of the count."""

    @property
    def are_many_rejudged(self) -> bool:
        """Whether canaries that ask or expect something else may move a number of the whole suite."""
        return may_move_all(self.rejudged, self.rejudged_of)

    @property
    def rejudged_of(self) -> int:
        """Of how many canaries `rejudged` is."""
        return self.suite or self.of

    @property
    def finding_less(self) -> str:
        """How many find fewer expected chunks, where that is more than degraded: `60 of 92 canaries find fewer ...`."""
        if self.edited or self.losing <= self.count:
            return ""
        verb = "finds" if self.losing == 1 else "find"
        return f"{self.losing:,} of {counted(self.losing_of, 'canary')} {verb} fewer expected chunks"

    @property
    def cause(self) -> str:
        """Why they changed, in one phrase; empty where unknown, or none did."""
        if self.count:
            return self.shared_cause or causes_text(self.causes, self.count)
        return "" if self.edited else self.shared_cause


class AlertFacts(Value):
    """Inputs of a summary. None = unknown, or not of this kind of rule."""

    check: str
    kind: RuleKind
    change: TransitionType | None = None
    """What just happened to the alert; None = its current state."""
    reason: str = ""
    """The rule's own sentence, used where no numbers are known; may end with a full stop."""
    measure: str | None = None
    self_judged: bool = False
    """Whether the measure is recall of which the retriever itself brought up much of what is expected."""
    pooled_recall: Sequence[PooledNote] = ()
    """Pooled recall at the k of the measure."""
    uncalibrated: bool = False
    """Whether a judge says it whom people have not confirmed."""
    corrected: CorrectedRateView | None = None
    """The value, where that is a rate by people's labels."""
    newly_corrected: bool = False
    """Whether it is one by people's labels now, and was the judge's own when the alert was told last."""
    beside: CorrectedRateView | None = None
    """What people would say, where the value is a judge's own mean of shares."""
    rated: str = ""
    """Of how many answers the value is a judge's, where it is not of all."""
    answers: WorseAnswers | None = None
    """Of a rule about generated answers: those that got worse."""
    escalated: bool = False
    """Whether the alert opened by a milder bound than the one that is told."""
    interrupted: bool = False
    """Whether runs between the first bad one and the one that is told were good."""
    category: str | None = None
    canary: str | None = None
    percentile: Percentile = Percentile.P95
    value: float | None = None
    threshold: float | None = None
    baseline: float | None = None
    slower: SlowerLimits | None = None
    """For a `slower` alert: how much slower than the baseline is bad."""
    bad: int | None = None
    """Bad runs of the last `of` evaluated ones."""
    of: int | None = None
    run_id: int | None = None
    """The run that brought the change."""
    since: SinceView | None = None
    """The first bad run, and the version of the index that came shortly before or with it."""
    began_at: datetime | None = None
    """When the first bad run ended or, without data, when the last run completed."""
    retriever: str = ""
    """For an alert about latency: name and address of the retriever (embedders are not measured). For failed probes:
    its name."""
    opened_at: datetime | None = None
    at: datetime | None = None
    """The moment of the change."""
    due_at: datetime | None = None
    """Without data: when the second scheduled run was due."""
    unknown: bool = False
    """Whether the run measured too little for a verdict."""
    unknown_since_first: bool = True
    """Whether the first bad run did so too."""
    failure: FailureSummary | None = None
    measured: int | None = None
    total: int | None = None
    """Canaries of the run: with a measurement, and all."""
    edits: EditsSince | None = None
    """Of a resolved alert."""
    coverage: float | None = None
    found: str | None = None
    """Coverage as a count of questions that find their document: `65 of 87`."""
    changed: ChangedCanaries | None = None
    retired: str = ""
    """Why the alert closed without a good run."""
    dated: bool = False
    """Whether every time has its date, as pages need that show it in the zone of their viewer."""


def alert_summary(facts: AlertFacts) -> str:
    """Return the sentence, without a full stop; it begins with the name of the check."""
    if facts.change is TransitionType.RESOLVED:
        return f"{facts.check}: {_resolved(facts)}"
    claim = _CLAIMS[facts.kind](facts)
    if facts.change is TransitionType.REMINDED:
        span = f" after {duration_text(facts.at - facts.opened_at)}" if facts.at and facts.opened_at else ""
        return f"{facts.check}: still firing{span}: {claim}"
    if facts.change is TransitionType.ACKNOWLEDGED:
        return f"{facts.check}: acknowledged: {claim}"
    return f"{facts.check}: {claim}"


def _measure_of(facts: AlertFacts) -> str:
    if facts.corrected is not None:
        return f"{corrected_label(facts.measure or '', uncalibrated=facts.uncalibrated)},"
    own, pooled = facts.self_judged, facts.pooled_recall
    name = measure_text(facts.measure, facts.category, self_judged=own, pooled=pooled)
    has_rate = facts.beside is not None
    return f"{name}{judge_mark(facts.measure, uncalibrated=facts.uncalibrated, corrected=has_rate)}"


def _level(facts: AlertFacts, value: float) -> str:
    """Return name and value of what a rule watches; a corrected rate with its interval and the judge's own rate."""
    rate, bound = facts.corrected, facts.threshold
    own = judged_text(value, facts.beside, facts.rated, bound)
    return f"{_measure_of(facts)} {own if rate is None else corrected_text(value, rate, bound)}"


def measure_text(
    measure: str | None, category: str | None, *, self_judged: bool = False, pooled: Sequence[PooledNote] = ()
) -> str:
    """Name of what a rule watches: `coverage`, `first-hit relevance`, `R@5 (self-judged) of complex factual`."""
    of_part, known = category is not None, measure or "value"
    name = labelled(MEASURE_LABELS.get(known, known), self_judged=self_judged, pooled=pooled, of_part=of_part).replace(
        "_", " "
    )
    return f"{name} of {category.replace('_', ' ')}" if category else name


def _threshold(facts: AlertFacts) -> str:
    if facts.value is None:  # nothing was judged in this run: that is told without since when others were bad
        return _without_severity("; ".join(facts.reason.rstrip(".").split("; ")[:2])) or _reason_text(facts)
    beside = _with_answers(facts) if is_about_answers(facts) else f"{_with_canaries(facts)}{_edits(facts)}"
    began = _since(facts)
    since = began
    if began and (facts.escalated or facts.interrupted):
        since = f"; bad{' at times' if facts.interrupted else ''}{began}"
    return f"{_level(facts, facts.value)}{_bound(facts, bound_text)}{since}{_labels(facts)}{beside}"


def _labels(facts: AlertFacts) -> str:
    return "; labels of people count now, and did not when this was told last" if facts.newly_corrected else ""


def _drop(facts: AlertFacts) -> str:
    if facts.value is None or facts.baseline is None:
        return _reason_text(facts)
    fell = f"{_measure_of(facts)} fell from {ratio_text(facts.baseline)} to {ratio_text(facts.value, facts.baseline)}"
    return f"{fell}{_since(facts)}{_with_canaries(facts)}{_edits(facts)}"


def _regression(facts: AlertFacts) -> str:
    changed = facts.changed
    if changed is None or not changed.count:
        return _reason_text(facts)
    return f"{changed_text(changed)}{_since_and_why(facts, changed)}"


def _since_and_why(facts: AlertFacts, changed: ChangedCanaries) -> str:
    """Since when canaries changed, and why; an alarm may be older than what is told of them."""
    since, why = _since(facts), f"{cause_suffix(changed)}{f'; {changed.beside}' if changed.beside else ''}"
    if changed.since_run is not None and facts.since is not None and changed.since_run > int(facts.since["run_id"]):
        return f" since run {changed.since_run}{why}; bad{since}"
    is_older = not changed.since_first or (changed.edited and not changed.compared)
    return f"{why}; bad{since}" if is_older and since else f"{since}{why}"


def _canary(facts: AlertFacts) -> str:
    changed = facts.changed
    name = f"canary {facts.canary}"
    if changed is None or not changed.reasons:
        return f"{name} is degraded{_since(facts)}"
    one = ChangedCanaries(count=1, of=1, reasons=changed.reasons[:1], compared=changed.compared)
    return f"{name} {predicate_text(one)}{_since_and_why(facts, changed) if changed.count == 1 else _since(facts)}"


def _latency(facts: AlertFacts) -> str:
    if facts.value is None:
        return _reason_text(facts)
    level = f"{LATENCY_NAMES[facts.percentile]} {seconds_text(facts.value, facts.threshold)}"
    usual = "" if facts.baseline is None else f" (usually {seconds_text(facts.baseline)})"
    who = f": {facts.retriever}" if facts.retriever else ""
    return f"{level}{usual}{_bound(facts, seconds_text)}{_since(facts)}{who}"


def _slower(facts: AlertFacts) -> str:
    if facts.value is None or facts.threshold is None or facts.baseline is None or facts.slower is None:
        return _reason_text(facts)
    level = f"{LATENCY_NAMES[Percentile.P50]} {seconds_text(facts.value, facts.threshold)}"
    usual, who = seconds_text(facts.baseline), f": {facts.retriever}" if facts.retriever else ""
    if facts.value <= facts.threshold:
        return f"{level}, not above {seconds_text(facts.threshold)} (baseline {usual}){_since(facts)}{who}"
    counted_runs = f", in {facts.bad} of {counted(facts.of or 0, 'run')}" if facts.bad else ""
    over = facts.slower.words(f"the baseline's {usual}")
    return f"{level}, above {over}{counted_runs}{_since(facts)}{who}"


def _probe_errors(facts: AlertFacts) -> str:
    since = f" since {_clock(facts.began_at, facts)}" if facts.began_at is not None else ""
    if facts.failure is None:
        why = _without_severity(facts.reason.rstrip("."))
        return f"not measurable{since}{f', {why}' if why else ''}"
    what = f"{facts.failure.who(facts.retriever)} {facts.failure.error}"
    if facts.unknown or facts.failure.failed >= facts.failure.total:
        since = since if facts.unknown_since_first or not since else f"; probes fail{since}"
        return f"not measurable{since}, {what} ({facts.failure.counts})"
    failed, total = facts.failure.failed, facts.failure.total
    others = "" if facts.failure.count == failed else f" ({facts.failure.count:,} of them)"
    verb = "fails" if failed == 1 else "fail"
    return f"{failed:,} of {counted(total, 'probe')} {verb}{since}, {what}{others}"


def _no_data(facts: AlertFacts) -> str:
    since = f" since {_clock(facts.began_at, facts)}" if facts.began_at is not None else ""
    due = f", two scheduled runs were due by {_clock(facts.due_at, facts)}" if facts.due_at is not None else ""
    return f"no run completed{since}{due}"


def _embedding(facts: AlertFacts) -> str:
    what = _first_clause(facts.reason).removeprefix(EMBEDDER_AT)
    return f"embedder changed{_since(facts)}{f': {what}' if what else ''}"


_CLAIMS: Final[Mapping[RuleKind, Callable[[AlertFacts], str]]] = {
    RuleKind.THRESHOLD: _threshold,
    RuleKind.DROP: _drop,
    RuleKind.REGRESSION: _regression,
    RuleKind.CANARY: _canary,
    RuleKind.LATENCY: _latency,
    RuleKind.PROBE_ERRORS: _probe_errors,
    RuleKind.NO_DATA: _no_data,
    RuleKind.EMBEDDING: _embedding,
    RuleKind.GUARD: _threshold,
    RuleKind.SLOWER: _slower,
    RuleKind.LEAK: lambda facts: f"{_first_clause(facts.reason)}{_since(facts)}",
    RuleKind.INDEX: lambda facts: f"{_without_severity(_first_clause(facts.reason))}{_since(facts)}",
    RuleKind.PLANT: lambda facts: _without_severity(f"{facts.reason[:1].lower()}{facts.reason[1:].rstrip('.')}"),
}


def _resolved(facts: AlertFacts) -> str:
    span = f" after {duration_text(facts.at - facts.opened_at)}" if facts.at and facts.opened_at else ""
    if facts.retired:
        return f"closed{span}: {facts.retired}"
    run = f" (run {facts.run_id})" if facts.run_id is not None else ""
    asked = f"; {facts.edits.asked}" if facts.edits is not None and facts.edits.asked else ""
    return f"recovered{span}{run}: {_recovered(facts)}{asked}"


def _recovered(facts: AlertFacts) -> str:
    latency = "" if facts.value is None else f" {seconds_text(facts.value, facts.threshold)}"
    answered = f"{facts.measured or 0:,} of {counted(facts.total or 0, 'probe')} answered"
    simple = {
        RuleKind.NO_DATA: "a run completed",
        RuleKind.PROBE_ERRORS: answered if facts.total else "probes are answered again",
        RuleKind.LATENCY: f"{LATENCY_NAMES[facts.percentile]}{latency}",
        RuleKind.SLOWER: f"{LATENCY_NAMES[Percentile.P50]}{latency}",
        RuleKind.EMBEDDING: "the embedder answers as it did before",
        RuleKind.LEAK: "no canary gets a chunk that it forbids",
        RuleKind.PLANT: "a planted document was found and gone in time",
        RuleKind.INDEX: "the index is as usual again",
        RuleKind.CANARY: f"canary {facts.canary} is healthy{edited_canaries_text(facts.edits)}",
    }
    return simple.get(facts.kind) or _recovered_canaries(facts)


def _recovered_canaries(facts: AlertFacts) -> str:
    if is_about_answers(facts):
        # Of an incident whose canaries got worse too this is the last word: it says that they find their documents.
        found = "" if facts.coverage is None else f"; coverage {ratio_text(facts.coverage)}"
        said = "the answers are good again" if facts.value is None else f"{_level(facts, facts.value)}{_labels(facts)}"
        return f"{said}{found}"
    watched = facts.kind in {RuleKind.THRESHOLD, RuleKind.DROP, RuleKind.GUARD} and facts.value is not None
    name = _measure_of(facts) if watched else "coverage"
    value = facts.value if watched else facts.coverage
    level = f"{name} {ratio_text(value)}, " if value is not None else ""
    unmeasured = (facts.total or 0) - (facts.measured or 0)
    if unmeasured > 0:
        return f"{level}{unmeasured:,} of {counted(facts.total or 0, 'canary')} not measured"
    left = facts.changed.count if facts.changed is not None and facts.changed.compared else 0
    edited = facts.edits is not None and (facts.edits.rejudged or facts.edits.rejudged_in_all)
    none = "no other canary is" if edited else "no canary is"
    worse = f"{counted(left, 'canary')} {'is' if left == 1 else 'are'}" if left else none
    return f"{level}{worse} worse than before the alert{edited_canaries_text(facts.edits)}"


def _since(facts: AlertFacts) -> str:
    if facts.since is None:
        return ""
    run, version, runs = f"run {facts.since['run_id']}", facts.since["index_version"], facts.since["runs_after"]
    after = f"{counted(runs, 'run')} after " if runs else ""
    index = "" if version is None else f"{after}index {short_name(version)}"
    if facts.began_at is None:
        return f" since {run}{f' ({index})' if index else ''}"
    return f" since {_clock(facts.began_at, facts)} ({run}{f', {index}' if index else ''})"


def _with_canaries(facts: AlertFacts) -> str:
    changed = facts.changed
    if changed is None or not (changed.compared or changed.edited):
        return ""
    if not changed.count:
        count = counted(changed.recovered_on_retry, "canary")
        verb = "was" if changed.recovered_on_retry == 1 else "were"
        retried = f", {count} degraded and {verb} healthy on retry" if changed.recovered_on_retry else ""
        less = f", {changed.finding_less}" if changed.finding_less else ""
        return f"{retried}{less}{cause_suffix(changed)}"
    be = "is" if changed.redefined == 1 else "are"
    others = f"; {counted(changed.redefined, 'other')} {be} degraded that {be} new, changed or counted otherwise since"
    return f", {changed_text(changed)}{cause_suffix(changed)}{others if changed.redefined else ''}"


def _edits(facts: AlertFacts) -> str:
    """Say how many canaries are judged otherwise than before the fault, and whom the check asks since."""
    changed = facts.changed
    if changed is None:
        return ""
    beside = f"; {changed.beside}" if changed.beside else ""
    told = changed.redefined + (changed.count if changed.edited else 0)
    if not changed.are_many_rejudged or changed.rejudged <= told:
        return beside
    verb = "asks or expects" if changed.rejudged == 1 else "ask or expect"
    return f"; {changed.rejudged:,} of {counted(changed.rejudged_of, 'canary')} {verb} something else since{beside}"


def is_about_answers(facts: AlertFacts) -> bool:
    """Whether the rule watches generated answers."""
    return watches_answers(facts.kind, facts.measure)


def _with_answers(facts: AlertFacts) -> str:
    found = facts.answers
    if found is None or not found["worse"]:
        return ""
    told = f"got worse{' by the judge' if judged_name(facts.measure) else ''}: {answer_changes_text(found)}"
    return f", {worse_of_text(found)} {told}"


def worse_of_text(found: WorseAnswers) -> str:
    """Say how many answers got worse of those compared: `45 of 88 answers of both runs`, or `of 140 answers`.

    The former where the run has others, which did not come or were not rated in the one that it is compared with.
    """
    both = " of both runs" if found.get("came", 0) > found["of"] else ""
    return f"{found['worse']:,} of {counted(found['of'], 'answer')}{both}"


def answer_changes_text(found: WorseAnswers) -> str:
    """Say what changed with the answers that got worse: `30 changed over the same chunks, 2 with worse retrieval`.

    What was changed of the check comes first: it may explain all of them.
    """
    ordered = commonest_changes(found)
    edited = f"{found['edited']}; " if "edited" in found else ""
    if len(ordered) == 1:
        return f"{edited}all {_ANSWER_CHANGES[ordered[0][0]]}"
    return edited + ", ".join(f"{count:,} {_ANSWER_CHANGES[change]}" for change, count in ordered)


def answer_change_text(change: AnswerChange) -> str:
    """Say what changed with one answer that got worse."""
    return _ANSWER_CHANGES[AnswerChange(change)]


def commonest_changes(found: WorseAnswers) -> list[tuple[AnswerChange, int]]:
    """Return what changed with answers that got worse, with counts, the commonest first."""
    return sorted(((AnswerChange(one), count) for one, count in found["changes"].items()), key=lambda one: -one[1])


def _bound(facts: AlertFacts, write: Callable[[float], str]) -> str:
    if facts.value is None or facts.threshold is None:
        return ""
    side = "below" if facts.value < facts.threshold else "above"
    return f", {side} {write(facts.threshold)}"


def _reason_text(facts: AlertFacts) -> str:
    """Return the rule's own sentence, where the numbers are not known."""
    return f"{_first_clause(facts.reason) if facts.reason else f'rule {facts.kind} broken'}{_since(facts)}"


def _first_clause(reason: str) -> str:
    return _without_severity(first_clause(reason.rstrip(".")))


def _without_severity(reason: str) -> str:
    """Return a reason without the severities in brackets: hooks and pages show the severity beside the summary."""
    return _SEVERITY.sub("", reason)


_SEVERITY = re.compile(rf" \((?:{'|'.join(Severity)})\)(?=$|[;,.:])")


def _clock(moment: datetime | None, facts: AlertFacts) -> str:
    """Return a time of the day of the change as 14:05 UTC, another one with its date."""
    if moment is None:
        return ""
    utc = moment.astimezone(UTC)
    today = not facts.dated and facts.at is not None and facts.at.astimezone(UTC).date() == utc.date()
    return f"{utc:%H:%M} UTC" if today else f"{utc:%Y-%m-%d %H:%M} UTC"


_ANSWER_CHANGES: Final[Mapping[AnswerChange, str]] = {
    AnswerChange.RETRIEVAL: "with worse retrieval",
    AnswerChange.CHUNKS: "made from other chunks",
    AnswerChange.ANSWER: "changed over the same chunks",
    AnswerChange.JUDGE: "judged otherwise",
}
"""What changed with answers, after a count of them."""


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


def redefined_text(run_id: int) -> str:
    """Say that canaries ask or expect something else, or are new, as the reason why nothing is known to be lost."""
    return f"changed or added since run {run_id}"


def changed_text(changed: ChangedCanaries) -> str:
    """How many changed and how: `7 of 113 canaries lost their expected chunk`."""
    named = f" ({short_name(changed.name)})" if changed.name and changed.count == 1 else ""
    inside = f" (mostly in {short_name(changed.name)})" if changed.name and changed.count > 1 else ""
    less = f", {changed.finding_less}" if changed.finding_less else ""
    return f"{changed.count:,} of {counted(changed.of, 'canary')}{named}{inside} {predicate_text(changed)}{less}"


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
        return "lost their expected chunk or rank it lower"
    return f"lost their expected chunk ({lost:,}) or rank it lower ({lower:,})"


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


class CauseWords(Value, kw_only=False):
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
    Cause.VOCABULARY_MISMATCH: CauseWords("never among the first hits", "never among the first hits"),
    Cause.DUPLICATES: CauseWords("crowded out by near copies", "crowded out by near copies"),
    Cause.UNSTABLE: CauseWords("unstable", "passed over by the search"),
    Cause.LEFT_OUT: CauseWords("left out of their answers", "left out of their answers", "left out"),
    Cause.LOW_RELEVANCE: CauseWords("found but scored too low", "found but scored too low"),
    Cause.OUTRANKED: CauseWords("outranked", "outranked by other chunks"),
}
