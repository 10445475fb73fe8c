"""`check`: every canary of some files asked once, and what came of it as rows."""

import importlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coalmine_client.retrievers import as_retriever, taken_by
from coalmine_client.serving import served

COMMAND_VARIABLE = "PYTEST_COALMINE_COMMAND"
_MEASURED = (0, 1, 3)
"""Exit codes of a check that was carried out: healthy, degraded, the retriever could not be measured."""


class CheckError(Exception):
    """The check could not be carried out; the message is what `coalmine check` said."""


class CommandNotFoundError(CheckError):
    """There is no Coalmine here to check with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a check found, as `coalmine check --format json` writes it."""

    documents: tuple[Mapping[str, Any], ...]
    """One for each check of the files."""
    exit_code: int

    @property
    def healthy(self) -> bool:
        """Whether every check is healthy by its rules, or by a coverage of 0.9 where it has none."""
        return self.exit_code == 0

    @property
    def reasons(self) -> list[str]:
        """Why it is not, and what else there is to say."""
        return [reason for one in self.documents for reason in one["run"]["reasons"]]

    @property
    def measures(self) -> dict[str, dict[str, float | None]]:
        """Measures by check, such as `R@5`; None = undefined."""
        runs = [one["run"] for one in self.documents]
        return {run["check"]: {"coverage": run["coverage"], **run["measures"]} for run in runs}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each canary: check, key, query, verdict, reasons, ranks and hits."""
        return [{"check": one["run"]["check"], **result} for one in self.documents for result in one["results"]]

    def to_pandas(self) -> Any:
        """Return the rows as a data frame. Raises ImportError without pandas."""
        return importlib.import_module("pandas").DataFrame(self.rows)  # of whoever has it

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as a later check's `baseline`."""
        Path(path).write_text(json.dumps(list(self.documents)), encoding="utf-8")

    def __repr__(self) -> str:
        """Say the outcome in a line."""
        degraded = sum(row["verdict"] == "degraded" for row in self.rows)
        verdict = "healthy" if self.healthy else "not healthy"
        return f"<coalmine: {degraded} of {len(self.rows)} canaries degraded, {verdict}>"


def check(
    retriever: Any,
    canaries: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = "canaries",
    *,
    baseline: str | os.PathLike[str] | None = None,
    check: str | None = None,
    command: Sequence[str] | None = None,
) -> Report:
    """Ask every canary of these files or folders once, and return what came of it.

    `retriever`: a callable or a retriever of LangChain, LlamaIndex or Haystack (see `as_retriever`), or a URL, which
    takes the place of that in the files. `baseline`: a report that was saved, to compare with. `check`: only this check
    of the files. `command`: how Coalmine is called; else the variable PYTEST_COALMINE_COMMAND says it, else `coalmine`
    is looked for on the path. Raises CheckError with what is wrong.
    """
    paths = [canaries] if isinstance(canaries, str | os.PathLike) else list(canaries)
    arguments = [str(Path(path)) for path in paths]
    arguments += [] if baseline is None else ["--baseline", os.fspath(baseline)]
    arguments += [] if check is None else ["--check", check]
    is_url = isinstance(retriever, str)
    serving = nullcontext(retriever) if is_url else served(as_retriever(retriever))
    takes = None if is_url else taken_by(retriever)
    arguments += [] if takes is None else ["--takes", ",".join(takes)]
    with serving as address, tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "report.json"
        arguments += ["--url" if is_url else "--served", address, "--save", str(saved)]
        done = _run([*(command or find_command()), "check", *arguments])
        if done.returncode not in _MEASURED or not saved.exists():
            raise CheckError(done.stderr.strip() or f"coalmine check ended with {done.returncode} and said nothing")
        written = json.loads(saved.read_text(encoding="utf-8"))
    documents = written if isinstance(written, list) else [written]
    return Report(documents=tuple(documents), exit_code=done.returncode)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # Else an `app` of the caller's own, on the path of his modules, would be taken for Coalmine's.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        return subprocess.run(  # noqa: S603 - what the caller named
            command, capture_output=True, text=True, encoding="utf-8", check=False, env=environment
        )
    except OSError as error:
        raise CheckError(f"{command[0]} cannot be started: {error.strerror}") from None


def find_command() -> list[str]:
    """Return how Coalmine is called. Raises CommandNotFoundError where it is not there."""
    how = f"install it in an environment of its own, or set {COMMAND_VARIABLE}"
    stated = shlex.split(os.environ.get(COMMAND_VARIABLE) or "")
    if stated and shutil.which(stated[0]) is None:
        raise CommandNotFoundError(f"{stated[0]} is not found: {how}")
    found = stated or [shutil.which("coalmine") or ""]
    if not found[0]:
        raise CommandNotFoundError(f"there is no `coalmine` on the path: {how}")
    return found
