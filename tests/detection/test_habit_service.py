"""Habits in the service: shown on the page and over the API without a notification, until people refuse them."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec
import pytest

from app.alerts.service import transitions
from app.base.db.engine import Store
from app.base.errors import ConflictError, NotFoundError
from app.catalog import store as catalog
from app.detection import store as detector_rows
from app.detection.service import baselines
from app.detection.service.detectors import Detector
from app.runs.service.finalising import EndedRun
from tests.conftest import DIALECTS, Databases
from tests.support.fakes import answered, hits
from tests.support.pages_service import Site
from tests.support.present import present
from tests.support.watched import (
    KEYS,
    LEARNED,
    Interrupted,
    carry_out,
    define,
    expect_retraced,
    made_once,
    regressed,
    seen,
)
from tests.support.world import CHECK, World

SWITCHING = KEYS[:3]
NOW = datetime(2026, 11, 26, tzinfo=UTC)


class _Earlier(msgspec.Struct, array_like=True):
    """What a release without habits reads of a row."""

    measures: tuple[int, str, str]
    first_run: int
    choice_id: int | None
    state: bytes
    anew: str = ""


@pytest.fixture
def world(databases: Databases, stores: Callable[..., Store]) -> World:
    """Give a world in which a habit has been learned: two episodes have passed, each of which was an alert."""
    url, clock = made_once(databases, _with_habit)
    return World(store=stores(url), clock=clock)


@pytest.fixture(params=DIALECTS)
def anywhere(request: pytest.FixtureRequest, databases: Databases, stores: Callable[..., Store]) -> World:
    """Give the same on each kind of store."""
    url, clock = made_once(databases, _with_habit, request.param)
    return World(store=stores(url), clock=clock)


def _answering(world: World, count: int, missing: Iterable[str], *ids: str) -> list[EndedRun]:
    """Carry out runs in which these canaries are answered with these chunks."""
    world.probe.answers = {key: answered(hits(*ids)) for key in missing}
    return [world.run() for _ in range(count)]


def _episode(world: World, runs: int = 6, missing: Iterable[str] = SWITCHING) -> list[EndedRun]:
    return carry_out(world, runs, missing) + carry_out(world, 3)


def _with_habit(world: World) -> None:
    define(world)
    carry_out(world, LEARNED)
    for number in (1, 2):
        _episode(world, 2)
        assert len(world.alerts()) == number


@pytest.mark.both
def test_an_alarm_that_came_back_alike_alerts_nobody_and_is_shown(anywhere: World) -> None:
    world = anywhere
    before = world.count("transitions", "deliveries")
    runs = carry_out(world, 6, SWITCHING)
    row = seen(world)[runs[-1].id]
    assert not row.open
    habit = present(row.body.get("habit"))
    assert habit["canaries"] == list(SWITCHING)
    assert (habit["times"], habit["answers"]) == (3, 2)
    assert "a habit: these 3 canaries switch between two answers, seen 3 times" in row.body["reason"]
    assert regressed(world, runs[-1]) == set()
    shown = present(baselines.show(world.store, CHECK).detector)
    assert (shown.open, present(shown.habit)["canaries"]) == (False, list(SWITCHING))
    carry_out(world, 3)
    assert world.count("transitions", "deliveries") == before
    assert not any(seen(world)[run.id].learns for run in runs)
    (view,) = baselines.show(world.store, CHECK).habits
    assert (view.learned, view.times, view.canaries) == (True, 3, list(SWITCHING))
    expect_retraced(world)


def test_the_same_canaries_with_another_answer_alert(world: World) -> None:
    _answering(world, 6, SWITCHING, "quite", "other", "noise")
    (newest,) = world.alerts(state="firing")
    assert "3 answers of this run are new" in newest["reason"]
    expect_retraced(world)


def test_an_episode_that_lasts_too_long_alerts_since_its_first_run(world: World) -> None:
    bound = baselines.show(world.store, CHECK).habits[0].bound
    first, *_ = carry_out(world, bound, SWITCHING)
    assert len(world.alerts()) == 2
    carry_out(world, 1, SWITCHING)
    (newest,) = world.alerts(state="firing")
    assert f"{bound + 1} runs, where {bound} are the most" in newest["reason"]
    assert newest["transitions"][0]["evidence"]["first_bad_run"] == str(first.id)
    expect_retraced(world)


def test_scores_that_move_are_no_other_answer(world: World) -> None:
    for number in range(1, 5):
        moved = hits("noise", "more-noise", scores=(0.5 + number / 100, 0.5))
        world.probe.answers = {key: answered(moved) for key in SWITCHING}
        world.run()
    assert len(world.alerts()) == 2
    assert present(baselines.show(world.store, CHECK).detector).habit is not None


@pytest.mark.both
def test_what_is_called_not_normal_alerts_with_the_next_run(anywhere: World) -> None:
    world = anywhere
    carry_out(world, 3, SWITCHING)
    (habit,) = baselines.show(world.store, CHECK).habits
    for note in ("a stale replica", "again"):
        baselines.refuse(world.store, CHECK, habit.id, by="ann", note=note, now=NOW)
    assert len(world.alerts()) == 2
    carry_out(world, 1, SWITCHING)
    (alert,) = world.alerts(state="firing")
    assert "somebody called that not normal" in alert["reason"]
    carry_out(world, 3)
    (habit,) = baselines.show(world.store, CHECK).habits
    assert (present(habit.refused).by, present(habit.refused).note) == ("ann", "a stale replica")
    expect_retraced(world)


def test_a_habit_refused_while_a_run_ends_is_an_alarm_of_that_run(world: World) -> None:
    carry_out(world, 2, SWITCHING)
    looks: list[int] = []
    world.clock = Interrupted(now=world.clock.now, act=looks.append)
    carry_out(world, 1, SWITCHING)
    last = looks[-1]  # that of the end
    (habit,) = baselines.show(world.store, CHECK).habits
    assert len(world.alerts()) == 2

    def refuse(look: int) -> None:
        if look == last:
            baselines.refuse(world.store, CHECK, habit.id, by="ann", note=None, now=NOW)

    world.clock = Interrupted(now=world.clock.now, act=refuse)
    carry_out(world, 1, SWITCHING)
    assert baselines.show(world.store, CHECK).habits[0].refused is not None
    assert len(world.alerts(state="firing")) == 1
    expect_retraced(world)


def test_what_is_no_habit_of_the_check_cannot_be_refused(world: World) -> None:
    with pytest.raises(NotFoundError, match="no habit 'ffff'"):
        baselines.refuse(world.store, CHECK, "ffff", by="ann", note=None, now=NOW)


def test_accepting_the_present_forgets_habits(world: World) -> None:
    transitions.accept_baseline(world.store, CHECK, by="ann", note=None, now=NOW)
    carry_out(world, 1)
    assert baselines.show(world.store, CHECK).habits == []


def test_the_row_of_a_release_without_habits_is_read_and_begins_with_none(world: World) -> None:
    """An earlier release reads a row as far as it knows it, and writes it without the rest."""
    with world.store.write() as connection:
        check = present(catalog.find_definition(connection, "check", CHECK))
        row = present(detector_rows.find_detector(connection, check.id))
        fields = msgspec.msgpack.decode(row.body)
        assert len(fields) == 6
        assert msgspec.msgpack.decode(row.body, type=_Earlier).first_run == fields[1]
        older = msgspec.msgpack.encode(fields[:5])
        detector_rows.save_detector(connection, check.id, run_id=row.run_id, baseline_id=row.baseline_id, body=older)
    assert Detector.habits_of(older).known == ()
    assert baselines.show(world.store, CHECK).habits == []
    _episode(world)
    assert len(world.alerts()) == 3


def test_the_page_shows_the_habit_and_its_button_undoes_it(world: World) -> None:
    carry_out(world, 3, SWITCHING)
    site = Site(world=world, probe=world.probe)
    shown = site.page(f"/checks/{CHECK}")
    text = shown.text
    assert "a habit: these 3 canaries switch between two answers, seen 3 times" in text
    assert "Canaries of this habit" in text
    (habit,) = baselines.show(world.store, CHECK).habits
    answer = site.client().post(f"/checks/{CHECK}/habits", data={"habit": habit.id, "note": "stale"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/checks/{CHECK}#detector")
    after = site.page(f"/checks/{CHECK}").text
    assert "Not normal" in after
    assert "stale" in after


def test_a_habit_of_an_archived_check_is_not_refused(world: World) -> None:
    (habit,) = baselines.show(world.store, CHECK).habits
    world.apply()
    with pytest.raises(ConflictError, match="archived"):
        baselines.refuse(world.store, CHECK, habit.id, by="ann", note=None, now=NOW)
