"""Who we are to a retriever, held against servers that look: keys, passwords, certificates, signatures."""

import hmac
import json
import re
import ssl
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pytest

from app.base.addresses import ApiKey, Auth, Basic, Bearer, SigV4, Tls, retriever_policy
from app.base.errors import InvalidInputError
from app.base.net.transfer import Failure, Request, RequestAuth, Response, header_line
from app.base.net.transport import exchange, send_one
from app.base.values import replace
from app.retrievers.client.credentials import MASK, Keyring
from tests.support.certificates import Authority, serving
from tests.support.http_servers import Reply, Seen, peer, reply
from tests.support.probed import answers_of, retriever_at

ANYWHERE = retriever_policy()
AUTHORITY = Authority()
SERVER = AUTHORITY.issue("localhost")
CLIENT = AUTHORITY.issue("coalmine")
STRANGER = Authority("Another").issue("coalmine")
PLAIN = SigV4(region="eu-west-1", service="bedrock", access_key="AKIDEXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG")


def identity(auth: Auth | None, tls: Tls | None = None, headers: dict[str, str] | None = None) -> RequestAuth:
    """Make an identity that needs no network."""
    return Keyring(ANYWHERE, "coalmine/1.0").request_auth(auth, tls, headers or {})


def seen_of(auth: Auth, *, path: str = "/search", headers: tuple[bytes, ...] = ()) -> Seen:
    """Ask once with these credentials and say what arrived."""
    with peer(reply()) as server:
        request = Request(url=server.url + path, body=b'{"query": "why?"}', headers=headers)
        assert send_one(request, policy=ANYWHERE, auth=identity(auth)).status == 200
        return server.seen[0]


def test_bearer_token_is_sent() -> None:
    assert seen_of(Bearer(token="hunter2")).headers["authorization"] == "Bearer hunter2"


def test_basic_sends_user_and_password_as_utf_8() -> None:
    seen = seen_of(Basic(user="canary", password="grün: ü"))
    assert seen.headers["authorization"] == f"Basic {b64encode('canary:grün: ü'.encode()).decode()}"


def test_api_key_goes_into_its_header_behind_its_prefix() -> None:
    seen = seen_of(ApiKey(key="k-1", header="Api-Key"), headers=(header_line("x-own", "1"),))
    assert (seen.headers["api-key"], seen.headers["x-own"]) == ("k-1", "1")
    assert seen_of(ApiKey(key="k-1", header="authorization", prefix="ApiKey ")).headers["authorization"] == "ApiKey k-1"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/search", "/search?api%20key=a%26b%3D%C3%BC%2F%2B"),
        ("/search?x=1", "/search?x=1&api%20key=a%26b%3D%C3%BC%2F%2B"),
        ("/search#part", "/search?api%20key=a%26b%3D%C3%BC%2F%2B"),
        ("/search?x=1#?", "/search?x=1&api%20key=a%26b%3D%C3%BC%2F%2B"),
    ],
)
def test_api_key_in_the_query_is_encoded_and_joins_what_is_there(path: str, target: str) -> None:
    assert seen_of(ApiKey(key="a&b=ü/+", query="api key"), path=path).target == target


def test_every_request_of_an_exchange_carries_the_identity_also_where_a_handle_is_used_again() -> None:
    who = identity(ApiKey(key="k-1", header="x-key"))
    with peer(reply()) as server:
        requests = [
            Request(tag=n, url=f"{server.url}/{n % 3}", headers=(b"x-own: %d" % (n % 2),), body=b"") for n in range(12)
        ]
        batches = exchange(requests, policy=ANYWHERE, concurrency=2, auth=who)
        assert sum(map(len, batches)) == 12
        assert [seen.headers["x-key"] for seen in server.seen] == ["k-1"] * 12
        assert {seen.headers["x-own"] for seen in server.seen} == {"0", "1"}


@pytest.mark.parametrize(
    "auth",
    [
        Bearer(token="hunter2\r\nx-evil: 1"),
        Bearer(token="hunter2\ud800"),
        ApiKey(key="hunter2\n", header="x-key"),
        ApiKey(key="hunter2", header="x key"),
        ApiKey(key="hunter2\ud800", query="key"),
        ApiKey(key="hunter2"),
        ApiKey(key="hunter2", header="x-key", query="key"),
        Basic(user="a:b", password="hunter2"),
        Basic(user="a", password="hunter2\ud800"),
        SigV4(region="eu:west", service="bedrock", access_key="a", secret_key="hunter2"),
        SigV4(region="eu-west-1", service="", access_key="a", secret_key="hunter2"),
        SigV4(region="eu-west-1", service="s3", access_key="", secret_key="hunter2"),
        SigV4(region="eu-west-1", service="s3", access_key="a", secret_key="hunter2", session_token="a\nb"),
    ],
)
def test_credentials_that_cannot_be_sent_are_refused_without_quoting_them(auth: Auth) -> None:
    with pytest.raises(InvalidInputError) as caught:
        identity(auth)
    assert caught.value.problems[0].path == "auth"
    assert "hunter2" not in str(caught.value)


def test_identity_lists_all_that_must_be_masked_and_shows_none_of_it() -> None:
    pair = b64encode(b"canary:hunter2").decode()
    assert identity(Basic(user="canary", password="hunter2")).secrets == ("hunter2", pair)
    assert identity(Bearer(token="hunter2")).secrets == ("hunter2",)
    assert identity(ApiKey(key="hunter2", header="x", prefix="Key ")).secrets == ("hunter2", "Key hunter2")
    assert identity(None, headers={"authorization": "Bearer abc"}).secrets == ("Bearer abc", "abc")
    assert PLAIN.secret_key in identity(PLAIN).secrets
    assert str(CLIENT.key) in identity(None, CLIENT).secrets
    shown = repr(identity(Basic(user="canary", password="hunter2"), CLIENT, {"x": "hunter3"}))
    assert not {"hunter2", "hunter3", pair, str(CLIENT.key)} & {part for part in re.split(r"[\s'(),=]", shown) if part}


@pytest.mark.parametrize(
    "auth",
    [
        Bearer(token="hunter2-t&/ken"),
        Basic(user="canary", password="hunter2-pü w"),
        ApiKey(key="hunter2/k+", query="key"),
        ApiKey(key="hunter2/k+", header="x-key", prefix="Key "),
        SigV4(region="r", service="s", access_key="a", secret_key="hunter2-x", session_token="hunter2-s"),
    ],
)
def test_no_credential_is_left_in_what_is_shown_of_an_exchange(auth: Auth) -> None:
    def echo(seen: Seen) -> Reply:
        told = {"results": [], "target": seen.target, "headers": dict(seen.headers)}
        return reply(json.dumps(told).encode(), headers={"x-echo": seen.headers.get("authorization", "none")})

    with peer(echo) as server:
        retriever = retriever_at(server.url, headers={"x-own": "Token hunter2-hü"}, auth=auth)
        (answer,) = answers_of(retriever, "why?", shows=True)
        assert "hunter2" in unquote(f"{server.seen[0].target} {server.seen[0].headers}")
    assert answer.exchange is not None
    shown = json.dumps([answer.exchange.response_body, dict(answer.exchange.request_headers), answer.exchange.url])
    assert MASK in json.loads(shown)[0]
    assert "hunter2" not in repr(answer)
    assert "hunter2" not in repr(answer.exchange) + shown
    assert b64encode(b"canary:hunter2").decode()[:16] not in shown


def knock(
    folder: Path, tls: Tls | None, *, clients: Authority | None = AUTHORITY, newest: ssl.TLSVersion | None = None
) -> Response:
    """Ask a server that admits only whom `clients` vouches for."""
    with peer(reply(b"welcome"), tls=serving(folder, SERVER, clients=clients, newest=newest)) as server:
        request = Request(url=f"https://localhost:{server.port}/", body=b"{}", timeout_seconds=10)
        return send_one(request, policy=ANYWHERE, auth=identity(None, tls))


TRUSTING = Tls(authority=AUTHORITY.certificate)
VERSIONS = pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
def test_client_certificate_is_shown_to_a_server_that_asks_for_one(tmp_path: Path, newest: ssl.TLSVersion) -> None:
    response = knock(tmp_path, CLIENT, newest=newest)
    assert (response.status, response.body) == (200, b"welcome")


@VERSIONS
@pytest.mark.parametrize(
    ("tls", "ours"),
    [
        (TRUSTING, "is missing"),
        (replace(TRUSTING, certificate=STRANGER.certificate, key=STRANGER.key), "may not be accepted"),
    ],
)
def test_failure_says_what_of_our_certificate_the_server_minds(
    tmp_path: Path, tls: Tls, ours: str, newest: ssl.TLSVersion
) -> None:
    response = knock(tmp_path, tls, newest=newest)
    assert response.failure is Failure.UNREACHABLE
    assert str(response.detail).endswith(f"; the server had asked for a client certificate: ours {ours}")


def test_server_that_asks_for_no_certificate_is_not_said_to(tmp_path: Path) -> None:
    response = knock(tmp_path, None, clients=None)
    assert str(response.detail).startswith("TLS: ")
    assert "client certificate" not in str(response.detail)
    assert knock(tmp_path, TRUSTING, clients=None).status == 200


def test_an_authority_of_our_own_stands_in_place_of_the_systems(tmp_path: Path) -> None:
    response = knock(tmp_path, Tls(authority=STRANGER.authority), clients=None)
    assert response.failure is Failure.UNREACHABLE
    assert str(response.detail).startswith("TLS: ")


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        (Tls(certificate=CLIENT.certificate, key=STRANGER.key), "does not fit the client certificate"),
        (Tls(certificate=CLIENT.certificate, key="nonsense"), "the key is not PEM"),
        (Tls(certificate=CLIENT.certificate), "the key is not PEM"),
        (AUTHORITY.issue("coalmine", passphrase=b"secret"), "without a passphrase"),
        (Tls(certificate="nonsense", key=CLIENT.key), "the client certificate cannot be read"),
        (Tls(authority="nonsense"), "the certificate of the authority cannot be read"),
    ],
)
def test_certificate_or_key_that_does_not_fit_is_a_failure_in_words(tmp_path: Path, tls: Tls, said: str) -> None:
    response = knock(tmp_path, tls)
    assert response.failure is Failure.UNREACHABLE
    assert said in str(response.detail)


def signature(seen: Seen, auth: SigV4) -> str:
    """Sign what arrived by the letter of AWS's documentation ("Create a signed AWS API request"), without libcurl."""
    named = dict(re.findall(r"(\w+)=([^,\s]+)", seen.headers["authorization"]))
    signed, day = named["SignedHeaders"], seen.headers["x-amz-date"][:8]
    parts = urlsplit(seen.target)
    pairs = sorted((quote(n, safe="~"), quote(v, safe="~")) for n, v in parse_qsl(parts.query, keep_blank_values=True))
    canonical = "\n".join(
        (
            seen.method,
            quote(parts.path, safe="/~"),  # encoded once more than it was sent, for all services but S3
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(seen.headers[name].split())}" for name in signed.split(";")),
            "",
            signed,
            sha256(seen.body).hexdigest(),
        )
    )
    scope = f"{day}/{auth.region}/{auth.service}/aws4_request"
    assert named["Credential"] == f"{auth.access_key}/{scope}"
    to_sign = f"AWS4-HMAC-SHA256\n{seen.headers['x-amz-date']}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{auth.secret_key}".encode()
    for part in (day, auth.region, auth.service, "aws4_request", to_sign):
        key = hmac.digest(key, part.encode(), "sha256")
    assert seen.headers["authorization"].startswith("AWS4-HMAC-SHA256 ")
    assert {"host", "x-amz-date"} <= set(signed.split(";"))
    return key.hex() if named["Signature"] == key.hex() else f"{key.hex()} from\n{canonical}"


@pytest.mark.parametrize(
    "path",
    ["/", "/knowledgebases/KB12/retrieve", "/a%20b/%C3%BC/x:y", "/q?b=2&a=1&a=0&empty=&%C3%BC=a%2Fb%20c", "/x?k"],
)
def test_requests_are_signed_as_aws_documents_it(path: str) -> None:
    seen = seen_of(PLAIN, path=path, headers=(header_line("content-type", "application/json"), b"x-own:  a   b "))
    assert re.search("Signature=([0-9a-f]+)", seen.headers["authorization"])[1] == signature(seen, PLAIN)  # type: ignore[index]  # fails as it should
    assert seen.headers["x-amz-content-sha256"] == sha256(seen.body).hexdigest()
    assert "x-amz-content-sha256" in seen.headers["authorization"]
    assert PLAIN.secret_key not in str(seen)


def test_session_token_is_sent_and_signed() -> None:
    auth = SigV4(region="us-east-1", service="aoss", access_key="ASIA", secret_key="s3cret", session_token="to/ken==")
    seen = seen_of(auth)
    assert seen.headers["x-amz-security-token"] == "to/ken=="
    assert "x-amz-security-token" in seen.headers["authorization"]
    assert seen.headers["authorization"].endswith(signature(seen, auth))


def test_each_request_of_an_exchange_is_signed_by_its_own_body() -> None:
    with peer(reply()) as server:
        requests = [Request(tag=n, url=server.url, body=str(n).encode()) for n in range(4)]
        requests.append(Request(tag=4, url=server.url, method="GET"))
        batches = exchange(requests, policy=ANYWHERE, concurrency=1, auth=identity(PLAIN))
        assert sum(map(len, batches)) == 5
        for seen in server.seen:
            assert seen.headers["authorization"].endswith(signature(seen, PLAIN))


def test_values_that_carry_headers_do_not_show_them() -> None:
    """Those of a retriever are in `test_secrets`."""
    request = Request(
        url="http://127.0.0.1/", headers=(b"authorization: hunter2",), timeout_seconds=1, max_body_bytes=1
    )
    assert "hunter2" not in repr(request)
