"""Body of webhooks: the notice as JSON."""

import json

from app.hooks.domain.notices import Notice


def webhook_body(notice: Notice) -> bytes:
    """Write the notice as JSON in ASCII, which no proxy re-encodes."""
    return json.dumps(notice, ensure_ascii=True, separators=(",", ":")).encode()
