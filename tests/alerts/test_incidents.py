"""Incidents: one fault makes one page, and nobody hears the end of what they never heard begin."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from app.alerts.domain.state import (
    UPDATE_EVERY,
    IncidentClass,
    Member,
    OpenIncident,
    PastDelivery,
    Recipients,
    Step,
    Suppression,
    class_of,
    dedupe_keys,
    plan_notifications,
    reminder_due,
    still_firing,
)
from app.alerts.domain.views import AlertState, TransitionType
from app.base.values import DeliveryState, RuleKind, Severity, replace

OPENED, ESCALATED, UPDATED = TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.UPDATED
REMINDED, RESOLVED = TransitionType.REMINDED, TransitionType.RESOLVED
CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
FIRING = AlertState.FIRING
OPS, CHAT = 1, 2
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
INCIDENT = 5


def alert(
    number: int = 10,
    severity: Severity = CRITICAL,
    change: TransitionType | None = None,
    *,
    kind: RuleKind = RuleKind.THRESHOLD,
    entered: bool = False,
    suppression: Suppression | None = None,
    silence: str | None = None,
    acknowledged: bool = False,
) -> Member:
    """Describe an alert as it stands; `entered`: it is part of the incident."""
    return Member(
        alert_id=number,
        rule="rule",
        kind=kind,
        severity=severity,
        state=AlertState.RESOLVED if change is RESOLVED else FIRING,
        change=change,
        suppression=suppression,
        acknowledged=acknowledged,
        silence=silence,
        incident_id=INCIDENT if entered else None,
    )


def incident(
    *past: PastDelivery, severity: Severity = CRITICAL, first: int = 10, updated: timedelta | None = None
) -> OpenIncident:
    """Describe an open incident; `updated`: how long ago."""
    return OpenIncident(
        id=INCIDENT,
        incident_class=IncidentClass.QUALITY,
        dedupe_key="coalmine/watch/quality",
        alert_id=first,
        severity=severity,
        opened_at=NOW,
        updated_at=None if updated is None else NOW - updated,
        deliveries=past,
    )


def trigger(
    hook: int = OPS,
    *,
    attempts: int = 1,
    state: str = "delivered",
    number: int = 100,
    kind: TransitionType = OPENED,
    ago: timedelta = timedelta(minutes=5),
) -> PastDelivery:
    return PastDelivery(
        id=number, hook=hook, type=kind, state=DeliveryState(state), attempts=attempts, written_at=NOW - ago
    )


def planned(
    *members: Member,
    of: Sequence[OpenIncident] = (),
    hooks: Sequence[int] = (OPS, CHAT),
    unreachable: Sequence[int] = (),
    disabled: Sequence[int] = (),
    every: timedelta | None = None,
) -> list[str]:
    """Say in short what is written: incident, type and alert, hooks, cancelled deliveries, alerts that enter, notes."""
    recipients = Recipients(hooks=hooks, unreachable=unreachable, disabled=disabled)
    return [short(one) for one in plan_notifications(members, of, recipients, now=NOW, remind_every=every)]


def short(one: Step) -> str:
    parts = [f"{one.incident_id or 'new'} {one.severity}"]
    parts += [f"{one.type} {one.alert_id}"] if one.type is not None else []
    parts += [*(f"to {hook}" for hook in one.send), *(f"later {hook}" for hook in one.deferred_hooks)]
    parts += [*(f"not {number}" for number in one.cancel), *(f"+{number}" for number in one.joining)]
    return " ".join([*parts, *(f"({number} {why})" for number, why in sorted(one.suppressed.items()))])


# --- classes and keys ----------------------------------------------------------------------------------------


def test_the_class_of_a_rule_is_what_kind_of_fault_it_sees() -> None:
    outage = {kind for kind in RuleKind if class_of(kind) is IncidentClass.OUTAGE}
    assert outage == {RuleKind.PROBE_ERRORS, RuleKind.NO_DATA}
    assert {kind for kind in RuleKind if class_of(kind) is IncidentClass.LATENCY} == {RuleKind.LATENCY, RuleKind.SLOWER}
    assert class_of(RuleKind.REGRESSION) is class_of(RuleKind.EMBEDDING) is IncidentClass.QUALITY


def test_the_longest_dedupe_key_fits_into_pagerduty_s_field() -> None:
    assert dedupe_keys("docs", IncidentClass.QUALITY)[0] == "coalmine/docs/quality"
    assert max(len(key) for one in IncidentClass for key in dedupe_keys("x" * 64, one)) <= 255


# --- opening -------------------------------------------------------------------------------------------------


def test_three_critical_rules_that_trip_by_one_fault_are_one_page() -> None:
    members = [
        alert(10, CRITICAL, OPENED),
        alert(11, CRITICAL, OPENED, kind=RuleKind.REGRESSION),
        alert(12, CRITICAL, OPENED, kind=RuleKind.EMBEDDING),
    ]
    shown = "new critical opened 12 to 1 to 2 +10 +11 +12 (10 incident_open) (11 incident_open)"
    assert planned(*members) == [shown]


def test_the_gravest_alert_of_the_opening_run_speaks() -> None:
    members = [alert(10, WARNING, OPENED, kind=RuleKind.REGRESSION), alert(11, CRITICAL, OPENED)]
    assert planned(*members) == ["new critical opened 11 to 1 to 2 +10 +11 (10 incident_open)"]


def test_alerts_of_two_classes_are_two_incidents() -> None:
    members = [alert(10, CRITICAL, OPENED), alert(11, CRITICAL, OPENED, kind=RuleKind.LATENCY)]
    assert planned(*members) == ["new critical opened 11 to 1 to 2 +11", "new critical opened 10 to 1 to 2 +10"]


def test_a_check_without_hooks_opens_an_incident_and_says_why_nobody_is_told() -> None:
    (step,) = plan_notifications([alert(10, CRITICAL, OPENED)], [], Recipients(hooks=()), now=NOW)
    assert (step.send, step.reason) == ((), "Not sent: the check has no hook that is enabled.")


def test_a_disabled_hook_gets_nothing() -> None:
    assert planned(alert(10, CRITICAL, OPENED), unreachable=[OPS]) == ["new critical opened 10 to 2 +10"]


# --- an open incident ----------------------------------------------------------------------------------------


def test_a_warning_beside_a_critical_alert_enters_without_a_message() -> None:
    members = [alert(10, entered=True), alert(11, WARNING, OPENED)]
    assert planned(*members, of=[incident(trigger())]) == ["5 critical +11 (11 incident_open)"]


def test_a_graver_alert_that_enters_escalates() -> None:
    members = [alert(10, WARNING, entered=True), alert(11, CRITICAL, OPENED)]
    assert planned(*members, of=[incident(trigger(), severity=WARNING)]) == ["5 critical escalated 11 to 1 to 2 +11"]


def test_severity_never_falls_while_milder_alerts_are_left() -> None:
    members = [alert(10, CRITICAL, RESOLVED, entered=True), alert(11, WARNING, entered=True)]
    assert planned(*members, of=[incident(trigger())]) == ["5 critical (10 incident_open)"]


def test_a_critical_alert_that_joins_after_the_opening_run_is_an_update() -> None:
    members = [alert(10, entered=True), alert(11, CRITICAL, OPENED)]
    assert planned(*members, of=[incident(trigger())]) == ["5 critical updated 11 to 1 to 2 +11"]


def test_a_warning_that_turns_critical_beside_a_critical_one_is_an_update() -> None:
    members = [alert(10, entered=True), alert(11, CRITICAL, ESCALATED, entered=True)]
    assert planned(*members, of=[incident(trigger())]) == ["5 critical updated 11 to 1 to 2"]


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        (timedelta(minutes=59), "5 critical +11 (11 recent_update)"),
        (timedelta(minutes=60), "5 critical updated 11 to 1 to 2 +11"),
    ],
)
def test_an_incident_is_updated_at_most_once_an_hour(ago: timedelta, expected: str) -> None:
    members = [alert(10, entered=True), alert(11, CRITICAL, OPENED)]
    assert planned(*members, of=[incident(trigger(), updated=ago)]) == [expected]


def test_an_update_that_waited_is_sent_when_its_hour_is_over() -> None:
    members = [alert(10, entered=True), alert(11, entered=True, suppression=Suppression.RECENT_UPDATE)]
    assert planned(*members, of=[incident(trigger(), updated=timedelta(minutes=59))]) == []
    after = planned(*members, of=[incident(trigger(), updated=UPDATE_EVERY)])
    assert after == ["5 critical updated 11 to 1 to 2"]


def test_an_update_that_waited_is_not_sent_where_its_alert_is_over() -> None:
    waited = alert(11, CRITICAL, RESOLVED, entered=True, suppression=Suppression.RECENT_UPDATE)
    of = [incident(trigger(), updated=UPDATE_EVERY)]
    assert planned(alert(10, entered=True), waited, of=of) == ["5 critical (11 incident_open)"]


def test_an_escalation_carries_the_update_that_waited() -> None:
    members = [
        alert(10, CRITICAL, ESCALATED, entered=True),
        alert(11, WARNING, entered=True, suppression=Suppression.RECENT_UPDATE),
    ]
    of = [incident(trigger(), severity=WARNING, updated=timedelta(minutes=1))]
    assert planned(*members, of=of) == ["5 critical escalated 10 to 1 to 2 (11 incident_open)"]


# --- silences ------------------------------------------------------------------------------------------------


def test_what_still_fires_when_its_silence_ends_enters_the_open_incident() -> None:
    graver = [alert(10, WARNING, entered=True), alert(11, suppression=Suppression.SILENCED)]
    assert planned(*graver, of=[incident(trigger(), severity=WARNING)]) == ["5 critical escalated 11 to 1 to 2 +11"]
    as_grave = [alert(10, entered=True), alert(11, suppression=Suppression.SILENCED)]
    assert planned(*as_grave, of=[incident(trigger())]) == ["5 critical updated 11 to 1 to 2 +11"]
    milder = [alert(10, entered=True), alert(11, WARNING, suppression=Suppression.SILENCED)]
    assert planned(*milder, of=[incident(trigger())]) == ["5 critical +11 (11 incident_open)"]


def test_a_recovering_alert_waits_until_it_fires_again_or_ends() -> None:
    held = alert(10, suppression=Suppression.SILENCED)
    assert planned(replace(held, state=AlertState.RECOVERING)) == []


def test_an_escalation_under_a_silence_is_sent_when_the_silence_ends() -> None:
    worse = alert(10, CRITICAL, ESCALATED, entered=True, silence="night")
    of = [incident(trigger(), severity=WARNING)]
    assert planned(worse, of=of) == []
    later = replace(worse, change=None, silence=None, suppression=Suppression.SILENCED)
    assert planned(later, of=of) == ["5 critical escalated 10 to 1 to 2"]


def test_an_incident_ends_though_a_silenced_alert_of_its_class_still_fires() -> None:
    members = [alert(10, CRITICAL, RESOLVED, entered=True), alert(11, silence="night")]
    assert planned(*members, of=[incident(trigger())]) == ["5 critical resolved 10 to 1"]


# --- the end -------------------------------------------------------------------------------------------------


def test_an_incident_ends_with_its_last_alert() -> None:
    members = [alert(11, CRITICAL, RESOLVED, entered=True), alert(12, WARNING, RESOLVED, entered=True)]
    assert planned(*members, of=[incident(trigger())]) == ["5 critical resolved 11 to 1 (12 incident_open)"]


def test_the_resolve_is_about_the_first_alert_where_it_ends_last() -> None:
    members = [alert(10, WARNING, RESOLVED, entered=True), alert(11, CRITICAL, RESOLVED, entered=True)]
    assert planned(*members, of=[incident(trigger())]) == ["5 critical resolved 10 to 1 (11 incident_open)"]


def test_an_incident_goes_on_where_the_run_that_ends_its_last_alert_opens_another() -> None:
    members = [alert(10, CRITICAL, RESOLVED, entered=True), alert(11, WARNING, OPENED)]
    assert planned(*members, of=[incident(trigger())]) == ["5 critical +11 (10 incident_open) (11 incident_open)"]


def test_a_resolve_is_not_sent_for_what_was_never_announced() -> None:
    over = alert(10, CRITICAL, RESOLVED, entered=True)
    (step,) = plan_notifications([over], [incident()], Recipients(hooks=[OPS]), now=NOW)
    assert (step.send, step.cancel, step.reason) == ((), (), "Not sent: the incident was never announced.")
    assert planned(alert(10, CRITICAL, RESOLVED)) == []


def test_a_trigger_that_was_never_tried_is_cancelled_with_its_resolve() -> None:
    waiting = [
        trigger(OPS, attempts=0, state="pending", number=7),
        trigger(CHAT, attempts=0, state="pending", number=8),
    ]
    over = alert(10, CRITICAL, RESOLVED, entered=True)
    (step,) = plan_notifications([over], [incident(*waiting)], Recipients(hooks=[OPS, CHAT]), now=NOW)
    assert (step.send, step.cancel) == ((), (7, 8))
    assert step.reason == "Cancelled together with the trigger, which had not been tried yet."


@pytest.mark.parametrize("state", ["pending", "delivered", "dead"])
def test_after_one_attempt_the_resolve_is_always_sent(state: str) -> None:
    of = [incident(trigger(attempts=1, state=state))]
    assert planned(alert(10, CRITICAL, RESOLVED, entered=True), of=of) == ["5 critical resolved 10 to 1"]


def test_each_hook_hears_the_end_of_what_it_heard_begin() -> None:
    of = [incident(trigger(OPS), trigger(CHAT, attempts=0, state="pending", number=8))]
    assert planned(alert(10, CRITICAL, RESOLVED, entered=True), of=of) == ["5 critical resolved 10 to 1 not 8"]


def test_an_update_nobody_tried_to_send_is_taken_back_by_the_resolve() -> None:
    of = [incident(trigger(), trigger(kind=UPDATED, state="pending", attempts=0, number=9))]
    assert planned(alert(10, CRITICAL, RESOLVED, entered=True), of=of) == ["5 critical resolved 10 to 1 not 9"]


def test_a_cancelled_trigger_was_never_heard() -> None:
    of = [incident(trigger(attempts=0, state="cancelled"))]
    assert planned(alert(10, CRITICAL, RESOLVED, entered=True), of=of) == ["5 critical resolved 10"]


def test_a_hook_taken_off_the_check_still_hears_the_end_and_one_put_on_it_later_does_not() -> None:
    over, of = alert(10, CRITICAL, RESOLVED, entered=True), [incident(trigger(OPS))]
    assert planned(over, of=of, hooks=[CHAT]) == ["5 critical resolved 10 to 1"]
    assert planned(over, of=of, hooks=[OPS, CHAT]) == ["5 critical resolved 10 to 1"]


def test_a_disabled_hook_is_owed_the_end_and_one_that_is_gone_is_not() -> None:
    over, of = alert(10, CRITICAL, RESOLVED, entered=True), [incident(trigger(OPS))]
    assert planned(over, of=of, unreachable=[OPS], disabled=[OPS]) == ["5 critical resolved 10 later 1"]
    assert planned(over, of=of, unreachable=[OPS]) == ["5 critical resolved 10"]


# --- alerts of before there were incidents -------------------------------------------------------------------


def test_alerts_of_two_incidents_of_one_class_end_each_for_itself() -> None:
    other = replace(incident(trigger(number=101), first=11), id=6)
    over = replace(alert(11, CRITICAL, RESOLVED), incident_id=6)
    members = [alert(10, entered=True), over]
    assert planned(*members, of=[incident(trigger()), other]) == ["6 critical resolved 11 to 1"]


def test_a_new_alert_enters_the_oldest_of_them_that_goes_on() -> None:
    ending, going = incident(trigger()), replace(incident(trigger(number=101), first=11), id=6)
    members = [
        alert(10, CRITICAL, RESOLVED, entered=True),
        replace(alert(11), incident_id=6),
        alert(12, WARNING, OPENED),
    ]
    assert planned(*members, of=[ending, going]) == ["5 critical resolved 10 to 1", "6 critical +12 (12 incident_open)"]


# --- reminders -----------------------------------------------------------------------------------------------

HOUR = timedelta(hours=1)


def test_people_are_reminded_once_per_incident() -> None:
    members = [alert(10, entered=True), alert(11, WARNING, entered=True)]
    of = [incident(trigger(ago=HOUR))]
    assert planned(*members, of=of, every=HOUR) == ["5 critical reminded 10 to 1 to 2"]
    assert planned(*members, of=[incident(trigger(ago=HOUR / 2))], every=HOUR) == []


def test_an_acknowledged_or_silenced_incident_reminds_nobody() -> None:
    of = [incident(trigger(ago=HOUR))]
    assert planned(alert(10, entered=True, acknowledged=True), of=of, every=HOUR) == []
    assert planned(alert(10, entered=True, silence="night"), of=of, every=HOUR) == []


def test_news_take_the_place_of_a_reminder() -> None:
    members = [alert(10, entered=True), alert(11, CRITICAL, OPENED)]
    of = [incident(trigger(ago=HOUR))]
    assert planned(*members, of=of, every=HOUR) == ["5 critical updated 11 to 1 to 2 +11"]


def test_the_next_reminder_counts_from_the_last_message() -> None:
    past = [trigger(ago=3 * HOUR), trigger(ago=HOUR, kind=REMINDED)]
    assert reminder_due([alert(10, entered=True)], past, 2 * HOUR) == NOW + HOUR
    assert reminder_due([alert(10, entered=True)], [], HOUR) is None


def test_a_reminder_says_for_how_long() -> None:
    since = NOW - timedelta(days=1, hours=2, minutes=3)
    assert still_firing("coverage 0.5", since, NOW) == "Still firing after 1 day and 2 hours: coverage 0.5"
