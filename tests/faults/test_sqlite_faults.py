"""The short forms of the faults of SQLite; see `python -m tests.faults` for the long ones."""

from pathlib import Path

import pytest

from tests.faults.faults import Fault, assert_harmless
from tests.faults.sqlite_faults import FAULTS

pytestmark = [pytest.mark.systems(seconds=100), pytest.mark.timeout(420)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_does_no_harm(fault: Fault, tmp_path: Path) -> None:
    assert_harmless(fault, tmp_path)
