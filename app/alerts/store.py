"""Rows of alerts, their transitions and the incidents they form. Deliveries are in `hooks.store`."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.alerts.domain.state import IncidentClass, OpenIncident
from app.alerts.domain.views import StoredEvidence
from app.alerts.tables import alerts, incidents, transitions
from app.base.db.engine import from_us, insert_one, row_value, sql_literal
from app.base.values import Severity, Value
from app.catalog.tables import definitions
from app.hooks.tables import deliveries


class AlertRow(Value):
    """One alert."""

    id: int
    check_id: int
    check: str
    rule_key: str
    kind: str
    scope: str
    severity: str
    state: str
    reason: str
    evidence: StoredEvidence
    dedupe_key: str
    first_run: int | None
    created_at: int
    opened_at: int | None
    resolved_at: int | None
    acknowledged_at: int | None
    acknowledged_by: str | None
    incident_id: int | None


class TransitionRow(Value):
    """One change of an alert."""

    id: int
    alert_id: int
    at: int
    type: str
    severity: str
    reason: str
    run_id: int | None
    evidence: StoredEvidence
    suppressed: str | None
    silence: str | None


_UNRESOLVED = alerts.c.state != sql_literal("resolved")
"""As in the partial index."""
_OPEN = alerts.c.state.in_(("firing", "recovering"))
_ALERT = sa.select(alerts, definitions.c.slug.label("check")).join(definitions, definitions.c.id == alerts.c.check_id)


def open_alerts(connection: Connection, check_id: int, *, hold: bool = True) -> list[AlertRow]:
    """Read the alerts of a check that are not resolved; with `hold` their rows stay locked for the transaction."""
    rows = connection.execute(_HELD_ALERTS if hold else _OPEN_ALERTS, {"check": check_id})
    return [_alert(row) for row in rows]


_OPEN_ALERTS = _ALERT.where(alerts.c.check_id == sa.bindparam("check"), _UNRESOLVED).order_by(alerts.c.id)
_HELD_ALERTS = _OPEN_ALERTS.with_for_update(of=alerts)


def alerts_within(connection: Connection, check_id: int, *, first: int, last: int) -> list[AlertRow]:
    """Read the alerts of a check that were open at some time of a span, resolved by now or not, in their order."""
    mine = (alerts.c.check_id == check_id, alerts.c.opened_at <= last)
    ended = sa.or_(alerts.c.resolved_at.is_(None), alerts.c.resolved_at >= first)
    return [_alert(row) for row in connection.execute(_ALERT.where(*mine, ended).order_by(alerts.c.id))]


def find_alert(connection: Connection, alert_id: int) -> AlertRow | None:
    """Find an alert by its id."""
    row = connection.execute(_ALERT.where(alerts.c.id == alert_id)).one_or_none()
    return _alert(row) if row else None


def alerts_of_incident(connection: Connection, incident_id: int) -> list[AlertRow]:
    """Read all alerts that are or were part of an incident, its first alert first."""
    is_first = sa.exists().where(incidents.c.id == incident_id, incidents.c.alert_id == alerts.c.id)
    statement = _ALERT.where(alerts.c.incident_id == incident_id).order_by(is_first.desc(), alerts.c.id)
    return [_alert(row) for row in connection.execute(statement)]


class AlertFilter(Value):
    """Conditions on alerts; a default matches all."""

    check_id: int | None = None
    states: Sequence[str] = ()
    severity: str | None = None
    kind: str | None = None
    unacknowledged: bool = False
    """Only open ones that are not acknowledged."""
    since: int | None = None
    """Created at this moment or later."""
    until: int | None = None
    """Created before this moment."""
    incident_id: int | None = None

    @property
    def unresolved(self) -> bool:
        """Whether resolved alerts are excluded."""
        return self.unacknowledged or bool(self.states and "resolved" not in self.states)


def list_alerts(
    connection: Connection, alert_filter: AlertFilter | None = None, *, before: int | None = None, limit: int = 50
) -> list[AlertRow]:
    """List alerts, newest first, those with an id below `before`."""
    conditions = alert_filter or AlertFilter()
    statement = _ALERT.where(*_conditions(conditions)).limit(limit)
    # The sum keeps SQLite from walking all alerts by their id, where few match.
    statement = statement.order_by((alerts.c.id + 0 if conditions.unresolved else alerts.c.id).desc())
    if before is not None:
        statement = statement.where(alerts.c.id < before)
    return [_alert(row) for row in connection.execute(statement)]


def _conditions(alert_filter: AlertFilter) -> Iterator[sa.ColumnElement[bool]]:
    if alert_filter.unresolved:
        yield _UNRESOLVED
    for name in ("check_id", "severity", "kind", "incident_id"):
        if (value := getattr(alert_filter, name)) is not None:
            yield alerts.c[name] == value
    if alert_filter.states:
        yield alerts.c.state.in_(list(alert_filter.states))
    if alert_filter.unacknowledged:
        yield _OPEN
        yield alerts.c.acknowledged_at.is_(None)
    if alert_filter.since is not None:
        yield alerts.c.created_at >= alert_filter.since
    if alert_filter.until is not None:
        yield alerts.c.created_at < alert_filter.until


def count_alerts(connection: Connection, check_ids: Sequence[int] | None = None) -> list[tuple[int, str, str, int]]:
    """Count the unresolved alerts of all checks, or of a few hundred at most: (check id, state, severity, count)."""
    statement = (
        sa.select(alerts.c.check_id, alerts.c.state, alerts.c.severity, sa.func.count())
        .where(_UNRESOLVED)
        .group_by(alerts.c.check_id, alerts.c.state, alerts.c.severity)
    )
    if check_ids is not None:
        statement = statement.where(alerts.c.check_id.in_(list(check_ids)))
    return list(connection.execute(statement).all())


def firing_of_kind(connection: Connection, kind: str) -> dict[int, tuple[str, str]]:
    """Return the severity and reason of the firing alert of a kind, by the id of its check."""
    firing = sa.and_(_UNRESOLVED, alerts.c.state == "firing", alerts.c.kind == kind)
    statement = sa.select(alerts.c.check_id, alerts.c.severity, alerts.c.reason).where(firing).order_by(alerts.c.id)
    return {row[0]: (row[1], row[2]) for row in connection.execute(statement)}


def count_unresolved(connection: Connection, *, check_id: int | None = None) -> list[tuple[str, bool, int]]:
    """Count unresolved alerts, of one check where given: (state, whether acknowledged, count)."""
    acknowledged = alerts.c.acknowledged_at.is_not(None)
    statement = sa.select(alerts.c.state, acknowledged, sa.func.count()).where(_UNRESOLVED)
    if check_id is not None:
        statement = statement.where(alerts.c.check_id == check_id)
    return [
        (row[0], bool(row[1]), row[2]) for row in connection.execute(statement.group_by(alerts.c.state, acknowledged))
    ]


def insert_alert(connection: Connection, **values: Any) -> int | None:
    """Insert an alert; None where its rule and scope already have an unresolved one."""
    return insert_one(connection, alerts, **_packed(values))


def update_alert(connection: Connection, alert_id: int, *, was: str, **values: Any) -> bool:
    """Change an alert that is still in the state `was`; False where another replica changed it first."""
    same = sa.and_(alerts.c.id == alert_id, alerts.c.state == was)
    return connection.execute(sa.update(alerts).where(same).values(**_packed(values))).rowcount == 1


def delete_alert(connection: Connection, alert_id: int) -> None:
    """Delete an alert that is still pending."""
    connection.execute(sa.delete(alerts).where(alerts.c.id == alert_id, alerts.c.state == "pending"))


def append_transition(connection: Connection, **values: Any) -> int:
    """Append a change of an alert."""
    result = connection.execute(sa.insert(transitions).values(**_packed(values)).returning(transitions.c.id))
    return int(result.scalar_one())


def list_transitions(connection: Connection, alert_ids: Sequence[int]) -> dict[int, list[TransitionRow]]:
    """Read the changes of alerts, oldest first, by alert id."""
    statement = sa.select(transitions).where(transitions.c.alert_id.in_(list(alert_ids))).order_by(transitions.c.id)
    by_alert: dict[int, list[TransitionRow]] = {alert_id: [] for alert_id in alert_ids}
    for row in connection.execute(statement):
        by_alert[row.alert_id].append(_transition(row))
    return by_alert


def newest_transitions(
    connection: Connection, alert_ids: Collection[int], types: Collection[str]
) -> dict[int, tuple[int, str | None]]:
    """Find the newest change of these types of each alert: (its id, why it was not sent) by alert id."""
    mine = sa.and_(transitions.c.alert_id.in_(list(alert_ids)), transitions.c.type.in_(sorted(types)))
    statement = sa.select(transitions.c.alert_id, transitions.c.id, transitions.c.suppressed).where(mine)
    return {row.alert_id: (row.id, row.suppressed) for row in connection.execute(statement.order_by(transitions.c.id))}


def opening_runs(connection: Connection, alert_ids: Sequence[int]) -> dict[int, int]:
    """Find the runs that opened alerts, by alert id; those that no run opened are left out."""
    if not alert_ids:
        return {}
    opened = sa.and_(transitions.c.alert_id.in_(list(alert_ids)), transitions.c.type == "opened")
    statement = sa.select(transitions.c.alert_id, transitions.c.run_id).where(opened, transitions.c.run_id.is_not(None))
    return {row.alert_id: row.run_id for row in connection.execute(statement)}


def find_transition(connection: Connection, transition_id: int) -> TransitionRow:
    """Read a transition with an id known to exist."""
    return _transition(connection.execute(sa.select(transitions).where(transitions.c.id == transition_id)).one())


def suppress(connection: Connection, transition_id: int, why: str, *, silence: str | None = None) -> None:
    """Record why a transition is not sent, and the silence where one matches; an earlier silence stays recorded."""
    values = {"suppressed": why} | ({"silence": silence} if silence is not None else {})
    connection.execute(sa.update(transitions).where(transitions.c.id == transition_id).values(**values))


def release(connection: Connection, transition_id: int) -> None:
    """Record that a transition is sent after all; the silence that suppressed it until now stays recorded."""
    connection.execute(sa.update(transitions).where(transitions.c.id == transition_id).values(suppressed=None))


def acknowledge(connection: Connection, alert_id: int, *, at: int, by: str) -> bool:
    """Acknowledge an open alert; False where it is not open, or is acknowledged already."""
    unseen = sa.and_(alerts.c.id == alert_id, _OPEN, alerts.c.acknowledged_at.is_(None))
    values = {"acknowledged_at": at, "acknowledged_by": by}
    return connection.execute(sa.update(alerts).where(unseen).values(**values)).rowcount == 1


def unresolved_checks(connection: Connection) -> list[int]:
    """List the checks with an unresolved alert."""
    statement = sa.select(alerts.c.check_id).where(_UNRESOLVED).distinct()
    return list(connection.execute(statement).scalars().all())


def firing_checks(connection: Connection) -> set[int]:
    """Return checks with a firing alert."""
    firing = sa.and_(_UNRESOLVED, alerts.c.state == "firing")
    return set(connection.execute(sa.select(alerts.c.check_id).where(firing).distinct()).scalars())


def _packed(values: Mapping[str, object]) -> dict[str, object]:
    return {name: json.dumps(value) if name == "evidence" else value for name, value in values.items()}


def _alert(row: Any) -> AlertRow:
    return row_value(AlertRow, row, evidence=json.loads(row.evidence))


def _transition(row: Any) -> TransitionRow:
    return row_value(TransitionRow, row, evidence=json.loads(row.evidence))


class IncidentRow(Value):
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


def open_incidents(connection: Connection, check_id: int, *, hold: bool) -> list[OpenIncident]:
    """Read the open incidents of a check, oldest first, without deliveries; with `hold` their rows stay locked."""
    statement = sa.select(incidents).where(incidents.c.check_id == check_id, incidents.c.resolved_at.is_(None))
    statement = statement.order_by(incidents.c.id)
    return [
        row_value(
            OpenIncident,
            row,
            incident_class=IncidentClass(row.incident_class),
            severity=Severity(row.severity),
            opened_at=from_us(row.opened_at),
            updated_at=from_us(row.updated_at) if row.updated_at is not None else None,
            deliveries=(),
        )
        for row in connection.execute(statement.with_for_update() if hold else statement)
    ]


def find_incident(connection: Connection, incident_id: int) -> IncidentRow | None:
    """Find an incident by its id."""
    return find_incidents(connection, [incident_id]).get(incident_id)


def find_incidents(connection: Connection, incident_ids: Iterable[int]) -> dict[int, IncidentRow]:
    """Read incidents by their ids."""
    rows = connection.execute(sa.select(incidents).where(incidents.c.id.in_(sorted(set(incident_ids)))))
    return {row.id: row_value(IncidentRow, row) for row in rows}


def incidents_at(connection: Connection, check_id: int, run_id: int, ended: int) -> list[IncidentRow]:
    """Read the incidents that a run is part of: its alerts' first bad run is no later, and they were not resolved."""
    lasted = sa.or_(alerts.c.resolved_at.is_(None), alerts.c.resolved_at > ended)
    mine = sa.and_(
        alerts.c.check_id == check_id, alerts.c.first_run <= run_id, lasted, alerts.c.incident_id.is_not(None)
    )
    ids = connection.execute(sa.select(alerts.c.incident_id).where(mine).distinct()).scalars()
    return list(find_incidents(connection, ids).values())


def count_incidents(connection: Connection, *, since: int) -> int:
    """Count the incidents whose alerts began at a moment or later."""
    begun = sa.select(sa.func.count(alerts.c.incident_id.distinct())).where(alerts.c.created_at >= since)
    return int(connection.execute(begun).scalar_one())


def count_open_incidents(connection: Connection) -> int:
    """Count the incidents that are not resolved."""
    statement = sa.select(sa.func.count()).select_from(incidents).where(incidents.c.resolved_at.is_(None))
    return int(connection.execute(statement).scalar_one())


def open_incident(connection: Connection, **values: Any) -> int | None:
    """Open an incident; None where the check has one of the class and key open already."""
    return insert_one(connection, incidents, **values)


def end_abandoned(connection: Connection, check_id: int, incident_class: str, key: str, *, at: int) -> bool:
    """End an incident without unresolved alerts, as left by a release without incidents; True where there was one."""
    unresolved = sa.exists().where(alerts.c.incident_id == incidents.c.id, _UNRESOLVED)
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


def enter_incident(connection: Connection, alert_ids: Sequence[int], incident_id: int, dedupe_key: str) -> None:
    """Add alerts to an incident; receivers know them by its key from then on."""
    change = sa.update(alerts).where(alerts.c.id.in_(list(alert_ids)))
    connection.execute(change.values(incident_id=incident_id, dedupe_key=dedupe_key))


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
    unresolved = sa.and_(alerts.c.incident_id == incident_id, _OPEN)
    connection.execute(sa.update(alerts).where(unresolved).values(acknowledged_at=None, acknowledged_by=None))


def share_acknowledgement(connection: Connection, incident_id: int, joined: Sequence[int]) -> None:
    """Acknowledge alerts that entered an incident without a message, where all its other alerts are acknowledged."""
    open_ = sa.and_(alerts.c.incident_id == incident_id, _OPEN)
    others = sa.select(alerts.c.acknowledged_at, alerts.c.acknowledged_by)
    before = connection.execute(others.where(open_, alerts.c.id.not_in(list(joined))).order_by(alerts.c.id)).all()
    if before and all(one.acknowledged_at is not None for one in before):
        change = sa.update(alerts).where(alerts.c.id.in_(list(joined)), alerts.c.acknowledged_at.is_(None))
        connection.execute(change.values(**before[0]._mapping))  # noqa: SLF001 - the public name of it
