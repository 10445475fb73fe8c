"""Readers of a judge's replies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answers.domain.judges import MOST_CLAIMS, JudgeOutcome, JudgeReply, Prompt, Rating, read_claims, read_rating


def read(reply: str, *, claims: bool) -> Rating:
    prompt = Prompt(version="1", system="", user="", claims=claims, most_tokens=1)
    return read_rating(prompt, JudgeReply(text=reply))


@pytest.mark.parametrize("reply", ["YES", "yes.", "**Yes**", ' "Yes" it is', "\n- YES, although NO would be near"])
def test_a_reply_that_begins_with_yes_is_a_yes(reply: str) -> None:
    assert read(reply, claims=False).value == 1


@pytest.mark.parametrize("reply", ["NO", "no!", "NO, though YES would be near", "(No) The answer says YES"])
def test_a_reply_that_begins_with_no_is_a_no_whatever_follows(reply: str) -> None:
    assert read(reply, claims=False).value == 0


@pytest.mark.parametrize("reply", ["", "  ", "Yesterday", "NOT supported", "The answer is YES", "maybe", "Y", "Ja"])
def test_a_reply_that_begins_otherwise_is_unparsable(reply: str) -> None:
    assert read(reply, claims=False).outcome is JudgeOutcome.UNPARSABLE


CLAIMS = {
    "claims": [{"claim": "Tokens last 24 hours.", "supported": True}, {"claim": "They renew.", "supported": False}]
}


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(CLAIMS),
        json.dumps(CLAIMS, indent=2),
        f"```json\n{json.dumps(CLAIMS)}\n```",
        f"\n```\n{json.dumps(CLAIMS)}```\n",
    ],
)
def test_claims_are_read_bare_and_from_a_code_block(reply: str) -> None:
    assert read_claims(reply) == (("Tokens last 24 hours.", True), ("They renew.", False))
    assert read(reply, claims=True).value == 0.5


def test_no_claims_is_declined_and_has_no_share() -> None:
    found = read('{"claims": []}', claims=True)
    assert (found.outcome, found.value) == (JudgeOutcome.DECLINED, None)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "YES",
        "[]",
        "{}",
        '{"claims": null}',
        '{"claims": [{"claim": "a", "supported": true}',  # cut off
        '{"claims": [{"claim": "a", "supported": "true"}]}',
        '{"claims": [{"claim": "a", "supported": 1}]}',
        '{"claims": [{"claim": " ", "supported": true}]}',
        '{"claims": [{"claim": "a", "supported": true}, "b"]}',
        "[" * 100_000,
        json.dumps({"claims": [{"claim": "a", "supported": True}] * (MOST_CLAIMS + 1)}),
    ],
)
def test_a_list_that_is_not_whole_is_unparsable(reply: str) -> None:
    assert read_claims(reply) is None


@given(st.lists(st.tuples(st.text(min_size=1).filter(str.strip), st.booleans()), min_size=1, max_size=8))
def test_the_share_counts_supported_claims(claims: list[tuple[str, bool]]) -> None:
    reply = json.dumps({"claims": [{"claim": text, "supported": supported} for text, supported in claims]})
    assert read(reply, claims=True).value == sum(supported for _, supported in claims) / len(claims)


@given(st.text())
def test_no_reply_breaks_the_readers(reply: str) -> None:
    assert read(reply, claims=False).value in (1, 0, None)
    read_claims(reply)
