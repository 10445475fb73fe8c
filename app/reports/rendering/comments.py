"""The comment of a pull request on reports of the gate: what got worse, what got better and why, base beside head.

It is GitHub-flavoured Markdown, read by GitLab too. Both make links of mentions, issues and addresses after Markdown
was read, where no backslash helps; only code is left alone. So every text of others, and each sentence that holds
something they might link, is code. The comment stays below the size that GitHub takes.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from app.base.texts import UNDEFINED, code, counted, plain, prose, shorten
from app.base.values import Category, Outcome, Value, Verdict
from app.records.views import first_expected, why_degraded
from app.reports.rendering.reports import (
    answer_lines,
    comparison_lines,
    counts_line,
    failure_lines,
    note_lines,
    primary_table,
    report_headline,
)

LARGEST: Final = 65_000
"""UTF-16 units; GitHub takes 65,536 characters."""
_SHARE_OF_LIST: Final = 0.35
"""Of the room of a report that one list of canaries may take."""
_LONGEST_NAME, _LONGEST_QUERY, _LONGEST_WHY = 80, 120, 300
_WIDTH: Final = 60
"""Canaries in a line of the heat map."""
_MOST_CELLS: Final = 6_000
_FIRST, _WITHIN, _DEGRADED, _LOST, _UNMEASURED, _ABSENT = "▇", "▅", "▃", "▁", "·", " "
LEGEND: Final = (
    f"{_FIRST} healthy, found at rank 1; {_WITHIN} healthy, found below; {_DEGRADED} degraded, though an expected "
    f"chunk came; {_LOST} degraded, and none came; {_UNMEASURED} not measured. A column is a canary."
)
_LINKED = re.compile(
    r"""(?<![A-Za-z0-9_])@\w | \w@[\w-]+\.\w | [\#!%&$~]\w | \w:// | \bwww\. | \b(?:mailto|xmpp|gh-\d)
    | \b[0-9a-f]{7,}\b | :[a-z+_-]\w*: | ^/\w""",
    re.VERBOSE | re.IGNORECASE,
)
"""What GitHub or GitLab may turn into a mention, a reference, a link or a picture."""

Report = Mapping[str, Any]


class Compared(Value):
    """A report and the saved one it is compared with."""

    report: Report
    before: Report | None = None
    same: Collection[str] | None = None
    """Keys of canaries that both expect the same of; None = the saved one does not say."""


def comment_markdown(reports: Sequence[Compared], *, largest: int = LARGEST) -> str:
    """Return the comment on reports.

    Its first line is `marker` of the first report, by which the same comment is found again.
    """
    run = reports[0].report["run"] if reports else {}
    first = str(run.get("check") or run.get("suite"))
    head = f"{marker(first)}\n"
    room = (largest - _size(head)) // max(1, len(reports))
    return head + "\n".join(_section(one, room) for one in reports)


def marker(check: str) -> str:
    """Return the line that tells the comments of a check from all others; slugs hold nothing that could end it."""
    return f"<!-- coalmine: {re.sub(r'[^a-z0-9-]', '', check)} -->"


def _section(one: Compared, room: int) -> str:
    """Return the part of a report: lists are cut so that the whole fits, and what is still too long is left out."""
    part = _Part(room)
    report, before = one.report, one.before
    run = report["run"]
    part.add(f"## {_safe(report_headline(report))}", "")
    part.add(*(f"- {_safe(str(reason))}" for reason in (*(run.get("reasons") or ()), *answer_lines(report))))
    part.add(*(f"- {_safe(line)}" for line in (*failure_lines(report), *note_lines(report))))
    part.add("", _safe(counts_line(run)))
    if before is None:
        worst = [_row(result, None, run) for result in report["results"] if result["verdict"] == Verdict.DEGRADED]
        part.add_list("Degraded", worst, has_before=False)
    else:
        comparison = report.get("comparison")
        part.add("", *(f"- {_safe(line)}" for line in ([] if comparison is None else comparison_lines(comparison))))
        changes = _Changes(report, before, one.same)
        part.add_list("Worse", changes.worse, has_before=True)
        part.add_list("Better", changes.better, has_before=True)
        part.add(*(["", _safe(f"{changes.edited_text}.")] if changes.edited else []))
        part.add(*_measure_lines(report))
    part.add_map(_heat_map(report, before))
    return part.text


class _Part:
    """Lines of a section, as long as there is room."""

    def __init__(self, room: int) -> None:
        self._room, self._whole, self._lines = room - _size(_CUT), room, list[str]()
        self._is_cut = False

    @property
    def text(self) -> str:
        return "\n".join([*self._lines, *([_CUT] if self._is_cut else []), ""])

    def add(self, *lines: str) -> None:
        """Add lines; the first that does not fit, and all behind it, are left out."""
        for line in lines:
            size = _size(line) + 1
            if size > self._room or self._is_cut:
                self._is_cut = True
                return
            self._room -= size
            self._lines.append(line)

    def add_list(self, title: str, rows: Sequence["_Row"], *, has_before: bool) -> None:
        """Add a table of canaries, as many as a share of the room has place for; the rest is counted."""
        if not rows:
            return
        columns = ("canary", "query", *(("base", "head") if has_before else ("rank",)), "why")
        table = [f"### {title}: {len(rows):,}", "", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
        left = min(self._whole * _SHARE_OF_LIST, self._room)
        shown = 0
        for row in rows:
            line = row.line(has_before=has_before)
            left -= _size(line) + 1
            if left < 0:
                break
            table.append(line)
            shown += 1
        more = len(rows) - shown
        self.add("", *table, *(["", f"... and {counted(more, 'more canary')}."] if more else []))

    def add_map(self, lines: Sequence[str]) -> None:
        """Add the heat map, whole or not at all: half a block of code would swallow what follows."""
        if sum(_size(line) + 1 for line in lines) <= self._room and not self._is_cut:
            self.add(*lines)
        else:
            self.add("", "The heat map is too large for a comment.")


_CUT = "\n*Cut: the whole report is too long for a comment.*"


class _Row:
    """A canary of a list."""

    def __init__(self, result: Report, before: str, why: str) -> None:
        self._result, self._before, self._why = result, before, why

    def line(self, *, has_before: bool) -> str:
        """Return it as a row of a table."""
        result = self._result
        ranks = (self._before, _rank_text(result)) if has_before else (_rank_text(result),)
        named = (code(shorten(str(result["key"]), _LONGEST_NAME)), code(shorten(str(result["query"]), _LONGEST_QUERY)))
        return f"| {' | '.join((*named, *ranks, _safe(shorten(self._why, _LONGEST_WHY))))} |"


def _row(result: Report, before: Report | None, run: Report) -> _Row:
    why = "; ".join(why_degraded(result, self_judged=run.get("self_judged"))) or str(result["verdict"])
    return _Row(result, UNDEFINED if before is None else _rank_text(before), why)


class _Changes:
    """Canaries that got worse or better since a saved report: by their verdict or, both healthy, by their rank."""

    def __init__(self, report: Report, before: Report, same: Collection[str] | None) -> None:
        then = {result["key"]: result for result in before["results"]}
        run = report["run"]
        self.worse, self.better, self.edited = list[_Row](), list[_Row](), 0
        for result in report["results"]:
            was = then.get(result["key"])
            if was is None:
                if result["verdict"] == Verdict.DEGRADED:
                    self.worse.append(_row(result, None, run))
                continue
            if same is not None and result["key"] not in same and _expects(result):
                self.edited += 1
                continue
            change = _change(was, result)
            if change < 0:
                self.worse.append(_worse_row(result, was, run))
            elif change > 0:
                self.better.append(_Row(result, _rank_text(was), _why_better(was)))

    @property
    def edited_text(self) -> str:
        """How many canaries cannot be compared."""
        verb, is_ = ("asks or expects", "is") if self.edited == 1 else ("ask or expect", "are")
        return f"{counted(self.edited, 'canary')} {verb} something else than in the baseline, and {is_} not compared"


def _worse_row(result: Report, was: Report, run: Report) -> _Row:
    if result["verdict"] == Verdict.HEALTHY:
        return _Row(result, _rank_text(was), "its expected chunk fell")
    return _row(result, was, run)


def _why_better(was: Report) -> str:
    if was["verdict"] != Verdict.DEGRADED:
        return "its expected chunk rose"
    return f"was degraded: {'; '.join(why_degraded(was))}" if was.get("reasons") else f"was {was['verdict']}"


def _change(was: Report, now: Report) -> int:
    """Return -1 where a canary got worse, 1 where it got better, else 0; what was not measured is neither."""
    order = {Verdict.DEGRADED: 0, Verdict.HEALTHY: 1}
    before, after = order.get(was["verdict"]), order.get(now["verdict"])
    if before is None or after is None:
        return 0
    if before != after:
        return after - before
    old, new = first_expected(was), first_expected(now)
    if old == new or before == 0 or old is None or new is None:
        return 0
    return -1 if new > old else 1


def _expects(result: Report) -> bool:
    return bool(result["category"] != Category.NEGATIVE)


def _rank_text(result: Report) -> str:
    if result["outcome"] != Outcome.OK:
        return "not measured"
    rank = first_expected(result)
    return UNDEFINED if rank is None else str(rank)


def _measure_lines(report: Report) -> list[str]:
    """Return the table of the primary measures, base beside head; of a comparison without a decision none."""
    decision = (report.get("comparison") or {}).get("decision")
    if decision is None:
        return []
    table = primary_table(decision["primary"], "Measures", self_judged=bool(report["run"].get("self_judged")))
    columns = ("measure", "base", "head", *table.columns[3:])
    rows = [f"| {' | '.join([_safe(row[0]), *map(prose, row[1:])])} |" for row in table.rows]
    return ["", "### Measures", "", f"| {' | '.join(map(prose, columns))} |", f"|{' --- |' * len(columns)}", *rows]


def _heat_map(report: Report, before: Report | None) -> list[str]:
    """Return base and head as text, a character for each canary, by category; [] where there are too many canaries."""
    now = {result["key"]: result for result in report["results"]}
    then = {} if before is None else {result["key"]: result for result in before["results"]}
    everything = {**{key: one for key, one in then.items() if key not in now}, **now}
    if not everything or len(everything) > _MOST_CELLS:
        return []
    ordered = sorted(everything.items(), key=lambda item: str(item[1]["category"]))
    lines = ["", "### Heat map", "", "```"]
    for category, group in groupby(ordered, key=lambda item: str(item[1]["category"])):
        keys = [key for key, _ in group]
        name = plain(category).replace("_", " ").replace("`", "")
        for start in range(0, len(keys), _WIDTH):
            some = keys[start : start + _WIDTH]
            label = f"{name[:20]:20}" if not start else " " * 20
            if before is not None:
                lines.append(f"{label} base {_cells(some, then)}".rstrip())
                label = " " * 20
            lines.append(f"{label} head {_cells(some, now)}".rstrip())
    return [*lines, "```", "", LEGEND]


def _cells(keys: Iterable[str], results: Mapping[str, Report]) -> str:
    return "".join(_ABSENT if (result := results.get(key)) is None else _cell(result) for key in keys)


def _cell(result: Report) -> str:
    if result["outcome"] != Outcome.OK or result["verdict"] == Verdict.UNKNOWN:
        return _UNMEASURED
    rank = first_expected(result) if _expects(result) else None
    if result["verdict"] == Verdict.DEGRADED:
        return _LOST if rank is None else _DEGRADED
    return _FIRST if rank is None or rank == 1 else _WITHIN


def _safe(text: str) -> str:
    """Return a sentence as Markdown that nobody makes a link of: as code where it holds something to link."""
    line = plain(text)
    return code(line) if _LINKED.search(line) else prose(line)


def _size(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
