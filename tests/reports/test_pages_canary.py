"""The page of a canary: where what it expects stands, now against when it was well, its states, and trying it."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.values import Outcome, Reason, Verdict, replace
from app.diagnosis import rendering as diagnosis_sentences
from app.diagnosis.views import DiagnosisEvidence
from app.reports.service.canary_views import FailedRuns, layout_band, load_canary
from app.reports.views import CanaryState
from tests.support.fakes import answered, failed, hits
from tests.support.html_pages import Element, Page
from tests.support.library import API, Diagnosed, shelf
from tests.support.pages_service import HOSTILE, Site, csrf, page, site
from tests.support.world import canary
from tests.support.world import page as definitions

CHECK = "/checks/watch"
ANT = f"{CHECK}/canaries/ant"
KEY = shelf()[0]["key"]
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
ASKING = {"Try now", "Diagnose (about 7 requests)"}
"""Buttons that send requests to the retriever."""


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give a canary that was well twice, and then lost its chunk to others."""
    return _pages_of(sqlite_store)


@pytest.fixture(scope="module")
def seen(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to tests that store nothing in it."""
    return _pages_of(shared_stores())


def _pages_of(store: Store) -> Site:
    found = site(store)
    found.world.apply(definitions([canary("ant"), canary("bee")]))
    found.world.probe.answers["ant"] = answered(hits("doc-ant", "first", "second", texts={"doc-ant": "six legs"}))
    found.world.run()
    found.world.run()
    found.world.probe.answers["ant"] = answered(hits("second", "first", "third"))
    found.world.run()
    return found


def section(shown: Page, name: str) -> Element:
    """Find the section, or article, with this heading."""
    found = [one for one in shown.elements if one.get("aria-labelledby") == name and one.tag in {"section", "article"}]
    assert len(found) == 1, found
    return found[0]


def test_two_rankings_stand_side_by_side_with_how_each_hit_moved(seen: Site) -> None:
    shown = seen.page(ANT)
    before, now = section(shown, "side-well").text, section(shown, "side-now").text
    for told in (
        "Run 1 to 2",
        "1 ✕ gone doc-ant expected, found by its id six legs",
        "2 = same first",
        "3 ▲ up now 1 second",
    ):
        assert told in before
    for told in ("Since run 3", "1 ▲ up was 3 second", "2 = same first", "3 + new third"):
        assert told in now
    assert "expected" not in now
    assert [one.get("class") for one in shown.all("tr") if "match" in one.get("class")] == ["match"]


def test_a_line_marks_the_hits_that_count(pages: Site) -> None:
    pages.world.probe.answers["ant"] = answered(hits(*(f"n{rank}" for rank in range(1, 8))))
    pages.world.run()
    shown = pages.page(ANT)
    (cut,) = [one for one in shown.all("tr") if "cut" in one.get("class").split()]
    assert cut.text.startswith("5 ")
    assert "The line marks the top 5" in section(shown, "side-now").text


def test_what_it_expects_is_told_with_where_it_stands_and_by_what_it_was_recognised(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    expects = [
        "by-id",
        {"document": "a-document"},
        {"text": "The very same words"},
        {"text": PASSAGE},
        "nowhere",
        "low",
    ]
    found = definitions([{"key": "ant", "query": "ant", "expected_chunks": expects}], k=5)
    found["retrievers"][0] = {**found["retrievers"][0], "response": {**TEXTS}}
    pages.world.apply(found)
    ids = ("by-id", "of-it", "equal", "holds", "noise", "low")
    ranking = hits(*ids, texts={"equal": "the very same WORDS", "holds": f"Before it. {PASSAGE} After it."})
    documents = (None, "a-document", None, None, None, None)
    pages.world.probe.answers["ant"] = answered(replace(ranking, documents=documents))
    pages.world.run()
    rows = [one.text for one in pages.page(ANT).all("tr")]
    for told in (
        "by-id rank 1 by its id",
        "document a-document rank 2 by its document, as chunk of-it",
        "The very same words rank 3 by its text, as chunk equal",
        "rank 4 by its passage, held in chunk holds",
        "nowhere not in the answer",
        "low rank 6, below the top 5",
    ):
        assert any(told in row for row in rows), told


TEXTS = {"hits": "hits", "id": "id", "score": "score", "text": "text", "document": "document"}
PASSAGE = "An ant carries many times its own weight, because its muscles are thick compared with its small body."


def test_judgments_changed_since_are_held_against_the_stored_answers_and_that_is_said(pages: Site) -> None:
    changed = {**canary("ant"), "expected_chunks": ["third"]}
    pages.world.apply(definitions([changed, canary("bee")]))
    shown = pages.page(ANT)
    assert "The expected chunks were changed after the latest run" in shown.text
    assert "third rank 3 by its id" in section(shown, "expects").text


def test_tags_and_a_category_that_judge_nothing_are_no_change_of_what_is_expected(pages: Site) -> None:
    changed = {**canary("ant"), "tags": ["insects"], "category": "procedural"}
    pages.world.apply(definitions([changed, canary("bee")]))
    assert "procedural" in pages.page(ANT).text
    assert "The expected chunks were changed" not in pages.page(ANT).text
    pages.world.apply(definitions([{**changed, "category": "negative"}, canary("bee")]))
    assert "The expected chunks were changed" in pages.page(ANT).text


def test_the_rank_of_the_expected_chunk_is_drawn_over_time_first_of_all(pages: Site) -> None:
    expected = pages.page(ANT).one("svg", class_="ranks")
    pages.world.probe.answers["ant"] = answered(hits("noise", "other", "ant"))
    pages.world.run()
    pages.world.probe.answers["ant"] = answered(hits("noise"))
    pages.world.run()
    pages.world.probe.answers["ant"] = failed(Outcome.TIMEOUT)
    pages.world.run()
    shown = pages.page(ANT)
    drawn = [one.text for one in shown.all("title") if " run " in one.text]
    assert shown.one("svg", class_="ranks").get("aria-label") != expected.get("aria-label")
    assert {"Not measured", "Not found"} <= {one.partition(" from")[0] for one in drawn}
    assert shown.text.index("Rank of the expected chunk") < shown.text.index("Ranking: now and")
    # Answers to another query say nothing of this one.
    pages.world.apply(definitions([{**canary("ant"), "query": "which insects"}, canary("bee")]))
    assert not pages.page(ANT).all("svg", class_="ranks")


def test_another_query_is_not_compared_with_the_old_answers(pages: Site) -> None:
    pages.world.apply(definitions([{**canary("ant"), "query": "which insects"}, canary("bee")]))
    shown = pages.page(ANT)
    assert "query changed" in shown.text
    assert "No run has sent the present query yet." in section(shown, "rankings").text
    assert not shown.all("article")


def test_what_was_never_asked_says_so(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(definitions([canary("ant")]))
    shown = pages.page(ANT)
    assert "not measured yet" in shown.text
    assert "No states yet" in section(shown, "timeline").text
    assert not shown.all("svg", class_="band")


def test_a_probe_that_failed_makes_it_unknown_and_never_healthy(pages: Site) -> None:
    pages.world.probe.answers["ant"] = failed(Outcome.TIMEOUT, detail="after 5 s")
    pages.world.run()
    pages.world.run()
    shown = pages.page(ANT)
    assert "unknown" in shown.all("section", class_="headline")[0].text
    assert "The last 2 probes failed: timeout, after 5 s, since run 4" in shown.text
    assert "Latest run" in section(shown, "side-now").text
    assert [one.get("class") for one in shown.all("a", class_="stretch")][-1] == "stretch unknown"


def test_a_run_that_could_not_be_carried_out_leaves_it_unknown(pages: Site) -> None:
    pages.world.probe.all_fail()
    pages.world.run()
    detail = load_canary(pages.world.store, "watch", "bee")
    assert (detail.verdict, [gap.outcome for gap in detail.gaps]) == ("unknown", ["unreachable"])
    pages.world.probe.all_answer()
    pages.world.run()
    healed = load_canary(pages.world.store, "watch", "bee")
    assert (healed.verdict, healed.failure) == ("healthy", None)
    assert healed.gaps[0].until is not None


def test_a_canary_that_expects_an_id_as_a_document_says_so_first_and_what_to_change(sqlite_store: Store) -> None:
    found = site(sqlite_store)
    found.world.apply(definitions([canary("ant", expected_chunks=["second"]), canary("bee")]))
    found.world.probe.answers["ant"] = answered(replace(hits("first"), documents=("second",)))
    found.world.run()
    headline = found.page(ANT).all("section", class_="headline")[0].text
    said = "What the canary expects as a chunk id is no id of a hit but the document of one. Correct the suite: import"
    assert said in headline
    found.world.probe.answers["ant"] = answered(hits("first"))
    found.world.run()
    assert "no id of a hit" not in found.page(ANT).all("section", class_="headline")[0].text


def test_relevance_has_a_number_only_where_scores_have_a_scale(pages: Site) -> None:
    assert "Relevance 0.900." in section(pages.page(ANT), "side-well").text
    assert "in the top 5 and a first hit of relevance 0.5 or more." in section(pages.page(ANT), "expects").text
    minimum = "minimum 0.5"
    assert minimum in pages.page("/runs/1").text
    world = pages.world
    described = definitions([canary("ant"), canary("bee")])
    (retriever,) = described["retrievers"]
    world.apply({**described, "retrievers": [{**retriever, "scorer": {"kind": "judged"}}]})
    world.probe.answers["ant"] = answered(hits("other", "more"))
    world.run()
    world.probe.answers["ant"] = answered(hits("more", "other"))
    world.run()
    shown = pages.page(ANT)
    assert "Relevance" not in section(shown, "side-now").text
    assert "Relevance" not in section(shown, "timeline").text
    assert "Top score" not in shown.text
    assert "in the top 5." in section(shown, "expects").text, "its minimum degrades no canary there"
    assert minimum in pages.page("/runs/1").text, "by the scorer of then"
    assert minimum not in pages.page("/runs/5").text


def test_an_archived_canary_keeps_its_page_and_is_asked_no_more(pages: Site) -> None:
    pages.world.apply(definitions([canary("bee")]))
    shown = pages.page(ANT)
    assert "archived" in shown.all("section", class_="headline")[0].text
    assert [("disabled" in one.attributes) for one in shown.all("button") if one.text in ASKING] == [True] * 2
    assert pages.client().post(f"{ANT}/try").status_code == 409
    assert "sent in every run of watch" in shown.text


def test_of_a_canary_that_was_archived_before_any_run_no_run_is_promised(pages: Site) -> None:
    pages.world.apply(definitions([canary("bee"), canary("cow")]))
    assert "Not measured yet. The next run sends it" in pages.page("/checks/watch/canaries/cow").text
    pages.world.apply(definitions([canary("bee")]))
    assert "Never measured, and no check uses it any more." in pages.page("/checks/watch/canaries/cow").text


def test_a_key_that_may_only_read_is_offered_nothing_that_writes(pages: Site) -> None:
    client = pages.signed_in(pages.key(Scope.READ))
    shown = page(client.get(ANT))
    assert all("disabled" in one.attributes for one in shown.all("button") if one.text in ASKING)
    assert not shown.all("button", value="accept")
    assert client.post(f"{ANT}/try", data={"csrf": csrf(client)}).status_code == 403
    assert pages.world.probe.asked[-1][0] == "3"


# Trying


def test_trying_shows_how_a_run_would_judge_and_stores_nothing(seen: Site) -> None:
    seen.world.probe.answers["ant"] = answered(hits("doc-ant", "second"), index_version="v9")
    before = seen.world.dump()
    shown = page(seen.client().post(f"{ANT}/try"))
    told = section(shown, "just-now").text
    for words in (
        "would be healthy",
        "Found an expected chunk",
        "1 + new doc-ant expected",
        "2 ▼ down",
        "in the latest run 1",
        "v9",
    ):
        assert words in told
    assert seen.world.dump() == before
    assert "degraded" in shown.all("section", class_="headline")[0].text, "what runs found stays"
    (run_id, query) = seen.world.probe.asked[-1]
    assert (run_id[:4], query) == ("try-", "ant")
    assert seen.world.probe.askings[-1].k == 10
    assert seen.world.probe.askings[-1].retriever.retries == 0


def test_trying_judges_low_relevance_and_missing_in_numbers(seen: Site) -> None:
    seen.world.probe.answers["ant"] = answered(hits("noise", scores=[0.1]))
    told = section(page(seen.client().post(f"{ANT}/try")), "just-now").text
    assert "Relevance 0.100 is below its minimum 0.5; no expected chunk in the top 5" in told


def test_trying_a_retriever_that_does_not_answer_is_no_measurement(seen: Site) -> None:
    seen.world.probe.answers["ant"] = failed(Outcome.REFUSED, http_status=503, detail="said 503")
    told = section(page(seen.client().post(f"{ANT}/try")), "just-now").text
    assert "error response, HTTP 503: said 503. A run would have measured nothing" in told
    assert "healthy" not in told


def test_trying_what_is_not_there_is_refused(seen: Site) -> None:
    assert seen.client().post("/checks/nothing/canaries/ant/try").status_code == 404
    assert seen.client().post("/checks/watch/canaries/nothing/try").status_code in {404, 409}


# Asking why


def test_asking_why_tells_by_events_how_far_it_is(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, shelf(), owner=API)
    setting.run()
    pages = Site(world=setting.world, probe=setting.library)
    path = f"{CHECK}/canaries/{KEY}/diagnosis"
    answer = pages.client(accept="text/event-stream").post(path)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-accel-buffering"] == "no"
    *progress, last = _events(answer.text)
    assert last == ("ended", {})
    assert progress == [("progress", {"done": done, "of": 4}) for done in range(5)], (
        "three repeats and one deep question"
    )
    assert setting.why(KEY).requested_by
    setting.apply([{**one, "min_relevance_score": 0.1} for one in shelf()], owner=API)
    ((name, refused),) = _events(pages.client(accept="text/event-stream").post(path).text)
    assert name == "refused"
    assert "run the check, then ask again" in refused["detail"]


def _events(text: str) -> list[tuple[str, dict[str, Any]]]:
    told = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    assert text == "".join(f"event: {name}\ndata: {data}\n\n" for name, data in told)
    return [(name, json.loads(data)) for name, data in told]


def test_a_session_without_its_token_asks_nobody(pages: Site) -> None:
    client = pages.signed_in(pages.key())
    asked = len(pages.world.probe.asked)
    for path in ("try", "diagnosis"):
        assert client.post(f"{ANT}/{path}").status_code == 403
    assert len(pages.world.probe.asked) == asked


def test_the_evidence_is_a_row_for_each_question(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, shelf(), owner=API)
    setting.run()
    setting.library.chunks[f"{KEY}@2"] = setting.library.chunks.pop(KEY)
    setting.run()
    shown = Site(world=setting.world, probe=setting.library).page(f"{CHECK}/canaries/{KEY}")
    rows = [one.text for one in shown.all("tr")]
    assert any(row.startswith("Last healthy run what it was like rank 1 ") for row in rows)
    assert any(row.startswith("The query again, 3 is the fault persistent? not in the answer") for row in rows)
    assert any(
        row.startswith("The expected text as the query, 1 is it in the index at all? not in the answer") for row in rows
    )
    assert f"Chunk {KEY}@2 holds 100 % of the word 3-grams" in section(shown, "diagnosis").text
    assert "Review the proposals" in section(shown, "diagnosis").text


def test_a_cause_of_before_is_not_told_as_the_present_one(sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, shelf(), owner=API)
    setting.run()
    setting.library.chunks[f"{KEY}@2"] = setting.library.chunks.pop(KEY)
    setting.run()
    pages = Site(world=setting.world, probe=setting.library)
    shown = pages.page(f"{CHECK}/canaries/{KEY}")
    told, (sentence,) = section(shown, "diagnosis").text, shown.all("p", class_="why")[-1:]
    assert (told.startswith("Cause"), "Review the proposals" in told, "Rank now" in told) == (True, True, True)
    assert sentence.text in told
    setting.library.chunks[KEY] = setting.library.chunks.pop(f"{KEY}@2")
    setting.run()
    shown = pages.page(f"{CHECK}/canaries/{KEY}")
    told = section(shown, "diagnosis").text
    assert told.startswith("Last diagnosis")
    assert ("It is healthy by now" in told, "Review the proposals" in told) == (True, False)
    assert f"At run 2: {sentence.text}" in told, "what was, told of the past"
    assert not shown.all("p", class_="why"), "nor in the colour of what is wrong now"
    assert ("Rank then" in told, "Rank now" in told) == (True, False)
    setting.library.dead = Outcome.TIMEOUT
    setting.run()
    assert "It has changed since" in section(pages.page(f"{CHECK}/canaries/{KEY}"), "diagnosis").text


def test_every_cause_has_advice_and_what_was_not_answered_is_no_rank() -> None:
    evidence: DiagnosisEvidence = {
        "asked": {"repeat": 3, "deep": 1, "known_item": 0, "control": 0},
        "failed": ["timeout", "timeout", "refused, HTTP 503"],
        "ranks": {"before": 1, "run": None, "repeats": [2], "deep": None, "known_items": [], "control": None},
        "returned": {"before": 10, "run": None, "repeats": [10], "deep": None},
        "score_change": None,
        "scores_compared": 0,
    }
    rows = [(one.question, one.rank) for one in diagnosis_sentences.probed(evidence)]
    assert rows == [
        ("Last healthy run", "rank 1"),
        ("In the run", "unknown"),
        ("The query again, 1", "rank 2"),
        ("The query again, 2 times", "not answered"),
        ("The query, far deeper", "not answered"),
    ]
    assert list(diagnosis_sentences.findings(evidence)) == ["not answered: timeout, timeout, error response, HTTP 503"]
    assert diagnosis_sentences.probed({}) == []


# The band


def states(*given: tuple[str, int, int | None]) -> list[CanaryState]:
    """Make states, oldest first, of (verdict, minutes of beginning, of end)."""
    at: list[CanaryState] = [
        {
            "verdict": Verdict(verdict),
            "reasons": [Reason.MISSING] if verdict == "degraded" else [],
            "first_run": str(begin),
            "from": (NOW + timedelta(minutes=begin)).isoformat(),
            "last_run": None if end is None else str(end),
            "until": None if end is None else (NOW + timedelta(minutes=end)).isoformat(),
            "top_score": None,
            "measures": {},
            "ranking": [],
        }
        for verdict, begin, end in given
    ]
    return at[::-1]


def gap(begin: int, end: int | None) -> FailedRuns:
    """Make a gap of minutes."""
    until = None if end is None else (NOW + timedelta(minutes=end)).isoformat()
    since = (NOW + timedelta(minutes=begin)).isoformat()
    return FailedRuns(first_run=f"{begin}", since=since, until=until, runs=1, outcome="timeout", detail=None)


def minutes(moment: datetime) -> float:
    """Give minutes since the beginning."""
    return (moment - NOW).total_seconds() / 60


def test_a_band_runs_without_holes_and_what_was_not_measured_is_cut_out() -> None:
    given = states(("healthy", 0, 10), ("degraded", 12, 50), ("healthy", 60, None))
    found = layout_band(given, [gap(20, 30), gap(90, None)], NOW + timedelta(minutes=100))
    assert [(one.verdict, minutes(one.start), minutes(one.end)) for one in found] == [
        ("healthy", 0, 12),
        ("degraded", 12, 20),
        ("unknown", 20, 30),
        ("degraded", 30, 60),
        ("healthy", 60, 90),
        ("unknown", 90, 100),
    ]
    assert [one.open for one in found] == [False] * 5 + [True]
    ends = [float(one.x[:-1]) for one in found]
    assert ends == sorted(ends)
    assert ends[0] == 0


def test_the_shortest_state_can_still_be_pressed() -> None:
    given = states(("healthy", 0, 1), ("degraded", 1, 2), ("healthy", 2, None))
    found = layout_band(given, [], NOW + timedelta(days=300))
    assert all(float(one.width[:-1]) >= 1 for one in found)
    assert sum(float(one.width[:-1]) for one in found) <= 100
    many = layout_band(states(*(("healthy", one, one) for one in range(200))), [], NOW + timedelta(minutes=200))
    assert sum(float(one.width[:-1]) for one in many) <= 100


def test_a_band_of_nothing_is_empty() -> None:
    assert layout_band([], [], NOW) == []
    forgotten: list[CanaryState] = [{**one, "from": None} for one in states(("healthy", 0, None))]
    assert layout_band(forgotten, [], NOW) == []


def test_hostile_ids_texts_and_outcomes_are_only_text(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(
        definitions([{**canary("ant"), "query": HOSTILE, "expected_chunks": [HOSTILE, {"text": HOSTILE}]}])
    )
    hostile = hits(HOSTILE, scores=[0.9], texts={HOSTILE: HOSTILE})
    pages.world.probe.answers[HOSTILE] = answered(hostile, index_version=HOSTILE)
    pages.world.run(index_version=HOSTILE[:200])
    for _ in range(2):
        shown = page(pages.client().post(f"{ANT}/try"))
        assert "onerror=" in shown.text
        assert not shown.all("img", src="x")
        assert all(script.get("src").startswith("/static/") for script in shown.all("script"))
        assert not [
            name for one in shown.elements for name in one.attributes if name.startswith("on") or name == "style"
        ]
        pages.world.probe.answers[HOSTILE] = failed(Outcome.MALFORMED, detail=HOSTILE)
        pages.world.run()


LONG = f"{HOSTILE} {'Why does my kettle whistle? ' * 220}The end."


def test_a_query_as_long_as_a_letter_is_shown_short_and_whole_where_asked_for(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(
        definitions([canary("ant"), {**canary("long"), "query": LONG}, {**canary("down"), "query": f"{LONG}!"}])
    )
    pages.world.probe.answers |= {LONG: answered(hits("doc-long")), f"{LONG}!": answered(hits("doc-down"))}
    pages.world.run()
    pages.world.probe.answers |= {LONG: answered(hits("noise")), f"{LONG}!": failed(Outcome.TIMEOUT)}
    pages.world.run()
    compared = "/compare/canary?a=run%3A1&b=run%3A2&key=long"
    for path in (CHECK, "/runs/2", "/compare?a=run:1&b=run:2"):
        shown = pages.page(path)
        links = [
            one.text for one in shown.all("a") if one.get("href") in {f"{CHECK}/canaries/long", compared} and one.text
        ]
        assert [text for text in links if text.startswith(HOSTILE) and text.endswith("...")], path
        assert max(map(len, links)) <= 160, path
        assert "The end." not in shown.text, path
    shown = pages.page(f"{CHECK}/canaries/long")
    assert len(shown.one("h1").text) <= 160
    whole = shown.one("details", class_="whole")
    assert "open" not in whole.attributes
    assert whole.text == f"Full query: {len(LONG):,} characters {LONG}"
    assert not pages.page(ANT).all("details", class_="whole")
