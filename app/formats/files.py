"""Canary files on disk: which texts a path stands for, and reading the files that secrets are kept in."""

from pathlib import Path

from app.domain.errors import InvalidInputError, Problem


def canary_paths(path: Path) -> list[Path]:
    """Canary files of a path, by name: the file itself, or every `*.yaml` and `*.yml` of a folder (maybe none)."""
    if not path.is_dir():
        return [path]
    return sorted(file for pattern in ("*.yaml", "*.yml") for file in path.glob(pattern))


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
        raise InvalidInputError(
            [Problem(file=str(error.filename), message=f"cannot be read: {error.strerror}")]
        ) from error


def read_secret(path: str) -> str:
    """Read a file that holds a secret, relative to the working directory; an OSError names its whole path."""
    return Path(path).absolute().read_text(encoding="utf-8")
