"""Words of pages for alerts, their rules and deliveries: filters of templates, and the lists that pages offer."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.alerts.domain.conditions import SlowerLimits
from app.alerts.domain.evidence import CAUSE_WORDS, BoundSides, ChangedCanary, lost_text
from app.alerts.domain.rules import FAILED_SHARE, REPEATED
from app.alerts.domain.state import Retirement
from app.alerts.domain.views import RuleEvidence, TransitionView
from app.base.addresses import hook_remedy
from app.base.texts import counted, outcome_word
from app.base.values import Cause
from app.base.web.wording import ABSENT, capitalize_first, evidence, score, seconds, spoken
from app.hooks.domain import AttemptView


def bound(sides: BoundSides | None) -> str:
    """Format the bound of a rule: below 0.9."""
    found = sides or BoundSides()
    return " or ".join(f"{side} {found[side]:g}" for side in ("below", "above", "by") if side in found) or ABSENT


ALERT_STATES: Final[Mapping[str, str]] = {
    "pending": "some runs are bad, not enough to open it",
    "firing": "open: enough runs are bad",
    "recovering": "open, and the newest runs are good",
    "resolved": "over",
}


DELIVERY_STATES: Final[Mapping[str, str]] = {
    "pending": "waits to be sent, or to be tried again",
    "delivered": "the receiver took it",
    "dead": "given up; it can be replayed",
    "cancelled": "cancelled before it was sent: no longer needed",
}


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


_SUPPRESSED: Final = {
    "silenced": "Not sent: suppressed by a silence. What still fires at its end is notified then.",
    "incident_open": "No message of its own: its incident was open already.",
    "recent_update": "Not sent yet: the incident was updated within the hour; the next message carries it.",
    "critical_firing": "Not sent: a critical alert of this check was open, and one fault makes one page.",
}


_HAPPENED: Final = {
    "opened": "Opened",
    "escalated": "Got worse",
    "updated": "Further canaries named",
    "acknowledged": "Acknowledged",
    "reminded": "Reminded",
    "resolved": "Resolved",
}


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


_OTHER_DELIVERIES: Final = {"hook.test": "test message", "report.ready": "report"}


_TIMES: Final = {"latency": seconds, "slower": seconds, "regression": evidence}


_LIMITS: Final[Mapping[str, str]] = {
    "regression": "A run is bad while the detector's alarm is open.",
    "canary": "A run is bad when this canary is degraded in it.",
    "embedding": "A run is bad when the reference texts get other vectors than before.",
    "guard": (
        "A run is bad when its coverage is 0 or below half (critical), or below 80 % (warning), of the first run's."
    ),
}
"""When a run is bad by a rule without bounds of its own."""


_RETIRED: Final = tuple(f"{word}: " for word in Retirement)


def transition_word(transition: str) -> str:
    """Word for a transition in a timeline."""
    return _HAPPENED.get(transition, spoken(transition))


def delivery_word(delivery: str) -> str:
    """Word for the type of a delivery: `alert.opened` as opened, `hook.test` as test message."""
    return _OTHER_DELIVERIES.get(delivery) or spoken(delivery.removeprefix("alert."))


def suppressed(transition: TransitionView) -> str:
    """Why a transition was not sent, or was sent late; empty for any other."""
    if transition["suppressed"] is not None:
        return _SUPPRESSED.get(transition["suppressed"], f"Not sent: {spoken(transition['suppressed'])}.")
    return "Suppressed by a silence; sent at its end." if transition["silence"] else ""


def failure(attempt: AttemptView) -> str:
    """Why an attempt failed; empty for one that did not."""
    error, detail = attempt["error"], attempt["detail"]
    if error is None:
        return detail or ""
    if error == "blocked" and detail:  # the detail is a whole sentence
        return detail
    word = _ERRORS.get(error, spoken(error))
    return f"{word}: {detail}" if detail else word


def remedy(attempt: AttemptView) -> str:
    """How to allow the address of a blocked attempt, where a setting does; empty for any other attempt."""
    detail = attempt["detail"] or ""
    if attempt["error"] != "blocked" or "COALMINE_HOOK_ALLOW" in detail:  # in the detail of newer attempts
        return ""
    return hook_remedy(detail)


def alert_reason(reason: str) -> str:
    """Reason of an alert as a sentence, without the `Retirement` word it may begin with."""
    word = next((word for word in _RETIRED if reason.startswith(word)), "")
    return capitalize_first(reason.removeprefix(word))


def observed_part(reason: str) -> str:
    """First part of the reason of an alert: the observation, without its effect on the alert."""
    observed, _, _ = alert_reason(reason).rpartition("; ")
    return observed or alert_reason(reason).rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanariesByCause:
    """Canaries with the same cause."""

    title: str
    detail: str | None
    """The reason, where all of them have the same."""
    canaries: Sequence[ChangedCanary]


def by_cause(canaries: Sequence[ChangedCanary]) -> list[CanariesByCause]:
    """Group canaries by their cause, in the order of first appearance."""
    groups: dict[Cause | None, list[ChangedCanary]] = {}
    for canary in canaries:
        groups.setdefault(canary.get("cause"), []).append(canary)
    return [
        CanariesByCause(
            title=f"{len(group)} {CAUSE_WORDS[Cause(cause)].counted if cause else 'not diagnosed'}",
            detail=group[0].get("cause_reason") if len({one.get("cause_reason") for one in group}) == 1 else None,
            canaries=group,
        )
        for cause, group in groups.items()
    ]


def value(number: float | None, kind: str) -> str:
    """Value of a rule in its unit: a share, seconds, or the evidence of the detector."""
    if number is None:
        return ABSENT
    written = _TIMES.get(kind)
    return written(number) if written is not None else score(number)


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


def _side(side: BoundSides, kind: str) -> str:
    if kind == "latency":
        return f"above {seconds(side['above'])}"
    return f"a drop of {side['by']:g} or more" if "by" in side else bound(side)


def pace(rule: RuleEvidence, kind: str) -> str:
    """How many runs open and close an alert of a rule."""
    if kind == "regression":
        return "The detector decides itself when its alarm begins and ends."
    bad, of, close = rule["open"]["bad"], rule["open"]["of"], rule["close"]
    opens = "at once" if of == 1 else f"on {bad} bad of {counted(of, 'run')}"
    return f"It opens {opens} and closes after {counted(close, 'good run')}{' in a row' if close > 1 else ''}."


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
}
"""For templates."""
