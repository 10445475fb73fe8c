"""The pages of a comparison: what is chosen, one sentence, both sides, and the list that leads to both rankings."""

from collections.abc import Callable

import pytest

from app.base.db.engine import Store
from app.base.values import Outcome
from app.comparison.pages import SIZE, draw_scatter
from app.comparison.rendering import comparison_notes
from app.comparison.service import comparisons
from tests.support.fakes import answered, failed, hits
from tests.support.pages_service import HOSTILE, Site, site
from tests.support.world import CHECK, RETRIEVER, canary, page

KEYS = tuple(f"c{number:02}" for number in range(30))
OTHER = "second"
PATH = f"/compare?a=check:{CHECK}&b=check:{OTHER}"


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give two checks over one suite: of the second one twelve canaries are lost, one is won and one failed."""
    return _pages_of(sqlite_store)


@pytest.fixture(scope="module")
def seen(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to tests that only look at it."""
    return _pages_of(shared_stores())


def _pages_of(store: Store) -> Site:
    found = site(store)
    canaries = [canary(key, category="procedural" if key > "c14" else "simple_factual") for key in KEYS]
    one, two = page(canaries, k=5, rules=[]), page(canaries, slug=OTHER, retriever="other", k=5, rules=[])
    one["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    one["checks"] += two["checks"]
    found.world.apply(one)
    found.world.probe.answers = {"c27": answered(hits("noise", "doc-c27"))}
    found.world.run(index_version="v1")
    found.world.probe.answers = {key: answered(hits("noise")) for key in KEYS[:12]} | {
        "c28": failed(Outcome.REFUSED, http_status=503)
    }
    found.world.run(OTHER, index_version="v2")
    return found


def test_before_two_are_chosen_the_page_offers_checks_and_runs(seen: Site) -> None:
    shown = seen.page("/compare")
    for name in ("a", "b"):
        assert shown.all("select", name=name)
    offered = [one.get("value") for one in shown.all("option")]
    assert offered == ["", f"check:{OTHER}", f"check:{CHECK}", "run:2", "run:1"] * 2
    assert "Two checks of one suite" in shown.text
    assert shown.all("a", href="/compare")[0].text == "Compare", "the navigation leads here"


def test_what_is_chosen_stays_chosen_and_its_runs_are_offered(pages: Site) -> None:
    pages.world.run()
    shown = pages.page("/compare?a=run:1")
    chosen = [one.get("value") for one in shown.all("option") if "selected" in one.attributes]
    assert chosen == ["run:1", ""]
    assert [one.get("value") for one in shown.all("option")][:5] == [
        "", f"check:{OTHER}", f"check:{CHECK}", "run:3", "run:1",
    ]  # fmt: skip
    assert not shown.all("section", **{"aria-labelledby": "result"})


def test_nothing_to_compare_is_said(sqlite_store: Store) -> None:
    empty = site(sqlite_store)
    assert "No run has ended yet" in empty.page("/compare").text


def test_two_checks_stand_side_by_side(seen: Site) -> None:
    shown = seen.page(PATH)
    assert "worse B scores worse than A: NDCG@10 down 0." in shown.text
    assert "over 29 canaries" in shown.text
    assert "Different retrievers were asked, search and other." in shown.text
    assert "Not compared: 1 canary" in shown.text
    rows = {one.text.split()[0]: one.text for one in shown.all("tr")}
    assert rows["R@5"].endswith("higher in A")
    assert rows["Hit@1"].endswith("exploratory")
    assert rows["simple"].split()[:3] == ["simple", "factual", "15"]
    assert rows["simple"].endswith("A by NDCG@10, R@5, P@5, MRR@10, coverage")
    assert rows["procedural"].endswith("no clear difference")
    assert shown.all("a", href=f"/compare?a=check%3A{OTHER}&b=check%3A{CHECK}")[0].text == "Swap A and B"
    assert all(word not in shown.text.lower() for word in ("before", " now")), "A and B are no before and now"


def test_losses_and_wins_lead_to_both_rankings(seen: Site) -> None:
    shown = seen.page(PATH)
    links = [one.get("href") for one in shown.all("a") if "/compare/canary" in one.get("href")]
    assert links[0] == "/compare/canary?a=run%3A1&b=run%3A2&key=c00"
    assert len(links) == 25
    won = seen.page(f"{PATH}&show=b")
    assert [one.get("href").rpartition("=")[2] for one in won.all("a") if "/compare/canary" in one.get("href")] == [
        "c27"
    ]
    told = seen.page(f"{PATH}&after=25")
    assert len([one for one in told.all("a") if "/compare/canary" in one.get("href")]) == 4
    (chosen,) = [one for one in won.all("a", **{"aria-current": "true"}) if one.text.startswith("higher")]
    assert chosen.text == "higher in B 1"
    both = seen.page(links[0])
    assert "doc-c00" in both.one("section", **{"aria-labelledby": "in-A"}).text
    assert "Expected, but not found" in both.one("section", **{"aria-labelledby": "in-B"}).text
    assert both.all("a", href="/compare?a=run%3A1&b=run%3A2")


def test_a_canary_that_one_run_lacks_is_said_to_be_lacking(pages: Site) -> None:
    pages.world.apply(page([canary(key) for key in (*KEYS, "new")], k=5, rules=[]))
    pages.world.run()
    shown = pages.page("/compare/canary?a=run:1&b=run:3&key=new")
    assert "This run did not have the canary." in shown.one("section", **{"aria-labelledby": "in-A"}).text
    assert "neither run has a canary" in pages.page("/compare/canary?a=run:1&b=run:3&key=nobody", 404).text


def test_the_chart_shows_every_compared_canary(seen: Site) -> None:
    chart = seen.page(PATH).one("svg", role="img", viewbox=f"-26 -6 {SIZE + 32} {SIZE + 34}")
    assert chart.get("aria-label") == "NDCG@10 of each canary in A and in B: 12 higher in A, 1 higher in B, 16 the same"


def test_points_of_a_chart_lie_where_their_scores_say_and_larger_where_canaries_are_more() -> None:
    drawn = draw_scatter("R@5", [1.0, 1.0, 1.0, 0.0, 0.5, float("nan")], [1.0, 1.0, 0.0, 1.0, 0.5, 1.0])
    places = {(point.kind, point.x, SIZE - point.y): point.radius for point in drawn.points}
    low, high = drawn.low, drawn.high
    middle = (low + high) / 2
    assert places.keys() == {("tie", high, high), ("tie", middle, middle), ("a", high, low), ("b", low, high)}
    assert places["tie", high, high] == max(places.values()) > places["a", high, low]
    assert drawn.points[0].title == "2 canaries: A 1.00, B 1.00"
    assert drawn.label == "R@5 of each canary in A and in B: 1 higher in A, 1 higher in B, 3 the same"
    assert all(point.radius <= low <= point.x <= high <= SIZE - point.radius for point in drawn.points[1:])
    assert draw_scatter("R@5", [], []).points == []


def test_beside_a_gain_of_one_category_stands_what_its_recall_may_have_lost(sqlite_store: Store) -> None:
    """B has the first good hit first everywhere; the other one it loses, or wins, for every other simple canary."""
    found = site(sqlite_store)
    more = {key: {"category": "procedural" if key > "c14" else "simple_factual"} for key in KEYS}
    canaries = [canary(key, expected_chunks=[f"doc-{key}", f"alt-{key}"], **more[key]) for key in KEYS]
    one, two = page(canaries, k=5, rules=[]), page(canaries, slug=OTHER, retriever="other", k=5, rules=[])
    one["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    one["checks"] += two["checks"]
    found.world.apply(one)
    odd = {key: number % 2 == 1 or key > "c14" for number, key in enumerate(KEYS)}
    found.world.probe.answers = {
        key: answered(hits("noise", f"doc-{key}", *([] if odd[key] and key <= "c14" else [f"alt-{key}"])))
        for key in KEYS
    }
    found.world.run()
    found.world.probe.answers = {
        key: answered(hits(f"doc-{key}", "noise", *([f"alt-{key}"] if odd[key] else []))) for key in KEYS
    }
    found.world.run(OTHER)
    shown = found.page(PATH)
    cautions = [item.text for item in shown.all("li") if "caution" in (item.get("class") or "")]
    told = "B gains in MRR@10, which the first good hit decides; its R@5 may be lower by up to 0"
    assert [text.rpartition(".")[0].rpartition(".")[0].strip() for text in cautions] == [
        told,
        f"Simple factual: {told}",
    ]
    view = comparisons.compare_references(found.world.store, f"check:{CHECK}", f"check:{OTHER}")[0]
    parts = {str(part["category"]): part["cautions"] for part in view["by_category"]}
    assert [len(parts[name]) for name in ("procedural", "simple_factual")] == [0, 1]
    notes = comparison_notes(view)
    assert [note.partition(" may be")[0] for note in notes if "MRR@10" in note] == [
        "B gains in MRR@10, which the first good hit decides; its R@5",
        "Simple factual: B gains in MRR@10, which the first good hit decides; its R@5",
    ]


def test_a_diff_across_checks_leads_to_the_comparison(seen: Site) -> None:
    answer = seen.client().get("/runs/1/diff/2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/compare?a=run%3A1&b=run%3A2")
    assert "B scores worse than A" in seen.page("/compare?a=run%3A1&b=run%3A2").text


def test_what_cannot_be_compared_is_a_page_that_says_so(seen: Site) -> None:
    cases: list[tuple[str, int]] = [
        ("a=1&b=run:1", 422),
        ("a=run:1&b=run:99", 404),
        ("a=run:1&b=check:nobody", 404),
        ("a=run:1&b=run:2&show=c", 422),
        ("a=run:1&b=run:2&after=-1", 422),
        (f"a=run:{'9' * 30}", 200),
    ]
    for query, status in cases:
        seen.page(f"/compare?{query}", status)


def test_hostile_texts_are_only_text(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page([canary("a", query=HOSTILE, tags=["t"]), canary("b")]))
    pages.world.probe.answers[HOSTILE] = answered(hits(HOSTILE))
    pages.world.run(index_version=HOSTILE[:200])
    pages.world.run(index_version=f"2 {HOSTILE}"[:200])
    for path in ("/compare?a=run:1&b=run:2", "/compare/canary?a=run:1&b=run:2&key=a"):
        shown = pages.page(path)
        assert all(script.get("src").startswith("/static/") for script in shown.all("script"))
        assert not shown.all("img", src="x")
        assert HOSTILE in shown.text
