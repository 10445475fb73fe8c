"""A fault that lasts too long for real processes: a receiver dead for a day, on real rows and by a set clock."""

from datetime import timedelta
from pathlib import Path
from typing import Final

from app.base.db.engine import Store
from app.base.db.files import migrate
from app.hooks.domain import GIVE_UP_AFTER, JITTER_SHARE, LONGEST_BACKOFF_SECONDS, Receipt
from app.hooks.service import hooks
from tests.faults.accounting import Account
from tests.faults.bench import RULE
from tests.faults.faults import Fault
from tests.faults.harness import FaultError
from tests.faults.postgres import postgres
from tests.support.fakes import FakeSend, answered, hits
from tests.support.world import HOOK, World, canary, page

_DEAD: Final = Receipt(ok=False, error="unreachable", detail="connection refused", latency_seconds=0.1)
_STEP: Final = timedelta(seconds=60)
_LONGEST_WAIT: Final = timedelta(seconds=LONGEST_BACKOFF_SECONDS * (1 + JITTER_SHARE)) + _STEP
_TRIAL_SECONDS = 3600.0


def kill_receiver_for_a_day(folder: Path, times: int) -> Account:
    """Let a receiver be dead for 23 hours, and another time for more than 24, after which people replay what waits.

    On SQLite and PostgreSQL. Raises FaultError where a notification was given up sooner, or sent by itself later.
    """
    total = Account()
    for number in range(times):
        total += _wait_a_day(f"sqlite:///{folder / f'{number}.db'}")
        with postgres(_TRIAL_SECONDS) as server:
            total += _wait_a_day(server.url)
    return total


def _wait_a_day(url: str) -> Account:
    store = Store(url)
    try:
        migrate(store)
        send = FakeSend()
        world = World(store=store, send=send)
        world.apply({**page([canary("ant")], rules=[RULE], hooks=["ops"]), "hooks": [HOOK]})
        _run(world, is_missing=True)
        _be_dead(world, send, timedelta(hours=23))
        _expect(world, "pending")
        _be_alive(world, send)
        _expect(world, "delivered")
        _run(world, is_missing=False)
        _be_dead(world, send, GIVE_UP_AFTER)
        _expect(world, "delivered", "pending")
        _be_dead(world, send, 2 * _LONGEST_WAIT)
        _expect(world, "delivered", "dead")
        _be_alive(world, send)
        _expect(world, "delivered", "dead")
        hooks.replay_all(store, "ops", now=world.clock())
        _be_alive(world, send)
        _expect(world, "delivered", "delivered")
        return _account(world, send)
    finally:
        store.close()


def _run(world: World, *, is_missing: bool) -> None:
    """Have an alert open, or resolve."""
    world.probe.answers = {"ant": answered(hits("noise"))}
    if not is_missing:
        world.probe.all_answer()
    world.run()


def _be_dead(world: World, send: FakeSend, duration: timedelta) -> None:
    """Let this time pass in which nothing answers, with a worker that looks for what is due."""
    ends_at = world.clock() + duration
    while world.clock() < ends_at:
        send.receipts = [_DEAD]
        world.deliver()
        world.clock.advance(_STEP.total_seconds())
    send.receipts = []


def _be_alive(world: World, send: FakeSend) -> None:
    """Let the longest wait between two attempts pass, and take what comes."""
    send.receipts = []
    ends_at = world.clock() + _LONGEST_WAIT
    while world.clock() < ends_at:
        world.deliver()
        world.clock.advance(_STEP.total_seconds())


def _expect(world: World, *states: str) -> None:
    came = [one["state"] for one in world.deliveries()]
    if came != list(states):
        raise FaultError(f"{world.clock()}: deliveries are {came}, expected {list(states)}")


def _account(world: World, send: FakeSend) -> Account:
    """Count what became of it: the last request of each message was taken, all others were not."""
    bodies = {(message.id, message.body) for _, message in send.sent}
    messages = {message for message, _ in bodies}
    wanted = world.deliveries()
    return Account(
        faults=2,
        runs=world.count("runs")["runs"],
        results=world.count("runs")["runs"],
        alerts=len(world.alerts()),
        deliveries=len(wanted),
        never_delivered=len(wanted) - len(messages),
        changed_bodies=len(bodies) - len(messages),
    )


FAULTS = [
    Fault(
        name="hook-dead-day",
        title="SQLite and PostgreSQL: receiver dead for 23 h and for 24 h, then replayed (simulated clock)",
        long=5,
        attempt=kill_receiver_for_a_day,
    )
]
