"""Kills of a real service while it plants documents: none is left in the source, and none is put twice."""

from pathlib import Path

import pytest

from tests.plants.kills import kill_amid_plants

pytestmark = [pytest.mark.systems(seconds=120), pytest.mark.timeout(900)]


def test_no_document_is_left_after_kills(tmp_path: Path) -> None:
    kill_amid_plants(tmp_path, kills=12)
