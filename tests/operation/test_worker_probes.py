"""A worker alone, `coalmine work`: it answers its probes and `/metrics`, by the rules of `serve`, and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from app.base.db import keys as api_keys
from app.base.db.keys import Scope
from app.base.jobs.values import JobKind
from app.config import Settings
from app.main import Service, create_app, create_worker_app, open_service
from app.operation.service.self_monitor import Issue
from tests.support.api_service import BASE, bearer
from tests.support.asgi_client import TestClient
from tests.support.living import until
from tests.support.migrated_files import prepare_database

TOKEN = "a-token-only-prometheus-knows"
PROBES = {"/livez", "/readyz", "/metrics"}


@contextmanager
def opened(data_dir: Path, **more: Any) -> Iterator[Service]:
    settings = Settings(data_dir=data_dir, metrics_token=TOKEN, **more)
    prepare_database(settings)
    service = open_service(settings, environment={}, with_worker=True)
    try:
        yield service
    finally:
        service.store.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with opened(tmp_path) as found:
        yield found


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(create_worker_app(service), base_url=BASE) as found:
        yield found


def key(service: Service, scope: Scope) -> str:
    return api_keys.create_key(service.store, name=f"a {scope} key", scope=scope, now=datetime.now(UTC))


def _endpoints(app: FastAPI) -> dict[str, object]:
    return {str(route.path): route.endpoint for route in iter_route_contexts(app.routes)}


def test_a_worker_has_three_routes_and_shares_them_with_the_service(service: Service) -> None:
    routes = _endpoints(create_worker_app(service))
    assert set(routes) == PROBES
    assert routes.items() <= _endpoints(create_app(service)).items()


def test_a_worker_shows_nothing_but_its_probes(service: Service, client: TestClient) -> None:
    for path in ["/", "/v1/checks", "/openapi.json", "/login", "/static/app.css", "/checks", "/docs"]:
        assert client.get(path).status_code == 404, path
        assert client.get(path, headers=bearer(key(service, Scope.ADMIN))).status_code == 404, path


def test_a_worker_does_as_many_runs_at_a_time_as_its_setting_says(tmp_path: Path) -> None:
    with opened(tmp_path, run_threads=7) as service:
        assert service.worker is not None
        places = {kind: place.most for place in service.worker._tasks.places for kind in place.kinds}
    assert (places[JobKind.RUN], places[JobKind.SHARD], places[JobKind.RETENTION]) == (7, 7, 1)


def test_nothing_can_be_written_through_a_worker(service: Service, client: TestClient) -> None:
    admin = bearer(key(service, Scope.ADMIN))
    assert {client.post(path, headers=admin).status_code for path in PROBES} == {405}
    assert {client.put(path, headers=admin).status_code for path in PROBES} == {405}


def test_a_worker_lives_at_once_and_is_ready_while_it_works(service: Service, client: TestClient) -> None:
    worker = service.worker
    assert worker is not None
    assert (client.get("/livez").status_code, client.get("/livez").text) == (200, "ok\n")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "the worker is not running"
    worker.start()
    try:
        assert (client.get("/readyz").status_code, client.get("/readyz").text) == (200, "ok\n")
    finally:
        worker.stop()
    assert client.get("/readyz").status_code == 503, "it has stopped"
    assert client.get("/livez").status_code == 200, "and is let end in peace"


def test_a_worker_that_cannot_use_the_database_is_not_ready_and_tells_strangers_no_more(
    service: Service, client: TestClient
) -> None:
    worker = service.worker
    assert worker is not None
    reader = bearer(key(service, Scope.READ))
    monitor = service.exposition.process.monitor
    worker.start()
    try:
        monitor.report(Issue.STORE_WRITE, "the disk of the database is full")
        stranger, known = client.get("/readyz"), client.get("/readyz", headers=reader)
    finally:
        worker.stop()
    assert (stranger.status_code, known.status_code) == (503, 503)
    assert "disk" not in stranger.text
    assert "the disk of the database is full" in known.json()["detail"]


def test_metrics_of_a_worker_open_to_whom_they_open_at_a_service(service: Service) -> None:
    keys = {scope: key(service, scope) for scope in Scope}
    headers = [{}, bearer(TOKEN), bearer("another-token-altogether"), *(bearer(one) for one in keys.values())]
    statuses = []
    for app in (create_worker_app(service), create_app(service)):
        client = TestClient(app, base_url=BASE)  # without its lifespan: both are apps of one store
        statuses.append([client.get("/metrics", headers=one).status_code for one in headers])
    of_worker, of_service = statuses
    assert of_worker == of_service
    assert of_worker[:3] == [401, 200, 401]
    assert dict(zip(keys, of_worker[3:], strict=True)) == {
        Scope.ANNOTATE: 403,
        Scope.INGEST: 403,
        Scope.READ: 200,
        Scope.WRITE: 200,
        Scope.ADMIN: 200,
    }


def test_metrics_of_a_worker_tell_its_worker_and_no_configuration(service: Service, client: TestClient) -> None:
    worker = service.worker
    assert worker is not None
    service.exposition.process.config_left_to_others()
    worker.start()
    try:
        until(lambda: "coalmine_runs_waiting 0.0" in client.get("/metrics").text)
        text = client.get("/metrics").text
    finally:
        worker.stop()
    assert "\ncoalmine_worker_up 1.0" in text
    assert "\ncoalmine_store_up 1.0" in text
    assert "\ncoalmine_config_info{" not in text, "it applies no canary files: it cannot disagree with who does"
    assert "\ncoalmine_worker_up 0.0" in client.get("/metrics").text


def test_a_worker_beyond_loopback_is_never_open(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("bootstrap-key-0123456789", encoding="utf-8")
    settings: dict[str, Any] = {"host": "0.0.0.0", "secret_key": "s" * 32, "bootstrap_key_file": file}  # noqa: S104 - nothing listens
    with opened(tmp_path, **settings) as service:
        client = TestClient(create_worker_app(service), base_url="http://10.1.2.3:8000")
        assert client.get("/livez").status_code == 200
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers=bearer(TOKEN)).status_code == 200
