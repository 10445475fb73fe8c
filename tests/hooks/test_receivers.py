"""Receivers that misbehave: what becomes of news, that nothing is lost or told out of order, and that runs go on."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from app.base.addresses import hook_policy, parse_allow
from app.base.db.engine import Store
from app.catalog import store as catalog
from app.config import Settings
from app.hooks.client.webhook import Sender
from app.hooks.domain import Hook, Message, Receipt
from app.main import create_app, open_service
from app.operation.worker_tasks import MOST_SENDS
from tests.support.api_service import BASE, Api, Mailbox, Obedient
from tests.support.asgi_client import TestClient
from tests.support.fakes import DELIVERED, ActingSend
from tests.support.http_servers import HANG, SILENCE, Reply, Seen, closed_port, read_request, reply
from tests.support.living import until
from tests.support.receivers import talking
from tests.support.world import AT_ONCE, HOOK, World, canary, page

pytestmark = pytest.mark.systems

Talk = Callable[[Any, threading.Event], None]
send = Sender(policy=hook_policy(parse_allow("127.0.0.1")))

FINE = reply(status=204)
MID_BODY = Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of", close=True)
ENDLESS = Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + bytes(100_000), close=True)
HALF_HEAD = Reply(raw=b"HTTP/1.1 20", close=True)
FOREIGN = Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n", close=True)


def _never_read(_connection: Any, over: threading.Event) -> None:
    over.wait(30)


def _reset(connection: Any, _over: threading.Event) -> None:
    connection.recv(10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # to close is to reset


def _drip(connection: Any, over: threading.Event) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"z" * 10_000:
        if over.wait(0.02):
            return
        connection.sendall(bytes([byte]))


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What becomes of a delivery: its state, how the reason begins, and the errors of its attempts, None = taken."""

    state: str
    reason: str
    errors: Sequence[str | None]


def delivered(*failed: str) -> Fate:
    """Say that it is delivered, after attempts that failed."""
    return Fate(state="delivered", reason="Delivered.", errors=[*failed, None])


def dead(reason: str, *failed: str) -> Fate:
    """Say that it is given up."""
    return Fate(state="dead", reason=reason, errors=failed)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A way to misbehave, and what becomes of a trigger and the resolve that is written while it is being tried."""

    does: str
    answers: tuple[Reply | Talk, ...]
    """One after the other, the last for ever."""
    trigger: Fate
    resolve: Fate = field(default_factory=delivered)
    waits: float = 0.0
    """Seconds that pass before the second attempt, at least."""
    disables: bool = False
    """The hook is disabled by it."""

    @property
    def slow(self) -> bool:
        """Whether it takes a time-out to notice."""
        return "timeout" in self.trigger.errors


_BUSY = {"retry-after": "120"}
_AWAY = {"location": "http://127.0.0.1:1/"}
_REDIRECTED = dead("answered 302; redirects are not followed: gave up after 24 hours", *["redirect"] * 25)
_DECLINED = dead("answered 400: gave up after 24 hours", *["http_4xx"] * 25)
_NOT_ANNOUNCED = dead("Not sent: the receiver took no message that the alert is open")
_A_DAY = dead("answered 503: gave up after 24 hours", *["http_5xx"] * 25)
_GONE = dead("answered 410: the receiver no longer exists: the receiver is gone, so the hook was disabled.", "gone")
_OWED = dead("The hook is disabled; this is sent once it is saved again.")

MISBEHAVIOUR = (
    Row(does="hangs", answers=(HANG, FINE), trigger=delivered("timeout")),
    Row(does="accepts and never reads", answers=(_never_read, FINE), trigger=delivered("timeout")),
    Row(does="drips its headers", answers=(_drip, FINE), trigger=delivered("timeout")),
    Row(does="answers 500", answers=(reply(status=500), FINE), trigger=delivered("http_5xx")),
    Row(
        does="answers 429, Retry-After",
        answers=(reply(b"", 429, _BUSY), FINE),
        trigger=delivered("http_4xx"),
        waits=120,
    ),
    Row(
        does="answers 503, Retry-After",
        answers=(reply(b"", 503, _BUSY), FINE),
        trigger=delivered("http_5xx"),
        waits=120,
    ),
    Row(does="answers 503 for days", answers=(reply(status=503),), trigger=_A_DAY, resolve=_A_DAY),
    Row(does="answers 410", answers=(reply(status=410),), trigger=_GONE, resolve=_OWED, disables=True),
    Row(does="redirects", answers=(reply(b"", 302, _AWAY),), trigger=_REDIRECTED, resolve=_NOT_ANNOUNCED),
    Row(does="answers 400", answers=(reply(status=400),), trigger=_DECLINED, resolve=_NOT_ANNOUNCED),
    Row(does="answers 400 until repaired", answers=(reply(status=400), FINE), trigger=delivered("http_4xx")),
    Row(does="closes without a word", answers=(SILENCE, FINE), trigger=delivered("unreachable")),
    Row(does="closes within the head", answers=(HALF_HEAD, FINE), trigger=delivered("unreachable")),
    Row(does="closes within the body of a 200", answers=(MID_BODY,), trigger=delivered()),
    Row(does="sends more with a 200 than is read", answers=(ENDLESS,), trigger=delivered()),
    Row(does="resets the connection", answers=(_reset, FINE), trigger=delivered("unreachable")),
    Row(does="speaks another protocol", answers=(FOREIGN, FINE), trigger=delivered("unreachable")),
)
"""The table of the README."""


@pytest.mark.parametrize("row", MISBEHAVIOUR, ids=lambda row: row.does.replace(" ", "-"))
def test_a_receiver_that_misbehaves_costs_nothing_but_time(row: Row, sqlite_store: Store) -> None:
    seen: list[Seen] = []
    left = list(row.answers)

    def talk(connection: Any, over: threading.Event) -> None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if not isinstance(answer, Reply):
            answer(connection, over)
            return
        with connection.makefile("rb") as stream:
            request = read_request(stream)
        assert request is not None
        seen.append(request)
        connection.sendall(answer.raw)
        if answer.hang:
            over.wait(30)

    with talking(talk) as port:
        world = _firing(sqlite_store, f"http://127.0.0.1:{port}/", timeout=0.3 if row.slow else 10.0)
        world.deliver(send=send)
        if row.waits:
            wait = datetime.fromisoformat(world.deliveries()[0]["next_attempt_at"]) - world.clock()
            assert wait.total_seconds() >= row.waits
        world.probe.all_answer()
        world.run()
        _until_settled(world)
    fates = [row.trigger, row.resolve]
    assert [_fate(item) for item in world.deliveries()] == [(fate.state, list(fate.errors)) for fate in fates]
    assert all(item["reason"].startswith(fate.reason) for item, fate in zip(world.deliveries(), fates, strict=True))
    types = [json.loads(request.body)["type"] for request in seen]
    assert types == sorted(types)  # alert.opened, and alert.resolved behind all of it
    assert len({(request.headers["webhook-id"], request.body) for request in seen}) == len(set(types))
    with sqlite_store.read() as connection:
        hook = catalog.find_definition(connection, "hook", "ops")
    assert hook is not None
    assert (hook.disabled_reason is not None) is row.disables


def test_a_receiver_that_is_not_there_is_tried_until_it_is(sqlite_store: Store) -> None:
    with closed_port() as port:
        world = _firing(sqlite_store, f"http://127.0.0.1:{port}/")
        world.deliver(send=send)
    world.clock.advance(60)
    world.deliver()
    assert _fate(world.deliveries()[0]) == ("delivered", ["unreachable", None])


def test_runs_end_while_every_sender_hangs(tmp_path: Path) -> None:
    release, hanging = threading.Event(), []

    def hang(hook: Hook, _message: Message) -> Receipt:
        hanging.append(hook.slug)
        release.wait(60)
        return DELIVERED

    retriever = Obedient()
    service = open_service(
        Settings(data_dir=tmp_path), environment={}, with_worker=True, probe=retriever, send=ActingSend(act=hang)
    )
    with TestClient(create_app(service), base_url=BASE) as client:
        api = Api(client, service, retriever, Mailbox())
        api.docs()
        hooks = [f"hook-{number:02}" for number in range(MOST_SENDS + 4)]
        for slug in hooks:
            api.put(f"/v1/hooks/{slug}", {"kind": "webhook", "url": "http://127.0.0.1:1/"})
            client.post(f"/v1/hooks/{slug}/test")
        until(lambda: len(hanging) == MOST_SENDS)  # every thread that sends
        run = client.post("/v1/checks/docs/runs", json={}).json()["id"]
        assert until(lambda: _final_step(api, run)) == "finished"
        assert len(hanging) == MOST_SENDS
        assert {item["state"] for item in api.get("/v1/deliveries", limit=200)["items"]} == {"pending"}
        release.set()
        until(lambda: {item["state"] for item in api.get("/v1/deliveries", limit=200)["items"]} == {"delivered"})
    assert sorted(hanging) == hooks  # each was sent once


def _final_step(api: Api, run: str) -> str | None:
    status = str(api.get(f"/v1/runs/{run}")["status"])
    return status if status not in {"queued", "running"} else None


def _firing(store: Store, url: str, *, timeout: float = 10.0) -> World:
    """Give a world with an alert that the receiver is to hear of now."""
    world = World(store=store)
    hook = {**HOOK, "url": url, "timeout": timeout}
    world.apply({**page([canary("ant")], rules=[AT_ONCE]), "hooks": [hook]})
    world.probe.all_miss()
    world.run()
    world.clock.advance(31)
    return world


def _until_settled(world: World) -> None:
    """Let hours pass until nothing is left to send."""
    while world.deliveries(state="pending"):
        world.clock.advance(3600)
        while world.deliver(send=send) is not None:
            pass


def _fate(delivery: dict[str, Any]) -> tuple[str, list[str | None]]:
    return delivery["state"], [attempt["error"] for attempt in delivery["attempts"]]
