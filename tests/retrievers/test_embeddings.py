"""Vectors of texts: asked in batches, remembered by text, and refused where they are not what they should be."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.base.addresses import AddressPolicy, ApiKey, Bearer, Endpoint, hook_policy, retriever_policy
from app.base.errors import InvalidInputError
from app.base.values import Outcome, replace
from app.retrievers.client.credentials import Keyring
from app.retrievers.client.embeddings import Embeddings
from app.retrievers.client.endpoint_client import EndpointClient
from app.retrievers.domain.retrievers import Embedder, EmbeddingResult, cosine
from tests.support.embedders import FakeModel, embedding_server, embeddings_reply, vector
from tests.support.http_servers import SILENCE, Reply, reply

AGENT = "coalmine/1.0"


def embeddings(*, policy: AddressPolicy | None = None, **options: Any) -> Embeddings:
    """Make an adapter that remembers nothing yet."""
    allowed = policy or retriever_policy()
    return Embeddings(EndpointClient(policy=allowed, keyring=Keyring(allowed, AGENT), user_agent=AGENT), **options)


def embed(model: FakeModel, *texts: str, **changes: Any) -> EmbeddingResult:
    """Ask a model for the first time."""
    with embedding_server(model) as (_, embedder):
        return embeddings()(replace(embedder, **changes), texts)


def test_every_text_gets_the_vector_the_model_gave_it() -> None:
    texts = ["one text", "another", 'with "quotes"\n and ü', "one text"]
    found = embed(FakeModel(), *texts)
    assert (found.outcome, found.http_status, found.detail) == (Outcome.OK, None, None)
    assert found.latency_seconds > 0
    assert set(found.vectors) == set(texts)
    for text in texts:
        assert found.vectors[text].dtype == np.float32
        assert found.vectors[text].tolist() == pytest.approx(vector(text), abs=1e-6)


def test_a_request_has_the_shape_of_openai_and_says_who_asks() -> None:
    with embedding_server(FakeModel()) as (server, embedder):
        endpoint = replace(embedder.endpoint, headers={"X-Tenant": "a"}, auth=Bearer(token="hunter2"))
        embeddings()(replace(embedder, endpoint=endpoint, dimensions=8), ["one"])
        embeddings()(embedder, ["two"])
        declared, plain = server.seen
    assert (declared.method, declared.target) == ("POST", "/v1/embeddings")
    assert json.loads(declared.body) == {"model": "m", "input": ["one"], "encoding_format": "float", "dimensions": 8}
    assert json.loads(plain.body) == {"model": "m", "input": ["two"], "encoding_format": "float"}
    assert declared.headers["authorization"] == "Bearer hunter2"
    assert declared.headers["x-tenant"] == "a"
    assert declared.headers["user-agent"] == AGENT
    assert declared.headers["content-type"] == "application/json"


def test_texts_go_in_batches_each_once() -> None:
    model = FakeModel()
    texts = [f"text {number % 150}" for number in range(300)]
    found = embed(model, *texts, batch=64)
    assert sorted(map(len, model.asked)) == [22, 64, 64]
    assert sorted(model.texts) == sorted(set(texts))
    assert len(found.vectors) == 150


def test_what_is_known_is_not_asked_again() -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings()
        first = ask(embedder, ["a b c", "d e f"])
        again = ask(embedder, ["d e f", "g h i"])
        assert model.texts == ["a b c", "d e f", "g h i"]
        all_known = ask(embedder, ["a b c", "d e f", "g h i"])
    assert len(model.asked) == 2
    assert np.array_equal(first.vectors["d e f"], again.vectors["d e f"])
    assert (all_known.outcome, all_known.latency_seconds) == (Outcome.OK, 0.0)


def _moved(embedder: Embedder) -> Embedder:
    return replace(embedder, endpoint=Endpoint(url=f"{embedder.endpoint.url}?deployment=2"))


@pytest.mark.parametrize("changed", [lambda e: replace(e, model="other"), lambda e: replace(e, dimensions=8), _moved])
def test_what_one_embedder_said_is_not_taken_for_what_another_says(changed: Callable[[Embedder], Embedder]) -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings()
        ask(embedder, ["a"])
        assert ask(changed(embedder), ["a"]).outcome is Outcome.OK
    assert model.texts == ["a", "a"]


@pytest.mark.parametrize(
    "given",
    [
        {"auth": Bearer(token="right")},
        {"headers": {"Authorization": "Bearer right"}},
        {"auth": ApiKey(key="right", prefix="Bearer ", header="Authorization")},
    ],
)
@pytest.mark.parametrize("taken", [{"auth": Bearer(token="wrong")}, {"headers": {"Authorization": "wrong"}}, {}])
def test_what_one_key_was_answered_is_no_answer_to_another(given: Any, taken: Any) -> None:
    """Else a wrong key would look fine for as long as everything is remembered."""
    model = FakeModel(
        answer=lambda seen: None if seen.headers.get("authorization") == "Bearer right" else reply(b"", 401)
    )
    with embedding_server(model) as (server, embedder):
        ask = embeddings()
        right = replace(embedder, endpoint=replace(embedder.endpoint, **given))
        assert ask(right, ["a"]).outcome is Outcome.OK
        assert ask(right, ["a"]).outcome is Outcome.OK
        assert len(server.seen) == 1
        wrong = ask(replace(embedder, endpoint=replace(embedder.endpoint, **taken)), ["a"])
        assert (wrong.outcome, wrong.http_status, dict(wrong.vectors)) == (Outcome.REFUSED, 401, {})
        assert ask(right, ["a"]).outcome is Outcome.OK
        assert len(server.seen) == 2


def test_memory_is_bounded_and_the_longest_unused_goes_first() -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings(cache_bytes=3 * (4 * 64 + 300))
        ask(embedder, ["one", "two", "three"])
        ask(embedder, ["one"])  # used again
        ask(embedder, ["four"])
        model.asked.clear()
        ask(embedder, ["one", "three", "four"])
        assert model.texts == []
        ask(embedder, ["two"])
        assert model.texts == ["two"]


def test_what_is_wanted_anew_is_asked_though_it_is_known() -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings()
        ask(embedder, ["a"], refresh=True)
        ask(embedder, ["a"], refresh=True)
    assert model.texts == ["a", "a"]


def test_memory_survives_while_known_texts_are_answered_as_before_and_is_dropped_when_they_are_not() -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings()
        ask(embedder, ["known text"], refresh=True)
        before = ask(embedder, ["some query"])
        ask(embedder, ["known text"], refresh=True)
        ask(embedder, ["some query"])
        assert model.texts.count("some query") == 1
        model.model = "two"
        ask(embedder, ["known text"], refresh=True)
        after = ask(embedder, ["some query"])
    assert model.texts.count("some query") == 2
    assert cosine(before.vectors["some query"], after.vectors["some query"]) < 0.5
    assert after.vectors["some query"].tolist() == pytest.approx(vector("some query", model="two"), abs=1e-6)


def test_checks_that_watch_one_embedder_by_other_texts_keep_its_memory() -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings()
        for _ in range(3):
            ask(embedder, ["known here"], refresh=True)
            ask(embedder, ["known there"], refresh=True)
            ask(embedder, ["some query"])
    assert model.texts.count("some query") == 1


def test_another_embedder_keeps_its_memory() -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings()
        ask(embedder, ["known text"], refresh=True)
        ask(replace(embedder, model="other"), ["some query"])
        model.model = "two"
        ask(embedder, ["known text"], refresh=True)
        ask(replace(embedder, model="other"), ["some query"])
    assert model.texts.count("some query") == 1


def test_vectors_asked_of_the_old_model_are_not_remembered_once_it_was_seen_to_change() -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings()
        ask(embedder, ["known text"], refresh=True)

        def change_meanwhile(_seen: Any) -> None:
            model.answer = lambda _: None
            old = model.model
            model.model = "two"
            ask(embedder, ["known text"], refresh=True)  # another run, while ours waits for its answer
            model.model = old

        model.answer = change_meanwhile
        ask(embedder, ["some query"])
        model.model = "two"
        after = ask(embedder, ["some query"])
    assert after.vectors["some query"].tolist() == pytest.approx(vector("some query", model="two"), abs=1e-6)


@pytest.mark.parametrize(
    ("answer", "outcome", "status", "detail"),
    [
        (SILENCE, Outcome.UNREACHABLE, None, "the connection was closed without an answer"),
        (reply(b'{"error": "words"}', 402), Outcome.REFUSED, 402, "answered 402 Payment Required: “words”"),
        (reply(b"words", 500), Outcome.REFUSED, 500, "answered 500 Internal Server Error: “words”"),
        (reply(b"<html>secret"), Outcome.MALFORMED, 200, "the answer is not JSON"),
        (reply(b""), Outcome.MALFORMED, 200, "the answer is not JSON"),
        (embeddings_reply([[1.0, float("nan")]] * 2), Outcome.MALFORMED, 200, "not JSON, which has no NaN or Infinity"),
        (reply(b'{"error": "secret"}'), Outcome.MALFORMED, 200, "missing required field data"),
        (embeddings_reply(["secret", "secret"]), Outcome.MALFORMED, 200, "Expected array, got str"),
        (embeddings_reply([["secret"], [1.0]]), Outcome.MALFORMED, 200, "Expected float, got str"),
        (embeddings_reply([[True], [1.0]]), Outcome.MALFORMED, 200, "Expected float, got bool"),
        (embeddings_reply([[1.0]]), Outcome.MALFORMED, 200, "1 vectors came for 2 texts"),
        (embeddings_reply([[1.0]] * 3), Outcome.MALFORMED, 200, "3 vectors came for 2 texts"),
        (embeddings_reply([[1.0], [1.0, 2.0]]), Outcome.MALFORMED, 200, "of different lengths"),
        (embeddings_reply([[], []]), Outcome.MALFORMED, 200, "the vectors are empty"),
        (embeddings_reply([[1e39], [1.0]]), Outcome.MALFORMED, 200, "not finite in single precision"),
        (embeddings_reply([[0.0, 0.0], [1.0, 0.0]]), Outcome.MALFORMED, 200, "a vector is all zero"),
        (embeddings_reply([[1e-60, 0.0], [1.0, 0.0]]), Outcome.MALFORMED, 200, "a vector is all zero"),
        (
            reply(b'{"data": [{"index": 1, "embedding": [1]}, {"index": 1, "embedding": [2]}]}'),
            Outcome.MALFORMED,
            200,
            "the index of the vectors",
        ),
        (
            reply(b'{"data": [{"index": 7, "embedding": [1]}, {"index": 1, "embedding": [2]}]}'),
            Outcome.MALFORMED,
            200,
            "the index of the vectors",
        ),
        (
            reply(b'{"data": [{"embedding": [1]}, {"index": 1, "embedding": [2]}]}'),
            Outcome.MALFORMED,
            200,
            "the index of the vectors",
        ),
    ],
)
def test_an_answer_that_is_none_is_an_outcome_and_quotes_nothing(
    answer: Reply, outcome: Outcome, status: int | None, detail: str
) -> None:
    found = embed(FakeModel(answer=lambda _: answer), "one", "two")
    assert (found.outcome, found.http_status, dict(found.vectors)) == (outcome, status, {})
    assert detail in str(found.detail)
    assert "secret" not in str(found)


def test_an_answer_takes_no_more_bytes_than_its_vectors_may_have() -> None:
    """A number takes many times the memory of its bytes."""
    answer = embeddings_reply([[1.0] * 40_000])  # 200 kB
    assert embed(FakeModel(answer=lambda _: answer), "one").outcome is Outcome.OK
    found = embed(FakeModel(answer=lambda _: answer), "one", dimensions=8)
    assert (found.outcome, found.detail) == (Outcome.OVERSIZE, "the answer is larger than 100,320 bytes")


def test_numbers_with_all_their_digits_on_lines_of_their_own_are_not_too_large() -> None:
    data = {"data": [{"embedding": [-1.2345678901234567e-05] * 12_000}] * 2}
    answer = reply(json.dumps(data, indent=2).encode())
    assert embed(FakeModel(answer=lambda _: answer), "one", "two", dimensions=12_000).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"data": [{"embedding": [%s1]}]}' % (b"1," * 65_536), "a vector has more than 65,536 dimensions"),
        (b'{"data": [{"embedding": []}%s]}' % (b',{"embedding":0}' * 1_000), "far more objects than vectors came"),
    ],
)
def test_an_answer_of_more_than_was_asked_for_is_not_read_to_its_end(body: bytes, detail: str) -> None:
    found = embed(FakeModel(answer=lambda _: reply(body)), "one")
    assert found.outcome is Outcome.MALFORMED
    assert detail in str(found.detail)


def test_the_place_of_what_is_wrong_is_told() -> None:
    answer = embeddings_reply([[1.0], [1.0, "secret"]])
    found = embed(FakeModel(answer=lambda _: answer), "one", "two")
    assert found.detail == (
        "the answer is not a list of embeddings: Expected float, got str - at $.data[1].embedding[1]"
    )


def test_an_embedder_outside_the_policy_is_blocked() -> None:
    model = FakeModel()
    with embedding_server(model) as (server, embedder):
        assert embeddings(policy=hook_policy())(embedder, ["one"]).outcome is Outcome.BLOCKED
        assert server.connections == 0


def test_an_embedder_that_cannot_be_asked_at_all_is_refused_in_words() -> None:
    endpoint = Endpoint(url="http://127.0.0.1:1/", headers={"X-Key": "hunter2\r\nEvil: 1"})
    with pytest.raises(InvalidInputError, match="is not one line") as caught:
        embeddings()(Embedder(endpoint=endpoint, model="m"), ["one"])
    assert "hunter2" not in str(caught.value)


def test_transport_failures_are_asked_again() -> None:
    model = FakeModel()
    model.answer = lambda _: SILENCE if len(model.asked) == 1 else None
    assert embed(model, "one").outcome is Outcome.OK
    assert model.texts == ["one", "one"]


def test_a_batch_that_fails_leaves_the_vectors_of_the_others_and_is_asked_next_time() -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings()
        model.answer = lambda seen: reply(b"", 503) if b"bad" in seen.body else None
        texts = ["one", "two", "bad", "four", "five"]
        found = ask(replace(embedder, batch=2), texts)
        assert (found.outcome, found.http_status) == (Outcome.REFUSED, 503)
        assert set(found.vectors) == {"one", "two", "five"}
        model.answer = lambda _: None
        model.asked.clear()
        assert set(ask(embedder, texts).vectors) == set(texts)
        assert model.texts == ["bad", "four"]


@pytest.mark.parametrize(
    "answer",
    [
        reply(b'{"data": [{"index": 1, "embedding": [0.0, 2.0]}, {"index": 0, "embedding": [1.0, 0.0]}]}'),
        reply(b'{"data": [{"embedding": [1, 0]}, {"embedding": [0, 2]}]}'),
    ],
)
def test_vectors_are_placed_by_their_index_or_come_in_order(answer: Reply) -> None:
    found = embed(FakeModel(answer=lambda _: answer), "one", "two")
    assert {text: one.tolist() for text, one in found.vectors.items()} == {"one": [1.0, 0.0], "two": [0.0, 2.0]}


def test_other_dimensions_than_declared_are_malformed_but_for_those_who_look_whether_the_model_changed() -> None:
    with embedding_server(FakeModel(dimensions=16)) as (_, embedder):
        declared = replace(embedder, dimensions=32)
        found = embeddings()(declared, ["one"])
        assert (found.outcome, found.detail) == (
            Outcome.MALFORMED,
            "the vectors have 16 dimensions, not the 32 declared",
        )
        looked = embeddings()(declared, ["one"], refresh=True)
        assert (looked.outcome, len(looked.vectors["one"])) == (Outcome.OK, 16)


def test_vectors_of_other_dimensions_than_remembered_ones_are_never_mixed_with_them() -> None:
    model = FakeModel()
    with embedding_server(model) as (_, embedder):
        ask = embeddings()
        ask(embedder, ["one"])
        model.dimensions = 16
        mixed = ask(embedder, ["one", "two"])
        assert mixed.outcome is Outcome.MALFORMED
        assert set(mixed.vectors) == {"two"}
        assert {len(one) for one in ask(embedder, ["one", "two"]).vectors.values()} == {16}


def test_halves_of_characters_are_no_reason_to_fall_over() -> None:
    text = json.loads('"broken \\ud800 text"')
    assert embed(FakeModel(), text).outcome is Outcome.OK


def test_nothing_to_embed_asks_nobody() -> None:
    model = FakeModel()
    assert embed(model) == EmbeddingResult(vectors={})
    assert model.asked == []
