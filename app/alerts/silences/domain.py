"""Silences: which alerts are not delivered, and until when. They suppress delivery, never evaluation.

A silence lasts from one instant to another, or comes back with a cron as a maintenance window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from typing_extensions import TypedDict

from app.alerts.domain.state import AlertState
from app.base.schedules import Schedule, last_due, next_due
from app.base.values import Severity, TimeText

MOST_IN_FORCE: Final = 200
"""Each one is evaluated for every run and every few seconds while an alert is open."""
LONGEST_CHAIN: Final = 400
"""Windows that run into each other are one; after so many it is taken to have no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time that comes back: it begins at every instant of a schedule and lasts for `duration`."""

    schedule: Schedule
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Which alerts are not delivered, and when. Every matcher that is not empty has to name the alert."""

    slug: str
    checks: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    retrievers: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    """Keys of rules."""
    severities: tuple[Severity, ...] = ()
    starts: datetime | None = None
    """None = it has always been on."""
    ends: datetime | None = None
    """It is over at this instant; None exactly where there is a window."""
    window: Window | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The fields of an alert that silences match."""

    check: str
    suite: str
    retriever: str
    rule: str
    severity: Severity


def find_silences(silences: Sequence[Silence], subjects: Sequence[Subject], now: datetime) -> list[Silence | None]:
    """Return the active silence of each alert, of several the one that ends last; None = there is none.

    Whether a silence is on is computed once, and only for those that match an alert.
    """
    about = [one for one in silences if any(matches(one, subject) for subject in subjects)]
    on = [(until, one) for one in about if (until := active_until(one, now)) is not None]
    on.sort(key=lambda pair: (pair[0], pair[1].slug), reverse=True)
    return [next((one for _, one in on if matches(one, subject)), None) for subject in subjects]


def matches(silence: Silence, subject: Subject) -> bool:
    """Whether a silence is about an alert, whenever it is on."""
    return (
        matches_check(silence, subject.check, subject.suite, subject.retriever)
        and (not silence.rules or subject.rule in silence.rules)
        and (not silence.severities or subject.severity in silence.severities)
    )


def matches_check(silence: Silence, check: str, suite: str, retriever: str) -> bool:
    """Whether a silence is about a check, whatever rules and severities it names."""
    pairs = ((silence.checks, check), (silence.suites, suite), (silence.retrievers, retriever))
    return all(not names or name in names for names, name in pairs)


def active_until(silence: Silence, now: datetime) -> datetime | None:
    """End of a silence that is on now; None = it is not on.

    It is on from its start up to, but not at, its end. Windows that run into each other count as one.
    """
    if silence.window is None:
        started = silence.starts is None or silence.starts <= now
        return silence.ends if started and silence.ends is not None and now < silence.ends else None
    schedule, duration = silence.window.schedule, silence.window.duration
    begun = last_due(schedule, now, now - duration)
    return None if begun is None else _end_of_chain(schedule, duration, begun)


def is_over(silence: Silence, now: datetime) -> bool:
    """Whether a silence will never be on again."""
    return silence.ends is not None and silence.ends <= now


def next_change(silence: Silence, now: datetime) -> datetime | None:
    """When a silence will next go on or off; None = never again."""
    return next_change_after(silence, now, active_until(silence, now))


def next_change_after(silence: Silence, now: datetime, until: datetime | None) -> datetime | None:
    """When a silence that is on `until` (see `active_until`; None = it is off) will next go on or off."""
    if until is not None:
        return until
    if silence.window is not None:
        return next_due(silence.window.schedule, now)
    return silence.starts if silence.starts is not None and now < silence.starts else None


def ever_ends(window: Window, now: datetime) -> bool:
    """Whether a window is over before the next begins, if only now and then."""
    begun = next_due(window.schedule, now)
    for _ in range(LONGEST_CHAIN):
        following = next_due(window.schedule, begun)
        if following > begun + window.duration:
            return True
        begun = following
    return False


def _end_of_chain(schedule: Schedule, duration: timedelta, begun: datetime) -> datetime:
    """End of the windows that each begin before the one before is over."""
    end = begun + duration
    for _ in range(LONGEST_CHAIN):
        following = next_due(schedule, begun)
        if following > end:
            return end
        begun, end = following, following + duration
    return end


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
