"""Why canaries degraded is found out by asking again, said in the news, and never keeps the news from going out."""

import json
from typing import Any

import pytest

from app.alerts import store as alerts
from app.alerts.service import evidence, shown_alerts
from app.alerts.service.explanations import details
from app.alerts.service.shown_alerts import standing_lines
from app.base.db.engine import Store
from app.base.errors import ConflictError, NotFoundError
from app.base.values import Outcome
from app.catalog import store as catalog
from app.definitions.service import definitions
from app.diagnosis.service import diagnoses, reanchoring
from app.diagnosis.service.diagnoses import OnDemand
from app.diagnosis.store import marks_before
from app.operation.service import retention
from app.reports.service import canary_views
from tests.support.library import API, QUERIES, TEXTS, Diagnosed, shelf
from tests.support.present import present
from tests.support.watched import LEARNED, REGRESSION, regressed
from tests.support.world import LINKS

GONE = "The expected chunk is gone from the index: a query by its own text does not return it"


def _news(setting: Diagnosed) -> dict[str, Any]:
    """Deliver the one message that is due, and read it."""
    before = len(setting.world.send.sent)
    assert setting.world.deliver() is not None
    assert len(setting.world.send.sent) == before + 1
    data: dict[str, Any] = json.loads(setting.world.send.sent[-1][1].body)["data"]
    return data


# --- after a run ---------------------------------------------------------------------------------------------


def test_a_canary_that_another_retriever_of_the_check_found_is_not_told_as_one_that_never_did(
    sqlite_store: Store,
) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    del setting.library.chunks["refunds"]
    for number in range(4):  # each with the words of the query in an order of its own
        text = " ".join(f"{word} of-{number}" for word in QUERIES["tokens"].split())
        setting.library.chunks[f"other-{number}"] = text
    setting.apply(shelf(), retriever="other")
    setting.run()
    missing, outranked = setting.why("refunds"), setting.why("tokens")
    found_before = "; retriever search, which the check asked before, found what is expected"
    gone = "The expected chunk is not in the index of this retriever: a query by its own text does not return it"
    assert (missing.cause, missing.reason) == ("missing", f"{gone}{found_before}")
    assert outranked.cause == "outranked"
    assert outranked.reason.endswith(found_before)


def test_news_says_who_fell_of_what_and_since_when(store: Store) -> None:
    setting = Diagnosed.of(store)
    setting.library.index_version = "v41"
    setting.run()
    del setting.library.chunks["refunds"]
    setting.library.index_version = "v42"
    bad = setting.run()
    assert setting.why("refunds").cause == "missing"
    news = _news(setting)
    assert news["degraded"] == [
        {
            "key": "refunds",
            "query": "when is a refund paid to the card",
            "reasons": ["missing"],
            "rank_before": 1,
            "rank_now": None,
            "lower": [{"id": "refunds", "document": None, "rank_before": 1, "rank_now": None}],
            "lost": ["refunds"],
            "lost_total": 1,
            "cause": "missing",
            "cause_reason": GONE,
            "persistent": True,
        }
    ]
    assert news["since"] == {
        "run_id": str(bad.id),
        "index_version": "v42",
        "index_version_before": "v41",
        "runs_after": 0,
        "text": f"since run {bad.id}, when index version v41 -> v42",
    }
    assert (news["fleet"]["shape"], news["fleet"]["causes"]) == ("one", {"missing": 1})
    assert news["summary"] == (
        f"watch: coverage 0.833, below 1 since 12:02 UTC (run {bad.id}, index v42), "
        "1 of 6 canaries (refunds) lost its expected chunk: chunks missing from the index"
    )


def test_a_change_of_the_index_long_ago_is_not_blamed_however_new_it_is_to_another_check(store: Store) -> None:
    setting = Diagnosed.of(store, checks=("watch", "other"))
    setting.library.index_version = "v41"
    for slug in ("watch", "other"):
        setting.run(slug)
    setting.library.index_version = "v42"
    for _ in range(12):
        setting.run()
    setting.run("other")  # sees the change now
    del setting.library.chunks["refunds"]
    bad = setting.run()
    with store.read() as connection:
        assert marks_before(connection, [bad.id])[bad.id].runs_after == 12
    news = _news(setting)
    assert (news["since"]["index_version"], news["since"]["text"]) == (None, f"since run {bad.id}")
    assert "index v42" not in news["summary"]


def test_a_healthy_run_asks_nothing_more(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    assert setting.diagnose(setting.run(diagnosed=False)) is None
    assert setting.library.questions() == []


def test_what_all_lost_together_is_called_an_event_of_the_index(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    for key in ("refunds", "tokens", "limits"):
        del setting.library.chunks[key]
    setting.run()
    news = _news(setting)
    assert (news["fleet"]["shape"], news["fleet"]["headline"]) == ("all", "3 of 6: 3 missing")
    assert news["summary"].endswith("3 of 6 canaries lost their expected chunk: chunks missing from the index")
    assert news["causes"] == "chunks missing from the index"


def test_news_and_diagnosis_agree_on_the_rank_before_of_a_canary_that_was_of_low_relevance(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, shelf(min_relevance_score=1.0))
    setting.run()
    del setting.library.chunks["invoices"], setting.library.chunks["refunds"]
    setting.run()
    why, told = setting.why("invoices"), next(one for one in _news(setting)["degraded"] if one["key"] == "invoices")
    assert (why.cause, told["cause"]) == ("missing", "missing")
    assert (why.rank_before, told["rank_before"]) == (1, 1)


def test_an_outranked_canary_tells_how_far_its_chunk_fell(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    for number in range(12):  # beyond what a run asks for, within what is asked deeper
        setting.library.chunks[f"ad-{number:02}"] = f"when is a refund paid to the card {number} times {number + 1}"
    setting.run()
    why = setting.why("refunds")
    assert why.cause in {"outranked", "duplicates"}
    assert (why.rank_before, why.rank_now, why.persistent) == (1, 13, True)
    told = next(one for one in _news(setting)["degraded"] if one["key"] == "refunds")
    assert (told["rank_now"], told["lost"], told["lost_total"]) == (13, [], 0)
    assert told["lower"] == [{"id": "refunds", "document": None, "rank_before": 1, "rank_now": 13}]


@pytest.mark.parametrize("below", [4, 12])
def test_a_canary_that_expects_something_else_since_never_found_that_however_healthy_it_was(
    sqlite_store: Store, below: int
) -> None:
    ads = {f"ad-{number:02}": f"when is a refund paid to the card {number} times" for number in range(below)}
    setting = Diagnosed.of(sqlite_store, shelf("refunds", expected_chunks=["ad-00"]))
    setting.library.chunks |= ads
    for _ in range(2):
        setting.run()
    setting.apply(shelf("refunds"))
    setting.run()
    why = setting.why("refunds")
    assert (why.cause, why.rank_before, why.rank_now) == ("vocabulary_mismatch", None, below + 1)
    assert "fell" not in why.reason
    told = next(one for one in _news(setting)["degraded"] if one["key"] == "refunds")
    assert (told["lost"], told["lost_total"]) == ([], 0)


def test_news_waits_for_the_diagnosis_and_no_longer(store: Store) -> None:
    setting = Diagnosed.of(store)
    setting.run()
    del setting.library.chunks["refunds"]
    ended = setting.run(diagnosed=False)
    assert setting.world.deliver() is None
    outcome = setting.diagnose(ended)
    assert outcome is not None
    assert (outcome.causes, outcome.released) == (("missing",), 1)
    assert _news(setting)["degraded"][0]["cause"] == "missing"


def test_news_goes_out_in_time_though_nobody_ever_diagnoses(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    del setting.library.chunks["refunds"]
    setting.run(diagnosed=False)  # the process dies here
    setting.world.clock.advance(29)
    assert setting.world.deliver() is None
    setting.world.clock.advance(1)
    assert _news(setting)["degraded"][0]["cause"] is None


def test_a_later_diagnosis_changes_nothing_of_news_that_was_sent(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    del setting.library.chunks["refunds"]
    ended = setting.run(diagnosed=False)
    setting.world.clock.advance(31)
    _news(setting)
    outcome = setting.diagnose(ended)
    assert outcome is not None
    assert (outcome.causes, outcome.released) == (("missing",), 0)
    assert setting.world.deliver() is None


def test_an_alert_tells_over_the_api_who_fell_and_why(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    del setting.library.chunks["refunds"]
    bad = setting.run()
    (listed,) = setting.world.alerts()
    alert = shown_alerts.alert(sqlite_store, int(listed["id"]))
    (opened,) = alert["transitions"]
    assert (present(alert["since"])["run_id"], present(opened["fleet"])["headline"]) == (
        str(bad.id),
        "1 of 6 (refunds): 1 missing",
    )
    (named,) = opened["evidence"]["canaries"]
    assert (named["key"], named["cause"], named["cause_reason"]) == ("refunds", "missing", GONE)


@pytest.mark.both
def test_old_diagnoses_are_forgotten_but_for_what_waits_for_an_answer(store: Store) -> None:
    setting = Diagnosed.of(store)
    setting.run()
    del setting.library.chunks["refunds"]
    setting.library.chunks["tokens@2"] = setting.library.chunks.pop("tokens")
    setting.run()
    counts = setting.world.count("diagnoses", "reanchors")
    assert counts == {"diagnoses": 2, "reanchors": 1}
    retention.prune(store, setting.world.clock(), days=0)
    assert setting.world.count("diagnoses", "reanchors") == counts
    setting.world.clock.advance(400 * 86_400)
    retention.prune(store, setting.world.clock(), days=30)
    assert setting.world.count("diagnoses", "reanchors") == {"diagnoses": 1, "reanchors": 1}
    reanchoring.decide(store, "watch", reject=None, by="Ada", now=setting.world.clock())
    retention.prune(store, setting.world.clock(), days=30)
    assert setting.world.count("diagnoses", "reanchors") == {"diagnoses": 0, "reanchors": 0}


def test_an_alert_that_opens_later_still_tells_what_was_found_when_canaries_fell(sqlite_store: Store) -> None:
    twice = {"kind": "threshold", "measure": "coverage", "critical": {"below": 1.0}, "open": {"bad": 2, "of": 3}}
    setting = Diagnosed.of(sqlite_store, rules=[twice])
    setting.run()
    del setting.library.chunks["refunds"]
    first = setting.run()
    asked = len(setting.library.questions())
    assert setting.world.deliver() is None
    setting.run()
    news = _news(setting)
    assert (news["degraded"][0]["cause"], news["since"]["run_id"]) == ("missing", str(first.id))
    assert len(setting.library.questions()) == asked, "nothing newly degraded, so nothing was asked"


def test_only_so_many_canaries_are_asked_about_spread_over_categories(sqlite_store: Store) -> None:
    kinds = {"retention": "procedural", "invoices": "procedural", "tokens": "comparative"}
    canaries = [{**one, "category": kinds.get(one["key"], "simple_factual")} for one in shelf()]
    setting = Diagnosed.of(sqlite_store, canaries)
    setting.run()
    setting.library.chunks = {"other": "nothing of the kind is written here"}
    ended = setting.run(diagnosed=False)
    outcome = setting.diagnose(ended, most=3)
    assert outcome is not None
    assert len(outcome.causes) == 3
    told = {one["key"]: kinds.get(one["key"], "simple_factual") for one in _news(setting)["degraded"] if one["cause"]}
    assert sorted(told.values()) == ["comparative", "procedural", "simple_factual"]


def test_the_canaries_asked_about_are_those_that_the_news_lists(sqlite_store: Store) -> None:
    """Those it lists are the first by key; spread over categories, others would be asked about."""
    texts = {f"t{place:02}": f"word{place} alone stands in text{place} and nowhere else{place}" for place in range(24)}
    canaries = [
        {
            "key": key,
            "query": text,
            "expected_chunks": [key],
            "min_relevance_score": 0.0,
            "category": "comparative" if place > 20 else "simple_factual",
        }
        for place, (key, text) in enumerate(texts.items())
    ]
    setting = Diagnosed.of(sqlite_store, canaries)
    setting.library.chunks = dict(texts)
    setting.run()
    setting.library.chunks = {"other": "alone stands in and nowhere"}
    setting.run()
    news = _news(setting)
    assert len(news["degraded"]) == 10
    assert all(one["cause"] for one in news["degraded"])


def test_of_an_event_that_took_many_the_rest_get_their_turn_in_the_runs_to_come(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.chunks = {"other": "nothing of the kind is written here"}
    counts = []
    for _ in range(4):
        outcome = setting.diagnose(setting.run(diagnosed=False), most=4)
        counts.append(0 if outcome is None else len(outcome.causes))
    assert counts == [4, 2, 0, 0]


def test_the_same_answer_is_not_asked_about_again_within_hours(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    for _ in range(3):  # comes and goes
        del setting.library.chunks["refunds"]
        setting.run()
        setting.library.chunks["refunds"] = TEXTS["refunds"]
        setting.run()
    once = len(setting.library.questions())
    setting.world.clock.advance(7 * 3600)
    del setting.library.chunks["refunds"]
    setting.run()
    assert len(setting.library.questions()) == 2 * once
    assert once > 3


def test_the_cause_of_an_earlier_fall_is_not_told_of_a_later_one_with_the_same_answer(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    del setting.library.chunks["refunds"]
    setting.run()
    assert _news(setting)["degraded"][0]["cause"] == "missing"
    setting.library.chunks["refunds"] = TEXTS["refunds"]
    setting.run()
    assert "recovered" in _news(setting)["summary"]
    del setting.library.chunks["refunds"]
    setting.run()
    news = _news(setting)
    assert (news["degraded"][0]["cause"], news["causes"]) == (None, None)
    newest = setting.run()
    assert setting.why("refunds").run_id == str(newest.id)


def test_a_flip_that_did_not_persist_is_said_to_be_none(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    del setting.library.chunks["refunds"]
    ended = setting.run(diagnosed=False)
    setting.library.chunks["refunds"] = TEXTS["refunds"]
    setting.diagnose(ended)
    assert (setting.why("refunds").cause, setting.why("refunds").persistent) == ("unstable", False)
    news = _news(setting)
    assert news["degraded"][0]["persistent"] is False
    assert news["summary"].endswith("1 canary degraded and was healthy on retry")


def test_who_was_well_when_asked_again_is_told_last_and_not_in_the_headline(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    for key in ("refunds", "tokens", "limits"):
        del setting.library.chunks[key]
    ended = setting.run(diagnosed=False)
    setting.library.chunks |= {key: TEXTS[key] for key in ("refunds", "limits")}
    setting.diagnose(ended)
    news = _news(setting)
    told = [(one["key"], one["persistent"]) for one in news["degraded"]]
    assert told[0] == ("tokens", True)
    assert sorted(told[1:]) == [("limits", False), ("refunds", False)]
    assert news["fleet"]["headline"] == "1 of 6 (tokens): 1 missing; 2 of 3 healthy on retry"
    assert (news["degraded_total"], news["changed_total"], news["recovered_on_retry"]) == (3, 3, 2)
    assert "1 of 6 canaries (tokens) lost its expected chunk: chunks missing from the index" in news["summary"]


def test_an_unknown_run_is_not_diagnosed(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    setting.library.dead = Outcome.UNREACHABLE
    ended = setting.run(diagnosed=False)
    assert ended.verdict == "unknown"
    assert setting.diagnose(ended) is None
    assert setting.library.questions() == []


def test_a_retriever_that_dies_meanwhile_is_left_interruptibly(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    for key in ("refunds", "tokens", "limits", "export"):
        del setting.library.chunks[key]
    ended = setting.run(diagnosed=False)
    setting.library.dead = Outcome.TIMEOUT
    outcome = setting.diagnose(ended)
    assert outcome is not None
    assert set(outcome.causes) == {"retriever_error"}
    assert len(setting.library.questions()) == 10, "as many as its breaker bears"
    assert outcome.released == 1


def test_a_worker_that_stops_asks_nothing_more_and_lets_the_news_go(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    del setting.library.chunks["refunds"]
    ended = setting.run(diagnosed=False)
    outcome = setting.diagnose(ended, stopping=lambda: True)
    assert outcome is not None
    assert (outcome.causes, outcome.released) == ((), 1)
    assert setting.library.questions() == []
    assert _news(setting)["degraded"][0]["cause"] is None


def test_what_time_there_is_goes_to_the_first_questions_of_every_canary(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    lost = ("refunds", "tokens", "limits")
    for key in lost:
        del setting.library.chunks[key]
    ended = setting.run(diagnosed=False)
    left = iter([False] * 4)
    outcome = setting.diagnose(ended, stopping=lambda: next(left, True))
    assert len({query for query, _ in setting.library.questions()}) == 3
    assert outcome is not None
    assert outcome.causes == (), "a cause is not named of one answer"


# --- on demand -----------------------------------------------------------------------------------------------


def test_somebody_may_ask_at_any_time(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    with pytest.raises(NotFoundError, match="POST to this URL to diagnose"):
        setting.why("refunds")
    del setting.library.chunks["refunds"]
    ended = setting.run(diagnosed=False)
    found = OnDemand().ask(setting.planner, setting.library, "watch", "refunds", by="Ada", clock=setting.world.clock)
    assert found == setting.why("refunds")
    assert (found.cause, found.requested_by, found.run_id) == ("vocabulary_mismatch", "Ada", str(ended.id))
    assert found.evidence["asked"]["repeat"] == 3


def test_what_scores_too_low_where_it_should_stand_is_told_by_its_rank_and_not_as_outranked(
    sqlite_store: Store,
) -> None:
    setting = Diagnosed.of(sqlite_store, shelf("tokens", min_relevance_score=0.95))
    setting.run(diagnosed=False)
    found = OnDemand().ask(setting.planner, setting.library, "watch", "tokens", by="Ada", clock=setting.world.clock)
    assert (found.cause, found.rank_now, found.persistent) == ("low_relevance", 1, True)
    assert (found.evidence["ranks"]["run"], found.evidence["ranks"]["repeats"]) == (1, [1, 1, 1])
    assert "at rank 1; the first hit's relevance 0." in found.reason
    assert found.reason.endswith("is below its min_relevance_score 0.95")


def test_the_cause_of_an_earlier_fault_is_not_told_of_a_canary_that_lost_its_chunk_since(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, shelf("tokens", min_relevance_score=0.95))

    def _told(run_id: int) -> str | None:
        with sqlite_store.read() as connection:
            explained = evidence.load_fleet(connection, run_id)
        assert explained is not None
        found = explained.diagnoses.get("tokens")
        return None if found is None else found.cause

    assert _told(setting.run().id) == "low_relevance"
    assert setting.why("tokens").rank_now == 1
    setting.library.chunks["aside"] = "an access token is no ticket"
    assert _told(setting.run(diagnosed=False).id) == "low_relevance"  # another answer of the same reasons
    setting.library.chunks = {"other": "nothing is written here of how long it lives"}
    lost = setting.run(diagnosed=False)
    assert _told(lost.id) is None
    setting.diagnose(lost)
    cause = _told(lost.id)
    assert cause == setting.why("tokens").cause != "low_relevance"
    setting.library.chunks["more"] = "nor here of what an access token is"
    assert _told(setting.run(diagnosed=False).id) == cause  # another answer, but the same fault


def test_who_the_detector_names_is_held_against_the_time_before_the_fault(sqlite_store: Store) -> None:
    """A second expected chunk that goes is caught by no limit: the first runs without it are told healthy."""
    second = {"expected_chunks": ["refunds", {"id": "invoices", "grade": 1}]}
    setting = Diagnosed.of(sqlite_store, [*shelf("refunds", **second), *shelf("tokens", "limits")], rules=[REGRESSION])
    for _ in range(LEARNED):
        setting.run(diagnosed=False)
    del setting.library.chunks["invoices"]
    first = setting.run()
    assert setting.world.results(first)["refunds"]["verdict"] == "healthy"
    named = next(run for run in (setting.run() for _ in range(6)) if regressed(setting.world, run))
    assert setting.world.results(named)["refunds"]["reasons"] == ["regressed"]
    why = setting.why("refunds")
    assert (why.cause, why.reason, why.persistent) == ("missing", GONE, True)
    shown = canary_views.load_canary(sqlite_store, "watch", "refunds")
    assert shown.now is not None
    assert shown.well is not None
    assert [shown.now.first_run, shown.well.last_run] == [str(named.id), str(first.id - 1)]
    assert [(one["id"], one["move"]) for one in shown.well.hits][:2] == [("refunds", "same"), ("invoices", "gone")]


def test_asking_refuses_what_no_run_tells_of(sqlite_store: Store) -> None:
    setting = Diagnosed.of(
        sqlite_store, [*shelf(), {"key": "moon", "query": "moon", "category": "negative"}], owner=API
    )
    on_demand = OnDemand()

    def ask(key: str, slug: str = "watch") -> None:
        on_demand.ask(setting.planner, setting.library, slug, key, by="Ada", clock=setting.world.clock)

    with pytest.raises(ConflictError, match="no ended run yet"):
        ask("refunds")
    setting.run()
    for key, slug in (("nobody", "watch"), ("refunds", "elsewhere")):
        with pytest.raises(NotFoundError):
            ask(key, slug)
    with pytest.raises(ConflictError, match="expects no chunk"):
        ask("moon")
    ask("refunds")
    setting.apply(shelf("refunds", "tokens", tags=["new"]), owner=API)
    with pytest.raises(ConflictError, match="canary 'refunds' was changed since run"):
        ask("refunds")
    definitions.archive(setting.store, "check", "watch", now=setting.world.clock())
    with pytest.raises(ConflictError, match="archived"):
        ask("refunds")


def test_the_same_question_is_not_asked_twice_at_once(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store)
    setting.run()
    on_demand = OnDemand()

    def ask(key: str) -> None:
        on_demand.ask(setting.planner, setting.library, "watch", key, by="Ada", clock=setting.world.clock)

    on_demand._under_way.add(("watch", "refunds"))
    with pytest.raises(ConflictError, match="already; wait"):
        ask("refunds")
    ask("tokens")
    on_demand._under_way.clear()
    ask("refunds")
    assert diagnoses.show(setting.store, "watch", "refunds").requested_by == "Ada"


def test_the_alerts_of_an_incident_have_one_set_of_canaries_which_later_diagnoses_explain(sqlite_store: Store) -> None:
    rules = [
        {"kind": "threshold", "measure": "coverage", "critical": {"below": 1.0}, "open": {"bad": 1, "of": 1}},
        {"kind": "threshold", "measure": "degraded_share", "critical": {"above": 0.5}, "open": {"bad": 1, "of": 1}},
    ]
    setting = Diagnosed.of(sqlite_store, rules=rules)
    setting.run()
    del setting.library.chunks["refunds"]
    setting.run(diagnosed=False)
    for key in ("tokens", "limits", "export"):
        del setting.library.chunks[key]
    setting.run(diagnosed=False)
    with sqlite_store.read() as connection:
        check = present(catalog.find_definition(connection, "check", "watch"))
        rows = [
            (row, alerts.list_transitions(connection, [row.id])[row.id])
            for row in alerts.open_alerts(connection, check.id, hold=False)
        ]

    def texts() -> set[str]:
        with sqlite_store.read() as connection:
            return {one.summary.rpartition(", ")[2] for one in standing_lines(connection, rows)}

    assert len(rows) == 2
    with sqlite_store.read() as connection:  # the value is that of the run whose canaries are counted
        (coverage,) = [one.summary for one in standing_lines(connection, rows) if " coverage " in one.summary]
    assert coverage.startswith("watch: coverage 0.333, below 1 since ")
    assert texts() == {"4 of 6 canaries lost their expected chunk"}
    shown = [details(sqlite_store, row.id, links=LINKS, now=setting.world.clock())["degraded"] for row, _ in rows]
    assert [one["changed"] for one in shown] == [4, 4], "pages of the alerts too"
    setting.run()  # the same answers, and diagnoses of a run that no alert was notified of
    assert texts() == {"4 of 6 canaries lost their expected chunk: chunks missing from the index"}
