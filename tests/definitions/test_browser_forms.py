"""Forms in a browser: what was typed is still there when one is refused, secrets too, which no response holds."""

import re

from playwright.sync_api import Browser, expect

from app.base.db.engine import Store
from app.definitions.service import definitions
from app.hooks.documents import HookDocument
from app.hooks.domain import HookKind
from app.retrievers.presets import PRESETS
from tests.support.browser import DESKTOP, PHONE, opened, served
from tests.support.fakes import FakeProbe
from tests.support.pages_service import site
from tests.support.world import canary
from tests.support.world import page as canary_page

MADE_UP = "whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQtZGVtbw=="


def test_a_refused_hook_form_keeps_the_secret_in_the_browser_and_out_of_every_response(
    chromium: Browser, sqlite_store: Store
) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    with served(bench.app()) as url, opened(chromium, url) as tab:
        bodies: list[str] = []
        page = tab.open("/new-hook?kind=webhook")
        page.on("response", lambda one: bodies.append(one.text()) if "/new-hook" in one.url else None)
        page.get_by_label("Name", exact=True).fill("Ops!")
        page.get_by_label("Address", exact=True).fill("https://example.org/hook")
        page.get_by_label("Signing secret").fill(MADE_UP)
        page.get_by_role("button", name="Create hook").click()
        expect(page.locator("#wrong-slug")).to_contain_text("lower-case letters")
        expect(page.get_by_label("Signing secret")).to_have_value(MADE_UP)
        page.get_by_label("Name", exact=True).fill("ops")
        page.get_by_role("button", name="Create hook").click()
        page.wait_for_url("**/hooks/ops?saved=yes")
        assert bodies
        assert not [body for body in bodies if MADE_UP in body]
    stored = definitions.stored_secrets(sqlite_store, bench.world.vault, "hook", "ops")
    assert stored["secret"] == MADE_UP


def test_a_refused_hook_form_frames_all_its_fields_and_takes_the_proposed_name(
    chromium: Browser, sqlite_store: Store
) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    with served(bench.app()) as url, opened(chromium, url) as tab:
        page = tab.open("/new-hook?kind=email")
        page.get_by_label("Name", exact=True).fill("team chat")
        page.get_by_role("button", name="Create hook").click()
        for name in ("slug", "to", "from", "host"):
            expect(page.locator(f"#wrong-{name}")).not_to_be_empty()
            expect(page.locator(f"#f-{name}")).to_have_attribute("aria-invalid", "true")
            assert page.locator(f"#f-{name}").evaluate("(one) => getComputedStyle(one).borderTopWidth") == "2px"
        page.get_by_role("button", name="Use team-chat").click()
        expect(page.get_by_label("Name", exact=True)).to_have_value("team-chat")
        expect(page.locator("#wrong-slug")).to_be_empty()
        page.get_by_label("To", exact=True).fill("ops@example.org")
        page.get_by_label("From").fill("coalmine@example.org")
        page.get_by_label("Mail server").fill("smtp.example.org")
        page.get_by_role("button", name="Create hook").click()
        page.wait_for_url("**/hooks/team-chat?saved=yes")


def test_a_generated_signing_secret_is_shown_once_and_taken(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    with served(bench.app()) as url, opened(chromium, url) as tab:
        page = tab.open("/new-hook?kind=webhook")
        page.get_by_role("button", name="Generate a secret").click()
        field = page.get_by_label("Signing secret")
        expect(field).to_have_value(re.compile(r"whsec_[A-Za-z0-9+/]{43}="))
        expect(field).to_have_attribute("type", "text")
        made = field.input_value()
        page.get_by_role("button", name="Generate a secret").click()
        assert field.input_value() != made
        made = field.input_value()
        HookDocument.model_validate(
            {"slug": "ops", "kind": "webhook", "url": "https://example.org/hook", "secret": made}
        )
        page.get_by_label("Name", exact=True).fill("ops")
        page.get_by_label("Address", exact=True).fill("https://example.org/hook")
        page.get_by_role("button", name="Create hook").click()
        page.wait_for_url("**/hooks/ops?saved=yes")
    assert definitions.stored_secrets(sqlite_store, bench.world.vault, "hook", "ops")["secret"] == made


def test_a_name_is_made_as_its_title_is_typed_until_somebody_types_one(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    bench.world.apply(canary_page([canary("a")]))
    with served(bench.app()) as url, opened(chromium, url) as tab:
        page = tab.open("/suites/suite/add")
        page.get_by_label("Query", exact=True).press_sequentially("How long?")
        key = page.get_by_label("Key", exact=True)
        expect(key).to_have_value("how-long")
        key.fill("mine")
        page.get_by_label("Query", exact=True).fill("Who pays?")
        expect(key).to_have_value("mine")
        key.fill("")
        page.get_by_label("Query", exact=True).fill("Who pays the hotel, and when?")
        expect(key).to_have_value("who-pays-the-hotel-and-when")
        page.get_by_role("button", name="Save the canary").click()
        expect(page.get_by_role("status").first).to_contain_text("who-pays-the-hotel-and-when")

        page = tab.open("/new-silence")
        page.get_by_label("Reason").fill("Index rebuild, until noon")
        expect(page.get_by_label("Name", exact=True)).to_have_value("index-rebuild-until-noon")

        page = tab.open("/new-check")
        name = page.get_by_label("Name", exact=True)
        made = [page.get_by_label(label, exact=True).input_value() for label in ("Suite", "Retriever")]
        expect(name).to_have_value("-".join(made))  # one suite and one retriever are chosen from the start


def test_two_questions_of_the_same_words_get_keys_of_their_own(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    bench.world.apply(canary_page([{**canary("who-pays"), "query": "Who pays?"}]))
    with served(bench.app()) as url, opened(chromium, url) as tab:
        page = tab.open("/suites/suite/add")
        page.get_by_label("Query", exact=True).fill("Who pays...?")
        expect(page.get_by_label("Key", exact=True)).to_have_value("who-pays")
        page.get_by_role("button", name="Save the canary").click()
        expect(page.get_by_role("status").first).to_contain_text(re.compile("who-pays-[0-9a-f]{8}"))


def test_a_private_address_is_told_while_it_is_typed_with_the_setting(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    with served(bench.app()) as url, opened(chromium, url) as tab:
        page = tab.open("/new-hook?kind=webhook")
        page.get_by_label("Name", exact=True).fill("ops")
        address = page.get_by_label("Address", exact=True)
        address.press_sequentially("http://127.0.0.1:9/hook")
        expect(page.locator("#reach")).to_contain_text("set COALMINE_HOOK_ALLOW=127.0.0.1 and restart the service")
        expect(page.get_by_label("Name", exact=True)).to_have_value("ops")
        address.fill("https://example.org/hook")
        expect(page.locator("#reach .banner")).to_have_count(0)
        address.fill("http://[::1]/")
        expect(page.locator("#reach")).to_contain_text("COALMINE_HOOK_ALLOW=::1")
        page.get_by_role("button", name="Create hook").click()
        page.wait_for_url("**/hooks/ops?saved=yes")
        expect(page.locator(".banner.warning")).to_contain_text("COALMINE_HOOK_ALLOW=::1")

        tab.open("/new-hook?kind=email").get_by_label("Mail server").fill("10.0.0.25")
        expect(page.locator("#reach")).to_contain_text("10.0.0.25 is a private address")


def test_while_no_hook_is_ticked_the_form_of_a_check_says_that_nobody_is_notified(
    chromium: Browser, sqlite_store: Store
) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    client = bench.client()
    address = {"kind": "webhook", "url": "https://hooks.test/"}
    for slug in ("one", "two"):
        assert client.put(f"/v1/hooks/{slug}", json=address).status_code in {200, 201}
    with served(bench.app()) as url, opened(chromium, url) as tab:
        page = tab.open("/new-check")
        unheard = page.get_by_text("No hook is selected: nobody will be notified.")
        expect(unheard).to_be_visible()
        page.get_by_role("checkbox", name=re.compile("^two")).check()
        expect(unheard).to_be_hidden()
        page.get_by_role("checkbox", name=re.compile("^two")).uncheck()
        expect(unheard).to_be_visible()


def test_a_cron_is_said_in_words_with_its_next_dates_while_it_is_typed(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    with served(bench.app()) as url, opened(chromium, url) as tab:
        page = tab.open("/new-check")
        words = page.locator("output[data-cron='schedule.cron']")
        expect(words).to_be_hidden()
        cron = page.get_by_role("textbox", name="Cron expression")
        cron.press_sequentially("0 8 * *")
        expect(words).to_contain_text("has 4 fields instead of five")
        expect(page.get_by_role("radio", name="Cron expression")).to_be_checked()
        cron.press_sequentially(" mon")
        expect(words).to_have_text(re.compile(r"^Every Monday at 08:00 \(UTC\); next: Mon .*, Mon .*, Mon "))
        page.get_by_label("Time zone", exact=True).fill("Asia/Tokyo")
        expect(words).to_contain_text("(Asia/Tokyo)")
        cron.fill("")
        expect(words).to_be_hidden()
        page.get_by_text("Scheduled report").click()
        page.get_by_label("Report", exact=True).select_option("Monday to Friday")
        page.get_by_label("Hour", exact=True).select_option("07:00")
        zone = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
        expect(page.get_by_label("Report zone")).to_have_value(zone)
        words = page.locator("output[data-cron='report.cron']")
        expect(words).to_have_text(
            re.compile(rf"^Monday to Friday at 07:00 \({zone}\); next: .* 07:00, .* 07:00, .* 07:00$")
        )
        page.get_by_label("Report", exact=True).select_option("no report")
        expect(words).to_be_hidden()
        page = tab.open("/new-silence")
        page.get_by_label("recurring").check()
        page.get_by_label("Cron expression").fill("30 1 * * 6,0")
        expect(page.locator("output[data-cron='cron']")).to_contain_text("Every Saturday and Sunday at 01:30")


CUT_OFF = """() => [...document.querySelectorAll("input[placeholder], textarea[placeholder]")].flatMap((field) => {
  for (let one = field.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
  const style = getComputedStyle(field), brush = document.createElement("canvas").getContext("2d");
  brush.font = style.font;
  const room = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return room > 0 && brush.measureText(field.placeholder).width > room ? [field.placeholder] : [];
})"""


def test_no_placeholder_of_a_form_is_cut_off(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    bench.world.apply(canary_page([canary("a")]))
    bench.world.run()
    forms = ["/new-check", "/suites", "/suites/suite/add", "/new-silence", "/import", "/checks/watch"]
    forms += ["/checks/watch/canaries/a", "/retrievers/search/try", "/login"]
    forms += [f"/new-hook?kind={kind}" for kind in HookKind] + [f"/new-retriever?preset={name}" for name in PRESETS]
    found: dict[str, list[str]] = {}
    with served(bench.app()) as url, opened(chromium, url) as tab:
        for path in forms:
            shown = tab.open(path)
            for name, viewport in (("desktop", DESKTOP), ("phone", PHONE)):
                shown.set_viewport_size({"width": viewport["width"], "height": viewport["height"]})
                found[f"{path} {name}"] = shown.evaluate(CUT_OFF)
    assert {place: cut for place, cut in found.items() if cut} == {}
