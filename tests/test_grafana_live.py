"""Every expression of every dashboard, asked of a real Prometheus that scrapes two real replicas of Coalmine.

The site is walked once through four states: healthy, degraded, its retriever down, its store down. Prometheus scrapes
the replicas together, as an operator would, and each alone under a job of its own: what both say must be what one
says, or, for counters, the sum of both.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tests.conftest import Databases
from tests.embedders import FakeModel
from tests.grafana_boards import Query, boards, chosen, filled, metrics, parsed, queries, selectors, variables
from tests.grafana_lint import COUNTERS, PROCESS_GAUGES
from tests.http_servers import peer, reply
from tests.living import until
from tests.monitoring import KEYS, Prometheus, Sample, Site, prometheus, replicas, scraping
from tests.processes import free_ports
from tests.world import CHECK, HOOK, RETRIEVER

BOARDS = boards()
QUERIES = {query.name: query for board in BOARDS.values() for query in queries(board)}
BOTH, ALONE = "coalmine", ("first", "second")
JOBS = (BOTH, *ALONE)
OTHER = f"{CHECK}-other"
HEALTHY, DEGRADED, RETRIEVER_DOWN, STORE_DOWN = "healthy", "degraded", "retriever-down", "store-down"
WINDOWS = {"__interval": "1s", "__rate_interval": "20s", "__range": "5m"}
RULE = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}, "open": {"bad": 1, "of": 1}}
WARM_UP = 20
"""Identical runs after which the detector knows what to expect."""

EMPTY_WHEN_HEALTHY = {
    # Nothing was ever told or failed to be told, so these counters do not exist yet.
    "coalmine-itself/503/A": "no news",
    "coalmine-itself/504/A": "no failure",
    "coalmine-itself/505/D": "no news",
    "coalmine-itself/505/E": "no failure",
}
EMPTY_WHEN_UNMEASURED = re.compile(
    r"coalmine_((health_score|coverage|(category_)?measure|recall|canary_top_score)_ratio|index_info)"
)
"""What a run that could not ask anything says nothing of."""
ALSO_EMPTY_WHEN_UNMEASURED = re.compile(r"coalmine_(canary_degraded|degraded_queries)")
LEFT_OUT = {
    "coalmine_run_duration_seconds_count": "the number of runs is shown by outcome",
    "coalmine_run_duration_seconds_sum": "means hide what quantiles show",
    "coalmine_probe_duration_seconds_count": "the number of probes is shown by outcome",
    "coalmine_probe_duration_seconds_sum": "means hide what quantiles show",
}


@dataclass(kw_only=True)
class Walk:
    """What was seen on the walk."""

    answers: dict[str, dict[str, dict[str, list[Sample]]]] = field(default_factory=dict)
    """By state, job and name of the query."""
    whole: dict[str, list[Sample]] = field(default_factory=dict)
    """Answers while healthy with All chosen wherever one can."""
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    """How the variables of each board were filled in."""
    exposed: dict[str, str] = field(default_factory=dict)
    """What a replica exposed, by state."""
    marks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Annotations over the whole time, by name."""
    exemplars: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    totals: tuple[float, int] = (0, 0)
    """Runs as the counters of both replicas say, and as the API lists them."""


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory, databases: Databases) -> Iterator[Walk]:
    """Walk through the states."""
    folder = tmp_path_factory.mktemp("live")
    ports = [free_ports(), free_ports()]
    with ExitStack() as stack:
        watching = stack.enter_context(prometheus(folder / "prometheus", _jobs(ports)))
        embedder = stack.enter_context(peer(FakeModel()))
        taker, refuser = stack.enter_context(peer(reply())), stack.enter_context(peer(reply(status=500)))
        change = partial(_enriched, embedder=embedder.url, hooks={"ops": taker.url, "broken": refuser.url})
        site = stack.enter_context(
            replicas(
                folder / "coalmine",
                databases,
                ports=ports,
                change=change,
                rules=[RULE],
                canary_metrics=8,
            )
        )
        yield _walked(site, watching, time.time())


def _jobs(ports: list[int]) -> dict[str, Any]:
    config = scraping(ports)
    (both,) = config["scrape_configs"]
    alone = [
        {**both, "job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for name, port in zip(ALONE, ports, strict=True)
    ]
    return {**config, "scrape_configs": [both, *alone]}


def _enriched(described: dict[str, Any], *, embedder: str, hooks: Mapping[str, str]) -> Mapping[str, Any]:
    """Add what some panels are about: a second retriever, an embedder, hooks, a chunk that is known by id and text."""
    (first,), (check,) = described["retrievers"], described["checks"]
    moved = {"key": "moved", "query": "moved", "category": "procedural", "min_relevance_score": 0.5}
    expected = [{"id": "doc-under-another-id", "text": "Text of moved."}]
    response = {**first["response"], "text": "text"}
    return {
        **described,
        "canaries": [*described["canaries"], {**moved, "expected_chunks": expected}],
        "retrievers": [
            {**first, "response": response, "embedding": {"url": f"{embedder}/v1/embeddings", "model": "m"}},
            {**first, "response": response, "slug": f"{RETRIEVER['slug']}-other"},
        ],
        "checks": [
            {**check, "rules": [*check["rules"], {"kind": "regression"}], "hooks": list(hooks)},
            {**check, "slug": OTHER, "retriever": f"{RETRIEVER['slug']}-other", "canary_metrics": 0},
        ],
        "hooks": [{**HOOK, "slug": slug, "url": f"{url}/"} for slug, url in hooks.items()],
    }


def _walked(site: Site, watching: Prometheus, began: float) -> Walk:
    walk = Walk()
    each = f'job="{BOTH}", check="{CHECK}"'
    for _ in range(WARM_UP):
        site.run()
    watching.until(f"count(coalmine_detector_evidence{{{each}, scope='average'}}) == 2")
    watching.until(f'count(coalmine_last_run_timestamp_seconds{{job="{BOTH}"}}) == 4')
    _look(walk, HEALTHY, site, watching)
    walk.whole = {name: watching.instant(_with_all(walk, query)) for name, query in QUERIES.items() if query.panel}
    with site.degraded(*KEYS[:4]):
        site.run(OTHER)
        watching.until(f'count(coalmine_verdict{{job="{BOTH}", verdict="degraded"}} == 1) == 4')
        watching.until(f'count(coalmine_index_info{{job="{BOTH}", index_version="v2"}}) == 4')
        for told in ("coalmine_deliveries_total", "coalmine_delivery_failures_total"):  # twice, to have grown or not
            watching.until(f'sum(increase({told}{{job="{BOTH}"}}[20s])) >= 0', seconds=60)
        _look(walk, DEGRADED, site, watching)
        asked = partial(watching.exemplars, start=began, end=time.time())
        found = [*asked("coalmine_run_duration_seconds_bucket"), *asked("coalmine_probe_duration_seconds_bucket")]
        walk.exemplars = {one["labels"]["run_id"] for series in found for one in series["exemplars"]}
        runs = [run for slug in (CHECK, OTHER) for run in site.get(f"/v1/checks/{slug}/runs?limit=100")["items"]]
        walk.runs = {run["id"] for run in runs}
        walk.totals = watching.value(f'sum(coalmine_runs_total{{job="{BOTH}"}})'), len(runs)
    with site.retriever_down():
        site.run(OTHER)
        watching.until(f'count(coalmine_verdict{{job="{BOTH}", verdict="unknown"}} == 1) == 4')
        _look(walk, RETRIEVER_DOWN, site, watching)
    with site.store_down():
        watching.until("count(coalmine_store_up == 0) == 4", seconds=40)
        _look(walk, STORE_DOWN, site, watching)
    for board in BOARDS.values():
        for query in queries(board):
            if query.panel == 0:
                expr = filled(query.expr, {**walk.values[query.board], **WINDOWS})
                walk.marks[f"{query.board}/{query.title}"] = watching.range(expr, start=began, end=time.time())
    return walk


def _look(walk: Walk, state: str, site: Site, watching: Prometheus) -> None:
    """Ask everything, of both replicas and of each alone, as of one instant at which all three jobs agree."""

    def labels(selector: str, label: str) -> list[str]:
        found: list[str] = watching.ask(f"label/{label}/values", **{"match[]": selector})
        return found

    at = until(lambda: _settled(watching), seconds=30)
    for uid, board in BOARDS.items():
        if uid not in walk.values:
            walk.values[uid] = chosen(board, "coalmine-prometheus", labels)
            assert walk.values[uid]["job"] == BOTH
    walk.exposed[state] = site.metrics()
    walk.answers[state] = {
        job: {
            name: watching.instant(filled(query.expr, {**walk.values[query.board], **WINDOWS, "job": job}), time=at)
            for name, query in QUERIES.items()
        }
        for job in JOBS
    }


def _with_all(walk: Walk, query: Query) -> str:
    chosen_all = {one["name"]: one["allValue"] for one in variables(BOARDS[query.board]) if one.get("includeAll")}
    return filled(query.expr, {**walk.values[query.board], **WINDOWS, **chosen_all})


def _settled(watching: Prometheus) -> float | None:
    """Give the time if each replica says the same of checks under every job, and has been scraped just before."""
    at = time.time()
    (newest,) = [value for _, value in watching.instant("min(timestamp(up))", time=at)]
    ends = "coalmine_last_run_timestamp_seconds"
    apart = watching.instant(f"(max by (check) ({ends}) - min by (check) ({ends})) > 0", time=at)
    counted = [value for _, value in watching.instant(f"count({ends})", time=at)]
    return at if at - newest < 2 and not apart and counted in ([], [8]) else None


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
        seconds = 10 if "outbox" in QUERIES[name].expr or "waiting" in QUERIES[name].expr else 1e-6
        for alone in (first[name], second[name]):
            assert _plain(both[name]) == {
                labels: pytest.approx(value, abs=seconds, nan_ok=True) for labels, value in _plain(alone).items()
            }, name


@pytest.mark.parametrize("state", [HEALTHY, DEGRADED, RETRIEVER_DOWN])
def test_what_replicas_did_is_added_up(walk: Walk, state: str) -> None:
    both, first, second = (walk.answers[state][job] for job in JOBS)
    # What begins to be counted is seen by each scrape at another value, and an increase is what comes after.
    plain = r"sum( by \([\w, ]+\))? \((increase\(coalmine_(?!deliver)|coalmine_)"
    added = [name for name in OF_PROCESSES if re.match(plain, QUERIES[name].expr)]
    assert len(added) >= 10
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
    """Give the only number a panel shows."""
    (name,) = [
        query.name for query in QUERIES.values() if (query.board, query.title, query.instant) == (board, title, True)
    ]
    ((_, value),) = walk.answers[state][BOTH][name]
    return value


def _plain(samples: list[Sample]) -> dict[tuple[tuple[str, str], ...], float]:
    found = {tuple(sorted(labels.items())): value for labels, value in samples}
    assert len(found) == len(samples)
    return found
