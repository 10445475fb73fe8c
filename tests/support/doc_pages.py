"""The README and docs as pages of blocks, and a shell in which their commands are run as a reader would."""

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.living import until
from tests.support.processes import ROOT

_FENCE = re.compile(r"^( *)```(\w*)\s*$")
_SERVICE = "http://127.0.0.1:8000"
_MARK = "--- the end of the block"


@dataclass(kw_only=True)
class Block:
    """A fenced block; `shown` is the `text` block right behind it: what it writes, `...` standing for anything."""

    page: str
    line: int
    heading: str
    language: str
    text: str
    shown: str | None = None

    @property
    def first(self) -> str:
        """Its first line, by which lists name it."""
        return self.text.splitlines()[0] if self.text else ""

    @property
    def file(self) -> str | None:
        """The name it is to be saved by, where its first line is a comment that says one."""
        named = re.match(r"# ([\w./-]+\.(?:py|yaml))\b", self.first)
        return named[1] if named else None

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.page}:{self.line}"


@cache
def pages() -> Mapping[str, str]:
    """Read every page, by its path."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


def blocks(page: str) -> list[Block]:
    """Give the blocks of a page in order, those of `text` joined to what writes them."""
    found: list[Block] = []
    lines = iter(enumerate(pages()[page].splitlines(), 1))
    follows, heading = False, ""
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            follows = follows and not line.strip()
            heading = line.lstrip("# ") if line.startswith("#") else heading
            continue
        text = "".join(_inside(lines, fence[1]))
        if fence[2] == "text":
            assert follows, f"{page}:{number} shows what nothing before it writes"
            found[-1].shown = text
        else:
            found.append(Block(page=page, line=number, heading=heading, language=fence[2], text=text))
        follows = fence[2] in {"sh", "python"}
    return found


def documented(program: str) -> str:
    """Give the command of the docs that runs a program with `npx` or `uvx`, which fetch it first."""
    runners = (f"npx {program} ", f"uvx {program} ")
    (found,) = {block.first for page in pages() for block in blocks(page) if block.first.startswith(runners)}
    return found


def documented_arguments(program: str, url: str) -> list[str]:
    """Give the arguments that the docs give to such a program, of a service at this address."""
    return shlex.split(documented(program).replace(_SERVICE, url))[2:]


def _inside(lines: Iterator[tuple[int, str]], indent: str) -> Iterator[str]:
    for _, line in lines:
        if line == f"{indent}```":
            return
        yield line.removeprefix(indent) + "\n"
    raise AssertionError("a block has no end")


def is_shown(shown: str, written: str) -> bool:
    """Whether a page shows what was written: `...` is anything, and where lines break does not matter."""
    parts = [r"\s*".join(map(re.escape, part.split())) for part in shown.split("...")]
    return re.fullmatch(r"\s*" + r".*".join(parts) + r"\s*", written, re.DOTALL) is not None


@dataclass(kw_only=True)
class Shell:
    """One bash for a whole page, so that variables and functions stay, as in a reader's terminal."""

    bash: "subprocess.Popen[bytes]"
    folder: Path
    ran: int = 0

    def run(self, commands: str) -> tuple[int, str, str]:
        """Run commands; gives the exit code, what they wrote, and what they wrote of errors."""
        self.ran += 1
        written, errors = self.folder / f".out-{self.ran}", self.folder / f".err-{self.ran}"
        written.touch()
        assert self.bash.stdin is not None
        self.bash.stdin.write(f"exec >{written} 2>{errors}\n{commands}\nprintf '\\n{_MARK}\\n'\n".encode())
        self.bash.stdin.flush()
        until(lambda: written.read_text().endswith(f"\n{_MARK}\n") or self.bash.poll() is not None, seconds=300)
        text, mark, _ = written.read_text().partition(f"\n{_MARK}\n")
        return (0 if mark else self.bash.wait()), text, errors.read_text()


@contextmanager
def opened_shell(folder: Path, environment: Mapping[str, str]) -> Iterator[Shell]:
    """Open a shell in a folder, which ends with the first command that fails."""
    bash = subprocess.Popen(
        ["/bin/bash", "-e", "-o", "pipefail"], stdin=subprocess.PIPE, cwd=folder, env=dict(environment)
    )
    assert bash.stdin is not None
    try:
        yield Shell(bash=bash, folder=folder)
    finally:
        with suppress(BrokenPipeError):
            bash.stdin.close()
        bash.wait(20)
