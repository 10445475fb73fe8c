"""A real Prometheus over a real Coalmine: it takes OpenMetrics, and leads from a slow bucket to the run.

And by itself: what compose tells it on its command line.
"""

import json
import time
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.support.http_servers import peer
from tests.support.living import coalmine
from tests.support.monitoring import ROOT, TOKEN, Commanded, definitions, prometheus, scraping

pytestmark = pytest.mark.systems


def test_an_exemplar_leads_from_a_bucket_to_the_run(tmp_path: Path) -> None:
    began = time.time()
    with peer(Commanded()) as retriever:
        canaries = tmp_path / "canaries.yaml"
        canaries.write_text(json.dumps(definitions(f"{retriever.url}/")), encoding="utf-8")
        with (
            coalmine(tmp_path / "data", canaries=canaries, metrics_token=TOKEN) as (url, _),
            prometheus(tmp_path / "prometheus", scraping([int(url.rpartition(":")[2])])) as seeing,
        ):
            seeing.until("coalmine_runs_total{outcome='healthy'} == 1")
            for name in ("coalmine_run_duration_seconds", "coalmine_probe_duration_seconds"):
                found = seeing.exemplars(f"{name}_bucket", start=began - 60, end=time.time() + 60)
                ids = {one["labels"]["run_id"] for series in found for one in series["exemplars"]}
                assert ids
                for run in ids:
                    assert httpx2.get(f"{url}/v1/runs/{run}").json()["check"] == "watch"


def test_the_prometheus_of_compose_lets_no_page_of_another_site_read(tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    command = compose["services"]["prometheus"]["command"]
    options = dict(option.removeprefix("--").split("=", 1) for option in command)
    here = {name: value for name, value in options.items() if name not in {"config.file", "storage.tsdb.path"}}
    with prometheus(tmp_path, {"global": {}}, here) as seeing:
        for origin in ("https://elsewhere.example", "null", "http://127.0.0.1:8000", "http://127a0b0c1:9090"):
            answer = seeing.client.get(f"{seeing.url}/api/v1/query?query=1", headers={"origin": origin})
            assert answer.status_code == 200
            assert "access-control-allow-origin" not in answer.headers, origin
