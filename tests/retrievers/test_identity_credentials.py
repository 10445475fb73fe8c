"""Credentials of each identity: whatever happens on the way, no request carries those of another."""

import json
import threading
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from app.base.addresses import ApiKey, Auth, Basic, Bearer, Endpoint, IdentityAuth, OAuth2, SigV4, retriever_policy
from app.base.db.engine import Store
from app.base.values import Answer, Outcome, Step
from app.retrievers.client.identities import IdentityProbe
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.probes import FailureSummary, summarize_failures
from app.retrievers.domain.retrievers import Dialect, Embedder, Lookup, ProbeContext, ProbeQuery, ResponseMapping
from tests.support.databases import Database, database
from tests.support.http_servers import SILENCE, Peer, Reply, Seen, peer, reply
from tests.support.mcp_peers import Tool, result
from tests.support.probed import answers_of, retriever_at
from tests.support.world import CHECK, World, canary, page

POLICY = retriever_policy()
FOUND = json.dumps({"results": [{"id": "a"}]}).encode()
USERS = [f"u-{number}" for number in range(30)]


def token_of(user: str) -> str:
    return f"hush-token-of-{user}"


def by_user(of: Mapping[str, Auth] | None = None) -> IdentityAuth:
    return IdentityAuth(by="user", of=of or {user: Bearer(token=token_of(user)) for user in USERS})


def described(url: str, auth: IdentityAuth | None = None, **changes: Any) -> Any:
    """Describe a retriever whose body says who asks, as nothing of it depends on: so a server can compare."""
    body = {"query": "{{ query }}", "user": "{{ user }}"}
    return retriever_at(url, options={"user": "nobody"}, json=body, auth=auth or by_user(), **changes)


def as_users(*users: str) -> list[dict[str, str]]:
    return [{"user": user} for user in users]


@dataclass
class Watching:
    """A retriever that notes who asked with whose token, and answers as told."""

    answer: Callable[[str, Seen], Reply] = field(default=lambda _user, _seen: reply(FOUND))
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __call__(self, seen: Seen) -> Reply:
        """Answer one request."""
        user = json.loads(seen.body)["user"] if seen.body else dict(parse_qsl(urlsplit(seen.target).query))["user"]
        self.pairs[user, seen.headers.get("authorization", "")] += 1
        return self.answer(user, seen)

    def are_own(self) -> bool:
        """Whether every request had the token of whoever asked."""
        return all(given == f"Bearer {token_of(user)}" for user, given in self.pairs)


def test_many_runs_at_once_ask_as_many_users_each_with_its_own_token() -> None:
    watching = Watching()
    users = USERS * 3
    queries = [f"q{number}" for number in range(len(users))]
    probe = RetrieverProbe(POLICY, "coalmine/test")
    with peer(watching) as server:
        asked = described(server.url)

        def run(_: int) -> list[Answer]:
            return answers_of(asked, *queries, variables=as_users(*users), probe=probe)

        with ThreadPoolExecutor(4) as pool:
            found = [answer for answers in pool.map(run, range(8)) for answer in answers]
    assert {one.outcome for one in found} == {Outcome.OK}
    assert watching.are_own()
    assert sum(watching.pairs.values()) == 8 * len(users)
    assert {user for user, _ in watching.pairs} == set(USERS)


def test_the_concurrency_of_the_retriever_holds_over_all_its_users() -> None:
    now, most, lock = 0, 0, threading.Lock()

    def slow(_user: str, _seen: Seen) -> Reply:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.02)
        with lock:
            now -= 1
        return reply(FOUND)

    with peer(Watching(answer=slow)) as server:
        asked = described(server.url, concurrency=3)
        answers_of(asked, *USERS, variables=as_users(*USERS))
    assert 1 < most <= 3


@pytest.mark.parametrize("first", [SILENCE, reply(b"", 429, {"retry-after": "0"}), reply(b"", 429)])
def test_what_is_sent_again_has_the_same_token(first: Reply) -> None:
    refused: set[str] = set()

    def once(user: str, _seen: Seen) -> Reply:
        if user in refused:
            return reply(FOUND)
        refused.add(user)
        return first

    watching = Watching(answer=once)
    with peer(watching) as server:
        asked = described(server.url, retries=1)
        found = answers_of(asked, *USERS[:6], variables=as_users(*USERS[:6]))
    assert {one.outcome for one in found} == {Outcome.OK}
    assert watching.are_own()
    assert min(watching.pairs.values()) == 2


def granting(expires: int = 3600) -> tuple[Callable[[Seen], Reply], list[str]]:
    """Give a token server whose tokens name their client and how many it had, and the clients that came."""
    clients: list[str] = []

    def grant(seen: Seen) -> Reply:
        pair = b64decode(seen.headers["authorization"].removeprefix("Basic ")).decode()
        client = pair.partition(":")[0]
        assert pair == f"{client}:secret-of-{client}"
        assert parse_qs(seen.body.decode())["grant_type"] == ["client_credentials"]
        clients.append(client)
        token = f"{client}.{clients.count(client)}"
        body = {"access_token": token, "token_type": "Bearer", "expires_in": expires}
        return reply(json.dumps(body).encode())

    return grant, clients


def clients_of(url: str, users: list[str]) -> IdentityAuth:
    return by_user({user: OAuth2(token_url=url, client_id=user, client_secret=f"secret-of-{user}") for user in users})


def test_each_user_has_its_own_client_whose_token_is_kept_from_run_to_run() -> None:
    watching, (grant, clients) = Watching(), granting()
    users = USERS[:5]
    with peer(watching) as server, peer(grant) as issuer:
        asked = described(server.url, clients_of(issuer.url, users))
        probe = RetrieverProbe(POLICY, "coalmine/test")
        for _ in range(3):
            answers_of(asked, *users, variables=as_users(*users), probe=probe)
    assert sorted(clients) == users
    assert set(watching.pairs) == {(user, f"Bearer {user}.1") for user in users}


def test_a_refused_token_is_replaced_for_its_user_alone() -> None:
    def forgetful(user: str, seen: Seen) -> Reply:
        return reply(b"", 401) if seen.headers["authorization"] == f"Bearer {user}.1" else reply(FOUND)

    watching, (grant, clients) = Watching(answer=forgetful), granting()
    users = USERS[:6]
    with peer(watching) as server, peer(grant) as issuer:
        asked = described(server.url, clients_of(issuer.url, users))
        found = answers_of(asked, *users, *users, variables=as_users(*users, *users))
    assert {one.outcome for one in found} == {Outcome.OK}
    assert Counter(clients) == dict.fromkeys(users, 2)
    assert {given for _, given in watching.pairs} == {f"Bearer {user}.{count}" for user in users for count in (1, 2)}
    assert all(given.startswith(f"Bearer {user}.") for user, given in watching.pairs)


def test_a_user_whose_client_is_refused_is_not_asked_as_another() -> None:
    grant, _ = granting()

    def picky(seen: Seen) -> Reply:
        is_first = b64decode(seen.headers["authorization"].removeprefix("Basic ")).startswith(b"u-0:")
        return reply(b'{"error": "invalid_client"}', 401) if is_first else grant(seen)

    watching = Watching()
    with peer(watching) as server, peer(picky) as issuer:
        asked = described(server.url, clients_of(issuer.url, ["u-0", "u-1"]))
        refused, found = answers_of(asked, "a", "b", variables=as_users("u-0", "u-1"))
        assert refused.address == f"127.0.0.1:{issuer.port}"
    assert (refused.outcome, refused.step) == (Outcome.REFUSED, Step.AUTHENTICATION)
    assert found.outcome is Outcome.OK
    assert set(watching.pairs) == {("u-1", "Bearer u-1.1")}


def test_a_redirect_takes_no_token_along() -> None:
    with peer(Watching()) as elsewhere:
        watching = Watching(answer=lambda *_: reply(b"", 307, {"location": elsewhere.url}))
        with peer(watching) as server:
            found = answers_of(described(server.url), "a", "b", variables=as_users("u-0", "u-1"))
        assert elsewhere.seen == []
    assert {one.http_status for one in found} == {307}
    assert watching.are_own()


def test_the_lookup_of_a_user_is_made_and_used_with_its_token_alone() -> None:
    def answer(seen: Seen) -> Reply:
        given = seen.headers["authorization"].removeprefix("Bearer ")
        if seen.target == "/id":
            return reply(json.dumps({"id": f"of-{given.removeprefix('hush-token-of-')}"}).encode())
        user = json.loads(seen.body)["user"]
        return reply(FOUND if (seen.target, given) == (f"/of-{user}", token_of(user)) else b"", 200)

    with peer(answer) as server:
        lookup = Lookup(name="id", url=f"{server.url}/id", path="id")
        asked = described(f"{server.url}/{{{{ id }}}}", lookup=lookup)
        found = answers_of(asked, *USERS[:5], variables=as_users(*USERS[:5]))
    assert {one.outcome for one in found} == {Outcome.OK}


def test_an_embedder_gets_no_token_of_a_user() -> None:
    def embed(seen: Seen) -> Reply:
        texts = json.loads(seen.body)["input"]
        return reply(json.dumps({"data": [{"embedding": [1.0, 2.0]} for _ in texts]}).encode())

    watching = Watching()
    with peer(watching) as server, peer(embed) as models:
        embedder = Embedder(endpoint=Endpoint(url=models.url, auth=Bearer(token="hush-models")), model="m")
        asked = described(server.url, embedder=embedder)
        asked = retriever_at(
            server.url,
            options=asked.options,
            auth=asked.auth,
            embedder=embedder,
            json={"vector": "{{ vector }}", "user": "{{ user }}"},
        )
        found = answers_of(asked, "a", "b", variables=as_users("u-0", "u-1"))
    assert {one.outcome for one in found} == {Outcome.OK}
    assert {seen.headers["authorization"] for seen in models.seen} == {"Bearer hush-models"}
    assert watching.are_own()


def test_whoever_has_no_credentials_is_not_asked_and_does_not_end_the_run() -> None:
    watching = Watching()
    strangers = [f"stranger-{number}" for number in range(12)]
    with peer(watching) as server:
        asked = described(server.url)
        users = [*strangers, "u-3"]
        *unasked, found = answers_of(asked, *users, variables=as_users(*users))
        (default,) = answers_of(asked, "a")
        batches = RetrieverProbe(POLICY, "coalmine/test")(
            ProbeContext(retriever=asked, k=5, run_id="run-7"),
            [ProbeQuery(position=place, query=one, vars={"user": one}) for place, one in enumerate(users)],
        )
        places = [place for batch in batches for place, _ in batch]
    assert found.outcome is Outcome.OK
    assert places[0] == 12
    assert {one.outcome for one in (*unasked, default)} == {Outcome.BLOCKED}
    assert unasked[0].detail == "user is 'stranger-0', for which auth: of has no credentials, so nobody was asked"
    assert str(default.detail).startswith("user is 'nobody', for which")
    assert watching.are_own()
    assert sum(watching.pairs.values()) == 2


def test_advice_about_missing_credentials_is_not_about_addresses() -> None:
    with peer(reply(FOUND)) as server:
        (answer,) = answers_of(described(server.url), "a")
    assert answer.address is not None
    summary = summarize_failures([answer], 1)
    assert isinstance(summary, FailureSummary)
    assert str(summary).startswith("retriever at 127.0.0.1:")
    assert "is blocked: user is 'nobody', for which auth: of has no credentials" in str(summary)
    assert summary.advice().startswith("Add the credentials of that identity under auth: of")


def test_credentials_of_every_kind_reach_their_user_alone() -> None:
    of: dict[str, Auth] = {
        "bearer": Bearer(token="hush-bearer"),
        "header": ApiKey(key="hush-header", header="x-key"),
        "query": ApiKey(key="hush-query", query="key"),
        "basic": Basic(user="basic", password="hush-basic"),
        "sigv4": SigV4(region="eu-1", service="es", access_key="AKID", secret_key="hush-sigv4"),
    }
    seen_of: dict[str, Seen] = {}

    def answer(seen: Seen) -> Reply:
        seen_of[json.loads(seen.body)["user"]] = seen
        return reply(FOUND)

    with peer(answer) as server:
        found = answers_of(described(server.url, by_user(of)), *of, variables=as_users(*of))
    assert {one.outcome for one in found} == {Outcome.OK}
    assert seen_of["bearer"].headers["authorization"] == "Bearer hush-bearer"
    assert seen_of["basic"].headers["authorization"] == f"Basic {b64encode(b'basic:hush-basic').decode()}"
    assert "Credential=AKID/" in seen_of["sigv4"].headers["authorization"]
    assert {name for name, one in seen_of.items() if "authorization" not in one.headers} == {"header", "query"}
    assert {name: one.headers.get("x-key") for name, one in seen_of.items() if "x-key" in one.headers} == {
        "header": "hush-header"
    }
    assert [name for name, one in seen_of.items() if "key=" in one.target] == ["query"]


def test_what_a_server_quotes_of_the_token_is_masked() -> None:
    def quoting(_user: str, seen: Seen) -> Reply:
        return reply(json.dumps({"error": f"you are {seen.headers['authorization']}"}).encode(), 403)

    with peer(Watching(answer=quoting)) as server:
        found = answers_of(described(server.url), "a", "b", variables=as_users("u-0", "u-1"), shows=True)
    assert {one.http_status for one in found} == {403}
    assert "hush" not in repr(found) + repr([one.exchange for one in found])


def test_closing_early_leaves_no_thread_behind() -> None:
    with peer(Reply(hang=True)) as server:
        asked = ProbeContext(retriever=described(server.url), k=5, run_id="run-7")
        queries = [ProbeQuery(position=place, query=user, vars={"user": user}) for place, user in enumerate(USERS)]
        batches = RetrieverProbe(POLICY, "coalmine/test")(asked, queries)
        with closing(batches):  # type: ignore[type-var] # a generator; Iterator has no close()
            assert next(batches) == []
        assert not [one for one in threading.enumerate() if one.name.startswith("identity")]


def test_what_a_probe_raises_is_raised_to_whoever_asks() -> None:
    def broken(context: ProbeContext, queries: Any, vectors: Any = None) -> Iterator[list[tuple[int, Answer]]]:
        del context, queries, vectors
        yield []
        raise RuntimeError("a bug")

    asked = ProbeContext(retriever=described("http://127.0.0.1:9/"), k=5, run_id="run-7")
    probe = IdentityProbe(broken, lambda _retriever, answers: answers)
    queries = [ProbeQuery(position=place, query="a", vars={"user": user}) for place, user in enumerate(USERS)]
    with pytest.raises(RuntimeError, match="a bug"):
        list(probe(asked, queries))


def test_each_user_has_a_session_of_its_own_with_an_mcp_server() -> None:
    calls: list[tuple[str, str, str]] = []
    opened: Counter[str] = Counter()
    lock = threading.Lock()

    class Sessions(Tool):
        """Names a session by the token it was opened with."""

        def __call__(self, seen: Seen) -> Reply:
            """Answer one request."""
            given = seen.headers["authorization"].removeprefix("Bearer ")
            message = json.loads(seen.body) if seen.body else {}
            with lock:
                if message.get("method") == "initialize":
                    opened[given] += 1
                if message.get("method") == "tools/call":
                    calls.append((message["params"]["arguments"]["user"], given, seen.headers["mcp-session-id"]))
                self.session = f"session-of-{given.replace('hush-token-of-', '')}"
                return super().__call__(seen)

    with peer(Sessions(call=lambda _: result({"result": [{"id": "a"}]}))) as server:
        asked = described(
            f"{server.url}/mcp", dialect=Dialect.MCP, tool="search", response=ResponseMapping(hits="result", id="id")
        )
        users = USERS[:4] * 2
        found = answers_of(asked, *(f"q{place}" for place in range(8)), variables=as_users(*users))
    assert {one.outcome for one in found} == {Outcome.OK}
    assert len(calls) == 8
    assert all((given, session) == (token_of(user), f"session-of-{user}") for user, given, session in calls)
    assert opened == {token_of(user): 1 for user in USERS[:4]}


@pytest.fixture(scope="module")
def roles() -> Iterator[Database]:
    """Serve documents of which a database role sees its own."""
    with database() as running:
        running.owner.execute("CREATE TABLE docs (id text, owner text)")
        running.owner.execute("INSERT INTO docs VALUES ('of-anna', 'anna'), ('of-ben', 'ben')")
        running.owner.execute("ALTER TABLE docs ENABLE ROW LEVEL SECURITY")
        running.owner.execute("CREATE POLICY own ON docs USING (owner = current_user)")
        for name in ("anna", "ben"):
            running.owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'hush-{name}'")
            running.owner.execute(f"GRANT SELECT ON docs TO {name}")
        yield running


def test_a_database_is_asked_by_the_role_of_each_user(roles: Database) -> None:
    of: dict[str, Auth] = {"A": Basic(user="anna", password="hush-anna"), "B": Basic(user="ben", password="hush-ben")}
    asked = retriever_at(
        roles.url,
        dialect=Dialect.SQL,
        json=None,
        options={"user": "A"},
        sql="SELECT id FROM docs WHERE :query <> ''",
        auth=by_user(of),
        response=ResponseMapping(hits="@", id="id"),
    )
    users = ["A", "B", "C"] * 3
    found = answers_of(asked, *(f"q{place}" for place in range(9)), variables=as_users(*users))
    ids = [None if one.ranking is None else one.ranking.ids for one in found]
    assert ids == [("of-anna",), ("of-ben",), None] * 3


CONTRACTS = {"acme-notice": "u-1", "globex-notice": "u-2"}


class Contracts:
    """A retriever that shows whoever has a token what is theirs; or everything."""

    leaks = False

    def __call__(self, seen: Seen) -> Reply:
        """Answer by the token alone."""
        owner = seen.headers["authorization"].removeprefix("Bearer hush-token-of-")
        own = sorted(CONTRACTS, key=lambda name: CONTRACTS[name] != owner)
        hits = [{"id": name, "document": name} for name in own if self.leaks or CONTRACTS[name] == owner]
        return reply(json.dumps({"results": hits}).encode())


def asked_as(user: str, own: str, other: str) -> dict[str, Any]:
    return canary(
        f"notice-{user}",
        query="How long is the notice period?",
        vars={"user": user},
        expected_chunks=[own],
        forbidden_chunks=[{"document": other}],
    )


@pytest.fixture
def contracts() -> Iterator[tuple[Contracts, Peer]]:
    service = Contracts()
    with peer(service) as server:
        yield service, server


def test_a_filter_that_is_switched_off_is_a_leak_in_the_next_run(
    sqlite_store: Store, contracts: tuple[Contracts, Peer], caplog: pytest.LogCaptureFixture
) -> None:
    service, server = contracts
    world = World(store=sqlite_store, probe=RetrieverProbe(POLICY, "coalmine/test"))  # type: ignore[arg-type] # the real one
    retriever = {
        "slug": "search",
        "url": server.url,
        "options": {"user": "nobody"},
        "auth": {
            "by": "user",
            "of": {user: {"kind": "bearer", "token": token_of(user)} for user in ("u-1", "u-2")},
        },
        "request": {"json": {"q": "{{ query }}"}},
        "response": {"hits": "results", "id": "id", "document": "document"},
    }
    asked = [asked_as("u-1", "acme-notice", "globex-notice"), asked_as("u-2", "globex-notice", "acme-notice")]
    world.apply({**page(asked, fetch_k=10), "retrievers": [retriever]})
    shown = world.shown(world.run())
    assert (shown["verdict"], shown["coverage"]) == ("healthy", 1.0), shown["reasons"]
    assert world.alerts() == []

    service.leaks = True
    leaking = world.run()
    [alert] = world.alerts()
    assert (alert["kind"], alert["severity"], alert["check"]) == ("leak", "critical", CHECK)
    assert alert["since_run"] == str(leaking.id)
    assert "notice-u-1 (user u-1) got globex-notice at rank 2" in alert["reason"]
    assert "notice-u-2 (user u-2) got acme-notice at rank 2" in alert["reason"]
    world.deliver_all()
    told = "".join(str(message.body) for _, message in world.send.sent)
    assert "hush-token" not in told + caplog.text + json.dumps(alert, default=str)

    service.leaks = False
    world.run()
    world.run()
    assert [one["state"] for one in world.alerts()] == ["resolved"]
    assert {seen.headers["authorization"] for seen in server.seen} == {f"Bearer {token_of(u)}" for u in ("u-1", "u-2")}
