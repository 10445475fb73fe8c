"""Conditions: what a rule says of one run, by bounds, the first run, the usual latency, leaks, and facts of the index.

A `Condition` is the result with its sentence. How many runs it takes to open or close an alert is decided in `state`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from app.base.texts import bound_text, counted, percent_text, ratio_text, seconds_text, variables_text
from app.base.values import (
    ROUNDING,
    Bound,
    CorrectedRateView,
    Rule,
    RuleKind,
    Severity,
    Value,
    replace,
)
from app.index_facts.domain import (
    EXACT_RECALL,
    FALL,
    WATCHED,
    Fact,
    KnownFact,
    fall_text,
    has_fallen,
    number_text,
    recall_text,
    usual_of,
)
from app.retrievers.domain.probes import FailureSummary


class NumberWriter(Value):
    """How a kind of number is written with its unit; a value has enough digits to differ from its bound."""

    value: Callable[[float, float | None], str]
    bound: Callable[[float], str]


RATIOS: Final = NumberWriter(value=ratio_text, bound=bound_text)
LATENCIES: Final = NumberWriter(value=seconds_text, bound=seconds_text)


class Condition(Value):
    """Result of a rule on one run: bad (with a severity), good beyond the margin, or neither."""

    reason: str
    """A sentence without its full stop, for people."""
    measured: bool = True
    """False: the run has no value for the rule and enters no window."""
    severity: Severity | None = None
    value: float | None = None
    threshold: float | None = None
    """The bound that was crossed, else the mildest one."""
    good_beyond_margin: bool = False
    baseline: float | None = None
    """What the value was compared with, where that is a baseline."""
    corrected: CorrectedRateView | None = None
    """The value, where that is a rate by people's labels."""
    beside: CorrectedRateView | None = None
    """What people would say, where the value is a judge's own mean of shares."""
    rated: str = ""
    """Of how many answers a judge's own value is, where it is not of all: `84 of 140 rated`."""
    unjudged: str = ""
    """Why a run that is not bad does not count as good: a clause on the answers that were not judged."""
    uncalibrated: bool = False
    """Whether a judge says the value, corrected or not, whom people had not confirmed as it rated the run."""
    since_run: int | None = None
    """The first bad run, where the rule covers more than this run."""
    at_once: bool = False
    """Whether a bad run opens its alert by itself: its rule has counted earlier runs."""
    recovering: bool = False
    """Whether it is one of several good runs in a row, counted by the detector."""
    failure: FailureSummary | None = None
    """Of a rule about failed probes: why most of them failed."""


def judge_bounds(rule: Rule, name: str, value: float, write: NumberWriter = RATIOS) -> Condition:
    """Condition of a named value by the bounds of a rule, the worst first; `write` adds the unit."""
    for severity, bound in ((Severity.CRITICAL, rule.critical), (Severity.WARNING, rule.warning)):
        limit = None if bound is None else crossed(value, bound)
        if limit is not None:
            side = "below" if value < limit else "above"
            reason = f"{name} {write.value(value, limit)} is {side} {write.bound(limit)} ({severity})"
            return bad_condition(severity, value, limit, reason)
    mild = rule.warning or rule.critical or Bound()
    is_good = all(_clear(value, bound, rule.margin) for bound in (rule.warning, rule.critical) if bound is not None)
    sides = [
        f"not {side} {write.bound(one)}"
        for side, one in (("below", mild.below), ("above", mild.above))
        if one is not None
    ]
    reason = f"{name} {write.value(value, mildest(rule))} is {' and '.join(sides) or 'not bounded'}"
    if not is_good:
        reason += f", but within the margin of {write.bound(rule.margin)}"
    return good_condition(value, mildest(rule), reason, beyond_margin=is_good)


def mildest(rule: Rule) -> float | None:
    """Return the mildest bound of a rule: where its values begin to be bad."""
    mild = rule.warning or rule.critical or Bound()
    return mild.below if mild.below is not None else mild.above


def good_condition(
    value: float | None, threshold: float | None, reason: str, *, beyond_margin: bool = True
) -> Condition:
    """Condition of a run that is not bad."""
    return Condition(value=value, threshold=threshold, good_beyond_margin=beyond_margin, reason=reason)


def bad_condition(severity: Severity, value: float | None, threshold: float | None, reason: str) -> Condition:
    """Condition of a run that is bad."""
    return Condition(severity=severity, value=value, threshold=threshold, reason=reason)


def unmeasured_condition(reason: str, *, threshold: float | None = None) -> Condition:
    """Condition of a run that has no value for the rule, and why."""
    return Condition(measured=False, threshold=threshold, reason=reason)


def crossed(value: float, bound: Bound) -> float | None:
    """Return the limit a bad value crossed, None if it crossed none."""
    if bound.below is not None and value < bound.below - ROUNDING:
        return bound.below
    if bound.above is not None and value > bound.above + ROUNDING:
        return bound.above
    return None


def _clear(value: float, bound: Bound, margin: float) -> bool:
    """Whether a value keeps the margin on the good side of a bound."""
    high_enough = bound.below is None or value >= bound.below + margin - ROUNDING
    return high_enough and (bound.above is None or value <= bound.above - margin + ROUNDING)


GUARD_BOUNDS: Final = ((Severity.CRITICAL, 0.5, "half"), (Severity.WARNING, 0.8, "80 %"))
"""Shares of the first run's coverage below which a run is bad, each with its words, the gravest first.

The detector learns a canary from ten passes on: without the warning it would learn an early loss of a third as normal.
"""


class FirstRun(Value):
    """The measured run a guard compares with."""

    run_id: int
    coverage: float | None
    """None = no canary that expects something was measured."""
    is_accepted: bool = False
    """Whether people accepted it as the new normal; else it was the first, or the first since a reset."""

    @property
    def owner(self) -> str:
        """Say whose its coverage is, in sentences."""
        return "the accepted run's" if self.is_accepted else "the first run's"


class WarmUp(Value):
    """How far the detector of a check was at a run."""

    over: bool
    """A baseline of most canaries stood, or people have accepted the present since: the guard has nothing to guard."""
    first: FirstRun | None = None
    renewed: bool = False
    """Whether a baseline stood that does not know half of the canaries or more."""


def first_run(
    before: FirstRun | None, now: FirstRun, *, keys_before: Collection[object], keys_now: Collection[object]
) -> FirstRun:
    """Run to compare with from now on: the first one, or this one where the first is not comparable.

    `keys_before` and `keys_now` identify the canaries of the last run and of this one. Where most of them are others
    the first run measured something else; where they are not, editing a canary must not hide that it was better.
    """
    if before is None or not before.coverage:
        return now
    common = len({*keys_before} & {*keys_now})
    return before if 2 * common >= len(keys_now) else now


def judge_guard(coverage: float | None, warm_up: WarmUp | None, *, unknown: bool) -> Condition:
    """Critical where coverage is 0 or below half of the first measured run's, until most canaries have a baseline.

    Below 80 % of that it is a warning. `coverage`: that of the run; None = no canary that expects something was
    measured. `warm_up`: None = the first run is unknown.
    """
    if unknown or coverage is None:
        return unmeasured_condition("the run is unknown" if unknown else "coverage was not measured")
    if warm_up is not None and warm_up.over:
        return good_condition(coverage, None, "the baseline stands, so the detector watches")
    first = None if warm_up is None else warm_up.first
    start = None if first is None else first.coverage
    if coverage <= ROUNDING:
        bound = GUARD_BOUNDS[0][1] * start if start else None  # nothing is below half of 0
        reason = "coverage is 0: no canary found what it expects (critical)"
        return bad_condition(Severity.CRITICAL, coverage, bound, reason)
    if first is None or start is None:
        return unmeasured_condition("there is no first run to compare with")
    why = _RENEWED if warm_up and warm_up.renewed else "no baseline yet"
    compared = f"{first.owner} {start:.3f} (run {first.run_id}); {why}"
    for severity, share, words in GUARD_BOUNDS:
        if coverage < share * start - ROUNDING:
            reason = f"coverage {coverage:.3f} is below {words} of {compared}"
            return bad_condition(severity, coverage, share * start, reason)
    _, share, words = GUARD_BOUNDS[-1]
    return good_condition(coverage, share * start, f"coverage {coverage:.3f} is at least {words} of {compared}")


_RENEWED: Final = "half of the canaries or more are unknown to the baseline"

SLOWER_FACTOR: Final = 3.0
"""Times the baseline, where a rule names no factor."""
SLOWER_RISE: Final = 0.2
"""Seconds above the baseline, where a rule names no rise: from 1 ms to 20 ms is noise of the machine."""
SLOWER_OPEN: Final = (3, 4)
"""Bad runs that open the alert, of so many."""
SLOWER_QUANTILE: Final = 0.99
"""Of the median latencies of a baseline's runs: what a run is compared with."""
SLOWER_MEASURE: Final = "latency_p50"


class SlowerLimits(Value):
    """How much slower than the baseline a run must be; both must hold."""

    factor: float
    rise: float
    """Seconds."""

    @classmethod
    def of(cls, factor: float | None, rise: float | None) -> "SlowerLimits":
        """Return the limits of a rule, with the default of what it does not name."""
        return cls(factor=SLOWER_FACTOR if factor is None else factor, rise=SLOWER_RISE if rise is None else rise)

    def threshold(self, baseline: float) -> float:
        """Seconds above which a median latency is bad."""
        return max(self.factor * baseline, baseline + self.rise)

    def words(self, baseline: str) -> str:
        """Write the limits after the word above; `baseline`: what the latency is compared with."""
        return f"{self.factor:g} x {baseline} and {seconds_text(self.rise)} above it"


def default_slower_rule(key: str) -> Rule:
    """Rule that every check has."""
    bad, of = SLOWER_OPEN
    return Rule(key=key, kind=RuleKind.SLOWER, measure=SLOWER_MEASURE, open_bad=bad, open_of=of)


def judge_slower(rule: Rule, median: float | None, baseline: float | str) -> Condition:
    """Warning where the median latency of a known run is above the factor and the rise over its baseline.

    `median`: seconds; None = no probe measured. `baseline`: seconds, or why there is nothing to compare with, without
    a full stop.
    """
    if isinstance(baseline, str):
        return unmeasured_condition(baseline)
    limits = SlowerLimits.of(rule.factor, rule.rise)
    threshold = limits.threshold(baseline)
    if median is None:
        return unmeasured_condition("the median latency was not measured", threshold=threshold)
    level = f"median latency {seconds_text(median, threshold)}"
    usual = seconds_text(baseline)
    if median > threshold + ROUNDING:
        over = limits.words(f"the baseline's {usual}")
        reason = f"{level} is above {over} ({Severity.WARNING})"
        return replace(bad_condition(Severity.WARNING, median, threshold, reason), baseline=baseline)
    is_clear = median <= threshold - rule.margin + ROUNDING
    reason = f"{level} is not above {seconds_text(threshold)} (baseline {usual})"
    reason += "" if is_clear else f", but within the margin of {seconds_text(rule.margin)}"
    return replace(good_condition(median, threshold, reason, beyond_margin=is_clear), baseline=baseline)


LEAKS_TOLD: Final = 2
"""Canaries of which a reason says what they got."""


class Leak(Value):
    """A canary that got a chunk that it forbids."""

    key: str
    asked_as: Mapping[str, str]
    """The variables it was asked with: who saw it."""
    got: str = ""
    """What it got, such as `acme/contract.pdf at rank 2`; empty = not read."""

    @property
    def words(self) -> str:
        """Say who got what: `payroll (tenant globex) got acme/contract.pdf at rank 2`."""
        who = variables_text(self.asked_as)
        return f"{self.key}{f' ({who})' if who else ''}{f' got {self.got}' if self.got else ''}"


class Leaks(Value):
    """What a run found of the chunks that its canaries forbid."""

    forbidding: int
    """Canaries that forbid chunks."""
    unmeasured: int
    """Those of them that were not measured."""
    found: Sequence[Leak] = ()
    blind: int = 0
    """Those of them whose forbidden chunks no hit could be told by."""
    lacking: Sequence[str] = ()
    """The fields that were found in none of the hits."""

    @property
    def owners(self) -> str:
        """Count the canaries that forbid chunks: `2 canaries that forbid`."""
        return f"{counted(self.forbidding, 'canary')} that {'forbids' if self.forbidding == 1 else 'forbid'}"

    @property
    def unasked(self) -> str | None:
        """Say how many were not measured, without a full stop; None = all were."""
        who = f"{self.unmeasured:,} of {self.owners} chunks"
        return f"{who} {'was' if self.unmeasured == 1 else 'were'} not measured" if self.unmeasured else None

    @property
    def unjudged(self) -> str | None:
        """Say why the hits do not tell whether something leaked, without a full stop; None = they do."""
        who = f"{self.blind:,} of {self.owners} chunks"
        fields = " or ".join(f"`{name}`" for name in self.lacking)
        return f"{who} cannot be judged: no hit has a {fields} to tell them by" if self.blind else None


def default_leak_rule(key: str) -> Rule:
    """Rule that every check has: one leak is one too many, so one run opens."""
    return Rule(key=key, kind=RuleKind.LEAK, open_bad=1, open_of=1)


def judge_leaks(rule: Rule, leaks: Leaks | None, *, unknown: bool) -> Condition:
    """Bad where a canary got a chunk that it forbids; good where all that forbid chunks were measured, and none did.

    An unknown run is bad as well where something leaked: that was measured. `leaks`: None = not known.
    """
    if leaks is None:
        return unmeasured_condition("the run is unknown" if unknown else "it is not known what leaked")
    if leaks.found:
        told = ", ".join(leak.words for leak in leaks.found[:LEAKS_TOLD])
        left = len(leaks.found) - LEAKS_TOLD
        more = f" and {counted(left, 'more canary')}" if left > 0 else ""
        count = f"{len(leaks.found):,} of {leaks.owners}"
        reason = f"a forbidden chunk was returned for {count} any: {told}{more} ({rule.severity})"
        return bad_condition(rule.severity, None, None, reason)
    if not leaks.forbidding:
        return good_condition(None, None, "no canary forbids chunks")
    why = leaks.unjudged or leaks.unasked or ("the run is unknown" if unknown else None)
    if why is not None:
        return unmeasured_condition(why)
    return good_condition(None, None, f"none of {leaks.owners} chunks got one")


INDEX_OPEN: Final = (2, 2)
"""Bad runs that open the alert, of so many: a run may meet an index that is just being built anew."""


def default_index_rule(key: str) -> Rule:
    """Rule that every check has."""
    bad, of = INDEX_OPEN
    return Rule(key=key, kind=RuleKind.INDEX, severity=Severity.WARNING, open_bad=bad, open_of=of)


def judge_index(rule: Rule, facts: Sequence[KnownFact] | None, *, unknown: bool) -> Condition:
    """Bad where a fact of the index is outside the bounds of a rule, or fell against what is usual.

    Facts are known whatever the probes of a run do, so that unknown runs are judged too. One that is unknown leaves
    the run unmeasured, unless another is bad; one that never was known is left out. `facts`: None = the run has none.
    """
    if not facts and unknown:
        return unmeasured_condition("the run is unknown")
    if rule.fact is not None:
        named = [one for one in facts or () if one.fact.name == rule.fact]
        nothing = unmeasured_condition(f"the run knows no fact '{rule.fact}' of the index")
        return _judge_fact(rule, named[0]) if named else nothing
    watched = [one for one in facts or () if one.fact.name in WATCHED and one.was_ever_known]
    if not watched:
        return good_condition(None, None, "the store tells nothing of its index that is watched")
    judged = [_judge_fact(rule, one) for one in watched]
    bad = [one for one in judged if one.severity is not None]
    unread = [one for one, known in zip(judged, watched, strict=True) if known.fact.value is None]
    # What too few runs know yet says nothing, beside what can be compared.
    told = bad or unread[:1] or [one for one in judged if one.measured] or judged[:1]
    return replace(told[0], reason="; ".join(one.reason for one in told))


def _judge_fact(rule: Rule, known: KnownFact) -> Condition:
    fact, name = known.fact, _fact_name(known.fact.name)
    if fact.value is None:
        return unmeasured_condition(f"{name} is unknown: {fact.reason}")
    for bound, side, is_crossed in (
        (rule.minimum, "below", rule.minimum is not None and fact.value < rule.minimum - ROUNDING),
        (rule.maximum, "above", rule.maximum is not None and fact.value > rule.maximum + ROUNDING),
    ):
        if is_crossed and bound is not None:
            reason = f"{name} {number_text(fact.value)} is {side} {number_text(bound)} ({rule.severity})"
            return bad_condition(rule.severity, fact.value, bound, reason)
    share = rule.fall if rule.fall is not None or rule.minimum is not None or rule.maximum is not None else FALL
    if share is None:
        return good_condition(fact.value, rule.minimum or rule.maximum, f"{_level(fact)}, within its bounds")
    usual = usual_of(fact.name, known.past, share)
    if usual is None:
        is_bounded = rule.minimum is not None or rule.maximum is not None
        new = f"{_level(fact)}, and too few runs before it know it"
        return good_condition(fact.value, None, new) if is_bounded else unmeasured_condition(new)
    threshold = usual.value * (1 - share)
    if has_fallen(fact.value, usual.value, share, high=fact.high):
        bad = bad_condition(rule.severity, fact.value, threshold, f"{fall_text(fact, usual)} ({rule.severity})")
        return replace(bad, baseline=usual.value)
    good = good_condition(fact.value, threshold, f"{_level(fact)}, usually {_value(fact, usual.value)}")
    return replace(good, baseline=usual.value)


def _fact_name(name: str) -> str:
    return "recall against exact search" if name == EXACT_RECALL else f"{name} of the index"


def _level(fact: Fact) -> str:
    return recall_text(fact) if fact.name == EXACT_RECALL else f"{_fact_name(fact.name)}: {_value(fact, fact.value)}"


def _value(fact: Fact, value: float | None) -> str:
    return percent_text(value or 0.0) if fact.name == EXACT_RECALL else number_text(value or 0.0)
