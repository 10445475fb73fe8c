"""`coalmine explain`: one query looked at closely, of canary files or of a running service."""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import uuid4

import typer

from app import USER_AGENT
from app.base import terminal
from app.base.commands import ServerUrl, Variables, examples, note, now, variable_values
from app.base.documents.fields import Document, parse_document
from app.base.errors import CoalmineError, InvalidInputError, Problem
from app.base.texts import Table, counted, named_text, number, outcome_word, plain, shorten, variables_text
from app.base.values import Answer, Outcome, Ranking, Step, Verdict
from app.catalog.documents.canary_documents import CanaryDocument, JudgmentDocument
from app.catalog.documents.canary_files import read_files
from app.catalog.documents.check_documents import CheckDocument
from app.config import load_settings
from app.definitions.client import Server, Trial
from app.definitions.commands import canary_files
from app.diagnosis.domain.query_explanations import Earlier, ExactComparison, QueryExplanation, ScoreGap
from app.diagnosis.rendering import add_canary, new_canary_file
from app.reports.rendering.reports import read_reports
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import ResponseMapping, Retriever, Scale, Scorer, ScorerKind
from app.runs.service.explaining import (
    Ask,
    Question,
    asks_by,
    asks_exactly_by,
    choose_question,
    earlier_answer,
    explain,
    lone_canary,
    question_of,
)

NOT_MEASURED: Final = 3
DEPTH: Final = 50
_SHOWN_TEXT, _SHOWN_CHUNKS, _NAME = 60, 20, 80

app = typer.Typer(rich_markup_mode=None)


class Format(StrEnum):
    """Format of the output."""

    TEXT = "text"
    JSON = "json"


@app.command(
    "explain",
    epilog=examples(
        'coalmine explain canaries "How long is data kept?" --expect retention_policy_doc',
        "coalmine explain canaries data-retention --baseline before.json",
        'coalmine explain canaries "How long are logs kept?" --evidence "logs for 90 days" --save new.yaml',
        "coalmine explain --server https://coalmine.example --check dataforge-docs data-retention",
    ),
)
def explain_(  # noqa: PLR0913 - options of a command
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Canary files that define the retriever.")
    ] = None,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A query, or the key of a canary.")] = ...,  # type: ignore[assignment] # typer's way to say: required
    *,
    expect: Annotated[
        list[str] | None, typer.Option(metavar="CHUNK", help="Id of a chunk that should come, instead of the canary's.")
    ] = None,
    evidence: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Text that a hit should hold, instead of the canary's.")
    ] = None,
    slug: Annotated[
        str | None, typer.Option("--check", metavar="SLUG", help="The check by which it is asked and judged.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Where the retriever is, instead of what the files say.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="A saved report, for the ranks before.")] = None,
    depth: Annotated[
        int, typer.Option(min=0, max=1_000, help="Hits of a second request, where something expected is missing.")
    ] = DEPTH,
    var: Variables = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Add it as a canary to this canary file.")] = None,
    server: ServerUrl = None,
    form: Annotated[Format, typer.Option("--format", help="What is written to stdout.")] = Format.TEXT,
) -> None:
    """Ask one query and say why each hit matches or not, how near the expected chunks are, and why the verdict.

    It is asked and judged as its check does. What is expected is that of the canary with this key or query, or what
    --expect and --evidence say. Where an expected chunk is missing, it is asked once more with more hits. With --server
    the service asks, and the ranks before are those of when the canary was last healthy there. Exit code 0: answered,
    whatever the verdict, 2: unusable input, 3: no answer that could be read.
    """
    expected = [JudgmentDocument(id=one) for one in expect or ()]
    expected += [parse_document(JudgmentDocument, {"text": one}) for one in evidence or ()]
    variables = variable_values(var or ())
    before: Earlier | None = None
    ask_exactly: Ask | None = None
    if server is not None:
        if paths:
            message = "--server explains what the service has in force; leave out the files"
            raise InvalidInputError([Problem(message=message)])
        service = connect(server)
        asked = _question_of_service(service, question, slug, expected, variables)
        before = _last_healthy(service, asked)

        ask = _asks_by_service(service, asked, url)
    else:
        if not paths:
            message = "name the canary files of the retriever, or a service with --server"
            raise InvalidInputError([Problem(message=message)])
        documents = read_files(paths, os.environ, sends=False)
        canary_files.warn(documents.unset)
        asked = choose_question(documents, question, check=slug, url=url, expected=expected, variables=variables)
        probe = RetrieverProbe(load_settings(os.environ).retriever_addresses, USER_AGENT)
        run_id = f"explain-{uuid4().hex}"
        ask, ask_exactly = asks_by(probe, asked, run_id=run_id), asks_exactly_by(probe, asked, run_id=run_id)
    if baseline is not None:
        before = _saved_answer(baseline, asked)
    explanation = explain(asked, ask, clock=now, depth=depth, before=before, ask_exactly=ask_exactly)
    if form is Format.JSON:
        typer.echo(json.dumps(explanation, indent=2))  # in ASCII, so that no text of others can act on a terminal
    else:
        show_explanation(explanation)
    if save is not None:
        _save(save, asked)
    if explanation["outcome"] != Outcome.OK:
        raise typer.Exit(NOT_MEASURED)


def _saved_answer(baseline: Path, asked: Question) -> Earlier | None:
    reports = read_reports(str(baseline), baseline.read_bytes())
    lone = next(iter(reports.values())) if len(reports) == 1 else None
    report = reports.get(asked.check.slug) or lone
    before = None if report is None or not asked.as_itself else earlier_answer(report, asked, str(baseline))
    if before is None:
        note("The baseline has no answer to this query.")
    return before


# --- a running service ---------------------------------------------------------------------------------------


def connect(url: str) -> Server:
    """Return the client of a running service."""
    from app.definitions.commands.resources import connect_server  # noqa: PLC0415 - loads the whole service

    return connect_server(url)


def _question_of_service(
    service: Server,
    question: str,
    slug: str | None,
    expected: Sequence[JudgmentDocument],
    variables: Mapping[str, str],
) -> Question:
    if slug is None:
        raise InvalidInputError([Problem(path="--check", message="say which check of the service asks it")])
    check = parse_document(CheckDocument, _stored(CheckDocument, service.definition("checks", slug)))
    found = service.find_canaries(check.suite, question)
    canaries = [parse_document(CanaryDocument, _stored(CanaryDocument, one)) for one in found]
    canary = lone_canary(canaries, check, variables)
    retriever = _shown_retriever(check.retriever, service.definition("retrievers", check.retriever))
    return question_of(check, retriever, question, canary, expected, variables)


def _stored(kind: type[Document], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return what people wrote of a definition, without what the service adds to it."""
    names = {field.alias or name for name, field in kind.model_fields.items()}
    return {name: value for name, value in shown.items() if name in names}


def _shown_retriever(slug: str, shown: Mapping[str, Any]) -> Retriever:
    """Return as much of a retriever as judging needs: where it is and its secrets are the service's business."""
    scorer = shown.get("scorer") or {}
    texts = (shown.get("response") or {}).get("text")
    try:
        kind = ScorerKind(scorer.get("kind", ScorerKind.JUDGED))
        scale = None if scorer.get("scale") is None else Scale(scorer["scale"])
    except ValueError as error:  # of a later release
        raise CoalmineError(f"the scorer of retriever '{slug}' is of a kind that this release does not know") from error
    return Retriever(
        slug=slug,
        url="",
        scorer=Scorer(kind=kind, scale=scale, anchor=scorer.get("anchor")),
        options=shown.get("options") or {},
        response=ResponseMapping(hits=None, text=texts),
    )


def _asks_by_service(service: Server, asked: Question, url: str | None) -> Ask:
    def ask(hits: int) -> Answer:
        return answer_of_trial(service.try_retriever(asked.check.retriever, _trial_request(asked, hits, url)))

    return ask


def _trial_request(asked: Question, hits: int, url: str | None) -> dict[str, Any]:
    values = {**(asked.check.vars or {}), **(asked.canary.vars or {})}
    request: dict[str, Any] = {"query": asked.canary.query, "k": hits}
    request |= {"vars": values} if values else {}
    request |= {"history": [turn.data() for turn in asked.canary.history]} if asked.canary.history else {}
    return request | ({} if url is None else {"retriever": {"url": url}})


def answer_of_trial(trial: Trial) -> Answer:
    """Return the answer that a trial of a service shows, as a probe would have it."""
    try:
        return _answer_of(trial)
    except ValueError as error:  # an outcome or a date that is none
        raise CoalmineError("the service did not answer as Coalmine does") from error


def _answer_of(trial: Trial) -> Answer:
    outcome, hits = Outcome(trial["outcome"]), trial["hits"]
    dates = [None if hit["updated"] is None else datetime.fromisoformat(hit["updated"]).timestamp() for hit in hits]
    ranking = Ranking(
        ids=tuple(hit["id"] for hit in hits),
        documents=tuple(hit["document"] for hit in hits),
        texts=tuple(hit["text"] for hit in hits),
        scores=tuple(hit["score"] for hit in hits),
        returned=trial["returned"] or len(hits),
        updated=tuple(dates) if any(date is not None for date in dates) else None,
        relevance=trial["top_score"] if trial["scorer"]["kind"] in {ScorerKind.EMBEDDING, ScorerKind.RERANK} else None,
    )
    return Answer(
        outcome=outcome,
        latency_seconds=trial["latency_seconds"] or 0.0,
        ranking=ranking if outcome is Outcome.OK else None,
        http_status=trial["http_status"],
        detail=trial["detail"],
        unscored=trial["unscored"],
        step=Step.RETRIEVER,
    )


def _last_healthy(service: Server, asked: Question) -> Earlier | None:
    """Return the ranks of when a canary was last healthy in the check; None where it never was."""
    if not asked.is_canary or not asked.as_itself:
        return None
    states = service.canary_history(asked.check.slug, asked.canary.key)
    healthy = next((state for state in states if state["verdict"] == Verdict.HEALTHY), None)
    if healthy is None:
        return None
    ids = tuple(healthy["ranking"])
    blank = (None,) * len(ids)
    ranking = Ranking(ids=ids, documents=blank, texts=blank, scores=blank, returned=len(ids))
    run = healthy["last_run"] or healthy["first_run"]
    said = f"run {run}" if healthy["last_run"] else f"run {run} and since"
    return Earlier(ranking=ranking, source=said, at=healthy["until"], verdict=Verdict.HEALTHY)


# --- what is shown -------------------------------------------------------------------------------------------


def show_explanation(one: QueryExplanation) -> None:
    """Show an explanation: the verdict and why, the expected chunks, the hits, the scores, the answer before."""
    verdict = str(one["verdict"]).capitalize()
    typer.echo(f"{verdict}: {shorten(one['query'], 200)}")
    for sentence in one["why"]:
        typer.echo(f"  {plain(sentence)}")
    typer.echo(_asked_line(one))
    if one["vars"]:
        typer.echo(f"asked as: {plain(variables_text(one['vars']))}")
    _show_expected(one)
    if one["hits"]:
        typer.echo()
        terminal.show_table(_hits_table(one))
    for line in _score_lines(one):
        typer.echo(line)
    if one["exact"] is not None:
        typer.echo(_exact_line(one["exact"]))
    if one["before"] is not None:
        typer.echo(_before_line(one))


def _exact_line(exact: ExactComparison) -> str:
    if exact["detail"] is not None:
        return f"Exact search was not answered: {plain(exact['detail'])}."
    said = f"Exact search finds {counted(exact['found'], 'hit')}, of which the index returned {exact['returned']}"
    missed = f"; it missed {plain(named_text(exact['missed']))}" if exact["missed"] else ""
    expected = f", of which {plain(named_text(exact['expected_missed']))} should have come"
    return f"{said}{missed}{expected if exact['expected_missed'] else ''}."


def _asked_line(one: QueryExplanation) -> str:
    name = f"canary {one['key']}" if one["key"] is not None else "no canary has this question"
    answer = plain(outcome_word(str(one["outcome"])))
    time = f" in {one['latency_seconds'] * 1000:.0f} ms" if one["latency_seconds"] else ""
    deeper = f"; asked again for {one['depth']}" if one["depth"] else ""
    asked = f"{plain(one['retriever'])} was asked for {counted(one['fetch_k'], 'hit')}, of which {one['k']} count"
    asked += f"; of forbidden chunks all {one['fetch_k']} count" if one["forbidden_chunks"] else ""
    return f"{plain(name)} of check {plain(one['check'])}: {asked} ({answer}{time}){deeper}"


def _show_expected(one: QueryExplanation) -> None:
    if not one["expected"]:
        return
    by = " (by the options)" if one["expected_by"] == "options" else ""
    rows = tuple(
        (
            _judgment_text(chunk["judgment"]),
            "" if chunk["rank"] is None else str(chunk["rank"]),
            "" if chunk["rank_before"] is None else str(chunk["rank_before"]),
            plain(chunk["why"]),
        )
        for chunk in one["expected"][:_SHOWN_CHUNKS]
    )
    typer.echo()
    more = len(one["expected"]) - _SHOWN_CHUNKS
    note = f"{counted(more, 'more chunk')} in --format json" if more > 0 else ""
    columns = ("expected", "rank", "before", "found")
    terminal.show_table(_without_before(Table(title=f"Expected{by}", columns=columns, rows=rows, note=note), one))


def _judgment_text(judgment: Mapping[str, Any]) -> str:
    name = judgment.get("id") or judgment.get("document") or f"“{judgment.get('text')}”"
    grade = "" if judgment["grade"] == 1 else f" (grade {judgment['grade']})"
    return f"{shorten(str(name), _NAME)}{grade}"


def _hits_table(one: QueryExplanation) -> Table:
    rows = tuple(
        (
            f"{hit['rank']}{'' if hit['rank'] <= one['k'] or hit['forbidden'] else ' (below k)'}",
            shorten(hit["id"], _NAME),
            shorten(hit["document"] or "", _NAME),
            "" if hit["rank_before"] is None else str(hit["rank_before"]),
            "" if hit["score"] is None else f"{hit['score']:.6g}",
            plain(hit["why"]),
            shorten(hit["text"] or "", _SHOWN_TEXT),
        )
        for hit in one["hits"]
    )
    columns = ("rank", "id", "document", "before", "score", "why", "text")
    return _without_before(Table(title="Hits", columns=columns, rows=rows), one)


def _without_before(table: Table, one: QueryExplanation) -> Table:
    """Return a table without columns that are empty, and without the ranks before where there is nothing before."""
    kept = [
        place
        for place, name in enumerate(table.columns)
        if any(row[place] for row in table.rows) or (name == "before" and one["before"] is not None)
    ]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    columns = tuple(table.columns[place] for place in kept)
    return Table(title=table.title, columns=columns, rows=rows, note=table.note)


def _score_lines(one: QueryExplanation) -> list[str]:
    gaps, k = one["gaps"], one["k"]
    lines = []
    if gaps["at_k"] is not None:
        same, scores = not gaps["at_k"]["size"], gaps["at_k"]["scores"]
        said = f"have the same score, {scores[0]:.6g}" if same else f"differ by {_gap_text(gaps['at_k'])}"
        lines.append(f"Ranks {k} and {k + 1} {said}.")
    if gaps["largest"] is not None and gaps["largest"] != gaps["at_k"]:
        rank = gaps["largest"]["after_rank"]
        lines.append(f"The scores fall most after rank {rank}: by {_gap_text(gaps['largest'])}.")
    if gaps["expected_below"] is not None:
        lines.append(f"The best expected chunk is {number(gaps['expected_below'])} away from the score of rank {k}.")
    return lines


def _gap_text(gap: ScoreGap) -> str:
    first, second = gap["scores"]
    return f"{gap['size']:.6g} ({first:.6g} and {second:.6g})"


def _before_line(one: QueryExplanation) -> str:
    before = one["before"]
    assert before is not None  # noqa: S101 - the caller checks
    at = f" of {plain(before['at'])}" if before["at"] else ""
    verdict = f", {before['verdict']}" if before["verdict"] else ""
    gone = f"; gone from its top {one['k']}: {named_text(before['gone'])}" if before["gone"] else ""
    return f"Ranks before: {plain(before['source'])}{at}{verdict}{gone}."


# --- a new canary --------------------------------------------------------------------------------------------


def _save(file: Path, asked: Question) -> None:
    """Add a question as a canary to a file; the rest of the file stays as it is."""
    if asked.expected_by == "nothing":
        message = "nothing is expected of this query; say what should come with --expect or --evidence"
        raise InvalidInputError([Problem(path="--save", message=message)])
    if file.exists():
        written = add_canary(str(file), file.read_bytes().decode(), asked.check.suite, asked.canary)
    else:
        written = new_canary_file(asked.check.suite, asked.canary)
    file.write_bytes(written.encode())
    note(f"Added canary {asked.canary.key} to {file}.")
