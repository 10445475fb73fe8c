"""The diagnosis of a run as a job: bounded in time, and the news that waits for it is sent whatever becomes of it."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final

from app.base.db.engine import from_us
from app.base.errors import StoreUnavailableError
from app.diagnosis.service import diagnoses
from app.records.store import results
from app.retrievers.domain.retrievers import Probe
from app.runs.service.plans import Planner

logger = logging.getLogger("coalmine.diagnosis")

_LEAST_SECONDS: Final = 5.0
"""Least time for questions that suffice for a cause."""


def diagnose_run(
    planner: Planner,
    probe: Probe,
    run_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Diagnose the canaries of a run, or release its deliveries where that would come too late for them.

    Canaries that are not diagnosed are after a later run. Its deliveries are released even after an error. Raises
    StoreUnavailableError: then they go when due.
    """
    with planner.store.read() as connection:
        run = results.find_run(connection, run_id)
    if run is None or run.finished_at is None:
        return
    about = {"run": run_id, "check": run.check}
    seconds = diagnoses.SECONDS - max(0.0, (clock() - from_us(run.finished_at)).total_seconds())
    if seconds < _LEAST_SECONDS or stopping():
        if released := diagnoses.release(planner.store, run_id, now=clock()):
            logger.warning("news_without_causes", extra={**about, "released": released})
        return
    try:
        outcome = diagnoses.after_run(planner, probe, run, clock=clock, stopping=stopping, seconds=seconds)
    except StoreUnavailableError:
        raise
    except Exception:
        logger.exception("bug", extra=about)
        diagnoses.release(planner.store, run_id, now=clock())
    else:
        causes = dict(Counter(outcome.causes)) if outcome is not None else {}
        logger.info("diagnosis_ended", extra={**about, "causes": causes})
