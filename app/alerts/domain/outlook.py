"""Outlook: how many further runs would open the alert of a rule, or close it; in sentences for people.

Agrees with what `alert_state` decides for the same runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.alerts.domain.alert_state import OPEN, AlertState, Observation, OpenAlert, good_runs
from app.base.counts import counted, plural
from app.base.values import Rule, RuleKind, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The next change of a rule's alert. Exactly one of the two sentences is set."""

    to_open: str | None = None
    to_close: str | None = None
    bad_runs_to_open: int | None = None
    """Bad runs in a row that would open it; None where it is not opened by runs."""
    good_runs_to_close: int | None = None


def outlook(
    rule: Rule, window: Sequence[Observation], alert: OpenAlert | None, unmeasured: Sequence[str] = ()
) -> Outlook:
    """Return what would open a rule's alert or, where it is open, close it. `window`: as in `decide`.

    `unmeasured`: keys of the canaries, degraded when it opened, that the newest run did not measure: no run that leaves
    them out resolves it, however good it is.
    """
    if alert is None or alert.state not in OPEN:
        return _opening(rule, window)
    closing = _closing(rule, window, alert)
    return replace(closing, to_close=f"{closing.to_close} {awaited_text(unmeasured)}") if unmeasured else closing


def awaited_text(unmeasured: Sequence[str]) -> str:
    """Sentence on the canaries that have to be measured before an alert resolves."""
    one = len(unmeasured) == 1
    more = f" and {len(unmeasured) - NAMED:,} more" if len(unmeasured) > NAMED else ""
    names = ", ".join(unmeasured[:NAMED]) + more
    be, which = ("is", "the canary was") if one else ("are", "they were")
    return f"It does not resolve before {names} {be} measured again: {which} degraded when it opened."


def _opening(rule: Rule, window: Sequence[Observation]) -> Outlook:
    if rule.kind is RuleKind.NO_DATA:
        return Outlook(to_open="It opens when no run has completed by the second scheduled time after the last run.")
    if rule.kind is RuleKind.REGRESSION:
        return Outlook(to_open="It opens when the detector raises an alarm, which weighs all canaries over many runs.")
    bad = [one.condition.severity is not None for one in window if one.condition.measured][-rule.open_of :]
    needed = next(more for more in range(1, rule.open_bad + 1) if _reached(rule, bad, more))
    if rule.open_of == 1:
        return Outlook(to_open="It opens at once, with the first bad run.", bad_runs_to_open=needed)
    runs = "run" if rule.kind is RuleKind.PROBE_ERRORS else "measured run"
    bad_text = f"{sum(bad)} of the last {counted(len(bad), runs)} {'was' if sum(bad) == 1 else 'were'} bad"
    rows = "in a row " if needed > 1 else ""
    return Outlook(
        to_open=(
            f"It opens when {rule.open_bad} of {rule.open_of} are bad; {bad_text}, "
            f"so {counted(needed, 'more bad run')} {rows}would open it."
        ),
        bad_runs_to_open=needed,
    )


def _reached(rule: Rule, bad: Sequence[bool], more: int) -> bool:
    """Whether N of the last M would be bad after so many more bad runs."""
    return sum([*bad, *[True] * more][-rule.open_of :]) >= rule.open_bad


def _closing(rule: Rule, window: Sequence[Observation], alert: OpenAlert) -> Outlook:
    if rule.kind is RuleKind.NO_DATA:
        return Outlook(to_close="It resolves when a run completes, whatever its verdict.", good_runs_to_close=1)
    if rule.kind is RuleKind.REGRESSION:
        times = counted(rule.detector_close, "good run")
        return Outlook(to_close=f"It resolves when the detector ends its alarm, after {times} in a row.")
    good = good_runs(alert, window)
    needed = max(rule.close - good, 1)
    margin = f", beyond the margin of {rule.margin:g}" if rule.margin else ""
    return Outlook(
        to_close=(
            f"It resolves after {counted(rule.close, 'good run')}{' in a row' if rule.close > 1 else ''}{margin}; "
            f"{good} {plural(good, 'run')} {'was' if good == 1 else 'were'} good in a row so far."
        ),
        good_runs_to_close=needed,
    )


def recovery_state(verdict: str | None, alerts: Mapping[str, int]) -> str | None:
    """Return what a check is while its newest run is healthy and alerts are open, `recovering` or `firing`; else None.

    `alerts`: unresolved ones by state and severity, such as `firing critical`.
    """
    states = {name.partition(" ")[0] for name, count in alerts.items() if count} & {str(state) for state in OPEN}
    if verdict != Verdict.HEALTHY or not states:
        return None
    return str(AlertState.FIRING if AlertState.FIRING in states else AlertState.RECOVERING)


def recovery_text(open_alerts: Sequence[tuple[AlertState, int | None]], unmeasured: Sequence[str] = ()) -> str:
    """Sentence on the open alerts of a check whose newest run is healthy, with the good runs each still needs.

    None: it is the detector that ends it. `unmeasured`: canaries that have to be measured before.
    """
    one = len(open_alerts) == 1
    begin = "Recovering" if all(state is AlertState.RECOVERING for state, _ in open_alerts) else "Healthy in this run"
    still = f"{counted(len(open_alerts), 'alert')} {'is' if one else 'are'} still open"
    needed = [runs for _, runs in open_alerts if runs is not None]
    after = f"after {counted(max(needed), 'more good run')}" if needed else ""
    detector = "when the detector ends its alarm" if len(needed) < len(open_alerts) else ""
    ends = " and ".join(filter(None, (after, detector)))
    more = f" and {len(unmeasured) - NAMED:,} more" if len(unmeasured) > NAMED else ""
    awaited = (
        f", but not before {', '.join(unmeasured[:NAMED])}{more} {'is' if len(unmeasured) == 1 else 'are'} measured"
    )
    return f"{begin}: {still}, and {'resolves' if one else 'resolve'} {ends}{awaited if unmeasured else ''}."


NAMED: Final = 5
"""Canaries named in a sentence."""
