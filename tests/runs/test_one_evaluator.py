"""One evaluator: whichever way the same answers come to the same suite, a run comes to the same."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.values import Answer, EmbedderChange, Outcome, Ranking, Step, replace
from app.catalog.documents.check_documents import build_inputs
from app.records.service import plans, run_views
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import ProbeQuery
from app.retrievers.service import trials
from app.runs.service import execution, rescoring
from app.runs.service.execution import try_canary
from app.runs.service.gate import choose_targets, measure
from app.scoring.run_inputs import RunInputs, SuiteSnapshot
from app.scoring.run_outcomes import HistoryFacts, RunOutcome, build_responses, evaluate, score
from tests.support.fakes import START, FakeClock, answered, failed, hits
from tests.support.migrated_files import write_migrated
from tests.support.world import CHECK, RETRIEVER, World, documents, page

SHARD = 50
"""Canaries of a shard here; the first batch of the probe holds all of the last one, and two more hold the rest."""
IDS = ("a", "b", "c", "d", "e")
TEXTS = ("ash birch cedar", "elm fir", None)
DOCUMENTS = ("file-1", "file-2", None)  # never an expected id: what is re-scored does not say that ids are documents
WHY = "the reranker timed out"
OUTCOMES = tuple(outcome for outcome in Outcome if outcome not in {Outcome.OK, Outcome.SKIPPED})
RUN = (
    "status",
    "verdict",
    "health_score",
    "coverage",
    "degraded_share",
    "degraded_queries",
    "canaries",
    "measures",
    "categories",
    "tags",
    "suite_hash",
    "config_hash",
    "index_version",
    "probes",
    "probes_by_step",
    "latency_seconds",
)
RESULT = (
    "outcome",
    "step",
    "http_status",
    "detail",
    "verdict",
    "reasons",
    "top_score",
    "any_match",
    "measures",
    "ranking",
    "missing",
    "forbidden_ranks",
)
IN_A_ROW = "not measured in 3 runs in a row"
SILENT = "' says nothing: "
"""In a sentence on a rule that cannot be judged, which only those say that no detector follows."""


# --- what may come -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """A few canaries with the answers they get, again and again until there are so many; rules; a scorer."""

    kinds: list[tuple[dict[str, Any], Answer]]
    size: int
    rules: list[dict[str, Any]]
    scorer: dict[str, Any]

    @property
    def canaries(self) -> list[dict[str, Any]]:
        """The canaries, as a canary file has them."""
        wanted = [self.kinds[place % len(self.kinds)][0] for place in range(self.size)]
        return [{"key": f"c{place}", "query": f"c{place}", **one} for place, one in enumerate(wanted)]

    @property
    def answers(self) -> dict[str, Answer]:
        """The answers by query."""
        return {f"c{place}": self.kinds[place % len(self.kinds)][1] for place in range(self.size)}

    @property
    def page(self) -> dict[str, Any]:
        """The definitions, as a canary file has them."""
        response = {**RETRIEVER["response"], "text": "text", "document": "document", "updated": "updated"}
        retriever = {**RETRIEVER, "breaker": None, "response": response, "scorer": self.scorer}
        return {**page(self.canaries, rules=self.rules, hooks=[]), "retrievers": [retriever]}


def chunks() -> st.SearchStrategy[dict[str, Any]]:
    by_id = st.fixed_dictionaries({"id": st.sampled_from(IDS), "grade": st.integers(0, 3)})
    by_text = st.fixed_dictionaries({"text": st.sampled_from(TEXTS[:2]), "grade": st.integers(1, 3)})
    by_document = st.fixed_dictionaries({"document": st.sampled_from(DOCUMENTS[:2]), "grade": st.integers(1, 3)})
    return by_id | by_text | by_document


def _identity(chunk: Mapping[str, Any]) -> str:
    return str({name: value for name, value in chunk.items() if name != "grade"})


@st.composite
def canaries(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what a canary wants; its key and query are given by its place."""
    kind = draw(st.sampled_from(["found", "negative", "empty"]))
    wanted: dict[str, Any] = {"tags": draw(st.lists(st.sampled_from(["eu", "us"]), unique=True))}
    if kind == "negative":
        wanted |= {"category": "negative", "max_relevance_score": draw(st.sampled_from([0.3, 0.7]))}
        wanted["forbidden_chunks"] = draw(st.lists(st.sampled_from(IDS), unique=True, max_size=2))
    elif kind == "empty":
        wanted["expect_empty"] = True
    else:
        first, *others = draw(st.lists(chunks(), min_size=1, max_size=3, unique_by=_identity))
        wanted["expected_chunks"] = [{**first, "grade": max(1, first["grade"])}, *others]
        wanted["category"] = draw(st.sampled_from(["procedural", "comparative"]))
        wanted |= draw(st.sampled_from([{}, {"floors": {"R@5": 0.7}}, {"min_relevance_score": 0.3}]))
    moments: list[dict[str, Any]] = [{}, {"max_latency": "500ms"}]
    wanted |= draw(st.sampled_from(moments if kind == "empty" else [*moments, {"max_age": "1d"}]))
    return wanted


@st.composite
def rankings(draw: st.DrawFn) -> Ranking:
    ids = draw(st.lists(st.sampled_from(IDS), unique=True))
    size = len(ids)
    scores = sorted(draw(st.lists(st.floats(0, 1), min_size=size, max_size=size)), reverse=True)
    dates = st.none() | st.sampled_from([START.timestamp(), START.timestamp() - 10 * 86_400])
    return Ranking(
        ids=tuple(ids),
        documents=tuple(draw(st.lists(st.sampled_from(DOCUMENTS), min_size=size, max_size=size))),
        texts=tuple(draw(st.lists(st.sampled_from(TEXTS), min_size=size, max_size=size))),
        scores=tuple(scores),
        returned=size + draw(st.integers(0, 2)) * bool(ids),
        updated=draw(st.none() | st.lists(dates, min_size=size, max_size=size).map(tuple)),
    )


@st.composite
def responses(draw: st.DrawFn, *, outside: bool) -> Answer:
    """Draw an answer; from `outside` the retriever comes its relevance, where it does."""
    seconds = draw(st.sampled_from([0.1, 0.4999, 0.50012, 1.2345]))
    if draw(st.integers(0, 3)) == 0:
        step = draw(st.sampled_from([Step.RETRIEVER, Step.EMBEDDER]))
        told = draw(st.sampled_from(["connection failed", "it was late"]))
        outcome = draw(st.sampled_from(OUTCOMES))
        return Answer(outcome=outcome, latency_seconds=seconds, http_status=500, detail=told, step=step, address="x:80")
    ranking = draw(rankings())
    unscored = outside and bool(ranking) and draw(st.booleans())
    if outside and ranking and not unscored:
        ranking = replace(ranking, relevance=draw(st.floats(0, 1)))
    version = draw(st.sampled_from(["v1", None]))
    told_why = WHY if unscored else None
    return Answer(
        outcome=Outcome.OK, latency_seconds=seconds, ranking=ranking, index_version=version, unscored=told_why
    )


def rules() -> st.SearchStrategy[list[dict[str, Any]]]:
    known: list[dict[str, Any]] = [
        {"kind": "threshold", "measure": "health_score", "warning": {"below": 0.5}},
        {"kind": "threshold", "measure": "degraded_share", "critical": {"above": 0.3}},
        {"kind": "latency", "percentile": "p50", "warning": {"above": "500ms"}},
        {"kind": "probe_errors", "failed_share": 0.2},
        {"kind": "canary", "canary": "c0"},
    ]
    always = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.6}}
    return st.lists(st.sampled_from(known), unique_by=str).map(lambda some: [always, *some])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a few canaries and answers, and repeat them until a run is cut into two shards."""
    scorer = draw(
        st.sampled_from(
            [
                {"kind": "score", "scale": "similarity"},
                {"kind": "judged"},
                {"kind": "rerank", "url": "http://rerank.test/", "model": "m"},
            ]
        )
    )
    kind = st.tuples(canaries(), responses(outside=scorer["kind"] == "rerank"))
    return Case(
        kinds=draw(st.lists(kind, min_size=1, max_size=6)),
        size=SHARD + draw(st.integers(1, 20)),
        rules=draw(rules()),
        scorer=scorer,
    )


# --- the ways ------------------------------------------------------------------------------------------------


class Ways:
    """Puts a case to everything that judges."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    @contextmanager
    def world(self, case: Case) -> Iterator[World]:
        """Open a world of its own in which the case is defined, and in which nothing has run."""
        file = self._folder / f"{next(self._numbers)}.db"
        write_migrated(file)
        store = Store(f"sqlite:///{file}")
        world = World(store=store)
        world.apply(case.page)
        world.probe.answers.update(case.answers)
        try:
            yield world
        finally:
            store.close()
            file.unlink()


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    """Give the maker of worlds, with shards so small that a run of few canaries is cut into two."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (plans, execution):
            patched.setattr(module, "SHARD", SHARD)
        yield Ways(tmp_path_factory.mktemp("ways"))


def _live(world: World) -> int:
    return world.run().id


def _live_after_relevance_was_known(world: World, case: Case) -> int:
    """Carry out a run whose answers came before, when the scorer outside the retriever could tell relevance of all."""
    if case.scorer["kind"] == "rerank":
        world.probe.answers.update({query: _with_relevance(answer) for query, answer in case.answers.items()})
        world.run()
        world.probe.answers.update(case.answers)
    return _live(world)


def _with_relevance(answer: Answer) -> Answer:
    if answer.ranking is None or answer.unscored is None:
        return answer
    return replace(answer, unscored=None, ranking=replace(answer.ranking, relevance=0.2))


def _resumed(world: World) -> int:
    """Carry out a run whose worker stops once one of its two shards is on record, and another worker goes on."""
    batches: list[int] = []
    world.probe.before_batch = batches.append
    world.wish()
    claimed = world.claim()
    assert claimed is not None
    assert world.execute(claimed, stopping=lambda: len(batches) > 1) is None
    world.probe.before_batch = lambda _: None
    asked = len(world.probe.asked)
    resumed = world.claim("another")
    assert resumed is not None
    assert resumed.resumed
    ended = world.execute(resumed, "another")
    assert ended is not None
    assert len(world.probe.asked) - asked == SHARD  # the other shard was not asked again
    return ended.id


def _gate(world: World, case: Case) -> dict[str, Any]:
    (target,) = choose_targets(documents(case.page))
    return {**measure(target, world.probe, run_id="gate", clock=FakeClock())}


def _rescored(world: World, run_id: int) -> dict[str, Any]:
    number = rescoring.ask(world.store, CHECK, since=None, now=world.clock.advance(1))
    rescoring.claim(world.store, owner="one", now=world.clock(), only=number)
    assert rescoring.carry_on(world.store, number, owner="one", clock=world.clock)
    version = rescoring.show(world.store, number)["measures_version"]
    return {**run_views.report(world.store, str(run_id), version=version)}


def _told(report: Mapping[str, Any]) -> dict[str, Any]:
    """Give the numbers, reasons and verdicts of a report by name: of the run, and of each canary."""
    told = {name: report["run"][name] for name in RUN}
    told["reasons"] = [reason for reason in report["run"]["reasons"] if SILENT not in reason]
    return told | {f"{one['key']} {name}": value for one in report["results"] for name, value in _result(one).items()}


def _differences(found: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = found.keys() | told.keys()
    return {name: (found.get(name), told.get(name)) for name in names if found.get(name) != told.get(name)}


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in RESULT}


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases())
def test_the_same_answers_come_to_the_same_whichever_way_they_are_judged(ways: Ways, case: Case) -> None:
    with ways.world(case) as world:
        first = _live_after_relevance_was_known(world, case)
        live = run_views.report(world.store, str(first))
        told = _told(live)
        assert not _differences(_told(_gate(world, case)), told)
        assert not _differences(_told(_rescored(world, first)), told)
        _check_trials(world, case, told)
        again = run_views.report(world.store, str(_live(world)))
        third = _differences(_told(again), told)
        if any(IN_A_ROW in reason for reason in again["run"]["reasons"]):  # which no run before the third can say
            third = {name: values for name, values in third.items() if name not in {"verdict", "reasons"}}
        assert not third  # every result was kept
        assert not _differences(
            _told(run_views.report(world.store, str(first))), told
        )  # spelled out anew from its states
    with ways.world(case) as world:
        resumed = run_views.report(world.store, str(_resumed(world)))
        assert not _differences(_told(resumed), told)


def _check_trials(world: World, case: Case, told: Mapping[str, Any]) -> None:
    """Hold trials of canaries and of bare queries against the results of the run."""
    document = parse_document(RetrieverDocument, case.page["retrievers"][0])
    for described in case.canaries[: len(case.kinds)]:
        key = described["key"]
        trial = try_canary(world.probe, world.store, world.vault, CHECK, key, run_id="trial", clock=world.clock)
        mine = {name.removeprefix(f"{key} "): value for name, value in told.items() if name.startswith(f"{key} ")}
        assert not _differences(_result(trial.result), mine)
        tried = trials.try_retriever(world.probe, document, ProbeQuery(query=described["query"]), k=10, run_id="try")
        assert tried["outcome"] == mine["outcome"]
        assert [hit["id"] for hit in tried["hits"]] == [hit["id"] for hit in mine["ranking"]]
        if case.scorer["kind"] != "judged":  # which only judgments tell
            assert tried["top_score"] == mine["top_score"]


# --- the evaluator alone -------------------------------------------------------------------------------------


def _inputs(case: Case) -> RunInputs:
    page_ = documents(case.page)
    (suite,), (check,), (retriever,) = page_.suites, page_.checks, page_.retrievers
    snapshot = SuiteSnapshot.from_canaries([one.to_domain() for one in suite.canaries or ()])
    return build_inputs(snapshot, check, retriever.to_domain(), config_hash="")


def _all_of(outcome: RunOutcome) -> tuple[Any, ...]:
    arrays = (outcome.vector, outcome.canary_reasons, outcome.lasting_reasons, outcome.degraded)
    return outcome.verdict, outcome.reasons, outcome.aggregates, *(array.tobytes() for array in arrays)


@settings(max_examples=25)
@given(case=cases())
def test_evaluating_changes_nothing_it_is_given(case: Case) -> None:
    inputs = _inputs(case)
    responses = build_responses(inputs, list(case.answers.values()), started_at=START)
    scores = score(inputs, responses)
    facts = HistoryFacts(regressed=np.arange(case.size), embedder=EmbedderChange.SWAPPED, embedder_reason="swapped")
    outcome = evaluate(inputs, responses, scores=scores)
    assert _all_of(evaluate(inputs, responses, facts, scores)) == _all_of(evaluate(inputs, responses, facts))
    assert (
        _all_of(evaluate(inputs, responses, scores=scores)) == _all_of(outcome) == _all_of(evaluate(inputs, responses))
    )


PLAIN = Case(
    kinds=[({"expected_chunks": ["a"]}, answered(hits("a", texts={"a": "ash"})))],
    size=2,
    rules=[{"kind": "canary", "canary": "c0"}],
    scorer={"kind": "judged"},
)


def _evaluated(facts: HistoryFacts, case: Case = PLAIN) -> RunOutcome:
    inputs = _inputs(case)
    return evaluate(inputs, build_responses(inputs, list(case.answers.values()), started_at=START), facts)


def test_a_canary_an_alarm_names_is_regressed_and_the_rule_on_it_says_so() -> None:
    outcome = _evaluated(HistoryFacts(regressed=np.array([0])))
    assert (outcome.verdict, outcome.degraded.tolist(), outcome.aggregates.degraded) == ("degraded", [0], 1)
    assert outcome.reasons[0] == "canary 'c0' is degraded: regressed (critical)"


def test_a_cause_is_a_reason_unless_another_reason_begins_with_its_detail() -> None:
    cause = "The embedder changed since run 7: it was swapped"
    assert _evaluated(HistoryFacts(cause=cause)).reasons[-1] == cause
    assert _evaluated(HistoryFacts()).with_cause(cause, "it was swapped").reasons[-1] == cause
    regressed = _evaluated(HistoryFacts(regressed=np.array([0]))).with_cause(cause, "canary 'c0'")
    assert cause not in regressed.reasons


def test_a_note_is_the_last_reason_of_a_run_that_is_known_and_none_of_one_that_is_unknown() -> None:
    noted = HistoryFacts(cause="Why", note="the check has no rules")
    assert _evaluated(noted).reasons[-2:] == ["Why", "the check has no rules"]
    dead = replace(PLAIN, kinds=[(PLAIN.kinds[0][0], failed(Outcome.TIMEOUT))])
    assert (_evaluated(noted, dead).verdict, _evaluated(noted, dead).reasons[-1]) == ("unknown", "Why")


def test_rules_without_a_history_are_named_only_where_no_detector_follows() -> None:
    case = replace(PLAIN, rules=[{"kind": "regression"}])
    told = "rule 'regression' says nothing: it compares with earlier runs, and no detector evaluated this one"
    assert told in _evaluated(HistoryFacts(names_silent_rules=True), case).reasons
    assert told not in _evaluated(HistoryFacts(), case).reasons
