"""What the detector promises of single runs: bets, alarms, culprits, severity, closing."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.values import Severity, replace
from app.detection.domain import UNMEASURED, Change, Members, Observation, Reading, Settings, Signal
from app.detection.domain.decision import begin, step
from app.detection.domain.evidence import HIGHEST, bet, paid
from app.detection.domain.learning import LEAST_RATE, learn, usual, worse_than
from app.detection.domain.tracker import Follower, Runs, follow, learned, observe, replay
from tests.support.synthetic_runs import calm, closed, members_of, noisy, opened, replicas, runs_of, together

SETTINGS = Settings()


def readings(healthy: Runs, after: Runs, members: Members | None = None) -> list[Reading]:
    canaries = members or members_of(healthy.lost.shape[1])
    return [reading for _, reading in replay(canaries, healthy, after)]


NULL: dict[str, Callable[[int, int], Runs]] = {
    "missed at random": lambda runs, seed: noisy(100, runs, seed, failing=range(6)),
    "missed at random, often": lambda runs, seed: noisy(100, runs, seed, rate=0.05),
    "random replicas": lambda runs, seed: replicas(100, runs, seed, sticky=False),
    "sticky replicas": lambda runs, seed: replicas(100, runs, seed, sticky=True),
}


@pytest.mark.parametrize("regime", NULL)
def test_healthy_runs_raise_no_alarm(regime: str) -> None:
    for seed in range(2):
        history = NULL[regime](700, seed)
        found = readings(runs_of(history.lost[:300]), runs_of(history.lost[300:]))
        assert opened(found) == []
        assert max(one.evidence or 0 for one in found) < 1 / SETTINGS.alpha


def test_failed_probes_are_no_evidence() -> None:
    chance = np.random.default_rng(1)
    lost = np.where(chance.random((200, 100)) < 0.3, -1, 0).astype(np.int8)
    found = readings(calm(100, 300), runs_of(lost))
    assert opened(found) == []
    assert {one.lost for one in found} == {0}


@pytest.mark.parametrize(("broken", "soonest"), [(20, 1), (10, 1), (4, 2), (2, 2), (1, 4)])
def test_the_more_canaries_break_the_sooner_it_is_seen(broken: int, soonest: int) -> None:
    found = readings(calm(200, 300, failing=range(190, 200)), calm(200, 10, [*range(broken), *range(190, 200)]))
    assert opened(found) <= [soonest]
    assert opened(found) != []


def test_a_fault_in_noise_is_seen_and_its_canaries_are_named() -> None:
    broken = [3, 50, 77, 120, 160]
    for seed in range(3):
        found = readings(noisy(200, 300, seed), noisy(200, 12, seed + 100, failing=broken))
        assert opened(found)[0] <= 5
        assert sorted(one.position for one in found[opened(found)[0] + 4].culprits) == broken


def test_many_canaries_that_each_fail_a_little_are_seen_together() -> None:
    found = readings(noisy(200, 300, 1), noisy(200, 10, 2, rate=0.06))
    assert opened(found)[0] <= 4


def test_a_slow_drift_is_seen_with_its_first_canaries() -> None:
    lost = np.zeros((100, 200), np.int8)
    for canary in range(10):
        lost[10 * canary :, canary] = 1
    assert opened(readings(calm(200, 300), runs_of(lost))) == [3]


def test_a_lost_topic_is_named() -> None:
    topic = [one for one in range(100) if one % 10 == 3]
    found = readings(calm(100, 300), calm(100, 5, topic))
    assert found[0].change is Change.OPENED
    assert found[-1].groups[0] == "tag:3"
    assert "tag:3" in found[-1].reason


@pytest.mark.parametrize(
    ("lost", "lower", "told"),
    [
        (8, 0, "8 of 40 questions do not find their document (usually 0); "),
        (7, 1, "7 of 40 questions do not find their document (usually 0), 1 more is worse than usual; "),
        (0, 9, "all 40 questions find their document, 9 are worse than usual; "),
    ],
)
def test_a_reason_counts_no_canary_twice(lost: int, lower: int, told: str) -> None:
    matrix, quality = np.zeros((1, 40), np.int8), np.ones((1, 40))
    matrix[:, :lost] = 1
    quality[:, :lost], quality[:, lost : lost + lower] = 0.0, 0.3
    (found,) = readings(calm(40, 20), runs_of(matrix, quality))
    assert found.reason.startswith(told)
    assert (found.lost, found.worse, found.worse_alone) == (lost, lost + lower, lower)


@pytest.mark.parametrize(
    ("lost", "measured", "told"),
    [
        (3, 31, "3 of 31 measured questions do not find their document (usually 0); "),
        (0, 31, "all 31 measured questions find their document; "),
        (1, 1, "1 of 1 measured question does not find its document (usually 0); "),
        (0, 1, "the measured question finds its document; "),
    ],
)
def test_a_reason_counts_only_canaries_that_were_measured(lost: int, measured: int, told: str) -> None:
    matrix = np.zeros((1, 40), np.int8)
    matrix[:, :lost], matrix[:, measured:] = 1, UNMEASURED
    (found,) = readings(calm(40, 20), runs_of(matrix))
    assert found.reason.startswith(told)
    assert (found.lost, found.measured) == (lost, measured)


def test_a_group_of_all_canaries_is_not_told_as_a_finding() -> None:
    topic = [one for one in range(100) if one % 10 == 3]
    everyone, some = "category:simple_factual", "tag:3"
    members = Members(keys=tuple(range(100)), groups={everyone: np.arange(100), some: np.array(topic)})
    found = readings(calm(100, 300), calm(100, 8, range(60)), members)
    assert found[-1].change is not Change.CLOSED
    assert found[-1].groups == ("tag:3",)
    assert everyone not in " ".join(one.reason for one in found)


def test_a_category_that_nobody_stated_is_not_told_as_a_finding() -> None:
    places = np.arange(10)
    for name, told in (("category:simple_factual", ()), ("category:procedural", ("category:procedural",))):
        members = Members(keys=tuple(range(100)), groups={name: places})
        assert readings(calm(100, 300), calm(100, 5, range(10)), members)[-1].groups == told


@pytest.mark.parametrize("quiet", [1, 7])
def test_an_alarm_says_since_when(quiet: int) -> None:
    lost = np.zeros((20, 200), np.int8)
    lost[quiet:, 5] = 1
    found = readings(calm(200, 300), runs_of(lost))
    (at,) = opened(found)
    assert found[at - 1].since == at - quiet
    assert found[at].since == at - quiet + 1


def test_an_always_failing_canary_that_flickers_does_not_explode() -> None:
    lost = np.ones((300, 50), np.int8)
    after = np.ones((300, 50), np.int8)
    after[np.arange(0, 300, 3), 7] = 0
    found = readings(runs_of(lost), runs_of(after))
    assert opened(found) == []
    assert max(one.evidence or 0 for one in found) < 100


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 12))
def test_accounts_stay_finite_whatever_happens(seed: int, rate: float, later: float, count: int) -> None:
    chance = np.random.default_rng(seed)
    before = np.where(chance.random((20, count)) < rate, 1, chance.integers(-1, 2, (20, count))).astype(np.int8)
    after = np.where(chance.random((40, count)) < later, 1, chance.integers(-1, 2, (40, count))).astype(np.int8)
    members = members_of(count)
    runs = runs_of(before)
    follower = learned(follow(members), learn(members.keys, runs.lost, runs.ndcg))
    for lost, ndcg in zip(after, runs_of(after).ndcg, strict=True):
        follower, reading = observe(follower, members, Observation(lost=lost, ndcg=ndcg), SETTINGS)
        assert reading.evidence is not None
        assert 0 <= reading.evidence <= HIGHEST * 1.001
        for level in (follower.state.canaries, follower.state.grouped, follower.state.fleet):
            assert np.isfinite(level.accounts).all()
            assert np.isfinite(level.rises).all()


@given(st.floats(LEAST_RATE, 1 - LEAST_RATE), st.integers(0, 1))
def test_a_bet_pays_one_on_average_while_the_rate_is_right(rate: float, last: int) -> None:
    members = Members(keys=(1, 2), groups={"tag:a": np.array([0, 1])})
    rates = np.full((2, 2, 2), rate, np.float32)
    known, before = np.ones(2, np.bool_), np.full((2, 2), last, np.int8)
    outcomes = {}
    for first in (0, 1):
        for second in (0, 1):
            now = np.array([[first, second], [first, second]], np.int8)
            outcomes[first, second] = bet(rates, known, before, now, members)
    chance = {(a, b): (rate if a else 1 - rate) * (rate if b else 1 - rate) for a, b in outcomes}
    for level in ("canaries", "groups", "fleet"):
        mean = sum(chance[key] * np.exp(getattr(bets, level).astype(float)) for key, bets in outcomes.items())
        assert np.allclose(mean, 1, atol=1e-3)


def test_no_account_holds_more_than_the_most() -> None:
    state = begin(members_of(5))
    level = state.canaries
    for _ in range(20):
        level = paid(level, np.full(level.accounts.shape, 30, np.float32))
    assert level.accounts.max() == np.float32(HIGHEST)


def test_canaries_that_are_only_worse_are_a_warning_and_a_lost_one_makes_it_critical() -> None:
    healthy = calm(200, 300)
    ndcg = np.ones((20, 200))
    ndcg[:, [9, 10, 11]] = 0.5
    lost = np.zeros((20, 200), np.int8)
    lost[10:, 12] = 1
    found = readings(healthy, runs_of(lost, ndcg))
    first = found[opened(found)[0] - 1]
    assert first.severity is Severity.WARNING
    assert {one.severity for one in found[opened(found)[0] - 1 : 10]} == {Severity.WARNING}
    assert {(one.position, one.signal) for one in found[9].culprits} == {(place, Signal.WORSE) for place in (9, 10, 11)}
    escalated = [number for number, one in enumerate(found, 1) if one.change is Change.ESCALATED]
    assert len(escalated) == 1
    assert escalated[0] > 10
    assert found[-1].severity is Severity.CRITICAL


def test_a_single_lost_canary_is_critical() -> None:
    found = readings(calm(200, 300), calm(200, 6, [9]))
    last = found[-1]
    assert last.severity is Severity.CRITICAL
    assert [(one.position, one.signal) for one in last.culprits] == [(9, Signal.LOST)]


def test_worse_is_more_than_a_tenth_below_the_canarys_own_floor() -> None:
    floors = np.array([0.8, 0.8, 0.8, np.nan], np.float32)
    assert worse_than(floors, np.array([0.7, 0.69, np.nan, 0.1])).tolist() == [0, 1, -1, -1]


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("broken", [3, 30, 120])
def test_an_alarm_closes_after_two_good_runs_and_is_not_opened_again(noise: float, broken: int) -> None:
    healthy = noisy(200, 300, 1, rate=noise)
    after = together(noisy(200, 40, 2, noise, range(broken)), noisy(200, 60, 3, noise))
    found = readings(healthy, after)
    assert len(opened(found)) == 1
    (at,) = closed(found)
    assert 42 <= at <= 43
    assert not found[-1].open


def test_a_fault_that_heals_in_part_keeps_the_alarm_open() -> None:
    found = readings(calm(200, 300), together(calm(200, 20, range(20)), calm(200, 40, range(2))))
    assert closed(found) == []
    assert found[-1].open


def test_close_says_how_many_good_runs_it_takes() -> None:
    after = together(calm(50, 10, range(10)), calm(50, 20))
    patient = [reading for _, reading in replay(members_of(50), calm(50, 300), after, Settings(close=5))]
    assert closed(patient) == [15]
    assert [one.good for one in patient[10:15]] == [1, 2, 3, 4, 5]


def test_a_run_in_which_the_culprits_were_not_measured_is_no_good_run() -> None:
    unmeasured = np.zeros((10, 100), np.int8)
    unmeasured[:, :8] = -1
    found = readings(calm(100, 300), together(calm(100, 5, range(8)), runs_of(unmeasured)))
    assert closed(found) == []


def test_an_alarm_needs_the_failures_of_the_baseline_to_close() -> None:
    members = members_of(50)
    runs = calm(50, 20)
    follower = learned(follow(members), learn(members.keys, runs.lost, runs.ndcg))
    lost = calm(50, 1, range(20))
    seen = Observation(lost=lost.lost[0], ndcg=lost.ndcg[0])
    follower, reading = observe(follower, members, seen, SETTINGS)
    assert reading.open
    assert follower.baseline is not None
    without = Follower(state=follower.state, baseline=replace(follower.baseline, failures=None))
    with pytest.raises(ValueError, match="failures"):
        observe(without, members, seen, SETTINGS)


def test_the_accounts_begin_anew_once_an_alarm_closes() -> None:
    members = members_of(50)
    followers = [kept for kept, _ in replay(members, calm(50, 300), together(calm(50, 10, range(9)), calm(50, 2)))]
    assert followers[-2].state.canaries.accounts.max() > 1000
    assert followers[-1].state.canaries.accounts.max() == 0
    assert not followers[-1].state.culprits.any()


def test_a_canary_that_always_failed_is_nobodys_culprit() -> None:
    found = readings(calm(100, 300, range(5)), calm(100, 6, range(12)))
    assert sorted(one.position for one in found[-1].culprits) == list(range(5, 12))


def test_observations_of_other_canaries_are_refused() -> None:
    members = members_of(5)
    seen = Observation(lost=np.zeros(4, np.int8), ndcg=np.ones(4))
    with pytest.raises(ValueError, match="same canaries"):
        step(begin(members), None, members, seen, SETTINGS)


def test_what_is_usual_holds_for_99_of_100_runs() -> None:
    failures = np.zeros((100, 10), np.bool_)
    failures[0] = True
    failures[1:4, :2] = True
    assert usual(failures) == 2
