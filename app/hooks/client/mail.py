"""Email over SMTP: every connection is judged by its resolved address, and the whole exchange has one deadline."""

import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from io import RawIOBase
from typing import Any

from app.base.addresses import AddressPolicy
from app.base.values import replace
from app.hooks.domain import Hook, HookError, Mail, MailTls, Message, Receipt, mail_port_hint

READ_BYTES = 200_000
"""Bytes a mail server may send in one exchange."""


def send_mail(
    hook: Hook,
    message: Message,
    now: datetime,  # noqa: ARG001 - of `Send`; a message carries its own date
    *,
    policy: AddressPolicy,
    context: ssl.SSLContext | None = None,
) -> Receipt:
    """Attempt once; see `Send`. `context` has the trusted authorities, by default that of the hook or this machine's.

    A message counts as delivered once the server accepted it for every recipient, even if the session then fails.
    Those it was taken for are in `taken_by` and are not sent it again. A server without STARTTLS gets nothing where it
    is required.
    """
    mail = hook.mail
    assert mail is not None  # noqa: S101 - of a hook of this kind
    started = time.monotonic()
    try:
        trust = context if context is not None else ssl.create_default_context(cadata=hook.authority)
    except ssl.SSLError:
        detail = "the certificate of the authority cannot be read as PEM; nothing was sent"
        return Receipt(ok=False, error=HookError.CONFIGURATION, detail=detail, untaken=True)
    session = _Session(hook, mail, policy, trust)
    try:
        recipients = [one for one in mail.recipients if one not in message.taken_by]
        refused = session.deliver(recipients, message.body)
        receipt = _taken([one for one in recipients if one not in refused], refused)
    except (smtplib.SMTPException, OSError, _BlockedError) as error:
        receipt = _judged(error, late=session.late)
        hint = mail_port_hint(mail.port, mail.tls) if receipt.error in _PORT_ERRORS else None
        receipt = receipt if hint is None else replace(receipt, detail=f"{receipt.detail}; {hint}")
    finally:
        session.end()
    return replace(receipt, latency_seconds=time.monotonic() - started)


class _BlockedError(Exception):
    """No address of the server may be contacted."""


class _Session(smtplib.SMTP):
    """One exchange with a mail server, over a connection to an address that was judged."""

    def __init__(self, hook: Hook, mail: Mail, policy: AddressPolicy, trust: ssl.SSLContext) -> None:
        seconds = hook.timeout_seconds
        self._hook = hook
        self._policy = policy
        self._trust = trust
        self._mail = mail
        self._plain: socket.socket | None = None
        self._read = 0
        self._deadline = time.monotonic() + seconds
        self._alarm = threading.Timer(seconds, self._give_up)
        self._alarm.daemon = True
        # The name we greet with is our address; looking a name up for it could take for ever.
        super().__init__(local_hostname="[127.0.0.1]", timeout=seconds)

    def deliver(self, recipients: Sequence[str], body: bytes) -> Mapping[str, tuple[int, bytes]]:
        """Send a message; returns the recipients that were refused while others were not."""
        if not recipients:  # the others were taken off the hook since
            return {}
        self._alarm.start()
        mail, hook = self._mail, self._hook
        self._host = mail.host  # what STARTTLS holds the certificate against
        code, reply = self.connect(mail.host, mail.port)
        if code != _READY:
            raise smtplib.SMTPConnectError(code, reply)
        if mail.tls is MailTls.STARTTLS:
            self.starttls(context=self._trust)
        if hook.username is not None and hook.secret is not None:
            self.login(hook.username, hook.secret)
        refused = self.sendmail(mail.sender, recipients, body)
        with suppress(smtplib.SMTPException, OSError):
            self.quit()
        return refused

    @property
    def late(self) -> bool:
        """Whether the time is up, however that showed."""
        return time.monotonic() >= self._deadline

    def end(self) -> None:
        """Close the connection."""
        self._alarm.cancel()
        self.close()

    def connect(
        self,
        host: str = "localhost",
        port: int = 0,
        source_address: Any = None,  # noqa: ARG002 - of the class above
    ) -> tuple[int, bytes]:
        """Open the connection, encrypted from the first byte where that is asked, and read the greeting."""
        opened = self._opened(host, port)
        self._plain = opened
        face = opened.getsockname()[0]
        self.local_hostname = f"[IPv6:{face}]" if ":" in face else f"[{face}]"
        if self._mail.tls is MailTls.IMPLICIT:
            opened = self._trust.wrap_socket(opened, server_hostname=host)
        self.sock, self.file = opened, None
        return self.getreply()

    def getreply(self) -> tuple[int, bytes]:
        """Read a reply, within the limit of bytes."""
        if self.file is None:
            assert self.sock is not None  # noqa: S101 - connected
            self.file = _Capped(self.sock.makefile("rb"), self)
        return super().getreply()

    def count(self, size: int) -> None:
        """Count the bytes read; raises beyond the limit."""
        self._read += size
        if self._read > READ_BYTES:
            raise smtplib.SMTPServerDisconnected("the server talks without end")

    def _opened(self, host: str, port: int) -> socket.socket:
        refusal: str | None = None
        trouble: OSError | None = None
        for family, kind, protocol, _name, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            why = self._policy.check(str(address[0]), host)
            if why is not None:
                refusal = why
                continue
            one = socket.socket(family, kind, protocol)
            try:
                one.settimeout(max(self._deadline - time.monotonic(), 0.001))
                one.connect(address)
            except OSError as error:
                one.close()
                trouble = error
            else:
                return one
        if trouble is not None:  # of several addresses a permitted one decides
            raise trouble
        raise _BlockedError(refusal or "the name has no address")

    def _give_up(self) -> None:
        for one in (self.sock, self._plain):  # the one under TLS takes the place of the plain one
            if one is not None:
                with suppress(OSError):
                    socket.socket.shutdown(one, socket.SHUT_RDWR)  # not TLS's own, which is not for other threads


class _Capped(RawIOBase):
    """The lines of a server, counted."""

    def __init__(self, lines: Any, session: _Session) -> None:
        super().__init__()
        self._lines = lines
        self._session = session

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line of at most `size` bytes."""
        line: bytes = self._lines.readline(size)
        self._session.count(len(line))
        return line

    def close(self) -> None:
        """Close what is read from."""
        self._lines.close()
        super().close()


def _judged(error: Exception, *, late: bool) -> Receipt:
    """Receipt of a failure. Only the reply code of a server is quoted."""
    if isinstance(error, _BlockedError):
        return Receipt(ok=False, error=HookError.BLOCKED, detail=f"not allowed to connect: {error}", untaken=True)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
        return _by_code(min(codes), "every recipient")  # one that may be taken later is worth trying again
    if isinstance(error, smtplib.SMTPResponseException):
        return _by_code(error.smtp_code, _STEPS.get(type(error), "the message"))
    matches = ((word, detail) for kind, word, detail in _TROUBLES if isinstance(error, kind))
    word, detail = next(matches, (HookError.UNREACHABLE, "the exchange with the mail server broke off"))
    if late:
        word, detail = HookError.TIMEOUT, _SLOW
    unsent = word is HookError.TLS or isinstance(error, socket.gaierror | ConnectionRefusedError)
    return Receipt(ok=False, error=word, detail=detail, untaken=unsent)


def _by_code(code: int, what: str) -> Receipt:
    """Judge a reply code (RFC 5321, 4.2.1): 4yz is for now, 5yz for good; people repair mail servers all the same."""
    if not _TRANSIENT <= code < _BEYOND:
        return Receipt(ok=False, error=HookError.UNREACHABLE, detail="what answered is no mail server")
    error = HookError.SMTP_5XX if code >= _PERMANENT else HookError.SMTP_4XX
    return Receipt(ok=False, error=error, detail=f"the mail server answered {code} to {what}", untaken=True)


def _taken(taken: Sequence[str], refused: Mapping[str, tuple[int, bytes]]) -> Receipt:
    """Receipt of a message that the server took for some recipients, or all."""
    if not refused:
        return Receipt(ok=True, taken_by=tuple(taken))
    worst = _by_code(min(code for code, _ in refused.values()), "")
    answers = ", ".join(f"{code} to {one}" for one, (code, _) in refused.items())
    detail = f"taken for {', '.join(taken)}; the mail server answered {answers}"
    return Receipt(ok=False, error=worst.error, detail=detail, taken_by=tuple(taken))


_PORT_ERRORS = (HookError.TIMEOUT, HookError.TLS, HookError.UNREACHABLE)
_SLOW = "the mail server did not answer in time"
_TROUBLES: tuple[tuple[type[Exception], HookError, str], ...] = (
    (TimeoutError, HookError.TIMEOUT, _SLOW),
    (
        smtplib.SMTPNotSupportedError,
        HookError.TLS,
        "the mail server offers no STARTTLS or no AUTH; nothing was sent, see `tls` of the hook",
    ),
    (
        ssl.SSLCertVerificationError,
        HookError.TLS,
        "no safe connection to the mail server: its certificate is not trusted",
    ),
    (ssl.SSLError, HookError.TLS, "no safe connection to the mail server: TLS failed"),
    (socket.gaierror, HookError.UNREACHABLE, "the name of the mail server was not found"),
    (ConnectionRefusedError, HookError.UNREACHABLE, "the mail server refused the connection"),
)
_READY, _TRANSIENT, _PERMANENT, _BEYOND = 220, 400, 500, 600
_STEPS: Mapping[type[Exception], str] = {
    smtplib.SMTPConnectError: "the connection",
    smtplib.SMTPHeloError: "the greeting",
    smtplib.SMTPAuthenticationError: "the user name and password",
    smtplib.SMTPSenderRefused: "the sender",
    smtplib.SMTPDataError: "the message",
}
