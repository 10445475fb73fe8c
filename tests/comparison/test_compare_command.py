"""`coalmine compare`: the same verdict as the API gives, its exit codes, and its formats."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.base.values import Outcome
from app.cli import app
from tests.support.api_service import CHECK, Api, api
from tests.support.html_pages import Page
from tests.support.http_servers import Seen, peer, reply

KEYS = [f"q{number:02}" for number in range(24)]
HOSTILE = "\x1b[31mv1\u202e|<b>"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Give a service with a check and a candidate that lost a third of the canaries, and won none."""
    with api(tmp_path_factory.mktemp("compared")) as opened:
        opened.docs(canaries=[{"key": key, "query": f"ask {key}", "expected_chunks": ["c1"]} for key in KEYS])
        opened.put("/v1/checks/candidate", {**CHECK, "hooks": []})
        opened.run()
        opened.retriever.found = {f"ask {key}": ["c9"] for key in KEYS[:8]}
        opened.retriever.index_version = HOSTILE
        opened.run("candidate")
        yield opened


def compare(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def folder(service: Api) -> Path:
    return service.service.settings.data_dir


def test_a_worse_candidate_ends_with_1_and_a_better_one_with_0(service: Api) -> None:
    worse = compare("check:docs", "check:candidate", "--data-dir", folder(service))
    assert worse.exit_code == 1, worse.stderr
    assert worse.stdout.startswith("B scores worse than A: NDCG@10 down 0.333 (95 % between -0.")
    better = compare("check:candidate", "check:docs", "--data-dir", folder(service))
    assert (better.exit_code, better.stdout.startswith("B scores better than A")) == (0, True)
    same = compare("run:1", "check:docs", "--data-dir", folder(service))
    assert (same.exit_code, same.stdout.startswith("No difference shown between A and B")) == (0, True)


def test_the_table_shows_what_the_verdict_rests_on(service: Api) -> None:
    shown = compare("check:docs", "check:candidate", "--data-dir", folder(service)).stdout
    lines = [line.strip() for line in shown.splitlines()]
    rows = {line.split()[0]: line.split() for line in lines if line.split()}
    assert "The runs are of different checks, docs and candidate." in lines
    assert rows["coverage"][1:4] == ["1.000", "0.667", "-0.333"]
    assert rows["coverage"][-3:] == ["A", "is", "better"]
    assert rows["q00"] == ["q00", "ask", "q00", "1.000", "0.000", "-1.000", "1", "not", "found"]
    assert "A is better by NDCG@10: 8" in lines
    assert not [line for line in lines if line.startswith("B is better")]


def test_json_is_what_the_api_says(service: Api) -> None:
    told = compare("check:docs", "check:candidate", "--format", "json", "--data-dir", folder(service))
    assert told.exit_code == 1
    shown = json.loads(told.stdout)
    assert shown == service.get("/v1/compare", a="check:docs", b="check:candidate", limit=500)
    assert len(shown["items"]) == len(KEYS)


def test_a_service_gives_the_same_as_its_database(service: Api) -> None:
    def forward(seen: Seen) -> Any:
        answer = service.client.get(seen.target)
        return reply(answer.content, answer.status_code)

    cases: list[str] = ["table", "json", "markdown"]
    for form in cases:
        with peer(forward) as server:
            far = compare("check:docs", "check:candidate", "--format", form, "--server", server.url)
        near = compare("check:docs", "check:candidate", "--format", form, "--data-dir", folder(service))
        assert (far.exit_code, far.stdout) == (near.exit_code, near.stdout)


def test_markdown_shows_texts_of_others_literally(service: Api) -> None:
    text = compare("check:docs", "check:candidate", "--format", "markdown", "--data-dir", folder(service)).stdout
    assert text.startswith("# B scores worse than A: NDCG@10 down 0.333")
    assert "## A is better by NDCG@10: 8" in text
    assert "`[31mv1\\|<b>`" in text
    assert not {"\x1b", "\u202e"} & set(text)
    assert [line for line in text.splitlines() if "<b>" in line and "`" not in line] == []


def test_a_candidate_that_returns_forbidden_chunks_ends_with_1(tmp_path: Path) -> None:
    with api(tmp_path) as opened:
        asked = [{"key": key, "query": f"ask {key}", "expected_chunks": ["c1"]} for key in KEYS]
        secret = {"key": "pay", "query": "who earns what", "category": "negative", "forbidden_chunks": ["payroll"]}
        opened.docs(canaries=[*asked, secret])
        opened.put("/v1/checks/candidate", {**CHECK, "hooks": []})
        opened.retriever.found = {f"ask {key}": ["c9"] for key in KEYS[:8]}
        opened.run()
        opened.retriever.found = {"who earns what": ["payroll"]}
        opened.run("candidate")
        told = compare("check:docs", "check:candidate", "--data-dir", folder(opened))
    assert told.exit_code == 1
    assert told.stdout.startswith("A trade from A to B: NDCG@10 up 0.333")
    assert "B returns forbidden chunks for 1 canary for which A does not: pay." in told.stdout
    [row] = [line for line in told.stdout.splitlines() if line.strip().startswith("forbidden chunks")]
    assert row.split()[2:5] == ["1", "0", "1"]
    assert row.strip().endswith("more in B")


def test_what_cannot_be_compared_ends_with_2(service: Api) -> None:
    cases: list[tuple[tuple[str, str], str]] = [
        (("check:docs", "docs"), "must be run:ID, check:SLUG or retriever:SLUG"),
        (("check:docs", "check:nobody"), "there is no check 'nobody'"),
        (("run:77", "check:docs"), "there is no run '77'"),
    ]
    for arguments, why in cases:
        result = compare(*arguments, "--data-dir", folder(service))
        assert (result.exit_code, result.stdout) == (2, "")
        assert why in result.stderr


def test_a_candidate_that_answers_nothing_ends_with_2(service: Api) -> None:
    service.put("/v1/checks/dead", {**CHECK, "hooks": []})
    service.retriever.outcomes = {f"ask {key}": Outcome.UNREACHABLE for key in KEYS}
    service.run("dead")
    service.retriever.outcomes = {}
    found = compare("check:docs", "check:dead", "--data-dir", folder(service))
    assert (found.exit_code, found.stdout.startswith("Nothing to compare between A and B")) == (2, True)


def test_too_few_canaries_to_tell_end_with_2(tmp_path: Path) -> None:
    with api(tmp_path) as opened:
        opened.docs(canaries=[{"key": key, "query": f"ask {key}", "expected_chunks": ["c1"]} for key in KEYS[:8]])
        opened.put("/v1/checks/candidate", {**CHECK, "hooks": []})
        opened.run()
        opened.run("candidate")
        told = compare("check:docs", "check:candidate", "--data-dir", folder(opened))
    assert (told.exit_code, told.stdout.startswith("Too few canaries to tell: 8 can be compared")) == (2, True)


@pytest.mark.parametrize(
    ("unanswered", "lost", "code"), [(KEYS[:1], [], 0), (KEYS[::3], [], 2), (KEYS[14::3], KEYS[:12], 1)]
)
def test_a_side_that_left_more_than_a_tenth_unanswered_ends_with_2_unless_it_is_worse_and_is_said_so(
    tmp_path: Path, unanswered: list[str], lost: list[str], code: int
) -> None:
    with api(tmp_path) as opened:
        opened.docs(canaries=[{"key": key, "query": f"ask {key}", "expected_chunks": ["c1"]} for key in KEYS])
        opened.put("/v1/checks/ill", {**CHECK, "hooks": []})
        opened.run()
        opened.retriever.outcomes = {f"ask {key}": Outcome.UNREACHABLE for key in unanswered}
        opened.retriever.found = {f"ask {key}": ["c9"] for key in lost}
        opened.run("ill")
        told = compare("check:docs", "check:ill", "--data-dir", folder(opened))
        page = Page(opened.client.get("/compare?a=check:docs&b=check:ill").text).one("main").text
    said = f"; {len(unanswered)} of {len(KEYS)} canaries were not measured in B."
    assert told.exit_code == code
    assert (said in told.stdout.splitlines()[0]) is (len(unanswered) > 1)
    assert (said in " ".join(page.split())) is (len(unanswered) > 1)


def test_a_server_that_is_no_coalmine_is_said_to_be_none() -> None:
    with peer(reply(b"{}")) as server:
        result = compare("run:1", "run:2", "--server", server.url)
    assert result.exit_code == 2
    assert "did not answer as Coalmine does" in result.stderr
