"""What the account of several canaries promises: a fair bet, and that a few that break together are seen sooner."""

import itertools
import json
import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.values import replace
from app.detection.domain import Observation, Settings
from app.detection.domain.evidence import REMEMBERED, joint_balance, nothing_recent, realign, remembered
from app.detection.domain.learning import learn
from app.detection.domain.tracker import follow, learned, observe, pack_state, replay, unpack_state
from tests.support.synthetic_runs import calm, members_of, noisy, opened, together

RATES = st.floats(0.002, 0.998)


@settings(max_examples=40)
@given(RATES, RATES, st.integers(0, 1))
def test_a_run_pays_no_more_than_one_on_average_while_the_rates_are_right(
    after_pass: float, after_fail: float, before: int
) -> None:
    rates = np.tile(np.array([after_pass, after_fail], np.float32)[:, None], (2, 1, 3))
    known = np.ones(3, np.bool_)
    mean = 0.0
    for outcome in itertools.product((0, 1), repeat=6):
        recent, last, chance = nothing_recent(2, 3), np.full((2, 3), before, np.int8), 1.0
        for run in (outcome[:3], outcome[3:]):
            for was, now in zip(last[0].tolist(), run, strict=True):
                rate = after_fail if was else after_pass
                chance *= rate if now else 1 - rate
            seen = np.array([run, run], np.int8)
            recent, last = remembered(recent, known, last, seen), seen
        mean += chance * joint_balance(recent, rates, known)
    assert mean <= REMEMBERED * 1.001


def test_a_few_that_break_together_in_noise_are_seen_within_two_runs() -> None:
    delays = []
    for seed in range(8):
        healthy, broken = noisy(200, 300, seed), noisy(200, 10, 100 + seed, failing=range(0, 180, 45))
        delays.append(opened([one for _, one in replay(members_of(200), healthy, broken)])[0])
    assert max(delays) <= 2


def test_what_was_not_measured_or_is_unknown_pays_nothing() -> None:
    last, now = np.zeros((2, 4), np.int8), np.array([[1, -1, 1, 1]] * 2, np.int8)
    known = np.array([True, True, True, False])
    last[:, 2] = -1
    recent = remembered(nothing_recent(2, 4), known, last, now)
    assert (recent[:, 0] > 0).all()
    assert not recent[:, 1:].any()


def test_bets_are_forgotten_after_some_runs_and_when_an_alarm_closes() -> None:
    members, healthy = members_of(40), calm(40, 300)
    follower = learned(follow(members), learn(members.keys, healthy.lost, healthy.ndcg))
    scopes = []
    for failing in [(1,), *[()] * REMEMBERED]:
        lost = np.zeros(40, np.int8)
        lost[list(failing)] = 1
        follower, reading = observe(
            follower, members, Observation(lost=lost, ndcg=np.where(lost == 1, 0.0, 1.0)), Settings()
        )
        scopes.append(reading.scopes["several"])
    assert scopes[-1] < scopes[-2] < scopes[0]
    *_, (after, last) = replay(members, healthy, calm(40, 6, range(20)))
    assert last.open
    assert after.state.recent.any()
    *_, (after, last) = replay(members, healthy, together(calm(40, 6, range(20)), calm(40, 3)))
    assert not last.open
    assert after.state.recent.max() < 2**6


def test_bets_are_not_paid_by_the_rates_of_a_later_baseline() -> None:
    members, healthy = members_of(40), calm(40, 300)
    follower = learned(follow(members), learn(members.keys, healthy.lost, healthy.ndcg))
    lost = np.zeros(40, np.int8)
    lost[3:7] = 1
    seen = Observation(lost=lost, ndcg=np.where(lost == 1, 0.0, 1.0))
    follower, before = observe(follower, members, seen, Settings())
    later = replace(follower, state=replace(follower.state, last=np.zeros_like(follower.state.last)))
    again = learned(later, learn(members.keys, healthy.lost, healthy.ndcg))
    _, after = observe(again, members, Observation(lost=0 * lost, ndcg=np.ones(40)), Settings())
    assert after.scopes["several"] < 10 < before.scopes["several"]


def test_canaries_keep_their_bets_where_others_come_and_go() -> None:
    members = members_of(6)
    state = replace(follow(members).state, recent=np.arange(12, dtype=np.int32).reshape(2, 6))
    moved = realign(state, members_of(6, first=2))
    assert moved.recent.tolist() == [[2, 3, 4, 5, 0, 0], [8, 9, 10, 11, 0, 0]]


def test_a_state_of_an_earlier_release_begins_without_bets() -> None:
    state = follow(members_of(5)).state
    assert unpack_state(_without("several.recent", pack_state(state))).recent.tolist() == [[0] * 5] * 2


def _without(name: str, data: bytes) -> bytes:
    """Give a packed state as it would be without one of its arrays."""
    raw = zlib.decompress(data)
    start = 4 + int.from_bytes(raw[:4], "little")
    head, body, kept = json.loads(raw[4:start]), raw[start:], b""
    for array, (dtype, shape) in head["arrays"].items():
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        kept, body = kept + (b"" if array == name else body[:size]), body[size:]
    del head["arrays"][name]
    told = json.dumps(head).encode()
    return zlib.compress(len(told).to_bytes(4, "little") + told + kept)
