"""One table of what Coalmine is measured by: each figure beside its goal and, in the same rounds, its peer.

    make bench, or python -m benchmarks.bench [--only PART ...]

About ten minutes. Ratios are taken in rounds: the peer, then ours, then the peer again; what is shown is the median of
the rounds' ratios, the least and the most. Each part is a process of its own that is ended when its time is over:
figures it has given by then stand in the table. A peer that is not installed has a row that says so; `make bench-peers`
installs them. The figures by themselves are in `goal_parts`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import Timer

from benchmarks.goal_parts import FIGURES, PARTS, measure
from benchmarks.goal_table import Measured, machine, table


def main() -> None:
    """Measure the parts one after another and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=" ".join(PARTS))
    options.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.part:
        for key, measured in measure(given.part):
            print(json.dumps({"key": key, "measured": asdict(measured)}), flush=True)
        return
    began, found = time.monotonic(), dict[str, Measured]()
    for name in given.only:
        print(
            f"{time.monotonic() - began:4.0f} s  {name}, {PARTS[name].seconds} s at most", file=sys.stderr, flush=True
        )
        found |= part(name)
    figures = [figure for name in given.only for figure in FIGURES[name]]
    print(f"{machine()}; {time.strftime('%Y-%m-%d %H:%M')}; {time.monotonic() - began:.0f} s in all\n")
    print(table(figures, found))


def part(name: str) -> dict[str, Measured]:
    """Measure a part in a process of its own; what it did not come to says why."""
    load = os.getloadavg()[0]
    command = [sys.executable, "-m", "benchmarks.bench", "--part", name]
    root = Path(__file__).resolve().parent.parent
    found: dict[str, Measured] = {}
    with subprocess.Popen(  # noqa: S603 - ourselves
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        timer = Timer(PARTS[name].seconds, _end, [process])
        timer.start()
        try:
            said, errors = process.communicate()
        finally:
            timer.cancel()
    for line in said.splitlines():
        if line.startswith('{"key"'):
            one = json.loads(line)
            found[one["key"]] = replace(Measured(**one["measured"]), load=load)
    why = "its time was over" if process.returncode < 0 else _last_line(errors.splitlines())
    return {figure.key: Measured((), why, load) for figure in FIGURES[name]} | found


def _end(process: "subprocess.Popen[str]") -> None:
    """End a part and the processes it has started."""
    os.killpg(process.pid, 9)


def _last_line(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "it gave no figure")


if __name__ == "__main__":
    main()
