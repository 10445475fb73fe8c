"""The typed client of the REST API: as the description has it today, and against a service."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.api_service import Api, api
from tests.support.filled_service import app_of
from tests.support.http_servers import peer, reply
from tests.support.living import serving
from tests.support.processes import ROOT
from tests.support.servers import installed
from tests.support.world import RETRIEVER

PACKAGE = ROOT / "clients/python"
MADE = ("rest.py", "rest_models.py")


def module_of(name: str) -> ModuleType:
    """Import a module of the client from its sources."""
    sys.path.insert(0, str(PACKAGE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(PACKAGE))


@pytest.fixture(scope="module")
def client_package() -> ModuleType:
    return module_of("coalmine_client.rest")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with api(tmp_path_factory.mktemp("service")) as opened:
        yield opened


def test_the_client_is_made_from_the_description_of_today(service: Api, client_package: ModuleType) -> None:
    description = service.client.get("/openapi.json").json()
    digest = module_of("generate").digest(description)
    assert digest == client_package.Coalmine.DESCRIPTION, "make it anew: `make client`"
    named = {way["operationId"] for ways in description["paths"].values() for way in ways.values()}
    assert named <= vars(client_package.Coalmine).keys()


def test_it_writes_reads_and_says_what_is_refused(service: Api, client_package: ModuleType) -> None:
    with serving(app_of(service), lifespan="off") as url:
        client = client_package.Coalmine(url, timeout=20)
        made = client.put_retriever("search", {**RETRIEVER})
        assert (made["slug"], client.get_retriever("search")["url"]) == ("search", RETRIEVER["url"])
        client.put_suite("docs", {"slug": "docs", "canaries": [{"key": "a", "query": "b", "expected_chunks": ["c"]}]})
        listed = client.list_canaries("docs", limit=5)
        assert [one["key"] for one in listed["items"]] == ["a"]
        assert "coalmine_build_info" in client.scrape()
        with pytest.raises(client_package.ApiError, match=r"HTTP 422: .*schedule") as refused:
            client.put_check("docs", {"slug": "docs", "suite": "docs", "retriever": "search"})
        assert refused.value.problem["errors"]
        with pytest.raises(client_package.ApiError, match="HTTP 404"):
            client.get_retriever("a/b")
        assert client.delete_retriever("search") is None
        assert client.list_retrievers(limit=1)["items"] == []


def test_a_key_is_not_sent_to_where_an_answer_leads(client_package: ModuleType) -> None:
    with peer(reply(b"{}")) as other, peer(reply(b"", 302, {"location": f"{other.url}/v1/checks"})) as moved:
        with pytest.raises(client_package.ApiError, match="HTTP 302"):
            client_package.Coalmine(moved.url, key="cm_secret").list_checks()
        assert [one.headers["authorization"] for one in moved.seen] == ["Bearer cm_secret"]
        assert other.seen == []


def test_a_service_that_does_not_answer_is_an_error_of_the_client_that_says_why(client_package: ModuleType) -> None:
    with peer(reply(b"{}")) as gone:
        pass
    with pytest.raises(client_package.UnreachableError, match=rf"^no answer from {gone.url}: Connection refused$"):
        client_package.Coalmine(gone.url).list_checks()
    with peer(reply(b"[]", 200, {"content-length": "5"})) as broken, pytest.raises(client_package.UnreachableError):
        client_package.Coalmine(broken.url, timeout=1).list_checks()
    for wrong, said in (("127.0.0.1:18102", "; write http://127.0.0.1:18102$"), ("ftp://x", "'ftp://x' is no address")):
        with pytest.raises(ValueError, match=said):
            client_package.Coalmine(wrong)


@pytest.mark.systems
def test_the_generator_makes_what_is_there(service: Api, tmp_path: Path) -> None:
    (source := tmp_path / "openapi.json").write_text(service.client.get("/openapi.json").text, "utf-8")
    for name in MADE:
        (tmp_path / name).write_text((PACKAGE / "coalmine_client" / name).read_text("utf-8"), "utf-8")
    command = [str(installed("python")), str(PACKAGE / "generate.py"), str(source), str(tmp_path)]
    subprocess.run(command, check=True)  # noqa: S603 - our own generator
    formatter = [str(Path(sys.executable).parent / "ruff"), "format", "-q", "--config", str(ROOT / "pyproject.toml")]
    subprocess.run([*formatter, str(tmp_path)], check=True)  # noqa: S603 - our own linter
    for name in MADE:
        assert (tmp_path / name).read_text("utf-8") == (PACKAGE / "coalmine_client" / name).read_text("utf-8"), name
    assert json.loads(source.read_text("utf-8"))["openapi"]
