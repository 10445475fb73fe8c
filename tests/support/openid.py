"""An OpenID provider on a port of this machine, small but strict; who is signed in, and what it says, is as told."""

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from tests.support.http_servers import Peer, Reply, Seen, peer, reply

CLIENT, SECRET = "coalmine", "s3cret/of+the client"


@dataclass(kw_only=True)
class OpenId:
    """A running provider. Everybody who comes is Ada, who has said yes."""

    server: Peer
    key: RSAKey | ECKey
    redirect_uri: str
    claims: dict[str, Any] = field(default_factory=lambda: {"preferred_username": "ada", "groups": ["ops"]})
    """What an ID token says besides what each has to."""
    userinfo: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    """What its description says otherwise."""
    id_token: Callable[[dict[str, Any]], str] | None = None
    """Makes another token of the claims."""
    basic: bool = True
    grants: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """What was asked for, by code."""

    @property
    def issuer(self) -> str:
        """Its name."""
        return self.server.url

    def description(self) -> dict[str, Any]:
        """Describe it: https://openid.net/specs/openid-connect-discovery-1_0.html."""
        method = "client_secret_basic" if self.basic else "client_secret_post"
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "scopes_supported": ["openid", "profile", "email", "groups"],
            "token_endpoint_auth_methods_supported": [method],
            **self.metadata,
        }

    def keys(self) -> dict[str, Any]:
        """Give its public keys, and one that no client of this kind can use."""
        found = KeySet([self.key]).as_dict(private=False)
        return {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "odd"}, *found["keys"]]}

    def standard_claims(self, nonce: str) -> dict[str, Any]:
        """Give what each ID token has to say."""
        now = int(time.time())
        return {"iss": self.issuer, "sub": "a-1", "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce}

    def signed(self, claims: Mapping[str, Any]) -> str:
        """Sign an ID token."""
        algorithm = "ES256" if isinstance(self.key, ECKey) else "RS256"
        return jwt.encode({"alg": algorithm, "kid": self.key.kid}, dict(claims), self.key)

    def answer(self, seen: Seen) -> Reply:
        """Answer a request."""
        parts = urlsplit(seen.target)
        match parts.path:
            case "/.well-known/openid-configuration":
                return _json(self.description())
            case "/keys":
                return _json(self.keys())
            case "/authorize":
                return self._authorize({name: values[0] for name, values in parse_qs(parts.query).items()})
            case "/token":
                return self._token(seen)
            case "/userinfo" if seen.headers.get("authorization") == "Bearer an-access-token":
                return _json({"sub": "a-1", **(self.userinfo or {})})
        return reply(b"{}", 404)

    def _authorize(self, asked: Mapping[str, str]) -> Reply:
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert asked["redirect_uri"] == self.redirect_uri
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = f"code-{len(self.grants)}"
        self.grants[code] = asked
        query = urlencode({"code": code, "state": asked["state"], "iss": self.issuer, "session_state": "x"})
        return reply(b"", 302, {"location": f"{self.redirect_uri}?{query}"})

    def _token(self, seen: Seen) -> Reply:
        form = {name: values[0] for name, values in parse_qs(seen.body.decode()).items()}
        if self.basic:
            scheme, _, proof = seen.headers.get("authorization", "").partition(" ")
            pair = base64.b64decode(proof).decode().split(":")
            known = scheme == "Basic" and [unquote_plus(part) for part in pair] == [CLIENT, SECRET]
        else:
            known = (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)
        if not known:
            return _json({"error": "invalid_client"}, 401)
        asked = self.grants.pop(form.get("code", ""), None)  # each is good for once
        fits = asked is not None and form["redirect_uri"] == self.redirect_uri
        if asked is None or not fits or create_s256_code_challenge(form["code_verifier"]) != asked["code_challenge"]:
            return _json({"error": "invalid_grant"}, 400)
        claims = {**self.standard_claims(asked["nonce"]), **self.claims}
        token = self.id_token(claims) if self.id_token is not None else self.signed(claims)
        return _json({"access_token": "an-access-token", "token_type": "Bearer", "id_token": token})


def _json(answer: Mapping[str, Any], status: int = 200) -> Reply:
    return reply(json.dumps(answer).encode(), status)


@contextmanager
def open_id(redirect_uri: str, *, key: RSAKey | ECKey | None = None) -> Iterator[OpenId]:
    """Run a provider that leads back to this address."""
    made: list[OpenId] = []
    with peer(lambda seen: made[0].answer(seen)) as server:  # noqa: PLW0108 - it is made below
        signing = key or RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        made.append(OpenId(server=server, key=signing, redirect_uri=redirect_uri))
        yield made[0]
