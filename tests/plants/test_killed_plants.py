"""Kills amid planted documents: none is left in the source, and none is put twice."""

from pathlib import Path

import pytest

from tests.plants.carriers import kill_carriers
from tests.plants.kills import kill_amid_plants

pytestmark = [pytest.mark.systems(seconds=90), pytest.mark.timeout(900)]


def test_no_document_is_left_by_processes_that_carry_it_on(tmp_path: Path) -> None:
    found = kill_carriers(tmp_path, kills=20)
    assert len(found) > 1, "they died on different steps of its way"


def test_no_document_is_left_by_a_service(tmp_path: Path) -> None:
    kill_amid_plants(tmp_path, kills=3)
