"""What rules look at: the newest ended runs of a check, each judged by a rule as the rule is now.

How many bad ones open an alert is decided in the domain, by alerting.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from app.domain.aggregates import Aggregates
from app.domain.alerts.alert_state import Observation, window_length
from app.domain.alerts.alert_state import fault_began as fault_began_in
from app.domain.alerts.guard import WarmUp
from app.domain.alerts.rule_facts import NO_FACTS, Alarm, RunFacts, asks_about, named_canaries
from app.domain.alerts.rules import condition
from app.domain.comparison.significance import Difference
from app.domain.detection import Change
from app.domain.model import Percentile, Reason, Rule, RuleKind, RunStatus, Severity, Verdict
from app.domain.probing.latency_summary import latency_summary
from app.domain.probing.probe_failures import summarize_failures
from app.domain.runs.drops import drop_from_json
from app.domain.runs.run_responses import measured_latencies
from app.domain.runs.tally import known_reasons
from app.domain.runs.verdicts import NOT_CARRIED_OUT
from app.services.aggregates import stored_aggregates
from app.services.detection import detector_reports
from app.store.catalog import suites
from app.store.detection import detectors
from app.store.detection.detectors import DetectionRow
from app.store.engine import Connection, from_us
from app.store.history import degraded_at_run
from app.store.runs import results
from app.store.runs.results import RunRow

_FURTHEST_BACK = 2_000
_SILENT_BACK = 200
_FIRST_LOOK = 8
_USUAL_RUNS = 20
_OTHER_BASELINE = "the run was compared with a baseline that is no longer in force"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The newest ended runs of a check, oldest first: as many as every rule needs."""

    runs: Sequence[RunRow]
    known: Mapping[int, RunFacts]
    """By run id, what the rules look at beside the aggregates; of unknown runs they say nothing."""
    _judged: dict[str, list[Observation]] = field(default_factory=dict, compare=False, repr=False)
    """By the key of a rule: each is asked about several times."""
    _aggregates: dict[int, Aggregates] = field(default_factory=dict, compare=False, repr=False)
    """By run id: every rule looks at the same."""

    @property
    def newest(self) -> RunRow | None:
        """The run that ended last."""
        return self.runs[-1] if self.runs else None

    def of(self, rule: Rule) -> list[Observation]:
        """Judge the runs by a rule, oldest first. Raises ValueError for `no_data`, which is not judged by runs."""
        judged = self._judged.get(rule.key)
        if judged is None:
            judged = self._judged[rule.key] = self._judge(rule)
        return judged

    def _judge(self, rule: Rule) -> list[Observation]:
        return [
            Observation(
                run_id=row.id,
                at=from_us(row.finished_at or row.created_at),
                condition=condition(
                    rule,
                    self._aggregates_of(row),
                    unknown=row.verdict == Verdict.UNKNOWN,
                    facts=self.known.get(row.id, NO_FACTS),
                ),
            )
            for row in self.runs
            if not _is_void(row)
        ]

    def _aggregates_of(self, row: RunRow) -> Aggregates:
        found = self._aggregates.get(row.id)
        if found is None:
            found = self._aggregates[row.id] = stored_aggregates(row)
        return found


def gather(connection: Connection, check_id: int, rules: Sequence[Rule], *, unresolved: Collection[str] = ()) -> Facts:
    """Read as many of the newest ended runs as every rule needs to see `window_length` of those it measured.

    `unresolved`: the keys of the rules with an alert, pending ones included. A rule may be silent on runs whose verdict
    is known (its canary was not measured): for those with an alert, and those that measured the newest run, the only
    ones to whom older runs matter, up to `_SILENT_BACK` runs are read; what lies before these counts as never measured.
    """
    judged = [rule for rule in rules if rule.kind is not RuleKind.NO_DATA]
    needed = max((window_length(rule) for rule in judged), default=1)
    rows, limit = results.ended_runs(connection, check_id, limit=needed), needed
    while len(rows) == limit < _FURTHEST_BACK and _count_known(rows) < needed:
        limit *= 4
        rows = results.ended_runs(connection, check_id, limit=limit)
    compared_since = _compared_since(connection, check_id, judged)
    seen = Facts(runs=rows, known=_stored(connection, judged, rows, compared_since))
    seen = _with_failure(connection, seen)
    short = [rule for rule in judged if _matters(seen, rule, unresolved)]
    while short := [rule for rule in short if not _is_enough(seen, rule, compared_since)]:
        limit = min(4 * len(seen.runs), _SILENT_BACK)
        rows = results.ended_runs(connection, check_id, limit=limit)
        if len(rows) <= len(seen.runs):
            break
        older = _stored(connection, short, rows[: -len(seen.runs)], compared_since)
        seen = Facts(runs=rows, known={**older, **seen.known})
    return seen


def fault_began(connection: Connection, check_id: int, rule: Rule, run_id: int) -> int:
    """Give the first of the bad runs in a row that lead to a bad one, also where the rule is younger than the fault.

    At most `_FURTHEST_BACK` runs are read: where none of them is good, it is the oldest of them.
    """
    compared_since = _compared_since(connection, check_id, [rule])
    limit = _FIRST_LOOK
    while True:
        rows = results.ended_runs(connection, check_id, before=run_id, limit=limit)
        earlier = Facts(runs=rows, known=_stored(connection, [rule], rows, compared_since))
        began, known = fault_began_in(earlier.of(rule), run_id)
        if known or len(rows) < limit or limit >= _FURTHEST_BACK:
            return began
        limit = min(4 * limit, _FURTHEST_BACK)


def usual_latency(connection: Connection, check_id: int, percentile: Percentile, run_id: int) -> float | None:
    """Median of a percentile of latency, in seconds, over the 20 ended runs before one; None = none was measured."""
    rows = results.ended_runs(connection, check_id, before=run_id, limit=_USUAL_RUNS)
    probes = results.probes_of_runs(connection, [row.id for row in rows if row.verdict != Verdict.UNKNOWN])
    found = [_latencies(*one)[percentile] for one in probes.values()]
    known = [value for value in found if value is not None]
    return float(np.median(known)) if known else None


def _with_failure(connection: Connection, seen: Facts) -> Facts:
    """Add why most probes of the newest run failed: only of that one people are told."""
    newest = seen.newest
    if newest is None or not newest.failed:
        return seen
    _, failures = results.probes_of(connection, newest.id)
    failure = summarize_failures(failures.values(), newest.total or len(failures))
    facts = replace(seen.known.get(newest.id, NO_FACTS), failure=failure)
    return Facts(runs=seen.runs, known={**seen.known, newest.id: facts})


def _is_void(row: RunRow) -> bool:
    """Whether nobody wanted a run any more when it was its turn: no failure of anybody, so no rule counts it."""
    return row.status == RunStatus.FAILED and any(reason.endswith(NOT_CARRIED_OUT) for reason in row.reasons)


def _count_known(rows: Iterable[RunRow]) -> int:
    return sum(row.verdict != Verdict.UNKNOWN for row in rows)


def _matters(seen: Facts, rule: Rule, unresolved: Collection[str]) -> bool:
    """Whether older runs matter to a rule: without an alert, and silent on the newest run, it opens none."""
    window = seen.of(rule)
    return bool(window) and (rule.key in unresolved or window[-1].condition.measured)


def _is_enough(seen: Facts, rule: Rule, compared_since: int) -> bool:
    """Whether a rule measured as many of these runs as it takes, or cannot have measured older ones."""
    if rule.kind is RuleKind.DROP and seen.runs[0].id <= compared_since:
        return True
    return sum(one.condition.measured for one in seen.of(rule)) >= window_length(rule)


def _compared_since(connection: Connection, check_id: int, rules: Sequence[Rule]) -> int:
    """Give the newest run before somebody chose what the check is compared with; runs up to it meant something else."""
    asked = asks_about(rules, RuleKind.DROP, RuleKind.GUARD)
    choice = detectors.newest_choice(connection, check_id) if asked else None
    return 0 if choice is None else choice.after_run


def detector_facts(row: DetectionRow | None) -> RunFacts:
    """Return what rules look at of what a detector made of a run that is about to end; None = none looked at it."""
    return NO_FACTS if row is None else RunFacts(alarm=_alarm(row), drops=_drops(row), warm_up=_warm_up(row))


def _stored(
    connection: Connection, rules: Sequence[Rule], rows: Sequence[RunRow], compared_since: int
) -> dict[int, RunFacts]:
    """Read what the rules look at on those of these runs whose verdict is known, and nothing else."""
    runs = [row for row in rows if row.verdict != Verdict.UNKNOWN]
    seen: dict[int, DetectionRow] = {}
    if asks_about(rules, RuleKind.REGRESSION, RuleKind.DROP, RuleKind.GUARD):
        seen = detectors.detections_of(connection, [run.id for run in runs])
    canaries = _canaries(connection, named_canaries(rules), runs)
    timed = results.probes_of_runs(connection, [run.id for run in runs] if asks_about(rules, RuleKind.LATENCY) else [])
    return {
        run.id: RunFacts(
            alarm=_alarm(seen[run.id]) if run.id in seen else None,
            drops=_drops(seen[run.id], before=run.id <= compared_since) if run.id in seen else {},
            warm_up=_warm_up(seen[run.id], before=run.id <= compared_since) if run.id in seen else None,
            latencies=_latencies(*timed[run.id]) if run.id in timed else {},
            canaries=canaries.get(run.id, {}),
        )
        for run in runs
    }


def _alarm(seen: DetectionRow) -> Alarm:
    told = seen.body
    severity = told.get("severity")
    return Alarm(
        open=seen.open,
        good=not seen.open or bool(told.get("good")),
        severity=Severity.CRITICAL if severity is None else Severity(severity),
        evidence=seen.evidence,
        since_run=seen.since_run,
        reason=str(told.get("reason", "")).rstrip("."),
        untold=_untold(seen),
    )


def _untold(seen: DetectionRow) -> str:
    """Say why a run tells nothing of a regression: the detector began anew, and no alarm of its own stands or ends.

    Where people began it anew they resolved what stood; where the check measures otherwise an alert may still stand.
    """
    anew = seen.body.get("anew")
    if not anew or seen.open or seen.body.get("change") == Change.CLOSED:
        return ""
    return f"{anew}, so nobody can tell whether a regression is over; accept the present as normal once it is"


def _drops(seen: DetectionRow, *, before: bool = False) -> dict[str, Difference | str]:
    """Read how a run differs from the baseline; `before` = people have chosen another one since."""
    found = seen.body.get("drops", {})
    return {key: _OTHER_BASELINE if before else drop_from_json(one) for key, one in found.items()}


def _warm_up(seen: DetectionRow, *, before: bool = False) -> WarmUp | None:
    """How far the detector was at a run; `before` = people have chosen another baseline since."""
    first = detector_reports.first_run_of(seen.body)
    if before or (first is None and seen.baseline_id is not None):
        return WarmUp(over=True)
    return None if first is None else WarmUp(over=False, first=first)


def _latencies(latencies: NDArray[np.float16], failures: Collection[int]) -> dict[str, float | None]:
    return latency_summary(measured_latencies(latencies, failures))


def _canaries(
    connection: Connection, keys: Collection[str], runs: Sequence[RunRow]
) -> dict[int, dict[str, Sequence[Reason] | None]]:
    """Read by run id what the named canaries were; those a run did not ask are left out.

    However many runs there are, it takes the same few statements: it is read in the transaction that ends a run.
    """
    of_suites = [(run, run.suite_version_id) for run in runs if run.suite_version_id is not None] if keys else []
    if not of_suites:
        return {}
    places = suites.places_of(connection, {version for _, version in of_suites}, keys)
    unmeasured = results.unmeasured_at(connection, [run.id for run, _ in of_suites])
    asked = {run.id: [canary_id for _, canary_id in places[version].values()] for run, version in of_suites}
    bits = degraded_at_run.reasons_at(connection, asked)
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
