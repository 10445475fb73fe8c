"""Reads a check with its suite, retriever or hooks defined inline, so that one document defines everything.

An inline part without a slug gets the check's. Canaries without a key get one derived from their query.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from app.base.documents.fields import Document
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError, Problem
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import CheckDocument
from app.hooks.documents import HookDocument
from app.retrievers.documents.retriever_documents import RetrieverDocument

DocumentReader = Callable[[str, type[Document], Mapping[str, Any]], Document]
"""Returns a document of a kind from its JSON, with null secrets filled in; raises InvalidInputError."""

KeyAssigner = Callable[[str, Sequence[Any]], list[Any]]
"""Returns the canaries of a suite with derived keys where they have none."""

DocumentT = TypeVar("DocumentT", bound=Document)


def inline_kinds(body: Mapping[str, Any]) -> set[str]:
    """Return the kinds of definitions that are inline in a check."""
    kinds = {kind for kind in ("suite", "retriever") if isinstance(body.get(kind), dict)}
    hooks = body.get("hooks")
    return kinds | ({"hook"} if isinstance(hooks, list) and any(isinstance(one, dict) for one in hooks) else set())


def read_inline_check(body: Mapping[str, Any], read: DocumentReader, assign_keys: KeyAssigner) -> Documents:
    """Return the documents of a check with inline parts. Raises InvalidInputError with every problem and its path."""
    return _InlineCheckReader(body=body, read=read, assign_keys=assign_keys).documents()


@dataclass(slots=True, kw_only=True)
class _InlineCheckReader:
    body: Mapping[str, Any]
    read: DocumentReader
    assign_keys: KeyAssigner
    problems: list[Problem] = field(default_factory=list)

    def documents(self) -> Documents:
        check = dict(self.body)
        suite = self._part(check, "suite", SuiteDocument, self._suite)
        retriever = self._part(check, "retriever", RetrieverDocument, self._parser("retriever", RetrieverDocument))
        hooks = self._hooks(check)
        parsed = self._parse_at("", lambda: parse_document(CheckDocument, check))
        if self.problems or parsed is None:
            raise InvalidInputError(self.problems)
        return Documents(
            suites=() if suite is None else (suite,),
            retrievers=() if retriever is None else (retriever,),
            hooks=tuple(hooks),
            checks=(parsed,),
        )

    def _hooks(self, check: dict[str, Any]) -> list[HookDocument]:
        hooks = check.get("hooks")
        if not isinstance(hooks, list):
            return []
        check["hooks"] = hooks = list(hooks)
        documents = [
            self._part(hooks, place, HookDocument, self._parser("hook", HookDocument), prefix=f"hooks[{place}]")
            for place in range(len(hooks))
        ]
        return [hook for hook in documents if hook is not None]

    def _part(
        self,
        holder: Any,
        place: str | int,
        model: type[DocumentT],
        parse: Callable[[Mapping[str, Any]], Document],
        *,
        prefix: str | None = None,
    ) -> DocumentT | None:
        """Return the document of an inline part and leave its slug in its place; None where there is only a slug."""
        part = holder[place] if isinstance(place, int) else holder.get(place)
        if not isinstance(part, dict):
            return None
        named = {"slug": self.body.get("slug"), **part}
        holder[place] = named["slug"]
        document = self._parse_at(prefix or str(place), lambda: parse(named))
        return document if isinstance(document, model) else None

    def _parser(self, kind: str, model: type[Document]) -> Callable[[Mapping[str, Any]], Document]:
        return lambda part: self.read(kind, model, part)

    def _suite(self, part: Mapping[str, Any]) -> SuiteDocument:
        canaries = part.get("canaries")
        if canaries is None:
            raise InvalidInputError([Problem(path="canaries", message="the key 'canaries' is missing")])
        keyed = self.assign_keys(str(part.get("slug")), canaries) if isinstance(canaries, list) else canaries
        return parse_document(SuiteDocument, {**part, "canaries": keyed})

    def _parse_at(self, prefix: str, parse: Callable[[], DocumentT]) -> DocumentT | None:
        """Return a parsed part; None where it has problems, which are added with their path in the whole document."""
        try:
            return parse()
        except InvalidInputError as error:
            for one in error.problems:
                path = ".".join(part for part in (prefix, one.path) if part)
                self.problems.append(replace(one, path=path or None))
            return None
