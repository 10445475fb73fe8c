"""`coalmine reanchor` decides on judgments proposed for renamed chunks; `coalmine quality` reports on retrieval."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from app.base import terminal
from app.base.commands import DataDir, ServerUrl, examples, note, now
from app.base.errors import InvalidInputError, Problem
from app.base.texts import Table, counted, percent_text, plain, shorten
from app.base.views import id_or_none
from app.definitions.commands.resources import connect_server, open_database
from app.diagnosis.rendering import quality_markdown
from app.diagnosis.service import quality as quality_report
from app.diagnosis.service import reanchoring
from app.diagnosis.service.reanchoring import ProposalIds
from app.diagnosis.views import ReanchorDecision, ReanchorState, ReanchorView
from app.reports.rendering.reports import report_json

app = typer.Typer(rich_markup_mode=None)

_BY = "command line"
_MAX_TEXT = 60
_MAX_PROPOSALS = 1_000


@app.command(
    epilog=examples(
        "coalmine reanchor --check docs",
        "coalmine reanchor --check docs --accept all | git apply",
        "coalmine reanchor --check docs --accept 4,7 --reject 5 --server https://coalmine.example",
    )
)
def reanchor(
    check: Annotated[str, typer.Option("--check", metavar="SLUG", help="The check whose canaries they are of.")],
    *,
    accept: Annotated[str, typer.Option(metavar="all|ID,...", help="Replace the judgments with these proposals.")] = "",
    reject: Annotated[str, typer.Option(metavar="all|ID,...", help="Leave these judgments as they are.")] = "",
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """List, accept or reject new judgments proposed for renamed chunks.

    Canaries that a file owns are not changed: the patch to commit is written to stdout. If the file cannot be read,
    the changed canaries are written instead.
    """
    accepted, rejected = _parse_ids("--accept", accept), _parse_ids("--reject", reject)
    decides = bool(accept or reject)
    if server is not None:
        service = connect_server(server)
        if decides:
            _show_decision(
                service.decide_reanchors(check, {"accept": _ids_json(accepted), "reject": _ids_json(rejected)})
            )
        else:
            _show_proposals(check, service.reanchors(check))
        return
    with open_database(data_dir) as (_, store):
        if decides:
            decision = reanchoring.decide(store, check, accept=accepted, reject=rejected, by=_BY, now=now())
            _show_decision(decision)
        else:
            listed = reanchoring.list_all(store, check, state=ReanchorState.PROPOSED, limit=_MAX_PROPOSALS)
            _show_proposals(check, listed[::-1])


def _parse_ids(option: str, text: str) -> ProposalIds:
    if text.strip() == "all":
        return None
    ids = [one.strip() for one in text.split(",") if one.strip()]
    invalid = [one for one in ids if id_or_none(one) is None]
    if invalid:
        message = f"'{plain(invalid[0])[:_MAX_TEXT]}' is no id of a proposal; name ids such as 4,7, or all"
        raise InvalidInputError([Problem(path=option, message=message)])
    return [int(one) for one in ids]


def _ids_json(selection: ProposalIds) -> Any:
    return "all" if selection is None else [str(one) for one in selection]


def _show_proposals(check: str, proposals: Sequence[ReanchorView]) -> None:
    if not proposals:
        typer.echo(f"{plain(check)}: no judgment waits for a new one.")
        return
    rows = [
        (
            plain(str(one["id"])),
            plain(str(one["key"])),
            _chunk(one["judgment"]),
            "; ".join(map(_chunk, one["proposals"])),
            "" if one["similarity"] is None else percent_text(one["similarity"]),
        )
        for one in proposals
    ]
    columns = ("id", "canary", "judgment", "proposed in its place", "same text")
    terminal.show_table(Table(title="", columns=columns, rows=tuple(rows)))
    note(f"Say yes or no with --accept and --reject; {counted(len(rows), 'proposal')} in all.")


def _chunk(chunk: Mapping[str, Any]) -> str:
    named = [shorten(str(chunk[name]), _MAX_TEXT) for name in ("id", "document", "text") if chunk.get(name)]
    return " · ".join(named)


def _show_decision(decision: ReanchorDecision) -> None:
    """Write patches to stdout, ready for `git apply`, and the state of each proposal to stderr."""
    for patch in decision["patches"]:
        typer.echo(_CONTROLS.sub("", patch["diff"] or patch["yaml"]), nl=False)
        if patch["diff"] is None:
            place = f"{plain(str(patch['file']))} is not as it was applied, or not here" if patch["file"] else "no file"
            note(f"No patch could be written ({place}): these are the canaries as they would be.")
    groups = (
        ("Accepted, and in force", decision["accepted"]),
        ("Rejected", decision["rejected"]),
        ("Waiting for their files: commit the patch and apply them", decision["to_commit"]),
        ("Outdated, as the judgment is not there any more", decision["outdated"]),
        ("Decided before", decision["unchanged"]),
    )
    for heading, group in groups:
        if group:
            listed = ", ".join(f"{plain(one['id'])} ({plain(one['key'])})" for one in group)
            note(f"{heading}: {listed}")
    if not any(group for _, group in groups):
        note("No proposal waits for an answer.")


_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""Ours has none, but another service may send anything."""


@app.command(epilog=examples("coalmine quality docs", "coalmine quality docs --server https://coalmine.example"))
def quality(
    check: Annotated[str, typer.Argument(metavar="CHECK", help="The check to report on.")],
    *,
    form: Annotated[Literal["markdown", "json"], typer.Option("--format", help="How to write it.")] = "markdown",
    server: ServerUrl = None,
    data_dir: DataDir = None,
) -> None:
    """Report the retrieval quality of a check from stored answers.

    Chunks, embeddings, recall, precision, vocabulary, chunk boundaries, slow drift: where to look, with examples; what
    was not measured is unknown.
    """
    if server is not None:
        report = connect_server(server).quality(check)
    else:
        with open_database(data_dir) as (_, store):
            report = quality_report.report(store, check, now=now())
    typer.echo(quality_markdown(report) if form == "markdown" else report_json(report), nl=False)
