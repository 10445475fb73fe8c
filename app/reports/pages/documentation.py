"""Help: the pages of docs/ within the service, as GitHub shows them, and their headings for the search.

They are read beside the code, like the migrations. A link between them leads to the same page here; one to another file
of the repository is its text alone. Each page is rendered once per process.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fastapi import Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from markupsafe import Markup

from app.base.api.requests import below, needs, page_router, sub_path
from app.base.db.keys import Scope
from app.base.errors import NotFoundError
from app.base.values import Value
from app.base.web.pages import render

if TYPE_CHECKING:
    from markdown_it.token import Token

router = page_router()

FOLDER = Path(__file__).resolve().parents[3] / "docs"
INDEX: Final = "README"
HELP: Final = "/help"


@router.get("/help")
@needs(Scope.READ, Scope.ANNOTATE)
def show_help(request: Request) -> HTMLResponse:
    """Show which pages there are, and what for; without any, a sentence."""
    return _show(request, INDEX)


@router.get("/help/{name:path}")
@needs(Scope.READ, Scope.ANNOTATE)
def show_help_page(request: Request, name: str) -> Response:
    """Show a page of the documentation, or send a file that one of them shows."""
    if f"{name}.md" in files():
        return _show(request, name)
    if name not in files():
        raise NotFoundError(f"the documentation has no page {name!r}")
    return FileResponse(FOLDER / name)


def _show(request: Request, name: str) -> HTMLResponse:
    page = read(name, sub_path(request.scope)) if files() else None
    return render(request, "reports/help.html", page=page, is_index=name == INDEX)


class Heading(Value):
    """A heading of a page, and its address from the root of the service."""

    text: str
    level: int
    anchor: str
    address: str


class HelpPage(Value):
    """A page; `body` is all behind its first heading."""

    title: str
    body: Markup
    headings: Sequence[Heading]
    """With that of the page, in their order."""


@cache
def files() -> Collection[str]:
    """Return the files of the documentation, below its folder; none where it was not installed."""
    return frozenset(one.relative_to(FOLDER).as_posix() for one in FOLDER.rglob("*") if one.is_file())


def pages() -> list[HelpPage]:
    """Return every page, for the search; the first one of a process takes a quarter of a second."""
    return [read(one.removesuffix(".md"), "") for one in sorted(files()) if one.endswith(".md")]


@cache
def read(name: str, path: str) -> HelpPage:
    """Return a page of a service below a path of its host; "" = at its root."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - a service whose manual nobody reads does without

    markdown = MarkdownIt("js-default")  # without HTML, which is shown as it stands
    tokens = markdown.parse((FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    headings = _mark_headings(name, tokens)
    for token in tokens:
        _fit_in(token, name, path)
    source = markdown.renderer.render(tokens[3:], markdown.options, {})  # the first three are the page's heading
    body = Markup(_TABLE.sub(_SCROLLED, source).replace("<pre>", '<pre tabindex="0">'))  # noqa: S704 - rendered by us
    return HelpPage(title=headings[0].text, body=body, headings=headings)


_TABLE: Final = re.compile(r"<table>.*?</table>", re.DOTALL)
_SCROLLED: Final = r'<div class="scroll" tabindex="0" role="group" aria-label="Table">\g<0></div>'
_NOT_IN_ANCHORS: Final = re.compile(r"[^\w\- ]")


def _mark_headings(name: str, tokens: Sequence["Token"]) -> list[Heading]:
    """Give each heading the id that GitHub gives it, and return them."""
    found: list[Heading] = []
    taken: dict[str, int] = {}
    for token, content in pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = "".join(one.content for one in content.children or ())
        anchor = _NOT_IN_ANCHORS.sub("", text.lower()).replace(" ", "-")
        taken[anchor] = taken.get(anchor, -1) + 1
        anchor += f"-{taken[anchor]}" if taken[anchor] else ""
        token.attrSet("id", anchor)
        level, address = int(token.tag[1:]), address_of(name)
        found.append(
            Heading(text=text, level=level, anchor=anchor, address=f"{address}#{anchor}" if level > 1 else address)
        )
    return found


def address_of(name: str) -> str:
    """Return the address of a page from the root of the service."""
    return HELP if name == INDEX else f"{HELP}/{name}"


def _fit_in(token: "Token", name: str, path: str) -> None:
    """Let what stands on a page be shown by our pages: links lead to our addresses, columns are aligned by a class."""
    style = token.attrs.pop("style", None)
    if style == "text-align:right":
        token.attrSet("class", "number")
    if token.children is not None:
        token.children = list(_linked(token.children, name, path))


def _linked(tokens: Sequence["Token"], name: str, path: str) -> Iterator["Token"]:
    """Yield what stands in a line; of links and pictures of what is not of the documentation their text alone."""
    is_left_out = False
    for token in tokens:
        attribute = {"link_open": "href", "image": "src"}.get(token.type, "")
        address = _resolve(name, str(token.attrs[attribute])) if attribute else None
        if token.type == "link_open":
            is_left_out = address is None
        if token.type == "image" and (address is None or "://" in address):
            yield token.copy(type="text")
        elif not (is_left_out and token.type in {"link_open", "link_close"}):
            if address is not None:
                token.attrSet(attribute, below(path, address))
            if token.type == "link_open" and "://" in str(address):
                token.attrSet("rel", "noreferrer")
            yield token


def _resolve(name: str, link: str) -> str | None:
    """Return the address of what a link of a page leads to; None = no part of the documentation."""
    target, _, anchor = link.partition("#")
    if "://" in link or not target:
        return link
    file = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    file = next((one for one in (file, f"{file}/{INDEX}.md") if one in files()), "")
    if not file:
        return None
    return address_of(file.removesuffix(".md")) + (f"#{anchor}" if anchor else "")
