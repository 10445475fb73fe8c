"""The document of a check; and all kinds of documents by name, with stored bodies read back into them.

A body that an older release wrote is completed by the defaults of newer fields.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationError, ValidationInfo, WithJsonSchema, field_validator, model_validator

from app.alerts.documents import RuleDocument, problems_of_rules, rules_in_force, why_uncomputed
from app.alerts.silences.documents import SilenceDocument
from app.answers.documents import JudgeDocument
from app.base.documents.fields import (
    Control,
    Document,
    Flag,
    Number,
    RemindAfter,
    ReportScheduleDocument,
    ScheduleDocument,
    Slug,
    Whole,
    Widget,
    did_you_mean,
    duration_of,
    each_once,
    field_error,
    field_errors,
)
from app.base.values import GROUNDING, JUDGED
from app.catalog.documents.canary_documents import CanaryDocument, ChunkDocument, JudgmentDocument, SuiteDocument
from app.catalog.documents.secret_fields import split_secrets, with_placeholders
from app.catalog.domain import USE_REASONS, MeasureGuide, Use, measure_guide
from app.hooks.documents import HookDocument
from app.hooks.domain import TAKES_NO_REPORT
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import Scorer
from app.scoring.evaluation import Yardstick
from app.scoring.measures import CUTOFFS
from app.scoring.suites import SuiteFloors

__all__ = [
    "CanaryDocument",
    "CheckDocument",
    "ChunkDocument",
    "HookDocument",
    "JudgeDocument",
    "JudgmentDocument",
    "RetrieverDocument",
    "RuleDocument",
    "ScheduleDocument",
    "SilenceDocument",
    "SuiteDocument",
]


Cutoff = Annotated[Whole, Field(ge=1, le=100)]
_FetchK = Annotated[
    Whole,
    Field(ge=1, le=1000),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 1000}, {"type": "null"}]}, mode="validation"
    ),
]
MOST_CANARY_METRICS = 200


class CheckDocument(Document):
    """A suite run against a retriever on a schedule, with alert rules and hooks for notifications."""

    slug: Annotated[Slug, Field(title="Name", description="Lower-case letters, digits and hyphens."), Widget(length=64)]
    suite: Annotated[Slug, Field(title="Suite"), Widget()]
    retriever: Annotated[Slug, Field(title="Retriever"), Widget()]
    schedule: Annotated[ScheduleDocument, Field(title="Schedule")]
    k: Annotated[
        Cutoff,
        Field(title="Top", description="So many first hits count: an expected chunk among them is found."),
        Widget(length=4),
    ] = 5
    fetch_k: Annotated[
        _FetchK,
        Field(
            title="Hits requested",
            description="More than top k shows the new rank of lost chunks; default max(k, 10).",
            validate_default=True,
        ),
        Widget(placeholder="max(top, 10)", length=5),
    ] = None  # type: ignore[assignment]  # filled by the validator below
    cutoffs: Annotated[
        tuple[Cutoff, ...],
        Field(title="Cutoffs of the measures", min_length=1, max_length=20),
        Widget(placeholder="1, 3, 5, 10, 20", length=200),
    ] = CUTOFFS
    use: Annotated[
        Use,
        Field(
            title="Used for",
            description="Reports and suggested rules show the measure for this use first, and recall next to it.",
        ),
        Widget(choices={use: f"{use.replace('_', ' ')}: {why}" for use, why in USE_REASONS.items()}),
    ] = Use.GENERAL
    rules: Annotated[tuple[RuleDocument, ...], Field(title="Rules", max_length=100)] = ()
    hooks: Annotated[
        tuple[Slug, ...],
        Field(title="Notifications", description="Hooks that alerts are sent to.", max_length=20),
        each_once("the hook '{}' is listed twice"),
        Widget(control=Control.CHECKBOXES),
    ] = ()
    remind: Annotated[
        RemindAfter | None,
        Field(
            title="Remind after",
            description="Time without news after which an open alert is sent again, such as 1d or 4h; empty is never.",
        ),
        Widget(length=12),
    ] = "1d"
    report: Annotated[ReportScheduleDocument | None, Field(title="Scheduled report")] = None
    judge: Annotated[
        Slug | None,
        Field(title="Judge", description="Reads the answers that are generated from the hits; empty is none."),
        Widget(),
    ] = None
    sample: Annotated[
        Annotated[Number, Field(gt=0, le=1)],
        Field(title="Share of canaries judged", description="Always the same canaries; 1 is all of them."),
        Widget(placeholder="1", length=8),
    ] = 1.0
    enabled: Annotated[Flag, Field(title="Enabled", description="Runs on its schedule."), Widget()] = True
    canary_metrics: Annotated[
        Whole,
        Field(
            title="Canary metrics",
            description="Number of canaries, the first of the suite, with Prometheus series of their own.",
            ge=0,
            le=MOST_CANARY_METRICS,
        ),
    ] = 0

    @field_validator("fetch_k", mode="before")
    @classmethod
    def _fill_fetch_k(cls, fetch_k: Any, info: ValidationInfo) -> Any:
        return max(info.data.get("k", 1), 10) if fetch_k is None else fetch_k

    @field_validator("fetch_k")
    @classmethod
    def _at_least_k(cls, fetch_k: int, info: ValidationInfo) -> int:
        k: int = info.data.get("k", 1)
        if fetch_k < k:
            raise field_error(f"must be at least k, which is {k}")
        return fetch_k

    @field_validator("cutoffs")
    @classmethod
    def _ascending(cls, cutoffs: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(cutoffs)))

    @field_validator("rules")
    @classmethod
    def _rules(cls, rules: tuple[RuleDocument, ...], info: ValidationInfo) -> tuple[RuleDocument, ...]:
        # If one of the three is invalid, the measures of a run are not known.
        valid = {"k", "fetch_k", "cutoffs"} <= info.data.keys()
        cutoffs = {*info.data["cutoffs"], info.data["k"]} if valid else None
        wrong = list(problems_of_rules(rules, cutoffs, info.data.get("fetch_k")))
        if wrong:
            raise field_errors(wrong)
        return rules

    @model_validator(mode="after")
    def _has_a_judge(self) -> Self:
        unjudged = [place for place, rule in enumerate(self.rules) if self.judge is None and rule.measure in JUDGED]
        if unjudged:
            message = "is what a judge says of answers; name one: judge: NAME"
            raise field_errors([(("rules", place, "measure"), message) for place in unjudged])
        return self

    @property
    def remind_after(self) -> timedelta | None:
        """Time after the last notification until a firing alert is sent again; None = never."""
        return duration_of(self.remind) if self.remind is not None else None

    @property
    def guide(self) -> MeasureGuide:
        """The measure to read first for the check's use."""
        return measure_guide(self.use, k=self.k, fetch_k=self.fetch_k, cutoffs=self.cutoffs)

    def why_uncomputed(self, measure: str) -> str | None:
        """Return why the check's runs have no such IR measure; None = they have it."""
        return why_uncomputed(measure, {*self.cutoffs, self.k}, self.fetch_k, check=self.slug)

    def without_answers(self, *, gives_answers: bool) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for its judge and for rules on answers, where the retriever gives none."""
        if gives_answers:
            return
        how = "map response: {answer: ...} there, or say answer: {url, request, path}"
        if self.judge is not None:
            yield "judge", f"retriever '{self.retriever}' gives no answers to judge: {how}"
        for place, rule in enumerate(self.rules):
            if rule.measure in GROUNDING:
                yield f"rules[{place}].measure", f"retriever '{self.retriever}' gives no answers to watch: {how}"

    def uncomputed_floors(self, suite: SuiteFloors) -> Iterator[tuple[str, str]]:
        """Yield (canary key, sentence) for floors on measures that no run of the check computes."""
        wrong = {measure: why for measure in suite.measures if (why := self.why_uncomputed(measure)) is not None}
        for key, measures in suite.floors.items() if wrong else ():
            for measure in measures:
                if measure in wrong:
                    yield key, f"canary '{self.suite}/{key}' has a floor on {measure}: {wrong[measure]}"

    def unknown_canaries(self, keys: Collection[str]) -> Iterator[str]:
        """Yield a sentence for every rule about a canary that the suite does not have."""
        for rule in self.rules:
            if rule.canary is not None and rule.canary not in keys:
                near = did_you_mean(rule.canary, keys)
                yield f"rule '{rule.key}' is about '{rule.canary}', but suite '{self.suite}' has no such canary{near}"

    def unfit_report_hooks(self, kinds: Mapping[str, str]) -> Iterator[str]:
        """Yield a sentence for every hook its reports are sent to that takes none; `kinds`: of hooks by slug."""
        for slug in self.report.hooks if self.report else ():
            kind = kinds.get(slug)
            if kind in TAKES_NO_REPORT:
                yield f"hook '{slug}' takes no reports: {kind} is for alerts"

    def yardstick(self, scorer: Scorer) -> Yardstick:
        """Return the yardstick for answers of a retriever with this scorer."""
        return Yardstick.of(
            k=self.k, fetch_k=self.fetch_k, cutoffs=self.cutoffs, scorer=scorer, rules=rules_in_force(self.rules)
        )


_DOCUMENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Document]]] = {
    "retriever": RetrieverDocument.model_validate,
    "check": CheckDocument.model_validate,
    "hook": HookDocument.model_validate,
    "judge": JudgeDocument.model_validate,
    "silence": SilenceDocument.stored,
}
"""By kind. A suite is only a slug, and canaries are completed without validation: there may be 50,000."""

_CANARY: Final = CanaryDocument(key="any", query="any").data()
_CHUNKS: Final = {
    "expected_chunks": {**JudgmentDocument(id="any").data(), "id": None},
    "forbidden_chunks": {**ChunkDocument(id="any").data(), "id": None},
}


def read_body(kind: str, text: str, secrets_set: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - a `BodyReader`
    """Return the body of a definition or a canary, with defaults for missing fields.

    A body that is invalid in this release is returned as stored; executing it reports the problem.
    """
    if kind == "canary":
        return _complete_canary(json.loads(text))
    if kind not in _DOCUMENTS:
        return dict(json.loads(text))
    return dict(json.loads(_complete(kind, text, secrets_set)))


@lru_cache(maxsize=2048)
def _complete(kind: str, text: str, secrets_set: bool) -> str:  # noqa: FBT001 - part of the cache's key
    try:
        document = _DOCUMENTS[kind](with_placeholders(json.loads(text), secrets_set=secrets_set))
    except ValidationError:
        return text
    return json.dumps(split_secrets(document)[0])


def _complete_canary(body: dict[str, Any]) -> dict[str, Any]:
    whole = body if body.keys() >= _CANARY.keys() else {**_CANARY, **body}
    for name, defaults in _CHUNKS.items():
        if not all(chunk.keys() >= defaults.keys() for chunk in whole[name]):
            whole[name] = [{**defaults, **chunk} for chunk in whole[name]]
    return whole
