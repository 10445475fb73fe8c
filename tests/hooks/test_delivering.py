"""Delivering: temporary failures are retried for a day, untaken ones stop early, and 410 ends the hook."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.values import DeliveryState
from app.hooks.domain import Receipt, after_attempt, backoff

START = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
SERVER_ERROR = Receipt(ok=False, http_status=500, error="refused")
JITTER = st.floats(0, 1, exclude_max=True)


def test_a_late_success_still_counts() -> None:
    step = after_attempt(Receipt(ok=True), 40, START, START + timedelta(days=2), 0.5)
    assert step.state is DeliveryState.DELIVERED


def test_a_temporary_failure_is_retried_after_about_five_seconds() -> None:
    step = after_attempt(SERVER_ERROR, 1, START, START, 0.0)
    assert (step.state, step.next_attempt_at) == (DeliveryState.PENDING, START + timedelta(seconds=5))
    assert step.reason == "The receiver answered 500: attempt 2 follows in 5 s."


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (99, 60)])
def test_waits_double_up_to_a_minute(attempts: int, seconds: float) -> None:
    assert backoff(attempts, None, 0.0) == seconds


@settings(deadline=None)
@given(attempts=st.integers(0, 10_000), jitter=JITTER, retry_after=st.none() | st.floats(-10, 1e12))
def test_every_wait_is_positive_and_at_most_five_minutes(
    attempts: int, jitter: float, retry_after: float | None
) -> None:
    assert 3.75 <= backoff(attempts, retry_after, jitter) <= (60 if retry_after is None else 300)


def test_jitter_spreads_what_failed_together() -> None:
    rng = random.Random(3)  # noqa: S311 - the draw of a test
    waits = {backoff(5, None, rng.random()) for _ in range(100)}
    assert len(waits) == 100
    assert 45 <= min(waits) < 47
    assert 58 < max(waits) <= 60


@pytest.mark.parametrize(
    ("retry_after", "wait"), [(120.0, 120.0), (1.0, 5.0), (86_400.0, 300.0), (0.0, 5.0), (-5.0, 5.0)]
)
def test_retry_after_is_respected_up_to_five_minutes(retry_after: float, wait: float) -> None:
    assert backoff(1, retry_after, 0.0) == wait


@settings(deadline=None)
@given(attempts=st.integers(1, 20), jitter=JITTER, retry_after=st.floats(0, 300))
def test_nothing_is_sent_sooner_than_the_receiver_asked(attempts: int, jitter: float, retry_after: float) -> None:
    receipt = Receipt(ok=False, http_status=429, retry_after_seconds=retry_after)
    step = after_attempt(receipt, attempts, START, START, jitter)
    assert step.next_attempt_at is not None
    assert step.next_attempt_at >= START + timedelta(seconds=retry_after) - timedelta(microseconds=1)


def test_after_a_day_the_delivery_is_dead() -> None:
    day = timedelta(hours=24)
    before = after_attempt(SERVER_ERROR, 30, START, START + day - timedelta(seconds=1), 0.0)
    after = after_attempt(SERVER_ERROR, 31, START, START + day, 0.0)
    assert (before.state, after.state) == (DeliveryState.PENDING, DeliveryState.DEAD)
    assert after.reason == "The receiver answered 500: gave up after 24 hours and 31 attempts."


@settings(deadline=None)
@given(seed=st.integers(0, 1000))
def test_a_receiver_that_never_answers_is_tried_for_a_day_and_then_left_alone(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - the draw of a test
    now, attempts = START, 0
    while True:
        attempts += 1
        step = after_attempt(SERVER_ERROR, attempts, START, now, rng.random())
        if step.next_attempt_at is None:
            break
        assert step.next_attempt_at > now
        now = step.next_attempt_at
    assert step.state is DeliveryState.DEAD
    assert timedelta(hours=24) <= now - START <= timedelta(hours=25)
    assert 1_440 <= attempts <= 1_930


@pytest.mark.parametrize("status", [307, 400, 401, 404, 422, 429, 500])
def test_whatever_the_receiver_answers_is_tried_again_for_a_day(status: int) -> None:
    receipt = Receipt(ok=False, http_status=status, untaken=True)
    steps = [after_attempt(receipt, attempts, START, START, 0.0) for attempts in (1, 3, 100)]
    assert [step.state for step in steps] == ["pending"] * 3
    assert not any(step.disable_hook for step in steps)
    last = after_attempt(receipt, 101, START, START + timedelta(hours=24), 0.0)
    assert (last.state, last.disable_hook) == (DeliveryState.DEAD, False)


def test_every_failure_has_a_reason_even_without_details() -> None:
    timed_out = after_attempt(Receipt(ok=False, error="timeout"), 1, START, START, 0.0)
    assert timed_out.reason == "The attempt failed (timeout): attempt 2 follows in 5 s."
    assert after_attempt(Receipt(ok=False), 1, START, START, 0.0).reason.startswith("The attempt failed: ")
