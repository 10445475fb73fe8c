"""The rate of a peer that refuses requests: halved once a round, and raised by steps."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.limits import (
    LEAST_RATE,
    LONGEST_PAUSE_SECONDS,
    STREAK,
    RateControl,
    Refusal,
    merge_slowings,
    slowing_text,
)
from app.base.values import Slowing


class Asked:
    """A peer that is asked at moments given by hand."""

    def __init__(self) -> None:
        self.control = RateControl()

    def begin(self, *moments: float) -> None:
        """Send requests."""
        for moment in moments:
            self.control.begin(moment)

    def refuse(
        self,
        begun_at: float,
        now: float,
        *,
        after: float | None = None,
        status: int = 429,
        since: float = 0.0,
        patience: float = 300.0,
    ) -> Refusal:
        """Have a request refused."""
        return self.control.refuse(begun_at, now, status=status, retry_after=after, since=since, patience=patience)

    def accept(self, count: int, now: float, *, most: float = math.inf) -> None:
        """Have requests accepted that were sent at that moment; they do not count as sent."""
        for _ in range(count):
            self.control.accept(now, most=most)


@pytest.fixture
def asked() -> Asked:
    """Give a peer that was sent 16 requests within a second, accepted one and refused another for a second."""
    asked = Asked()
    asked.begin(*(number / 16 for number in range(16)))
    asked.accept(1, 0.5)
    assert not asked.refuse(0.9, 1.0, after=1.0).is_final
    return asked


def test_a_peer_that_refuses_nothing_is_not_slowed() -> None:
    asked = Asked()
    asked.begin(0.0)
    asked.accept(100, 0.1)
    assert (asked.control.rate, asked.control.interval) == (None, 0.0)


def test_a_refusal_halves_the_rate_at_which_requests_were_sent(asked: Asked) -> None:
    assert asked.control.rate == pytest.approx(8.0)
    assert asked.control.interval == pytest.approx(1 / 8)
    assert asked.control.paused_until == 2.0


def test_a_peer_that_accepted_nothing_yet_is_given_time_alone() -> None:
    asked = Asked()
    asked.begin(0.0)
    asked.refuse(0.0, 0.1, after=2.0)
    assert (asked.control.rate, asked.control.paused_until) == (None, 2.1)


def test_requests_that_were_under_way_together_halve_it_once(asked: Asked) -> None:
    for begun_at in (0.0, 0.5, 1.0):
        asked.refuse(begun_at, 1.2, after=1.0)
    assert asked.control.rate == pytest.approx(8.0)
    assert asked.control.paused_until == pytest.approx(2.2)


def test_the_next_round_halves_it_again_once_something_was_accepted(asked: Asked) -> None:
    asked.begin(2.0, 2.1)
    asked.accept(1, 2.05)
    asked.refuse(2.1, 2.2, after=1.0)
    assert asked.control.rate == pytest.approx(4.0)


def test_a_peer_that_accepts_nothing_is_given_time_and_no_lower_rate(asked: Asked) -> None:
    for now in range(2, 20):
        asked.begin(now)
        asked.refuse(now, now + 0.1, after=1.0)
    assert asked.control.rate == pytest.approx(8.0)


def test_what_was_under_way_and_is_accepted_does_not_count_for_the_next_round(asked: Asked) -> None:
    asked.control.accept(0.95)
    asked.begin(2.0)
    asked.refuse(2.0, 2.1, after=1.0)
    assert asked.control.rate == pytest.approx(8.0)


def test_a_streak_of_accepted_requests_raises_it_by_a_quarter(asked: Asked) -> None:
    rates = []
    for number in range(4):
        asked.accept(STREAK - 1, 3.0 + number)
        rates.append(asked.control.rate)
        asked.accept(1, 3.0 + number)
    assert rates == pytest.approx([8.0, 10.0, 12.5, 15.625])


def test_it_is_free_again_at_ten_times_the_rate_before_and_halved_from_there(asked: Asked) -> None:
    asked.accept(13 * STREAK, 3.0)
    assert asked.control.rate == pytest.approx(8 * 1.25**13)
    asked.accept(STREAK, 3.0)
    assert asked.control.rate is None  # 160 a second and more
    asked.accept(1, 3.5)
    asked.begin(4.0)
    asked.refuse(4.0, 4.1, after=1.0)
    assert asked.control.rate == pytest.approx(8 * 1.25**14 / 2)


def test_it_is_never_raised_above_the_configured_rate(asked: Asked) -> None:
    asked.accept(STREAK, 3.0, most=10.0)
    assert asked.control.rate is None  # then that of the configuration holds


def test_a_refusal_ends_a_streak(asked: Asked) -> None:
    asked.accept(STREAK - 1, 3.0)
    asked.begin(3.5)
    asked.refuse(3.5, 3.6, after=1.0)
    halved = asked.control.rate
    asked.accept(STREAK - 1, 5.0)
    assert asked.control.rate == halved
    asked.accept(1, 5.0)
    assert asked.control.rate == pytest.approx(1.25 * (halved or 0))


def test_without_retry_after_the_pause_grows_with_each_round_that_is_refused() -> None:
    asked, now, pauses = Asked(), 0.0, []
    for _ in range(7):
        asked.begin(now)
        asked.refuse(now, now)
        asked.refuse(now, now)  # of the same round
        pauses.append(asked.control.paused_until - now)
        now = asked.control.paused_until + 0.001
    assert pauses == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS])
    asked.accept(1, now)
    asked.begin(now + 1)
    asked.refuse(now + 1, now + 1)
    assert asked.control.paused_until - (now + 1) == pytest.approx(1.0)


def test_retry_after_zero_is_as_none() -> None:
    asked = Asked()
    asked.refuse(0.0, 0.0, after=0.0, status=503)
    assert (asked.control.paused_until, asked.control.status) == (1.0, 503)


@pytest.mark.parametrize(
    ("now", "after", "is_final"),
    [(0.0, 300.0, False), (0.0, 300.1, True), (0.0, 86_400.0, True), (299.5, 1.0, True), (299.0, 1.0, False)],
)
def test_what_is_longer_than_the_patience_is_final(now: float, after: float, *, is_final: bool) -> None:
    asked = Asked()
    asked.refuse(0.0, 0.0, after=1.0)
    assert asked.refuse(now, now, after=after) == Refusal(is_final=is_final, refused_seconds=now)


def test_patience_counts_anew_from_the_first_refusal_after_an_accepted_request() -> None:
    asked = Asked()
    asked.refuse(0.0, 0.0, after=1.0)
    asked.accept(1, 250.0)
    assert asked.refuse(400.0, 400.0, after=1.0) == Refusal(is_final=False, refused_seconds=0.0)
    assert asked.refuse(700.0, 700.0, after=1.0) == Refusal(is_final=True, refused_seconds=300.0)


def test_who_comes_when_others_were_refused_for_long_waits_ten_seconds_alone() -> None:
    asked = Asked()
    asked.refuse(0.0, 0.0, after=1.0)
    assert asked.refuse(300.0, 300.0, after=1.0).is_final
    assert not asked.refuse(310.0, 310.0, after=9.0, since=310.0).is_final
    assert asked.refuse(319.5, 319.5, after=1.0, since=310.0) == Refusal(is_final=True, refused_seconds=319.5)
    assert asked.refuse(320.0, 320.0, after=11.0, since=320.0).is_final


def test_a_caller_without_patience_gets_the_refusal_and_makes_nobody_wait() -> None:
    asked = Asked()
    asked.begin(0.0)
    assert asked.refuse(0.0, 0.0, after=30.0, patience=0.0).is_final
    assert asked.control.paused_until == -math.inf


def test_a_peer_that_nobody_asked_for_a_minute_is_forgotten_but_not_while_it_pauses(asked: Asked) -> None:
    asked.accept(1, 1.5)
    assert not asked.control.is_stale(60.0)
    assert asked.control.is_stale(62.1)
    asked.refuse(1.5, 1.5, after=200.0)
    asked.accept(1, 1.5)
    assert not asked.control.is_stale(261.0)
    assert asked.control.is_stale(262.0)


def test_a_peer_that_refuses_everything_is_remembered_for_a_quarter_of_an_hour(asked: Asked) -> None:
    assert not asked.control.is_stale(902.0)
    assert asked.control.is_stale(902.1)


@given(
    st.lists(st.tuples(st.sampled_from(["accept", "refuse", "wait"]), st.floats(0.0, 100.0)), max_size=200),
    st.floats(0.01, 1_000.0),
)
def test_the_rate_stays_between_its_least_and_what_was_sent(events: list[tuple[str, float]], most: float) -> None:
    asked, now = Asked(), 0.0
    for kind, value in events:
        now += value if kind == "wait" else 0.001
        asked.begin(now)
        if kind == "accept":
            asked.control.accept(now, most=most)
        elif kind == "refuse":
            asked.refuse(now, now, after=value)
        rate = asked.control.rate
        assert rate is None or LEAST_RATE <= rate <= 10_000.0


# --- what is said --------------------------------------------------------------------------------------------


def test_the_sentence_has_the_rate_and_the_status() -> None:
    for rate, refusals, text in [
        (4.0, 13, "slowed to 4/s by 429: 13 requests were refused and sent again"),
        (4.0, 1, "slowed to 4/s by 429: 1 request was refused and sent again"),
        (4.0, 0, "slowed to 4/s by 429"),
        (3.25, 0, "slowed to 3.2/s by 429"),
        (0.83, 0, "slowed to 0.83/s by 429"),
        (0.05, 0, "slowed to 0.05/s by 429"),
        (34.4, 0, "slowed to 34/s by 429"),
        (1234.0, 0, "slowed to 1,234/s by 429"),
        (None, 2, "slowed by 429: 2 requests were refused and sent again"),
    ]:
        assert slowing_text(Slowing(rate=rate, status=429, refusals=refusals)) == text, rate


def test_the_lowest_rate_of_a_run_is_told_with_all_its_refusals() -> None:
    parts = [None, Slowing(rate=4.0, status=429, refusals=3), Slowing(rate=2.0, status=503, refusals=1), None]
    assert merge_slowings(parts) == Slowing(rate=2.0, status=503, refusals=4)
    assert merge_slowings([None]) is None
    unslowed = Slowing(rate=None, status=429, refusals=2)
    assert merge_slowings([unslowed, parts[1]]) == Slowing(rate=4.0, status=429, refusals=5)
