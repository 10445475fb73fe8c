"""The heat map: every canary in every run as cells, as a picture, and under the pointer of a browser."""

import gzip
import json
import re
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from app.base.db.engine import Store, to_us
from app.base.db.files import migrate
from app.base.values import Outcome
from app.hooks.service import deliveries
from app.records.domain import RunCells, heat_map_cells
from app.reports.rendering.pictures import heat_map_png, layout_of, short_versions
from app.reports.service import charts
from app.reports.service.charts import heat_map_of_incident
from app.reports.views import HeatMap, HeatMapRow
from tests.support.browser import PHONE, inaccessible, opened, served, wider_than_the_screen
from tests.support.fakes import answered, failed, hits
from tests.support.pages_service import Site, site
from tests.support.present import present
from tests.support.world import AT_ONCE, CHECK, World, canary, page

CANARIES = [canary("ant", category="procedural", tags=["law"]), canary("bee", tags=["law", "tax"]), canary("cat")]


def _heat_map(world: World, columns: int = 60, **more: object) -> HeatMap:
    wanted = {"start": None, "end": to_us(world.clock()), "columns": columns, **more}
    return charts.heat_map(world.store, CHECK, **wanted)  # type: ignore[arg-type] # of tests


def _cells(found: HeatMap) -> dict[str, dict[str, str]]:
    return {group["name"]: {row["key"]: row["cells"] for row in group["canaries"]} for group in found["groups"]}


def _story(world: World) -> None:
    """Let `bee` be lost in the third run and `cat` not be answered in the fourth, of five."""
    world.apply(page(CANARIES))
    world.run(index_version="one")
    world.run()
    world.probe.answers["bee"] = answered(hits("noise"))
    world.run(index_version="two")
    world.probe.answers = {"cat": failed(Outcome.TIMEOUT)}
    world.run()
    world.probe.all_answer()
    world.run()


@pytest.mark.both
def test_each_run_is_a_column_and_each_canary_a_row_of_its_group(store: Store) -> None:
    world = World(store=store)
    _story(world)
    found = _heat_map(world)
    assert _cells(found) == {"procedural": {"ant": "....."}, "simple_factual": {"bee": "..#..", "cat": "...?."}}
    assert [(one["first_run"], one["runs"]) for one in found["columns"]] == [(str(run), 1) for run in range(1, 6)]
    assert [(one["column"], one["index_version"]) for one in found["marks"]] == [(0, "one"), (2, "two")]
    assert (found["left_out_canaries"], found["is_cut"]) == (0, False)
    by_tag = _cells(_heat_map(world, by="tag"))
    assert by_tag == {
        "": {"cat": "...?."},
        "law": {"bee": "..#..", "ant": "....."},  # those first that were degraded most
        "tax": {"bee": "..#.."},
    }


@pytest.mark.both
def test_runs_share_columns_where_a_period_has_more_of_them(store: Store) -> None:
    world = World(store=store)
    _story(world)
    start = to_us(world.clock() - timedelta(days=1))
    found = _heat_map(world, columns=2, start=start)
    assert [(one["first_run"], one["last_run"], one["runs"]) for one in found["columns"]] == [
        ("1", "2", 2),
        ("3", "5", 3),
    ]
    assert _cells(found)["simple_factual"] == {"bee": ".~", "cat": ".."}  # cat was measured in most of them
    assert [one["column"] for one in found["marks"]] == [0, 1]


@pytest.mark.both
def test_without_a_start_the_newest_runs_are_shown(store: Store) -> None:
    world = World(store=store)
    _story(world)
    found = _heat_map(world, columns=3)
    assert [one["first_run"] for one in found["columns"]] == ["3", "4", "5"]
    assert _cells(found)["simple_factual"] == {"bee": "#..", "cat": ".?."}
    assert [one["index_version"] for one in found["marks"]] == ["two"]


@pytest.mark.both
def test_canaries_that_came_and_went_and_runs_that_measured_nothing(store: Store) -> None:
    world = World(store=store)
    world.apply(page(CANARIES))
    world.run()
    world.apply(page([*CANARIES[1:], canary("dog")]))
    world.probe.all_fail()
    world.run()
    world.probe.all_answer()
    world.run()
    found = _heat_map(world)
    assert _cells(found) == {"simple_factual": {"bee": ".?.", "cat": ".?.", "dog": " ?."}}
    assert found["left_out_canaries"] == 1


@pytest.mark.parametrize(
    ("versions", "shown"),
    [
        (["demo-4c9096cb2969", "demo-413ec3008628"], ["4c9096cb2969", "413ec3008628"]),
        (["docs_2026-11-29", "docs_2026-11-30"], ["29", "30"]),
        (["v41", "v42"], ["v41", "v42"]),
        (["demo-4c9096cb2969"], ["demo-4c9096cb…"]),
        (["a-b", "a-b"], ["a-b", "a-b"]),
        ([], []),
    ],
)
def test_index_versions_are_shown_whole_but_for_words_that_all_begin_with(
    versions: list[str], shown: list[str]
) -> None:
    assert short_versions(versions) == shown


def test_of_very_many_canaries_and_tags_those_are_drawn_that_were_degraded_most(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary(f"c{place}", tags=[f"tag{place % 70}"]) for place in range(2_100)]))
    world.probe.answers["c2099"] = answered(hits("noise"))
    world.run()
    found = _heat_map(world)
    assert found["left_out_rows"] == 100
    assert found["groups"][0]["canaries"][0]["key"] == "c2099"
    by_tag = _heat_map(world, by="tag")
    assert len(by_tag["groups"]) == 60
    assert by_tag["groups"] == sorted(by_tag["groups"], key=lambda group: group["name"])
    assert by_tag["left_out_rows"] == 2_100 - sum(len(group["canaries"]) for group in by_tag["groups"])
    assert len(heat_map_png(found, width=1600, scale=2)) < 60_000


@pytest.mark.both
def test_before_the_first_run_there_is_nothing_to_draw(store: Store) -> None:
    world = World(store=store)
    world.apply(page(CANARIES))
    found = _heat_map(world)
    assert (found["columns"], found["groups"], found["marks"]) == ([], [], [])
    assert heat_map_png(found, width=300, scale=1)


def test_a_cell_of_several_runs_is_what_most_of_those_that_measured_it_say() -> None:
    def run(degraded: list[int], failed: list[int]) -> RunCells:
        places = [np.array(some, np.uint32) for some in (degraded, failed)]
        return RunCells(run_id=1, at=0, suite_version_id=1, degraded=places[0], failed=places[1])

    rows_of = {1: np.array([0, 1, -1, 2], np.intp)}  # the canary at place 2 is not drawn
    column = [run([0, 2], [1]), run([0, 3], [1]), run([], [1, 3]), run([], [])]
    assert heat_map_cells([column, [run([], [0])]], rows_of, rows=4) == ["#?", "?.", "~.", "  "]


def test_the_picture_has_the_colour_of_each_cell_where_the_layout_says(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    _story(world)
    found = _heat_map(world)
    rows = [row["cells"] for group in found["groups"] for row in group["canaries"]]
    for width, scale, is_dark in ((1000, 1, False), (340, 2, False), (1000, 2, True)):
        image = Image.open(BytesIO(heat_map_png(found, width=width, scale=scale, is_dark=is_dark))).convert("RGBA")
        layout = layout_of([1, 2], columns=5, width=width)
        assert image.size == (width * scale, layout["height"] * scale)
        inks = [
            image.getpixel(
                (
                    int((layout["left"] + (place + 0.4) * layout["column"]) * scale),
                    int((top + layout["row"] * 0.4) * scale),
                )
            )
            for top, cells in zip(layout["tops"], rows, strict=True)
            for place in range(len(cells))
        ]
        colour_of = dict(zip("".join(rows), inks, strict=True))
        assert [colour_of[cell] for cell in "".join(rows)] == inks  # one colour for each kind of cell
        assert len(set(inks)) == 3
        assert all(ink[3] == 255 for ink in inks)  # type: ignore[index] # of four


def test_a_thousand_canaries_over_a_year_are_sent_in_sixty_kilobytes() -> None:
    rng = np.random.default_rng(5)
    outage = (np.arange(200) // 9 % 6 == 3) & (rng.random((1000, 1)) < 0.15)
    cells = np.where(outage, "#", np.where(rng.random((1000, 200)) < 0.01, "?", "."))
    rows: list[HeatMapRow] = [
        {"key": f"canary-{place}", "query": " ".join(map(str, rng.integers(0, 9_999, 8))), "cells": "".join(row)}
        for place, row in enumerate(cells)
    ]
    begin, column = datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=365) / 200
    found: HeatMap = {
        "check": "watch",
        "measures_version": None,
        "grouped_by": "category",
        "columns": [
            {
                "at": (begin + place * column).isoformat(),
                "runs": 44,
                "first_run": str(44 * place + 1),
                "last_run": str(44 * place + 44),
            }
            for place in range(200)
        ],
        "marks": [],
        "groups": [{"name": "all", "canaries": rows}],
        "left_out_rows": 0,
        "left_out_canaries": 0,
        "is_cut": False,
    }
    assert len(heat_map_png(found, width=1100, scale=2)) < 60_000
    assert len(gzip.compress(json.dumps(found).encode())) < 60_000


MAIL = {
    "slug": "ops",
    "kind": "email",
    "host": "mail.test",
    "port": 25,
    "tls": "none",
    "from": "coalmine@example.org",
    "to": ["ops@example.org"],
}


def _pictures(html: str, message: EmailMessage) -> list[Image.Image]:
    """Give the pictures that a mail shows, each a part of it."""
    parts = {
        part["content-id"]: part.get_content() for part in message.walk() if part.get_content_type() == "image/png"
    }
    return [Image.open(BytesIO(parts[f"<{name}>"])) for name in re.findall(r'src="cid:([^"]+)"', html)]


def test_a_mail_about_an_alert_shows_the_runs_up_to_it(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    made = page(CANARIES, rules=[AT_ONCE], hooks=["ops"])
    world.apply({**made, "hooks": [MAIL]})
    world.run()
    world.run()
    world.probe.all_miss()
    world.run()
    assert world.deliver() is not None
    (_, sent), *_ = world.send.sent
    message = message_from_bytes(sent.body, policy=default)
    html = message.get_body(("html",))
    assert html is not None
    (shown,) = _pictures(html.get_content(), message)
    pixels = np.asarray(shown.convert("RGB"))
    assert pixels[0, 0].min() > 250, "on white, whatever the mail program has behind it"
    inks = {tuple(ink) for ink in pixels.reshape(-1, 3).tolist()}
    assert {(0xC2, 0x41, 0x0C), (0xA3, 0xD9, 0xB8)} <= inks
    assert "data:" not in html.get_content()


def test_the_picture_of_an_incident_is_cut_to_the_groups_that_it_hit(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    asked = [canary("ant", category="procedural"), canary("bee", category="comparative"), canary("cow")]
    world.apply(page(asked, rules=[AT_ONCE]))
    world.probe.answers = {"ant": answered(hits("noise"))}
    world.run()
    world.probe.all_answer()
    world.run()
    opened_at = world.clock.advance(1)
    assert heat_map_of_incident(sqlite_store, "watch", opened_at, to_us(opened_at)) is None, "all are healthy"
    world.probe.answers = {"bee": answered(hits("noise"))}
    world.run()
    found = present(heat_map_of_incident(sqlite_store, "watch", world.clock(), to_us(world.clock())))
    assert [group["name"] for group in found["groups"]] == ["comparative"]
    assert [row["cells"] for group in found["groups"] for row in group["canaries"]] == ["..#"]


def test_a_mail_goes_without_a_picture_rather_than_not_at_all(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(deliveries, "heat_map_of_incident", broken)
    world = World(store=sqlite_store)
    world.apply({**page(CANARIES, rules=[AT_ONCE], hooks=["ops"]), "hooks": [MAIL]})
    world.run()
    world.probe.all_miss()
    world.run()
    sent = world.deliver()
    assert sent is not None
    assert sent.state == "delivered"


def test_a_report_shows_the_runs_up_to_it_and_no_other_pictures(told: tuple[Site, str]) -> None:
    client = told[0].client()
    first, last = (client.get(f"/v1/runs/{run}/report?format=html") for run in (1, 5))
    assert "<img" not in first.text
    assert "img-src" not in first.headers["content-security-policy"]
    (held,) = re.findall(r'<img src="data:image/png;base64,([^"]+)"', last.text)
    assert Image.open(BytesIO(b64decode(held))).width == 1280
    assert "img-src data:;" in last.headers["content-security-policy"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    """Serve the story."""
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('heat') / 'coalmine.db'}")
    migrate(store)
    pages = site(store)
    _story(pages.world)
    with served(pages.app()) as address:
        yield pages, address
    store.close()


def _cell(tab: Page, row: int, column: int) -> tuple[float, float]:
    """Give where on the screen the middle of a cell is."""
    image = tab.locator("#heatmap")
    expect(tab.locator("#heatmap-note")).to_have_text(re.compile("5 runs"))
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    assert box is not None
    layout = tab.evaluate(
        "async (width) => (await (await fetch(`/v1/checks/watch/heatmap?width=${width}`)).json()).layout",
        round(box["width"]),
    )
    return (
        box["x"] + layout["left"] + (column + 0.5) * layout["column"],
        box["y"] + layout["tops"][row] + layout["row"] / 2,
    )


def test_under_the_pointer_are_question_state_and_rank_and_a_click_leads_on(
    chromium: Browser, told: tuple[Site, str]
) -> None:
    with opened(chromium, told[1]) as tab:
        shown = tab.open(f"/checks/{CHECK}")
        tip = shown.locator("#heatmap .plot-tip")
        shown.mouse.move(*_cell(shown, 1, 2))
        expect(tip).to_contain_text("degraded, expected chunk not found")
        expect(tip).to_contain_text("bee")
        shown.mouse.move(*_cell(shown, 2, 3))
        expect(tip).to_contain_text("not measured")
        shown.mouse.move(*_cell(shown, 1, 1))
        expect(tip).to_contain_text("healthy, rank 1")
        shown.mouse.click(*_cell(shown, 1, 2))
        tip.get_by_role("link", name="Run 3").click()
        expect(shown).to_have_url(re.compile("/runs/3$"))


def test_by_the_keyboard_one_goes_from_cell_to_cell(chromium: Browser, told: tuple[Site, str]) -> None:
    with opened(chromium, told[1]) as tab:
        shown = tab.open(f"/checks/{CHECK}")
        _cell(shown, 0, 0)
        shown.locator("#heatmap").focus()
        for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowLeft"):
            shown.keyboard.press(key)
        expect(shown.locator("#heatmap-cell")).to_contain_text("bee · simple factual, degraded")
        shown.keyboard.press("Enter")
        expect(shown).to_have_url(re.compile(f"/checks/{CHECK}/canaries/bee$"))


def test_on_phones_and_without_scripts_there_is_a_picture(chromium: Browser, told: tuple[Site, str]) -> None:
    for scripts in (True, False):
        with opened(chromium, told[1], viewport=PHONE, java_script_enabled=scripts) as tab:
            shown = tab.open(f"/checks/{CHECK}")
            image = shown.locator("#heatmap img")
            image.scroll_into_view_if_needed()
            assert image.evaluate("one => one.decode().then(() => one.naturalWidth)") > 300
            assert not wider_than_the_screen(shown)
            if scripts:
                assert not inaccessible(shown)
