"""Upgrades of replicas that go on working: from an earlier release, taken out of the repository, to this one."""

import subprocess
import time
from pathlib import Path
from typing import Final

from tests.faults.accounting import Account
from tests.faults.bench import Bench, Service, bench
from tests.faults.faults import Fault
from tests.faults.harness import FaultError
from tests.faults.postgres import postgres
from tests.faults.replica_faults import LOAD
from tests.faults.trials import START_SECONDS, begin_runs, conclude, restart
from tests.support.processes import ROOT

_EARLIER: Final = "13d480a2"
"""A commit whose workers do jobs, and whose database lacks the newest migration."""
_TRIAL_SECONDS: Final = 240 + 8 * START_SECONDS


def upgrade_one_after_the_other(folder: Path, times: int) -> Account:
    """Migrate the database under replicas of an earlier release amid runs, then replace each.

    Recovery lasts from the beginning of the migration until both are replaced and the runs have ended.
    """
    total = Account()
    for number in range(times):
        with (
            postgres(_TRIAL_SECONDS) as server,
            bench(folder / str(number), _TRIAL_SECONDS, LOAD, database_url=server.url, migrated=False) as trial,
        ):
            trial.code = _earlier_release(trial.folder)
            trial.migrate()
            trial.apply()
            services = [trial.serve(f"replica-{one}") for one in range(2)]
            trial.code = ROOT
            total += conclude(trial, services[0], 1, [_upgrade(trial, services)])
    return total


def _upgrade(trial: Bench, services: list[Service]) -> float:
    left = begin_runs(trial, services[0])
    began = time.monotonic()
    before = _revision(trial)
    child = trial.coalmine("migrate-again", "migrate")
    trial.deadline.until("the database is migrated", lambda: not child.is_alive)
    assert "Traceback" not in child.output, child.output
    assert _revision(trial) != before, "there was nothing to migrate"
    for ending, staying in (services, services[::-1]):
        assert staying.answers("/readyz"), "nobody answers"
        assert ending.child.end(trial.deadline) == 0, ending.child.output[-3000:]
        ending.child.code = ROOT
        restart(trial, ending)
        left = begin_runs(trial, staying)  # asked of the earlier release, then of this one, and done by both
    trial.wait_ended(left)
    return time.monotonic() - began


def _revision(trial: Bench) -> str:
    with trial.engine.connect() as connection:
        return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())


def _earlier_release(folder: Path) -> Path:
    """Take the program as it was out of the repository."""
    code, archive = folder / "earlier", folder / "earlier.tar"
    code.mkdir()
    taken = subprocess.run(  # noqa: S603 - our own repository
        ["git", "archive", f"--output={archive}", _EARLIER, "app", "migrations"],  # noqa: S607 - as it is found
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if taken.returncode:
        raise FaultError(f"the earlier release is not in the repository: {taken.stderr.decode()}")
    subprocess.run(["tar", "--extract", f"--file={archive}"], cwd=code, check=True)  # noqa: S603, S607 - as above
    return code


FAULTS = [
    Fault(
        name="replica-rolling-upgrade",
        title="PostgreSQL, 2 replicas: migrated under an earlier release, then each replaced",
        long=5,
        attempt=upgrade_one_after_the_other,
    )
]
