"""A response as a tree of values to click, and the paths of a mapping that a click sets.

Responses may be hostile and large, so the tree is bounded.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.retrievers.domain.field_guesses import MAX_PATH_LENGTH, Part
from app.retrievers.domain.hit_candidates import path_text

MAPPED_FIELDS = (
    "hits",
    "id",
    "score",
    "text",
    "document",
    "updated",
    "index_version",
    "answer",
    "error",
    "partial",
    "unwrap",
)
"""Fields of a mapping that a click can set, in this order."""
WHOLE_FIELDS = ("index_version", "answer", "error", "partial", "unwrap")
"""Those of the whole response; the others are of its hits."""
MAX_NODES = 400
MAX_FIELDS = 60
MAX_ITEMS = 4
MAX_DEPTH = 12
_MAX_TEXT, _MAX_NAME = 120, 80

_SAMPLE = 200
"""Items by which a list counts as one of objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One value of a response."""

    place: str
    """Its path as JSON, for `parse_place`."""
    name: str
    """The name of the field, `[0]` for an item of a list, empty for the whole answer."""
    kind: str
    """object, list, text, number, boolean or null."""
    summary: str
    children: tuple["Node", ...] = ()
    hidden: int = 0


def build_outline(answer: Any) -> Node:
    """Return the tree of a parsed response: at most 400 values, shared fairly among its branches."""
    return _build_node((), answer, MAX_NODES - 1)[0]


def parse_place(place: str) -> tuple[Part, ...]:
    """Return the path of a node. Raises ValueError."""
    try:
        parts = json.loads(place)
    except (ValueError, RecursionError):
        parts = None
    if not isinstance(parts, list) or len(parts) > MAX_DEPTH:
        raise ValueError("is no place in the answer")
    if not all(isinstance(part, str | int) and not isinstance(part, bool) for part in parts):
        raise ValueError("is no place in the answer")
    return tuple(parts)


def mapping_changes(field: str, parts: Sequence[Part], answer: Any, mapping: Mapping[str, str]) -> dict[str, str]:
    """Return the paths that change when a value is clicked as this field.

    While no list of hits is mapped, its path follows from the click. Raises ValueError with a sentence where the value
    cannot be the field.
    """
    values = _values_on_path(answer, parts)
    if field == "hits":
        changes = {"hits": _hits_path(values, parts)}
    elif field in WHOLE_FIELDS:
        changes = {field: path_text(parts)}
    elif mapping.get("hits", "").strip():
        changes = {field: _path_in_hit(values, parts, mapping["hits"].strip())}
    else:
        columns = any(mapping.get(name, "").strip() for name in MAPPED_FIELDS[1:] if name not in WHOLE_FIELDS)
        changes = _first_paths(field, values, parts, columns=columns)
    if any(len(path) > MAX_PATH_LENGTH for path in changes.values()):
        raise ValueError(f"the path to it would be longer than {MAX_PATH_LENGTH:,} characters")
    return changes


def fields_by_node(answer: Any, mapping: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the fields whose paths point at a value of the outline, by its place.

    A path is recognised where a click on the value would set it, so paths written in another way are not.
    """
    paths: dict[str, list[str]] = {}
    for node in _flatten(build_outline(answer)):
        parts = parse_place(node.place)
        for name in MAPPED_FIELDS:
            path = mapping.get(name, "").strip()
            if not path or (name == "hits" and node.kind != "list"):
                continue
            try:
                changes = mapping_changes(name, parts, answer, mapping)
            except ValueError:
                continue
            if changes == {name: path}:
                paths.setdefault(node.place, []).append(name)
    return {place: tuple(names) for place, names in paths.items()}


# --- clicks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _List:
    """A list on the way to a value: its parts, and the path that reads its items, those of lists beside it too."""

    parts: tuple[Part, ...]
    items: Sequence[Any]
    path: str


def _values_on_path(answer: Any, parts: Sequence[Part]) -> list[Any]:
    """Values on the way, the last one included. Raises ValueError where there is none."""
    values = [answer]
    for part in parts:
        value = values[-1]
        named = isinstance(part, str) and isinstance(value, dict) and part in value
        in_list = isinstance(part, int) and isinstance(value, list) and 0 <= part < len(value)
        if not named and not in_list:
            raise ValueError("is no place in the answer")
        values.append(value[part])
    return values


def _lists_on_path(values: Sequence[Any], parts: Sequence[Part]) -> list[_List]:
    """Return the lists on the way to a value, itself included, from the outside in."""
    lists: list[_List] = []
    text, is_flattened = "", False
    for depth, value in enumerate(values):
        if isinstance(value, list):
            path = f"{text}[]" if is_flattened else text or "@"
            lists.append(_List(tuple(parts[:depth]), value, path))
        if depth == len(parts):
            break
        part = parts[depth]
        if isinstance(part, str):
            text += f"{'.' if text else ''}{path_text([part])}"
        elif len(value) > 1 and all(isinstance(item, dict) for item in value[:_SAMPLE]):
            text, is_flattened = f"{text}[]", True
        else:
            text += f"[{part}]"
    return lists


def _hits_path(values: Sequence[Any], parts: Sequence[Part]) -> str:
    lists = _lists_on_path(values, parts)
    if not lists:
        raise ValueError("there is no list here: point at the list of hits, or at anything in it")
    return lists[-1].path


def _path_in_hit(values: Sequence[Any], parts: Sequence[Part], hits: str) -> str:
    for one in reversed(_lists_on_path(values, parts)):
        if hits in {one.path, path_text(one.parts)} and len(parts) > len(one.parts):
            return path_text(parts[len(one.parts) + 1 :])
    raise ValueError(f"this is not in a hit: the list of hits is {hits}")


def _first_paths(field: str, values: Sequence[Any], parts: Sequence[Part], *, columns: bool) -> dict[str, str]:
    """Return the paths that the first click sets: rows, columns, or a lone text."""
    above = [one for one in _lists_on_path(values, parts) if len(one.parts) < len(parts)]
    if not above:
        return {field: path_text(parts)}
    inner = above[-1]
    rest = parts[len(inner.parts) + 1 :]
    if not rest:
        return {field: path_text(inner.parts)}
    if columns:
        return {field: f"{path_text(inner.parts)}[*].{path_text(rest)}"}
    rows = next((one for one in reversed(above) if len(one.items) > 1), inner)
    return {"hits": rows.path, field: path_text(parts[len(rows.parts) + 1 :])}


# --- the tree ----------------------------------------------------------------------------------------------


def _children(value: Any) -> list[tuple[Part, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _build_node(parts: tuple[Part, ...], value: Any, left: int) -> tuple[Node, int]:
    """Return a node with at most `left` values below it, and how many it took."""
    children = _children(value)
    limit = min(left, MAX_ITEMS if isinstance(value, list) else MAX_FIELDS)
    listed = children[:limit] if len(parts) < MAX_DEPTH else []
    left -= len(listed)
    used, nodes = len(listed), []
    for place, (part, inner) in enumerate(listed):
        node, taken = _build_node((*parts, part), inner, left // (len(listed) - place))
        nodes.append(node)
        left, used = left - taken, used + taken
    last = parts[-1] if parts else ""
    kind, summary = _kind_and_summary(value)
    node = Node(
        place=json.dumps(parts),
        name=f"[{last}]" if isinstance(last, int) else _one_line(last, _MAX_NAME),
        kind=kind,
        summary=summary,
        children=tuple(nodes),
        hidden=len(children) - len(listed),
    )
    return node, used


def _kind_and_summary(value: Any) -> tuple[str, str]:
    if isinstance(value, dict):
        return "object", f"{len(value):,} {'field' if len(value) == 1 else 'fields'}"
    if isinstance(value, list):
        return "list", f"list of {len(value):,}"
    if isinstance(value, str):
        return "text", _one_line(value, _MAX_TEXT)
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    return ("null", "null") if value is None else ("number", _one_line(repr(value), _MAX_TEXT))


def _one_line(text: str, limit: int) -> str:
    """One line of a text, without characters that no page can show."""
    line = " ".join(_UNSHOWABLE.sub("\ufffd", text[: 4 * limit]).split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1]}…"


def _flatten(node: Node) -> list[Node]:
    return [node, *(inner for one in node.children for inner in _flatten(one))]


_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
