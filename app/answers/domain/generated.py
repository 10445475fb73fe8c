"""Generated answers as values: how one is requested, of which canaries, and what is known of it without a judge.

That is its lexical grounding: which sentences are worded like a chunk it was made of. Below: what an answer is stored
with, and what the answers of a run come to.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NotRequired, Protocol

from typing_extensions import TypedDict

from app.alerts.domain.views import AnswerChange
from app.answers.domain.judges import VERSIONS, Judge, JudgeOutcome, Question, Rating, RatingBody
from app.base.texts import counted, outcome_word, rated_text
from app.base.values import (
    ANSWER_MEASURES,
    EMPTY,
    GROUNDING,
    CorrectedRate,
    CorrectedRateView,
    Outcome,
    Value,
    corrected_name,
    field,
)
from app.base.views import rounded
from app.retrievers.domain.retrievers import AnswerSource
from app.scoring.words import grams, words_of


class AnswerRequest(Value):
    """A query with the texts of its hits, to be answered."""

    query: str
    contexts: tuple[str, ...]


class GeneratedAnswer(Value):
    """An answer, or why there is none."""

    text: str | None
    outcome: Outcome = Outcome.OK
    """`ok` exactly where there is a text."""
    detail: str | None = None
    """One sentence for people, without secrets."""


class AskAnswers(Protocol):
    """Asks the endpoint that answers queries from retrieved texts; otherwise as `AskJudge`."""

    def __call__(
        self, source: AnswerSource, requests: Sequence[AnswerRequest]
    ) -> Iterator[tuple[int, GeneratedAnswer] | None]:
        """Yield (position, answer) as they come in, each position once; None where nothing came for a while."""
        ...


def answer_measures(*, gives_answers: bool, judged: bool) -> tuple[str, ...]:
    """Return the names of the measures of answers that the runs of a check have."""
    if not gives_answers:
        return ()
    return ANSWER_MEASURES if judged else GROUNDING


def is_sampled(key: str, share: float) -> bool:
    """Whether the answers to a canary are watched: by a hash of its key, so that it is always the same canaries.

    An unchanged answer of the same canary costs nothing, and the means of two runs are of the same canaries.
    """
    return int.from_bytes(hashlib.sha256(key.encode(errors="surrogatepass")).digest()[:4]) < share * 2**32


SHARED: Final = 0.6
"""A sentence is grounded if one chunk has at least this share of its distinct word 3-grams."""
FEWEST_WORDS: Final = 3
"""A shorter sentence has no 3-gram and is not counted."""

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]\u2019\u201d]*\s+|(?<=[\u3002\uff01\uff1f\u0964])|[\r\n]+")


class Grounding(Value):
    """Lexical grounding of an answer in its contexts; a share is None where there is nothing to divide by."""

    grounded_share: float | None
    """Of the sentences of three words or more those that a chunk grounds, in [0, 1]: the measure `utilisation`."""
    used_share: float | None
    """Of the chunks, empty ones included, those that ground a sentence; copies are all used or all not."""


def ground_answer(answer: str, contexts: Sequence[str]) -> Grounding:
    """Lexical grounding of an answer in the chunks that it was made of.

    Words are compared as diagnosis compares them: without case, punctuation and formatting; in scripts without spaces
    (Chinese, Japanese, Thai) each character is a word, so three characters in a row are a 3-gram. Of a chunk or a
    sentence the first 4,000 words count.
    """
    sentences = [grams(text) for text in split_sentences(answer) if len(words_of(text)) >= FEWEST_WORDS]
    chunks = [grams(text) for text in contexts]
    found = [
        {place for place, chunk in enumerate(chunks) if len(own & chunk) >= SHARED * len(own)} for own in sentences
    ]
    return Grounding(
        grounded_share=sum(map(bool, found)) / len(found) if found else None,
        used_share=len(set().union(*found)) / len(chunks) if chunks and found else None,
    )


def split_sentences(text: str) -> list[str]:
    """Sentences of a text in order: what ends in `.`, `!`, `?` and white space, in their full-width forms, or a line.

    A dot after an abbreviation splits too; the parts are then looked at one by one.
    """
    return [part.strip() for part in _SENTENCE_END.split(text) if words_of(part)]


class AnswerBody(TypedDict):
    """What is known of one answer besides its text."""

    outcome: str
    """`ok`, or how the request for it ended."""
    detail: str | None
    utilisation: float | None
    """Share of its sentences that are worded like a retrieved chunk: lexical grounding."""
    chunks_used: float | None
    """Share of the chunks whose words it repeats."""
    ratings: dict[str, RatingBody]
    """By question; empty where no judge was asked."""


def with_endpoint(body: AnswerBody, endpoint: str | None) -> AnswerBody:
    """Return an answer of which each rating names its endpoint; None = it is not known for those that do not."""
    if endpoint is None or all("endpoint" in one for one in body["ratings"].values()):
        return body
    ratings: dict[str, RatingBody] = {}
    for question, one in body["ratings"].items():
        ratings[question] = one if "endpoint" in one else {**one, "endpoint": endpoint}
    return {**body, "ratings": ratings}


def is_other_rater(before: RatingBody | None, after: RatingBody | None) -> bool:
    """Whether two ratings are of another model, wording or endpoint, as far as both name it."""
    if before is None or after is None:
        return False
    if (before.get("model"), before.get("wording")) != (after.get("model"), after.get("wording")):
        return True
    endpoints = {before.get("endpoint"), after.get("endpoint")} - {None}
    return len(endpoints) > 1


def answer_change(*, retrieval: bool, same_judge: bool, same_chunks: bool, same_text: bool) -> AnswerChange:
    """Return what changed with an answer that got worse; `retrieval`: its canary degraded too.

    It is the judge alone only where the text stayed: another judge changes no text.
    """
    if same_text and not same_judge:
        return AnswerChange.JUDGE
    if retrieval:
        return AnswerChange.RETRIEVAL
    if not same_chunks:
        return AnswerChange.CHUNKS
    return AnswerChange.JUDGE if same_text else AnswerChange.ANSWER


def value_of(body: AnswerBody, measure: str) -> float | None:
    """Return what one answer is worth by a measure: by the judge, or by its grounding; None = that is not known."""
    if measure in GROUNDING:
        return body["utilisation"] if measure == GROUNDING[0] else body["chunks_used"]
    rating = body["ratings"].get(measure)
    return None if rating is None else rating["value"]


class RatedAnswer(Value):
    """An answer of a run with everything that is known of it."""

    answer: GeneratedAnswer
    contexts: int
    utilisation: float | None = None
    """Share of its sentences that are worded like a chunk: lexical grounding."""
    chunks_used: float | None = None
    """Share of the chunks whose words it repeats."""
    ratings: Mapping[Question, Rating] = field(default_factory=dict)


def corrected_rate(found: "RunAnswers | None", measure: str) -> CorrectedRate | None:
    """Return what people would say of the answers of a run, where their labels tell."""
    one = None if found is None else found.get("corrected", {}).get(measure)
    return None if one is None else (one["value"], one["low"], one["high"])


def with_unrated(found: "RunAnswers") -> "RunAnswers":
    """Say beside the corrected rates of a run how many of its answers are not rated, and widen their intervals.

    Where these are more than a tenth, the others do not stand for them: then the interval goes from what people would
    say if they refused all of them, to what they would say if they accepted all.
    """
    if "corrected" not in found:
        return found
    corrected: dict[str, CorrectedRateView] = {}
    for question, rate in found["corrected"].items():
        answers, unrated = count_rated(found, question)
        low, high, every = rate["low"], rate["high"], answers + unrated
        if unrated > UNJUDGED_SHARE * every:
            low, high = rounded(low * answers / every), rounded((high * answers + unrated) / every)
        shown: CorrectedRateView = {**rate, "low": low, "high": high}
        corrected[question] = {**shown, "unrated": unrated} if unrated else shown
    return {**found, "corrected": corrected}


def count_rated(found: "RunAnswers", question: str) -> tuple[int, int]:
    """Return how many answers a judge rated by a question, and of how many it should have said something but did not.

    An answer that did not come is one of these; one of which there is nothing to judge is none of either.
    """
    outcomes = found["ratings"].get(question, {})
    failed, _ = count_failed(outcomes)
    return outcomes.get(JudgeOutcome.OK, 0), failed + found["sampled"] - found["answered"]


def rated_texts(found: "RunAnswers | None") -> dict[str, str]:
    """Say by question of how many answers what the judge says is, where it did not rate all: `84 of 140 rated`."""
    questions = {} if found is None or "problem" in found else found["ratings"]
    return {one: text for one in questions if found is not None and (text := rated_text(*count_rated(found, one)))}


def unrated_shares(found: "RunAnswers") -> dict[str, float]:
    """Return by question the share of answers without a rating; where none was to be rated there is none."""
    counts = {question: count_rated(found, question) for question in found["ratings"]}
    return {one: unrated / (answers + unrated) for one, (answers, unrated) in counts.items() if answers + unrated}


class Rater(TypedDict):
    """What a judge was when it rated answers: its model, the wording of its questions, and the endpoint it asked."""

    model: str
    wordings: dict[str, str]
    """By question: the version of its prompt."""
    endpoint: NotRequired[str]
    """Hash of its url and account; absent of an earlier release."""


class RunAnswers(TypedDict):
    """What the answers of a run come to."""

    judge: str | None
    rated_by: NotRequired[Rater | None]
    """What the judge was when it rated them; null without a judge, absent of an earlier release."""
    sampled: int
    """Canaries whose answers are watched, whether or not the retriever answered; earlier releases left out those to
    which it did not."""
    answered: int
    outcomes: dict[str, int]
    """Requests for answers by outcome; where the retriever did not answer, that of its probe."""
    ratings: dict[str, dict[str, int]]
    """By question: how many ended with each outcome."""
    failures: NotRequired[dict[str, str]]
    """By question, where answers have no verdict: the commonest reason, a sentence without its full stop."""
    measures: dict[str, float | None]
    """Means over the answers in which each is defined, and rates corrected by labels, `..._corrected`, where known."""
    corrected: NotRequired[dict[str, CorrectedRateView]]
    """By question, where people labelled enough answers of the check: what they would say of these."""
    problem: NotRequired[str]
    """Why nothing was judged, where definitions could not be used; a sentence without its full stop."""


def summarise(
    rated: Sequence[RatedAnswer], judge: Judge | None, corrected: Mapping[str, CorrectedRateView] = EMPTY
) -> RunAnswers:
    """Return what the answers of a run come to; a mean is over the answers in which it is defined."""
    questions = () if judge is None else judge.questions
    said = {question: [one.ratings[question] for one in rated if question in one.ratings] for question in questions}
    measures: dict[str, float | None] = {
        "utilisation": _mean(one.utilisation for one in rated),
        "chunks_used": _mean(one.chunks_used for one in rated),
    }
    for question, ratings in said.items():
        measures[str(question)] = _mean(one.value for one in ratings)
        if question in corrected:
            measures[corrected_name(question)] = corrected[question]["value"]
    return {
        "judge": None if judge is None else judge.slug,
        "rated_by": None if judge is None else rater_of(judge.model, judge.questions, judge.endpoint_hash),
        "sampled": len(rated),
        "answered": sum(one.answer.outcome is Outcome.OK for one in rated),
        "outcomes": dict(Counter(str(one.answer.outcome) for one in rated)),
        "ratings": {
            str(question): dict(Counter(str(one.outcome) for one in ratings)) for question, ratings in said.items()
        },
        "failures": {str(question): why for question, ratings in said.items() if (why := _commonest(ratings))},
        "measures": measures,
        "corrected": dict(corrected),
    }


_VERDICTS: Final = frozenset({JudgeOutcome.OK, JudgeOutcome.DECLINED})
"""Outcomes after which a judge has said what it can."""


def _commonest(ratings: Sequence[Rating]) -> str | None:
    reasons = Counter(one.detail or str(one.outcome) for one in ratings if one.outcome not in _VERDICTS)
    return reasons.most_common(1)[0][0].rstrip(".") if reasons else None


UNJUDGED_SHARE: Final = 0.1
"""Share of answers without a verdict above which the others do not stand for them, as of failed probes."""


class AnswerCounts(Value):
    """How many canaries were to be answered, and how many of these answers have no rating."""

    asked: int = 0
    missing: int = 0
    """Answers that did not come."""
    silent: int = 0
    """Answers that came, and of which the judge said nothing."""

    @property
    def without_rating(self) -> int:
        """Answers without a rating, for either reason."""
        return self.missing + self.silent

    @property
    def lacks_ratings(self) -> bool:
        """Whether so many have none that the others do not stand for them."""
        return self.without_rating > UNJUDGED_SHARE * self.asked


def count_answers(
    keys: Collection[str], ratings: Mapping[str, Mapping[str, RatingBody]], question: str
) -> AnswerCounts:
    """Count the answers to some canaries by whether a judge rated them; `ratings` of those that came in a run, by key.

    Nothing to judge, as of an answer that declines, is a rating too.
    """
    asked = Counter(
        "missing" if (rating := ratings.get(key, {}).get(question)) is None else rating["outcome"] for key in keys
    )
    silent = sum(number for outcome, number in asked.items() if outcome not in {*_VERDICTS, "missing"})
    return AnswerCounts(asked=len(keys), missing=asked["missing"], silent=silent)


def unjudged(found: RunAnswers | None) -> dict[str, str]:
    """Return by question, where the judge said nothing of more than a tenth of the answers, how many and why.

    Each is a clause, `140 of 140 answers were not judged (the judge answered with HTTP 500)`; it tells too of answers
    that did not come. Empty while they wait.
    """
    if found is None:
        return {}
    told: dict[str, str] = {}
    if missing_share(found):
        lacking = found["sampled"] - found["answered"]
        why = ", ".join(map(outcome_word, sorted(found["outcomes"].keys() - {str(Outcome.OK)})))
        did_not_come = f"{lacking:,} of {counted(found['sampled'], 'answer')} did not come ({why})"
        told = dict.fromkeys(found["ratings"], did_not_come)
    for question in silent_questions(found):
        outcomes = found["ratings"][question]
        failed, asked = count_failed(outcomes)
        why = found.get("failures", {}).get(question) or failures_text(outcomes)
        silent = f"{failed:,} of {counted(asked, 'answer')} {'was' if asked == 1 else 'were'} not judged ({why})"
        told[question] = f"{told[question]}, {silent}" if question in told else silent
    return told


def missing_share(found: RunAnswers | None) -> float:
    """Share of the answers of a run that did not come; 0 while they wait, and where the others stand for them."""
    if found is None or not found["sampled"]:
        return 0.0
    share = 1 - found["answered"] / found["sampled"]
    return share if found["sampled"] - found["answered"] > UNJUDGED_SHARE * found["sampled"] else 0.0


def silent_questions(found: RunAnswers | None) -> list[str]:
    """Return the questions to which a judge said nothing of more than a tenth of the answers that came."""
    counts = {} if found is None else {one: count_failed(outcomes) for one, outcomes in found["ratings"].items()}
    return [one for one, (failed, asked) in counts.items() if failed > UNJUDGED_SHARE * asked]


def count_failed(outcomes: Mapping[str, int]) -> tuple[int, int]:
    """Return to how many questions a judge said nothing, and of how many, by their outcomes."""
    asked = sum(outcomes.values())
    return asked - sum(count for outcome, count in outcomes.items() if outcome in _VERDICTS), asked


def failures_text(outcomes: Mapping[str, int]) -> str:
    """Name the outcomes of the questions to which a judge said nothing, the commonest first."""
    names = sorted((one for one in outcomes if one not in _VERDICTS), key=lambda one: (-outcomes[one], one))
    return ", ".join(one.replace("_", " ") for one in names)


def unjudged_text(found: RunAnswers | None) -> str:
    """Say what of the answers of a run is not judged, as a clause; empty where nothing is, and while they wait."""
    if found is not None and "problem" in found:
        return f"its answers were not judged ({found['problem']})"
    by_clause: dict[str, list[str]] = {}
    for question, clause in unjudged(found).items():
        by_clause.setdefault(clause, []).append(question.replace("_", " "))
    if len(by_clause) == 1 and found is not None and len(next(iter(by_clause.values()))) == len(found["ratings"]):
        return next(iter(by_clause))
    return "; ".join(f"{', '.join(questions)}: {clause}" for clause, questions in by_clause.items())


def rater_of(model: str, questions: Iterable[str], endpoint: str) -> Rater:
    """Return what a judge of a model asks an endpoint these questions by in this release."""
    wordings = {str(one): VERSIONS[Question(one)] for one in questions}
    return {"model": model, "wordings": wordings, "endpoint": endpoint}


def _mean(values: Iterable[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None
