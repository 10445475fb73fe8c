"""`coalmine replay`: runs the detector over traces in a file, or over a check's own history."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.base import terminal
from app.base.commands import DataDir, examples, note
from app.base.errors import InvalidInputError, Problem
from app.base.texts import Table, counted, plain, shorten
from app.definitions.commands.resources import open_database
from app.detection.documents import Trace, TraceFile
from app.detection.domain import Change, Key, Members, Reading, grouped
from app.detection.domain.tracker import Runs, replay
from app.detection.service.detectors import ReplayedRun, replay_check

_SHOWN = 120

app = typer.Typer(rich_markup_mode=None)

Format = Literal["table", "json"]


@dataclass(slots=True, kw_only=True)
class ReplayResult:
    """Alarms of one history, and the culprits each named on the last run before it recovered."""

    key: str
    alarms: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    culprits: dict[Key, None] = field(default_factory=dict)
    standing: Sequence[Key] = ()
    habits: list[int] = field(default_factory=list)
    """Runs with which an episode of a habit began, of which nobody would have been notified."""
    in_habit: bool = False

    def add(self, number: int, reading: Reading, culprits: Sequence[Key]) -> None:
        """Add the reading of run `number`."""
        if reading.habit is not None and not self.in_habit:
            self.habits.append(number)
        self.in_habit = reading.habit is not None
        if reading.change is Change.OPENED:
            self.alarms.append(number)
        if reading.change is Change.CLOSED:
            self.closed.append(number)
            self.end()
        elif reading.open and not reading.good:
            self.standing = culprits

    def end(self) -> None:
        """Keep the culprits of the alarm."""
        self.culprits.update(dict.fromkeys(self.standing))
        self.standing = ()


@app.command(
    "replay",
    epilog=examples(
        "coalmine replay traces.npz",
        "coalmine replay traces.npz --format json | jq 'select(.alarms != [])'",
        "coalmine replay --check docs-search",
    ),
)
def replay_(
    file: Annotated[Path | None, typer.Argument(metavar="FILE.npz", help="Traces, as numpy.savez writes them.")] = None,
    *,
    check: Annotated[str | None, typer.Option(metavar="SLUG", help="Or a check, whose own history is taken.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to write what came of it.")] = "table",
    data_dir: DataDir = None,
) -> None:
    """Run the detector over recorded runs, and print its alarms and the canaries they name.

    It takes the path that live runs take, and changes nothing. Runs of a file are numbered from the first one after
    its healthy part, which is the baseline: `KEY/base/lost` and `KEY/base/ndcg`, then `KEY/after/lost` and
    `KEY/after/ndcg` for each key of `meta`; benchmarks/detection.py says more. Runs of a check are numbered from the
    first one after its first baseline; alarms of the warm-up before that are told apart.

    JSON is one line for each key: `alarms` are the runs that opened one, `closed` those that closed it, `habits` those
    with which an alarm came back that is known and notifies nobody, `culprits` the canaries named, by position or key.
    """
    if (file is None) == (check is None):
        raise InvalidInputError([Problem(message="Name either a trace file or --check SLUG.")])
    if file is not None:
        _replay_file(file, form)
    else:
        _replay_check(str(check), form, data_dir)


def _replay_file(file: Path, form: Format) -> None:
    with file.open("rb") as stream:
        traces = TraceFile(str(file), stream)
        total = sum(entry["after"] for entry in traces.traces)
        with terminal.progress([(file.name, total)]) as bar:
            results = []
            for one in traces.read():
                result = _replayed(one, bar(0))
                results.append(result)
                if form == "json":
                    _write_json_line({"key": result.key, **_result_json(result)})
    if form == "table":
        rows = [
            (
                plain(one.key),
                _numbers(one.alarms),
                _numbers(one.closed),
                _numbers(one.habits),
                shorten(_numbers(list(one.culprits)), _SHOWN),
            )
            for one in results
        ]
        terminal.show_table(
            Table(title="", columns=("key", "alarms", "closed", "habits", "culprits"), rows=tuple(rows))
        )
        alarmed = sum(bool(one.alarms) for one in results)
        typer.echo(f"An alarm in {alarmed:,} of {counted(len(results), 'trace')}.")


def _replayed(trace: Trace, advance: Callable[[int], None]) -> ReplayResult:
    members = Members(
        keys=tuple(range(trace.base_lost.shape[1])), groups=grouped([[f"topic:{topic}"] for topic in trace.topics])
    )
    healthy = Runs(lost=trace.base_lost, ndcg=trace.base_ndcg)
    after = Runs(lost=trace.after_lost, ndcg=trace.after_ndcg)
    result = ReplayResult(key=trace.key)
    for number, (_, reading) in enumerate(replay(members, healthy, after), 1):
        result.add(number, reading, [one.position for one in reading.culprits])
        advance(1)
    result.end()
    return result


def _replay_check(slug: str, form: Format, data_dir: Path | None) -> None:
    with open_database(data_dir) as (_, store), terminal.counting(slug) as advance:
        runs = replay_check(store, slug, moved=advance)
    first = next((place for place, one in enumerate(runs, 1) if one.learned), 0)
    warming, after = ReplayResult(key=slug), ReplayResult(key=slug)
    for number, one in enumerate(runs, 1):
        if first and number > first:
            after.add(number - first, one.reading, one.culprits)
        else:
            warming.add(number, one.reading, one.culprits)
    warming.end()
    after.end()
    if form == "json":
        _write_json_line({"key": slug, **_result_json(after), "runs": len(runs), "warm_up": _result_json(warming)})
        return
    columns = ("run", "alarm", "severity", "since", "culprits", "why")
    terminal.show_table(Table(title="", columns=columns, rows=tuple(_change_rows(runs))))
    learned = f"the first baseline was learned after {first:,}" if first else "no baseline was learned yet"
    typer.echo(f"{counted(len(runs), 'measured run')}; {learned}.")
    if differing := sum(one.stored is not None and one.reading.evidence != one.stored.evidence for one in runs):
        note(
            f"Note: the evidence of {counted(differing, 'run')} differs from what was stored when it ended; older runs "
            "were pruned, or the suite was changed in the meantime."
        )


def _change_rows(runs: Sequence[ReplayedRun]) -> Iterator[tuple[str, ...]]:
    in_habit = False
    for one in runs:
        began = one.reading.habit is not None and not in_habit
        in_habit = one.reading.habit is not None
        if one.reading.change is not None or began:
            yield (
                str(one.run_id),
                one.reading.change or "habit",
                one.reading.severity or "",
                counted(one.reading.since, "run"),
                shorten(plain(", ".join(one.culprits)), _SHOWN),
                plain(one.reading.reason),
            )


def _result_json(result: ReplayResult) -> dict[str, object]:
    return {
        "alarms": result.alarms,
        "closed": result.closed,
        "habits": result.habits,
        "culprits": list(result.culprits),
    }


def _write_json_line(document: Mapping[str, object]) -> None:
    """Write JSON in ASCII: keys of others may hold characters that a terminal obeys."""
    typer.echo(json.dumps(document))


def _numbers(numbers: Sequence[Key]) -> str:
    return " ".join(map(str, numbers)) or "-"
