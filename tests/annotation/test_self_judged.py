"""Recall is labelled self-judged wherever it is shown, where the retriever brought up much of what is expected."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from app.alerts.domain.summaries import measure_text
from app.alerts.service import transitions
from app.alerts.service.shown_alerts import evidence
from app.annotation.service import annotations
from app.base.db.engine import Store
from app.base.values import Canary, Category, Judgment
from app.catalog.domain import (
    TAKEN_AS_RIGHT,
    PooledNote,
    are_self_judged,
    labelled,
    pooled_text,
    unlike_tasks_lines,
)
from app.catalog.service import references
from app.catalog.service.judges import is_self_judged, judging_retrievers
from app.catalog.store import FILE
from app.cli import app
from app.hooks.notice_texts import NoticeText
from app.records.domain import stored_shares
from app.scoring.run_inputs import judgment_shares
from tests.support.annotation_tasks import Desk
from tests.support.api_service import Api, api
from tests.support.filled_service import rescored
from tests.support.html_pages import Page

OWN = "retriever:search"


def ticked(source: str | None = OWN) -> list[dict[str, Any]]:
    """Give two canaries whose judgments have this source, and one that expects nothing."""
    chunk = {"id": "c1", "source": source} if source else {"id": "c1"}
    return [
        {"key": "retention", "query": "How long is data kept?", "expected_chunks": [chunk]},
        {"key": "oauth", "query": "How do I set up OAuth2?", "expected_chunks": [{**chunk, "id": "c2"}]},
        {"key": "moon", "query": "Who lives on the moon?", "category": "negative"},
    ]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service."""
    with api(tmp_path) as opened:
        yield opened


def words(page: str) -> str:
    """Give the words of a page without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def judged(*sources: str | None, **more: Any) -> Canary:
    found = tuple(Judgment(id=f"c{place}", source=source) for place, source in enumerate(sources))
    return Canary(key="q", query="q", judgments=found, **more)


# --- when it is ----------------------------------------------------------------------------------------------


def test_the_shares_of_sources_are_means_over_the_canaries_that_expect_something() -> None:
    assert judgment_shares([judged("task:b", OWN), judged("task:b")]) == {"task:b": 0.75, OWN: 0.25}
    assert judgment_shares([judged(OWN), judged(None)]) == {OWN: 0.5, "": 0.5}
    assert judgment_shares([]) == {}
    assert judgment_shares([judged(OWN), judged(None, category=Category.NEGATIVE)]) == {OWN: 1.0}
    known_irrelevant = Canary(key="q", query="q", judgments=(Judgment(id="a"), Judgment(id="b", grade=0, source=OWN)))
    assert judgment_shares([known_irrelevant]) == {"": 1.0}, "recall is of what is relevant"


def test_a_source_changes_no_judgment() -> None:
    assert judged(OWN).is_judged_as(judged(None))


@pytest.mark.parametrize(("own", "label"), [(1.0, True), (0.6, True), (0.21, True), (0.2, False), (0.0, False)])
def test_more_than_a_fifth_of_its_own_makes_recall_self_judged(own: float, *, label: bool) -> None:
    assert are_self_judged({OWN: own, "": 1 - own}, [OWN]) is label


def test_no_judgments_are_not_self_judged() -> None:
    assert not are_self_judged({}, [OWN])


@pytest.mark.parametrize("name", ["R@5", "R_id@10", "R_passage@1", "R"])
def test_only_recall_is_labelled(name: str) -> None:
    assert labelled(name, self_judged=True) == f"{name} (self-judged)"
    assert labelled(name, self_judged=False) == name
    assert labelled("MRR", self_judged=True) == "MRR"
    assert labelled("RR@5", self_judged=True) == "RR@5"


def test_pooled_recall_stands_beside_recall_at_its_k() -> None:
    note: PooledNote = {
        "k": 10,
        "value": 0.907,
        "low": 0.85,
        "high": 0.95,
        "task": "truth",
        "assumes": "corrected for wrong grades, ...",
        "self_judged": False,
        "edited_since": False,
        "queries": 6,
        "asked_queries": 6,
        "few_queries": False,
    }
    pooled = [note]
    assert labelled("R@10", self_judged=False, pooled=pooled) == "R@10 (pooled 0.907 (0.850 to 0.950))"
    assert labelled("R@10", self_judged=True, pooled=pooled) == "R@10 (self-judged; pooled 0.907 (0.850 to 0.950))"
    other: list[PooledNote] = [{**note, "task": "later"}]
    (apart,) = unlike_tasks_lines(10, {"bm25": pooled, "dense": other})
    assert apart.startswith("pooled recall@10 is by different tasks, truth (bm25) and later (dense), each of which")
    for alike in ({"bm25": pooled, "dense": pooled}, {"bm25": pooled, "dense": []}, {"bm25": other}):
        assert unlike_tasks_lines(10, alike) == []
    assert unlike_tasks_lines(5, {"bm25": pooled, "dense": other}) == []
    of_category = measure_text("R@10", "complex_factual", self_judged=True, pooled=pooled)
    whole = "R@10 (self-judged; pooled over the whole suite 0.907 (0.850 to 0.950)) of complex factual"
    assert of_category == whole
    assert labelled("R@5", self_judged=False, pooled=pooled) == "R@5"
    assert labelled("NDCG@10", self_judged=True, pooled=pooled) == "NDCG@10"
    own: list[PooledNote] = [{**note, "self_judged": True}]
    text = "pooled 0.907 (0.850 to 0.950), self-judged"
    assert labelled("R@10", self_judged=False, pooled=own) == f"R@10 ({text})", "whatever R@10 itself is"
    assert labelled("R@10", self_judged=True, pooled=own) == f"R@10 (self-judged; {text})"
    earlier: list[PooledNote] = [{**note, "self_judged": True, "edited_since": True}]
    assert labelled("R@10", self_judged=False, pooled=earlier) == f"R@10 ({text}, before the retriever was edited)"
    unlike: list[PooledNote] = [{**note, "asked_otherwise": True}]
    own_run = "pooled 0.907 (0.850 to 0.950), of what the retriever is, not of what this run asked"
    assert labelled("R@10", self_judged=False, pooled=unlike) == f"R@10 ({own_run})"
    few: list[PooledNote] = [{**note, "few_queries": True}]
    assert labelled("R@10", self_judged=False, pooled=few) == "R@10 (pooled 0.907 (0.850 to 0.950) over 6 queries)"
    for asked, text in ((2, "2"), (0, "none")):
        fewer: list[PooledNote] = [{**note, "few_queries": True, "asked_queries": asked}]
        assert labelled("R@10", self_judged=False, pooled=fewer).endswith(
            f"over 6 queries, {text} of them still asked)"
        )
    uncorrected: list[PooledNote] = [{**note, "assumes": f"{TAKEN_AS_RIGHT}: no chunk was graded by two people"}]
    text = "pooled 0.907 (0.850 to 0.950, if every grade is right)"
    assert labelled("R@10", self_judged=False, pooled=uncorrected) == f"R@10 ({text})"
    assert labelled("R@10", self_judged=True, pooled=uncorrected) == f"R@10 (self-judged; {text})"


# --- where it is shown ---------------------------------------------------------------------------------------


def test_it_stands_beside_recall_wherever_that_is_shown(service: Api) -> None:
    service.docs(canaries=ticked(), use="completeness")
    run = service.run()
    assert run["self_judged"] is True
    assert service.get("/v1/checks/docs/health")["self_judged"] is True
    report = service.get(f"/v1/runs/{run['id']}/report", format="json")
    assert report["run"]["self_judged"] is True
    markdown = service.client.get(f"/v1/runs/{run['id']}/report?format=markdown").text
    assert "R@3 (self-judged) 1.000" in markdown
    assert "| R (self-judged) |" in markdown
    assert "much of what is expected was brought up by search itself" in markdown
    html = words(service.client.get(f"/v1/runs/{run['id']}/report?format=html").text)
    assert "R@3 (self-judged)" in html
    for page in (f"/runs/{run['id']}", "/checks/docs"):
        assert "R@k is self-judged: much of what is expected was brought up by search itself" in words(
            service.client.get(page).text
        )
    (recall,) = [one for one in service.get("/v1/checks/docs/quality")["sections"] if one["name"] == "recall"]
    assert "self-judged: this retriever itself brought up much of what is expected" in recall["reason"]
    assert recall["verdict"] == "unknown", "that it finds its own hits again is no sign of quality"
    assert recall["advice"] == "Have a pool of several retrievers judged, so that what this one misses counts."
    shown = CliRunner().invoke(app, ["quality", "docs", "--data-dir", str(service.service.settings.data_dir)]).stdout
    [row] = [line for line in shown.splitlines() if line.startswith("| Coverage | ")]
    assert row.startswith("| Coverage | unknown | 2 of 2 questions find their document in the top 3, self-judged: ")
    check = words(service.client.get("/checks/docs").text)
    assert "R@3 self-judged 1.000" in check
    assert "R@3 (self-judged)" in check  # of charts
    service.refresh()
    shown = service.client.get("/metrics").text
    assert 'coalmine_recall_self_judged{check="docs",retriever="search",suite="docs"} 1.0' in shown
    assert service.get("/v1/checks/docs/series", measure="R@3")["self_judged"] is True
    assert service.get("/v1/checks/docs/series", measure="MRR")["self_judged"] is False
    assert "1.000 self-judged" in service.client.get("/badge/docs.svg?measure=R@3").text
    assert "self-judged" not in service.client.get("/badge/docs.svg?measure=MRR").text


@pytest.mark.parametrize("source", [None, "retriever:other", "task:gone"])
def test_other_judgments_have_no_label(service: Api, source: str | None) -> None:
    service.docs(canaries=ticked(source), use="completeness")
    run = service.run()
    assert run["self_judged"] is False
    report = service.client.get(f"/v1/runs/{run['id']}/report?format=markdown").text
    assert "R@3 1.000" in report
    assert "self-judged" not in report
    assert "self-judged" not in service.client.get("/checks/docs").text
    (recall,) = [one for one in service.get("/v1/checks/docs/quality")["sections"] if one["name"] == "recall"]
    assert (recall["verdict"], recall["advice"]) == ("good", None)
    service.refresh()
    assert 'coalmine_recall_self_judged{check="docs",retriever="search",suite="docs"} 0.0' in (
        service.client.get("/metrics").text
    )


def another(retriever: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a retriever that answers alike at another address."""
    return {**{name: retriever[name] for name in ("response", "scorer")}, "url": f"{retriever['url']}?of=other"}


def test_retrievers_that_differ_in_name_alone_bring_up_what_either_does(service: Api) -> None:
    service.docs(canaries=ticked("task:both"))
    retriever = service.get("/v1/retrievers/search")
    service.put("/v1/retrievers/other", {**another(retriever), "url": retriever["url"], "concurrency": 1})
    service.put("/v1/tasks/both", {"suite": "docs", "retrievers": ["other", "search"]})
    run = service.run()
    assert (run["self_judged"], run["judged_by"]) == (True, ["other"]), "no other retriever was asked"
    service.put("/v1/retrievers/other", another(retriever))
    apart = service.run()
    assert (apart["self_judged"], apart["judged_by"]) == (False, [])


@pytest.mark.parametrize(
    ("source", "others"), [("retriever:other", ["other"]), ("task:alone", ["other"]), ("task:both", []), (OWN, [])]
)
def test_judgments_of_another_retriever_alone_are_said_beside_recall(
    service: Api, source: str, others: list[str]
) -> None:
    service.docs(canaries=ticked(source))
    retriever = service.get("/v1/retrievers/search")
    service.put("/v1/retrievers/other", another(retriever))
    for task, pooled in (("alone", ["other"]), ("both", ["other", "search"])):
        service.put(f"/v1/tasks/{task}", {"suite": "docs", "retrievers": pooled})
    run = service.run()
    assert run["judged_by"] == service.get("/v1/checks/docs/health")["judged_by"] == others
    assert {one["judged_by"] for one in service.get("/v1/checks/docs/runs")["items"]} == {None}
    report = service.get(f"/v1/runs/{run['id']}/report", format="json")
    assert report["run"]["judged_by"] == others
    reports = [f"/v1/runs/{run['id']}/report?format={form}" for form in ("markdown", "html")]
    for path in ("/checks/docs", f"/runs/{run['id']}", *reports):
        assert (OTHERS in words(service.client.get(path).text.replace("\\", ""))) is bool(others), path


OTHERS = (
    "uch of what is expected was brought up by other alone: what only search finds may never have been judged, so R@k "
    "favours retrievers like other; have a pool of several retrievers judged"
)


def test_judgments_of_few_are_not_said(service: Api) -> None:
    chunks = [{"id": f"c{number}"} for number in range(1, 5)]
    service.docs(canaries=[{**ticked()[0], "expected_chunks": [*chunks, {"id": "c5", "source": "retriever:other"}]}])
    assert service.run()["judged_by"] == [], "a fifth, not more"


def test_a_comparison_says_of_which_side(service: Api) -> None:
    service.docs(canaries=ticked())
    retriever = service.get("/v1/retrievers/search")
    service.put("/v1/retrievers/other", another(retriever))
    service.put("/v1/checks/other", {"suite": "docs", "retriever": "other", "schedule": {"every": "1h"}, "k": 3})
    first = service.run()
    service.run("other")
    found = service.get("/v1/compare", a="check:docs", b="check:other")
    assert (found["a"]["self_judged"], found["b"]["self_judged"]) == (True, False)
    assert [line for line in found["differences"] if "brought up by search itself" in line]
    [caution] = found["cautions"]
    assert (caution["kind"], caution["favours"], caution["retriever"]) == ("judgments", "a", "search")
    assert caution["sentence"] == TILTED
    [mirrored] = service.get("/v1/compare", a="check:other", b="check:docs")["cautions"]
    assert mirrored["favours"] == "b"
    assert "which favours B in every measure and is against A: what only A finds" in mirrored["sentence"]
    arguments = ["compare", "check:docs", "check:other", "--data-dir", str(service.service.settings.data_dir)]
    assert "R@3 (self-judged)" in CliRunner().invoke(app, [*arguments, "--format", "markdown"]).stdout
    assert "R@3 self-judged: A" in words(service.client.get("/compare?a=check:docs&b=check:other").text)
    service.put("/v1/suites/docs", {"canaries": ticked(None)})
    later = service.run()
    same = service.get("/v1/compare", a=f"run:{first['id']}", b=f"run:{later['id']}")
    [told] = [line for line in same["differences"] if "brought up by search itself" in line]
    assert told.startswith(f"of run {first['id']} alone, R@k is self-judged: "), "of one retriever it says of which run"
    assert same["cautions"] == [], "both sides are what brought it up"


TILTED = (
    "much of what is expected was brought up by search itself, which favours A in every measure and is against B: what "
    "only B finds may never have been judged"
)


def loses_half(service: Api, source: str | None) -> None:
    """Run `docs` of the retriever that all judgments are of, or none, and `other`, which finds half of them."""
    queries = [f"What is {number}?" for number in range(24)]
    chunk = {"id": "c1", "source": source} if source else {"id": "c1"}
    service.docs(canaries=[{"key": f"q{n}", "query": one, "expected_chunks": [chunk]} for n, one in enumerate(queries)])
    retriever = service.get("/v1/retrievers/search")
    service.put("/v1/retrievers/other", another(retriever))
    service.put("/v1/checks/other", {"suite": "docs", "retriever": "other", "schedule": {"every": "1h"}, "k": 3})
    service.run()
    service.retriever.found = {one: ["c9"] for one in queries[:12]}
    service.run("other")


def test_what_a_side_gains_by_its_own_judgments_is_measured_and_not_claimed(service: Api) -> None:
    loses_half(service, OWN)
    found = service.get("/v1/compare", a="check:docs", b="check:other")
    assert found["verdict"] == "no_difference_shown"
    assert {
        (one["claim"], one["winner"], one["difference"]) for one in found["primary"] if one["measure"] != "P@3"
    } == {("self_judged", None, -0.5)}
    assert {(part["verdict"], part["winner"]) for part in found["by_category"]} == {("no_difference_shown", None)}
    assert found["sentence"].startswith(
        "no difference shown between A and B over 24 canaries: NDCG@10 down 0.500 (95 %"
    )
    end = "which may come of the judgments that search brought up, so it is not claimed"
    assert found["sentence"].endswith(f"coverage down 0.500, {end}")
    [caution] = found["cautions"]
    assert caution == {
        "kind": "judgments",
        "favours": "a",
        "retriever": "search",
        "not_claimed": ["NDCG@10", "R@3", "P@3", "MRR@10", "coverage"],
        "sentence": f"{TILTED}; NDCG@10, R@3, P@3, MRR@10 and coverage are higher in A, which is not claimed",
        **dict.fromkeys(("measure", "winner", "recall", "loss", "alert_id")),
    }
    page = words(service.client.get("/compare?a=check:docs&b=check:other").text)
    assert "which favours A in every measure and is against B" in page
    assert "not claimed: self-judged" in page
    table = page.partition("95 % interval")[2].partition("Bold =")[0]
    assert "not claimed: self-judged" in table
    assert "A is better" not in table
    arguments = ["compare", "check:docs", "check:other", "--data-dir", str(service.service.settings.data_dir)]
    for form in ("table", "markdown"):
        shown = CliRunner().invoke(app, [*arguments, "--format", form])
        assert shown.exit_code == 0, "B is not claimed to be worse"
        told = " ".join(shown.stdout.split())
        assert "which favours A in every measure and is against B" in told
        assert "not claimed: self-judged" in told
    runs = [service.get(f"/v1/checks/{slug}/health")["id"] for slug in ("docs", "other")]
    diff = service.get(f"/v1/runs/{runs[0]}/diff/{runs[1]}")["decision"]
    assert (diff["verdict"], diff["cautions"]) == (found["verdict"], found["cautions"])


@pytest.mark.parametrize("source", [None, "task:gone"])
def test_a_difference_by_judgments_of_nobody_known_is_claimed(service: Api, source: str | None) -> None:
    loses_half(service, source)
    found = service.get("/v1/compare", a="check:docs", b="check:other")
    assert (found["verdict"], found["cautions"]) == ("worse", [])


def test_a_difference_by_judgments_of_a_third_retriever_is_claimed_with_a_caution(service: Api) -> None:
    loses_half(service, "retriever:third")
    found = service.get("/v1/compare", a="check:docs", b="check:other")
    assert found["verdict"] == "worse"
    [caution] = found["cautions"]
    assert (caution["kind"], caution["favours"], caution["retriever"]) == ("judgments", None, "third")
    assert "every measure favours the side that is more like it" in caution["sentence"]


def test_what_is_claimed_against_the_judgments_of_a_side_stands(service: Api) -> None:
    loses_half(service, "retriever:other")
    found = service.get("/v1/compare", a="check:other", b="check:docs")
    assert found["verdict"] == "better"
    assert {(one["claim"], one["winner"]) for one in found["primary"]} == {("claimed", "b")}
    [caution] = found["cautions"]
    assert (caution["favours"], caution["retriever"], caution["not_claimed"]) == ("a", "other", [])


@pytest.mark.parametrize("pooled", [("search", "third"), ("search", "other"), ("other", "third")])
def test_a_pool_without_a_side_is_against_it(service: Api, pooled: tuple[str, str]) -> None:
    service.docs(canaries=ticked())
    retriever = service.get("/v1/retrievers/search")
    service.put("/v1/retrievers/other", another(retriever))
    service.put("/v1/retrievers/third", {**another(retriever), "url": f"{retriever['url']}?of=third"})
    service.put("/v1/tasks/both", {"suite": "docs", "retrievers": list(pooled)})
    assert service.client.post("/v1/tasks/both/pool", json={}).is_success
    loses_half(service, "task:both")
    found = service.get("/v1/compare", a="check:docs", b="check:other")
    if pooled != ("search", "third"):  # both sides were pooled, or what the pool lacked was found all the same
        assert (found["verdict"], found["cautions"]) == ("worse", [])
        return
    assert found["verdict"] == "no_difference_shown"
    [caution] = found["cautions"]
    assert (caution["favours"], caution["retriever"], found["a"]["self_judged"]) == ("a", "search", False)
    assert caution["sentence"].startswith(
        "much of what is expected was judged among hits of A and not among those of B: what only B finds may never "
        "have been judged, so every measure favours A; NDCG@10, R@3"
    )
    run = service.get("/v1/checks/docs/health")["id"]
    service.put("/v1/retrievers/search", {**another(retriever), "url": f"{retriever['url']}?of=none"})
    service.retriever.found = {f"What is {number}?": ["c9"] for number in range(12)}
    later = service.run()
    [caution] = service.get("/v1/compare", a=f"run:{run}", b=f"run:{later['id']}")["cautions"]
    assert "judged among hits of A and not among those of B" in caution["sentence"]
    service.retriever.found = {}
    again = service.run()
    assert service.get("/v1/compare", a=f"run:{run}", b=f"run:{again['id']}")["cautions"] == []


def test_judgments_of_what_a_retriever_was_before_it_was_edited_favour_nobody_known(service: Api) -> None:
    loses_half(service, OWN)
    before = service.get("/v1/checks/docs/health")
    was = service.get("/v1/retrievers/search")
    service.retriever.found = {}
    service.put("/v1/retrievers/search", {**another(was), "timeout": 7, "url": was["url"]})
    assert service.run()["judged_before_edit"] is False, "it asks what it asked"
    service.put("/v1/retrievers/search", {**another(was), "url": f"{was['url']}?of=third"})
    run = service.run()
    assert (run["self_judged"], run["judged_before_edit"]) == (True, True)
    assert service.get(f"/v1/runs/{before['id']}")["judged_before_edit"] is False, "it was asked as it was then"
    reports = [f"/v1/runs/{run['id']}/report?format={form}" for form in ("markdown", "html")]
    for path in ("/checks/docs", f"/runs/{run['id']}", *reports):
        told = words(service.client.get(path).text.replace("\\", ""))
        assert "brought up by search as it was then, so whether its recall is too high or too low by now is not" in told
        assert "too high by whatever it misses" not in told, path
    quality = json.dumps(service.get("/v1/checks/docs/quality"))
    assert "this retriever as it was before it was edited brought up much of what is expected" in quality
    for names in (("docs", "other"), ("other", "docs")):
        found = service.get("/v1/compare", **{side: f"check:{name}" for side, name in zip("ab", names, strict=True)})
        assert found["verdict"] == "no_difference_shown", "neither is claimed to be better"
        [caution] = found["cautions"]
        assert (caution["favours"], caution["retriever"]) == (None, "search")
        assert caution["not_claimed"] == ["NDCG@10", "R@3", "P@3", "MRR@10", "coverage"]
        assert caution["sentence"] == (
            "much of what is expected was brought up by search as it was before it was edited, so whether that favours "
            "A or B by now is not known: what either finds may never have been judged; no difference is claimed"
        )
        assert "too high by whatever" not in " ".join(found["differences"])
    service.put("/v1/retrievers/other", {**another(was), "url": was["url"]})
    service.run("other")
    service.retriever.found = {f"What is {number}?": ["c9"] for number in range(12)}
    service.run()
    found = service.get("/v1/compare", a="check:docs", b="check:other")
    assert [(one["favours"], one["retriever"]) for one in found["cautions"]] == [("b", "other")], (
        "it is what search was"
    )
    assert found["b"]["self_judged"] is True
    assert found["verdict"] == "no_difference_shown"


def test_judgments_that_a_later_version_of_the_suite_knows_the_source_of_count_for_both_runs(service: Api) -> None:
    loses_half(service, None)
    first = service.get("/v1/checks/docs/health")["id"]
    chunk = {"id": "c1", "source": OWN}
    canaries = [{"key": f"q{n}", "query": f"What is {n}?", "expected_chunks": [chunk]} for n in range(24)]
    service.put("/v1/suites/docs", {"canaries": canaries})
    later = service.run("other")
    found = service.get("/v1/compare", a=f"run:{first}", b=f"run:{later['id']}")
    assert (found["a"]["self_judged"], found["verdict"]) == (False, "no_difference_shown")
    assert [one["favours"] for one in found["cautions"]] == ["a"]


@pytest.mark.parametrize("own", [True, False])
def test_alerts_and_notifications_about_recall_say_so(service: Api, *, own: bool) -> None:
    rule = {"kind": "threshold", "measure": "R@3", "critical": {"below": 0.9}, "open": {"bad": 1, "of": 1}}
    service.docs(canaries=ticked(OWN if own else "retriever:other"), rules=[rule])
    service.retriever.found = {"How long is data kept?": ["c9"]}
    service.run()
    service.deliver()
    name = "R@3 (self-judged)" if own else "R@3"
    notice = json.loads(service.mailbox.messages[-1][1].body)
    data = notice["data"]
    assert data["summary"].startswith(f"docs: {name} 0.5")
    assert data["reason"].startswith(f"{name} 0.5")
    assert data["self_judged"] is own
    assert name in dict(NoticeText(notice).facts)
    (alert,) = service.get("/v1/alerts")["items"]
    assert alert["transitions"][-1]["evidence"].get("self_judged", False) is own
    page = words(service.client.get(f"/alerts/{alert['id']}").text)
    assert (f"docs: {name} 0.5" in page, "self-judged" in page) == (True, own)


def test_pooled_recall_in_an_alert_of_an_earlier_release_is_shown() -> None:
    stored: Any = {"pooled_recall": [{"k": 3, "value": 0.9, "low": 0.8, "high": 1.0, "task": "truth"}]}
    [note] = TypeAdapter(list[PooledNote]).validate_python(evidence(stored)["pooled_recall"])
    assert (note["queries"], note["asked_queries"], note["few_queries"]) == (None, None, False)
    assert pooled_text(note) == "0.900 (0.800 to 1.000)"


def test_each_run_of_an_alert_says_of_itself_whether_it_was_self_judged(service: Api) -> None:
    rule = {"kind": "threshold", "measure": "R@3", "critical": {"below": 0.9}, "open": {"bad": 2, "of": 3}}
    service.docs(canaries=ticked(), rules=[rule])
    service.run()
    service.put("/v1/suites/docs", {"canaries": ticked("retriever:other")})
    service.retriever.found = {"How long is data kept?": ["c9"]}
    service.run()
    service.run()
    (alert,) = service.get("/v1/alerts")["items"]
    page = Page(service.client.get(f"/alerts/{alert['id']}").text)
    assert page.one("table", class_="evaluated").text.count("self-judged") == 1, "of one run, not of the column"
    cells = [one.text for one in page.all("td") if one.get("data-label") == "R@3"]
    assert ["self-judged" in cell for cell in cells] == [True, False, False]


RULES = [
    {"kind": "threshold", "measure": "R@3", "critical": {"below": 0.9}, "open": {"bad": 1, "of": 1}},
    {"kind": "threshold", "measure": "MRR", "critical": {"below": 0.9}, "open": {"bad": 1, "of": 1}},
]


@pytest.mark.parametrize("own", [True, False])
def test_reasons_of_rules_and_verdicts_say_so(service: Api, *, own: bool) -> None:
    service.docs(canaries=ticked(OWN if own else None), rules=RULES)
    service.retriever.found = {"How long is data kept?": ["c9"]}
    run = service.run()
    name = "R@3 (self-judged)" if own else "R@3"
    bad = f"{name} 0.500 is below 0.9"
    assert f"{bad} (critical)" in run["reasons"], "and those of other measures have no label"
    assert "MRR 0.250 is below 0.9 (critical)" in run["reasons"]
    assert run["reasons"] == service.get("/v1/checks/docs/health")["reasons"]
    (alert,) = [one for one in service.get("/v1/alerts")["items"] if one["rule"] == "threshold-R@3"]
    assert alert["reason"].startswith(bad)
    assert alert["transitions"][-1]["reason"].startswith(bad)
    (rule,) = [one for one in service.get("/v1/checks/docs/alerting")["rules"] if one["rule"] == "threshold-R@3"]
    assert rule["reason"].startswith(bad)
    for page in ("/", "/checks/docs", f"/runs/{run['id']}", "/alerts", f"/alerts/{alert['id']}"):
        assert bad in words(service.client.get(page).text), page
    for form in ("markdown", "html", "junit"):
        assert bad in words(service.client.get(f"/v1/runs/{run['id']}/report?format={form}").text), form
    service.retriever.found = {}
    service.run()
    good = f"{name} 1.000 is not below 0.9"
    (rule,) = [one for one in service.get("/v1/checks/docs/alerting")["rules"] if one["rule"] == "threshold-R@3"]
    assert rule["reason"].startswith(good)
    assert good in words(service.client.get("/checks/docs").text)


@pytest.mark.parametrize("own", [True, False])
def test_tables_and_floors_say_so(service: Api, *, own: bool) -> None:
    source = OWN if own else None
    chunks = [{"id": one, **({"source": source} if source else {})} for one in ("c1", "c2")]
    queries = [f"What is {number}?" for number in range(24)]
    categories = ("procedural", "simple_factual")
    canaries = [
        {"key": f"q{place}", "query": one, "expected_chunks": chunks, "category": categories[place % 2]}
        for place, one in enumerate(queries)
    ]
    service.docs(canaries=[{**one, "floors": {"R@3": 0.9}} for one in canaries], rules=RULES[:1], use="completeness")
    first = service.run()
    service.retriever.found = {one: ["c1"] for one in queries}
    run = service.run()
    name, label = ("R@3 (self-judged)", "R@3 self-judged") if own else ("R@3", "R@3")
    floor = f"{name} 0.500 is below its floor 0.9"
    (alert,) = service.get("/v1/alerts")["items"]
    shown = {path: words(service.client.get(path).text) for path in (f"/runs/{run['id']}", "/checks/docs")}
    shown |= {
        form: words(service.client.get(f"/v1/runs/{run['id']}/report?format={form}&since={first['id']}").text)
        for form in ("markdown", "html")
    }
    shown["junit"] = service.client.get(f"/v1/runs/{run['id']}/report?format=junit").text
    for place, text in shown.items():
        assert floor in text, place
    assert f"| {name} | 1.000 | 0.500 | -0.500 |" in shown["markdown"]
    assert f"{name} 1.000 0.500 -0.500" in shown["html"]
    assert f"Ended Index version {label} Bound" in words(service.client.get(f"/alerts/{alert['id']}").text)
    pair = f"a=run:{first['id']}&b=run:{run['id']}"
    compared = words(service.client.get(f"/compare?{pair}").text)
    assert f"Worse than before: {name} down 0.500 on every canary" in compared
    assert f"Category Canaries {label} NDCG@10" in compared
    assert f"The largest losses first, by {label}." in compared.replace(" .", ".")
    assert floor in words(service.client.get(f"/compare/canary?{pair}&key=q0").text)
    arguments = ["compare", f"run:{first['id']}", f"run:{run['id']}", "--format", "markdown"]
    markdown = CliRunner().invoke(app, [*arguments, "--data-dir", str(service.service.settings.data_dir)]).stdout
    assert f"A is better by {name}: 24" in markdown
    assert f"Expected chunk {label} before Now Difference Overlap" in compared


def test_a_reminder_has_the_label_once(service: Api) -> None:
    service.docs(canaries=ticked(), rules=RULES[:1], remind="1h")
    service.retriever.found = {"How long is data kept?": ["c9"]}
    service.run()
    service.deliver()
    store = service.service.store
    for check in transitions.checks_at_tick(store):
        assert transitions.at_tick(store, check, now=datetime.now(UTC) + timedelta(hours=2))
    (alert,) = service.get("/v1/alerts")["items"]
    reminder = alert["transitions"][-1]
    assert reminder["type"] == "reminded"
    assert reminder["reason"].count("R@3 (self-judged) 0.500") == 1
    assert reminder["reason"].count("self-judged") == 1


def test_a_run_judged_anew_has_it_in_its_reasons(service: Api) -> None:
    service.docs(canaries=ticked(), rules=RULES[:1])
    service.retriever.found = {"How long is data kept?": ["c9"]}
    run = service.run()
    chunks = [{"id": chunk, "source": OWN} for chunk in ("c1", "c8")]
    service.put("/v1/suites/docs/canaries/retention", {"query": "How long is data kept?", "expected_chunks": chunks})
    assert service.client.post("/v1/checks/docs/rescorings").status_code == 202
    assert rescored(service) == 1
    (version,) = service.get("/v1/checks/docs/rescorings")["items"]
    again = service.get(f"/v1/runs/{run['id']}", measures_version=version["measures_version"])
    assert "R@3 (self-judged) 0.500 is below 0.9 (critical)" in again["reasons"]


def test_an_older_run_says_so_as_the_newest_does(service: Api) -> None:
    service.docs(canaries=ticked())
    first = service.run()
    service.put("/v1/suites/docs", {"canaries": ticked("retriever:other")})
    assert service.run()["self_judged"] is False
    assert service.get(f"/v1/runs/{first['id']}")["self_judged"] is True


# --- where sources come from ---------------------------------------------------------------------------------


def graded(store: Store, **owner: Any) -> Desk:
    desk = Desk.of(store, **owner)
    desk.make_pool()
    desk.grade_all("Ann")
    return desk


def sources(store: Store) -> set[str | None]:
    chunks = references.load_canary(store, "suite", "refunds").body["expected_chunks"]
    return {chunk["source"] for chunk in chunks if chunk["id"] != "doc-refunds"}


def test_adopted_judgments_come_from_their_task(sqlite_store: Store) -> None:
    desk = graded(sqlite_store)
    annotations.adopt(sqlite_store, "truth", now=desk.world.clock.advance(1))
    assert sources(sqlite_store) == {"task:truth"}


def test_patches_of_files_have_the_source(sqlite_store: Store) -> None:
    desk = graded(sqlite_store, owner=FILE)
    found = annotations.adopt(sqlite_store, "truth", now=desk.world.clock.advance(1))
    assert "source: task:truth" in (found["patches"][0]["yaml"] or "")


def test_ticked_hits_come_from_the_retriever_that_returned_them(service: Api) -> None:
    service.docs(canaries=[])
    fields = {"query": "How long?", "retriever": "search"}
    found = service.client.post("/suites/docs/add", data={**fields, "do": "find"}).text
    assert 'name="found_of" value="search"' in found
    hit = {"found_of": "search", "found": "0", "found[0].id": "c1", "found[0].text": "t", "found[0].grade": "2"}
    kept = service.client.post("/suites/docs/add", data={**fields, **hit, "retriever": "", "do": "keep"}).text
    assert "source retriever:search" in words(kept)
    row = {"expected_chunks[0].id": "c1", "expected_chunks[0].grade": "2", "expected_chunks[0].source": OWN}
    service.client.post("/suites/docs/add", data={**fields, **row, "do": "save"})
    (canary,) = service.get("/v1/suites/docs/canaries")["items"]
    assert [(one["id"], one["source"]) for one in canary["expected_chunks"]] == [("c1", OWN)]


def test_sources_leave_and_come_with_files(service: Api) -> None:
    service.docs(canaries=ticked("task:truth"))
    assert "source: task:truth" in service.client.get("/v1/export").text
    exported = service.client.get("/v1/export?format=csv&suite=docs").json()["files"]["docs.csv"]
    assert "judgment_source" in exported.splitlines()[0]
    answer = service.client.post("/v1/import?format=csv&suite=again", json={"files": {"again.csv": exported}})
    assert answer.status_code == 200, answer.text
    again = service.get("/v1/suites/again/canaries/retention")["expected_chunks"]
    assert [one["source"] for one in again] == ["task:truth"]
    lost = service.client.get("/v1/export?format=trec&suite=docs").json()["notes"]
    assert [note for note in lost if "sources of judgments (lost 2x)" in note]


@pytest.mark.both
@pytest.mark.parametrize(
    ("changes", "own"),
    [({"retrievers": ["bm25"], "strata": []}, True), ({"retrievers": ["bm25"]}, True), ({"strata": []}, False)],
)
def test_a_task_over_one_retriever_is_no_better_than_ticking_its_hits(
    store: Store, changes: dict[str, Any], *, own: bool
) -> None:
    Desk.of(store, **changes)
    with store.read() as connection:
        assert is_self_judged(connection, {"task:truth": 1.0}, "bm25") is own
        assert is_self_judged(connection, {"task:truth": 0.5, "": 0.5}, "bm25") is own
        assert not is_self_judged(connection, {"task:truth": 1.0}, "dense")
        assert judging_retrievers(connection, {"task:truth": 0.7, "retriever:dense": 0.3}) == (
            ["bm25", "dense"] if own else ["dense"]
        )
        assert not is_self_judged(connection, {"task:truth": 0.1, "task:gone": 0.9}, "bm25")


def test_what_earlier_releases_stored_of_sources_is_read() -> None:
    assert stored_shares({"judgment_sources": [OWN, "task:b"]}) == {OWN: 0.5, "task:b": 0.5}
    assert stored_shares({"judgment_shares": {OWN: 0.3, "": 0.7}}) == {OWN: 0.3, "": 0.7}
    assert stored_shares({}) == {}
