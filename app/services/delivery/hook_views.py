"""Hooks as people read them: where each goes, which checks use it, and how it fares. Nothing here writes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from app.domain.addresses import AddressPolicy, LookUp, hook_warning, literal
from app.domain.delivery.hooks import HookKind
from app.formats.catalog.secret_fields import hook_for_readers
from app.formats.delivery.hook_documents import PAGERDUTY_URL
from app.services.alerts import alert_views
from app.services.catalog.references import require
from app.store.catalog import definitions
from app.store.catalog.definitions import Definition
from app.store.delivery import hook_stats
from app.store.delivery.hook_stats import Tally
from app.store.engine import Connection, Store, to_us

KIND = "hook"
LATELY: Final = timedelta(days=1)
"""How far back failures are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookLine:
    """A hook with what there is to know of it at a glance."""

    definition: Definition
    goes_to: str
    checks: Sequence[str]
    """The checks in force that use it, by slug."""
    pending: int
    dead: int
    failures: int
    """Failed attempts of the last day."""
    newest: Mapping[str, Any] | None
    """Its newest delivery."""


def all_hooks(store: Store, now: datetime, *, for_readers: bool) -> list[HookLine]:
    """List the hooks in force by slug, see `as_seen`."""
    with store.read() as connection:
        return _lines(connection, definitions.list_definitions(connection, KIND), now, for_readers=for_readers)


def one_hook(store: Store, slug: str, now: datetime, *, for_readers: bool) -> HookLine:
    """Show a hook in force, see `as_seen`. Raises NotFoundError."""
    with store.read() as connection:
        found = require(definitions.find_definition(connection, KIND, slug), f"hook '{slug}'")
        return _lines(connection, [found], now, for_readers=for_readers)[0]


def as_seen(hook: Definition, *, for_readers: bool) -> Definition:
    """Give a hook as it is or, `for_readers` who may not define hooks, without the path of a webhook's address."""
    return replace(hook, body=hook_for_readers(hook.body)) if for_readers else hook


def goes_to(hook: Mapping[str, Any]) -> str:
    """Say where the news of a stored hook go, without what is or may be a secret: a user, a path's end, a query."""
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
        for slug in check.body["hooks"]:
            users[slug].append(check.slug)
    counted = hook_stats.tallies(connection, since=to_us(now - LATELY))
    tally = {hook.id: counted.get(hook.id, Tally()) for hook in hooks}
    newest = alert_views.deliveries_by_id(connection, [one.newest for one in tally.values() if one.newest is not None])
    return [
        HookLine(
            definition=as_seen(hook, for_readers=for_readers),
            goes_to=goes_to(as_seen(hook, for_readers=for_readers).body),
            checks=users[hook.slug],
            pending=tally[hook.id].pending,
            dead=tally[hook.id].dead,
            failures=tally[hook.id].failures,
            newest=newest.get(tally[hook.id].newest),
        )
        for hook in hooks
    ]


def hook_warnings(policy: AddressPolicy, hook: Mapping[str, Any], look_up: LookUp | None = None) -> list[str]:
    """Return why a hook, as its JSON says it, cannot be delivered to as the settings are.

    A host that is a name is judged where it can be looked up, which takes up to a second: never in a transaction.
    """
    return [note for _, note in notes_on_hooks(policy, [hook], look_up)]


def notes_on_hooks(
    policy: AddressPolicy, hooks: Iterable[Mapping[str, Any]], look_up: LookUp | None
) -> list[tuple[str, str]]:
    """Return which of these hooks, by slug, cannot be delivered to and why: see `hook_warnings`."""
    hosts = [(str(hook.get("slug") or ""), host) for hook in hooks for host in (_host(hook),) if host]
    names = [host for _, host in hosts if literal(host) is None]
    leads = look_up(names) if look_up is not None and names else {}
    judged = [(slug, hook_warning(policy, host, leads.get(host, ()))) for slug, host in hosts]
    return [(slug, warning) for slug, warning in judged if warning is not None]


def _host(hook: Mapping[str, Any]) -> str:
    """Return the host a hook connects to; "" where that is not said, or is a matter of Apprise's own."""
    try:
        host = str(hook.get("host") or urlsplit(hook.get("url") or "").hostname or "")
    except ValueError:  # an address that is none, such as one of brackets
        return ""
    return host if hook.get("kind") != HookKind.APPRISE or literal(host) is not None else ""
