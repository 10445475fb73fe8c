"""Evidence of a transition: which canaries changed, which are newly named, and which retriever is slow or fails."""

from collections.abc import Sequence

from app.alerts.domain.alert_state import OPEN
from app.alerts.domain.evidence import ListedCanaries, StoredEvidence
from app.alerts.domain.incidents import NON_REPEATING
from app.alerts.domain.summary import NOT_ABOUT_CANARIES
from app.alerts.service import rule_facts
from app.alerts.service.changed_canaries import changed_keys
from app.alerts.service.changed_list import list_changed
from app.alerts.store import alerts
from app.alerts.store.alerts import AlertRow
from app.base.counts import counted
from app.base.db.engine import Connection
from app.base.values import Percentile, Rule, RuleKind
from app.catalog.domain.judgment_sources import labelled, recall_label
from app.catalog.service.judgment_sources import is_self_judged
from app.catalog.service.suite_snapshots import load_suite
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.detection.service.detector_reports import CULPRITS
from app.detection.store import detectors
from app.records.store import results
from app.records.store.results import RunRow
from app.retrievers.domain.probe_failures import url_address

_NAMED = 5


class TransitionEvidence:
    """Evidence of the transitions of one check at one run; each list of canaries is read once."""

    def __init__(self, connection: Connection, check: Definition, run_id: int | None) -> None:
        self._connection = connection
        self._check = check
        self._run_id = run_id
        self._lists: dict[tuple[int | None, str | None, str | None], ListedCanaries] = {}

    def build(self, kind: RuleKind, scope: str, first_run: int | None, evaluated: StoredEvidence) -> StoredEvidence:
        """Evidence of a transition: what the rule evaluated, the changed canaries, and the retriever at fault."""
        evidence: StoredEvidence = {**evaluated, **self._canaries(kind, scope, first_run, evaluated)}
        if recall_label(evaluated.get("measure") or "", self_judged=True) and self._is_self_judged():
            evidence["self_judged"] = True
        if kind is RuleKind.LATENCY:
            percentile = Percentile(evaluated.get("percentile") or Percentile.P95)
            evidence["usual"] = (
                None
                if first_run is None
                else rule_facts.usual_latency(self._connection, self._check.id, percentile, first_run)
            )
            evidence["retriever"] = self._slow_retriever()
        elif kind is RuleKind.SLOWER:
            evidence["retriever"] = self._slow_retriever()
        elif kind is RuleKind.PROBE_ERRORS:
            evidence["retriever"] = self._check.body["retriever"]
        return evidence

    def awaited(self, rule: Rule, opening_run: int | None, run: RunRow | None) -> list[str]:
        """Keys of the canaries that a run has to measure before the alert of a rule may resolve; () = it has."""
        watches = rule.kind in {RuleKind.THRESHOLD, RuleKind.DROP, RuleKind.GUARD, RuleKind.REGRESSION}
        if run is None or not watches or not run.failed:
            return []
        return self.unmeasured_since(opening_run, run, rule.category)

    def unmeasured_since(self, opening_run: int | None, run: RunRow, category: str | None) -> list[str]:
        """Keys of the canaries, of a category if given, that the opening run degraded and `run` did not measure.

        Canaries that left the suite are not among them.
        """
        opened = results.find_run(self._connection, opening_run) if opening_run is not None else None
        if opened is None or opened.suite_version_id is None or run.suite_version_id is None:
            return []
        then, now = (
            load_suite(self._connection, version) for version in (opened.suite_version_id, run.suite_version_id)
        )
        degraded = {then.canaries[place].key for place in opened.degraded_places}
        failed, _ = results.unmeasured_at(self._connection, [run.id]).get(run.id, ((), ()))
        unmeasured = [now.canaries[place] for place in sorted(failed)]
        return [one.key for one in unmeasured if one.key in degraded and category in {None, one.category}]

    def culprits(self) -> list[str]:
        """Keys of the canaries the detector names on this run."""
        return detectors.culprits_of(self._connection, self._run_id) if self._run_id is not None else []

    def named_so_far(self, alert: AlertRow | None) -> set[str]:
        """Keys of all canaries that the transitions of an open alert name as culprits; empty where none does."""
        if alert is None or alert.state not in OPEN:
            return set()
        rows = alerts.list_transitions(self._connection, [alert.id])[alert.id]
        return {key for row in rows for key in row.evidence.get("culprits", ())}

    def new_culprits(self, alert: AlertRow | None, culprits: Sequence[str]) -> list[str]:
        """Culprits that no transition of an open alert named or counted as changed.

        None where the last of them named as many as are stored: beyond that the strongest differ from run to run.
        """
        if alert is None or alert.state not in OPEN or not culprits:
            return []
        before = [
            row
            for row in alerts.list_transitions(self._connection, [alert.id])[alert.id]
            if row.type in NON_REPEATING and "culprits" in row.evidence
        ]
        if not before or len(before[-1].evidence["culprits"]) >= CULPRITS:
            return []
        named = {key for row in before for key in row.evidence["culprits"]}
        if named.issuperset(culprits):
            return []
        runs = [(row.run_id, alert.first_run) for row in before if row.run_id is not None]
        named |= changed_keys(self._connection, runs)
        return [key for key in culprits if key not in named]

    def _canaries(self, kind: RuleKind, scope: str, first_run: int | None, evaluated: StoredEvidence) -> ListedCanaries:
        if self._run_id is None or kind in NOT_ABOUT_CANARIES:
            return {"canaries": []}
        key = (first_run, evaluated.get("category"), scope if kind is RuleKind.CANARY else None)
        if key not in self._lists:
            _, category, canary = key
            self._lists[key] = list_changed(self._connection, self._run_id, first_run, category=category, canary=canary)
        return self._lists[key]

    def _is_self_judged(self) -> bool:
        """Whether the recall of the run is over judgments of the retriever's own first hits alone."""
        run = results.find_runs(self._connection, {self._run_id}).get(self._run_id) if self._run_id else None
        if run is None or run.suite_version_id is None:
            return False
        sources, body = load_suite(self._connection, run.suite_version_id).judgment_sources, self._check.body
        return is_self_judged(self._connection, sources, body["retriever"], depth=body["fetch_k"])

    def _slow_retriever(self) -> str:
        """Name of the retriever, with its address where it is known."""
        slug = self._check.body["retriever"]
        retriever = definitions.find_definition(self._connection, "retriever", slug)
        address = None if retriever is None else url_address(retriever.body["url"], retriever.body.get("options") or {})
        return f"{slug} at {address}" if address else slug


def with_label(reason: str, evidence: StoredEvidence) -> str:
    """Return the sentence of a rule with the label beside recall that is self-judged."""
    measure = evidence.get("measure")
    if not measure or not evidence.get("self_judged"):
        return reason
    return reason.replace(measure, labelled(measure, self_judged=True), 1)


def culprits_text(keys: Sequence[str]) -> str:
    """Sentence on the canaries that are named now, the first of them by key."""
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return f"{counted(len(keys), 'further canary')} named: {', '.join(keys[:_NAMED])}{more}"
