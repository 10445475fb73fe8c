"""Reports of runs: intervals of means, what is read first, and what changed since another run."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.base.db.engine import Store
from app.base.errors import InvalidInputError, NotFoundError
from app.base.values import Outcome
from app.comparison.domain.estimates import FEWEST_PAIRS, estimate, mean_interval
from app.comparison.domain.outcomes import Change
from app.records.service import run_views
from app.reports.rendering.report_measures import ERR_SCALE, INTERVAL_NOTE
from app.reports.rendering.reports import report_html, report_markdown
from app.reports.service import reports
from app.reports.views import FullReport
from tests.support.fakes import answered, failed, hits
from tests.support.html_pages import Page
from tests.support.pages_service import Site, site
from tests.support.world import CHECK, COVERAGE, canary, page

SIMPLE, FEW = 16, 4
KEYS = [f"q{number:02}" for number in range(SIMPLE + FEW)]
WIDE = {"fetch_k": 10, "cutoffs": [1, 3, 5, 10, 20]}


def noisy(key: str, rank: int | None) -> Any:
    """Return an answer of ten hits with the expected chunk at a rank, or without it."""
    ids = [f"noise-{place}" for place in range(1, 11)]
    if rank is not None:
        ids[rank - 1] = f"doc-{key}"
    return answered(hits(*ids))


def world_of(store: Store, **check: Any) -> Site:
    """Give a run of sixteen simple canaries, found at ranks 1 to 4, four procedural, found first, and a negative."""
    made = site(store)
    canaries = [canary(key) for key in KEYS[:SIMPLE]] + [canary(key, category="procedural") for key in KEYS[SIMPLE:]]
    canaries.append({"key": "dodo", "query": "dodo", "category": "negative"})
    files = page(canaries, rules=[COVERAGE])
    files["checks"][0] |= {**WIDE, **check}
    made.world.apply(files)
    for place, key in enumerate(KEYS):
        made.world.probe.answers[key] = noisy(key, 1 + place % 4 if place < SIMPLE else 1)
    made.world.run()
    return made


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give such a run of a check of general use."""
    return world_of(sqlite_store)


@pytest.fixture(scope="module")
def seen(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to tests that only look at it."""
    return world_of(shared_stores())


@pytest.fixture(scope="module")
def worse(shared_stores: Callable[[], Store]) -> Site:
    """Give the same run and another in which ten canaries lost their chunk, to tests that only look at them."""
    pages = world_of(shared_stores())
    for key in KEYS[:10]:
        pages.world.probe.answers[key] = noisy(key, None)
    pages.world.run()
    return pages


def load(pages: Site, run: str = "1", **more: Any) -> FullReport:
    """Load a report."""
    return reports.load_report(pages.world.store, run, **more)


# --- intervals ---------------------------------------------------------------------------------------------------


def test_the_interval_of_a_mean_is_the_bootstrap_of_a_difference_from_nothing() -> None:
    scores = np.random.default_rng(1).random(40)
    found, paired = mean_interval(scores), estimate("R@5", np.zeros(40), scores)
    assert found == (paired.low, paired.high)
    assert mean_interval([*scores, np.nan]) == found, "what was not measured is left out"


@pytest.mark.parametrize(
    ("scores", "has"),
    [
        ([0.0] * (FEWEST_PAIRS - 2) + [1.0], False),
        ([0.0] * (FEWEST_PAIRS - 1) + [1.0], True),
        ([1.0] * 500, False),
        ([np.nan] * 50, False),
        ([], False),
    ],
)
def test_there_is_no_interval_below_ten_canaries_or_where_all_are_equal(scores: list[float], *, has: bool) -> None:
    assert (mean_interval(scores) is not None) is has


def test_every_mean_of_the_run_lies_within_its_interval(seen: Site) -> None:
    report = load(seen)
    intervals, means = report["intervals"]["run"], report["run"]["measures"]
    assert {"R@1", "NDCG@10", "ERR@3", "MRR", "MAP"} <= intervals.keys()
    for name, one in intervals.items():
        mean: Any = report["run"][name] if name in {"coverage", "health_score"} else means[name]  # type: ignore[literal-required] # two names of those that it has
        assert one["low"] < mean < one["high"], name
        assert one["canaries"] == SIMPLE + FEW
    assert "R@5" not in intervals, "all are found there: resamples cannot say how many others would be"
    assert means["R@5"] == 1.0


def test_a_failed_probe_and_a_canary_without_expectations_enter_no_interval(sqlite_store: Store) -> None:
    pages = world_of(sqlite_store)
    pages.world.probe.answers[KEYS[0]] = failed(Outcome.TIMEOUT)
    pages.world.run()
    assert load(pages, "2")["intervals"]["run"]["MRR"]["canaries"] == SIMPLE + FEW - 1


def test_a_category_has_intervals_of_its_own_from_ten_canaries_on(seen: Site) -> None:
    categories = load(seen)["intervals"]["categories"]
    assert categories["procedural"] == {}
    assert categories["simple_factual"]["MRR"]["canaries"] == SIMPLE


def test_intervals_do_not_depend_on_how_many_results_are_read_at_once(
    pages: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.world.probe.answers[KEYS[3]] = failed(Outcome.TIMEOUT)
    pages.world.probe.answers[KEYS[5]] = noisy(KEYS[5], None)
    pages.world.run()
    at_once = load(pages, "2")
    monkeypatch.setattr(run_views, "_BLOCK", 3)
    assert load(pages, "2") == at_once
    assert [one["key"] for one in at_once["worst"]] == [KEYS[3], "dodo", KEYS[5]]
    assert [one["outcome"] for one in at_once["results"]] == [Outcome.TIMEOUT, Outcome.OK, Outcome.OK]


# --- what is read --------------------------------------------------------------------------------------------------


def cells_of(text: str, heading: str) -> list[list[str]]:
    """Return the cells of a table of the Markdown, its head first."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].replace("\\", "")
    lines = [line for line in section.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_markdown_and_html_show_every_mean_with_its_interval_and_no_column_beyond_fetch_k(seen: Site) -> None:
    report = load(seen)
    text = report_markdown(report)
    table = cells_of(text, "Measures")
    assert table[0] == ["measure", "@1", "@3", "@5", "@10"]
    one = report["intervals"]["run"]["NDCG@3"]
    shown = f"{report['run']['measures']['NDCG@3']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
    assert {row[0]: row[2] for row in table}["NDCG"] == shown
    assert {row[0]: row[3] for row in table}["R"] == "1.000"
    html = Page(report_html(report))
    assert shown in [cell.text for cell in html.all("td")]
    for page_text in (text.replace("\\", ""), html.text):
        assert INTERVAL_NOTE[1:] in page_text
        assert ERR_SCALE in page_text
    assert "@20" not in text + html.text
    assert report["run"]["measures"]["R@20"] is None, "in JSON it is undefined"


def test_each_category_has_its_measures_at_every_cut_off(seen: Site) -> None:
    report = load(seen)
    text = report_markdown(report)
    one = report["intervals"]["categories"]["simple_factual"]["NDCG@3"]
    rows = {row[0]: row for row in cells_of(text, "Measures: simple factual")}
    assert rows["NDCG"][2].endswith(f"({one['low']:.3f} to {one['high']:.3f})")
    assert {row[0]: row for row in cells_of(text, "Measures: procedural")}["NDCG"] == ["NDCG", *["1.000"] * 4]
    head, _, procedural, simple = cells_of(text, "Categories")
    assert head[:6] == ["category", "canaries", "coverage", "first-hit relevance", "NDCG@10", "R@5"]
    assert (simple[0], procedural[4]) == ("simple factual", "1.000")


@pytest.mark.parametrize(
    ("use", "first", "rows"),
    [
        ("general", "NDCG@10", ["NDCG", "R"]),
        ("completeness", "R@5", ["R", "Hit"]),  # recall is the measure itself
        ("single_answer", "MRR", ["MRR", "R"]),  # of no cut-off
    ],
)
def test_the_measure_of_the_use_comes_first_with_recall_and_the_reason(
    sqlite_store: Store, use: str, first: str, rows: list[str]
) -> None:
    report = load(world_of(sqlite_store, use=use))
    assert report["guide"] is not None
    assert (report["guide"]["use"], report["guide"]["measure"], report["guide"]["recall"]) == (use, first, "R@5")
    text = report_markdown(report).replace("\\", "")
    lead, sentence = text.split("\n\n")[1:3]
    assert re.match(rf"{first} \d\.\d{{3}}", lead)
    assert "R@5 1.000" in lead
    assert sentence == report["guide"]["sentence"]
    assert [row[0] for row in cells_of(text, "Measures")[1:3]] == rows
    shown = Page(report_html(report))
    assert f"{sentence}." in [one.text for one in shown.all("p")]
    assert shown.all("dt")[0].text == first


# --- what changed ----------------------------------------------------------------------------------------------------


def test_since_another_run_says_what_is_claimed_who_degraded_and_who_healed(worse: Site) -> None:
    report = load(worse, "2", since="1")
    since = report["since"]
    assert since is not None
    assert since["decision"]["verdict"] == "worse"
    assert (since["changes"][Change.DEGRADED], since["changes"][Change.HEALED], since["before"]["id"]) == (10, 0, "1")
    assert {one["key"] for one in since["degraded"]} == set(KEYS[:10])
    assert (since["degraded"][0]["rank_before"], since["degraded"][0]["rank_now"]) == (1, None)
    text = report_markdown(report).replace("\\", "")
    assert f"since run 1: {since['decision']['sentence']}" in text
    assert "canaries since run 1: 10 degraded, 11 same" in text
    assert [row[0] for row in cells_of(text, "Degraded since run 1")[1:]] == [one["key"] for one in since["degraded"]]
    rows = {row[0]: row for row in cells_of(text, "Change since run 1")}
    assert rows["R@5"][1:4] == ["1.000", "0.500", "-0.500"]
    assert rows["R@5"][5] == "fell"
    assert "Healed since run 1" not in text
    back = load(worse, "1", since="2")["since"]
    assert back is not None
    assert (back["decision"]["verdict"], len(back["healed"]), back["degraded"]) == ("better", 10, [])
    assert back["healed"][0]["reasons"] == []


def test_a_report_without_since_says_nothing_of_other_runs(worse: Site) -> None:
    report = load(worse, "2")
    assert report["since"] is None
    assert "since run" not in report_markdown(report) + report_html(report)


def test_only_a_run_of_the_same_check_can_be_named(pages: Site) -> None:
    body = {"suite": "suite", "retriever": "search", "schedule": {"every": "5m"}}
    assert pages.client().put("/v1/checks/other", json=body).status_code == 201
    pages.world.run("other")
    with pytest.raises(InvalidInputError, match=f"must be a run of check '{CHECK}'"):
        load(pages, "1", since="2")
    with pytest.raises(NotFoundError):
        load(pages, "1", since="7")


def test_the_api_gives_the_report_with_the_change_in_every_format(worse: Site) -> None:
    client = worse.client()
    body = client.get("/v1/runs/2/report?format=json&since=1").json()
    assert list(body) == [
        "run", "worst", "guide", "intervals", "since", "pooled_recall", "composition", "confirmed", "corrected",
        "rated",
        "bad_answers",
        "unjudged_answers",
        "unwatched",
    ]  # fmt: skip
    assert body["since"]["changes"]["degraded"] == 10
    assert body["intervals"]["run"]["MRR"].keys() == {"canaries", "low", "high"}
    for form in ("markdown", "html"):
        assert "ince run 1: worse than before" in client.get(f"/v1/runs/2/report?format={form}&since=1").text, form
    for form in ("json", "markdown", "html"):
        assert client.get(f"/v1/runs/2/report?format={form}&since=9").status_code == 404, form


def test_a_run_that_was_never_carried_out_has_a_report_of_nothing(pages: Site) -> None:
    pages.world.probe.all_fail()
    pages.world.run()
    report = load(pages, "2")
    assert report["intervals"]["run"] == {}
    assert "NDCG" not in report_markdown(report)


# --- where numbers of measures are shown on pages ------------------------------------------------------------------


def test_the_scale_of_err_is_explained_on_every_page_that_shows_err(worse: Site) -> None:
    check = worse.page(f"/checks/{CHECK}")
    assert [one for one in check.all("th") if one.text == "ERR"]
    assert ERR_SCALE in [one.text.rstrip(".") for one in check.all("p")]
    assert check.one("span", id="chart-scale").text == f"{ERR_SCALE}."
    diff = worse.page("/compare?a=run:1&b=run:2")
    assert [one for one in diff.all("th") if one.text == "ERR@5"]
    assert ERR_SCALE in diff.text


def test_the_page_of_a_run_links_to_the_report_with_the_change_since_the_one_before(worse: Site) -> None:
    link = worse.page("/runs/2").one("a", href="/v1/runs/2/report?format=html&since=1")
    assert link.text == "Report with changes since run 1"
    assert "changes since" not in worse.page("/runs/1").text


# --- composition -------------------------------------------------------------------------------------------------


def test_a_report_counts_the_canaries_of_its_run_by_category_and_segment(sqlite_store: Store) -> None:
    made = site(sqlite_store)
    canaries = [canary("a", segment="frequent"), canary("b", segment="edge", category="procedural"), canary("c")]
    made.world.apply(page(canaries, rules=[COVERAGE]))
    made.world.run()
    made.world.apply(page([canary("a")], rules=[COVERAGE]))
    report = load(made)
    found = report["composition"]
    assert found is not None
    assert [(one["category"], one["segments"]["edge"]) for one in found["categories"]] == [
        ("simple_factual", 0),
        ("procedural", 1),
    ]
    assert (found["segments"][0], found["not_stated"]) == ({"segment": "frequent", "canaries": 1, "target": 3}, 1)
    markdown = report_markdown(report)
    assert "| category | frequent | edge | challenging | temporal | not stated |" in markdown
    assert "| all | 1 | 1 | 0 | 0 | 1 |\n| to have at least | 3 | 3 | 3 | 3 |" in markdown
    note = "procedural: 1 of 1 with fewer expected chunks than usual (5 to 10)"
    assert note in markdown
    assert note in Page(report_html(report)).text


def test_without_a_stated_segment_a_report_counts_categories_alone(seen: Site) -> None:
    markdown = report_markdown(load(seen))
    assert "| procedural | 4 |" in markdown
    assert "frequent" not in markdown


def test_without_anything_to_note_a_report_has_no_composition(sqlite_store: Store) -> None:
    made = site(sqlite_store)
    made.world.apply(page([canary("a")], rules=[COVERAGE]))
    made.world.run()
    assert "Composition" not in report_markdown(load(made))
