"""`coalmine try`: what it shows of one query, where it gets it, and how it ends."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.base.documents.fields import parse_document
from app.cli import app as cli
from app.retrievers.client.probe import read_pasted
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.service import trials
from tests.support.http_servers import peer, reply

QUERY = "How long are logs kept?"
PROSE = "Logs are kept for thirty days in the hot tier and for a year in the archive."
HITS = [
    {"id": "a", "score": 0.75, "text": PROSE, "meta": {"source": "logs.md"}},
    {"id": "b", "score": 0.5, "text": "Audit trails stay for a year, whatever happens to the logs.", "meta": {}},
]
ANSWER = {"results": HITS, "took": 3}


def run(*arguments: str) -> tuple[int, str, str]:
    """Run the command; gives its exit code, stdout and stderr."""
    result = CliRunner().invoke(cli, ["try", *arguments])
    return result.exit_code, result.stdout, result.stderr


def served_trial() -> dict[str, Any]:
    """Give what a service says of a retriever whose hits its mapping does not find."""
    document = parse_document(RetrieverDocument, {"slug": "search", "url": "http://127.0.0.1:1"})
    return {**trials.try_answer(read_pasted, document, json.dumps({"data": HITS}), QUERY, k=3)}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    """Write canary files with two retrievers, one of which answers."""
    with peer(reply(json.dumps(ANSWER).encode())) as retriever:
        text = f"""
retrievers:
  - {{slug: good, url: "{retriever.url}", response: {{hits: results, id: id, score: score, text: text}}}}
  - {{slug: wrong, url: "{retriever.url}", response: {{hits: items, id: id}}}}
"""
        (tmp_path / "canaries.yaml").write_text(text)
        yield tmp_path / "canaries.yaml"


def test_command_shows_request_answer_and_hits(files: Path) -> None:
    code, out, _ = run(str(files), "--retriever", "good", QUERY)
    assert code == 0
    assert out.startswith("good: ok, HTTP 200 in ")
    for shown in ("POST http://127.0.0.1", '"took": 3', PROSE[:60], "logs.md"):
        assert shown in out
    assert "Suggestion" not in out


def test_command_says_what_a_distance_counts_as(files: Path) -> None:
    files.write_text(files.read_text().replace("text: text}}", "text: text}, scorer: {scale: distance}}"))
    _, out, _ = run(str(files), "--retriever", "good", QUERY)
    told = "top score 0.571 by score (1 / (1 + distance): at the default minimum of 0.5 a distance up to 1 is relevant)"
    assert out.splitlines()[0].endswith(told)


def test_command_suggests_what_can_be_pasted(files: Path) -> None:
    code, out, _ = run(str(files), "--retriever", "wrong", QUERY)
    assert code == 3
    assert "items: missing" in out
    pasted = out[out.index("# hits:") :]
    assert "  response:\n    hits: results\n    id: id\n" in pasted


def test_command_writes_json(files: Path) -> None:
    code, out, _ = run(str(files), "--retriever", "good", "--k", "1", "--suggest", "--format", "json", QUERY)
    trial = json.loads(out)
    assert code == 0
    assert [hit["id"] for hit in trial["hits"]] == ["a"]
    assert trial["suggestions"][0]["response"]["hits"] == "results"


def test_command_reads_an_answer_of_a_file(files: Path, tmp_path: Path) -> None:
    hostile = {"results": [{"id": "\x1b[31mred", "score": 0.5, "text": "\u202eevil\x07 [bold]text[/bold]"}]}
    (tmp_path / "answer.json").write_text(json.dumps(hostile))
    code, out, _ = run(str(files), "--retriever", "good", "--answer", str(tmp_path / "answer.json"), QUERY)
    assert code == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    assert "evil [bold]text[/bold]" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((QUERY,), "name the canary files"),
        (("FILES", QUERY), "the files define 2 retrievers; name one of: good, wrong"),
        (("FILES", "--retriever", "goood", QUERY), "the files define no retriever 'goood'; did you mean 'good'?"),
        (("FILES", "--server", "http://127.0.0.1:1", QUERY), "leave out the files"),
        (("--server", "http://127.0.0.1:1", QUERY), "say which retriever"),
    ],
)
def test_command_says_what_is_missing(files: Path, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run(*(str(files) if one == "FILES" else one for one in arguments))
    assert (code, out) == (2, "")
    assert said in err


def test_command_tries_a_retriever_of_a_service() -> None:
    trial = served_trial()
    with peer(reply(json.dumps(trial).encode())) as server:
        code, out, _ = run("--server", server.url, "--retriever", "search", "--k", "3", QUERY)
        assert server.seen[0].target == "/v1/retrievers/search/try"
        assert json.loads(server.seen[0].body) == {"query": QUERY, "k": 3, "suggest": False}
    assert code == 3
    assert "hits: data" in out


def test_a_hostile_service_moves_no_cursor_and_paints_nothing() -> None:
    trial = served_trial()
    evil = "\x1b[2J\x9b31m\u202e\x7fevil"
    trial |= {"retriever": evil, "outcome": evil, "detail": evil, "unscored": evil, "index_version": evil}
    trial["remarks"] = [evil]
    trial["response"]["body"] = evil
    (suggested,) = trial["suggestions"]
    suggested |= {"reasons": {evil: evil}, "yaml": f"response:\n  hits: a  b\n  {evil}\n"}
    ok = {**trial, "outcome": "ok", "hits": [{**dict.fromkeys(("id", "document", "updated", "text"), evil), "rank": 1}]}
    ok["hits"][0] |= {"score": 0.5, "relevance": None}
    ok |= {"returned": 1, "top_score": 0.5, "scorer": {"kind": evil}}
    for answer in (trial, ok):
        with peer(reply(json.dumps(answer).encode())) as server:
            for form in ("text", "json"):
                _, out, _ = run("--server", server.url, "--retriever", "search", "--format", form, QUERY)
                assert "evil" in out
                assert not {"\x1b", "\x9b", "\u202e", "\x7f"} & set(out)
                if form == "json":
                    assert json.loads(out) == answer
                else:
                    assert "\n    hits: a  b\n" in out


@pytest.mark.parametrize(
    "wrong",
    [
        {"latency_seconds": "soon"},
        {"latency_seconds": 10**400},
        {"http_status": [200]},
        {"outcome": None},
        {"hits": {"id": "a"}},
        {"hits": [{"id": "a"}]},
        {"request": "GET /"},
        {"response": {"status": "200", "body": "", "bytes": 0}},
        {"suggestions": [{"yaml": 5, "hits": 1, "reasons": {}}]},
        {"remarks": "none"},
        {"top_score": "high", "outcome": "ok"},
        [],
    ],
)
def test_a_service_that_answers_otherwise_than_coalmine_does_is_told_so(wrong: Any) -> None:
    trial = served_trial()
    with peer(reply(json.dumps({**trial, **wrong} if wrong else wrong).encode())) as server:
        code, out, err = run("--server", server.url, "--retriever", "search", QUERY)
    assert (code, out) == (2, "")
    assert "did not answer as Coalmine does" in err


def test_a_service_of_a_release_before_is_understood() -> None:
    trial = served_trial()
    del trial["remarks"]
    with peer(reply(json.dumps(trial).encode())) as server:
        code, out, _ = run("--server", server.url, "--retriever", "search", QUERY)
    assert code == 3
    assert "hits: data" in out


def test_command_needs_only_the_retriever_of_the_files(tmp_path: Path) -> None:
    with peer(reply(json.dumps(ANSWER).encode())) as retriever:
        (tmp_path / "canaries.yaml").write_text(f"""
suite: s
canaries:
  - {{key: a, query: q, expected_chunks: [{{text: Logs are kept for thirty days.}}], max_age: 2d}}
  - {{query: without a key}}
retrievers:
  - {{slug: r, url: "{retriever.url}", response: {{hits: results, id: id, index_version: took}}}}
checks:
  - {{slug: c, suite: s, retriever: r, schedule: {{every: 5m}}, hooks: [none]}}
hooks:
  - {{slug: ops, kind: webhook, url: "${{NOT_SET_ANYWHERE}}", secret_file: /not/there}}
""")
        code, out, err = run(str(tmp_path / "canaries.yaml"), QUERY)
    assert (code, err) == (0, "")
    assert "2 hits" in out
    assert "  index version 3\n" in out


def test_what_is_wrong_with_a_retriever_itself_is_still_told(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('retrievers:\n  - {slug: r, url: "${NOT_SET_ANYWHERE}"}\n')
    code, _, err = run(str(tmp_path / "a.yaml"), QUERY)
    assert code == 2
    assert "a.yaml:2: the variable NOT_SET_ANYWHERE is not set" in err
    (tmp_path / "a.yaml").write_text("suite: s\ncanaries: []\n")
    code, _, err = run(str(tmp_path / "a.yaml"), QUERY)
    assert code == 2
    assert "the files define no retriever" in err


def test_a_text_that_no_hit_has_is_told_and_the_right_path_suggested(tmp_path: Path) -> None:
    with peer(reply(json.dumps(ANSWER).encode())) as retriever:
        text = f'retrievers: [{{slug: r, url: "{retriever.url}", response: {{hits: results, id: id, text: body}}}}]'
        (tmp_path / "a.yaml").write_text(text)
        code, out, _ = run(str(tmp_path / "a.yaml"), QUERY)
    assert code == 0
    assert "  mapped `text: body` was found in 0 of 2 hits\n" in out
    assert "\n    text: text\n" in out


def test_a_redirect_is_shown_with_where_it_points_but_without_secrets(tmp_path: Path) -> None:
    secret = "a-token-that-nobody-may-see"
    answer = reply(b"", status=307, headers={"location": f"/elsewhere?key={secret}"})
    with peer(answer) as retriever:
        text = f'retrievers: [{{slug: r, url: "{retriever.url}", auth: {{kind: bearer, token: {secret}}}}}]'
        (tmp_path / "a.yaml").write_text(text)
        code, out, _ = run(str(tmp_path / "a.yaml"), QUERY)
    assert code == 3
    assert "answered 307 Temporary Redirect; redirects to http://127.0.0.1:" in out
    assert "  it points to /elsewhere?key=•••\n" in out
    assert secret not in out


def test_command_says_so_where_no_text_was_recognised(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        'retrievers: [{slug: r, url: "http://127.0.0.1:1", response: {hits: items, id: id}}]'
    )
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"results": [{"id": "a", "score": 0.5}, {"id": "b", "score": 0.25}]}))
    _, out, _ = run(str(tmp_path / "c.yaml"), "--answer", str(answer), QUERY)
    assert "# text: no text was recognised; write its path" in out
    answer.write_text(json.dumps(ANSWER))
    _, out, _ = run(str(tmp_path / "c.yaml"), "--answer", str(answer), QUERY)
    assert "Suggestion 1" in out
    assert "no text was recognised" not in out
    assert "no id was recognised" not in out
    answer.write_text(json.dumps({"results": [{"text": hit["text"], "lang": "en"} for hit in HITS]}))
    _, out, _ = run(str(tmp_path / "c.yaml"), "--answer", str(answer), QUERY)
    assert "# id: no id was recognised; write its path" in out
