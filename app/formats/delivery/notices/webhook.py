"""The body of webhooks: the notice itself, as the contract promises it."""

import json
from collections.abc import Mapping
from typing import Any


def webhook_body(notice: Mapping[str, Any]) -> bytes:
    """Write the notice as JSON in ASCII, so that no text in it changes how it is read on the way."""
    return json.dumps(notice, ensure_ascii=True, separators=(",", ":")).encode()
