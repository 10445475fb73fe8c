"""Notices as each hook kind sends them: from the contract's mapping to the bytes of the request."""

from collections.abc import Mapping
from types import MappingProxyType

from app.hooks.domain import Hook, HookKind, Notice
from app.hooks.notices.mail import READY, apprise_body, email_body, report_body
from app.hooks.notices.paging import alertmanager_body, pagerduty_body, webhook_body
from app.hooks.notices.slack import slack_body


def body_of(hook: Hook, notice: Notice, message_id: str) -> bytes:
    """Write the body of a notice for a hook, frozen at the first attempt. It never holds a secret."""
    return report_body(hook, notice, message_id) if notice["type"] == READY else _alert_body(hook, notice, message_id)


def _alert_body(hook: Hook, notice: Notice, message_id: str) -> bytes:
    match HookKind(hook.kind):
        case HookKind.WEBHOOK:
            return webhook_body(notice)
        case HookKind.SLACK:
            return slack_body(notice)
        case HookKind.PAGERDUTY:
            return pagerduty_body(notice, message_id)
        case HookKind.ALERTMANAGER:
            return alertmanager_body(hook, notice, message_id)
        case HookKind.EMAIL:
            return email_body(hook, notice, message_id)
        case HookKind.APPRISE:
            return apprise_body(notice)


def is_written_for(hook: Hook, body: bytes) -> bool:
    """Whether a frozen body fits the hook's kind; else the hook changed its kind, and the body is written again."""
    return body.startswith(_BEGINNINGS[HookKind(hook.kind)])


_BEGINNINGS: Mapping[HookKind, bytes] = MappingProxyType(
    {
        HookKind.WEBHOOK: b'{"type":',
        HookKind.SLACK: b'{"text":',
        HookKind.PAGERDUTY: b'{"event_action":',
        HookKind.ALERTMANAGER: b'[{"labels":',
        HookKind.EMAIL: b"From: ",
        HookKind.APPRISE: b'{"title":',
    }
)
