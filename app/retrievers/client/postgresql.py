"""Parameters of a PostgreSQL connection as libpq takes them: URL, permitted addresses, certificate files."""

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote, urlsplit

from app.base.addresses import AddressPolicy
from app.base.net.transfer import blocked_text
from app.base.net.wire import NoAnswerError
from app.base.values import Outcome
from app.retrievers.domain.retrievers import Tls

PORT = 5432
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_NO_FILE = "/dev/null/nowhere"
"""A path without a file; libpq takes an empty name for its own place in the home folder."""
OWN_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "options": "",
        "client_encoding": "UTF8",
        "target_session_attrs": "any",
        "channel_binding": "prefer",
        "gssencmode": "disable",  # Kerberos would ask servers nobody judged
        "passfile": _NO_FILE,
        "sslrootcert": _NO_FILE,
        "sslcert": _NO_FILE,
        "sslkey": _NO_FILE,
        "sslcrl": _NO_FILE,
        "sslcrldir": "",
    }
)
"""Values that libpq would otherwise take from the environment and the home folder (PostgreSQL's manual, libpq,
"Environment Variables"). A `PGSERVICE` can add to these, and replace none."""

SAFE_AUTH = "scram-sha-256,md5,none"
"""Authentication methods for a server that did not prove who it is: never the password itself."""


def parse_target(url: str, tls: Tls | None) -> tuple[str, int, dict[str, str]]:
    """Return host, port and parameters of the URL; raises ValueError for what would lead libpq elsewhere."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or PORT
    except ValueError as error:
        raise ValueError(f"the URL is malformed: {error}") from None
    if parts.scheme not in {"postgresql", "postgres"} or not _HOST.fullmatch(host):
        raise ValueError("the URL must be written postgresql://host:port/database")
    if "@" in parts.netloc:
        raise ValueError("user and password belong into auth, where they are kept secret")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    mode = options.pop("sslmode", "verify-full" if tls is not None and tls.authority else "prefer")
    if options or parts.fragment:
        raise ValueError("sslmode is the only parameter a URL may have")
    if mode not in SSL_MODES:
        raise ValueError(f"sslmode must be one of {', '.join(SSL_MODES)}")
    parameters = {"dbname": unquote(parts.path.strip("/")) or "postgres", "sslmode": mode}
    if mode.startswith("verify-"):
        parameters["sslrootcert"] = ssl.get_default_verify_paths().cafile or "system"
    else:
        parameters["require_auth"] = SAFE_AUTH
    return host, port, {**OWN_PARAMETERS, **parameters}


def received_bytes(connection: int) -> int | None:
    """Return the bytes a TCP connection received, by `tcp_info.tcpi_bytes_received` of Linux; None elsewhere."""
    place = socket.socket(fileno=connection)
    try:
        info = place.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        return int(_TCP_INFO.unpack(info)[0])
    except (AttributeError, OSError, struct.error):
        return None
    finally:
        place.detach()


def tls_files(tls: Tls | None, folder: Path) -> dict[str, str]:
    """Write the PEM texts to files that only we can read; returns their paths by libpq's names."""
    texts = {} if tls is None else {"sslrootcert": tls.authority, "sslcert": tls.certificate, "sslkey": tls.key}
    files = {}
    for name, text in texts.items():
        if text is not None:
            file = folder / name
            file.touch(mode=0o600)
            file.write_text(text, encoding="ascii")
            files[name] = str(file)
    return files


async def permitted_addresses(host: str, port: int, policy: AddressPolicy) -> dict[str, str]:
    """Resolve a host and return its permitted addresses for libpq, which then resolves nothing itself."""
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NoAnswerError(Outcome.UNREACHABLE, "the host name does not resolve") from None
    reasons = {str(place[4][0]): policy.check(str(place[4][0]), host) for place in addresses}
    permitted = [address for address, reason in reasons.items() if reason is None]
    if not permitted:
        raise NoAnswerError(Outcome.BLOCKED, blocked_text(next(iter(reasons.values())) or ""))
    count = len(permitted)
    return {
        "host": ",".join([host] * count),  # what a certificate must be for
        "hostaddr": ",".join(permitted),
        "port": ",".join([str(port)] * count),
    }


_TCP_INFO = struct.Struct("=128xQ")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")  # a comma would be a list to libpq, a slash a folder of sockets
