"""Facts for rules: the newest ended runs of a check, each judged by the current version of a rule.

How many bad runs open an alert is decided in `domain.state`.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from app.alerts.domain.rules import (
    NO_FACTS,
    REPEATED,
    Alarm,
    RepeatedFailures,
    RunFacts,
    WarmUp,
    condition,
    has_kind,
    named_canaries,
    watches_latency,
)
from app.alerts.domain.state import Observation, window_length
from app.alerts.domain.state import first_bad_run as find_first_bad_run
from app.answers.store import confirmed_measures
from app.base.db.engine import Connection, from_us
from app.base.values import JUDGED, Aggregates, Canary, Percentile, Reason, Rule, RuleKind, RunStatus, Severity, Verdict
from app.catalog import store as catalog
from app.catalog.documents.documents import CheckDocument
from app.catalog.service.snapshots import load_suite
from app.detection import store as detectors
from app.detection.domain.values import Change
from app.detection.service import baselines
from app.detection.service.detectors import run_latencies
from app.detection.store import DetectionRow
from app.records.service.figures import stored_aggregates
from app.records.store import pruning, results
from app.records.store.results import RunRow
from app.retrievers.domain.probes import FailedProbe, summarize_failures
from app.scoring.drops import drop_from_json
from app.scoring.evaluation import known_reasons
from app.scoring.suites import UnusableSuiteError
from app.scoring.verdicts import NOT_CARRIED_OUT

_MAX_RUNS = 2_000
_MAX_UNMEASURED_RUNS = 200
_FIRST_LIMIT = 8
_MAX_VOID = 8
"""Runs read for the last ones that were carried out."""
_USUAL_RUNS = 20
_OTHER_BASELINE = "the run was compared with a baseline that is no longer in force"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The newest ended runs of a check, oldest first: as many as every rule needs."""

    runs: Sequence[RunRow]
    run_facts: Mapping[int, RunFacts]
    """Facts beside the aggregates by run id; none for unknown runs."""
    _judged: dict[str, list[Observation]] = field(default_factory=dict, compare=False, repr=False)
    """Observations by rule key, each judged once."""
    _aggregates: dict[int, Aggregates] = field(default_factory=dict, compare=False, repr=False)
    """By run id: all rules share them."""

    @property
    def newest(self) -> RunRow | None:
        """The run that ended last."""
        return self.runs[-1] if self.runs else None

    def of(self, rule: Rule) -> list[Observation]:
        """Judge the runs by a rule, oldest first. Raises ValueError for `no_data`, which is not judged by runs."""
        if rule.key not in self._judged:
            self._judged[rule.key] = self._judge(rule)
        return self._judged[rule.key]

    def _judge(self, rule: Rule) -> list[Observation]:
        return [
            Observation(
                run_id=row.id,
                at=from_us(row.finished_at or row.created_at),
                condition=condition(
                    rule,
                    self._aggregates_of(row),
                    unknown=row.verdict == Verdict.UNKNOWN,
                    facts=self.run_facts.get(row.id, NO_FACTS),
                ),
            )
            for row in self.runs
            if not _is_void(row)
        ]

    def _aggregates_of(self, row: RunRow) -> Aggregates:
        if row.id not in self._aggregates:
            self._aggregates[row.id] = stored_aggregates(row)
        return self._aggregates[row.id]


def load_facts(
    connection: Connection, check_id: int, rules: Sequence[Rule], *, unresolved: Collection[str] = ()
) -> Facts:
    """Newest ended runs of a check, as many as every rule needs for `window_length` measured ones.

    `unresolved`: the keys of the rules with an alert, pending ones included. A rule may not be measured on runs with a
    verdict (its canary was not measured): for rules with an alert, and those measured on the newest run, the only ones
    that depend on older runs, up to `_MAX_UNMEASURED_RUNS` runs are read; older ones count as never measured.
    """
    run_rules = [rule for rule in rules if rule.kind is not RuleKind.NO_DATA]
    needed = max((window_length(rule) for rule in run_rules), default=1)
    rows, limit = results.ended_runs(connection, check_id, limit=needed), needed
    while len(rows) == limit < _MAX_RUNS and sum(row.verdict != Verdict.UNKNOWN for row in rows) < needed:
        limit *= 4
        rows = results.ended_runs(connection, check_id, limit=limit)
    compared_since = _compared_since(connection, check_id, run_rules)
    facts = Facts(runs=rows, run_facts=_read_facts(connection, run_rules, rows, compared_since))
    facts = _with_failure(connection, facts)
    short = [rule for rule in run_rules if _needs_older_runs(facts, rule, unresolved)]
    while short := [rule for rule in short if not _is_enough(facts, rule, compared_since)]:
        limit = min(4 * len(facts.runs), _MAX_UNMEASURED_RUNS)
        rows = results.ended_runs(connection, check_id, limit=limit)
        if len(rows) <= len(facts.runs):
            break
        older = _read_facts(connection, short, rows[: -len(facts.runs)], compared_since)
        facts = Facts(runs=rows, run_facts={**older, **facts.run_facts})
    return _with_repeated(connection, check_id, facts, run_rules)


def repeated_failures(
    connection: Connection, check_id: int, run_id: int, failures: Mapping[str, FailedProbe]
) -> RepeatedFailures | None:
    """Return the canaries that a run and the ones before it did not measure; None where there is none.

    `failures`: those of the run by key of the canary. Of a run that could not be carried out no canary was measured.
    """
    if not failures:
        return None
    earlier = [
        row for row in results.ended_runs(connection, check_id, before=run_id, limit=_MAX_VOID) if not _is_void(row)
    ]
    earlier = earlier[1 - REPEATED :]
    if len(earlier) < REPEATED - 1:
        return None
    places = results.unmeasured_at(connection, [row.id for row in earlier])
    keys = set(failures)
    for row in earlier:
        if not row.total:
            continue
        canaries = _canaries_of(connection, row)
        keys &= {canaries[place].key for place in places.get(row.id, ((), ()))[0] if place < len(canaries)}
    if not keys:
        return None
    named = [key for key in failures if key in keys]
    failure = summarize_failures([failures[key] for key in named], len(named))
    return RepeatedFailures(keys=named, since_run=earlier[0].id, failure=failure)


def _canaries_of(connection: Connection, row: RunRow) -> Sequence[Canary]:
    """Return the canaries of a run; () of a suite that this release cannot read."""
    with suppress(UnusableSuiteError):
        return load_suite(connection, row.suite_version_id).canaries if row.suite_version_id is not None else ()
    return ()


def _with_repeated(connection: Connection, check_id: int, facts: Facts, rules: Sequence[Rule]) -> Facts:
    """Add the canaries that were not measured in several runs in a row, where a rule is about them."""
    window = max((window_length(rule) for rule in rules if rule.kind is RuleKind.PROBE_ERRORS), default=0)
    found = dict(facts.run_facts)
    for row in facts.runs[-window:] if window else ():
        if not row.failed or row.verdict == Verdict.UNKNOWN:
            continue
        _, failures = results.probes_of(connection, row.id)
        canaries = _canaries_of(connection, row)
        by_key = {canaries[place].key: one for place, one in sorted(failures.items()) if place < len(canaries)}
        if (repeated := repeated_failures(connection, check_id, row.id, by_key)) is not None:
            found[row.id] = replace(found.get(row.id, NO_FACTS), repeated=repeated)
    return Facts(runs=facts.runs, run_facts=found)


def first_bad_run(connection: Connection, check_id: int, rule: Rule, run_id: int) -> int:
    """Id of the first of the bad runs in a row that lead to this one, even from before the rule existed.

    At most `_MAX_RUNS` runs are read: where none of them is good, it is the oldest of them.
    """
    compared_since = _compared_since(connection, check_id, [rule])
    limit = _FIRST_LIMIT
    while True:
        rows = results.ended_runs(connection, check_id, before=run_id, limit=limit)
        earlier = Facts(runs=rows, run_facts=_read_facts(connection, [rule], rows, compared_since))
        first, is_start = find_first_bad_run(earlier.of(rule), run_id)
        if is_start or len(rows) < limit or limit >= _MAX_RUNS:
            return first
        limit = min(4 * limit, _MAX_RUNS)


def usual_latency(connection: Connection, check_id: int, percentile: Percentile, run_id: int) -> float | None:
    """Median of a percentile of latency, in seconds, over the 20 ended runs before one; None = none was measured."""
    rows = results.ended_runs(connection, check_id, before=run_id, limit=_USUAL_RUNS)
    latencies = run_latencies(connection, [row for row in rows if row.verdict != Verdict.UNKNOWN])
    values = [value for one in latencies.values() if (value := one[percentile]) is not None]
    return float(np.median(values)) if values else None


def _with_failure(connection: Connection, facts: Facts) -> Facts:
    """Add why most probes of the newest run failed, the only run whose failures are reported."""
    newest = facts.newest
    if newest is None or not newest.failed:
        return facts
    _, failures = results.probes_of(connection, newest.id)
    failure = summarize_failures(failures.values(), newest.total or len(failures))
    found = replace(facts.run_facts.get(newest.id, NO_FACTS), failure=failure)
    return Facts(runs=facts.runs, run_facts={**facts.run_facts, newest.id: found})


def _is_void(row: RunRow) -> bool:
    """Whether a run was cancelled before its start: it is no failure, so no rule counts it."""
    return row.status == RunStatus.FAILED and any(reason.endswith(NOT_CARRIED_OUT) for reason in row.reasons)


def _needs_older_runs(facts: Facts, rule: Rule, unresolved: Collection[str]) -> bool:
    """Whether a rule depends on older runs: without an alert, and unmeasured on the newest run, it opens none."""
    window = facts.of(rule)
    return bool(window) and (rule.key in unresolved or window[-1].condition.measured)


def _is_enough(facts: Facts, rule: Rule, compared_since: int) -> bool:
    """Whether a rule was measured on enough of these runs, or cannot have been on older ones."""
    if rule.kind is RuleKind.DROP and facts.runs[0].id <= compared_since:
        return True
    return sum(one.condition.measured for one in facts.of(rule)) >= window_length(rule)


def _compared_since(connection: Connection, check_id: int, rules: Sequence[Rule]) -> int:
    """Id of the newest run before the baseline was last chosen; runs up to it were compared with another one."""
    is_used = has_kind(rules, RuleKind.DROP, RuleKind.GUARD, RuleKind.SLOWER)
    choice = detectors.newest_choice(connection, check_id) if is_used else None
    return 0 if choice is None else choice.after_run


def detector_facts(row: DetectionRow, *, before: bool = False) -> RunFacts:
    """Facts of a run from its detection; `before` = another baseline was chosen since."""
    drops, p = row.body.get("drops", {}), row.body.get("drop_p", {})
    first = baselines.first_run_of(row.body)
    over = before or (first is None and row.baseline_id is not None)
    return RunFacts(
        alarm=_alarm(row),
        drops={key: _OTHER_BASELINE if before else drop_from_json(one, p.get(key)) for key, one in drops.items()},
        warm_up=WarmUp(over=True) if over else None if first is None else WarmUp(over=False, first=first),
        baseline_latency=_OTHER_BASELINE if before else baseline_latency(row),
    )


def baseline_latency(row: DetectionRow) -> float | str:
    """Median latency that a run is compared with, in seconds, or why it is unknown, without a full stop."""
    if row.baseline_latency is not None:
        return row.baseline_latency
    if row.baseline_id is not None:
        return "the latencies of the baseline are not known; they are once it is learned again"
    return row.body.get("warming", "no baseline yet").partition("; ")[0]


def _read_facts(
    connection: Connection, rules: Sequence[Rule], rows: Sequence[RunRow], compared_since: int
) -> dict[int, RunFacts]:
    """Facts that the rules use, of those of these runs that have a verdict."""
    runs = [row for row in rows if row.verdict != Verdict.UNKNOWN]
    detections: dict[int, DetectionRow] = {}
    if has_kind(rules, RuleKind.REGRESSION, RuleKind.DROP, RuleKind.GUARD, RuleKind.SLOWER):
        detections = detectors.detections_of(connection, [run.id for run in runs])
    canaries = _canaries(connection, named_canaries(rules), runs)
    latencies = run_latencies(connection, runs) if watches_latency(rules) else {}
    return {
        run.id: replace(
            detector_facts(row, before=run.id <= compared_since) if (row := detections.get(run.id)) else NO_FACTS,
            latencies=latencies.get(run.id, {}),
            canaries=canaries.get(run.id, {}),
        )
        for run in runs
    }


def _alarm(detection: DetectionRow) -> Alarm:
    body = detection.body
    severity = body.get("severity")
    return Alarm(
        open=detection.open,
        good=not detection.open or bool(body.get("good")),
        severity=Severity.CRITICAL if severity is None else Severity(severity),
        evidence=detection.evidence,
        since_run=detection.since_run,
        reason=str(body.get("reason", "")).rstrip("."),
        undecided_reason=_undecided_reason(detection),
    )


def _undecided_reason(detection: DetectionRow) -> str:
    """Why a run cannot be judged for a regression: the detector restarted, and no alarm of its own is open or ends.

    A restart by people resolved the open alert; where the check measures otherwise now, an alert may still be open.
    """
    anew = detection.body.get("anew")
    if not anew or detection.open or detection.body.get("change") == Change.CLOSED:
        return ""
    return f"{anew}, so a regression cannot be judged as over; accept the present as normal once it is"


def _canaries(
    connection: Connection, keys: Collection[str], runs: Sequence[RunRow]
) -> dict[int, dict[str, Sequence[Reason] | None]]:
    """Reasons of the named canaries by run id; those a run did not probe are left out.

    The number of queries does not depend on the number of runs: it is read in the transaction that ends a run.
    """
    of_suites = [(run, run.suite_version_id) for run in runs if run.suite_version_id is not None] if keys else []
    if not of_suites:
        return {}
    places = catalog.places_of(connection, {version for _, version in of_suites}, keys)
    unmeasured = results.unmeasured_at(connection, [run.id for run, _ in of_suites])
    canary_ids = {run.id: [canary_id for _, canary_id in places[version].values()] for run, version in of_suites}
    bits = pruning.reasons_at(connection, canary_ids)
    return {
        run.id: {
            key: None
            if place in failed or canary_id not in bits[run.id]
            else known_reasons(bits[run.id][canary_id], unscored=place in unscored)
            for key, (place, canary_id) in places[version].items()
        }
        for run, version in of_suites
        for failed, unscored in [unmeasured.get(run.id, ((), ()))]
    }


def with_confirmed(connection: Connection, check: CheckDocument, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules of a check, those on a measure marked that people confirmed of its judge."""
    if not any(rule.measure in JUDGED for rule in rules):
        return tuple(rules)
    confirmed = confirmed_measures(connection, check.judge)
    return tuple(replace(rule, confirmed=rule.measure in confirmed) for rule in rules)
