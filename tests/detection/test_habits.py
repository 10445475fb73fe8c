"""Habits: what comes back alike pages twice, then it is shown; whatever sets it apart pages again."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from app.base.values import replace
from app.detection.domain import NO_HABITS, NO_HITS, Change, Episode, Habit, Habits, Key, Observation, Reading, Settings
from app.detection.domain.habits import (
    CHANCE,
    LONGER,
    LONGEST,
    LONGEST_QUIET,
    MOST_ANSWERS,
    MOST_CANARIES,
    MOST_HABITS,
    bound_of,
    habit_id,
    is_learned,
)
from app.detection.domain.learning import learn
from app.detection.domain.tracker import Follower, follow, learned, observe, pack_habits, unpack_habits
from tests.support.synthetic_runs import Live, calm, closed, members_of, noisy, opened, together

COUNT = 60
SWITCHING = (3, 4, 5, 40)
HEALTHY_ANSWER = 7


@dataclass(slots=True)
class Watched:
    """A check with a baseline of 300 runs that all were the same, whose runs are made here."""

    settings: Settings = field(default_factory=Settings)
    follower: Follower = field(init=False)
    again_from_bytes: bool = False

    def __post_init__(self) -> None:
        members, runs = members_of(COUNT), calm(COUNT, 300)
        self.follower = learned(follow(members), learn(members.keys, runs.lost, runs.ndcg))

    def runs(
        self,
        count: int,
        failing: Iterable[int] = (),
        *,
        answer: int | Mapping[int, int] = 1,
        version: str | None = None,
    ) -> list[Reading]:
        """Take in runs in which some canaries are lost with an answer, the same or by canary."""
        return [self.run(failing, answer=answer, version=version) for _ in range(count)]

    def run(
        self, failing: Iterable[int] = (), *, answer: int | Mapping[int, int] = 1, version: str | None = None
    ) -> Reading:
        """Take in one run."""
        lost = np.zeros(COUNT, np.int8)
        lost[list(failing)] = 1

        def answers(positions: Sequence[int]) -> list[int]:
            told = answer if isinstance(answer, Mapping) else dict.fromkeys(range(COUNT), answer)
            return [told.get(place, 1) if lost[place] else HEALTHY_ANSWER for place in positions]

        seen = Observation(lost=lost, ndcg=np.where(lost == 1, 0.0, 1.0), answers=answers, index_version=version)
        if self.again_from_bytes:
            habits = unpack_habits(pack_habits(self.follower.habits))
            self.follower = replace(self.follower, habits=habits)
        self.follower, reading = observe(self.follower, members_of(COUNT), seen, self.settings)
        return reading

    def episode(self, runs: int = 5, failing: Iterable[int] = SWITCHING, *, answer: int = 1) -> list[Reading]:
        """Take in an episode and the healthy runs after it."""
        failing = tuple(failing)
        return self.runs(runs, failing, answer=answer) + self.runs(10)

    def learns(self) -> "Watched":
        """Take in two episodes of five runs."""
        for _ in range(2):
            assert opened(self.episode())
        return self


def test_what_came_back_alike_is_said_the_third_time_and_alarms_nobody() -> None:
    watched = Watched().learns()
    third = watched.episode()
    assert opened(third) == []
    assert closed(third) == []
    assert not any(one.open or one.culprits or one.severity for one in third)
    told = [one for one in third if one.habit is not None]
    assert len(told) >= 5
    assert told[0].habit is not None
    assert (told[0].habit.times, told[0].habit.answers, told[0].habit.keys) == (3, 2, SWITCHING)
    assert "a habit: these 4 canaries switch between two answers, seen 3 times" in told[0].reason
    assert third[-1].habit is None
    fourth = [one.habit for one in watched.episode() if one.habit is not None]
    assert {one.times for one in fourth} == {4}


def test_one_alarm_is_no_habit_yet() -> None:
    watched = Watched()
    assert opened(watched.episode())
    (habit,) = watched.follower.habits.known
    assert not is_learned(habit)
    assert opened(watched.episode())


def test_a_fault_of_the_same_canaries_with_another_answer_alarms() -> None:
    watched = Watched().learns()
    found = watched.runs(5, SWITCHING, answer=2)
    assert opened(found)
    assert found[opened(found)[0] - 1].reason.endswith("seen 3 times, but 4 answers of this run are new.")


def test_one_new_answer_in_the_midst_of_an_episode_alarms_then() -> None:
    watched = Watched().learns()
    assert opened(watched.runs(3, SWITCHING)) == []
    found = watched.runs(3, SWITCHING, answer={4: 9})
    assert opened(found) == [1]
    assert "but 1 answer of this run is new" in found[0].reason
    assert all(one.open for one in found)


def test_an_episode_that_lasts_longer_than_its_bound_alarms_and_says_so() -> None:
    watched = Watched().learns()
    (habit,) = watched.follower.habits.known
    assert habit.longest == 5
    assert bound_of(habit) == LONGER * 5 == 100
    found = watched.runs(130, SWITCHING)
    assert opened(found) == [bound_of(habit) + 1]
    raised = found[bound_of(habit)]
    assert (raised.open, raised.since) == (True, bound_of(habit) + 1)
    assert "but this lasts longer: 101 runs, where 100 are the most after 2 episodes of 5 on average" in raised.reason
    assert all(one.open for one in found[bound_of(habit) :])
    assert closed(watched.runs(3)) == [2]


def test_a_new_index_version_makes_an_alarm_of_what_was_a_habit() -> None:
    watched = Watched()
    for _ in range(2):
        watched.runs(5, SWITCHING, version="v1")
        watched.runs(10, version="v1")
    assert opened(watched.runs(3, SWITCHING, version="v1")) == []
    found = watched.runs(1, SWITCHING, version="v2")
    assert opened(found) == [1]
    assert "a habit until now, but the index version changed" in found[0].reason


def test_a_new_index_version_makes_the_detector_forget_habits() -> None:
    watched = Watched()
    for _ in range(2):
        watched.runs(5, SWITCHING, version="v1")
        watched.runs(10, version="v1")
    watched.run(version="v2")
    assert opened(watched.runs(5, SWITCHING, version="v2"))


def test_a_run_that_does_not_say_its_index_version_forgets_nothing() -> None:
    watched = Watched()
    for version in ("v1", None):
        watched.runs(5, SWITCHING, version=version)
        watched.runs(10)
    assert opened(watched.runs(5, SWITCHING, version="v1")) == []


def test_other_canaries_that_fail_with_a_habit_alarm() -> None:
    watched = Watched().learns()
    assert opened(watched.runs(2, SWITCHING)) == []
    found = watched.runs(4, (*SWITCHING, 20, 21))
    assert opened(found)
    assert opened(found)[0] <= 2


def test_other_canaries_alone_alarm_as_ever() -> None:
    watched = Watched().learns()
    found = watched.runs(5, (20, 21, 22, 50))
    assert opened(found)
    assert "habit" not in found[opened(found)[0] - 1].reason


def test_fewer_than_half_of_the_canaries_are_another_alarm() -> None:
    watched = Watched().learns()
    assert opened(watched.runs(8, SWITCHING[:1]))


def test_what_people_call_not_normal_alarms_again_also_in_the_midst_of_an_episode() -> None:
    watched = Watched().learns()
    assert opened(watched.runs(3, SWITCHING)) == []
    (habit,) = watched.follower.habits.known
    watched.settings = Settings(refused_habits=frozenset({habit.id}))
    found = watched.runs(2, SWITCHING)
    assert opened(found) == [1]
    assert "but somebody called that not normal" in found[0].reason
    watched.runs(10)
    assert opened(watched.episode())
    assert opened(watched.episode())


def test_an_alarm_that_ended_as_its_canaries_were_taken_out_was_no_episode_of_a_habit() -> None:
    watched = Watched()
    watched.episode()
    watched.runs(5, SWITCHING)
    baseline = watched.follower.baseline
    others = members_of(COUNT - len(SWITCHING))
    others = replace(others, keys=tuple([key for key in members_of(COUNT).keys if key not in SWITCHING]))
    well = Observation(lost=np.zeros(len(others.keys), np.int8), ndcg=np.ones(len(others.keys)))
    for _ in range(3):
        watched.follower, reading = observe(watched.follower, others, well, watched.settings)
    assert not reading.open
    assert [one.times for one in watched.follower.habits.known] == [1]
    watched.follower = replace(watched.follower, baseline=baseline)  # a check reads it again
    assert opened(watched.runs(6, SWITCHING)), "they were lost all the time"


def test_an_alarm_once_raised_is_not_taken_back_while_it_lasts() -> None:
    watched = Watched().learns()
    watched.runs(2, SWITCHING)
    assert opened(watched.runs(1, SWITCHING, answer=2)) == [1]
    assert all(one.open for one in watched.runs(3, SWITCHING, answer=1))


def test_a_long_alarm_was_repaired_by_somebody_and_is_no_episode() -> None:
    watched = Watched()
    for _ in range(3):
        assert opened(watched.episode(LONGEST + 1))
    assert watched.follower.habits.known == ()


def test_alarms_of_many_canaries_are_no_habit() -> None:
    members, runs = members_of(2 * MOST_CANARIES), calm(2 * MOST_CANARIES, 300)
    live = Live.of(members)
    live.follower = learned(live.follower, learn(members.keys, runs.lost, runs.ndcg))
    stints = [calm(len(members.keys), 5, range(MOST_CANARIES + 1)), calm(len(members.keys), 10)]
    assert len(opened(live.takes(together(*stints * 4)))) == 4


def test_a_habit_goes_on_over_a_restart_with_the_same_readings() -> None:
    kept, remembered = Watched(), Watched(again_from_bytes=True)
    for lasting in (5, 4, 8, 12, 3):
        assert kept.episode(lasting) == remembered.episode(lasting)
    assert kept.follower.habits == remembered.follower.habits


def test_habits_survive_a_new_baseline_of_healthy_runs() -> None:
    watched = Watched().learns()
    runs = calm(COUNT, 300)
    watched.follower = learned(watched.follower, learn(watched.follower.state.keys, runs.lost, runs.ndcg))
    assert opened(watched.episode()) == []


def test_runs_of_a_habit_are_never_learned_of() -> None:
    live = Live.of(members_of(COUNT))
    healthy = calm(COUNT, 300)
    live.follower = learned(live.follower, learn(live.members.keys, healthy.lost, healthy.ndcg))
    live.takes(healthy)
    stints = [calm(COUNT, 40), calm(COUNT, 6, SWITCHING)] * 6
    found = live.takes(together(*stints, calm(COUNT, 200)))
    assert sum(one.habit is not None for one in found) > 20
    assert live.learned[-1] > 300
    assert live.follower.baseline is not None
    assert live.follower.baseline.deterministic
    assert all(not seen.lost.any() for _, seen in live.eligible)


def test_an_alarm_that_another_release_raised_goes_on_and_opens_once() -> None:
    watched = Watched().learns()
    remembered = watched.follower.habits
    watched.runs(3, SWITCHING)
    watched.follower = replace(watched.follower, habits=replace(remembered, episode=None))
    found = watched.runs(3, SWITCHING)
    assert opened(found) == []
    assert all(one.open and one.habit is None for one in found)
    assert closed(watched.runs(3)) == [2]


def test_in_noise_a_switch_is_a_habit_too() -> None:
    live = Live.of(members_of(200))
    runs = noisy(200, 300, 1, 0.01)
    live.follower = learned(live.follower, learn(live.members.keys, runs.lost, runs.ndcg))
    stints = []
    for seed in range(6):
        switched = noisy(200, 8, 50 + seed, 0.01)
        switched.lost[:, list(SWITCHING)] = 1
        switched.ndcg[:, list(SWITCHING)] = 0
        stints += [noisy(200, 40, 10 + seed, 0.01), switched]
    found = live.takes(together(*stints))
    assert 2 <= len(opened(found)) <= 3
    assert any(one.habit is not None for one in found)


def test_habits_as_bytes_are_bounded_and_read_back_as_they_were() -> None:
    chance = np.random.default_rng(1)

    def habit(number: int) -> Habit:
        answers: dict[Key, tuple[int, ...]] = {
            1_000_000 * number + key: tuple(chance.integers(2**63, size=MOST_ANSWERS).tolist())
            for key in range(MOST_CANARIES)
        }
        return Habit(id=habit_id(answers), answers=answers, times=3, longest=7, total=19, beside=(2, 1))

    known = tuple(map(habit, range(MOST_HABITS)))
    habits = Habits(
        known=known, episode=Episode(answers=known[0].answers, runs=4, habit=known[0].id, beside=(1, 2)), version="v1"
    )
    body = pack_habits(habits)
    assert unpack_habits(body) == habits
    assert len(body) < 40_000
    assert pack_habits(NO_HABITS) == b""
    assert unpack_habits(b"") == NO_HABITS


def test_no_more_habits_and_answers_are_kept_than_the_bounds_say() -> None:
    watched = Watched()
    for number in range(MOST_HABITS + 3):
        watched.episode(4, range(5 * number, 5 * number + 3))
    assert len(watched.follower.habits.known) == MOST_HABITS
    watched = Watched()
    watched.run()
    for answer in range(1, 10):
        watched.run(SWITCHING, answer=answer)
    episode = watched.follower.habits.episode
    assert episode is not None
    assert {len(seen) for seen in episode.answers.values()} == {MOST_ANSWERS}


def test_what_a_later_release_wrote_otherwise_is_forgotten_and_damage_is_refused() -> None:
    later = zlib.compress(json.dumps({"version": 2, "something": "else"}).encode())
    assert unpack_habits(later) == NO_HABITS
    for damaged in (
        b"\x00",
        zlib.compress(b"[]"),
        zlib.compress(b'{"version": 1}'),
        pack_habits(Habits(version="a"))[:-9],
    ):
        with pytest.raises(ValueError, match="no habits"):
            unpack_habits(damaged)


def test_an_episode_of_a_habit_that_ends_is_no_closing() -> None:
    watched = Watched().learns()
    watched.runs(5, SWITCHING)
    ended = watched.runs(2)
    assert [one.change for one in ended] == [None, None]
    assert all(one.habit is not None for one in ended)
    assert Change.CLOSED not in {one.change for one in watched.runs(3)}
    assert watched.follower.habits.episode is None


def test_no_outage_of_most_canaries_or_without_answers_is_ever_quiet() -> None:
    watched = Watched()
    everybody = range(COUNT)
    for runs in (3, 3, 6, 3, 3):
        assert len(opened(watched.episode(runs, everybody))) == 1, "all canaries are lost"
    empty = Watched()
    for runs in (3, 3, 3, 3):
        assert len(opened(empty.episode(runs, SWITCHING, answer=NO_HITS))) == 1, "nothing is found"
    most = Watched()
    for _ in range(3):
        found = most.episode(4, range(COUNT // 2 + 1))
        assert len(opened(found)) == 1
    assert "more than half of the 60 canaries fail" in " ".join(one.reason for one in found)


def test_the_more_episodes_are_known_the_sooner_one_that_stays_is_told() -> None:
    watched, bounds = Watched().learns(), []
    for _ in range(5):
        assert opened(watched.episode(10)) == []
        bounds.append(bound_of(watched.follower.habits.known[-1]))
    assert bounds == sorted(bounds, reverse=True)
    assert (bounds[0], bounds[-1]) == (200, 163)
    (habit,) = watched.follower.habits.known
    assert (habit.times, habit.longest, habit.total) == (7, 10, 60)
    assert opened(watched.runs(200, SWITCHING)) == [164]


@pytest.mark.parametrize("count", [3, 5, 10, 40])
def test_of_states_that_end_by_chance_one_in_thousands_lasts_longer_than_its_bound(count: int) -> None:
    """Whatever their mean: a new one is as long as those that the bound was learned from."""
    chance = np.random.default_rng(count)
    longer = 0
    for mean in (5, 10, 20):
        lengths = chance.geometric(1 / mean, (10_000, count + 1))
        known = lengths[:, :count]
        for (total, longest), last in zip(
            zip(known.sum(axis=1).tolist(), known.max(axis=1).tolist(), strict=True),
            lengths[:, -1].tolist(),
            strict=True,
        ):
            longer += last > bound_of(a_habit(times=count, total=total, longest=longest))
    assert longer <= 30_000 * 10 * CHANCE


def a_habit(*, times: int, total: int, longest: int) -> Habit:
    return Habit(id="0" * 16, answers={1: (1,)}, times=times, longest=longest, total=total, beside=(0, 0))


def test_a_replica_that_switches_by_chance_alarms_twice_and_once_more_where_it_stays_alone() -> None:
    chance = np.random.default_rng(7)
    watched, alarms = Watched(), 0
    for _ in range(25):
        alarms += len(opened(watched.runs(int(chance.geometric(1 / 20)) + 1, SWITCHING)))
        alarms += len(opened(watched.runs(int(chance.geometric(1 / 40)) + 2)))
    assert alarms == 2
    bound = bound_of(watched.follower.habits.known[-1])
    assert 180 <= bound <= 260
    assert opened(watched.runs(LONGEST_QUIET + 1, SWITCHING)) == [bound + 1]


def test_whatever_was_learned_no_state_that_stays_is_quiet_for_longer_than_the_limit() -> None:
    watched = Watched()
    for _ in range(2):
        assert opened(watched.episode(LONGEST))
    assert opened(watched.episode(LONGEST_QUIET)) == []
    (habit,) = watched.follower.habits.known
    assert (habit.times, habit.longest) == (2, LONGEST), "an episode so long teaches nothing, also a quiet one"
    assert opened(watched.runs(LONGEST_QUIET + 10, SWITCHING)) == [LONGEST_QUIET + 1]


def test_a_replica_that_stayed_long_at_first_alarms_no_third_time() -> None:
    watched = Watched()
    for lasting in (5, 150):
        assert opened(watched.episode(lasting))
    assert opened(watched.episode(20)) == []


def test_an_episode_that_lasted_much_longer_teaches_nothing() -> None:
    watched = Watched()
    for _ in range(2):
        assert opened(watched.episode(2))
    assert opened(watched.episode(90)) == [41]
    (habit,) = watched.follower.habits.known
    assert (habit.times, habit.longest) == (2, 2)
    assert opened(watched.episode(90)) == [41], "so the next one alarms as soon"


def test_an_episode_that_alarmed_for_a_little_more_time_teaches_its_length() -> None:
    watched = Watched()
    for _ in range(2):
        assert opened(watched.episode(2))
    assert opened(watched.episode(60)) == [41]
    (habit,) = watched.follower.habits.known
    assert (habit.times, habit.longest, habit.total) == (3, 60, 64)
    assert opened(watched.episode(90)) == []


def test_what_was_called_not_normal_alarms_with_other_answers_too() -> None:
    watched = Watched().learns()
    (habit,) = watched.follower.habits.known
    watched.settings = Settings(refused_habits=frozenset({habit.id}))
    for _ in range(4):
        assert len(opened(watched.episode(answer=2))) == 1


FLICKERING = (20, 21)
"""Always one of them fails, each for ten runs in a row; never both."""


def flickering(watched: Watched) -> None:
    """Let the baseline be of two replicas, each of which lacks what one of these canaries expects."""
    members, runs = members_of(COUNT), calm(COUNT, 300)
    turn = np.arange(300) // 10 % 2
    for place, canary in enumerate(FLICKERING):
        runs.lost[turn == place, canary], runs.ndcg[turn == place, canary] = 1, 0.0
    watched.follower = learned(follow(members), learn(members.keys, runs.lost, runs.ndcg))


def test_canaries_that_fail_at_once_only_while_a_habit_lasts_are_part_of_it() -> None:
    """A third replica lacks what either of two others lacks: more fail beside the named ones than usual."""
    watched = Watched()
    flickering(watched)

    def healthy() -> None:
        for canary in FLICKERING:
            watched.runs(10, [canary])

    healthy()
    for number in range(5):
        found = watched.runs(5, (*SWITCHING, *FLICKERING))
        assert len(opened(found)) == (number < 2), number
        healthy()
    (habit,) = watched.follower.habits.known
    assert (habit.times, set(habit.answers), habit.beside[0]) == (5, {*SWITCHING}, 2)
    assert opened(watched.runs(2, (*SWITCHING, *FLICKERING))) == []
    found = watched.runs(1, (*SWITCHING, *FLICKERING, 50))
    assert opened(found) == [1]
    assert "fail" in found[0].reason.rpartition("but ")[2]


def test_habits_of_a_release_that_kept_no_lengths_go_on() -> None:
    watched = Watched().learns()
    (habit,) = watched.follower.habits.known
    body = json.loads(zlib.decompress(pack_habits(watched.follower.habits)))
    assert not {"total", "beside"} & body["known"][0].keys(), "an earlier release would refuse them"
    del body["added"], body["beside"]
    read = unpack_habits(zlib.compress(json.dumps(body).encode()))
    assert read.known == (replace(habit, total=10, beside=(0, 0)),)
    watched.follower = replace(watched.follower, habits=read)
    assert opened(watched.episode()) == []
