"""Kills of a real service amid its jobs of annotation: nothing taken in or annotated is lost, and the jobs go on."""

from pathlib import Path

import pytest

from tests.annotation.kills import kill_amid_pool, kill_amid_traffic

pytestmark = [pytest.mark.systems(seconds=60), pytest.mark.timeout(900)]


def test_traffic_and_reach_survive_kills(tmp_path: Path) -> None:
    kill_amid_traffic(tmp_path, queries=10_000)


def test_a_pool_of_three_retrievers_and_its_annotations_survive_kills(tmp_path: Path) -> None:
    kill_amid_pool(tmp_path, canaries=120, requests_per_second=100)
