"""Which canaries an alert names: those that changed since it began, the detector's culprits first, and no others."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from app.alerts.service import explanations
from app.base.db.engine import Store
from app.base.values import replace
from app.hooks.domain import Notice
from app.hooks.notice_texts import NoticeText
from tests.support.fakes import answered, failed, hits
from tests.support.pages_service import Site
from tests.support.watched import seen
from tests.support.world import LINKS, World, canary, page

CHRONIC = tuple(f"never-{number:02}" for number in range(30))
WELL = tuple(f"well-{number:02}" for number in range(40))
KEYS = (*CHRONIC, *WELL)
LOST = WELL[:7]
FOUND = CHRONIC[:7]
QUALITY = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.5}, "open": {"bad": 1, "of": 1}}


def _defined(store: Store, *rules: Mapping[str, Any]) -> World:
    world = World(store=store)
    world.apply(page([canary(key) for key in KEYS], rules=list(rules)))
    return world


def _carry_out(world: World, missing: Iterable[str], *, seconds: float = 0.1, count: int = 1) -> None:
    lost = set(missing)
    world.probe.otherwise = lambda ask: answered(
        hits("noise" if ask.query in lost else f"doc-{ask.query}"), seconds=seconds
    )
    for _ in range(count):
        world.run()
        world.deliver_all()


def _sent(world: World) -> list[dict[str, Any]]:
    return [json.loads(message.body) for _, message in world.send.sent]


def _keys(notice: Mapping[str, Any]) -> list[str]:
    return [one["key"] for one in notice["data"]["degraded"]]


def test_canaries_that_expect_something_else_since_have_lost_nothing(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in ("ant", "bee", "cat", "dog")], rules=[QUALITY]))
    world.run()
    others = [canary(key, expected_chunks=[{"id": "another"}]) for key in ("ant", "bee", "cat")]
    world.apply(page([*others, canary("dog")], rules=[QUALITY]))
    world.run()
    world.deliver_all()
    (opened,) = _sent(world)
    data = opened["data"]
    assert data["title"] == "watch: 3 of 4 questions are degraded: changed or added since run 1"
    assert data["fleet"]["headline"].startswith("3 of 4 canaries degraded since they were changed")
    assert data["summary"].startswith("watch: coverage 0.250, below 0.5 since")
    shown = Site(world=world).page("/alerts/1")
    assert "No run before expected this of them" in shown.text
    assert "lost" not in shown.one("h1").text + data["summary"]
    assert {one["lost_total"] for one in data["degraded"]} == {0}
    assert data["lost"] is None
    assert "lost" not in json.dumps(NoticeText(cast("Notice", opened)).canaries)


def test_canaries_that_were_changed_and_found_well_since_can_lose_what_they_expect(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in ("ant", "bee", "cat", "dog")], rules=[QUALITY]))
    world.run()
    _carry_out(world, ["ant", "cat", "dog"])
    world.apply(page([canary(key) for key in ("ant", "cat", "dog")], rules=[QUALITY]))
    bee = canary("bee", expected_chunks=[{"id": "new-bee"}])
    world.apply(page([bee, *(canary(key) for key in ("ant", "cat", "dog"))], rules=[QUALITY]))
    world.probe.answers["bee"] = answered(hits("new-bee"))
    _carry_out(world, ["ant", "cat", "dog"])
    assert Site(world=world).page("/incidents/1").one("h1").text == "watch: 3 of 4 questions got worse"
    world.probe.answers["bee"] = answered(hits("doc-bee"))
    _carry_out(world, ["ant", "cat", "dog"])
    assert Site(world=world).page("/incidents/1").one("h1").text == "watch: 4 of 4 questions got worse"
    assert "new, changed or counted otherwise since" not in Site(world=world).page("/alerts/1").text


def test_judgments_that_are_added_while_an_alert_is_open_make_no_loss_a_change(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in ("ant", "bee", "cat", "dog")], rules=[QUALITY]))
    world.run()
    _carry_out(world, ["ant", "bee", "cat"])
    more = [canary(key, expected_chunks=[{"id": f"doc-{key}"}, {"id": f"more-{key}"}]) for key in ("ant", "bee", "cat")]
    world.apply(page([*more, canary("dog")], rules=[QUALITY]))
    _carry_out(world, ["ant", "bee", "cat"])
    site = Site(world=world)
    assert site.page("/incidents/1").one("h1").text == "watch: 3 of 4 questions got worse: at most 1 hit returned"
    shown = site.page("/alerts/1").text
    assert "No run before expected this of them" not in shown
    assert "new, changed or counted otherwise since" not in shown
    other = [
        canary("ant", query="another question", expected_chunks=[{"id": "doc-ant"}, {"id": "more-ant"}]),
        *more[1:],
    ]
    world.apply(page([*other, canary("dog")], rules=[QUALITY]))
    _carry_out(world, ["another question", "bee", "cat"])
    assert site.page("/incidents/1").one("h1").text == "watch: 2 of 4 questions got worse: at most 1 hit returned"
    assert "1 other is degraded that is new, changed or counted otherwise since" in site.page("/alerts/1").text


@pytest.mark.parametrize("kept", [False, True])
def test_a_recovery_by_taking_out_what_got_worse_says_so(sqlite_store: Store, *, kept: bool) -> None:
    world = World(store=sqlite_store)
    whole = [canary(key) for key in ("ant", "bee", "cat", "dog")]
    world.apply(page(whole, rules=[{**QUALITY, "close": 1}]))
    world.run()
    _carry_out(world, ["ant", "bee", "cat"])
    empty = [canary(key, expected_chunks=[]) for key in ("ant", "bee")] if kept else []
    world.apply(page([*empty, *whole[2:]], rules=[{**QUALITY, "close": 1}]))
    _carry_out(world, [])
    told = "2 that got worse were taken out of the suite, or expect nothing any more"
    assert _sent(world)[-1]["data"]["summary"].endswith(f"no canary is worse than before the alert; {told}")


def test_a_recovery_by_editing_what_got_worse_says_so(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    whole = [canary(key) for key in ("ant", "bee", "cat", "dog")]
    world.apply(page(whole, rules=[{**QUALITY, "close": 1}]))
    world.run()
    _carry_out(world, ["ant", "bee", "cat"])
    edited = [canary(key, expected_chunks=[{"id": "filler"}]) for key in ("ant", "bee", "cat")]
    world.apply(page([*edited, whole[3]], rules=[{**QUALITY, "close": 1}]))
    for key in ("ant", "bee", "cat"):
        world.probe.answers[key] = answered(hits("filler"))
    _carry_out(world, [])
    told = "no other canary is worse than before the alert; 3 that got worse ask or expect something else now"
    assert _sent(world)[-1]["data"]["summary"].endswith(told)


def test_a_recovery_by_asking_another_retriever_says_so(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    whole = [canary(key) for key in ("ant", "bee", "cat", "dog")]
    before = page(whole, rules=[{**QUALITY, "close": 1}])
    world.apply(before)
    world.run()
    _carry_out(world, ["ant", "bee", "cat"])
    edited = {**before, "retrievers": [{**before["retrievers"][0], "url": "http://127.0.0.1:9/other"}]}
    world.apply(edited)
    _carry_out(world, [])
    summary = _sent(world)[-1]["data"]["summary"]
    name = before["retrievers"][0]["slug"]
    assert summary.endswith(f"no canary is worse than before the alert; retriever {name} was edited after run 2")


def test_canaries_that_were_taken_out_and_put_back_are_not_new(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    whole = [canary(key) for key in ("ant", "bee", "cat", "dog")]
    world.apply(page(whole, rules=[QUALITY]))
    world.run()
    world.apply(page(whole[2:], rules=[QUALITY]))
    world.run()
    world.apply(page(whole, rules=[QUALITY]))
    _carry_out(world, ["ant", "bee", "cat"])
    assert Site(world=world).page("/incidents/1").one("h1").text == "watch: 3 of 4 questions got worse"


def test_counts_are_of_the_canaries_that_expect_something_unless_another_changed(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    negative = {"key": "yak", "query": "nobody knows", "category": "negative", "max_relevance_score": 0.4}
    world.apply(page([*(canary(key) for key in ("ant", "bee", "cat")), negative], rules=[QUALITY]))
    world.probe.answers["nobody knows"] = answered(hits())
    world.run()
    world.probe.all_miss()
    world.probe.answers["nobody knows"] = answered(hits())
    world.run()
    shown = Site(world=world).page("/incidents/1")
    assert shown.one("h1").text.startswith("watch: 3 of 3 questions got worse")
    assert "0 of 3 questions find their document" in shown.text
    world.probe.answers["nobody knows"] = answered(hits("x", scores=[0.9]))
    world.run()
    assert "4 of 4 questions got worse" in Site(world=world).page("/incidents/1").one("h1").text


def test_what_is_lost_after_canaries_were_changed_is_told_beside_what_was_never_found(sqlite_store: Store) -> None:
    """A message tells of the run that opened the alert; pages of the newest bad one."""
    keys = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")
    rule = {**QUALITY, "critical": {"below": 0.9}}
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in keys], rules=[rule]))
    world.run()
    others = [canary(key, expected_chunks=[{"id": "another"}]) for key in keys[:2]]
    kept = [canary(key, expected_chunks=[{"id": f"doc-{key}", "grade": 2}]) for key in keys[2:]]
    world.apply(page([*others, *kept], rules=[rule]))
    world.run()
    site = Site(world=world)
    title = "watch: 2 of 8 questions are degraded: changed or added since run 1"
    assert site.page("/incidents/1").one("h1").text == title
    _carry_out(world, keys[2:6])
    shown = site.page("/incidents/1")
    assert shown.one("h1").text.startswith("watch: 4 of 8 questions got worse")
    assert "coverage 0.250, below 0.9 since" in shown.text
    assert "2 of 8 questions find their document" in shown.text
    alert = site.page("/alerts/1")
    assert "4 of 8 canaries lost their expected chunk" in alert.text
    assert "2 others are degraded that are new, changed or counted otherwise since" in alert.text
    assert "No run before expected this of them" not in alert.text
    assert "another" not in shown.one("p", id="lost").text, "which nobody ever found"
    opened = json.loads(world.send.sent[0][1].body)
    assert opened["data"]["title"] == title


def test_adopted_judgments_that_move_a_number_are_told_beside_it(sqlite_store: Store) -> None:
    keys = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")
    rule = {"kind": "threshold", "measure": "R@5", "critical": {"below": 0.95}, "open": {"bad": 1, "of": 1}}
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in keys], rules=[rule]))
    world.run()
    _carry_out(world, keys[:1])
    assert "something else since" not in _sent(world)[0]["data"]["summary"]
    more = [{"id": "another"}]
    world.apply(page([canary(key, expected_chunks=[{"id": f"doc-{key}"}, *more]) for key in keys], rules=[rule]))
    _carry_out(world, keys[:1])
    shown = Site(world=world).page("/incidents/1")
    assert "R@5 0.438, below 0.95 since" in shown.text
    assert "; 8 of 8 canaries ask or expect something else since" in shown.text
    assert shown.one("p", id="lost").text == "Lost chunks: doc-ant.", "the other one was never found"


def test_a_canary_that_expects_nothing_since_is_one_of_those_that_were_changed(sqlite_store: Store) -> None:
    keys = ("ant", "bee", "cat", "dog")
    rule = {"kind": "threshold", "measure": "R@5", "critical": {"below": 0.95}, "open": {"bad": 1, "of": 1}}
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in keys], rules=[rule]))
    _carry_out(world, [])
    more = [canary(key, expected_chunks=[{"id": f"doc-{key}"}, {"id": "another"}]) for key in keys[:3]]
    world.apply(page([*more, canary("dog", expected_chunks=[{"id": "doc-dog", "grade": 0}])], rules=[rule]))
    _carry_out(world, [], count=2)
    (opened,) = [one["data"] for one in _sent(world)]
    assert opened["summary"].endswith("; 4 of 4 canaries ask or expect something else since")


@pytest.mark.parametrize("measure", ["R@5", "NDCG@10"])
def test_adopted_judgments_that_open_an_alert_by_themselves_are_told(sqlite_store: Store, measure: str) -> None:
    keys = ("ant", "bee", "cat", "dog")
    rule = {"kind": "threshold", "measure": measure, "critical": {"below": 0.95}, "open": {"bad": 1, "of": 1}}
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in keys], rules=[rule]))
    _carry_out(world, [])
    more = [canary(key, expected_chunks=[{"id": f"doc-{key}"}, {"id": "another"}]) for key in keys]
    world.apply(page(more, rules=[rule]))
    _carry_out(world, [], count=2)
    (opened,) = [one["data"] for one in _sent(world)]
    assert opened["summary"].endswith("; 4 of 4 canaries ask or expect something else since")
    assert opened["advice"].startswith("Nothing may be lost: canaries ask or expect something else than before.")
    assert opened["title"].endswith(", below 0.95: 4 canaries changed")
    shown = Site(world=world).page("/incidents/1").text
    assert "4 of 4 canaries ask or expect something else since" in shown
    assert "got worse" not in shown


def test_few_that_are_lost_are_told_though_more_were_changed_in_the_same_run(sqlite_store: Store) -> None:
    keys = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")
    rule = {**QUALITY, "critical": {"below": 0.9}}
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in keys], rules=[rule]))
    world.run()
    others = [canary(key, expected_chunks=[{"id": "another"}]) for key in keys[:3]]
    world.apply(page([*others, *(canary(key) for key in keys[3:])], rules=[rule]))
    _carry_out(world, keys[3:5])
    (opened,) = _sent(world)
    data = opened["data"]
    assert data["title"].startswith("watch: 2 of 8 questions got worse")
    assert "2 of 8 canaries lost their expected chunk" in data["summary"]
    assert data["summary"].endswith("; 3 others are degraded that are new, changed or counted otherwise since")
    assert data["lost"] == "doc-dog, doc-eel"
    told = {one["key"]: (one["rank_before"], one["lost"]) for one in data["degraded"]}
    assert told == {key: (1, [f"doc-{key}"]) for key in keys[3:5]} | {key: (None, []) for key in keys[:3]}
    shown = Site(world=world).page("/incidents/1").text
    assert "No run before expected this of them" not in shown


def test_judgments_that_are_adopted_while_an_incident_is_open_are_no_loss(sqlite_store: Store) -> None:
    keys = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")
    rule = {**QUALITY, "critical": {"below": 0.9}}
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in keys], rules=[rule]))
    world.run()
    _carry_out(world, keys[:1])
    world.apply(
        page(
            [
                canary(keys[0]),
                *(canary(key, expected_chunks=["another"]) for key in keys[1:3]),
                *(canary(key) for key in keys[3:]),
            ],
            rules=[rule],
        )
    )
    _carry_out(world, keys[:1])
    shown = Site(world=world).page("/incidents/1")
    assert shown.one("h1").text.startswith("watch: 1 of 8 questions got worse")
    assert shown.one("p", id="lost").text == "Lost chunks: doc-ant."
    assert "another" not in shown.text


def test_a_check_that_counts_fewer_hits_has_lost_nothing(sqlite_store: Store) -> None:
    keys = ("ant", "bee", "cat", "dog")
    world = World(store=sqlite_store)
    world.probe.otherwise = lambda ask: answered(hits("noise", f"doc-{ask.query}"))
    described = page([canary(key) for key in keys], rules=[QUALITY])
    world.apply(described)
    world.run()
    (check,) = described["checks"]
    world.apply({**described, "checks": [{**check, "k": 1}]})
    world.run()
    world.deliver_all()
    (opened,) = _sent(world)
    data = opened["data"]
    assert data["title"] == "watch: 4 of 4 questions are degraded: the check's k is 1, it was 5"
    assert data["causes"] == "the check's k is 1, it was 5"
    told = "4 of 4 canaries degraded since the check was changed: the check's k is 1, it was 5"
    assert data["fleet"]["headline"] == told
    assert data["advice"].startswith("The index may be as it was: the check was changed.")
    assert data["lost"] is None
    assert "lost" not in data["summary"]
    assert data["summary"].endswith("4 of 4 canaries do not find their expected chunk: the check's k is 1, it was 5")
    assert {(one["rank_before"], one["rank_now"]) for one in data["degraded"]} == {(2, 2)}
    shown = Site(world=world).page("/alerts/1").text
    assert "The check's k is 1, it was 5: what was measured before is something else" in " ".join(shown.split())
    assert "No run before" not in shown


@pytest.mark.parametrize(("k", "others"), [(1, 1), (8, 0)])
def test_a_changed_k_hides_no_real_loss(sqlite_store: Store, k: int, others: int) -> None:
    world = World(store=sqlite_store)
    described = page([canary(key) for key in ("ant", "bee", "cat", "dog")], rules=[QUALITY])
    world.apply(described)
    world.run()
    (check,) = described["checks"]
    world.apply({**described, "checks": [{**check, "k": k}]})
    lost = {"ant", "bee", "cat"}
    world.probe.otherwise = lambda ask: answered(
        hits("noise") if ask.query in lost else hits("noise", f"doc-{ask.query}")
    )
    world.run()
    world.deliver_all()
    data = _sent(world)[0]["data"]
    assert data["title"] == "watch: 3 of 4 questions got worse"
    assert "k is" not in data["summary"]
    assert data["lost"].startswith("doc-ant, doc-bee, doc-cat")
    told = "; 1 other is degraded that is new, changed or counted otherwise since"
    assert data["summary"].count(told) == others


def test_a_check_that_asks_another_retriever_says_so_as_the_cause(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    described = page([canary(key) for key in ("ant", "bee", "cat", "dog")], rules=[QUALITY])
    world.apply(described)
    world.run()
    (check,), (retriever,) = described["checks"], described["retrievers"]
    other = {**retriever, "slug": "another"}
    world.apply({**described, "retrievers": [retriever, other], "checks": [{**check, "retriever": "another"}]})
    _carry_out(world, ["ant", "bee", "cat"])
    data = _sent(world)[0]["data"]
    told = f"the check asks retriever another, it asked {retriever['slug']}"
    assert data["causes"] == told
    assert data["title"] == "watch: 3 of 4 questions got worse: the check was changed"
    assert data["advice"].startswith("The index may be as it was: the check was changed.")


def test_a_retriever_that_was_edited_before_the_fault_is_named_beside_it(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    described = page([canary(key) for key in ("ant", "bee", "cat", "dog")], rules=[QUALITY])
    world.apply(described)
    world.run()
    (retriever,) = described["retrievers"]
    world.apply({**described, "retrievers": [{**retriever, "url": "https://other.test/search"}]})
    _carry_out(world, ["ant", "bee", "cat"])
    summary = _sent(world)[0]["data"]["summary"]
    assert "3 of 4 canaries lost their expected chunk" in summary
    assert summary.endswith("; retriever search was edited after run 1")


def test_another_retriever_explains_neither_what_fell_before_nor_what_fell_later(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    described = page([canary(key) for key in ("ant", "bee", "cat", "dog", "eel")], rules=[QUALITY])
    world.apply(described)
    world.run()
    _carry_out(world, ["ant", "bee", "cat"])
    (check,), (retriever,) = described["checks"], described["retrievers"]
    retrievers = [retriever, {**retriever, "slug": "another"}]
    world.apply({**described, "retrievers": retrievers, "checks": [{**check, "retriever": "another"}]})
    _carry_out(world, ["ant", "bee", "cat"])
    site = Site(world=world)
    assert "retriever another" not in site.page("/alerts/1").one("section", **{"aria-labelledby": "title"}).text
    _carry_out(world, ["cat", "dog", "eel"])
    assert "; the check asks retriever another, it asked search" in site.page("/incidents/1").text
    _carry_out(world, [], count=3)
    world.apply({**described, "retrievers": retrievers})
    _carry_out(world, ["ant", "bee", "cat"])
    assert "the check was changed" in site.page("/incidents/2").one("h1").text
    _carry_out(world, ["ant", "bee", "cat", "dog"])
    assert site.page("/incidents/2").one("h1").text == "watch: 4 of 5 questions got worse"


def test_an_alarm_names_its_seven_canaries_and_counts_the_thirty_that_were_failing_before(sqlite_store: Store) -> None:
    """Coverage does not move: as many chronic canaries are found as others are lost."""
    world = _defined(sqlite_store, {"kind": "regression"})
    _carry_out(world, CHRONIC, count=21)
    unchanged = [*CHRONIC[len(FOUND) :], *LOST]
    while not (sent := _sent(world)):
        assert len(seen(world)) < 30
        _carry_out(world, unchanged)
    (opened,) = sent
    assert sorted(_keys(opened)) == list(LOST)
    assert opened["data"]["changed_total"] == len(LOST)
    assert opened["data"]["failing_before"] == len(CHRONIC) - len(FOUND)
    degraded, before = opened["data"]["degraded_total"], len(CHRONIC) - len(FOUND)
    counts = f"{degraded} in run {opened['data']['run_id']}: 7 since the alert began, {before} failing before"
    assert dict(NoticeText(cast("Notice", opened)).facts)["Degraded"] == counts
    assert f"{degraded} of 70 questions do not find their document" in opened["data"]["reason"]
    page = Site(world=world).page("/checks/watch").text
    assert f"of 70 measured canaries: 7 since the alert began, {before} failing before" in page
    assert opened["data"]["degraded_queries"] == _keys(opened)
    assert opened["data"]["summary"] == "watch: 7 of 70 canaries lost their expected chunk since 12:22 UTC (run 22)"
    assert {one["key"]: one["lost"] for one in opened["data"]["degraded"]} == {key: [f"doc-{key}"] for key in LOST}
    first = ", ".join(f"doc-{key}" for key in _keys(opened)[:3])
    assert opened["data"]["lost"] == f"{first} and {len(LOST) - 3} more"
    assert opened["data"]["advice"] == (
        "Compare the run with the last healthy one, and diagnose the canaries that changed."
    )
    (alert,) = world.alerts()
    assert opened["data"]["links"]["alert"] == f"{LINKS.public_url}/alerts/{alert['id']}"
    told = alert["transitions"][0]["evidence"]
    assert sorted(one["key"] for one in told["canaries"]) == list(LOST)
    assert {one["rank_before"] for one in told["canaries"]} == {1}
    shown = explanations.details(world.store, int(alert["id"]), links=LINKS, now=world.clock())["degraded"]
    assert (sorted(one["key"] for one in shown["canaries"]), shown["failing_before"]) == (list(LOST), 23)


def test_an_alarm_tells_canaries_that_lost_their_chunk_from_those_that_had_lost_it_and_rank_it_lower(
    sqlite_store: Store,
) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in (*CHRONIC, *WELL)], k=5, rules=[{"kind": "regression"}]))
    below, gone = CHRONIC[:6], (*WELL[:7], *CHRONIC[:6])

    def _answer(missing: Iterable[str]) -> None:
        world.probe.otherwise = lambda ask: answered(
            hits("noise")
            if ask.query in missing or ask.query in CHRONIC[6:]
            else hits(*(f"other-{place}" for place in range(6)), f"doc-{ask.query}")
            if ask.query in below
            else hits(f"doc-{ask.query}")
        )
        world.run()
        world.deliver_all()

    for _ in range(21):
        _answer(())
    while not _sent(world) or "rank it lower" not in _sent(world)[-1]["data"]["summary"]:
        assert len(seen(world)) < 40
        world.clock.advance(3600)
        _answer(gone)
    told = _sent(world)[-1]["data"]
    assert (told["measure"], told["value"], told["baseline"]) == (None, None, None), "evidence is no measure"
    assert "document:" not in told["reason"], "what canaries are judged by is not what is gone"
    assert "13 of 70 canaries lost their expected chunk (7) or rank it lower (6) since " in told["summary"]
    listed = {one["key"]: one for one in told["degraded"]}
    assert {listed[key]["rank_before"] for key in below if key in listed} == {7}
    assert {listed[key]["rank_before"] for key in WELL[:7]} == {1}
    assert listed[below[0]]["lower"] == [
        {"id": f"doc-{below[0]}", "document": None, "rank_before": 7, "rank_now": None}
    ]


def test_a_lost_chunk_is_told_with_the_document_it_was_found_in(sqlite_store: Store) -> None:
    by_document = {**canary("named"), "expected_chunks": [{"document": "own.md"}]}
    world = World(store=sqlite_store)
    world.apply(page([canary("a"), canary("plain"), by_document], rules=[QUALITY]))
    found = replace(hits("noise", "doc-a"), documents=("noise.md", "a.md"))
    world.probe.answers["a"] = answered(found)
    world.probe.answers["named"] = answered(replace(hits("one"), documents=("own.md",)))
    world.run()
    world.probe.all_miss()
    world.run()
    world.deliver_all()
    (opened,) = _sent(world)
    lower = {one["key"]: one["lower"] for one in opened["data"]["degraded"]}
    assert lower == {
        "a": [{"id": "doc-a", "document": "a.md", "rank_before": 2, "rank_now": None}],
        "plain": [{"id": "doc-plain", "document": None, "rank_before": 1, "rank_now": None}],
        "named": [{"id": None, "document": "own.md", "rank_before": 1, "rank_now": None}],
    }


def test_a_threshold_lists_what_fell_and_not_the_canaries_that_never_passed(sqlite_store: Store) -> None:
    world = _defined(sqlite_store, QUALITY)
    _carry_out(world, CHRONIC, count=2)
    _carry_out(world, [*CHRONIC, *WELL[:12]])
    (opened,) = _sent(world)
    assert len(_keys(opened)) == 10
    assert set(_keys(opened)) <= set(WELL[:12])
    assert (opened["data"]["changed_total"], opened["data"]["failing_before"]) == (12, 30)
    assert opened["data"]["lost"].endswith(" and 7 more (of the 10 worst of 12 canaries)")
    assert opened["data"]["summary"] == (
        "watch: coverage 0.400, below 0.5 since 12:03 UTC (run 3), 12 of 70 canaries lost their expected chunk"
    )


def test_a_resolve_lists_only_what_fell_and_is_still_degraded(sqlite_store: Store) -> None:
    world = _defined(sqlite_store, {**QUALITY, "close": 1})
    _carry_out(world, CHRONIC, count=2)
    _carry_out(world, [*CHRONIC, *WELL[:12]])
    _carry_out(world, [*CHRONIC, WELL[0]])
    _, resolved = _sent(world)
    assert _keys(resolved) == [WELL[0]]
    assert (resolved["data"]["changed_total"], resolved["data"]["failing_before"]) == (1, 30)
    assert resolved["data"]["summary"] == (
        "watch: recovered after 1 min (run 4): coverage 0.557, 1 canary is worse than before the alert"
    )


def test_a_resolve_with_chronic_canaries_alone_lists_none(sqlite_store: Store) -> None:
    world = _defined(sqlite_store, {**QUALITY, "close": 1})
    _carry_out(world, CHRONIC, count=2)
    _carry_out(world, [*CHRONIC, *WELL[:12]])
    _carry_out(world, CHRONIC)
    _, resolved = _sent(world)
    assert (_keys(resolved), resolved["data"]["degraded_queries"]) == ([], [])
    assert resolved["data"]["summary"].endswith("coverage 0.571, no canary is worse than before the alert")


def test_alerts_of_latency_and_of_outages_list_no_canaries_and_neither_do_their_resolves(sqlite_store: Store) -> None:
    at_once = {"open": {"bad": 1, "of": 1}, "close": 1}
    latency = {"kind": "latency", "percentile": "p95", "critical": {"above": "800ms"}, **at_once}
    world = _defined(sqlite_store, latency, {"kind": "probe_errors", **at_once})
    _carry_out(world, CHRONIC, seconds=0.061)
    _carry_out(world, CHRONIC, seconds=1.3125)
    _carry_out(world, CHRONIC, seconds=0.061)
    world.probe.all_fail()
    world.run()
    world.deliver_all()
    _carry_out(world, CHRONIC, seconds=0.061)
    told = _sent(world)
    assert [(one["type"], one["data"]["kind"]) for one in told] == [
        ("alert.opened", "latency"),
        ("alert.resolved", "latency"),
        ("alert.opened", "probe_errors"),
        ("alert.resolved", "probe_errors"),
    ]
    assert all(_keys(one) == one["data"]["degraded_queries"] == [] for one in told)
    assert {one["data"]["failing_before"] for one in told} == {None}
    assert [one["data"]["summary"] for one in told][:2] == [
        "watch: p95 latency 1.31 s (usually 61 ms), above 800 ms since 12:02 UTC (run 2): search at search.test",
        "watch: recovered after 1 min (run 3): p95 latency 61 ms",
    ]
    assert [told[0]["data"][name] for name in ("measure", "value", "threshold", "baseline")] == [
        "p95 latency",
        1.3125,
        0.8,
        pytest.approx(0.061, abs=0.001),
    ]
    assert told[2]["data"]["summary"].startswith("watch: not measurable since ")
    assert ", retriever search is unreachable: " in told[2]["data"]["summary"]
    assert [one["data"]["advice"] for one in told] == [
        "Check the load of search at search.test: CPU, cold caches, a larger index.",
        None,
        "Check that retriever search is running and can be reached from Coalmine.",
        None,
    ]
    assert told[3]["data"]["summary"] == "watch: recovered after 1 min (run 5): 70 of 70 probes answered"


def test_a_rule_about_one_category_lists_canaries_of_that_category_only(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    canaries = [canary("how", category="procedural"), canary("what"), canary("who")]
    world.apply(page(canaries, rules=[{**QUALITY, "category": "procedural"}]))
    _carry_out(world, [])
    _carry_out(world, ["how", "what"])
    (opened,) = _sent(world)
    assert _keys(opened) == ["how"]
    assert opened["data"]["summary"] == (
        "watch: coverage of procedural 0.000, below 0.5 since 12:02 UTC (run 2), "
        "1 of 3 canaries (how) lost its expected chunk"
    )


def test_a_rule_about_one_canary_lists_that_canary_however_long_it_has_failed(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    rule = {"kind": "canary", "canary": "who", "open": {"bad": 2, "of": 2}}
    world.apply(page([canary("what"), canary("who")], rules=[rule]))
    _carry_out(world, ["who", "what"], count=2)
    (opened,) = _sent(world)
    assert _keys(opened) == ["who"]
    assert opened["data"]["summary"] == "watch: canary who does not find its expected chunk since 12:01 UTC (run 1)"


def test_a_canary_whose_probe_failed_is_not_listed(sqlite_store: Store) -> None:
    world = _defined(sqlite_store, QUALITY)
    _carry_out(world, CHRONIC)
    world.probe.answers = {WELL[0]: failed("timeout")}  # type: ignore[arg-type] # its word
    _carry_out(world, [*CHRONIC, *WELL[:12]])
    (opened,) = _sent(world)
    assert WELL[0] not in _keys(opened)
    assert opened["data"]["changed_total"] == 11


def test_a_canary_of_low_relevance_that_loses_its_chunk_has_changed_and_tells_where_it_was(sqlite_store: Store) -> None:
    world = _defined(sqlite_store, QUALITY)
    low, lost = WELL[20:25], WELL[22:40]

    def _answer(missing: Iterable[str]) -> None:
        world.probe.otherwise = lambda ask: answered(
            hits(
                "other",
                "noise" if ask.query in missing else f"doc-{ask.query}",
                scores=[0.1, 0.09] if ask.query in low else [0.9, 0.8],
            )
        )
        world.run()
        world.deliver_all()

    _answer(CHRONIC)
    _answer([*CHRONIC, *lost])
    (opened,) = _sent(world)
    assert (opened["data"]["changed_total"], opened["data"]["failing_before"]) == (18, 32)
    assert "18 of 70 canaries lost their expected chunk" in opened["data"]["summary"]
    listed = [one for one in opened["data"]["degraded"] if one["key"] in low]
    assert [one["key"] for one in listed] == list(low[2:])
    assert {(one["rank_before"], one["rank_now"]) for one in listed} == {(2, None)}


def test_an_alert_that_good_runs_interrupted_was_bad_at_times(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary(key) for key in ("ant", "bee", "cat", "dog")], rules=[{**QUALITY, "close": 3}]))
    world.run()
    for lost in (["ant", "bee", "cat"], [], ["ant", "bee", "cat"]):
        _carry_out(world, lost)
    assert "coverage 0.250, below 0.5; bad at times since" in Site(world=world).page("/alerts/1").text
    assert [one["data"]["summary"].count("at times") for one in _sent(world)] == [0]
    _carry_out(world, [], count=2)
    assert "coverage 0.250, below 0.5; bad at times since" in Site(world=world).page("/alerts/1").text
    _carry_out(world, [])
    assert "at times" not in _sent(world)[-1]["data"]["summary"]
    assert "bad at times since" in Site(world=world).page("/incidents/1").text
    assert world.alerts()[0]["evidence"]["interrupted"] is True


def test_a_recovery_by_expecting_something_else_of_all_says_so(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    keys = ("ant", "bee", "cat", "dog")
    world.apply(page([canary(key) for key in keys], rules=[{**QUALITY, "close": 1}]))
    world.run()
    _carry_out(world, ["ant", "bee", "cat"])
    adopted = [canary(key, expected_chunks=[{"id": "filler"}]) for key in keys]
    world.apply(page(adopted, rules=[{**QUALITY, "close": 1}]))
    for key in keys:
        world.probe.answers[key] = answered(hits("filler"))
    _carry_out(world, [])
    told = "no other canary is worse than before the alert; 4 of 4 canaries ask or expect something else now"
    assert _sent(world)[-1]["data"]["summary"].endswith(f"{told}, which may be the whole recovery")
