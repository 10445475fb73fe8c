"""`coalmine plant`: one document of a check planted now, from this machine, and removed again whatever happens."""

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType
from typing import Annotated, Any, Final
from uuid import uuid4

import typer

from app import USER_AGENT
from app.base.commands import Paths, examples, note
from app.base.documents.fields import did_you_mean, path_of
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.texts import plain, shorten
from app.base.values import Value
from app.catalog.documents.canary_files import Documents, read_files
from app.catalog.documents.check_documents import CheckDocument
from app.config import load_settings
from app.definitions.commands import canary_files
from app.plants.client import is_program, run_command
from app.plants.domain import (
    ID,
    MARKER,
    SECOND,
    Finding,
    Plant,
    PlantProblem,
    PlantState,
    Written,
    is_sure,
    marker_of,
    problem_of,
    problem_sentence,
    seconds_text,
)
from app.plants.service.once import PlantingOnce, PlantVerdict
from app.plants.service.requests import Sender, filled, plant_body, values_of, writing_retriever
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import Retriever

LATE, NOT_MEASURED = 1, 3
_EXIT_CODES: Final = {PlantVerdict.IN_TIME: 0, PlantVerdict.LATE: LATE, PlantVerdict.NOT_MEASURED: NOT_MEASURED}
_LONGEST_QUERY: Final = 120

app = typer.Typer(rich_markup_mode=None)


class Format(StrEnum):
    """Format of the output."""

    TEXT = "text"
    JSON = "json"


@app.command(
    "plant",
    epilog=examples(
        "coalmine plant canaries",
        "coalmine plant canaries --check docs",
        "coalmine plant canaries --check docs --format json > plant.json",
    ),
)
def plant_(
    paths: Paths,
    *,
    slug: Annotated[
        str | None, typer.Option("--check", metavar="SLUG", help="The check whose document is planted.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What is written to stdout.")] = Format.TEXT,
) -> None:
    """Plant one document of a check now, and see it found and gone, without a server or a database.

    Puts a marked document into the source as the `plant` of the check says, asks until it is found, removes it, and
    asks until it is gone. Beside requests it runs programs of this machine, which a service never does: put and remove
    may be a `command`, a list of arguments with {{ id }}, {{ marker }} and {{ text }}, run without a shell; the text is
    its standard input. Ctrl-C, SIGTERM and failures remove the document too; where that fails, it says which document
    is left and how to remove it. Exit code 0: found and gone in time, 1: not in time or left behind, 2: unusable input,
    3: no answer.
    """
    documents = read_files(paths, os.environ, sends=False)
    canary_files.warn(documents.unset)
    planted = _choose(documents, slug)
    probe = RetrieverProbe(load_settings(os.environ).retriever_addresses, USER_AGENT)
    journal = _Journal(planted=planted, shows=form is Format.TEXT)

    def stepped(before: Plant, after: Plant) -> None:
        journal.stepped(before, after)
        interrupts.check()

    with _interrupts() as interrupts:
        hands = _Hands(planted, probe, interrupts)
        planting = PlantingOnce.of(planted.terms, hands, clock=journal.clock, wait=time.sleep, stepped=stepped)
        journal.begin()
        try:
            planting.run()
        except BaseException as error:
            journal.shows = False  # nobody may be reading any more
            _withdraw(planting, planted, interrupted=isinstance(error, KeyboardInterrupt))
            raise
        if planting.may_be_left:
            _say_left(planted)
    if form is Format.JSON:
        typer.echo(json.dumps(journal.report(planting), indent=2))
    else:
        typer.echo(_verdict_line(planting))
    if planting.plant.state is PlantState.WATCHED:
        note(f"A queue may bring it yet: then remove it with {planted.removal}")
    if code := _EXIT_CODES[planting.verdict]:
        raise typer.Exit(code)


# --- which document ------------------------------------------------------------------------------------------


class _Planted(Value):
    """The document of a check, and the retrievers that it is put in by and asked of."""

    check: CheckDocument
    asked: Retriever
    writer: Retriever
    key: str
    body: Mapping[str, Any]

    @property
    def terms(self) -> Any:
        """Its bounds."""
        assert self.check.plant is not None  # noqa: S101 - only such are chosen
        return self.check.plant.terms

    @property
    def values(self) -> dict[str, str]:
        """What fills its requests."""
        return values_of(self.writer.options, self.key, self.body)

    def arguments(self, name: str) -> list[str]:
        """Return a command and its arguments, filled."""
        return [filled(one, self.values) for one in self.body[name]["command"]]

    @property
    def removal(self) -> str:
        """How to remove it by hand, on one line; without credentials."""
        request, whose = self.body["remove"], f", with the credentials of retriever '{self.writer.slug}'"
        if "command" in request:
            return shlex.join(self.arguments("remove"))
        if "sql" in request:
            return f"{plain(request['sql'])} (:{ID} = '{self.key}', :{MARKER} = '{marker_of(self.key)}'){whose}"
        parts = {name: request[name] for name in ("query", "json") if request[name]}
        with_parts = "".join(f" with {name} {filled(json.dumps(part), self.values)}" for name, part in parts.items())
        return plain(f"{request['method']} {filled(request['url'], self.values)}{with_parts}{whose}")


def _choose(documents: Documents, slug: str | None) -> _Planted:
    """Return the document that is to be planted. Raises InvalidInputError for what cannot be, or not be removed."""
    check = _check_of(documents, slug)
    assert check.plant is not None  # noqa: S101 - only such are chosen
    retrievers = {one.slug: one for one in documents.retrievers}
    writer = check.plant.credentials or check.retriever
    missing = [one for one in (check.retriever, writer) if one not in retrievers]
    if missing:
        raise InvalidInputError([Problem(path="plant.credentials", message=f"there is no retriever '{missing[0]}'")])
    _refuse_unusable(check, retrievers[writer])
    key = str(uuid4())
    planted = _Planted(
        check=check,
        asked=retrievers[check.retriever].to_domain(),
        writer=retrievers[writer].to_domain(),
        key=key,
        body=plant_body(check, key, retrievers[writer].url),
    )
    for name in ("put", "remove"):
        if "command" not in planted.body[name]:
            try:
                writing_retriever(planted.writer, key, planted.body, planted.body[name])
            except ConflictError as error:
                raise InvalidInputError([Problem(path=f"plant.{name}", message=str(error))]) from None
    return planted


def _check_of(documents: Documents, slug: str | None) -> CheckDocument:
    planting = {check.slug: check for check in documents.checks if check.plant is not None}
    if slug is None and len(planting) == 1:
        return next(iter(planting.values()))
    if slug is None:
        how = f"name one of: {', '.join(planting)}" if planting else "give one of them a plant, see docs/plants.md"
        message = f"{len(planting)} checks of the files plant documents; {how}"
        raise InvalidInputError([Problem(path="--check", message=message)])
    if slug not in planting:
        is_check = slug in {check.slug for check in documents.checks}
        message = f"check '{slug}' has no plant" if is_check else f"the files define no check '{slug}'"
        raise InvalidInputError([Problem(path="--check", message=f"{message}{did_you_mean(slug, planting)}")])
    return planting[slug]


def _refuse_unusable(check: CheckDocument, writer: RetrieverDocument) -> None:
    """Raise for variables that nothing fills, and for programs that are not there: first of all that of the removal."""
    plant = check.plant
    assert plant is not None  # noqa: S101 - only such are chosen
    lookup = writer.lookup.name if writer.lookup is not None else None
    unknown = plant.unknown_names(writer.options, lookup, embeds=writer.embedding is not None)
    problems = [Problem(path=path_of(("plant", *place)), message=message) for place, message in unknown]
    for name, request in (("put", plant.put), ("remove", plant.remove)):
        if request.command is not None and not is_program(request.command[0]):
            message = f"there is no program '{plain(request.command[0])}' (a path is relative to the working directory)"
            problems.append(Problem(path=f"plant.{name}.command", message=message))
    if problems:
        raise InvalidInputError(problems)


# --- doing it ------------------------------------------------------------------------------------------------


class _Interrupts:
    """The handler of signals: what is being written is heard out first, so that it is known what there is to remove."""

    def __init__(self) -> None:
        self._holds = self._came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Unwind by a KeyboardInterrupt; while held, the first signal waits."""
        if self._holds and not self._came:
            self._came = True
            with suppress(OSError):
                note("Interrupted: what is under way is waited for, then the document is removed.")
            return
        raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back the first signal in a block, until `check`."""
        self._holds = True
        try:
            yield
        finally:
            self._holds = False

    def check(self) -> None:
        """Raise KeyboardInterrupt for a signal that was held back."""
        if self._came:
            self._came = False
            raise KeyboardInterrupt


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    interrupts = _Interrupts()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupts) for number in numbers}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Hands:
    """Sends the requests of a document, or runs its commands."""

    def __init__(self, planted: _Planted, probe: RetrieverProbe, interrupts: _Interrupts) -> None:
        self._planted = planted
        self._interrupts = interrupts
        self._sender = Sender(probe=probe, key=planted.key, body=planted.body, run_id=f"plant-{planted.key}")

    def put(self) -> Written:
        """Put the document in. A signal ends a command; a request is heard out, since it may be read all the same."""
        if "command" in self._planted.body["put"]:
            interrupts = self._interrupts
            return self._run("put", starting=interrupts.held(), started=interrupts.check)
        with self._interrupts.held():
            return self._sender.write(self._planted.writer, "put")

    def ask(self) -> tuple[bool | None, str | None]:
        """Ask the question of the document."""
        return self._sender.ask(self._planted.asked)

    def remove(self) -> Written:
        """Remove the document."""
        with self._interrupts.held():
            if "command" in self._planted.body["remove"]:
                return self._run("remove")
            return self._sender.write(self._planted.writer, "remove")

    def _run(self, name: str, **more: Any) -> Written:
        timeout = self._planted.body[name]["timeout"]
        return run_command(self._planted.arguments(name), self._planted.body["text"], timeout, **more)


def _withdraw(planting: PlantingOnce, planted: _Planted, *, interrupted: bool) -> None:
    """Remove the document of a planting that was ended, and say what came of it, loudly where it may be left."""
    if planting.plant.state is PlantState.DUE or not planting.plant.is_open:
        return
    with suppress(OSError):
        note(f"{'Interrupted' if interrupted else 'Failed'}: removing document {planted.key}.")
    try:
        planting.withdraw("it was interrupted")
    finally:
        with suppress(OSError):
            if planting.may_be_left:
                _say_left(planted)
            else:
                note(f"Removed document {planted.key}; nobody asked until it was gone.")


def _say_left(planted: _Planted) -> None:
    note(f"LEFT BEHIND: document {planted.key} ({marker_of(planted.key)}) may still be in the source.")
    note(f"Remove it with: {planted.removal}")


# --- what is said --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Journal:
    """What happens to a document, with the seconds since it began."""

    planted: _Planted
    shows: bool
    steps: list[tuple[float, str]] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)

    def clock(self) -> int:
        """Microseconds since some instant; no clock that is set."""
        return round(time.monotonic() * SECOND)

    def begin(self) -> None:
        """Say what is planted, before anything is sent: whoever ends this at once knows what to look for."""
        planted = self.planted
        if self.shows:
            typer.echo(f"Document {planted.key}, asked for by check {planted.check.slug}:")
            typer.echo(f"  {shorten(planted.body['query'], _LONGEST_QUERY)}")
        else:
            note(f"Document {planted.key}, check {planted.check.slug}.")

    def stepped(self, before: Plant, after: Plant) -> None:
        """Note and show a step."""
        text = step_text(before, after)
        if text is None:
            return
        seconds = time.monotonic() - self._started
        self.steps.append((round(seconds, 3), text))
        if self.shows:
            typer.echo(f"{seconds:8.1f} s  {plain(text)}")
            sys.stdout.flush()

    def report(self, planting: PlantingOnce) -> dict[str, Any]:
        """Return it all as JSON, named as `GET /v1/checks/{slug}/plants` does."""
        plant, problem = planting.plant, problem_of(planting.plant)
        return {
            "check": self.planted.check.slug,
            "retriever": self.planted.check.retriever,
            "document_id": self.planted.key,
            "marker": marker_of(self.planted.key),
            "verdict": planting.verdict,
            "state": plant.state,
            "finding": plant.finding,
            "found_seconds": plant.found_seconds,
            "is_sure": is_sure(plant),
            "gone_seconds": plant.gone_seconds,
            "problem": problem,
            "sentence": None if problem is None else problem_sentence(plant, problem, None),
            "failure": plant.failure,
            "removal_failure": plant.removal_failure,
            "may_be_left": planting.may_be_left,
            "removal": self.planted.removal,
            "steps": [{"seconds": seconds, "text": text} for seconds, text in self.steps],
        }


_STEPS: Final = {
    PlantState.SENDING: "put: sent",
    PlantState.AWAITED: "put: taken by the source",
    PlantState.LEAVING: "removal: taken by the source",
}


def step_text(before: Plant, after: Plant) -> str | None:
    """Return what a step did, in a few words; None = nothing new."""
    if after.removal_failure is not None and after.removals_failed != before.removals_failed:
        return f"removal failed ({after.removals_failed}): {after.removal_failure}"
    if after.state is before.state:
        return None
    if after.state is PlantState.REMOVING:
        return _finding_text(after) if before.finding is None else "still found: the removal is sent again"
    if after.state in {PlantState.WATCHED, PlantState.ENDED}:
        return "gone" if after.gone_at is not None else after.failure
    return _STEPS.get(after.state)


def _finding_text(plant: Plant) -> str | None:
    if plant.finding is Finding.FOUND:
        return "found"
    if plant.finding is Finding.NOT_FOUND:
        return f"not found within {seconds_text(plant.terms.found_within)}"
    return plant.failure


def _verdict_line(planting: PlantingOnce) -> str:
    plant, problem = planting.plant, problem_of(planting.plant)
    terms = plant.terms
    found, gone = plant.found_seconds, plant.gone_seconds
    if problem is not None:
        sentence = plain(problem_sentence(plant, problem, None))
        is_late = problem is not PlantProblem.LEFT_BEHIND
        return f"Not in time: {sentence[0].lower()}{sentence[1:]}." if is_late else f"{sentence}."
    if planting.verdict is PlantVerdict.NOT_MEASURED:
        unknown = "nobody answered whether it is gone" if plant.finding is Finding.FOUND else "it was not measured"
        return f"Not measured: {plain(plant.failure or unknown)}."
    bounds = f"within {seconds_text(terms.found_within)} and {seconds_text(terms.gone_within)}"
    gone_text = "gone" if gone is None else f"gone {seconds_text(gone)} after its removal"
    return f"In time ({bounds}): found after {seconds_text(found or 0.0)}, {gone_text}."
