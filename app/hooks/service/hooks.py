"""Hooks as people see them: destination, the checks that use each, delivery counts; and replay of dead deliveries."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from app.alerts import store as alerts
from app.alerts.service import shown_alerts
from app.base.addresses import AddressPolicy, LookUp, hook_warning, literal
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, NotFoundError
from app.base.values import DeliveryState, Value, replace
from app.catalog import store as catalog
from app.catalog.documents.secrets import hook_for_readers
from app.catalog.store import Definition, require
from app.hooks import store as outbox
from app.hooks.documents import OWN_URLS
from app.hooks.domain import DeliveryView, HookKind, HookReplay, mail_port_hint
from app.hooks.service.deliveries import RESOLVED, enabled_hook, unreachable_reason
from app.hooks.store import DeliveryCounts, DeliveryRow

KIND = "hook"
TEST: Final = outbox.TEST
LATELY: Final = timedelta(days=1)
"""Period of the failure count."""


class HookLine(Value):
    """One hook with its delivery counts."""

    definition: Definition
    destination: str
    checks: Sequence[str]
    """The checks in force that use it, by slug."""
    counts: DeliveryCounts
    """Its failures are those of the last day."""
    retrying: int
    """Notifications to send that were tried three times or more."""
    newest: DeliveryView | None
    """Its newest delivery."""


def list_hooks(store: Store, now: datetime, *, for_readers: bool) -> list[HookLine]:
    """List the hooks in force by slug, see `hook_for_caller`."""
    with store.read() as connection:
        return _lines(connection, catalog.list_definitions(connection, KIND), now, for_readers=for_readers)


def find_hook(store: Store, slug: str, now: datetime, *, for_readers: bool) -> HookLine:
    """Find a hook in force, see `hook_for_caller`. Raises NotFoundError."""
    with store.read() as connection:
        hook = require(catalog.find_definition(connection, KIND, slug), f"hook '{slug}'")
        return _lines(connection, [hook], now, for_readers=for_readers)[0]


def hook_for_caller(hook: Definition, *, for_readers: bool) -> Definition:
    """Return a hook as it is or, `for_readers` who may not define hooks, without the path of a webhook's address."""
    return replace(hook, body=hook_for_readers(hook.body)) if for_readers else hook


def destination(hook: Mapping[str, Any]) -> str:
    """Destination of a stored hook, without what may be a secret: a user, a path's end, a query."""
    kind = hook["kind"]
    if kind == HookKind.EMAIL:
        return f"{', '.join(hook['to'])} through {hook['host']}"
    if kind in (HookKind.SLACK, HookKind.APPRISE):
        return f"{'Slack' if kind == HookKind.SLACK else 'a service of Apprise'}; the address is a secret"
    if kind == HookKind.SLACK_APP:
        return f"Slack; channel {hook['channel']}"
    parts = urlsplit(hook["url"] or OWN_URLS[kind])
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}{'?…' if parts.query else ''}"


def _lines(connection: Connection, hooks: Sequence[Definition], now: datetime, *, for_readers: bool) -> list[HookLine]:
    users: defaultdict[str, list[str]] = defaultdict(list)
    for check in catalog.list_definitions(connection, "check"):
        for slug in dict.fromkeys([*check.body["hooks"], *(check.body.get("report") or {}).get("hooks", ())]):
            users[slug].append(check.slug)
    counted = outbox.count_by_hook(connection, since=to_us(now - LATELY))
    counts = {hook.id: counted.get(hook.id, DeliveryCounts()) for hook in hooks}
    retrying = outbox.retrying_deliveries(connection)
    newest = shown_alerts.deliveries_by_id(
        connection, [one.newest for one in counts.values() if one.newest is not None]
    )
    return [
        HookLine(
            definition=hook_for_caller(hook, for_readers=for_readers),
            destination=destination(hook_for_caller(hook, for_readers=for_readers).body),
            checks=users[hook.slug],
            counts=counts[hook.id],
            retrying=retrying.get(hook.id, 0),
            newest=newest.get(counts[hook.id].newest),
        )
        for hook in hooks
    ]


def hook_warnings(policy: AddressPolicy, hook: Mapping[str, Any], look_up: LookUp | None = None) -> list[str]:
    """Return why a hook, given as JSON, cannot be delivered to by the address settings, or hardly by its port.

    A host name is checked where it can be resolved, which takes up to a second: never in a transaction.
    """
    return [note for _, note in notes_on_hooks(policy, [hook], look_up)]


def notes_on_hooks(
    policy: AddressPolicy, hooks: Collection[Mapping[str, Any]], look_up: LookUp | None
) -> list[tuple[str, str]]:
    """Return which of these hooks, by slug, cannot be delivered to and why: see `hook_warnings`."""
    hosts = [(str(hook.get("slug") or ""), host) for hook in hooks for host in _hosts(hook) if host]
    names = [host for _, host in hosts if literal(host) is None]
    leads = look_up(names) if look_up is not None and names else {}
    judged = [(slug, hook_warning(policy, host, leads.get(host, ()))) for slug, host in hosts]
    for hook in hooks:
        port = str(hook.get("port") or "")
        if hook.get("kind") == HookKind.EMAIL and port.isdecimal():
            judged.append((str(hook.get("slug") or ""), mail_port_hint(int(port), str(hook.get("tls") or ""))))
    return [(slug, warning) for slug, warning in judged if warning is not None]


def _hosts(hook: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the host of a hook and that of its own proxy; "" where there is none, or Apprise chooses it."""
    try:
        proxy = str(urlsplit(hook.get("proxy") or "").hostname or "")
        host = str(hook.get("host") or urlsplit(hook.get("url") or "").hostname or "")
    except ValueError:  # not a URL, such as one with brackets
        return ()
    return host if hook.get("kind") != HookKind.APPRISE or literal(host) is not None else "", proxy


_PAGE = 500


def replay_all(store: Store, slug: str, *, now: datetime) -> HookReplay:
    """Put every dead delivery of a hook that is about an incident back into the outbox, oldest first.

    Left dead are those that a later delivery of the incident overtook, or whose incident was resolved before the hook
    was notified. Raises NotFoundError, and ConflictError for a hook that is disabled.
    """
    with store.write() as connection:
        hook = enabled_hook(connection, slug)
        replayed = overtaken = 0
        for delivery in sorted(_dead(connection, hook.id), key=lambda row: row.id):
            if outbox.is_overtaken(connection, delivery) or not _with_resolve(connection, delivery):
                overtaken += 1
            elif outbox.replay_delivery(connection, delivery.id, to_us(now)):
                replayed += 1
        return HookReplay(hook=slug, replayed=replayed, overtaken=overtaken)


def replay(store: Store, delivery_id: int, *, now: datetime) -> None:
    """Put a dead delivery back into the outbox; a trigger of a resolved incident goes with its resolve.

    Raises NotFoundError; and ConflictError where it is not dead, its hook is archived or disabled, a later delivery
    overtook it, or its incident has no resolve for the hook.
    """
    with store.write() as connection:
        delivery = outbox.find_delivery(connection, delivery_id)
        if delivery is None:
            raise NotFoundError(f"there is no delivery '{delivery_id}'")
        catalog.lock_definition(connection, delivery.hook_id)
        if (why := unreachable_reason(catalog.definition_by_id(connection, delivery.hook_id))) is not None:
            raise ConflictError(f"hook '{delivery.hook}' gets nothing any more: {why}")
        if delivery.state != DeliveryState.DEAD:
            raise ConflictError("only a dead delivery can be replayed")
        if outbox.is_overtaken(connection, delivery):
            raise ConflictError("a later delivery about this incident has reached the hook or is on its way")
        ids = _with_resolve(connection, delivery)
        if not ids:
            raise ConflictError(
                "the incident has resolved since, and the hook was never notified of it: there is nothing to resolve"
            )
        for number in ids:
            outbox.replay_delivery(connection, number, to_us(now))


def _with_resolve(connection: Connection, delivery: DeliveryRow) -> Sequence[int]:
    """Ids to replay with a dead delivery that nothing overtook, itself first.

    A trigger of a resolved incident needs its resolve, or it would stay open at the receiver for ever; empty where
    there is none.
    """
    incident = alerts.find_incident(connection, delivery.incident_id) if delivery.incident_id is not None else None
    if incident is None or incident.resolved_at is None or delivery.type == RESOLVED:
        return (delivery.id,)
    end = outbox.resolve_of(connection, delivery)
    return () if end is None else (delivery.id, end.id)


def _dead(connection: Connection, hook_id: int) -> Iterator[DeliveryRow]:
    before: int | None = None
    while True:
        rows = outbox.list_deliveries(connection, hook_id=hook_id, state=DeliveryState.DEAD, before=before, limit=_PAGE)
        yield from (row for row in rows if row.alert_id is not None)
        if len(rows) < _PAGE:
            return
        before = rows[-1].id
