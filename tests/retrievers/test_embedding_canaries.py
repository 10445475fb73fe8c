"""Embedding canaries in runs: a changed embedder is named, alerted on once, and accepted by people only."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.base.errors import NotFoundError
from app.operation.service import retention
from app.records.service.plans import NotExecutableError, Planner
from app.reports.metrics import Exposition
from app.retrievers.client.credentials import Keyring
from app.retrievers.client.embeddings import Embeddings
from app.retrievers.client.endpoint_client import EndpointClient
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.service import embedders
from app.runs.service import execution
from app.runs.service.finalising import EndedRun
from tests.support.embedders import FakeModel, constant, rounded
from tests.support.fakes import answered, hits
from tests.support.http_servers import HANG, Peer, Reply, Seen, peer, reply
from tests.support.present import present
from tests.support.world import RETRIEVER, World, canary, page

SLUG = "search"
AGENT = "coalmine/1.0"


def adapter() -> Embeddings:
    """Make an adapter that remembers nothing yet."""
    policy = retriever_policy()
    return Embeddings(EndpointClient(policy=policy, keyring=Keyring(policy, AGENT), user_agent=AGENT))


@dataclass(kw_only=True)
class Watch:
    """A world with an embedding server beside its retriever."""

    world: World
    server: Peer
    model: FakeModel = field(default_factory=FakeModel)

    def embedding(self, **changes: Any) -> dict[str, Any]:
        """Describe the embedder as a file does."""
        return {"url": f"{self.server.url}/v1/embeddings?key=hunter2", "model": "m", **changes}

    def define(self, *, rules: Any = None, **changes: Any) -> None:
        """Put a check in force whose retriever takes vectors."""
        described = page([canary("a"), canary("b")], **({} if rules is None else {"rules": rules}))
        described["retrievers"] = [{**RETRIEVER, "embedding": self.embedding(**changes)}]
        self.world.apply(described)

    def found(self, run: EndedRun | None = None) -> dict[str, Any]:
        """Run, unless it is done, and give what was found of the embedder."""
        found: dict[str, Any] = self.world.shown(run or self.world.run())["embedder"]
        return found

    def embedding_alerts(self) -> list[tuple[str, str, str]]:
        """List the alerts about the embedder: kind, state and severity."""
        return [
            (alert["kind"], alert["state"], alert["severity"])
            for alert in self.world.alerts()
            if alert["kind"] == "embedding"
        ]

    def alert_reason(self) -> str:
        """Give what is said of the alert about the embedder."""
        (alert,) = [alert for alert in self.world.alerts() if alert["kind"] == "embedding"]
        return str(alert["reason"])


@pytest.fixture
def watch(store: Store) -> Iterator[Watch]:
    """Give a world whose retriever takes vectors of a model."""
    model = FakeModel()
    with peer(model) as server:
        watched = Watch(world=World(store=store, embed=adapter()), server=server, model=model)
        watched.define()
        yield watched


def test_the_first_answer_is_learned_and_the_next_is_the_same(watch: Watch) -> None:
    first = watch.found()
    assert (first["outcome"], first["kind"], first["dimensions"]) == ("ok", "same", 64)
    assert first["reason"] == f"the embedder at 127.0.0.1:{watch.server.port} was learned by 9 texts"
    second = watch.found()
    assert (second["kind"], second["reason"]) == (
        "same",
        f"the embedder at 127.0.0.1:{watch.server.port} answers as it did",
    )
    assert {pair["agreement"] for pair in second["pairs"]} == {1.0}
    assert all(pair["cosine"] == pair["reference"] for pair in second["pairs"])
    assert watch.embedding_alerts() == []


def test_known_texts_are_asked_anew_in_every_run_before_the_retriever(watch: Watch) -> None:
    for count in (1, 2, 3):
        watch.found()
        assert len(watch.model.asked) == count
        assert len(watch.model.asked[-1]) == 9


def test_a_swapped_model_is_named_as_such_and_alerted_on_at_once(watch: Watch) -> None:
    watch.found()
    watch.model.model = "two"
    run = watch.world.run()
    found = watch.found(run)
    assert found["kind"] == "swapped"
    assert "answers with vectors of another model (cosine of known texts" in found["reason"]
    shown = watch.world.shown(run)
    assert (shown["verdict"], shown["reasons"]) == ("degraded", [f"{found['reason']} (critical)"])
    assert watch.embedding_alerts() == [("embedding", "firing", "critical")]
    (alert,) = [alert for alert in watch.world.alerts() if alert["kind"] == "embedding"]
    assert found["reason"] in alert["reason"]
    assert "hunter2" not in json.dumps([alert, shown])


def test_a_truncated_model_is_named_also_where_dimensions_are_declared(watch: Watch) -> None:
    watch.define(dimensions=64)
    watch.found()
    watch.model.dimensions = 16
    assert watch.found()["kind"] == "truncated"


def test_a_collapsed_model_is_named(watch: Watch) -> None:
    watch.found()
    watch.model.spoil = constant
    found = watch.found()
    assert found["kind"] == "collapsed"
    assert (
        "no longer tells texts apart: similar texts are closer than dissimilar ones by a cosine of" in found["reason"]
    )
    assert watch.embedding_alerts() == [("embedding", "firing", "critical")]


def test_drift_is_told_and_wakes_nobody(watch: Watch) -> None:
    watch.found()
    watch.model.spoil = lambda vectors: rounded(vectors, steps=8)
    run = watch.world.run()
    found = watch.found(run)
    assert found["kind"] == "drifted"
    assert f"the embedder at 127.0.0.1:{watch.server.port} answers slightly differently: " in found["reason"]
    assert watch.world.shown(run)["verdict"] == "healthy"
    assert watch.embedding_alerts() == []


def test_an_alert_about_the_embedder_closes_when_the_new_one_is_accepted(watch: Watch) -> None:
    watch.found()
    watch.model.model = "two"
    watch.found()
    embedders.reset_reference(watch.world.store, SLUG)
    assert watch.embedding_alerts() == [("embedding", "firing", "critical")]
    assert watch.found()["kind"] == "same"
    assert watch.embedding_alerts() == [("embedding", "resolved", "critical")]
    watch.model.model = "one"
    assert watch.found()["kind"] == "swapped"


@pytest.mark.parametrize(
    ("answer", "outcome", "told"),
    [
        (reply(b"words", 503), "refused", "answered 503 Service Unavailable: “words”"),
        (reply(b'{"secret": 1}'), "malformed", "the answer is not a list of embeddings"),
        (HANG, "timeout", "no complete answer within"),
    ],
)
def test_an_unreachable_embedder_is_its_own_outcome(watch: Watch, answer: Reply, outcome: str, told: str) -> None:
    """It neither opens an alert about the model nor closes one: nothing is known of it."""
    watch.define(timeout=0.3)
    watch.found()
    watch.model.model = "two"
    watch.found()
    watch.model.answer = lambda _: answer
    run = watch.world.run()
    found = watch.found(run)
    assert (found["outcome"], found["kind"], found["pairs"]) == (outcome, None, [])
    assert f"127.0.0.1:{watch.server.port} does not answer: {told}" in found["reason"]
    assert "secret" not in json.dumps(found)
    assert run.embedder == outcome
    assert watch.embedding_alerts() == [("embedding", "firing", "critical")]


def test_an_embedder_that_fails_at_first_is_learned_when_it_answers(watch: Watch) -> None:
    watch.model.answer = lambda _: reply(b"", 503)
    assert watch.found()["outcome"] == "refused"
    assert embedders.embedder_view(watch.world.store, SLUG).reference is None
    watch.model.answer = lambda _: None
    assert watch.found()["kind"] == "same"
    assert present(embedders.embedder_view(watch.world.store, SLUG).reference).texts == 9


def test_a_changed_embedder_is_said_also_of_a_run_that_measured_nothing(watch: Watch) -> None:
    watch.found()
    watch.model.dimensions = 16
    watch.world.probe.all_fail()
    run = watch.world.run()
    shown = watch.world.shown(run)
    assert shown["verdict"] == "unknown"
    assert any("truncated vectors" in reason for reason in shown["reasons"])
    assert watch.embedding_alerts() == [("embedding", "firing", "critical")]


def test_a_run_that_could_not_be_carried_out_closes_no_alert_about_the_embedder(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.found()
    watch.model.model = "two"
    watch.found()

    def refuse(*_: Any) -> None:
        raise NotExecutableError("it is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Planner, "plan", refuse)
        assert watch.world.run().status == "failed"
    assert watch.embedding_alerts() == [("embedding", "firing", "critical")]
    assert "could not be carried out" in watch.alert_reason()


def test_an_unknown_run_closes_no_alert_about_the_embedder(watch: Watch) -> None:
    watch.found()
    watch.model.model = "two"
    watch.found()
    watch.model.model = "one"
    watch.world.probe.all_fail()
    assert watch.found()["kind"] == "same"
    assert watch.embedding_alerts() == [("embedding", "firing", "critical")]
    watch.world.probe.all_answer()
    watch.found()
    assert watch.embedding_alerts() == [("embedding", "resolved", "critical")]


def test_another_configuration_is_learned_by_itself_and_the_old_one_is_remembered(watch: Watch) -> None:
    watch.found()
    watch.define(model="another")
    watch.model.model = "two"
    assert "was learned" in watch.found()["reason"]
    watch.define()
    assert watch.found()["kind"] == "swapped"


def test_pairs_of_ones_own_take_the_place_of_the_general_ones(watch: Watch) -> None:
    own = [
        {"key": "close", "texts": ["heavy rain", "heavy rain today"], "similar": True},
        {"key": "far", "texts": ["heavy rain", "annual budget"], "similar": False},
    ]
    watch.define(canaries=own)
    found = watch.found()
    assert {pair["key"]: pair["similar"] for pair in found["pairs"]} == {"close": True, "far": False}
    assert watch.model.asked[-1] == ["heavy rain", "heavy rain today", "annual budget"]


def test_the_rule_about_the_embedder_can_be_switched_off(watch: Watch) -> None:
    watch.define(rules=[{"kind": "embedding", "enabled": False}])
    watch.found()
    watch.model.model = "two"
    run = watch.world.run()
    assert (watch.found(run)["kind"], watch.world.shown(run)["verdict"]) == ("swapped", "healthy")
    assert watch.embedding_alerts() == []


@pytest.mark.both
def test_a_retriever_without_an_embedder_has_nothing_to_find(store: Store) -> None:
    world = World(store=store, embed=adapter())
    world.apply(page([canary("a")]))
    assert world.shown(world.run())["embedder"] is None
    assert world.run().embedder is None
    embedders.reset_reference(store, SLUG)
    shown = embedders.embedder_view(store, SLUG)
    assert {name for name, value in asdict(shown).items() if value is not None} == {"retriever"}
    with pytest.raises(NotFoundError, match="there is no retriever 'nothing'"):
        embedders.embedder_view(store, "nothing")


def test_an_alert_closes_when_the_retriever_no_longer_has_an_embedder(watch: Watch) -> None:
    watch.found()
    watch.model.model = "two"
    watch.found()
    watch.world.apply(page([canary("a"), canary("b")]))
    watch.world.run()
    assert watch.embedding_alerts() == [("embedding", "resolved", "critical")]


def test_what_is_known_of_an_embedder_is_shown_with_since_when(watch: Watch) -> None:
    first, second = watch.world.run(), watch.world.run()
    watch.model.model = "two"
    third, fourth = watch.world.run(), watch.world.run()
    shown = embedders.embedder_view(watch.world.store, SLUG)
    assert (shown.retriever, shown.model) == (SLUG, "m")
    assert (present(shown.reference).run, present(shown.reference).dimensions) == (str(first.id), 64)
    assert (shown.run, shown.since_run) == (str(fourth.id), str(third.id))
    assert shown.finding == watch.found(fourth)
    assert watch.found(second)["kind"] == "same"


@pytest.mark.both
def test_equal_findings_are_stored_once_and_go_with_the_runs_they_were_of(watch: Watch) -> None:
    for _ in range(5):
        watch.world.run()
    tables = ("run_embedders", "embedder_findings", "embedders")
    assert watch.world.count(*tables) == {"run_embedders": 5, "embedder_findings": 2, "embedders": 1}
    watch.world.clock.advance(100 * 86_400)
    retention.prune(watch.world.store, watch.world.clock(), days=90)
    assert watch.world.count(*tables) == {"run_embedders": 1, "embedder_findings": 1, "embedders": 1}
    assert watch.found()["kind"] == "same"


def test_checks_of_one_retriever_hold_its_embedder_to_one_reference(watch: Watch) -> None:
    one, other = page([canary("a")]), page([canary("c")], slug="other", suite="other")
    one["retrievers"] = other["retrievers"] = [{**RETRIEVER, "embedding": watch.embedding()}]
    watch.world.apply(one, {**other, "retrievers": [], "hooks": []})
    watch.found()
    watch.model.model = "two"
    assert watch.found(watch.world.run("other"))["kind"] == "swapped"
    assert [alert["check"] for alert in watch.world.alerts() if alert["kind"] == "embedding"] == ["other"]


def test_cosines_of_pairs_and_outcomes_reach_prometheus(watch: Watch) -> None:
    exposition = Exposition.create()
    exposition.process.run_ended(watch.world.run())
    exposition.snapshot.refresh(watch.world.store)
    text = exposition.render()[0].decode()
    found = [line for line in text.splitlines() if line.startswith("coalmine_embedding_canary_cosine{")]
    assert len(found) == 6
    assert any('check="watch",pair="rain",retriever="search",similar="true",suite="suite"' in line for line in found)
    assert 'coalmine_embedding_canaries_total{outcome="ok"} 1.0' in text


# --- relevance that a scorer outside the retriever measured --------------------------------------------------


def carry_out(world: World, probe: RetrieverProbe) -> EndedRun:
    """Run the check with the real probe."""
    world.clock.advance(60)
    world.wish()
    claimed = world.claim()
    assert claimed is not None
    planner = Planner(world.store, world.vault)
    ended = execution.execute(
        planner, probe, claimed, embed=probe.embed, owner="worker", clock=world.clock, stopping=lambda: False
    )
    assert ended is not None
    return ended


@contextmanager
def reranked(world: World, scores: Mapping[str, float]) -> Iterator[RetrieverProbe]:
    """Serve a retriever whose first hit is scored by a reranker, and put a check of it in force."""

    def retrieve(seen: Seen) -> Reply:
        query = json.loads(seen.body)["q"]
        return reply(json.dumps({"hits": [{"id": f"doc-{query}", "text": f"text of {query}"}]}).encode())

    def judge(seen: Seen) -> Reply:
        score = scores[json.loads(seen.body)["query"]]
        return reply(json.dumps({"results": [{"index": 0, "relevance_score": score}]}).encode())

    with ExitStack() as stack:
        retriever, reranker = stack.enter_context(peer(retrieve)), stack.enter_context(peer(judge))
        described = page([canary("a", min_relevance_score=0.6), canary("b")])
        described["retrievers"] = [
            {
                **RETRIEVER,
                "url": retriever.url,
                "response": {"hits": "hits", "id": "id", "text": "text"},
                "scorer": {"kind": "rerank", "url": f"{reranker.url}/rerank", "model": "judge"},
            }
        ]
        world.apply(described)
        yield RetrieverProbe(retriever_policy(), AGENT)


def test_history_keeps_top_scores_of_an_outside_scorer(store: Store) -> None:
    world = World(store=store)
    scores = {"a": 0.9, "b": 0.7}
    with reranked(world, scores) as probe:
        good = carry_out(world, probe)
        scores["a"] = 0.31
        bad = carry_out(world, RetrieverProbe(retriever_policy(), AGENT))
    assert {key: one["top_score"] for key, one in world.results(good).items()} == {"a": 0.9, "b": 0.7}
    assert {key: one["top_score"] for key, one in world.results(bad).items()} == {"a": 0.31, "b": 0.7}
    assert world.results(good)["a"]["ranking"][0]["relevance"] == 0.9
    assert world.results(bad)["a"]["reasons"] == ["low_relevance"]
    assert (world.shown(good)["health_score"], world.shown(bad)["health_score"]) == (0.8, pytest.approx(0.505))


def test_relevance_that_differs_by_the_noise_of_a_model_is_no_news(store: Store) -> None:
    world = World(store=store)
    scores = {"a": 0.9, "b": 0.7}
    with reranked(world, scores) as probe:
        carry_out(world, probe)
        before = world.count("states", "rankings")
        scores |= {"a": 0.90001, "b": 0.69999}
        carry_out(world, RetrieverProbe(retriever_policy(), AGENT))
        assert world.count("states", "rankings") == before


def test_an_empty_answer_scores_zero_also_with_an_outside_scorer(store: Store) -> None:
    world = World(store=store)
    with reranked(world, {}):
        world.probe.otherwise = lambda _: answered(hits())
        assert {one["top_score"] for one in world.results(world.run()).values()} == {0.0}


def test_hits_nobody_scored_leave_relevance_unknown_and_are_said(store: Store) -> None:
    world = World(store=store)
    with reranked(world, {"a": 7.5, "b": 0.7}) as probe:
        run = carry_out(world, probe)
    assert {key: one["top_score"] for key, one in world.results(run).items()} == {"a": None, "b": 0.7}
    assert world.results(run)["a"]["reasons"] == []
    assert any("outside the declared scale, similarity" in reason for reason in world.shown(run)["reasons"])
