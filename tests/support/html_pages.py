"""Pages as browsers take them: parsed with the standard library, so that tests ask for elements and not for text."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

BLOCKS = {"td", "th", "dt", "dd", "li", "p", "div", "summary", "h1", "h2", "h3"}
VOID = {"meta", "link", "img", "br", "hr", "input", "path", "line", "polyline", "source", "wbr"}


@dataclass(kw_only=True)
class Element:
    """A start tag with its attributes and all text inside."""

    tag: str
    attributes: dict[str, str]
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text inside, with its white space straightened."""
        return " ".join("".join(self.pieces).split())

    def get(self, name: str) -> str:
        """Give an attribute, empty where it is not there."""
        return self.attributes.get(name, "")


class Page(HTMLParser):
    """A parsed page. Raises AssertionError where elements are not properly nested."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(source)
        self.close()
        assert not self._open, f"never closed: {[element.tag for element in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute of <{tag}> comes twice: {names}"
        element = Element(tag=tag, attributes={name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag in BLOCKS:
            self.handle_data(" ")
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that closes itself."""
        self.elements.append(Element(tag=tag, attributes={name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """Check that it closes what was opened last."""
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        """Give text to every element around it."""
        for element in self._open:
            element.pieces.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Find elements; `class_` asks for one class of several, other attributes for equality."""
        wanted = attributes.pop("class_", None)
        return [
            element
            for element in self.elements
            if element.tag == tag
            and (wanted is None or wanted in element.get("class").split())
            and all(element.attributes.get(name) == value for name, value in attributes.items())
        ]

    def one(self, tag: str, **attributes: str) -> Element:
        """Find the only element of its kind."""
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} of <{tag} {attributes}>"
        return found[0]

    @property
    def text(self) -> str:
        """Everything that can be read in the body."""
        return self.one("body").text
