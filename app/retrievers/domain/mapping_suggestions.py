"""Suggests mappings for an undescribed response: which of its lists holds the hits, and which field is which.

Pure: a response in, mappings with their reasons out, best first. Beside it the response as an outline of which people
click places, and what a click changes in the mapping.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from app.base.values import DEFAULT_MIN_RELEVANCE, Value, replace
from app.retrievers.domain.field_guesses import (
    MAX_PATH_LENGTH,
    Field,
    Part,
    guess_fields,
    is_prose,
    normalize_name,
    read_text,
    score_order,
)
from app.retrievers.domain.retrievers import WHOLE_FIELDS, ResponseMapping, Scale, scale_relevance

ValueT = TypeVar("ValueT")


class Candidate(Value):
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
MAX_SUGGESTIONS = 4


class Suggestion(Value):
    """A mapping that reads hits from the response, with a reason for each field and for `hits`.

    `scale` is the likely scale of the scores; None = none is likely, or a good hit would not be relevant enough on it
    (`usable_scale`).
    """

    mapping: ResponseMapping
    reasons: Mapping[str, str]
    hits: int
    weight: float
    scale: Scale | None = None


def suggest_mappings(answer: Any, *, query: str = "") -> list[Suggestion]:
    """Return mappings for a parsed JSON response, best first; none where nothing looks like hits.

    Texts that share words with `query` are likelier hits, and fields that repeat it are none. The effort is bounded.
    """
    suggestions = [
        one for candidate in find_candidates(answer) if (one := _suggest_mapping(candidate, query)) is not None
    ]
    suggestions.sort(key=lambda suggestion: -suggestion.weight)
    top_weight = suggestions[0].weight if suggestions else 0.0
    distinct = {suggestion.mapping: suggestion for suggestion in reversed(suggestions)}
    ordered = sorted(distinct.values(), key=lambda suggestion: -suggestion.weight)
    return [suggestion for suggestion in ordered if suggestion.weight >= top_weight * _LEAST_SHARE][:MAX_SUGGESTIONS]


def _suggest_mapping(candidate: Candidate, query: str) -> Suggestion | None:
    guesses = guess_fields(candidate.fields, query)
    text, id_guess, score = guesses.get("text"), guesses.get("id"), guesses.get("score")
    if score is not None and candidate.hits is None and score.path.startswith("to_number("):
        del guesses["score"]  # it takes one text, not a column of them
        score = None
    if candidate.hits is not None and len(candidate.hits) > MAX_PATH_LENGTH:
        return None
    if id_guess is None and (text is None or not all(map(_is_text, text.values))):
        return None
    identifying = {guess.path for guess in (text, id_guess) if guess is not None}
    if candidate.own is not None and (not candidate.own & identifying or len(guesses) == 1):
        return None
    has_prose = text is not None and any(isinstance(value, str) and is_prose(value) for value in text.values)
    if score is None and not has_prose and any(field.role == "id" for field in candidate.fields):
        return None  # things of all kinds have names
    names = [normalize_name(part) for part in candidate.parts if isinstance(part, str)]
    if NEVER_HITS.intersection(names):
        return None
    weight = sum(_WORTH[role] * max(guess.weight, 0.0) for role, guess in guesses.items())
    weight += (
        0.5 * bool(names and names[-1] in _CONTAINERS) + min(candidate.count, 10) / 20 - 0.05 * len(candidate.parts)
    )
    if SELDOM_HITS.intersection(names):
        weight *= 0.5
    return Suggestion(
        mapping=ResponseMapping(hits=candidate.hits, **{role: guess.path for role, guess in guesses.items()}),
        reasons={"hits": candidate.reason, **{role: guess.reason for role, guess in guesses.items()}},
        hits=candidate.count,
        weight=weight,
        scale=None if score is None else usable_scale(score.path, score.values),
    )


def suggest_signs(answer: Any) -> dict[str, str]:
    """Return paths of `error` and `partial` for the usual fields that a response has, whatever their values are."""
    if not isinstance(answer, Mapping):
        return {}
    has = {
        "error": [
            *(name for name in ("error", "errors") if name in answer),
            *(name for name in ("success", "ok") if isinstance(answer.get(name), bool)),
            *(["code"] if isinstance(answer.get("code"), int) and {"data", "message", "msg"} & answer.keys() else []),
            *(
                ["status"]
                if "status" in answer and "result" in answer and not isinstance(answer["status"], int)
                else []
            ),
        ],
        "partial": [path for path in _PARTIAL_SIGNS if _has_path(answer, path.split("."))],
    }
    return {field: " || ".join(paths) for field, paths in has.items() if paths}


def _has_path(value: Any, steps: Sequence[str]) -> bool:
    for step in steps:
        if not isinstance(value, Mapping) or step not in value:
            return False
        value = value[step]
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or bool(read_text(value))


def usable_scale(path: str, scores: Sequence[float]) -> Scale | None:
    """Return the likely scale, unless good hits on it would hardly reach what most canaries require."""
    scale = likely_scale(path, scores)
    return scale if scale is not None and scale_relevance(scale, scores[0]) >= DEFAULT_MIN_RELEVANCE + _SPREAD else None


def likely_scale(path: str, scores: Sequence[float]) -> Scale | None:
    """Return the scale that scores in their order look like; None where there are none or they are unbounded."""
    if not scores:
        return None
    least, most, order = min(scores), max(scores), score_order(scores)
    distant = "distance" in path.lower() or "dist" in normalize_name(path.rsplit(".", 1)[-1]).split("_")
    if least >= 0 and (order == "rising" or (distant and order != "falling")):
        return Scale.DISTANCE
    if least >= 0 and most <= 1:
        return Scale.COSINE if distant else Scale.SIMILARITY
    return Scale.COSINE if least >= -1 and most <= 1 else None


_PARTIAL_SIGNS = (
    *("timed_out", "_shards", "_clusters", "root.coverage.degraded", "root.errors", "search_cutoff", "partial"),
    "partial_results",
)
_LEAST_SHARE = 0.4
_SPREAD = 0.15  # in relevance: one answer was seen, and good answers to other questions score lower
_WORTH = {"text": 3.0, "id": 2.0, "score": 2.0, "document": 0.5, "updated": 0.2}
_CONTAINERS = frozenset(
    {"result", "hit", "match", "document", "doc", "chunk", "passage", "item", "point", "node", "context", "source"}
    | {"retrieval_result", "data", "value", "output", "record", "neighbor", "response", "search_result", "children"}
)


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
MAX_NODES = 400
MAX_FIELDS = 60
MAX_ITEMS = 4
MAX_DEPTH = 12
_MAX_TEXT, _MAX_NAME = 120, 80

_SAMPLE = 200
"""Items by which a list counts as one of objects."""


class Node(Value):
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


class _List(Value, kw_only=False):
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
