"""Schemathesis sends requests that the description allows, and many it does not; each answer is one it describes.

Status, content type and schema of every answer are checked, those of problems included. The requests are the same in
every run.
"""

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts
from starlette.types import Message, Receive, Send
from starlette.types import Scope as ASGIScope

from app.base.api.requests import EXEMPT, Attempts
from app.base.db.keys import Scope
from app.base.values import replace
from tests.support.api_service import Api
from tests.support.filled_service import app_of, filled_api, names_of, rescored
from tests.support.living import serving
from tests.support.servers import PROGRAMS, installed

pytestmark = pytest.mark.systems(seconds=150)

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
CONFIGURATION = """
warnings = false
continue-on-failure = true
request-timeout = 20
hooks = "schemathesis_hooks"

[cache]
enabled = false

[generation]
deterministic = true
no-shrink = true
database = "none"

[phases.coverage]
unexpected-methods = []

[phases.stateful]
enabled = false
"""
CONTAINERS = """
[[operations]] # have hundreds of bounds each, most of them of documents with operations of their own
include-name = [
  "POST /v1/import", "PUT /v1/checks/{slug}", "PUT /v1/retrievers/{slug}", "PUT /v1/suites/{suite}",
  "POST /v1/suites/{suite}/canaries",
]
phases.coverage.enabled = false
generation.max-examples = 30
"""
NAMING = frozenset(
    {
        "PUT /v1/tasks/{slug}",
        "PUT /v1/tasks/{slug}/items/{item}/annotation",
        "POST /v1/tasks/{slug}/undo",
        "POST /v1/tasks/{slug}/annotations",
        "POST /v1/suites/{suite}/suggestions",
        "POST /v1/suites/{suite}/traffic",
        "POST /v1/checks/{slug}/feedback",
        "PUT /v1/experiments/{slug}",
        "PUT /v1/shadows/{slug}",
        "POST /v1/interleavings/{slug}/lists",
        "POST /v1/checks/{slug}/habits/{habit}/not-normal",
        "POST /v1/checks/{slug}/plants",
    }
)
"""Operations whose bodies name suites, retrievers, annotators or canaries, or hold files, which no description can
list, or shares that have to add up to 1, or two rankings; one on a habit, which a detector learns in weeks; and one
on a check that plants documents."""
Answers = set[tuple[str, int]]
"""Operations with the statuses that they answered."""
Parameters = Mapping[str, Mapping[str, object]]
"""By path: what its parameters are to be, where the description cannot say what there is."""


class Found:
    """What came of sending requests."""

    def __init__(self, report: Mapping[str, Any], text: str) -> None:
        self.failures = [
            f"{one['operation']}: {failure['title']}: {failure.get('message', '')}"
            for one in report["failures"]
            for failure in one["failures"]
        ] + [str(one) for one in report["errors"]]
        self.text = text
        self.tested: int = report["operations"]["tested"]
        self.accepted = {name: _sum(rates, "accepted") for name, rates in report["valid_rates"].items()}
        self.seconds: float = report["running_time"]
        self.cases: int = report["test_cases"]["generated"]


def _sum(rates: Mapping[str, Mapping[str, int]], kind: str) -> int:
    return sum(phase[kind] for phase in rates.values())


def ask(
    service: Api,
    folder: Path,
    parameters: Parameters,
    *options: str,
    settings: str = "",
    answers: Answers | None = None,
) -> Found:
    """Let Schemathesis loose on a service, or on a part of it."""
    (folder / "openapi.json").write_text(json.dumps(app_of(service).openapi()), encoding="utf-8")
    fixed = "".join(
        f"\n[[operations]]\ninclude-path = {json.dumps(path)}\nparameters = {_inline(values)}\n"
        for path, values in parameters.items()
    )
    (folder / "schemathesis.toml").write_text(CONFIGURATION + settings + fixed, encoding="utf-8")
    command = (
        *(installed("st"), "--no-color", "--config-file", "schemathesis.toml", "run", "openapi.json"),
        *("--workers", "1", "--checks", ",".join(CHECKS), "--max-examples", "10"),
        *("--report", "json", "--report-json-path", folder / "report.json", *options),
    )
    with worked(service, set() if answers is None else answers) as url:
        ended = subprocess.run(  # noqa: S603 - a program of our own lock
            [*map(str, command), "--url", url],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(PROGRAMS), "DO_NOT_TRACK": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    text = ended.stdout + ended.stderr
    assert ended.returncode in {0, 1}, text
    assert "Traceback" not in text, text  # a worker of its own that fell leaves operations out
    return Found(json.loads((folder / "report.json").read_text(encoding="utf-8")), text)


def _inline(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items()) + "}"


@contextmanager
def worked(service: Api, answers: Answers) -> Iterator[str]:
    """Serve a service whose worker is a thread of ours; nobody looks a name up. Gives its address, and its answers."""
    stopping = threading.Event()

    def work() -> None:
        while not stopping.wait(0.05):
            service.work()
            rescored(service)

    app = app_of(service)
    app.state.look_up = lambda _names: {}
    app.state.access = replace(app.state.access, unknown_keys=Attempts(most=1_000_000))  # see `test_request_limits`

    async def recorded(scope: ASGIScope, receive: Receive, send: Send) -> None:
        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start" and "route" in scope:
                answers.add((f"{scope['method']} {scope['route'].path}", message["status"]))
            await send(message)

        await app(scope, receive, noted)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with serving(recorded, lifespan="off") as url:
            yield url
    finally:
        stopping.set()
        worker.join()


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service of which everything that can be shown is there."""
    with filled_api(tmp_path_factory.mktemp("conforming")) as opened:
        yield opened


def parameters_of(service: Api) -> dict[str, dict[str, object]]:
    """Name what a filled service has for each path."""
    names = names_of(service)
    paths = app_of(service).openapi()["paths"]
    needed: dict[str, dict[str, object]] = {}
    for path in paths:
        found = {f"path.{name}": value for name, value in names.of(path).items()}
        found |= {f"query.{name}": value for name, value in names.queries_of(path).items()}
        if found:
            needed[path] = {**found}
    return needed


def moments(service: Api, parameters: Parameters) -> Parameters:
    """Let streams of events, which last for minutes, end after a moment."""
    streams = [path for path in app_of(service).openapi()["paths"] if path.endswith("/events")]
    return {**parameters, **{path: {**parameters.get(path, {}), "query.seconds": 0.1} for path in streams}}


def operations_of(service: Api, *methods: str) -> set[str]:
    """Name the operations of these methods."""
    paths = app_of(service).openapi()["paths"]
    return {f"{method.upper()} {path}" for path, ways in paths.items() for method in ways if method in methods}


def test_what_can_be_read_is_answered_as_described(service: Api, tmp_path: Path) -> None:
    found = ask(service, tmp_path, moments(service, parameters_of(service)), "--include-method", "GET")
    assert found.failures == [], found.text[-6000:]
    assert {name for name in operations_of(service, "get") if not found.accepted.get(name)} == set(), "shows nothing"


def test_what_is_changed_is_answered_as_described(service: Api, tmp_path: Path) -> None:
    methods = ("--include-method", "POST", "--include-method", "PUT")
    found = ask(service, tmp_path, parameters_of(service), *methods, settings=CONTAINERS)
    assert found.failures == [], found.text[-6000:]
    refused = {name for name in operations_of(service, "post", "put") if not found.accepted.get(name)}
    # One was delivered, and what the other is about may have changed by then.
    changed = {"POST /v1/deliveries/{delivery_id}/replay", "POST /v1/checks/{slug}/canaries/{key}/diagnosis"}
    assert refused <= changed | NAMING


def test_what_is_not_there_is_answered_as_described(service: Api, tmp_path: Path) -> None:
    found = ask(service, tmp_path, moments(service, {}), "--phases", "fuzzing", "--max-examples", "3")
    assert found.failures == [], found.text[-6000:]
    assert found.tested == len(operations_of(service, "get", "post", "put", "delete"))


def test_what_is_archived_is_answered_as_described(service: Api, tmp_path: Path) -> None:
    found = ask(service, tmp_path, parameters_of(service), "--include-method", "DELETE", "--phases", "coverage")
    assert found.failures == [], found.text[-6000:]
    assert found.tested == len(operations_of(service, "delete"))


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A service with a key of each scope."""

    service: Api
    parameters: Parameters
    keys: Mapping[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Give a service of which everything is there, and keys."""
    with filled_api(tmp_path_factory.mktemp("guarded")) as opened:
        parameters = moments(opened, parameters_of(opened))
        yield Guarded(service=opened, parameters=parameters, keys={scope: opened.key(scope) for scope in Scope})


NOBODY = {"no key": None, "an unknown key": "nobody"}
OWN_REFUSALS = {"POST /v1/retrievers/{slug}/try"}
"""Operations that need a further scope for a part of what their bodies may say."""


@pytest.mark.parametrize("who", [*NOBODY, *Scope])
def test_everybody_is_answered_as_described_and_refused_as_the_scope_says(
    guarded: Guarded, tmp_path: Path, who: str
) -> None:
    key = guarded.keys.get(who, NOBODY.get(who))
    header = () if key is None else ("--header", f"Authorization: Bearer {key}")
    answers: Answers = set()
    few = ("--phases", "fuzzing", "--max-examples", "1")
    found = ask(guarded.service, tmp_path, guarded.parameters, *header, *few, answers=answers)
    assert found.failures == [], found.text[-6000:]
    needed = scopes_of(guarded.service)
    assert {operation for operation, _ in answers} == needed.keys(), "not asked"
    for operation, status in sorted(answers):
        scopes = needed[operation]
        if scopes and not (who in guarded.keys and any(Scope(who).includes(scope) for scope in scopes)):
            assert status == (403 if who in guarded.keys else 401), (operation, status)
        elif operation not in OWN_REFUSALS:
            assert status not in {401, 403}, (operation, status)


def scopes_of(service: Api) -> dict[str, tuple[Scope, ...]]:
    """Say which scopes open each operation, any of several; none = it asks for no key. `test_auth` tries them."""
    found: dict[str, tuple[Scope, ...]] = {}
    for route in iter_route_contexts(app_of(service).routes):
        for method in (route.methods or set()) - {"HEAD"}:
            default = (Scope.READ if method == "GET" else Scope.WRITE,)
            scopes = getattr(route.endpoint, "needs_scope", default)
            found[f"{method} {route.path}"] = () if route.path in EXEMPT else scopes
    described = operations_of(service, "get", "post", "put", "delete")
    return {operation: found[operation] for operation in described}
