"""Answers that say themselves what is wrong with them: in part, with an error, in another charset or form."""

import json
from typing import Any

import pytest

from app.alerts.domain.advice import alert_advice
from app.alerts.domain.summaries import AlertFacts
from app.base.addresses import Bearer
from app.base.documents.fields import parse_document
from app.base.values import Answer, Outcome, RuleKind, replace
from app.retrievers.client.compiled_retriever import Reader
from app.retrievers.client.probe import read_pasted
from app.retrievers.client.responses import MalformedError
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.mapping_suggestions import suggest_signs
from app.retrievers.domain.probes import summarize_failures
from app.retrievers.domain.retrievers import (
    Lookup,
    ResponseMapping,
)
from app.retrievers.service.trials import suggestion_views, try_answer
from tests.support.http_servers import Reply, peer, reply
from tests.support.probed import answers_of, retriever_at

MAPPING = ResponseMapping(hits="results", id="id")
HITS = [{"id": "a"}]


def ask(answer: Reply, mapping: ResponseMapping = MAPPING, **changes: Any) -> Answer:
    """Send one query to a server with this answer."""
    with peer(answer) as server:
        return answers_of(retriever_at(server.url, response=mapping, **changes), "q")[0]


def ask_json(document: Any, mapping: ResponseMapping = MAPPING, status: int = 200) -> Answer:
    """Send one query to a server that answers with this JSON."""
    return ask(reply(json.dumps(document).encode(), status), mapping)


def error_of(answer: Answer) -> str:
    """Text of the failure in alerts and reasons."""
    failure = summarize_failures([answer], 1)
    assert failure is not None
    return failure.error


ES = ResponseMapping(hits="hits.hits", id="_id")
ES_HITS = {"hits": [{"_id": "z"}]}
VESPA = ResponseMapping(hits="root.children", id="id")


def test_an_answer_that_says_it_is_not_whole_is_no_measurement() -> None:
    for document, mapping, error in [
        (
            {
                "timed_out": False,
                "_shards": {"failed": 1, "failures": [{"shard": 1, "reason": {"type": "x", "reason": "rejected"}}]},
                "hits": ES_HITS,
            },
            ES,
            "answers in part, _shards.failed is 1: \u201crejected\u201d",
        ),
        (
            {"_shards": {"total": 5, "successful": 3, "skipped": 0, "failed": 0}, "hits": ES_HITS},
            ES,
            "answers in part, _shards.successful is 3 of 5",
        ),
        (
            {"_clusters": {"total": 2, "successful": 1, "skipped": 1}, "hits": ES_HITS},
            ES,
            "answers in part, _clusters.successful is 1 of 2",
        ),
        ({"timed_out": True, "_shards": {"failed": 0}, "hits": {"hits": []}}, ES, "answers in part, timed_out is true"),
        (
            {"root": {"coverage": {"degraded": {"timeout": True}}, "errors": [{"message": "Timeout in sc0"}]}},
            VESPA,
            "answers in part, root.coverage.degraded: \u201cTimeout in sc0\u201d",
        ),
        (
            {"root": {"errors": [{"message": "Timeout in sc0"}], "children": [{"id": "z"}]}},
            VESPA,
            "answers in part, root.errors: \u201cTimeout in sc0\u201d",
        ),
        ({"success": False, "detail": "model is loading", "results": []}, MAPPING, "model is loading"),
        ({"errors": [{"message": "vectorize: 503"}], "results": HITS}, MAPPING, "vectorize: 503"),
        ({"error": {"code": "x", "message": "Index docs not found"}}, MAPPING, "Index docs not found"),
        ({"code": 102, "message": "You don't own it"}, ResponseMapping(hits="data", id="id"), "You don't own it"),
        ({"code": 7, "data": [], "message": "no"}, ResponseMapping(hits="data", id="id", error="code"), "no"),
        ({"results": HITS, "state": {"late": 3}}, replace(MAPPING, partial="state.late"), "state.late is 3"),
        ({"results": [{"code": 404, "error": "Not found."}]}, ResponseMapping(hits="results[0].hits", id="id"), "Not"),
    ]:
        answer = ask_json(document, mapping)
        assert answer.ranking is None, document
        assert answer.outcome is (Outcome.MALFORMED if error == "Not" else Outcome.PARTIAL), document
        assert error in error_of(answer), document


@pytest.mark.parametrize(
    "signs",
    [
        {"timed_out": False, "_shards": {"failed": 0}, "error": None, "errors": [], "success": True},
        {
            "_shards": {"total": 8, "successful": 8, "skipped": 7, "failed": 0},
            "_clusters": {"total": 1, "successful": 1, "skipped": 0, "details": {"(local)": {}}},
        },
        {"error": "", "errors": {}, "root": {"coverage": {"degraded": {"timeout": False}}}},
        {"error": 0.013, "code": 200, "status": "ok", "_shards": None, "timed_out": "no"[:0]},
    ],
)
def test_fields_of_errors_without_one_cost_no_measurement(signs: dict[str, Any]) -> None:
    assert ask_json({**signs, "results": HITS}).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        (b'{"error": {"message": "shard\\u0007 lost"}}', "application/json", "shard lost"),
        (b'{"error": "Not Found", "message": "no index docs"}', "application/json", "Not Found: no index docs"),
        (b'{"detail": [{"loc": ["body", "limit"], "msg": "not a number"}]}', "application/json", "body.limit: not a"),
        (b'{"errors": [{"message": "first"}]}', "application/json", "first"),
        (b"upstream connect error", "text/plain", "upstream connect error"),
        (b"<html><title>502 Bad &amp; Gateway</title></html>", "text/html", "502 Bad & Gateway"),
        ("Schlüssel ungültig".encode("latin-1"), "text/plain; charset=iso-8859-1", "Schlüssel ungültig"),
        (b"x" * 5000, "text/plain", "x" * 299 + "\u2026"),
    ],
)
def test_the_words_of_an_error_response_reach_the_alert(body: bytes, content_type: str, words: str) -> None:
    answer = ask(reply(body, 500, {"content-type": content_type}))
    assert answer.outcome is Outcome.REFUSED
    assert error_of(answer).startswith(f"answers HTTP 500: \u201c{words}")
    assert len(error_of(answer)) <= len("answers HTTP 500: ") + 302


def test_the_words_of_a_server_are_masked() -> None:
    secret = Bearer(token="hunter22")
    assert "hunter22" not in error_of(ask(reply(b'{"error": "key hunter22 is unknown"}', 403), auth=secret))
    assert "hunter22" not in error_of(ask(reply(b'{"error": "key hunter22 is unknown"}'), auth=secret))


def test_null_is_nothing_found_and_an_absent_list_where_that_is_declared() -> None:
    assert ask_json({"results": None}).outcome is Outcome.OK
    assert ask_json({"data": {"chunks": None}}, ResponseMapping(hits="data.chunks", id="id")).outcome is Outcome.OK
    absent = ask_json({"count": 0})
    assert absent.outcome is Outcome.MALFORMED
    assert "set response.absent to empty" in str(absent.detail)
    empty = ask_json({"count": 0}, replace(MAPPING, absent="empty"))
    assert empty.ranking is not None
    assert (empty.outcome, len(empty.ranking)) == (Outcome.OK, 0)
    assert ask_json({"code": 5, "message": "broken"}, replace(MAPPING, absent="empty")).outcome is Outcome.PARTIAL
    vespa = replace(VESPA, absent="empty")
    assert ask_json({"root": {"fields": {"totalCount": 0}}}, vespa).outcome is Outcome.OK
    assert ask_json({"service": "gateway"}, vespa).outcome is Outcome.MALFORMED, "nothing of Vespa's is in it"


def test_answers_are_decoded_by_the_declared_charset_or_as_the_bytes_of_json_tell() -> None:
    for charset, codec in [
        ("iso-8859-1", "latin-1"),
        ("GBK", "gbk"),
        ('"gbk"', "gbk"),
        ("utf-16", "utf-16"),
        ("utf-16le", "utf-16-le"),
        ("x-unknown", "utf-8"),
        ("base64", "utf-8"),
        ("utf-7", "utf-8"),
        ("utf-8", "utf-8-sig"),
        ("", "utf-16"),
        ("", "utf-16-be"),
        ("", "utf-8"),
    ]:
        names = ["文档一", "文档二"] if "gbk" in codec else ["café", "cafè"]
        body = json.dumps({"results": [{"id": name} for name in names]}, ensure_ascii=False).encode(codec)
        declared = f"; charset={charset}" if charset else ""
        answer = ask(reply(body, headers={"content-type": f"application/json{declared}"}))
        assert answer.ranking is not None, (charset, codec)
        assert list(answer.ranking.ids) == names, (charset, codec)


def test_the_answer_of_a_lookup_is_decoded_as_well() -> None:
    latin = {"content-type": "application/json; charset=iso-8859-1"}
    found = reply('{"name": "café"}'.encode("latin-1"), headers=latin)
    with peer(lambda seen: found if seen.target == "/alias" else reply(b'{"results": []}')) as server:
        lookup = Lookup(name="index", url=f"{server.url}/alias", path="name")
        (answer,) = answers_of(retriever_at(f"{server.url}/{{{{ index }}}}", lookup=lookup), "q")
        assert answer.outcome is Outcome.OK
        assert [seen.target for seen in server.seen] == ["/alias", "/caf%C3%A9"]


@pytest.mark.parametrize(
    ("content_type", "words"),
    [
        ("application/json", "is not UTF-8, and its Content-Type declares no other charset"),
        ("application/json; charset=utf-8", "cannot be decoded as utf-8"),
        ("application/json; charset=base64", "declares the charset base64, which is unknown"),
        ("application/json; charset=shift_jis", "cannot be decoded as shift_jis"),
    ],
)
def test_what_cannot_be_decoded_is_malformed(content_type: str, words: str) -> None:
    answer = ask(reply(b'{"results": [{"id": "caf\xe9"}]}', headers={"content-type": content_type}))
    assert answer.outcome is Outcome.MALFORMED
    assert words in error_of(answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply(b'event: x\ndata: {"results": []}\n\n', headers={"content-type": "text/event-stream"}), "event stream"),
        (reply(b'{"id": "a"}\n{"id": "b"}\n'), "NDJSON"),
        (reply(b"{}", headers={"content-encoding": "utf-8"}), "content encoding utf-8 is unknown"),
        (reply(b"<title>Sign in</title>"), "HTML or XML, not JSON: \u201cSign in\u201d"),
        (
            reply(b"", 307, {"location": "http://u:p@127.0.0.1:8899/search/?token=x"}),
            "answers HTTP 307; redirects to http://127.0.0.1:8899/search/, which is not followed",
        ),
    ],
)
def test_other_forms_of_answers_are_named(answer: Reply, words: str) -> None:
    assert words in error_of(ask(answer))


def test_json_within_a_text_is_unwrapped() -> None:
    inner = {"results": [{"id": "a", "score": 0.9, "text": "alpha text of some length"}]}
    wrapped = {"statusCode": 200, "body": json.dumps(inner)}
    assert ask_json(wrapped, replace(MAPPING, unwrap="body")).outcome is Outcome.OK
    assert ask_json(json.dumps(inner), replace(MAPPING, unwrap="@")).outcome is Outcome.OK
    failed = ask_json({"message": "Internal server error"}, replace(MAPPING, unwrap="body"))
    assert "body: missing, though response.unwrap is mapped to it: \u201cInternal server error\u201d" in error_of(
        failed
    )


@pytest.mark.parametrize(("wrapper", "path"), [({"statusCode": 200}, "body"), (None, "@")])
def test_a_text_that_holds_json_is_suggested_to_be_unwrapped(wrapper: dict[str, int] | None, path: str) -> None:
    document = parse_document(RetrieverDocument, {"slug": "docs", "url": "http://search"})
    inner = json.dumps({"matches": [{"id": "a", "score": 0.9, "text": "alpha text of some length"}]})
    body = json.dumps(inner if wrapper is None else {**wrapper, "body": inner})
    trial = try_answer(read_pasted, document, body, "alpha", k=5)
    assert trial["suggestions"][0]["response"]["unwrap"] == path
    assert trial["suggestions"][0]["response"]["hits"] == "matches"


def test_fields_that_say_so_are_found_in_a_sample() -> None:
    document = parse_document(RetrieverDocument, {"slug": "docs", "url": "http://search"})
    sample = {
        "timed_out": False,
        "_shards": {"failed": 0},
        "hits": {"hits": [{"_id": "a", "_score": 2.0, "_source": {"text": "alpha text of some length"}}]},
    }
    suggestion = suggestion_views(document, sample, "alpha")[0]
    assert suggestion["response"]["partial"] == "timed_out || _shards"
    assert suggest_signs({"code": 0, "data": [], "message": ""}) == {"error": "code"}
    declared = {"error": "status", "absent": "empty", "hits": "hits.hits", "id": "_id"}
    chosen = parse_document(RetrieverDocument, {"slug": "docs", "url": "http://search", "response": declared})
    kept = suggestion_views(chosen, sample, "alpha")[0]["response"]
    assert (kept["error"], kept["absent"]) == ("status", "empty"), "what somebody chose stays"


@pytest.mark.parametrize(
    ("outcome", "detail", "advice"),
    [
        (Outcome.REFUSED, "the database answered 28P01 (invalid_password)", "Check the credentials"),
        (Outcome.REFUSED, "the database answered 42501 (insufficient_privilege)", "Check the grants"),
        (Outcome.REFUSED, "the database answered 3D000 (invalid_catalog_name)", "that its database exists"),
        (Outcome.REFUSED, "the database answered 42P01 (undefined_table)", "Check the tables"),
        (Outcome.UNREACHABLE, "the TLS handshake failed, or the database does not speak TLS", "Check the TLS"),
        (Outcome.TIMEOUT, "the database cancelled the statement, which may take 5 s", "how busy it is"),
        (Outcome.PARTIAL, "answered in part, timed_out is true", "Look at the message"),
    ],
)
def test_advice_says_what_to_check_of_a_database(outcome: Outcome, detail: str, advice: str) -> None:
    failure = summarize_failures([Answer(latency_seconds=0.0, outcome=outcome, detail=detail)], 1)
    facts = AlertFacts(check="docs", kind=RuleKind.PROBE_ERRORS, failure=failure)
    assert advice in alert_advice(facts)


def test_the_reader_raises_nothing_else() -> None:
    reader = Reader(replace(MAPPING, error="keys(results)"), 5)
    with pytest.raises(MalformedError):
        reader.read(b'{"results": 5}', {})
