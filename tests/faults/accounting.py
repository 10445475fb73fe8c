"""What became of a trial, counted from the rows and from what the retriever and the receiver logged.

Nothing here knows how work is claimed or resumed: only what came out of it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from app.alerts.tables import alerts, incidents, transitions
from app.catalog.tables import definitions
from app.hooks.tables import deliveries
from tests.faults.bench import RULE_KEY, Bench, Service

_PAGE = 500


@dataclass(frozen=True, kw_only=True)
class Account:
    """The figures of a trial. Those named in `MUST_BE_ZERO` say that something went wrong."""

    faults: int = 0
    """How often the fault was tried."""
    runs: int = 0
    partial: int = 0
    """Runs that ended early, as they do when their answers lie too far apart or the retriever is dead."""
    failed: int = 0
    results: int = 0
    lost: int = 0
    """Results of finished runs that are not there, or were never asked for."""
    doubled: int = 0
    """Results that are there twice, or hold an answer that is another's or nobody's."""
    unfinished: int = 0
    """Runs that were never finalised."""
    finalised_again: int = 0
    alerts: int = 0
    """Alerts opened by the rule of the trial; the coverage of the runs says how many there have to be."""
    alerts_missing: int = 0
    """Openings and resolves that there should have been."""
    alerts_again: int = 0
    """Openings and resolves that there should not have been."""
    other_alerts: int = 0
    """Alerts about missing data and failed probes."""
    deliveries: int = 0
    never_delivered: int = 0
    out_of_order: int = 0
    changed_bodies: int = 0
    """Deliveries sent again with another body under the same id."""
    sent_again: int = 0
    """Requests to the receiver beyond one for each delivery."""
    probes_repeated: int = 0
    """Requests that the retriever got beyond the first of each run and query."""
    probes: int = 0
    recovery_seconds: Sequence[float] = field(default=())
    """From the end of each fault until all runs open then had ended."""

    MUST_BE_ZERO = (
        "failed",
        "lost",
        "doubled",
        "unfinished",
        "finalised_again",
        "alerts_missing",
        "alerts_again",
        "never_delivered",
        "out_of_order",
        "changed_bodies",
    )

    def __add__(self, other: "Account") -> "Account":
        """Add the figures of another trial of the same fault."""
        merged: dict[str, Any] = {}
        for item in fields(self):
            one, two = getattr(self, item.name), getattr(other, item.name)
            merged[item.name] = (*one, *two) if item.name == "recovery_seconds" else one + two
        return Account(**merged)

    @property
    def wrong(self) -> dict[str, int]:
        """Return what should be zero and is not."""
        return {name: getattr(self, name) for name in self.MUST_BE_ZERO if getattr(self, name)}


def take_account(bench: Bench, service: Service, until: int, *, faults: int, recovery: Iterable[float] = ()) -> Account:
    """Count what became of all runs up to this one, after `settle`."""
    shown = [run for slug in bench.load.slugs for run in _runs(service, slug) if int(run["id"]) <= until]
    figures: Counter[str] = Counter(faults=faults, runs=len(shown))
    figures["partial"] = sum(run["status"] == "partial" for run in shown)
    figures["failed"] = sum(run["status"] == "failed" for run in shown)
    figures["unfinished"] = len(bench.open_runs(until))
    figures["finalised_again"] = _finalised_again(bench, until)
    _count_results(bench, service, shown, figures)
    _count_alerts(bench, shown, until, figures)
    _count_deliveries(bench, until, figures)
    return Account(**figures, recovery_seconds=tuple(recovery))


def _runs(service: Service, slug: str) -> list[dict[str, Any]]:
    """List the runs of a check, the oldest first."""
    found: list[dict[str, Any]] = []
    parameters: dict[str, Any] = {"limit": _PAGE}
    while True:
        page = service.get(f"/v1/checks/{slug}/runs", **parameters)
        found += page["items"]
        if page["next"] is None:
            return found[::-1]
        parameters["before"] = page["next"]


def _finalised_again(bench: Bench, until: int) -> int:
    with bench.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT run_id FROM fault_endings").scalars()
        times = Counter(run for run in rows if run <= until)
    return sum(count - 1 for count in times.values())


def _count_results(bench: Bench, service: Service, shown: Sequence[Mapping[str, Any]], figures: Counter[str]) -> None:
    """Trace each result to the one answer it came from."""
    asked = [line for line in bench.retriever.lines() if line["path"] == "/search"]
    answers = {f"serial-{line['serial']}": line for line in asked}
    used: set[str] = set()
    ended = {run["id"]: run for run in shown if run["status"] in ("finished", "partial")}
    probes = [line for line in asked if line["run"] in ended]
    figures["probes"] = len(probes)
    for run_id, run in ended.items():
        results = _results(service, run_id)
        figures["results"] += len(results)
        keys = Counter(result["key"] for result in results)
        figures["doubled"] += sum(count - 1 for count in keys.values())
        figures["lost"] += bench.load.canaries - len(keys)
        skipped = sum(result["outcome"] == "skipped" for result in results)
        figures["lost"] += skipped if run["status"] == "finished" else 0
        for result in results:
            if result["outcome"] != "ok":
                continue
            serial = next((hit["id"] for hit in result["ranking"] if hit["id"].startswith("serial-")), "")
            line = answers.get(serial)
            is_its_own = line is not None and (line["run"], line["query"]) == (run_id, result["query"])
            if not is_its_own or serial in used:
                figures["doubled"] += 1
            used.add(serial)
    figures["probes_repeated"] = len(probes) - len({(line["run"], line["query"]) for line in probes})


def _results(service: Service, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    parameters: dict[str, Any] = {"limit": _PAGE}
    while True:
        page = service.get(f"/v1/runs/{run_id}/results", **parameters)
        found += page["items"]
        if page["next"] is None:
            return found
        parameters["after"] = page["next"]


def _count_alerts(bench: Bench, shown: Sequence[Mapping[str, Any]], until: int, figures: Counter[str]) -> None:
    """Hold the transitions against those that the coverage of the runs asks for, one after another."""
    joined = transitions.join(alerts, alerts.c.id == transitions.c.alert_id).join(
        definitions, definitions.c.id == alerts.c.check_id
    )
    columns = (definitions.c.slug, alerts.c.rule_key, transitions.c.type, transitions.c.run_id)
    with bench.engine.connect() as connection:
        rows = connection.execute(sa.select(*columns).select_from(joined).order_by(transitions.c.id)).all()
    came: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
    for row in rows:
        if row.rule_key != RULE_KEY:
            figures["other_alerts"] += row.type == "opened"
        elif row.type in ("opened", "resolved") and row.run_id <= until:
            came[row.slug][row.type, row.run_id] += 1
    for slug in bench.load.slugs:
        expected = Counter(expected_transitions([run for run in shown if run["check"] == slug]))
        figures["alerts"] += sum(count for (kind, _), count in came[slug].items() if kind == "opened")
        figures["alerts_missing"] += (expected - came[slug]).total()
        figures["alerts_again"] += (came[slug] - expected).total()


def expected_transitions(shown: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, int]]:
    """Yield what the rule of the trial has to do over these runs of a check, with the run that has it done."""
    is_open = False
    for run in sorted(shown, key=lambda run: (run["finished_at"] or "", int(run["id"]))):
        if run["verdict"] in (None, "unknown") or run["coverage"] is None:
            continue
        is_bad = run["coverage"] < 0.5
        if is_bad != is_open:
            is_open = is_bad
            yield ("opened" if is_bad else "resolved"), int(run["id"])


def _count_deliveries(bench: Bench, until: int, figures: Counter[str]) -> None:
    """Hold what was to be sent against what arrived."""
    joined = (
        transitions.join(alerts, alerts.c.id == transitions.c.alert_id)
        .outerjoin(deliveries, deliveries.c.transition_id == transitions.c.id)
        .outerjoin(incidents, incidents.c.id == deliveries.c.incident_id)
    )
    columns = (transitions.c.alert_id, deliveries.c.message_id, deliveries.c.state, incidents.c.dedupe_key)
    wanted = sa.select(*columns).select_from(joined).order_by(transitions.c.id)
    wanted = wanted.where(alerts.c.rule_key == RULE_KEY, transitions.c.type.in_(("opened", "resolved")))
    wanted = wanted.where(transitions.c.run_id <= until, transitions.c.suppressed.is_(None))
    with bench.engine.connect() as connection:
        rows = connection.execute(wanted).all()
    got = [line for line in bench.receiver.lines() if line["path"] == "/hook"]
    taken = [line for line in got if 200 <= line["status"] < 300]
    first = {line["id"]: place for place, line in reversed(list(enumerate(taken)))}
    arrived: dict[str, list[int]] = defaultdict(list)
    cancelled = {row.alert_id for row in rows if row.state == "cancelled"}
    for row in rows:
        if row.alert_id in cancelled and row.state in (None, "cancelled"):
            continue  # it was over before the first attempt to tell it: neither end is told
        figures["deliveries"] += 1
        if row.state != "delivered" or row.message_id not in first:
            figures["never_delivered"] += 1
            continue
        arrived[row.dedupe_key].append(first[row.message_id])
    figures["out_of_order"] = sum(later < sooner for places in arrived.values() for sooner, later in pairwise(places))
    mine = {row.message_id for row in rows}
    bodies: dict[str, set[str]] = defaultdict(set)
    for line in got:
        bodies[line["id"]].add(str(line["body"]))
    figures["changed_bodies"] = sum(len(texts) > 1 for texts in bodies.values())
    figures["sent_again"] = sum(line["id"] in mine for line in taken) - len(mine & first.keys())
