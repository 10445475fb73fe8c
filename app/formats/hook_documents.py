"""Hooks as users write them: where news goes, and how it is signed. Sending is the hook adapter's work."""

import base64
import binascii
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from app.domain.model import Hook
from app.formats.fields import Document, Seconds, Slug, Url, complaint, refuse_unbuilt

HOOK_KINDS = ("webhook",)
PLANNED_HOOK_KINDS = ("slack", "pagerduty", "alertmanager", "email", "apprise")


def _hook_kind(value: Any) -> Any:
    refuse_unbuilt("hook kind", value, HOOK_KINDS, PLANNED_HOOK_KINDS)
    return value


def _secret(secret: str) -> str:
    """Check the form of a Standard Webhooks secret, https://www.standardwebhooks.com: `whsec_` + base64 of 24-64 bytes.

    Never quotes the value.
    """
    if not secret.startswith("whsec_"):
        raise complaint("must begin with whsec_")
    try:
        length = len(base64.b64decode(secret.removeprefix("whsec_"), validate=True))
    except (binascii.Error, ValueError):
        raise complaint("must be whsec_ followed by base64") from None
    if not 24 <= length <= 64:  # noqa: PLR2004 - the specification's two ends, said in the message
        raise complaint(f"must be whsec_ followed by the base64 of 24 to 64 bytes, not {length}")
    return secret


class HookDocument(Document):
    """Where news goes."""

    slug: Slug
    kind: Annotated[str, BeforeValidator(_hook_kind), WithJsonSchema({"enum": list(HOOK_KINDS)})]
    url: Url
    secret: Annotated[str, AfterValidator(_secret)] | None = Field(default=None, repr=False)
    """Write-only. None = messages go unsigned."""
    timeout: Seconds = 15.0

    def to_domain(self) -> Hook:
        """Return the value the domain works with."""
        return Hook(slug=self.slug, kind=self.kind, url=self.url, secret=self.secret, timeout_seconds=self.timeout)
