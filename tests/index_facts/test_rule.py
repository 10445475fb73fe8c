"""The rule `index`: what falls against the usual is told, in words and by an alert; what merely moves is not."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from app.alerts.documents import RuleDocument, rule_in_words, rules_in_force
from app.alerts.domain.conditions import default_index_rule, judge_index
from app.alerts.service import transitions
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.values import Outcome, Severity, Verdict
from app.index_facts.domain import (
    EXACT_RECALL,
    PAST,
    SETTLED,
    Fact,
    KnownFact,
    PastValue,
    exact_recall,
    has_fallen,
    recall_against,
    sampled,
    usual_of,
)
from tests.index_facts.test_reading import FACTS, read, world_with
from tests.support.fakes import answered, failed, hits
from tests.support.world import AT_ONCE, RETRIEVER, World, canary, page

DEFAULT = default_index_rule("index")


def known(value: float | None, past: Sequence[float], name: str = "documents", **more: Any) -> KnownFact:
    """Return a fact with the values of the runs before it."""
    fact = Fact(name=name, value=value, reason=None if value is not None else "HTTP 500", **more)
    return KnownFact(fact=fact, past=[PastValue(run_id=place + 1, value=one) for place, one in enumerate(past)])


def series(values: Sequence[float], name: str = "documents", highs: Sequence[float] | None = None) -> list[bool]:
    """Return of each value whether it is bad by the default rule, given those before it."""
    bad = []
    past: list[PastValue] = []
    for place, value in enumerate(values):
        high = None if highs is None else highs[place]
        one = KnownFact(fact=Fact(name=name, value=value, high=high), past=past[-PAST:])
        bad.append(judge_index(DEFAULT, [one], unknown=False).severity is not None)
        past.append(PastValue(run_id=place + 1, value=value, high=high))
    return bad


def opens(bad: Sequence[bool]) -> bool:
    """Whether two bad values in a row would open the alert."""
    return any(one and other for one, other in pairwise(bad))


def test_a_fall_is_told_with_the_run_that_had_more() -> None:
    found = judge_index(DEFAULT, [known(88_000, [100_000] * 61)], unknown=False)
    assert found.reason == "the index has 12 % fewer documents than in run 61 (88,000 of 100,000) (warning)"
    assert (found.severity, found.value, found.threshold) == (Severity.WARNING, 88_000, 90_000)


@pytest.mark.parametrize(
    "values",
    [
        [1_000 * 1.2**run for run in range(40)],  # it grows
        [1_000] * 12 + [0] + [1_000] * 12,  # a run meets it empty while it is built anew
        [1_000] * 12 + [400] + [1_000] * 12,
        [1_000 * (1 - 0.01) ** run for run in range(60)],  # it shrinks slowly
        [1_000 + 60 * (run % 2) for run in range(40)],
    ],
)
def test_an_index_that_lives_does_not_alert(values: Sequence[float]) -> None:
    assert not opens(series(values))


def test_a_loss_alerts_until_it_is_how_things_are() -> None:
    bad = series([1_000] * 15 + [880] * (SETTLED + 5))
    assert bad[15 : 15 + SETTLED] == [True] * SETTLED
    assert not any(bad[15 + SETTLED :])


def test_a_count_that_came_back_is_good_again() -> None:
    assert series([1_000] * 15 + [700] * 4 + [1_000] * 3)[-3:] == [False] * 3


def test_unknown_is_never_healthy() -> None:
    assert not judge_index(DEFAULT, [known(None, [100, 100])], unknown=False).measured
    told = judge_index(DEFAULT, [known(50, [100, 100]), known(None, [1, 1], "vectors")], unknown=True)
    assert told.severity is Severity.WARNING
    never = judge_index(DEFAULT, [known(100, [100, 100]), known(None, [], "vectors")], unknown=False)
    assert never.good_beyond_margin
    assert not judge_index(DEFAULT, None, unknown=True).measured
    assert judge_index(DEFAULT, None, unknown=False).good_beyond_margin
    assert not judge_index(DEFAULT, [known(100, [])], unknown=False).measured


@pytest.mark.parametrize(
    ("rule", "value", "severity", "reason"),
    [
        ({"minimum": 10}, 9, Severity.WARNING, "segments of the index 9 is below 10 (warning)"),
        (
            {"maximum": 10, "severity": "critical"},
            11,
            Severity.CRITICAL,
            "segments of the index 11 is above 10 (critical)",
        ),
        ({"maximum": 10}, 3, None, "segments of the index: 3, within its bounds"),
        (
            {"fall": 0.5},
            4,
            Severity.WARNING,
            "segments of the index is 60 % lower than in run 3 (4 of 10) (warning)",
        ),
        ({"fall": 0.7}, 4, None, "segments of the index: 4, usually 10"),
        ({}, 4, Severity.WARNING, "segments of the index is 60 % lower than in run 3 (4 of 10) (warning)"),
    ],
)
def test_a_fact_has_bounds_of_its_own(
    rule: dict[str, Any], value: float, severity: Severity | None, reason: str
) -> None:
    document = parse_document(RuleDocument, {"kind": "index", "fact": "segments", **rule})
    assert document.key == "index-segments"
    found = judge_index(document.to_domain(), [known(value, [10, 10, 10], "segments")], unknown=False)
    assert (found.severity, found.reason) == (severity, reason)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"minimum": 1}, "needs a fact beside it"),
        ({"fact": "n", "minimum": 2, "maximum": 1}, "must not be above the maximum"),
        ({"fact": "n", "fall": 1.5}, "less than 1"),
        ({"fact": "n", "measure": "coverage"}, "does not apply to a index rule"),
    ],
)
def test_rules_that_say_nothing_are_refused(rule: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        parse_document(RuleDocument, {"kind": "index", **rule})


def test_a_rule_is_read_back_and_put_into_words() -> None:
    lean = {"kind": "index", "fact": "documents", "minimum": 10.0, "severity": "critical"}
    document = parse_document(RuleDocument, lean)
    assert {**document.without_defaults(), "key": None} == {**lean, "key": None}
    plain = parse_document(RuleDocument, {"kind": "index"})
    assert plain.without_defaults() == {"kind": "index", "key": "index"}
    assert rule_in_words(plain.to_domain()) == (
        "what the index holds, or its recall against exact search, is 10 % lower than usual (warning); "
        "opens on 2 bad of 2 measured runs, closes after 2 good runs"
    )


def test_recall_counts_equals_as_found() -> None:
    exact = hits("a", "b", "c", scores=(0.9, 0.8, 0.8))
    assert recall_against(hits("a", "b", "d", scores=(0.9, 0.8, 0.8)), exact, 3) == 1.0
    assert recall_against(hits("a", "d", "e", scores=(0.9, 0.7, 0.6)), exact, 3) == pytest.approx(1 / 3)
    longer = hits("a", "b", "c", "d", scores=(0.9, 0.8, 0.8, 0.7))
    assert recall_against(hits("a", "b", "x", scores=(0.9, 0.8, 0.8)), longer, 3) == pytest.approx(2 / 3)
    assert recall_against(hits("a", "c", scores=(0.9, 0.8)), longer, 2) == 1.0
    assert recall_against(hits(), exact, 3) == 0.0
    assert recall_against(hits("a"), hits(), 3) is None


def test_the_sample_is_the_same_for_a_run_and_another_for_the_next() -> None:
    keys = {place: f"c{place}" for place in range(200)}
    assert sampled(keys, 20, "exact 7") == sampled(keys, 20, "exact 7")
    assert sampled(keys, 20, "exact 7") != sampled(keys, 20, "exact 8")
    assert sampled({1: "one"}, 20, "exact 7") == [1]


def drawn_recall(drawn: random.Random, mean: float, spread: float, canaries: int) -> Fact:
    """Draw the recall of canaries in a run, of which five hits count."""
    recalls = [round(5 * min(1.0, max(0.0, drawn.gauss(mean, spread)))) / 5 for _ in range(canaries)]
    return exact_recall(recalls, canaries, 5)


def judged(facts: Sequence[Fact]) -> list[bool]:
    """Return of each recall whether it is bad, given those before it."""
    return series([one.value or 0.0 for one in facts], EXACT_RECALL, [one.high or 1.0 for one in facts])


@pytest.mark.parametrize(
    ("mean", "spread", "canaries"),
    [(0.95, 0.1, 20), (0.8, 0.25, 20), (0.6, 0.35, 20), (0.9, 0.25, 8), (0.7, 0.4, 10), (0.8, 0.4, 20), (1, 0, 3)],
)
def test_recall_that_only_jitters_does_not_alert(mean: float, spread: float, canaries: int) -> None:
    """Six hundred runs, each of canaries drawn anew: what would open an alert is two bad ones in a row."""
    drawn = random.Random(7)  # noqa: S311 - a simulation
    assert not opens(judged([drawn_recall(drawn, mean, spread, canaries) for _ in range(600)]))


@pytest.mark.parametrize(("mean", "least", "most"), [(0.65, 0.9, 1.0), (0.75, 0.3, 0.7), (0.85, 0.0, 0.05)])
def test_recall_that_fell_alerts_by_how_far_it_fell(mean: float, least: float, most: float) -> None:
    drawn = random.Random(2)  # noqa: S311 - a simulation
    told = 0
    for _ in range(100):
        before = [drawn_recall(drawn, 0.95, 0.2, 20) for _ in range(15)]
        bad = judged([*before, *(drawn_recall(drawn, mean, 0.2, 20) for _ in range(2))])
        assert not opens(bad[:15])
        told += opens(bad)
    assert least <= told / 100 <= most


def test_recall_of_few_answers_is_unknown() -> None:
    assert exact_recall([1.0] * 9, 20, 10, "it was late").reason == "9 of 20 exact searches were answered: it was late"
    few = exact_recall([1.0, 1.0, 1.0], 3, 5)
    assert (few.value, few.high) == (1.0, 1.0)
    assert few.low is not None
    assert few.low < 0.9


def test_usual_is_the_median_and_falls_only_as_a_whole() -> None:
    past = [PastValue(run_id=place, value=value) for place, value in enumerate([10, 11, 12, 13, 14])]
    usual = usual_of("documents", past)
    assert usual is not None
    assert (usual.value, usual.run_id) == (12, 4)
    assert usual_of(EXACT_RECALL, past[:2]) is None
    assert not has_fallen(0.0, 0.0)
    assert not has_fallen(0.8, 1.0, high=1.0)


def index_alerts(world: World) -> list[dict[str, Any]]:
    """List the alerts of the rule."""
    return [one for one in world.alerts() if one["kind"] == "index"]


def _fallen(store: Store, before: int = 12) -> World:
    world = world_with(store)
    for _ in range(before):
        world.run()
    world.probe.facts["documents"] = 88_000.0
    return world


def test_an_alert_names_the_loss_and_resolves_when_it_is_back(store: Store) -> None:
    world = _fallen(store, 3)
    first = world.run()
    assert first.verdict is Verdict.DEGRADED
    assert [one["state"] for one in index_alerts(world)] == ["pending"]
    world.run()
    (alert,) = index_alerts(world)
    assert alert["severity"] == "warning"
    assert "the index has 12 % fewer documents than in run" in alert["reason"]
    assert "(88,000 of 100,000)" in alert["reason"]
    world.deliver_all()
    notices = [json.loads(message.body)["data"] for _, message in world.send.sent]
    told = next(one for one in notices if one["kind"] == "index")
    assert told["title"] == "watch: the index has 12 % fewer documents"
    assert told["summary"].startswith("watch: the index has 12 % fewer documents than in run 3 (88,000 of 100,000)")
    assert "accept the present as normal" in told["advice"]
    world.probe.facts["documents"] = failed(Outcome.REFUSED, http_status=500)
    world.run()
    world.run()
    assert [one["state"] for one in index_alerts(world)] == ["firing"]
    world.probe.facts["documents"] = 100_000.0
    world.run()
    world.run()
    assert [one["state"] for one in index_alerts(world)] == ["resolved"]


def test_the_alert_of_a_search_that_misses_hits_says_how_much_it_finds(store: Store) -> None:
    exact = {"json": {"q": "{{ query }}", "exact": True}}
    world = world_with(store, exact=exact, facts={})
    keys = [f"c{number:02}" for number in range(20)]
    world.apply({**page([canary(key) for key in keys]), "retrievers": [{**RETRIEVER, "exact": exact}]})
    for _ in range(4):
        world.run()
    world.probe.exact = lambda item: answered(hits(*(f"x{place}" for place in range(4)), f"doc-{item.query}"))
    world.run()
    world.run()
    (alert,) = index_alerts(world)
    assert alert["reason"].startswith("the index returned 20 % of what exact search finds (95 % between ")
    assert "; in run 4 it was 100 % (warning); bad in 2 of the last 2" in alert["reason"]
    world.deliver_all()
    notices = [json.loads(message.body)["data"] for _, message in world.send.sent]
    assert notices[-1]["title"] == "watch: the index returned 20 % of what exact search finds"


def test_people_accept_a_smaller_index(store: Store) -> None:
    world = _fallen(store, 3)
    world.run()
    world.run()
    transitions.accept_baseline(store, "watch", by="ops", note=None, now=world.clock())
    assert [one["state"] for one in index_alerts(world)] == ["resolved"]
    run = world.run()
    assert run.verdict is Verdict.HEALTHY
    assert read(world, run.id)["documents"]["usual"] is None


def test_an_alert_closes_where_the_store_tells_nothing_any_more(store: Store) -> None:
    world = _fallen(store, 3)
    world.run()
    world.run()
    world.apply({**page([{"key": "one", "query": "one", "expected_chunks": ["doc-one"]}]), "retrievers": [RETRIEVER]})
    world.run()
    world.run()
    assert [one["state"] for one in index_alerts(world)] == ["resolved"]


def test_the_rule_can_be_switched_off_and_stands_beside_those_of_other_facts() -> None:
    def kinds(*rules: dict[str, Any]) -> list[str]:
        return [one.key for one in rules_in_force([parse_document(RuleDocument, rule) for rule in rules])]

    assert "index" in kinds()
    assert "index" not in kinds({"kind": "index", "enabled": False})
    assert {"index", "index-segments"} <= set(kinds({"kind": "index", "fact": "segments", "maximum": 9}))


def test_the_alert_of_worse_answers_names_what_the_index_lost(store: Store) -> None:
    world = world_with(store)
    described = page([canary(f"c{number}") for number in range(6)], rules=[AT_ONCE])
    world.apply({**described, "retrievers": [{**RETRIEVER, "facts": FACTS}]})
    for _ in range(3):
        world.run()
    world.probe.facts["documents"] = 88_000.0
    world.degrade()
    world.deliver_all()
    told = json.loads(world.send.sent[-1][1].body)["data"]
    clause = "the index has 12 % fewer documents than in run 3 (88,000 of 100,000)"
    assert clause in told["summary"]
    assert clause in told["fleet"]["sentence"]
