"""Formats numbers, times and names for pages; an absent measurement is a dash, never a zero."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup, escape

from app.alerts.domain.conditions import SlowerLimits, marked_name
from app.alerts.domain.evidence import CAUSE_WORDS, BoundSides, ChangedCanary, lost_text
from app.alerts.domain.rules import FAILED_SHARE, REPEATED
from app.alerts.domain.state import Retirement
from app.alerts.domain.views import RuleEvidence, TransitionView
from app.base.addresses import hook_remedy
from app.base.texts import counted
from app.base.values import Category, Cause
from app.hooks.domain import AttemptView
from app.retrievers.domain.probe_failures import outcome_word

ABSENT = "\N{EN DASH}"
SPARK_WIDTH, SPARK_HEIGHT = 120, 28
_MILLISECONDS_BELOW = 1.0
_NAMES = ("health_score", "degraded_share", "answered_ratio", "duplicate_ratio", "top_score", *Category)
_OURS = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b")
_LABELS = {"duplicate_ratio": "duplicate ids", "utilisation": "lexical grounding"}
"""Labels that differ from the name: near copies with other ids are no duplicates; what a model used nobody sees."""
_GROUPED = re.compile(r"\b(category|tag|document):(?=\S)")
_UTC_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d)?) UTC")
_WHOLE_FROM, _POWERS_FROM = 100.0, 1e6


def score(value: float | None) -> str:
    """Format a share or a score with three digits: 0.974."""
    return ABSENT if value is None else f"{value:.3f}"


def evidence(value: float | None) -> str:
    """Format the evidence of a detector, which grows without bound: 0.34, 1,250, 3.2e+14."""
    if value is None:
        return ABSENT
    return f"{value:.2f}" if value < _WHOLE_FROM else f"{value:,.0f}" if value < _POWERS_FROM else f"{value:.1e}"


def seconds(value: float | None) -> str:
    """Format a duration: 12 ms, 1.50 s."""
    if value is None:
        return ABSENT
    return f"{value * 1000:.0f} ms" if value < _MILLISECONDS_BELOW else f"{value:.2f} s"


def spoken(word: str, confirmed: Collection[str] = ()) -> str:
    """Return one of our names as words: `simple_factual` as simple factual.

    What a judge says is marked as uncalibrated, unless it is among the measures that people `confirmed` of it.
    """
    return _LABELS.get(word) or marked_name(word, confirmed).replace("_", " ")


def plainly(sentence: str) -> str:
    """Return one of our sentences with names of measures, categories and groups as words: health_score, tag:legal.

    Names given by users stay unchanged.
    """
    return _OURS.sub(lambda found: spoken(found[0]), _GROUPED.sub(r"\1 ", sentence))


def brief(sentence: str) -> str:
    """Return the first clause of one of our sentences, up to the semicolon."""
    return sentence.partition("; ")[0]


def joined(sentences: Iterable[str]) -> str:
    """Return sentences without full stops joined by semicolons, each once; after a question mark by a space."""
    text = ""
    for sentence in dict.fromkeys(one.removesuffix(".") for one in sentences):
        text += f" {capitalize_first(sentence)}" if text.endswith("?") else f"; {sentence}" if text else sentence
    return text


def capitalize_first(text: str) -> str:
    """Return a text with its first letter in upper case, unless it begins with the name of a field."""
    return text if "_" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def utc(moment: datetime | str | None) -> str:
    """Format a time for a page without scripts: 2026-01-31 12:00:05 UTC."""
    parsed = _moment(moment)
    return ABSENT if parsed is None else f"{parsed:%Y-%m-%d %H:%M:%S} UTC"


def iso(moment: datetime | str | None) -> str:
    """Format a time as RFC 3339."""
    parsed = _moment(moment)
    return "" if parsed is None else parsed.isoformat().replace("+00:00", "Z")


def timed(text: str) -> Markup:
    """Return a text in which each time in UTC with its date is an element that scripts show in the viewer's zone."""
    pieces: list[Markup] = []
    end = 0
    for found in _UTC_TIME.finditer(text):
        style = "minute" if found[2].count(":") == 1 else "clock"
        element = Markup('<time datetime="{}T{}Z" data-when="{}">{}</time>').format(*found.groups(), style, found[0])
        pieces += [escape(text[end : found.start()]), element]
        end = found.end()
    return Markup("").join([*pieces, escape(text[end:])])


def bound(sides: BoundSides | None) -> str:
    """Format the bound of a rule: below 0.9."""
    found = sides or BoundSides()
    return " or ".join(f"{side} {found[side]:g}" for side in ("below", "above", "by") if side in found) or ABSENT


def spark_points(values: Sequence[float | None]) -> list[str]:
    """Return the points of SVG polylines for values of 0 to 1, one per period without a gap.

    The scale runs from 0.5, or the lowest value below it, to 1.
    """
    present = [value for value in values if value is not None]
    least = min([0.5, *present])
    step = (SPARK_WIDTH - 4) / max(len(values) - 1, 1)
    lines: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            lines.append([])
            continue
        height = (SPARK_HEIGHT - 6) * (1 - (value - least) / ((1 - least) or 1))
        lines[-1].append(f"{2 + place * step:.1f},{3 + height:.1f}")
    # A single point is drawn as a short stroke, a polyline of one point not at all.
    return [" ".join(line if len(line) > 1 else [*line, *line]) for line in lines if line]


def _moment(moment: datetime | str | None) -> datetime | None:
    if moment is None:
        return None
    return (datetime.fromisoformat(moment) if isinstance(moment, str) else moment).astimezone(UTC)


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
