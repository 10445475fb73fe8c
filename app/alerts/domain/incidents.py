"""Incidents in few words: the title by which people know one, in lists, on its page and as the subject of messages.

An incident are the alerts of one check and class that are open together. Its title says what happened and no more than
a phone shows; the numbers and the moment are in `summaries`, which say them of each alert.
"""

from typing import Final

from app.alerts.domain.summaries import (
    CAUSE_WORDS,
    MOST_NAMED,
    AlertFacts,
    ChangedCanaries,
    commonest_first,
    measure_text,
)
from app.alerts.domain.views import TransitionType
from app.base.texts import (
    LATENCY_NAMES,
    bound_text,
    counted,
    duration_text,
    first_clause,
    ratio_text,
    seconds_text,
    short_name,
)
from app.base.values import FAITHFUL, GROUNDING, Percentile, RuleKind, corrected_name, judged_name

LONGEST_TITLE: Final = 69
"""Characters of a title, as many as a list of mails shows."""
_SHORTEST_CHECK: Final = 24
"""So much of the name of a check is left where the title is long."""
_LEADS: Final = {TransitionType.ACKNOWLEDGED: "acknowledged: ", TransitionType.REMINDED: "still: "}


def incident_title(facts: AlertFacts) -> str:
    """Return what happened to a check, without a full stop: `docs: 35 of 97 questions got worse: chunks missing ...`.

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
        return (f"closed{span}: {facts.retired}", f"closed{span}") if facts.retired else (f"recovered{span}",)
    if facts.kind is RuleKind.EMBEDDING:
        return ("the embedding model changed",)
    return _STATED.get(facts.kind, _worse)(facts)


def _worse(facts: AlertFacts) -> tuple[str, ...]:
    """Say how many questions or answers got worse; where none did, or that is unknown, what the rule watches."""
    if facts.answers is not None and facts.answers["worse"]:
        count = f"{facts.answers['worse']:,} of {counted(facts.answers['of'], 'answer')} got worse"
        if facts.uncalibrated:
            return (f"{count} (by an uncalibrated judge)", f"{count} (uncalibrated)")
        return (f"{count} by the judge",) if facts.measure not in GROUNDING else (count,)
    changed = facts.changed
    if changed is not None and changed.count:
        verb = "got worse" if changed.compared else "is degraded" if changed.count == 1 else "are degraded"
        count = f"{changed.count:,} of {counted(changed.of, 'question')} {verb}"
        return (*(f"{count}: {cause}" for cause in _causes(changed)), count)
    if facts.kind is RuleKind.REGRESSION or facts.value is None:
        return (first_clause(facts.reason.rstrip(".")), "it got worse") if facts.reason else ("it got worse",)
    measure = facts.measure if facts.corrected is None else corrected_name(judged_name(facts.measure) or FAITHFUL)
    name = measure_text(measure, facts.category, self_judged=facts.self_judged)
    name += " (uncalibrated)" if facts.uncalibrated else ""
    if facts.kind is RuleKind.DROP and facts.baseline is not None:
        return (f"{name} fell from {ratio_text(facts.baseline)} to {ratio_text(facts.value, facts.baseline)}",)
    return (f"{name} {ratio_text(facts.value, facts.threshold)}{_bound(facts)}",)


def _causes(changed: ChangedCanaries) -> list[str]:
    """Return why they changed, the longest form first; none where that is unknown."""
    ordered = commonest_first(changed.causes)
    if not changed.shared_cause and sum(changed.causes.values()) < changed.count:
        return [cause for cause in (changed.cause,) if cause]  # says how many are not explained yet
    if len(ordered) == 1 and (changed.shared_cause or ordered[0][1] >= changed.count):
        brief = [CAUSE_WORDS[ordered[0][0]].shared, CAUSE_WORDS[ordered[0][0]].counted]
    else:
        words = [f"{number:,} {CAUSE_WORDS[cause].headline}" for cause, number in ordered[:MOST_NAMED]]
        brief = [", ".join(words), *words[:1]]
    return [cause for cause in (changed.cause, *brief) if cause]


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
    if facts.unknown or failure.failed >= failure.total:
        return (
            f"it cannot be measured: {failure.who()} {failure.error}",
            f"it cannot be measured: {failure.who()} fails",
        )
    count = f"{failure.failed:,} of {counted(failure.total, 'probe')} failed"
    return (f"{count}: {failure.who()} {failure.error}", count)


def _no_data(facts: AlertFacts) -> tuple[str, ...]:
    if facts.at is None or facts.began_at is None:
        return ("no run completes",)
    return (f"no run completed for {duration_text(facts.at - facts.began_at)}",)


_STATED: Final = {
    RuleKind.CANARY: _canary,
    RuleKind.LATENCY: _slow,
    RuleKind.SLOWER: _slow,
    RuleKind.PROBE_ERRORS: _unmeasured,
    RuleKind.NO_DATA: _no_data,
}
"""Kinds of rules that say what happened by themselves; of the others it is what got worse."""
