"""Re-scoring in a real browser: asked for on the page of a check, followed while it goes on, read when it is done."""

import re

from playwright.sync_api import Browser, expect

from app.base.db.engine import Store
from app.runs.service import rescoring
from app.runs.service.change_feed import Streams
from tests.support.browser import opened, served
from tests.support.pages_service import site
from tests.support.world import canary, page


def test_a_rescoring_is_followed_from_its_button_to_what_it_changed(chromium: Browser, sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    world = pages.world
    world.apply(page([canary("ant"), canary("bee", expected_chunks=["bee-2024"])]))
    for _ in range(3):
        world.run()
    world.apply(page([canary("ant"), canary("bee")]))
    app = pages.app()
    app.state.streams = Streams(sqlite_store, poll_seconds=0.02)
    with served(app) as address, opened(chromium, address) as tab:
        shown = tab.open("/checks/watch")
        shown.locator("summary", has=shown.locator("#definition")).click()
        shown.get_by_label("re-score recorded runs").select_option("30d")
        shown.get_by_role("button", name="Re-score").click()
        expect(shown).to_have_url(re.compile("/rescorings/1$"))
        expect(shown.get_by_role("status").filter(has_text="Queued: 0 of 3 runs judged")).to_be_visible()
        claimed = rescoring.claim(sqlite_store, owner="one", now=world.clock())
        assert claimed is not None

        def at_the_second(done: int, _: int) -> None:
            if done == 1:
                expect(shown.get_by_role("status").filter(has_text="Running: 1 of 3 runs judged")).to_be_visible()

        ended = rescoring.carry_on(
            sqlite_store, claimed, owner="one", clock=world.clock, moved=at_the_second, batch_rows=2
        )
        assert ended
        expect(shown.get_by_role("row", name="Coverage, mean")).to_have_text(re.compile(r"0\.500\s*1\.000"))
        shown.get_by_role("link", name="Show watch re-scored").click()
        expect(shown).to_have_url(re.compile(r"/checks/watch\?measures_version="))
