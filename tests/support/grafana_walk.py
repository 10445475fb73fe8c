"""A walk of a real site through its states, asking every expression of every dashboard of a real Prometheus.

Prometheus scrapes two replicas together, as an operator would, and each alone under a job of its own: what both say
must be what one says, or, for counters, the sum of both.
"""

import re
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.conftest import Databases
from tests.support.embedders import FakeModel
from tests.support.grafana_boards import Query, boards, chosen, filled, links, queries, variables
from tests.support.http_servers import peer, reply
from tests.support.living import until
from tests.support.monitoring import KEYS, Prometheus, Sample, Site, prometheus, replicas, scraping
from tests.support.processes import free_ports
from tests.support.world import CHECK, HOOK, RETRIEVER

BOARDS = boards()
QUERIES = {query.name: query for board in BOARDS.values() for query in queries(board)}
BOTH, ALONE = "coalmine", ("first", "second")
JOBS = (BOTH, *ALONE)
OTHER = f"{CHECK}-other"
HEALTHY, DEGRADED, RETRIEVER_DOWN, STORE_DOWN = "healthy", "degraded", "retriever-down", "store-down"
WINDOWS = {"__interval": "1s", "__rate_interval": "3m", "__range": "5m"}
"""Longer than the walk: a window that began amid runs would begin at another run for each scrape."""
RULE = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}, "open": {"bad": 1, "of": 1}}
WARM_UP = 20
"""Identical runs after which the detector knows what to expect."""


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
    """What the replicas exposed, by state."""
    marks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Annotations over the whole time, by name."""
    pages: dict[str, int] = field(default_factory=dict)
    """What links to Coalmine answered while degraded, by where they lead."""
    exemplars: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    moved: dict[str, list[Sample]] = field(default_factory=dict)
    """Answers as of a moment in which one replica has heard that the checks moved to another suite, and one has not."""
    alerts_when_moved: float = 0
    """How many alerts were open then."""
    totals: tuple[float, int] = (0, 0)
    """Runs as the counters of both replicas say, and as the API lists them."""


def walked(folder: Path, databases: Databases) -> Walk:
    """Walk through the states once."""
    ports = [free_ports(), free_ports()]
    with ExitStack() as stack:
        watching = stack.enter_context(prometheus(folder / "prometheus", _jobs(ports)))
        embedder = stack.enter_context(peer(FakeModel()))
        taker, refuser = stack.enter_context(peer(reply())), stack.enter_context(peer(reply(status=500)))
        change = partial(_enriched, embedder=embedder.url, hooks={"ops": taker.url, "broken": refuser.url})
        site = stack.enter_context(
            replicas(folder / "coalmine", databases, ports=ports, change=change, rules=[RULE], canary_metrics=8)
        )
        return _walked(site, watching, time.time())


def _jobs(ports: list[int]) -> dict[str, Any]:
    config = scraping(ports)
    (both,) = config["scrape_configs"]
    alone = [
        {**both, "job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for name, port in zip(ALONE, ports, strict=True)
    ]
    return {**config, "scrape_configs": [both, *alone]}


PLANT: Mapping[str, Any] = {
    "every": "31d",
    "query": "{{ marker }}",
    "put": {"url": "/documents", "json": {"id": "{{ id }}", "text": "{{ text }}"}},
    "remove": {"url": "/documents/{{ id }}"},
    "poll": "1s",
}
"""Planted when told to."""


ASKED: Mapping[str, Any] = {"q": "{{ query }}", "k": "{{ k }}"}
INDEX: Mapping[str, Any] = {
    "facts": {"documents": {"url": "/", "json": {"q": "stats", "k": 3}, "path": "length(hits)"}},
    "exact": {"json": {**ASKED, "exact": True}},
}
"""What its store tells: hits stand for documents, and an exact search finds what any search does."""


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
            {**first, "response": response, "embedding": {"url": f"{embedder}/v1/embeddings", "model": "m"}, **INDEX},
            {**first, "response": response, "slug": f"{RETRIEVER['slug']}-other"},
        ],
        "checks": [
            {**check, "rules": [*check["rules"], {"kind": "regression"}], "hooks": list(hooks), "plant": PLANT},
            {**check, "slug": OTHER, "retriever": f"{RETRIEVER['slug']}-other", "canary_metrics": 0},
        ],
        "hooks": [{**HOOK, "slug": slug, "url": f"{url}/"} for slug, url in hooks.items()],
    }


def _walked(site: Site, watching: Prometheus, began: float) -> Walk:
    walk = Walk()
    each = f'job="{BOTH}", check="{CHECK}"'
    watching.until("count(coalmine_build_info) == 4")  # every job saw every replica before anything was counted
    for _ in range(WARM_UP):
        site.run()
    watching.until(f"count(coalmine_detector_evidence{{{each}, scope='average'}}) == 2")
    watching.until(f'count(coalmine_last_run_timestamp_seconds{{job="{BOTH}"}}) == 4')
    site.client.post(f"{site.urls[0]}/v1/checks/{CHECK}/plants").raise_for_status()
    watching.until("count(coalmine_plant_gone_seconds) == 4", seconds=60)  # each job of each replica
    _look(walk, HEALTHY, site, watching)
    walk.whole = {name: watching.instant(_with_all(walk, query)) for name, query in QUERIES.items() if query.panel}
    with site.degraded(*KEYS[:4]):
        site.run(OTHER)
        watching.until(f'count(coalmine_verdict{{job="{BOTH}", verdict="degraded"}} == 1) == 4')
        watching.until(f'count(coalmine_index_info{{job="{BOTH}", index_version="v2"}}) == 4')
        for told in ("coalmine_deliveries_total", "coalmine_delivery_failures_total"):  # twice, to have grown or not
            watching.until(f'sum(increase({told}{{job="{BOTH}"}}[20s])) >= 0', seconds=60)
        _look(walk, DEGRADED, site, watching)
        walk.pages = {page: site.client.get(site.urls[0] + page).status_code for page in _pages()}
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
    watching.until("count(coalmine_store_up == 1) == 4", seconds=40)
    with site.degraded(*KEYS[:4]):
        site.run(OTHER)
        watching.until(f'count(coalmine_verdict{{job="{BOTH}", verdict="degraded"}} == 1) == 4')
        at = until(lambda: _moved(site, watching), seconds=60)
        for name, query in QUERIES.items():
            walk.moved[name] = watching.instant(filled(query.expr, {**walk.values[query.board], **WINDOWS}), time=at)
        opened = f'coalmine_alerts{{job="{BOTH}", state=~"firing|recovering"}}'
        ((_, walk.alerts_when_moved),) = watching.instant(f"sum(max by (check, state, severity) ({opened}))", time=at)
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
    walk.exposed[state] = "\n".join(site.metrics(number) for number in range(len(site.ports)))
    walk.answers[state] = {
        job: {
            name: watching.instant(filled(query.expr, {**walk.values[query.board], **WINDOWS, "job": job}), time=at)
            for name, query in QUERIES.items()
        }
        for job in (JOBS if state != STORE_DOWN else [BOTH])
    }


def _moved(site: Site, watching: Prometheus) -> float | None:
    """Move the checks to another suite; gives a time at which replicas say both of them, if there was any."""
    began, interval = time.time(), f'coalmine_check_interval_seconds{{job="{BOTH}"}}'
    ((before, _),) = watching.instant(f"topk(1, {interval})")
    old, new = (before["suite"], "moved") if before["suite"] != "moved" else ("moved", "suite")
    text = site.canaries.read_text(encoding="utf-8")
    site.canaries.write_text(text.replace(f'"suite": "{old}"', f'"suite": "{new}"'), encoding="utf-8")
    site.processes[0].popen.send_signal(signal.SIGHUP)
    site.run()  # who runs it hears at once, the other one when it looks the next time
    watching.until(f'count({interval[:-1]}, suite="{new}"}}) == 4 unless count({interval[:-1]}, suite="{old}"}}) > 0')
    two = f"count(count by (check) (group by (check, suite) ({interval})) == 2) == 2"
    seen = watching.range(two, start=began, end=time.time(), step=0.05)
    return float(seen[0]["values"][0][0]) if seen else None


def _with_all(walk: Walk, query: Query) -> str:
    chosen_all = {one["name"]: one["allValue"] for one in variables(BOARDS[query.board]) if one.get("includeAll")}
    return filled(query.expr, {**walk.values[query.board], **WINDOWS, **chosen_all})


def _pages() -> set[str]:
    """List the pages of Coalmine that links lead to, of the check and the hook of this site."""
    filled_in = {r"\$\{(check|[\w.]+\.(labels\.check|Check))\}": CHECK, r"\$\{__data\.fields\.Hook\}": "ops"}
    found = {url for board in BOARDS.values() for url in links(board) if url.startswith("${coalmine_url:raw}")}
    for pattern, value in filled_in.items():
        found = {re.sub(pattern, value, url) for url in found}
    return {url.removeprefix("${coalmine_url:raw}") for url in found}


def _settled(watching: Prometheus) -> float | None:
    """Give the time if each replica says the same under every job, and has been scraped just before."""
    at = time.time()
    (newest,) = [value for _, value in watching.instant("min(timestamp(up))", time=at)]
    ends = "coalmine_last_run_timestamp_seconds"
    apart = watching.instant(f"(max by (check) ({ends}) - min by (check) ({ends})) > 0", time=at)
    counted = [value for _, value in watching.instant(f"count({ends})", time=at)]
    did = '__name__=~"coalmine_(runs|probes|embedding_canaries)_total"'
    uneven = watching.instant(f'sum({{{did}, job="{BOTH}"}}) != sum({{{did}, job!="{BOTH}"}})', time=at)
    waiting = watching.instant("(max(coalmine_runs_waiting) - min(coalmine_runs_waiting)) > 0", time=at)
    is_same = not apart and not uneven and not waiting and counted in ([], [8])
    return at if at - newest < 2 and is_same else None
