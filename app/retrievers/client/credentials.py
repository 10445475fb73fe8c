"""Endpoints that need credentials: headers and secrets of requests, OAuth2 tokens fetched, and calls with both.

Retrievers ask many at a time and take the credentials alone; embedders, scorers, judges and answerers use
`EndpointClient`, which adds limits, attempts and what a failure means. Below: what a server says of its failure, and
what of it may be shown, without any form of a secret.
"""

import codecs
import json
import math
import re
import threading
import time
import unicodedata
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field, replace
from hashlib import blake2b
from html import escape, unescape
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, quote_plus, urlencode, urlsplit

import msgspec

from app.base.addresses import AddressPolicy, ApiKey, Auth, Basic, Bearer, Endpoint, OAuth2, SigV4, Tls
from app.base.errors import InvalidInputError, Problem
from app.base.limits import Limits, Peer
from app.base.net.transfer import (
    NO_HEADERS,
    OUTCOMES,
    Failure,
    NoAnswerError,
    Request,
    RequestAuth,
    Response,
    header_line,
)
from app.base.net.transport import exchange, send_one
from app.base.texts import excess_of_answer
from app.base.values import Outcome
from app.retrievers.domain.probes import url_address
from app.retrievers.domain.retrievers import ProbeContext

__all__ = ["CredentialError", "Keyring", "credentials_digest", "masked"]

TIMEOUT_SECONDS = 10.0
MAX_BODY_BYTES = 100_000
MARGIN_SECONDS = 600.0
"""A token is renewed when less than this or half its life is left of it, so that it outlives the run that has it."""
DEFAULT_LIFE_SECONDS = 300.0
"""Life of a token whose answer names none."""
MAX_LIFE_SECONDS = 24 * 3600.0
BACKOFF_SECONDS = 15.0
"""Pause after a failure, so that no request waits for a dead endpoint each time."""
MAX_TOKENS = 256


class CredentialError(NoAnswerError):
    """No token is available, which ends a probe that needs one."""


class Keyring:
    """Credentials of requests; one for all runs and their threads, because tokens are kept while they are valid."""

    def __init__(self, policy: AddressPolicy, user_agent: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._user_agent = user_agent
        self._clock = clock
        self._tokens: dict[bytes, _Token] = {}
        self._lock = threading.Lock()

    def request_auth(self, auth: Auth | None, tls: Tls | None, headers: Mapping[str, str] = NO_HEADERS) -> RequestAuth:
        """Return the authentication of requests. `headers` are the caller's own: their values count as secrets.

        Blocks while a token is fetched, which goes by the `tls` of `auth` or, without one, by the system's authorities:
        `tls` is the retriever's alone, as identity providers usually are elsewhere. Raises CredentialError where none
        is available, and InvalidInputError for credentials that cannot be sent, such as a key with a line break.
        """
        try:
            auth_lines = self._bearer_auth(auth) if isinstance(auth, OAuth2) else _static_auth(auth)
        except UnicodeEncodeError:
            raise _invalid_auth("contains what is not text") from None
        secrets = [*auth_lines.secrets, *headers.values(), *_values_after_scheme(headers.values())]
        for one in (tls, auth.tls if isinstance(auth, OAuth2) else None):
            if one is not None and one.key is not None:
                secrets += [one.key, *_PEM_BODY.findall(one.key)]
        return replace(auth_lines, tls=tls, secrets=tuple(dict.fromkeys(secrets)))

    def forget(self, auth: Auth | None) -> None:
        """Drop the token of `auth`, because it was refused (401): the next call fetches a new one."""
        if isinstance(auth, OAuth2):
            with self._lock:
                self._tokens.pop(_token_key(auth), None)

    def _bearer_auth(self, auth: OAuth2) -> RequestAuth:
        token = self._token(auth)
        try:
            line = header_line("authorization", f"Bearer {token}")
        except ValueError:
            raise CredentialError(Outcome.MALFORMED, f"{_WHO} gave a token that cannot be sent") from None
        return RequestAuth(headers=(line,), secrets=(token, auth.client_secret, _basic(*_encoded_client(auth))))

    def _token(self, auth: OAuth2) -> str:
        """Return a valid token; of many threads that need it one fetches, the others wait."""
        key = _token_key(auth)
        with self._lock:
            slot = self._tokens.setdefault(key, _Token())
            while len(self._tokens) > MAX_TOKENS:
                self._tokens.pop(next(iter(self._tokens)))
        started = self._clock()
        with slot.lock:
            if started < slot.renewal:
                return slot.token
            error = (
                slot.error if started < slot.quiet_until else self._renew_token(auth, slot)
            )  # quiet: it failed as we waited, too
            if error is None or self._clock() < slot.expiry:  # renewing begins early: the one we have may still do
                return slot.token
            raise CredentialError(*error)

    def _renew_token(self, auth: OAuth2, token_slot: "_Token") -> "_Error | None":
        """Replace the token; returns the error where that fails, and leaves the old one."""
        try:
            token, life = self._fetch(auth, token_slot)
        except CredentialError as error:
            token_slot.error = (error.outcome, error.detail, error.http_status)
            token_slot.quiet_until = max(token_slot.quiet_until, self._clock() + BACKOFF_SECONDS)
        else:
            token_slot.token, token_slot.error, token_slot.quiet_until = token, None, -math.inf
            token_slot.expiry = self._clock() + life
            token_slot.renewal = token_slot.expiry - min(MARGIN_SECONDS, life / 2)
        return token_slot.error

    def _fetch(self, auth: OAuth2, token_slot: "_Token") -> tuple[str, float]:
        """Fetch a token (RFC 6749, 4.4); the client is in the header or, as some servers need it, in the form."""
        response = self._request_token(auth, in_form=token_slot.in_form)
        if _rejects_client(response) and not token_slot.in_form:
            second = self._request_token(auth, in_form=True)
            if second.status == HTTPStatus.OK:
                response, token_slot.in_form = second, True
        if response.retry_after_seconds is not None:
            token_slot.quiet_until = self._clock() + min(response.retry_after_seconds, DEFAULT_LIFE_SECONDS)
        return _read_token(response, has_authority=auth.tls is not None and auth.tls.authority is not None)

    def _request_token(self, auth: OAuth2, *, in_form: bool) -> Response:
        form = {"grant_type": "client_credentials", "scope": auth.scope, "audience": auth.audience}
        headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        if in_form:
            form |= {"client_id": auth.client_id, "client_secret": auth.client_secret}
        else:
            headers["authorization"] = f"Basic {_basic(*_encoded_client(auth))}"
        headers["user-agent"] = self._user_agent
        request = Request(
            url=auth.token_url,
            headers=(*(header_line(name, value) for name, value in headers.items()), b"expect:"),
            body=urlencode({name: value for name, value in form.items() if value is not None}).encode(),
            timeout_seconds=TIMEOUT_SECONDS,
            max_body_bytes=MAX_BODY_BYTES,
            retries=1,
        )
        return send_one(request, policy=self._policy, auth=RequestAuth(tls=auth.tls))


_Error = tuple[Outcome, str, int | None]
"""Arguments of a CredentialError; the error itself would keep its traceback."""


@dataclass(slots=True, kw_only=True)
class _Token:
    """One token, times by the clock; written under its lock alone."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    token: str = field(default="", repr=False)
    renewal: float = -math.inf
    expiry: float = -math.inf
    error: _Error | None = None
    """Error of the last attempt; None = it succeeded."""
    quiet_until: float = -math.inf
    """End of the pause after a failure or a `Retry-After`."""
    in_form: bool = False


def _static_auth(auth: Bearer | ApiKey | Basic | SigV4 | None) -> RequestAuth:
    """Return the authentication of credentials that need nothing fetched."""
    match auth:
        case None:
            return RequestAuth()
        case Bearer(token=token):
            return RequestAuth(headers=(_header_line("authorization", f"Bearer {token}"),), secrets=(token,))
        case ApiKey(key=key, prefix=prefix, header=None, query=str(name)):
            f"{name}{prefix}{key}".encode()  # raises where it is not text
            return RequestAuth(query={name: prefix + key}, secrets=(key, prefix + key))
        case ApiKey(key=key, prefix=prefix, header=str(name), query=None):
            return RequestAuth(headers=(_header_line(name, prefix + key),), secrets=(key, prefix + key))
        case ApiKey():
            raise _invalid_auth("needs either a header or a query parameter for its key")
        case Basic(user=user, password=password):
            if ":" in user:
                raise _invalid_auth("the user name contains a colon (RFC 7617, section 2)")
            pair = _basic(user, password)
            return RequestAuth(headers=(_header_line("authorization", f"Basic {pair}"),), secrets=(password, pair))
        case SigV4(region=region, service=service, session_token=token):
            if not (_AWS_NAME.fullmatch(region) and _AWS_NAME.fullmatch(service) and auth.access_key):
                raise _invalid_auth("needs an access key, a region such as eu-west-1 and a service such as bedrock")
            _header_line("x-amz-security-token", token or "")
            return RequestAuth(sigv4=auth, secrets=(auth.secret_key, *(() if token is None else (token,))))


def _header_line(name: str, value: str) -> bytes:
    try:
        return header_line(name, value)
    except ValueError as error:
        raise _invalid_auth(str(error)) from None


def _invalid_auth(message: str) -> InvalidInputError:
    return InvalidInputError([Problem(path="auth", message=message)])


def _basic(user: str, password: str) -> str:
    return b64encode(f"{user}:{password}".encode()).decode()


def _encoded_client(auth: OAuth2) -> tuple[str, str]:
    return quote_plus(auth.client_id), quote_plus(auth.client_secret)  # RFC 6749, section 2.3.1


def credentials_digest(auth: Auth | None, tls: Tls | None, headers: Mapping[str, str]) -> bytes:
    """Return a digest of credentials: answers to one key must not be reused for another."""
    parts = [None if one is None else (type(one).__name__, astuple(one)) for one in (auth, tls)]
    parts_text = repr((parts, sorted(headers.items())))
    return blake2b(parts_text.encode(errors="surrogatepass"), digest_size=16).digest()


def _token_key(auth: OAuth2) -> bytes:
    return blake2b(repr(astuple(auth)).encode(), digest_size=16).digest()


def _values_after_scheme(values: Iterable[str]) -> Iterator[str]:
    """Yield what follows a scheme, as in `Bearer TOKEN`: a response may quote it alone."""
    for value in values:
        yield from value.split()[1:]


def _rejects_client(response: Response) -> bool:
    return response.status == HTTPStatus.UNAUTHORIZED or _error_code(response) == "invalid_client"


def _error_code(response: Response) -> str | None:
    """Return the error code of a refusal, where it is one of RFC 6749, section 5.2; others may hold a secret."""
    try:
        code = msgspec.json.decode(response.body)["error"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError):
        return None
    return code if isinstance(code, str) and code in _ERROR_CODES else None


def _read_token(response: Response, *, has_authority: bool) -> tuple[str, float]:
    """Return the token and its life in seconds (RFC 6749, section 5.1). Raises CredentialError."""
    status = response.status
    if status is not None and not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        why = f" ({code})" if (code := _error_code(response)) else ""
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            why = "; redirects are not followed"
        raise CredentialError(Outcome.REFUSED, f"{_WHO} answered {status}{why}", status)
    if response.failure is not None:
        untrusted = not has_authority and (response.detail or "").startswith("TLS:")
        hint = "; a private authority goes under auth: {tls: {authority: ...}}" if untrusted else ""
        raise CredentialError(OUTCOMES[response.failure], f"{_WHO}: {response.detail}{hint}", status)
    try:
        document = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    token = document.get("access_token") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(token, str) or not token.strip():
        raise CredentialError(Outcome.MALFORMED, f"the answer of {_WHO} holds no access_token", status)
    if str(document.get("token_type", "bearer")).lower() != "bearer":
        raise CredentialError(Outcome.MALFORMED, f"{_WHO} gave a token of another type than bearer", status)
    return token, _read_life(document.get("expires_in"))


def _read_life(expires_in: Any) -> float:
    try:
        seconds = (
            float(expires_in)
            if isinstance(expires_in, (int, float, str)) and not isinstance(expires_in, bool)
            else math.nan
        )
    except (ValueError, OverflowError):
        seconds = math.nan
    return DEFAULT_LIFE_SECONDS if math.isnan(seconds) else min(max(0.0, seconds), MAX_LIFE_SECONDS)


_WHO = "the token endpoint"
_ERROR_CODES = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
    }
)
_AWS_NAME = re.compile(r"[a-z0-9-]{1,64}")
_PEM_BODY = re.compile(r"-----BEGIN [A-Z ]+-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END")


CONCURRENCY = 4
"""Requests to one service at a time, over everything that asks it: they are heavy, and other people's."""
RETRIES = 1
PATIENCE_SECONDS = 30.0
"""For how long a service that refuses every request by 429 is asked again, where nobody says otherwise."""
MAX_ANSWER_BYTES = 64_000_000
"""Of one answer: 256 vectors of 4,096 numbers with all their digits take 25 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """Response to one body, or why there is none. `number` is the body's place."""

    number: int
    body: bytes = b""
    http_status: int | None = None
    problem: tuple[Outcome, str] | None = None
    """Outcome and one sentence for people, without a secret or a piece of a body; None = there is an answer to read."""
    latency_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointClient:
    """Client of services beside retrievers, with their credentials."""

    policy: AddressPolicy
    keyring: Keyring
    user_agent: str
    max_body_bytes: int = MAX_ANSWER_BYTES
    limits: Limits = field(default_factory=Limits)

    def ask(
        self, endpoint: Endpoint, bodies: Sequence[bytes], *, patience: float = PATIENCE_SECONDS
    ) -> Generator[CallOutcome | None, None, None]:
        """Post every body and yield what comes of each, as it comes; whatever the service does is part of that.

        Yields None where nothing came for a while, so that the caller may stop; closing it cancels the rest. A token
        that was refused is fetched anew, once. What is refused by 429, or 503 with `Retry-After`, is sent again until
        the service has accepted nothing for `patience` in seconds. Raises InvalidInputError for an endpoint that cannot
        be asked.
        """
        lines = self._lines(endpoint)
        unauthorized_numbers: list[int] = []
        with closing(self._round(endpoint, lines, dict(enumerate(bodies)), patience)) as answers:
            for call in answers:
                unauthorized = call is not None and call.http_status == HTTPStatus.UNAUTHORIZED
                if call is not None and unauthorized and isinstance(endpoint.auth, OAuth2):
                    unauthorized_numbers.append(call.number)
                else:
                    yield call
        if unauthorized_numbers:
            self.keyring.forget(endpoint.auth)
            with closing(
                self._round(endpoint, lines, {number: bodies[number] for number in unauthorized_numbers}, patience)
            ) as answers:
                yield from answers

    def _round(
        self, endpoint: Endpoint, lines: tuple[bytes, ...], bodies: dict[int, bytes], patience: float
    ) -> Generator[CallOutcome | None, None, None]:
        if not bodies:
            return
        try:
            auth = self.keyring.request_auth(endpoint.auth, endpoint.tls, endpoint.headers)
        except CredentialError as error:
            problem = error.outcome, error.detail
            yield from (CallOutcome(number=number, http_status=error.http_status, problem=problem) for number in bodies)
            return
        failed = False
        requests = (
            Request(
                tag=number,
                url=endpoint.url,
                headers=lines,
                body=body,
                timeout_seconds=endpoint.timeout_seconds,
                max_body_bytes=self.max_body_bytes,
                retries=0 if failed else RETRIES,  # drawn while answers come in: one that hangs is not waited for twice
            )
            for number, body in bodies.items()
        )
        exchanged = exchange(
            requests,
            policy=self.policy,
            concurrency=CONCURRENCY,
            auth=auth,
            peer=Peer(limits=self.limits, name=f"service at {endpoint.url}", patience=patience),
        )
        with closing(exchanged) as batches:
            for batch in batches:
                if not batch:
                    yield None
                for number, received in batch:
                    failed = failed or received.failure is not None
                    response = with_utf8_body(received)
                    reason = response_problem(response)
                    yield CallOutcome(
                        number=number,
                        body=response.body,
                        http_status=response.status,
                        problem=None if reason is None else (reason[0], without_secrets(reason[1], auth.secrets)),
                        latency_seconds=response.latency_seconds,
                    )

    def _lines(self, endpoint: Endpoint) -> tuple[bytes, ...]:
        names = {name.lower() for name in endpoint.headers}
        defaults = {"accept": "application/json", "content-type": "application/json", "user-agent": self.user_agent}
        fields = {name: value for name, value in defaults.items() if name not in names} | dict(endpoint.headers)
        try:
            return (*(header_line(name, value) for name, value in fields.items()), b"expect:")
        except ValueError as error:
            raise InvalidInputError([Problem(path="headers", message=str(error))]) from None


_SUCCESSFUL = range(HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES)


def response_problem(response: Response) -> tuple[Outcome, str] | None:
    """Return outcome and sentence where a response cannot be read; None = it can."""
    status = response.status
    if status is not None and status not in _SUCCESSFUL:
        return Outcome.REFUSED, _refusal(status, response)
    if response.failure is not None:
        return OUTCOMES[response.failure], response.detail or "the exchange failed"
    return None


def _refusal(status: int, response: Response) -> str:
    try:
        status_text = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        status_text = str(status)
    followed = ""
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        target = _target(response.redirect_url)
        followed = (
            "; redirects are not followed" if target is None else f"; redirects to {target}, which is not followed"
        )
    wait, refused = response.retry_after_seconds or 0.0, response.refused_seconds or 0.0
    waits = f"; asked to be left alone for {wait:,.0f} s" if wait else ""
    if refused >= 1 and refused >= wait:
        waits = f"; refused every request for {refused:,.0f} s"
    message = None if status < HTTPStatus.BAD_REQUEST else message_of_body(response.body)
    return f"answered {status_text}{followed}{waits}{quoted(message)}"


def _target(url: str | None) -> str | None:
    """Return the target of a redirect without user, query and fragment, which may hold secrets."""
    try:
        parts = urlsplit(clean_message(url or "") or "")
        host = parts.hostname
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return None
    if not host:
        return None
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}"


def peer_of(context: ProbeContext, limits: Limits) -> Peer:
    """Give the retriever as a peer in these limits, by slug and address.

    The address, since definitions that are only tried often have the same slug.
    """
    retriever = context.retriever
    address = url_address(retriever.url, retriever.options) or retriever.url
    name = f"{retriever.slug} at {address}"
    if context.lane is None:
        return Peer(limits=limits, name=name, defined_at=context.defined_at, patience=context.patience)
    in_lane = f"{name}, lane {context.lane.number}"
    return Peer(
        limits=limits,
        name=in_lane,
        defined_at=context.defined_at,
        reserve=context.lane.reserve,
        rate_name=name,
        patience=context.patience,
    )


MAX_LENGTH = 300
_MOST_BYTES = 200_000
_MOST_LEVELS = 6


def message_of_body(body: bytes) -> str | None:
    """Return the message in a body of any type: JSON, HTML, XML or plain text; None where it says nothing."""
    part = body[:_MOST_BYTES]
    if not part.strip():
        return None
    if part is body or len(part) == len(body):
        try:
            if excess_of_answer(part) is None:
                return message_of(msgspec.json.decode(part))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    text = part.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if text.startswith("<"):
        title = _TITLE.search(text[:20_000])
        text = unescape(title[2]) if title else ""
    elif text[:1] in "{[\x00":
        return None
    return clean_message(text)


def message_of(value: Any) -> str | None:
    """Return the message in parsed JSON of an error response; None where none of the usual fields is there."""
    text = _find(value, _MOST_LEVELS)
    return None if text is None else clean_message(text)


def clean_message(text: str) -> str | None:
    """Return a text as one line of at most 300 characters that can be shown; None where nothing is left."""
    head = text[: 20 * MAX_LENGTH]
    shown = "".join(" " if unicodedata.category(one)[0] in "CZ" else one for one in head)
    line = " ".join(shown.replace("\ufffd", "?").split())
    if not line:
        return None
    return line if len(line) <= MAX_LENGTH else f"{line[: MAX_LENGTH - 1]}\u2026"


def quoted(message: str | None) -> str:
    """Return a message as the end of a sentence: `: “index not loaded”`; empty where there is none."""
    return "" if message is None else f": \u201c{message}\u201d"


def without_secrets(detail: str, secrets: Iterable[str]) -> str:
    """Return a sentence that may quote a server, without secrets."""
    return masked(detail, secrets)


def _find(value: Any, levels: int) -> str | None:
    if isinstance(value, str):
        return value if value.strip() else None
    if levels and isinstance(value, list):
        return next((found for one in value[:20] if (found := _find(one, levels - 1)) is not None), None)
    return _find_in_object(value, levels) if levels and isinstance(value, Mapping) else None


def _find_in_object(value: Mapping[str, Any], levels: int) -> str | None:
    for name in _NAMES:
        found = _find(value.get(name), levels - 1)
        if found is None:
            continue
        more = next((one for key in _MORE if key != name and isinstance(one := value.get(key), str) and one), None)
        is_label = name in {"error", "title", "code"} and isinstance(value[name], str)
        if is_label and more is not None and more != found:
            return f"{found}: {more}"
        return found if name != "msg" else _placed(value, found)
    return None


def _placed(value: Mapping[str, Any], message: str) -> str:
    """Return the message of a refused field with its place, as FastAPI gives them."""
    place = value.get("loc")
    return f"{'.'.join(map(str, place[:8]))}: {message}" if isinstance(place, list) and place else message


_NAMES = (
    *("error", "errors", "failures", "error_message", "errorMessage", "reason", "message", "detail", "details", "msg"),
    *("error_description", "summary", "title", "description", "type", "root", "_shards", "status"),
)
_MORE = ("message", "detail", "error_description", "reason", "msg")
_TITLE = re.compile(r"<(title|message|h1)[^>]*>([^<]*)</", re.IGNORECASE)


MASK = "•••"
SHORTEST = 4
"""Shorter values are left: masking them would say more than it hides, and shred the text."""
_QUOTABLE = 8
"""The least number of base64 characters by which a secret is recognised inside other base64."""


def masked(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret in `text` by three dots, also encoded for a URL, JSON, HTML or base64, and overlapping."""
    forms = {form for secret in secrets if len(secret.strip()) >= SHORTEST for form in _forms(secret)}
    parts: list[str] = []
    end = 0
    for start, stop in sorted(place for form in forms for place in _places(text, form)):
        if start >= end:
            parts += (text[end:start], MASK)
        end = max(end, stop)
    return "".join((*parts, text[end:]))


def _places(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges a form covers, in time linear in the text also where it overlaps itself, as `aaaa` does.

    Occurrences that overlap by its period are yielded as one; others are few, as overlapping by half is by the period.
    """
    start = text.find(form)
    period = _period(form) if start >= 0 else 0
    repeated = form[len(form) - period :]
    while start >= 0:
        end = start + len(form)
        while period < len(form) and text.startswith(repeated, end):
            end += period
        yield start, end
        start = text.find(form, end - len(form) + 1)


def _period(form: str) -> int:
    """Least shift by which a form matches itself again (Knuth, Morris and Pratt, 1977)."""
    borders = [0]
    matched = 0
    for character in form[1:]:
        while matched and form[matched] != character:
            matched = borders[matched - 1]
        matched += form[matched] == character
        borders.append(matched)
    return len(form) - matched


def _forms(secret: str) -> Iterator[str]:
    """Yield the forms in which a server may quote a secret; those of a short one may be shorter than it."""
    yield secret
    yield secret.strip()
    yield secret.encode(errors="replace").decode("latin-1")  # as a header read by the letter of HTTP
    for encoded in (
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        quote_plus(secret, errors="replace"),
    ):
        yield encoded
        yield _PERCENT.sub(lambda match: match[0].lower(), encoded)
    for quoted in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield quoted
        yield quoted.replace("/", "\\/")
        yield quoted.translate(_SCRIPT_SAFE)
        yield quoted.translate(_SCRIPT_SAFE).replace("'", "\\u0027")
    yield escape(secret)
    for encode in (b64encode, urlsafe_b64encode):
        yield from _base64(secret.encode(errors="replace"), encode)


def _base64(secret: bytes, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """Yield the secret as base64, also as it stands inside the base64 of more, such as `user:password`.

    Three bytes make four characters, so it may begin at three places; characters that mix it with others are left out.
    """
    yield encode(secret).decode().rstrip("=")
    for before in range(3):
        text = encode(bytes(before) + secret).decode().rstrip("=")
        core = text[before + 1 if before else 0 : len(text) - ((before + len(secret)) % 3 != 0)]
        if len(core) >= _QUOTABLE:
            yield core


_PERCENT = re.compile("%[0-9A-F]{2}")
_SCRIPT_SAFE = {ord(one): f"\\u{ord(one):04x}" for one in "<>&"}  # as many JSON writers do


LEAST = 12
"""Shorter secrets are left alone in runs: they may well be words of a text, which must stay what it is."""
_PUBLIC = frozenset({"accept", "accept-charset", "accept-language", "cache-control", "content-type", "user-agent"})
"""Names, in lower case, of headers whose values everybody sends."""
_WORDS = re.compile(r"[A-Za-z]{1,15}(?:[-_./ ][A-Za-z]{1,15})*")
_CREDENTIAL = re.compile(r"auth|key|token|secret|cookie|passw|credential|session|signature", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Secrets of one exchange. `thorough`: in every encoding and however short, for responses shown to people."""

    secrets: tuple[str, ...]
    thorough: bool
    _bytes: tuple[bytes, ...]

    @classmethod
    def of(cls, auth: RequestAuth, *, thorough: bool) -> "Redaction":
        """Redaction of the responses to requests with this authentication."""
        secrets = auth.secrets if thorough else tuple(one for one in auth.secrets if len(one) >= LEAST)
        forms = {form for one in secrets for form in (one, json.dumps(one)[1:-1], one.replace("/", "\\/"))}
        # The longest first: of a secret that holds another nothing may be left, and equal answers must read equal.
        longest = sorted(forms, key=lambda form: (-len(form), form))
        return cls(secrets, thorough, tuple(form.encode(errors="replace") for form in longest))

    def body(self, body: bytes) -> bytes:
        """Body without the secrets; the same object where none is in it."""
        if self.thorough and self.secrets:
            return masked(body.decode("utf-8", errors="surrogateescape"), self.secrets).encode(errors="surrogateescape")
        for secret in self._bytes:
            if secret in body:
                body = body.replace(secret, MASK.encode())
        return body

    def response(self, response: Response) -> Response:
        """Response without the secrets; the same object where none is in it."""
        if not self.secrets:
            return response
        body = self.body(response.body)
        headers = {name: masked(value, self.secrets) for name, value in response.headers.items()}
        return response if body is response.body and not headers else replace(response, body=body, headers=headers)


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers whose values count as secrets: by name, and values that are no plain words.

    `x-tenant: acme-corporation` is not secret, `x-tenant: 7f3c-41d9-aa02` may be: it looks like a key.
    """
    return {
        name: value
        for name, value in headers.items()
        if _CREDENTIAL.search(name) or not (name.lower() in _PUBLIC or _WORDS.fullmatch(value))
    }


def with_utf8_body(response: Response) -> Response:
    """Return a response whose body is UTF-8, or one that failed as malformed and says why; status and body stay."""
    body = response.body
    if not body or response.failure is not None:
        return response
    name = _declared(response.content_type)
    if name is None and body[0] in b"{[" and b"\0" not in body[:4] and body.isascii():
        return response  # as nearly all are
    charset = json.detect_encoding(body) if name is None else _codec(name)
    if name is not None and charset == "utf-16" and body[:2] not in _MARKS:
        charset = "utf-16-be" if body[:1] == b"\0" else "utf-16-le"
    if charset in _UTF8 and body.isascii():
        return response
    try:
        if charset is not None and charset not in _UTF8:
            return replace(response, body=body.decode(charset).removeprefix("\ufeff").encode())
    except (UnicodeError, ValueError):
        pass
    try:
        body.decode()
    except UnicodeDecodeError:
        return replace(response, failure=Failure.MALFORMED, detail=_problem(name, charset))
    return response


def _declared(content_type: str) -> str | None:
    found = _CHARSET.search(content_type)
    return found[1].lower() if found else None


def _codec(name: str) -> str | None:
    """Return Python's name of a charset; None for what is unknown, or no charset though Python has it as a codec."""
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    return info.name if info._is_text_encoding and info.name not in _NO_CHARSETS else None  # noqa: SLF001 - nothing public says it


def _problem(name: str | None, charset: str | None) -> str:
    if name is None:
        return "the answer is not UTF-8, and its Content-Type declares no other charset"
    if charset is None:
        return f"the answer's Content-Type declares the charset {name}, which is unknown, and it is not UTF-8"
    return f"the answer cannot be decoded as {name}, the charset that its Content-Type declares"


_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:+-]{1,40})", re.IGNORECASE | re.ASCII)
_UTF8 = frozenset({"utf-8", "utf-8-sig", "ascii"})
_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "raw_unicode_escape", "undefined"}) | {
    *("unicode-escape", "unicode_escape", "utf-7", "mbcs", "oem", "palmos")
}


def without_surrogates(text: str) -> str:
    """Return a text with `?` for halves of characters, which cannot travel."""
    return text.encode(errors="replace").decode()
