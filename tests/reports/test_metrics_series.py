"""How many series there are, and that each says what it should: canaries one by one, waiting work, dead letters."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.alerts.domain.views import AlertState
from app.base.db.engine import Store
from app.base.jobs import defer
from app.base.jobs.values import JobKind, JobsWaiting, NewJob
from app.base.values import Category, Outcome, Severity, Verdict, replace
from app.catalog.documents.canary_files import config_hash, read_canary_files
from app.catalog.documents.check_documents import MOST_CANARY_METRICS
from app.hooks.domain import HookError, Receipt
from app.hooks.service.deliveries import BUG, SentDelivery
from app.plants.domain import PlantProblem
from app.plants.service.shown import PlantNumbers
from app.reports.metrics import Exposition, state_families
from app.reports.service import metrics_snapshot
from app.reports.service.metrics_snapshot import CheckState, HookDeliveries, State
from app.runs.service.finalising import EndedRun
from app.scoring.measures import CUTOFFS, mean_name, measures_for
from tests.support.api_service import CANARIES, CHECK, Api, api, bearer
from tests.support.world import COVERAGE, World, canary, page

pytestmark = pytest.mark.both

UNRESOLVED = (AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING)
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
TOKEN = "a-token-only-prometheus-knows"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path, metrics_token=TOKEN) as opened:
        opened.docs()
        yield opened


def series(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read an exposition: value by name and labels. No series may be there twice."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def scrape(service: Api, name: str) -> dict[str, float]:
    """Give the values of a series by its last label: `canary`, `hook` and the like; by `` where there is none."""
    service.refresh()
    answer = service.client.get("/metrics", headers=bearer(TOKEN))
    own = {"check", "suite", "retriever"}
    return {
        "".join(value for label, value in labels if label not in own): number
        for (found, labels), number in series(answer.text).items()
        if found == name
    }


# --- canaries one by one -------------------------------------------------------------------------------------


def test_single_canaries_have_series_only_where_a_check_asks_for_them(service: Api) -> None:
    service.run()
    assert scrape(service, "coalmine_canary_top_score_ratio") == {}
    assert scrape(service, "coalmine_canaries_omitted") == {}
    service.put("/v1/checks/docs", {**CHECK, "canary_metrics": 2})
    assert scrape(service, "coalmine_canary_top_score_ratio") == {"retention": 0.75, "oauth": 0.75}
    assert scrape(service, "coalmine_canary_degraded") == {"retention": 0, "oauth": 0}
    assert scrape(service, "coalmine_canaries_omitted") == {"": 1}, "and says how many are not shown"


def test_a_canary_that_got_worse_says_so_and_one_that_could_not_be_asked_says_nothing(service: Api) -> None:
    service.put("/v1/checks/docs", {**CHECK, "canary_metrics": 10})
    service.run()
    service.retriever.found[CANARIES[0]["query"]] = ["other"]
    service.retriever.outcomes[CANARIES[1]["query"]] = Outcome.TIMEOUT
    service.run()
    assert scrape(service, "coalmine_canary_degraded") == {"retention": 1, "moon": 0}
    assert scrape(service, "coalmine_canary_top_score_ratio") == {"retention": 0.75, "moon": 0.25}
    service.retriever.found[CANARIES[0]["query"]] = []
    service.run()
    assert scrape(service, "coalmine_canary_top_score_ratio") == {"retention": 0, "moon": 0.25}
    assert scrape(service, "coalmine_canaries_omitted") == {"": 0}


@pytest.mark.parametrize("wanted", [-1, MOST_CANARY_METRICS + 1, "many", 1.5])
def test_nobody_can_ask_for_more_series_of_canaries_than_the_cap(service: Api, wanted: Any) -> None:
    answer = service.client.put("/v1/checks/docs", json={**CHECK, "canary_metrics": wanted})
    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == ["canary_metrics"]


def test_showing_canaries_changes_nothing_about_what_is_measured(service: Api) -> None:
    before = service.run()
    service.put("/v1/checks/docs", {**CHECK, "hooks": ["ops"], "canary_metrics": 3})
    after = service.run()
    same = ("suite_hash", "measures", "coverage", "measures_version", "verdict")
    assert [before[name] for name in same] == [after[name] for name in same]


def test_the_series_of_a_canary_go_with_its_check(service: Api) -> None:
    service.put("/v1/checks/docs", {**CHECK, "canary_metrics": 2})
    service.run()
    assert len(scrape(service, "coalmine_canary_degraded")) == 2
    service.client.delete("/v1/checks/docs")
    assert scrape(service, "coalmine_canary_degraded") == {}
    assert scrape(service, "coalmine_canaries_omitted") == {}


# --- work that waits, messages that died -----------------------------------------------------------------------


def _now_world(store: Store) -> World:
    world = World(store=store)
    world.clock.now = datetime.now(UTC) - timedelta(minutes=10)
    rule = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}
    world.apply(page([canary("ant")], rules=[rule], schedule={"every": "31d"}))
    return world


@pytest.mark.databases
def test_a_run_waits_from_when_it_is_due_until_somebody_begins_it(store: Store) -> None:
    world = _now_world(store)
    assert metrics_snapshot.read_state(store).runs_waiting == 0
    world.wish()
    state = metrics_snapshot.read_state(store)
    assert state.runs_waiting == 1
    assert 590 < state.runs_waiting_oldest_seconds < 900
    claimed = world.claim()
    assert claimed is not None
    assert metrics_snapshot.read_state(store).runs_waiting == 0
    world.wish()  # the follow-up waits for the run under way, not for a worker
    assert metrics_snapshot.read_state(store).runs_waiting_oldest_seconds == 0
    world.execute(claimed)
    assert metrics_snapshot.read_state(store).runs_waiting == 1


def test_a_run_of_a_new_check_waits_since_it_was_queued_and_not_since_an_instant_before_it(store: Store) -> None:
    world = World(store=store)
    world.clock.now = datetime.now(UTC)
    world.apply(page([canary("ant")], schedule={"every": "31d"}))
    assert world.queue_due() == 1
    state = metrics_snapshot.read_state(store)
    assert (state.runs_waiting, state.runs_waiting_oldest_seconds < 60) == (1, True)


@pytest.mark.databases
def test_jobs_that_wait_for_a_worker_are_shown_where_workers_can_be_added(store: Store) -> None:
    exposition = Exposition.create()
    exposition.snapshot.refresh(store)
    shown = series(exposition.render()[0].decode())
    names = [("coalmine_jobs_waiting", ()), ("coalmine_jobs_waiting_oldest_seconds", ())]
    if store.dialect == "sqlite":  # one process does all of them
        assert not shown.keys() & set(names)
        return
    assert [shown[name] for name in names] == [0, 0]
    with store.write() as connection:
        defer(connection, [NewJob(JobKind.RUN, 1), NewJob(JobKind.DELIVERY, 2)])
    exposition.snapshot.refresh(store)
    shown = series(exposition.render()[0].decode())
    assert shown[names[0]] == 2
    assert shown[names[1]] > 0


def test_a_hook_shows_what_it_does_not_take(store: Store) -> None:
    world = _now_world(store)
    well = HookDeliveries(slug="ops", retrying=0, dead=0, disabled=False)
    assert metrics_snapshot.read_state(store).hooks == (well,)
    world.probe.all_miss()
    world.run()
    world.clock.advance(31)
    world.send.receipts += [Receipt(ok=False, error="http_5xx", http_status=503)] * 3
    for attempt in range(3):
        assert metrics_snapshot.read_state(store).hooks[0].retrying == 0, attempt
        assert world.deliver() is not None
        world.clock.advance(60)
    assert metrics_snapshot.read_state(store).hooks == (replace(well, retrying=1),)
    assert world.deliver() is not None
    assert metrics_snapshot.read_state(store).hooks == (well,)
    world.probe.all_answer()
    world.run()
    world.clock.advance(31)
    world.send.receipts.append(Receipt(ok=False, error="gone", http_status=410, gone=True))
    assert world.deliver() is not None
    assert metrics_snapshot.read_state(store).hooks == (replace(well, dead=1, disabled=True),)
    world.apply({**page([canary("ant")], hooks=[]), "hooks": []})
    assert metrics_snapshot.read_state(store).hooks == (), "a hook that is no more has no series"


# --- what replicas run by ----------------------------------------------------------------------------------------


def test_a_worker_is_up_where_there_is_one_and_while_it_lives(tmp_path: Path) -> None:
    with api(tmp_path / "serves", metrics_token=TOKEN) as service:
        assert scrape(service, "coalmine_worker_up") == {"": 0}
    with api(tmp_path / "works", metrics_token=TOKEN, with_worker=True) as service:
        assert scrape(service, "coalmine_worker_up") == {"": 1}
    assert b"coalmine_worker_up 0.0" in service.service.exposition.render()[0], "it has stopped"


SUITE = "suite: docs\ncanaries: [{key: a, query: alpha, expected_chunks: [doc-a]}]\n"
SEARCH = """
retrievers:
  - slug: search
    url: http://127.0.0.1:1/
    request: {json: {q: "{{ query }}"}, headers: {x-key: "${SECRET}"}}
    response: {hits: h, id: i}
"""
CHECKED = "checks: [{slug: docs, suite: docs, retriever: search, schedule: {every: 1h}}]\n"


def _applied(*files: str, header: str = "one") -> str:
    texts = [(f"{number}.yaml", text) for number, text in enumerate(files)]
    return config_hash(read_canary_files(texts, {"SECRET": header}, None), {"retention_days": 90})


def test_replicas_agree_by_what_they_apply_not_by_how_it_is_written() -> None:
    known = _applied(SUITE + SEARCH + CHECKED)
    assert re.fullmatch(r"[0-9a-f]{12}", known)
    assert _applied(CHECKED + "# in other files" + SEARCH, SUITE) == known
    assert _applied(SUITE + SEARCH + CHECKED, header="another") == known, "a name is no help in guessing secrets"
    assert _applied(SUITE + SEARCH + CHECKED.replace("1h", "2h")) != known
    assert _applied(SUITE.replace("alpha", "beta") + SEARCH + CHECKED) != known
    assert config_hash(None, {"retention_days": 90}) not in {known, config_hash(None, {"retention_days": 7})}


def test_settings_that_all_should_share_count_and_those_of_one_replica_do_not(tmp_path: Path) -> None:
    def shown(name: str, **settings: Any) -> str:
        with api(tmp_path / name, metrics_token=TOKEN, **settings) as service:
            (found,) = scrape(service, "coalmine_config_info")
        return found

    known = shown("a")
    assert shown("b", port=9000, log_format="json") == known
    assert shown("c", hook_allow="10.0.0.0/8") != known


# --- how many there can be -----------------------------------------------------------------------------------------


def _stated(name: str) -> str:
    """Read a formula of the documentation."""
    found = re.search(rf"^{name} = (.+)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{DOCS.name} does not state {name}"
    return found[1].replace("\u00d7", "*").replace("\u00b7", "*")


def _bound(name: str, **values: int) -> int:
    assert re.fullmatch(r"[a-z0-9 +*()]+", _stated(name)), "arithmetic alone"
    return int(eval(_stated(name), {"__builtins__": {}}, values))  # noqa: S307 - our own text, of digits and letters


def _crowded(number: int, cutoffs: tuple[int, ...], canaries: int, pairs: int) -> CheckState:
    """Make a check that shows everything a check can show."""
    means = dict.fromkeys([mean_name(measure) for measure in measures_for(cutoffs)], 0.5)
    of_category = {"coverage": 0.5, "health_score": 0.5, **means}
    return CheckState(
        labels=(f"check-{number}", f"suite-{number}", f"retriever-{number}"),
        interval_seconds=300,
        verdict=Verdict.DEGRADED,
        health_score=0.5,
        coverage=0.5,
        degraded=3,
        canaries={"measured": 1, "failed": 1, "undefined": 1},
        measures=means,
        categories={
            name: of_category | ({"answered_ratio": 0.5} if name == Category.NEGATIVE else {}) for name in Category
        },
        index_version='v1"} 1\n',
        last_run=1.0,
        last_success=1.0,
        embedding_canaries={(f"pair-{pair}", "true"): 0.9 for pair in range(pairs)},
        evidence=dict.fromkeys(["canaries", "groups", "check", "average"], 1.0),
        top_scores={f"canary-{one}": 0.5 for one in range(canaries)},
        canaries_omitted=7 if canaries else None,
        plants=PlantNumbers(found_seconds=2.0, gone_seconds=1.0, problem=PlantProblem.SLOW),
        index_facts={f"fact-{one}": 1_000.0 for one in range(11)},
    )


def _state(checks: tuple[CheckState, ...], hooks: int, waiting: JobsWaiting | None = None) -> State:
    kinds = [(state, level) for state in UNRESOLVED for level in Severity]
    return State(
        checks=checks,
        alerts={(check.labels[0], state, level): 1 for check in checks for state, level in kinds},
        outbox_pending=1,
        outbox_oldest_seconds=1,
        runs_waiting=1,
        runs_waiting_oldest_seconds=1,
        hooks=tuple(HookDeliveries(slug=f"hook-{one}", retrying=1, dead=1, disabled=False) for one in range(hooks)),
        jobs_waiting=waiting,
    )


@pytest.mark.parametrize(
    ("number", "cutoffs", "canaries", "pairs"),
    [(50, CUTOFFS, 0, 0), (50, CUTOFFS, 50, 3), (5, tuple(range(1, 22)), MOST_CANARY_METRICS, 100)],
    ids=["usual", "canaries-shown", "all-there-can-be"],
)
def test_a_crowded_catalogue_has_as_many_series_as_stated(
    number: int, cutoffs: tuple[int, ...], canaries: int, pairs: int
) -> None:
    checks = tuple(_crowded(one, cutoffs, canaries, pairs) for one in range(number))
    samples = sum(len(family.samples) for family in state_families(_state(checks, hooks=20)))
    each = _bound("check", c=len(cutoffs), g=len(Category), p=pairs) + (
        _bound("canaries", n=canaries) if canaries else 0
    )
    assert samples == number * each + 20 * _bound("hook") + _bound("shared")
    replicas = _state(checks, hooks=20, waiting=JobsWaiting(number=3, oldest_seconds=1.5))
    assert sum(len(family.samples) for family in state_families(replicas)) == samples + _bound("jobs")


def test_the_figures_of_the_documentation_follow_from_its_formulas() -> None:
    usual = _bound("check", c=len(CUTOFFS), g=len(Category), p=0)
    most = _bound("check", c=21, g=len(Category), p=100) + _bound("canaries", n=MOST_CANARY_METRICS)
    whole = 2 * (
        50 * usual
        + 10 * _bound("hook")
        + _bound("shared")
        + _bound("jobs")
        + _bound("process")
        + 10 * _bound("deliveries")
    )
    text = DOCS.read_text(encoding="utf-8")
    for figure in (usual, most, whole, _bound("check", c=len(CUTOFFS), g=1, p=0)):
        assert f" {figure:,}" in text


def test_a_process_adds_a_fixed_number_and_some_for_each_hook() -> None:
    exposition = Exposition.create()
    exposition.process.config_in_force("abc")

    def count() -> int:
        return len(series(exposition.render()[0].decode()))

    exposition.process.run_ended(
        EndedRun(
            id=1,
            check_id=1,
            check="docs",
            suite="docs",
            retriever="search",
            status="finished",  # type: ignore[arg-type] # its text
            verdict=Verdict.UNKNOWN,
            probes=dict.fromkeys(Outcome, 1),
            latencies=[0.1],
            duration_seconds=1.0,
            embedder=Outcome.OK,
        )
    )
    assert count() == _bound("process")
    for reason in (None, *HookError, BUG):
        for _ in range(2):
            exposition.process.delivered(
                SentDelivery(id=1, hook="ops", state="pending", error=reason, reason="as told")
            )
    assert count() == _bound("process") + _bound("deliveries")


def test_a_real_check_of_every_category_stays_within_the_bound(service: Api) -> None:
    canaries = [{**CANARIES[0], "key": name, "query": f"About {name}?", "category": name} for name in Category]
    for one in canaries:
        if one["category"] == Category.NEGATIVE:
            del one["expected_chunks"]
    service.put("/v1/suites/docs", {"canaries": canaries})
    service.put("/v1/checks/docs", {**CHECK, "canary_metrics": 50})
    for version in ("v1", "v2", "v3", "v4"):  # an index version is a label: one at a time
        service.retriever.index_version = version
        service.run()
    service.refresh()
    text = service.client.get("/metrics", headers=bearer(TOKEN)).text
    found = series(text)
    assert [dict(labels)["index_version"] for name, labels in found if name == "coalmine_index_info"] == ["v4"]
    mine = [name for name, labels in found if dict(labels).get("check") == "docs"]
    assert len(mine) <= _bound("check", c=6, g=len(Category), p=0) + _bound("canaries", n=len(canaries))
    assert len(mine) > _bound("check", c=6, g=len(Category), p=0) / 2, "the bound is not far off"


def test_no_label_can_break_out_of_its_quotes() -> None:
    hostile = replace(_crowded(1, CUTOFFS, 2, 1), index_version='v"} 1\ncoalmine_store_up 0\n# \\')
    hostile = replace(hostile, top_scores={'a"b\n} 0': 1.0}, embedding_canaries={('p"\n', "true"): 1.0})
    exposition = Exposition.create()
    known = _state((hostile,), hooks=1)
    object.__setattr__(exposition.snapshot, "_state", known)
    object.__setattr__(exposition.snapshot, "_taken_at", float("inf"))
    found = series(exposition.render()[0].decode())
    assert found["coalmine_store_up", ()] == 1
    of_canaries = [dict(labels)["canary"] for name, labels in found if name == "coalmine_canary_degraded"]
    assert of_canaries == ['a"b\n} 0']
