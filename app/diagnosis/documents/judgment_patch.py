"""Patches of canary files that replace judgments, to be reviewed and committed.

Comments, order and layout of the rest stay. Where a text cannot be changed in place (an anchor, a variable, or the
judgment is not in the file any more), there is no patch.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from app.base.documents.fields import parse_scalar
from app.base.documents.yaml_source import escape_dollars
from app.catalog.documents.canary_documents import CanaryDocument, JudgmentDocument
from app.diagnosis.documents.patch_diff import Edit, apply_edits, unified_diff
from app.diagnosis.documents.yaml_nodes import all_nodes, child_of, items_of, multi_line_pages, node_end, scalar_value

_LISTS = ("expected_chunks", "expected_top_chunks")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A judgment of a canary, and the judgments in its place."""

    suite: str
    key: str
    old: JudgmentDocument
    new: tuple[JudgmentDocument, ...]
    """Empty: it is removed, since its replacement is there already."""


def patch_text(name: str, text: str, replacements: Sequence[Replacement]) -> str | None:
    """Return the unified diff that replaces these judgments in a canary file; None where there is none.

    Lines outside of canaries and comments are never quoted, not even as context: they may be secret. Takes linear time.
    """
    if text.startswith("\ufeff"):  # which marks of the parser do not count
        return None
    names = {(one.suite, one.key) for one in replacements}
    try:
        pages = _pages(text)
        before = _judgments(pages, names)
        edits = sorted((_find_edit(text, before, one) for one in replacements), key=lambda edit: edit.start)
        changed = apply_edits(text, edits, 0, len(text))
        after = _judgments(_pages(changed), names)
    except (yaml.YAMLError, ValueError, LookupError, RecursionError):
        return None
    if any(judgment_name(new) not in after[one.suite, one.key] for one in replacements for new in one.new):
        return None
    return unified_diff(name, text, edits, pages)


def judgment_text(judgment: JudgmentDocument) -> str:
    """Return a judgment on one line, valid in any list of a canary file; in the short form where it has only an id."""
    lean = judgment.model_dump(mode="json", exclude_defaults=True)
    if lean.keys() == {"id"}:
        return _quoted(lean["id"])
    return "{" + ", ".join(f"{name}: {_quoted(value)}" for name, value in lean.items()) + "}"


def replace_judgments(canary: CanaryDocument, replacements: Mapping[str, Sequence[JudgmentDocument]]) -> dict[str, Any]:
    """Return the body of a canary with judgments replaced by name, see `judgment_name`.

    Where the new one is listed already, the old one is removed; the higher grade is kept.
    """
    chunks: dict[tuple[str | None, ...], JudgmentDocument] = {}
    for chunk in canary.expected_chunks:
        for one in replacements.get(judgment_name(chunk), (chunk,)):
            entry = chunks.setdefault(one.identity, one)
            if entry.grade < one.grade:
                chunks[one.identity] = one
    return {**canary.data(), "expected_chunks": [chunk.data() for chunk in chunks.values()]}


def judgment_name(judgment: JudgmentDocument) -> str:
    """Canonical JSON of a judgment: equal ones have equal names."""
    return json.dumps(judgment.data(), sort_keys=True)


def _quoted(value: Any) -> str:
    """Return a scalar as YAML within a flow collection; invisible characters are escaped."""
    if not isinstance(value, str):
        return json.dumps(value)
    escaped = escape_dollars(value)
    if _PLAIN.fullmatch(escaped) and parse_scalar(escaped) == yaml.load(escaped, Loader=_LOADER) == escaped:  # noqa: S506 - a safe one
        return escaped
    written = json.dumps(escaped, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in written)


_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]*")


_Judgments = Mapping[tuple[str, str], Mapping[str, tuple[Any, Any]]]
"""By suite and key of a canary: its judgments by name, each with its list and its node."""


def _pages(text: str) -> list[Any]:
    """Parse the pages of a text as nodes. Raises ValueError where a node is used twice: both places would change."""
    pages = list(yaml.compose_all(text, Loader=_LOADER))
    node_ids: set[int] = set()
    for node in all_nodes(pages):
        if id(node) in node_ids:
            raise ValueError("a node is used twice")
        node_ids.add(id(node))
    return pages


def _judgments(pages: Sequence[Any], names: Collection[tuple[str, str]]) -> _Judgments:
    """Judgments of these canaries without variables; the first of two equal ones."""
    nodes: dict[tuple[str, str], dict[str, tuple[Any, Any]]] = {name: {} for name in names}
    for page in multi_line_pages(pages):
        suite = scalar_value(child_of(page, "suite"))
        for canary in items_of(child_of(page, "canaries")):
            mine = nodes.get((suite or "", scalar_value(child_of(canary, "key")) or ""))
            for chunks in [child_of(canary, name) for name in _LISTS] if mine is not None else ():
                for node in items_of(chunks):
                    judgment = _judgment_name_of(node)
                    if judgment is not None and mine is not None:
                        mine.setdefault(judgment, (chunks, node))
    return nodes


def _find_edit(text: str, judgments: _Judgments, replacement: Replacement) -> Edit:
    """Edit of a replacement. Raises LookupError where the judgment is not in the file."""
    chunks, node = judgments[replacement.suite, replacement.key][judgment_name(replacement.old)]
    if not replacement.new:
        return _removal(text, chunks, node)
    between = ", " if chunks.flow_style else f"\n{' ' * chunks.start_mark.column}- "
    start = node.start_mark.index
    end = start + len(text[start : node_end(node)].rstrip("\r\n "))
    return Edit(start=start, end=end, written=between.join(map(judgment_text, replacement.new)))


def _removal(text: str, chunks: Any, node: Any) -> Edit:
    """Edit that removes a judgment. Raises LookupError where more would be removed."""
    place = chunks.value.index(node)
    if chunks.flow_style and len(chunks.value) > 1:
        if place:
            return Edit(start=node_end(chunks.value[place - 1]), end=node_end(node), written="")
        return Edit(start=node.start_mark.index, end=chunks.value[1].start_mark.index, written="")
    start = text.rfind("\n", 0, node.start_mark.index) + 1
    end = text.find("\n", node_end(node)) + 1 or len(text)
    alone = not text[start : node.start_mark.index].strip(" -") and not text[node_end(node) : end].strip()
    if chunks.flow_style or len(chunks.value) == 1 or not alone:
        raise LookupError("it does not stand alone on its lines")
    return Edit(start=start, end=end, written="")


def _judgment_name_of(node: Any) -> str | None:
    """Name of the judgment of a node; None = it is none, or has variables."""
    try:
        return judgment_name(JudgmentDocument.model_validate(_node_value(node)))
    except ValueError:
        return None


def _node_value(node: Any) -> Any:
    """Value of a node without variables and merges."""
    if isinstance(node, yaml.ScalarNode):
        if "${" in node.value.replace("$$", ""):
            return None  # what the variable stands for is not in the file
        return node.value.replace("$$", "$") if node.style else parse_scalar(node.value.replace("$$", "$"))
    if isinstance(node, yaml.MappingNode):
        return {scalar_value(key): _node_value(value) for key, value in node.value}
    return None
