"""The shipped check on the real demo: a small loss opens an alert that names exactly the canaries that fell."""

import os
from pathlib import Path

import httpx2

from app import USER_AGENT
from app.base.db.engine import Store
from app.base.values import Trigger
from app.catalog.documents.canary_files import read_canary_files
from app.catalog.store import FILE
from app.config import load_settings
from app.definitions.service import applying
from app.demo.server import create_demo
from app.detection.service import baselines
from app.records.service import run_views
from app.records.service.plans import Planner
from app.records.views import ResultView
from app.retrievers.client.probe import RetrieverProbe
from app.runs.service import due_checks, execution
from app.runs.service.finalising import EndedRun
from tests.support.living import serving
from tests.support.present import present
from tests.support.watched import LEARNED
from tests.support.world import World

CANARIES = Path(__file__).parents[2] / "canaries" / "dataforge.yaml"
CHECK = "dataforge-docs"


def test_a_loss_of_four_per_cent_of_the_demo_alerts_within_four_runs_and_names_who_fell(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    probe = RetrieverProbe(load_settings(os.environ).retriever_addresses, USER_AGENT)
    planner = Planner(sqlite_store, world.vault)

    def run() -> EndedRun:
        now = world.clock.advance(300)
        due_checks.run_now(sqlite_store, CHECK, now=now, trigger=Trigger.API, index_version=None, idempotency_key=None)
        claimed = world.claim()
        assert claimed is not None
        ended = execution.execute(
            planner, probe, claimed, embed=None, owner="worker", clock=world.clock, stopping=lambda: False
        )
        assert ended is not None
        return ended

    with serving(create_demo()) as demo:
        text = CANARIES.read_text(encoding="utf-8")
        documents = read_canary_files([("dataforge.yaml", text)], {"DEMO_URL": demo}, None)
        applying.apply(sqlite_store, world.vault, documents, managed_by=FILE, now=world.clock())
        healthy = [run() for _ in range(LEARNED + 1)]
        assert {one.verdict for one in healthy} == {"healthy"}
        httpx2.post(f"{demo}/fault", json={"kind": "loss", "size": 0.04}).raise_for_status()
        broken = [run() for _ in range(4)]

    (alert,) = world.alerts()
    assert (alert["rule"], alert["severity"], alert["state"]) == ("regression", "critical", "firing")
    before, after = (
        {one["key"]: one for one in run_views.results(sqlite_store, str(run_.id))[0]}
        for run_ in (healthy[-1], broken[-1])
    )
    lost = {key for key, result in after.items() if "missing" in result["reasons"]}
    worse = {key for key in after if _quality(after[key]) < _quality(before[key]) - 0.1} - lost
    assert lost
    assert worse
    named = present(baselines.show(sqlite_store, CHECK).detector).culprits["named"]
    assert {(one["key"], one["signal"]) for one in named} == {
        *((key, "lost") for key in lost),
        *((key, "worse") for key in worse),
    }


def _quality(result: ResultView) -> float:
    """NDCG@10 of a canary; one that expects nothing has none, and keeps it."""
    value = result["measures"]["NDCG@10"]
    return 1.0 if value is None else float(value)
