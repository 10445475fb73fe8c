"""Proxies: what goes through one, whose address is judged, and what is judged before it."""

from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app import USER_AGENT
from app.base.addresses import OAuth2, Proxy, Tls, hook_policy, parse_allow, parse_direct
from app.base.values import Answer, Outcome, replace
from app.config import load_settings
from app.hooks.client.webhook import Sender
from app.hooks.domain import Hook, HookError, HookKind, Message, Receipt
from app.retrievers.client.probe import RetrieverProbe
from app.wiring import build_ping
from tests.support.certificates import Authority, serving
from tests.support.http_servers import closed_port, peer, reply
from tests.support.probed import answers_of, retriever_at
from tests.support.proxies import forward_proxy

NOW = datetime(2026, 3, 2, tzinfo=UTC)
MESSAGE = Message(id="msg_1", body=b"{}")
PROXY = "http://proxy.example:3128"


def hook(url: str, **more: Any) -> Hook:
    return Hook(slug="ops", kind=HookKind.SLACK, url=url, timeout_seconds=5.0, **more)


def asked(settings: dict[str, str], url: str, **more: Any) -> Answer:
    """Ask a retriever by the probe of a service with these settings."""
    probe = RetrieverProbe(load_settings(settings).retriever_addresses, USER_AGENT)
    return answers_of(retriever_at(url, timeout_seconds=5.0, **more), "why?", probe=probe)[0]


def test_what_is_reached_without_the_proxy() -> None:
    for direct, host, served in [
        ("", "search.example", True),
        ("", "localhost", False),
        ("", "127.0.0.2", False),
        ("", "[::1]", False),
        ("", "10.0.0.1", True),
        ("10.0.0.0/8", "10.0.0.1", False),
        ("10.0.0.0/8", "0xa000001", False),
        ("10.0.0.0/8", "11.0.0.1", True),
        (".corp.example", "search.corp.example", False),
        ("corp.example", "Search.Corp.Example.", False),
        ("corp.example", "corp.example", False),
        ("corp.example", "evilcorp.example", True),
    ]:
        assert Proxy(url=PROXY, direct=parse_direct(direct)).serves(host) is served, direct


def test_retriever_and_its_token_endpoint_are_reached_through_the_proxy_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    authority = Authority()
    secure = serving(tmp_path, authority.issue("search", host="search.example"))
    answer = reply(b'{"results": [], "access_token": "t-0123456789ab"}')
    with peer(answer, tls=secure) as server, forward_proxy() as proxy:
        settings = {"COALMINE_PROXY": f"http://coalmine:hunter2@127.0.0.1:{proxy.port}"}
        url, tls = f"https://search.example:{server.port}", Tls(authority=authority.certificate)
        auth = OAuth2(token_url=f"{url}/token", client_id="c", client_secret="s-0123456789", tls=tls)
        assert asked(settings, f"{url}/x", auth=auth, tls=tls).outcome is Outcome.OK
        assert [one.target for one in server.seen] == ["/token", "/x"]
        assert proxy.targets == [f"search.example:{server.port}"] * 2
        credentials = b64encode(b"coalmine:hunter2").decode()
        assert all(f"Proxy-Authorization: Basic {credentials}\r\n" in head for head in proxy.heads)
        assert not any("proxy-authorization" in one.headers for one in server.seen)
        assert asked(settings | {"COALMINE_NO_PROXY": "example"}, f"{url}/x", tls=tls).detail == (
            "the host name does not resolve"
        )


def test_proxy_that_refuses_or_is_not_there_is_named() -> None:
    with forward_proxy(refusal=407) as proxy:
        refused = asked({"COALMINE_PROXY": f"http://u:hunter2@127.0.0.1:{proxy.port}"}, "https://search.example/")
    assert (refused.outcome, refused.detail) == (Outcome.UNREACHABLE, "the proxy answered 407 and did not connect")
    with closed_port() as port:
        gone = asked({"COALMINE_PROXY": f"http://127.0.0.1:{port}"}, "https://search.example/")
        assert gone.detail == "the proxy: connection failed: Connection refused"
        receipt = send_through(f"http://127.0.0.1:{port}", hook("https://hooks.example/"))
        assert (receipt.error, receipt.untaken) == (HookError.UNREACHABLE, True)


def send_through(proxy: str, to: Hook, **settings: str) -> Receipt:
    """Send by the sender of a service with this proxy."""
    return Sender(policy=load_settings({"COALMINE_PROXY": proxy, **settings}).hook_addresses, user_agent=USER_AGENT)(
        to, MESSAGE, NOW
    )


def test_hook_trusts_its_authority_and_is_reached_through_the_proxy(tmp_path: Path) -> None:
    authority = Authority()
    with (
        peer(reply(b"ok"), tls=serving(tmp_path, authority.issue("hooks", host="hooks.example"))) as server,
        forward_proxy() as proxy,
    ):
        at, url = f"http://127.0.0.1:{proxy.port}", f"https://hooks.example:{server.port}/in"
        untrusted = send_through(at, hook(url))
        assert str(untrusted.detail).startswith("TLS: ")
        for kind in (HookKind.SLACK, HookKind.WEBHOOK, HookKind.ALERTMANAGER, HookKind.PAGERDUTY):
            assert send_through(at, replace(hook(url, authority=authority.certificate), kind=kind, secret=None)).ok
        assert [one.target for one in server.seen] == ["/in", "/in", "/in/api/v2/alerts", "/in"]


@pytest.mark.parametrize("host", ["10.0.0.7", "0xa000007", "169.254.169.254", "[fd00:ec2::254]"])
def test_address_that_hooks_may_not_reach_is_not_asked_of_the_proxy(host: str) -> None:
    with forward_proxy() as proxy:
        receipt = send_through(f"http://127.0.0.1:{proxy.port}", hook(f"https://{host}/in"))
        assert (receipt.error, receipt.untaken, proxy.heads) == (HookError.BLOCKED, True, [])
        assert "COALMINE_HOOK_ALLOW" in str(receipt.detail)


def test_name_that_leads_to_a_private_address_here_is_not_asked_of_the_proxy() -> None:
    leads = {"ci.corp.example": ("93.184.215.14", "10.0.0.7"), "hooks.example": ("93.184.215.14",)}
    with peer(reply(b"ok")) as proxy:
        policy = hook_policy(parse_allow(""), Proxy(url=proxy.url))
        sender = Sender(policy=policy, look_up=lambda names: {name: leads.get(name, ()) for name in names})
        blocked = sender(hook("http://ci.corp.example/in"), MESSAGE, NOW)
        assert (blocked.error, blocked.untaken, proxy.connections) == (HookError.BLOCKED, True, 0)
        assert str(blocked.detail).startswith("not allowed to connect: private address 10.0.0.7. ")
        for known in ("http://hooks.example/in", "http://known-to-the-proxy.example/in"):
            assert sender(hook(known), MESSAGE, NOW).ok
        allowed = replace(sender, policy=replace(policy, allow=parse_allow("ci.corp.example")))
        assert allowed(hook("http://ci.corp.example/in"), MESSAGE, NOW).ok


def test_proxy_of_a_hook_has_to_be_permitted_and_none_goes_without() -> None:
    with peer(reply(b"ok")) as server, peer(reply(b"ok")) as other:
        to = hook("http://hooks.example/in", proxy=server.url)
        closed = Sender(policy=hook_policy())(to, MESSAGE, NOW)
        assert (closed.error, server.connections) == (HookError.BLOCKED, 0)
        assert str(closed.detail).startswith("not allowed to connect: loopback address 127.0.0.1. ")
        open_to = hook_policy(parse_allow("127.0.0.1"), Proxy(url=other.url))
        assert Sender(policy=open_to)(to, MESSAGE, NOW).ok
        assert [one.target for one in server.seen] == ["http://hooks.example/in"]
        assert not Sender(policy=open_to)(replace(to, proxy=""), MESSAGE, NOW).ok
        assert other.connections == 0
        assert Sender(policy=open_to)(replace(to, proxy=None), MESSAGE, NOW).ok
        assert other.connections == 1


def test_ping_goes_through_the_proxy() -> None:
    with peer(reply(b"ok")) as proxy:
        ping = build_ping(load_settings({"COALMINE_PROXY": proxy.url, "COALMINE_PING_URL": "http://ping.example/1"}))
        assert ping is not None
        assert ping() is None
        assert [one.target for one in proxy.seen] == ["http://ping.example/1"]
