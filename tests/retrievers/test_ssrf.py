"""Addresses and tricks that must lead nowhere, through the real probe and transport; a bait must not be bitten.

Every case is refused when libcurl is about to connect, whatever the URL looked like; what the bait would have said
appears nowhere.
"""

from contextlib import closing

import pycurl
import pytest

from app.base.addresses import AddressPolicy, Proxy, hook_policy, parse_allow, retriever_policy
from app.base.net.transfer import Failure, Request, Response, Transfer
from app.base.net.transport import exchange, send_one
from app.base.values import Answer, Outcome, replace
from app.retrievers.client.probe import RetrieverProbe
from tests.support.http_servers import Peer, closed_port, peer, reply
from tests.support.probed import answers_of, retriever_at

SECRET = "crown-jewels"
BAIT = reply(b'{"results": [{"id": "%s"}]}' % SECRET.encode(), headers={"x-secret": SECRET})
PUBLIC = hook_policy()
OPEN = retriever_policy()
LISTED = retriever_policy(parse_allow("192.0.2.0/24, search.example"))

LOCAL = [
    ("127.0.0.1", "loopback"),
    ("127.0.1", "loopback"),
    ("127.1", "loopback"),
    ("127.000.000.001", "loopback"),
    ("127.0.0.1.", "loopback"),
    ("127.1.", "loopback"),
    ("2130706433", "loopback"),
    ("0x7f000001", "loopback"),
    ("0X7F000001", "loopback"),
    ("0x7f.1", "loopback"),
    ("0x7f.0x0.0x0.0x1", "loopback"),
    ("017700000001", "loopback"),
    ("0177.0.0.01", "loopback"),
    ("00000177.0.0.1", "loopback"),
    ("127.0x1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("%31%32%37.0.0.1", "loopback"),
    ("127%2e0%2e0%2e1", "loopback"),
    ("localhost", "loopback"),
    ("LOCALHOST", "loopback"),
    ("localhost.", "loopback"),
    ("anything.localhost", "loopback"),
    ("user@127.0.0.1", "loopback"),
    ("8.8.8.8@127.0.0.1", "loopback"),
    ("search.example:80@127.0.0.1", "loopback"),
    ("search.example%40127.0.0.1@127.0.0.1", "loopback"),
    ("0", "unspecified"),
    ("0.0.0.0", "unspecified"),  # noqa: S104 - an address to refuse, not to bind
    ("0x0", "unspecified"),
    ("0.0.0.1", "unspecified"),
    ("[::]", "unspecified"),
    ("[::1]", "loopback"),
    ("[0:0:0:0:0:0:0:1]", "loopback"),
    ("[::1%25lo]", "loopback"),
    ("[::ffff:127.0.0.1]", "loopback"),
    ("[::ffff:7f00:1]", "loopback"),
    ("[0:0:0:0:0:ffff:127.0.0.1]", "loopback"),
    ("[::ffff:0:127.0.0.1]", "loopback"),
    ("[64:ff9b::127.0.0.1]", "loopback"),
    ("[2002:7f00:1::]", "loopback"),
    ("[2001:0:7f00:1::1]", "loopback"),
    ("[2001:0:808:808::80ff:fffe]", "loopback"),
    ("[2606:4700::5efe:127.0.0.1]", "loopback"),
    ("[::127.0.0.1]", "reserved"),
]
INSIDE = [
    ("10.0.0.1", "private"),
    ("10.1", "private"),
    ("0xa000001", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.254", "private"),
    ("192.168.0.1", "private"),
    ("0300.0250.1", "private"),
    ("3232235521", "private"),
    ("100.64.0.1", "carrier-grade NAT"),
    ("100.127.255.254", "carrier-grade NAT"),
    ("192.0.0.8", "reserved"),
    ("198.18.0.1", "benchmarking"),
    ("198.51.100.7", "documentation"),
    ("203.0.113.7", "documentation"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.255", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "reserved"),
    ("[2001:db8::1]", "documentation"),
    ("[100::1]", "reserved"),
    ("[4000::1]", "reserved"),
    ("[fd12:3456::1]", "private"),
    ("[fc00::1]", "private"),
    ("[fec0::1]", "private"),
    ("[ff02::1]", "multicast"),
    ("[::ffff:10.0.0.1]", "private"),
    ("[64:ff9b::10.0.0.1]", "private"),
    ("[64:ff9b:1::1]", "reserved"),
    ("[2002:a00:1::]", "private"),
    ("[2001:0:a00:1::1]", "private"),  # Teredo: a private server
    ("[2001:0:808:808::f5ff:fffe]", "private"),  # Teredo: a private client, its bits inverted
]
GUARDED = [
    ("169.254.0.1", "link-local"),
    ("169.254.169.253", "link-local"),
    ("[fe80::1]", "link-local"),
    ("[fe80::1%25lo]", "link-local"),
    ("[fe80::a9fe:a9fe]", "link-local"),  # OpenStack
    ("169.254.42.42", "link-local"),  # Scaleway
    ("169.254.0.23", "link-local"),  # Tencent
    ("169.254.169.254", "cloud metadata"),  # AWS, Google, Azure, OpenStack, DigitalOcean, Oracle and more
    ("169.254.43518", "cloud metadata"),
    ("2852039166", "cloud metadata"),
    ("0xa9fea9fe", "cloud metadata"),
    ("0251.0376.0251.0376", "cloud metadata"),
    ("169.254.169.254.", "cloud metadata"),
    ("search.example@169.254.169.254", "cloud metadata"),
    ("169.254.170.2", "cloud metadata"),  # AWS containers
    ("169.254.170.23", "cloud metadata"),  # AWS pods
    ("[fd00:ec2::254]", "cloud metadata"),
    ("[fd00:ec2::23]", "cloud metadata"),
    ("[fd20:ce::254]", "cloud metadata"),  # Google
    ("100.100.100.200", "cloud metadata"),  # Alibaba
    ("[fd00:100::100:200]", "cloud metadata"),
    ("100.96.0.96", "cloud metadata"),  # Volcano Engine
    ("168.63.129.16", "cloud metadata"),  # Azure
    ("192.0.0.192", "cloud metadata"),  # Oracle
    ("[fd00:c1::a9fe:a9fe]", "cloud metadata"),
    ("[fd00:42::42]", "cloud metadata"),  # Scaleway
    ("[fd00:a9fe:a9fe::1]", "cloud metadata"),  # Akamai
    ("[::ffff:169.254.169.254]", "cloud metadata"),
    ("[::ffff:0:169.254.169.254]", "cloud metadata"),
    ("[::169.254.169.254]", "cloud metadata"),
    ("[64:ff9b::169.254.169.254]", "cloud metadata"),
    ("[64:ff9b:1::169.254.169.254]", "cloud metadata"),
    ("[64:ff9b:1:a9fe:a9:fe00::]", "cloud metadata"),  # the same, translated by a /48 (RFC 6052)
    ("[64:ff9b:1:fa9:fe:a9fe::]", "cloud metadata"),  # by a /56
    ("[64:ff9b:1:ff:a9:fea9:fe00:0]", "cloud metadata"),  # by a /64
    ("[2002:a9fe:a9fe::]", "cloud metadata"),
    ("[2001:0:a9fe:a9fe::1]", "cloud metadata"),
    ("[2606:4700::200:5efe:169.254.169.254]", "cloud metadata"),
]
OTHER_LETTERS = [  # that some resolvers take for plain ones
    "\uff11\uff12\uff17.0.0.1",  # full-width digits
    "127\u30020\u30020\u30021",  # ideographic full stops
    "127\uff0e0\uff0e0\uff0e1",  # full-width full stops
    "\u2460\u2461\u2466.0.0.1",  # circled digits
    "127.0.0.\u0661",  # an Arabic digit
    "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3",  # circled letters
    "loc\u00adalhost",  # a soft hyphen
    "l\uff4fcalhost",  # a full-width letter
]


def probe(url: str, policy: AddressPolicy) -> Answer:
    """Ask one canary's question of a retriever at this address."""
    by = RetrieverProbe(policy, "coalmine/1.0")
    return answers_of(retriever_at(url, timeout_seconds=2), "why?", probe=by, shows=True)[0]


def refused(answer: Answer) -> str:
    """Check that nothing came of a probe, and say why."""
    assert answer.outcome is Outcome.BLOCKED
    assert (answer.ranking, answer.http_status) == (None, None)
    assert SECRET not in repr(answer)
    assert answer.exchange is None or not (answer.exchange.response_body or answer.exchange.response_headers)
    return str(answer.detail).removeprefix("not allowed to connect: ")


def test_hooks_reach_nothing_that_is_not_public() -> None:
    with peer(BAIT) as bait:
        for host, kind in (*LOCAL, *INSIDE, *GUARDED):
            reason = refused(probe(f"http://{host}:{bait.port}/", PUBLIC))
            assert reason.startswith(f"{kind} address "), host
            assert bait.connections == 0, host


def test_retrievers_with_an_allow_list_reach_nothing_else() -> None:
    with peer(BAIT) as bait:
        for host, _ in (*LOCAL, *INSIDE):
            reason = refused(probe(f"http://{host}:{bait.port}/", LISTED))
            assert reason.startswith("address "), host
            assert reason.endswith(" is not on the allow list"), host
            assert bait.connections == 0, host


@pytest.mark.parametrize("policy", [OPEN, LISTED, retriever_policy(parse_allow("0.0.0.0/0, ::/0"))])
def test_no_retriever_reaches_metadata_or_link_local_addresses(policy: AddressPolicy) -> None:
    for host, kind in GUARDED:
        assert refused(probe(f"http://{host}/latest/meta-data/", policy)).startswith(f"{kind} address "), host


@pytest.mark.parametrize("policy", [PUBLIC, LISTED])
def test_hosts_in_other_letters_are_refused_rather_than_guessed(policy: AddressPolicy) -> None:
    with peer(BAIT) as bait:
        for host in OTHER_LETTERS:
            assert refused(probe(f"http://{host}:{bait.port}/", policy)) == "the host is not written plainly", host
            assert bait.connections == 0, host


ELSEWHERE = [
    "search.example\\@127.0.0.1:{port}",
    "search.example%00@127.0.0.1:{port}",
    "search.example:80@127.0.0.1:{port}",
    "search.example#@127.0.0.1:{port}",
    "127.0.0.1:{port}#@search.example",
    "127.0.0.1:{port}?@search.example",
    "127.0.0.1:{port}/@search.example",
    "127.0.0.1:{port}\\@search.example",
    "127.0.0.1:{port} search.example",
    "127.0.0.1:{port}\r\nHost: search.example",
    "127.0.0.1:{port}\t.search.example",
    "127.0.0.1%00.search.example:{port}",
    "127.0.0.1\0.search.example:{port}",
    "a@search.example@127.0.0.1:{port}",
    "/127.0.0.1:{port}",
    "[::1].search.example:{port}",
    "search.example\ud800@127.0.0.1:{port}",
]


def test_a_listed_name_elsewhere_in_the_url_opens_nothing() -> None:
    with peer(BAIT) as bait:
        for authority in ELSEWHERE:
            url = f"http://{authority.format(port=bait.port)}/"
            response = send_one(Request(url=url, body=b"", timeout_seconds=2), policy=LISTED)
            assert response.failure in {Failure.BLOCKED, Failure.UNREACHABLE}, authority
            assert (response.status, response.body) == (None, b""), authority
            assert bait.connections == 0, authority


OTHER_PROTOCOLS = [
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "gopher://127.0.0.1:{port}/_GET%20/",
    "ftp://127.0.0.1:{port}/",
    "dict://127.0.0.1:{port}/d:x",
    "ldap://127.0.0.1:{port}/",
    "smb://127.0.0.1:{port}/x",
    "sftp://127.0.0.1:{port}/",
    "scp://127.0.0.1:{port}/x",
    "telnet://127.0.0.1:{port}/",
    "tftp://127.0.0.1:{port}/x",
    "imap://127.0.0.1:{port}/",
    "smtp://127.0.0.1:{port}/",
    "rtsp://127.0.0.1:{port}/",
    "mqtt://127.0.0.1:{port}/",
    "ws://127.0.0.1:{port}/",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "data:application/json,1",
    "http:127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    " http://127.0.0.1:{port}/",
]


@pytest.mark.parametrize("policy", [PUBLIC, OPEN])
def test_other_protocols_are_not_spoken(policy: AddressPolicy) -> None:
    with peer(BAIT) as bait:
        for url in OTHER_PROTOCOLS:
            response = send_one(Request(url=url.format(port=bait.port), method="GET", timeout_seconds=2), policy=policy)
            assert (response.failure, response.status, response.body) == (Failure.BLOCKED, None, b""), url
            assert response.detail == "only http and https addresses are contacted", url
            assert bait.connections == 0, url


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_lead_nowhere(status: int) -> None:
    for host in ("127.0.0.1", "localhost", "169.254.169.254", "[::1]", "2130706433"):
        with peer(BAIT) as bait:
            where = f"http://{host}:{bait.port}/"
            with peer(reply(SECRET.encode(), status, {"location": where, "refresh": f"0; url={where}"})) as server:
                answer = probe(server.url, OPEN)
                assert len(server.seen) == 1, host
            assert bait.connections == 0, host
        assert (answer.outcome, answer.http_status, answer.ranking) == (Outcome.REFUSED, status, None), host
        assert str(answer.detail).endswith(", which is not followed"), host
        assert SECRET not in str(answer.detail), host


def test_proxies_of_the_environment_are_ignored_so_that_none_gets_round_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with peer(BAIT) as bait:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, bait.url)
        for policy, host in ((PUBLIC, "10.0.0.1"), (LISTED, "10.0.0.1"), (OPEN, "169.254.169.254")):
            refused(probe(f"http://{host}/", policy))
        assert bait.connections == 0


def test_a_proxy_of_our_own_is_not_asked_for_what_is_refused() -> None:
    with peer(BAIT) as bait:
        for host, _ in (*LOCAL, *INSIDE, *GUARDED):
            request = Request(url=f"http://{host}/", body=b"")
            for policy in (PUBLIC, LISTED):
                through = replace(policy, proxy=Proxy(url=bait.url))
                assert send_one(request, policy=through).failure is Failure.BLOCKED, host
            assert bait.connections == 0, host


def test_a_proxy_is_asked_for_listed_names_alone() -> None:
    with peer(reply(b"found")) as proxy:
        through = replace(LISTED, proxy=Proxy(url=proxy.url))
        listed = Request(url="http://search.example/", body=b"")
        assert send_one(listed, policy=through).body == b"found"
        for url in ("http://evil.example/", "http://search.example.evil.example/", "http://search.example\\@evil/"):
            assert send_one(replace(listed, url=url), policy=through).failure is Failure.BLOCKED
        assert len(proxy.seen) == 1


def resolved(bait: Peer, addresses: str, policy: AddressPolicy, transfer: Transfer | None = None) -> Response:
    """Ask `rebind.example` by a handle as the transport uses it; only the name is resolved by the test."""
    used = transfer or Transfer(policy)
    try:
        used.prepare(Request(url=f"http://rebind.example:{bait.port}/", body=b"", timeout_seconds=2))
        names = [f"-rebind.example:{bait.port}", f"rebind.example:{bait.port}:{addresses}"]
        used.curl.setopt(pycurl.RESOLVE, names)
        try:
            used.curl.perform()
        except pycurl.error as error:
            return used.response(error.args[0])
        return used.response(0)
    finally:
        if transfer is None:
            used.curl.close()


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("10.0.0.1", "private"),
        ("[::1]", "loopback"),
        ("[::ffff:127.0.0.1]", "loopback"),
        ("[64:ff9b::7f00:1]", "loopback"),
        ("0.0.0.0", "unspecified"),  # noqa: S104 - an address to refuse, not to bind
        ("169.254.169.254", "cloud metadata"),
    ],
)
def test_name_that_resolves_inside_is_refused_for_where_it_leads(address: str, kind: str) -> None:
    with peer(BAIT) as bait:
        response = resolved(bait, address, PUBLIC)
        assert response.failure is Failure.BLOCKED
        assert str(response.detail).startswith(f"not allowed to connect: {kind} address ")
        assert (response.status, response.body, bait.connections) == (None, b"", 0)


def test_of_several_addresses_only_permitted_ones_are_tried() -> None:
    policy = hook_policy(parse_allow("127.0.0.1"))
    with peer(BAIT) as bait:
        assert resolved(bait, "10.0.0.1,127.0.0.1", policy).status == 200
        assert resolved(bait, "127.0.0.1,10.0.0.1", policy).status == 200
        response = resolved(bait, "10.0.0.1,192.168.0.1,[::1]", policy)
        assert response.failure is Failure.BLOCKED


def test_name_that_leads_elsewhere_the_second_time_is_checked_the_second_time() -> None:
    policy = hook_policy(parse_allow("127.0.0.1"))
    with peer(replace(BAIT, close=True)) as bait:
        transfer = Transfer(policy)
        try:
            assert resolved(bait, "127.0.0.1", policy, transfer).status == 200
            for address in ("127.0.0.2", "[::1]", "169.254.169.254"):
                response = resolved(bait, address, policy, transfer)
                assert (response.failure, response.body) == (Failure.BLOCKED, b"")
            assert bait.connections == 1
            assert resolved(bait, "127.0.0.1", policy, transfer).status == 200
        finally:
            transfer.curl.close()


def test_every_connection_of_an_exchange_is_checked_anew() -> None:
    seen: list[str] = []

    class Watching(AddressPolicy):
        """Notes what it is asked."""

        def check(self, address: str, host: str) -> str | None:
            seen.append(f"{host} {address}")
            return super().check(address, host)

    policy = Watching(name="watching", deny_private=False)
    with peer(replace(BAIT, close=True)) as bait:
        requests = [Request(tag=n, url=f"{bait.url}/", body=b"") for n in range(5)]
        assert sum(map(len, exchange(requests, policy=policy, concurrency=1))) == 5
        assert bait.connections == 5
    assert seen == ["127.0.0.1 127.0.0.1"] * 5


def test_connections_made_under_one_policy_serve_no_other() -> None:
    with peer(BAIT) as bait:
        request = Request(url=bait.url, body=b"")
        with closing(exchange([request], policy=OPEN, concurrency=1)) as kept:
            assert [response.status for _, response in next(kept)] == [200]
            for policy in (PUBLIC, LISTED):
                response = send_one(request, policy=policy)
                assert (response.failure, response.body) == (Failure.BLOCKED, b"")
        assert bait.connections == 1


def test_blocked_is_told_from_unreachable() -> None:
    with closed_port() as port:
        url = f"http://user:hunter2@127.0.0.1:{port}/"
        assert probe(url, PUBLIC).outcome is Outcome.BLOCKED
        down = probe(url, OPEN)
    assert (down.outcome, down.detail) == (Outcome.UNREACHABLE, "connection failed: Connection refused")
    assert probe("http://nobody.invalid/", PUBLIC).outcome is Outcome.UNREACHABLE


def test_permitted_address_that_is_down_is_unreachable_though_another_was_refused() -> None:
    with closed_port() as port:
        response = resolved(Peer(port=port), "10.0.0.1,127.0.0.1", hook_policy(parse_allow("127.0.0.1")))
    assert response.failure is Failure.UNREACHABLE
