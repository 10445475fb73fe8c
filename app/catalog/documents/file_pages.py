"""One YAML document of a canary file: its schema, and the lines of its parts."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from app.base.documents.blocks import in_blocks
from app.base.documents.fields import MOST_PROBLEMS, Document, Place, Slug, field_errors
from app.base.documents.validation_messages import message_of, path_of, place_of
from app.base.documents.yaml_source import Located
from app.base.errors import Problem
from app.catalog.documents.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    JudgeDocument,
    RetrieverDocument,
    SilenceDocument,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where something is defined."""

    file: str
    line: int


def _none_is_empty(value: Any) -> Any:
    return () if value is None else value


class CanaryFile(Document):
    """One document of a canary file: a suite with its canaries, and lists of all other kinds; all optional."""

    suite: Slug | None = None
    canaries: Annotated[tuple[CanaryDocument, ...], in_blocks(CanaryDocument), BeforeValidator(_none_is_empty)] = ()
    retrievers: Annotated[tuple[RetrieverDocument, ...], BeforeValidator(_none_is_empty)] = ()
    checks: Annotated[tuple[CheckDocument, ...], BeforeValidator(_none_is_empty)] = ()
    hooks: Annotated[tuple[HookDocument, ...], BeforeValidator(_none_is_empty)] = ()
    silences: Annotated[tuple[SilenceDocument, ...], BeforeValidator(_none_is_empty)] = ()
    judges: Annotated[tuple[JudgeDocument, ...], BeforeValidator(_none_is_empty)] = ()

    @model_validator(mode="after")
    def _canaries_have_a_suite(self) -> Self:
        if self.canaries and self.suite is None:
            raise field_errors([(("canaries",), "need a suite; add 'suite: NAME'")])
        return self


@dataclass(slots=True, kw_only=True)
class Page:
    """One YAML document of one file."""

    file: str
    located: Located
    valid: CanaryFile = field(default_factory=CanaryFile)

    def validate(self) -> list[Problem]:
        """Parse the page into `valid`; return its problems."""
        try:
            self.valid = CanaryFile.model_validate(self.located.data)
        except ValidationError as error:
            wrong = (one for one in error.errors(include_url=False) if not self.located.touches_broken(one["loc"]))
            return [
                replace(self.problem(one["loc"], message_of(CanaryFile, one)), path=path_of(place_of(one)) or None)
                for one in islice(wrong, MOST_PROBLEMS)
            ]
        return []

    def problem(self, place: Place, message: str) -> Problem:
        """Return a problem at a place, with its path and line."""
        return Problem(message=message, path=path_of(place) or None, file=self.file, line=self.line_of(place))

    def line_of(self, place: Place) -> int:
        """Return the line of a place."""
        return self.located.line_of(place)

    def items(self, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (position, raw mapping) of a list of the page, whether or not it is valid."""
        documents = self.located.data.get(kind) if isinstance(self.located.data, dict) else None
        for position, item in enumerate(documents if isinstance(documents, list) else ()):
            if isinstance(item, dict):
                yield position, item
