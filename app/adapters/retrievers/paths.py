"""The expressions of a response mapping, compiled: JMESPath, and plain field names wherever that is all they are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError

from app.domain.retrievers import ResponseMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One expression of the mapping. `steps` are the field names where it is a plain path ("@" has none)."""

    text: str
    search: Callable[[Any], Any]
    steps: tuple[str, ...] | None

    @classmethod
    def of(cls, field: str, expression: str) -> "Path":
        """Compile an expression; raises ValueError beginning with the field's name."""
        try:
            compiled = jmespath.compile(expression)
        except JMESPathError as error:
            raise ValueError(f"{field}: not a JMESPath expression: {str(error).splitlines()[0]}") from None
        steps = _steps(compiled.parsed)
        search = compiled.search if steps is None else partial(_walk, steps)
        return cls(text=expression, search=search, steps=steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The compiled expressions of one mapping; `version_header` is a lower-case header name."""

    hits: Path
    id: Path | None
    score: Path | None
    text: Path | None
    document: Path | None
    version: Path | None
    version_header: str | None

    @classmethod
    def of(cls, mapping: ResponseMapping) -> "Paths":
        """Compile a mapping; raises ValueError beginning with the name of the field that is wrong."""
        if mapping.id is None and mapping.text is None:
            raise ValueError("id: either id or text must be mapped, else hits cannot be told apart")
        header = None
        version = mapping.index_version
        if version is not None and version.startswith(_HEADER):
            header, version = version.removeprefix(_HEADER).strip().lower(), None
            if not header:
                raise ValueError("index_version: header: is followed by the name of a header")
        fields = {"id": mapping.id, "score": mapping.score, "text": mapping.text, "document": mapping.document}
        paths = {field: None if path is None else Path.of(field, path) for field, path in fields.items()}
        return cls(
            hits=Path.of("hits", (mapping.hits or "").strip() or "@"),
            version=None if version is None else Path.of("index_version", version),
            version_header=header,
            **paths,
        )

    def place(self, index: int, path: Path | None) -> str:
        """Name a field of a hit as people would write it: `results[3].score`."""
        hits = "" if self.hits.steps == () else self.hits.text
        field = "" if path is None or path.steps == () else f".{path.text}"
        return f"{hits}[{index}]{field}"


class MalformedError(Exception):
    """The answer is not of the mapped shape; the message says where, and quotes nothing of the answer."""


def _steps(node: Mapping[str, Any]) -> tuple[str, ...] | None:
    if node["type"] == "current":
        return ()
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] == "subexpression":
        inner = [_steps(child) for child in node["children"]]
        return None if None in inner else tuple(step for steps in inner for step in steps or ())
    return None


def _walk(steps: tuple[str, ...], value: Any) -> Any:
    """Follow field names as JMESPath does: what is not an object has no fields."""
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


_HEADER = "header:"
