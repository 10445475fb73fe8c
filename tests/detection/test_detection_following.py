"""What the detector promises from run to run: warming up, learning, realigning, and the same numbers once more."""

import json
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.base.values import Severity
from app.detection.domain import NO_HITS, Change, Observation, Settings, Signal
from app.detection.domain.decision import RESTLESS
from app.detection.domain.evidence import poisson_tail, realign, realign_baseline, surprising
from app.detection.domain.learning import learn
from app.detection.domain.tracker import (
    Follower,
    follow,
    learn_when_due,
    learned,
    observe,
    pack_baseline,
    pack_habits,
    pack_state,
    replay,
    unpack_baseline,
    unpack_habits,
    unpack_state,
)
from tests.support.synthetic_runs import Live, calm, closed, members_of, noisy, opened, replicas, runs_of, together


def test_20_identical_runs_are_a_baseline() -> None:
    live = Live.of(members_of(30))
    found = live.takes(calm(30, 25))
    assert live.learned == [20]
    assert [one.evidence is None for one in found] == [True] * 20 + [False] * 5
    assert found[0].warming is not None
    assert "1 of 20 identical runs" in found[0].warming
    assert found[-1].warming is None


def test_runs_with_failed_probes_are_identical_if_what_was_measured_is() -> None:
    lost = np.zeros((25, 30), np.int8)
    lost[np.arange(25), np.arange(25)] = -1
    live = Live.of(members_of(30))
    live.takes(runs_of(lost))
    assert live.learned == [20]


def test_runs_that_differ_take_300_to_learn_of_then_every_100() -> None:
    live = Live.of(members_of(30))
    live.takes(noisy(30, 520, 1, rate=0.02))
    assert live.learned == [300, 400, 500]


def test_a_young_baseline_is_learned_anew_each_time_it_can_be_twice_as_old() -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 470))
    assert live.learned == [20, 40, 80, 160, 260, 360, 460]
    assert live.follower.baseline is not None
    assert live.follower.baseline.runs == 300


def test_a_pinned_baseline_is_not_learned_anew() -> None:
    live = Live.of(members_of(30), Settings(relearn=False))
    live.takes(calm(30, 200))
    assert live.learned == [20]


def test_nothing_is_learned_of_an_alarm() -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 30))
    found = live.takes(calm(30, 100, range(6)))
    assert opened(found) == [2]
    assert found[1].since == 2
    assert live.learned == [20]
    assert found[-1].open
    live.takes(calm(30, 60))
    assert [number > 130 for number in live.learned] == [False, True, True]
    assert live.follower.baseline is not None
    assert live.follower.baseline.failures is not None
    assert not live.follower.baseline.failures.any()


def test_nothing_is_learned_while_another_alert_fires() -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 60, range(6)), alerted=True)
    assert live.learned == []
    live.takes(calm(30, 20))
    assert live.learned == [80]


def test_nothing_is_learned_while_evidence_is_gathering() -> None:
    """Learning would be due with the second run of a fault that takes longer to be believed."""
    live = Live.of(members_of(400))
    live.takes(calm(400, 38))
    found = live.takes(calm(400, 8, [7]))
    assert opened(found)[0] > 2
    assert live.learned == [20]


def test_what_is_kept_as_bytes_goes_on_with_the_same_numbers() -> None:
    members = members_of(40)
    healthy, after = noisy(40, 300, 1, 0.03), together(noisy(40, 30, 2, 0.03, range(5)), noisy(40, 60, 3, 0.03))
    at_once = [reading for _, reading in replay(members, healthy, after, Settings(relearn=False))]
    follower = learned(follow(members), learn(members.keys, healthy.lost, healthy.ndcg))
    again = []
    for lost, ndcg in zip(after.lost, after.ndcg, strict=True):
        assert follower.baseline is not None
        body, failures = pack_baseline(follower.baseline)
        baseline = unpack_baseline(body, failures)
        state = unpack_state(pack_state(follower.state))
        habits = unpack_habits(pack_habits(follower.habits))
        kept = Follower(state=state, baseline=baseline, habits=habits)
        follower, reading = observe(kept, members, Observation(lost=lost, ndcg=ndcg), Settings())
        again.append(reading)
    assert again == at_once
    assert opened(again) != []
    assert closed(again) != []


def test_history_led_through_once_more_gives_the_same_numbers() -> None:
    history = together(noisy(30, 320, 1, 0.02), calm(30, 20, range(4)), noisy(30, 60, 2, 0.02))
    assert Live.of(members_of(30)).takes(history) == Live.of(members_of(30)).takes(history)


@pytest.mark.parametrize("data", [b"", b"no", pack_state(follow(members_of(3)).state)[:-3], b"x" * 100])
def test_bytes_that_are_no_state_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no state"):
        unpack_state(data)


def _written(head: Any, after: bytes = b"") -> bytes:
    """Pack a head, JSON or bytes, as a state is packed."""
    told = head if isinstance(head, bytes) else json.dumps(head).encode()
    return zlib.compress(len(told).to_bytes(4, "little") + told + after)


_HEAD: dict[str, Any] = {"kind": "state", "version": 1, "plain": {"keys": ["a"]}, "arrays": {}}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (_written(b"[" * 200_000), "recursion"),
        (_written(b""), "no head"),
        (zlib.compress(b"\xff" * 100), "too long"),
        (_written({**_HEAD, "arrays": {"last": ["|i1", [1 << 20]]}}, bytes(1 << 20)), "larger than they may be"),
        (_written({**_HEAD, "plain": {}, "arrays": {"keys": ["<i8", [1 << 30]]}}), "more canaries"),
        (_written({**_HEAD, "arrays": {"last": ["|i1", [-1, -1]]}}, b"x"), "of no kind"),
        (_written({**_HEAD, "arrays": {"last": ["|i1", [1]]}}, b"xy"), "longer or shorter"),
        (_written({**_HEAD, "arrays": {"last": ["|i1", [2]]}}, b"x"), "longer or shorter"),
        (_written({**_HEAD, "version": 2}), "none of version 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bytes_that_lie_are_refused_before_they_are_unpacked(data: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=f"no state.*{told}"):
        unpack_state(data)


@pytest.mark.parametrize(("runs", "canaries"), [(20, 5), (30, 4), (1, 1), (4, 30)])
def test_failures_of_another_baseline_are_refused(runs: int, canaries: int) -> None:
    body, failures = pack_baseline(learn(tuple(range(5)), calm(5, 30).lost, calm(5, 30).ndcg))
    other = learn(tuple(range(canaries)), calm(canaries, runs).lost, calm(canaries, runs).ndcg)
    assert unpack_baseline(body, failures).failures is not None
    with pytest.raises(ValueError, match="no failures"):
        unpack_baseline(body, pack_baseline(other)[1])


def test_usual_numbers_without_end_are_refused() -> None:
    head = b'{"kind": "baseline", "version": 1, "plain": {"keys": [], "usual": [Infinity, 1]}, "arrays": {}}'
    with pytest.raises(ValueError, match="no baseline"):
        unpack_baseline(_written(head))


def test_a_state_is_not_taken_for_a_baseline() -> None:
    with pytest.raises(ValueError, match="no baseline"):
        unpack_baseline(pack_state(follow(members_of(3)).state))


def test_names_are_kept_as_keys_too() -> None:
    members = members_of(4)
    state = realign(follow(members).state, type(members)(keys=("a", "b", "ü", "d")))
    assert unpack_state(pack_state(state)).keys == ("a", "b", "ü", "d")


def test_three_strikes_of_a_calm_canary_raise_an_alarm_while_warming_up() -> None:
    live = Live.of(members_of(50))
    live.takes(noisy(50, 60, 1, rate=0.005))
    found = live.takes(together(noisy(50, 6, 5, 0.0, [7]), noisy(50, 6, 6, 0.0)))
    assert opened(found) == [3]
    assert [(one.position, one.signal) for one in found[2].culprits] == [(7, Signal.LOST)]
    assert found[2].since == 3
    assert "1 canary was stable and now fails 3 runs in a row" in found[2].reason
    assert closed(found) == [8]


def test_two_strikes_raise_none() -> None:
    live = Live.of(members_of(50))
    live.takes(noisy(50, 60, 1, rate=0.005))
    assert opened(live.takes(together(calm(50, 2, [7]), calm(50, 3), calm(50, 2, [7])))) == []


def test_a_canary_that_failed_for_long_and_recovered_is_not_calm() -> None:
    lost = np.zeros((80, 50), np.int8)
    lost[20:24, 7] = lost[60:70, 7] = 1
    lost[::9, 8] = 1  # so that runs are not identical
    assert opened(Live.of(members_of(50)).takes(runs_of(lost))) == [23]


def test_many_newly_failing_canaries_raise_an_alarm_at_once_while_warming_up() -> None:
    live = Live.of(members_of(100))
    live.takes(noisy(100, 40, 1, rate=0.005))
    found = live.takes(together(calm(100, 5, range(20, 32)), calm(100, 4)))
    assert opened(found) == [1]
    assert {one.position for one in found[0].culprits} == set(range(20, 32))
    assert closed(found) == [7]


def test_the_poisson_tail_is_the_one_of_the_books() -> None:
    assert poisson_tail(0, 2.0) == 1
    assert poisson_tail(3, 1.0) == pytest.approx(0.0803014)
    assert poisson_tail(5, 0.5) == pytest.approx(0.000172116, rel=1e-4)


def test_few_newly_failing_canaries_after_few_runs_are_no_surprise() -> None:
    assert not surprising(20, 0, 9)
    assert not surprising(2, 0, 20)
    assert surprising(5, 0, 20)


def test_a_fault_before_anything_was_calm_is_learned_as_it_is() -> None:
    live = Live.of(members_of(50))
    assert opened(live.takes(calm(50, 30, range(10)))) == []


def test_a_retriever_whose_short_baseline_cries_wolf_is_taken_for_restless() -> None:
    """Twenty identical runs were those of one replica; the others alarm twice, and are a habit twice."""
    stints = [calm(100, 30), calm(100, 12, [3, 4, 5])] * 12
    found = Live.of(members_of(100)).takes(together(*stints))
    assert len(opened(found)) == 2
    assert sum(one.habit is not None for one in found) in range(24, 29)
    assert max(opened(found)) < 200


def test_a_fourth_fault_of_other_canaries_is_noticed_as_the_first_was() -> None:
    """Three faults soon after the start, one of them of everybody, make nobody restless."""
    live = Live.of(members_of(100))
    live.takes(calm(100, 25))
    for failing in (range(7), range(5, 60), range(100), range(60, 80)):
        assert opened(live.takes(calm(100, 4, failing))), failing
        assert len(closed(live.takes(calm(100, 4)))) == 1


def test_a_fault_of_the_whole_suite_is_noticed_each_time() -> None:
    """However often everything was repaired soon after the start, nobody becomes unknown of it."""
    live = Live.of(members_of(100))
    live.takes(calm(100, 25))
    for _ in range(RESTLESS + 3):
        found = live.takes(calm(100, 8, range(100)))
        assert (opened(found), found[-1].unknown) == ([1], 0)
        assert closed(live.takes(calm(100, 4))) == [2]


def test_a_fault_of_restless_canaries_that_stays_is_noticed() -> None:
    """As the habit it looks like once it lasts longer than what ended by itself, as an alarm once 20 times as long."""
    live = Live.of(members_of(100))
    live.takes(calm(100, 25))
    for other in range(RESTLESS + 1):
        live.takes(calm(100, 8, [*range(30), 90 + other]))
        live.takes(calm(100, 4))
    found = live.takes(calm(100, 163, range(30)))
    assert found[0].unknown == 30
    assert [run for run, one in enumerate(found, start=1) if one.habit is not None] == [*range(9, 161)]
    assert opened(found) == [161]
    assert found[-1].severity is Severity.CRITICAL


def answered(answer: int, places: Sequence[int]) -> list[int]:
    """All canaries give one answer."""
    return [answer] * len(places)


@pytest.mark.parametrize(("failing", "answer", "alarms"), [(30, 1, False), (51, 1, True), (30, NO_HITS, True)])
def test_restless_canaries_count_where_most_fail_or_answers_are_empty(
    failing: int, answer: int, *, alarms: bool
) -> None:
    live = Live.of(members_of(100))
    live.takes(calm(100, 25))
    for other in range(RESTLESS + 1):
        live.takes(calm(100, 8, [*range(30), 90 + other]))
        live.takes(calm(100, 4))
    lost = np.zeros(100, np.int8)
    lost[:failing] = 1
    now = Observation(lost=lost, ndcg=1.0 - lost.astype(float), answers=partial(answered, answer))
    _, reading = observe(live.follower, live.members, now, live.settings)
    assert reading.open is alarms


def test_faults_of_the_same_canaries_with_other_answers_make_nobody_restless() -> None:
    live = Live.of(members_of(100))
    live.takes(calm(100, 25))
    for fault in range(RESTLESS + 3):
        lost = np.zeros(100, np.int8)
        lost[:30] = 1
        now = Observation(lost=lost, ndcg=1.0 - lost.astype(float), answers=partial(answered, fault))
        readings = []
        for _ in range(4):
            live.follower, reading = observe(live.follower, live.members, now, live.settings)
            readings.append(reading)
        assert (opened(readings), readings[-1].unknown) == ([1], 0)
        live.takes(calm(100, 3))


def test_sticky_replicas_are_learned_in_time() -> None:
    live = Live.of(members_of(60))
    found = live.takes(replicas(60, 900, 3, sticky=True, misses=0.05))
    assert len(opened(found)) <= 5
    assert max(opened(found), default=0) < 400


def test_a_new_canary_is_unknown_until_the_next_learning() -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 100))
    live.members = members_of(31)
    found = live.takes(calm(31, 30))
    assert live.learned[-2:] == [80, 120]
    assert [one.unknown for one in found] == [1] * 20 + [0] * 10


def test_three_strikes_watch_a_new_canary() -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 100))
    live.members = members_of(31)
    live.takes(calm(31, 12))
    found = live.takes(together(calm(31, 5, [30]), calm(31, 3)))
    assert opened(found) == [3]
    assert [one.position for one in found[2].culprits] == [30]
    assert closed(found) == [7]


@pytest.mark.parametrize("kept", [0, 1, 2, 6])
@pytest.mark.parametrize("failing", [(), range(27, 30)])
def test_however_many_canaries_are_new_versions_they_are_learned(kept: int, failing: Sequence[int]) -> None:
    """What pays neither way comes to 33 by itself, which is not an alarm on its way."""
    live = Live.of(members_of(30))
    live.takes(calm(30, 20, failing))
    live.members = members_of(30, first=30 - kept)
    found = live.takes(calm(30, 25, range(max(kept - 3, 0), kept) if failing else ()))
    assert [one.unknown for one in found[-5:]] == [0] * 5
    assert opened(live.takes(calm(30, 6, range(10, 18))))


def test_where_no_canary_is_known_there_is_no_evidence() -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 20))
    live.members = members_of(30, first=30)
    found = live.takes(calm(30, 15))
    assert [(one.evidence, dict(one.scopes)) for one in found] == [(0.0, {})] * 15


def test_what_always_failed_and_heals_is_learned_anew() -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 25, range(30)))
    live.takes(calm(30, 60))
    assert len(live.learned) > 1


@pytest.mark.parametrize("changed", [3, 15, 30])
def test_new_versions_of_canaries_close_no_alarm_while_they_fail(changed: int) -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 20))
    assert opened(live.takes(calm(30, 4, range(3))))
    live.members = members_of(30, first=changed)  # the keys of the first are gone, the last are new
    broken = range(27, 30)
    assert all(one.open for one in live.takes(calm(30, 8, broken)))
    assert closed(live.takes(calm(30, 3))) == [2]


def test_a_canary_added_during_an_alarm_that_never_passed_keeps_it_from_nothing() -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 20))
    assert opened(live.takes(calm(30, 4, range(3))))
    live.members = members_of(31)
    assert closed(live.takes(calm(31, 3, [30]))) == [2]


def test_what_is_known_of_a_canary_goes_where_it_goes() -> None:
    members = members_of(6)
    runs = calm(6, 20, [4])
    follower = learned(follow(members), learn(members.keys, runs.lost, runs.ndcg))
    assert follower.baseline is not None
    seen = Observation(lost=np.array([1, 0, 0, 0, 1, 0], np.int8), ndcg=np.array([0, 1, 1, 1, 0, 1.0]))
    follower, _ = observe(follower, members, seen, Settings())
    other = type(members)(keys=(9, 4, 0), groups={"tag:new": np.array([0, 1])})
    state = realign(follower.state, other)
    assert follower.baseline is not None
    baseline = realign_baseline(follower.baseline, other.keys)
    assert baseline.known.tolist() == [False, True, True]
    assert baseline.last[0].tolist() == [-1, 1, 0]
    assert state.last[0].tolist() == [-1, 1, 1]
    assert state.canaries.accounts[0, 0].tolist() == [
        0.0,
        float(follower.state.canaries.accounts[0, 0, 4]),
        float(follower.state.canaries.accounts[0, 0, 0]),
    ]
    assert state.grouped.accounts.max() == 0
    assert np.array_equal(state.fleet.accounts, follower.state.fleet.accounts)


def test_an_alarm_goes_on_when_other_canaries_change() -> None:
    live = Live.of(members_of(30))
    live.takes(calm(30, 40))
    assert opened(live.takes(calm(30, 5, [3, 4, 5]))) != []
    live.members = members_of(29, first=1)
    found = live.takes(calm(29, 3, [2, 3, 4]))
    assert all(one.open for one in found)
    assert {one.position for one in found[-1].culprits} == {2, 3, 4}
    assert found[0].change is None
    assert live.takes(calm(29, 2))[-1].change is Change.CLOSED


def test_a_canary_measured_too_rarely_stays_unknown() -> None:
    lost = np.zeros((300, 10), np.int8)
    lost[:250, 3] = -1
    lost[::50, 5] = 1
    runs = runs_of(lost)
    assert np.flatnonzero(~learn(range(10), runs.lost, runs.ndcg).known).tolist() == [3]


def test_rates_tell_what_follows_a_pass_from_what_follows_a_failure() -> None:
    lost = np.zeros((300, 50), np.int8)
    for start in range(0, 300, 60):
        lost[start : start + 20, 4] = 1
    runs = runs_of(lost)
    rates = learn(range(50), runs.lost, runs.ndcg).rates[0]
    assert 0.01 < rates[0, 4] < 0.06
    assert 0.9 < rates[1, 4] < 1
    assert rates[0, 0] < 0.01


def test_calm_canaries_are_drawn_to_each_other_but_never_below_their_own_share() -> None:
    runs = noisy(200, 300, 1)
    runs.lost[:, 7] = 0
    runs.lost[10::25, 7] = 1
    rates = learn(range(200), runs.lost, runs.ndcg).rates[0, 0]
    others = np.delete(rates, 7)
    assert others.min() > 0.008  # each by itself: 0.007 to 0.041
    assert others.max() < 0.03
    assert rates[7] >= 12 / 288


def test_a_calm_canary_that_has_just_failed_is_no_safer_than_one_that_passed() -> None:
    runs = noisy(200, 300, 1, 0.03)
    rates = learn(range(200), runs.lost, runs.ndcg).rates[0]
    calm_ones = runs.lost.mean(axis=0) < 0.05
    assert (rates[1] >= rates[0])[calm_ones].all()


def test_no_runs_are_no_baseline() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        learn(range(3), np.zeros((0, 3), np.int8), np.zeros((0, 3)))


def test_learning_waits_where_the_runs_are_gone() -> None:
    members, settings = members_of(10), Settings()
    follower = follow(members)
    asked = []

    def pruned(limit: int) -> tuple[np.ndarray, np.ndarray]:
        asked.append(limit)
        runs = calm(10, 5)
        return runs.lost, runs.ndcg

    runs = calm(10, 40)
    for lost, ndcg in zip(runs.lost, runs.ndcg, strict=True):
        follower, _ = observe(follower, members, Observation(lost=lost, ndcg=ndcg), settings)
        follower = learn_when_due(follower, pruned, settings, eligible=True)
    assert follower.baseline is None
    assert len(asked) == 2


@pytest.mark.parametrize("seed", range(6))
def test_a_failure_that_was_never_seen_to_last_is_not_taken_for_impossible(seed: int) -> None:
    """Else three misses in a row, which chance brings to a small suite in the end, would be an alarm."""
    runs = noisy(50, 300, seed)
    rates = learn(range(50), runs.lost, runs.ndcg).rates[0]
    missed = runs.lost.mean()
    assert rates[1].min() >= 0.9 * missed
    assert rates[1].max() < 0.2
