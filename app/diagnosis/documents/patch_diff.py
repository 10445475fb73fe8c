"""Unified diffs of canary files that quote no line that may hold a secret, nor a comment."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import yaml

from app.diagnosis.documents.yaml_nodes import all_nodes, child_of, items_of, multi_line_pages, node_end

_CONTEXT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A replacement of a span of characters."""

    start: int
    end: int
    written: str


def apply_edits(text: str, edits: Sequence[Edit], start: int, end: int) -> str:
    """Part of a text with its edits, in order. Raises ValueError where two overlap."""
    pieces = []
    for one in edits:
        if one.start < start:
            raise ValueError("a judgment is to be replaced twice")
        pieces += [text[start : one.start], one.written]
        start = one.end
    return "".join([*pieces, text[start:end]])


def unified_diff(name: str, text: str, edits: Sequence[Edit], pages: Sequence[Any]) -> str | None:
    """Unified diff whose context has only lines that may be shown; None = too little context to apply it."""
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
    """Replacement of lines, counted from 0."""

    first: int
    end: int
    """The line after the last."""
    new: Sequence[str]


def _changes(text: str, edits: Sequence[Edit], lines: "_Lines") -> Iterator[_Change]:
    """Yield changes of whole lines, in order; adjacent ones are one change."""
    together: list[Edit] = []
    for one in [*edits, None]:
        if together and (one is None or lines.at(one.start) > lines.at(together[-1].end - 1) + 1):
            first, end = lines.at(together[0].start), lines.at(together[-1].end - 1) + 1
            stop = lines.starts[end] if end < len(lines.starts) else len(text)
            new = _LINE.findall(apply_edits(text, together, lines.starts[first], stop))
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
    """Lines of canaries, which readers of the suite may see."""
    commented: frozenset[int]

    @classmethod
    def of(cls, text: str, pages: Sequence[Any]) -> "_Lines":
        texts = _LINE.findall(text)
        starts = [0, *accumulate(map(len, texts))][: len(texts)]
        canaries = {
            line
            for page in multi_line_pages(pages)
            for canary in items_of(child_of(page, "canaries"))
            for line in range(_at(starts, canary.start_mark.index), _at(starts, node_end(canary) - 1) + 1)
        }
        commented = frozenset(_at(starts, place) for place in _comments(text, pages))
        return cls(texts=texts, starts=starts, canaries=frozenset(canaries), commented=commented)

    def at(self, place: int) -> int:
        """Line of a character."""
        return _at(self.starts, place)

    def may_show(self, line: int) -> bool:
        """Whether an unchanged line may be quoted."""
        is_harmless = line in self.canaries or _HARMLESS.fullmatch(self.texts[line]) is not None
        return is_harmless and line not in self.commented


def _at(starts: Sequence[int], place: int) -> int:
    return bisect_right(starts, place) - 1


def _comments(text: str, pages: Sequence[Any]) -> Iterator[int]:
    """Yield where comments may begin: at each # that is no part of a scalar."""
    scalars = sorted(_span(text, node) for node in all_nodes(pages) if isinstance(node, yaml.ScalarNode))
    starts = [start for start, _ in scalars]
    for comment in re.finditer("#", text):
        at = bisect_right(starts, comment.start()) - 1
        if at < 0 or scalars[at][1] <= comment.start():
            yield comment.start()


def _span(text: str, node: Any) -> tuple[int, int]:
    """Span of a scalar that holds no comment; one may follow a tag, an anchor or `|`."""
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
