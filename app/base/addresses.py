"""Where requests may go, and as whom: address policies, then credentials of endpoints (`Auth`, `Tls`, `Endpoint`).

Nothing is resolved or connected here. The transport calls `AddressPolicy.check` whenever libcurl opens a socket, so
that neither a rebinding name nor an unusual spelling of an address passes. How credentials become
headers is in `retrievers.client.credentials`; what a header may be stands at the end.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import ClassVar

from app.base.values import Confidential, Value, field

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NOT_AN_ADDRESS = "not an internet address"

LookUp = Callable[[Collection[str]], Mapping[str, Sequence[str]]]
"""Returns the addresses of host names; a name that was not resolved in time is absent or has none."""


class Proxy(Confidential):
    """HTTP proxy of endpoints. It resolves their names itself, so that only what a URL spells is judged before it.

    `direct` holds what is reached without it: networks, as addresses are spelled, and host names, each with the names
    below it. Loopback always is. `judged`: the policy has to permit the address of the proxy too, as of one that users
    of the API may name.
    """

    hidden: ClassVar = ("url",)

    url: str
    """May hold a user and a password."""
    direct: tuple[Network | str, ...] = ()
    judged: bool = False

    def serves(self, host: str) -> bool:
        """Return whether a host is reached through it."""
        ip = literal(host)
        if ip is not None:
            return not ip.is_loopback and not any(not isinstance(one, str) and ip in one for one in self.direct)
        name = host.lower().rstrip(".")
        return not any(isinstance(one, str) and (name == one or name.endswith(f".{one}")) for one in self.direct)


class AddressPolicy(Value):
    """Rules for the addresses of one kind of endpoint. `allow` holds networks and lower-case host names.

    `deny_private` refuses whatever is not globally routed; `only_allowed` refuses whatever has no entry. An entry opens
    everything but cloud metadata services, which hand out credentials: they need an entry for exactly that address.
    """

    name: str
    allow: tuple[Network | str, ...] = ()
    deny_private: bool = True
    only_allowed: bool = False
    proxy: Proxy | None = None

    def proxy_of(self, host: str) -> Proxy | None:
        """Return the proxy a host is reached through, None where it is reached directly."""
        return self.proxy if self.proxy is not None and self.proxy.serves(host) else None

    def check(self, address: str, host: str) -> str | None:
        """Return why the resolved `address` of `host` is refused, in a few words; None = allowed."""
        try:
            ip = ip_address(address.partition("%")[0])
        except ValueError:
            return NOT_AN_ADDRESS
        guard_reason = self._guard_reason(ip)
        if guard_reason is not None or self._is_listed(ip) or host.lower().rstrip(".") in self.allow:
            return guard_reason
        if self.only_allowed:
            return f"address {ip} is not on the allow list"
        kinds = (
            ((candidate, _special_kind(candidate)) for candidate in _candidate_addresses(ip))
            if self.deny_private
            else ()
        )
        return next(
            (f"{kind} address {_address_text(candidate, ip)}" for candidate, kind in kinds if kind is not None), None
        )

    def check_unresolved(self, host: str) -> str | None:
        """Return why `host` is refused without resolving it, as behind a proxy that resolves names; None = allowed.

        An address is checked in all spellings of resolvers; a name by the allow list alone.
        """
        ip = literal(host)
        if ip is not None:
            return self.check(str(ip), host)
        if self.only_allowed and host.lower().rstrip(".") not in self.allow:
            return "the host is not on the allow list"
        return None

    def _guard_reason(self, ip: Address) -> str | None:
        """Return why an address that needs an entry of its own is refused; None = it is not or has one."""
        candidates = [candidate for candidate in _candidate_addresses(ip) if not self._has_own_entry(candidate)]
        for candidate in candidates:
            if candidate in METADATA:
                return f"cloud metadata address {_address_text(candidate, ip)}"
        for candidate in candidates:
            if any(candidate in network for network in _LINK_LOCAL):
                return f"link-local address {_address_text(candidate, ip)}"  # METADATA does not list every service
        return None

    def _is_listed(self, ip: Address) -> bool:
        plain = _unwrapped(ip)
        return any(not isinstance(entry, str) and (ip in entry or plain in entry) for entry in self.allow)

    def _has_own_entry(self, ip: Address) -> bool:
        return any(not isinstance(e, str) and e.num_addresses == 1 and e.network_address == ip for e in self.allow)


def retriever_policy(allow: tuple[Network | str, ...] = (), proxy: Proxy | None = None) -> AddressPolicy:
    """Return the policy for retrievers: any address, private ones included; only listed ones if `allow` has any."""
    return AddressPolicy(name="retriever", allow=allow, deny_private=False, only_allowed=bool(allow), proxy=proxy)


def hook_policy(allow: tuple[Network | str, ...] = (), proxy: Proxy | None = None) -> AddressPolicy:
    """Return the policy for hooks: public addresses, and private ones that are listed."""
    return AddressPolicy(name="hook", allow=allow, deny_private=True, proxy=proxy)


def hook_remedy(refusal: str) -> str:
    """Return the sentence that names the setting which opens a refused address to hooks; "" where no setting does."""
    refused_address = _REFUSED.search(refusal)
    if refused_address is None:
        return ""
    only = refused_address["kind"] in _GUARDED_KINDS  # neither a network nor a name opens these, see AddressPolicy
    address = refused_address["candidate"] if only else refused_address["outer"] or refused_address["candidate"]
    return f"If it may be reached, set COALMINE_HOOK_ALLOW={address} (a comma between several) and restart the service."


def hook_warning(policy: AddressPolicy, host: str, addresses: Sequence[str] = ()) -> str | None:
    """Return why a hook cannot reach a host, with the setting that allows it; None where it can, or it is not known.

    A host name is judged by the `addresses` it resolves to now, all of which have to be refused; it is judged again
    at each connection, since it may resolve differently then.
    """
    ip = literal(host)
    refusals = [(one, policy.check(one, host)) for one in ([str(ip)] if ip is not None else addresses)]
    if not refusals or any(reason is None for _, reason in refusals):
        return None
    address, reason = refusals[0]
    kind = str(reason).partition(" address")[0]
    about = f"{host} is a {kind} address" if ip is not None else f"{host} resolves to {address}, a {kind} address"
    entry = address if ip is not None or kind in _GUARDED_KINDS else host.lower().rstrip(".")
    setting = f"add {entry} to COALMINE_HOOK_ALLOW" if policy.allow else f"set COALMINE_HOOK_ALLOW={entry}"
    return f"{about}, which hooks may not reach: {setting} and restart the service"


def parse_allow(text: str) -> tuple[Network | str, ...]:
    """Return a comma-separated list of addresses, CIDR networks and host names.

    Raises ValueError naming the first item that is none of these.
    """
    return tuple(_entry(item) for item in map(str.strip, text.split(",")) if item)


def parse_direct(text: str) -> tuple[Network | str, ...]:
    """Return what is reached without a proxy: as `parse_allow`, and `.example.com` stands for `example.com`."""
    return parse_allow(",".join(item.strip().removeprefix(".") for item in text.split(",")))


def literal(host: str) -> Address | None:
    """Return the address that a host spells, in any form of inet_aton(3): 127.1, 0x7f000001, 017700000001; else None.

    `localhost` is one too (RFC 6761, section 6.3).
    """
    plain = host.lower().strip("[]").partition("%")[0].rstrip(".")
    if plain.rpartition(".")[2] == "localhost":
        return IPv4Address("127.0.0.1")
    try:
        return ip_address(plain)
    except ValueError:
        pass
    try:
        *leading, last = [int(part, _base(part)) for part in plain.split(".")]
        if len(leading) > _BYTES - 1 or any(part > _BYTE for part in leading):
            return None
        return IPv4Address(last + sum(part << 8 * (_BYTES - 1 - at) for at, part in enumerate(leading)))
    except ValueError:
        return None


def _base(part: str) -> int:
    if part.startswith("0x"):
        return 16
    return 8 if part.startswith("0") and part.isdigit() else 10


def _entry(item: str) -> Network | str:
    try:
        return ip_network(item.strip("[]"), strict=False)
    except ValueError:
        name = item.lower().rstrip(".")
        labels = name.split(".")
        numeric = labels[-1].isdigit()  # 10.0.0.300 is a mistyped address, not a name: no top-level domain is a number
        if numeric or len(name) > _NAME_LENGTH or not all(_is_label(label) for label in labels):
            raise ValueError(f"{item!r} is neither an address, a network (10.0.0.0/8) nor a host name") from None
        return name


def _is_label(label: str) -> bool:
    plain = label.replace("-", "a").replace("_", "a")
    return 0 < len(label) <= _LABEL_LENGTH and plain.isalnum() and plain.isascii() and label[0] != "-" != label[-1]


def _candidate_addresses(ip: Address) -> Iterator[Address]:
    """Yield the address and every IPv4 address that a translator or tunnel maps it to."""
    plain = _unwrapped(ip)
    yield plain
    if isinstance(plain, IPv4Address):
        return
    packed = plain.packed
    if plain in _NAT64 or plain in _COMPATIBLE or packed[8:12] in _ISATAP:
        yield IPv4Address(packed[12:])
    if plain in _LOCAL_NAT64:
        for places in _NAT64_PLACES:
            yield IPv4Address(bytes(packed[at] for at in places))
    if plain.sixtofour is not None:
        yield plain.sixtofour
    if plain.teredo is not None:
        yield from plain.teredo


def _unwrapped(ip: Address) -> Address:
    """Return the IPv4 address of an IPv4-mapped (::ffff:a.b.c.d) or -translated (::ffff:0:a.b.c.d) one, else itself."""
    if isinstance(ip, IPv6Address) and (ip in _MAPPED or ip in _TRANSLATED):
        return IPv4Address(ip.packed[12:])
    return ip


def _special_kind(ip: Address) -> str | None:
    """Return the kind of an address that is not globally routed, by the IANA special-purpose registries; else None."""
    for network, kind in _SPECIAL:
        if ip in network:
            return kind
    routed = isinstance(ip, IPv4Address) or ip in _GLOBAL_UNICAST or ip in _NAT64
    return None if routed else "reserved"


def _address_text(candidate: Address, ip: Address) -> str:
    return str(ip) if candidate == ip else f"{candidate} (inside {ip})"


_REFUSED = re.compile(
    r"(?:^|: )(?P<kind>[A-Za-z -]+) address (?P<candidate>[0-9a-f:.]*[0-9a-f:])(?: \(inside (?P<outer>[0-9a-f:.]+)\))?"
)
_GUARDED_KINDS = ("cloud metadata", "link-local")
_NAME_LENGTH, _LABEL_LENGTH = 253, 63
_MAPPED, _TRANSLATED, _NAT64 = IPv6Network("::ffff:0:0/96"), IPv6Network("::ffff:0:0:0/96"), IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_NAT64_PLACES = ((12, 13, 14, 15), (9, 10, 11, 12), (7, 9, 10, 11), (6, 7, 9, 10))  # RFC 6052, section 2.2
_COMPATIBLE = IPv6Network("::/96")  # IPv4-compatible, deprecated (RFC 4291, section 2.5.5.1)
_ISATAP = (bytes.fromhex("00005efe"), bytes.fromhex("02005efe"))  # RFC 5214, section 6.1
_BYTES, _BYTE = 4, 255
_LINK_LOCAL: tuple[Network, ...] = (IPv4Network("169.254.0.0/16"), IPv6Network("fe80::/10"))
_GLOBAL_UNICAST = IPv6Network("2000::/3")

METADATA: frozenset[Address] = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # AWS, Google, Azure, OpenStack, DigitalOcean, Oracle
            "169.254.170.2",  # AWS container credentials
            "169.254.170.23",  # AWS pod identity
            "100.100.100.200",  # Alibaba
            "fd00:100::100:200",  # Alibaba
            "100.96.0.96",  # Volcano Engine
            "168.63.129.16",  # Azure wire server
            "fd00:ec2::254",  # AWS
            "fd00:ec2::23",  # AWS pod identity
            "fd20:ce::254",  # Google
            "192.0.0.192",  # Oracle
            "fd00:c1::a9fe:a9fe",  # Oracle
            "fd00:42::42",  # Scaleway
            "fd00:a9fe:a9fe::1",  # Akamai
        ),
    )
)

# The registries are spelled out because `ipaddress.is_private` and `is_global` differ between Python's patch releases.
_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("2001:2::/48", "benchmarking"),
        ("2001:10::/28", "reserved"),
    )
)


class Bearer(Confidential):
    """`Authorization: Bearer TOKEN` (RFC 6750)."""

    hidden: ClassVar = ("token",)

    token: str


class ApiKey(Confidential):
    """A key in a header or in a query parameter: exactly one of the two is named. `prefix` stands before the key."""

    hidden: ClassVar = ("key",)

    key: str
    header: str | None = None
    query: str | None = None
    prefix: str = ""


class Basic(Confidential):
    """A user and a password (RFC 7617); for SQL those of the database."""

    hidden: ClassVar = ("password",)

    user: str
    password: str


class Tls(Confidential):
    """PEM texts: the client's certificate with its key (mTLS), and an authority to trust in place of the system's."""

    hidden: ClassVar = ("key",)

    certificate: str | None = None
    key: str | None = None
    authority: str | None = None


class OAuth2(Confidential):
    """Client credentials (RFC 6749, section 4.4): a token is fetched and kept while it is valid."""

    hidden: ClassVar = ("client_secret",)

    token_url: str
    client_id: str
    client_secret: str
    scope: str | None = None
    audience: str | None = None
    tls: Tls | None = None
    """Of the token endpoint; that of the endpoint itself does not hold for it."""


class SigV4(Confidential):
    """AWS Signature Version 4."""

    hidden: ClassVar = ("secret_key", "session_token")

    region: str
    service: str
    access_key: str
    secret_key: str
    session_token: str | None = None


Auth = Bearer | ApiKey | Basic | OAuth2 | SigV4


class IdentityAuth(Value):
    """Credentials of each identity, where permissions come from the credentials; a value without any is not asked."""

    by: str
    """The variable whose value says who asks."""
    of: Mapping[str, Auth]
    """By that value."""


class Endpoint(Confidential):
    """An HTTP service beside the retriever: an embedder or a reranker."""

    hidden: ClassVar = ("headers",)

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Secret, as those of a retriever."""
    auth: Auth | None = None
    tls: Tls | None = None
    timeout_seconds: float = 10.0


HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
"""A token (RFC 9110, section 5.6.2)."""
HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")
"""One line (RFC 9110, section 5.5): nothing that could begin another header. Characters travel as `HEADER_CHARSET`."""
HEADER_CHARSET = "latin-1"
OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect"})
"""Names, in lower case, of what follows from the request itself: nobody else sets them."""
