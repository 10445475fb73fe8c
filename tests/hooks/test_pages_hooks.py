"""The pages of hooks and deliveries: how they fare, made and changed in forms, tested, replayed; secrets stay so."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from app.base.addresses import hook_policy
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.catalog.service import references
from app.catalog.store import FILE
from app.definitions.service import applying, definitions
from app.hooks.client.webhook import Sender
from app.hooks.documents import HookDocument
from app.hooks.domain import Receipt
from app.hooks.service import deliveries
from app.hooks.tables import deliveries as rows
from app.main import apply_canaries
from app.operation.service.self_monitor import Issue
from app.reports.metrics import SnapshotKeeper
from tests.support.fakes import answered, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, Site, csrf, page, site
from tests.support.receivers import ROUTING_KEY
from tests.support.world import COVERAGE, SECRET, canary, documents
from tests.support.world import page as canary_page

AT_ONCE = {"open": {"bad": 1, "of": 1}}
GONE = Receipt(ok=False, http_status=410, error="gone", detail="answered 410", untaken=True, gone=True)
DECLINED = Receipt(ok=False, http_status=400, error="http_4xx", detail="answered 400", untaken=True)
FORMS: dict[str, dict[str, str]] = {
    "webhook": {"url": "https://hooks.test/in?token=one", "secret": SECRET, "timeout": "20s"},
    "slack": {"url": "https://hooks.slack.com/services/T0/B0/private", "timeout": ""},
    "slack-app": {"token": "xoxb-private-token", "channel": "C0123456789", "url": ""},
    "pagerduty": {"routing_key": ROUTING_KEY, "url": ""},
    "alertmanager": {"url": "http://am.test:9093", "username": "ada", "password": "s3cret", "labels": "team=search\n"},
    "email": {
        "to": "ops@example.org\nada@example.org",
        "from": "coalmine@example.org",
        "host": "smtp.example.org",
        "port": "2525",
        "tls": "starttls",
        "username": "ada",
        "password": "s3cret",
    },
    "apprise": {"url": "ntfy://private-topic"},
}
SECRETS = (SECRET, "services/T0/B0/private", "xoxb-private-token", ROUTING_KEY, "s3cret", "private-topic")


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check whose alerts the hook `ops` of a file hears of."""
    return _begun(sqlite_store)


@pytest.fixture(scope="module")
def read(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to those that only look, or are refused."""
    return _begun(shared_stores())


def _begun(store: Store) -> Site:
    made = site(store)
    made.world.apply(canary_page([canary("ant"), canary("bee")], rules=[{**COVERAGE, **AT_ONCE}]))
    made.world.run()
    return made


def _make(pages: Site, kind: str = "webhook", slug: str = "chat", **more: str) -> Any:
    return pages.client().post("/new-hook", data={"kind": kind, "slug": slug, **FORMS[kind], **more})


def _body(pages: Site, slug: str = "chat") -> dict[str, Any]:
    return dict(references.load_definition(pages.world.store, "hook", slug).body)


def _secret(pages: Site, slug: str = "chat") -> dict[str, Any]:
    return definitions.stored_secrets(pages.world.store, pages.world.vault, "hook", slug)


def _change(pages: Site, slug: str = "chat", **fields: str) -> Any:
    form = pages.page(f"/hooks/{slug}/edit")
    typed = {one.get("name"): one.get("value") for one in form.all("input") if one.get("type") != "checkbox"}
    typed |= {one.get("name"): "".join(one.pieces) for one in form.all("textarea")}
    return pages.client().post(f"/hooks/{slug}/edit", data={**typed, **fields})


def _deliver(pages: Site) -> None:
    """Attempt what is due by the clock on the wall, by which pages write down what is wanted."""
    pages.world.clock.now = datetime.now(UTC) + timedelta(seconds=1)
    pages.world.deliver_all()


def _fault(pages: Site, *receipts: Receipt) -> None:
    """Open an alert, and let the hook answer so."""
    pages.world.probe.answers |= {query: answered(hits("noise")) for query in ("ant", "bee")}
    pages.world.run()
    pages.world.send.receipts = list(receipts)
    for left in reversed(range(len(receipts))):
        pages.world.deliver_all()
        pages.world.clock.advance(86_400 if left == 1 else 60)  # it is given up after a day


def _row(shown: Page, slug: str) -> str:
    (row,) = [element.text for element in shown.all("tr") if element.text.startswith(f"{slug} ")]
    return row


# --- the list and the page of one ---


def test_without_hooks_the_page_says_what_they_are_for(sqlite_store: Store) -> None:
    shown = site(sqlite_store).page("/hooks")
    assert "No hooks yet" in shown.text
    assert "alertmanager: an alert among those of Prometheus" in shown.text


def test_a_hook_is_listed_with_where_it_goes_who_uses_it_and_how_it_fares(pages: Site) -> None:
    assert "http://hook.test/ watch none yet 0 0 0" in _row(pages.page("/hooks"), "ops")
    _fault(pages, DECLINED, DECLINED, DECLINED)
    row = _row(pages.page("/hooks"), "ops")
    assert "dead opened" in row
    assert row.endswith("3 0 1")
    assert pages.page("/hooks").all("a", href="/deliveries?state=dead&hook=ops")


def test_what_an_address_asks_for_is_not_shown_on_a_list(pages: Site) -> None:
    assert _make(pages).status_code == 303
    assert "https://hooks.test/in?…" in _row(pages.page("/hooks"), "chat")


def test_a_hook_of_a_file_names_the_file_and_cannot_be_changed_here(read: Site) -> None:
    shown = read.page("/hooks/ops")
    assert shown.one("a", href="/hooks/ops/edit").text == "Edit in canaries.yaml:1"
    edited = read.page("/hooks/ops/edit")
    assert "Defined in canaries.yaml:1: change it there and apply." in edited.text
    assert "url: http://hook.test/" in edited.one("pre", id="yaml").text
    assert not edited.all("form", class_="editor")
    changed = _change(read, "ops", url="https://else.test/", revision="1")
    assert "managed by canaries.yaml" in page(changed, 409).text
    assert read.client().post("/hooks/ops/archive").status_code == 409
    assert _body(read, "ops")["url"] == "http://hook.test/"


def test_what_there_is_not_is_not_found_and_a_kind_there_is_not_is_refused(read: Site) -> None:
    client = read.client()
    for path in ("/hooks/nothing", "/hooks/nothing/edit", "/hooks/ops?test=77", "/hooks/ops?test=x"):
        assert client.get(path).status_code == 404, path
    for kind in ("", "carrier-pigeon"):
        assert client.post("/new-hook", data={"kind": kind, "slug": "chat"}).status_code == 422, kind
    assert client.get("/new-hook?kind=carrier-pigeon").status_code == 422


# --- making and changing ---


def test_a_hook_of_every_kind_is_made_in_a_form_and_its_secret_never_shown_and_kept(pages: Site) -> None:
    for kind, typed in FORMS.items():
        answer = _make(pages, kind, kind)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/hooks/{kind}?saved=yes")
        before = _body(pages, kind), _secret(pages, kind)
        assert HookDocument.model_validate(before[0] | before[1]).kind == kind
        assert set(before[1].values()) <= {*SECRETS, typed.get("url")}
        assert before[1]
        for path in ("/hooks", f"/hooks/{kind}", f"/hooks/{kind}/edit"):
            text = pages.client().get(path).text
            assert [secret for secret in SECRETS if secret in text] == [], path
        assert "is stored, and never shown" in pages.page(f"/hooks/{kind}").text
        assert _change(pages, kind).status_code == 303, "nobody types the secret again"
        assert (_body(pages, kind), _secret(pages, kind)) == before
        assert _change(pages, kind, timeout="30s").status_code == 303
        assert _body(pages, kind)["timeout"] == 30
        assert _secret(pages, kind) == before[1]


def test_a_saved_hook_leads_to_a_test_message_and_to_a_check(pages: Site) -> None:
    assert not pages.page("/hooks/ops").all("div", id="saved")
    used = pages.page("/hooks/ops?saved=yes")
    assert used.one("div", id="saved").text == "Saved. Next: send a test message."
    assert "Send a test message" in used.one("section", id="test").text
    assert used.all("a", href="#test")
    shown = pages.page(_make(pages).headers["location"])
    told = "Saved. Next: send a test message, then tick the checks whose alerts it receives."
    assert shown.one("div", id="saved").text == told
    assert shown.all("section", id="checks")


OF_API = {"suite": "suite", "retriever": "search", "schedule": {"every": "1h"}}


def _hooks(pages: Site, check: str) -> list[str]:
    return list(pages.client().get(f"/v1/checks/{check}").json()["hooks"])


def _checks_of(shown: Page) -> dict[str, tuple[bool, bool]]:
    """Return the listed checks, and of each whether it is ticked and may be changed."""
    boxes = shown.all("input", name="checks")
    return {one.get("value"): ("checked" in one.attributes, "disabled" not in one.attributes) for one in boxes}


def _choose(pages: Site, *ticked: str, before: str = "", **more: str) -> Any:
    return pages.client().post("/hooks/chat/checks", data={"checks": list(ticked), "before": before, **more})


def test_the_checks_that_notify_a_hook_are_ticked_all_at_once(pages: Site) -> None:
    _make(pages)
    for slug in ("one", "two", "three"):
        assert pages.client().put(f"/v1/checks/{slug}", json={**OF_API, "hooks": ["ops"]}).status_code == 201
    assert _choose(pages, "one", "three").headers["location"] == "/hooks/chat?changed=2#checks"
    assert (_hooks(pages, "one"), _hooks(pages, "two")) == (["ops", "chat"], ["ops"])
    shown = pages.page("/hooks/chat?changed=2")
    assert "Saved: 2 checks changed." in shown.one("section", id="checks").text
    assert _checks_of(shown) == {
        "one": (True, True), "three": (True, True), "two": (False, True), "watch": (False, False)
    }  # fmt: skip
    assert shown.one("input", name="before").get("value") == "one,three,"
    assert _choose(pages, "one", "two", before="one,three,").headers["location"] == "/hooks/chat?changed=2#checks"
    assert [_hooks(pages, one) for one in ("one", "two", "three")] == [["ops", "chat"], ["ops", "chat"], ["ops"]]
    assert _choose(pages, before="one,two,", do="all").headers["location"] == "/hooks/chat?changed=1#checks"
    assert all("chat" in _hooks(pages, one) for one in ("one", "two", "three"))
    assert _choose(pages, before="one,three,two,").headers["location"] == "/hooks/chat?changed=3#checks"
    assert not any("chat" in _hooks(pages, one) for one in ("one", "two", "three"))


def test_ticks_leave_alone_what_others_changed_meanwhile(pages: Site) -> None:
    _make(pages)
    for slug in ("one", "two"):
        assert pages.client().put(f"/v1/checks/{slug}", json={**OF_API, "hooks": ["chat"]}).status_code == 201
    opened = "one,"  # two was not yet ticked when the page was opened, and is not ticked in the form
    assert pages.client().put("/v1/checks/one", json={**OF_API, "hooks": ["ops", "chat"], "k": 7}).status_code == 200
    assert _choose(pages, "one", before=opened).headers["location"] == "/hooks/chat?changed=0#checks"
    assert (_hooks(pages, "one"), _hooks(pages, "two")) == (["ops", "chat"], ["chat"])
    assert pages.client().delete("/v1/checks/one").status_code == 204
    assert _choose(pages, "nowhere", before="one,").headers["location"] == "/hooks/chat?changed=0#checks"


def test_a_check_of_a_file_is_named_with_its_file_and_never_changed(pages: Site) -> None:
    _make(pages)
    assert pages.client().put("/v1/checks/one", json=OF_API).status_code == 201
    shown = pages.page("/hooks/ops")
    assert _checks_of(shown) == {"one": (False, True), "watch": (True, False)}
    assert "Checks of a file are changed there" in shown.one("section", id="checks").text
    refused = page(_choose(pages, "one", "watch"), 409)
    assert "heck 'watch' is managed by" in refused.one("p", role="alert").text
    assert _hooks(pages, "one") == []
    assert _choose(pages, do="all").headers["location"] == "/hooks/chat?changed=1#checks"
    assert _hooks(pages, "watch") == ["ops"]


def test_of_a_check_that_has_all_hooks_it_may_have_nothing_is_changed(pages: Site) -> None:
    _make(pages)
    names = [f"h{number}" for number in range(20)]
    for name in names:
        assert _make(pages, slug=name).status_code == 303
    assert pages.client().put("/v1/checks/full", json={**OF_API, "hooks": names}).status_code == 201
    assert pages.client().put("/v1/checks/able", json=OF_API).status_code == 201
    refused = page(_choose(pages, "full", "able"), 422)
    assert "Full: hooks: must have at most 20 entries" in refused.one("p", role="alert").text
    assert (_hooks(pages, "full"), _hooks(pages, "able")) == (names, [])
    assert pages.client().post("/hooks/none/checks", data={"checks": "able"}).status_code == 404


def test_a_hook_saved_before_any_check_shows_the_steps_to_one(sqlite_store: Store) -> None:
    empty = site(sqlite_store)
    shown = empty.page(_make(empty).headers["location"])
    assert shown.one("div", id="saved").text.startswith("Saved. Next: send a test message, then select it in a check.")
    assert "Done: A hook" in shown.one("ol", class_="setup").text
    assert shown.one("li", **{"aria-current": "step"}).text.startswith("A retriever")


def test_a_secret_is_replaced_when_typed_and_forgotten_when_asked(pages: Site) -> None:
    _make(pages)
    another = SECRET[:-4] + "YWJj"
    assert _change(pages, secret=another).status_code == 303
    assert _secret(pages) == {"secret": another}
    assert _change(pages, forget="on").status_code == 303
    assert _secret(pages) == {}
    assert "messages go unsigned" in pages.page("/hooks/chat").text


def test_a_password_is_not_sent_to_another_address_than_it_was_stored_for(pages: Site) -> None:
    _make(pages, "alertmanager")
    shown = page(_change(pages, url="http://elsewhere.test:9093"), 422)
    assert "enter the value again" in shown.one("span", id="wrong-password").text
    assert shown.one("input", name="url").get("value") == "http://elsewhere.test:9093"
    assert _body(pages)["url"] == "http://am.test:9093"
    assert _change(pages, url="http://elsewhere.test:9093", password="s3cret").status_code == 303


def test_what_is_wrong_is_said_beside_the_field_and_what_was_typed_is_kept(read: Site) -> None:
    typed = {**FORMS["email"], "slug": "Ops!", "kind": "email", "port": "many", "to": "ops@example.org\nnobody"}
    shown = page(read.client().post("/new-hook", data=typed), 422)
    assert "lower-case letters, digits and hyphens, not 'Ops!'; try 'ops'" in shown.one("span", id="wrong-slug").text
    assert "must be a whole number, not text" in shown.one("span", id="wrong-port").text
    assert "must be one plain address" in shown.one("span", id="wrong-to").text
    assert shown.one("input", name="port").get("value") == "many"
    assert shown.one("textarea", name="to").text == "ops@example.org nobody"
    assert "s3cret" not in shown.text


def test_labels_are_written_one_a_line(pages: Site) -> None:
    _make(pages, "alertmanager", labels="team=search\nplace = the cellar\n")
    assert _body(pages)["labels"] == {"team": "search", "place": "the cellar"}
    shown = page(_change(pages, labels="team"), 422)
    assert "line 1 is not of the form name=value" in shown.one("span", id="wrong-labels").text


def test_an_authority_and_a_proxy_are_typed_and_stay(pages: Site) -> None:
    certificate = "-----BEGIN CERTIFICATE-----\r\nMIIB\r\n-----END CERTIFICATE-----\r\n"
    assert _make(pages, authority=certificate, proxy="http://proxy.corp:3128").status_code == 303
    made = _body(pages)
    assert made["authority"].split() == certificate.split()
    assert made["proxy"] == "http://proxy.corp:3128"
    assert _change(pages, timeout="30s").status_code == 303
    assert (_body(pages)["authority"].split(), _body(pages)["proxy"]) == (certificate.split(), made["proxy"])
    assert _change(pages, authority="", proxy="none").status_code == 303
    assert (_body(pages)["authority"], _body(pages)["proxy"]) == (None, "none")
    shown = page(_change(pages, proxy="proxy.corp"), 422)
    assert "must be 'none' or an address such as" in shown.one("span", id="wrong-proxy").text


def test_a_name_that_is_taken_is_refused_and_nothing_replaced(pages: Site) -> None:
    _make(pages)
    shown = page(_make(pages, "slack"), 409)
    refusal = shown.one("span", id="wrong-slug").text
    assert "there is a hook 'chat' already; choose another name, such as 'chat-2', or change that one" in refusal
    assert _body(pages)["kind"] == "webhook"


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(pages: Site) -> None:
    _make(pages)
    stale = references.load_definition(pages.world.store, "hook", "chat").revision
    assert _change(pages, timeout="30s").status_code == 303
    shown = page(_change(pages, timeout="40s", revision=str(stale)), 409)
    assert "changed by somebody else" in shown.text
    assert _body(pages)["timeout"] == 30
    assert _change(pages, revision="x").status_code == 422


# --- testing and replaying ---


def test_a_test_is_shown_with_what_the_receiver_answered(pages: Site) -> None:
    answer = pages.client().post("/hooks/ops/test")
    assert answer.status_code == 303
    path = answer.headers["location"]
    waiting = pages.page(path)
    assert "Not tried yet" in waiting.text
    sent = waiting.one("div", id="sent")
    assert (sent.get("hx-get"), sent.get("data-every")) == (path.removesuffix("#test"), "1")
    pages.world.send.receipts = [DECLINED]
    _deliver(pages)
    tried = pages.page(path).one("section", id="test")
    assert "HTTP 400, declined it: answered 400" in tried.text
    assert "Next attempt" in tried.text
    pages.world.clock.advance(60)
    pages.world.deliver_all()
    done = pages.page(path)
    assert "The receiver took it." in done.one("section", id="test").text
    assert "data-every" not in done.one("div", id="sent").attributes, "nothing is left to come"


def test_what_is_tried_again_in_an_hour_is_not_looked_for_all_the_time(pages: Site) -> None:
    pages.client().post("/hooks/ops/test")
    pages.world.clock.now = datetime.now(UTC) + timedelta(seconds=1)
    pages.world.send.receipts = [Receipt(ok=False, http_status=503, error="http_5xx", retry_after_seconds=3600.0)]
    pages.world.deliver()
    assert pages.page("/hooks/ops").one("div", id="sent").get("data-every") == "15"


def test_a_hook_that_may_not_go_there_says_so_once_and_what_would_let_it(pages: Site) -> None:
    for slug, url, refused, address in (
        ("six", "http://[::1]:9/", "loopback address ::1", "::1"),
        ("cloud", "http://169.254.169.254/", "cloud metadata address 169.254.169.254", "169.254.169.254"),
        ("link", "http://169.254.1.2/", "link-local address 169.254.1.2", "169.254.1.2"),
    ):
        _make(pages, slug=slug, url=url)
        path = pages.client().post(f"/hooks/{slug}/test").headers["location"]
        pages.world.clock.now = datetime.now(UTC) + timedelta(seconds=1)
        pages.world.deliver(send=Sender(policy=hook_policy()))
        for told in (pages.page(path).one("section", id="test").text, _row(pages.page("/deliveries"), slug)):
            assert told.count("not allowed to connect") == 1
            assert f"not allowed to connect: {refused}. If it may be reached" in told
            assert f"set COALMINE_HOOK_ALLOW={address} (a comma between several) and restart the service." in told


def test_what_no_setting_opens_names_none(pages: Site) -> None:
    shut = Receipt(ok=False, error="blocked", detail="not allowed to connect: a service of this machine")
    _fault(pages, shut)
    for path in ("/deliveries", "/alerts/1", "/hooks/ops"):
        told = pages.page(path).text
        assert told.count("not allowed to connect") == 1, path
        assert "not allowed to connect: a service of this machine" in told
        assert "HOOK_ALLOW" not in told, path


def test_a_disabled_hook_says_so_and_takes_no_test(pages: Site) -> None:
    _make(pages)
    pages.client().post("/hooks/chat/test")
    pages.world.send.receipts = [GONE]
    _deliver(pages)
    shown = page(pages.client().post("/hooks/chat/test"), 409)
    assert "Disabled: " in shown.text
    assert "disabled" in _row(pages.page("/hooks"), "chat")
    assert _change(pages).status_code == 303
    assert references.load_definition(pages.world.store, "hook", "chat").disabled_reason is None


def test_dead_deliveries_say_why_and_are_replayed_one_by_one(pages: Site) -> None:
    _fault(pages, DECLINED, DECLINED, DECLINED)
    shown = pages.page("/deliveries?state=dead")
    row = _row(shown, "ops")
    assert "3 attempts" in row
    assert "gave up after 24 hours and 3 attempts" in row
    assert "until it is replayed" in shown.text
    told = pages.client().post("/deliveries/1/replay", data={"next": "/alerts/1"})
    assert (told.status_code, told.headers["location"]) == (303, "/alerts/1#delivery-1")
    _deliver(pages)
    assert "No delivery like that." in pages.page("/deliveries?state=dead").text
    assert "delivered" in _row(pages.page("/deliveries"), "ops")


def test_what_waits_for_the_message_before_it_says_so_instead_of_a_time_that_will_not_come(pages: Site) -> None:
    pages.world.probe.answers |= {query: answered(hits("noise")) for query in ("ant", "bee")}
    pages.world.run()
    pages.world.send.receipts = [Receipt(ok=False, error="timeout", detail="no answer")]
    pages.world.deliver()
    pages.world.probe.all_answer()
    pages.world.run()
    pages.world.run()
    for path in ("/deliveries", "/alerts/1", "/hooks/ops"):
        shown = pages.page(path).text
        assert shown.count("next attempt due") == 1, path
        assert shown.count("waits for the message before it") == 1, path
    led = [one.get("href") for one in pages.page("/hooks/ops").all("a") if one.text == "delivery 1"]
    assert led == ["/deliveries?state=pending&hook=ops#delivery-1"]
    assert "alert 1" in pages.page(led[0]).one("tr", id="delivery-1").text


def test_a_cancelled_delivery_says_that_it_is_never_sent_and_why(pages: Site) -> None:
    pages.world.probe.answers |= {query: answered(hits("noise")) for query in ("ant", "bee")}
    pages.world.run()
    pages.world.probe.all_answer()
    pages.world.run()
    pages.world.run()
    with pages.world.store.write() as connection:  # as earlier releases stored it
        connection.execute(sa.update(rows).values(reason="Sent to every hook that may have got a message of it."))
    for address in ("/deliveries", "/incidents/1"):
        shown = pages.page(address).text
        assert "never tried It will not be sent: its incident was resolved before it was tried." in shown, address
        assert "Sent to every hook" not in shown, address
        assert "not tried yet" not in shown, address


def test_what_is_not_dead_is_not_replayed_and_the_page_says_why(pages: Site) -> None:
    deliveries.send_test(pages.world.store, "ops", now=pages.world.clock())
    shown = page(pages.client().post("/deliveries/1/replay"), 409)
    assert "Not replayed: only a dead delivery can be replayed." in shown.one("p", class_="warning").text
    assert pages.client().post("/deliveries/99/replay").status_code == 404


def test_a_replay_leads_to_no_other_site(pages: Site) -> None:
    _fault(pages, DECLINED, DECLINED, DECLINED)
    told = pages.client().post("/deliveries/1/replay", data={"next": "//elsewhere.test/"})
    assert told.headers["location"] == "/deliveries#delivery-1"


def test_all_that_is_dead_of_a_hook_is_replayed_together(pages: Site) -> None:
    _fault(pages, DECLINED, DECLINED, DECLINED)
    shown = page(pages.client().post("/hooks/ops/replay"))
    assert "1 delivery put back into the outbox" in shown.one("p", role="status").text
    assert [one["state"] for one in pages.world.deliveries()] == ["pending"]


def test_deliveries_are_found_by_state_hook_and_alert_and_paged(pages: Site) -> None:
    _make(pages)
    for _ in range(26):
        deliveries.send_test(pages.world.store, "chat", now=pages.world.clock())
    _fault(pages)
    first = pages.page("/deliveries?hook=chat&state=pending")
    assert len(first.all("tr")) == 1 + 25
    (older,) = [link.get("href") for link in first.all("a") if link.text == "Older deliveries"]
    assert len(pages.page(older).all("tr")) == 1 + 1
    of_alert = pages.page("/deliveries?alert=1")
    assert _row(of_alert, "ops").startswith("ops opened, alert 1")
    assert len(of_alert.all("tr")) == 1 + 1
    assert "No delivery like that." in pages.page("/deliveries?alert=1&state=dead").text
    assert "is one of pending" in pages.page("/deliveries?state=lost", 422).text
    assert pages.client().get("/deliveries?alert=x").status_code == 404


# --- who may ---


def test_a_key_that_may_only_read_sees_everything_and_may_press_nothing(pages: Site) -> None:
    _make(pages)
    _fault(pages, DECLINED, DECLINED, DECLINED)
    client = pages.signed_in(pages.key(Scope.READ))
    for path in ("/hooks", "/hooks/chat", "/hooks/ops", "/hooks/chat/edit", "/new-hook?kind=slack", "/deliveries"):
        shown = page(client.get(path))
        inside = "disabled" in (shown.all("fieldset") or shown.all("body"))[0].attributes
        pressed = [one.text for one in shown.all("button") if "disabled" not in one.attributes and not inside]
        assert set(pressed) <= {"Menu", "Close", "Sign out", "Filter"}, path
    token = csrf(client)
    for path in ("/hooks/ops/test", "/hooks/ops/replay", "/hooks/chat/archive", "/deliveries/1/replay", "/new-hook"):
        assert client.post(path, data={"kind": "slack", "csrf": token}).status_code == 403, path


def test_what_receivers_answer_is_only_text(pages: Site) -> None:
    hostile = Receipt(ok=False, http_status=400, error=HOSTILE, detail=HOSTILE, untaken=True)
    _fault(pages, hostile, hostile, hostile)
    for path in ("/hooks", "/hooks/ops", "/deliveries", "/alerts/1"):
        shown = pages.page(path)
        assert not shown.all("img", src="x"), path
        assert all(script.get("src").startswith("/static/") for script in shown.all("script")), path
    assert HOSTILE in pages.page("/deliveries").text


# --- who sees where news goes ---

PATH = "T0000/B0000/xoxb-unguessable"


def test_the_path_of_a_webhook_may_be_a_password_and_is_for_admins_alone(pages: Site) -> None:
    url = f"https://hooks.test/{PATH}?token=hush"
    made = pages.client().put("/v1/hooks/chat", json={"kind": "webhook", "url": url})
    assert made.status_code == 201, made.text
    for scope in (scope for scope in Scope if scope.includes(Scope.READ)):
        client = pages.signed_in(pages.key(scope))
        shown = {path: client.get(path).text for path in ("/hooks", "/hooks/chat", "/hooks/chat/edit", "/v1/hooks")}
        shown |= {path: client.get(path).text for path in ("/v1/hooks/chat", "/v1/export")}
        whole = [path for path, text in shown.items() if PATH in text]
        if scope is Scope.ADMIN:
            assert set(whole) == {*shown}
            continue
        assert whole == [], scope
        assert "hush" not in "".join(shown.values())
        assert client.get("/v1/hooks/chat").json()["url"] == "https://hooks.test/…?…"
        assert "https://hooks.test/…?…" in _row(page(client.get("/hooks")), "chat")
        assert "url: ${HOOK_CHAT_URL}" in shown["/v1/export"]
        assert "url: http://hook.test/" in shown["/v1/export"]  # there is nothing to guess in it


def test_a_hook_that_takes_nothing_is_an_issue_of_the_service_until_it_does(pages: Site) -> None:
    exposition = pages.exposition
    keeper = SnapshotKeeper(exposition.snapshot, exposition.process.monitor, pages.world.store)
    client = pages.client()

    def attempt(*receipts: Receipt) -> None:
        pages.world.send.receipts = list(receipts)
        assert pages.world.deliver_all()
        pages.world.clock.advance(600)
        keeper.note_delivery()
        keeper.refresh_changed()

    keeper.refresh()
    _fault(pages)
    attempt(DECLINED)
    attempt(DECLINED)
    assert not exposition.process.monitor.has(Issue.DELIVERIES)
    attempt(DECLINED)
    told = "1 notification to hook ops failed three times or more"
    for path in ("/", "/suites", "/hooks/ops"):
        shown = pages.page(path)
        assert f"Notifications: {told}. Show pending deliveries" in shown.text
        assert shown.all("a", href="/deliveries?state=pending")
    assert "1 notification failed three times or more. Each is tried again" in shown.text
    assert client.get("/readyz").text.splitlines() == ["ok", f"deliveries: {told}"]
    assert 'coalmine_self_issue{issue="deliveries"} 1' in client.get("/metrics").text
    attempt()
    assert "Notifications:" not in pages.page("/").text
    assert client.get("/readyz").text.splitlines() == ["ok"]
    assert 'coalmine_self_issue{issue="deliveries"} 0' in client.get("/metrics").text


def test_what_waits_for_long_is_said_on_the_overview_but_for_test_messages(pages: Site) -> None:
    exposition, waits = pages.exposition, "to be delivered, the oldest for more than ten minutes"
    keeper = SnapshotKeeper(exposition.snapshot, exposition.process.monitor, pages.world.store)
    deliveries.send_test(pages.world.store, "ops", now=pages.world.clock.advance(1))
    keeper.refresh()
    assert waits not in pages.page("/").text
    _fault(pages)
    keeper.refresh()
    assert f"1 notification waits {waits}" in pages.page("/").text


def test_a_test_message_that_nobody_takes_is_no_issue(pages: Site) -> None:
    exposition = pages.exposition
    keeper = SnapshotKeeper(exposition.snapshot, exposition.process.monitor, pages.world.store)
    deliveries.send_test(pages.world.store, "ops", now=pages.world.clock.advance(1))
    for _ in range(4):
        pages.world.send.receipts = [DECLINED]
        pages.world.deliver_all()
        pages.world.clock.advance(600)
    keeper.refresh()
    assert not exposition.process.monitor.has(Issue.DELIVERIES)
    assert "Notifications:" not in pages.page("/").text


# --- incidents that a change leaves open at the receiver ---

OPEN_AT = "leaves 1 incident open at {}, which will not hear of the end: quality of check 'watch'"
LEFT = OPEN_AT.format("PagerDuty")


@pytest.fixture
def paged(pages: Site) -> Site:
    """Give the pages with an incident that was announced at PagerDuty, by a hook that no check uses any more."""
    _make(pages, "pagerduty")
    files = canary_page([canary("ant"), canary("bee")], rules=[{**COVERAGE, **AT_ONCE}], hooks=["ops", "chat"])
    pages.world.apply(files)
    _fault(pages)
    pages.world.deliver_all()
    pages.world.apply({**files, "checks": [{**files["checks"][0], "hooks": ["ops"]}]})
    return pages


def test_archiving_a_hook_with_an_open_incident_asks_first(paged: Site) -> None:
    asked = page(paged.client().post("/hooks/chat/archive"), 409)
    assert LEFT in asked.one("div", id="unended").text
    assert paged.client().get("/hooks/chat").status_code == 200
    (again,) = [one.get("action") for one in asked.all("form") if "force" in (one.get("action") or "")]
    assert paged.client().post(str(again)).headers["location"] == "/hooks"


def test_archiving_a_hook_whose_resolve_still_waits_asks_first(paged: Site) -> None:
    for _ in range(2):
        paged.world.heal()
    assert LEFT in page(paged.client().post("/hooks/chat/archive"), 409).text
    paged.world.deliver_all()
    assert paged.client().post("/hooks/chat/archive").headers["location"] == "/hooks"


def test_another_receiver_is_asked_about_while_the_present_one_has_an_open_incident(paged: Site) -> None:
    other = {"routing_key": "f" * 32}
    asked = page(_change(paged, **other), 409)
    assert LEFT in asked.one("div", id="unended").text
    assert _secret(paged)["routing_key"] == ROUTING_KEY
    assert _change(paged, timeout="9s").status_code == 303  # the same receiver
    assert _change(paged, **other, force="yes").status_code == 303
    assert _secret(paged)["routing_key"] == "f" * 32


def test_a_hook_whose_receiver_took_nothing_is_archived_at_once(pages: Site) -> None:
    _make(pages, "pagerduty")
    files = canary_page([canary("ant"), canary("bee")], rules=[{**COVERAGE, **AT_ONCE}], hooks=["ops", "chat"])
    pages.world.apply(files)
    _fault(pages)
    pages.world.send.receipts = [DECLINED, DECLINED]
    pages.world.deliver_all()
    pages.world.apply({**files, "checks": [{**files["checks"][0], "hooks": ["ops"]}]})
    assert pages.client().post("/hooks/chat/archive").headers["location"] == "/hooks"


def test_rest_answers_409_unless_forced(paged: Site) -> None:
    client = paged.client()
    refused = client.delete("/v1/hooks/chat")
    assert refused.status_code == 409
    expected = f"this change of hook 'chat' {LEFT}; wait for the end, or repeat with force=true"
    assert refused.json()["detail"].startswith(expected)
    for body in ({"kind": "pagerduty", "routing_key": "f" * 32}, {"kind": "webhook", "url": "http://else.test/"}):
        assert client.put("/v1/hooks/chat", json=body).status_code == 409
    inline = {
        **{name: value for name, value in _check_body(paged).items() if name != "hooks"},
        "hooks": [{"slug": "chat", "kind": "pagerduty", "routing_key": "f" * 32}],
    }
    assert client.put("/v1/checks/other", json=inline).status_code == 409
    assert client.put("/v1/hooks/chat", json={"kind": "pagerduty", "routing_key": ROUTING_KEY}).status_code == 200
    assert client.delete("/v1/hooks/chat?force=true").status_code == 204


def _check_body(pages: Site) -> dict[str, Any]:
    names = ("suite", "retriever", "schedule", "rules")
    stored = references.load_definition(pages.world.store, "check", "watch").body
    return {name: stored[name] for name in names}


def test_only_the_recipients_that_are_left_out_are_asked_about(pages: Site) -> None:
    mail = FORMS["email"]
    _make(pages, "email")
    files = canary_page([canary("ant"), canary("bee")], rules=[{**COVERAGE, **AT_ONCE}], hooks=["chat"])
    pages.world.apply(files)
    _fault(pages)
    pages.world.deliver_all()
    assert _change(pages, to=f"{mail['to']}\nbob@example.org").status_code == 303
    assert OPEN_AT.format("ada@example.org") in page(_change(pages, to="ops@example.org\nbob@example.org"), 409).text


def test_canary_files_that_leave_an_incident_open_say_so_and_are_applied(pages: Site) -> None:
    world, canaries = pages.world, [canary("ant"), canary("bee")]
    files = canary_page(canaries, rules=[{**COVERAGE, **AT_ONCE}])
    _fault(pages)
    world.deliver_all()
    moved = {**files, "hooks": [{**files["hooks"][0], "url": "http://else.test/"}]}
    left = OPEN_AT.format("the receiver at hook.test")
    (change,) = applying.diff(world.store, world.vault, documents(moved), managed_by=FILE, now=world.clock())
    assert change.note == f"WARNING: {left}"
    unhooked = {**files, "checks": [{**files["checks"][0], "hooks": []}], "hooks": []}
    notes = {(change.kind, change.action): change.note for change in world.apply(unhooked)}
    assert notes["hook", "archive"] == f"WARNING: {left}"
    assert pages.client().get("/hooks/ops").status_code == 404


def test_canary_files_at_a_start_log_what_they_leave_open(
    pages: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = pages.world
    _fault(pages)
    world.deliver_all()
    files = canary_page([canary("ant"), canary("bee")], rules=[{**COVERAGE, **AT_ONCE}], hooks=[])
    (tmp_path / "canaries.yaml").write_text(yaml.safe_dump({**files, "hooks": []}), encoding="utf-8")
    caplog.set_level(logging.WARNING)
    apply_canaries(tmp_path, world.store, world.vault, {"SEARCH_KEY": SECRET})
    (record,) = [one for one in caplog.records if one.message == "hook_changed"]
    left = OPEN_AT.format("the receiver at hook.test")
    assert (record.__dict__["hook"], record.__dict__["detail"]) == ("ops", f"WARNING: {left}")


def test_a_hook_that_goes_together_with_its_check_leaves_nothing_open(pages: Site) -> None:
    world = pages.world
    _fault(pages)
    world.deliver_all()
    changes = world.apply({**canary_page([canary("ant")]), "checks": [], "hooks": []})
    assert [(change.action, change.note) for change in changes if change.kind == "hook"] == [("archive", None)]
    world.deliver_all()
    assert [one["state"] for one in world.deliveries() if one["type"] == "alert.resolved"] == ["delivered"]
