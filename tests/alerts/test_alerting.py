"""Alerting: N of M opens, K good runs in a row resolve, and nothing but rows decides."""

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.alerts.domain.between_runs import decide_no_data, no_data_due
from app.alerts.domain.rules import condition
from app.alerts.domain.state import (
    Decision,
    Member,
    Observation,
    Retirement,
    decide,
    is_completed,
    retire,
    window_length,
)
from app.alerts.domain.views import AlertState, TransitionType
from app.base.schedules import parse_schedule
from app.base.values import Aggregates, Bound, Rule, RuleKind, RunStatus, Severity, replace

START = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
COVERAGE = {"C": 0.5, "W": 0.92, "i": 0.96, "g": 1.0, "?": 1.0}
"""What a letter of a story is: critical, warning, inside the margin, good, unknown."""
OPENED, ESCALATED, RESOLVED = TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.RESOLVED


def threshold(*, bad: int = 2, of: int = 3, close: int = 2) -> Rule:
    return Rule(
        key="coverage",
        kind=RuleKind.THRESHOLD,
        measure="coverage",
        warning=Bound(below=0.95),
        critical=Bound(below=0.9),
        margin=0.02,
        open_bad=bad,
        open_of=of,
        close=close,
    )


ERRORS = Rule(key="probe_errors", kind=RuleKind.PROBE_ERRORS)


def observation(rule: Rule, number: int, letter: str) -> Observation:
    unknown = letter == "?"
    run = Aggregates(
        total=10,
        measured=3 if unknown else 10,
        failed=7 if unknown else 0,
        undefined=0,
        degraded=0,
        health_score=None,
        coverage=COVERAGE[letter],
    )
    at = START + timedelta(minutes=5 * number)
    return Observation(run_id=number, at=at, condition=condition(rule, run, unknown=unknown))


def open_alert(state: AlertState, severity: Severity, **stored: Any) -> Member:
    return Member(alert_id=1, rule="rule", kind=RuleKind.THRESHOLD, state=state, severity=severity, **stored)


def after(alert: Member | None, decision: Decision, run_id: int) -> Member | None:
    """Do to the alert's row what the decision says."""
    if decision.state in {AlertState.OK, AlertState.RESOLVED}:
        return None
    assert decision.severity is not None
    row = alert or open_alert(decision.state, decision.severity)
    row = replace(row, state=decision.state, severity=decision.severity)
    if OPENED in decision.transitions:
        row = replace(row, opened_run_id=run_id)
    return row


def play(rule: Rule, story: str, *, all_rows: bool = False) -> list[Decision]:
    """Decide run after run from rows alone; `all_rows` shows `decide` more history than it needs."""
    alert: Member | None = None
    seen: list[Observation] = []
    decisions = []
    for number, letter in enumerate(story):
        seen.append(observation(rule, number, letter))
        measured = [one for one in seen[:-1] if one.condition.measured]
        window = seen if all_rows else [*measured[-window_length(rule) :], seen[-1]]
        decision = decide(rule, window, alert)
        alert = after(alert, decision, number)
        decisions.append(decision)
    return decisions


def told(decisions: Sequence[Decision]) -> str:
    """Tell a story's transitions with the number of the run and the severity."""
    return " ".join(
        f"{type_}@{number}:{decision.severity}"
        for number, decision in enumerate(decisions)
        for type_ in decision.transitions
    )


@pytest.mark.parametrize(
    ("story", "transitions"),
    [
        ("gggggg", ""),
        ("gCgg", ""),
        ("CC", "opened@1:critical"),
        ("CgC", "opened@2:critical"),
        ("CggC", ""),
        ("WW", "opened@1:warning"),
        ("WC", "opened@1:warning"),
        ("CW", "opened@1:warning"),
        ("WCC", "opened@1:warning escalated@2:critical"),
        ("CWC", "opened@1:warning escalated@2:critical"),
        ("WWCgC", "opened@1:warning escalated@4:critical"),
        ("CCWW", "opened@1:critical"),
        ("CCgg", "opened@1:critical resolved@3:critical"),
        ("CCgCgg", "opened@1:critical resolved@5:critical"),
        ("CCgigg", "opened@1:critical resolved@5:critical"),
        ("CCiiii", "opened@1:critical"),
        ("CC?g?g", "opened@1:critical resolved@5:critical"),
        ("C????C", "opened@5:critical"),
        ("CCggCC", "opened@1:critical resolved@3:critical opened@5:critical"),
        ("ggCC", "opened@3:critical"),
    ],
)
def test_two_of_three_open_and_two_good_in_a_row_resolve(story: str, transitions: str) -> None:
    assert told(play(threshold(), story)) == transitions


@pytest.mark.parametrize(
    ("rule", "story", "transitions"),
    [
        (threshold(bad=1, of=1, close=1), "CgC", "opened@0:critical resolved@1:critical opened@2:critical"),
        (threshold(bad=3, of=5), "CgCgC", "opened@4:critical"),
        (threshold(bad=3, of=5), "CgCggC", ""),
        (threshold(bad=2, of=3, close=4), "CCgggCgggg", "opened@1:critical resolved@9:critical"),
        # After a resolve the window still holds bad runs, but only another bad run can open on them.
        (threshold(bad=2, of=9, close=2), "CCgggggC", "opened@1:critical resolved@3:critical opened@7:critical"),
    ],
)
def test_n_m_and_k_are_the_rules_own(rule: Rule, story: str, transitions: str) -> None:
    assert told(play(rule, story)) == transitions


def test_good_runs_count_only_since_the_alert_opened() -> None:
    assert told(play(threshold(bad=2, of=5, close=3), "CgggC")) == "opened@4:critical"
    assert told(play(threshold(bad=2, of=5, close=3), "CggCggg")) == "opened@3:critical resolved@6:critical"


@pytest.mark.parametrize(
    ("story", "states"),
    [
        ("CCgg", "pending firing recovering resolved"),
        ("CgCgCgg", "pending ok firing recovering firing recovering resolved"),
        ("CCgi", "pending firing recovering recovering"),
        ("CCi", "pending firing firing"),
        ("CC?", "pending firing firing"),
        ("CCg?", "pending firing recovering recovering"),
        ("C?", "pending pending"),
        ("Cg?", "pending ok ok"),
        ("?", "ok"),
    ],
)
def test_the_state_follows_the_runs(story: str, states: str) -> None:
    assert " ".join(decision.state for decision in play(threshold(), story)) == states


def test_pending_knows_the_severity_of_the_newest_run() -> None:
    assert play(threshold(bad=3), "CW")[-1].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("story", "transitions"),
    [
        ("??", "opened@1:critical"),
        ("?g?", "opened@2:critical"),
        ("?gg?", ""),
        ("??gg", "opened@1:critical resolved@3:critical"),
        ("??g?gg", "opened@1:critical resolved@5:critical"),
        ("CCCC", ""),
    ],
)
def test_probe_errors_counts_unknown_runs(story: str, transitions: str) -> None:
    assert told(play(ERRORS, story)) == transitions


def test_every_decision_is_explained() -> None:
    reasons = [decision.reason for decision in play(threshold(), "CCigg?")]
    near = "coverage 0.960 is not below 0.95, but within the margin of 0.02"
    assert reasons == [
        "coverage 0.500 is below 0.9 (critical); bad in 1 of the last 1 measured runs, an alert opens at 2 of 3.",
        "coverage 0.500 is below 0.9 (critical); bad in 2 of the last 2 measured runs, which opens a critical alert.",
        f"{near}; neither bad nor good enough to count, the alert is firing.",
        "coverage 1.000 is not below 0.95; 1 good run in a row, 2 resolve.",
        "coverage 1.000 is not below 0.95; 2 good runs in a row, enough to resolve.",
        "the run is unknown; nothing is open.",
    ]


def test_a_rule_that_opens_with_one_bad_run_says_that_it_opens_at_once() -> None:
    (decision,) = play(threshold(bad=1, of=1), "C")
    assert decision.reason == "coverage 0.500 is below 0.9 (critical); opens a critical alert at once."


def test_the_evidence_is_json_and_holds_the_window() -> None:
    evidence = play(threshold(), "gCgC")[-1].evidence
    assert json.loads(json.dumps(evidence)) == evidence
    assert [(run["run_id"], run["value"], run["severity"], run["good"]) for run in evidence["window"]] == [
        (1, 0.5, "critical", False),
        (2, 1.0, None, True),
        (3, 0.5, "critical", False),
    ]
    assert (evidence["bad"], evidence["of"], evidence["open"], evidence["close"]) == (2, 3, {"bad": 2, "of": 3}, 2)
    assert (evidence["critical"], evidence["warning"], evidence["first_bad_run"]) == (
        {"below": 0.9},
        {"below": 0.95},
        1,
    )


def test_a_changed_bound_keeps_the_alert_and_judges_the_past_anew() -> None:
    alert = open_alert(AlertState.FIRING, Severity.CRITICAL, opened_at=START, opened_run_id=0)
    strict = [observation(threshold(), number, "W") for number in range(3)]
    assert decide(threshold(), strict, alert).state is AlertState.FIRING
    lenient = replace(threshold(), warning=None, critical=Bound(below=0.8))
    relaxed = [observation(lenient, number, "W") for number in range(3)]
    assert decide(lenient, relaxed, alert).transitions == (RESOLVED,)


def test_an_alert_does_not_open_on_a_good_run_whatever_a_changed_rule_makes_of_the_past() -> None:
    past = [observation(threshold(), number, letter) for number, letter in enumerate("CCg")]
    assert decide(threshold(), past, None).state is AlertState.OK


def test_an_unknown_run_does_not_open_on_what_came_before_it() -> None:
    past = [observation(threshold(), number, letter) for number, letter in enumerate("CC?")]
    assert decide(threshold(), past, None).transitions == ()


def test_an_alert_that_no_run_opened_counts_the_runs_that_ended_later() -> None:
    opened = START + timedelta(minutes=5)
    alert = open_alert(AlertState.FIRING, Severity.CRITICAL, opened_at=opened)
    good = [observation(threshold(), number, "g") for number in range(3)]
    assert decide(threshold(), good[:2], alert).state is AlertState.FIRING
    assert decide(threshold(), good[:3], alert).state is AlertState.RECOVERING


def test_runs_after_the_opening_one_count_whatever_the_clocks_said() -> None:
    ahead = START + timedelta(days=1)
    alert = open_alert(AlertState.FIRING, Severity.CRITICAL, opened_at=ahead, opened_run_id=0)
    good = [observation(threshold(), number, "g") for number in range(1, 3)]
    assert decide(threshold(), good, alert).state is AlertState.RESOLVED


def test_nothing_resolves_while_a_canary_degraded_when_it_opened_is_awaited() -> None:
    alert = open_alert(AlertState.FIRING, Severity.CRITICAL, opened_at=START, opened_run_id=0)
    good = [observation(threshold(), number, "g") for number in range(1, 3)]
    held = decide(threshold(), good, alert, awaited=["ant", "bee"])
    assert (held.state, held.severity, held.transitions) == (AlertState.RECOVERING, Severity.CRITICAL, ())
    assert held.reason.endswith("; not resolved: ant, bee, degraded when it opened, not measured in this run.")


def test_deciding_twice_about_the_same_run_changes_nothing_more() -> None:
    runs = [observation(threshold(), number, "C") for number in range(2)]
    first = decide(threshold(), runs, None)
    again = decide(threshold(), runs, after(None, first, 1))
    assert (first.transitions, again.transitions, again.state) == ((OPENED,), (), AlertState.FIRING)


@pytest.mark.parametrize("cause", Retirement)
def test_an_alert_of_a_rule_that_is_gone_resolves_and_says_why(cause: Retirement) -> None:
    alert = open_alert(AlertState.FIRING, Severity.WARNING, opened_at=START, opened_run_id=1)
    decision = retire(alert, cause)
    assert (decision.state, decision.transitions) == (AlertState.RESOLVED, (RESOLVED,))
    assert decision.reason.startswith(f"{cause}: ")
    assert decision.evidence == {"cause": cause}


def test_what_never_opened_does_not_resolve() -> None:
    pending = open_alert(AlertState.PENDING, Severity.WARNING)
    decision = retire(pending, Retirement.RULE_REMOVED)
    assert (decision.state, decision.transitions) == (AlertState.OK, ())


@dataclass(slots=True)
class Memory:
    """The same rules kept in variables instead of rows, as a naive process would."""

    bad: int
    of: int
    close: int
    recent: deque[str]
    severity: str | None = None
    good: int = 0

    def hear(self, letter: str) -> list[str]:
        """Take in one run and say what changed."""
        if letter == "?":
            return []
        self.recent.append(letter)
        if letter == "g" and self.severity is not None:
            self.good += 1
            if self.good == self.close:
                self.severity, self.good = None, 0
                return ["resolved"]
        if letter != "g":
            self.good = 0
        if letter not in "CW":
            return []
        counts = {"critical": self.recent.count("C"), "warning": self.recent.count("C") + self.recent.count("W")}
        worst = next((severity for severity, count in counts.items() if count >= self.bad), None)
        if self.severity is None and worst is not None:
            self.severity = worst
            return ["opened"]
        if self.severity == "warning" and worst == "critical":
            self.severity = worst
            return ["escalated"]
        return []


NUMBERS = st.integers(1, 5).flatmap(lambda of: st.tuples(st.integers(1, of), st.just(of), st.integers(1, 4)))
STORIES = st.text("CWig?", max_size=60)


@settings(deadline=None, max_examples=300)
@given(numbers=NUMBERS, story=STORIES)
def test_rows_decide_as_memory_would_and_survive_a_restart_at_every_run(
    numbers: tuple[int, int, int], story: str
) -> None:
    bad, of, close = numbers
    rule = threshold(bad=bad, of=of, close=close)
    memory = Memory(bad=bad, of=of, close=close, recent=deque(maxlen=of))
    remembered = [memory.hear(letter) for letter in story]
    assert [list(decision.transitions) for decision in play(rule, story)] == remembered
    assert [list(decision.transitions) for decision in play(rule, story, all_rows=True)] == remembered


@settings(deadline=None, max_examples=200)
@given(numbers=NUMBERS, story=STORIES)
def test_transitions_alternate_and_the_severity_only_rises(numbers: tuple[int, int, int], story: str) -> None:
    bad, of, close = numbers
    decisions = play(threshold(bad=bad, of=of, close=close), story)
    flow = [type_ for decision in decisions for type_ in decision.transitions]
    ends = [type_ for type_ in flow if type_ is not ESCALATED]
    assert ends[:1] in ([], [OPENED])
    assert all(one is not other for one, other in pairwise(ends))
    for one, other in pairwise(flow):
        assert other is not ESCALATED or one is OPENED
    for before, now in pairwise(decisions):
        if before.severity is Severity.CRITICAL and before.state in {AlertState.FIRING, AlertState.RECOVERING}:
            assert now.severity is Severity.CRITICAL


@settings(deadline=None, max_examples=200)
@given(numbers=NUMBERS, story=STORIES, data=st.data())
def test_unknown_runs_never_change_a_threshold_alert(
    numbers: tuple[int, int, int], story: str, data: st.DataObject
) -> None:
    bad, of, close = numbers
    rule = threshold(bad=bad, of=of, close=close)
    known = story.replace("?", "")
    mixed = "".join(letter + "?" * data.draw(st.integers(0, 3)) for letter in known)
    without = [decision.transitions for decision in play(rule, known)]
    within = play(rule, mixed)
    assert [decision.transitions for decision, letter in zip(within, mixed, strict=True) if letter != "?"] == without
    unknown = [place for place, letter in enumerate(mixed) if letter == "?"]
    assert all(within[place].transitions == () for place in unknown)
    resting = {AlertState.RESOLVED: AlertState.OK}
    assert all(
        within[place].state is resting.get(within[place - 1].state, within[place - 1].state) for place in unknown
    )


@settings(deadline=None, max_examples=100)
@given(numbers=NUMBERS, story=STORIES)
def test_after_a_lasting_recovery_nothing_is_open(numbers: tuple[int, int, int], story: str) -> None:
    bad, of, close = numbers
    decisions = play(threshold(bad=bad, of=of, close=close), story + "g" * close)
    assert decisions[-1].state in {AlertState.OK, AlertState.RESOLVED}


EVERY_5M = parse_schedule(every="5m")
WEEKDAYS = parse_schedule(cron="0 9-17 * * 1-5", timezone="Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_no_data_is_due_at_the_second_scheduled_instant() -> None:
    completed, created = at("2026-05-04T10:01"), at("2026-01-01T00:00")
    assert no_data_due(EVERY_5M, completed, at("2026-05-04T10:09:59"), created) is None
    overdue = no_data_due(EVERY_5M, completed, at("2026-05-04T10:10"), created)
    assert overdue is not None
    assert (overdue.since, overdue.deadline, overdue.ever) == (completed, at("2026-05-04T10:10"), True)


def test_a_new_check_has_two_instants_to_complete_its_first_run() -> None:
    created = at("2026-05-04T10:01")
    assert no_data_due(EVERY_5M, None, at("2026-05-04T10:09"), created) is None
    overdue = no_data_due(EVERY_5M, None, at("2026-05-04T10:10"), created)
    assert overdue is not None
    assert (overdue.since, overdue.ever) == (created, False)


def test_a_check_taken_up_again_is_not_blamed_for_its_pause() -> None:
    assert no_data_due(EVERY_5M, at("2026-04-01T00:00"), at("2026-05-04T10:05"), at("2026-05-04T10:01")) is None


def test_the_weekend_of_a_cron_is_no_silence() -> None:
    friday, created = at("2026-05-08T15:00:20"), at("2026-01-01T00:00")
    for moment in ("2026-05-09T12:00", "2026-05-10T23:00", "2026-05-11T07:30"):
        assert no_data_due(WEEKDAYS, friday, at(moment), created) is None
    assert no_data_due(WEEKDAYS, friday, at("2026-05-11T08:00"), created) is not None


@pytest.mark.parametrize(
    ("status", "data"),
    [("finished", True), ("partial", True), ("failed", False), ("queued", False), ("running", False)],
)
def test_a_run_that_was_carried_out_is_data(status: str, *, data: bool) -> None:
    assert is_completed(RunStatus(status)) is data


def test_no_data_opens_at_once_and_resolves_with_the_next_run() -> None:
    overdue = no_data_due(EVERY_5M, START, START + timedelta(hours=1), START - timedelta(days=9))
    opened = decide_no_data(overdue, None)
    assert (opened.state, opened.severity, opened.transitions) == (AlertState.FIRING, Severity.CRITICAL, (OPENED,))
    assert opened.reason == (
        "No run has completed since 2026-05-04 10:00:00 UTC; the second scheduled one was due at "
        "2026-05-04 10:10:00 UTC."
    )
    assert json.loads(json.dumps(opened.evidence)) == opened.evidence
    alert = open_alert(AlertState.FIRING, Severity.CRITICAL, opened_at=START)
    assert decide_no_data(overdue, alert).transitions == ()
    resolved = decide_no_data(None, alert)
    assert (resolved.state, resolved.transitions) == (AlertState.RESOLVED, (RESOLVED,))
    assert decide_no_data(None, None).state is AlertState.OK


def test_a_check_that_never_ran_says_so() -> None:
    decision = decide_no_data(no_data_due(EVERY_5M, None, START + timedelta(hours=1), START), None)
    assert decision.reason.startswith("No run has completed since the check was created;")


def test_no_data_is_not_decided_by_runs() -> None:
    with pytest.raises(ValueError, match="decide_no_data"):
        decide(Rule(key="no_data", kind=RuleKind.NO_DATA), [], None)
