"""The table of a trial: a line for each system, a line for each fault, and what was told where it was not right."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.foreign.faults import faults
from benchmarks.foreign.systems import System
from benchmarks.foreign.trial import Row

_EARLY: Final = 3
_SIGNS: Final = {"right": "right", "partly": "partly", "wrong": "WRONG", "none": "none"}


def markdown(rows: Sequence[Row], systems: Sequence[type[System]]) -> str:
    """Write the tables."""
    tried = [row for row in rows if "healthy runs" not in row.fault]
    judged = [row for row in tried if row.pages_wanted and row.noticeable]
    return "\n\n".join(
        [
            _by(rows, lambda row: f"{row.system}, {row.collection}"),
            _by(rows, lambda row: row.system) + "\n" + _line("all", rows),
            _grid(tried, systems),
            "\n".join(_wrong(judged)),
        ]
    )


def _by(rows: Sequence[Row], key: Callable[[Row], str]) -> str:
    head = (
        "| system | faults | noticed by run 3 | cause right | listed right, wrong, missing | one page, one resolve"
        " | false pages | seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return "\n".join([head, *(_line(name, some) for name, some in groups.items())])


def _line(name: str, rows: Sequence[Row]) -> str:
    judged = [row for row in rows if row.pages_wanted and row.noticeable]
    early = sum(row.noticed is not None and row.noticed <= _EARLY for row in judged)
    right = sum(row.verdict == "right" for row in judged)
    once = sum(row.pages == 1 and row.resolves == 1 for row in judged)
    listed = [sum(counts) for counts in zip(*((row.right, row.wrong, row.missing) for row in judged), strict=True)]
    return (
        f"| {name} | {len(judged)} | {_share(early, len(judged))} | {_share(right, len(judged))} |"
        f" {', '.join(map(str, listed))} | {_share(once, len(judged))} | {sum(row.false_pages for row in rows)} |"
        f" {sum(row.seconds for row in rows):.0f} |"
    )


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if whole else "-"


def _grid(rows: Sequence[Row], systems: Sequence[type[System]]) -> str:
    """Write a line for each fault, a column for each system; of several collections each has a word."""
    names = [one.name for one in systems if any(row.system == one.name for row in rows)]
    lacks = {one.name: one.lacks for one in systems}
    lines = [f"| fault | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for fault in faults():
        cells = []
        for name in names:
            of_cell = [row for row in rows if row.system == name and row.fault == fault.name]
            reason = next((lacks[name][need] for need in fault.needs if need in lacks[name]), "")
            cells.append(", ".join(map(_cell, of_cell)) or (f"({reason})" if reason else ""))
        lines.append(f"| {fault.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Row) -> str:
    if not row.pages_wanted:
        return "paged" if row.pages else "quiet"
    if not row.noticeable:
        return f"unhurt{', paged' if row.pages else ''}"
    if row.noticed is None:
        return "NOT NOTICED"
    return f"{_SIGNS[row.verdict]} ({row.noticed})"


def _wrong(judged: Sequence[Row]) -> list[str]:
    """Say what was told where it was not right, what would have been, and how much was hurt."""
    by_name = {fault.name: fault for fault in faults()}
    told = Counter(row.verdict for row in judged)
    lines = [f"{count} {verdict}" for verdict, count in told.most_common()]
    for row in judged:
        if row.verdict != "right":
            causes = " or ".join(by_name[row.fault].causes)
            lines.append(
                f"- {row.system}, {row.collection}, {row.fault}"
                f" (lost {row.lost}, worse {row.worse}, run {row.noticed}):"
                f" true {causes}; {row.verdict}: {row.summary or 'nothing'}"
            )
    return lines
