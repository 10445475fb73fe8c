"""Canary files on disk: which texts a path stands for, and reading the files that secrets are kept in."""

from pathlib import Path

from app.domain.errors import InvalidInputError, Problem


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
