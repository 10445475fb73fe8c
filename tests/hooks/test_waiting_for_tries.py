"""Who saves waits for nobody: retrievers that hang while they are tried hold up only those who try."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore
from typing import Any

import httpx2

from app.base.api.requests import PROBE_LIMITER
from app.base.db.engine import Store
from app.base.values import Answer
from tests.retrievers.test_pages_wizard import MAPPED
from tests.support.browser import served
from tests.support.fakes import FakeProbe, answered, hits
from tests.support.pages_service import Site, site
from tests.support.world import canary, page

PATIENCE = 60.0
CHECK = {"suite": "mine", "retriever": "search", "schedule.every": "9m", "k": "5"}


def test_saving_and_reading_answers_go_on_while_every_try_hangs(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page([canary("ant")]))
    begun, ended = Semaphore(0), Event()

    def hang(_: Any) -> Answer:
        begun.release()
        assert ended.wait(PATIENCE)
        return answered(hits("late"))

    hanging = Site(world=pages.world, probe=FakeProbe(otherwise=hang))
    most = int(PROBE_LIMITER.total_tokens)
    with served(hanging.app()) as url, ThreadPoolExecutor(most) as pool:

        def post(path: str, **form: str) -> int:
            return httpx2.post(url + path, data=form, timeout=PATIENCE).status_code

        try:
            assert post("/suites", slug="mine") == 303
            tries = [
                pool.submit(post, "/suites/mine/add", query="Who?", retriever="search", do="find") for _ in range(most)
            ]
            for _ in tries:
                assert begun.acquire(timeout=PATIENCE)
            assert post("/suites/mine/add", query="What?", do="save") == 303
            assert post("/suites/mine/canaries/what", query="Whatever?", do="keep") == 200
            assert post("/new-retriever", **{**MAPPED, "do": "read"}) == 200
            assert post("/new-retriever", **{**MAPPED, "do": "save"}) == 303
            assert post("/new-check", **CHECK) == 303
            assert post("/retrievers/search/try", query="Who?", answer='{"hits": []}', k="5") == 200
            assert not any(one.done() for one in tries)
        finally:
            ended.set()
        assert [one.result(PATIENCE) for one in tries] == [200] * most
