"""What a run costs in two checkouts of Coalmine, in turn: CPU time of this process for each canary.

    python -m benchmarks.run_cost BEFORE AFTER [PAIRS]

BEFORE and AFTER are folders of checkouts, which use the interpreter that runs this. In each of PAIRS (default 5) rounds
one process of each carries out eight runs of 1,000 canaries against the stub, nothing of
which changes and whose answers nobody watches. A busy machine slows both alike: compare minima and medians.
"""

import gc
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

CANARIES = 1_000
RUNS = 8


def main(before: str, after: str, pairs: int = 5) -> None:
    """Print microseconds for each run, then the minima and medians of both."""
    cost: dict[str, list[float]] = {before: [], after: []}
    for _ in range(pairs):
        for folder in (before, after):
            environment = {**os.environ, "PYTHONPATH": folder}
            ended = subprocess.run(  # noqa: S603 - ourselves
                [sys.executable, str(Path(__file__).resolve())],
                cwd=folder,
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            )
            cost[folder] += map(float, ended.stdout.split())
            print(folder, " ".join(ended.stdout.split()), flush=True)
    for folder, found in cost.items():
        print(f"{folder}: least {min(found):.1f}, median {median(found):.1f} us of CPU for each canary")


def measure() -> None:
    """Print what runs cost in the checkout that this process was started in."""
    from app.base.db.engine import Store  # noqa: PLC0415 - as above
    from app.base.db.files import migrate  # noqa: PLC0415 - as above
    from app.base.vault import Vault  # noqa: PLC0415 - as above
    from app.catalog.service import applying  # noqa: PLC0415 - those of the checkout, found by PYTHONPATH
    from app.catalog.service.references import API  # noqa: PLC0415 - as above
    from app.runs.service.plans import Planner  # noqa: PLC0415 - as above
    from benchmarks import throughput  # noqa: PLC0415 - as above
    from benchmarks.stub import stub  # noqa: PLC0415 - as above

    with stub(CANARIES), tempfile.TemporaryDirectory() as folder:
        store, vault = Store(f"sqlite:///{folder}/bench.db"), Vault("a key for the benchmark only")
        migrate(store)
        applying.apply(store, vault, throughput.documents(CANARIES), managed_by=API, now=datetime.now(UTC))
        planner = Planner(store, vault)
        for number in range(RUNS + 2):
            gc.collect()
            began = time.process_time()
            throughput.one_run(planner)
            if number > 1:  # the first two store what is new
                print(f"{(time.process_time() - began) / CANARIES * 1e6:.2f}")
        store.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]))
    else:
        measure()
