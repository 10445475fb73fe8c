"""Alerts as a list shows them: each with what fell and who was told, in a line. Nothing here writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.alerting import AlertState
from app.domain.announcing import TOLD_ONCE, TRIGGERS
from app.services import alert_reading
from app.services.alert_reading import AlertQuestion
from app.services.evidence import explain_all
from app.services.notices import NOT_ABOUT_CANARIES
from app.store import tallies
from app.store.engine import Connection, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLine:
    """An alert at a glance."""

    alert: Mapping[str, Any]
    headline: str | None
    """What fell, of one that is not over and is about canaries."""
    told_reason: str
    """Why it opened or got worse; of one that has not opened, what its rule saw last."""
    told: Mapping[str, int]
    """How many deliveries tell of it, by their state."""
    suppressed: Mapping[str, Any] | None
    """Its newest transition that was to be told, where that was not sent."""


def lines(store: Store, asked: AlertQuestion, *, before: int | None, limit: int) -> list[AlertLine]:
    """List the alerts asked for, newest first. Raises NotFoundError for a check that never was."""
    found = alert_reading.find_alerts(store, asked, before=before, limit=limit)
    with store.read() as connection:
        told = tallies.by_alert(connection, [int(alert["id"]) for alert in found])
        headlines = _headlines(connection, found)
    return [
        AlertLine(
            alert=alert,
            headline=headlines.get(alert["id"]),
            told_reason=told_reason(alert),
            told=told[int(alert["id"])],
            suppressed=_suppressed(alert),
        )
        for alert in found
    ]


def told_reason(alert: Mapping[str, Any]) -> str:
    """Give the reason with which an alert opened or got worse last; before that, what its rule saw last."""
    news = [str(change["reason"]) for change in alert["transitions"] if change["type"] in TOLD_ONCE]
    return news[-1] if news else str(alert["reason"])


def _headlines(connection: Connection, found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Say by alert id what fell: of the run it was told of last, and since its first bad one."""
    asked: dict[str, tuple[int, int | None]] = {}
    for alert in found:
        triggers = [change["run_id"] for change in alert["transitions"] if change["type"] in TRIGGERS]
        if alert["state"] == AlertState.RESOLVED or alert["kind"] in NOT_ABOUT_CANARIES or not any(triggers[-1:]):
            continue
        first = int(alert["since_run"]) if alert["since_run"] is not None else None
        asked[alert["id"]] = (int(triggers[-1]), first)
    wanted = list(dict.fromkeys(asked.values()))
    known = dict(zip(wanted, explain_all(connection, wanted), strict=True))
    return {number: why.fleet.headline for number, one in asked.items() if (why := known[one]) is not None}


def _suppressed(alert: Mapping[str, Any]) -> Mapping[str, Any] | None:
    told = [change for change in alert["transitions"] if change["type"] in TRIGGERS]
    return told[-1] if told and told[-1]["suppressed"] is not None and alert["state"] != AlertState.RESOLVED else None
