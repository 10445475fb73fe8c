"""The pictures of the README: a day of three checks over real retrievers, one losing chunks, in a real browser.

`make screenshots` writes them to docs/images. With a folder, `python -m tests.screenshots FOLDER`, every page is taken
into it instead, whole, on a desktop in light and on a phone in dark, to be looked at. Runs of the day are carried out
one after the other with the clock set to when they would have been; everything they asked and got is real.
"""

import json
import re
import shutil
import sys
from base64 import b64encode
from collections.abc import Mapping
from contextlib import ExitStack, chdir
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import yaml
from playwright.sync_api import Browser, Page, expect

from app.base.values import Trigger
from app.config import Settings
from app.demo.server import create_demo
from app.hooks.domain import Hook, HookKind, Mail, MailTls
from app.hooks.notices import email_body
from app.main import Service, create_app, open_service
from app.records.service.plans import Planner
from app.runs.service import due_checks, execution
from tests.support.browser import DESKTOP, PHONE, opened, running_chromium
from tests.support.fakes import FakeClock
from tests.support.living import LOOPBACK, Receiver, serving, until

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
BROKEN = "dataforge-docs"
CHECKS = (BROKEN, "dataforge-docs-eu", "dataforge-staging")
CANARY = "oauth2-setup"
EVERY = timedelta(minutes=30)
_WIDTH = 1200
_PICTURES = {
    "heatmap": ("/incidents/{incident}", "[aria-labelledby=title]", "[aria-labelledby=runs]"),
    "overview": ("/", "body", "table"),
    "check": (f"/checks/{BROKEN}", "[aria-labelledby=title]", "[aria-labelledby=every-canary]"),
    "canary": (f"/checks/{BROKEN}/canaries/{CANARY}", "[aria-labelledby=rankings]", "[aria-labelledby=rankings]"),
}
"""Of each picture the page, and the parts it begins and ends with."""
_MARGIN = 16
PAGES = (
    "/",
    f"/checks/{BROKEN}",
    f"/checks/{BROKEN}/quality?report=true",
    f"/checks/{BROKEN}/canaries/{CANARY}",
    f"/checks/{BROKEN}/reanchors",
    f"/checks/{BROKEN}/edit",
    "/checks/dataforge-staging",
    "/new-check",
    "/runs/{run}",
    "/compare?a=run:{good}&b=run:{run}",
    f"/compare?a=check:{BROKEN}&b=check:dataforge-staging",
    f"/compare/canary?a=check:{BROKEN}&b=check:dataforge-staging&key={CANARY}",
    "/alerts",
    "/alerts/{alert}",
    "/incidents/{incident}",
    "/hooks",
    "/hooks/ops",
    "/hooks/ops/edit",
    "/new-hook",
    "/deliveries",
    "/silences",
    "/new-silence",
    "/retrievers",
    f"/retrievers/{BROKEN}",
    f"/retrievers/{BROKEN}/try",
    f"/retrievers/{BROKEN}/map",
    "/new-retriever",
    "/suites",
    "/suites/dataforge",
    f"/suites/dataforge/canaries/{CANARY}",
    "/import",
    "/checks/nothing",
)


def main() -> None:
    """Live through the day and take the pictures."""
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory()))
        stack.enter_context(chdir(data))  # pages name the file without the folder
        demos = {check: stack.enter_context(serving(create_demo())) for check in CHECKS}
        receiver = stack.enter_context(Receiver().listening())
        (data / "canaries.yaml").write_text(yaml.safe_dump(_canaries(demos, receiver.url)), encoding="utf-8")
        settings = Settings(data_dir=data, canaries=Path("canaries.yaml"), hook_allow=LOOPBACK)
        _live_through_a_day(open_service(settings, environment={}, with_worker=False), demos)
        url = stack.enter_context(serving(create_app(open_service(settings, environment={}))))
        _break(url, demos)
        browser = stack.enter_context(running_chromium())
        if len(sys.argv) > 1:
            _every_page(browser, url, Path(sys.argv[1]))
        else:
            _readme(browser, url)
            _alert(browser, receiver, url)


def _alert(browser: Browser, receiver: Receiver, url: str) -> None:
    """Take what the newest page of the broken check says, as the hook kind `email` writes it."""
    notices = [json.loads(body) for _, body in receiver.received]
    notice = next(one for one in reversed(notices) if one["type"] == "alert.opened" and one["data"]["check"] == BROKEN)
    mail = Mail(host="mail", port=25, tls=MailTls.NONE, sender="coalmine@example.com", recipients=("ops@example.com",))
    picture = _heat_map(url)
    message = message_from_bytes(
        email_body(Hook(slug="ops", kind=HookKind.EMAIL, mail=mail), notice, "msg", picture), policy=default
    )
    html = message.get_body(("html",))
    assert html is not None
    shown = re.sub(r'src="cid:[^"]*"', f'src="{picture}"', html.get_content())  # a browser has no parts of a mail
    page = browser.new_page(viewport={"width": 900, "height": 400}, device_scale_factor=1.5)
    page.set_content(shown)
    page.screenshot(path=IMAGES / "alert.png", full_page=True)
    page.close()


def _heat_map(url: str) -> str:
    """Return the picture that such a mail carries, written in its address."""
    drawn = httpx2.get(f"{url}/heatmap/{BROKEN}.png", params={"columns": 40, "width": 640}).raise_for_status()
    return f"data:image/png;base64,{b64encode(drawn.content).decode()}"


def _readme(browser: Browser, url: str) -> None:
    shutil.rmtree(IMAGES, ignore_errors=True)
    IMAGES.mkdir(parents=True)
    viewport = {"width": _WIDTH, "height": 900}
    incident = httpx2.get(f"{url}/v1/alerts", params={"check": BROKEN}).json()["items"][0]["incident_id"]
    with opened(browser, url, viewport=viewport, device_scale_factor=1.5, timezone_id="Europe/Berlin") as tab:
        for name, (path, first, last) in _PICTURES.items():
            _settle(tab.open(path.format(incident=incident)))
            above, below = (tab.page.locator(part).first.bounding_box() for part in (first, last))
            assert above is not None
            assert below is not None
            top = max(0, above["y"] - _MARGIN)
            clip = {"x": 0, "y": top, "width": _WIDTH, "height": below["y"] + below["height"] + _MARGIN - top}
            tab.page.screenshot(path=IMAGES / f"{name}.png", clip=clip, full_page=True)  # type: ignore[arg-type] # a plain dictionary


def _every_page(browser: Browser, url: str, folder: Path) -> None:
    with httpx2.Client(base_url=url) as client:
        run = client.get(f"/v1/checks/{BROKEN}/health").json()["id"]
        good = next(one["id"] for one in client.get(f"/v1/checks/{BROKEN}/runs").json()["items"] if one["id"] != run)
        alert = client.get("/v1/alerts").json()["items"][0]
    named = {"run": run, "good": good, "alert": alert["id"], "incident": alert["incident_id"]}
    paths = [path.format(**named) for path in PAGES]
    for name, viewport, colours in (("desktop", DESKTOP, "light"), ("phone", PHONE, "dark")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        with opened(
            browser, url, expected=("404",), viewport=viewport, color_scheme=colours, timezone_id="Europe/Berlin"
        ) as tab:
            for path in paths:
                _settle(tab.open(path))
                file = re.sub(r"[^a-z0-9]+", "-", path).strip("-") or "overview"
                tab.page.screenshot(path=folder / name / f"{file}.png", full_page=True)


def _live_through_a_day(service: Service, demos: Mapping[str, str]) -> None:
    planner, clock = Planner(service.store, service.vault), FakeClock(now=datetime.now(UTC) - timedelta(days=1))
    try:
        while clock.advance(EVERY.total_seconds()) < datetime.now(UTC) - EVERY:
            lost = 0.15 if timedelta(hours=10) < datetime.now(UTC) - clock() < timedelta(hours=12) else 0.0
            _fault(demos[BROKEN], "loss" if lost else "none", size=lost)
            for check in CHECKS:
                run_id, _ = due_checks.run_now(
                    service.store,
                    check,
                    trigger=Trigger.SCHEDULE,
                    index_version=None,
                    idempotency_key=None,
                    now=clock(),
                )
                claimed = execution.begin(service.store, run_id, owner="day", now=clock())
                assert claimed is not None
                execution.execute(planner, service.probe, claimed, owner="day", clock=clock, stopping=lambda: False)
    finally:
        service.store.close()


def _break(url: str, demos: Mapping[str, str]) -> None:
    """Let one index lose chunks and one retriever fail, and wait until the causes are known."""
    _fault(demos[BROKEN], "loss", size=0.1)
    _fault(demos["dataforge-staging"], "errors", size=1.0)
    with httpx2.Client(base_url=url, timeout=90) as client:
        for check in (*CHECKS, BROKEN, BROKEN):
            answer = client.post(f"/v1/checks/{check}/runs", json={"wait_seconds": 60})
            assert answer.status_code == 200, answer.text
        until(lambda: client.get(f"/v1/checks/{BROKEN}/canaries/{CANARY}/diagnosis").status_code == 200, seconds=120)


def _fault(demo: str, kind: str, **more: Any) -> None:
    httpx2.post(f"{demo}/fault", json={"kind": kind, **more}).raise_for_status()


def _settle(page: Page) -> None:
    """Wait until charts are drawn; the service tells its news for ever, so that the network is idle is no sign."""
    for plot in page.locator(".plot:visible").all():
        expect(plot.locator("canvas")).to_be_visible()
    for picture in page.locator("picture.map img").all():
        picture.evaluate("one => one.decode()")
    for picture in page.locator("#heatmap img").all():
        expect(page.locator("#heatmap-note")).to_contain_text("since")
        picture.evaluate("one => one.decode()")


def _canaries(demos: Mapping[str, str], receiver: str) -> dict[str, Any]:
    """Take the shipped canaries for three retrievers and checks."""
    page: dict[str, Any] = yaml.safe_load((ROOT / "canaries" / "dataforge.yaml").read_text(encoding="utf-8"))
    retriever, check = page["retrievers"][0], page["checks"][0]
    page["retrievers"] = [{**retriever, "slug": slug, "url": f"{demo}/search"} for slug, demo in demos.items()]
    page["checks"] = [{**check, "slug": slug, "retriever": slug, "schedule": {"every": "30m"}} for slug in demos]
    page["hooks"] = [{"slug": "ops", "kind": "webhook", "url": receiver, "secret": f"whsec_{'ab' * 20}"}]
    return page


if __name__ == "__main__":
    main()
