"""Words of the pages are few: a heading has at most twelve, a clause 25, a sentence forty; those of users aside."""

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from fastapi.routing import iter_route_contexts

from app.base.web.pages import STATIC
from tests.support.api_service import BASE
from tests.support.asgi_client import TestClient
from tests.support.filled_service import app_of, filled_api, names_of

HEADING, CLAUSE, SENTENCE = 12, 25, 40
HEADINGS = {"h1", "h2", "h3", "h4", "summary", "th", "dt", "label", "legend", "caption", "button"}
_BLOCKS = "p|div|ul|ol|li|dl|dd|td|table|thead|tbody|tr|section|article|nav|main|form|fieldset|details|figure|br"
_TAG = re.compile(
    rf'<(/?)({_BLOCKS}|figcaption|option|{"|".join(HEADINGS)})\b[^>]*>|<(span) class="[^"]*\b(?:quiet|sub)\b[^>]*>'
)
_OF_USERS = re.compile(r"<(code|pre|q|blockquote|textarea|script|style|svg|time)\b.*?</\1>|“[^”]*”", re.DOTALL)
_TITLES = re.compile(r'\s(?:title|alt|aria-label|placeholder)="([^"]*)"')
_ENDS = re.compile(r"(?<=[.?!])\s+(?=[A-Z0-9…])")
_VARIANTS = 20
"""Addresses that are visited of one page, such as the kinds of a form."""


def test_pages_say_it_in_few_words(tmp_path: Path) -> None:
    found: dict[str, str] = {}
    with filled_api(tmp_path) as service:
        client = TestClient(app_of(service), base_url=BASE, headers={"accept": "text/html"}, follow_redirects=True)
        names = names_of(service)
        routes = [str(one.path) for one in iter_route_contexts(app_of(service).routes) if "GET" in (one.methods or ())]
        pages = dict(_walk(client, [names.address(path) for path in routes if not path.startswith(_NO_PAGES)]))
        for address, source in pages.items():
            found |= {text: f"{address}: {count} words: {text}" for text, count in _too_long(source)}
    assert len(pages) > 150
    assert not found, "\n".join(found.values())


def test_scripts_say_it_in_few_words() -> None:
    texts = [text for file in STATIC.glob("*.js") for text in re.findall(r'["`]([^"`\n]{40,})["`]', file.read_text())]
    assert len(texts) > 10
    assert [text for text in texts for _ in _long_sentences(text)] == []


def test_a_long_heading_and_a_long_sentence_are_found_and_what_users_wrote_is_not() -> None:
    words = " ".join(["Word"] * 13)
    assert list(_too_long(f"<main><h2>{words}</h2>")) == [(words, 13)]
    assert list(_too_long(f"<main><h2>Canary <q>{words}</q> <span class='x'></span></h2><p>{words}</p>")) == []
    assert list(_too_long(f"<main><p>{words} {words}.</p>")) == [(f"{words} {words}.", 26)]
    assert list(_too_long(f"<main><p>{words}; {words}. {words}.</p>")) == []
    assert [count for _, count in _too_long(f"<main><p>{words}; {words}; {words}; {words}.</p>")] == [52]
    assert list(_too_long(f'<main><a title="{words} {words}">x</a>')) == [(f"{words} {words}", 26)]


_NO_PAGES = ("/v1/", "/static", "/docs", "/help", "/openapi", "/badge", "/heatmap")
"""No pages, and those of the documentation: prose, to be read in peace."""


def _walk(client: TestClient, waiting: list[str]) -> Iterator[tuple[str, str]]:
    """Give the sources of these pages and of those they lead to."""
    met: set[str] = set()
    variants: Counter[str] = Counter()
    while waiting:
        address = waiting.pop().partition("#")[0]
        path = urlsplit(address).path
        if address in met or variants[path] >= _VARIANTS or path.startswith(_NO_PAGES):
            continue
        met.add(address)
        variants[path] += 1
        response = client.get(address)
        if response.headers.get("content-type", "").startswith("text/html"):
            yield address, response.text
            links = [urljoin(f"{BASE}{address}", unescape(one)) for one in re.findall(r'href="([^"]*)"', response.text)]
            waiting += [one.removeprefix(BASE) for one in links if one.startswith(f"{BASE}/")]


def _too_long(source: str) -> Iterator[tuple[str, int]]:
    """Give the headings and sentences of a page that are too long, with the number of their words."""
    source = _OF_USERS.sub("…", source[source.index("<main") :])
    for title in _TITLES.findall(source):
        yield from _long_sentences(unescape(title))
    tag, start = "main", 0
    for found in _TAG.finditer(source):
        yield from _long_texts(tag, source[start : found.start()])
        tag, start = found[3] or (found[2] if not found[1] else "main"), found.end()
    yield from _long_texts(tag, source[start:])


def _long_texts(tag: str, source: str) -> Iterator[tuple[str, int]]:
    text = " ".join(unescape(re.sub(r"<[^>]*>", " ", source)).split())
    if tag in HEADINGS and len(text.split()) > HEADING:
        yield text, len(text.split())
    else:
        yield from _long_sentences(text)


def _long_sentences(text: str) -> Iterator[tuple[str, int]]:
    for sentence in _ENDS.split(text):
        if len(sentence.split()) > SENTENCE or any(len(clause.split()) > CLAUSE for clause in sentence.split("; ")):
            yield sentence, len(sentence.split())
