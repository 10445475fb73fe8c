"""`coalmine rescore`: re-scores past runs by corrected judgments, and shows what that changes."""

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import uuid4

import typer

from app.base import terminal
from app.base.commands import DataDir, ServerUrl, examples, note, now
from app.base.db.engine import Store
from app.base.documents.fields import parse_duration
from app.base.errors import CoalmineError
from app.base.texts import Table, counted, number, plain
from app.base.views import time_text
from app.definitions.commands.resources import connect_server, open_database
from app.runs.service import rescoring

app = typer.Typer(rich_markup_mode=None)

_POLL_SECONDS = 0.5
_Advance = Callable[[int, int], None]


@app.command(
    epilog=examples("coalmine rescore docs --since 30d", "coalmine rescore docs --server https://coalmine.example")
)
def rescore(
    check: Annotated[str, typer.Argument(metavar="CHECK", help="The check whose past runs are judged anew.")],
    *,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only runs of the last 30d, 12h, ...; default: all.")
    ] = None,
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Re-score past runs by the current judgments, from stored rankings.

    The numbers of the day stay as they are. The new ones are a measures version of their own, which the API gives with
    ?measures_version=. Run again, it takes in the runs that have ended since.
    """
    start = now() - timedelta(seconds=_seconds(since)) if since is not None else None
    if server is not None:
        service = connect_server(server)
        started = service.rescore(check, time_text(start))
        with terminal.counting(check) as moved:
            result = _wait_until_finished(started, lambda: service.rescoring(str(started["id"])), moved)
    else:
        with open_database(data_dir) as (_, store), terminal.counting(check) as moved:
            result = _rescore_here(store, rescoring.ask(store, check, since=start, now=now()), moved)
    _show(result, start)


def _rescore_here(store: Store, rescoring_id: int, moved: _Advance) -> Mapping[str, Any]:
    """Re-score in this process; while a worker already does, wait for it."""
    owner = f"{rescoring.COMMAND}{os.getpid()}:{uuid4().hex[:8]}"

    def work_and_show() -> Mapping[str, Any]:
        if rescoring.claim(store, owner=owner, now=now(), only=rescoring_id) is not None:
            rescoring.carry_on(store, rescoring_id, owner=owner, clock=now, moved=moved)
        return rescoring.show(store, rescoring_id)

    try:
        return _wait_until_finished(work_and_show(), work_and_show, moved)
    except KeyboardInterrupt:
        rescoring.release(store, owner=owner)
        note("What is re-scored stays; run it again to go on.")
        raise


def _wait_until_finished(
    rescoring: Mapping[str, Any], poll: Callable[[], Mapping[str, Any]], moved: _Advance
) -> Mapping[str, Any]:
    while True:
        moved(int(rescoring["progress"]["runs_done"]), int(rescoring["progress"]["runs_total"]))
        if rescoring["status"] == "failed":
            raise CoalmineError(
                f"re-scoring {rescoring['id']} of {rescoring['check']} failed: {rescoring['failure']}; run it again"
            )
        if rescoring["status"] == "finished":
            return rescoring
        time.sleep(_POLL_SECONDS)
        rescoring = poll()


def _show(result: Mapping[str, Any], start: datetime | None) -> None:
    count = int(result["progress"]["runs_done"])
    reaches = datetime.fromisoformat(result["since"]) if result["since"] else None
    since = f" since {reaches:%Y-%m-%d %H:%M} UTC" if reaches else ""
    if not count and not result["note"]:
        typer.echo(f"{plain(str(result['check']))}: no run has ended{since}, so there is nothing to judge anew.")
        return
    typer.echo(f"{plain(str(result['check']))}: {counted(count, 'run')}{since}, judged anew")
    typer.echo(f"measures version {plain(str(result['measures_version']))}")
    sides = [result["before"] or {}, result["after"] or {}]
    rows = [
        ("coverage", *[number(side.get("coverage")) for side in sides]),
        ("health_score", *[number(side.get("health_score")) for side in sides]),
        ("degraded canaries, summed over runs", *[f"{side.get('degraded', 0):,}" for side in sides]),
    ]
    verdicts = [side.get("verdicts", {}) for side in sides]
    named = [name for name in ("healthy", "degraded", "unknown") if any(name in one for one in verdicts)]
    rows += [(f"{name} runs", *[f"{one.get(name, 0):,}" for one in verdicts]) for name in named]
    terminal.show_table(Table(title="", columns=("", "before", "after"), rows=tuple(rows)))
    if start is not None and (reaches is None or reaches < start):
        note("Note: it was asked for from further back before; all of its runs are counted.")
    if result["note"]:
        note(f"Note: {plain(str(result['note']))}.")


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from error
