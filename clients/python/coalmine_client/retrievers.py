"""Whatever retrieves in Python, as a function from a query to hits: callables, LangChain, LlamaIndex, Haystack.

Objects are told by what they can do, so none of these packages is imported here.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Hits = list[dict[str, str | None]]
Retrieve = Callable[[str, int, Mapping[str, str]], Hits]
"""From query, number of hits and variables of the canary to hits with `id`, `text` and `document`."""

_DOCUMENT_KEYS = ("document", "source", "file_name", "file_path", "url")


def as_retriever(source: Any) -> Retrieve:
    """Return what retrieves as one function. Raises TypeError for what cannot retrieve.

    `source` is a function of a query (and, where it takes them, of `k` or `top_k`, and of variables by name), a
    retriever of LangChain (`invoke`) or LlamaIndex (`retrieve`), or a retriever component of Haystack (`run`). It may
    be async. It returns texts, pairs of id and text, mappings, or documents of these packages, best first.
    """
    ask = _bound(source)

    def retrieve(query: str, k: int, variables: Mapping[str, str]) -> Hits:
        return [_hit(one) for one in _listed(_awaited(ask(query, k, variables)))][:k]

    return retrieve


def taken_by(source: Any) -> list[str] | None:
    """Return the names of what a retriever takes besides the query, such as `k` and `tenant`; None = any."""
    if hasattr(source, "retrieve") or hasattr(source, "invoke"):
        return []  # of LlamaIndex and LangChain: the query alone
    function = source.run if hasattr(source, "run") and hasattr(source, "__haystack_input__") else source
    taken = _Taken.of(function)
    return None if taken.takes_all else sorted(taken.names)


def _bound(source: Any) -> Callable[[str, int, Mapping[str, str]], Any]:
    if hasattr(source, "retrieve"):  # LlamaIndex
        return lambda query, _k, _variables: source.retrieve(query)
    if hasattr(source, "invoke"):  # LangChain
        return lambda query, _k, _variables: source.invoke(query)
    if hasattr(source, "run") and hasattr(source, "__haystack_input__"):
        takes = _Taken.of(source.run)
        return lambda query, k, variables: source.run(query=query, **takes.of_these(k, variables))
    if callable(source):
        takes = _Taken.of(source)
        return lambda query, k, variables: source(query, **takes.of_these(k, variables))
    raise TypeError(f"{type(source).__name__} is no function and no retriever of LangChain, LlamaIndex or Haystack")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """Which named arguments a function takes."""

    names: frozenset[str]
    takes_all: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "_Taken":
        try:
            parameters = inspect.signature(function).parameters
        except ValueError:  # written in C
            return cls(names=frozenset(), takes_all=False)
        named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        return cls(
            # The first is the query, however it is called.
            names=frozenset(name for name, one in list(parameters.items())[1:] if one.kind in named)
            | frozenset(name for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY),
            takes_all=any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()),
        )

    def of_these(self, k: int, variables: Mapping[str, str]) -> dict[str, Any]:
        """Return those of `k`, `top_k` and the variables that the function takes."""
        offered: dict[str, Any] = {name: k for name in ("k", "top_k") if name in self.names}
        return offered | {name: value for name, value in variables.items() if self.takes_all or name in self.names}


def _awaited(found: Any) -> Any:
    if not inspect.isawaitable(found):
        return found
    import asyncio  # noqa: PLC0415 - most retrievers do without

    async def wait() -> Any:
        return await found

    return asyncio.run(wait())


def _listed(found: Any) -> Iterable[Any]:
    if isinstance(found, Mapping):
        for name in ("documents", "results", "hits"):  # Haystack gives {"documents": [...]}
            if name in found:
                return list(found[name])
    if isinstance(found, str | bytes) or not isinstance(found, Iterable):
        raise TypeError(f"the retriever returned a {type(found).__name__}; it must return a list of hits")
    return list(found)


def _hit(one: Any) -> dict[str, str | None]:
    """Return a hit of any form as id, text and document; without an id, one is made of its text."""
    node = getattr(one, "node", one)  # LlamaIndex gives nodes with scores
    if isinstance(node, str):
        return {"id": _id_of(node), "text": node, "document": None}
    if isinstance(node, tuple):
        identity, text = (*node, None)[:2]
        return {"id": str(identity), "text": text if isinstance(text, str) else None, "document": None}
    text = _first(node, "text", "page_content", "content")
    metadata = _first(node, "metadata", "meta")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    identity = _first(node, "id", "node_id", "chunk_id") or metadata.get("id") or metadata.get("chunk_id")
    document = _first(node, "document", "ref_doc_id")
    document = document or next((metadata[name] for name in _DOCUMENT_KEYS if metadata.get(name)), None)
    if identity is None and not isinstance(text, str):
        raise TypeError(f"a hit of type {type(one).__name__} has neither an id nor a text")
    return {
        "id": _id_of(text) if identity is None else str(identity),
        "text": text if isinstance(text, str) else None,
        "document": None if document is None else str(document),
    }


def _first(one: Any, *names: str) -> Any:
    """Return the first of these entries or attributes that is there and not empty."""
    for name in names:
        value = one.get(name) if isinstance(one, Mapping) else getattr(one, name, None)
        if value is not None and value != "" and not callable(value):
            return value
    return None


def _id_of(text: str) -> str:
    return f"text:{hashlib.blake2b(text.encode(errors='replace'), digest_size=8).hexdigest()}"
