"""A cause of a whole run stands as long as its fault, in runs, alerts and messages, and goes with it."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from app.alerts.service.evidence import load_fleet
from app.base.db.engine import Store
from app.base.values import Ranking, RunCauseKind, replace
from app.diagnosis.domain.run_causes import QUIET_RUNS
from app.diagnosis.store import causes_of
from app.runs.service.finalising import EndedRun
from tests.diagnosis.test_answer_causes import CANARIES, CHUNKS, Index, cut
from tests.support.fakes import answered
from tests.support.pages_service import Site
from tests.support.world import World, canary, page

Answers = Sequence[Ranking]


class Fleet:
    """Canaries that expect the first five chunks of their answers, in a check that has no baseline yet."""

    def __init__(self, store: Store, *, measure: str = "R@5", below: float = 0.95, bad: int = 1, only: int = 0) -> None:
        """Have a rule that opens at `bad` bad runs; the `only` last canaries expect their first chunk alone."""
        self.index = Index.of(1)
        self.whole = self.index.answers()
        self.world = World(store=store)
        rule: dict[str, Any] = {"kind": "threshold", "measure": measure, "critical": {"below": below}, "close": 1}
        rule["open"] = {"bad": bad, "of": 3 if bad > 1 else 1}
        expected = [list(one.ids[: 1 if place >= CANARIES - only else 5]) for place, one in enumerate(self.whole)]
        canaries = [
            canary(f"q{place}", expected_chunks=ids, min_relevance_score=0.0) for place, ids in enumerate(expected)
        ]
        self.world.apply(page(canaries, rules=[rule], k=5))

    def run(self, answers: Answers, times: int = 1) -> list[EndedRun]:
        """Answer all canaries so."""
        self.world.probe.answers = {f"q{place}": answered(one) for place, one in enumerate(answers)}
        return [self.world.run() for _ in range(times)]

    def without(self, share: float) -> Answers:
        """Answer without a share of the chunks."""
        gone = range(round(share * CHUNKS))
        return self.index.without(lambda number: number * 7 % CHUNKS in gone).answers()

    def causes(self, runs: Sequence[EndedRun]) -> list[tuple[RunCauseKind, int] | None]:
        """Return kind and first run of the cause that each run tells."""
        with self.world.store.read() as connection:
            found = causes_of(connection, [run.id for run in runs])
        told = [found.get(run.id) for run in runs]
        for run, cause in zip(runs, told, strict=True):
            reasons = self.world.shown(run)["reasons"]
            assert (cause is not None and cause.reason in reasons) or not any("since run" in one for one in reasons)
        return [None if cause is None else (cause.kind, cause.since_run) for cause in told]

    def messages(self) -> list[dict[str, Any]]:
        """Return what the hook gets."""
        self.world.deliver_all()
        return [json.loads(request.body)["data"] for _, request in self.world.send.sent]


def moved(setting: Fleet, *, by: float) -> Answers:
    return squeezed(setting.index.moved(by, 7).answers())


def squeezed(answers: Answers) -> Answers:
    """Bring scores back between 0 and 1, in their order."""
    return [replace(one, scores=tuple(0.7 * (score or 0.0) for score in one.scores)) for one in answers]


def rescored(setting: Fleet) -> Answers:
    return [replace(one, scores=tuple(0.4 * (score or 0.0) for score in one.scores)) for one in setting.whole]


def missed(setting: Fleet) -> Answers:
    rng = np.random.default_rng(3)
    deep = setting.index.answers(16)
    return [cut(one, np.flatnonzero(rng.random(16) > 0.3)[:10].tolist()) for one in deep]


def crowded(setting: Fleet) -> Answers:
    new = [" ".join(f"n{number}x{place}" for place in range(20)) for number in range(30)]
    return setting.index.with_new(new, np.random.default_rng(5).random((CANARIES, len(new)))).answers()


FAULTS: dict[RunCauseKind, tuple[Callable[[Fleet], Answers], str, float]] = {
    RunCauseKind.MISSING: (lambda setting: setting.without(0.22), "R@5", 0.95),
    RunCauseKind.LIMITED: (lambda setting: [cut(one, range(2)) for one in setting.whole], "R@5", 0.95),
    RunCauseKind.EMPTY_ANSWERS: (
        lambda setting: [cut(one, range(10 * (place % 4 > 0))) for place, one in enumerate(setting.whole)],
        "R@5",
        0.95,
    ),
    RunCauseKind.RANKING_CHANGED: (lambda setting: moved(setting, by=0.15), "NDCG@5", 0.95),
    RunCauseKind.SEARCH_MISSES: (missed, "R@5", 0.95),
    RunCauseKind.NEW_CHUNKS: (crowded, "R@5", 0.95),
    RunCauseKind.SCORES_CHANGED: (rescored, "health_score", 0.7),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_cause_stands_in_every_bad_run_and_goes_with_its_fault(sqlite_store: Store, kind: RunCauseKind) -> None:
    """A rule opens the alert here: the detector knows no baseline yet."""
    broken, measure, below = FAULTS[kind]
    setting = Fleet(sqlite_store, measure=measure, below=below, bad=2)
    setting.run(setting.whole, 3)
    bad = setting.run(broken(setting), 4)
    assert setting.causes(bad) == [(kind, bad[0].id)] * 4
    (message,) = setting.messages()
    assert message["run_id"] == str(bad[1].id)
    assert message["fleet"]["cause"]["since_run"] == bad[0].id
    assert message["fleet"]["sentence"] == message["fleet"]["cause"]["reason"]
    assert message["fleet"]["cause"]["phrase"] in message["summary"]
    (healed,) = setting.run(setting.whole)
    assert setting.causes([healed]) == [None]


@pytest.mark.parametrize("share", [0.12, 0.22])
def test_a_loss_of_which_few_canaries_degrade_is_told_by_all_that_find_less(sqlite_store: Store, share: float) -> None:
    setting = Fleet(sqlite_store, only=20, bad=2)
    setting.run(setting.whole, 3)
    bad = setting.run(setting.without(share), 3)
    with sqlite_store.read() as connection:
        explained = [load_fleet(connection, one.id, first_run=bad[0].id) for one in bad]
    assert len({one.fleet.sentence for one in explained if one is not None}) == 1
    cause, fleet = explained[-1].cause, explained[-1].fleet  # type: ignore[union-attr]
    assert cause is not None
    assert 0 < fleet.fallen < cause.losing / 3
    (message,) = setting.messages()
    less = f"{cause.losing} of {CANARIES}"
    assert message["title"] == f"watch: {less} questions find less: chunks missing from the index"
    assert f"{fleet.fallen} of 60 canaries lost their expected chunk, {less} canaries find fewer" in message["summary"]
    assert f"about {100 * share:.0f} % of all" in message["fleet"]["sentence"]


def test_a_loss_that_no_rule_minds_is_told_until_it_is_how_things_are(sqlite_store: Store) -> None:
    setting = Fleet(sqlite_store, below=0.5)
    setting.run(setting.whole, 3)
    lost = setting.run(setting.without(0.22), QUIET_RUNS + 1)
    assert {run.verdict for run in lost} == {"healthy"}
    assert setting.causes(lost) == [(RunCauseKind.MISSING, lost[0].id)] * QUIET_RUNS + [None]


def test_scores_that_moved_without_harm_are_no_cause_of_what_breaks_later(sqlite_store: Store) -> None:
    setting = Fleet(sqlite_store)
    setting.run(setting.whole, 3)
    other = setting.run(rescored(setting), 3)
    assert setting.causes(other) == [(RunCauseKind.SCORES_CHANGED, other[0].id), None, None]
    lacking = [
        replace(one, scores=tuple(0.4 * (score or 0.0) for score in one.scores)) for one in setting.without(0.22)
    ]
    bad = setting.run(lacking, 3)
    assert setting.causes(bad) == [(RunCauseKind.MISSING, bad[0].id)] * 3


def test_the_pages_of_check_and_alert_say_so_in_the_third_bad_run(sqlite_store: Store) -> None:
    setting = Fleet(sqlite_store, only=20)
    setting.run(setting.whole, 3)
    setting.run(setting.without(0.22), 3)
    site, (alert,) = Site(world=setting.world), setting.world.alerts()
    for path in ("/checks/watch", f"/alerts/{alert['id']}", f"/incidents/{alert['incident_id']}"):
        text = site.page(path).text
        assert "about 22 % of all" in text or path.startswith("/incidents"), path
        assert "chunks missing from the index" in text, path
        assert "Few canaries" not in text, path
