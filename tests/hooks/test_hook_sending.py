"""Sending to real receivers of every kind: what arrives, and what each answer means for trying again."""

import base64
import json
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from app.base.addresses import hook_policy, parse_allow
from app.base.net.transfer import Response
from app.base.values import replace
from app.hooks.client.apprise import send_apprise
from app.hooks.client.apprise_process import Guard
from app.hooks.client.mail import send_mail
from app.hooks.client.webhook import Sender, refusal_of
from app.hooks.domain import Hook, HookError, HookKind, Mail, MailTls, Message, Receipt
from app.hooks.notices import body_of
from tests.hooks.test_hook_notices import notice
from tests.support.certificates import Authority, serving
from tests.support.http_servers import Peer, closed_port, peer, reply
from tests.support.receivers import BOT_TOKEN, ROUTING_KEY, mail_server, pagerduty, slack, slack_api, talking

LOOPBACK = hook_policy(parse_allow("127.0.0.1"))
NOW = datetime(2026, 3, 2, 12, 0, 5, tzinfo=UTC)
PASSWORD = "hunter2 pass"
send = Sender(policy=LOOPBACK, user_agent="coalmine/1")


def message_for(hook: Hook) -> Message:
    """Write a notice for a hook."""
    return Message(id="msg_1", body=body_of(hook, notice(), "msg_1"))


def sent(kind: HookKind, server: Peer, path: str = "", **changes: Any) -> Receipt:
    """Send a notice to a server."""
    hook = replace(Hook(slug="ops", kind=kind, url=f"{server.url}{path}", timeout_seconds=5.0), **changes)
    return send(hook, message_for(hook), NOW)


# --- services ------------------------------------------------------------------------------------------------


def test_slack_takes_a_message() -> None:
    with slack() as server:
        assert sent(HookKind.SLACK, server, "/services/T0/B0/s3cret").ok
        (seen,) = server.seen
    assert (seen.method, seen.target) == ("POST", "/services/T0/B0/s3cret")
    assert seen.headers["user-agent"] == "coalmine/1"


PICTURE = b"\x89PNG a picture"


def slack_app(server: Peer, picture: bytes | None = PICTURE, **changes: Any) -> Receipt:
    """Send a notice with a picture by a Slack app."""
    hook = Hook(slug="ops", kind=HookKind.SLACK_APP, url=f"{server.url}/api", secret=BOT_TOKEN, channel="C0123456789")
    address = None if picture is None else f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    hook = replace(hook, timeout_seconds=5.0, **changes)
    body = body_of(hook, notice(), "msg_1", address)
    assert BOT_TOKEN.encode() not in body
    return send(hook, Message(id="msg_1", body=body), NOW)


def test_a_slack_app_writes_to_its_channel_and_puts_the_picture_into_the_thread() -> None:
    with slack_api() as server:
        assert slack_app(server) == replace(slack_app(server), latency_seconds=ANY)
        message, place, upload, done = server.seen[:4]
    assert message.target == "/api/chat.postMessage"
    assert json.loads(message.body)["channel"] == "C0123456789"
    assert place.body == b"filename=heatmap.png&length=14"
    assert upload.body == PICTURE
    assert "authorization" not in upload.headers
    sent = json.loads(done.body)
    assert (sent["channel_id"], sent["thread_ts"]) == ("C0123456789", "1503435956.000247")


def test_a_slack_app_without_a_picture_asks_for_no_upload() -> None:
    with slack_api() as server:
        assert slack_app(server, None).detail is None
        assert [one.target for one in server.seen] == ["/api/chat.postMessage"]


@pytest.mark.parametrize(
    ("method", "requests"), [("files.getUploadURLExternal", 2), ("files.completeUploadExternal", 4)]
)
def test_a_message_counts_without_its_picture_and_the_receipt_says_why_it_is_not_there(
    method: str, requests: int
) -> None:
    with slack_api({method: f"missing_scope {BOT_TOKEN}"}) as server:
        receipt = slack_app(server)
        assert len(server.seen) == requests
    assert receipt.ok
    assert receipt.error is None
    assert str(receipt.detail).startswith("without its picture: missing_scope")
    assert BOT_TOKEN not in str(receipt)


@pytest.mark.parametrize("error", ["channel_not_found", "not_in_channel", "invalid_auth"])
def test_a_message_that_slack_refuses_is_not_delivered_and_no_picture_follows(error: str) -> None:
    with slack_api({"chat.postMessage": error}) as server:
        receipt = slack_app(server)
        assert len(server.seen) == 1
    assert (receipt.ok, receipt.error, receipt.untaken) == (False, HookError.REFUSED, True)
    assert error in str(receipt.detail)


@pytest.mark.parametrize("upload_url", ["http://localhost:1/x", "https://evil.test/x", "file:///etc/passwd", "", "//"])
def test_a_picture_goes_to_no_other_host_than_that_of_the_api(upload_url: str) -> None:
    with slack_api(upload_url=upload_url or "none") as server:
        receipt = slack_app(server)
        assert len(server.seen) == 2
    assert receipt.ok
    assert receipt.detail == "without its picture: Slack names another host to upload to"


@pytest.mark.parametrize("answer", [b"ok", b"[]", b"", b"[" * 5_000, b'{"ok": 1}'])
def test_a_slack_app_believes_no_answer_but_one_of_the_api(answer: bytes) -> None:
    with peer(reply(answer)) as server:
        assert slack_app(server).error is HookError.REFUSED


def test_pagerduty_gets_the_routing_key_with_the_event_and_only_then() -> None:
    with pagerduty() as server:
        assert sent(HookKind.PAGERDUTY, server, "/v2/enqueue", secret=ROUTING_KEY).http_status == 202
        (seen,) = server.seen
    assert json.loads(seen.body)["routing_key"] == ROUTING_KEY
    hook = Hook(slug="ops", kind=HookKind.PAGERDUTY, secret=ROUTING_KEY)
    assert ROUTING_KEY.encode() not in message_for(hook).body


@pytest.mark.parametrize("path", ["", "/am/"])
def test_alertmanager_is_spoken_to_below_its_address(path: str) -> None:
    with peer(reply(b"{}")) as server:
        assert sent(HookKind.ALERTMANAGER, server, path).ok
        assert sent(HookKind.ALERTMANAGER, server, path, username="me", secret=PASSWORD).ok
        plain, proven = server.seen
    assert plain.target == f"{path.rstrip('/')}/api/v2/alerts"
    assert "authorization" not in plain.headers
    assert base64.b64decode(proven.headers["authorization"].removeprefix("Basic ")) == b"me:hunter2 pass"


@pytest.mark.parametrize("kind", [HookKind.SLACK, HookKind.PAGERDUTY, HookKind.ALERTMANAGER])
@pytest.mark.parametrize(
    ("status", "error", "untaken"),
    [
        (302, HookError.REDIRECT, True),
        (400, HookError.HTTP_4XX, True),
        (410, HookError.GONE, True),
        (429, HookError.HTTP_4XX, True),
        (500, HookError.HTTP_5XX, False),
    ],
)
def test_every_service_is_judged_by_its_status(kind: HookKind, status: int, error: HookError, untaken: bool) -> None:  # noqa: FBT001 - pytest passes parameters by name
    with peer(reply(b"no_service s3cret", status, {"retry-after": "7", "location": "http://x/"})) as server:
        receipt = sent(kind, server, "/s3cret", secret=ROUTING_KEY)
    assert (receipt.error, receipt.untaken, receipt.gone) == (error, untaken, status == 410)
    assert receipt.retry_after_seconds == 7.0
    assert not {"s3cret", ROUTING_KEY} & set(str(receipt).split())


PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>...</body></html>"


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (HookKind.SLACK, b'{"ok": false, "error": "channel_not_found"}', "channel_not_found"),
        (HookKind.SLACK, b'{"success": false}', "it says so without a reason"),
        (HookKind.SLACK, b"no_service", "it said \u201cno_service\u201d"),
        (HookKind.SLACK, b"channel_is_archived", "it said \u201cchannel_is_archived\u201d"),
        (HookKind.SLACK, b"Webhook message delivery failed with error: HTTP error 429", "HTTP error 429"),
        (HookKind.SLACK, b'{"result": "error", "msg": "Invalid API key"}', "Invalid API key"),
        (HookKind.SLACK, b'{"ok": false, "error": "no hook T0B0s3cret00"}', "no hook \u2022\u2022\u2022"),
        (HookKind.SLACK, PAGE, "a web page came back, such as one to sign in: \u201cSign in\u201d"),
        (HookKind.PAGERDUTY, b'{"status": "invalid event", "message": "Event object is invalid"}', "Event object is"),
        (HookKind.PAGERDUTY, b'{"errors": ["routing_key is unknown"]}', "routing_key is unknown"),
        (HookKind.PAGERDUTY, b'{"error": "key 0123456789abcdef0123456789abcdef"}', "key \u2022\u2022\u2022"),
        (HookKind.PAGERDUTY, PAGE, "Sign in"),
        (HookKind.ALERTMANAGER, b'{"status": "error", "errorType": "bad_data", "error": "no labels"}', "no labels"),
        (HookKind.ALERTMANAGER, PAGE, "Sign in"),
    ],
)
def test_an_error_within_a_200_is_not_delivered(kind: HookKind, body: bytes, words: str) -> None:
    with peer(reply(body)) as server:
        receipt = sent(kind, server, "/services/T0B0s3cret00", secret=ROUTING_KEY)
    assert (receipt.ok, receipt.error, receipt.untaken, receipt.http_status) == (False, HookError.REFUSED, True, 200)
    assert str(receipt.detail).startswith("answered 200, but did not take it: ")
    assert words in str(receipt.detail)
    assert ROUTING_KEY not in str(receipt)


@pytest.mark.parametrize("kind", [HookKind.SLACK, HookKind.PAGERDUTY, HookKind.ALERTMANAGER])
def test_a_2xx_without_an_error_is_delivered(kind: HookKind) -> None:
    bodies = (
        *(b"ok", b"OK\n", b"", b"1", b"sent", b"null", b"[]", b"{}", b"{not json", b"\xff"),
        *(b'{"ok": true}', b'{"success": true, "error": null}', b'{"ok": true, "error": "a warning"}'),
        *(b'{"status": "success", "message": "Event processed", "errors": []}', b'{"result": "success", "msg": ""}'),
        *(b'{"text": "the check has an error"}', b'{"id": 7, "content": "failed"}'),
    )
    left = iter(bodies)
    with peer(lambda _: reply(next(left))) as server:
        assert [body for body in bodies if not sent(kind, server, secret=ROUTING_KEY).ok] == []
        assert len(server.seen) == len(bodies)


@pytest.mark.parametrize(
    ("host", "body", "reason"),
    [
        ("hooks.slack.com", b"ok", None),
        ("hooks.slack.com", b'{"ok":true}', None),
        ("hooks.slack.com", b"something_new", "it said \u201csomething_new\u201d"),
        ("hooks.slack-gov.com", b"", "it said nothing"),
        ("slack.com.example.org", b"something_new", None),
    ],
)
def test_slack_itself_has_taken_what_it_says_ok_to(host: str, body: bytes, reason: str | None) -> None:
    assert refusal_of(f"https://{host}/services/T0/B0/x")(Response(status=200, body=body)) == reason


def test_a_webhook_has_taken_what_it_answers_2xx_to() -> None:
    bodies = (
        b'{"ok": false, "error": "not ours"}',
        b'{"errcode": 0, "errmsg": "ok"}',
        b'{"code": 0, "msg": "success"}',
        b'{"code": 404, "msg": "a status of HTTP"}',
        b'{"code": 20000, "msg": "success"}',
        b'{"code": 19002}',
        b"{" * 4000,
        b"<html><title>Webhook message delivery failed</title></html>",
    )
    left = iter(bodies)
    with peer(lambda _: reply(next(left))) as server:
        assert [body for body in bodies if not sent(HookKind.WEBHOOK, server).ok] == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 400", "error 400"),
        (b'{"errcode": 300001, "errmsg": "msgtype  is null"}', "errcode 300001: \u201cmsgtype is null\u201d"),
        (b'{"code": 19002, "msg": "params error, msg_type need", "data": {}}', "code 19002: \u201cparams error"),
    ],
)
def test_a_webhook_of_a_chat_service_that_wants_another_form_is_not_delivered(body: bytes, words: str) -> None:
    with peer(reply(body)) as server:
        receipt = sent(HookKind.WEBHOOK, server)
    assert (receipt.ok, receipt.error, receipt.untaken, receipt.http_status) == (False, HookError.REFUSED, True, 200)
    assert words in str(receipt.detail)


@pytest.mark.parametrize("kind", [kind for kind in HookKind if kind is not HookKind.EMAIL])
def test_no_kind_reaches_an_address_that_is_not_allowed(kind: HookKind) -> None:
    with peer(reply()) as server:
        url = f"json://127.0.0.1:{server.port}" if kind is HookKind.APPRISE else server.url
        hook = Hook(slug="ops", kind=kind, url=url, timeout_seconds=5.0)
        receipt = Sender(policy=hook_policy())(hook, message_for(hook), NOW)
        assert server.connections == 0
    assert (receipt.error, receipt.untaken) == (HookError.BLOCKED, True)
    assert str(receipt.detail).startswith("not allowed to connect: loopback address 127.0.0.1. ")
    assert "COALMINE_HOOK_ALLOW" in str(receipt.detail)


# --- email ---------------------------------------------------------------------------------------------------


@pytest.fixture
def authority() -> Authority:
    """Give somebody who vouches for `localhost`."""
    return Authority()


@pytest.fixture
def certified(authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    """Give the context of a server that is vouched for."""
    return serving(tmp_path, authority.issue("localhost"))


def email(port: int, tls: MailTls = MailTls.NONE, **changes: Any) -> Hook:
    """Make a hook that mails to a server of this machine."""
    mail = Mail(host="localhost", port=port, tls=tls, sender="canary@example.org", recipients=("a@x.test", "b@x.test"))
    return replace(Hook(slug="ops", kind=HookKind.EMAIL, mail=mail, timeout_seconds=5.0), **changes)


def mail(hook: Hook, authority: Authority | None = None, message: Message | None = None) -> Receipt:
    """Send a notice, trusting an authority."""
    trust = ssl.create_default_context(cadata=authority.certificate) if authority is not None else None
    return send_mail(hook, message or message_for(hook), NOW, policy=LOOPBACK, context=trust)


def test_an_email_goes_through_starttls_with_user_and_password(authority: Authority, certified: ssl.SSLContext) -> None:
    with mail_server(tls=certified, auth=True) as server:
        receipt = mail(email(server.port, MailTls.STARTTLS, username="coalmine", secret=PASSWORD), authority)
    assert receipt.ok, receipt
    (mailed,) = server.mailed
    assert (mailed.tls, mailed.user) == (True, "coalmine")
    assert (mailed.sender, mailed.recipients) == ("canary@example.org", ["a@x.test", "b@x.test"])
    assert mailed.message["To"] == "a@x.test, b@x.test"
    assert mailed.raw == message_for(email(1)).body
    assert receipt.latency_seconds > 0


def test_an_email_goes_to_a_server_that_the_authority_of_the_hook_vouches_for(
    authority: Authority, certified: ssl.SSLContext
) -> None:
    with mail_server(tls=certified) as server:
        hook = email(server.port, MailTls.STARTTLS)
        assert (mail(hook).error, server.mailed) == (HookError.TLS, [])
        assert mail(replace(hook, authority=authority.certificate)).ok
        assert len(server.mailed) == 1
        broken = mail(replace(hook, authority="-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"))
        assert (broken.error, broken.untaken) == (HookError.CONFIGURATION, True)


def test_an_email_goes_through_implicit_tls(authority: Authority, certified: ssl.SSLContext) -> None:
    with mail_server(tls=certified, implicit=True) as server:
        receipt = mail(email(server.port, MailTls.IMPLICIT), authority)
    assert receipt.ok, receipt
    assert server.mailed[0].raw == message_for(email(1)).body


def test_an_email_goes_in_the_clear_where_that_is_said() -> None:
    with mail_server() as server:
        hook = email(server.port)
        assert send(hook, message_for(hook), NOW).ok
    assert not server.mailed[0].tls


@pytest.mark.parametrize("tls", [MailTls.STARTTLS, MailTls.IMPLICIT])
def test_a_certificate_nobody_vouches_for_gets_no_password(certified: ssl.SSLContext, tls: MailTls) -> None:
    with mail_server(tls=certified, implicit=tls is MailTls.IMPLICIT) as server:
        receipt = mail(email(server.port, tls, username="coalmine", secret=PASSWORD), Authority())
    assert (receipt.error, receipt.untaken, server.mailed) == (HookError.TLS, True, [])
    assert "certificate is not trusted" in str(receipt.detail)


def test_a_server_without_starttls_gets_nothing(authority: Authority) -> None:
    with mail_server() as server:
        receipt = mail(email(server.port, MailTls.STARTTLS, username="coalmine", secret=PASSWORD), authority)
    assert (receipt.error, receipt.untaken, server.mailed) == (HookError.TLS, True, [])


def test_a_wrong_password_is_not_quoted(authority: Authority, certified: ssl.SSLContext) -> None:
    with mail_server(tls=certified, auth=True) as server:
        receipt = mail(email(server.port, MailTls.STARTTLS, username="coalmine", secret="wr0ng"), authority)
    assert (receipt.error, receipt.untaken) == (HookError.SMTP_5XX, True)
    assert receipt.detail == "the mail server answered 535 to the user name and password"


@pytest.mark.parametrize(
    ("replies", "error", "untaken", "detail"),
    [
        ({"MAIL": "451 later"}, HookError.SMTP_4XX, True, "451 to the sender"),
        ({"MAIL": "553 s3cret"}, HookError.SMTP_5XX, True, "553 to the sender"),
        ({"RCPT": "450 greylisted"}, HookError.SMTP_4XX, True, "450 to every recipient"),
        ({"RCPT": "550 nobody"}, HookError.SMTP_5XX, True, "550 to every recipient"),
        ({"RCPT a@x.test": "550 no", "RCPT b@x.test": "450 wait"}, HookError.SMTP_4XX, True, "450 to every"),
        ({"DATA": "452 full"}, HookError.SMTP_4XX, True, "452 to the message"),
        ({"DATA": "554 spam"}, HookError.SMTP_5XX, True, "554 to the message"),
    ],
)
def test_a_refused_mail_was_not_taken(
    replies: dict[str, str],
    error: HookError,
    untaken: bool,  # noqa: FBT001 - pytest passes parameters by name
    detail: str,
) -> None:
    with mail_server(replies) as server:
        receipt = mail(email(server.port))
    assert (receipt.ok, receipt.error, receipt.untaken) == (False, error, untaken)
    assert detail in str(receipt.detail)
    assert (receipt.http_status, server.mailed) == (None, [])
    assert "s3cret" not in str(receipt)


@pytest.mark.parametrize("code", [450, 550])
def test_a_message_some_recipients_got_is_sent_to_the_others_alone(code: int) -> None:
    with mail_server({"RCPT b@x.test": f"{code} not now"}) as server:
        receipt = mail(email(server.port))
    assert (receipt.ok, receipt.untaken, receipt.taken_by) == (False, False, ("a@x.test",))
    assert receipt.detail == f"taken for a@x.test; the mail server answered {code} to b@x.test"
    assert server.mailed[0].recipients == ["a@x.test"]
    with mail_server({}) as server:
        message = replace(message_for(email(server.port)), taken_by=frozenset(receipt.taken_by))
        again = mail(email(server.port), message=message)
    assert (again.ok, again.taken_by) == (True, ("b@x.test",))
    assert [one.recipients for one in server.mailed] == [["b@x.test"]]


def _silent(_socket: Any, over: threading.Event) -> None:
    over.wait(30)


def _dripping(socket: Any, over: threading.Event) -> None:
    while not over.wait(0.02):
        socket.sendall(b"220-still here\r\n")


def _endless(socket: Any, over: threading.Event) -> None:
    while not over.is_set():
        socket.sendall(b"220-" + b"x" * 4_000 + b"\r\n")


def _rude(socket: Any, _over: threading.Event) -> None:
    socket.sendall(b"220 hello\r\n")


def _foreign(socket: Any, _over: threading.Event) -> None:
    socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _shut(socket: Any, _over: threading.Event) -> None:
    socket.sendall(b"421 come back later\r\n")


def _garbling(socket: Any, _over: threading.Event) -> None:
    socket.sendall(bytes(range(256)) + b"\r\n" + b"\xff" * 20_000)


@pytest.mark.parametrize(
    ("talk", "error"),
    [
        (_silent, HookError.TIMEOUT),
        (_dripping, HookError.TIMEOUT),
        (_endless, HookError.UNREACHABLE),
        (_rude, HookError.UNREACHABLE),
        (_foreign, HookError.UNREACHABLE),
        (_shut, HookError.SMTP_4XX),
        (_garbling, HookError.UNREACHABLE),
    ],
)
@pytest.mark.parametrize("tls", [MailTls.NONE, MailTls.STARTTLS])
def test_a_mail_server_that_misbehaves_is_tried_again(
    talk: Callable[[Any, threading.Event], None], error: HookError, tls: MailTls
) -> None:
    with talking(talk) as port:
        receipt = mail(email(port, tls, timeout_seconds=0.3 if error is HookError.TIMEOUT else 5.0))
    assert (receipt.ok, receipt.error) == (False, error)


def test_a_server_that_never_shakes_hands_times_out(authority: Authority) -> None:
    with talking(_silent) as port:
        receipt = mail(email(port, MailTls.IMPLICIT, timeout_seconds=0.2), authority)
    assert (receipt.error, receipt.untaken) == (HookError.TIMEOUT, False)


@pytest.mark.parametrize(
    ("number", "tls", "word"),
    [(465, MailTls.STARTTLS, "set tls: implicit"), (587, MailTls.IMPLICIT, "set tls: starttls")],
)
def test_a_port_that_does_not_fit_the_encryption_is_named_when_it_fails(number: int, tls: MailTls, word: str) -> None:
    hook = email(number, tls)
    if hook.mail is not None:  # of loopback addresses nothing else is likely to have the port
        hook = replace(hook, mail=replace(hook.mail, host="127.0.0.99"))
    receipt = send_mail(hook, message_for(hook), NOW, policy=hook_policy(parse_allow("127.0.0.0/8")))
    assert receipt.error == HookError.UNREACHABLE
    assert word in str(receipt.detail)


def test_no_email_goes_to_an_address_that_is_not_allowed() -> None:
    with mail_server() as server:
        hook = email(server.port)
        receipt = send_mail(hook, message_for(hook), NOW, policy=hook_policy())
    assert (receipt.error, receipt.untaken, server.mailed) == (HookError.BLOCKED, True, [])
    assert str(receipt.detail).startswith("not allowed to connect: loopback address")


def test_a_mail_server_that_is_not_there_is_unreachable() -> None:
    with closed_port() as port:
        assert mail(email(port)).error == HookError.UNREACHABLE


# --- apprise -------------------------------------------------------------------------------------------------


def apprise(url: str, **changes: Any) -> Receipt:
    """Send a notice to a URL of Apprise."""
    hook = Hook(slug="ops", kind=HookKind.APPRISE, url=url, timeout_seconds=20.0)
    return send_apprise(hook, message_for(hook), NOW, **{"policy": LOOPBACK, **changes})


def test_apprise_delivers_what_it_is_given() -> None:
    with peer(reply(b"{}")) as server:
        receipt = apprise(f"json://user:s3cret@127.0.0.1:{server.port}/in")
        (seen,) = server.seen
    assert receipt.ok, receipt
    body = json.loads(seen.body)
    assert (body["title"], body["type"]) == (notice()["data"]["summary"], "failure")
    assert "How long do we keep data?" in body["message"]
    assert seen.target == "/in"


def test_apprise_says_of_a_failure_that_there_was_one_and_nothing_else() -> None:
    with peer(reply(b"s3cret", 500)) as server:
        receipt = apprise(f"json://user:s3cret@127.0.0.1:{server.port}/in")
    assert (receipt.ok, receipt.error, receipt.untaken) == (False, HookError.REFUSED, False)
    assert "s3cret" not in str(receipt)


def test_apprise_is_kept_from_other_addresses_wherever_it_is_led() -> None:
    with peer(reply(status=302, headers={"location": "http://127.0.0.2:1/"})) as server:
        receipt = apprise(f"json://127.0.0.1:{server.port}/in")
        assert server.connections == 1
    assert (receipt.error, receipt.detail) == (HookError.BLOCKED, "not allowed to connect: loopback address 127.0.0.2")


def _looked(guard: Guard, event: str, *arguments: Any) -> str | None:
    try:
        guard(event, arguments)
    except PermissionError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("event", "arguments", "reason"),
    [
        ("socket.connect", (None, ("10.0.0.1", 80)), "not allowed to connect: private address 10.0.0.1"),
        ("socket.connect", (None, ("::1", 80, 0, 0)), "not allowed to connect: loopback address ::1"),
        ("socket.connect", (None, ("169.254.169.254", 80)), "not allowed to connect: cloud metadata address"),
        ("socket.connect", (None, ("example.org", 80)), "not allowed to connect: not an internet address"),
        ("socket.connect", (None, "/run/docker.sock"), "not allowed to connect: a service of this machine"),
        ("socket.connect", (None, b"\0abstract"), "not allowed to connect: a service of this machine"),
        ("socket.sendto", (None, ("192.168.0.1", 53)), "not allowed to connect: private address 192.168.0.1"),
        ("socket.sendmsg", (None, ("fe80::1%eth0", 53, 0, 2)), "not allowed to connect: link-local address"),
        ("subprocess.Popen", ("sh", [], None, None), "not allowed to start a program"),
        ("os.system", (b"true",), "not allowed to start a program"),
        ("os.posix_spawn", ("sh", [], {}), "not allowed to start a program"),
        ("socket.connect", (None, ("93.184.215.14", 443)), None),
        ("socket.sendmsg", (None, None), None),
        ("open", ("/etc/ssl/cert.pem", "r", 0), None),
    ],
)
def test_whatever_a_library_does_is_seen_by_the_guard(event: str, arguments: Any, reason: str | None) -> None:
    said = _looked(Guard(hook_policy()), event, *arguments)
    assert said is None if reason is None else said is not None and said.startswith(reason)


def test_a_name_that_is_allowed_may_lead_to_where_others_may_not() -> None:
    guard = Guard(hook_policy(parse_allow("localhost")))
    assert _looked(guard, "socket.connect", None, ("127.0.0.1", 80)) is not None  # nobody asked for the name
    _looked(guard, "socket.getaddrinfo", "LOCALHOST.", 80, 0, 0, 0)
    assert _looked(guard, "socket.connect", None, ("127.0.0.1", 80)) is None
    assert _looked(guard, "socket.connect", None, ("127.0.0.2", 80)) is not None


def test_apprise_stays_off_this_machine() -> None:
    receipt = apprise("Syslog://")
    assert (receipt.error, receipt.detail) == (HookError.BLOCKED, "not allowed to connect: a service of this machine")


def test_a_url_apprise_does_not_know_is_told_apart() -> None:
    receipt = apprise("pigeon://s3cret/")
    assert (receipt.error, receipt.untaken) == (HookError.CONFIGURATION, True)
    assert "s3cret" not in str(receipt)


def test_without_the_extra_it_is_said_how_to_get_it() -> None:
    receipt = apprise("json://127.0.0.1:1/", package="no_such_package")
    assert receipt.error == HookError.CONFIGURATION
    assert "pip install 'coalmine[apprise]'" in str(receipt.detail)
