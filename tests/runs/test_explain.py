"""`coalmine explain`: why the hits of a query match or not, what is near, the ranks before, and a canary made of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from typer.testing import CliRunner, Result

from app.cli import app as cli
from tests.support.http_servers import Seen, peer, reply
from tests.support.living import coalmine

QUERY = "How long are logs kept?"
KEPT = "Logs are kept for 30 days in the hot tier and then for a year in the archive"
OLD = "Logs are kept for 14 days in the hot tier and then for a year in the archive"
TEXTS = {
    "intro": "Everything about the handbook and how to read it.",
    "kept": f"{KEPT}. Ask the operators for more.",
    "old": f"{OLD}. This page was withdrawn.",
    "trail": "Audit trails are written by every service and cannot be edited.",
    "deep": "The archive is deleted after a year, whatever anybody asks for.",
}
FILE = """# Questions about logs.
suite: logs
canaries:
  - key: kept  # the one that users ask most
    query: How long are logs kept?
    expected_chunks: [kept]
    forbidden_chunks: [{text: This page was withdrawn}]
    category: simple_factual
  # The next ones are rare.
  - {key: trail, query: Who edits audit trails, expected_chunks: [{text: Audit trails are written by every service}]}
retrievers:
  - {slug: search, url: "URL", response: {hits: results, id: id, score: score, text: text}}
checks:
  - {slug: logs, suite: logs, retriever: search, schedule: {every: 1d}, k: 2, fetch_k: 3}
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["explain", *map(str, arguments)])


def explained(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


class Search:
    """A retriever whose ranking the test sets; it gives as many hits as it is asked for."""

    order: tuple[str, ...] = ("intro", "kept", "old", "trail", "deep")
    exact: tuple[str, ...] = ("kept", "intro", "old")
    """What an exact search finds."""

    def __call__(self, seen: Seen) -> Any:
        """Answer a request."""
        asked = json.loads(seen.body)
        found = [
            {"id": name, "score": 0.9 - 0.1 * place, "text": TEXTS.get(name, "?")}
            for place, name in enumerate((self.exact if asked.get("exact") else self.order)[: asked["top_k"]])
        ]
        return reply(json.dumps({"results": found}).encode())


@pytest.fixture
def search() -> Search:
    return Search()


@pytest.fixture
def file(search: Search, tmp_path: Path) -> Iterator[Path]:
    with peer(search) as server:
        text = FILE.replace(
            '"URL"', f'"{server.url}", request: {{json: {{query: "{{{{ query }}}}", top_k: "{{{{ k }}}}"}}}}'
        )
        (tmp_path / "logs.yaml").write_text(text)
        yield tmp_path / "logs.yaml"


def test_an_exact_search_says_what_the_index_passed_over(file: Path, search: Search) -> None:
    assert explained(file, QUERY)["exact"] is None
    exact = "{json: {query: '{{ query }}', top_k: '{{ k }}', exact: true}}"
    file.write_text(file.read_text().replace("slug: search, url:", f"slug: search, exact: {exact}, url:"))
    search.order = ("intro", "trail", "old")
    found = explained(file, QUERY)["exact"]
    assert found == {"found": 2, "returned": 1, "missed": ["kept"], "expected_missed": ["kept"], "detail": None}
    said = "Exact search finds 2 hits, of which the index returned 1; it missed kept, of which kept should have come."
    assert said in run(file, QUERY).stdout


# --- why hits match or not -----------------------------------------------------------------------------------


def test_a_canary_is_found_by_its_query_or_its_key_and_each_hit_says_why(file: Path) -> None:
    by_query, by_key = explained(file, QUERY), explained(file, "kept")
    assert {**by_query, "latency_seconds": 0} == {**by_key, "latency_seconds": 0}
    assert (by_query["key"], by_query["expected_by"], by_query["depth"]) == ("kept", "canary", None)
    assert [hit["why"] for hit in by_query["hits"]] == [
        "not expected",
        "expected by its id",
        "must not be returned: forbidden by a passage that it holds",
    ]
    assert [hit["forbidden"] for hit in by_query["hits"]] == [False, False, True]
    assert by_query["verdict"] == "degraded"
    assert by_query["why"] == ["a chunk that must not be returned was returned at rank 3"]


def test_a_passage_that_another_number_makes_another_is_a_near_miss_that_names_the_number(
    file: Path, search: Search
) -> None:
    search.order = ("intro", "old", "trail")
    found = explained(file, QUERY, "--evidence", KEPT)
    (expected,) = found["expected"]
    assert found["expected_by"] == "options"
    assert expected["rank"] is None
    assert expected["nearest"]["id"] == "old"
    assert expected["nearest"]["share"] == pytest.approx(13 / 16, abs=0.001)
    assert expected["nearest"]["lacking"] == ["30"]
    assert found["hits"][1]["why"].startswith("must not be returned")  # which comes before a near miss
    search.order = ("trail", "intro")
    assert explained(file, QUERY, "--evidence", KEPT)["expected"][0]["nearest"] is None


def test_a_passage_that_a_hit_holds_is_told_with_its_share(file: Path, search: Search) -> None:
    search.order = ("kept", "intro")
    found = explained(file, QUERY, "--evidence", KEPT)
    assert found["verdict"] == "healthy"
    assert found["hits"][0]["why"] == "expected: holds the passage (100 % of its words in threes)"
    assert found["hits"][0]["share"] == 1
    assert "an expected chunk is at rank 1, within the top 2" in found["why"]


def test_an_expected_chunk_below_the_hits_that_count_is_looked_for_deeper(file: Path) -> None:
    found = explained(file, QUERY, "--expect", "deep")
    (expected,) = found["expected"]
    assert found["depth"] == 50
    assert (expected["rank"], expected["level"]) == (5, "id")
    assert expected["why"] == "at rank 5, below the top 2, of the 5 hits of a deeper request"
    assert found["gaps"]["expected_below"] == pytest.approx(0.3)
    assert found["gaps"]["at_k"]["scores"] == [0.8, 0.7]
    shallow = explained(file, QUERY, "--expect", "deep", "--depth", "0")
    assert (shallow["depth"], shallow["expected"][0]["why"]) == (None, "in none of the 3 hits")


def test_a_query_of_no_canary_is_explained_by_what_the_options_expect(file: Path) -> None:
    found = explained(file, "What is in the archive?", "--expect", "kept")
    assert (found["key"], found["verdict"]) == (None, "healthy")
    nothing = explained(file, "What is in the archive?")
    assert nothing["expected_by"] == "nothing"
    assert {hit["why"] for hit in nothing["hits"]} == {"nothing is expected of this query"}


def test_files_with_a_retriever_alone_are_enough(file: Path) -> None:
    page = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({"retrievers": page["retrievers"]}))
    found = explained(file, QUERY, "--expect", "kept")
    assert (found["k"], found["fetch_k"], found["verdict"]) == (5, 10, "healthy")


def test_the_text_says_it_in_words_and_nothing_retrieved_acts_on_a_terminal(file: Path, search: Search) -> None:
    evil = "\x1b[31m\u202eevil"
    search.order = (evil, "kept")
    out = run(file, "kept").stdout
    assert out.startswith(f"Healthy: {QUERY}\n  an expected chunk is at rank 2, within the top 2\n")
    assert "canary kept of check logs: search was asked for 3 hits, of which 2 count; of forbidden chunks all 3 " in out
    assert "expected by its id" in out
    assert "evil" in out
    assert not {"\x1b", "\u202e"} & set(out)
    assert not {"\x1b", "\u202e"} & set(run(file, "kept", "--format", "json").stdout)


TENANTS = """suite: handbook
canaries:
  - {key: notice-acme, query: How long is the notice?, vars: {tenant: acme}, expected_chunks: [acme-notice],
     forbidden_chunks: [globex-notice]}
  - {key: notice-globex, query: How long is the notice?, vars: {tenant: globex}, expected_chunks: [globex-notice],
     forbidden_chunks: [acme-notice]}
  - {key: holiday, query: Which days are free?, forbidden_chunks: [globex-notice]}
retrievers:
  - {slug: rag, url: "URL", options: {tenant: nobody}, response: {hits: results, id: id, score: score},
     request: {json: {query: "{{ query }}", top_k: "{{ k }}", tenant: "{{ tenant }}"}}}
checks:
  - {slug: handbook, suite: handbook, retriever: rag, schedule: {every: 1d}, k: 2, fetch_k: 3}
"""
NOTICE = "How long is the notice?"
SEVERAL = (
    "QUESTION: 2 canaries of suite 'handbook' have this query: notice-acme (tenant acme), notice-globex (tenant "
    "globex); name one by its key\n"
)


def by_tenant(seen: Seen) -> Any:
    """Answer with the notice of whoever asks, and with that of globex at rank 3; all scores are the same."""
    asked = json.loads(seen.body)
    ids = [f"{asked['tenant']}-notice", "intro", "globex-notice", "more"]
    found = [{"id": name, "score": 0.5} for name in dict.fromkeys(ids)]
    return reply(json.dumps({"results": found[: asked["top_k"]]}).encode())


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[Path]:
    with peer(by_tenant) as server:
        (tmp_path / "tenants.yaml").write_text(TENANTS.replace("URL", server.url))
        yield tmp_path / "tenants.yaml"


def test_of_canaries_with_one_question_it_explains_the_one_that_is_named(tenants: Path) -> None:
    refused = run(tenants, NOTICE)
    assert (refused.exit_code, refused.stderr) == (2, SEVERAL)
    by_key, by_variable = explained(tenants, "notice-globex"), explained(tenants, NOTICE, "--var", "tenant=globex")
    assert {by_key["key"], by_variable["key"]} == {"notice-globex"}
    assert (by_key["vars"], by_key["verdict"]) == ({"tenant": "globex"}, "healthy")
    assert (explained(tenants, "holiday")["vars"]) == {"tenant": "nobody"}
    assert "\nasked as: tenant globex\n" in run(tenants, "notice-globex").stdout
    assert "\nasked as: tenant nobody\n" in run(tenants, "Of no canary?").stdout


def test_a_canary_is_asked_as_somebody_else_and_then_nothing_is_said_of_before(tenants: Path, tmp_path: Path) -> None:
    saved = tmp_path / "before.json"
    CliRunner().invoke(cli, ["check", str(tenants), "--save", str(saved)])
    itself = explained(tenants, "notice-globex", "--baseline", saved)
    assert itself["before"]["gone"] == []
    assert [hit["rank_before"] for hit in itself["hits"]] == [1, 2, 3]
    other = run(tenants, "notice-acme", "--var", "tenant=globex", "--baseline", saved)
    assert "\nasked as: tenant globex\n" in other.stdout
    assert "Ranks before" not in other.stdout
    wrong = run(tenants, "notice-acme", "--var", "tenat=globex")
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        "--var: 'tenat' is no option of retriever 'rag'; did you mean 'tenant'?\n",
    )
    assert "'tenant' is not NAME=VALUE" in run(tenants, "notice-acme", "--var", "tenant").stderr


def test_a_forbidden_chunk_counts_at_any_rank_and_equal_scores_fall_nowhere(tenants: Path) -> None:
    out = run(tenants, "notice-acme").stdout
    assert "rag was asked for 3 hits, of which 2 count; of forbidden chunks all 3 count (ok in " in out
    assert "(below k)" not in out
    assert "Ranks 2 and 3 have the same score, 0.5.\n" in out
    assert "The scores fall" not in out
    assert explained(tenants, "notice-acme")["gaps"]["largest"] is None


def test_a_service_is_asked_as_somebody_and_lists_canaries_with_one_question(tenants: Path, tmp_path: Path) -> None:
    with coalmine(tmp_path / "data") as (url, _):
        applied = CliRunner().invoke(cli, ["apply", str(tenants), "--server", url])
        assert applied.exit_code == 0, applied.output
        service = ("--server", url, "--check", "handbook")
        assert run(*service, NOTICE).stderr == SEVERAL
        for question in (("notice-globex",), (NOTICE, "--var", "tenant=globex")):
            found, of_files = explained(*service, *question), explained(tenants, *question)
            beside = {"latency_seconds": 0, "before": None}
            hits = [{**hit, "rank_before": None} for hit in found["hits"]]
            chunks = [{**chunk, "rank_before": None} for chunk in found["expected"]]
            assert {**found, **beside, "hits": hits, "expected": chunks} == {**of_files, **beside}
        assert explained(*service, "holiday")["vars"] == {"tenant": "nobody"}
        assert run(*service, "holiday", "--var", "tenat=x").exit_code == 2


# --- the ranks before ----------------------------------------------------------------------------------------


def test_a_saved_report_has_the_ranks_before_and_the_text_that_an_id_had(
    file: Path, search: Search, tmp_path: Path
) -> None:
    saved = tmp_path / "before.json"
    search.order = ("kept", "intro", "trail")
    CliRunner().invoke(cli, ["check", str(file), "--save", str(saved)])
    search.order = ("intro", "trail", "renamed")
    TEXTS["renamed"] = TEXTS["kept"]
    found = explained(file, "kept", "--baseline", saved)
    (expected,) = found["expected"]
    assert (expected["rank"], expected["rank_before"]) == (None, 1)
    assert (expected["nearest"]["id"], expected["nearest"]["share"]) == ("renamed", 1)
    assert [hit["rank_before"] for hit in found["hits"]] == [2, 3, None]
    assert found["before"]["gone"] == ["kept"]
    assert (found["before"]["source"], found["before"]["verdict"]) == (str(saved), "healthy")
    assert "gone from its top 2: kept." in run(file, "kept", "--baseline", saved).stdout
    other = run(file, "Of nobody?", "--baseline", saved)
    assert "The baseline has no answer to this query." in other.stderr


def test_a_service_explains_by_its_own_retriever_and_when_it_was_last_healthy(
    file: Path, search: Search, tmp_path: Path
) -> None:
    text = file.read_text()
    with coalmine(tmp_path / "data") as (url, _):
        applied = CliRunner().invoke(cli, ["apply", str(file), "--server", url])
        assert applied.exit_code == 0, applied.output
        search.order = ("kept", "intro", "trail")
        with httpx2.Client(trust_env=False, timeout=60) as client:
            for order in (search.order, ("intro", "trail", "old")):
                search.order = order
                client.post(f"{url}/v1/checks/logs/runs", json={"wait_seconds": 30}).raise_for_status()
        found = explained("--server", url, "--check", "logs", QUERY)
        of_files = explained(file, QUERY)
        assert file.read_text() == text
        assert run("--server", url, QUERY).stderr == "--check: say which check of the service asks it\n"
        assert "leave out the files" in run(file, "--server", url, "--check", "logs", QUERY).stderr
    assert (found["key"], found["k"], found["fetch_k"]) == ("kept", 2, 3)
    assert found["before"]["verdict"] == "healthy"
    assert found["before"]["gone"] == ["kept"]
    assert [hit["rank_before"] for hit in found["hits"]] == [2, 3, None]
    beside = {"latency_seconds": 0, "before": None}
    without_before = [{**hit, "rank_before": None} for hit in found["hits"]]
    chunks = [{**chunk, "rank_before": None} for chunk in found["expected"]]
    assert {**found, **beside, "hits": without_before, "expected": chunks} == {**of_files, **beside}


# --- a canary made of it -------------------------------------------------------------------------------------


def test_a_question_becomes_a_canary_of_the_file_whose_comments_and_order_stay(file: Path) -> None:
    before = file.read_text()
    asked = ("Who deletes ${the} archive?", "--expect", "deep", "--evidence", "deleted after a year")
    result = run(file, *asked, "--save", file)
    assert result.exit_code == 0, result.output
    assert result.stderr == f"Added canary who-deletes-the-archive to {file}.\n"
    after = file.read_text()
    start = after.index("  - key: who-deletes-the-archive\n")
    end = after.index("retrievers:\n")
    assert after[:start] + after[end:] == before
    found = explained(file, asked[0])
    assert (found["key"], found["expected_by"]) == ("who-deletes-the-archive", "canary")
    assert [one["judgment"].get("id") for one in found["expected"]] == ["deep", None]
    again = run(file, *asked, "--save", file)
    assert again.exit_code == 2
    assert "has a canary 'who-deletes-the-archive' already" in again.stderr
    assert file.read_text() == after


@pytest.mark.parametrize(
    "text",
    [
        "suite: s\n",
        "suite: s  # empty\ncanaries: []\n",
        "suite: s\ncanaries:\n",
        "suite: s\ncanaries:\n- key: a\n  query: |\n    What is\n    this?\n# the end",
        '{"suite": "s", "canaries": [{"key": "a", "query": "b"}]}',
        "suite: s\ncanaries: [{key: a, query: b}]  # of one line\nchecks: []\n",
        "suite: s\ncanaries:\n    - &o {key: a, query: b}\nhooks: []\n---\nsuite: t\ncanaries: [{key: a, query: c}]\n",
    ],
)
def test_a_canary_is_added_to_files_of_any_layout(file: Path, tmp_path: Path, text: str) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(text.replace("suite: s", "suite: logs").replace('"s"', '"logs"'))
    before = list(yaml.safe_load_all(other.read_text()))
    assert run(file, "What is in it?", "--expect", "deep", "--save", other).exit_code == 0
    after = list(yaml.safe_load_all(other.read_text()))
    added = after[0]["canaries"].pop()
    assert (added["key"], added["expected_chunks"]) == ("what-is-in-it", ["deep"])
    assert after == [{**before[0], "canaries": before[0].get("canaries") or []}, *before[1:]]
    for comment in ("# empty", "# the end", "# of one line"):
        assert (comment in other.read_text()) == (comment in text)


def test_a_new_file_gets_the_suite_and_nothing_is_saved_that_expects_nothing(file: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    assert run(file, "What is in it?", "--save", new).exit_code == 2
    assert not new.exists()
    assert run(file, "What is in it?", "--expect", "deep", "--save", new).exit_code == 0
    assert yaml.safe_load(new.read_text()) == {
        "suite": "logs",
        "canaries": [{"key": "what-is-in-it", "query": "What is in it?", "expected_chunks": ["deep"]}],
    }


# --- what cannot be explained --------------------------------------------------------------------------------


def test_it_says_what_is_missing_and_ends_otherwise_where_nothing_was_measured(file: Path, tmp_path: Path) -> None:
    assert "name the canary files" in run(QUERY).stderr
    two = file.read_text().replace(
        "checks:\n", "checks:\n  - {slug: more, suite: logs, retriever: search, schedule: {every: 1d}}\n"
    )
    (tmp_path / "two.yaml").write_text(two)
    refused = run(tmp_path / "two.yaml", QUERY)
    assert refused.exit_code == 2
    assert refused.stderr == "--check: 2 checks ask it: more, logs; name one with --check\n"
    assert run(tmp_path / "two.yaml", "--check", "more", QUERY).exit_code == 0
    unreachable = run(file, "--url", "http://127.0.0.1:9/", QUERY)
    assert unreachable.exit_code == 3
    assert unreachable.stdout.startswith(f"Unknown: {QUERY}\n  ")


def test_a_service_that_answers_otherwise_than_coalmine_does_is_told_so() -> None:
    with peer(reply(json.dumps({"slug": "logs", "suite": "logs"}).encode())) as server:
        result = run("--server", server.url, "--check", "logs", QUERY)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
