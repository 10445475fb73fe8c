"""An answer as a tree, and what pointing into it means; of answers made to be a burden only so much is looked at."""

import json
from typing import Any

import pytest

from app.base.texts import parse_cut
from app.retrievers.domain.mapping_suggestions import (
    MAX_NODES,
    Node,
    build_outline,
    fields_by_node,
    mapping_changes,
    parse_place,
)

ROWS: dict[str, Any] = {
    "took": 3,
    "results": [
        {"id": "a", "score": 0.9, "meta": {"source": "x"}, "parts": [{"text": "Logs are kept."}]},
        {"id": "b", "score": 0.8, "meta": {"source": "y"}, "parts": [{"text": "For a year."}]},
    ],
    "index": "v1",
}
COLUMNS = {"ids": [["a", "b"]], "metadatas": [[{"source": "x"}, {"source": "y"}]]}
GROUPS = {"shards": [{"hits": [{"id": 1}, {"id": 2}]}, {"hits": [{"id": 3}, {"id": 4}]}]}


def nodes(node: Node) -> list[Node]:
    """Give a node and everything in it."""
    return [node, *(inner for one in node.children for inner in nodes(one))]


def test_pointing_at_a_value_says_the_path_that_reads_it() -> None:
    for field, parts, mapping, changes in [
        ("hits", ("results",), {}, {"hits": "results"}),
        ("hits", ("results", 1, "id"), {}, {"hits": "results"}),
        ("id", ("results", 1, "id"), {"hits": "results"}, {"id": "id"}),
        ("document", ("results", 0, "meta", "source"), {"hits": "results"}, {"document": "meta.source"}),
        ("text", ("results", 0, "parts", 0, "text"), {"hits": "results"}, {"text": "parts[0].text"}),
        ("index_version", ("index",), {"hits": "results"}, {"index_version": "index"}),
        ("id", ("results", 0, "id"), {}, {"hits": "results", "id": "id"}),
    ]:
        assert mapping_changes(field, parts, ROWS, mapping) == changes, field


def test_lists_side_by_side_are_read_as_columns() -> None:
    assert mapping_changes("id", ("ids", 0, 1), COLUMNS, {}) == {"id": "ids[0]"}
    path = mapping_changes("document", ("metadatas", 0, 0, "source"), COLUMNS, {"id": "ids[0]"})
    assert path == {"document": "metadatas[0][*].source"}


def test_hits_in_several_lists_are_read_from_all_of_them() -> None:
    assert mapping_changes("id", ("shards", 1, "hits", 0, "id"), GROUPS, {}) == {"hits": "shards[].hits[]", "id": "id"}


def test_odd_names_are_quoted_and_half_characters_escaped() -> None:
    answer = {"@hits": [{"my id": 1, "\ud800": 2, 'a"b': 3}]}
    assert mapping_changes("hits", ("@hits",), answer, {}) == {"hits": '"@hits"'}
    named = {
        name: mapping_changes("id", ("@hits", 0, name), answer, {"hits": '"@hits"'})["id"]
        for name in answer["@hits"][0]
    }
    assert named == {"my id": '"my id"', "\ud800": '"\\ud800"', 'a"b': '"a\\"b"'}


@pytest.mark.parametrize(
    ("field", "parts", "said"),
    [
        ("id", ("nothing",), "is no place in the answer"),
        ("id", ("results", 7), "is no place in the answer"),
        ("id", ("results", -1), "is no place in the answer"),
        ("hits", ("took",), "there is no list here: point at the list of hits, or at anything in it"),
    ],
)
def test_what_cannot_be_the_field_is_refused_in_words(field: str, parts: tuple[str | int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        mapping_changes(field, parts, ROWS, {"hits": "results"})


def test_a_place_that_is_none_is_refused() -> None:
    for place in ["", "null", "{}", "[null]", "[true]", "[1.5]", "[" * 9_999, json.dumps(["a"] * 13)]:
        with pytest.raises(ValueError, match=r"."):
            parse_place(place)


def test_the_values_a_mapping_reads_are_marked() -> None:
    marks = fields_by_node(ROWS, {"hits": "results", "id": "id", "text": "parts[0].text", "index_version": "index"})
    assert marks['["results"]'] == ("hits",)
    assert marks['["results", 1, "id"]'] == ("id",)
    assert marks['["results", 0, "parts", 0, "text"]'] == ("text",)
    assert marks['["index"]'] == ("index_version",)


def test_what_is_hidden_is_counted() -> None:
    tree = build_outline(
        {"results": [{"id": place} for place in range(10)], **{f"field-{place}": 0 for place in range(99)}}
    )
    assert tree.summary == "100 fields"
    assert len(tree.children) + tree.hidden == 100
    results = next(one for one in tree.children if one.name == "results")
    assert (results.summary, len(results.children), results.hidden) == ("list of 10", 4, 6)


def test_every_field_gets_its_share_of_the_tree() -> None:
    """A first field that alone could fill the tree does not hide those beside it."""
    wide = {f"a{place}": {f"b{inner}": [1, 2, 3] for inner in range(60)} for place in range(50)}
    tree = build_outline({"noise": wide, "results": [{"id": "a"}]})
    assert MAX_NODES // 2 < len(nodes(tree)) <= MAX_NODES
    assert [one.name for one in nodes(tree) if one.name in {"results", "id"}] == ["results", "id"]


def test_a_burden_of_an_answer_is_cut_everywhere() -> None:
    deep = parse_cut("[" * 100_000 + '{"id": 1},')
    shown = [
        build_outline(deep),
        build_outline({"a" * 100_000: "b" * 1_000_000}),
        build_outline([[[0] * 50] * 50] * 50),
    ]
    for tree in shown:
        assert len(nodes(tree)) <= MAX_NODES
        assert all(len(node.summary) <= 120 and len(node.name) <= 80 for node in nodes(tree))


def test_what_no_page_can_show_is_replaced() -> None:
    (node,) = build_outline({"a\ud800\x00": "b\udfff\n\tc"}).children
    assert (node.name, node.summary) == ("a\ufffd\ufffd", "b\ufffd c")
    node.place.encode()
