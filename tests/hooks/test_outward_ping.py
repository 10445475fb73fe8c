"""Somebody outside hears from a worker that works, and from no other; where, nobody else hears."""

import logging
from pathlib import Path

import pytest

from app.base.addresses import hook_policy, parse_allow
from app.base.db.engine import Store
from app.config import Settings
from app.hooks.client.webhook import Pinger
from app.hooks.service.deliveries import STALE_SECONDS, ping_if_working
from app.main import create_app, open_service
from app.operation.service.self_monitor import Issue, SelfMonitor
from tests.support.fakes import FakeProbe, FakeSend
from tests.support.http_servers import peer, reply
from tests.support.living import LOOPBACK, serving, until


def test_a_worker_that_works_pings_a_real_receiver_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with peer(reply(b"OK")) as receiver:
        settings = Settings(
            data_dir=tmp_path, hook_allow=LOOPBACK, ping_url=f"{receiver.url}/a-secret", ping_interval=1
        )
        assert "a-secret" not in repr(settings)
        service = open_service(settings, environment={}, probe=FakeProbe(), send=FakeSend())
        with caplog.at_level(logging.DEBUG, "coalmine"), serving(create_app(service)):
            until(lambda: len(receiver.seen) >= 2)
    assert {(seen.method, seen.target) for seen in receiver.seen} == {("GET", "/a-secret")}
    assert "a-secret" not in caplog.text


@pytest.mark.both
@pytest.mark.parametrize("issue", list(Issue))
def test_a_worker_that_does_not_work_pings_nobody(store: Store, issue: Issue) -> None:
    pings: list[int] = []

    def ping() -> None:
        pings.append(1)

    monitor = SelfMonitor()
    monitor.report(issue, "as reported")
    pings_on = issue in {Issue.CLOCK, Issue.DELIVERIES}  # the worker works; one receiver does not
    assert ping_if_working(ping, store, monitor, alive=True, synced_ago=1.0) == pings_on
    monitor.clear(issue)
    assert not ping_if_working(ping, store, monitor, alive=False, synced_ago=1.0)
    assert not ping_if_working(ping, store, monitor, alive=True, synced_ago=STALE_SECONDS + 1)
    assert len(pings) == pings_on
    assert ping_if_working(ping, store, monitor, alive=True, synced_ago=1.0)


def test_nobody_is_pinged_while_the_database_is_gone(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'gone' / 'coalmine.db'}")
    assert not ping_if_working(lambda: None, store, SelfMonitor(), alive=True, synced_ago=1.0)


def test_a_private_address_is_not_pinged_unless_it_is_allowed() -> None:
    with peer(reply()) as receiver:
        ping = Pinger(url=f"{receiver.url}/a-secret", policy=hook_policy(()), user_agent="coalmine/1.0")
        refused = ping()
        assert refused is not None
        assert refused.startswith("not allowed to connect")
        assert "a-secret" not in refused + repr(ping)
        assert receiver.seen == []
        allowed = Pinger(url=receiver.url, policy=hook_policy(parse_allow(LOOPBACK)), user_agent="coalmine/1.0")
        assert allowed() is None


def test_a_receiver_that_declines_is_told_in_words() -> None:
    with peer(reply(status=404)) as receiver:
        ping = Pinger(url=receiver.url, policy=hook_policy(parse_allow(LOOPBACK)), user_agent="coalmine/1.0")
        assert ping() == "the receiver answered HTTP 404"
