"""What is shown of the catalog besides the documents people wrote: who manages them, and what they are worth."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.domain.views import TimeText


class Ownership(TypedDict):
    """Who manages a definition or canary, and where it is written."""

    managed_by: Literal["file", "api"]
    source: str | None
    """File and line."""
    hash: str


class DefinitionFields(Ownership):
    """What answers add to a document."""

    disabled_reason: str | None
    created_at: TimeText
    updated_at: TimeText


class RetrieverFields(DefinitionFields):
    """What answers add to a retriever."""

    secrets_set: list[str]
    """Which secrets it has; they are never shown."""


class CheckFields(DefinitionFields):
    """What answers add to a check."""

    warnings: NotRequired[list[str]]
    """Which of the hooks written out in it may not be reached."""


class HookFields(DefinitionFields):
    """What answers add to a hook."""

    secrets_set: NotRequired[list[str]]
    warnings: NotRequired[list[str]]
    """Where it may not reach its address, and the setting that lets it; not said in lists."""


class CanaryFields(Ownership):
    """What answers add to a canary."""

    warnings: list[str]
    given: NotRequired[int]
    """Of a POST: how many canaries were sent."""
    changed: NotRequired[int]
    """Of a POST: how many of them changed."""


class SuiteView(DefinitionFields):
    """A suite."""

    slug: str


class ThinTopic(TypedDict):
    """A topic that too few canaries watch."""

    kind: str
    name: str
    canaries: int


class ReachView(TypedDict):
    """What damage the canaries of a suite can see."""

    canaries: int
    """Those that expect something."""
    smallest_fraction: float | None
    thin_topics: list[ThinTopic]


class SuiteReach(TypedDict):
    """What damage a suite can see, and a sentence where that is little."""

    coverage_note: str | None
    reach: ReachView


class CountedReach(SuiteReach):
    """The same of a suite in force."""

    canary_count: int


class SuiteDetail(SuiteView, CountedReach):
    """A suite with how many canaries it has, and what damage they can see."""


class SavedCanaries(TypedDict):
    """What became of canaries that were sent as a list."""

    given: int
    changed: int
    keys: list[str]


class PlannedChange(TypedDict):
    """One difference between what is wanted and what is in force."""

    kind: str
    name: str
    action: str
    fields: list[str]
    note: str | None


class ImportNote(TypedDict):
    """What is in force without effect, and where it is written as far as that is known."""

    file: NotRequired[str]
    line: NotRequired[int]
    path: NotRequired[str]
    message: str


class ImportOutcome(TypedDict):
    """What an import changed, or would change."""

    applied: bool
    changes: list[PlannedChange]
    notes: list[str]
    warnings: list[ImportNote]


class ExportedFiles(TypedDict):
    """A suite as the files of another tool, and what these cannot hold."""

    files: dict[str, str]
    notes: list[str]
