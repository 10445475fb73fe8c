"""What the gates of a promotion rest on: a comparison over canaries, judged answers, users, and guard rails."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.alerts.domain.rules import FAILED_SHARE
from app.answers.domain.generated import AnswerCounts
from app.base.values import TimeText, Value, field
from app.comparison.domain.outcomes import ComparisonVerdict, JudgmentsCaution, Side, Violations
from app.experiments.domain.experiments import RateDifference


class Margin(Value):
    """The interval of a difference, candidate less current; None where there are too few pairs for one."""

    low: float | None
    high: float | None
    basis: str = ""
    """What it rests on, in words, where that is not plain."""
    lacks: str = ""
    """What it would take to rest on more, in words; a sentence of several says it once."""
    uncorrected: "Margin | None" = None
    """What the judge says itself, where labels of people correct it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRun:
    """A run that the offline gate compares."""

    check: str
    run_id: str
    finished_at: TimeText | None


class CategoryLosses(Value):
    """What a category of canaries is claimed to lose, corrected over all categories."""

    category: str
    canaries: int
    paid: Mapping[str, Margin]
    """Primary measures that are claimed to be lower there in the candidate."""


class OfflineEvidence(Value):
    """A comparison of the candidate with what is current, over canaries."""

    canaries: int
    verdict: ComparisonVerdict
    measures: Mapping[str, Margin]
    """MRR and NDCG@10, by their names there."""
    judgments: tuple[JudgmentsCaution, ...] = ()
    """Retrievers that alone brought up much of what is expected; A is what is current."""
    gained: Mapping[str, Margin] = field(default_factory=dict)
    """Primary measures that are shown to be higher in the candidate, whether that is claimed or may be self-judged."""
    paid: Mapping[str, Margin] = field(default_factory=dict)
    """Primary measures that are claimed to be lower in it: what a trade is paid with."""
    categories: tuple[CategoryLosses, ...] = ()
    """Categories that are claimed to lose by a measure, whatever the whole gains."""
    unanswered: int = 0
    """Canaries that the candidate did not answer, and would be compared by otherwise."""
    unanswered_now: int = 0
    """Those that what is current did not answer."""
    unanswered_by_both: int = 0
    """Those among either that neither answered."""
    unlike: int = 0
    """Canaries that ask or expect something else in each run, or are in one alone."""
    without_judgments: int = 0
    """Those that expect nothing, in both runs."""
    outdated: tuple[str, ...] = ()
    """Runs that are not of what their checks ask by now, each in words."""
    edits: tuple[str, ...] = ()
    """How many canaries were changed since both runs, in words, where these stand for the suite all the same."""
    archived: int = 0
    """Canaries of these that were archived since."""
    shared: str = ""
    """What both runs asked alike, in words; empty where they asked different retrievers."""
    runs: tuple["PromotionRun", ...] = ()
    """That of what is current, and that of the candidate."""
    violations: tuple[Violations, ...] = ()
    """What canaries rule out, and how many got it."""

    @property
    def not_measured(self) -> int:
        """Canaries that would be compared if both had answered them."""
        return self.unanswered + self.unanswered_now - self.unanswered_by_both

    @property
    def compared(self) -> Mapping[str, Margin]:
        """Measures that the gate holds against the accepted loss: its own, and all that are claimed to be lower."""
        return {**self.measures, **self.paid}

    @property
    def lacks_answers(self) -> bool:
        """Whether the candidate left so much unanswered that the rest does not stand for it."""
        return self.unanswered > FAILED_SHARE * (self.canaries + self.unanswered)

    @property
    def broken(self) -> list[Violations]:
        """What the candidate is claimed to return more often although it is ruled out."""
        return [one for one in self.violations if one.winner is Side.A]

    @property
    def is_trade(self) -> bool:
        """Whether one measure is gained and another one paid with; what a self-judged side gains may be real."""
        if self.broken and not self.paid:
            return False
        own = any(one.favours is Side.B and one.not_claimed for one in self.judgments)
        return self.verdict is ComparisonVerdict.TRADE or (self.verdict is ComparisonVerdict.WORSE and own)


class JudgedQuestion(Value):
    """The difference of what a judge says to one question; it passes only where people have confirmed that."""

    answers: int
    """To the same canary, of which it is known in both checks."""
    calibrated: bool
    margin: Margin
    corrected: bool = False
    """Whether labels of people correct the difference: a loss that it shows then counts, calibrated or not."""
    labelled: tuple[str, ...] = ()
    """Of what else these labels are than of the judge and the answers of each check, in words: so they rule out no
    loss."""
    current: AnswerCounts = field(default_factory=AnswerCounts)
    """Answers of what is current, of the canaries that both checks watch."""
    candidate: AnswerCounts = field(default_factory=AnswerCounts)
    """Those of the candidate."""

    @property
    def lacks_ratings(self) -> bool:
        """Whether so many answers of a side have no rating that the rest does not stand for them."""
        return self.current.lacks_ratings or self.candidate.lacks_ratings


Judged = Mapping[str, JudgedQuestion | str]
"""What a judge says of one thing, by the questions that ask for it, the one that decides where enough is known of it
first; a text says why one can tell nothing as it is."""


class JudgeEvidence(Value):
    """What judges say of the answers of both checks."""

    measures: Mapping[str, Judged]
    """Faithfulness and answer relevance."""
    outdated: tuple[str, ...] = ()
    """Runs that are not of what their checks ask by now, each in words."""
    behind: tuple[str, ...] = ()
    """Newer runs that are not read yet, each in words with the one that is read for it."""

    @property
    def is_blind(self) -> bool:
        """Whether one of them cannot be told as answers are judged now, however many more there are."""
        return any(all(isinstance(one, str) for one in judged.values()) for judged in self.measures.values())

    @property
    def lacks_ratings(self) -> bool:
        """Whether so many answers of a side have no rating that the rest does not stand for them."""
        said = [one for judged in self.measures.values() for one in judged.values()]
        return any(isinstance(one, JudgedQuestion) and one.lacks_ratings for one in said)


class ExperimentArms(Value):
    """The arms of an experiment by what they stand for in a promotion."""

    current: str
    candidate: str

    def place_in(self, names: tuple[str, str]) -> "ExperimentArms":
        """Return the arms of another experiment: one of the same name is the same, else the second is the candidate.

        So a guard rail whose arms stand in the other order is not read with the wrong sign.
        """
        first, second = names
        is_turned = first == self.candidate or second == self.current
        return ExperimentArms(current=second, candidate=first) if is_turned else ExperimentArms.in_order(names)

    @classmethod
    def in_order(cls, names: tuple[str, str]) -> "ExperimentArms":
        """Return the arms as an experiment has them: what is current first."""
        return cls(current=names[0], candidate=names[1])


class HarmElsewhere(Value):
    """That users are served worse with the candidate, as another experiment shows it."""

    difference: RateDifference
    """Candidate less current, as this promotion calls them."""
    told: str
    """The same in words, with the experiment."""


class ExposureEvidence(Value):
    """An experiment with users."""

    difference: RateDifference | None
    """Candidate less current; None = too few outcomes for an interval."""
    mismatch: bool
    """Whether the arms get other shares of units than they should."""
    reason: str
    """The experiment's own."""
    power: str
    """What it can show, in words."""
    ended: bool = False
    """Whether further units change nothing."""
    ended_since: int | None = None
    """When that was known at the earliest, in microseconds; None where they may change something, or it is unknown."""
    within: float | None = None
    """Bound that the difference is shown to stay below; None = none is."""
    harm_before: str = ""
    """What an earlier epoch had shown, in words, where users were served worse then; empty where none had."""
    before: RateDifference | None = None
    """By how much users were served worse then."""
    elsewhere: tuple["HarmElsewhere", ...] = ()
    """What users of other experiments show about the same checks, or checks that ask the same, where it is harm."""
    arms: ExperimentArms | None = None
    """By which its arms are read."""
    dealt: int = 0
    """Units that came without their arm, so that it is the one that this experiment deals."""
    exposed_until: int | None = None
    """When the last of the units that it was decided by were exposed, at the earliest; None = nothing was decided."""
    changed: str = ""
    """How a check differs by now from what it was when these users came, in words; empty where neither does."""
    meanwhile: str = ""
    """What else a check asked while these users came, in words, though it was changed back; else empty."""
    cautions: tuple[str, ...] = ()
    """Why users may have seen something else than what the checks ask, each in words."""
    stopped: bool = False
    """Whether no more units come, though those that came may decide it yet."""
    later: RateDifference | None = None
    """Candidate less current at the newest look, where that contradicts the look that decided."""
    newest: RateDifference | None = None
    """The same at the newest look, whatever was decided before; None = too few outcomes, or the shares mismatch."""
    newest_until: int | None = None
    """When the last of the units of the newest look were exposed, at the earliest; None = there is none."""
    closed: bool = False
    """Whether it was stopped, and no unit is left that may change the newest look."""
    late: str = ""
    """How many successes came too late to count, in words; empty where too few did to move a decision."""

    @property
    def asked_otherwise(self) -> list[str]:
        """Return why users were asked about something else than what the checks ask by now, in words."""
        begin = "so begin a new epoch"
        before = f"{self.changed}: users were asked about what it was before, {begin}"
        alone = f"{self.meanwhile}: what users showed is not of what it asks by now alone, {begin}"
        return [said for what, said in ((self.changed, before), (self.meanwhile, alone)) if what]

    @property
    def is_better(self) -> bool:
        """Whether users are shown to be served better, and no later look says otherwise."""
        shown = not self.mismatch and self.difference is not None and self.difference.low > 0
        return shown and not self.is_contradicted

    @property
    def is_contradicted(self) -> bool:
        """Whether users were shown to be served better, and the newest look shows less than that, or harm."""
        first, newest = self.difference, self.later
        if first is None or newest is None or first.low <= 0:
            return False
        return newest.low <= 0 and newest.high < first.low

    @property
    def known(self) -> list[RateDifference]:
        """The interval that was decided by, and the newest one where that contradicts it."""
        return [one for one in (self.difference, self.later) if one is not None]

    @property
    def harm(self) -> RateDifference | None:
        """The worst interval by which users are served worse, decided by or of the newest look; None = none is."""
        shown = [one for one in self.known if one.high < 0]
        return None if self.mismatch else min(shown, key=lambda one: one.high, default=None)

    @property
    def is_worse(self) -> bool:
        """Whether users are shown to be served worse."""
        return self.harm is not None


class GuardEvidence(Value):
    """What else must not get worse while users are served better."""

    name: str
    allowed_loss: float
    """A loss of so much, or more, is not accepted."""
    found: Margin | Judged | str
    """Candidate less current; a text says why nothing is known."""
    outdated: tuple[str, ...] = ()
    """Of a measure of the judge: as in its evidence."""
    behind: tuple[str, ...] = ()
    """Likewise."""
    ended: bool = False
    """Whether no more units come."""
    harm_before: str = ""
    """What an earlier epoch had shown, in words, where it was worse then; empty where none had."""
    before: RateDifference | None = None
    """By how much it was worse then."""
    asked_otherwise: tuple[str, ...] = ()
    """Why its users were asked about something else than what the checks ask by now, each in words."""
    notes: tuple[str, ...] = ()
    """What else to know of its users, each in words."""
