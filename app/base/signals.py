"""The end of a process by signals; imports nothing of the service, which `coalmine check` does without."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


class Ending:
    """The handler of signals: the first begins an orderly end, which the next one cuts short."""

    def __init__(self) -> None:
        self.begun = False

    def __call__(self, _number: int, _frame: FrameType | None) -> NoReturn:
        """Unwind everything by a KeyboardInterrupt."""
        self.begin()
        raise KeyboardInterrupt

    def begin(self) -> None:
        """Note that the end has begun; leave at once where it had."""
        if self.begun:
            os._exit(INTERRUPTED)
        self.begun = True


@contextmanager
def stopped_by_signals() -> Iterator[Ending]:
    """Let Ctrl-C and SIGTERM end the process, by a KeyboardInterrupt that unwinds everything; a second one at once."""
    ending = Ending()
    before = {number: signal.signal(number, ending) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
