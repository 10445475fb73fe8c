"""Measures of generated answers: which there are, which canaries are sampled, and the means over a run."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from app.alerts.domain.answer_rules import ANSWER_MEASURES, GROUNDING
from app.answers.domain.judges import Judge, RatedAnswer
from app.answers.domain.prompts import Question
from app.answers.domain.views import RunAnswers
from app.base.values import Outcome


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


def summarise(rated: Sequence[RatedAnswer], judge: Judge | None) -> RunAnswers:
    """Return what the answers of a run come to; a mean is over the answers in which it is defined."""
    questions = () if judge is None else judge.questions
    measures: dict[str, float | None] = {
        "utilisation": _mean(one.utilisation for one in rated),
        "chunks_used": _mean(one.chunks_used for one in rated),
        **{str(question): _mean(_values(rated, question)) for question in questions},
    }
    return {
        "judge": None if judge is None else judge.slug,
        "sampled": len(rated),
        "answered": sum(one.answer.outcome is Outcome.OK for one in rated),
        "outcomes": dict(Counter(str(one.answer.outcome) for one in rated)),
        "ratings": {str(question): dict(_outcomes(rated, question)) for question in questions},
        "measures": measures,
    }


def _values(rated: Iterable[RatedAnswer], question: Question) -> list[float | None]:
    return [one.ratings[question].value for one in rated if question in one.ratings]


def _outcomes(rated: Iterable[RatedAnswer], question: Question) -> Mapping[str, int]:
    return Counter(str(one.ratings[question].outcome) for one in rated if question in one.ratings)


def _mean(values: Iterable[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None
