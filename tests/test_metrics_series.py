"""How many series there are, and that each says what it should: canaries one by one, waiting work, dead letters."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.domain.alerting import AlertState
from app.domain.hooks import Receipt
from app.domain.measures import CUTOFFS, MEASURES_VERSION, mean_name, measures_for
from app.domain.model import Category, Outcome, Severity, Verdict
from app.formats.documents import MOST_CANARY_METRICS
from app.metrics import Exposition
from app.services import deliveries, runs
from app.services.snapshots import CheckState, HookState, State
from app.store.engine import to_us
from tests.api_service import CANARIES, CHECK, RETRIEVER, Api, api, bearer
from tests.world import COVERAGE, World, canary, page

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
