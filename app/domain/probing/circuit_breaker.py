"""When to stop asking: a retriever that failed so many times in a row is left in peace, and the run ended early.

What such a run amounts to is said in verdicts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from app.domain.counts import counted
from app.domain.model import EMPTY, Answer, Outcome, Step
from app.domain.probing.probe_failures import outcome_text

ENDED_FIRST: Final = "the run ended first"
"""Of a probe that was not made, where nothing more is to be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """Counts failed probes in a row, in the order in which answers arrive: a circuit breaker that never closes again.

    A value; `after` gives the next one.
    """

    limit: int | None
    """How many failures in a row open it; None = it never opens."""
    arrived: int = 0
    """How many answers it has seen."""
    row: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    """The failures in a row so far: how many ended in which way."""
    leave_alone_seconds: float | None = None
    """For how long the retriever asked to be left alone, where that is longer than a run waits: opens it at once."""

    def after(self, answers: Iterable[Answer]) -> "CircuitBreaker":
        """Give the breaker once these have arrived as well; what opened it is not counted any further."""
        arrived, row, alone = self.arrived, dict(self.row), self.leave_alone_seconds
        opened = self.is_open
        for answer in answers:
            arrived += 1
            if opened:
                continue
            if answer.outcome is Outcome.OK:
                row.clear()
                continue
            way = _way(answer)
            row[way] = row.get(way, 0) + 1
            alone = answer.leave_alone_seconds
            opened = self._opens(row, alone)
        return replace(self, arrived=arrived, row=row, leave_alone_seconds=alone)

    @property
    def is_open(self) -> bool:
        """Whether nothing more should be asked."""
        return self._opens(self.row, self.leave_alone_seconds)

    @property
    def reason(self) -> str:
        """Say what opened it, without a full stop, for people."""
        if self.leave_alone_seconds is not None:
            return (
                f"the run was ended early: the retriever asked to be left alone for {self.leave_alone_seconds:,.0f} s"
            )
        ways = sorted(self.row.items(), key=lambda way: (-way[1], way[0]))
        failures = ", ".join(f"{count} {way}" for way, count in ways)
        return f"the run was ended early: {counted(sum(self.row.values()), 'probe')} in a row failed ({failures})"

    def _opens(self, row: Mapping[str, int], leave_alone_seconds: float | None) -> bool:
        return self.limit is not None and (leave_alone_seconds is not None or sum(row.values()) >= self.limit)


def _way(answer: Answer) -> str:
    """Name how a probe failed and, where it was not the retriever, at whom."""
    at = "" if answer.step is Step.RETRIEVER else f" at the {answer.step}"
    return f"{outcome_text(answer.outcome, answer.http_status)}{at}"
