"""Shapes of answers and ratings, as rows and JSON have them."""

from app.answers.domain.judges import Judge, JudgeOutcome, RatedAnswer, Rating
from app.answers.domain.prompts import VERSIONS
from app.answers.domain.views import AnswerBody, RatingBody


def answer_body(rated: RatedAnswer, judge: Judge | None) -> AnswerBody:
    """Return what is stored of an answer besides its text; ratings name the model and the wording they depend on."""
    model = "" if judge is None else judge.model
    return {
        "outcome": str(rated.answer.outcome),
        "detail": rated.answer.detail,
        "utilisation": rated.utilisation,
        "chunks_used": rated.chunks_used,
        "ratings": {
            str(question): {**rating_body(rating), "model": model, "wording": VERSIONS[question]}
            for question, rating in rated.ratings.items()
        },
    }


def rating_body(rating: Rating) -> RatingBody:
    """Return what is stored of a rating."""
    return {
        "outcome": str(rating.outcome),
        "value": rating.value,
        "detail": rating.detail,
        "claims": [{"text": text, "supported": supported} for text, supported in rating.claims],
    }


def read_rating_body(body: RatingBody) -> Rating:
    """Return a rating from what is stored of it."""
    return Rating(
        outcome=JudgeOutcome(body["outcome"]),
        value=body["value"],
        detail=body.get("detail"),
        claims=tuple((claim["text"], claim["supported"]) for claim in body.get("claims", ())),
    )
