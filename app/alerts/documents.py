"""Rules of a check as users write them: documents, the rules in force with the default ones, in words, and as YAML.

What is wrong with the rules of one check together is found here too: a key used twice, a measure that its runs never
compute.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Self

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)

from app.alerts.domain.conditions import (
    GUARD_BOUNDS,
    INDEX_OPEN,
    SLOWER_MEASURE,
    SLOWER_OPEN,
    SLOWER_RISE,
    SlowerLimits,
)
from app.alerts.domain.rules import (
    FAILED_SHARE,
    REPEATED,
    RESERVED_KEYS,
    default_rule_key,
    watches_answers,
    with_default_rules,
    with_gate_rules,
)
from app.base.documents.fields import (
    CanaryKey,
    Document,
    Flag,
    MaxLatency,
    Number,
    Place,
    RuleKey,
    Whole,
    check_kind,
    check_seconds,
    did_you_mean,
    field_error,
    field_errors,
    one_line,
    parse_seconds,
    repeated_positions,
)
from app.base.documents.parsing import escape_dollars, read_yaml
from app.base.errors import InvalidInputError, Problem
from app.base.texts import counted, listed, measure_words
from app.base.values import (
    ANSWER_MEASURES,
    ANSWERED_RATIO,
    COVERAGE,
    DEGRADED_SHARE,
    DETECTOR_CLOSE,
    EMPTY,
    OPEN_BAD,
    OPEN_OF,
    OWN_MEASURES,
    ROUNDING,
    Bound,
    Category,
    Percentile,
    Rule,
    RuleKind,
    Severity,
    judged_name,
)
from app.index_facts.domain import FALL
from app.retrievers.documents.index_facts import FactName
from app.scoring.measures import mean_name, parse_measure

_DURATION = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}
_SECONDS = WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 300}, _DURATION]}, mode="validation")


class BoundDocument(Document):
    """Where a value is bad: strictly below, or strictly above, a share of 0 to 1.

    Of a drop: at least `by` so much below the baseline. Of a latency: `above` so many seconds, or `800ms`.
    """

    SIDES: ClassVar[tuple[str, ...]] = ("below", "above")
    EXPECTED: ClassVar[str] = "must have either 'below' or 'above'"

    below: Annotated[Number, Field(gt=0, le=1)] | None = None
    above: Annotated[Annotated[Number, Field(ge=0, lt=1)] | None, _SECONDS] = None
    by: Annotated[Number, Field(gt=0, le=1)] | None = None

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        sides = [side for side in _SIDES if getattr(self, side) is not None]
        if len(sides) != 1 or sides[0] not in self.SIDES:
            raise field_error(self.EXPECTED)
        return self

    def to_domain(self) -> Bound:
        """Return the value the domain works with."""
        return Bound(below=self.below, above=self.above, by=self.by)

    def milder_than(self, other: "BoundDocument") -> bool:
        """Whether a value can be bad by the other bound and not by this one; both are on one side."""
        if self.below is not None and other.below is not None:
            return self.below > other.below
        if self.by is not None and other.by is not None:
            return self.by < other.by
        return self.above is not None and other.above is not None and self.above < other.above


class DropBound(BoundDocument):
    """How far below its baseline a value is bad."""

    SIDES: ClassVar[tuple[str, ...]] = ("by",)
    EXPECTED: ClassVar[str] = "must say by how much, for example {by: 0.05}"


class LatencyBound(BoundDocument):
    """Above how many seconds a latency is bad."""

    SIDES: ClassVar[tuple[str, ...]] = ("above",)
    EXPECTED: ClassVar[str] = "must say above how many seconds, for example {above: 800ms}"

    above: MaxLatency | None = None


Rise = Annotated[
    MaxLatency,
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "minimum": 0.001, "maximum": 300}, _DURATION],
            "description": "How far above the baseline a latency must be: seconds, or a duration such as 200ms.",
        },
        mode="validation",
    ),
]
"""As long as a latency may be, and said of something else."""

_SIDES = ("below", "above", "by")
_BOUNDS: dict[RuleKind, type[BoundDocument]] = {RuleKind.DROP: DropBound, RuleKind.LATENCY: LatencyBound}


def _bound_of_kind(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    kind = info.data.get("kind", RuleKind.THRESHOLD)
    bound = _BOUNDS.get(kind, BoundDocument)
    if isinstance(value, Mapping) and any(value.get(side) is not None and side not in bound.SIDES for side in _SIDES):
        raise field_error(bound.EXPECTED)  # whatever else is wrong with a side it has not
    return handler(value) if bound is BoundDocument else bound.model_validate(value)


def _margin_of_kind(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Read the margin of a latency as seconds; every other is a share."""
    if info.data.get("kind") not in {RuleKind.LATENCY, RuleKind.SLOWER}:
        return handler(value)
    seconds = parse_seconds(value)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return handler(value)
    check_seconds(value, seconds, least=0, most=300)
    return float(seconds)


BoundOfKind = Annotated[BoundDocument, WrapValidator(_bound_of_kind)]
MarginOfKind = Annotated[Annotated[Number, Field(ge=0, lt=1)], WrapValidator(_margin_of_kind), _SECONDS]
BUILT = tuple(kind.value for kind in RuleKind)

_RUN_MEASURES = (*OWN_MEASURES, ANSWERED_RATIO)
"""Measures of a threshold besides the means of IR measures."""


def rules_in_force(rules: Sequence["RuleDocument"], *, plants: bool = False) -> tuple[Rule, ...]:
    """Rules a check has in force, see `with_default_rules`."""
    disabled = {str(rule.key) for rule in rules if not rule.enabled}
    return with_default_rules([rule.to_domain() for rule in rules], disabled=disabled, plants=plants)


def gate_rules(rules: Sequence["RuleDocument"], *, compared: bool) -> tuple[tuple[Rule, ...], str | None]:
    """Rules of a check in force where there is no history, with a note on the default, see `with_gate_rules`."""
    disabled = {str(rule.key) for rule in rules if not rule.enabled}
    return with_gate_rules([rule.to_domain() for rule in rules], compared=compared, disabled=disabled)


class OpenDocument(Document):
    """Open on `bad` runs of the last `of`."""

    bad: Annotated[Whole, Field(ge=1, le=100)] = OPEN_BAD
    of: Annotated[Whole, Field(ge=1, le=100)] = OPEN_OF

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.bad > self.of:
            raise field_error(f"must not ask for {self.bad} bad runs of {self.of}")
        return self


def _kind(value: Any) -> Any:
    check_kind("rule kind", value, BUILT)
    return value


def _measure(text: str) -> str:
    if text in _RUN_MEASURES or text in ANSWER_MEASURES:
        return text
    try:
        return mean_name(parse_measure(text))
    except ValueError as error:
        near = did_you_mean(text, (*_RUN_MEASURES, *ANSWER_MEASURES))
        raise field_error(f"unknown measure '{one_line(text)}'{near}" if near else str(error)) from None


class RuleDocument(Document):
    """When a check raises an alert. The key is the identity: bounds may change under it.

    The default key is kind, measure (of a latency, its percentile), category and canary, those present, joined by `-`.
    """

    kind: Annotated[RuleKind, BeforeValidator(_kind)]
    measure: Annotated[str, StringConstraints(max_length=64), AfterValidator(_measure)] | None = None
    category: Category | None = None
    canary: CanaryKey | None = None
    percentile: Annotated[Percentile | None, Field(validate_default=True)] = None
    """Of a latency; default p95."""
    severity: Severity = Severity.CRITICAL
    warning: BoundOfKind | None = None
    critical: BoundOfKind | None = None
    confidence: Annotated[Number, Field(ge=0.5, le=0.999)] = 0.95
    open: OpenDocument = OpenDocument()
    close: Annotated[Whole, Field(ge=1, le=100)] = 2
    margin: MarginOfKind = 0.0
    failed_share: Annotated[Number, Field(ge=0, lt=1)] | None = None
    factor: Annotated[Number, Field(ge=1, le=1000)] | None = None
    """Of `slower`: times the baseline's median latency; default 3."""
    rise: Rise | None = None
    """Of `slower`: above the baseline's median latency, seconds or a duration; default 200ms."""
    fact: FactName | None = None
    """Of `index`: a fact of the index; default: those that count what it holds, and `exact_recall`."""
    minimum: Number | None = None
    """Of `index`: a value below it is bad."""
    maximum: Number | None = None
    """Of `index`: a value above it is bad."""
    fall: Annotated[Number, Field(gt=0, lt=1)] | None = None
    """Of `index`: a value that is lower than usual by this share is bad; default 0.1, unless it has other bounds."""
    enabled: Flag = True
    key: Annotated[RuleKey | None, Field(validate_default=True)] = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, whole: Any) -> Any:
        """Refuse unknown keys, and suggest the options of the rule's kind."""
        kind = whole.get("kind") if isinstance(whole, Mapping) else None
        if not isinstance(kind, str) or kind not in BUILT:
            return whole
        options = _OPTIONS[RuleKind(kind)]
        unknown = [key for key in whole if key not in cls.model_fields]
        if unknown:
            options_note = f"; a {kind} rule has: {', '.join(name for name in cls.model_fields if name in options)}"
            messages = [(key, did_you_mean(str(key), options) or options_note) for key in unknown]
            raise field_errors([((str(key),), f"unknown key '{one_line(str(key))}'{more}") for key, more in messages])
        return _with_own_defaults(RuleKind(kind), whole)

    @field_validator("percentile")
    @classmethod
    def _default_percentile(cls, percentile: Percentile | None, info: ValidationInfo) -> Percentile | None:
        return Percentile.P95 if percentile is None and info.data.get("kind") is RuleKind.LATENCY else percentile

    @field_validator("key")
    @classmethod
    def _default_key(cls, key: str | None, info: ValidationInfo) -> str | None:
        if key is not None:
            return key
        watched = info.data.get("measure") or info.data.get("percentile") or info.data.get("fact")
        return default_rule_key(info.data.get("kind", ""), watched, info.data.get("category"), info.data.get("canary"))

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        wrong = list(self._foreign_options())
        if {"warning", "critical"} <= _OPTIONS[self.kind]:
            wrong += [*self._ordered(), *self._closable()]
        if self.kind in {RuleKind.THRESHOLD, RuleKind.DROP}:
            wrong += self._measurable()
        if self.kind is RuleKind.CANARY and self.canary is None:
            wrong.append((("canary",), "is missing; a canary rule is about one of them"))
        if self.kind is RuleKind.PROBE_ERRORS and self.margin > (
            FAILED_SHARE if self.failed_share is None else self.failed_share
        ):
            wrong.append((("margin",), _NEVER_CLOSES))
        if self.kind is RuleKind.SLOWER and self.margin > (SLOWER_RISE if self.rise is None else self.rise):
            wrong.append((("margin",), _NEVER_CLOSES))
        if self.fact is None:
            bounds = [name for name in ("minimum", "maximum") if getattr(self, name) is not None]
            wrong += [((name,), "needs a fact beside it, whose values it bounds") for name in bounds]
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            wrong.append((("minimum",), "must not be above the maximum"))
        if wrong:
            raise field_errors(wrong)
        return self

    def _foreign_options(self) -> Iterator[tuple[Place, str]]:
        """Yield the options that do not apply to a rule of this kind."""
        understood = _OPTIONS[self.kind]
        for name, field in type(self).model_fields.items():
            if name not in understood and getattr(self, name) != field.default:
                yield (name,), f"does not apply to a {self.kind} rule"

    def _ordered(self) -> Iterator[tuple[Place, str]]:
        if self.warning is None and self.critical is None:
            yield (), "must have a bound: warning or critical"
        if self.warning is not None and self.critical is not None:
            if (self.warning.below is None) != (self.critical.below is None):
                yield ("critical",), "must be on the same side (below or above) as warning"
            elif self.critical.milder_than(self.warning):
                yield ("critical",), "must not be milder than warning"

    def _closable(self) -> Iterator[tuple[Place, str]]:
        for bound in (self.warning, self.critical):
            if bound is None:
                continue
            room = 1 - bound.below if bound.below is not None else bound.above or bound.by or 0
            if self.margin > room + ROUNDING:
                yield ("margin",), _NEVER_CLOSES
                return

    def _measurable(self) -> Iterator[tuple[Place, str]]:
        """Yield what no run ever measures, so that such a rule could never open."""
        if self.measure is None:
            yield ("measure",), f"is missing; a {self.kind} rule watches one"
        if self.kind is RuleKind.DROP and self.measure in _RUN_MEASURES and self.measure != COVERAGE:
            yield (
                ("measure",),
                "must be coverage or a measure of single canaries, such as NDCG@10: a drop compares pairs",
            )
        negative = self.category is Category.NEGATIVE
        if negative and (self.kind is RuleKind.DROP or self.measure not in {DEGRADED_SHARE, ANSWERED_RATIO}):
            yield ("category",), f"negative canaries expect nothing, so they have no {self.measure or 'such measure'}"
        if self.category is not None and not negative and self.measure == ANSWERED_RATIO:
            yield ("category",), "only negative canaries have an answered_ratio"

    def _watched(self) -> str | None:
        if self.kind is RuleKind.GUARD:
            return COVERAGE
        if self.kind is RuleKind.SLOWER:
            return SLOWER_MEASURE
        return self.measure if self.percentile is None else f"latency_{self.percentile}"

    def without_defaults(self) -> dict[str, Any]:
        """Return the rule as JSON without the defaults of its kind; read back, it is the same rule."""
        lean = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        own = _OWN_DEFAULTS.get(self.kind, {})
        for name, default in own.items():  # those of the field differ
            lean.pop(name, None)
            value = self.open.model_dump() if name == "open" else str(getattr(self, name))
            lean |= {} if value == default else {name: value}
        return lean

    def to_domain(self) -> Rule:
        """Return the value the domain works with."""
        # A missing run and a changed embedder open and close at once; the detector counts its runs itself.
        once = self.kind in {RuleKind.NO_DATA, RuleKind.EMBEDDING, RuleKind.REGRESSION, RuleKind.PLANT}
        return Rule(
            key=str(self.key),
            kind=self.kind,
            measure=self._watched(),
            category=self.category,
            canary=self.canary,
            percentile=self.percentile,
            severity=self.severity,
            confidence=self.confidence,
            detector_close=self.close if self.kind is RuleKind.REGRESSION else DETECTOR_CLOSE,
            warning=self.warning.to_domain() if self.warning else None,
            critical=self.critical.to_domain() if self.critical else None,
            open_bad=1 if once or self.kind is RuleKind.LEAK else self.open.bad,
            open_of=1 if once or self.kind is RuleKind.LEAK else self.open.of,
            close=1 if once else self.close,
            margin=self.margin,
            failed_share=self.failed_share,
            factor=self.factor,
            rise=self.rise,
            fact=self.fact,
            minimum=self.minimum,
            maximum=self.maximum,
            fall=self.fall,
        )


_NEVER_CLOSES = "is so large that the alert could never close"
_ALWAYS = {"kind", "key", "enabled"}
_OPTIONS = {
    RuleKind.THRESHOLD: _ALWAYS | {"measure", "category", "warning", "critical", "open", "close", "margin"},
    RuleKind.DROP: _ALWAYS | {"measure", "category", "warning", "critical", "confidence", "open", "close", "margin"},
    RuleKind.REGRESSION: _ALWAYS | {"close"},
    RuleKind.CANARY: _ALWAYS | {"canary", "severity", "open", "close"},
    RuleKind.LATENCY: _ALWAYS | {"percentile", "warning", "critical", "open", "close", "margin"},
    RuleKind.PROBE_ERRORS: _ALWAYS | {"failed_share", "open", "close", "margin"},
    RuleKind.NO_DATA: _ALWAYS,
    RuleKind.EMBEDDING: _ALWAYS,
    RuleKind.GUARD: _ALWAYS,
    RuleKind.LEAK: _ALWAYS | {"severity", "close"},
    RuleKind.PLANT: _ALWAYS,
    RuleKind.INDEX: _ALWAYS | {"fact", "minimum", "maximum", "fall", "severity", "open", "close"},
    RuleKind.SLOWER: _ALWAYS | {"factor", "rise", "open", "close", "margin"},
}


_OWN_DEFAULTS: Final[Mapping[RuleKind, Mapping[str, Any]]] = {
    RuleKind.SLOWER: {"open": dict(zip(("bad", "of"), SLOWER_OPEN, strict=True))},
    RuleKind.INDEX: {"severity": str(Severity.WARNING), "open": dict(zip(("bad", "of"), INDEX_OPEN, strict=True))},
}
"""Defaults of kinds that differ from those of the fields."""


def _with_own_defaults(kind: RuleKind, whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add what is not given and has a default of its own in this kind."""
    filled = dict(whole)
    for name, default in _OWN_DEFAULTS.get(kind, {}).items():
        given = whole.get(name, default)
        filled[name] = {**default, **given} if isinstance(default, Mapping) and isinstance(given, Mapping) else given
    return filled


def problems_of_rules(
    rules: Sequence[RuleDocument], cutoffs: Collection[int] | None, fetch_k: int | None
) -> Iterator[tuple[Place, str]]:
    """Yield what is wrong with the rules of one check together: a key twice, a measure its runs never compute."""
    for position in repeated_positions(rule.key for rule in rules):
        yield (position, "key"), f"the rule key '{rules[position].key}' is used twice in this check"
    detectors = [position for position, rule in enumerate(rules) if rule.kind is RuleKind.REGRESSION]
    for position in detectors[1:]:
        yield (position, "kind"), "a check has one detector, so one regression rule"
    for position, rule in enumerate(rules):
        if rule.key in RESERVED_KEYS and rule.key != rule.kind:
            yield (position, "key"), f"'{rule.key}' is the key of a rule every check has"
        if rule.measure in ANSWER_MEASURES and (rule.kind is not RuleKind.THRESHOLD or rule.category is not None):
            yield ((position, "measure"), f"{rule.measure} is of answers: only a threshold over all of them watches it")
        if rule.measure is None or rule.measure in (*_RUN_MEASURES, *ANSWER_MEASURES) or cutoffs is None:
            continue
        why = why_uncomputed(rule.measure, cutoffs, fetch_k)
        if why is not None:
            yield (position, "measure"), why


def why_uncomputed(
    measure: str, cutoffs: Collection[int], fetch_k: int | None, *, check: str | None = None
) -> str | None:
    """Why the runs of a check have no such measure, naming the check where given; None = they have it.

    `cutoffs` include the check's own k.
    """
    cut = parse_measure(measure).k
    where = f" in check '{check}'" if check else ""
    if cut is not None and cut not in cutoffs:
        return f"{measure} is not computed{where}; add {cut} to the cutoffs of the check"
    if cut is not None and fetch_k is not None and cut > fetch_k:
        return f"{measure} is undefined{where}; it needs a fetch_k of at least {cut}"
    return None


def rule_in_words(rule: Rule) -> str:
    """When a run is bad by a rule, and when its alert opens and closes: a sentence without its full stop."""
    sentence = _WORDS[rule.kind](rule)
    if rule.kind in _AT_ONCE:
        return sentence
    runs = "measured runs" if rule.kind is not RuleKind.PROBE_ERRORS else "runs"
    opens = "at once" if rule.open_of == 1 else f"on {rule.open_bad} bad of {rule.open_of} {runs}"
    return f"{sentence}; opens {opens}, closes after {counted(rule.close, 'good run')}"


def protection_text(
    rules: Iterable[Rule],
    *,
    identical_runs: int,
    runs: int,
    frozen: bool,
    expects: bool = True,
    silent: Collection[str] = (),
    missing: float = 0.0,
    unmeasured: Mapping[str, str] = EMPTY,
) -> str | None:
    """When an alert opens while no baseline stands, and when smaller losses are noticed too; None = no rule does.

    Sentences with their full stops, about coverage and generated answers. It stands after so many more `identical_runs`
    or `runs`, whichever comes first. `frozen`: whether nothing is learned at
    present, because alerts are open. `expects`: whether a canary expects a chunk; else there is no coverage.
    `silent`: what a judge did not say of many answers of the newest run that came. `missing`: share of its answers that
    did not come, 0 where the others stand for them. `unmeasured`: by measure of answers, why runs do not have it as
    things are defined now, a clause.
    """
    known = list(rules)
    of_answers = [rule for rule in known if watches_answers(rule.kind, rule.measure)]
    lacking = [rule for rule in of_answers if rule.measure in unmeasured]
    bounding = [rule for rule in known if expects and _bounds_coverage(rule)]
    coverage = [f"coverage {one}" for rule in bounding if (one := _lower_limit(rule))]
    bounded = [(rule, one) for rule in of_answers if rule not in lacking and (one := _lower_limit(rule))]
    came = bounded if missing < 1 else []
    read = [(rule, one) for rule, one in came if judged_name(rule.measure) not in silent]
    if not coverage and not bounded and not lacking:
        return None
    watched = [*coverage[:1], *(f"{measure_words(rule.measure or '')} {one}" for rule, one in read)]
    sentences = [f"Protected now: alerts when {' or '.join(watched)}."] if watched else []
    if bounded and missing:
        which = "answers that do not come" if came else "answers"
        sentences.append(f"Not protected now: {which}, until the generator or the retriever gives them again.")
    if len(read) < len(came):
        names = dict.fromkeys(measure_words(one.measure or "") for one, _ in came if (one, _) not in read)
        which = f"{listed(list(names))} of answers" if read else "answers"
        sentences.append(f"Not protected now: {which}, until a judge reads them again.")
    for why in dict.fromkeys(unmeasured[rule.measure or ""] for rule in lacking):
        names = dict.fromkeys(
            measure_words(rule.measure or "") for rule in lacking if unmeasured[rule.measure or ""] == why
        )
        which = "answers" if len(lacking) == len(of_answers) else f"{listed(list(names))} of answers"
        sentences.append(f"Not protected now: {which}, since {why}.")
    sentence = " ".join(sentences)
    if not any(rule.kind is RuleKind.REGRESSION for rule in known):
        return sentence
    if frozen:
        return f"{sentence} Smaller losses later: the baseline is frozen while alerts are open."
    same = f"{counted(identical_runs, 'more run')} with the same results"
    left = same if identical_runs < runs else counted(runs, "more run")
    return f"{sentence} After {left}: smaller losses too."


def renewal_text(rules: Iterable[Rule], *, unknown: int, watched: int) -> str | None:
    """Say what protects canaries that the baseline does not know; None = it knows all.

    Sentences with their full stops.
    """
    if not unknown:
        return None
    verb = "is" if unknown == 1 else "are"
    new = f"{counted(unknown, 'canary')} {verb} unknown to the baseline (new, changed, restless or measured seldom)"
    later = f"{new}: smaller losses of {'its' if unknown == 1 else 'theirs'} are noticed later."
    limits = [one for rule in rules if _bounds_coverage(rule) and (one := _lower_limit(rule))]
    if 2 * unknown < watched or not limits:
        return later
    return f"Protected now: alerts when coverage {limits[0]}. {later}"


def _bounds_coverage(rule: Rule) -> bool:
    """Whether a rule is about coverage of the whole check."""
    of_whole = rule.measure == COVERAGE and rule.category is None
    return rule.kind is RuleKind.GUARD or (rule.kind is RuleKind.THRESHOLD and of_whole)


def _lower_limit(rule: Rule) -> str | None:
    """When what a rule watches is so low that its alert opens, after its name; None = never."""
    bounds = [bound.below for bound in (rule.warning, rule.critical) if bound is not None and bound.below]
    if rule.kind is RuleKind.GUARD:
        falls = f"falls below {GUARD_BOUNDS[-1][2]} of the first run's"
    elif bounds:
        falls = f"falls below {max(bounds):g}"
    else:
        return None
    if rule.open_of == 1:
        return f"{falls} in one run"
    return f"{falls} in {rule.open_bad} of {rule.open_of} runs"


def _threshold(rule: Rule) -> str:
    of = f" of {measure_words(rule.category)} canaries" if rule.category else ""
    return f"{measure_words(rule.measure or '')}{of} is {_bounds(rule)}{_margin(rule)}"


def _drop(rule: Rule) -> str:
    of = f" of {measure_words(rule.category)} canaries" if rule.category else ""
    sentence = f"{measure_words(rule.measure or '')}{of} fell against the baseline {_bounds(rule)}"
    return f"{sentence}, significant at {100 * rule.confidence:g} % confidence"


def _latency(rule: Rule) -> str:
    which = _PERCENTILES[rule.percentile or Percentile.P95]
    return f"{which} is {_bounds(rule, ' s')}{_margin(rule)}"


def _probe_errors(rule: Rule) -> str:
    share = FAILED_SHARE if rule.failed_share is None else rule.failed_share
    least = " (two or more)" if rule.failed_share is None else ""
    return (
        f"more than {100 * share:g} % of its probes{least} fail, or a canary's {REPEATED} times in a row (warning); "
        "critical where the run is unknown"
    )


def _slower(rule: Rule) -> str:
    limits = SlowerLimits.of(rule.factor, rule.rise).words("the baseline")
    return f"once a baseline stands: the median latency is above {limits} (warning){_margin(rule)}"


def _index(rule: Rule) -> str:
    bounds = [
        f"{side} {bound:,g}" for side, bound in (("below", rule.minimum), ("above", rule.maximum)) if bound is not None
    ]
    falls = rule.fall if rule.fall is not None or bounds else FALL
    bounds += [f"{100 * falls:g} % lower than usual"] if falls is not None else []
    what = f"{rule.fact} of the index" if rule.fact else "what the index holds, or its recall against exact search,"
    return f"{what} is {' or '.join(bounds)} ({rule.severity})"


def _regression(rule: Rule) -> str:
    sentence = "more canaries are lost or worse than chance explains by what they did in the baseline"
    return (
        f"{sentence}; the detector opens it by itself, and closes it after {counted(rule.detector_close, 'good run')}"
    )


_GUARD: Final = (
    "until a baseline stands: coverage is 0 or "
    + ", or ".join(f"below {words} ({severity})" for severity, _, words in GUARD_BOUNDS)
    + ", of the first measured run's"
)
_WORDS: Final[Mapping[RuleKind, Callable[[Rule], str]]] = {
    RuleKind.THRESHOLD: _threshold,
    RuleKind.DROP: _drop,
    RuleKind.REGRESSION: _regression,
    RuleKind.CANARY: lambda rule: f"the canary {rule.canary} is degraded ({rule.severity})",
    RuleKind.LATENCY: _latency,
    RuleKind.PROBE_ERRORS: _probe_errors,
    RuleKind.NO_DATA: lambda _: "nothing has completed by the second scheduled time after the last run (critical)",
    RuleKind.GUARD: lambda _: _GUARD,
    RuleKind.SLOWER: _slower,
    RuleKind.LEAK: lambda rule: f"a canary gets a chunk that it forbids ({rule.severity})",
    RuleKind.INDEX: _index,
    RuleKind.PLANT: lambda _: "a planted document is not found or not gone in time, or left behind (critical), or slow",
    RuleKind.EMBEDDING: lambda _: "the embedder of the retriever answers known texts as another model would (critical)",
}
_AT_ONCE = {RuleKind.REGRESSION, RuleKind.NO_DATA, RuleKind.EMBEDDING, RuleKind.PLANT}
_PERCENTILES: Final[Mapping[Percentile, str]] = {
    Percentile.P50: "the median latency",
    Percentile.P95: "the p95 latency",
    Percentile.MAX: "the longest latency",
}


def _bounds(rule: Rule, unit: str = "") -> str:
    sides = ((Severity.WARNING, rule.warning), (Severity.CRITICAL, rule.critical))
    return " or ".join(f"{_bound(bound)}{unit} ({severity})" for severity, bound in sides if bound is not None)


def _bound(bound: Bound) -> str:
    if bound.by is not None:
        return f"by {bound.by:g} or more"
    return f"below {bound.below:g}" if bound.below is not None else f"above {bound.above:g}"


def _margin(rule: Rule) -> str:
    return f"; to be good it must be {rule.margin:g} on the other side" if rule.margin else ""


def rules_yaml(rules: Sequence[RuleDocument]) -> str:
    """Rules as YAML without their defaults; empty where there are none."""
    if not rules:
        return ""
    lean = [_escaped(rule.without_defaults()) for rule in rules]
    return str(yaml.safe_dump(lean, sort_keys=False, allow_unicode=True, width=110))


def read_rules(text: str) -> list[Any]:
    """Read rules, not yet validated; empty for an empty text. Raises InvalidInputError with the line."""
    located, errors = read_yaml("rules", text, {})
    problems = [Problem(path="rules", message=f"line {problem.line}: {problem.message}") for problem in errors]
    data = [document.data for document in located if document.data is not None]
    if problems:
        raise InvalidInputError(problems)
    if len(data) > 1 or not all(isinstance(one, list) for one in data):
        raise InvalidInputError([Problem(path="rules", message="must be a list: each rule begins with '- '")])
    return list(data[0]) if data else []


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape_dollars(value)
    if isinstance(value, dict):
        return {name: _escaped(inner) for name, inner in value.items()}
    return value
