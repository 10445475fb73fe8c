"""The use of a check: which measure it puts first, how it is stored, and what rules of the first hits alone miss."""

from pathlib import Path
from typing import Any

import pytest

from app.base.db.engine import Store
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.documents.secrets import content_hash
from app.catalog.documents.warnings import find_warnings
from app.catalog.domain import USE_REASONS, Use, is_top_heavy
from app.catalog.store import read_body
from app.scoring.measures import mean_name, parse_measure
from tests.support.api_service import CHECK, api
from tests.support.pages_service import Site, page, site
from tests.support.world import canary
from tests.support.world import page as canary_page

FIELDS: dict[str, Any] = {"slug": "watch", "suite": "suite", "retriever": "search", "schedule": {"every": "5m"}}
FORM = {"suite": "suite", "retriever": "search", "schedule": "every", "schedule.every": "5m", "k": "5"}
MRR = {"kind": "threshold", "measure": "MRR", "critical": {"below": 0.5}}
RECALL = {"kind": "threshold", "measure": "R@5", "critical": {"below": 0.5}}
WARNING = (
    "its rules watch the first hits only (MRR), which can rise while recall falls; add a rule on R@5 or "
    "'kind: regression'"
)


def document(**fields: Any) -> CheckDocument:
    """Return a check."""
    return CheckDocument.model_validate({**FIELDS, **fields})


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check with the default rules."""
    made = site(sqlite_store)
    made.world.apply(canary_page([canary("ant")], rules=[]))
    return made


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        ("general", "NDCG@10 comes first, R@5 beside it: it counts how much was found and how early"),
        ("completeness", "R@5 comes first: missing information is costly"),
        ("precision", "P@5 comes first, R@5 beside it: the context window is small"),
        ("single_answer", "MRR comes first, R@5 beside it: one answer is enough"),
        ("graded", "NDCG@5 comes first, R@5 beside it: relevance is graded and order matters"),
    ],
)
def test_each_use_puts_one_measure_first_recall_beside_it_and_says_why(use: str, sentence: str) -> None:
    guide = document(use=use).guide
    assert guide.sentence == sentence
    assert (guide.measure, guide.measures[-1]) == (sentence.split(maxsplit=1)[0], "R@5")
    assert [mean_name(parse_measure(name)) for name in guide.measures] == list(guide.measures)
    assert all(document(use=use).why_uncomputed(name) is None for name in guide.measures)


@pytest.mark.parametrize(
    "fields", [{"cutoffs": [1, 3]}, {"k": 3, "fetch_k": 5}, {"k": 20, "cutoffs": [20]}, {"k": 10, "cutoffs": [1]}]
)
def test_what_comes_first_is_measured_whatever_the_cutoffs(fields: dict[str, Any]) -> None:
    for use in Use:
        check = document(use=use, **fields)
        assert [name for name in check.guide.measures if check.why_uncomputed(name) is not None] == []


def test_a_stored_body_without_the_field_is_of_general_use_and_has_the_same_hash() -> None:
    body = document().data()
    assert body.pop("use") == "general"
    assert read_body("check", CheckDocument.model_validate(body).json_text())["use"] == "general"
    assert content_hash(CheckDocument.model_validate(body)) == content_hash(document())
    assert content_hash(document(use="graded")) != content_hash(document())


def test_an_export_names_the_use_only_where_it_is_not_general() -> None:
    assert "use:" not in write_canary_file(Documents(checks=(document(),)))
    written = write_canary_file(Documents(checks=(document(use="completeness"),)))
    assert "use: completeness\n" in written
    others = "suite: suite\ncanaries: [{key: a, query: b, expected_chunks: [c]}]\nretrievers:\n- {slug: search, "
    others += 'url: "http://127.0.0.1:1/", response: {hits: h, id: id}}\n'
    assert read_canary_files([("c.yaml", others + written)], {}, None).checks == (document(use="completeness"),)


def test_an_unknown_use_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="'general', 'completeness', 'precision', 'single_answer' or 'graded'"):
        document(use="speed")


def test_the_form_offers_each_use_with_its_reason_and_keeps_the_chosen_one(pages: Site) -> None:
    offered = {one.get("value"): one.text for one in pages.page("/new-check").all("option")}
    assert {use: offered[use] for use in Use} == {
        use: f"{use.replace('_', ' ')}: {why}" for use, why in USE_REASONS.items()
    }
    client = pages.client()
    assert client.post("/new-check", data={**FORM, "slug": "mine", "use": "precision"}).status_code == 303
    assert client.get("/v1/checks/mine").json()["use"] == "precision"
    (chosen,) = [one for one in pages.page("/checks/mine/edit").all("option") if one.get("value") == "precision"]
    assert "selected" in chosen.attributes
    pages.world.run("mine")
    shown = pages.page("/checks/mine")
    assert [one.text for one in shown.all("dt")][:3] == ["P@5", "R@5", "Coverage"]
    assert "P@5 comes first, R@5 beside it: the context window is small" in shown.text


# --- rules that miss a loss of recall ----------------------------------------------------------------------------


def test_measures_of_the_first_good_hit_are_top_heavy() -> None:
    for measure, k, expected in [
        ("MRR", 5, True),
        ("MRR@10", 5, True),
        ("Hit@1", 5, True),
        ("P@1", 5, True),
        ("NDCG@1", 5, True),
        ("NDCG@10", 5, False),
        ("R@5", 5, False),
        ("MAP", 5, False),
        ("coverage", 5, False),
        ("coverage", 1, True),
    ]:
        assert is_top_heavy(measure, k) is expected, measure


def test_rules_of_the_first_hits_alone_are_warned_of() -> None:
    for rules, warned in [
        ([], False),
        ([MRR], True),
        ([{**MRR, "kind": "drop", "critical": {"by": 0.1}}], True),
        ([MRR, {"kind": "threshold", "measure": "health_score", "critical": {"below": 0.5}}], True),
        ([MRR, {"kind": "latency", "critical": {"above": 2}}], True),
        ([MRR, {**RECALL, "enabled": False}], True),
        ([MRR, RECALL], False),
        ([MRR, {"kind": "regression"}], False),
        ([RECALL], False),
        ([{"kind": "latency", "critical": {"above": 2}}], False),
    ]:
        told = [one.message for one in find_warnings(Documents(checks=(document(rules=rules),)))]
        assert told == ([f"check 'watch': {WARNING}"] if warned else []), rules


def test_the_editor_the_page_of_the_check_and_the_api_warn_of_rules_of_the_first_hits(pages: Site) -> None:
    sentence = WARNING.capitalize().replace("mrr", "MRR").replace("r@5", "R@5")
    client = pages.client()
    form = {**FORM, "slug": "mine", "rules": "- {kind: threshold, measure: MRR, critical: {below: 0.5}}"}
    assert sentence in page(client.post("/new-check", data={**form, "do": "yaml"})).text
    assert client.post("/new-check", data=form).status_code == 303
    assert sentence in pages.page("/checks/mine").text
    assert sentence in pages.page("/checks/mine/edit").text
    assert sentence not in pages.page("/checks/watch/edit").text


def test_the_api_answers_a_check_of_the_first_hits_with_a_warning(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        service.docs()
        assert service.put("/v1/checks/docs", {**CHECK, "k": 5, "rules": [MRR]})["warnings"] == [WARNING]
        assert "warnings" not in service.put("/v1/checks/docs", {**CHECK, "k": 5, "rules": [MRR, RECALL]})


def test_coverage_of_the_first_hit_alone_is_top_heavy_too() -> None:
    coverage = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.5}}
    (told,) = find_warnings(Documents(checks=(document(k=1, rules=[coverage]),)))
    assert "the first hits only (coverage), which can rise while recall falls; add a rule on R@1" in told.message
