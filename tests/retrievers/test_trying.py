"""Trying a retriever: what went over the wire, what the mapping makes of it, and what it costs a secret: nothing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from app.base.db import keys
from app.base.db.keys import Scope
from app.base.documents.fields import parse_document
from app.base.texts import parse_cut, shown_json
from app.base.values import Answer, Exchange, Outcome
from app.catalog.documents.canary_files import read_canary_files, read_secret
from app.config import Settings
from app.main import Service, create_app, open_service
from app.retrievers.client.probe import read_pasted
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.probes import TrialView
from app.retrievers.domain.retrievers import (
    ProbeQuery,
)
from app.retrievers.service import trials
from tests.support.api_service import BASE, Mailbox, bearer
from tests.support.asgi_client import TestClient
from tests.support.fakes import START, FakeProbe
from tests.support.http_servers import HANG, Reply, Seen, peer, reply
from tests.support.present import present

QUERY = "How long are logs kept?"
PROSE = "Logs are kept for thirty days in the hot tier and for a year in the archive."
SECRET = "a-token-that-nobody-may-see"
RESPONSE = {"hits": "results", "id": "id", "score": "score", "text": "text", "document": "meta.source"}
HITS = [
    {"id": "a", "score": 0.75, "text": PROSE, "meta": {"source": "logs.md", "at": "2026-01-31"}},
    {"id": "b", "score": 0.5, "text": "Audit trails stay for a year, whatever happens to the logs.", "meta": {}},
]
ANSWER = {"results": HITS, "took": 3}


def document(**more: Any) -> RetrieverDocument:
    """Make a retriever that can be read."""
    written = {
        "slug": "search",
        "url": "http://127.0.0.1:1/search",
        "response": RESPONSE,
        "scorer": {"scale": "cosine"},
    }
    return parse_document(RetrieverDocument, {**written, **more})


def tried(answer: Any, *, suggests: bool = False, **more: Any) -> TrialView:
    """Read a pasted answer, given as a value or as text."""
    body = answer if isinstance(answer, str) else json.dumps(answer)
    return trials.try_answer(read_pasted, document(**more), body, QUERY, k=10, suggests=suggests)


@contextmanager
def service(folder: Path) -> Iterator[tuple[TestClient, Service]]:
    """Open a service that asks for real."""
    opened = open_service(Settings(data_dir=folder), environment={}, with_worker=False, send=Mailbox())
    with TestClient(create_app(opened), base_url=BASE) as client:
        yield client, opened


def echo(seen: Seen) -> Reply:
    """Answer, and repeat whatever came: a retriever that is careless with secrets."""
    said = [f"{name}: {value}" for name, value in seen.headers.items()]
    return reply(json.dumps({**ANSWER, "you": said, "target": seen.target}).encode(), headers={"x-echo": said[-1]})


# --- the shape of a trial ------------------------------------------------------------------------------------


def test_hits_are_shown_as_they_are_scored() -> None:
    trial = tried(ANSWER, response={**RESPONSE, "updated": "meta.at"})
    assert (trial["outcome"], trial["detail"], trial["top_score"], trial["returned"]) == ("ok", None, 0.75, 2)
    assert trial["hits"] == [
        {
            "rank": 1,
            "id": "a",
            "document": "logs.md",
            "text": PROSE,
            "score": 0.75,
            "relevance": 0.75,
            "updated": "2026-01-31T00:00:00Z",
        },
        {
            "rank": 2,
            "id": "b",
            "document": None,
            "text": HITS[1]["text"],
            "score": 0.5,
            "relevance": 0.5,
            "updated": None,
        },
    ]
    assert trial["suggestions"] == []
    assert trial["request"] is None
    assert trial["response"] == {
        "status": None,
        "headers": {},
        "body": json.dumps(ANSWER),
        "bytes": len(json.dumps(ANSWER)),
        "cut": False,
    }


def test_judged_answers_have_no_top_score_before_they_are_judged() -> None:
    trial = tried(ANSWER, scorer={"kind": "judged"})
    assert trial["scorer"] == {"kind": "judged", "scale": None}
    assert trial["top_score"] is None
    assert [hit["relevance"] for hit in trial["hits"]] == [None, None]


def test_what_is_suggested_works_when_it_is_pasted() -> None:
    answer = {"odd $key": [{"${text}": PROSE, "@id": f"c{at}"} for at in range(3)]}
    (suggested,) = tried(answer)["suggestions"]
    file = "retrievers:\n  - slug: search\n    url: http://127.0.0.1:1\n" + indent(suggested["yaml"], "    ")
    (pasted,) = read_canary_files([("pasted.yaml", file)], {}, read_secret).retrievers
    trial = trials.try_answer(read_pasted, pasted, json.dumps(answer), QUERY, k=10)
    assert [hit["text"] for hit in trial["hits"]] == [PROSE] * 3


def test_an_answer_without_hits_gets_suggestions_where_others_would_find_some() -> None:
    trial = tried({"results": [], "fallback": HITS})
    assert (trial["outcome"], trial["hits"], trial["top_score"]) == ("ok", [], 0.0)
    assert trial["suggestions"][0]["response"]["hits"] == "fallback"
    assert tried({"results": []})["suggestions"] == []


@pytest.mark.parametrize(
    ("more", "remarks"),
    [
        ({"text": "body"}, ["mapped `text: body` was found in 0 of 2 hits"]),
        (
            {"document": "source", "updated": "meta.changed"},
            [
                "mapped `document: source` was found in 0 of 2 hits",
                "mapped `updated: meta.changed` was found in 0 of 2 hits",
            ],
        ),
        ({"index_version": "version"}, ["mapped `index_version: version` was not found"]),
        ({"index_version": "header:x-index"}, []),
        ({"index_version": "took", "updated": "meta.at"}, []),
    ],
)
def test_a_mapped_field_that_no_hit_has_is_told(more: dict[str, str], remarks: list[str]) -> None:
    trial = tried(ANSWER, response={**RESPONSE, **more})
    assert trial["remarks"] == remarks
    wants_more = any("of 2 hits" in remark for remark in remarks)
    assert [one["response"]["text"] for one in trial["suggestions"]] == ["text"] * wants_more


def test_an_answer_without_hits_lacks_no_field() -> None:
    assert tried({"results": []})["remarks"] == ["no list of hits was recognised in this answer"]


@pytest.mark.parametrize(
    ("scores", "scale", "remark"),
    [
        ([0.5, 0.9, 0.7], "cosine", "the hits are not in order of score: ranks follow the answer's order"),
        ([0.5, 0.7, 0.9], "cosine", "the lowest scores come first, though the scale is cosine: are they distances?"),
        ([0.9, 0.7, 0.5], "distance", "the largest distances come first: are these scores similarities?"),
        ([0.9, 0.7, 0.7], "cosine", None),
        ([0.5, 0.5, 0.7], "distance", None),
        ([0.5, 0.5, 0.5], "cosine", None),
    ],
)
def test_scores_that_do_not_follow_the_ranks_are_told(scores: list[float], scale: str, remark: str | None) -> None:
    answer = {"results": [{**HITS[0], "id": f"c-{score}-{at}", "score": score} for at, score in enumerate(scores)]}
    assert tried(answer, scorer={"scale": scale})["remarks"] == ([] if remark is None else [remark])


def test_scores_that_are_not_looked_at_may_rise() -> None:
    answer = {"results": [{**HITS[0], "id": f"c-{at}", "score": at} for at in range(3)]}
    assert tried(answer, scorer={"kind": "judged"})["remarks"] == []


def test_ids_that_only_count_the_hits_are_told() -> None:
    told = "the ids only count the hits, as ranks do: in another answer they may be those of other chunks"
    answers = [{"results": [{**HITS[0], "id": first + at} for at in range(3)]} for first in (0, 1, 2)]
    assert [tried(answer)["remarks"] for answer in answers] == [[told], [told], []]


def test_a_suggestion_takes_out_what_the_preset_would_fill_in() -> None:
    trial = trials.try_answer(
        read_pasted,
        parse_document(
            RetrieverDocument,
            {"slug": "s", "preset": "haystack", "url": "http://127.0.0.1:1", "options": {"pipeline": "p"}},
        ),
        json.dumps({"ids": ["a", "b"], "texts": [PROSE, PROSE]}),
        QUERY,
        k=10,
    )
    assert trial["suggestions"][0]["response"] == {
        "hits": None,
        "id": "ids",
        "score": None,
        "text": "texts",
        "document": None,
    }


@pytest.mark.parametrize("body", ["", "<html>", "[", "{" * 5_000, '"\ud800"', "NaN"])
def test_any_pasted_text_is_a_trial(body: str) -> None:
    trial = tried(body)
    assert (trial["outcome"], trial["hits"], trial["suggestions"]) == ("malformed", [], [])


def test_a_long_answer_is_cut_but_still_suggested_from() -> None:
    trial = tried({"data": [{"id": str(at), "text": PROSE} for at in range(1_000)]})
    assert present(trial["response"])["cut"]
    assert len(present(trial["response"])["body"]) == trials.SHOWN_CHARACTERS
    assert trial["suggestions"][0]["response"] == {"hits": "data", "id": "id", "text": "text"}
    whole = json.dumps({"data": [{"id": str(at), "text": PROSE} for at in range(100)], "vector": [0.5] * 1000})
    exchange = Exchange(method="POST", url="http://x", response_body=whole[:5_000], response_bytes=len(whole))
    cut = Answer(outcome=Outcome.MALFORMED, latency_seconds=0.1, exchange=exchange)
    probe = FakeProbe(otherwise=lambda _: cut)
    found = trials.try_retriever(probe, document(), ProbeQuery(query=QUERY), k=5, run_id="try-1")["suggestions"]
    assert found[0]["response"] == {"hits": "data", "id": "id", "text": "text"}


def test_of_cut_json_stays_what_came_whole() -> None:
    for text, value in [
        ('{"a": [{"b": 1, "c": "x,]}"}, {"b": 2, "c"', {"a": [{"b": 1, "c": "x,]}"}]}),
        ('{"a": [1, 2, 3', {"a": [1, 2]}),
        ('{"a": "\\"}, {", "b": tr', {"a": '"}, {'}),
        ('[[{"a": 1}], [{"b', [[{"a": 1}]]),
        ('{"a": 1', None),
        ("", None),
        ('{"a": 1]}', None),
        ("}{", None),
        ("[" * 100_000 + ",", None),
    ]:
        assert parse_cut(text) == value, text


# --- asking --------------------------------------------------------------------------------------------------


def test_a_probe_that_says_nothing_is_a_trial_too() -> None:
    nothing: list[list[tuple[int, Answer]]] = [[], []]
    trial = trials.try_retriever(
        lambda _asking, _asks: (batch for batch in nothing), document(), ProbeQuery(query=QUERY), k=5, run_id="try-1"
    )
    assert trial["outcome"] == "skipped"


def test_reading_otherwise_is_told_from_asking_otherwise() -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"response": {"hits": "a", "id": "b"}, "scorer": {"scale": "cosine"}, "score_precision": 0.1}, False),
        ({"url": "http://127.0.0.1:2"}, True),
        ({"request": {}}, True),
        ({"auth": None}, True),
        ({"scorer": {"kind": "rerank", "url": "http://127.0.0.1:2"}}, True),
        ({"scorer": "rerank"}, True),
        ({"unknown": 1}, True),
    ]
    for overrides, otherwise in cases:
        assert trials.changes_request(overrides) is otherwise, overrides


# --- over the API --------------------------------------------------------------------------------------------


def test_request_and_answer_are_shown_and_secrets_are_masked_in_both(tmp_path: Path) -> None:
    with peer(echo) as retriever, service(tmp_path) as (client, _):
        body = {
            "url": f"{retriever.url}/search",
            "response": RESPONSE,
            "request": {"headers": {"X-Team": SECRET}, "json": {"q": "{{ query }}", "n": "{{ k }}"}},
            "auth": {"kind": "bearer", "token": SECRET + "-2"},
        }
        assert client.put("/v1/retrievers/search", json=body).status_code == 201
        answer = client.post("/v1/retrievers/search/try", json={"query": QUERY, "k": 3})
        assert answer.status_code == 200, answer.text
        trial = answer.json()
        assert retriever.seen[0].headers["x-team"] == SECRET
        assert retriever.seen[0].headers["authorization"] == f"Bearer {SECRET}-2"
        assert SECRET not in answer.text
    assert trial["outcome"] == "ok"
    assert [hit["id"] for hit in trial["hits"]] == ["a", "b"]
    assert (trial["request"]["method"], trial["request"]["url"]) == ("POST", f"{retriever.url}/search")
    assert json.loads(trial["request"]["body"]) == {"q": QUERY, "n": 3}
    assert trial["response"]["status"] == 200
    assert json.loads(trial["response"]["body"])["took"] == 3
    assert len(retriever.seen) == 1


def test_parts_may_be_tried_otherwise_without_being_stored(tmp_path: Path) -> None:
    with peer(reply(json.dumps({"data": HITS}).encode())) as retriever, service(tmp_path) as (client, _):
        client.put("/v1/retrievers/search", json={"url": retriever.url, "response": RESPONSE})
        stored = client.get("/v1/retrievers/search").json()
        wish: dict[str, Any] = {"query": QUERY}
        first = client.post("/v1/retrievers/search/try", json=wish).json()
        assert first["outcome"] == "malformed"
        wish["retriever"] = {
            key: value for key, value in first["suggestions"][0].items() if key in {"response", "scorer"}
        }
        second = client.post("/v1/retrievers/search/try", json=wish).json()
        assert (second["outcome"], len(second["hits"]), second["top_score"]) == ("ok", 2, 0.75)
        wish["retriever"] = {"request": {"json": {"other": "{{ query }}"}}}
        client.post("/v1/retrievers/search/try", json=wish)
        assert json.loads(retriever.seen[-1].body) == {"other": QUERY}
        assert client.get("/v1/retrievers/search").json() == stored


def test_stored_secrets_go_nowhere_else(tmp_path: Path) -> None:
    with peer(reply(json.dumps(ANSWER).encode())) as thief, service(tmp_path) as (client, _):
        body = {
            "url": "http://127.0.0.1:1/search",
            "response": RESPONSE,
            "request": {"headers": {"X-Team": SECRET}},
            "auth": {"kind": "bearer", "token": SECRET},
        }
        client.put("/v1/retrievers/search", json=body)
        refused = client.post("/v1/retrievers/search/try", json={"query": QUERY, "retriever": {"url": thief.url}})
        assert refused.status_code == 422
        assert {error["path"] for error in refused.json()["errors"]} == {"request.headers.X-Team", "auth.token"}
        assert thief.seen == []
        own = {
            "url": thief.url,
            "request": {"headers": {"X-Team": "mine"}},
            "auth": {"kind": "bearer", "token": "mine"},
        }
        answer = client.post("/v1/retrievers/search/try", json={"query": QUERY, "retriever": own})
        assert answer.status_code == 200, answer.text
        assert thief.seen[0].headers["x-team"] == "mine"
        assert SECRET not in str(thief.seen)


def test_secrets_of_a_file_are_used_and_kept_in_place(tmp_path: Path) -> None:
    with peer(echo) as retriever:
        text = (
            f"retrievers:\n  - slug: search\n    url: {retriever.url}\n    auth: {{kind: bearer, token: {SECRET}}}\n"
            "    response: {hits: results, id: id}\n"
        )
        (tmp_path / "canaries.yaml").write_text(text)
        settings = Settings(data_dir=tmp_path / "data", canaries=tmp_path / "canaries.yaml")
        opened = open_service(settings, environment={}, with_worker=False, send=Mailbox())
        with TestClient(create_app(opened), base_url=BASE) as client:
            trial = client.post("/v1/retrievers/search/try", json={"query": QUERY})
            moved = client.post(
                "/v1/retrievers/search/try", json={"query": QUERY, "retriever": {"url": "http://127.0.0.1:1"}}
            )
        assert retriever.seen[0].headers["authorization"] == f"Bearer {SECRET}"
    assert trial.json()["outcome"] == "ok"
    assert SECRET not in trial.text
    assert moved.status_code == 422


def test_scope_write_tries_and_only_admin_asks_otherwise(tmp_path: Path) -> None:
    with service(tmp_path) as (client, opened):
        client.put("/v1/retrievers/search", json={"url": "http://127.0.0.1:1", "response": RESPONSE})
        by = {scope: bearer(keys.create_key(opened.store, name=str(scope), scope=scope, now=START)) for scope in Scope}
        reading = {
            "query": QUERY,
            "answer": json.dumps(ANSWER),
            "retriever": {"response": {"hits": "results", "id": "id"}},
        }
        asking = {"query": QUERY, "retriever": {"url": "http://127.0.0.1:2"}}
        path = "/v1/retrievers/search/try"
        assert client.post(path, json=reading, headers=by[Scope.READ]).status_code == 403
        assert client.post(path, json=reading, headers=by[Scope.WRITE]).status_code == 200
        refused = client.post(path, json=asking, headers=by[Scope.WRITE])
        assert refused.status_code == 403
        assert "scope admin" in refused.json()["detail"]
        assert client.post(path, json=asking, headers=by[Scope.ADMIN]).json()["outcome"] == "unreachable"


def test_a_pasted_answer_is_read_and_nobody_asked(tmp_path: Path) -> None:
    with peer(HANG) as retriever, service(tmp_path) as (client, _):
        client.put("/v1/retrievers/search", json={"url": retriever.url, "response": RESPONSE})
        wish = {"query": QUERY, "answer": json.dumps(ANSWER), "suggest": True}
        trial = client.post("/v1/retrievers/search/try", json=wish).json()
        assert (trial["outcome"], len(trial["hits"]), trial["request"]) == ("ok", 2, None)
        assert trial["suggestions"][0]["response"]["hits"] == "results"
        assert retriever.seen == []


def test_a_retriever_that_hangs_is_waited_for_as_long_as_it_says(tmp_path: Path) -> None:
    with peer(HANG) as retriever, service(tmp_path) as (client, _):
        body = {"url": retriever.url, "response": RESPONSE, "timeout": 0.2, "retries": 3}
        client.put("/v1/retrievers/search", json=body)
        trial = client.post("/v1/retrievers/search/try", json={"query": QUERY}).json()
        assert trial["outcome"] == "timeout"
        assert trial["request"]["url"].startswith(retriever.url)
        assert len(retriever.seen) == 1


def test_what_cannot_be_tried_is_refused_naming_the_field(tmp_path: Path) -> None:
    wishes: list[tuple[dict[str, Any], str]] = [
        ({}, "query"),
        ({"query": " "}, "query"),
        ({"query": "q", "k": 0}, "k"),
        ({"query": "q", "qeury": 1}, "qeury"),
        ({"query": "q", "retriever": {"slug": "other"}}, "slug"),
        ({"query": "q", "retriever": {"response": {"hits": "a[", "id": "id"}}}, "response.hits"),
        ({"query": "q", "retriever": {"tiemout": 3}}, "tiemout"),
    ]
    with service(tmp_path) as (client, _):
        client.put("/v1/retrievers/search", json={"url": "http://127.0.0.1:1", "response": RESPONSE})
        for wish, path in wishes:
            refused = client.post("/v1/retrievers/search/try", json=wish)
            assert refused.status_code == 422, refused.text
            assert path in [error["path"] for error in refused.json()["errors"]], wish


def test_a_scale_on_which_the_first_hit_is_below_the_default_minimum_is_said_to_degrade() -> None:
    low = {"results": [{**hit, "score": score} for hit, score in zip(HITS, (0.41, 0.2), strict=False)]}
    (remark,) = tried(low, scorer={"scale": "similarity"})["remarks"]
    assert remark.startswith("2 of 2 hits, the first among them, have a relevance below 0.5")
    assert tried(low, scorer={"kind": "judged"})["remarks"] == []


NUMBERS = [0.123456, -0.031, *[0.5] * 382]


def test_a_vector_is_shown_by_its_first_numbers_and_its_length() -> None:
    shown = shown_json(json.dumps({"query": NUMBERS, "limit": 5}))
    assert shown == '{\n  "query": [0.123, -0.031, ... 384 numbers],\n  "limit": 5\n}'
    assert shown_json(json.dumps({"many": [NUMBERS, NUMBERS]})).count("384 numbers") == 2


def test_short_lists_and_texts_that_look_like_vectors_stay_as_they_are() -> None:
    body = {"distances": [0.1, 0.2, 0.3], "text": f'"{NUMBERS}', "ids": ["a"] * 40}
    assert json.loads(shown_json(json.dumps(body))) == body


@pytest.mark.parametrize("end", ["", ",", " ", "0.", "-", "1e"])
def test_a_vector_that_was_cut_off_has_more_numbers_than_are_counted(end: str) -> None:
    shown = shown_json(f'{{"query": {json.dumps(NUMBERS)[:-1]}, {end}')
    assert shown.startswith('{"query": [0.123, -0.031, ... more than 38')
    assert len(shown) < 70


@pytest.mark.parametrize("text", ["", "no JSON", "[", '{"a": "', "[1, 2,", "[1" * 20, "[" * 100_000])
def test_whatever_else_comes_is_shown_as_it_came(text: str) -> None:
    assert shown_json(text) == text
