"""Judgments put in the place of others in the text of a canary file, as a patch to be looked at and committed.

Only what changes is touched: comments, order and layout of the rest stay. Where a text cannot be changed in place (an
anchor stands there, a variable, or the file says something else by now), there is no patch.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import yaml

from app.formats.catalog.canary_documents import CanaryDocument, JudgmentDocument
from app.formats.fields import parse_scalar
from app.formats.yaml_source import escape_dollars

_LISTS = ("expected_chunks", "expected_top_chunks")
_CONTEXT = 3
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A judgment of a canary, and what is to stand in its place."""

    suite: str
    key: str
    old: JudgmentDocument
    new: tuple[JudgmentDocument, ...]
    """None of them: it goes, because what takes its place stands there already."""


def patch_text(name: str, text: str, wanted: Sequence[Replacement]) -> str | None:
    """Give the unified diff that replaces these judgments in a canary file; None where that cannot be written.

    Lines beyond the canaries are never quoted, nor is a comment, not even as context: what stands there may be secret.
    The time it takes grows with the text, not with its square.
    """
    if text.startswith("\ufeff"):  # which marks of the parser do not count
        return None
    names = {(one.suite, one.key) for one in wanted}
    try:
        pages = _pages(text)
        before = _judgments(pages, names)
        edits = sorted((_edit(text, before, one) for one in wanted), key=lambda edit: edit.start)
        changed = _edited(text, edits, 0, len(text))
        after = _judgments(_pages(changed), names)
    except (yaml.YAMLError, ValueError, LookupError, RecursionError):
        return None
    if any(judgment_name(new) not in after[one.suite, one.key] for one in wanted for new in one.new):
        return None
    return _diff(name, text, edits, pages)


def judgment_text(judgment: JudgmentDocument) -> str:
    """Write a judgment on one line, as it may stand in any list of a canary file: short where it is an id alone."""
    lean = judgment.model_dump(mode="json", exclude_defaults=True)
    if lean.keys() == {"id"}:
        return _quoted(lean["id"])
    return "{" + ", ".join(f"{name}: {_quoted(value)}" for name, value in lean.items()) + "}"


def replace_judgments(canary: CanaryDocument, wanted: Mapping[str, Sequence[JudgmentDocument]]) -> dict[str, Any]:
    """Give the body of a canary with other judgments in the place of those named, by `judgment_name`.

    Where the new one stands there already, the old one goes: no judgment is listed twice, and the higher grade holds.
    """
    chunks: dict[tuple[str | None, ...], JudgmentDocument] = {}
    for chunk in canary.expected_chunks:
        for one in wanted.get(judgment_name(chunk), (chunk,)):
            entry = chunks.setdefault(one.identity, one)
            if entry.grade < one.grade:
                chunks[one.identity] = one
    return {**canary.data(), "expected_chunks": [chunk.data() for chunk in chunks.values()]}


def judgment_name(judgment: JudgmentDocument) -> str:
    """Name a judgment by what it says: equal ones have equal names."""
    return json.dumps(judgment.data(), sort_keys=True)


def _quoted(value: Any) -> str:
    """Write a scalar as YAML within a flow collection; what is not seen as it stands is escaped."""
    if not isinstance(value, str):
        return json.dumps(value)
    escaped = escape_dollars(value)
    if _PLAIN.fullmatch(escaped) and parse_scalar(escaped) == yaml.load(escaped, Loader=_LOADER) == escaped:  # noqa: S506 - a safe one
        return escaped
    written = json.dumps(escaped, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in written)


_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """What is written from one character of a text up to another."""

    start: int
    end: int
    written: str


_Judgments = Mapping[tuple[str, str], Mapping[str, tuple[Any, Any]]]
"""By suite and key of a canary: its judgments by name, each as the list and the node that it is."""


def _pages(text: str) -> list[Any]:
    """Read the pages of a text as nodes. Raises ValueError where one is used twice: both places would change."""
    pages = list(yaml.compose_all(text, Loader=_LOADER))
    node_ids: set[int] = set()
    for node in _nodes(pages):
        if id(node) in node_ids:
            raise ValueError("a node is used twice")
        node_ids.add(id(node))
    return pages


def _nodes(pages: Sequence[Any]) -> Iterator[Any]:
    """Yield every node of pages, those of mappings' keys too."""
    left = [page for page in pages if page is not None]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, yaml.MappingNode):
            left += [one for pair in node.value for one in pair]
        elif isinstance(node, yaml.SequenceNode):
            left += node.value


def _judgments(pages: Sequence[Any], names: Collection[tuple[str, str]]) -> _Judgments:
    """Find the judgments of these canaries that say in so many words what they say; the first of two alike."""
    nodes: dict[tuple[str, str], dict[str, tuple[Any, Any]]] = {name: {} for name in names}
    for page in _in_lines(pages):
        suite = _scalar(_child(page, "suite"))
        for canary in _items(_child(page, "canaries")):
            mine = nodes.get((suite or "", _scalar(_child(canary, "key")) or ""))
            for chunks in [_child(canary, name) for name in _LISTS] if mine is not None else ():
                for node in _items(chunks):
                    judgment = _said(node)
                    if judgment is not None and mine is not None:
                        mine.setdefault(judgment, (chunks, node))
    return nodes


def _in_lines(pages: Sequence[Any]) -> Iterator[Any]:
    """Yield the pages that are not written on one line: secrets may stand on that too."""
    return (page for page in pages if not getattr(page, "flow_style", True))


def _edit(text: str, judgments: _Judgments, wanted: Replacement) -> _Edit:
    """Say what is to be written where. Raises LookupError where the judgment does not stand there."""
    chunks, node = judgments[wanted.suite, wanted.key][judgment_name(wanted.old)]
    if not wanted.new:
        return _removal(text, chunks, node)
    between = ", " if chunks.flow_style else f"\n{' ' * chunks.start_mark.column}- "
    start = node.start_mark.index
    end = start + len(text[start : _end(node)].rstrip("\r\n "))
    return _Edit(start=start, end=end, written=between.join(map(judgment_text, wanted.new)))


def _removal(text: str, chunks: Any, node: Any) -> _Edit:
    """Say what is to be cut out so that a judgment goes. Raises LookupError where more than it would go."""
    place = chunks.value.index(node)
    if chunks.flow_style and len(chunks.value) > 1:
        if place:
            return _Edit(start=_end(chunks.value[place - 1]), end=_end(node), written="")
        return _Edit(start=node.start_mark.index, end=chunks.value[1].start_mark.index, written="")
    start = text.rfind("\n", 0, node.start_mark.index) + 1
    end = text.find("\n", _end(node)) + 1 or len(text)
    alone = not text[start : node.start_mark.index].strip(" -") and not text[_end(node) : end].strip()
    if chunks.flow_style or len(chunks.value) == 1 or not alone:
        raise LookupError("it does not stand alone on its lines")
    return _Edit(start=start, end=end, written="")


def _edited(text: str, edits: Sequence[_Edit], start: int, end: int) -> str:
    """Give a part of a text with the edits that are in it, in order. Raises ValueError where two overlap."""
    pieces = []
    for one in edits:
        if one.start < start:
            raise ValueError("a judgment is to be replaced twice")
        pieces += [text[start : one.start], one.written]
        start = one.end
    return "".join([*pieces, text[start:end]])


def _said(node: Any) -> str | None:
    """Name the judgment that a node is; None = none, or not in so many words."""
    try:
        return judgment_name(JudgmentDocument.model_validate(_plain(node)))
    except ValueError:
        return None


def _plain(node: Any) -> Any:
    """Give the value of a node that says what it says in itself: no variable, nothing merged."""
    if isinstance(node, yaml.ScalarNode):
        if "${" in node.value.replace("$$", ""):
            return None  # what the variable stands for is not in the file
        return node.value.replace("$$", "$") if node.style else parse_scalar(node.value.replace("$$", "$"))
    if isinstance(node, yaml.MappingNode):
        return {_scalar(key): _plain(value) for key, value in node.value}
    return None


def _child(node: Any, name: str) -> Any:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if _scalar(key) == name), None)


def _items(node: Any) -> Sequence[Any]:
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _scalar(node: Any) -> str | None:
    return node.value if isinstance(node, yaml.ScalarNode) else None


def _end(node: Any) -> int:
    """Say where a node ends; one in block style ends with its last scalar, not where the next token begins."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    parts = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
    # What is left out has no place of its own and may be said to stand wherever something else does.
    written = [one for one in parts if one.start_mark.index < one.end_mark.index]
    return max(map(_end, written), default=int(node.start_mark.index))


def _diff(name: str, text: str, edits: Sequence[_Edit], pages: Sequence[Any]) -> str | None:
    """Write a unified diff whose context stays within the lines that may be shown; None = too little to be applied."""
    lines = _Lines.of(text, pages)
    hunks: list[list[_Change]] = []
    for one in _changes(text, edits, lines):
        if any(line in lines.commented for line in range(one.first, one.end)):
            return None
        gap = range(hunks[-1][-1].end, one.first) if hunks else None
        if gap is not None and len(gap) <= 2 * _CONTEXT and all(map(lines.may_show, gap)):
            hunks[-1].append(one)
        else:
            hunks.append([one])
    written, grown = [f"--- a/{name}\n+++ b/{name}\n"], 0
    for hunk in hunks:
        first, last = hunk[0].first, hunk[-1].end
        while first > max(0, hunk[0].first - _CONTEXT) and lines.may_show(first - 1):
            first -= 1
        while last < min(len(lines.texts), hunk[-1].end + _CONTEXT) and lines.may_show(last):
            last += 1
        if first == hunk[0].first > 0 or len(lines.texts) > last == hunk[-1].end:
            return None
        more = sum(len(one.new) - (one.end - one.first) for one in hunk)
        written.append(f"@@ -{first + 1},{last - first} +{first + grown + 1},{last - first + more} @@\n")
        grown += more
        for one in hunk:
            written += [_line(" ", line) for line in lines.texts[first : one.first]]
            written += [_line("-", line) for line in lines.texts[one.first : one.end]]
            written += [_line("+", line) for line in one.new]
            first = one.end
        written += [_line(" ", line) for line in lines.texts[first:last]]
    return "".join(written)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Lines, from 0, in whose place others are to stand."""

    first: int
    end: int
    """The line after the last."""
    new: Sequence[str]


def _changes(text: str, edits: Sequence[_Edit], lines: "_Lines") -> Iterator[_Change]:
    """Yield what changes in whole lines, in order; lines that follow one another are one change."""
    together: list[_Edit] = []
    for one in [*edits, None]:
        if together and (one is None or lines.at(one.start) > lines.at(together[-1].end - 1) + 1):
            first, end = lines.at(together[0].start), lines.at(together[-1].end - 1) + 1
            stop = lines.starts[end] if end < len(lines.starts) else len(text)
            new = _LINE.findall(_edited(text, together, lines.starts[first], stop))
            if new != lines.texts[first:end]:
                yield _Change(first=first, end=end, new=new)
            together = []
        if one is not None:
            together.append(one)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """The lines of a text as git counts them, from 0, which are not all that YAML counts."""

    texts: Sequence[str]
    starts: Sequence[int]
    """The first character of each."""
    canaries: frozenset[int]
    """What whoever may read a suite may be shown."""
    commented: frozenset[int]

    @classmethod
    def of(cls, text: str, pages: Sequence[Any]) -> "_Lines":
        texts = _LINE.findall(text)
        starts = [0, *accumulate(map(len, texts))][: len(texts)]
        canaries = {
            line
            for page in _in_lines(pages)
            for canary in _items(_child(page, "canaries"))
            for line in range(_at(starts, canary.start_mark.index), _at(starts, _end(canary) - 1) + 1)
        }
        commented = frozenset(_at(starts, place) for place in _comments(text, pages))
        return cls(texts=texts, starts=starts, canaries=frozenset(canaries), commented=commented)

    def at(self, place: int) -> int:
        """Say on which line a character stands."""
        return _at(self.starts, place)

    def may_show(self, line: int) -> bool:
        """Whether a line may be quoted that does not change."""
        escape_formula = line in self.canaries or _HARMLESS.fullmatch(self.texts[line]) is not None
        return escape_formula and line not in self.commented


def _at(starts: Sequence[int], place: int) -> int:
    return bisect_right(starts, place) - 1


def _comments(text: str, pages: Sequence[Any]) -> Iterator[int]:
    """Yield where comments may begin: at each # that is no part of a scalar."""
    scalars = sorted(_span(text, node) for node in _nodes(pages) if isinstance(node, yaml.ScalarNode))
    starts = [start for start, _ in scalars]
    for comment in re.finditer("#", text):
        at = bisect_right(starts, comment.start()) - 1
        if at < 0 or scalars[at][1] <= comment.start():
            yield comment.start()


def _span(text: str, node: Any) -> tuple[int, int]:
    """Say where a scalar is sure to hold no comment; one may stand behind a tag, an anchor and `|`."""
    start, end = node.start_mark.index, node.end_mark.index
    if text[start : start + 1] in {"!", "&"}:
        return end, end
    if node.style in {"|", ">"}:
        start = text.find("\n", start, end)
        return (start, end) if start >= 0 else (end, end)
    return start, end


_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HARMLESS = re.compile(r"\s*|\s*(?:canaries|retrievers|checks|hooks|silences):\s*|---\s*")


def _line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
