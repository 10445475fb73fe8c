"""What a preset is: all that a vendor's users would otherwise write alike, as data. The families hold the entries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.model import EMPTY
from app.domain.probing.retrievers import Dialect

LIVE, SHAPE = "live", "shape"
"""How a preset is tested: against the real server, or against answers of the shape its vendor documents."""


def _empty() -> Mapping[str, Any]:
    return EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One variable of a preset's templates: the form's field, the error and the line of the docs are made of it.

    Options are part of addresses, bodies and statements, which are shown: none is a secret. Secrets belong in `auth`.
    """

    name: str
    """How the templates and `options` call it."""
    label: str
    """How forms and errors call it: a noun of one to three words."""
    example: str
    """A value as a user would write it."""
    default: str | None = None
    """None = the user must say it."""

    @property
    def required(self) -> bool:
        """Whether the user must say it."""
        return self.default is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One retrieval API: how it is asked and read.

    `path` is appended to a `url` that names only a host. `options` are the variables of the templates. `request`,
    `response`, `scorer`, `lookup` and `auth` are the parts of a retriever document to start from; the `url` of a
    `lookup` is a path on the same host.

    A `scorer` declares a scale only where the vendor's own default puts scores on it. Scores outside their scale are
    refused, so most other settings are told; what another one puts on the same scale cannot be, and is said beside the
    entry.
    """

    name: str
    what: str
    """A line for people: what it is for."""
    source: str
    """The page of the vendor's reference it was written by."""
    tested: str
    example_url: str
    """An address as a user would write it: where `path` is appended, the host alone."""
    dialect: Dialect = Dialect.HTTP
    path: str = ""
    options: tuple[Option, ...] = ()
    lookup: Mapping[str, Any] | None = None
    request: Mapping[str, Any] = field(default_factory=_empty)
    """Options in its `sql` are names of tables and columns."""
    response: Mapping[str, Any] = field(default_factory=_empty)
    response_as_one: bool = False
    """Whether a response the user writes replaces all of this one, its shape being nobody's in particular."""
    scorer: Mapping[str, Any] = field(default_factory=_empty)
    auth: Mapping[str, Any] = field(default_factory=_empty)
    """The style of authentication without its secret, for example `{kind: api_key, header: api-key}`; it is used where
    a document says `auth: {key: ...}` and no kind."""
    needs_auth: bool = False
    """Whether the service answers nobody without authentication, so that forms begin with that of `auth`."""
    needs_vector: bool = False

    def option(self, name: str) -> Option | None:
        """Return the option of that name, None where there is none."""
        return next((option for option in self.options if option.name == name), None)
