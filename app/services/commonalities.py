"""What the degraded canaries of the newest run of a check have in common, as the news of its alerts say it."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.services.evidence import explain
from app.store.engine import Store


def common(store: Store, run_id: str, alerts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Say in a headline who fell since the oldest of these open alerts began; None where none is open, or nobody fell.

    `alerts` and `run_id` are as pages read them.
    """
    begun = [int(alert["since_run"]) for alert in alerts if alert["since_run"] is not None]
    if not begun:
        return None
    with store.read() as connection:
        found = explain(connection, int(run_id), first_run=min(begun))
    return found.told if found is not None and found.fleet.fallen else None
