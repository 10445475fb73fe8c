"""What Prometheus sees: names of the contract, nothing stale, nothing undefined; and no scrape touches the store."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from app import __version__
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.errors import StoreUnavailableError
from app.base.values import Outcome
from app.hooks.domain import Receipt
from app.operation import worker
from app.reports.metrics import Exposition, Snapshot
from tests.support.api_service import CANARIES, CHECK, HOOK_SECRET, Api, api, bearer
from tests.support.living import until

TOKEN = "a-token-only-prometheus-knows"
OAUTH = "How do I set up OAuth2?"
OF_A_CHECK = {"check", "suite", "retriever"}
LATENCIES = ("p50", "p95", "max")
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

# The contract's names that are built, with their type and labels.
STATE: dict[str, tuple[str, set[str]]] = {
    "coalmine_health_score_ratio": (GAUGE, OF_A_CHECK),
    "coalmine_coverage_ratio": (GAUGE, OF_A_CHECK),
    "coalmine_degraded_queries": (GAUGE, OF_A_CHECK),
    "coalmine_canaries": (GAUGE, OF_A_CHECK | {"state"}),
    "coalmine_measure_ratio": (GAUGE, OF_A_CHECK | {"measure", "k"}),
    "coalmine_category_measure_ratio": (GAUGE, OF_A_CHECK | {"category", "measure", "k"}),
    "coalmine_recall_ratio": (GAUGE, OF_A_CHECK | {"k", "level"}),
    "coalmine_recall_self_judged": (GAUGE, OF_A_CHECK),
    "coalmine_probe_latency_seconds": (GAUGE, OF_A_CHECK | {"percentile"}),
    "coalmine_verdict": (GAUGE, OF_A_CHECK | {"verdict"}),
    "coalmine_last_run_timestamp_seconds": (GAUGE, OF_A_CHECK),
    "coalmine_last_success_timestamp_seconds": (GAUGE, OF_A_CHECK),
    "coalmine_check_interval_seconds": (GAUGE, OF_A_CHECK),
    "coalmine_alerts": (GAUGE, {"check", "state", "severity"}),
    "coalmine_outbox_pending": (GAUGE, set()),
    "coalmine_outbox_oldest_seconds": (GAUGE, set()),
    "coalmine_index_info": (GAUGE, OF_A_CHECK | {"index_version"}),
    "coalmine_canary_top_score_ratio": (GAUGE, OF_A_CHECK | {"canary"}),
    "coalmine_canary_degraded": (GAUGE, OF_A_CHECK | {"canary"}),
    "coalmine_canaries_omitted": (GAUGE, OF_A_CHECK),
    "coalmine_runs_waiting": (GAUGE, set()),
    "coalmine_runs_waiting_oldest_seconds": (GAUGE, set()),
    "coalmine_deliveries_retrying": (GAUGE, {"hook"}),
    "coalmine_deliveries_dead": (GAUGE, {"hook"}),
    "coalmine_hook_disabled": (GAUGE, {"hook"}),
    "coalmine_pooled_recall_corrected": (GAUGE, {"suite", "retriever"}),
    "coalmine_pooled_recall_edited": (GAUGE, {"suite", "retriever"}),
    "coalmine_pooled_recall_ratio": (GAUGE, {"suite", "retriever", "k", "bound"}),
    "coalmine_pooled_recall_self_judged": (GAUGE, {"suite", "retriever"}),
}
PROCESS: dict[str, tuple[str, set[str]]] = {
    "coalmine_runs": (COUNTER, {"outcome"}),
    "coalmine_run_duration_seconds": (HISTOGRAM, set()),
    "coalmine_probes": (COUNTER, {"outcome"}),
    "coalmine_trace_spans": (COUNTER, {"outcome"}),
    "coalmine_embedding_canaries": (COUNTER, {"outcome"}),
    "coalmine_probe_duration_seconds": (HISTOGRAM, set()),
    "coalmine_deliveries": (COUNTER, {"hook"}),
    "coalmine_delivery_failures": (COUNTER, {"hook", "reason"}),
    "coalmine_scheduler_lag_seconds": (GAUGE, set()),
    "coalmine_config_last_reload_successful": (GAUGE, set()),
    "coalmine_config_last_reload_success_timestamp_seconds": (GAUGE, set()),
    "coalmine_config_info": (GAUGE, {"hash"}),
    "coalmine_worker_up": (GAUGE, set()),
    "coalmine_self_issue": (GAUGE, {"issue"}),
    "coalmine_store_up": (GAUGE, set()),
    "coalmine_build_info": (GAUGE, {"version"}),
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path, metrics_token=TOKEN) as opened:
        opened.docs()
        yield opened


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service in which everything has happened, to tests that only look at it."""
    with api(tmp_path_factory.mktemp("busy"), metrics_token=TOKEN) as opened:
        opened.docs()
        _busy(opened)
        yield opened


def _scrape(service: Api, **headers: str) -> str:
    answer = service.client.get("/metrics", headers={**bearer(TOKEN), **headers})
    assert answer.status_code == 200, answer.text
    return answer.text


def _series(text: str, name: str) -> list[tuple[Mapping[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]


def _value(text: str, name: str, **labels: str) -> float | None:
    """Give the value of the one series with these labels; None where there is none."""
    found = [value for seen, value in _series(text, name) if seen.items() >= labels.items()]
    assert len(found) <= 1, found
    return found[0] if found else None


def _busy(service: Api) -> None:
    """Let everything happen that can: an alert fires, a delivery fails, another goes out."""
    service.run()
    service.retriever.found[OAUTH] = []
    service.run()
    service.run()
    service.mailbox.receipts.append(Receipt(ok=False, http_status=500, error="refused", detail="500"))
    service.client.post("/v1/hooks/ops/test")
    service.deliver()
    service.refresh()


def _expect_by_id_and_text(service: Api) -> None:
    """Expect a chunk that came back under another id, and one that stayed."""
    for key, chunk, text in (("moved", "old-c1", "Text of c1."), ("stayed", "c2", "Text of c2.")):
        both = {"key": key, "query": f"Where is {key}?", "expected_chunks": [{"id": chunk, "text": text}]}
        assert service.client.post("/v1/suites/docs/canaries", json=both).status_code in {200, 201}


def test_every_name_of_the_contract_is_there_with_its_type_and_labels(service: Api) -> None:
    _expect_by_id_and_text(service)
    service.put("/v1/checks/docs", {**CHECK, "hooks": ["ops"], "canary_metrics": 4})
    service.annotated_task()
    _busy(service)
    families = {family.name: family for family in text_string_to_metric_families(_scrape(service))}
    assert set(families) == set(STATE) | set(PROCESS)
    for name, (kind, labels) in (STATE | PROCESS).items():
        family = families[name]
        assert family.type == kind, name
        assert family.documentation.endswith("."), name
        assert family.samples, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels, name


@pytest.mark.systems
def test_promtool_has_nothing_to_complain_about(service: Api) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    _busy(service)
    done = subprocess.run(  # noqa: S603 - a program found on the path, given our own text
        [promtool, "check", "metrics"], input=_scrape(service), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_state_is_that_of_the_newest_run(busy: Api) -> None:
    text = _scrape(busy)
    run = busy.get("/v1/checks/docs/health")
    check = {"check": "docs", "suite": "docs", "retriever": "search"}
    assert _value(text, "coalmine_health_score_ratio", **check) == run["health_score"]
    assert _value(text, "coalmine_coverage_ratio", **check) == 0.5
    assert _value(text, "coalmine_degraded_queries", **check) == 1
    assert _value(text, "coalmine_canaries", **check, state="measured") == 3
    assert _value(text, "coalmine_canaries", **check, state="failed") == 0
    assert _value(text, "coalmine_canaries", **check, state="undefined") == 1
    assert _value(text, "coalmine_measure_ratio", **check, measure="R", k="3") == 0.5
    assert _value(text, "coalmine_measure_ratio", **check, measure="MRR", k="") == 0.5
    assert _value(text, "coalmine_category_measure_ratio", category="procedural", measure="coverage") == 0
    assert _value(text, "coalmine_verdict", **check, verdict="degraded") == 1
    assert _value(text, "coalmine_verdict", **check, verdict="healthy") == 0
    assert _value(text, "coalmine_verdict", **check, verdict="unknown") == 0
    assert _value(text, "coalmine_check_interval_seconds", **check) == 3600
    latency = {name: _value(text, "coalmine_probe_latency_seconds", **check, percentile=name) for name in LATENCIES}
    assert latency == run["latency_seconds"]
    assert None not in latency.values()
    assert _value(text, "coalmine_index_info", **check, index_version="v1") == 1
    assert _value(text, "coalmine_alerts", check="docs", state="firing", severity="critical") == 1
    assert _value(text, "coalmine_alerts", check="docs", state="firing", severity="warning") == 0
    assert _value(text, "coalmine_last_run_timestamp_seconds", **check) == pytest.approx(_epoch(run["finished_at"]))
    assert _value(text, "coalmine_outbox_pending") == 1
    assert (_value(text, "coalmine_outbox_oldest_seconds") or 0) > 0
    assert _value(text, "coalmine_store_up") == 1


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_this_process_counts_what_it_did(busy: Api) -> None:
    text = _scrape(busy)
    assert _value(text, "coalmine_runs_total", outcome="healthy") == 1
    assert _value(text, "coalmine_runs_total", outcome="degraded") == 2
    assert _value(text, "coalmine_runs_total", outcome="unknown") == 0
    assert _value(text, "coalmine_probes_total", outcome="ok") == 9
    assert {labels["outcome"] for labels, _ in _series(text, "coalmine_probes_total")} == set(Outcome)
    assert _value(text, "coalmine_run_duration_seconds_count") == 3
    assert _value(text, "coalmine_probe_duration_seconds_count") == 9
    assert _value(text, "coalmine_probe_duration_seconds_sum") == 9 * 0.25
    assert _value(text, "coalmine_probe_duration_seconds_bucket", le="0.25") == 9
    assert _value(text, "coalmine_probe_duration_seconds_bucket", le="0.1") == 0
    assert _value(text, "coalmine_deliveries_total", hook="ops") == 1
    assert _value(text, "coalmine_delivery_failures_total", hook="ops", reason="refused") == 1
    assert _value(text, "coalmine_build_info", version=__version__) == 1
    assert _value(text, "coalmine_config_last_reload_successful") == 1


def test_what_was_never_measured_has_no_series(service: Api) -> None:
    service.refresh()
    text = _scrape(service)
    assert _value(text, "coalmine_check_interval_seconds", check="docs") == 3600
    of_checks = {name for name, (_, labels) in STATE.items() if labels >= OF_A_CHECK}
    for name in of_checks - {"coalmine_check_interval_seconds"}:
        assert _series(text, name) == [], name
    service.run()
    service.refresh()
    text = _scrape(service)
    assert _value(text, "coalmine_measure_ratio", measure="R", k="10") == 1
    assert _value(text, "coalmine_measure_ratio", measure="R", k="20") is None, "beyond what is fetched"
    assert _value(text, "coalmine_category_measure_ratio", category="negative", measure="coverage") is None


def test_recall_by_id_and_by_passage_stand_side_by_side(service: Api) -> None:
    _expect_by_id_and_text(service)
    service.run()
    service.refresh()
    text = _scrape(service)
    check = {"check": "docs", "suite": "docs", "retriever": "search"}
    assert _value(text, "coalmine_recall_ratio", **check, k="3", level="id") == 0.5
    assert _value(text, "coalmine_recall_ratio", **check, k="3", level="passage") == 1
    assert _value(text, "coalmine_recall_ratio", **check, k="20", level="id") is None, "beyond what is fetched"
    told = {labels["measure"] for labels, _ in _series(text, "coalmine_measure_ratio")}
    assert "R" in told
    assert not told & {"R_id", "R_passage"}, "nothing is told twice"
    assert _value(text, "coalmine_category_measure_ratio", category="simple_factual", measure="R_id", k="3") == 0.5


def test_there_is_no_recall_by_id_where_nothing_is_expected_by_id_and_text(service: Api) -> None:
    service.run()
    service.refresh()
    assert _series(_scrape(service), "coalmine_recall_ratio") == []


def test_a_dead_retriever_leaves_no_scores_behind(service: Api) -> None:
    service.run()
    service.refresh()
    succeeded = _value(_scrape(service), "coalmine_last_success_timestamp_seconds")
    for canary in CANARIES:
        service.retriever.outcomes[canary["query"]] = Outcome.UNREACHABLE
    service.run()
    service.refresh()
    text = _scrape(service)
    for name in ("coalmine_health_score_ratio", "coalmine_coverage_ratio", "coalmine_measure_ratio"):
        assert _series(text, name) == [], name
    assert _value(text, "coalmine_verdict", verdict="unknown") == 1
    assert _value(text, "coalmine_canaries", state="failed") == 3
    assert _value(text, "coalmine_last_success_timestamp_seconds") == succeeded
    assert (_value(text, "coalmine_last_run_timestamp_seconds") or 0) > (succeeded or 0)
    assert _value(text, "coalmine_probes_total", outcome="unreachable") == 3


def test_a_disabled_or_archived_check_has_no_series(service: Api) -> None:
    service.run()
    service.put("/v1/checks/docs", {**CHECK, "enabled": False})
    service.refresh()
    assert 'check="docs"' not in _scrape(service)
    service.put("/v1/checks/docs", CHECK)
    service.refresh()
    assert 'check="docs"' in _scrape(service)
    service.client.delete("/v1/checks/docs")
    service.refresh()
    assert 'check="docs"' not in _scrape(service)


def test_a_hook_that_is_gone_has_no_series_and_counts_on_when_it_comes_back(service: Api) -> None:
    _busy(service)
    assert _value(_scrape(service), "coalmine_deliveries_total", hook="ops") == 1
    shown = service.get("/v1/hooks/ops")
    service.put("/v1/checks/docs", {**CHECK, "hooks": []})
    assert service.client.delete("/v1/hooks/ops", params={"force": "true"}).status_code == 204
    service.refresh()
    assert 'hook="ops"' not in _scrape(service)
    again = {key: value for key, value in shown.items() if key in {"kind", "url"}}
    service.put("/v1/hooks/ops", {**again, "secret": HOOK_SECRET})
    service.refresh()
    assert _value(_scrape(service), "coalmine_deliveries_total", hook="ops") == 1


def test_no_text_of_a_query_or_an_address_is_ever_a_label(busy: Api) -> None:
    for accept in ("", "application/openmetrics-text"):
        text = _scrape(busy, accept=accept)
        assert "://" not in text
        assert "127.0.0.1" not in text
        assert HOOK_SECRET not in text
        for canary in CANARIES:
            assert canary["query"] not in text
        for _, value in re.findall(r'(\w+)="([^"]*)"', text):
            assert re.fullmatch(r"[A-Za-z0-9_.+@-]*", value), value


def test_a_slug_that_could_forge_a_series_cannot_exist(service: Api) -> None:
    for slug in ('a"b', "a\nb", "a{b}", "A", "a b", "ä", 'x",verdict="healthy'):
        answer = service.client.post("/v1/import", json=[{"checks": [{**CHECK, "slug": slug}]}])
        assert answer.status_code == 422, slug
        assert [error["path"] for error in answer.json()["errors"]] == ["checks[0].slug"], slug


def test_an_index_version_is_escaped(service: Api) -> None:
    hostile = 'v1"} 1\ncoalmine_store_up 0 # \\'
    service.retriever.index_version = hostile
    service.run()
    service.refresh()
    text = _scrape(service)
    assert [labels["index_version"] for labels, _ in _series(text, "coalmine_index_info")] == [hostile]
    assert _value(text, "coalmine_store_up") == 1


def test_openmetrics_carries_run_ids_as_exemplars(service: Api) -> None:
    run = service.run()
    answer = service.client.get("/metrics", headers={**bearer(TOKEN), "accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    exemplars = {
        family.name: {sample.exemplar.labels["run_id"] for sample in family.samples if sample.exemplar}
        for family in openmetrics_families(answer.text)  # type: ignore[no-untyped-call] # this one has no types
        if family.type == HISTOGRAM
    }
    assert exemplars == {"coalmine_run_duration_seconds": {run["id"]}, "coalmine_probe_duration_seconds": {run["id"]}}
    plain = service.client.get("/metrics", headers={**bearer(TOKEN), "accept": "text/plain"})
    assert plain.headers["content-type"].startswith("text/plain")
    assert "run_id" not in plain.text


class Gone(Store):
    """A store whose database can go away, and counts who asks it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gone = False
        self.asked = 0

    def read(self) -> Any:
        """Ask, or hear that it is gone."""
        self.asked += 1
        if self.gone:
            raise StoreUnavailableError("the database cannot be used now: it went away")
        return super().read()


@pytest.fixture
def fragile(service: Api) -> Iterator[Gone]:
    store = Gone(service.service.settings.database)
    yield store
    store.close()


def test_a_scrape_never_touches_the_store(busy: Api) -> None:
    store = busy.service.store
    store.engine.pool.dispose()
    asked: list[str] = []

    def note(*_: Any) -> None:
        asked.append("connected")

    sa.event.listen(store.engine, "checkout", note)
    for accept in ("", "application/openmetrics-text"):
        assert "coalmine_health_score_ratio{" in _scrape(busy, accept=accept)
    assert asked == []
    assert busy.client.get("/v1/checks").status_code == 200
    assert asked, "a route that reads is seen"


def test_a_locked_database_does_not_hold_up_a_scrape(service: Api) -> None:
    service.run()
    service.refresh()
    with service.service.store.write() as connection:
        connection.exec_driver_sql("UPDATE definitions SET updated_at = updated_at")
        assert _value(_scrape(service), "coalmine_coverage_ratio") == 1


def test_state_vanishes_with_the_store_and_comes_back_with_it(service: Api, fragile: Gone) -> None:
    service.run()
    snapshot = service.service.exposition.snapshot
    snapshot.refresh(fragile)
    assert _value(_scrape(service), "coalmine_coverage_ratio") == 1
    fragile.gone = True
    with pytest.raises(StoreUnavailableError):
        snapshot.refresh(fragile)
    text = _scrape(service)
    assert _value(text, "coalmine_store_up") == 0
    for name in STATE:
        assert _series(text, name) == [], name
    assert _value(text, "coalmine_runs_total", outcome="healthy") == 1, "what this process did is known without"
    fragile.gone = False
    snapshot.refresh(fragile)
    assert _value(_scrape(service), "coalmine_coverage_ratio") == 1


def test_a_state_nobody_renews_is_not_shown_as_fresh(service: Api) -> None:
    now = [0.0]
    snapshot = Snapshot(clock=lambda: now[0])
    assert snapshot.state is None
    snapshot.refresh(service.service.store)
    now[0] = 30.0
    assert snapshot.state is not None
    now[0] = 31.0
    assert snapshot.state is None
    snapshot.refresh(service.service.store)
    assert snapshot.state is not None


def test_who_scraped_before_still_hears_that_the_store_is_gone(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        known, unknown = bearer(service.key(Scope.READ)), bearer(service.key(Scope.READ))
        assert service.client.get("/metrics", headers=known).status_code == 200
        access = service.client.app.state.access  # type: ignore[attr-defined] # it is a FastAPI
        fragile = Gone(service.service.settings.database)
        fragile.gone = True
        store = service.service.store

        def told_as_gone() -> bool:
            with pytest.raises(StoreUnavailableError):
                service.service.exposition.snapshot.refresh(fragile)
            return _value(service.client.get("/metrics", headers=known).text, "coalmine_store_up") == 0

        for holder in (access, service.service):  # the latter refreshes the snapshot every few seconds
            object.__setattr__(holder, "store", fragile)
        try:
            assert until(told_as_gone)  # a refresh of the service's own may be on its way
            assert service.client.get("/metrics", headers=unknown).status_code == 503
            assert service.client.get("/metrics").status_code == 503
            gone = service.client.get("/v1/checks", headers=known)
            assert gone.status_code == 503
            assert gone.json()["type"] == "/problems/store-unavailable"
            assert gone.headers["retry-after"] == "5"
        finally:
            for holder in (access, service.service):
                object.__setattr__(holder, "store", store)
            fragile.close()


def test_a_worker_shows_a_run_without_being_asked(tmp_path: Path) -> None:
    with api(tmp_path, with_worker=True, metrics_token=TOKEN) as service:
        assert _value(_scrape(service), "coalmine_store_up") == 1, "from the first scrape on"
        service.docs(enabled=True)
        assert service.client.post("/v1/checks/docs/runs", json={"wait_seconds": 60}).status_code == 200
        until(lambda: _value(_scrape(service), "coalmine_coverage_ratio") == 1)
        until(lambda: _value(_scrape(service), "coalmine_runs_total", outcome="healthy") == 1)


def test_what_people_add_and_delete_shows_without_waiting_for_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_SYNC_SECONDS", 3600)
    with api(tmp_path, with_worker=True, metrics_token=TOKEN) as service:
        hook = {"kind": "webhook", "url": "http://127.0.0.1:9/", "secret": HOOK_SECRET}
        assert service.client.put("/v1/hooks/ops", json=hook).is_success
        until(lambda: 'coalmine_hook_disabled{hook="ops"}' in _scrape(service))
        assert service.client.delete("/v1/hooks/ops").is_success
        until(lambda: 'hook="ops"' not in _scrape(service))


def test_two_services_in_one_process_do_not_mix() -> None:
    first, second = Exposition.create(), Exposition.create()
    first.process.watch_lag(timedelta(minutes=1).total_seconds)
    assert b"coalmine_scheduler_lag_seconds 60.0" in first.render()[0]
    assert b"coalmine_scheduler_lag_seconds 0.0" in second.render()[0]


def test_a_reload_that_failed_shows() -> None:
    exposition = Exposition.create()
    exposition.process.config_reloaded(successful=False)
    assert b"coalmine_config_last_reload_successful 0.0" in exposition.render()[0]
    exposition.process.config_reloaded(successful=True)
    assert b"coalmine_config_last_reload_successful 1.0" in exposition.render()[0]
