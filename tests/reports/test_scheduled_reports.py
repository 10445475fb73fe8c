"""Reports on a schedule: when one is due, what each kind of hook gets, and that N replicas send one."""

import json
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.policy import default
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from sqlalchemy import event

from app.base.db.engine import Store, to_us
from app.base.errors import ConfigurationError, ConflictError, InvalidInputError
from app.base.jobs import open_queue
from app.base.jobs.values import JobKind, Room
from app.catalog import store as catalog
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service import references
from app.definitions.service import definitions
from app.hooks import store as outbox
from app.hooks.domain import Hook, HookKind, Receipt
from app.hooks.notices import body_of
from app.hooks.service.deliveries import notice
from app.operation.service import retention
from app.operation.worker import Worker
from app.operation.worker_tasks import Engine
from app.reports import metrics
from app.reports import store as report_rows
from app.reports.service import reports as run_reports
from app.reports.service.reports import DueReports
from app.reports.store import reports
from tests.support.fakes import FakeSend, answered, hits
from tests.support.html_pages import Page
from tests.support.living import until
from tests.support.pages_service import Site, page
from tests.support.world import CHECK, LINKS, World, canary
from tests.support.world import page as canary_page

pytestmark = pytest.mark.both

SATURDAY = datetime(2026, 3, 7, 12, tzinfo=UTC)
MONDAY = datetime(2026, 3, 9, 7, tzinfo=UTC)
"""Eight o'clock in Berlin."""
REPORT: dict[str, Any] = {"cron": "0 8 * * mon", "timezone": "Europe/Berlin", "hooks": ["team", "ops"]}
TEAM: dict[str, Any] = {
    "slug": "team",
    "kind": "email",
    "host": "mail.test",
    "from": "coalmine@example.org",
    "to": ["team@example.org"],
}
PAGER = {"slug": "pager", "kind": "pagerduty", "routing_key": "0" * 32}
KEYS = [f"q{number:02}" for number in range(12)]


def files(report: dict[str, Any] | None, **check: Any) -> dict[str, Any]:
    """Describe a check of twelve canaries with a webhook `ops`, a mail hook `team`, and this report."""
    described = canary_page([canary(key) for key in KEYS], rules=[], **check)
    described["hooks"].append(TEAM)
    if report is not None:
        described["checks"][0]["report"] = report
    return described


@pytest.fixture
def world(store: Store) -> World:
    """Give a check whose reports are due on Mondays; it is a Saturday, and a run has ended."""
    return _world(store)


@pytest.fixture
def alone(sqlite_store: Store) -> World:
    """Give the same on SQLite alone, for what does not depend on the database."""
    return _world(sqlite_store)


def _world(store: Store) -> World:
    made = World(store=store)
    made.clock.now = SATURDAY
    made.apply(files(REPORT))
    made.run()
    return made


def due(world: World, now: datetime, looker: DueReports | None = None) -> list[datetime]:
    """Let the clock look for reports, and give the instants of those there are."""
    (looker or DueReports(world.store)).queue_due(now)
    with world.store.read() as connection:
        found = connection.execute(sa.select(reports.c.due_at).order_by(reports.c.due_at)).scalars()
        return [datetime.fromtimestamp(at / 1e6, UTC) for at in found]


def written(world: World) -> list[dict[str, Any]]:
    """Write the reports that are due, as jobs, and give all deliveries of reports."""
    queue = open_queue(world.store)
    for job in queue.take(datetime.now(UTC), Room([JobKind.REPORT], 9)):
        run_reports.write_report(world.store, job.key, now=world.clock())
        queue.finish(job)
    return [one for one in world.deliveries() if one["type"] == "report.ready"]


def mondays_report(world: World, weeks: int = 0) -> list[dict[str, Any]]:
    """Let a Monday come, and write its report."""
    world.clock.now = MONDAY + timedelta(weeks=weeks, minutes=1)
    due(world, world.clock())
    return written(world)


# --- when --------------------------------------------------------------------------------------------------------


def test_a_report_is_due_by_the_wall_clock_of_its_time_zone(alone: World) -> None:
    assert due(alone, MONDAY - timedelta(seconds=1)) == []
    assert due(alone, MONDAY) == [MONDAY]
    assert due(alone, MONDAY + timedelta(days=6)) == [MONDAY]
    summer = datetime(2026, 3, 30, 6, tzinfo=UTC)  # the clocks went forward on the 29th
    assert due(alone, summer)[-1] == summer


def test_after_a_pause_one_report_is_due_whatever_was_missed(alone: World) -> None:
    assert due(alone, MONDAY + timedelta(weeks=5)) == [MONDAY + timedelta(weeks=5) - timedelta(hours=1)]  # summer time


def test_an_instant_before_the_check_had_the_report_is_not_due(store: Store) -> None:
    world = World(store=store)
    world.clock.now = SATURDAY
    world.apply(files(None))
    looker = DueReports(store)
    assert due(world, MONDAY + timedelta(hours=1), looker) == []
    world.clock.now = MONDAY + timedelta(hours=2)
    world.apply(files(REPORT))
    assert due(world, MONDAY + timedelta(hours=3), looker) == []
    assert due(world, MONDAY + timedelta(weeks=1), looker) == [MONDAY + timedelta(weeks=1)]


def test_a_disabled_or_archived_check_has_no_reports(world: World) -> None:
    looker = DueReports(world.store)
    assert due(world, SATURDAY + timedelta(hours=1), looker) == []
    world.apply(files(REPORT, enabled=False))
    assert due(world, MONDAY, looker) == []
    world.apply(files(REPORT))
    world.apply({"hooks": [TEAM]})
    assert due(world, MONDAY + timedelta(weeks=1), looker) == []


@pytest.mark.databases
def test_replicas_that_see_the_same_instant_queue_one_report(world: World) -> None:
    lookers = [DueReports(world.store) for _ in range(6)]
    for looker in lookers:
        looker.queue_due(SATURDAY + timedelta(hours=1))
    together, queued = threading.Barrier(6), []

    def look(looker: DueReports) -> None:
        together.wait(20)
        queued.append(looker.queue_due(MONDAY + timedelta(seconds=1)))

    threads = [threading.Thread(target=look, args=(one,)) for one in lookers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(queued) == [0, 0, 0, 0, 0, 1]
    assert len(written(world)) == 2, "one for each hook"


def test_a_report_of_a_clock_that_was_ahead_does_not_hold_back_the_next(world: World) -> None:
    assert due(world, MONDAY + timedelta(weeks=500))
    assert due(world, MONDAY)[0] == MONDAY


def test_where_nothing_is_due_nothing_is_written(world: World) -> None:
    looker = DueReports(world.store)
    looker.queue_due(SATURDAY + timedelta(hours=1))
    before = world.dump()
    writes = _statements_of_writes(world.store, lambda: looker.queue_due(MONDAY - timedelta(seconds=1)))
    assert writes == []
    assert world.dump() == before


# --- what ----------------------------------------------------------------------------------------------------------


def test_mail_gets_html_and_a_webhook_markdown(alone: World) -> None:
    deliveries = mondays_report(alone)
    assert {one["hook"] for one in deliveries} == {"ops", "team"}
    assert {(one["state"], one["alert_id"], one["incident_id"]) for one in deliveries} == {("pending", None, None)}
    assert {sent.state for sent in alone.deliver_all()} == {"delivered"}
    bodies = {hook: message.body for hook, message in alone.send.sent}
    sent = json.loads(bodies["ops"])
    assert (sent["type"], sent["version"]) == ("report.ready", 1)
    data = sent["data"]
    assert data["summary"] == f"{CHECK}: report, healthy, NDCG@10 1.000"
    assert data["markdown"].startswith(f"# Healthy: {CHECK}\n")
    assert (data["run_id"], data["since_run_id"], data["coverage"], data["value"]) == ("1", None, 1.0, 1.0)
    assert data["links"]["report"] == f"{LINKS.public_url}/v1/runs/1/report?format=html"
    assert not {"html", "lines"} & data.keys()
    mail = message_from_bytes(bodies["team"], policy=default)
    assert mail["Subject"] == data["summary"]
    text, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert text is not None
    assert html is not None
    assert text.get_content().splitlines() == data["markdown"].splitlines()
    assert html.get_content().startswith("<!doctype html>")
    assert "<h2>Measures</h2>" in html.get_content()


def test_the_next_report_says_what_changed_since_the_last_and_mails_are_a_thread(alone: World) -> None:
    mondays_report(alone)
    alone.deliver_all()
    for key in KEYS:
        alone.probe.answers[key] = answered(hits("noise"))
    alone.clock.now = MONDAY + timedelta(days=3)
    alone.run()
    mondays_report(alone, weeks=1)
    alone.deliver_all()
    *_, (_, webhook), (_, mail) = sorted(alone.send.sent[-2:], key=lambda one: one[0])
    data = json.loads(webhook.body)["data"]
    assert data["since_run_id"] == "1"
    assert f"{data['links']['report']}".endswith("/v1/runs/2/report?format=html&since=1")
    assert "since run 1: worse than before" in data["markdown"]
    threads = {
        message_from_bytes(body.body, policy=default)["References"] for hook, body in alone.send.sent if hook == "team"
    }
    assert len(threads) == 1
    assert None not in threads
    assert message_from_bytes(mail.body, policy=default)["References"] in threads


def test_a_report_without_a_new_run_says_so(alone: World) -> None:
    mondays_report(alone)
    mondays_report(alone, weeks=1)
    with alone.store.read() as connection:
        content = report_rows.read_content(connection, 2)
    assert content["lines"][0] == "no run has ended since the last report"
    assert content["since_run_id"] is None


def test_chats_get_the_first_lines_and_a_link(alone: World) -> None:
    mondays_report(alone)
    with alone.store.read() as connection:
        delivery = outbox.list_deliveries(connection)[0]
        told = notice(connection, delivery, "chat", LINKS, alone.clock())
    for kind in (HookKind.SLACK, HookKind.SLACK_APP, HookKind.APPRISE):
        body = body_of(Hook(slug="chat", kind=kind, url="https://chat.test/"), told, "msg_1").decode()
        assert "NDCG@10" in body.replace("\\u200b", "")
        assert f"{LINKS.public_url}/v1/runs/1/report" in body
        assert len(body) < 8_000
        assert "<h2>" not in body
    for kind in (HookKind.PAGERDUTY, HookKind.ALERTMANAGER):
        with pytest.raises(ConfigurationError, match=f"a hook of kind {kind} takes no reports"):
            body_of(Hook(slug="pager", kind=kind, url="https://pager.test/"), told, "msg_1")


def test_the_body_is_frozen_and_retried_like_any_other(world: World) -> None:
    mondays_report(world)
    world.send.receipts = [Receipt(ok=False, error="http_5xx", http_status=503)] * 2
    world.deliver_all()
    first = dict(world.send.sent)
    world.run()  # which the report does not show
    world.clock.advance(3_600)
    world.deliver_all()
    again = dict(world.send.sent[2:])
    assert again == first


def test_a_disabled_hook_leaves_a_dead_letter_that_can_be_replayed(world: World) -> None:
    hook = references.load_definition(world.store, "hook", "ops")
    with world.store.write() as connection:
        catalog.disable_definition(connection, hook.id, "It answered 410.", to_us(world.clock()))
    states = {one["hook"]: (one["state"], one["reason"]) for one in mondays_report(world)}
    assert states == {"ops": ("dead", "The hook is disabled."), "team": ("pending", None)}


# --- by whom -------------------------------------------------------------------------------------------------------


def _statements_of_writes(store: Store, act: Callable[[], object]) -> list[str]:
    """Give the statements that writing transactions send meanwhile."""
    found: list[str] = []

    def listen(connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if connection.get_execution_options().get("coalmine_writes"):
            found.append(statement)

    event.listen(store.engine, "before_cursor_execute", listen)
    try:
        act()
    finally:
        event.remove(store.engine, "before_cursor_execute", listen)
    return found


@pytest.mark.databases
def test_results_are_read_and_rendered_outside_the_writing_transaction(world: World) -> None:
    world.clock.now = MONDAY + timedelta(minutes=1)
    due(world, world.clock())
    write = partial(run_reports.write_report, world.store, 1, now=world.clock())
    writes = " ".join(_statements_of_writes(world.store, write)).lower()
    assert "update reports" in writes
    assert "deliveries" in writes
    assert not [table for table in ("states", "rankings", "runs", "canaries") if f"from {table}" in writes]


@pytest.mark.databases
def test_processes_that_write_the_same_report_send_one(world: World) -> None:
    world.clock.now = MONDAY + timedelta(minutes=1)
    due(world, world.clock())
    write = partial(run_reports.write_report, world.store, 1, now=world.clock())
    together, sent = threading.Barrier(4), []

    def begin() -> None:
        together.wait(20)
        sent.append(write())

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(sent) == [False, False, False, True]
    assert len(world.deliveries()) == 2
    assert write() is False


@pytest.mark.parametrize("before", ["a run", "archived", "changed"])
def test_a_report_that_cannot_be_written_is_skipped_with_the_reason(store: Store, before: str) -> None:
    world = World(store=store)
    world.clock.now = SATURDAY
    world.apply(files(REPORT))
    if before != "a run":
        world.run()
    world.clock.now = MONDAY + timedelta(minutes=1)
    due(world, world.clock())
    if before != "a run":
        world.apply({"hooks": [TEAM]} if before == "archived" else files(None))
    assert written(world) == []
    with store.read() as connection:
        [(state, reason)] = connection.execute(sa.select(reports.c.state, reports.c.reason)).all()
    why = {
        "a run": "No run has ended yet.",
        "archived": "The check was archived.",
        "changed": "The check has no scheduled report any more.",
    }
    assert (state, reason) == ("skipped", why[before])


def test_a_worker_sends_a_report_that_is_due(store: Store) -> None:
    world = World(store=store)
    world.clock.now = datetime.now(UTC) - timedelta(minutes=10)
    world.apply(files({"cron": "* * * * *", "hooks": ["ops"]}, schedule={"every": "1d"}))
    world.run()
    send = FakeSend()
    engine = Engine(store=store, vault=world.vault, probe=world.probe, send=send, links=LINKS, owner="one")
    worker = Worker(engine, metrics.ProcessMetrics(CollectorRegistry()), metrics.Snapshot())
    worker.start()
    try:
        until(lambda: send.sent)
    finally:
        worker.stop()
    assert json.loads(send.sent[0][1].body)["type"] == "report.ready"


# --- how it is defined ---------------------------------------------------------------------------------------------


def test_a_hook_that_is_not_there_or_takes_no_reports_is_refused_with_its_place(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    with pytest.raises(InvalidInputError, match="there is no hook 'nobody'"):
        world.apply(files({**REPORT, "hooks": ["nobody"]}))
    described = files({**REPORT, "hooks": ["pager"]})
    described["hooks"].append(PAGER)
    with pytest.raises(InvalidInputError, match="hook 'pager' takes no reports: pagerduty is for alerts"):
        world.apply(described)
    with pytest.raises(InvalidInputError, match="hook 'pager' takes no reports"):
        read_canary_files([("c.yaml", json.dumps(described))], {}, None)
    world.apply({**files(REPORT), "hooks": [*files(REPORT)["hooks"], PAGER]})
    site = Site(world=world)
    body = {"suite": "suite", "retriever": "search", "schedule": {"every": "5m"}}
    for hook, told in (("pager", "takes no reports"), ("nobody", "there is no hook")):
        answer = site.client().put("/v1/checks/mine", json={**body, "report": {**REPORT, "hooks": [hook]}})
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert error["path"] == "report.hooks"
        assert told in error["message"]


def test_a_hook_that_a_report_is_sent_to_is_in_use(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    site = Site(world=world)
    world.apply(files(None))
    client = site.client()
    assert client.put("/v1/hooks/mine", json={"kind": "webhook", "url": "https://x.test/"}).status_code == 201
    body: dict[str, Any] = {"suite": "suite", "retriever": "search", "schedule": {"every": "5m"}}
    body["report"] = {"cron": "0 8 * * mon", "hooks": ["mine"]}
    assert client.put("/v1/checks/mine", json=body).json()["report"] == {
        "cron": "0 8 * * mon",
        "timezone": "UTC",
        "hooks": ["mine"],
    }
    with pytest.raises(ConflictError, match="hook 'mine' is used by check mine"):
        definitions.archive(sqlite_store, "hook", "mine", now=world.clock())
    assert "mine" in site.page("/hooks/mine").text


@pytest.mark.parametrize(
    ("report", "told"),
    [
        ({**REPORT, "cron": "every monday"}, "report.cron"),
        ({**REPORT, "timezone": "Berlin"}, "report.timezone"),
        ({**REPORT, "hooks": []}, "report.hooks"),
        ({**REPORT, "hooks": ["ops", "ops"]}, "is listed twice"),
        ({**REPORT, "every": "1d"}, "report.every"),
    ],
)
def test_a_schedule_that_is_none_is_refused(report: dict[str, Any], told: str) -> None:
    fields = {"slug": "watch", "suite": "suite", "retriever": "search", "schedule": {"every": "5m"}, "report": report}
    with pytest.raises(ValueError, match=told):
        CheckDocument.model_validate(fields)


def test_the_form_keeps_a_report_and_yaml_has_it(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply({**files(None), "hooks": [*files(None)["hooks"], PAGER]})
    site = Site(world=world)
    form: dict[str, Any] = {
        "suite": "suite",
        "retriever": "search",
        "schedule": "every",
        "schedule.every": "5m",
        "k": "5",
    }
    form |= {
        "slug": "mine",
        "report.cron": "0 8 * * mon",
        "report.timezone": "Europe/Berlin",
        "report.hooks": ["team", "ops"],
    }
    client = site.client()
    yaml = page(client.post("/new-check", data={**form, "do": "yaml"})).one("pre").text
    assert "report: cron: 0 8 * * mon timezone: Europe/Berlin hooks: - team - ops" in yaml
    assert client.post("/new-check", data=form).status_code == 303
    assert client.get("/v1/checks/mine").json()["report"] == REPORT
    shown = site.page("/checks/mine/edit")
    assert _report_fields(shown) == ("* * mon", "8", "", {"team": True, "ops": True})
    words = shown.one("output", **{"data-cron": "report.cron"}).text
    assert words.startswith("Every Monday at 08:00 (Europe/Berlin); next: Mon ")
    assert re.search(
        r"every Monday at 08:00 \(Europe/Berlin\); next: Mon .* 08:00, Mon .* 08:00, Mon .* 08:00 0 8 \* \* mon, "
        "to team, ops",
        site.page("/checks/mine").text,
    )
    refused = page(client.post("/new-check", data={**form, "slug": "other", "report.hooks": "pager"}), 422)
    assert "Report recipients: hook 'pager' takes no reports" in refused.one("div", role="alert").text
    fewer = {**form, "report.cron": "", "revision": shown.one("input", name="revision").get("value")}
    assert client.post("/checks/mine/edit", data=fewer).status_code == 303
    assert client.get("/v1/checks/mine").json()["report"] is None


FORM: dict[str, Any] = {
    "slug": "mine",
    "suite": "suite",
    "retriever": "search",
    "schedule": "every",
    "schedule.every": "5m",
    "k": "5",
}
FORM |= {"report.hour": "8", "report.cron": ""}


def _report_fields(shown: Page) -> tuple[str, str, str, dict[str, bool]]:
    """Return day, hour and cron of a form's report, and which hooks are ticked of those that are offered."""
    chosen = [one.get("value") for one in shown.all("option") if "selected" in one.attributes]
    day = next(one for one in chosen if "*" in one or one in {"never", "cron"})
    hour = next(one for one in chosen if one.isdigit())
    ticks = {one.get("value"): "checked" in one.attributes for one in shown.all("input", name="report.hooks")}
    return day, hour, shown.one("input", name="report.cron").get("value"), ticks


@pytest.mark.parametrize(
    ("chosen", "stored", "again"),
    [
        ({"report.day": "* * mon-fri", "report.hour": "7"}, "0 7 * * mon-fri", ("* * mon-fri", "7", "")),
        ({"report.day": "1 * *", "report.hour": "0"}, "0 0 1 * *", ("1 * *", "0", "")),
        ({"report.day": "cron", "report.cron": "30 8 * * mon"}, "30 8 * * mon", ("cron", "8", "30 8 * * mon")),
        # What was typed counts though no day was chosen.
        ({"report.day": "never", "report.cron": "0 8 2 * *"}, "0 8 2 * *", ("cron", "8", "0 8 2 * *")),
        ({"report.day": "never"}, None, ("never", "8", "")),
    ],
)
def test_reports_are_chosen_by_day_and_hour(
    sqlite_store: Store, chosen: dict[str, str], stored: str | None, again: tuple[str, str, str]
) -> None:
    world = World(store=sqlite_store)
    world.apply({**files(None), "hooks": [*files(None)["hooks"], PAGER]})
    pages = Site(world=world)
    form = {**FORM, "report.hooks": "team", **chosen}
    assert pages.client().post("/new-check", data=form).status_code == 303
    report = pages.client().get("/v1/checks/mine").json()["report"]
    assert (report and report["cron"]) == stored
    shown = pages.page("/checks/mine/edit")
    assert _report_fields(shown) == (*again, {"team": stored is not None, "ops": False})  # no pager: it takes none
    if stored is not None:  # what the form showed of a cron does not keep it
        ending = {**form, "report.day": "never", "report.cron": again[2]}
        ending["revision"] = shown.one("input", name="revision").get("value")
        assert pages.client().post("/checks/mine/edit", data=ending).status_code == 303
        assert pages.client().get("/v1/checks/mine").json()["report"] is None


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"report.day": "* * mon", "report.hour": "25"}, "Hour of the report: is one of 0, 1, 2"),
        ({"report.day": "* * mon", "report.hour": ""}, "Hour of the report: is one of 0, 1, 2"),
        ({"report.day": "doomsday"}, "Report: is one of never, cron, "),
        (
            {"report.day": "* * mon", "report.cron": "0 9 * * *"},
            "Report times: is for reports by cron expression: empty it",
        ),
        ({"report.day": "cron"}, "Report times: is required"),
        ({"report.day": "cron", "report.cron": "whenever"}, "Report times: The cron `whenever` has 1 fields"),
        ({"report.day": "* * *", "report.hooks": []}, "Report recipients: "),
    ],
)
def test_an_unclear_time_of_reports_is_refused_beside_its_field(
    sqlite_store: Store, chosen: dict[str, Any], told: str
) -> None:
    world = World(store=sqlite_store)
    world.apply(files(None))
    form = {**FORM, "report.hooks": ["team"], **chosen}
    refused = page(Site(world=world).client().post("/new-check", data=form), 422)
    assert told in refused.one("div", role="alert").text
    assert refused.one("details", id="scheduled-report").get("open") == ""


def test_an_export_has_a_report_as_short_as_it_can_be_written() -> None:
    fields = {"slug": "watch", "suite": "suite", "retriever": "search", "schedule": {"every": "5m"}}
    without, with_one = (
        CheckDocument.model_validate({**fields, "report": one})
        for one in (None, {"cron": "0 8 * * 1", "hooks": ["ops"]})
    )
    assert "report" not in write_canary_file(Documents(checks=(without,)))
    written_out = write_canary_file(Documents(checks=(with_one,)))
    assert "timezone" not in written_out
    assert "report:" in written_out


@pytest.mark.databases
def test_old_reports_are_deleted_with_their_deliveries_and_those_to_be_sent_are_kept(world: World) -> None:
    mondays_report(world)
    world.deliver_all()
    mondays_report(world, weeks=1)
    later = MONDAY + timedelta(days=200)
    retention.prune(world.store, later, days=90)
    assert world.count("reports", "deliveries") == {"reports": 1, "deliveries": 2}
    world.deliver_all()
    retention.prune(world.store, later, days=90)
    assert world.count("reports", "deliveries", "attempts") == {"reports": 0, "deliveries": 0, "attempts": 0}
