"""Facts of the index: asked for once a run, stored with it, unknown with a reason, and never a run's fault."""

from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.values import Outcome, RunStatus, Verdict
from app.catalog.documents.secrets import content_hash
from app.index_facts import service
from app.index_facts import store as rows
from app.index_facts.domain import IndexFactView
from app.records.store import expired
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import ProbeQuery
from tests.runs.test_shared_runs import Replica
from tests.support.fakes import answered, failed, hits
from tests.support.present import present
from tests.support.world import CHECK, RETRIEVER, World, canary, page

FACTS = {
    "documents": {"url": "/stats", "path": "docs.count"},
    "segments": {"url": "/stats", "path": "segments"},
    "free": {"url": "/disk", "path": "free", "method": "POST", "json": {"of": "index"}},
}


def world_with(store: Store, **more: Any) -> World:
    """Make a world whose retriever tells facts of its index."""
    world = World(store=store)
    described = {**page([canary("one"), canary("two")]), "retrievers": [{**RETRIEVER, "facts": FACTS, **more}]}
    world.apply(described)
    world.probe.facts = {"documents": 100_000.0, "segments": 7.0, "free": 0.25}
    return world


def read(world: World, run_id: int) -> dict[str, IndexFactView]:
    """Return the facts of a run by name."""
    return {one["fact"]: one for one in service.load_run_facts(world.store, str(run_id))["items"]}


def test_facts_are_asked_for_once_a_run_and_equal_requests_once(store: Store) -> None:
    world = world_with(store)
    run = world.run()
    assert {name: one["value"] for name, one in read(world, run.id).items()} == {
        "documents": 100_000,
        "segments": 7,
        "free": 0.25,
    }
    asked = [(one.retriever.url, one.retriever.method, dict(one.retriever.reads or {})) for one in world.probe.beside]
    assert asked == [
        ("http://search.test/stats", "GET", {"documents": "docs.count", "segments": "segments"}),
        ("http://search.test/disk", "POST", {"free": "free"}),
    ]
    assert run.verdict is Verdict.HEALTHY


def test_a_fact_is_shown_beside_what_it_was_before(store: Store) -> None:
    world = world_with(store)
    first = world.run()
    world.probe.facts["documents"] = 102_500.0
    second = world.run()
    now = read(world, second.id)["documents"]
    assert (now["before"], now["before_run"], now["change"]) == (100_000, str(first.id), 0.025)
    assert read(world, first.id)["documents"]["before"] is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (failed(Outcome.REFUSED, http_status=403), "the retriever answers HTTP 403"),
        (failed(Outcome.TIMEOUT), "the retriever does not answer in time"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_a_reason_and_the_run_goes_on(
    store: Store, answer: Any, reason: str
) -> None:
    world = world_with(store)
    world.probe.facts = {"documents": answer, "free": 0.5}
    run = world.run()
    found = read(world, run.id)
    assert (found["documents"]["value"], found["documents"]["reason"]) == (None, reason)
    assert (found["segments"]["value"], found["segments"]["reason"]) == (None, reason)
    assert found["free"]["value"] == 0.5
    assert (run.status, run.verdict) == (RunStatus.FINISHED, Verdict.HEALTHY)


def test_an_error_of_our_own_is_a_fact_unknown(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    world = world_with(store)
    world.probe.facts = {"documents": "broken", "segments": 1.0, "free": 1.0}  # type: ignore[dict-item] # as a bug would
    asked = world.probe

    def break_down(context: Any, queries: Any) -> Any:
        if context.retriever.reads is not None:
            raise RuntimeError("a bug")
        return asked(context, queries)

    world.probe = break_down  # type: ignore[assignment] # a probe all the same
    run = world.run()
    assert read(world, run.id)["documents"]["reason"] == "an error in Coalmine; the log has the details"
    assert run.verdict is Verdict.HEALTHY
    assert "bug" in caplog.text


def test_nothing_is_asked_of_a_retriever_that_is_down(store: Store) -> None:
    world = world_with(store, breaker=1)
    world.probe.all_fail()
    world.probe.batch = 1
    run = world.run()
    assert read(world, run.id)["documents"]["reason"] == "the run was ended early"
    assert world.probe.beside == []


def test_a_store_that_hangs_holds_a_run_up_no_longer_than_its_bound(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_with(store)
    now = iter(range(0, 1_000, 3))
    monkeypatch.setattr("app.index_facts.service.time.monotonic", lambda: float(next(now)))
    asked = world.probe

    def hang(context: Any, queries: Any) -> Any:
        if context.retriever.reads is None:
            yield from asked(context, queries)
            return
        while True:
            yield []

    world.probe = hang  # type: ignore[assignment] # a probe all the same
    run = world.run()
    reasons = {one["reason"] for one in read(world, run.id).values()}
    assert reasons == {"all facts together may take 5 s"}


def test_facts_go_with_their_run(store: Store) -> None:
    world = world_with(store)
    runs = [world.run().id for _ in range(3)]
    series = service.load_series(store, CHECK, limit=2)
    assert [one["run"] for one in series["items"]] == [str(runs[2]), str(runs[1])]
    assert series["next"] == str(runs[1])
    assert series["items"][0]["facts"]["documents"]["value"] == 100_000
    with store.write() as connection:
        assert expired.drop_runs(connection, runs[:1]) == 1
        assert rows.facts_of(connection, runs).keys() == set(runs[1:])


def test_facts_are_of_what_the_check_asks_for(store: Store) -> None:
    facts = {"documents": {"url": "/{{ tenant }}/stats", "path": "n"}}
    described = page([canary("one")], vars={"tenant": "acme"})
    retriever = {**RETRIEVER, "options": {"tenant": "none"}, "facts": facts}
    world = World(store=store)
    world.apply({**described, "retrievers": [retriever]})
    asked: list[ProbeQuery] = []
    answer = world.probe

    def note(context: Any, queries: Any) -> Any:
        asked.extend(queries if context.retriever.reads is not None else ())
        return answer(context, queries)

    world.probe = note  # type: ignore[assignment] # a probe all the same
    world.run()
    assert [one.vars for one in asked] == [{"tenant": "acme"}]


def test_another_index_is_not_compared_with(store: Store) -> None:
    world = world_with(store)
    world.run()
    described = {**page([canary("one")]), "retrievers": [{**RETRIEVER, "facts": {"documents": FACTS["free"]}}]}
    world.apply(described)
    world.probe.facts["documents"] = 5.0
    assert read(world, world.run().id)["documents"]["before"] is None


def test_only_asks_that_belong_to_it_are_made_of_a_preset() -> None:
    document = {
        "slug": "docs",
        "preset": "chroma",
        "url": "http://chroma.test",
        "options": {"collection": "docs"},
        "embedding": {"url": "http://e.test", "model": "m"},
    }
    plain = parse_document(RetrieverDocument, document)
    assert [one.name for one in plain.to_domain().facts] == ["vectors", "dimension"]
    assert plain.data()["facts"] is None
    nothing: tuple[Any, ...] = ({}, False)
    for off in nothing:
        assert parse_document(RetrieverDocument, {**document, "facts": off}).to_domain().facts == ()
    elsewhere = parse_document(RetrieverDocument, {**document, "url": "http://proxy.test/search"})
    assert elsewhere.to_domain().facts == ()


def test_a_retriever_without_facts_keeps_its_hash() -> None:
    document = parse_document(RetrieverDocument, {"slug": "docs", "url": "http://search.test/"})
    assert content_hash(document) == "20e09c3d684ef40647673c19090c419f48885c00cb5c0c0706371d7358544849"


def test_a_retriever_moves_with_its_facts() -> None:
    facts = {"documents": {"url": "http://search.test/stats", "path": "n"}, "free": {"url": "/disk", "path": "n"}}
    document = parse_document(RetrieverDocument, {"slug": "docs", "url": "http://search.test/s", "facts": facts})
    moved = document.at("http://other.test/s").to_domain()
    assert [one.url for one in moved.facts] == ["http://other.test/stats", "http://other.test/disk"]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"facts": {"n": {"url": "http://other.test/", "path": "n"}}}, "must be at the host of the retriever's url"),
        ({"facts": {"N": {"url": "/n", "path": "n"}}}, "must be a name of at most 40 lower-case letters"),
        ({"facts": {"n": {"url": "/n"}}}, "is missing; say where the number stands"),
        ({"facts": {"n": {"sql": "SELECT 1"}}}, "belongs to presets that speak SQL"),
        ({"facts": {"n": {"url": "/{{ query }}", "path": "n"}}}, "unknown placeholder"),
        ({"facts": {"exact_recall": {"url": "/n", "path": "n"}}}, "is the name of what exact searches measure"),
        ({"exact": True}, "is not known of this request"),
        ({"exact": {"settings": {"search_path": "x"}}}, "cannot be set"),
        ({"exact": {"json": {"q": "{{ nothing }}"}}}, "unknown placeholder"),
        ({"exact": {"json": {"exact": True}}}, "so every canary would ask the same"),
        ({"exact": {"json": {"v": "{{ vector }}"}}}, "needs query vectors"),
    ],
)
def test_what_cannot_be_asked_is_refused(part: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        parse_document(RetrieverDocument, {"slug": "docs", "url": "http://search.test/", **part})


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SELECT count(*) FROM t WHERE x = :query", "has the parameter ':query'"),
        ("SELECT count(*) FROM {{ other }}", "unknown placeholder"),
    ],
)
def test_statements_of_facts_are_checked(sql: str, sentence: str) -> None:
    document = {
        "slug": "docs",
        "preset": "pgvector",
        "url": "postgresql://db.test/docs",
        "auth": {"user": "u", "password": "p"},
        "options": {"table": "chunks"},
        "embedding": {"url": "http://e.test", "model": "m"},
        "facts": {"n": {"sql": sql}},
    }
    with pytest.raises(Exception, match=sentence):
        parse_document(RetrieverDocument, document)


def test_nothing_but_the_index_is_asked_in_exact_searches(store: Store) -> None:
    world = world_with(store, exact={"json": {"q": "{{ query }}", "k": "{{ k }}", "exact": True}}, facts={})
    world.probe.exact = lambda item: answered(hits(f"doc-{item.query}", "other", scores=(0.9, 0.895)))
    run = world.run()
    found = read(world, run.id)["exact_recall"]
    assert (found["value"], found["canaries"]) == (0.5, 2)
    asked = [one.retriever for one in world.probe.beside]
    assert [one.json["exact"] for one in asked] == [True]
    assert asked[0].concurrency == 2


@pytest.mark.databases
def test_facts_are_asked_for_once_where_processes_share_a_run_within_its_lane(postgresql_store: Store) -> None:
    world = world_with(postgresql_store, concurrency=10, exact={"json": {"q": "{{ query }}", "exact": True}})
    one, other = Replica(world), Replica(world)
    run_id = world.wish()
    ended = [*one.work(), *other.work()]
    assert [run.id for run in ended] == [run_id]
    found = read(world, run_id)
    assert (found["documents"]["value"], found["exact_recall"]["value"]) == (100_000, 1.0)
    assert len(world.probe.beside) == 3
    lanes = [present(asked.lane) for asked in world.probe.beside]
    assert {lane.number for lane in lanes} == {lanes[0].number}
    assert lanes[-1].concurrency == 2
