"""An answer as a tree that people point into: what it holds, where, and which paths a click on it means.

Answers are hostile and large: of one made to be a burden only so much is shown, and said to be so. What a path then
reads is the mapping's business.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.probing.field_guesses import MAX_PATH_LENGTH, Part
from app.domain.probing.mapping_suggestions import path_text

MAPPED_FIELDS = ("hits", "id", "score", "text", "document", "updated", "index_version")
"""What of a mapping can be pointed at, in the order it is asked for."""
MAX_NODES = 400
MAX_FIELDS = 60
MAX_ITEMS = 4
"""Items of a list that are shown: hits are alike."""
MAX_DEPTH = 12
_SHOWN, _NAMED = 120, 80

_LOOKED_AT = 200
"""Items of a list by which it counts as one of objects: it is asked for every node and field of the outline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One value of an answer."""

    place: str
    """Its parts as JSON, for `parts_of`."""
    name: str
    """The name of the field, `[0]` for an item of a list, empty for the whole answer."""
    kind: str
    """object, list, text, number, boolean or null."""
    summary: str
    """The value, shortened, or how much there is in it."""
    children: tuple["Node", ...] = ()
    hidden: int = 0
    """How many of the values in it are not shown."""


def build_outline(answer: Any) -> Node:
    """Lay out a parsed JSON answer: at most 400 values of it, every one given a fair share of what is in it."""
    return _node((), answer, MAX_NODES - 1)[0]


def parse_place(place: str) -> tuple[Part, ...]:
    """Read the place of a node. Raises ValueError for what is none."""
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
    """Say which paths of a mapping change when somebody points at a value and says that it is this field.

    Where the list of hits is not known yet it is taken from what was pointed at. Raises ValueError with a sentence
    where that place cannot be the field.
    """
    steps = _steps(answer, parts)
    if field == "hits":
        changes = {"hits": _hits(steps, parts)}
    elif field == "index_version":
        changes = {field: path_text(parts)}
    elif mapping.get("hits", "").strip():
        changes = {field: _within(steps, parts, mapping["hits"].strip())}
    else:
        columns = any(mapping.get(name, "").strip() for name in MAPPED_FIELDS[1:-1])
        changes = _first(field, steps, parts, columns=columns)
    if any(len(path) > MAX_PATH_LENGTH for path in changes.values()):
        raise ValueError(f"the path to it would be longer than {MAX_PATH_LENGTH:,} characters")
    return changes


def fields_by_node(answer: Any, mapping: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Say which values of the outline the paths of a mapping point at: fields by the place of a node.

    Found by asking of every value in the outline what pointing at it would say, so it knows of those paths alone.
    """
    paths: dict[str, list[str]] = {}
    for node in _all(build_outline(answer)):
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


# --- pointing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _List:
    """A list on the way to a value: its parts, and the path that reads its items, those of lists beside it too."""

    parts: tuple[Part, ...]
    items: Sequence[Any]
    path: str


def _steps(answer: Any, parts: Sequence[Part]) -> list[Any]:
    """Give every value on the way, the pointed one last. Raises ValueError where there is none."""
    steps = [answer]
    for part in parts:
        value = steps[-1]
        named = isinstance(part, str) and isinstance(value, dict) and part in value
        in_list = isinstance(part, int) and isinstance(value, list) and 0 <= part < len(value)
        if not named and not in_list:
            raise ValueError("is no place in the answer")
        steps.append(value[part])
    return steps


def _lists(steps: Sequence[Any], parts: Sequence[Part]) -> list[_List]:
    """Give the lists on the way to a value, itself included, from the outside in."""
    lists: list[_List] = []
    text, several = "", False
    for depth, value in enumerate(steps):
        if isinstance(value, list):
            path = f"{text}[]" if several else text or "@"
            lists.append(_List(tuple(parts[:depth]), value, path))
        if depth == len(parts):
            break
        part = parts[depth]
        if isinstance(part, str):
            text += f"{'.' if text else ''}{path_text([part])}"
        elif len(value) > 1 and all(isinstance(item, dict) for item in value[:_LOOKED_AT]):
            text, several = f"{text}[]", True
        else:
            text += f"[{part}]"
    return lists


def _hits(steps: Sequence[Any], parts: Sequence[Part]) -> str:
    lists = _lists(steps, parts)
    if not lists:
        raise ValueError("there is no list here: point at the list of hits, or at anything in it")
    return lists[-1].path


def _within(steps: Sequence[Any], parts: Sequence[Part], hits: str) -> str:
    for one in reversed(_lists(steps, parts)):
        if hits in {one.path, path_text(one.parts)} and len(parts) > len(one.parts):
            return path_text(parts[len(one.parts) + 1 :])
    raise ValueError(f"this is not in a hit: the list of hits is {hits}")


def _first(field: str, steps: Sequence[Any], parts: Sequence[Part], *, columns: bool) -> dict[str, str]:
    """Read what the first field somebody points at says of the shape of the answer: rows, columns, or a lone text."""
    above = [one for one in _lists(steps, parts) if len(one.parts) < len(parts)]
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


# --- laying out ----------------------------------------------------------------------------------------------


def _inside(value: Any) -> list[tuple[Part, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _node(parts: tuple[Part, ...], value: Any, left: int) -> tuple[Node, int]:
    """Lay out a value with at most `left` of those in it; gives how many it took."""
    children = _inside(value)
    most = min(left, MAX_ITEMS if isinstance(value, list) else MAX_FIELDS)
    shown = children[:most] if len(parts) < MAX_DEPTH else []
    left -= len(shown)
    used_lines, inside = len(shown), []
    for place, (part, inner) in enumerate(shown):
        node, used = _node((*parts, part), inner, left // (len(shown) - place))
        inside.append(node)
        left, used_lines = left - used, used_lines + used
    last = parts[-1] if parts else ""
    kind, summary = _told(value)
    node = Node(
        place=json.dumps(parts),
        name=f"[{last}]" if isinstance(last, int) else _line(last, _NAMED),
        kind=kind,
        summary=summary,
        children=tuple(inside),
        hidden=len(children) - len(shown),
    )
    return node, used_lines


def _told(value: Any) -> tuple[str, str]:
    if isinstance(value, dict):
        return "object", f"{len(value):,} {'field' if len(value) == 1 else 'fields'}"
    if isinstance(value, list):
        return "list", f"list of {len(value):,}"
    if isinstance(value, str):
        return "text", _line(value, _SHOWN)
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    return ("null", "null") if value is None else ("number", _line(repr(value), _SHOWN))


def _line(text: str, most: int) -> str:
    """Write a text as one line without what no page can show."""
    line = " ".join(_UNSHOWABLE.sub("\ufffd", text[: 4 * most]).split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"


def _all(node: Node) -> list[Node]:
    return [node, *(inner for one in node.children for inner in _all(one))]


_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
