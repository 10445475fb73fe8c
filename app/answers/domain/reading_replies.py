"""Ratings from the replies of a judge: what a reply means for one question."""

from app.answers.domain.judge_answers import read_claims, read_verdict
from app.answers.domain.judges import JudgeOutcome, JudgeReply, Rating
from app.answers.domain.prompts import Prompt


def read_rating(prompt: Prompt, reply: JudgeReply) -> Rating:
    """Return what a reply says; a reply that cannot be read, or none, leaves the measure undefined."""
    if reply.text is None:
        return Rating(outcome=reply.outcome, detail=reply.detail)
    if not prompt.claims:
        verdict = read_verdict(reply.text)
        if verdict is None:
            return Rating(outcome=JudgeOutcome.UNPARSABLE, detail="the reply begins with neither YES nor NO")
        return Rating(outcome=JudgeOutcome.OK, value=float(verdict))
    claims = read_claims(reply.text)
    if claims is None:
        return Rating(outcome=JudgeOutcome.UNPARSABLE, detail="the reply is not the JSON of claims that was asked for")
    listed = tuple((claim.text, claim.supported) for claim in claims.claims)
    if claims.share is None:
        return Rating(outcome=JudgeOutcome.DECLINED, detail="there is no claim to judge")
    return Rating(outcome=JudgeOutcome.OK, value=claims.share, claims=listed)
