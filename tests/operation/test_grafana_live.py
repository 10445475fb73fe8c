"""Every expression of every dashboard, asked of a real Prometheus that scrapes two real replicas of Coalmine."""

import fcntl
import os
import pickle
import re
from collections.abc import Mapping

import pytest

from tests.conftest import Databases
from tests.support.grafana_boards import Query, metrics, parsed, selectors, variables
from tests.support.grafana_lint import COUNTERS, PROCESS_GAUGES
from tests.support.grafana_walk import (
    BOARDS,
    BOTH,
    DEGRADED,
    HEALTHY,
    JOBS,
    OTHER,
    QUERIES,
    RETRIEVER_DOWN,
    STORE_DOWN,
    WARM_UP,
    Walk,
    walked,
)
from tests.support.monitoring import Sample
from tests.support.world import CHECK

pytestmark = pytest.mark.systems(seconds=45)

EMPTY_WHEN_HEALTHY = {
    # Nothing was ever told or failed to be told, so these counters do not exist yet.
    "coalmine-itself/503/A": "no news",
    "coalmine-itself/504/A": "no failure",
    "coalmine-itself/505/D": "no news",
    "coalmine-itself/505/E": "no failure",
}
EMPTY_WHEN_UNMEASURED = re.compile(
    r"coalmine_((health_score|coverage|(category_)?measure|recall|canary_top_score)_ratio|index_info"
    r"|index_fact|probe_latency_seconds)"
)
"""What a run that could not ask anything says nothing of."""
ALSO_EMPTY_WHEN_UNMEASURED = re.compile(r"coalmine_(canary_degraded|degraded_queries)")
MOVING = re.compile(r"coalmine_(outbox|runs_waiting|jobs_waiting|deliveries)_.*")
"""What goes on between two scrapes: ages and attempts."""
LEFT_OUT = {
    "coalmine_run_duration_seconds_count": "the number of runs is shown by outcome",
    "coalmine_run_duration_seconds_sum": "means hide what quantiles show",
    "coalmine_probe_duration_seconds_count": "the number of probes is shown by outcome",
    "coalmine_probe_duration_seconds_sum": "means hide what quantiles show",
    "coalmine_jobs_waiting": "how long the oldest waits says more than how many do",
}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Walk:
    """Give what was seen on the walk: one for all claims, whichever process of the session makes them."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    seen = folder / "grafana-walk.pickle"
    with (folder / "grafana-walk.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not seen.exists():
            seen.write_bytes(pickle.dumps(walked(tmp_path_factory.mktemp("live"), databases)))
    found: Walk = pickle.loads(seen.read_bytes())  # noqa: S301 - written above
    return found


def _selected(query: Query) -> set[str]:
    return {one.name or "" for one in selectors(parsed(query.expr, BOARDS[query.board]))}


def _is_state(name: str) -> bool:
    return not COUNTERS.fullmatch(name) and not PROCESS_GAUGES.fullmatch(name)


OF_STATE = {name for name, query in QUERIES.items() if query.panel and all(_is_state(one) for one in _selected(query))}
OF_PROCESSES = {name for name, query in QUERIES.items() if not any(_is_state(one) for one in _selected(query))}
OF_PANELS = {name for name, query in QUERIES.items() if query.panel}


# --- what the boards ask -----------------------------------------------------------------------------------------


def test_every_metric_a_board_asks_for_is_exposed_and_every_exposed_one_is_asked_for(walk: Walk) -> None:
    exposed = {name for text in walk.exposed.values() for name in re.findall(r"(?m)^(coalmine_\w+)[{ ]", text)}
    asked = {name for board in BOARDS.values() for name in metrics(board) if name.startswith("coalmine_")}
    assert asked - exposed == set()
    assert exposed - asked == set(LEFT_OUT)


def test_every_variable_has_something_to_choose(walk: Walk) -> None:
    for uid, board in BOARDS.items():
        values = walk.values[uid]
        assert set(values) == {variable["name"] for variable in variables(board)}
        assert all(values.values()), values
    assert walk.values["coalmine-check"]["check"] == CHECK
    assert walk.values["coalmine-check"]["k"] == "(5)"
    assert walk.values["coalmine-check"]["measure"] == "(NDCG|R)"
    assert walk.values["coalmine-comparison"]["measure"] == "NDCG"


# --- healthy and degraded ----------------------------------------------------------------------------------------


def test_choosing_all_shows_no_less(walk: Walk) -> None:
    assert {name for name, samples in walk.whole.items() if not samples} == set(EMPTY_WHEN_HEALTHY)
    for name, samples in walk.whole.items():
        assert len(samples) >= len(walk.answers[HEALTHY][BOTH][name]), name
    every_measure = {labels["name"] for labels, _ in walk.whole["coalmine-check/203/A"]}
    assert {"NDCG@10", "R@1", "MAP", "MRR", "MRR@5"} <= every_measure


@pytest.mark.parametrize("state", [HEALTHY, DEGRADED])
def test_every_panel_shows_something(walk: Walk, state: str) -> None:
    excused = set(EMPTY_WHEN_HEALTHY) if state == HEALTHY else set()
    empty = {name for name, samples in walk.answers[state][BOTH].items() if not samples}
    assert empty & OF_PANELS == excused


def test_every_legend_is_made_of_labels_that_are_there(walk: Walk) -> None:
    for name, samples in walk.answers[DEGRADED][BOTH].items():
        wanted = set(re.findall(r"{{(\w+)}}", QUERIES[name].legend))
        for labels, _ in samples:
            assert wanted <= set(labels), name


@pytest.mark.parametrize("state", [HEALTHY, DEGRADED, RETRIEVER_DOWN])
def test_two_replicas_say_of_checks_what_one_says(walk: Walk, state: str) -> None:
    both, first, second = (walk.answers[state][job] for job in JOBS)
    for name in OF_STATE:
        moving = any(MOVING.fullmatch(one) for one in _selected(QUERIES[name]))
        apart = 10 if moving else 1e-6
        for alone in (first[name], second[name]):
            assert _plain(both[name]) == {
                labels: pytest.approx(value, abs=apart, nan_ok=True) for labels, value in _plain(alone).items()
            }, name


@pytest.mark.parametrize("state", [HEALTHY, DEGRADED, RETRIEVER_DOWN])
def test_what_replicas_did_is_added_up(walk: Walk, state: str) -> None:
    both, first, second = (walk.answers[state][job] for job in JOBS)
    # What begins to be counted is seen by each scrape at another value, and an increase is what comes after.
    plain = r"sum( by \([\w, ]+\))? \((increase\(coalmine_(?!deliver)|coalmine_)"
    added = [name for name in OF_PROCESSES if re.match(plain, QUERIES[name].expr) and " / " not in QUERIES[name].expr]
    assert len(added) == 10
    for name in added:
        alone = [_plain(first[name]), _plain(second[name])]
        for labels, value in _plain(both[name]).items():
            expected = sum(one.get(labels, 0) for one in alone)
            assert value == pytest.approx(expected, rel=0.25, abs=1), name


def test_runs_are_counted_once_each(walk: Walk) -> None:
    counted, listed = walk.totals
    assert counted == listed == WARM_UP + 4


def test_a_degraded_site_looks_degraded(walk: Walk) -> None:
    assert _shown(walk, HEALTHY, "Healthy") == 2
    assert _shown(walk, HEALTHY, "Degraded") == 0
    assert _shown(walk, DEGRADED, "Healthy") == 0
    assert _shown(walk, DEGRADED, "Degraded") == 2
    assert _shown(walk, DEGRADED, "Unknown") == 0
    assert _shown(walk, DEGRADED, "Open critical alerts") >= 2
    assert _shown(walk, DEGRADED, "Verdict", "coalmine-check") == 2
    assert _shown(walk, DEGRADED, "Degraded canaries", "coalmine-check") == 4
    assert _shown(walk, DEGRADED, "Replicas up", "coalmine-itself") == 2


def test_index_versions_and_alerts_are_marked_once_per_check(walk: Walk) -> None:
    for uid in BOARDS:
        count = 1 if uid == "coalmine-check" else 2
        versions = walk.marks[f"{uid}/Index versions"]
        assert sorted(series["metric"]["index_version"] for series in versions) == ["v2"] * count, uid
        assert all(len(series["values"]) == 1 for series in versions), "a moment, not a span"
        fired = walk.marks[f"{uid}/Alerts"]
        assert {series["metric"]["check"] for series in fired} == {CHECK, OTHER} if count == 2 else {CHECK}


def test_a_check_that_moves_to_another_suite_is_asked_for_without_error_and_counted_once(walk: Walk) -> None:
    assert set(walk.moved) == set(QUERIES)
    assert _only(walk.moved, "Checks", "coalmine-itself") == _only(walk.moved, "Degraded") == 2
    assert {_only(walk.moved, title) for title in ("Healthy", "Unknown", "Overdue")} == {0}
    opened = [_only(walk.moved, title) for title in ("Open critical alerts", "Open warnings")]
    assert sum(opened) == walk.alerts_when_moved > 0
    for name, query in QUERIES.items():
        if query.panel == 0:
            found = {(labels["check"], labels.get("severity")) for labels, _ in walk.moved[name]}
            assert len(found) == len(walk.moved[name]), "a mark each"
            assert query.title == "Alerts" or not found, "another suite is no other index"


def test_links_lead_to_pages_that_are_there(walk: Walk) -> None:
    assert {"/", "/alerts?severity=critical", f"/checks/{CHECK}", "/hooks/ops"} <= set(walk.pages)
    assert set(walk.pages.values()) == {200}, walk.pages


def test_a_dot_of_a_histogram_leads_to_a_run(walk: Walk) -> None:
    assert walk.exemplars
    assert walk.exemplars <= walk.runs


# --- down --------------------------------------------------------------------------------------------------------


def test_a_retriever_that_is_down_is_unknown_not_healthy(walk: Walk) -> None:
    assert _shown(walk, RETRIEVER_DOWN, "Healthy") == 0
    assert _shown(walk, RETRIEVER_DOWN, "Unknown") == 2
    assert _shown(walk, RETRIEVER_DOWN, "Verdict", "coalmine-check") == 3
    for name, samples in walk.answers[RETRIEVER_DOWN][BOTH].items():
        selected = _selected(QUERIES[name])
        if name not in OF_PANELS:
            continue
        if any(EMPTY_WHEN_UNMEASURED.fullmatch(one) for one in selected):
            assert samples == [], name
        elif not any(ALSO_EMPTY_WHEN_UNMEASURED.fullmatch(one) for one in selected):
            assert samples != [], name


def test_without_a_store_nothing_is_said_of_checks(walk: Walk) -> None:
    answers = walk.answers[STORE_DOWN][BOTH]
    assert {name for name in OF_STATE if answers[name]} == set()
    assert {name for name in OF_PROCESSES & OF_PANELS if not answers[name]} == set()
    assert _shown(walk, STORE_DOWN, "Store") == 0
    assert _shown(walk, STORE_DOWN, "Store", "coalmine-itself") == 0
    assert _shown(walk, STORE_DOWN, "Replicas up", "coalmine-itself") == 2


def _shown(walk: Walk, state: str, title: str, board: str = "coalmine-overview") -> float:
    """Give the only number a panel showed in a state."""
    return _only(walk.answers[state][BOTH], title, board)


def _only(answers: Mapping[str, list[Sample]], title: str, board: str = "coalmine-overview") -> float:
    (name,) = [
        query.name for query in QUERIES.values() if (query.board, query.title, query.instant) == (board, title, True)
    ]
    ((_, value),) = answers[name]
    return value


def _plain(samples: list[Sample]) -> dict[tuple[tuple[str, str], ...], float]:
    found = {tuple(sorted(labels.items())): value for labels, value in samples}
    assert len(found) == len(samples)
    return found
