"""Reading canary files for commands."""

import os
from collections.abc import Sequence
from pathlib import Path

from app.formats.catalog.canary_files import Documents, read_canary_files
from app.formats.files import canary_texts, read_secret


def read_files(paths: Sequence[Path], *, retrievers_alone: bool = False, sends: bool = True) -> Documents:
    """Read canary files and folders of them, or the retrievers in them. Raises InvalidInputError with every problem.

    Commands that send nothing say so: a variable of a hook may then be unset.
    """
    texts = {name: text for path in paths for name, text in canary_texts(path)}  # a file once, however often named
    files = list(texts.items())
    return read_canary_files(files, os.environ, read_secret, retrievers_alone=retrievers_alone, sends=sends)
