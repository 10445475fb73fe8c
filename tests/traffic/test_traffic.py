"""Traffic of users: read in three shapes, normalised, kept for a while, forgotten at once; reach and suggestions."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest

from app.annotation.store import task_rows
from app.base.db.engine import RECEIVED_BEFORE, Store, to_us
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.base.texts import Source, percent_text
from app.base.values import Answer, Outcome, Ranking, Verdict
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.service import references, suites
from app.catalog.store import API
from app.definitions.service import applying, definitions
from app.operation.service import retention
from app.records.store import ranking_rows
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from app.traffic import store as rows
from app.traffic.documents.queries import Grouping, read_traffic
from app.traffic.domain import ReachState, TrafficReachView, normalise_query
from app.traffic.service import intake, reach
from app.traffic.tables import traffic_parts, traffic_queries
from tests.support.fakes import answered, hits
from tests.support.present import present
from tests.support.world import World, canary, documents, page

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def source(text: str, name: str = "traffic.jsonl") -> Source:
    return Source(name=name, lines=lambda: io.StringIO(text))


def read(text: str, name: str = "traffic.jsonl") -> Any:
    return read_traffic([source(text, name)], now=NOW)


# --- what is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("  How do I   pay? ", "how do i pay?"),
        ("STRASSE", "strasse"),
        ("\uff21\uff22\uff23", "abc"),
        ("a\tb\nc", "a b c"),
        ("x\x00y\ud800", "x y"),
        (" \t", ""),
    ],
)
def test_queries_are_normalised(written: str, normal: str) -> None:
    assert normalise_query(written) == normal


def test_json_lines_csv_and_ubi_say_the_same() -> None:
    lines = '{"query": "Fees", "count": 2, "at": "2026-11-20T10:00:00Z", "outcome": "click"}\n{"query": "fees "}\n'
    table = "query,count,at,outcome\nFees,2,2026-11-20T10:00:00Z,click\n fees,,,\n"
    ubi = '{"user_query": "Fees", "timestamp": "2026-11-20T10:00:00Z", "client_id": "x"}\n'
    ubi = f'{ubi}{ubi}{{"user_query": "fees", "timestamp": {int(NOW.timestamp() * 1000)}}}\n'
    for found in (read(lines), read(table, "a.csv"), read(ubi)):
        (one,) = found.queries
        assert (one.query, one.count) == ("fees", 3)
        assert (one.first, one.last) == (datetime(2026, 11, 20, 10, tzinfo=UTC), NOW)


def test_ubi_as_a_table_may_have_other_columns() -> None:
    table = "application,user_query,timestamp\nshop,Fees,2026-11-20 10:00:00\n"
    assert read(table, "ubi.csv").queries[0].query == "fees"


def test_empty_and_very_long_queries_are_counted_and_left_out() -> None:
    found = read('{"query": ""}\n{"query": "' + "x" * 501 + '"}\n{"query": "ok"}\n{"query": null}')
    assert ([one.query for one in found.queries], found.too_long, found.empty) == (["ok"], 1, 2)


def test_times_to_come_are_now() -> None:
    assert read('{"query": "q", "at": "2040-01-01T00:00:00Z"}').queries[0].last == NOW


def test_wrong_lines_are_reported_with_line_field_and_reason() -> None:
    cases: list[tuple[str, str | None, str]] = [
        ('{"query": 5}', "query", "is not a text"),
        ('{"user_query": 5}', "user_query", "is not a text"),
        ('{"timestamp": "2026-11-20T10:00:00Z"}', "query", "is missing"),
        ('{"query": "q", "count": 0}', "count", "'0' is not a whole number from 1 to"),
        ('{"query": "q", "count": true}', "count", "whole number"),
        ('{"query": "q", "count": 1.5}', "count", "whole number"),
        ('{"query": "q", "count": null}', "count", "whole number"),
        ('{"query": "q", "at": "yesterday"}', "at", "'yesterday' is no time of RFC 3339"),
        ('{"user_query": "q", "timestamp": 1e300}', "timestamp", "no time of RFC 3339"),
        ('{"query": "q", "cuont": 2}', None, "unknown field 'cuont'; did you mean 'count'"),
        ("[1]", None, "must be a JSON object"),
        ('{"query"', None, "is not JSON"),
    ]
    for line, path, message in cases:
        with pytest.raises(InvalidInputError) as raised:
            read(f'{{"query": "good"}}\n{line}')
        (problem,) = raised.value.problems
        assert (problem.file, problem.line, problem.path) == ("traffic.jsonl", 2, path)
        assert message in problem.message


def test_wrong_rows_of_tables_are_reported_alike() -> None:
    cases: list[tuple[str, int, str | None, str]] = [
        ("query,count\na,2\nb,many\n", 3, "count", "'many' is not a whole number"),
        ('query,at\n"two\nlines",2026-11-20T10:00:00Z\nb,soon\n', 4, "at", "'soon' is no time"),
        ("question,count\na,2\n", 1, None, "the header has no column 'query'"),
        ("query,cuont\na,2\n", 1, None, "unknown field 'cuont'"),
        ("query,count\na,2,3\n", 2, None, "has 3 cells, the header names 2"),
        ('query\n"open\n', 2, None, "is not CSV"),
        ("", 1, None, "the header has no column 'query'"),
    ]
    for table, line, path, message in cases:
        with pytest.raises(InvalidInputError) as raised:
            read(table, "a.csv")
        (problem,) = raised.value.problems
        assert (problem.file, problem.line, problem.path) == ("a.csv", line, path)
        assert message in problem.message


def test_at_most_a_hundred_problems_are_reported() -> None:
    with pytest.raises(InvalidInputError) as raised:
        read('{"query": 1}\n' * 1_000)
    assert len(raised.value.problems) == 100


# --- what is kept --------------------------------------------------------------------------------------------


@dataclass
class Shop:
    """A retriever that finds the document named by the first word of a query, or nothing for `nothing`."""

    failing: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Answer one query after the other."""
        assert context.k == 1
        for item in queries:
            self.asked.append(item.query)
            yield [(item.position, self.answer(item.query))]

    def answer(self, query: str) -> Answer:
        """Return the answer to a query."""
        if query in self.failing:
            return Answer(outcome=Outcome.REFUSED, latency_seconds=0.1, http_status=503, detail="is ill")
        word = query.split(maxsplit=1)[0]
        there = word != "nothing"
        ranking = Ranking(
            ids=(f"{word}#{len(query)}",) * there,
            documents=(f"shop/{word}/page.md",) * there,
            texts=("text",) * there,
            scores=(0.4 if word == "odd" else 0.9,) * there,
            returned=int(there),
        )
        return Answer(outcome=Outcome.OK, latency_seconds=0.1, ranking=ranking)


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give what `made` makes on SQLite, for what does not depend on the database."""
    return made(sqlite_store)


@pytest.fixture
def any_world(store: Store) -> World:
    """Give the same on each database."""
    return made(store)


def made(store: Store) -> World:
    """Make a suite over two documents, and a check that has run."""
    world = World(store=store)
    world.clock.now = NOW
    described = page([canary("fees"), canary("refunds")], hooks=[])
    described["canaries"][0]["expected_chunks"] = [{"document": "shop/fees/page.md"}]
    described["hooks"] = []
    applying.apply(store, world.vault, documents(described), managed_by=API, now=world.clock.advance(1))
    world.probe.answers["fees"] = answered(hits("doc-other"))
    world.probe.answers["refunds"] = answered(hits("doc-refunds"))
    world.run()
    return world


QUERIES = {"fees monthly": 60, "refunds late": 25, "returns by post": 10, "nothing at all": 4, "odd one": 1}


def send(world: World, queries: dict[str, int], retriever: str = "search", key: str | None = None) -> Any:
    lines = [json.dumps({"query": query, "count": count}) for query, count in queries.items()]
    return intake.receive_traffic(
        world.store, world.vault, "suite", retriever, [source("\n".join(lines))], now=world.clock.advance(1), key=key
    )


def ask(world: World, shop: Shop | None = None, **more: Any) -> Any:
    now = world.clock.advance(1)
    reach.request_reach(world.store, "suite", "search", grouping=more.pop("grouping", None), now=now)
    return work(world, shop or Shop(), **more)


def work(world: World, shop: Shop, **more: Any) -> bool:
    with world.store.read() as connection:
        suite_id = suites.find_suite(world.store, "suite").id
        one = present(rows.find_reach(connection, suite_id, "search"))
    return reach.ask_sample(world.store, world.vault, shop, one.id, clock=world.clock, **more)


@pytest.mark.both
def test_the_same_query_sent_again_adds_up(any_world: World) -> None:
    assert send(any_world, QUERIES) == {"queries": 5, "new": 5, "notes": []}
    assert send(any_world, {"FEES  monthly": 5, "new one": 1}) == {"queries": 2, "new": 1, "notes": []}
    (shown,) = intake.load_traffic(any_world.store, "suite")
    assert (shown["retriever"], shown["distinct"], shown["traffic"]) == ("search", 6, 106)
    with any_world.store.read() as connection:
        found = connection.execute(traffic_queries.select().where(traffic_queries.c.query == "fees monthly")).one()
    assert found._mapping["count"] == 65
    assert found.first_seen < found.last_seen


@pytest.mark.databases
def test_what_comes_again_with_its_key_is_not_counted_again(any_world: World) -> None:
    first = send(any_world, QUERIES, key="log-1")
    any_world.clock.advance(86_000)
    again = send(any_world, QUERIES, key="log-1")
    assert again == {**first, "notes": [RECEIVED_BEFORE]}
    assert intake.load_traffic(any_world.store, "suite")[0]["traffic"] == 100
    with pytest.raises(ConflictError, match="used with other queries"):
        send(any_world, {"fees monthly": 61}, key="log-1")
    assert send(any_world, {"fees monthly": 1}, key="log-2")["notes"] == []
    assert intake.load_traffic(any_world.store, "suite")[0]["traffic"] == 101


def test_a_write_that_fails_remembers_no_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_grow", None)
    with pytest.raises(TypeError):
        send(world, QUERIES, key="log-1")
    monkeypatch.undo()
    assert send(world, QUERIES, key="log-1")["notes"] == []
    assert intake.load_traffic(world.store, "suite")[0]["traffic"] == 100


@pytest.mark.databases
def test_a_key_is_known_for_a_day_and_until_the_traffic_is_deleted(world: World) -> None:
    send(world, QUERIES, key="log-1")
    retention.prune(world.store, world.clock(), days=1_000)
    assert send(world, QUERIES, key="log-1")["notes"] == [RECEIVED_BEFORE]
    world.clock.advance(86_400 + 1)
    retention.prune(world.store, world.clock(), days=1_000)
    assert send(world, QUERIES, key="log-1")["notes"] == []
    intake.forget_traffic(world.store, "suite", retriever="search")
    assert send(world, QUERIES, key="log-1") == {"queries": 5, "new": 5, "notes": []}


@pytest.mark.both
def test_a_deleted_query_does_not_come_back_with_its_part_nor_is_its_hash_kept(any_world: World) -> None:
    send(any_world, QUERIES, key="log-1")
    intake.forget_traffic(any_world.store, "suite", query="fees monthly")
    with any_world.store.read() as connection:
        assert next(iter(connection.execute(traffic_parts.select()).mappings()))["content_hash"] is None
    assert send(any_world, QUERIES, key="log-1")["notes"] == [RECEIVED_BEFORE]
    assert intake.load_traffic(any_world.store, "suite")[0]["distinct"] == 4


def test_a_part_is_known_by_hashes_that_nobody_makes_without_the_key_of_the_service(world: World) -> None:
    key, content = sha256(b"one query").hexdigest(), json.dumps([["one query", 1]])
    send(world, {"one query": 1}, key=key)
    with world.store.read() as connection:
        (kept,) = connection.execute(traffic_parts.select()).mappings()
    assert (kept["key"], kept["content_hash"]) == (world.vault.fingerprint(key), world.vault.fingerprint(content))
    others = Vault("another key for the tests")
    guessed = {named(text) for text in (key, content) for named in (str, _digest, others.fingerprint)}
    assert not guessed & {kept["key"], kept["content_hash"]}


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def test_beyond_the_limit_the_least_frequent_new_ones_are_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MOST_DISTINCT", 3)
    monkeypatch.setattr(rows, "STAGED_ROWS", 2)
    outcome = send(world, QUERIES)
    assert (outcome["queries"], outcome["new"]) == (3, 3)
    assert outcome["notes"] == ["2 queries left out: a suite keeps at most 3 of a retriever"]
    assert send(world, {"fees monthly": 1})["new"] == 0
    assert intake.load_traffic(world.store, "suite")[0]["traffic"] == 96


def test_a_write_that_fails_leaves_nothing_so_that_sending_again_counts_once(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(any_world, {"fees monthly": 1})
    monkeypatch.setattr(rows, "STAGED_ROWS", 2)
    grow, blocks = rows._grow, iter([True, False])

    def fails(*arguments: Any) -> None:
        assert next(blocks), "the second block"
        grow(*arguments)

    monkeypatch.setattr(rows, "_grow", fails)
    with pytest.raises(AssertionError, match="the second block"):
        send(any_world, QUERIES)
    monkeypatch.setattr(rows, "_grow", grow)
    assert intake.load_traffic(any_world.store, "suite")[0]["traffic"] == 1
    send(any_world, QUERIES)
    assert intake.load_traffic(any_world.store, "suite")[0]["traffic"] == 101


def test_traffic_is_of_a_suite_and_a_retriever_that_are_there(world: World) -> None:
    with pytest.raises(NotFoundError, match="no retriever 'gone'"):
        send(world, QUERIES, "gone")
    with pytest.raises(NotFoundError, match="suite 'none'"):
        intake.load_traffic(world.store, "none")
    with pytest.raises(ConflictError, match="no traffic"):
        ask(world)


@pytest.mark.both
def test_one_query_or_all_are_forgotten_at_once(any_world: World) -> None:
    send(any_world, QUERIES)
    ask(any_world)
    assert intake.forget_traffic(any_world.store, "suite", query=" FEES monthly ") == 1
    assert intake.forget_traffic(any_world.store, "suite", query="fees monthly") == 0
    assert intake.load_traffic(any_world.store, "suite")[0]["distinct"] == 4
    assert reach.load_reach(any_world.store, "suite", "search")["answered"] == 4
    assert intake.forget_traffic(any_world.store, "suite", retriever="other") == 0
    assert intake.forget_traffic(any_world.store, "suite") == 4
    assert intake.load_traffic(any_world.store, "suite") == []
    with pytest.raises(NotFoundError, match="not asked for yet"):
        reach.load_reach(any_world.store, "suite", "search")


@pytest.mark.both
def test_queries_are_kept_for_thirty_days_after_they_came(any_world: World) -> None:
    send(any_world, QUERIES)
    any_world.clock.advance(20 * 86_400)
    send(any_world, {"fees monthly": 1})
    any_world.clock.advance(11 * 86_400)
    retention.prune(any_world.store, any_world.clock(), days=1_000)
    with any_world.store.read() as connection:
        assert list(
            connection.execute(traffic_queries.select().with_only_columns(traffic_queries.c.query)).scalars()
        ) == ["fees monthly"]
    assert timedelta(days=retention.TRAFFIC_DAYS) == timedelta(days=30)


# --- reach ---------------------------------------------------------------------------------------------------


def test_covered_is_what_canaries_expect_or_find_first(any_world: World) -> None:
    send(any_world, QUERIES)
    assert ask(any_world)
    found = reach.load_reach(any_world.store, "suite", "search")
    assert (found["state"], found["sample"], found["asked"], found["answered"]) == (ReachState.ASKED, 5, 5, 5)
    assert (found["traffic"], found["distinct"], found["head"]) == (100, 5, 2)
    assert (found["value"], found["low"], found["high"]) == (0.6, 0.6, 0.6), "asked whole, so nothing is estimated"
    assert {one["group"]: (one["traffic"], one["covered"]) for one in found["groups"]} == {
        "shop/fees/page.md": (60, True),
        "shop/refunds/page.md": (25, False),
        "shop/returns/page.md": (10, False),
        "shop/odd/page.md": (1, False),
    }
    assert (found["covered_groups"], found["all_groups"]) == (1, 4)


def _found(name: str) -> Answer:
    """Give an answer with the chunk that a canary expects, and its document."""
    ranking = Ranking(
        ids=(f"doc-{name}",), documents=(f"shop/{name}/page.md",), texts=("t",), scores=(0.9,), returned=1
    )
    return Answer(outcome=Outcome.OK, latency_seconds=0.1, ranking=ranking)


def test_a_passing_canary_covers_the_document_it_finds_first(world: World) -> None:
    send(world, QUERIES)
    world.probe.answers["refunds"] = _found("refunds")
    world.run()
    ask(world)
    assert reach.load_reach(world.store, "suite", "search")["value"] == 0.85


def test_reach_knows_what_canaries_watch_while_their_newest_run_is_bad(world: World) -> None:
    send(world, QUERIES)
    world.probe.answers["refunds"] = _found("refunds")
    world.probe.answers["fees"] = _found("fees")
    assert world.run().verdict == Verdict.HEALTHY
    ask(world)
    before = reach.load_reach(world.store, "suite", "search")
    world.probe.answers["refunds"] = answered(hits("something-else"))
    assert world.run().verdict == Verdict.DEGRADED
    found = reach.load_reach(world.store, "suite", "search")
    assert (found["value"], before["value"]) == (0.85, 0.85)
    assert found["reason"] == before["reason"]


@pytest.mark.parametrize("archived", [True, False])
def test_a_canary_that_watches_nothing_any_more_covers_nothing_though_no_run_came_since(
    world: World, *, archived: bool
) -> None:
    send(world, QUERIES)
    world.probe.answers["refunds"] = _found("refunds")
    world.run()
    ask(world)
    assert reach.load_reach(world.store, "suite", "search")["value"] == 0.85
    with world.store.read() as connection:
        suite = present(catalog.find_definition(connection, "suite", "suite")).id
        body = next(row.body for row in catalog.list_canaries(connection, suite) if row.key == "refunds")
    if archived:
        suites.archive_canary(world.store, "suite", "refunds", now=world.clock())
    else:
        pending = {"key": "refunds", "query": body["query"]}
        (document,) = parse_document(SuiteDocument, {"slug": "suite", "canaries": [pending]}).canaries or ()
        suites.put_canaries(world.store, "suite", [document], now=world.clock())
    assert reach.load_reach(world.store, "suite", "search")["value"] == 0.6


def test_what_canaries_expect_is_told_to_be_unknown_until_a_run_has_it_or_passes(world: World) -> None:
    """By id it is known from any answer, by a passage alone from a canary that passes."""
    send(world, QUERIES)
    described = [
        {"key": "odd", "query": "odd?", "expected_chunks": [{"id": "odd-page"}]},
        {"key": "returns", "query": "returns?", "expected_chunks": [{"text": "Send it back within thirty days."}]},
    ]
    added = parse_document(SuiteDocument, {"slug": "suite", "canaries": described}).canaries or ()
    suites.put_canaries(world.store, "suite", added, now=world.clock.advance(1))
    ask(world)
    told = (
        "1 expected chunk is in no answer, so its document is not known and not covered; 1 canary expects passages "
        "alone and passes in no run, so its document is not known and not covered"
    )
    assert traffic_reach(world)["reason"] == told
    definitions.archive(world.store, "check", "watch", now=world.clock.advance(1))
    assert traffic_reach(world)["reason"] == (
        "no check asks search, so nobody would notice if it broke: reach is what a check of the suite would watch; "
        "2 expected chunks are in no answer, so their documents are not known and not covered; 1 canary expects "
        "passages alone, whose documents only a run tells, and no check has run yet: until then reach counts it for "
        "nothing"
    ), "also where nothing has run, and the hits of the sample alone are known"


def traffic_reach(world: World) -> TrafficReachView:
    """Return the reach of the suite over the traffic of its retriever."""
    return reach.load_reach(world.store, "suite", "search")


def test_canaries_that_a_sample_suggested_make_its_reach_too_high_until_it_is_measured_again(world: World) -> None:
    """They cover what the draws had, and not the documents of all the traffic that the draws stand for."""
    queries = {f"word{number} of users": 2 for number in range(1_500)}
    send(world, queries)
    ask(world)
    assert traffic_reach(world)["taken_up"] == 0
    chosen = reach.suggest(world.store, "suite", "search", limit=100)
    described = [
        {"key": f"taken-{place}", "query": one["query"], "expected_chunks": [{"document": one["group"]}]}
        for place, one in enumerate(chosen)
    ]
    added = parse_document(SuiteDocument, {"slug": "suite", "canaries": described}).canaries or ()
    suites.put_canaries(world.store, "suite", added, now=world.clock.advance(1))
    truth, same = 100 / 1_500, traffic_reach(world)
    assert present(same["low"]) > 2 * truth
    assert same["taken_up"] == 100
    too_high = "100 queries of the sample became canaries since it was drawn, so that by this sample reach is too high"
    assert f"{too_high}: measure again" in (same["reason"] or "")
    ask(world)
    again = traffic_reach(world)
    assert present(again["low"]) <= truth <= present(again["high"]), "another sample is drawn, which suggested none"
    assert (again["taken_up"], again["reason"]) == (0, None)


def test_what_no_answer_came_for_is_stood_for_by_the_others(world: World) -> None:
    send(world, QUERIES)
    shop = Shop(failing={"fees monthly"})
    ask(world, shop)
    found = reach.load_reach(world.store, "suite", "search")
    assert (found["asked"], found["answered"]) == (5, 4)
    assert found["value"] == 0
    assert (found["low"], found["high"]) == (0, found["unanswered"])
    assert found["reason"] == (
        f"1 query of the sample, with {percent_text(found['unanswered'])} of the traffic, has no answer (is ill); "
        "reach assumes that it is like the others, its interval allows for it being covered or not"
    )


def test_a_query_of_the_sample_that_was_deleted_is_unknown(world: World) -> None:
    send(world, QUERIES)
    ask(world)
    before = reach.load_reach(world.store, "suite", "search")
    intake.forget_traffic(world.store, "suite", query="fees monthly")
    found = reach.load_reach(world.store, "suite", "search")
    assert (before["unanswered"], before["reason"]) == (0, None)
    assert found["unanswered"] > 0
    assert present(found["high"]) - present(found["low"]) == pytest.approx(found["unanswered"])
    assert "1 query of the sample" in (found["reason"] or "")
    assert "(deleted since the sample was drawn)" in (found["reason"] or "")


def test_a_sample_goes_on_where_it_stood_and_asks_nobody_twice(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "BLOCK", 2)
    send(any_world, QUERIES)
    shop, stops = Shop(), iter([False] * 3)
    assert not ask(any_world, shop, stopping=lambda: next(stops, True))
    assert reach.load_reach(any_world.store, "suite", "search")["state"] is ReachState.ASKING
    begun = len(shop.asked)
    assert 0 < begun < 5
    assert work(any_world, shop)
    assert sorted(set(shop.asked)) == sorted(QUERIES)
    assert len(shop.asked) <= 5 + 2, "the block that was cut short is asked again"
    assert reach.load_reach(any_world.store, "suite", "search")["asked"] == 5
    ask(any_world, shop)
    assert len(shop.asked) >= 10, "a new sample is asked anew"


def test_a_retriever_that_is_gone_answers_nothing(world: World) -> None:
    send(world, QUERIES)
    definitions.archive(world.store, "check", "watch", now=world.clock())
    definitions.archive(world.store, "retriever", "search", now=world.clock())
    assert ask(world)
    found = reach.load_reach(world.store, "suite", "search")
    assert (found["asked"], found["answered"], found["value"]) == (5, 0, None)
    assert found["reason"] == "unknown: none of 5 queries of the sample was answered (there is no retriever 'search')"


def test_a_document_that_always_comes_by_the_same_chunk_first_is_not_as_fine_as_chunks(world: World) -> None:
    send(world, {"fees monthly": 5, "refunds late": 4, "returns by post": 3})
    parts = [f"shop/fees/page.md#{number}" for number in range(5)]
    world.probe.answers["refunds"] = Answer(
        outcome=Outcome.OK,
        latency_seconds=0.1,
        ranking=Ranking(
            ids=("doc-refunds", *parts),
            documents=("doc-refunds", *["shop/fees/page.md"] * 5),
            texts=("t",) * 6,
            scores=(0.9,) * 6,
            returned=6,
        ),
    )
    world.run()
    ask(world)
    assert reach.load_reach(world.store, "suite", "search")["too_fine"] is False


def test_a_grouping_is_not_advised_where_no_first_hit_is_known(world: World) -> None:
    send(world, {"fees monthly": 5, "refunds late": 4, "returns by post": 3})
    send(world, {"nothing": 2})
    ask(world, Shop(failing={"fees monthly", "refunds late", "returns by post"}))
    found = reach.load_reach(world.store, "suite", "search")
    assert (found["all_groups"], found["too_fine"]) == (0, False), "there is nothing to group"


def test_documents_as_fine_as_chunks_are_told_and_can_be_grouped(world: World) -> None:
    send(world, {"fees monthly": 5, "refunds late": 4, "returns by post": 3})
    ask(world)
    assert reach.load_reach(world.store, "suite", "search")["too_fine"] is True
    ask(world, grouping=Grouping(separator="/", parts=1))
    found = reach.load_reach(world.store, "suite", "search")
    assert [(one["group"], one["covered"]) for one in found["groups"]] == [("shop", True)]
    assert (found["value"], found["too_fine"]) == (1, False)


# --- suggestions ---------------------------------------------------------------------------------------------


def test_one_suggestion_for_each_group_that_no_canary_stands_for(any_world: World) -> None:
    send(any_world, QUERIES)
    ask(any_world)
    found = reach.suggest(any_world.store, "suite", "search", limit=10)
    assert [(one["query"], one["traffic"]) for one in found] == [
        ("refunds late", 25),
        ("returns by post", 10),
        ("odd one", 1),
    ]
    segments = {one["query"]: one["segments"] for one in found}
    assert segments["refunds late"] == ["frequent", "edge"]
    assert segments["odd one"] == ["edge"]
    assert [one["query"] for one in found if one["negative_candidate"]] == ["odd one"]
    assert len(reach.suggest(any_world.store, "suite", "search", limit=1)) == 1


def test_canaries_results_and_tasks_are_read_once_until_one_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(world, QUERIES)
    world.run()
    ask(world)
    suggested = [one["query"] for one in reach.suggest(world.store, "suite", "search", limit=10)]
    assert suggested == ["refunds late", "returns by post", "odd one"]
    done: list[str] = []
    for module, name in ((catalog, "list_canaries"), (ranking_rows, "load_rankings"), (task_rows, "task_queries")):
        known = getattr(module, name)

        def told(*of: Any, known: Any = known, name: str = name, **more: Any) -> Any:
            done.append(name)
            return known(*of, **more)

        monkeypatch.setattr(module, name, told)
    (found,) = reach.load_reaches(world.store, "suite", suggestions=10)
    assert [one["query"] for one in found.suggestions] == suggested
    assert done == [], "a page reads nothing of them again"
    expecting = {"key": "late", "query": "late", "expected_chunks": [{"document": "shop/refunds/page.md"}]}
    edited = parse_document(SuiteDocument, {"slug": "suite", "canaries": [expecting]}).canaries or ()
    suites.put_canaries(world.store, "suite", edited, now=world.clock.advance(1))
    (found,) = reach.load_reaches(world.store, "suite", suggestions=10)
    assert [one["query"] for one in found.suggestions] == ["returns by post", "odd one"]
    assert set(done) == {"list_canaries"}
    world.run()
    reach.load_reach(world.store, "suite", "search")
    assert "load_rankings" in done, "a new run may find others"
    reach.open_task(
        world.store, "suite", "search", task="gaps", queries=["odd one"], by="Ada", now=world.clock.advance(1)
    )
    assert [one["query"] for one in reach.suggest(world.store, "suite", "search", limit=10)] == ["returns by post"]
    assert "task_queries" in done


@pytest.mark.both
def test_suggestions_become_canaries_without_expectations_and_a_task(any_world: World) -> None:
    send(any_world, QUERIES)
    ask(any_world)
    chosen = [one["query"] for one in reach.suggest(any_world.store, "suite", "search", limit=2)]
    now = any_world.clock.advance(1)
    task = reach.open_task(any_world.store, "suite", "search", task="gaps", queries=chosen, by="Ada", now=now)
    assert (task["keys"], task["canaries"]) == (["refunds-late", "returns-by-post"], 2)
    found = references.load_canary(any_world.store, "suite", "refunds-late").body
    assert (found["query"], found["expected_chunks"]) == ("refunds late", [])
    assert len(references.load_canaries(any_world.store, "suite")) == 4
    assert [one["query"] for one in reach.suggest(any_world.store, "suite", "search", limit=10)] == ["odd one"]
    suites.archive_canary(any_world.store, "suite", "refunds-late", now=any_world.clock.advance(1))
    left = [one["query"] for one in reach.suggest(any_world.store, "suite", "search", limit=10)]
    assert "refunds late" not in left, "it is in the task"
    with pytest.raises(ConflictError, match="already"):
        reach.open_task(any_world.store, "suite", "search", task="gaps", queries=chosen, by="Ada", now=now)
    with pytest.raises(InvalidInputError, match="at least one"):
        reach.open_task(any_world.store, "suite", "search", task="none", queries=[], by="Ada", now=now)


def test_a_hundred_thousand_queries_go_through(sqlite_store: Store) -> None:
    world = made(sqlite_store)
    lines = [
        f'{{"query": "w{number % 997} {number}", "count": {1 + 100_000 // (number + 1)}}}' for number in range(100_000)
    ]
    for part in range(0, 100_000, 20_000):
        text = "\n".join(lines[part : part + 20_000])
        intake.receive_traffic(sqlite_store, world.vault, "suite", "search", [source(text)], now=world.clock.advance(1))
    (shown,) = intake.load_traffic(sqlite_store, "suite")
    assert shown["distinct"] == 100_000
    shop = Shop()
    assert ask(world, shop)
    assert len(shop.asked) <= 600
    found = reach.load_reach(sqlite_store, "suite", "search")
    assert found["sample"] == found["answered"] == len(shop.asked)
    assert to_us(world.clock()) > 0
