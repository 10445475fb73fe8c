"""Words of rules as they are defined, of states and changes of alerts, and of deliveries; `FILTERS` for all templates.

What a run has against it by a rule is worded where it is judged, in `domain.rules`; the headline and the advice of an
alert, and causes, in `domain.summaries`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from app.alerts.domain.rules import COVERAGE, FAILED_SHARE, GUARD_BOUNDS, REPEATED, SlowerLimits
from app.alerts.domain.state import Retirement
from app.alerts.domain.summaries import CAUSE_WORDS, lost_text
from app.alerts.domain.views import BoundSides, ChangedCanary, RuleEvidence, TransitionView
from app.base.addresses import hook_remedy
from app.base.texts import counted, outcome_word
from app.base.values import Bound, Cause, Percentile, Rule, RuleKind, Severity
from app.base.web.rendering import ABSENT, capitalize_first, evidence, score, seconds, spoken
from app.detection.domain.views import WarmUpView
from app.hooks.domain import AttemptView


def rule_in_words(rule: Rule) -> str:
    """When a run is bad by a rule, and when its alert opens and closes: a sentence without its full stop."""
    sentence = _WORDS[rule.kind](rule)
    if rule.kind in _AT_ONCE:
        return sentence
    runs = "measured runs" if rule.kind is not RuleKind.PROBE_ERRORS else "runs"
    opens = "at once" if rule.open_of == 1 else f"on {rule.open_bad} bad of {rule.open_of} {runs}"
    return f"{sentence}; opens {opens}, closes after {counted(rule.close, 'good run')}"


def protection_text(rules: Iterable[Rule], warm_up: WarmUpView, *, waits: str | None) -> str | None:
    """When an alert opens while no baseline stands, and when smaller losses are noticed too; None = no rule does.

    Sentences with their full stops. `waits`: why nothing is learned at present, without a full stop.
    """
    known = list(rules)
    limit = next((one for rule in known if (one := _coverage_limit(rule)) is not None), None)
    if limit is None:
        return None
    sentence = f"Protected now: alerts when coverage {limit}."
    if not any(rule.kind is RuleKind.REGRESSION for rule in known):
        return sentence
    if waits is not None:
        return f"{sentence} Smaller losses later: {waits}."
    identical, runs = warm_up.identical_runs_needed - warm_up.identical_runs, warm_up.runs_needed - warm_up.runs
    left = f"{counted(identical, 'more run')} with the same results" if identical < runs else counted(runs, "more run")
    return f"{sentence} After {left}: smaller losses too."


def _coverage_limit(rule: Rule) -> str | None:
    """When coverage of the whole check opens the alert of a rule, after the word coverage; None = it does not."""
    if rule.kind is RuleKind.GUARD:
        falls = f"falls below {GUARD_BOUNDS[-1][2]} of the first run's"
    elif rule.kind is RuleKind.THRESHOLD and rule.measure == COVERAGE and rule.category is None:
        bounds = [bound.below for bound in (rule.warning, rule.critical) if bound is not None and bound.below]
        if not bounds:
            return None
        falls = f"falls below {max(bounds):g}"
    else:
        return None
    if rule.open_of == 1:
        return f"{falls} in one run"
    return f"{falls} in {rule.open_bad} of {rule.open_of} runs"


def _threshold(rule: Rule) -> str:
    of = f" of {_plain_name(rule.category)} canaries" if rule.category else ""
    return f"{_plain_name(rule.measure or '')}{of} is {_bounds(rule)}{_margin(rule)}"


def _drop(rule: Rule) -> str:
    of = f" of {_plain_name(rule.category)} canaries" if rule.category else ""
    sentence = f"{_plain_name(rule.measure or '')}{of} fell against the baseline {_bounds(rule)}"
    return f"{sentence}, significant at {100 * rule.confidence:g} % confidence"


def _latency(rule: Rule) -> str:
    which = _PERCENTILES[rule.percentile or Percentile.P95]
    return f"{which} is {_bounds(rule, ' s')}{_margin(rule)}"


def _probe_errors(rule: Rule) -> str:
    share = FAILED_SHARE if rule.failed_share is None else rule.failed_share
    least = ", at least two," if rule.failed_share is None else ""
    return (
        f"the run is unknown (critical), more than {100 * share:g} % of its probes{least} fail, or the same canary is "
        f"not measured in {REPEATED} runs in a row (warning)"
    )


def _slower(rule: Rule) -> str:
    above = SlowerLimits.of(rule.factor, rule.rise).words("the baseline (99 % quantile of its runs)")
    return f"once a baseline stands: the median latency is above {above} (warning){_margin(rule)}"


def _regression(rule: Rule) -> str:
    sentence = "more canaries are lost or worse than chance explains by what they did in the baseline"
    return (
        f"{sentence}; the detector opens it by itself, and closes it after {counted(rule.detector_close, 'good run')}"
    )


_GUARD: Final = (
    "until a baseline stands: coverage is 0 or "
    + ", or ".join(f"below {words} ({severity})" for severity, _, words in GUARD_BOUNDS)
    + ", of the first measured run's"
)
_WORDS: Final[Mapping[RuleKind, Callable[[Rule], str]]] = {
    RuleKind.THRESHOLD: _threshold,
    RuleKind.DROP: _drop,
    RuleKind.REGRESSION: _regression,
    RuleKind.CANARY: lambda rule: f"the canary {rule.canary} is degraded ({rule.severity})",
    RuleKind.LATENCY: _latency,
    RuleKind.PROBE_ERRORS: _probe_errors,
    RuleKind.NO_DATA: lambda _: "nothing has completed by the second scheduled time after the last run (critical)",
    RuleKind.GUARD: lambda _: _GUARD,
    RuleKind.SLOWER: _slower,
    RuleKind.EMBEDDING: lambda _: "the embedder of the retriever answers known texts as another model would (critical)",
}
_AT_ONCE = {RuleKind.REGRESSION, RuleKind.NO_DATA, RuleKind.EMBEDDING}
_PERCENTILES: Final[Mapping[Percentile, str]] = {
    Percentile.P50: "the median latency",
    Percentile.P95: "the latency of the slowest twentieth (p95)",
    Percentile.MAX: "the longest latency",
}


def _bounds(rule: Rule, unit: str = "") -> str:
    sides = ((Severity.WARNING, rule.warning), (Severity.CRITICAL, rule.critical))
    return " or ".join(f"{_bound_text(bound)}{unit} ({severity})" for severity, bound in sides if bound is not None)


def _bound_text(bound: Bound) -> str:
    if bound.by is not None:
        return f"by {bound.by:g} or more"
    return f"below {bound.below:g}" if bound.below is not None else f"above {bound.above:g}"


def _margin(rule: Rule) -> str:
    return f"; to be good it must be {rule.margin:g} on the other side" if rule.margin else ""


def _plain_name(name: str) -> str:
    return name.replace("_", " ")


def limits(rule: RuleEvidence, kind: str, confirmed: Collection[str] = ()) -> str:
    """When a run is bad by a rule, in a sentence; `rule` is the evidence of an alert, `confirmed` as for `spoken`."""
    if kind in _LIMITS:
        return _LIMITS[kind]
    if kind == "probe_errors":
        share = rule.get("failed_share")
        share = FAILED_SHARE if share is None else share
        return (
            f"A run is bad when it is unknown (critical), when more than {share:g} of its probes failed, or when the "
            f"same canary was not measured in {REPEATED} runs in a row (warning)."
        )
    if kind == "slower":
        over = SlowerLimits.of(rule.get("factor"), rule.get("rise")).words("the baseline (99 % quantile of its runs)")
        margin = f" Good again {seconds(rule['margin'])} below that." if rule.get("margin") else ""
        return f"A run is bad when its median latency is above {over}.{margin}"
    name, category = rule.get("measure") or "value", rule.get("category")
    about = f"{spoken(name, confirmed)} of {spoken(category)}" if category else spoken(name, confirmed)
    bounds = {"warning": rule.get("warning"), "critical": rule.get("critical")}
    sides = [f"{word} {_side(side, kind)}" for word, side in bounds.items() if side]
    margin = f", good again beyond a margin of {value(rule['margin'], kind)}" if rule.get("margin") else ""
    return f"{capitalize_first(about)}: {', '.join(sides) or 'no bound'}{margin}."


_LIMITS: Final[Mapping[str, str]] = {
    "regression": "A run is bad while the detector's alarm is open.",
    "canary": "A run is bad when this canary is degraded in it.",
    "embedding": "A run is bad when the reference texts get other vectors than before.",
    "guard": (
        "A run is bad when its coverage is 0 or below half (critical), or below 80 % (warning), of the first run's."
    ),
}
"""When a run is bad by a rule without bounds of its own."""


def _side(side: BoundSides, kind: str) -> str:
    if kind == "latency":
        return f"above {seconds(side['above'])}"
    return f"a drop of {side['by']:g} or more" if "by" in side else bound(side)


def bound(sides: BoundSides | None) -> str:
    """Format the bound of a rule: below 0.9."""
    found = sides or BoundSides()
    return " or ".join(f"{side} {found[side]:g}" for side in ("below", "above", "by") if side in found) or ABSENT


def value(number: float | None, kind: str) -> str:
    """Value of a rule in its unit: a share, seconds, or the evidence of the detector."""
    if number is None:
        return ABSENT
    written = _TIMES.get(kind)
    return written(number) if written is not None else score(number)


_TIMES: Final = {"latency": seconds, "slower": seconds, "regression": evidence}


def pace(rule: RuleEvidence, kind: str) -> str:
    """How many runs open and close an alert of a rule."""
    if kind == "regression":
        return "The detector decides itself when its alarm begins and ends."
    bad, of, close = rule["open"]["bad"], rule["open"]["of"], rule["close"]
    opens = "at once" if of == 1 else f"on {bad} bad of {counted(of, 'run')}"
    return f"It opens {opens} and closes after {counted(close, 'good run')}{' in a row' if close > 1 else ''}."


RULE_KINDS: Final[Mapping[str, str]] = {
    "threshold": "a measure crossed a bound",
    "drop": "a measure fell below its baseline",
    "regression": "the detector found a regression",
    "canary": "one canary is degraded",
    "latency": "answers take too long",
    "probe_errors": "probes fail",
    "no_data": "no run completes",
    "embedding": "the embedder answers as another one",
    "guard": "coverage collapsed before there was a baseline",
    "slower": "answers take much longer than in the baseline",
}
ALERT_STATES: Final[Mapping[str, str]] = {
    "pending": "some runs are bad, not enough to open it",
    "firing": "open: enough runs are bad",
    "recovering": "open, and the newest runs are good",
    "resolved": "over",
}


def alert_reason(reason: str) -> str:
    """Reason of an alert as a sentence, without the `Retirement` word it may begin with."""
    word = next((word for word in _RETIRED if reason.startswith(word)), "")
    return capitalize_first(reason.removeprefix(word))


def observed_part(reason: str) -> str:
    """First part of the reason of an alert: the observation, without its effect on the alert."""
    observed, _, _ = alert_reason(reason).rpartition("; ")
    return observed or alert_reason(reason).rstrip(".")


_RETIRED: Final = tuple(f"{word}: " for word in Retirement)


def transition_word(transition: str) -> str:
    """Word for a transition in a timeline."""
    return _HAPPENED.get(transition, spoken(transition))


_HAPPENED: Final = {
    "opened": "Opened",
    "escalated": "Got worse",
    "updated": "Further canaries named",
    "acknowledged": "Acknowledged",
    "reminded": "Reminded",
    "resolved": "Resolved",
}


def suppressed(transition: TransitionView) -> str:
    """Why a transition was not sent, or was sent late; empty for any other."""
    if transition["suppressed"] is not None:
        return _SUPPRESSED.get(transition["suppressed"], f"Not sent: {spoken(transition['suppressed'])}.")
    return "Suppressed by a silence; sent at its end." if transition["silence"] else ""


_SUPPRESSED: Final = {
    "silenced": "Not sent: suppressed by a silence. What still fires at its end is notified then.",
    "incident_open": "No message of its own: its incident was open already.",
    "recent_update": "Not sent yet: the incident was updated within the hour; the next message carries it.",
    "critical_firing": "Not sent: a critical alert of this check was open, and one fault makes one page.",
}


def by_cause(canaries: Sequence[ChangedCanary]) -> list[dict[str, Any]]:
    """Group canaries by their cause, in the order of first appearance; `detail` is the reason, where all share it."""
    groups: dict[Cause | None, list[ChangedCanary]] = {}
    for canary in canaries:
        groups.setdefault(canary.get("cause"), []).append(canary)
    return [
        {
            "title": f"{len(group)} {CAUSE_WORDS[Cause(cause)].counted if cause else 'not explained yet'}",
            "detail": group[0].get("cause_reason") if len({one.get("cause_reason") for one in group}) == 1 else None,
            "canaries": group,
        }
        for cause, group in groups.items()
    ]


DELIVERY_STATES: Final[Mapping[str, str]] = {
    "pending": "waits to be sent, or to be tried again",
    "delivered": "the receiver took it",
    "dead": "given up; it can be replayed",
    "cancelled": "cancelled before it was sent: no longer needed",
}


def delivery_word(delivery: str) -> str:
    """Word for the type of a delivery: `alert.opened` as opened, `hook.test` as test message."""
    return _OTHER_DELIVERIES.get(delivery) or spoken(delivery.removeprefix("alert."))


_OTHER_DELIVERIES: Final = {"hook.test": "test message", "report.ready": "report"}


def failure(attempt: AttemptView) -> str:
    """Why an attempt failed; empty for one that did not."""
    error, detail = attempt["error"], attempt["detail"]
    if error is None:
        return detail or ""
    if error == "blocked" and detail:  # the detail is a whole sentence
        return detail
    word = _ERRORS.get(error, spoken(error))
    return f"{word}: {detail}" if detail else word


_ERRORS: Final = {
    "timeout": "no answer in time",
    "unreachable": "could not be reached",
    "blocked": "not allowed to connect there",
    "redirect": "answered with a redirect",
    "gone": "the receiver is gone",
    "http_4xx": "declined it",
    "http_5xx": "failed over it",
    "smtp_4xx": "cannot take it now",
    "smtp_5xx": "declined it",
    "tls": "no safe connection",
    "refused": "refused it",
    "secret": "the stored secret cannot sign",
    "configuration": "could not be prepared",
    "bug": "an error in Coalmine",
}


def remedy(attempt: AttemptView) -> str:
    """How to allow the address of a blocked attempt, where a setting does; empty for any other attempt."""
    detail = attempt["detail"] or ""
    if attempt["error"] != "blocked" or "COALMINE_HOOK_ALLOW" in detail:  # in the detail of newer attempts
        return ""
    return hook_remedy(detail)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "transition_word": transition_word,
    "delivery_word": delivery_word,
    "suppressed": suppressed,
    "failure": failure,
    "remedy": remedy,
    "alert_reason": alert_reason,
    "observed_part": observed_part,
    "rule_value": value,
    "limits": limits,
    "pace": pace,
    "by_cause": by_cause,
    "outcome_word": outcome_word,
    "lost": lost_text,
    "bound": bound,
}
"""For templates."""
