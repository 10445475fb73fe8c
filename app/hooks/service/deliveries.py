"""Delivery of notifications: take the next of a hook, render and send it, and record the result.

Three transactions around one network call, so that no transaction waits for a receiver, and a crash anywhere leads to
another attempt with the same bytes and the same idempotency key. Below: resends to receivers that would forget an
alert, test messages, the notice of a delivery, and the outward ping.
"""

import json
import logging
from collections.abc import Callable
from datetime import datetime
from random import SystemRandom

from app.alerts import store as alerts
from app.alerts.service.notifications import adopt_announced, notice_data
from app.alerts.service.shown_alerts import Links
from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.db.keys import Vault
from app.base.errors import ConfigurationError, ConflictError, LocalResourceError, NotFoundError, StoreUnavailableError
from app.base.values import DeliveryState, RuleKind, Value, replace
from app.base.views import time_text
from app.catalog import store as catalog
from app.catalog.documents.secrets import join_secrets
from app.catalog.store import Definition, require
from app.hooks import store as outbox
from app.hooks.documents import HookDocument
from app.hooks.domain import (
    OUT_OF_REACH,
    REFRESH_EVERY,
    Hook,
    Message,
    Notice,
    NoticeData,
    Receipt,
    Send,
    after_attempt,
    needs_resend,
)
from app.hooks.notices import body_of, is_written_for, shows_pictures
from app.hooks.store import DeliveryRow
from app.operation.service.self_monitor import Issue, SelfMonitor
from app.plants.domain import marker_of
from app.plants.service.shown import troubled_plant
from app.reports import store as report_rows
from app.reports.rendering.pictures import sheet
from app.reports.service.charts import heat_map_of_incident

logger = logging.getLogger("coalmine.deliveries")

_ARCHIVED = "The hook was archived."
_RANDOM = SystemRandom()  # jitter, apart from any seeded sequence
RESOLVED = "alert.resolved"
UNPREPARED = "configuration"
BUG = "bug"


class SentDelivery(Value):
    """Result of an attempt for the worker. `error` is a closed word, None where the receiver accepted it."""

    id: int
    hook: str
    state: str
    error: str | None
    reason: str
    is_resend: bool = False
    """Whether it had been delivered before, see `resend_at`."""


class PreparedDelivery(Value):
    """A delivery about to be sent, and the version of the hook it is sent to."""

    hook: Hook
    hook_version: int
    message: Message


def attempt_next(
    store: Store, vault: Vault, send: Send, hook_id: int, *, owner: str, links: Links, clock: Callable[[], datetime]
) -> SentDelivery | None:
    """Attempt what is due to a hook, new deliveries before resends; None when there is nothing."""
    sent = deliver_next(store, vault, send, hook_id, owner=owner, links=links, clock=clock)
    return sent or resend_next(store, vault, send, hook_id, owner=owner, clock=clock)


def next_attempt(store: Store, hook_id: int, now: datetime) -> datetime | None:
    """Say when something is to be sent to a hook next; None = nothing is to be."""
    with store.read() as connection:
        at = outbox.next_attempt(connection, hook_id, now=to_us(now))
    return None if at is None else from_us(at)


def deliver_next(
    store: Store, vault: Vault, send: Send, hook_id: int, *, owner: str, links: Links, clock: Callable[[], datetime]
) -> SentDelivery | None:
    """Attempt the oldest delivery to a hook that is due; None when there is none, or somebody else is at it.

    `owner` names this attempt, and no other one at any hook.
    """
    now = clock()
    with store.write() as connection:
        begun = outbox.begin_attempt(connection, hook_id, owner=owner, now=to_us(now))
    if begun is None:
        return None
    if begun.incident_id is None and begun.alert_id is not None:
        begun = _adopt(store, begun, begun.alert_id)
    delivery = begun
    attempt = send_prepared(
        send, delivery, lambda: _prepare(store, vault, delivery, owner=owner, links=links, now=now), now
    )
    if attempt is None:
        return None
    receipt, hook_version = attempt
    return _finish(store, delivery, receipt, hook_version, owner=owner, now=clock())


def send_prepared(
    send: Send, delivery: DeliveryRow, prepare: Callable[[], PreparedDelivery | None], now: datetime
) -> tuple[Receipt, int | None] | None:
    """Prepare and send a delivery; returns the receipt and the hook's version, None where it has no message.

    Any error but that of the store is a failed attempt: else the delivery would stay the oldest that is due.
    """
    hook_version: int | None = None
    try:
        prepared = prepare()
        if prepared is None:
            return None
        hook_version = prepared.hook_version
        return send(prepared.hook, prepared.message, now), hook_version
    except StoreUnavailableError:
        raise
    except ConfigurationError as error:  # of this hook alone
        return Receipt(ok=False, error=UNPREPARED, detail=str(error), untaken=True), hook_version
    except Exception:
        logger.exception("bug", extra={"delivery": delivery.id, "hook": delivery.hook})
        return Receipt(ok=False, error=BUG, detail="an error in Coalmine; the log has the details"), hook_version


def _adopt(store: Store, claimed: DeliveryRow, alert_id: int) -> DeliveryRow:
    """Add a delivery of an older release to the incident of its alert."""
    with store.write() as connection:
        alert = alerts.find_alert(connection, alert_id)
        assert alert is not None  # noqa: S101 - the delivery's foreign key
        catalog.lock_definition(connection, alert.check_id)
        number = adopt_announced(connection, alert.check_id, [alert_id]).get(alert_id, claimed.incident_id)
        return replace(claimed, incident_id=number)


def _prepare(
    store: Store, vault: Vault, claimed: DeliveryRow, *, owner: str, links: Links, now: datetime
) -> PreparedDelivery | None:
    """Read the hook, and render the body unless an earlier attempt has; None where somebody else is at it."""
    picture = _picture(store, claimed, now)
    with store.read() as connection:  # rendering may take long, so outside the write transaction
        definition = catalog.definition_by_id(connection, claimed.hook_id)
        hook = _reachable(vault, claimed, definition)
        body = _body(connection, claimed, hook, links, now, picture)
    with store.write() as connection:
        edited = catalog.definition_by_id(connection, claimed.hook_id)
        if edited != definition:  # rare: changed meanwhile
            hook = _reachable(vault, claimed, edited)
            body = _body(connection, claimed, hook, links, now, picture)
        if not outbox.prepare_delivery(connection, claimed.id, owner=owner, body=body):
            return None
    return PreparedDelivery(
        hook=hook,
        hook_version=edited.version_id,
        message=Message(id=claimed.message_id, body=body, taken_by=frozenset(_recipients(claimed))),
    )


def _picture(store: Store, claimed: DeliveryRow, now: datetime) -> str | None:
    """Return the heat map of the check whose alert a message is about, as the address that a page holds it by.

    A message goes without it rather than not at all.
    """
    if claimed.alert_id is None or claimed.body is not None:
        return None
    with store.read() as connection:
        alert = alerts.find_alert(connection, claimed.alert_id)
        hook = catalog.definition_by_id(connection, claimed.hook_id)
        incident = alerts.find_incident(connection, claimed.incident_id) if claimed.incident_id is not None else None
    if alert is None or incident is None or not shows_pictures(hook.body["kind"]):
        return None
    try:
        opened_at = from_us(incident.opened_at)
        heat_map = heat_map_of_incident(store, alert.check, opened_at, to_us(now))
        return None if heat_map is None else sheet(heat_map)
    except StoreUnavailableError:
        raise
    except Exception:
        logger.exception("bug", extra={"delivery": claimed.id, "hook": claimed.hook})
        return None


def _body(
    connection: Connection, claimed: DeliveryRow, hook: Hook, links: Links, now: datetime, picture: str | None
) -> bytes:
    """Return the body of a delivery, as frozen by an earlier attempt unless the hook changed its kind."""
    if claimed.body is not None and is_written_for(hook, claimed.body):
        return claimed.body
    return body_of(hook, notice(connection, claimed, hook.slug, links, now), claimed.message_id, picture)


def _reachable(vault: Vault, claimed: DeliveryRow, definition: Definition) -> Hook:
    """Return the hook of a delivery. Raises ConfigurationError where it is archived or disabled."""
    # A resolve that was written by the change that archived the hook is still attempted once.
    is_final = definition.archived_at is not None and claimed.created_at >= definition.archived_at
    if (why := unreachable_reason(definition)) is not None and not is_final:
        raise ConfigurationError(why)
    return hook_value(vault, definition)


def _finish(
    store: Store, claimed: DeliveryRow, receipt: Receipt, hook_version: int | None, *, owner: str, now: datetime
) -> SentDelivery:
    """Record an attempt at this version of the hook, and schedule the next."""
    first_at = from_us(claimed.first_attempt_at or to_us(now))
    with store.write() as connection:
        catalog.lock_definition(connection, claimed.hook_id)  # archiving leaves deliveries in flight to their worker
        hook = catalog.definition_by_id(connection, claimed.hook_id)
        judged = receipt
        if hook.version_id != hook_version:  # the edited hook may accept it
            judged = replace(receipt, gone=False)
        step = after_attempt(judged, claimed.attempts, first_at, now, _RANDOM.random())
        why = unreachable_reason(hook)
        if why is not None and step.state is DeliveryState.PENDING:
            step = replace(step, state=DeliveryState.DEAD, next_attempt_at=None, reason=why)
        taken_by = [*_recipients(claimed), *receipt.taken_by]
        if taken_by and step.state is DeliveryState.DELIVERED:
            step = replace(step, reason=f"Delivered to {', '.join(taken_by)}.")
        outbox.record_attempt(connection, claimed.id, receipt, to_us(now))
        is_ours = outbox.finish_attempt(
            connection,
            claimed.id,
            owner=owner,
            state=step.state,
            next_attempt_at=to_us(step.next_attempt_at or now),
            reason=step.reason,
            untaken=receipt.untaken,
            taken_by=json.dumps(taken_by) if taken_by else None,
        )
        if is_ours and step.state is DeliveryState.DELIVERED:
            outbox.schedule_resends(connection, claimed, resend_at(connection, claimed, hook, now + REFRESH_EVERY))
            # The receiver is back: each delivered message brings one more retry forward.
            outbox.bring_forward(connection, claimed.hook_id, now=to_us(now), errors=OUT_OF_REACH)
        if step.disable_hook:
            catalog.disable_definition(connection, claimed.hook_id, step.reason, to_us(now))
            outbox.abandon_deliveries(connection, claimed.hook_id, step.reason)
    return SentDelivery(
        id=claimed.id,
        hook=claimed.hook,
        state=step.state,
        error=None if receipt.ok else receipt.error,
        reason=step.reason,
    )


def _recipients(delivery: DeliveryRow) -> list[str]:
    """Return the recipients of a mail who took it."""
    return list(json.loads(delivery.taken_by)) if delivery.taken_by else []


def resend_at(connection: Connection, delivery: DeliveryRow, hook: Definition, at: datetime) -> int | None:
    """Return the moment `at`, if the receiver needs a resend then; None = it does not."""
    incident = alerts.find_incident(connection, delivery.incident_id) if delivery.incident_id is not None else None
    if incident is None or unreachable_reason(hook) is not None:
        return None
    first = outbox.delivered_at(connection, delivery.id)
    is_needed = needs_resend(
        hook.body["kind"],
        resolves=delivery.type == RESOLVED,
        delivered_at=from_us(first) if first is not None else at,
        is_open=incident.resolved_at is None,
        now=at,
    )
    return to_us(at) if is_needed else None


def resend_next(
    store: Store, vault: Vault, send: Send, hook_id: int, *, owner: str, clock: Callable[[], datetime]
) -> SentDelivery | None:
    """Send the delivered notification of a hook whose resend is due longest; None when none is due.

    A failure is recorded as an attempt, and tried again a minute later.
    """
    while True:
        now = clock()
        with store.write() as connection:
            begun = outbox.begin_resend(connection, hook_id, owner=owner, now=to_us(now))
        if begun is None:
            return None
        delivery = begun

        def prepare(delivery: DeliveryRow = delivery, now: datetime = now) -> PreparedDelivery | None:
            return _prepare_resend(store, vault, delivery, owner=owner, now=now)

        attempt = send_prepared(send, delivery, prepare, now)
        if attempt is not None:  # else it is not needed any more, or somebody else has it: the next one
            return _finish_resend(store, delivery, attempt[0], owner=owner, now=clock())


def _prepare_resend(
    store: Store, vault: Vault, delivery: DeliveryRow, *, owner: str, now: datetime
) -> PreparedDelivery | None:
    with store.write() as connection:
        definition = catalog.definition_by_id(connection, delivery.hook_id)
        if delivery.body is None or resend_at(connection, delivery, definition, now) is None:
            outbox.finish_resend(connection, delivery.id, owner=owner, refresh_at=None)
            return None
        if not outbox.is_resending(connection, delivery.id, owner=owner):
            return None
        hook = hook_value(vault, definition)
    return PreparedDelivery(
        hook=hook, hook_version=definition.version_id, message=Message(id=delivery.message_id, body=delivery.body)
    )


def _finish_resend(
    store: Store, delivery: DeliveryRow, receipt: Receipt, *, owner: str, now: datetime
) -> SentDelivery | None:
    with store.write() as connection:
        catalog.lock_definition(connection, delivery.hook_id)
        definition = catalog.definition_by_id(connection, delivery.hook_id)
        following = resend_at(connection, delivery, definition, now + REFRESH_EVERY)
        if not receipt.ok:
            outbox.record_attempt(connection, delivery.id, receipt, to_us(now))
        outbox.finish_resend(connection, delivery.id, owner=owner, refresh_at=following)
    reason = "Sent again." if receipt.ok else f"Sending it again failed: {receipt.detail or receipt.error}."
    error = None if receipt.ok else receipt.error
    return SentDelivery(
        id=delivery.id, hook=delivery.hook, state=delivery.state, error=error, reason=reason, is_resend=True
    )


def send_test(store: Store, slug: str, *, now: datetime) -> int:
    """Put a test message for a hook into the outbox, sent like every alert; returns its id."""
    with store.write() as connection:
        hook = enabled_hook(connection, slug)
        return outbox.enqueue_test(connection, hook.id, to_us(now))


def enabled_hook(connection: Connection, slug: str) -> Definition:
    """Return a hook in force, locked. Raises NotFoundError, and ConflictError for one that is disabled."""
    hook = catalog.find_definition(connection, "hook", slug)
    if hook is None or hook.archived_at is not None:
        raise NotFoundError(f"there is no hook '{slug}'")
    catalog.lock_definition(connection, hook.id)
    hook = catalog.definition_by_id(connection, hook.id)
    if hook.disabled_reason is not None:
        raise ConflictError(f"hook '{slug}' is disabled: {hook.disabled_reason} Save it again to enable it")
    return hook


def hook_value(vault: Vault, definition: Definition) -> Hook:
    """Value of a stored hook, with its secrets."""
    whole = join_secrets(definition.body, vault.decrypt(definition.secrets))
    return HookDocument.model_validate(whole).to_domain()


def unreachable_reason(hook: Definition) -> str | None:
    """Why a hook is not sent to; None = it is in force."""
    return _ARCHIVED if hook.archived_at is not None else hook.disabled_reason


def notice(connection: Connection, delivery: DeliveryRow, hook: str, links: Links, now: datetime) -> Notice:
    """Return the notice of a delivery; its bytes are frozen at the first attempt."""
    data: NoticeData
    if delivery.report_id is not None:
        data = _report_data(connection, delivery.report_id, links)
    elif delivery.incident_id is None or delivery.transition_id is None:
        data = {
            "summary": f"Test message from Coalmine to hook {hook}",
            "links": {"incident": None, "alert": None, "check": None, "run": None, "dashboard": None, "runbook": None},
        }
    else:
        data = notice_data(connection, delivery.incident_id, delivery.transition_id, delivery.type, links)
        if data["kind"] == RuleKind.PLANT:
            data = _with_plant(connection, data)
    return {"type": delivery.type, "version": 1, "timestamp": time_text(now), "data": data}


def _with_plant(connection: Connection, data: NoticeData) -> NoticeData:
    """Add which planted document it is, and the page of those of the check: no run tells of it."""
    data = {**data, "links": {**data["links"], "plants": f"{data['links']['check']}/plants"}}
    check = require(catalog.find_definition(connection, "check", data["check"]), f"check '{data['check']}'")
    row = troubled_plant(connection, check.id) if data["resolved_at"] is None else None
    if row is None:
        return data
    return {**data, "plant": {"id": str(row.id), "document_id": row.key, "marker": marker_of(row.key)}}


def _report_data(connection: Connection, report_id: int, links: Links) -> NoticeData:
    """Return the data of a scheduled report, rendered when it was due."""
    content = report_rows.read_content(connection, report_id)
    since = f"&since={content['since_run_id']}" if content["since_run_id"] else ""
    return {
        **content,
        "self_judged": content.get("self_judged", False),  # absent from what earlier releases rendered, as the next
        "pooled_recall": content.get("pooled_recall", []),
        "links": {
            "incident": None,
            "alert": None,
            "check": f"{links.public_url}/checks/{content['check']}",
            "run": f"{links.public_url}/runs/{content['run_id']}",
            "report": f"{links.public_url}/v1/runs/{content['run_id']}/report?format=html{since}",
            "dashboard": None,
            "runbook": None,
        },
    }


Ping = Callable[[], str | None]
"""Pings once; None = success, else a sentence why not."""

STALE_SECONDS = 60.0
"""Longest time since the last turn of the scheduler of a working worker."""
_WITHHOLDING = (Issue.STORE_READ, Issue.STORE_WRITE, Issue.RESOURCES, Issue.OVERLOAD, Issue.HEARTBEAT)


def ping_if_working(ping: Ping, store: Store, monitor: SelfMonitor, *, alive: bool, synced_ago: float) -> bool:
    """Ping if the worker works; True on success. `synced_ago`: seconds since the last turn of the scheduler."""
    reason = _idle_reason(store, monitor, alive=alive, synced_ago=synced_ago)
    if reason is not None:
        logger.warning("ping_withheld", extra={"detail": reason})
        return False
    try:
        error = ping()
    except LocalResourceError as local:
        monitor.report(Issue.RESOURCES, str(local))
        error = str(local)
    if error is not None:
        logger.warning("ping_failed", extra={"detail": error})
    return error is None


def _idle_reason(store: Store, monitor: SelfMonitor, *, alive: bool, synced_ago: float) -> str | None:
    """Why the worker does not work; None = it does."""
    if not alive:
        return "a thread of the worker has ended"
    if synced_ago > STALE_SECONDS:
        return f"the scheduler has not turned for {synced_ago:.0f} s"
    for issue, detail in monitor.issues.items():
        if issue in _WITHHOLDING:
            return detail
    try:
        store.try_write()
    except StoreUnavailableError as error:
        return str(error)
    return None
