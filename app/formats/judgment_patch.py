"""Judgments put in the place of others in the text of a canary file, as a patch to be looked at and committed.

Only what changes is touched: comments, order and layout of the rest stay. Where a text cannot be changed in place (an
anchor stands there, a variable, or the file says something else by now), there is no patch.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from app.formats.canary_documents import CanaryDocument, JudgmentDocument
from app.formats.fields import plain_value
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


def patch_text(name: str, text: str, wanted: Sequence[Replacement]) -> str | None:
    """Give the unified diff that replaces these judgments in a canary file; None where that cannot be written.

    Lines beyond the canaries are never quoted, not even as context: what stands there may be secret.
    """
    if not all(one.new for one in wanted):
        return None
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_LOADER)):
            return None  # what is changed in one place would change elsewhere too
        pages = list(yaml.compose_all(text, Loader=_LOADER))
        places = [_place(pages, one.suite, one.key, one.old) for one in wanted]
        found = sorted(zip([place for place in places if place is not None], wanted, strict=True), key=_start)
        changed = text
        for place, one in reversed(found):
            written = place.between.join(map(judgment_text, one.new))
            changed = changed[: place.start] + written + changed[place.end :]
        again = list(yaml.compose_all(changed, Loader=_LOADER))
    except (yaml.YAMLError, ValueError):
        return None
    if any(_place(again, one.suite, one.key, new) is None for one in wanted for new in one.new):
        return None
    return _diff(name, text, changed, _canary_lines(pages))


def judgment_text(judgment: JudgmentDocument) -> str:
    """Write a judgment on one line, as it may stand in any list of a canary file: short where it is an id alone."""
    lean = judgment.model_dump(mode="json", exclude_defaults=True)
    if lean.keys() == {"id"}:
        return _quoted(lean["id"])
    return "{" + ", ".join(f"{name}: {_quoted(value)}" for name, value in lean.items()) + "}"


def replace_judgments(canary: CanaryDocument, wanted: Mapping[str, Sequence[JudgmentDocument]]) -> dict[str, Any]:
    """Give the body of a canary with other judgments in the place of those named, by `judgment_name`.

    Where the new one stands there already, the old one goes: no judgment is listed twice.
    """
    chunks: dict[tuple[str | None, ...], JudgmentDocument] = {}
    for chunk in canary.expected_chunks:
        for one in wanted.get(judgment_name(chunk), (chunk,)):
            chunks.setdefault((one.id, one.document, one.text), one)
    return {**canary.data(), "expected_chunks": [chunk.data() for chunk in chunks.values()]}


def judgment_name(judgment: JudgmentDocument) -> str:
    """Name a judgment by what it says: equal ones have equal names."""
    return json.dumps(judgment.data(), sort_keys=True)


def _quoted(value: Any) -> str:
    """Write a scalar as YAML within a flow collection; what is not seen as it stands is escaped."""
    if not isinstance(value, str):
        return json.dumps(value)
    escaped = escape_dollars(value)
    if _PLAIN.fullmatch(escaped) and plain_value(escaped) == yaml.safe_load(escaped) == escaped:
        return escaped
    written = json.dumps(escaped, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in written)


_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a judgment stands in a text: its first character, the one after its last, and what parts it from others."""

    start: int
    end: int
    between: str


def _start(found: tuple[_Place, Replacement]) -> int:
    return found[0].start


def _place(pages: Sequence[Any], suite: str, key: str, judgment: JudgmentDocument) -> _Place | None:
    """Find where a judgment stands; None = nowhere, or not in so many words."""
    for page in pages:
        if getattr(page, "flow_style", True) or _scalar(_child(page, "suite")) != suite:
            continue  # written on one line, secrets may stand on it too
        canaries = _items(_child(page, "canaries"))
        for canary in canaries:
            if _scalar(_child(canary, "key")) != key:
                continue
            for chunks in [_child(canary, name) for name in _LISTS]:
                for node in _items(chunks):
                    if _says(node, judgment):
                        between = ", " if chunks.flow_style else f"\n{' ' * chunks.start_mark.column}- "
                        return _Place(start=node.start_mark.index, end=_end(node), between=between)
    return None


def _says(node: Any, judgment: JudgmentDocument) -> bool:
    value = _plain(node)
    try:
        read = JudgmentDocument.model_validate(value)
    except ValueError:
        return False
    return read == judgment


def _plain(node: Any) -> Any:
    """Give the value of a node that says what it says in itself: no variable, nothing merged."""
    if isinstance(node, yaml.ScalarNode):
        if "${" in node.value.replace("$$", ""):
            return None  # what the variable stands for is not in the file
        return node.value.replace("$$", "$") if node.style else plain_value(node.value.replace("$$", "$"))
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
    """Say where a node ends; one in block style ends with its last value, not where the next begins."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return max(_end(value) for _, value in node.value)
    return int(node.end_mark.index)


def _canary_lines(pages: Sequence[Any]) -> set[int]:
    """List the lines of canaries, from 0: they may be shown to whoever may read the suite."""
    lines: set[int] = set()
    for page in pages:
        for canary in _items(_child(page, "canaries")):
            lines.update(range(canary.start_mark.line, canary.end_mark.line + 1))
            if canary.end_mark.column == 0:
                lines.discard(canary.end_mark.line)
    return lines


def _diff(name: str, before: str, after: str, shown: set[int]) -> str | None:
    """Write a unified diff whose context stays within the lines that may be shown; None = too little to be applied."""
    old, new = _LINE.findall(before), _LINE.findall(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    text = f"--- a/{name}\n+++ b/{name}\n"
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        within = _within(group, old, shown)
        (first, start, *_), (last, _, end, *_) = within[0], within[-1]
        if (start > 0 and first != "equal") or (end < len(old) and last != "equal"):
            return None
        text += _hunk(old, new, within)
    return text


def _within(
    group: Sequence[tuple[str, int, int, int, int]], old: Sequence[str], shown: set[int]
) -> list[tuple[str, int, int, int, int]]:
    """Cut the context of a hunk off where lines begin that are not to be shown."""

    def may_show(line: int) -> bool:
        return line in shown or _HARMLESS.fullmatch(old[line]) is not None

    kept = list(group)
    tag, i1, i2, j1, j2 = kept[0]
    if tag == "equal":
        while any(not may_show(line) for line in range(i1, i2)):
            i1, j1 = i1 + 1, j1 + 1
        kept[0] = tag, i1, i2, j1, j2
    tag, i1, i2, j1, j2 = kept[-1]
    if tag == "equal":
        while any(not may_show(line) for line in range(i1, i2)):
            i2, j2 = i2 - 1, j2 - 1
        kept[-1] = tag, i1, i2, j1, j2
    return [one for one in kept if one[0] != "equal" or one[1] < one[2]]


_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HARMLESS = re.compile(r"\s*|\s*(?:canaries|retrievers|checks|hooks|silences):\s*|---\s*")


def _hunk(old: Sequence[str], new: Sequence[str], group: Sequence[tuple[str, int, int, int, int]]) -> str:
    first, last = group[0], group[-1]
    text = f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@\n"
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            text += "".join(_line(" ", line) for line in old[i1:i2])
            continue
        text += "".join(_line("-", line) for line in old[i1:i2])
        text += "".join(_line("+", line) for line in new[j1:j2])
    return text


def _line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
