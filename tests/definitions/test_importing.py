"""Importing and exporting suites as a user does: by command, over the API, large ones, and runs of other tools."""

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from app.catalog.exchange import FORMATS
from app.cli import app
from app.records.views import why_degraded
from tests.support.api_service import api
from tests.support.http_servers import peer, reply


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def trec(tmp_path: Path) -> Path:
    folder = tmp_path / "legal"
    folder.mkdir()
    (folder / "topics.tsv").write_text("1\thow long is data kept\n2\twho may export it\n", encoding="utf-8")
    (folder / "qrels.txt.gz").write_bytes(gzip.compress(b"1 0 retention 2\n1 0 backup 0\n2 0 export 1\n"))
    return folder


def test_a_folder_of_trec_files_becomes_a_canary_file_that_validates(trec: Path, tmp_path: Path) -> None:
    target = tmp_path / "legal.yaml"
    result = run("import", "--from", "trec", trec, "--to", target)
    assert result.exit_code == 0, result.output
    assert "Suite legal: 2 canaries, 3 judgments." in result.stderr
    written = yaml.safe_load(target.read_text(encoding="utf-8"))
    assert written["suite"] == "legal"
    assert written["canaries"][0]["expected_chunks"] == [{"id": "retention", "grade": 2}, {"id": "backup", "grade": 0}]
    assert run("validate", target).exit_code == 0
    again = run("import", "--from", "trec", trec, "--to", target)
    assert (again.exit_code, "is there already" in again.stderr) == (2, True)


def test_an_imported_suite_is_in_force_and_comes_out_in_every_format(trec: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    result = run("import", "--from", "trec", trec, "--data-dir", data)
    assert result.exit_code == 0, result.output
    assert "2 created" in result.stdout or "3 created" in result.stdout
    for form in ("trec", "beir", "csv", "quepid", "rre", "jsonl"):
        folder = tmp_path / form
        assert run("export", "--to", form, folder, "--data-dir", data).exit_code == 0
        back = run("import", "--from", form, folder, "--suite", "again", "--to", "-")
        assert back.exit_code == 0, back.output
        assert len(yaml.safe_load(back.stdout)["canaries"]) == 2


def test_a_broken_line_stops_the_import_and_leaves_no_suite(trec: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    run("import", "--from", "trec", trec, "--data-dir", data)
    (trec / "more.qrels").write_text("1 0 a 1\n1 0 b one\n", encoding="utf-8")
    result = run("import", "--from", "trec", trec, "--suite", "second", "--data-dir", data)
    assert result.exit_code == 2
    assert f"{trec / 'more.qrels'}:2: the grade 'one' is not a number" in result.stderr
    assert "second" not in run("export", "--data-dir", data).stdout


def test_a_file_that_is_not_utf_8_is_refused_with_a_command_that_converts_it(tmp_path: Path) -> None:
    (tmp_path / "my s.csv").write_bytes("query,id\nWo ist München?,a\n".encode("cp1252"))
    result = run("import", "--from", "csv", tmp_path / "my s.csv", "--to", "-")
    assert result.exit_code == 2
    assert "is not UTF-8 text; in Excel save it as CSV UTF-8, or convert it: iconv -f WINDOWS-1252" in result.stderr
    command = result.stderr.split("convert it: ")[1].split("utf-8.txt")[0] + "utf-8.txt"
    subprocess.run(" ".join(command.split()), shell=True, check=True, cwd=tmp_path)  # noqa: S602 - as it is advised
    converted = run("import", "--from", "csv", tmp_path / "utf-8.txt", "--suite", "s", "--to", "-")
    assert "Wo ist München?" in yaml.safe_load(converted.stdout)["canaries"][0]["query"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_unicode_text_of_excel_is_read(encoding: str, ending: str, tmp_path: Path) -> None:
    text = f"query\tchunk_id{ending}Wo ist München?\tzahl{ending}"
    (tmp_path / "s.txt").write_bytes(text.encode(encoding))
    result = run("import", "--from", "csv", tmp_path / "s.txt", "--to", "-")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout)["canaries"][0]["query"] == "Wo ist München?"


def test_an_import_that_leaves_out_canaries_of_its_suite_says_that_they_are_archived(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"key,query,id\n{name},what is {name}?,{name}\n", encoding="utf-8")
    note = "1 canary of the suite not in these files: archived, as an import replaces all canaries of its suite"
    run("import", "--from", "csv", tmp_path / "a.csv", "--suite", "s", "--data-dir", data)
    second = run("import", "--from", "csv", tmp_path / "b.csv", "--suite", "s", "--data-dir", data)
    assert note in " ".join(second.stderr.split())
    both = run("import", "--from", "csv", tmp_path / "a.csv", tmp_path / "b.csv", "--suite", "s", "--data-dir", data)
    assert "archived" not in both.stderr
    with api(tmp_path / "service") as service:
        texts = {name: (tmp_path / f"{name}.csv").read_text(encoding="utf-8") for name in ("a", "b")}
        for name in ("a", "b"):
            answer = service.client.post("/v1/import?format=csv&suite=s", json={"files": {f"{name}.csv": texts[name]}})
        assert any(one.startswith(note) for one in answer.json()["notes"])


def test_topics_that_a_run_does_not_have_are_counted_aloud(trec: Path, tmp_path: Path) -> None:
    suite, ranked = tmp_path / "suite.yaml", tmp_path / "run.trec"
    run("import", "--from", "trec", trec, "--to", suite)
    ranked.write_text("1 Q0 retention 1 9 me\n", encoding="utf-8")
    result = run("check", suite, "--rankings", ranked)
    assert "1 of 2 canaries: not a topic of the run, counted as nothing found" in result.stderr


def test_a_measure_just_below_its_floor_is_shown_with_digits_that_differ() -> None:
    result: dict[str, Any] = {
        "reasons": ["below_floor", "low_relevance"],
        "measures": {"R@5": 2 / 3},
        "floors": {"R@5": 0.667},
        "top_score": 0.79996,
        "min_relevance_score": 0.8,
    }
    assert why_degraded(result) == ["R@5 0.6667 is below its floor 0.667", "relevance 0.79996 is below its minimum 0.8"]


def test_a_hundred_thousand_judgments_are_imported_at_once(tmp_path: Path) -> None:
    queries, each = 1_000, 100
    (tmp_path / "topics").write_text("".join(f"{n}\tquery number {n}\n" for n in range(queries)), encoding="utf-8")
    lines = [f"{n} 0 doc-{n}-{d} {d % 4}\n" for n in range(queries) for d in range(each)]
    (tmp_path / "qrels").write_text("".join(lines), encoding="utf-8")
    files = (tmp_path / "topics", tmp_path / "qrels")
    result = run("import", "--from", "trec", *files, "--suite", "big", "--data-dir", tmp_path / "data")
    assert result.exit_code == 0, result.output[-2000:]
    assert "Suite big: 1,000 canaries, 100,000 judgments." in result.stderr
    exported = run("export", "--to", "trec", tmp_path / "out", "--data-dir", tmp_path / "data")
    assert exported.exit_code == 0
    assert sorted((tmp_path / "out" / "qrels.txt").read_text(encoding="utf-8").splitlines()) == sorted(
        line.strip() for line in lines
    )


def test_a_run_of_another_tool_is_judged_without_asking_anybody(trec: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    run("import", "--from", "trec", trec, "--to", suite)
    ranked = tmp_path / "run.trec"
    ranked.write_text("1 Q0 other 1 9 me\n1 Q0 retention 2 8 me\n2 Q0 export 1 5 me\n", encoding="utf-8")
    result = run("check", suite, "--rankings", ranked, "--format", "json")
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    assert report["run"]["coverage"] == 1.0
    assert report["run"]["measures"]["MRR"] == 0.75
    silent = tmp_path / "silent.trec"
    silent.write_text("1 Q0 retention 1 9 me\n", encoding="utf-8")
    degraded = json.loads(run("check", suite, "--rankings", silent, "--format", "json").stdout)
    assert degraded["run"]["coverage"] == 0.5  # a silent topic scores, it never vanishes
    trec_run = run("check", suite, "--rankings", ranked, "--format", "trec")
    topics = [line.split()[:4] for line in trec_run.stdout.splitlines()]
    assert topics == [["1", "Q0", "other", "1"], ["1", "Q0", "retention", "2"], ["2", "Q0", "export", "1"]]


def test_a_command_says_what_a_column_is_and_so_does_the_api(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question,article\nHow?,acct-001\n", encoding="utf-8")
    refused = run("import", "--from", "csv", tmp_path / "q.csv", "--to", "-")
    assert (refused.exit_code, "column article=id" in " ".join(refused.stderr.split())) == (2, True)
    result = run("import", "--from", "csv", tmp_path / "q.csv", "--to", "-", "--column", "article=id")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout)["canaries"][0]["expected_chunks"] == ["acct-001"]
    files = {"files": {"q.csv": "question,article,note\nHow?,acct-001,old\n"}}
    with api(tmp_path / "data") as service:
        path = "/v1/import?format=csv&suite=help&column=article=document&column=note=ignore"
        assert service.client.post(path, json=files).status_code == 200
        stored = service.client.get("/v1/suites/help/canaries").json()["items"]
        assert [one["expected_chunks"][0]["document"] for one in stored] == ["acct-001"]
        other = service.client.post("/v1/import?format=trec&suite=help&column=article=id", json=files)
        assert (other.status_code, other.json()["errors"][0]["path"]) == (422, "column")


MIXED = """
suite: mixed
canaries:
  - {key: by-id, query: a, expected_chunks: [c1]}
  - {key: by-text, query: b, expected_chunks: [{text: "in thirty days at the latest"}]}
  - {key: by-document, query: c, expected_chunks: [{document: d1}]}
  - {key: leak, query: d, forbidden_chunks: [{document: secret}]}
  - {key: withdrawn, query: e, forbidden_chunks: [old]}
  - {key: fast, query: f, expected_chunks: [c1], max_latency: 1s}
"""


def test_what_a_run_cannot_tell_is_left_out_and_said_never_healthy_or_missing(tmp_path: Path) -> None:
    suite, ranked = tmp_path / "suite.yaml", tmp_path / "run.trec"
    suite.write_text(MIXED, encoding="utf-8")
    keys = ("by-id", "by-text", "by-document", "leak", "withdrawn", "fast")
    ranked.write_text("".join(f"{key} Q0 c1 1 1 me\n" for key in keys), encoding="utf-8")
    result = run("check", suite, "--rankings", ranked, "--format", "json")
    report = json.loads(result.stdout)
    assert {one["key"] for one in report["results"]} == {"by-id", "withdrawn", "fast"}
    assert report["run"]["coverage"] == 1.0
    assert "2 canaries: expects nothing by id, left out" in result.stderr
    assert "1 canary: forbids chunks by other than id, which was not judged" in result.stderr
    assert "1 canary: limits age or latency, which was not judged" in result.stderr
    by_document = run("check", suite, "--rankings", ranked, "--as-documents", "--format", "json")
    assert {one["key"] for one in json.loads(by_document.stdout)["results"]} == {"by-document", "leak"}


def test_a_run_of_other_topics_is_refused(trec: Path, tmp_path: Path) -> None:
    suite, ranked = tmp_path / "suite.yaml", tmp_path / "run.trec"
    run("import", "--from", "trec", trec, "--to", suite)
    ranked.write_text("nope Q0 a 1 0.5 x\n", encoding="utf-8")
    result = run("check", suite, "--rankings", ranked)
    assert result.exit_code == 2
    assert "its topics, such as 'nope', must be keys of canaries" in result.stderr


def test_a_broken_run_is_refused_with_its_line(trec: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    run("import", "--from", "trec", trec, "--to", suite)
    ranked = tmp_path / "run.trec"
    ranked.write_text("1 Q0 a 1 9 me\n1 Q0 b 2\n", encoding="utf-8")
    result = run("check", suite, "--rankings", ranked)
    assert result.exit_code == 2
    assert f"{ranked}:2: has 4 fields; a line of a run has six" in result.stderr


@pytest.mark.parametrize("name", ["../escaped", "/escaped", ".git/hooks/post-checkout", "Makefile", "qrels.txt/x"])
def test_a_service_elsewhere_cannot_have_other_files_written_than_the_formats_own(name: str, tmp_path: Path) -> None:
    told = {"files": {"topics.tsv": "1\tx\n", name: "hostile"}, "notes": []}
    folder = tmp_path / "out"
    with peer(lambda _: reply(json.dumps(told).encode())) as server:
        result = run("export", "--to", "trec", folder, "--server", server.url)
    assert result.exit_code == 2
    assert "nothing was written" in result.stderr
    assert not folder.exists()


def test_suites_go_in_and_out_over_the_api(tmp_path: Path) -> None:
    files = {"topics": "1\twhy\n", "qrels": "1 0 a 1\n1 0 b 9\n"}
    with api(tmp_path) as service:
        client = service.client
        answer = client.post("/v1/import?format=trec&suite=asked", json={"files": files})
        assert answer.status_code == 200, answer.text
        left_out, thin = answer.json()["notes"]
        assert left_out.startswith("a grade above 3 became 3; say what grades mean")
        assert left_out.endswith("(at qrels:2)")
        assert thin.startswith("suite 'asked' is thin: 1 canary can miss a loss of 5 % of the index, 60")
        out = client.get("/v1/export?format=trec&suite=asked").json()
        assert out == {"files": {"topics.tsv": "1\twhy\n", "qrels.txt": "1 0 a 1\n1 0 b 3\n"}, "notes": []}
        assert client.post("/v1/import?format=trec", json={"files": files}).status_code == 422
        assert client.get("/v1/export?format=trec&suite=nobody").status_code == 404
        broken = client.post("/v1/import?format=trec&suite=x", json={"files": {"q": "1 0 a 1\n1 0 a\n"}})
        (problem,) = broken.json()["errors"]
        assert (problem["file"], problem["line"]) == ("q", 2)


@pytest.mark.parametrize("form", [*FORMATS])
def test_what_an_export_answers_is_imported_as_it_is(form: str, tmp_path: Path) -> None:
    canaries = [
        {"key": "1", "query": "why", "expected_chunks": [{"id": "a", "grade": 2}, "b"], "floors": {"MRR": 0.5}},
        {"key": "2", "query": "how", "expected_chunks": ["c"], "tags": ["x"]},
    ]
    with api(tmp_path) as service:
        client = service.client
        service.put("/v1/suites/asked", {"canaries": canaries})
        out = client.get(f"/v1/export?format={form}&suite=asked")
        assert set(out.json()) == {"files", "notes"}
        answer = client.post(f"/v1/import?format={form}&suite=again", json=out.json())
        assert answer.status_code == 200, answer.text
        assert [one["action"] for one in answer.json()["changes"]] == ["create"] * 3
        known, read = (service.get(f"/v1/suites/{name}/canaries")["items"] for name in ("asked", "again"))
        assert {one["query"]: sorted(chunk["id"] for chunk in one["expected_chunks"]) for one in read} == {
            one["query"]: sorted(chunk["id"] for chunk in one["expected_chunks"]) for one in known
        }
        again = client.post(f"/v1/import?format={form}&suite=again", json=out.json())
        assert again.json()["changes"] == []


def test_an_exported_canary_file_is_imported_as_it_is(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs()
        service.put("/v1/hooks/ops", {"kind": "webhook", "url": "http://127.0.0.1:1/"})  # a secret would be a variable
        text = service.client.get("/v1/export").text
        same = service.client.post("/v1/import", json={"files": {"everything.yaml": text}})
        assert same.status_code == 200, same.text
        assert same.json()["changes"] == []
        more = text.replace("every: ", "every: 1")
        assert more != text
        changed = service.client.post("/v1/import?format=coalmine", json={"files": {"everything.yaml": more}})
        assert [(one["kind"], one["fields"]) for one in changed.json()["changes"]] == [("check", ["schedule"])]
        broken = service.client.post(
            "/v1/import", json={"files": {"a.yaml": "suite: s\ncanaries: [{key: ${NOT_SET}}]"}}
        )
        assert (broken.json()["errors"][0]["file"], broken.json()["errors"][0]["line"]) == ("a.yaml", 2)
