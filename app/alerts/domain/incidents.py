"""Incidents in few words: the title by which people know one, in lists, on its page and as the subject of messages.

An incident are the alerts of one check and class that are open together. Its title says what happened and no more than
a phone shows; the numbers and the moment are in `summaries`, which say them of each alert.

Below: what will open or close an alert next, and how a check recovers.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from app.alerts.domain.state import OPEN, UNDECIDED, Member, Observation, good_runs
from app.alerts.domain.summaries import (
    CAUSE_WORDS,
    MOST_NAMED,
    AlertFacts,
    ChangedCanaries,
    commonest_first,
    measure_text,
    worse_of_text,
)
from app.alerts.domain.views import AlertState, TransitionType
from app.base.texts import (
    LATENCY_NAMES,
    bound_text,
    counted,
    duration_text,
    first_clause,
    judge_mark,
    named_text,
    plural,
    ratio_text,
    seconds_text,
    short_name,
)
from app.base.values import (
    FAITHFUL,
    GROUNDING,
    Cause,
    Percentile,
    Reason,
    Rule,
    RuleKind,
    Value,
    Verdict,
    corrected_name,
    judged_name,
    replace,
)

LONGEST_TITLE: Final = 69
"""Characters of a title, as many as a list of mails shows."""
_SHORTEST_CHECK: Final = 24
"""So much of the name of a check is left where the title is long."""
_LEADS: Final = {
    TransitionType.ESCALATED: "now critical: ",
    TransitionType.UPDATED: "updated: ",
    TransitionType.ACKNOWLEDGED: "acknowledged: ",
    TransitionType.REMINDED: "still: ",
}
"""By these the messages of one incident are told apart."""


def incident_title(facts: AlertFacts) -> str:
    """Return what happened to a check, without a full stop: `docs: 35 of 87 questions got worse: chunks missing ...`.

    At most `LONGEST_TITLE` characters; of what is said the longest form that leaves the name of the check whole, else
    the shortest, and then both are cut.
    """
    lead = _LEADS.get(facts.change, "") if facts.change is not None else ""
    claims = [f"{lead}{claim}" for claim in _claims(facts)]
    room = LONGEST_TITLE - len(facts.check) - len(": ")
    claim = next((one for one in claims if len(one) <= room), claims[-1])
    check = short_name(facts.check, max(LONGEST_TITLE - len(claim) - len(": "), _SHORTEST_CHECK))
    return short_name(f"{check}: {claim}", LONGEST_TITLE)


def _claims(facts: AlertFacts) -> tuple[str, ...]:
    """Return what is to be said, the longest form first."""
    if facts.change is TransitionType.RESOLVED:
        span = f" after {duration_text(facts.at - facts.opened_at)}" if facts.at and facts.opened_at else ""
        if facts.retired:
            return f"closed{span}: {facts.retired}", f"closed{span}"
        left = facts.changed.count if facts.changed is not None and facts.changed.compared else 0
        worse = f", but {counted(left, 'question')} {'is' if left == 1 else 'are'} worse" if left else ""
        return f"recovered{span}{worse}", f"recovered{span}"
    if facts.kind is RuleKind.EMBEDDING:
        return ("the embedding model changed",)
    if facts.kind is RuleKind.LEAK:
        return ("a chunk that must not be returned was returned", "forbidden chunk returned")
    return _STATED.get(facts.kind, _worse)(facts)


def _worse(facts: AlertFacts) -> tuple[str, ...]:
    """Say how many questions or answers got worse; where none did, or that is unknown, what the rule watches."""
    if facts.answers is not None and facts.answers["worse"]:
        count = f"{worse_of_text(facts.answers)} got worse"
        if facts.uncalibrated:
            return (f"{count} (by an uncalibrated judge)", f"{count} (uncalibrated)")
        return (f"{count} by the judge",) if facts.measure not in GROUNDING else (count,)
    changed = facts.changed
    if changed is not None and changed.count:
        verb = "got worse" if changed.compared else "is degraded" if changed.count == 1 else "are degraded"
        if changed.reasons and all(list(one) == [Reason.LOW_RELEVANCE] for one in changed.reasons):
            verb = "scores too low" if changed.count == 1 else "score too low"
        count = f"{changed.count:,} of {counted(changed.of, 'question')} {verb}"
        if changed.finding_less:
            count = f"{changed.losing:,} of {counted(changed.losing_of, 'question')} find less"
        return (*(f"{count}: {cause}" for cause in _causes(changed)), count)
    if facts.kind is RuleKind.REGRESSION or facts.value is None:
        return (first_clause(facts.reason.rstrip(".")), "it got worse") if facts.reason else ("it got worse",)
    measure = facts.measure if facts.corrected is None else corrected_name(judged_name(facts.measure) or FAITHFUL)
    has_rate = facts.corrected is not None or facts.beside is not None
    mark = judge_mark(facts.measure, uncalibrated=facts.uncalibrated, corrected=has_rate)
    # Pooled recall stands beside recall where there is room.
    names = [
        f"{measure_text(measure, facts.category, self_judged=facts.self_judged, pooled=pooled)}{mark}"
        for pooled in ((facts.pooled_recall, ()) if facts.pooled_recall else ((),))
    ]
    if facts.kind is RuleKind.DROP and facts.baseline is not None:
        fell = f"fell from {ratio_text(facts.baseline)} to {ratio_text(facts.value, facts.baseline)}"
        return tuple(f"{name} {fell}" for name in names)
    levels = [f"{name} {ratio_text(facts.value, facts.threshold)}{_bound(facts)}" for name in names]
    edits = f": {counted(changed.rejudged, 'canary')} changed" if changed and changed.are_many_rejudged else ""
    # Why it may be so comes before what it may be instead.
    why = f": {changed.cause}" if changed and changed.cause and not edits else edits
    return (*(f"{level}{why}" for level in levels if why), *levels)


def _causes(changed: ChangedCanaries) -> list[str]:
    """Return why they changed, the longest form first; none where that is unknown."""
    ordered = commonest_first(changed.causes)
    if not changed.shared_cause and sum(changed.causes.values()) < changed.count:
        return [cause for cause in (changed.cause,) if cause]  # says how many are not explained yet
    if changed.edited or (changed.shared_cause and not _BROAD.isdisjoint(changed.causes)):
        brief = [changed.shared_brief]
    elif len(ordered) == 1 and (changed.shared_cause or ordered[0][1] >= changed.count):
        brief = [CAUSE_WORDS[ordered[0][0]].shared, CAUSE_WORDS[ordered[0][0]].counted]
    else:
        words = [f"{number:,} {CAUSE_WORDS[cause].headline}" for cause, number in ordered[:MOST_NAMED]]
        brief = [", ".join(words), *words[:1]]
    # All incidents of one fault name it alike, whatever is known of single canaries.
    shared = [words.counted for words in CAUSE_WORDS.values() if words.shared == changed.shared_cause]
    return [cause for cause in (changed.cause, *brief, *shared, changed.shared_brief) if cause]


_BROAD: Final = frozenset({Cause.UNSTABLE, Cause.SCORE_DRIFT, Cause.RECHUNKED})
"""Causes of canaries that stand for several of a whole run, which their words do not fit."""


def _bound(facts: AlertFacts) -> str:
    if facts.threshold is None or facts.value is None:
        return ""
    return f", {'below' if facts.value < facts.threshold else 'above'} {bound_text(facts.threshold)}"


def _canary(facts: AlertFacts) -> tuple[str, ...]:
    return (f"question {facts.canary} got worse", "a question that is watched alone got worse")


def _slow(facts: AlertFacts) -> tuple[str, ...]:
    name = LATENCY_NAMES[Percentile.P50 if facts.kind is RuleKind.SLOWER else facts.percentile]
    if facts.value is None:
        return ("answers take too long",)
    level = f"{name} {seconds_text(facts.value, facts.threshold)}"
    usual = f", usually {seconds_text(facts.baseline)}" if facts.baseline is not None else ""
    bound = f", above {seconds_text(facts.threshold)}" if facts.threshold is not None else ""
    return (f"{level}{usual or bound}", level)


def _unmeasured(facts: AlertFacts) -> tuple[str, ...]:
    failure = facts.failure
    if failure is None:
        return ("it cannot be measured",)
    short = _DETAIL.split(failure.error)[0]
    if facts.unknown or failure.failed >= failure.total:
        said = (f"{failure.who()} {failure.error}", f"{failure.step} {failure.error}", f"{failure.step} {short}")
        return tuple(f"it cannot be measured: {one}" for one in (*said, f"{failure.step} fails"))
    count = f"{failure.failed:,} of {counted(failure.total, 'probe')} failed"
    said = (f"{failure.who()} {failure.error}", f"{failure.step} {failure.error}", f"{failure.step} {short}")
    return (*(f"{count}: {one}" for one in said), count)


_DETAIL: Final = re.compile(r"[:,(“]| answered | after ")
"""What begins the details of an error: `HTTP 500 answered ...`, `refused the connection (...)`."""


def _no_data(facts: AlertFacts) -> tuple[str, ...]:
    if facts.at is None or facts.began_at is None:
        return ("no run completes",)
    return (f"no run completed for {duration_text(facts.at - facts.began_at)}",)


def _plant(facts: AlertFacts) -> tuple[str, ...]:
    said = f"{facts.reason[:1].lower()}{facts.reason[1:].rstrip('.')}"
    return said, said.partition(":")[0], "a planted document is not found or not gone in time"


_SAID: Final = re.compile(r" \((?:warning|critical)\)|; bad in ")
"""What ends the clause of a rule within the reason of an alert."""


def _index(facts: AlertFacts) -> tuple[str, ...]:
    said = _SAID.split(facts.reason)[0]
    brief = said.partition(" than in run ")[0].partition(" (")[0]
    return said, said.partition(";")[0], brief, "the index holds less, or finds less, than usual"


_STATED: Final = {
    RuleKind.CANARY: _canary,
    RuleKind.LATENCY: _slow,
    RuleKind.SLOWER: _slow,
    RuleKind.PROBE_ERRORS: _unmeasured,
    RuleKind.NO_DATA: _no_data,
    RuleKind.PLANT: _plant,
    RuleKind.INDEX: _index,
}
"""Kinds of rules that say what happened by themselves; of the others it is what got worse."""


# --- what comes next -----------------------------------------------------------------------------------------


class Outlook(Value):
    """The next change of a rule's alert. Exactly one of the two sentences is set."""

    to_open: str | None = None
    to_close: str | None = None
    bad_runs_to_open: int | None = None
    """Bad runs in a row that would open it; None where it is not opened by runs."""
    good_runs_to_close: int | None = None


def outlook(rule: Rule, window: Sequence[Observation], alert: Member | None, unmeasured: Sequence[str] = ()) -> Outlook:
    """Return what would open a rule's alert or, where it is open, close it. `window`: as in `decide`.

    `unmeasured`: keys of the canaries, degraded when it opened, that the newest run did not measure: no run that leaves
    them out resolves it, however good it is.
    """
    if alert is None or alert.state not in OPEN:
        return _opening(rule, window)
    closing = _closing(rule, window, alert)
    if not unmeasured:
        return closing
    be, which = ("is", "the canary was") if len(unmeasured) == 1 else ("are", "they were")
    names = named_text(unmeasured)
    awaited = f"It does not resolve before {names} {be} measured again: {which} degraded when it opened."
    return replace(closing, to_close=f"{closing.to_close} {awaited}")


def _opening(rule: Rule, window: Sequence[Observation]) -> Outlook:
    if rule.kind is RuleKind.NO_DATA:
        return Outlook(to_open="It opens when no run has completed by the second scheduled time after the last run.")
    if rule.kind is RuleKind.PLANT:
        return Outlook(to_open="It opens when a planted document is not found or gone in time, left behind, or slow.")
    if rule.kind is RuleKind.REGRESSION:
        return Outlook(to_open="It opens when the detector raises an alarm, which weighs all canaries over many runs.")
    bad = [one.condition.severity is not None for one in window if one.condition.measured][-rule.open_of :]
    needed = next(
        more for more in range(1, rule.open_bad + 1) if sum([*bad, *[True] * more][-rule.open_of :]) >= rule.open_bad
    )
    if rule.open_of == 1:
        return Outlook(to_open="It opens at once, with the first bad run.", bad_runs_to_open=needed)
    runs = "run" if rule.kind is RuleKind.PROBE_ERRORS else "measured run"
    bad_text = (
        f"; {sum(bad)} of the last {counted(len(bad), runs)} {'was' if sum(bad) == 1 else 'were'} bad" if bad else ""
    )
    rows = "in a row " if needed > 1 else ""
    return Outlook(
        to_open=(
            f"It opens when {rule.open_bad} of {rule.open_of} are bad{bad_text}, "
            f"so {counted(needed, 'more bad run')} {rows}would open it."
        ),
        bad_runs_to_open=needed,
    )


STUCK: Final = "It does not resolve by itself"


def _closing(rule: Rule, window: Sequence[Observation], alert: Member) -> Outlook:
    if rule.kind is RuleKind.NO_DATA:
        return Outlook(to_close="It resolves when a run completes, whatever its verdict.", good_runs_to_close=1)
    if rule.kind is RuleKind.PLANT:
        return Outlook(to_close="It resolves when the next planted document is found, and gone, in time.")
    if rule.kind is RuleKind.REGRESSION:
        newest = window[-1].condition.reason if window else ""
        if newest.endswith(UNDECIDED):
            return Outlook(to_close=f"{STUCK}: {newest}.")
        times = counted(rule.detector_close, "good run")
        return Outlook(to_close=f"It resolves when the detector ends its alarm, after {times} in a row.")
    good = good_runs(alert, window)
    needed = max(rule.close - good, 1)
    margin = f", beyond the margin of {rule.margin:g}" if rule.margin else ""
    so_far = f"; {good} {plural(good, 'run')} {'was' if good == 1 else 'were'} good in a row so far" if good else ""
    rows = " in a row" if rule.close > 1 else ""
    return Outlook(
        to_close=f"It resolves after {counted(rule.close, 'good run')}{rows}{margin}{so_far}.",
        good_runs_to_close=needed,
    )


def recovery_state(verdict: str | None, alerts: Mapping[tuple[str, str], int]) -> str | None:
    """Return what a check is while its newest run is healthy and alerts are open, `recovering` or `firing`; else None.

    `alerts`: unresolved ones by state and severity.
    """
    states = {state for (state, _), count in alerts.items() if count} & OPEN
    found = AlertState.FIRING if AlertState.FIRING in states else AlertState.RECOVERING
    return str(found) if verdict == Verdict.HEALTHY and states else None


def recovery_text(
    open_alerts: Sequence[tuple[AlertState, int | None]],
    unmeasured: Sequence[str] = (),
    bad_answers: str = "",
    *,
    stuck: int = 0,
) -> str:
    """Sentence on the open alerts of a check whose newest run is healthy, with the good runs each still needs.

    None: the detector ends it, but for `stuck` of them. `unmeasured`: to be measured before; with `bad_answers`, a
    clause, the run is not good.
    """
    be, resolve = ("is", "resolves") if len(open_alerts) == 1 else ("are", "resolve")
    recovering = {state for state, _ in open_alerts} == {AlertState.RECOVERING}
    begin = "Healthy again: " if recovering else "Healthy in this run: "
    begin = f"{bad_answers[:1].upper()}{bad_answers[1:]}. " if bad_answers else begin
    needed = [runs for _, runs in open_alerts if runs is not None]
    after = f"after {counted(max(needed), 'good run' if bad_answers else 'more good run')}" if needed else ""
    detector = "when the detector ends its alarm" if len(needed) + stuck < len(open_alerts) else ""
    ends = " and ".join(filter(None, (after, detector)))
    awaited = f", but not before {named_text(unmeasured)} {'is' if len(unmeasured) == 1 else 'are'} measured"
    be = be if bad_answers else f"{be} still"  # the run may have opened it
    still = f"{counted(len(open_alerts), 'alert')} {be} open"
    if stuck:
        once = (
            f"{STUCK if stuck == 1 else 'They do not resolve by themselves'}: accept the present as normal once it is."
        )
        others = f" The others resolve {ends}." if ends else ""
        return f"{begin}{still}. {once}{others}"
    return f"{begin}{still}, and {resolve} {ends}{awaited if unmeasured else ''}."
