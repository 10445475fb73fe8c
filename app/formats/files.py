"""Canary files on disk: which texts a path stands for, and reading the files that secrets are kept in."""

from pathlib import Path

from app.domain.errors import InvalidInputError, Problem


def canary_texts(path: Path) -> list[tuple[str, bytes]]:
    """Read the canary files of a path: a file, or every `*.yaml` and `*.yml` of a folder, in order of name.

    Raises InvalidInputError where there is none.
    """
    files = sorted(file for pattern in ("*.yaml", "*.yml") for file in path.glob(pattern)) if path.is_dir() else [path]
    if not files:
        raise InvalidInputError([Problem(file=str(path), message="holds no canary file (*.yaml)")])
    try:
        return [(str(file), file.read_bytes()) for file in files]
    except OSError as error:
        raise InvalidInputError(
            [Problem(file=str(error.filename), message=f"cannot be read: {error.strerror}")]
        ) from error


def read_secret(path: str) -> str:
    """Read a file that holds a secret, relative to the working directory; an OSError names its whole path."""
    return Path(path).absolute().read_text(encoding="utf-8")
