"""Webhooks: signed as the specification says, and every answer judged for trying again."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from standardwebhooks import Webhook

from app.base.addresses import hook_policy, parse_allow
from app.base.values import replace
from app.hooks.client.webhook import DAY_SECONDS, retry_after, send_webhook
from app.hooks.domain import Hook, HookError, Message, Receipt
from tests.support.http_servers import HANG, SILENCE, Reply, closed_port, peer, reply

LOOPBACK = hook_policy(parse_allow("127.0.0.1"))
SECRET = "whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQtZGVtbw=="
MESSAGE = Message(id="msg_1", body='{"type": "alert.opened", "data": {"summary": "Größe"}}'.encode())
NOW = datetime(2026, 3, 1, 12, 0, 0, 900_000, tzinfo=UTC)


def hook(url: str, **changes: Any) -> Hook:
    """Make a hook that signs."""
    return replace(Hook(slug="ops", kind="webhook", url=url, secret=SECRET, timeout_seconds=10.0), **changes)


def sent(answer: Reply, **changes: Any) -> Receipt:
    """Send to a peer that answers like this."""
    with peer(answer) as server:
        return send_webhook(hook(server.url, **changes), MESSAGE, NOW, policy=LOOPBACK)


def test_message_arrives_signed_and_unchanged() -> None:
    now = datetime.now(UTC)  # the package's verify has its own clock
    with peer(reply(status=204)) as server:
        receipt = send_webhook(hook(f"{server.url}/in?a=b"), MESSAGE, now, policy=LOOPBACK, user_agent="coalmine/1")
        (seen,) = server.seen
    assert (receipt.ok, receipt.http_status, receipt.error, receipt.untaken) == (True, 204, None, False)
    assert receipt.latency_seconds > 0
    assert (seen.method, seen.target, seen.body) == ("POST", "/in?a=b", MESSAGE.body)
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["user-agent"] == "coalmine/1"
    assert seen.headers["webhook-id"] == "msg_1"
    assert Webhook(SECRET).verify(seen.body, dict(seen.headers)) == json.loads(MESSAGE.body)


def test_timestamp_is_the_given_moment_in_whole_seconds_whatever_its_zone() -> None:
    stamps = set()
    for zone in (UTC, timezone(timedelta(hours=-7))):
        with peer(reply()) as server:
            send_webhook(hook(server.url), MESSAGE, NOW.astimezone(zone), policy=LOOPBACK)
            headers = server.seen[0].headers
            stamps.add((headers["webhook-timestamp"], headers["webhook-signature"]))
    expected = Webhook(SECRET).sign("msg_1", NOW, MESSAGE.body.decode())
    assert stamps == {("1772366400", expected)}


def test_hook_without_a_secret_is_sent_unsigned() -> None:
    with peer(reply()) as server:
        assert send_webhook(hook(server.url, secret=None), MESSAGE, NOW, policy=LOOPBACK).ok
        headers = server.seen[0].headers
    assert "webhook-signature" not in headers
    assert headers["webhook-id"] == "msg_1"
    assert headers["webhook-timestamp"] == "1772366400"


@pytest.mark.parametrize("secret", ["", "whsec_", "a", "geheim-ü"])
def test_unusable_secret_sends_nothing_and_is_not_quoted(secret: str) -> None:
    with peer(reply()) as server:
        receipt = send_webhook(hook(server.url, secret=secret), MESSAGE, NOW, policy=LOOPBACK)
        assert server.seen == []
    assert (receipt.ok, receipt.error, receipt.untaken) == (False, HookError.SECRET, True)
    assert "geheim" not in str(receipt.detail)


@pytest.mark.parametrize(
    ("status", "error", "untaken"),
    [
        (301, HookError.REDIRECT, True),
        (307, HookError.REDIRECT, True),
        (400, HookError.HTTP_4XX, True),
        (401, HookError.HTTP_4XX, True),
        (404, HookError.HTTP_4XX, True),
        (408, HookError.HTTP_4XX, False),
        (410, HookError.GONE, True),
        (425, HookError.HTTP_4XX, True),
        (429, HookError.HTTP_4XX, True),
        (500, HookError.HTTP_5XX, False),
        (503, HookError.HTTP_5XX, False),
        (599, HookError.HTTP_5XX, False),
    ],
)
def test_the_status_says_whether_a_message_was_not_taken(status: int, error: HookError, untaken: bool) -> None:  # noqa: FBT001 - pytest passes parameters by name
    receipt = sent(reply(b"secret body", status, {"location": "http://127.0.0.1:1/"}))
    assert (receipt.ok, receipt.http_status, receipt.error, receipt.untaken) == (False, status, error, untaken)
    assert receipt.gone is (status == 410)
    assert str(status) in str(receipt.detail)
    assert "secret" not in str(receipt)


def test_redirect_is_not_followed() -> None:
    with peer(reply()) as target:
        receipt = sent(reply(status=302, headers={"location": target.url}))
        assert target.seen == []
    assert "redirects are not followed" in str(receipt.detail)


def test_retry_after_is_handed_on_with_any_refusal() -> None:
    assert sent(reply(status=429, headers={"retry-after": "17"})).retry_after_seconds == 17.0
    assert sent(reply(status=503, headers={"Retry-After": "Sun, 01 Mar 2026 12:01:00 GMT"})).retry_after_seconds == 59.1
    assert sent(reply(status=400, headers={"retry-after": "17"})).retry_after_seconds == 17.0
    assert sent(reply(status=500)).retry_after_seconds is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        ("120", 120.0),
        ("9" * 400, DAY_SECONDS),
        ("-5", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sun, 01 Mar 2026 13:01:00 +0100", 59.1),
        ("Sun, 01 Mar 2026 12:01:00 -0000", 59.1),
        ("Sunday, 01-Mar-26 12:01:00 GMT", 59.1),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY_SECONDS),
        ("Sun, 01 Mar 99999 12:01:00 GMT", None),
    ],
)
def test_retry_after_reads_seconds_and_dates(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


def test_silent_receiver_times_out() -> None:
    receipt = sent(HANG, timeout_seconds=0.1)
    assert (receipt.ok, receipt.error, receipt.untaken) == (False, HookError.TIMEOUT, False)


@pytest.mark.parametrize("answer", [SILENCE, Reply(raw=b"SSH-2.0-OpenSSH\r\n", close=True)])
def test_broken_receiver_is_unreachable(answer: Reply) -> None:
    receipt = sent(answer)
    assert (receipt.ok, receipt.error, receipt.untaken) == (False, HookError.UNREACHABLE, False)


def test_closed_port_is_unreachable() -> None:
    with closed_port() as port:
        receipt = send_webhook(hook(f"http://127.0.0.1:{port}"), MESSAGE, NOW, policy=LOOPBACK)
    assert (receipt.error, receipt.untaken) == (HookError.UNREACHABLE, True)


@pytest.mark.parametrize(
    "answer",
    [
        reply(bytes(10_000_000)),
        Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + bytes(100_000), close=True),
        Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal", close=True),
        Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal", hang=True),
    ],
)
def test_accepted_is_accepted_whatever_follows_the_status(answer: Reply) -> None:
    receipt = sent(answer, timeout_seconds=0.3)
    assert (receipt.ok, receipt.http_status) == (True, 200)
