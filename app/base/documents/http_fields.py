"""The small types of documents about HTTP: headers, addresses with placeholders, texts that are secret.

Which documents have them is said in the documents' own modules.
"""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from app.base.documents.fields import Place, field_error, field_errors
from app.base.http_headers import HEADER_NAME, HEADER_VALUE, OWN_HEADERS


def _headers(headers: dict[str, str]) -> dict[str, str]:
    wrong: list[tuple[Place, str]] = []
    names: set[str] = set()
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            wrong.append(((name,), "is not the name of a header"))
        elif name.lower() in OWN_HEADERS:
            wrong.append(((name,), "is set by Coalmine and cannot be changed"))
        elif name.lower() in names:
            wrong.append(((name,), "is given twice; upper and lower case are the same header"))
        if not HEADER_VALUE.fullmatch(value):
            wrong.append(((name,), "must be one line of Latin-1 characters"))
        names.add(name.lower())
    if wrong:
        raise field_errors(wrong)
    return headers


Headers = Annotated[
    dict[str, Annotated[str, StringConstraints(max_length=16_384)]],
    AfterValidator(_headers),
    Field(max_length=50),
]
"""Write-only: their values are secrets."""


def _header_name(name: str) -> str:
    if not HEADER_NAME.fullmatch(name) or name.lower() in OWN_HEADERS:
        raise field_error("must be the name of a header, for example X-Api-Key")
    return name


HeaderName = Annotated[str, AfterValidator(_header_name)]


def _one_line(text: str) -> str:
    if not text.strip():
        raise field_error("must not be blank")
    if not HEADER_VALUE.fullmatch(text):
        raise field_error("must be one line of Latin-1 characters")
    return text


Secret = Annotated[str, StringConstraints(max_length=16_384), AfterValidator(_one_line)]
"""A text that is never shown, quoted or stored in the clear, and fits a header."""


def origin_of(url: str) -> str:
    """Return the part of an address that says who is spoken to: scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def has_header(headers: Mapping[str, Any], name: str) -> bool:
    """Whether a header is among those given, in whatever case."""
    return name.lower() in {given.lower() for given in headers}
