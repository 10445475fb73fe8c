"""Circuit breaker of a run: after so many failed probes in a row the retriever gets no more queries.

The verdict of such a run is decided in verdicts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from app.base.counts import counted
from app.base.values import EMPTY, Answer, Outcome, Step
from app.retrievers.domain.probe_failures import outcome_text

ENDED_FIRST: Final = "the run ended first"
"""Detail of a probe that was not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """Counts failed probes in a row, in the order of their answers; once open it stays open. Immutable."""

    limit: int | None
    """Failures in a row that open it; None = it never opens."""
    arrived: int = 0
    failures: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    """Number of failures in a row, by kind."""
    retry_after_seconds: float | None = None
    """`Retry-After` of the retriever, where it is longer than a run waits: opens the breaker at once."""
    refused_seconds: float | None = None
    """For how long it had refused every request, where that is longer than a run waits: likewise."""

    def after(self, answers: Iterable[Answer]) -> "CircuitBreaker":
        """Breaker after these answers; what follows the failure that opened it is not counted."""
        arrived, failures = self.arrived, dict(self.failures)
        retry_after, refused = self.retry_after_seconds, self.refused_seconds
        opened, ok = self.is_open, Outcome.OK  # looked up once: of an enumeration that is slow
        for answer in answers:
            arrived += 1
            if opened:
                continue
            if answer.outcome is ok:
                failures.clear()
                continue
            kind = _failure_text(answer)
            failures[kind] = failures.get(kind, 0) + 1
            retry_after, refused = answer.retry_after_seconds, answer.refused_seconds
            opened = self._opens(failures, retry_after, refused)
        return replace(
            self, arrived=arrived, failures=failures, retry_after_seconds=retry_after, refused_seconds=refused
        )

    @property
    def is_open(self) -> bool:
        """Whether no more queries may be sent."""
        return self._opens(self.failures, self.retry_after_seconds, self.refused_seconds)

    @property
    def reason(self) -> str:
        """Why it is open, as a sentence without a full stop."""
        if self.retry_after_seconds is not None:
            return (
                f"the run was ended early: the retriever asked to be left alone for {self.retry_after_seconds:,.0f} s"
            )
        if self.refused_seconds is not None:
            return f"the run was ended early: the retriever refused every request for {self.refused_seconds:,.0f} s"
        kinds = sorted(self.failures.items(), key=lambda kind: (-kind[1], kind[0]))
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds)
        return f"the run was ended early: {counted(sum(self.failures.values()), 'probe')} in a row failed ({counts})"

    def _opens(
        self, failures: Mapping[str, int], retry_after_seconds: float | None, refused_seconds: float | None
    ) -> bool:
        if self.limit is None:
            return False
        is_refused = retry_after_seconds is not None or refused_seconds is not None
        return is_refused or sum(failures.values()) >= self.limit


def _failure_text(answer: Answer) -> str:
    """Text of a failure and, where it was not the retriever's, the step that failed."""
    at = "" if answer.step is Step.RETRIEVER else f" at the {answer.step}"
    return f"{outcome_text(answer.outcome, answer.http_status)}{at}"
