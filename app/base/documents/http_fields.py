"""Authentication of an endpoint as users write it: headers, the kinds of `auth`, and `tls`.

`retrievers.client.credentials` puts it into requests; `catalog.documents.secrets` keeps its secrets out of responses.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from app.base.addresses import (
    HEADER_NAME,
    HEADER_VALUE,
    OWN_HEADERS,
    ApiKey,
    Auth,
    Basic,
    Bearer,
    Endpoint,
    IdentityAuth,
    OAuth2,
    SigV4,
    Tls,
)
from app.base.documents.fields import (
    Place,
    SecretPart,
    Text,
    Url,
    Widget,
    did_you_mean,
    field_error,
    field_errors,
    widgets_of,
)
from app.base.values import EMPTY


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
    dict[str, Annotated[str, StringConstraints(max_length=16_384)]], AfterValidator(_headers), Field(max_length=50)
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


TLS_TEXTS = ("certificate", "key", "authority")
"""The keys of `tls`; the private key alone is a secret."""

KEY_IN_ONE_PLACE = "must say where the key goes, either 'header' or 'query'"
"""What is said of an API key without a place, or with two."""

MOST_IDENTITIES = 100
"""Identities of one retriever."""

BEARER_STYLE: Mapping[str, Any] = {"kind": "bearer"}
"""How embedders and rerankers are spoken to where nothing else is said."""


def nothing_required(schema: dict[str, Any]) -> None:
    """Say that anything may be left out: a preset may give it, a `*_file` twin may stand for it."""
    schema.pop("required", None)


class _AuthDocument(SecretPart):
    model_config = ConfigDict(json_schema_extra=nothing_required)


_SECRET = Widget(secret=True)


class BearerDocument(_AuthDocument):
    """`Authorization: Bearer TOKEN`."""

    model_config = ConfigDict(title="Bearer token")

    kind: Literal["bearer"]
    token: Annotated[Secret, Field(title="Token", repr=False), _SECRET]

    def to_domain(self) -> Bearer:
        """Return the value the domain works with."""
        return Bearer(token=self.token)


class ApiKeyDocument(_AuthDocument):
    """A key in a header or in a query parameter, with what stands before it."""

    model_config = ConfigDict(title="API key")

    kind: Literal["api_key"]
    key: Annotated[Secret, Field(title="Key", repr=False), _SECRET]
    header: Annotated[
        HeaderName | None,
        Field(title="Header"),
        Widget(placeholder="X-Api-Key", hint="name of the header with the key; or a query parameter"),
    ] = None
    query: Annotated[
        Annotated[Text, StringConstraints(max_length=256)] | None,
        Field(title="Query parameter"),
        Widget(placeholder="api_key", hint="instead of a header: then leave Header empty"),
    ] = None
    prefix: Annotated[
        str,
        StringConstraints(max_length=64, pattern=r"^[ -~]*$"),
        Field(title="Prefix"),
        Widget(keeps_spaces=True, hint="what stands before the key, if anything, such as Bearer and a space"),
    ] = ""

    @model_validator(mode="after")
    def _in_one_place(self) -> Self:
        if (self.header is None) == (self.query is None):
            raise field_error(KEY_IN_ONE_PLACE)
        return self

    def to_domain(self) -> ApiKey:
        """Return the value the domain works with."""
        return ApiKey(key=self.key, header=self.header, query=self.query, prefix=self.prefix)


def _user(user: str) -> str:
    if ":" in user:
        raise field_error("must not hold a ':', which ends the user in basic authentication")
    return user


class BasicDocument(_AuthDocument):
    """A user and a password; for SQL those of the database."""

    model_config = ConfigDict(title="User and password")

    kind: Literal["basic"]
    user: Annotated[Text, StringConstraints(max_length=1024), AfterValidator(_user), Field(title="User"), Widget()]
    password: Annotated[Text, StringConstraints(max_length=16_384), Field(title="Password", repr=False), _SECRET]

    def to_domain(self) -> Basic:
        """Return the value the domain works with."""
        return Basic(user=self.user, password=self.password)


_PEM = re.compile(r"\s*-----BEGIN [A-Z0-9 ]+-----[\s!-~]*-----END [A-Z0-9 ]+-----\s*", re.ASCII)


def _certificate(text: str) -> str:
    if "PRIVATE KEY-----" in text:
        raise field_error("holds a private key, which is a secret; put it under key")
    if not _PEM.fullmatch(text) or "-----BEGIN CERTIFICATE-----" not in text:
        raise field_error("must be a certificate as PEM: -----BEGIN CERTIFICATE----- and so on")
    return text


def _private_key(text: str) -> str:
    if not _PEM.fullmatch(text) or "PRIVATE KEY-----" not in text:
        raise field_error("must be a private key as PEM: -----BEGIN PRIVATE KEY----- and so on")
    if "ENCRYPTED" in text:
        raise field_error("must be a private key without a passphrase; it is stored encrypted")
    return text


_PemText = Annotated[str, StringConstraints(max_length=100_000)]


PemCertificate = Annotated[_PemText, AfterValidator(_certificate)]


class TlsDocument(SecretPart):
    """PEM texts: our certificate with its key (mTLS), and an authority to trust in place of the system's."""

    certificate: PemCertificate | None = None
    key: Annotated[_PemText, AfterValidator(_private_key)] | None = Field(default=None, repr=False)
    authority: PemCertificate | None = None

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            missing = "certificate" if self.certificate is None else "key"
            raise field_errors([((missing,), "is missing; a certificate and its key go together")])
        return self

    def to_domain(self) -> Tls:
        """Return the value the domain works with."""
        return Tls(certificate=self.certificate, key=self.key, authority=self.authority)


def tls_value(document: TlsDocument | None) -> Tls | None:
    """Return the value the domain works with."""
    return document.to_domain() if document is not None else None


class OAuth2Document(_AuthDocument):
    """Client credentials: a token is fetched from `token_url` and used as long as it is valid."""

    model_config = ConfigDict(title="OAuth2 client")

    kind: Literal["oauth2"]
    token_url: Annotated[Url, Field(title="Token URL"), Widget()]
    client_id: Annotated[Text, StringConstraints(max_length=1024), Field(title="Client id"), Widget()]
    client_secret: Annotated[
        Text, StringConstraints(max_length=16_384), Field(title="Client secret", repr=False), _SECRET
    ]
    scope: Annotated[Annotated[Text, StringConstraints(max_length=4096)] | None, Field(title="Scope"), Widget()] = None
    audience: Annotated[
        Annotated[Text, StringConstraints(max_length=2048)] | None, Field(title="Audience"), Widget()
    ] = None
    tls: TlsDocument | None = None

    def to_domain(self) -> OAuth2:
        """Return the value the domain works with."""
        return OAuth2(
            token_url=self.token_url,
            client_id=self.client_id,
            client_secret=self.client_secret,
            scope=self.scope,
            audience=self.audience,
            tls=tls_value(self.tls),
        )


_AwsName = Annotated[Text, StringConstraints(max_length=128)]


class SigV4Document(_AuthDocument):
    """AWS Signature Version 4."""

    model_config = ConfigDict(title="AWS Signature Version 4")

    kind: Literal["sigv4"]
    region: Annotated[_AwsName, Field(title="Region"), Widget()]
    service: Annotated[_AwsName, Field(title="Service"), Widget()]
    access_key: Annotated[_AwsName, Field(title="Access key"), Widget()]
    secret_key: Annotated[Secret, Field(title="Secret key", repr=False), _SECRET]
    session_token: Annotated[Secret | None, Field(title="Session token", repr=False), _SECRET] = None

    def to_domain(self) -> SigV4:
        """Return the value the domain works with."""
        return SigV4(
            region=self.region,
            service=self.service,
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
        )


_Any = BearerDocument | ApiKeyDocument | BasicDocument | OAuth2Document | SigV4Document
AUTH_KINDS: Mapping[str, type[_Any]] = {
    "bearer": BearerDocument,
    "api_key": ApiKeyDocument,
    "basic": BasicDocument,
    "oauth2": OAuth2Document,
    "sigv4": SigV4Document,
}
AUTH_SECRETS = tuple(
    dict.fromkeys(
        name for document in AUTH_KINDS.values() for name, widget in widgets_of(document).items() if widget.secret
    )
)
"""The keys of `auth` whose values are secrets, of whatever kind it is."""


def _of_its_kind(value: Any, _handler: ValidatorFunctionWrapHandler) -> _Any:
    """Validate as the kind that is said alone, so that errors speak of that one and their places hold no tag."""
    if isinstance(value, _Any):
        return value
    if not isinstance(value, Mapping):
        raise field_error("must be a mapping with a kind, for example {kind: bearer, token: ...}")
    kind = value.get("kind")
    if kind is None and "by" in value:
        raise field_errors([(("by",), "belongs to the auth of the retriever itself, once")])
    if kind is None:
        raise field_errors([(("kind",), f"is missing; say one of {', '.join(AUTH_KINDS)}")])
    if not isinstance(kind, str) or kind not in AUTH_KINDS:
        near = did_you_mean(kind, AUTH_KINDS) if isinstance(kind, str) else ""
        # What was said is not quoted: it may be a token, put where its kind belongs.
        raise field_errors([(("kind",), f"must be one of {', '.join(AUTH_KINDS)}{near}")])
    return AUTH_KINDS[kind].model_validate(value)


AuthDocument = Annotated[_Any, WrapValidator(_of_its_kind)]


def _identity(value: str) -> str:
    if value.endswith(".tls"):  # the names of two secrets could be one then, see `catalog.documents.secrets`
        raise field_error("must not end in .tls")
    return value


class IdentityAuthDocument(SecretPart):
    """Credentials of each identity: `by` is the variable that says who asks, `of` has the credentials of each value.

    A canary is asked with those of its value alone; where its value has none, it is not asked.
    """

    model_config = ConfigDict(title="Credentials of each identity")

    by: Annotated[
        Annotated[Text, StringConstraints(max_length=64)],
        Field(title="Variable", description="An option of the retriever, such as user; canaries set it in vars."),
    ]
    of: Annotated[
        dict[Annotated[Text, StringConstraints(min_length=1, max_length=500), AfterValidator(_identity)], AuthDocument],
        Field(
            title="Credentials",
            description="By value of the variable.",
            min_length=1,
            max_length=MOST_IDENTITIES,
        ),
    ]

    def to_domain(self) -> IdentityAuth:
        """Return the value the domain works with."""
        return IdentityAuth(by=self.by, of={value: one.to_domain() for value, one in self.of.items()})


def is_by_identity(auth: Any) -> bool:
    """Whether a raw `auth`, which may be invalid, has credentials of each identity."""
    return isinstance(auth, Mapping) and "kind" not in auth and ("by" in auth or "of" in auth)


def _of_its_form(value: Any, handler: ValidatorFunctionWrapHandler) -> _Any | IdentityAuthDocument:
    """Validate as credentials of each identity or as those of all, so that errors speak of one form alone."""
    if isinstance(value, IdentityAuthDocument):
        return value
    return IdentityAuthDocument.model_validate(value) if is_by_identity(value) else _of_its_kind(value, handler)


RetrieverAuthDocument = Annotated[_Any | IdentityAuthDocument, WrapValidator(_of_its_form)]
"""What a retriever may have: an endpoint beside it is asked by Coalmine itself, whoever a canary asks as."""


def auth_value(document: _Any | None) -> Auth | None:
    """Return the value the domain works with."""
    return document.to_domain() if document is not None else None


def auth_headers(document: _Any | IdentityAuthDocument | None) -> list[str]:
    """Name the headers that are set to prove who asks."""
    if document is None:
        return []
    documents = document.of.values() if isinstance(document, IdentityAuthDocument) else [document]
    names = [one.header if isinstance(one, ApiKeyDocument) else "Authorization" for one in documents]
    return [name for name in dict.fromkeys(names) if name is not None]


def apply_style(written: Any, style: Mapping[str, Any]) -> Any:
    """Lay what a user wrote under `auth` over an endpoint's own style: its kind, its header, its region's service.

    Where no kind is written, `key` and `token` are two words for the same. Credentials of identities each get it.
    """
    if is_by_identity(written):
        of = written.get("of")
        styled = {value: apply_style(one, style) for value, one in of.items()} if isinstance(of, Mapping) else of
        return {**written, "of": styled} if "of" in written else written
    if not isinstance(written, Mapping) or not style or written.get("kind", style["kind"]) != style["kind"]:
        return written
    elsewhere = {"header", "query"} & written.keys()
    whole = {key: value for key, value in style.items() if not (elsewhere and key in {"header", "query", "prefix"})}
    whole |= written
    if "kind" not in written:
        field, other = ("key", "token") if style["kind"] == "api_key" else ("token", "key")
        if style["kind"] in {"bearer", "api_key"} and other in whole and field not in whole:
            whole[field] = whole.pop(other)
    return whole


def endpoint_value(
    url: str, *, headers: Mapping[str, str] = EMPTY, auth: _Any | None, tls: TlsDocument | None, timeout: float
) -> Endpoint:
    """Return a service beside a retriever, from the fields that the documents of all of them have."""
    return Endpoint(url=url, headers=dict(headers), auth=auth_value(auth), tls=tls_value(tls), timeout_seconds=timeout)
