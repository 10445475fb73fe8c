"""The one-shot check: canary files and a probe in, a report out. It knows neither a database nor a server.

Judging is shared with the service, so that both say the same of the same answers; exit codes are the command's.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.domain.alerts.rule_facts import unsaid
from app.domain.catalog.suite_floors import SuiteFloors
from app.domain.comparison.significance import Difference
from app.domain.errors import InvalidInputError, Problem
from app.domain.model import Answer, Outcome, Ranking, RunStatus, Trigger, Verdict
from app.domain.probing.circuit_breaker import ENDED_FIRST, Breaker
from app.domain.probing.mapped_fields import lacking, present
from app.domain.probing.probe_failures import ProbeFailure, summarize_failures
from app.domain.probing.retrievers import Ask, Asking, Probe
from app.domain.runs.aggregate_vectors import aggregate_vector, vector_names
from app.domain.runs.document_ids import document_ids_remark
from app.domain.runs.drops import drops
from app.domain.runs.evaluation import Panel, Result, Tally, Yardstick, judge, judge_timings, unpack_reasons
from app.domain.runs.measures import MEASURES_VERSION
from app.domain.runs.rankings import decimals_of, settle
from app.domain.runs.verdicts import remarks, run_verdict, too_few_scored
from app.formats.alerts.rule_documents import gate_rules
from app.formats.catalog.canary_files import Documents
from app.formats.catalog.documents import CheckDocument, RetrieverDocument, SuiteDocument
from app.formats.catalog.secret_fields import config_hash, content_hash
from app.formats.fields import suggestion
from app.formats.history import shapes
from app.formats.validation_messages import parse_document
from app.services.aggregates import run_body
from app.services.alerts.rule_facts import facts_of
from app.store.catalog.suites import suite_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is measured: a suite put to a retriever, judged as a check says."""

    check: CheckDocument
    suite: SuiteDocument
    retriever: RetrieverDocument

    @property
    def size(self) -> int:
        """How many canaries are asked."""
        return len(self.suite.canaries or ())


def measure(
    target: Target,
    probe: Probe,
    *,
    run_id: str,
    clock: Callable[[], datetime],
    answered: Callable[[int], None] = lambda _: None,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Ask every canary once, judge the answers and give the report with all results.

    `answered` hears how many answers came in, as they do. `before` is a report saved earlier, the baseline of `drop`
    rules; a `regression` takes more than that, and the reasons say which rules had nothing to say, and what bound a
    check without rules is held against. Raises
    InvalidInputError where the retriever's configuration cannot be used at all; whatever the retriever does is part of
    the report.
    """
    check, retriever = target.check, target.retriever.to_domain()
    panel = Panel([canary.to_domain() for canary in target.suite.canaries or ()])
    rules, note = gate_rules(check.rules, baseline=_coverage_before(before))
    yardstick = replace(check.yardstick(retriever.scorer), rules=rules)
    started_at = clock()
    asked = _ask(panel, probe, Asking(retriever=retriever, k=yardstick.fetch_k, run_id=run_id), answered)
    finished_at = clock()
    judged = _judge(yardstick, panel, asked, decimals_of(retriever.score_precision), started_at)
    lacks = lacking(retriever.response, present(judged.rankings.values()))
    means, counts, verdict, reasons, body = _summary(yardstick, panel, asked, judged, lacks, before)
    if note is not None and verdict is not Verdict.UNKNOWN:
        reasons.append(note)
    versions = [answer.index_version for answer in asked.answers if answer.index_version]
    run = shapes.run_shape(
        id=run_id,
        check=check.slug,
        suite=target.suite.slug,
        retriever=retriever.slug,
        trigger=Trigger.CLI,
        index_version=versions[-1] if versions else None,
        status=RunStatus.FINISHED if asked.complete else RunStatus.PARTIAL,
        scheduled_for=started_at,
        started_at=started_at,
        finished_at=finished_at,
        verdict=verdict,
        reasons=reasons,
        counts=counts,
        means=means,
        body=body,
        suite_hash=suite_hash([(canary.key, content_hash(canary)) for canary in target.suite.canaries or ()]),
        config_hash=config_hash(content_hash(check), content_hash(target.retriever)),
        measures_version=MEASURES_VERSION,
    )
    shaped = [
        _result(yardstick, panel, position, answer, judged, started_at) for position, answer in enumerate(asked.answers)
    ]
    return shapes.report_shape(run, shaped, everything=True)


def _coverage_before(before: Mapping[str, Any] | None) -> float | None:
    """Coverage of a saved report that this run can be compared with; None = there is none."""
    if before is None or before["run"].get("measures_version") != MEASURES_VERSION:
        return None
    coverage = before["run"].get("coverage")
    return float(coverage) if isinstance(coverage, int | float) and not isinstance(coverage, bool) else None


def choose_targets(documents: Documents, *, check: str | None = None, url: str | None = None) -> tuple[Target, ...]:
    """Say what the files want measured: the named check, else every enabled one, else each suite by itself.

    `url` takes the place of the retrievers' own; where no retriever is defined, one of the generic preset stands
    there. Raises InvalidInputError saying what is missing.
    """
    suites = {suite.slug: suite for suite in documents.suites}
    retrievers = {retriever.slug: _moved(retriever, url) for retriever in documents.retrievers}
    checks = _checks(documents, check)
    if not documents.checks:
        retriever = _lone_retriever(tuple(retrievers.values()), url)
        retrievers = {retriever.slug: retriever}
        checks = tuple(_bare_check(suite.slug, retriever.slug) for suite in documents.suites)
    targets = tuple(Target(check=one, suite=suites[one.suite], retriever=retrievers[one.retriever]) for one in checks)
    empty = [target.suite.slug for target in targets if not target.size]
    if empty or not targets:
        missing = f"suite '{empty[0]}' has no canaries" if empty else "the files define no suite"
        raise InvalidInputError([Problem(message=missing)])
    if not documents.checks:  # those the files define were held against their suites when these were read
        _refuse_unjudgeable(targets)
    return targets


def _floors_of(suite: SuiteDocument) -> SuiteFloors:
    floors = {canary.key: canary.floors for canary in suite.canaries or ()}
    return SuiteFloors.of(floors.keys(), floors)


def _refuse_unjudgeable(targets: Sequence[Target]) -> None:
    problems = [
        Problem(path="floors", message=message)
        for target in targets
        for _, message in target.check.uncomputed_floors(_floors_of(target.suite))
    ]
    problems += [
        Problem(path="max_age", message=f"of canary '{target.suite.slug}/{canary.key}' {why}")
        for target in targets
        for canary in target.suite.canaries or ()
        if (why := canary.why_undatable(target.retriever)) is not None
    ]
    if problems:
        raise InvalidInputError(problems)


def _checks(documents: Documents, named: str | None) -> tuple[CheckDocument, ...]:
    if named is None:
        enabled = tuple(check for check in documents.checks if check.enabled)
        if documents.checks and not enabled:
            raise InvalidInputError([Problem(message="every check of the files is disabled; name one with --check")])
        return enabled
    found = tuple(check for check in documents.checks if check.slug == named)
    if not found:
        near = suggestion(named, [check.slug for check in documents.checks])
        raise InvalidInputError([Problem(path="--check", message=f"the files define no check '{named}'{near}")])
    return found


def _moved(retriever: RetrieverDocument, url: str | None) -> RetrieverDocument:
    return retriever if url is None else retriever.at(url)


def _lone_retriever(retrievers: Sequence[RetrieverDocument], url: str | None) -> RetrieverDocument:
    if len(retrievers) == 1:
        return retrievers[0]
    if retrievers:
        told = f"the files define {len(retrievers)} retrievers and no check that says which one to ask"
        raise InvalidInputError([Problem(message=told)])
    if url is None:
        raise InvalidInputError([Problem(message="the files define no retriever; say where it is with --url")])
    return parse_document(RetrieverDocument, {"slug": "generic", "url": url})


def _bare_check(suite: str, retriever: str) -> CheckDocument:
    unscheduled = {"every": "1d"}  # nothing is scheduled here; a check just has to say something
    return parse_document(
        CheckDocument, {"slug": suite, "suite": suite, "retriever": retriever, "schedule": unscheduled}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The answers to all canaries, in their order."""

    answers: Sequence[Answer]
    complete: bool
    ended_early: str | None
    """Why, where the breaker ended it."""


def _ask(panel: Panel, probe: Probe, asking: Asking, answered: Callable[[int], None]) -> _Asked:
    asks = [
        Ask(position=position, query=canary.query, key=canary.key) for position, canary in enumerate(panel.canaries)
    ]
    breaker = Breaker(limit=asking.retriever.breaker)
    known: dict[int, Answer] = {}
    with closing(probe(asking, asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        for batch in batches:
            known.update(batch)
            answered(len(batch))
            breaker = breaker.after(answer for _, answer in batch)
            if breaker.is_open:
                break
    complete = len(known) == len(asks)
    why = breaker.reason if breaker.is_open and not complete else None
    not_asked = Answer(outcome=Outcome.SKIPPED, latency_seconds=0.0, detail=why or ENDED_FIRST)
    answers = [known.get(ask.position, not_asked) for ask in asks]
    return _Asked(answers=answers, complete=complete, ended_early=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What the answers mean, by position, and what they add up to."""

    rankings: Mapping[int, Ranking]
    results: Mapping[int, Result]
    tally: Tally
    undated: int


def _judge(yardstick: Yardstick, panel: Panel, asked: _Asked, decimals: int, started_at: datetime) -> _Judged:
    rankings = {
        position: settle(answer.ranking, decimals)
        for position, answer in enumerate(asked.answers)
        if answer.ranking is not None
    }
    results = judge(yardstick, panel, rankings)
    latencies = {place: asked.answers[place].latency_seconds for place in panel.timed if place in rankings}
    timings = judge_timings(yardstick, panel, latencies, rankings, started_at)
    tally = Tally(yardstick, panel)
    tally.add(results)
    tally.time(timings)
    undated = sum(timing.undated for timing in timings.values())
    return _Judged(rankings=rankings, results=results, tally=tally, undated=undated)


def _summary(
    yardstick: Yardstick,
    panel: Panel,
    asked: _Asked,
    judged: _Judged,
    lacks: Sequence[str],
    before: Mapping[str, Any] | None,
) -> tuple[dict[str, float | None], dict[str, int], Verdict, list[str], dict[str, Any]]:
    """Amount the answers to a run's means, counts, verdict, its reasons, and what its shape spells out besides."""
    outcomes = [answer.outcome for answer in asked.answers]
    aggregates = judged.tally.aggregates(outcomes)
    unscored = [answer.unscored for answer in asked.answers if answer.unscored is not None]
    told = unscored[0] if unscored else None
    scored = sum(ranking.relevance is not None for ranking in judged.rankings.values())
    too_few = too_few_scored(scored=scored, unscored=len(unscored), why_unscored=told)
    latencies = [answer.latency_seconds for answer in asked.answers if answer.outcome is Outcome.OK]
    facts = facts_of(
        yardstick.rules,
        panel,
        reasons=judged.tally.reasons,
        failed={position for position, outcome in enumerate(outcomes) if outcome is not Outcome.OK},
        unscored={position for position, answer in enumerate(asked.answers) if answer.unscored is not None},
        latencies=latencies,
    )
    failures = [answer for answer in asked.answers if answer.outcome is not Outcome.OK]
    why_failed = summarize_failures(map(ProbeFailure.of, failures), len(asked.answers))
    facts = replace(facts, drops=_drops(yardstick, panel, judged, before), failure=why_failed)
    verdict, why = run_verdict(
        aggregates, yardstick.rules, ended_early=asked.ended_early, too_few_scored=too_few, facts=facts
    )
    why += unsaid(yardstick.rules, facts) if verdict is not Verdict.UNKNOWN else []
    why += remarks(
        aggregates,
        unscored=0 if too_few else len(unscored),
        why_unscored=told,
        undated=judged.undated,
        lacking=lacks,
    )
    found = ((panel.canaries[place], ranking) for place, ranking in judged.rankings.items() if panel.expects[place])
    hint = document_ids_remark(aggregates.coverage, found)
    why += [] if hint is None else [hint]
    names = vector_names(yardstick, panel)
    means = dict(zip(names, aggregate_vector(names, aggregates).tolist(), strict=True))
    counts = {name: getattr(aggregates, name) for name in ("total", "measured", "failed", "undefined", "degraded")}
    failed_at = [(str(answer.step), str(answer.outcome)) for answer in failures]
    body = run_body(panel, aggregates, judged.tally.reasons, outcomes, latencies, failed_at=failed_at)
    return means, counts, verdict, why, body


def _drops(
    yardstick: Yardstick, panel: Panel, judged: _Judged, before: Mapping[str, Any] | None
) -> dict[str, Difference | str]:
    """Compare the canaries with how a saved report has them, by key."""
    places = {canary.key: place for place, canary in enumerate(panel.canaries)}
    names = [str(measure) for measure in yardstick.measures]

    def then(name: str) -> NDArray[np.float64]:
        column = np.full(len(panel), np.nan)
        for result in before["results"] if before is not None else ():
            place, value = places.get(result["key"]), result.get("measures", {}).get(name)
            if place is not None and isinstance(value, int | float):
                column[place] = value
        return column

    def now(name: str) -> NDArray[np.float64]:
        column = np.full(len(panel), np.nan)
        for place, result in judged.results.items():
            column[place] = result.vector[names.index(name)]
        return column

    why = "a single run has no baseline; name a saved report with --baseline"
    if before is not None and before["run"].get("measures_version") != MEASURES_VERSION:
        before, why = None, "the saved report is of another measures version"
    return drops(
        yardstick.rules,
        k=yardstick.k,
        categories=panel.categories,
        before=None if before is None else then,
        now=now,
        why_none=why,
    )


def _result(
    yardstick: Yardstick, panel: Panel, position: int, answer: Answer, judged: _Judged, started_at: datetime
) -> dict[str, Any]:
    result = judged.results.get(position)
    if result is None:
        return shapes.result_shape(panel.canaries[position], k=yardstick.k, **shapes.failed_probe(answer))
    return shapes.result_shape(
        panel.canaries[position],
        ranking=judged.rankings[position],
        prepared=panel.prepared[position],
        match=result.match,
        measures=dict(zip(map(str, yardstick.measures), result.vector.tolist(), strict=True)),
        top_score=result.top_score,
        reasons=unpack_reasons(int(judged.tally.reasons[position])),
        scorer=yardstick.scorer,
        k=yardstick.k,
        asked_at=started_at,
        **shapes.failed_probe(answer),
    )
