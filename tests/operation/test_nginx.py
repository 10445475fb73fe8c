"""Below a path of a host, behind a real nginx as docs/operations.md sets it up: with the path taken off, and left."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from app.base.db import keys
from app.base.db.keys import Scope
from tests.support.browser import opened
from tests.support.doc_pages import blocks
from tests.support.http_servers import peer, reply
from tests.support.living import coalmine, until
from tests.support.processes import free_ports

pytestmark = pytest.mark.systems(seconds=30)

PATH = "/coalmine"
CANARIES = [{"key": "a", "query": "alpha", "expected_chunks": ["doc-alpha"]}]
FRAME = """
{user} daemon off; pid {folder}/nginx.pid; error_log stderr warn;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    {location}
  }}
}}
"""


@contextmanager
def nginx(folder: Path, port: int, service: str, *, strips: bool) -> Iterator[None]:
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("needs nginx, which make test-systems installs where it may (root and apt-get)")
    written = [block.text for block in blocks("docs/operations.md") if block.language == "nginx"]
    (block,) = [text for text in written if "location /coalmine/ {" in text]
    assert "proxy_pass http://127.0.0.1:8000/;" in block
    location = block.replace("http://127.0.0.1:8000/;", f"{service}{'/' if strips else ''};")
    location = location.replace("Host $host;", "Host $http_host;")  # with the port, which here is none of the usual
    user = "user root;" if os.geteuid() == 0 else ""  # whose folder others may not enter
    file = folder / "nginx.conf"
    file.write_text(FRAME.format(user=user, folder=folder, port=port, location=location), encoding="utf-8")
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen([program, "-c", str(file), "-p", str(folder)], stderr=log)  # noqa: S603 - Debian's
    try:
        until(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, (folder / "nginx.log").read_text()
        yield
    finally:
        process.terminate()
        process.wait(20)


def _answers(port: int) -> bool:
    try:
        httpx2.get(f"http://127.0.0.1:{port}/")
    except httpx2.HTTPError:
        return False
    return True


@pytest.mark.parametrize("strips", [True, False], ids=["path taken off", "path left"])
def test_pages_streams_and_the_api_work_behind_nginx(
    chromium: Browser,
    tmp_path: Path,
    strips: bool,  # noqa: FBT001 - a parameter
) -> None:
    port = free_ports()
    address = f"http://127.0.0.1:{port}{PATH}"
    found = reply(b'{"results": [{"id": "doc-alpha"}]}')
    with (
        peer(found) as retriever,
        coalmine(tmp_path / "data", public_url=address) as (service_url, service),
        nginx(tmp_path, port, service_url, strips=strips),
    ):
        key = keys.create_key(service.store, name="me", scope=Scope.ADMIN, now=datetime.now(UTC))
        client = httpx2.Client(headers={"authorization": f"Bearer {key}"})
        for path, body in {
            "suites/small": {"canaries": CANARIES},
            "retrievers/there": {"url": retriever.url, "response": {"hits": "results", "id": "id"}},
            "checks/watch": {"suite": "small", "retriever": "there", "schedule": {"every": "1d"}},
        }.items():
            assert client.put(f"{address}/v1/{path}", json=body).is_success
        pages = client.get(f"{address}/", headers={"accept": "text/html"})
        assert pages.headers["content-encoding"] == "gzip"
        with client.stream("GET", f"{address}/v1/events?seconds=5") as stream:
            assert next(stream.iter_raw()), "nginx holds nothing back"
        with opened(chromium, f"http://127.0.0.1:{port}", expected=("404 (Not Found)",)) as tab:
            asked: list[str] = []
            tab.page.on("request", lambda request: asked.append(urlsplit(request.url).path))
            page = tab.open(f"{PATH}/checks/watch")
            page.get_by_label("API key").fill(key)
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(f"**{PATH}/checks/watch")
            page.get_by_role("button", name="Run now").click()
            expect(page.locator(f'a[href^="{PATH}/runs/"]').first).to_be_visible()
            with page.expect_request(f"**{PATH}/v1/events"):
                page.get_by_role("link", name="Incidents", exact=True).click()
                page.wait_for_url(f"**{PATH}/alerts")
            page.get_by_role("link", name="Set up", exact=True).click()
            page.get_by_role("link", name="API", exact=True).click()
            # Swagger UI draws what is in view of so many operations: one of the first.
            expect(page.get_by_text("/v1/retrievers/{slug}", exact=True).first).to_be_visible()
            page.go_back()
            page.get_by_role("button", name="Sign out").click()
            page.wait_for_url(f"**{PATH}/login")
            assert [one for one in asked if not one.startswith(f"{PATH}/") and one != "/favicon.ico"] == []
