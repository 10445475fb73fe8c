"""Rows of incidents, which group the alerts of a check and class that are open together."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_one, sql_literal
from app.hooks.tables import alerts, deliveries, incidents


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """One incident."""

    id: int
    check_id: int
    incident_class: str
    dedupe_key: str
    severity: str
    alert_id: int
    """Its first alert."""
    opened_at: int
    updated_at: int | None
    resolved_at: int | None


def open_incidents(connection: Connection, check_id: int, *, hold: bool) -> list[IncidentRow]:
    """Read the unresolved incidents of a check, oldest first; with `hold` their rows stay locked."""
    statement = sa.select(incidents).where(incidents.c.check_id == check_id, incidents.c.resolved_at.is_(None))
    statement = statement.order_by(incidents.c.id)
    return [_incident(row) for row in connection.execute(statement.with_for_update() if hold else statement)]


def find_incident(connection: Connection, incident_id: int) -> IncidentRow | None:
    """Find an incident by its id."""
    row = connection.execute(sa.select(incidents).where(incidents.c.id == incident_id)).one_or_none()
    return _incident(row) if row else None


def find_incidents(connection: Connection, incident_ids: Iterable[int]) -> dict[int, IncidentRow]:
    """Read incidents by their ids."""
    rows = connection.execute(sa.select(incidents).where(incidents.c.id.in_(sorted(set(incident_ids)))))
    return {row.id: _incident(row) for row in rows}


def open_incident(connection: Connection, **values: Any) -> int | None:
    """Open an incident; None where the check has one of the class and key open already."""
    return insert_one(connection, incidents, **values)


def end_abandoned(connection: Connection, check_id: int, incident_class: str, key: str, *, at: int) -> bool:
    """End an incident without unresolved alerts, as left by a release without incidents; True where there was one."""
    unresolved = sa.exists().where(alerts.c.incident_id == incidents.c.id, alerts.c.state != sql_literal("resolved"))
    mine = sa.and_(
        incidents.c.check_id == check_id,
        incidents.c.incident_class == incident_class,
        incidents.c.dedupe_key == key,
        incidents.c.resolved_at.is_(None),
    )
    change = sa.update(incidents).where(mine, ~unresolved).values(resolved_at=at)
    return connection.execute(change).rowcount == 1


def update_incident(connection: Connection, incident_id: int, **values: Any) -> None:
    """Change an incident whose row is held, see `open_incidents`."""
    connection.execute(sa.update(incidents).where(incidents.c.id == incident_id).values(**values))


def enter_incident(connection: Connection, alert_ids: Sequence[int], incident: IncidentRow) -> None:
    """Add alerts to an incident; receivers know them by its key from then on."""
    change = sa.update(alerts).where(alerts.c.id.in_(list(alert_ids)))
    connection.execute(change.values(incident_id=incident.id, dedupe_key=incident.dedupe_key))


def announced_without(connection: Connection, alert_ids: Collection[int]) -> list[int]:
    """List those of these alerts that have deliveries of no incident, as a release without incidents writes them."""
    if not alert_ids:
        return []
    stray = sa.and_(deliveries.c.incident_id.is_(None), deliveries.c.state != "cancelled")
    mine = deliveries.c.alert_id.in_(sorted(alert_ids))
    rows = connection.execute(sa.select(deliveries.c.alert_id).where(mine, stray).distinct())
    return sorted(row.alert_id for row in rows)


def adopt_alert(connection: Connection, alert_id: int, incident_id: int) -> None:
    """Add an alert and its deliveries without an incident to this one; the alert's key stays."""
    connection.execute(sa.update(alerts).where(alerts.c.id == alert_id).values(incident_id=incident_id))
    stray = sa.and_(deliveries.c.alert_id == alert_id, deliveries.c.incident_id.is_(None))
    connection.execute(sa.update(deliveries).where(stray).values(incident_id=incident_id))


def clear_acknowledgements(connection: Connection, incident_id: int) -> None:
    """Clear the acknowledgements of an incident, after it escalated or was updated."""
    unresolved = sa.and_(alerts.c.incident_id == incident_id, alerts.c.state.in_(("firing", "recovering")))
    connection.execute(sa.update(alerts).where(unresolved).values(acknowledged_at=None, acknowledged_by=None))


def share_acknowledgement(connection: Connection, incident_id: int, joined: Sequence[int]) -> None:
    """Acknowledge alerts that entered an incident without a message, where all its other alerts are acknowledged."""
    open_ = sa.and_(alerts.c.incident_id == incident_id, alerts.c.state.in_(("firing", "recovering")))
    others = sa.select(alerts.c.acknowledged_at, alerts.c.acknowledged_by)
    before = connection.execute(others.where(open_, alerts.c.id.not_in(list(joined))).order_by(alerts.c.id)).all()
    if before and all(one.acknowledged_at is not None for one in before):
        change = sa.update(alerts).where(alerts.c.id.in_(list(joined)), alerts.c.acknowledged_at.is_(None))
        connection.execute(change.values(**before[0]._mapping))  # noqa: SLF001 - the public name of it


def _incident(row: Any) -> IncidentRow:
    return IncidentRow(**{name: getattr(row, name) for name in IncidentRow.__dataclass_fields__})
