"""The one-shot check: canary files and a probe in, a report out, without a database or a server.

Judging is shared with the service, so that both say the same of the same answers; exit codes are the command's.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from app.alerts.documents import gate_rules
from app.alerts.domain.rules import Alarm, RunFacts, has_kind, watches_answers
from app.base.documents.fields import did_you_mean, parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.texts import counted, listed
from app.base.values import Answer, Ranking, RuleKind, RunStatus, Trigger, Value, judged_name, replace
from app.base.views import time_text
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.canary_files import Documents, Source
from app.catalog.documents.check_documents import CheckDocument, build_inputs, config_hash
from app.catalog.documents.secrets import content_hash
from app.catalog.domain import lone_judges
from app.comparison.domain.estimates import Difference
from app.comparison.service.decisions import expectation_digest, same_expectations
from app.records.domain import run_body
from app.records.views import WORST, ReportDocument, ResultView, result_shape, run_shape, worst_first
from app.retrievers.documents.retrievers import RetrieverDocument, ScorerDocument
from app.retrievers.domain.probes import CircuitBreaker, ask_in_turn
from app.retrievers.domain.retrievers import HISTORY, Probe, ProbeContext, ScorerKind
from app.scoring.evaluation import unpack_reasons
from app.scoring.measures import MEASURES_VERSION
from app.scoring.run_inputs import RunInputs, SuiteSnapshot, suite_hash
from app.scoring.run_outcomes import (
    HistoryFacts,
    RunOutcome,
    RunResponses,
    RunScores,
    build_responses,
    evaluate,
    score,
    skipped_answer,
)
from app.scoring.suites import SuiteFloors
from app.scoring.text_changes import TextComparison
from app.scoring.verdicts import Column, alarm_since_report, drops, regression_rules, watches_whole_ranking

Identity = tuple[str, ...]
"""Of a definition in canary files, as `Documents.sources` has it."""
_SUSPECTS: Final = 50
"""Lost canaries that are asked again, at most."""
_REPEATS: Final = 3
_OTHER_DEPTH: Final = "the saved report asked for another number of hits (fetch_k), which the measure depends on"


class Target(Value):
    """What is measured: a suite put to a retriever, judged as a check says."""

    check: CheckDocument
    suite: SuiteDocument
    retriever: RetrieverDocument

    @property
    def size(self) -> int:
        """How many canaries the gate probes."""
        return len(self.suite.canaries or ())


def measure(
    target: Target,
    probe: Probe,
    *,
    run_id: str,
    clock: Callable[[], datetime],
    answered: Callable[[int], None] = lambda _: None,
    before: Mapping[str, Any] | None = None,
) -> ReportDocument:
    """Ask every canary once, judge the answers and give the report with all results.

    `answered` gets how many answers came in, as they do. `before` is a report saved earlier, the baseline of `drop` and
    `regression` rules: canaries that are lost since, too few for a statistical claim, are asked again, so that a loss
    by chance is told from one that lasts. The reasons say which rules had nothing to say, and what a check without
    rules is held against. Raises InvalidInputError where the retriever's configuration cannot be used at all; whatever
    the retriever does is part of the report.
    """
    inputs, note = _inputs(target, before)
    started_at = clock()
    answers, ended_early, complete = _ask(inputs, probe, run_id, answered)
    finished_at = clock()
    responses = build_responses(inputs, answers, started_at=started_at, ended_early=ended_early)
    whole = _whole_rankings(inputs, before)
    scores = _with_text_losses(inputs, responses, score(inputs, responses), whole)
    saved = _Saved.of(inputs, scores, before)
    asks_again = saved.before is not None and not scores.unknown
    alarm = _alarm(inputs, probe, run_id, responses, saved, whole) if asks_again else None
    # There are no tasks here to look up: what comes from one counts as judged by more than this retriever.
    judges = lone_judges(inputs.suite.judgment_shares)
    self_judged = inputs.retriever.slug in judges
    rule_facts = RunFacts(drops=_drops(inputs, saved), alarm=alarm, self_judged=self_judged)
    texts = str(scores.texts)
    cause = f"Texts of the same chunks changed since the saved report: {texts}" if texts else None
    facts = HistoryFacts(rule_facts=rule_facts, names_silent_rules=True, note=note, cause=cause)
    outcome = evaluate(inputs, responses, facts, scores)
    aggregates = outcome.aggregates
    run = run_shape(
        aggregates,
        responses,
        outcome,
        id=run_id,
        check=inputs.check,
        suite=inputs.suite_slug,
        retriever=inputs.retriever.slug,
        trigger=Trigger.CLI,
        status=RunStatus.FINISHED if complete else RunStatus.PARTIAL,
        scheduled_for=time_text(started_at),
        started_at=time_text(started_at),
        finished_at=time_text(finished_at),
        means=dict(zip(inputs.vector_names, outcome.vector.tolist(), strict=True)),
        body=run_body(inputs, responses, outcome),
        suite_hash=inputs.suite.hash,
        config_hash=inputs.config_hash,
        measures_version=MEASURES_VERSION,
        self_judged=self_judged,
        judged_before_edit=None if self_judged else False,  # files tell of no edit
        judged_by=[one for one in judges if one != inputs.retriever.slug],
    )
    shaped = [result_view(inputs, responses, outcome, position, answer) for position, answer in enumerate(answers)]
    return {
        "run": run,
        "unjudged_answers": unasked_rules(target.check),
        "worst": worst_first(shaped)[:WORST],
        "results": shaped,
        "fetch_k": inputs.yardstick.fetch_k,
        "expectations": _expectations(inputs),
        "vars": {one.key: dict(asked) for one in inputs.canaries if (asked := inputs.vars_of(one))},
    }


def _inputs(target: Target, before: Mapping[str, Any] | None) -> tuple[RunInputs, str | None]:
    """Return what a target's run works with, judged by the rules a gate can judge by, and a note on these."""
    canaries = target.suite.canaries or ()
    suite = SuiteSnapshot.from_canaries(
        [canary.to_domain() for canary in canaries],
        suite_hash([(canary.key, canary.content_hash()) for canary in canaries]),
    )
    configured = config_hash(target.check.content_hash(), content_hash(target.retriever))
    inputs = build_inputs(suite, target.check, target.retriever.to_domain(), config_hash=configured)
    rules, note = gate_rules(target.check.rules, compared=_is_comparable(inputs, before))
    rules = tuple(rule for rule in rules if not watches_answers(rule.kind, rule.measure))  # see `unasked_rules`
    # Nor is a number shown for them: a dash beside `uncalibrated` would say that a judge was there.
    yardstick = replace(inputs.yardstick, rules=rules)
    return replace(inputs, yardstick=yardstick, answer_measures=(), judge=None), note


def unasked_rules(check: CheckDocument) -> str | None:
    """Return which rules of a check the gate cannot look at, as they are about generated answers; None = it has none.

    It neither has answers generated nor asks a judge, so it does not know them good or bad.
    """
    rules = [rule.to_domain() for rule in check.rules if rule.enabled]
    of_answers = [rule for rule in rules if watches_answers(rule.kind, rule.measure)]
    judged = [f"'{rule.key}'" for rule in of_answers if judged_name(rule.measure) is not None]
    others = [f"'{rule.key}'" for rule in of_answers if judged_name(rule.measure) is None]
    parts = []
    if judged:
        of, need = ("rule", "needs") if len(judged) == 1 else ("rules", "need")
        parts.append(f"{of} {listed(judged)} {need} a judge, which this command does not ask")
    if others:
        of, be = ("rule", "is") if len(others) == 1 else ("rules", "are")
        parts.append(f"{of} {listed(others)} {be} about generated answers, which this command does not read")
    return "; ".join(parts) or None


def _is_comparable(inputs: RunInputs, before: Mapping[str, Any] | None) -> bool:
    """Whether a saved report found what canaries of this run expect too."""
    if before is None or before["run"].get("measures_version") != MEASURES_VERSION:
        return False
    places = _compared(inputs, before)
    return any(result["key"] in places and result.get("any_match") is not None for result in before["results"])


def choose_targets(
    documents: Documents,
    *,
    check: str | None = None,
    url: str | None = None,
    served: str | None = None,
    takes: Collection[str] | None = None,
) -> tuple[Target, ...]:
    """Say what the files want measured: the named check, else every enabled one, else each suite by itself.

    `url` takes the place of the retrievers' own; where no retriever is defined, one of the generic preset stands
    there. `served`: the address of a callable that `coalmine_client` serves, which stands for every retriever, and
    `takes` its parameters; None = it takes any. Raises InvalidInputError saying what is missing.
    """
    suites = {suite.slug: suite for suite in documents.suites}
    sources = documents.sources
    if served is not None:
        documents = _served(documents, served, takes)
    retrievers = {retriever.slug: retriever if url is None else retriever.at(url) for retriever in documents.retrievers}
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
    if served is not None and takes is not None:
        _refuse_untaken(targets, takes, sources)
    if not documents.checks:  # those the files define were held against their suites when these were read
        _refuse_unjudgeable(targets)
    return targets


def _refuse_untaken(targets: Sequence[Target], takes: Collection[str], sources: Mapping[Identity, Source]) -> None:
    """Raise for variables and conversations that a served callable would be asked without."""
    asking: list[tuple[Identity, str, Mapping[str, str]]] = []
    for target in targets:
        check, suite = target.check, target.suite
        asking.append((("check", check.slug), f"check '{check.slug}'", check.vars))
        for canary in suite.canaries or ():
            stated = {**canary.vars, **({HISTORY: ""} if canary.history else {})}
            asking.append((("canary", suite.slug, canary.key), f"canary '{suite.slug}/{canary.key}'", stated))
    problems = []
    for identity, whose, said in asking:
        file, line = (source.file, source.line) if (source := sources.get(identity)) else (None, None)
        for name in said:
            if name not in takes:
                path = name if name == HISTORY else f"vars.{name}"
                near = did_you_mean(name, takes) or f"; it takes {', '.join(sorted(takes)) or 'the query alone'}"
                message = f"of {whose} is no parameter of the function that retrieves{near}"
                problems.append(Problem(path=path, message=message, file=file, line=line))
    if problems:
        unique = dict.fromkeys(problems)
        raise InvalidInputError(sorted(unique, key=lambda one: (one.file or "", one.line or 0)))


def lone_target(documents: Documents, url: str | None = None) -> Target:
    """Return a check without canaries of the only retriever of the files. Raises InvalidInputError for several."""
    retriever = _lone_retriever(documents.retrievers, url)
    suite = SuiteDocument(slug=documents.suites[0].slug if documents.suites else retriever.slug)
    check = _bare_check(suite.slug, retriever.slug)
    return Target(check=check, suite=suite, retriever=retriever if url is None else retriever.at(url))


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
        Problem(path=path, message=f"of canary '{target.suite.slug}/{canary.key}' {why}")
        for target in targets
        for canary in target.suite.canaries or ()
        for path, why in (
            ("max_age", canary.why_undatable(target.retriever)),
            ("history", canary.why_unsent(target.retriever)),
            ("vars", canary.why_not_asked(target.check.vars, target.retriever)),
        )
        if why is not None
    ]
    problems += [
        Problem(path=f"vars.{name}", message=f"of {whose} {why}")
        for target in targets
        for whose, found in (
            (f"check '{target.check.slug}'", target.check.unknown_vars(target.retriever)),
            *(
                (f"canary '{target.suite.slug}/{canary.key}'", canary.unknown_vars(target.retriever))
                for canary in target.suite.canaries or ()
            ),
        )
        for name, why in found
    ]
    if problems:
        raise InvalidInputError(problems)


def _checks(documents: Documents, named: str | None) -> tuple[CheckDocument, ...]:
    if named is None:
        enabled = tuple(check for check in documents.checks if check.enabled)
        if documents.checks and not enabled:
            raise InvalidInputError([Problem(message="every check of the files is disabled; name one with --check")])
        return enabled
    checks = tuple(check for check in documents.checks if check.slug == named)
    if not checks:
        near = did_you_mean(named, [check.slug for check in documents.checks])
        raise InvalidInputError([Problem(path="--check", message=f"the files define no check '{named}'{near}")])
    return checks


SERVED_RESPONSE: Final[Mapping[str, str]] = {"hits": "results", "id": "id", "text": "text", "document": "document"}
"""What `coalmine_client` answers: hits with these fields, whatever the callable returns."""


def _served(documents: Documents, url: str, takes: Collection[str] | None) -> Documents:
    """Return the documents with a served callable in the place of every retriever, by its name and its options.

    It gets the variables of each canary by name, those that it takes; without retrievers and checks it is the only
    retriever.
    """
    named = {retriever.slug: dict(retriever.options) for retriever in documents.retrievers} or {"callable": {}}
    asked = [canary.vars for suite in documents.suites for canary in suite.canaries or ()]
    names = {name for one in (*asked, *(check.vars for check in documents.checks)) for name in one}
    retrievers = []
    for slug, defaults in named.items():
        options = {**dict.fromkeys(sorted(names), UNSTATED), **defaults}
        options = {name: value for name, value in options.items() if takes is None or name in takes}
        variables = {name: f"{{{{ {name} }}}}" for name in options}
        body = {"query": "{{ query }}", "k": "{{ k }}", "vars": variables}
        if any(canary.history for suite in documents.suites for canary in suite.canaries or ()):
            body["history"] = "{{ history }}"
        request = {"json": body}
        body = {"slug": slug, "url": url, "options": options, "request": request, "response": SERVED_RESPONSE}
        retrievers.append(parse_document(RetrieverDocument, body))
    return replace(documents, retrievers=tuple(retrievers))


UNSTATED: Final = "-"
"""Value of a variable that a canary does not state, and no retriever of the files either."""


def _lone_retriever(retrievers: Sequence[RetrieverDocument], url: str | None) -> RetrieverDocument:
    if len(retrievers) == 1:
        return retrievers[0]
    if retrievers:
        message = f"the files define {len(retrievers)} retrievers and no check that says which one to ask"
        raise InvalidInputError([Problem(message=message)])
    if url is None:
        raise InvalidInputError([Problem(message="the files define no retriever; say where it is with --url")])
    return parse_document(RetrieverDocument, {"slug": "generic", "url": url})


def _bare_check(suite: str, retriever: str) -> CheckDocument:
    unscheduled = {"every": "1d"}  # nothing is scheduled here; a check just has to say something
    return parse_document(
        CheckDocument, {"slug": suite, "suite": suite, "retriever": retriever, "schedule": unscheduled}
    )


def _ask(
    inputs: RunInputs, probe: Probe, run_id: str, answered: Callable[[int], None]
) -> tuple[list[Answer], str | None, bool]:
    """Return the answers by position, why the circuit breaker ended the run if it did, and whether all were probed."""
    asking = _context(inputs, run_id)
    asks = inputs.asks
    breaker = CircuitBreaker(limit=asking.retriever.breaker)
    known, breaker = ask_in_turn(probe, asking, asks, breaker, answered=answered)
    complete = len(known) == len(asks)
    why = breaker.reason if breaker.is_open and not complete else None
    return [known.get(ask.position) or skipped_answer(why) for ask in asks], why, complete


def _context(inputs: RunInputs, run_id: str) -> ProbeContext:
    return ProbeContext(
        retriever=inputs.retriever, k=inputs.yardstick.fetch_k, run_id=run_id, patience_seconds=inputs.patience_seconds
    )


class _Saved(Value):
    """A run's canaries beside those of a saved report."""

    before: Column | None
    """None = there is nothing to compare with, because of `why`."""
    now: Column
    why: str
    unequal: bool
    """Whether the saved report asked for another number of hits."""

    @classmethod
    def of(cls, inputs: RunInputs, scores: RunScores, report: Mapping[str, Any] | None) -> Self:
        """Return the canaries of this run and of a report by key, those that it expects the same of."""
        places = {} if report is None else _compared(inputs, report)

        def then(name: str) -> NDArray[np.float64]:
            column = np.full(len(inputs.canaries), np.nan)
            for result in report["results"] if report is not None else ():
                place, value = places.get(result["key"]), result.get("measures", {}).get(name)
                if place is not None and isinstance(value, int | float):
                    column[place] = value
            return column

        why = "a single run has no baseline; name a saved report with --baseline"
        if report is not None and report["run"].get("measures_version") != MEASURES_VERSION:
            report, why = None, "the saved report is of another measures version"
        fetch_k = inputs.yardstick.fetch_k
        return cls(
            before=None if report is None else then,
            now=_column_of(inputs, scores),
            why=why,
            unequal=report is not None and report.get("fetch_k", fetch_k) != fetch_k,
        )


def _column_of(inputs: RunInputs, scores: RunScores) -> Column:
    """Return the columns of a run's measures; what is found by id alone, without its text, is not found."""
    hit = f"Hit@{inputs.yardstick.k}"

    def now(name: str) -> NDArray[np.float64]:
        column = scores.tally.scores([name])[:, 0]
        return np.where(scores.tally.lost_texts, 0.0, column) if name == hit else column

    return now


def _whole_rankings(inputs: RunInputs, before: Mapping[str, Any] | None) -> dict[int, Ranking]:
    """Return the rankings of a saved report in which canaries found what they expect, by position."""
    places = {} if before is None else _compared(inputs, before)
    whole: dict[int, Ranking] = {}
    for result in before["results"] if before is not None else ():
        place, hits = places.get(result["key"]), result.get("ranking")
        if place is None or not result.get("any_match") or not isinstance(hits, list):
            continue
        texts = {str(hit.get("id")): hit.get("text") for hit in hits if isinstance(hit, Mapping)}
        nothing = (None,) * len(texts)
        whole[place] = Ranking(
            ids=tuple(texts),
            documents=nothing,
            texts=tuple(text if isinstance(text, str) else None for text in texts.values()),
            scores=nothing,
            returned=len(texts),
        )
    return whole


def _with_text_losses(
    inputs: RunInputs, responses: RunResponses, scores: RunScores, whole: Mapping[int, Ranking]
) -> RunScores:
    """Return scores by which canaries are `missing` that lost the texts of their expected chunks since a report."""
    if inputs.retriever.response.text is None:
        return scores
    comparison = TextComparison()
    for place, now in responses.rankings.items():
        if place in whole and inputs.panel.expects[place]:
            match = scores.results[place].match
            comparison.add(place, inputs.panel.prepared(place), match, whole[place], now, k=inputs.yardstick.k)
    texts = comparison.finish()
    scores.tally.add_lost_texts(texts.lost)
    return replace(scores, texts=texts)


def _compared(inputs: RunInputs, before: Mapping[str, Any]) -> dict[str, int]:
    """Return the positions of the canaries that a saved report expects the same of, by key."""
    places = {canary.key: place for place, canary in enumerate(inputs.canaries)}
    same = same_expectations(before, _expectations(inputs))
    return places if same is None else {key: place for key, place in places.items() if key in same}


def _drops(inputs: RunInputs, saved: _Saved) -> dict[str, Difference | str]:
    """Compare the canaries with how a saved report has them."""
    unequal_rules = [rule for rule in inputs.yardstick.rules if saved.unequal and watches_whole_ranking(rule)]
    found = drops(
        [rule for rule in inputs.yardstick.rules if rule not in unequal_rules],
        k=inputs.yardstick.k,
        categories=inputs.panel.categories,
        before=saved.before,
        now=saved.now,
        no_baseline_reason=saved.why,
    )
    return {**found, **{rule.key: _OTHER_DEPTH for rule in unequal_rules}}


def _alarm(
    inputs: RunInputs, probe: Probe, run_id: str, responses: RunResponses, saved: _Saved, whole: Mapping[int, Ranking]
) -> Alarm | None:
    """Return what a `regression` rule learns from a saved report; None where no rule asks or no canary is in both."""
    assert saved.before is not None  # noqa: S101 - the caller checks
    found = f"Hit@{inputs.yardstick.k}"
    old, new = saved.before(found), saved.now(found)
    if not has_kind(inputs.yardstick.rules, RuleKind.REGRESSION) or np.isnan(old + new).all():
        return None
    rules = regression_rules(inputs.yardstick.fetch_k)
    compared = drops(
        rules, k=inputs.yardstick.k, categories={}, before=saved.before, now=saved.now, no_baseline_reason=saved.why
    )
    differences = [compared[rule.key] for rule in rules]
    places = np.flatnonzero((old == 1) & (new == 0)).tolist()
    coverage = differences[0]
    is_decided = not isinstance(coverage, str) and coverage.claimed and coverage.difference < 0
    confirmed = [] if is_decided else _lost_again(inputs, probe, run_id, responses, places[:_SUSPECTS], whole)
    names = [inputs.canaries[place].key for place in places]
    return alarm_since_report(
        differences,
        [str(rule.measure) for rule in rules],
        lost=names,
        confirmed=[inputs.canaries[place].key for place in confirmed],
    )


def _lost_again(
    inputs: RunInputs,
    probe: Probe,
    run_id: str,
    responses: RunResponses,
    places: Sequence[int],
    whole: Mapping[int, Ranking],
) -> list[int]:
    """Return those of these lost canaries that find nothing whenever they are asked again."""
    asking = _context(inputs, run_id)
    lost = list(places)
    for _ in range(_REPEATS):
        if not lost:
            break
        asks = [inputs.asks[place] for place in lost]
        with closing(probe(asking, asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            again = {position: answer for batch in batches for position, answer in batch}
        answers = [again.get(place) or skipped_answer(None) for place in range(len(inputs.canaries))]
        repeated = build_responses(inputs, answers, started_at=responses.started_at, ended_early=None)
        repeat = _with_text_losses(inputs, repeated, score(inputs, repeated), whole)
        found = _column_of(inputs, repeat)(f"Hit@{inputs.yardstick.k}")
        lost = [place for place in lost if found[place] == 0]
    return lost


def _expectations(inputs: RunInputs) -> dict[str, str]:
    """Return a digest of what each canary asks and expects, by key: later reports are compared by them."""
    return {canary.key: expectation_digest(canary) for canary in inputs.canaries}


def result_view(
    inputs: RunInputs, responses: RunResponses, outcome: RunOutcome, position: int, answer: Answer
) -> ResultView:
    """Return the view of one canary's part of a run that was just judged."""
    result, yardstick, canary = outcome.results.get(position), inputs.yardstick, inputs.canaries[position]
    if result is None:
        return result_shape(canary, answer, k=yardstick.k)
    return result_shape(
        canary,
        answer,
        ranking=responses.rankings[position],
        prepared=inputs.panel.prepared(position),
        match=result.match,
        measures=dict(zip(map(str, yardstick.measures), result.vector.tolist(), strict=True)),
        top_score=result.top_score,
        reasons=unpack_reasons(int(outcome.canary_reasons[position])),
        scorer=yardstick.scorer,
        k=yardstick.k,
        asked_at=responses.started_at,
    )


def judged_by_rank(
    targets: Sequence[Target], topics: Collection[str], *, file: str, as_documents: bool
) -> tuple[tuple[Target, ...], list[str]]:
    """Reduce targets to what a run over these topics can answer; gives them and what was left out, in sentences.

    The run's names are chunk ids or, `as_documents`, documents. Nothing that cannot be judged may look healthy or
    missing: such canaries are left out. Raises InvalidInputError where none of the topics is a canary's key.
    """
    lost: Counter[str] = Counter()
    judged, keys, absent = [], set(), 0
    for target in targets:
        canaries = target.suite.canaries or ()
        keys |= {canary.key for canary in canaries}
        if not any(canary.key in topics for canary in canaries):
            continue  # the run is of another suite
        judgeable = [
            one for canary in canaries if (one := _by_name(canary, lost, as_documents=as_documents)) is not None
        ]
        if judgeable:
            absent += sum(one.key not in topics for one in judgeable)
            suite = target.suite.model_copy(update={"canaries": tuple(judgeable)})
            scorer = ScorerDocument(kind=ScorerKind.JUDGED)  # its scores mean nothing to the retriever's scale
            retriever = target.retriever.model_copy(update={"scorer": scorer})
            judged.append(replace(target, suite=suite, retriever=retriever))
    if not judged:
        example = next(iter(topics), "")[:60]
        message = (
            f"no canary can be judged by it: its topics, such as '{example}', must be keys of canaries that expect ids"
        )
        raise InvalidInputError([Problem(message=message, file=file)])
    strangers = len(set(topics) - keys)
    notes = [f"{counted(count, 'canary')}: {what}" for what, count in lost.items()]
    if absent:
        total = sum(len(target.suite.canaries or ()) for target in judged)
        notes.insert(0, f"{absent:,} of {counted(total, 'canary')}: not a topic of the run, counted as nothing found")
    return tuple(judged), notes + (
        [f"{counted(strangers, 'topic')} of the run: no canary has it for its key"] if strangers else []
    )


def _by_name(canary: CanaryDocument, lost: Counter[str], *, as_documents: bool) -> CanaryDocument | None:
    """Reduce a canary to what names can answer; None where nothing is left of it."""
    identity = "document" if as_documents else "id"
    blank: dict[str, None] = {"id": None, "document": None, "text": None}

    def named(chunks: Sequence[Any]) -> tuple[Any, ...]:
        named_chunks = [chunk for chunk in chunks if getattr(chunk, identity) is not None]
        return tuple(
            chunk.model_copy(update={**blank, identity: getattr(chunk, identity)})
            for chunk in dict.fromkeys(named_chunks)
        )

    expected, forbidden = named(canary.expected_chunks), named(canary.forbidden_chunks)
    if len(forbidden) < len(canary.forbidden_chunks):
        lost[f"forbids chunks by other than {identity}, which was not judged"] += 1
    if canary.max_age is not None or canary.max_latency is not None:
        lost["limits age or latency, which was not judged"] += 1
    if canary.expected_chunks and not expected:
        lost[f"expects nothing by {identity}, left out"] += 1
        return None
    if not expected and not forbidden and not canary.expect_empty:
        lost["has nothing that ranks could answer, left out"] += 1
        return None
    return canary.model_copy(
        update={"expected_chunks": expected, "forbidden_chunks": forbidden, "max_age": None, "max_latency": None}
    )
