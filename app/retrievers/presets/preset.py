"""A preset as data: request, response mapping and authentication of a vendor's API. The families hold the entries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.base.values import EMPTY
from app.retrievers.domain.retrievers import Dialect

LIVE, SHAPE = "live", "shape"
"""How a preset is tested: against the real server, or against answers of the shape its vendor documents."""


def _empty() -> Mapping[str, Any]:
    return EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One variable of a preset's templates; the form's field, the error and the line of the docs are made of it.

    Options are part of addresses, bodies and statements, which are shown: none is a secret. Secrets belong in `auth`.
    """

    name: str
    label: str
    """Label in forms and errors: a noun of one to three words."""
    example: str
    """A value as a user would write it."""
    default: str | None = None
    """None = the user must set it."""

    @property
    def required(self) -> bool:
        """Whether the user must set it."""
        return self.default is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One retrieval API: its request and its response mapping.

    `path` is appended to a `url` that names only a host. `options` are the variables of the templates. `request`,
    `response`, `scorer`, `lookup` and `auth` are the parts of a retriever document to start from; the `url` of a
    `lookup` is a path on the same host.

    A `scorer` declares a scale only where the vendor's own default puts scores on it. Scores outside their scale are
    refused, which reveals most other settings; one that puts others on the same scale is noted beside the entry.
    """

    name: str
    what: str
    """The API, in a line for people."""
    source: str
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
    """Whether a response the user writes replaces all of this one."""
    scorer: Mapping[str, Any] = field(default_factory=_empty)
    auth: Mapping[str, Any] = field(default_factory=_empty)
    """The style of authentication without its secret, for example `{kind: api_key, header: api-key}`; it is used where
    a document says `auth: {key: ...}` and no kind."""
    needs_auth: bool = False
    """Whether the service requires authentication, so that forms begin with that of `auth`."""
    needs_vector: bool = False

    def option(self, name: str) -> Option | None:
        """Return the option of that name, None where there is none."""
        return next((option for option in self.options if option.name == name), None)
