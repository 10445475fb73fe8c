"""`coalmine check`: the one-shot gate, without a server or a database."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from app.base import terminal
from app.base.command_files import file_source
from app.base.commands import Paths, examples, now
from app.base.signals import stopped_by_signals
from app.base.values import Verdict
from app.catalog.exchange.datasets import read_run
from app.comparison.service.compared_runs import decide_reports
from app.config import load_settings
from app.definitions.commands import canary_files
from app.definitions.commands.canary_files import read_files
from app.probe_wiring import build_probe
from app.reports.documents.reports import compare_reports, read_reports
from app.retrievers.client.http import RankingsProbe
from app.retrievers.domain.retrievers import Probe
from app.runs.commands import reports as commands
from app.runs.service import gate
from app.runs.service.gate import judged_by_rank

DEGRADED, NOT_MEASURED = 1, 3
NOWHERE = "http://rankings.invalid/"

app = typer.Typer(rich_markup_mode=None)


class Format(StrEnum):
    """How `check` writes its report."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    HTML = "html"
    TREC = "trec"


@app.command(
    epilog=examples(
        "coalmine check canaries",
        "coalmine check canaries --url https://staging.example/search --format junit > canaries.xml",
        "coalmine check canaries/docs.yaml --rankings run.trec",
        "coalmine check canaries --save before.json; coalmine check canaries --baseline before.json",
    )
)
def check(
    paths: Paths,
    *,
    url: Annotated[str | None, typer.Option(help="Where the retriever is, instead of what the files say.")] = None,
    form: Annotated[Format, typer.Option("--format", help="What is written to stdout.")] = Format.TABLE,
    baseline: Annotated[Path | None, typer.Option(help="A saved report to compare with.")] = None,
    save: Annotated[Path | None, typer.Option(help="Save the report as JSON.")] = None,
    rankings: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Judge a TREC run file instead, its topics being canary keys.")
    ] = None,
    as_documents: Annotated[
        bool, typer.Option("--as-documents", help="With --rankings: what the run names are documents, not chunks.")
    ] = False,
    slug: Annotated[str | None, typer.Option("--check", metavar="SLUG", help="Only this check of the files.")] = None,
) -> None:
    """Run every canary once and judge the answers, without a server or a database.

    Exit code 0: healthy, 1: degraded, 2: unusable input, 3: the retriever could not be measured. It follows the rules
    of the check; without any, coverage must be at least 0.9. With --baseline a check without rules is compared with the
    saved report: a fall by more than chance, or canaries lost for good (asked up to three times more), exit with 1.
    More than a tenth of the queries failing exits with 1 too. JUnit has failures only where the exit code is 1, and
    an error for each canary that was not measured.
    """
    documents = read_files(paths, sends=False)
    canary_files.warn(documents.unset)
    if rankings is not None:
        ranked = read_run(file_source(rankings))
        chosen = gate.choose_targets(documents, check=slug, url=NOWHERE)
        targets, notes = judged_by_rank(chosen, ranked, file=str(rankings), as_documents=as_documents)
        probe: Probe = RankingsProbe(ranked)
        for line in notes:
            terminal.note(f"Note: {line}.")
    else:
        targets = gate.choose_targets(documents, check=slug, url=url)
        probe = build_probe(load_settings(os.environ))
    before = read_reports(str(baseline), baseline.read_bytes()) if baseline is not None else {}
    sizes = [(target.check.slug, target.size) for target in targets]
    reports = []
    with stopped_by_signals(), terminal.progress(sizes) as bar:
        for number, target in enumerate(targets):
            # A single saved report serves any check where only one is measured.
            lone = next(iter(before.values())) if len(targets) == len(before) == 1 else None
            saved = before.get(target.check.slug) or lone
            report = gate.measure(target, probe, run_id=uuid4().hex, clock=now, answered=bar(number), before=saved)
            if saved is not None:
                report["comparison"] = compare_reports(saved, report, decide_reports(saved, report, target.check.use))
            elif baseline is not None:
                terminal.note(f"The baseline has no report of check {target.check.slug}.")
            reports.append(report)
    if save is not None:
        save.write_text(commands.reports_json(reports), encoding="utf-8")
    commands.show_reports(reports, form)
    verdicts = {report["run"]["verdict"] for report in reports}
    if verdicts != {Verdict.HEALTHY}:
        raise typer.Exit(DEGRADED if Verdict.DEGRADED in verdicts else NOT_MEASURED)
