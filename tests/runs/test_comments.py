"""The comment of a pull request: what it says, what cannot become of texts in it, its size, and where it is put."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner, Result

from app.cli import app as cli
from app.comparison.service.decisions import same_expectations
from app.reports.rendering.comments import Compared, comment_markdown
from app.reports.rendering.reports import compare_reports
from tests.support.http_servers import Reply, Seen, peer, reply

EVIL = (
    "@everyone é@octocat <img src=x onerror=alert(1)> [x](https://evil.example) https://evil.example www.evil.example "
    "#1 !2 "
    "a@b.example `` ` | --> </details> :tada: \x1b[31m \u202e /close deadbeef01\n# title\n```"
)


def result(key: str, *, rank: int | None = 1, verdict: str = "healthy", **more: Any) -> dict[str, Any]:
    hit = {"rank": rank, "id": "c", "document": None, "text": None, "score": 0.9, "relevance": 0.9, "level": "id"}
    ranking = [] if rank is None else [{**hit, "judgment": {"id": "c", "grade": 1}, "grade": 1}]
    return {
        "key": key,
        "query": f"Question {key}?",
        "category": "simple_factual",
        "outcome": "ok",
        "verdict": verdict,
        "reasons": [] if verdict == "healthy" else ["missing"],
        "ranking": ranking,
        "missing": [{"id": "c", "grade": 1}] if rank is None else [],
        "k": 5,
        "top_score": 0.9,
        "min_relevance_score": 0.5,
        "any_match": rank is not None,
        "measures": {"R@5": 0.0 if rank is None else 1.0},
        "floors": {},
        "expect_empty": False,
        "http_status": None,
        "detail": None,
        "latency_seconds": 0.1,
        **more,
    }


def report(*results: dict[str, Any], verdict: str = "healthy", reasons: list[str] | None = None) -> dict[str, Any]:
    degraded = sum(one["verdict"] == "degraded" for one in results)
    counts = {"total": len(results), "measured": len(results), "failed": 0, "undefined": 0, "degraded": degraded}
    run = {
        "check": "docs", "suite": "docs", "verdict": verdict, "status": "finished", "reasons": reasons or [],
        "canaries": counts, "coverage": 0.9, "health_score": 0.9, "degraded_share": 0.0, "index_version": None,
        "measures": {}, "finished_at": "2026-11-30T12:00:00Z", "self_judged": False, "measures_version": "1",
        "suite_hash": "s", "config_hash": "c",
    }  # fmt: skip
    digests = {one["key"]: one.pop("digest", "same") for one in results}
    return {"run": run, "results": list(results), "worst": [], "expectations": digests}


def commented(now: dict[str, Any], before: dict[str, Any] | None = None, **limits: int) -> str:
    if before is not None:
        now = {**now, "comparison": compare_reports(before, now)}
    same = None if before is None else same_expectations(before, now["expectations"])
    return comment_markdown([Compared(report=now, before=before, same=same)], **limits)


def lost(key: str, **more: Any) -> dict[str, Any]:
    return result(key, rank=None, verdict="degraded", **more)


# --- what it says --------------------------------------------------------------------------------------------


def test_it_says_what_got_worse_and_better_and_why_with_base_beside_head() -> None:
    before = report(result("a"), lost("b"), result("c", rank=2), result("d"), result("e", rank=3))
    now = report(
        lost("a"), result("b", rank=2), result("c", rank=4), result("d"), result("e"), lost("f"), verdict="degraded"
    )
    text = commented(now, before)
    lines = text.splitlines()
    assert lines[:2] == ["<!-- coalmine: docs -->", "## Degraded: docs"]
    worse, better = text.index("### Worse: 3"), text.index("### Better: 2")
    rows = [line for line in lines if line.startswith("| `")]
    assert rows == [
        "| `a` | `Question a?` | 1 | \N{EN DASH} | no expected chunk in the top 5 |",
        "| `c` | `Question c?` | 2 | 4 | its expected chunk fell |",
        "| `f` | `Question f?` | \N{EN DASH} | \N{EN DASH} | no expected chunk in the top 5 |",
        "| `b` | `Question b?` | \N{EN DASH} | 2 | was degraded: no expected chunk in the top 5 |",
        "| `e` | `Question e?` | 3 | 1 | its expected chunk rose |",
    ]
    assert worse < better
    # A column is a canary, in the order of head; behind them those that only the base has.
    start = lines.index("```")
    assert lines[start + 1 : start + 3] == [
        "simple factual       base ▇▁▅▇▅",
        "                     head ▁▅▅▇▇▁",
    ]


def test_without_a_saved_report_it_lists_what_is_degraded() -> None:
    text = commented(report(result("a"), lost("b"), verdict="degraded", reasons=["coverage 0.5 is below 0.9"]))
    assert "- coverage 0.5 is below 0.9\n" in text
    assert "### Degraded: 1" in text
    assert "| `b` | `Question b?` | \N{EN DASH} | no expected chunk in the top 5 |" in text
    assert "base" not in text


def test_canaries_that_expect_something_else_are_counted_and_not_compared() -> None:
    before = report(result("a", digest="old"), result("b"))
    text = commented(report(lost("a", digest="new"), result("b")), before)
    assert "Worse" not in text
    assert "1 canary asks or expects something else than in the baseline, and is not compared." in text


def test_what_was_not_measured_is_neither_worse_nor_better() -> None:
    failed = result("a", rank=None, verdict="unknown", outcome="timeout", detail="no answer within 10 s")
    text = commented(report(failed, verdict="unknown"), report(lost("a")))
    assert "### Worse" not in text
    assert "### Better" not in text
    assert "head ·" in text


# --- texts of others -----------------------------------------------------------------------------------------


def test_no_text_of_others_becomes_markup_a_mention_a_reference_or_a_link() -> None:
    hostile = lost(f"k {EVIL}", query=EVIL)
    before = report(result(f"k {EVIL}", query=EVIL))
    text = commented(report(hostile, verdict="degraded", reasons=[EVIL]), before)
    assert not {"\x1b", "\u202e"} & set(text)
    parsed = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [token for one in parsed if one.type == "inline" for token in one.children or ()]
    assert {token.type for token in inline} <= {"text", "code_inline", "softbreak"}
    assert [one.content for one in parsed if one.type == "html_block"] == ["<!-- coalmine: docs -->\n"]
    # GitHub and GitLab look for these in what is left when code is taken out, whatever was escaped.
    loose = " ".join(token.content for token in inline if token.type == "text")
    for sign in (
        "@everyone",
        "@octocat",
        "://",
        "www.",
        "#1",
        "!2",
        "a@b",
        ":tada:",
        "/close",
        "deadbeef01",
        "onerror",
    ):
        assert sign not in loose
    assert [one.content for one in parsed if one.type == "heading_open" and one.tag == "h1"] == []


def test_a_name_of_a_check_cannot_end_the_line_by_which_its_comment_is_found() -> None:
    now = report(result("a"))
    now["run"]["check"] = "docs --> @all"
    assert commented(now).splitlines()[0] == "<!-- coalmine: docs--all -->"


# --- its size ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [10, 400, 5_000, 20_000])
def test_it_is_never_larger_than_github_takes_and_says_what_it_leaves_out(count: int) -> None:
    query = "\U0001f600" * 100
    before = report(*(result(f"key-{number}", query=query) for number in range(count)))
    text = commented(report(*(lost(f"key-{number}", query=query) for number in range(count))), before)
    assert len(text.encode("utf-16-le")) // 2 <= 65_536
    assert f"### Worse: {count:,}" in text
    shown = len(re.findall(r"(?m)^\| `key-", text))
    assert shown == count or f"... and {count - shown:,} more canaries." in text
    assert text.count("```") in {0, 2}
    assert ("### Heat map" in text) == (count <= 5_000)


def test_many_reports_share_the_room() -> None:
    results = [lost(f"k{number}", query="q" * 100) for number in range(2_000)]
    many = [Compared(report=report(*results))] * 20
    assert len(comment_markdown(many)) <= 65_536


# --- where it is put -----------------------------------------------------------------------------------------


class Hub:
    """GitHub's and GitLab's comments."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = [{"id": number, "body": "Looks good"} for number in range(150)]
        self.refuses = False

    def __call__(self, seen: Seen) -> Reply:
        """Answer a request."""
        if self.refuses:
            return reply(b'{"message": "Resource not accessible by integration"}', status=403)
        path, _, query = seen.target.partition("?")
        if path == "/api/v4/user":
            return reply(json.dumps({"id": 7}).encode())
        if seen.method == "GET":
            page = int(re.findall(r"[&?]page=(\d+)", f"?{query}")[0])
            return reply(json.dumps(self.comments[(page - 1) * 100 : page * 100]).encode())
        body = json.loads(seen.body)["body"]
        if seen.method == "POST":
            mine = {"user": {"type": "Bot"}, "author": {"id": 7}}  # as GitHub and as GitLab say whose it is
            self.comments.append({"id": len(self.comments), "body": body, **mine})
            return reply(b"{}", status=201)
        self.comments[int(path.rpartition("/")[2])]["body"] = body
        return reply(b"{}")


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def github(hub: Hub, tmp_path: Path) -> Iterator[dict[str, str]]:
    event = tmp_path / "event.json"
    event.write_text('{"pull_request": {"number": 7}}')
    with peer(hub) as server:
        yield {
            "GITHUB_API_URL": server.url, "GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_PATH": str(event),
            "GITHUB_REF": "refs/heads/main", "GITHUB_TOKEN": "ghs_secret", "CI_MERGE_REQUEST_IID": "",
        }  # fmt: skip


def put(file: Path, text: str, environment: dict[str, str]) -> Result:
    file.write_text(text)
    return CliRunner().invoke(cli, ["comment", str(file)], env=environment)


def test_a_comment_is_made_once_and_then_renewed(hub: Hub, github: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "comment.md"
    first = put(file, "<!-- coalmine: docs -->\nfirst\n", github)
    other = put(file, "<!-- coalmine: wiki -->\nother\n", github)
    second = put(file, "<!-- coalmine: docs -->\nsecond\n", github)
    assert [one.stderr for one in (first, other, second)] == [
        "The comment was written.\n",
        "The comment was written.\n",
        "The comment was renewed.\n",
    ]
    assert [one["body"].splitlines()[1] for one in hub.comments[150:]] == ["second", "other"]


def test_a_merge_request_of_gitlab_gets_it_as_a_note(hub: Hub, tmp_path: Path) -> None:
    with peer(hub) as server:
        environment = {
            "CI_API_V4_URL": f"{server.url}/api/v4", "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "3",
            "GITLAB_TOKEN": "glpat-secret", "GITHUB_REPOSITORY": "",
        }  # fmt: skip
        for text in ("first", "second"):
            assert put(tmp_path / "comment.md", f"<!-- coalmine: docs -->\n{text}\n", environment).exit_code == 0
        sent = [(seen.method, seen.target.partition("?")[0]) for seen in server.seen if seen.method != "GET"]
        assert {seen.headers["private-token"] for seen in server.seen} == {"glpat-secret"}
    notes = "/api/v4/projects/5/merge_requests/3/notes"
    assert sent == [("POST", notes), ("PUT", f"{notes}/150")]


def test_a_note_of_somebody_else_with_the_marker_is_left_alone(hub: Hub, tmp_path: Path) -> None:
    hub.comments.append({"id": 150, "body": "<!-- coalmine: docs -->\nall is well", "author": {"id": 8}})
    with peer(hub) as server:
        environment = {
            "CI_API_V4_URL": f"{server.url}/api/v4", "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "3",
            "GITLAB_TOKEN": "glpat-secret", "GITHUB_REPOSITORY": "",
        }  # fmt: skip
        assert put(tmp_path / "comment.md", "<!-- coalmine: docs -->\nworse\n", environment).exit_code == 0
    assert [one["body"].splitlines()[1] for one in hub.comments[150:]] == ["all is well", "worse"]


def test_a_refusal_is_told_without_the_token_and_a_job_without_a_pull_request_is_left_alone(
    hub: Hub, github: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "comment.md"
    hub.refuses = True
    refused = put(file, "<!-- coalmine: docs -->\n", github)
    assert refused.exit_code == 2
    assert "answered 403" in refused.stderr
    assert "ghs_secret" not in refused.output
    assert "GITHUB_TOKEN is not set" in put(file, "<!-- coalmine: docs -->\n", {**github, "GITHUB_TOKEN": ""}).stderr
    alone = put(file, "<!-- coalmine: docs -->\n", {**github, "GITHUB_EVENT_PATH": ""})
    assert (alone.exit_code, alone.stderr) == (0, "This job has no pull request; nothing to comment on.\n")
    assert "is no comment of" in put(file, "# Anything\n", github).stderr
    merge = put(
        file, "<!-- coalmine: docs -->\n", {**github, "GITHUB_EVENT_PATH": "", "GITHUB_REF": "refs/pull/7/merge"}
    )
    assert "/repos/o/r/issues/7/comments answered 403" in merge.stderr
