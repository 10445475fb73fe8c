"""The page of a check in a real browser: the chart draws what is stored, with gaps, and everything goes by keyboard."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from app.base.db.engine import Store, to_us
from app.base.db.files import migrate
from app.reports.service import charts
from app.reports.views import MeasureSeries
from tests.support.browser import PHONE, inaccessible, opened, served, wider_than_the_screen
from tests.support.fakes import answered, hits
from tests.support.pages_service import Site, site
from tests.support.world import COVERAGE, canary, page

CHECK = "/checks/watch"
CANARIES = [
    canary("ant", category="procedural"),
    canary("bee", tags=["legal"]),
    canary("cat"),
    {"key": "dog", "query": "who lives on mars", "category": "negative", "max_relevance_score": 1.0},
]


@dataclass(frozen=True, kw_only=True)
class Served:
    """A site whose check has seen better and worse, and where it is."""

    pages: Site
    address: str

    def series(self, measure: str, **more: Any) -> MeasureSeries:
        """Read what a chart of the last hour is drawn from."""
        end = self.pages.world.clock() + timedelta(hours=1)
        wanted = {"category": None, "start": to_us(end - timedelta(hours=3)), "end": to_us(end), "points": 300, **more}
        return charts.series(self.pages.world.store, "watch", measure=measure, **wanted)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a check that was well, not measured, on another index, without its documents, edited, and well again."""
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('history') / 'coalmine.db'}")
    migrate(store)
    pages = site(store)
    world, probe = pages.world, pages.world.probe
    world.apply(page(CANARIES, schedule={"every": "1m"}, rules=[COVERAGE]))
    for _ in range(22):
        world.run(index_version="alpha-1")
    probe.all_fail()
    for _ in range(3):
        world.run()
    probe.all_answer()
    for _ in range(4):
        world.run(index_version="beta-2")
    probe.all_miss()
    for _ in range(4):
        world.run(index_version="beta-2")
    probe.all_answer()
    edited = [*CANARIES[:3], {**CANARIES[3], "query": "who lives on the moon"}]
    world.apply(page(edited, schedule={"every": "1m"}, rules=[COVERAGE]))
    for _ in range(4):
        world.run(index_version="beta-2")
    with served(pages.app()) as address:
        yield Served(pages=pages, address=address)
    store.close()


def _drawn(tab: Page, note: str = r"\d+ points") -> None:
    """Wait until the chart has been drawn."""
    expect(tab.locator("#chart-note")).to_have_text(re.compile(note))


def _labels(tab: Page) -> list[str]:
    return [text.strip().rstrip(":") for text in tab.locator("#chart .u-legend .u-label").all_inner_texts()]


def _over(tab: Page, moment: str) -> tuple[float, float]:
    """Give where on the screen a moment of the period in the address stands, in the middle of the chart's height."""
    tab.locator("#chart .u-over").scroll_into_view_if_needed()
    place: list[float] = tab.evaluate(
        """(moment) => {
            const box = document.querySelector("#chart .u-over").getBoundingClientRect();
            const wanted = new URL(location.href).searchParams;
            const [from, to] = [Date.parse(wanted.get("from")), Date.parse(wanted.get("to"))];
            return [box.left + box.width * (Date.parse(moment) - from) / (to - from), box.top + box.height / 2];
        }""",
        moment,
    )
    return place[0], place[1]


def _ink_at(tab: Page, moment: str) -> int:
    """Give the height, in bytes of a column, at which a line of the first ink crosses a moment; 0 = none does."""
    x, _ = _over(tab, moment)
    height: int = tab.evaluate(
        """(x) => {
            const canvas = document.querySelector("#chart canvas");
            const box = canvas.getBoundingClientRect();
            const at = Math.round((x - box.left) * canvas.width / box.width);
            const column = canvas.getContext("2d").getImageData(at, 0, 1, canvas.height).data;
            const ink = getComputedStyle(document.documentElement).getPropertyValue("--first").trim();
            const wanted = [1, 3, 5].map((at) => parseInt(ink.slice(at, at + 2), 16));
            for (let at = 0; at < column.length; at += 4) {
                const alike = wanted.every((value, place) => Math.abs(column[at + place] - value) < 12);
                if (alike && column[at + 3] > 200) return at;
            }
            return 0;
        }""",
        x,
    )
    return height


def _whole(history: Served, more: str = "") -> str:
    """Give the address of a chart of everything that happened."""
    begun = history.pages.world.clock() - timedelta(minutes=40)
    period = [(begun + timedelta(minutes=more)).strftime("%Y-%m-%dT%H:%M:%SZ") for more in (0, 42)]
    return f"{CHECK}?from={period[0]}&to={period[1]}{more}"


def test_a_chart_says_in_words_what_is_drawn_in_it(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(_whole(history))
        _drawn(shown, "34 points. Click one for its run")
        shown.get_by_text("Key", exact=True).click()
        key = " ".join(shown.locator("#chart-key li").all_inner_texts())
        assert "baseline for coverage: 1.000 (20 runs)" in key
        assert "rule threshold-coverage: warning below 0.9" in key
        assert "rule threshold-coverage: critical below 0.5" in key
        assert "no data: 3 runs measured too little" in key
        assert "2 alerts, from opened to resolved" in key
        assert "2 new index versions" in key
        assert "suite edited: numbers before and after are of other questions" in key
        happened = shown.locator("#chart-happened li").all_text_contents()
        for told in (
            "index version alpha-1",
            "index version beta-2",
            "suite edited: other questions",
            "alert threshold-coverage opened",
            "resolved",
        ):
            assert any(told in one for one in happened), told
        assert shown.locator("#chart canvas").count() == 1
        assert "Chart of first-hit relevance and coverage, 34 points" in (
            shown.locator("#chart").get_attribute("aria-label") or ""
        )


def test_no_line_is_drawn_through_what_nobody_measured(chromium: Browser, history: Served) -> None:
    (gap,) = [one for one in history.series("coverage")["gaps"] if one["why"] == "not_measured"]
    inside = history.pages.world.clock() - timedelta(minutes=13, seconds=30)
    with opened(chromium, history.address) as tab:
        shown = tab.open(_whole(history, "&measure=coverage"))
        _drawn(shown)
        moment = inside.isoformat()
        assert gap["from"] < moment < gap["to"]
        assert not _ink_at(shown, moment)
        assert _ink_at(shown, (inside - timedelta(minutes=5)).isoformat())
        shown.mouse.move(*_over(shown, moment))
        expect(shown.locator("#chart .plot-tip")).to_contain_text("3 runs measured too little")


def test_a_value_holds_until_the_next_run_and_is_no_slope_to_it(chromium: Browser, history: Served) -> None:
    found = history.series("coverage")
    points = [(datetime.fromisoformat(one.at), one.mean) for one in found["points"]]
    begin, end = next((a[0], b[0]) for a, b in pairwise(points) if a[1] != b[1] and b[0] - a[0] < timedelta(minutes=5))
    with opened(chromium, history.address) as tab:
        shown = tab.open(_whole(history, "&measure=coverage"))
        _drawn(shown)
        early, late = (_ink_at(shown, (begin + (end - begin) * part).isoformat()) for part in (0.35, 0.65))
        assert early == late > 0


def test_measures_and_ranges_are_chosen_by_keyboard_and_stand_in_the_address(
    chromium: Browser, history: Served
) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(CHECK)
        _drawn(shown)
        shown.locator("select[name=measure]").focus()
        shown.keyboard.type("NDCG@10")
        expect(shown.locator("#chart .u-legend")).to_contain_text("NDCG@10")
        shown.locator("input[value='24h']").focus()
        shown.keyboard.press("ArrowRight")
        shown.wait_for_url("**/checks/watch?*range=7d*")
        assert "measure=NDCG%4010" in shown.url
        shown.reload()
        _drawn(shown)
        assert _labels(shown)[0] == "NDCG@10"
        assert shown.locator("input[value='7d']").is_checked()


def test_several_measures_share_a_picture_and_so_do_categories(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(f"{CHECK}?range=1h&measure=coverage&also=MRR")
        _drawn(shown)
        assert _labels(shown) == ["coverage", "MRR"]
        shown.locator("main").get_by_text("Compare", exact=True).click()
        shown.get_by_label("NDCG@10", exact=True).check()
        expect(shown.locator("#chart .u-legend")).to_contain_text("NDCG@10")
        assert shown.url.count("also=") == 2
        shown.locator("select[name=category]").select_option("*")
        expect(shown.locator("#chart .u-legend")).to_contain_text("procedural")
        assert _labels(shown) == ["procedural", "simple factual"]
        shown.locator("select[name=category]").select_option("procedural")
        expect(shown.locator("#chart .u-legend")).to_contain_text("coverage")
        assert shown.locator("option[value='MRR']").is_disabled(), "of a category only some measures are kept"


def test_a_time_brings_no_full_stop_into_a_sentence(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        times = tab.open(CHECK).locator('time[data-when="both"]')
        expect(times.first).to_have_text(re.compile(r"\)$"))
        told = times.all_inner_texts()
        assert any(re.search(r"\b(sec|min|hr)\b", one) for one in told), told
        assert [one for one in told if "." in one] == []


def test_values_stand_at_the_pointer_and_none_before_there_is_one(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(_whole(history, "&measure=coverage"))
        _drawn(shown)
        assert shown.locator("#chart .u-legend").inner_text().split() == ["coverage"]
        expect(shown.locator("#chart .plot-tip")).to_be_hidden()
        shown.mouse.move(*_over(shown, (history.pages.world.clock() - timedelta(minutes=20)).isoformat()))
        expect(shown.locator("#chart .plot-tip")).to_contain_text("coverage 1.000")


def test_the_names_of_bounds_that_lie_close_stand_side_by_side(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(CHECK)
        labels = [{"y": y, "width": 40} for y in (100, 104, 109, 200, 96)]
        begins = shown.evaluate("labels => window.plots.around.apart(labels, 12)", labels)
        assert begins == [0, 46, 92, 0, 92]


def test_a_click_on_a_point_leads_to_its_run(chromium: Browser, history: Served) -> None:
    point = history.series("coverage")["points"][30]
    with opened(chromium, history.address) as tab:
        shown = tab.open(_whole(history))
        _drawn(shown)
        shown.mouse.move(*_over(shown, point.at))
        tip = shown.locator("#chart .plot-tip")
        expect(tip).to_contain_text(f"run {point.first_run}")
        expect(tip).to_contain_text(f"coverage {point.mean:.3f}")
        shown.mouse.click(*_over(shown, point.at))
        shown.wait_for_url(f"**/runs/{point.first_run}")


def test_with_the_keyboard_one_goes_from_point_to_point_and_on_to_the_run(chromium: Browser, history: Served) -> None:
    points = history.series("coverage")["points"]
    with opened(chromium, history.address) as tab:
        shown = tab.open(_whole(history, "&measure=coverage"))
        _drawn(shown)
        shown.locator("#chart").focus()
        shown.keyboard.press("End")
        shown.keyboard.press("ArrowLeft")
        spoken = shown.locator("#chart-point")
        expect(spoken).to_contain_text("coverage")
        shown.keyboard.press("Home")
        expect(spoken).to_contain_text(f"run {points[0].first_run}")
        shown.keyboard.press("ArrowRight")
        expect(spoken).to_contain_text(f"run {points[1].first_run}")
        shown.keyboard.press("Enter")
        shown.wait_for_url(f"**/runs/{points[1].first_run}")


def test_dragging_looks_closer_and_the_way_back_is_a_button_and_a_key(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(f"{CHECK}?range=1h")
        _drawn(shown)

        def drag() -> None:
            over = shown.locator("#chart .u-over")
            over.scroll_into_view_if_needed()
            box = over.bounding_box()
            assert box is not None
            shown.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
            shown.mouse.down()
            shown.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=5)
            shown.mouse.up()
            shown.wait_for_url("**/checks/watch?*from=*to=*")

        drag()
        assert shown.locator("#chart-own").is_visible()
        reset = shown.locator("#chart-reset")
        reset.click()
        shown.wait_for_url("**/checks/watch?range=1h")
        expect(reset).to_be_hidden()
        _drawn(shown)
        drag()
        shown.locator("#chart").focus()
        shown.keyboard.press("Escape")
        shown.wait_for_url("**/checks/watch?range=1h")


def test_the_table_says_what_the_series_says(chromium: Browser, history: Served) -> None:
    found = history.series("coverage")
    with opened(chromium, history.address, timezone_id="UTC", locale="en-GB") as tab:
        shown = tab.open(_whole(history, "&measure=coverage"))
        _drawn(shown)
        rows = shown.evaluate(
            """[...document.querySelectorAll("#chart-table tbody tr:not(.gap)")]
                .map((row) => [...row.cells].map((cell) => cell.textContent))"""
        )
        assert [(run, value) for _, run, value in reversed(rows)] == [
            (point.first_run, f"{point.mean:.3f}") for point in found["points"]
        ]
        gaps = shown.locator("#chart-table tr.gap").all_text_contents()
        assert sum("3 runs measured too little" in one for one in gaps) == 1


def test_a_period_without_runs_says_so_and_a_period_of_none_asks_for_one(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(f"{CHECK}?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z")
        _drawn(shown, "Nothing was measured in this period.")
        expect(shown.locator("#evidence-note")).to_have_text("No run in this period.")
        shown.locator("#chart-own input[name=from]").fill("2021-01-01T00:00:00")
        shown.locator("#chart-own button").click()
        _drawn(shown, "Give a beginning and an end after it.")


def test_a_chart_that_cannot_be_read_says_why(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address, expected=("503",)) as tab:
        told = '{"detail": "the database cannot be used now"}'
        tab.page.route(
            "**/series?*", lambda route: route.fulfill(status=503, body=told, content_type="application/json")
        )
        shown = tab.open(CHECK)
        _drawn(shown, "The chart could not be drawn: the database cannot be used now")


def test_evidence_is_drawn_for_the_period_of_the_chart(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(_whole(history))
        note = shown.locator("#evidence-note")
        expect(note).to_contain_text("points are over the line")
        assert shown.locator("#evidence canvas").count() == 1
        expect(shown.locator("#evidence")).to_have_attribute(
            "aria-label", re.compile("^Chart of the evidence of harm. Greatest")
        )


def test_latency_is_drawn_for_the_period_of_the_chart_once_it_is_opened(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        asked: list[str] = []
        shown = tab.page
        shown.on("request", lambda one: asked.append(one.url) if "latency-series" in one.url else None)
        tab.open(_whole(history))
        _drawn(shown)
        assert not asked
        shown.locator("summary", has=shown.locator("#latency")).click()
        expect(shown.locator("#latencies-note")).to_contain_text("Slowest p95 500 ms, at run")
        assert shown.locator("#latencies canvas").count() == 1
        assert len(asked) == 1
        assert f"from={asked[0].partition('from=')[2][:10]}" in asked[0]


def test_on_paper_a_chart_is_no_wider_than_its_card(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(_whole(history))
        _drawn(shown)
        shown.emulate_media(media="print")
        # Paper is narrower than the window that the chart was drawn for, and nobody draws it again.
        shown.evaluate("document.querySelector('#chart').closest('.card').style.width = '420px'")
        card, canvas = (shown.locator(one).first.bounding_box() for one in (".card:has(#chart)", "#chart canvas"))
        assert card is not None
        assert canvas is not None
        assert canvas["x"] + canvas["width"] <= card["x"] + card["width"]
        assert not shown.locator("header.site").is_visible()


def test_an_address_opens_the_fold_it_points_at(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(f"{CHECK}#why")
        assert shown.locator("table.rules").is_visible()
        shown.locator("summary", has=shown.locator("#definition")).click()
        shown.get_by_text("Evaluation of each rule").click()
        expect(shown.locator("table.rules")).to_be_in_viewport()


def test_before_the_first_run_there_is_no_chart_and_no_error(chromium: Browser, sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page(CANARIES))
    with served(pages.app()) as address, opened(chromium, address) as tab:
        shown = tab.open(CHECK)
        assert shown.locator("#chart").count() == 0
        assert "No run has ended yet." in shown.inner_text("main")
        shown = tab.open(f"{CHECK}/quality")
        assert "no run of this check has probed its retriever" in shown.inner_text("main")


@pytest.mark.systems
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_with_every_fold_open_the_page_is_usable_by_all_and_fits_a_phone(
    chromium: Browser, history: Served, scheme: str
) -> None:
    with opened(chromium, history.address, viewport=PHONE, color_scheme=scheme) as tab:
        shown = tab.open(f"{CHECK}?measure=coverage")
        _drawn(shown)
        shown.evaluate("document.querySelectorAll('main details:not(.menu)').forEach((one) => { one.open = true; })")
        assert inaccessible(shown) == []
        assert not wider_than_the_screen(shown)


def test_on_a_phone_what_a_rule_saw_stands_beside_its_label(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address, viewport=PHONE) as tab:
        shown = tab.open(CHECK)
        shown.locator("#why > summary").click()
        rules = shown.locator("#why table.rules")
        expect(rules.locator("thead")).to_be_hidden()
        cells = [one.bounding_box() for one in rules.locator("tbody td > span:not(.badge)").all()]
        seen = [box for box in cells if box is not None]
        assert len(seen) == len(cells) > 1
        assert {round(box["x"]) for box in seen} == {round(seen[0]["x"])}
        assert all(box["x"] > 100 and box["x"] + box["width"] <= 390 for box in seen)


def test_the_quality_page_makes_its_report_by_itself(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address) as tab:
        shown = tab.open(f"{CHECK}/quality")
        expect(shown.locator("#checklist")).to_have_text("Checklist")
        assert shown.locator("section.card").count() == 9
        assert shown.locator("table.depths tbody tr").count() == 3
        assert shown.locator("svg.histogram").count() == 0, "three hits of a kind are too few"
        assert "To measure it:" in shown.locator("section[aria-labelledby=chunk_quality]").inner_text()
        assert inaccessible(shown) == []


def test_scores_are_drawn_where_there_are_enough_of_them(chromium: Browser, sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page([canary(f"k{number}") for number in range(8)]))
    pages.world.probe.otherwise = lambda ask: answered(hits(f"doc-{ask.query}", "noise", scores=[0.9, 0.4]))
    pages.world.run()
    with served(pages.app()) as address, opened(chromium, address) as tab:
        shown = tab.open(f"{CHECK}/quality?report=true")
        drawn = shown.locator("svg.histogram")
        assert "relevant hits have a median of 0.9, all others of 0.4" in (drawn.get_attribute("aria-label") or "")
        assert drawn.locator("rect.relevant").count() == drawn.locator("rect.other").count() == 1
        assert shown.locator(".ends").inner_text().split() == ["0.4", "0.525", "0.65", "0.775", "0.9"]
        shown.set_viewport_size({"width": 390, "height": 844})
        (size,) = {one.evaluate("one => getComputedStyle(one).fontSize") for one in shown.locator(".ends span").all()}
        assert float(size.removesuffix("px")) > 12, "it is read on a phone as well, whatever room the picture has"


def test_a_report_that_cannot_be_made_says_so(chromium: Browser, history: Served) -> None:
    with opened(chromium, history.address, expected=("503",)) as tab:
        tab.page.route("**/quality?report=true", lambda route: route.fulfill(status=503, body="no"))
        shown = tab.open(f"{CHECK}/quality")
        expect(shown.locator("#making")).to_contain_text("The report could not be made (HTTP 503)")
        assert shown.locator("a[href$='/quality?report=true']").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_public_link_is_made_by_one_click_and_opens_for_whoever_has_it(
    chromium: Browser, history: Served, scheme: str
) -> None:
    with opened(chromium, history.address, color_scheme=scheme) as tab:
        shown = tab.open(CHECK)
        # By key: charts that are drawn meanwhile move what a pointer aims at.
        shown.locator("summary", has=shown.get_by_role("heading", name="Configuration")).press("Enter")
        if (replacing := shown.locator("#public summary", has_text="Replace")).count():  # made by the other of these
            replacing.click()
        shown.get_by_role("button", name=re.compile("Make a public link|Replace the link")).click()
        expect(shown.get_by_role("heading", name="Copy it now: it is not shown again")).to_be_visible()
        assert inaccessible(shown) == []
        link = shown.locator("#link-page").inner_text()
    with opened(chromium, history.address, viewport=PHONE, color_scheme=scheme) as tab:
        shown = tab.open(f"/public/{link.rpartition('/')[2]}")
        expect(shown.get_by_role("heading", name="watch")).to_be_visible()
        assert shown.get_by_role("img", name=re.compile("of the last .* runs healthy")).is_visible()
        assert inaccessible(shown) == []
        assert not wider_than_the_screen(shown)
