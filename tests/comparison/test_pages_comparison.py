"""The pages of a comparison: what is chosen, one sentence, both sides, and the list that leads to both rankings."""

from collections.abc import Callable

import pytest

from app.base.db.engine import Store
from app.base.values import Outcome
from app.comparison.domain.outcomes import Claim, Side
from app.comparison.domain.sentences import BEFORE_AND_NOW
from app.comparison.pages import BAR_WIDTH, FOREST_WIDTH, count_ranks, draw_forest, draw_slopes
from app.comparison.rendering import comparison_notes
from app.comparison.service import comparisons
from app.comparison.service.comparisons import RankPair
from app.comparison.views import ComparedMeasure
from tests.support.fakes import answered, failed, hits
from tests.support.html_pages import Element, Page
from tests.support.pages_service import HOSTILE, Site, site
from tests.support.world import CHECK, RETRIEVER, canary, page

KEYS = tuple(f"c{number:02}" for number in range(30))
OTHER = "second"
CHECKS = ((CHECK, "search"), (OTHER, "other"))
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


def shown_keys(shown: Page) -> list[str]:
    """Give the keys of the canaries in the table of a page."""
    return [one.text for one in shown.all("code") if one.text in KEYS]


def listed(shown: Page) -> list[str]:
    """Give the addresses of the canaries in the table of a page."""
    return [
        one.get("href") for one in shown.all("a") if "/compare/canary" in one.get("href") and one not in drawn(shown)
    ]


def drawn(shown: Page) -> list[Element]:
    """Give the canaries that a page draws."""
    return [one for one in shown.all("a") if ": " in one.get("aria-label")]


def test_first_is_chosen_what_to_compare_and_then_two_of_it(seen: Site) -> None:
    offered = {
        "run": {"2": f"{OTHER}, healthy, 2", "1": f"{CHECK}, healthy, 2"},
        "check": {OTHER: "healthy, suite suite", CHECK: "healthy, suite suite"},
        "retriever": {"other": "suite suite", "search": "suite suite"},
    }
    for what, choices in offered.items():
        shown = seen.page(f"/compare?what={what}")
        (chosen,) = [one for one in shown.all("a", **{"aria-current": "true"}) if "what=" in one.get("href")]
        assert chosen.get("href") == f"/compare?what={what}"
        assert [shown.one("input", name=name).get("list") for name in ("a", "b")] == ["choices", "choices"]
        found = {one.get("value"): one.text for one in shown.all("option")}
        assert list(found) == list(choices)
        assert all(found[name].startswith(text) for name, text in choices.items()), found
    assert seen.page("/compare").one("input", name="what").get("value") == "check"
    assert seen.page("/compare").all("a", href="/compare")[0].text == "Compare", "the navigation leads here"


def test_where_there_are_only_two_they_are_filled_in(seen: Site) -> None:
    for what, two in (("retriever", ["other", "search"]), ("check", [OTHER, CHECK]), ("run", ["", ""])):
        shown = seen.page(f"/compare?what={what}")
        assert [shown.one("input", name=name).get("value") for name in ("a", "b")] == two, what


def test_what_was_typed_leads_to_the_comparison(seen: Site) -> None:
    cases = {
        "what=run&a=1&b=2": "a=run%3A1&b=run%3A2",
        "what=run&a=run+1&b=%232": "a=run%3A1&b=run%3A2",
        f"what=run&a=1&b={OTHER}": f"a=run%3A1&b=check%3A{OTHER}",
        f"what=check&a={CHECK}&b=+{OTHER}+": f"a=check%3A{CHECK}&b=check%3A{OTHER}",
        f"what=check&a=run:1&b={OTHER}": f"a=run%3A1&b=check%3A{OTHER}",
        "what=retriever&a=search&b=other": "a=retriever%3Asearch&b=retriever%3Aother",
    }
    for typed, target in cases.items():
        answer = seen.client().get(f"/compare?{typed}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/compare?{target}")


def test_what_is_chosen_stays_in_its_field_and_runs_of_its_check_are_offered_first(pages: Site) -> None:
    for _ in range(30):
        pages.world.run()
    pages.world.run(OTHER)
    shown = pages.page("/compare?a=run:1")
    assert [shown.one("input", name=name).get("value") for name in ("a", "b")] == ["1", ""]
    offered = [one.get("value") for one in shown.all("option")]
    assert offered == [*(str(number) for number in range(32, 2, -1)), "1", "33", "2"], "all of them"
    assert not shown.all("section", **{"aria-labelledby": "result"})


def test_what_was_typed_and_is_not_there_is_said_beside_the_fields(seen: Site) -> None:
    shown = seen.page("/compare?a=run:2&b=check:nobody", 404)
    assert shown.one("p", role="alert").text == "There is no check 'nobody'."
    assert [shown.one("input", name=name).get("value") for name in ("a", "b")] == ["run:2", "nobody"]
    near = seen.page(f"/compare?a=check:{CHECK}&b=check:secnd", 404)
    assert near.one("p", role="alert").text == "There is no check 'secnd'; did you mean 'second'?"


def test_the_largest_gains_come_first_where_only_gains_are_shown(pages: Site) -> None:
    pages.world.probe.answers = {"c20": answered(hits("noise", "doc-c20")), "c21": answered(hits("noise"))}
    pages.world.run()
    shown = pages.page("/compare?a=run:3&b=check:second&show=better")
    assert shown_keys(shown) == ["c21", "c20"]
    assert "The largest gains first" in shown.text


def test_two_retrievers_are_compared_by_the_newest_runs_over_one_suite(pages: Site) -> None:
    """Retriever `other` is asked by a newer run of another suite too, which is not what is compared."""
    lone = page([canary("x")], slug="lone", suite="lone", retriever="other", k=5, rules=[])
    both = [page([canary(key) for key in KEYS], slug=slug, retriever=asked, k=5, rules=[]) for slug, asked in CHECKS]
    suite = {**both[0], "checks": [check for one in both for check in one["checks"]]}
    suite["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    pages.world.apply(suite, {**lone, "retrievers": [], "hooks": []})
    pages.world.run("lone")
    shown = pages.page("/compare?a=retriever:search&b=retriever:other")
    assert "B scores worse than A" in shown.text
    assert {"/runs/1", "/runs/2"} <= {one.get("href") for one in shown.all("a")}
    assert shown.one("input", name="what").get("value") == "retriever"
    assert [shown.one("input", name=name).get("value") for name in ("a", "b")] == ["search", "other"]
    alone = pages.page("/compare?a=retriever:other&b=run:3")
    assert {"/runs/3"} == {one.get("href") for one in alone.all("a") if one.get("href").startswith("/runs/")}
    assert "no retriever 'nobody'" in pages.page("/compare?a=retriever:nobody&b=run:1", 404).text


def test_nothing_to_compare_is_said(sqlite_store: Store) -> None:
    empty = site(sqlite_store)
    assert "No run has ended yet" in empty.page("/compare").text


def test_two_checks_stand_side_by_side(seen: Site) -> None:
    shown = seen.page(PATH)
    assert "worse B scores worse than A: NDCG@10 down 0." in shown.text
    assert "over 29 canaries" in shown.text
    assert "Different retrievers were asked, search and other." in shown.text
    assert "retriever search" not in shown.one("div", class_="pair").text, "it is told once"
    assert "Not compared: 1 canary" in shown.text
    rows = {one.text.split()[0]: one.text for one in shown.all("tr")}
    assert rows["R@5"].endswith("A is better")
    assert rows["Hit@1"].endswith("exploratory")
    assert rows["simple"].split()[:3] == ["simple", "factual", "15"]
    assert rows["simple"].endswith("A is better by NDCG@10, R@5, P@5, MRR@10, coverage")
    assert rows["procedural"].endswith("no clear difference")
    assert shown.all("a", href=f"/compare?a=check%3A{OTHER}&b=check%3A{CHECK}")[0].text == "Swap A and B"
    assert all(word not in shown.text.lower() for word in ("before", " now")), "A and B are no before and now"


def test_losses_and_wins_lead_to_both_rankings(seen: Site) -> None:
    shown = seen.page(PATH)
    links = listed(shown)
    assert links[0] == "/compare/canary?a=run%3A1&b=run%3A2&key=c00"
    assert len(links) == 25
    won = seen.page(f"{PATH}&show=b")
    assert shown_keys(won) == ["c27"]
    told = seen.page(f"{PATH}&after=25")
    assert shown_keys(told) == ["c25", "c26", "c29", "c27", "c28"], "c28 was not measured in B"
    (chosen,) = [one for one in won.all("a", **{"aria-current": "true"}) if one.text.startswith("B is")]
    assert chosen.text == "B is better 1"
    assert shown_keys(seen.page(f"{PATH}&show=worse")) == shown_keys(seen.page(f"{PATH}&show=a")), "the former name"
    both = seen.page(links[0])
    assert "doc-c00" in both.one("section", **{"aria-labelledby": "in-A"}).text
    assert "Expected, but not found" in both.one("section", **{"aria-labelledby": "in-B"}).text
    assert both.all("a", href="/compare?a=run%3A1&b=run%3A2")


def test_a_canary_that_one_run_lacks_is_said_to_be_lacking(pages: Site) -> None:
    pages.world.apply(page([canary(key) for key in (*KEYS, "new")], k=5, rules=[]))
    pages.world.run()
    shown = pages.page("/compare/canary?a=run:1&b=run:3&key=new")
    assert "This run did not have the canary." in shown.one("section", **{"aria-labelledby": "in-Before"}).text
    assert "Neither run has a canary" in pages.page("/compare/canary?a=run:1&b=run:3&key=nobody", 404).text


def test_the_ranks_of_all_compared_canaries_are_counted(seen: Site) -> None:
    rows = [row.text.split() for row in seen.page(PATH).all("tr")]
    begin = rows.index(["Rank", "A", "B", "Difference"])
    assert rows[begin + 1 : begin + 6] == [
        ["1", "28", "17", "-11"],
        ["2-3", "1", "0", "-1"],
        ["4-5", "0", "0", "0"],
        ["6-10", "0", "0", "0"],
        ["not", "found", "0", "12", "+12"],
    ]


def test_each_canary_that_moved_is_a_line_that_leads_to_both_rankings(seen: Site) -> None:
    shown = seen.page(PATH)
    lines = {one.get("href").rpartition("=")[2]: one.get("aria-label") for one in drawn(shown)}
    assert lines == {
        **{key: f"{key}: rank 1 in A, not found in B" for key in KEYS[:12]},
        "c27": "c27: rank 2 in A, rank 1 in B",
    }
    assert "13 canaries moved." in shown.text
    assert "No canary moved." in seen.page(f"/compare?a=run:1&b=check:{CHECKS[0][0]}").text


@pytest.mark.parametrize("what", ["run:1", "check:watch", "retriever:search"])
def test_nothing_is_compared_with_itself(seen: Site, what: str) -> None:
    kind, _, name = what.partition(":")
    refused = seen.page(f"/compare?a={what}&b={what}", 422)
    told = f"Both sides are {kind} {name}; choose another one to compare it with."
    assert told in refused.text
    assert [refused.one("input", name=side).get("value") for side in ("a", "b")] == [name, name]


def _measure(
    name: str, difference: float, ends: tuple[float | None, float | None], claim: Claim, winner: Side | None
) -> ComparedMeasure:
    return {
        "measure": name,
        "canaries": 20,
        "a": 0.5,
        "b": 0.5 + difference,
        "difference": difference,
        "low": ends[0],
        "high": ends[1],
        "p": 0.01,
        "corrected_p": 0.01,
        "claim": claim,
        "winner": winner,
    }


def test_a_difference_lies_where_its_number_says_on_an_axis_with_zero_in_its_middle() -> None:
    fell = _measure("R@5", -0.15, (-0.2, -0.1), Claim.CLAIMED, Side.A)
    drawn = draw_forest([fell, _measure("P@5", 0.0, (None, None), Claim.NOT_SHOWN, None)])
    middle = FOREST_WIDTH / 2
    assert drawn.bound == 0.2
    row = drawn.rows["R@5"]
    assert (row.low, row.at, row.high, row.side) == (
        8.0,
        middle - 0.75 * (middle - 8),
        middle - 0.5 * (middle - 8),
        "a",
    )
    assert (drawn.rows["P@5"].at, drawn.rows["P@5"].low, drawn.rows["P@5"].side) == (middle, None, "")
    assert draw_forest([]).rows == {}


def test_bars_are_as_long_as_there_are_canaries_and_deep_ranks_are_there_where_some_are() -> None:
    pairs = [RankPair(key=str(place), query="q", a=a, b=b) for place, (a, b) in enumerate([(1, 1), (3, 12), (1, None)])]
    found = {one.label: one for one in count_ranks(pairs)}
    assert list(found) == ["1", "2-3", "4-5", "6-10", "over 10", "not found"]
    assert (found["1"].counts, found["over 10"].counts, found["not found"].counts) == ((2, 1), (0, 1), (0, 1))
    assert found["1"].widths == (round(BAR_WIDTH * 2 / 3, 1), round(BAR_WIDTH / 3, 1))
    assert found["not found"].starts[1] == round(BAR_WIDTH * 2 / 3, 1)
    assert count_ranks([]) == []


def test_a_worse_rank_is_never_drawn_above_a_better_one() -> None:
    ranks = [(1, 4), (1, 4), (1, None), (4, 1), (None, 2), (12, 30), (2, 2)]
    drawn = draw_slopes([RankPair(key=str(at), query="q", a=a, b=b) for at, (a, b) in enumerate(ranks)], BEFORE_AND_NOW)
    lines = {one.key: one for one in drawn.lines}
    assert drawn.moved == 6
    assert set(lines) == set("012345")
    assert [level.label for level in drawn.levels] == ["1", "2", "3", "4", "over 10", "not found"]
    levels = {level.label: level for level in drawn.levels}
    assert all(levels["1"].top < lines[key].left < levels["2"].top < lines[key].right for key in "01")
    assert lines["3"].side == "b"
    assert lines["2"].side == "a"
    assert lines["2"].right > levels["not found"].top
    assert (lines["4"].label, lines["4"].side) == ("q: not found before, rank 2 now", "b")
    many = [RankPair(key=f"{at:03}", query="q", a=1, b=2 if at < 50 else None) for at in range(100)]
    most = draw_slopes(many, BEFORE_AND_NOW)
    assert (most.moved, len(most.lines)) == (100, 60)
    assert sum(one.label.endswith("not found now") for one in most.lines) == 50, "those that moved furthest"


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


def test_how_it_is_tested_stands_behind_a_question(seen: Site) -> None:
    shown = seen.page(PATH)
    assert "Bold = larger than chance explains." in shown.text
    (details,) = [one for one in shown.all("details") if one.text.startswith("How we test Over")]
    assert "open" not in details.attributes
    assert "corrected by Holm" in details.text


def test_runs_of_one_check_are_before_and_now_by_the_same_page(pages: Site) -> None:
    pages.world.probe.answers = {"c02": answered(hits("noise"))}
    pages.world.run()
    shown = pages.page("/compare?a=run:1&b=run:3")
    heads, other = ([one.text for one in found.all("th", scope="col")] for found in (shown, pages.page(PATH)))
    words = {"A": "Before", "B": "Now", "DrawnA is betterB is better": "Drawnfellrose", "NDCG@10 A": "NDCG@10 before"}
    renamed = [words.get(one, one) for one in other]
    assert heads == renamed, "one set of columns"
    first, *_ = [row.text for row in shown.all("tr") if "c02" in row.text]
    assert "degraded missing rank 1 before, → not found now" in first
    linked = drawn(shown)[0].get("href")
    both = pages.page(linked)
    assert [one.text.partition(":")[0] for one in both.all("h2")] == ["Before", "Now"]
    assert both.one("nav", **{"aria-label": "Breadcrumb"}).text.split(" / ")[1] == "run 3 against run 1"


def test_runs_of_two_checks_are_a_and_b(seen: Site) -> None:
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


def test_the_list_of_retrievers_leads_to_a_comparison_of_two(seen: Site) -> None:
    (link,) = [one for one in seen.page("/retrievers").all("a") if one.text == "Compare two"]
    assert seen.page(link.get("href")).one("input", name="what").get("value") == "retriever"
