"""Strict receivers of news: they take what the vendors' references allow, and decline all else with the reason."""

import json
import re
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any
from urllib.parse import parse_qs

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.support.http_servers import Peer, Reply, Seen, peer, reply
from tests.support.processes import free_ports
from tests.support.tcp_servers import listening

BOT_TOKEN = "xoxb-1234-s3cret-t0ken"
ROUTING_KEY = "0123456789abcdef0123456789abcdef"
_ENTITY = re.compile(r"&(amp|lt|gt);")
_LINK = re.compile(r"<https?://[^<>|\s]+\|(?:[^<>|&]|&(?:amp|lt|gt);)+>")
_DATE = re.compile(r"<!date\^\d{1,12}\^\{date_short_pretty\} \{time\}\|[^<>|&]+>")


def slack_problem(body: bytes) -> str | None:
    """Say why Slack would decline a message, or show other than was meant; None = it is fine.

    Payload: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    Blocks: https://docs.slack.dev/reference/block-kit/blocks (header, section, actions, context)
    Texts: https://docs.slack.dev/reference/block-kit/composition-objects/text-object
    Escaping: https://docs.slack.dev/messaging/formatting-message-text
    """
    try:
        message = json.loads(body)
        message = message.get("message", message)  # of a Slack app
        _expect(set(message) <= {"text", "mrkdwn", "unfurl_links", "unfurl_media", "blocks"}, "unknown field")
        _expect(message["mrkdwn"] is False, "the fallback text is marked up")
        _slack_text(message["text"], 40_000)
        _expect(1 <= len(message["blocks"]) <= 50, "1 to 50 blocks")
        _expect(len(json.dumps(message["blocks"], ensure_ascii=False)) < 13_000, "msg_blocks_too_long")
        for block in message["blocks"]:
            _slack_block(block)
    except (_UnfitError, KeyError, TypeError, ValueError) as error:
        return repr(error)
    return None


def _slack_block(block: Mapping[str, Any]) -> None:
    match block["type"]:
        case "header":
            _expect(set(block) == {"type", "text"}, "fields of a header")
            _expect(block["text"]["type"] == "plain_text", "a header is plain text")
            _slack_object(block["text"], 150)
        case "section":
            _expect(set(block) in ({"type", "text"}, {"type", "fields"}), "fields of a section")
            if "text" in block:
                _slack_object(block["text"], 3_000)
            else:
                _expect(1 <= len(block["fields"]) <= 10, "1 to 10 fields")
                for one in block["fields"]:
                    _slack_object(one, 2_000)
        case "actions":
            _expect(set(block) == {"type", "elements"}, "fields of actions")
            _expect(1 <= len(block["elements"]) <= 25, "1 to 25 elements")
            for one in block["elements"]:
                _expect(set(one) == {"type", "text", "url"} and one["type"] == "button", "a button with an address")
                _expect(one["text"]["type"] == "plain_text", "the text of a button is plain")
                _slack_object(one["text"], 75)
                _expect(re.fullmatch(r"https?://\S{1,2990}", one["url"]) is not None, "address of a button")
        case "context":
            _expect(set(block) == {"type", "elements"}, "fields of a context")
            _expect(1 <= len(block["elements"]) <= 10, "1 to 10 elements")
            for one in block["elements"]:
                _slack_object(one, 3_000)
        case other:
            raise _UnfitError(f"block {other}")


def _slack_object(text: Mapping[str, Any], limit: int) -> None:
    if text["type"] == "plain_text":
        _expect(set(text) <= {"type", "text", "emoji"}, "fields of a plain text")
        _slack_text(text["text"], limit)
    else:
        _expect(text["type"] == "mrkdwn", "type of a text")
        _expect(set(text) <= {"type", "text", "verbatim"}, "fields of a marked-up text")
        _expect(text.get("verbatim") is True, "names in it would become mentions")
        _expect(1 <= len(text["text"]) <= limit, f"1 to {limit} characters")
        _slack_text(_DATE.sub("date", _LINK.sub("link", text["text"])), limit)


def _slack_text(text: str, limit: int) -> None:
    _expect(1 <= len(text) <= limit, f"1 to {limit} characters, not {len(text)}")
    _expect(not re.search(r"[<>]", text), "an unescaped < or >")
    _expect("&" not in _ENTITY.sub("", text), "an unescaped &")


def pagerduty_problem(body: bytes) -> str | None:
    """Say why PagerDuty would decline an event; None = it is fine.

    https://developer.pagerduty.com/docs/send-alert-event and the OpenAPI description of Events API v2
    (https://github.com/PagerDuty/api-schema, reference/events-v2).
    """
    try:
        _expect(len(body) <= 512 * 1024, "at most 512 KB")
        event = json.loads(body)
        known = {"routing_key", "event_action", "dedup_key", "payload", "client", "client_url", "links", "images"}
        _expect(set(event) <= known, "unknown field")
        _expect(re.fullmatch(r"[0-9a-zA-Z]{32}", event["routing_key"]) is not None, "Length of 'routing_key'")
        _expect(event["event_action"] in ("trigger", "acknowledge", "resolve"), "event_action")
        _expect(1 <= len(event["dedup_key"]) <= 255, "dedup_key")
        if event["event_action"] == "trigger":
            _pagerduty_payload(event["payload"])
            for link in event.get("links", []):
                _expect(set(link) <= {"href", "text"} and link["href"].startswith("http"), "links")
    except (_UnfitError, KeyError, TypeError, ValueError) as error:
        return repr(error)
    return None


def _pagerduty_payload(payload: Mapping[str, Any]) -> None:
    known = {"summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"}
    _expect(set(payload) <= known, "unknown field in payload")
    _expect(1 <= len(payload["summary"]) <= 1024, "summary")
    _expect(bool(payload["source"]), "source")
    _expect(payload["severity"] in ("critical", "error", "warning", "info"), "severity")
    datetime.fromisoformat(payload["timestamp"])
    _expect(isinstance(payload["custom_details"], dict), "custom_details")
    _expect(all(isinstance(payload.get(name, ""), str) for name in ("component", "group", "class")), "a text")


class _UnfitError(Exception):
    """A vendor would not take it."""


def _expect(fits: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not fits:
        raise _UnfitError(what)


@contextmanager
def slack() -> Iterator[Peer]:
    """Serve an incoming webhook of Slack."""
    with _strict(slack_problem, reply(b"ok")) as server:
        yield server


@contextmanager
def slack_api(refusals: Mapping[str, str] | None = None, upload_url: str = "") -> Iterator[Peer]:
    """Serve the methods of Slack's API that a message with a picture needs; `refusals`: the error of a method.

    Methods: https://docs.slack.dev/reference/methods. `upload_url` is where a picture is to go in place of here.
    """
    declined: list[str] = []
    place = {"url": upload_url}

    def post_message(seen: Seen) -> dict[str, object]:
        message = json.loads(seen.body)
        channel, wrong = message.pop("channel"), slack_problem(json.dumps(message).encode())
        declined.extend([wrong] if wrong else [])
        return {"ok": wrong is None, "channel": channel, "ts": "1503435956.000247", "error": "invalid_blocks"}

    def offer_upload(seen: Seen) -> dict[str, object]:
        form = parse_qs(seen.body.decode())
        fits = set(form) == {"filename", "length"} and int(form["length"][0]) > 0
        return {"ok": fits, "upload_url": place["url"], "file_id": "F123ABC456", "error": "invalid_arguments"}

    def complete_upload(seen: Seen) -> dict[str, object]:
        done = json.loads(seen.body)
        fits = set(done) == {"files", "channel_id", "thread_ts"} and done["files"][0]["id"] == "F123ABC456"
        return {"ok": fits, "error": "invalid_arguments"}

    methods: Mapping[str, Callable[[Seen], dict[str, object]]] = {
        "chat.postMessage": post_message,
        "files.getUploadURLExternal": offer_upload,
        "files.completeUploadExternal": complete_upload,
    }

    def answer(seen: Seen) -> Reply:
        method = seen.target.rpartition("/")[2]
        if method == "picture":
            return reply(f"OK - {len(seen.body)}".encode())
        said: dict[str, object]
        if seen.headers.get("authorization") != f"Bearer {BOT_TOKEN}":
            said = {"ok": False, "error": "invalid_auth"}
        elif method in (refusals or {}):
            said = {"ok": False, "error": (refusals or {})[method]}
        else:
            said = methods[method](seen)
        return reply(json.dumps(said).encode())

    with peer(answer) as server:
        place["url"] = upload_url or f"{server.url}/upload/v1/picture"
        yield server
    assert declined == []


@contextmanager
def pagerduty() -> Iterator[Peer]:
    """Serve the Events API v2 of PagerDuty."""
    with _strict(pagerduty_problem, reply(b'{"status":"success","message":"Event processed"}', 202)) as server:
        yield server


@contextmanager
def _strict(problem: Callable[[bytes], str | None], taken: Reply) -> Iterator[Peer]:
    declined: list[str] = []

    def answer(seen: Seen) -> Reply:
        wrong = problem(seen.body)
        if seen.headers.get("content-type") != "application/json":
            wrong = "the content type is not application/json"
        if wrong is None:
            return taken
        declined.append(wrong)
        return reply(wrong.encode(), 400)

    with peer(answer) as server:
        yield server
    assert declined == []


@contextmanager
def talking(talk: Callable[[Any, threading.Event], None]) -> Iterator[int]:
    """Run a server that talks as told, byte by byte, to whoever connects; gives its port."""
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                talk(self.request, over)
            except OSError:
                return

    with listening(Handler, over) as port:
        yield port


@dataclass(frozen=True, kw_only=True)
class Mailed:
    """A message as a mail server took it."""

    sender: str
    recipients: Sequence[str]
    raw: bytes
    tls: bool
    user: str | None

    @property
    def message(self) -> EmailMessage:
        """Give the message, read."""
        message = message_from_bytes(self.raw, policy=default)
        assert isinstance(message, EmailMessage)
        return message


@dataclass(kw_only=True)
class MailServer:
    """A real mail server; `replies` says what it answers to a command instead of taking it."""

    port: int
    replies: Mapping[str, str] = field(default_factory=dict)
    mailed: list[Mailed] = field(default_factory=list)
    user: tuple[str, str] = ("coalmine", "hunter2 pass")

    async def handle_MAIL(  # noqa: N802, D102 - aiosmtpd's name and arguments
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if "MAIL" in self.replies:
            return self.replies["MAIL"]
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(  # noqa: N802, D102 - as above
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        refusal = self.replies.get(f"RCPT {address}") or self.replies.get("RCPT")
        if refusal is not None:
            return refusal
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802, D102 - as above
        if "DATA" in self.replies:
            return self.replies["DATA"]
        assert isinstance(envelope.content, bytes)
        self.mailed.append(
            Mailed(
                sender=str(envelope.mail_from),
                recipients=list(envelope.rcpt_tos),
                raw=envelope.content,
                tls=session.ssl is not None,
                user=str(session.auth_data) if session.authenticated else None,
            )
        )
        return "250 taken"

    def authenticate(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any
    ) -> AuthResult:
        """Look at user and password."""
        fits = isinstance(data, LoginPassword) and (data.login.decode(), data.password.decode()) == self.user
        return AuthResult(success=fits, handled=False, auth_data=self.user[0])


@contextmanager
def mail_server(
    replies: Mapping[str, str] | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    implicit: bool = False,
    auth: bool = False,
) -> Iterator[MailServer]:
    """Run a mail server on a free port, with STARTTLS or implicit TLS where a context is given."""
    server = MailServer(port=free_ports(), replies=replies or {})
    starttls: dict[str, Any] = (
        {"tls_context": tls, "require_starttls": True} if tls is not None and not implicit else {}
    )
    controller = Controller(
        server,
        hostname="127.0.0.1",
        port=server.port,
        ssl_context=tls if implicit else None,
        authenticator=server.authenticate,
        auth_required=auth,
        **starttls,
    )
    controller.start()
    try:
        yield server
    finally:
        controller.stop()
