"""The whole promise, once: a healthy retriever breaks, people hear of it, it heals, people hear of that."""

import json
from pathlib import Path
from typing import Any

import httpx2
from standardwebhooks.webhooks import Webhook

from app.demo.server import create_demo
from tests.support.living import Receiver, coalmine, serving, until

CANARIES = Path(__file__).parents[2] / "canaries"
SECRET = "whsec_c3RvcnktdGVsbGVyLXNlY3JldC0wMTIzNDU2Nzg5"


def test_a_broken_retriever_is_noticed_announced_once_and_its_recovery_too(tmp_path: Path) -> None:
    with (
        serving(create_demo()) as demo,
        Receiver().listening() as receiver,
        coalmine(
            tmp_path,
            canaries=CANARIES,
            environment={"DEMO_URL": demo, "OPS_WEBHOOK": receiver.url, "OPS_SECRET": SECRET},
        ) as (url, _),
        httpx2.Client(base_url=url, timeout=60) as client,
    ):
        check = "/v1/checks/dataforge-docs"

        # A first run comes by itself: all is well.
        healthy = until(lambda: _ok(client.get(f"{check}/health")))
        assert healthy["verdict"] == "healthy", healthy["reasons"]
        assert healthy["trigger"] == "schedule"
        assert healthy["coverage"] == 1.0
        assert healthy["degraded_queries"] == []
        assert healthy["health_score"] > 0.8
        assert healthy["canaries"]["failed"] == 0

        # Thirty per cent of the index is lost. One bad run is not an alert yet, the second is.
        httpx2.post(f"{demo}/fault", json={"kind": "loss", "size": 0.3})
        first = _run(client, check)
        assert first["verdict"] == "degraded"
        assert first["coverage"] < 0.75
        assert "How do I configure OAuth2 authentication?" in first["degraded_queries"]
        assert [alert["state"] for alert in client.get("/v1/alerts").json()["items"]] == ["pending"]
        _run(client, check)
        _run(client, check)
        alert = _the_alert(client)
        assert (alert["state"], alert["severity"]) == ("firing", "critical")
        assert [change["type"] for change in alert["transitions"]] == ["opened"]

        # People hear of it, once, and can tell that it is from us.
        until(lambda: receiver.received)
        opened = _verified(receiver, 0)
        assert opened["type"] == "alert.opened"
        assert opened["data"]["check"] == "dataforge-docs"
        assert opened["data"]["coverage"] < 0.75
        assert opened["data"]["degraded"][0]["rank_before"] == 1
        assert "missing" in opened["data"]["degraded"][0]["reasons"]

        # It heals; two good runs and people hear of that, once.
        httpx2.post(f"{demo}/fault", json={"kind": "none"})
        _run(client, check)
        assert _the_alert(client)["state"] == "recovering"
        _run(client, check)
        healed = _run(client, check)
        assert healed["verdict"] == "healthy"
        assert healed["coverage"] == 1.0
        alert = _the_alert(client)
        assert alert["state"] == "resolved"
        assert [change["type"] for change in alert["transitions"]] == ["opened", "resolved"]
        until(lambda: len(receiver.received) > 1)
        resolved = _verified(receiver, 1)
        assert resolved["type"] == "alert.resolved"
        assert resolved["data"]["dedupe_key"] == opened["data"]["dedupe_key"]
        until(lambda: all(item["state"] == "delivered" for item in client.get("/v1/deliveries").json()["items"]))
        assert len(receiver.received) == 2

        # All of it is on the record.
        runs = client.get(f"{check}/runs").json()["items"]
        assert [run["verdict"] for run in runs] == ["healthy"] * 3 + ["degraded"] * 3 + ["healthy"]
        series = client.get(f"{check}/series", params={"measure": "coverage"}).json()
        assert len(series["points"]) == len(runs)
        assert min(point["min"] for point in series["points"]) == first["coverage"]


def _run(client: httpx2.Client, check: str) -> dict[str, Any]:
    answer = client.post(f"{check}/runs", json={"wait_seconds": 30})
    assert answer.status_code == 200, answer.text
    run: dict[str, Any] = answer.json()
    assert run["status"] == "finished", run
    return run


def _the_alert(client: httpx2.Client) -> dict[str, Any]:
    items = client.get("/v1/alerts").json()["items"]
    assert len(items) == 1, items
    alert: dict[str, Any] = items[0]
    return alert


def _ok(answer: httpx2.Response) -> dict[str, Any]:
    if answer.status_code == 404:
        return {}
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def _verified(receiver: Receiver, number: int) -> dict[str, Any]:
    headers, body = receiver.received[number]
    Webhook(SECRET).verify(body, headers)
    message: dict[str, Any] = json.loads(body)
    return message
