"""Compiled expressions of a response mapping: JMESPath, or plain field names where that is all they are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.visitor import TreeInterpreter

from app.base.values import Outcome
from app.retrievers.domain.expressions import TOO_DEEP, find_problem
from app.retrievers.domain.retrievers import ResponseMapping


class MalformedError(Exception):
    """The response does not have the mapped shape; the message says where, and may quote the server's own words."""

    outcome = Outcome.MALFORMED


class PartialAnswerError(MalformedError):
    """The response says itself that it holds an error or is not whole."""

    outcome = Outcome.PARTIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One expression of the mapping. `steps` are the field names where it is a plain path ("@" has none).

    `column` reads a list off an answer and gives at most so many of its items and how many there are: None where there
    is none. A projection such as `metadatas[0][*].source` is evaluated item by item, so that an item without the field
    keeps its place as None, where JMESPath would drop it.
    """

    text: str
    search: Callable[[Any], Any]
    steps: tuple[str, ...] | None
    column: Callable[[Any, int], "tuple[list[Any], int] | None"]

    @classmethod
    def of(cls, field: str, expression: str) -> "Path":
        """Compile an expression; raises ValueError beginning with the field's name."""
        try:
            compiled = jmespath.compile(expression)
        except JMESPathError as error:
            raise ValueError(f"{field}: not a JMESPath expression: {str(error).splitlines()[0]}") from None
        except RecursionError:
            raise ValueError(f"{field}: {TOO_DEEP}") from None
        node: Any = compiled.parsed
        problem = find_problem(expression, node)
        if problem is not None:
            raise ValueError(f"{field}: {problem}")
        steps = _steps(node)
        search = compiled.search if steps is None else partial(follow_steps, steps)
        return cls._of_node(expression, node, search)

    @classmethod
    def signs(cls, field: str, expression: str) -> tuple["Path", ...]:
        """Compile the alternatives of `a || b`, each to be evaluated by itself; raises ValueError as `of` does."""
        whole = cls.of(field, expression)
        nodes = _alternatives(jmespath.compile(expression).parsed)
        if len(nodes) == 1:
            return (whole,)
        paths = []
        for node in nodes:
            steps = _steps(node)
            search = partial(TreeInterpreter().visit, node) if steps is None else partial(follow_steps, steps)
            paths.append(cls._of_node(expression if steps is None else ".".join(steps), node, search))
        return tuple(paths)

    @classmethod
    def _of_node(cls, expression: str, node: Any, search: Callable[[Any], Any]) -> "Path":
        steps = _steps(node)
        extended = _extend_projection(node)
        column = (
            partial(_read_projection, extended) if extended["type"] in _PROJECTIONS else partial(_read_list, search)
        )
        return cls(text=expression, search=search, steps=steps, column=column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The compiled expressions of one mapping; `version_header` is a lower-case header name.

    Without `hits` the answer is column-shaped: the fields are read as columns of the whole body.
    """

    hits: Path | None
    id: Path | None
    score: Path | None
    text: Path | None
    document: Path | None
    updated: Path | None
    version: Path | None
    version_header: str | None
    answer: Path | None = None
    error: tuple[Path, ...] = ()
    partial: tuple[Path, ...] = ()
    unwrap: Path | None = None
    absent_is_empty: bool = False

    @classmethod
    def of(cls, mapping: ResponseMapping) -> "Paths":
        """Compile a mapping; raises ValueError beginning with the name of the wrong field."""
        if mapping.id is None and mapping.text is None:
            raise ValueError("id: either id or text must be mapped, else hits cannot be told apart")
        header = None
        version = mapping.index_version
        if version is not None and version.startswith(_HEADER):
            header, version = version.removeprefix(_HEADER).strip().lower(), None
            if not header:
                raise ValueError("index_version: header: is followed by the name of a header")
        fields = {name: getattr(mapping, name) for name in ("id", "score", "text", "document", "updated")}
        paths = {field: None if path is None else Path.of(field, path) for field, path in fields.items()}
        return cls(
            hits=None if mapping.hits is None else Path.of("hits", mapping.hits.strip() or "@"),
            version=None if version is None else Path.of("index_version", version),
            version_header=header,
            error=Path.signs("error", mapping.error or USUAL_ERRORS),
            partial=Path.signs("partial", mapping.partial or USUAL_PARTIAL),
            unwrap=None if mapping.unwrap is None else Path.of("unwrap", mapping.unwrap),
            absent_is_empty=mapping.absent == "empty",
            answer=None if mapping.answer is None else Path.of("answer", mapping.answer),
            **paths,
        )

    def field(self, path: Path) -> str:
        """Field of the mapping a path belongs to: `response.id`."""
        names = ("id", "score", "text", "document", "updated")
        return next(f"response.{name}" for name in names if getattr(self, name) is path)

    def place(self, index: int, path: Path | None) -> str:
        """Place of a field of a hit, as people would write it: `results[3].score`, or of columns `ids[0][3]`."""
        if self.hits is None:
            text = "" if path is None or path.steps == () else path.text
            return text.replace("[*]", f"[{index}]") if text.count("[*]") == 1 else f"{text}[{index}]"
        hits = "" if self.hits.steps == () else self.hits.text
        field = "" if path is None or path.steps == () else f".{path.text}"
        return f"{hits}[{index}]{field}"


def is_null(path: Path, value: Any) -> bool:
    """Whether the place of a path is in a value and holds null, rather than that it is not there."""
    node = jmespath.compile(path.text).parsed
    while node["type"] in _CHAINED:
        *before, node = node["children"]
        value = TreeInterpreter().visit(before[0], value)
    return node["type"] == "field" and isinstance(value, dict) and node["value"] in value


def _alternatives(node: Any) -> list[Any]:
    if node["type"] != "or_expression":
        return [node]
    return [one for child in node["children"] for one in _alternatives(child)]


def _steps(node: Mapping[str, Any]) -> tuple[str, ...] | None:
    if node["type"] == "current":
        return ()
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] == "subexpression":
        inner = [_steps(child) for child in node["children"]]
        return None if None in inner else tuple(step for steps in inner for step in steps or ())
    return None


def follow_steps(steps: tuple[str, ...], value: Any) -> Any:
    """Follow field names as JMESPath does: what is not an object has no fields."""
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _read_list(search: Callable[[Any], Any], answer: Any, most: int) -> tuple[list[Any], int] | None:
    """Read a column that is a list; a lone text, such as a whole context, is a list of one."""
    values = search(answer)
    if isinstance(values, str):
        values = [values] if values else []
    if values is None:
        return None
    if not isinstance(values, list):
        raise MalformedError("not a list")
    return values[:most], len(values)


def _extend_projection(node: Any) -> Any:
    """Let `docs.*.meta.source` go on to its end, as JMESPath says; the parser lets it end after `meta`."""
    if node["type"] != "subexpression" or node["children"][0]["type"] != "value_projection":
        return node
    projection, *rest = node["children"]
    source, item = projection["children"]
    return {**projection, "children": [source, {"type": "subexpression", "children": [item, *rest]}]}


def _read_projection(node: Any, answer: Any, most: int) -> tuple[list[Any], int] | None:
    """Read a column that is a projection, item by item."""
    interpreter = TreeInterpreter()
    source, item, *condition = node["children"]
    if condition:
        source = {**node, "children": [source, _ITSELF, *condition]}
    items = interpreter.visit(source, answer)
    if node["type"] == "value_projection" and isinstance(items, dict):
        items = list(items.values())  # in the order in which keys() gives their names; null keeps its place
    return ([interpreter.visit(item, one) for one in items[:most]], len(items)) if isinstance(items, list) else None


_HEADER = "header:"
_CHAINED = ("subexpression", "index_expression", "pipe")
USUAL_ERRORS = "error || errors || success"
USUAL_PARTIAL = "timed_out || _shards || _clusters || root.coverage.degraded || root.errors"
"""Signs that are looked for where a mapping names none."""
_ITSELF: Any = {"type": "identity", "children": []}
_PROJECTIONS = ("projection", "filter_projection", "value_projection")
