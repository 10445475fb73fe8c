"""Silences keep news back and nothing else; what still fires when they end is told once. And reminders, and why."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from app.alerts.domain.state import Member
from app.alerts.domain.views import AlertState
from app.alerts.service import explanations, notifications, shown_alerts
from app.alerts.silences import service
from app.alerts.silences.documents import SilenceDocument, WindowDocument
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, FileManagedError, InvalidInputError, NotFoundError
from app.base.values import RuleKind, Severity, replace
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.documents.warnings import silence_notes
from app.catalog.service import references
from app.catalog.store import API, FILE
from app.definitions.service import applying, definitions
from app.hooks.domain import Receipt
from app.hooks.service import hooks
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.reports import metrics
from tests.conftest import Databases
from tests.support.api_service import CANARIES, api
from tests.support.fakes import START, answered, hits
from tests.support.living import until
from tests.support.watched import made_once
from tests.support.world import CHECK, COVERAGE, LINKS, World, canary, documents, page

pytestmark = pytest.mark.databases

AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}
KEYS = tuple("abcdefghij")
PAGE = page([canary(key) for key in KEYS], rules=[AT_ONCE])
WARNING = Member(
    alert_id=1, rule="threshold-coverage", kind=RuleKind.THRESHOLD, severity=Severity.WARNING, state=AlertState.FIRING
)
DECLINED = Receipt(ok=False, http_status=404, error="http_4xx", untaken=True)


def _begin(world: World) -> None:
    world.apply(PAGE)


@pytest.fixture
def world(databases: Databases, stores: Callable[..., Store]) -> World:
    """Give a world of ten canaries and a rule that opens and closes at once."""
    url, clock = made_once(databases, _begin)
    return World(store=stores(url), clock=clock)


@pytest.fixture
def anywhere(store: Store) -> World:
    """Give the same world on every database."""
    world = World(store=store)
    world.apply(PAGE)
    return world


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def document(**fields: Any) -> SilenceDocument:
    return parse_document(SilenceDocument, {"slug": "quiet", "checks": [CHECK], **fields})


def silence(world: World, *, minutes: float = 60, slug: str = "quiet", **fields: Any) -> None:
    """Silence the check from now on."""
    ends = (world.clock() + timedelta(minutes=minutes)).isoformat()
    told = parse_document(SilenceDocument, {"slug": slug, "checks": [CHECK], "ends": ends, **fields})
    definitions.put(world.store, world.vault, told, now=world.clock())


def lift(world: World, slug: str = "quiet") -> None:
    definitions.archive(world.store, "silence", slug, now=world.clock())


def miss(world: World, count: int) -> None:
    """Carry out a run in which this many canaries find nothing: two are a warning, six are critical."""
    world.probe.answers = {key: answered(hits("noise")) for key in KEYS[:count]}
    world.run()


def told(world: World) -> list[str]:
    """Deliver what is due and list what the receiver got in all."""
    world.deliver_all()
    return [json.loads(message.body)["type"].removeprefix("alert.") for _, message in world.send.sent]


def changes(world: World) -> list[tuple[str, str | None, str | None]]:
    (alert,) = world.alerts()
    return [(one["type"], one["suppressed"], one["silence"]) for one in alert["transitions"]]


# --- when a silence is on ------------------------------------------------------------------------------------


def once(*, slug: str = "s", starts: str | None = None, ends: str = "2026-03-02", **about: Any) -> SilenceDocument:
    matchers = about or {"all": True}
    times = {"starts": starts and f"{starts}T00:00:00Z", "ends": f"{ends}T00:00:00Z"}
    return parse_document(SilenceDocument, {"slug": slug, **times, **matchers})


def recurring(cron: str, duration: str, timezone: str = "UTC") -> SilenceDocument:
    window = {"cron": cron, "timezone": timezone, "duration": duration}
    return SilenceDocument.stored({"slug": "s", "all": True, "window": window})


def test_a_silence_is_on_from_its_start_up_to_its_end() -> None:
    one = once(starts="2026-03-01")
    assert one.active_until(at("2026-02-28T23:59:59")) is None
    assert one.active_until(at("2026-03-01")) == at("2026-03-02")
    assert one.active_until(at("2026-03-02") - timedelta(microseconds=1)) == at("2026-03-02")
    assert one.active_until(at("2026-03-02")) is None


def test_a_silence_says_when_it_changes_next() -> None:
    one = once(starts="2026-03-01")
    assert one.next_change(at("2026-02-01")) == at("2026-03-01")
    assert one.next_change(at("2026-03-01T12:00")) == at("2026-03-02")
    assert one.next_change(at("2026-03-02")) is None


def test_a_maintenance_window_comes_back_on_its_wall_clock() -> None:
    one = recurring("0 2 * * 6", "2h", "Europe/Berlin")
    assert one.active_until(at("2026-03-21T01:30")) == at("2026-03-21T03:00")  # 2 o'clock is 1 in UTC, in winter
    assert one.active_until(at("2026-03-21T03:00")) is None
    assert one.next_change(at("2026-03-21T03:00")) == at("2026-03-28T01:00")
    assert one.active_until(at("2026-04-04T00:30")) == at("2026-04-04T02:00")  # and midnight in summer


def test_windows_that_run_into_each_other_are_one() -> None:
    assert recurring("0 1-4 * * *", "90m").active_until(at("2026-03-02T01:10")) == at("2026-03-02T05:30")


@given(minute=st.integers(0, 7 * 24 * 60), length=st.integers(1, 600), hour=st.integers(0, 23))
def test_a_window_is_on_exactly_where_an_instant_is_not_longer_ago_than_it_lasts(
    minute: int, length: int, hour: int
) -> None:
    now, duration = START + timedelta(minutes=minute), timedelta(minutes=length)
    one = recurring(f"0 {hour} * * *", f"{length}m")
    begun = now.replace(hour=hour, minute=0)
    begun -= timedelta(days=1) if begun > now else timedelta(0)
    assert one.active_until(now) == (begun + duration if now < begun + duration else None)
    change = one.next_change(now)
    assert change is not None
    assert change > now
    assert (one.active_until(change) is None) == (one.active_until(now) is not None)


@pytest.mark.parametrize(
    ("matchers", "expected"),
    [
        ({}, True),
        ({"checks": [CHECK]}, True),
        ({"checks": ["other", CHECK], "rules": ["threshold-coverage"]}, True),
        ({"checks": [CHECK], "rules": ["no_data"]}, False),
        ({"severities": ["critical"]}, False),
        ({"suites": ["suite"], "retrievers": ["search"], "severities": ["warning"]}, True),
        ({"retrievers": ["elsewhere"]}, False),
    ],
)
def test_every_list_that_is_not_empty_has_to_name_the_alert(matchers: Mapping[str, Any], *, expected: bool) -> None:
    one = once(**matchers)
    matched = one.is_about(CHECK, "suite", "search") and one.matches(WARNING.rule, WARNING.severity)
    assert matched is expected


def test_of_several_silences_the_one_that_lasts_longest_is_named() -> None:
    short, long = (once(slug=name, ends=f"2026-03-{day}") for name, day in (("short", "05"), ("long", "06")))
    assert silenced([long, short], WARNING) == {1: "long"}


def test_of_several_alerts_each_has_the_longest_silence_that_names_it() -> None:
    silences = [
        once(slug="all", ends="2026-03-05"),
        once(slug="loud", severities=["critical"], ends="2026-03-06"),
        once(slug="over", ends="2026-03-01"),
    ]
    critical = replace(WARNING, alert_id=2, severity=Severity.CRITICAL)
    assert silenced(silences, WARNING, critical) == {1: "all", 2: "loud"}
    assert silenced(silences[2:], WARNING) == {1: None}


def test_whether_a_silence_of_something_else_is_on_is_not_worked_out() -> None:
    window = WindowDocument.model_construct(cron="no cron at all", timezone="UTC", duration="1h")
    broken = once().model_copy(update={"ends": None, "window": window})
    other = broken.model_copy(update={"rules": ("another",)})
    assert silenced([other], WARNING) == {1: None}
    with pytest.raises(ValueError, match="cron"):
        silenced([broken], WARNING)


def silenced(silences: Sequence[SilenceDocument], *members: Member) -> dict[int, str | None]:
    """Silences of alerts by their ids."""
    found = service.silence_members(silences, members, at("2026-03-02"))
    return {one.alert_id: one.silence for one in found}


# --- documents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"checks": [], "ends": "2026-03-02T00:00:00Z"}, "must say what it is about"),
        ({"all": True, "ends": "2026-03-02T00:00:00Z"}, "contradicts the lists"),
        ({}, "must end: give 'ends', or a 'window' that comes back"),
        ({"ends": "2026-03-02T00:00:00"}, "must be a time with a time zone"),
        ({"ends": 5}, "must be a time with a time zone"),
        ({"starts": "2026-03-02T00:00:00Z", "ends": "2026-03-02T01:00:00+01:00"}, "must be after 'starts'"),
        ({"ends": "2026-03-02T00:00:00Z", "window": {"cron": "0 2 * * *", "duration": "1h"}}, "comes back by itself"),
        ({"window": {"cron": "0 2 * * *"}}, "is missing"),
        ({"window": {"cron": "0 2 * *", "duration": "1h"}}, "4 fields instead of five"),
        ({"window": {"cron": "0 2 * * *", "duration": "1h", "timezone": "Berlin"}}, "no time zone `Berlin`"),
        ({"window": {"cron": "*/5 * * * *", "duration": "5m"}}, "never ends"),
        ({"window": {"cron": "0 2 * * *", "duration": "30s"}}, "must be between 1m and 31d"),
        ({"ends": "2026-03-02T00:00:00Z", "severities": ["loud"]}, "must be one of warning, critical"),
        ({"ends": "2026-03-02T00:00:00Z", "checks": ["a", "a"]}, "'a' is listed twice"),
        ({"ends": "2026-03-02T00:00:00Z", "until": "x"}, "unknown"),
    ],
)
def test_a_silence_that_makes_no_sense_is_refused_with_a_reason(fields: Mapping[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        document(**fields)
    assert complaint in str(caught.value)


def test_silences_stand_in_canary_files_and_export_reads_back_the_same(world: World) -> None:
    text = f"""
silences:
  - slug: night
    reason: re-indexing
    checks: [{CHECK}]
    window: {{cron: "0 2 * * 6", timezone: Europe/Berlin, duration: 90m}}
  - {{slug: once, all: true, starts: "2026-03-01T22:00:00+01:00", ends: "2026-03-02T00:00:00Z"}}
"""
    read = read_canary_files([("s.yaml", text)], {}, None)
    assert [one.slug for one in read.silences] == ["night", "once"]
    applying.apply(world.store, world.vault, read, managed_by=API, now=world.clock())
    exported = yaml.safe_load(definitions.write_all(world.store))["silences"]
    again = read_canary_files([("e.yaml", yaml.safe_dump({"silences": exported}))], {}, None)
    assert again.silences == read.silences


def test_what_is_wrong_with_a_silence_in_a_file_is_said_with_its_line() -> None:
    text = "silences:\n  - slug: night\n    checks: [docs]\n    window:\n      cron: 0 2 * * *\n      duration: soon\n"
    with pytest.raises(InvalidInputError) as caught:
        read_canary_files([("s.yaml", text)], {}, None)
    assert "s.yaml:6: silences[0].window.duration" in str(caught.value)


def test_a_silence_of_a_file_is_changed_there_alone_and_archived_when_it_is_absent(world: World) -> None:
    night = {"slug": "night", "checks": [CHECK], "window": {"cron": "0 2 * * 6", "duration": "2h"}}
    (change,) = world.apply({**PAGE, "silences": [night]})
    assert (change.kind, change.name, change.action, change.note) == ("silence", "night", "create", None)
    with pytest.raises(FileManagedError):
        silence(world, slug="night")
    (change,) = world.apply({**PAGE, "silences": [{**night, "checks": [CHECK], "suites": ["suite"]}]})
    assert (change.action, change.fields, change.note) == ("update", ("suites",), None)
    (change,) = world.apply(PAGE)
    assert (change.kind, change.action) == ("silence", "archive")
    with pytest.raises(NotFoundError):
        references.load_definition(world.store, "silence", "night")


def test_a_silence_about_what_nobody_has_is_refused_with_its_place_and_the_nearest_name(world: World) -> None:
    """It would keep nothing back, and somebody would trust it to."""
    fine = "silences:\n  - slug: fine\n    all: true\n    ends: 2999-01-01T00:00:00Z\n"
    known = documents(PAGE)
    before = world.dump()
    found: dict[str, str] = {}
    for field, name in (
        ("checks", CHECK),
        ("suites", "suite"),
        ("retrievers", "search"),
        ("rules", "threshold-coverage"),
        ("rules", "probe_errors"),
    ):
        night = f"  - slug: night\n    {field}: [{name}, {name}x]\n    window: {{cron: 0 2 * * 6, duration: 2h}}\n"
        wrong = read_canary_files([("s.yaml", f"{fine}{night}")], {}, None)
        wanted = replace(known, silences=wrong.silences, sources={**known.sources, **wrong.sources})
        told = f"s.yaml:5: {field}[1]: there is no {field[:-1]} '{name}x'; did you mean '{name}'?"
        for put, owner in ((applying.diff, FILE), (applying.apply, FILE), (applying.apply, API)):
            with pytest.raises(InvalidInputError) as caught:
                put(world.store, world.vault, wanted, managed_by=owner, now=world.clock())
            if str(caught.value) != told:
                found[f"{name} of {owner}"] = str(caught.value)
    assert found == {}
    assert world.dump() == before


def test_a_silence_of_a_file_may_name_a_check_of_the_api_and_outlives_it(world: World) -> None:
    body = {"slug": "theirs", "suite": "suite", "retriever": "search", "schedule": {"every": "5m"}}
    definitions.put(world.store, world.vault, parse_document(CheckDocument, body), now=world.clock())
    night = {"slug": "night", "checks": ["theirs"], "window": {"cron": "0 2 * * 6", "duration": "2h"}}
    assert len(world.apply({**PAGE, "silences": [night]})) == 1
    definitions.archive(world.store, "check", "theirs", now=world.clock())
    assert world.apply({**PAGE, "silences": [night]}) == []  # what the API archives does not stop the next start
    with pytest.raises(InvalidInputError, match="there is no check 'theirs'"):
        world.apply({**PAGE, "silences": [{**night, "reason": "touched"}]})


def test_validating_files_says_what_silences_name_that_the_files_do_not_define() -> None:
    night = {"slug": "night", "checks": [f"{CHECK}x"], "rules": ["no_data"], "all": False}
    window = {"window": {"cron": "0 2 * * 6", "duration": "2h"}}
    (note,) = silence_notes(documents({**PAGE, "silences": [{**night, **window}]}), START)
    assert note.startswith(f"silence 'night': checks[0]: there is no check '{CHECK}x'; did you mean '{CHECK}'?")
    assert note.endswith("in these files, so it is refused unless the service has one")
    over = {**night, "ends": "2001-01-01T00:00:00Z"}
    assert silence_notes(documents({**PAGE, "silences": [over]}), START) == []


def test_a_check_is_not_renamed_away_from_under_its_silence(world: World) -> None:
    night = {"slug": "night", "checks": [CHECK], "window": {"cron": "0 2 * * 6", "duration": "2h"}}
    world.apply({**PAGE, "silences": [night]})
    renamed = [{**one, "slug": "other"} for one in PAGE["checks"]]
    with pytest.raises(InvalidInputError, match=f"check '{CHECK}' is removed; remove it from this silence too"):
        world.apply({**PAGE, "checks": renamed, "silences": [night]})
    assert world.apply({**PAGE, "checks": renamed, "silences": [{**night, "checks": ["other"]}]})


def test_a_rule_is_not_taken_away_from_under_its_silence(world: World) -> None:
    """It stood as it was and named a rule that nobody has any more: nobody heard that it is deaf."""
    night = {"slug": "night", "rules": ["threshold-coverage"], "window": {"cron": "0 2 * * 6", "duration": "2h"}}
    world.apply({**PAGE, "silences": [night]})
    without = [{**one, "rules": [{**AT_ONCE, "key": "coverage"}]} for one in PAGE["checks"]]
    before = world.dump()
    told = "rule 'threshold-coverage' is removed; remove it from this silence too"
    for put in (applying.diff, applying.apply):
        wanted = documents({**PAGE, "checks": without, "silences": [night]})
        with pytest.raises(InvalidInputError, match=told):
            put(world.store, world.vault, wanted, managed_by=FILE, now=world.clock())
    assert world.dump() == before
    assert world.apply({**PAGE, "checks": without, "silences": [{**night, "rules": ["coverage"]}]})


def test_a_rule_is_not_taken_from_the_check_a_silence_is_about_while_others_keep_theirs(world: World) -> None:
    """Keys of rules are made of what they watch, so that many checks have the same."""
    first = PAGE["checks"][0]
    second = {**first, "slug": "second"}
    window = {"cron": "0 2 * * 6", "duration": "2h"}
    night = {"slug": "night", "checks": ["second"], "rules": ["threshold-coverage"], "window": window}
    world.apply({**PAGE, "checks": [first, second], "silences": [night]})
    without = {**PAGE, "checks": [first, {**second, "rules": [{**AT_ONCE, "key": "coverage"}]}], "silences": [night]}
    told = "rule 'threshold-coverage' is removed from the checks of this silence; remove it here too"
    with pytest.raises(InvalidInputError, match=told):
        world.apply(without)
    assert world.apply({**without, "silences": [{**night, "checks": [CHECK]}]})


def test_a_silence_that_is_over_keeps_nothing_from_being_taken_away(world: World) -> None:
    ends = world.clock() + timedelta(hours=2)
    past = {"slug": "past", "checks": [CHECK], "rules": ["threshold-coverage"], "ends": ends.isoformat()}
    world.apply({**PAGE, "silences": [past]})
    renamed = {**PAGE, "checks": [{**one, "slug": "other", "rules": []} for one in PAGE["checks"]], "silences": [past]}
    with pytest.raises(InvalidInputError, match=f"check '{CHECK}' is removed"):
        world.apply(renamed)
    world.clock.advance(7200)
    shown = applying.diff(world.store, world.vault, documents(renamed), managed_by=FILE, now=world.clock())
    assert world.apply(renamed) == shown != []
    assert world.apply(renamed) == []


def test_a_stored_silence_is_read_once_a_version_and_not_judged_again(world: World) -> None:
    silence(world)
    with world.store.read() as connection:
        check = references.find_check(connection, CHECK)
        (first,), (again,) = service.silences_of(connection, check), service.silences_of(connection, check)
    assert again is first
    silence(world, rules=["no_data"])
    with world.store.read() as connection:
        (changed,) = service.silences_of(connection, check)
    assert changed.rules == ("no_data",)
    endless = {"slug": "quiet", "all": True, "window": {"cron": "*/5 * * * *", "duration": "5m"}}
    assert SilenceDocument.stored(endless).window is not None  # accepted once, by other words than today's
    with pytest.raises(InvalidInputError, match="never ends"):
        parse_document(SilenceDocument, endless)


def test_no_more_silences_may_be_in_force_than_can_be_looked_at_all_the_time(world: World) -> None:
    def many(count: int) -> Documents:
        told = [document(slug=f"s{number}", ends="2026-03-02T00:00:00Z") for number in range(count)]
        return Documents(silences=tuple(told))

    def put(count: int) -> None:
        applying.apply(world.store, world.vault, many(count), managed_by=API, now=world.clock())

    with pytest.raises(InvalidInputError, match="no more than 200 silences may be in force, and this would make 201"):
        put(201)
    assert references.load_definitions(world.store, "silence") == []
    put(200)
    silence(world, slug="s7")  # a change is not one more
    with pytest.raises(InvalidInputError, match="delete those that are over"):
        silence(world, slug="one-more")
    with pytest.raises(NotFoundError):
        references.load_definition(world.store, "silence", "one-more")
    lift(world, "s7")
    silence(world, slug="one-more")


def test_how_often_people_are_reminded_stands_in_the_check() -> None:
    check = {"slug": "docs", "suite": "docs", "retriever": "search", "schedule": {"every": "5m"}}
    assert parse_document(CheckDocument, check).remind_after == timedelta(hours=24)
    assert parse_document(CheckDocument, {**check, "remind": "90m"}).remind_after == timedelta(minutes=90)
    assert parse_document(CheckDocument, {**check, "remind": None}).remind_after is None
    with pytest.raises(InvalidInputError, match="must be between 5m and 31d"):
        parse_document(CheckDocument, {**check, "remind": "10s"})


def test_a_check_stored_before_there_were_reminders_is_no_change(world: World) -> None:
    before = references.load_definition(world.store, "check", CHECK)
    assert "remind" in before.body
    older = {name: value for name, value in before.body.items() if name != "remind"}
    with world.store.write() as connection:
        connection.exec_driver_sql(
            "UPDATE definition_versions SET body = ? WHERE id = ?", (json.dumps(older), before.version_id)
        )
    assert world.apply(PAGE) == []


# --- what is not told, and what is told later ----------------------------------------------------------------


def test_a_silenced_alert_is_evaluated_and_recorded_and_not_sent(world: World) -> None:
    silence(world)
    miss(world, 2)
    assert [alert["state"] for alert in world.alerts()] == ["firing"]
    assert changes(world) == [("opened", "silenced", "quiet")]
    assert told(world) == []
    miss(world, 6)
    assert changes(world)[1:] == [("escalated", "silenced", "quiet")]
    miss(world, 0)
    assert [alert["state"] for alert in world.alerts()] == ["resolved"]
    assert told(world) == []  # the end of what nobody heard begin


def test_what_still_fires_when_a_silence_is_over_is_told_once(anywhere: World) -> None:
    world = anywhere
    silence(world, minutes=10)
    miss(world, 2)
    assert world.tick() == 0
    world.clock.advance(600)
    assert (world.tick(), world.tick()) == (1, 0)
    assert told(world) == ["opened"]
    assert changes(world) == [("opened", None, "quiet")]  # which silence it was stays on record
    miss(world, 2)
    assert (world.tick(), told(world)) == (0, ["opened"])
    miss(world, 0)
    assert told(world) == ["opened", "resolved"]


def test_a_run_after_the_end_of_a_silence_tells_as_a_tick_would(world: World) -> None:
    silence(world, minutes=1.5)
    miss(world, 2)
    miss(world, 2)
    assert told(world) == ["opened"]


def test_lifting_or_changing_a_silence_tells_what_still_fires(world: World) -> None:
    silence(world)
    miss(world, 2)
    silence(world, rules=["no_data"])
    assert (world.tick(), told(world)) == (1, ["opened"])
    miss(world, 0)
    silence(world)
    miss(world, 2)
    lift(world)
    assert (world.tick(), told(world)) == (1, ["opened", "resolved", "opened"])


def test_an_escalation_during_a_silence_is_told_after_it_where_the_opening_was_told_before(world: World) -> None:
    miss(world, 2)
    assert told(world) == ["opened"]
    silence(world)
    miss(world, 6)
    lift(world)
    assert (world.tick(), world.tick()) == (1, 0)
    assert told(world) == ["opened", "escalated"]


def test_what_opened_and_got_worse_in_a_silence_is_one_message_that_it_is_open(world: World) -> None:
    silence(world)
    miss(world, 2)
    miss(world, 6)
    lift(world)
    assert world.tick() == 1
    assert told(world) == ["opened"]
    assert json.loads(world.send.sent[0][1].body)["data"]["severity"] == "critical"


def test_the_end_of_what_was_told_before_is_told_in_spite_of_the_silence(world: World) -> None:
    miss(world, 2)
    assert told(world) == ["opened"]
    silence(world)
    miss(world, 0)
    assert told(world) == ["opened", "resolved"]


def test_a_silence_holds_nothing_back_that_it_does_not_name(world: World) -> None:
    silence(world, severities=["critical"])
    miss(world, 2)
    assert told(world) == ["opened"]
    miss(world, 6)
    assert told(world) == ["opened"]


def test_a_silence_says_whether_it_is_on_and_what_it_holds_back(world: World) -> None:
    silence(world, minutes=10)
    miss(world, 2)
    row = references.load_definition(world.store, "silence", "quiet")
    state = service.states(world.store, [row], world.clock())[row.id]
    (alert,) = world.alerts()
    wanted = {"id": alert["id"], "check": CHECK, "rule": alert["rule"], "severity": "warning", "state": "firing"}
    assert (row.slug, state["active"], state["holds_back"]) == ("quiet", True, [wanted])
    assert state["until"] == state["next_change"] == row.body["ends"]
    world.clock.advance(3600)
    state = service.states(world.store, [row], world.clock())[row.id]
    assert state == {"active": False, "until": None, "next_change": None, "holds_back": []}


def test_a_worker_tells_by_itself_what_a_silence_held_back(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.clock.now = datetime.now(UTC) - timedelta(minutes=5)
    world.apply(page([canary(key) for key in KEYS], rules=[AT_ONCE], schedule={"every": "31d"}))
    silence(world, minutes=2)
    miss(world, 6)
    world.probe.all_miss()
    engine = Engine(
        store=world.store, vault=world.vault, probe=world.probe, send=world.send, links=LINKS, owner="worker"
    )
    worker = Worker(engine, metrics.ProcessMetrics(CollectorRegistry()), metrics.Snapshot())
    worker.start()
    try:
        until(lambda: world.send.sent)
    finally:
        worker.stop()
    assert json.loads(world.send.sent[0][1].body)["type"] == "alert.opened"


# --- reminders and acknowledgement ---------------------------------------------------------------------------


def test_people_are_reminded_of_what_fires_until_it_ends(anywhere: World) -> None:
    world = anywhere
    miss(world, 2)
    assert told(world) == ["opened"]
    world.clock.advance(24 * 3600 - 1)
    assert world.tick() == 0
    world.clock.advance(1)
    assert (world.tick(), world.tick()) == (1, 0)
    assert told(world) == ["opened", "reminded"]
    body = json.loads(world.send.sent[-1][1].body)
    assert body["data"]["reason"].startswith("Still firing after 1 day: coverage 0.800 is below 0.9 (warning)")
    assert body["data"]["degraded_total"] == 2
    world.clock.advance(24 * 3600)
    assert (world.tick(), told(world)[-1]) == (1, "reminded")
    miss(world, 0)
    world.clock.advance(24 * 3600)
    assert (world.tick(), told(world)) == (0, ["opened", "reminded", "reminded", "resolved"])


def test_the_interval_counts_from_the_last_word_of_it(world: World) -> None:
    world.apply(page([canary(key) for key in KEYS], rules=[AT_ONCE], remind="1h"))
    miss(world, 2)
    told(world)
    world.clock.advance(3000)
    miss(world, 6)
    assert told(world) == ["opened", "escalated"]
    world.clock.advance(3000)
    assert world.tick() == 0
    world.clock.advance(600)
    assert (world.tick(), told(world)[-1]) == (1, "reminded")


def test_nobody_is_reminded_where_the_check_says_never(world: World) -> None:
    world.apply(page([canary(key) for key in KEYS], rules=[AT_ONCE], remind=None))
    miss(world, 2)
    told(world)
    world.clock.advance(365 * 24 * 3600)
    assert world.tick() == 0


def test_nobody_is_reminded_during_a_silence(world: World) -> None:
    miss(world, 2)
    told(world)
    silence(world, minutes=48 * 60)
    world.clock.advance(30 * 3600)
    assert world.tick() == 0
    world.clock.advance(18 * 3600)
    assert (world.tick(), told(world)) == (1, ["opened", "reminded"])


def test_a_receiver_that_has_not_taken_the_last_word_is_not_sent_another(world: World) -> None:
    world.apply(page([canary(key) for key in KEYS], rules=[AT_ONCE], remind="1h"))
    world.send.receipts = [Receipt(ok=False, http_status=503, error="http_5xx")] * 3
    miss(world, 2)
    for _ in range(3):
        world.deliver_all()
        world.clock.advance(3600)
        assert world.tick() == 0
    assert told(world)[-1] == "opened"
    world.clock.advance(3600)
    assert (world.tick(), told(world)[-1]) == (1, "reminded")


def test_a_disabled_hook_gets_no_reminder(world: World) -> None:
    miss(world, 2)
    told(world)
    world.send.receipts = [Receipt(ok=False, http_status=410, error="gone", untaken=True, gone=True)]
    world.clock.advance(24 * 3600)
    assert world.tick() == 1
    world.deliver_all()
    world.clock.advance(24 * 3600)
    assert world.tick() == 0
    world.apply(PAGE)  # saves the hook anew, which enables it
    assert world.tick() == 1


def test_acknowledging_stops_reminders_and_nothing_else(world: World) -> None:
    miss(world, 2)
    told(world)
    (alert,) = world.alerts()
    number = int(alert["id"])
    assert notifications.acknowledge(world.store, number, by="ada", note="on it", now=world.clock())
    assert not notifications.acknowledge(world.store, number, by="bob", note=None, now=world.clock())
    shown = shown_alerts.alert(world.store, number)
    assert shown["acknowledged_by"] == "ada"
    assert [(one["type"], one["reason"]) for one in shown["transitions"]][1:] == [
        ("acknowledged", "Acknowledged by ada: on it.")
    ]
    world.clock.advance(48 * 3600)
    assert world.tick() == 0
    miss(world, 0)
    assert told(world) == ["opened", "resolved"]


def test_what_gets_worse_wants_to_be_acknowledged_anew(world: World) -> None:
    miss(world, 2)
    told(world)
    (alert,) = world.alerts()
    notifications.acknowledge(world.store, int(alert["id"]), by="ada", note=None, now=world.clock())
    miss(world, 6)
    assert world.alerts()[0]["acknowledged_at"] is None
    assert told(world) == ["opened", "escalated"]
    world.clock.advance(24 * 3600)
    assert (world.tick(), told(world)[-1]) == (1, "reminded")
    assert notifications.acknowledge(world.store, int(alert["id"]), by="ada", note=None, now=world.clock())
    world.clock.advance(24 * 3600)
    assert world.tick() == 0


def test_only_an_open_alert_can_be_acknowledged(world: World) -> None:
    world.apply(page([canary(key) for key in KEYS], rules=[COVERAGE]))
    miss(world, 2)
    (alert,) = world.alerts()
    with pytest.raises(ConflictError, match="has not opened yet"):
        notifications.acknowledge(world.store, int(alert["id"]), by="ada", note=None, now=world.clock())
    miss(world, 2)
    miss(world, 0)
    miss(world, 0)
    with pytest.raises(ConflictError, match="has resolved"):
        notifications.acknowledge(world.store, int(alert["id"]), by="ada", note=None, now=world.clock())
    with pytest.raises(NotFoundError):
        notifications.acknowledge(world.store, 999, by="ada", note=None, now=world.clock())


# --- dead letters together -----------------------------------------------------------------------------------


def test_dead_letters_of_a_hook_are_replayed_together_in_their_order(world: World) -> None:
    world.send.receipts = [DECLINED] * 3
    for missing in (2, 0):
        miss(world, missing)
        for _ in range(3):
            world.deliver()
            world.clock.advance(43_200)
    assert [one["state"] for one in world.deliveries()] == ["dead", "dead"]
    done = hooks.replay_all(world.store, "ops", now=world.clock())
    assert (done.replayed, done.overtaken) == (2, 0)
    before = len(world.send.sent)
    assert told(world)[before:] == ["opened", "resolved"]
    assert hooks.replay_all(world.store, "ops", now=world.clock()).replayed == 0


def test_a_dead_letter_that_later_news_has_overtaken_stays_dead(world: World) -> None:
    world.send.receipts = [Receipt(ok=False, http_status=503, error="http_5xx")] * 3
    miss(world, 2)
    for _ in range(3):
        world.deliver()
        world.clock.advance(43_200)
    miss(world, 0)
    told(world)
    done = hooks.replay_all(world.store, "ops", now=world.clock())
    assert (done.replayed, done.overtaken) == (0, 1)


# --- why (not) -----------------------------------------------------------------------------------------------


def _why(world: World, rule: str = "threshold-coverage") -> dict[str, Any]:
    told = explanations.explain_rules(world.store, CHECK, now=world.clock())
    return next({**one} for one in told["rules"] if one["rule"] == rule)


def test_why_a_rule_does_not_alert_is_told_from_rows(world: World) -> None:
    world.apply(page([canary(key) for key in KEYS], rules=[COVERAGE]))
    before = [_why(world, rule) for rule in ("threshold-coverage", "no_data")]
    assert [one["state"] for one in before] == ["unknown", "unknown"]
    assert [one["reason"] for one in before] == ["No run has ended yet.", "No run has completed yet."]
    miss(world, 0)
    well = _why(world)
    assert (well["state"], well["bad_runs_to_open"], well["alert_id"]) == ("ok", 2, None)
    miss(world, 2)
    pending = _why(world)
    assert (pending["state"], pending["bad_runs_to_open"], pending["held_back"]) == ("pending", 1, None)
    assert pending["to_open"] == (
        "It opens when 2 of 3 are bad; 1 of the last 2 measured runs was bad, so 1 more bad run would open it."
    )
    assert [one["value"] for one in pending["evidence"]["window"]] == [1.0, 0.8]


def test_why_an_alert_that_fires_was_not_told(world: World) -> None:
    world.apply(page([canary(key) for key in KEYS], rules=[COVERAGE]))
    silence(world, minutes=30)
    miss(world, 2)
    miss(world, 2)
    firing = _why(world)
    assert (firing["state"], firing["held_back"], firing["next_reminder_at"]) == ("firing", "silenced", None)
    assert [(one["slug"], one["active"]) for one in firing["silences"]] == [("quiet", True)]
    assert (firing["good_runs_to_close"], firing["to_open"]) == (2, None)
    miss(world, 0)
    assert _why(world)["to_close"] == "It resolves after 2 good runs in a row; 1 run was good in a row so far."
    lift(world)
    miss(world, 2)
    told(world)
    firing = _why(world)
    assert (firing["held_back"], firing["silences"]) == (None, [])
    assert firing["next_reminder_at"] is not None


def test_a_warning_beside_a_silenced_critical_alert_is_an_incident_that_the_other_escalates(world: World) -> None:
    damage = {"kind": "threshold", "measure": "degraded_share", "warning": {"above": 0.1}}
    world.apply(page([canary(key) for key in KEYS], rules=[COVERAGE, damage]))
    silence(world, minutes=30, rules=["threshold-coverage"])
    for _ in range(2):
        miss(world, len(KEYS))
    assert told(world) == ["opened"]
    assert _why(world, "threshold-degraded_share")["held_back"] is None
    assert _why(world)["held_back_reason"].startswith("A silence suppresses it")
    assert [alert["incident_id"] is None for alert in world.alerts()].count(True) == 1
    lift(world)
    world.tick()
    assert told(world) == ["opened", "escalated"]
    assert len({alert["incident_id"] for alert in world.alerts()}) == 1


def test_a_rule_that_could_not_be_measured_is_unknown_and_not_ok(world: World) -> None:
    world.probe.all_fail()
    world.run()
    unmeasured = _why(world)
    assert (unmeasured["state"], unmeasured["alert_id"]) == ("unknown", None)
    assert "the run is unknown" in unmeasured["reason"]


def test_why_no_data_does_not_alert_yet(world: World) -> None:
    miss(world, 0)
    quiet = _why(world, "no_data")
    assert (quiet["state"], quiet["reason"]) == ("ok", "Runs complete when they should.")
    assert quiet["deadline"] == "2026-03-02T12:10:00Z"
    assert explanations.explain_rules(world.store, CHECK, now=world.clock())["hooks"] == [
        {"slug": "ops", "disabled_reason": None}
    ]


def test_documents_of_silences_carry_their_place() -> None:
    night = {"slug": "night", "all": True, "window": {"cron": "0 2 * * 6", "duration": "2h"}}
    read = documents({**PAGE, "silences": [night]})
    assert read.sources["silence", "night"].line == 1


# --- over the API --------------------------------------------------------------------------------------------


def test_silences_acknowledgement_and_the_why_over_the_api(tmp_path: Path) -> None:
    rules = [{"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}, "open": {"bad": 1, "of": 1}}]
    with api(tmp_path) as opened:
        opened.docs(rules=rules)
        put = opened.client.put("/v1/silences/night", json={"checks": ["docs"], "ends": "2999-01-01T00:00:00Z"})
        assert (put.status_code, put.json()["active"], put.json()["until"]) == (201, True, "2999-01-01T00:00:00Z")
        opened.retriever.found = {one["query"]: [] for one in CANARIES}
        run = opened.run()
        assert run["verdict"] == "degraded"
        assert opened.deliver() == 0
        shown = opened.get("/v1/silences/night")
        (held,) = shown["holds_back"]
        assert (held["check"], held["rule"]) == ("docs", "threshold-coverage")
        assert opened.client.put("/v1/silences/night", json=shown).status_code == 200  # what was shown can be sent back
        assert [one["slug"] for one in opened.get("/v1/silences")["items"]] == ["night"]
        (alert,) = opened.get("/v1/alerts")["items"]
        assert (alert["transitions"][0]["suppressed"], alert["transitions"][0]["silence"]) == ("silenced", "night")
        told = opened.get("/v1/checks/docs/alerting")["rules"][0]
        assert (told["state"], told["held_back"], told["silences"][0]["slug"]) == ("firing", "silenced", "night")
        path = f"/v1/alerts/{alert['id']}/acknowledge"
        first = opened.client.post(path, json={"note": "on it"})
        again = opened.client.post(path)
        assert (first.status_code, again.status_code) == (200, 200)
        assert [one["type"] for one in again.json()["transitions"]] == ["opened", "acknowledged"]
        assert again.json()["acknowledged_by"] == "anyone on this machine"
        refused = opened.client.put("/v1/silences/other", json={"checks": ["dosc"], "ends": "2999-01-01T00:00:00Z"})
        assert (refused.status_code, refused.json()["errors"][0]["message"]) == (
            422,
            "there is no check 'dosc'; did you mean 'docs'?",
        )
        refused = opened.client.put("/v1/silences/other", json={"rules": ["nodata"], "ends": "2999-01-01T00:00:00Z"})
        assert refused.json()["errors"] == [
            {"path": "rules[0]", "message": "there is no rule 'nodata'; did you mean 'no_data'?"}
        ]
        assert opened.client.delete("/v1/silences/night").status_code == 204
        assert opened.client.get("/v1/silences/night").status_code == 404
        opened.retriever.found = {}
        for _ in range(2):
            opened.run()
        assert opened.client.post(path).status_code == 409
        replayed = opened.client.post("/v1/hooks/ops/replay")
        assert (replayed.status_code, replayed.json()) == (202, {"hook": "ops", "replayed": 0, "overtaken": 0})
