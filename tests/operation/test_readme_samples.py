"""The README's samples for real retrievers, run as they stand: given is only what they leave to the environment."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import PASSWORD, READER, database
from tests.support.doc_pages import blocks
from tests.support.embedder import MODEL, embedder
from tests.support.live_indexes import collection, indexed
from tests.support.processes import ROOT
from tests.support.servers import chroma

pytestmark = pytest.mark.systems


@pytest.fixture(scope="module")
def embeddings() -> Iterator[dict[str, str]]:
    with embedder() as served:
        yield {"EMBEDDINGS_URL": f"{served.url}/v1/embeddings", "EMBEDDINGS_MODEL": MODEL}


def test_sample_for_chroma_finds_what_it_expects(embeddings: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with chroma(tmp_path / "server") as url:
        collection(url, "handbook")
        run = checked(tmp_path, "my-canaries/chroma.yaml", {**embeddings, "CHROMA_URL": url})
    assert (run["verdict"], run["coverage"]) == ("healthy", 1.0)


def test_sample_for_pgvector_finds_what_it_expects(embeddings: dict[str, str], tmp_path: Path) -> None:
    with database() as server:
        indexed(server, "chunks")
        environment = {"POSTGRES_URL": server.url, "POSTGRES_USER": READER, "POSTGRES_PASSWORD": PASSWORD}
        run = checked(tmp_path, "my-canaries/pgvector.yaml", {**embeddings, **environment})
    assert (run["verdict"], run["coverage"]) == ("healthy", 1.0)


def checked(folder: Path, name: str, environment: dict[str, str]) -> dict[str, Any]:
    """Save a sample of the README, put it to its retriever by `coalmine check`, and give the run."""
    (text,) = [block.text for block in blocks("README.md") if block.file == name]
    file = folder / Path(name).name
    file.write_text(text, encoding="utf-8")
    ended = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "app.cli", "check", str(file), "--format", "json"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    run: dict[str, Any] = json.loads(ended.stdout)["run"]
    return run
