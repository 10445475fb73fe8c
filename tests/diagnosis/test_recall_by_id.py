"""Recall by id beside recall by passage: wherever the documentation says that the two are told apart."""

import json

import pytest

from app.alerts.service import transitions
from app.base.db.engine import Store
from app.reports.rendering.reports import report_markdown
from app.reports.service import reports
from tests.support.library import TEXTS, Diagnosed, shelf
from tests.support.pages_service import Site
from tests.support.world import CHECK

CAUSE = "ecall by id 1.00 -> 0.00, by passage 1.00 -> 0.83"
GAP = "ecall by id 0.00, by passage 0.83: the expected texts have other ids"
ALL_FOUND = "ecall by id 0.00, by passage 1.00: the expected texts have other ids"


@pytest.fixture
def setting(sqlite_store: Store) -> Diagnosed:
    """Give canaries that expect an id and a text each, after a healthy run."""
    both = [{**one, "expected_chunks": [{"id": one["key"], "text": TEXTS[str(one["key"])]}]} for one in shelf()]
    made = Diagnosed.of(sqlite_store, both)
    made.run()
    return made


def renamed(setting: Diagnosed, *, without: str | None = None) -> str:
    """Index every chunk under another id, one of them not at all, and run."""
    setting.library.chunks = {f"v2-{name}": text for name, text in TEXTS.items() if name != without}
    return str(setting.run().id)


def test_the_cause_with_both_recalls_stands_in_reasons_pages_alert_and_notification(setting: Diagnosed) -> None:
    run = renamed(setting, without="export")
    pages = Site(world=setting.world)
    client = pages.client()
    shown = client.get(f"/v1/runs/{run}").json()
    assert (shown["measures"]["R_id@3"], shown["measures"]["R_passage@3"]) == (0.0, 0.833333)
    assert [reason for reason in shown["reasons"] if CAUSE in reason]
    for path in (f"/runs/{run}", f"/checks/{CHECK}", "/incidents/1", "/alerts/1"):
        assert CAUSE in pages.page(path).text, path
    transitions = client.get("/v1/alerts/1").json()["transitions"]
    cause = transitions[-1]["fleet"]["cause"]
    assert (cause["recall_by_id_now"], cause["recall_by_passage_now"]) == (0.0, 0.8333)
    assert setting.world.deliver() is not None
    data = json.loads(setting.world.send.sent[-1][1].body)["data"]
    assert CAUSE in data["summary"]
    assert data["fleet"]["cause"]["recall_by_passage_now"] == 0.8333
    report = report_markdown(reports.load_report(setting.world.store, run)).replace("\\", "")
    assert CAUSE in report
    assert GAP in report
    assert GAP not in pages.page(f"/runs/{run}").text, "the cause says so already"


def test_once_it_is_accepted_the_pages_say_so_for_as_long_as_the_ids_differ(setting: Diagnosed) -> None:
    renamed(setting)
    transitions.accept_baseline(setting.world.store, CHECK, by="somebody", note=None, now=setting.world.clock())
    later = renamed(setting)
    pages = Site(world=setting.world)
    assert pages.client().get(f"/v1/runs/{later}").json()["reasons"] == []
    for path in (f"/runs/{later}", f"/checks/{CHECK}"):
        assert ALL_FOUND in pages.page(path).text, path
    assert ALL_FOUND in report_markdown(reports.load_report(setting.world.store, later)).replace("\\", "")
    setting.library.chunks = dict(TEXTS)
    back = setting.run().id
    for path in (f"/runs/{back}", f"/checks/{CHECK}"):
        assert "the expected texts have other ids" not in pages.page(path).text, path
