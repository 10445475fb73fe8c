"""Expressions that would not be evaluated but break what does it are refused, wherever they come in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jmespath
import pytest

from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.retrievers.client.answer_fields import Path as CompiledPath
from app.retrievers.client.compiled_retriever import Reader
from app.retrievers.documents.requests import MAX_LEVELS, find_problem
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import ResponseMapping
from tests.support.api_service import RETRIEVER, api

DEEP = {
    "parentheses": "(" * 500 + "a" + ")" * 500,
    "names": "a" + ".a" * 511,
    "flattenings": "a" + "[]" * 500,
    "negations": "!" * 1_000 + "a",
    "negations alone": "!" * 1_000,
    "projections": "a" + "[*]" * 300,
    "indices": "a" + "[0]" * 300,
    "pipes": "a" + "|a" * 500,
    "alternatives": "a" + "||a" * 300,
    "lists": "[" * 400 + "a" + "]" * 400,
    "objects": "{a:" * 200 + "a" + "}" * 200,
    "filters": "a[?" * 200 + "a" + "]" * 200,
    "calls": "not_null(" * 100 + "a" + ")" * 100,
    "a literal": "`" + "[" * 500 + "]" * 500 + "`",
    "a literal of objects": "`" + '{"type":' * 100 + "1" + "}" * 100 + "`",
}
SMALL = [
    "@",
    "a",
    "a.b.c",
    "a[0].b[*].c | [0]",
    '`{"type": {"children": 1}}`',
    "a[::2]",
    "a[?b == `[1]`].{c: c, d: [e]}",
]


def wished(**response: Any) -> dict[str, Any]:
    """Describe a retriever that is mapped like this."""
    return {"slug": "search", "url": "http://127.0.0.1:1", "response": {"hits": "hits", "id": "id", **response}}


def lowered(work: Callable[[], Any], frames: int) -> Any:
    """Do some work that much further down the stack."""
    return work() if frames == 0 else lowered(work, frames - 1)


@pytest.mark.parametrize("expression", [pytest.param(text, id=name) for name, text in DEEP.items()])
@pytest.mark.parametrize("field", ["hits", "text", "index_version"])
def test_an_expression_that_is_too_deep_is_refused_in_a_document(expression: str, field: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"^response\.{field}: '") as refused:
        parse_document(RetrieverDocument, wished(**{field: expression}))
    (problem,) = refused.value.problems
    assert len(problem.message) < 150


@pytest.mark.parametrize("expression", [pytest.param(text, id=name) for name, text in DEEP.items()])
def test_an_expression_that_is_too_deep_is_refused_when_it_is_compiled(expression: str) -> None:
    with pytest.raises(ValueError, match=r"^text: (is nested more than 50 levels deep|not a JMESPath expression)"):
        CompiledPath.of("text", expression)


def test_a_lookup_that_is_too_deep_is_refused() -> None:
    lookup = {"name": "it", "url": "http://127.0.0.1:1", "path": DEEP["names"]}
    with pytest.raises(InvalidInputError, match="is nested more than 50 levels deep"):
        parse_document(RetrieverDocument, {**wished(), "lookup": lookup})


def test_a_service_refuses_such_an_expression_in_a_definition_and_in_a_trial(tmp_path: Path) -> None:
    with api(tmp_path) as service:
        client = service.client
        assert client.put("/v1/retrievers/search", json=RETRIEVER).status_code in {200, 201}
        for expression in DEEP.values():
            response = {"hits": "hits", "id": "id", "text": expression}
            assert client.put("/v1/retrievers/search", json={**RETRIEVER, "response": response}).status_code == 422
            wish = {"query": "?", "retriever": {"response": response}, "answer": "{}"}
            assert client.post("/v1/retrievers/search/try", json=wish).status_code == 422


def test_an_expression_of_the_field_is_not_too_deep() -> None:
    for expression in SMALL:
        assert find_problem(expression, jmespath.compile(expression).parsed) is None, expression


@pytest.mark.parametrize(
    "expression",
    [
        "a" + ".a" * (MAX_LEVELS - 2),
        "a" + "[]" * (MAX_LEVELS // 2 - 1),
        "!" * (MAX_LEVELS - 1) + "a",
        "(" * MAX_LEVELS + "a" + ")" * MAX_LEVELS,
        "a" + "||a" * (MAX_LEVELS - 1),
        "`" + "[" * (MAX_LEVELS - 1) + "]" * (MAX_LEVELS - 1) + "`",
    ],
)
def test_what_is_just_allowed_is_compiled_and_read_far_down_the_stack(expression: str) -> None:
    parse_document(RetrieverDocument, wished(text=expression))
    mapping = ResponseMapping(hits="hits", id="id", **dict.fromkeys(("text", "score", "document"), expression))
    lowered(lambda: Reader(mapping, 10).read(b'{"hits": []}', {}), 300)


@pytest.mark.parametrize("expression", ["join(a, b)", " | ".join(["[@, @]"] * 8)])
def test_an_expression_that_could_fill_the_memory_is_refused_in_a_document(expression: str) -> None:
    with pytest.raises(InvalidInputError, match=r"could make an answer more than 100 times larger than it is$"):
        parse_document(RetrieverDocument, wished(text=expression))
