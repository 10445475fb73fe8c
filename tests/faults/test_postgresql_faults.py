"""Short forms of two faults of replicas on PostgreSQL; `python -m tests.faults` tries them often, and all others."""

from pathlib import Path

import pytest

from tests.faults import postgres_faults, replica_faults
from tests.faults.faults import Fault, assert_harmless

pytestmark = [pytest.mark.systems(seconds=90), pytest.mark.timeout(600)]

_TESTED = ("replica-kill-busiest", "postgres-restart")
"""A worker and the database that end at once. Each of the others takes a minute by itself, so tests leave them out."""


@pytest.mark.parametrize(
    "fault",
    [fault for fault in (*replica_faults.FAULTS, *postgres_faults.FAULTS) if fault.name in _TESTED],
    ids=lambda fault: fault.name,
)
def test_a_fault_does_no_harm(fault: Fault, tmp_path: Path) -> None:
    assert_harmless(fault, tmp_path)
