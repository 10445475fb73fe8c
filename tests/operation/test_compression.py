"""What is compressed: pages, JSON, styles, scripts and metrics for who accepts it; never event streams."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.support.api_service import BASE, Api
from tests.support.asgi_client import TestClient
from tests.support.filled_service import app_of, filled_api
from tests.support.living import serving


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with filled_api(tmp_path_factory.mktemp("filled")) as service:
        yield service


def read(service: Api, path: str, encoding: str = "gzip", **headers: str) -> httpx2.Response:
    client = TestClient(app_of(service), base_url=BASE, headers={"accept": "*/*", "accept-encoding": encoding})
    return client.get(path, headers=headers)


DOCS = "/static/vendor/swagger-ui/swagger-ui-bundle.js"
PATHS = ("/", "/checks/docs", "/v1/checks", "/openapi.json", DOCS, "/metrics", "/static/site.css", "/static/site.js")


@pytest.mark.parametrize("path", PATHS)
def test_what_has_many_bytes_is_compressed_for_who_accepts_it(filled: Api, path: str) -> None:
    short, whole = read(filled, path), read(filled, path, "identity")
    assert short.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in whole.headers
    assert "Accept-Encoding" in short.headers["vary"]
    assert "Accept-Encoding" in whole.headers["vary"], "a cache keeps both forms apart"
    assert int(short.headers["content-length"]) < len(whole.content) / 1.8
    if path.startswith("/static/"):
        assert short.content == whole.content


@pytest.mark.parametrize("encoding", ["", "identity", "br", "gzip;q=0", "br, gzip; q=0.0, *"])
def test_who_does_not_accept_it_gets_what_it_can_read(filled: Api, encoding: str) -> None:
    for path in ("/", "/static/site.css"):
        assert "content-encoding" not in read(filled, path, encoding).headers


def test_what_is_small_stays_as_it_is(filled: Api) -> None:
    assert "content-encoding" not in read(filled, "/livez").headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_asks_for_is_not_compressed(filled: Api, site: str) -> None:
    assert "content-encoding" not in read(filled, "/", **{"sec-fetch-site": site}).headers
    for own in ("same-origin", "none"):
        assert read(filled, "/", **{"sec-fetch-site": own}).headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("path", ["/static/site.css", "/badge/docs.svg"])
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_a_tag_holds_for_both_forms_and_saves_the_second_answer(filled: Api, path: str, encoding: str) -> None:
    first = read(filled, path, encoding)
    assert first.headers["etag"].startswith('W/"'), "a strong one would promise the same bytes"
    again = read(filled, path, "gzip", **{"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert "content-encoding" not in again.headers


def test_a_part_of_a_file_is_of_the_file_itself(filled: Api) -> None:
    part = read(filled, "/static/site.css", range="bytes=0-9")
    assert (part.status_code, len(part.content)) == (206, 10)
    assert "content-encoding" not in part.headers


def test_the_head_of_a_page_is_that_of_the_page(filled: Api) -> None:
    client = TestClient(app_of(filled), base_url=BASE, headers={"accept-encoding": "gzip"})
    head, whole = client.head("/static/site.css"), client.get("/static/site.css")
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert head.content == b""


def test_an_event_stream_comes_as_it_is_and_at_once(filled: Api) -> None:
    with (
        serving(app_of(filled), lifespan="off") as url,
        httpx2.stream("GET", f"{url}/v1/events?seconds=2", headers={"accept-encoding": "gzip"}) as stream,
    ):
        assert "content-encoding" not in stream.headers
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert next(stream.iter_raw()), "before anything has happened"
