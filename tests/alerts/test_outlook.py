"""What would have to happen is what does happen: the outlook of a rule holds when it is put to the test."""

from hypothesis import given
from hypothesis import strategies as st

from app.alerts.domain.incidents import outlook, recovery_state, recovery_text
from app.alerts.domain.state import OPEN, decide
from app.alerts.domain.views import AlertState
from app.base.values import Rule, RuleKind, Severity, replace
from tests.alerts.test_alerting import observation, open_alert, threshold
from tests.support.fakes import START

OPENED = open_alert(AlertState.FIRING, Severity.CRITICAL, opened_at=START, opened_run_id=0)
PLANS = st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)).map(
    lambda told: threshold(bad=told[0], of=told[0] + told[1], close=told[2])
)
STORIES = st.text("WCig?", max_size=8)


@given(rule=PLANS, story=STORIES)
def test_so_many_bad_runs_and_no_fewer_open_it(rule: Rule, story: str) -> None:
    needed = outlook(rule, [observation(rule, n, one) for n, one in enumerate(story, 1)], None).bad_runs_to_open
    assert needed is not None
    for more in range(1, needed + 1):
        window = [observation(rule, n, one) for n, one in enumerate(story + "W" * more, 1)]
        assert (decide(rule, window, None).state in OPEN) == (more == needed)


@given(rule=PLANS, story=STORIES)
def test_so_many_good_runs_and_no_fewer_close_it(rule: Rule, story: str) -> None:
    window = [observation(rule, n, one) for n, one in enumerate(story, 1)]
    needed = outlook(rule, window, OPENED).good_runs_to_close
    assert needed is not None
    for more in range(1, needed + 1):
        window = [observation(rule, n, one) for n, one in enumerate(story + "g" * more, 1)]
        assert (decide(rule, window, OPENED).state is AlertState.RESOLVED) == (more == needed)


def test_what_has_to_be_measured_first_is_named() -> None:
    rule = threshold(bad=1, of=1)
    window = [observation(rule, 1, "C"), observation(rule, 2, "g")]
    closing = outlook(rule, window, OPENED, ["q03"]).to_close
    assert str(closing).endswith(
        " It does not resolve before q03 is measured again: the canary was degraded when it opened."
    )
    several = outlook(rule, window, OPENED, [f"q{number}" for number in range(7)]).to_close
    assert "before q0, q1, q2, q3, q4 and 2 more are measured again: they were degraded" in str(several)
    assert outlook(rule, window, None, ["q03"]).to_close is None


def test_a_rule_that_opens_with_one_bad_run_counts_none() -> None:
    rule = threshold(bad=1, of=1)
    found = outlook(rule, [observation(rule, 1, "g")], None)
    assert (found.to_open, found.bad_runs_to_open) == ("It opens at once, with the first bad run.", 1)


def test_no_data_and_regression_say_what_they_wait_for() -> None:
    quiet = Rule(key="no_data", kind=RuleKind.NO_DATA)
    fallen = Rule(key="regression", kind=RuleKind.REGRESSION, open_bad=1, open_of=1, close=1)
    assert outlook(quiet, [], None).to_open == (
        "It opens when no run has completed by the second scheduled time after the last run."
    )
    assert outlook(quiet, [], OPENED).good_runs_to_close == 1
    assert outlook(fallen, [], None).bad_runs_to_open is None
    closing = outlook(fallen, [], OPENED).to_close
    assert closing == "It resolves when the detector ends its alarm, after 2 good runs in a row."


def test_an_alarm_tells_since_which_run_not_when_it_was_raised() -> None:
    rule = Rule(key="regression", kind=RuleKind.REGRESSION, open_bad=1, open_of=1, close=1)
    seen = observation(threshold(), 12, "C")
    told = decide(rule, [replace(seen, condition=replace(seen.condition, since_run=9))], None)
    assert told.evidence["first_bad_run"] == 9
    assert decide(rule, [seen], None).evidence["first_bad_run"] == seen.run_id


def test_a_healthy_run_under_open_alerts_is_no_healthy_check() -> None:
    assert recovery_state("healthy", {("recovering", "critical"): 2}) == "recovering"
    assert recovery_state("healthy", {("recovering", "critical"): 2, ("firing", "warning"): 1}) == "firing"
    assert recovery_state("healthy", {("pending", "warning"): 1}) is None
    assert recovery_state("degraded", {("recovering", "critical"): 2}) is None
    assert recovery_state(None, {("firing", "critical"): 1}) is None


def test_what_is_left_until_open_alerts_resolve_is_said_in_a_sentence() -> None:
    recovering, firing = AlertState.RECOVERING, AlertState.FIRING
    text = "Healthy again: 2 alerts are still open, and resolve after 3 more good runs."
    assert recovery_text([(recovering, 1), (recovering, 3)]) == text
    text = "Healthy again: 1 alert is still open, and resolves after 1 more good run, but not before q03 is measured."
    assert recovery_text([(recovering, 1)], ["q03"]) == text
    text = "Healthy in this run: 1 alert is still open, and resolves when the detector ends its alarm."
    assert recovery_text([(firing, None)]) == text
    text = "Healthy again: 2 alerts are still open, and resolve after 1 more good run and when the detector "
    text += "ends its alarm."
    assert recovery_text([(recovering, 1), (recovering, None)]) == text
