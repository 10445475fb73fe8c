"""Views of definitions, suites, canaries and imports, as JSON on the wire."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.base.values import TimeText


class Ownership(TypedDict):
    """Whether files or the API manage a definition or canary, and where it is defined."""

    managed_by: Literal["file", "api"]
    source: str | None
    """File and line."""
    hash: str


class DefinitionFields(Ownership):
    """Fields added to a document."""

    disabled_reason: str | None
    created_at: TimeText
    updated_at: TimeText


class SecretFields(DefinitionFields):
    """Fields added to a retriever and to a judge."""

    secrets_set: list[str]
    """Names of its secrets; their values are never shown."""


class CheckFields(DefinitionFields):
    """Fields added to a check."""

    warnings: NotRequired[list[str]]
    """Rules that miss a loss of recall, and hooks defined in it that may not be reachable."""


class HookFields(DefinitionFields):
    """Fields added to a hook."""

    secrets_set: NotRequired[list[str]]
    warnings: NotRequired[list[str]]
    """Why it cannot reach its address, with the setting that allows it; absent in lists."""


class CanaryFields(Ownership):
    """Fields added to a canary."""

    warnings: list[str]
    given: NotRequired[int]
    """In the response to a POST: number of canaries sent."""
    changed: NotRequired[int]
    """In the response to a POST: number of them that changed."""


class SuiteView(DefinitionFields):
    """A suite."""

    slug: str


class CategoryComposition(TypedDict):
    """Canaries of a category by segment."""

    category: str
    segments: dict[str, int]
    not_stated: int


class SegmentComposition(TypedDict):
    """Canaries of a segment over all categories, and the fewest there should be."""

    segment: str
    canaries: int
    target: int


class CompositionView(TypedDict):
    """Canaries of a suite by category and segment, with notes where they are unusual. Notes refuse nothing."""

    categories: list[CategoryComposition]
    segments: list[SegmentComposition]
    not_stated: int
    notes: list[str]


class ThinTopic(TypedDict):
    """A topic with too few canaries."""

    kind: str
    name: str
    canaries: int


class ReachView(TypedDict):
    """The damage that the canaries of a suite can detect."""

    canaries: int
    """Number of canaries that expect something."""
    smallest_fraction: float | None
    """The smallest share of an index lost at random of which some canary loses an expected chunk in 95 of 100 cases."""
    failing_fraction: float | None
    """The same of a canary that fails: it loses all that it expects, or falls below its floor of recall."""
    thin_topics: list[ThinTopic]


class SuiteReach(TypedDict):
    """The damage that a suite can detect, and a sentence where the suite is thin."""

    coverage_note: str | None
    reach: ReachView


class CountedReach(SuiteReach):
    """The same of a stored suite, with its number of canaries."""

    canary_count: int


class SuiteDetail(SuiteView, CountedReach):
    """A suite with its number of canaries and the damage they can detect."""


class SavedCanaries(TypedDict):
    """Result of a POST of several canaries."""

    given: int
    changed: int
    keys: list[str]


class PlannedChange(TypedDict):
    """One difference between documents and the store."""

    kind: str
    name: str
    action: str
    fields: list[str]
    note: str | None


class ImportNote(TypedDict):
    """A warning about a document without effect, with its file, line or path where known."""

    file: NotRequired[str]
    line: NotRequired[int]
    path: NotRequired[str]
    message: str


class ImportOutcome(TypedDict):
    """Changes of an import, made or planned."""

    applied: bool
    changes: list[PlannedChange]
    notes: list[str]
    warnings: list[ImportNote]


class ExportedFiles(TypedDict):
    """A suite as the files of another tool, with notes on what the format cannot hold."""

    files: dict[str, str]
    notes: list[str]
