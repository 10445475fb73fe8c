"""The app over a world: what the services did stands in the store, and a client reads it as a browser does."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from httpx2 import Response

from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.config import Settings
from app.main import Service, create_app
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.reports import metrics
from app.retrievers.domain.retrievers import Probe
from tests.support.asgi_client import TestClient
from tests.support.described_answers import watched
from tests.support.fakes import FakeClock, FakeProbe, FakeSend
from tests.support.html_pages import Page
from tests.support.world import LINKS, World

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
HOSTILE = """</script><script>alert(1)</script>"'><img src=x onerror=alert(2)>&amp;{{ 7*7 }}"""


@dataclass(kw_only=True)
class Site:
    """A world with its pages."""

    world: World
    worker: Worker | None = None
    public_url: str | None = None
    probe: Probe | None = None
    exposition: metrics.Exposition = field(default_factory=metrics.Exposition.create)
    built: tuple[Service, FastAPI] | None = None
    """What the app was built of, and the app."""

    def app(self) -> FastAPI:
        """Give the app, built anew where something of it was changed: that takes longer than most of its pages.

        Its lifespan is never run, so the store stays the world's.
        """
        service = Service(
            settings=Settings(data_dir=Path("nowhere"), public_url=self.public_url),
            store=self.world.store,
            vault=self.world.vault,
            exposition=self.exposition,
            worker=self.worker,
            probe=self.probe or self.world.probe,
            environment={},
        )
        if self.built is None or not _are_of_one(self.built[0], service):
            self.built = (service, create_app(service))
        return self.built[1]

    def client(self, base_url: str = "http://127.0.0.1:8000", **headers: str) -> TestClient:
        """Open a browser that follows no redirect by itself."""
        return watched(TestClient(self.app(), base_url=base_url, headers=HTML | headers, follow_redirects=False))

    def page(self, path: str, status: int = 200) -> Page:
        """Read a page as somebody on the open service."""
        return page(self.client().get(path), status)

    def key(self, scope: Scope = Scope.ADMIN) -> str:
        """Create a key."""
        return keys.create_key(self.world.store, name="somebody", scope=scope, now=datetime.now(UTC))

    def signed_in(self, key: str) -> TestClient:
        """Open a browser and sign in."""
        client = self.client()
        answer = client.post("/login", data={"key": key, "next": "/"})
        assert answer.status_code == 303, answer.text
        return client


Bench = Site


def _are_of_one(before: Service, now: Service) -> bool:
    """Whether two services have the very same parts."""
    same = before.settings == now.settings and before.store is now.store and before.vault is now.vault
    return same and before.worker is now.worker and before.probe is now.probe and before.exposition is now.exposition


def site(store: Store, **more: Any) -> Site:
    """Give a site whose world began an hour ago."""
    return Site(world=World(store=store, clock=FakeClock(now=datetime.now(UTC) - timedelta(hours=1))), **more)


def page(answer: Response, status: int = 200) -> Page:
    """Parse an answer that must be a page."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Page(answer.text)


def csrf(client: TestClient, path: str = "/") -> str:
    """Give the token of the session's pages."""
    return page(client.get(path)).one("meta", name="csrf").get("content")


def idle_worker(world: World) -> Worker:
    """Make a worker that was never started."""
    engine = Engine(
        store=world.store, vault=world.vault, probe=FakeProbe(), send=FakeSend(), links=LINKS, owner="nobody"
    )
    exposition = metrics.Exposition.create()
    return Worker(engine, exposition.process, exposition.snapshot)
