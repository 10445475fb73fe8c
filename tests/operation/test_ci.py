"""The GitHub Action, the GitLab job and the pre-commit hook: their steps run in a plain shell, as CI runs them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from app.demo.server import create_demo
from app.runs.client import PullRequest
from tests.support.doc_pages import blocks
from tests.support.http_servers import Reply, Seen, peer, reply
from tests.support.living import serving
from tests.support.present import present
from tests.support.processes import ROOT

ACTION = ROOT / ".github/actions/coalmine/action.yml"
GITLAB = ROOT / "deploy/gitlab/coalmine.gitlab-ci.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
BIN = Path(sys.executable).parent
COALMINE = str(BIN / "coalmine")
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


# --- GitHub --------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Job:
    """What a job of GitHub has done: the outputs of its steps, its summary and its log."""

    folder: Path
    inputs: Mapping[str, str]
    environment: Mapping[str, str]
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    log: str = ""
    failed: bool = False

    def run(self) -> "Job":
        """Run the steps of the action as GitHub does: in order, each in a shell, until one fails."""
        for step in read(ACTION)["runs"]["steps"]:
            if not self.failed and self.evaluate(step.get("if", "true")) == "true":
                self._step(step)
        return self

    def evaluate(self, expression: str) -> str:
        """Evaluate what the action uses of GitHub's expressions."""
        inner = _EXPRESSION.sub(r"\1", expression)
        if inner == "true":
            return inner
        return str(all(self._holds(part) for part in inner.split(" && "))).lower()

    def _holds(self, comparison: str) -> bool:
        found = re.fullmatch(r"(\S+) (==|!=) '([^']*)'", comparison)
        assert found, comparison
        return (self._value(found[1]) == found[3]) == (found[2] == "==")

    def _value(self, name: str) -> str:
        match name.split("."):
            case ["inputs", one]:
                return self.inputs[one]
            case ["steps", step, "outputs", one]:
                return self.outputs.get(step, {}).get(one, "")
            case ["github", "token"]:
                return "ghs_secret"
        raise AssertionError(name)

    def _step(self, step: Mapping[str, Any]) -> None:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input written into a script is run"
        output, summary = self.folder / "output", self.folder / "summary"
        output.write_text("")
        own = {name: _EXPRESSION.sub(lambda one: self._value(one[1]), value) for name, value in step["env"].items()}
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        ran = subprocess.run(  # noqa: S603 - our own script
            ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"], "HOME": str(self.folder), **self.environment, **own,
                "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary),
                "GITHUB_ACTION_PATH": str(ACTION.parent), "RUNNER_TEMP": str(self.folder),
            },
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        self.log += ran.stdout + ran.stderr
        lines = [line.partition("=") for line in output.read_text().splitlines()]
        self.outputs[step.get("id", step["name"])] = {name: value for name, _, value in lines}
        self.failed = ran.returncode != 0

    @property
    def summary(self) -> str:
        """What was written to the summary of the job."""
        file = self.folder / "summary"
        return file.read_text(encoding="utf-8") if file.exists() else ""


class Hub:
    """GitHub's comments on pull request 7."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.author: dict[str, Any] = {"user": {"type": "Bot"}, "author_association": "NONE"}
        self.refuses = False

    def __call__(self, seen: Seen) -> Reply:
        """Answer a request."""
        assert seen.headers["authorization"] == "Bearer ghs_secret"
        if self.refuses:
            return reply(b"{}", status=403)
        if seen.method == "GET":
            return reply(
                json.dumps([{"id": at, "body": body, **self.author} for at, body in enumerate(self.bodies)]).encode()
            )
        body = json.loads(seen.body)["body"]
        if seen.method == "POST":
            assert seen.target == "/repos/o/r/issues/7/comments"
            self.bodies.append(body)
        else:
            self.bodies[int(seen.target.rpartition("/")[2])] = body
        return reply(b"{}")


@dataclass(frozen=True, kw_only=True)
class World:
    """A repository with canaries, a retriever, and GitHub."""

    folder: Path
    retriever: str
    hub: Hub
    github: str

    def job(self, **inputs: str) -> Job:
        """Run the action in a job of a pull request."""
        given = {name: str(one.get("default", "")) for name, one in read(ACTION)["inputs"].items()}
        given |= {"coalmine": COALMINE, "token": "ghs_secret", "url": f"{self.retriever}/search", **inputs}
        environment = {
            "GITHUB_API_URL": self.github, "GITHUB_REPOSITORY": "o/r", "GITHUB_REF": "refs/pull/7/merge",
        }  # fmt: skip
        (self.folder / "summary").unlink(missing_ok=True)
        return Job(folder=self.folder, inputs=given, environment=environment).run()

    def damage(self, kind: str, **more: Any) -> None:
        """Break the retriever, or heal it."""
        httpx2.post(f"{self.retriever}/fault", json={"kind": kind, **more}).raise_for_status()


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    hub = Hub()
    canaries = folder / "canaries"
    canaries.mkdir()
    (canaries / "dataforge.yaml").write_bytes((ROOT / "canaries/dataforge.yaml").read_bytes())
    with serving(create_demo()) as retriever, peer(hub) as github:
        yield World(folder=folder, retriever=retriever, hub=hub, github=github.url)


def test_the_action_gates_compares_and_renews_one_comment(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        first = world.job(baseline="base.json")
        assert not first.failed, first.log
        assert first.outputs["check"]["verdict"] == "healthy"
        assert "::notice::There is no saved report yet" in first.log
        (tmp_path / "coalmine-report.json").rename(tmp_path / "base.json")
        world.damage("loss", size=0.3)
        second = world.job(baseline="base.json")
    assert second.failed
    assert second.log.endswith("::error::Coalmine: degraded\n")
    assert second.outputs["check"] | {"comment": ""} == {
        "verdict": "degraded", "exit-code": "1", "report": "coalmine-report.json", "comment": "",
    }  # fmt: skip
    (comment,) = world.hub.bodies
    assert comment.startswith("<!-- coalmine: dataforge-docs -->\n## Degraded: dataforge-docs\n")
    assert "### Worse: " in comment
    assert second.summary == comment
    assert json.loads((tmp_path / "coalmine-report.json").read_text())["comparison"]["newly_degraded"]
    assert "<failure" in (tmp_path / "coalmine-junit.xml").read_text()


def test_the_action_goes_on_where_it_may_not_comment_or_must_not_fail(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.hub.refuses = True
        refused = world.job()
        assert not refused.failed
        assert "::warning::The comment was not written" in refused.log
        world.hub.refuses = False
        world.damage("loss", size=0.3)
        quiet = world.job(fail="false", comment="false")
        assert (quiet.failed, quiet.outputs["check"]["verdict"], world.hub.bodies) == (False, "degraded", [])


@pytest.mark.parametrize(
    ("inputs", "verdict", "code"),
    [
        ({"url": "http://127.0.0.1:9/"}, "unknown", "3"),
        ({"check": "none-of-this-name"}, "refused", "2"),
        ({"canaries": "nowhere; echo stolen > stolen"}, "refused", "2"),
    ],
)
def test_the_action_fails_where_nothing_was_measured_or_the_input_is_unusable(
    tmp_path: Path, inputs: dict[str, str], verdict: str, code: str
) -> None:
    with opened(tmp_path) as world:
        job = world.job(**inputs)
        bodies = list(world.hub.bodies)
    assert job.failed
    assert (job.outputs["check"]["verdict"], job.outputs["check"]["exit-code"]) == (verdict, code)
    assert bool(bodies) == (verdict == "unknown")
    assert not (tmp_path / "stolen").exists()


def test_the_action_takes_several_paths_and_names_with_spaces(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        (tmp_path / "canaries").rename(tmp_path / "my canaries")
        job = world.job(canaries="my canaries\nmy canaries/dataforge.yaml\n")
    assert not job.failed, job.log


def test_the_action_installs_from_its_own_lock(tmp_path: Path) -> None:
    """With stand-ins for python3 and pip, since no test downloads packages."""
    stand_in = tmp_path / "bin"
    stand_in.mkdir()
    python, log = stand_in / "python3", tmp_path / "pip.log"
    python.write_text(
        '#!/bin/sh\nmkdir -p "$3/bin"\n'
        f'printf \'#!/bin/sh\\necho "$@" >> {log}\\n\' > "$3/bin/pip"\nchmod +x "$3/bin/pip"\n'
    )
    python.chmod(0o755)
    environment = {"PATH": f"{stand_in}:{os.environ['PATH']}"}
    job = Job(folder=tmp_path, inputs={"coalmine": ""}, environment=environment)
    job._step(read(ACTION)["runs"]["steps"][0])
    assert not job.failed, job.log
    assert job.outputs["install"]["coalmine"] == f"{tmp_path}/coalmine/bin/coalmine"
    locked, own = log.read_text().splitlines()
    lock = re.search(r"--require-hashes -r (\S+)", locked)
    assert lock
    assert Path(lock[1]).resolve() == ROOT / "requirements.lock"
    assert Path(own.split()[-1]).resolve() == ROOT


def test_every_input_is_used_and_documented() -> None:
    action = read(ACTION)
    used = set(re.findall(r"inputs\.(\w+)", ACTION.read_text(encoding="utf-8")))
    assert used == set(action["inputs"])
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    assert {name for name in action["inputs"] if f"`{name}`" not in page} == set()
    assert {name for name in action["outputs"] if f"`{name}`" not in page} == set()


# --- GitLab --------------------------------------------------------------------------------------------------


def gitlab_job(folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the job's commands as GitLab's runner does: all of them in one shell that ends at the first failure."""
    job = read(GITLAB)[".coalmine"]
    script = "\n".join([*job["before_script"], *job["script"]])
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), **job["variables"], **variables}
    command = ["/bin/bash", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own script


def test_the_job_of_gitlab_keeps_the_report_of_the_default_branch_and_notes_what_changed(tmp_path: Path) -> None:
    notes: list[str] = []

    def gitlab(seen: Seen) -> Reply:
        if seen.method == "POST":
            assert seen.headers["private-token"] == "glpat-secret"
            notes.append(json.loads(seen.body)["body"])
        return reply(b"[]")

    with opened(tmp_path) as world, peer(gitlab) as api:
        demo = {"DEMO_URL": world.retriever, "CI_DEFAULT_BRANCH": "main"}
        main = gitlab_job(tmp_path, **demo, CI_COMMIT_BRANCH="main")
        assert main.returncode == 0, main.stderr
        assert (tmp_path / "coalmine-baseline.json").exists()
        assert notes == []
        world.damage("loss", size=0.3)
        merge_request = {
            "CI_API_V4_URL": api.url, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "3", "GITLAB_TOKEN": "glpat-secret",
        }  # fmt: skip
        changed = gitlab_job(tmp_path, **demo, **merge_request)
        assert changed.returncode == 1, changed.stderr
    assert "### Worse: " in notes[0]
    paths = read(GITLAB)[".coalmine"]["artifacts"]
    assert all((tmp_path / name).exists() for name in (*paths["paths"], paths["reports"]["junit"]))


# --- pre-commit ----------------------------------------------------------------------------------------------


def test_the_hook_lists_errors_of_canary_files_and_passes_good_ones(tmp_path: Path) -> None:
    (hook,) = read(HOOKS)
    assert {"id", "name", "entry", "language"} <= set(hook)
    assert re.search(hook["files"], "canaries/a.yaml")
    assert hook["pass_filenames"] is False, "what a file refers to stands in another"
    command = [str(BIN / hook["entry"].split()[0]), *hook["entry"].split()[1:], *hook["args"]]
    (tmp_path / "canaries").mkdir()
    file = tmp_path / "canaries/dataforge.yaml"
    file.write_bytes((ROOT / "canaries/dataforge.yaml").read_bytes())
    good = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert good.returncode == 0, good.stderr
    file.write_text(file.read_text().replace("category: simple_factual", "category: simple", 1))
    bad = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert bad.returncode == 2
    assert re.search(r"canaries/dataforge\.yaml:\d+", bad.stderr)


# --- what GitHub and GitLab read -----------------------------------------------------------------------------


def checked(schema: str, file: Path) -> None:
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a development requirement
    assert ran.returncode == 0, ran.stdout


def test_files_are_of_the_published_schemas() -> None:
    checked("github-actions", ACTION)
    checked("gitlab-ci", GITLAB)


def test_examples_of_the_docs_are_of_the_published_schemas_and_use_what_there_is(tmp_path: Path) -> None:
    shown = {block.first.removeprefix("# "): block.text for block in blocks("docs/ci.md") if block.language == "yml"}
    assert len(shown) == 3
    for name, schema in ((".github/workflows/retrieval.yml", "github-workflows"), (".gitlab-ci.yml", "gitlab-ci")):
        file = tmp_path / "example.yml"
        file.write_text(shown[name])
        checked(schema, file)
    steps = yaml.safe_load(shown[".github/workflows/retrieval.yml"])["jobs"]["canaries"]["steps"]
    (ours,) = [step for step in steps if "coalmine/" in step.get("uses", "")]
    assert set(ours["with"]) <= set(read(ACTION)["inputs"])
    assert ours["uses"].partition("@")[0].removeprefix("your-org/coalmine/") == ".github/actions/coalmine"
    job = yaml.safe_load(shown[".gitlab-ci.yml"])
    assert job["include"][0]["file"] == str(GITLAB.relative_to(ROOT))
    assert job["retrieval"]["extends"] in read(GITLAB)
    (repository,) = yaml.safe_load(shown[".pre-commit-config.yaml"])["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == [hook["id"] for hook in read(HOOKS)]


def test_a_comment_of_a_stranger_is_left_alone() -> None:
    job = {"GITHUB_REPOSITORY": "o/r", "GITHUB_REF": "refs/pull/7/merge", "GITHUB_TOKEN": "ghs_secret"}
    with peer(hub := Hub()) as api:
        found = present(PullRequest.of_job({**job, "GITHUB_API_URL": api.url}, "coalmine/test"))
        assert found.put_comment("<!-- coalmine: docs -->", "<!-- coalmine: docs -->\nfirst")
        assert not found.put_comment("<!-- coalmine: docs -->", "<!-- coalmine: docs -->\nsecond")
        hub.author = {"user": {"type": "User"}, "author_association": "CONTRIBUTOR"}
        assert found.put_comment("<!-- coalmine: docs -->", "<!-- coalmine: docs -->\nthird")
        hub.author = {"user": {"type": "User"}, "author_association": "MEMBER"}
        assert not found.put_comment("<!-- coalmine: docs -->", "<!-- coalmine: docs -->\nfourth")
    assert [body.rpartition("\n")[2] for body in hub.bodies] == ["fourth", "third"]
