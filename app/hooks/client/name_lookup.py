"""Resolves host names within a second, for warnings and before a proxy: a name may resolve differently when used."""

import socket
import time
from collections.abc import Collection, Mapping
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import Final

SECONDS: Final = 1.0
"""Longest wait for all names of a document together."""
_MOST = 16
_free = BoundedSemaphore(_MOST)  # a resolver that hangs may hold a thread for half a minute

_Result = tuple[str, tuple[str, ...]]


def addresses_of(hosts: Collection[str], *, seconds: float = SECONDS) -> Mapping[str, tuple[str, ...]]:
    """Return the addresses of host names; a name that is not known, or not within these seconds, has none."""
    results: SimpleQueue[_Result] = SimpleQueue()
    until, started = time.monotonic() + seconds, 0
    for host in dict.fromkeys(hosts):
        if not _free.acquire(blocking=False):
            break
        Thread(target=_resolve, args=(host, results), name="name-lookup", daemon=True).start()
        started += 1
    answers: dict[str, tuple[str, ...]] = {}
    while len(answers) < started:
        try:
            host, addresses = results.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            break
        answers[host] = addresses
    return answers


def _resolve(host: str, results: SimpleQueue[_Result]) -> None:
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # not known, or no name at all
        addresses = []
    finally:
        _free.release()
    results.put((host, tuple(dict.fromkeys(str(address[0]) for *_, address in addresses))))
