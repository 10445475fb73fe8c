"""What is valid and yet without effect is warned of: canaries that expect nothing, ignored bounds, dead cut-offs."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.base.errors import InvalidInputError
from app.base.texts import Source
from app.catalog.documents.canary_files import read_canary_files
from app.catalog.documents.warnings import find_warnings
from app.catalog.exchange import FORMATS
from app.catalog.exchange.suite_builder import SuiteBuilder, parse_grades
from app.cli import app
from app.reports.rendering.report_measures import cutoff_table
from tests.support.api_service import RETRIEVER, api

FILE = """suite: docs
canaries:
  - {key: good, query: a, expected_chunks: c1}
  - {key: empty, query: b}
  - key: irrelevant
    query: c
    expected_chunks: [{id: c2, grade: 0}]
    min_relevance_score: 0.9
  - {key: moon, query: d, category: negative}
  - {key: closed, query: e, expect_empty: true}
  - {key: leak, query: f, forbidden_chunks: secret}
retrievers:
  - {slug: search, url: "http://127.0.0.1:1/", response: {hits: h, id: id}, scorer: {kind: judged}}
checks:
  - {slug: watch, suite: docs, retriever: search, schedule: {every: 1h}, cutoffs: [5, 20, 50]}
"""
WARNINGS = [
    (
        "c.yaml:4: canary 'docs/empty' expects nothing, so a wrong answer is never found; add expected_chunks, or "
        "'category: negative' if none is right"
    ),
    (
        "c.yaml:5: canary 'docs/irrelevant' expects only chunks of grade 0, so a wrong answer is never found; add "
        "expected_chunks, or 'category: negative' if none is right"
    ),
    (
        "c.yaml:15: check 'watch' asks for 10 hits (fetch_k), so measures at 20, 50 stay undefined; raise fetch_k "
        "to 50 or take 20, 50 out of its cutoffs"
    ),
    (
        "c.yaml:5: canary 'docs/irrelevant' sets min_relevance_score, which check 'watch' ignores: the scorer of "
        "retriever 'search' is 'judged', which measures no relevance"
    ),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(FILE, encoding="utf-8")
    return tmp_path


def test_validate_and_apply_warn_with_file_and_line(folder: Path) -> None:
    for command in (["validate", "c.yaml"], ["apply", "c.yaml", "--data-dir", str(folder / "data")]):
        ended = CliRunner().invoke(app, command)
        assert ended.exit_code == 0, ended.output
        warned = [line for line in ended.stderr.splitlines() if line.startswith("Warning: ")]
        assert warned == [f"Warning: {line}." for line in WARNINGS]


def test_what_means_what_it_says_is_not_warned_of() -> None:
    text = FILE.replace("{kind: judged}", "{kind: score, scale: similarity}").replace("id: id}", "id: id, score: s}")
    text = text.replace(", cutoffs: [5, 20, 50]", "").replace("query: b}", "query: b, expected_chunks: x}")
    text = text.replace("grade: 0", "grade: 1")
    assert find_warnings(read_canary_files([("c.yaml", text)], {}, None)) == []


MATRIX = """suite: contracts
canaries:
  - {key: acme, query: a, expected_chunks: c1, vars: {tenant: acme}}
  - {key: globex, query: a, expected_chunks: c2, vars: {tenant: globex}}
retrievers:
  - {slug: search, url: "http://127.0.0.1:1/{{ tenant }}/{{ lang }}", options: {tenant: nobody, lang: en},
     response: {hits: h, id: id}, scorer: {kind: judged}}
checks:
  - {slug: other, suite: contracts, retriever: search, schedule: {every: 1h}, vars: {tenant: acme}}
  - {slug: watch, suite: contracts, retriever: search, schedule: {every: 1h},
     matrix: {tenant: [acme, globex], lang: [en, de]}}
"""


def test_a_matrix_of_what_every_canary_sets_itself_is_warned_of_once(tmp_path: Path) -> None:
    (file := tmp_path / "m.yaml").write_text(MATRIX, encoding="utf-8")
    for command in (["validate", str(file)], ["apply", str(file), "--data-dir", str(tmp_path / "data")]):
        ended = CliRunner().invoke(app, command)
        assert ended.exit_code == 0, ended.output
        [warned] = [line for line in ended.stderr.splitlines() if line.startswith("Warning: ")]
        assert warned == (
            f"Warning: {file}:10: checks watch-acme-en, watch-acme-de, watch-globex-en and 1 more differ in 'tenant', "
            "which every canary of suite 'contracts' sets itself, so it changes nothing that they ask; take it out of "
            "the matrix, or out of the vars of the canaries."
        )


def test_a_matrix_of_what_a_canary_leaves_to_it_is_not_warned_of() -> None:
    text = MATRIX.replace("expected_chunks: c1, vars: {tenant: acme}", "expected_chunks: c1")
    assert find_warnings(read_canary_files([("c.yaml", text)], {}, None)) == []


def test_many_canaries_that_expect_nothing_are_counted_beyond_twenty() -> None:
    text = "suite: s\ncanaries:\n" + "".join(f"  - {{key: k{at}, query: q}}\n" for at in range(25))
    found = find_warnings(read_canary_files([("c.yaml", text)], {}, None))
    assert len(found) == 21
    assert found[-1].message == "suite 's' has 5 more canaries that expect nothing"


def test_the_api_warns_of_what_it_is_given(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        told = service.client.post("/v1/import", json={"files": {"c.yaml": FILE}}).json()["warnings"]
        assert [(one["file"], one["line"], one["path"]) for one in told] == [
            ("c.yaml", 4, "expected_chunks"),
            ("c.yaml", 5, "expected_chunks"),
            ("c.yaml", 15, "cutoffs"),
            ("c.yaml", 5, "min_relevance_score"),
        ]
        posted = service.client.post("/v1/suites/docs/canaries", json={"query": "What now?"}).json()
        assert posted["warnings"] == [WARNINGS[0].partition("'docs/empty' ")[2]]
        assert service.client.put(f"/v1/suites/docs/canaries/{posted['key']}", json=posted).status_code == 200
        assert service.get("/v1/suites/docs/canaries/good")["warnings"] == []
        service.put("/v1/retrievers/other", RETRIEVER)
        page = service.client.get("/suites/docs").text
    assert page.count("no expected chunks: no answer can be wrong") == 3


QRELS = ["query,id,grade\n", "a,c1,4\n", "a,c2,2\n", "a,c3,1\n", "a,c4,0\n"]


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        (None, [3, 2, 1, 0]),
        ("4=3,2=1,1=0", [3, 1, 0, 0]),
        ("0-4", [3, 2, 1, 0]),
        ("0-8", [2, 1, 0, 0]),
        (" 4=2 , 0=1 ", [2, 2, 1, 1]),
    ],
)
def test_grades_of_an_import_are_mapped_as_is_said(grades: str | None, expected: list[int]) -> None:
    builder = SuiteBuilder(grades=parse_grades(grades))
    FORMATS["csv"].read([Source(name="a.csv", lines=lambda: QRELS)], builder)
    imported = builder.build("s")
    (canary,) = imported.suite.canaries or ()
    assert [chunk.grade for chunk in canary.expected_chunks] == expected
    assert any("a grade above 3 became 3" in note for note in imported.notes) is (grades is None)


@pytest.mark.parametrize(
    ("grades", "message"),
    [
        ("4", "'4' is no pair of grades; write pairs such as 1=0,2=1,3=2,4=3"),
        ("5=4", "4 is above 3, the highest grade"),
        ("1=0,1=2", "the grade 1 is given twice"),
        ("0-0", "'0-0' is no pair of grades"),
    ],
)
def test_a_map_of_grades_that_is_none_is_refused(grades: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_grades(grades)
    assert refused.value.problems[0].path == "grades"
    assert refused.value.problems[0].message.startswith(message)


def test_grades_are_mapped_by_the_command_the_api_and_the_page(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join(QRELS), encoding="utf-8")
    command = ["import", "--from", "csv", str(tmp_path / "a.csv"), "--grades", "4=1", "--to", "-"]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    assert "grade: 3" not in ended.stdout
    with api(tmp_path / "service") as service:
        body: dict[str, Any] = {"files": {"a.csv": "".join(QRELS)}}
        answer = service.client.post("/v1/import?format=csv&suite=s&grades=4%3D1,2%3D3", json=body)
        assert answer.status_code == 200, answer.text
        (canary,) = service.get("/v1/suites/s/canaries")["items"]
        assert [chunk["grade"] for chunk in canary["expected_chunks"]] == [1, 3, 1, 0]
        fields = {"format": "csv", "suite": "p", "grades": "5=9", "pasted": "".join(QRELS), "do": "plan"}
        assert "9 is above 3" in service.client.post("/import", data=fields).text


def test_a_table_of_measures_has_no_column_that_was_never_measured() -> None:
    run = {"measures": {"R@5": 0.5, "R@20": None, "NDCG@5": 0.25, "NDCG@20": None, "R@50": 0.0}}
    assert cutoff_table(run).columns == ("measure", "@5", "@50")
    assert cutoff_table({"measures": {"R@5": None}}).columns == ("measure", "@5")
