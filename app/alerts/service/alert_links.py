"""Links of an alert, from the configured addresses."""

import re
from dataclasses import dataclass

from app.alerts.store.alerts import AlertRow
from app.hooks.domain.notices import NoticeLinks


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where the links of a notification lead; `{check}`, `{rule}` and `{kind}`, that of the rule, are replaced."""

    public_url: str
    dashboard_url: str | None = None
    runbook_url: str | None = None


def filled_links(links: Links, alert: AlertRow, run_id: int | None) -> NoticeLinks:
    """Links of an alert and, where given, of a run."""
    names = {"{check}": alert.check, "{rule}": alert.rule_key, "{kind}": alert.kind}

    def filled(template: str | None) -> str | None:
        return re.sub("{(check|rule|kind)}", lambda match: names[match[0]], template) if template else None

    return {
        "alert": f"{links.public_url}/alerts/{alert.id}",
        "check": f"{links.public_url}/checks/{alert.check}",
        "run": f"{links.public_url}/runs/{run_id}" if run_id is not None else None,
        "dashboard": filled(links.dashboard_url),
        "runbook": filled(links.runbook_url),
    }
