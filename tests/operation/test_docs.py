"""Every command of the README and docs is run as it stands, every file they show can be used, every link leads on."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from app.catalog.documents.canary_files import read_canary_files
from tests.support.client_package import client_environment
from tests.support.doc_pages import Block, blocks, documented, is_shown, opened_shell, pages
from tests.support.living import until
from tests.support.processes import ROOT, free_ports, started

NOT_RUN: Mapping[tuple[str, str], str] = {
    (
        "README.md",
        "make run     # the service and a demo retriever, on http://127.0.0.1:8000",
    ): "installs with pip; `make test` is what runs this, and what `make run` starts is started here",
    ("docs/operations.md", "deploy/compose/make-secrets"): "no container engine runs here; see test_container",
    ("docs/scale.md", "docker compose up --build --detach --wait --scale worker=3"): "the same",
    (
        "docs/operations.md",
        'pg_dump --format=custom --no-owner --file=coalmine.dump "$COALMINE_DATABASE_URL"',
    ): "needs a PostgreSQL server of its own: test_backup runs these lines",
    **{
        ("docs/api.md", line): f"asks a package registry for the tool, which {test} runs with these arguments"
        for line, test in (
            (documented("openapi-typescript"), "test_typescript_client"),
            (documented("openapi-python-client"), "test_python_client"),
        )
    },
    ("docs/operations.md", ".venv/bin/pip install -e '.[otel]'"): "asks a package index; see test_tracing",
    (
        "docs/python.md",
        ".venv/bin/pip install 'pytest-coalmine[pytest] @ file:///opt/coalmine/clients/python'",
    ): "asks a package index; the package is built and unpacked instead",
}
"""(page, first line) of blocks that cannot run here, with the reason."""

BEHIND: Mapping[tuple[str, str], str] = {
    ("docs/hooks.md", "listen.py"): "...hook.test ...\n",
    ("docs/index-facts.md", "counting.py"): "...GET /stats...",
    ("docs/plants.md", "source.py"): "...DELETE /documents/...",
}
"""(page, file) of programs that never end, and what they must have written at the end of the page.

Alerts that earlier pages opened may be delivered to it first.
"""

ALONE = (
    "docs/index-facts.md",
    "docs/operations.md",
    "docs/plants.md",
    "docs/privacy.md",
    "docs/traces.md",
    "docs/traffic.md",
)
"""Pages with a service of their own: they create keys and look at its files, leave a check that fails, or count or
delete all the traffic."""

ELSEWHERE = ("docs/ten-minutes.md",)
"""Pages that another test runs, because they start a service themselves: test_ten_minutes."""

RUN = [
    page
    for page in pages()
    if not page.startswith("docs/runbooks/")  # which speak of a service of theirs: test_runbooks asks what they ask
    and page not in ELSEWHERE
    and any(block.language in {"sh", "python"} for block in blocks(page))
]


# --- what stands in for what -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service with its demo, as `make run` starts them, on ports of its own."""

    port: int
    hook: int
    folder: Path

    def adapted(self, text: str) -> str:
        """Put the ports of the test in the place of those a reader has. Nothing else is changed."""
        for written, port in ((8000, self.port), (8001, self.port + 1), (9999, self.hook)):
            text = re.sub(rf'(127\.0\.0\.1(?::|", )){written}\b', rf"\g<1>{port}", text)
        return text

    @property
    def environment(self) -> dict[str, str]:
        """Give what a reader's terminal has, and the demo's address for the shipped canaries."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, "HOME": str(self.folder), "DEMO_URL": f"http://127.0.0.1:{self.port + 1}"}

    def has_samples(self) -> bool:
        """Tell whether the demo's traffic was measured and its task is annotated, a moment after the start."""
        paths = ("/v1/suites/dataforge/suggestions?retriever=docs-search", "/v1/tasks/demo/agreement")
        with httpx2.Client(trust_env=False, timeout=60) as client:
            return all(client.get(f"http://127.0.0.1:{self.port}{path}").is_success for path in paths)

    def heal(self) -> None:
        """Make the demo well, and see that its check is."""
        with httpx2.Client(trust_env=False, timeout=60) as client:
            client.post(f"http://127.0.0.1:{self.port + 1}/fault", json={"kind": "none"}).raise_for_status()
            for _ in range(2):
                run = f"http://127.0.0.1:{self.port}/v1/checks/dataforge-docs/runs"
                assert client.post(run, json={"wait_seconds": 60}).json()["verdict"] == "healthy"


@contextmanager
def running(folder: Path) -> Iterator[Service]:
    """Start a service; its check waits a day, so that no run of the clock comes between those of a page."""
    canaries = folder / "canaries"
    canaries.mkdir()
    for file in (ROOT / "canaries").glob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        assert "{every: 5m}" in text
        (canaries / file.name).write_text(text.replace("{every: 5m}", "{every: 1d}"), encoding="utf-8")
    service = Service(port=free_ports(), hook=free_ports(), folder=folder)
    arguments = ("--port", service.port, "--data-dir", folder / "data", "--canaries", canaries, "--with-demo")
    hook = f"http://127.0.0.1:{service.hook}/"
    with started(folder, "serve", *arguments, OPS_WEBHOOK=hook) as process:
        process.wait_for("is serving")
        until(service.has_samples)
        yield service


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("shared")) as service:
        yield service


@pytest.fixture
def service(request: pytest.FixtureRequest, page: str, tmp_path: Path) -> Iterator[Service]:
    """Give a service and a clean folder for a page."""
    if page in ALONE:
        with running(tmp_path) as alone:
            yield alone
        return
    common: Service = request.getfixturevalue("shared")
    common.heal()
    shutil.copytree(common.folder / "canaries", tmp_path / "canaries")
    yield Service(port=common.port, hook=common.hook, folder=tmp_path)


# --- the pages ---------------------------------------------------------------------------------------------------


@pytest.mark.systems(seconds=65)
@pytest.mark.parametrize("page", RUN)
def test_every_command_of_a_page_runs_and_writes_what_is_shown(page: str, service: Service) -> None:
    (service.folder / ".venv").symlink_to(sys.prefix)
    environment = service.environment
    if page == "docs/python.md":
        environment |= client_environment(service.folder / "client", service.folder)
    with opened_shell(service.folder, environment) as shell:
        behind: list[tuple[Block, Path]] = []
        for block in blocks(page):
            text = service.adapted(block.text)
            if block.file is not None:
                file = service.folder / block.file
                file.parent.mkdir(exist_ok=True, parents=True)
                file.write_text(text, encoding="utf-8")
            if (page, block.first) in NOT_RUN or block.language not in {"sh", "python"}:
                continue
            if block.language == "python":
                assert block.file is not None, f"{block.place}: say in the first line by which name to save it"
                text = f".venv/bin/python {block.file}"
            if (page, block.file) in BEHIND:
                behind.append((block, service.folder / "behind"))
                text += " >behind 2>&1 & \nbehind=$!; trap 'kill $behind' EXIT"
            code, written, errors = shell.run(text)
            assert code == 0, f"{block.place} ended with {code}\n{written}\n{errors}"
            if block.shown is not None:
                assert is_shown(block.shown, written), f"{block.place} wrote\n{written}\nand not\n{block.shown}"
        for block, file in behind:
            shown = BEHIND[page, str(block.file)]
            until(lambda file=file, shown=shown: is_shown(shown, file.read_text()))


def test_what_is_not_run_is_still_there() -> None:
    there = {(block.page, block.first) for page in pages() for block in blocks(page) if block.language == "sh"}
    assert set(NOT_RUN) <= there
    assert {(block.page, block.file) for page in pages() for block in blocks(page)} >= set(BEHIND)


def test_blocks_are_of_kinds_somebody_looks_at() -> None:
    kinds = {block.place: block.language for page in pages() for block in blocks(page)}
    # Drawings are fenced without a language; expressions of Prometheus are looked at by test_runbooks, SQL is run by
    # test_sql_role, JavaScript by test_assignment, nginx reads its own in test_nginx, files of CI (yml) by test_ci.
    seen = {"sh", "python", "yaml", "yml", "json", "promql", "sql", "js", "nginx", ""}
    assert {place for place, language in kinds.items() if language not in seen} == set()


# --- files that are shown ----------------------------------------------------------------------------------------


def of_language(language: str) -> list[Block]:
    return [block for page in pages() for block in blocks(page) if block.language == language]


def variable(name: str) -> str:
    """Give a value that a variable of this name may have."""
    known = {
        "SECRET": "whsec_" + "ab" * 20,
        "BOT_TOKEN": "xoxb-0123456789",
        "POSTGRES_URL": "postgresql://db.example.com/docs",
        "WEBHOOK": "https://ops.example.com/",
        "URL": "https://hooks.example.com/",
    }
    return next((value for ending, value in known.items() if name.endswith(ending)), "0123456789abcdef0123456789abcdef")


def test_every_canary_file_shown_can_be_used() -> None:
    """A check needs what it watches: where a page shows one alone, it is of the file that is shown whole."""
    for block in of_language("yaml"):
        files = [(block.place, block.text)]
        if "checks:" in block.text and "suite:" not in block.text.partition("checks:")[0]:
            files += [
                (whole.place, whole.text) for whole in of_language("yaml") if whole.file == "handbook/canaries.yaml"
            ]
        text = "".join(one for _, one in files)
        environment = {name: variable(name) for name in re.findall(r"\$\{([A-Z_]+)\}", text)}
        assert read_canary_files(files, environment, None).sources, block


@pytest.mark.parametrize("block", of_language("json"), ids=lambda block: block.place)
def test_all_json_shown_can_be_read(block: Block) -> None:
    assert json.loads(block.text)
