"""Whether the cause is right on systems we did not make: tries faults on them and prints a table.

    python -m benchmarks.foreign [--system NAME ...] [--collection NAME ...] [--fault TEXT ...] [--healthy N]
        [--fresh FAULTS] [--out FILE] [--data FOLDER] [--table]

Rows are kept as JSON lines, so that a trial that was broken off goes on where it was; `--table` prints the table of
those that are there. All faults of a pair of system and collection share a service and a database, unless `--fresh`
makes them anew after so many faults. A pair takes three to eight minutes. A part of a fault's name names it.
"""

import argparse
import signal
import sys
from pathlib import Path

from benchmarks.foreign.collections import DATA, DEMO, NAMES, read
from benchmarks.foreign.databases import Chroma, FullText, Pgvector
from benchmarks.foreign.endpoints import Fts5, Haystack, Lsi, McpTool
from benchmarks.foreign.faults import faults
from benchmarks.foreign.systems import System
from benchmarks.foreign.table import markdown
from benchmarks.foreign.trial import Plan, read_rows, try_pair

SYSTEMS: tuple[type[System], ...] = (Fts5, FullText, Pgvector, Chroma, Lsi, Haystack, McpTool)


def main() -> None:
    """Try, and print the table."""
    names = [one.name for one in SYSTEMS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foreign")
    parser.add_argument("--system", nargs="+", choices=names, default=names)
    parser.add_argument("--collection", nargs="+", choices=(*NAMES, DEMO), default=NAMES)
    parser.add_argument("--fault", nargs="+", default=[""])
    parser.add_argument("--healthy", type=int, default=24)
    parser.add_argument("--out", type=Path, default=Path("foreign.jsonl"))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--fresh", type=int, metavar="FAULTS")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    chosen = [one for one in faults() if any(part in one.name for part in asked.fault)]
    if not asked.table:
        plan = Plan(faults=chosen, healthy_runs=asked.healthy, out=asked.out, fresh=asked.fresh)
        for name in asked.collection:
            collection = read(name, asked.data)
            for system in SYSTEMS:
                if system.name in asked.system:
                    try_pair(system, collection, plan)
    print(markdown(read_rows(asked.out), SYSTEMS))


if __name__ == "__main__":
    main()
