"""Canary files on disk: which texts a path stands for, and reading the files that secrets are kept in."""

import shlex
from pathlib import Path
from typing import Final

from app.base.errors import InvalidInputError, Problem

UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
"""The first two bytes of UTF-16 text."""


def not_utf_8(name: str) -> str:
    """Say that a file is not UTF-8 text, and the command that converts one of Windows."""
    command = f"iconv -f WINDOWS-1252 -t UTF-8 {shlex.quote(name)} > utf-8.txt"
    return f"is not UTF-8 text; in Excel save it as CSV UTF-8, or convert it: {command}"


def decode_text(raw: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with its mark. Raises UnicodeDecodeError."""
    return raw.decode("utf-16" if raw[:2] in UTF_16_MARKS else "utf-8-sig")


def canary_paths(path: Path) -> list[Path]:
    """Canary files of a path, by name: the file itself, or every `*.yaml` and `*.yml` of a folder (maybe none).

    Raises InvalidInputError for a folder that may not be read, which must not pass for an empty one.
    """
    try:
        if not path.is_dir():
            return [path]
        return sorted(file for file in path.iterdir() if file.name.endswith((".yaml", ".yml")))
    except OSError as error:
        raise _unreadable(path, error) from error


def canary_texts(path: Path) -> list[tuple[str, bytes]]:
    """Names and texts of the canary files of a path, as `canary_paths` lists them.

    Raises InvalidInputError where there is none.
    """
    files = canary_paths(path)
    if not files:
        raise InvalidInputError([Problem(file=str(path), message="holds no canary file (*.yaml)")])
    try:
        return [(str(file), file.read_bytes()) for file in files]
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InvalidInputError:
    file = path if error.filename is None else error.filename
    return InvalidInputError([Problem(file=str(file), message=f"cannot be read: {error.strerror}")])


def read_secret(path: str) -> str:
    """Read a file that holds a secret, relative to the working directory; an OSError names its whole path."""
    return Path(path).absolute().read_text(encoding="utf-8")
