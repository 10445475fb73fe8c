"""Announcing: one fault makes one page, and nobody hears the end of what they never heard begin."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.domain.alerting import OPEN, AlertState, TransitionType
from app.domain.announcing import AlertView, Announcement, PastDelivery, Suppression, announce
from app.domain.delivering import DeliveryState
from app.domain.model import Severity

OPENED, ESCALATED, RESOLVED = TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.RESOLVED
CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
OPS, CHAT = 1, 2


def critical(change: TransitionType | None = None, *told: PastDelivery) -> AlertView:
    state = AlertState.RESOLVED if change is RESOLVED else AlertState.FIRING
    return AlertView(alert_id=10, severity=CRITICAL, state=state, change=change, deliveries=told)


def warning(change: TransitionType | None = None, *told: PastDelivery, held_back: bool = False) -> AlertView:
    state = AlertState.RESOLVED if change is RESOLVED else AlertState.FIRING
    suppressed = Suppression.CRITICAL_FIRING if held_back else None
    return AlertView(alert_id=20, severity=WARNING, state=state, change=change, suppressed=suppressed, deliveries=told)


def trigger(hook: int = OPS, *, attempts: int = 1, state: str = "delivered", number: int = 100) -> PastDelivery:
    return PastDelivery(id=number, hook=hook, type=OPENED, state=DeliveryState(state), attempts=attempts)


def told(*views: AlertView, hooks: Sequence[int] = (OPS, CHAT), unreachable: Sequence[int] = ()) -> list[str]:
    """Say in short what is written: alert, transition, hooks; cancelled deliveries; suppression."""
    return [short(one) for one in announce(views, hooks, unreachable=unreachable)]


def short(one: Announcement) -> str:
    parts = [f"{one.alert_id} {one.type}", *(f"to {hook}" for hook in one.send), *(f"not {id_}" for id_ in one.cancel)]
    return " ".join([*parts, *(["late"] if one.late else []), *([f"({one.suppressed})"] if one.suppressed else [])])


def test_an_opening_goes_to_every_hook_of_the_check() -> None:
    assert told(critical(OPENED)) == ["10 opened to 1 to 2"]
    assert told(warning(OPENED)) == ["20 opened to 1 to 2"]


def test_a_worse_severity_is_told() -> None:
    assert told(critical(ESCALATED, trigger())) == ["10 escalated to 1 to 2"]


def test_nothing_is_said_of_what_stands_as_it_did() -> None:
    assert told(critical(None, trigger()), warning(None, trigger())) == []


def test_a_check_without_hooks_tells_nobody_and_says_so() -> None:
    (announcement,) = announce([critical(OPENED)], [])
    assert (announcement.send, announcement.reason) == ((), "Not sent: the check has no hook that is enabled.")


def test_a_disabled_hook_gets_nothing() -> None:
    assert told(critical(OPENED), unreachable=[OPS]) == ["10 opened to 2"]


@pytest.mark.parametrize("standing", [critical(None, trigger()), critical(OPENED)])
def test_a_warning_beside_a_critical_alert_is_held_back(standing: AlertView) -> None:
    assert told(standing, warning(OPENED))[-1] == "20 opened (critical_firing)"


def test_a_recovering_critical_alert_still_holds_warnings_back() -> None:
    recovering = replace(critical(None, trigger()), state=AlertState.RECOVERING)
    assert told(recovering, warning(OPENED)) == ["20 opened (critical_firing)"]


def test_a_pending_critical_alert_holds_nothing_back() -> None:
    pending = replace(critical(), state=AlertState.PENDING)
    assert told(pending, warning(OPENED)) == ["20 opened to 1 to 2"]


def test_a_second_critical_alert_is_another_fault() -> None:
    other = replace(critical(OPENED), alert_id=11)
    assert told(critical(None, trigger()), other) == ["11 opened to 1 to 2"]


def test_a_warning_that_still_fires_is_announced_when_the_critical_alert_resolves() -> None:
    resolved, held = critical(RESOLVED, trigger()), warning(held_back=True)
    assert told(resolved, held) == ["10 resolved to 1", "20 opened to 1 to 2 late"]


def test_it_is_announced_once() -> None:
    assert told(warning(None, trigger(attempts=0, state="pending"), held_back=True)) == []


def test_it_stays_held_back_while_another_critical_alert_fires() -> None:
    resolved, other = critical(RESOLVED, trigger()), replace(critical(None, trigger()), alert_id=11)
    assert told(resolved, other, warning(held_back=True)) == ["10 resolved to 1"]


def test_a_recovering_warning_waits_until_it_fires_again_or_ends() -> None:
    held = warning(held_back=True)
    assert told(replace(held, state=AlertState.RECOVERING)) == []
    assert told(held) == ["20 opened to 1 to 2 late"]


def test_a_held_back_warning_that_turns_critical_speaks_for_itself() -> None:
    risen = replace(warning(ESCALATED, held_back=True), severity=CRITICAL)
    assert told(critical(None, trigger()), risen) == ["20 escalated to 1 to 2"]


def test_a_resolve_is_not_sent_for_what_was_never_announced() -> None:
    (announcement,) = announce([warning(RESOLVED, held_back=True)], [OPS])
    assert (announcement.send, announcement.cancel, announcement.reason) == (
        (),
        (),
        "Not sent: the alert was never announced.",
    )


def test_a_trigger_that_was_never_tried_is_cancelled_with_its_resolve() -> None:
    waiting = [
        trigger(OPS, attempts=0, state="pending", number=7),
        trigger(CHAT, attempts=0, state="pending", number=8),
    ]
    (announcement,) = announce([critical(RESOLVED, *waiting)], [OPS, CHAT])
    assert (announcement.send, announcement.cancel) == ((), (7, 8))
    assert announcement.reason == "Cancelled together with the trigger, which had not been tried yet."


@pytest.mark.parametrize("state", ["pending", "delivered", "dead"])
def test_after_one_attempt_the_resolve_is_always_sent(state: str) -> None:
    assert told(critical(RESOLVED, trigger(attempts=1, state=state))) == ["10 resolved to 1"]


def test_each_hook_hears_the_end_of_what_it_heard_begin() -> None:
    tried, waiting = trigger(OPS), trigger(CHAT, attempts=0, state="pending", number=8)
    assert told(critical(RESOLVED, tried, waiting)) == ["10 resolved to 1 not 8"]


def test_an_escalation_nobody_tried_to_send_is_taken_back_by_the_resolve() -> None:
    worse = PastDelivery(id=9, hook=OPS, type=ESCALATED, state=DeliveryState.PENDING, attempts=0)
    assert told(critical(RESOLVED, trigger(), worse)) == ["10 resolved to 1 not 9"]


def test_a_cancelled_trigger_was_never_heard() -> None:
    assert told(critical(RESOLVED, trigger(attempts=0, state="cancelled"))) == ["10 resolved"]


def test_a_hook_taken_off_the_check_still_hears_the_end() -> None:
    assert told(critical(RESOLVED, trigger(OPS)), hooks=[CHAT]) == ["10 resolved to 1"]


def test_a_hook_put_on_the_check_later_does_not_hear_the_end() -> None:
    assert told(critical(RESOLVED, trigger(OPS)), hooks=[OPS, CHAT]) == ["10 resolved to 1"]


def test_a_hook_that_is_gone_does_not_hear_the_end() -> None:
    (announcement,) = announce([critical(RESOLVED, trigger(OPS))], [OPS], unreachable=[OPS])
    assert announcement.send == ()
    assert announcement.reason == "Not sent: the hooks that heard of the alert are disabled or gone."


@dataclass(slots=True)
class Alert:
    """The rows of one alert."""

    id: int
    severity: Severity
    state: AlertState = AlertState.FIRING
    suppressed: Suppression | None = None
    deliveries: list[PastDelivery] = field(default_factory=list)


class Outbox(RuleBasedStateMachine):
    """A check whose alerts come and go while its hooks are slow: what receivers hear must make sense."""

    def __init__(self) -> None:
        super().__init__()
        self.alerts: list[Alert] = []
        self.number = 0

    @rule(severity=st.sampled_from(Severity))
    def open(self, severity: Severity) -> None:
        """Open an alert."""
        self.number += 1
        self.alerts.append(Alert(id=self.number, severity=severity))
        self.speak(self.alerts[-1], OPENED)

    @precondition(lambda self: any(one.state in OPEN for one in self.alerts))
    @rule(data=st.data(), what=st.sampled_from(["escalate", "recover", "fire", "resolve"]))
    def change(self, data: st.DataObject, what: str) -> None:
        """Change an open alert."""
        alert = data.draw(st.sampled_from([one for one in self.alerts if one.state in OPEN]))
        if what == "escalate" and alert.severity is WARNING:
            alert.severity, alert.state = CRITICAL, AlertState.FIRING
            self.speak(alert, ESCALATED)
        elif what == "resolve":
            alert.state = AlertState.RESOLVED
            self.speak(alert, RESOLVED)
        else:
            alert.state = AlertState.RECOVERING if what == "recover" else AlertState.FIRING
            self.speak(alert, None)

    @precondition(lambda self: any(self.waiting(one) for one in self.alerts))
    @rule(data=st.data(), state=st.sampled_from([DeliveryState.PENDING, DeliveryState.DELIVERED, DeliveryState.DEAD]))
    def attempt(self, data: st.DataObject, state: DeliveryState) -> None:
        """Try to send the oldest delivery of an alert."""
        alert = data.draw(st.sampled_from([one for one in self.alerts if self.waiting(one)]))
        place = self.waiting(alert)[0]
        tried = alert.deliveries[place]
        alert.deliveries[place] = replace(tried, state=state, attempts=tried.attempts + 1)

    @staticmethod
    def waiting(alert: Alert) -> list[int]:
        """List what is left to send of an alert, oldest first."""
        return [place for place, one in enumerate(alert.deliveries) if one.state is DeliveryState.PENDING]

    def speak(self, changed: Alert, change: TransitionType | None) -> None:
        """Write what `announce` says, as the service does."""
        views = [
            AlertView(
                alert_id=one.id,
                severity=one.severity,
                state=one.state,
                change=change if one is changed else None,
                suppressed=one.suppressed,
                deliveries=tuple(one.deliveries),
            )
            for one in self.alerts
            if one.state in OPEN or one is changed
        ]
        open_critical = any(one.severity is CRITICAL and one.state in OPEN for one in self.alerts)
        spoken = {one.alert_id: one for one in announce(views, [OPS])}
        assert change is None or changed.id in spoken
        for alert in self.alerts:
            announcement = spoken.get(alert.id)
            if announcement is None:
                continue
            assert not (announcement.send and announcement.suppressed)
            assert not (
                announcement.send and open_critical and alert.severity is WARNING and announcement.type is not RESOLVED
            )
            alert.suppressed = announcement.suppressed or (None if announcement.late else alert.suppressed)
            for place, one in enumerate(alert.deliveries):
                if one.id in announcement.cancel:
                    assert one.attempts == 0
                    alert.deliveries[place] = replace(one, state=DeliveryState.CANCELLED)
            for hook in announcement.send:
                self.number += 1
                row = PastDelivery(
                    id=self.number, hook=hook, type=announcement.type, state=DeliveryState.PENDING, attempts=0
                )
                alert.deliveries.append(row)

    @invariant()
    def an_alert_is_announced_at_most_once(self) -> None:
        """Count openings."""
        for alert in self.alerts:
            assert sum(one.type is OPENED for one in alert.deliveries) <= 1

    @invariant()
    def a_resolve_follows_only_what_may_have_been_heard(self) -> None:
        """Count resolves."""
        for alert in self.alerts:
            heard = any(one.attempts for one in alert.deliveries if one.type is not RESOLVED)
            resolves = sum(one.type is RESOLVED for one in alert.deliveries)
            assert resolves == int(heard and alert.state is AlertState.RESOLVED)

    @invariant()
    def every_firing_alert_was_announced_or_is_held_back_by_a_critical_one(self) -> None:
        """Look for alerts that were forgotten."""
        critical_open = any(one.severity is CRITICAL and one.state in OPEN for one in self.alerts)
        for alert in self.alerts:
            if alert.state is AlertState.FIRING and not critical_open:
                assert alert.deliveries
            if alert.state is AlertState.RESOLVED:
                assert not any(
                    one.state is DeliveryState.PENDING and not one.attempts and one.type is not RESOLVED
                    for one in alert.deliveries
                )


TestOutbox = Outbox.TestCase
TestOutbox.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
