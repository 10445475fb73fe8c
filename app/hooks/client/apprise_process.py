"""The process in which Apprise sends one message: `python -m app.hooks.client.apprise_process`, JSON in, JSON out.

Guarded by an audit hook (PEP 578), which sees every connection at the moment it is made, with its resolved address,
whichever of Apprise's many libraries makes it; and which once set cannot be taken off.
"""

import json
import logging
import os
import socket
import sys
from typing import Any

from typing_extensions import TypedDict

from app.base.addresses import AddressPolicy, parse_allow

_CONNECTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_LOCAL = frozenset({"blink1", "dbus", "gio", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows"})
"""Services of this machine alone, some of which bypass audit hooks."""
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn"})


class AppriseMessage(TypedDict):
    """A message as Apprise takes it."""

    title: str
    body: str
    type: str


class AppriseRequest(TypedDict):
    """What the process reads: a message, its service, and where it may connect to."""

    url: str
    message: AppriseMessage
    allow: list[str]
    deny_private: bool
    only_allowed: bool


def main() -> None:
    """Read a request, send it, and write the result: `{"outcome", "reason"}`."""
    output = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed is not the answer
    request = json.load(sys.stdin)
    outcome, reason = send(request)
    os.write(output, json.dumps({"outcome": outcome, "reason": reason}).encode())


def send(request: AppriseRequest) -> tuple[str, str]:
    """Send a message under guard."""
    if request["url"].partition("://")[0].lower() in _LOCAL:
        return "blocked", "a service of this machine"
    import apprise  # noqa: PLC0415 - an extra, loaded here alone

    logging.getLogger("apprise").disabled = True
    guard = Guard(
        AddressPolicy(
            name="hook",
            allow=parse_allow(",".join(request["allow"])),
            deny_private=request["deny_private"],
            only_allowed=request["only_allowed"],
        )
    )
    sys.addaudithook(guard)
    asset = apprise.AppriseAsset(async_mode=False, storage_mode=apprise.PersistentStoreMode.MEMORY)
    service = apprise.Apprise.instantiate(request["url"], asset=asset, suppress_exceptions=True)
    if not isinstance(service, apprise.NotifyBase):
        return "unknown", ""
    one, message = apprise.Apprise(asset=asset), request["message"]
    one.add(service)
    accepted = one.notify(
        title=message["title"], body=message["body"], notify_type=message["type"], body_format=apprise.NotifyFormat.TEXT
    )
    if accepted:
        return "delivered", ""
    return ("blocked", guard.refusal) if guard.refusal is not None else ("refused", "")


class Guard:
    """Audit hook that refuses connections by raising."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        self._resolved_names: set[str] = set()
        self.refusal: str | None = None
        """Why a connection was refused, if one was."""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Check an audit event."""
        if event == "socket.getaddrinfo":
            self._resolved_names.add(_text(arguments[0]).lower().rstrip("."))
        elif event in _CONNECTS:
            reason = self._refusal(arguments[1])
            if reason is not None:
                self.refusal = reason
                raise PermissionError(f"not allowed to connect: {reason}")
        elif event in _STARTS:
            self.refusal = "a program of this machine"
            raise PermissionError("not allowed to start a program")

    def _refusal(self, address: Any) -> str | None:
        if address is None:  # of a connection that was made, and judged, before
            return None
        if not isinstance(address, tuple):
            return "a service of this machine"
        ip = _text(address[0])
        reason = self._policy.check(ip, "")
        if reason is None:
            return None
        # Only resolved addresses are visible here; the allow list may hold a name that was resolved before.
        names = [entry for entry in self._policy.allow if isinstance(entry, str) and entry in self._resolved_names]
        return next((None for name in names if ip in _addresses(name) and not self._policy.check(ip, name)), reason)


def _addresses(name: str) -> set[str]:
    try:
        return {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
    except OSError:
        return set()


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    main()
