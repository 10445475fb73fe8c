"""OAuth2 client credentials, held against a token server: fetched, kept, renewed, and every refusal in words."""

import json
import threading
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

import pytest

from app.base.addresses import AddressPolicy, OAuth2, Tls, hook_policy, retriever_policy
from app.base.net.transfer import RequestAuth
from app.base.values import Answer, Outcome, replace
from app.retrievers.client.credentials import BACKOFF_SECONDS, MASK, MAX_TOKENS, CredentialError, Keyring
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.retrievers import (
    Lookup,
    ProbeContext,
    ProbeQuery,
)
from tests.support.certificates import Authority, serving
from tests.support.http_servers import SILENCE, Reply, Seen, closed_port, peer, reply
from tests.support.probed import retriever_at

ANYWHERE = retriever_policy()
AUTH = OAuth2(token_url="", client_id="canary:1", client_secret="hunter2 %ü", scope="read search", audience="docs")


class Clock:
    """Seconds that pass when told."""

    seconds = 0.0

    def __call__(self) -> float:
        """Tell them."""
        return self.seconds


def keyring(policy: AddressPolicy = ANYWHERE, clock: Callable[[], float] | None = None) -> Keyring:
    """Make one with nothing on it."""
    return Keyring(policy, "coalmine/1.0", clock=clock or Clock())


def granted(token: str = "t-1", **more: Any) -> Reply:  # noqa: S107 - a token of tests is no secret
    """Grant a token."""
    return reply(json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 3600, **more}).encode())


def header(identity: RequestAuth) -> bytes:
    """Read the one header of an identity."""
    [line] = identity.headers
    return line


def numbered() -> Callable[[Seen], Reply]:
    """Grant t-1, t-2, ..."""
    count = iter(range(1, 1000))
    return lambda _: granted(f"t-{next(count)}")


def form_of(seen: Seen) -> Mapping[str, list[str]]:
    """Read what was posted."""
    assert seen.headers["content-type"] == "application/x-www-form-urlencoded"
    return parse_qs(seen.body.decode(), strict_parsing=True)


def test_token_is_asked_for_as_the_rfc_says_and_sent_as_a_bearer() -> None:
    with peer(granted("a.b-c")) as server:
        identity = keyring().request_auth(replace(AUTH, token_url=f"{server.url}/token"), None, {"x-own": "hunter3"})
        [seen] = server.seen
    assert (seen.method, seen.target, seen.headers["user-agent"]) == ("POST", "/token", "coalmine/1.0")
    assert form_of(seen) == {"grant_type": ["client_credentials"], "scope": ["read search"], "audience": ["docs"]}
    scheme, _, pair = seen.headers["authorization"].partition(" ")
    user, _, password = b64decode(pair).decode().partition(":")
    assert (scheme, unquote_plus(user), unquote_plus(password)) == ("Basic", AUTH.client_id, AUTH.client_secret)
    assert header(identity) == b"authorization: Bearer a.b-c"
    assert {"a.b-c", AUTH.client_secret, pair, "hunter3"} <= set(identity.secrets)
    assert "a.b-c" not in repr(identity)


def test_scope_and_audience_are_left_out_where_there_are_none() -> None:
    with peer(granted()) as server:
        keyring().request_auth(replace(AUTH, token_url=server.url, scope=None, audience=None), None)
        assert form_of(server.seen[0]) == {"grant_type": ["client_credentials"]}


@pytest.mark.parametrize("refusal", [reply(b"who?", 401), reply(b'{"error": "invalid_client"}', 400)])
def test_server_that_does_not_know_the_header_is_given_the_form_and_that_is_remembered(refusal: Reply) -> None:
    clock = Clock()
    with peer(lambda seen: refusal if "authorization" in seen.headers else granted()) as server:
        keys = keyring(clock=clock)
        auth = replace(AUTH, token_url=server.url)
        assert header(keys.request_auth(auth, None)) == b"authorization: Bearer t-1"
        clock.seconds = 3600
        keys.request_auth(auth, None)
        first, second, third = server.seen
    assert "authorization" in first.headers
    for seen in (second, third):
        assert "authorization" not in seen.headers
        assert form_of(seen)["client_id"] == [AUTH.client_id]
        assert form_of(seen)["client_secret"] == [AUTH.client_secret]


@pytest.mark.parametrize(
    ("told", "kept"), [({}, 3000), ({"expires_in": 100}, 50), ({"expires_in": "100"}, 50), ({"expires_in": None}, 150)]
)
def test_token_is_kept_and_renewed_before_it_runs_out(told: dict[str, Any], kept: float) -> None:
    clock = Clock()
    with peer(granted(**told)) as server:
        keys = keyring(clock=clock)
        auth = replace(AUTH, token_url=server.url)
        for clock.seconds in (0, kept - 1):
            keys.request_auth(auth, None)
        assert len(server.seen) == 1
        clock.seconds = kept
        keys.request_auth(auth, None)
        assert len(server.seen) == 2


def test_senseless_life_is_no_error() -> None:
    for life in [0, -5, "-1", "inf", "nan", False, "soon", [], 10**400]:
        with peer(reply(json.dumps({"access_token": "t-1", "expires_in": life}).encode())) as server:
            assert (
                header(keyring().request_auth(replace(AUTH, token_url=server.url), None))
                == b"authorization: Bearer t-1"
            ), life


def test_forgotten_token_is_fetched_anew_and_others_stay() -> None:
    with peer(numbered()) as server:
        keys = keyring()
        one, other = replace(AUTH, token_url=server.url), replace(AUTH, token_url=server.url, scope="write")
        assert header(keys.request_auth(one, None)).endswith(b"t-1")
        assert header(keys.request_auth(other, None)).endswith(b"t-2")
        keys.forget(one)
        keys.forget(None)
        assert header(keys.request_auth(one, None)).endswith(b"t-3")
        assert header(keys.request_auth(other, None)).endswith(b"t-2")


def asking_with_token(server: str, tokens: str, **more: Any) -> ProbeContext:
    """Describe a run of a retriever that takes a token."""
    retriever = retriever_at(server, auth=replace(AUTH, token_url=tokens), **more)
    return ProbeContext(retriever=retriever, k=5, run_id="run-7")


def asked(probe: RetrieverProbe, asking: ProbeContext, count: int = 30) -> dict[int, Answer]:
    """Ask so often; each position comes once."""
    asks = [ProbeQuery(position=position, query="why?") for position in range(count)]
    answers = [pair for batch in probe(asking, asks) for pair in batch]
    assert len(answers) == count
    return dict(answers)


class Forgetful:
    """A search that knows one token alone."""

    token = "t-1"

    def __call__(self, seen: Seen) -> Reply:
        """Answer."""
        known = seen.headers["authorization"] == f"Bearer {self.token}"
        return reply(b'{"results": [], "hits": {"uuid": "i-7"}}') if known else reply(b"", 401)


def test_refused_token_is_forgotten_though_the_run_ends_at_once() -> None:
    search = Forgetful()
    with peer(numbered()) as tokens, peer(search) as server:
        probe = RetrieverProbe(ANYWHERE, "coalmine/1.0")
        asking = asking_with_token(server.url, tokens.url)
        asked(probe, asking)
        search.token = "t-2"
        batches = probe(asking, [ProbeQuery(position=position, query="why?") for position in range(3)])
        next(batches)
        batches.close()  # type: ignore[attr-defined] # a generator; Iterator has no close()
        assert {answer.outcome for answer in asked(probe, asking).values()} == {Outcome.OK}
        assert len(tokens.seen) == 2


@pytest.mark.parametrize("more", [{}, {"concurrency": 1, "requests_per_second": 100.0}])
def test_queries_refused_with_a_token_that_was_forgotten_are_asked_again_with_a_fresh_one(more: dict[str, Any]) -> None:
    search = Forgetful()
    with peer(numbered()) as tokens, peer(search) as server:
        probe = RetrieverProbe(ANYWHERE, "coalmine/1.0")
        asking = asking_with_token(server.url, tokens.url, **more)
        asked(probe, asking)
        search.token = "t-2"
        assert {answer.outcome for answer in asked(probe, asking).values()} == {Outcome.OK}
        shown = asked(probe, replace(asking, shows=True), 1)[0].exchange
        search.token = "t-3"
        assert asked(probe, replace(asking, shows=True), 1)[0].outcome is Outcome.OK
        assert len(tokens.seen) == 3
    assert shown is not None
    assert shown.request_headers["authorization"] == MASK


def test_fresh_token_that_is_refused_too_is_replaced_once_a_run() -> None:
    search = Forgetful()
    with peer(numbered()) as tokens, peer(search) as server:
        probe = RetrieverProbe(ANYWHERE, "coalmine/1.0")
        asking = asking_with_token(server.url, tokens.url, concurrency=1, requests_per_second=100.0)
        asked(probe, asking)
        search.token = "nobody's"
        del server.seen[:]
        answers = asked(probe, asking)
        assert {(answer.outcome, answer.http_status) for answer in answers.values()} == {(Outcome.REFUSED, 401)}
        assert len(tokens.seen) == 2
        assert len(server.seen) < 40  # what was under way with the old token alone is asked twice


def test_lookup_refused_with_a_token_that_was_forgotten_is_asked_again() -> None:
    search = Forgetful()
    with peer(numbered()) as tokens, peer(search) as server:
        probe = RetrieverProbe(ANYWHERE, "coalmine/1.0")
        lookup = Lookup(name="index", url=f"{server.url}/indexes", path="hits.uuid")
        asking = asking_with_token(f"{server.url}/{{{{ index }}}}", tokens.url, lookup=lookup)
        asked(probe, asking)
        search.token = "t-2"
        assert {answer.outcome for answer in asked(probe, asking).values()} == {Outcome.OK}


@pytest.mark.parametrize("change", [{"client_id": "x"}, {"client_secret": "x"}, {"scope": None}, {"audience": "x"}])
def test_each_client_secret_scope_and_audience_has_its_own_token(change: dict[str, Any]) -> None:
    with peer(numbered()) as server:
        keys = keyring()
        auth = replace(AUTH, token_url=server.url)
        assert header(keys.request_auth(auth, None)).endswith(b"t-1")
        assert header(keys.request_auth(replace(auth, **change), None)).endswith(b"t-2")
        assert header(keys.request_auth(auth, None)).endswith(b"t-1")


@pytest.mark.parametrize("answer", [granted(), reply(b"", 500)])
def test_many_that_need_a_token_at_once_ask_for_it_once(answer: Reply) -> None:
    many, asking, released = 8, threading.Semaphore(0), threading.Event()
    found: list[str] = []

    def slow(_: Seen) -> Reply:
        released.wait(20)
        return answer

    def clock() -> float:
        now = 1.0 if released.is_set() else 0.0
        asking.release()  # asking the time is the first thing whoever needs a token does
        return now

    with peer(slow) as server:
        keys = keyring(clock=clock)
        auth = replace(AUTH, token_url=server.url)

        def need() -> None:
            try:
                found.append(header(keys.request_auth(auth, None)).decode())
            except CredentialError as error:
                found.append(error.detail)

        threads = [threading.Thread(target=need) for _ in range(many)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert asking.acquire(timeout=20)
        released.set()
        for thread in threads:
            thread.join(20)
        assert len(server.seen) == 1
    assert len(found) == many
    assert len(set(found)) == 1


def failure(answer: Reply | Callable[[Seen], Reply], policy: AddressPolicy = ANYWHERE) -> CredentialError:
    """Fail to get a token."""
    with peer(answer) as server, pytest.raises(CredentialError) as caught:
        keyring(policy).request_auth(replace(AUTH, token_url=server.url), None)
    assert "hunter2" not in caught.value.detail
    assert "wisdom" not in caught.value.detail
    return caught.value


@pytest.mark.parametrize(
    ("answer", "outcome", "status", "detail"),
    [
        (reply(b"wisdom", 500), Outcome.REFUSED, 500, "the token endpoint answered 500"),
        (
            reply(b'{"error": "invalid_scope", "error_description": "wisdom"}', 400),
            Outcome.REFUSED,
            400,
            "the token endpoint answered 400 (invalid_scope)",
        ),
        (
            reply(b'{"error": "invalid_client"}', 401),
            Outcome.REFUSED,
            401,
            "the token endpoint answered 401 (invalid_client)",
        ),
        (reply(b'{"error": "wisdom"}', 400), Outcome.REFUSED, 400, "the token endpoint answered 400"),
        (reply(b'{"error": ["wisdom"]}', 400), Outcome.REFUSED, 400, "the token endpoint answered 400"),
        (
            reply(b"", 302, {"location": "http://wisdom/"}),
            Outcome.REFUSED,
            302,
            "the token endpoint answered 302; redirects are not followed",
        ),
        (reply(b"wisdom"), Outcome.MALFORMED, 200, "the answer of the token endpoint holds no access_token"),
        (reply(b"[1]"), Outcome.MALFORMED, 200, "the answer of the token endpoint holds no access_token"),
        (
            reply(b'{"access_token": 1}'),
            Outcome.MALFORMED,
            200,
            "the answer of the token endpoint holds no access_token",
        ),
        (granted(" "), Outcome.MALFORMED, 200, "the answer of the token endpoint holds no access_token"),
        (
            granted(token_type="wisdom"),
            Outcome.MALFORMED,
            200,
            "the token endpoint gave a token of another type than bearer",
        ),
        (granted("wis\r\ndom"), Outcome.MALFORMED, None, "the token endpoint gave a token that cannot be sent"),
        (SILENCE, Outcome.UNREACHABLE, None, "the token endpoint: the connection was closed without an answer"),
        (reply(bytes(200_000)), Outcome.OVERSIZE, 200, "the token endpoint: the answer is larger than 100,000 bytes"),
    ],
)
def test_refusal_is_told_in_words_without_secret_or_body(
    answer: Reply, outcome: Outcome, status: int | None, detail: str
) -> None:
    error = failure(answer)
    assert (error.outcome, error.http_status, error.detail, str(error)) == (outcome, status, detail, detail)


def test_token_endpoint_falls_under_the_same_address_policy() -> None:
    error = failure(granted(), hook_policy())
    assert error.outcome is Outcome.BLOCKED
    assert error.detail == "the token endpoint: not allowed to connect: loopback address 127.0.0.1"


def test_token_endpoint_has_an_authority_and_a_certificate_of_its_own(tmp_path: Path) -> None:
    authority = Authority()
    context = serving(tmp_path, authority.issue("localhost"), clients=authority)
    with peer(numbered(), tls=context) as server:
        auth = replace(AUTH, token_url=f"https://localhost:{server.port}/token")
        keys = keyring()
        of_the_retriever = authority.issue("coalmine")
        with pytest.raises(CredentialError, match=r"a private authority goes under auth: {tls: {authority: \.\.\.}}$"):
            keys.request_auth(auth, of_the_retriever)
        with pytest.raises(CredentialError) as caught:
            keys.request_auth(replace(auth, tls=Tls(authority=authority.certificate)), None)
        assert "asked for a client certificate" in str(caught.value)
        own = authority.issue("client")
        identity = keys.request_auth(replace(auth, tls=own), of_the_retriever)
    assert (header(identity), identity.tls) == (b"authorization: Bearer t-1", of_the_retriever)
    assert {own.key, of_the_retriever.key} <= set(identity.secrets)
    assert str(own.key) not in repr(auth) + repr(replace(auth, tls=own))


def test_unreachable_token_endpoint_is_told_from_a_blocked_one() -> None:
    with closed_port() as port, pytest.raises(CredentialError) as caught:
        keyring().request_auth(replace(AUTH, token_url=f"http://127.0.0.1:{port}"), None)
    assert caught.value.outcome is Outcome.UNREACHABLE


def test_failure_is_kept_for_some_seconds_alone() -> None:
    answers = iter([reply(b"", 500), granted()])
    clock = Clock()
    with peer(lambda _: next(answers)) as server:
        keys = keyring(clock=clock)
        auth = replace(AUTH, token_url=server.url)
        for clock.seconds in (0, BACKOFF_SECONDS - 1):
            with pytest.raises(CredentialError, match="answered 500"):
                keys.request_auth(auth, None)
        assert len(server.seen) == 1
        clock.seconds = BACKOFF_SECONDS
        assert header(keys.request_auth(auth, None)) == b"authorization: Bearer t-1"


def test_token_that_cannot_be_renewed_early_is_used_until_it_runs_out() -> None:
    clock = Clock()
    answers = iter([granted(expires_in=100), reply(b"", 500), reply(b"", 500), reply(b"", 503), granted("t-2")])
    with peer(lambda _: next(answers)) as server:
        keys = keyring(clock=clock)
        auth = replace(AUTH, token_url=server.url)
        asked = {}
        for clock.seconds in (0, 50, 50 + BACKOFF_SECONDS - 1, 50 + BACKOFF_SECONDS, 99):
            assert header(keys.request_auth(auth, None)) == b"authorization: Bearer t-1"
            asked[clock.seconds] = len(server.seen)
        assert list(asked.values()) == [1, 2, 2, 3, 4]
        clock.seconds = 100
        with pytest.raises(CredentialError, match="answered 503"):
            keys.request_auth(auth, None)
        clock.seconds = 99 + BACKOFF_SECONDS
        assert header(keys.request_auth(auth, None)) == b"authorization: Bearer t-2"


def test_token_endpoint_that_asks_for_patience_gets_it() -> None:
    clock = Clock()
    answers = iter([reply(b"", 429, {"retry-after": "30"}), granted()])
    with peer(lambda _: next(answers)) as server:
        keys = keyring(clock=clock)
        auth = replace(AUTH, token_url=server.url)
        for clock.seconds in (0, 29):
            with pytest.raises(CredentialError, match="answered 429"):
                keys.request_auth(auth, None)
        assert len(server.seen) == 1
        clock.seconds = 30
        assert header(keys.request_auth(auth, None)) == b"authorization: Bearer t-1"


def test_tokens_do_not_pile_up() -> None:
    with peer(granted()) as server:
        keys = keyring()
        for n in range(MAX_TOKENS + 2):
            keys.request_auth(replace(AUTH, token_url=server.url, scope=str(n)), None)
    assert len(keys._tokens) == MAX_TOKENS
