"""`coalmine traffic` and `coalmine suggest`: into a database or a service, with the same outcome."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.annotation import commands as corpora
from app.base import terminal
from app.cli import app
from app.traffic import commands as command
from tests.support.api_service import Api, api
from tests.support.http_servers import Seen, peer, reply
from tests.support.processes import ROOT

QUERIES = {"fees monthly": 60, "<script>alert(1)</script>": 25, "=cmd()": 10, "\x1b[31mred": 5}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with a suite and a retriever."""
    with api(tmp_path / "data") as opened:
        opened.docs()
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Give a file of traffic."""
    lines = [
        {"query": query, "count": count, "at": f"2026-0{1 + count % 2}-01T00:00:00Z"}
        for query, count in QUERIES.items()
    ]
    path = tmp_path / "queries.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in [*lines, {"query": "fees  MONTHLY", "at": 1.7e9}]))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments), "--suite", "docs", "--retriever", "search"])


def folder(service: Api) -> Path:
    return service.service.settings.data_dir


def forward(service: Api) -> Any:
    """Return a handler that hands requests to the service."""

    def handle(seen: Seen) -> Any:
        answer = service.client.request(seen.method, seen.target, content=seen.body, headers=_passed_on(seen))
        return reply(answer.content, answer.status_code)

    return handle


def _passed_on(seen: Seen) -> dict[str, str]:
    return {name: seen.headers[name] for name in ("content-type", "idempotency-key") if name in seen.headers}


def test_a_file_is_added_all_at_once(service: Api, file: Path) -> None:
    sent = run("traffic", file, "--data-dir", folder(service))
    assert (sent.exit_code, sent.stdout) == (0, "4 distinct queries read, 4 of them new\n"), sent.output
    (shown,) = service.get("/v1/suites/docs/traffic")["items"]
    assert (shown["distinct"], shown["traffic"]) == (4, 101)


def test_a_service_gets_the_same_in_parts(service: Api, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_PART", 2)
    with peer(forward(service)) as server:
        sent = run("traffic", file, "--server", server.url)
    assert (sent.exit_code, sent.stdout) == (0, "4 distinct queries read, 4 of them new\n"), sent.output
    (far,) = service.get("/v1/suites/docs/traffic")["items"]
    service.client.delete("/v1/suites/docs/traffic")
    run("traffic", file, "--data-dir", folder(service))
    (near,) = service.get("/v1/suites/docs/traffic")["items"]
    assert far == near


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_file_that_breaks_off_and_is_sent_again_counts_once(
    service: Api, file: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr(command, "_PART", 3)
    handle, whole = forward(service), iter([True])

    def breaks(seen: Seen) -> Any:
        if next(whole, False):
            return handle(seen)
        if lost == "answer":
            handle(seen)
        return reply(b"", 503)

    with peer(breaks) as server:
        sent = run("traffic", file, "--server", server.url)
    assert sent.exit_code == 2
    hint = "1 of 3 parts arrived. Send the same file again within a day: they are not counted twice."
    assert hint in " ".join(sent.stderr.split())
    with peer(handle) as server:
        again = run("traffic", file, "--server", server.url)
    assert (again.exit_code, again.stdout) == (0, "4 distinct queries read, 4 of them new\n"), again.output
    before = {"request": "", "answer": "2 parts: "}[lost]
    assert f"{before}Received before with the same Idempotency-Key: not counted again." in " ".join(
        again.stderr.split()
    )
    (shown,) = service.get("/v1/suites/docs/traffic")["items"]
    assert (shown["distinct"], shown["traffic"]) == (4, 101)


def test_a_file_with_other_lines_is_another_upload(service: Api, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_PART", 3)
    with peer(forward(service)) as server:
        run("traffic", file, "--server", server.url)
        file.write_text(file.read_text() + '\n{"query": "refunds"}')
        grown = run("traffic", file, "--server", server.url)
    assert (grown.exit_code, grown.stdout, grown.stderr) == (0, "5 distinct queries read, 1 of them new\n", "")
    (shown,) = service.get("/v1/suites/docs/traffic")["items"]
    assert (shown["distinct"], shown["traffic"]) == (5, 203)


@pytest.mark.parametrize("far", [False, True])
def test_an_export_of_a_tracing_tool_is_added_as_it_is(service: Api, *, far: bool) -> None:
    with peer(forward(service)) as server:
        path = ROOT / "tests/traffic/exports/langfuse.json"  # a list on one line
        sent = run("traffic", path, *(("--server", server.url) if far else ("--data-dir", folder(service))))
    assert (sent.exit_code, sent.stdout) == (0, "2 distinct queries read, 2 of them new\n"), sent.output
    assert "2 other spans left out" in sent.stderr


@pytest.mark.parametrize("far", [False, True])
def test_what_is_left_out_is_counted(service: Api, tmp_path: Path, *, far: bool) -> None:
    path = tmp_path / "queries.csv.gz"
    path.write_bytes(gzip.compress(f"query,count\nfees,2\n{'x' * 501},1\n,7\n".encode()))
    with peer(forward(service)) as server:
        sent = run("traffic", path, *(("--server", server.url) if far else ("--data-dir", folder(service))))
    assert (sent.exit_code, sent.stdout) == (0, "1 distinct query read, 1 of them new\n")
    assert "1 query longer than 500 characters left out" in sent.stderr
    assert "1 query without a text left out" in sent.stderr


def test_wrong_lines_end_with_2_and_their_place(service: Api, tmp_path: Path) -> None:
    path = tmp_path / "queries.csv"
    path.write_text("query,count\nfees,2\nrefunds,many\n")
    sent = run("traffic", path, "--data-dir", folder(service))
    assert (sent.exit_code, sent.stdout) == (2, "")
    assert "queries.csv:3: count: 'many' is not a whole number" in " ".join(sent.stderr.split())
    assert service.get("/v1/suites/docs/traffic")["items"] == []


def test_suggestions_are_listed_alike_near_and_far(service: Api) -> None:
    service.retriever.found = {query: [f"x{place}"] for place, query in enumerate(QUERIES)}
    service.reached(*QUERIES)
    near = run("suggest", "--n", 2, "--data-dir", folder(service))
    with peer(forward(service)) as server:
        far = run("suggest", "--n", 2, "--server", server.url)
    assert (near.exit_code, near.stdout) == (far.exit_code, far.stdout)
    assert near.exit_code == 0
    rows = [line for line in near.stdout.splitlines() if "x0" in line or "x1" in line or "x2" in line]
    assert len(rows) == 2
    assert "fees monthly" in rows[0]
    assert "<script>" in rows[1]


def test_a_reach_that_nobody_asked_for_is_an_error(service: Api) -> None:
    result = run("suggest", "--data-dir", folder(service))
    assert result.exit_code == 2
    assert "was not asked for yet" in " ".join(result.stderr.split())


# --- the only one --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [False, True])
def test_the_only_suite_and_retriever_need_no_naming(service: Api, file: Path, *, far: bool) -> None:
    with peer(forward(service)) as server:
        where = ["--server", server.url] if far else ["--data-dir", str(folder(service))]
        sent = CliRunner().invoke(app, ["traffic", str(file), *where])
        assert sent.exit_code == 0, sent.output
        assert "Suite: docs (the only one)\nRetriever: search (the only one)" in sent.stderr
        service.reached(*QUERIES)
        listed = CliRunner().invoke(app, ["suggest", "--n", "30", *where])
        assert listed.exit_code == 0, listed.output
        assert "Retriever with traffic: search (the only one)" in listed.stderr
        service.put("/v1/suites/other", {})
        several = CliRunner().invoke(app, ["traffic", str(file), *where])
        assert several.exit_code == 2
        assert "say which with --suite: docs, other" in several.stderr


@pytest.mark.parametrize("far", [False, True])
def test_a_corpus_is_added_near_and_far(
    service: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, far: bool
) -> None:
    monkeypatch.setattr(corpora, "_PART", 70)
    file = tmp_path / "Hand_book.jsonl"
    file.write_text("".join(json.dumps({"_id": f"d{n}", "text": f"Text {n % 4}."}) + "\n" for n in range(5)))
    with peer(forward(service)) as server:
        where = ["--server", server.url] if far else ["--data-dir", str(folder(service))]
        sent = CliRunner().invoke(app, ["corpus", str(file), *where])
        assert (sent.exit_code, sent.stdout) == (0, "5 texts read: corpus hand-book has 4 distinct\n")
        assert len(server.seen) == (3 if far else 0)
        assert service.get("/v1/corpora/hand-book")["texts"] == 4
        wrong = CliRunner().invoke(app, ["corpus", str(file), "--name", "No name", *where])
        assert wrong.exit_code == 2
        assert "'No name' is no name" in wrong.stderr


def test_progress_is_shown_while_it_uploads(service: Api, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[tuple[int, int]] = []

    @contextmanager
    def counting(name: str) -> Iterator[Callable[[int, int], None]]:
        assert name == "sending queries"
        yield lambda done, total: moves.append((done, total))

    monkeypatch.setattr(command, "_PART", 3)
    monkeypatch.setattr(terminal, "counting", counting)
    with peer(forward(service)) as server:
        assert run("traffic", file, "--server", server.url).exit_code == 0
    assert moves[0] == (0, moves[0][1])
    assert [done for done, _ in moves] == [0, 3, 6, moves[0][1]][: len(moves)]
    assert moves[-1][0] == moves[-1][1]
