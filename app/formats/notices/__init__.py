"""How each hook kind writes a notice: a mapping in the words of the contract in, the bytes that are sent out."""

from collections.abc import Mapping
from typing import Any

from app.domain.model import Hook
from app.formats.notices.webhook import webhook_body


def body_of(hook: Hook, notice: Mapping[str, Any]) -> bytes:
    """Write a notice as this hook is sent it, to be frozen at the first attempt. It never holds a secret."""
    if hook.kind == "webhook":
        return webhook_body(notice)
    raise AssertionError(f"no hook kind {hook.kind}")
