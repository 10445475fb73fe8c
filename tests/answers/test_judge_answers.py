"""Readers of a judge's replies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answers.domain.judges import CLAIMS_SCHEMA, MOST_CLAIMS, read_claims, read_verdict


@pytest.mark.parametrize("reply", ["YES", "yes.", "**Yes**", ' "Yes" it is', "\n- YES, although NO would be near"])
def test_a_reply_that_begins_with_yes_is_a_yes(reply: str) -> None:
    assert read_verdict(reply) is True


@pytest.mark.parametrize("reply", ["NO", "no!", "NO, though YES would be near", "(No) The answer says YES"])
def test_a_reply_that_begins_with_no_is_a_no_whatever_follows(reply: str) -> None:
    assert read_verdict(reply) is False


@pytest.mark.parametrize("reply", ["", "  ", "Yesterday", "NOT supported", "The answer is YES", "maybe", "Y", "Ja"])
def test_a_reply_that_begins_otherwise_is_unparsable(reply: str) -> None:
    assert read_verdict(reply) is None


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
    claims = read_claims(reply)
    assert claims is not None
    assert [claim.text for claim in claims.claims] == ["Tokens last 24 hours.", "They renew."]
    assert (claims.supported, claims.share, claims.declined) == (1, 0.5, False)


def test_no_claims_is_declined_and_has_no_share() -> None:
    claims = read_claims('{"claims": []}')
    assert claims is not None
    assert claims.declined
    assert claims.share is None


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
    found = read_claims(reply)
    assert found is not None
    assert found.share == sum(supported for _, supported in claims) / len(claims)


@given(st.text())
def test_no_reply_breaks_the_readers(reply: str) -> None:
    assert read_verdict(reply) in (True, False, None)
    read_claims(reply)


def test_the_schema_sent_along_allows_what_is_read() -> None:
    item = CLAIMS_SCHEMA["properties"]["claims"]["items"]
    assert set(item["required"]) == set(CLAIMS["claims"][0])
