"""Secrets are taken out of text in every form a server may quote them in."""

import json
from base64 import b64encode, urlsafe_b64encode
from html import escape
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrievers.client.credentials import MASK, masked

SECRET = "hun\"ter/2 <&>\\ü+'%\n"


def test_every_form_is_masked() -> None:
    for form in [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(SECRET)[1:-1].replace("/", "\\/"),
        json.dumps(SECRET)[1:-1].replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
        escape(SECRET),
        b64encode(SECRET.encode()).decode().rstrip("="),
        urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
        SECRET.encode().decode("latin-1"),
    ]:
        shown = masked(f'{{"echo": "before {form} after"}}', [SECRET])
        assert form.strip() not in shown, form
        assert "before •••" in shown, form
        assert shown.endswith(' after"}'), form


@pytest.mark.parametrize("user", ["", "a", "ab", "abc"])
def test_secret_inside_the_base64_of_more_is_masked(user: str) -> None:
    token = "a-long-enough-token"
    shown = masked(b64encode(f"{user}{token}:x".encode()).decode(), [token])
    assert MASK in shown
    assert len(shown) < 16


def test_longer_secret_is_masked_whole_and_overlapping_ones_leave_nothing() -> None:
    assert masked("Bearer hunter2!", ["hunter2", "Bearer hunter2"]) == "•••!"
    assert masked("xabcdefghx", ["abcde", "cdefgh"]) == "x•••x"
    assert masked("abcabcabc", ["abcabc"]) == "•••"
    assert masked("keys k-12k-12 k-12", ["k-12"]) == "keys ••••••" + " •••"


def test_short_values_are_left() -> None:
    assert masked("the abc of it", ["abc", "", " a ", "the"]) == "the abc of it"


def test_nothing_to_mask_changes_nothing() -> None:
    assert masked("text", []) == masked("text", ["other"]) == "text"
    assert masked("", ["secret"]) == ""


@given(st.lists(st.text(min_size=4, max_size=12)), st.text(), st.text())
def test_no_secret_survives(secrets: list[str], before: str, after: str) -> None:
    assert secrets == [] or MASK in masked(f"{before}{secrets[0]}{after}", secrets) or len(secrets[0].strip()) < 4
    shown = masked("".join(f"{before}{secret}" for secret in secrets) + after, secrets)
    for piece in shown.split(MASK):
        assert not [secret for secret in secrets if len(secret.strip()) >= 4 and secret in piece]


class Searched(str):
    """A text that counts how often it is searched."""

    __slots__ = ("searches",)

    def find(self, *arguments: Any) -> int:
        """Search from some place on."""
        self.searches = getattr(self, "searches", 0) + 1
        return super().find(*arguments)


@pytest.mark.parametrize("unit", ["a", "ab", "abc", "aab"])
def test_a_secret_that_overlaps_itself_is_found_without_a_search_for_every_letter(unit: str) -> None:
    text = Searched("before " + unit * 5_000 + " between " + unit * 3_000)
    assert masked(text, [unit * 100]) == "before ••• between •••"
    assert text.searches < 60


@given(st.text("ab", min_size=4, max_size=9), st.text("abc", max_size=60))
def test_all_of_a_secret_that_overlaps_itself_is_masked(secret: str, text: str) -> None:
    covered = {
        at for start in range(len(text)) if text.startswith(secret, start) for at in range(start, start + len(secret))
    }
    left = "".join(one for at, one in enumerate(text) if at not in covered)
    assert masked(text, [secret]).replace(MASK, "") == left
