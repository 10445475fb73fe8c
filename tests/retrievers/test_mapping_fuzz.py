"""Whatever an answer is, every mapping ends in a reading or in a sentence: those of the presets and odd ones."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import jmespath
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from app.retrievers.client.compiled_retriever import ID_LENGTH, Reader
from app.retrievers.client.responses import MalformedError
from app.retrievers.domain.retrievers import ResponseMapping, Scale
from app.retrievers.presets import PRESETS
from app.scoring.rankings import round_ranking

FIELDS = ("id", "score", "text", "document", "updated", "index_version")
ODD = {
    "columns": ResponseMapping(hits=None, id="ids[0]", score="scores[0]", text="texts[0]", updated="meta[0][*].at"),
    "flat columns": ResponseMapping(hits=None, id="ids", text="texts", document="meta[*].doc", score="scores"),
    "filtered columns": ResponseMapping(hits=None, id="all[?on].id", text="all[?on].text", score="all[?on].n"),
    "named columns": ResponseMapping(hits=None, id="all.*.id", updated="all.*.at", document="keys(all)"),
    "columns of calls": ResponseMapping(hits=None, id="map(&to_string(id), all)", score="sort(scores)", text="[a, b]"),
    "columns cut": ResponseMapping(hits=None, id="all[:2].id", text="reverse(texts)", document="all[-1:].doc"),
    "texts": ResponseMapping(hits="texts", text="@", index_version="length(texts)"),
    "a text": ResponseMapping(hits=None, text="text"),
    "rows": ResponseMapping(hits="all", id="meta.id", text="text", document="meta.doc.name", updated="meta.at"),
    "odd rows": ResponseMapping(hits="all[].{a: id, b: [text]}", id="a || b[0]", text="b", score="length(a)"),
}


def mappings() -> dict[str, ResponseMapping]:
    """Give mappings by name: one preset of each shape of paths, but none whose users say theirs."""
    presets = {
        _shape(preset.response): (name, ResponseMapping(**{one: preset.response.get(one) for one in ("hits", *FIELDS)}))
        for name, preset in PRESETS.items()
        if preset.response.keys() & {"id", "text"}
    }
    return ODD | dict(presets.values())


def _shape(response: Mapping[str, Any]) -> str:
    """Tell the paths of a mapping without their names."""
    return repr([(name, re.sub(r"\w+", "x", response.get(name) or "")) for name in ("hits", *FIELDS)])


MAPPINGS = mappings()
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5)
    | st.sampled_from(["", "a", "\0", "\ud800", 0.5, -0.0, 10**400, 2**64, "x" * (ID_LENGTH + 1), "2026-01-31", 1e12])
)
NAMES = ["ids", "scores", "texts", "meta", "all", "id", "text", "at", "doc", "on", "n", "a", "b"]


@st.composite
def answers(draw: st.DrawFn, mapping: ResponseMapping) -> Any:
    """Draw an answer that has what the mapping asks for, or nearly, with anything where values stand."""
    paths = [path for name in ("hits", *FIELDS) if (path := getattr(mapping, name)) and not path.startswith("header:")]
    anything = _anything(tuple(paths))
    if draw(st.integers(0, 9)) == 0:
        return draw(anything)
    size = draw(st.integers(0, 4))
    whole: Any = {}
    if mapping.hits is not None:
        rows = [_row(draw, mapping, anything) for _ in range(size)]
        return _planted(whole, _node(mapping.hits), rows)
    for name in FIELDS:
        node = _node(getattr(mapping, name))
        if node is not None and draw(st.integers(0, 9)):
            length = size if draw(st.integers(0, 5)) else draw(st.integers(0, 4))
            whole = _column(whole, node, [draw(_value(name) | anything) for _ in range(length)])
    return whole


@cache
def _anything(paths: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Give values in values under names of ours and those of paths; built once, which takes longer than a draw."""
    names = sorted({*NAMES, *(name for path in paths for name in _names(jmespath.compile(path).parsed))})
    return st.recursive(
        VALUES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=4),
        max_leaves=6,
    )


def _row(draw: st.DrawFn, mapping: ResponseMapping, anything: st.SearchStrategy[Any]) -> Any:
    row: Any = {}
    for name in FIELDS[:-1]:
        node = _node(getattr(mapping, name))
        if node is not None and draw(st.integers(0, 9)):
            row = _planted(row, node, draw(_value(name) if draw(st.integers(0, 9)) else anything))
    return row


GOOD: Mapping[str, st.SearchStrategy[Any]] = {
    "id": st.sampled_from(["a", "b", "c", 4]),
    "score": st.floats(0, 1),
    "text": st.text(max_size=5),
    "document": st.sampled_from(["d", None]),
    "updated": st.sampled_from([1e9, "2026-01-31T12:00:00Z", None]),
}


def _value(field: str) -> st.SearchStrategy[Any]:
    return GOOD.get(field, VALUES)


def _node(path: str | None) -> Any:
    return None if path is None or path.startswith("header:") else jmespath.compile(path.strip() or "@").parsed


def _names(node: Any) -> list[str]:
    own = [node["value"]] if node["type"] == "field" else []
    return own + [name for child in node["children"] if isinstance(child, dict) for name in _names(child)]


def _column(whole: Any, node: Any, values: list[Any]) -> Any:
    """Put a column where a path reads it: of a projection, into each of the items."""
    if node["type"] != "projection":
        return _planted(whole, node, values)
    source, item = node["children"]
    return _planted(whole, source, [_planted({}, item, value) for value in values])


def _planted(whole: Any, node: Any, value: Any) -> Any:
    """Put a value where a path reads it, keeping what is there as far as it goes."""
    kind = node["type"]
    if kind == "field":
        before = whole if isinstance(whole, dict) else {}
        return before | {node["value"]: _merged(before.get(node["value"]), value)}
    if kind == "index":
        return [value]
    if kind in {"subexpression", "index_expression", "pipe"}:
        first, *rest = node["children"]
        for step in reversed(rest):
            value = _planted({}, step, value)
        return _planted(whole, first, value)
    if kind.endswith("projection"):
        by_name = kind == "value_projection"
        source, item = node["children"][:2]
        items = [_planted({}, item, one) for one in (value if by_name else [value])]
        return _planted(whole, source, {f"n{at}": one for at, one in enumerate(items)} if by_name else items)
    if kind in {"or_expression", "function_expression"}:
        return _planted(whole, node["children"][0], value)
    return value if kind in {"current", "identity"} else whole


def _merged(before: Any, after: Any) -> Any:
    """Join two objects, or lists of objects place by place, so that fields planted one by one stand together."""
    if isinstance(before, dict) and isinstance(after, dict):
        return before | {name: _merged(before.get(name), value) for name, value in after.items()}
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [_merged(one, two) for one, two in zip(before, after, strict=True)]
    return after


def read(mapping: ResponseMapping, body: bytes, scale: Scale | None) -> bool:
    """Read; whether there was something to read. Everything read must be whole and storable."""
    try:
        reading = Reader(mapping, 3, scale=scale).read(body, {"x-index-version": "v1"})
    except MalformedError:
        return False
    ranking = reading.ranking
    columns = (ranking.ids, ranking.documents, ranking.texts, ranking.scores)
    assert {len(column) for column in columns} == {len(set(ranking.ids))}
    assert len(ranking) <= ranking.returned <= 3
    assert (ranking.updated is not None) == (mapping.updated is not None)
    assert len(ranking.updated or ranking.ids) == len(ranking)
    assert all(at is None or abs(at) < 1e12 for at in ranking.updated or ())
    for text in (*ranking.ids, *ranking.documents, *ranking.texts, reading.index_version):
        assert text is None or "\0" not in text.encode().decode()
    return round_ranking(ranking, 6).fingerprint is not None


@pytest.mark.parametrize("name", sorted(MAPPINGS))
@settings(max_examples=25)
@given(data=st.data(), scale=st.sampled_from([None, Scale.SIMILARITY, Scale.DISTANCE]))
def test_every_mapping_survives_every_answer(name: str, data: st.DataObject, scale: Scale | None) -> None:
    answer = data.draw(answers(MAPPINGS[name]))
    body = json.dumps(answer, ensure_ascii=data.draw(st.booleans())).encode(errors="surrogatepass")
    read(MAPPINGS[name], body, scale)


@settings(max_examples=150)
@given(name=st.sampled_from(sorted(MAPPINGS)), body=st.binary(max_size=30) | st.text(max_size=30).map(str.encode))
def test_every_mapping_survives_what_is_no_json(name: str, body: bytes) -> None:
    read(MAPPINGS[name], body, None)


@pytest.mark.parametrize(
    "name", sorted(set(MAPPINGS) - {"columns of calls", "odd rows", "columns cut", "named columns"})
)
def test_answers_that_fit_are_drawn_too(name: str) -> None:
    """Else the fuzzing above would only ever see what is malformed."""
    mapping = MAPPINGS[name]
    often = settings(max_examples=5_000, database=None, derandomize=True, phases=[Phase.generate])
    find(answers(mapping), lambda answer: read(mapping, json.dumps(answer).encode(), None), settings=often)
