"""Candidates for the hits of an undescribed response: lists, columns and keyed objects, with their fields.

Which candidate is a good one is decided in mapping_suggestions.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from app.retrievers.domain.field_guesses import MAX_PATH_LENGTH, Field, Part, is_prose, normalize_name, read_text

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A place that may hold the hits. Without `hits` the fields are columns, `own` those that are no projections."""

    parts: tuple[Part, ...]
    hits: str | None
    fields: Sequence[Field]
    count: int
    reason: str
    own: frozenset[str] | None = None


def find_candidates(answer: Any) -> Iterator[Candidate]:
    """Yield the candidates of a parsed response, from the outside in; of a hostile one only the first."""
    return _limit_effort(_EFFORT, _walk(answer, (), _DEPTH))


def _limit_effort(effort: int, places: Iterator[Candidate]) -> Iterator[Candidate]:
    """Yield candidates until as many values were looked at, absent ones included, as the effort allows."""
    for place in places:
        yield place
        effort -= _CANDIDATE_COST + len(place.fields) * place.count
        if effort < 0:
            return


def _walk(node: Any, parts: tuple[Part, ...], depth: int) -> Iterator[Candidate]:
    """Yield the candidates at and below a value; a list of lists is represented by its first item."""
    may_hold_hits = is_prose(node) if isinstance(node, str) else isinstance(node, dict | list)
    if not may_hold_hits or depth == 0 or len(path_text(parts)) > MAX_PATH_LENGTH:
        return
    if isinstance(node, str):
        names = {normalize_name(part) if isinstance(part, str) else _LISTED for part in parts}
        if not names & (NEVER_HITS | SELDOM_HITS | {_LISTED}):
            field = Field(path=path_text(parts), parts=parts or ("text",), values=[node])
            yield Candidate(parts=parts, hits=None, fields=[field], count=1, reason="a lone text")
    elif isinstance(node, dict):
        keyed = _keyed_candidate(node, parts)
        if keyed is not None:
            yield keyed
            if any(isinstance(value, str) and is_prose(value) for field in keyed.fields for value in field.values):
                return  # what is in it is one hit only, which is not always there
        yield from _column_candidates(node, parts)
        for key, value in _named_items(node):
            yield from _walk(value, (*parts, key), depth - 1)
    elif isinstance(node, list) and node:
        yield from _row_candidates(node, parts)
        if len(node) == 1 or isinstance(node[0], list):
            yield from _walk(node[0], (*parts, 0), depth - 1)


def _row_candidates(items: list[Any], parts: tuple[Part, ...]) -> Iterator[Candidate]:
    items, path = items[:_ITEMS], path_text(parts)
    if all(isinstance(item, dict) for item in items):
        reason = f"a list of {len(items)} objects" if len(items) > 1 else "a list of one object"
        yield Candidate(parts=parts, hits=path, fields=_collect_fields(items), count=len(items), reason=reason)
        if len(items) > 1:
            yield from _group_candidates(items, parts)
    elif all(isinstance(item, str) for item in items):
        field = Field(path="@", parts=parts or ("text",), values=items)
        yield Candidate(
            parts=parts, hits=path, fields=[field], count=len(items), reason=f"a list of {len(items)} texts"
        )
    elif all(isinstance(item, list) for item in items):
        fields = _pair_fields(items)
        if fields:
            reason = f"a list of {len(items)} {'pair' if len(items) == 1 else 'pairs'}"
            yield Candidate(parts=parts, hits=path, fields=fields, count=len(items), reason=reason)


def _pair_fields(items: list[list[Any]]) -> list[Field]:
    """Return the fields of hits that are pairs of an object, or of a text, and a number; none for others."""
    if any(len(item) != _PAIR for item in items):
        return []
    for one, other in ((0, 1), (1, 0)):
        hits, numbers = [item[one] for item in items], [item[other] for item in items]
        if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
            continue
        reason = "the number beside each hit"
        score = Field(path=f"[{other}]", parts=(other,), values=numbers, role="score", role_reason=reason)
        if all(isinstance(hit, str) for hit in hits):
            return [Field(path=f"[{one}]", parts=("text",), values=hits), score]
        if all(isinstance(hit, dict) for hit in hits):
            inner = [
                replace(field, path=f"[{one}].{field.path}", parts=(one, *field.parts))
                for field in _collect_fields(hits)
            ]
            return [*inner, score]
    return []


def _keyed_candidate(node: Mapping[str, Any], parts: tuple[Part, ...]) -> Candidate | None:
    """Return hits that are the values of an object, each under its own name, if they are much alike."""
    keys, hits = list(islice(node, _ITEMS)), list(islice(node.values(), _ITEMS))
    if not hits or len(node) > _ITEMS or not all(isinstance(hit, dict) for hit in hits):
        return None
    if len(hits) == 1 and not _KEY_CHARACTERS.search(keys[0]):
        return None
    shared, names = set(hits[0]).intersection(*hits[1:]), set(hits[0]).union(*hits[1:])
    if not shared or 2 * len(shared) < len(names) or not all(0 < len(key) <= _KEY for key in keys):
        return None
    base = path_text(parts) if parts else ""
    inner = [
        replace(field, path=f"{base}{'.' if base else ''}*.{field.path}", parts=(*parts, *field.parts))
        for field in _collect_fields(hits)
        if None not in field.values  # a projection leaves nothing out in its place: what follows would move up
    ]
    keys_field = Field(
        path=f"keys({base or '@'})", parts=(*parts, "key"), values=keys, role="id", role_reason="the keys of the object"
    )
    reason = f"an object of {len(hits)} objects that are alike" if len(hits) > 1 else "an object of one object"
    return Candidate(parts=parts, hits=None, fields=[keys_field, *inner], count=len(hits), reason=reason)


def _group_candidates(groups: list[dict[str, Any]], parts: tuple[Part, ...]) -> Iterator[Candidate]:
    """Yield hits that lie in several lists, one in each object."""
    path = path_text(parts)
    for key, _ in _named_items(groups[0]):
        inner = [group[key] for group in groups if group.get(key) is not None]
        if not all(isinstance(one, list) for one in inner):
            continue
        items = [item for one in inner for item in one][:_ITEMS]
        if items and all(isinstance(item, dict) for item in items):
            hits = f"{'' if path == '@' else path}[].{_key(key)}[]"
            reason = f"lists in each of {len(groups)} objects, together {len(items)} objects"
            yield Candidate(
                parts=(*parts, key, 0), hits=hits, fields=_collect_fields(items), count=len(items), reason=reason
            )


def _column_candidates(node: dict[str, Any], parts: tuple[Part, ...]) -> Iterator[Candidate]:
    """Yield lists side by side in an object, each the values of one field or objects of further fields."""
    by_length: dict[int, list[Field]] = {}
    own = set()
    left = _FIELDS
    for key, value in _named_items(node):
        where, values = (*parts, key), value
        if isinstance(values, list) and len(values) == 1 and isinstance(values[0], list):
            where, values = (*where, 0), values[0]
        if not isinstance(values, list) or not 0 < len(values) <= _ITEMS:
            continue
        path, columns = path_text(where), by_length.setdefault(len(values), [])
        if all(item is None or isinstance(item, str | int | float) for item in values):
            columns.append(Field(path=path, parts=where, values=values))
            own.add(path)
        elif left > 0 and all(item is None or isinstance(item, dict) for item in values):
            inner = [
                replace(field, path=f"{path}[*].{field.path}", parts=(*where, *field.parts))
                for field in _collect_fields([item or {} for item in values])
            ]
            columns += inner[:left]
            left -= len(inner)
    for length, columns in by_length.items():
        if len(columns) > 1:
            reason = f"{len(columns)} lists side by side, {length} long"
            yield Candidate(parts=parts, hits=None, fields=columns, count=length, reason=reason, own=frozenset(own))


def _collect_fields(items: Sequence[Mapping[str, Any]]) -> list[Field]:
    """Return the fields of objects, nested ones too, as columns; not those that are a branch in some."""
    columns: dict[tuple[Part, ...], dict[int, Any]] = {}
    branches = set()
    for index, item in enumerate(items):
        for parts, value in _leaves(item, (), _DEPTH):
            if value is _BRANCH:
                branches.add(parts)
            elif parts in columns or len(columns) < _FIELDS:
                columns.setdefault(parts, {})[index] = value
    return [
        Field(
            path=path_text(parts),
            parts=parts,
            values=[values.get(index) for index in range(len(items))],
            text_alone=any(isinstance(part, int) for part in parts[:-1]),
        )
        for parts, values in columns.items()
        if parts not in branches
    ]


def _leaves(item: Mapping[str, Any], parts: tuple[Part, ...], depth: int) -> Iterator[tuple[tuple[Part, ...], Any]]:
    """Yield the paths and values of the leaves within an object; objects and lists on the way are `_BRANCH`."""
    for key, value in _named_items(item):
        where = (*parts, key)
        if isinstance(value, list) and value and isinstance(value[0], dict | list):
            yield (*where, 0), _BRANCH
        if not isinstance(value, dict | list) or read_text(value) is not None:
            yield where, value
            continue
        yield where, _BRANCH
        if isinstance(value, dict):
            if depth > 1:
                yield from _leaves(value, where, depth - 1)
        elif value and isinstance(value[0], str):
            yield (*where, 0), value[0]
        elif value and isinstance(value[0], dict) and depth > 1:
            inner = _leaves(value[0], (*where, 0), depth - 1)
            yield from ((place, leaf) for place, leaf in inner if isinstance(leaf, str) or leaf is _BRANCH)


def _named_items(node: Mapping[str, ValueT]) -> list[tuple[str, ValueT]]:
    """Return the first fields of an object whose names are of a usual length."""
    return [(key, value) for key, value in islice(node.items(), _WIDTH) if len(key) <= _KEY]


def path_text(parts: Sequence[Part]) -> str:
    """Return a path as JMESPath: `hits[0]."@score"`; `@` is the whole."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{_key(part)}"
    return text or "@"


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name).replace("\x7f", "\\u007f")


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEY_CHARACTERS = re.compile(r"[0-9/#:.]")  # so is c3, hr/leave.md or a UUID
_PAIR = 2
_DEPTH, _WIDTH, _ITEMS, _FIELDS, _KEY = 8, 200, 200, 200, 200
_EFFORT, _CANDIDATE_COST = 200_000, 100  # in values; what there is to do at a place without any is worth so many
_BRANCH = object()  # stands for the value of a field with fields or places of its own, which no mapping reads as one
_LISTED = "[]"  # the name of a place in a list
NEVER_HITS = frozenset({"error", "warning", "exception", "debug", "trace", "log", "usage"})
SELDOM_HITS = frozenset(
    {"message", "detail", "facet", "aggregation", "filter", "suggestion", "query", "prompt", "explanation"}
)
"""What texts and lists are called that stand beside the hits."""
