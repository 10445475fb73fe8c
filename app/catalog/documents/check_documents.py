"""The document of a check, what a run of it works with, and the hash of its configuration."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from itertools import product
from math import prod
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from app.alerts.documents import RuleDocument, problems_of_rules, rules_in_force, why_uncomputed
from app.answers.domain.generated import answer_measures
from app.base.documents.fields import (
    Control,
    Document,
    Flag,
    Number,
    Place,
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
from app.base.schedules import first_interval, run_patience
from app.base.values import EMPTY, GROUNDING, JUDGED, Rule, RuleKind
from app.catalog.domain import USE_REASONS, MeasureGuide, Use, measure_guide
from app.hooks.domain import TAKES_NO_REPORT
from app.plants.documents import PlantDocument
from app.retrievers.documents.retrievers import RetrieverDocument, Vars
from app.retrievers.domain.retrievers import Retriever, Scorer
from app.scoring.measures import CUTOFFS
from app.scoring.run_inputs import RunInputs, SuiteSnapshot, Yardstick
from app.scoring.suites import SuiteFloors

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
    vars: Annotated[
        Vars,
        Field(
            title="Variables",
            description="Of the retriever's options, for canaries that state none, such as tenant: acme.",
        ),
        Widget(control=Control.AREA, lines=2, mono=True),
    ] = Field(default={})
    schedule: Annotated[ScheduleDocument, Field(title="Schedule")]
    k: Annotated[
        Cutoff,
        Field(title="Hits that count (k)", description="A question is answered if its document is among them."),
        Widget(length=4),
    ] = 5
    fetch_k: Annotated[
        _FetchK,
        Field(
            title="Hits requested",
            description="More than k shows the new rank of lost chunks; default max(k, 10).",
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
            title="Which number matters most?",
            description="The use decides it: reports and suggested rules show its measure first.",
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
            title="Repeat an open alert after",
            description="Such as 1d or 4h; empty is never.",
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
    plant: Annotated[PlantDocument | None, Field(title="Planted document")] = None
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

    @model_validator(mode="after")
    def _has_a_plant(self) -> Self:
        of_plants = [place for place, rule in enumerate(self.rules) if rule.kind is RuleKind.PLANT]
        if of_plants and self.plant is None:
            message = "is about planted documents, and the check has no plant"
            raise field_errors([(("rules", place, "kind"), message) for place in of_plants])
        return self

    @property
    def remind_after(self) -> timedelta | None:
        """Time after the last notification until a firing alert is sent again; None = never."""
        return duration_of(self.remind) if self.remind is not None else None

    @cached_property
    def rules_in_force(self) -> tuple[Rule, ...]:
        """Its rules that are enabled, and those of every check, as they decide; made once for all who ask."""
        return rules_in_force(self.rules, plants=self.plant is not None)

    @property
    def rule_keys(self) -> set[str]:
        """Keys of its rules, including default and disabled ones."""
        return {*(str(rule.key) for rule in self.rules), *(rule.key for rule in self.rules_in_force)}

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

    def unknown_vars(self, retriever: RetrieverDocument) -> Iterator[tuple[str, str]]:
        """Yield (name, sentence) for each variable that its retriever does not take."""
        yield from retriever.unknown_vars(self.vars)

    def why_not_planted(
        self, retriever: RetrieverDocument, retrievers: Mapping[str, RetrieverDocument]
    ) -> Iterator[tuple[Place, str]]:
        """Yield (place, sentence) where its plant is asked for, or written, as somebody who has no credentials."""
        if self.plant is None:
            return
        writer = retrievers.get(self.plant.credentials or "")
        for place, one in ((("plant",), retriever), (("plant", "credentials"), writer)):
            by = None if one is None else one.asks_by
            if one is not None and by is not None and (by not in self.vars or one is writer):
                why = one.why_not_asked(self.vars)
                if why is not None:
                    yield place, f"is asked as the check says, whose {by} {why}"

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
            k=self.k, fetch_k=self.fetch_k, cutoffs=self.cutoffs, scorer=scorer, rules=self.rules_in_force
        )


def build_inputs(suite: SuiteSnapshot, check: CheckDocument, retriever: Retriever, *, config_hash: str) -> RunInputs:
    """Return the inputs of a run of this check."""
    return RunInputs(
        check=check.slug,
        suite_slug=check.suite,
        suite=suite,
        retriever=retriever,
        yardstick=check.yardstick(retriever.scorer),
        patience_seconds=run_patience(first_interval(check.schedule.to_domain()).total_seconds()),
        answer_measures=answer_measures(gives_answers=retriever.gives_answers, judged=check.judge is not None),
        judge=check.judge,
        vars=check.vars or EMPTY,
        config_hash=config_hash,
    )


def config_hash(check: str, retriever: str) -> str:
    """Return the hash of a run's configuration, 64 hex digits, from the content hashes of its check and retriever."""
    return hashlib.sha256((check + retriever).encode()).hexdigest()


MATRIX_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "description": "Values of variables, such as {tenant: [acme, globex]}: a check for each combination of them.",
}
MOST_OF_MATRIX: Final = 50
"""Checks that one matrix may make."""


def expand_matrix(check: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
    """Return the checks that a check with a `matrix` stands for, and what is wrong with the matrix.

    Each has a combination of the values among its `vars` and, behind its name, the values as words. Where something is
    wrong the check alone is returned, without the matrix.
    """
    plain = {name: value for name, value in check.items() if name != "matrix"}
    matrix, own = check["matrix"], check.get("vars") or {}
    if not isinstance(matrix, Mapping) or not matrix:
        return [plain], "must be a mapping of variables to lists of values, such as {tenant: [acme, globex]}"
    for name, values in matrix.items():
        if not isinstance(values, list) or not values or not all(isinstance(one, str) and one for one in values):
            return [plain], f"needs a list of texts for '{name}', such as [acme, globex]"
        if isinstance(own, Mapping) and name in own:
            return [plain], f"gives values to '{name}', and so does vars; say it once"
    count = prod(len(values) for values in matrix.values())
    if count > MOST_OF_MATRIX:
        return [plain], f"makes {count:,} checks; at most {MOST_OF_MATRIX} are possible"
    combinations = [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]
    slugs = [_slug_of(str(check.get("slug", "")), one.values()) for one in combinations]
    repeated = next((slug for place, slug in enumerate(slugs) if slug in slugs[:place]), None)
    if repeated is not None:
        return [plain], f"makes two checks with the name '{repeated}'; choose values that differ in letters or digits"
    variables = own if isinstance(own, Mapping) else {}
    return [
        {**plain, "slug": slug, "vars": {**variables, **one}} for slug, one in zip(slugs, combinations, strict=True)
    ], None


def _slug_of(slug: str, values: Iterable[str]) -> str:
    words = (re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-") for value in values)
    return "-".join([slug, *words])
