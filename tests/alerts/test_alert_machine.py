"""The alert engine as a whole, driven at random over a real database: whatever happens, these things stay true.

A plain model beside it says which alert should be open; the receivers say what was heard, and in which order.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.alerts.service import notifications
from app.alerts.silences.documents import SilenceDocument
from app.alerts.tables import alerts, incidents, transitions
from app.base.db.engine import Store, from_us
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError
from app.base.values import Outcome
from app.catalog import store as catalog
from app.catalog.service import references
from app.definitions.service import definitions
from app.hooks.domain import Hook, Message, Receipt
from app.hooks.service import hooks as hook_views
from app.hooks.tables import deliveries
from app.runs.service import due_checks
from tests.conftest import Databases
from tests.support.fakes import DELIVERED, START, Crash, answered, hits
from tests.support.world import CHECK, COVERAGE, HOOK, World, canary, page

KEYS = ("ant", "bee", "cat", "dog")
HOOKS = ("ops", "chat")
MISSING = {"good": 0, "warning": 1, "critical": 3}
NEWS = {"opened", "escalated", "reminded"}
DAMAGE = {"kind": "threshold", "measure": "degraded_share", "warning": {"above": 0.2}}
RULES: dict[str, list[dict[str, Any]]] = {
    "both": [dict(COVERAGE), DAMAGE],
    "milder": [{**COVERAGE, "warning": {"below": 0.7}}],
    "gone": [DAMAGE],
}
BUSY = Receipt(ok=False, http_status=503, error="http_5xx")
GONE = Receipt(ok=False, http_status=410, error="gone", untaken=True, gone=True)
RECEIPTS = {"ok": DELIVERED, "busy": BUSY, "lost": BUSY, "gone": GONE}


@dataclass(kw_only=True)
class Receivers:
    """What stands behind the hooks: it takes messages or not, and answers or not; or our process dies on the way."""

    moods: dict[str, str] = field(default_factory=lambda: dict.fromkeys(HOOKS, "ok"))
    taken: list[tuple[str, Message]] = field(default_factory=list)

    def __call__(self, hook: Hook, message: Message, now: Any) -> Receipt:  # noqa: ARG002 - the protocol's
        """Take the message where the mood is for it: `lost` takes it and says it did not."""
        mood = self.moods[hook.slug]
        if mood == "dies-before":
            raise Crash
        if mood in {"ok", "lost", "dies-after"}:
            self.taken.append((hook.slug, message))
        if mood == "dies-after":
            raise Crash
        return RECEIPTS[mood]


@dataclass(kw_only=True)
class Model:
    """The coverage rule in plain words: two bad runs of the last three measured open it, two good ones close it."""

    coverage: list[float | None] = field(default_factory=list)
    severity: str | None = None
    since: int = 0
    """How many runs there were when it opened."""

    def after_run(self, rules: str, coverage: float | None) -> None:
        """Decide anew after a run."""
        self.coverage.append(coverage)
        if rules == "gone":
            self.severity = None
            return
        if coverage is None:
            return
        warning = 0.7 if rules == "milder" else 0.9
        last = [one for one in self.coverage if one is not None][-3:]
        bad, critical = sum(one < warning for one in last), sum(one < 0.5 for one in last)
        if self.severity is None and coverage < warning and bad >= 2:
            self.severity, self.since = "critical" if critical >= 2 else "warning", len(self.coverage)
        elif self.severity is not None and coverage < warning:
            self.severity = "critical" if critical >= 2 else self.severity
        elif self.severity is not None:
            after = [one for one in self.coverage[self.since :] if one is not None]
            if len(after) >= 2 and min(after[-2:]) >= warning:
                self.severity = None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The rows there are after a step, in their order."""

    alerts: Sequence[Any] = ()
    changes: Sequence[Any] = ()
    told: Sequence[Any] = ()
    incidents: Sequence[Any] = ()


class AlertMachine(RuleBasedStateMachine):
    """Does at random what happens to the alert engine, and looks after every step whether it kept its promises."""

    make_url: Callable[[], str]
    """Gives the URL of a fresh database; set by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(self.make_url())
        self.receivers = Receivers()
        self.world = World(store=self.store, send=self.receivers)  # type: ignore[arg-type] # a send as good as another
        self.model = Model()
        self.rule_set = "both"
        self.seen = Seen()
        self.newest_change = self.newest_told = 0
        """Of the step before."""
        self.silences: dict[str, tuple[datetime, dict[str, Any]]] = {}
        """Until when, and what about, by slug."""
        self.replays: list[tuple[int, frozenset[tuple[str, str]]]] = []
        """How much was taken when these dead messages, by hook, were told anew."""
        self.opened_to_nobody: set[int] = set()
        """Incidents of which there was news while every hook was disabled."""

    @initialize()
    def define(self) -> None:
        """Put the check in force."""
        self._apply()

    def teardown(self) -> None:
        """Let everything heal and drain, and look at what was heard in the end."""
        try:
            if self.world.clock() > START:
                self._drain()
                self._everything_was_heard()
        finally:
            self.store.close()

    # --- what happens ------------------------------------------------------------------------------------

    @rule(kinds=st.lists(st.sampled_from(["warning", "critical", "unknown", "good"]), min_size=1, max_size=3))
    def runs(self, kinds: list[str]) -> None:
        """Let the check run a few times."""
        for kind in kinds:
            self._run(kind)

    @rule(
        bad=st.sampled_from(["warning", "critical"]),
        heard=st.booleans(),
        waits=st.integers(0, 2),
        seen=st.booleans(),
        good=st.integers(0, 2),
    )
    def a_fault_comes_and_may_go(self, bad: str, waits: int, good: int, *, heard: bool, seen: bool) -> None:
        """Let the retriever be bad for two runs, perhaps for hours, and perhaps good again after."""
        for _ in range(2):
            self._run(bad)
        for number in range(waits):
            if heard:
                self.deliver(2)
            if seen and number:
                for which in range(2):  # there may be one of the degraded share beside it
                    self.acknowledge(which)
            self.time_passes(2_500)
        for _ in range(good):
            self._run("good")

    @rule(seconds=st.sampled_from([1, 45, 400, 4_000]))
    def time_passes(self, seconds: int) -> None:
        """Let time pass, and the clock tick."""
        self.world.clock.advance(seconds)
        self._tick()

    @rule(
        slug=st.sampled_from(["one", "two"]),
        minutes=st.sampled_from([2, 20, 200]),
        about=st.sampled_from([{"all": True}, {"severities": ["warning"]}, {"rules": ["threshold-coverage"]}, None]),
    )
    def silence(self, slug: str, minutes: int, about: dict[str, Any] | None) -> None:
        """Put a silence in force, or lift those there are."""
        if about is None:
            self._lift_silences()
            return
        ends = (self.world.clock() + timedelta(minutes=minutes)).isoformat()
        document = parse_document(SilenceDocument, {"slug": slug, "ends": ends, **about})
        definitions.put(self.store, self.world.vault, document, now=self.world.clock())
        self.silences[slug] = (datetime.fromisoformat(ends), about)

    @rule(number=st.integers(0, 2))
    def acknowledge(self, number: int) -> None:
        """Say of one of the newest alerts that somebody has seen it."""
        found = self.world.alerts()
        if found:
            alert = found[-1 - number % len(found)]
            is_open = alert["state"] in {"firing", "recovering"}
            try:
                notifications.acknowledge(self.store, int(alert["id"]), by="ada", note=None, now=self.world.clock())
            except ConflictError:
                assert not is_open
            else:
                assert is_open

    @rule(rules=st.sampled_from(sorted(RULES)))
    def edit_rules(self, rules: str) -> None:
        """Change the rules of the check."""
        self.rule_set = rules
        self._apply()
        if rules == "gone":
            self.model.severity = None
        assert self._open().get("threshold-coverage") == self.model.severity  # thresholds keep the open alert

    @rule(
        hook=st.sampled_from(HOOKS), mood=st.sampled_from(["ok", "busy", "lost", "gone", "dies-before", "dies-after"])
    )
    def receiver_changes(self, hook: str, mood: str) -> None:
        """Let a receiver be in another mood; where it is a good one, its hook is saved again, which enables it."""
        self.receivers.moods[hook] = mood
        if mood == "ok":
            self._apply()

    @rule(count=st.integers(1, 6))
    def deliver(self, count: int) -> None:
        """Attempt what is due, and survive dying at it."""
        for _ in range(count):
            try:
                if self.world.deliver() is None:
                    return
            except Crash:
                self.world.clock.advance(46)

    @rule(hook=st.sampled_from(HOOKS), number=st.none() | st.integers(0, 3))
    def replay(self, hook: str, number: int | None) -> None:
        """Have what is dead told anew: one of it, or all of a hook."""
        dead = [row for row in self._rows(deliveries) if row.state == "dead"]
        try:
            if number is None:
                hook_views.replay_all(self.store, hook, now=self.world.clock())
            elif dead:
                hook_views.replay(self.store, dead[number % len(dead)].id, now=self.world.clock())
        except ConflictError:
            pass
        left = {row.id for row in self._rows(deliveries) if row.state == "dead"}
        names = {row.id: row.slug for row in self._hooks()}
        again = frozenset((names[row.hook_id], row.message_id) for row in dead if row.id not in left)
        self.replays.append((len(self.receivers.taken), again))

    @rule()
    def restart(self) -> None:
        """Forget all that is in memory; what is in the database is all there is."""
        url = self.store.engine.url.render_as_string(hide_password=False)
        self.store.close()
        self.store = Store(url)
        self.world = World(store=self.store, clock=self.world.clock, send=self.world.send)

    # --- what stays true ---------------------------------------------------------------------------------

    @invariant()
    def promises_are_kept(self) -> None:
        """Read the rows once, and hold every promise against them."""
        self.seen = Seen(
            alerts=self._rows(alerts),
            changes=self._rows(transitions),
            told=self._rows(deliveries),
            incidents=self._rows(incidents),
        )
        self._one_open_alert_for_a_rule_and_scope()
        self._an_incident_is_open_while_one_of_its_alerts_is_and_as_grave()
        self._news_is_either_on_its_way_or_says_why_not()
        self._what_is_silenced_is_not_told_and_nothing_else_is_silenced()
        self._an_end_is_told_only_to_who_may_have_heard_the_beginning()
        self._every_hook_hears_of_an_alert_in_order_and_the_same_bytes_again()
        self.newest_change = max((row.id for row in self.seen.changes), default=0)
        self.newest_told = max((row.id for row in self.seen.told), default=0)

    def _one_open_alert_for_a_rule_and_scope(self) -> None:
        names = [(row.check_id, row.rule_key, row.scope) for row in self.seen.alerts if row.state != "resolved"]
        assert len(names) == len(set(names))
        for row in self.seen.alerts:
            if row.state in {"firing", "recovering"} and row.acknowledged_at is not None:
                mine = {one.id for one in self.seen.alerts if one.id == row.id or _together(one, row)}
                assert any(one.type == "acknowledged" and one.alert_id in mine for one in self.seen.changes)

    def _an_incident_is_open_while_one_of_its_alerts_is_and_as_grave(self) -> None:
        open_ = [(row.check_id, row.incident_class) for row in self.seen.incidents if row.resolved_at is None]
        assert len(open_) == len(set(open_))
        for row in self.seen.incidents:
            mine = [one for one in self.seen.alerts if one.incident_id == row.id]
            assert row.alert_id in {one.id for one in mine}
            assert (row.resolved_at is None) == any(one.state in {"firing", "recovering"} for one in mine)
            told = [one.type for one in self.seen.told if one.incident_id == row.id]
            assert len({one for one in told if one == "alert.opened"}) <= 1
            if "alert.escalated" in told:
                assert row.severity == "critical"
        for one in self.seen.alerts:
            if one.state == "firing" and one.incident_id is None:
                assert one.opened_at is not None

    def _news_is_either_on_its_way_or_says_why_not(self) -> None:
        written = defaultdict(set)
        for row in self.seen.told:
            written[row.transition_id].add(row.hook_id)
        reachable = {row.id for row in self._hooks() if row.disabled_reason is None}
        for row in self.seen.changes:
            if row.id <= self.newest_change:
                continue
            if row.type in NEWS and row.suppressed is None and not written[row.id]:
                assert not reachable
                self.opened_to_nobody |= {one.incident_id for one in self.seen.alerts if one.id == row.alert_id}
            if row.type in NEWS - {"reminded"} and row.suppressed is None:
                assert written[row.id] >= reachable
            assert row.suppressed is None or not written[row.id]
            assert row.suppressed in {None, "silenced", "incident_open", "recent_update"}
            assert row.suppressed != "silenced" or row.silence is not None

    def _what_is_silenced_is_not_told_and_nothing_else_is_silenced(self) -> None:
        rules = {row.id: row.rule_key for row in self.seen.alerts}
        changes = {row.id: row for row in self.seen.changes}
        for row in changes.values():
            if row.id > self.newest_change and row.type in NEWS:
                silenced = self._is_silenced(rules[row.alert_id], row.severity, row.at)
                assert silenced == (row.silence is not None)
        told = [row for row in self.seen.told if row.type != "alert.resolved"]
        for row in told:
            change = changes[row.transition_id]
            if row.id > self.newest_told:
                assert not self._is_silenced(rules[change.alert_id], change.severity, row.created_at)
            if change.type == "reminded":
                earlier = [one.created_at for one in told if one.incident_id == row.incident_id and one.id < row.id]
                others = [at for at in earlier if at != row.created_at]  # not those of the same reminder
                assert row.created_at - max(others) >= 3_600_000_000
                before = [
                    one.type for one in changes.values() if one.alert_id == change.alert_id and one.id < change.id
                ]
                assert before[-1] != "acknowledged"

    def _an_end_is_told_only_to_who_may_have_heard_the_beginning(self) -> None:
        begun: set[tuple[int, int]] = set()
        for row in self.seen.told:
            if row.type == "alert.resolved":
                assert (row.incident_id, row.hook_id) in begun
            elif row.attempts > 0 or row.body is not None:  # replayed: counted anew
                begun.add((row.incident_id, row.hook_id))

    def _every_hook_hears_of_an_alert_in_order_and_the_same_bytes_again(self) -> None:
        numbers = {row.message_id: (row.incident_id, row.id) for row in self.seen.told}
        newest: dict[tuple[str, int], int] = {}
        bodies: dict[tuple[str, str], bytes] = {}
        replays = list(self.replays)
        for place, (hook, message) in enumerate(self.receivers.taken):
            while replays and replays[0][0] <= place:
                for slug, name in replays.pop(0)[1]:  # from there on it is told anew
                    about = slug, numbers[name][0]
                    newest[about] = min(newest.get(about, 0), numbers[name][1])
            incident, number = numbers[message.id]
            assert number >= newest.get((hook, incident), 0)
            newest[hook, incident] = number
            assert bodies.setdefault((hook, message.id), message.body) == message.body
            assert json.loads(message.body)["data"]["incident_id"] == str(incident)

    # --- in the end --------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self.receivers.moods = dict.fromkeys(HOOKS, "ok")
        self.world.clock.advance(46)
        self._apply()
        self._lift_silences()
        self._tick()
        while any(row.state == "pending" for row in self._rows(deliveries)):
            self.world.deliver_all()
            self.world.clock.advance(3_600)

    def _everything_was_heard(self) -> None:
        taken = {(hook, message.id) for hook, message in self.receivers.taken}
        names = {row.id: row.slug for row in self._hooks()}
        faults = {row.id: row.dedupe_key for row in self._rows(incidents)}
        heard: set[tuple[int, int]] = set()
        dead: set[tuple[int, int]] = set()
        newest: dict[tuple[int, str], tuple[int, str]] = {}
        unwanted: set[tuple[int, str]] = set()
        for row in self._rows(deliveries):
            about = (row.incident_id, row.hook_id)
            if row.state == "delivered":
                assert (names[row.hook_id], row.message_id) in taken
                newest[row.hook_id, faults[row.incident_id]] = (row.incident_id, row.type)
                if row.type != "alert.resolved":
                    heard.add(about)
            elif row.state == "cancelled":
                assert row.attempts == 0
            else:  # the receiver said it was gone, or would not have it for a day
                assert row.state == "dead"
                dead.add(about)
                if row.type == "alert.resolved" and "gave up" in str(row.reason):
                    unwanted.add((row.hook_id, faults[row.incident_id]))
        rows = self._rows(incidents)
        resolved = {row.id for row in rows if row.resolved_at is not None}
        lasting = {about for about, (which, said) in newest.items() if said != "alert.resolved" and which in resolved}
        still = {row.dedupe_key for row in rows if row.resolved_at is None}
        assert {about for about in lasting if about[1] not in still} <= unwanted
        firing = {row.incident_id for row in self._rows(alerts) if row.state == "firing"}
        assert None not in firing
        assert firing <= {incident for incident, _ in heard | dead} | self.opened_to_nobody

    def _run(self, kind: str) -> None:
        self.world.probe.all_answer()
        if kind == "unknown":
            self.world.probe.all_fail(Outcome.UNREACHABLE)
        else:
            self.world.probe.answers = {key: answered(hits("noise")) for key in KEYS[: MISSING[kind]]}
        self.world.run()
        self.model.after_run(self.rule_set, None if kind == "unknown" else 1 - MISSING[kind] / len(KEYS))
        assert self._open().get("threshold-coverage") == self.model.severity  # silenced or not, heard or not

    def _lift_silences(self) -> None:
        for row in references.load_definitions(self.store, "silence"):
            definitions.archive(self.store, "silence", row.slug, now=self.world.clock())
        self.silences.clear()

    def _is_silenced(self, rule_key: str, severity: str, at: int) -> bool:
        return any(
            from_us(at) < until
            and severity in about.get("severities", [severity])
            and rule_key in about.get("rules", [rule_key])
            for until, about in self.silences.values()
        )

    def _tick(self) -> None:
        started_at = START - timedelta(hours=1)
        check = references.load_definition(self.store, "check", CHECK)
        due_checks.watch_for_no_data(self.store, check.id, started_at=started_at, now=self.world.clock())
        self.world.tick()

    def _apply(self) -> None:
        hooks = [{**HOOK, "slug": slug} for slug in HOOKS]
        wanted = page([canary(key) for key in KEYS], rules=RULES[self.rule_set], hooks=list(HOOKS), remind="1h")
        self.world.apply({**wanted, "hooks": hooks})

    def _open(self) -> dict[str, str]:
        return {row.rule_key: row.severity for row in self._rows(alerts) if row.state in {"firing", "recovering"}}

    def _rows(self, table: sa.Table) -> list[Any]:
        with self.store.read() as connection:
            return list(connection.execute(sa.select(table).order_by(table.c.id)))

    def _hooks(self) -> list[catalog.Definition]:
        return references.load_definitions(self.store, "hook")


def _together(one: Any, other: Any) -> bool:
    """Whether two alerts are of one incident."""
    return one.incident_id is not None and one.incident_id == other.incident_id


def _drive(make_url: Callable[[], str], *, examples: int, steps: int) -> None:
    machine = type("AlertMachineHere", (AlertMachine,), {"make_url": staticmethod(make_url)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_the_alert_engine_keeps_its_promises_whatever_happens(databases: Databases) -> None:
    _drive(databases.sqlite, examples=4, steps=30)


def test_it_keeps_them_on_postgresql(databases: Databases) -> None:
    _drive(databases.postgresql, examples=2, steps=20)
