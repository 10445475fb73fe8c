"""Suggestions for the mapping of an answer nobody has described: where its hits are, and which field is which.

Pure: an answer in, mappings with their reasons out, best first. What a field is for is guessed in field_guesses.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from app.domain.model import DEFAULT_MIN_RELEVANCE
from app.domain.probing.field_guesses import (
    MAX_PATH_LENGTH,
    Field,
    Part,
    guess_fields,
    is_prose,
    normalize_name,
    read_text,
    score_order,
)
from app.domain.probing.relevance import scale_relevance
from app.domain.probing.retrievers import ResponseMapping, Scale

MAX_SUGGESTIONS = 4
"""How many suggestions are made at most."""

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A mapping that reads hits from the answer, and why: `reasons` by field, `hits` among them.

    `scale` is what the scores look like they are on; None = they may be on none that is bounded, or the first hit would
    be too little relevant on it, see `fitting_scale`.
    """

    mapping: ResponseMapping
    reasons: Mapping[str, str]
    hits: int
    """How many hits it reads."""
    weight: float
    scale: Scale | None = None


def suggest_mappings(answer: Any, *, query: str = "") -> list[Suggestion]:
    """Suggest mappings for a parsed JSON answer, best first; none where nothing looks like hits.

    `query` is what was asked: texts that speak of it are likelier hits, and fields that repeat it are none. What it
    takes is bounded for any answer: of one made to be a burden, only the first part is looked at.
    """
    places = _within(_EFFORT, _places(answer, (), _DEPTH))
    found = [suggested for place in places if (suggested := _suggested(place, query)) is not None]
    found.sort(key=lambda suggestion: -suggestion.weight)
    best = found[0].weight if found else 0.0
    distinct = {suggestion.mapping: suggestion for suggestion in reversed(found)}
    kept = sorted(distinct.values(), key=lambda suggestion: -suggestion.weight)
    return [suggestion for suggestion in kept if suggestion.weight >= best * _WORTH_TELLING][:MAX_SUGGESTIONS]


# --- where hits may be ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Somewhere hits may be. Without `hits` the fields are columns, and `own` are those that are no projections."""

    parts: tuple[Part, ...]
    hits: str | None
    fields: Sequence[Field]
    count: int
    told: str
    own: frozenset[str] | None = None


def _within(effort: int, places: Iterator[_Place]) -> Iterator[_Place]:
    """Give places as long as the values in them, those that are absent too, are not more than can be looked at."""
    for place in places:
        yield place
        effort -= _PLACE + len(place.fields) * place.count
        if effort < 0:
            return


def _places(node: Any, parts: tuple[Part, ...], depth: int) -> Iterator[_Place]:
    """Walk an answer; lists are represented by their first item, as those of one query are."""
    hopeful = is_prose(node) if isinstance(node, str) else isinstance(node, dict | list)
    if not hopeful or depth == 0 or len(path_text(parts)) > MAX_PATH_LENGTH:
        return
    if isinstance(node, str):
        names = {normalize_name(part) if isinstance(part, str) else _LISTED for part in parts}
        if not names & (_NEVER | _SELDOM | {_LISTED}):
            field = Field(path=path_text(parts), parts=parts or ("text",), values=[node])
            yield _Place(parts=parts, hits=None, fields=[field], count=1, told="a lone text")
    elif isinstance(node, dict):
        keyed = _keyed(node, parts)
        if keyed is not None:
            yield keyed
            if any(isinstance(value, str) and is_prose(value) for field in keyed.fields for value in field.values):
                return  # what is in it is one hit only, which is not always there
        yield from _columns(node, parts)
        for key, value in _items(node):
            yield from _places(value, (*parts, key), depth - 1)
    elif isinstance(node, list) and node:
        yield from _rows(node, parts)
        if len(node) == 1 or isinstance(node[0], list):
            yield from _places(node[0], (*parts, 0), depth - 1)


def _rows(items: list[Any], parts: tuple[Part, ...]) -> Iterator[_Place]:
    items, path = items[:_ITEMS], path_text(parts)
    if all(isinstance(item, dict) for item in items):
        told = f"a list of {len(items)} objects" if len(items) > 1 else "a list of one object"
        yield _Place(parts=parts, hits=path, fields=_fields(items), count=len(items), told=told)
        if len(items) > 1:
            yield from _grouped(items, parts)
    elif all(isinstance(item, str) for item in items):
        field = Field(path="@", parts=parts or ("text",), values=items)
        yield _Place(parts=parts, hits=path, fields=[field], count=len(items), told=f"a list of {len(items)} texts")
    elif all(isinstance(item, list) for item in items):
        fields = _paired(items)
        if fields:
            told = f"a list of {len(items)} {'pair' if len(items) == 1 else 'pairs'}"
            yield _Place(parts=parts, hits=path, fields=fields, count=len(items), told=told)


def _paired(items: list[list[Any]]) -> list[Field]:
    """Lay out the fields of hits that are pairs of an object, or of a text, and a number; none where they are not."""
    if any(len(item) != _PAIR for item in items):
        return []
    for one, other in ((0, 1), (1, 0)):
        hits, numbers = [item[one] for item in items], [item[other] for item in items]
        if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
            continue
        told = "the number beside each hit"
        score = Field(path=f"[{other}]", parts=(other,), values=numbers, role="score", told=told)
        if all(isinstance(hit, str) for hit in hits):
            return [Field(path=f"[{one}]", parts=("text",), values=hits), score]
        if all(isinstance(hit, dict) for hit in hits):
            inner = [replace(field, path=f"[{one}].{field.path}", parts=(one, *field.parts)) for field in _fields(hits)]
            return [*inner, score]
    return []


def _keyed(node: Mapping[str, Any], parts: tuple[Part, ...]) -> _Place | None:
    """Find hits that are the values of an object, each under its own name: objects that are much alike."""
    keys, hits = list(islice(node, _ITEMS)), list(islice(node.values(), _ITEMS))
    if not hits or len(node) > _ITEMS or not all(isinstance(hit, dict) for hit in hits):
        return None
    if len(hits) == 1 and not _UNLIKE_A_FIELD.search(keys[0]):
        return None
    shared, names = set(hits[0]).intersection(*hits[1:]), set(hits[0]).union(*hits[1:])
    if not shared or 2 * len(shared) < len(names) or not all(0 < len(key) <= _KEY for key in keys):
        return None
    base = path_text(parts) if parts else ""
    inner = [
        replace(field, path=f"{base}{'.' if base else ''}*.{field.path}", parts=(*parts, *field.parts))
        for field in _fields(hits)
        if None not in field.values  # a projection leaves nothing out in its place: what follows would move up
    ]
    named = Field(
        path=f"keys({base or '@'})", parts=(*parts, "key"), values=keys, role="id", told="the keys of the object"
    )
    told = f"an object of {len(hits)} objects that are alike" if len(hits) > 1 else "an object of one object"
    return _Place(parts=parts, hits=None, fields=[named, *inner], count=len(hits), told=told)


def _grouped(groups: list[dict[str, Any]], parts: tuple[Part, ...]) -> Iterator[_Place]:
    """Find hits that lie in several lists of their own, one in each object."""
    path = path_text(parts)
    for key, _ in _items(groups[0]):
        inner = [group[key] for group in groups if group.get(key) is not None]
        if not all(isinstance(one, list) for one in inner):
            continue
        items = [item for one in inner for item in one][:_ITEMS]
        if items and all(isinstance(item, dict) for item in items):
            hits = f"{'' if path == '@' else path}[].{_key(key)}[]"
            told = f"lists in each of {len(groups)} objects, together {len(items)} objects"
            yield _Place(parts=(*parts, key, 0), hits=hits, fields=_fields(items), count=len(items), told=told)


def _columns(node: dict[str, Any], parts: tuple[Part, ...]) -> Iterator[_Place]:
    """Find lists side by side in an object, each the values of one field or objects of further fields."""
    by_length: dict[int, list[Field]] = {}
    own = set()
    left = _FIELDS
    for key, value in _items(node):
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
                for field in _fields([item or {} for item in values])
            ]
            columns += inner[:left]
            left -= len(inner)
    for length, columns in by_length.items():
        if len(columns) > 1:
            told = f"{len(columns)} lists side by side, {length} long"
            yield _Place(parts=parts, hits=None, fields=columns, count=length, told=told, own=frozenset(own))


def _fields(items: Sequence[Mapping[str, Any]]) -> list[Field]:
    """Lay out the fields of objects, those within objects too, as columns; not those that are a branch in some."""
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
    for key, value in _items(item):
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


def _items(node: Mapping[str, ValueT]) -> list[tuple[str, ValueT]]:
    """Give the first fields of an object, without those whose names are no names."""
    return [(key, value) for key, value in islice(node.items(), _WIDTH) if len(key) <= _KEY]


# --- what is made of a place ---------------------------------------------------------------------------------


def _suggested(place: _Place, query: str) -> Suggestion | None:
    guesses = guess_fields(place.fields, query)
    text, named, score = guesses.get("text"), guesses.get("id"), guesses.get("score")
    if score is not None and place.hits is None and score.path.startswith("to_number("):
        del guesses["score"]  # it takes one text, not a column of them
        score = None
    if place.hits is not None and len(place.hits) > MAX_PATH_LENGTH:
        return None
    if named is None and (text is None or not all(map(_tells_apart, text.values))):
        return None
    telling = {guess.path for guess in (text, named) if guess is not None}
    if place.own is not None and (not place.own & telling or len(guesses) == 1):
        return None
    speaks = text is not None and any(isinstance(value, str) and is_prose(value) for value in text.values)
    if score is None and not speaks and any(field.role == "id" for field in place.fields):
        return None  # things of all kinds have names
    names = [normalize_name(part) for part in place.parts if isinstance(part, str)]
    if _NEVER.intersection(names):
        return None
    weight = sum(_WORTH[role] * max(guess.weight, 0.0) for role, guess in guesses.items())
    weight += 0.5 * bool(names and names[-1] in _CONTAINERS) + min(place.count, 10) / 20 - 0.05 * len(place.parts)
    if _SELDOM.intersection(names):
        weight *= 0.5
    return Suggestion(
        mapping=ResponseMapping(hits=place.hits, **{role: guess.path for role, guess in guesses.items()}),
        reasons={"hits": place.told, **{role: guess.reason for role, guess in guesses.items()}},
        hits=place.count,
        weight=weight,
        scale=None if score is None else usable_scale(score.path, score.values),
    )


def _tells_apart(value: Any) -> bool:
    return isinstance(value, str) or bool(read_text(value))


def usable_scale(path: str, scores: Sequence[float]) -> Scale | None:
    """Say what scale scores look like, unless a good answer would hardly be as relevant on it as most canaries ask.

    None = no scale is to be suggested: canaries would be degraded by it, though their answers may be right.
    """
    scale = likely_scale(path, scores)
    return scale if scale is not None and scale_relevance(scale, scores[0]) >= DEFAULT_MIN_RELEVANCE + _SPREAD else None


def likely_scale(path: str, scores: Sequence[float]) -> Scale | None:
    """Say what scale scores look like: where the best come first, small ones are distances if they rise.

    None = they may be on none that is bounded, or there are none.
    """
    if not scores:
        return None
    least, most, order = min(scores), max(scores), score_order(scores)
    distant = "distance" in path.lower() or "dist" in normalize_name(path.rsplit(".", 1)[-1]).split("_")
    if least >= 0 and (order == "rising" or (distant and order != "falling")):
        return Scale.DISTANCE
    if least >= 0 and most <= 1:
        return Scale.COSINE if distant else Scale.SIMILARITY
    return Scale.COSINE if least >= -1 and most <= 1 else None


# --- paths as JMESPath ---------------------------------------------------------------------------------------


def path_text(parts: Sequence[Part]) -> str:
    """Write a path as JMESPath: `hits[0]."@score"`; `@` is the whole."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{_key(part)}"
    return text or "@"


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name).replace("\x7f", "\\u007f")


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UNLIKE_A_FIELD = re.compile(r"[0-9/#:.]")  # so is c3, hr/leave.md or a UUID
_PAIR = 2
_DEPTH, _WIDTH, _ITEMS, _FIELDS, _KEY = 8, 200, 200, 200, 200
_EFFORT, _PLACE = 200_000, 100  # in values; what there is to do at a place without any is worth so many
_WORTH_TELLING = 0.4
_SPREAD = 0.15  # in relevance: one answer was seen, and good answers to other questions score lower
_BRANCH = object()  # stands for the value of a field with fields or places of its own, which no mapping reads as one
_LISTED = "[]"  # the name of a place in a list
_WORTH = {"text": 3.0, "id": 2.0, "score": 2.0, "document": 0.5, "updated": 0.2}
_CONTAINERS = frozenset(
    {"result", "hit", "match", "document", "doc", "chunk", "passage", "item", "point", "node", "context", "source"}
    | {"retrieval_result", "data", "value", "output", "record", "neighbor", "response", "search_result", "children"}
)
_NEVER = frozenset({"error", "warning", "exception", "debug", "trace", "log", "usage"})
_SELDOM = frozenset(
    {"message", "detail", "facet", "aggregation", "filter", "suggestion", "query", "prompt", "explanation"}
)
"""What texts and lists are called that stand beside the hits."""
