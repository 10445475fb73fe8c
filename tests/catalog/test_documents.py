"""What users may say about canaries, retrievers, checks and hooks, and how it is refused."""

from typing import Any

import pytest
from pydantic import create_model

from app.alerts.documents import rules_in_force
from app.base.documents.fields import (
    CANARY_KEY,
    SLUG,
    Document,
    format_duration,
    parse_document,
    parse_duration,
    suggest_name,
)
from app.base.errors import InvalidInputError
from app.base.schedules import Schedule
from app.base.values import Bound, Canary, Category, Judgment, Rule, RuleKind
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.documents.secrets import content_hash
from app.hooks.documents import HookDocument
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import Scale, Scorer, ScorerKind

SECRET = "whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQtZGVtbw=="


def canary(**changes: Any) -> dict[str, Any]:
    return {"key": "retention", "query": "How long?", **changes}


def retriever(**changes: Any) -> dict[str, Any]:
    return {
        "slug": "docs",
        "url": "http://localhost:8001/search",
        "response": {"hits": "results", "id": "id"},
    } | changes


def check(**changes: Any) -> dict[str, Any]:
    return {"slug": "nightly", "suite": "docs", "retriever": "docs", "schedule": {"every": "5m"}} | changes


def hook(**changes: Any) -> dict[str, Any]:
    return {"slug": "ops", "kind": "webhook", "url": "https://example.org/in", **changes}


def threshold(**changes: Any) -> dict[str, Any]:
    return {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}} | changes


def complaints(model: type[Document], data: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        parse_document(model, data)
    return [str(problem) for problem in caught.value.problems]


def test_a_canary_becomes_the_domain_value() -> None:
    document = parse_document(
        CanaryDocument,
        canary(
            expected_chunks=["a", {"document": "d", "text": "t", "grade": 3}],
            forbidden_chunks=["leak"],
            min_relevance_score=1,
            floors={"recall@5": 0.8, "ndcg_cut_10": 0.5},
            category="procedural",
            tags=["x"],
        ),
    )
    assert document.to_domain() == Canary(
        key="retention",
        query="How long?",
        judgments=(Judgment(id="a"), Judgment(document="d", text="t", grade=3)),
        forbidden=(Judgment(id="leak"),),
        min_relevance_score=1.0,
        floors={"R@5": 0.8, "NDCG@10": 0.5},
        category=Category.PROCEDURAL,
        tags=("x",),
    )


def test_the_original_name_of_expected_chunks_is_understood() -> None:
    old = parse_document(CanaryDocument, canary(expected_top_chunks=["a"]))
    assert old == parse_document(CanaryDocument, canary(expected_chunks=[{"id": "a"}]))
    assert complaints(CanaryDocument, canary(expected_top_chunks=["a"], expected_chunks=["b"])) == [
        "expected_top_chunks: 'expected_top_chunks' is another name of 'expected_chunks'; write one of the two"
    ]


def test_a_wrong_canary_is_refused_in_words() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"querry": 1}, "querry: unknown key 'querry'; did you mean 'query'?"),
        (
            {"key": "a b"},
            "key: must be 1 to 128 letters, digits and . _ : - and not begin with . : or -, not 'a b'; try 'a-b'",
        ),
        ({"key": 7}, "key: must be text, not a number; put it in quotes"),
        ({"key": True}, "key: must be text, not true or false; put it in quotes"),
        ({"query": "  "}, "query: must not be blank"),
        ({"query": "a\x00b"}, "query: must not hold the character U+0000"),
        ({"query": "a\ud800"}, "query: must not hold the character U+D800"),
        ({"query": "q" * 8001}, "query: must be at most 8000 characters long"),
        ({"query": None}, "query: must be text, not empty"),
        ({"min_relevance_score": "0.5"}, "min_relevance_score: must be a number, not text"),
        ({"min_relevance_score": True}, "min_relevance_score: must be a number, not true or false"),
        ({"min_relevance_score": 1.1}, "min_relevance_score: must be at most 1"),
        ({"max_relevance_score": float("nan")}, "max_relevance_score: must be a finite number"),
        ({"expected_chunks": 5}, "expected_chunks: must be a list, not a number"),
        ({"expected": ["a"]}, "expected: unknown key 'expected'; did you mean 'expected_chunks'?"),
        (
            {"expected_chunks": [5]},
            "expected_chunks[0]: must be a chunk id (text) or a mapping, not a number; put it in quotes",
        ),
        ({"expected_chunks": [{}]}, "expected_chunks[0]: must have an id, a document or a text"),
        ({"expected_chunks": [{"id": "a", "grade": 4}]}, "expected_chunks[0].grade: must be at most 3"),
        (
            {"expected_chunks": [{"id": "a", "grade": 1.5}]},
            "expected_chunks[0].grade: must be a whole number, not a fraction",
        ),
        ({"expected_chunks": ["a", "b", {"id": "a", "grade": 2}]}, "expected_chunks[2]: is listed twice"),
        (
            {"expected_chunks": ["a"], "forbidden_chunks": ["b", "a"]},
            "forbidden_chunks[1]: is expected and forbidden at once",
        ),
        ({"floors": {"R@5": 0.8, "Recall@5": 0.9}}, "floors.Recall@5: R@5 has a floor already"),
        ({"floors": {"NDCG": 0.5}}, "floors.NDCG: NDCG needs a cut-off, for example NDCG@10"),
        ({"tags": ["x", "x"]}, "tags[1]: the tag 'x' is listed twice"),
        ({"tags": [str(number) for number in range(21)]}, "tags: must have at most 20 entries"),
        (
            {"category": "simple"},
            (
                "category: must be one of simple_factual, complex_factual, procedural, entity_centric, comparative, "
                "negative, not 'simple'; did you mean 'simple_factual'?"
            ),
        ),
    ]
    for changes, told in cases:
        assert complaints(CanaryDocument, canary(**changes)) == [told], changes


def test_a_key_twice_in_a_suite_is_refused() -> None:
    twice = {"slug": "docs", "canaries": [canary(), canary(query="other")]}
    assert complaints(SuiteDocument, twice) == ["canaries[1].key: the key 'retention' is used twice"]


def test_a_retriever_becomes_the_domain_value() -> None:
    document = parse_document(
        RetrieverDocument,
        retriever(
            request={"method": "get", "params": {"q": "{{ query }}", "n": "{{ k }}"}, "headers": {"X-Key": "s3cret"}},
            response={"hits": "results", "id": "id", "score": "score", "index_version": "header:x-index"},
            scorer={"scale": "cosine"},
            timeout="500ms",
        ),
    )
    value = document.to_domain()
    assert (value.method, value.query_parameters, value.json) == ("GET", {"q": "{{ query }}", "n": "{{ k }}"}, None)
    assert value.headers == {"X-Key": "s3cret"}
    assert value.scorer == Scorer(kind=ScorerKind.SCORE, scale=Scale.COSINE)
    assert value.timeout_seconds == 0.5
    assert value.response.index_version == "header:x-index"


@pytest.mark.parametrize(
    ("scorer", "score", "kind"),
    [
        ({}, "score", ScorerKind.JUDGED),
        ({"scale": "similarity"}, "score", ScorerKind.SCORE),
        ({"kind": "judged", "scale": "similarity"}, None, ScorerKind.JUDGED),
        ({"kind": "judged"}, "score", ScorerKind.JUDGED),
        ({"kind": "score", "scale": "unbounded", "anchor": 12}, "score", ScorerKind.SCORE),
    ],
)
def test_the_scorer_is_score_only_where_a_scale_is_declared(
    scorer: dict[str, Any], score: str | None, kind: ScorerKind
) -> None:
    response = {"hits": "results", "id": "id", "score": score}
    assert (
        parse_document(RetrieverDocument, retriever(response=response, scorer=scorer)).to_domain().scorer.kind is kind
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"preset": "genric"}, "preset: unknown preset 'genric'; did you mean 'generic'?"),
        ({"url": "ftp://x/"}, "url: must be an address that begins with http:// or https:// and names a host"),
        ({"url": "http://"}, "url: must be an address that begins with http:// or https:// and names a host"),
        ({"url": "http://x:99999/"}, "url: must be an address that begins with http:// or https:// and names a host"),
        ({"url": "http://a b/"}, "url: must be one web address without spaces; write other characters as %XX"),
        (
            {"url": "http://u:p@x/"},
            "url: must not hold a user name or password; addresses are shown, headers and secrets are not",
        ),
        ({"url": "http://x/#a"}, "url: must not hold a fragment (#...); it would not be sent"),
        (
            {"url": "http://{{query}}/"},
            "url: must not hold a placeholder in the host: where a request goes is never part of the question",
        ),
        ({"request": {"method": "PUT"}}, "request.method: must be one of GET, POST, not 'PUT'"),
        (
            {"request": {"json": {"q": ["{{ querry }}"]}}},
            "request.json.q[0]: unknown placeholder '{{ querry }}'; did you mean 'query'?",
        ),
        (
            {"request": {"json": {"q": "{{ query"}}},
            "request.json.q: has a '{{' that begins no placeholder; write {{ query }} or {{ k }}",
        ),
        ({"request": {"json": {"q": "x"}}}, "request: never uses {{ query }}, so every canary would ask the same"),
        (
            {"request": {"method": "GET", "json": {"q": "{{ query }}"}}},
            "request.json: cannot be sent with GET; use query, or method: POST",
        ),
        (
            {"request": {"query": {"q": {"deep": "{{ query }}"}}}},
            "request.query.q: must be a text, a number or a list of them",
        ),
        (
            {"request": {"json": ["{{ query }}", 2**63]}},
            "request.json: must be JSON: texts, numbers of 64 bits, true, false, null, lists and mappings",
        ),
        ({"request": {"headers": {"Host": "x"}}}, "request.headers.Host: is set by Coalmine and cannot be changed"),
        ({"request": {"headers": {"Expect": "x"}}}, "request.headers.Expect: is set by Coalmine and cannot be changed"),
        ({"request": {"headers": {"a b": "x"}}}, "request.headers.a b: is not the name of a header"),
        ({"request": {"headers": {"A": "x\r\nB: y"}}}, "request.headers.A: must be one line of Latin-1 characters"),
        (
            {"request": {"headers": {"A": "x", "a": "y"}}},
            "request.headers.a: is given twice; upper and lower case are the same header",
        ),
        (
            {"request": {"headers_file": {"A": "/etc/passwd"}}},
            "request.headers_file: 'headers_file' names a file of this server; only canary files may use it",
        ),
        (
            {"response": {"hits": "a[", "id": "id"}},
            "response.hits: 'a[' is not a JMESPath expression, see https://jmespath.org",
        ),
        (
            {"response": {"hits": "a", "id": "header:x"}},
            "response.id: must be a path in the body; only index_version can come from a header",
        ),
        ({"response": {"hits": "a", "score": "s"}}, "response: must map id or text, or hits cannot be told apart"),
        ({"response": {"hits": "a", "document": "d"}}, "response: must map id or text, or hits cannot be told apart"),
        (
            {"scorer": {"kind": "renark"}},
            "scorer.kind: must be one of score, judged, embedding, rerank, not 'renark'; did you mean 'rerank'?",
        ),
        (
            {"scorer": {"kind": "score", "scale": "cosine"}},
            "scorer: a scorer of kind score needs response: score to be mapped; without scores leave the scorer out",
        ),
        (
            {"scorer": {"scale": "cosine"}},
            "scorer: a scorer with a scale needs response: score to be mapped; without scores leave the scorer out",
        ),
        (
            {"scorer": {"kind": "score"}},
            "scorer: a scorer of kind score must declare its scale: similarity, cosine, distance, logit, unbounded",
        ),
        (
            {"scorer": {"kind": "judged", "scale": "unbounded"}},
            "scorer: an unbounded scale needs an anchor, the score that counts as half relevant",
        ),
        (
            {"scorer": {"scale": "unbounded", "anchor": 3}},
            "scorer: an unbounded scale needs the kind said: score (with an anchor) or judged",
        ),
        ({"scorer": {"scale": "cosine", "anchor": 3}}, "scorer.anchor: belongs to the scale unbounded only"),
        ({"concurrency": 257}, "concurrency: must be at most 256"),
        ({"concurrency": "8"}, "concurrency: must be a whole number, not text"),
        ({"retries": 4}, "retries: must be at most 3"),
        ({"timeout": "10x"}, "timeout: '10x' is not a duration; write for example 30s, 5m, 1h or 1d"),
        ({"timeout": 0}, "timeout: must be between 100ms and 5m; 0 is read as 0 s"),
        (
            {"timeout": 5_000},
            "timeout: must be between 100ms and 5m; 5000 is read as 5000 s: say its unit, for example 5000ms",
        ),
        ({"timeout": "10m"}, "timeout: must be between 100ms and 5m"),
    ],
)
def test_a_wrong_retriever_is_refused_in_words(changes: dict[str, Any], told: str) -> None:
    assert complaints(RetrieverDocument, retriever(**changes)) == [told]


def test_fetch_k_is_at_least_ten() -> None:
    assert [parse_document(CheckDocument, check(k=k)).fetch_k for k in (5, 20)] == [10, 20]


def test_cron_and_interval_become_schedules() -> None:
    every = parse_document(CheckDocument, check(schedule={"every": "300s"}))
    cron = parse_document(CheckDocument, check(schedule={"cron": "*/5  * * * *"}))
    assert every.schedule.every == "5m"
    assert every.schedule.to_domain() == Schedule(every_seconds=300)
    assert cron.schedule.to_domain() == Schedule(cron="*/5 * * * *", timezone="UTC")


def test_a_wrong_check_is_refused_in_words() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"slug": "Nightly"},
            "slug: must be 1 to 64 lower-case letters, digits and hyphens, not 'Nightly'; try 'nightly'",
        ),
        ({"enabled": "yes"}, "enabled: must be true or false, not text ('yes')"),
        ({"k": 0}, "k: must be at least 1"),
        ({"fetch_k": 3}, "fetch_k: must be at least k, which is 5"),
        ({"cutoffs": []}, "cutoffs: must have at least 1 entries"),
        ({"hooks": ["ops", "ops"]}, "hooks[1]: the hook 'ops' is listed twice"),
        ({"schedule": {}}, "schedule: must have either 'every' or 'cron'"),
        ({"schedule": {"every": "5m", "cron": "* * * * *"}}, "schedule: must have either 'every' or 'cron'"),
        ({"schedule": {"every": "5s"}}, "schedule.every: must be between 10s and 31d"),
        (
            {"schedule": {"every": 5}},
            "schedule.every: must be between 10s and 31d; 5 is read as 5 s: say its unit, for example 5m",
        ),
        (
            {"schedule": {"every": "5m", "timezone": "UTC"}},
            "schedule.timezone: belongs to 'cron'; an interval has no time zone",
        ),
    ]
    for changes, told in cases:
        assert complaints(CheckDocument, check(**changes)) == [told], changes


@pytest.mark.parametrize(
    "schedule",
    [{"every": "soon"}, {"cron": "* * *"}, {"cron": "99 * * * *"}, {"cron": "* * * * *", "timezone": "Mars/X"}],
)
def test_a_schedule_that_cannot_be_read_is_refused_at_its_key(schedule: dict[str, str]) -> None:
    [told] = complaints(CheckDocument, check(schedule=schedule))
    assert told.startswith(f"schedule.{list(schedule)[-1]}: ")


def test_a_check_without_rules_is_in_force_as_one_that_names_the_detector() -> None:
    default = rules_in_force(parse_document(CheckDocument, check()).rules)
    assert [rule.key for rule in default] == [
        "regression",
        "guard",
        "probe_errors",
        "no_data",
        "embedding",
        "leak",
        "slower",
        "index",
    ]
    assert all(rule.critical is None and rule.warning is None for rule in default)
    for written in ([], [{"kind": "regression"}], [{"kind": "regression"}, {"kind": "guard"}]):
        assert {*rules_in_force(parse_document(CheckDocument, check(rules=written)).rules)} == {*default}


def test_a_rule_of_its_own_replaces_the_implied_one() -> None:
    rules = [{"kind": "probe_errors", "failed_share": 0.1, "close": 3}, threshold(measure="R@5", category="procedural")]
    in_force = rules_in_force(parse_document(CheckDocument, check(rules=rules)).rules)
    assert {rule.key: rule.failed_share for rule in in_force} == {
        "probe_errors": 0.1,
        "threshold-R@5-procedural": None,
        "no_data": None,
        "embedding": None,
        "leak": None,
        "slower": None,
        "index": None,
    }


def test_a_rule_every_check_has_can_be_switched_off() -> None:
    rules = [threshold(), {"kind": "no_data", "enabled": False}]
    assert [rule.key for rule in rules_in_force(parse_document(CheckDocument, check(rules=rules)).rules)] == [
        "threshold-coverage",
        "probe_errors",
        "embedding",
        "leak",
        "slower",
        "index",
    ]


def test_a_rule_becomes_the_domain_value_with_the_measure_named_as_a_mean() -> None:
    written = threshold(measure="mrr", warning={"below": 0.95}, open={"bad": 3, "of": 4}, close=5, margin=0.01)
    assert parse_document(CheckDocument, check(rules=[written])).rules[0].to_domain() == Rule(
        key="threshold-MRR",
        kind=RuleKind.THRESHOLD,
        measure="MRR",
        warning=Bound(below=0.95),
        critical=Bound(below=0.9),
        open_bad=3,
        open_of=4,
        close=5,
        margin=0.01,
    )


def test_a_wrong_rule_is_refused_in_words() -> None:
    for rules, told in [
        (
            [{"kind": "treshold"}],
            (
                "rules[0].kind: unknown rule kind 'treshold'; did you mean 'threshold'? Built are: "
                "threshold, drop, regression, canary, latency, probe_errors, no_data, embedding, guard, slower, leak, "
                "plant, index"
            ),
        ),
        ([threshold(measure="coverge")], "rules[0].measure: unknown measure 'coverge'; did you mean 'coverage'?"),
        ([threshold(measure=None)], "rules[0].measure: is missing; a threshold rule watches one"),
        ([threshold(critical=None)], "rules[0]: must have a bound: warning or critical"),
        ([threshold(critical={})], "rules[0].critical: must have either 'below' or 'above'"),
        ([threshold(critical={"below": 90})], "rules[0].critical.below: must be at most 1; write 0.9 for 90%"),
        ([threshold(warning={"below": 0.8})], "rules[0].critical: must not be milder than warning"),
        (
            [threshold(measure="degraded_share", warning={"above": 0.8}, critical={"above": 0.7})],
            "rules[0].critical: must not be milder than warning",
        ),
        (
            [threshold(warning={"above": 0.8})],
            "rules[0].critical: must be on the same side (below or above) as warning",
        ),
        ([threshold(open={"bad": 4})], "rules[0].open: must not ask for 4 bad runs of 3"),
        ([threshold(margin=0.11)], "rules[0].margin: is so large that the alert could never close"),
        ([threshold(failed_share=0.1)], "rules[0].failed_share: does not apply to a threshold rule"),
        ([{"kind": "no_data", "close": 3}], "rules[0].close: does not apply to a no_data rule"),
        ([{"kind": "probe_errors", "margin": 0.2}], "rules[0].margin: is so large that the alert could never close"),
        (
            [threshold(category="negative")],
            "rules[0].category: negative canaries expect nothing, so they have no coverage",
        ),
        (
            [threshold(measure="answered_ratio", category="procedural")],
            "rules[0].category: only negative canaries have an answered_ratio",
        ),
        (
            [threshold(), threshold(critical={"below": 0.5})],
            "rules[1].key: the rule key 'threshold-coverage' is used twice in this check",
        ),
        ([threshold(key="no_data")], "rules[0].key: 'no_data' is the key of a rule every check has"),
        ([threshold(measure="R@7")], "rules[0].measure: R@7 is not computed; add 7 to the cutoffs of the check"),
        ([threshold(measure="NDCG@20")], "rules[0].measure: NDCG@20 is undefined; it needs a fetch_k of at least 20"),
    ]:
        assert complaints(CheckDocument, check(rules=rules)) == [told], rules


def test_a_margin_may_reach_the_very_end_of_the_scale() -> None:
    assert parse_document(CheckDocument, check(rules=[threshold(margin=0.1)])).rules[0].margin == 0.1


def test_a_rule_may_watch_a_cut_at_the_k_of_its_check() -> None:
    assert parse_document(CheckDocument, check(k=7, rules=[threshold(measure="R@7")])).rules[0].key == "threshold-R@7"


def test_a_wrong_hook_is_refused_in_words() -> None:
    for changes, told in [
        (
            {"kind": "slak"},
            (
                "kind: unknown hook kind 'slak'; did you mean 'slack'? Built are: "
                "webhook, slack, slack-app, pagerduty, alertmanager, email, apprise"
            ),
        ),
        ({"secret": "abc"}, "secret: must begin with whsec_"),
        ({"secret": "whsec_!"}, "secret: must be whsec_ followed by base64"),
        ({"secret": "whsec_YWJj"}, "secret: must be whsec_ followed by the base64 of 24 to 64 bytes, not 3"),
        (
            {"secret_file": "/etc/passwd"},
            "secret_file: 'secret_file' names a file of this server; only canary files may use it",
        ),
    ]:
        assert complaints(HookDocument, hook(**changes)) == [told], changes


def test_equal_meaning_has_an_equal_hash() -> None:
    short = parse_document(CanaryDocument, canary(expected_chunks=["a"], tags=["x", "y"]))
    long = parse_document(
        CanaryDocument,
        canary(expected_chunks=[{"id": "a", "grade": 1}], tags=["y", "x"], min_relevance_score=0.5, floors={}),
    )
    implied = parse_document(CheckDocument, check(rules=[threshold(measure="R@5")], schedule={"every": "60m"}))
    spelled = parse_document(
        CheckDocument,
        check(rules=[threshold(measure="recall@5", key="threshold-R@5")], schedule={"every": "1h"}, fetch_k=10),
    )
    assert content_hash(short) == content_hash(long)
    assert content_hash(implied) == content_hash(spelled)


def test_a_field_that_a_later_release_adds_changes_no_hash() -> None:
    later = create_model("CanaryDocument", __base__=CanaryDocument, brand_new=(int, 0))
    written = canary(expected_chunks=[{"id": "a", "grade": 2}], tags=["x"])
    assert content_hash(parse_document(later, written)) == content_hash(parse_document(CanaryDocument, written))
    assert content_hash(parse_document(later, {**written, "brand_new": 1})) != content_hash(
        parse_document(CanaryDocument, written)
    )


def test_a_changed_meaning_changes_the_hash_and_a_changed_secret_does_not() -> None:
    assert content_hash(parse_document(CanaryDocument, canary())) != content_hash(
        parse_document(CanaryDocument, canary(category="negative"))
    )
    one, other, none = (
        content_hash(parse_document(HookDocument, hook(secret=secret)))
        for secret in (SECRET, f"whsec_{'A' * 32}", None)
    )
    assert one == other != none


def test_a_number_that_is_no_duration_in_seconds_is_told_with_its_likely_unit() -> None:
    told = "max_latency: must be between 1ms and 5m; 800 is read as 800 s: say its unit, for example 800ms"
    assert complaints(CanaryDocument, {"key": "a", "query": "b", "max_latency": 800}) == [told]


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("5m", 300), ("1h", 3600), ("1d", 86400), ("90s", 90)]
)
def test_durations_read_back_as_written(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("My check!", "my-check"),
        ("Café & Straße_2", "cafe-strasse-2"),
        ("--", ""),
        ("日本", ""),
        ("a" * 63 + " b", "a" * 63),
    ],
)
def test_a_name_is_offered_that_would_be_taken(typed: str, name: str) -> None:
    assert suggest_name(SLUG, typed) == name
    assert suggest_name(CANARY_KEY, ".. Leave §3: how?") == "Leave-3:-how"
    assert suggest_name("^x$", typed) == ""
