"""Alerts that no run decides: of a check without runs (`no_data`), and of its planted documents (`plant`)."""

from datetime import datetime
from typing import Final

from app.alerts.domain.state import OPEN, Decision, Member
from app.alerts.domain.views import AlertState, TransitionType
from app.base.schedules import Schedule, next_due
from app.base.values import Severity, Value
from app.plants.domain import PlantProblem


class Overdue(Value):
    """A check of which nothing completed for too long."""

    since: datetime
    """When it last completed, or was created."""
    deadline: datetime
    """The second scheduled instant after that."""
    ever: bool
    """Whether it completed at all."""


def no_data_due(
    schedule: Schedule, last_completed: datetime | None, now: datetime, created_at: datetime
) -> Overdue | None:
    """Return the missed deadline where no run completed by the second-next scheduled instant, else None.

    The quiet weekend of a cron has no scheduled instants. `created_at`: since when the check is enabled in this form.
    `last_completed`: when the newest run that `is_completed` ended.
    """
    if last_completed is not None and now < next_due(schedule, max(created_at, last_completed)):
        return None  # most checks need only the first of two instants
    expected = no_data_expected(schedule, last_completed, created_at)
    return None if now < expected.deadline else expected


def no_data_expected(schedule: Schedule, last_completed: datetime | None, created_at: datetime) -> Overdue:
    """Deadline by which a run has to complete, or else the check is overdue; see `no_data_due`."""
    since = created_at if last_completed is None else max(created_at, last_completed)
    deadline = next_due(schedule, next_due(schedule, since))
    return Overdue(since=since, deadline=deadline, ever=last_completed is not None)


def decide_no_data(overdue: Overdue | None, alert: Member | None) -> Decision:
    """Return the new state of the `no_data` alert at a tick, or (with None) when a run completes.

    It opens at once and resolves at once: the two scheduled instants are its window, so N of M does not apply.
    """
    opened = alert is not None and alert.state in OPEN
    if overdue is None:
        return Decision(
            state=AlertState.RESOLVED if opened else AlertState.OK,
            severity=alert.severity if alert is not None and opened else None,
            transitions=(TransitionType.RESOLVED,) if opened else (),
            reason="A run has completed.",
        )
    last = f"since {overdue.since:%Y-%m-%d %H:%M:%S} UTC" if overdue.ever else "since the check was created"
    deadline = f"{overdue.deadline:%Y-%m-%d %H:%M:%S} UTC"
    return Decision(
        state=AlertState.FIRING,
        severity=Severity.CRITICAL,
        transitions=() if opened else (TransitionType.OPENED,),
        reason=f"No run has completed {last}; the second scheduled one was due at {deadline}.",
        evidence={"since": overdue.since.isoformat(), "deadline": overdue.deadline.isoformat(), "ever": overdue.ever},
    )


class PlantTrouble(Value):
    """What is wrong with a planted document, and the sentence that says it, without its full stop."""

    problem: PlantProblem
    sentence: str

    @property
    def severity(self) -> Severity:
        """A slow index is a warning; one that documents do not enter, or do not leave, is critical."""
        return Severity.WARNING if self.problem is PlantProblem.SLOW else Severity.CRITICAL


IN_TIME: Final = "A planted document was found, and gone after its removal, in time"


def decide_plant(trouble: PlantTrouble | None, alert: Member | None) -> Decision:
    """Return the new state of the `plant` alert; `trouble` None = a document was found and gone in time.

    It opens and resolves at once: a document is asked for again and again until its bound, so N of M does not apply.
    """
    opened = alert is not None and alert.state in OPEN
    before = alert.severity if alert is not None and opened else None
    if trouble is None:
        return Decision(
            state=AlertState.RESOLVED if opened else AlertState.OK,
            severity=before,
            transitions=(TransitionType.RESOLVED,) if opened else (),
            reason=f"{IN_TIME}.",
        )
    changes: tuple[TransitionType, ...] = () if opened else (TransitionType.OPENED,)
    if before is Severity.WARNING and trouble.severity is Severity.CRITICAL:
        changes = (TransitionType.ESCALATED,)
    severity = Severity.CRITICAL if before is Severity.CRITICAL else trouble.severity
    return Decision(state=AlertState.FIRING, severity=severity, transitions=changes, reason=f"{trouble.sentence}.")
