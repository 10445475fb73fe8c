"""Credentials of requests: headers, parameters and secrets of an authentication, and OAuth2 tokens, fetched and kept.

Who asks takes a `RequestAuth` of the keyring and sends it: `probe`, `mcp_probe` and `services`. Below: what a server
quotes, or a response holds, without any form of a secret, so that it may be shown and stored.
"""

import json
import math
import re
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from html import escape
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import msgspec

from app.base.addresses import AddressPolicy, ApiKey, Auth, Basic, Bearer, OAuth2, SigV4, Tls
from app.base.errors import InvalidInputError, Problem
from app.base.net.transfer import NO_HEADERS, OUTCOMES, NoAnswerError, Request, RequestAuth, Response, header_line
from app.base.net.transport import send_one
from app.base.values import Outcome, Value, asdict, replace
from app.retrievers.domain.retrievers import PLACEHOLDER

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
        is_rejected = response.status == HTTPStatus.UNAUTHORIZED or _error_code(response) == "invalid_client"
        if is_rejected and not token_slot.in_form:
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
    parts = [None if one is None else (type(one).__name__, asdict(one)) for one in (auth, tls)]
    parts_text = repr((parts, sorted(headers.items())))
    return blake2b(parts_text.encode(errors="surrogatepass"), digest_size=16).digest()


def _token_key(auth: OAuth2) -> bytes:
    return blake2b(repr(asdict(auth)).encode(), digest_size=16).digest()


def _values_after_scheme(values: Iterable[str]) -> Iterator[str]:
    """Yield what follows a scheme, as in `Bearer TOKEN`: a response may quote it alone."""
    for value in values:
        yield from value.split()[1:]


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


MASK = "•••"
SHORTEST = 4
"""Shorter values are left: masking them would say more than it hides, and shred the text."""
_QUOTABLE = 8
"""The least number of base64 characters by which a secret is recognised inside other base64."""


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


class Redaction(Value, kw_only=False):
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


LEAST = 12
"""Shorter secrets are left alone in runs: they may well be words of a text, which must stay what it is."""


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers whose values count as secrets: by name, and values that are no plain words.

    `x-tenant: acme-corporation` is not secret, `x-tenant: 7f3c-41d9-aa02` may be: it looks like a key.
    """
    parts = ((name, part) for name, value in headers.items() for part in _fixed_parts(value))
    return {
        f"{name} {place}": part
        for place, (name, part) in enumerate(parts)
        if _CREDENTIAL.search(name) or not (name.lower() in _PUBLIC or _WORDS.fullmatch(part))
    }


def _fixed_parts(value: str) -> list[str]:
    """Return a value, or the parts of it around placeholders that are long enough to be told in an answer."""
    parts = PLACEHOLDER.split(value)[::2]
    return parts if len(parts) == 1 else [part for part in parts if len(part.strip()) >= _TELLING]


_TELLING = 8
"""Characters; what is shorter, such as `Bearer `, stands in answers by chance."""


_PUBLIC = frozenset({"accept", "accept-charset", "accept-language", "cache-control", "content-type", "user-agent"})
"""Names, in lower case, of headers whose values everybody sends."""
_WORDS = re.compile(r"[A-Za-z]{1,15}(?:[-_./ ][A-Za-z]{1,15})*")
_CREDENTIAL = re.compile(r"auth|key|token|secret|cookie|passw|credential|session|signature", re.IGNORECASE)
