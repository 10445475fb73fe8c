"""Body of webhooks: the notice as JSON."""

import json
from collections.abc import Mapping
from typing import Any


def webhook_body(notice: Mapping[str, Any]) -> bytes:
    """Write the notice as JSON in ASCII, which no proxy re-encodes."""
    return json.dumps(notice, ensure_ascii=True, separators=(",", ":")).encode()
