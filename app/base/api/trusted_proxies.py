"""Sign-in by others: whom a proxy or an OpenID provider names, and what they may, by their groups.

A proxy says who is there in `Remote-User`, and their groups in `Remote-Groups`. It is believed if it is of the listed
networks, by the address at the other end of the connection; whoever else sends these headers is asked for a key as
ever. A browser then sends no token of ours, so its writes have to come from our pages.
"""

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from app.base.db.keys import Identity, Scope
from app.base.errors import ForbiddenError, UnauthorizedError

logger = logging.getLogger("coalmine.api")
USER_HEADER: Final = "remote-user"
GROUPS_HEADER: Final = "remote-groups"
EVERYBODY: Final = "*"
PERSON: Final = "user:"
"""Before the name of whoever was signed in by others, where keys have their prefix."""
_NAME: Final = re.compile(r"[^\s,;\"<>](?:[^,;\"<>]{0,198}[^\s,;\"<>])?")
"""Two headers that a proxy joined have a comma between them."""
_SAFE: Final = {"GET", "HEAD", "OPTIONS"}


_PEER: Final = "coalmine.peer"


class PeerAddress:
    """ASGI middleware that notes who is at the other end of the connection, before a header says otherwise.

    Around uvicorn's own, which puts what `X-Forwarded-For` says in its place: an address that a visitor may choose.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Note the address, and pass the request on."""
        scope[_PEER] = (scope.get("client") or ("",))[0]
        await self._app(scope, receive, send)


@dataclass(slots=True, kw_only=True)
class TrustedProxies:
    """Networks whose `Remote-User` is believed, none by default, and the scopes of groups; `*` is everybody."""

    networks: Sequence[IPv4Network | IPv6Network] = ()
    scopes: Sequence[tuple[str, Scope]] = ((EVERYBODY, Scope.READ),)
    public_url: str = ""
    is_logged: bool = False
    """Whether it was logged that somebody else sent the header: once a process."""

    def identify(self, request: Request) -> Identity | None:
        """Return who a proxy says is there; None where none says so.

        Raises UnauthorizedError for headers that cannot be of the proxy alone, ForbiddenError for somebody without a
        scope, and for a write that comes from another site.
        """
        if not self.networks or USER_HEADER not in request.headers:
            return None
        if not self._is_proxy(request):
            if not self.is_logged:
                self.is_logged = True
                told = {"peer": request.scope.get(_PEER), "detail": "not of COALMINE_TRUSTED_PROXIES"}
                logger.warning("remote_user_ignored", extra=told)
            return None
        name = _only(request, USER_HEADER)
        if not name:
            return None
        groups = [group.strip() for group in re.split("[,;|]", _only(request, GROUPS_HEADER))]
        identity = self.person(name, groups, by_proxy=True)
        if request.method not in _SAFE and not self._is_own_site(request):
            raise ForbiddenError("signed in by the proxy, changes are made from the pages of this service alone")
        return identity

    def person(self, name: str, groups: Collection[str], *, by_proxy: bool = False) -> Identity:
        """Return somebody whom a proxy or a provider signed in, with the highest scope of their groups.

        Raises UnauthorizedError for what is no name of one person, ForbiddenError for somebody without a scope.
        """
        if not _NAME.fullmatch(name) or not name.isprintable():
            sent = "the proxy sent a Remote-User" if by_proxy else "the provider sent a name"
            raise UnauthorizedError(f"{sent} that is no name of one person")
        known = {*groups} - {"", EVERYBODY}
        found = [scope for group, scope in self.scopes if group == EVERYBODY or group in known]
        if not found:
            raise ForbiddenError(f"'{name}' is in no group that COALMINE_REMOTE_SCOPES gives a scope")
        scope = max(found, key=list(Scope).index)
        return Identity(name=name, scope=scope, key_prefix=f"{PERSON}{name}", by_proxy=by_proxy)

    def groups_with_scope(self, groups: Collection[str]) -> list[str]:
        """Return those of these groups that have a scope: all of them that a session has to keep."""
        return [group for group, _ in self.scopes if group in groups and group != EVERYBODY]

    def _is_proxy(self, request: Request) -> bool:
        try:
            peer = ip_address(request.scope.get(_PEER, ""))
        except ValueError:
            return False
        if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped
        return any(peer in network for network in self.networks)

    def _is_own_site(self, request: Request) -> bool:
        """Whether a page of ours sent a request. Its address is the configured one: `Host` may be of a rebound name."""
        return request.headers.get("origin", "").lower() == _origin(self.public_url)


def _origin(url: str) -> str:
    """Return the origin of an address as browsers write it: without the port that its scheme implies."""
    parts = urlsplit(url.lower())
    default = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return f"{parts.scheme}://{parts.netloc.removesuffix(default)}"


def _only(request: Request, header: str) -> str:
    """Return the value of a header that may come once. Raises UnauthorizedError: a visitor may have sent the other."""
    values = request.headers.getlist(header)
    if len(values) > 1:
        raise UnauthorizedError(f"the proxy sent {header} several times: let it replace what visitors send")
    value = values[0].strip() if values else ""
    try:
        return value.encode("latin-1").decode()  # headers come as Latin-1, names as UTF-8
    except UnicodeDecodeError:
        return value
