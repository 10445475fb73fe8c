"""Threads that send deliveries: one always waits for due ones, however many wait for hanging receivers."""

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final

from app.domain.delivery.hooks import Hook, Message, Receipt, Send

logger = logging.getLogger("coalmine.worker")

MOST_THREADS: Final = 64
"""Concurrent sends: a hanging receiver holds one for its time-out, and only one per hook."""


class DeliveryThreads:
    """Threads that each claim and send; one more is started when the last one that waits begins to send.

    `loop` is what a thread does under its name until the worker stops or it is surplus by its second argument.
    """

    def __init__(self, loop: Callable[[str, Callable[[], bool]], None], send: Send, *, most: int) -> None:
        self._loop = loop
        self._send = send
        self._most = most
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._started = 0
        self._waiting = 0

    def start(self) -> None:
        """Start the first thread."""
        with self._lock:
            self._start_one()

    def send(self, hook: Hook, message: Message, now: datetime) -> Receipt:
        """Send, see `Send`; meanwhile another thread waits for due deliveries."""
        with self._lock:
            self._waiting -= 1
            if self._waiting == 0 and len(self._threads) < self._most:
                try:
                    self._start_one()
                except RuntimeError:  # no more threads on this machine: due deliveries wait for this send
                    logger.exception("no_delivery_thread")
        try:
            return self._send(hook, message, now)
        finally:
            with self._lock:
                self._waiting += 1

    @property
    def alive(self) -> bool:
        """Whether a thread waits for due deliveries, or will after its send."""
        with self._lock:
            return any(thread.is_alive() for thread in self._threads)

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads there are now."""
        with self._lock:
            return list(self._threads)

    def _start_one(self) -> None:
        name = f"delivery-{self._started}"
        thread = threading.Thread(target=self._run, args=(name,), name=f"coalmine-{name}", daemon=True)
        self._started += 1
        self._waiting += 1
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:
            self._waiting -= 1
            self._threads.remove(thread)
            raise

    def _run(self, name: str) -> None:
        ended_as_surplus = False

        def is_surplus() -> bool:
            nonlocal ended_as_surplus
            with self._lock:
                if self._waiting > 1:
                    self._waiting -= 1
                    self._threads.remove(threading.current_thread())
                    ended_as_surplus = True
            return ended_as_surplus

        try:
            self._loop(name, is_surplus)
        finally:
            if not ended_as_surplus:
                with self._lock:
                    self._waiting -= 1
                    self._threads.remove(threading.current_thread())
