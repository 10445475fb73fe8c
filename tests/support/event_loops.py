"""Event loops of tests: the main thread has one of the browser's, and may have no second."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


def run(
    work: Coroutine[Any, Any, ResultT], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> ResultT:
    """Give what a coroutine gives, run to its end by a loop in a thread of its own."""

    def to_the_end() -> ResultT:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(work)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(to_the_end).result()
