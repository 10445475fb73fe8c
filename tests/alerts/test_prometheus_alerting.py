"""From two replicas to somebody's ear: a real Prometheus with the shipped rules, a real Alertmanager with its routes.

What is changed of the shipped files is what `hastened` and `heard_by` say, no more: time runs faster, receivers listen.
"""

import json
import re
import signal
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.conftest import Databases
from tests.support.http_servers import Peer, peer, reply
from tests.support.living import until
from tests.support.monitoring import alertmanager, needed, prometheus, replicas, scraping
from tests.support.world import CHECK

pytestmark = pytest.mark.systems(seconds=35)

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "deploy"
ROUTES = SHIPPED / "alertmanager" / "alertmanager.yml"


def hastened(rules: str) -> str:
    """Let a minute of look-back be five seconds, and every alert that holds for eight seconds fire."""
    rules = re.sub(r"(?<=\[)(\d+)m(?=\])|(?<=offset )(\d+)m", lambda found: f"{5 * int(found[1] or found[2])}s", rules)
    rules = re.sub(r"\[1h\]", "[300s]", rules)
    return re.sub(r"for: \d+m", "for: 8s", rules)


def heard_by(receiver: str) -> dict[str, Any]:
    """Let every receiver of the shipped routes be this address, told at once and of each alert by itself."""
    config: dict[str, Any] = yaml.safe_load(ROUTES.read_text(encoding="utf-8"))
    for one in config["receivers"]:
        one["webhook_configs"] = [{"url": f"{receiver}/{one['name']}", "send_resolved": True}]
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_by": ["..."], "group_wait": "1ms", "group_interval": "50ms"}
    return config


def told(receiver: Peer) -> list[tuple[str, str, str, str]]:
    """List what receivers were told: (receiver, alert, firing or resolved, fingerprint)."""
    return [
        (seen.target.strip("/"), alert["labels"]["alertname"], alert["status"], alert["fingerprint"])
        for seen in receiver.seen
        for alert in json.loads(seen.body)["alerts"]
    ]


def named(receiver: Peer, status: str) -> set[str]:
    """Name the alerts whose beginning (`firing`) or end (`resolved`) was told."""
    return {name for _, name, said, _ in told(receiver) if said == status}


def test_two_replicas_and_one_fault_are_one_firing_and_one_resolved(databases: Databases, tmp_path: Path) -> None:
    watching = tmp_path / "prometheus"
    watching.mkdir()
    for file in (*SHIPPED.glob("prometheus/rules/*.yml"), *SHIPPED.glob("prometheus/fallback/*.yml")):
        (watching / file.name).write_text(hastened(file.read_text(encoding="utf-8")), encoding="utf-8")
    with (
        peer(reply()) as receiver,
        replicas(tmp_path / "coalmine", databases) as site,
        alertmanager(tmp_path / "alertmanager", heard_by(receiver.url)) as manager,
    ):
        alerting = {"alertmanagers": [{"static_configs": [{"targets": [manager.removeprefix("http://")]}]}]}
        config = scraping(site.ports, rule_files=["coalmine-*.yml"], alerting=alerting)
        with prometheus(watching, config) as seeing:
            seeing.until("count(up == 1) == 2")
            with site.degraded():
                sound = site.canaries.read_text(encoding="utf-8")
                site.canaries.write_text("no: canaries", encoding="utf-8")
                site.processes[1].popen.send_signal(signal.SIGHUP)
                wanted = {"CoalmineCheckDegraded", "CoalmineCoverageLow", "CoalmineConfigReloadFailed"}
                until(lambda: named(receiver, "firing") >= wanted, seconds=120)
            site.canaries.write_text(sound, encoding="utf-8")
            site.processes[1].popen.send_signal(signal.SIGHUP)
            site.run()
            until(lambda: named(receiver, "resolved") >= wanted, seconds=120)
            of_check = f'{{check="{CHECK}"}}'
            assert len(seeing.instant(f"coalmine_coverage_ratio{of_check}")) == 2, "each replica says so"
            assert len(seeing.instant(f"job_check:coalmine_coverage:ratio{of_check}")) == 1
    heard = told(receiver)  # Alertmanager has ended, so this is all there will ever be
    assert sorted(one[:3] for one in heard) == [
        ("operators", "CoalmineConfigReloadFailed", "firing"),
        ("operators", "CoalmineConfigReloadFailed", "resolved"),
        ("retrieval", "CoalmineCheckDegraded", "firing"),
        ("retrieval", "CoalmineCheckDegraded", "resolved"),
        ("retrieval", "CoalmineCoverageLow", "firing"),
        ("retrieval", "CoalmineCoverageLow", "resolved"),
    ]
    assert len({(name, fingerprint) for _, name, _, fingerprint in heard}) == len(wanted), "its end is known as its own"


# --- Alertmanager alone --------------------------------------------------------------------------------------

OF_COALMINE = {"service": "coalmine", "check": "docs", "rule": "coverage", "dedupe_key": "abc"}
OF_RULES = {"service": "coalmine", "job": "coalmine", "severity": "warning"}


def test_amtool_takes_the_routes_and_sends_everybody_where_they_belong() -> None:
    amtool = needed("amtool")

    def run(*arguments: str) -> str:
        done = subprocess.run([amtool, *arguments], capture_output=True, text=True, check=False)  # noqa: S603 - our own
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "SUCCESS" in run("check-config", str(ROUTES))

    def receiver(labels: Mapping[str, str]) -> str:
        return run("config", "routes", "test", f"--config.file={ROUTES}", *map("=".join, labels.items())).strip()

    assert receiver({**OF_COALMINE, "alertname": "CoalmineThreshold"}) == "retrieval"
    assert receiver({**OF_RULES, "alertname": "CoalmineCheckDegraded", "notifier": "fallback"}) == "retrieval"
    assert receiver({**OF_RULES, "alertname": "CoalmineCheckStale"}) == "operators"
    assert receiver({**OF_RULES, "alertname": "CoalmineDown", "severity": "critical"}) == "on-call"
    assert receiver({"alertname": "SomebodyElses", "severity": "critical"}) == "operators"


def test_the_commented_receivers_work_once_they_are_uncommented(tmp_path: Path) -> None:
    text = ROUTES.read_text(encoding="utf-8")
    uncommented = re.sub(r"^    # (?=  |[a-z]+_configs:)", "    ", text, flags=re.MULTILINE)
    names = {"slack_configs", "email_configs", "webhook_configs"}
    secret = tmp_path / "slack"
    with peer(reply()) as slack:
        secret.write_text(f"{slack.url}/services/T", encoding="utf-8")
        config = yaml.safe_load(uncommented.replace("/etc/alertmanager/secrets/slack", str(secret)))
        for receiver in config["receivers"]:
            assert names <= set(receiver), "each takes over the same lines"
            for name in names - {"slack_configs"}:  # nothing of a test leaves this machine
                del receiver[name]
        for route in (config["route"], *config["route"]["routes"]):
            route |= {"group_wait": "1ms", "group_interval": "50ms"}
        with alertmanager(tmp_path / "am", config) as url:
            annotations = {"summary": "no worker of Coalmine is running"}
            body = [{"labels": {**OF_RULES, "alertname": "CoalmineNoWorker"}, "annotations": annotations}]
            httpx2.post(f"{url}/api/v2/alerts", json=body).raise_for_status()
            until(lambda: slack.seen, seconds=30)
    assert slack.seen[0].target == "/services/T"
    assert "firing: no worker of Coalmine is running" in slack.seen[0].body.decode()
    (tmp_path / "uncommented.yml").write_text(uncommented, encoding="utf-8")
    subprocess.run([needed("amtool"), "check-config", tmp_path / "uncommented.yml"], check=True)  # noqa: S603 - our own


def test_one_cause_is_told_once(tmp_path: Path) -> None:
    known = {
        "down": {**OF_RULES, "alertname": "CoalmineDown", "severity": "critical"},
        "no_worker": {**OF_RULES, "alertname": "CoalmineNoWorker", "severity": "critical", "job": "other"},
        "stale": {**OF_RULES, "alertname": "CoalmineCheckStale", "check": "docs"},
        "stale_elsewhere": {**OF_RULES, "alertname": "CoalmineCheckStale", "check": "docs", "job": "other"},
        "stuck_in_a_third": {**OF_RULES, "alertname": "CoalmineOutboxStuck", "severity": "critical", "job": "third"},
        "own_news": {**OF_COALMINE, "alertname": "CoalmineThreshold"},
        "fallback": {
            **OF_RULES,
            "alertname": "CoalmineCoverageLow",
            "check": "docs",
            "notifier": "fallback",
            "job": "third",
        },
        "fallback_of_another": {
            **OF_RULES,
            "alertname": "CoalmineCoverageLow",
            "check": "wiki",
            "notifier": "fallback",
            "job": "third",
        },
    }
    ends = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    with alertmanager(tmp_path / "am", heard_by("http://127.0.0.1:9")) as url, httpx2.Client(base_url=url) as client:
        body = [{"labels": labels, "endsAt": ends} for labels in known.values()]
        assert client.post("/api/v2/alerts", json=body).status_code == 200
        assert len(client.get("/api/v2/alerts").json()) == len(known)

        def kept_back() -> set[str]:
            listed = client.get("/api/v2/alerts", params={"active": "false"}).json()
            quiet = [alert["labels"] for alert in listed if alert["status"]["inhibitedBy"]]
            return {name for name, labels in known.items() if labels in quiet}

        until(lambda: kept_back() == {"stale", "stale_elsewhere", "fallback"})
