"""`python -m tests.faults`: try the faults and print the table of docs/reliability.md."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from statistics import median

from tests.faults import (
    clock_faults,
    peer_faults,
    postgres_faults,
    replica_faults,
    simulated_faults,
    sqlite_faults,
    upgrade_faults,
)
from tests.faults.accounting import Account
from tests.faults.faults import Fault
from tests.faults.harness import FaultError

FAULTS = [
    *sqlite_faults.FAULTS,
    *replica_faults.FAULTS,
    *upgrade_faults.FAULTS,
    *postgres_faults.FAULTS,
    *peer_faults.FAULTS,
    *clock_faults.FAULTS,
    *simulated_faults.FAULTS,
]
_HEAD = (
    "Fault",
    "n",
    "Runs",
    "Results",
    "Lost",
    "Doubled",
    "Not finalised once",
    "Alerts",
    "Missing or again",
    "Deliveries",
    "Never or out of order",
    "Sent again",
    "Probes repeated",
    "Recovery, p50 / max",
)


def main(arguments: Sequence[str]) -> int:
    """Try them, printing each row as it comes; 1 = one of them did harm."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--keep", metavar="NAME", action="append", help="only faults whose name contains this")
    parser.add_argument("--minutes", type=float, help="begin no more faults after so many minutes")
    parser.add_argument("--short", action="store_true", help="as often as the tests do, not as the table says")
    parser.add_argument("--times", type=int, help="as often as this")
    options = parser.parse_args(arguments)
    chosen = [fault for fault in FAULTS if not options.keep or any(name in fault.name for name in options.keep)]
    ends_at = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    print_row(_HEAD)
    print_row(["---", *["--:"] * (len(_HEAD) - 1)])
    is_harmless = True
    for fault in chosen:
        if time.monotonic() > ends_at:
            note(f"not tried: {fault.name}")
            continue
        is_harmless &= try_and_print(fault, options.times or (fault.short if options.short else fault.long))
    return 0 if is_harmless else 1


def try_and_print(fault: Fault, times: int) -> bool:
    """Try a fault and print its row; False where it did harm, and then the folder of the trial is kept."""
    folder = Path(tempfile.mkdtemp(prefix=f"coalmine-{fault.name}-"))
    began = time.monotonic()
    try:
        account = fault.attempt(folder, times)
    except FaultError as error:
        note(f"{fault.name}: {error}\n{folder}")
        return False
    print_row(row(fault.title, account))
    note(f"{fault.name}: {time.monotonic() - began:.0f} s, {account}")
    if account.wrong:
        note(f"{fault.name}: {account.wrong}\n{folder}")
        return False
    shutil.rmtree(folder)
    return True


def row(title: str, account: Account) -> list[str]:
    """Give the cells of a row of the table."""
    seconds = account.recovery_seconds
    figures = (
        account.faults,
        account.runs,
        account.results,
        account.lost,
        account.doubled,
        account.unfinished + account.finalised_again,
        account.alerts,
        account.alerts_missing + account.alerts_again,
        account.deliveries,
        account.never_delivered + account.out_of_order,
        account.sent_again,
        account.probes_repeated,
    )
    recovery = f"{median(seconds):.1f} / {ceil(max(seconds) * 10) / 10:.1f} s" if seconds else "-"
    return [title, *(f"{figure:,}" for figure in figures), recovery]


def print_row(cells: Sequence[str]) -> None:
    """Print a row of a Markdown table."""
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Say something beside the table."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
