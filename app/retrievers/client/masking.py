"""Masks secrets, in the forms in which a server may quote them, in texts for people."""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from html import escape
from urllib.parse import quote, quote_plus

MASK = "•••"
SHORTEST = 4
"""Shorter values are left: masking them would say more than it hides, and shred the text."""
_QUOTABLE = 8
"""The least number of base64 characters by which a secret is recognised inside other base64."""


def masked(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret in `text` by three dots, also encoded for a URL, JSON, HTML or base64, and overlapping."""
    forms = {form for secret in secrets if len(secret.strip()) >= SHORTEST for form in _forms(secret)}
    parts: list[str] = []
    end = 0
    for start, stop in sorted(place for form in forms for place in _places(text, form)):
        if start >= end:
            parts += (text[end:start], MASK)
        end = max(end, stop)
    return "".join((*parts, text[end:]))


def _places(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges a form covers, in time linear in the text also where it overlaps itself, as `aaaa` does.

    Occurrences that overlap by its period are yielded as one; others are few, as overlapping by half is by the period.
    """
    start = text.find(form)
    period = _period(form) if start >= 0 else 0
    repeated = form[len(form) - period :]
    while start >= 0:
        end = start + len(form)
        while period < len(form) and text.startswith(repeated, end):
            end += period
        yield start, end
        start = text.find(form, end - len(form) + 1)


def _period(form: str) -> int:
    """Least shift by which a form matches itself again (Knuth, Morris and Pratt, 1977)."""
    borders = [0]
    matched = 0
    for character in form[1:]:
        while matched and form[matched] != character:
            matched = borders[matched - 1]
        matched += form[matched] == character
        borders.append(matched)
    return len(form) - matched


def _forms(secret: str) -> Iterator[str]:
    """Yield the forms in which a server may quote a secret; those of a short one may be shorter than it."""
    yield secret
    yield secret.strip()
    yield secret.encode(errors="replace").decode("latin-1")  # as a header read by the letter of HTTP
    for encoded in (
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        quote_plus(secret, errors="replace"),
    ):
        yield encoded
        yield _PERCENT.sub(lambda match: match[0].lower(), encoded)
    for quoted in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield quoted
        yield quoted.replace("/", "\\/")
        yield quoted.translate(_SCRIPT_SAFE)
        yield quoted.translate(_SCRIPT_SAFE).replace("'", "\\u0027")
    yield escape(secret)
    for encode in (b64encode, urlsafe_b64encode):
        yield from _base64(secret.encode(errors="replace"), encode)


def _base64(secret: bytes, encode: Callable[[bytes], bytes]) -> Iterator[str]:
    """Yield the secret as base64, also as it stands inside the base64 of more, such as `user:password`.

    Three bytes make four characters, so it may begin at three places; characters that mix it with others are left out.
    """
    yield encode(secret).decode().rstrip("=")
    for before in range(3):
        text = encode(bytes(before) + secret).decode().rstrip("=")
        core = text[before + 1 if before else 0 : len(text) - ((before + len(secret)) % 3 != 0)]
        if len(core) >= _QUOTABLE:
            yield core


_PERCENT = re.compile("%[0-9A-F]{2}")
_SCRIPT_SAFE = {ord(one): f"\\u{ord(one):04x}" for one in "<>&"}  # as many JSON writers do
