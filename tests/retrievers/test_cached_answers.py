"""Answers of a cache before the retriever: told of the run, whether the service or the gate makes it."""

from app.base.db.engine import Store
from app.base.net.transfer import cache_sign
from app.base.values import Answer, replace
from app.catalog.documents.canary_files import read_canary_files
from app.records.service import run_views
from app.runs.service import rescoring
from app.runs.service.gate import choose_targets, measure
from tests.support.fakes import FakeClock, FakeProbe, answered, hits
from tests.support.http_servers import peer, reply
from tests.support.probed import answers_of, retriever_at
from tests.support.world import CHECK, World, canary, page

REMARK = "came from a cache before the retriever (age: 300): what the index answers now was not measured"


def test_a_cache_is_known_by_its_header() -> None:
    for line, sign in [
        ("Age: 300", "Age: 300"),
        ("age:0007", "age:0007"),
        ("X-Cache: HIT from proxy.example.org", "X-Cache: HIT"),
        ("X-Cache: Hit from cloudfront", "X-Cache: Hit"),
        ("X-Cache: MISS, HIT", "X-Cache: MISS, HIT"),
        ("X-Cache: TCP_MEM_HIT from a1", "X-Cache: TCP_MEM_HIT"),
        ("CF-Cache-Status: STALE", "CF-Cache-Status: STALE"),
        ("Cache-Status: Edge; hit; ttl=30", "Cache-Status: Edge; hit"),
        ("Age: 0", None),
        ("Age: soon", None),
        ("X-Cache: Miss from cloudfront", None),
        ("X-Cache: RefreshHit from cloudfront", None),
        ("CF-Cache-Status: REVALIDATED", None),
        ("CF-Cache-Status: DYNAMIC", None),
        ("Cache-Status: Edge; fwd=uri-miss; stored", None),
        ("Cache-Control: max-age=300", None),
        ("X-Note: age: 300", None),
        ("X-Age: 300", None),
    ]:
        lines = [b"HTTP/1.1 200 OK\r\n", b"content-type: application/json\r\n", line.encode() + b"\r\n", b"\r\n"]
        assert cache_sign(lines) == sign, line


def ask(status: int, headers: dict[str, str]) -> Answer:
    """Send one query to a server that answers so."""
    with peer(reply(b'{"results": [{"id": "a"}]}', status, headers)) as server:
        return answers_of(retriever_at(server.url), "q")[0]


def test_answers_and_errors_of_a_cache_are_told_from_those_of_the_retriever() -> None:
    assert ask(200, {"age": "300"}).cache_sign == "age: 300"
    assert ask(504, {"x-cache": "Error from cloudfront", "age": "12"}).cache_sign == "age: 12"
    assert ask(200, {"x-cache": "MISS"}).cache_sign is None


def test_a_run_says_how_many_answers_were_a_cache_s(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary(f"b{number}") for number in range(120)], hooks=[]))
    assert world.shown(world.run())["reasons"] == []
    world.probe.otherwise = lambda item: replace(answered(hits(f"doc-{item.query}")), cache_sign="age: 300")
    for _ in range(2):
        run = world.shown(world.run())
        assert (run["verdict"], run["reasons"]) == ("healthy", [f"120 of 120 answers {REMARK}"])
    world.apply(page([canary(f"b{number}", min_relevance_score=0.1) for number in range(120)], hooks=[]))
    asked = rescoring.ask(world.store, CHECK, since=None, now=world.clock())
    rescoring.claim(world.store, owner="one", now=world.clock(), only=asked)
    assert rescoring.carry_on(world.store, asked, owner="one", clock=world.clock)
    version = rescoring.show(world.store, asked)["measures_version"]
    report = run_views.report(world.store, str(run["id"]), version=version)
    assert report["run"]["reasons"] == [f"120 of 120 answers {REMARK}"]


def test_the_gate_says_so_too() -> None:
    text = """
suite: s
canaries: [{key: b0, query: b0, expected_chunks: [doc-b0]}, {key: b1, query: b1, expected_chunks: [doc-b1]}]
retrievers: [{slug: r, url: "http://127.0.0.1:1/", response: {hits: hits, id: id, score: score}}]
checks: [{slug: c, suite: s, retriever: r, schedule: {every: 1h}}]
"""
    (target,) = choose_targets(read_canary_files([("a.yaml", text)], {}, None))
    probe = FakeProbe(answers={"b0": replace(answered(hits("doc-b0")), cache_sign="age: 300")})
    report = measure(target, probe, run_id="run-1", clock=FakeClock())
    assert f"1 of 2 answers {REMARK}" in report["run"]["reasons"]
