"""A plugin for pytest: one test for each canary, all of them asked in one `coalmine check`.

`pytest --coalmine canaries/ --coalmine-retriever my_app.search:retrieve`, or the same as `coalmine_canaries` and
`coalmine_retriever` in the ini file.
"""

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coalmine_client.checks import CheckError, CommandNotFoundError, Report, check, find_command

_WAIT_SECONDS = 600.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line and the ini file."""
    group = parser.getgroup("coalmine", "canary queries of retrieval")
    group.addoption("--coalmine", metavar="PATH", action="append", help="Canary files or folders; repeatable.")
    group.addoption(
        "--coalmine-retriever", metavar="MODULE:NAME", help="What retrieves: an import path, or a URL that is asked."
    )
    group.addoption("--coalmine-baseline", metavar="FILE", help="A saved report to compare with.")
    group.addoption("--coalmine-save", metavar="FILE", help="Save the report, for later as a baseline.")
    parser.addini("coalmine_canaries", "Canary files or folders, as of --coalmine.", type="paths")
    parser.addini("coalmine_retriever", "What retrieves, as of --coalmine-retriever.")
    parser.addini("coalmine_baseline", "A saved report, as of --coalmine-baseline.")


def pytest_collection(session: pytest.Session) -> None:
    """Note that the canaries are to be collected, once a session."""
    session.stash[_PENDING] = bool(_paths(session.config))


_PENDING = pytest.StashKey[bool]()
_REPORT = pytest.StashKey[Report]()


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each canary, and one for the check as a whole; without Coalmine, one that fails and says so."""
    if not session.stash.get(_PENDING, False):
        return
    session.stash[_PENDING] = False
    try:
        find_command()
        report = _report(config)
    except (CommandNotFoundError, pytest.UsageError) as error:  # the other tests run all the same
        if isinstance(error, pytest.UsageError) and not hasattr(config, "workerinput"):
            raise  # of workers xdist would show another error, and not this one
        parent = _Canaries.from_parent(session, name="coalmine", nodeid="coalmine")
        items.append(_UnaskedItem.from_parent(parent, name="not asked", why=str(error)))
        return
    before = _results_of(_baseline(config))
    for document in report.documents:
        slug = document["run"]["check"]
        asked_as = document.get("vars") or {}  # an older Coalmine does not say
        known = before.get(slug) or {}
        parent = _Canaries.from_parent(session, name=f"coalmine/{slug}", nodeid=f"coalmine/{slug}")
        for result in document["results"]:
            was = known.get(result["key"])
            whom = asked_as.get(result["key"]) or {}
            items.append(_CanaryItem.from_parent(parent, name=result["key"], result=result, whom=whom, before=was))
        items.append(_CheckItem.from_parent(parent, name="check", document=document))


class _Canaries(pytest.Collector):
    """The canaries of a check."""

    def collect(self) -> Iterator[pytest.Item]:
        """Collect nothing: the items are made with the report."""
        return iter(())


class _FailedError(Exception):
    """A canary is not healthy; the message says why."""


class _Item(pytest.Item):
    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Say why, without a traceback of ours."""
        if isinstance(excinfo.value, _FailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Name the test as people know it."""
        return self.config.rootpath, None, self.nodeid


class _UnaskedItem(_Item):
    """All canaries, where they cannot be asked."""

    def __init__(self, *, why: str, **more: Any) -> None:
        super().__init__(**more)
        self._why = why

    def runtest(self) -> None:
        """Fail with why."""
        raise _FailedError(f"no canary was asked: {self._why}")


class _CanaryItem(_Item):
    """One canary."""

    def __init__(
        self, *, result: Mapping[str, Any], whom: Mapping[str, str], before: Mapping[str, Any] | None, **more: Any
    ) -> None:
        super().__init__(**more)
        self._result = result
        self._whom = whom
        self._before = before

    def runtest(self) -> None:
        """Fail where the canary is degraded or was not measured."""
        if self._result["verdict"] != "healthy":
            raise _FailedError("\n".join([*_lines(self._result, self._whom), *_past(self._before)]))


class _CheckItem(_Item):
    """The check as a whole: what its rules say."""

    def __init__(self, *, document: Mapping[str, Any], **more: Any) -> None:
        super().__init__(**more)
        self._document = document

    def runtest(self) -> None:
        """Fail where the rules of the check call the run degraded or unknown."""
        run = self._document["run"]
        if run["verdict"] != "healthy":
            raise _FailedError(
                "\n".join([f"{run['check']} is {run['verdict']}", *(f"  {one}" for one in run["reasons"])])
            )


def _lines(result: Mapping[str, Any], whom: Mapping[str, str]) -> list[str]:
    """Say what was asked and as whom, what was expected, what came instead, and why that is not good."""
    lines = [f"query: {result['query']}"]
    lines += [f"asked as: {', '.join(f'{name} {value}' for name, value in whom.items())}"] if whom else []
    lines += [f"  {_reason(reason, result)}" for reason in result["reasons"]]
    if result.get("detail"):
        lines.append(f"  not measured: {result['detail']}")
    if result["missing"]:
        lines.append("expected, and not found:")
        lines += [f"  {_name(chunk)}" for chunk in result["missing"]]
    if result["outcome"] == "ok":
        lines.append("came:")
        lines += [_came(hit, hit["rank"] in result["forbidden_ranks"]) for hit in result["ranking"]] or ["  nothing"]
    return lines


def _reason(reason: str, result: Mapping[str, Any]) -> str:
    if reason == "forbidden" and result["forbidden_ranks"]:
        ranks = ", ".join(map(str, result["forbidden_ranks"]))
        return f"forbidden: a chunk that must not come, at rank {ranks}"
    return reason.replace("_", " ")


def _past(before: Mapping[str, Any] | None) -> list[str]:
    """Say what the canary found in the baseline; nothing where it is not there."""
    if before is None:
        return []
    if before["verdict"] != "healthy":
        return [f"in the baseline it was {before['verdict']} too"]
    found = [f"  {hit['rank']:>3}. {hit['id']}" for hit in before["ranking"] if (hit["grade"] or 0) >= 1]
    return ["in the baseline it was healthy:", *found]


def _came(hit: Mapping[str, Any], is_forbidden: bool) -> str:  # noqa: FBT001 - private, one call
    mark = "forbidden" if is_forbidden else "expected" if (hit["grade"] or 0) >= 1 else ""
    return f"  {hit['rank']:>3}. {hit['id']}{f' ({mark})' if mark else ''}  {_short(hit['text'] or '')}".rstrip()


def _name(chunk: Mapping[str, Any]) -> str:
    return str(chunk.get("id") or chunk.get("document") or _short(chunk.get("text") or ""))


_WIDTH = 80


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _paths(config: pytest.Config) -> list[str]:
    stated = config.getoption("--coalmine") or config.getini("coalmine_canaries")
    return [os.fspath(one) for one in stated]


def _report(config: pytest.Config) -> Report:
    """Return the report of the session; workers of xdist share one, which the first of them makes."""
    shared = getattr(config, "workerinput", {}).get("testrunuid")
    if shared is None:
        return _checked(config)
    file = Path(tempfile.gettempdir()) / f"coalmine-{shared}.json"
    try:
        descriptor = os.open(file.with_suffix(".lock"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return _awaited(file)
    os.close(descriptor)
    config.add_cleanup(partial(_forget, file))  # by then every worker has collected its tests
    try:
        report = _checked(config)
    except pytest.UsageError as error:  # else the others would wait for a report
        _write(file, {"refused": str(error)})
        raise
    _write(file, {"documents": list(report.documents), "exit_code": report.exit_code})
    return report


def _write(file: Path, content: Mapping[str, Any]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(file)


def _forget(file: Path) -> None:
    for one in (file, file.with_suffix(".lock")):
        one.unlink(missing_ok=True)


def _awaited(file: Path) -> Report:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            raise pytest.UsageError("the worker that asks the canaries did not come to an end")
        time.sleep(0.05)
    written = json.loads(file.read_text(encoding="utf-8"))
    if "refused" in written:
        raise pytest.UsageError(written["refused"])
    return Report(documents=tuple(written["documents"]), exit_code=written["exit_code"])


def _checked(config: pytest.Config) -> Report:
    stated = config.getoption("--coalmine-retriever") or config.getini("coalmine_retriever")
    if not stated:
        raise pytest.UsageError("--coalmine needs --coalmine-retriever: MODULE:NAME of what retrieves, or a URL")
    try:
        report = check(_imported(config, stated), _paths(config), baseline=_baseline(config))
    except CheckError as error:
        raise pytest.UsageError(f"coalmine check: {error}") from None
    if save := config.getoption("--coalmine-save"):
        report.save(save)
    return report


def _baseline(config: pytest.Config) -> str | None:
    return config.getoption("--coalmine-baseline") or config.getini("coalmine_baseline") or None


def _results_of(baseline: str | None) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the results of a saved report by check and canary."""
    if baseline is None:
        return {}
    written = json.loads(Path(baseline).read_text(encoding="utf-8"))
    documents = written if isinstance(written, list) else [written]
    return {one["run"]["check"]: {result["key"]: result for result in one["results"]} for one in documents}


def _imported(config: pytest.Config, stated: str) -> Any:
    """Return what an import path names, or a URL as it is; looked for as `python -m pytest` does, here first."""
    if stated.startswith(("http://", "https://")):
        return stated
    module, _, name = stated.partition(":")
    if not name:
        raise pytest.UsageError(f"'{stated}' is not MODULE:NAME")
    here = [str(folder) for folder in (config.invocation_params.dir, config.rootpath)]
    sys.path[:0] = [folder for folder in dict.fromkeys(here) if folder not in sys.path]
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise pytest.UsageError(
            f"{module} cannot be imported: {error} (looked for in {here[0]} and on Python's path)"
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise pytest.UsageError(f"{module} has no '{name}'")
        found = getattr(found, part)
    return found
