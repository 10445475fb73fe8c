"""Presets: what is the same for all users of a vendor's retrieval API, as a table. Each entry fills in a document.

A preset is data and asks nobody; what users write in a document wins over it, field by field.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from app.domain.model import EMPTY
from app.domain.retrievers import Dialect

LIVE, SHAPE = "live", "shape"
"""How a preset is tested: against the real server, or against answers of the shape its vendor documents."""


def _empty() -> Mapping[str, Any]:
    return EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One retrieval API: how it is asked and read.

    `path` is appended to a `url` that names only a host. `options` are names for the templates, None = the user must
    say it. `request`, `response`, `scorer`, `lookup` and `auth` are the parts of a retriever document to start from.
    """

    name: str
    what: str
    """A line for people: what it is for."""
    source: str
    """The page of the vendor's reference it was written by."""
    tested: str
    dialect: Dialect = Dialect.HTTP
    path: str = ""
    options: Mapping[str, str | None] = field(default_factory=_empty)
    lookup: Mapping[str, Any] | None = None
    request: Mapping[str, Any] = field(default_factory=_empty)
    response: Mapping[str, Any] = field(default_factory=_empty)
    scorer: Mapping[str, Any] = field(default_factory=_empty)
    auth: Mapping[str, Any] = field(default_factory=_empty)
    """The style of authentication without its secret, for example `{kind: api_key, header: api-key}`; it is used where
    a document says `auth: {key: ...}` and no kind."""
    needs_vector: bool = False


PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                name="generic",
                what="any HTTP endpoint that answers with JSON",
                source="https://github.com/",
                tested=LIVE,
                request={"method": "POST", "json": {"query": "{{ query }}", "top_k": "{{ k }}"}},
            ),
        )
    }
)
