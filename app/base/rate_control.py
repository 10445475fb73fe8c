"""The request rate of a peer that refuses requests: halved at a refusal, raised again by steps.

Decisions alone: moments are numbers of seconds that the caller gives, and a caller that shares it between threads locks
it. A refusal is HTTP 429, or 503 with `Retry-After`. How long a run waits for such a peer, and the sentence about it,
stand at the end.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from app.base.texts import counted
from app.base.values import Slowing

STREAK: Final = 10
"""Accepted requests after which the rate is raised."""
STEP: Final = 1.25
"""By how much it is raised."""
FREE: Final = 10.0
"""Times the rate before it was slowed at which a peer is taken to have no limit: a burst is counted by the second."""
LEAST_RATE: Final = 0.05
"""Requests a second; what is slower than this is said by `Retry-After`."""
FIRST_PAUSE_SECONDS: Final = 1.0
"""Pause after a refusal that asks for none; doubled for each one in a row."""
LONGEST_PAUSE_SECONDS: Final = 30.0
IDLE_SECONDS: Final = 60.0
"""After so long without a request the rate is not remembered: most limits are by the minute or shorter."""
GIVEN_UP_SECONDS: Final = 900.0
"""For so long a peer that refuses everything is remembered as one."""
GRACE_SECONDS: Final = 10.0
"""For how long a caller waits at least, though others were refused for longer than it would wait."""
LEAST_PATIENCE_SECONDS: Final = 90.0
LONGEST_PATIENCE_SECONDS: Final = 300.0
_WINDOW_SECONDS: Final = 10.0
_MOST_STARTS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What follows from a refused request."""

    is_final: bool
    """Whether it is not to be sent again: the peer refuses for longer than the caller waits."""
    refused_seconds: float
    """For how long the peer has accepted nothing."""


@dataclass(slots=True)
class RateControl:
    """Rate of one peer, and the pause it asked for."""

    rate: float | None = None
    """Requests a second; None = it is not slowed."""
    status: int = 0
    """HTTP status that slowed it."""
    paused_until: float = -math.inf
    refused_since: float = math.inf
    """When it refused the first request after the last that it accepted."""
    _round_at: float = -math.inf
    """When the newest round of refusals began: what was sent before belongs to it."""
    _accepted: int = 0
    """Requests accepted in a row, of those sent since then."""
    _rounds: int = 0
    """Rounds of refusals in a row."""
    _full_rate: float = 0.0
    """Rate at which requests were sent before it was slowed, or that it bore in the end."""
    _starts: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_STARTS))

    @property
    def interval(self) -> float:
        """Seconds between two requests; 0 = none."""
        return 0.0 if self.rate is None else 1 / self.rate

    def begin(self, now: float) -> None:
        """Note that a request is sent."""
        self._starts.append(now)

    def undo(self) -> None:
        """Take the newest `begin` back."""
        if self._starts:
            self._starts.pop()

    def accept(self, started_at: float, *, most: float = math.inf) -> None:
        """Note that a request was not refused; after a streak of them the rate is raised, up to `most` a second."""
        self.refused_since = math.inf
        if started_at < self._round_at:
            return
        self._rounds = 0
        self._accepted += 1
        if self.rate is not None and self._accepted % STREAK == 0:
            self.rate *= STEP
            if self.rate >= min(most, FREE * self._full_rate):
                self._full_rate, self.rate = self.rate, None

    def refuse(
        self, started_at: float, now: float, *, status: int, retry_after: float | None, since: float, patience: float
    ) -> Refusal:
        """Note that a request was refused, and decide what becomes of it.

        The rate is halved at most once for all requests that were under way together, and only where the peer accepted
        something since: one that accepts nothing needs time, not a lower rate. The peer is waited for until it has
        accepted nothing for `patience` in seconds, by whomever it was asked: a caller that began at `since`, when
        others had been refused for long, soon finds out that it still is so, and holds nobody up.
        """
        is_new_round = started_at >= self._round_at
        if is_new_round:
            if self._accepted:
                self._halve(now)
            self._rounds += 1
            self._round_at = math.nextafter(now, math.inf)
            self._accepted = 0
        self.status = status
        steps = FIRST_PAUSE_SECONDS * 2.0 ** min(self._rounds - 1, 10)
        pause = retry_after or (min(steps, LONGEST_PAUSE_SECONDS) if is_new_round else 0.0)
        self.refused_since = min(self.refused_since, now)
        refused_for = now - self.refused_since
        is_past = refused_for + pause > patience and now - since + pause > min(GRACE_SECONDS, patience)
        is_final = patience <= 0 or pause > patience or is_past
        if not is_final:
            self.paused_until = max(now + pause, self.paused_until)
        return Refusal(is_final=is_final, refused_seconds=refused_for)

    def is_stale(self, now: float) -> bool:
        """Whether the peer was not asked for so long that nothing is known of its rate."""
        newest = self._starts[-1] if self._starts else -math.inf
        kept = IDLE_SECONDS if self.refused_since == math.inf else GIVEN_UP_SECONDS
        return now - max(newest, self.paused_until) > kept

    def _halve(self, now: float) -> None:
        if self.rate is None:
            self._full_rate = max(self._full_rate, self._sent_rate(now))
        self.rate = max(LEAST_RATE, (self.rate or self._full_rate) / 2)

    def _sent_rate(self, now: float) -> float:
        """Return the requests a second of the last ten seconds; those of a shorter time count as of one second."""
        recent = [start for start in self._starts if now - start <= _WINDOW_SECONDS]
        return max(1, len(recent)) / max(1.0, now - recent[0] if recent else 1.0)


def run_patience(interval_seconds: float) -> float:
    """Return for how many seconds a run is patient with a retriever that accepts nothing.

    Shorter than the interval of its check, so that the run ends and says so before the check counts as overdue.
    """
    return min(max(0.9 * interval_seconds, LEAST_PATIENCE_SECONDS), LONGEST_PATIENCE_SECONDS)


def merge_slowings(slowings: Iterable[Slowing | None]) -> Slowing | None:
    """Return what slowed a run, of its parts: the lowest rate and the number of all refusals; None = nothing."""
    merged: Slowing | None = None
    for one in slowings:
        if one is None:
            continue
        if merged is None:
            merged = one
        else:
            slower = min(merged, one, key=lambda slowing: math.inf if slowing.rate is None else slowing.rate)
            merged = replace(slower, refusals=merged.refusals + one.refusals)
    return merged


def slowing_text(slowing: Slowing) -> str:
    """Return the sentence, without a full stop, that says to which rate a run was slowed, and why."""
    rate = slowing.rate or 0.0
    shown = f" to {rate:,.0f}/s" if rate >= _WHOLE else f" to {rate:.2g}/s" if rate else ""
    text = f"{SLOWED}{shown} by {slowing.status}"
    if not slowing.refusals:
        return text
    were = "was" if slowing.refusals == 1 else "were"
    return f"{text}: {counted(slowing.refusals, 'request')} {were} refused and sent again"


SLOWED: Final = "slowed"
"""Beginning of that sentence, by which a re-scoring keeps it."""
_WHOLE: Final = 10
