"""Scheduled reports as each hook kind sends them: HTML by mail, Markdown to webhooks, the first lines to chats.

Chat services cut or refuse long texts, so they get what comes first, and a link to the rest.
"""

from typing import Final

from app.base.errors import ConfigurationError
from app.hooks.domain.hooks import TAKES_NO_REPORT, Hook, HookKind
from app.hooks.domain.notices import Notice
from app.hooks.notices.apprise import apprise_body
from app.hooks.notices.email import mail_body
from app.hooks.notices.slack import slack_body
from app.hooks.notices.webhook import webhook_body

READY: Final = "report.ready"


def report_body(hook: Hook, notice: Notice, message_id: str) -> bytes:
    """Write the body of a report. Raises ConfigurationError for a kind of hook that is for alerts alone."""
    data, kind = notice["data"].copy(), HookKind(hook.kind)
    if kind in TAKES_NO_REPORT:
        raise ConfigurationError(f"a hook of kind {kind} takes no reports")
    if kind is HookKind.EMAIL:
        thread = f"coalmine/{data['check']}/report"
        return mail_body(hook, notice, message_id, text=data["markdown"], html=data["html"], thread=thread)
    del data["html"]
    lines = data.pop("lines")
    if kind is HookKind.WEBHOOK:
        return webhook_body({**notice, "data": data})
    data["reason"] = "; ".join(lines)
    return (slack_body if kind is HookKind.SLACK else apprise_body)({**notice, "data": data})
