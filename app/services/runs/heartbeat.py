"""The heartbeat of a worker: the leases of its runs are renewed for as long as it carries them out."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from app.domain.errors import StoreUnavailableError
from app.services.runs import runs
from app.services.self_monitor import Issue, SelfMonitor
from app.store.engine import Store

logger = logging.getLogger("coalmine.worker")

EVERY_SECONDS: Final = 5.0


def keep_leases(
    store: Store,
    monitor: SelfMonitor,
    held: Callable[[], Mapping[str, int]],
    *,
    clock: Callable[[], datetime],
    lease: timedelta,
    stopping: threading.Event,
) -> None:
    """Renew the leases of the runs that are `held`, by owner, until `stopping`, whatever goes wrong with one renewal.

    Where renewing fails for half a lease, it is reported to the monitor.
    """
    beaten_at = time.monotonic()
    while not stopping.wait(EVERY_SECONDS):
        try:
            if under_way := held():
                runs.renew(store, under_way, now=clock(), lease=lease)
        except StoreUnavailableError as error:
            logger.error("store_unavailable", extra={"detail": str(error)})  # noqa: TRY400 - expected, no trace
        except BaseException:  # without a heartbeat every long run would be taken over again and again
            logger.exception("bug")
        else:
            beaten_at = time.monotonic()
            monitor.clear(Issue.HEARTBEAT)
            continue
        silent = time.monotonic() - beaten_at
        if silent > lease.total_seconds() / 2:
            detail = f"the leases of running runs could not be renewed for {silent:.0f} s; the log has the reason"
            monitor.report(Issue.HEARTBEAT, detail)
