"""Sign-in by OpenID Connect: what the provider is asked, and what is believed of its answers.

Authorization code with PKCE, state and nonce (OpenID Connect Core 1.0, section 3.1; RFC 7636; RFC 9207). Authlib writes
the requests and judges claims, and joserfc verifies signatures; both are loaded with the first sign-in, as that takes a
third of a second. Requests go by our own transport: no redirects, bounds of time and size, no metadata of clouds.
"""

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

from app.base.addresses import AddressPolicy
from app.base.errors import BusyError, UnauthorizedError
from app.base.net.transfer import Request, header_line, parse_host
from app.base.net.transport import send_one
from app.operation.domain import Person, SignInFlow
from app.retrievers.client.responses import clean_message

_SCOPES: Final = ("openid", "profile", "email", "groups")
"""What is asked for; `groups` where the provider has it."""
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key of the provider. `none`, and those by a shared secret, are no proof of who signed."""
_KEY_TYPES: Final = {"RSA", "EC", "OKP"}
_LEEWAY_SECONDS: Final = 60
_TIMEOUT_SECONDS: Final = 10.0
_ANSWER_BYTES: Final = 1_000_000
_KEPT_SECONDS: Final = 3_600.0
"""How long the provider's description and keys are kept."""
_LEAST_SECONDS: Final = 60.0
"""How soon they are asked for again, when a token is signed by an unknown key."""


@dataclass(slots=True, kw_only=True)
class OpenIdProvider:
    """An OpenID provider, and this service as its client; see `Provider`."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    redirect_uri: str
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    policy: AddressPolicy
    user_agent: str = "coalmine"
    clock: Callable[[], float] = time.time
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _kept: tuple[float, Mapping[str, Any], list[Mapping[str, Any]]] | None = field(default=None, repr=False)
    """When they were read, the provider's description, and its keys."""

    @property
    def name(self) -> str:
        """What people know it by: its host."""
        return urlsplit(self.issuer).netloc

    def begin(self, following: str) -> tuple[str, SignInFlow]:
        """See `Provider`."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri  # noqa: PLC0415 - see the module
        from authlib.oauth2.rfc7636 import create_s256_code_challenge  # noqa: PLC0415 - see the module

        metadata, _ = self._description()
        supported = metadata.get("scopes_supported")
        scopes = [one for one in _SCOPES if one != "groups" or (isinstance(supported, list) and one in supported)]
        flow: SignInFlow = {
            "state": token_urlsafe(32),
            "nonce": token_urlsafe(32),
            "verifier": token_urlsafe(48),
            "next": following,
        }
        address = prepare_grant_uri(
            self._endpoint(metadata, "authorization_endpoint"),
            self.client_id,
            "code",
            redirect_uri=self.redirect_uri,
            scope=scopes,
            state=flow["state"],
            nonce=flow["nonce"],
            code_challenge=create_s256_code_challenge(flow["verifier"]),
            code_challenge_method="S256",
        )
        return str(address), flow

    def finish(self, flow: SignInFlow, answer: Mapping[str, str]) -> Person:
        """See `Provider`."""
        if not compare_digest(answer.get("state", "").encode(), flow["state"].encode()):
            raise UnauthorizedError("the answer belongs to another sign-in")
        metadata, _ = self._description()
        has_issuer = metadata.get("authorization_response_iss_parameter_supported") is True  # RFC 9207
        if answer.get("iss", "" if has_issuer else metadata["issuer"]) != metadata["issuer"]:
            raise UnauthorizedError("the answer comes from another provider")
        if error := answer.get("error"):
            shown = clean_message(answer.get("error_description") or error)
            raise UnauthorizedError(f"the provider refused: {shown}")
        tokens = self._exchange(metadata, flow, answer.get("code", ""))
        claims = self._verified(metadata, flow, tokens)
        return self._person(metadata, claims, tokens)

    def _exchange(self, metadata: Mapping[str, Any], flow: SignInFlow, code: str) -> Mapping[str, Any]:
        """Return the tokens for a code."""
        from authlib.oauth2.rfc6749.parameters import prepare_token_request  # noqa: PLC0415 - see the module

        if not code:
            raise UnauthorizedError("the provider sent no code")
        fields = {"code": code, "redirect_uri": self.redirect_uri, "code_verifier": flow["verifier"]}
        headers = {"content-type": "application/x-www-form-urlencoded"}
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if self.client_secret is not None and "client_secret_basic" in methods:  # RFC 6749, section 2.3.1
            pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            fields["client_id"] = self.client_id
            if self.client_secret is not None:
                fields["client_secret"] = self.client_secret
        body = str(prepare_token_request("authorization_code", **fields))
        return self._ask(self._endpoint(metadata, "token_endpoint"), headers, body.encode())

    def _verified(self, metadata: Mapping[str, Any], flow: SignInFlow, tokens: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the claims of an ID token that the provider signed for this sign-in."""
        from authlib.oidc.core import CodeIDToken  # noqa: PLC0415 - see the module
        from joserfc.errors import ClaimError, ExpiredTokenError, JoseError  # noqa: PLC0415 - see the module

        text = tokens.get("id_token")
        if not isinstance(text, str):
            raise UnauthorizedError("the provider sent no ID token")
        try:
            token = self._decoded(text)
            claims = CodeIDToken(
                token.claims,
                token.header,
                options={
                    "iss": {"essential": True, "value": metadata["issuer"]},
                    "aud": {"essential": True, "value": self.client_id},
                },
                params={
                    "nonce": flow["nonce"],
                    "client_id": self.client_id,
                    "access_token": tokens.get("access_token"),
                },
            )
            claims.validate(now=int(self.clock()), leeway=_LEEWAY_SECONDS)
        except ExpiredTokenError:
            raise UnauthorizedError("the ID token has expired: compare the clocks of both machines") from None
        except ClaimError as error:
            raise UnauthorizedError(f"the ID token is not for this sign-in: {error.claim} does not fit") from None
        except (JoseError, ValueError, TypeError, KeyError):
            raise UnauthorizedError("the ID token is not signed by a key of the provider") from None
        return dict(claims)

    def _decoded(self, text: str) -> Any:
        """Return an ID token whose signature fits a key of the provider; keys that are unknown are asked for anew."""
        from joserfc import jwt  # noqa: PLC0415 - see the module
        from joserfc.errors import BadSignatureError, JoseError  # noqa: PLC0415 - see the module
        from joserfc.jwk import import_key  # noqa: PLC0415 - see the module

        header = json.loads(base64.urlsafe_b64decode(text.partition(".")[0] + "=="))
        if not isinstance(header, dict) or header.get("alg") not in _ALGORITHMS:
            raise BadSignatureError
        for oldest in (_KEPT_SECONDS, _LEAST_SECONDS):
            _, keys = self._description(oldest)
            for key in keys:
                if "kid" in header and key.get("kid", header["kid"]) != header["kid"]:
                    continue
                try:
                    return jwt.decode(text, import_key(dict(key)), algorithms=list(_ALGORITHMS))
                except (JoseError, ValueError, TypeError):
                    continue
        raise BadSignatureError

    def _person(self, metadata: Mapping[str, Any], claims: Mapping[str, Any], tokens: Mapping[str, Any]) -> Person:
        """Return name and groups of the claims; what is not in the token is asked of the provider."""
        found = dict(claims)
        if not {self.name_claim, self.groups_claim} <= found.keys() and "userinfo_endpoint" in metadata:
            headers = {"authorization": f"Bearer {tokens.get('access_token')}"}
            more = self._ask(self._endpoint(metadata, "userinfo_endpoint"), headers)
            if more.get("sub") != claims["sub"]:  # OpenID Connect Core 1.0, section 5.3.2
                raise UnauthorizedError("the provider tells of another person than it signed in")
            found = {**more, **found}
        name, groups = found.get(self.name_claim), found.get(self.groups_claim, [])
        if not isinstance(name, str) or not name.strip():
            raise UnauthorizedError(f"the provider does not say who you are: no claim '{self.name_claim}'")
        if self.name_claim == "email" and found.get("email_verified") in (False, "false"):
            raise UnauthorizedError("the provider has not verified your email address")
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        return Person(name=name.strip(), groups=tuple(one for one in listed if isinstance(one, str)))

    def _description(self, oldest: float = _KEPT_SECONDS) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
        """Return the provider's description and keys, read at most so many seconds ago."""
        from authlib.oidc.discovery import get_well_known_url  # noqa: PLC0415 - see the module

        with self._lock:
            if self._kept is not None and 0 <= self.clock() - self._kept[0] < oldest:
                return self._kept[1:]
            metadata = self._ask(str(get_well_known_url(self.issuer, external=True)), {})
            if str(metadata.get("issuer", "")).rstrip("/") != self.issuer.rstrip("/"):
                raise UnauthorizedError(f"{self.name} describes another provider than COALMINE_OIDC_ISSUER")
            keys = self._ask(self._endpoint(metadata, "jwks_uri"), {}).get("keys")
            if not isinstance(keys, list):
                raise BusyError(f"{self.name} cannot be asked now: its keys cannot be read")
            usable: list[Mapping[str, Any]] = [
                one
                for one in keys
                if isinstance(one, dict) and one.get("kty") in _KEY_TYPES and one.get("use") != "enc"
            ]
            self._kept = (self.clock(), metadata, usable)
            return metadata, usable

    def _endpoint(self, metadata: Mapping[str, Any], name: str) -> str:
        """Return an address of the description; as safe as that of the issuer."""
        url = metadata.get(name)
        if isinstance(url, str) and parse_host(url) and is_safe(url, at_home=not self.issuer.startswith("https:")):
            return url
        raise BusyError(f"{self.name} cannot be asked now: its description has no safe {name}")

    def _ask(self, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Mapping[str, Any]:
        """Return the JSON object that an address of the provider answers."""
        lines = {"accept": "application/json", "user-agent": self.user_agent, **headers}
        request = Request(
            url=url,
            method="GET" if body is None else "POST",
            headers=(*(header_line(name, value) for name, value in lines.items()), b"expect:"),
            body=body,
            timeout_seconds=_TIMEOUT_SECONDS,
            max_body_bytes=_ANSWER_BYTES,
        )
        response = send_one(request, policy=self.policy)
        try:
            answer = json.loads(response.body) if response.failure is None else None
        except (ValueError, RecursionError):
            answer = None
        if response.status == _OK and isinstance(answer, dict):
            return answer
        if response.status in _REFUSED and isinstance(answer, dict):
            shown = clean_message(str(answer.get("error_description") or answer.get("error") or "without a reason"))
            raise UnauthorizedError(f"the provider refused: {shown}")
        detail = response.detail or f"it answered {response.status} without what was asked for"
        raise BusyError(f"{self.name} cannot be asked now: {detail}")


def is_safe(url: str, *, at_home: bool) -> bool:
    """Whether an address is of https or, `at_home`, of this machine itself."""
    return url.startswith("https://") or (at_home and url.startswith("http://"))


_OK: Final = 200
_REFUSED: Final = (400, 401, 403)
