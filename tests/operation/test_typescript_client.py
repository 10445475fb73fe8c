"""A TypeScript client, made as the docs say, compiles, and what it knows of answers are types to work with."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.api_service import api
from tests.support.doc_pages import documented_arguments
from tests.support.filled_service import app_of
from tests.support.living import serving
from tests.support.processes import ROOT

pytestmark = pytest.mark.systems

NPM = ROOT / "tests" / "npm"
OPTIONS = {
    "strict": True,
    "noEmit": True,
    "module": "esnext",
    "moduleResolution": "bundler",
    "target": "es2022",
    "types": [],
}
FREE = {"json", "query", "request", "retriever"}
"""Fields that hold what users make up: the body and the parameters of a request to their retriever, and parts of it."""


def _node(folder: Path, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    script, node = NPM / "node_modules" / program, shutil.which("node")
    if node is None or not script.exists():
        pytest.skip("needs node and the packages of tests/npm, which make test installs where it may")
    return subprocess.run(  # noqa: S603 - programs of our own lock
        [node, script, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the types of the API; gives the folder they are in."""
    folder = tmp_path_factory.mktemp("typescript")
    with api(tmp_path_factory.mktemp("service")) as service, serving(app_of(service), lifespan="off") as url:
        arguments = documented_arguments("openapi-typescript", url)
        made = _node(folder, "openapi-typescript/bin/cli.js", *arguments)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


def test_the_types_compile_and_so_does_what_is_written_against_them(client: Path) -> None:
    shutil.copy(NPM / "client.ts", client)
    (client / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "include": ["*.ts"]}))
    done = _node(client, "typescript/bin/tsc", "--project", ".", "--pretty", "false")
    assert (done.returncode, done.stdout) == (0, "")


def test_every_field_has_a_type_but_those_that_hold_what_users_make_up(client: Path) -> None:
    types = (client / "coalmine.ts").read_text(encoding="utf-8")
    schemas = types.partition("schemas: {")[2].partition("    responses: {")[0]
    field, loose = "", set()
    for line in schemas.splitlines():
        found = re.match(r'\s+"?([\w.-]+)"?\??: (.*)', line)
        field, written = (found[1], found[2]) if found else (field, line)
        conditions = written.startswith("        } & (unknown")  # which kind of hook does without what
        about = " * " in line or "/**" in line
        if re.search(r'(?<!")\b(unknown|never|any|object)\b(?!")', written) and not (conditions or about):
            loose.add(field)
    assert loose == FREE
