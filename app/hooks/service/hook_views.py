"""Views of hooks: destination, the checks that use each, and delivery counts. It only reads."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from app.alerts.service import alert_views
from app.base.addresses import AddressPolicy, LookUp, hook_warning, literal
from app.base.db.engine import Connection, Store, to_us
from app.catalog.documents.secret_fields import hook_for_readers
from app.catalog.service.references import require
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.hooks.documents import PAGERDUTY_URL
from app.hooks.domain.hooks import HookKind, mail_port_hint
from app.hooks.domain.views import DeliveryView
from app.hooks.store import hook_stats
from app.hooks.store.hook_stats import DeliveryCounts
from app.records.store import current_state

KIND = "hook"
LATELY: Final = timedelta(days=1)
"""Period of the failure count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookLine:
    """One hook with its delivery counts."""

    definition: Definition
    destination: str
    checks: Sequence[str]
    """The checks in force that use it, by slug."""
    pending: int
    dead: int
    retrying: int
    """Notifications to send that were tried three times or more."""
    failures: int
    """Failed attempts of the last day."""
    newest: DeliveryView | None
    """Its newest delivery."""


def list_hooks(store: Store, now: datetime, *, for_readers: bool) -> list[HookLine]:
    """List the hooks in force by slug, see `for_reader`."""
    with store.read() as connection:
        return _lines(connection, definitions.list_definitions(connection, KIND), now, for_readers=for_readers)


def find_hook(store: Store, slug: str, now: datetime, *, for_readers: bool) -> HookLine:
    """Find a hook in force, see `for_reader`. Raises NotFoundError."""
    with store.read() as connection:
        hook = require(definitions.find_definition(connection, KIND, slug), f"hook '{slug}'")
        return _lines(connection, [hook], now, for_readers=for_readers)[0]


def for_reader(hook: Definition, *, for_readers: bool) -> Definition:
    """Return a hook as it is or, `for_readers` who may not define hooks, without the path of a webhook's address."""
    return replace(hook, body=hook_for_readers(hook.body)) if for_readers else hook


def destination(hook: Mapping[str, Any]) -> str:
    """Destination of a stored hook, without what may be a secret: a user, a path's end, a query."""
    kind = hook["kind"]
    if kind == HookKind.EMAIL:
        return f"{', '.join(hook['to'])} through {hook['host']}"
    if kind in (HookKind.SLACK, HookKind.APPRISE):
        return f"{'Slack' if kind == HookKind.SLACK else 'a service of Apprise'}; the address is a secret"
    url = hook["url"] or PAGERDUTY_URL
    return _masked(url)


def _masked(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}{'?…' if parts.query else ''}"


def _lines(connection: Connection, hooks: Sequence[Definition], now: datetime, *, for_readers: bool) -> list[HookLine]:
    users: defaultdict[str, list[str]] = defaultdict(list)
    for check in definitions.list_definitions(connection, "check"):
        for slug in dict.fromkeys([*check.body["hooks"], *(check.body.get("report") or {}).get("hooks", ())]):
            users[slug].append(check.slug)
    counted = hook_stats.count_by_hook(connection, since=to_us(now - LATELY))
    counts = {hook.id: counted.get(hook.id, DeliveryCounts()) for hook in hooks}
    retrying = current_state.retrying_deliveries(connection)
    newest = alert_views.deliveries_by_id(connection, [one.newest for one in counts.values() if one.newest is not None])
    return [
        HookLine(
            definition=for_reader(hook, for_readers=for_readers),
            destination=destination(for_reader(hook, for_readers=for_readers).body),
            checks=users[hook.slug],
            pending=counts[hook.id].pending,
            dead=counts[hook.id].dead,
            retrying=retrying.get(hook.id, 0),
            failures=counts[hook.id].failures,
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
    judged += [(str(hook.get("slug") or ""), _port_hint(hook)) for hook in hooks]
    return [(slug, warning) for slug, warning in judged if warning is not None]


def _port_hint(hook: Mapping[str, Any]) -> str | None:
    port, tls = str(hook.get("port") or ""), str(hook.get("tls") or "")
    return mail_port_hint(int(port), tls) if hook.get("kind") == HookKind.EMAIL and port.isdecimal() else None


def _hosts(hook: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the host of a hook and that of its own proxy; "" where there is none, or Apprise chooses it."""
    try:
        proxy = str(urlsplit(hook.get("proxy") or "").hostname or "")
        host = str(hook.get("host") or urlsplit(hook.get("url") or "").hostname or "")
    except ValueError:  # not a URL, such as one with brackets
        return ()
    return host if hook.get("kind") != HookKind.APPRISE or literal(host) is not None else "", proxy
