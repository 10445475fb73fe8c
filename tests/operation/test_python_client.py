"""A Python client, made as the docs say, reads every answer of a filled service, and nothing is lost in it."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_service import Api
from tests.support.doc_pages import documented_arguments
from tests.support.filled_service import app_of, filled_api, names_of
from tests.support.living import serving
from tests.support.servers import ENVIRONMENT, PROGRAMS, installed

GENERATOR = "openapi-python-client"
pytestmark = pytest.mark.systems


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service of which everything that can be shown is there."""
    with filled_api(tmp_path_factory.mktemp("service")) as opened:
        yield opened


@pytest.fixture(scope="module")
def made(service: Api, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Make the client; gives the folder it is in, and what the generator said."""
    folder = tmp_path_factory.mktemp("client")
    with serving(app_of(service), lifespan="off") as url:
        said = _run(GENERATOR, *documented_arguments(GENERATOR, url), folder=folder)
    return folder, said


def _run(program: str, *arguments: object, folder: Path) -> str:
    done = subprocess.run(  # noqa: S603 - programs of our own lock
        [installed(program), *map(str, arguments)],
        cwd=folder,
        env={"PATH": f"{ENVIRONMENT / 'bin'}:/usr/bin:/bin", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _reads(service: Api) -> list[dict[str, Any]]:
    """List the calls that read everything but streams and texts."""
    names = names_of(service)
    return [
        {"function": way["operationId"], "names": {name: known[name] for name in _parameters(way) & known.keys()}}
        for path, methods in app_of(service).openapi()["paths"].items()
        for known in (names.of(path) | names.queries_of(path),)
        for method, way in methods.items()
        if method == "get" and "application/json" in way["responses"]["200"].get("content", {})
    ]


def _parameters(way: dict[str, Any]) -> set[str]:
    return {one["name"] for one in way.get("parameters", ())}


def test_nothing_of_the_description_is_left_out(made: tuple[Path, str], service: Api) -> None:
    """The generator warns of what it cannot express, and goes on without it: only bodies that JSON can hold as well."""
    folder, said = made
    left_out = re.findall(r"WARNING parsing (.+) within \S+\s+(.*)", said)
    assert len(left_out) == said.count("WARNING")
    assert set(left_out) == {
        ("POST /v1/corpora/{corpus}", "Unsupported content type application/x-ndjson"),
        ("POST /v1/corpora/{corpus}", "Unsupported content type application/jsonl"),
        ("POST /v1/suites/{suite}/traffic", "Unsupported content type application/x-ndjson"),
        ("POST /v1/suites/{suite}/traffic", "Unsupported content type application/jsonl"),
        ("POST /v1/suites/{suite}/traffic", "Unsupported content type text/csv"),
        ("POST /v1/otlp/{suite}/v1/traces", "Unsupported content type application/x-protobuf"),
    }
    assert "Unable" not in said
    modules = {module.stem for module in (folder / "coalmine_client" / "api").glob("*/*.py")}
    ways = [way for methods in app_of(service).openapi()["paths"].values() for way in methods.values()]
    assert {way["operationId"] for way in ways} <= modules


def test_every_answer_is_read_into_its_model_and_written_back_the_same(made: tuple[Path, str], service: Api) -> None:
    folder, _ = made
    calls = _reads(service)
    next(call for call in calls if call["function"] == "export_documents").update(names={"suite": "docs"}, format="csv")
    (folder / "calls.json").write_text(json.dumps(calls), encoding="utf-8")
    with serving(app_of(service), lifespan="off") as url:
        _run("python", PROGRAMS / "python_client.py", folder, url, "calls.json", "read.json", folder=folder)
    read = json.loads((folder / "read.json").read_text(encoding="utf-8"))
    assert len(read) == len(calls) > 30
    kinds = {one["function"]: one["parsed"] for one in read}
    assert (kinds["get_run"], kinds["get_check"], kinds["list_alerts"]) == ("Run", "Check", "AlertPage")
    assert [one["function"] for one in read if one["written"] != json.loads(one["sent"])] == []
