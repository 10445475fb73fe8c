"""Why probes failed, as people are told: which step, at which host, with which error; of real servers that fail."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, cast

import msgspec
import pytest

from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.base.values import Answer, Outcome, Step, replace
from app.records.store.open_runs import Failure
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.domain.probes import FailureSummary, summarize_failures, url_address
from tests.support.embedders import FakeModel
from tests.support.fakes import answered, failed, hits
from tests.support.http_servers import Peer, Reply, Seen, closed_port, peer, reply
from tests.support.world import RETRIEVER, World, canary, page

KEYS = ("ant", "bee", "cat", "dog")
Serve = Callable[[Callable[[Seen], Reply]], Peer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as servers:
        yield lambda answer: servers.enter_context(peer(answer))


def found(seen: Seen) -> Reply:
    query = json.loads(seen.body).get("q", "ant")
    return reply(json.dumps({"hits": [{"id": f"doc-{query}", "score": 0.9}]}).encode())


def broken(status: int) -> Callable[[Seen], Reply]:
    return lambda _: reply(b"", status)


def outage(store: Store, retriever: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Carry out two runs against real servers; give the last run, and the alert they opened."""
    world = World(store=store)
    world.probe = cast("Any", RetrieverProbe(retriever_policy(), "coalmine/1.0"))
    document = {"slug": "search", "breaker": None} if "preset" in retriever else {**RETRIEVER, "breaker": None}
    world.apply(page([canary(key) for key in KEYS]) | {"retrievers": [{**document, **retriever}]})
    world.run()
    run = world.run()
    (alert,) = world.alerts()
    assert (alert["kind"], alert["state"]) == ("probe_errors", "firing")
    return world.shown(run), alert


def by_vector(url: str, embedder: str) -> dict[str, Any]:
    request = {"method": "POST", "json": {"q": "{{ query }}", "v": "{{ vector }}"}}
    return {"url": url, "request": request, "embedding": {"url": embedder, "model": "one"}}


def test_an_embedder_that_answers_500_and_a_retriever_that_is_gone_are_told_apart(store: Store, serve: Serve) -> None:
    embedder = serve(broken(500))
    run, alert = outage(store, by_vector(serve(found).url, f"{embedder.url}/v1/embeddings?key=s3cret"))
    address = embedder.url.removeprefix("http://")
    assert run["reasons"] == [f"only 0 of 4 probes measured: embedder at {address} answers HTTP 500 (4 of 4 probes)"]
    assert run["probes_by_step"] == {"embedder": {"refused": 4}}
    assert alert["reason"].startswith(
        f"4 of 4 probes failed, so the run is unknown: embedder at {address} answers HTTP 500 (critical)"
    )
    told = FailureSummary.from_json(alert["evidence"]["failure"])
    assert (told.step, told.address, told.http_status, told.count, told.total) == (Step.EMBEDDER, address, 500, 4, 4)
    assert "s3cret" not in json.dumps([run, alert])


def test_a_retriever_that_is_stopped_is_named_with_its_address(store: Store, serve: Serve) -> None:
    with closed_port() as port:
        embedder = f"{serve(FakeModel()).url}/v1/embeddings"
        run, alert = outage(store, by_vector(f"http://127.0.0.1:{port}/search?token=pa55", embedder))
    assert run["reasons"] == [
        f"only 0 of 4 probes measured: retriever at 127.0.0.1:{port} is unreachable: Connection refused (4 of 4 probes)"
    ]
    assert f"retriever at 127.0.0.1:{port} is unreachable: Connection refused" in alert["reason"]
    assert "pa55" not in json.dumps([run, alert])


def test_a_lookup_that_is_down_is_named_and_counted_by_its_step(store: Store, serve: Serve) -> None:
    server = serve(lambda seen: found(seen) if seen.method == "POST" else reply(b"", 503))
    embedding = {"url": f"{serve(FakeModel()).url}/v1/embeddings", "model": "one"}
    chroma = {"preset": "chroma", "url": server.url, "options": {"collection": "docs"}, "embedding": embedding}
    run, alert = outage(store, chroma)
    assert run["probes_by_step"] == {"lookup": {"refused": 4}}
    address = server.url.removeprefix("http://")
    assert run["reasons"] == [
        f"only 0 of 4 probes measured: collection lookup at {address} answers HTTP 503 (4 of 4 probes)"
    ]
    assert alert["evidence"]["failure"]["step"] == "lookup"


def test_a_token_endpoint_that_fails_is_named_as_itself(store: Store, serve: Serve) -> None:
    tokens = serve(broken(500))
    auth = {"kind": "oauth2", "token_url": f"{tokens.url}/token", "client_id": "us", "client_secret": "s3cret-one"}
    run, _ = outage(store, {"url": serve(found).url, "auth": auth})
    address = tokens.url.removeprefix("http://")
    assert run["reasons"] == [
        f"only 0 of 4 probes measured: token endpoint at {address} answers HTTP 500 (4 of 4 probes)"
    ]
    assert run["probes_by_step"] == {"authentication": {"refused": 4}}


def test_the_alert_of_a_run_ended_early_says_who_failed(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary(f"q{number}") for number in range(250)]) | {"retrievers": [{**RETRIEVER, "breaker": 10}]})
    world.probe.otherwise = lambda _: replace(failed(Outcome.REFUSED, http_status=502), address="search.test")
    world.run()
    run = world.shown(world.run())
    early, told = run["reasons"]
    assert early == "the run was ended early: 10 probes in a row failed (10 HTTP 502)"
    sent = 250 - run["probes"]["skipped"]
    assert told == f"retriever at search.test answers HTTP 502 ({sent} of 250 probes, {250 - sent} were not sent)"
    (alert,) = world.alerts()
    assert alert["evidence"]["failure"]["text"] == told


def test_a_share_of_failed_probes_is_told_with_what_most_of_them_share(store: Store) -> None:
    world = World(store=store)
    rule = {"kind": "probe_errors", "failed_share": 0.3}
    world.apply(page([canary(key) for key in KEYS], rules=[rule]))
    world.probe.otherwise = lambda ask: answered(hits(f"doc-{ask.query}"))
    for key in KEYS[:2]:
        world.probe.answers[key] = replace(failed(Outcome.TIMEOUT), address="search.test")
    world.run()
    world.run()
    (alert,) = world.alerts()
    assert alert["reason"].startswith(
        "2 of 4 probes failed, more than 30 % of them: retriever at search.test does not answer in time (warning)"
    )


# --- the summary ---------------------------------------------------------------------------------------------


def test_the_commonest_failure_is_told_and_the_others_are_counted() -> None:
    refused = Answer(latency_seconds=0.0, outcome=Outcome.REFUSED, http_status=429, address="a.test")
    late = Answer(latency_seconds=0.0, outcome=Outcome.TIMEOUT, address="a.test")
    skipped = Answer(latency_seconds=0.0, outcome=Outcome.SKIPPED)
    assert str(summarize_failures([late, refused, refused, skipped], 9)) == (
        "retriever at a.test answers HTTP 429 (2 of 9 probes, 1 failed otherwise, 1 was not sent)"
    )
    assert summarize_failures([skipped] * 3, 3) is None
    assert summarize_failures([], 3) is None


def test_failures_of_releases_that_kept_no_address_are_read_and_told_without_one() -> None:
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(["refused", 500, "answered 500"]), type=Failure)
    assert str(summarize_failures([stored], 1)) == "retriever answers HTTP 500 (1 of 1 probe)"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8220/v1/embeddings?key=secret", "127.0.0.1:8220"),
        ("https://user:secret@api.example.org/search#secret", "api.example.org"),
        ("postgresql://reader:secret@db:5432/docs", "db:5432"),
        ("http://[::1]:9200/_search", "[::1]:9200"),
        ("https://{{ region }}.example.org/search", "eu.example.org"),
        ("https://{{ tenant }}.example.org/search", None),
        ("http://[broken/", None),
        ("/no/host", None),
    ],
)
def test_an_address_is_host_and_port_and_never_more(url: str, address: str | None) -> None:
    assert url_address(url, {"region": "eu"}) == address
